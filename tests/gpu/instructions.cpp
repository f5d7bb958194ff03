// instructions.cpp -- what each instruction does. Source: PTX ISA 9.0.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include "count.h"
#include "instructions.h"

namespace ptx {
namespace {

// ---- lanes of registers

template <class T> struct Slot { using type = uint32_t; };
template <> struct Slot<float> { using type = float; };
template <> struct Slot<int32_t> { using type = int32_t; };
template <> struct Slot<uint64_t> { using type = uint64_t; };
template <> struct Slot<int64_t> { using type = int64_t; };
template <> struct Slot<double> { using type = double; };
template <class T> using SlotOf = typename Slot<T>::type;
template <class T> constexpr int kWidth = sizeof(T) == 8 ? 8 : 4;

// d = f(a, b, c) in the lanes of the mask. Registers of 16 bits have zeros above.
template <class D, class F, class... S, size_t... I>
inline __attribute__((always_inline)) int map_lanes(Warp& w, const Ins& i, uint32_t mask, F f,
                                                    std::index_sequence<I...>) {
    SlotOf<D>* d = w.reg<SlotOf<D>>(i.a[0]);
    alignas(64) SlotOf<D> t[32];
    for (int l = 0; l < 32; l++) t[l] = SlotOf<D>(D(f(S(w.reg<const SlotOf<S>>(i.a[1 + I])[l])...)));
    if (mask == ~0u) std::memcpy(d, t, sizeof t);
    else for (int l = 0; l < 32; l++) if (mask >> l & 1) d[l] = t[l];
    return kNext;
}
template <class D, class... S> struct Map {
    template <class F> static Fn of(F) {
        return [](Warp& w, const Ins& i, uint32_t mask) {
            return map_lanes<D, F, S...>(w, i, mask, F(), std::index_sequence_for<S...>());
        };
    }
    template <class F> static Simple simple(F f) { return {of(f), 1 + int(sizeof...(S)), {kWidth<D>, kWidth<S>...}}; }
};

// p = f(a, b)
template <class S> struct Compare {
    template <class F> static Simple simple(F) {
        Fn fn = [](Warp& w, const Ins& i, uint32_t mask) {
            const auto *a = w.reg<const SlotOf<S>>(i.a[1]), *b = w.reg<const SlotOf<S>>(i.a[2]);
            uint32_t bits = 0;
            for (int l = 0; l < 32; l++) bits |= uint32_t(bool(F()(S(a[l]), S(b[l])))) << l;
            w.pr[i.a[0]] = (w.pr[i.a[0]] & ~mask) | (bits & mask);
            return int(kNext);
        };
        return {fn, 3, {0, kWidth<S>, kWidth<S>}};
    }
};
template <class S> Simple select() {
    Fn fn = [](Warp& w, const Ins& i, uint32_t mask) {
        const auto *a = w.reg<const SlotOf<S>>(i.a[1]), *b = w.reg<const SlotOf<S>>(i.a[2]);
        auto* d = w.reg<SlotOf<S>>(i.a[0]);
        const uint32_t p = w.pr[i.a[3]];
        for (int l = 0; l < 32; l++) if (mask >> l & 1) d[l] = p >> l & 1 ? a[l] : b[l];
        return int(kNext);
    };
    return {fn, 4, {kWidth<S>, kWidth<S>, kWidth<S>, 0}};
}
template <class F> Simple predicates(int sources, F) {
    Fn fn = [](Warp& w, const Ins& i, uint32_t mask) {
        const uint32_t a = w.pr[i.a[1]], b = i.n > 2 ? w.pr[i.a[2]] : 0;
        w.pr[i.a[0]] = (w.pr[i.a[0]] & ~mask) | (F()(a, b) & mask);
        return int(kNext);
    };
    return {fn, 1 + sources, {0, 0, 0}};
}
// Division and remainder: an inactive lane may hold zero.
template <class T, bool REM> Simple divide() {
    Fn fn = [](Warp& w, const Ins& i, uint32_t mask) {
        const auto *a = w.reg<const SlotOf<T>>(i.a[1]), *b = w.reg<const SlotOf<T>>(i.a[2]);
        auto* d = w.reg<SlotOf<T>>(i.a[0]);
        for (int l = 0; l < 32; l++) {
            if (!(mask >> l & 1)) continue;
            if (T(b[l]) == 0) fail("division by zero");
            if constexpr (std::is_signed_v<T>)
                if (T(b[l]) == -1) { d[l] = REM ? 0 : SlotOf<T>(0 - std::make_unsigned_t<T>(a[l])); continue; }
            d[l] = SlotOf<T>(REM ? T(a[l]) % T(b[l]) : T(a[l]) / T(b[l]));
        }
        return int(kNext);
    };
    return {fn, 3, {kWidth<T>, kWidth<T>, kWidth<T>}};
}
// An integer to another type of integer; the register written may be wider than the type.
template <class D, class S> Simple convert() {
    Fn fn = [](Warp& w, const Ins& i, uint32_t mask) {
        const auto* a = w.reg<const SlotOf<S>>(i.a[1]);
        for (int l = 0; l < 32; l++) {
            if (!(mask >> l & 1)) continue;
            const D value = D(S(a[l]));
            if (i.width == 8) w.reg<uint64_t>(i.a[0])[l] = uint64_t(int64_t(value));
            else w.reg<uint32_t>(i.a[0])[l] = i.width == 2 ? uint16_t(value) : uint32_t(value);
        }
        return int(kNext);
    };
    return {fn, 2, {kWidth<D>, kWidth<S>}, true};
}

uint32_t bf16_bits(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if (x != x) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
float flush(float x) {
    return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
// x with a relative error of up to `most` that depends on `from` alone.
float off(double x, float from, double most) {
    static const bool errs = std::getenv("SOFT_GPU_APPROX");
    if (!errs || from == 0) return float(x);        // the ISA gives the results at zero
    const uint32_t h = (std::bit_cast<uint32_t>(from) * 0x9e3779b1u) >> 8;
    return float(x * (1 + most * (h / double(1 << 23) - 1)));
}
float maximum(float a, float b) { return a != a ? b : b != b ? a : a > b ? a : b > a ? b : std::signbit(a) ? b : a; }
float minimum(float a, float b) { return a != a ? b : b != b ? a : a < b ? a : b < a ? b : std::signbit(a) ? a : b; }
uint32_t prmt(uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t bytes = uint64_t(b) << 32 | a;
    uint32_t d = 0;
    for (int j = 0; j < 4; j++) {
        const uint32_t selector = c >> 4 * j & 15;
        uint32_t byte = uint32_t(bytes >> 8 * (selector & 7)) & 255;
        if (selector & 8) byte = byte & 0x80 ? 255 : 0;
        d |= byte << 8 * j;
    }
    return d;
}

using S16 = int16_t;
using U16 = uint16_t;
using S32 = int32_t;
using U32 = uint32_t;
using S64 = int64_t;
using U64 = uint64_t;
using F32 = float;
using F64 = double;

std::unordered_map<std::string, Simple> make_simple() {
    std::unordered_map<std::string, Simple> t;
#define MAP1(name, D, S, e) t[name] = Map<D, S>::simple([](S a) { return D(e); });
#define MAP2(name, D, S, e) t[name] = Map<D, S, S>::simple([](S a, S b) { return D(e); });
#define MAP3(name, D, S, e) t[name] = Map<D, S, S, S>::simple([](S a, S b, S c) { return D(e); });
#define FLOATS(F, f) \
    for (const char* r : {"", ".rn"}) { \
        MAP2(std::string("add") + r + f, F, F, a + b) MAP2(std::string("sub") + r + f, F, F, a - b) \
        MAP2(std::string("mul") + r + f, F, F, a * b) \
    } \
    MAP3("fma.rn" f, F, F, std::fma(a, b, c)) MAP2("div.rn" f, F, F, a / b) MAP1("sqrt.rn" f, F, F, std::sqrt(a)) \
    MAP1("rcp.rn" f, F, F, F(1) / a) MAP1("neg" f, F, F, -a) MAP1("abs" f, F, F, std::fabs(a)) MAP1("mov" f, F, F, a)
    FLOATS(F32, ".f32")
    FLOATS(F64, ".f64")
    MAP2("max.f32", F32, F32, maximum(a, b))
    MAP2("min.f32", F32, F32, minimum(a, b))
    // Approximations: the exact value here, rounded once, or off by as much as the ISA allows (SOFT_GPU_APPROX=1).
    MAP1("ex2.approx.f32", F32, F32, off(std::exp2(double(a)), a, 0x1p-22))
    MAP1("ex2.approx.ftz.f32", F32, F32, flush(off(std::exp2(double(flush(a))), a, 0x1p-22)))
    MAP1("lg2.approx.f32", F32, F32, off(std::log2(double(a)), a, 0x1p-22))
    MAP1("rsqrt.approx.ftz.f32", F32, F32, flush(off(1 / std::sqrt(double(flush(a))), a, 0x1p-22)))
    MAP1("rsqrt.approx.f32", F32, F32, off(1 / std::sqrt(double(a)), a, 0x1p-22))

#define INTEGERS(U, S, u, s, bits) \
    MAP2("add" s, U, U, a + b) MAP2("add" u, U, U, a + b) MAP2("sub" s, U, U, a - b) MAP2("sub" u, U, U, a - b) \
    MAP2("mul.lo" s, U, U, a * b) MAP2("mul.lo" u, U, U, a * b) MAP3("mad.lo" s, U, U, a * b + c) \
    MAP3("mad.lo" u, U, U, a * b + c) MAP1("neg" s, U, U, 0 - a) MAP1("mov" u, U, U, a) MAP1("mov" s, U, U, a) \
    MAP2("max" u, U, U, std::max(a, b)) MAP2("min" u, U, U, std::min(a, b)) MAP2("max" s, S, S, std::max(a, b)) \
    MAP2("min" s, S, S, std::min(a, b)) MAP1("abs" s, S, S, a < 0 ? S(0 - U(a)) : a)
    INTEGERS(U32, S32, ".u32", ".s32", 32)
    INTEGERS(U64, S64, ".u64", ".s64", 64)
    INTEGERS(U16, S16, ".u16", ".s16", 16)
#define BITS(U, b_) \
    MAP2("and" b_, U, U, a & b) MAP2("or" b_, U, U, a | b) MAP2("xor" b_, U, U, a ^ b) MAP1("not" b_, U, U, ~a) \
    t["shl" b_] = Map<U, U, U32>::simple([](U a, U32 n) { return U(n >= sizeof(U) * 8 ? 0 : a << n); });
    BITS(U16, ".b16")
    BITS(U32, ".b32")
    BITS(U64, ".b64")
#define SHIFTS(U, S, u, s) \
    t["shr" u] = Map<U, U, U32>::simple([](U a, U32 n) { return U(n >= sizeof(U) * 8 ? 0 : a >> n); }); \
    t["shr" s] = Map<U, U, U32>::simple([](U a, U32 n) { return U(S(a) >> std::min<U32>(n, sizeof(U) * 8 - 1)); });
    SHIFTS(U16, S16, ".u16", ".s16")
    SHIFTS(U32, S32, ".u32", ".s32")
    SHIFTS(U64, S64, ".u64", ".s64")
    MAP1("mov.b16", U16, U16, a)
    t["mul.wide.s32"] = Map<S64, S32, S32>::simple([](S32 a, S32 b) { return S64(a) * b; });
    t["mul.wide.u32"] = Map<U64, U32, U32>::simple([](U32 a, U32 b) { return U64(a) * b; });
    t["mul.wide.u16"] = Map<U32, U16, U16>::simple([](U16 a, U16 b) { return U32(a) * b; });
    t["mul.wide.s16"] = Map<S32, S16, S16>::simple([](S16 a, S16 b) { return S32(a) * b; });
    t["mad.wide.u32"] = Map<U64, U32, U32, U64>::simple([](U32 a, U32 b, U64 c) { return U64(a) * b + c; });
    t["mad.wide.s32"] = Map<S64, S32, S32, S64>::simple([](S32 a, S32 b, S64 c) { return S64(a) * b + c; });
    MAP2("mul.hi.s32", S32, S32, S64(a) * b >> 32)
    MAP2("mul.hi.u32", U32, U32, U64(a) * b >> 32)
    MAP2("mul.hi.u64", U64, U64, static_cast<unsigned __int128>(a) * b >> 64)
    MAP2("mul.hi.s64", S64, S64, static_cast<__int128>(a) * b >> 64)
    t["div.s32"] = divide<S32, false>(), t["div.u32"] = divide<U32, false>();
    t["div.s64"] = divide<S64, false>(), t["div.u64"] = divide<U64, false>();
    t["rem.s32"] = divide<S32, true>(), t["rem.u32"] = divide<U32, true>();
    t["rem.s64"] = divide<S64, true>(), t["rem.u64"] = divide<U64, true>();
    t["bfi.b32"] = Map<U32, U32, U32, U32, U32>::simple([](U32 a, U32 b, U32 pos, U32 len) {
        pos &= 255, len &= 255;
        if (pos > 31 || !len) return b;
        const U32 mask = (len >= 32 ? ~0u : (1u << len) - 1) << pos;
        return (b & ~mask) | (a << pos & mask);
    });
    t["bfe.u32"] = Map<U32, U32, U32, U32>::simple([](U32 a, U32 pos, U32 len) {
        pos &= 255, len &= 255;
        if (pos > 31 || !len) return 0u;
        return a >> pos & (len >= 32 ? ~0u : (1u << len) - 1);
    });
    MAP1("bfind.shiftamt.u32", U32, U32, a ? std::countl_zero(a) : ~0u)
    MAP1("bfind.u32", U32, U32, a ? 31 - std::countl_zero(a) : ~0u)
    MAP1("clz.b32", U32, U32, std::countl_zero(a))
    MAP1("popc.b32", U32, U32, std::popcount(a))
    t["brev.b32"] = Map<U32, U32>::simple([](U32 a) {
        U32 d = 0;
        for (int j = 0; j < 32; j++) d |= (a >> j & 1) << (31 - j);
        return d;
    });
    MAP3("prmt.b32", U32, U32, prmt(a, b, c))
    t["shf.l.wrap.b32"] = Map<U32, U32, U32, U32>::simple([](U32 a, U32 b, U32 c) {
        return U32(((U64(b) << 32 | a) << (c & 31)) >> 32);
    });
    t["shf.r.wrap.b32"] = Map<U32, U32, U32, U32>::simple([](U32 a, U32 b, U32 c) {
        return U32((U64(b) << 32 | a) >> (c & 31));
    });

#define CONVERT(D, d, S, s) t["cvt." d "." s] = convert<D, S>();
#define CONVERT_TO(D, d) \
    CONVERT(D, d, uint8_t, "u8") CONVERT(D, d, int8_t, "s8") CONVERT(D, d, U16, "u16") CONVERT(D, d, S16, "s16") \
    CONVERT(D, d, U32, "u32") CONVERT(D, d, S32, "s32") CONVERT(D, d, U64, "u64") CONVERT(D, d, S64, "s64")
    CONVERT_TO(uint8_t, "u8") CONVERT_TO(int8_t, "s8") CONVERT_TO(U16, "u16") CONVERT_TO(S16, "s16")
    CONVERT_TO(U32, "u32") CONVERT_TO(S32, "s32") CONVERT_TO(U64, "u64") CONVERT_TO(S64, "s64")
    MAP1("cvt.rpi.f32.f32", F32, F32, std::ceil(a))
    t["cvt.rzi.u32.f32"] = Map<U32, F32>::simple([](F32 a) { return a > 0 ? a < 4294967296.0f ? U32(a) : ~0u : 0u; });
    MAP1("cvt.rn.f32.u16", F32, U16, F32(a))
    MAP1("cvt.rn.f32.s32", F32, S32, F32(a))
    MAP1("cvt.rn.f32.u32", F32, U32, F32(a))
    MAP1("cvt.rn.f32.u64", F32, U64, F32(a))
    MAP1("cvt.rn.f32.s64", F32, S64, F32(a))
    MAP1("cvt.rn.f32.f64", F32, F64, F32(a))
    MAP1("cvt.f64.f32", F64, F32, F64(a))
    MAP1("cvt.rn.f64.s32", F64, S32, F64(a))
    MAP1("cvt.rn.f64.u32", F64, U32, F64(a))
    t["cvt.rn.bf16x2.f32"] = Map<U32, F32, F32>::simple([](F32 a, F32 b) { return bf16_bits(a) << 16 | bf16_bits(b); });

    // Generic addresses: global memory's are the host's own.
    MAP1("cvta.to.global.u64", U64, U64, a)
    MAP1("cvta.global.u64", U64, U64, a)
    MAP1("cvta.shared.u64", U64, U64, a + kSharedWindow)
    MAP1("cvta.param.u64", U64, U64, a + kParamWindow)
    MAP1("cvta.to.shared.u64", U64, U64, a - kSharedWindow)

#define SETP(S, s) \
    t["setp.eq." s] = Compare<S>::simple([](S a, S b) { return a == b; }); \
    t["setp.ne." s] = Compare<S>::simple([](S a, S b) { return a != b && !(a != a) && !(b != b); }); \
    t["setp.lt." s] = Compare<S>::simple([](S a, S b) { return a < b; }); \
    t["setp.le." s] = Compare<S>::simple([](S a, S b) { return a <= b; }); \
    t["setp.gt." s] = Compare<S>::simple([](S a, S b) { return a > b; }); \
    t["setp.ge." s] = Compare<S>::simple([](S a, S b) { return a >= b; });
#define SETP_U(S, s) \
    t["setp.equ." s] = Compare<S>::simple([](S a, S b) { return a == b || a != a || b != b; }); \
    t["setp.neu." s] = Compare<S>::simple([](S a, S b) { return a != b; }); \
    t["setp.ltu." s] = Compare<S>::simple([](S a, S b) { return !(a >= b); }); \
    t["setp.leu." s] = Compare<S>::simple([](S a, S b) { return !(a > b); }); \
    t["setp.gtu." s] = Compare<S>::simple([](S a, S b) { return !(a <= b); }); \
    t["setp.geu." s] = Compare<S>::simple([](S a, S b) { return !(a < b); }); \
    t["setp.nan." s] = Compare<S>::simple([](S a, S b) { return a != a || b != b; }); \
    t["setp.num." s] = Compare<S>::simple([](S a, S b) { return a == a && b == b; });
    SETP(S16, "s16") SETP(U16, "u16") SETP(U16, "b16") SETP(S32, "s32") SETP(U32, "u32") SETP(U32, "b32")
    SETP(S64, "s64") SETP(U64, "u64") SETP(U64, "b64") SETP(F32, "f32") SETP(F64, "f64")
    SETP_U(F32, "f32") SETP_U(F64, "f64")
    for (const char* s : {"selp.b32", "selp.u32", "selp.s32", "selp.f32", "selp.b16", "selp.u16", "selp.s16"})
        t[s] = select<U32>();
    for (const char* s : {"selp.b64", "selp.u64", "selp.s64", "selp.f64"}) t[s] = select<U64>();
    t["and.pred"] = predicates(2, [](U32 a, U32 b) { return a & b; });
    t["or.pred"] = predicates(2, [](U32 a, U32 b) { return a | b; });
    t["xor.pred"] = predicates(2, [](U32 a, U32 b) { return a ^ b; });
    t["not.pred"] = predicates(1, [](U32 a, U32) { return ~a; });
    t["mov.pred"] = predicates(1, [](U32 a, U32) { return a; });
    return t;
}

// ---- memory

[[noreturn]] void out_of_bounds(const char* space, uint64_t at, int bytes) {
    fail("%s access of %d bytes at 0x%llx: not allocated", space, bytes, static_cast<unsigned long long>(at));
}

// The lane's place as a host pointer, checked.
template <char SPACE, AccessKind KIND>
char* place(Warp& w, uint64_t at, int bytes, int lane, const char* value = nullptr) {
    constexpr bool kReadsIt = KIND != kWrites, kWritesIt = KIND != kReads;
    Block& b = *w.block;
    if (at % unsigned(bytes))
        fail("address 0x%llx is not aligned to %d bytes", static_cast<unsigned long long>(at),
             bytes);
    if constexpr (SPACE == 's') {
        const Actor actor{&w, lane, KIND, value};
        if (at >> 32) fail("shared address 0x%llx", static_cast<unsigned long long>(at));
        return shared_at(b, uint32_t(at), bytes, kReadsIt, kWritesIt, &actor);
    }
    if constexpr (SPACE == 'p') {
        if (kWritesIt || at + unsigned(bytes) > b.launch->params.size()) out_of_bounds("parameter", at, bytes);
        return const_cast<char*>(b.launch->params.data()) + at;
    }
    if constexpr (SPACE == 0) {     // generic
        const Actor actor{&w, lane, KIND, value};
        if (at >= kSharedWindow && at < kSharedWindow + kWindow)
            return shared_at(b, uint32_t(at - kSharedWindow), bytes, kReadsIt, kWritesIt, &actor);
        if (at >= kParamWindow && at < kParamWindow + kWindow)
            return place<'p', KIND>(w, at - kParamWindow, bytes, lane);
    }
    if (b.launch->dependent && !(w.waited >> lane & 1)) fail("global memory before griddepcontrol.wait");
    if (!memory_has(reinterpret_cast<void*>(at), size_t(bytes))) out_of_bounds("global", at, bytes);
    b.races->global({&w, lane, KIND, value}, at, bytes);
    return reinterpret_cast<char*>(at);
}
uint64_t base_of(Warp& w, const Ins& i, int slot, int lane) {
    return slot < 0 ? 0 : i.base_width == 8 ? w.reg<uint64_t>(slot)[lane] : w.reg<uint32_t>(slot)[lane];
}
template <char SPACE> uint64_t address_of(Warp& w, const Ins& i, int lane) {
    if (i.base_width == 8 || i.a[0] < 0) return base_of(w, i, i.a[0], lane) + uint64_t(i.imm);
    return uint32_t(w.reg<uint32_t>(i.a[0])[lane] + uint32_t(i.imm));
}

template <char SPACE> int load(Warp& w, const Ins& i, uint32_t mask) {
    const int bytes = i.width, all = bytes * i.vec;
    const int32_t* list = w.block->kernel->more.data() + i.list;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        const char* from = place<SPACE, kReads>(w, address_of<SPACE>(w, i, l), all, l);
        for (int v = 0; v < i.vec; v++, from += bytes) {
            uint64_t x = 0;
            std::memcpy(&x, from, size_t(bytes));
            if (i.flags) x = bytes == 1 ? uint64_t(int64_t(int8_t(x))) : bytes == 2 ? uint64_t(int64_t(int16_t(x)))
                           : bytes == 4 ? uint64_t(int64_t(int32_t(x))) : x;
            const int slot = list[2 * v], own = list[2 * v + 1];
            if (own == 8) w.reg<uint64_t>(slot)[l] = x;
            else w.reg<uint32_t>(slot)[l] = own == 2 ? uint16_t(x) : uint32_t(x);
        }
    }
    return kNext;
}
template <char SPACE> int store(Warp& w, const Ins& i, uint32_t mask) {
    const int bytes = i.width, all = bytes * i.vec;
    const int32_t* list = w.block->kernel->more.data() + i.list;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        char value[32];
        for (int v = 0; v < i.vec; v++) {
            const int slot = list[2 * v], own = list[2 * v + 1];
            const uint64_t x = own == 8 ? w.reg<uint64_t>(slot)[l] : w.reg<uint32_t>(slot)[l];
            std::memcpy(value + v * bytes, &x, size_t(bytes));
        }
        std::memcpy(place<SPACE, kWrites>(w, address_of<SPACE>(w, i, l), all, l, value), value, size_t(all));
    }
    return kNext;
}
template <char SPACE> int atomic_add(Warp& w, const Ins& i, uint32_t mask) {
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        const uint64_t at = address_of<SPACE>(w, i, l);
        char* p = place<SPACE, kAtomically>(w, at, 4, l);
        uint32_t x;
        std::memcpy(&x, p, 4);
        const uint32_t sum = x + w.reg<uint32_t>(i.a[2])[l];
        std::memcpy(p, &sum, 4);
        if (i.a[1] >= 0) w.reg<uint32_t>(i.a[1])[l] = x;
    }
    return kNext;
}

// ---- warps

// Waits for all lanes of `members` that have not returned.
bool gathered(Warp& w, uint32_t members) { return (members & w.alive & ~w.mask) == 0; }
void whole(uint32_t mask, const char* what) {
    if (mask != ~0u) fail("%s by lanes %08x: it wants all", what, mask);
}
uint32_t members_of(Warp& w, int slot, uint32_t mask) {
    const uint32_t members = w.reg<uint32_t>(slot)[std::countr_zero(mask)];
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        if (w.reg<uint32_t>(slot)[l] != members) fail("lanes give different member masks");
        if (!(members >> l & 1)) fail("lane %d is not in its member mask %08x", l, members);
    }
    return members;
}

