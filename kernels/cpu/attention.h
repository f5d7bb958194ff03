// attention.h -- causal attention, forward and backward, by the micro-kernel of the matmuls.
//
// Scores are kept transposed (s^T below), as s[u][t], kCols queries t side by side. So the softmax
// over keys u runs down the columns, and p in fp32 is already the packed second operand of out^T =
// v^T p^T. No T x T matrix exists: forward holds the scores of kCols queries, backward those of a
// block of keys by a block of queries, computed again from q, k and lse (Dao et al. 2022, arXiv
// 2205.14135). A task has all query heads that share keys and values, or one. Keys before the first
// one that kCols queries see are left out. A score left out has p = 0, which changes no sum, so it
// does not matter to which multiple that key is rounded down.
#pragma once
#include <numeric>
#include "kernels/cpu/dropout.h"

namespace BACKEND::ISA {

struct Head {
    const floatX *q, *k, *v;                    // (queries,HS), (keys,HS), (keys,HS)
    size_t q_stride, kv_stride, out_stride;     // elements from row to row
    int queries, first, HS;                     // query t is at position first + t of the keys
    const int* begin;                           // (queries): skipped + each's first key, or null
    int skipped;                                // keys that no query sees, before k's first
    Mask mask;
    float scale;                                // factor of the scores
    // lse[row + t] is query t's; the index of dropout's element (t, u) is (row + t) * queries + u
    size_t row;

