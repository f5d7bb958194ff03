// limit.h -- a limit of this process, such as RLIMIT_FSIZE, is n while this lives.
#pragma once
#include <sys/resource.h>
#include <csignal>

template <auto kResource> struct Limit {
    rlimit old;
    explicit Limit(rlim_t n) {
        std::signal(SIGXFSZ, SIG_IGN);
        getrlimit(kResource, &old);
        const rlimit now{n, old.rlim_max};
        setrlimit(kResource, &now);
    }
    ~Limit() { setrlimit(kResource, &old); }
};
