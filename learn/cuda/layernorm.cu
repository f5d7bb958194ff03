// layernorm.cu -- the ladder of LayerNorm behind a residual: sum = a + b, y = (sum - mean) / deviation * weight + bias;
// and of its gradient, which learn/layernorm.md derives.
//
// An operation like this is bound by memory: a multiprocessor can do 100 operations in the time in which one number
// arrives. So each rung asks the same question: how many bytes travel, and how wide is each request?
#include "ladder.h"
#include "warp.h"

constexpr int N = SMALL ? 512 : 16384, C = 768;         // rows, and channels of each
constexpr float kEps = 1e-5f;

// a + b: one thread an element. Neighbouring threads read neighbouring numbers, which is as good as it gets: the 32
// requests of a warp become one of 128 bytes, 4 sectors. blockIdx, blockDim and threadIdx tell a thread which one it is
// (docs/tour.md, section 7). The first two rungs are timed with this kernel before them.
__global__ void add(float* sum, const float* a, const float* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N * C) sum[i] = a[i] + b[i];
}

// Rung 1: a thread for each row, as one would write it for a CPU. In each turn of the loop the 32 threads of a warp
// read numbers that lie 768 apart, so that each of them needs a sector of its own: 32 bytes for 4. The next turns want
// the rest of these sectors, which the L1 cache may still have; but the rows are read three times, and it does not hold
// the rows of all threads. And there are 16,384 threads, where an H100 has room for 132 x 2,048: most of it is idle.
__global__ void a_thread_a_row(float* y, const float* x, const float* weight, const float* bias) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    x += row * C, y += row * C;
    float mean = 0, variance = 0;
    for (int c = 0; c < C; c++) mean += x[c];
    mean /= C;
    for (int c = 0; c < C; c++) variance += (x[c] - mean) * (x[c] - mean);
    const float scale = rsqrtf(variance / C + kEps);
    for (int c = 0; c < C; c++) y[c] = (x[c] - mean) * scale * weight[c] + bias[c];
}

// Rung 2: a warp for each row. A thread's number in its warp is its lane. Its threads read 32 neighbours at a time,
// every sector is used whole, and there are 32 times more threads. warp_sum (in warp.h) adds over them by shuffles,
// which are some more instructions. The sums of a row are now made of 32 parts, so the last bits differ from rung 1's.
__global__ void a_warp_a_row(float* y, const float* x, const float* weight, const float* bias) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= N) return;
    x += row * C, y += row * C;
    float mean = 0, variance = 0;
    for (int c = lane; c < C; c += 32) mean += x[c];
    mean = warp_sum(mean) / C;
    for (int c = lane; c < C; c += 32) variance += (x[c] - mean) * (x[c] - mean);
    const float scale = rsqrtf(warp_sum(variance) / C + kEps);
    for (int c = lane; c < C; c += 32) y[c] = (x[c] - mean) * scale * weight[c] + bias[c];
}

// Rung 3: two ideas. The row stays in registers, so that it is read once and not three times; what is in registers can
// also take in the addition before it, which then needs no kernel and no second journey through memory. And a thread
// asks for 16 bytes at a time, float4: a quarter of the loads, a third of all instructions, and more bytes under way.
// The bytes are still 1.5 times the least, because weight and bias are read again for each row, from a cache.
__global__ void fused(float* sum, float* y, const float* a, const float* b, const float* weight, const float* bias) {
    constexpr int kParts = C / 128;                     // of 32 threads x 4 floats
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= N) return;
    const auto part = [&](auto* array, int k) { return reinterpret_cast<float4*>(array) + k * 32 + lane; };
    const auto four = [&](const float* array, int k) { return reinterpret_cast<const float4*>(array)[k * 32 + lane]; };
    float4 x[kParts];                                   // loops over it are unrolled: registers cannot be indexed
    float mean = 0, variance = 0;
    #pragma unroll
    for (int k = 0; k < kParts; k++) {
        const float4 p = four(a + row * C, k), q = four(b + row * C, k);
        x[k] = {p.x + q.x, p.y + q.y, p.z + q.z, p.w + q.w};
        *part(sum + row * C, k) = x[k];
        mean += x[k].x + x[k].y + x[k].z + x[k].w;
    }
    mean = warp_sum(mean) / C;
    #pragma unroll
    for (int k = 0; k < kParts; k++)
        for (const float v : {x[k].x, x[k].y, x[k].z, x[k].w}) variance += (v - mean) * (v - mean);
    const float scale = rsqrtf(warp_sum(variance) / C + kEps);
    #pragma unroll
    for (int k = 0; k < kParts; k++) {
        const float4 w = four(weight, k), o = four(bias, k);
        *part(y + row * C, k) = {(x[k].x - mean) * scale * w.x + o.x, (x[k].y - mean) * scale * w.y + o.y,
                                 (x[k].z - mean) * scale * w.z + o.z, (x[k].w - mean) * scale * w.w + o.w};
    }
}

