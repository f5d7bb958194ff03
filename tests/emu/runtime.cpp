// runtime.cpp -- the emulated CUDA runtime: streams are queues, and one thread, the device, executes them.
//
// A call only appends to its stream's queue. The device takes the head of a queue drawn at random among those that may
// go on; about half of the time by a random order of priority instead, so that a stream falls far behind the others. It
// is lazy: it works only while a host thread waits for something, and stops as soon as that has come about. So a
// forgotten event, a host buffer that is used again too early, a result that is read before its stream is done give
// wrong values, and the same ones for the same seed. If nobody waits for SIMT_EAGER_MS it goes on by itself: another
// process may depend on what is queued here.
//
//   never met     a wait that nothing queued can end is an error that names the streams. CUDA takes an event that was
//   never
//                 recorded for one that has passed; here it is a wait for its first record.
//   errors        of a kernel come out of the next call that waits, as cudaErrorLaunchFailure; what was queued is
//   dropped, then all
//                 goes on as if nothing had been.
//   host calls    run on the device thread, without the lock: they may block, and then hold up all streams, as CUDA
//   may. They may
//                 not call the runtime.
//   dependent     a launch that may begin before the kernel before it has ended must follow a kernel in its stream, and
//   in a graph's. It is
//                 executed after it all the same: simt.h says why that makes no difference.
//   capture       the queue's entries are kept instead of executed; a graph's launch appends them again, streams that
//   joined the
//                 capture on queues of the graph's own. The stream goes on when all of them are done.
//   fork          before the first use it is as if there had been none; after it the child's calls fail.
#include "tests/emu/emu.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include "src/base/rng.h"

namespace emu {

using Clock = std::chrono::steady_clock;
using Event = CUevent_st;
using Queue = CUstream_st;
using Graph = CUgraph_st;
using GraphExec = CUgraphExec_st;

struct CUevent_st {
    uint64_t recorded = 0, passed = 0;  // how often: asked for, and done
    Clock::time_point time;             // of the last pass
    bool timing = true;
    Graph* capture = nullptr;  // the last record was in this capture, as event `captured` of it
    int captured = 0;
};

struct Entry {
    enum Kind { kWork, kHostCall, kRecord, kWait, kKernel } kind;
    std::function<void()> work;
    std::shared_ptr<Event> event;
    uint64_t version = 0;                              // of the event: the record, or the one waited for
    bool dependent = false;                            // a kernel that may begin before the one before it has ended
    static constexpr uint64_t kNewest = ~uint64_t(0);  // that which is the newest when the stream gets there
};

struct CUstream_st {
    int number;
    std::deque<Entry> entries;
    uint64_t added = 0, done = 0;
    bool closed = false;  // destroyed, goes when it is empty
    Graph* capture = nullptr;
    bool ends_in_kernel = false;  // the last entry was one
};

struct CUgraph_st {
    struct Node {
        int queue, event;
        Entry entry;
    };
    std::vector<Node> nodes;     // in the order of the calls
    std::vector<Queue*> queues;  // [0] is where the capture began
    int events = 0;
};
struct CUgraphExec_st {
    std::vector<Graph::Node> nodes;
    std::vector<Queue*> queues;  // [0] null: the stream of the launch
    std::vector<std::shared_ptr<Event>> events;
};

namespace {

int setting(const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text ? std::atoi(text) : otherwise;
}

// What a host thread waits for; lives on its stack.
struct Waiter {
    Queue* queue = nullptr;        // `version` entries of it
    std::shared_ptr<Event> event;  // or the event's record `version`
    uint64_t version = 0;          // or, with neither, everything
    std::string stuck;             // an error: it will never come
};

struct Device {
    std::mutex mutex;
    std::condition_variable work, progress;  // to the device, to the hosts
    bool started = false, forked = false;
    bool stopped = false;                        // the process is ending
    std::vector<std::unique_ptr<Queue>> queues;  // [0] is the default stream
    std::map<Event*, std::shared_ptr<Event>> events;
    std::vector<Waiter*> waiters;
    int next_number = 0, index = 0;
    uint64_t launches = 0, dependents = 0, draws = 0, changes = 0;  // counters
    int allowance = 0;  // entries to execute though nobody waits: each query gives one
    bool busy = false, busy_host_call = false;
    Clock::time_point quiet_since;  // nobody has waited since, or there was nothing to do

    bool failed = false;             // not yet reported
    std::string text;                // of the last failure
    cudaError_t last = cudaSuccess;  // for cudaGetLastError

    std::map<uintptr_t, size_t> memory, pinned, registered;
    size_t used = 0;
    std::deque<std::pair<void*, size_t>> freed;  // kept for a while, so that they are read as NaN
    std::atomic<unsigned> pageable_copies{0};
    std::map<const void*, int> smem_limit;  // cudaFuncSetAttribute
    std::set<const void*> launched;

