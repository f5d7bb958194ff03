// ref.cpp -- the specification: every operation of kernels.h
// as plain loops, each rounding in the order that counts.
//
// Read this to learn the mathematics; nothing here is fast. It is compiled three times. `ref`
// computes in float and stores float, `ref16` computes in float and stores bf16: CPUs with fused
// multiply-add give these results bit for bit. `ref64` computes in double: it is held to finite
// differences and to PyTorch's numbers (tests/ref/test_ref.cpp), and GPUs, which add in orders of
// their own, are held to it by tolerances (tests/kernels).
//
// One rule explains every backward function. The loss is one number, and the gradient of a tensor
// x, "dx", says how much the loss changes per change of each element of x. If y = f(x), then dx[i]
// is the sum over j of dy[j] times the change of y[j] per change of x[i]: all ways in which x[i]
// reaches the loss. Each function below writes out that sum for its f, and simplifies it.
//
// One rule holds for every operation. +, -, *, / and sqrt are rounded one by one, from left to
// right as written; but a product that is added to something is fma(a, b, c), a * b + c rounded
// once. Only the update rounds these products, too. Numbers below 1.2e-38 count as 0, as operands
// and as results (kernels/cpu/runtime.cpp).
//
// Whoever has read learn/train.cpp knows the operations of GPT-2: they are the same loops, with the
// same order of sums. These things are only here:
//
//     all             get and put, because weights and activations may be bf16; a gradient is "="
//                     or "+=" (put_gradient), where learn/train.cpp always adds
//     embedding       models without wpe; positions that begin anew with a document
//     layernorm       RMSNorm, which has no mean
//     attention       groups of heads that share keys and values; a first key for each query, for
//                     windows and documents; attention_cached, for generation
//     classifier      positions without a target; the loss without its gradient
//     tree_reduce     the part of the tree that lies inside a rank (Tree::kNested)
//     update          the rule of any optimizer: optimizers/adamw.h has the loop's body
//     hash_floats     for audits
#include "kernels/kernels.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <vector>
#include "build/optimizers.h"
#include "src/base/arena.h"
#include "src/base/common.h"
#include "src/base/numbers.h"

