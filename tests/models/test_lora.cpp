// test_lora.cpp -- adapters beside every model of models/list, built against a backend. A model with adapters is the
// model whose matrices are W + scale B A, and their gradients follow from that model's: dB = scale dW A^T,
// dA = scale B^T dW.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
#include "models/config.h"
#include "models/model.h"
#include "src/base/numbers.h"
#include "tests/models/small_shape.h"
#include "tests/test.h"

namespace BACKEND { void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n); }

using namespace BACKEND;

namespace {

constexpr bool kExact = sizeof(floatX) == sizeof(float);
constexpr int kB = 2, kT = 11;

struct Device {
    std::vector<void*> all;
    ~Device() {
        for (void* p : all) device_free(p);
    }
    template <class X> X* alloc(size_t n) {
        all.push_back(device_alloc(n * sizeof(X), "test"));
        return static_cast<X*>(all.back());
    }
    floatX* weights(const std::vector<float>& values) {
        std::vector<floatX> stored(values.size());
        store_floats(stored.data(), values.data(), values.size());
        floatX* const at = alloc<floatX>(values.size());
        copy_to_device(at, stored.data(), stored.size() * sizeof(floatX), nullptr);
        stream_sync(nullptr);
        return at;
    }
    float* poisoned(size_t n) {
        const std::vector<float> poison(n, NAN);
        float* const at = alloc<float>(n);
        copy_to_device(at, poison.data(), n * sizeof(float), nullptr);
        stream_sync(nullptr);
        return at;
    }
};

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
    std::vector<floatX> stored(x.size());
    store_floats(stored.data(), x.data(), x.size());
    load_floats(x.data(), stored.data(), x.size());
    return x;
}

struct Result { double loss; std::vector<float> grads; };
Result run(Device* device, Model* m, size_t n, int passes = 1) {
    float* const grads = device->poisoned(n);
    PassResult* const result = device->alloc<PassResult>(1);
    Result r = {0, std::vector<float>(n)};
    std::vector<int> tokens, targets;
    for (int i = 0; i < kB * kT; i++) {
        tokens.push_back(int(random4({1, 2, 3, 4}, uint64_t(i)).v[0] % uint32_t(m->shape.V)));
        targets.push_back(int(random4({1, 2, 3, 4}, uint64_t(i)).v[1] % uint32_t(m->shape.V)));
    }
    model_set_gradients(m, grads);
    for (int i = 0; i < passes; i++)
        model_forward_backward(m, {.B = kB, .T = kT, .accumulate = i > 0}, result, tokens.data(), targets.data());
    copy_to_host(&r.loss, &result->loss, sizeof r.loss, nullptr);
    copy_to_host(r.grads.data(), grads, n * sizeof(float), nullptr);
    return r;
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

    Device device;
    Model plain, adapted;
    model_create(&plain, &info, shape, kB, kT, 0, device.weights(merged), true);
    const Result want = run(&device, &plain, base.n);
    floatX *const frozen = device.weights(W), *const trained = device.weights(AB);
    model_create(&adapted, &info, shape, kB, kT, 0, trained, true, adapters, frozen);
    const Result got = run(&device, &adapted, adapters.n);
    const double tolerance = kExact ? 2e-5 : 0.06;
    EXPECT(std::fabs(got.loss - want.loss) < tolerance * want.loss, "loss %.7g, want %.7g", got.loss, want.loss);

    for (size_t t = 0; t < base.tensors.size(); t++) {
        if (begins[t] == begins[t + 1]) continue;
        const TensorSpec& w = base.tensors[t];
        const size_t a = adapters.offset[size_t(begins[t])], b = adapters.offset[size_t(begins[t]) + 1];
        std::vector<double> dA(8 * w.cols), dB(w.rows * 8);
        for (size_t i = 0; i < w.rows; i++)
            for (size_t j = 0; j < w.cols; j++)
                for (size_t k = 0; k < 8; k++) {
                    const double d = double(scale) * double(want.grads[base.offset[t] + i * w.cols + j]);
                    dA[k * w.cols + j] += d * double(AB[b + i * 8 + k]);
                    dB[i * 8 + k] += d * double(AB[a + k * w.cols + j]);
                }
        const double off_A = distance(dA, &got.grads[a]), off_B = distance(dB, &got.grads[b]);
        EXPECT(off_A < tolerance && off_B < tolerance, "%s: dA is off by %.2g, dB by %.2g", w.name.c_str(), off_A,
               off_B);
    }
    model_destroy(&plain);
    model_destroy(&adapted);

    for (int recompute = 1; recompute <= 3; recompute++) {
        model_create(&adapted, &info, shape, kB, kT, recompute, trained, true, adapters, frozen);
        const Result again = run(&device, &adapted, adapters.n);
        const bool same = std::memcmp(again.grads.data(), got.grads.data(), adapters.n * sizeof(float)) == 0;
        EXPECT(again.loss == got.loss && same, "--recompute %d: other bits", recompute);
        model_destroy(&adapted);
    }
    model_create(&adapted, &info, shape, kB, kT, 0, trained, true, adapters, frozen);
    const Result twice = run(&device, &adapted, adapters.n, 2);
    for (size_t i = 0; i < adapters.n; i++)
        EXPECT(std::isnan(got.grads[i]) || twice.grads[i] == 2 * got.grads[i], "accumulated: %g, want 2 x %g",
               double(twice.grads[i]), double(got.grads[i]));
    model_destroy(&adapted);
}

}  // namespace

TEST(adapters_are_a_sum_of_matrices) {
    for (const ModelInfo* info : all_models()) try {
        compare(*info, "all");
    } catch (const TestFailure& failure) {
        throw TestFailure{format("%s: %s", info->name, failure.message.c_str())};
    }
}

TEST(some_matrices_have_adapters) {
    compare(*find_model("gpt2"), "c_attn,c_fc");
    compare(*find_model("llama"), "o_proj,down_proj");
}

TEST(no_elements) {
    Device device;
    float* const poisoned = device.poisoned(64);
    floatX* const x = reinterpret_cast<floatX*>(poisoned);
    add_scaled(x, nullptr, 2, x, 0);
    add_scaled(x, x, 2, x, 0);
    std::vector<float> after(64);
    copy_to_host(after.data(), poisoned, sizeof(float) * 64);
    for (const float value : after) EXPECT(std::isnan(value), "something is written");
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
