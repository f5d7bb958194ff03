// elements.h -- a function of one element of a matrix, called for all of them on a CPU or a GPU.
//
//     each_element(rows, columns, [=] ON_DEVICE(size_t row, size_t column) { ... }, stream);
//
// On a GPU a thread has one element. So a model's own operations are written once: they stand in NAME_host.cpp, and
// NAME.cu includes that file for GPUs, behind kernels/cuda/common.cuh.
#pragma once
#include <algorithm>
#include <bit>
#include "kernels/kernels.h"
#include "src/base/rng.h"
#ifdef __CUDACC__
#define ON_DEVICE __device__
#else
#define ON_DEVICE
#endif
#ifndef DEVICE      // of common.cuh
#include "kernels/cpu/threads.h"
#endif

namespace BACKEND {

// Storage <-> float, in memory of the host or of the device.
HOST_DEVICE inline float widen(float x) { return x; }
HOST_DEVICE inline float widen(bf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
HOST_DEVICE inline void store(float& to, float x) { to = x; }
HOST_DEVICE inline void store(bf16& to, float x) {          // to nearest even; a NaN stays one
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    to.bits = uint16_t(x != x ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// e^x = 2^n e^r, |r| <= ln(2)/2, e^r by its series: relative error below 1e-7.
HOST_DEVICE inline float exponential(float x) {
    constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
    constexpr float kToNearest = 12582912.0f; // 1.5 * 2^23: adding it leaves a whole number in the lowest bits
    x = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
    const float shifted = x * kLog2e + kToNearest, n = shifted - kToNearest, r = (x - n * kLn2High) - n * kLn2Low;
    const float tail = 1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720 + r * (1.0f / 5040)));
    const float p = 1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6 + r * tail)));
    return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
}
HOST_DEVICE inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

#ifdef DEVICE
template <class F> __global__ void __launch_bounds__(128) each_element_kernel(size_t rows, size_t columns, F f) {
    grid_dependency_sync();
    const size_t i = thread_of_grid(), row = i / columns;
    if (row < rows) f(row, i % columns);
}
template <class F> void each_element(size_t rows, size_t columns, const F& f, Stream stream) {
    const unsigned blocks = unsigned(div_up(rows * columns, size_t(128)));
    if (blocks) launch(each_element_kernel<F>, blocks, 128, 0, stream, rows, columns, f);
}
#else
template <class F> void each_element(size_t rows, size_t columns, const F& f, Stream) {
    const size_t together = std::max<size_t>(1, 2048 / columns);        // rows of a task
    parallel_for(int((rows + together - 1) / together), [&](int task) {
        const size_t begin = size_t(task) * together, end = std::min(rows, begin + together);
        for (size_t row = begin; row < end; row++)
            for (size_t column = 0; column < columns; column++) f(row, column);
    });
}
#endif

}  // namespace BACKEND
