// muon.cpp -- Muon's rule for one matrix, made of operations of kernels.h.
//
// The Newton-Schulz iteration X <- (aI + bA + cAA) X, with A = X X^T and X of norm at most 1,
// brings all singular values of X between 0.7 and 1.2 in 5 iterations. For it a tall matrix is
// transposed, by a product with I.
#include "optimizers/muon.h"
#include <algorithm>

namespace BACKEND {

size_t muon_matrix(const MatrixUpdate& u, Stream stream) {
    constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    const int rows = u.rows, cols = u.cols;
    const int shorter = std::min(rows, cols), longer = std::max(rows, cols);
    const size_t n = u.n, square = size_t(shorter) * shorter;
    Layout place = {.memory = static_cast<char*>(u.work)};
    float *direction, *partials;            // direction: at the end the orthogonal update
    floatX *x, *next, *gram, *polynomial;
    double* norm;
    StepState* unit;                        // its grad_scale is 1 / norm
    place(direction, n);
    place(x, n);
    place(next, n);
    place(gram, square);
    place(polynomial, square);
    place(partials, n / kUnit);
    place(norm, 1);
    place(unit, 1);
    if (!u.work) return place.bytes;

    const auto stage = [&](int number, floatX* param, float* master, const float* grad,
                           const StepState* step) {
        update(u.optimizer, number, {u.n, param, master, u.state, grad, u.rates, step}, stream);
    };
    stage(muon_rule::kDirection, x, direction, u.grad, u.step);
    const float* const term = direction;
    tree_reduce(direction, partials, &term, 1, Tree::kBalanced, n, stream);
    clip_scale(unit, norm, partials, n / kUnit, 1, 1e-9, stream);
    stage(muon_rule::kScale, x, direction, direction, unit);
    if (rows > cols) {
        matrix_polynomial(polynomial, 1, 0, nullptr, 0, nullptr, shorter, stream);
        matmul_forward(next, polynomial, x, nullptr, cols, cols, rows, stream);
        std::swap(x, next);
    }
    for (int i = 5; i > 0; i--) {
        const float scale = i > 1 ? 1 : std::sqrt(std::max(1.0f, float(rows) / cols));
        matmul_forward(gram, x, x, nullptr, shorter, longer, shorter, stream);
        matmul_forward(polynomial, gram, gram, nullptr, shorter, shorter, shorter, stream);
        matrix_polynomial(polynomial, scale * a, scale * b, gram, scale * c, polynomial, shorter,
                          stream);
        if (i == 1) break;
        matmul_backward_input(next, polynomial, x, shorter, longer, shorter, stream);
        std::swap(x, next);
    }
    if (rows > cols) std::swap(x, polynomial);      // the last product is of polynomial and x
    matmul_backward_params(direction, nullptr, polynomial, x, shorter, cols, rows, false, stream);
    stage(muon_rule::kApply, u.param, u.master, direction, u.step);
    return place.bytes;
}

}  // namespace BACKEND