// ---- backward: dx of each row, and dweight and dbias, which are sums over all rows

// What backward reads: (N,C) and (C), and of each row what forward has kept.
struct Given { const float *dy, *x, *weight, *mean, *scale; };

// A warp computes dx of a row, and calls add(k, c, term of dbias, term of dweight) for each c = lane + 32 k.
__device__ void row_backward(float* dx, Given g, int row, int lane, auto add) {
    const float mean = g.mean[row], scale = g.scale[row];
    const float *x = g.x + row * C, *dy = g.dy + row * C;
    float a = 0, b = 0;                                 // as learn/layernorm.md has them; sums at first
    for (int c = lane; c < C; c += 32) {
        const float d = dy[c] * g.weight[c];
        a += d;
        b += d * (x[c] - mean) * scale;
    }
    a = warp_sum(a) / C, b = warp_sum(b) / C;
    #pragma unroll
    for (int k = 0; k < C / 32; k++) {
        const int c = lane + 32 * k;
        const float norm = (x[c] - mean) * scale;
        dx[row * C + c] = (dy[c] * g.weight[c] - a - norm * b) * scale;
        add(k, c, dy[c], dy[c] * norm);
    }
}

// Rung 4: each row adds its terms to dweight and dbias in memory. All rows meet at the same 1,536 numbers, in the order
// in which they come, so the last bits differ from run to run, on the software GPU with another SOFT_GPU_SEED. Of 3 N C
// numbers that have to move 10 N C do: x twice, weight twice, dy three times, as dx could be the same array, dx, and
// two numbers of the sums.
__global__ void backward_by_atomics(float* dx, float* sums, Given g) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    row_backward(dx, g, row, lane, [&](int, int c, float dbias, float dweight) {
        atomicAdd(sums + c, dweight);
        atomicAdd(sums + C + c, dbias);
    });
}

// Rung 5: a fixed order. A warp has many rows and keeps its sums in registers, a column's in one thread; the four warps
// of a block add in shared memory, the blocks in a second kernel, both in order. train_gpt's backward does the same.
constexpr int kBlocks = 64;
__global__ void backward_in_order(float* dx, float* parts, Given g) {
    __shared__ float of_warps[4][2 * C];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float dw[C / 32] = {}, db[C / 32] = {};
    for (int row = blockIdx.x * 4 + warp; row < N; row += kBlocks * 4)
        row_backward(dx, g, row, lane, [&](int k, int, float dbias, float dweight) {
            dw[k] += dweight;
            db[k] += dbias;
        });
    #pragma unroll
    for (int k = 0; k < C / 32; k++) {
        of_warps[warp][lane + 32 * k] = dw[k];
        of_warps[warp][C + lane + 32 * k] = db[k];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < 2 * C; c += 128)
        parts[blockIdx.x * 2 * C + c] = of_warps[0][c] + of_warps[1][c] + of_warps[2][c] + of_warps[3][c];
}
__global__ void sum_of_parts(float* sums, const float* parts) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int block = 0; block < kBlocks; block++) sum += parts[block * 2 * C + c];
    sums[c] = sum;
}

