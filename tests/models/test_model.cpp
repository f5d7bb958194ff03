// test_model.cpp -- every model of models/list as a whole, built against a backend: its gradient, accumulation,
// --recompute, generation, and what it tells the reduction.
#include "models/losses/loss.h"
#include "models/use.h"
#include "tests/models/trial.h"

using namespace BACKEND;

namespace {

// A test that runs for each model of the list, with a small shape of it.
#define EACH_MODEL(name)                                             \
    static void each_##name(const ModelInfo& info, Shape shape);     \
    TEST(name) { each_model(each_##name); }                          \
    static void each_##name(const ModelInfo& info, Shape shape)

// First weights that are larger, with biases that are not zero: nothing hides in zeros.
std::vector<float> large_weights(const ModelInfo& info, const Shape& shape) {
    const Arena arena = arena_layout(info.tensors(shape));
    std::vector<float> init(arena.n);
    arena_init(init.data(), arena, 1);
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const TensorSpec& spec = arena.tensors[t];
        const float spread = spec.init_std == 0 && spec.matrix ? 1.0f : 0.1f;   // as large as other matrices
        for (size_t i = 0; i < spec.file_rows * spec.cols; i++) {
            float& w = init[arena.offset[t] + i];
            w = w * 4 + spread * (uniform01(random4({9, 9, uint32_t(t), 0}, i).v[0]) - 0.5f);
        }
    }
    return init;
}

struct Fixture : Trial {
    Device<StepState> state{1};
    StepState host_state = {.seed = 5, .step = 3, .lr = 0, .grad_scale = 0};
    uint32_t micro_batch = 0;
    std::string unwritten;          // by the last backward: what PassResult says

    std::vector<Measure> of_pass;
    PassResult last;

    Fixture(const ModelInfo& info, const Shape& shape, int B, int T, int recompute = 0, const ChosenLoss& loss = {},
            bool training = true)
        : Trial(info, shape, B, T, large_weights(info, shape), recompute, {}, nullptr, loss, training),
          of_pass(info.measures) {
        model.documents.begin = tokens[tokens.size() / 2];
    }
    // Returns what the pass differentiates: the loss and the weighted measures.
    double backward(bool accumulate = false, const OnTensors& ready = [](int, int) {}) {
        copy_to_device(state.at, &host_state, sizeof host_state);
        last = Trial::backward({.B = 0, .T = 0, .accumulate = accumulate, .state = state.at,
                                .micro_batch = micro_batch, .ready = ready});
        unwritten = last.unwritten ? tensor_at(model.trained, model.trained.n - last.unwritten).name : "";
        double sum = last.loss;
        for (size_t i = 0; i < of_pass.size(); i++)
            if (of_pass[i].weight) sum += double(of_pass[i].weight(model.shape)) * last.measures[i] * model.B * model.T;
        return sum;
    }
    double loss() {
        return model_loss(&model, tokens.data(), targets.data(), model.B, model.T, nullptr, begins());
    }
    // Sequence b then has documents of b + 1, b + 3, b + 5, ... tokens, if the model keeps them apart.
    void add_documents(const ModelInfo& info) {
        for (int b = 0; info.documents && b < model.B; b++)
            for (int t = 0, first = 0, n = b + 1; t < model.T; t++) {
                if (t == first + n) first = t, n += 2;
                begin.push_back(first);
            }
    }
};

// Each loss of the list, with options that make every term matter.
std::vector<ChosenLoss> each_loss() {
    std::vector<ChosenLoss> all;
    for (const LossInfo& info : kLosses) {
        all.push_back({info.name});
        for (const Hyper& h : info.hyper) all.back().hyper[h.option] = h.limits.hold(0.5) ? 0.5 : h.value;
    }
    return all;
}

}  // namespace

TEST(flops_of_gpt2) {
    Shape shape = {.L = 12, .NH = 12, .C = 768, .T = 1024};
    set_vocabulary(&shape, 50257);
    const double flops = find_model("gpt2")->flops_per_token(shape, 1024);
    EXPECT(std::fabs(flops / 803e6 - 1) < 0.01, "%g", flops);
}

EACH_MODEL(declarations) {
    EXPECT(find_model(info.name) == &info, "it is not found by its name");
    const std::vector<TensorSpec> tensors = info.tensors(shape);
    EXPECT(tensors[0].rows == size_t(shape.Vp) && tensors[0].cols == size_t(shape.C), "the head");
    for (const auto& [measure, weight] : info.measures)     // they stand beside these in metrics.jsonl
        for (const char* taken : {"event", "step", "loss", "lr", "grad_norm", "step_ms", "tok_s", "tokens", "mfu",
                                  "compute_ms", "comm_ms", "exposed_ms", "slowest_rank", "gpu_watts", "gpu_mhz",
                                  "gpu_c"})
            EXPECT(measure != std::string(taken) && info.measures.size() <= kMeasures, "measures: %s", taken);
    EXPECT(!info.text(shape).empty() && info.flops_per_token(shape, shape.T) > 0 && !info.presets().empty(),
           "a line of it is empty");
}

EACH_MODEL(first_weights) {
    shape.C = shape.T = 64;
    set_vocabulary(&shape, 257);
    const Arena arena = arena_layout(info.tensors(shape));
    std::vector<float> w(arena.n, NAN);
    arena_init(w.data(), arena, 1337);
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const TensorSpec& spec = arena.tensors[t];
        const float* const x = w.data() + arena.offset[t];
        double sum = 0, squares = 0;
        const size_t n = spec.file_rows * spec.cols;
        for (size_t i = 0; i < n; i++) sum += double(x[i]), squares += double(x[i]) * double(x[i]);
        const double std = std::sqrt(squares / double(n)), tol = 5 / std::sqrt(2.0 * double(n));
        if (spec.init_std > 0)
            EXPECT(std::fabs(std / double(spec.init_std) - 1) < tol, "%s: std %g", spec.name.c_str(), std);
        else EXPECT(sum == (spec.init_std == kOnes ? double(n) : 0), "%s: sum %g", spec.name.c_str(), sum);
        for (size_t i = n; i < arena.offset[t + 1] - arena.offset[t]; i++)
            EXPECT(x[i] == 0, "%s: padding %zu", spec.name.c_str(), i);
        EXPECT(spec.matrix == (spec.file_rows > 1), "%s", spec.name.c_str());
    }
}

