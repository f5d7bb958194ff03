// arena.cpp -- where each tensor lies, and the first weights.
#include "arena.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <thread>
#include "common.h"
#include "rng.h"

Arena arena_layout(std::vector<TensorSpec> tensors) {
    Arena arena;
    arena.tensors = std::move(tensors);
    for (const TensorSpec& t : arena.tensors) {
        arena.offset.push_back(arena.n);
        const size_t units = ceil_div(t.rows * t.cols, kUnit);
        arena.decay.insert(arena.decay.end(), units, uint8_t(t.decay));
        arena.n += units * kUnit;
    }
    return arena;
}

namespace {
// Two normals from two uniforms (Box and Muller 1958). 1 - u keeps the logarithm away from 0.
void normal_pair(uint32_t a, uint32_t b, float std, float out[2]) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform01(a))), angle = 2.0 * M_PI * uniform01(b);
    out[0] = float(std * radius * std::cos(angle));
    out[1] = float(std * radius * std::sin(angle));
}
}  // namespace

// Elements begin .. end - 1 of a tensor, begin a multiple of 4: each four are a function of their place.
static void init_normal(float* w, const RandomKey& key, float std, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += 4) {
        const Random4 r = random4(key, i / 4);
        float x[4];
        normal_pair(r.v[0], r.v[1], std, x);
        normal_pair(r.v[2], r.v[3], std, x + 2);
        std::copy(x, x + std::min<size_t>(4, end - i), w + i);
    }
}

void arena_init(float* weights, const Arena& arena, uint64_t seed) {
    constexpr size_t kPiece = size_t(1) << 18;
    struct Piece { size_t tensor, begin, end; };
    std::vector<Piece> pieces;
    std::fill(weights, weights + arena.n, 0.0f);
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const TensorSpec& spec = arena.tensors[t];
        const size_t n = spec.file_rows * spec.cols;
        if (spec.init_std == kOnes) std::fill_n(weights + arena.offset[t], n, 1.0f);
        if (spec.init_std <= 0) continue;
        for (size_t i = 0; i < n; i += kPiece) pieces.push_back({t, i, std::min(n, i + kPiece)});
    }
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t i; (i = next++) < pieces.size();) {
            const auto [t, begin, end] = pieces[i];
            init_normal(weights + arena.offset[t], {seed, kRandomInit, uint32_t(t), 0}, arena.tensors[t].init_std, begin, end);
        }
    };
    const size_t count = std::min(size_t(std::thread::hardware_concurrency()), pieces.size());
    std::vector<std::thread> threads;
    threads.reserve(count);
    for (size_t i = 1; i < count; i++) {
        try { threads.emplace_back(work); }
        catch (const std::exception&) { break; }                // no thread, no memory for one: those that are here do it
    }
    work();
    for (std::thread& t : threads) t.join();
}

uint32_t state_sum(const float* master, const float* m, const float* v) {
    uint32_t sum = 0;
    for (const float* array : {master, m, v})
        for (size_t i = 0; i < kUnit; i++) {
            uint32_t bits;
            std::memcpy(&bits, array + i, sizeof bits);
            sum += bits;
        }
    return sum;
}

size_t tensor_at(const Arena& arena, size_t element) {
    return size_t(std::upper_bound(arena.offset.begin(), arena.offset.end(), element) - arena.offset.begin()) - 1;
}
