// simt.cpp -- fibers, the random scheduler, barriers and warp operations. See simt.h.
#include "tests/emu/simt.h"
#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cfenv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>
#include <pthread.h>
#include <sys/mman.h>
#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace simt {

thread_local constinit uint3 threadIdx{}, blockIdx{}, blockDim{}, gridDim{};

thread_local constinit size_t shared_limit = 48 * 1024;
bool kernels_depend = true;

static unsigned setting(const char* name, unsigned otherwise) {
    const char* text = std::getenv(name);
    return text ? unsigned(std::strtoul(text, nullptr, 0)) : otherwise;
}
static std::atomic<unsigned> the_seed{setting("SIMT_SEED", 1)};
static std::atomic<uint64_t> switch_count{0};
unsigned seed() { return the_seed; }
void set_seed(unsigned seed) { the_seed = seed; }
uint64_t switches() { return switch_count; }

// ------------------------------------------------------------------------------------------------ what the sanitizers
// must know

#ifdef SIMT_ASAN  // which stack is in use
SIMT_INLINE void asan_leave(void** fake, const void* low, size_t bytes) {
    __sanitizer_start_switch_fiber(fake, low, bytes);
}
SIMT_INLINE void asan_arrive(void* fake) { __sanitizer_finish_switch_fiber(fake, nullptr, nullptr); }
static void asan_forget(const void* low, size_t bytes) { __asan_unpoison_memory_region(low, bytes); }
#else
SIMT_INLINE void asan_leave(void**, const void*, size_t) {}
SIMT_INLINE void asan_arrive(void*) {}
static void asan_forget(const void*, size_t) {}
#endif

#ifdef SIMT_TSAN  // a fiber is a thread to it, and nothing but release and acquire orders two of them
constexpr bool kTsan = true;
static void* tsan_create() { return __tsan_create_fiber(0); }
static void* tsan_self() { return __tsan_get_current_fiber(); }
SIMT_INLINE void tsan_switch(void* fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
static void tsan_destroy(void* fiber) { __tsan_destroy_fiber(fiber); }
#else
constexpr bool kTsan = false;
static void* tsan_create() { return nullptr; }
static void* tsan_self() { return nullptr; }
SIMT_INLINE void tsan_switch(void*) {}
static void tsan_destroy(void*) {}
#endif

// ------------------------------------------------------------------------------------------------ stacks

// simt_switch(save, load): pushes what a callee must keep, leaves the stack pointer in *save, takes `load` and pops.
// ucontext does the same with a system call, 25 times slower.
extern "C" void simt_switch(void** save, void* load);
#if defined(__x86_64__)
asm(".text\n.globl simt_switch\n.type simt_switch, @function\nsimt_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size simt_switch, .-simt_switch\n");
constexpr size_t kSaved = 6, kEntrySlot = 6;  // words; the entry's address is where `ret` looks for it
#elif defined(__aarch64__)
asm(".text\n.globl simt_switch\n.type simt_switch, %function\nsimt_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\nstp x27, x28, [sp, "
    "#64]\n"
    "stp x29, x30, [sp, #80]\nstp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, "
    "[sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\nldp x27, x28, [sp, "
    "#64]\n"
    "ldp x29, x30, [sp, #80]\nldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, "
    "[sp, #144]\n"
    "add sp, sp, #160\nret\n"
    ".size simt_switch, .-simt_switch\n");
constexpr size_t kSaved = 18, kEntrySlot = 11;  // x30
#else
#error "simt_switch for this processor is missing"
#endif

constexpr size_t kPage = 4096;

struct Fiber {
    void* sp = nullptr;   // while it does not run
    char* low = nullptr;  // its stack
    size_t bytes = 0;
    void *fake = nullptr, *tsan = nullptr;  // the sanitizers' notes

    Fiber() = default;  // the OS thread's own stack
    Fiber(size_t index, void (*entry)()) {
#if defined(SIMT_ASAN) || defined(SIMT_TSAN)
        bytes = setting("SIMT_STACK_KB", 256) * size_t(1024);
#else
        bytes = setting("SIMT_STACK_KB", 128) * size_t(1024);
#endif
        void* p =
            mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            std::fprintf(stderr, "simt: no stack for a thread: %s\n", std::strerror(errno));
            std::abort();
        }
        mprotect(p, kPage, PROT_NONE);  // a stack that overflows faults
        low = static_cast<char*>(p) + kPage;
        // Tops at different offsets: else the busy parts of all stacks fall into the same sets of the cache.
        void** top = reinterpret_cast<void**>(low + bytes - 64 - index * 320 % kPage / 64 * 64);
        void** frame = top - kSaved - 2;
        std::memset(frame, 0, (kSaved + 2) * sizeof(void*));
        frame[kEntrySlot] = reinterpret_cast<void*>(entry);
        sp = frame;
        tsan = tsan_create();
    }
    Fiber(const Fiber&) = delete;
    ~Fiber() {
        if (!low || !sp) return;
        asan_forget(low, bytes);
        if (tsan) tsan_destroy(tsan);
        munmap(low - kPage, bytes + kPage);
    }
};

