// layernorm.cu -- LayerNorm, or RMSNorm if mean is null,
// alone and after a residual add, and the backward of both.
//
// A pack is 8 channels, 16 bytes. A thread holds at most 4 packs of a row. So one warp has a row of
// up to 1024 channels; 2, 4 or 8 warps have a longer one. Forward keeps the row in registers
// between its two passes, for the mean and for the variance. The residual is rounded to bf16 before
// mean and variance are computed, so that backward sees the same numbers. All arithmetic is fp32.
//
// Backward computes, with xhat = (inp - mean) rstd and g = dout weight,
//     dinp += rstd (g - average(g) - xhat average(g xhat)),    the averages over the row,
// and for dweight and dbias the sums of dout xhat and dout over all rows. For RMSNorm 0 stands for
// the mean and for average(g). A thread keeps the sums of its channels over all of its rows. These
// sums take so many registers that few warps fit, too few to hide a load. So the thread's packs of
// the next row are copied to shared memory while it works on a row. A second kernel adds the
// blocks' sums in a fixed order; the number of blocks depends on N and C alone.
#include <algorithm>
#include "kernels/cuda/common.cuh"
#include "kernels/elements.h"

namespace BACKEND {
namespace {

constexpr int kMaxWarps = 8;    // at most this many warps per row
constexpr int kBlockWarps = 4;    // warps of a block, unless a row needs more
constexpr int kMaxPacks = 4;    // at most this many packs per thread
// This is the number of an H100. It is a constant, so that bits do not depend on the device. On an
// H100 all blocks of backward run at one time if a row has up to 4 warps; longer rows get more.
constexpr int kMultiprocessors = 132;
// Rows per slot in backward; with fewer the second kernel would cost too much
constexpr int kMinRows = 4;
constexpr int kReduceColumns = 32, kReduceWarps = 16;

// A slot is the `warps` neighbouring warps that share a row. RowPlace says which slot of its block
// a thread is in, and which packs of the row it has.
struct RowPlace {
    int warps;
    int stride = warps * 32;    // threads of a slot
    int slot = int(threadIdx.x) / stride, slots = int(blockDim.x) / stride;
    int thread = int(threadIdx.x) % stride;    // its number in the slot
    // The thread's packs of the row are thread, thread + stride, ...
    __device__ int pack(int j) const { return thread + j * stride; }
};

// Returns the sum over a row, the same bits in all of its threads. All threads of the block call
// it. The row's warps exchange their sums in one half of `sums`, and next time in the other. A
// thread comes to the next barrier only after it has read this half. So this half can be written
// again after one more barrier.
__device__ float sum_of_row(float x, const RowPlace& p, float (&sums)[2 * kMaxWarps], int* half) {
    x = warp_sum(x);
    if (p.warps == 1) return x;
    if (p.thread % 32 == 0) sums[*half + warp()] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < p.warps; w++) x += sums[*half + p.slot * p.warps + w];
    *half ^= kMaxWarps;
    return x;
}

// `warps` warps compute a row. If branch is null, nothing is added to inp, and no residual is
// written. The second launch bound says how many blocks a multiprocessor's registers must allow.
template <int PACKS>
__global__ void __launch_bounds__(kMaxWarps * 32, PACKS < 2 ? 4 : PACKS < 4 ? 3 : 2)
layernorm_forward_kernel(floatX* residual, floatX* out, float* mean, float* rstd, const floatX* inp,
                         const floatX* branch, const floatX* weight, const floatX* bias, float eps,
                         int N, int C, int warps, Dropout drop) {
    __shared__ float sums[2 * kMaxWarps];
    grid_dependency_sync();
    int half = 0;
    const RowPlace p = {warps};
    const int row = int(blockIdx.x) * p.slots + p.slot;
    const int own = row < N ? C / 8 : 0;    // the row's packs; 0 if there is no row
    const size_t begin = size_t(row) * C;
    Pack8 x[PACKS];
    for (int j = 0; j < PACKS; j++)
        x[j] = p.pack(j) < own ? load8(inp + begin + p.pack(j) * 8) : Pack8{};
    if (branch)
        #pragma unroll
        for (int j = 0; j < PACKS; j++) {
            const int i = p.pack(j);
            if (i >= own) continue;
            Pack8 add = load8(branch + begin + i * 8);
            if (drop.rate > 0) dropout8(drop, begin + i * 8, &add);
            for (int k = 0; k < 8; k++) x[j].x[k] = to_float(to_bf16(x[j].x[k] + add.x[k]));
            store8(residual + begin + i * 8, x[j]);
        }
    float sum = 0, squares = 0;
    for (int j = 0; j < PACKS; j++) for (int k = 0; k < 8; k++) sum += x[j].x[k];
    const float m = mean ? sum_of_row(sum, p, sums, &half) / float(C) : 0;
    for (int j = 0; j < PACKS; j++) if (p.pack(j) < own)
        for (int k = 0; k < 8; k++) {
            const float d = x[j].x[k] - m;
            squares = fmaf(d, d, squares);
        }
    const float r = 1.0f / sqrtf(sum_of_row(squares, p, sums, &half) / float(C) + eps);
    for (int j = 0; j < PACKS; j++) {
        const int i = p.pack(j);
        if (i >= own) continue;
        const Pack8 w = load8(weight + i * 8), b = bias ? load8(bias + i * 8) : Pack8{};
        for (int k = 0; k < 8; k++) x[j].x[k] = fmaf((x[j].x[k] - m) * r, w.x[k], b.x[k]);
        store8(out + begin + i * 8, x[j]);
    }
    if (p.thread == 0 && own) {
        if (mean) mean[row] = m;
        rstd[row] = r;
    }
}

// Returns how many of backward's blocks share a
// multiprocessor if a block has at most kBlockWarps warps.
constexpr int blocks_at_once(int packs) { return packs < 4 ? 4 : 3; }

// In a turn each slot of the grid takes one row: of S slots, slot s takes row s in turn 0, row
// s + S in turn 1, and so on. A block writes its sums to partials[block], (2,2,C/8,4): dweight,
// then dbias; of each, the first four channels of all packs, then the last four. So neighbouring
// threads write neighbouring places.
template <int PACKS, int WARPS>
__global__ void __launch_bounds__(WARPS * 32, WARPS > kBlockWarps ? 1 : blocks_at_once(PACKS))
layernorm_backward_kernel(floatX* dinp, float* partials, const floatX* dout, const floatX* inp,
                          const float* mean, const float* rstd, const floatX* weight, int N, int C,
                          int warps, bool first) {
    __shared__ float sums[2 * kMaxWarps];
    extern __shared__ __align__(1024) unsigned char memory[];
    grid_dependency_sync();
    int half = 0;
    const RowPlace p = {warps};
    // rows: of a turn
    const int packs = C / 8, first_row = int(blockIdx.x) * p.slots, rows = int(gridDim.x) * p.slots;
    uint4 w[PACKS];
    float dweight[PACKS][8] = {}, dbias[PACKS][8] = {};
    for (int j = 0; j < PACKS; j++)
        w[j] = p.pack(j) < packs ? as<uint4>(weight + p.pack(j) * 8) : uint4{0, 0, 0, 0};

    // `memory` is a ring: it has room for the copies of two turns. `at` returns where the thread's
    // pack j of a turn is. No other thread uses it, so it needs no barrier.
    enum { kDout, kInp, kDinp };
    const auto at = [&](int turn, int which, int j) {
        return reinterpret_cast<uint4*>(memory) +
               ((turn % 2 * 3 + which) * PACKS + j) * (WARPS * 32) + threadIdx.x;
    };
    float next_mean = 0, next_rstd = 0;
    const auto fetch = [&](int turn) {
        const int row = turn * rows + first_row + p.slot;
        const int own = row < N ? packs : 0;    // the row's packs; 0 if there is no row
        // A copy that is not valid writes zeros. So does dinp's if `first` is set: += below is =.
        for (int j = 0; j < PACKS; j++) {
            const bool valid = p.pack(j) < own;
            const size_t from = valid ? size_t(row) * C + p.pack(j) * 8 : 0;
            cp_async16(at(turn, kDout, j), dout + from, valid);
            cp_async16(at(turn, kInp, j), inp + from, valid);
            cp_async16(at(turn, kDinp, j), dinp + from, valid && !first);
        }
        cp_async_commit();
        next_mean = own && mean ? mean[row] : 0;
        next_rstd = own ? rstd[row] : 0;
    };
    fetch(0);
    // All slots of a block make the same number of turns, because of the barriers in sum_of_row.
    for (int turn = 0; turn * rows + first_row < N; turn++) {
        const int row = turn * rows + first_row + p.slot, own = row < N ? packs : 0;
        const size_t begin = size_t(row) * C;
        const float m = next_mean, r = next_rstd;
        fetch(turn + 1);
        cp_async_wait<1>();
        float g_sum = 0, g_xhat_sum = 0;
        for (int j = 0; j < PACKS; j++) {
            const Pack8 y = unpack8(*at(turn, kDout, j)), v = unpack8(*at(turn, kInp, j)),
                        scale = unpack8(w[j]);
            for (int k = 0; k < 8; k++) {
                // If the thread has no pack here, y is 0, and so is all that it adds.
                const float xhat = (v.x[k] - m) * r, g = y.x[k] * scale.x[k];
                dweight[j][k] += y.x[k] * xhat;
                dbias[j][k] += y.x[k];
                g_sum += g;
                g_xhat_sum += g * xhat;
            }
        }
        const float g_mean = mean ? sum_of_row(g_sum, p, sums, &half) / float(C) : 0;
        const float g_xhat_mean = sum_of_row(g_xhat_sum, p, sums, &half) / float(C);
        for (int j = 0; j < PACKS; j++) {
            if (p.pack(j) >= own) continue;
            const Pack8 y = unpack8(*at(turn, kDout, j)), v = unpack8(*at(turn, kInp, j)),
                        scale = unpack8(w[j]);
            Pack8 dx = unpack8(*at(turn, kDinp, j));
            for (int k = 0; k < 8; k++) {
                const float xhat = (v.x[k] - m) * r, g = y.x[k] * scale.x[k];
                dx.x[k] += r * (g - g_mean - xhat * g_xhat_mean);
            }
            store8(dinp + begin + p.pack(j) * 8, dx);
        }
    }
    cp_async_wait<0>();
    // When all rows are done, the slots add their sums one after another. The copies' memory is
    // free now and holds (2,C) sums. The last slot writes the sums of the block.
    float4* const total = reinterpret_cast<float4*>(partials + size_t(blockIdx.x) * 2 * C);
    float4* const so_far = reinterpret_cast<float4*>(memory);
    for (int slot = 0; slot < p.slots; slot++) {
        __syncthreads();
        if (slot != p.slot) continue;
        float4* const to = slot == p.slots - 1 ? total : so_far;
        for (int j = 0; j < PACKS; j++) for (int upper = 0; upper < 2; upper++) {
            if (p.pack(j) >= packs) continue;
            const float *const a = dweight[j] + upper * 4, *const b = dbias[j] + upper * 4;
            const int i = upper * packs + p.pack(j), k = i + 2 * packs;
            const float4 of_weight = {a[0], a[1], a[2], a[3]}, of_bias = {b[0], b[1], b[2], b[3]};
            to[i] = slot ? so_far[i] + of_weight : of_weight;
            to[k] = slot ? so_far[k] + of_bias : of_bias;
        }
    }
}

// One block per 32 columns of (2,C), or of (C) if dbias is null. Warp w adds
// partials w, w + 16, ... of these columns; then warp 0 adds the warps' sums.
__global__ void __launch_bounds__(kReduceColumns * kReduceWarps)
reduce_partials_kernel(float* dweight, float* dbias, const float* partials, int blocks, int C,
                       bool accumulate) {
    __shared__ float warp_sums[kReduceWarps * kReduceColumns];
    grid_dependency_sync();
    constexpr int kBatch = 8;    // loads in flight
    const int warp_of_block = warp(), column = int(blockIdx.x) * kReduceColumns + lane(),
              columns = dbias ? 2 * C : C;
    // from: where (2,2,C/8,4) has this channel: the half of its pack, the pack, the element
    const int channel = column % C,
              from = column - channel + channel % 8 / 4 * (C / 2) + channel / 8 * 4 + channel % 4;
    float sum = 0;
    for (int begin = warp_of_block; begin < blocks; begin += kBatch * kReduceWarps) {
        float x[kBatch];
        for (int k = 0; k < kBatch; k++) {
            const int b = begin + k * kReduceWarps;
            x[k] = b < blocks && column < columns ? partials[size_t(b) * 2 * C + from] : 0;
        }
        for (int k = 0; k < kBatch; k++) sum += x[k];
    }
    warp_sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp_of_block != 0 || column >= columns) return;
    sum = 0;
    for (int w = 0; w < kReduceWarps; w++) sum += warp_sums[w * kReduceColumns + lane()];
    float& to = (column < C ? dweight : dbias)[channel];
    to = accumulate ? to + sum : sum;
}

