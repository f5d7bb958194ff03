// nccl.cpp -- finds NCCL at run time. LOCKSTEP_NCCL names the library where the loader does not find it.
#include "nccl.h"
#include <cstdlib>
#include <dlfcn.h>
#include "common.h"

const Nccl* nccl_load(std::string* why) {
    static Nccl nccl = {};
    const char* const named = std::getenv("LOCKSTEP_NCCL");
    void* const library = dlopen(named && *named ? named : "libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        *why = dlerror();
        return nullptr;
    }
    const struct { const char* name; void* to; } functions[] = {
        {"ncclGetVersion", &nccl.get_version}, {"ncclGetUniqueId", &nccl.get_unique_id}, {"ncclCommInitRank", &nccl.comm_init_rank},
        {"ncclCommDestroy", &nccl.comm_destroy}, {"ncclGroupStart", &nccl.group_start}, {"ncclGroupEnd", &nccl.group_end},
        {"ncclSend", &nccl.send}, {"ncclRecv", &nccl.recv}, {"ncclReduce", &nccl.reduce},
        {"ncclGetErrorString", &nccl.error_string}};
    for (const auto& f : functions) {
        *static_cast<void**>(f.to) = dlsym(library, f.name);
        if (*static_cast<void**>(f.to)) continue;
        *why = std::string(f.name) + " is not in the library; 2.7 or newer is needed";
        return nullptr;
    }
    *reinterpret_cast<void**>(&nccl.get_async_error) = dlsym(library, "ncclCommGetAsyncError");
    return &nccl;
}

void nccl_check(const Nccl* nccl, int result, const char* what) {
    if (result != 0) die(kExitPeer, "NCCL: %s: %s; NCCL_DEBUG=INFO says more", what, nccl->error_string(result));
}

std::string nccl_version(const Nccl* nccl) {
    int v = 0;
    nccl_check(nccl, nccl->get_version(&v), "version");
    return format("NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}
