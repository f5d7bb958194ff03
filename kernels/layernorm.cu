// layernorm.cu -- LayerNorm, alone and behind a residual add, and its backward.
//
//   forward    residual = inp + drop(branch);   out = xhat * weight + bias,   xhat = (x - mean) * rstd,   rstd = 1 / sqrt(var + 1e-5)
//   backward   g = dout * weight;   dinp (+)= rstd * (g - average(g) - xhat * average(g * xhat))
//              dweight (+)= sum over rows of dout * xhat,   dbias (+)= sum over rows of dout
//
//   Traffic    forward: reads and writes x once (with a residual: two reads, two writes). Backward: reads dout, x, dinp, writes dinp, and
//              about 3 % for the partial sums at N = 65536, C = 768.
//   Precision  fp32. Mean and variance are two passes over the row, which stays in registers; the residual is rounded to its storage
//              type before it is measured, so that backward sees the same numbers. Fused multiply-adds are written out: with and
//              without a residual the bits are the same, so --recompute does not show in them.
//   Why        A row belongs to one warp up to 1024 channels, to 2, 4 or 8 above, and a lane holds at most 4 packs of it. In backward a
//              lane keeps its channels' sums over all the rows it meets, which leaves registers for few warps: so its part of the next
//              row is on the way to shared memory while it works on this one. At C = 768 that is 74 KB per multiprocessor, always;
//              an H200 needs 23 (4.3 TB/s x 0.7 us / 132). How many blocks share the rows, and so the order of the sums, depends on N
//              and C alone; a second kernel adds the blocks' sums in order.
#include "common.cuh"
#include "kernels.h"

#include "common.h"

