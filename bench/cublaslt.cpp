// cublaslt.cpp -- cuBLASLt and one function of the driver, with the few declarations they need. Sources: cuBLAS
// documentation and cublasLt.h of CUDA 12 and 13, which agree in all that is here; cuda.h.
//
// The library counts in columns: a row-major (rows, columns) matrix is its (columns, rows) one. So every product is
// written with its factors exchanged, out^T = b^T a^T.
#include "bench/cublaslt.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "src/base/common.h"

namespace {

enum { kBf16 = 14, kFloat = 0, kComputeFloat = 68 };  // CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F
enum Attribute {
    kTransA = 3,
    kTransB = 4,
    kEpilogue = 7,
    kBias = 8,
    kAux = 11,
    kAuxLd = 12
};                                                                 // cublasLtMatmulDescAttributes_t
constexpr int kMaxWorkspace = 1;                                   // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr uint32_t kEpilogues[] = {1, 4, 32 | 128 | 4, 64 | 128};  // DEFAULT, BIAS, GELU_AUX_BIAS, DGELU

struct Algorithm {
    uint64_t data[8];
};
struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

struct Library {
    size_t (*version)();
    int (*create)(void** handle);
    int (*desc_create)(void** desc, int compute, int scale);
    int (*desc_set)(void* desc, int attribute, const void* value, size_t bytes);
    int (*desc_destroy)(void* desc);
    int (*layout_create)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
    int (*layout_destroy)(void* layout);
    int (*pref_create)(void** pref);
    int (*pref_set)(void* pref, int attribute, const void* value, size_t bytes);
    int (*pref_destroy)(void* pref);
    int (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* pref, int wanted,
                     Heuristic* found, int* count);
    int (*matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                  void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                  const Algorithm* algorithm, void* workspace, size_t bytes, void* stream);
};

// LOCKSTEP_CUBLASLT names the library where the loader does not find it.
const Library* library(std::string* why) {
    static Library lib = {};
    static std::string missing;
    static const bool loaded = [] {
        const char* const named = std::getenv("LOCKSTEP_CUBLASLT");
        void* so = nullptr;
        for (const char* name : {named ? named : "", "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"})
            if (*name && !so) so = dlopen(name, RTLD_NOW);
        if (!so) {
            missing = dlerror();
            return false;
        }
        const struct {
            const char* name;
            void* to;
        } functions[] = {{"cublasLtGetVersion", &lib.version},
                         {"cublasLtCreate", &lib.create},
                         {"cublasLtMatmulDescCreate", &lib.desc_create},
                         {"cublasLtMatmulDescSetAttribute", &lib.desc_set},
                         {"cublasLtMatmulDescDestroy", &lib.desc_destroy},
                         {"cublasLtMatrixLayoutCreate", &lib.layout_create},
                         {"cublasLtMatrixLayoutDestroy", &lib.layout_destroy},
                         {"cublasLtMatmulPreferenceCreate", &lib.pref_create},
                         {"cublasLtMatmulPreferenceSetAttribute", &lib.pref_set},
                         {"cublasLtMatmulPreferenceDestroy", &lib.pref_destroy},
                         {"cublasLtMatmulAlgoGetHeuristic", &lib.heuristic},
                         {"cublasLtMatmul", &lib.matmul}};
        for (const auto& f : functions)
            if (!(*static_cast<void**>(f.to) = dlsym(so, f.name))) {
                missing = std::string(f.name) + " is not in the library";
                return false;
            }
        return true;
    }();
    *why = missing;
    return loaded ? &lib : nullptr;
}

void check(int status, const char* what) {
    if (status != 0) die(kExitOther, "cuBLASLt: %s: status %d", what, status);
}

void* handle() {
    static void* const one = [] {
        std::string why;
        void* h = nullptr;
        check(library(&why)->create(&h), "create");
        return h;
    }();
    return one;
}

}  // namespace

struct LtMatmul {
    const Library* lib;
    void *desc, *a, *b, *d;  // the library's a is our b, its b our a
    Algorithm algorithm;
    float beta;
    LtEpilogue epilogue;
    void* workspace;
    size_t workspace_bytes;
};