// RowLayout holds the warps of a row of C channels, the
// packs of a thread, and the slots and threads of a block.
struct RowLayout { int warps, packs, slots, threads; };
RowLayout layout_of(int C) {
    static_assert(kGpuChannels == 8 * 32 * kMaxPacks * kMaxWarps);
    CHECK(C % 8 == 0 && C <= kGpuChannels, "layernorm: C is %d, want a multiple of 8 up to %d", C,
          kGpuChannels);
    int warps = 1;
    while (C > 8 * 32 * kMaxPacks * warps) warps *= 2;
    const int slots = std::max(1, kBlockWarps / warps);
    return {warps, div_up(C, 8 * 32 * warps), slots, warps * slots * 32};
}

}  // namespace

void layernorm_forward(const LayerNorm& norm, Stream stream) {
    residual_layernorm_forward(norm, norm.inp, nullptr, {}, stream);
}

void residual_layernorm_forward(const LayerNorm& norm, const floatX* inp, const floatX* branch,
                                const Dropout& drop, Stream stream) {
    const auto& [N, C, residual, out, mean, rstd, weight, bias, eps] = norm;
    constexpr decltype(&layernorm_forward_kernel<1>) kKernels[] = {
        layernorm_forward_kernel<1>, layernorm_forward_kernel<2>, layernorm_forward_kernel<3>,
        layernorm_forward_kernel<4>};
    const RowLayout l = layout_of(C);
    launch(kKernels[l.packs - 1], div_up(N, l.slots), l.threads, 0, stream, residual, out, mean,
           rstd, inp, branch, weight, bias, eps, N, C, l.warps, drop);
}

