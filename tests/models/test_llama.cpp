// test_llama.cpp -- the Llama family against transformers' numbers (tests/golden/make_llama.py), and its own operations
// against their formulas in double.
#include "tools/text/config_reader.h"
#include "models/llama.h"
#include "models/llama_parts.h"
#include "models/use.h"
#include "optimizers/adamw.h"
#include "src/base/json.h"
#include "tests/models/trial.h"

using namespace BACKEND;

namespace {

constexpr int kB = 2, kT = 33, kV = 317, kSteps = 20;

struct Golden { std::string name, config; std::vector<double> losses, norms, logits; };
std::vector<Golden> goldens() {
    std::vector<Golden> all;
    std::istringstream text(read_file("tests/golden/llama.txt"));
    for (std::string line; std::getline(text, line);) {
        Golden& g = all.emplace_back();
        const size_t space = line.find(' ');
        g.name = line.substr(0, space);
        g.config = line.substr(space + 1);
        for (std::vector<double>* to : {&g.losses, &g.norms, &g.logits}) {
            std::getline(text, line);
            std::istringstream values(line.substr(line.find(' ')));
            for (double x; values >> x;) to->push_back(x);
        }
        EXPECT(g.losses.size() == kSteps && g.logits.size() == kV, "%s", g.name.c_str());
    }
    return all;
}

struct Training : Trial {
    Device<float> masters{weights.host()}, m{weights.n}, v{weights.n}, partials{weights.n / kUnit};
    Device<double> norm{1};
    Device<StepState> state{1};
    Device<Rates> rates{arena_rates(model.arena)};

    explicit Training(const Golden& g) : Training(parse_config(g.config, g.name.c_str())) {}
    explicit Training(const ModelConfig& c)
        : Trial(*c.info, c.shape, kB, kT, golden_weights(arena_layout(c.info->tensors(c.shape)), 1024, 1024)) {}

    // One step of AdamW; returns loss and norm.
    std::pair<double, double> step(int number) {
        for (size_t b = 0; b < kB; b++)
            for (size_t t = 0; t < kT; t++) {
                const size_t key = size_t(1000 + number % 4), at = b * (kT + 1) + t;
                tokens[b * kT + t] = int(golden_hash(key, at) % kV);
                targets[b * kT + t] = int(golden_hash(key, at + 1) % kV);
            }
        const double loss = backward().loss;
        std::vector<double> hyper;
        for (const Hyper& h : adamw_info.hyper) hyper.push_back(h.value);
        StepState now = {.seed = 0, .step = uint32_t(number), .lr = 3e-3f, .grad_scale = 1};
        now.tokens = kB * kT;
        adamw_info.prepare(&now, hyper.data(), number + 1, 1, nullptr);
        copy_to_device(state.at, &now, sizeof now);
        const float* const terms[] = {grads.at};
        tree_reduce(grads.at, partials.at, terms, 1, Tree::kBalanced, grads.n);
        clip_scale(state.at, norm.at, partials.at, partials.n, 1.0);
        float* const moments[] = {m.at, v.at};
        float* const master = kExact ? reinterpret_cast<float*>(weights.at) : masters.at;
        update(find_optimizer("adamw"), 0, {grads.n, weights.at, master, moments, grads.at, rates.at, state.at});
        double before_clipping;
        copy_to_host(&before_clipping, norm.at, sizeof before_clipping);
        return {loss / (kB * kT), before_clipping};
    }
};

}  // namespace

TEST(steps_of_transformers) {
    // bf16 keeps 8 bits of what is stored: losses within 2 %, norms, which are smaller sums of it, within 10 %. In fp32
    // Adam's first steps divide gradients near 0 by themselves: the order of sums alone moves qwen3's norms by 4e-5.
    const double of_loss = kExact ? 1e-5 : 0.02, of_norm = kExact ? 1e-4 : 0.1;
    const int steps = kOnGpu ? 4 : kSteps;          // GPUs in software are slow
    for (const Golden& g : goldens()) {
        Training t(g);
        for (int s = 0; s < steps; s++) {
            const auto [loss, norm] = t.step(s);
            const double want = g.losses[size_t(s)], want_norm = g.norms[size_t(s)];
            EXPECT(std::fabs(loss - want) <= of_loss * want, "%s, step %d: loss %.9g, want %.9g", g.name.c_str(), s,
                   loss, want);
            EXPECT(std::fabs(norm - want_norm) <= of_norm * want_norm, "%s, step %d: norm %.9g, want %.9g",
                   g.name.c_str(), s, norm, want_norm);
        }
    }
}