namespace BACKEND {

using std::fma;
constexpr bool kDouble = sizeof(real) == sizeof(double);

// One element from memory and to memory: the only place where storage types differ.
inline real get(float x) { return x; }
// The upper half of a float
inline real get(bf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
inline void put(float& to, real x) { to = float(x); }
inline void put(bf16& to, real x) {
    const float value = float(x);
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) bits |= 0x400000u;    // stays a NaN when the lower half is cut off
    else bits += 0x7fffu + (bits >> 16 & 1u);    // to nearest; a tie goes to the even neighbour
    to.bits = uint16_t(bits >> 16);
}

// A parameter gradient: the sum is complete, and rounded, before it meets what was there.
static void put_gradient(float& to, real sum, bool accumulate) {
    to = accumulate ? to + float(sum) : float(sum);
}

// What dropout (Srivastava et al. 2014) multiplies element i by. It forgets an element with
// probability `rate` and scales the others so that the expected value stays. The mask is a function
// of the element's index, so backward finds the same one again without storing it.
static real dropped(const Dropout& d, uint64_t i) {
    if (d.rate <= 0) return 1;
    const Random4 random = random4({d.state->seed, d.purpose, d.state->step, d.micro_batch}, i / 4);
    return uniform01(random.v[i % 4]) >= d.rate ? 1.0f / (1.0f - d.rate) : 0;
}

// ------------------------ the order of sums
//
// Float addition is not associative: the order decides the bits. Most sums take their terms in
// order, because fast code computes many such sums side by side. Some kinds of sums have another
// order, which the numbers below fix. The width of a vector, caches and threads do not change it.
// kernels.h gives that of sum_in_order and tree_reduce.

constexpr int kSums = 64;    // partial sums along a row: of channels, or of a vocabulary
constexpr int kFewRows = 4;  // a product with weight^T of at most this many rows: sums along a row
constexpr int kNormRows = 32;    // rows in a block, for the gradients of LayerNorm's weights

// Partial sum j takes terms j, j + kSums, ... by add(sum,
// i); then the upper half is added onto the lower one.
template <class F> static real sum_along_row(int n, const F& add) {
    real part[kSums] = {};
    for (int i = 0; i < n; i++) add(part[i % kSums], i);
    for (int half = kSums / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

// sum + a(k) b(k) for first <= k < last, one after another.
template <class A, class B>
static real add_products(real sum, int first, int last, const A& a, const B& b) {
    for (int k = first; k < last; k++) sum = fma(a(k), b(k), sum);
    return sum;
}
template <class A, class B> static real product(int n, const A& a, const B& b) {
    return add_products(0, 0, n, a, b);
}
static real dot(const floatX* a, const floatX* b, int n) {
    return product(n, [&](int i) { return get(a[i]); }, [&](int i) { return get(b[i]); });
}

// The sum of a(k) b(k), k < n: each block of kNormRows
// begins with 0, and the blocks' sums are added in order.
template <class A, class B> static real sum_of_blocks(int n, const A& a, const B& b) {
    real sum = 0;
    for (int k = 0; k < n; k += kNormRows)
        sum += add_products(0, k, std::min(n, k + kNormRows), a, b);
    return sum;
}
static real one(int) { return 1; }              // the factor of a plain sum

// ------------------------ exp, log, GELU
//
// C libraries differ in the last bit, so in float these are sequences of rounded operations.

// e^x. x = n ln 2 + r, where ln 2 has two parts so that n times the high one is exact (Cody and
// Waite 1980). e^r is its series up to r^7, times 2^n. A NaN stays one.
static real exponential(real x_or_double) {
    if (kDouble) return std::exp(x_or_double);
    // Adding 1.5 * 2^23 + 127 rounds to an integer. The sum's lowest bits are n + 127, the
    // exponent's bits of 2^n.
    const float x = float(x_or_double), to_integer = 12583039.0f;
    const float shifted = fma(x, 1.44269504f, to_integer), n = shifted - to_integer;
    const float r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
    float p = 1.0f / 5040;
    for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
        p = fma(p, r, c);
    return x < -87.3f ? 0.0f : p * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}
// The natural logarithm, computed in double; NaN for infinity and NaN.
static real logarithm(real x) {
    if (kDouble) return std::log(x);
    return float(same_log(double(x))) + (x - x);
}

// GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415) is x * P(X < x) for a normal X: about x for
// large x, about 0 for very negative x, and smooth between. GPT-2 takes s = (1 + tanh u) / 2 for P,
// u = sqrt(2 / pi) (x + 0.044715 x^3). That is 1 / (1 + e^-2u), where nothing cancels. The slope
// follows from the product rule and s' = 2u' s (1 - s), where 1 - s is e^-2u s. -2u is limited to
// 80, so e^-2u is finite.
struct Gelu { real value, slope; };
static Gelu gelu(real x) {
    constexpr real kTwiceK = 2 * real(0.79788456080286535588), kCubic = real(0.044715);
    const real minus_2u = x * fma(x * x, -kTwiceK * kCubic, -kTwiceK);
    const real e = exponential(80 < minus_2u ? 80 : minus_2u), s = 1 / (1 + e);
    return {x * s, fma(s * (e * s), x * fma(x * x, 3 * kTwiceK * kCubic, kTwiceK), s)};
}

// ------------------------ the backend, with the memory of kernels/cpu/runtime.cpp

bool storage_is_fast() { return true; }
const char* device_name() { return kDouble ? "ref64" : "ref"; }
// The same kind as such CPUs
const char* device_kind() { return kDouble ? "ref64" : "cpu fma" ARITHMETIC; }

// ------------------------ forward

// A token is a row of a table, and so is a position. Their sum is the start of the residual stream.
void embedding_forward(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe,
                       const Embedding& embedding, Stream) {
    const auto& [B, T, C, drop, begin] = embedding;
    for (int n = 0; n < B * T; n++)
        for (int c = 0; c < C; c++) {
            const size_t i = size_t(n) * C + c, position = size_t(n % T - (begin ? begin[n] : 0));
            const real token = get(wte[size_t(tokens[n]) * C + c]);
            const real x = wpe ? token + get(wpe[position * C + c]) : token;
            put(out[i], x * dropped(drop, i));
        }
}

// LayerNorm shifts each row to mean 0, scales it to variance 1, and gives it a learned scale and
// shift per channel (Ba et al. 2016). eps keeps a constant row from dividing by zero. The variance
// divides by C, not C - 1, and takes a second pass over the row: E[x^2] - mean^2 would cancel
// catastrophically where the mean is large. If mean is null it is RMSNorm, which does not subtract
// the mean, scales the row to mean square 1, and has no shift.
void layernorm_forward(const LayerNorm& norm, Stream) {
    const auto& [N, C, inp, out, mean, rstd, weight, bias, eps] = norm;
    for (int n = 0; n < N; n++) {
        const floatX* x = inp + size_t(n) * C;
        const real m =
            mean ? sum_along_row(C, [&](real& sum, int c) { sum += get(x[c]); }) / real(C) : 0;
        const real squares = sum_along_row(
            C, [&](real& sum, int c) { sum = fma(get(x[c]) - m, get(x[c]) - m, sum); });
        const real r = 1 / std::sqrt(squares / real(C) + eps);
        for (int c = 0; c < C; c++)
            put(out[size_t(n) * C + c],
                fma((get(x[c]) - m) * r, get(weight[c]), bias ? get(bias[c]) : 0));
        if (mean) mean[n] = float(m);
        rstd[n] = float(r);
    }
}

// A branch's output is added to the residual stream, and
// the next branch reads the stream normalised.
void residual_layernorm_forward(const LayerNorm& norm, const floatX* inp, const floatX* branch,
                                const Dropout& drop, Stream stream) {
    for (size_t i = 0; i < size_t(norm.N) * norm.C; i++)
        put(norm.inp[i], fma(get(branch[i]), dropped(drop, i), get(inp[i])));
    layernorm_forward(norm, stream);
}

// Each output is the dot product of a row of inp with a row of weight.
void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N,
                    int C, int OC, Stream) {
    for (int n = 0; n < N; n++)
        for (int o = 0; o < OC; o++) {
            const auto x = [&](int c) { return get(inp[size_t(n) * C + c]); };
            const auto w = [&](int c) { return get(weight[size_t(o) * C + c]); };
            const real sum =
                N > kFewRows
                    ? product(C, x, w)
                    : sum_along_row(C, [&](real& part, int c) { part = fma(x(c), w(c), part); });
            put(out[size_t(n) * OC + o], bias ? sum + get(bias[o]) : sum);
        }
}

void gelu_forward(floatX* out, const floatX* pre, size_t n, Stream) {
    for (size_t i = 0; i < n; i++) put(out[i], gelu(get(pre[i])).value);
}
void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight,
                         const floatX* bias, int N, int C, int OC, Stream stream) {
    matmul_forward(pre, inp, weight, bias, N, C, OC, stream);
    gelu_forward(out, pre, size_t(N) * OC, stream);
}

enum { kQ, kK, kV };

// Heads tells where q, k and v of one position and head lie in qkv (B,T,NH+2NK,HS), and the output
// in out (B,T,NH,HS). Groups of NH / NK heads share keys and values (Ainslie et al. 2023, arXiv
// 2305.13245), so that generation has to keep fewer numbers.
struct Heads {
    int T, NH, NK, HS;
    int group(int h) const { return h / (NH / NK); }
    size_t at(int b, int t, int which, int h) const {
        const int column = which == kQ ? h : NH + (which == kK ? 0 : NK) + group(h);
        return ((size_t(b) * T + t) * (NH + 2 * NK) + column) * HS;
    }
    size_t out(int b, int t, int h) const { return ((size_t(b) * T + t) * NH + h) * HS; }
    size_t row(int b, int h, int t) const { return (size_t(b) * NH + h) * T + t; }  // of lse, delta
};

// A new member of Attention stops the compiler here, so that it is not left out in silence.
static int first_key(const Attention& attention, int b, int t) {
    return attention.begin ? attention.begin[size_t(b) * attention.T + t] : 0;
}
static real scale_of(const Attention& attention) {
    const auto& [B, T, NH, NK, HS, drop, scale, begin] = attention;
    return scale > 0 ? real(scale) : 1 / std::sqrt(real(HS));
}

// The output at a position is a weighted mean of the values v of all positions up to it. The weight
// of a position grows with the product of its key k with this position's query q. 1 / sqrt(HS)
// keeps the variance of q.k at 1 for any head size. Softmax does not change when the maximum is
// subtracted, and then no exponential overflows and the sum is at least 1.
//
// attend computes one query with keys and values first..last-1, which lie `stride` elements apart.
// It writes out and returns lse. p is work space, factor(u) is dropout's factor. attend divides
// `out` by the sum once; it does not divide each p.
template <class F> static real attend(floatX* out, real* p, const floatX* q, const floatX* k,
                                      const floatX* v, size_t stride, int first, int last, int HS,
                                      real scale, const F& factor) {
    real max = -INFINITY, total = 0;
    for (int u = first; u < last; u++) {
        p[u] = dot(k + u * stride, q, HS);
        max = p[u] > max ? p[u] : max;
    }
    for (int u = first; u < last; u++) {
        p[u] = exponential(scale * (p[u] - max));
        total += p[u];
        p[u] *= factor(u);
    }
    for (int i = 0; i < HS; i++) {
        const auto value = [&](int u) { return get(v[u * stride + i]); };
        put(out[i], add_products(0, first, last, value, [&](int u) { return p[u]; }) / total);
    }
    return fma(scale, max, logarithm(total));
}

// Positions after t are never looked at: a language model must not see what it predicts. lse is
// kept so that backward can make p again: T numbers per head, not T^2.
void attention_forward(floatX* out, float* lse, const floatX* qkv, const Attention& attention,
                       Stream) {
    const int B = attention.B, T = attention.T, NH = attention.NH, NK = attention.NK,
              HS = attention.HS;
    const Dropout& drop = attention.drop;
    const Heads heads = {T, NH, NK, HS};
    std::vector<real> p(size_t(T), 0);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < NH; h++)
            for (int t = 0; t < T; t++) {
                const size_t row = heads.row(b, h, t), k = heads.at(b, 0, kK, h),
                             v = heads.at(b, 0, kV, h);
                const auto factor = [&](int u) { return dropped(drop, uint64_t(row) * T + u); };
                lse[row] = float(
                    attend(out + heads.out(b, t, h), p.data(), qkv + heads.at(b, t, kQ, h), qkv + k,
                           qkv + v, heads.at(0, 1, kQ, 0), first_key(attention, b, t), t + 1, HS,
                           scale_of(attention), factor));
            }
}

