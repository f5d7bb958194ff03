// test_rng.cpp -- the random numbers and the learning-rate schedule: the two pure functions of the step that every rank
// evaluates for itself.
#include <array>
#include <set>
#include "src/base/numbers.h"
#include "src/options/options.h"
#include "tests/test.h"

// ---- random numbers

// The vectors for philox4x32-10 in kat_vectors of Random123, the library published with the paper.
TEST(philox_known_answers) {
    using Words = std::array<uint32_t, 4>;
    const auto words = [](const Random4& r) { return std::to_array(r.v); };
    const Words pi = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    EXPECT_EQ(words(philox(0, 0, 0, 0, 0, 0)), Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    EXPECT_EQ(words(philox(~0u, ~0u, ~0u, ~0u, ~0u, ~0u)), Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    EXPECT_EQ(words(philox(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0)), pi);
    // Runs and checkpoints depend on where each part of the key stands in the counter: this may never change.
    EXPECT_EQ(words(random4({0x299f31d0a4093822u, 0x85a3, 0x13198a2e, 0x03707344}, 0x08d3243f6a88u)), pi);
}

TEST(uniform01_range) {
    EXPECT(uniform01(0) == 0 && uniform01(255) == 0, "the lowest 8 bits count");
    EXPECT(uniform01(~0u) < 1 && uniform01(~0u) > 0.9999999f, "the largest is %.9g", uniform01(~0u));
    EXPECT_EQ(uniform01(0x80000000u), 0.5f);
}

static std::vector<double> stream(const RandomKey& key, size_t blocks) {
    std::vector<double> x;
    for (size_t i = 0; i < blocks; i++)
        for (const uint32_t bits : random4(key, i).v) x.push_back(uniform01(bits));
    return x;
}

TEST(uniform01_moments) {
    const std::vector<double> x = stream({1337, kRandomInit, 0, 0}, 250000);
    const double n = double(x.size());
    double sum = 0, squares = 0;
    std::vector<double> cells(256, 0);
    for (const double u : x) {
        sum += u;
        squares += (u - 0.5) * (u - 0.5);
        cells[size_t(u * 256)]++;
    }
    EXPECT(std::fabs(sum / n - 0.5) < 5 * 0.289 / std::sqrt(n), "mean %.6f", sum / n);  // 5 standard deviations
    EXPECT(std::fabs(squares / n - 1 / 12.0) < 5 * 0.0745 / std::sqrt(n), "variance %.6f", squares / n);
    double chi2 = 0;
    for (const double c : cells) chi2 += (c - n / 256) * (c - n / 256) / (n / 256);
    EXPECT(chi2 > 255 - 5 * 22.6 && chi2 < 255 + 5 * 22.6, "chi-squared %.1f over 256 cells, want 255 +- 113", chi2);
}

static double correlation(const std::vector<double>& x, const std::vector<double>& y, size_t lag) {
    double sum = 0;
    for (size_t i = 0; i + lag < x.size(); i++) sum += (x[i] - 0.5) * (y[i + lag] - 0.5);
    return sum / double(x.size() - lag) * 12;
}

// A key that differs in one part only, by one or in its highest bit, gives an unrelated stream; so does the stream
// against itself, later.
TEST(streams_are_independent) {
    const RandomKey key = {42, kRandomDropout, 10, 3};
    const RandomKey others[] = {
        {43, kRandomDropout, 10, 3}, {42 | 1ull << 63, kRandomDropout, 10, 3}, {42, kRandomDropout + 1, 10, 3},
        {42, kRandomDropout ^ 0x8000u, 10, 3}, {42, kRandomInit, 10, 3}, {42, kRandomDropout, 11, 3},
        {42, kRandomDropout, 10 | 1u << 31, 3}, {42, kRandomDropout, 10, 2}, {42, kRandomDropout, 3, 10}};
    const std::vector<double> x = stream(key, 10000);
    const double limit = 5 / std::sqrt(double(x.size()));  // 5 standard deviations
    for (const RandomKey& other : others) {
        const double r = correlation(x, stream(other, 10000), 0);
        EXPECT(std::fabs(r) < limit, "seed %llx purpose %x step %x micro_batch %x: correlation %.4f",
               (unsigned long long)other.seed, other.purpose, other.step, other.micro_batch, r);
    }
    for (const size_t lag : {size_t(1), size_t(2), size_t(3), size_t(4), size_t(64)})
        EXPECT(std::fabs(correlation(x, x, lag)) < limit, "lag %zu: correlation %.4f", lag, correlation(x, x, lag));
    EXPECT(correlation(x, x, 0) > 0.9, "the test finds no correlation where there is one");
}

// No two (key, block) pairs share a counter: 64 bits of each differ, indices above 2^32 included.
TEST(no_repeats) {
    std::set<uint64_t> seen;
    size_t n = 0;
    for (const uint32_t purpose : {1u, 2u, 3u, 4u, 0xffu, 0x100u, 0x101u, 0xffffu})
        for (uint32_t step = 0; step < 8; step++)
            for (uint32_t micro_batch = 0; micro_batch < 8; micro_batch++)
                for (const uint64_t base : {uint64_t(0), uint64_t(1) << 32, (uint64_t(1) << 48) - 16})
                    for (uint64_t i = 0; i < 16; i++, n++) {
                        const Random4 r = random4({7, purpose, step, micro_batch}, base + i);
                        seen.insert(uint64_t(r.v[0]) << 32 | r.v[1]);
                    }
    EXPECT_EQ(seen.size(), n);
}

// ------------------------------------------------------------------------------------------------------ schedule.cpp

static double fraction(const std::string& kind, int64_t step, int64_t steps, int64_t warmup, double floor) {
    Options o;
    o.schedule = kind;
    o.steps = steps, o.warmup_steps = warmup, o.final_lr_frac = floor;
    return schedule_fraction(o, step);
}
// The fraction is `want`, but for rounding in double.
static void expect_fraction(const std::string& kind, int64_t step, int64_t steps, int64_t warmup, double floor,
                            double want, double tolerance = 1e-12) {
    const double got = fraction(kind, step, steps, warmup, floor);
    EXPECT(std::fabs(got - want) <= tolerance, "%s, step %lld of %lld, warm-up %lld: got %.17g, want %.17g",
           kind.c_str(), (long long)step, (long long)steps, (long long)warmup, got, want);
}

TEST(schedules) {
    for (const std::string kind : {"cosine", "linear", "constant", "wsd"}) {
        expect_fraction(kind, 0, 100, 10, 0.1, 0.1);        // the first of 10 warm-up steps
        expect_fraction(kind, 4, 100, 10, 0.1, 0.5);
        expect_fraction(kind, 9, 100, 10, 0.1, 1);
        expect_fraction(kind, 0, 100, 1, 0.1, 1);
        EXPECT(fraction(kind, 0, 100, 0, 0.1) > 0.9, "no warm-up: got %g", fraction(kind, 0, 100, 0, 0.1));
        const std::pair<int64_t, int64_t> runs[] = {    // steps, warm-up
            {1, 0}, {2, 1}, {3, 0}, {7, 0}, {100, 10}, {1000, 999}, {19073, 700}, {5000000000, 1}};
        for (const auto& [steps, warmup] : runs)
            for (const double floor : {0.0, 0.1, 1.0}) {
                const double want = kind == "constant" ? 1 : floor;
                // 5e9 steps: the position in the decay is a difference of numbers of 10 digits
                expect_fraction(kind, steps - 1, steps, warmup, floor, want, 1e-9);
                expect_fraction(kind, steps + 5, steps, warmup, floor, want);
            }
        double before = 1;
        for (int64_t s = 5; s < 60; s++) {      // it never rises after the warm-up
            const double now = fraction(kind, s, 60, 5, 0.1);
            EXPECT(now <= before && now >= 0.1 - 1e-12, "%s: step %lld has %.17g after %.17g", kind.c_str(),
                   (long long)s, now, before);
            before = now;
        }
    }
    // steps 110, warm-up 10: u = (s - 9) / 100; half way, and after a quarter
    expect_fraction("cosine", 59, 110, 10, 0.1, 0.55);
    expect_fraction("cosine", 34, 110, 10, 0, 0.5 * (1 + std::sqrt(0.5)));
    expect_fraction("linear", 59, 110, 10, 0.1, 0.55);
    expect_fraction("linear", 34, 110, 10, 0, 0.75);
    expect_fraction("constant", 59, 110, 10, 0.1, 1);
    // the last fifth of 100 steps: steps 80 to 99
    expect_fraction("wsd", 79, 100, 10, 0, 1);
    expect_fraction("wsd", 80, 100, 10, 0, 0.95);
    expect_fraction("wsd", 89, 100, 10, 0.2, 0.6);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
