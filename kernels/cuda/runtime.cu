// runtime.cu -- memory, streams, events, graphs and hashes of kernels.h, for a CUDA device.
//
// All streams are non-blocking: nothing here touches CUDA's default stream, which would wait for
// all others. A later call reports an error in a kernel, at the latest stream_sync. Such an error
// is permanent, and the process has to end.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <utility>
#include <vector>
#include "kernels/cuda/common.cuh"
#include "kernels/elements.h"
#include "src/base/common.h"
#include "src/base/cpus.h"

namespace BACKEND {
namespace {

void check(cudaError_t error, int line = __builtin_LINE()) {
    if (error == cudaSuccess) return;
    // Clears the error, unless it is permanent: the next call must not report it
    cudaGetLastError();
    die(kExitOther, "gpu: runtime.cu:%d: %s; nvidia-smi shows its state", line,
        cudaGetErrorString(error));
}

// use_device makes `selected`, this process's device,
// current in the calling thread: CUDA keeps one per thread.
std::atomic<int> selected{0};
void use_device() {
    static thread_local int current = 0;
    const int wanted = selected;
    if (current == wanted) return;
    check(cudaSetDevice(wanted));
    current = wanted;
}

int attribute(cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, selected));
    return value;
}

thread_local bool capturing = false;        // whether this thread is inside graph_capture
thread_local bool dependent_nodes = true;    // whether that graph may have dependent launches
std::atomic<int> scratch_moves{0};    // counts moves of scratch memory, whose address graphs hold

struct DeviceStream {
    cudaStream_t handle = nullptr;
    cudaEvent_t event = nullptr;    // for stream_wait
    void* scratch = nullptr;
    size_t scratch_bytes = 0;
    // Its newest work is a kernel: the next one may begin before it ends
    std::atomic<bool> ends_in_kernel{false};

    // urgent: its blocks start before waiting blocks of others
    explicit DeviceStream(bool urgent) {
        use_device();
        int least = 0, greatest = 0;
        check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        check(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking,
                                           urgent ? greatest : least));
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
};

DeviceStream* find_queue(Stream stream) {
    // Lives as long as the process
    static DeviceStream* const main_queue = new DeviceStream(false);
    use_device();
    return stream ? reinterpret_cast<DeviceStream*>(stream) : main_queue;
}
// Returns the same as find_queue, for a caller that enqueues something other than a kernel.
DeviceStream* queue_of(Stream stream) {
    DeviceStream* const queue = find_queue(stream);
    queue->ends_in_kernel = false;
    return queue;
}

[[noreturn]] void die_of_memory(const char* what, cudaError_t error, size_t bytes,
                                const char* advice) {
    const std::string why = cudaGetErrorString(error);
    cudaGetLastError();
    size_t free = 0, total = 0;
    device_memory(&free, &total);
    die(kExitOther,
        "gpu: memory: %s: got none (%s), want %zu bytes, and %zu of the device's %zu are free; "
        "%smake the "
        "model or the batch smaller",
        what, why.c_str(), bytes, free, total, advice);
}

}  // namespace

// ------------------------ devices

// Counts the devices before the first with a compute capability below 8.0; CUDA lists the fastest
// first. No driver or no device is no error; a driver that does not work (too old for this build,
// not started) is reported once.
int device_count() {
    int count = 0, usable = 0, driver = 0, major = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
        cudaGetLastError();
        static std::atomic<bool> said{false};
        if (error != cudaErrorNoDevice && cudaDriverGetVersion(&driver) == cudaSuccess &&
            driver > 0 && !said.exchange(true))
            warn("gpu: %s; the driver is for CUDA %d.%d", cudaGetErrorString(error), driver / 1000,
                 driver % 1000 / 10);
        return 0;
    }
    for (; usable < count; usable++)
        if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, usable) !=
                cudaSuccess ||
            major < 8)
            break;
    return usable;
}

void device_select(int index) {
    if (const int count = device_count(); index < 0 || index >= count)
        die(kExitOther,
            "gpu: device %d: this process sees %d of compute capability 8.0 or later; start one "
            "rank per "
            "device",
            index, count);
    selected = index;
    check(cudaSetDevice(index));    // also for device 0: only this call checks that it works
    use_device();
    stay_near_device(device_address());
}

void device_memory(size_t* free, size_t* total) {
    use_device();
    check(cudaMemGetInfo(free, total));
}