EACH_MODEL(fresh_model_is_near_ln_v) {
    Fixture f(info, shape, 2, 12);
    std::vector<float> w(f.weights.n);
    arena_init(w.data(), f.model.arena, 3);
    f.weights.put(w);
    EXPECT(std::fabs(f.loss() / 24 - std::log(19.0)) < 0.05, "%g", f.loss() / 24);
}

// A score is the cross entropy, whatever training minimises, and whether or not there are arrays for backward.
EACH_MODEL(a_score_is_the_cross_entropy) {
    Fixture f(info, shape, 2, 12);
    f.backward();
    const double loss = f.loss();
    EXPECT(std::fabs(f.last.loss - loss) < 1e-4, "%.9g forward and backward, %.9g forward", f.last.loss, loss);
    EXPECT_EQ(Fixture(info, shape, 2, 12, 0, {}, false).loss(), loss);
    for (const ChosenLoss& other : each_loss()) {
        const Row row(other.name);
        Fixture g(info, shape, 2, 12, 0, other);
        EXPECT_EQ(g.loss(), loss);
        g.backward();
        const double trained = g.last.loss;
        EXPECT((trained == f.last.loss) == (other.name == "cross-entropy"), "training: %.9g", trained);
        g.model.chunk = 5;              // each row has a loss of its own
        g.backward();
        EXPECT(std::fabs(g.last.loss / trained - 1) < 1e-4, "5 rows at a time: %.9g, %.9g", g.last.loss, trained);
    }
}

// There is room for B sequences of T tokens, and not for as many tokens in other forms.
EACH_MODEL(a_pass_without_room_is_refused) {
    Fixture f(info, shape, 2, 12);
    for (const auto& [B, T] : {std::pair(4, 6), {1, 24}, {3, 12}})
        expect_error(kExitOther, format("%d sequences of %d tokens, room for 2 of 12", B, T),
                     [&] { model_loss(&f.model, f.tokens.data(), f.targets.data(), B, T, nullptr); });
}

