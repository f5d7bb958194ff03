// plan.cpp -- prints what a run takes, without starting it: parameters, epochs and memory. For GPUs that are not at
// hand it also predicts how long a step takes. `train_gpt --dry-run` becomes it, with all its options.
#include <algorithm>
#include <numeric>
#include <utility>
#include "src/app/program.h"
#include "src/base/cpus.h"
#include "src/base/words.h"
#include "tools/step_model.h"

// What each backend counts: the memory of a run and of its device.
struct Counts {
    double (*memory_of)(const Options& options, int ranks, bool on_gpu, int sharing, std::string* said);
    void (*device_memory)(size_t* free, size_t* total);
};
#define DECLARE(ns, ...) \
    namespace ns { \
    double memory_of(const Options&, int, bool, int, std::string*); \
    void device_memory(size_t*, size_t*); \
    }
BACKENDS(DECLARE)
#define COUNTS(ns, ...) {ns::memory_of, ns::device_memory},
static const Counts counts[] = {BACKENDS(COUNTS)};

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

// Opens the data. Without --data it opens none, and counts the vocabulary of --vocab-size or of the preset. For presets
// without one, as small as they are, it opens the built-in stories, as a run does.
static Data data_of(const Options& o, const Init& init, Comm* comm) {
    const int V = o.shape.V ? o.shape.V : o.vocabulary;
    if (!V || o.is_given("tokenizer") || o.data + o.init + o.resume != "")
        return open_data(data_options(o, init), comm);
    return {.train = {.description = "none given; a run takes the built-in stories, in bytes"}, .vocab_size = V};
}

// Where a run would be.
struct Place {
    int ranks = 1, sharing = 1;         // sharing: see memory_of
    bool on_gpu = true;
    double memory = 0;                  // of a GPU that is not at hand; else 0
};

// Prints the model, the step, the memory of a rank and whether it fits.
static void print_plan(const Options& o, const Data& data, const Place& place, const Counts& counts) {
    const ModelInfo* info = find_model(o.model);
    const double flops = info->flops_per_token(o.shape, o.shape.T) * double(o.total_batch_size);
    std::string said, by;
    const double all = counts.memory_of(o, place.ranks, place.on_gpu, place.sharing, &said);
    if (const std::string many = many_epochs(o, data); !many.empty()) warn("%s", many.c_str());
    std::printf("%s\nwork    %.3g FLOP per step\nmemory  %s\n", describe_run(o, data, place.ranks).c_str(), flops,
                said.c_str());
    for (const TensorSpec& t : info->tensors(o.shape))
        if (o.verbose) std::printf("tensor  %s (%zu,%zu)\n", t.name.c_str(), t.rows, t.cols);
    size_t free, total;
    if (place.memory > 0) free = total = size_t(place.memory);
    else counts.device_memory(&free, &total);
    if (total == 0) return;
    if (const Allowance most = allowed_memory(); !place.on_gpu && most.amount < double(total)) {
        free = std::min(free, total = size_t(most.amount));
        by = ", by " + most.by;
    }
    std::printf("        this %s has %.1f MB%s, %.1f free; its ranks take %.1f: ", place.on_gpu ? "GPU" : "host",
                double(total) * 1e-6, by.c_str(), double(free) * 1e-6, all * 1e-6);
    if (all <= double(free)) std::printf("it fits\n");
    else std::printf("it does not fit; try --replicas %d, --recompute 3, smaller --batch-size, %s ranks\n",
                     place.ranks, place.on_gpu ? "more" : "fewer");
}

static int plan(int argc, char** argv, Process* process) {
    Options o = read_command_line(parse_options, argc, argv, process);
    if (o.command == "help") hand_over("--help", require_tool("--help", "lm"), o.argv, "train_gpt");
    const bool absent = o.is_given("for");          // the GPUs are not at hand: rank 0 alone plans
    if (absent && std::exchange(process->world, {}).rank > 0) return kExitDone;
    if (!o.dry_run || (absent && o.dtype == "fp32"))
        die(kExitUsage, "--for: plans a run on GPUs, in bf16; give --dry-run with it, and no --dtype fp32");
    Place place;
    const Gpu* const gpu = absent ? &gpu_asked_for(o.plan_for, &place.ranks) : nullptr;
    if (!absent) take_place(o, process->no_world.code ? "--dry-run" : "", process);
    Comm* const comm = process->comm = comm_create(process->world, o.timeout);
    const Run run = find_run(&o, comm);
    Counts use = {memory_of, device_memory};
    if (!absent) {
        const size_t chosen = choose_backend(backends(), &o);
        use = counts[chosen];
        place.ranks = comm->size;
        place.on_gpu = backends()[chosen].gpu;
        if (!place.on_gpu) place.sharing = comm->local_size;
    }
    check_reduction(o, place.on_gpu);
    const auto init = run.resumed() ? init_of_run(run.checkpoint, o, comm) : init_of_options(&o, comm);
    resolve_options(&o, place.on_gpu);
    check_device(*find_model(o.model), o.shape, place.on_gpu);
    check_ranks(o, place.ranks);
    const Data data = data_of(o, *init, comm);
    set_vocabulary(&o.shape, data.vocab_size);
    if (gpu) place.memory = gpu->memory;
    if (comm->rank == 0) print_plan(o, data, place, use);
    if (gpu && find_model(o.model)->head_size) predict(o, *gpu, place.ranks);   // it knows no recurrent models
    check_output();
    comm_destroy(comm);
    return kExitDone;
}

}  // namespace BACKEND

int main(int argc, char** argv) { return run_program(argc, argv, BACKEND::plan); }
