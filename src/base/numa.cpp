// numa.cpp -- see numa.h.
#include "src/base/numa.h"
#include <cctype>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/cpus.h"
#include "src/base/file.h"

void stay_near_device(const std::string& address) {
    std::string folder = "/sys/bus/pci/devices/";
    for (const char c : address) folder += char(std::tolower(static_cast<unsigned char>(c)));
    const std::string list = read_kernel_file(folder + "/local_cpulist");       // "0-23,96-119"
    cpu_set_t now = affinity_of(0), near;
    CPU_ZERO(&near);
    for (std::string_view rest = list; !rest.empty();) {
        const std::string part(next_word(&rest, ','));
        int first = 0, last = 0;
        const int numbers = std::sscanf(part.c_str(), "%d-%d", &first, &last);
        if (numbers == 1) last = first;
        for (int c = first; numbers > 0 && c <= last && c < CPU_SETSIZE; c++) CPU_SET(c, &near);
    }
    CPU_AND(&near, &near, &now);
    const bool tied = CPU_COUNT(&now) < sysconf(_SC_NPROCESSORS_ONLN);
    if (!tied && CPU_COUNT(&near) > 0) sched_setaffinity(0, sizeof near, &near);
}
