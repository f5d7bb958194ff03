// model.cpp -- what all models share: the list of their kinds, memory, the head with its loss, and
// generation.
#include "models/model.h"
#include <algorithm>
#include <numeric>
#include <utility>
#include "build/models.h"
#include "models/losses/loss.h"
#include "models/use.h"
#include "src/base/numbers.h"

namespace BACKEND {

// ./configure writes models/list as MODELS(X) to build/models.h. Only this file and models.cpp
// include that.
#define X(name) extern const ModelKind name##_kind;
MODELS(X)
#undef X

static const ModelKind* find_kind(const ModelInfo* info) {
#define X(name) if (info == &name##_info) return &name##_kind;
    MODELS(X)
#undef X
    CHECK(false, "model %s is not in models/list", info->name);
}

// In the order of kLosses.
#define X(name) name##_rule,
static LossRule* const kRules[] = {LOSSES(X)};
#undef X

Dropout dropout(const Model* m, const Pass& pass, int site) {
    const float rate = pass.state ? m->shape.dropout : 0;
    return {rate, uint32_t(kRandomDropout + site), pass.micro_batch, pass.state};
}

const floatX* drop(const Model* m, const Pass& pass, int site, floatX* out, const floatX* inp) {
    const Dropout drop = dropout(m, pass, site);
    if (drop.rate == 0) return inp;
    dropout_backward(out, inp, size_t(pass.N()) * m->shape.C, drop);
    return out;
}

// -------------------------------------------------------------------------- memory: one allocation

void check_device(const ModelInfo& info, const Shape& shape, bool on_gpu) {
    if (!on_gpu) return;
    const std::string lacking = info.cuda ? info.cuda(shape) : "any shape";
    if (!lacking.empty())
        die(kExitUsage, "--device: got gpu, but %s has no CUDA kernels for %s; take --device cpu",
            info.name, lacking.c_str());
    if (shape.C > kGpuChannels)
        die(kExitUsage,
            "--channels: got %d, want at most %d on a GPU; take fewer, or --device cpu", shape.C,
            kGpuChannels);
}

// Returns the number of rows in a chunk of logits. It depends only on the shape and the kind of
// backend: a chunk's weight gradient is one sum, so the chunks decide the bits. On a GPU it is
// about 8,192 rows for GPT-2's vocabulary, because smaller chunks would read and write the head's
// gradient too often.
static int logits_chunk(int N, int Vp, bool on_gpu) {
    const int elements = on_gpu ? 8192 * 50304 : 1 << 24;
    return std::min(std::max(elements / Vp / 64 * 64, 64), N);
}

static void place_arrays(Model* m) {
    Layout place = {.memory = static_cast<char*>(m->memory)};
    const size_t N = size_t(m->B) * m->T;
    m->residuals.clear();
    m->kind->plan(m, place);
    place(m->logits, size_t(m->chunk) * m->shape.Vp);
    place(m->losses, N);
    place(m->loss, 1);
    place(m->tokens, N);
    place(m->targets, N);
    place(m->begin, N);
    if (m->training) place(m->dhidden, N * m->shape.C);
    place(m->loss_memory, kLosses[loss_row(m->chosen_loss.name)].memory * m->chunk);
    if (m->trained.freezes()) {
        size_t widest = 0, vectors = 0;
        for (const TensorSpec& t : m->arena.tensors) {
            if (t.rows == 1) vectors += t.cols;
            else if (!t.at_ends) widest = std::max({widest, t.rows, t.cols});
        }
        place(m->low, N * m->trained.rank);
        place(m->dlow, N * m->trained.rank);
        place(m->wide, N * widest);
        place(m->unread, vectors);
    }
    m->memory_bytes = place.bytes;
}

Model model_plan(const ModelInfo* info, const Shape& shape, int B, int T, int recompute,
                 bool training, bool on_gpu, const Trained& trained, const ChosenLoss& loss) {
    check_device(*info, shape, on_gpu);
    if (!kRules[loss_row(loss.name)])
        die(kExitUsage, "--loss %s: has no CUDA kernels; take --device cpu", loss.name.c_str());
    CHECK(info->measures.size() <= kMeasures, "%s: more than %zu measures", info->name, kMeasures);
    Model m = {.kind = find_kind(info), .shape = shape, .B = B, .T = T, .recompute = recompute,
               .training = training, .chunk = logits_chunk(B * T, shape.Vp, on_gpu),
               .arena = arena_layout(info->tensors(shape))};
    m.chosen_loss = loss;
    m.trained = trained.freezes() ? trained : Trained{m.arena};
    place_arrays(&m);
    return m;
}

static std::vector<uint64_t> table_hashes(const Model& m) {
    std::vector<uint64_t> hashes;
    for (const Weight& w : m.weights) {
        const size_t bytes = round_up(size_t(w.rows) * w.cols, kUnit) * sizeof(floatX);
        hashes.push_back(hash_floats(reinterpret_cast<float*>(w.at), bytes / sizeof(float)));
    }
    return hashes;
}

void model_create(Model* m, const ModelInfo* info, const Shape& shape, int B, int T, int recompute,
                  floatX* weights, bool training, const Trained& trained, floatX* frozen,
                  const ChosenLoss& loss) {
    *m = model_plan(info, shape, B, T, recompute, training, kOnGpu, trained, loss);
    m->memory = device_alloc(m->memory_bytes, "activations");
    place_arrays(m);
    m->all_weights = weights;
    for (size_t t = 0; t < m->arena.tensors.size(); t++) {
        const TensorSpec& spec = m->arena.tensors[t];
        floatX* const at = (frozen ? frozen : weights) + m->arena.offset[t];
        Weight w = {at, int(spec.rows), int(spec.cols)};
        if (trained.freezes() && trained.begins[t] < trained.begins[t + 1]) {
            w.pairs = m;
            w.A = trained.offset[trained.begins[t]];
            w.B = trained.offset[trained.begins[t] + 1];
        }
        m->weights.push_back(w);
    }
    if (trained.freezes()) m->frozen_hashes = table_hashes(*m);
}

std::string changed_frozen_tensor(const Model& m) {
    if (m.frozen_hashes.empty()) return "";
    const std::vector<uint64_t> now = table_hashes(m);
    for (size_t t = 0; t < now.size(); t++)
        if (now[t] != m.frozen_hashes[t]) return m.arena.tensors[t].name;
    return "";
}

void model_destroy(Model* m) {
    device_free(m->memory);
    *m = Model{};
}

void model_set_gradients(Model* m, float* grads) {
    m->grads.clear();
    m->all_grads = grads;
    float* unread = m->unread;
    for (size_t t = 0; t < m->weights.size(); t++) {
        const Weight& w = m->weights[t];
        if (!m->trained.freezes()) m->grads.push_back(grads + m->arena.offset[t]);
        else m->grads.push_back(w.rows == 1 ? std::exchange(unread, unread + w.cols) : nullptr);
    }
}

// ---------------------------------------------------------------------------------------- the head

void run_loss(Model* m, const LossRows& rows) {
    if (rows.losses) (rows.backward ? kRules[loss_row(m->chosen_loss.name)] : cross_entropy_rule)(rows);
}

// Computes m->logits of n rows of hidden states (n,C), and of them what LossRows says.
static void logits_of(Model* m, const floatX* hidden, float* losses, const int* targets, int n,
                      bool backward) {
    matmul_forward(m->logits, hidden, m->weights[0], nullptr, n, m->shape.C, m->shape.Vp);
    m->kind->loss(m, {m->logits, losses, targets, n, m->shape.V, m->shape.Vp, backward,
                      m->loss_memory, m->chosen_loss.hyper});
}

// Computes logits and losses, a chunk of rows at a time. If dhidden is not null, it also computes
// the gradients of hidden and of the head's weight.
static void head(Model* m, const Pass& pass, const floatX* hidden, floatX* dhidden) {
    const int C = m->shape.C, Vp = m->shape.Vp, N = pass.N();
    for (int row = 0; row < N; row += m->chunk) {
        const int n = std::min(m->chunk, N - row);
        const floatX* const inp = hidden + size_t(row) * C;
        logits_of(m, inp, m->losses + row, m->targets + row, n, dhidden != nullptr);
        if (!dhidden) continue;
        matmul_backward_input(dhidden + size_t(row) * C, m->logits, m->weights[0], n, C, Vp);
        if (m->grads[0])            // else the head is frozen
            matmul_backward_params(m->grads[0], nullptr, m->logits, inp, n, C, Vp,
                                   pass.accumulate || row > 0);
    }
}

// Moves tokens, targets and pass->begin to the device, and computes the hidden states.
static const floatX* forward(Model* m, Pass* caller, const int* tokens, const int* targets) {
    Pass& pass = *caller;
    const size_t bytes = pass.N() * sizeof(int);
    CHECK(pass.B <= m->B && pass.T <= m->T, "%d sequences of %d tokens, room for %d of %d", pass.B,
          pass.T, m->B, m->T);
    copy_to_device(m->tokens, tokens, bytes);
    if (targets) copy_to_device(m->targets, targets, bytes);
    if (pass.begin) copy_to_device(m->begin, std::exchange(pass.begin, m->begin), bytes);
    return m->kind->forward(m, pass);
}

// Calls use(gradients, n, step) for trained tensors [first, last). To check are elements 0, step,
// ... < n, which are no padding.
template <class F> static void each_checked(const Model& m, int first, int last, const F& use) {
    const Arena& arena = m.trained;
    const auto begin = [&](size_t t) {
        return t < arena.offset.size() ? arena.offset[t] : arena.n;
    };
    if (m.checked && first < last)
        return use(m.all_grads + begin(first), begin(last) - begin(first), kUnit);
    for (int t = first; t < last; t++)
        use(m.all_grads + begin(t), arena.tensors[t].rows * arena.tensors[t].cols, 1);
}

void model_forward_backward(Model* m, const Pass& caller, PassResult* result, const int* tokens,
                            const int* targets) {
    const auto trained = [m](int t) { return m->trained.freezes() ? m->trained.begins[t] : t; };
    const int all = m->trained.tensors.size();
    const auto check = [&](int first, int last) {
        if (caller.accumulate) return;
        each_checked(*m, first, last, [&](const float* grads, size_t n, size_t step) {
            find_poison(&result->unwritten, grads, n, step, m->all_grads + m->trained.n);
        });
    };
    Pass pass = caller;
    pass.measures = result->measures;
    pass.needed = [&](int first, int last) { caller.needed(trained(first), trained(last)); };
    pass.ready = [&](int first, int last) {
        if (!caller.ready) return;
        check(trained(first), trained(last));
        caller.ready(trained(first), trained(last));
    };
    const floatX* const hidden = forward(m, &pass, tokens, targets);
    // All weights have arrived, so the last step's update, which reads the gradients, has ended.
    if (!caller.accumulate) each_checked(*m, 0, all, [](auto... range) { poison(range...); });
    head(m, pass, hidden, m->dhidden);
    sum_in_order(&result->loss, m->losses, pass.N());
    m->kind->backward(m, pass, m->dhidden);
    if (!caller.ready) check(0, all);
    m->checked |= !caller.accumulate;
}

double model_loss(Model* m, const int* tokens, const int* targets, int B, int T, float* losses,
                  const int* begin) {
    Pass pass = {.B = B, .T = T, .begin = begin};
    head(m, pass, forward(m, &pass, tokens, targets), nullptr);
    sum_in_order(m->loss, m->losses, pass.N());
    double loss;
    copy_to_host(&loss, m->loss, sizeof loss);
    if (losses) copy_to_host(losses, m->losses, pass.N() * sizeof(float));
    return loss;
}

// -------------------------------------------------------------------------------------- generation

void model_generate_step(Model* m, void* cache, const int* tokens, int first, int n,
                         float* logits) {
    Pass pass = {.B = 1, .T = n, .cache = cache, .first = first};
    const floatX* const hidden = forward(m, &pass, tokens, nullptr);
    logits_of(m, hidden + size_t(n - 1) * m->shape.C, nullptr, nullptr, 1, false);
    std::vector<floatX> row(m->shape.V);
    copy_to_host(row.data(), m->logits, row.size() * sizeof(floatX));
    load_floats(logits, row.data(), row.size());
}

// Draws the token for `position` of the text. Everything is computed in double and in a fixed
// order. Among equal logits the smaller id comes first.
static int sample_token(const std::vector<float>& logits, const SamplingParams& params,
                        uint64_t position) {
    const size_t tokens = params.tokens > 0 ? size_t(params.tokens) : logits.size();
    if (params.temperature <= 0)
        return std::max_element(&logits[0], &logits[0] + tokens) - &logits[0];
    std::vector<int> order(tokens);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), [&](int token) { return logits[token]; });
    if (params.top_k > 0) order.resize(std::min(tokens, size_t(params.top_k)));

    std::vector<double> p;
    double total = 0, kept = 0;
    const double largest = logits[order[0]];
    for (const int token : order)
        total += p.emplace_back(same_exp((logits[token] - largest) / params.temperature));
    size_t n = 0;
    while (n < p.size() && (n == 0 || kept < params.top_p * total)) kept += p[n++];

    const Random4 r = random4({params.seed, kRandomSample, params.stream, 0}, position);
    double u = (r.v[0] * 4294967296.0 + r.v[1]) / 18446744073709551616.0 * kept;
    for (size_t i = 0; i < n; i++) {
        if (u < p[i]) return order[i];
        u -= p[i];
    }
    return order[n - 1];
}

void generate(Model* m, std::vector<int>* text, int max_tokens, const SamplingParams& params,
              const std::function<bool(int)>& more) {
    void* const cache = device_alloc(m->kind->cache_bytes(m->shape), "cache for generation");
    std::vector<float> logits(m->shape.V);
    const size_t T = m->shape.T;
    size_t begin = text->size() - std::min(text->size(), T), cached = begin;    // of the context
    for (int i = 0; i < max_tokens; i++) {
        const size_t n = text->size();
        if (n - begin > T) begin = cached = n - std::max<size_t>(1, T / 2);
        model_generate_step(m, cache, &(*text)[cached], cached - begin, n - cached, logits.data());
        cached = n;
        text->push_back(sample_token(logits, params, n));
        if (!more(text->back())) break;
    }
    device_free(cache);
}

}  // namespace BACKEND
