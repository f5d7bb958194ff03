// test_sampler.cpp -- the order of samples: bijections, uniformity, PyTorch's vectors, and what the trainer relies on.
#include <algorithm>
#include <map>
#include <numeric>
#include "src/data/data.h"
#include "tests/test.h"

using List = std::vector<int64_t>;

static bool is_permutation_of(std::vector<uint64_t> values, uint64_t n) {
    std::sort(values.begin(), values.end());
    for (uint64_t i = 0; i < n; i++)
        if (values.size() != n || values[i] != i) return false;
    return true;
}

static std::vector<uint64_t> permutation(uint64_t n, uint64_t seed, uint64_t epoch) {
    std::vector<uint64_t> p;
    for (uint64_t i = 0; i < n; i++) p.push_back(permute(i, n, seed, epoch));
    return p;
}

TEST(permute_is_a_bijection) {
    for (uint64_t n = 1; n <= 300; n++) EXPECT(is_permutation_of(permutation(n, 7, n % 3), n), "n = %d", int(n));
    for (uint64_t n : {1023, 1024, 1025, 4095, 4096, 4097, 16385, 65536, 65537, 100003})
        EXPECT(is_permutation_of(permutation(n, 1337, 1), n), "n = %d", int(n));
    std::vector<uint64_t> broken = permutation(100, 7, 0);  // the check itself must be able to fail
    broken[3] = broken[4];
    EXPECT(!is_permutation_of(broken, 100), "a duplicate was not seen");
    expect_error(kExitOther, "permute", [] { permute(5, 5, 0, 0); });
}