LtMatmul* lt_create(LtProduct product, LtEpilogue epilogue, bool accumulate, size_t N, size_t C, size_t OC,
                    void* workspace, size_t workspace_bytes, std::string* why) {
    const Library* const lib = library(why);
    if (!lib) return nullptr;
    LtMatmul* const x = new LtMatmul{
        lib, nullptr, nullptr, nullptr, nullptr, {}, accumulate ? 1.0f : 0.0f, epilogue, workspace, workspace_bytes};
    const bool params = product == LtProduct::params;
    const int32_t trans_a = product == LtProduct::forward, trans_b = params;
    check(lib->desc_create(&x->desc, kComputeFloat, kFloat), "description");
    const auto set = [&](Attribute attribute, const auto& value) {
        check(lib->desc_set(x->desc, attribute, &value, sizeof value), "attribute");
    };
    set(kTransA, trans_a);
    set(kTransB, trans_b);
    set(kEpilogue, kEpilogues[size_t(epilogue)]);
    const size_t out_columns = product == LtProduct::forward ? OC : C, out_rows = params ? OC : N;
    if (epilogue == LtEpilogue::gelu || epilogue == LtEpilogue::dgelu) {
        set(kAuxLd, int64_t(out_columns));
        set(kAux, workspace);  // the real one comes with each call; the heuristic wants one, aligned
    }
    if (epilogue == LtEpilogue::bias || epilogue == LtEpilogue::gelu) set(kBias, workspace);
    const size_t a_rows = params ? N : OC,
                 b_columns = product == LtProduct::forward ? C : OC;  // weight or inp; inp or dout
    check(lib->layout_create(&x->a, kBf16, C, a_rows, int64_t(C)), "layout");
    check(lib->layout_create(&x->b, kBf16, b_columns, N, int64_t(b_columns)), "layout");
    check(lib->layout_create(&x->d, params ? kFloat : kBf16, out_columns, out_rows, int64_t(out_columns)), "layout");
    void* pref;
    check(lib->pref_create(&pref), "preference");
    check(lib->pref_set(pref, kMaxWorkspace, &workspace_bytes, sizeof workspace_bytes), "workspace");
    Heuristic found = {};
    int count = 0;
    const int status = lib->heuristic(handle(), x->desc, x->a, x->b, x->d, x->d, pref, 1, &found, &count);
    lib->pref_destroy(pref);
    if (status == 0 && count > 0 && found.state == 0) {
        x->algorithm = found.algorithm;
        return x;
    }
    *why = format("no algorithm, status %d", status);
    lt_destroy(x);
    return nullptr;
}

void lt_run(LtMatmul* x, void* out, const void* a, const void* b, const void* bias, void* aux, void* cuda_stream) {
    const float one = 1;
    if (x->epilogue == LtEpilogue::bias || x->epilogue == LtEpilogue::gelu)
        check(x->lib->desc_set(x->desc, kBias, &bias, sizeof bias), "bias");
    if (x->epilogue == LtEpilogue::gelu || x->epilogue == LtEpilogue::dgelu)
        check(x->lib->desc_set(x->desc, kAux, &aux, sizeof aux), "aux");
    check(x->lib->matmul(handle(), x->desc, &one, b, x->a, a, x->b, &x->beta, out, x->d, out, x->d, &x->algorithm,
                         x->workspace, x->workspace_bytes, cuda_stream),
          "matmul");
}

void lt_destroy(LtMatmul* x) {
    if (!x) return;
    for (void* layout : {x->a, x->b, x->d}) x->lib->layout_destroy(layout);
    x->lib->desc_destroy(x->desc);
    delete x;
}

std::string lt_version() {
    std::string why;
    const Library* const lib = library(&why);
    if (!lib) return "no cuBLASLt (" + why + ")";
    const size_t v = lib->version();  // 130100
    return format("cuBLASLt %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

// --------------------------------------------------------------------------------------------------------- the driver

static void* driver(const char* function) {
    static void* const so = dlopen("libcuda.so.1", RTLD_NOW);
    return so ? dlsym(so, function) : nullptr;
}

bool driver_copy(void* to, const void* from, size_t bytes, void* cuda_stream) {
    using Copy = int (*)(unsigned long long, unsigned long long, size_t, void*);
    static const Copy copy = reinterpret_cast<Copy>(driver("cuMemcpyDtoDAsync_v2"));
    return copy && copy(reinterpret_cast<unsigned long long>(to), reinterpret_cast<unsigned long long>(from), bytes,
                        cuda_stream) == 0;
}

void driver_profile(bool on) {
    if (void* const call = driver(on ? "cuProfilerStart" : "cuProfilerStop")) reinterpret_cast<int (*)()>(call)();
}

std::string driver_version() {
    using Get = int (*)(int*);
    const Get get = reinterpret_cast<Get>(driver("cuDriverGetVersion"));
    int v = 0;
    return get && get(&v) == 0 ? format("%d.%d", v / 1000, v % 1000 / 10) : "none";
}
