// numa.h -- a process that feeds a GPU runs beside it.
#pragma once
#include <string>

// Ties this thread and those it starts to the CPUs of a PCI device's NUMA node ("0000:1b:00.0"), unless a launcher has
// tied it to some already, or the machine does not say which they are.
void stay_near_device(const std::string& address);
