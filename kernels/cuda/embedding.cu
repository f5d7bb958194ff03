// embedding.cu -- adds token and position embeddings (forward),
// and adds their gradient to both tables (backward).
//
// Backward sorts rows by token, and one warp adds a token's rows in order: float atomics would add
// in order of arrival. Integer atomics only count. dout is read twice, for positions and for
// tokens. A common token's sum is long, so it loads 32 rows at a time. There are many rare tokens:
// with 8 rows at a time more warps can run.
#include "kernels/cuda/common.cuh"
#include "kernels/elements.h"
#include "src/base/common.h"

namespace BACKEND {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;   // warps and threads of a block
constexpr int kBuckets = 1024;    // rows are counted by token mod kBuckets
// Rows loaded at a time, for tokens with few or many rows
constexpr int kBatch = 8, kLongBatch = 32;
constexpr int kChannels = 128;    // channels of a warp in backward, 4 per lane

__device__ int warp_of_grid() { return int(blockIdx.x) * kWarps + warp(); }

// ------------------------ rows grouped by token

// One block counts rows by bucket and computes each bucket's
// first place from the counts. A thread owns one bucket.
__global__ void __launch_bounds__(kBuckets) count_kernel(int* places, const int* tokens, int N) {
    __shared__ int counts[kBuckets];
    __shared__ int warp_sums[kBuckets / 32];
    grid_dependency_sync();
    const int bucket = int(threadIdx.x);
    counts[bucket] = 0;
    __syncthreads();
    for (int first = bucket; first < N; first += kBuckets * kBatch) {
        int token[kBatch];
        for (int k = 0; k < kBatch; k++)
            token[k] = first + k * kBuckets < N ? tokens[first + k * kBuckets] : -1;
        for (int k = 0; k < kBatch; k++)
            if (token[k] >= 0) atomicAdd(&counts[unsigned(token[k]) % kBuckets], 1);
    }
    __syncthreads();
    int sum = counts[bucket];    // the loops add the counts of earlier lanes and warps
    for (int o = 1; o < 32; o *= 2) {
        const int before = __shfl_up_sync(~0u, sum, unsigned(o));
        if (lane() >= o) sum += before;
    }
    if (lane() == 31) warp_sums[warp()] = sum;
    __syncthreads();
    for (int w = 0; w < warp(); w++) sum += warp_sums[w];
    places[bucket] = sum - counts[bucket];
}

// One warp per key compares the key with the others of its bucket, which gives the key's place by
// (token, row). At the place of a token's first row `groups` becomes (token, number of its rows),
// at those of its other rows (token, 0).
__global__ void __launch_bounds__(kThreads)
sort_kernel(int2* groups, int* order, const uint64_t* keys, const int* ends, int N) {
    grid_dependency_sync();
    const int i = warp_of_grid();
    if (i >= N) return;
    const uint64_t key = keys[i];
    const int token = int(key >> 32), bucket = int(unsigned(token) % kBuckets);
    const int begin = bucket ? ends[bucket - 1] : 0, end = ends[bucket];
    // keys: smaller; smaller, of this token; all of this token
    int before = 0, earlier = 0, same = 0;
    for (int j = begin + lane(); j < end; j += 32) {
        const uint64_t other = keys[j];
        before += other < key;
        same += int(other >> 32) == token;
        earlier += int(other >> 32) == token && other < key;
    }
    before = warp_sum(before);
    earlier = warp_sum(earlier);
    same = warp_sum(same);
    if (lane() != 0) return;
    order[begin + before] = int(unsigned(key));
    groups[begin + before] = {token, earlier ? 0 : same};
}

// ------------------------ the sums

// Adds four neighbours of dout, of which the first is element i, to sum, after forward's dropout.
__device__ void add4(float (&sum)[4], const uint2& raw, const Dropout& drop, size_t i) {
    float x[4] = {low2(raw.x), high2(raw.x), low2(raw.y), high2(raw.y)};
    if (drop.rate > 0) dropout4(drop, i / 4, x);
    for (int k = 0; k < 4; k++) sum[k] += x[k];
}

// One warp per 32 places of `order` and 128 channels. It adds the rows of each token
// whose first row is at one of these places and which has min_rows to max_rows rows.
template <int BATCH, bool DROP>
__global__ void __launch_bounds__(kThreads, DROP ? 4 : BATCH > kBatch ? 2 : 6)
token_backward_kernel(float* dwte, const floatX* dout, const int2* groups, const int* order, int N,
                      int C, int min_rows, int max_rows, Dropout drop) {
    grid_dependency_sync();
    const int begin = warp_of_grid() * 32, c = int(blockIdx.y) * kChannels + lane() * 4;
    if (!DROP) drop.rate = 0;
    int2 group = {0, 0};
    if (begin + lane() < N) group = groups[begin + lane()];
    unsigned todo = __ballot_sync(~0u, group.y >= min_rows && group.y <= max_rows);
    for (; todo; todo &= todo - 1) {
        const int i = __ffs(todo) - 1;
        const int token = __shfl_sync(~0u, group.x, i), rows = __shfl_sync(~0u, group.y, i);
        float4* const to = reinterpret_cast<float4*>(dwte + size_t(token) * C + c);
        float4 start = {0, 0, 0, 0};
        if (c < C) start = *to;
        float sum[4] = {start.x, start.y, start.z, start.w};
        for (int done = 0; done < rows; done += BATCH) {
            const int left = rows - done;
            // Lane k holds the number of row k of the batch.
            const int row =
                order[begin + i + done + (lane() < left && lane() < BATCH ? lane() : 0)];
            uint2 raw[BATCH];
            size_t at[BATCH];
            for (int k = 0; k < BATCH; k++) {
                at[k] = size_t(__shfl_sync(~0u, row, k)) * C + c;
                raw[k] = k < left && c < C ? as<uint2>(dout + at[k]) : uint2{0, 0};
            }
            #pragma unroll
            for (int k = 0; k < BATCH; k++) if (k < left) add4(sum, raw[k], drop, at[k]);
        }
        if (c < C) *to = {sum[0], sum[1], sum[2], sum[3]};
    }
}

}  // namespace

