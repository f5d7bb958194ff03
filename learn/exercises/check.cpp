// check.cpp -- says whether an exercise is solved. `learn/check NAME` compiles it with the exercise's file and runs it.
//
// Each check calls your function with inputs of several sizes, and with outputs full of NaN, and compares with its own
// loops. Exit codes: 0 RIGHT, all bits; 1 RIGHT IN ANOTHER ORDER, all numbers as near as sums in another order can be;
// 2 WRONG; 3 not written yet.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include "exercises.h"
using std::string, std::vector, std::to_string;
using Floats = vector<float>;

[[noreturn]] void not_written() {
    puts("not written yet");
    exit(3);
}

static string counted(size_t n, const char* what) { return to_string(n) + " " + what + (n == 1 ? "" : "s"); }

static string other_order;                              // the first difference that another order explains

[[noreturn]] static void wrong(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("WRONG: ");
    vprintf(format, arguments);
    puts("");
    exit(2);
}

// Numbers in -1 .. 1, always the same.
static Floats numbers(int n, uint32_t seed) {
    Floats x(static_cast<size_t>(n));
    for (float& value : x) {
        seed = seed * 1664525 + 1013904223;
        value = float(int32_t(seed)) / 2147483648.0f;
    }
    return x;
}
static Floats nans(size_t n) { return Floats(n, std::numeric_limits<float>::quiet_NaN()); }

// Returns what a wrong number i has to do with the one wanted, if that can be seen.
static string usual_mistake(const Floats& got, const Floats& want, size_t i) {
    const double x = double(got[i]), y = double(want[i]), ratio = x / y;
    const auto near_integer = [](double r) { return r > 1.5 && r < 1e6 && std::fabs(r - std::round(r)) < 1e-6 * r; };
    if (std::isnan(got[i])) return ": never written, or computed from what was not";
    if (std::isinf(got[i])) return ": a number on the way is too large for a float, or something is divided by 0";
    if (got[i] == 0) return ": still 0, or left out";
    if (std::fabs(x + y) < 1e-6 * std::fabs(y)) return ": the sign is turned";
    if (near_integer(ratio)) return ": " + to_string(std::lround(ratio)) + " times too large, is a division missing?";
    if (near_integer(1 / ratio)) return ": " + to_string(std::lround(1 / ratio)) + " times too small";
    if (i > 0 && got[i] == want[i - 1]) return ": that is number " + to_string(i - 1) + ", one place off";
    if (i + 1 < want.size() && got[i] == want[i + 1]) return ": that is number " + to_string(i + 1) + ", one place off";
    return "";
}

// Compares a result with the one wanted. terms: how many numbers are added for each; size: how large their sum is when
// all have one sign. Each addition may be off by 2^-24 of it. terms 0: no sum, so all bits must agree.
static void compare(const string& what, const Floats& got, const Floats& want, int terms, double size) {
    for (size_t i = 0; i < want.size(); i++) {
        if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i])) continue;
        if (got[i] == 0 && want[i] == 0) continue;      // the sign of a zero
        const double off = std::fabs(double(got[i]) - double(want[i]));
        char text[200];
        snprintf(text, sizeof text, "%s: number %zu is %.9g (bits %08x), in the order asked for it is %.9g (bits %08x)",
                 what.c_str(), i, double(got[i]), std::bit_cast<uint32_t>(got[i]), double(want[i]),
                 std::bit_cast<uint32_t>(want[i]));
        if (terms == 0 && off <= 1e-6 * std::fabs(double(want[i])))
            wrong("%s: near; each line has to be computed as it is written", text);
        if (!(off <= (terms + 4) * size * 0x1p-23))
            wrong("%s: number %zu is %.9g, want %.9g%s", what.c_str(), i, double(got[i]), double(want[i]),
                  usual_mistake(got, want, i).c_str());
        if (other_order.empty()) other_order = text;
    }
}

