// kernels.cpp -- how fast each operation of the CPU backend is, beside what this machine can do in the same minute.
//
//     build/bench_kernels [part of a name] [threads]
//
// Two ceilings: multiply-adds in registers, and a copy of memory (read + written bytes), by all threads. Each operation's line
// gives its median time, its flops (2 per multiply-add; causal attention counts half the square) or its bytes (each array once)
// per second, and that as a percentage of a ceiling measured beside it: the machine may be busy, and more so than a minute ago.
// One thread is timed by its CPU clock, which stops while other programs have the core; several threads by the wall's.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>
#include "common.h"
#include "cpu/hot.h"
#include "cpu/threads.h"

namespace BACKEND {

static double clock_seconds() {
    if (get_threads() > 1) return now_seconds();
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

static double seconds(const std::function<void()>& f) {
    const double begin = clock_seconds();
    f();
    return clock_seconds() - begin;
}

static double median(std::vector<double> x) {
    std::nth_element(x.begin(), x.begin() + long(x.size() / 2), x.end());
    return x[x.size() / 2];
}

// ----------------------------------------------------------------------------------------------------------- ceilings

static volatile float sink;

static double peak_flops() {
    constexpr int kTimes = 500000;               // a millisecond: waking the threads does not count
    const HotLoops& h = hot();
    const double time = seconds([&] { cpu_threads::parallel_for(get_threads(), [&](int) { sink = h.multiply_adds(kTimes); }); });
    return 2.0 * kTimes * h.rows * h.cols * get_threads() / time;
}

static double copy_bytes() {
    constexpr size_t kBytes = size_t(16) << 20;     // a piece; all of them together leave the last cache
    constexpr int kPieces = 8;
    static std::vector<char> from(kBytes * kPieces, 1), to(kBytes * kPieces, 1);
    const double time = seconds([&] {
        cpu_threads::parallel_for(kPieces, [&](int i) { std::memcpy(to.data() + size_t(i) * kBytes, from.data() + size_t(i) * kBytes, kBytes); });
    });
    return 2.0 * kBytes * kPieces / time;
}

// -------------------------------------------------------------------------------------------------------------- lines

static const char* only = "";

// flops or bytes: the other is 0.
static void line(const std::string& name, double flops, double bytes, const std::function<void()>& f) {
    if (name.find(only) == std::string::npos) return;
    f();                                            // first touch, packing buffers
    std::vector<double> times, ceilings, shares;
    const double start = now_seconds();
    while (times.size() < 5 || (now_seconds() - start < 0.5 && times.size() < 100)) {
        ceilings.push_back(flops > 0 ? peak_flops() : copy_bytes());
        times.push_back(seconds(f));
        shares.push_back((flops + bytes) / times.back() / ceilings.back());
    }
    std::printf("%-52s %9.3f ms %8.1f %s %5.0f %% of %.1f\n", name.c_str(), 1e3 * median(times), (flops + bytes) / median(times) / 1e9,
                flops > 0 ? "GFLOP/s" : "GB/s   ", 100 * median(shares), median(ceilings) / 1e9);
    std::fflush(stdout);
}

static floatX* floats(size_t n) {
    std::vector<float> x(n);
    uint32_t state = 1;
    for (float& v : x) { state = state * 1664525u + 1013904223u; v = float(state >> 8) / 8388608.0f - 1; }
    floatX* memory = static_cast<floatX*>(device_alloc(n * sizeof(floatX), "benchmark"));
    store_floats(memory, x.data(), n);
    return memory;
}
static float* gradients(size_t n) { return static_cast<float*>(device_alloc(n * sizeof(float), "benchmark")); }

static void matmuls(const std::string& set, int N, int C, int OC) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    const std::string shape = format(" %s N=%d C=%d OC=%d", set.c_str(), N, C, OC);
    const double flops = 2.0 * N * C * OC;
    floatX *inp = floats(n * c), *weight = floats(oc * c), *bias = floats(oc), *out = floats(n * oc), *pre = floats(n * oc);
    float *dweight = gradients(oc * c), *dbias = gradients(oc);
    line("matmul_forward" + shape, flops, 0, [&] { matmul_forward(out, inp, weight, bias, N, C, OC, nullptr); });
    line("matmul_gelu_forward" + shape, flops, 0, [&] { matmul_gelu_forward(out, pre, inp, weight, bias, N, C, OC, nullptr); });
    line("matmul_backward_input" + shape, flops, 0, [&] { matmul_backward_input(inp, out, weight, N, C, OC, nullptr); });
    line("matmul_backward_params" + shape, flops, 0, [&] { matmul_backward_params(dweight, dbias, out, inp, N, C, OC, true, nullptr); });
    for (void* p : {(void*)inp, (void*)weight, (void*)bias, (void*)out, (void*)pre, (void*)dweight, (void*)dbias}) device_free(p);
}

static void attention(const std::string& set, int B, int T, int NH, int HS, float rate) {
    const size_t n = size_t(B) * size_t(T), C = size_t(NH) * size_t(HS);
    const StepState state = {1, 2, 0, 0, 0, 0};
    const Dropout drop = {rate, 3, 4, &state};
    const std::string shape = format(" %s B=%d T=%d NH=%d HS=%d%s", set.c_str(), B, T, NH, HS, rate > 0 ? " dropout" : "");
    const double matmul = 2.0 * B * NH * HS * T * (T + 1) / 2;
    floatX *qkv = floats(n * 3 * C), *dqkv = floats(n * 3 * C), *out = floats(n * C), *dout = floats(n * C);
    float *lse = gradients(n * size_t(NH)), *delta = gradients(n * size_t(NH));
    line("attention_forward" + shape, 2 * matmul, 0, [&] { attention_forward(out, lse, qkv, B, T, NH, HS, drop, nullptr); });
    attention_forward(out, lse, qkv, B, T, NH, HS, drop, nullptr);
    line("attention_backward" + shape, 5 * matmul, 0, [&] { attention_backward(dqkv, delta, dout, qkv, out, lse, B, T, NH, HS, drop, nullptr); });
    for (void* p : {(void*)qkv, (void*)dqkv, (void*)out, (void*)dout, (void*)lse, (void*)delta}) device_free(p);
}

static void rows(const std::string& set, int B, int T, int C, int V, int chunk) {
    const size_t N = size_t(B) * size_t(T), n = N * size_t(C), Vp = round_up<size_t>(size_t(V), 16), logit_count = size_t(chunk) * Vp;
    const double X = sizeof(floatX), F = sizeof(float);
    const StepState state = {1, 2, 1e-3f, 1, 1, 1};
    const Dropout none = {0, 0, 0, &state}, drop = {0.1f, 3, 4, &state};
    const std::string shape = format(" %s N=%zu C=%d", set.c_str(), N, C);
    floatX *x = floats(n), *branch = floats(n), *y = floats(n), *weight = floats(size_t(C)), *bias = floats(size_t(C));
    floatX *wte = floats(Vp * size_t(C)), *wpe = floats(size_t(T) * size_t(C)), *logits = floats(logit_count);
    float *mean = gradients(N), *rstd = gradients(N), *dweight = gradients(size_t(C)), *dbias = gradients(size_t(C));
    float *dwte = gradients(Vp * size_t(C)), *dwpe = gradients(size_t(T) * size_t(C)), *losses = gradients(N);
    std::vector<int> tokens(std::max(N, size_t(chunk)));
    for (size_t i = 0; i < tokens.size(); i++) tokens[i] = int(i * 7919 % size_t(V));

    line("layernorm_forward" + shape, 0, double(n) * 2 * X, [&] { layernorm_forward(y, mean, rstd, x, weight, bias, int(N), C, nullptr); });
    line("residual_layernorm_forward" + shape, 0, double(n) * 4 * X,
         [&] { residual_layernorm_forward(x, y, mean, rstd, x, branch, weight, bias, int(N), C, none, nullptr); });
    line("residual_layernorm_forward dropout" + shape, 0, double(n) * 4 * X,
         [&] { residual_layernorm_forward(x, y, mean, rstd, x, branch, weight, bias, int(N), C, drop, nullptr); });
    line("layernorm_backward" + shape, 0, double(n) * 4 * X,
         [&] { layernorm_backward(y, dweight, dbias, branch, x, mean, rstd, weight, int(N), C, false, true, nullptr); });
    line("embedding_forward" + shape, 0, double(n) * 3 * X, [&] { embedding_forward(y, tokens.data(), wte, wpe, B, T, C, 0, none, nullptr); });
    line("embedding_backward" + shape, 0, double(n) * (2 * X + 2 * F),
         [&] { embedding_backward(dwte, dwpe, y, tokens.data(), B, T, C, T, none, true, nullptr); });
    line(format("classifier %s N=%d V=%d", set.c_str(), chunk, V), 0, double(logit_count) * 2 * X,
         [&] { classifier(losses, logits, tokens.data(), chunk, V, int(Vp), true, nullptr); });
    for (void* p : {(void*)x, (void*)branch, (void*)y, (void*)weight, (void*)bias, (void*)wte, (void*)wpe, (void*)logits}) device_free(p);
    for (float* p : {mean, rstd, dweight, dbias, dwte, dwpe, losses}) device_free(p);
}

static void update(const std::string& set, size_t n) {
    n = round_up(n, kUnit);
    const AdamW adamw = {0.9f, 0.95f, 1e-8f, 0.1f};
    const StepState state = {1, 2, 1e-4f, 1, 0.5f, 0.5f};
    const std::string shape = format(" %s n=%zu", set.c_str(), n);
    float *w = gradients(n), *m = gradients(n), *v = gradients(n), *g = gradients(n), *partials = gradients(n / kUnit);
    floatX* param = sizeof(floatX) == sizeof(float) ? reinterpret_cast<floatX*>(w) : floats(n);
    const std::vector<uint8_t> decay(n / kUnit, 1);
    const float* terms[] = {w, m, v, g};
    const double bytes = double(n) * sizeof(float);
    line("fold of 4" + shape, 0, 5 * bytes, [&] { fold(w, terms, 4, n, nullptr); });
    line("norm_partials" + shape, 0, bytes, [&] { norm_partials(partials, g, n, nullptr); });
    line("adamw_update" + shape, 0, 7 * bytes, [&] { adamw_update(param, w, m, v, g, decay.data(), n, adamw, &state, nullptr); });
    line("hash_floats" + shape, 0, bytes, [&] { sink = float(hash_floats(g, n, nullptr)); });
    if (static_cast<void*>(param) != w) device_free(param);
    for (float* p : {w, m, v, g, partials}) device_free(p);
}

static void one_token(int C, int OC) {
    floatX *inp = floats(size_t(C)), *weight = floats(size_t(OC) * size_t(C)), *out = floats(size_t(OC));
    line(format("matmul_forward one token C=%d OC=%d", C, OC), 0, double(C) * OC * sizeof(floatX),
         [&] { matmul_forward(out, inp, weight, nullptr, 1, C, OC, nullptr); });
    for (floatX* p : {inp, weight, out}) device_free(p);
}

static void run() {
    peak_flops();                                   // wakes the threads and the clock
    std::printf("%s: %.1f GFLOP/s in registers, %.1f GB/s copied\n", device_name(), peak_flops() / 1e9, copy_bytes() / 1e9);
    for (const int OC : {128, 384, 512}) matmuls("nano", 1024, 128, OC);
    matmuls("nano", 1024, 512, 128);
    attention("nano", 4, 256, 4, 32, 0);
    attention("nano", 4, 256, 4, 32, 0.1f);
    rows("nano", 4, 256, 128, 256, 1024);
    update("nano", 800000);
    for (const int OC : {768, 2304, 3072}) matmuls("gpt2-124m", 1024, 768, OC);
    matmuls("gpt2-124m", 1024, 3072, 768);
    matmuls("gpt2-124m head", 320, 768, 50272);
    attention("gpt2-124m", 1, 1024, 12, 64, 0);
    rows("gpt2-124m", 1, 1024, 768, 50257, 320);
    update("gpt2-124m", 10000000);
    one_token(768, 3072);
    one_token(768, 50272);
    std::printf("%s: %.1f GFLOP/s in registers, %.1f GB/s copied\n", device_name(), peak_flops() / 1e9, copy_bytes() / 1e9);
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    set_program("bench_kernels");
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