// The bounds of this OS thread's stack. Asked once per thread: on the main one the answer takes 0.7 ms.
static void own_stack(Fiber* fiber) {
#ifdef SIMT_ASAN
    static thread_local Fiber known;
    if (!known.low) {
        pthread_attr_t attributes;
        void* low;
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getstack(&attributes, &low, &known.bytes);
        pthread_attr_destroy(&attributes);
        known.low = static_cast<char*>(low);
    }
    fiber->low = known.low, fiber->bytes = known.bytes;
#endif
    fiber->tsan = tsan_self();
}

// ------------------------------------------------------------------------------------------------ the engine

constexpr int kBarriers = kCluster;
constexpr unsigned kMostBlocks = 8;  // of a cluster, on every GPU that has them

struct Block;
struct Thread {
    uint3 index;
    Block* block;
    Fiber* fiber;  // null before it starts and after it has returned
    void* arg;     // of the warp operation it waits in, as are op and mask
    WarpOp op;
    unsigned mask;
    bool whole;
    bool synced;       // it was in dependency_sync
    const char* what;  // what it waits for; null: it has returned
    Loc loc;
};
struct Site {
    Loc loc;
    unsigned round;
};
struct Warp {
    unsigned live, waiting;    // lanes that have not returned; lanes that wait in a warp operation
    Site site[kBarriers + 1];  // where its lanes last arrived from at each barrier, the cluster's behind the block's,
                               // and in which round of it
    char tag;                  // what the thread sanitizer hangs the order of __syncwarp on
};
struct Barrier {
    unsigned count = 0, arrived = 0, opened = 0;
    char tag[2];  // for the sanitizer; one per parity, so that a slow thread of the last round does not meet this one
    std::vector<unsigned> waiting;
};
struct Block {
    uint3 index{};
    unsigned live = 0;  // threads that have not returned
    unsigned char* smem = nullptr;
    Barrier barriers[kBarriers];
};
struct StaticArray {
    const void* site;
    const Block* owner;
    unsigned char* memory;
    size_t bytes, offset;
    uint64_t cluster;
};

// Runs clusters one after another on one OS thread; without clusters, blocks: each is a cluster of one. Threads and
// warps are numbered through the blocks of a cluster. A frame that sleeps from one launch to the next (below entry) may
// wake on another OS thread: it touches no thread_local after a switch.
struct Engine {
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Block blocks[kMostBlocks];
    Barrier together;             // the cluster's
    std::vector<unsigned> ready;  // threads that may go on
    std::vector<Later> async;     // copies in flight
    std::vector<unsigned> held;   // in dependency_sync while global memory is locked
    bool locked = false;
    unsigned current = 0, live = 0;  // the thread that runs; how many have not returned
    unsigned cluster_size = 1;
    uint64_t cluster = 0;  // its number, over all launches
    uint64_t state = 1, switched = 0;
    bool in_order = false, depth_first = false;
    const Block* held_back = nullptr;  // a block of the cluster that seldom has its turn

    size_t smem_bytes = 0;
    std::vector<StaticArray> statics;
    size_t statics_used = 0;  // those of this launch come first

    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Fiber*> idle;  // wait at the bottom of their stack for another thread to run
    Fiber main;
    const std::function<void()>* body = nullptr;
    char tag_start, tag_end;
    std::string message;

    ~Engine() {
        for (Block& b : blocks) std::free(b.smem);
        for (StaticArray& s : statics) std::free(s.memory);
    }
    Block& own() { return *threads[current].block; }

