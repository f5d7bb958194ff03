// test_rules.cpp -- the formulas of the fork's optimizers. It goes to tests/kernels.
#include "tests/kernels/optimizer_cases.h"

TEST(lion) {
    expect_formula(lion_info, {0.9, 0.99, 0.1}, [](const Formula& f) {
        const double u = f.hyper[0] * f.state[0] + (1 - f.hyper[0]) * f.grad;
        f.w -= f.lr * ((u > 0) - (u < 0) + f.decay * f.hyper[2] * f.w);
        f.state[0] = f.hyper[1] * f.state[0] + (1 - f.hyper[1]) * f.grad;
    });
}

TEST(ademamix) {
    expect_formula(ademamix_info, {0.9, 0.95, 0.999, 5, 1e-8, 0.1}, [](const Formula& f) {
        double &m = f.state[0], &v = f.state[1], &slow = f.state[2];
        m = f.hyper[0] * m + (1 - f.hyper[0]) * f.grad;
        v = f.hyper[1] * v + (1 - f.hyper[1]) * f.grad * f.grad;
        slow = f.hyper[2] * slow + (1 - f.hyper[2]) * f.grad;
        const double bias1 = 1 - std::pow(f.hyper[0], f.update), bias2 = 1 - std::pow(f.hyper[1], f.update);
        const double direction = (m / bias1 + f.hyper[3] * slow) / (std::sqrt(v / bias2) + f.hyper[4]);
        f.w -= f.lr * (direction + f.decay * f.hyper[5] * f.w);
    });
}

// Its matrices are Muon's, which has a test.
TEST(grouped) {
    expect_formula(grouped_info, {0.9, 0.95, 1e-8, 0.1, 0.95, 0.02, 0.05}, [](const Formula& f) {
        const double lr = f.rates.group == 1 ? 0.5 * f.hyper[6] * double(f.rates.lr) : f.lr;    // 0.5: the schedule's
        f.w -= lr * (adamw_direction(f) + f.decay * f.hyper[3] * f.w);
    });
}

TEST(schedulefree) {
    expect_formula(schedulefree_info, {0.9, 0.95, 1e-8, 0.1}, [](const Formula& f) {
        double &x = f.state[0], &z = f.state[1], &v = f.state[2], sum = 0;
        const auto square = [](int update) { return double(lr_of(update)) * double(lr_of(update)); };
        for (int i = 1; i <= f.update; i++) sum += square(i);
        v = f.hyper[1] * v + (1 - f.hyper[1]) * f.grad * f.grad;
        z -= f.lr * (f.grad / (std::sqrt(v / (1 - std::pow(f.hyper[1], f.update))) + f.hyper[2]) +
                     f.decay * f.hyper[3] * f.w);
        x += square(f.update) / sum * (z - x);
        f.w = f.hyper[0] * x + (1 - f.hyper[0]) * z;
    });
}

// The second stage exchanges y and x, and twice is not at all.
TEST(exchange) {
    const std::vector<float> start = normal(Updated::n);
    Updated arena(schedulefree_info, start);
    for (const int number : {1, 2}) arena.update({0.9, 0.95, 1e-8, 0.1}, normal(Updated::n), number, 0.5f);
    const auto now = [&] { return std::pair(arena.master.host(), arena.arrays[0].host()); };
    const auto [y, x] = now();
    EXPECT(x != y, "the average is the weights");
    arena.run(schedulefree_info.exchange);
    EXPECT(now() == std::pair(x, y), "not exchanged");
    arena.run(schedulefree_info.exchange);
    EXPECT(now() == std::pair(y, x), "not exchanged again");
}

// Three steps of matrices, one with padding rows, and of vectors.
TEST(adafactor) {
    const struct { size_t rows, cols, used; } shapes[] = {{24, 104, 24}, {112, 24, 100}, {64, 64, 64}, {1, 5000, 1}};
    for (const auto& shape : shapes) {
        const size_t rows = shape.rows, cols = shape.cols;
        std::vector<double> V(rows * cols), R(rows), C(cols);
        const auto formula = [&](std::vector<double>& W, const std::vector<float>& grad, int update) {
            const double beta = 1 - std::pow(update, -0.8), eps1 = 1e-30, eps2 = 1e-3;
            const double used = double(shape.used * cols), scale = 1e-3, lr = 0.5 * 0.1;
            std::vector<double> squares(rows * cols), U(rows * cols), row_sums(rows), column_sums(cols);
            for (size_t i = 0; i < squares.size(); i++) {
                squares[i] = scale * double(grad[i]) * scale * double(grad[i]) + eps1;
                row_sums[i / cols] += squares[i];
                column_sums[i % cols] += squares[i];
            }
            double total = 0, u2 = 0, w2 = 0;
            for (size_t i = 0; i < rows; i++) total += R[i] = beta * R[i] + (1 - beta) * row_sums[i];
            for (size_t i = 0; i < cols; i++) C[i] = beta * C[i] + (1 - beta) * column_sums[i];
            for (size_t i = 0; i < U.size(); i++) {
                V[i] = beta * V[i] + (1 - beta) * squares[i];
                U[i] = scale * double(grad[i]) / std::sqrt(rows > 1 ? R[i / cols] * C[i % cols] / total : V[i]);
                u2 += U[i] * U[i];
                w2 += W[i] * W[i];
            }
            const double step = lr * std::fmax(eps2, std::sqrt(w2 / used)) / std::fmax(1, std::sqrt(u2 / used));
            for (size_t i = 0; i < U.size(); i++) W[i] -= step * U[i];
        };
        expect_matrix(adafactor_info, BACKEND::adafactor_matrix, rows, cols, shape.used, 0, 0.1f, 1e-5, formula);
    }
}
