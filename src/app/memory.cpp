// memory.cpp -- counts the memory that a run takes (app.h).
#include "src/app/app.h"
#include <bit>
#include "src/base/cpus.h"
#include "src/ddp/reductions/reduction.h"

namespace BACKEND {

double memory_of(const Options& o, int ranks, bool on_gpu, int sharing, std::string* said) {
    const Model m = model_plan(find_model(o.model), o.shape, o.batch_size, o.shape.T, o.recompute,
                               true, on_gpu, trained_of(o), {o.loss, o.hyper});
    const OptimizerInfo& optimizer = *all_optimizers()[size_t(find_optimizer(o.optimizer))];
    const double floats = double(m.trained.n) * sizeof(float), W = ranks,
                 activations = double(m.memory_bytes);
    double kept = 0;                                // bytes of the optimizer's state
    for (const StateSpec& array : optimizer.state)
        kept += double(state_layout(optimizer, array, m.trained).n) * sizeof(float);
    // In fp32 the masters are the weights themselves. On a CPU a checkpoint is written from a copy
    // of the arrays.
    const double masters = sizeof(floatX) == sizeof(float) ? 0 : floats;
    const double of_replicas = floats * double(find_row(kReductions, o.reduce).state.size()) * o.replicas;
    const double owners = on_gpu ? W : sharing, stored = floats * sizeof(floatX) / sizeof(float);
    const double weights = stored / sharing, state = (kept + masters + of_replicas) / owners;
    const double gradients = floats * std::bit_width(unsigned(o.replicas / ranks));
    const double received = W > sharing ? double(kBucketBytes) : 0;
    const double copy = on_gpu ? 0 : (kept + floats + of_replicas) / sharing;
    const double frozen = m.trained.freezes() ? double(m.arena.n) * sizeof(floatX) / sharing : 0;
    const double sum = weights + frozen + state + gradients + activations + received + copy,
                 MB = 1e-6;
    const std::string beside = frozen > 0 ? format("frozen %.1f, ", frozen * MB) : "";
    *said = format(
        "per rank, MB: %sweights %.1f, optimizer %.1f, gradients %.1f, activations %.1f (--recompute %d), "
        "received %.1f, copy for checkpoints %.1f = %.1f",
        beside.c_str(), weights * MB, state * MB, gradients * MB, activations * MB, o.recompute,
        received * MB, copy * MB, sum * MB);
    return sum * sharing;
}

void check_memory(const Options& o, const Comm* comm) {
    if (kOnGpu) return;                             // a failed device_alloc names the array
    const int here = comm->local_size;
    std::string said;
    const double all = memory_of(o, comm->size, false, here, &said);
    if (const Allowance most = allowed_memory(); all > most.amount)
        die(kExitOther, "memory: got %.1f MB by %s, want %.1f for %d ranks here: %s; see --dry-run",
            most.amount * 1e-6, most.by.c_str(), all * 1e-6, here, said.c_str());
}

}  // namespace BACKEND
