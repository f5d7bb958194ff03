// test_ref.cpp -- the specification itself: held to values by hand, to finite differences, and to PyTorch
// (golden/ops.txt).
//
// All other backends are held to ref or to ref64, so an error here would be everybody's. Compiled for both: ref64 has
// the mathematics, and ref the same with a float's roundings.
#include "kernels/kernels.h"
#include <algorithm>
#include <cfloat>
#include <fstream>
#include <map>
#include "build/optimizers.h"
#include "tests/models/device.h"

using namespace BACKEND;
using Floats = std::vector<float>;

static const StepState kState = {42, 7, 0.1f, 1, {}};
static const Dropout kNone = {0, 0, 0, nullptr};
static const Dropout kDrop = {0.3f, kRandomDropout, 3, &kState};

// Multiples of 1/256, mean 0 and variance 1: finite differences add h to them without rounding.
static Floats values(size_t n, double scale = 1) {
    static uint32_t call = 0;
    Floats x(n);
    ++call;
    for (size_t i = 0; i < n; i++) {
        double sum = -2;
        for (const uint32_t bits : random4({99, kRandomData, call, 0}, i).v) sum += uniform01(bits);
        x[i] = float(std::round(sum * std::sqrt(3.0) * scale * 256) / 256);
    }
    return x;
}

// ----------------------------------------------------------------------------------------------------------- by hand

TEST(gelu_by_hand) {
    float identity[64] = {};
    for (int i = 0; i < 8; i++) identity[9 * i] = 1;
    const float x[8] = {0, 1, -1, 10, -10, 100, -100, 0.5f}, ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float out[8], pre[8], dpre[8];
    matmul_gelu_forward(out, pre, x, identity, nullptr, 1, 8, 8);
    const double want[8] = {0, 0.841191990608, -0.158808009392, 10, 0, 100, 0, 0.345714009678};
    expect_near(pre, x, 8, 0, "pre");
    expect_near(out, want, 8, 1e-7, "out");  // one rounding of a number below 1; the others are exact
    matmul_gelu_backward_input(dpre, ones, identity, x, 1, 8, 8);
    EXPECT(dpre[0] == 0.5f && dpre[3] == 1 && dpre[5] == 1, "the slopes at 0, 10, 100: %g %g %g", dpre[0], dpre[3],
           dpre[5]);
    EXPECT(std::fabs(dpre[4]) < 1e-28 && std::fabs(dpre[6]) < 1e-28, "the slopes at -10 and -100: %g %g", dpre[4],
           dpre[6]);
    EXPECT(std::fabs(dpre[1] + dpre[2] - 1) < 2 * FLT_EPSILON, "the slopes at x and -x sum to %.9g", dpre[1] + dpre[2]);
}

TEST(attention_by_hand) {
    // One head, two positions, HS = 8. q_1.k_0 = 0 and q_1.k_1 = sqrt(8) log 3: the second position takes 1/4 and 3/4.
    float qkv[2][3][8] = {}, out[2][8], lse[2];
    qkv[0][0][0] = 7;
    qkv[1][0][0] = float(std::sqrt(8.0) * std::log(3.0));
    qkv[1][1][0] = 1;
    for (int i = 0; i < 8; i++) {
        qkv[0][2][i] = 4;
        qkv[1][2][i] = 8;
    }
    attention_forward(&out[0][0], lse, &qkv[0][0][0], {1, 2, 1, 1, 8});
    EXPECT(out[0][0] == 4 && lse[0] == 0, "the first position sees only itself: out %g lse %g", out[0][0], lse[0]);
    EXPECT(std::fabs(out[1][3] - 7) < 8 * FLT_EPSILON, "out %.9g, want 7", out[1][3]);  // q is rounded
    EXPECT(std::fabs(lse[1] - std::log(4.0)) < 4 * FLT_EPSILON, "lse %.9g, want log 4", lse[1]);
}

