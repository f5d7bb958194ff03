// arithmetic.cpp -- instructions that compute a lane's result from the lane's own registers: d = f(a, b, c).
//
// Each is a row: its name, and f as a function of C++, whose types say what the registers are. A bool is a predicate.
// Source: PTX ISA 9.0, "Instruction Set", the sections on integer and floating point arithmetic, comparison and
// selection, logic and shift, and data conversion.
#include <algorithm>
#include <bit>
#include <cmath>
#include "engine.h"

namespace ptx {
namespace {

using U16 = uint16_t;
using S16 = int16_t;
using U32 = uint32_t;
using S32 = int32_t;
using U64 = uint64_t;
using S64 = int64_t;
using F32 = float;
using F64 = double;

template <class T> constexpr bool kIsPredicate = std::is_same_v<T, bool>;
// The words of Instruction::operands for one that is written, and for one that is read.
template <class T> constexpr const char* kLetters = kIsPredicate<T> ? "qp" : sizeof(T) == 8 ? "es" : "dr";
// What a lane's register holds.
template <class T> using Slot = std::conditional_t<(sizeof(T) < 4), uint32_t, T>;

template <class T> inline T operand(const Warp& w, int slot, int lane) {
    if constexpr (kIsPredicate<T>) return w.pr[slot] >> lane & 1;
    else return T(w.reg<Slot<T>>(slot)[lane]);
}
// One of 16 bits has zeros above; a number of 8 bits is in one, with its sign.
template <class T> inline Slot<T> slot_of(T x) {
    if constexpr (sizeof(T) < 4) return uint16_t(x);
    else return x;
}
// Executes F in the lanes of the mask. A full warp's results stand in an array first, so that the compiler vectorizes.
template <class F, class D, class... S, size_t... I>
inline Result execute(Warp& w, const Ins& i, uint32_t mask, std::index_sequence<I...>) {
    const auto value = [&](int lane) { return F()(operand<S>(w, i.a[1 + I], lane)...); };
    if constexpr (kIsPredicate<D>) {
        uint32_t bits = 0;
        for (int lane = 0; lane < 32; lane++) bits |= uint32_t(value(lane)) << lane;
        w.set_predicate(i.a[0], mask, bits);
    } else if (mask == ~0u) {
        alignas(64) Slot<D> all[32];
        for (int lane = 0; lane < 32; lane++) all[lane] = slot_of<D>(value(lane));
        std::memcpy(w.reg<Slot<D>>(i.a[0]), all, sizeof all);
    } else {
        each_lane(mask, [&](int lane) { w.reg<Slot<D>>(i.a[0])[lane] = slot_of<D>(value(lane)); });
    }
    return kNext;
}

struct Table {
    Instructions& rows;

