// test_mix.cpp -- a mixture of a fork: how much comes from each file, and that no epoch of a file repeats a sample.
#include <set>
#include "src/data/orders/order.h"
#include "tests/test.h"

TEST(mixture_of_two_files) {
    for (const int percent : {0, 1, 30, 70, 99, 100}) {
        const Row row(std::to_string(percent));
        const Sampler s = {mix_info.sample, {0, 50, 90}, 7, 3, 4, 2, {{"mix", double(percent)}}};
        std::vector<uint64_t> drawn[2];
        for (int c = 0; c < 1000; c++) {
            const uint64_t i = s.index(uint64_t(c / 12), c / 3 % 4, c % 3);
            drawn[i >= 50].push_back(i);
            EXPECT_EQ(drawn[0].size(), size_t((c + 1) * percent / 100));
        }
        for (const auto& [file, n] : {std::pair(0, size_t(50)), std::pair(1, size_t(40))})
            for (size_t at = 0; at + n <= drawn[file].size(); at += n)
                EXPECT_EQ(std::set(&drawn[file][at], &drawn[file][at] + n).size(), n);
    }
}

TEST(other_data_are_refused) {
    for (const std::vector<uint64_t>& first : {std::vector<uint64_t>{0, 9}, {0, 4, 9, 12}, {0, 9, 9}}) {
        const Sampler s = {mix_info.sample, first, 7, 1, 2, 1, {{"mix", 50}}};
        expect_error(kExitUsage, "--sampler mix", [&] { s.index(0, 0, 0), s.index(0, 1, 0); });
    }
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
