// test_runtime.cu -- the software GPU's runtime: what a host program may rely on holds under every seed, and what it
// forgets is an error that names it, under every seed. Each fault has the same program without it beside it.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cuda_runtime.h>
#include <functional>
#include <regex>
#include <string>
#include <thread>
#include <vector>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/test.h"

namespace ptx {
void set_seed(uint64_t seed);
}

namespace {

__global__ void fill(int* x, int value) { x[threadIdx.x] = value; }
__global__ void twice_plus(int* x, int value) { x[threadIdx.x] = 2 * x[threadIdx.x] + value; }
__global__ void beyond_the_end(int* x, int offset) { x[offset + int(threadIdx.x)] = 7; }

constexpr int kThreads = 32;
constexpr size_t kBytes = kThreads * sizeof(int);

void check(cudaError_t error) {
    if (error != cudaSuccess) FAIL("%s", cudaGetErrorString(error));
}
bool says(cudaError_t error, const char* part) {
    return std::string(cudaGetErrorString(error)).find(part) != std::string::npos;
}

struct Numbers {                        // kThreads of them, in device memory
    int* p = nullptr;
    explicit Numbers(int value) {
        check(cudaMalloc(&p, kBytes));
        fill<<<1, kThreads>>>(p, value);
        check(cudaDeviceSynchronize());
    }
    Numbers(const Numbers&) = delete;
    ~Numbers() { cudaFree(p); }
    int first() const {
        int value = 0;
        check(cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost));
        return value;
    }
};
struct TestEvent {
    cudaEvent_t e = nullptr;
    TestEvent() { check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)); }
    ~TestEvent() { cudaEventDestroy(e); }
};
struct TestStream {
    cudaStream_t s = nullptr;
    TestStream() { check(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0)); }
    ~TestStream() { cudaStreamDestroy(s); }
    void sync() const { check(cudaStreamSynchronize(s)); }
    void record(const TestEvent& event) const { check(cudaEventRecord(event.e, s)); }
    void wait(const TestEvent& event) const { check(cudaStreamWaitEvent(s, event.e)); }
};

