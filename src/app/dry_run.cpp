// dry_run.cpp -- prints parameters and memory of a run, without starting it.
#include "src/app/app.h"
#include <bit>
#include <cstdio>
#include "src/ddp/reductions/reduction.h"
#include "src/base/cpus.h"
#include "src/base/file.h"

namespace BACKEND {

double memory_of(const Options& o, int ranks, bool on_gpu, int sharing, std::string* said) {
    const Model m =
        model_plan(find_model(o.model), o.shape, o.batch_size, o.shape.T, o.recompute, true, on_gpu, trained_of(o));
    const OptimizerInfo& optimizer = *all_optimizers()[size_t(find_optimizer(o.optimizer))];
    const double floats = double(m.trained.n) * sizeof(float), W = ranks, activations = double(m.memory_bytes);
    double kept = 0;                                // bytes of the optimizer's state
    for (const StateSpec& array : optimizer.state)
        kept += double(state_layout(optimizer, array, m.trained).n) * sizeof(float);
    // In fp32 the masters are the weights themselves. On a CPU a checkpoint is written from a copy of the arrays.
    const double masters = sizeof(floatX) == sizeof(float) ? 0 : floats;
    const double of_replicas = floats * double(find_reduction(o.reduce).state.size()) * o.replicas;
    const double owners = on_gpu ? W : sharing, stored = floats * sizeof(floatX) / sizeof(float);
    const double weights = stored / sharing, state = (kept + masters + of_replicas) / owners;
    const double gradients = floats * std::bit_width(unsigned(o.replicas / ranks));
    const double received = W > sharing ? double(kBucketBytes) : 0;
    const double copy = on_gpu ? 0 : (kept + floats + of_replicas) / sharing;
    const double frozen = m.trained.freezes() ? double(m.arena.n) * sizeof(floatX) / sharing : 0;
    const double sum = weights + frozen + state + gradients + activations + received + copy, MB = 1e-6;
    const std::string beside = frozen > 0 ? format("frozen %.1f, ", frozen * MB) : "";
    *said = format("per rank, MB: %sweights %.1f, optimizer %.1f, gradients %.1f, activations %.1f (--recompute %d), "
                   "received %.1f, copy for checkpoints %.1f = %.1f", beside.c_str(), weights * MB, state * MB,
                   gradients * MB, activations * MB, o.recompute, received * MB, copy * MB, sum * MB);
    return sum * sharing;
}

void check_memory(const Options& o, const Comm* comm) {
    if (kOnGpu) return;                             // a failed device_alloc names the array
    const int here = comm->local_size;
    std::string said;
    const double all = memory_of(o, comm->size, false, here, &said);
    if (const Allowance most = allowed_memory(); all > most.amount)
        die(kExitOther, "memory: got %.1f MB by %s, want %.1f for %d ranks here: %s; see --dry-run", most.amount * 1e-6,
            most.by.c_str(), all * 1e-6, here, said.c_str());
}

void dry_run(const Options& o, const Data& data, int ranks, int sharing, double gpu_memory) {
    const bool on_gpu = kOnGpu || gpu_memory > 0;
    const ModelInfo* info = find_model(o.model);
    const double flops = info->flops_per_token(o.shape, o.shape.T) * double(o.total_batch_size);
    std::string said, by;
    const double all = memory_of(o, ranks, on_gpu, on_gpu ? 1 : sharing, &said);
    if (const std::string many = many_epochs(o, data); !many.empty()) warn("%s", many.c_str());
    std::printf("%s\nwork    %.3g FLOP per step\nmemory  %s\n", describe_run(o, data, ranks).c_str(), flops,
                said.c_str());
    for (const TensorSpec& t : info->tensors(o.shape))
        if (o.verbose) std::printf("tensor  %s (%zu,%zu)\n", t.name.c_str(), t.rows, t.cols);
    size_t free, total;
    device_memory(&free, &total);
    if (gpu_memory > 0) free = total = size_t(gpu_memory);
    if (total == 0) return;
    if (const Allowance most = allowed_memory(); !on_gpu && most.amount < double(total)) {
        free = std::min(free, total = size_t(most.amount));
        by = ", by " + most.by;
    }
    std::printf("        this %s has %.1f MB%s, %.1f free; its ranks take %.1f: ", on_gpu ? "GPU" : "host",
                double(total) * 1e-6, by.c_str(), double(free) * 1e-6, all * 1e-6);
    if (all <= double(free)) std::printf("it fits\n");
    else std::printf("it does not fit; try --replicas %d, --recompute 3, smaller --batch-size, %s ranks\n", ranks,
                     on_gpu ? "more" : "fewer");
}

}  // namespace BACKEND
