// backends.h -- what main calls of a backend: a table of functions.
#pragma once
#include "src/app/options.h"
#include "src/app/run.h"
#include "src/comm/comm.h"

struct Backend {
    bool gpu;
    const char* dtype;                                  // storage type of weights and activations
    int (*devices)();                                   // how many answer
    bool (*natural)();                                  // --dtype auto takes it: the device is fast with this type
    int (*train)(Options options, Comm* comm, Run run); // each returns an exit code
    int (*command)(Options options, Comm* comm);        // sample, chat or eval
};
extern const Backend backends[];                        // what this build contains, best first; ends with an empty one
