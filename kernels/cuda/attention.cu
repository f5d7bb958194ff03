// attention.cu -- causal attention, forward: the T x T matrix of scores exists only in registers, a
// tile at a time.
//
//     s = scale q k^T, scale = 1 / sqrt(HS); out = drop(p) v
//     p = exp(s - lse) where begin_t <= u <= t, else 0
//
// A warp owns 16 M queries (M is 1 or 2), and loops over the keys and values, which pass through
// shared memory. lse is known only after the last key. So a row keeps its largest score so far, and
// the sums of p and of p v relative to it; a larger score multiplies both sums by a correction. At
// the end the output is divided by the sum of p. The accumulators of q k^T have the layout that the
// first operand of p v must have, so p stays in registers. Operands are bf16, also p; softmax and
// sums are fp32. See Dao et al. 2022, arXiv 2205.14135; Dao 2023, arXiv 2307.08691; Milakov and
// Gimelshein 2018, arXiv 1805.02867. Backward is in attention_backward.cu. On Hopper
// attention_sm90.cu computes heads of 64 and 128 without dropout.
#include <cmath>
#include <type_traits>
#include "kernels/cuda/attention.cuh"
#include "kernels/elements.h"

namespace BACKEND {
using namespace attention;
namespace {

// M is a warp's rows / 16, kKeys the keys per step: the most that 255 registers hold on sm_80 to
// sm_120 without a spill. 32 rows read half as much shared memory per product as 16; 64 keys need
// half as many corrections as 32.
template <int D, bool DROP> struct Forward {
    static constexpr int M = D <= 64 || !DROP ? 2 : 1, kKeys = D <= 64 && !DROP ? 64 : 32;
    static constexpr int kRows = M * 16 * kWarpsSm80;
    static constexpr size_t kBytes =
        size_t(kRows + 4 * kKeys) * D * sizeof(bf16) + kThreadsSm80 * sizeof(int);
};

// Cache holds keys and values of `first` earlier positions and of the new ones, (2,NK,maxT,HS).
struct Cache { bf16* memory; int first, maxT; };

// A block computes 64 M queries of a head, 16 M in each warp, and loops over keys and values in
// steps of kKeys. If CACHED is true (generation only), keys and values are in the cache, and lse is
// not written. If BEGIN is true, the block's first step is that of the first key that its first
// query sees; a warp skips the steps that none of its own queries sees.
template <int D, bool DROP, bool CACHED, bool BEGIN>
__global__ void __launch_bounds__(kThreadsSm80, 2)
attention_forward_kernel(bf16* out, float* lse, const bf16* qkv, AttentionShape s, Dropout drop,
                         Cache cache, const int* begin) {
    using Tile = Forward<D, DROP>;
    constexpr int M = Tile::M, kRows = Tile::kRows, kKeys = Tile::kKeys;
    extern __shared__ __align__(1024) unsigned char memory[];
    grid_dependency_sync();
    bf16* const q_tile = reinterpret_cast<bf16*>(memory);
    bf16* const kv_tiles = q_tile + kRows * D;  // [2 stages][k, v][kKeys][D]
    const Queries p = queries_of_block<kRows>(s);
    const int first = warp() * M * 16, t_warp = p.begin + first, past = CACHED ? cache.first : 0;
    const int seen = t_warp < s.T ? past + t_warp + M * 16 : 0;  // keys that the warp's queries see
    const FirstKeys<BEGIN> first_key(begin, s, p.head);
    const int start = first_key[p.begin] / kKeys * kKeys;
    int* const firsts = reinterpret_cast<int*>(kv_tiles + 4 * kKeys * D);  // of the block's rows
    if (BEGIN) firsts[threadIdx.x] = first_key[p.begin + int(threadIdx.x)];

    const int stride = s.columns, key_stride = CACHED ? s.HS : stride;
    const bf16* const keys = CACHED ? cache.memory + size_t(p.head / s.group) * cache.maxT * s.HS
                                    : qkv + qkv_at(s, p.head, 0, kK);
    const bf16* const values =
        keys + (CACHED ? size_t(s.NK) * cache.maxT * s.HS : size_t(s.NK) * s.HS);
    const auto load = [&](int u, int stage) {
        load_pair<D, kKeys>(kv_tiles + stage * 2 * kKeys * D, keys + size_t(u) * key_stride,
                            key_stride, values + size_t(u) * key_stride, key_stride, past + s.T - u,
                            s.HS);
    };
    load_tile<D, kRows>(q_tile, qkv + qkv_at(s, p.head, p.begin, kQ), stride, s.T - p.begin, s.HS);
    load(start, 0);
    cp_async_wait<0>();
    __syncthreads();
    Rows<D, M, (D <= 64)> q(q_tile + first * D, 0);

    const float c = s.scale * kLog2e;  // exp(scale x) = exp2(c x)
    float o[M][D / 8][4] = {}, most[M][2], sum[M][2] = {};
    for (int i = 0; i < M; i++) most[i][0] = most[i][1] = kLeast<BEGIN>;
    const auto step = [&](int u, int stage) {
        if (u >= seen || (BEGIN && u + kKeys <= firsts[first])) return;
        const bf16* const tile = kv_tiles + stage * 2 * kKeys * D;
        unsigned mask[kKeys / 32] = {};  // a bit per key, for query t_warp + lane
        for (int w = 0; w < kKeys / 32; w++)
            if constexpr (DROP) {
                const size_t row = row_at(s, p.head, t_warp + lane());
                mask[w] = keep_bits<32>(drop, row * s.T + u + w * 32);
            }
        float x[M][kKeys / 8][4];
        multiply_rows(x, q, tile, 0);
        // Only tiles on the diagonal have keys behind a query.
        if (u + kKeys - 1 > past + t_warp) hide_future<false>(x, past + t_warp - u);
        if (BEGIN && u < firsts[first + M * 16 - 1]) hide_past<false>(x, u, firsts, first);
        for (int i = 0; i < M; i++) for (int h = 0; h < 2; h++) {
            // h: the upper or the lower 8 rows of 16. This raises `most`, turns the scores into
            // p = exp2(c x - most), and adds these to `sum`. It returns 2^(old most - new most).
            const float correction = add_scores(x[i], h, c, most[i][h], sum[i][h]);
            for (int n = 0; n < D / 8; n++)
                for (int e = 0; e < 2; e++) o[i][n][h * 2 + e] *= correction;
            for (int w = 0; w < (DROP ? kKeys / 32 : 0); w++) {
                const unsigned bits = __shfl_sync(~0u, mask[w], i * 16 + row_of(h * 2)) >>
                                      column_of(0);
                for (int n = 0; n < 4; n++)
                    for (int e = 0; e < 2; e++)
                        if (!kept(bits, n, e)) x[i][w * 4 + n][h * 2 + e] = 0;
            }
        }
        add_product<D>(o, x, tile, kKeys);
    };
    pipeline<kKeys>(start, past + p.end, load, step);

    if (t_warp >= s.T) return;
    for (int i = 0; i < M; i++) for (int h = 0; h < 2; h++) {
        const int t = t_warp + i * 16 + row_of(h * 2);
        const float total = CACHED ? row_sum(sum[i][h])
                                   : finish_row(lse, s, p.head, t, most[i][h], sum[i][h]);
        sum[i][h] = 1 / (DROP ? total * (1 - drop.rate) : total);
    }
    // q_tile is no longer read: the rows pass through it, to be stored 16 bytes at a time.
    store_rows<D>(out + out_at(s, p.head, t_warp), s.NH * s.HS, s.T - t_warp, s.HS,
                  q_tile + first * D, o, [&](int i, int h) { return sum[i][h]; });
}

}  // namespace

// With a new member of Attention this does not compile, so that no member is ignored.
AttentionShape attention::shape_of(const Attention& attention) {
    const auto& [B, T, NH, NK, HS, drop, scale, begin] = attention;
    CHECK(HS > 0 && HS % 8 == 0 && HS <= 128, "attention: HS is %d, want a multiple of 8 up to 128",
          HS);
    CHECK(NK > 0 && NH > 0 && NH % NK == 0,
          "attention: NK is %d, want a divisor of NH, which is %d", NK, NH);
    CHECK(B >= 0 && T >= 0 && size_t(B) * NH * div_up(T, 16) < size_t(1) << 31,
          "attention: B=%d T=%d NH=%d", B, T, NH);
    return {T, NH, NK, HS, B * NH, NH / NK, (NH + 2 * NK) * HS,
            scale > 0 ? scale : 1 / std::sqrt(float(HS))};
}

void attention_forward(bf16* out, float* lse, const bf16* qkv, const Attention& attention,
                       Stream stream) {
    const AttentionShape s = shape_of(attention);
    if (attention.B * attention.T == 0) return;
    if (sm90_takes(attention)) return forward_sm90(out, lse, qkv, s, attention.begin, stream);
    with_tile(attention, [&](auto D, auto DROP, auto BEGIN) {
        launch_rows<Forward<D, DROP>>(attention_forward_kernel<D, DROP, false, BEGIN>, s.heads, s,
                                      stream, out, lse, qkv, s, attention.drop, Cache(),
                                      attention.begin);
    });
}

void attention_cached(bf16* out, bf16* cache, const bf16* qkv, int first, int maxT,
                      const Attention& attention, Stream stream) {
    const int n = attention.T, NK = attention.NK, HS = attention.HS;
    CHECK(attention.B == 1 && attention.drop.rate == 0,
          "attention_cached: want a B of 1 and no dropout");
    CHECK(first >= 0 && n >= 0 && first + n <= maxT, "attention_cached: %d and %d of %d positions",
          first, n, maxT);
    if (n == 0) return;
    const AttentionShape s = shape_of(attention);
    const Cache to = {cache, first, maxT};
    const size_t rows = 2 * size_t(n) * size_t(NK), packs = size_t(HS) / 8;
    each_element(rows, packs, [=] ON_DEVICE(size_t row, size_t pack) {
        const int head = int(row) % NK, which = int(row) / NK % 2, t = int(row) / (NK * 2);
        bf16* const place = to.memory + ((size_t(which) * NK + head) * maxT + first + t) * HS;
        const bf16* const from = qkv + qkv_at(s, head * s.group, t, kK + which);
        as<uint4>(place + pack * 8) = as<uint4>(from + pack * 8);
    }, stream);
    with_tile(attention, [&](auto D, auto, auto BEGIN) {
        launch_rows<Forward<D, false>>(attention_forward_kernel<D, false, true, BEGIN>, s.heads, s,
                                       stream, out, nullptr, qkv, s, Dropout(), to,
                                       attention.begin);
    });
}

}  // namespace BACKEND
