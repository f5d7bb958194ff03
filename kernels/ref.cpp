// ref.cpp -- the specification: every operation of kernels.h as plain loops with sums in double, in the same order.
//
// Read this to learn the mathematics; nothing here is fast. Every other backend is held to these results, and these are
// held to finite differences and to PyTorch's numbers (tests/ref/test_ref.cpp). Compiled as `ref` (floatX = float) and
// as `ref16` (bf16).
//
// One rule explains every backward function. The loss is one number, and the gradient of a tensor x, "dx", says how
// much the loss changes per change of each element of x. If y = f(x), then dx[i] is the sum over j of dy[j] times the
// change of y[j] per change of x[i]: all ways in which x[i] reaches the loss. Each function below writes out that sum
// for its f, and simplifies it.
#include "kernels/kernels.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>
#include "build/optimizers.h"
#include "src/base/arena.h"
#include "src/base/common.h"
#include "src/base/rng.h"

namespace BACKEND {

// One element from memory and to memory: the only place where storage types differ.
inline double get(float x) { return x; }
inline double get(bf16 x) {                                     // bf16 is the upper half of a float
    const uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline void put(float& to, double x) { to = float(x); }
inline void put(bf16& to, double x) {
    const float value = float(x);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (std::isnan(value)) bits |= 0x400000u;                   // stays a NaN when the lower half is cut off
    else bits += 0x7fffu + (bits >> 16 & 1u);                   // to nearest; a tie goes to the even neighbour
    to.bits = uint16_t(bits >> 16);
}

static double dot(const floatX* a, const floatX* b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += get(a[i]) * get(b[i]);
    return sum;
}

// A parameter gradient: the sum is complete, and rounded, before it meets what was there.
static void put_gradient(float& to, double sum, bool accumulate) { to = accumulate ? to + float(sum) : float(sum); }

// Dropout (Srivastava et al. 2014) forgets an element with probability `rate` and scales the others so that the
// expected value stays. The mask is a function of the element's index, so backward finds the same one again without
// storing it.
static double dropped(const Dropout& d, uint64_t i, double x) {
    if (d.rate == 0) return x;
    const Random4 random = random4({d.state->seed, d.purpose, d.state->step, d.micro_batch}, i / 4);
    return uniform01(random.v[i % 4]) >= d.rate ? x / (1.0f - d.rate) : 0;
}

// ------------------------------------------------------------------------------------------------ memory and streams

void* device_alloc(size_t bytes, const char* what) {
    void* memory = bytes <= SIZE_MAX - 64 ? std::aligned_alloc(64, round_up<size_t>(bytes + 1, 64)) : nullptr;
    if (!memory) die(kExitOther, "memory: %s: got none, want %zu bytes; make the model smaller", what, bytes);
    return std::memset(memory, 0, bytes);
}
void device_free(void* memory) { std::free(memory); }
void copy_to_device(void* device, const void* host, size_t bytes, Stream) { std::memcpy(device, host, bytes); }
void copy_to_host(void* host, const void* device, size_t bytes, Stream) { std::memcpy(host, device, bytes); }
void copy_to_host_later(void* host, const void* device, size_t bytes, Stream) { std::memcpy(host, device, bytes); }
void device_zero(void* device, size_t bytes, Stream) { std::memset(device, 0, bytes); }

void store_floats(floatX* device, const float* host, size_t n) {
    for (size_t i = 0; i < n; i++) put(device[i], host[i]);
}
void load_floats(float* host, const floatX* device, size_t n) {
    for (size_t i = 0; i < n; i++) host[i] = float(get(device[i]));
}

// Every stream is the null stream: what is called is done when the call returns.
Stream stream_create() { return nullptr; }
void stream_destroy(Stream) {}
void stream_call(Stream, std::function<void()> call) { call(); }
void stream_wait(Stream, Stream) {}
void stream_sync(Stream) {}

static double* seconds(Event event) { return reinterpret_cast<double*>(event); }
Event event_create() { return reinterpret_cast<Event>(new double(0)); }
void event_destroy(Event event) { delete seconds(event); }
void event_record(Event event, Stream) { *seconds(event) = now_seconds(); }
void event_sync(Event) {}
bool event_done(Event) { return true; }
void stream_wait_event(Stream, Event) {}
double event_seconds(Event from, Event to) { return *seconds(to) - *seconds(from); }

void* host_alloc(size_t bytes, const char* what) { return device_alloc(bytes, what); }
void host_free(void* memory) { std::free(memory); }

int device_count() { return 1; }
const char* device_address() { return ""; }
bool storage_is_fast() { return true; }
double device_peak_flops() { return NAN; }
void device_memory(size_t* free, size_t* total) { *free = *total = 0; }

void leave_multiprocessors(int) {}
void set_threads(int) {}
int get_threads() { return 1; }
// of kernels/cpu/threads.h
void parallel_for(int tasks, void (*task)(const void* context, int i), const void* context) {
    for (int i = 0; i < tasks; i++) task(context, i);
}
const char* device_name() { return "ref, 1 thread"; }
const char* device_kind() { return "ref"; }

// ---------------------------------------------------------------------------------------------------------- forward

// A token is a row of a table, and so is a position. Their sum is the start of the residual stream.
void embedding_forward(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe, int B, int T, int C,
                       int first, const Dropout& drop, Stream) {
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            const size_t row = (size_t(b) * T + t) * C;
            const floatX* token = wte + size_t(tokens[size_t(b) * T + t]) * C;
            const floatX* position = wpe ? wpe + size_t(first + t) * C : nullptr;
            for (int c = 0; c < C; c++)
                put(out[row + c], dropped(drop, row + c, get(token[c]) + (position ? get(position[c]) : 0)));
        }
}

// LayerNorm shifts each row to mean 0, scales it to variance 1, and gives it a learned scale and shift per channel (Ba
// et al. 2016). eps keeps a constant row from dividing by zero. The variance divides by C, not C - 1, and takes a
// second pass over the row: E[x^2] - mean^2 would cancel catastrophically where the mean is large.
// RMSNorm, where mean is null, leaves the mean in the row and scales its mean square to 1, without a shift.
void layernorm_forward(floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* weight,
                       const floatX* bias, float eps, int N, int C, Stream) {
    for (int n = 0; n < N; n++) {
        const floatX* x = inp + size_t(n) * C;
        double sum = 0, squares = 0;
        for (int c = 0; c < C; c++) sum += get(x[c]);
        const double m = mean ? sum / C : 0;
        for (int c = 0; c < C; c++) squares += (get(x[c]) - m) * (get(x[c]) - m);
        const double r = 1 / std::sqrt(squares / C + eps);
        for (int c = 0; c < C; c++)
            put(out[size_t(n) * C + c], (get(x[c]) - m) * r * get(weight[c]) + (bias ? get(bias[c]) : 0));
        if (mean) mean[n] = float(m);
        rstd[n] = float(r);
    }
}

// The residual stream takes up a branch's output, and the next branch reads it normalised.
void residual_layernorm_forward(floatX* residual, floatX* out, float* mean, float* rstd, const floatX* inp,
                                const floatX* branch, const floatX* weight, const floatX* bias, float eps, int N,
                                int C, const Dropout& drop, Stream stream) {
    for (size_t i = 0; i < size_t(N) * C; i++) put(residual[i], get(inp[i]) + dropped(drop, i, get(branch[i])));
    layernorm_forward(out, mean, rstd, residual, weight, bias, eps, N, C, stream);
}

// Each output is the dot product of a row of inp with a row of weight: how much of that feature is in the input.
void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N, int C, int OC,
                    Stream) {
    for (int n = 0; n < N; n++)
        for (int o = 0; o < OC; o++) {
            const double sum = dot(inp + size_t(n) * C, weight + size_t(o) * C, C);
            put(out[size_t(n) * OC + o], sum + (bias ? get(bias[o]) : 0));
        }
}

// GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415) is x * P(X < x) for a normal X: it passes large x, stops very
// negative ones, and is smooth between. GPT-2 uses this approximation by tanh.
static const double kGeluK = std::sqrt(2 / M_PI), kGeluA = 0.044715;

static double gelu(double x) { return 0.5 * x * (1 + std::tanh(kGeluK * (x + kGeluA * x * x * x))); }

// The derivative follows from the product rule and tanh' = 1 - tanh^2.
static double gelu_derivative(double x) {
    const double t = std::tanh(kGeluK * (x + kGeluA * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluK * (1 + 3 * kGeluA * x * x);
}

void gelu_forward(floatX* out, const floatX* pre, size_t n, Stream) {
    for (size_t i = 0; i < n; i++) put(out[i], gelu(get(pre[i])));
}
void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight, const floatX* bias,
                         int N, int C, int OC, Stream stream) {
    matmul_forward(pre, inp, weight, bias, N, C, OC, stream);
    gelu_forward(out, pre, size_t(N) * OC, stream);
}

enum { kQ, kK, kV };

// Heads tells where q, k and v of one position and head lie in qkv (B,T,NH+2NK,HS), and the output in out (B,T,NH,HS).
// Groups of NH / NK heads ask the same keys and values (Ainslie et al. 2023, arXiv 2305.13245): fewer numbers to keep
// for generation.
struct Heads {
    int T, NH, NK, HS;
    int group(int h) const { return h / (NH / NK); }
    size_t at(int b, int t, int which, int h) const {
        const int column = which == kQ ? h : NH + (which == kK ? 0 : NK) + group(h);
        return ((size_t(b) * T + t) * (NH + 2 * NK) + column) * HS;
    }
    size_t out(int b, int t, int h) const { return ((size_t(b) * T + t) * NH + h) * HS; }
    size_t row(int b, int h, int t) const { return (size_t(b) * NH + h) * T + t; }     // of lse, delta
};

// Writes p[u], the softmax of scores[u] over u < n, and returns lse, the logarithm of the sum of exponentials. Softmax
// does not change when the maximum is subtracted, and then no exponential overflows and the sum is at least 1.
static double softmax(double* p, const double* scores, int n) {
    double max = scores[0], sum = 0;
    for (int u = 1; u < n; u++) max = std::fmax(max, scores[u]);
    for (int u = 0; u < n; u++) sum += p[u] = std::exp(scores[u] - max);
    for (int u = 0; u < n; u++) p[u] /= sum;
    return max + std::log(sum);
}

// Each position asks (q) and all positions up to it answer: the better a key k matches, the more of that position's v
// is taken. 1 / sqrt(HS) keeps the variance of q.k at 1 for any head size. Positions after t are never looked at: a
// language model must not see what it predicts. lse is kept so that backward can make p again: T numbers per head, not
// T^2.
void attention_forward(floatX* out, float* lse, const floatX* qkv, int B, int T, int NH, int NK, int HS,
                       const Dropout& drop, Stream) {
    const Heads heads = {T, NH, NK, HS};
    const double scale = 1 / std::sqrt(double(HS));
    std::vector<double> scores(size_t(T), 0), p(size_t(T), 0);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < NH; h++)
            for (int t = 0; t < T; t++) {
                const size_t row = heads.row(b, h, t), q = heads.at(b, t, kQ, h);
                for (int u = 0; u <= t; u++) scores[u] = scale * dot(qkv + q, qkv + heads.at(b, u, kK, h), HS);
                lse[row] = float(softmax(p.data(), scores.data(), t + 1));
                for (int u = 0; u <= t; u++) p[u] = dropped(drop, uint64_t(row) * T + u, p[u]);
                for (int i = 0; i < HS; i++) {
                    double sum = 0;
                    for (int u = 0; u <= t; u++) sum += p[u] * get(qkv[heads.at(b, u, kV, h) + i]);
                    put(out[heads.out(b, t, h) + i], sum);
                }
            }
}