static void check_dot() {
    for (const int n : {0, 1, 7, 8, 9, 64, 1001}) {
        const Floats a = numbers(n, 1), b = numbers(n, 2);
        float p[8] = {};
        for (int i = 0; i < n; i++) p[i & 7] = std::fma(a[size_t(i)], b[size_t(i)], p[i & 7]);
        double size = 0;
        for (size_t i = 0; i < a.size(); i++) size += std::fabs(double(a[i] * b[i]));
        const float want = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
        compare("n = " + to_string(n), {dot(a.data(), b.data(), n)}, {want}, n, size);
    }
}

static void check_layernorm_backward() {
    for (const auto& [N, C] : {std::pair(1, 1), {1, 7}, {3, 5}, {40, 96}}) {
        const Floats dout = numbers(N * C, 1), x = numbers(N * C, 2), weight = numbers(C, 3), mean = numbers(N, 4);
        Floats scale = numbers(N, 5);
        for (float& s : scale) s = 2 + s;
        const size_t n = size_t(N), c = size_t(C);
        Floats dx(n * c), dweight(c), dbias(c), got_dx = nans(n * c), got_dweight = nans(c), got_dbias = nans(c);
        for (size_t i = 0; i < n; i++) {
            float a = 0, b = 0;
            for (size_t j = 0; j < c; j++) {
                const float g = dout[i * c + j], norm = (x[i * c + j] - mean[i]) * scale[i];
                dbias[j] = dbias[j] + g;
                dweight[j] = dweight[j] + g * norm;
                a = a + g * weight[j];
                b = b + g * weight[j] * norm;
            }
            a = a / float(C);
            b = b / float(C);
            for (size_t j = 0; j < c; j++) {
                const float norm = (x[i * c + j] - mean[i]) * scale[i];
                dx[i * c + j] = (dout[i * c + j] * weight[j] - a - norm * b) * scale[i];
            }
        }
        layernorm_backward(got_dx.data(), got_dweight.data(), got_dbias.data(), dout.data(), x.data(), weight.data(),
                           mean.data(), scale.data(), N, C);
        const string size = "N = " + to_string(N) + ", C = " + to_string(C);
        compare(size + ": dbias", got_dbias, dbias, N, N);
        compare(size + ": dweight", got_dweight, dweight, N, 6 * N);
        compare(size + ": dx", got_dx, dx, C, 40);
    }
}

static void check_relu2() {
    for (const int n : {1, 5, 1000}) {
        const Floats x = numbers(n, 1), dout = numbers(n, 2);
        Floats out = nans(size_t(n)), dx = nans(size_t(n)), want, dwant;
        for (size_t i = 0; i < size_t(n); i++) {
            const float positive = x[i] > 0 ? x[i] : 0;
            want.push_back(positive * positive);
            dwant.push_back(dout[i] * (2 * positive));
        }
        relu2_forward(out.data(), x.data(), n);
        compare("forward", out, want, 0, 0);
        relu2_backward(dx.data(), dout.data(), x.data(), n);
        compare("backward", dx, dwant, 0, 0);
        dx = dout;
        relu2_backward(dx.data(), dx.data(), x.data(), n);
        compare("backward, dx is dout", dx, dwant, 0, 0);
    }
}

