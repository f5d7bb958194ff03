// attention.cu -- the ladder of causal attention: for each position t, out = sum over u <= t of p(t,u) v(u), where
// p(t,u) are the probabilities e^(q(t) . k(u) / sqrt(D)) / total; and of its gradient.
//
// The T x T matrix of scores is the whole difficulty: for 1,024 positions and 12 heads it is 25 MB in bf16 for each
// text, and q, k, v and out together are 6 MB. The ladder is about never writing it down.
#include "ladder.h"
#include "warp.h"

constexpr int H = SMALL ? 2 : 48, T = SMALL ? 256 : 1024, D = 64;       // heads, positions, channels of a head
// Scores are multiplied by 1 / sqrt(D), and by log2(e): e^x is 2^(x log2(e)), and a GPU has an instruction for 2^x.
constexpr float kRoot = 0.125f, kScale = kRoot * 1.44269504f;           // kRoot is 1 / sqrt(D)

// Rung 1: three kernels, as the formula says: all scores, a softmax of each row, and the sum over values. The scores
// are written twice and read four times. Most of the bytes are the keys': the 32 threads of a warp read 32 rows of k, a
// sector for each number, as in rung 1 of matmul.cu. Scores of the future, u > t, are computed and thrown away.
__global__ void all_scores(float* scores, const float* q, const float* k) {
    const int u = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y, h = blockIdx.z;
    float sum = 0;
    for (int d = 0; d < D; d++) sum += q[(h * T + t) * D + d] * k[(h * T + u) * D + d];
    scores[(h * T + t) * T + u] = sum * kScale;
}
__global__ void softmax(float* scores) {                // a warp for each row
    const int row = blockIdx.x * blockDim.y + threadIdx.y, t = row % T, lane = threadIdx.x;
    float* const s = scores + row * T;
    float largest = -INFINITY, total = 0;
    for (int u = lane; u <= t; u += 32) largest = fmaxf(largest, s[u]);
    largest = warp_max(largest);                        // subtracted, so that no exponential overflows
    for (int u = lane; u <= t; u += 32) total += exp2f(s[u] - largest);
    total = warp_sum(total);
    for (int u = lane; u < T; u += 32) s[u] = u <= t ? exp2f(s[u] - largest) / total : 0;
}
__global__ void sum_of_values(float* out, const float* p, const float* v) {
    const int d = threadIdx.x, t = blockIdx.x, h = blockIdx.y;
    float sum = 0;
    for (int u = 0; u <= t; u++) sum += p[(h * T + t) * T + u] * v[(h * T + u) * D + d];
    out[(h * T + t) * D + d] = sum;
}

// Rung 2: a warp for each position goes through the keys once and keeps the largest score so far, the total and the sum
// of values. When a larger score comes, total and sum are multiplied by 2^(old - new), at first by 0: they are then
// what they would have been with the new one from the start. That is the online softmax (Milakov and Gimelshein 2018),
// and nothing of size T x T is left. But each position reads all keys and values before it again.
__device__ float2 two(const float* x, int row) {        // the thread's two channels of a row
    return reinterpret_cast<const float2*>(x + row * D)[threadIdx.x % 32];
}
__global__ void online_softmax(float* out, const float* q, const float* k, const float* v) {
    const int t = blockIdx.x * blockDim.y + threadIdx.y, h = blockIdx.y, lane = threadIdx.x;
    const float2 own = two(q, h * T + t);
    float largest = -INFINITY, total = 0;
    float2 sum = {0, 0};
    for (int u = 0; u <= t; u++) {
        const float2 key = two(k, h * T + u), value = two(v, h * T + u);
        const float score = warp_sum(own.x * key.x + own.y * key.y) * kScale, before = largest;
        largest = fmaxf(largest, score);
        const float keep = exp2f(before - largest), p = exp2f(score - largest);
        total = total * keep + p;
        sum = {sum.x * keep + p * value.x, sum.y * keep + p * value.y};
    }
    reinterpret_cast<float2*>(out + (h * T + t) * D)[lane] = {sum.x / total, sum.y / total};
}

