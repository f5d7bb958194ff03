// mixtral.cpp -- the model of mixtral.h. Rows are sorted by expert, and each expert computes its own rows alone; one
// without rows writes zeros as its gradients. Choices are made on the host, by plain loops.
#include "models/mixtral.h"
#include <algorithm>
#include <cmath>
#include "models/llama_parts.h"

namespace BACKEND {
namespace {

// The arrays that a block's forward fills and its backward reads. A choice is one of the N K pairs of a row and an
// expert; choices are sorted by expert, and then by row.
struct Block {
    LayerNorm ln1;
    LlamaAttention att;
    floatX *qkv;                        // (N,width)        before it is clipped
    LayerNorm ln2;
    floatX *router;                     // (N,Ep)
    floatX *x, *gateup, *act, *y;       // (N K,C) (N K,2F) (N K,F) (N K,C)  of each choice
    std::vector<double> p;              // (N,E)
    std::vector<int> row;               // (N K)    of each choice
    std::vector<double> gate;           // (N K)    of each choice
    std::vector<int> begin;             // (E + 1)  where each expert's choices begin
};

struct Mixtral {
    std::vector<Block> block;           // L
    LayerNorm norm;                     // the final norm; its output is the hidden state
    LlamaShared shared;
    floatX *branch;                     // (N,C)    a branch's output, before it is added
    std::vector<double> share;          // (E)      f of mixtral.h
    // backward
    floatX *dresidual, *dnorm;          // (N,C)    dnorm: of the second norm's output, without the router's part
    floatX *drouter;                    // (N,Ep)
    floatX *dx, *dact;                  // (N K,C) (N K,F)
};

int E(const Model* m) { return m->shape.extra[7]; }
int K(const Model* m) { return m->shape.extra[8]; }
int Ep(const Model* m) { return round_up(E(m), 8); }

std::vector<float> floats(const floatX* at, size_t n) {
    std::vector<float> x(n);
    load_floats(x.data(), at, n);
    return x;
}

int block_begin(Model* m, int l) { return untied_head(m->shape) + 1 + l * (5 + 2 * E(m)); }
int block_end(Model* m, int l) { return l < m->shape.L ? block_begin(m, l + 1) : int(m->arena.tensors.size()); }
template <class F> MixtralBlock<F> block_of(Model* m, const std::vector<F>& all, int l) {
    const F* const t = &all[size_t(block_begin(m, l))];
    return {t[0], {t[1], F{}, F{}, F{}, t[2]}, t[3], t[4], t + 5};
}
template <class F> LlamaEnds<F> ends_of(Model* m, const std::vector<F>& all) {
    return {all[size_t(untied_head(m->shape))], all.back()};
}

void plan(Model* m, Layout& place) {
    Mixtral& a = own<Mixtral>(m);
    const size_t N = size_t(m->B) * size_t(m->T), C = size_t(m->shape.C), F = size_t(LlamaSizes(m->shape).F);
    const size_t NK = N * size_t(K(m)), rows = N * size_t(Ep(m));
    a.block.resize(size_t(m->shape.L));
    const auto place_norm = [&](LayerNorm* norm) {
        place(norm->out, N * C);
        place(norm->rstd, N);
    };
    for (Block& b : a.block) {
        place_residual(m, place, b.ln1.inp, N * C);
        place_norm(&b.ln1);
        llama_place_attention(m, &b.att, kMixtral, place);
        place(b.qkv, N * size_t(LlamaSizes(m->shape).width));
        place(b.ln2.inp, N * C);
        place_norm(&b.ln2);
        place(b.router, rows);
        place(b.x, NK * C);
        place(b.gateup, NK * 2 * F);
        place(b.act, NK * F);
        place(b.y, NK * C);
    }
    place_residual(m, place, a.norm.inp, N * C);
    place_norm(&a.norm);
    place(a.branch, N * C);
    llama_place_shared(m, place, &a.shared, kMixtral);
    if (!m->training) return;
    place(a.dresidual, N * C);
    place(a.dnorm, N * C);
    place(a.drouter, rows);
    place(a.dx, NK * C);
    place(a.dact, NK * F);
}

// ------------------------------------------------------------------------------------------------------------- forward

// qkv = its elements, limited to -c .. c. before: what they were.
void clip(Model* m, const Pass& pass, floatX* qkv, floatX* before) {
    const float c = clip_qkv(m->shape);
    const size_t n = size_t(pass.N()) * size_t(LlamaSizes(m->shape).width);
    std::vector<float> x = floats(qkv, n);
    store_floats(before, x.data(), n);
    for (float& value : x)
        if (c > 0) value = std::clamp(value, -c, c);
    store_floats(qkv, x.data(), n);
}
void clip_backward(Model* m, const Pass& pass, floatX* dqkv, const floatX* before) {
    const float c = clip_qkv(m->shape);
    const size_t n = size_t(pass.N()) * size_t(LlamaSizes(m->shape).width);
    const std::vector<float> x = floats(before, n);
    std::vector<float> d = floats(dqkv, n);
    for (size_t i = 0; i < n; i++)
        if (c > 0 && std::fabs(x[i]) > c) d[i] = 0;
    store_floats(dqkv, d.data(), n);
}

// Fills p, row, gate and begin from the router's output. Of equal p the expert with the smaller number comes first.
void choose(const Model* m, Block* b, size_t N) {
    const size_t experts = size_t(E(m)), used = size_t(K(m)), padded = size_t(Ep(m));
    const std::vector<float> z = floats(b->router, N * padded);
    std::vector<std::vector<std::pair<int, double>>> chosen(experts);
    b->p.assign(N * experts, 0);
    for (size_t n = 0; n < N; n++) {
        double* const p = &b->p[n * experts];
        const float *const z_n = &z[n * padded], largest = *std::max_element(z_n, z_n + experts);
        double total = 0, kept = 0;
        std::vector<size_t> order;
        for (size_t e = 0; e < experts; e++) {
            total += p[e] = same_exp(double(z_n[e]) - double(largest));
            order.push_back(e);
        }
        for (size_t e = 0; e < experts; e++) p[e] /= total;
        std::ranges::stable_sort(order, [&](size_t i, size_t j) { return p[i] > p[j]; });
        for (size_t k = 0; k < used; k++) kept += p[order[k]];
        for (size_t k = 0; k < used; k++) chosen[order[k]].push_back({int(n), p[order[k]] / kept});
    }
    b->row.clear();
    b->gate.clear();
    b->begin.assign(1, 0);
    for (const auto& of_expert : chosen) {
        for (const auto& [row, gate] : of_expert) {
            b->row.push_back(row);
            b->gate.push_back(gate);
        }
        b->begin.push_back(int(b->row.size()));
    }
}

// to[i] = from[row[i]]    rows of C elements
void gather(floatX* to, const floatX* from, const std::vector<int>& row, size_t C) {
    for (size_t i = 0; i < row.size(); i++) std::copy_n(from + size_t(row[i]) * C, C, to + i * C);
}
// to[n] = sum of factor[i] from[i] where row[i] is n, in order of i    to (N,C)
void scatter(floatX* to, const floatX* from, const Block& b, const double* factor, size_t N, size_t C) {
    std::vector<double> sums(N * C);
    const std::vector<float> x = floats(from, b.row.size() * C);
    for (size_t i = 0; i < b.row.size(); i++)
        for (size_t c = 0; c < C; c++)
            sums[size_t(b.row[i]) * C + c] += (factor ? factor[i] : 1) * double(x[i * C + c]);
    store_floats(to, std::vector<float>(sums.begin(), sums.end()).data(), N * C);
}

void forward_experts(Model* m, const Pass& pass, Block* b, const MixtralBlock<Weight>& w, floatX* out) {
    const size_t N = size_t(pass.N()), C = size_t(m->shape.C), F = size_t(LlamaSizes(m->shape).F);
    linear_forward(b->router, b->ln2.out, w.router, nullptr, pass.N());
    choose(m, b, N);
    gather(b->x, b->ln2.out, b->row, C);
    for (int e = 0; e < E(m); e++) {
        const size_t at = size_t(b->begin[size_t(e)]);
        const int n = b->begin[size_t(e) + 1] - int(at);
        linear_forward(b->gateup + at * 2 * F, b->x + at * C, w.experts[2 * e], nullptr, n);
        swiglu_forward(b->act + at * F, b->gateup + at * 2 * F, n, int(F));
        linear_forward(b->y + at * C, b->act + at * F, w.experts[2 * e + 1], nullptr, n);
    }
    scatter(out, b->y, *b, b->gate.data(), N, C);
}

// Counts the choices of all layers, and reports aux_loss and the largest share of an expert, 1 where all have the same.
void balance(Model* m, const Pass& pass) {
    Mixtral& a = own<Mixtral>(m);
    const size_t experts = size_t(E(m)), rows = size_t(pass.N()) * a.block.size();
    double aux = 0;
    a.share.assign(experts, 0);
    for (size_t e = 0; e < experts; e++) {
        double p = 0;
        for (const Block& b : a.block) {
            a.share[e] += double(b.begin[e + 1] - b.begin[e]) / double(rows);
            for (size_t n = 0; n < size_t(pass.N()); n++) p += b.p[n * experts + e] / double(rows);
        }
        aux += double(experts) * a.share[e] * p;
    }
    if (!pass.measures) return;
    pass.measures[0] = aux;
    pass.measures[1] = *std::ranges::max_element(a.share) * double(experts) / K(m);
}

const floatX* forward(Model* m, const Pass& pass) {
    Mixtral& a = own<Mixtral>(m);
    const int C = m->shape.C, L = m->shape.L;
    const auto ends = ends_of(m, m->weights);
    llama_begin(m, pass, a.shared);
    pass.needed(0, block_end(m, 0));
    const LayerNorm first = norm_of(m, pass, a.block[0].ln1, block_of(m, m->weights, 0).ln1w);
    embedding_forward(first.inp, m->tokens, ends.embedding, nullptr, {.B = pass.B, .T = pass.T, .C = C});
    layernorm_forward(first);
    for (int l = 0; l < L; l++) {
        const bool last = l + 1 == L;
        Block& b = a.block[size_t(l)];
        const auto w = block_of(m, m->weights, l);
        const LayerNorm next = last ? norm_of(m, pass, a.norm, ends.normw)
                                    : norm_of(m, pass, a.block[size_t(l) + 1].ln1,
                                              block_of(m, m->weights, l + 1).ln1w);
        llama_attention_forward(m, pass, l, a.shared, b.att, w.att, a.branch, b.ln1.out,
                                [&](floatX* qkv) { clip(m, pass, qkv, b.qkv); });
        residual_layernorm_forward(norm_of(m, pass, b.ln2, w.ln2w), b.ln1.inp, a.branch, {});
        forward_experts(m, pass, &b, w, a.branch);
        pass.needed(block_begin(m, l + 1), block_end(m, l + 1));
        residual_layernorm_forward(next, b.ln2.inp, a.branch, {});
    }
    balance(m, pass);
    return a.norm.out;
}

// ------------------------------------------------------------------------------------------------------------ backward

// The gradient of the router's output, from that of the gates and of aux_loss. With g_k = p_k / S, S the sum over the
// chosen: dp_k = (dg_k - sum of dg g) / S. The softmax: dz_e = p_e (dp_e - sum of p dp).
void backward_router(Model* m, const Block& b, const std::vector<double>& dgate, size_t N) {
    const Mixtral& a = own<Mixtral>(m);
    const size_t experts = size_t(E(m)), padded = size_t(Ep(m));
    std::vector<double> dp(N * experts), sum(N), kept(N);
    std::vector<float> dz(N * padded);
    for (size_t e = 0, i = 0; e < experts; e++)
        for (; i < size_t(b.begin[e + 1]); i++) {
            sum[size_t(b.row[i])] += dgate[i] * b.gate[i];
            kept[size_t(b.row[i])] += b.p[size_t(b.row[i]) * experts + e];
        }
    for (size_t e = 0, i = 0; e < experts; e++) {
        // The loss is summed over rows, so that of aux_loss counts N times.
        const double balancing = double(aux_loss(m->shape)) * double(experts) * a.share[e] / double(a.block.size());
        for (size_t n = 0; n < N; n++) dp[n * experts + e] = balancing;
        for (; i < size_t(b.begin[e + 1]); i++)
            dp[size_t(b.row[i]) * experts + e] += (dgate[i] - sum[size_t(b.row[i])]) / kept[size_t(b.row[i])];
    }
    for (size_t n = 0; n < N; n++) {
        const double *const p = &b.p[n * experts], *const d = &dp[n * experts];
        double along = 0;
        for (size_t e = 0; e < experts; e++) along += p[e] * d[e];
        for (size_t e = 0; e < experts; e++) dz[n * padded + e] = float(p[e] * (d[e] - along));
    }
    store_floats(a.drouter, dz.data(), dz.size());
}

// dinp = the gradient of the second norm's output.
void backward_experts(Model* m, const Pass& pass, int l, floatX* dinp, const floatX* dout) {
    Mixtral& a = own<Mixtral>(m);
    Block& b = a.block[size_t(l)];
    const auto w = block_of(m, m->weights, l);
    const auto d = block_of(m, m->grads, l);
    const size_t N = size_t(pass.N()), C = size_t(m->shape.C), F = size_t(LlamaSizes(m->shape).F);
    const size_t choices = b.row.size();
    const bool acc = pass.accumulate;
    const std::vector<float> dy = floats(dout, N * C), y = floats(b.y, choices * C);
    std::vector<double> dgate(choices);
    std::vector<float> dchoice(choices * C);
    for (size_t i = 0; i < choices; i++)
        for (size_t c = 0; c < C; c++) {
            const double dy_c = double(dy[size_t(b.row[i]) * C + c]);
            dgate[i] += dy_c * double(y[i * C + c]);
            dchoice[i * C + c] = float(b.gate[i] * dy_c);
        }
    store_floats(b.y, dchoice.data(), dchoice.size());
    for (int e = 0; e < E(m); e++) {
        const size_t at = size_t(b.begin[size_t(e)]);
        const int n = b.begin[size_t(e) + 1] - int(at);
        linear_backward(a.dact + at * F, d.experts[2 * e + 1], nullptr, b.y + at * C, b.act + at * F,
                        w.experts[2 * e + 1], n, acc);
        swiglu_backward(b.gateup + at * 2 * F, a.dact + at * F, n, int(F));
        linear_backward(a.dx + at * C, d.experts[2 * e], nullptr, b.gateup + at * 2 * F, b.x + at * C, w.experts[2 * e],
                        n, acc);
    }
    backward_router(m, b, dgate, N);
    linear_backward(a.dnorm, d.router, nullptr, a.drouter, b.ln2.out, w.router, pass.N(), acc);
    scatter(dinp, a.dx, b, nullptr, N, C);
    const std::vector<float> routed = floats(a.dnorm, N * C);
    std::vector<float> all = floats(dinp, N * C);
    for (size_t i = 0; i < all.size(); i++) all[i] += routed[i];
    store_floats(dinp, all.data(), all.size());
}

void backward(Model* m, const Pass& pass, floatX* dhidden) {
    Mixtral& a = own<Mixtral>(m);
    const int C = m->shape.C, L = m->shape.L;
    const bool acc = pass.accumulate;
    const auto d = ends_of(m, m->grads);
    layernorm_backward(a.dresidual, d.normw, nullptr, dhidden,
                       norm_of(m, pass, a.norm, ends_of(m, m->weights).normw), true, acc);
    pass.ready(block_begin(m, L), block_end(m, L));
    for (int l = L - 1; l >= 0; l--) {
        const Block& b = a.block[size_t(l)];
        const auto w_l = block_of(m, m->weights, l);
        const auto d_l = block_of(m, m->grads, l);
        backward_experts(m, pass, l, dhidden, a.dresidual);
        layernorm_backward(a.dresidual, d_l.ln2w, nullptr, dhidden, norm_of(m, pass, b.ln2, w_l.ln2w), false, acc);
        llama_attention_backward(m, pass, l, a.shared, b.att, w_l.att, d_l.att, dhidden, a.dresidual, b.ln1.out,
                                 [&](floatX* dqkv) { clip_backward(m, pass, dqkv, b.qkv); });
        layernorm_backward(a.dresidual, d_l.ln1w, nullptr, dhidden, norm_of(m, pass, b.ln1, w_l.ln1w), false, acc);
        pass.ready(block_begin(m, l), block_end(m, l));
    }
    // A tied head has already written its part of this gradient.
    if (untied_head(m->shape) && d.embedding && !acc)
        device_zero(d.embedding, size_t(m->shape.Vp) * size_t(C) * sizeof(float));
    embedding_backward(d.embedding, nullptr, a.dresidual, m->tokens, m->shape.T, {.B = pass.B, .T = pass.T, .C = C},
                       acc);
    pass.ready(0, block_begin(m, 0));
}

}  // namespace

extern const ModelKind mixtral_kind = {
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .cache_bytes = llama_cache_bytes,
};

}  // namespace BACKEND