static void check_softmax_loss() {
    for (const auto& [N, V, factor] : {std::tuple(1, 1, 1.0f), {2, 4, 1.0f}, {5, 300, 5.0f}, {3, 33, 1000.0f}}) {
        Floats logits = numbers(N * V, 1), losses = nans(size_t(N)), dlogits = nans(size_t(N * V)), want, dwant;
        for (float& x : logits) x *= factor;
        vector<int> targets;
        for (int n = 0; n < N; n++) targets.push_back((n * 17 + 1) % V);
        for (int n = 0; n < N; n++) {
            const float* const row = logits.data() + n * V;
            float most = row[0], sum = 0;
            for (int v = 1; v < V; v++) most = std::max(most, row[v]);
            for (int v = 0; v < V; v++) sum = sum + std::exp(row[v] - most);
            want.push_back(std::log(sum) - (row[targets[size_t(n)]] - most));
            for (int v = 0; v < V; v++)
                dwant.push_back(std::exp(row[v] - most) / sum - float(v == targets[size_t(n)]));
        }
        softmax_loss(losses.data(), dlogits.data(), logits.data(), targets.data(), N, V);
        const string size = "V = " + to_string(V) + ", logits up to " + to_string(int(factor));
        compare(size + ": losses", losses, want, V, std::max(8.0f, 2 * factor));
        compare(size + ": dlogits", dlogits, dwant, V, 1);
    }
}

static void check_warmup() {
    for (const auto& [steps, warmup, frac] : {std::tuple(10, 3, 0.1), {100, 0, 0.0}, {7, 7, 0.5}, {480, 48, 0.05}})
        for (int step = 0; step < steps; step++) {
            const double u = warmup < steps ? double(step + 1 - warmup) / double(steps - warmup) : 0;
            const double want = step < warmup ? 0.02 * (step + 1) / warmup
                                              : 0.02 * (frac + (1 - frac) * 0.5 * (1 + std::cos(M_PI * u)));
            const double got = learning_rate(step, steps, warmup, 0.02, frac);
            if (!(std::fabs(got - want) <= 1e-12 * 0.02))
                wrong("step %d of %d, warm-up of %d: %.12g, want %.12g", step, steps, warmup, got, want);
        }
}

static void check_lion() {
    Floats w = numbers(100, 1), m = numbers(100, 2), grad = numbers(100, 3);
    m[3] = grad[3] = 0;                                 // sign(0)
    m[5] = 1, grad[5] = -8.5f;                          // the new m would have another sign here than u
    Floats want = w, want_m = m;
    for (size_t i = 0; i < w.size(); i++) {
        const float u = 0.9f * want_m[i] + (1 - 0.9f) * grad[i];
        want[i] = want[i] - 0.01f * (float((u > 0) - (u < 0)) + 0.1f * want[i]);
        want_m[i] = 0.99f * want_m[i] + (1 - 0.99f) * grad[i];
    }
    lion(w.data(), m.data(), grad.data(), 100, 0.01f, 0.9f, 0.99f, 0.1f);
    compare("w", w, want, 0, 0);
    compare("m", m, want_m, 0, 0);
}

static void check_clip() {
    for (const int n : {1, 4096, 4097, 20000})
        for (const float limit : {1.0f, 0.25f, 1e6f}) {
            Floats g = numbers(n, 1);
            double all = 0;
            for (size_t begin = 0; begin < g.size(); begin += 4096) {
                float sum = 0;
                for (size_t i = begin; i < std::min(begin + 4096, g.size()); i++) sum = sum + g[i] * g[i];
                all += double(sum);
            }
            const float want = std::sqrt(all) > double(limit) ? float(double(limit) / std::sqrt(all)) : 1.0f;
            char what_limit[40];
            snprintf(what_limit, sizeof what_limit, "n = %d, limit %g", n, double(limit));
            const string what = what_limit;
            compare(what, {clip_factor(g.data(), n, limit)}, {want}, std::min(n, 4096), double(want));
            for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
                g[size_t(n - 1)] = bad;
                compare(what + ", one number is " + to_string(bad), {clip_factor(g.data(), n, limit)}, {0}, 0, 0);
            }
        }
}

static string listed(const vector<int>& numbers) {
    string text;
    for (const int n : numbers) text += (text.empty() ? "{" : ", ") + to_string(n);
    return text.empty() ? "{}" : text + "}";
}