// Returns under how many of the seeds 1..n f() is false.
template <class F> int seeds_that_fail(int n, F f) {
    int failed = 0;
    for (int s = 1; s <= n; s++) {
        ptx::set_seed(uint64_t(s));
        failed += !f();
    }
    ptx::set_seed(1);
    return failed;
}
// Returns whether f() is true in a child process.
template <class F> bool in_a_child(F f) {
    const pid_t child = fork();
    if (child == 0) {
        bool result = false;
        try {
            result = f();
        } catch (const TestFailure&) {
        }
        _exit(result ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status == 0;
}

// The race has been named by the next wait, and is all that was wrong.
void expect_race(const std::string& pattern) {
    const cudaError_t error = cudaDeviceSynchronize();
    const std::string text = cudaGetErrorString(error);
    EXPECT(error == cudaErrorLaunchFailure && std::regex_search(text, std::regex("race: memory at .*" + pattern)),
           "got \"%s\", want %s", text.c_str(), pattern.c_str());
    check(cudaDeviceSynchronize());
}
// Under each of 16 seeds f(false) is right, and f(true) has the race.
template <class F> void only_without(const std::string& pattern, F f) {
    const int failed = seeds_that_fail(16, [&] {
        f(false);
        check(cudaDeviceSynchronize());
        f(true);
        expect_race(pattern);
        return true;
    });
    EXPECT(failed == 0, "%d of 16 seeds", failed);
}

// x = 2x + 1 on one stream and x = 2x + 2 on another, in this order if the event is there.
void two_streams(const Numbers& x, bool with_event) {
    const TestStream a, b;
    const TestEvent e;
    twice_plus<<<1, kThreads, 0, a.s>>>(x.p, 1);
    if (with_event) {
        a.record(e);
        b.wait(e);
    }
    twice_plus<<<1, kThreads, 0, b.s>>>(x.p, 2);
}
bool in_order() {
    const Numbers x(3);
    two_streams(x, true);
    check(cudaDeviceSynchronize());
    return x.first() == 16;
}

// The first tests fork before this process has a device.
TEST(waits_are_ignored_on_request) {
    EXPECT(in_a_child(in_order), "wrong with the event");
    const auto ignoring = [&] {
        setenv("SOFT_GPU_IGNORE_WAITS", "1", 1);
        const Numbers x(3);
        two_streams(x, true);
        expect_race("twice_plus");
        return true;
    };
    EXPECT(in_a_child(ignoring), "no wait is missed");
}

TEST(goes_on_by_itself) {
    static std::atomic<bool> called;
    const auto is_called = [](int milliseconds) {   // so long, at most, though nobody waits
        const TestStream a;
        called = false;
        check(cudaLaunchHostFunc(a.s, [](void*) { called = true; }, nullptr));
        for (int i = 0; i < milliseconds && !called; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return called.load();
    };
    EXPECT(in_a_child([&] { return setenv("SOFT_GPU_EAGER_MS", "1", 1) == 0 && is_called(60000); }), "it never begins");
    EXPECT(in_a_child([&] { return !is_called(30); }), "it begins though it may not");
}

TEST(fork_and_devices) {
    EXPECT(in_a_child(in_order), "a child has no device of its own");
    EXPECT(in_order(), "nor has its parent");
    EXPECT(in_a_child([] { return cudaDeviceSynchronize() == cudaErrorInitializationError; }), "a device of two");
    EXPECT(in_order(), "the parent's device is gone");
    EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice, "a device that is not there");
    check(cudaSetDevice(0));
}

// ------------------------ what nothing orders

TEST(kernels_without_an_event) {
    EXPECT(seeds_that_fail(16, in_order) == 0, "wrong with the event");
    const Numbers x(3);
    only_without("128 bytes: twice_plus in stream [0-9]+ reads it, and twice_plus in stream [0-9]+ writes it: got no "
                 "order", [&](bool fault) { two_streams(x, !fault); });
    // In one of their numbers.
    int* p = nullptr;
    check(cudaMalloc(&p, 2 * kBytes));
    only_without(", 4 bytes: fill in stream [0-9]+ writes it, and fill in ", [&](bool fault) {
        const TestStream a, b;
        fill<<<1, kThreads, 0, a.s>>>(p, 1);
        fill<<<1, kThreads, 0, b.s>>>(p + kThreads - fault, 2);
    });
    check(cudaFree(p));
}
TEST(copies_and_fills_without_an_event) {
    const Numbers x(3), y(3);
    int* pinned = nullptr;
    check(cudaMallocHost(reinterpret_cast<void**>(&pinned), kBytes));
    const auto between = [&](const std::string& pattern, const std::function<void(cudaStream_t)>& second) {
        only_without(pattern, [&](bool fault) {
            const TestStream a, b;
            const TestEvent e;
            twice_plus<<<1, kThreads, 0, a.s>>>(x.p, 1);
            check(cudaMemcpyAsync(pinned, x.p, kBytes, cudaMemcpyDeviceToHost, a.s));
            a.record(e);
            if (!fault) b.wait(e);
            second(b.s);
        });
    };
    between("(twice_plus|cudaMemcpyAsync|cudaMemsetAsync) in .*(twice_plus|cudaMemcpyAsync|cudaMemsetAsync) in ",
            [&](cudaStream_t s) { check(cudaMemsetAsync(x.p, 0, kBytes, s)); });
    between("twice_plus in .*cudaMemcpyAsync in |cudaMemcpyAsync in .*twice_plus in ", [&](cudaStream_t s) {
        check(cudaMemcpyAsync(y.p, x.p, kBytes, cudaMemcpyDeviceToDevice, s));
    });
    // In the host's memory: one copy writes what the other reads.
    between("cudaMemcpyAsync in .*(reads|writes) it, and cudaMemcpyAsync in ", [&](cudaStream_t s) {
        check(cudaMemcpyAsync(y.p, pinned, kBytes, cudaMemcpyHostToDevice, s));
    });
    check(cudaFreeHost(pinned));
}
TEST(what_orders) {
    const Numbers x(3);
    const TestStream a, b, c;
    const TestEvent e, f;
    const auto after = [&](auto order) {            // a kernel in a, then one in b
        return [&, order](bool fault) {
            twice_plus<<<1, kThreads, 0, a.s>>>(x.p, 1);
            a.record(e);
            if (!fault) order();
            twice_plus<<<1, kThreads, 0, b.s>>>(x.p, 2);
        };
    };
    only_without("twice_plus", after([&] { a.sync(); }));
    only_without("twice_plus", after([&] { check(cudaEventSynchronize(e.e)); }));
    only_without("twice_plus", after([&] {
        while (cudaEventQuery(e.e) == cudaErrorNotReady) std::this_thread::yield();
    }));
    only_without("twice_plus", after([&] {          // by way of c
        c.wait(e);
        c.record(f);
        b.wait(f);
    }));
    // The record before the kernel does not order what is behind it, nor does a wait of another stream.
    only_without("twice_plus", [&](bool fault) {
        if (fault) a.record(e);
        twice_plus<<<1, kThreads, 0, a.s>>>(x.p, 1);
        if (!fault) a.record(e);
        b.wait(e);
        twice_plus<<<1, kThreads, 0, b.s>>>(x.p, 2);
    });
    only_without("twice_plus", [&](bool fault) {
        twice_plus<<<1, kThreads, 0, a.s>>>(x.p, 1);
        check(cudaStreamSynchronize(fault ? c.s : a.s));
        twice_plus<<<1, kThreads, 0, nullptr>>>(x.p, 2);
    });
}

TEST(same_seed_same_order) {
    static std::vector<int> calls;
    const auto order = [](uint64_t seed) {          // of 12 calls in three streams
        ptx::set_seed(seed);
        calls.clear();
        const TestStream s[3];
        for (size_t i = 0; i < 12; i++)
            check(cudaLaunchHostFunc(s[i % 3].s, [](void* n) { calls.push_back(int(uintptr_t(n))); },
                                     reinterpret_cast<void*>(i)));
        check(cudaDeviceSynchronize());
        return calls;
    };
    const std::vector<int> one = order(5);
    EXPECT(one == order(5), "one seed, two orders");
    EXPECT(one != order(6) || one != order(7), "seeds do not matter");
    ptx::set_seed(1);
}

TEST(host_buffers_are_read_late) {
    const Numbers x(0);
    const TestStream s;
    int* pinned = nullptr;
    check(cudaMallocHost(reinterpret_cast<void**>(&pinned), kBytes));
    std::vector<int> pageable(kThreads);            // may be read at the call, or later
    for (int* const source : {pinned, pageable.data()})
        only_without("4 bytes: the host writes it, and cudaMemcpyAsync in stream [0-9]+ reads it", [&](bool fault) {
            source[3] = 1;
            check(cudaMemcpyAsync(x.p, source, kBytes, cudaMemcpyHostToDevice, s.s));
            if (!fault) s.sync();
            source[3] = 0x02020202;
        });
    // What an operation writes there is not the host's.
    fill<<<1, kThreads, 0, s.s>>>(x.p, 5);
    check(cudaMemcpyAsync(pinned, x.p, kBytes, cudaMemcpyDeviceToHost, s.s));
    check(cudaMemcpyAsync(x.p, pinned, kBytes, cudaMemcpyHostToDevice, s.s));
    const int early = pinned[0];        // read before the stream was waited for
    s.sync();
    EXPECT(early != 5 && pinned[0] == 5 && x.first() == 5, "got %d early, %d late", early, pinned[0]);
    for (const bool waits : {true, false}) {
        check(cudaMemcpyAsync(x.p, pinned, kBytes, cudaMemcpyHostToDevice, s.s));
        if (waits) s.sync();
        const cudaError_t error = cudaFreeHost(pinned);
        EXPECT(waits ? error == cudaSuccess : says(error, "the host frees it, and cudaMemcpyAsync in stream"), "%s",
               cudaGetErrorString(error));
        if (waits) check(cudaMallocHost(reinterpret_cast<void**>(&pinned), kBytes));
    }
}

TEST(wait_that_is_never_met) {
    const TestStream a, b;
    const TestEvent e;
    const Numbers x(0);
    a.wait(e);           // recorded never
    fill<<<1, kThreads, 0, a.s>>>(x.p, 5);
    const cudaError_t error = cudaStreamSynchronize(a.s);
    EXPECT(error == cudaErrorUnknown && says(error, "(2 entries) waits for record 1"), "%s", cudaGetErrorString(error));
    check(cudaDeviceSynchronize());
    EXPECT(cudaEventSynchronize(e.e) == cudaErrorUnknown, "the host does not wait for such an event");
    // One that another thread records in time is met.
    a.wait(e);
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        cudaEventRecord(e.e, b.s);
    });
    const cudaError_t met = cudaStreamSynchronize(a.s);
    other.join();
    check(met);
}