// Rung 3: tiles, for tensor cores (FlashAttention-2, Dao 2023). A block has 64 positions and goes through the keys 64
// at a time, which come into shared memory once for all 64. A warp has 16 positions: their 16 x 64 scores are results
// of mma and lie in its registers. There they become 2^(score - largest), the left operand of the product with the
// values; the sum is divided by the total at the end. ldmatrix is used as in rung 5 of matmul.cu. A sum over channels
// (products) has the next 8 of them in the square to the right. A sum over keys (add_values) has the next 8 in the
// square below, and there ldmatrix transposes each square. Below, e counts a thread's 32 elements: e / 4 is the number
// of a matrix d, e % 4 that of an element of it, with the row and column of the picture in matmul.cu. There are 64 keys
// and 64 channels, so that e counts the elements of `sum`, too.
__device__ unsigned packed(float low, float high) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&two);
}
using Tile = bf16[64][D + 8];                           // padded, so that ldmatrix meets no bank twice
__device__ void load(Tile& to, const bf16* from) {      // 64 rows of D
    for (int i = threadIdx.x; i < 64 * D / 8; i += 128)
        *reinterpret_cast<uint4*>(&to[i / 8][i % 8 * 8]) = reinterpret_cast<const uint4*>(from)[i];
}
// Computes s (16,64) = the 16 rows of x from `row` on, times the transpose of y.
__device__ void products(float (&s)[8][4], const Tile& x, const Tile& y, int row, int lane) {
    #pragma unroll
    for (int d = 0; d < D; d += 16) {
        unsigned a[4], b[4];
        ldmatrix(a, &x[row + lane % 16][d + lane / 16 * 8]);
        #pragma unroll
        for (int u = 0; u < 64; u += 16) {
            ldmatrix(b, &y[u + lane % 16][d + lane / 16 * 8]);
            mma(s[u / 8], a, b[0], b[2]);
            mma(s[u / 8 + 1], a, b[1], b[3]);
        }
    }
}
// Computes sum (16,D) += p (16,64) times v, for example the values. Two results of mma side by side are one left
// operand, whose squares are the upper and lower halves of the first, then of the second.
__device__ void add_values(float (&sum)[8][4], const float (&p)[8][4], const Tile& v, int lane) {
    #pragma unroll
    for (int u = 0; u < 64; u += 16) {
        const float(&x)[4] = p[u / 8], (&y)[4] = p[u / 8 + 1];
        const unsigned a[4] = {packed(x[0], x[1]), packed(x[2], x[3]), packed(y[0], y[1]), packed(y[2], y[3])};
        #pragma unroll
        for (int d = 0; d < D; d += 16) {
            unsigned b[4];
            ldmatrix_transposed(b, &v[u + lane % 16][d + lane / 16 * 8]);
            mma(sum[d / 8], a, b[0], b[1]);
            mma(sum[d / 8 + 1], a, b[2], b[3]);
        }
    }
}
__global__ void tiles(float* out, const bf16* q, const bf16* k, const bf16* v) {
    __shared__ Tile qs, ks, vs;
    const int t0 = blockIdx.x * 64, h = blockIdx.y, lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    float sum[8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {};       // of a thread's two rows
    load(qs, q + (h * T + t0) * D);
    for (int u0 = 0; u0 <= t0; u0 += 64) {              // tiles of the future are not touched at all
        __syncthreads();                                // all are done with the tiles before
        load(ks, k + (h * T + u0) * D);
        load(vs, v + (h * T + u0) * D);
        __syncthreads();
        float s[8][4] = {}, keep[2] = {largest[0], largest[1]};
        products(s, qs, ks, row, lane);
        #pragma unroll
        for (int e = 0; e < 32; e++) {
            const int t = t0 + row + lane / 4 + e % 4 / 2 * 8, u = u0 + e / 4 * 8 + lane % 4 * 2 + e % 2;
            s[e / 4][e % 4] = u <= t ? s[e / 4][e % 4] * kScale : -INFINITY;
            largest[e % 4 / 2] = fmaxf(largest[e % 4 / 2], s[e / 4][e % 4]);
        }
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            largest[half] = warp_max<4>(largest[half]); // over the four threads that have the row
            keep[half] = exp2f(keep[half] - largest[half]);
            total[half] *= keep[half];
        }
        #pragma unroll
        for (int e = 0; e < 32; e++) {
            s[e / 4][e % 4] = exp2f(s[e / 4][e % 4] - largest[e % 4 / 2]);
            total[e % 4 / 2] += s[e / 4][e % 4];        // of the thread's own keys
            sum[e / 4][e % 4] *= keep[e % 4 / 2];
        }
        add_values(sum, s, vs, lane);
    }
    for (float& x : total) x = warp_sum<4>(x);
    for (int j = 0; j < 8; j++)
        store(out + (h * T + t0 + row) * D + j * 8, D, sum[j], 1 / total[0], 1 / total[1]);
}