// Generation asks for one more position at a time. The keys and values of the earlier ones do not
// change, so the cache keeps them.
void attention_cached(floatX* out, floatX* cache, const floatX* qkv, int first, int maxT,
                      const Attention& attention, Stream) {
    const int n = attention.T, NH = attention.NH, NK = attention.NK, HS = attention.HS;
    CHECK(attention.B == 1 && attention.drop.rate == 0,
          "attention_cached: want a B of 1 and no dropout");
    CHECK(first >= 0 && n >= 0 && first + n <= maxT, "attention_cached: %d + %d, room for %d",
          first, n, maxT);
    const Heads heads = {n, NH, NK, HS};
    std::vector<real> p(size_t(maxT), 0);
    for (int h = 0; h < NH; h++) {
        // Each head of a group writes the same there
        floatX* keys = cache + size_t(heads.group(h)) * maxT * HS;
        floatX* values = cache + size_t(NK + heads.group(h)) * maxT * HS;
        for (int t = 0; t < n; t++)
            for (int i = 0; i < HS; i++) {
                keys[size_t(first + t) * HS + i] = qkv[heads.at(0, t, kK, h) + i];
                values[size_t(first + t) * HS + i] = qkv[heads.at(0, t, kV, h) + i];
            }
        for (int t = 0; t < n; t++)
            attend(out + heads.out(0, t, h), p.data(), qkv + heads.at(0, t, kQ, h), keys, values,
                   size_t(HS), first_key(attention, 0, t), first + t + 1, HS, scale_of(attention),
                   one);
    }
}

