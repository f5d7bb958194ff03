// plan.cpp -- plans a run on GPUs that are not at hand: what it takes of their memory, and how long a step takes.
// `train_gpt --dry-run --for` becomes it, with all its options.
#include <numeric>
#include <utility>
#include "src/ddp/reductions/reduction.h"
#include "src/app/program.h"
#include "src/base/words.h"
#include "tools/step_model.h"

namespace BACKEND {

struct MicroBatch { int rows, replicas; double seconds, bytes; };       // of a step, of a rank

// Returns the micro-batch to take: of the powers of two whose arrays fit, the smallest whose step takes at most 1.5 %
// more than the fastest's. The model cannot tell less apart, and a larger one takes memory. rows 0: none fits.
static MicroBatch advise(Options o, const Gpu& gpu, int ranks) {
    std::vector<MicroBatch> fit;
    std::string said;
    const int64_t rows = o.total_batch_size / o.shape.T, most = std::max(o.replicas, 8);    // 8: the default's most
    for (o.batch_size = 1; rows % o.batch_size == 0; o.batch_size *= 2) {
        const int64_t micro_batches = rows / o.batch_size;
        o.replicas = int(std::gcd(micro_batches, most));
        if (o.replicas % ranks != 0) break;
        const double bytes = memory_of(o, ranks, true, 1, &said);
        if (bytes > gpu.memory) continue;
        const StepTime step = predict_step(gpu, step_work(o, ranks, int(micro_batches)));
        fit.push_back({o.batch_size, o.replicas, step.total, bytes});
    }
    if (fit.empty()) return {};
    const double least = std::ranges::min(fit, {}, &MicroBatch::seconds).seconds;
    return *std::ranges::find_if(fit, [&](const MicroBatch& m) { return m.seconds <= 1.015 * least; });
}

// Parses the value of --for, "8xh100" or "h100". Returns the GPU and sets *ranks to their number. kExitUsage: unknown.
static const Gpu& gpu_asked_for(const std::string& text, int* ranks) {
    std::string names;
    for (const Gpu& g : kGpus) {
        const std::string name = std::string("x") + g.name, all = text == g.name ? "1x" + text : text;
        const bool is = all.ends_with(name) && parse_whole(all.substr(0, all.size() - name.size()), ranks);
        if (is && *ranks > 0 && (*ranks <= kPerHost || *ranks % int(kPerHost) == 0)) return g;
        names += std::string(" ") + g.name;
    }
    die(kExitUsage, "--for: got %s, want one of%s, or 4xh100, 16xh100: hosts of 8", text.c_str(), names.c_str());
}

static void predict(const Options& o, const Gpu& gpu, int ranks) {
    const double tokens = double(o.total_batch_size);
    const double flops = find_model(o.model)->flops_per_token(o.shape, o.shape.T) * tokens;
    const StepTime s = predict_step(gpu, step_work(o, ranks, int(o.micro_batches())));
    std::printf("predicted %.1f ms per step, %.0f tokens/s, MFU %.1f %%, exposed communication %.1f ms; not measured\n",
                s.total * 1e3, tokens / s.total, 100 * flops / s.total / ranks / gpu.peak, s.exposed * 1e3);
    if (const MicroBatch best = advise(o, gpu, ranks); best.rows == 0)
        std::printf("advised   none: on %d of these GPUs no --batch-size fits\n", ranks);
    else std::printf("advised   --batch-size %d --replicas %d: %.1f ms per step, %.1f MB per rank\n", best.rows,
                     best.replicas, best.seconds * 1e3, best.bytes * 1e-6);
}

static int plan(int argc, char** argv, Process* process) {
    Options o = read_command_line(parse_options, argc, argv, process);
    if (o.command == "help") hand_over("--help", require_tool("--help", "lm"), o.argv, "train_gpt");
    if (std::exchange(process->world, {}).rank > 0) return kExitDone;      // rank 0 alone plans
    if (!o.dry_run || !o.is_given("for") || o.dtype == "fp32")
        die(kExitUsage, "--for: plans a run on GPUs, in bf16; give --dry-run with it, and no --dtype fp32");
    int ranks;
    const Gpu& gpu = gpu_asked_for(o.plan_for, &ranks);
    Comm* const comm = process->comm = comm_create({}, o.timeout);
    const Run run = find_run(&o, comm);
    const auto init = run.resumed() ? init_of_run(run.checkpoint, o, comm) : init_of_options(&o, comm);
    resolve_options(&o, true);
    check_device(*find_model(o.model), o.shape, true);
    check_ranks(o, ranks);
    if (!find_reduction(o.reduce).on_gpus) die(kExitUsage, "--reduce %s: needs CPUs; leave it out", o.reduce.c_str());
    const Data data = data_of_options(o, *init, comm);
    set_vocabulary(&o.shape, data.vocab_size);
    dry_run(o, data, ranks, 1, gpu.memory);
    if (find_model(o.model)->head_size) predict(o, gpu, ranks);     // the step model has no recurrent models
    check_output();
    comm_destroy(comm);
    return kExitDone;
}

}  // namespace BACKEND

int main(int argc, char** argv) { return run_program(argc, argv, BACKEND::plan); }