// The same in plain loops, for x = a + b and dy = b: y, then dx, dweight, dbias; and of each row mean and scale.
struct Plain { Floats y, gradient, mean, scale; };
static Plain plain(const Floats& x, const Floats& dy, const Floats& w, const Floats& bias) {
    Plain p;
    std::vector<double> gradient((N + 2) * C);
    for (int row = 0; row < N; row++) {
        double mean = 0, variance = 0, a = 0, b = 0;
        for (int c = 0; c < C; c++) mean += double(x[row * C + c]) / C;
        for (int c = 0; c < C; c++) variance += pow(double(x[row * C + c]) - mean, 2) / C;
        const double scale = 1 / sqrt(variance + double(kEps));
        const auto norm = [&](int c) { return (double(x[row * C + c]) - mean) * scale; };
        const auto d = [&](int c) { return double(dy[row * C + c]) * double(w[c]); };
        for (int c = 0; c < C; c++) a += d(c) / C, b += d(c) * norm(c) / C;
        for (int c = 0; c < C; c++) {
            p.y.push_back(float(norm(c) * double(w[c]) + double(bias[c])));
            gradient[row * C + c] = (d(c) - a - norm(c) * b) * scale;
            gradient[N * C + c] += double(dy[row * C + c]) * norm(c);
            gradient[(N + 1) * C + c] += double(dy[row * C + c]);
        }
        p.mean.push_back(float(mean));
        p.scale.push_back(float(scale));
    }
    p.gradient.assign(gradient.begin(), gradient.end());
    return p;
}

int main() {
    const auto a = numbers(N * C, 1), b = numbers(N * C, 2), weight = numbers(C, 3), bias = numbers(C, 4);
    const Array<float> A = a, B = b, W = weight, O = bias;
    Array<float> sum(N * C, "sum", C), y(N * C, "y", C);
    Floats total = a;
    for (int i = 0; i < N * C; i++) total[i] += b[i];
    const Plain want = plain(total, b, weight, bias);
    Ladder ladder("layernorm", 4.0 * N * C * sizeof(float), 8.0 * N * C, N * C);        // a, b in; sum, y out
    // Each rung leaves a + b in `sum`, too. NaNs are put there before the next one.
    const auto forward = [&](const char* name, const auto& run) {
        ladder.climb(name, y, want.y, 1e-5, run);
        printf("%s", ladder.compare(name, sum, total, 0).second.c_str());
        sum.fill(0xff);
    };
    forward("a thread a row", [&] {
        add<<<N * C / 256, 256>>>(sum, A, B);
        a_thread_a_row<<<N / 32, 32>>>(y, sum, W, O);
    });
    forward("a warp a row", [&] {
        add<<<N * C / 256, 256>>>(sum, A, B);
        a_warp_a_row<<<N / 4, 128>>>(y, sum, W, O);
    });
    forward("in registers, fused, 16 bytes", [&] { fused<<<N / 4, 128>>>(sum, y, A, B, W, O); });
    Ladder back("layernorm, backward", 3.0 * N * C * sizeof(float), 15.0 * N * C, N * C);    // x, dy in; dx out
    const Array<float> X = total, mean = want.mean, scale = want.scale;
    Array<float> out((N + 2) * C, "dx, dweight, dbias", C), parts(kBlocks * 2 * C);
    const Given given = {B, X, W, mean, scale};
    const auto climb = [&](const char* name, const auto& run) {
        back.climb(name, out, want.gradient, 1e-5, run);
        printf("    dweight[0] in bits %a\n", double(out.values()[N * C]));
    };
    climb("a warp a row, atomics", [&] {
        out.fill(0);
        backward_by_atomics<<<N / 4, 128>>>(out, out + N * C, given);
    });
    climb("sums in a fixed order", [&] {
        backward_in_order<<<kBlocks, 128>>>(out, parts, given);
        sum_of_parts<<<2 * C / 128, 128>>>(out + N * C, parts);
    });
    return Ladder::result();
}
