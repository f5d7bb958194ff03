// runtime.cu -- memory and streams of kernels.h, for a CUDA device.
//
// A Stream is a DeviceStream: a cudaStream_t, scratch memory that its operations share, and the first Error that a host function
// in it threw. The main stream is one too, made at first use. All streams are non-blocking ones: nothing here touches CUDA's default stream,
// which would wait for all others. What fails in a kernel shows at the next call that asks the device, at the latest in
// stream_sync; such an error stays, and the process has to end. A machine without a driver has no devices, which is no error.
#include "common.cuh"
#include "kernels.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include "common.h"

namespace BACKEND {

namespace {

void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    cudaGetLastError();                             // an error that does not stay is not found again by the next call
    die(kExitOther, "gpu: %s: %s; nvidia-smi shows the state of the device", what, device_error_text(error));
}

// CUDA keeps the current device per thread, so each thread that comes here selects this process's one.
std::atomic<int> selected{0};
void use_device() {
    static thread_local int current = 0;
    const int wanted = selected;
    if (current == wanted) return;
    check(cudaSetDevice(wanted), "cudaSetDevice");
    current = wanted;
}

thread_local bool capturing = false;                // this thread is inside graph_capture

struct DeviceStream {
    cudaStream_t handle = nullptr;
    cudaEvent_t event = nullptr;                    // for stream_wait
    void* scratch = nullptr;
    size_t scratch_bytes = 0;
    std::atomic<bool> ends_in_kernel{false};        // what was put on it last is a kernel: the next kernel may begin before it has ended
    std::mutex mutex;                               // of `error`: host functions run on a thread of the driver
    std::exception_ptr error;
};

// urgent: blocks of this stream go before those that wait in others.
DeviceStream* queue_create(bool urgent) {
    use_device();
    DeviceStream* queue = new DeviceStream;
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&queue->handle, cudaStreamNonBlocking, urgent ? greatest : least), "cudaStreamCreate");
    check(cudaEventCreateWithFlags(&queue->event, cudaEventDisableTiming), "cudaEventCreate");
    return queue;
}

DeviceStream* find_queue(Stream stream) {
    static DeviceStream* const main_queue = queue_create(false);   // lives as long as the process
    use_device();
    return stream ? reinterpret_cast<DeviceStream*>(stream) : main_queue;
}
// For all that is put on it but kernels.
DeviceStream* queue_of(Stream stream) {
    DeviceStream* const queue = find_queue(stream);
    queue->ends_in_kernel = false;
    return queue;
}

// Waits, then throws what a host function threw, or what went wrong on the device.
void throw_error(DeviceStream* queue) {
    std::exception_ptr error;
    {
        const std::lock_guard<std::mutex> lock(queue->mutex);
        std::swap(error, queue->error);
    }
    if (error) std::rethrow_exception(error);
}

void queue_sync(DeviceStream* queue) {
    const cudaError_t result = cudaStreamSynchronize(queue->handle);
    throw_error(queue);
    check(result, "the device stopped");
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------- devices

// The kernels need compute capability 8.0. CUDA lists the fastest device first, so what comes after an older one is old too. No driver
// and no device are no error; a driver that is there and does not work (too old for this build, not started) is said once.
int device_count() {
    int count = 0, usable = 0, driver = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
        cudaGetLastError();
        static std::atomic<bool> said{false};
        if (error != cudaErrorNoDevice && cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0 && !said.exchange(true))
            warn("gpu: %s; the driver is for CUDA %d.%d", device_error_text(error), driver / 1000, driver % 1000 / 10);
        return 0;
    }
    for (int major = 0; usable < count; usable++)
        if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, usable) != cudaSuccess || major < 8) break;
    return usable;
}

void device_select(int index) {
    if (const int count = device_count(); index < 0 || index >= count)
        die(kExitOther, "gpu: device %d: this process sees %d of compute capability 8.0 or later; start one rank per device", index, count);
    selected = index;
    check(cudaSetDevice(index), "cudaSetDevice");   // always: device 0 is where a thread begins, but only this looks whether it works
    use_device();
}

void device_memory(size_t* free, size_t* total) {
    use_device();
    check(cudaMemGetInfo(free, total), "cudaMemGetInfo");
}