enum Mode { kUp, kDown, kBfly, kIdx };
template <Mode MODE> int shuffle(Warp& w, const Ins& i, uint32_t mask) {
    const uint32_t members = members_of(w, i.a[4], mask);
    if (!gathered(w, members)) return kConverge;
    const uint32_t *a = w.reg<uint32_t>(i.a[1]), *b = w.reg<uint32_t>(i.a[2]), *c = w.reg<uint32_t>(i.a[3]);
    uint32_t out[32], in_range = 0;
    for (uint32_t l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        const uint32_t bv = b[l] & 31, clamp = c[l] & 31, segment = c[l] >> 8 & 31;
        const uint32_t most = (l & segment) | (clamp & ~segment), least = l & segment;
        uint32_t j = 0;
        bool valid = false;
        if (MODE == kUp) j = l - bv, valid = int(j) >= int(most);
        if (MODE == kDown) j = l + bv, valid = int(j) <= int(most);
        if (MODE == kBfly) j = l ^ bv, valid = int(j) <= int(most);
        if (MODE == kIdx) j = least | (bv & ~segment), valid = int(j) <= int(most);
        if (!valid) j = l;
        if (!(mask >> j & 1)) fail("shfl: lane %u reads lane %u, which takes no part", l, j);
        out[l] = a[j];
        in_range |= uint32_t(valid) << l;
    }
    uint32_t* d = w.reg<uint32_t>(i.a[0]);
    for (int l = 0; l < 32; l++) if (mask >> l & 1) d[l] = out[l];
    if (i.a[5] >= 0) w.pr[i.a[5]] = (w.pr[i.a[5]] & ~mask) | (in_range & mask);
    return kNext;
}
int ballot(Warp& w, const Ins& i, uint32_t mask) {
    const uint32_t members = members_of(w, i.a[2], mask);
    if (!gathered(w, members)) return kConverge;
    const uint32_t bits = w.pr[i.a[1]] & mask & members;
    for (int l = 0; l < 32; l++) if (mask >> l & 1) w.reg<uint32_t>(i.a[0])[l] = bits;
    return kNext;
}
int warp_sync(Warp& w, const Ins& i, uint32_t mask) {
    const uint32_t members = members_of(w, i.a[0], mask);
    if (!gathered(w, members)) return kConverge;
    w.block->races->sync_lanes(w, members & w.alive);
    return kNext;
}

