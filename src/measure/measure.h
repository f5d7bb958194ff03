// measure.h -- measurements: numbers that a run computes in some of its steps (--measure,
// --measure-every) and adds to their lines of metrics.jsonl. They change no bit of the run.
//
// A measurement is NAME.h and a line in src/measure/list. NAME.h has NAME_help, which --help shows,
// and in namespace BACKEND NAME_measure, a function like the two in this file. A long one goes into
// NAME.cpp beside it; neither includes kernels/elements.h. Values must not depend on the number of
// ranks or threads, nor on whether the run was resumed: tests/scripts/test_lists.sh compares them.
#pragma once

inline const char *const grad_norm_help = "of each trained tensor, before clipping",
                  *const activations_help = "largest in front of each block and behind the last";

#ifdef BACKEND
#include <algorithm>
#include <cmath>
#include "models/model.h"
#include "src/base/json.h"
#include "src/base/words.h"
#include "src/ddp/ddp.h"
namespace BACKEND {

// What a measurement gets after a step. Arrays are in device memory: copy_to_host, then load_floats.
struct Measured {
    const Model* model;         // as the rank's last micro-batch of the step has left it
    // All weights after the step, rounded to storage; of the sum of all gradients those of own
    // slices, and their sums of squares by unit (partials) of all.
    Ddp* ddp;
    double targets;             // of the step, on all ranks: a gradient is the sum over these
    std::string by = {};        // the name of the measurement
    JsonLine values = {};
    // Adds NAME/PART. Rank 0 logs what it added. A number that is not finite becomes null.
    void add(const std::string& part, double x) { values.add(by + "/" + part, x); }
};

// Every rank has the sums of squares by unit, because it computes the norm of them.
inline void grad_norm_measure(Measured* of) {
    const Ddp& ddp = *of->ddp;
    std::vector<float> squares(ddp.n / kUnit);
    copy_to_host(squares.data(), ddp.partials, squares.size() * sizeof(float), ddp.stream);
    size_t unit = 0;
    for (size_t t = 0; t < ddp.arena->tensors.size(); t++) {
        double sum = 0;
        while (unit < ddp.offset[t + 1] / kUnit) sum += squares[unit++];
        of->add(ddp.arena->tensors[t].name, std::sqrt(sum) / of->targets);
    }
}

// The largest absolute values of the residual stream in the step's last micro-batch, which the last
// rank has computed.
inline void activations_measure(Measured* of) {
    int l = 0;
    for (const std::span<floatX>& array : of->model->residuals) {
        std::vector<floatX> stored(array.size());
        std::vector<float> values(array.size());
        copy_to_host(stored.data(), array.data(), array.size_bytes());
        load_floats(values.data(), stored.data(), values.size());
        float largest = 0;
        // 0 * x is NaN where x is not finite, and a NaN stays.
        for (const float x : values) largest = std::max(largest, std::fabs(x)) + 0 * x;
        of->add(std::to_string(l++), comm_gather(of->ddp->comm, largest).back());
    }
}

}  // namespace BACKEND
#endif

// The files of the list, and MEASURE(X), which is X(grad_norm) X(activations).
#include "build/measure.h"

#ifdef BACKEND
namespace BACKEND {

// Returns the values of the measurements `names`, which have commas between them. Collective.
inline JsonLine measure(const std::string& names, Measured of) {
    const Words chosen = split(names, ',');
    if (chosen.empty()) return {};
    ddp_settle(of.ddp);
#define X(name) if (of.by = #name; contains(chosen, of.by)) name##_measure(&of);
    MEASURE(X)
#undef X
    comm_barrier(of.ddp->comm);     // on a CPU the next step writes what other ranks may still read
    return of.values;
}

}  // namespace BACKEND
#endif
