// step_model.h -- predicts the time of a training step on GPUs that are not at hand. bench/model.cpp checks it.
//
// A step is micro-batches one after the other, then the update; only communication runs beside them. A product runs in
// waves of tiles, one per multiprocessor, and a wave that is not full takes as long as a full one. A tile takes its
// flops at the rate of the main loop and, as in kernels/cuda/matmul.cuh, `edge` k more to begin and end. The best tile
// and split of k counts, but no product is faster than its bytes. Attention's rates grow with T as T / (T + kHalfT).
// All else is bytes at the rate of a copy, and kGap between kernels. A bucket of gradients is summed in its host, then
// its slices between hosts; each rank gets the weights from all owners. The last backward and the next forward hide
// both, except for the embeddings, and leave kNcclProcessors to NCCL. Not predicted: host work, slow ranks, low clocks.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "models/use.h"
#include "src/app/app.h"
#include "src/ddp/ddp.h"
#include "src/options/options.h"

// Rates per second, in bf16. H200's were measured with these kernels (bench/results); build/bench/model --check sets
// what the model says of llm.c beside what was published, and docs/performance.md names those measurements.
//   rate       main loop of products. H200: of a micro-batch's products at the clock of a step, without waves and
//              edges: 623, 633 and 674. H100: the same chip and power. A100: hand-written kernels, 220 to 240
//              (docs/kernels.md). B200: with mma.sync. 4090: a step of github.com/IST-DASLab/llmq runs at 81 %
//   copy       90 % of the data sheet, as on an H200 and in github.com/Dao-AILab/quack's H100; of a B200 75 %
//   attention  at endless T. H200, H100: as rate. A100: cuDNN's in the profile of llm.c's pull request 378, its
//              backward x 5/7, as ours is ordered. B200: FlashAttention 2 on an H100 (arXiv 2407.08608) x 409 / 485,
//              backward x 5/7. 4090: A100's share of the peak
//   nvlink     to GPUs of its host, as nccl-tests report it; B200: H100's share of its links; 4090: half of PCIe
//   network    to other hosts: 90 % of 400 Gb/s; A100: of 200; 4090: of 100 Gb/s for 8 GPUs
struct Gpu {
    const char* name;
    double memory;                          // bytes
    double processors, peak, rate, copy, attention[2][2], nvlink, network;      // [heads > 64][backward]
};
inline const Gpu kGpus[] = {
    {"a100", 80e9, 108, 312e12, 220e12, 1.8e12, {{177e12, 88e12}, {233e12, 116e12}}, 200e9, 22.5e9},
    {"h100", 80e9, 132, 989e12, 620e12, 3.0e12, {{440e12, 355e12}, {603e12, 467e12}}, 370e9, 45e9},
    {"h200", 141e9, 132, 989e12, 620e12, 4.3e12, {{440e12, 355e12}, {603e12, 467e12}}, 370e9, 45e9},
    {"b200", 180e9, 148, 2250e12, 409e12, 6.0e12, {{259e12, 144e12}, {297e12, 190e12}}, 740e9, 45e9},
    {"4090", 24e9, 128, 165e12, 150e12, 0.92e12, {{94e12, 47e12}, {123e12, 61e12}}, 12e9, 1.4e9}};

// Tiles with their share of the rate and their edge are Hopper's of matmul.cuh. kHalfT is read off the charts of
// arXiv 2407.08608, kGap is a graph's node, the latencies of a bucket are github.com/kvcache-ai/Mooncake's
// (#3484) and NCCL's tuner's. kMessage, what one message to another host costs, is a guess. kNcclProcessors is
// what src/ddp/transport_gpu.cpp asks for.
constexpr double kModelTiles[][4] = {{128, 256, 1, 128}, {128, 160, 0.927, 112}, {128, 128, 0.944, 24}};
constexpr double kMostParts = 16, kNcclProcessors = 16, kHalfT = 350, kGap = 0.6e-6,
                 kNvlinkLatency = 9.5e-6, kNetworkLatency = 14e-6, kMessage = 1e-6;

constexpr double kPerHost = 8;              // GPUs per host

// One rank's step.
struct Work {
    double ranks, micro_batches, T, head_size;
    double tokens, attention, forwards, bytes, gaps;        // of a micro-batch: attention in flops, gaps in seconds;
                                                            // forwards 2: backward repeats it
    double gradients, weights, update, bucket;              // bytes: between ranks, of the update, of a bucket
    double late = 0;                                        // bytes of gradients that backward ends with
    std::vector<std::pair<double, double>> matrices = {};       // outputs, inputs; the head's first
};
struct StepTime { double products, attention, memory, gaps, update, exposed, total; };