// The loss of one position is the surprise at the token that came: -log of
// the probability the model gave it. Its gradient is the probabilities
// themselves, less 1 at that token: d/dx_j (log sum exp x) = p_j, and d/dx_j
// (-x_target) is -1 at the target. The padding columns V..Vp-1 take no part.
void classifier(float* losses, floatX* logits, const int* targets, int N, int V, int Vp,
                bool backward, Stream) {
    std::vector<real> p(size_t(V), 0);
    for (int n = 0; n < N; n++) {
        floatX* x = logits + size_t(n) * Vp;
        if (targets[n] < 0) {                       // this position is not trained on
            losses[n] = 0;
            for (int j = 0; backward && j < Vp; j++) put(x[j], 0);
            continue;
        }
        real max = -INFINITY;
        for (int j = 0; j < V; j++) max = get(x[j]) > max ? get(x[j]) : max;
        for (int j = 0; j < V; j++) p[j] = exponential(get(x[j]) - max);
        const real total = sum_along_row(V, [&](real& sum, int j) { sum += p[j]; });
        losses[n] = float(logarithm(total) - (get(x[targets[n]]) - max));
        if (!backward) continue;
        p[targets[n]] -= total;
        for (int j = 0; j < Vp; j++) put(x[j], j < V ? p[j] / total : 0);
    }
}

