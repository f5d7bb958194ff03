// dry_run.cpp -- parameters and memory of a run that is not begun; see dry_run.h.
#include "src/app/dry_run.h"
#include <bit>
#include <cstdio>
#include "models/model.h"
#include "src/base/common.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

// Prints what a rank's arrays take, and returns the bytes.
static double print_memory(const Options& o, const Shape& shape, const Comm* comm) {
    const ModelInfo* info = find_model(o.model);
    const OptimizerInfo& optimizer = *all_optimizers()[size_t(find_optimizer(o.optimizer))];
    const double floats = double(arena_layout(info->tensors(shape)).n) * sizeof(float), W = comm->size;
    const double activations =
        double(model_plan(info, shape, o.batch_size, shape.T, o.recompute, true).memory_bytes);
    // Without a type of their own, masters are the weights. A CPU's checkpoint is written from a copy.
    const double arrays = double(optimizer.state.size()) + 1, masters = sizeof(floatX) == sizeof(float) ? 0 : 1;
    const double weights = floats * sizeof(floatX) / sizeof(float), state = floats * (arrays - 1 + masters) / W;
    const double gradients = floats * std::bit_width(unsigned(o.replicas / comm->size));
    const double received = W > 1 ? double(kBucketBytes) : 0, copy = kOnGpu ? 0 : floats * arrays / W;
    const double sum = weights + state + gradients + activations + received + copy, MB = 1e-6;
    std::printf("memory    per rank, MB: weights %.1f, optimizer %.1f, gradients %.1f, activations %.1f "
                "(--recompute %d), received %.1f, copy for checkpoints %.1f = %.1f\n", weights * MB, state * MB,
                gradients * MB, activations * MB, o.recompute, received * MB, copy * MB, sum * MB);
    return sum;
}

void dry_run(const Options& o, const Shape& shape, const Comm* comm, int micro_batches) {
    const ModelInfo* info = find_model(o.model);
    std::printf("model     %s, %s, context %d, vocabulary %d: %s parameters\n", info->title, info->text(shape).c_str(),
                shape.T, shape.V, with_commas(count_parameters(*info, shape)).c_str());
    std::printf("step      %s tokens = %d micro-batches of %d x %d, in %d replicas on %d ranks; %lld steps\n",
                with_commas(uint64_t(o.total_batch_size)).c_str(), micro_batches, o.batch_size, o.shape.T, o.replicas,
                comm->size, (long long)o.steps);
    std::printf("work      %.3g FLOP per step\n", info->flops_per_token(shape, o.shape.T) * double(o.total_batch_size));
    const double bytes = print_memory(o, shape, comm);
    for (const TensorSpec& t : info->tensors(shape))
        if (o.verbose) std::printf("tensor    %s (%zu,%zu)\n", t.name.c_str(), t.rows, t.cols);
    size_t free, total;
    device_memory(&free, &total);
    if (total == 0) return;
    const double all = bytes * (kOnGpu ? 1 : comm->local_size);     // a host's ranks share its memory
    const char* const advice = kOnGpu ? "more ranks" : "fewer ranks on this host";
    std::printf("          this %s has %.1f MB, %.1f free; its ranks take %.1f: ", kOnGpu ? "GPU" : "host",
                double(total) * 1e-6, double(free) * 1e-6, all * 1e-6);
    if (all <= double(free)) std::printf("it fits\n");
    else std::printf("it does not fit; try --recompute 3, a smaller --batch-size, %s\n", advice);
}

}  // namespace BACKEND
