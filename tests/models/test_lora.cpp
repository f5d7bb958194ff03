// test_lora.cpp -- adapters beside every model of models/list, built against a backend. A model with adapters is the
// model whose matrices are W + scale B A, and their gradients follow from that model's: dB = scale dW A^T,
// dA = scale B^T dW.
#include "models/config.h"
#include "tests/models/trial.h"

namespace BACKEND { void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n); }

using namespace BACKEND;

namespace {

constexpr int kB = 2, kT = 11;

// Values that a storage type of 16 bits holds, so that only the products differ.
std::vector<float> values_for(const Arena& arena, uint32_t stream, float size) {
    std::vector<float> x(arena.n);
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const TensorSpec& spec = arena.tensors[t];
        for (size_t i = 0; i < spec.file_rows * spec.cols; i++) {
            const float u = uniform01(random4({7, stream, uint32_t(t), 0}, i).v[0]) - 0.5f;
            x[arena.offset[t] + i] = (spec.init_std == kOnes ? 1.0f : 0.0f) + size * u;
        }
    }
    return Device<floatX>(x).host();
}

double distance(const std::vector<double>& want, const float* got) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < want.size(); i++) {
        difference += (want[i] - double(got[i])) * (want[i] - double(got[i]));
        size += want[i] * want[i];
    }
    return std::sqrt(difference / size);
}

void compare(const ModelInfo& info, const std::string& targets) {
    const Shape shape = small_shape(info, 32);
    const float scale = 3;
    const Arena base = arena_layout(info.tensors(shape));
    const Trained adapters = adapters_of(base.tensors, 8, 24, targets);
    const std::vector<int>& begins = adapters.begins;
    const std::vector<float> W = values_for(base, 1, 0.4f), AB = values_for(adapters, 2, 0.3f);

    std::vector<float> merged = W;
    for (size_t t = 0; t < base.tensors.size(); t++) {
        if (begins[t] == begins[t + 1]) continue;
        const TensorSpec& w = base.tensors[t];
        const float *A = &AB[adapters.offset[size_t(begins[t])]], *B = &AB[adapters.offset[size_t(begins[t]) + 1]];
        for (size_t i = 0; i < w.rows; i++)
            for (size_t j = 0; j < w.cols; j++)
                for (size_t k = 0; k < 8; k++)
                    merged[base.offset[t] + i * w.cols + j] += scale * B[i * 8 + k] * A[k * w.cols + j];
    }

    Trial plain(info, shape, kB, kT, merged);
    const Device<floatX> frozen(W);
    Trial adapted(info, shape, kB, kT, AB, 0, adapters, frozen.at);
    const double want = plain.backward().loss, loss = adapted.backward().loss;
    const std::vector<float> dW = plain.grads.host(), got = adapted.grads.host();
    const double tolerance = kExact ? 2e-5 : 0.06;
    EXPECT(std::fabs(loss - want) < tolerance * want, "loss %.7g, want %.7g", loss, want);

    for (size_t t = 0; t < base.tensors.size(); t++) {
        if (begins[t] == begins[t + 1]) continue;
        const TensorSpec& w = base.tensors[t];
        const size_t a = adapters.offset[size_t(begins[t])], b = adapters.offset[size_t(begins[t]) + 1];
        std::vector<double> dA(8 * w.cols), dB(w.rows * 8);
        for (size_t i = 0; i < w.rows; i++)
            for (size_t j = 0; j < w.cols; j++)
                for (size_t k = 0; k < 8; k++) {
                    const double d = double(scale) * double(dW[base.offset[t] + i * w.cols + j]);
                    dA[k * w.cols + j] += d * double(AB[b + i * 8 + k]);
                    dB[i * 8 + k] += d * double(AB[a + k * w.cols + j]);
                }
        const double off_A = distance(dA, &got[a]), off_B = distance(dB, &got[b]);
        EXPECT(off_A < tolerance && off_B < tolerance, "%s: dA is off by %.2g, dB by %.2g", w.name.c_str(), off_A,
               off_B);
    }
    for (int recompute = 1; recompute <= 3; recompute++) {
        Trial again(info, shape, kB, kT, AB, recompute, adapters, frozen.at);
        const bool same_loss = again.backward().loss == loss;
        EXPECT(same_loss && same_bits(again.grads.host(), got), "--recompute %d: other bits", recompute);
    }
    adapted.backward({.B = kB, .T = kT, .accumulate = true});
    const std::vector<float> twice = adapted.grads.host();
    for (size_t i = 0; i < adapters.n; i++)
        EXPECT(std::isnan(got[i]) || twice[i] == 2 * got[i], "accumulated: %g, want 2 x %g", double(twice[i]),
               double(got[i]));
}

}  // namespace

TEST(adapters_are_a_sum_of_matrices) {
    each_model([](const ModelInfo& info, const Shape&) { compare(info, "all"); });
}

TEST(some_matrices_have_adapters) {
    compare(*find_model("gpt2"), "c_attn,c_fc");
    compare(*find_model("llama"), "o_proj,down_proj");
}

TEST(no_elements) {
    const Device<floatX> x(std::vector<float>(64, NAN));
    add_scaled(x.at, nullptr, 2, x.at, 0);
    add_scaled(x.at, x.at, 2, x.at, 0);
    for (const float value : x.host()) EXPECT(std::isnan(value), "something is written");
}
