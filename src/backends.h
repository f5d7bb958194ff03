// backends.h -- the only indirection between main and a backend: six pointers.
#pragma once
#include "comm.h"
#include "options.h"
#include "run.h"

struct Backend {
    const char* name;                                   // namespace
    bool gpu;
    const char* dtype;                                  // storage type of weights and activations
    int (*devices)();                                   // that answer
    bool (*natural)();                                  // taken where --dtype is not given: the device is fast with this type
    int (*train)(Options options, Comm* comm, Run run); // each returns an exit code
    int (*sample)(Options options, Comm* comm);
    int (*eval)(Options options, Comm* comm);
    int (*selftest)(Options options, Comm* comm);
};
extern const Backend backends[];                        // what this build contains, best first; ends with a null name

#define DECLARE_BACKEND(ns) namespace ns { \
    int device_count(); bool storage_is_fast(); int train(Options, Comm*, Run); int sample(Options, Comm*); int eval(Options, Comm*); int selftest(Options, Comm*); }
#define BACKEND_ROW(ns, gpu, dtype) {#ns, gpu, dtype, ns::device_count, ns::storage_is_fast, ns::train, ns::sample, ns::eval, ns::selftest}