// ---- backward: dq, dk and dv, from q, k, v, dout, and from what forward has kept
//
// Forward keeps out and, for each position, lse(t), the log of the sum of exponentials 2^score: largest +
// log2(total). Sums
// are over all pairs u <= t, and score = kScale q(t) . k(u):
//
//     p(t,u) = 2^(score - lse(t))                         dv(u) = sum over t of p(t,u) dout(t)
//     dp(t,u) = dout(t) . v(u)                            dk(u) = sum over t of ds(t,u) q(t) / sqrt(D)
//     ds(t,u) = p(t,u) (dp(t,u) - delta(t))               dq(t) = sum over u of ds(t,u) k(u) / sqrt(D)
//     delta(t) = dout(t) . out(t)
//
// p is computed again from lse: to read a T x T matrix would take longer than one more product. The derivative of a
// softmax subtracts from dp its mean under p, sum over u of p(t,u) dp(t,u). Since dp(t,u) is dout(t) . v(u), and the
// mean of v(u) under p is out(t), that mean is dout(t) . out(t), and no pass over the keys is needed for it.

// Rung 4: a warp for each query goes through its keys, as in rung 2, and keeps dq in registers. A key's dk and dv get
// terms from many queries, which warps add to them in memory in the order in which they come: the last bits differ from
// run to run, on the software GPU with another SOFT_GPU_SEED. A pair reads 8 D bytes of k and v and asks for 16 D of
// sums: a thread has channels 2 lane and 2 lane + 1, so that one atomicAdd of a warp uses half of each sector.
struct Given { const float *q, *k, *v, *dout, *out, *lse; };
__global__ void backward_by_atomics(float* dq, float* dk, float* dv, Given g) {
    const int t = blockIdx.x * blockDim.y + threadIdx.y, h = blockIdx.y, row = h * T + t;
    const float2 q = two(g.q, row), dout = two(g.dout, row), out = two(g.out, row);
    const float lse = g.lse[row], delta = warp_sum(dout.x * out.x + dout.y * out.y);
    float2 sum = {0, 0};
    for (int u = 0; u <= t; u++) {
        const float2 k = two(g.k, h * T + u), v = two(g.v, h * T + u);
        const float p = exp2f(warp_sum(q.x * k.x + q.y * k.y) * kScale - lse);
        const float ds = p * (warp_sum(dout.x * v.x + dout.y * v.y) - delta) * kRoot;
        const int at = (h * T + u) * D + threadIdx.x * 2;
        atomicAdd(dv + at, p * dout.x);
        atomicAdd(dv + at + 1, p * dout.y);
        atomicAdd(dk + at, ds * q.x);
        atomicAdd(dk + at + 1, ds * q.y);
        sum = {sum.x + ds * k.x, sum.y + ds * k.y};
    }
    reinterpret_cast<float2*>(dq + row * D)[threadIdx.x] = sum;
}