TEST(a_shape_that_no_gpu_takes) {
    ModelInfo info = *find_model("gpt2");
    Shape shape = small_shape(info);
    check_device(info, shape, true);
    info.cuda = [](const Shape& s) { return s.L > 2 ? format("--layers %d", s.L) : ""; };
    check_device(info, shape, true);
    shape.L = 3;
    check_device(info, shape, false);
    expect_error(kExitUsage, "gpt2 has no CUDA kernels for --layers 3;", [&] { check_device(info, shape, true); });
    info.cuda = nullptr;
    expect_error(kExitUsage, "gpt2 has no CUDA kernels for any shape;", [&] { check_device(info, shape, true); });
}

// Backward and --recompute do not change the residual stream. With a final norm of ones and zeros the hidden state of a
// token is a multiple of the last residual plus a constant.
EACH_MODEL(residuals_are_shown) {
    Fixture f(info, shape, 1, 1, /*recompute=*/3);
    if (std::ranges::count(info.keys, std::string("layers"), &ShapeKey::option))
        EXPECT_EQ(f.model.residuals.size(), size_t(shape.L) + 1);
    std::vector<float> w = large_weights(info, shape);
    for (size_t t = 0; t < f.model.arena.tensors.size(); t++)
        if (const TensorSpec& spec = f.model.arena.tensors[t]; !spec.matrix)
            std::fill_n(&w[f.model.arena.offset[t]], spec.cols, spec.init_std == kOnes ? 1.0f : 0.0f);
    f.weights.put(w);
    std::vector<float> x(size_t(shape.C)), y(x);
    const auto read = [](std::vector<float>* row, const floatX* array) {
        std::vector<floatX> stored(row->size());
        copy_to_host(stored.data(), array, stored.size() * sizeof(floatX));
        load_floats(row->data(), stored.data(), stored.size());
    };
    f.loss();
    read(&y, f.model.kind->forward(&f.model, {.B = 1, .T = 1}));
    std::vector<std::vector<float>> before;
    for (const bool after : {false, true}) {
        if (after) f.Trial::backward();
        for (size_t l = 0; l < f.model.residuals.size(); l++) {
            read(&x, &f.model.residuals[l].back() + 1 - shape.C);       // the last row
            if (!after) before.push_back(x);
            EXPECT(x == before[l], "backward changes residual %zu", l);
        }
    }
    for (int c = 2; c < shape.C && !before.empty(); c++) {
        const float a = (y[c] - y[0]) * (x[1] - x[0]), b = (y[1] - y[0]) * (x[c] - x[0]);
        EXPECT(std::fabs(a - b) <= (kExact ? 1e-3f : 0.1f) * (1 + std::fabs(a)), "%d: %g, %g", c, double(a), double(b));
    }
}

// A backward that leaves a gradient out, after so many whole passes.
static const ModelKind* whole_kind;
static int whole_passes;
static void forgets(Model* m, const Pass& pass, floatX* dhidden) {
    const std::vector<float*> grads = m->grads;
    if (whole_passes-- <= 0) {
        static std::vector<float> elsewhere;
        elsewhere.resize(m->arena.n);
        m->grads.back() = elsewhere.data();
    }
    whole_kind->backward(m, pass, dhidden);
    m->grads = grads;
}

EACH_MODEL(an_unwritten_gradient_is_named) {
    if (kOnGpu) SKIP("the fault is in a CPU's memory");
    Fixture f(info, shape, 2, 12);
    const std::string last = f.model.arena.tensors.back().name;
    whole_kind = f.model.kind;
    for (const int first : {0, 2}) {
        ModelKind kind = *whole_kind;
        kind.backward = forgets;
        f.model.kind = &kind;
        whole_passes = first;
        for (int i = 0; i < 4; i++) {
            const bool accumulate = i == 1;         // the sum so far stands there
            f.backward(accumulate);
            EXPECT(f.unwritten == (i >= first && !accumulate ? last : "") || (first == 0 && i == 1),
                   "pass %d: \"%s\"", i, f.unwritten.c_str());
            *f.result.at = {};
        }
    }
    f.model.kind = whole_kind;
    f.weights.put(std::vector<float>(f.weights.n, NAN));    // a model that has diverged has written its gradients
    EXPECT(std::isnan(f.backward()) && f.unwritten.empty(), "NaN: \"%s\"", f.unwritten.c_str());
}

