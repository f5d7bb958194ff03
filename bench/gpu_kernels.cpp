// gpu_kernels.cpp -- how fast each operation of kernels.h is on this GPU, beside what the same GPU does in the same
// minute: Markdown tables.
//
//     build/bench/gpu_kernels [--only PARTS] [--shape PARTS] [--seconds S]    operations and shapes whose name has one
//                                        of the PARTS, as "qkv,attention"; S seconds a line (0.1)
//     build/bench/gpu_kernels --alone    what a step calls, without ceilings, checks and cuBLASLt
//     build/bench/gpu_kernels --profile  the same, each called once for ncu --profile-from-start off
//     build/bench/gpu_kernels --device   "gpu NVIDIA H200, 132 SMs"; exit code 66 if none answers
//     build/bench/gpu_kernels_ptx --tiny                    the program itself, on a GPU in software
//
// A line is the median time of 16 calls between two events, without a pause, as in a step. Numbers are N(0,1): power,
// and so the clock, depends on the operands. Tokens are distributed like words, P(k) ~ 1/k. Bytes count every array
// once; flops are 2 per multiply-add, causal attention's half the square.
//
// Ceilings: a copy of 1 GiB (read + written), by the driver or by our own tree_reduce of one term, whichever is faster;
// cuBLASLt at 8192^3. Beside each matrix product stands cuBLASLt's first choice, with as much fused as the library
// can (bias, GELU), and the results are compared. Where an operation writes "=" it is called twice more, and its bits
// must be the same: the tests do so at small sizes only.
//
// For scripts, a line per operation: "data: SHAPE|NAME|CALLS PER MICRO-BATCH|US|FLOOR US|CUBLASLT US", the floor being
// bytes / copy rate or flops / 8192^3's rate; and "fact: KEY VALUE" for what bench/gpu.sh compares.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/cublaslt.h"
#include "kernels/kernels.h"
#include "src/base/common.h"
#include "src/base/numbers.h"