TEST(attention_cached_refuses) {
    const Attention dropped = {1, 1, 6, 2, 8, kDrop}, two = {2, 1, 6, 2, 8};
    const auto cached = [](int first, const Attention& attention) {
        return [=] { attention_cached(nullptr, nullptr, nullptr, first, 10, attention); };
    };
    expect_error(kExitOther, "room for 10", cached(9, {1, 2, 6, 2, 8}));
    for (const Attention& bad : {dropped, two}) expect_error(kExitOther, "want a B of 1", cached(0, bad));
}

// exp(5000) is no number.
TEST(classifier_by_hand) {
    float logits[2][4] = {{5000, -5000, 0, 0}, {5000, -5000, 0, 0}}, losses[2];
    const int right_and_wrong[2] = {0, 1};
    classifier(losses, &logits[0][0], right_and_wrong, 2, 4, 4, true);
    const float want[8] = {0, 0, 0, 0, 1, -1, 0, 0};
    EXPECT(losses[0] == 0 && losses[1] == 10000, "losses %g and %g, want 0 and 10000", losses[0], losses[1]);
    expect_near(&logits[0][0], want, 8, 0, "dlogits");
}

TEST(fold_by_halves) {
    const int n = int(kUnit);
    const float values[4] = {1e8f, 1, -1e8f, 1};  // in order the sum is 1; by halves both ones are lost
    std::vector<Floats> terms;
    for (const float v : values) terms.push_back(Floats(size_t(n), v));
    const float* pointers[4] = {terms[0].data(), terms[1].data(), terms[2].data(), terms[3].data()};
    Floats out(size_t(n), NAN);
    tree_reduce(out.data(), nullptr, pointers, 4, Tree::kBalanced, size_t(n));
    EXPECT(out[0] == 0 && out[kUnit - 1] == 0, "got %g, want (1e8 + 1) + (-1e8 + 1) = 0", out[0]);
    const float* back[3] = {pointers[1], pointers[2], pointers[0]};
    tree_reduce(out.data(), nullptr, back, 3, Tree::kNested, size_t(n));
    EXPECT_EQ(out[3], 1);
    tree_reduce(terms[0].data(), nullptr, pointers, 2, Tree::kBalanced, size_t(n));
    EXPECT_EQ(terms[0][5], 1e8f);
    expect_error(kExitOther, "3 terms",
                 [&] { tree_reduce(out.data(), nullptr, pointers, 3, Tree::kBalanced, size_t(n)); });
    expect_error(kExitOther, "tree_reduce",
                 [&] { tree_reduce(out.data(), nullptr, pointers, 2, Tree::kBalanced, size_t(n - 1)); });
}

TEST(squares_by_hand) {
    Floats x(3 * kUnit, 0);
    x[0] = 4096;                               // its square is 2^24: a float cannot count on from there by ones
    for (size_t i = 1; i < 16; i++) x[i] = 1;  // sums 1..15: lost one by one
    x[kUnit] = 4096;
    for (size_t i = 1; i < 8; i++) x[kUnit + i * 16 + 1] = 1;  // all in sum 1, which is 7 when it meets sum 0
    for (size_t i = 0; i < 15; i++) x[2 * kUnit + i] = 1;      // 15 ones first, then 2^24
    x[2 * kUnit + 15] = 4096;
    float partials[3];
    const float* const term = x.data();
    tree_reduce(x.data(), partials, &term, 1, Tree::kBalanced, x.size());
    const float want[3] = {16777216, 16777224, 16777232};  // a float goes by twos here: +7 and +15 round to +8 and +16
    expect_near(partials, want, 3, 0, "partials");
}

// The hash is part of what ranks compare: these values were computed apart from this code, from the formula in
// kernels.h.
TEST(hash_values) {
    Floats x(kUnit + 3);
    for (size_t i = 0; i < x.size(); i++) x[i] = float(i) * 0.5f;
    EXPECT_EQ(hash_floats(x.data(), 0), 0);
    EXPECT_EQ(hash_floats(&x[2], 1), 0x06cde24520ee505du);
    EXPECT_EQ(hash_floats(x.data(), x.size()), 0x4fcdb1968835fdfeu);
}