// Rung 5: two kernels of tiles, for tensor cores. In the first a block owns 64 queries and goes through the keys, as in
// rung 3; its warps keep dq in registers. In the second a block owns 64 keys and goes through the queries that see
// them; its warps keep dk and dv. Each sum is one thread's, which adds in a fixed order, without atomics, so the bits
// are always the same. The price is that scores and dp are computed twice, which makes 7 products and not 5.
//
// Both kernels are one text. A block's own rows are x = q and y = dout, or x = k and y = v; others are the other two.
// Scores are products of x and x, and dp of y and y: they have a row for each own row, a column for each of the others.
__global__ void deltas(float* delta, const bf16* dout, const float* out) {      // a warp for each position
    const int row = blockIdx.x * blockDim.y + threadIdx.y, at = row * D + threadIdx.x;
    const float sum = warp_sum(float(dout[at]) * out[at] + float(dout[at + 32]) * out[at + 32]);
    if (threadIdx.x == 0) delta[row] = sum;
}
struct Rows { const bf16 *x, *y; };
template <bool kKeys>
__global__ void backward_by_tiles(float* dx, float* dy, Rows own, Rows other, const float* lse, const float* delta) {
    __shared__ Tile own_x, own_y, x, y;
    const int begin = blockIdx.x * 64, head = blockIdx.y * T, lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    float x_sum[8][4] = {}, y_sum[8][4] = {};
    load(own_x, own.x + (head + begin) * D);
    load(own_y, own.y + (head + begin) * D);
    for (int i = kKeys ? begin : 0; i < (kKeys ? T : begin + 64); i += 64) {    // all tiles that have pairs u <= t
        __syncthreads();                                // all are done with the tiles before
        load(x, other.x + (head + i) * D);
        load(y, other.y + (head + i) * D);
        __syncthreads();
        float p[8][4] = {}, ds[8][4] = {};              // scores and dp at first
        products(p, own_x, x, row, lane);
        products(ds, own_y, y, row, lane);
        #pragma unroll
        for (int e = 0; e < 32; e++) {
            const int mine = begin + row + lane / 4 + e % 4 / 2 * 8, others = i + e / 4 * 8 + lane % 4 * 2 + e % 2;
            const int t = kKeys ? others : mine, u = kKeys ? mine : others;
            float& prob = p[e / 4][e % 4];
            prob = u <= t ? exp2f(prob * kScale - lse[head + t]) : 0;
            ds[e / 4][e % 4] = prob * (ds[e / 4][e % 4] - delta[head + t]);
        }
        add_values(x_sum, ds, x, lane);
        if (kKeys) add_values(y_sum, p, y, lane);
    }
    for (int j = 0; j < 8; j++) {
        store(dx + (head + begin + row) * D + j * 8, D, x_sum[j], kRoot, kRoot);
        if (kKeys) store(dy + (head + begin + row) * D + j * 8, D, y_sum[j]);
    }
}

// The same in plain loops: out and lse; then dq, dk and dv. The mean of dp is computed as it is defined.
struct Plain { Floats out, gradient, lse; };
static Plain plain(const Floats& q, const Floats& k, const Floats& v, const Floats& dout) {
    constexpr int n = H * T * D;
    std::vector<double> sums(4 * n + H * T), p(H * T), dp(H * T);       // out, dq, dk, dv, lse; p and dp of a row t
    const auto dot = [](const Floats& x, int i, const Floats& y, int j) {
        return std::inner_product(&x[i * D], &x[i * D] + D, &y[j * D], 0.0);    // products of two bf16 are exact
    };
    for (int t = 0; t < H * T; t++) {                           // rows of all heads; this one's begin at first
        const int first = t / T * T;
        double total = 0, mean = 0;
        for (int u = first; u <= t; u++) total += p[u] = exp2(dot(q, t, k, u) * double(kScale));
        for (int u = first; u <= t; u++) {
            p[u] /= total;
            dp[u] = dot(dout, t, v, u);
            mean += p[u] * dp[u];
        }
        for (int i = first * D; i < (t + 1) * D; i++) {
            const int u = i / D, of_t = t * D + i % D;
            const double ds = p[u] * (dp[u] - mean) * double(kRoot);
            sums[of_t] += p[u] * double(v[i]);
            sums[n + of_t] += ds * double(k[i]);
            sums[2 * n + i] += ds * double(q[of_t]);
            sums[3 * n + i] += p[u] * double(dout[of_t]);
        }
        sums[4 * n + t] = log2(total);
    }
    const auto at = sums.begin();
    return {Floats(at, at + n), Floats(at + n, at + 4 * n), Floats(at + 4 * n, sums.end())};
}