bool hopper() {
    static const bool is = has_code_for(9) && attribute(cudaDevAttrComputeCapabilityMajor) == 9;
    return is;
}

std::atomic<int> left_multiprocessors{0};
void spare_multiprocessors(int count) { left_multiprocessors = count; }
int multiprocessors() {
    static const int all = attribute(cudaDevAttrMultiProcessorCount);
    return std::max(all - left_multiprocessors, 1);
}
size_t shared_memory_of_block() {
    static const int bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    return size_t(bytes);
}

// Returns "gpu NVIDIA H200, 132 SMs", for example.
const char* device_name() {
    static const std::string name = [] {
        cudaDeviceProp properties;
        check(cudaGetDeviceProperties(&properties, selected));
        const char* const lacks = properties.major == 9 && !hopper() ? " without wgmma" : "";
        return format("gpu %s%s, %d SMs", properties.name, lacks, properties.multiProcessorCount);
    }();
    return name.c_str();
}
const char* device_kind() {
    static const std::string name = device_name(), kind = name.substr(0, name.find(','));
    return kind.c_str();
}

const char* device_address() {
    static char text[32] = "";
    if (cudaDeviceGetPCIBusId(text, sizeof text, selected) != cudaSuccess) text[0] = '\0';
    return text;
}

bool storage_is_fast() { return true; }

// The table has TFLOP/s from NVIDIA's data sheets. The first
// of its names that is part of the device's name counts.
double device_peak_flops() {
    static const struct { const char* name; double peak;
    } kPeaks[] = {{"B200", 2250}, {"H100 PCIe", 756},  {"H100 NVL", 835},   {"H100", 989},
                  {"H800", 989},  {"H200", 989},       {"A100", 312},       {"A800", 312},
                  {"L40S", 362},  {"L40,", 181},       {"L4,", 121},        {"A40,", 150},
                  {"A30,", 165},  {"RTX 5090", 209.5}, {"RTX 4090", 165.2}, {"RTX 3090", 71}};
    for (const auto& p : kPeaks)
        if (std::strstr(device_name(), p.name)) return p.peak * 1e12;
    return std::nan("");
}

// Calls a function of NVML, the driver's library of sensors, if it is there. After an error its last
// argument still points to the old value.
template <class... T> void nvml(const char* name, T... arguments) {
    if (const auto call = reinterpret_cast<int (*)(T...)>(
            dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), name)))
        call(arguments...);
}

// NVML numbers devices in another order than CUDA, so the address finds the device. Calls may take
// milliseconds, so they are made once a second.
Sensors device_sensors() {
    static Sensors sensors;
    static double due;
    if (now_seconds() < due) return sensors;
    due = now_seconds() + 1;
    void* device = nullptr;
    sensors = {};
    nvml("nvmlInit_v2");                // again and again only counts
    nvml("nvmlDeviceGetHandleByPciBusId_v2", device_address(), &device);
    nvml("nvmlDeviceGetPowerUsage", device, &sensors.milliwatts);
    nvml("nvmlDeviceGetClockInfo", device, /*NVML_CLOCK_SM*/ 1, &sensors.mhz);
    nvml("nvmlDeviceGetTemperature", device, /*NVML_TEMPERATURE_GPU*/ 0, &sensors.celsius);
    return sensors;
}

void set_threads(int) {}
int get_threads() { return 1; }

// ------------------------ memory

void* device_alloc(size_t bytes, const char* what) {
    DeviceStream* const queue = queue_of(nullptr);
    void* memory = nullptr;
    if (const cudaError_t error = cudaMalloc(&memory, bytes ? bytes : 1); error != cudaSuccess)
        die_of_memory(what, error, bytes, "");
    check(cudaMemsetAsync(memory, 0, bytes, queue->handle));
    // Any stream may use it next, without waiting for the main one
    check(cudaStreamSynchronize(queue->handle));
    return memory;
}
void device_free(void* memory) {
    if (!memory) return;
    use_device();
    check(cudaFree(memory));    // waits until the device is idle
}

// The memory is pinned: the copy engine reads and writes it
// directly, and the caller does not wait for the copy.
void* host_alloc(size_t bytes, const char* what) {
    use_device();
    void* memory = nullptr;
    if (const cudaError_t error = cudaMallocHost(&memory, bytes ? bytes : 1); error != cudaSuccess)
        die_of_memory(what, error, bytes, "this is pinned host memory: raise ulimit -l, or ");
    return std::memset(memory, 0, bytes);
}
void host_free(void* memory) {
    if (memory) check(cudaFreeHost(memory));
}