static void check_buckets() {
    struct Case { vector<size_t> bytes; size_t first, others; vector<int> want; };
    const Case cases[] = {{{1, 1, 5, 1, 1}, 2, 4, {3, 2, 0}}, {{9}, 1, 1, {0}}, {{1, 2, 3}, 100, 100, {0}},
                          {{4, 4, 4, 4}, 4, 8, {3, 1, 0}}, {{1, 1, 1}, 1, 1, {2, 1, 0}}, {{2, 2, 9, 1}, 3, 4, {2, 0}}};
    for (const Case& c : cases) {
        const vector<int> got = buckets(c.bytes, c.first, c.others);
        if (got != c.want)
            wrong("bytes %s, first %zu, others %zu: %s, want %s", listed({c.bytes.begin(), c.bytes.end()}).c_str(),
                  c.first, c.others, listed(got).c_str(), listed(c.want).c_str());
    }
}

static float tree_of(const vector<const float*>& x, size_t begin, size_t end, size_t i) {
    if (end - begin == 1) return x[begin][i];
    return tree_of(x, begin, (begin + end) / 2, i) + tree_of(x, (begin + end) / 2, end, i);
}

// Calls check(gradients, want, ranks) for 1, 2, 4 and 8 gradients of 100 numbers and as many ranks as share them.
static void for_ranks(const std::function<void(const vector<const float*>&, const Floats&, int)>& check) {
    for (const size_t count : {1, 2, 4, 8}) {
        vector<Floats> all;
        vector<const float*> gradients;
        for (size_t r = 0; r < count; r++) all.push_back(numbers(100, uint32_t(r + 1)));
        for (const Floats& one : all) gradients.push_back(one.data());
        Floats want;
        for (size_t i = 0; i < 100; i++) want.push_back(tree_of(gradients, 0, count, i));
        for (size_t ranks = 1; ranks <= count; ranks *= 2) check(gradients, want, int(ranks));
    }
}

static void check_tree() {
    for_ranks([](const vector<const float*>& gradients, const Floats& want, int ranks) {
        const size_t own = gradients.size() / size_t(ranks);
        vector<Floats> parts(size_t(ranks), nans(100));
        vector<const float*> sums;
        for (size_t r = 0; r < parts.size(); r++) {
            const auto begin = gradients.begin() + long(r * own);
            tree_sum(parts[r].data(), {begin, begin + long(own)}, 100);
            sums.push_back(parts[r].data());
        }
        Floats got = nans(100);
        tree_sum(got.data(), sums, 100);
        compare(counted(gradients.size(), "replica") + " on " + counted(size_t(ranks), "rank"), got, want,
                int(gradients.size()), double(gradients.size()));
    });
}

static void check_same_bits() {
    Floats one_rank;
    for_ranks([&](const vector<const float*>& gradients, Floats want, int ranks) {
        for (float& x : want) x /= float(gradients.size());
        Floats got = nans(100);
        mean_gradient(got.data(), gradients, 100, ranks);
        compare(counted(gradients.size(), "gradient") + " on " + counted(size_t(ranks), "rank"), got, want,
                int(gradients.size()), 1);
        if (ranks == 1) one_rank = got;
        for (size_t i = 0; i < got.size(); i++)
            if (got[i] != one_rank[i])
                wrong("%zu gradients: number %zu has bits %08x with 1 rank and %08x with %d: near, but not the same",
                      gradients.size(), i, std::bit_cast<uint32_t>(one_rank[i]), std::bit_cast<uint32_t>(got[i]),
                      ranks);
    });
}

static void check_deal() {
    for (const int ranks : {1, 2, 4, 8})
        for (int step = 0; step < 3; step++) {
            int next = step * 8 * 3;
            for (int rank = 0; rank < ranks; rank++) {
                vector<int> want(size_t(8 / ranks * 3));
                for (int& number : want) number = next++;
                const vector<int> got = samples_of(step, rank, ranks, 8, 3);
                if (got != want)
                    wrong("step %d, rank %d of %d, 8 replicas, batch 3: %s, want %s", step, rank, ranks,
                          listed(got).c_str(), listed(want).c_str());
            }
        }
}

