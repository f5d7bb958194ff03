// nccl.h -- the functions of NCCL that the transport uses, loaded at run time (libnccl.so.2): a build needs no header
// of it. Signatures: NCCL 2.7 and later, nccl.h. tests/gpu/nccl.cpp is a stand-in that sends between GPUs in software.
#pragma once
#include <cstddef>

struct NcclId { char bytes[128]; };
using NcclComm = struct NcclCommTag*;
enum NcclType { kNcclBytes = 1, kNcclFloat = 7 };       // ncclUint8, ncclFloat32
constexpr int kNcclSum = 0, kNcclInProgress = 7;

struct Nccl {                                           // in the order of the names in nccl.cpp
    int (*get_version)(int* version);                   // 22803 = 2.28.3
    int (*get_unique_id)(NcclId* id);
    int (*comm_init_rank)(NcclComm* comm, int size, NcclId id, int rank);
    int (*comm_destroy)(NcclComm comm);
    int (*group_start)();
    int (*group_end)();
    int (*send)(const void* data, size_t count, int type, int peer, NcclComm comm, void* cuda_stream);
    int (*recv)(void* data, size_t count, int type, int peer, NcclComm comm, void* cuda_stream);
    int (*reduce)(const void* from, void* to, size_t count, int type, int op, int root, NcclComm comm,
                  void* cuda_stream);
    const char* (*error_string)(int result);
    int (*get_async_error)(NcclComm comm, int* error);
};

const Nccl* nccl_load();        // kExitNoInput if it is not there