    unsigned bits() { return state ^= state << 13, state ^= state >> 7, state ^= state << 17, unsigned(state >> 32); }

    // ---- errors

    void say(const char* text) { message += text; }
    [[noreturn]] void end_block(const char* text) {
        const Quiet quiet;  // for ever: this stack is not used again
        char where[160];
        std::snprintf(where, sizeof where, "block (%u,%u,%u) thread (%u,%u,%u): ", blockIdx.x, blockIdx.y, blockIdx.z,
                      threads[current].index.x, threads[current].index.y, threads[current].index.z);
        message.insert(0, where);
        say(text);
        asan_leave(nullptr, main.low, main.bytes);
        tsan_switch(main.tsan);
        void* dropped;
        simt_switch(&dropped, main.sp);
        __builtin_unreachable();
    }
    [[noreturn]] void deadlock() {
        char line[400];
        say("");
        std::string places;
        for (size_t i = 0, j; i < threads.size(); i = j) {  // one line for neighbours in the same place
            const Thread& t = threads[i];
            for (j = i + 1; j < threads.size(); j++)
                if (threads[j].what != t.what || threads[j].loc.line != t.loc.line) break;
            if (t.what)
                std::snprintf(line, sizeof line, "\n  threads %zu..%zu: %s at %s:%u", i, j - 1, t.what, t.loc.file,
                              t.loc.line);
            else
                std::snprintf(line, sizeof line, "\n  threads %zu..%zu: returned", i, j - 1);
            places += line;
        }
        message = "deadlock, no thread can go on:" + places;
        std::string().swap(places);  // this frame is dropped, not left
        end_block("");
    }

    // ---- switching

    void jump(Fiber* from, Fiber* to) {
        switched++;
        void* const sp = to->sp;
        asan_leave(&from->fake, to->low, to->bytes);
        tsan_switch(to->tsan);
        simt_switch(&from->sp, sp);
        asan_arrive(from->fake);
    }

    static void entry();

    Fiber* fiber_for(unsigned thread) {
        // For the thread sanitizer thread i of every block is fiber i: two threads on one fiber would look ordered.
        if (kTsan) return fibers[thread].get();
        if (idle.empty()) {
            fibers.push_back(std::make_unique<Fiber>(fibers.size(), entry));
            return fibers.back().get();
        }
        Fiber* fiber = idle.back();
        idle.pop_back();
        return fiber;
    }

    // Which of ready and async is next. A uniform draw is fair: no warp gets far ahead of the others, and faults that
    // need one to are never seen. So half of the blocks go depth first: seven times in eight who was woken last goes
    // on. And in half of the clusters one block is held back, or its neighbours would hardly ever end before it.
    size_t draw() {
        if (in_order) return async.empty() ? 0 : ready.size();
        const auto any = [&] { return size_t(uint64_t(bits()) * (ready.size() + async.size()) >> 32); };
        size_t i = depth_first && !ready.empty() && bits() % 8 ? ready.size() - 1 : any();
        for (int again = 0; held_back && again < 4 && i < ready.size() && threads[ready[i]].block == held_back; again++)
            i = any();
        return i;
    }