// "gpu NVIDIA H200, 132 SMs": what stands before the comma is the kind.
const char* device_name() {
    static const std::string name = [] {
        cudaDeviceProp properties;
        check(cudaGetDeviceProperties(&properties, selected), "cudaGetDeviceProperties");
        return format("gpu %s%s, %d SMs", properties.name, properties.major == 9 && !hopper() ? " without wgmma" : "", properties.multiProcessorCount);
    }();
    return name.c_str();
}

static int attribute(cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, selected), "cudaDeviceGetAttribute");
    return value;
}
bool hopper() {
    static const bool is = has_code_for(9) && attribute(cudaDevAttrComputeCapabilityMajor) == 9 && !std::getenv("LOCKSTEP_PORTABLE");
    return is;
}
int multiprocessors() {
    static const int count = attribute(cudaDevAttrMultiProcessorCount);
    return count;
}

const char* device_address() {
    static const std::string address = [] {
        char text[32] = "";
        return std::string(cudaDeviceGetPCIBusId(text, int(sizeof text), selected) == cudaSuccess ? text : "");
    }();
    return address.c_str();
}

// TFLOP/s of dense bf16 with fp32 sums, from NVIDIA's data sheets. The first name that is part of the device's counts.
bool storage_is_fast() { return true; }
double device_peak_flops() {
    static const struct { const char* name; double peak; } kPeaks[] = {
        {"B200", 2250}, {"H100 PCIe", 756}, {"H100 NVL", 835}, {"H100", 989}, {"H800", 989}, {"H200", 989}, {"A100", 312}, {"A800", 312},
        {"L40S", 362}, {"L40,", 181}, {"L4,", 121}, {"A40,", 150}, {"A30,", 165}, {"RTX 5090", 209.5}, {"RTX 4090", 165.2}, {"RTX 3090", 71}};
    for (const auto& p : kPeaks)
        if (std::strstr(device_name(), p.name)) return p.peak * 1e12;
    return std::nan("");
}

// A GPU does not need them, but what was asked for can be asked back.
static std::atomic<int> threads{1};
void set_threads(int n) { threads = n > 0 ? n : 1; }
int get_threads() { return threads; }

// ----------------------------------------------------------------------------------------------------------- memory

void* device_alloc(size_t bytes, const char* what) {
    DeviceStream* const queue = queue_of(nullptr);
    void* memory = nullptr;
    if (const cudaError_t error = cudaMalloc(&memory, bytes ? bytes : 1); error != cudaSuccess) {
        const std::string why = device_error_text(error);
        cudaGetLastError();
        size_t free = 0, total = 0;
        device_memory(&free, &total);
        die(kExitOther, "gpu: memory: %s: got none (%s), want %zu bytes, and %zu of %zu are free; make the model or the batch smaller", what,
            why.c_str(), bytes, free, total);
    }
    // Any stream may use it next, and none waits for the main one.
    check(cudaMemsetAsync(memory, 0, bytes, queue->handle), "cudaMemset");
    check(cudaStreamSynchronize(queue->handle), "the device stopped");
    return memory;
}
void device_free(void* memory) {
    if (!memory) return;
    use_device();
    check(cudaFree(memory), "cudaFree");            // waits until the device is idle
}

// Memory that is not pinned CUDA may read at once, before the stream has come to the copy: what the stream still does to it, a host
// function's barrier above all, has to be done by then.
void copy_to_device(void* device, const void* host, size_t bytes, Stream stream) {
    if (!bytes) return;
    DeviceStream* const queue = queue_of(stream);
    cudaPointerAttributes from;
    check(cudaPointerGetAttributes(&from, host), "cudaPointerGetAttributes");
    if (from.type == cudaMemoryTypeUnregistered) queue_sync(queue);
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, queue->handle), "copy to the device");
}
void copy_to_host_later(void* host, const void* device, size_t bytes, Stream stream) {
    if (bytes) check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, queue_of(stream)->handle), "copy to the host");
}
void copy_to_host(void* host, const void* device, size_t bytes, Stream stream) {
    copy_to_host_later(host, device, bytes, stream);
    queue_sync(queue_of(stream));
}
void device_zero(void* device, size_t bytes, Stream stream) {
    if (bytes) check(cudaMemsetAsync(device, 0, bytes, queue_of(stream)->handle), "cudaMemset");
}

