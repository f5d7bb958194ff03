// threads.cpp -- a persistent thread pool, and streams as threads with a queue.
//
// The pool is built for machines that run more ranks than they have cores: idle threads look for work a while, giving the core away
// between looks, and then sleep, and nobody ever waits for a thread that has not woken up yet - only for those that hold a task.
#include "threads.h"
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <utility>
#include <vector>
#include "common.h"
#include "cpus.h"

namespace cpu_threads {

#if defined(__x86_64__)
void flush_to_zero() { __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); }             // FTZ, DAZ
static void pause_cpu() { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
void flush_to_zero() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    asm volatile("msr fpcr, %0" : : "r"(mode | uint64_t(1) << 24));
}
static void pause_cpu() { asm volatile("yield"); }
#else
void flush_to_zero() {}
static void pause_cpu() {}
#endif

void advise_huge_pages(void* memory, size_t bytes) {
    constexpr size_t kHugePage = size_t(2) << 20;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(memory), page = round_up<uintptr_t>(begin, kHugePage);
    if (bytes >= 4 * kHugePage) madvise(reinterpret_cast<void*>(page), (begin + bytes - page) / kHugePage * kHugePage, MADV_HUGEPAGE);
}

struct Buffer {
    std::unique_ptr<float, decltype(&std::free)> memory{nullptr, &std::free};
    size_t room = 0;

    float* at_least(size_t n) {
        if (n <= room) return memory.get();
        memory.reset(static_cast<float*>(std::aligned_alloc(64, round_up<size_t>(n * sizeof(float), 64))));
        room = memory ? n : 0;
        if (!memory) die(kExitOther, "out of memory: a thread's work space: wanted %zu bytes", n * sizeof(float));
        advise_huge_pages(memory.get(), n * sizeof(float));
        return memory.get();
    }
};

float* thread_buffer(size_t n) {
    thread_local Buffer buffer;
    return buffer.at_least(n);
}
float* caller_buffer(size_t n) {
    thread_local Buffer buffer;
    return buffer.at_least(n);
}

// ---------------------------------------------------------------------------------------------------------------- the pool

// Looks before it sleeps: longer than the gap between two ops and than most tasks, since waking a sleeping core takes as long as a small op.
template <class F> static void look_until(const F& done) {
    for (const double end = now_seconds() + 200e-6; now_seconds() < end; sched_yield())
        for (int i = 0; i < 16; i++, pause_cpu())
            if (done()) return;
}

// The protocol. `epoch` counts jobs; workers sleep on it. A worker enters (users + 1), and only then looks whether the job is
// open; the caller closes the job before it waits for users to become 0. So either the worker sees it closed, or the caller sees
// the worker - a late one is never waited for, and finds either nothing or the next job, complete.
struct Pool {
    std::vector<std::thread> threads;
    std::atomic<uint32_t> epoch{0};
    std::atomic<int> users{0}, next{0};
    std::atomic<bool> open{false}, quit{false};
    void (*task)(const void*, int) = nullptr;
    const void* context = nullptr;
    int tasks = 0;
    std::mutex error_mutex;
    std::exception_ptr error;

    void work();
    void run();
    void start(int n);
    void stop();
    ~Pool() { stop(); }
};

static Pool pool;
static std::mutex pool_busy;            // held by the caller whose job the pool runs
static std::atomic<int> wanted{0};      // 0: not asked for yet
static thread_local bool inside = false;

void Pool::work() {
    for (int i; (i = next.fetch_add(1)) < tasks;) {
        try { task(context, i); }
        catch (...) {
            const std::lock_guard<std::mutex> lock(error_mutex);
            if (!error) error = std::current_exception();
        }
    }
}

void Pool::run() {
    flush_to_zero();
    inside = true;
    uint32_t seen = 0;
    for (;;) {
        look_until([&] { return epoch != seen; });
        epoch.wait(seen);
        seen = epoch;
        if (quit) return;
        users++;
        if (open) work();
        if (--users == 0) users.notify_all();
    }
}

void Pool::start(int n) {
    epoch = 0;
    quit = false;
    for (int i = 0; i < n; i++) {
        try { threads.emplace_back([this] { run(); }); }
        catch (const std::system_error& e) {
            die(kExitOther, "threads: cannot start thread %d of %d: %s; try --threads %d", i + 2, n + 1, e.what(), i + 1);
        }
    }
}

