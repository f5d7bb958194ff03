// backends.cpp -- the backends of one program, best first. Compiled once per program: -DGPU=gpu, -DGPU=emu, or neither.
#include "src/app/backends.h"

#define DECLARE(ns)                   \
    namespace ns {                    \
    int device_count();               \
    bool storage_is_fast();           \
    int train(Options, Comm*, Run);   \
    int command(Options, Comm*);      \
    }
#define ROW(ns, gpu, dtype) \
    {gpu, dtype, ns::device_count, ns::storage_is_fast, ns::train, ns::command}

#ifdef GPU
DECLARE(GPU)
#endif
DECLARE(cpu16)
DECLARE(cpu)

const Backend backends[] = {
#ifdef GPU
    ROW(GPU, true, "bf16"),
#endif
    ROW(cpu16, false, "bf16"), ROW(cpu, false, "fp32"), {}};