// Pinned: the copy engine reads and writes it directly, and the copy does not hold up the caller.
void* host_alloc(size_t bytes, const char* what) {
    use_device();
    void* memory = nullptr;
    if (const cudaError_t error = cudaMallocHost(&memory, bytes ? bytes : 1); error != cudaSuccess) {
        const std::string why = device_error_text(error);
        cudaGetLastError();
        die(kExitOther, "gpu: pinned host memory: %s: got none (%s), want %zu bytes; raise ulimit -l, or make the model or the batch smaller",
            what, why.c_str(), bytes);
    }
    return std::memset(memory, 0, bytes);
}
void host_free(void* memory) {
    if (memory) check(cudaFreeHost(memory), "cudaFreeHost");
}
void host_register(void* memory, size_t bytes) {
    use_device();
    if (bytes && cudaHostRegister(memory, bytes, cudaHostRegisterPortable) != cudaSuccess) cudaGetLastError();    // then it stays pageable
}

// The host's copy of common.cuh's conversions: round to nearest even, a NaN stays one.
void store_floats(floatX* device, const float* host, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        std::memcpy(&bits, host + i, sizeof bits);
        const uint32_t rounded = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
        device[i].bits = uint16_t(rounded >> 16);
    }
}
void load_floats(float* host, const floatX* device, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = uint32_t(device[i].bits) << 16;
        std::memcpy(host + i, &bits, sizeof bits);
    }
}

// An operation leaves nothing in it: the next one on the same stream comes after, and may have it all. It grows in the first step and
// not after, as sizes repeat.
static std::atomic<int> scratch_moves{0};             // how often: graphs hold the address
void* scratch(size_t bytes, Stream stream) {
    DeviceStream* const queue = find_queue(stream);
    if (bytes <= queue->scratch_bytes) return queue->scratch;
    scratch_moves++;
    check(cudaStreamSynchronize(queue->handle), "the device stopped");
    device_free(queue->scratch);
    queue->scratch = nullptr;
    queue->scratch_bytes = 0;
    queue->scratch = device_alloc(bytes, "work space");
    queue->scratch_bytes = bytes;
    return queue->scratch;
}

// ---------------------------------------------------------------------------------------------------------- streams

void* stream_native(Stream stream) { return queue_of(stream)->handle; }

// Code for older devices that the driver has translated does not wait. LOCKSTEP_PDL=0: every kernel after the end of the one before, to compare.
static bool launches_overlap() {
    static const bool overlap = [] {
        const int major = attribute(cudaDevAttrComputeCapabilityMajor);
        return major >= 9 && has_code_for(major) && !asked("LOCKSTEP_PDL", "0");
    }();
    return overlap;
}
cudaStream_t launch_stream(Stream stream, bool* behind_kernel) {
    DeviceStream* const queue = find_queue(stream);
    *behind_kernel = queue->ends_in_kernel.exchange(launches_overlap());
    return queue->handle;
}

// Urgent: a second stream is for communication, which must not wait until a backward has no more blocks to start.
Stream stream_create() { return reinterpret_cast<Stream>(queue_create(true)); }

void stream_destroy(Stream stream) {
    if (!stream) return;
    DeviceStream* const queue = queue_of(stream);
    cudaStreamSynchronize(queue->handle);           // an error that nobody asked for in time is not thrown any more
    device_free(queue->scratch);
    cudaEventDestroy(queue->event);
    cudaStreamDestroy(queue->handle);
    delete queue;
}

namespace {
struct Call { DeviceStream* queue; void (*function)(void*); void* argument; };

void run_call(void* pointer) {
    Call* const call = static_cast<Call*>(pointer);
    try {
        call->function(call->argument);
    } catch (...) {
        const std::lock_guard<std::mutex> lock(call->queue->mutex);
        if (!call->queue->error) call->queue->error = std::current_exception();
    }
    delete call;
}
}  // namespace

void stream_call(Stream stream, void (*function)(void*), void* argument) {
    DeviceStream* const queue = queue_of(stream);
    if (capturing) die(kExitOther, "gpu: a host function is called once, and cannot be part of a graph");
    check(cudaLaunchHostFunc(queue->handle, run_call, new Call{queue, function, argument}), "cudaLaunchHostFunc");
}

void stream_wait(Stream stream, Stream other) {
    DeviceStream *const waits = queue_of(stream), *const first = queue_of(other);
    if (waits == first) return;
    check(cudaEventRecord(first->event, first->handle), "cudaEventRecord");
    check(cudaStreamWaitEvent(waits->handle, first->event, 0), "cudaStreamWaitEvent");    // for the record just made, not for a later one
}