    // Goes on with something. Returns when the caller is chosen or, on the fiber of a thread that has returned, when
    // that is given another thread.
    void next(Fiber* self, bool returned) {
        for (;;) {
            if (ready.empty() && async.empty()) {
                if (!held.empty()) {  // all who can get there are there
                    ready.swap(held);
                    unlock(threads[ready[0]].loc);
                    continue;
                }
                if (live) deadlock();
                if (returned && !kTsan) idle.push_back(self);
                return jump(self, &main);
            }
            const size_t i = draw();
            if (i >= ready.size()) {
                const Later work = async[i - ready.size()];
                async.erase(async.begin() + std::ptrdiff_t(i - ready.size()));
                work.run(work.closure);
                continue;
            }
            current = ready[i];
            if (in_order)
                ready.erase(ready.begin());
            else
                ready[i] = ready.back(), ready.pop_back();
            Thread& t = threads[current];
            threadIdx = t.index, blockIdx = t.block->index;
            if (t.fiber == self) return;
            if (!t.fiber) {
                if (returned && !kTsan) {
                    t.fiber = self;
                    return;
                }  // a new thread on the old one's stack: no switch at all
                t.fiber = fiber_for(current);
            }
            if (returned && !kTsan) idle.push_back(self);
            return jump(self, t.fiber);
        }
    }
    void unlock(Loc loc) {
        locked = false;
        if (!unlock_memory()) return;
        char text[300];
        std::snprintf(text, sizeof text, "global memory is touched before grid_dependency_sync at %s:%u", loc.file,
                      loc.line);
        end_block(text);
    }
    void suspend(const char* what, Loc loc) {
        Thread& t = threads[current];
        t.what = what, t.loc = loc;
        next(t.fiber, false);
    }
    void thread_ends() {
        units_thread_end(current);
        Thread& t = threads[current];
        if (kernels_depend && !t.synced) end_block("a thread returned without grid_dependency_sync");
        Fiber* const self = t.fiber;
        t.fiber = nullptr, t.what = nullptr, t.loc = {nullptr, 0};
        live--;
        Block& block = own();
        if (!--block.live)
            if (const auto n = std::count_if(async.begin(), async.end(),
                                             [&](const Later& l) { return &blocks[l.block] == &block; }))
                fail("the block ended with %zu copies in flight", size_t(n));
        Warp& w = warps[current / 32];
        w.live &= ~(1u << current % 32);
        for (Barrier& b : block.barriers)  // perhaps it was the last that a barrier or its warp waited for
            if (b.arrived && !b.count && b.arrived == block.live) open(b);
        if (together.arrived && together.arrived == live) open(together);
        for (unsigned m = w.waiting; m; m &= w.waiting & (m - 1)) complete(current / 32, unsigned(std::countr_zero(m)));
        next(self, true);
    }

    // ---- barriers

    void open(Barrier& b) {
        ready.insert(ready.end(), b.waiting.begin(), b.waiting.end());
        b.waiting.clear();
        b.arrived = 0, b.opened++;
    }
    // id kBarriers: the cluster's.
    void arrive(int id, unsigned count, bool wait, const char* what, Loc loc) {
        if (unsigned(id) > kBarriers || count % 32 || (id == kBarriers && count))
            fail("%s: barrier %d of %u threads, at %s:%u", what, id, count, loc.file, loc.line);
        Barrier& b = id == kBarriers ? together : own().barriers[id];
        if (b.arrived && b.count != count)
            fail("%s: barrier %d is used with %u and with %u threads, here at %s:%u", what, id, b.count, count,
                 loc.file, loc.line);
        b.count = count;
        Site& site = warps[current / 32].site[id];
        if (site.round == b.opened + 1 && (site.loc.line != loc.line || site.loc.file != loc.file))
            fail("divergent barrier: lanes of one warp come to %s from %s:%u and from %s:%u", what, site.loc.file,
                 site.loc.line, loc.file, loc.line);
        site = {loc, b.opened + 1};
        char* const tag = &b.tag[b.opened & 1];
        release(tag);
        if (wait) b.waiting.push_back(current);
        if (++b.arrived == (count ? count : id == kBarriers ? live : own().live)) open(b);
        if (!wait) return;
        suspend(what, loc);
        acquire(tag);
    }

    // ---- warp operations

    // Runs the operation that `lane` waits in, if all lanes of its mask are there.
    void complete(unsigned warp, unsigned lane) {
        Warp& w = warps[warp];
        Thread* const t = &threads[warp * 32];
        const unsigned need = t[lane].mask & w.live;
        if (!(w.waiting >> lane & 1) || (w.waiting & need) != need) return;
        if (t[lane].whole && need != ~0u)
            fail("%s at %s:%u needs all 32 lanes, mask %08x is there", t[lane].what, t[lane].loc.file, t[lane].loc.line,
                 need);
        void* arg[32] = {};
        for (unsigned m = need; m; m &= m - 1) {
            const unsigned l = unsigned(std::countr_zero(m));
            const bool same_place = t[l].loc.line == t[lane].loc.line && t[l].loc.file == t[lane].loc.file;
            if (t[l].op != t[lane].op || t[l].mask != t[lane].mask || !same_place)
                fail(
                    "divergent warp operation: lane %u is in %s, mask %08x, at %s:%u, lane %u in %s, mask %08x, at "
                    "%s:%u",
                    l, t[l].what, t[l].mask, t[l].loc.file, t[l].loc.line, lane, t[lane].what, t[lane].mask,
                    t[lane].loc.file, t[lane].loc.line);
            arg[l] = t[l].arg;
            ready.push_back(warp * 32 + l);
        }
        w.waiting &= ~need;
        t[lane].op(arg, need);
    }
    void collect(unsigned mask, void* arg, WarpOp op, const char* what, Loc loc, bool whole) {
        Thread& t = threads[current];
        const unsigned lane = current % 32;
        if (!(mask >> lane & 1))
            fail("%s at %s:%u: lane %u is not in its mask %08x", what, loc.file, loc.line, lane, mask);
        t.arg = arg, t.op = op, t.mask = mask, t.whole = whole, t.what = what, t.loc = loc;
        warps[current / 32].waiting |= 1u << lane;
        complete(current / 32, lane);
        next(t.fiber, false);
    }

