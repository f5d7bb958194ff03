// kernels.cpp -- how fast each operation of a training step is on the CPU, beside what this machine can do in the same
// minute, and their sum.
//
//     build/bench/kernels [part of a name] [threads]       fp32;   build/bench/kernels16: bf16 storage
//
// Two ceilings of ceilings.h: multiply-adds in registers (AMX's where the products use it), and a copy of memory, by
// all threads. Each line gives an operation's median time, how often a step does it, its flops (2 per multiply-add;
// causal attention counts half the square) or its bytes (each array once) per second, and that as a percentage of the
// best that a ceiling reached beside it: the machine may be busy, and more so than a minute ago. The total weighs each
// with its count: the step's time by its parts, and at the ceilings.
#include "kernels/kernels.h"

#include <cstdlib>

#include "bench/ceilings.h"
#include "models/gpt2.h"
#include "models/use.h"

namespace BACKEND {

using ceilings::median;
using ceilings::seconds;

static volatile float sink;
static const ceilings::Ceiling *arithmetic, *copying;

// -------------------------------------------------------------------------------------------------------------- lines

static const char* only = "";

static double step_seconds, step_ideal, products_seconds, products_ideal;

// count: of this in a step. flops or bytes: the other is 0.
static void line(const std::string& name, double count, double flops, double bytes, const std::function<void()>& f) {
    if (name.find(only) == std::string::npos) return;
    const ceilings::Ceiling& ceiling = flops > 0 ? *arithmetic : *copying;
    f();  // first touch, packing buffers
    std::vector<double> times;
    double rate = 0;
    const double start = now_seconds();
    while (times.size() < 3 || (now_seconds() - start < 0.5 && times.size() < 100)) {
        rate = std::max(rate, ceilings::rate(ceiling));
        times.push_back(seconds(f));
    }
    const double time = median(times), ideal = (flops + bytes) / rate;
    step_seconds += count * time;
    step_ideal += count * ideal;
    if (flops > 0) {
        products_seconds += count * time;
        products_ideal += count * ideal;
    }
    std::printf("%-46s %7.1f x %9.3f ms %8.1f %s %5.0f %% of %.1f\n", name.c_str(), count, 1e3 * time,
                (flops + bytes) / time / 1e9, flops > 0 ? "GFLOP/s" : "GB/s   ", 100 * ideal / time, rate / 1e9);
    std::fflush(stdout);
}

static floatX* floats(size_t n) {
    std::vector<float> x(n);
    uint32_t state = 1;
    for (float& v : x) {
        state = state * 1664525u + 1013904223u;
        v = float(state >> 8) / 8388608.0f - 1;
    }
    floatX* memory = static_cast<floatX*>(device_alloc(n * sizeof(floatX), "benchmark"));
    store_floats(memory, x.data(), n);
    return memory;
}
static float* gradients(size_t n) {  // written: pages that were only read are all one page of zeros
    float* memory = static_cast<float*>(device_alloc(n * sizeof(float), "benchmark"));
    std::fill(memory, memory + n, 0.01f);
    return memory;
}

// The four products of a layer and the head are all these: forward (with GELU where act), gradient of the input
// (through GELU where of_act), gradient of the parameters.
struct Product {
    const char* name;
    int C, OC;
    bool bias, act, of_act;
};

static void products(const Product& p, double count, int N) {
    const int C = p.C, OC = p.OC;
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    const std::string shape = format(" %s %d x %d x %d", p.name, N, C, OC);
    const double flops = 2.0 * N * C * OC;
    floatX *inp = floats(n * c), *weight = floats(oc * c), *bias = p.bias ? floats(oc) : nullptr, *out = floats(n * oc);
    floatX *pre = p.act ? floats(n * oc) : nullptr, *inp_pre = p.of_act ? floats(n * c) : nullptr;
    float *dweight = gradients(oc * c), *dbias = p.bias ? gradients(oc) : nullptr;
    line("forward" + shape, count, flops, 0,
         [&] { matmul_gelu_forward(out, pre, inp, weight, bias, N, C, OC, nullptr); });
    line("backward input" + shape, count, flops, 0,
         [&] { matmul_gelu_backward_input(inp, out, weight, inp_pre, N, C, OC, nullptr); });
    line("backward params" + shape, count, flops, 0,
         [&] { matmul_backward_params(dweight, dbias, out, inp, N, C, OC, false, nullptr); });
    for (void* m :
         {(void*)inp, (void*)weight, (void*)bias, (void*)out, (void*)pre, (void*)inp_pre, (void*)dweight, (void*)dbias})
        device_free(m);
}

// window: the last keys that a query sees; 0: all
static void attention(double count, int B, int T, int NH, int NK, int HS, float rate, int window = 0) {
    const size_t n = size_t(B) * size_t(T), C = size_t(NH) * size_t(HS), wide = size_t(NH + 2 * NK) * size_t(HS);
    const StepState state = {1, 2, 0, 0, 0, 0};
    const Dropout drop = {rate, 3, 4, &state};
    const std::string shape = format(" B %d T %d NH %d NK %d HS %d%s", B, T, NH, NK, HS, rate > 0 ? " dropout" : "") +
                              (window ? format(" window %d", window) : "");
    std::vector<int> begin(n);
    double pairs = 0;
    for (size_t i = 0; i < n; i++) {
        const int t = int(i % size_t(T));
        begin[i] = window ? std::max(0, t + 1 - window) : 0;
        pairs += t + 1 - begin[i];
    }
    const Attention of = {B, T, NH, NK, HS, drop, 0, window ? begin.data() : nullptr};
    const double product = 2 * pairs * NH * HS;
    floatX *qkv = floats(n * wide), *dqkv = floats(n * wide), *out = floats(n * C), *dout = floats(n * C);
    float *lse = gradients(n * size_t(NH)), *delta = gradients(n * size_t(NH));
    line("attention forward" + shape, count, 2 * product, 0,
         [&] { attention_forward(out, lse, qkv, of); });
    attention_forward(out, lse, qkv, of);
    line("attention backward" + shape, count, 5 * product, 0,
         [&] { attention_backward(dqkv, delta, dout, qkv, out, lse, of); });
    for (void* p : {(void*)qkv, (void*)dqkv, (void*)out, (void*)dout, (void*)lse, (void*)delta}) device_free(p);
}

static void rows(const Shape& c, double count, int B, int T, int chunk) {
    const int C = c.C;
    const size_t N = size_t(B) * size_t(T), n = N * size_t(C), logit_count = size_t(chunk) * size_t(c.Vp);
    const double X = sizeof(floatX), F = sizeof(float);
    const StepState state = {1, 2, 1e-3f, 1, 1, 1};
    const Dropout none = {0, 0, 0, &state};
    const std::string shape = format(" %zu x %d", N, C);
    floatX *x = floats(n), *branch = floats(n), *y = floats(n), *weight = floats(size_t(C)), *bias = floats(size_t(C));
    floatX *wte = floats(size_t(c.Vp) * size_t(C)), *wpe = floats(size_t(T) * size_t(C)), *logits = floats(logit_count);
    float *mean = gradients(N), *rstd = gradients(N), *dweight = gradients(size_t(C)), *dbias = gradients(size_t(C));
    float *dwte = gradients(size_t(c.Vp) * size_t(C)), *dwpe = gradients(size_t(T) * size_t(C)), *losses = gradients(N);
    std::vector<int> tokens(std::max(N, size_t(chunk)));
    for (size_t i = 0; i < tokens.size(); i++) tokens[i] = int(i * 7919 % size_t(c.V));

    const LayerNorm norm = {.N = int(N), .C = C, .inp = x, .out = y, .mean = mean, .rstd = rstd, .weight = weight,
                            .bias = bias, .eps = 1e-5f};
    line("layernorm forward" + shape, count, 0, double(n) * 2 * X, [&] { layernorm_forward(norm); });
    line("residual layernorm forward" + shape, count * 2 * c.L, 0, double(n) * 4 * X,
         [&] { residual_layernorm_forward(norm, x, branch, none); });
    line("layernorm backward" + shape, count * (2 * c.L + 1), 0, double(n) * 4 * X,
         [&] { layernorm_backward(y, dweight, dbias, branch, norm, false, false); });
    line("embedding forward" + shape, count, 0, double(n) * 3 * X,
         [&] { embedding_forward(y, tokens.data(), wte, wpe, {B, T, C}); });
    line("embedding backward" + shape, count, 0, double(n) * (2 * X + 2 * F),
         [&] { embedding_backward(dwte, dwpe, y, tokens.data(), T, {B, T, C}, true); });
    line(format("classifier %d x %d", chunk, c.V), count * double(N) / chunk, 0, double(logit_count) * 2 * X,
         [&] { classifier(losses, logits, tokens.data(), chunk, c.V, c.Vp, true, nullptr); });
    for (void* p :
         {(void*)x, (void*)branch, (void*)y, (void*)weight, (void*)bias, (void*)wte, (void*)wpe, (void*)logits})
        device_free(p);
    for (float* p : {mean, rstd, dweight, dbias, dwte, dwpe, losses}) device_free(p);
}

static void update_table(size_t n, int folds) {
    const StepState state = {1, 2, 1e-4f, 1, {0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 0.5f}};
    const std::string shape = format(" n=%zu", n);
    float *w = gradients(n), *m = gradients(n), *v = gradients(n), *g = gradients(n), *partials = gradients(n / kUnit);
    floatX* param = sizeof(floatX) == sizeof(float) ? reinterpret_cast<floatX*>(w) : floats(n);
    const std::vector<Rates> rates(n / kUnit, {.decay = 1});
    const float* terms[] = {w, g};
    const double bytes = double(n) * sizeof(float),
                 stored = static_cast<void*>(param) != w ? double(n) * sizeof(floatX) : 0;
    line("squares" + shape, folds ? 0 : 1, 0, bytes,
         [&] { tree_reduce(g, partials, terms + 1, 1, Tree::kBalanced, n, nullptr); });
    float* const moments[] = {m, v};
    line("adamw update" + shape, 1, 0, 7 * bytes + stored,
         [&] { update(0, 0, {n, param, w, moments, g, rates.data(), &state}); });
    line("tree_reduce of 2" + shape, folds, 0, 3 * bytes,
         [&] { tree_reduce(w, partials, terms, 2, Tree::kBalanced, n, nullptr); });
    line("hash floats" + shape, 0, 0, bytes, [&] { sink = float(hash_floats(g, n, nullptr)); });
    if (stored > 0) device_free(param);
    for (float* p : {w, m, v, g, partials}) device_free(p);
}

// Every operation of one step of so many micro-batches, each a replica.
static void step(const char* name, const Shape& c, int B, int T, int micro_batches) {
    const int chunk = model_plan(&gpt2_info, c, B, T, 0, true, kOnGpu).chunk;  // rows of logits at a time
    const int N = B * T, C = c.C;
    std::printf("\n%s B %d T %d x %d, %s\n", name, B, T, micro_batches, device_name());
    step_seconds = step_ideal = products_seconds = products_ideal = 0;
    for (const Product& p : {Product{"qkv", C, 3 * C, true, false, false},
                             {"attproj", C, C, true, false, false},
                             {"fc", C, 4 * C, true, true, false},
                             {"fcproj", 4 * C, C, true, false, true}})
        products(p, micro_batches * c.L, N);
    products({"head", C, c.Vp, false, false, false}, micro_batches * double(N) / chunk, chunk);
    attention(micro_batches * c.L, B, T, c.NH, c.NH, C / c.NH, 0);
    rows(c, micro_batches, B, T, chunk);
    update_table(arena_layout(gpt2_tensors(c)).n, micro_batches - 1);
    const double all = step_seconds, flops = gpt2_info.flops_per_token(c, T) * N * micro_batches;
    if (all > products_seconds && products_seconds > 0)  // not with part of a name
        std::printf(
            "%-46s %9.1f ms, %.1f at the ceilings: %.0f %%. Products %.1f ms, %.0f %% of their ceiling; the rest %.1f "
            "ms, %.0f %%. %.1f GFLOP/s\n",
            "total of the step's parts", 1e3 * all, 1e3 * step_ideal, 100 * step_ideal / all, 1e3 * products_seconds,
            100 * products_ideal / products_seconds, 1e3 * (all - products_seconds),
            100 * (step_ideal - products_ideal) / (all - products_seconds), flops / all / 1e9);
}

static void one_token(int C, int OC) {
    floatX *inp = floats(size_t(C)), *weight = floats(size_t(OC) * size_t(C)), *out = floats(size_t(OC));
    line(format("one token %d x %d", C, OC), 0, 0, double(C) * OC * sizeof(floatX),
         [&] { matmul_forward(out, inp, weight, nullptr, 1, C, OC, nullptr); });
    for (floatX* p : {inp, weight, out}) device_free(p);
}

static void run() {
    using namespace ceilings;
    arithmetic =
        best(sizeof(floatX) == 2 && std::string(device_name()).rfind("cpu amx", 0) == 0 && best(kBf16) ? kBf16 : kFp32);
    copying = best(kCopy);
    std::printf("ceilings: %s; %s\n", arithmetic->name, copying->name);
    step("nano", {.L = 4, .NH = 4, .C = 128, .T = 256, .V = 257, .Vp = 272}, 2, 256, 8);
    attention(0, 2, 256, 4, 4, 32, 0.1f);
    attention(0, 2, 256, 14, 2, 64, 0);
    for (const int window : {0, 128, 32}) attention(0, 1, 1024, 12, 12, 64, 0, window);
    step("gpt2-124m", {.L = 12, .NH = 12, .C = 768, .T = 1024, .V = 50257, .Vp = 50272}, 4, 1024, 1);
    one_token(768, 3072);
    one_token(768, 50272);
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    set_program("kernels");
    try {
        if (argc > 1) BACKEND::only = argv[1];
        BACKEND::set_threads(argc > 2 ? std::atoi(argv[2]) : 0);
        BACKEND::run();
    } catch (const Error& e) {
        print_error(e);
        return e.code;
    }
    return 0;
}