// Central differences of a few weights of every tensor. fp32 rounding of the summed loss is about 3e-6, so that with a
// step of 1e-3 the difference is exact to about 4e-3. Two steps take out most of the error of curvature (Richardson).
// Models with dropout are tested with it, too: its masks are the same in every pass of a step. Padding rows have no
// gradient, and tensors are ready from the table's end to its start. One row has no target.
TEST(gradient_of_every_tensor) {
    const auto compare = [](const ModelInfo& info, const Shape& shape, const ChosenLoss& loss, bool documents) {
        const Row row(format("%s, dropout %g, documents %d", loss.name.c_str(), double(shape.dropout), documents));
        Fixture f(info, shape, 2, 11, 0, loss);
        if (documents) f.add_documents(info);
        f.targets[3] = -1;
        const Arena& arena = f.model.arena;
        int next = int(arena.tensors.size());
        f.backward(false, [&](int first, int last) {
            EXPECT(last == next && first < last, "[%d, %d) is ready after %d", first, last, next);
            next = first;
        });
        EXPECT_EQ(next, 0);
        const std::vector<float> grads = f.grads.host(), init = f.weights.host();
        for (size_t t = 0; t < arena.tensors.size(); t++) {
            const TensorSpec& spec = arena.tensors[t];
            const size_t begin = arena.offset[t], n = spec.file_rows * spec.cols;
            for (size_t i = begin; i < arena.offset[t + 1]; i++)
                EXPECT(std::isfinite(grads[i]), "%s: element %zu is not written", spec.name.c_str(), i - begin);
            for (size_t i = n; i < spec.rows * spec.cols; i++)
                EXPECT(grads[begin + i] == 0, "%s[%zu] is %g", spec.name.c_str(), i, double(grads[begin + i]));
            for (size_t k = 0; k < 4 && kExact; k++) {
                const size_t at = (k * 7919 + 3) % n;
                const auto loss_at = [&](float h) {
                    std::vector<float> w = init;
                    w[begin + at] += h;
                    f.weights.put(w);
                    return f.backward();
                };
                const auto slope = [&](float h) { return (loss_at(h) - loss_at(-h)) / (2 * double(h)); };
                const double want = (4 * slope(1e-3f) - slope(2e-3f)) / 3, got = double(grads[begin + at]);
                EXPECT(std::fabs(got - want) <= 0.02 + 0.03 * std::fabs(want), "%s[%zu]: got %g, want %g",
                       spec.name.c_str(), at, got, want);
            }
        }
    };
    each_model([&](const ModelInfo& info, Shape shape) {
        for (const ChosenLoss& loss : each_loss()) compare(info, shape, loss, false);
        if (!info.dropouts.empty()) shape.dropout = 0.2f;
        if (info.documents || !info.dropouts.empty()) compare(info, shape, {}, true);
    });
}

// Documents side by side in a row give the losses and the gradients of each by itself.
EACH_MODEL(documents_are_as_if_alone) {
    if (!info.documents) return;
    const int B = 2, T = 12;
    Fixture f(info, shape, B, T), alone(info, shape, 1, T);
    f.add_documents(info);
    const std::vector<int> begin = f.begin, all = f.tokens;
    std::vector<float> losses(size_t(B * T)), again(losses), one(size_t(T), 0.0f);
    model_loss(&f.model, f.tokens.data(), f.targets.data(), B, T, losses.data(), f.begins());
    for (int n = 0, length; n < B * T; n += length) {
        length = int(std::ranges::count(std::span(begin).subspan(size_t(n), size_t(T - n % T)), n % T));
        model_loss(&alone.model, &all[size_t(n)], &f.targets[size_t(n)], 1, length, one.data());
        for (int t = 0; t < length; t++) {
            const double got = double(losses[size_t(n + t)]), want = double(one[size_t(t)]);
            EXPECT(std::fabs(got - want) <= (kExact ? 1e-5 : 5e-2) * (1 + want), "token %d + %d: got %g, want %g", n, t,
                   got, want);
        }
        // Another token here changes no loss of another document, not by a bit.
        f.tokens[size_t(n)] = (all[size_t(n)] + 1) % shape.V;
        model_loss(&f.model, f.tokens.data(), f.targets.data(), B, T, again.data(), f.begins());
        for (int k = 0; k < B * T; k++)
            EXPECT((k >= n && k < n + length) || again[size_t(k)] == losses[size_t(k)], "token %d: loss %d", n, k);
        EXPECT(again[size_t(n)] != losses[size_t(n)], "token %d changes nothing", n);
        f.tokens = all;
    }
    // A row that is one document is what null says.
    f.begin.assign(size_t(B * T), 0);
    const double zeros = f.backward();
    const std::vector<float> grads = f.grads.host();
    f.begin.clear();
    const double null = f.backward();
    EXPECT(std::fabs(zeros / null - 1) < 1e-6, "got %.9g, want %.9g", zeros, null);
    expect_close(grads, f.grads.host(), kExact ? 1e-5 : 2e-2, "gradients");
}

