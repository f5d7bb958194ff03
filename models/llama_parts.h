// llama_parts.h -- the Llama family's attention, for other models to use, too. Its functions are in llama.cpp.
#pragma once
#include "models/llama.h"
#include "models/llama_ops.h"
#include "models/model.h"

namespace BACKEND {

// Returns the RMSNorm with its arrays, weight and sizes for this pass.
inline LayerNorm norm_of(Model* m, const Pass& pass, const LayerNorm& arrays, const Weight& weight) {
    return {.N = pass.N(), .C = m->shape.C, .inp = arrays.inp, .out = arrays.out, .rstd = arrays.rstd,
            .weight = weight, .eps = norm_eps(m->shape)};
}

// The arrays of a block's attention, which forward writes and backward reads.
struct LlamaAttention {
    floatX *qkv;                // (N,heads,HS)
    floatX *raw;                // (N,NH+NK,HS)     q and k before their norm; Qwen3 only
    float *raw_rstd;            // (N,NH+NK)        HeadNorm::rstd
    floatX *att;                // (N,NH,HS)        output of attention
    float *lse;                 // (B,NH,T)         log-sum-exp of each row of attention scores
};

// What all blocks share. If a model needs another setting of attention, it belongs here: attention_of in llama.cpp
// passes it to forward, backward and cached attention.
struct LlamaShared {
    float scale = 0;            // of attention's scores; 0: 1 / sqrt(HS)
    float *rotary;              // (context,2,HS/2)    rotary_table
    // backward
    floatX *datt;               // (N,NH,HS)        gradient of att
    floatX *dqkv;               // (N,heads,HS)     gradient of qkv
    float *delta;               // (B,NH,T)         work space of attention_backward
    float *dnorms;              // work space of norm_heads_backward
};
void llama_place_shared(Model* m, Layout& place, LlamaShared* shared, LlamaKind kind);
// Calls keep(array, n) for each array in *a; n is its number of elements.
template <class Keep> void llama_place_attention(const Model* m, LlamaAttention* a, LlamaKind kind, Keep&& keep) {
    const LlamaSizes c(m->shape);
    const size_t N = size_t(m->B) * size_t(m->T), HS = size_t(c.HS), normed = size_t(c.NH + c.NK);
    keep(a->qkv, N * size_t(c.width));
    if (kind.norms) keep(a->raw, N * normed * HS);
    if (kind.norms) keep(a->raw_rstd, N * normed);
    keep(a->att, N * size_t(c.NH) * HS);
    keep(a->lse, N * size_t(c.NH));
}

// out = o(attention(rotate(qkv(inp))))    inp, out (N,C); l: the block's number, for the cache (L,2,NK,maxT,HS)
void llama_attention_forward(Model* m, const Pass& pass, int l, const LlamaShared& shared, const LlamaAttention& a,
                             const LlamaAttentionTensors<Weight>& w, floatX* out, const floatX* inp);
// Computes d, the gradients of the tensors, and dinp (N,C) from dout (N,C). inp: the same as in forward.
void llama_attention_backward(Model* m, const Pass& pass, const LlamaShared& shared, const LlamaAttention& a,
                              const LlamaAttentionTensors<Weight>& w, const LlamaAttentionTensors<float*>& d,
                              floatX* dinp, const floatX* dout, const floatX* inp);
size_t llama_cache_bytes(const Shape& shape);

}  // namespace BACKEND
