// kernel_cases.h -- runs one operation of kernels.h on the backend under test and on its specification, and compares:
// bits where both are of one kind, CPUs with fused multiply-add, and otherwise within tolerances.
//
//     Case c("layernorm_forward N=3 C=24");
//     Tensor &out = c.out(kX, N * C), &inp = c.in(kX, normal(N * C));
//     Norm norm = {N, C, &inp, &out, ...};
//     RUN(c, layernorm_forward, norm);
//     c.near(out, 8);
//
// BACKEND (-DBACKEND=cpu) is held to SPEC (-DSPEC=ref16; ref by default). GPUs have ref64, which computes in double and
// stores floats. What every case checks without being asked:
//   - outputs start as NaN, so whatever "=" forgets shows;
//   - guard bytes before and behind every array stay as they are, and so do the inputs;
//   - the bits are the same with 1, 2 and 3 threads, when called again, and with arrays aligned to 16 bytes only.
#pragma once
#ifndef SPEC
#define SPEC ref
#endif
#pragma push_macro("BACKEND")
#undef BACKEND
#define BACKEND SPEC
#include "kernels/kernels.h"
#pragma pop_macro("BACKEND")
#undef OPERATIONS_DECLARED
#include "kernels/kernels.h"
#include <algorithm>
#include <cfloat>
#include <cstring>
#include <deque>
#include <limits>
#include "src/base/numbers.h"
#include "tests/test.h"

enum Side { kSpec, kBackend };
enum Kind { kX, kFloat, kInt, kByte, kDouble };  // kX: floatX of either side
enum Role { kIn, kOut, kScratch };               // an input may not change; of scratch only the guards are looked at

constexpr bool kHalf = sizeof(SPEC::floatX) == 2 || sizeof(BACKEND::floatX) == 2;
constexpr double kEps = FLT_EPSILON;                       // of the arithmetic
constexpr double kEpsX = kHalf ? 1.0 / 128 : FLT_EPSILON;  // spacing of the storage type, relative
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Numbers of mean 0 and variance 1, the same on every machine.
inline std::vector<float> normal(size_t n, double scale = 1, double mean = 0) {
    static uint32_t call = 0;
    const RandomKey key = {1234, kRandomData, ++call, 0};
    std::vector<float> x(n);
    for (size_t i = 0; i < n; i++) {  // the sum of four uniform numbers: variance 1/3
        double sum = -2;
        for (const uint32_t bits : random4(key, i).v) sum += uniform01(bits);
        x[i] = float(sum * std::sqrt(3.0) * scale + mean);
    }
    return x;
}
// Integers in [low, high].
inline std::vector<float> integers(size_t n, int low, int high) {
    static uint32_t call = 0;
    const RandomKey key = {4321, kRandomData, ++call, 0};
    std::vector<float> x(n);
    for (size_t i = 0; i < n; i++) x[i] = float(low + int(random4(key, i / 4).v[i % 4] % uint32_t(high - low + 1)));
    return x;
}

// f(a number of the kind's type, kX left out).
template <class F> auto with_type(Kind kind, const F& f) {
    switch (kind) {
        case kInt: return f(int());
        case kByte: return f(uint8_t());
        case kDouble: return f(double());
        default: return f(float());
    }
}
inline size_t element_bytes(Side side, Kind kind) {
    if (kind == kX) return side == kSpec ? sizeof(SPEC::floatX) : sizeof(BACKEND::floatX);
    return with_type(kind, [](auto x) { return sizeof x; });
}
// Values to and from the bytes of one side's memory.
inline void encode(Side side, Kind kind, void* to, const std::vector<float>& x) {
    if (kind != kX)
        with_type(kind, [&](auto type) { std::copy(x.begin(), x.end(), static_cast<decltype(type)*>(to)); });
    else if (side == kSpec) SPEC::store_floats(static_cast<SPEC::floatX*>(to), x.data(), x.size());
    else BACKEND::store_floats(static_cast<BACKEND::floatX*>(to), x.data(), x.size());
}
inline std::vector<double> decode(Side side, Kind kind, const void* from, size_t n) {
    if (kind != kX)
        return with_type(kind, [&](auto type) {
            const auto* const at = static_cast<const decltype(type)*>(from);
            return std::vector<double>(at, at + n);
        });
    std::vector<float> x(n);
    if (side == kSpec) SPEC::load_floats(x.data(), static_cast<const SPEC::floatX*>(from), n);
    else BACKEND::load_floats(x.data(), static_cast<const BACKEND::floatX*>(from), n);
    return {x.begin(), x.end()};
}
// What a side's memory makes of numbers.
template <class X> std::vector<double> stored(Side side, Kind kind, const std::vector<X>& x) {
    std::vector<char> bytes(x.size() * element_bytes(side, kind));
    encode(side, kind, bytes.data(), std::vector<float>(x.begin(), x.end()));
    return decode(side, kind, bytes.data(), x.size());
}