namespace BACKEND {

namespace {

constexpr int kMaxWarps = 8;                        // of a row
constexpr int kBlockWarps = 4;                      // of a block, unless a row needs more
constexpr int kMaxPacks = 4;                        // of a lane
constexpr int kMaxBlocks = 1056;                    // in backward: 8 for each of an H100's multiprocessors
constexpr int kMinRows = 4;                         // rows that a warp should meet in backward, or the sums at the end cost more
constexpr int kReduceColumns = 32, kReduceSlices = 16;

DEVICE Pack8 unpack(const uint4& raw) { return load8(reinterpret_cast<const floatX*>(&raw)); }

// What a thread has to do with rows: `warps` neighbouring warps hold one.
struct Place {
    int slot, slots;        // which of the block's rows, of how many
    int lane;               // among the row's threads
    int stride;             // the row's threads: the lane's packs are lane, lane + stride, ...
    int warps;
};
DEVICE Place place_of_thread(int warps) {
    const int stride = warps * 32, thread = int(threadIdx.x);
    return {thread / stride, int(blockDim.x) / stride, thread % stride, stride, warps};
}

// Sum over a row, the same bits in all its threads. If the row has several warps they meet in `sums`, which has two halves: a barrier
// between the write and the reads is enough, for when a half is written again all have passed the other half's barrier.
DEVICE float row_sum(float x, const Place& p, float (&sums)[2 * kMaxWarps], int* half) {
    x = warp_sum(x);
    if (p.warps == 1) return x;
    if (p.lane % 32 == 0) sums[*half + int(threadIdx.x) / 32] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < p.warps; w++) x += sums[*half + p.slot * p.warps + w];
    *half ^= kMaxWarps;
    return x;
}

// One row per `warps` warps.
template <int PACKS, bool RESIDUAL>
__global__ void __launch_bounds__(kMaxWarps * 32)
layernorm_forward_kernel(floatX* residual, floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* branch,
                         const floatX* weight, const floatX* bias, int N, int C, int warps, Dropout drop) {
    SHARED(float, sums, 2 * kMaxWarps);
    grid_dependency_sync();
    int half = 0;
    const Place p = place_of_thread(warps);
    const int row = int(blockIdx.x) * p.slots + p.slot, packs = row < N ? C / 8 : 0;
    const size_t begin = size_t(row) * size_t(C);
    Pack8 x[PACKS];
    float sum = 0;
    UNROLL
    for (int j = 0; j < PACKS; j++) {
        const int i = p.lane + j * p.stride;
        if (i < packs) x[j] = load8(inp + begin + i * 8);
        else for (int k = 0; k < 8; k++) x[j].x[k] = 0;
    }
    if (RESIDUAL) {
        UNROLL
        for (int j = 0; j < PACKS; j++) {
            const int i = p.lane + j * p.stride;
            if (i >= packs) continue;
            Pack8 add = load8(branch + begin + i * 8);
            if (drop.rate > 0) dropout8(drop, begin + size_t(i) * 8, &add);
            for (int k = 0; k < 8; k++) x[j].x[k] = to_float(to_bf16(x[j].x[k] + add.x[k]));
            store8(residual + begin + i * 8, x[j]);
        }
    }
    UNROLL
    for (int j = 0; j < PACKS; j++)
        for (int k = 0; k < 8; k++) sum += x[j].x[k];
    const float m = row_sum(sum, p, sums, &half) / float(C);
    float squares = 0;
    UNROLL
    for (int j = 0; j < PACKS; j++)
        if (p.lane + j * p.stride < packs)
            for (int k = 0; k < 8; k++) {
                const float d = x[j].x[k] - m;
                squares = fmaf(d, d, squares);
            }
    const float r = 1.0f / sqrtf(row_sum(squares, p, sums, &half) / float(C) + 1e-5f);
    UNROLL
    for (int j = 0; j < PACKS; j++) {
        const int i = p.lane + j * p.stride;
        if (i >= packs) continue;
        const Pack8 w = load8(weight + i * 8), b = load8(bias + i * 8);
        for (int k = 0; k < 8; k++) x[j].x[k] = fmaf((x[j].x[k] - m) * r, w.x[k], b.x[k]);
        store8(out + begin + i * 8, x[j]);
    }
    if (p.lane == 0 && packs) {
        mean[row] = m;
        rstd[row] = r;
    }
}

// Slot s of all the grid's takes rows s, s + S, s + 2S, ... and leaves the block's sums in partials[block] (2,C): dweight, dbias.
template <int PACKS, int WARPS>
__global__ void __launch_bounds__(WARPS * 32, WARPS > kBlockWarps ? 1 : PACKS < 4 ? 4 : 3)
layernorm_backward_kernel(floatX* dinp, float* partials, const floatX* dout, const floatX* inp, const float* mean, const float* rstd,
                          const floatX* weight, int N, int C, int warps, bool first) {
    SHARED(float, sums, 2 * kMaxWarps);
    DYNAMIC_SHARED(memory);
    grid_dependency_sync();
    int half = 0;
    const Place p = place_of_thread(warps);
    const int packs = C / 8, first_row = int(blockIdx.x) * p.slots, rows = int(gridDim.x) * p.slots;     // of a turn of all slots
    uint4 w[PACKS];
    float dweight[PACKS][8] = {}, dbias[PACKS][8] = {};
    UNROLL
    for (int j = 0; j < PACKS; j++) {
        const int i = p.lane + j * p.stride;
        w[j] = i < packs ? *reinterpret_cast<const uint4*>(weight + i * 8) : uint4{0, 0, 0, 0};
    }
    // A lane's own packs of the rows of two turns: it alone writes and reads them, so no barrier is needed.
    enum { kDout, kInp, kDinp };
    const auto at = [&](int turn, int which, int j) { return reinterpret_cast<uint4*>(memory) + ((turn % 2 * 3 + which) * PACKS + j) * (WARPS * 32) + threadIdx.x; };
    float next_mean = 0, next_rstd = 0;
    const auto fetch = [&](int turn) {
        const int row = turn * rows + first_row + p.slot, own = row < N ? packs : 0;     // packs of this row, if it is one
        UNROLL
        for (int j = 0; j < PACKS; j++) {
            const int i = p.lane + j * p.stride;
            const size_t from = i < own ? size_t(row) * size_t(C) + size_t(i) * 8 : 0;
            cp_async16(at(turn, kDout, j), dout + from, i < own);
            cp_async16(at(turn, kInp, j), inp + from, i < own);
            cp_async16(at(turn, kDinp, j), dinp + from, i < own && !first);
        }
        cp_async_commit();
        next_mean = own ? mean[row] : 0;
        next_rstd = own ? rstd[row] : 0;
    };
    fetch(0);
    // All slots of a block make the same number of turns, because of the barriers in row_sum.
    for (int turn = 0; turn * rows + first_row < N; turn++) {
        const int row = turn * rows + first_row + p.slot, own = row < N ? packs : 0;
        const size_t begin = size_t(row) * size_t(C);
        const float m = next_mean, r = next_rstd;
        fetch(turn + 1);
        cp_async_wait<1>();
        float g_sum = 0, g_xhat_sum = 0;
        UNROLL
        for (int j = 0; j < PACKS; j++) {
            const Pack8 y = unpack(*at(turn, kDout, j)), v = unpack(*at(turn, kInp, j)), scale = unpack(w[j]);
            for (int k = 0; k < 8; k++) {
                const float xhat = (v.x[k] - m) * r, g = y.x[k] * scale.x[k];      // where there is no pack y is 0, and so are all sums
                dweight[j][k] += y.x[k] * xhat;
                dbias[j][k] += y.x[k];
                g_sum += g;
                g_xhat_sum += g * xhat;
            }
        }
        const float g_mean = row_sum(g_sum, p, sums, &half) / float(C), g_xhat_mean = row_sum(g_xhat_sum, p, sums, &half) / float(C);
        UNROLL
        for (int j = 0; j < PACKS; j++) {
            const int i = p.lane + j * p.stride;
            if (i >= own) continue;
            const Pack8 y = unpack(*at(turn, kDout, j)), v = unpack(*at(turn, kInp, j)), scale = unpack(w[j]);
            Pack8 dx = unpack(*at(turn, kDinp, j));
            for (int k = 0; k < 8; k++) {
                const float xhat = (v.x[k] - m) * r, g = y.x[k] * scale.x[k];
                dx.x[k] += r * (g - g_mean - xhat * g_xhat_mean);
            }
            store8(dinp + begin + i * 8, dx);
        }
    }
    cp_async_wait<0>();
    // The slots add their sums one after another, when none needs its rows any more; the last one has the block's.
    float4* const gradients = reinterpret_cast<float4*>(memory);
    float* const to = partials + size_t(blockIdx.x) * 2 * size_t(C);
    for (int slot = 0; slot < p.slots; slot++) {
        __syncthreads();
        if (slot != p.slot) continue;
        UNROLL
        for (int j = 0; j < PACKS; j++) {
            const int c = (p.lane + j * p.stride) * 8;
            if (c >= C) continue;
            for (int k = 0; k < 8; k += 4) {
                float4 a = {dweight[j][k], dweight[j][k + 1], dweight[j][k + 2], dweight[j][k + 3]};
                float4 b = {dbias[j][k], dbias[j][k + 1], dbias[j][k + 2], dbias[j][k + 3]};
                float4 *const shared_a = gradients + (c + k) / 4, *const shared_b = shared_a + C / 4;
                if (slot) {
                    const float4 s = *shared_a, t = *shared_b;
                    a = {s.x + a.x, s.y + a.y, s.z + a.z, s.w + a.w};
                    b = {t.x + b.x, t.y + b.y, t.z + b.z, t.w + b.w};
                }
                const bool last = slot == p.slots - 1;
                *(last ? reinterpret_cast<float4*>(to + c + k) : shared_a) = a;
                *(last ? reinterpret_cast<float4*>(to + C + c + k) : shared_b) = b;
            }
        }
    }
}

// One block per 32 columns of (2,C). Warp s adds the partials s, s + 16, ... of its columns, and warp 0 adds up the warps.
__global__ void __launch_bounds__(kReduceColumns * kReduceSlices)
reduce_partials_kernel(float* dweight, float* dbias, const float* partials, int blocks, int C, bool accumulate) {
    SHARED(float, slices, kReduceSlices * kReduceColumns);
    grid_dependency_sync();
    const int lane = int(threadIdx.x) % kReduceColumns, slice = int(threadIdx.x) / kReduceColumns;
    const int column = int(blockIdx.x) * kReduceColumns + lane;
    constexpr int batch = 8;                        // loads in flight
    float sum = 0;
    for (int begin = slice; begin < blocks; begin += batch * kReduceSlices) {
        float x[batch];
        UNROLL
        for (int k = 0; k < batch; k++) {
            const int b = begin + k * kReduceSlices;
            x[k] = b < blocks && column < 2 * C ? partials[size_t(b) * 2 * size_t(C) + size_t(column)] : 0;
        }
        UNROLL
        for (int k = 0; k < batch; k++) sum += x[k];
    }
    slices[slice * kReduceColumns + lane] = sum;
    __syncthreads();
    if (slice != 0 || column >= 2 * C) return;
    sum = 0;
    for (int s = 0; s < kReduceSlices; s++) sum += slices[s * kReduceColumns + lane];
    float* const to = column < C ? dweight + column : dbias + (column - C);
    *to = accumulate ? *to + sum : sum;
}

// How a row of C channels is laid out over threads.
struct Layout {
    int warps, packs;       // of a row; of a lane
    int slots;              // rows of a block
    int threads() const { return warps * slots * 32; }
};
Layout layout_of(int C, const char* what) {
    static_assert(kGpuChannels == 8 * 32 * kMaxPacks * kMaxWarps);
    CHECK(C % 8 == 0 && C <= kGpuChannels, "%s: C is %d, want a multiple of 8 up to %d", what, C, kGpuChannels);
    int warps = 1;
    while (C > 8 * 32 * kMaxPacks * warps) warps *= 2;
    return {warps, div_up(C, 8 * 32 * warps), warps < kBlockWarps ? kBlockWarps / warps : 1};
}

template <bool RESIDUAL>
void forward(floatX* residual, floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* branch, const floatX* weight,
             const floatX* bias, int N, int C, const Dropout& drop, Stream stream) {
    const Layout l = layout_of(C, "layernorm_forward");
    const auto kernel = l.packs == 1 ? layernorm_forward_kernel<1, RESIDUAL> : l.packs == 2 ? layernorm_forward_kernel<2, RESIDUAL>
                      : l.packs == 3 ? layernorm_forward_kernel<3, RESIDUAL> : layernorm_forward_kernel<4, RESIDUAL>;
    launch(kernel, unsigned(div_up(N, l.slots)), unsigned(l.threads()), 0, stream, residual, out, mean, rstd, inp, branch, weight, bias, N,
           C, l.warps, drop);
}

}  // namespace