// Generation asks for one more position at a time. The keys and values of the earlier ones do not change, so the cache
// keeps them.
void attention_cached(floatX* out, floatX* cache, const floatX* qkv, int first, int n, int maxT, int NH, int NK, int HS,
                      Stream) {
    CHECK(first >= 0 && n >= 0 && first + n <= maxT, "attention_cached: %d + %d, room for %d", first, n, maxT);
    const Heads heads = {n, NH, NK, HS};
    const double scale = 1 / std::sqrt(double(HS));
    std::vector<double> scores(size_t(maxT), 0), p(size_t(maxT), 0);
    for (int h = 0; h < NH; h++) {
        floatX* keys = cache + size_t(heads.group(h)) * maxT * HS;      // each head of a group writes the same there
        floatX* values = cache + size_t(NK + heads.group(h)) * maxT * HS;
        for (int t = 0; t < n; t++)
            for (int i = 0; i < HS; i++) {
                keys[size_t(first + t) * HS + i] = qkv[heads.at(0, t, kK, h) + i];
                values[size_t(first + t) * HS + i] = qkv[heads.at(0, t, kV, h) + i];
            }
        for (int t = 0; t < n; t++) {
            const int last = first + t;
            const floatX* q = qkv + heads.at(0, t, kQ, h);
            for (int u = 0; u <= last; u++) scores[u] = scale * dot(q, keys + size_t(u) * HS, HS);
            softmax(p.data(), scores.data(), last + 1);
            for (int i = 0; i < HS; i++) {
                double sum = 0;
                for (int u = 0; u <= last; u++) sum += p[u] * get(values[size_t(u) * HS + i]);
                put(out[heads.out(0, t, h) + i], sum);
            }
        }
    }
}