void stream_check(Stream stream) { throw_error(queue_of(stream)); }
void stream_sync(Stream stream) { queue_sync(queue_of(stream)); }

// An event, and whether it is behind anything yet: waiting for one that was never set is no wait. In a graph setting it and waiting for
// it are nodes ("external"), so that marks join what a graph does with what is done outside, and tell the time within it.
namespace {
struct TimedEvent { cudaEvent_t event = nullptr; std::atomic<bool> set{false}; };
TimedEvent* event_of(Mark mark) { return reinterpret_cast<TimedEvent*>(mark); }
}  // namespace

Mark mark_create() {
    use_device();
    TimedEvent* const event = new TimedEvent;
    check(cudaEventCreateWithFlags(&event->event, cudaEventDefault), "cudaEventCreate");
    return reinterpret_cast<Mark>(event);
}
void mark_destroy(Mark mark) {
    if (!mark) return;
    check(cudaEventDestroy(event_of(mark)->event), "cudaEventDestroy");
    delete event_of(mark);
}
void mark_set(Mark mark, Stream stream) {
    check(cudaEventRecordWithFlags(event_of(mark)->event, queue_of(stream)->handle, capturing ? cudaEventRecordExternal : cudaEventRecordDefault), "cudaEventRecord");
    event_of(mark)->set = true;
}
void mark_sync(Mark mark) {
    use_device();
    if (event_of(mark)->set) check(cudaEventSynchronize(event_of(mark)->event), "the device stopped");
}
bool mark_passed(Mark mark) {
    use_device();
    if (!event_of(mark)->set) return true;
    const cudaError_t result = cudaEventQuery(event_of(mark)->event);
    if (result == cudaErrorNotReady) {
        cudaGetLastError();
        return false;
    }
    check(result, "the device stopped");
    return true;
}
void stream_wait_mark(Stream stream, Mark mark) {
    if (!event_of(mark)->set) return;
    check(cudaStreamWaitEvent(queue_of(stream)->handle, event_of(mark)->event, capturing ? cudaEventWaitExternal : cudaEventWaitDefault), "cudaStreamWaitEvent");
}
double mark_seconds(Mark from, Mark to) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, event_of(from)->event, event_of(to)->event), "cudaEventElapsedTime");
    return double(milliseconds) * 1e-3;
}

// ----------------------------------------------------------------------------------------------------------- graphs

namespace {
struct DeviceGraph { cudaGraphExec_t exec; int scratch_moves; };
}  // namespace

// Thread-local: what other threads of this process ask of CUDA meanwhile (a save's copies) is not our capture's business.
Graph graph_capture(void (*work)(void*), void* argument, Stream joined, std::string* why) {
    DeviceStream* const queue = queue_of(nullptr);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    why->clear();
    check(cudaStreamBeginCapture(queue->handle, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    capturing = true;
    try {
        work(argument);
        stream_wait(nullptr, joined);
    } catch (const Error& e) { *why = e.message; }
    capturing = false;
    queue_of(nullptr), queue_of(joined);            // a kernel that was captured is not what a launched one comes behind
    cudaError_t error = cudaStreamEndCapture(queue->handle, &graph);
    if (error == cudaSuccess && why->empty()) error = cudaGraphInstantiate(&exec, graph, 0);
    if (error != cudaSuccess && why->empty()) *why = device_error_text(error);
    cudaGetLastError();
    if (graph) check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return why->empty() ? reinterpret_cast<Graph>(new DeviceGraph{exec, scratch_moves}) : nullptr;
}
bool graph_launch(Graph graph) {
    DeviceGraph* const g = reinterpret_cast<DeviceGraph*>(graph);
    if (g->scratch_moves != scratch_moves) return false;
    check(cudaGraphLaunch(g->exec, queue_of(nullptr)->handle), "cudaGraphLaunch");
    return true;
}
void graph_destroy(Graph graph) {
    if (!graph) return;
    check(cudaGraphExecDestroy(reinterpret_cast<DeviceGraph*>(graph)->exec), "cudaGraphExecDestroy");
    delete reinterpret_cast<DeviceGraph*>(graph);
}

}  // namespace BACKEND
