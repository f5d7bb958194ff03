// same_math.h -- log, exp, pow, sin and cos with the same bits on every CPU; C libraries differ in the last bit.
// Each is a fixed sequence of +, -, * and /, which IEEE 754 rounds in one way, and of bit operations. -ffp-contract=off
// keeps compilers from fusing * and +. CUDA compilers fuse them and give other bits. The relative error is up to 4e-16,
// and (1 + |y log x|) times that for same_pow; the absolute error of same_sin and same_cos is up to 2e-16. The method
// reduces the argument to a short interval, with a constant in two parts so that the first product is exact (Cody and
// Waite 1980), and then sums a Taylor series.
#pragma once
#include <bit>
#include "src/base/rng.h"

// Returns c0 + x (c1 + x (c2 + ...)).
HOST_DEVICE static inline double horner(double, double c0) { return c0; }
template <class... C> HOST_DEVICE static inline double horner(double x, double c0, C... c) {
    return c0 + x * horner(x, c...);
}

constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kQuarterHigh = 0x1.921fb544p+0, kQuarterLow = 0x1.0b4611a626331p-34;       // pi / 2
constexpr double kToInteger = 0x1.8p52;         // adding it rounds to an integer, in the lowest bits

// log(x) for finite x >= 2^-1022. With x = 2^n m, sqrt(1/2) <= m < sqrt(2): log m = 2 artanh(s), s = (m - 1) / (m + 1).
HOST_DEVICE static inline double same_log(double x) {
    constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcd;      // the bits of sqrt(1/2)
    const uint64_t bits = std::bit_cast<uint64_t>(x) - kRootHalf;
    const double n = double(int64_t(bits) >> 52), m = std::bit_cast<double>((bits & 0xfffffffffffff) + kRootHalf);
    const double s = (m - 1) / (m + 1), z = s * s;
    const double tail = horner(z, 2 / 3., 2 / 5., 2 / 7., 2 / 9., 2 / 11., 2 / 13., 2 / 15., 2 / 17., 2 / 19., 2 / 21.);
    return n * kLn2High + (2 * s + (s * z * tail + n * kLn2Low));
}

// e^x; 0 for x < -708, infinite for x > 709. With x = n log 2 + r: 2^n e^r.
HOST_DEVICE static inline double same_exp(double x) {
    if (x < -708) return 0;
    if (x > 709) return __builtin_inf();
    const double shifted = x * (1 / (kLn2High + kLn2Low)) + kToInteger, n = shifted - kToInteger;
    const double r = (x - n * kLn2High) - n * kLn2Low;
    const double p = horner(r, 1., 1., 1 / 2., 1 / 6., 1 / 24., 1 / 120., 1 / 720., 1 / 5040., 1 / 40320., 1 / 362880.,
                            1 / 3628800., 1 / 39916800., 1 / 479001600., 1 / 6227020800.);
    return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

// x^y for x >= 0, y > 0.
HOST_DEVICE static inline double same_pow(double x, double y) { return x > 0 ? same_exp(y * same_log(x)) : 0; }

// sin(x + quarters pi / 2) for |x| < 1.6e6. With x = n pi / 2 + r: plus or minus the sine or the cosine of r.
HOST_DEVICE static inline double same_sin(double x, int quarters = 0) {
    const double shifted = x * (1 / (kQuarterHigh + kQuarterLow)) + kToInteger, n = shifted - kToInteger;
    const double r = (x - n * kQuarterHigh) - n * kQuarterLow, z = -(r * r);
    const uint64_t turn = std::bit_cast<uint64_t>(shifted) + uint64_t(quarters);
    const double sine = r * horner(z, 1., 1 / 6., 1 / 120., 1 / 5040., 1 / 362880., 1 / 39916800., 1 / 6227020800.,
                                   1 / 1307674368000.);
    const double cosine = horner(z, 1., 1 / 2., 1 / 24., 1 / 720., 1 / 40320., 1 / 3628800., 1 / 479001600.,
                                 1 / 87178291200., 1 / 20922789888000.);
    const double size = turn & 1 ? cosine : sine;
    return turn & 2 ? -size : size;
}
HOST_DEVICE static inline double same_cos(double x) { return same_sin(x, 1); }
