// lstm_ops.cu -- lstm_ops.h on a GPU, one thread per element.
//
//   Traffic    A time step's arrays, (B,4C) and (B,C), are still in the L2: its time is that of a launch.
//   Precision  fp32, one rounding per store; the state c stays fp32.
#include "kernels/cuda/common.cuh"
#include "models/lstm_ops.h"

namespace BACKEND {
namespace {

constexpr int kThreads = 128;

// The thread's element j of a row of `width` elements, which begins at `at`.
struct Place { size_t row, at; int j; };
DEVICE Place place(int width) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x, row = i / size_t(width), at = row * size_t(width);
    return {row, at, int(i - at)};
}
unsigned blocks(size_t threads) { return unsigned(div_up(threads, size_t(kThreads))); }

// One thread per word of 4 bytes of out.
__global__ void __launch_bounds__(kThreads)
transpose_rows_kernel(uint32_t* out, const uint32_t* inp, int B, int T, int words) {
    grid_dependency_sync();
    const auto [row, at, j] = place(words);
    const size_t t = row / size_t(B), b = row % size_t(B);
    if (t < size_t(T)) out[at + j] = inp[(b * size_t(T) + t) * size_t(words) + j];
}

__global__ void __launch_bounds__(kThreads)
lstm_forward_kernel(floatX* h, float* c, floatX* gates, const floatX* recurrent, const float* c_before, int B, int C) {
    grid_dependency_sync();
    const auto [row, at, j] = place(C);
    if (row < size_t(B))
        cell_forward(h + at, c + at, gates + 4 * at, recurrent + 4 * at, c_before + at, C, j, j + 1);
}

__global__ void __launch_bounds__(kThreads)
lstm_backward_kernel(floatX* gates, float* dc, const floatX* dh, const floatX* dh_later, const float* c,
                     const float* c_before, int B, int C) {
    grid_dependency_sync();
    const auto [row, at, j] = place(C);
    if (row < size_t(B))
        cell_backward(gates + 4 * at, dc + at, dh + at, dh_later + at, c + at, c_before + at, C, j, j + 1);
}

}  // namespace

void transpose_rows(void* out, const void* inp, int B, int T, size_t bytes, Stream stream) {
    launch(transpose_rows_kernel, blocks(size_t(B) * size_t(T) * bytes / 4), kThreads, 0, stream,
           static_cast<uint32_t*>(out), static_cast<const uint32_t*>(inp), B, T, int(bytes / 4));
}

void lstm_cell_forward(floatX* h, float* c, floatX* gates, const floatX* recurrent, const float* c_before, int B, int C,
                       Stream stream) {
    launch(lstm_forward_kernel, blocks(size_t(B) * size_t(C)), kThreads, 0, stream, h, c, gates, recurrent, c_before, B,
           C);
}

void lstm_cell_backward(floatX* gates, float* dc, const floatX* dh, const floatX* dh_later, const float* c,
                        const float* c_before, int B, int C, Stream stream) {
    launch(lstm_backward_kernel, blocks(size_t(B) * size_t(C)), kThreads, 0, stream, gates, dc, dh, dh_later, c,
           c_before, B, C);
}

}  // namespace BACKEND