TEST(kernel_errors_come_with_the_next_wait) {
    const TestStream a, b;
    const Numbers x(1);
    (void)cudaGetLastError();           // of another test
    beyond_the_end<<<1, kThreads, 0, a.s>>>(x.p, 1 << 20);
    check(cudaGetLastError());
    fill<<<1, kThreads, 0, a.s>>>(x.p, 9);          // behind it: dropped
    const cudaError_t error = cudaStreamSynchronize(a.s);
    EXPECT(error == cudaErrorLaunchFailure && says(error, "beyond_the_end"), "%s", cudaGetErrorString(error));
    EXPECT(cudaGetLastError() == cudaErrorLaunchFailure && cudaGetLastError() == cudaSuccess, "the last error");
    b.sync();
    EXPECT(x.first() == 1, "a kernel ran after the failure");
}

TEST(launches_that_are_refused) {
    const Numbers x(0);
    fill<<<1, 1025>>>(x.p, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration, "1025 threads");
    fill<<<0, kThreads>>>(x.p, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration, "no block");
    fill<<<1, kThreads, 50 << 10>>>(x.p, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration, "50 KB that nobody asked for");
    check(cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, 50 << 10));
    fill<<<1, kThreads, 50 << 10>>>(x.p, 2);
    check(cudaDeviceSynchronize());
    EXPECT(x.first() == 2, "got %d", x.first());
    EXPECT(cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, 256 << 10) == cudaErrorInvalidValue,
           "256 KB");
}