// ---- barriers

int barrier(Warp& w, const Ins& i, uint32_t mask, bool wait) {
    if (!gathered(w, ~0u)) return kConverge;
    Block& b = *w.block;
    const int lane = std::countr_zero(mask);
    const uint32_t id = w.reg<uint32_t>(i.a[0])[lane];
    if (id > 15) fail("barrier %u", id);
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1 && w.reg<uint32_t>(i.a[0])[l] != id) fail("lanes at different barriers");
    uint32_t threads = 0;
    if (i.a[1] >= 0) {
        threads = w.reg<uint32_t>(i.a[1])[lane];
        if (!threads || threads % 32 || threads > b.warps.size() * 32) fail("barrier for %u threads", threads);
    }
    Barrier& bar = b.barriers[id];
    const uint32_t expected = threads ? threads : ~0u;
    if (bar.arrived && bar.expected != expected)
        fail("barrier %u: %u threads, and %u before", id, threads, bar.expected);
    bar.expected = expected;
    bar.arrived += 32;
    bar.released.add(w, w.alive);
    w.order.time++;
    if (threads && bar.arrived > threads) fail("barrier %u: more than %u threads", id, threads);
    if (wait) {
        w.barrier = int(id), w.generation = bar.generation;
        return kBarrier;        // the scheduler looks whether it is complete
    }
    return kNext;
}
int bar_sync(Warp& w, const Ins& i, uint32_t mask) { return barrier(w, i, mask, true); }
int bar_arrive(Warp& w, const Ins& i, uint32_t mask) { return barrier(w, i, mask, false); }