    int begin_of(int t) const { return begin ? begin[min(t, queries - 1)] - skipped : 0; }
    // Returns the first key that queries from t on need, rounded down to a panel's first one.
    int first_key(int t) const {
        constexpr int kPanel = std::lcm(kRows, kStep);
        return begin_of(t) / kPanel * kPanel;
    }
};

// Returns head `head` = b * NH + h of qkv (B,T,NH+2NK,HS). With a new
// member of Attention this does not compile, so that no member is ignored.
static Head head_of(const floatX* qkv, int head, const Attention& attention) {
    const auto& [B, T, NH, NK, HS, drop, given, begin] = attention;
    const float scale = given > 0 ? given : 1.0f / __builtin_sqrtf(float(HS));
    const size_t row = size_t(NH + 2 * NK) * HS, rows = size_t(T);
    const floatX* first = qkv + head / NH * rows * row;
    const floatX* k = first + (NH + head % NH / (NH / NK)) * HS;
    return {.q = first + head % NH * HS, .k = k, .v = k + NK * HS,
            .q_stride = row, .kv_stride = row, .out_stride = size_t(NH) * HS,
            .queries = T, .first = 0, .HS = HS,
            .begin = begin ? begin + head / NH * rows : nullptr, .skipped = 0,
            .mask = mask_of(drop), .scale = scale, .row = head * rows};
}
// Returns the offset of head `head` in out (B,T,NH,HS).
static size_t out_of(int head, int T, int NH, int HS) {
    return (size_t(head / NH) * T * NH + head % NH) * HS;
}

// Sets panel[u][lane] to the dropout factor of query t +
// lane and key u0 + u, u < n. rows: work space (kCols,n).
static void mask_panel(float* panel, float* rows, const Head& h, int t, int u0, int n) {
    for (int lane = 0; lane < kCols; lane++) {
        const uint64_t row = h.row + uint64_t(min(t + lane, h.queries - 1));
        dropout_factors(rows + lane * n, h.mask, row * uint64_t(h.queries) + uint64_t(u0), n);
    }
    pack_rows<kCols>(panel, rows, size_t(n), kCols, n);
}

// Stores out[t][:] = x[:][t] / divisor[t] for t < rows, or x[:][t] if divisor is null: x is
// (HS,kCols), and out has a row per query.
static void store_transposed(floatX* out, size_t stride, const float* x, int HS, int rows,
                             const float* divisor) {
    for (int d = 0; d < HS; d += kWidth)
        for (int t = 0; t < rows; t += kWidth) {
            Vec y[kWidth];
            for (int i = 0; i < kWidth; i++) y[i] = load(x + min(d + i, HS - 1) * kCols + t);
            transpose(y);
            for (int i = 0; i < min(kWidth, rows - t); i++) {
                const size_t row = size_t(t + i);
                store(out + row * stride + d, divisor ? y[i] / divisor[row] : y[i], HS - d);
            }
        }
}

static size_t packed(int n) { return size_t(round_up(n, kStep)); }

// Packs the rows of x (T,HS) as lanes, in panels of kRows or kCols lanes.
template <bool kOfB>
static void pack_positions(Packed* out, const floatX* x, size_t ld, int T, int HS) {
    for (int t = 0; t < T; t += kOfB ? kCols : kRows)
        pack_panel<kOfB, true>(out + t * packed(HS), x + t * ld, ld, T - t, HS);
}

// Packs the columns of x (T,HS) as lanes: 32 rows of x for
// all panels, then the next 32 (see pack in matmul.h).
template <bool kOfB>
static void pack_channels(Packed* out, const floatX* x, size_t ld, int T, int HS) {
    constexpr int kLanes = kOfB ? kCols : kRows;
    for (int t = 0; t < T; t += 32)
        for (int d = 0; d < HS; d += kLanes)
            pack_panel<kOfB, false>(out + d * packed(T) + t * kLanes, x + t * ld + d, ld, HS - d,
                                    min(32, T - t));
}

// Sets x[u - u0][lane], u0 <= u < end, to `value` where query t + lane does not see key u because
// it is before begin. x has kCols lanes.
static void hide_before(float* x, const Head& h, int t, int u0, int end, float value) {
    const int last = min(end, h.begin_of(t + kCols - 1));
    if (u0 >= last) return;
    float begin[kCols];
    for (int lane = 0; lane < kCols; lane++) begin[lane] = float(h.begin_of(t + lane));
    for (int u = u0; u < last; u++)
        for (int v = 0; v < kCols; v += kWidth) {
            float* const at = x + (u - u0) * kCols + v;
            store(at, load(begin + v) > float(u) ? broadcast(value) : load(at));
        }
}

// Replaces s[u][t], u < keys, by exp(scale (s - max)) if u <= first + t and by 0 if not or if it is
// -infinity; max is the maximum of column t. sums[t] becomes the sum of column t, and lse[t] becomes
// scale * max + log(sums[t]).
static void softmax_columns(float* s, int keys, int first, float scale, float* sums, float* lse) {
    Vec most[kVectors], total[kVectors] = {};
    for (int v = 0; v < kVectors; v++) most[v] = broadcast(-kInfinity);
    for (int u = 0; u < keys; u++)
        for (int v = 0; v < kVectors; v++) {
            float* const at = s + u * kCols + v * kWidth;
            Vec x = load(at);
            const int hidden = u - first - v * kWidth;  // how many lanes have a query before key u
            if (hidden > 0) {
                x = lane_numbers() < float(hidden) ? broadcast(-kInfinity) : x;
                store(at, x);
            }
            most[v] = max(x, most[v]);
        }
    for (int u = 0; u < keys; u++)
        for (int v = 0; v < kVectors; v++) {
            const Vec p = exp(scale * (load(s + u * kCols + v * kWidth) - most[v]));
            total[v] += p;
            store(s + u * kCols + v * kWidth, p);
        }
    for (int v = 0; v < kVectors; v++) store(sums + v * kWidth, total[v]);
    for (int t = 0; t < kCols; t++) lse[t] = log(sums[t]);
    for (int v = 0; v < kVectors; v++) {
        float* const at = lse + v * kWidth;
        store(at, fma(broadcast(scale), most[v], load(at)));
    }
}

// Calls the micro_kernel of matmuls. The next panel of a, which is behind this one, is prefetched.
INLINE void micro_kernel(float* tile, const float* before, const Packed* a, const Packed* b, int k,
                         int rows = kRows, int cols = kCols, size_t ld = 0) {
    micro_kernel(tile, before, a, ld, b, a + k * kRows, k, rows, cols);
}

// Workspace is the work space of a thread. Each take() returns another buffer of it, of n elements.
struct Workspace {
    int buffers = 0;
    template <class F> F* take(size_t n) {
        return reinterpret_cast<F*>(thread_buffer((n * sizeof(F) + 3) / 4, buffers++));
    }
};

// Computes `heads` heads from h on, which share k and v.
// out is head h's; lse is null or (B,NH,T), of all heads.
static void heads_forward(Head h, int heads, floatX* out, float* lse) {
    constexpr int kKeysAtOnce = 256;    // keys per pass: their rows of p fit the L1 cache
    const int HS = h.HS, keys = h.first + h.queries;
    const size_t T = size_t(round_up(keys, kRows)), D = size_t(round_up(HS, kRows)), H = packed(HS),
                 K = packed(keys);
    const float scale = h.scale;
    Workspace w;
    // First operands: k of s^T, in panels of keys, and v of out^T, in panels of HS.
    Packed* const k = w.take<Packed>(T * H);                    // [panel][HS][kRows]
    Packed* const v = w.take<Packed>(D * K);                    // [panel][key][kRows]
    // Second operands: q of s^T, and, unless s is one itself, p_b of out^T.
    Packed* const q = w.take<Packed>(H * kCols);                // [HS][kCols]
    Packed* const p_b = w.take<Packed>(kKeysAtOnce * kCols);    // [key][kCols]
    float* const s = w.take<float>(T * kCols);                  // [key][kCols]
    float* const factors = w.take<float>(T * kCols);            // [key][kCols]   dropout factors
    float* const mask_rows = w.take<float>(T * kCols);          // [kCols][key]   for mask_panel
    float* const sums = w.take<float>(D * kCols);               // [HS][kCols]
    begin_products();
    pack_positions<false>(k, h.k, h.kv_stride, keys, HS);
    pack_channels<false>(v, h.v, h.kv_stride, keys, HS);
    for (; heads > 0; heads--, h.q += HS, h.row += size_t(h.queries), out += HS)
        for (int t = 0; t < h.queries; t += kCols) {
            const int rows = min(kCols, h.queries - t), seen = h.first + t + rows;
            const int from = h.first_key(t);
            float* const p = s + from * kCols;
            float totals[kCols], lse_t[kCols];
            pack_panel<true, true>(q, h.q + t * h.q_stride, h.q_stride, rows, HS);
            for (int u = from; u < seen; u += kRows)
                micro_kernel(s + u * kCols, nullptr, k + u * H, q, HS, seen - u);
            hide_before(p, h, t, from, seen, -kInfinity);
            softmax_columns(p, seen - from, h.first + t - from, scale, totals, lse_t);
            if (h.mask.rate > 0) {
                mask_panel(factors, mask_rows, h, t, from, seen - from);
                for (int i = 0; i < (seen - from) * kCols; i++) p[i] *= factors[i];
            }
            memset(sums, 0, D * kCols * sizeof(float));
            for (int u = from; u < seen; u += kKeysAtOnce) {
                const int n = min(kKeysAtOnce, seen - u);
                const Packed* p_of = pack_b_sums(p_b, s + u * kCols, n);
                for (int d = 0; d < HS; d += kRows)
                    micro_kernel(sums + d * kCols, sums + d * kCols, v + d * K + u * kRows, p_of, n,
                                 HS - d);
            }
            if (lse) memcpy(lse + h.row + t, lse_t, size_t(rows) * sizeof(float));
            store_transposed(out + t * h.out_stride, h.out_stride, sums, HS, rows, totals);
        }
    end_products();
}

// A task computes all heads that share k and v, and packs k and v once. If that gives too few
// tasks, a task computes one head.
static void attention_forward(floatX* out, float* lse, const floatX* qkv,
                              const Attention& attention, Stream) {
    const int B = attention.B, T = attention.T, NH = attention.NH, NK = attention.NK,
              HS = attention.HS;
    if (T == 0) return;
    const int heads = B * NK < 4 * get_threads() ? 1 : NH / NK;
    parallel_for(B * NH / heads, [&](int task) {
        const int head = task * heads;
        heads_forward(head_of(qkv, head, attention), heads, out + out_of(head, T, NH, HS), lse);
    });
}

static void attention_cached(floatX* out, floatX* cache, const floatX* qkv, int first, int maxT,
                             const Attention& attention, Stream) {
    const int n = attention.T, NH = attention.NH, NK = attention.NK, HS = attention.HS;
    CHECK(attention.B == 1 && attention.drop.rate == 0,
          "attention_cached: want a B of 1 and no dropout");
    CHECK(first >= 0 && n >= 0 && first + n <= maxT, "attention_cached: %d + %d, room for %d",
          first, n, maxT);
    if (n == 0) return;
    const size_t H = size_t(HS);
    parallel_for(NK, [&](int shared) {
        const int heads = NH / NK, head = shared * heads;
        Head h = head_of(qkv, head, attention);
        floatX *k = cache + size_t(shared) * maxT * H, *v = k + size_t(NK) * maxT * H;
        for (int t = 0; t < n; t++) {
            memcpy(k + (first + t) * H, h.k + t * h.kv_stride, H * sizeof(floatX));
            memcpy(v + (first + t) * H, h.v + t * h.kv_stride, H * sizeof(floatX));
        }
        h.kv_stride = H;
        h.skipped = h.first_key(0);
        h.first = first - h.skipped;
        h.k = k + h.skipped * H;
        h.v = v + h.skipped * H;
        heads_forward(h, heads, out + head * H, nullptr);
    });
}

// Computes, for a block of keys u by a block of queries t, tile by tile:
//     p^T = exp(scale s^T - lse),   ds^T = p^T (mask dp^T - delta) scale,    dp^T = v dout^T
// As second operand ds^T gives dq^T += k^T ds^T. As first operands p^T and ds^T (p_a and ds_a) give
// dv += (mask p)^T dout and dk += ds^T q. A block of keys takes all queries, so that its sums stay
// in the cache. The heads that share k and v add to dk and dv one after the other.
struct Backward {
    Head h;    // the head that is computed; out, dout and dq are its own
    const floatX *out, *dout;
    floatX *dq, *dk, *dv;
    const float* lse;    // (B,NH,T)

