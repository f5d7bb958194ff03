// threads.h -- the CPU backend's threads: a pool for the ops, queues for the streams. Compiled once, for cpu and cpu16.
//
// Who runs a task never changes its result: a task owns its outputs, and where it sums, the cuts come from shapes alone.
#pragma once
#include <cstddef>
#include "types.h"

namespace cpu_threads {

void set_count(int n);          // 0: available_cpus() of cpus.h. Ends the pool's threads; the next parallel_for starts the new number
int count();

// Runs task(context, i) for i = 0..tasks-1 and returns when all are done; the caller works too. A second caller at the same time
// (a stream's thread) runs its tasks itself. The first Error thrown by a task is thrown here.
void parallel_for(int tasks, void (*task)(const void* context, int i), const void* context);

template <class F> void parallel_for(int tasks, const F& f) {
    parallel_for(tasks, [](const void* context, int i) { (*static_cast<const F*>(context))(i); }, &f);
}

// At least n floats, 64-byte aligned, of the calling thread, not zeroed; valid until the thread's next call. Kept between calls.
float* thread_buffer(size_t n);

// Another one, for what a caller of parallel_for shares with its tasks.
float* caller_buffer(size_t n);

// Fewer TLB misses in large memory that is not touched yet; only advice.
void advise_huge_pages(void* memory, size_t bytes);

// Results below 1.2e-38 become 0 and inputs below it count as 0, in the calling thread from now on: such numbers cost a hundred
// cycles each. Every thread that computes is in this mode, or bits would depend on who computes.
void flush_to_zero();

// Streams: see kernels.h.
Stream stream_create();
void stream_destroy(Stream stream);
void stream_call(Stream stream, void (*function)(void*), void* argument);
void stream_wait(Stream stream, Stream other);
void stream_check(Stream stream);
void stream_sync(Stream stream);

}  // namespace cpu_threads
