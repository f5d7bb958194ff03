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

int main(int argc, char** argv) { return run_tests(argc, argv); }
