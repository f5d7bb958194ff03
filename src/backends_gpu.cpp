// backends_gpu.cpp -- the backends of a build with nvcc. Without a driver device_count is 0, and the next one is taken.
#include "backends.h"

DECLARE_BACKEND(gpu)
DECLARE_BACKEND(cpu16)
DECLARE_BACKEND(cpu)

const Backend backends[] = {BACKEND_ROW(gpu, true, "bf16"), BACKEND_ROW(cpu16, false, "bf16"), BACKEND_ROW(cpu, false, "fp32"), {}};