// A lane uses the mbarrier that another one has made.
Mbar& mbar_at(Warp& w, int lane, uint32_t at) {
    const auto it = w.block->mbars.find(at);
    if (it == w.block->mbars.end()) fail("no mbarrier at shared address %u", at);
    w.block->races->shared({&w, lane, kLooks}, at, 8, nullptr);
    return it->second;
}
int mbar_init(Warp& w, const Ins& i, uint32_t mask) {
    Block& b = *w.block;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        const uint32_t at = uint32_t(address_of<'s'>(w, i, l)), n = w.reg<uint32_t>(i.a[1])[l];
        if (at % 8 || n < 1 || n >= 1u << 20) fail("mbarrier.init of %u at %u", n, at);
        const Actor actor{&w, l, kWrites};
        shared_at(b, at, 8, false, true, &actor);
        std::memset(b.shadow.data() + at, kBarrierByte, 8);
        b.mbars[at] = {};
        b.mbars[at].expected = b.mbars[at].pending = n;
        b.mbars[at].agent = b.races->mbarrier_agent();
    }
    return kNext;
}
int mbar_arrive(Warp& w, const Ins& i, uint32_t mask) {
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        Mbar& m = mbar_at(w, l, uint32_t(address_of<'s'>(w, i, l)));
        if (!m.pending) fail("mbarrier: more arrivals in a phase than the %u it was made for", m.expected);
        if (i.a[1] >= 0) {
            m.bytes += int(w.reg<uint32_t>(i.a[1])[l]);
            if (m.bytes >= 1 << 20) fail("mbarrier: %d bytes expected", m.bytes);
        }
        m.pending--;
        m.released.add(w, 1u << l);
        m.may_end();
    }
    w.order.time++;
    return kNext;
}
int mbar_try_wait(Warp& w, const Ins& i, uint32_t mask) {
    uint32_t ended = 0;
    Group& g = w.groups[size_t(w.at)];
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        const uint32_t at = uint32_t(address_of<'s'>(w, i, l)), parity = w.reg<uint32_t>(i.a[1])[l];
        if (parity > 1) fail("mbarrier.try_wait: parity %u", parity);
        ended |= uint32_t(mbar_at(w, l, at).phase != parity) << l;
        g.bar[l] = at, g.parity[l] = uint8_t(parity);
    }
    if (!ended && w.block->draw() % 4) {        // sometimes it gives up, as the hardware may
        g.barred = mask;
        return kMbar;
    }
    w.pr[i.a[2]] = (w.pr[i.a[2]] & ~mask) | ended;
    for (uint32_t rest = ended; rest;) {
        const uint32_t at = g.bar[std::countr_zero(rest)];
        uint32_t same = 0;
        for (int l = 0; l < 32; l++) same |= uint32_t(rest >> l & 1 && g.bar[l] == at) << l;
        Mbar& m = w.block->mbars[at];
        m.waited = m.time;
        w.block->races->acquire(w, same, m.ended);
        rest &= ~same;
    }
    return kNext;
}

