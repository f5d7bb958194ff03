// test_model.cpp -- every model of models/list as a whole, built against a backend: its gradient, accumulation,
// --recompute, generation, and what it tells the reduction.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
#include "models/gpt2.h"
#include "models/use.h"
#include "src/base/numbers.h"
#include "tests/models/small_shape.h"
#include "tests/test.h"

using namespace BACKEND;

namespace {

constexpr bool kExact = sizeof(floatX) == sizeof(float);  // fp32: finite differences mean something

template <class F> void each_model(const F& f) {
    for (const ModelInfo* info : all_models()) {
        try {
            f(*info, small_shape(*info));
        } catch (const TestFailure& failure) {
            throw TestFailure{format("%s: %s", info->name, failure.message.c_str())};
        }
    }
}

// A test that runs for each model of the list, with a small shape of it.
#define EACH_MODEL(name)                                             \
    static void each_##name(const ModelInfo& info, Shape shape);     \
    TEST(name) { each_model(each_##name); }                          \
    static void each_##name(const ModelInfo& info, Shape shape)

struct Fixture {
    Shape shape;
    Model model;
    std::vector<float> init;
    size_t n;
    floatX* weights;
    float* grads;
    PassResult* result;
    StepState* state;
    StepState host_state = {.seed = 5, .step = 3, .lr = 0, .grad_scale = 0};
    std::vector<int> tokens, targets;
    uint32_t micro_batch = 0;
    std::string unwritten;          // by the last backward: what PassResult says

    template <class X> static X* device(size_t count) {
        return static_cast<X*>(device_alloc(count * sizeof(X), "test"));
    }
    Fixture(const ModelInfo& info, const Shape& s, int B, int T, int recompute = 0) : shape(s) {
        const Arena arena = arena_layout(info.tensors(shape));
        n = arena.n;
        weights = device<floatX>(n);
        grads = device<float>(n);
        result = device<PassResult>(1);
        state = device<StepState>(1);
        model_create(&model, &info, shape, B, T, recompute, weights, true);
        init.resize(n);
        arena_init(init.data(), arena, 1);
        std::vector<float> poison(n, 0);
        for (size_t t = 0; t < arena.tensors.size();
             t++) {  // larger weights and non-zero biases: nothing hides in zeros
            const TensorSpec& spec = arena.tensors[t];
            for (size_t i = 0; i < spec.file_rows * spec.cols; i++) {
                float& w = init[arena.offset[t] + i];
                const float spread = spec.init_std == 0 && spec.matrix ? 1.0f : 0.1f;   // as large as other matrices
                w = w * 4 + spread * (uniform01(random4({9, 9, uint32_t(t), 0}, i).v[0]) - 0.5f);
            }
            std::fill_n(poison.begin() + long(arena.offset[t]), spec.rows * spec.cols, NAN);
        }
        set(init);
        copy_to_device(grads, poison.data(), n * sizeof(float), nullptr);
        stream_sync(nullptr);
        model_set_gradients(&model, grads);
        for (int i = 0; i < B * T; i++) {
            const Random4 r = random4({1, 2, 3, 4}, uint64_t(i));
            tokens.push_back(int(r.v[0] % uint32_t(shape.V)));
            targets.push_back(int(r.v[1] % uint32_t(shape.V)));
        }
        model.documents.begin = tokens[tokens.size() / 2];
    }
    ~Fixture() {
        model_destroy(&model);
        for (void* p : {(void*)weights, (void*)grads, (void*)result, (void*)state}) device_free(p);
    }
    void set(const std::vector<float>& w) {
        std::vector<floatX> stored(n);
        store_floats(stored.data(), w.data(), n);
        copy_to_device(weights, stored.data(), n * sizeof(floatX), nullptr);
        stream_sync(nullptr);
    }
    double backward(bool accumulate = false, const OnTensors& ready = [](int, int) {}) {
        copy_to_device(state, &host_state, sizeof *state, nullptr);
        Pass pass = {.B = model.B, .T = model.T, .accumulate = accumulate, .state = state, .micro_batch = micro_batch};
        pass.ready = ready;
        model_forward_backward(&model, pass, result, tokens.data(), targets.data());
        PassResult got;
        copy_to_host(&got, result, sizeof got, nullptr);
        unwritten = got.unwritten ? tensor_at(model.trained, model.trained.n - got.unwritten).name : "";
        return got.loss;
    }
    std::vector<float> gradients() {
        std::vector<float> g(n);
        copy_to_host(g.data(), grads, n * sizeof(float), nullptr);
        return g;
    }
    double loss() { return model_loss(&model, tokens.data(), targets.data(), model.B, model.T, nullptr); }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST(parameters_of_gpt2) {
    Shape shape = {.L = 12, .NH = 12, .C = 768, .T = 1024};
    set_vocabulary(&shape, 50257);
    EXPECT_EQ(count_parameters(gpt2_tensors(shape)), 124439808);
    EXPECT(std::fabs(gpt2_info.flops_per_token(shape, 1024) / 803e6 - 1) < 0.01, "%g",
           gpt2_info.flops_per_token(shape, 1024));
    shape.L = 48;
    shape.NH = 25;
    shape.C = 1600;
    EXPECT_EQ(count_parameters(gpt2_tensors(shape)), 1557611200);
}

EACH_MODEL(declarations) {
    EXPECT(find_model(info.name) == &info, "it is not found by its name");
    const std::vector<TensorSpec> tensors = info.tensors(shape);
    EXPECT(tensors[0].rows == size_t(shape.Vp) && tensors[0].cols == size_t(shape.C), "the head");
    for (const std::string name : info.measures)        // they stand beside these in metrics.jsonl
        for (const char* taken : {"event", "step", "loss", "lr", "grad_norm", "step_ms", "tok_s", "tokens", "mfu",
                                  "compute_ms", "comm_ms", "exposed_ms", "slowest_rank"})
            EXPECT(name != taken && info.measures.size() <= kMeasures, "measures: %s", taken);
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
        const size_t end = t + 1 < arena.tensors.size() ? arena.offset[t + 1] : arena.n;
        for (size_t i = n; i < end - arena.offset[t]; i++)
            EXPECT(x[i] == 0, "%s: padding %zu", spec.name.c_str(), i);
        EXPECT(spec.matrix == (spec.file_rows > 1), "%s", spec.name.c_str());
    }
}

EACH_MODEL(fresh_model_is_near_ln_v) {
    Fixture f(info, shape, 2, 12);
    std::vector<float> w(f.n);
    arena_init(w.data(), f.model.arena, 3);
    f.set(w);
    EXPECT(std::fabs(f.loss() / 24 - std::log(19.0)) < 0.05, "%g", f.loss() / 24);
}

// A ModelKind whose backward leaves things out: in every pass, or in later ones only.
static const ModelKind* whole_kind;
static int passes;
template <int FIRST> static void forgets(Model* m, const Pass& pass, floatX* dhidden) {
    const std::vector<float*> grads = m->grads;
    if (passes++ >= FIRST) {
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
        kind.backward = first ? forgets<2> : forgets<0>;
        f.model.kind = &kind;
        passes = 0;
        for (int i = 0; i < 4; i++) {
            const bool accumulate = i == 1;         // the sum so far stands there
            f.backward(accumulate);
            EXPECT(f.unwritten == (i >= first && !accumulate ? last : "") || (first == 0 && i == 1),
                   "pass %d: \"%s\"", i, f.unwritten.c_str());
            PassResult none = {};
            copy_to_device(f.result, &none, sizeof none);
        }
    }
    f.model.kind = whole_kind;
    f.set(std::vector<float>(f.n, NAN));            // a model that has diverged has written its gradients
    EXPECT(std::isnan(f.backward()) && f.unwritten.empty(), "NaN: \"%s\"", f.unwritten.c_str());
}

// Central differences of a few weights of every tensor. fp32 rounding of the summed loss is about 3e-6, so that with a
// step of 1e-3 the difference is exact to about 4e-3. Two steps take out most of the error of curvature (Richardson).
// Models with dropout are tested with it, too: its masks are the same in every pass of a step.
TEST(gradient_of_every_tensor) {
    const auto compare = [](const ModelInfo& info, const Shape& shape) {
        Fixture f(info, shape, 2, 11);
        const auto loss_of = [&] { return shape.dropout > 0 ? f.backward() : f.loss(); };
        const double loss = f.backward(), again = loss_of();
        EXPECT(std::fabs(loss - again) < 1e-4, "%.9g forward and backward, %.9g forward", loss, again);
        const std::vector<float> grads = f.gradients();
        const Arena& arena = f.model.arena;
        for (size_t i = 0; i < f.n; i++)
            EXPECT(std::isfinite(grads[i]), "element %zu is %g: not written", i, double(grads[i]));
        if (!kExact) return;
        for (size_t t = 0; t < arena.tensors.size(); t++) {
            const TensorSpec& spec = arena.tensors[t];
            for (size_t k = 0; k < 4; k++) {
                const size_t at = (k * 7919 + 3) % (spec.file_rows * spec.cols), i = arena.offset[t] + at;
                const auto difference = [&](float h) {
                    std::vector<float> w = f.init;
                    w[i] = f.init[i] + h;
                    f.set(w);
                    const double up = loss_of();
                    w[i] = f.init[i] - h;
                    f.set(w);
                    return (up - loss_of()) / (2 * double(h));
                };
                const double want = (4 * difference(1e-3f) - difference(2e-3f)) / 3;
                const double tol = 0.02 + 0.03 * std::fabs(want);
                EXPECT(std::fabs(double(grads[i]) - want) <= tol, "dropout %g: %s[%zu]: got %g, want %g",
                       double(shape.dropout), spec.name.c_str(), at, double(grads[i]), want);
            }
        }
    };
    each_model([&](const ModelInfo& info, Shape shape) {
        compare(info, shape);
        shape.dropout = 0.2f;
        if (!info.dropouts.empty()) compare(info, shape);
    });
}

EACH_MODEL(padding_rows_have_no_gradient) {
    Fixture f(info, shape, 2, 11);
    f.backward();
    const std::vector<float> grads = f.gradients();
    for (size_t t = 0; t < f.model.arena.tensors.size(); t++) {
        const TensorSpec& spec = f.model.arena.tensors[t];
        const float* const d = grads.data() + f.model.arena.offset[t];
        for (size_t i = spec.file_rows * spec.cols; i < spec.rows * spec.cols; i++)
            EXPECT(d[i] == 0, "%s[%zu] is %g", spec.name.c_str(), i, double(d[i]));
    }
}

EACH_MODEL(accumulate_adds_the_same_sum) {
    Fixture f(info, shape, 2, 12);
    f.backward();
    const std::vector<float> once = f.gradients();
    f.backward(true);
    const std::vector<float> twice = f.gradients();
    for (size_t i = 0; i < once.size(); i++) {
        const double want = 2 * double(once[i]), tol = 4e-6 * (1 + std::fabs(double(once[i])));
        EXPECT(std::fabs(double(twice[i]) - want) <= tol, "[%zu]: %g after two, %g after one", i, double(twice[i]),
               want / 2);
    }
    f.backward(false);
    EXPECT(same_bits(f.gradients(), once), "the same micro-batch again gives other bits");
}

EACH_MODEL(recompute_gives_the_same_bits) {
    shape.L = 3;
    if (!info.dropouts.empty()) shape.dropout = 0.1f;
    Fixture kept(info, shape, 2, 12);
    const double loss = kept.backward();
    for (int level = 1; level <= 3; level++) {
        Fixture f(info, shape, 2, 12, level);
        EXPECT(f.backward() == loss && same_bits(f.gradients(), kept.gradients()),
               "--recompute %d gives other bits", level);
        EXPECT(f.model.memory_bytes <= kept.model.memory_bytes, "--recompute %d takes more memory", level);
    }
}

EACH_MODEL(dropout_is_a_function_of_step_and_micro_batch) {
    if (info.dropouts.empty()) return;
    Fixture plain(info, shape, 2, 12);
    shape.dropout = 0.2f;
    Fixture f(info, shape, 2, 12);
    const double loss = f.backward();
    const std::vector<float> grads = f.gradients();
    EXPECT(loss != plain.backward(), "it does nothing");
    EXPECT(f.backward() == loss && same_bits(f.gradients(), grads), "the same micro-batch again gives other bits");
    f.micro_batch = 1;
    EXPECT(f.backward() != loss, "another micro-batch has the same masks");
    f.micro_batch = 0;
    f.host_state.step++;
    EXPECT(f.backward() != loss, "another step has the same masks");
    EXPECT_EQ(f.loss(), plain.loss());
}

EACH_MODEL(tensors_are_ready_from_the_end) {
    Fixture f(info, shape, 1, 12);
    int next = int(f.model.arena.tensors.size());
    bool order = true;
    f.backward(false, [&](int first, int last) {
        order &= last == next && first < last;
        next = first;
    });
    EXPECT(order && next == 0, "ranges do not run from the table's end to its start: stopped at %d", next);
}

// The first micro-batch with weights that are NaN until `needed` names them, and with gradients that begin as NaN:
// every gradient is written, no weight is read before `needed`, no gradient is written after `ready`.
static void check_hooks(Fixture* f) {
    const Arena& arena = f->model.arena;
    const size_t n = f->n, tensors = arena.tensors.size();
    const std::vector<float> nan(n, NAN);
    const std::vector<floatX> late(f->weights, f->weights + n);
    std::vector<float> at_ready(nan);
    store_floats(f->weights, nan.data(), n);
    std::copy(nan.begin(), nan.end(), f->grads);
    const auto part_of = [&](int first, int last, auto* from, auto* to) {
        const size_t begin = arena.offset[size_t(first)], end = size_t(last) < tensors ? arena.offset[size_t(last)] : n;
        std::copy(from + begin, from + end, to + begin);
    };
    Pass pass = {.B = f->model.B, .T = f->model.T};
    pass.needed = [&](int first, int last) { part_of(first, last, late.data(), f->weights); };
    pass.ready = [&](int first, int last) { part_of(first, last, f->grads, at_ready.data()); };
    PassResult result = {};
    model_forward_backward(&f->model, pass, &result, f->tokens.data(), f->targets.data());
    EXPECT(!std::isnan(result.loss), "a weight is read before `needed` names its tensor");
    for (size_t t = 0; t < tensors; t++) {
        const TensorSpec& spec = arena.tensors[t];
        const float *begin = f->grads + arena.offset[t], *end = begin + spec.rows * spec.cols;
        EXPECT(std::none_of(begin, end, [](float x) { return std::isnan(x); }), "%s: elements of its gradient are left",
               spec.name.c_str());
        EXPECT(std::memcmp(begin, at_ready.data() + arena.offset[t], size_t(end - begin) * sizeof(float)) == 0,
               "%s: its gradient is never said to be ready, or written later", spec.name.c_str());
    }
}

EACH_MODEL(what_the_trainer_relies_on) {
    if (kOnGpu) SKIP("the check is of a CPU's memory");
    Fixture f(info, shape, 2, 12);
    check_hooks(&f);
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
        std::vector<float> all = f.gradients();
        all.push_back(float(loss));
        return all;
    };
    const auto has_effect = [&](const Shape& shape, const ShapeKey& key) {
        const std::vector<float> want = trained(shape);
        return std::ranges::any_of(with_others(info, shape, key), [&](const Shape& other) {
            const std::vector<float> got = trained(other);
            return got.size() != want.size() || !same_bits(got, want);
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
    void* const cache = device_alloc(f.model.kind->cache_bytes(shape), "test");
    std::vector<float> logits(size_t(shape.V));
    f.model.documents = {.end = f.tokens[4]};       // a document starts behind the first piece
    const int pieces[][2] = {{0, 5}, {5, 1}, {6, 1}, {7, 5}, {0, 3}, {3, 2}};  // the second text begins anew
    for (const auto& [first, n] : pieces) {
        model_generate_step(&f.model, cache, f.tokens.data() + first, first, n, logits.data());
        double largest = -1e30, sum = 0;
        for (const float x : logits) largest = std::max(largest, double(x));
        for (const float x : logits) sum += std::exp(double(x) - largest);
        std::vector<float> losses(size_t(first + n));
        for (int v = 0; v < shape.V; v++) {
            const std::vector<int> targets(size_t(first + n), v);
            model_loss(&f.model, f.tokens.data(), targets.data(), 1, first + n, losses.data());
            const double want = double(losses.back()), got = largest + std::log(sum) - double(logits[size_t(v)]);
            EXPECT(std::fabs(got - want) <= (kExact ? 1e-5 : 2e-2) * (1 + want),
                   "position %d, token %d: got %g, want %g", first + n - 1, v, got, want);
        }
    }
    device_free(cache);
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
    f.set(std::vector<float>(f.n, 0));
    std::vector<int> text = {5};
    generate(&f.model, &text, 2, {.top_k = 1}, [](int) { return true; });
    EXPECT(text == (std::vector<int>{5, 0, 0}), "got %d, %d", text[1], text[2]);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
