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

static long double relative(uint64_t, long double want) { return want; }
static long double absolute(uint64_t, long double) { return 1; }
static long double of_power(uint64_t i, long double want) { return want * (1 + fabsl(a_power(i) * logl(a_base(i)))); }
static long double a_true_power(uint64_t i) {
    const long double power = powl(a_base(i), a_power(i));
    return power < 1e-300L ? 0 : power;
}

// A function at point i, its true value, the unit in which the error is at most `limit`, and a hash of all results.
struct Function {
    const char* name;
    double (*got)(uint64_t);
    long double (*want)(uint64_t);
    long double (*unit)(uint64_t, long double want);
    double limit;
    uint64_t bits;
};
static const Function functions[] = {
    {"log", [](uint64_t i) { return same_log(a_log(i)); }, [](uint64_t i) { return logl(a_log(i)); }, relative,
     4e-16, 0x904eed1a86ae6152},
    {"exp", [](uint64_t i) { return same_exp(an_exp(i)); }, [](uint64_t i) { return expl(an_exp(i)); }, relative,
     4e-16, 0xc3ba19bd2632f06c},
    {"sin", [](uint64_t i) { return same_sin(a_turn(i)); }, [](uint64_t i) { return sinl(a_turn(i)); }, absolute,
     2e-16, 0xfe2265bb7e1bb66c},
    {"cos", [](uint64_t i) { return same_cos(a_turn(i)); }, [](uint64_t i) { return cosl(a_turn(i)); }, absolute,
     2e-16, 0x861688e74d429a5d},
    {"pow", [](uint64_t i) { return same_pow(a_base(i), a_power(i)); }, a_true_power, of_power, 4e-16,
     0x11102eb63c5194a3}};

// Weights, schedules and samples depend on the bits: they may never change.
TEST(near_the_true_values_and_the_same_bits) {
    for (const Function& f : functions) {
        double most = 0;
        uint64_t hash = 0;
        for (uint64_t i = 0; i < kPoints; i++) {
            const double got = f.got(i);
            const long double want = f.want(i), error = (got - want) / f.unit(i, want);
            hash = mix64(hash ^ std::bit_cast<uint64_t>(got));
            if (want != 0) most = std::max(most, std::isnan(error) ? INFINITY : std::fabs(double(error)));
        }
        EXPECT(most < f.limit, "%s: %.3g", f.name, most);
        EXPECT(hash == f.bits, "%s: %016llx", f.name, (unsigned long long)hash);
    }
}

TEST(edges) {
    EXPECT_EQ(same_log(1), 0);
    EXPECT(same_exp(0) == 1 && same_exp(-1e9) == 0 && same_exp(1e9) == INFINITY, "exp of 0 is %g", same_exp(0));
    EXPECT(std::isnan(same_exp(NAN)) && same_exp(-INFINITY) == 0, "exp of no number is %g", same_exp(NAN));
    EXPECT(same_sin(0) == 0 && same_cos(0) == 1 && same_cos(M_PI) == -1, "cos pi is %.17g", same_cos(M_PI));
    EXPECT(same_pow(0, 3) == 0 && same_pow(0.95, 1e9) == 0, "0^3 is %g", same_pow(0, 3));
    EXPECT(std::fabs(same_pow(0.9, 1) - 0.9) < 3e-16, "0.9^1 is %.17g", same_pow(0.9, 1));
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
