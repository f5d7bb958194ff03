// elements.h -- calls a function for all elements of a matrix, on a CPU or a GPU.
//
//     each_element(rows, columns, [=] ON_DEVICE(size_t row, size_t column) { ... }, stream);
//     each_row(rows, columns, terms, use, stream);        where every row has a sum
//     each_column(rows, columns, terms, use, stream);     where every column has one
//
// On a GPU each of these launches a kernel whose threads call the functions; neighbouring threads
// have neighbouring columns. So a model's own operations are written once. For GPUs nvcc compiles
// each source of a model or an optimizer that includes this file. Memory is fastest if a thread
// loads 16 bytes at once, so a "column" may stand for a Pack of elements.
#pragma once
#include <algorithm>
#include <bit>
#include "kernels/kernels.h"
#include "src/base/numbers.h"
#ifdef __CUDACC__
#include "kernels/cuda/common.cuh"
#define ON_DEVICE __device__
#else
#define ON_DEVICE
#include "kernels/cpu/runtime.h"
#endif

namespace BACKEND {

// widen converts a stored element to float; store rounds a
// float to storage. Host and device code may call both.
HOST_DEVICE inline float widen(float x) { return x; }
HOST_DEVICE inline float widen(bf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
HOST_DEVICE inline void store(float& to, float x) { to = x; }
HOST_DEVICE inline void store(bf16& to, float x) {    // rounds to nearest even; a NaN stays a NaN
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    to.bits = uint16_t(x != x ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// A Pack holds N neighbouring elements as floats; N is a power of two. load and
// store move up to 16 bytes in one memory access. p must be aligned to N elements.
template <int N> struct Pack { float x[N]; };
template <int N, class F> struct alignas(N * sizeof(F)) Stored { F x[N]; };
template <int N, class F> HOST_DEVICE inline Pack<N> load(const F* p) {
    const Stored<N, F> stored = *reinterpret_cast<const Stored<N, F>*>(p);
    Pack<N> pack;
    for (int k = 0; k < N; k++) pack.x[k] = widen(stored.x[k]);
    return pack;
}
template <int N, class F> HOST_DEVICE inline void store(F* p, const Pack<N>& pack) {
    Stored<N, F> stored;
    for (int k = 0; k < N; k++) store(stored.x[k], pack.x[k]);
    *reinterpret_cast<Stored<N, F>*>(p) = stored;
}

// A row's sum has 64 partial sums; number i takes columns i, i + 64, ... in order. join_halves then
// adds their upper half to the lower half until one is left. The CPU's other sums along a row have
// this order, too (docs/arithmetic.md).
constexpr int kRowSums = 64;
template <int N> HOST_DEVICE inline float join_halves(float* sums) {
    for (int n = N / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) sums[i] += sums[i + n];
    return sums[0];
}
// Returns the same sum of x(0) to x(N - 1), without an
// array: a GPU would keep a large array in local memory.
template <int N, int COUNT = 1, class X>
HOST_DEVICE inline float join_halves(const X& x, int i = 0) {
    if constexpr (COUNT == N) return x(i);
    else return join_halves<N, 2 * COUNT>(x, i) + join_halves<N, 2 * COUNT>(x, i + COUNT);
}

// Returns e^x, relative error below 1.1e-7, for x limited to -87 .. 87: 2^n e^r, |r| <= ln(2)/2,
// e^r by its series.
HOST_DEVICE inline float exponential(float x) {
    constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
    // 1.5 * 2^23: adding it rounds to a whole number, in the lowest bits
    constexpr float kToNearest = 12582912.0f;
    x = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
    const float shifted = x * kLog2e + kToNearest, n = shifted - kToNearest,
                r = (x - n * kLn2High) - n * kLn2Low;
    const float tail = 1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720 + r * (1.0f / 5040)));
    const float p = 1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6 + r * tail)));
    return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
}
HOST_DEVICE inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// each_element calls f(row, column) for all rows and columns.
//
// each_row calls use(row, column, sum) for all rows and for columns 0, 8, ...; `columns` is a
// multiple of 8. terms(row, column) returns the terms of eight columns, from `column` on, as a
// Pack, and sum is the sum of all terms of the row. use may overwrite what terms has read for the
// same row and column.
#ifdef __CUDACC__
// A block has 128 threads: 4 rows x 32 columns, or another
// split if the matrix has fewer columns or rows.
template <class F> __global__ void __launch_bounds__(128)
    each_element_kernel(size_t rows, size_t columns, F f) {
    grid_dependency_sync();
    const size_t column = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    for (size_t row = blockIdx.y * blockDim.y + threadIdx.y; row < rows;
         row += gridDim.y * blockDim.y)
        f(row, column);
}
template <class F> void each_element(size_t rows, size_t columns, const F& f, Stream stream) {
    if (rows * columns == 0) return;
    // At most this many blocks along y; CUDA allows 65,535
    constexpr size_t kThreads = 128, kMostDown = 4096;
    const size_t down =
        std::min(std::bit_ceil(rows), kThreads / std::min<size_t>(32, std::bit_ceil(columns)));
    const size_t across = kThreads / down, blocks_down = std::min(div_up(rows, down), kMostDown);
    launch(each_element_kernel<F>, dim3(unsigned(div_up(columns, across)), unsigned(blocks_down)),
           dim3(unsigned(across), unsigned(down)), 0, stream, rows, columns, f);
}