    Device() { queues.push_back(std::make_unique<Queue>(Queue{next_number++, {}, 0, 0, false, nullptr})); }
};

Device& device() {
    static Device* const d = [] {
        pthread_atfork(nullptr, nullptr, [] {
            if (device().started) device().forked = true;
        });
        return new Device;  // never destroyed: its thread runs to the end of the process
    }();
    return *d;
}

thread_local bool in_host_call = false;

struct Limits {
    int sms;
    size_t smem;
};
int architecture() {
    static const int a = setting("SIMT_ARCH", 90);
    return a;
}
Limits limits() {
    switch (architecture()) {
        case 80:
            return {108, 163 * 1024};
        case 86:
            return {84, 99 * 1024};
        case 89:
            return {128, 99 * 1024};
        case 100:
            return {148, 227 * 1024};
        case 120:
            return {170, 99 * 1024};
        default:
            return {132, 227 * 1024};
    }
}
size_t memory_size() {
    static const size_t n = size_t(setting("SIMT_MEMORY_MB", 4096)) << 20;
    return n;
}

// Notes an error for cudaGetLastError and device_error_text.
cudaError_t error(cudaError_t code, const std::string& text = "") {
    device().last = code;
    device().text = text;
    return code;
}

// ------------------------------------------------------------------------------------------------ the device thread

bool may_go(const Queue& q) {
    if (q.entries.empty()) return false;
    const Entry& e = q.entries.front();
    return e.kind != Entry::kWait || e.event->passed >= (e.version == Entry::kNewest ? e.event->recorded : e.version);
}
bool met(const Device& d, const Waiter& w) {
    if (!w.stuck.empty()) return true;
    if (w.event) return w.event->passed >= w.version;
    if (w.queue) return w.queue->done >= w.version;
    for (const auto& q : d.queues)
        if (!q->entries.empty()) return false;
    return !d.busy;
}

// The queue whose head is next; null if none may go on.
Queue* draw(Device& d) {
    std::vector<Queue*> heads;
    for (const auto& q : d.queues)
        if (may_go(*q)) heads.push_back(q.get());
    if (heads.empty()) return nullptr;
    if (!simt::seed()) return heads[0];
    const uint64_t n = d.draws++, phase = mix64(simt::seed() * 0x9e3779b97f4a7c15u + n / 32);
    if (phase & 1) return heads[mix64(phase + n) % heads.size()];
    return *std::min_element(heads.begin(), heads.end(), [&](const Queue* a, const Queue* b) {
        return mix64(phase ^ uint64_t(a->number)) < mix64(phase ^ uint64_t(b->number));
    });
}

void execute(Device& d, Queue& q, std::unique_lock<std::mutex>& lock) {
    Entry entry = std::move(q.entries.front());
    q.entries.pop_front();
    if (entry.kind == Entry::kRecord) {
        entry.event->time = Clock::now();
        entry.event->passed = std::max(entry.event->passed, entry.version);
    } else if (entry.kind != Entry::kWait && !d.failed) {
        d.busy = true, d.busy_host_call = entry.kind == Entry::kHostCall;
        d.progress.notify_all();
        lock.unlock();
        std::string failure;
        try {
            in_host_call = entry.kind == Entry::kHostCall;
            entry.work();
        } catch (const simt::error& e) {
            failure = e.what();
        }
        in_host_call = false;
        entry.work = nullptr;
        lock.lock();
        d.busy = d.busy_host_call = false;
        if (!failure.empty()) d.failed = true, d.text = failure;
    }
    q.done++;
    d.changes++;
    d.progress.notify_all();
    if (q.closed && q.entries.empty()) std::erase_if(d.queues, [&](const auto& p) { return p.get() == &q; });
}

// Nothing can go on and a host waits: tell it who waits for whom, and let the streams pass.
void give_up(Device& d) {
    std::string text = "a wait that nothing queued can end:";
    for (const auto& q : d.queues)
        if (!q->entries.empty()) {
            text += format(" stream %d (%zu entries) waits for record %llu of an event that has %llu;", q->number,
                           q->entries.size(), static_cast<unsigned long long>(q->entries.front().version),
                           static_cast<unsigned long long>(q->entries.front().event->passed));
            q->entries.front().version = 0;
        }
    for (Waiter* w : d.waiters)
        if (!met(d, *w)) {
            if (w->event)
                text += format(" the host waits for record %llu of an event that has %llu;",
                               static_cast<unsigned long long>(w->version),
                               static_cast<unsigned long long>(w->event->passed));
            w->stuck = text;
        }
}

void device_thread() {
    Device& d = device();
    const auto patience = std::chrono::milliseconds(setting("SIMT_EAGER_MS", 5));
    std::unique_lock lock(d.mutex);
    for (;;) {
        if (d.stopped) return;
        const bool wanted =
            std::any_of(d.waiters.begin(), d.waiters.end(), [&](const Waiter* w) { return !met(d, *w); });
        const bool work = std::any_of(d.queues.begin(), d.queues.end(), [](const auto& q) { return may_go(*q); });
        const bool eager = patience.count() > 0 && Clock::now() - d.quiet_since >= patience;
        if (work && (wanted || d.allowance > 0 || eager)) {
            if (!wanted && d.allowance > 0) d.allowance--;
            Queue* const q = draw(d);
            execute(d, *q, lock);
        } else if (wanted) {  // not without a moment's grace: another thread may be about to put what is waited for
            const uint64_t before = d.changes;
            d.work.wait_for(lock, std::chrono::milliseconds(300), [&] { return d.changes != before; });
            if (d.changes != before) continue;
            give_up(d);
            d.progress.notify_all();
        } else {
            d.allowance = 0;
            if (work && patience.count() > 0)
                d.work.wait_until(lock, d.quiet_since + patience);
            else
                d.work.wait(lock);
        }
    }
}

// At the end of the process what is queued is not begun any more, for the program's objects are about to go.
void stop() {
    Device& d = device();
    if (d.forked || in_host_call) return;
    std::unique_lock lock(d.mutex);
    d.stopped = true;
    d.work.notify_all();
    d.progress.wait_for(lock, std::chrono::seconds(10), [&] { return !d.busy || d.busy_host_call; });
}

void start(Device& d) {
    if (d.started) return;
    d.started = true;
    d.quiet_since = Clock::now();
    std::thread(device_thread).detach();
    std::atexit(stop);
}

// ------------------------------------------------------------------------------------------------ what every call
// begins with

using Lock = std::unique_lock<std::mutex>;

cudaError_t enter() {
    if (in_host_call) return cudaErrorNotPermitted;
    if (device().forked) return cudaErrorInitializationError;
    return cudaSuccess;
}
#define ENTER()                                                  \
    do {                                                         \
        if (const cudaError_t refused = enter()) return refused; \
    } while (0)

Queue* find(Device& d, cudaStream_t stream) {
    if (!stream) return d.queues[0].get();
    for (const auto& q : d.queues)
        if (q.get() == stream && !q->closed) return stream;
    return nullptr;
}
std::shared_ptr<Event> find(Device& d, cudaEvent_t event) {
    const auto i = d.events.find(event);
    return i == d.events.end() ? nullptr : i->second;
}

// Waits, and reports what has failed meanwhile.
cudaError_t wait(Device& d, Lock& lock, Waiter& waiter) {
    start(d);
    d.waiters.push_back(&waiter);
    d.work.notify_all();
    d.progress.wait(lock, [&] { return met(d, waiter); });
    std::erase(d.waiters, &waiter);
    d.quiet_since = Clock::now();
    if (!waiter.stuck.empty()) return error(cudaErrorUnknown, waiter.stuck);
    if (!d.failed) return cudaSuccess;
    d.failed = false;
    return error(cudaErrorLaunchFailure, d.text);
}
cudaError_t wait_for_all(Device& d, Lock& lock) {
    Waiter waiter;
    return wait(d, lock, waiter);
}

// The one place where a queue grows. `event` is the graph's own number of the entry's event while the stream is
// captured.
void put(Device& d, Queue& q, Entry entry, int event = -1) {
    if (entry.dependent && !q.ends_in_kernel)
        d.failed = true, d.text = "a dependent launch, and what is before it in the stream is no kernel";
    q.ends_in_kernel = entry.kind == Entry::kKernel;
    if (q.capture) {
        Graph& g = *q.capture;
        const auto place = std::find(g.queues.begin(), g.queues.end(), &q);
        g.nodes.push_back({int(place - g.queues.begin()), event, std::move(entry)});
        return;
    }
    d.dependents += entry.dependent;
    start(d);
    const bool idle =
        !d.busy && std::all_of(d.queues.begin(), d.queues.end(), [](const auto& p) { return p->entries.empty(); });
    if (idle) d.quiet_since = Clock::now();
    q.entries.push_back(std::move(entry));
    q.added++;
    d.changes++;
    if (idle || !d.waiters.empty()) d.work.notify_all();
}
cudaError_t append(cudaStream_t stream, Entry entry) {
    static const bool at_once = setting("SIMT_SYNC", 0) != 0;
    Device& d = device();
    Lock lock(d.mutex);
    Queue* const q = find(d, stream);
    if (!q) return error(cudaErrorInvalidResourceHandle);
    put(d, *q, std::move(entry));
    if (!at_once || q->capture) return cudaSuccess;
    Waiter waiter;
    waiter.queue = q, waiter.version = q->added;
    return wait(d, lock, waiter);
}

bool inside(const std::map<uintptr_t, size_t>& blocks, const void* p, size_t bytes) {
    auto i = blocks.upper_bound(uintptr_t(p));
    if (i == blocks.begin()) return false;
    --i;
    return uintptr_t(p) - i->first <= i->second && bytes <= i->second - (uintptr_t(p) - i->first);
}

}  // namespace

// ------------------------------------------------------------------------------------------------ errors

const char* cudaGetErrorName(cudaError_t e) {
    switch (e) {
#define NAME(x) \
    case x:     \
        return #x
        NAME(cudaSuccess);
        NAME(cudaErrorInvalidValue);
        NAME(cudaErrorMemoryAllocation);
        NAME(cudaErrorInitializationError);
        NAME(cudaErrorInvalidConfiguration);
        NAME(cudaErrorInsufficientDriver);
        NAME(cudaErrorNoDevice);
        NAME(cudaErrorInvalidDevice);
        NAME(cudaErrorInvalidResourceHandle);
        NAME(cudaErrorNotReady);
        NAME(cudaErrorHostMemoryAlreadyRegistered);
        NAME(cudaErrorHostMemoryNotRegistered);
        NAME(cudaErrorLaunchFailure);
        NAME(cudaErrorNotPermitted);
        NAME(cudaErrorNotSupported);
        NAME(cudaErrorStreamCaptureUnsupported);
        NAME(cudaErrorStreamCaptureInvalidated);
        NAME(cudaErrorStreamCaptureUnjoined);
        NAME(cudaErrorStreamCaptureIsolation);
        NAME(cudaErrorUnknown);
#undef NAME
    }
    return "an unknown error code";
}
const char* cudaGetErrorString(cudaError_t e) {
    switch (e) {
        case cudaSuccess:
            return "no error";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorInitializationError:
            return "the emulated device was used before fork()";
        case cudaErrorNotPermitted:
            return "a host function in a stream may not call the runtime";
        case cudaErrorLaunchFailure:
            return "a kernel failed";
        default:
            return cudaGetErrorName(e);
    }
}
cudaError_t cudaGetLastError() {
    if (device().forked) return cudaErrorInitializationError;  // the lock may have been held at the fork
    const std::lock_guard lock(device().mutex);
    return std::exchange(device().last, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
    if (device().forked) return cudaErrorInitializationError;
    const std::lock_guard lock(device().mutex);
    return device().last;
}
const char* device_error_text(cudaError_t e) {
    const char* const text = simt::last_error();
    switch (e) {  // those that come with words
        case cudaErrorLaunchFailure:
        case cudaErrorUnknown:
        case cudaErrorInvalidValue:
        case cudaErrorInvalidConfiguration:
            if (*text) return text;
            [[fallthrough]];
        default:
            return cudaGetErrorString(e);
    }
}

// ------------------------------------------------------------------------------------------------ the device

cudaError_t cudaGetDeviceCount(int* count) {
    *count = setting("SIMT_DEVICES", 1);
    return *count ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int index) {
    ENTER();
    int count;
    if (cudaGetDeviceCount(&count) != cudaSuccess || index < 0 || index >= count) return error(cudaErrorInvalidDevice);
    device().index = index;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
    *index = device().index;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
            *value = 1024;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = 48 * 1024;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = int(limits().smem);
            break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = int(limits().smem) + 1024;
            break;
        case cudaDevAttrMultiProcessorCount:
            *value = setting("SIMT_SMS", limits().sms);
            break;
        case cudaDevAttrComputeCapabilityMajor:
            *value = architecture() / 10;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = architecture() % 10;
            break;
        default:
            return error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int index) {
    *p = {};
    std::snprintf(p->name, sizeof p->name, "emulated");
    p->totalGlobalMem = memory_size(), p->sharedMemPerBlock = 48 * 1024, p->sharedMemPerBlockOptin = limits().smem;
    p->major = architecture() / 10, p->minor = architecture() % 10,
    p->multiProcessorCount = setting("SIMT_SMS", limits().sms);
    p->pciBusID = index;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
    ENTER();
    Device& d = device();
    Lock lock(d.mutex);
    return wait_for_all(d, lock);
}

// ------------------------------------------------------------------------------------------------ memory

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    ENTER();
    const std::lock_guard lock(device().mutex);
    *total = memory_size(), *free = memory_size() - device().used;
    return cudaSuccess;
}
namespace {
#if defined(SIMT_ASAN) || defined(SIMT_TSAN)
constexpr bool kLocks = false;
#else
constexpr bool kLocks = true;
#endif
constexpr size_t kPage = 4096;
size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
// A block of more bytes is not filled with NaN, and its pages take no memory before they are written: so whole models
// can be laid out and captured.
constexpr size_t kVast = size_t(64) << 20;
void fill(void* memory, int byte, size_t bytes) {
    const bool leaves_pages = bytes > kVast && byte == 0 && uintptr_t(memory) % kPage == 0;
    const size_t pages = leaves_pages ? bytes / kPage * kPage : 0;
    if (pages) madvise(memory, pages, MADV_DONTNEED);  // reads as zero
    std::memset(static_cast<char*>(memory) + pages, byte, bytes - pages);
}

struct MemoryLock {
    std::vector<std::pair<void*, size_t>> blocks;
    std::atomic<bool> on{false}, touched{false};