// CUDA may read memory that is not pinned at once, before the stream reaches the copy. So if
// `host` is not pinned, this first waits for the stream's work, which may still write that memory.
void copy_to_device(void* device, const void* host, size_t bytes, Stream stream) {
    if (!bytes) return;
    DeviceStream* const queue = queue_of(stream);
    cudaPointerAttributes from;
    check(cudaPointerGetAttributes(&from, host));
    if (from.type == cudaMemoryTypeUnregistered) check(cudaStreamSynchronize(queue->handle));
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, queue->handle));
}
void copy_to_host_later(void* host, const void* device, size_t bytes, Stream stream) {
    if (bytes)
        check(
            cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, queue_of(stream)->handle));
}
void copy_to_host(void* host, const void* device, size_t bytes, Stream stream) {
    copy_to_host_later(host, device, bytes, stream);
    stream_sync(stream);
}
void device_zero(void* device, size_t bytes, Stream stream) {
    if (bytes) check(cudaMemsetAsync(device, 0, bytes, queue_of(stream)->handle));
}

void store_floats(floatX* stored, const float* floats, size_t n) {
    for (size_t i = 0; i < n; i++) store(stored[i], floats[i]);
}
void load_floats(float* floats, const floatX* stored, size_t n) {
    for (size_t i = 0; i < n; i++) floats[i] = widen(stored[i]);
}

void poison(float* x, size_t n, size_t step, Stream stream) {
    each_element(1, div_up(n, step), [=] ON_DEVICE(size_t, size_t i) {
        x[i * step] = __uint_as_float(kPoison);
    }, stream);
}
void find_poison(uint64_t* left, const float* x, size_t n, size_t step, const float* end,
                 Stream stream) {
    each_element(1, div_up(n, step), [=] ON_DEVICE(size_t, size_t i) {
        if (const float* const at = x + i * step; __float_as_uint(*at) == kPoison)
            atomicMax(reinterpret_cast<unsigned long long*>(left),
                      static_cast<unsigned long long>(end - at));
    }, stream);
}

// ------------------------ hash

constexpr int kHashThreads = 256;

// One warp computes the sum of a unit.
__global__ void __launch_bounds__(kHashThreads)
hash_kernel(uint64_t* sums, const float* x, size_t n) {
    grid_dependency_sync();
    const size_t unit = size_t(blockIdx.x) * (kHashThreads / 32) + warp(), begin = unit * kUnit;
    if (begin >= n) return;
    const size_t count = n - begin < kUnit ? n - begin : kUnit;
    uint64_t sum = 0;
    for (size_t i = size_t(lane()); i < count; i += 32)
        sum += mix64(uint64_t(i + 1) << 32 | __float_as_uint(x[begin + i]));
    sum = warp_sum(sum);
    if (lane() == 0) sums[unit] = sum;
}

uint64_t hash_floats(const float* x, size_t n, Stream stream) {
    const size_t units = div_up(n, kUnit);
    std::vector<uint64_t> sums(units);
    if (units) {
        auto* const device_sums = static_cast<uint64_t*>(scratch(units * sizeof sums[0], stream));
        launch(hash_kernel, div_up(units, size_t(kHashThreads / 32)), kHashThreads, 0, stream,
               device_sums, x, n);
        copy_to_host(sums.data(), device_sums, units * sizeof sums[0], stream);
    }
    uint64_t hash = n;
    for (const uint64_t unit : sums) hash = mix64(hash ^ unit);
    return hash;
}

// ------------------------ work space

// Returns the stream's work space, enlarged if need be. That
// happens in the first step only, because sizes repeat.
void* scratch(size_t bytes, Stream stream) {
    DeviceStream* const queue = find_queue(stream);
    if (bytes <= queue->scratch_bytes) return queue->scratch;
    scratch_moves++;
    check(cudaStreamSynchronize(queue->handle));
    queue->scratch_bytes = 0;
    device_free(std::exchange(queue->scratch, nullptr));
    queue->scratch = device_alloc(bytes, "work space");
    queue->scratch_bytes = bytes;
    return queue->scratch;
}

// ------------------------ streams

void* stream_native(Stream stream) { return queue_of(stream)->handle; }

