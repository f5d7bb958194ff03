// simt.h -- the engine under emu.h: runs the threads of CUDA blocks on a CPU, in an order that finds faults.
//
// A CUDA thread is a fiber: a stack of its own, switched by hand. The threads of a block share one OS thread and change
// places only where the kernel synchronises, so a block needs no locks. Who goes on is drawn at random among all who
// may: code that forgets a barrier computes wrong values instead of being right by luck.
//
//   warp operation   every lane leaves a pointer to its operands and waits; the last lane of the mask to come runs the
//   operation
//                    once for all. Shuffles, votes, ldmatrix, mma, wgmma are all this one mechanism.
//   barrier          counts arrivals; the lanes of a warp must arrive from one source line.
//   asynchronous     copies and wgmma (units.cpp) take effect at a random legal moment.
//   dependent launch half of the launches, drawn at random, begin with one block or cluster alone that has no global
//   memory until its threads
//                    are at dependency_sync: what it does before that is the same whether the kernel before has run or
//                    not.
//   finds            missing barriers and short waits (wrong results); divergent barriers and warp operations,
//   deadlocks, foreign
//                    masks, global memory touched before dependency_sync, threads without one (errors with file and
//                    line); with -fsanitize=address overruns, with -fsanitize=thread data races.
//   cluster          its blocks run at the same time. One that reaches into another's shared memory before the
//   cluster's first barrier,
//                    or when the other has ended, is an error.
//   cannot           run two clusters at once: no grid barrier, no spinning on another block. No preemption between
//   synchronisation
//                    points (the thread sanitizer covers that). Missing fences go unnoticed, but for async_fence:
//                    whoever misses one that TMA or wgmma needed is told, in blocks of little shared memory always, in
//                    others one time in eight.
//
// Environment
//   SIMT_SEED=n      the random order (1); 0: threads in order, copies at once, streams first come first served
//   SIMT_THREADS=n   OS threads that share the clusters of a grid (1)
//   SIMT_SKIP_BARRIER=FILE:LINE      a fault for tests of the tests: the barriers and async_fence in that line, and
//   waits for mbarriers, wgmma, TMA
//                    stores and the kernel before, are not there (tests/long/test_mutants.sh)
//   SIMT_STACK_KB=n  stack of a CUDA thread (128; 256 with a sanitizer)
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <type_traits>

// Which sanitizer is on: g++ and clang say it differently.
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define SIMT_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define SIMT_TSAN 1
#endif

namespace simt {

struct uint3 {
    unsigned x, y, z;
};
extern thread_local constinit uint3 threadIdx, blockIdx, blockDim, gridDim;

// As a defaulted argument: the place of the call.
struct Loc {
    const char* file = __builtin_FILE();
    unsigned line = __builtin_LINE();
};

struct error : std::runtime_error {
    using runtime_error::runtime_error;
};

unsigned seed();
void set_seed(unsigned seed);  // from the next launch on, as if the process had started with it

// ------------------------------------------------------------------------------------------------ for the host

// Runs every block of a grid to its end, `cluster` neighbours along x at a time, in random order; a function of the
// seed, of `number` and of the arguments. Throws error. Not reentrant.
extern thread_local constinit size_t
    shared_limit;  // bytes of shared memory that a block of the next launch may have, static ones too
void run_grid(uint3 grid, uint3 block, unsigned cluster, size_t smem, uint64_t number,
              const std::function<void()>& body);

// Whether every thread of a kernel must say dependency_sync (true): the emulator's own test has kernels that need not.
extern bool kernels_depend;

// Errors of blocks end up in the message of `error`; this many thread switches were made so far (for benchmarks).
uint64_t switches();

// ------------------------------------------------------------------------------------------------ for code in a kernel

// Ends the block; run_grid throws an error with this message. The stacks of its threads are dropped: nothing on them is
// destroyed.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

unsigned thread();  // the number of the calling thread within its cluster
inline unsigned lane() { return thread() % 32; }
unsigned warp_count();                   // of the cluster
uint64_t cluster_number();               // a new value for every cluster
unsigned cluster_rank();                 // of the block in its cluster
void* in_block(void* p, unsigned rank);  // where p, in the block's shared memory, lies in that block of the cluster

// Barrier `id` for `count` threads, 0: all that have not returned; id kCluster: of the cluster. wait false: count for
// it and go on.
constexpr int kCluster = 16;
void barrier(int id, unsigned count, bool wait, const char* what, Loc loc);

using WarpOp = void (*)(void* const* arg, unsigned mask);  // one argument per lane of the mask, null for the others
// Waits for all lanes of the mask that have not returned; `whole`: all 32 must be there.
void warp(unsigned mask, void* arg, WarpOp op, const char* what, Loc loc, bool whole = false);
void warp_sync(unsigned mask, Loc loc);  // orders memory, which the others do not

// Until the kernel before this one has ended (kernels/cuda/cuda.cuh, grid_dependency_sync).
void dependency_sync(Loc loc);

// Shared memory has its exact size (overruns are seen), and holds 0xff, which is NaN, when a block starts. A static
// array has no more alignment than its type promises.
void* shared_array(const void* site, size_t bytes, size_t alignment);
unsigned char* shared_memory();
size_t shared_bytes();

// ------------------------------------------------------------------------------------------------ for units.cpp

unsigned random_bits();
bool at_once();                        // asynchronous work: now, or as late as its wait allows
void park(const char* what, Loc loc);  // until wake
void wake(unsigned thread);
bool taken_out(Loc loc);  // by SIMT_SKIP_BARRIER

// f() at some later moment, which block `block` of the cluster must see; what it holds must be plain data.
struct Later {
    void (*run)(const void* closure);
    unsigned block;
    alignas(16) unsigned char closure[112];
};
void later(const Later& work);
template <class F>
void later(const F& f, unsigned block) {
    static_assert(std::is_trivially_copyable_v<F> && sizeof(F) <= sizeof(Later::closure));
    Later work;
    work.run = [](const void* closure) { (*static_cast<const F*>(closure))(); };
    work.block = block;
    std::memcpy(work.closure, &f, sizeof f);
    later(work);
}
void units_thread_end(unsigned thread);  // units.cpp: complains about copies that the thread has not waited for

// ------------------------------------------------------------------------------------------------ for runtime.cpp, and
// by it

bool in_kernel();  // this OS thread runs a thread of one
// Device memory cannot be accessed until it is unlocked again. A kernel's access is let through, and unlock_memory then
// says true. Both do nothing under a sanitizer, for which memory has its exact size and no pages of its own.
void lock_memory();
bool unlock_memory();

// What the thread sanitizer is told: accesses in the scope of a Quiet are the engine's, not the kernel's; release and
// acquire on one address order what came before with what comes after. Inline, for a call of its own would unbalance
// its call stack.
#define SIMT_INLINE __attribute__((always_inline)) inline
#ifdef SIMT_TSAN
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
struct Quiet {
    SIMT_INLINE Quiet() { AnnotateIgnoreReadsBegin("", 0), AnnotateIgnoreWritesBegin("", 0); }
    SIMT_INLINE ~Quiet() { AnnotateIgnoreWritesEnd("", 0), AnnotateIgnoreReadsEnd("", 0); }
};
SIMT_INLINE void release(void* p) { __tsan_release(p); }
SIMT_INLINE void acquire(void* p) { __tsan_acquire(p); }
#else
struct Quiet {
    SIMT_INLINE Quiet() {}
    SIMT_INLINE ~Quiet() {}
};
SIMT_INLINE void release(void*) {}
SIMT_INLINE void acquire(void*) {}
#endif

}  // namespace simt
