// runtime.h -- the CUDA runtime for tests: what its files share, and what a test may ask of it.
//
// A program is linked with this instead of cudart: nvcc made its .cu files into PTX alone, and kernels are executed by
// engine.cpp. From the environment:
//   SOFT_GPU_ARCH=n          the compute capability to be (90); the newest PTX in the program that it takes runs
//   SOFT_GPU_SMS=n           multiprocessors (132, or 108 with 80)
//   SOFT_GPU_DEVICES=n       devices (1); a process has the memory and the streams of one
//   SOFT_GPU_MEMORY_MB=n     memory of each (4096)
//   SOFT_GPU_SEED=n          the order of streams, blocks and warps (1); 0: streams in the order of their creation
//   SOFT_GPU_EAGER_MS=n      streams start by themselves when nobody has waited for so long (5); 0: never, and then the
//                            order of a single thread's work depends on the seed alone
//   SOFT_GPU_IGNORE_WAITS=1  a fault: no stream waits for another's event
//   SOFT_GPU_NO_GRAPHS=1     no graph can be instantiated; 2: none with dependent launches
//   SOFT_GPU_PATCH=...       a fault: a change of the PTX, see loader.cpp
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <cuda_runtime_api.h>
#include "tests/gpu/order.h"
#include "tests/gpu/ptx.h"

namespace ptx {

// Returns the number SOFT_GPU_`name` of the environment, or `otherwise` where it is not set.
int setting(const char* name, int otherwise);
int architecture();
size_t shared_memory_of_block();        // bytes, at most

// What decides the order of streams, blocks and warps; a test may ask for another from here on.
uint64_t seed();
void set_seed(uint64_t seed);
// How many launches that may begin before the kernel before them has ended were put into streams, by graphs too.
uint64_t dependent_launches();
// How many descriptions cuTensorMapEncodeTiled has made, and what was wrong with the last that it refused: "box[0]: got
// 60".
uint64_t maps_made();
const std::string& map_refused();

// Notes an error of this thread for cudaGetLastError and cudaGetErrorString, and returns it.
cudaError_t refuse(cudaError_t error, const std::string& text = "");
// Appends a kernel to a stream. The work may throw Error, which the next wait reports.
cudaError_t append_kernel(cudaStream_t stream, const std::string& name, bool dependent, std::function<void()> work);
// Appends a call on the device's thread, which says what it touches: order.h.
cudaError_t append_call(cudaStream_t stream, const std::string& name, std::function<void()> work);
// Calls f while no kernel is being executed and no other thread is in here: it may change what kernels read.
void while_idle(const std::function<void()>& f);

// The stand-in for NCCL: its functions by name, null for others.
void* nccl_function(const char* name);

}  // namespace ptx
