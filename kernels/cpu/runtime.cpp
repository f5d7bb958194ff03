// runtime.cpp -- memory, streams, events and threads of the CPU backend.
//
// An operation runs at once, whatever its Stream is. A second
// stream is a thread that runs the work of stream_call.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>
#include "kernels/cpu/runtime.h"
#include "kernels/elements.h"
#include "src/base/cpus.h"
#include "src/base/common.h"

namespace BACKEND {

// Makes numbers below 1.2e-38, which cost a hundred cycles each, count as 0, as operands and as
// results, in every program that has a CPU backend. This is done before main, because a thread
// inherits the mode of the thread that starts it (C++20, [cfenv.syn]): so all threads have it.
[[maybe_unused]] static const bool flushes_to_zero = [] {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);          // FTZ, DAZ
#elif defined(__aarch64__)
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    asm volatile("msr fpcr, %0" : : "r"(mode | uint64_t(1) << 24));
#endif
    return true;
}();

// ------------------------ memory

// Allocates with calloc, which need not clear fresh pages, and stores calloc's address in front of
// the aligned memory. Large memory gets huge pages, for fewer TLB misses.
void* device_alloc(size_t bytes, const char* what) {
    constexpr size_t kExtra = 64 + sizeof(void*);
    constexpr uintptr_t kHugePage = uintptr_t(2) << 20;
    void* const raw = bytes <= SIZE_MAX - kExtra ? std::calloc(1, bytes + kExtra) : nullptr;
    if (!raw)
        die(kExitOther, "out of memory: %s: wanted %zu bytes; make the model or the batch smaller",
            what, bytes);
    const uintptr_t aligned =
        round_up(reinterpret_cast<uintptr_t>(raw) + sizeof raw, uintptr_t(64));
    void** const memory = reinterpret_cast<void**>(aligned);
    memory[-1] = raw;
    if (bytes >= 4 * kHugePage)
        madvise(reinterpret_cast<void*>(round_up(aligned, kHugePage)), bytes - kHugePage,
                MADV_HUGEPAGE);
    return memory;
}

void device_free(void* memory) {
    if (memory) std::free(static_cast<void**>(memory)[-1]);
}

void* host_alloc(size_t bytes, const char* what) { return device_alloc(bytes, what); }
void host_free(void* memory) { device_free(memory); }
static void copy(void* to, const void* from, size_t bytes) {
    // memcpy takes no null, which an empty array may be
    if (bytes > 0) std::memcpy(to, from, bytes);
}
void copy_to_device(void* to, const void* from, size_t bytes, Stream) { copy(to, from, bytes); }
void copy_to_host(void* to, const void* from, size_t bytes, Stream) { copy(to, from, bytes); }
void copy_to_host_later(void* to, const void* from, size_t bytes, Stream) { copy(to, from, bytes); }
void device_zero(void* device, size_t bytes, Stream) { std::memset(device, 0, bytes); }
void store_floats(floatX* stored, const float* floats, size_t n) {
    for (size_t i = 0; i < n; i++) store(stored[i], floats[i]);
}
void load_floats(float* floats, const floatX* stored, size_t n) {
    for (size_t i = 0; i < n; i++) floats[i] = widen(stored[i]);
}
void poison(float* x, size_t n, size_t step, Stream) {
    for (size_t i = 0; i < n; i += step) x[i] = std::bit_cast<float>(kPoison);
}
void find_poison(uint64_t* left, const float* x, size_t n, size_t step, const float* end, Stream) {
    size_t i = 0;
    while (i < n && std::bit_cast<uint32_t>(x[i]) != kPoison) i += step;
    if (i < n) *left = std::max(*left, uint64_t(end - (x + i)));
}

int device_count() { return 1; }
const char* device_address() { return ""; }
double device_peak_flops() { return NAN; }
Sensors device_sensors() { return {}; }
void device_memory(size_t* free, size_t* total) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    *total = size_t(sysconf(_SC_PHYS_PAGES)) * page;
    *free = size_t(sysconf(_SC_AVPHYS_PAGES)) * page;
}

float* thread_buffer(size_t n, int number) {
    struct Buffer { float* memory = nullptr; size_t room = 0; ~Buffer() { device_free(memory); } };
    thread_local Buffer buffers[kThreadBuffers + 1];
    Buffer& b = buffers[number];
    if (n <= b.room) return b.memory;
    device_free(std::exchange(b.memory, nullptr));
    b.room = 0;
    b.memory = static_cast<float*>(device_alloc(n * sizeof(float), "a thread's workspace"));
    b.room = n;
    return b.memory;
}

// ------------------------ threads

// A thread polls for this many seconds before it sleeps:
// longer than the gap between two operations.
constexpr double kPoll = 200e-6;

static thread_local bool inside = false;    // whether this thread is in a task that the pool runs

// A worker that wakes up late finds no task left and holds only the job: the caller waits for
// tasks, not for workers.
namespace {
struct Job {
    void (*task)(const void*, int);
    const void* context;
    int tasks;
    std::atomic<int> next{0}, done{0};
    std::mutex error_mutex;
    std::exception_ptr error;

