// optimizer_cases.h -- holds the rule of an optimizer to a formula of its own, written in double and not in the rule.
//
//     TEST(sgd) {
//         expect_formula(sgd_info, {0.9, 0.1}, [](const Formula& f) {
//             f.state[0] = f.hyper[0] * f.state[0] + f.grad + f.decay * f.hyper[1] * f.w;
//             f.w -= f.lr * f.state[0];
//         });
//     }
//
// A fork writes that for its optimizer into tests/kernels/test_NAME.cpp; all else that is tested of optimizers goes
// over the list.
#pragma once
#include "tests/kernels/kernel_cases.h"
#include "build/optimizers.h"
#include "tests/models/device.h"

// What a formula computes with for one weight in one step. hyper: the values of OptimizerInfo::hyper.
struct Formula {
    double& w;
    double* state;          // as many as OptimizerInfo::state
    double grad;            // the clipped mean
    double decay;           // factor of weight decay
    double lr;              // with the tensor's factor
    const Rates& rates;     // of the tensor
    const double* hyper;
    int update;             // from 1
};

inline std::vector<double> default_values(const OptimizerInfo& info) {
    std::vector<double> hyper;
    for (const Hyper& h : info.hyper) hyper.push_back(h.value);
    return hyper;
}

static const std::vector<Rates> kRatesOfUnits = {{.decay = 1}, {.decay = 0}, {.lr = 0.5f, .decay = 3, .group = 1}};

// An arena on the backend: weights, and state as it starts.
struct Updated {
    static constexpr size_t n = 3 * kUnit;      // of kRatesOfUnits
    const OptimizerInfo& info;
    BACKEND::Device<float> master, grad{master.n};
    std::deque<BACKEND::Device<float>> arrays = {};
    std::vector<float*> array_pointers = {};
    std::vector<double> sums = std::vector<double>(size_t(info.sums));
    BACKEND::Device<BACKEND::floatX> half{master.n};
    BACKEND::Device<Rates> rates;
    BACKEND::Device<StepState> state{1};

    Updated(const OptimizerInfo& info_, const std::vector<float>& weights,
            const std::vector<Rates>& of_units = kRatesOfUnits)
        : info(info_), master(weights), rates(of_units) {
        for (const StateSpec& array : info.state) {
            arrays.emplace_back(array.from_weights ? weights : std::vector<float>(weights.size()));
            array_pointers.push_back(arrays.back().at);
        }
    }
    void prepare(const std::vector<double>& hyper, const std::vector<float>& grads, int number, float lr,
                 float scale = 0.25f, double schedule = 0.5) {
        StepState now = {42, uint32_t(number - 1), lr, scale, {}};
        info.prepare(&now, hyper.data(), number, schedule, sums.data());
        state.put(std::vector<StepState>{now});
        grad.put(grads);
    }
    BACKEND::Update arguments() {
        return {master.n, sizeof(BACKEND::floatX) == 4 ? reinterpret_cast<BACKEND::floatX*>(master.at) : half.at,
                master.at, array_pointers.data(), grad.at, rates.at, state.at};
    }
    void run(int stage) {
        BACKEND::update(find_optimizer(info.name), stage, arguments());
        BACKEND::stream_sync(nullptr);
    }
    // Update number `number`.
    void update(const std::vector<double>& hyper, const std::vector<float>& grads, int number, float lr) {
        prepare(hyper, grads, number, lr);
        run(0);
    }
};

inline float lr_of(int number) { return 1e-2f * (number < 3 ? 0.5f : 1.0f); }

// Five steps of the rule against the formula; the weights may differ by the roundings of a float.
inline void expect_formula(const OptimizerInfo& info, const std::vector<double>& hyper,
                           const std::function<void(const Formula&)>& formula) {
    constexpr size_t n = Updated::n;
    EXPECT(hyper.size() == info.hyper.size(), "%s: %zu hyperparameters", info.name, hyper.size());
    const std::vector<float> start = normal(n);
    Updated got(info, start);
    std::vector<double> w(start.begin(), start.end()), state(n * info.state.size());
    for (size_t i = 0; i < state.size(); i++)
        if (info.state[i % info.state.size()].from_weights) state[i] = double(start[i / info.state.size()]);
    double moved = 0;
    for (int number = 1; number <= 5; number++) {
        const std::vector<float> grads = normal(n, 3);
        got.update(hyper, grads, number, lr_of(number));
        for (size_t i = 0; i < n; i++) {
            const Rates& rates = kRatesOfUnits[i / kUnit];
            formula({w[i], &state[i * info.state.size()], 0.25 * double(grads[i]), rates.decay,
                     double(lr_of(number)) * rates.lr, rates, hyper.data(), number});
        }
    }
    for (size_t i = 0; i < n; i++) moved = std::fmax(moved, std::fabs(w[i] - double(start[i])));
    EXPECT(moved > 0.03, "%s: the weights moved by %g only: the test tests nothing", info.name, moved);
    // 5 steps, 2 roundings each, of values up to 4
    expect_near(got.master.host().data(), w.data(), n, 5 * 2 * kEps * 4, info.name);
}

// What AdamW subtracts, but for its rate and its decay. Its values are the first of `hyper`, its arrays of `state`.
inline double adamw_direction(const Formula& f) {
    double &m = f.state[0], &v = f.state[1];
    m = f.hyper[0] * m + (1 - f.hyper[0]) * f.grad;
    v = f.hyper[1] * v + (1 - f.hyper[1]) * f.grad * f.grad;
    const double bias1 = 1 - std::pow(f.hyper[0], f.update), bias2 = 1 - std::pow(f.hyper[1], f.update);
    return m / bias1 / (std::sqrt(v / bias2) + f.hyper[2]);
}

// Three steps of a matrix (rows, cols), of which `used` rows are no padding, against formula(weights, gradients, number
// of the step). The gradients' scale is 1e-3, and half of lr counts. What pads rows and the last unit stays zero.
template <class F>
void expect_matrix(const OptimizerInfo& info, BACKEND::MatrixRule* rule, size_t rows, size_t cols, size_t used,
                   float decay, float lr, double tolerance, const F& formula) {
    const size_t n = rows * cols, padded = round_up(n, kUnit);
    const auto random = [&] {
        std::vector<float> x = normal(used * cols);
        x.resize(padded);
        return x;
    };
    const std::vector<float> start = random();
    std::vector<double> w(start.begin(), start.begin() + std::ptrdiff_t(n));
    Updated arena(info, start, std::vector<Rates>(padded / kUnit, {.lr = 0.5f, .decay = decay}));
    const TensorSpec tensor = {info.name, rows, cols, used, false, 0, true};
    BACKEND::MatrixUpdate u = {arena.arguments(), find_optimizer(info.name), tensor, nullptr};
    const BACKEND::Device<char> work(rule(u, nullptr));
    u.work = work.at;
    double moved = 0;
    for (int number = 1; number <= 3; number++) {
        const std::vector<float> grads = random();
        arena.prepare(default_values(info), grads, number, lr, 1e-3f, 1);
        rule(u, nullptr);
        BACKEND::stream_sync(nullptr);
        formula(w, grads, number);
    }
    const std::vector<float> got = arena.master.host();
    expect_near(got.data(), w.data(), n, tolerance, format("%s %zu x %zu", info.name, rows, cols));
    for (size_t i = used * cols; i < padded; i++) EXPECT(got[i] == 0, "padding[%zu] became %g", i, double(got[i]));
    for (size_t i = 0; i < n; i++) moved = std::fmax(moved, std::fabs(double(got[i] - start[i])));
    EXPECT(moved > 1e-3, "moved by %g only", moved);
}