    static constexpr int kKeyBlock = 192, kQueryBlock = 128;
    // p_a and ds_a have query t of row u at u kQueryBlock + t kQueryStep; rows are kRowLd apart.
    static constexpr size_t kRowLd = kTiled ? kStep : kQueryBlock, kQueryStep = kTiled ? kRows : 1;
    const int T = h.queries, HS = h.HS;
    const float scale = h.scale;
    const size_t keys = size_t(round_up(T, kRows)), queries = size_t(round_up(T, kCols)),
                 H = packed(HS), K = packed(T);
    const size_t D = size_t(round_up(HS, kRows)), E = size_t(round_up(HS, kCols)),
                 block = size_t(kKeyBlock) * kCols;
    Workspace w = {};
    // First operands: those of s^T and dp^T, in panels of keys, and that of dq^T, in panels of HS.
    Packed* const k_keys = w.take<Packed>(keys * H);            // [panel][HS][kRows]
    Packed* const v_keys = w.take<Packed>(keys * H);            // [panel][HS][kRows]
    Packed* const k_dims = w.take<Packed>(D * K);               // [panel][T][kRows]
    // Second operands: those of s^T and dp^T, in panels of queries, and of dk and dv, of HS.
    Packed* const q_rows = w.take<Packed>(queries * H);         // [panel][HS][kCols]
    Packed* const dout_rows = w.take<Packed>(queries * H);      // [panel][HS][kCols]
    Packed* const q_dims = w.take<Packed>(E * K);               // [panel][T][kCols]
    Packed* const dout_dims = w.take<Packed>(E * K);            // [panel][T][kCols]
    float* const lse_of = w.take<float>(queries);               // infinity where there is no query
    float* const delta = w.take<float>(queries);                // dout . out; 0 where there is none
    float* const dq_sums = w.take<float>(queries * D);          // [panel of queries][HS][kCols]
    // [panel of keys][panel of HS][kRows][kCols]
    float* const dk_sums = w.take<float>(keys * E);
    float* const dv_sums = w.take<float>(keys * E);
    // ds of one block of keys. ds_b holds it as the second operand of dq^T, unless ds can be that.
    float* const ds = w.take<float>(block);                     // [key][kCols]
    Packed* const ds_b = w.take<Packed>(block);
    Packed* const p_a = w.take<Packed>(kKeyBlock * kQueryBlock);        // [key][query], or tiles
    Packed* const ds_a = w.take<Packed>(kKeyBlock * kQueryBlock);
    float* const factors = w.take<float>(block);                // [key][kCols]   dropout factors
    float* const mask_rows = w.take<float>(block);              // [kCols][key]   for mask_panel