struct Memory {
    void* (*alloc)(size_t bytes, const char* what);
    void (*free)(void* memory);
    void (*to_device)(void* device, const void* host, size_t bytes, Stream stream);
    void (*to_host)(void* host, const void* device, size_t bytes, Stream stream);
};
constexpr Memory kMemory[] = {
    {SPEC::device_alloc, SPEC::device_free, SPEC::copy_to_device, SPEC::copy_to_host},
    {BACKEND::device_alloc, BACKEND::device_free, BACKEND::copy_to_device, BACKEND::copy_to_host}};

// Becomes whatever pointer the operation's parameter is.
struct Pointer {
    void* memory;
    template <class T> operator T*() const {
        return static_cast<T*>(memory);
    }
};

// One array of a case, on both sides.
struct Tensor {
    Kind kind;
    Role role;
    std::vector<float> start;  // what it holds before the call
    std::string name;
    char* memory[2];         // allocated, guards included
    size_t shift = 0;        // of the elements against 64-byte alignment
    std::vector<char> bits;  // of the backend's result
    std::vector<double> want, got;

    static constexpr size_t kGuard = 128;
    size_t bytes(Side side) const { return start.size() * element_bytes(side, kind); }
    char* at(Side side) const { return memory[side] + kGuard + shift; }

    Tensor(Kind kind_, Role role_, std::vector<float> x, size_t number)
        : kind(kind_), role(role_), name(format("array %zu", number)) {
        starts_as(std::move(x));
        for (const Side side : {kSpec, kBackend})
            memory[side] = static_cast<char*>(kMemory[side].alloc(bytes(side) + 3 * kGuard, "test"));
    }
    ~Tensor() {
        for (const Side side : {kSpec, kBackend}) kMemory[side].free(memory[side]);
    }
    Tensor(const Tensor&) = delete;

    void starts_as(std::vector<float> x) {
        start = std::move(x);
        if (kind != kX) return;
        for (const Side side : {kBackend, kSpec}) {     // both start from numbers that both can hold
            const std::vector<double> held = stored(side, kind, start);
            start.assign(held.begin(), held.end());
        }
    }
    // The specification's result is an input of the next operation.
    void becomes_input() {
        role = kIn;
        starts_as({want.begin(), want.end()});
    }
    std::vector<char> image(Side side) const {
        std::vector<char> all(bytes(side) + 3 * kGuard, '\xA5');
        encode(side, kind, all.data() + kGuard + shift, start);
        return all;
    }
    void write(Side side, size_t shift_) {
        shift = shift_;
        const std::vector<char> all = image(side);
        kMemory[side].to_device(memory[side], all.data(), all.size(), nullptr);
        BACKEND::stream_sync(nullptr);  // `all` must stay until then
    }
    // The elements, after the guards, and an input's elements, were found unharmed.
    std::vector<char> read(Side side, const std::string& what) const {
        const std::vector<char> before = image(side);
        std::vector<char> after(before.size());
        kMemory[side].to_host(after.data(), memory[side], after.size(), nullptr);
        const size_t begin = kGuard + shift, end = begin + bytes(side);
        for (size_t i = 0; i < after.size(); i++) {
            const bool inside = i >= begin && i < end;
            if (after[i] == before[i] || (inside && role != kIn)) continue;
            const long long offset = (long long)i - (long long)begin;
            if (inside) FAIL("%s: %s: input changed at byte %lld", what.c_str(), name.c_str(), offset);
            FAIL("%s: %s: wrote outside, at byte %lld of %zu", what.c_str(), name.c_str(), offset, bytes(side));
        }
        return {after.begin() + std::ptrdiff_t(begin), after.begin() + std::ptrdiff_t(end)};
    }
};

