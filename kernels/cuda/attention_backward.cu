// attention_backward.cu -- the backward of attention.cu.
//
//     delta = rowsum(dout * out);  dp = drop(dout v^T);  ds = p * (dp - delta)
//     dv = drop(p)^T dout;  dk = scale ds^T q;  dq = scale ds k
//
// A warp owns 16 M rows, queries or keys, and loops over the rows of the other side. p and ds are
// computed in registers, as in forward, and rounded to bf16; for dk and dv the kernel computes s^T.
// There are two kernels, because one would add to dq in the order in which blocks arrive.
#include "kernels/cuda/attention.cuh"
#include "src/base/common.h"

namespace BACKEND {
using namespace attention;
namespace {

constexpr int kStep = 32;  // rows of the other side (queries, or keys) per step

template <int D, int M_> struct Backward {
    static constexpr int M = M_, kRows = M * 16 * kWarpsSm80;
    static constexpr size_t kBytes =
        size_t(2 * kRows + 4 * kStep) * D * sizeof(bf16) + 4 * kStep * sizeof(float);
};
template <int D> using BackwardQ = Backward<D, D <= 64 ? 2 : 1>;
template <int D, bool DROP> using BackwardKv = Backward<D, D < 64 || (D == 64 && !DROP) ? 2 : 1>;

// A block computes 64 M rows of dq, and of delta, which the next kernel reads. The loop is that of
// forward, with BEGIN, too, but p is known from lse. With dropout it computes (1 - rate) ds =
// p * (mask * (dout v^T) - (1 - rate) delta), which saves a division per element.
template <int D, bool DROP, bool BEGIN> __global__ void __launch_bounds__(kThreadsSm80, 2)
attention_backward_q_kernel(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv,
                            const bf16* out, const float* lse, AttentionShape s, Dropout drop,
                            const int* begin) {
    constexpr int M = BackwardQ<D>::M, kRows = BackwardQ<D>::kRows, N = kStep / 8;
    extern __shared__ __align__(1024) unsigned char memory[];
    grid_dependency_sync();
    bf16* const q_tile = reinterpret_cast<bf16*>(memory);
    bf16* const do_tile = q_tile + kRows * D;
    bf16* const kv_tiles = do_tile + kRows * D;
    const Queries p = queries_of_block<kRows>(s);
    const int stride = s.columns, first = warp() * M * 16, t_warp = p.begin + first;
    const int seen = t_warp < s.T ? t_warp + M * 16 : 0;
    const FirstKeys<BEGIN> first_key(begin, s, p.head);
    const int start = first_key[p.begin] / kStep * kStep;
    int* const firsts = reinterpret_cast<int*>(kv_tiles + 4 * kStep * D);  // of the block's rows
    if (BEGIN) firsts[threadIdx.x] = first_key[p.begin + int(threadIdx.x)];

    const bf16* const keys = qkv + qkv_at(s, p.head, 0, kK);
    const auto load = [&](int u, int stage) {
        const bf16* const from = keys + size_t(u) * stride;
        load_pair<D, kStep>(kv_tiles + stage * 2 * kStep * D, from, stride, from + s.NK * s.HS,
                            stride, s.T - u, s.HS);
    };
    load_tile<D, kRows>(q_tile, qkv + qkv_at(s, p.head, p.begin, kQ), stride, s.T - p.begin, s.HS);
    load_tile<D, kRows>(do_tile, dout + out_at(s, p.head, p.begin), s.NH * s.HS, s.T - p.begin,
                        s.HS);
    load(start, 0);
    cp_async_wait<0>();
    __syncthreads();
    Rows<D, M, true> q(q_tile + first * D, 0), dy(q_tile + first * D, kRows);

    // Register e of a first operand is for a row e % 2 * 8
    // and a column e / 2 * 8 further on than register 0.
    const float keep = DROP ? 1 - drop.rate : 1, c = s.scale * kLog2e;
    float row_delta[M][2] = {}, row_lse[M][2] = {};
    for (int i = 0; i < M; i++) for (int h = 0; h < 2; h++) {
        const int t = t_warp + i * 16 + row_of(h * 2);
        if (t < s.T) {
            const bf16* const y = out + out_at(s, p.head, t);
            #pragma unroll
            for (int j = 0; j < D / 8; j++) {
                const unsigned d = dy.kept[j / 2][i][j % 2 * 2 + h];
                const unsigned o = j * 8 < s.HS ? as<unsigned>(y + j * 8 + column_of(0)) : 0;
                row_delta[i][h] += low2(d) * low2(o) + high2(d) * high2(o);
            }
            row_lse[i][h] = lse[row_at(s, p.head, t)] * kLog2e;
        }
        row_delta[i][h] = row_sum(row_delta[i][h]);
        if (lane() % 4 == 0 && t < s.T) delta[row_at(s, p.head, t)] = row_delta[i][h];
        row_delta[i][h] *= keep;
    }

    float dq[M][D / 8][4] = {};
    const auto step = [&](int u, int stage) {
        if (u >= seen || (BEGIN && u + kStep <= firsts[first])) return;
        const bf16* const tile = kv_tiles + stage * 2 * kStep * D;
        unsigned mask = ~0u;
        if constexpr (DROP)
            mask = keep_bits<kStep>(drop, row_at(s, p.head, t_warp + lane() % (M * 16)) * s.T + u);
        float x[M][N][4], dp[M][N][4];
        multiply_rows(x, q, tile, 0);
        multiply_rows(dp, dy, tile, kStep);
        if (u + kStep - 1 > t_warp) hide_future<false>(x, t_warp - u);
        if (BEGIN && u < firsts[first + M * 16 - 1]) hide_past<false>(x, u, firsts, first);
        for (int i = 0; i < M; i++) for (int h = 0; h < 2; h++) {
                const unsigned bits =
                    DROP ? __shfl_sync(~0u, mask, i * 16 + row_of(h * 2)) >> column_of(0) : 0;
                for (int n = 0; n < N; n++)
                    for (int e = h * 2; e < h * 2 + 2; e++) {
                        const float y = DROP && !kept(bits, n, e) ? 0 : dp[i][n][e];
                        x[i][n][e] =
                            exp2_fast(x[i][n][e] * c - row_lse[i][h]) * (y - row_delta[i][h]);
                    }
        }
        add_product<D>(dq, x, tile, 0);
    };
    pipeline<kStep>(start, p.end, load, step);

    if (t_warp >= s.T) return;
    store_rows<D>(dqkv + qkv_at(s, p.head, t_warp, kQ), stride, s.T - t_warp, s.HS,
                  q_tile + first * D, dq, [factor = s.scale / keep](int, int) { return factor; });
}

// A block computes 64 M rows of dk and dv. It loops over queries that see them, with dout, head
// after head of the group. In s^T, p^T and ds^T a row is a key and a column a query. ds has the
// factor 1 - rate, as above. If BEGIN is true, the block loads no steps behind the last in which a
// query sees one of its keys; a warp skips those in which none sees its own.
template <int D, bool DROP, bool BEGIN> __global__ void __launch_bounds__(kThreadsSm80, 2)
attention_backward_kv_kernel(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse,
                             const float* delta, AttentionShape s, Dropout drop,
                             const int* begin) {
    using Tile = BackwardKv<D, DROP>;
    constexpr int M = Tile::M, kRows = Tile::kRows, N = kStep / 8;
    extern __shared__ __align__(1024) unsigned char memory[];
    grid_dependency_sync();
    bf16* const k_tile = reinterpret_cast<bf16*>(memory);
    bf16* const v_tile = k_tile + kRows * D;
    bf16* const q_tiles = v_tile + kRows * D;  // [2 stages][q, dout][kStep][D]
    // [2 stages][lse / ln 2, delta][kStep]
    float* const rows = reinterpret_cast<float*>(q_tiles + 4 * kStep * D);
    const int blocks = div_up(s.T, kRows), u0 = int(blockIdx.x) % blocks * kRows;
    const int stride = s.columns, out_stride = s.NH * s.HS;
    int head = int(blockIdx.x) / blocks * s.group;
    const int first = warp() * M * 16, u_warp = u0 + first;
    const FirstKeys<BEGIN> first_key(begin, s, head);
    const int t_end = BEGIN ? end_of_steps<kStep>(first_key, u0, u0 + kRows) : s.T;
    const float keep = DROP ? 1 - drop.rate : 1, c = s.scale * kLog2e;

    const bf16 *q = qkv + qkv_at(s, head, 0, kQ), *dy = dout + out_at(s, head, 0);
    const auto load = [&](int t, int stage) {
        load_pair<D, kStep>(q_tiles + stage * 2 * kStep * D, q + size_t(t) * stride, stride,
                            dy + size_t(t) * out_stride, out_stride, s.T - t, s.HS);
    };
    // Thread i < 2 kStep loads one number per step, not by cp.async, because rows of lse
    // are not aligned to 16 bytes. After the last query lse is infinite, which makes p 0.
    const bool is_lse = threadIdx.x < kStep;
    const float* mine = (is_lse ? lse : delta) + row_at(s, head, 0) + threadIdx.x % kStep;
    const auto row_value = [&](int t) {
        const bool there = threadIdx.x < 2 * kStep && t + int(threadIdx.x) % kStep < s.T;
        return there ? mine[t] * (is_lse ? kLog2e : keep) : is_lse ? INFINITY : 0;
    };

    load_tile<D, kRows>(k_tile, qkv + qkv_at(s, head, u0, kK), stride, s.T - u0, s.HS);
    load_tile<D, kRows>(v_tile, qkv + qkv_at(s, head, u0, kV), stride, s.T - u0, s.HS);
    load(u0, 0);
    if (threadIdx.x < 2 * kStep) rows[threadIdx.x] = row_value(u0);
    cp_async_wait<0>();
    __syncthreads();
    Rows<D, M, false> k(k_tile + first * D, 0), v(k_tile + first * D, kRows);

    float dk[M][D / 8][4] = {}, dv[M][D / 8][4] = {};
    const int end = head + s.group;
    // Does what pipeline() does, which would spill here
    for (int t = u0, stage = 0; head < end; stage ^= 1) {
        int t_next = t + kStep, head_next = head;
        if (t_next >= t_end) {
            t_next = u0, head_next++;
            q += s.HS, dy += s.HS, mine += s.T;
        }
        if (head_next < end) load(t_next, stage ^ 1);
        const float next = head_next < end ? row_value(t_next) : 0;
        const int ahead = t - u_warp;
        if (ahead + kStep > 0 && (!BEGIN || first_key[t] < u_warp + M * 16)) {
            const bf16* const tile = q_tiles + stage * 2 * kStep * D;
            const float* const row = rows + stage * 2 * kStep;
            unsigned mask = ~0u;  // a bit per key, for query t + lane
            if constexpr (DROP)
                mask = keep_bits<M * 16>(drop, row_at(s, head, t + lane()) * s.T + u_warp);
            float x[M][N][4], ds[M][N][4];
            multiply_rows(x, k, tile, 0);
            multiply_rows(ds, v, tile, kStep);
            if (ahead < M * 16 - 1) hide_future<true>(x, ahead);
            if (BEGIN && first_key[t + kStep - 1] > u_warp)
                hide_past<true>(x, u_warp, first_key, t);
            for (int n = 0; n < N; n++) for (int e = 0; e < 2; e++) {
                const int column = n * 8 + column_of(e);
                const float column_lse = row[column], column_delta = row[kStep + column];
                const unsigned bits = DROP ? __shfl_sync(~0u, mask, column) >> row_of(0) : 0;
                for (int i = 0; i < M; i++) for (int f = e; f < 4; f += 2) {
                    const bool dropped = DROP && !(bits & 1u << (i * 16 + f / 2 * 8));
                    const float prob = exp2_fast(x[i][n][f] * c - column_lse);
                    ds[i][n][f] = prob * ((dropped ? 0 : ds[i][n][f]) - column_delta);
                    x[i][n][f] = dropped ? 0 : prob;
                }
            }
            add_product<D>(dv, x, tile, kStep);
            add_product<D>(dk, ds, tile, 0);
        }
        if (threadIdx.x < 2 * kStep) rows[(stage ^ 1) * 2 * kStep + threadIdx.x] = next;
        t = t_next, head = head_next;
        cp_async_wait<0>();
        __syncthreads();
    }

    if (u_warp >= s.T) return;
    const auto store = [&](int which, bf16* tile, const auto& sum, float factor) {
        store_rows<D>(dqkv + qkv_at(s, end - 1, u_warp, which), stride, s.T - u_warp, s.HS,
                      tile + first * D, sum, [=](int, int) { return factor; });
    };
    store(kK, k_tile, dk, s.scale / keep);
    store(kV, v_tile, dv, 1 / keep);
}

}  // namespace

void attention_backward(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv,
                        const bf16* out, const float* lse, const Attention& attention,
                        Stream stream) {
    const AttentionShape s = shape_of(attention);
    if (attention.B * attention.T == 0) return;
    if (sm90_takes(attention))
        return backward_sm90(dqkv, delta, dout, qkv, out, lse, s, attention.begin, stream);
    with_tile(attention, [&](auto D, auto DROP, auto BEGIN) {
        launch_rows<BackwardQ<D>>(attention_backward_q_kernel<D, DROP, BEGIN>, s.heads, s, stream,
                                  dqkv, delta, dout, qkv, out, lse, s, attention.drop,
                                  attention.begin);
        launch_rows<BackwardKv<D, DROP>>(attention_backward_kv_kernel<D, DROP, BEGIN>,
                                         s.heads / s.group, s, stream, dqkv, dout, qkv, lse, delta,
                                         s, attention.drop, attention.begin);
    });
}

}  // namespace BACKEND
