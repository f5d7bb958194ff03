// test_sampler.cpp -- the order of samples: bijections, uniformity, PyTorch's vectors, and what the trainer relies on.
#include <map>
#include <numeric>
#include <set>
#include "src/data/orders/order.h"
#include "tests/test.h"

using List = std::vector<int64_t>;

static std::vector<uint64_t> permutation(uint64_t n, uint64_t seed, uint64_t epoch) {
    std::vector<uint64_t> p;
    for (uint64_t i = 0; i < n; i++) p.push_back(permute(i, n, seed, epoch));
    return p;
}

TEST(permute_is_a_bijection) {
    std::vector<uint64_t> sizes(300);
    std::iota(sizes.begin(), sizes.end(), 1);
    sizes.insert(sizes.end(), {1023, 1024, 1025, 4095, 4096, 4097, 16385, 65536, 65537, 100003});
    for (const uint64_t n : sizes) {
        const std::vector<uint64_t> p = permutation(n, n < 1000 ? 7 : 1337, n % 3);
        const std::set<uint64_t> values(p.begin(), p.end());
        EXPECT(values.size() == n && *values.rbegin() == n - 1, "n = %lu", n);
    }
    expect_error(kExitOther, "permute", [] { permute(5, 5, 0, 0); });
}

TEST(permute_huge) {  // far beyond what can be listed: range and no collision
    for (uint64_t n : {(1ull << 32) - 1, 1ull << 32, (1ull << 32) + 1, (1ull << 40) + 12345, 1ull << 63, ~0ull}) {
        std::set<uint64_t> seen;
        for (uint64_t k = 0; k < 2000; k++)
            for (const uint64_t i : {k, n - 1 - k}) seen.insert(permute(i, n, 3, 0));
        EXPECT(seen.size() == 4000 && *seen.rbegin() < n, "n = %lu", n);
        const uint64_t median = *std::next(seen.begin(), 2000);
        EXPECT(median > n / 2 - n / 8 && median < n / 2 + n / 8, "the median is %lu for n = %lu", median, n);
    }
}

TEST(permute_depends_on_seed_and_epoch) {
    const uint64_t n = 1000;
    std::map<std::vector<uint64_t>, int> seen;
    for (uint64_t seed : {0ull, 1ull, 2ull, 1ull << 32, (1ull << 32) + 1, 1ull << 63})
        for (uint64_t epoch : {0ull, 1ull, 2ull, 1ull << 32, 1ull << 63}) seen[permutation(n, seed, epoch)]++;
    EXPECT_EQ(seen.size(), 30);
    EXPECT_EQ(permutation(n, 5, 6), permutation(n, 5, 6));
}

// Chi-squared of the cells against equal counts, less its mean, in standard deviations.
static double excess(const std::vector<int>& cells) {
    const double total = std::accumulate(cells.begin(), cells.end(), 0.0), want = total / double(cells.size());
    double chi = 0;
    for (int c : cells) chi += (c - want) * (c - want) / want;
    const double freedom = double(cells.size() - 1);
    return (chi - freedom) / std::sqrt(2 * freedom);
}

TEST(permute_is_uniform) {
    for (uint64_t n : {2, 3, 4, 5, 7, 16, 31, 100}) {  // where element i goes
        std::vector<int> cells(n * n);
        for (uint64_t seed = 0; seed < 4000; seed++)
            for (uint64_t i = 0; i < n; i++) cells[i * n + permute(i, n, 42, seed)]++;
        EXPECT(excess(cells) < 6, "n = %d: %.1f standard deviations", int(n), excess(cells));
    }
    std::map<std::vector<uint64_t>, int> orders;  // all 6 orders of 3 samples, equally often
    for (uint64_t seed = 0; seed < 6000; seed++) orders[permutation(3, seed, 0)]++;
    EXPECT_EQ(orders.size(), 6);
    for (const auto& [order, count] : orders) EXPECT(count > 850 && count < 1150, "%d of 1000", count);
    const uint64_t n = 5000;  // neighbours do not stay together
    std::vector<int> steps(50);
    for (uint64_t i = 0; i + 1 < n; i++) steps[(permute(i + 1, n, 9, 0) + n - permute(i, n, 9, 0)) % n * 50 / n]++;
    EXPECT(excess(steps) < 6, "%.1f standard deviations", excess(steps));
    EXPECT(excess({100, 100, 100, 200}) > 6, "the check does not see a skew");
}

