// runtime.h -- what the CPU backend's files share: threads, work space and the table of operations.
//
// Which thread runs a task never changes a result: a task owns its outputs, and shapes alone decide
// how a sum is split.
#pragma once
#include "kernels/kernels.h"

namespace BACKEND {

// Runs task(context, i) for 0 <= i < tasks on the pool's threads and the caller's, then returns. A
// second caller at the same time, or a task that calls this, runs its tasks alone. The first
// exception of a task is thrown here.
void parallel_for(int tasks, void (*task)(const void* context, int i), const void* context);

template <class F> static void parallel_for(int tasks, const F& f) {
    parallel_for(
        tasks, [](const void* context, int i) { (*static_cast<const F*>(context))(i); }, &f);
}

// Returns workspace of the calling thread: n floats, 64-byte aligned, not zeroed, valid until its
// next call with the same number. Tasks use numbers below kThreadBuffers; caller_buffer is for
// parallel_for's caller, to share with them.
constexpr int kThreadBuffers = 20;
float* thread_buffer(size_t n, int number = 0);
[[maybe_unused]] static float* caller_buffer(size_t n) { return thread_buffer(n, kThreadBuffers); }

// Ops is the table of one instruction set's operations:
// those of kernels.h, as ./configure lists them.
struct Ops {
    const char* isa;
#define OP(result, name, parameters, arguments) result (*name) parameters;
#include "build/op_table.h"
#undef OP
};

}  // namespace BACKEND
