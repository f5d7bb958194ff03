// backends.h -- the only indirection between main and a backend: five calls per process.
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