namespace BACKEND {

static bool tiny = false;
static const char *only = "", *only_shapes = "";
static double seconds_each = 0.1;
static bool alone = false, profiled = false;
static std::vector<std::string> summary, faults;

static constexpr size_t kX = sizeof(floatX), kF = sizeof(float);
static constexpr size_t kLtWorkspace = size_t(64) << 20;
static void* lt_workspace;
static double copy_rate, product_rate;  // the ceilings: bytes and flops per second

// ------------------------------------------------------------------------------------------------------------- memory

static std::vector<void*> allocated;  // of the current table
static void* memory(size_t bytes) {
    allocated.push_back(device_alloc(bytes, "benchmark"));
    return allocated.back();
}
static void free_all() {
    for (void* p : allocated) device_free(p);
    allocated.clear();
}

// Normal numbers, as a period that no power of two divides, so that rows of a matrix differ.
static const std::vector<float>& normal() {
    static const std::vector<float> x = [] {
        std::vector<float> v(tiny ? 4099 : 4194301);
        const RandomKey key = {1, kRandomData, 0, 0};
        for (size_t i = 0; i < v.size(); i += 2) {  // Box and Muller 1958
            const Random4 r = random4(key, i);
            const double radius = std::sqrt(-2 * std::log(1 - double(uniform01(r.v[0])))),
                         angle = 2 * M_PI * double(uniform01(r.v[1]));
            v[i] = float(radius * std::cos(angle));
            if (i + 1 < v.size()) v[i + 1] = float(radius * std::sin(angle));
        }
        return v;
    }();
    return x;
}
template <class T>
static T* repeated(const std::vector<T>& period, size_t n) {
    T* const p = static_cast<T*>(memory(n * sizeof(T)));
    for (size_t i = 0; i < n; i += period.size()) {
        const size_t bytes = std::min(period.size(), n - i) * sizeof(T);
        if (i == 0 || !driver_copy(p + i, p, bytes, stream_native(nullptr)))
            copy_to_device(p + i, period.data(), bytes, nullptr);
    }
    stream_sync(nullptr);
    return p;
}
static floatX* halves(size_t n) {
    static const std::vector<floatX> period = [] {
        std::vector<floatX> x(normal().size());
        store_floats(x.data(), normal().data(), x.size());
        return x;
    }();
    return repeated(period, n);
}
static float* floats(size_t n) { return repeated(normal(), n); }
static float* positive(size_t n) {
    std::vector<float> x = normal();
    for (float& v : x) v = v * v;
    return repeated(x, n);
}
static int* words(size_t n, int V, size_t* distinct) {
    std::vector<int> tokens(n);
    std::vector<char> seen(static_cast<size_t>(V));
    for (size_t i = 0; i < n; i++) {
        tokens[i] =
            std::min(V - 1, int(std::pow(double(V), double(uniform01(random4({2, kRandomData, 0, 0}, i).v[0])))) - 1);
        seen[size_t(tokens[i])] = 1;
    }
    *distinct = size_t(std::count(seen.begin(), seen.end(), 1));
    return repeated(tokens, n);
}
static StepState* step_state() {
    const StepState s = {1, 2, 1e-4f, 1e-4f, {0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 0.5f}, 1e5};
    return repeated(std::vector<StepState>{s}, 1);
}

// --------------------------------------------------------------------------------------------------------------- time

using Op = std::function<void()>;

static double median(std::vector<double> x) {
    std::nth_element(x.begin(), x.begin() + long(x.size() / 2), x.end());
    return x[x.size() / 2];
}

// Seconds of a call of each, one after the other. As in a training step there is no pause between the calls: the clock
// is the one that the power limit allows. The first half of the time only warms up.
static std::vector<double> times_of(const std::vector<Op>& ops) {
    static const Event from = event_create(), to = event_create();
    std::vector<double> medians;
    for (const Op& op : ops) {
        op();  // work space, first touch
        stream_sync(nullptr);
        if (profiled) driver_profile(true);
        const int calls = tiny || profiled ? 1 : 16;
        std::vector<double> times;
        for (const double start = now_seconds(); times.empty() || now_seconds() - start < seconds_each;) {
            if (now_seconds() - start < seconds_each / 2) times.clear();
            event_record(from, nullptr);
            for (int i = 0; i < calls; i++) op();
            event_record(to, nullptr);
            event_sync(to);
            times.push_back(std::max(event_seconds(from, to) / calls, 1e-9));
        }
        if (profiled) driver_profile(false);
        medians.push_back(median(times));
    }
    return medians;
}

// Whether one of the parts, between commas, is in the name.
static bool listed(const std::string& parts, const std::string& name) {
    for (size_t begin = 0, end; begin <= parts.size(); begin = end + 1) {
        end = std::min(parts.find(',', begin), parts.size());
        if (name.find(parts.substr(begin, end - begin)) != std::string::npos) return true;
    }
    return false;
}
// count: how often a micro-batch or a step calls it.
static bool wanted(const std::string& name, int count) { return listed(only, name) && (count > 0 || !alone); }

// The same bits twice more.
struct Output {
    const void* memory;
    size_t bytes;
};
static void check_bits(const std::string& name, const Op& op, const std::vector<Output>& outputs) {
    if (alone) return;
    std::vector<uint64_t> first;
    for (int call = 0; call < 2; call++) {
        op();
        for (size_t i = 0; i < outputs.size(); i++) {
            const uint64_t hash =
                hash_floats(static_cast<const float*>(outputs[i].memory), outputs[i].bytes / kF, nullptr);
            if (call == 0)
                first.push_back(hash);
            else if (hash != first[i])
                faults.push_back(format("%s: output %zu had other bits in a second call", name.c_str(), i));
        }
    }
}

// A micro-batch: what its operations take together, by how often each is called.
struct Shape {
    const char* name;
    int L, NH, C, V, T, B;
};
static double micro_batch;

// seconds of one call; floor: of the best there could be, 0 where latency binds; library: cuBLASLt's, 0 where there is
// none.
static std::string shape_name;
static void data_line(const std::string& name, int count, double seconds, double floor, double library) {
    std::printf("data: %s|%s|%d|%.2f|%.2f|%.2f\n", shape_name.c_str(), name.c_str(), count, seconds * 1e6, floor * 1e6,
                library * 1e6);
}

static void progress(const std::string& what) { std::fprintf(stderr, "gpu_kernels: %s\n", what.c_str()); }

// ----------------------------------------------------------------------------------------------------- bound by memory

static std::vector<std::pair<double, std::string>> shares;  // of the copy rate, for the summary

static void memory_head(const char* title, const char* unit = "micro-batch") {
    std::printf("\n| %s | x per %s | us | MB | GB/s | of the copy rate |\n|---|---:|---:|---:|---:|---:|\n", title,
                unit);
}
// bytes 0: bound by latency, no share. count: calls in a micro-batch.
static void memory_line(const std::string& name, int count, double bytes, const Op& op,
                        const std::vector<Output>& outputs = {}) {
    if (!wanted(name, count)) return;
    progress(name);
    const double t = times_of({op})[0];
    check_bits(name, op, outputs);
    micro_batch += count * t;
    std::printf("| %s | %s | %.1f | %s | %s | %s |\n", name.c_str(), count ? std::to_string(count).c_str() : "",
                t * 1e6, bytes > 0 ? format("%.1f", bytes * 1e-6).c_str() : "",
                bytes > 0 ? format("%.0f", bytes / t * 1e-9).c_str() : "",
                bytes > 0 ? format("%.0f %%", 100 * bytes / t / copy_rate).c_str() : "");
    data_line(name, count, t, bytes / copy_rate, 0);
    if (count && bytes > 0)
        std::printf("fact: memory-%s-%s %.2f\n", shape_name.c_str(), name.substr(0, name.find(',')).c_str(),
                    bytes / t / copy_rate);
    std::fflush(stdout);
    if (bytes > 16e6) shares.emplace_back(bytes / t / copy_rate, name);  // less is over before the memory is busy
}

static bool shape_wanted(const std::string& name) {
    shape_name = name;
    return listed(only_shapes, name);
}

static void rows_table(const Shape& s) {
    const int C = s.C, T = s.T, B = s.B, N = B * T, Vp = round_up(s.V, 16);
    const size_t n = size_t(N) * size_t(C), bytes = n * kX;
    const int chunk = int(std::min<size_t>(size_t(N), size_t(8192) * 50304 / size_t(Vp) / 64 * 64)),
              chunks = ceil_div(N, chunk);
    const size_t logit_count = size_t(chunk) * size_t(Vp);
    memory_head("rows");
    StepState* const state = step_state();
    const Dropout none = {0, 0, 0, nullptr}, drop = {0.1f, kRandomDropout, 0, state};
    floatX *x = halves(n), *branch = halves(n), *y = halves(n), *z = halves(n), *w = halves(size_t(C)),
           *b = halves(size_t(C));
    floatX *wte = halves(size_t(Vp) * size_t(C)), *wpe = halves(size_t(T) * size_t(C));
    float *mean = floats(size_t(N)), *rstd = positive(size_t(N)), *dw = floats(size_t(C)), *db = floats(size_t(C));
    float *dwte = floats(size_t(Vp) * size_t(C)), *dwpe = floats(size_t(T) * size_t(C)), *losses = floats(size_t(N));
    double* const total = static_cast<double*>(memory(sizeof(double)));
    size_t distinct;
    const int* const tokens = words(size_t(N), s.V, &distinct);
    const double positions = double(T) * C;
    const LayerNorm norm = {.N = N, .C = C, .inp = x, .out = y, .mean = mean, .rstd = rstd, .weight = w, .bias = b,
                            .eps = 1e-5f};
    LayerNorm joined = norm;
    joined.inp = z;

    memory_line("embedding_forward", 1, 2.0 * double(bytes) + positions * kX + 4.0 * N,
                [=] { embedding_forward(y, tokens, wte, wpe, {B, T, C}); }, {{y, bytes}});
    memory_line("layernorm_forward", 1, 2.0 * double(bytes),
                [=] { layernorm_forward(norm); }, {{y, bytes}});
    memory_line("residual_layernorm_forward", 2 * s.L, 4.0 * double(bytes),
                [=] { residual_layernorm_forward(joined, x, branch, none); },
                {{y, bytes}, {z, bytes}});
    memory_line("residual_layernorm_forward, dropout", 0, 4.0 * double(bytes),
                [=] { residual_layernorm_forward(joined, x, branch, drop); },
                {{y, bytes}, {z, bytes}});
    memory_line("layernorm_backward", 2 * s.L + 1, 4.0 * double(bytes),
                [=] { layernorm_backward(y, dw, db, branch, norm, false, true); });
    memory_line("layernorm_backward, first", 0, 3.0 * double(bytes),
                [=] { layernorm_backward(y, dw, db, branch, norm, true, false); },
                {{y, bytes}, {dw, size_t(C) * kF}, {db, size_t(C) * kF}});
    memory_line("dropout_backward", 0, 2.0 * double(bytes), [=] { dropout_backward(y, x, n, drop, nullptr); },
                {{y, bytes}});
    memory_line("embedding_backward", 1, double(bytes) + 2 * kF * (double(distinct) * C + positions) + 4.0 * N,
                [=] { embedding_backward(dwte, dwpe, x, tokens, T, {B, T, C}, true); });
    if (wanted("embedding_backward", 0))
        check_bits("embedding_backward",
                   [=] {
                       device_zero(dwte, size_t(Vp) * size_t(C) * kF, nullptr);
                       embedding_backward(dwte, dwpe, x, tokens, T, {B, T, C}, false);
                   },
                   {{dwte, size_t(Vp) * size_t(C) * kF}, {dwpe, size_t(T) * size_t(C) * kF}});
    memory_line("sum_in_order", 1, 0, [=] { sum_in_order(total, losses, size_t(N), nullptr); },
                {{total, sizeof(double)}});

    floatX* const logits = halves(logit_count);
    memory_line(format("classifier, %d rows", chunk), chunks, 2.0 * double(logit_count) * kX,
                [=] { classifier(losses, logits, tokens, chunk, s.V, Vp, true, nullptr); });
    memory_line("classifier, loss only", 0, double(logit_count) * kX,
                [=] { classifier(losses, logits, tokens, chunk, s.V, Vp, false, nullptr); },
                {{losses, size_t(chunk) * kF}});
    const size_t wide = 4 * n;
    floatX *pre = halves(wide), *out = halves(wide);
    memory_line("gelu_forward", 0, 2.0 * double(wide) * kX, [=] { gelu_forward(out, pre, wide, nullptr); },
                {{out, wide * kX}});
    free_all();
}

static void update_table(size_t n) {
    n = round_up(n, kUnit);
    std::printf("\n### The update of %s weights\n", with_commas(n).c_str());
    memory_head("operation", "step");
    StepState* const state = step_state();
    float *master = floats(n), *m = floats(n), *v = positive(n), *grad = floats(n), *partials = floats(n / kUnit);
    floatX* const param = halves(n);
    Rates* const rates = repeated(std::vector<Rates>(n / kUnit, {.decay = 1}), n / kUnit);
    double* const norm = static_cast<double*>(memory(sizeof(double)));
    const double bytes = double(n) * kF;
    std::vector<const float*> terms;
    for (int i = 0; i < 8; i++) terms.push_back(i % 4 == 0 ? master : i % 4 == 1 ? m : i % 4 == 2 ? v : grad);
    float* const out = static_cast<float*>(memory(n * kF));
    for (const int count : {2, 4})
        memory_line(format("tree_reduce of %d", count), 0, (count + 1) * bytes,
                    [=] { tree_reduce(out, nullptr, terms.data(), count, Tree::kBalanced, n, nullptr); },
                    {{out, n * kF}});
    memory_line("tree_reduce, two terms and squares", 1, 3 * bytes,
                [=] { tree_reduce(out, partials, terms.data(), 2, Tree::kBalanced, n, nullptr); },
                {{out, n * kF}, {partials, n / kUnit * kF}});
    memory_line("squares", 0, bytes,
                [=] {
                    const float* const term = grad;
                    tree_reduce(grad, partials, &term, 1, Tree::kBalanced, n, nullptr);
                },
                {{partials, n / kUnit * kF}});
    memory_line("clip_scale", 1, 0, [=] { clip_scale(state, norm, partials, n / kUnit, 1); },
                {{norm, sizeof(double)}});
    memory_line("adamw_update", 1, 7 * bytes + 2 * double(n) * kX, [=] {
        float* const moments[] = {m, v};
        update(0, 0, {n, param, master, moments, grad, rates, state});
    });
    // A step of 8 replicas looks at the first number of each unit 8 times.
    uint64_t* const left = static_cast<uint64_t*>(memory(sizeof(uint64_t)));
    device_zero(left, sizeof(uint64_t), nullptr);
    memory_line("find_poison", 8, 0, [=] { find_poison(left, grad, n, kUnit, grad + n, nullptr); });
    memory_line("hash_floats", 0, bytes, [=] { hash_floats(grad, n, nullptr); });
    free_all();
}

// ------------------------------------------------------------------------------------------------- bound by arithmetic

static void attention_table(const Shape& s) {
    std::printf(
        "\n| attention | B | heads x size | x per micro-batch | us | TFLOP/s | of 8192^3 "
        "|\n|---|---:|---:|---:|---:|---:|---:|\n");
    const int B = s.B, T = s.T, NH = s.NH, HS = s.C / s.NH;
    const size_t n = size_t(B) * size_t(T) * size_t(s.C), stats = size_t(B) * size_t(T) * size_t(NH);
    const Dropout none = {0, 0, 0, nullptr}, drop = {0.1f, kRandomDropout, 0, step_state()};
    floatX *qkv = halves(3 * n), *dqkv = halves(3 * n), *out = halves(n), *dout = halves(n);
    float *lse = floats(stats), *delta = floats(stats);
    const double product = 2.0 * B * NH * HS * T * (T + 1.0) / 2;
    const auto line = [&](const char* name, int count, double products, const Op& op,
                          const std::vector<Output>& outputs) {
        if (!wanted(name, count)) return;
        progress(format("%s, %s B = %d", name, s.name, B));
        const double t = times_of({op})[0];
        check_bits(name, op, outputs);
        micro_batch += count * t;
        std::printf("| %s | %d | %d x %d | %s | %.1f | %.1f | %.0f %% |\n", name, B, NH, HS,
                    count ? std::to_string(count).c_str() : "", t * 1e6, products * product / t * 1e-12,
                    100 * products * product / t / product_rate);
        data_line(name, count, t, products * product / product_rate, 0);
        if (!std::strchr(name, ','))
            std::printf("fact: %s-d%d-T%d-B%d %.1f\n", name, HS, T, B, products * product / t * 1e-12);
        std::fflush(stdout);
    };
    for (const bool dropped : {true, false}) {  // what backward reads is of the forward before it
        const Dropout& d = dropped ? drop : none;
        line(dropped ? "attention_forward, dropout" : "attention_forward", dropped ? 0 : s.L, 2,
             [=] { attention_forward(out, lse, qkv, {B, T, NH, NH, HS, d}); },
             {{out, n * kX}, {lse, stats * kF}});
        attention_forward(out, lse, qkv, {B, T, NH, NH, HS, d});
        line(dropped ? "attention_backward, dropout" : "attention_backward", dropped ? 0 : s.L, 5,
             [=] { attention_backward(dqkv, delta, dout, qkv, out, lse, {B, T, NH, NH, HS, d}); },
             {{dqkv, 3 * n * kX}});
    }
    free_all();
}

static std::vector<float> beginning(const void* device, size_t n, bool fp32) {
    std::vector<float> x(n);
    if (fp32) {
        copy_to_host(x.data(), device, n * kF, nullptr);
    } else {
        std::vector<floatX> raw(n);
        copy_to_host(raw.data(), device, n * kX, nullptr);
        load_floats(x.data(), raw.data(), n);
    }
    return x;
}

// Ours and the library's result of the same product: within some roundings of bf16.
static void compare(const std::string& name, const void* ours, const void* theirs, size_t n, bool fp32) {
    const std::vector<float> a = beginning(ours, n, fp32), b = beginning(theirs, n, fp32);
    double squares = 0;
    for (const float v : b) squares += double(v) * double(v);
    const double size = std::sqrt(squares / double(n));
    for (size_t i = 0; i < n; i++)
        if (!(std::fabs(double(a[i]) - double(b[i])) <= 0.02 * size + 0.02 * std::fabs(double(b[i])))) {
            faults.push_back(
                format("%s: element %zu is %g, cuBLASLt's %g", name.c_str(), i, double(a[i]), double(b[i])));
            return;
        }
}

// Null where there is no library, or where it refuses: the tables then show ours alone.
static LtMatmul* library_product(LtProduct product, LtEpilogue epilogue, bool accumulate, int N, int C, int OC,
                                 std::string* why) {
    if (!lt_workspace) return nullptr;
    try {
        return lt_create(product, epilogue, accumulate, size_t(N), size_t(C), size_t(OC), lt_workspace, kLtWorkspace,
                         why);
    } catch (const Error& e) {
        *why = e.message;
        return nullptr;
    }
}

static void matmul_table(const Shape& s) {
    std::printf(
        "\n| product | N x C x OC | x per micro-batch | us | TFLOP/s | of 8192^3 | cuBLASLt us | speed against it |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|\n");
    const int C = s.C, N = s.B * s.T, Vp = round_up(s.V, 16);
    const int chunk = int(std::min<size_t>(size_t(N), size_t(8192) * 50304 / size_t(Vp) / 64 * 64));
    const size_t rows = size_t(N) * size_t(4 * C), head = size_t(chunk) * size_t(Vp), most = std::max(rows, head),
                 weights = size_t(std::max(4 * C, Vp)) * size_t(C);
    // in and aux are read; out and pre written, each by both sides.
    floatX *in = halves(most), *in2 = halves(rows), *aux = halves(rows), *weight = halves(weights),
           *bias = halves(size_t(4 * C));
    floatX *out[2] = {halves(most), halves(most)}, *pre[2] = {halves(rows), halves(rows)};
    float *dweight[2] = {floats(weights), floats(weights)}, *dbias = floats(size_t(4 * C));
    double ours = 0, theirs = 0;
    std::pair<double, std::string> lowest = {1e9, ""};
    bool all = true;

    const auto line = [&](const char* layer, LtProduct product, LtEpilogue epilogue, int count, int n, int c, int oc,
                          const Op& op) {
        const char* const kinds[] = {"forward", "input", "params"};
        const std::string name =
            format("%s %s%s", layer, kinds[size_t(product)], epilogue >= LtEpilogue::gelu ? " + GELU" : "");
        if (!wanted(std::string("matmul ") + name, count)) return;
        progress(format("%s B = %d: %s", s.name, s.B, name.c_str()));
        const bool params = product == LtProduct::params;
        std::string why;
        LtMatmul* const lt = library_product(product, epilogue, params, n, c, oc, &why);
        if (!lt && lt_workspace) progress("no cuBLASLt: " + why);
        std::vector<Op> ops = {op};
        void* const our_out = params ? static_cast<void*>(dweight[0]) : out[0];
        void* const their_out = params ? static_cast<void*>(dweight[1]) : out[1];
        const size_t elements = size_t(product == LtProduct::input || params ? c : oc) * size_t(params ? oc : n);
        if (lt) {
            const floatX* const b = params ? in2 : weight;
            ops.push_back([=] {
                lt_run(lt, their_out, in, b, bias, epilogue == LtEpilogue::gelu ? pre[1] : aux, stream_native(nullptr));
            });
            for (size_t i = 0; i < 2; i++) {
                device_zero(i == 0 ? our_out : their_out, elements * (params ? kF : kX), nullptr);
                ops[i]();
            }
            compare(format("%s B = %d: %s", s.name, s.B, name.c_str()), our_out, their_out,
                    std::min<size_t>(elements, 1 << 20), params);
        }
        const std::vector<double> t = times_of(ops);
        const auto afresh = [=] {
            if (params) device_zero(our_out, elements * kF, nullptr);
            op();
        };
        check_bits(name, afresh, {{our_out, elements * (params ? kF : kX)}});
        const double flops = 2.0 * n * c * oc;
        ours += count * t[0];
        if (lt)
            theirs += count * t[1];
        else
            all = false;
        std::printf("| %s | %d x %d x %d | %d | %.1f | %.0f | %.0f %% | %s | %s |\n", name.c_str(), n, c, oc, count,
                    t[0] * 1e6, flops / t[0] * 1e-12, 100 * flops / t[0] / product_rate,
                    lt ? format("%.1f", t[1] * 1e6).c_str() : "", lt ? format("%.2f", t[1] / t[0]).c_str() : "");
        data_line(name, count, t[0], flops / product_rate, lt ? t[1] : 0);
        if (lt) lowest = std::min(lowest, {t[1] / t[0], name});
        std::fflush(stdout);
        lt_destroy(lt);
    };
    const auto layer = [&](const char* name, int c, int oc, bool gelu, bool of_gelu) {
        line(name, LtProduct::forward, gelu ? LtEpilogue::gelu : LtEpilogue::bias, s.L, N, c, oc, [=] {
            if (gelu)
                matmul_gelu_forward(out[0], pre[0], in, weight, bias, N, c, oc, nullptr);
            else
                matmul_forward(out[0], in, weight, bias, N, c, oc, nullptr);
        });
        line(name, LtProduct::input, of_gelu ? LtEpilogue::dgelu : LtEpilogue::none, s.L, N, c, oc, [=] {
            if (of_gelu)
                matmul_gelu_backward_input(out[0], in, weight, aux, N, c, oc, nullptr);
            else
                matmul_backward_input(out[0], in, weight, N, c, oc, nullptr);
        });
        line(name, LtProduct::params, LtEpilogue::none, s.L, N, c, oc,
             [=] { matmul_backward_params(dweight[0], dbias, in, in2, N, c, oc, true, nullptr); });
    };
    layer("qkv", C, 3 * C, false, false);
    layer("attproj", C, C, false, false);
    layer("fc", C, 4 * C, true, false);
    layer("fcproj", 4 * C, C, false, true);
    const int chunks = ceil_div(N, chunk);
    line("head", LtProduct::forward, LtEpilogue::none, chunks, chunk, C, Vp,
         [=] { matmul_forward(out[0], in, weight, nullptr, chunk, C, Vp, nullptr); });
    line("head", LtProduct::input, LtEpilogue::none, chunks, chunk, C, Vp,
         [=] { matmul_backward_input(out[0], in, weight, chunk, C, Vp, nullptr); });
    line("head", LtProduct::params, LtEpilogue::none, chunks, chunk, C, Vp,
         [=] { matmul_backward_params(dweight[0], nullptr, in, in2, chunk, C, Vp, true, nullptr); });
    micro_batch += ours;
    if (!*only)
        summary.push_back(
            format("matrix products of %s, B = %d: %.2f ms per micro-batch", s.name, s.B, ours * 1e3) +
            (all ? format(", cuBLASLt %.2f ms: %.2f of its speed", theirs * 1e3, theirs / ours) : std::string()));
    if (all && theirs > 0) {
        std::printf("fact: products-%s-%d %.3f\n", s.name, s.B, theirs / ours);
        std::printf("fact: lowest-product-%s-%d %.3f %s\n", s.name, s.B, lowest.first, lowest.second.c_str());
    }
    free_all();
}

// ------------------------------------------------------------------------------------------------------------ ceilings

static double measure_copy() {
    const size_t bytes = tiny ? size_t(1) << 16 : size_t(1) << 30;
    float *from = floats(bytes / kF), *to = static_cast<float*>(memory(bytes));
    const float* const term[] = {from};
    std::vector<Op> ops = {[=] { tree_reduce(to, nullptr, term, 1, Tree::kBalanced, bytes / kF, nullptr); }};
    const bool driver = driver_copy(to, from, bytes, stream_native(nullptr));
    if (driver) ops.push_back([=] { driver_copy(to, from, bytes, stream_native(nullptr)); });
    const std::vector<double> t = times_of(ops);
    free_all();
    const double own = 2.0 * double(bytes) / t[0], other = driver ? 2.0 * double(bytes) / t[1] : 0;
    std::printf("- copy of 1 GiB: %s%.0f GB/s by our own kernel\n",
                driver ? format("%.0f GB/s by the driver, ", other * 1e-9).c_str() : "", own * 1e-9);
    return std::max(own, other);
}

static double measure_product() {
    const int n = tiny ? 64 : 8192;
    const size_t elements = size_t(n) * size_t(n);
    floatX *a = halves(elements), *b = halves(elements), *out = halves(elements);
    std::string why;
    LtMatmul* const lt = library_product(LtProduct::forward, LtEpilogue::none, false, n, n, n, &why);
    std::vector<Op> ops = {[=] { matmul_forward(out, a, b, nullptr, n, n, n, nullptr); }};
    if (lt) ops.push_back([=] { lt_run(lt, out, a, b, nullptr, nullptr, stream_native(nullptr)); });
    const std::vector<double> t = times_of(ops);
    lt_destroy(lt);
    free_all();
    const double flops = 2.0 * n * n * n;
    std::printf(
        "- product at %d^3: %s, ours %.0f TFLOP/s; data sheet %.0f\n", n,
        lt ? format("cuBLASLt %.0f TFLOP/s", flops / t[1] * 1e-12).c_str() : ("no cuBLASLt (" + why + ")").c_str(),
        flops / t[0] * 1e-12, device_peak_flops() * 1e-12);
    return flops / (lt ? t[1] : t[0]);
}

static int run() {
    std::printf("%s, driver for CUDA %s, %s\n\n", device_name(), driver_version().c_str(), lt_version().c_str());
    if (kOnGpu && !tiny && !alone) lt_workspace = device_alloc(kLtWorkspace, "cuBLASLt");
    copy_rate = product_rate = HUGE_VAL;
    if (!alone) {
        copy_rate = measure_copy();
        product_rate = measure_product();
    }
    const Shape nano = {"tiny", 2, 2, 32, 67, 24, 2}, small = {"gpt2-124m", 12, 12, 768, 50257, 1024, 16},
                large = {"gpt2-1558m", 48, 25, 1600, 50257, 1024, 4};
    std::vector<Shape> shapes = {nano};
    if (!tiny) shapes = {small, small, large, large};
    if (!tiny) shapes[1].B = 64, shapes[3].B = 16;
    for (const Shape& s : shapes) {
        if (!shape_wanted(format("%s-%d", s.name, s.B))) continue;
        std::printf("\n### %s, B = %d, T = %d\n", s.name, s.B, s.T);
        micro_batch = 0;
        matmul_table(s);
        const double products = micro_batch;
        attention_table(s);
        const double attention = micro_batch - products;
        rows_table(s);
        if (*only) continue;
        summary.push_back(
            format("kernels of a micro-batch of %s, B = %d: products %.2f + attention %.2f + rows %.2f ms = %.0f "
                   "tokens/s at most",
                   s.name, s.B, products * 1e3, attention * 1e3, (micro_batch - products - attention) * 1e3,
                   s.B * s.T / micro_batch));
    }
    if (shape_wanted("long")) {
        std::printf("\n### long: 16 heads of 128, T = %d\n", tiny ? 40 : 8192);
        attention_table(tiny ? Shape{"long", 1, 1, 128, 67, 40, 1} : Shape{"long", 1, 16, 2048, 50257, 8192, 2});
    }
    if (shape_wanted("update")) update_table(tiny ? 3 * kUnit : 124475904);
    if (alone) return kExitDone;

    size_t reached = 0;
    std::pair<double, std::string> lowest = {1e9, ""};
    for (const auto& s : shares) {
        reached += s.first >= 0.88;
        lowest = std::min(lowest, s);
    }
    if (!shares.empty()) std::printf("fact: memory-lowest %.3f %s\n", lowest.first, lowest.second.c_str());
    if (!shares.empty())
        summary.push_back(
            format("bound by memory: %zu of %zu lines reach 88 %% of the copy rate (target: all); lowest %s, %.0f %%",
                   reached, shares.size(), lowest.second.c_str(), 100 * lowest.first));
    summary.push_back(format("ceilings: copy %.0f GB/s, 8192^3 %.0f TFLOP/s", copy_rate * 1e-9, product_rate * 1e-12));
    summary.push_back(faults.empty()
                          ? "every operation gave the same bits again, and cuBLASLt's results where there is a pair"
                          : format("%zu FAULTS", faults.size()));
    std::printf("\n");
    for (const std::string& f : faults) std::printf("FAULT: %s\n", f.c_str());
    for (const std::string& line : summary) std::printf("summary: %s\n", line.c_str());
    return faults.empty() ? kExitDone : kExitOther;
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    set_program("gpu_kernels");
    try {
        bool name_only = false;
        for (int i = 1; i < argc; i++) {
            const std::string a = argv[i];
            const auto value = [&] {
                return i + 1 < argc ? argv[++i] : (die(kExitUsage, "%s: got nothing, want a value", a.c_str()), "");
            };
            if (a == "--tiny")
                BACKEND::tiny = true;
            else if (a == "--alone")
                BACKEND::alone = true;
            else if (a == "--profile")
                BACKEND::profiled = BACKEND::alone = true, BACKEND::seconds_each = 0;
            else if (a == "--device")
                name_only = true;
            else if (a == "--only")
                BACKEND::only = value();
            else if (a == "--shape")
                BACKEND::only_shapes = value();
            else if (a == "--seconds")
                BACKEND::seconds_each = std::atof(value());
            else
                die(kExitUsage,
                    "got %s, want [--only PARTS] [--shape PARTS] [--seconds S] [--alone|--profile] [--tiny] [--device]",
                    a.c_str());
        }
        if (BACKEND::device_count() == 0) die(kExitNoInput, "no GPU answers; see nvidia-smi");
        BACKEND::device_select(0);
        if (name_only) {
            std::printf("%s\n", BACKEND::device_name());
            return kExitDone;
        }
        return BACKEND::run();
    } catch (const Error& e) {
        std::fflush(stdout);
        print_error(e);
        return e.code;
    }
}
