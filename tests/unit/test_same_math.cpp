// test_same_math.cpp -- src/base/numbers.h: how near its functions are to the C library's in long double, and that
// they give the bits that they gave on the machine which wrote this file.
#include "src/base/numbers.h"
#include <algorithm>
#include <bit>
#include "tests/test.h"

constexpr uint64_t kPoints = 100000;

// In [0, 1), of 53 random bits. The same on every machine.
static double uniform(uint64_t i, uint32_t which) {
    const Random4 r = random4({17, kRandomInit, which, 0}, i);
    return double((uint64_t(r.v[0]) << 32 | r.v[1]) >> 11) * 0x1p-53;
}
static double power_of_two(double exponent) { return std::bit_cast<double>(uint64_t(1023 + int(exponent)) << 52); }

static double a_log(uint64_t i) {
    switch (i % 3) {
        case 0: return power_of_two(uniform(i, 1) * 2000 - 1000) * (1 + uniform(i, 2));
        case 1: return 1 - double(i % (1 << 24)) * 0x1p-24;                             // as arena.cpp asks for them
        default: return 1 + (uniform(i, 1) - 0.5) * power_of_two(-50 * uniform(i, 2));   // near the zero
    }
}
static double an_exp(uint64_t i) { return (uniform(i, 3) * 2 - 1) * (i % 2 ? 708 : power_of_two(-50 * uniform(i, 4))); }
static double a_turn(uint64_t i) { return (uniform(i, 5) * 2 - 1) * power_of_two(uniform(i, 6) * 25 - 5); }
static double a_base(uint64_t i) { return i % 2 ? uniform(i, 7) : 1e6 * uniform(i, 7); }
static double a_power(uint64_t i) { return (i % 2 ? 5000 : 1) * uniform(i, 8) + 0.01; }

// The largest error of got(i) in units of `unit(want)`.
template <class Got, class Want, class Unit> static double worst(const Got& got, const Want& want, const Unit& unit) {
    double most = 0;
    for (uint64_t i = 0; i < kPoints; i++) {
        const long double w = want(i), error = (static_cast<long double>(got(i)) - w) / unit(i, w);
        if (w != 0) most = std::max(most, std::isnan(error) ? INFINITY : std::fabs(double(error)));
    }
    return most;
}
static long double relative(uint64_t, long double want) { return want; }
static long double absolute(uint64_t, long double) { return 1; }

TEST(near_the_true_values) {
    const double of_log =
        worst([](uint64_t i) { return same_log(a_log(i)); }, [](uint64_t i) { return logl(a_log(i)); }, relative);
    EXPECT(of_log < 4e-16, "log: %.3g", of_log);
    const double of_exp =
        worst([](uint64_t i) { return same_exp(an_exp(i)); }, [](uint64_t i) { return expl(an_exp(i)); }, relative);
    EXPECT(of_exp < 4e-16, "exp: %.3g", of_exp);
    const double of_sin =
        worst([](uint64_t i) { return same_sin(a_turn(i)); }, [](uint64_t i) { return sinl(a_turn(i)); }, absolute);
    EXPECT(of_sin < 2e-16, "sin: %.3g", of_sin);
    const double of_cos =
        worst([](uint64_t i) { return same_cos(a_turn(i)); }, [](uint64_t i) { return cosl(a_turn(i)); }, absolute);
    EXPECT(of_cos < 2e-16, "cos: %.3g", of_cos);
    const double of_pow = worst(
        [](uint64_t i) { return same_pow(a_base(i), a_power(i)); },
        [](uint64_t i) { return powl(a_base(i), a_power(i)) < 1e-300L ? 0 : powl(a_base(i), a_power(i)); },
        [](uint64_t i, long double want) { return want * (1 + fabsl(a_power(i) * logl(a_base(i)))); });
    EXPECT(of_pow < 4e-16, "pow: %.3g", of_pow);
}

TEST(edges) {
    EXPECT_EQ(same_log(1), 0);
    EXPECT(same_exp(0) == 1 && same_exp(-1e9) == 0 && same_exp(1e9) == INFINITY, "exp of 0 is %g", same_exp(0));
    EXPECT(std::isnan(same_exp(NAN)) && same_exp(-INFINITY) == 0, "exp of no number is %g", same_exp(NAN));
    EXPECT(same_sin(0) == 0 && same_cos(0) == 1 && same_cos(M_PI) == -1, "cos pi is %.17g", same_cos(M_PI));
    EXPECT(same_pow(0, 3) == 0 && same_pow(0.95, 1e9) == 0, "0^3 is %g", same_pow(0, 3));
    EXPECT(std::fabs(same_pow(0.9, 1) - 0.9) < 3e-16, "0.9^1 is %.17g", same_pow(0.9, 1));
}

template <class F> static uint64_t bits_of(const F& f) {
    uint64_t hash = 0;
    for (uint64_t i = 0; i < kPoints; i++) hash = mix64(hash ^ std::bit_cast<uint64_t>(f(i)));
    return hash;
}

// Weights, schedules and samples depend on these: they may never change.
TEST(the_same_bits_everywhere) {
    const struct { const char* name; uint64_t got, want; } all[] = {
        {"log", bits_of([](uint64_t i) { return same_log(a_log(i)); }), 0x904eed1a86ae6152},
        {"exp", bits_of([](uint64_t i) { return same_exp(an_exp(i)); }), 0xc3ba19bd2632f06c},
        {"sin", bits_of([](uint64_t i) { return same_sin(a_turn(i)); }), 0xfe2265bb7e1bb66c},
        {"cos", bits_of([](uint64_t i) { return same_cos(a_turn(i)); }), 0x861688e74d429a5d},
        {"pow", bits_of([](uint64_t i) { return same_pow(a_base(i), a_power(i)); }), 0x11102eb63c5194a3},
    };
    for (const auto& f : all) EXPECT(f.got == f.want, "%s: %016llx", f.name, (unsigned long long)f.got);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
