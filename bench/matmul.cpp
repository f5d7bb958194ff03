// matmul.cpp -- the three products of a linear layer, one request at a time, for bench/matmul.py.
//
//     build/bench/matmul [threads]       fp32;   build/bench/matmul16: bf16 storage
//
// A line of standard input, "forward N C OC SECONDS" (or "input", "params"), makes it repeat that product for about so
// many seconds; it answers with the time of the quickest, in seconds. Any other line ends it with exit code 2.
#include <cmath>
#include <iostream>
#include <map>

#include "kernels/kernels.h"
#include "src/base/common.h"

namespace BACKEND {

struct Layer {
    floatX *inp, *weight, *bias, *out;
    float *dweight, *dbias;
};

template <class F> static F* array(size_t n) {
    F* const memory = static_cast<F*>(device_alloc(n * sizeof(F), "benchmark"));
    std::vector<float> x(n);
    for (size_t i = 0; i < n; i++) x[i] = float(i * 2654435761u % 65536) / 32768.0f - 1.0f;
    if constexpr (sizeof(F) == sizeof(floatX)) store_floats(reinterpret_cast<floatX*>(memory), x.data(), n);
    else std::copy(x.begin(), x.end(), memory);
    return memory;
}

static const Layer& layer(size_t N, size_t C, size_t OC) {
    static std::map<std::tuple<size_t, size_t, size_t>, Layer> layers;
    const auto [at, fresh] = layers.try_emplace({N, C, OC});
    if (fresh)
        at->second = {array<floatX>(N * C), array<floatX>(OC * C), array<floatX>(OC), array<floatX>(N * OC),
                      array<float>(OC * C), array<float>(OC)};
    return at->second;
}

struct Request {
    std::string_view which;
    int N, C, OC;
    double limit;
};

static Request parse_request(const std::string& line) {
    std::string_view rest = line;
    Request r = {next_word(&rest, ' '), 0, 0, 0, 0};
    constexpr int most = 1 << 20;
    const auto size = [&](int* n) {
        return parse_whole(next_word(&rest, ' '), n) && *n > 0 && *n <= most && *n % 8 == 0;
    };
    const bool known = r.which == "forward" || r.which == "input" || r.which == "params";
    if (!known || !size(&r.N) || !size(&r.C) || !size(&r.OC) || !parse_whole(rest, &r.limit) || !(r.limit <= 60))
        die(kExitUsage, "matmul: request: got '%s', want 'forward N C OC SECONDS', or input or params in its place; "
            "sizes are multiples of 8 up to %d, seconds at most 60", line.c_str(), most);
    return r;
}

static double quickest_seconds(const Request& r) {
    const Layer& l = layer(size_t(r.N), size_t(r.C), size_t(r.OC));
    const double start = now_seconds();
    double quickest = INFINITY;
    do {
        const double begin = now_seconds();
        if (r.which == "forward") matmul_forward(l.out, l.inp, l.weight, l.bias, r.N, r.C, r.OC, nullptr);
        else if (r.which == "input") matmul_backward_input(l.inp, l.out, l.weight, r.N, r.C, r.OC, nullptr);
        else matmul_backward_params(l.dweight, nullptr, l.out, l.inp, r.N, r.C, r.OC, false, nullptr);
        quickest = std::min(quickest, now_seconds() - begin);
    } while (now_seconds() - start < r.limit);
    return quickest;
}

static void run(int argc, char** argv) {
    int threads = 0;
    if (argc > 2 || (argc == 2 && (!parse_whole(std::string_view(argv[1]), &threads) || threads < 1)))
        die(kExitUsage, "matmul: got other arguments, want at most a number of threads");
    set_threads(threads);
    std::string line;
    while (std::getline(std::cin, line)) {
        std::printf("%.9f\n", quickest_seconds(parse_request(line)));
        std::fflush(stdout);
    }
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    set_program("matmul");
    try {
        BACKEND::run(argc, argv);
    } catch (const Error& e) {
        print_error(e);
        return e.code;
    }
    return 0;
}
