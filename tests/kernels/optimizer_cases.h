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

template <class T> T* on_device(const std::vector<T>& x) {
    T* p = static_cast<T*>(BACKEND::device_alloc(x.size() * sizeof(T), "test"));
    BACKEND::copy_to_device(p, x.data(), x.size() * sizeof(T), nullptr);
    BACKEND::stream_sync(nullptr);
    return p;
}
inline std::vector<float> from_device(const float* p, size_t n) {
    std::vector<float> x(n);
    BACKEND::copy_to_host(x.data(), p, n * sizeof(float), nullptr);
    return x;
}

inline std::vector<double> default_values(const OptimizerInfo& info) {
    std::vector<double> hyper;
    for (const Hyper& h : info.hyper) hyper.push_back(h.value);
    return hyper;
}

static const std::vector<Rates> kRatesOfUnits = {{.decay = 1}, {.decay = 0}, {.lr = 0.5f, .decay = 3, .group = 1}};

// An arena of three units on the backend: weights, and state that starts as zeros.
struct Updated {
    static constexpr size_t kUnits = 3, n = kUnits * kUnit;
    explicit Updated(const OptimizerInfo& info_, const std::vector<float>& weights) : info(info_) {
        master = on_device(weights);
        grad = on_device(std::vector<float>(n));
        for (const StateSpec& array : info.state)
            arrays.push_back(on_device(array.from_weights ? weights : std::vector<float>(n)));
        sums.resize(size_t(info.sums));
        half = on_device(std::vector<BACKEND::floatX>(n));
        rates = on_device(kRatesOfUnits);
        state = on_device(std::vector<StepState>(1));
    }
    ~Updated() {
        for (float* array : arrays) BACKEND::device_free(array);
        for (void* p : {(void*)master, (void*)grad, (void*)half, (void*)rates, (void*)state}) BACKEND::device_free(p);
    }
    Updated(const Updated&) = delete;
    // Update number `number`, in calls of `units` units.
    void update(const std::vector<double>& hyper, const std::vector<float>& grads, int number, float lr, size_t units) {
        StepState now = {42, uint32_t(number - 1), lr, 0.25f, {}};
        info.prepare(&now, hyper.data(), number, 0.5, sums.data());
        BACKEND::copy_to_device(state, &now, sizeof now, nullptr);
        BACKEND::copy_to_device(grad, grads.data(), n * sizeof(float), nullptr);
        run(0, units);
    }
    void run(int stage, size_t units) {
        for (size_t at = 0; at < n; at += units * kUnit) {
            std::vector<float*> own;
            for (float* array : arrays) own.push_back(array + at);
            BACKEND::floatX* param = half + at;
            if (sizeof(BACKEND::floatX) == 4) param = reinterpret_cast<BACKEND::floatX*>(master + at);
            BACKEND::update(find_optimizer(info.name), stage,
                            {.n = units * kUnit, .param = param, .master = master + at, .state = own.data(),
                             .grad = grad + at, .rates = rates + at / kUnit, .step = state});
        }
        BACKEND::stream_sync(nullptr);
    }
    const OptimizerInfo& info;
    float *master, *grad;
    std::vector<float*> arrays;
    std::vector<double> sums;
    BACKEND::floatX* half;
    Rates* rates;
    StepState* state;
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
        got.update(hyper, grads, number, lr_of(number), Updated::kUnits);
        for (size_t i = 0; i < n; i++) {
            const Rates& rates = kRatesOfUnits[i / kUnit];
            formula({w[i], &state[i * info.state.size()], 0.25 * double(grads[i]), rates.decay,
                     double(lr_of(number)) * rates.lr, rates, hyper.data(), number});
        }
    }
    for (size_t i = 0; i < n; i++) moved = std::fmax(moved, std::fabs(w[i] - double(start[i])));
    EXPECT(moved > 0.03, "%s: the weights moved by %g only: the test tests nothing", info.name, moved);
    // 5 steps, 2 roundings each, of values up to 4
    expect_near(from_device(got.master, n).data(), w.data(), n, 5 * 2 * kEps * 4, info.name);
}
