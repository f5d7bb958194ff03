// embedding.cu -- tokens and positions become the start of the residual stream, and its gradient finds back to their tables.
//
//   forward    out[b,t] = drop(wte[token] + wpe[first + t])
//   backward   dwte[v] += drop(dout[b,t]) for all (b,t) whose token is v, in their order;   dwpe[t] (+)= sum over b of drop(dout[b,t])
//
//   Traffic    forward: writes N*C, reads two rows each, mostly from the L2. Backward: reads dout twice, reads and writes the rows of
//              dwte that occur and all of dwpe. A token's rows and a position's rows meet in one row each: a kernel that read dout once
//              would have to write out and read one of the two tables' sums meanwhile. So dwpe comes first, out of what
//              the L2 still has of LayerNorm's backward; at N*C = 50 M the second read is 100 MB, 23 us of a micro-batch's 91 ms at 4.3 TB/s.
//   Precision  fp32 sums, one rounding at forward's store.
//   Why        The usual backward adds rows with atomics, in whatever order they arrive. Here the rows are grouped by token first,
//              each group in order, and one warp adds up a group: integer atomics only count, and what they leave is sorted.
//              A common token makes one long sum whose time is that of its loads, one after another: for these 32 rows are kept in
//              flight. Rare ones are many; for them small batches leave room for more warps.
#include "common.cuh"
#include "kernels.h"

#include "common.h"