// Eight threads share a row: each takes 8 columns of every 64, and so has 8 partial sums.
template <class Terms, class Use> __global__ void __launch_bounds__(128)
    each_row_kernel(size_t rows, size_t columns, Terms terms, Use use) {
    grid_dependency_sync();
    const size_t row = thread_of_grid() / 8, first = threadIdx.x % 8 * 8,
                 end = row < rows ? columns : 0;
    Pack<8> sums = {};
    for (size_t column = first; column < end; column += kRowSums) {
        const Pack<8> more = terms(row, column);
        for (int k = 0; k < 8; k++) sums.x[k] += more.x[k];
    }
    for (int lanes = 4; lanes > 0; lanes /= 2)
        for (float& sum : sums.x) sum += __shfl_xor_sync(~0u, sum, lanes);
    const float sum = join_halves<8>(sums.x);
    for (size_t column = first; column < end; column += kRowSums) use(row, column, sum);
}
template <class Terms, class Use>
void each_row(size_t rows, size_t columns, const Terms& terms, const Use& use, Stream stream) {
    const unsigned blocks = unsigned(div_up(rows * 8, size_t(128)));
    if (blocks)
        launch(each_row_kernel<Terms, Use>, blocks, 128, 0, stream, rows, columns, terms, use);
}
#else
static_assert(!kOnGpu, "run ./configure: it tells ninja that nvcc compiles this source");
// A task computes up to 512 elements, of several rows or of a part of one row.
template <class F> void each_element(size_t rows, size_t columns, const F& f, Stream) {
    constexpr size_t kTask = 512;
    const size_t together = std::max<size_t>(1, kTask / std::max<size_t>(1, columns));
    const size_t parts = (columns + kTask - 1) / kTask;
    parallel_for(int((rows + together - 1) / together * parts), [&](int task) {
        const size_t begin = size_t(task) / parts * together,
                     end = std::min(rows, begin + together);
        const size_t first = size_t(task) % parts * kTask, last = std::min(columns, first + kTask);
        for (size_t row = begin; row < end; row++)
            for (size_t column = first; column < last; column++) f(row, column);
    });
}
template <class Terms, class Use>
void each_row(size_t rows, size_t columns, const Terms& terms, const Use& use, Stream) {
    const size_t together = std::max<size_t>(1, 4096 / columns);
    parallel_for(int((rows + together - 1) / together), [&](int task) {
        const size_t begin = size_t(task) * together, end = std::min(rows, begin + together);
        for (size_t row = begin; row < end; row++) {
            float sums[kRowSums] = {};
            for (size_t column = 0; column < columns; column += 8) {
                const Pack<8> more = terms(row, column);
                for (size_t k = 0; k < 8; k++) sums[column % kRowSums + k] += more.x[k];
            }
            const float sum = join_halves<kRowSums>(sums);
            for (size_t column = 0; column < columns; column += 8) use(row, column, sum);
        }
    });
}
#endif

// Calls use(column, sum) for all columns. sum adds up the
// floats terms(row, column) over the rows, in order.
template <class Terms, class Use>
void each_column(size_t rows, size_t columns, const Terms& terms, const Use& use, Stream stream) {
    each_element(1, columns, [=] ON_DEVICE(size_t, size_t column) {
        float sum = 0;
        for (size_t row = 0; row < rows; row++) sum += terms(row, column);
        use(column, sum);
    }, stream);
}

}  // namespace BACKEND
