// nccl.cpp -- finds NCCL at run time. LOCKSTEP_NCCL names the library where the loader does not find it.
#include "src/ddp/nccl.h"
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include "src/base/common.h"

const Nccl* nccl_load() {
    static Nccl nccl;
    static const char* const names[] = {"GetVersion", "GetUniqueId", "CommInitRank", "CommDestroy", "GroupStart",
        "GroupEnd", "Send", "Recv", "Reduce", "GetErrorString", "CommGetAsyncError"};
    void* functions[std::size(names)];
    static_assert(sizeof nccl == sizeof functions);
    const char* const file = std::getenv("LOCKSTEP_NCCL");
    void* const library = dlopen(file && *file ? file : "libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    for (size_t i = 0; i < std::size(names); i++) {
        functions[i] = library ? dlsym(library, format("nccl%s", names[i]).c_str()) : nullptr;
        if (!functions[i])
            die(kExitNoInput, "NCCL: %s; several GPUs need 2.7 or newer: install libnccl2, or name it with "
                "LOCKSTEP_NCCL=FILE", dlerror());
    }
    std::memcpy(&nccl, functions, sizeof nccl);
    return &nccl;
}
