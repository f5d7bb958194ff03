// lstm_ops_host.cpp -- lstm_ops.h for every backend of a CPU.
#include <algorithm>
#include <cstring>
#include "kernels/cpu/threads.h"
#include "models/lstm_ops.h"

namespace BACKEND {

// Calls f(row) for so many rows of `width` elements; a task has about 2,048 elements.
template <class F> static void each_row(int count, int width, const F& f) {
    const int rows = std::max(1, 2048 / width);
    parallel_for((count + rows - 1) / rows, [&](int task) {
        for (int row = task * rows; row < std::min(count, (task + 1) * rows); row++) f(size_t(row));
    });
}

void transpose_rows(void* out, const void* inp, int B, int T, size_t bytes, Stream) {
    each_row(T, std::max(1, int(size_t(B) * bytes / 64)), [&](size_t t) {
        for (size_t b = 0; b < size_t(B); b++)
            std::memcpy(static_cast<char*>(out) + (t * size_t(B) + b) * bytes,
                        static_cast<const char*>(inp) + (b * size_t(T) + t) * bytes, bytes);
    });
}

void lstm_cell_forward(floatX* h, float* c, floatX* gates, const floatX* recurrent, const float* c_before, int B, int C,
                       Stream) {
    each_row(B, C, [&](size_t row) {
        const size_t at = row * size_t(C);
        cell_forward(h + at, c + at, gates + 4 * at, recurrent + 4 * at, c_before + at, C, 0, C);
    });
}

void lstm_cell_backward(floatX* gates, float* dc, const floatX* dh, const floatX* dh_later, const float* c,
                        const float* c_before, int B, int C, Stream) {
    each_row(B, C, [&](size_t row) {
        const size_t at = row * size_t(C);
        cell_backward(gates + 4 * at, dc + at, dh + at, dh_later + at, c + at, c_before + at, C, 0, C);
    });
}

}  // namespace BACKEND