// One token after the other, with the cache, gives the logits that transformers has for the whole.
TEST(logits_of_transformers) {
    for (const Golden& g : goldens()) {
        Training t(g);
        std::vector<float> logits(kV);
        const Device<char> cache(t.model.kind->cache_bytes(t.model.shape));
        for (int i = 0; i < kT; i += 1 + i % 3) {
            std::vector<int> tokens;
            for (int j = i; j < std::min(kT, i + 1 + i % 3); j++)
                tokens.push_back(int(golden_hash(1000, size_t(j)) % kV));
            model_generate_step(&t.model, cache.at, tokens.data(), i, int(tokens.size()), logits.data());
        }
        expect_close(logits, g.logits, kExact ? 1e-5 : 0.05, "logits of " + g.name);
    }
}

// With a window of the context nothing is left out: the bits are those of none. A smaller one is another model.
TEST(a_window_of_the_context) {
    const ModelInfo& info = *find_model("mistral");
    Shape shape = small_shape(info);
    const auto pass = [&](int W) {
        window(shape) = W;
        Trial trial(info, shape, 2, shape.T, golden_weights(arena_layout(info.tensors(shape)), 1024, 1024));
        const double loss = trial.backward().loss;
        return std::pair(loss, trial.grads.host());
    };
    const auto [loss, grads] = pass(0);
    for (const int W : {shape.T - 1, shape.T, shape.T + 1, 1 << 30}) {
        const auto [own, own_grads] = pass(W);
        EXPECT((own == loss && same_bits(own_grads, grads)) == (W >= shape.T), "window %d: %.9g, %.9g without", W, own,
               loss);
    }
}

// The FLOP of attention follow the keys that queries see.
TEST(flops_of_windows) {
    const ModelInfo& info = *find_model("qwen3");
    const auto flops = [&](int W, int from, int T) {
        Shape shape = small_shape(info);
        window(shape) = W;
        window_from(shape) = from;
        return info.flops_per_token(shape, T);
    };
    for (const auto& [W, from, T] : {std::tuple(64, 0, 4096), {64, 1, 4096}, {4095, 0, 4096}, {4096, 0, 4096},
                                     {5000, 1, 4096}, {1, 0, 4096}}) {
        double keys = 0, all = 0;                   // of both layers
        for (int t = 1; t <= T; t++) {
            all += 2 * double(t);
            keys += from * t + (2 - from) * std::min(t, W);
        }
        const double rest = flops(1, 0, 1 << 30), attention = flops(0, 0, T) - rest;
        const double got = (flops(W, from, T) - rest) / attention, want = keys / all;
        EXPECT(std::fabs(got - want) <= 2.0 / T, "window %d from %d: %g of all, want %g", W, from, got, want);
    }
}

static void expect_angle(const std::vector<float>& table, size_t at, size_t half, double angle, double tolerance) {
    const float got[] = {table[at], table[at + half]};
    const double want[] = {std::cos(angle), std::sin(angle)};
    expect_near(got, want, 2, tolerance, format("cosine and sine of %.9g", angle));
}

// f_j by transformers' `llama3` for heads of 64, theta 500000, low 1, high 4, context 8192, factor 32.
TEST(angles) {
    const std::pair<int, double> want[] = {{0, 1},           {1, 0.663601279},     {14, 0.00321144611},
                                           {15, 0.00129054801}, {16, 0.000429556705}, {17, 9.70828623e-05},
                                           {18, 1.94616387e-05}, {31, 9.41830649e-08}};
    Device<float> table(size_t(9) * 64);
    rotary_table(table.at, 9, 64, {500000, 32, 1, 4, 8192});
    const std::vector<float> got = table.host();
    for (const auto& [j, f] : want)
        for (size_t t = 0; t < 9; t++) expect_angle(got, t * 64 + size_t(j), 32, double(t) * f, 5e-7);
}

