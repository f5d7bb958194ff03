// gpu_counts.cpp -- runs the operations of a step of gpt2-124m (16 x 1,024 tokens) and of Llama on the software GPU of
// tests/gpu, for its counters: a section of SOFT_GPU_COUNT's file for each.
//
//     SOFT_GPU_COUNT=FILE build/bench/gpu_counts [PART]     only sections whose names contain PART
//     SOFT_GPU_ARCH=80: the attention of GPUs without wgmma, alone; a Hopper runs the other portable kernels, too
//
// Of each grid the first blocks are executed, as many as it takes: blocks of a kernel do the same work but for
// attention's, of which there are those of one head or two, and for the persistent products', of which the first have
// the most tiles. Results are wrong therefore, and nothing looks at them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "models/llama_parts.h"
#include "src/base/common.h"
#include "src/base/numbers.h"

extern "C" void soft_gpu_section(const char* name, uint64_t blocks, double bytes, double flops, double elements);

namespace BACKEND {
namespace {

constexpr int T = 1024, B = 16, N = B * T, C = 768, V = 50257, Vp = 50304;
constexpr int kHead = 8192;                                 // rows of logits at once
constexpr double kX = sizeof(floatX), kF = sizeof(float), NC = double(N) * C;
constexpr size_t kWeights = size_t(1024) * kUnit;           // of the update
constexpr uint64_t kAll = ~uint64_t(0);

// An operation: how many blocks of each grid are executed; what it has to move (every array once), to multiply and to
// make at least: bytes, flops, elements of its output. 0: not known.
struct Section {
    std::string name;
    uint64_t blocks;
    double bytes, flops, elements;
    std::function<void()> work;
};

// ---------------- operands

// Normal numbers, with a period that no power of two divides.
const std::vector<float>& normal() {
    static const std::vector<float> x = [] {
        std::vector<float> v(65521);
        for (size_t i = 0; i < v.size(); i++) {             // Box and Muller 1958
            const Random4 r = random4({1, kRandomData, 0, 0}, i);
            v[i] = std::sqrt(-2 * std::log(1 - uniform01(r.v[0]))) * std::cos(6.2831853f * uniform01(r.v[1]));
        }
        return v;
    }();
    return x;
}
template <class E> E* memory(size_t n) { return static_cast<E*>(device_alloc(n * sizeof(E), "operands")); }
template <class E> E* repeated(const std::vector<E>& period, size_t n) {
    E* const p = memory<E>(n);
    for (size_t i = 0; i < n; i += period.size())
        copy_to_device(p + i, period.data(), std::min(period.size(), n - i) * sizeof(E), nullptr);
    stream_sync(nullptr);
    return p;
}
floatX* halves(size_t n) {
    std::vector<floatX> x(normal().size());
    store_floats(x.data(), normal().data(), x.size());
    return repeated(x, n);
}
float* floats(size_t n) { return repeated(normal(), n); }
std::vector<int> words() {              // P(k) ~ 1/k
    std::vector<int> tokens(N);
    for (size_t i = 0; i < tokens.size(); i++)
        tokens[i] = std::min(V - 1, int(std::pow(float(V), uniform01(random4({2, kRandomData, 0, 0}, i).v[0]))) - 1);
    return tokens;
}
constexpr int kDocument = 100;          // tokens
std::vector<int> first_keys() {
    std::vector<int> first(T);
    for (int t = 0; t < T; t++) first[size_t(t)] = t / kDocument * kDocument;
    return first;
}

struct Operands {
    floatX *x = halves(size_t(N) * 4 * C), *y = halves(size_t(N) * 4 * C), *z = halves(size_t(N) * 4 * C);
    floatX *w = halves(size_t(Vp) * C), *bias = halves(4096), *logits = memory<floatX>(size_t(kHead) * Vp);
    float *dw = floats(size_t(Vp) * C), *db = floats(4096);
    float *mean = floats(size_t(N) * 24), *lse = floats(size_t(T) * C), *partials = floats(65536);
    float *rstd = repeated(std::vector<float>(1024, 1.0f), size_t(N) * 24);
    float *master = floats(kWeights), *grad = floats(kWeights), *m = floats(kWeights);
    float* v = repeated(std::vector<float>(1024, 1.0f), kWeights);
    double* norm = memory<double>(1);
    Rates* rates = memory<Rates>(1024);
    std::vector<int> text = words();
    int* tokens = repeated(text, text.size());
    const int* begin = repeated(first_keys(), N);
    StepState state = {1, 2, 1e-4f, 1e-4f, {0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 0.3f}, N};
    StepState *step = repeated(std::vector(1, state), 1), *clipped = repeated(std::vector(1, state), 1);
};

// ---------------- the sections

using Sections = std::vector<Section>;

// A product's three kernels; `of` tells where GELU is: in forward, or in the backward of what follows it.
void add_product(Sections& all, const Operands& o, const std::string& layer, int c, int oc, const char* of = "") {
    const double flops = 2.0 * N * c * oc, in = double(N) * c, out = double(N) * oc, weight = double(c) * oc;
    const bool gelu = *of == 'f', after_gelu = *of == 'b';
    all.push_back({"matmul " + layer + " forward", 1, kX * (in + out * (1 + gelu) + weight), flops, out, [=] {
        if (gelu) matmul_gelu_forward(o.x, o.z, o.y, o.w, o.bias, N, c, oc, nullptr);
        else matmul_forward(o.x, o.y, o.w, o.bias, N, c, oc, nullptr);
    }});
    all.push_back({"matmul " + layer + " input", 1, kX * (in * (1 + after_gelu) + out + weight), flops, in, [=] {
        if (after_gelu) matmul_gelu_backward_input(o.x, o.y, o.w, o.z, N, c, oc, nullptr);
        else matmul_backward_input(o.x, o.y, o.w, N, c, oc, nullptr);
    }});
    all.push_back({"matmul " + layer + " params", 1, kX * (in + out) + kF * weight, flops, weight, [=] {
        matmul_backward_params(o.dw, o.db, o.y, o.x, N, c, oc, false, nullptr);
    }});
}
void add_products(Sections& all, const Operands& o) {
    constexpr double qkv = 3.0 * C * C, head = double(kHead) * Vp, rows = double(kHead) * C, weight = double(Vp) * C;
    constexpr double flops = 2 * head * C;
    add_product(all, o, "qkv", C, 3 * C);
    add_product(all, o, "attproj", C, C);
    add_product(all, o, "fc", C, 4 * C, "forward");
    add_product(all, o, "fcproj", 4 * C, C, "backward");
    for (const char* tile : {"wide", "pingpong", "large", "medium", "small"})
        all.push_back({std::string("matmul qkv forward by ") + tile, 1, kX * (4 * NC + qkv), 2 * N * qkv, 3 * NC, [=] {
            setenv("LOCKSTEP_TILE", tile, 1);
            matmul_forward(o.x, o.y, o.w, o.bias, N, C, 3 * C, nullptr);
            unsetenv("LOCKSTEP_TILE");
        }});
    all.push_back({"matmul qkv forward, 1 row", 8, kX * qkv, 2 * qkv, 3 * C, [=] {
        matmul_forward(o.x, o.y, o.w, o.bias, 1, C, 3 * C, nullptr);
    }});
    all.push_back({"matmul head forward", 1, kX * (head + rows + weight), flops, head, [=] {
        matmul_forward(o.logits, o.y, o.w, nullptr, kHead, C, Vp, nullptr);
    }});
    all.push_back({"matmul head input", 1, kX * (head + rows + weight), flops, rows, [=] {
        matmul_backward_input(o.x, o.logits, o.w, kHead, C, Vp, nullptr);
    }});
    all.push_back({"matmul head params", 1, kX * (head + rows) + 2 * kF * weight, flops, weight, [=] {
        matmul_backward_params(o.dw, nullptr, o.logits, o.y, kHead, C, Vp, true, nullptr);
    }});
}

void add_attention(Sections& all, const Operands& o, int HS, bool portable) {
    const int NH = C / HS;
    const double statistics = kF * N * NH;
    const std::string d = " d" + std::to_string(HS) + (portable ? " sm_80" : "");
    for (const std::string name : {"", " dropout", " documents"}) {
        const float rate = name == " dropout" ? 0.1f : 0;
        if (portable && rate > 0) continue;                             // a Hopper has no other kernel for that
        const bool whole = name != " documents";
        const double products = NC * ((whole ? T : kDocument) + 1);     // flops of one of them, half the square
        const Attention a = {B, T, NH, NH, HS, {rate, kRandomDropout, 0, o.step}, 0, whole ? nullptr : o.begin};
        const uint64_t blocks = portable || rate > 0 ? 16 : 8;
        all.push_back({"attention_forward" + d + name, blocks, kX * NC * 4 + statistics, 2 * products, NC, [=] {
            attention_forward(o.x, o.lse, o.y, a);
        }});
        all.push_back({"attention_backward" + d + name, blocks, kX * NC * 8 + statistics, 5 * products, 3 * NC, [=] {
            attention_backward(o.x, o.dw, o.z, o.y, o.z, o.rstd, a);
        }});
    }
    if (portable) return;
    all.push_back({"attention_cached" + d + ", 1 row", kAll, kX * 2 * 700 * C, 4.0 * 700 * C, C, [=] {
        attention_cached(o.x, o.z, o.y, 700, T, {1, 1, NH, NH, HS});
    }});
}

void add_rows(Sections& all, const Operands& o) {
    const Dropout none = {0, 0, 0, nullptr}, drop = {0.1f, kRandomDropout, 0, o.step};
    const double positions = double(T) * C, logits = double(kHead) * Vp;
    std::vector<int> distinct = o.text;
    std::sort(distinct.begin(), distinct.end());
    const double tokens = double(std::unique(distinct.begin(), distinct.end()) - distinct.begin()) * C;
    const auto rmsnorm = [=](int rows, int channels, floatX* inp, floatX* out) {
        return LayerNorm{.N = rows, .C = channels, .inp = inp, .out = out, .rstd = o.rstd, .weight = o.w,
                         .eps = 1e-5f};
    };
    const auto layernorm = [=](floatX* inp, floatX* out) {
        LayerNorm norm = rmsnorm(N, C, inp, out);
        norm.mean = o.mean;
        norm.bias = o.bias;
        return norm;
    };
    for (const Dropout& d : {none, drop}) {
        const std::string name = d.rate > 0 ? " dropout" : "";
        all.push_back({"embedding_forward" + name, 256, kX * (NC + tokens + positions) + 4 * N, 0, NC, [=] {
            embedding_forward(o.x, o.tokens, o.w, o.z, {B, T, C, d});
        }});
        all.push_back({"residual_layernorm_forward" + name, 64, kX * 4 * NC + 2 * kF * N, 0, NC, [=] {
            residual_layernorm_forward(layernorm(o.x, o.z), o.y, o.z + N * C, d);
        }});
    }
    const double in_documents = double(kDocument) * C;
    const Sections others = {
        {"embedding_forward documents", 256, kX * (NC + tokens + in_documents) + 8 * N, 0, NC, [=] {
            embedding_forward(o.x, o.tokens, o.w, o.z, {B, T, C, none, o.begin});
        }},
        {"embedding_backward", kAll, kX * NC + kF * (2 * tokens + positions) + 4 * N, 0, NC, [=] {
            embedding_backward(o.dw, o.lse, o.x, o.tokens, T, {B, T, C}, false);
        }},
        {"layernorm_forward", 64, kX * 2 * NC + 2 * kF * N, 0, NC, [=] {
            layernorm_forward(layernorm(o.y, o.x));
        }},
        {"residual rmsnorm forward", 64, kX * 4 * NC + kF * N, 0, NC, [=] {
            residual_layernorm_forward(rmsnorm(N, C, o.x, o.z), o.y, o.z + N * C, none);
        }},
        {"residual rmsnorm forward, C 4096", 64, kX * 4 * 2048 * 4096 + kF * 2048, 0, 2048 * 4096, [=] {
            residual_layernorm_forward(rmsnorm(2048, 4096, o.x, o.x + 2048 * 4096), o.y, o.z, none);
        }},
        {"layernorm_backward", 64, kX * 4 * NC + 2 * kF * N, 0, NC, [=] {
            layernorm_backward(o.x, o.db, o.db + C, o.y, layernorm(o.z, nullptr), false, false);
        }},
        {"rmsnorm backward", 64, kX * 4 * NC + kF * N, 0, NC, [=] {
            layernorm_backward(o.x, o.db, nullptr, o.y, rmsnorm(N, C, o.z, nullptr), false, false);
        }},
        {"gelu_forward", 64, kX * 8 * NC, 0, 4 * NC, [=] { gelu_forward(o.x, o.y, size_t(N) * 4 * C, nullptr); }},
        {"dropout_backward", 64, kX * 2 * NC, 0, NC, [=] { dropout_backward(o.x, o.y, size_t(N) * C, drop, nullptr); }},
        {"classifier", 8, kX * 2 * logits, 0, logits, [=] {
            classifier(o.lse, o.logits, o.tokens, kHead, V, Vp, true, nullptr);
        }},
        {"classifier, loss only", 8, kX * logits, 0, logits, [=] {
            classifier(o.lse, o.logits, o.tokens, kHead, V, Vp, false, nullptr);
        }},
        {"sum_in_order", kAll, kF * N, 0, N, [=] { sum_in_order(o.norm, o.lse, N, nullptr); }},
    };
    all.insert(all.end(), others.begin(), others.end());
}

void add_update(Sections& all, const Operands& o) {
    constexpr size_t n = kWeights;
    constexpr double bytes = kF * double(n);
    for (const int count : {1, 2, 4, 8})
        all.push_back({"tree_reduce of " + std::to_string(count), 64, bytes * (count + (count > 1)), 0, double(n), [=] {
            std::vector<const float*> terms(size_t(count), o.grad);
            for (size_t i = 1; i < terms.size(); i++) terms[i] = o.dw + i * n;
            tree_reduce(o.grad, o.partials, terms.data(), count, Tree::kBalanced, n, nullptr);
        }});
    const Sections others = {
        {"tree_reduce, stack of 3", 64, bytes * 4, 0, double(n), [=] {
            const float* const terms[] = {o.master, o.grad, o.m};
            tree_reduce(o.master, o.partials, terms, 3, Tree::kNested, n, nullptr);
        }},
        {"clip_scale", kAll, kF * 30384, 0, 30384, [=] {
            clip_scale(o.clipped, o.norm, o.partials, 30384, 0);
        }},
        {"update by adamw", 64, double(n) * (7 * kF + kX), 0, double(n), [=] {
            float* const state[] = {o.m, o.v};
            update(0, 0, {n, o.x, o.master, state, o.grad, o.rates, o.step});
        }},
        {"hash_floats", 32, bytes, 0, double(n), [=] { hash_floats(o.grad, n, nullptr); }},
    };
    all.insert(all.end(), others.begin(), others.end());
}

// 2,048 rows: heads of q, k and v 12 + 2 x 4 of 64 elements (Llama), 16 + 2 x 8 of 128 (Qwen3), 2,048 wide in between.
void add_llama(Sections& all, const Operands& o) {
    constexpr int rows = 2048;
    const Attention normed_heads = {1, rows, 16, 8, 128};
    constexpr double turned = rows * 16 * 64, normed = rows * 24 * 128, wide = rows * 2048;
    const Sections others = {
        {"rotate_heads", 64, kX * 2 * turned + kF * T * 64, 0, turned, [=] {
            rotate_heads(o.x, o.mean, 0, false, {rows / T, T, 12, 4, 64});
        }},
        {"norm_heads_forward", 64, kX * 3 * normed + kF * rows * 24, 0, normed, [=] {
            norm_heads_forward(o.x, {o.w, o.w, o.y, o.lse, 1e-6f}, normed_heads);
        }},
        {"norm_heads_backward", 64, kX * 3 * normed + kF * rows * 24, 0, normed, [=] {
            norm_heads_backward(o.x, o.db, o.db + 128, o.dw, {o.w, o.w, o.y, o.rstd, 1e-6f}, normed_heads, false);
        }},
        {"swiglu_forward", 64, kX * 3 * wide, 0, wide, [=] { swiglu_forward(o.x, o.y, rows, 2048); }},
        {"swiglu_backward", 64, kX * 5 * wide, 0, wide, [=] { swiglu_backward(o.x, o.y, rows, 2048); }},
    };
    all.insert(all.end(), others.begin(), others.end());
}

void run(const std::string& part) {
    const char* const arch = std::getenv("SOFT_GPU_ARCH");
    const bool portable = arch && std::atoi(arch) == 80;
    const Operands operands;
    Sections all;
    if (!portable) add_products(all, operands);
    for (const int HS : {64, 128}) add_attention(all, operands, HS, portable);
    if (!portable) add_rows(all, operands);
    if (!portable) add_update(all, operands);
    if (!portable) add_llama(all, operands);
    for (const Section& s : all) {
        if (s.name.find(part) == std::string::npos) continue;
        soft_gpu_section(s.name.c_str(), s.blocks, s.bytes, s.flops, s.elements);
        const double begin = now_seconds();
        s.work();
        stream_sync(nullptr);
        std::fprintf(stderr, "%6.2f s  %s\n", now_seconds() - begin, s.name.c_str());
    }
    soft_gpu_section("", kAll, 0, 0, 0);
}

}  // namespace
}  // namespace BACKEND

int main(int argc, char** argv) {
    set_program("gpu_counts");
    if (!std::getenv("SOFT_GPU_COUNT")) die(kExitUsage, "SOFT_GPU_COUNT: got nothing, want a file; it is appended to");
    try {
        BACKEND::run(argc > 1 ? argv[1] : "");
    } catch (const Error& e) {
        print_error(e);
        return e.code;
    }
    return kExitDone;
}