// ---- ldmatrix, mma, cp.async

template <bool TRANS> int ldmatrix(Warp& w, const Ins& i, uint32_t mask) {
    if (!gathered(w, ~0u)) return kConverge;
    whole(mask, "ldmatrix");
    uint16_t m[32][8];
    for (int l = 0; l < 32; l++) {
        const uint64_t at = address_of<'s'>(
            w, i, l);  // what was never written is NaN: a kernel may load more than it uses
        if (at % 16) fail("ldmatrix: a row at %u, not aligned", uint32_t(at));
        const Actor actor{&w, l, kReads};
        std::memcpy(m[l], shared_at(*w.block, uint32_t(at), 16, false, false, &actor), 16);
    }
    const int32_t* list = w.block->kernel->more.data() + i.list;
    for (int j = 0; j < 4; j++)
        for (int l = 0; l < 32; l++) {
            const int row = l / 4, column = l % 4 * 2;
            const uint16_t low = TRANS ? m[8 * j + column][row] : m[8 * j + row][column];
            const uint16_t high = TRANS ? m[8 * j + column + 1][row] : m[8 * j + row][column + 1];
            w.reg<uint32_t>(list[2 * j])[l] = low | uint32_t(high) << 16;
        }
    return kNext;
}

float low(uint32_t u) { return std::bit_cast<float>(u << 16); }
float high(uint32_t u) { return std::bit_cast<float>(u & 0xffff0000u); }

// SOFT_GPU_SUM: how a tensor core adds. 0 in order of k, in float, then to d; 1 exact, rounded once; 2 with d,
// truncated at 25 bits below the largest term (as is said of hardware).
int sum_mode() {
    static const int mode = std::getenv("SOFT_GPU_SUM") ? std::atoi(std::getenv("SOFT_GPU_SUM")) : 0;
    return mode;
}
float other_sum(const float* a, const float* b, int step, float c) {
    double terms[17], sum = 0;
    for (int k = 0; k < 16; k++) terms[k] = double(a[k]) * double(b[k * step]);
    terms[16] = c;
    if (sum_mode() == 2) {
        double most = 0;
        for (const double t : terms) most = std::fmax(most, std::fabs(t));
        if (most > 0 && std::isfinite(most)) {
            const double unit = std::ldexp(1, std::ilogb(most) - 24);
            for (double& t : terms) t = std::trunc(t / unit) * unit;
            for (const double t : terms) sum += t;
            const float f = float(sum);
            return std::fabs(double(f)) > std::fabs(sum) ? std::nextafter(f, 0.0f) : f;     // toward zero
        }
    }
    for (const double t : terms) sum += t;
    return float(sum);
}

