// hot.h -- the loops that are compiled once per instruction set, as a table of functions. ops.cpp cuts an op into tasks and
// calls these; dispatch.cpp picks the table. Arguments travel in plain structs; workspace comes from the caller.
#pragma once
#include "kernels.h"

namespace BACKEND {

// A dropout site with its key unpacked; keep = 1 / (1 - rate), and 1 with rate 0.
struct Mask { float rate, keep; uint32_t purpose, step, leaf, seed_low, seed_high; };

// out[i][j] = epilogue( sum_k a[i][k] b[k][j] ), i < M, j < N, k < K.
// a_rows: a is stored (M,K), row i at a + i * lda; else (K,M), row k at a + k * lda. b_rows: b is stored (N,K); else (K,N).
enum class Epilogue { kStore, kGelu, kGeluBackward, kGradient, kGradientAdd };
struct Matmul {
    const floatX *a, *b;
    size_t lda, ldb;
    bool a_rows, b_rows;
    int M, N, K;
    Epilogue epilogue;
    floatX* out;            // (M,N) kStore: + bias; kGelu: gelu(pre); kGeluBackward: * gelu'(pre)
    floatX* pre;            // (M,N) kGelu: written, sum + bias; kGeluBackward: read
    const floatX* bias;     // (N) or null
    float* gradient;        // (M,N) instead of out: kGradient "=", kGradientAdd "+="
};

// A part of a matmul: rows row .. and columns col .. of the output, over products k .. k + deep - 1, with its operands packed.
struct Packing {
    int row, rows, col, cols, k, deep;
    void *a, *b;            // b null: each task packs its own columns
    float* sums;            // (rows, cols) in whole tiles, of the parts with smaller k
};

// One head. Rows t of q, k, v, out lie `stride` elements apart. Queries are positions first .. first + queries - 1 of the keys.
struct AttentionForward {
    const floatX *q, *k, *v;
    size_t q_stride, kv_stride, out_stride;
    floatX* out;
    float* lse;             // or null
    int queries, first, HS;
    Mask mask;
    uint64_t mask_base;     // index of element (0,0); row t is T further
    int T;
};
struct AttentionBackward {
    const floatX *q, *k, *v, *out, *dout;
    floatX *dq, *dk, *dv;
    size_t qkv_stride, out_stride;
    const float* lse;       // (T)
    float* delta;           // (T)
    int T, HS;
    Mask mask;
    uint64_t mask_base;
};

struct LayerNorm {          // branch: null for the plain form, where inp is what is normalised
    floatX *residual, *out;
    float *mean, *rstd;
    const floatX *inp, *branch, *weight, *bias;
    int C;
    Mask mask;
};
struct LayerNormBackward {
    floatX* dinp;
    const floatX *dout, *inp, *weight;
    const float *mean, *rstd;
    int C;
    bool first;
};

// hash_floats' mix. Static: each file has its own.
static inline uint64_t hash_mix(uint64_t z) {
    z ^= z >> 30; z *= 0xbf58476d1ce4e5b9u;
    z ^= z >> 27; z *= 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Of a unit, around its update: the state's bits summed, and whether param was master rounded.
struct UnitSums { uint32_t before, after; bool rounded; };

struct HotLoops {
    const char* name;
    int rows, cols;         // of a micro tile: matmul tasks are cut at multiples of these
    int task_rows, task_cols;                                                   // of a matmul's task, at most

    size_t (*packed_size)(int lanes, int deep);                                 // bytes; lanes: rows of a or columns of b, in whole tiles
    int (*depth)(int K);                                                        // k is cut at multiples of it
    void (*pack_a)(const Matmul&, const Packing&, int row, int rows);           // row, col count from those of the Packing
    void (*pack_b)(const Matmul&, const Packing&, int col, int cols);
    void (*matmul)(const Matmul&, const Packing&, int row, int rows, int col, int cols);
    void (*matvec)(const Matmul&, int col, int cols);                           // a_rows, b_rows, few rows: no packing
    void (*column_sums)(float* sums, const floatX* x, int N, int C, int col, int cols, bool accumulate);

    size_t (*attention_forward_buffer)(int keys, int HS);
    void (*attention_forward)(const AttentionForward&, float* buffer);
    size_t (*attention_backward_buffer)(int T, int HS);
    void (*attention_backward)(const AttentionBackward&, float* buffer);

    void (*layernorm)(const LayerNorm&, int row, int rows);
    // dweight, dbias: "=" the sums of these rows alone.
    void (*layernorm_backward)(const LayerNormBackward&, float* dweight, float* dbias, int row, int rows);
    void (*add_partials)(float* sum, const float* partials, int count, size_t stride, int n, bool accumulate);
    void (*classifier)(float* losses, floatX* logits, const int* targets, int V, int Vp, bool backward, int row, int rows);
    void (*embedding)(floatX* out, const floatX* token, const floatX* position, int C, const Mask&, uint64_t index);
    void (*embedding_backward)(float* dwte, const floatX* dout, const int* tokens, int N, int C, int col, int cols, const Mask&);
    void (*position_backward)(float* dwpe_t, const floatX* dout_t, int B, size_t stride, int C, const Mask&, uint64_t index,
                              bool accumulate);
    void (*gelu)(floatX* out, const floatX* pre, size_t n);
    void (*dropout)(floatX* out, const floatX* inp, size_t n, const Mask&, uint64_t index);

    void (*fold)(float* out, const float* const* terms, int count, Tree tree, size_t begin, size_t n);
    float (*norm)(const float* grad);                                           // of one unit
    UnitSums (*adamw)(floatX* param, float* master, float* m, float* v, const float* grad, float decay, const AdamW&, const StepState&);
    uint64_t (*hash)(const float* x, size_t n);                                 // of one unit
    void (*store_floats)(floatX* out, const float* inp, size_t n);
    void (*load_floats)(float* out, const floatX* inp, size_t n);
};

// The best table that this CPU can run, or the one that LOCKSTEP_ISA names.
const HotLoops& hot();

}  // namespace BACKEND
