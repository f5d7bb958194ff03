// scaling.cpp -- a cost model of a step's communication, and what it predicts. bench/scaling.sh feeds it and writes
// docs/scaling.md.
//
//     build/bench/allreduce 2 shm | build/bench/scaling
//
// A transfer of S bytes takes alpha + S / beta. The step is played through: backward makes the buckets ready from the
// arena's end (the tied embedding's last, all at once), the communication stream reduces them in order, the own slice
// is updated, the weights are gathered from the arena's start while the next forward waits for each part it needs. Not
// in the model: slow ranks, shared switches.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "models/gpt2.h"
#include "src/app/options.h"
#include "src/base/common.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

struct Line {
    double alpha, beta;
    double operator()(double bytes) const { return alpha + bytes / beta; }
};  // seconds, bytes per second

// alpha: the smallest transfer's time. beta: least squares of the relative errors of those that leave the caches, as
// buckets do.
constexpr double kLarge = 4 << 20;
static Line fit(const std::vector<std::pair<double, double>>& points) {
    const double alpha = points[0].second;
    double bb = 0, bt = 0;
    for (const auto& [bytes, t] : points)
        if (bytes >= kLarge) {
            bb += bytes / t * bytes / t;
            bt += bytes / t * (t - alpha) / t;
        }
    return {alpha, bb / bt};
}

// H100 nodes: 8 GPUs on NVLink 4, one 400 Gb/s InfiniBand card per GPU. Sources: 370 GB/s is the best bus bandwidth
// without in-switch sums (NVIDIA/nccl-tests issue 309), 19 us a 32 KB all-reduce of 8 GPUs (kvcache-ai/Mooncake pull
// request 3484), halved for each of its two halves; 14 us NCCL's base latency between nodes (its tuner, 2.30.7); 45
// GB/s is 90 % of the card's 50. 1 us per message to another node: an assumption. A rank exchanges with all nodes
// directly, so their number counts.
constexpr Line kNvlink = {9.5e-6, 370e9}, kInfiniband = {14e-6, 45e9};
constexpr double kMessage = 1e-6, kPeak = 989.5e12, kMfu = 0.40, kHbm = 3.35e12;
constexpr int kPerNode = 8;

// One half of an all-reduce, reduce-scatter or all-gather, of `bytes` on each of N GPUs.
static double half(double bytes, int N) {
    const int local = std::min(N, kPerNode), nodes = N / local;
    double t = 0;
    if (local > 1) t += kNvlink(bytes * (local - 1) / local);
    if (nodes > 1) t += kInfiniband(bytes / local * (nodes - 1) / nodes) + kMessage * (nodes - 1);
    return t;
}

struct Step {
    double compute, exposed;
};

static Step play(const Shape& c, int B, int T, int N, bool overlap) {
    const Arena arena = arena_layout(gpt2_tensors(c));
    const double flops = gpt2_info.flops_per_token(c, T) * B * T, compute = flops / (kPeak * kMfu);
    const double head = 6.0 * c.V * c.C * B * T / flops * compute,
                 block = (compute - head) / c.L;  // forward and backward, the block's 1 : 2
    if (N == 1) return {compute, 0};
    const auto first_layer = [&](size_t element) {  // of the tensor at this place: -1 embedding, L the last LayerNorm
        size_t t = 0;
        while (t + 1 < arena.offset.size() && arena.offset[t + 1] <= element) t++;
        return t < 2 ? -1 : std::min((int(t) - 2) / 12, c.L);
    };
    const double backward = c.L * block * 2 / 3;  // the head's is done when it begins
    std::vector<Range> buckets;                   // as ddp.cpp cuts them
    for (size_t end = arena.n; end > 0; end = buckets.back().begin)
        buckets.push_back(
            {end - std::min(end, (buckets.empty() ? kFirstBucketBytes : kBucketBytes) / sizeof(float)), end});
    double at = 0;  // of the communication stream, counted from backward's begin
    for (const Range& b : buckets) {
        const int layer = first_layer(b.begin);
        const double ready = !overlap || layer < 0 ? backward : (c.L - layer) * block * 2 / 3,
                     bytes = double(b.size()) * sizeof(float);
        at = std::max(at, ready) + half(bytes, N) + bytes / kHbm;  // the tree_reduce reads what has come
    }
    const double update = 30.0 * double(arena.n) / N / kHbm;  // masters, moments, gradient, weights
    double exposed = at - backward + update;
    double gathered = 0, forward = 0, stalls = 0;  // counted from the end of the update
    for (size_t i = buckets.size(); i-- > 0;) {
        gathered += half(double(buckets[i].size()) * 2, N);
        const double needed = !overlap ? 0 : std::max(0, first_layer(buckets[i].begin)) * block / 3;
        forward = needed + stalls;
        if (gathered > forward) stalls += gathered - forward;
    }
    exposed += overlap ? stalls : gathered;
    return {compute, exposed};
}