void sum_in_order(double* total, const float* x, size_t n, Stream) {
    double sums[256] = {}, sum = 0;
    for (size_t i = 0; i < n; i++) sums[i % 256] += double(x[i]);
    for (int j = 0; j < 256; j++) sum += sums[j];
    *total = sum;
}

// ------------------------ backward

// A row of a table was copied to every place where its token stands, so its gradient is the sum
// over those places. The sum for dwte is not complete before it is added: dwte holds the head's
// gradient and takes the rows one after another. Where positions begin anew with a document, a
// position may be in a sequence many times, as a token may, and dwpe's sum is made as dwte's is.
void embedding_backward(float* dwte, float* dwpe, const floatX* dout, const int* tokens, int maxT,
                        const Embedding& embedding, bool accumulate, Stream) {
    if (!dwte) return;
    const auto& [B, T, C, drop, begin] = embedding;
    for (int t = 0; dwpe && t < maxT; t++)
        for (int c = 0; c < C; c++) {
            real sum = 0;
            for (int b = 0; b < B && t < T && !begin; b++) {
                const size_t i = (size_t(b) * T + t) * C + c;
                sum = fma(get(dout[i]), dropped(drop, i), sum);
            }
            if (t < T || !accumulate) put_gradient(dwpe[size_t(t) * C + c], sum, accumulate);
        }
    for (int n = 0; n < B * T; n++)
        for (int c = 0; c < C; c++) {
            const size_t i = size_t(n) * C + c;
            float& to = dwte[size_t(tokens[n]) * C + c];
            to = float(fma(get(dout[i]), dropped(drop, i), real(to)));
            if (!dwpe || !begin) continue;
            float& position = dwpe[size_t(n % T - begin[n]) * C + c];
            position = float(fma(get(dout[i]), dropped(drop, i), real(position)));
        }
}