static void check_mask() {
    const vector<int> rows[] = {{0}, {0, 0, 0, 0}, {0, 0, 1, 1, 1}, {2, 3, 4}, {0, 0, 0, 5, 5, 7, 7, 7, 7}};
    for (const vector<int>& documents : rows)
        for (const size_t D : {1, 4, 33}) {
            const size_t T = documents.size();
            const auto numbers_of = [&](uint32_t seed) { return numbers(int(T * D), seed); };
            const Floats q = numbers_of(1), k = numbers_of(2), v = numbers_of(3);
            Floats want, got = nans(T * D);
            for (size_t t = 0; t < T; t++) {
                Floats e(T);
                float most = -INFINITY, total = 0;
                for (size_t s = 0; s <= t; s++) {
                    float score = 0;
                    for (size_t d = 0; d < D; d++) score = score + q[t * D + d] * k[s * D + d];
                    e[s] = score * (1 / std::sqrt(float(D)));
                    if (documents[s] == documents[t]) most = std::max(most, e[s]);
                }
                for (size_t s = 0; s <= t; s++) {
                    e[s] = documents[s] == documents[t] ? std::exp(e[s] - most) : 0;
                    total = total + e[s];
                }
                for (size_t d = 0; d < D; d++) {
                    float sum = 0;
                    for (size_t s = 0; s <= t; s++) sum = sum + e[s] * v[s * D + d];
                    want.push_back(sum / total);
                }
            }
            attend(got.data(), q.data(), k.data(), v.data(), documents.data(), int(T), int(D));
            const string what = "T = " + to_string(T) + ", D = " + to_string(D) + ", documents " + listed(documents);
            for (size_t t = 0; t < T; t++) {
                const auto row = [&](const Floats& all) { return Floats(&all[t * D], &all[t * D] + D); };
                compare(what + ", position " + to_string(t), row(got), row(want), int(T + D), 8);
            }
        }
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

// Trains 20 steps, and is stopped after each of them; what goes on has the same number of ranks, or another.
static void check_resume() {
    constexpr int kSteps = 20;
    Trainer whole(1);
    for (int i = 0; i < kSteps; i++) whole.train();
    for (const auto& [before, after] : {std::pair(1, 1), {2, 2}, {4, 4}, {1, 4}, {4, 1}, {2, 4}, {4, 2}})
        for (int stop = 0; stop <= kSteps; stop++) {
            Trainer first(before);
            for (int i = 0; i < stop; i++) first.train();
            Trainer second = load(save(first), after);
            if (second.ranks != after) wrong("load gives %d ranks, want %d", second.ranks, after);
            for (int i = stop; i < kSteps; i++) second.train();
            for (int i = 0; i < 4; i++)
                if (second.w[i] != whole.w[i])
                    wrong("%s stopped after step %d, %d went on: weight %d is %.9g at the end, want %.9g. %s",
                          counted(before, "rank").c_str(), stop, after, i, double(second.w[i]), double(whole.w[i]),
                          before == after ? "Averages, step or generator?"
                                          : "With the same ranks it is right: whose averages stand where?");
        }
}

// Which operation must come before which: a set of pairs, with all that follows from it.
using Order = std::set<std::pair<string, string>>;
static const vector<vector<string>> streams = {
    {"backward2", "backward1", "backward0", "update", "forward0", "forward1", "forward2"},
    {"reduce2", "reduce1", "reduce0", "gather0", "gather1", "gather2"}};

static Order with_streams(Order order) {
    vector<string> all;
    for (const vector<string>& stream : streams) {
        for (size_t i = 1; i < stream.size(); i++) order.insert({stream[i - 1], stream[i]});
        all.insert(all.end(), stream.begin(), stream.end());
    }
    for (const string& b : all)
        for (const string& a : all)
            for (const string& c : all)
                if (order.contains({a, b}) && order.contains({b, c})) order.insert({a, c});
    return order;
}

// What each operation needs, in the order of a step.
static const vector<std::pair<string, vector<string>>> needed = {
    {"reduce2", {"backward2"}}, {"reduce1", {"backward1"}}, {"reduce0", {"backward0"}},
    {"update", {"reduce2", "reduce1", "reduce0"}}, {"gather0", {"update"}}, {"gather1", {"update"}},
    {"gather2", {"update"}}, {"forward0", {"gather0"}}, {"forward1", {"gather1"}}, {"forward2", {"gather2"}}};

// Returns what has run of each stream when `name` may begin: "compute: backward2; comm: nothing".
static string run_before(const string& name, const Order& given) {
    string text;
    for (const vector<string>& stream : streams) {
        string ran;
        for (const string& other : stream)
            if (given.contains({other, name})) ran += " " + other;
        text += (text.empty() ? "compute:" : "; comm:") + (ran.empty() ? " nothing" : ran);
    }
    return text;
}

static void check_race() {
    Order needs, given;
    for (const auto& [name, befores] : needed)
        for (const string& before : befores) needs.insert({before, name});
    const auto known = [](const string& name) {
        return std::any_of(streams.begin(), streams.end(),
                           [&](const vector<string>& s) { return std::find(s.begin(), s.end(), name) != s.end(); });
    };
    for (const Wait& wait : waits()) {
        for (const char* name : {wait.operation, wait.waits_for})
            if (!known(name)) wrong("%s: there is no such operation", name);
        given.insert({wait.waits_for, wait.operation});
    }
    needs = with_streams(needs);
    given = with_streams(given);
    for (const vector<string>& stream : streams)
        for (const string& name : stream)
            if (given.contains({name, name}))
                wrong("%s waits for itself, through others: the step never ends", name.c_str());
    for (const auto& [name, befores] : needed)
        for (const string& before : befores)
            if (!given.contains({before, name}))
                wrong("%s may begin when these have run: %s. It needs what %s has not done yet", name.c_str(),
                      run_before(name, given).c_str(), before.c_str());
    for (const Wait& wait : waits())
        if (!needs.contains({wait.waits_for, wait.operation}))
            wrong("nothing begins too early, but %s waits for %s without a reason", wait.operation, wait.waits_for);
}

// An exercise, its check, and what must be defined for it; null where it is not.
struct Exercise { const char* name; void (*check)(); vector<const void*> functions; };
template <class F> static const void* at(F* function) { return reinterpret_cast<const void*>(function); }
static const Exercise exercises[] = {
    {"dot", check_dot, {at(dot)}},
    {"relu2", check_relu2, {at(relu2_forward), at(relu2_backward)}},
    {"softmax_loss", check_softmax_loss, {at(softmax_loss)}},
    {"layernorm_backward", check_layernorm_backward, {at(layernorm_backward)}},
    {"mask", check_mask, {at(attend)}},
    {"warmup", check_warmup, {at(learning_rate)}},
    {"lion", check_lion, {at(lion)}},
    {"clip", check_clip, {at(clip_factor)}},
    {"tree", check_tree, {at(tree_sum)}},
    {"same_bits", check_same_bits, {at(mean_gradient)}},
    {"deal", check_deal, {at(samples_of)}},
    {"buckets", check_buckets, {at(buckets)}},
    {"race", check_race, {at(waits)}},
    {"resume", check_resume, {at(save), at(load)}},
};

int main(int, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (const Exercise& exercise : exercises) {
        if (argv[1] != string(exercise.name)) continue;
        for (const void* function : exercise.functions)
            if (!function) {
                puts("a function of exercises.h is not defined in this file, or has other parameters");
                return 4;
            }
        exercise.check();
        puts(other_order.empty() ? "RIGHT: all bits" : ("RIGHT IN ANOTHER ORDER: " + other_order).c_str());
        return other_order.empty() ? 0 : 1;
    }
    return 4;
}