EACH_MODEL(accumulate_adds_the_same_sum) {
    Fixture f(info, shape, 2, 12);
    f.add_documents(info);
    f.backward();
    const std::vector<float> once = f.grads.host();
    f.backward(true);
    const std::vector<float> twice = f.grads.host();
    for (size_t i = 0; i < once.size(); i++) {
        const double want = 2 * double(once[i]), tol = 4e-6 * (1 + std::fabs(double(once[i])));
        EXPECT(std::fabs(double(twice[i]) - want) <= tol, "[%zu]: %g after two, %g after one", i, double(twice[i]),
               want / 2);
    }
    f.backward(false);
    EXPECT(same_bits(f.grads.host(), once), "the same micro-batch again gives other bits");
}

EACH_MODEL(recompute_gives_the_same_bits) {
    shape.L = 3;
    if (!info.dropouts.empty()) shape.dropout = 0.1f;
    Fixture kept(info, shape, 2, 12);
    kept.add_documents(info);
    const double loss = kept.backward();
    size_t bytes = kept.model.memory_bytes;
    for (int level = 1; level <= 3; level++) {
        Fixture f(info, shape, 2, 12, level);
        f.add_documents(info);
        EXPECT(f.backward() == loss && same_bits(f.grads.host(), kept.grads.host()),
               "--recompute %d gives other bits", level);
        EXPECT((f.model.memory_bytes < bytes) == (level <= info.recompute), "--recompute %d: %zu bytes after %zu",
               level, f.model.memory_bytes, bytes);
        bytes = f.model.memory_bytes;
    }
}

EACH_MODEL(dropout_is_a_function_of_step_and_micro_batch) {
    if (info.dropouts.empty()) return;
    Fixture plain(info, shape, 2, 12);
    shape.dropout = 0.2f;
    Fixture f(info, shape, 2, 12);
    const double loss = f.backward();
    const std::vector<float> grads = f.grads.host();
    EXPECT(loss != plain.backward(), "it does nothing");
    EXPECT(f.backward() == loss && same_bits(f.grads.host(), grads), "the same micro-batch again gives other bits");
    f.micro_batch = 1;
    EXPECT(f.backward() != loss, "another micro-batch has the same masks");
    f.micro_batch = 0;
    f.host_state.step++;
    EXPECT(f.backward() != loss, "another step has the same masks");
    EXPECT_EQ(f.loss(), plain.loss());
}

// The first micro-batch with weights that are NaN until `needed` names them, and with gradients that begin as NaN:
// every gradient is written, no weight is read before `needed`, no gradient is written after `ready`.
EACH_MODEL(what_the_trainer_relies_on) {
    if (kOnGpu) SKIP("the check is of a CPU's memory");
    Fixture f(info, shape, 2, 12);
    const Arena& arena = f.model.arena;
    const std::vector<float> nan(arena.n, NAN);
    const std::vector<floatX> late(f.weights.at, f.weights.at + arena.n);
    std::vector<float> at_ready = nan;
    f.weights.put(nan);
    f.grads.put(nan);
    const auto part_of = [&](int first, int last, auto* from, auto* to) {
        const size_t begin = arena.offset[size_t(first)];
        std::copy(from + begin, from + arena.offset[size_t(last)], to + begin);
    };
    Pass pass = {};
    pass.needed = [&](int first, int last) { part_of(first, last, late.data(), f.weights.at); };
    pass.ready = [&](int first, int last) { part_of(first, last, f.grads.at, at_ready.data()); };
    EXPECT(!std::isnan(f.Trial::backward(pass).loss), "a weight is read before `needed` names its tensor");
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const TensorSpec& spec = arena.tensors[t];
        const float *begin = f.grads.at + arena.offset[t], *end = begin + spec.rows * spec.cols;
        EXPECT(std::none_of(begin, end, [](float x) { return std::isnan(x); }), "%s: elements of its gradient are left",
               spec.name.c_str());
        EXPECT(std::memcmp(begin, at_ready.data() + arena.offset[t], size_t(end - begin) * sizeof(float)) == 0,
               "%s: its gradient is never said to be ready, or written later", spec.name.c_str());
    }
}