// With xhat = (x - mean) * rstd the output is xhat * weight + bias, so dbias = dout and dweight =
// dout * xhat, summed over rows, and g = dout * weight is the gradient of xhat. x reaches xhat in
// three ways: directly (g), through the mean, which takes the average of g away, and through the
// variance, which takes away the part of g along xhat:
//     dx = rstd * (g - average(g) - xhat * average(g * xhat))
// Both parts are taken away because neither a constant added to x nor a scale of its distance from
// the mean changes xhat. RMSNorm subtracts no mean, so average(g) is absent: dx = rstd * (g - xhat
// * average(g * xhat)).
void layernorm_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout,
                        const LayerNorm& norm, bool first, bool accumulate, Stream) {
    const int N = norm.N, C = norm.C;
    const float *const mean = norm.mean, *const rstd = norm.rstd;
    const auto dy = [&](int n, int c) { return get(dout[size_t(n) * C + c]); };
    const auto g = [&](int n, int c) { return dy(n, c) * get(norm.weight[c]); };
    const auto xhat = [&](int n, int c) {
        return (get(norm.inp[size_t(n) * C + c]) - (mean ? mean[n] : 0)) * rstd[n];
    };
    for (int n = 0; n < N; n++) {
        const real g_sum = sum_along_row(C, [&](real& sum, int c) { sum += g(n, c); });
        const real g_xhat_sum =
            sum_along_row(C, [&](real& sum, int c) { sum = fma(g(n, c), xhat(n, c), sum); });
        const real g_mean = mean ? g_sum / real(C) : 0, g_xhat_mean = g_xhat_sum / real(C);
        for (int c = 0; c < C; c++) {
            const real rest = fma(-xhat(n, c), g_xhat_mean, g(n, c) - g_mean);
            floatX& to = dinp[size_t(n) * C + c];
            put(to, fma(real(rstd[n]), rest, first ? 0 : get(to)));
        }
    }
    for (int c = 0; c < C; c++) {
        const auto dy_c = [&](int n) { return dy(n, c); };
        put_gradient(dweight[c], sum_of_blocks(N, dy_c, [&](int n) { return xhat(n, c); }),
                     accumulate);
        if (dbias) put_gradient(dbias[c], sum_of_blocks(N, dy_c, one), accumulate);
    }
}

// An element that was forgotten had no influence, one that was scaled had more: the gradient goes
// through the same mask.
void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop, Stream) {
    for (size_t i = 0; i < n; i++) put(dinp[i], get(dout[i]) * dropped(drop, i));
}

// out_o is the sum over c of inp_c weight_oc: inp_c reaches every output o, with factor weight_oc.
//
// If pre is given, this matmul's input was gelu(pre), element by element: then the input's gradient
// times the slope of gelu at pre is the gradient of pre.
void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* weight,
                                const floatX* pre, int N, int C, int OC, Stream) {
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            const size_t i = size_t(n) * C + c;
            const auto dy = [&](int o) { return get(dout[size_t(n) * OC + o]); };
            const real sum = product(OC, dy, [&](int o) { return get(weight[size_t(o) * C + c]); });
            put(dpre[i], pre ? sum * gelu(get(pre[i])).slope : sum);
        }
}
void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C,
                           int OC, Stream s) {
    matmul_gelu_backward_input(dinp, dout, weight, nullptr, N, C, OC, s);
}

// weight_oc is used once in every row n, there with factor inp_nc; the bias with factor 1.
void matmul_backward_params(float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                            int N, int C, int OC, bool accumulate, Stream) {
    for (int o = 0; o < OC; o++) {
        const auto dy = [&](int n) { return get(dout[size_t(n) * OC + o]); };
        for (int c = 0; c < C; c++) {
            const auto x = [&](int n) { return get(inp[size_t(n) * C + c]); };
            put_gradient(dweight[size_t(o) * C + c], product(N, dy, x), accumulate);
        }
        if (dbias) put_gradient(dbias[o], product(N, dy, one), accumulate);
    }
}