// StepState in the memory of both sides.
struct State {
    explicit State(const StepState& s) {
        for (const Side side : {kSpec, kBackend}) {
            at[side] = static_cast<StepState*>(kMemory[side].alloc(sizeof s, "test"));
            kMemory[side].to_device(at[side], &s, sizeof s, nullptr);
        }
        BACKEND::stream_sync(nullptr);
    }
    ~State() {
        for (const Side side : {kSpec, kBackend}) kMemory[side].free(at[side]);
    }
    State(const State&) = delete;
    StepState* at[2];
};

// Muon's values, the first six of which are AdamW's: bias1 and bias2 are those of the second step.
static const StepState kState = {42, 7, 1e-3f, 0.5f, {0.9f, 0.95f, 1e-8f, 0.1f, 0.19f, 0.0975f, 0.8f, 0.02f}};

struct Mask {                   // a Dropout; its state is null at rate 0
    float rate;
    State state{kState};
    explicit Mask(float rate_) : rate(rate_) {}
};
// An Attention with a dropout of both sides.
struct Heads { int B, T, NH, NK, HS; Mask& mask; float scale = 0; Tensor* begin = nullptr; };
struct Tokens { int B, T, C; Mask& mask; Tensor* begin = nullptr; };      // an Embedding
// A LayerNorm with arrays of both sides.
struct Norm { int N, C; Tensor *inp, *out, *mean, *rstd, *weight, *bias; float eps; };
struct Arrays { std::vector<Tensor*> list; std::vector<float*> at[2]; };        // an array of arrays
struct Either { Tensor *spec, *backend; };                          // another array on each side
// An Update with arrays of both sides.
struct Updates { size_t n; Either param; Tensor& master; Arrays& state; Tensor &grad, &rates; const State& step; };

inline Pointer pick(Side side, Tensor& t) { return {t.at(side)}; }
inline Pointer pick(Side side, Tensor*& t) { return {t ? t->at(side) : nullptr}; }
inline Pointer pick(Side side, Either& e) { return {(side == kSpec ? e.spec : e.backend)->at(side)}; }
inline const StepState* pick(Side side, const State& s) { return s.at[side]; }
inline Dropout pick(Side side, Mask& m) {
    return {m.rate, kRandomDropout + 5, 3, m.rate > 0 ? m.state.at[side] : nullptr};
}
// The bindings stop a new member at the compiler, until the cases have it.
inline Attention pick(Side side, Heads& h) {
    const Attention a = {h.B, h.T, h.NH, h.NK, h.HS, pick(side, h.mask), h.scale, pick(side, h.begin)};
    [[maybe_unused]] const auto& [B, T, NH, NK, HS, drop, scale, begin] = a;
    return a;
}
inline Embedding pick(Side side, Tokens& tokens) {
    const Embedding e = {tokens.B, tokens.T, tokens.C, pick(side, tokens.mask), pick(side, tokens.begin)};
    [[maybe_unused]] const auto& [B, T, C, drop, begin] = e;
    return e;
}
struct NormOfSide {
    Side side;
    const Norm& n;
    Pointer at(Tensor* t) const { return pick(side, t); }
    template <class LayerNorm> operator LayerNorm() const {
        const LayerNorm norm = {n.N,        n.C,          at(n.inp),  at(n.out), at(n.mean),
                                at(n.rstd), at(n.weight), at(n.bias), n.eps};
        [[maybe_unused]] const auto& [N, C, inp, out, mean, rstd, weight, bias, eps] = norm;
        return norm;
    }
};
inline NormOfSide pick(Side side, Norm& norm) { return {side, norm}; }
inline float* const* pick(Side side, Arrays& a) {
    a.at[side].clear();
    for (const Tensor* array : a.list) a.at[side].push_back(reinterpret_cast<float*>(array->at(side)));
    return a.at[side].data();
}
struct UpdateOfSide {
    Side side;
    Updates& u;
    template <class Update> operator Update() const {
        return {u.n, pick(side, u.param), pick(side, u.master), pick(side, u.state), pick(side, u.grad),
                pick(side, u.rates), pick(side, u.step)};
    }
};
inline UpdateOfSide pick(Side side, Updates& u) { return {side, u}; }
template <class T> const T& pick(Side, const T& value) { return value; }

struct Case {
    explicit Case(std::string what_) : what(std::move(what_)) {}

