// nccl.h -- the few functions of NCCL the reduction uses, loaded at run time (libnccl.so.2), so that a build and a start need neither
// header nor library. Signatures: NCCL 2.x, nccl.h. tests/emu has a stand-in that sends between emulated GPUs.
#pragma once
#include <cstddef>
#include <string>

struct NcclId { char bytes[128]; };
using NcclComm = struct NcclCommTag*;
enum NcclType { kNcclBytes = 1, kNcclFloat = 7 };       // ncclUint8, ncclFloat32
constexpr int kNcclSum = 0, kNcclInProgress = 7;

struct Nccl {
    int (*get_version)(int* version);                   // 22803 = 2.28.3
    int (*get_unique_id)(NcclId* id);
    int (*comm_init_rank)(NcclComm* comm, int size, NcclId id, int rank);
    int (*comm_destroy)(NcclComm comm);
    int (*group_start)();
    int (*group_end)();
    int (*send)(const void* data, size_t count, int type, int peer, NcclComm comm, void* cuda_stream);
    int (*recv)(void* data, size_t count, int type, int peer, NcclComm comm, void* cuda_stream);
    int (*reduce)(const void* from, void* to, size_t count, int type, int op, int root, NcclComm comm, void* cuda_stream);
    const char* (*error_string)(int result);
    int (*get_async_error)(NcclComm comm, int* error);  // may be null
};

// Null if it is not there; `why` then says what was tried.
const Nccl* nccl_load(std::string* why);
// An Error (69) unless result is 0: NCCL fails where a peer or a link does.
void nccl_check(const Nccl* nccl, int result, const char* what);
std::string nccl_version(const Nccl* nccl);             // "NCCL 2.28.3"