int main() {
    constexpr int n = H * T * D;
    const dim3 warps(T / 4, H), four(32, 4), tile(T / 64, H);               // four warps in a block; 64 rows in a tile
    const auto q = numbers<bf16>(n, 1), k = numbers<bf16>(n, 2), v = numbers<bf16>(n, 3), dout = numbers<bf16>(n, 4);
    const auto wide = [](const auto& x) { return Floats(x.begin(), x.end()); };
    const Array<bf16> Q = q, K = k, V = v, Dout = dout;
    const Array<float> Q32 = wide(q), K32 = wide(k), V32 = wide(v), Dout32 = wide(dout);
    const auto [want, want_gradient, lse] = plain(wide(q), wide(k), wide(v), wide(dout));
    Array<float> out(n, "out", D), scores(H * T * T);
    Ladder ladder("attention", 4.0 * n * sizeof(float), 2.0 * H * T * T * D, n);     // half of 4 H T T D: causal
    ladder.climb("the matrix of scores", out, want, 1e-5, [&] {
        all_scores<<<dim3(T / 128, T, H), 128>>>(scores, Q32, K32);
        softmax<<<H * T / 4, four>>>(scores);
        sum_of_values<<<dim3(T, H), D>>>(out, scores, V32);
    });
    ladder.climb("the online softmax", out, want, 1e-5, [&] { online_softmax<<<warps, four>>>(out, Q32, K32, V32); });
    Ladder bf("attention, bf16", 3.0 * n * sizeof(bf16) + n * sizeof(float), ladder.flops, n);
    bf.climb("tiles, mma.sync, bf16", out, want, 1e-2, [&] { tiles<<<tile, 128>>>(out, Q, K, V); });
    Ladder back("attention, backward", 8.0 * n * sizeof(float), 5.0 * H * T * T * D, 3 * n);
    const Array<float> Out = want, Lse = lse;
    Array<float> delta(H * T), gradient(3 * n, "dq, dk, dv", D);
    float *const dq = gradient, *const dk = dq + n, *const dv = dk + n;
    const auto climb = [&](Ladder& part, const char* name, double tolerance, const auto& run) {
        part.climb(name, gradient, want_gradient, tolerance, run);
        printf("    dv[0] in bits %a\n", double(gradient.values()[2 * n]));
    };
    climb(back, "a warp a query, atomics", 1e-5, [&] {
        gradient.fill(0);
        backward_by_atomics<<<warps, four>>>(dq, dk, dv, {Q32, K32, V32, Dout32, Out, Lse});
    });
    Ladder bf_back("attention, backward, bf16", 4.0 * n * (sizeof(bf16) + sizeof(float)), back.flops, 3 * n);
    climb(bf_back, "tiles in a fixed order", 5e-3, [&] {
        deltas<<<H * T / 4, four>>>(delta, Dout, Out);
        backward_by_tiles<false><<<tile, 128>>>(dq, nullptr, {Q, Dout}, {K, V}, Lse, delta);
        backward_by_tiles<true><<<tile, 128>>>(dk, dv, {K, V}, {Q, Dout}, Lse, delta);
    });
    return Ladder::result();
}
