// isa.cpp -- one instruction set: the operations on the arena (what happens to the gradient after
// backward), and the table of all operations. It is compiled once per instruction set (configure).
// The flag -fno-math-errno lets the compiler use the sqrt instruction.
#include "build/optimizers.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/classifier.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/layernorm.h"
#include "kernels/cpu/matmul.h"

namespace BACKEND::ISA {

// Calls f(i) for the first element of each unit.
template <class F> static void for_units(size_t n, const F& f) {
    CHECK(n % kUnit == 0, "%zu elements, want a multiple of %zu", n, kUnit);
    for_elements(n, [&](size_t begin, size_t count) {
        for (size_t i = begin; i < begin + count; i += kUnit) f(i);
    });
}

constexpr int kBlock = 512;         // elements: the partial sums stay in the L1 cache

// Adds elements begin .. begin + kBlock - 1 of all terms. Returns where the sum is: in `sums`, or
// in the only term.
static const float* reduce_block(float* sums, const float* const* terms, int count, Tree tree,
                                 size_t begin) {
    if (count == 1) return terms[0] + begin;
    const int first = tree == Tree::kBalanced ? count / 2 : 1;
    float upper[kBlock];
    const float* a = reduce_block(sums, terms, first, tree, begin);
    const float* b = reduce_block(upper, terms + first, count - first, tree, begin);
    for (int i = 0; i < kBlock; i++) sums[i] = a[i] + b[i];
    return sums;
}

// Returns the sum of squares of a unit, in the order that kernels.h gives.
static float squares(const float* grad) {
    float sums[16] = {}, total = 0;             // 0 + s0 is s0: squares are not -0
    for (size_t i = 0; i < kUnit; i += 16)
        for (size_t j = 0; j < 16; j++) sums[j] += grad[i + j] * grad[i + j];
    for (const float sum : sums) total += sum;
    return total;
}

static void tree_reduce(float* out, float* partials, const float* const* terms, int count,
                        Tree tree, size_t n, Stream) {
    CHECK(count > 0 && (tree == Tree::kNested || (count & (count - 1)) == 0),
          "tree_reduce: %d terms", count);
    const bool in_place = count == 1 && terms[0] == out;
    if (in_place && !partials) return;
    for_units(n, [&](size_t unit) {
        float sums[kBlock];                     // out may be one of the terms
        for (size_t i = unit; i < unit + kUnit && !in_place; i += kBlock)
            memcpy(out + i, reduce_block(sums, terms, count, tree, i), sizeof sums);
        if (partials) partials[unit / kUnit] = squares(out + unit);
    });
}

static void clip_scale(StepState* state, double* norm, const float* partials, size_t units,
                       double clip, Stream) {
    const double tokens = state->tokens;
    double sum;
    sum_in_order(&sum, partials, units, nullptr);
    norm[0] = __builtin_sqrt(sum) / tokens;
    const double factor = clip > 0 ? __builtin_fmin(1, clip / (norm[0] + 1e-6)) : 1;
    state->grad_scale = __builtin_isfinite(norm[0]) ? float(factor / tokens) : __builtin_nanf("");
}

// Updates n weights, in a plain loop that the compiler turns into vectors: operations are rounded
// as kernels.h says. Each array is a parameter, so that `restrict` says that no two overlap.
template <class Rule, int STAGE, class... Arrays>
static void update_elements(float* master, const float* grad, Rates rates, const StepState& step,
                            size_t n, Arrays* __restrict... state) {
    for (size_t i = 0; i < n; i++) {
        float own[] = {state[i]..., 0};
        Rule::element(STAGE, master[i], own, grad[i], rates, step);
        [[maybe_unused]] int k = 0;
        ((state[i] = own[k++]), ...);
    }
}

// Updates the unit whose first element is `at`. The lambda
// reads u, because clang 14 captures no structured binding.
template <class Rule, int STAGE> static void update_unit(const Update& u, size_t at) {
    if constexpr (STAGE < int(sizeof Rule::kState / sizeof(int))) {
        const auto& [n, param, master, state, grad, rates, in_memory] = u;
        const StepState step = *in_memory;
        [&]<int... K>(std::integer_sequence<int, K...>) {
            update_elements<Rule, STAGE>(u.master + at, u.grad + at, u.rates[at / kUnit], step,
                                         kUnit, (u.state[K] + at)...);
        }(std::make_integer_sequence<int, Rule::kState[STAGE]>());
        if (static_cast<void*>(param) == master) return;
        for (size_t i = at; i < at + kUnit; i += kWidth) store(param + i, load(master + i));
    }
}

static void update(int optimizer, int stage, const Update& arrays, Stream) {
#define X(name) OPTIMIZER_STAGES(update_unit, name),
    static constexpr decltype(&update_unit<adamw_rule, 0>) kUnits[][kMaxStages] = {OPTIMIZERS(X)};
#undef X
    if (!__builtin_isfinite(arrays.step->grad_scale)) return;
    for_units(arrays.n, [&](size_t at) { kUnits[optimizer][stage](arrays, at); });
}

static uint64_t hash_floats(const float* x, size_t n, Stream) {
    const size_t units = (n + kUnit - 1) / kUnit;
    uint64_t* hashes = reinterpret_cast<uint64_t*>(caller_buffer(2 * units));
    parallel_for(int(units), [&](int k) {
        const size_t begin = size_t(k) * kUnit;
        const size_t count = n - begin < kUnit ? n - begin : kUnit;
        uint64_t total = 0;
        for (size_t i = 0; i < count; i++)
            total += mix64(uint64_t(i + 1) << 32 | std::bit_cast<uint32_t>(x[begin + i]));
        hashes[k] = total;
    });
    uint64_t hash = n;
    for (size_t k = 0; k < units; k++) hash = mix64(hash ^ hashes[k]);
    return hash;
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
extern const Ops ops;
const Ops ops = {
    .isa = TEXT(ISA),
#define OP(result, name, parameters, arguments) .name = name,
#include "build/op_table.h"
};

}  // namespace BACKEND::ISA
