// gpt.cpp -- GPT-2, forward and then backward as its mirror. The formulas are in kernels.h, the shapes in gpt.h.
#include "gpt.h"
#include <algorithm>
#include <cmath>
#include "common.h"
#include "rng.h"

namespace BACKEND {

// ------------------------------------------------------------------------------------------------ the tensor table

std::vector<TensorSpec> gpt_tensors(const GptConfig& c) {
    const size_t C = size_t(c.C);
    const float s = 0.02f, r = 0.02f / std::sqrt(2.0f * float(c.L));   // r: projections into the residual stream (GPT-2, section 2.3)
    const auto matrix = [](std::string name, size_t out, size_t in, float std) { return TensorSpec{name, out, in, out, true, std, true}; };
    const auto vector = [](std::string name, size_t n, float init) { return TensorSpec{name, 1, n, 1, false, init, false}; };
    std::vector<TensorSpec> table = {
        {"transformer.wte.weight", size_t(c.Vp), C, size_t(c.V), false, s, true},
        {"transformer.wpe.weight", size_t(c.maxT), C, size_t(c.maxT), false, s, true},
    };
    for (int l = 0; l < c.L; l++) {
        const std::string h = "transformer.h." + std::to_string(l) + ".";
        table.insert(table.end(), {
            vector(h + "ln_1.weight", C, kOnes),               vector(h + "ln_1.bias", C, 0),
            matrix(h + "attn.c_attn.weight", 3 * C, C, s),     vector(h + "attn.c_attn.bias", 3 * C, 0),
            matrix(h + "attn.c_proj.weight", C, C, r),         vector(h + "attn.c_proj.bias", C, 0),
            vector(h + "ln_2.weight", C, kOnes),               vector(h + "ln_2.bias", C, 0),
            matrix(h + "mlp.c_fc.weight", 4 * C, C, s),        vector(h + "mlp.c_fc.bias", 4 * C, 0),
            matrix(h + "mlp.c_proj.weight", C, 4 * C, r),      vector(h + "mlp.c_proj.bias", C, 0),
        });
    }
    table.insert(table.end(), {vector("transformer.ln_f.weight", C, kOnes), vector("transformer.ln_f.bias", C, 0)});
    return table;
}

constexpr int kFirstBlock = 2, kBlockTensors = 12;      // places in the table: block l starts at kFirstBlock + l * kBlockTensors

template <class F> static GptTensors<F> resolve(const Arena& arena, F* base, int L) {
    size_t t = 0;
    const auto next = [&] { return base + arena.offset[t++]; };
    GptTensors<F> w;
    w.wte = next(); w.wpe = next();
    w.block.resize(size_t(L));
    for (auto& b : w.block) {
        b.ln1w = next();     b.ln1b = next();
        b.qkvw = next();     b.qkvb = next();
        b.attprojw = next(); b.attprojb = next();
        b.ln2w = next();     b.ln2b = next();
        b.fcw = next();      b.fcb = next();
        b.fcprojw = next();  b.fcprojb = next();
    }
    w.lnfw = next(); w.lnfb = next();
    CHECK(t == arena.offset.size(), "%zu pointers to the table's %zu tensors", t, arena.offset.size());
    return w;
}

size_t gpt_parameters(const GptConfig& config) {
    size_t n = 0;
    for (const TensorSpec& t : gpt_tensors(config)) n += t.file_rows * t.cols;
    return n;
}

double gpt_flops_per_token(const GptConfig& c, int T) {
    double n = 0;                                       // parameters in matmuls: all matrices but wpe; the tied head's wte once
    for (const TensorSpec& t : gpt_tensors(c))
        if (t.decay) n += double(t.file_rows) * double(t.cols);
    n -= double(c.maxT) * c.C;
    return 6.0 * n + 6.0 * c.L * double(c.C) * T;       // the causal half of attention, as llm.c and torchtitan count it
}

// ------------------------------------------------------------------------------------- activations: one plan, one allocation

// Rows of logits that exist at a time: a function of the shape and the kind of backend only, since a chunk's weight gradient is one sum.
// A GPU takes about 8,192 rows of GPT-2's vocabulary: smaller chunks would read and write the head's gradient too often.
static int logits_chunk(int N, int Vp) {
    constexpr size_t kElements = kOnGpu ? size_t(8192) * 50304 : size_t(1) << 24;
    const size_t rows = kElements / size_t(Vp) / 64 * 64;
    return int(std::min(std::max<size_t>(rows, 64), size_t(N)));
}

std::vector<Activation> gpt_plan(GptActivations* act, const GptConfig& c, int B, int T, int recompute, bool training) {
    GptActivations& a = *act;
    const size_t N = size_t(B) * size_t(T), C = size_t(c.C), rows = size_t(c.NH) * N, L = size_t(c.L);
    a.block.resize(L);
    std::vector<Activation> plan;
    const auto keep = [&](const char* name, auto*& p, size_t n) { plan.push_back({name, n * sizeof(*p), 1, {reinterpret_cast<void**>(&p)}}); };
    // One per block, or one for all where backward computes it again from this level of --recompute on.
    const auto block = [&](const char* name, auto GptActivations::Block::* p, size_t n, int shared_from) {
        plan.push_back({name, n * sizeof(*(a.block[0].*p)), recompute >= shared_from ? 1 : int(L), {}});
        for (GptActivations::Block& b : a.block) plan.back().pointers.push_back(reinterpret_cast<void**>(&(b.*p)));
    };
    constexpr int kNever = 99;
    using Block = GptActivations::Block;
    keep("encoded", a.encoded, N * C);
    block("ln1", &Block::ln1, N * C, 2);               block("ln1_mean", &Block::ln1_mean, N, 3);  block("ln1_rstd", &Block::ln1_rstd, N, 3);
    block("qkv", &Block::qkv, N * 3 * C, 3);
    block("att", &Block::att, N * C, 3);               block("lse", &Block::lse, rows, 3);
    block("residual2", &Block::residual2, N * C, 3);
    block("ln2", &Block::ln2, N * C, 2);               block("ln2_mean", &Block::ln2_mean, N, 3);  block("ln2_rstd", &Block::ln2_rstd, N, 3);
    block("fc", &Block::fc, N * 4 * C, 3);             block("gelu", &Block::gelu, N * 4 * C, 1);
    block("residual3", &Block::residual3, N * C, kNever);
    keep("branch", a.branch, N * C);
    keep("lnf", a.lnf, N * C);  keep("lnf_mean", a.lnf_mean, N);  keep("lnf_rstd", a.lnf_rstd, N);
    keep("logits", a.logits, size_t(logits_chunk(B * T, c.Vp)) * size_t(c.Vp));
    keep("losses", a.losses, N);  keep("loss", a.loss, 1);
    keep("tokens", a.tokens, N);  keep("targets", a.targets, N);
    if (training) {
        keep("dresidual", a.dresidual, N * C);
        if (c.dropout > 0) keep("dbranch", a.dbranch, N * C);
        keep("dnorm", a.dnorm, N * C);
        keep("dwide", a.dwide, N * 4 * C);  keep("delta", a.delta, rows);
    }
    return plan;
}

void check_channels(int channels) {
    if (kOnGpu && channels > kGpuChannels) die(kExitUsage, "--channels: got %d, want at most %d on a GPU; take fewer, or --device cpu", channels, kGpuChannels);
}

void gpt_create(Gpt* model, const GptConfig& config, int B, int T, int recompute, floatX* weights, bool training) {
    *model = Gpt{};
    model->config = config;
    model->arena = arena_layout(gpt_tensors(config));
    CHECK(size_t(kFirstBlock + config.L * kBlockTensors + 2) == model->arena.tensors.size(), "a block has not %d tensors", kBlockTensors);
    model->B = B; model->T = T; model->recompute = recompute;
    model->chunk = logits_chunk(B * T, config.Vp);
    model->w = resolve(model->arena, weights, config.L);
    const std::vector<Activation> plan = gpt_plan(&model->act, config, B, T, recompute, training);
    const auto padded = [](size_t bytes) { return round_up<size_t>(bytes, 256); };
    for (const Activation& p : plan) model->activation_bytes += padded(p.bytes) * size_t(p.count);
    model->memory = device_alloc(model->activation_bytes, "activations");
    char* at = static_cast<char*>(model->memory);
    for (const Activation& p : plan) {
        for (size_t i = 0; i < p.pointers.size(); i++) *p.pointers[i] = at + (p.count > 1 ? i * padded(p.bytes) : 0);
        at += padded(p.bytes) * size_t(p.count);
    }
}

void gpt_destroy(Gpt* model) { device_free(model->memory); *model = Gpt{}; }

void gpt_set_gradients(Gpt* model, float* grads) { model->d = resolve(model->arena, grads, model->config.L); }

// ------------------------------------------------------------------------------------------------------------ forward

namespace {
enum Site { kSiteAttention, kSiteProjection, kSiteMlp };

// What a pass is besides its tokens: where it starts, with which cache, with which dropout masks.
struct Pass {
    int B, T, first = 0;
    floatX* cache = nullptr;            // generation: keys and values of the positions before `first`
    const StepState* state = nullptr;   // null: no dropout
    uint32_t leaf = 0;
    Stream stream;
    OnTensors needed = nullptr;
};
}  // namespace

static Dropout dropout(const Gpt* model, const Pass& pass, uint32_t purpose) {
    return {pass.state ? model->config.dropout : 0.0f, purpose, pass.leaf, pass.state};
}
static Dropout dropout(const Gpt* model, const Pass& pass, int layer, Site site) {
    return dropout(model, pass, kRandomDropout + 4 * uint32_t(layer) + site);
}
static Dropout embedding_dropout(const Gpt* model, const Pass& pass) { return dropout(model, pass, kRandomDropout - 1); }

// A block as far as backward needs it: x normalised -> attention -> x + projection, normalised -> pre-activation and activation.
static void forward_block(Gpt* model, const Pass& pass, int l, const floatX* x) {
    const GptConfig& c = model->config;
    GptActivations::Block& b = model->act.block[size_t(l)];
    const GptTensors<floatX>::Block& p = model->w.block[size_t(l)];
    floatX* const branch = model->act.branch;
    const int C = c.C, N = pass.B * pass.T, HS = C / c.NH;
    const Stream s = pass.stream;
    matmul_forward(b.qkv, b.ln1, p.qkvw, p.qkvb, N, C, 3 * C, s);
    if (pass.cache) {
        floatX* cache = pass.cache + size_t(l) * 2 * size_t(c.maxT) * size_t(C);
        attention_cached(b.att, cache, b.qkv, pass.first, pass.T, c.maxT, c.NH, HS, s);
    } else {
        attention_forward(b.att, b.lse, b.qkv, pass.B, pass.T, c.NH, HS, dropout(model, pass, l, kSiteAttention), s);
    }
    matmul_forward(branch, b.att, p.attprojw, p.attprojb, N, C, C, s);
    residual_layernorm_forward(b.residual2, b.ln2, b.ln2_mean, b.ln2_rstd, x, branch, p.ln2w, p.ln2b, N, C,
                               dropout(model, pass, l, kSiteProjection), s);
    matmul_gelu_forward(b.gelu, b.fc, b.ln2, p.fcw, p.fcb, N, C, 4 * C, s);
}

// act.tokens -> act.lnf, everything backward needs on the way.
static void forward(Gpt* model, const Pass& pass) {
    const GptConfig& c = model->config;
    GptActivations& a = model->act;
    const GptTensors<floatX>& w = model->w;
    const int C = c.C, N = pass.B * pass.T;
    const Stream s = pass.stream;
    const auto need = [&](int first, int last) { if (pass.needed) pass.needed(first, last); };
    const auto need_block = [&](int l) { need(kFirstBlock + l * kBlockTensors, kFirstBlock + (l + 1) * kBlockTensors); };

    need(0, kFirstBlock);
    need_block(0);
    embedding_forward(a.encoded, a.tokens, w.wte, w.wpe, pass.B, pass.T, C, pass.first, embedding_dropout(model, pass), s);
    layernorm_forward(a.block[0].ln1, a.block[0].ln1_mean, a.block[0].ln1_rstd, a.encoded, w.block[0].ln1w, w.block[0].ln1b, N, C, s);
    const floatX* x = a.encoded;
    for (int l = 0; l < c.L; l++) {
        GptActivations::Block& b = a.block[size_t(l)];
        const GptTensors<floatX>::Block& p = w.block[size_t(l)];
        forward_block(model, pass, l, x);
        matmul_forward(a.branch, b.gelu, p.fcprojw, p.fcprojb, N, 4 * C, C, s);
        const Dropout drop = dropout(model, pass, l, kSiteMlp);
        if (l + 1 < c.L) need_block(l + 1);
        else need(kFirstBlock + c.L * kBlockTensors, kFirstBlock + c.L * kBlockTensors + 2);
        if (l + 1 < c.L) {              // the next block's first LayerNorm, or the last one
            GptActivations::Block& n = a.block[size_t(l) + 1];
            const GptTensors<floatX>::Block& q = w.block[size_t(l) + 1];
            residual_layernorm_forward(b.residual3, n.ln1, n.ln1_mean, n.ln1_rstd, b.residual2, a.branch, q.ln1w, q.ln1b, N, C, drop, s);
        } else {
            residual_layernorm_forward(b.residual3, a.lnf, a.lnf_mean, a.lnf_rstd, b.residual2, a.branch, w.lnfw, w.lnfb, N, C, drop, s);
        }
        x = b.residual3;
    }
}

// Fills again what the blocks share, for block l whose input is x.
static void recompute_block(Gpt* model, const Pass& pass, int l, const floatX* x) {
    GptActivations::Block& b = model->act.block[size_t(l)];
    const GptTensors<floatX>::Block& p = model->w.block[size_t(l)];
    const int C = model->config.C, N = pass.B * pass.T;
    const bool last = l + 1 == model->config.L;         // forward has left its arrays as they should be
    if (last) return;
    if (model->recompute >= 2) layernorm_forward(b.ln1, b.ln1_mean, b.ln1_rstd, x, p.ln1w, p.ln1b, N, C, pass.stream);
    if (model->recompute >= 3) return forward_block(model, pass, l, x);
    if (model->recompute >= 2) layernorm_forward(b.ln2, b.ln2_mean, b.ln2_rstd, b.residual2, p.ln2w, p.ln2b, N, C, pass.stream);
    if (model->recompute >= 1) gelu_forward(b.gelu, b.fc, size_t(N) * 4 * size_t(C), pass.stream);
}

double gpt_loss(Gpt* model, const int* tokens, const int* targets, int B, int T, float* losses, Stream s) {
    const GptConfig& c = model->config;
    GptActivations& a = model->act;
    const int N = B * T;
    CHECK(N <= model->B * model->T, "gpt_loss: %d tokens, room for %d", N, model->B * model->T);
    copy_to_device(a.tokens, tokens, size_t(N) * sizeof(int), s);
    copy_to_device(a.targets, targets, size_t(N) * sizeof(int), s);
    forward(model, {.B = B, .T = T, .stream = s});
    for (int row = 0; row < N; row += model->chunk) {
        const int n = std::min(model->chunk, N - row);
        matmul_forward(a.logits, a.lnf + size_t(row) * size_t(c.C), model->w.wte, nullptr, n, c.C, c.Vp, s);
        classifier(a.losses + row, a.logits, a.targets + row, n, c.V, c.Vp, false, s);
    }
    sum_in_order(a.loss, a.losses, size_t(N), s);
    double loss;
    copy_to_host(&loss, a.loss, sizeof loss, s);
    if (losses) copy_to_host(losses, a.losses, size_t(N) * sizeof(float), s);
    return loss;
}

// ----------------------------------------------------------------------------------------------- forward and backward

// The head, forward and backward at once, a chunk of rows at a time: losses, gradient of lnf into dnorm, of wte.
static void head(Gpt* model, int N, bool accumulate, Stream s) {
    const int C = model->config.C, Vp = model->config.Vp;
    GptActivations& a = model->act;
    for (int row = 0; row < N; row += model->chunk) {
        const int n = std::min(model->chunk, N - row);
        const floatX* lnf = a.lnf + size_t(row) * size_t(C);
        matmul_forward(a.logits, lnf, model->w.wte, nullptr, n, C, Vp, s);
        classifier(a.losses + row, a.logits, a.targets + row, n, model->config.V, Vp, true, s);
        matmul_backward_input(a.dnorm + size_t(row) * size_t(C), a.logits, model->w.wte, n, C, Vp, s);
        matmul_backward_params(model->d.wte, nullptr, a.logits, lnf, n, C, Vp, accumulate || row > 0, s);
    }
}

void gpt_forward_backward(Gpt* model, double* loss, const int* tokens, const int* targets, bool acc, const StepState* state,
                          uint32_t leaf, const OnTensors& needed, const OnTensors& ready, Stream s) {
    const GptConfig& c = model->config;
    GptActivations& a = model->act;
    const int C = c.C, N = model->B * model->T, HS = C / c.NH;
    const Pass pass = {.B = model->B, .T = model->T, .state = state, .leaf = leaf, .stream = s, .needed = needed};
    const auto done = [&](int first, int last) { if (ready) ready(first, last); };

    copy_to_device(a.tokens, tokens, size_t(N) * sizeof(int), s);
    copy_to_device(a.targets, targets, size_t(N) * sizeof(int), s);
    forward(model, pass);
    head(model, N, acc, s);
    sum_in_order(loss, a.losses, size_t(N), s);

    // dresidual is the gradient of the residual stream: each branch reads it, and adds its own part through its LayerNorm.
    const auto through_dropout = [&](int layer, Site site) -> const floatX* {
        if (c.dropout == 0) return a.dresidual;
        dropout_backward(a.dbranch, a.dresidual, size_t(N) * size_t(C), dropout(model, pass, layer, site), s);
        return a.dbranch;
    };
    const int lnf = kFirstBlock + c.L * kBlockTensors;
    layernorm_backward(a.dresidual, model->d.lnfw, model->d.lnfb, a.dnorm, a.block[size_t(c.L) - 1].residual3, a.lnf_mean, a.lnf_rstd,
                       model->w.lnfw, N, C, true, acc, s);
    done(lnf, lnf + 2);

    for (int l = c.L - 1; l >= 0; l--) {
        GptActivations::Block& b = a.block[size_t(l)];
        const GptTensors<floatX>::Block& w = model->w.block[size_t(l)];
        const GptTensors<float>::Block& d = model->d.block[size_t(l)];
        const floatX* x = l > 0 ? a.block[size_t(l) - 1].residual3 : a.encoded;

        recompute_block(model, pass, l, x);
        const floatX* dmlp = through_dropout(l, kSiteMlp);
        matmul_backward_params(d.fcprojw, d.fcprojb, dmlp, b.gelu, N, 4 * C, C, acc, s);
        matmul_gelu_backward_input(a.dwide, dmlp, w.fcprojw, b.fc, N, 4 * C, C, s);
        matmul_backward_params(d.fcw, d.fcb, a.dwide, b.ln2, N, C, 4 * C, acc, s);
        matmul_backward_input(a.dnorm, a.dwide, w.fcw, N, C, 4 * C, s);
        layernorm_backward(a.dresidual, d.ln2w, d.ln2b, a.dnorm, b.residual2, b.ln2_mean, b.ln2_rstd, w.ln2w, N, C, false, acc, s);

        const floatX* dproj = through_dropout(l, kSiteProjection);
        matmul_backward_params(d.attprojw, d.attprojb, dproj, b.att, N, C, C, acc, s);
        matmul_backward_input(a.dnorm, dproj, w.attprojw, N, C, C, s);
        attention_backward(a.dwide, a.delta, a.dnorm, b.qkv, b.att, b.lse, pass.B, pass.T, c.NH, HS, dropout(model, pass, l, kSiteAttention), s);
        matmul_backward_params(d.qkvw, d.qkvb, a.dwide, b.ln1, N, C, 3 * C, acc, s);
        matmul_backward_input(a.dnorm, a.dwide, w.qkvw, N, C, 3 * C, s);
        layernorm_backward(a.dresidual, d.ln1w, d.ln1b, a.dnorm, x, b.ln1_mean, b.ln1_rstd, w.ln1w, N, C, false, acc, s);
        done(kFirstBlock + l * kBlockTensors, kFirstBlock + (l + 1) * kBlockTensors);
    }

    embedding_backward(model->d.wte, model->d.wpe, a.dresidual, a.tokens, pass.B, pass.T, C, c.maxT, embedding_dropout(model, pass), acc, s);
    done(0, kFirstBlock);
}

// ---------------------------------------------------------------------------------------------------------- generation

void gpt_cache_create(GptCache* cache, const GptConfig& c) {
    const size_t n = size_t(c.L) * 2 * size_t(c.maxT) * size_t(c.C);
    cache->kv = static_cast<floatX*>(device_alloc(n * sizeof(floatX), "cache of keys and values"));
}

void gpt_cache_destroy(GptCache* cache) { device_free(cache->kv); cache->kv = nullptr; }

void gpt_generate_step(Gpt* model, GptCache* cache, const int* tokens, int first, int n, float* logits, Stream s) {
    const GptConfig& c = model->config;
    GptActivations& a = model->act;
    const int room = model->B * model->T;
    CHECK(n > 0 && first + n <= c.maxT, "gpt_generate_step: positions %d..%d, context %d", first, first + n, c.maxT);
    while (n > room) {                                  // a prompt longer than the activations goes in pieces
        gpt_generate_step(model, cache, tokens, first, room, nullptr, s);
        tokens += room; first += room; n -= room;
    }
    copy_to_device(a.tokens, tokens, size_t(n) * sizeof(int), s);
    forward(model, {.B = 1, .T = n, .first = first, .cache = cache->kv, .stream = s});
    if (!logits) return;
    matmul_forward(a.logits, a.lnf + size_t(n - 1) * size_t(c.C), model->w.wte, nullptr, 1, c.C, c.Vp, s);
    std::vector<floatX> row(static_cast<size_t>(c.V));
    copy_to_host(row.data(), a.logits, row.size() * sizeof(floatX), s);
    load_floats(logits, row.data(), row.size());
}

}  // namespace BACKEND
