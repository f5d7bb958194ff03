// arena.cpp -- computes the offset of each tensor, and writes the initial weights.
#include "src/base/arena.h"
#include <algorithm>
#include <cmath>
#include "src/base/common.h"
#include "src/base/cpus.h"
#include "src/base/numbers.h"

std::vector<TensorSpec::Part> parts_of(const TensorSpec& spec) {
    if (!spec.parts.empty()) return spec.parts;
    return {{spec.name, spec.matrix ? spec.file_rows : spec.cols}};
}

std::vector<TensorSpec::Part> matrices_of(const TensorSpec& spec) {
    if (!spec.parts.empty() && !spec.repeated) return spec.parts;
    return {spec.stacked, {spec.name, spec.rows / spec.stacked}};
}

size_t count_parameters(const std::vector<TensorSpec>& table) {
    size_t n = 0;
    for (const TensorSpec& spec : table) n += spec.file_rows * spec.cols;
    return n;
}

Arena arena_layout(std::vector<TensorSpec> tensors) {
    Arena arena;
    arena.tensors = std::move(tensors);
    for (const TensorSpec& t : arena.tensors) {
        CHECK(t.matrix || t.rows <= 1, "%s: a vector of %zu rows", t.name.c_str(), t.rows);
        arena.offset.push_back(arena.n);
        arena.n += round_up(t.rows * t.cols, kUnit);
    }
    arena.offset.push_back(arena.n);
    return arena;
}

const TensorSpec& tensor_at(const Arena& arena, size_t element) {
    const auto next = std::ranges::upper_bound(arena.offset, element);
    return arena.tensors[next - arena.offset.begin() - 1];
}

std::vector<Rates> arena_rates(const Arena& arena) {
    std::vector<Rates> rates;
    for (const TensorSpec& t : arena.tensors) {
        Rates own = t.rates;
        if (own.decay == Rates::kByShape) own.decay = t.matrix ? 1 : 0;
        rates.insert(rates.end(), ceil_div(t.rows * t.cols, kUnit), own);
    }
    return rates;
}

// Makes two normal numbers from two uniform numbers (Box and Muller 1958). 1 - u is never 0: its
// logarithm is finite.
static void normal_pair(uint32_t a, uint32_t b, float std, float out[2]) {
    const double radius = std::sqrt(-2.0 * same_log(1.0 - uniform01(a))),
                 angle = 2.0 * M_PI * uniform01(b);
    out[0] = float(std * radius * same_cos(angle));
    out[1] = float(std * radius * same_sin(angle));
}

// Writes the initial weights of the unit that begins at element `begin` of tensor t.
static void init_unit(float* w, const TensorSpec& spec, size_t t, size_t begin, uint64_t seed) {
    const size_t total = spec.file_rows * spec.cols,
                 n = std::min(kUnit, total - std::min(total, begin));
    std::fill_n(w, kUnit, 0.0f);
    if (spec.init_std == kOnes) std::fill_n(w, n, 1.0f);
    for (size_t i = 0; i < n && spec.init_std > 0; i += 4) {
        const Random4 r = random4({seed, kRandomInit, uint32_t(t), 0}, (begin + i) / 4);
        float x[4];
        normal_pair(r.v[0], r.v[1], spec.init_std, x);
        normal_pair(r.v[2], r.v[3], spec.init_std, x + 2);
        std::copy(x, x + std::min<size_t>(4, n - i), w + i);
    }
}

void arena_init(float* weights, const Arena& arena, uint64_t seed) {
    const size_t workers = std::min(size_t(available_cpus()), arena.n / kUnit);
    const auto work = [&](size_t worker) {
        for (size_t t = 0, unit = 0; t < arena.tensors.size(); t++) {
            const TensorSpec& spec = arena.tensors[t];
            for (size_t begin = 0; begin < spec.rows * spec.cols; begin += kUnit)
                if (unit++ % workers == worker)
                    init_unit(weights + arena.offset[t] + begin, spec, t, begin, seed);
        }
    };
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < workers; i++)
        threads.push_back(start_thread("one that makes weights", [&work, i] { work(i); }));
    work(0);
}