// A launch that may begin before the kernel before it has ended.
cudaError_t dependent_fill(int* x, cudaStream_t stream) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    const cudaLaunchConfig_t config = {dim3(1), dim3(kThreads), 0, stream, &attribute, 1};
    return cudaLaunchKernelEx(&config, fill, x, 4);
}
TEST(dependent_launches_follow_kernels) {
    const TestStream a;
    const Numbers x(0);
    check(cudaMemsetAsync(x.p, 0, kBytes, a.s));
    dependent_fill(x.p, a.s);
    const cudaError_t error = cudaStreamSynchronize(a.s);
    EXPECT(error == cudaErrorLaunchFailure && says(error, "is no kernel"), "%s", cudaGetErrorString(error));
}

TEST(host_functions) {
    static std::vector<int> seen;
    static std::atomic<cudaError_t> inside;
    seen.clear();
    const TestStream a;
    const Numbers x(0);
    for (int i = 0; i < 3; i++) {
        fill<<<1, kThreads, 0, a.s>>>(x.p, i);
        check(cudaLaunchHostFunc(a.s, [](void* p) {
            seen.push_back(*static_cast<int*>(p));
            inside = cudaStreamSynchronize(nullptr);
        }, x.p));
    }
    EXPECT(seen.empty(), "they are called at once");
    a.sync();
    EXPECT((seen == std::vector<int>{0, 1, 2}), "out of order");
    EXPECT(inside == cudaErrorNotPermitted, "they may call the runtime");
}

TEST(polling_gets_there) {
    static std::atomic<bool> released;
    released = false;
    const TestStream a;
    const TestEvent e;
    check(cudaLaunchHostFunc(a.s, [](void*) {
        while (!released) std::this_thread::yield();
    }, nullptr));
    a.record(e);
    const bool waits = cudaEventQuery(e.e) == cudaErrorNotReady;
    released = true;
    EXPECT(waits, "ready at once");
    while (cudaEventQuery(e.e) == cudaErrorNotReady) std::this_thread::yield();
    check(cudaEventQuery(e.e));
    check(cudaEventDestroy(e.e));
    EXPECT(cudaEventRecord(e.e, a.s) == cudaErrorInvalidResourceHandle, "an event lives on after its end");
}