    // F has no state: its type is all that the row needs.
    template <class F> void add(const std::string& name, F) { rows[name] = row<F>(&F::operator()); }
    template <class F, class D, class... S> static Instruction row(D (F::*)(S...) const) {
        const Fn fn = [](Warp& w, const Ins& i, uint32_t mask) {
            return execute<F, D, S...>(w, i, mask, std::index_sequence_for<S...>());
        };
        std::string operands = format("%c0", kLetters<D>[0]);
        int n = 0;
        ((operands += format(", %c%d", kLetters<S>[1], ++n)), ...);
        return {fn, operands};
    }
};

// ---- families

// ".u32"
template <class T> std::string name_of() { return (std::is_signed_v<T> ? ".s" : ".u") + std::to_string(sizeof(T) * 8); }

// a * b + c rounded down. s + error is exact: a product of two floats is a double, and error is what the sum loses.
inline F32 fma_down(F32 a, F32 b, F32 c) {
    const F64 product = F64(a) * b, s = product + c, part = s - product, error = (product - (s - part)) + (c - part);
    const F32 rounded = F32(s);
    const bool above = F64(rounded) > s || (F64(rounded) == s && error < 0);
    return above ? std::nextafter(rounded, -INFINITY) : rounded;
}

template <class T> T divisor(T b) {
    if (b == 0) fail("division by zero");
    return b;
}
// Comparisons that a NaN makes false.
template <class T> void add_comparisons(Table& t, const std::string& type) {
    t.add("setp.eq" + type, [](T a, T b) { return a == b; });
    t.add("setp.ne" + type, [](T a, T b) { return a < b || a > b; });
    t.add("setp.lt" + type, [](T a, T b) { return a < b; });
    t.add("setp.le" + type, [](T a, T b) { return a <= b; });
    t.add("setp.gt" + type, [](T a, T b) { return a > b; });
    t.add("setp.ge" + type, [](T a, T b) { return a >= b; });
}
template <class T> void add_floats(Table& t, const std::string& type) {
    for (const std::string round : {"", ".rn"}) {
        t.add("add" + round + type, [](T a, T b) { return a + b; });
        t.add("sub" + round + type, [](T a, T b) { return a - b; });
        t.add("mul" + round + type, [](T a, T b) { return a * b; });
    }
    t.add("fma.rn" + type, [](T a, T b, T c) { return std::fma(a, b, c); });
    t.add("div.rn" + type, [](T a, T b) { return a / b; });
    t.add("rcp.rn" + type, [](T a) { return T(1) / a; });
    t.add("sqrt.rn" + type, [](T a) { return std::sqrt(a); });
    t.add("neg" + type, [](T a) { return -a; });
    t.add("abs" + type, [](T a) { return std::fabs(a); });
    t.add("mov" + type, [](T a) { return a; });
    add_comparisons<T>(t, type);
    // Those that a NaN makes true, and two that ask for it.
    t.add("setp.equ" + type, [](T a, T b) { return !(a < b || a > b); });
    t.add("setp.neu" + type, [](T a, T b) { return a != b; });
    t.add("setp.ltu" + type, [](T a, T b) { return !(a >= b); });
    t.add("setp.leu" + type, [](T a, T b) { return !(a > b); });
    t.add("setp.gtu" + type, [](T a, T b) { return !(a <= b); });
    t.add("setp.geu" + type, [](T a, T b) { return !(a < b); });
    t.add("setp.nan" + type, [](T a, T b) { return a != a || b != b; });
    t.add("setp.num" + type, [](T a, T b) { return a == a && b == b; });
}
// Sums and products of signed numbers have the bits of unsigned ones.
template <class U, class S> void add_integers(Table& t) {
    constexpr U32 kBits = sizeof(U) * 8;
    const std::string u = name_of<U>(), s = name_of<S>(), b = ".b" + u.substr(2);
    for (const std::string& type : {u, s}) {
        t.add("add" + type, [](U x, U y) { return U(x + y); });
        t.add("sub" + type, [](U x, U y) { return U(x - y); });
        t.add("mul.lo" + type, [](U x, U y) { return U(U64(x) * y); });
        t.add("mad.lo" + type, [](U x, U y, U z) { return U(U64(x) * y + z); });
        t.add("mov" + type, [](U x) { return x; });
    }
    t.add("mov" + b, [](U x) { return x; });
    t.add("neg" + s, [](U x) { return U(0 - x); });
    t.add("abs" + s, [](S x) { return U(x < 0 ? 0 - U(x) : U(x)); });
    t.add("max" + u, [](U x, U y) { return std::max(x, y); });
    t.add("max" + s, [](S x, S y) { return U(std::max(x, y)); });
    t.add("min" + u, [](U x, U y) { return std::min(x, y); });
    t.add("min" + s, [](S x, S y) { return U(std::min(x, y)); });
    t.add("div" + u, [](U x, U y) { return U(x / divisor(y)); });
    t.add("div" + s, [](S x, S y) { return U(y == -1 ? 0 - U(x) : U(x / divisor(y))); });
    t.add("rem" + u, [](U x, U y) { return U(x % divisor(y)); });
    t.add("rem" + s, [](S x, S y) { return U(y == -1 ? 0 : x % divisor(y)); });
    t.add("and" + b, [](U x, U y) { return U(x & y); });
    t.add("or" + b, [](U x, U y) { return U(x | y); });
    t.add("xor" + b, [](U x, U y) { return U(x ^ y); });
    t.add("not" + b, [](U x) { return U(~x); });
    t.add("shl" + b, [](U x, U32 n) { return U(n < kBits ? x << n : 0); });
    t.add("shr" + u, [](U x, U32 n) { return U(n < kBits ? x >> n : 0); });
    t.add("shr" + s, [](S x, U32 n) { return U(x >> std::min(n, kBits - 1)); });
    t.add("cvt.rn.f32" + u, [](U x) { return F32(x); });
    t.add("cvt.rn.f32" + s, [](S x) { return F32(x); });
    t.add("cvt.rn.f64" + u, [](U x) { return F64(x); });
    t.add("cvt.rn.f64" + s, [](S x) { return F64(x); });
    add_comparisons<U>(t, u);
    add_comparisons<U>(t, b);
    add_comparisons<S>(t, s);
}
template <class D, class... S> void add_conversions_to(Table& t) {
    (t.add("cvt" + name_of<D>() + name_of<S>(), [](S x) { return D(x); }), ...);
}
template <class... T> void add_conversions(Table& t) { (add_conversions_to<T, T...>(t), ...); }

void add_predicates(Table& t) {
    t.add("mov.pred", [](bool p) { return p; });
    t.add("not.pred", [](bool p) { return !p; });
    t.add("and.pred", [](bool p, bool q) { return p && q; });
    t.add("or.pred", [](bool p, bool q) { return p || q; });
    t.add("xor.pred", [](bool p, bool q) { return p != q; });
    for (const std::string type : {"b", "u", "s", "f"}) {
        t.add("selp." + type + "16", [](U16 a, U16 b, bool p) { return p ? a : b; });
        t.add("selp." + type + "32", [](U32 a, U32 b, bool p) { return p ? a : b; });
        t.add("selp." + type + "64", [](U64 a, U64 b, bool p) { return p ? a : b; });
    }
}

// ---- others

// Returns a whole number; what is too large becomes the largest, and a NaN 0.
S32 to_s32(F32 x) { return std::isnan(x) ? 0 : x < 0x1p31f ? S32(std::fmax(x, -0x1p31f)) : 0x7fffffff; }

// Returns x as bf16, rounded to nearest, ties to even; a NaN becomes 0x7fff (cvt).
U32 bf16_bits(float x) {
    if (std::isnan(x)) return 0x7fff;
    const U32 bits = std::bit_cast<U32>(x);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
// Returns x, or a zero of its sign where x is denormal (.ftz).
float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
float exp2_of(float x) { return float(std::exp2(double(x))); }
float rsqrt_of(float x) { return float(1 / std::sqrt(double(x))); }

// max.f32 returns the number where one is a NaN, and takes +0 for larger than -0.
float larger(float a, float b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
    return a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}
// prmt: each digit of c chooses a byte of b, a; with bit 3 set it chooses that byte's sign eight times.
U32 permute(U32 a, U32 b, U32 c) {
    U32 d = 0;
    for (int j = 0; j < 4; j++) {
        const U32 digit = c >> 4 * j & 15;
        const U32 byte = U32((U64(b) << 32 | a) >> 8 * (digit & 7)) & 255;
        d |= (digit < 8 ? byte : byte < 128 ? 0 : 255) << 8 * j;
    }
    return d;
}
// bfe: `length` bits of a from bit `at` on; bfi: b with `length` bits of a there.
template <class U> U extracted(U a, U32 at, U32 length) {
    constexpr U32 kBits = sizeof(U) * 8;
    at &= 255;
    length &= 255;
    return at < kBits ? a >> at & (length < kBits ? (U(1) << length) - 1 : ~U(0)) : 0;
}
template <class U> U inserted(U a, U b, U32 at, U32 length) {
    const U mask = extracted(~U(0), 0, length);
    at &= 255;
    return at < sizeof(U) * 8 ? (b & ~(mask << at)) | (a & mask) << at : b;
}
U32 reversed(U32 a) {
    U32 d = 0;
    for (int j = 0; j < 32; j++) d |= (a >> j & 1) << (31 - j);
    return d;
}

}  // namespace

void add_arithmetic(Instructions& table) {
    Table t{table};
    add_floats<F32>(t, ".f32");
    add_floats<F64>(t, ".f64");
    add_integers<U16, S16>(t);
    add_integers<U32, S32>(t);
    add_integers<U64, S64>(t);
    add_conversions<uint8_t, int8_t, U16, S16, U32, S32, U64, S64>(t);
    add_predicates(t);
    t.add("max.f32", [](F32 a, F32 b) { return larger(a, b); });
    t.add("min.f32", [](F32 a, F32 b) { return -larger(-a, -b); });
    t.add("ex2.approx.f32", [](F32 a) { return exp2_of(a); });
    t.add("ex2.approx.ftz.f32", [](F32 a) { return flushed(exp2_of(flushed(a))); });
    t.add("lg2.approx.f32", [](F32 a) { return F32(std::log2(F64(a))); });
    t.add("rsqrt.approx.f32", [](F32 a) { return rsqrt_of(a); });
    t.add("rsqrt.approx.ftz.f32", [](F32 a) { return flushed(rsqrt_of(flushed(a))); });
    t.add("mul.hi.s32", [](S32 a, S32 b) { return S32(S64(a) * b >> 32); });
    t.add("mul.hi.u32", [](U32 a, U32 b) { return U32(U64(a) * b >> 32); });
    t.add("mul.hi.s64", [](S64 a, S64 b) { return S64(static_cast<__int128>(a) * b >> 64); });
    t.add("fma.rm.f32", [](F32 a, F32 b, F32 c) { return fma_down(a, b, c); });
    t.add("mul.hi.u64", [](U64 a, U64 b) { return U64(static_cast<unsigned __int128>(a) * b >> 64); });
    t.add("mul.wide.s16", [](S16 a, S16 b) { return S32(a) * b; });
    t.add("mul.wide.u16", [](U16 a, U16 b) { return U32(a) * b; });
    t.add("mul.wide.s32", [](S32 a, S32 b) { return S64(a) * b; });
    t.add("mul.wide.u32", [](U32 a, U32 b) { return U64(a) * b; });
    t.add("mad.wide.s32", [](S32 a, S32 b, U64 c) { return U64(S64(a) * b) + c; });
    t.add("mad.wide.u32", [](U32 a, U32 b, U64 c) { return U64(a) * b + c; });
    t.add("bfe.u32", [](U32 a, U32 at, U32 length) { return extracted(a, at, length); });
    t.add("bfe.u64", [](U64 a, U32 at, U32 length) { return extracted(a, at, length); });
    t.add("bfi.b32", [](U32 a, U32 b, U32 at, U32 length) { return inserted(a, b, at, length); });
    t.add("bfi.b64", [](U64 a, U64 b, U32 at, U32 length) { return inserted(a, b, at, length); });
    t.add("bfind.u32", [](U32 a) { return a ? 31 - U32(std::countl_zero(a)) : ~0u; });
    t.add("bfind.shiftamt.u32", [](U32 a) { return a ? U32(std::countl_zero(a)) : ~0u; });
    t.add("clz.b32", [](U32 a) { return U32(std::countl_zero(a)); });
    t.add("popc.b32", [](U32 a) { return U32(std::popcount(a)); });
    t.add("brev.b32", [](U32 a) { return reversed(a); });
    t.add("prmt.b32", [](U32 a, U32 b, U32 c) { return permute(a, b, c); });
    t.add("shf.l.wrap.b32", [](U32 a, U32 b, U32 n) { return U32((U64(b) << 32 | a) << (n & 31) >> 32); });
    t.add("shf.r.wrap.b32", [](U32 a, U32 b, U32 n) { return U32((U64(b) << 32 | a) >> (n & 31)); });

    t.add("cvt.rn.f32.f64", [](F64 a) { return F32(a); });
    t.add("cvt.f64.f32", [](F32 a) { return F64(a); });
    t.add("cvt.sat.f32.f32", [](F32 a) { return a > 0 ? std::fmin(a, 1.0f) : 0.0f; });       // a NaN becomes 0
    t.add("cvt.rpi.f32.f32", [](F32 a) { return std::ceil(a); });
    t.add("cvt.rmi.f32.f32", [](F32 a) { return std::floor(a); });
    t.add("cvt.rzi.f32.f32", [](F32 a) { return std::trunc(a); });
    t.add("cvt.rni.f32.f32", [](F32 a) { return std::nearbyint(a); });
    t.add("cvt.rzi.s32.f32", [](F32 a) { return to_s32(std::trunc(a)); });
    t.add("cvt.rni.s32.f32", [](F32 a) { return to_s32(std::nearbyint(a)); });
    t.add("cvt.rzi.u32.f32", [](F32 a) { return !(a > 0) ? 0 : a < 0x1p32f ? U32(a) : ~0u; });
    t.add("cvt.rn.bf16x2.f32", [](F32 a, F32 b) { return bf16_bits(a) << 16 | bf16_bits(b); });

    // Generic addresses: those of global memory are the host's own.
    t.add("cvta.global.u64", [](U64 a) { return a; });
    t.add("cvta.to.shared.u64", [](U64 a) { return a - kSharedWindow; });
    t.add("cvta.to.global.u64", [](U64 a) { return a; });
    t.add("cvta.shared.u64", [](U64 a) { return a + kSharedWindow; });
    t.add("cvta.param.u64", [](U64 a) { return a + kParamWindow; });
    t.add("cvta.to.local.u64", [](U64 a) { return a - kLocalWindow; });
    t.add("cvta.local.u64", [](U64 a) { return a + kLocalWindow; });
}

}  // namespace ptx