// Far from the start, where a wrong reduction would show: f_0 is 1, so the angle is the position itself. On a GPU these
// are more rows than a grid has at once.
TEST(angles_of_far_positions) {
    constexpr size_t kPositions = 140000;
    Device<float> table(kPositions * 8);
    rotary_table(table.at, kPositions, 8, {10000, 1, 1, 4, 8192});
    const std::vector<float> got = table.host();
    for (size_t t = 0; t < kPositions; t += 37) expect_angle(got, t * 8, 4, double(t), 6e-8);
}

// Turning back undoes turning; v is left alone.
TEST(rotation) {
    const int N = 10, T = 5, NH = 3, NK = 1, HS = 24;
    const size_t width = size_t(NH + 2 * NK) * HS, half = HS / 2;
    Device<float> table(size_t(T + 7) * HS);
    rotary_table(table.at, T + 7, HS, {100, 1, 1, 4, 8192});
    const std::vector<float> before = numbers(size_t(N) * width, 1, 2), angles = table.host();
    Device<floatX> x(before);
    rotate_heads(x.at, table.at, 7, false, {N / T, T, NH, NK, HS});
    std::vector<double> want(before.begin(), before.end());
    for (size_t row = 0; row < size_t(N); row++)
        for (size_t i = 0; i < (NH + NK) * half; i++) {
            const size_t at = row * width + i / half * HS + i % half, angle = (7 + row % size_t(T)) * HS + i % half;
            const double a = double(before[at]), b = double(before[at + half]);
            const double cosine = double(angles[angle]), sine = double(angles[angle + half]);
            want[at] = a * cosine - b * sine;
            want[at + half] = b * cosine + a * sine;
        }
    expect_near(x.host().data(), want.data(), want.size(), kExact ? 1e-6 : 2e-2, "turned");
    rotate_heads(x.at, table.at, 7, true, {N / T, T, NH, NK, HS});
    expect_close(x.host(), before, kExact ? 1e-6 : 1e-2, "turned back");
}

TEST(swiglu) {
    for (const auto& [N, F, scale] : {std::tuple{1, 8, 1.0f}, {3, 24, 0.1f}, {5, 264, 6.0f}, {2, 40, 200.0f}}) {
        const size_t n = size_t(N), width = size_t(F);
        const std::vector<float> x = numbers(n * 2 * width, 1, scale), d = numbers(n * width, 2, 1);
        Device<floatX> gateup(x), dout(d), out(n * width);
        swiglu_forward(out.at, gateup.at, N, F);
        swiglu_backward(gateup.at, dout.at, N, F);
        std::vector<float> want(n * width), want_grad(n * 2 * width);
        for (size_t i = 0; i < n * width; i++) {
            const size_t at = i / width * 2 * width + i % width;
            const double gate = double(x[at]), up = double(x[at + width]), dy = double(d[i]);
            const double s = 1 / (1 + std::exp(-gate));
            want[i] = float(gate * s * up);
            want_grad[at] = float(dy * up * s * (1 + gate * (1 - s)));
            want_grad[at + width] = float(dy * gate * s);
        }
        expect_close(out.host(), want, kExact ? 1e-6 : 1e-2, "swiglu");
        expect_close(gateup.host(), want_grad, kExact ? 1e-6 : 1e-2, "swiglu's gradient");
    }
}