// The loss of one position is the surprise at the token that came: -log of the probability the model gave it. Its
// gradient is the probabilities themselves, less 1 at that token: d/dx_j (log sum exp x) = p_j, and d/dx_j (-x_target)
// is -1 at the target. The padding columns V..Vp-1 take no part.
void classifier(float* losses, floatX* logits, const int* targets, int N, int V, int Vp, bool backward, Stream) {
    std::vector<double> x(size_t(V), 0), p(size_t(V), 0);
    for (int n = 0; n < N; n++) {
        floatX* logits_n = logits + size_t(n) * Vp;
        if (targets[n] < 0) {                       // this position is not trained on
            losses[n] = 0;
            for (int j = 0; backward && j < Vp; j++) put(logits_n[j], 0);
            continue;
        }
        for (int j = 0; j < V; j++) x[j] = get(logits_n[j]);
        losses[n] = float(softmax(p.data(), x.data(), V) - x[targets[n]]);
        if (!backward) continue;
        for (int j = 0; j < V; j++) put(logits_n[j], p[j] - (j == targets[n] ? 1 : 0));
        for (int j = V; j < Vp; j++) put(logits_n[j], 0);
    }
}

void sum_in_order(double* total, const float* x, size_t n, Stream) {
    double sums[256] = {}, sum = 0;
    for (size_t i = 0; i < n; i++) sums[i % 256] += double(x[i]);
    for (int j = 0; j < 256; j++) sum += sums[j];
    *total = sum;
}

// --------------------------------------------------------------------------------------------------------- backward