    void prepare_keys() const {
        pack_positions<false>(k_keys, h.k, h.kv_stride, T, HS);
        pack_positions<false>(v_keys, h.v, h.kv_stride, T, HS);
        pack_channels<false>(k_dims, h.k, h.kv_stride, T, HS);
        memset(dk_sums, 0, keys * E * sizeof(float));
        memset(dv_sums, 0, keys * E * sizeof(float));
    }

    void prepare_head() const {
        for (int t = 0; t < int(queries); t++) {
            const floatX *out_t = out + t * h.out_stride, *dout_t = dout + t * h.out_stride;
            delta[t] = sum_products(
                t < T ? HS : 0, [&](int d, int left) { return load(out_t + d, left); },
                [&](int d, int left) { return load(dout_t + d, left); });
            lse_of[t] = t < T ? lse[h.row + t] : kInfinity;
        }
        pack_positions<true>(q_rows, h.q, h.q_stride, T, HS);
        pack_positions<true>(dout_rows, dout, h.out_stride, T, HS);
        pack_channels<true>(q_dims, h.q, h.q_stride, T, HS);
        pack_channels<true>(dout_dims, dout, h.out_stride, T, HS);
        memset(dq_sums, 0, queries * D * sizeof(float));
    }

    // Computes p (masked) and ds, both [kRows][kCols], for keys from u on
    // and queries from t on. They are 0 where a key comes after the query.
    __attribute__((always_inline)) void tile(const float* mask, int u, int t, float* p,
                                             float* ds_u) const {
        alignas(64) float s[kRows * kCols], dp[kRows * kCols];
        micro_kernel(s, nullptr, k_keys + u * H, q_rows + t * H, HS);
        micro_kernel(dp, nullptr, v_keys + u * H, dout_rows + t * H, HS);
        for (int v = 0; v < kCols; v += kWidth) {
            const Vec lse_t = load(lse_of + t + v), delta_t = load(delta + t + v);
            const Vec query = lane_numbers() + float(t + v);
            for (int r = 0; r < kRows; r++) {
                const int at = r * kCols + v;
                const Vec e = exp(fma(broadcast(scale), load(s + at), -lse_t)),
                          x = query < float(u + r) ? Vec{} : e;
                const Vec factor = mask ? load(mask + at) : broadcast(1.0f);
                store(p + at, x * factor);
                store(ds_u + at, x * fma(factor, load(dp + at), -delta_t) * scale);
            }
        }
    }

