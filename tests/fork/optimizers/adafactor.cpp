// adafactor.cpp -- the rule of adafactor.h for every backend.
#include "kernels/elements.h"
#include "optimizers/adafactor.h"

namespace BACKEND {

// out[0] = sum of x (n) in order.
static void sum_of(float* out, const float* x, size_t n, Stream stream) {
    each_column(n, 1, [=] ON_DEVICE(size_t i, size_t) { return x[i]; },
                [=] ON_DEVICE(size_t, float sum) { out[0] = sum; }, stream);
}

// out[0] = sum of the squares of f(row, column); sums (rows) is scratch memory.
template <class F>
static void sum_squares(float* out, float* sums, size_t rows, size_t cols, const F& f, Stream stream) {
    each_row(rows, cols, [=] ON_DEVICE(size_t row, size_t column) {
        Pack<8> squares;
        for (size_t k = 0; k < 8; k++) squares.x[k] = f(row, column + k) * f(row, column + k);
        return squares;
    }, [=] ON_DEVICE(size_t row, size_t column, float sum) {
        if (column == 0) sums[row] = sum;
    }, stream);
    sum_of(out, sums, rows, stream);
}

size_t adafactor_matrix(const MatrixUpdate& u, Stream stream) {
    using rule = adafactor_rule;
    const size_t rows = u.tensor.rows, cols = u.tensor.cols;
    const float count = float(u.tensor.file_rows * cols);
    Layout place = {.memory = static_cast<char*>(u.work)};
    float *sums, *total;                        // (rows); (3): of R, of squares of U, of squares of W
    place(sums, rows);
    place(total, 3);
    if (!u.work) return place.bytes;

    float *const R = u.state[0], *const C = u.state[1], *const w = u.master;
    const float* const grad = u.grad;
    const StepState* const step = u.step;
    const Rates* const rates = u.rates;
    floatX* const param = u.param;
    const auto is_finite = [=] ON_DEVICE() { return step->grad_scale - step->grad_scale == 0; };
    const auto square = [=] ON_DEVICE(size_t row, size_t column) {
        const float g = grad[row * cols + column] * step->grad_scale;
        return g * g + step->values[rule::kEps1];
    };
    const auto keep = [=] ON_DEVICE(float* average, float x) {
        const float beta = step->values[rule::kBeta];
        if (is_finite()) *average = beta * *average + (1 - beta) * x;
    };
    each_row(rows, cols, [=] ON_DEVICE(size_t row, size_t column) {
        Pack<8> squares;
        for (size_t k = 0; k < 8; k++) squares.x[k] = square(row, column + k);
        return squares;
    }, [=] ON_DEVICE(size_t row, size_t column, float sum) {
        if (column == 0) keep(R + row, sum);
    }, stream);
    each_column(rows, cols, square, [=] ON_DEVICE(size_t column, float sum) { keep(C + column, sum); }, stream);
    sum_of(total, R, rows, stream);
    const auto direction = [=] ON_DEVICE(size_t row, size_t column) {
        const float v = R[row] / total[0] * C[column];
        return v > 0 ? grad[row * cols + column] * step->grad_scale / sqrtf(v) : 0;   // a row without gradients
    };
    sum_squares(total + 1, sums, rows, cols, direction, stream);
    sum_squares(total + 2, sums, rows, cols, [=] ON_DEVICE(size_t row, size_t column) {
        return w[row * cols + column];
    }, stream);
    each_element(rows, cols, [=] ON_DEVICE(size_t row, size_t column) {
        if (!is_finite()) return;
        const float* const p = step->values;
        const float rms_u = sqrtf(total[1] / count), rms_w = sqrtf(total[2] / count);
        const float clip = fmaxf(1.0f, rms_u / p[rule::kClip]);
        const size_t i = row * cols + column;
        w[i] = w[i] - step->lr * rates->lr * fmaxf(p[rule::kEps2], rms_w) / clip * direction(row, column);
        store(param[i], w[i]);
    }, stream);
    return place.bytes;
}

}  // namespace BACKEND