// ------------------------------------------------------------------------------------------------ finite differences
//
// The loss is sum(dout * out) for a random dout, so that dout is its gradient at out. The derivative by x[i] comes from
// four values of the loss, (8 (L(x+h) - L(x-h)) - (L(x+2h) - L(x-2h))) / 12h, which is off by h^4/30 times the fifth
// derivative. out is rounded to float: some 1e-7 / h. With h = 1/32 both are near 1e-5.

constexpr float kStep = 1.0f / 32;
constexpr double kTolerance = 2e-4;  // of gradients of size 1

static double weighted(const Floats& dout, const Floats& out) {
    double sum = 0;
    for (size_t i = 0; i < out.size(); i++) sum += double(dout[i]) * double(out[i]);
    return sum;
}

static void check_gradient(const std::string& what, Floats& x, const Floats& dx, const std::function<double()>& loss) {
    EXPECT(x.size() == dx.size(), "%s: %zu values, %zu gradients", what.c_str(), x.size(), dx.size());
    double largest = 0;
    for (size_t i = 0; i < x.size(); i++) {
        const float old = x[i];
        const auto at = [&](float h) {
            x[i] = old + h;
            const double value = loss();
            x[i] = old;
            return value;
        };
        const double want = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * double(kStep));
        if (!(std::fabs(dx[i] - want) <= kTolerance * std::fmax(1, std::fabs(want))))
            FAIL("%s[%zu]: got %.9g, finite differences say %.9g", what.c_str(), i, dx[i], want);
        largest = std::fmax(largest, std::fabs(want));
    }
    EXPECT(largest > 0.1, "%s: the largest gradient is %g: the test tests nothing", what.c_str(), largest);
}

TEST(differences_find_an_error) {  // the negative control
    Floats x = {1, 2}, right = {2, 4}, wrong = {2, 4.01f};
    const auto loss = [&] { return double(x[0]) * x[0] + double(x[1]) * x[1]; };
    check_gradient("right", x, right, loss);
    for (const float bad : {4.01f, float(NAN)}) {
        wrong[1] = bad;
        EXPECT(fails([&] { check_gradient("wrong", x, wrong, loss); }), "%g passes for 4", bad);
    }
}

TEST(differences_embedding) {
    const int B = 2, T = 3, C = 8, V = 5, maxT = 4;
    const int tokens[B * T] = {4, 0, 4, 4, 2, 0};
    Floats wte = values(V * C), wpe = values(maxT * C), dout = values(B * T * C), out(B * T * C);
    Floats dwte(V * C), dwpe(maxT * C, NAN);
    const int documents[B * T] = {0, 0, 2, 0, 1, 1};
    for (const int* begin : {(const int*)nullptr, documents}) {
        const Embedding embedding = {.B = B, .T = T, .C = C, .drop = kDrop, .begin = begin};
        const auto loss = [&] {
            embedding_forward(out.data(), tokens, wte.data(), wpe.data(), embedding);
            return weighted(dout, out);
        };
        std::fill(dwte.begin(), dwte.end(), 0.0f);
        embedding_backward(dwte.data(), dwpe.data(), dout.data(), tokens, maxT, embedding, false);
        check_gradient("dwte", wte, dwte, loss);
        check_gradient("dwpe", wpe, dwpe, loss);
    }
}