void layernorm_forward(floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* weight, const floatX* bias,
                       int N, int C, Stream stream) {
    forward<false>(nullptr, out, mean, rstd, inp, nullptr, weight, bias, N, C, {}, stream);
}

void residual_layernorm_forward(floatX* residual, floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* branch,
                                const floatX* weight, const floatX* bias, int N, int C, const Dropout& drop, Stream stream) {
    forward<true>(residual, out, mean, rstd, inp, branch, weight, bias, N, C, drop, stream);
}

void layernorm_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp, const float* mean,
                        const float* rstd, const floatX* weight, int N, int C, bool first, bool accumulate, Stream stream) {
    const Layout l = layout_of(C, "layernorm_backward");
    const auto kernel = l.warps > kBlockWarps ? (l.packs == 3 ? layernorm_backward_kernel<3, kMaxWarps>
                                                             : layernorm_backward_kernel<4, kMaxWarps>)
                      : l.packs == 1 ? layernorm_backward_kernel<1, kBlockWarps> : l.packs == 2 ? layernorm_backward_kernel<2, kBlockWarps>
                      : l.packs == 3 ? layernorm_backward_kernel<3, kBlockWarps> : layernorm_backward_kernel<4, kBlockWarps>;
    const int wanted = div_up(N, l.slots * kMinRows), blocks = wanted < kMaxBlocks ? wanted : kMaxBlocks;
    float* const partials = static_cast<float*>(scratch(size_t(blocks) * 2 * size_t(C) * sizeof(float), stream));
    const size_t ring = size_t(2 * 3 * l.packs * l.threads()) * sizeof(uint4);        // holds (2,C) floats too where a block has several slots
    launch(kernel, unsigned(blocks), unsigned(l.threads()), ring, stream, dinp, partials, dout, inp, mean, rstd, weight, N, C, l.warps, first);
    launch(reduce_partials_kernel, unsigned(div_up(2 * C, kReduceColumns)), kReduceColumns * kReduceSlices, 0, stream, dweight, dbias,
           partials, blocks, C, accumulate);
}

}  // namespace BACKEND