int mma(Warp& w, const Ins& i, uint32_t mask) {
    if (!gathered(w, ~0u)) return kConverge;
    whole(mask, "mma");
    const int32_t* r = w.block->kernel->more.data() + i.list;       // d 4, a 4, b 2, c 4
    alignas(64) float A[16][16], B[16][8], D[16][8];
    for (int j = 0; j < 4; j++) {
        const uint32_t* a = w.reg<uint32_t>(r[4 + j]);
        for (int l = 0; l < 32; l++) {
            float* x = &A[l / 4 + j % 2 * 8][l % 4 * 2 + j / 2 * 8];
            x[0] = low(a[l]), x[1] = high(a[l]);
        }
    }
    for (int j = 0; j < 2; j++) {
        const uint32_t* b = w.reg<uint32_t>(r[8 + j]);
        for (int l = 0; l < 32; l++)
            B[l % 4 * 2 + j * 8][l / 4] = low(b[l]), B[l % 4 * 2 + j * 8 + 1][l / 4] = high(b[l]);
    }
    const bool plain = sum_mode() == 0;
    if (plain)
        for (int m = 0; m < 16; m++) {
            float sum[8] = {};
            for (int k = 0; k < 16; k++)
                for (int n = 0; n < 8; n++) sum[n] += A[m][k] * B[k][n];
            std::memcpy(D[m], sum, sizeof sum);
        }
    for (int j = 0; j < 4; j++) {
        const float* c = w.reg<float>(r[10 + j]);
        float t[32];
        for (int l = 0; l < 32; l++) {
            const int m = l / 4 + j / 2 * 8, n = l % 4 * 2 + j % 2;
            t[l] = plain ? c[l] + D[m][n] : other_sum(A[m], &B[0][n], 8, c[l]);
        }
        std::memcpy(w.reg<float>(r[j]), t, sizeof t);       // d may be c, element by element
    }
    return kNext;
}

void land(Block& b, const CpAsync& c) {
    char* to = shared_at(b, c.dst, 16, false, true);
    std::memset(to, 0, 16);
    if (c.size) std::memcpy(to, c.src, size_t(c.size));
}
int cp_async(Warp& w, const Ins& i, uint32_t mask) {
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        const uint32_t to = uint32_t(address_of<'s'>(w, i, l));
        const uint64_t from = base_of(w, Ins{.base_width = 8}, i.a[1], l) + uint64_t(int64_t(i.list));
        const int size = int(w.reg<uint32_t>(i.a[2])[l]);
        if (size < 0 || size > 16 || to % 16 || from % 16)
            fail("cp.async: %d bytes from 0x%llx to %u", size,
                 static_cast<unsigned long long>(from), to);
        if (size) place<'g', kReads>(w, from, 16, l);
        Actor actor{&w, l, kWrites};
        actor.copy = true;
        shared_at(*w.block, to, 16, false, true, &actor);
        std::memset(w.block->shadow.data() + to, kFresh, 16);       // what is there is not to be read until it lands
        std::memset(w.block->shared.data() + to, 0xff, 16);
        w.copies[l].push_back({to, reinterpret_cast<void*>(from), size, w.commits[l], i.loc});
    }
    return kNext;
}
int cp_commit(Warp& w, const Ins&, uint32_t mask) {
    for (int l = 0; l < 32; l++) if (mask >> l & 1) w.commits[l]++;
    return kNext;
}
int cp_wait(Warp& w, const Ins& i, uint32_t mask) {
    for (int l = 0; l < 32; l++)
        if (mask >> l & 1) land_copies(w, l, w.commits[l] - std::min(w.commits[l], uint64_t(i.imm)));
    return kNext;
}

// ---- TMA

// Rows of the box, one after another; with the swizzle of N bytes bits 4.. of the address are xor-ed with bits 7.. .
int tma_load(Warp& w, const Ins& i, uint32_t mask) {
    Block& b = *w.block;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        const uint32_t to = uint32_t(address_of<'s'>(w, i, l)), bar = w.reg<uint32_t>(i.a[5])[l];
        uint64_t at = w.reg<uint64_t>(i.a[1])[l];
        TensorMap map;
        if (at % 64) fail("tensor map at 0x%llx: not aligned to 64 bytes", static_cast<unsigned long long>(at));
        if (at >= kParamWindow && at + 128 <= kParamWindow + b.launch->params.size())
            std::memcpy(&map, b.launch->params.data() + (at - kParamWindow), sizeof map);
        else
            fail("tensor map at 0x%llx: in no kernel parameter", static_cast<unsigned long long>(at));
        if (map.magic != kMapMagic) fail("no tensor map at 0x%llx", static_cast<unsigned long long>(at));
        if (int(map.rank) != i.n) fail("tensor map of rank %u, instruction of %d", map.rank, i.n);
        if (b.launch->dependent && !(w.waited >> l & 1)) fail("TMA before griddepcontrol.wait");
        const int row_bytes = map.box[0] * 2, span = map.swizzle ? 16 << map.swizzle : 0;
        int rows = 1;
        for (unsigned d = 1; d < map.rank; d++) rows *= map.box[d];
        const uint32_t bytes = uint32_t(row_bytes * rows);
        if (to % (span == 128 ? 1024 : 128)) fail("TMA load to shared address %u: not aligned", to);
        const Mbar& m = mbar_at(w, l, bar);
        if (!m.fenced) fail("TMA load: no fence.mbarrier_init since its barrier was made");
        Actor actor{&w, l, kWrites};
        actor.mbarrier = m.agent, actor.phase = m.time;
        for (uint32_t x = 0; x < bytes; x += 16) shared_at(b, to + x, 16, false, true, &actor);
        std::memset(b.shadow.data() + to, kFresh, bytes);
        std::memset(b.shared.data() + to, 0xff, bytes);
        int32_t from[5] = {};
        for (int d = 0; d < i.n; d++) from[d] = w.reg<int32_t>(i.a[2 + d])[l];
        if (b.kernel->counters) b.kernel->counters->box_bytes += unsigned(bytes);
        const auto start = std::array<int32_t, 5>{from[0], from[1], from[2], from[3], from[4]};
        Actor reader{&w, l, kReads};
        reader.mbarrier = m.agent, reader.phase = m.time, reader.loc = i.loc;
        b.later.push_back([&b, map, to, bar, start, rows, row_bytes, span, bytes, reader] {
            for (int r = 0; r < rows; r++)
                for (int x = 0; x < row_bytes; x += 2) {
                    int64_t place[5] = {start[0] + x / 2};
                    int rest = r;
                    uint64_t offset = uint64_t(place[0]) * 2;
                    bool inside = place[0] >= 0 && uint64_t(place[0]) < map.size[0];
                    for (unsigned d = 1; d < map.rank; d++) {
                        place[d] = start[d] + rest % map.box[d];
                        rest /= map.box[d];
                        inside &= place[d] >= 0 && uint64_t(place[d]) < map.size[d];
                        offset += uint64_t(place[d]) * map.stride[d - 1];
                    }
                    uint32_t dst = to + uint32_t(r * row_bytes + x);
                    if (span) dst ^= (dst >> 7 & (unsigned(span) / 16 - 1)) << 4;
                    uint16_t value = 0;
                    if (inside) {
                        const void* p = reinterpret_cast<void*>(map.address + offset);
                        if (!memory_has(p, 2))
                            fail("TMA load of element (%lld, %lld): not allocated",
                                 static_cast<long long>(place[0]),
                                 static_cast<long long>(place[1]));
                        std::memcpy(&value, p, 2);
                        const uint64_t left = (map.size[0] - uint64_t(place[0])) * 2;       // bytes to the row's end
                        const uint64_t at = map.address + offset;
                        if (b.kernel->counters && x == 0)
                            count_box(b, p, unsigned(std::min(uint64_t(row_bytes), left)));
                        if (x == 0 || at % 16 == 0)
                            b.races->global(reader, at, int(std::min({16 - at % 16, uint64_t(row_bytes - x), left})));
                    }
                    std::memcpy(b.shared.data() + dst, &value, 2);
                }
            std::memset(b.shadow.data() + to, kSet, bytes);
            b.landed(bar, int(bytes));
        });
    }
    return kNext;
}