TEST(permute_huge) {  // far beyond what can be listed: range and no collision
    for (uint64_t n : {(1ull << 32) - 1, 1ull << 32, (1ull << 32) + 1, (1ull << 40) + 12345, 1ull << 63, ~0ull}) {
        std::vector<uint64_t> seen;
        for (uint64_t k = 0; k < 2000; k++) {
            seen.push_back(permute(k, n, 3, 0));
            seen.push_back(permute(n - 1 - k, n, 3, 0));
            EXPECT(seen[2 * k] < n && seen[2 * k + 1] < n, "n = %llu", (unsigned long long)n);
        }
        std::sort(seen.begin(), seen.end());
        EXPECT(std::adjacent_find(seen.begin(), seen.end()) == seen.end(), "two alike of n = %llu",
               (unsigned long long)n);
        EXPECT(seen[2000] > n / 2 - n / 8 && seen[2000] < n / 2 + n / 8, "the median is off for n = %llu",
               (unsigned long long)n);
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
static int64_t weighted_sum(const List& p) {
    int64_t sum = 0;
    for (size_t i = 0; i < p.size(); i++) sum += int64_t(i) * p[i];
    return sum;
}

TEST(torch_randperm_matches_pytorch) {
    EXPECT_EQ(torch_randperm(10, 0), List{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
    EXPECT_EQ(torch_randperm(10, 1), List{5, 6, 1, 2, 0, 8, 9, 3, 7, 4});
    EXPECT_EQ(torch_randperm(10, 42), List{2, 6, 1, 8, 4, 5, 0, 9, 3, 7});
    EXPECT(torch_randperm(10, 1ull << 32) == torch_randperm(10, 0), "only the low 32 bits of a seed count");
    const List p = torch_randperm(1000, 1337);
    EXPECT_EQ(List(p.begin(), p.begin() + 8), List{415, 824, 310, 0, 663, 928, 969, 555});
    EXPECT_EQ(List(p.end() - 4, p.end()), List{130, 3, 765, 890});
    EXPECT_EQ(weighted_sum(p), 248970841);
    const List q = torch_randperm(50000, 0);
    EXPECT_EQ(List(q.begin(), q.begin() + 4), List{36044, 49165, 37807, 11341});
    EXPECT_EQ(List(q.end() - 4, q.end()), List{2642, 42128, 15898, 31476});
    EXPECT_EQ(weighted_sum(q), 31273364518166);
    EXPECT(torch_randperm(0, 3).empty() && torch_randperm(1, 3) == List{0}, "small");
    expect_error(kExitUsage, "want less than 214,748,364", [] { torch_randperm(214748364, 0); });
}

// torch.utils.data.DistributedSampler: the samples of replica r in one epoch, in order.
// Replica r takes positions r, r + replicas, ... of the epoch's list. When the replicas do not divide n the list is
// either filled up from its beginning, again and again, or cut (drop_last). seed + epoch is torch's: epoch 1 of seed 0
// is epoch 0 of seed 1.
static std::vector<int64_t> distributed_sampler(int64_t n, int replicas, int r, uint64_t seed, bool shuffle,
                                                bool drop_last, uint64_t epoch) {
    const std::vector<int64_t> order = shuffle ? torch_randperm(n, seed + epoch) : std::vector<int64_t>();
    const int64_t each = drop_last ? n / replicas : ceil_div(n, int64_t(replicas));
    std::vector<int64_t> samples;
    for (int64_t q = 0; q < each; q++) {
        const int64_t position = (q * replicas + r) % n;
        samples.push_back(shuffle ? order[size_t(position)] : position);
    }
    return samples;
}

TEST(distributed_sampler_matches_pytorch) {
    struct Case {
        int64_t n;
        uint64_t seed;
        bool shuffle, drop_last;
        uint64_t epoch;
        std::vector<List> ranks;
    };
    const std::vector<Case> cases = {
        {10, 0, true, false, 0, {{4, 3, 6}, {1, 9, 2}, {7, 0, 4}, {5, 8, 1}}},
        {10, 0, true, false, 1, {{5, 0, 7}, {6, 8, 4}, {1, 9, 5}, {2, 3, 6}}},
        {10, 1, true, false, 0, {{5, 0, 7}, {6, 8, 4}, {1, 9, 5}, {2, 3, 6}}},
        {10, 0, true, true, 0, {{4, 3}, {1, 9}, {7, 0}, {5, 8}}},
        {10, 0, true, true, 1, {{5, 0}, {6, 8}, {1, 9}, {2, 3}}},
        {3, 5, false, false, 0, {{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}}},
        {3, 0, true, false, 0, {{2}, {0}, {1}, {2}, {0}, {1}, {2}, {0}}},
        {3, 0, false, true, 0, {{}, {}, {}, {}, {}, {}, {}, {}}},
        {17, 42, true, false, 3, {{8, 3, 11, 4, 13, 16, 7, 5, 1}, {15, 2, 12, 10, 0, 6, 14, 9, 8}}},
        {17, 42, true, true, 3, {{8, 3, 11, 4, 13, 16, 7, 5}, {15, 2, 12, 10, 0, 6, 14, 9}}},
    };
    for (size_t k = 0; k < cases.size(); k++) {
        const Case& c = cases[k];
        for (size_t r = 0; r < c.ranks.size(); r++)
            EXPECT(distributed_sampler(c.n, int(c.ranks.size()), int(r), c.seed, c.shuffle, c.drop_last, c.epoch) ==
                       c.ranks[r], "case %zu, rank %zu", k, r);
    }
}

static Sampler make_sampler(bool torch, uint64_t n, int B, int G, int R) {
    Sampler s;
    s.torch = torch, s.n = n, s.seed = 5, s.B = B, s.G = G, s.R = R;
    return s;
}

TEST(replicas_walk_whole_epochs) {
    for (uint64_t n : {1, 5, 24, 25, 100}) {
        const Sampler s = make_sampler(false, n, 3, 4, 2);  // 12 samples a step
        std::vector<uint64_t> order;
        for (uint64_t step = 0; step < 60; step++)
            for (int micro_batch = 0; micro_batch < 4; micro_batch++)
                for (int b = 0; b < 3; b++) order.push_back(s.index(step, micro_batch, b));
        for (uint64_t first = 0; first + n <= order.size(); first += n)  // each epoch, wherever it lies in a step
            EXPECT(is_permutation_of({order.begin() + long(first), order.begin() + long(first + n)}, n), "n = %d",
                   int(n));
        for (uint64_t c = 0; c < order.size(); c++) EXPECT(order[c] == permute(c % n, n, 5, c / n), "c = %d", int(c));
    }
    Sampler other = make_sampler(false, 100, 3, 4, 4);  // replicas do not change which sample a micro-batch gets
    for (int micro_batch = 0; micro_batch < 4; micro_batch++)
        EXPECT(other.index(7, micro_batch, 2) == make_sampler(false, 100, 3, 4, 1).index(7, micro_batch, 2),
               "micro_batch %d", micro_batch);
}

TEST(torch_replicas) {
    for (uint64_t n : {3, 17, 64, 100})
        for (int R : {1, 2, 4}) {
            const int G = 4, B = 3, per_replica = G / R;
            const Sampler s = make_sampler(true, n, B, G, R);
            for (int replica = 0; replica < R; replica++) {
                std::vector<uint64_t> got;
                for (uint64_t step = 0; step < 40; step++)  // several epochs; steps straddle them
                    for (int micro_batch = replica * per_replica; micro_batch < (replica + 1) * per_replica;
                         micro_batch++)
                        for (int b = 0; b < B; b++) got.push_back(s.index(step, micro_batch, b));
                size_t at = 0;
                for (uint64_t epoch = 0; at < got.size(); epoch++)
                    for (int64_t want : distributed_sampler(int64_t(n), R, replica, 5, true, false, epoch)) {
                        if (at == got.size()) break;
                        EXPECT(got[at] == uint64_t(want), "n = %d, replica %d of %d, entry %zu", int(n), replica, R,
                               at);
                        at++;
                    }
            }
        }
}

TEST(any_split_of_the_micro_batches_is_the_same_order) {
    for (bool torch : {false, true}) {
        const int G = 8, B = 2;
        const Sampler whole = make_sampler(torch, 37, B, G, 8);
        for (int W : {2, 4, 8})  // each rank has a sampler of its own, and starts anywhere
            for (int rank = 0; rank < W; rank++) {
                const Sampler mine = make_sampler(torch, 37, B, G, 8);
                for (uint64_t step = uint64_t(rank); step < 12; step++)
                    for (int micro_batch = rank * G / W; micro_batch < (rank + 1) * G / W; micro_batch++)
                        for (int b = 0; b < B; b++)
                            EXPECT(mine.index(step, micro_batch, b) == whole.index(step, micro_batch, b),
                                   "W %d step %d micro_batch %d", W, int(step), micro_batch);
            }
    }
}

TEST(speed) {
    uint64_t sum = 0;
    const double start = now_seconds();
    for (uint64_t c = 0; c < 100000; c++) sum += permute(c, (1ull << 32) + 1, 1, 0);  // the worst n: four turns
    const double ns = (now_seconds() - start) * 1e4;
    std::printf("     %.0f ns an index (sum %llx)\n", ns, (unsigned long long)sum);
    EXPECT(ns < 100000, "%.0f ns", ns);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