void Pool::stop() {
    quit = true;
    epoch++;
    epoch.notify_all();
    for (std::thread& t : threads) t.join();
    threads.clear();
}

void set_count(int n) {
    const std::lock_guard<std::mutex> lock(pool_busy);
    pool.stop();
    wanted = n > 0 ? n : available_cpus();
}

int count() {
    if (wanted == 0) {
        int expected = 0;
        wanted.compare_exchange_strong(expected, available_cpus());
    }
    return wanted;
}

void parallel_for(int tasks, void (*task)(const void*, int), const void* context) {
    flush_to_zero();
    std::unique_lock<std::mutex> busy(pool_busy, std::defer_lock);
    if (tasks <= 1 || inside || count() == 1 || !busy.try_lock()) {
        for (int i = 0; i < tasks; i++) task(context, i);
        return;
    }
    if (pool.threads.empty()) pool.start(count() - 1);
    pool.task = task;
    pool.context = context;
    pool.tasks = tasks;
    pool.next = 0;
    pool.open = true;
    pool.epoch++;
    pool.epoch.notify_all();
    inside = true;                      // a task that calls an op runs it alone
    pool.work();
    inside = false;
    pool.open = false;
    look_until([] { return pool.users == 0; });
    for (int n; (n = pool.users) != 0;) pool.users.wait(n);
    if (pool.error) std::rethrow_exception(std::exchange(pool.error, nullptr));
}

// -------------------------------------------------------------------------------------------------------------- the streams

struct Queue {
    struct Call {
        void (*function)(void*);
        void* argument;
        Queue* other;                   // not null: only wait until `other` has finished `until` calls
        uint64_t until;
    };
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Call> calls;
    uint64_t submitted = 0, finished = 0;
    bool quit = false;
    std::exception_ptr error;           // after an error the calls that follow are skipped, until stream_sync has reported it
    std::thread thread;

    void run();
    void submit(const Call& call);
    void wait_finished(uint64_t n);
    uint64_t count_submitted();
};

static Queue* queue(Stream stream) { return reinterpret_cast<Queue*>(stream); }

void Queue::wait_finished(uint64_t n) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return finished >= n; });
}

uint64_t Queue::count_submitted() {
    const std::lock_guard<std::mutex> lock(mutex);
    return submitted;
}

void Queue::submit(const Call& call) {
    const std::lock_guard<std::mutex> lock(mutex);
    calls.push_back(call);
    submitted++;
    changed.notify_all();
}

void Queue::run() {
    flush_to_zero();
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
        changed.wait(lock, [&] { return quit || !calls.empty(); });
        if (calls.empty()) return;
        const Call call = calls.front();
        const bool skip = bool(error);
        calls.pop_front();
        lock.unlock();
        std::exception_ptr thrown;
        try {
            if (call.other) call.other->wait_finished(call.until);
            else if (!skip) call.function(call.argument);
        } catch (...) { thrown = std::current_exception(); }
        lock.lock();
        if (!error) error = thrown;
        finished++;
        changed.notify_all();
    }
}

Stream stream_create() {
    Queue* q = new Queue;
    q->thread = std::thread([q] { q->run(); });
    return reinterpret_cast<Stream>(q);
}

// Runs what is still queued. An Error that nobody asked for with stream_sync is lost.
void stream_destroy(Stream stream) {
    if (!stream) return;
    Queue* q = queue(stream);
    {
        const std::lock_guard<std::mutex> lock(q->mutex);
        q->quit = true;
        q->changed.notify_all();
    }
    q->thread.join();
    delete q;
}

void stream_call(Stream stream, void (*function)(void*), void* argument) {
    if (!stream) return function(argument);
    queue(stream)->submit({function, argument, nullptr, 0});
}

void stream_check(Stream stream) {
    if (!stream) return;
    const std::lock_guard<std::mutex> lock(queue(stream)->mutex);
    if (queue(stream)->error) std::rethrow_exception(std::exchange(queue(stream)->error, nullptr));
}

void stream_sync(Stream stream) {
    if (stream) queue(stream)->wait_finished(queue(stream)->count_submitted());
    stream_check(stream);
}

// What the caller was given on the null stream is done already, so nothing ever waits for that one.
void stream_wait(Stream stream, Stream other) {
    if (!other || stream == other) return;
    if (!stream) return stream_sync(other);
    queue(stream)->submit({nullptr, nullptr, queue(other), queue(other)->count_submitted()});
}

}  // namespace cpu_threads
