// backends_cpu.cpp -- the backends of a build without nvcc.
#include "backends.h"

#define DECLARE(ns) namespace ns { int device_count(); int train(Options, Comm*); int sample(Options, Comm*); int eval(Options, Comm*); }
DECLARE(cpu)

const Backend backends[] = {
    {"cpu", false, "fp32", cpu::device_count, cpu::train, cpu::sample, cpu::eval},
    {},
};
