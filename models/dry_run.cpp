// dry_run.cpp -- parameters, memory and time of a run that is not begun; see dry_run.h.
#include "dry_run.h"
#include <algorithm>
#include <bit>
#include <cstdio>
#include "common.h"
#include "ddp.h"

namespace BACKEND {

// Operations per second of a matmul like the model's, on this device now.
static double measure_flops(const GptConfig& c, int rows) {
    const int N = std::min(rows, kOnGpu ? 16384 : 512), OC = 4 * c.C;
    floatX* const memory = static_cast<floatX*>(device_alloc((size_t(N) * size_t(c.C) + size_t(OC) * size_t(c.C) + size_t(N) * size_t(OC)) * sizeof(floatX), "a trial matmul"));
    floatX *const weight = memory + size_t(N) * size_t(c.C), *const out = weight + size_t(OC) * size_t(c.C);
    const double flops = 2.0 * N * c.C * OC;
    double best = 0;
    for (const double begin = now_seconds(); now_seconds() - begin < 0.3 || best == 0;) {
        const double start = now_seconds();
        for (int i = 0; i < (kOnGpu ? 20 : 1); i++) matmul_forward(out, memory, weight, nullptr, N, c.C, OC, nullptr);
        stream_sync(nullptr);
        best = std::max(best, (kOnGpu ? 20 : 1) * flops / (now_seconds() - start));
    }
    device_free(memory);
    return best;
}

std::string memory_text(const Options& o, const GptConfig& c, const Comm* comm, double* bytes) {
    const double MB = 1e-6, n = double(arena_layout(gpt_tensors(c)).n), W = comm->size;
    const double buffers = std::bit_width(unsigned(o.lanes / comm->size));     // of the reduction tree
    GptActivations act;
    double activations = 0;
    for (const Activation& a : gpt_plan(&act, c, o.batch_size, o.seq_len, o.recompute, true)) activations += double(a.bytes) * a.count;
    const double weights = n * sizeof(floatX), gradients = n * sizeof(float) * buffers, state = n * sizeof(float) * (sizeof(floatX) == 2 ? 3 : 2) / W;
    const double received = W > 1 ? double(kBucketBytes) : 0, copy = kOnGpu ? 0 : 3 * n * sizeof(float) / W;
    const double sum = weights + state + gradients + activations + received + copy;
    if (bytes) *bytes = sum;
    return format("per rank, MB: weights %.1f, optimizer %.1f, gradients %.1f (%.0f x), activations %.1f (--recompute %d), received %.1f, copy for checkpoints %.1f = %.1f",
                  weights * MB, state * MB, gradients * MB, buffers, activations * MB, o.recompute, received * MB, copy * MB, sum * MB);
}

// Whether the ranks of this machine fit into `free` bytes of its device, and with what they would.
static std::string fit_text(const Options& o, const GptConfig& c, const Comm* comm, double free) {
    Options less = o;
    double bytes;
    const auto fits = [&] { return memory_text(less, c, comm, &bytes), bytes * (kOnGpu ? 1 : comm->local_size) <= free; };
    if (fits()) return "";
    while (!fits() && (less.recompute < 3 || less.batch_size > 1)) {
        if (less.recompute < 3) less.recompute++;
        else less.batch_size = less.batch_size % 2 == 0 ? less.batch_size / 2 : 1;
    }
    const std::string tried = format("--recompute %d --batch-size %d", less.recompute, less.batch_size);
    return fits() ? "it does not fit; it would with " + tried
                  : format("it does not fit, nor with %s; take %s or a smaller model", tried.c_str(), kOnGpu ? "more GPUs" : "more machines");
}

void dry_run(const Options& o, const GptConfig& c, const Comm* comm, int leaves) {
    const double W = comm->size;
    std::printf("model     %d layers x %d heads x %d channels, context %d, vocabulary %d: %s parameters\n", c.L, c.NH, c.C, c.maxT, c.V,
                with_commas(gpt_parameters(c)).c_str());
    GptConfig published = c;
    published.V = 50257;
    published.Vp = round_up(published.V, 16);
    if (o.preset.starts_with("gpt2-") && c.V != published.V)
        std::printf("          its vocabulary is that of --tokenizer %s; with --tokenizer gpt2, of 50,257, it has %s parameters\n", o.tokenizer.c_str(),
                    with_commas(gpt_parameters(published)).c_str());
    std::printf("step      %s tokens = %d micro-batches of %d x %d, in %d lanes on %d rank%s\n", with_commas(uint64_t(o.total_batch_size)).c_str(),
                leaves, o.batch_size, o.seq_len, o.lanes, comm->size, W > 1 ? "s" : "");
    std::printf("memory    %s\n", memory_text(o, c, comm).c_str());
    size_t free, total;
    device_memory(&free, &total);
    if (total) std::printf("          this device has %.1f MB, %.1f free\n", double(total) * 1e-6, double(free) * 1e-6);
    if (const std::string text = total ? fit_text(o, c, comm, double(free)) : ""; !text.empty()) std::printf("          %s\n", text.c_str());
    // Two thirds of a matmul's rate is what whole steps of this trainer reach: attention and what is bound by memory take the rest.
    const double rate = measure_flops(c, o.batch_size * o.seq_len), work = gpt_flops_per_token(c, o.seq_len) * double(o.total_batch_size);
    const double seconds = work / (W * rate * 2 / 3), days = seconds * double(o.steps) / 86400;
    std::printf("time      %.3g FLOP per step; a matmul of this shape runs at %.1f GFLOP/s here: about %.3g s per step, %s tokens/s\n", work, rate * 1e-9,
                seconds, with_commas(uint64_t(double(o.total_batch_size) / seconds)).c_str());
    std::printf("          %s steps: about %s (on %d rank%s, communication not counted)\n", with_commas(uint64_t(o.steps)).c_str(),
                (days >= 1 ? format("%.1f days", days) : days * 24 >= 1 ? format("%.1f hours", days * 24) : format("%.1f minutes", days * 1440)).c_str(),
                comm->size, W > 1 ? "s" : "");
}

}  // namespace BACKEND