    // Takes kCols queries from t on, of the block at t0, with keys from .. n - 1 of those from u0
    // on. Adds to dq, and stores p and ds as rows of first operands.
    void pass_queries(int u0, int from, int n, int t0, int t) const {
        const bool masked = h.mask.rate > 0;
        alignas(64) float p[kRows * kCols];
        if (masked) mask_panel(factors, mask_rows, h, t, u0 + from, round_up(n - from, kRows));
        for (int u = from; u < n; u += kRows) {
            float* const ds_u = ds + u * kCols;
            tile(masked ? factors + (u - from) * kCols : nullptr, u0 + u, t, p, ds_u);
            for (float* hidden : {p, ds_u}) hide_before(hidden, h, t, u0 + u, u0 + u + kRows, 0);
            for (int r = 0; r < kRows; r++)
                for (int v = 0; v < kCols; v += kWidth) {
                    const size_t at = u * kQueryBlock + (t - t0) * kQueryStep + r * kRowLd + v;
                    store(p_a + at, load(p + r * kCols + v));
                    store(ds_a + at, load(ds_u + r * kCols + v));
                }
        }
        const Packed* ds_of = pack_b_sums(ds_b, ds + from * kCols, n - from);
        for (int d = 0; d < HS; d += kRows) {
            float* sums = dq_sums + t * D + d * kCols;
            micro_kernel(sums, sums, k_dims + d * K + (u0 + from) * kRows, ds_of, n - from, HS - d);
        }
    }

