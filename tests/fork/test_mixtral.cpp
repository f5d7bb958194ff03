// test_mixtral.cpp -- the fork's Mixtral against transformers' numbers (tests/fork/make_mixtral.py): a test of models,
// so that ./configure finds it in tests/models.
#include <cmath>
#include <sstream>
#include <vector>
#include "tools/text/config_reader.h"
#include "models/mixtral.h"
#include "src/base/file.h"
#include "tests/models/device.h"
#include "tests/test.h"

using namespace BACKEND;

namespace {

constexpr int kB = 2, kT = 24, kSigns = 4;

// make_mixtral.py's numbers.
uint32_t golden_hash(size_t key, size_t i) {
    uint32_t h = uint32_t(key * 7919 + i) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    return h ^ h >> 13;
}

// Calls f(key, name, first element, elements) for each tensor as files have it.
template <class F> void each_part(const Arena& arena, const F& f) {
    size_t key = 0;
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const TensorSpec& spec = arena.tensors[t];
        size_t at = arena.offset[t];
        for (const auto& [name, count] : parts_of(spec)) {
            const size_t n = count * (spec.rows > 1 ? spec.cols : 1);
            f(key++, name, at, n);
            at += n;
        }
    }
}

std::vector<float> golden_weights(const Arena& arena) {
    std::vector<float> w(arena.n);
    each_part(arena, [&](size_t key, const std::string& name, size_t at, size_t n) {
        const bool norm = name.find("norm") != name.npos, gate = name.find("gate") != name.npos;
        for (size_t i = 0; i < n; i++) {
            const uint32_t h = golden_hash(key, i);
            w[at + i] = norm ? float(96 + h % 64) / 128 : (float(h % 256) * 2 - 255) / (gate ? 512 : 256);
        }
    });
    return w;
}

}  // namespace

TEST(loss_and_gradients_of_transformers) {
    std::istringstream text(read_file("tests/fork/mixtral.txt"));
    std::string line, name;
    std::getline(text, line);
    const ModelConfig config = parse_config(line, "mixtral.txt");
    double loss, aux;
    text >> name >> loss >> name >> aux;
    const Arena arena = arena_layout(config.info->tensors(config.shape));
    Device<floatX> weights(golden_weights(arena));
    Device<float> grads(arena.n);
    Device<PassResult> result(1);
    Model model;
    model_create(&model, config.info, config.shape, kB, kT, 0, weights.at, true);
    model_set_gradients(&model, grads.at);
    std::vector<int> tokens, targets;
    for (size_t i = 0; i < kB * kT; i++) {
        tokens.push_back(int(golden_hash(1000, i) % uint32_t(config.shape.V)));
        targets.push_back(int(golden_hash(1001, i) % uint32_t(config.shape.V)));
    }
    model_forward_backward(&model, {.B = kB, .T = kT}, result.at, tokens.data(), targets.data());
    PassResult got;
    copy_to_host(&got, result.at, sizeof got);
    EXPECT(std::fabs(got.loss / (kB * kT) / loss - 1) < 1e-5, "loss %.9g, want %.9g", got.loss / (kB * kT), loss);
    EXPECT(std::fabs(got.measures[0] / aux - 1) < 1e-5, "aux_loss %.9g, want %.9g", got.measures[0], aux);
    EXPECT(got.unwritten == 0 && got.measures[1] > 1, "expert_load %g", got.measures[1]);
    const std::vector<float> all = grads.host();
    each_part(arena, [&](size_t key, const std::string& tensor, size_t at, size_t n) {
        double norm, product;
        text >> name >> norm;
        EXPECT(name == tensor && norm > 0, "%s, want %s", tensor.c_str(), name.c_str());
        double own = 0, sizes = 0;
        for (size_t i = 0; i < n; i++) own += double(all[at + i]) * double(all[at + i]);
        for (size_t i = 0; i < n; i++) sizes += std::fabs(double(all[at + i])) / (kB * kT);
        own = std::sqrt(own) / (kB * kT);
        EXPECT(std::fabs(own - norm) <= 1e-5 * norm, "%s: norm %.9g, want %.9g", tensor.c_str(), own, norm);
        for (size_t k = 0; k < kSigns; k++) {
            text >> product;
            double sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += (golden_hash(2000 + key * kSigns + k, i) % 2 ? 1.0 : -1.0) * double(all[at + i]);
            sum /= kB * kT;
            EXPECT(std::fabs(sum - product) <= 1e-5 * sizes, "%s: product %zu is %.9g, want %.9g", tensor.c_str(), k,
                   sum, product);
        }
    });
    EXPECT(bool(text), "mixtral.txt is too short");
    model_destroy(&model);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
