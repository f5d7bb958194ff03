// weights.h -- the measurement weights: the norm of each trained tensor.
#pragma once
#include "src/measure/measure.h"

inline const char* const weights_help = "norm of each trained tensor";

#ifdef BACKEND
namespace BACKEND {

inline void weights_measure(Measured* of) {
    const Ddp& ddp = *of->ddp;
    std::vector<floatX> stored(ddp.n);
    std::vector<float> weights(ddp.n);
    copy_to_host(stored.data(), ddp.weights, ddp.n * sizeof(floatX));
    load_floats(weights.data(), stored.data(), ddp.n);
    for (size_t t = 0; t < ddp.arena->tensors.size(); t++) {
        double squares = 0;
        for (size_t i = ddp.offset[t]; i < ddp.offset[t + 1]; i++) squares += double(weights[i]) * double(weights[i]);
        of->add(ddp.arena->tensors[t].name, std::sqrt(squares));
    }
}

}  // namespace BACKEND
#endif
