// plan.cpp -- predicts how long a run's step takes on GPUs that are not at hand, for `train_gpt --dry-run --for`.
#include <numeric>
#include "src/base/file.h"
#include "tools/step_model.h"
#include "tools/tool.h"

namespace BACKEND {

struct MicroBatch { int rows, replicas; double seconds, bytes; };       // of a step, of a rank

// Returns the micro-batch to take: of the powers of two whose arrays fit, the smallest whose step takes at most 1.5 %
// more than the fastest's. The model cannot tell less apart, and a larger one takes memory. rows 0: none fits.
static MicroBatch advise(Options o, const PlannedGpu& asked, const Gpu& gpu, int ranks) {
    std::vector<MicroBatch> fit;
    std::string said;
    const int64_t rows = o.total_batch_size / o.shape.T, most = std::max(o.replicas, 8);    // 8: the default's most
    for (o.batch_size = 1; rows % o.batch_size == 0; o.batch_size *= 2) {
        const int64_t micro_batches = rows / o.batch_size;
        o.replicas = int(std::gcd(micro_batches, most));
        if (o.replicas % ranks != 0) break;
        const double bytes = memory_of(o, ranks, true, 1, &said);
        if (bytes > asked.memory) continue;
        const StepTime step = predict_step(gpu, step_work(o, ranks, int(micro_batches)));
        fit.push_back({o.batch_size, o.replicas, step.total, bytes});
    }
    if (fit.empty()) return {};
    const double least = std::ranges::min(fit, {}, &MicroBatch::seconds).seconds;
    return *std::ranges::find_if(fit, [&](const MicroBatch& m) { return m.seconds <= 1.015 * least; });
}

static int plan(const std::string& path, const std::string& gpus) {
    int ranks;
    const PlannedGpu& asked = gpu_asked_for(gpus, &ranks);
    const Gpu* const found = std::ranges::find(kGpus, std::string_view(asked.name), &Gpu::name);
    CHECK(found != std::end(kGpus), "%s has no rates", asked.name);
    const Gpu& gpu = *found;
    Options o;
    options_merge_saved(&o, path[0] == '{' ? path : read_file(path), "config.json");
    resolve_options(&o, true);
    set_vocabulary(&o.shape, o.shape.V);
    const ModelInfo& model = *find_model(o.model);
    if (!model.head_size)
        die(kExitUsage, "got the model %s, want one with heads: others go position by position", model.name);
    const double tokens = double(o.total_batch_size), flops = model.flops_per_token(o.shape, o.shape.T) * tokens;
    const int micro_batches = int(o.total_batch_size / o.batch_size / o.shape.T);
    const StepTime s = predict_step(gpu, step_work(o, ranks, micro_batches));
    std::printf("predicted %.1f ms per step, %.0f tokens/s, MFU %.1f %%, exposed communication %.1f ms; not measured\n",
                s.total * 1e3, tokens / s.total, 100 * flops / s.total / ranks / gpu.peak, s.exposed * 1e3);
    if (const MicroBatch best = advise(o, asked, gpu, ranks); best.rows == 0)
        std::printf("advised   none: on %d of these GPUs no --batch-size fits\n", ranks);
    else std::printf("advised   --batch-size %d --replicas %d: %.1f ms per step, %.1f MB per rank\n", best.rows,
                     best.replicas, best.seconds * 1e3, best.bytes * 1e-6);
    return kExitDone;
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    std::string gpus;
    const Tool tool = {"plan",
        "usage: build/plan CONFIG --for [Nx]GPU     how long a step takes, by a model of the GPU\n"
        "CONFIG: a run's config.json, or its text.\n",
        {{"--for", "[Nx]GPU", "a100, h100, h200, b200, 4090; 16xh100: two hosts of 8", &gpus}}};
    return tool_main(tool, argc, argv, [&](const Words& words) {
        if (words.size() != 1 || gpus.empty())
            die(kExitUsage, "plan: want a config.json and --for; see build/plan --help");
        return BACKEND::plan(words[0], gpus);
    });
}
