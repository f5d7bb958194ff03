// gpu_health.h -- what a GPU says of itself while it works (NVML, loaded at run time), and which CPU cores are near it.
#pragma once
#include <string>

// Of one GPU; 0 and "" where NVML is missing or does not know. Sent between ranks as it lies.
struct GpuHealth {
    int sm_mhz = 0, sm_mhz_max = 0;     // clock of the multiprocessors, now and at most
    double watts = 0;
    char throttle[96] = "";             // why it is slower than it could be: "power cap, hot"
};
// pci: "0000:1b:00.0". Asks at most once a second: between, the last answer is given again.
GpuHealth gpu_health(const std::string& pci);

// Moves this process to the cores of the GPU's NUMA node, unless a launcher has bound it to less than all cores already. Returns those
// cores ("0-23,96-119"), or "" where nothing was done.
std::string bind_near_gpu(const std::string& pci);