    // Adds the terms of the block of queries at t0 to dk and dv of the n keys from u0 on.
    void pass_keys(int u0, int n, int t0, int count) const {
        for (int u = 0; u < n; u += kRows) {
            // Earlier queries see none of these keys
            const int skip = max(0, u0 + u - t0) / kCols * kCols;
            // Nor do later ones, if their first key comes after these
            int past = count;
            while (past > skip && h.first_key(t0 + (past - 1) / kCols * kCols) > u0 + u)
                past = (past - 1) / kCols * kCols;
            const size_t at = u * kQueryBlock + skip * kQueryStep;
            for (int d = 0; d < HS && skip < past; d += kCols) {
                const size_t panel = d * K + (t0 + skip) * kCols;
                const size_t sums = (u0 + u) * E + d * kRows;
                float *dv_u = dv_sums + sums, *dk_u = dk_sums + sums;
                const int k = past - skip, rows = n - u, cols = HS - d;
                micro_kernel(dv_u, dv_u, p_a + at, dout_dims + panel, k, rows, cols, kRowLd);
                micro_kernel(dk_u, dk_u, ds_a + at, q_dims + panel, k, rows, cols, kRowLd);
            }
        }
    }

    void store_keys() const {
        for (int u = 0; u < T; u++)
            for (int d = 0; d < HS; d += kWidth) {
                const size_t tile = u / kRows * kRows * E + d / kCols * kCols * kRows;
                const size_t from = tile + u % kRows * kCols + d % kCols, to = u * h.kv_stride + d;
                store(dk + to, load(dk_sums + from), HS - d);
                store(dv + to, load(dv_sums + from), HS - d);
            }
    }

    void run_head() const {
        prepare_head();
        for (int u0 = 0; u0 < T; u0 += kKeyBlock) {
            const int n = min(kKeyBlock, T - u0);
            for (int t0 = u0 / kQueryBlock * kQueryBlock; t0 < T; t0 += kQueryBlock) {
                const int count = min(kQueryBlock, T - t0);
                for (int t = t0; t < t0 + count; t += kCols) {
                    // Keys from the first that these queries see to the last
                    const int from = max(0, h.first_key(t) - u0), seen = min(n, t + kCols - u0);
                    if (from < seen) pass_queries(u0, from, seen, t0, t);
                }
                pass_keys(u0, n, t0, count);
            }
        }
        for (int t = 0; t < T; t += kCols)
            store_transposed(dq + t * h.q_stride, h.q_stride, dq_sums + t * D, HS,
                             min(kCols, T - t), nullptr);
    }

    void run(int heads) {
        begin_products();
        prepare_keys();
        for (; heads > 0; heads--, h.q += HS, h.row += size_t(T), out += HS, dout += HS, dq += HS)
            run_head();
        store_keys();
        end_products();
    }
};

static void attention_backward(floatX* dqkv, float*, const floatX* dout, const floatX* qkv,
                               const floatX* out, const float* lse, const Attention& attention,
                               Stream) {
    const int B = attention.B, T = attention.T, NH = attention.NH, NK = attention.NK,
              HS = attention.HS;
    if (T == 0) return;
    parallel_for(B * NK, [&](int shared) {
        const int heads = NH / NK, head = shared * heads;
        const Head h = head_of(qkv, head, attention);
        const size_t o = out_of(head, T, NH, HS);
        const auto gradient = [&](const floatX* x) { return dqkv + (x - qkv); };
        Backward{h, out + o, dout + o, gradient(h.q), gradient(h.k), gradient(h.v), lse}.run(heads);
    });
}

}  // namespace BACKEND::ISA
