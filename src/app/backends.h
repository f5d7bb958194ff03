// backends.h -- the backends that a program contains. Only main files include this: they are compiled once per program,
// with -DGPU=gpu, -DSPEC=ref or neither.
#pragma once
#include "src/app/program.h"

// BACKENDS(X) is X(namespace, whether it runs on a GPU, storage type) for each backend, best first.
#ifdef GPU
#define GPU_BACKEND(X) X(GPU, true, "bf16")
#else
#define GPU_BACKEND(X)
#endif
#ifdef SPEC
#define SPEC_BACKEND(X) X(SPEC, false, "fp32")          // before cpu, so that --dtype fp32 chooses it
#else
#define SPEC_BACKEND(X)
#endif
#define BACKENDS(X) GPU_BACKEND(X) SPEC_BACKEND(X) X(cpu16, false, "bf16") X(cpu, false, "fp32")

#define DECLARE(ns, gpu, dtype) \
    namespace ns { \
    int device_count(); \
    bool storage_is_fast(); \
    }
BACKENDS(DECLARE)
#undef DECLARE

#define ROW(ns, gpu, dtype) {gpu, dtype, ns::device_count, ns::storage_is_fast},
static const Backend backends[] = {BACKENDS(ROW)};
#undef ROW