    void protect(int access) const {
        for (const auto& [p, bytes] : blocks)
            if (mprotect(p, bytes, access)) std::perror("simt: mprotect"), std::abort();
    }
    void off() {
        if (on.exchange(false)) protect(PROT_READ | PROT_WRITE);
    }
} memory_lock;

// Any other access that faults does so again, and ends the process.
void on_fault(int number, siginfo_t*, void*) {
    if (!memory_lock.on || !simt::in_kernel()) {
        signal(number, SIG_DFL);
        return;
    }
    memory_lock.touched = true;
    memory_lock.off();
}
}  // namespace

cudaError_t cudaMalloc(void** memory, size_t bytes) {
    ENTER();
    *memory = nullptr;
    if (!bytes) return cudaSuccess;
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    if (bytes > memory_size() - d.used) return error(cudaErrorMemoryAllocation);
    if (bytes > kVast) {
        *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (*memory == MAP_FAILED) return *memory = nullptr, error(cudaErrorMemoryAllocation);
    } else {
        if (posix_memalign(memory, kLocks ? kPage : 256, kLocks ? whole_pages(bytes) : bytes))
            return *memory = nullptr, error(cudaErrorMemoryAllocation);
        std::memset(*memory, 0xff, bytes);
    }
    d.memory[uintptr_t(*memory)] = bytes;
    d.used += bytes;
    return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
    ENTER();
    if (!memory) return cudaSuccess;
    Device& d = device();
    Lock lock(d.mutex);
    const auto block = d.memory.find(uintptr_t(memory));
    if (block == d.memory.end()) return error(cudaErrorInvalidValue, "cudaFree of memory that is not the device's");
    const cudaError_t result = wait_for_all(d, lock);
    const size_t bytes = block->second;
    d.memory.erase(block);
    d.used -= bytes;
    if (bytes > kVast) {
        munmap(memory, bytes);
        return result;
    }
#ifdef SIMT_ASAN
    std::free(memory);  // the sanitizer keeps it, and sees every access
#else
    std::memset(memory, 0xff, bytes);
    d.freed.push_back({memory, bytes});
    size_t kept = 0;
    for (const auto& f : d.freed) kept += f.second;
    for (; kept > (64u << 20); d.freed.pop_front()) {
        kept -= d.freed.front().second;
        std::free(d.freed.front().first);
    }
#endif
    return result;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
    ENTER();
    *memory = nullptr;
    if (!bytes) return cudaSuccess;
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    if (bytes > size_t(1) << 40 || posix_memalign(memory, 4096, bytes))
        return *memory = nullptr, error(cudaErrorMemoryAllocation);
    std::memset(*memory, 0xff, bytes);
    d.pinned[uintptr_t(*memory)] = bytes;
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) { return cudaMallocHost(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) {
    ENTER();
    if (!memory) return cudaSuccess;
    Device& d = device();
    Lock lock(d.mutex);
    const auto block = d.pinned.find(uintptr_t(memory));
    if (block == d.pinned.end())
        return error(cudaErrorInvalidValue, "cudaFreeHost of memory that cudaMallocHost did not give");
    const cudaError_t result = wait_for_all(d, lock);
    d.pinned.erase(block);
    std::free(memory);
    return result;
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
    ENTER();
    const std::lock_guard lock(device().mutex);
    if (!memory || !bytes) return error(cudaErrorInvalidValue);
    return device().registered.emplace(uintptr_t(memory), bytes).second ? cudaSuccess
                                                                        : error(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* memory) {
    ENTER();
    const std::lock_guard lock(device().mutex);
    return device().registered.erase(uintptr_t(memory)) ? cudaSuccess : error(cudaErrorHostMemoryNotRegistered);
}

static bool pageable(const void* memory, size_t bytes) {
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    return !inside(d.pinned, memory, bytes) && !inside(d.registered, memory, bytes);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
    ENTER();
    bool on_device;
    {
        const std::lock_guard lock(device().mutex);
        on_device = inside(device().memory, memory, 1);
    }
    attributes->type = on_device             ? cudaMemoryTypeDevice
                       : pageable(memory, 1) ? cudaMemoryTypeUnregistered
                                             : cudaMemoryTypeHost;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER();
    if (!bytes) return cudaSuccess;
    if (kind != cudaMemcpyDefault) {
        const std::lock_guard lock(device().mutex);
        const bool to = inside(device().memory, dst, bytes), from = inside(device().memory, src, bytes);
        const bool want_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        const bool want_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
        if (to != want_to || from != want_from)
            return error(cudaErrorInvalidValue,
                         format("a copy of %zu bytes: the destination is the device's: %d, want %d; the source: "
                                "%d, want %d",
                                bytes, to, want_to, from, want_from));
    }
    // A small copy from memory that is not pinned may take the bytes at once, before the stream has come to it: here
    // every other one.
    if (kind == cudaMemcpyHostToDevice && bytes <= 64 << 10 && pageable(src, bytes) &&
        (device().pageable_copies++ + simt::seed()) % 2) {
        const char* const now = static_cast<const char*>(src);
        return append(
            stream,
            {Entry::kWork, [=, taken = std::vector<char>(now, now + bytes)] { std::memcpy(dst, taken.data(), bytes); },
             nullptr});
    }
    return append(stream, {Entry::kWork, [=] { std::memcpy(dst, src, bytes); }, nullptr});
}
cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
    if (const cudaError_t e = cudaMemcpyAsync(dst, src, bytes, kind, nullptr)) return e;
    return cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int byte, size_t bytes, cudaStream_t stream) {
    ENTER();
    if (!bytes) return cudaSuccess;
    {
        const std::lock_guard lock(device().mutex);
        if (!inside(device().memory, memory, bytes))
            return error(cudaErrorInvalidValue, "cudaMemset outside the device's memory");
    }
    return append(stream, {Entry::kWork, [=] { fill(memory, byte, bytes); }, nullptr});
}
cudaError_t cudaMemset(void* memory, int byte, size_t bytes) {
    if (const cudaError_t e = cudaMemsetAsync(memory, byte, bytes, nullptr)) return e;
    return cudaStreamSynchronize(nullptr);
}

// ------------------------------------------------------------------------------------------------ streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    ENTER();
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    d.queues.push_back(std::make_unique<Queue>(Queue{d.next_number++, {}, 0, 0, false, nullptr}));
    *stream = d.queues.back().get();
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    ENTER();
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    Queue* const q = stream ? find(d, stream) : nullptr;
    if (!q) return error(cudaErrorInvalidResourceHandle);
    q->closed = true;
    if (q->done == q->added) std::erase_if(d.queues, [&](const auto& p) { return p.get() == q; });
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    ENTER();
    Device& d = device();
    Lock lock(d.mutex);
    Waiter waiter;
    waiter.queue = find(d, stream);
    if (!waiter.queue) return error(cudaErrorInvalidResourceHandle);
    if (waiter.queue->capture) return error(cudaErrorStreamCaptureUnsupported);
    waiter.version = waiter.queue->added;
    return wait(d, lock, waiter);
}

// A query lets the device execute one entry: who polls gets there.
static cudaError_t query(Device& d, Lock& lock, const Waiter& waiter) {
    start(d);
    if (!met(d, waiter)) {
        const uint64_t before = d.changes;
        d.allowance++;
        d.work.notify_all();
        d.progress.wait_for(lock, std::chrono::milliseconds(5),
                            [&] { return d.changes != before || d.busy_host_call; });
    }
    if (d.failed) {
        d.failed = false;
        return error(cudaErrorLaunchFailure, d.text);
    }
    return met(d, waiter) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    ENTER();
    Device& d = device();
    Lock lock(d.mutex);
    Waiter waiter;
    waiter.queue = find(d, stream);
    if (!waiter.queue) return error(cudaErrorInvalidResourceHandle);
    waiter.version = waiter.queue->added;
    return query(d, lock, waiter);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
    ENTER();
    return append(stream, {Entry::kHostCall, [=] { function(argument); }, nullptr});
}

// ------------------------------------------------------------------------------------------------ events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    ENTER();
    const std::lock_guard lock(device().mutex);
    auto e = std::make_shared<Event>();
    e->timing = !(flags & cudaEventDisableTiming);
    *event = e.get();
    device().events[e.get()] = e;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    ENTER();
    const std::lock_guard lock(device().mutex);
    return device().events.erase(event) ? cudaSuccess : error(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    ENTER();
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    Queue* const q = find(d, stream);
    const auto e = find(d, event);
    if (!q || !e) return error(cudaErrorInvalidResourceHandle);
    const bool external = flags & cudaEventRecordExternal;
    if (external && !q->capture) return error(cudaErrorInvalidValue, "an external record outside a capture");
    e->capture = external ? nullptr : q->capture;
    if (external) {
        put(d, *q, {Entry::kRecord, nullptr, e});
    } else if (q->capture) {
        e->captured = q->capture->events++;
        put(d, *q, {Entry::kRecord, nullptr, nullptr}, e->captured);
    } else {
        put(d, *q, {Entry::kRecord, nullptr, e, ++e->recorded});
    }
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    ENTER();
    static const bool ignored = setting("SIMT_IGNORE_WAITS", 0) != 0;
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    Queue* const q = find(d, stream);
    const auto e = find(d, event);
    if (!q || !e) return error(cudaErrorInvalidResourceHandle);
    if (flags & cudaEventWaitExternal) {
        if (!q->capture) return error(cudaErrorInvalidValue, "an external wait outside a capture");
        if (!ignored) put(d, *q, {Entry::kWait, nullptr, e});
    } else if (e->capture) {  // the stream joins the capture
        if (q->capture && q->capture != e->capture) return error(cudaErrorStreamCaptureIsolation);
        if (!q->capture) q->capture = e->capture, e->capture->queues.push_back(q);
        put(d, *q, {Entry::kWait, nullptr, nullptr}, e->captured);
    } else if (q->capture) {
        return error(cudaErrorStreamCaptureIsolation);
    } else if (!ignored) {
        put(d, *q, {Entry::kWait, nullptr, e, std::max<uint64_t>(e->recorded, 1)});
    }
    return cudaSuccess;
}
static cudaError_t event_waiter(Device& d, cudaEvent_t event, Waiter* waiter) {
    waiter->event = find(d, event);
    if (!waiter->event) return error(cudaErrorInvalidResourceHandle);
    if (waiter->event->capture) return error(cudaErrorStreamCaptureUnsupported);
    waiter->version = std::max<uint64_t>(waiter->event->recorded, 1);
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ENTER();
    Device& d = device();
    Lock lock(d.mutex);
    Waiter waiter;
    if (const cudaError_t e = event_waiter(d, event, &waiter)) return e;
    return wait(d, lock, waiter);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    ENTER();
    Device& d = device();
    Lock lock(d.mutex);
    Waiter waiter;
    if (const cudaError_t e = event_waiter(d, event, &waiter)) return e;
    return query(d, lock, waiter);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    ENTER();
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    const auto a = find(d, from), b = find(d, to);
    if (!a || !b || !a->timing || !b->timing || !a->recorded || !b->recorded)
        return error(cudaErrorInvalidResourceHandle);
    if (a->passed < a->recorded || b->passed < b->recorded) return error(cudaErrorNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(b->time - a->time).count();
    return cudaSuccess;
}

// ------------------------------------------------------------------------------------------------ graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    ENTER();
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    Queue* const q = stream ? find(d, stream) : nullptr;  // the default stream cannot be captured
    if (!q || q->capture) return error(cudaErrorStreamCaptureUnsupported);
    q->capture = new Graph;
    q->ends_in_kernel = false;
    q->capture->queues.push_back(q);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    ENTER();
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    Queue* const q = stream ? find(d, stream) : nullptr;
    *graph = nullptr;
    if (!q || !q->capture || q->capture->queues[0] != q) return error(cudaErrorStreamCaptureUnsupported);
    Graph* const g = q->capture;
    // Every stream that joined must end with a record that another waits for.
    bool joined = true;
    for (int i = 1; i < int(g->queues.size()); i++) {
        int last = -1;
        for (const Graph::Node& n : g->nodes)
            if (n.queue == i) last = n.entry.kind == Entry::kRecord ? n.event : -1;
        joined &= last >= 0 && std::any_of(g->nodes.begin(), g->nodes.end(), [&](const Graph::Node& n) {
                      return n.entry.kind == Entry::kWait && n.event == last;
                  });
    }
    for (Queue* member : g->queues) member->capture = nullptr, member->ends_in_kernel = false;
    for (auto& [_, e] : d.events)
        if (e->capture == g) e->capture = nullptr;
    if (!joined) return delete g, error(cudaErrorStreamCaptureUnjoined);
    *graph = g;
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    ENTER();
    const std::lock_guard lock(device().mutex);
    Queue* const q = find(device(), stream);
    if (!q) return error(cudaErrorInvalidResourceHandle);
    *status = q->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
// A graph of several streams must keep their priorities: without the flag CUDA runs all nodes with that of the stream
// that launches it.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
    ENTER();
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    const auto dependent = [](const Graph::Node& n) { return n.entry.dependent; };
    const uint64_t refused = setting("SIMT_NO_GRAPHS", 0);
    if (refused == 1 || (refused == 2 && std::any_of(graph->nodes.begin(), graph->nodes.end(), dependent)))
        return error(cudaErrorNotSupported);
    if (graph->queues.size() > 1 && !(flags & cudaGraphInstantiateFlagUseNodePriority))
        return error(cudaErrorInvalidValue);
    *exec = new GraphExec{graph->nodes, {nullptr}, {}};
    for (int i = 0; i < graph->events; i++) (*exec)->events.push_back(std::make_shared<Event>());
    for (size_t i = 1; i < graph->queues.size(); i++) {
        d.queues.push_back(std::make_unique<Queue>(Queue{d.next_number++, {}, 0, 0, false, nullptr}));
        (*exec)->queues.push_back(d.queues.back().get());
    }
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    ENTER();
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    Queue* const q = find(d, stream);
    if (!q) return error(cudaErrorInvalidResourceHandle);
    for (const Graph::Node& n : exec->nodes) {
        Entry entry = n.entry;
        if (n.event >= 0) entry.event = exec->events[size_t(n.event)];
        if (entry.kind == Entry::kRecord) entry.version = ++entry.event->recorded;
        // CUDA does not say whether a wait node means the newest record at the launch or when the stream gets there:
        // here it is either.
        if (entry.kind == Entry::kWait)
            entry.version = n.event < 0 && (mix64(simt::seed() + d.draws) & 1)
                                ? Entry::kNewest
                                : std::max<uint64_t>(entry.event->recorded, 1);
        put(d, n.queue ? *exec->queues[size_t(n.queue)] : *q, std::move(entry));
    }
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    ENTER();
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    ENTER();
    Device& d = device();
    const std::lock_guard lock(d.mutex);
    for (Queue* q : exec->queues)
        if (q) {
            q->closed = true;
            if (q->done == q->added) std::erase_if(d.queues, [&](const auto& p) { return p.get() == q; });
        }
    delete exec;
    return cudaSuccess;
}

// ------------------------------------------------------------------------------------------------ launch

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    ENTER();
    const std::lock_guard lock(device().mutex);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || size_t(value) > limits().smem)
        return error(cudaErrorInvalidValue, format("%d bytes of shared memory: sm_%d has %zu for a block", value,
                                                   architecture(), limits().smem));
    device().smem_limit[kernel] = value;
    return cudaSuccess;
}