// The way back through out_t = sum_u m_tu p_tu v_u, p = softmax(s), s_tu = q_t . k_u / sqrt(HS),
// where m is the mask, 0 or 1 / (1 - rate), is:
//     dv_u  = sum_t m_tu p_tu dout_t
//     dp_tu = m_tu (dout_t . v_u)
//     ds_tu = p_tu (dp_tu - sum_w p_tw dp_tw)   softmax: one score up, all other probabilities down
//     dq_t  = sum_u ds_tu k_u / sqrt(HS),   dk_u = sum_t ds_tu q_t / sqrt(HS)
// The sum over w is the same for all u, and equals dout_t . out_t: delta_t. So no row of p need be
// complete at any time, which makes a fast version possible (Dao et al. 2022, arXiv 2205.14135).
void attention_backward(floatX* dqkv, float* delta, const floatX* dout, const floatX* qkv,
                        const floatX* out, const float* lse, const Attention& attention, Stream) {
    const int B = attention.B, T = attention.T, NH = attention.NH, NK = attention.NK,
              HS = attention.HS;
    const Dropout& drop = attention.drop;
    const Heads heads = {T, NH, NK, HS};
    const real scale = scale_of(attention);
    const int share = NH / NK;    // heads that read the same keys and values
    // p and ds hold these heads, [head][t][u], with 0 where t does not see u; p is masked.
    std::vector<real> p, ds;
    const auto pair = [&](int h, int t, int u) { return (size_t(h % share) * T + t) * T + u; };
    for (int b = 0; b < B; b++)
        for (int h = 0; h < NH; h++) {
            if (h % share == 0) p.assign(size_t(share) * T * T, 0), ds = p;
            for (int t = 0; t < T; t++) {
                const int first = first_key(attention, b, t);
                const size_t row = heads.row(b, h, t);
                const floatX *q = qkv + heads.at(b, t, kQ, h), *o = out + heads.out(b, t, h);
                const floatX* dout_t = dout + heads.out(b, t, h);
                delta[row] = float(sum_along_row(HS, [&](real& sum, int i) {
                    sum = fma(get(o[i]), get(dout_t[i]), sum);
                }));
                for (int u = first; u <= t; u++) {
                    const real s = dot(qkv + heads.at(b, u, kK, h), q, HS);
                    const real dp = dot(qkv + heads.at(b, u, kV, h), dout_t, HS);
                    const real e = exponential(fma(scale, s, -lse[row])),
                               m = dropped(drop, uint64_t(row) * T + u);
                    p[pair(h, t, u)] = e * m;
                    ds[pair(h, t, u)] = e * fma(m, dp, -delta[row]) * scale;
                }
                for (int i = 0; i < HS; i++) {
                    const auto k = [&](int u) { return get(qkv[heads.at(b, u, kK, h) + i]); };
                    const auto ds_t = [&](int u) { return ds[pair(h, t, u)]; };
                    put(dqkv[heads.at(b, t, kQ, h) + i], add_products(0, first, t + 1, k, ds_t));
                }
            }
            // The group's heads one after the other
            for (int u = 0; u < T && h % share == share - 1; u++)
                for (int i = 0; i < HS; i++) {
                    real dk = 0, dv = 0;
                    for (int j = h - share + 1; j <= h; j++) {
                        const auto q = [&](int t) { return get(qkv[heads.at(b, t, kQ, j) + i]); };
                        const auto dout_i = [&](int t) {
                            return get(dout[heads.out(b, t, j) + i]);
                        };
                        const auto ds_u = [&](int t) { return ds[pair(j, t, u)]; };
                        const auto p_u = [&](int t) { return p[pair(j, t, u)]; };
                        dk = add_products(dk, u, T, ds_u, q);
                        dv = add_products(dv, u, T, p_u, dout_i);
                    }
                    put(dqkv[heads.at(b, u, kK, h) + i], dk);
                    put(dqkv[heads.at(b, u, kV, h) + i], dv);
                }
        }
}

