// attention.cu -- the ladder of causal attention: for each position t, out = sum over u <= t of p(t,u) v(u).
//
// p(t,u) are the probabilities e^(q(t) . k(u) / sqrt(D)) / total.
//
// The T x T matrix of scores is the whole difficulty: for 1,024 positions and 12 heads it is 25 MB for each text, and
// q, k, v and out together are 6 MB. The ladder is about never writing it down.
#include "ladder.h"

constexpr int H = SMALL ? 2 : 48, T = SMALL ? 256 : 1024, D = 64;       // heads, positions, channels of a head
// Scores are multiplied by 1 / sqrt(D), and by log2(e): e^x is 2^(x log2(e)), and a GPU has an instruction for 2^x.
constexpr float kScale = 0.125f * 1.44269504f;
__device__ float warp_sum(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}
__device__ float warp_max(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

// Rung 1: three kernels, as the formula says: all scores, a softmax of each row, and the sum over values. The scores
// travel through memory four times. Scores of the future, u > t, are computed and thrown away.
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
// of values. When a larger score comes, total and sum are multiplied by 2^(old - new): they are then what they would
// have been with the new one from the start. That is the online softmax (Milakov and Gimelshein 2018), and nothing of
// size T x T is left. But each position reads all keys and values before it again.
__global__ void online_softmax(float* out, const float* q, const float* k, const float* v) {
    const int t = blockIdx.x * blockDim.y + threadIdx.y, h = blockIdx.y, lane = threadIdx.x;
    const auto two = [&](const float* x, int row) {     // the lane's two channels
        return reinterpret_cast<const float2*>(x + (h * T + row) * D)[lane];
    };
    const float2 own = two(q, t);
    float largest = -INFINITY, total = 0;
    float2 sum = {0, 0};
    for (int u = 0; u <= t; u++) {
        const float2 key = two(k, u), value = two(v, u);
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
// of mma, lie in its registers, become probabilities there and are the left operand of the product with the values.
// ldmatrix and mma are those of matmul.cu; with .trans each matrix of 8 x 8 comes transposed.
#define LDMATRIX(trans, r, row) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(unsigned(__cvta_generic_to_shared(row))))
__device__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ unsigned packed(float low, float high) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&two);
}
using Tile = bf16[64][D + 8];                           // padded, so that ldmatrix meets no bank twice
__device__ void load(Tile& to, const bf16* from) {      // 64 rows of D
    for (int i = threadIdx.x; i < 64 * D / 8; i += 128)
        *reinterpret_cast<uint4*>(&to[i / 8][i % 8 * 8]) = reinterpret_cast<const uint4*>(from)[i];
}
// scores (16,64) = the warp's rows of q times the transpose of the keys
__device__ void products(float (&s)[8][4], const Tile& q, const Tile& k, int row, int lane) {
    #pragma unroll
    for (int d = 0; d < D; d += 16) {
        unsigned a[4], b[4];
        LDMATRIX("", a, &q[row + lane % 16][d + lane / 16 * 8]);
        #pragma unroll
        for (int u = 0; u < 64; u += 16) {
            LDMATRIX("", b, &k[u + lane % 8 + lane / 16 * 8][d + lane / 8 % 2 * 8]);
            mma(s[u / 8], a, b[0], b[1]);
            mma(s[u / 8 + 1], a, b[2], b[3]);
        }
    }
}
// sum (16,D) += p (16,64) times the values
__device__ void add_values(float (&sum)[8][4], const float (&p)[8][4], const Tile& v, int lane) {
    #pragma unroll
    for (int u = 0; u < 64; u += 16) {                  // a result of mma is laid out as its left operand
        const float(&x)[4] = p[u / 8], (&y)[4] = p[u / 8 + 1];
        const unsigned a[4] = {packed(x[0], x[1]), packed(x[2], x[3]), packed(y[0], y[1]), packed(y[2], y[3])};
        #pragma unroll
        for (int d = 0; d < D; d += 16) {
            unsigned b[4];
            LDMATRIX(".trans", b, &v[u + lane % 16][d + lane / 16 * 8]);
            mma(sum[d / 8], a, b[0], b[1]);
            mma(sum[d / 8 + 1], a, b[2], b[3]);
        }
    }
}
__device__ float quad(float x, bool is_max) {           // over the four lanes that have a row
    for (int distance = 1; distance < 4; distance *= 2) {
        const float other = __shfl_xor_sync(~0u, x, distance);
        x = is_max ? fmaxf(x, other) : x + other;
    }
    return x;
}
__global__ void tiles(float* out, const bf16* q, const bf16* k, const bf16* v) {
    __shared__ Tile qs, ks, vs;
    const int t0 = blockIdx.x * 64, h = blockIdx.y, lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    float sum[8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {};       // a lane has rows t and t + 8
    load(qs, q + (h * T + t0) * D);
    for (int u0 = 0; u0 <= t0; u0 += 64) {              // tiles of the future are not touched at all
        __syncthreads();                                // all are done with the tiles before
        load(ks, k + (h * T + u0) * D);
        load(vs, v + (h * T + u0) * D);
        __syncthreads();
        float s[8][4] = {};
        products(s, qs, ks, row, lane);
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            const int t = t0 + row + lane / 4 + half * 8;
            float most = largest[half], added = 0;
            #pragma unroll
            for (int j = 0; j < 16; j++) {
                float& score = s[j / 2][half * 2 + j % 2];
                score = u0 + j / 2 * 8 + lane % 4 * 2 + j % 2 <= t ? score * kScale : -INFINITY;
                most = fmaxf(most, score);
            }
            most = quad(most, true);
            const float keep = exp2f(largest[half] - most);
            #pragma unroll
            for (int j = 0; j < 16; j++) {
                float& score = s[j / 2][half * 2 + j % 2];
                added += score = exp2f(score - most);
                sum[j / 2][half * 2 + j % 2] *= keep;
            }
            total[half] = total[half] * keep + quad(added, false);
            largest[half] = most;
        }
        add_values(sum, s, vs, lane);
    }
    for (int j = 0; j < 8; j++)
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<float2*>(out + (h * T + t0 + row + lane / 4 + half * 8) * D + j * 8 + lane % 4 * 2) =
                {sum[j][half * 2] / total[half], sum[j][half * 2 + 1] / total[half]};
}

// The same in plain loops.
static Floats plain(const Floats& q, const Floats& k, const Floats& v) {
    Floats out(q.size());
    for (int row = 0; row < H * T; row++) {
        std::vector<double> sum(D);
        double total = 0;
        for (int u = row / T * T; u <= row; u++) {
            double score = 0;
            for (int d = 0; d < D; d++) score += double(q[row * D + d]) * double(k[u * D + d]);
            const double p = exp2(score * double(kScale));
            total += p;
            for (int d = 0; d < D; d++) sum[d] += p * double(v[u * D + d]);
        }
        for (int d = 0; d < D; d++) out[row * D + d] = float(sum[d] / total);
    }
    return out;
}

int main() {
    constexpr int n = H * T * D;
    const auto q = numbers<bf16>(n, 1), k = numbers<bf16>(n, 2), v = numbers<bf16>(n, 3);
    const Floats q32(q.begin(), q.end()), k32(k.begin(), k.end()), v32(v.begin(), v.end());
    const Array<bf16> Q = q, K = k, V = v;
    const Array<float> Q32 = q32, K32 = k32, V32 = v32;
    Array<float> out(n, "out", D), scores(H * T * T);
    const Floats want = plain(q32, k32, v32);
    Ladder ladder("attention", 4.0 * n * sizeof(float), 2.0 * H * T * T * D, n);     // half of 4 H T T D: causal
    ladder.climb("the matrix of scores", out, want, 1e-5, [&] {
        all_scores<<<dim3(T / 128, T, H), 128>>>(scores, Q32, K32);
        softmax<<<H * T / 4, dim3(32, 4)>>>(scores);
        sum_of_values<<<dim3(T, H), D>>>(out, scores, V32);
    });
    out.fill(0xff);
    ladder.climb("the online softmax", out, want, 1e-5, [&] {
        online_softmax<<<dim3(T / 4, H), dim3(32, 4)>>>(out, Q32, K32, V32);
    });
    out.fill(0xff);
    ladder.bytes = 3.0 * n * sizeof(bf16) + n * sizeof(float);
    ladder.climb("tiles, mma.sync, bf16", out, want, 1e-2, [&] { tiles<<<dim3(T / 64, H), 128>>>(out, Q, K, V); });
    return ladder.result();
}