TEST(norms_of_heads) {
    for (const auto& [N, NH, NK, HS] : {std::tuple{1, 1, 1, 8}, {67, 3, 1, 24}, {130, 4, 2, 16}, {3, 2, 1, 128}}) {
        const size_t H = size_t(HS), normed = size_t(NH + NK), width = size_t(NH + 2 * NK) * H, rows = size_t(N);
        const std::vector<float> x = numbers(rows * width, 1, 1), d = numbers(rows * width, 2, 1);
        const std::vector<float> weight[] = {numbers(H, 3, 2), numbers(H, 4, 2)};
        const float eps = 1e-3f;
        Device<floatX> qkv(x), dqkv(d), raw(rows * normed * H), qw(weight[0]), kw(weight[1]);
        Device<float> rstd(rows * normed), dq(std::vector<float>(H, 0.5f)), dk(std::vector<float>(H, 0.5f)),
            partials(kNormSums * normed * H);
        const HeadNorm norm = {qw.at, kw.at, raw.at, rstd.at, eps};
        norm_heads_forward(qkv.at, norm, {1, N, NH, NK, HS});
        norm_heads_backward(dqkv.at, dq.at, dk.at, partials.at, norm, {1, N, NH, NK, HS}, true);
        std::vector<float> want = x, dwant = d;
        std::vector<double> dweight[] = {std::vector<double>(H, 0.5), std::vector<double>(H, 0.5)};
        for (size_t row = 0; row < rows; row++)
            for (size_t head = 0; head < normed; head++) {
                const float* const w = weight[head >= size_t(NH)].data();
                const size_t at = row * width + head * H;
                double squares = 0, mean = 0;
                for (size_t j = 0; j < H; j++) squares += double(x[at + j]) * double(x[at + j]);
                const double r = 1 / std::sqrt(squares / double(H) + double(eps));
                for (size_t j = 0; j < H; j++)
                    mean += double(d[at + j]) * double(w[j]) * double(x[at + j]) * r / double(H);
                for (size_t j = 0; j < H; j++) {
                    want[at + j] = float(double(x[at + j]) * r * double(w[j]));
                    dwant[at + j] = float(r * (double(d[at + j]) * double(w[j]) - double(x[at + j]) * r * mean));
                    dweight[head >= size_t(NH)][j] += double(d[at + j]) * double(x[at + j]) * r;
                }
            }
        expect_close(qkv.host(), want, kExact ? 1e-5 : 1e-2, "normed");
        expect_close(dqkv.host(), dwant, kExact ? 1e-5 : 2e-2, "gradient");
        expect_near(dq.host().data(), dweight[0].data(), H, 2e-4, "dq weight");
        expect_near(dk.host().data(), dweight[1].data(), H, 2e-4, "dk weight");
    }
}

// Without rows nothing is written, and "=" makes parameter gradients 0.
TEST(no_rows) {
    const int NH = 4, NK = 2, HS = 8, F = 8;
    const std::vector<float> before = numbers(256, 77, 1);
    Device<floatX> x(before), y(before);
    Device<float> f(before), g(before);
    const auto unchanged = [&](const char* op) {
        EXPECT(x.host() == before && y.host() == before && f.host() == before && g.host() == before, "%s", op);
    };
    rotary_table(f.at, 0, HS, {10000, 1, 1, 4, 8192});
    unchanged("rotary_table");
    const Attention none = {0, 5, NH, NK, HS};
    const HeadNorm norm = {x.at, x.at, y.at, f.at, 1e-6f};
    rotate_heads(x.at, f.at, 0, false, none);
    unchanged("rotate_heads");
    norm_heads_forward(x.at, norm, none);
    unchanged("norm_heads_forward");
    swiglu_forward(x.at, y.at, 0, F);
    unchanged("swiglu_forward");
    swiglu_backward(x.at, y.at, 0, F);
    unchanged("swiglu_backward");
    for (const bool accumulate : {true, false}) {
        Device<float> partials(size_t(kNormSums) * (NH + NK) * HS);
        norm_heads_backward(x.at, f.at, g.at, partials.at, norm, none, accumulate);
        std::vector<float> want = before;
        if (!accumulate) std::fill_n(want.begin(), HS, 0.0f);
        EXPECT(x.host() == before && f.host() == want && g.host() == want, "norm_heads_backward");
    }
}