inline double product_seconds(const Gpu& g, double M, double N, double K, double most_parts = 1) {
    double best = INFINITY;
    for (const auto& [BM, BN, share, edge] : kModelTiles)
        for (double parts = 1; parts <= most_parts; parts++) {
            const double waves = std::ceil(std::ceil(M / BM) * std::ceil(N / BN) * parts / g.processors);
            const double flops = 2 * BM * BN * (K / parts + edge) * waves * g.processors;
            best = std::min(best, flops / g.rate / share + (parts > 1 ? parts * M * N * 8 / g.copy : 0));
        }
    return std::max(best, 2 * (M * K + N * K + M * N) / g.copy);
}

// Seconds to reduce so many bytes of gradients and to all-gather their weights and their squares for the norm.
inline double exchange_seconds(const Gpu& g, const Work& w, double gradients) {
    const double local = std::min(w.ranks, kPerHost), hosts = w.ranks / local, others = w.ranks - local;
    const double weights = gradients / w.gradients * w.weights;
    const double inside = (gradients / local + weights / w.ranks) * (local - 1);
    const double outside = gradients / local * (1 - 1 / hosts) + weights * others / w.ranks;
    const double wait = kNvlinkLatency * 2 + kMessage * (hosts - 1 + others * 2) + (hosts > 1) * kNetworkLatency * 2;
    return inside / g.nvlink + outside / g.network + gradients / g.copy + std::ceil(gradients / w.bucket) * wait;
}

inline StepTime predict_step(const Gpu& g, const Work& w) {
    const double *rate = g.attention[w.head_size > 64], slower = 1 + kHalfT / w.T, n = w.micro_batches;
    const double attention = w.attention * (w.forwards / rate[0] + 2.5 / rate[1]) * slower;
    double products = 0, head = 0;
    for (const auto& [rows, cols] : w.matrices) {
        products += product_seconds(g, w.tokens, rows, cols) * (head > 0 ? w.forwards : 1) +
                    product_seconds(g, w.tokens, cols, rows) + product_seconds(g, rows, cols, w.tokens, kMostParts);
        if (head == 0) head = products;
    }
    StepTime s = {n * products, n * attention, n * w.bytes / g.copy, n * w.gaps, w.update / g.copy, 0, 0};
    if (w.ranks > 1) {
        const double early = exchange_seconds(g, w, w.gradients - w.late);
        const double hidden = std::min(early, products - head + attention);
        s.exposed = exchange_seconds(g, w, w.late) + early - hidden * (1 - kNcclProcessors / g.processors);
    }
    s.total = s.products + s.attention + s.memory + s.gaps + s.update + s.exposed;
    return s;
}

namespace BACKEND {

// Estimates. What forward keeps moves about once outside products. Attention has all flops that matrices have not. A
// tensor has two kernels. A weight's update moves 14 bytes and 8 per optimizer array, a sum of two replicas 12.
inline Work step_work(const Options& o, int ranks, int micro_batches) {
    const ModelInfo* const info = find_model(o.model);
    const Model m = model_plan(info, o.shape, o.batch_size, o.shape.T, 0, true, true, trained_of(o));
    const double N = double(m.B) * m.T, n = double(m.trained.n), logits = (2 * N - m.chunk) * 2 * o.shape.Vp;
    const OptimizerInfo& optimizer = *all_optimizers()[size_t(find_optimizer(o.optimizer))];
    double state = 0;                                               // bytes moved
    for (const StateSpec& array : optimizer.state) state += 8 * double(state_layout(optimizer, array, m.trained).n);
    Work w = {.ranks = double(ranks), .micro_batches = double(micro_batches) / ranks, .T = double(m.T),
              .head_size = double(info->head_size(o.shape)), .tokens = N,
              .attention = info->flops_per_token(o.shape, m.T) / 3 * N, .forwards = o.recompute == 3 ? 2.0 : 1.0,
              .bytes = double(m.memory_bytes) + logits, .gaps = 2 * kGap * double(m.arena.tensors.size()),
              .gradients = 4 * n, .weights = 2 * n,
              .update = (state + 14 * n) / ranks + n * 12 * (o.replicas / ranks - 1), .bucket = kBucketBytes};
    for (const TensorSpec& t : m.arena.tensors) {
        if (t.at_ends) w.late += 4 * double(t.rows * t.cols);
        if (!w.matrices.empty() && (t.at_ends || t.rows == 1)) continue;
        w.matrices.push_back({double(t.rows), double(t.cols)});
        w.attention -= 2 * N * double(t.file_rows * t.cols);
    }
    return w;
}

}  // namespace BACKEND