namespace BACKEND {

namespace {

constexpr int kWarps = 8;                           // of a block
constexpr int kBuckets = 1024;                      // token mod kBuckets: some dozens of rows each, but for the most common tokens
constexpr int kBatch = 8, kLongBatch = 32;          // rows in flight, of tokens that have few or many
constexpr int kChannels = 128;                      // of a warp in backward, 4 per lane

// One warp per row; a lane takes every 32nd pack of 8 channels.
__global__ void __launch_bounds__(kWarps * 32)
embedding_forward_kernel(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe, int N, int T, int C, int first,
                         Dropout drop) {
    const int row = int(blockIdx.x) * kWarps + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    grid_dependency_sync();
    if (row >= N) return;
    const floatX* token = wte + size_t(tokens[row]) * size_t(C);
    const floatX* position = wpe + size_t(first + row % T) * size_t(C);
    const size_t begin = size_t(row) * size_t(C);
    for (int c = lane * 8; c < C; c += 256) {
        Pack8 sum = load8(token + c);
        const Pack8 p = load8(position + c);
        for (int k = 0; k < 8; k++) sum.x[k] += p.x[k];
        if (drop.rate > 0) dropout8(drop, begin + size_t(c), &sum);
        store8(out + begin + c, sum);
    }
}

// ---------------------------------------------------------------------------------------- rows grouped by token

// One thread per row counts it into its bucket.
__global__ void count_kernel(int* counts, const int* tokens, int N) {
    grid_dependency_sync();
    const int row = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (row < N) atomicAdd(&counts[unsigned(tokens[row]) % kBuckets], 1);
}

// One block; counts become the buckets' first places. A thread has four buckets, a warp adds up its lanes, the block its warps.
__global__ void __launch_bounds__(kBuckets / 4) scan_kernel(int* counts) {
    constexpr int warps = kBuckets / 4 / 32;
    SHARED(int, warp_sums, warps);
    grid_dependency_sync();
    const int thread = int(threadIdx.x), lane = thread % 32;
    const int first = counts[thread * 4], second = counts[thread * 4 + 1], third = counts[thread * 4 + 2];
    const int own = first + second + third + counts[thread * 4 + 3];
    int sum = own;                                  // of this lane and those before it
    for (int o = 1; o < 32; o *= 2) {
        const int before = __shfl_up_sync(~0u, sum, unsigned(o));
        if (lane >= o) sum += before;
    }
    if (lane == 31) warp_sums[thread / 32] = sum;
    __syncthreads();
    for (int w = 0; w < thread / 32; w++) sum += warp_sums[w];
    const int begin = sum - own;
    counts[thread * 4] = begin;
    counts[thread * 4 + 1] = begin + first;
    counts[thread * 4 + 2] = begin + first + second;
    counts[thread * 4 + 3] = begin + first + second + third;
}

// One thread per row puts (token, row) into its bucket, at whatever place is free. `places` ends as each bucket's end.
__global__ void place_kernel(uint64_t* keys, int* places, const int* tokens, int N) {
    grid_dependency_sync();
    const int row = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (row < N) keys[atomicAdd(&places[unsigned(tokens[row]) % kBuckets], 1)] = uint64_t(tokens[row]) << 32 | unsigned(row);
}

DEVICE int warp_count(int x) {
    for (int o = 16; o; o /= 2) x += __shfl_xor_sync(~0u, x, o);
    return x;
}

// One warp per key; its lanes compare it with the others of its bucket, which gives its place by (token, row): any order in, one
// order out. The place of a token's first row gets (token, number of its rows), those of the others 0 rows.
__global__ void __launch_bounds__(kWarps * 32) sort_kernel(int2* groups, int* order, const uint64_t* keys, const int* ends, int N) {
    grid_dependency_sync();
    const int i = int(blockIdx.x) * kWarps + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    if (i >= N) return;
    const uint64_t key = keys[i];
    const int token = int(key >> 32), bucket = int(unsigned(token) % kBuckets);
    const int begin = bucket ? ends[bucket - 1] : 0, end = ends[bucket];
    int smaller = 0, earlier = 0, same = 0;         // keys of smaller tokens; of this token's earlier rows; of this token
    for (int j = begin + lane; j < end; j += 32) {
        const uint64_t other = keys[j];
        smaller += int(other >> 32) < token;
        same += int(other >> 32) == token;
        earlier += int(other >> 32) == token && other < key;
    }
    smaller = warp_count(smaller);
    earlier = warp_count(earlier);
    same = warp_count(same);
    if (lane != 0) return;
    order[begin + smaller + earlier] = int(unsigned(key));
    groups[begin + smaller + earlier] = {token, earlier ? 0 : same};
}

// ----------------------------------------------------------------------------------------------------- the sums

// Four neighbours of `dout` as floats, with forward's dropout.
DEVICE void add4(float (&sum)[4], const uint2& raw, const Dropout& drop, size_t i) {
    float x[4] = {low2(raw.x), high2(raw.x), low2(raw.y), high2(raw.y)};
    if (drop.rate > 0) {
        const Random4 r = random4({drop.state->seed, drop.purpose, drop.state->step, drop.leaf}, i / 4);
        for (int k = 0; k < 4; k++) x[k] = uniform01(r.v[k]) >= drop.rate ? x[k] / (1.0f - drop.rate) : 0.0f;
    }
    for (int k = 0; k < 4; k++) sum[k] += x[k];
}

// One warp per 32 places in `order` and 128 channels: it adds up the tokens that begin there and have min_rows to max_rows rows.
template <int BATCH, bool DROP>
__global__ void __launch_bounds__(kWarps * 32)
token_backward_kernel(float* dwte, const floatX* dout, const int2* groups, const int* order, int N, int C, int min_rows, int max_rows,
                      Dropout drop) {
    grid_dependency_sync();
    const int begin = (int(blockIdx.x) * kWarps + int(threadIdx.x) / 32) * 32, lane = int(threadIdx.x) % 32;
    const int c = int(blockIdx.y) * kChannels + lane * 4;
    if (!DROP) drop.rate = 0;
    int2 group = {0, 0};
    if (begin + lane < N) group = groups[begin + lane];
    unsigned todo = __ballot_sync(~0u, group.y >= min_rows && group.y <= max_rows);
    for (; todo; todo &= todo - 1) {
        const int i = __ffs(todo) - 1;
        const int token = __shfl_sync(~0u, group.x, i), rows = __shfl_sync(~0u, group.y, i);
        float4* const to = reinterpret_cast<float4*>(dwte + size_t(token) * size_t(C) + size_t(c));
        float4 start = {0, 0, 0, 0};
        if (c < C) start = *to;
        float sum[4] = {start.x, start.y, start.z, start.w};
        for (int done = 0; done < rows; done += BATCH) {
            const int left = rows - done;
            const int row = order[begin + i + done + (lane < left && lane < BATCH ? lane : 0)];      // lane k knows row k of the batch
            uint2 raw[BATCH];
            size_t at[BATCH];
            UNROLL
            for (int k = 0; k < BATCH; k++) {
                at[k] = size_t(__shfl_sync(~0u, row, k)) * size_t(C) + size_t(c);
                raw[k] = k < left && c < C ? *reinterpret_cast<const uint2*>(dout + at[k]) : uint2{0, 0};
            }
            UNROLL
            for (int k = 0; k < BATCH; k++)
                if (k < left) add4(sum, raw[k], drop, at[k]);
        }
        if (c < C) *to = {sum[0], sum[1], sum[2], sum[3]};
    }
}

// One thread per position and 4 channels adds over b, 8 loads in flight. Positions that were not used are 0 with "=".
__global__ void __launch_bounds__(256)
position_backward_kernel(float* dwpe, const floatX* dout, int B, int T, int C, int maxT, Dropout drop, bool accumulate) {
    grid_dependency_sync();
    constexpr int batch = 8;
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4, stride = size_t(T) * size_t(C);
    if (i >= size_t(maxT) * size_t(C)) return;
    float4* const to = reinterpret_cast<float4*>(dwpe + i);
    if (i >= stride) {
        if (!accumulate) *to = {0, 0, 0, 0};
        return;
    }
    float sum[4] = {};
    for (int b = 0; b < B; b += batch) {
        uint2 raw[batch];
        UNROLL
        for (int k = 0; k < batch; k++)
            if (b + k < B) raw[k] = *reinterpret_cast<const uint2*>(dout + size_t(b + k) * stride + i);
        UNROLL
        for (int k = 0; k < batch; k++)
            if (b + k < B) add4(sum, raw[k], drop, size_t(b + k) * stride + i);
    }
    float4 old = {0, 0, 0, 0};
    if (accumulate) old = *to;
    *to = accumulate ? float4{old.x + sum[0], old.y + sum[1], old.z + sum[2], old.w + sum[3]} : float4{sum[0], sum[1], sum[2], sum[3]};
}

}  // namespace

void embedding_forward(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe, int B, int T, int C, int first,
                       const Dropout& drop, Stream stream) {
    CHECK(C % 8 == 0, "embedding_forward: C is %d", C);
    const int N = B * T;
    launch(embedding_forward_kernel, unsigned(div_up(N, kWarps)), kWarps * 32, 0, stream, out, tokens, wte, wpe, N, T, C, first, drop);
}

void embedding_backward(float* dwte, float* dwpe, const floatX* dout, const int* tokens, int B, int T, int C, int maxT,
                        const Dropout& drop, bool accumulate, Stream stream) {
    CHECK(C % 8 == 0 && T <= maxT, "embedding_backward: C is %d, T %d, maxT %d", C, T, maxT);
    const int N = B * T;
    launch(position_backward_kernel, unsigned(div_up(size_t(maxT) * size_t(C), size_t(1024))), 256, 0, stream, dwpe, dout, B, T, C, maxT,
           drop, accumulate);
    const size_t bytes = size_t(N) * (sizeof(uint64_t) + sizeof(int2) + sizeof(int)) + kBuckets * sizeof(int);
    char* const memory = static_cast<char*>(scratch(bytes, stream));
    uint64_t* const keys = reinterpret_cast<uint64_t*>(memory);
    int2* const groups = reinterpret_cast<int2*>(keys + N);
    int *const order = reinterpret_cast<int*>(groups + N), *const places = order + N;
    const unsigned by_thread = unsigned(div_up(N, 256)), by_warp = unsigned(div_up(N, kWarps));
    device_zero(places, kBuckets * sizeof(int), stream);
    launch(count_kernel, by_thread, 256, 0, stream, places, tokens, N);
    launch(scan_kernel, 1, kBuckets / 4, 0, stream, places);
    launch(place_kernel, by_thread, 256, 0, stream, keys, places, tokens, N);
    launch(sort_kernel, by_warp, kWarps * 32, 0, stream, groups, order, keys, places, N);
    const auto add = [&](auto kernel, int min_rows, int max_rows) {
        const dim3 grid(unsigned(div_up(N, 32 * kWarps)), unsigned(div_up(C, kChannels)));
        launch(kernel, grid, kWarps * 32, 0, stream, dwte, dout, groups, order, N, C, min_rows, max_rows, drop);
    };
    if (drop.rate > 0) add(token_backward_kernel<kBatch, true>, 1, N);
    else {
        add(token_backward_kernel<kBatch, false>, 1, kLongBatch - 1);
        if (N >= kLongBatch) add(token_backward_kernel<kLongBatch, false>, kLongBatch, N);
    }
}

}  // namespace BACKEND