// Values of torch 1.13.1 from here on.
TEST(torch_randperm_matches_pytorch) {
    EXPECT_EQ(torch_randperm(10, 0), List{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
    EXPECT_EQ(torch_randperm(10, 1), List{5, 6, 1, 2, 0, 8, 9, 3, 7, 4});
    EXPECT_EQ(torch_randperm(10, 42), List{2, 6, 1, 8, 4, 5, 0, 9, 3, 7});
    EXPECT(torch_randperm(10, 1ull << 32) == torch_randperm(10, 0), "only the low 32 bits of a seed count");
    const auto sum = [](int64_t n, uint64_t seed) {  // of the places times their values
        int64_t at = 0, total = 0;
        for (const int64_t value : torch_randperm(n, seed)) total += at++ * value;
        return total;
    };
    EXPECT_EQ(sum(1000, 1337), 248970841);
    EXPECT_EQ(sum(50000, 0), 31273364518166);
    EXPECT(torch_randperm(0, 3).empty() && torch_randperm(1, 3) == List{0}, "small");
    expect_error(kExitUsage, "want less than 214,748,364", [] { torch_randperm(214748364, 0); });
}

// What each replica gets in an epoch of torch.utils.data.DistributedSampler. Epoch 1 of seed 0 is epoch 0 of seed 1.
TEST(torch_replicas_match_pytorch) {
    const struct { uint64_t n, seed, epoch; std::vector<List> replicas; } rows[] = {
        {10, 0, 0, {{4, 3, 6}, {1, 9, 2}, {7, 0, 4}, {5, 8, 1}}},
        {10, 0, 1, {{5, 0, 7}, {6, 8, 4}, {1, 9, 5}, {2, 3, 6}}},
        {10, 1, 0, {{5, 0, 7}, {6, 8, 4}, {1, 9, 5}, {2, 3, 6}}},
        {3, 0, 0, {{2}, {0}, {1}, {2}, {0}, {1}, {2}, {0}}},
        {17, 42, 3, {{8, 3, 11, 4, 13, 16, 7, 5, 1}, {15, 2, 12, 10, 0, 6, 14, 9, 8}}}};
    for (const auto& [n, seed, epoch, replicas] : rows) {
        const int R = int(replicas.size());
        const Sampler s = {torch_info.sample, {0, n}, seed, 1, R, R};
        for (int r = 0; r < R; r++)
            for (uint64_t q = 0, each = replicas[r].size(); q < each; q++)
                EXPECT(s.index(epoch * each + q, r, 0) == uint64_t(replicas[r][q]), "n %lu, seed %lu, replica %d", n,
                       seed, r);
    }
}

TEST(order_of_lockstep) {  // the replicas do not change it
    for (uint64_t n : {1, 5, 24, 25, 100})
        for (int R : {1, 2, 4}) {
            const Sampler s = {lockstep_info.sample, {0, n}, 5, 3, 4, R};
            for (uint64_t c = 0; c < 720; c++)
                EXPECT(s.index(c / 12, int(c / 3 % 4), int(c % 3)) == permute(c % n, n, 5, c / n), "n %lu, %lu", n, c);
        }
}

// Before each sequence every source has had its share to within `most` sequences, and sequence k of a source is sample
// k mod n of the permutation of epoch k / n: so in each epoch each sample comes once.
TEST(mixture_keeps_to_its_weights) {
    const std::vector<double> third(3, 1 / 3.0), tenth(10, 0.1), many(30, 1 / 30.0);
    const struct { std::vector<double> weights; double most; } rows[] = {
        {{1}, 0}, {{0.5, 0.5}, 0.51}, {{0.7, 0.3}, 0.51}, {{0.999, 0.001}, 0.51}, {{1 - 1e-9, 1e-9}, 0.51}, {third, 1},
        {{0.6, 0.3, 0.1}, 1}, {{0.9, 0.05, 0.03, 0.01, 0.009, 0.001}, 1.5}, {tenth, 1.5}, {many, 2}};
    for (const auto& [weights, most] : rows)
        for (const uint64_t begin : {uint64_t(0), uint64_t(1) << 40, (uint64_t(1) << 50) + 12345}) {
            const Row row(format("%zu sources, the first %.9g, from %lu", weights.size(), weights[0], begin));
            Sampler s = {lockstep_info.sample, {0}, 7, 3, 4, 2};
            s.weights = weights;
            long double sum = 0;
            for (size_t k = 0; k < weights.size(); k++) {
                s.first.push_back(s.first.back() + 10007 + k);
                sum += weights[k];
            }
            std::vector<uint64_t> had(weights.size());
            for (uint64_t c = begin; c < begin + 3000; c++) {
                const uint64_t i = s.order(s, c);
                const size_t k = size_t(std::ranges::upper_bound(s.first, i) - s.first.begin()) - 1;
                const uint64_t n = s.first[k + 1] - s.first[k], want = i - s.first[k];
                // The next of the source, or near its share of c sequences for the first.
                uint64_t at = had[k];
                if (at == 0) {
                    at = uint64_t(std::max(0.0L, floorl((long double)c * weights[k] / sum) - 3));
                    for (int more = 0; more < 7 && permute(at % n, n, 7 + k, at / n) != want; more++) at++;
                }
                EXPECT(permute(at % n, n, 7 + k, at / n) == want, "sequence %lu: sample %lu of source %zu", c, want, k);
                had[k] = at + 1;
                for (size_t j = 0; j < weights.size(); j++) {
                    if (had[j] == 0 && begin > 0) continue;
                    const double off = double(had[j] - (long double)(c + 1) * weights[j] / sum);
                    EXPECT(std::fabs(off) <= most, "after %lu sequences source %zu is off by %.3f", c + 1, j, off);
                }
            }
        }
    Sampler small = {lockstep_info.sample, {0, 1, 3}, 7, 3, 4, 2};      // of a single sample, and of two
    small.weights = {0.75, 0.25};
    std::vector<int> count(3);
    for (uint64_t c = 0; c < 800; c++) count[small.order(small, c)]++;
    EXPECT_EQ(count, std::vector<int>{600, 100, 100});
    small.order = torch_info.sample;
    expect_error(kExitUsage, "--sampler torch: got 2 sources in --data, want one", [&] { small.order(small, 0); });
}

TEST(torch_replicas_straddle_epochs) {
    for (uint64_t n : {3, 17, 64, 100})
        for (int R : {1, 2, 4}) {
            const int each = 4 / R;
            const Sampler s = {torch_info.sample, {0, n}, 5, 3, 4, R};
            for (int replica = 0; replica < R; replica++) {
                uint64_t at = uint64_t(replica);  // in the list of the epoch, which is filled up from its beginning
                uint64_t epoch = 0;
                for (uint64_t step = 0; step < 40; step++)
                    for (int k = replica * each; k < (replica + 1) * each; k++)
                        for (int b = 0; b < 3; b++, at += uint64_t(R)) {
                            if (at >= ceil_div(n, uint64_t(R)) * uint64_t(R)) at = uint64_t(replica), epoch++;
                            const int64_t want = torch_randperm(int64_t(n), 5 + epoch)[at % n];
                            EXPECT(s.index(step, k, b) == uint64_t(want), "n %lu, replica %d of %d, step %lu", n,
                                   replica, R, step);
                        }
            }
        }
}

TEST(speed) {
    uint64_t sum = 0;
    const double start = now_seconds();
    for (uint64_t c = 0; c < 100000; c++) sum += permute(c, (1ull << 32) + 1, 1, 0);  // the worst n: four turns
    EXPECT(now_seconds() - start < 10, "%.1f s for indices that add up to %lx", now_seconds() - start, sum);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
