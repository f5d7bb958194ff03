// matmul.cpp -- the three products of a linear layer, one request at a time, for bench/matmul.py.
//
//     build/bench/matmul [threads]       fp32;   build/bench/matmul16: bf16 storage
//
// A line of standard input, "forward N C OC SECONDS" (or "input", "params"), makes it repeat that product for about so
// many seconds; it answers with the median time of one, in seconds.
#include <cstdlib>
#include <iostream>
#include <map>

#include "bench/ceilings.h"
#include "kernels/kernels.h"

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

static void run() {
    std::string which;
    int N, C, OC;
    double limit;
    while (std::cin >> which >> N >> C >> OC >> limit) {
        const Layer& l = layer(size_t(N), size_t(C), size_t(OC));
        const auto once = [&] {
            if (which == "forward") matmul_forward(l.out, l.inp, l.weight, l.bias, N, C, OC, nullptr);
            else if (which == "input") matmul_backward_input(l.inp, l.out, l.weight, N, C, OC, nullptr);
            else matmul_backward_params(l.dweight, nullptr, l.out, l.inp, N, C, OC, false, nullptr);
        };
        std::vector<double> times;
        const double start = now_seconds();
        do {
            const double begin = now_seconds();
            once();
            times.push_back(now_seconds() - begin);
        } while (now_seconds() - start < limit);
        std::printf("%.9f\n", ceilings::median(times));
        std::fflush(stdout);
    }
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    set_program("matmul");
    try {
        BACKEND::set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
        BACKEND::run();
    } catch (const Error& e) {
        print_error(e);
        return e.code;
    }
    return 0;
}