    // ---- shared memory

    static unsigned char* allocate(size_t bytes) {
        void* p = nullptr;
        if (bytes && posix_memalign(&p, 1024, bytes)) std::abort();
        return static_cast<unsigned char*>(p);
    }
    void* static_array(const void* site, size_t bytes, size_t alignment) {
        size_t i = 0;
        while (i < statics.size() && (statics[i].site != site || statics[i].owner != &own())) i++;
        if (i == statics.size()) {
            const size_t offset = alignment < 16 ? alignment : 0;  // no more alignment than was asked for
            statics.push_back({site, &own(), allocate(bytes + offset), bytes, offset, 0});
        }
        if (i >= statics_used) std::swap(statics[statics_used++], statics[i]), i = statics_used - 1;
        StaticArray& s = statics[i];
        if (s.cluster != cluster) {
            std::memset(s.memory, 0xff, s.bytes + s.offset);
            s.cluster = cluster;
            size_t sum = 0;
            for (size_t k = 0; k < statics_used; k++) sum += statics[k].owner == &own() ? statics[k].bytes : 0;
            if (sum > 48 * 1024) fail("%zu bytes of static shared memory: 48 KB is the limit", sum);
            if (smem_bytes &&
                (sum + 1023) / 1024 * 1024 + smem_bytes > shared_limit)  // dynamic memory begins at a multiple of 1024
                fail("%zu bytes of static and %zu of dynamic shared memory: the block may have %zu", sum, smem_bytes,
                     shared_limit);
        }
        return s.memory + s.offset;
    }
    void* in_block(void* p, unsigned rank) {
        if (rank >= cluster_size) fail("block %u of a cluster of %u", rank, cluster_size);
        Block& there = blocks[rank];
        if (&there == &own()) return p;
        if (!together.opened)
            fail("shared memory of another block before the cluster's first barrier: that block may not have begun");
        if (!there.live) fail("shared memory of another block that has ended");
        const auto at = static_cast<unsigned char*>(p);
        if (at >= own().smem && at < own().smem + smem_bytes) return there.smem + (at - own().smem);
        for (const StaticArray& from : statics)
            for (const StaticArray& to : statics)
                if (from.owner == &own() && to.owner == &there && to.cluster == cluster && from.site == to.site &&
                    at >= from.memory + from.offset && at < from.memory + from.offset + from.bytes)
                    return to.memory + (at - from.memory);
        fail("shared memory of another block: the address is not in shared memory");
    }

    // ---- a launch, a cluster