// Returns the shape with other values of a number, those that the model takes.
static std::vector<Shape> with_others(const ModelInfo& info, const Shape& shape, const ShapeKey& key) {
    const double old = key.get(shape);
    std::vector<Shape> all;
    for (const double x : {old + 1, 2 * old, old / 2, old + 8, 1.1 * old}) {
        Shape other = shape;
        key.set(&other, x);
        if (key.limits.hold(x) && key.get(other) != old && info.check(other).empty()) all.push_back(other);
    }
    return all;
}

// An option that forward, backward and the cache ignore alike passes all tests above. One that another one enables has
// an effect beside another value of that.
EACH_MODEL(every_number_has_an_effect) {
    const auto trained = [&](const Shape& shape) {      // the gradients, and the loss
        Fixture f(info, shape, 2, 12);
        const double loss = f.backward();
        std::vector<float> all = f.grads.host();
        all.push_back(float(loss));
        return all;
    };
    const auto has_effect = [&](const Shape& shape, const ShapeKey& key) {
        const std::vector<float> want = trained(shape);
        return std::ranges::any_of(with_others(info, shape, key), [&](const Shape& other) {
            return !same_bits(trained(other), want);
        });
    };
    for (const ShapeKey& key : info.keys) {
        bool effect = key.option == std::string("seq-len") || has_effect(shape, key);   // the longest that may come
        for (const ShapeKey& enables : info.keys)
            for (const Shape& other : with_others(info, shape, enables)) effect = effect || has_effect(other, key);
        EXPECT(effect, "--%s: no value but %g gives another loss or gradient", key.option, key.get(shape));
    }
}

// Logits of the last position, from the whole forward pass: the loss against each possible target is -log softmax.
EACH_MODEL(generation_equals_the_full_forward) {
    Fixture f(info, shape, 1, 12);
    const Device<char> cache(f.model.kind->cache_bytes(shape));
    std::vector<float> logits(size_t(shape.V));
    f.model.documents = {.end = f.tokens[4]};       // a document starts behind the first piece
    const int pieces[][2] = {{0, 5}, {5, 1}, {6, 1}, {7, 5}, {0, 3}, {3, 2}};  // the second text begins anew
    for (const auto& [first, n] : pieces) {
        model_generate_step(&f.model, cache.at, f.tokens.data() + first, first, n, logits.data());
        double sum = 0;
        for (const float x : logits) sum += std::exp(double(x));
        std::vector<float> losses(size_t(first + n));
        for (int v = 0; v < shape.V; v++) {
            const std::vector<int> targets(size_t(first + n), v);
            model_loss(&f.model, f.tokens.data(), targets.data(), 1, first + n, losses.data());
            const double want = double(losses.back()), got = std::log(sum) - double(logits[size_t(v)]);
            EXPECT(std::fabs(got - want) <= (kExact ? 1e-5 : 2e-2) * (1 + want),
                   "position %d, token %d: got %g, want %g", first + n - 1, v, got, want);
        }
    }
}

// When the context of 12 tokens is full, the newer half begins a new one: it alone leads to the same tokens.
EACH_MODEL(generation_past_the_context) {
    Fixture f(info, shape, 1, 12);
    const SamplingParams likeliest = {.temperature = 0};
    const auto more = [](int) { return true; };
    std::vector<int> text(f.tokens.begin(), f.tokens.begin() + 10);
    generate(&f.model, &text, 9, likeliest, more);
    std::vector<int> half(text.begin() + 7, text.begin() + 13);
    generate(&f.model, &half, 6, likeliest, more);
    EXPECT(std::equal(half.begin(), half.end(), text.begin() + 7, text.end()), "other tokens");
}

EACH_MODEL(of_equal_logits_the_smaller_id) {
    Fixture f(info, shape, 1, 12);
    f.weights.put(std::vector<float>(f.weights.n));
    std::vector<int> text = {5};
    generate(&f.model, &text, 2, {.top_k = 1}, [](int) { return true; });
    EXPECT(text == (std::vector<int>{5, 0, 0}), "got %d, %d", text[1], text[2]);
}
