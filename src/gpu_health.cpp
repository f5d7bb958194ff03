// gpu_health.cpp -- NVML and the system's files. Sources: NVML API reference (nvml.h); Documentation/ABI/testing/sysfs-bus-pci of Linux.
#include "gpu_health.h"
#include <cctype>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <sched.h>
#include <unistd.h>
#include "common.h"

namespace {

struct Nvml {
    int (*init)();
    int (*by_pci)(const char* pci, void** device);
    int (*clock)(void* device, int which, unsigned* mhz);
    int (*max_clock)(void* device, int which, unsigned* mhz);
    int (*power)(void* device, unsigned* milliwatts);
    int (*reasons)(void* device, unsigned long long* bits);
};
constexpr int kSm = 1;                  // NVML_CLOCK_SM

const Nvml* nvml() {
    static const Nvml* const loaded = []() -> const Nvml* {
        static Nvml n = {};
        void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (!library) return nullptr;
        const struct { const char* name; void* to; } functions[] = {
            {"nvmlInit_v2", &n.init}, {"nvmlDeviceGetHandleByPciBusId_v2", &n.by_pci}, {"nvmlDeviceGetClockInfo", &n.clock},
            {"nvmlDeviceGetMaxClockInfo", &n.max_clock}, {"nvmlDeviceGetPowerUsage", &n.power}, {"nvmlDeviceGetCurrentClocksThrottleReasons", &n.reasons}};
        for (const auto& f : functions)
            if (!(*static_cast<void**>(f.to) = dlsym(library, f.name))) return nullptr;
        return n.init() == 0 ? &n : nullptr;
    }();
    return loaded;
}

// nvmlClocksThrottleReason*; idle and applications' own settings hold nothing back.
const struct { unsigned bit; const char* text; } kReasons[] = {
    {0x04, "power cap"}, {0x08, "slowdown by hardware"}, {0x20, "hot"}, {0x40, "hot: slowdown by hardware"}, {0x80, "power brake"}, {0x100, "display clock"}};

}  // namespace

GpuHealth gpu_health(const std::string& pci) {
    static GpuHealth last;
    static double asked = -1;
    if (pci.empty() || !nvml() || (asked >= 0 && now_seconds() - asked < 1)) return last;
    asked = now_seconds();
    void* device;
    if (nvml()->by_pci(pci.c_str(), &device) != 0) return last;
    unsigned now = 0, most = 0, milliwatts = 0;
    unsigned long long reasons = 0;
    last = {};
    if (nvml()->clock(device, kSm, &now) == 0 && nvml()->max_clock(device, kSm, &most) == 0) { last.sm_mhz = int(now); last.sm_mhz_max = int(most); }
    if (nvml()->power(device, &milliwatts) == 0) last.watts = milliwatts * 1e-3;
    if (nvml()->reasons(device, &reasons) != 0) reasons = 0;
    std::string text;
    for (const auto& r : kReasons)
        if (reasons & r.bit) text += (text.empty() ? "" : ", ") + std::string(r.text);
    std::snprintf(last.throttle, sizeof last.throttle, "%s", text.c_str());
    return last;
}

// "0-3,8,10-11": false if it is something else.
static bool parse_cpu_list(const std::string& list, cpu_set_t* set) {
    CPU_ZERO(set);
    const char* at = list.c_str();
    while (std::isdigit(static_cast<unsigned char>(*at))) {
        char* end;
        const long first = std::strtol(at, &end, 10), last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
        if (first > last || last >= CPU_SETSIZE) return false;
        for (long cpu = first; cpu <= last; cpu++) CPU_SET(size_t(cpu), set);
        at = *end == ',' ? end + 1 : end;
    }
    return *at == '\0' || *at == '\n' ? CPU_COUNT(set) > 0 : false;
}

std::string bind_near_gpu(const std::string& pci) {
    if (pci.empty()) return "";
    std::string address = pci, list;
    for (char& c : address) c = char(std::tolower(static_cast<unsigned char>(c)));
    std::ifstream file("/sys/bus/pci/devices/" + address + "/local_cpulist");
    cpu_set_t now, near, both;
    if (!std::getline(file, list) || !parse_cpu_list(list, &near) || sched_getaffinity(0, sizeof now, &now) != 0) return "";
    if (CPU_COUNT(&now) < sysconf(_SC_NPROCESSORS_ONLN)) return "";    // somebody has chosen already
    CPU_AND(&both, &now, &near);
    if (CPU_COUNT(&both) == 0 || CPU_EQUAL(&both, &now) || sched_setaffinity(0, sizeof both, &both) != 0) return "";
    return list;
}