// ---- wgmma

// Eight elements along the major dimension at (mn, k): where a descriptor says they are. Source: CUTLASS's canonical
// layouts, in units of 16 bytes: K-major ((8,m),(T,2)):((8T,SBO),(1,T)), MN-major ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)),
// swizzled by the address's own bits.
uint32_t chunk(uint64_t desc, uint32_t mn, uint32_t k, bool mn_major) {
    const uint32_t start = uint32_t(desc & 0x3fff) << 4, lbo = uint32_t(desc >> 16 & 0x3fff) << 4;
    const uint32_t sbo = uint32_t(desc >> 32 & 0x3fff) << 4, base = uint32_t(desc >> 49 & 7),
                   mode = uint32_t(desc >> 62);
    if (mode != 1) fail("wgmma: swizzle mode %u", mode);
    if (base) fail("wgmma: base offset %u", base);
    if ((desc >> 14 & 3) || (desc >> 30 & 3) || (desc >> 46 & 7) || (desc >> 52 & 0x3ff))
        fail("wgmma: descriptor %016llx", static_cast<unsigned long long>(desc));
    if (start >> 7 & 7) fail("wgmma: a tile at %u with base offset 0: not at a multiple of 1024", start);
    uint32_t at = start;
    if (mn_major) at += mn / 64 * lbo + mn % 64 * 2 + k / 8 * sbo + k % 8 * 128;
    else at += mn / 8 * sbo + mn % 8 * 128 + k * 2;
    at ^= (at >> 7 & 7) << 4;
    return at;
}
// x[mn * by_mn + k * by_k], for `rows` mn from `begin` on and 16 k, becomes what the descriptor shows.
void read_tile(Warp& w, uint64_t desc, int begin, int rows, bool mn_major, float* x, int by_mn, int by_k) {
    const int next = mn_major ? by_mn : by_k;
    for (int mn = 0; mn < rows; mn += mn_major ? 8 : 1)
        for (int k = 0; k < 16; k += mn_major ? 1 : 8) {
            const uint32_t at = chunk(desc, uint32_t(begin + mn), uint32_t(k), mn_major);
            uint16_t c[8];
            std::memcpy(c, shared_at(*w.block, at, 16, true, false), 16);
            for (int e = 0; e < 8; e++)
                x[mn * by_mn + k * by_k + e * next] = std::bit_cast<float>(uint32_t(c[e]) << 16);
        }
}
void mark(Warp& w, const Ins& i, uint8_t accumulator, uint8_t operand) {
    const int32_t* r = w.block->kernel->more.data() + i.list;
    const int n = int(i.imm) / 2;
    for (int j = 0; j < i.list_n; j++) w.busy[size_t(r[j] / 128)] = j < n ? accumulator : operand;
}
int wgmma(Warp& w, const Ins& i, uint32_t mask) {
    if (!gathered(w, ~0u)) return kConverge;
    whole(mask, "wgmma");
    if (w.block->warps.size() < size_t(w.id / 4 * 4 + 4)) fail("wgmma: not a whole warpgroup");
    if (!w.fenced) fail("wgmma: no wgmma.fence before it");
    const int32_t* r = w.block->kernel->more.data() + i.list;
    for (int j = 0; j < i.list_n; j++)
        if (w.written[size_t(r[j] / 128)] >= w.fences)
            fail("wgmma: register %d of its was written since wgmma.fence", j);
    const auto same = [&](int slot, const char* what) {
        const uint64_t x = w.reg<uint64_t>(slot)[0];
        for (int l = 1; l < 32; l++) if (w.reg<uint64_t>(slot)[l] != x) fail("wgmma: lanes give different %s", what);
        return x;
    };
    const uint32_t p = w.pr[i.a[2]];
    if (p && p != ~0u) fail("wgmma: lanes give different scale-d");
    w.mmas.push_back({&i, i.flags ? 0 : same(i.a[0], "A"), same(i.a[1], "B"), p != 0, w.order.time});
    const Actor core{&w, -1, kReads};
    const auto reads = [&](uint64_t desc, int begin, int end, bool mn_major) {
        for (int mn = begin; mn < end; mn += mn_major ? 8 : 1)
            for (int k = 0; k < 16; k += mn_major ? 1 : 8)
                shared_at(*w.block, chunk(desc, uint32_t(mn), uint32_t(k), mn_major), 16, false, false, &core);
    };
    const int row = w.id % 4 * 16;
    if (!i.flags) reads(w.mmas.back().a, row, row + 16, i.a[3]);
    reads(w.mmas.back().b, 0, int(i.imm), i.a[4]);
    mark(w, i, 2, 1);
    w.in_flight++;
    return kNext;
}
int wgmma_fence(Warp& w, const Ins&, uint32_t mask) {
    if (!gathered(w, ~0u)) return kConverge;
    whole(mask, "wgmma.fence");
    w.fenced = true;
    w.fences++;
    return kNext;
}
int wgmma_commit(Warp& w, const Ins&, uint32_t mask) {
    if (!gathered(w, ~0u)) return kConverge;
    whole(mask, "wgmma.commit_group");
    w.mma_groups.push_back(w.mmas.size());
    w.order.time++;
    return kNext;
}
int wgmma_wait(Warp& w, const Ins& i, uint32_t mask) {
    if (!gathered(w, ~0u)) return kConverge;
    whole(mask, "wgmma.wait_group");
    finish_wgmma(w, size_t(i.imm));
    return kNext;
}

void carry_out(Warp& w, const Wgmma& g) {
    static thread_local float A[16][16], B[16][256], D[256];     // A[m][k], B[k][n]
    const Ins& i = *g.ins;
    const int32_t* r = w.block->kernel->more.data() + i.list;
    const int n = int(i.imm), row = w.id % 4 * 16;
    w.loc = i.loc;
    if (i.flags) {
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 32; l++) {
                const uint32_t x = w.reg<uint32_t>(r[n / 2 + j])[l];
                float* a = &A[l / 4 + j % 2 * 8][l % 4 * 2 + j / 2 * 8];
                a[0] = low(x), a[1] = high(x);
            }
    } else {
        read_tile(w, g.a, row, 16, i.a[3], A[0], 16, 1);
    }
    read_tile(w, g.b, 0, n, i.a[4], B[0], 1, 256);
    const bool plain = sum_mode() == 0;
    for (int m = 0; m < 16; m++) {
        if (plain) {
            for (int x = 0; x < n; x++) D[x] = 0;
            for (int k = 0; k < 16; k++)
                for (int x = 0; x < n; x++) D[x] += A[m][k] * B[k][x];
        }
        for (int x = 0; x < n; x++) {
            float& d = w.reg<float>(r[x / 8 * 4 + m / 8 * 2 + x % 2])[m % 8 * 4 + x % 8 / 2];
            if (plain) d = g.accumulate ? d + D[x] : D[x];
            else d = other_sum(A[m], &B[0][x], 256, g.accumulate ? d : 0);
        }
    }
}