// An element of each_element is a pack of 8 channels.
template <bool BEGIN>
static void forward(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe,
                    const Embedding& embedding, Stream stream) {
    const auto& [B, T, C, drop, begin] = embedding;
    CHECK(C % 8 == 0, "embedding_forward: C is %d", C);
    const size_t rows = size_t(B) * size_t(T), packs = size_t(C) / 8;
    each_element(rows, packs, [=, T = T, C = C, drop = drop, begin = begin]
                 ON_DEVICE(size_t row, size_t pack) {
        const size_t c = pack * 8, at = row * size_t(C) + c;
        Pack8 sum = load8(wte + size_t(tokens[row]) * size_t(C) + c);
        const auto position = [&] { return row % size_t(T) - size_t(BEGIN ? begin[row] : 0); };
        const Pack8 p = wpe ? load8(wpe + position() * size_t(C) + c) : Pack8{};
        for (int k = 0; k < 8; k++) sum.x[k] += p.x[k];
        if (drop.rate > 0) dropout8(drop, at, &sum);
        store8(out + at, sum);
    }, stream);
}

void embedding_forward(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe,
                       const Embedding& embedding, Stream stream) {
    (embedding.begin ? forward<true> : forward<false>)(out, tokens, wte, wpe, embedding, stream);
}

void embedding_backward(float* dwte, float* dwpe, const floatX* dout, const int* tokens, int maxT,
                        const Embedding& embedding, bool accumulate, Stream stream) {
    const int* const begin = embedding.begin;
    const int B = begin ? 0 : embedding.B;     // terms of a sum of dwpe
    const int T = embedding.T, C = embedding.C, N = embedding.B * T;
    const Dropout drop = embedding.drop;
    CHECK(C % 8 == 0 && T <= maxT, "embedding_backward: C is %d, T %d, maxT %d", C, T, maxT);
    if (!dwte) return;
    // dwpe (+)= the sum over b. An element is 4 channels. With "=" the rows of positions that were
    // not used become 0.
    const size_t positions = dwpe ? size_t(maxT) : 0, fours = size_t(C) / 4;
    each_element(positions, fours, [=] ON_DEVICE(size_t position, size_t four) {
        const size_t i = position * size_t(C) + four * 4, stride = size_t(T) * C;
        float4& to = as<float4>(dwpe + i);
        float sum[4] = {};
        for (int b = 0; b < B && i < stride; b += kBatch) {
            uint2 raw[kBatch];
            for (int k = 0; k < kBatch; k++)
                if (b + k < B) raw[k] = as<uint2>(dout + (b + k) * stride + i);
            #pragma unroll
            for (int k = 0; k < kBatch; k++)
                if (b + k < B) add4(sum, raw[k], drop, (b + k) * stride + i);
        }
        const float4 total = {sum[0], sum[1], sum[2], sum[3]};
        if (!accumulate) to = total;
        else if (i < stride) to = to + total;
    }, stream);
    // The work space holds places (kBuckets), keys (N), groups (N), order (N) and position_of (N).
    const size_t bytes =
        kBuckets * sizeof(int) + N * (sizeof(uint64_t) + sizeof(int2) + 2 * sizeof(int));
    int* const places = static_cast<int*>(scratch(bytes, stream));
    uint64_t* const keys = reinterpret_cast<uint64_t*>(places + kBuckets);
    int2* const groups = reinterpret_cast<int2*>(keys + N);
    int *const order = reinterpret_cast<int*>(groups + N), *const position_of = order + N;
    // dwpe takes rows as dwte does, with positions in place of tokens.
    if (dwpe && begin) {
        each_element(1, size_t(N), [=] ON_DEVICE(size_t, size_t row) {
            position_of[row] = int(row) % T - begin[row];
        }, stream);
        embedding_backward(dwpe, nullptr, dout, position_of, maxT, embedding, true, stream);
    }
    launch(count_kernel, 1, kBuckets, 0, stream, places, tokens, N);
    // Puts (token, row) into its bucket, at any free place.
    // Afterwards places[i] is the end of bucket i.
    each_element(1, size_t(N), [=] ON_DEVICE(size_t, size_t row) {
        const unsigned token = unsigned(tokens[row]);
        keys[atomicAdd(&places[token % kBuckets], 1)] = uint64_t(token) << 32 | row;
    }, stream);
    launch(sort_kernel, div_up(N, kWarps), kThreads, 0, stream, groups, order, keys, places, N);
    const auto add = [&](auto kernel, int min_rows, int max_rows) {
        launch(kernel, dim3(div_up(N, 32 * kWarps), div_up(C, kChannels)), kThreads, 0, stream,
               dwte, dout, groups, order, N, C, min_rows, max_rows, drop);
    };
    if (drop.rate > 0) return add(token_backward_kernel<kBatch, true>, 1, N);
    add(token_backward_kernel<kBatch, false>, 1, kLongBatch - 1);
    if (N >= kLongBatch) add(token_backward_kernel<kLongBatch, false>, kLongBatch, N);
}

}  // namespace BACKEND