// As the models use them: x goes on as the residual stream and into a LayerNorm, or an RMSNorm, branch joins through
// dropout.
static void residual_layernorm(const Dropout& drop, bool rms) {
    const int N = 3, C = 8;
    Floats inp = values(N * C), branch = values(N * C), weight = values(C), bias = values(C);
    Floats dout = values(N * C), dstream = values(N * C), out(N * C), residual(N * C), mean(N), rstd(N);
    const LayerNorm norm = {.N = N, .C = C, .inp = residual.data(), .out = out.data(),
                            .mean = rms ? nullptr : mean.data(), .rstd = rstd.data(), .weight = weight.data(),
                            .bias = rms ? nullptr : bias.data(), .eps = 0.01f};
    const auto loss = [&] {
        residual_layernorm_forward(norm, inp.data(), branch.data(), drop);
        return weighted(dout, out) + weighted(dstream, residual);
    };
    loss();
    Floats dinp = dstream, dbranch(N * C), dweight(C, NAN), dbias(C, NAN);
    layernorm_backward(dinp.data(), dweight.data(), rms ? nullptr : dbias.data(), dout.data(), norm, false, false);
    dropout_backward(dbranch.data(), dinp.data(), size_t(N * C), drop);
    check_gradient("dinp", inp, dinp, loss);
    check_gradient("dbranch", branch, dbranch, loss);
    check_gradient("dweight", weight, dweight, loss);
    if (!rms) check_gradient("dbias", bias, dbias, loss);
}
TEST(differences_residual_layernorm) {
    for (const Dropout& drop : {kNone, kDrop})
        for (const bool rms : {false, true}) residual_layernorm(drop, rms);
}

TEST(differences_attention) {
    const int B = 2, T = 5, NH = 4, HS = 8, n = B * T * NH * HS;
    Floats dout = values(n), out(n), lse(B * NH * T), delta(B * NH * T);
    for (const int NK : {4, 2, 1})
        for (const Dropout& drop : {kNone, kDrop}) {
            const Attention attention = {B, T, NH, NK, HS, drop, NK == 2 ? 0.7f : 0};
            const int wide = B * T * (NH + 2 * NK) * HS;
            Floats qkv = values(wide), dqkv(wide, NAN);
            const auto loss = [&] {
                attention_forward(out.data(), lse.data(), qkv.data(), attention);
                return weighted(dout, out);
            };
            loss();
            attention_backward(dqkv.data(), delta.data(), dout.data(), qkv.data(), out.data(), lse.data(),
                               attention);
            check_gradient("dqkv", qkv, dqkv, loss);
        }
}

// Dropped elements are zero, the others 1 / (1 - rate) of what they were, and which ones depends on site, step,
// micro-batch and seed.
TEST(dropout_masks) {
    const size_t n = 40000;
    const Floats ones(n, 1);
    StepState other_step = kState, other_seed = kState;
    other_step.step++;
    other_seed.seed += uint64_t(1) << 40;  // its upper half counts too
    const Dropout masks[] = {kDrop,
                             {0.3f, kRandomDropout + 1, 3, &kState}, {0.3f, kRandomDropout, 4, &kState},
                             {0.3f, kRandomDropout, 3, &other_step}, {0.3f, kRandomDropout, 3, &other_seed}};
    std::vector<Floats> out(5, Floats(n));
    for (size_t k = 0; k < 5; k++) {
        dropout_backward(out[k].data(), ones.data(), n, masks[k]);
        size_t kept = 0, same = 0;
        for (size_t i = 0; i < n; i++) {
            const Random4 random =
                random4({masks[k].state->seed, masks[k].purpose, masks[k].state->step, masks[k].micro_batch}, i / 4);
            const float want = uniform01(random.v[i % 4]) >= 0.3f ? 1 / (1 - 0.3f) : 0;
            EXPECT(out[k][i] == want, "mask %zu: element %zu is %g, want %g", k, i, out[k][i], want);
            kept += out[k][i] != 0;
            same += out[k][i] == out[0][i];
        }
        // Within 5 standard deviations.
        EXPECT(std::fabs(double(kept) / n - 0.7) < 0.012, "mask %zu keeps %zu of %zu", k, kept, n);
        EXPECT(k == 0 || std::fabs(double(same) / n - 0.58) < 0.013, "mask %zu agrees with mask 0 in %zu of %zu", k,
               same, n);
    }
}

// ---------------------------------------------------------------------------------------------------------- PyTorch

