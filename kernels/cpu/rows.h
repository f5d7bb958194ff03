// rows.h -- everything that is bound by memory rather than arithmetic: LayerNorm, classifier, embedding, dropout, the update.
#pragma once
#include "isa.h"
#include "random.h"

namespace BACKEND::ISA {

constexpr int kFactors = 256;               // dropout factors are made so many at a time

// Calls f(i, left, factor) for i = 0, kWidth, ... < n with the dropout factors of elements i .. of which the first has this index.
template <class F> INLINE void each_dropped(size_t n, const Mask& mask, uint64_t index, const F& f) {
    alignas(64) float factors[kFactors];
    for (size_t begin = 0; begin < n; begin += kFactors) {
        const int count = int(n - begin < kFactors ? n - begin : kFactors);
        if (mask.rate > 0) dropout_factors(factors, mask, index + begin, count);
        for (int i = 0; i < count; i += kWidth)
            f(begin + size_t(i), count - i, mask.rate > 0 ? load(factors + i, count - i) : broadcast(1.0f));
    }
}

static void gelu_all(floatX* out, const floatX* pre, size_t n) {
    for (size_t i = 0; i < n; i += kWidth) {
        const int left = int(n - i < kWidth ? n - i : kWidth);
        store(out + i, gelu(load(pre + i, left)), left);
    }
}

static void dropout(floatX* out, const floatX* inp, size_t n, const Mask& mask, uint64_t index) {
    each_dropped(n, mask, index, [&](size_t i, int left, Vec factor) { store(out + i, load(inp + i, left) * factor, left); });
}

// out = a + drop(b)
template <class Out> static void add_dropped(Out* out, const Out* a, const floatX* b, size_t n, const Mask& mask, uint64_t index) {
    each_dropped(n, mask, index, [&](size_t i, int left, Vec factor) {
        store(out + i, load(a + i, left) + load(b + i, left) * factor, left);
    });
}

// Sum of term(i), a vector, over elements i = 0, kWidth, ... < n. Four sums side by side: shorter chains, and more exact.
template <class F> INLINE float sum_over(int n, const F& term) {
    Vec total[4] = {};
    for (int i = 0; i < n; i += 4 * kWidth)
        for (int k = 0; k < 4 && i + k * kWidth < n; k++) total[k] += term(i + k * kWidth);
    return sum((total[0] + total[1]) + (total[2] + total[3]));
}

// ------------------------------------------------------------------------------------------------------------ LayerNorm

static void layernorm_row(const LayerNorm& l, int n, const floatX* x) {
    const int C = l.C;
    const float mean = sum_over(C, [&](int c) { return load(x + c, C - c); }) / float(C);
    const float variance = sum_over(C, [&](int c) { const Vec d = load(x + c, C - c, mean) - mean; return d * d; }) / float(C);
    const float rstd = 1.0f / __builtin_sqrtf(variance + 1e-5f);
    floatX* out = l.out + size_t(n) * size_t(C);
    for (int c = 0; c < C; c += kWidth)
        store(out + c, fma((load(x + c, C - c) - mean) * rstd, load(l.weight + c, C - c), load(l.bias + c, C - c)), C - c);
    l.mean[n] = mean;
    l.rstd[n] = rstd;
}

static void layernorm(const LayerNorm& l, int row, int rows) {
    for (int n = row; n < row + rows; n++) {
        const size_t at = size_t(n) * size_t(l.C);
        if (l.branch) add_dropped(l.residual + at, l.inp + at, l.branch + at, size_t(l.C), l.mask, at);
        layernorm_row(l, n, (l.branch ? l.residual : l.inp) + at);
    }
}

// With xhat = (x - mean) rstd and g = dout weight: dinp = rstd (g - average(g) - xhat average(g xhat)).
static void layernorm_backward(const LayerNormBackward& l, float* dweight, float* dbias, int row, int rows) {
    const int C = l.C;
    memset(dweight, 0, size_t(C) * sizeof(float));
    memset(dbias, 0, size_t(C) * sizeof(float));
    for (int n = row; n < row + rows; n++) {
        const floatX *x = l.inp + size_t(n) * size_t(C), *dout = l.dout + size_t(n) * size_t(C);
        floatX* dinp = l.dinp + size_t(n) * size_t(C);
        const float mean = l.mean[n], rstd = l.rstd[n];
        Vec g_sum = {}, g_xhat_sum = {};
        for (int c = 0; c < C; c += kWidth) {
            const int left = C - c;
            const Vec xhat = (load(x + c, left) - mean) * rstd, dy = load(dout + c, left), g = dy * load(l.weight + c, left);
            g_sum += g;
            g_xhat_sum = fma(g, xhat, g_xhat_sum);
            store(dweight + c, fma(dy, xhat, load(dweight + c, left)), left);
            store(dbias + c, load(dbias + c, left) + dy, left);
        }
        const float g_mean = sum(g_sum) / float(C), g_xhat_mean = sum(g_xhat_sum) / float(C);
        for (int c = 0; c < C; c += kWidth) {
            const int left = C - c;
            const Vec xhat = (load(x + c, left) - mean) * rstd, g = load(dout + c, left) * load(l.weight + c, left);
            Vec dx = rstd * (g - g_mean - xhat * g_xhat_mean);
            if (!l.first) dx += load(dinp + c, left);
            store(dinp + c, dx, left);
        }
    }
}

// sum (+)= partials 0, 1, ... count - 1, each `stride` apart, in order.
static void add_partials(float* sum, const float* partials, int count, size_t stride, int n, bool accumulate) {
    for (int i = 0; i < n; i += kWidth) {
        Vec total = load(partials + i, n - i);
        for (int k = 1; k < count; k++) total += load(partials + size_t(k) * stride + i, n - i);
        store(sum + i, accumulate ? load(sum + i, n - i) + total : total, n - i);
    }
}

// ----------------------------------------------------------------------------------------------------------- classifier

static void classifier_row(float* loss, floatX* logits, int target, int V, int Vp, bool backward) {
    const float lowest = -__builtin_inff();
    Vec most = broadcast(lowest);
    for (int j = 0; j < V; j += kWidth) most = max(load(logits + j, V - j, lowest), most);
    const float top = max(most);
    const float all = sum_over(V, [&](int j) { return exp(load(logits + j, V - j, lowest) - top); });
    *loss = __builtin_logf(all) - (to_float(logits[target]) - top);
    if (!backward) return;
    const float scale = 1.0f / all;
    for (int j = 0; j < V; j += kWidth) {
        Vec p = exp(load(logits + j, V - j) - top) * scale;
        if (target >= j && target < j + kWidth) p[target - j] -= 1.0f;      // before p is rounded to storage
        store(logits + j, p, V - j);
    }
    if (Vp > V) memset(logits + V, 0, size_t(Vp - V) * sizeof(floatX));
}

static void classifier(float* losses, floatX* logits, const int* targets, int V, int Vp, bool backward, int row, int rows) {
    for (int n = row; n < row + rows; n++)
        classifier_row(losses + n, logits + size_t(n) * size_t(Vp), targets[n], V, Vp, backward);
}

// ------------------------------------------------------------------------------------------------------------ embedding

static void embedding(floatX* out, const floatX* token, const floatX* position, int C, const Mask& mask, uint64_t index) {
    each_dropped(size_t(C), mask, index, [&](size_t c, int left, Vec factor) {
        store(out + c, (load(token + c, left) + load(position + c, left)) * factor, left);
    });
}

// Columns col .. col + cols - 1 of all rows, in order: a token may stand in many rows.
static void embedding_backward(float* dwte, const floatX* dout, const int* tokens, int N, int C, int col, int cols,
                               const Mask& mask) {
    for (int n = 0; n < N; n++) {
        const size_t at = size_t(n) * size_t(C) + size_t(col);
        float* to = dwte + size_t(tokens[n]) * size_t(C) + col;
        add_dropped(to, to, dout + at, size_t(cols), mask, at);
    }
}

// One position: dwpe_t (+)= the sum over the batch, rows `stride` elements apart.
static void position_backward(float* dwpe_t, const floatX* dout_t, int B, size_t stride, int C, const Mask& mask, uint64_t index,
                              bool accumulate) {
    alignas(64) float sums[kFactors];
    for (int begin = 0; begin < C; begin += kFactors) {
        const int n = min(kFactors, C - begin);
        memset(sums, 0, sizeof sums);
        for (int b = 0; b < B; b++) {
            const size_t at = size_t(b) * stride + size_t(begin);
            add_dropped(sums, sums, dout_t + at, size_t(n), mask, index + at);
        }
        add_partials(dwpe_t + begin, sums, 1, 0, n, accumulate);
    }
}

// ----------------------------------------------------------------------------------------------------------- the update

// Blocks of 512 elements: the partial sums stay in the first-level cache.
constexpr int kFoldBlock = 512;

// The sum's place: `sums`, or where the only term lies.
static const float* fold_block(float* sums, const float* const* terms, int count, Tree tree, size_t begin) {
    if (count == 1) return terms[0] + begin;
    const int first = tree == Tree::kHalves ? count / 2 : 1;
    float upper[kFoldBlock];
    const float *const a = fold_block(sums, terms, first, tree, begin), *const b = fold_block(upper, terms + first, count - first, tree, begin);
    for (int i = 0; i < kFoldBlock; i++) sums[i] = a[i] + b[i];
    return sums;
}

static void fold(float* out, const float* const* terms, int count, Tree tree, size_t begin, size_t n) {
    float sums[kFoldBlock];                 // out may be one of the terms
    for (size_t i = begin; i < begin + n; i += kFoldBlock) memcpy(out + i, fold_block(sums, terms, count, tree, i), sizeof sums);
}

static float norm(const float* grad) {
    float sums[16] = {};
    for (size_t i = 0; i < kUnit; i += 16)
        for (size_t j = 0; j < 16; j++) sums[j] += grad[i + j] * grad[i + j];
    float total = sums[0];
    for (int j = 1; j < 16; j++) total += sums[j];
    return total;
}

// Plain loops over a whole unit, which the compiler turns into vectors: each operation is rounded as kernels.h says. The sums of the
// state's bits before and after (state_sum of arena.h) are made on the way: memory gives the pace.
static UnitSums adamw(floatX* param, float* __restrict master, float* __restrict m, float* __restrict v, const float* __restrict grad,
                      float decay, const AdamW& adamw, const StepState& state) {
    const float b1 = adamw.beta1, b2 = adamw.beta2, c1 = 1 - b1, c2 = 1 - b2, eps = adamw.eps, shrink = decay * adamw.weight_decay;
    const float lr = state.lr, bias1 = state.bias1, bias2 = state.bias2, grad_scale = state.grad_scale;
    const auto bits = [](float x) { return __builtin_bit_cast(uint32_t, x); };
    uint32_t before = 0, after = 0, lost = 0;
    const bool copied = static_cast<void*>(param) != master;
    VecBits wrong = {};
    if (copied)
        for (size_t i = 0; i < kUnit; i += kWidth) wrong |= (VecBits)load(param + i) ^ (VecBits)stored(param, load(master + i));
    for (size_t i = 0; i < kUnit; i++) {
        const float g = grad[i] * grad_scale;
        before += bits(master[i]) + bits(m[i]) + bits(v[i]);
        m[i] = b1 * m[i] + c1 * g;
        v[i] = b2 * v[i] + c2 * (g * g);
        const float step = (m[i] / bias1) / (__builtin_sqrtf(v[i] / bias2) + eps);
        master[i] = master[i] - lr * (step + shrink * master[i]);
        after += bits(master[i]) + bits(m[i]) + bits(v[i]);
    }
    if (copied)
        for (size_t i = 0; i < kUnit; i += kWidth) store(param + i, load(master + i));
    for (int i = 0; i < kWidth; i++) lost |= wrong[i];
    return {before, after, lost == 0};
}

static uint64_t hash(const float* x, size_t n) {
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        total += hash_mix(uint64_t(i + 1) << 32 | bits);
    }
    return total;
}

template <class To, class From> static void convert(To* out, const From* inp, size_t n) {
    for (size_t i = 0; i < n; i += kWidth) {
        const int left = n - i < kWidth ? int(n - i) : kWidth;
        store(out + i, load(inp + i, left), left);
    }
}

}  // namespace BACKEND::ISA
