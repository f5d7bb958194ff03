// layernorm.h -- LayerNorm, or RMSNorm if mean is null. Forward exists alone and
// after the addition of a branch to the residual stream; then there is backward.
#pragma once
#include "kernels/cpu/dropout.h"

namespace BACKEND::ISA {

// Computes row n. With a new member of LayerNorm this does
// not compile, so that no member is ignored.
static void layernorm_row(const LayerNorm& norm, int n) {
    const auto& [N, C, inp, out, means, rstds, weight, bias, eps] = norm;
    // Pointers of their own, because clang 14 captures no structured binding.
    const floatX *const x = inp + size_t(n) * C, *const w = weight, *const b = bias;
    floatX* const y = out + size_t(n) * C;
    const float mean =
        means ? sum_over(C, [&](int c, int left) { return load(x + c, left); }) / float(C) : 0;
    const auto centred = [&](int c, int left) { return load(x + c, left, mean) - mean; };
    const float variance = sum_products(C, centred, centred) / float(C);
    const float rstd = 1.0f / __builtin_sqrtf(variance + eps);
    for_vectors(C, [&](int c, int left) {
        const Vec shift = b ? load(b + c, left) : Vec{};
        store(y + c, fma((load(x + c, left) - mean) * rstd, load(w + c, left), shift), left);
    });
    if (means) means[n] = mean;
    rstds[n] = rstd;
}

static void layernorm_forward(const LayerNorm& norm, Stream) {
    for_rows(norm.N, norm.C, [&](int n) { layernorm_row(norm, n); });
}

static void residual_layernorm_forward(const LayerNorm& norm, const floatX* inp,
                                       const floatX* branch, const Dropout& drop, Stream) {
    const Mask mask = mask_of(drop);
    for_rows(norm.N, norm.C, [&](int n) {
        const size_t at = size_t(n) * norm.C;
        add_dropped(norm.inp + at, inp + at, branch + at, norm.C, mask, at);
        layernorm_row(norm, n);
    });
}

// Computes one row. With xhat = (x - mean) rstd and g = dout weight: dinp (+)= rstd (g - average(g)
// - xhat average(g xhat)), dweight += dout xhat, dbias += dout. RMSNorm has no mean: 0 stands for
// it and for average(g).
static void layernorm_backward_row(floatX* dinp, float* dweight, float* dbias, const floatX* dout,
                                   const floatX* x, const float* mean_n, float rstd,
                                   const floatX* weight, int C, bool first) {
    const float mean = mean_n ? *mean_n : 0;
    const auto xhat = [&](int c, int left) { return (load(x + c, left) - mean) * rstd; };
    Sums g_sum, g_xhat_sum;
    for_parts(C, [&](int c, int left, int k) {
        const Vec normed = xhat(c, left), dy = load(dout + c, left),
                  g = dy * load(weight + c, left);
        g_sum.part[k] += g;
        g_xhat_sum.part[k] = fma(g, normed, g_xhat_sum.part[k]);
        store(dweight + c, fma(dy, normed, load(dweight + c, left)), left);
        store(dbias + c, load(dbias + c, left) + dy, left);
    });
    const float g_mean = mean_n ? g_sum.total() / float(C) : 0,
                g_xhat_mean = g_xhat_sum.total() / float(C);
    for_vectors(C, [&](int c, int left) {
        const Vec g = load(dout + c, left) * load(weight + c, left);
        const Vec rest = fma(-xhat(c, left), broadcast(g_xhat_mean), g - g_mean);
        store(dinp + c, fma(broadcast(rstd), rest, first ? Vec{} : load(dinp + c, left)), left);
    });
}

// Each block of rows has its own sums for dweight and dbias. Then the sums of the blocks are added
// in order.
static void layernorm_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout,
                               const LayerNorm& norm, bool first, bool accumulate, Stream) {
    constexpr int kBlock = 32, kColumns = 256;
    const int N = norm.N, C = norm.C;
    const int blocks = max(1, ceil_div(N, kBlock));
    const size_t stride = 2 * size_t(C);
    float* partials = caller_buffer(blocks * stride);           // [block][dweight, dbias][C]
    parallel_for(blocks, [&](int block) {
        float* sums = partials + block * stride;
        memset(sums, 0, stride * sizeof(float));
        for (int n = block * kBlock; n < min(N, (block + 1) * kBlock); n++) {
            const size_t at = size_t(n) * C;
            layernorm_backward_row(dinp + at, sums, sums + C, dout + at, norm.inp + at,
                                   norm.mean ? norm.mean + n : nullptr, norm.rstd[n], norm.weight,
                                   C, first);
        }
    });
    parallel_for(ceil_div(C, kColumns), [&](int task) {
        const int col = task * kColumns, cols = min(kColumns, C - col);
        add_partials(dweight + col, partials + col, blocks, stride, cols, accumulate);
        if (dbias) add_partials(dbias + col, partials + C + col, blocks, stride, cols, accumulate);
    });
}

}  // namespace BACKEND::ISA