// A kernel may begin early only if the build has code for the device:
// code that the driver has translated from PTX of an older architecture
// may have no griddepcontrol, so it would not wait for the kernel before.
cudaStream_t launch_stream(Stream stream, bool* behind_kernel) {
    static const int major = attribute(cudaDevAttrComputeCapabilityMajor);
    DeviceStream* const queue = find_queue(stream);
    const bool may_wait = major >= 9 && has_code_for(major) && (dependent_nodes || !capturing);
    *behind_kernel = queue->ends_in_kernel.exchange(may_wait);
    return queue->handle;
}

// The stream has the highest priority: communication must not
// wait until all blocks of a backward kernel have started.
Stream stream_create() { return reinterpret_cast<Stream>(new DeviceStream(true)); }

void stream_destroy(Stream stream) {
    DeviceStream* const queue = queue_of(stream);
    cudaStreamSynchronize(queue->handle);   // an error that no earlier call has thrown is lost
    device_free(queue->scratch);
    cudaEventDestroy(queue->event);
    cudaStreamDestroy(queue->handle);
    delete queue;
}

void stream_wait(Stream stream, Stream other) {
    DeviceStream *const waits = queue_of(stream), *const first = queue_of(other);
    if (waits == first) return;
    check(cudaEventRecord(first->event, first->handle));
    check(cudaStreamWaitEvent(waits->handle, first->event, 0));     // for the record just made
}

void stream_sync(Stream stream) { check(cudaStreamSynchronize(queue_of(stream)->handle)); }

// ------------------------ events

// In a graph, records of events and waits for them are nodes ("external"). So an event can
// order work inside a graph with work outside of it, and can measure time within a graph.
struct EventTag { cudaEvent_t event = nullptr; std::atomic<bool> set{false}; };

Event event_create() {
    use_device();
    EventTag* const event = new EventTag;
    check(cudaEventCreateWithFlags(&event->event, cudaEventDefault));
    return event;
}
void event_destroy(Event event) {
    if (event) check(cudaEventDestroy(event->event));
    delete event;
}
void event_record(Event event, Stream stream) {
    const unsigned flags = capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
    check(cudaEventRecordWithFlags(event->event, queue_of(stream)->handle, flags));
    event->set = true;
}
void event_sync(Event event) {
    use_device();
    if (event->set) check(cudaEventSynchronize(event->event));
}
bool event_done(Event event) {
    use_device();
    const cudaError_t result = event->set ? cudaEventQuery(event->event) : cudaSuccess;
    if (result == cudaErrorNotReady) cudaGetLastError();
    else check(result);
    return result == cudaSuccess;
}
void stream_wait_event(Stream stream, Event event) {
    const unsigned flags = capturing ? cudaEventWaitExternal : cudaEventWaitDefault;
    if (event->set) check(cudaStreamWaitEvent(queue_of(stream)->handle, event->event, flags));
}
double event_seconds(Event from, Event to) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, from->event, to->event));
    return double(milliseconds) * 1e-3;
}

// ------------------------ graphs

struct GraphTag { cudaGraphExec_t exec; int scratch_moves; };

// Captures only this thread's work, because other threads
// of the process may meanwhile ask CUDA for copies.
Graph graph_capture(const std::function<void()>& enqueue, Stream joined, bool dependent,
                    std::string* why) {
    DeviceStream* const queue = queue_of(nullptr);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    why->clear();
    check(cudaStreamBeginCapture(queue->handle, cudaStreamCaptureModeThreadLocal));
    capturing = true;
    dependent_nodes = dependent;
    try {
        enqueue();
        stream_wait(nullptr, joined);
    } catch (const Error& e) { *why = e.message; }
    capturing = false;
    queue_of(nullptr);    // the captured work has not run, so the newest
    queue_of(joined);    // work of neither stream is a kernel
    cudaError_t error = cudaStreamEndCapture(queue->handle, &graph);
    // Without the flag all would have the main stream's priority
    if (error == cudaSuccess && why->empty())
        error = cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority);
    if (error != cudaSuccess && why->empty()) *why = cudaGetErrorString(error);
    cudaGetLastError();
    if (graph) check(cudaGraphDestroy(graph));
    return why->empty() ? new GraphTag{exec, scratch_moves} : nullptr;
}
bool graph_launch(Graph graph) {
    if (graph->scratch_moves != scratch_moves) return false;
    check(cudaGraphLaunch(graph->exec, queue_of(nullptr)->handle));
    return true;
}
void graph_destroy(Graph graph) {
    if (graph) check(cudaGraphExecDestroy(graph->exec));
    delete graph;
}

}  // namespace BACKEND
