// muon.cpp -- Muon's rule for one tensor, made of operations of kernels.h and loops over elements.
//
// The Newton-Schulz iteration X <- (aI + bA + cAA) X, with A = X X^T and X of norm at most 1,
// brings all singular values of X between 0.7 and 1.2 in 5 iterations. For it a tall matrix is
// transposed. Its numbers are those of torch.optim.Muon.
#include "optimizers/muon.h"
#include <algorithm>
#include "kernels/elements.h"

namespace BACKEND {

size_t muon_matrix(const MatrixUpdate& u, Stream stream) {
    constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f, least = 1e-7f;
    const size_t cols = u.tensor.cols, side = std::min(u.tensor.rows, cols);
    Layout place = {.memory = static_cast<char*>(u.work)};
    float *direction, *squares;             // direction: at the end the orthogonal update
    floatX *x, *next, *gram, *polynomial;
    double* square;                         // of a matrix's norm
    place(direction, u.n);
    place(x, u.n);
    place(next, u.n);
    place(gram, side * side);
    place(polynomial, side * side);
    place(squares, u.tensor.rows);
    place(square, 1);
    if (!u.work) return place.bytes;

    const auto stage = [&](int number, floatX* param, float* master, const float* grad) {
        update(u.optimizer, number, {u.n, param, master, u.state, grad, u.rates, u.step}, stream);
    };
    stage(muon_rule::kDirection, x, direction, u.grad);
    float* matrix = direction;
    for (const auto& [name, rows] : matrices_of(u.tensor)) {
        const bool tall = rows > cols;
        const int shorter = std::min(rows, cols), longer = std::max(rows, cols);
        each_row(rows, cols, [=] ON_DEVICE(size_t row, size_t column) {
            Pack<8> terms = load<8>(matrix + row * cols + column);
            for (float& term : terms.x) term *= term;
            return terms;
        }, [=] ON_DEVICE(size_t row, size_t column, float sum) {
            if (column == 0) squares[row] = sum;
        }, stream);
        sum_in_order(square, squares, rows, stream);
        each_element(shorter, longer, [=] ON_DEVICE(size_t i, size_t j) {
            const float element = matrix[tall ? j * cols + i : i * cols + j];
            store(x[i * longer + j], element / fmaxf(sqrtf(*square), least));
        }, stream);
        for (int i = 5; i > 0; i--) {
            const float scale = tall && i == 1 ? std::sqrt(float(rows) / cols) : 1;
            matmul_forward(gram, x, x, nullptr, shorter, longer, shorter, stream);
            matmul_forward(polynomial, gram, gram, nullptr, shorter, shorter, shorter, stream);
            each_element(shorter, shorter, [=] ON_DEVICE(size_t row, size_t column) {
                const size_t at = row * shorter + column;
                const float sum = b * widen(gram[at]) + c * widen(polynomial[at]);
                store(polynomial[at], scale * (row == column ? sum + a : sum));
            }, stream);
            if (i == 1) break;
            matmul_backward_input(next, polynomial, x, shorter, longer, shorter, stream);
            std::swap(x, next);
        }
        matmul_backward_params(matrix, nullptr, tall ? x : polynomial, tall ? polynomial : x,
                               shorter, cols, rows, false, stream);
        matrix += rows * cols;
    }
    stage(muon_rule::kApply, u.param, u.master, direction);
    return place.bytes;
}

}  // namespace BACKEND
