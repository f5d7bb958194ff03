// planted.h -- small kernels with a fault, and the same kernels without it: what the software GPU says of them.
#pragma once
#include <sys/wait.h>
#include <unistd.h>
#include <regex>
#include "kernels/cuda/common.cuh"
#include "tests/test.h"

// A kernel gets 64 KB of zeros, x, and x + 4096 floats, or a map of 64 x 64 numbers there; x has a place for each
// thread of the grid.
__device__ inline unsigned place() { return blockIdx.x * 128 + threadIdx.x; }

// Returns the kernel's error, "" where it has none, by a process of its own: an error stays with its process. Three
// blocks run; `dependent`: a second time behind themselves, where griddepcontrol.wait must come first.
template <class K> std::string outcome(K* kernel, unsigned threads, bool dependent) {
    int ends[2];
    EXPECT(pipe(ends) == 0, "no pipe");
    const pid_t child = fork();
    if (child == 0) {
        void* memory = nullptr;
        cudaMalloc(&memory, 1 << 16);
        cudaMemsetAsync(memory, 0, 1 << 16, nullptr);
        float* const x = static_cast<float*>(memory);
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaError_t error = cudaSuccess;
        for (unsigned turn = 0; turn <= unsigned(dependent) && error == cudaSuccess; turn++) {
            const cudaLaunchConfig_t config = {dim3(3), dim3(threads), 16384, nullptr, &early, turn};
            if constexpr (std::is_same_v<K, void(float*, CUtensorMap)>)
                error = cudaLaunchKernelEx(&config, kernel, x,
                                           BACKEND::tensor_map(reinterpret_cast<bf16*>(x + 4096), 64, 64, 64, 64, 8));
            else error = cudaLaunchKernelEx(&config, kernel, x, static_cast<const float*>(x + 4096));
        }
        if (error == cudaSuccess) error = cudaDeviceSynchronize();
        const std::string text = error == cudaSuccess ? "" : cudaGetErrorString(error);
        _exit(write(ends[1], text.data(), text.size()) != ssize_t(text.size()));
    }
    close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, size_t(n));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(status == 0, "the process ended with status %d", status);
    return text;
}
inline void needs_hopper() {
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    if (major < 9) SKIP("no mbarriers on this GPU");
}
