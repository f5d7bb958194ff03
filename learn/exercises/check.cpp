// check.cpp -- says whether an exercise is solved. `learn/check NAME` compiles it with the exercise's file and runs it.
//
// Solve the exercises before you read on: to know what is right, this file has every one of them in plain loops.
//
// Each check calls your functions with inputs of several sizes and magnitudes, again and again, and compares with loops
// of its own. Outputs are full of NaN before the call. Around each array stand numbers that may be neither read nor
// written, and inputs must stay as they are. Exit codes: 0 RIGHT; 1 RIGHT IN ANOTHER ORDER OR PRECISION, all numbers as
// near as sums in another order can be; 2 WRONG; 3 not written yet.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <tuple>
#include "exercises.h"
using std::string, std::vector, std::to_string;
using Floats = vector<float>;

static bool said = false;                               // the verdict
[[noreturn]] static void end(const string& verdict, int code) {
    said = true;
    puts(verdict.c_str());
    exit(code);
}
[[noreturn]] static void wrong(const string& why) { end("WRONG: " + why, 2); }
[[noreturn]] void not_written() { end("not written yet", 3); }

// printf into a string.
[[gnu::format(printf, 1, 2)]] static string text(const char* format, ...) {
    char to[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(to, sizeof to, format, arguments);
    return to;
}

static string counted(size_t n, const char* what) { return to_string(n) + " " + what + (n == 1 ? "" : "s"); }

static string other_order;                              // the first difference that another order explains
static size_t compared = 0;                             // numbers, by compare

// A number as it is computed in the order asked for, and how large it would be if all terms of all sums had one sign.
struct Sized {
    float x;
    double size;
    Sized(float x = 0) : x(x), size(std::fabs(x)) {}
    Sized(float x, double size) : x(x), size(size) {}
};
using SizedFloats = vector<Sized>;
static Sized operator+(Sized a, Sized b) { return {a.x + b.x, a.size + b.size}; }
static Sized operator-(Sized a, Sized b) { return {a.x - b.x, a.size + b.size}; }
static Sized operator*(Sized a, Sized b) { return {a.x * b.x, a.size * b.size}; }
static Sized operator/(Sized a, Sized b) { return {a.x / b.x, a.size * b.size / b.x / b.x}; }
static Sized exp(Sized a) { return {std::exp(a.x), double(std::exp(a.x)) * (1 + a.size)}; }
static Sized log(Sized a) { return {std::log(a.x), std::fabs(double(std::log(a.x))) + a.size / a.x}; }

// Numbers in -factor .. factor, always the same.
static Floats numbers(int n, uint32_t seed, float factor = 1) {
    Floats x(n);
    for (float& value : x) {
        seed = seed * 1664525 + 1013904223;
        value = float(int32_t(seed)) / 2147483648.0f * factor;
    }
    return x;
}
static uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
static Floats nans(size_t n) { return Floats(n, NAN); }
static void expect_unchanged(const Floats& x, const Floats& before) {
    const auto same = [](float a, float b) { return bits(a) == bits(b); };
    if (!std::equal(x.begin(), x.end(), before.begin(), same)) wrong("an input is changed");
}

// An array that is given to an exercise: its numbers, and before and behind them NaNs of a kind of its own.
class Guarded {
    static constexpr size_t kGuards = 16;
    static inline uint32_t kinds = 0x7fc00000;
    uint32_t kind = ++kinds;
    Floats all;
public:
    explicit Guarded(const Floats& x) : all(x.size() + 2 * kGuards, std::bit_cast<float>(kind)) {
        std::copy(x.begin(), x.end(), at());
    }
    float* at() { return all.data() + kGuards; }
    Floats values(const string& what) const {
        for (size_t i = 0; i < kGuards; i++)
            for (const float guard : {all[i], all[all.size() - 1 - i]})
                if (bits(guard) != kind) wrong(what + ": writes outside of the array");
        return {all.begin() + kGuards, all.end() - kGuards};
    }
};

// One that an exercise only reads.
struct Input : Guarded {
    const Floats before;
    explicit Input(const Floats& x) : Guarded(x), before(x) {}
    ~Input() { expect_unchanged(values("an input"), before); }
};

// Returns what a wrong number x has to do with the one wanted, y, if that can be seen.
static string usual_mistake(double x, double y) {
    const double ratio = x / y;
    const auto near_integer = [](double r) { return r > 1.5 && r < 1e6 && std::fabs(r - std::round(r)) < 1e-6 * r; };
    if (std::isnan(x)) return ": never written, or computed from no number";
    if (std::isinf(x)) return ": a number on the way is too large for a float, or something is divided by 0";
    if (x == 0) return ": still 0, or left out";
    if (std::fabs(x + y) < 1e-6 * std::fabs(y)) return ": the sign is turned";
    if (near_integer(ratio)) return ": " + to_string(std::lround(ratio)) + " times too large";
    if (near_integer(1 / ratio)) return ": " + to_string(std::lround(1 / ratio)) + " times too small";
    return "";
}

// Compares a result with the one wanted. terms: how many roundings each number may have seen, each of them off by at
// most 2^-24 of its size. Their signs differ, so that n of them are about as large as sqrt(n).
static void compare(const string& what, const Floats& got, const SizedFloats& want, int terms) {
    compared += want.size();
    for (size_t i = 0; i < want.size(); i++) {
        const float x = got[i], y = want[i].x;
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;               // 0 and -0, too
        if (!(std::fabs(x - y) <= (std::sqrt(terms) + 4) * (want[i].size * 0x1p-23 + 0x1p-149)))
            wrong(what + text(": number %zu is %.9g, want %.9g", i, x, y) + usual_mistake(x, y));
        if (!other_order.empty()) continue;
        other_order = what + text(": number %zu is %.9g, in the order asked for it is %.9g", i, x, y);
    }
}
static void compare(const string& what, const Guarded& got, const SizedFloats& want, int terms) {
    compare(what, got.values(what), want, terms);
}

static void check_dot() {
    for (const int n : {8, 0, 1, 7, 9, 64, 70000, 1001, 15})
        for (const float factor : {1.0f, 1e-18f, 1e15f}) {
            Floats a = numbers(n, 1, factor), b = numbers(n, 2, 500);
            if (n == 15) a[2] = 0, a[14] = NAN;
            Sized p[8];
            for (size_t i = 0; i < a.size(); i++)
                p[i % 8] = {std::fma(a[i], b[i], p[i % 8].x), (p[i % 8] + Sized(a[i]) * b[i]).size};
            const Sized want = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
            const Floats got = {dot(Input(a).at(), Input(b).at(), n)};
            compare(text("n = %d, a up to %g", n, factor), got, {want}, n);
        }
}

// One case of layernorm_backward. dweight and dbias hold NaN at first.
static void check_rows(int N, int C, float factor, float offset) {
    const size_t n = N, c = C;
    const Floats dout = numbers(N * C, 1, factor), weight = numbers(C, 3, 100);
    Floats x = numbers(N * C, 2), mean(n), scale(n);
    SizedFloats dx, dweight(c), dbias(c);
    for (float& value : x) value += offset;
    for (size_t i = 0; i < n; i++) {
        double sum = 0, squares = 0;
        for (size_t j = 0; j < c; j++) sum += double(x[i * c + j]);
        for (size_t j = 0; j < c; j++) squares += std::pow(double(x[i * c + j]) - sum / C, 2);
        mean[i] = float(sum / C) + 0.125f;                              // not the row's: it has to be read
        scale[i] = float(1 / std::sqrt(squares / C + 1e-3));            // not 1e-5: this, too
        const auto norm = [&](size_t j) { return (Sized(x[i * c + j]) - mean[i]) * scale[i]; };
        Sized a, b;
        for (size_t j = 0; j < c; j++) {
            const Sized g = dout[i * c + j];
            dbias[j] = dbias[j] + g;
            dweight[j] = dweight[j] + g * norm(j);
            a = a + g * weight[j];
            b = b + g * weight[j] * norm(j);
        }
        a = a / float(C);
        b = b / float(C);
        for (size_t j = 0; j < c; j++)
            dx.push_back((Sized(dout[i * c + j]) * weight[j] - a - norm(j) * b) * scale[i]);
    }
    Guarded got_dx(nans(n * c)), got_dweight(nans(c)), got_dbias(nans(c));
    layernorm_backward(got_dx.at(), got_dweight.at(), got_dbias.at(), Input(dout).at(), Input(x).at(),
                       Input(weight).at(), Input(mean).at(), Input(scale).at(), N, C);
    const string size = text("N = %d, C = %d", N, C);
    compare(size + ": dbias", got_dbias, dbias, N);
    compare(size + ": dweight", got_dweight, dweight, N);
    compare(size + ": dx", got_dx, dx, C);
}

static void check_layernorm_backward() {
    for (const auto& [N, C] : {std::pair(3, 5), {1, 1}, {1, 7}, {40, 96}, {300, 3}, {2, 1500}, {0, 4}})
        for (const float factor : {1.0f, 1e-20f, 1e10f}) check_rows(N, C, factor, factor == 1 ? 0.0f : 5.0f);
}

static void check_relu2() {
    for (const int n : {5, 0, 1, 1000, 3})
        for (const float factor : {1.0f, 1e-15f, 1e15f}) {
            const Floats x = numbers(n, 1, factor), dout = numbers(n, 2, factor);
            SizedFloats want, dwant;
            for (size_t i = 0; i < x.size(); i++) {
                want.push_back(dout[i] > 0 ? dout[i] * dout[i] : 0);            // another x than backward's
                dwant.push_back(x[i] > 0 ? dout[i] * (2 * x[i]) : 0);
            }
            const string size = text(", n = %d, x up to %g", n, factor);
            Guarded out(nans(n)), dx(nans(n)), gradient(dout);
            Input inputs(x);
            relu2_forward(out.at(), Input(dout).at(), n);
            compare("forward" + size, out, want, 0);
            relu2_backward(dx.at(), Input(dout).at(), inputs.at(), n);
            compare("backward" + size, dx, dwant, 0);
            relu2_backward(gradient.at(), gradient.at(), inputs.at(), n);
            compare("backward, dx is dout" + size, gradient, dwant, 0);
        }
}

static void check_softmax_loss() {
    for (const auto& [N, V, factor, offset] : {std::tuple(2, 4, 1, 0), {1, 1, 1, 0}, {5, 300, 5, 0}, {3, 33, 1000, 0},
             {4, 3, 30, -20000000}, {4, 3, 1, 1000}, {0, 3, 1, 0}, {200, 7, 30, 0}, {1, 5000, 10, -50}, {2, 3, 0, 0}}) {
        Floats logits = numbers(N * V, 1, float(factor));
        for (float& x : logits) x += float(offset);
        if (N > 1) logits[V - 1] = logits[N == 2 ? V : 0] = 1000;       // the largest is the last, or the first
        SizedFloats want, dwant;
        vector<int> targets;
        for (int n = 0; n < N; n++) {
            const int target = (n * 17 + V - 1) % V;
            targets.push_back(target);
            const float* const row = logits.data() + n * V;
            const float most = *std::max_element(row, row + V);
            Sized sum;
            for (int v = 0; v < V; v++) sum = sum + exp(Sized(row[v] - most));
            want.push_back(log(sum) - Sized(row[target] - most));
            for (int v = 0; v < V; v++) dwant.push_back(exp(Sized(row[v] - most)) / sum - float(v == target));
        }
        for (const bool in_place : {false, true}) {
            Guarded losses(nans(N)), result(in_place ? logits : nans(logits.size()));
            Input inputs(logits);
            softmax_loss(losses.at(), result.at(), in_place ? result.at() : inputs.at(), targets.data(), N, V);
            const string what = text("N = %d, V = %d, logits of %d +- %d%s", N, V, offset, factor,
                                     in_place ? ", dlogits is logits" : "");
            compare(what + ": losses", losses, want, V);
            compare(what + ": dlogits", result, dwant, V);
        }
    }
}

static void check_warmup() {
    for (const auto& [steps, warmup, frac, peak] : {std::tuple(10, 3, 0.1, 0.02), {100, 0, 0.0, 1.0}, {7, 7, 0.5, 0.02},
             {480, 48, 0.05, 3e-5}, {1, 0, 0.3, 2.0}, {1, 1, 0.3, 2.0}, {9, 1, 1.0, 0.1}, {100000, 2000, 0.1, 6e-4}}) {
        learning_rate(steps - 1, steps, warmup, peak, frac);            // who counts the calls is wrong
        for (int step = 0; step < steps; step++) {
            const double u = warmup < steps ? double(step + 1 - warmup) / double(steps - warmup) : 0;
            const double want = step < warmup ? peak * (step + 1) / warmup
                                              : peak * (frac + (1 - frac) * 0.5 * (1 + std::cos(M_PI * u)));
            const double got = learning_rate(step, steps, warmup, peak, frac);
            if (!(std::fabs(got - want) <= 1e-12 * peak))
                wrong(text("step %d of %d, warm-up of %d, peak %g: %.12g, want %.12g", step, steps, warmup, peak, got,
                           want));
        }
    }
}

// Three steps of Lion, each with another gradient.
static void check_lion() {
    for (const int n : {100, 0, 1, 1500})
        for (const auto& [lr, beta1, beta2, decay, factor] : {std::tuple(0.01f, 0.9f, 0.99f, 0.1f, 1.0f),
                 {1e-4f, 0.95f, 0.98f, 1, 1e-30f}, {0.1f, 0.5f, 0.25f, 0, 1e10f}}) {
            const Floats first = numbers(n, 1, 100);
            Floats first_m = numbers(n, 2, factor);
            if (n > 9) first_m[3] = 0, first_m[5] = first_m[7] = factor, first_m[9] = 0.370000005f * factor;
            Guarded w(first), m(first_m);
            SizedFloats want(first.begin(), first.end()), want_m(first_m.begin(), first_m.end());
            for (uint32_t step = 1; step <= 3; step++) {
                Floats grad = numbers(n, 2 + step, factor);
                // sign(0) for a gradient of 0 and for others; u and the new m differ in sign; u is 0 in float alone.
                if (n > 9) grad[3] = 0, grad[5] = -8.5f * factor, grad[7] = -factor, grad[9] = -3.32999921f * factor;
                for (size_t i = 0; i < grad.size(); i++) {
                    const float u = beta1 * want_m[i].x + (1 - beta1) * grad[i];
                    want[i] = want[i] - lr * (float((u > 0) - (u < 0)) + decay * want[i]);
                    want_m[i] = beta2 * want_m[i] + Sized((1 - beta2) * grad[i], std::fabs(grad[i]));
                }
                lion(w.at(), m.at(), Input(grad).at(), n, lr, beta1, beta2, decay);
                const string what = text("n = %d, lr %g, step %u", n, lr, step);
                compare(what + ": w", w, want, step);
                compare(what + ": m", m, want_m, step);
            }
        }
}

static void check_clip() {
    for (const int n : {4097, 1, 0, 4096, 20000, 4095, 9, 42, 65, 95})
        for (const auto& [limit, factor] : {std::pair(1.0f, 1.0f), {0.25f, 1}, {1e6f, 1}, {1e-20f, 1e-15f}, {1, 0},
             {1, 1e15f}, {1, 1e25f}}) {
            const Floats g = numbers(n, 1, factor);
            double all = 0;
            for (size_t begin = 0; begin < g.size(); begin += 4096) {
                float sum = 0;
                for (size_t i = begin; i < std::min(begin + 4096, g.size()); i++) sum = sum + g[i] * g[i];
                all += sum;
            }
            const float want = std::sqrt(all) > limit ? float(limit / std::sqrt(all)) : 1.0f;
            const string what = text("n = %d, numbers up to %g, limit %g", n, factor, limit);
            compare(what, Floats{clip_factor(Input(g).at(), n, limit)}, {want}, std::min(n, 4096));
            for (const int at : {0, n / 2, n - 1})
                for (const float bad : {NAN, INFINITY, -INFINITY}) {
                    if (n == 0) continue;
                    Guarded spoiled(g);
                    spoiled.at()[at] = bad;
                    const float factor_of_bad = clip_factor(spoiled.at(), n, limit);
                    if (factor_of_bad != 0)
                        wrong(what + text(", number %d is %f: %.9g, want 0", at, bad, factor_of_bad));
                }
        }
}

static string listed(const auto& numbers) {
    string text;
    for (const auto n : numbers)
        if (text.size() < 60) text += (text.empty() ? "{" : ", ") + (text.size() > 50 ? "..." : to_string(n));
    return text.empty() ? "{}" : text + "}";
}

static void check_buckets() {
    struct Case { vector<size_t> bytes; size_t first, others; };
    vector<Case> cases = {{{1, 1, 5, 1, 1}, 2, 4}, {{1, 5, 1}, 0, 4}, {{1, 0, 0, 1, 5, 0}, 2, 4}, {{0, 5}, 2, 4},
                          {{0}, 2, 4}, {{3, 0}, 0, 4},
                          {vector<size_t>(70, (3ull << 31) - 1), 3ull << 31, 1ull << 32}, {{}, 1, 1}};
    const Floats random = numbers(4000, 1, 1000);
    for (size_t i = 0; i + 40 < random.size(); i += 40) {
        const auto number = [&](size_t j) { return size_t(std::fabs(random[i + j])); };
        Case c = {{}, number(0), number(1)};
        for (size_t j = 2; j < 2 + number(2) % 38; j++) c.bytes.push_back(number(j) + 1);
        cases.push_back(c);
    }
    for (const Case& c : cases) {
        vector<int> want;
        size_t sum = 0;
        bool full = true;                               // the next tensor begins a bucket
        for (size_t i = c.bytes.size(); i-- > 0;) {
            if (full) want.push_back(int(i));
            want.back() = int(i);
            sum += c.bytes[i];
            full = sum >= (want.size() == 1 ? c.first : c.others);
            if (full) sum = 0;
        }
        const vector<int> got = buckets(c.bytes, c.first, c.others);
        if (got == want) continue;
        wrong(text("bytes %s, first %zu, others %zu: %s, want %s", listed(c.bytes).c_str(), c.first, c.others,
                   listed(got).c_str(), listed(want).c_str()));
    }
}

static Sized tree_of(const vector<Floats>& x, size_t begin, size_t end, size_t i) {
    if (end - begin == 1) return x[begin][i];
    return tree_of(x, begin, (begin + end) / 2, i) + tree_of(x, (begin + end) / 2, end, i);
}

// Lets `make` turn each rank's own arrays into one of n numbers, the last rank first, and returns what they make. A
// rank's arrays are gone after its call, and NaNs are the next ones: who keeps some for the other ranks has those.
// `count` is given to make: the number of ranks, or of gradients.
using Make = void (*)(float* made, const vector<const float*>& own, int n, int count);
static vector<Floats> parts_of(const vector<Floats>& all, size_t ranks, Make make, int count) {
    const size_t own = all.size() / ranks;
    vector<Floats> parts(ranks);
    for (size_t r = ranks; r-- > 0;) {
        vector<Guarded> copies(all.begin() + long(r * own), all.begin() + long((r + 1) * own));
        vector<const float*> pointers;
        for (Guarded& copy : copies) pointers.push_back(copy.at());
        Guarded part(nans(all[0].size()));
        make(part.at(), pointers, int(all[0].size()), count);
        parts[r] = part.values("the result");
        for (size_t i = 0; i < own; i++) {
            expect_unchanged(copies[i].values("an input"), all[r * own + i]);
            std::fill_n(copies[i].at(), all[0].size(), NAN);
        }
        make(part.at(), pointers, int(all[0].size()), count);
    }
    return parts;
}

// Lets 1 to 128 gradients be added on as many ranks as can share them: each rank makes a part, and then all parts make
// the result. It has to be the tree's, divided by `count` if it is the mean, with the same bits on any number of ranks.
static void check_ranks(bool is_mean, Make part, Make whole) {
    for (const int count : {2, 1, 4, 8, 16, 32, 128})
        for (const int n : {1100, 1, 0}) {
            vector<Floats> all;
            for (int r = 0; r < count; r++) all.push_back(numbers(n, uint32_t(r + 1), r % 3 == 1 ? 1000.0f : 1.0f));
            if (count == 8 && n > 5) all[5][5] = NAN;           // the sum says that something went wrong
            SizedFloats want;
            for (int i = 0; i < n; i++)
                want.push_back(tree_of(all, 0, all.size(), i) / float(is_mean ? count : 1));
            Floats one_rank;
            for (int ranks = 1; ranks <= count; ranks *= 2) {
                const vector<Floats> parts = parts_of(all, ranks, part, ranks);
                parts_of(vector(2, numbers(n, 99)), 1, part, 1);            // of another job, which changes nothing
                const Floats got = parts_of(parts, 1, whole, count)[0];
                compare(counted(count, "gradient") + " on " + counted(ranks, "rank"), got, want, count);
                if (ranks == 1) one_rank = got;
                for (size_t i = 0; i < got.size(); i++)
                    if (bits(got[i]) != bits(one_rank[i]) && !std::isnan(got[i]))
                        wrong(text("%d gradients: number %zu is %.9g with 1 rank, %.9g with %d: near, but not the same",
                                   count, i, one_rank[i], got[i], ranks));
            }
        }
}

// The parts of a tree are trees, too.
static void tree_of_part(float* sum, const vector<const float*>& own, int n, int) { tree_sum(sum, own, n); }
static void check_tree() { check_ranks(false, tree_of_part, tree_of_part); }
static void check_same_bits() { check_ranks(true, part_of_rank, mean_of_parts); }

static void check_deal() {
    for (const int replicas : {8, 4, 1, 2, 16})
        for (int ranks = 1; ranks <= replicas; ranks *= 2)
            for (const int batch : {3, 1, 5})
                for (const int step : {0, 1, 2, 70000, 1000000})
                    for (int rank = 0; rank < ranks; rank++) {
                        vector<int> want(size_t(replicas / ranks * batch));
                        int next = step * replicas * batch + rank * int(want.size());
                        for (int& number : want) number = next++;
                        const vector<int> got = samples_of(step, rank, ranks, replicas, batch);
                        if (got == want) continue;
                        wrong(text("step %d, rank %d of %d, %d replicas, batch %d: %s, want %s", step, rank, ranks,
                                   replicas, batch, listed(got).c_str(), listed(want).c_str()));
                    }
}

// One case of attention. kind 1 has large scores of both signs, kind 2 large negative ones. Behind the documents'
// numbers stands the last one again, which does not count.
static void check_row(vector<int> documents, size_t D, int kind) {
    const size_t T = documents.size();
    const string shown = listed(documents);
    documents.push_back(documents.back());
    const auto numbers_of = [&](uint32_t seed, float factor) { return numbers(int(T * D), seed, factor); };
    Floats q = numbers_of(1, kind == 1 ? 500.0f : 1), k = numbers_of(2, 1), v = numbers_of(3, kind == 1 ? 1e20f : 1);
    for (float& x : q) x += kind == 2 ? 200.0f : 0;
    for (float& x : k) x -= kind == 2 ? 200.0f : 0;
    SizedFloats want;
    for (size_t t = 0; t < T; t++) {
        SizedFloats e(T);
        float most = -INFINITY;
        Sized total;
        for (size_t s = 0; s <= t; s++) {
            for (size_t d = 0; d < D; d++) e[s] = e[s] + Sized(q[t * D + d]) * k[s * D + d];
            e[s] = e[s] * (1 / std::sqrt(float(D)));
            if (documents[s] == documents[t]) most = std::max(most, e[s].x);
        }
        for (size_t s = 0; s <= t; s++) {
            e[s] = documents[s] == documents[t] ? exp(e[s] - most) : Sized(0);
            total = total + e[s];
        }
        total.size = total.x;                   // an error in a score is in the sum below, too
        for (size_t d = 0; d < D; d++) {
            Sized sum;
            for (size_t s = 0; s <= t; s++) sum = sum + e[s] * v[s * D + d];
            want.push_back(sum / total);
        }
    }
    Guarded out(nans(T * D));
    attend(out.at(), Input(q).at(), Input(k).at(), Input(v).at(), documents.data(), T, D);
    const char* const kinds[] = {"", ", scores of +- 100 and more", ", scores of -40000 and less"};
    compare(text("T = %zu, D = %zu, documents %s%s", T, D, shown.c_str(), kinds[kind]), out, want, T + D);
}

static void check_mask() {
    vector<int> many, two(1100, 300);
    std::fill_n(two.begin(), 550, 1);
    for (int t = 0; t < 70; t++) many.push_back(t / 3 * 5 - 40 + (t > 30 ? 7 : 0));
    const vector<int> rows[] = {{0, 0, 1, 1, 1}, {0}, {0, 0, 0, 0}, {2, 258, 65794}, {0, 0, 0, 5, 5, 7, 7, 7, 7}, many,
                                two};
    for (const vector<int>& documents : rows)
        for (const size_t D : {4, 1, 33})
            for (const int kind : {0, 1, 2}) check_row(documents, D, kind);
}

void Trainer::train() {
    step++;
    const size_t own = size_t(4 / ranks);
    for (size_t i = 0; i < 4; i++) {
        random = random * 1664525 + 1013904223;
        const float grad = random >> 31 ? 2 * w[i] - float(step % 3) : 0;
        float &mi = m[i / own][i % own], &vi = v[i / own][i % own];
        mi = 0.9f * mi + 0.1f * grad;
        vi = 0.95f * vi + 0.05f * grad * grad;
        w[i] -= 0.01f * mi / float(1 - std::pow(0.9, step)) / (std::sqrt(vi / float(1 - std::pow(0.95, step))) + 1e-8f);
    }
}

// Trains 20 steps, and is stopped after each of them; what goes on has the same number of ranks, or another. Beside it
// another trainer is saved and loaded, two steps behind.
static void check_resume() {
    constexpr int kSteps = 20;
    const auto begun = [](int ranks) {                  // with weights and a generator of its own
        Trainer trainer(ranks);
        trainer.w[0] = 3;
        trainer.random = 9;
        return trainer;
    };
    Trainer whole = begun(1);
    for (int i = 0; i < kSteps; i++) whole.train();
    for (const auto& [before, after] : {std::pair(1, 1), {2, 2}, {4, 4}, {1, 4}, {4, 1}, {2, 4}, {4, 2}, {2, 1}})
        for (int stop = 0; stop <= kSteps; stop++) {
            const int early = std::max(stop - 2, 0);
            Trainer first = begun(before), behind = begun(4);
            for (int i = 0; i < stop; i++) first.train();
            for (int i = 0; i < early; i++) behind.train();
            const Floats saved = save(first), saved_behind = save(behind);
            Trainer second = load(save(load(saved, before)), after), other = load(saved_behind, 2);
            if (second.ranks != after) wrong(text("load gives ranks = %d, want %d", second.ranks, after));
            for (int i = stop; i < kSteps; i++) second.train();
            for (int i = early; i < kSteps; i++) other.train();
            for (int i = 0; i < 4; i++)
                for (const auto& [trainer, ranks, step] : {std::tuple(&second, before, stop), {&other, 4, early}})
                    if (trainer->w[i] != whole.w[i])
                        wrong(text("%s stopped after step %d, %d went on: weight %d is %.9g at the end, want %.9g",
                                   counted(ranks, "rank").c_str(), step, trainer->ranks, i, trainer->w[i], whole.w[i]));
        }
    // Weights, averages and the step are 13; `random` may be computed from the step.
    if (const size_t n = save(whole).size(); n < 13) wrong("saved: " + to_string(n) + " of the trainer's 14 numbers");
}

// Which operation must come before which: a set of pairs, with all that follows from it.
using Order = std::set<std::pair<string, string>>;
static const vector<vector<string>> streams = {
    {"backward2", "backward1", "backward0", "update", "forward0", "forward1", "forward2"},
    {"reduce2", "reduce1", "reduce0", "gather0", "gather1", "gather2"}};

static Order with_streams(Order order) {
    vector<string> all;
    for (const auto& stream : streams) {
        for (size_t i = 1; i < stream.size(); i++) order.insert({stream[i - 1], stream[i]});
        all.insert(all.end(), stream.begin(), stream.end());
    }
    for (const string& b : all)
        for (const string& a : all)
            for (const string& c : all)
                if (order.contains({a, b}) && order.contains({b, c})) order.insert({a, c});
    return order;
}

// What each operation needs, in the order of a step: first the one that has to be complete.
static const vector<std::pair<string, string>> needed = {
    {"backward2", "reduce2"}, {"backward1", "reduce1"}, {"backward0", "reduce0"}, {"reduce2", "update"},
    {"reduce1", "update"}, {"reduce0", "update"}, {"update", "gather0"}, {"update", "gather1"}, {"update", "gather2"},
    {"gather0", "forward0"}, {"gather1", "forward1"}, {"gather2", "forward2"}};

// Returns what has run of each stream when `name` may begin: "compute: backward2; comm: nothing".
static string run_before(const string& name, const Order& given) {
    string text;
    for (const auto& stream : streams) {
        string ran;
        for (const string& other : stream)
            if (given.contains({other, name})) ran += " " + other;
        text += (text.empty() ? "compute:" : "; comm:") + (ran.empty() ? " nothing" : ran);
    }
    return text;
}

static void check_race() {
    const Order needs = with_streams({needed.begin(), needed.end()});
    Order given;
    const string begin = streams[0][0];                 // everything is behind it
    for (const Wait& wait : waits()) {
        for (const char* name : {wait.operation, wait.waits_for})
            if (name != begin && !needs.contains({begin, name})) wrong(name + string(": there is no such operation"));
        given.insert({wait.waits_for, wait.operation});
    }
    given = with_streams(given);
    for (const auto& stream : streams)
        for (const string& name : stream)
            if (given.contains({name, name})) wrong(name + " waits for itself, through others: the step never ends");
    for (const auto& [before, name] : needed)
        if (!given.contains({before, name}))
            wrong(name + " may begin when these have run: " + run_before(name, given) +
                  ". It reads what is not there yet");
    for (const Wait& wait : waits())
        if (!needs.contains({wait.waits_for, wait.operation}))
            wrong(text("nothing begins too early, but %s waits for %s without a reason", wait.operation,
                       wait.waits_for));
}

// An exercise, its check, what that compares, whether bits are asked for, and the functions; null where one is missing.
struct Exercise { const char* name; void (*check)(); const char* compared; bool bits; vector<const void*> functions; };
template <class F> static const void* at(F* function) { return reinterpret_cast<const void*>(function); }
static const Exercise exercises[] = {
    {"dot", check_dot, "sums of 0 to 70,000 products, of 1e-16 to 1e17, and with a NaN", true, {at(dot)}},
    {"relu2", check_relu2, "0 to 1,000 numbers up to 1e-15, 1 and 1e15, dx and dout apart and the same", true,
     {at(relu2_forward), at(relu2_backward)}},
    {"softmax_loss", check_softmax_loss, "0 to 200 rows of 1 to 5,000 logits, from -2e7 to 1001, also in place",
     true, {at(softmax_loss)}},
    {"layernorm_backward", check_layernorm_backward, "0 to 300 rows of 1 to 1,500 channels, gradients of 1e-20 to 1e10",
     true, {at(layernorm_backward)}},
    {"mask", check_mask, "1 to 1,100 positions of 1 to 25 documents, scores small, +- 100 and -230,000",
     true, {at(attend)}},
    {"warmup", check_warmup, "all steps of eight schedules, of 1 to 100,000 steps, to 1e-12 of the peak", false,
     {at(learning_rate)}},
    {"lion", check_lion, "three steps of 0 to 1,500 weights, gradients of 1e-30 to 1e10", true, {at(lion)}},
    {"clip", check_clip, "0 to 20,000 numbers up to 0, 1e-15, 1, 1e15, 1e25, and with NaN and infinities among them",
     true, {at(clip_factor)}},
    {"tree", check_tree, "1 to 128 replicas, on each number of ranks that can share them", true, {at(tree_sum)}},
    {"same_bits", check_same_bits, "1 to 128 gradients, on each number of ranks that can share them", true,
     {at(part_of_rank), at(mean_of_parts)}},
    {"deal", check_deal, "1 to 16 replicas on each number of ranks, batches of 1 to 5, five steps", false,
     {at(samples_of)}},
    {"buckets", check_buckets, "106 lists of 0 to 70 tensors, some of 6 GB", false, {at(buckets)}},
    {"race", check_race, "no operation begins too early, and no wait is without a reason", false, {at(waits)}},
    {"resume", check_resume, "the weights after 20 steps, stopped after each of them, with 1, 2 and 4 ranks before and "
     "after", false, {at(save), at(load)}},
};

int main(int, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    std::atexit([] {
        if (said) return;
        puts("WRONG: it ends the program");
        _Exit(2);
    });
    for (const Exercise& exercise : exercises) {
        if (argv[1] != string(exercise.name)) continue;
        for (const void* function : exercise.functions)
            if (!function) end("a function of exercises.h is not defined in this file, or has other parameters", 4);
        exercise.check();
        if (!exercise.bits) end(string("RIGHT: ") + exercise.compared, 0);
        if (!other_order.empty())
            end("RIGHT IN ANOTHER ORDER OR PRECISION: " + other_order + ". Compared: " + exercise.compared, 1);
        end("RIGHT: all bits of " + to_string(compared) + " numbers: " + exercise.compared, 0);
    }
    end("there is no such exercise", 4);
}