void layernorm_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout,
                        const LayerNorm& norm, bool first, bool accumulate, Stream stream) {
    const int N = norm.N, C = norm.C;
    constexpr decltype(&layernorm_backward_kernel<1, kBlockWarps>) kKernels[] = {
        layernorm_backward_kernel<1, kBlockWarps>, layernorm_backward_kernel<2, kBlockWarps>,
        layernorm_backward_kernel<3, kBlockWarps>, layernorm_backward_kernel<4, kBlockWarps>,
        layernorm_backward_kernel<3, kMaxWarps>, layernorm_backward_kernel<4, kMaxWarps>};
    const RowLayout l = layout_of(C);
    // Rows of 8 warps (C > 4096) have 3 or 4 packs per thread: entries 4 and 5
    const auto kernel = kKernels[l.packs - 1 + (l.warps > kBlockWarps ? 2 : 0)];
    const int blocks =
        std::min(kMultiprocessors * blocks_at_once(l.packs), div_up(N, l.slots * kMinRows));
    float* const partials =
        static_cast<float*>(scratch(size_t(blocks) * 2 * C * sizeof(float), stream));
    // The copies of two turns; at the end it holds (2,C) sums
    const size_t ring = 2 * 3 * l.packs * l.threads * sizeof(uint4);
    launch(kernel, blocks, l.threads, ring, stream, dinp, partials, dout, norm.inp, norm.mean,
           norm.rstd, norm.weight, N, C, l.warps, first);
    launch(reduce_partials_kernel, div_up(dbias ? 2 * C : C, kReduceColumns),
           kReduceColumns * kReduceWarps, 0, stream, dweight, dbias, partials, blocks, C,
           accumulate);
}

// The dropout of the added branch, backward: it computes the mask again. An element of each_element
// is a pack of 8.
void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop,
                      Stream stream) {
    CHECK(n % 8 == 0, "dropout_backward: %zu elements", n);
    each_element(1, n / 8, [=] ON_DEVICE(size_t, size_t pack) {
        Pack8 x = load8(dout + pack * 8);
        if (drop.rate > 0) dropout8(drop, pack * 8, &x);
        store8(dinp + pack * 8, x);
    }, stream);
}

}  // namespace BACKEND