    void work() {
        for (int i; (i = next++) < tasks;) {
            try { task(context, i); }
            catch (...) {
                const std::lock_guard<std::mutex> lock(error_mutex);
                if (!error) error = std::current_exception();
            }
            if (++done == tasks) done.notify_all();
        }
    }
};

struct Pool {
    std::mutex busy;                    // held by the caller whose job the pool runs
    std::vector<std::jthread> threads;
    std::mutex mutex;                   // of `job`
    std::shared_ptr<Job> job;           // null: the threads end
    std::atomic<uint32_t> epoch{0};     // counts jobs; workers wait for it to change

    ~Pool() { stop(); }
    void give(std::shared_ptr<Job> next) {
        { const std::lock_guard<std::mutex> lock(mutex); job = std::move(next); }
        epoch++;
        epoch.notify_all();
    }
    void run(uint32_t seen) {
        inside = true;
        for (;;) {
            spin_until(kPoll, [&] { return epoch != seen; }, kPoll);
            epoch.wait(seen);
            seen = epoch;
            std::shared_ptr<Job> mine;
            { const std::lock_guard<std::mutex> lock(mutex); mine = job; }
            if (!mine) return;
            mine->work();
        }
    }
    void start(int n) {
        for (int i = 0; i < n; i++) {
            const std::string what = format("%d of %d of --threads", i + 2, n + 1);
            threads.push_back(
                start_thread(what.c_str(), [this, seen = epoch.load()] { run(seen); }));
        }
    }
    void stop() {
        give(nullptr);
        threads.clear();                // waits for them
    }
};
}

static Pool pool;
static std::atomic<int> wanted{0};      // number of threads; 0: not chosen yet

void spare_multiprocessors(int) {}
// Ends the pool's threads; the next parallel_for starts the new number.
void set_threads(int n) {
    check_threads(n);
    const std::lock_guard<std::mutex> lock(pool.busy);
    pool.stop();
    wanted = n > 0 ? n : available_cpus();
}

int get_threads() {
    int expected = 0;
    if (wanted == 0) wanted.compare_exchange_strong(expected, available_cpus());
    return wanted;
}

void parallel_for(int tasks, void (*task)(const void*, int), const void* context) {
    std::unique_lock<std::mutex> busy(pool.busy, std::defer_lock);
    if (tasks <= 1 || inside || get_threads() == 1 || !busy.try_lock()) {
        for (int i = 0; i < tasks; i++) task(context, i);
        return;
    }
    if (pool.threads.empty()) pool.start(get_threads() - 1);
    const auto job = std::make_shared<Job>();
    job->task = task;
    job->context = context;
    job->tasks = tasks;
    pool.give(job);
    inside = true;
    job->work();
    inside = false;
    spin_until(kPoll, [&] { return job->done == tasks; }, kPoll);
    for (int n; (n = job->done) < tasks;) job->done.wait(n);
    if (job->error) std::rethrow_exception(job->error);
}

// ------------------------ streams and events

namespace {
struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> calls;       // the first one is running
    bool quit = false;
    std::exception_ptr error;           // calls are skipped until stream_sync has thrown it
    std::jthread thread;                // the last member: it ends before the others do

    void run() {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            changed.wait(lock, [&] { return quit || !calls.empty(); });
            if (calls.empty()) return;
            const std::function<void()> call = calls.front();
            const bool skip = bool(error);
            lock.unlock();
            std::exception_ptr thrown;
            try { if (!skip) call(); }
            catch (...) { thrown = std::current_exception(); }
            lock.lock();
            if (thrown) error = thrown;
            calls.pop_front();
            changed.notify_all();
        }
    }
};
}

static Queue* queue(Stream stream) { return reinterpret_cast<Queue*>(stream); }

Stream stream_create() {
    Queue* q = new Queue;
    q->thread = start_thread("that of a stream", [q] { q->run(); });
    return reinterpret_cast<Stream>(q);
}

// Runs what is still queued. An Error that stream_sync has not thrown is lost.
void stream_destroy(Stream stream) {
    const std::unique_ptr<Queue> q(queue(stream));    // deleted last, after its mutex is unlocked
    const std::lock_guard<std::mutex> lock(q->mutex);
    q->quit = true;
    q->changed.notify_all();
}

void stream_call(Stream stream, std::function<void()> call) {
    const std::lock_guard<std::mutex> lock(queue(stream)->mutex);
    queue(stream)->calls.push_back(std::move(call));
    queue(stream)->changed.notify_all();
}

void stream_sync(Stream stream) {
    if (!stream) return;
    Queue* const q = queue(stream);
    std::unique_lock<std::mutex> lock(q->mutex);
    q->changed.wait(lock, [&] { return q->calls.empty(); });
    if (q->error) std::rethrow_exception(std::exchange(q->error, nullptr));
}

// What was put on the null stream is done already, so nothing waits for that one.
void stream_wait(Stream stream, Stream other) {
    if (stream != other) stream_sync(other);
}

// Operations are done when their call returns. So an event is only the time of event_record, and
// nothing waits for it.
static double* seconds(Event event) { return reinterpret_cast<double*>(event); }
Event event_create() { return reinterpret_cast<Event>(new double(0)); }
void event_destroy(Event event) { delete seconds(event); }
void event_record(Event event, Stream) { *seconds(event) = now_seconds(); }
void event_sync(Event) {}
bool event_done(Event) { return true; }
void stream_wait_event(Stream, Event) {}
double event_seconds(Event from, Event to) { return *seconds(to) - *seconds(from); }

}  // namespace BACKEND
