// cublaslt.h -- what NVIDIA's own libraries reach, for comparison: cuBLASLt's matrix product and the driver's copy.
// Both are loaded at run time, so that a build needs neither; where they are missing the tables say so. Only bench/
// uses them.
#pragma once
#include <cstddef>
#include <string>

// A product as kernels.h has them, all matrices row-major, bf16 with fp32 sums:
//   forward    out (N,OC) = inp (N,C) weight (OC,C)^T            a = inp, b = weight
//   input      out (N,C) = dout (N,OC) weight (OC,C)             a = dout, b = weight
//   params     out (OC,C) fp32 (+)= dout (N,OC)^T inp (N,C)      a = dout, b = inp
enum class LtProduct { forward, input, params };
enum class LtEpilogue {
    none,
    bias,
    gelu,
    dgelu
};  // gelu: with bias, `aux` gets what is before it; dgelu: `aux` gives it

struct LtMatmul;  // one shape, with the first algorithm of the library's heuristic

// Null where the library or an algorithm is missing; `why` then says what. workspace: device memory that stays.
LtMatmul* lt_create(LtProduct product, LtEpilogue epilogue, bool accumulate, size_t N, size_t C, size_t OC,
                    void* workspace, size_t workspace_bytes, std::string* why);
// Puts the product on a cudaStream_t. bias (OC) and aux (like out) where the epilogue wants them. An Error if the
// library refuses.
void lt_run(LtMatmul* matmul, void* out, const void* a, const void* b, const void* bias, void* aux, void* cuda_stream);
void lt_destroy(LtMatmul* matmul);
std::string lt_version();  // "cuBLASLt 13.1.0", or why there is none

// cuMemcpyDtoDAsync. False where there is no driver.
bool driver_copy(void* to, const void* from, size_t bytes, void* cuda_stream);
void driver_profile(bool on);  // cuProfilerStart, cuProfilerStop: ncu --profile-from-start off looks between them
std::string driver_version();  // newest CUDA the driver knows: "13.0"; "none"