// ------------------------ the update, over the arena
//
// These operations round in one order on every device, the one that kernels.h gives. So `ref64`
// computes them in float and in that order, too.

// Float addition is not associative: the order decides the bits. The
// sums of 4, 2, 1 and 1 replicas that one rank holds, added by kNested,
// go through the same additions as 8 replicas on 8 ranks by kBalanced.
static float sum_terms(const float* const* terms, int count, Tree tree, size_t i) {
    if (count == 1) return terms[0][i];
    const int first = tree == Tree::kBalanced ? count / 2 : 1;
    return sum_terms(terms, first, tree, i) + sum_terms(terms + first, count - first, tree, i);
}

void tree_reduce(float* out, float* partials, const float* const* terms, int count, Tree tree,
                 size_t n, Stream) {
    const bool fits = tree == Tree::kNested || (count & (count - 1)) == 0;
    CHECK(count > 0 && fits && n % kUnit == 0, "tree_reduce: %d terms of %zu elements", count, n);
    for (size_t i = 0; i < n; i++) out[i] = sum_terms(terms, count, tree, i);
    for (size_t k = 0; partials && k < n / kUnit; k++) {
        float sums[16] = {};
        for (size_t i = 0; i < kUnit; i++) sums[i % 16] += out[k * kUnit + i] * out[k * kUnit + i];
        partials[k] = sums[0];
        for (int j = 1; j < 16; j++) partials[k] += sums[j];
    }
}

// A gradient longer than `clip` is scaled down to it: its direction is kept, and one wild batch
// cannot throw the weights far. There are many partials, and they are floats: their sum is in
// double, so that its order matters little, and the order is fixed.
void clip_scale(StepState* state, double* norm, const float* partials, size_t units, double clip,
                Stream) {
    const double tokens = state->tokens;
    double sum;
    sum_in_order(&sum, partials, units, nullptr);
    norm[0] = std::sqrt(sum) / tokens;
    const double factor = clip > 0 ? std::fmin(1, clip / (norm[0] + 1e-6)) : 1;
    state->grad_scale = std::isfinite(norm[0]) ? float(factor / tokens) : NAN;
}

template <class Rule, int STAGE>
static void update_loop(const Update& arrays) {
    if constexpr (STAGE < int(std::size(Rule::kState))) {
        const auto& [n, param, master, state, grad, rates, step] = arrays;
        constexpr int kArrays = Rule::kState[STAGE];
        for (size_t i = 0; i < n; i++) {
            float own[kArrays + 1];
            for (int k = 0; k < kArrays; k++) own[k] = state[k][i];
            Rule::element(STAGE, master[i], own, grad[i], rates[i / kUnit], *step);
            for (int k = 0; k < kArrays; k++) state[k][i] = own[k];
            put(param[i], master[i]);    // with floatX = float they may be the same memory
        }
    }
}

void update(int optimizer, int stage, const Update& arrays, Stream) {
#define X(name) OPTIMIZER_STAGES(update_loop, name),
    static constexpr decltype(&update_loop<adamw_rule, 0>) kLoops[][kMaxStages] = {OPTIMIZERS(X)};
#undef X
    CHECK(arrays.n % kUnit == 0, "update: %zu elements", arrays.n);
    if (std::isfinite(arrays.step->grad_scale)) kLoops[optimizer][stage](arrays);
}

uint64_t hash_floats(const float* x, size_t n, Stream) {
    uint64_t hash = n;
    for (size_t begin = 0; begin < n; begin += kUnit) {
        uint64_t unit = 0;
        for (size_t i = 0; i < kUnit && begin + i < n; i++)
            unit += mix64(uint64_t(i + 1) << 32 | std::bit_cast<uint32_t>(x[begin + i]));
        hash = mix64(hash ^ unit);
    }
    return hash;
}

}  // namespace BACKEND