// A row of a table was copied to every place where its token stands, so its gradient is the sum over those places. The
// sum for dwte is not in double: it holds the head's gradient already and takes the rows one after another.
void embedding_backward(float* dwte, float* dwpe, const floatX* dout, const int* tokens, int B, int T, int C, int maxT,
                        const Dropout& drop, bool accumulate, Stream) {
    if (!dwte) return;
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            const size_t row = (size_t(b) * T + t) * C;
            float* dtoken = dwte + size_t(tokens[size_t(b) * T + t]) * C;
            for (int c = 0; c < C; c++) dtoken[c] += float(dropped(drop, row + c, get(dout[row + c])));
        }
    for (int t = 0; dwpe && t < maxT; t++)
        for (int c = 0; c < C; c++) {
            double sum = 0;
            for (int b = 0; b < B && t < T; b++) {
                const size_t i = (size_t(b) * T + t) * C + c;
                sum += dropped(drop, i, get(dout[i]));
            }
            if (t < T || !accumulate) put_gradient(dwpe[size_t(t) * C + c], sum, accumulate);
        }
}

// With xhat = (x - mean) * rstd the output is xhat * weight + bias, so dbias = dout and dweight = dout * xhat, summed
// over rows, and g = dout * weight is the gradient of xhat. x reaches xhat in three ways: directly (g), through the
// mean, which takes the average of g away, and through the variance, which takes away the part of g along xhat:
//     dx = rstd * (g - average(g) - xhat * average(g * xhat))
// Both must go: adding a constant to x, or scaling its distance from the mean, does not change xhat.
// Without a mean the second way is closed: dx = rstd * (g - xhat * average(g * xhat)).
void layernorm_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                        const float* mean, const float* rstd, const floatX* weight, int N, int C, bool first,
                        bool accumulate, Stream) {
    std::vector<double> dweight_sum(size_t(C), 0), dbias_sum(size_t(C), 0);
    for (int n = 0; n < N; n++) {
        const size_t row = size_t(n) * C;
        const double m = mean ? mean[n] : 0, r = rstd[n];
        double g_sum = 0, g_xhat_sum = 0;
        for (int c = 0; c < C; c++) {
            const double xhat = (get(inp[row + c]) - m) * r, dy = get(dout[row + c]), g = dy * get(weight[c]);
            dbias_sum[c] += dy;
            dweight_sum[c] += dy * xhat;
            g_sum += g;
            g_xhat_sum += g * xhat;
        }
        for (int c = 0; c < C; c++) {
            const double xhat = (get(inp[row + c]) - m) * r, g = get(dout[row + c]) * get(weight[c]);
            const double dx = r * (g - (mean ? g_sum / C : 0) - xhat * g_xhat_sum / C);
            put(dinp[row + c], first ? dx : get(dinp[row + c]) + dx);
        }
    }
    for (int c = 0; c < C; c++) {
        put_gradient(dweight[c], dweight_sum[c], accumulate);
        if (dbias) put_gradient(dbias[c], dbias_sum[c], accumulate);
    }
}

// An element that was forgotten had no influence, one that was scaled had more: the gradient goes through the same
// mask.
void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop, Stream) {
    for (size_t i = 0; i < n; i++) put(dinp[i], dropped(drop, i, get(dout[i])));
}

// out_o is the sum over c of inp_c weight_oc: inp_c reaches every output o, with factor weight_oc.
static double input_gradient(const floatX* dout_n, const floatX* weight, int c, int C, int OC) {
    double sum = 0;
    for (int o = 0; o < OC; o++) sum += get(dout_n[o]) * get(weight[size_t(o) * C + c]);
    return sum;
}

void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C, int OC, Stream) {
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++)
            put(dinp[size_t(n) * C + c], input_gradient(dout + size_t(n) * OC, weight, c, C, OC));
}

// The input of this matmul was gelu(pre), element by element. Its gradient times the slope of gelu at pre is the
// gradient of pre.
void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* weight, const floatX* pre, int N, int C,
                                int OC, Stream) {
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            const size_t i = size_t(n) * C + c;
            put(dpre[i], input_gradient(dout + size_t(n) * OC, weight, c, C, OC) * gelu_derivative(get(pre[i])));
        }
}