static const std::vector<double>& golden(const std::string& name) {
    static const auto arrays = [] {
        std::map<std::string, std::vector<double>> all;
        std::ifstream file("tests/golden/ops.txt");
        std::string key;
        std::getline(file, key);  // the comment
        double scale;
        for (size_t n; file >> key >> n >> scale;) {
            std::vector<double>& x = all[key];
            x.resize(n);
            for (double& v : x) {
                file >> v;
                v /= scale;
            }
        }
        return all;
    }();
    const auto found = arrays.find(name);
    EXPECT(found != arrays.end(), "tests/golden/ops.txt: %zu arrays, no %s", arrays.size(), name.c_str());
    return found->second;
}
static Floats input(const std::string& name) {
    const std::vector<double>& x = golden(name);
    for (const double v : x) EXPECT(double(float(v)) == v, "%s: %.17g is not a float", name.c_str(), v);
    return Floats(x.begin(), x.end());
}
// 1e-6 of the largest value: a few roundings of float, and PyTorch's 9 digits.
static void expect_golden(const std::string& op, std::initializer_list<std::pair<const char*, Floats>> results) {
    for (const auto& [name, got] : results) expect_close(got, golden(op + "." + name), 1e-6, op + "." + name);
}

static void golden_norm(const std::string& op, float eps, bool rms) {
    const int N = 3, C = 24;
    const Floats w = input(op + ".weight"), dout = input(op + ".dout"), b = rms ? Floats() : input(op + ".bias");
    Floats x = input(op + ".inp"), out(N * C), mean(N), rstd(N), dinp(N * C, NAN), dw(C, NAN), db(C, NAN);
    const LayerNorm norm = {.N = N, .C = C, .inp = x.data(), .out = out.data(), .mean = rms ? nullptr : mean.data(),
                            .rstd = rstd.data(), .weight = w.data(), .bias = rms ? nullptr : b.data(), .eps = eps};
    layernorm_forward(norm);
    layernorm_backward(dinp.data(), dw.data(), rms ? nullptr : db.data(), dout.data(), norm, true, false);
    expect_golden(op, {{"out", out}, {"dinp", dinp}, {"dweight", dw}});
    if (!rms) expect_golden(op, {{"dbias", db}});
}
TEST(golden_norms) {
    golden_norm("ln", 1e-5f, false);
    golden_norm("rms", 0.125f, true);
}

TEST(golden_mlp) {
    const int N = 5, C = 8, H = 32;
    const Floats x = input("mlp.inp"), dout = input("mlp.dout"), w1 = input("mlp.fcw"), b1 = input("mlp.fcb");
    const Floats w2 = input("mlp.projw"), b2 = input("mlp.projb");
    Floats pre(N * H), act(N * H), out(N * C), dpre(N * H), dx(N * C), dw1(H * C), db1(H), dw2(C * H), db2(C);
    matmul_gelu_forward(act.data(), pre.data(), x.data(), w1.data(), b1.data(), N, C, H);
    matmul_forward(out.data(), act.data(), w2.data(), b2.data(), N, H, C);
    matmul_backward_params(dw2.data(), db2.data(), dout.data(), act.data(), N, H, C, false);
    matmul_gelu_backward_input(dpre.data(), dout.data(), w2.data(), pre.data(), N, H, C);
    matmul_backward_params(dw1.data(), db1.data(), dpre.data(), x.data(), N, C, H, false);
    matmul_backward_input(dx.data(), dpre.data(), w1.data(), N, C, H);
    expect_golden("mlp", {{"pre", pre}, {"act", act}, {"out", out}, {"dpre", dpre}, {"dinp", dx}, {"dfcw", dw1},
                          {"dfcb", db1}, {"dprojw", dw2}, {"dprojb", db2}});
}