    void setup(uint3 grid, uint3 block_size, unsigned size, size_t bytes, const std::function<void()>& f) {
        gridDim = grid, blockDim = block_size;
        body = &f;
        in_order = seed() == 0;
        cluster_size = size;
        const unsigned per_block = block_size.x * block_size.y * block_size.z;
        threads.resize(size_t(per_block) * size);
        warps.resize((threads.size() + 31) / 32);
        for (unsigned i = 0; i < threads.size(); i++) {
            const unsigned k = i % per_block;
            threads[i].index = {k % block_size.x, k / block_size.x % block_size.y, k / (block_size.x * block_size.y)};
            threads[i].block = &blocks[i / per_block];
        }
        for (Block& b : blocks) {
            if (bytes != smem_bytes) std::free(b.smem), b.smem = nullptr;
            if (!b.smem && &b < blocks + size) b.smem = allocate(bytes);
        }
        smem_bytes = bytes;
        statics_used = 0;
        own_stack(&main);
        // For the thread sanitizer all fibers now: one that a running thread made would be ordered after what that
        // thread has done.
        while (kTsan && fibers.size() < threads.size()) fibers.push_back(std::make_unique<Fiber>(fibers.size(), entry));
    }
    void run(unsigned number, uint64_t random, bool lock) {  // of its first block
        state = random | 1;
        for (int i = 0; i < 4; i++) bits();
        cluster++;
        depth_first = bits() & 1;
        held_back = cluster_size > 1 && bits() & 1 ? &blocks[bits() % cluster_size] : nullptr;
        live = unsigned(threads.size());
        for (unsigned i = 0; i < cluster_size; i++, number++) {
            Block& b = blocks[i];
            b.index = {number % gridDim.x, number / gridDim.x % gridDim.y, number / (gridDim.x * gridDim.y)};
            b.live = live / cluster_size;
            for (Barrier& barrier : b.barriers) barrier.arrived = 0, barrier.waiting.clear();
            if (b.smem) std::memset(b.smem, 0xff, smem_bytes);
        }
        together.arrived = together.opened = 0, together.waiting.clear();
        const unsigned first = in_order ? 0 : unsigned(bits() % warps.size() * 32);
        ready.resize(live);
        for (unsigned i = 0; i < live; i++) {
            ready[i] = (first + i) % live;
            threads[i].fiber = nullptr, threads[i].synced = false, threads[i].what = "not started",
            threads[i].loc = {"the kernel's first line", 0};
        }
        for (unsigned i = 0; i < warps.size(); i++) {
            warps[i].live = live - i * 32 >= 32 ? ~0u : (1u << (live - i * 32)) - 1;
            warps[i].waiting = 0;
            for (Site& site : warps[i].site) site.round = 0;
        }
        release(&tag_start);
        {
            Quiet quiet;
            if ((locked = lock)) lock_memory();
            next(&main, false);
            if (locked) locked = false, unlock_memory();  // it has failed before
        }
        if (kTsan && !message.empty()) {  // the fibers stop here for good; the sanitizer forbids to destroy one in the
                                          // middle of a call
            void* const self = main.tsan;
            for (auto& fiber : fibers) {
                tsan_switch(fiber->tsan);
                release(&tag_end);
                tsan_switch(self);
                fiber.release();
            }
        }
        acquire(&tag_end);
        if (message.empty()) return;
        idle.clear(), fibers.clear(), async.clear(), ready.clear(), held.clear();
        std::string what;
        what.swap(message);
        throw error(what);
    }
};

static thread_local constinit Engine* engine = nullptr;  // the one that runs on this OS thread

// The bottom of every stack: run a thread, wait for the next.
void Engine::entry() {
    asan_arrive(nullptr);
    Engine* own;
    {
        Quiet quiet;  // nothing orders this before acquire
        own = engine;
    }
    for (Engine& e = *own;;) {
        acquire(&e.tag_start);
        (*e.body)();
        release(&e.tag_end);
        Quiet quiet;
        e.thread_ends();
    }
}

void run_grid(uint3 grid, uint3 block, unsigned cluster, size_t smem, uint64_t number,
              const std::function<void()>& body) {
    static auto& engines = *new std::vector<std::unique_ptr<Engine>>;  // kept: making fibers is slow
    static const unsigned workers = std::max(1u, setting("SIMT_THREADS", 1));
    const uint64_t clusters = uint64_t(grid.x) * grid.y * grid.z / cluster;
    const unsigned count = unsigned(std::min<uint64_t>(workers, clusters));
    while (engines.size() < count) engines.push_back(std::make_unique<Engine>());

    const uint64_t base = (seed() * 0x9e3779b97f4a7c15u + number + 1) * 0xbf58476d1ce4e5b9u;
    std::vector<unsigned> order(clusters);
    std::iota(order.begin(), order.end(), 0u);
    uint64_t r = base;
    for (uint64_t i = clusters; seed() && i > 1; i--) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        std::swap(order[i - 1], order[(r >> 33) % i]);
    }

    std::atomic<uint64_t> taken{0};
    std::mutex mutex;
    std::string message;
    const size_t limit = shared_limit;
    const bool lock =
        kernels_depend && count == 1 && (!seed() || (base >> 40 & 1));  // alone: the lock is on all OS threads
    auto work = [&](unsigned w) {
        shared_limit = limit;
        std::fesetenv(FE_DFL_ENV);  // a GPU does not flush denormals, whatever the host does
        engine = engines[w].get();
        try {
            engine->setup(grid, block, cluster, smem, body);
            for (;;) {  // relaxed: to the sanitizer this counter must not order one cluster after another
                const uint64_t i = taken.fetch_add(1, std::memory_order_relaxed);
                if (i >= clusters) break;
                engine->run(order[i] * cluster, base + (order[i] + 1) * 0x94d049bb133111ebu, lock && i == 0);
            }
        } catch (const error& e) {
            const std::lock_guard lock(mutex);
            if (message.empty()) message = e.what();
            taken.store(clusters, std::memory_order_relaxed);
        }
        switch_count += engine->switched;
        engine->switched = 0;
        engine = nullptr;
    };
    std::vector<std::thread> others;
    for (unsigned w = 1; w < count; w++) others.emplace_back(work, w);
    work(0);
    for (std::thread& t : others) t.join();
    if (!message.empty()) throw error(message + " (SIMT_SEED=" + std::to_string(seed()) + ")");
}