int nothing(Warp&, const Ins&, uint32_t) { return kNext; }
int async_fence(Warp& w, const Ins&, uint32_t mask) {
    w.block->races->pass_on(w, mask);
    return kNext;
}
int mbar_fence(Warp& w, const Ins&, uint32_t) {
    for (auto& [at, m] : w.block->mbars) m.fenced = true;
    return kNext;
}
int dependency_wait(Warp& w, const Ins&, uint32_t mask) {
    w.waited |= mask;
    return kNext;
}
int launch_dependents(Warp& w, const Ins&, uint32_t mask) {
    if (w.block->launch->dependent && (mask & ~w.waited)) fail("griddepcontrol.launch_dependents before the wait");
    return kNext;
}
int set_registers(Warp& w, const Ins& i, uint32_t mask) {
    if (!gathered(w, ~0u)) return kConverge;
    whole(mask, "setmaxnreg");
    if (i.imm % 8 || i.imm < 24 || i.imm > 256) fail("setmaxnreg %lld", static_cast<long long>(i.imm));
    return kNext;
}
int trap(Warp&, const Ins&, uint32_t) { fail("trap"); }

int unpack(Warp& w, const Ins& i, uint32_t mask) {
    const int32_t* list = w.block->kernel->more.data() + i.list;
    const int bits = i.width * 8 / i.list_n;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        const uint64_t x = i.width == 8 ? w.reg<uint64_t>(i.a[0])[l] : w.reg<uint32_t>(i.a[0])[l];
        for (int v = 0; v < i.list_n; v++)
            if (list[2 * v] >= 0)
                w.reg<uint32_t>(list[2 * v])[l] =
                    uint32_t(x >> v * bits) & (bits == 32 ? ~0u : 0xffffu);
    }
    return kNext;
}
int pack(Warp& w, const Ins& i, uint32_t mask) {
    const int32_t* list = w.block->kernel->more.data() + i.list;
    const int bits = i.width * 8 / i.list_n;
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t x = 0;
        for (int v = 0; v < i.list_n; v++) x |= uint64_t(w.reg<uint32_t>(list[2 * v])[l]) << v * bits;
        if (i.width == 8) w.reg<uint64_t>(i.a[0])[l] = x;
        else w.reg<uint32_t>(i.a[0])[l] = uint32_t(x);
    }
    return kNext;
}
template <class T> int move(Warp& w, const Ins& i, uint32_t mask) {
    return map_lanes<T, decltype([](T a) { return a; }), T>(w, i, mask, {}, std::index_sequence<0>());
}

}  // namespace

// ---- tables

const Simple* find_simple(const std::string& op) {
    static const auto table = make_simple();
    const auto it = table.find(op);
    return it == table.end() ? nullptr : &it->second;
}
Fn memory_op(const std::string& space, bool store_) {
    if (space == "global" || space == "global.nc" || space == "global.wb") return store_ ? store<'g'> : load<'g'>;
    if (space == "shared") return store_ ? store<'s'> : load<'s'>;
    if (space == "param") return store_ ? nullptr : load<'p'>;
    if (space.empty()) return store_ ? store<0> : load<0>;
    return nullptr;
}
Fn unpack_op() { return unpack; }
Fn pack_op() { return pack; }
Fn mov_op(int width) { return width == 8 ? Fn(move<uint64_t>) : Fn(move<uint32_t>); }
Fn shuffle_op(const std::string& op) {
    if (op == "shfl.sync.bfly.b32") return shuffle<kBfly>;
    if (op == "shfl.sync.idx.b32") return shuffle<kIdx>;
    if (op == "shfl.sync.up.b32") return shuffle<kUp>;
    if (op == "shfl.sync.down.b32") return shuffle<kDown>;
    fail("unknown instruction %s", op.c_str());
}
Fn wgmma_op() { return wgmma; }
Fn other_op(const std::string& op) {
    static const std::unordered_map<std::string, Fn> table = {
        {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", mma},
        {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", ldmatrix<false>},
        {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ldmatrix<true>},
        {"cp.async.cg.shared.global.L2::128B", cp_async},
        {"cp.async.commit_group", cp_commit},
        {"cp.async.wait_group", cp_wait},
        {"bar.sync", bar_sync},
        {"bar.arrive", bar_arrive},
        {"bar.warp.sync", warp_sync},
        {"vote.sync.ballot.b32", ballot},
        {"atom.global.add.u32", atomic_add<'g'>},
        {"atom.shared.add.u32", atomic_add<'s'>},
        {"mbarrier.init.shared::cta.b64", mbar_init},
        {"mbarrier.arrive.shared::cta.b64", mbar_arrive},
        {"mbarrier.arrive.expect_tx.shared::cta.b64", mbar_arrive},
        {"mbarrier.try_wait.parity.shared::cta.b64", mbar_try_wait},
        {"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes", tma_load},
        {"cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes", tma_load},
        {"wgmma.fence.sync.aligned", wgmma_fence},
        {"wgmma.commit_group.sync.aligned", wgmma_commit},
        {"wgmma.wait_group.sync.aligned", wgmma_wait},
        {"fence.mbarrier_init.release.cluster", mbar_fence},
        {"fence.proxy.async.shared::cta", async_fence},
        {"prefetch.tensormap", nothing},
        {"griddepcontrol.wait", dependency_wait},
        {"griddepcontrol.launch_dependents", launch_dependents},
        {"setmaxnreg.inc.sync.aligned.u32", set_registers},
        {"setmaxnreg.dec.sync.aligned.u32", set_registers},
        {"trap", trap},
    };
    const auto it = table.find(op);
    return it == table.end() ? nullptr : it->second;
}

void land_copies(Warp& w, int lane, uint64_t before) {
    std::vector<CpAsync>& q = w.copies[lane];
    size_t n = 0;
    for (; n < q.size() && q[n].group < before; n++) {
        land(*w.block, q[n]);
        w.block->races->landed(w, lane, q[n].dst);
    }
    q.erase(q.begin(), q.begin() + std::ptrdiff_t(n));
}
void finish_wgmma(Warp& w, size_t keep) {
    if (w.mma_groups.size() <= keep) return;
    const size_t old = w.mma_groups.size() - keep, end = w.mma_groups[old - 1];
    for (size_t j = 0; j < end; j++) carry_out(w, w.mmas[j]);
    if (end) w.block->races->finish_wgmmas(w, w.mmas[end - 1].time);
    for (size_t j = 0; j < end; j++) mark(w, *w.mmas[j].ins, 0, 0);
    w.mmas.erase(w.mmas.begin(), w.mmas.begin() + std::ptrdiff_t(end));
    for (const Wgmma& g : w.mmas) mark(w, *g.ins, 2, 1);
    w.mma_groups.erase(w.mma_groups.begin(), w.mma_groups.begin() + std::ptrdiff_t(old));
    for (size_t& g : w.mma_groups) g -= end;
    w.in_flight = w.mmas.size();
}

}  // namespace ptx