// weight_oc is used once in every row n, there with factor inp_nc; the bias with factor 1.
void matmul_backward_params(float* dweight, float* dbias, const floatX* dout, const floatX* inp, int N, int C, int OC,
                            bool accumulate, Stream) {
    for (int o = 0; o < OC; o++) {
        for (int c = 0; c < C; c++) {
            double sum = 0;
            for (int n = 0; n < N; n++) sum += get(dout[size_t(n) * OC + o]) * get(inp[size_t(n) * C + c]);
            put_gradient(dweight[size_t(o) * C + c], sum, accumulate);
        }
        if (!dbias) continue;
        double sum = 0;
        for (int n = 0; n < N; n++) sum += get(dout[size_t(n) * OC + o]);
        put_gradient(dbias[o], sum, accumulate);
    }
}

// The way back through out_t = sum_u m_tu p_tu v_u, p = softmax(s), s_tu = q_t . k_u / sqrt(HS), where m is the mask, 0
// or 1 / (1 - rate), is:
//     dv_u  = sum_t m_tu p_tu dout_t
//     dp_tu = m_tu (dout_t . v_u)
//     ds_tu = p_tu (dp_tu - sum_w p_tw dp_tw)      softmax: raising one score lowers all the other probabilities
//     dq_t  = sum_u ds_tu k_u / sqrt(HS),   dk_u = sum_t ds_tu q_t / sqrt(HS)
// The sum over w is the same for all u, and equals dout_t . out_t: delta_t. So no row of p need be complete at any
// time, which makes a fast version possible (Dao et al. 2022, arXiv 2205.14135).
void attention_backward(floatX* dqkv, float* delta, const floatX* dout, const floatX* qkv, const floatX* out,
                        const float* lse, int B, int T, int NH, int NK, int HS, const Dropout& drop, Stream) {
    const Heads heads = {T, NH, NK, HS};
    const double scale = 1 / std::sqrt(double(HS));
    std::vector<double> sums(size_t(B) * T * (NH + 2 * NK) * HS, 0);       // dqkv, before it is rounded
    for (int b = 0; b < B; b++)
        for (int h = 0; h < NH; h++)
            for (int t = 0; t < T; t++) {
                const size_t row = heads.row(b, h, t), q = heads.at(b, t, kQ, h);
                const floatX* dout_t = dout + heads.out(b, t, h);
                delta[row] = float(dot(dout_t, out + heads.out(b, t, h), HS));
                for (int u = 0; u <= t; u++) {
                    const size_t k = heads.at(b, u, kK, h), v = heads.at(b, u, kV, h);
                    const uint64_t element = uint64_t(row) * T + u;
                    const double p = std::exp(scale * dot(qkv + q, qkv + k, HS) - lse[row]);
                    const double dp = dropped(drop, element, dot(dout_t, qkv + v, HS));
                    const double ds = p * (dp - delta[row]), p_dropped = dropped(drop, element, p);
                    for (int i = 0; i < HS; i++) {
                        sums[q + i] += ds * scale * get(qkv[k + i]);
                        sums[k + i] += ds * scale * get(qkv[q + i]);
                        sums[v + i] += p_dropped * get(dout_t[i]);
                    }
                }
            }
    for (size_t i = 0; i < sums.size(); i++) put(dqkv[i], sums[i]);
}

// ------------------------------------------------------------------------------------------ the update, over the arena
//
// These are exact: every backend gives the same bits, because the replicas' agreement is built on them. So they are in
// float, in the order that kernels.h says.

// Float addition is not associative: the order is the result. By halves, 8 terms on one rank, or the sums of 4 and 4 on
// two, or of 2 on four, go through the same additions; and so do the sums of 4, 2, 1 and 1 on one, from the back.
static float sum_terms(const float* const* terms, int count, Tree tree, size_t i) {
    if (count == 1) return terms[0][i];
    const int first = tree == Tree::kHalves ? count / 2 : 1;
    return sum_terms(terms, first, tree, i) + sum_terms(terms + first, count - first, tree, i);
}

