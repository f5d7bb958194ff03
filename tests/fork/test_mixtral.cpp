// test_mixtral.cpp -- the fork's Mixtral against transformers' numbers (tests/fork/make_mixtral.py): a test of models,
// so that ./configure finds it in tests/models.
#include "tools/text/config_reader.h"
#include "models/mixtral.h"
#include "tests/models/trial.h"

using namespace BACKEND;

constexpr int kB = 2, kT = 24, kSigns = 4;

TEST(loss_and_gradients_of_transformers) {
    std::istringstream text(read_file("tests/fork/mixtral.txt"));
    std::string line, name;
    std::getline(text, line);
    const ModelConfig config = parse_config(line, "mixtral.txt");
    double loss, aux;
    text >> name >> loss >> name >> aux;
    const Arena arena = arena_layout(config.info->tensors(config.shape));
    Trial t(*config.info, config.shape, kB, kT, golden_weights(arena, 256, 512));
    for (size_t i = 0; i < kB * kT; i++) {
        t.tokens[i] = int(golden_hash(1000, i) % uint32_t(config.shape.V));
        t.targets[i] = int(golden_hash(1001, i) % uint32_t(config.shape.V));
    }
    const PassResult got = t.backward();
    EXPECT(std::fabs(got.loss / (kB * kT) / loss - 1) < 1e-5, "loss %.9g, want %.9g", got.loss / (kB * kT), loss);
    EXPECT(std::fabs(got.measures[0] / aux - 1) < 1e-5, "aux_loss %.9g, want %.9g", got.measures[0], aux);
    EXPECT(got.unwritten == 0 && got.measures[1] > 1, "expert_load %g", got.measures[1]);
    const std::vector<float> all = t.grads.host();
    each_part(arena, [&](size_t key, const std::string& tensor, size_t at, size_t n) {
        double norm, product;
        text >> name >> norm;
        EXPECT(name == tensor && norm > 0, "%s, want %s", tensor.c_str(), name.c_str());
        double own = 0, sizes = 0;
        for (size_t i = at; i < at + n; i++) {
            own += double(all[i]) * double(all[i]);
            sizes += std::fabs(double(all[i])) / (kB * kT);
        }
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
}