// ------------------------------------------------------------------------------------------------ what kernels call

void fail(const char* format, ...) {
    char text[512];  // on a stack that is dropped: nothing with a destructor
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!engine) throw error(text);
    engine->end_block(text);
}

static Engine& running(const char* what) {
    if (!engine) throw error(std::string(what) + " outside a kernel");
    return *engine;
}

unsigned thread() { return running("a thread's number").current; }
unsigned warp_count() { return unsigned(running("warps").warps.size()); }
uint64_t cluster_number() { return running("a cluster's number").cluster; }
unsigned cluster_rank() { return unsigned(&running("a cluster").own() - engine->blocks); }
void* in_block(void* p, unsigned rank) { return running("shared memory").in_block(p, rank); }
unsigned random_bits() { return engine->bits(); }
bool at_once() { return engine->in_order || (engine->bits() & 1); }
void park(const char* what, Loc loc) { engine->suspend(what, loc); }
void wake(unsigned thread) { engine->ready.push_back(thread); }
void later(const Later& work) { engine->async.push_back(work); }

// SIMT_SKIP_BARRIER=FILE:LINE takes the barriers in that line out of the kernel, and its tests must then fail. FILE is
// the end of a path.
static const char* const skip_text = std::getenv("SIMT_SKIP_BARRIER");
static const char* const skip_colon = skip_text ? std::strrchr(skip_text, ':') : nullptr;
static const unsigned skip_line = skip_colon ? unsigned(std::atoi(skip_colon + 1)) : 0;
bool taken_out(Loc loc) {
    if (!skip_line || loc.line != skip_line) return false;
    return std::string_view(loc.file).ends_with(std::string_view(skip_text, size_t(skip_colon - skip_text)));
}

void barrier(int id, unsigned count, bool wait, const char* what, Loc loc) {
    if (taken_out(loc)) return;
    Quiet quiet;
    running(what).arrive(id, count, wait, what, loc);
}
void warp(unsigned mask, void* arg, WarpOp op, const char* what, Loc loc, bool whole) {
    Quiet quiet;
    running(what).collect(mask, arg, op, what, loc, whole);
}
void warp_sync(unsigned mask, Loc loc) {
    if (taken_out(loc)) return;
    Engine& e = running("__syncwarp");
    char* const tag = &e.warps[e.current / 32].tag;
    release(tag);
    warp(
        mask, nullptr, [](void* const*, unsigned) {}, "__syncwarp", loc);
    acquire(tag);
}
void dependency_sync(Loc loc) {
    if (taken_out(loc)) return;
    Quiet quiet;
    Engine& e = running("grid_dependency_sync");
    e.threads[e.current].synced = true;
    if (!e.locked) return;
    e.held.push_back(e.current);
    e.suspend("grid_dependency_sync", loc);
}
bool in_kernel() { return engine; }
void* shared_array(const void* site, size_t bytes, size_t alignment) {
    Quiet quiet;
    return running("a shared array").static_array(site, bytes, alignment);
}
unsigned char* shared_memory() { return running("shared memory").own().smem; }
size_t shared_bytes() { return running("shared memory").smem_bytes; }

}  // namespace simt