// x = 3; on b, which waits for a: x = 2x + 1; on a again: x = 2x + 2. `join`: a waits for b; `late`: after that.
cudaError_t capture(cudaGraphExec_t* exec, const Numbers& x, const TestStream& a, const TestStream& b, bool join,
                    bool late = false) {
    const TestEvent forked, joined;
    check(cudaStreamBeginCapture(a.s, cudaStreamCaptureModeGlobal));
    fill<<<1, kThreads, 0, a.s>>>(x.p, 3);
    a.record(forked);
    b.wait(forked);
    twice_plus<<<1, kThreads, 0, b.s>>>(x.p, 1);
    b.record(joined);
    if (join && !late) a.wait(joined);
    twice_plus<<<1, kThreads, 0, a.s>>>(x.p, 2);
    if (join && late) a.wait(joined);
    EXPECT(cudaStreamSynchronize(a.s) == cudaErrorStreamCaptureUnsupported, "a captured stream can be waited for");
    cudaGraph_t graph;
    if (const cudaError_t error = cudaStreamEndCapture(a.s, &graph)) return error;
    EXPECT(cudaGraphInstantiate(exec, graph, 0) != cudaSuccess, "the streams' priorities may be lost");
    const cudaError_t error = cudaGraphInstantiate(exec, graph, cudaGraphInstantiateFlagUseNodePriority);
    check(cudaGraphDestroy(graph));
    return error;
}
TEST(graphs) {
    const TestStream a, b;
    const Numbers x(0);
    cudaGraphExec_t exec;
    EXPECT(capture(&exec, x, a, b, false) == cudaErrorStreamCaptureUnjoined, "a stream that was not joined");
    setenv("SOFT_GPU_NO_GRAPHS", "1", 1);
    EXPECT(capture(&exec, x, a, b, true) == cudaErrorNotSupported, "a graph that was to be refused");
    unsetenv("SOFT_GPU_NO_GRAPHS");
    check(capture(&exec, x, a, b, true));
    check(cudaDeviceSynchronize());
    EXPECT(x.first() == 0, "capturing has executed something");
    const int wrong = seeds_that_fail(10, [&] {
        for (const int value : {0, 5}) {
            check(cudaGraphLaunch(exec, a.s));
            twice_plus<<<1, kThreads, 0, a.s>>>(x.p, value);
        }
        a.sync();
        return x.first() == ((3 * 2 + 1) * 2 + 2) * 2 + 5;
    });
    EXPECT(wrong == 0, "wrong under %d of 10 seeds", wrong);
    only_without("twice_plus in ", [&](bool fault) {         // a stream that does not wait for it
        check(cudaGraphLaunch(exec, a.s));
        if (!fault) a.sync();
        twice_plus<<<1, kThreads, 0, b.s>>>(x.p, 0);
    });
    check(cudaGraphExecDestroy(exec));
    check(capture(&exec, x, a, b, true, true));
    check(cudaGraphLaunch(exec, a.s));
    expect_race("twice_plus in .*twice_plus in ");
    check(cudaGraphExecDestroy(exec));
}

TEST(memory) {
    size_t free = 0, total = 0, after = 0;
    void* p = nullptr;
    EXPECT(cudaMalloc(&p, size_t(1) << 60) == cudaErrorMemoryAllocation && !p, "an absurd size");
    check(cudaMemGetInfo(&free, &total));
    check(cudaMalloc(&p, kBytes));
    check(cudaMemGetInfo(&after, &total));
    EXPECT(after == free - kBytes && free <= total, "%zu free, then %zu", free, after);
    std::vector<int> host(kThreads + 1);
    check(cudaMemcpy(host.data(), p, kBytes, cudaMemcpyDeviceToHost));
    EXPECT(host[5] == -1, "fresh memory holds %x", unsigned(host[5]));
    EXPECT(cudaMemcpy(p, host.data(), kBytes + 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue, "beyond the end");
    EXPECT(cudaMemcpy(host.data(), p, kBytes, cudaMemcpyHostToDevice) == cudaErrorInvalidValue, "the wrong direction");
    EXPECT(cudaMemsetAsync(host.data(), 0, 8, nullptr) == cudaErrorInvalidValue, "a fill of host memory");
    EXPECT(cudaFreeHost(p) == cudaErrorInvalidValue, "freed as if it were the host's");
    check(cudaFree(p));
    EXPECT(cudaFree(p) == cudaErrorInvalidValue, "freed twice");
    fill<<<1, kThreads>>>(static_cast<int*>(p), 1);
    EXPECT(cudaDeviceSynchronize() == cudaErrorLaunchFailure, "a kernel writes freed memory");
}

}  // namespace

int main(int argc, char** argv) {
    setenv("SOFT_GPU_EAGER_MS", "0", 1);            // the order is to depend on the seed alone
    return run_tests(argc, argv);
}
