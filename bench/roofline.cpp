// roofline.cpp -- this machine's ceilings, one core and all at once; the loops and what they count are in ceilings.h.
//
//     build/bench/roofline             the table
//     build/bench/roofline fp32        one number for scripts: the best fp32 rate of all cores, GFLOP/s (also bf16,
//     copy, read: GB/s)
#include "bench/ceilings.h"

using namespace ceilings;

static std::vector<double> rates(const Ceiling& c, int threads, int times) {
    BACKEND::set_threads(threads);
    std::vector<double> r;
    rate(c);  // wakes threads, clock and memory
    for (int i = 0; i < times; i++) r.push_back(rate(c) * 1e-9);
    return r;
}

static const char* cell(double x, int digits = 1) {
    static thread_local std::string text[8];
    static thread_local int at = 0;
    return (text[at++ % 8] = x > 0 ? format("%.*f", digits, x) : "-").c_str();
}

static void print_table() {
    BACKEND::set_threads(0);
    const int cores = BACKEND::get_threads();
    std::printf(
        "The best of 25 times 2 ms, which is the ceiling, and (their median), which a busy machine lowers. Flops: 2 "
        "per multiply-add; bytes:\n"
        "read + written. Ratios: all cores to one, and to the best fp32 row above without AVX-512.\n\n"
        "| loop | unit | 1 core | | %d cores at once | | to 1 core | to fp32 |\n|---|---|---|---|---|---|---|---|\n",
        cores);
    double fp32 = 0;
    for (const Ceiling& c : table) {
        if (const char* why = c.missing()) {
            std::printf("| %s | | - | | - | | | %s |\n", c.name, why);
            continue;
        }
        const std::vector<double> one = rates(c, 1, 25), all = rates(c, cores, 25);
        const double a = *std::max_element(one.begin(), one.end()), b = *std::max_element(all.begin(), all.end());
        if (c.kind == kFp32 && fp32 < b && !std::strstr(c.name, "AVX-512")) fp32 = b;
        std::printf("| %s | %s | %s | (%s) | %s | (%s) | %s | %s |\n", c.name, c.kind <= kBf16 ? "GFLOP/s" : "GB/s",
                    cell(a), cell(median(one)), cell(b), cell(median(all)), cell(b / a, 2),
                    c.kind <= kBf16 ? cell(b / fp32, 2) : "");
        std::fflush(stdout);
    }
}

int main(int argc, char** argv) {
    set_program("roofline");
    try {
        static const char* const kinds[] = {"fp32", "bf16", "copy", "read"};
        if (argc < 2) {
            print_table();
            return 0;
        }
        for (int k = 0; k < 4; k++) {
            if (std::strcmp(argv[1], kinds[k]) != 0) continue;
            const Ceiling* c = best(Kind(k));
            const std::vector<double> r = c ? rates(*c, 0, 100) : std::vector<double>{0};
            std::puts(cell(*std::max_element(r.begin(), r.end())));
            return 0;
        }
        die(kExitUsage, "got %s, want nothing, fp32, bf16, copy or read", argv[1]);
    } catch (const Error& e) {
        print_error(e);
        return e.code;
    }
}
