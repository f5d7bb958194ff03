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
        double &m = f.state[0], &v = f.state[1];
        m = f.hyper[0] * m + (1 - f.hyper[0]) * f.grad;
        v = f.hyper[1] * v + (1 - f.hyper[1]) * f.grad * f.grad;
        const double bias1 = 1 - std::pow(f.hyper[0], f.update), bias2 = 1 - std::pow(f.hyper[1], f.update);
        const double lr = f.rates.group == 1 ? 0.5 * f.hyper[6] * double(f.rates.lr) : f.lr;    // 0.5: the schedule's
        f.w -= lr * (m / bias1 / (std::sqrt(v / bias2) + f.hyper[2]) + f.decay * f.hyper[3] * f.w);
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
    arena.update({0.9, 0.95, 1e-8, 0.1}, normal(Updated::n), 1, 0.5f, Updated::kUnits);
    arena.update({0.9, 0.95, 1e-8, 0.1}, normal(Updated::n), 2, 0.5f, Updated::kUnits);
    const auto now = [&] {
        return std::pair(from_device(arena.master, Updated::n), from_device(arena.arrays[0], Updated::n));
    };
    const auto [y, x] = now();
    EXPECT(x != y, "the average is the weights");
    arena.run(schedulefree_info.exchange, Updated::kUnits);
    EXPECT(now() == std::pair(x, y), "not exchanged");
    arena.run(schedulefree_info.exchange, 1);
    EXPECT(now() == std::pair(y, x), "not exchanged again");
}

// Adafactor in double: W (rows, cols), of which used_rows are no padding.
static void adafactor_formula(std::vector<double>& W, std::vector<double> (&state)[3], const std::vector<float>& grad,
                              size_t rows, size_t cols, size_t used_rows, double scale, double lr, int update) {
    const double beta = 1 - std::pow(update, -0.8), eps1 = 1e-30, eps2 = 1e-3, used = double(used_rows * cols);
    auto& [V, R, C] = state;
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
}

// Three steps of matrices, one with padding rows, and of vectors; the padding stays zero.
TEST(adafactor) {
    const struct { size_t rows, cols, used; } shapes[] = {{24, 104, 24}, {112, 24, 100}, {64, 64, 64}, {1, 5000, 1}};
    for (const auto& [rows, cols, used] : shapes) {
        const size_t n = rows * cols, padded = round_up(n, kUnit), units = padded / kUnit;
        const auto pad = [&](std::vector<float> x) {
            std::fill(x.begin() + std::ptrdiff_t(used * cols), x.end(), 0.0f);
            x.resize(padded, 0);
            return x;
        };
        const std::vector<float> start = pad(normal(n)), zero(padded);
        std::vector<double> w(start.begin(), start.begin() + std::ptrdiff_t(n)), hyper = default_values(adafactor_info);
        std::vector<double> state[3] = {std::vector<double>(n), std::vector<double>(rows), std::vector<double>(cols)};
        float *const master = on_device(start), *const grad = on_device(zero);
        float* const arrays[] = {on_device(zero), on_device(zero), on_device(zero)};
        BACKEND::floatX* const half = on_device(std::vector<BACKEND::floatX>(padded));
        Rates* const rates = on_device(std::vector<Rates>(units, {.lr = 0.5f, .decay = 0}));
        StepState* const step = on_device(std::vector<StepState>(1));
        BACKEND::MatrixUpdate u = {
            {padded, half, master, arrays, grad, rates, step}, find_optimizer("adafactor"), rows, cols, used, nullptr};
        if (sizeof(BACKEND::floatX) == 4) u.param = reinterpret_cast<BACKEND::floatX*>(master);
        u.work = BACKEND::device_alloc(BACKEND::adafactor_matrix(u, nullptr), "test");
        for (int number = 1; number <= 3; number++) {
            const std::vector<float> g = pad(normal(n));
            StepState now = {42, uint32_t(number - 1), 1e-1f, 1e-3f, {}};
            adafactor_info.prepare(&now, hyper.data(), number, 1, nullptr);
            BACKEND::copy_to_device(step, &now, sizeof now, nullptr);
            BACKEND::copy_to_device(grad, g.data(), padded * 4, nullptr);
            BACKEND::adafactor_matrix(u, nullptr);
            BACKEND::stream_sync(nullptr);
            adafactor_formula(w, state, g, rows, cols, used, 1e-3, 0.5 * 0.1, number);
        }
        const std::vector<float> got = from_device(master, padded);
        expect_near(got.data(), w.data(), n, 1e-5, format("adafactor %zu x %zu", rows, cols).c_str());
        for (size_t i = used * cols; i < padded; i++) EXPECT(got[i] == 0, "padding[%zu] became %g", i, double(got[i]));
        EXPECT(std::fabs(double(got[0] - start[0])) > 1e-3, "moved by %g only", double(got[0] - start[0]));
        for (void* p : {(void*)master, (void*)grad, (void*)arrays[0], (void*)arrays[1], (void*)arrays[2], (void*)half,
                        (void*)rates, (void*)step, u.work})
            BACKEND::device_free(p);
    }
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