static void expect_attention(const std::string& name, int B, int T, int NH, int NK, int HS) {
    const Floats qkv = input(name + ".qkv"), dout = input(name + ".dout");
    Floats out(dout.size()), lse(size_t(B * NH * T)), delta(lse.size()), dqkv(qkv.size(), NAN);
    attention_forward(out.data(), lse.data(), qkv.data(), {B, T, NH, NK, HS});
    attention_backward(dqkv.data(), delta.data(), dout.data(), qkv.data(), out.data(), lse.data(),
                       {B, T, NH, NK, HS});
    expect_golden(name, {{"out", out}, {"dqkv", dqkv}});
}
TEST(golden_attention) {
    expect_attention("att", 2, 7, 2, 2, 8);
    expect_attention("grouped", 2, 5, 6, 2, 8);
}

TEST(golden_classifier) {
    const int N = 4, V = 11, Vp = 16;
    const Floats x = input("loss.logits"), t = input("loss.targets");
    const std::vector<int> targets(t.begin(), t.end());
    Floats logits(N * Vp, NAN), losses(N), dlogits;
    for (int i = 0; i < N; i++) std::copy_n(x.begin() + i * V, V, logits.begin() + i * Vp);
    classifier(losses.data(), logits.data(), targets.data(), N, V, Vp, true);
    for (int i = 0; i < N; i++) {
        const auto row = logits.begin() + i * Vp;
        dlogits.insert(dlogits.end(), row, row + V);
        EXPECT(std::all_of(row + V, row + Vp, [](float x) { return x == 0; }), "row %d: the padding has a gradient", i);
    }
    expect_golden("loss", {{"losses", losses}, {"dlogits", dlogits}});
}

TEST(golden_embedding) {
    const int B = 2, T = 3, C = 8, V = 5, maxT = 4;
    const Floats wte = input("emb.wte"), wpe = input("emb.wpe"), dout = input("emb.dout"), t = input("emb.tokens");
    const std::vector<int> tokens(t.begin(), t.end());
    Floats out(B * T * C), dwte(V * C, 0), dwpe(maxT * C, NAN);
    const Embedding embedding = {.B = B, .T = T, .C = C};
    embedding_forward(out.data(), tokens.data(), wte.data(), wpe.data(), embedding);
    embedding_backward(dwte.data(), dwpe.data(), dout.data(), tokens.data(), maxT, embedding, false);
    expect_golden("emb", {{"out", out}, {"dwte", dwte}, {"dwpe", dwpe}});
}

// Three steps of 8 weights that decay and 8 that do not.
static void golden_steps(const OptimizerInfo& info, const std::vector<double>& hyper) {
    const size_t n = 2 * kUnit;                                      // 8 weights at the start of each unit
    const Rates rates[2] = {{.decay = 1}, {.decay = 0}};
    const auto spread = [&](const Floats& x) {
        Floats y(n, 0);
        std::copy_n(x.begin(), 8, y.begin());
        std::copy_n(x.begin() + 8, 8, y.begin() + kUnit);
        return y;
    };
    Floats w = spread(input("adamw.start")), m(n, 0), v(n, 0);
    for (int step = 0; step < 3; step++) {
        const Floats grad = spread(input(format("adamw.grad%d", step)));
        StepState state = {0, uint32_t(step), 0.0625f / float(1 << step), 1, {}};
        info.prepare(&state, hyper.data(), step + 1, 1, nullptr);
        float* const arrays[] = {m.data(), v.data()};
        update(find_optimizer(info.name), 0, {n, w.data(), w.data(), arrays, grad.data(), rates, &state});
        Floats got(w.begin(), w.begin() + 8);
        got.insert(got.end(), w.begin() + kUnit, w.begin() + kUnit + 8);
        expect_golden(info.name, {{format("weights%d", step).c_str(), got}});
    }
    for (size_t i = 0; i < n; i++) EXPECT(i % kUnit < 8 || w[i] == 0, "padding[%zu] became %g", i, w[i]);
}

TEST(golden_adamw) { golden_steps(adamw_info, {0.9, 0.95, 1e-8, 0.1}); }
TEST(golden_sgd) { golden_steps(sgd_info, {0.9, 0.1}); }

int main(int argc, char** argv) { return run_tests(argc, argv); }
