// test_blocks.cpp -- an order of a fork: each epoch has each sample once, and a block's samples follow one another.
#include <set>
#include "src/data/orders/order.h"
#include "tests/test.h"

TEST(blocks_of_samples) {
    for (const uint64_t block : {1, 4, 7, 50, 60}) {
        const Row row(std::to_string(block));
        const Sampler s = {blocks_info.sample, {0, 50}, 7, 3, 4, 2, {{"block", double(block)}}};
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            std::set<uint64_t> seen;
            for (uint64_t i = 0; i < 50; i++) {
                const uint64_t c = epoch * 50 + i, sample = s.index(c / 12, int(c / 3 % 4), int(c % 3));
                seen.insert(sample);
                EXPECT_EQ(sample % block, i % block);
            }
            EXPECT(seen.size() == 50 && *seen.rbegin() == 49, "epoch %lu", epoch);
        }
    }
}

TEST(mixtures_are_refused) {
    const Sampler s = {blocks_info.sample, {0, 4, 9}, 7, 1, 2, 1, {{"block", 2}}, {0.5, 0.5}};
    expect_error(kExitUsage, "--sampler blocks: got 2 sources", [&] { s.index(0, 0, 0); });
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