// One line for each kernel: its place in the program's file as nm prints it, and the program. Written when it is
// launched for the first time: a process that crashes or leaves by _exit has left its lines.
static void note_coverage(const void* kernel) {
    static const char* const file = std::getenv("SIMT_COVERAGE");
    Device& d = device();
    if (!file || !d.launched.insert(kernel).second) return;
    Dl_info info;
    link_map* map = nullptr;
    if (!dladdr1(kernel, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP)) return;
    const std::string line = format("%zx %s\n", size_t(uintptr_t(kernel) - map->l_addr), program_invocation_short_name);
    const int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line.data(), line.size()) != ssize_t(line.size()))
        std::fprintf(stderr, "simt: SIMT_COVERAGE=%s: %s\n", file, std::strerror(errno));
    if (fd >= 0) close(fd);
}

__attribute__((weak)) cudaStream_t launch_stream(Stream stream, bool*) {
    return reinterpret_cast<cudaStream_t>(stream);
}

static cudaError_t try_submit(const void* kernel, simt::uint3 grid, simt::uint3 block, unsigned cluster, size_t smem,
                              Stream stream, std::function<void()>& body, simt::Loc at) {
    ENTER();
    Device& d = device();
    uint64_t number;
    size_t allowed;
    {
        const std::lock_guard lock(d.mutex);
        if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
            return error(cudaErrorInvalidConfiguration, "the grid is empty or too large");
        if (!block.x || !block.y || !block.z || uint64_t(block.x) * block.y * block.z > 1024 || block.z > 64)
            return error(cudaErrorInvalidConfiguration, "the block is empty or too large");
        if (cluster > 1 &&
            (architecture() < 90 || cluster > 8 || grid.x % cluster || block.x * block.y * block.z % 128))
            return error(
                cudaErrorInvalidConfiguration,
                "clusters need sm_90, 8 blocks at most, a grid of whole ones, here blocks of whole warpgroups");
        const auto limit = d.smem_limit.find(kernel);
        if (smem > (limit == d.smem_limit.end() ? 48u * 1024 : std::max(48u * 1024, unsigned(limit->second))))
            return error(cudaErrorInvalidValue, "more dynamic shared memory than was asked for");
        allowed = limit == d.smem_limit.end() ? 48 * 1024 : limits().smem;
        note_coverage(kernel);
        number = d.launches++;
    }
    bool behind_kernel = false;
    const cudaStream_t queue = launch_stream(stream, &behind_kernel);
    return append(queue, {Entry::kKernel,
                          [=, body = std::move(body)] {
                              simt::shared_limit = allowed;
                              try {
                                  simt::run_grid(grid, block, cluster, smem, number, body);
                              } catch (const simt::error& e) {
                                  throw simt::error(format("%s, launched at %s:%u", e.what(), at.file, at.line));
                              }
                          },
                          nullptr, 0, behind_kernel});
}

}  // namespace emu