static Shape preset(const char* name, int* B, int* T) {
    const char* argv[] = {"scaling", "--preset", name, "--device", "gpu"};
    int exit_now = -1;
    Options o = parse_options(5, argv, &exit_now);
    resolve_options(&o, true);
    *B = o.batch_size;
    *T = o.shape.T;
    set_vocabulary(&o.shape, 50257);
    return o.shape;
}

static int run() {
    std::vector<std::pair<double, double>> points;
    int ranks = 0;
    double bytes, seconds;
    char kind[16];
    while (std::scanf("%15s %d %lf %lf", kind, &ranks, &bytes, &seconds) == 4)
        if (std::string(kind) == "shm" && bytes >= 16384) points.push_back({bytes, seconds});
    if (points.size() < 3)
        die(kExitUsage, "scaling: got %zu sizes, want the output of build/bench/allreduce N shm on the standard input",
            points.size());
    const Line shm = fit(points);
    std::printf(
        "Between %d CPU ranks an all-reduce takes %.1f us + bytes / %.2f GB/s (fitted from 4 MiB on; the worst is off "
        "by",
        ranks, shm.alpha * 1e6, shm.beta * 1e-9);
    double worst = 0;
    for (const auto& [b, t] : points)
        if (b >= kLarge) worst = std::max(worst, std::fabs(shm(b) / t - 1));
    int B, T;
    const double n = double(arena_layout(gpt2_tensors(preset("gpt2-124m", &B, &T))).n) * sizeof(float);
    std::printf(" %.0f %%).\nGPT-2 124M, %.0f MB of gradients: %.0f ms.\n\n", 100 * worst, n * 1e-6, shm(n) * 1e3);

    std::printf(
        "Predicted efficiency on H100 nodes of 8 GPUs (one micro-batch of B x 1024 tokens per GPU and step: the least "
        "work for the most\n"
        "communication; MFU %.0f %%; with overlap / without):\n\n| preset, B | micro_batch, ms |",
        100 * kMfu);
    const std::vector<int> counts = {2, 8, 16, 64, 256, 1024, 4096};
    for (const int N : counts) std::printf(" %d |", N);
    std::printf("\n|---|---|");
    for (size_t i = 0; i < counts.size(); i++) std::printf("---|");
    std::printf("\n");
    for (const auto& [name, small] : std::vector<std::pair<const char*, bool>>{{"gpt2-124m", true},
                                                                               {"gpt2-124m", false},
                                                                               {"gpt2-350m", false},
                                                                               {"gpt2-774m", false},
                                                                               {"gpt2-1558m", false}}) {
        const Shape c = preset(name, &B, &T);
        if (small) B = 4;
        std::printf("| %s, %d | %.1f |", name, B, play(c, B, T, 1, true).compute * 1e3);
        for (const int N : counts) {
            const auto percent = [&](bool overlap) {
                const Step s = play(c, B, T, N, overlap);
                return 100 * s.compute / (s.compute + s.exposed);
            };
            std::printf(" %.0f / %.0f |", percent(true), percent(false));
        }
        std::printf("\n");
    }
    return 0;
}

}  // namespace BACKEND

int main() {
    set_program("scaling");
    try {
        return BACKEND::run();
    } catch (const Error& e) {
        print_error(e);
        return e.code;
    }
}