    Tensor& add(Kind kind, Role role, std::vector<float> start) {
        return tensors.emplace_back(kind, role, std::move(start), tensors.size() + 1);
    }
    Tensor& in(Kind kind, std::vector<float> start) { return add(kind, kIn, std::move(start)); }
    Tensor& random(size_t n, double scale = 1, double mean = 0) { return in(kX, normal(n, scale, mean)); }
    Tensor& out(Kind kind, size_t n) { return add(kind, kOut, std::vector<float>(n, kNaN)); }
    Tensor& inout(Kind kind, std::vector<float> start) { return add(kind, kOut, std::move(start)); }
    Tensor& scratch(Kind kind, size_t n) { return add(kind, kScratch, std::vector<float>(n, kNaN)); }

    template <class Spec, class Backend, class... Args> void run(Spec spec, Backend backend, Args&&... args) {
        for (Tensor& t : tensors) t.write(kSpec, 0);
        spec(pick(kSpec, args)..., Stream(nullptr));
        for (Tensor& t : tensors) {
            const std::vector<char> bits = t.read(kSpec, what + ", specification");
            t.want = decode(kSpec, t.kind, bits.data(), t.start.size());
        }
        const struct { int threads; size_t shift; } runs[] = {{1, 0}, {2, arena ? 0u : 16u}, {3, 0}, {3, 0}};
        for (const auto& r : runs) {
            if (once && &r != runs) break;
            BACKEND::set_threads(r.threads);
            for (Tensor& t : tensors) t.write(kBackend, r.shift);
            backend(pick(kBackend, args)..., Stream(nullptr));
            BACKEND::stream_sync(nullptr);
            for (Tensor& t : tensors) {
                std::vector<char> bits = t.read(kBackend, what);
                if (&r != runs && t.role != kScratch && bits != t.bits)
                    FAIL("%s: %s: other bits with %d threads, shift %zu", what.c_str(), t.name.c_str(), r.threads,
                         r.shift);
                t.bits = std::move(bits);
            }
        }
        for (Tensor& t : tensors) t.got = decode(kBackend, t.kind, t.bits.data(), t.start.size());
    }

    // Devices of one kind round alike: the specification's bits are the backend's.
    static bool exact() { return !std::strcmp(SPEC::device_kind(), BACKEND::device_kind()); }

    // The same bits if exact(). Otherwise |got - want| <= k roundings of float at the size of the largest value, kx of
    // storage, and one of storage at the value's own size where the array is of floatX. terms: the size of what was
    // summed, where all results may be smaller than that by cancellation. Fails for NaN on either side.
    void near(const Tensor& t, double k, double kx = 0, double terms = 0) const {
        if (exact()) return same(t);
        double scale = terms;
        for (const double w : t.want) scale = std::fmax(scale, std::fabs(w));
        const double own = t.kind == kX ? kEpsX : 0;
        for (size_t i = 0; i < t.want.size(); i++) {
            const double tol = own * std::fabs(t.want[i]) + (k * kEps + (kHalf ? kx * kEpsX : 0)) * scale;
            if (!(std::fabs(t.got[i] - t.want[i]) <= tol))
                FAIL("%s: %s[%zu]: got %.9g, want %.9g, tolerance %.3g", what.c_str(), t.name.c_str(), i, t.got[i],
                     t.want[i], tol);
        }
    }
    // The same bits (-0 is not 0), after one rounding to the backend's storage. Fails for NaN, or with `nans` only
    // where one side has none.
    void same(const Tensor& t) const {
        const std::vector<double> want = t.kind == kX ? stored(kBackend, kX, t.want) : t.want;
        for (size_t i = 0; i < want.size(); i++) {
            const bool equal = t.got[i] == want[i] && std::signbit(t.got[i]) == std::signbit(want[i]);
            if (!equal && !(nans && std::isnan(t.got[i]) && std::isnan(want[i])))
                FAIL("%s: %s[%zu]: got %.9g, want exactly %.9g", what.c_str(), t.name.c_str(), i, t.got[i], want[i]);
        }
        arrays++;
        elements += want.size();
    }
    static inline size_t arrays = 0, elements = 0;      // that had the same bits

    std::string what;
    bool once = false;           // for large cases: one call, whose bits are compared with no other's
    bool arena = false;          // arrays of the arena: always aligned to 64 bytes
    bool nans = false;           // a NaN is a result, too
    std::deque<Tensor> tensors;  // a deque: references stay valid
};

#define RUN(c, op, ...) (c).run(SPEC::op, BACKEND::op, __VA_ARGS__)