void simt::submit(const void* kernel, uint3 grid, uint3 block, unsigned cluster, size_t smem, Stream stream,
                  std::function<void()> body, Loc at) {
    using namespace emu;
    cudaError_t e = cudaSuccess;
    if (smem > 47 * 1024) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(smem));
    if (e == cudaSuccess) e = try_submit(kernel, grid, block, cluster, smem, stream, body, at);
    if (e != cudaSuccess)
        die(kExitOther, "gpu: launch of %ux%ux%u blocks of %u threads with %zu bytes of shared memory: %s", grid.x,
            grid.y, grid.z, block.x * block.y * block.z, smem, device_error_text(e));
}

uint64_t simt::dependent_launches() {
    const std::lock_guard lock(emu::device().mutex);
    return emu::device().dependents;
}

void simt::lock_memory() {
    if (!emu::kLocks) return;
    using emu::memory_lock;
    static const bool handled = [] {
        struct sigaction action = {};
        action.sa_sigaction = emu::on_fault, action.sa_flags = SA_SIGINFO;
        return sigaction(SIGSEGV, &action, nullptr) == 0;
    }();
    if (!handled) return;
    {
        const std::lock_guard lock(emu::device().mutex);
        memory_lock.blocks.clear();
        for (const auto& [p, bytes] : emu::device().memory)
            memory_lock.blocks.push_back({reinterpret_cast<void*>(p), emu::whole_pages(bytes)});
    }
    memory_lock.on = true;
    memory_lock.protect(PROT_NONE);
}
bool simt::unlock_memory() {
    emu::memory_lock.off();
    return emu::memory_lock.touched.exchange(false);
}

const char* simt::last_error() {
    static thread_local std::string copy;
    if (emu::device().forked) return "";
    const std::lock_guard lock(emu::device().mutex);
    copy = emu::device().text;
    return copy.c_str();
}
