// attention.h -- causal attention of one head, forward and backward, by the micro-kernel of the matmuls.
//
// Scores are kept transposed, s[u][t] for kCols queries t side by side: then the softmax over keys u runs down the columns, all
// lanes alike, and p is already packed as the second operand of out^T = v^T p^T. The T x T matrix never exists: forward holds the
// scores of kCols queries, backward those of a block of keys by a block of queries, made again from q, k and lse.
// Scheme: Dao et al. 2022, arXiv 2205.14135. A head is one task, so sums over queries and keys have a fixed order and no atomics.
#pragma once
#include "micro.h"
#include "random.h"

namespace BACKEND::ISA {

// panel[u][lane] = the dropout factor of query t + lane and key u0 + u, u < n. rows: workspace (kCols, n rounded up to 4).
static void mask_panel(float* panel, float* rows, const Mask& mask, uint64_t base, int T, int t, int u0, int n) {
    const int ld = ceil_to(n, 4);
    for (int lane = 0; lane < kCols; lane++)
        dropout_factors(rows + lane * ld, mask, base + uint64_t(min(t + lane, T - 1)) * uint64_t(T) + uint64_t(u0), n);
    pack_rows<kCols>(panel, rows, size_t(ld), kCols, ld);
}

// out[t][:] = factor[t] * x[:][t], t < rows: from (HS, kCols) back to rows. temp: (kCols, HS).
static void store_transposed(floatX* out, size_t stride, const float* x, int HS, int rows, const float* factor, float* temp) {
    for (int d = 0; d < HS; d += 4)
        for (int t = 0; t < kCols; t += 4) {
            const float* at = x + d * kCols + t;
            transpose4(temp + t * HS + d, size_t(HS), load4(at), load4(at + kCols), load4(at + 2 * kCols), load4(at + 3 * kCols));
        }
    for (int t = 0; t < rows; t++)
        for (int d = 0; d < HS; d += kWidth)
            store(out + size_t(t) * stride + d, load(temp + t * HS + d, HS - d) * factor[t], HS - d);
}

// pack(panel, columns, how many, rows) for all panels of x (T,HS), kLanes columns each, K rows apart in `out`: 32 rows of all, then the
// next (see matmul.h).
template <int kLanes, class F> INLINE void pack_dims(Packed* out, size_t K, const floatX* x, size_t ld, int T, int HS, const F& pack) {
    for (int t = 0; t < T; t += 32)
        for (int d = 0; d < HS; d += kLanes) pack(out + size_t(d) * K + t * kLanes, x + size_t(t) * ld + d, ld, HS - d, min(32, T - t));
}
static void pack_dims_a(Packed* out, size_t K, const floatX* x, size_t ld, int T, int HS) {
    pack_dims<kRows>(out, K, x, ld, T, HS, [](auto... a) { pack_a_cols(a...); });
}
static void pack_dims_b(Packed* out, size_t K, const floatX* x, size_t ld, int T, int HS) {
    pack_dims<kCols>(out, K, x, ld, T, HS, [](auto... a) { pack_b_cols(a...); });
}

static float inverse_sqrt(int n) { return 1.0f / __builtin_sqrtf(float(n)); }

// Columns of s, rows 0 .. keys - 1: lane t sees rows u <= first + t. They become exp(scale (s - max)), the others 0.
// sums: of the columns; maxima: scale * max, so that lse = maxima + log(sums).
static void softmax_columns(float* s, int keys, int first, float scale, float* sums, float* maxima) {
    for (int u = first + 1; u < keys; u++)
        for (int t = 0; t < min(u - first, kCols); t++) s[u * kCols + t] = -__builtin_inff();
    Vec most[kVectors], total[kVectors] = {};
    for (int v = 0; v < kVectors; v++) most[v] = broadcast(-__builtin_inff());
    for (int u = 0; u < keys; u++)
        for (int v = 0; v < kVectors; v++) most[v] = max(load(s + u * kCols + v * kWidth), most[v]);
    for (int u = 0; u < keys; u++)
        for (int v = 0; v < kVectors; v++) {
            const Vec p = exp(scale * (load(s + u * kCols + v * kWidth) - most[v]));
            total[v] += p;
            store(s + u * kCols + v * kWidth, p);
        }
    for (int v = 0; v < kVectors; v++) {
        store(sums + v * kWidth, total[v]);
        store(maxima + v * kWidth, scale * most[v]);
    }
}

// Workspace is handed out in whole cache lines. Without a base it only counts.
struct Workspace {
    float* base;
    size_t used;
};
template <class F> INLINE void take(F** p, Workspace* w, size_t n) {
    *p = w->base ? reinterpret_cast<F*>(w->base + w->used) : nullptr;
    w->used += (n * sizeof(F) + 63) / 64 * 16;
}

struct ForwardBuffers {
    Packed* k;                      // [panel of keys][HS][kRows]       first operand of s^T
    Packed* v;                      // [panel of HS][key][kRows]        first operand of out^T
    Packed* q;                      // [HS][kCols]
    Packed* p;                      // [kKeysAtOnce][kCols]             second operand of out^T, where it is not s itself
    float* s;                       // [key][kCols]
    float *mask, *mask_rows;        // [key][kCols], [kCols][key]
    float *out, *temp;              // [HS][kCols], [kCols][HS]
};

constexpr int kKeysAtOnce = 256;    // rows of p that fit the first-level cache, for all panels of v

static ForwardBuffers forward_buffers(Workspace* w, int keys, int HS) {
    const size_t T = size_t(ceil_to(keys, kRows)), K = size_t(ceil_to(keys, kStep)), D = size_t(ceil_to(HS, kRows)), H = size_t(ceil_to(HS, kStep));
    ForwardBuffers b;
    take(&b.k, w, T * H);
    take(&b.v, w, K * D);
    take(&b.q, w, H * kCols);
    take(&b.p, w, kKeysAtOnce * kCols);
    take(&b.s, w, T * kCols);
    take(&b.mask, w, (T + 4) * kCols);
    take(&b.mask_rows, w, (T + 4) * kCols);
    take(&b.out, w, D * kCols);
    take(&b.temp, w, H * kCols);
    return b;
}

static size_t attention_forward_buffer(int keys, int HS) {
    Workspace count = {};
    forward_buffers(&count, keys, HS);
    return count.used;
}

static void attention_forward(const AttentionForward& a, float* buffer) {
    const int HS = a.HS, keys = a.first + a.queries, D = ceil_to(HS, kRows);
    const size_t H = size_t(ceil_to(HS, kStep)), K = size_t(ceil_to(keys, kStep));
    const float scale = inverse_sqrt(HS);
    Workspace w = {buffer, 0};
    const ForwardBuffers b = forward_buffers(&w, keys, HS);
    float sums[kCols], maxima[kCols];

    begin_products();
    for (int u = 0; u < keys; u += kRows)
        pack_a_rows(b.k + size_t(u) * H, a.k + size_t(u) * a.kv_stride, a.kv_stride, keys - u, HS);
    pack_dims_a(b.v, K, a.v, a.kv_stride, keys, HS);

    for (int t = 0; t < a.queries; t += kCols) {
        const int rows = min(kCols, a.queries - t), seen = a.first + t + rows;
        pack_b_rows(b.q, a.q + size_t(t) * a.q_stride, a.q_stride, rows, HS);
        for (int u = 0; u < seen; u += kRows) micro_kernel(b.s + u * kCols, b.k + size_t(u) * H, b.q, HS);
        softmax_columns(b.s, seen, a.first + t, scale, sums, maxima);
        if (a.mask.rate > 0) {
            mask_panel(b.mask, b.mask_rows, a.mask, a.mask_base, a.T, t, 0, seen);
            for (int i = 0; i < seen * kCols; i++) b.s[i] *= b.mask[i];
        }
        memset(b.out, 0, size_t(D * kCols) * sizeof(float));
        for (int u = 0; u < seen; u += kKeysAtOnce) {
            const int n = min(kKeysAtOnce, seen - u);
            const Packed* p = pack_b_sums(b.p, b.s + u * kCols, n);
            for (int d = 0; d < HS; d += kRows) {
                float* out = b.out + d * kCols;
                micro_kernel_add(out, out, b.v + size_t(d) * K + u * kRows, p, n);
            }
        }
        for (int i = 0; i < rows; i++) {
            if (a.lse) a.lse[t + i] = maxima[i] + __builtin_logf(sums[i]);
            sums[i] = 1.0f / sums[i];
        }
        store_transposed(a.out + size_t(t) * a.out_stride, a.out_stride, b.out, HS, rows, sums, b.temp);
    }
    end_products();
}

// ------------------------------------------------------------------------------------------------------------- backward
//
// For a block of keys u and a block of queries t, tile by tile:
//     p^T = exp(scale s^T - lse),   ds^T = p^T (mask dp^T - delta) scale,    dp^T = v dout^T
// As second operand ds^T gives dq^T += k^T ds^T. As first operand (transposed while in cache, "a" below) p and ds give
// dv += (mask p)^T dout and dk += ds^T q, whose sums stay with the block of keys while the queries pass.

constexpr int kKeyBlock = 16 * kRows, kQueryBlock = 4 * kCols;
constexpr int kPanel = kQueryBlock * kRows;       // elements of a transposed panel: [query][kRows]

struct BackwardBuffers {
    Packed *k_keys, *v_keys;        // [panel of keys][HS][kRows]       first operands of s^T, dp^T
    Packed *k_dims;                 // [panel of HS][T][kRows]          first operand of dq^T
    Packed *q_queries, *dout_queries;   // [panel of queries][HS][kCols]    second operands of s^T, dp^T
    Packed *q_dims, *dout_dims;     // [panel of HS][T][kCols]          second operands of dk, dv
    float *dq;                      // [panel of queries][HS][kCols]
    float *dk, *dv;                 // [panel of keys in the block][panel of HS][kRows][kCols]
    float *ds;                      // [key in the block][kCols]
    Packed *ds_b;                   // the same, second operand of dq^T, where it is not ds itself
    Packed *p_a, *ds_a;             // [panel of keys in the block][kPanel]
    float *mask, *mask_rows;        // [key in the block][kCols], [kCols][key in the block]
    float *temp;                    // [kCols][HS]
};

static BackwardBuffers backward_buffers(Workspace* w, int T, int HS) {
    const size_t keys = size_t(ceil_to(T, kRows)), queries = size_t(ceil_to(T, kCols));
    const size_t D = size_t(ceil_to(HS, kRows)), E = size_t(ceil_to(HS, kCols)), H = size_t(ceil_to(HS, kStep)), K = size_t(ceil_to(T, kStep));
    BackwardBuffers b;
    take(&b.k_keys, w, keys * H);
    take(&b.v_keys, w, keys * H);
    take(&b.k_dims, w, D * K);
    take(&b.q_queries, w, queries * H);
    take(&b.dout_queries, w, queries * H);
    take(&b.q_dims, w, E * K);
    take(&b.dout_dims, w, E * K);
    take(&b.dq, w, queries * D);
    take(&b.dk, w, kKeyBlock * E);
    take(&b.dv, w, kKeyBlock * E);
    take(&b.ds, w, kKeyBlock * kCols);
    take(&b.ds_b, w, kKeyBlock * kCols);
    take(&b.p_a, w, size_t(kKeyBlock / kRows) * kPanel);
    take(&b.ds_a, w, size_t(kKeyBlock / kRows) * kPanel);
    take(&b.mask, w, (kKeyBlock + 4) * kCols);
    take(&b.mask_rows, w, (kKeyBlock + 4) * kCols);
    take(&b.temp, w, kCols * H);
    return b;
}

static size_t attention_backward_buffer(int T, int HS) {
    Workspace count = {};
    backward_buffers(&count, T, HS);
    return count.used;
}

// One tile: keys u .. u + kRows - 1 by queries t .. t + kCols - 1. Writes p (masked) and ds, [kRows][kCols]; 0 where u > t.
INLINE void backward_tile(const AttentionBackward& a, const BackwardBuffers& b, const float* mask, int u, int t, float scale,
                          float* p, float* ds) {
    alignas(64) float s[kRows * kCols], dp[kRows * kCols];
    const size_t H = size_t(ceil_to(a.HS, kStep));
    micro_kernel(s, b.k_keys + size_t(u) * H, b.q_queries + size_t(t) * H, a.HS);
    micro_kernel(dp, b.v_keys + size_t(u) * H, b.dout_queries + size_t(t) * H, a.HS);
    for (int v = 0; v < kVectors; v++) {
        const int lane = t + v * kWidth;
        if (lane >= a.T) {                                              // no such queries
            for (int at = v * kWidth; at < kRows * kCols; at += kCols) { store(p + at, Vec{}); store(ds + at, Vec{}); }
            continue;
        }
        const Vec lse = load(a.lse + lane, a.T - lane), delta = load(a.delta + lane, a.T - lane);
        Vec position;
        for (int i = 0; i < kWidth; i++) position[i] = float(lane + i);
        for (int r = 0; r < kRows; r++) {
            const int at = r * kCols + v * kWidth;
            Vec x = exp(scale * load(s + at) - lse);
            if (u + r > lane) x = broadcast(float(u + r)) > position ? Vec{} : x;
            const Vec factor = mask ? load(mask + at) : broadcast(1.0f);
            Vec dx = x * (factor * load(dp + at) - delta) * scale;
            if (u + r > lane) dx = broadcast(float(u + r)) > position ? Vec{} : dx;
            store(p + at, x * factor);
            store(ds + at, dx);
        }
    }
}

static void attention_backward(const AttentionBackward& a, float* buffer) {
    const int T = a.T, HS = a.HS, D = ceil_to(HS, kRows), E = ceil_to(HS, kCols);
    const size_t H = size_t(ceil_to(HS, kStep)), K = size_t(ceil_to(T, kStep));
    const float scale = inverse_sqrt(HS);
    Workspace w = {buffer, 0};
    const BackwardBuffers b = backward_buffers(&w, T, HS);
    alignas(64) float p[kRows * kCols];
    float ones[kCols];
    for (int i = 0; i < kCols; i++) ones[i] = 1.0f;

    for (int t = 0; t < T; t++) {
        Vec dot = {};
        const floatX *out = a.out + size_t(t) * a.out_stride, *dout = a.dout + size_t(t) * a.out_stride;
        for (int d = 0; d < HS; d += kWidth) dot = fma(load(out + d, HS - d), load(dout + d, HS - d), dot);
        a.delta[t] = sum(dot);
    }
    begin_products();
    for (int u = 0; u < T; u += kRows) {
        pack_a_rows(b.k_keys + size_t(u) * H, a.k + size_t(u) * a.qkv_stride, a.qkv_stride, T - u, HS);
        pack_a_rows(b.v_keys + size_t(u) * H, a.v + size_t(u) * a.qkv_stride, a.qkv_stride, T - u, HS);
    }
    for (int t = 0; t < T; t += kCols) {
        pack_b_rows(b.q_queries + size_t(t) * H, a.q + size_t(t) * a.qkv_stride, a.qkv_stride, T - t, HS);
        pack_b_rows(b.dout_queries + size_t(t) * H, a.dout + size_t(t) * a.out_stride, a.out_stride, T - t, HS);
    }
    pack_dims_a(b.k_dims, K, a.k, a.qkv_stride, T, HS);
    pack_dims_b(b.q_dims, K, a.q, a.qkv_stride, T, HS);
    pack_dims_b(b.dout_dims, K, a.dout, a.out_stride, T, HS);
    memset(b.dq, 0, size_t(ceil_to(T, kCols)) * size_t(D) * sizeof(float));

    for (int u0 = 0; u0 < T; u0 += kKeyBlock) {
        const int keys = min(kKeyBlock, T - u0);
        memset(b.dk, 0, size_t(kKeyBlock * E) * sizeof(float));
        memset(b.dv, 0, size_t(kKeyBlock * E) * sizeof(float));
        for (int t0 = u0 / kQueryBlock * kQueryBlock; t0 < T; t0 += kQueryBlock) {
            const int queries = min(kQueryBlock, T - t0);
            for (int t = t0; t < t0 + queries; t += kCols) {
                const int seen = min(keys, t + kCols - u0);             // keys of the block that the last of these queries sees
                if (seen <= 0) continue;
                if (a.mask.rate > 0) mask_panel(b.mask, b.mask_rows, a.mask, a.mask_base, T, t, u0, ceil_to(seen, kRows));
                for (int u = 0; u < seen; u += kRows) {
                    const size_t at = size_t(u / kRows) * kPanel + size_t(t - t0) * kRows;
                    backward_tile(a, b, a.mask.rate > 0 ? b.mask + u * kCols : nullptr, u0 + u, t, scale, p, b.ds + u * kCols);
                    pack_a_sums(b.p_a + at, p);
                    pack_a_sums(b.ds_a + at, b.ds + u * kCols);
                }
                const Packed* ds = pack_b_sums(b.ds_b, b.ds, seen);
                for (int d = 0; d < HS; d += kRows) {
                    float* dq = b.dq + size_t(t) * size_t(D) + d * kCols;
                    micro_kernel_add(dq, dq, b.k_dims + size_t(d) * K + u0 * kRows, ds, seen);
                }
            }
            for (int u = 0; u < keys; u += kRows) {
                const int skip = max(0, u0 + u - t0) / kCols * kCols;   // the panels of queries before see none of these keys
                if (skip >= queries) continue;
                const size_t at = size_t(u / kRows) * kPanel + size_t(skip) * kRows;
                for (int d = 0; d < HS; d += kCols) {
                    const size_t panel = size_t(d) * K + size_t(t0 + skip) * kCols, place = size_t(u) * size_t(E) + size_t(d) * kRows;
                    micro_kernel_add(b.dv + place, b.dv + place, b.p_a + at, b.dout_dims + panel, queries - skip);
                    micro_kernel_add(b.dk + place, b.dk + place, b.ds_a + at, b.q_dims + panel, queries - skip);
                }
            }
        }
        for (int u = 0; u < keys; u++)
            for (int d = 0; d < HS; d += kWidth) {
                const size_t tile_at = size_t(u / kRows * kRows) * size_t(E) + size_t(d / kCols * kCols) * kRows;
                const size_t from = tile_at + size_t(u % kRows * kCols + d % kCols);
                const size_t to = size_t(u0 + u) * a.qkv_stride + size_t(d);
                store(a.dk + to, load(b.dk + from), HS - d);
                store(a.dv + to, load(b.dv + from), HS - d);
            }
    }
    for (int t = 0; t < T; t += kCols)
        store_transposed(a.dq + size_t(t) * a.qkv_stride, a.qkv_stride, b.dq + size_t(t) * size_t(D), HS, min(kCols, T - t),
                         ones, b.temp);
    end_products();
}

}  // namespace BACKEND::ISA