void tree_reduce(float* out, float* partials, const float* const* terms, int count, Tree tree, size_t n, Stream) {
    const bool fits = tree == Tree::kStack || (count & (count - 1)) == 0;
    CHECK(count > 0 && fits && n % kUnit == 0, "tree_reduce: %d terms of %zu elements", count, n);
    for (size_t i = 0; i < n; i++) out[i] = sum_terms(terms, count, tree, i);
    for (size_t k = 0; partials && k < n / kUnit; k++) {
        float sums[16] = {};
        for (size_t i = 0; i < kUnit; i++) sums[i % 16] += out[k * kUnit + i] * out[k * kUnit + i];
        partials[k] = sums[0];
        for (int j = 1; j < 16; j++) partials[k] += sums[j];
    }
}

// A gradient longer than `clip` is scaled down to it: its direction is kept, and one wild batch cannot throw the
// weights far. The partials are many, and of floats; their sum is in double, so that its order matters little, and is
// fixed.
void clip_scale(StepState* state, double* norm, const float* partials, size_t units, double clip, double tokens,
                Stream) {
    double sum;
    sum_in_order(&sum, partials, units, nullptr);
    if (tokens == 0) tokens = state->tokens;
    norm[0] = std::sqrt(sum) / tokens;
    const double factor = clip > 0 ? std::fmin(1, clip / (norm[0] + 1e-6)) : 1;
    state->grad_scale = std::isfinite(norm[0]) ? float(factor / tokens) : NAN;
}

template <class Rule, int STAGE>
static void update_loop(floatX* param, float* master, float* const* state, const float* grad, const uint8_t* decay,
                        size_t n, const StepState& step) {
    if constexpr (STAGE < int(std::size(Rule::kState))) {
        constexpr int kArrays = Rule::kState[STAGE];
        for (size_t i = 0; i < n; i++) {
            float own[kArrays + 1];
            for (int k = 0; k < kArrays; k++) own[k] = state[k][i];
            Rule::element(STAGE, master[i], own, grad[i], decay[i / kUnit], step);
            for (int k = 0; k < kArrays; k++) state[k][i] = own[k];
            put(param[i], master[i]);               // with floatX = float these two may be one place
        }
    }
}

void update(int optimizer, int stage, floatX* param, float* master, float* const* state, const float* grad,
            const uint8_t* decay, size_t n, const StepState* step, Stream) {
#define X(name) OPTIMIZER_STAGES(update_loop, name),
    static constexpr decltype(&update_loop<adamw_rule, 0>) kLoops[][kMaxStages] = {OPTIMIZERS(X)};
#undef X
    CHECK(n % kUnit == 0, "update: %zu elements", n);
    if (std::isfinite(step->grad_scale)) kLoops[optimizer][stage](param, master, state, grad, decay, n, *step);
}

void matrix_polynomial(floatX* out, float a, float b, const floatX* x, float c, const floatX* y, int n, Stream) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const size_t k = size_t(i) * size_t(n) + size_t(j);
            put(out[k], (i == j ? a : 0) + ((x ? b * get(x[k]) : 0) + (y ? c * get(y[k]) : 0)));
        }
}

uint64_t hash_floats(const float* x, size_t n, Stream) {
    uint64_t hash = n;
    for (size_t begin = 0; begin < n; begin += kUnit) {
        uint64_t unit = 0;
        for (size_t i = 0; i < kUnit && begin + i < n; i++) {
            uint32_t bits;
            std::memcpy(&bits, x + begin + i, sizeof bits);
            unit += mix64(uint64_t(i + 1) << 32 | bits);
        }
        hash = mix64(hash ^ unit);
    }
    return hash;
}

}  // namespace BACKEND
