// backends_cpu.cpp -- the backends of a build without nvcc.
#include "backends.h"

DECLARE_BACKEND(cpu16)
DECLARE_BACKEND(cpu)

const Backend backends[] = {BACKEND_ROW(cpu16, false, "bf16"), BACKEND_ROW(cpu, false, "fp32"), {}};
