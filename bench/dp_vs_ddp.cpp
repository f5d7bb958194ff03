// dp_vs_ddp.cpp -- data parallelism with a root, as PyTorch's DataParallel does it, beside train_gpt's DDP: same model,
// data and bits.
//
//     build/bench/dp_vs_ddp [replicas] [options of train_gpt]      default: 2 replicas of a model of 13 M parameters,
//     10 steps
//
// DataParallel-style: one process, a thread per replica. Each step every replica takes the root's parameters, computes
// its share of the batch, and the root alone adds all gradients, clips, updates. It is kinder than PyTorch's: no
// interpreter lock, no module rebuilt, the loss stays on the replica, replicas fetch the parameters side by side, and
// the sum is DDP's tree. DDP: `train_gpt --np N --threads 1`. The two take turns, three rounds; losses are compared bit
// for bit.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "models/gpt2.h"
#include "models/model.h"
#include "optimizers/adamw.h"
#include "src/app/app.h"
#include "src/app/program.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/data/orders/order.h"
#include "src/options/options.h"

namespace BACKEND {

struct Timings {
    std::vector<double> losses, step_ms, root_ms;
};  // root_ms: of a step, while the root works alone or all fetch from it

struct Replica {
    Model model;
    floatX* weights;
    float* grads;
};

static double median(std::vector<double> x) {
    std::nth_element(x.begin(), x.begin() + long(x.size() / 2), x.end());
    return x[x.size() / 2];
}

static float* floats(size_t n, const char* what) { return static_cast<float*>(device_alloc(n * sizeof(float), what)); }

static Timings data_parallel(const Options& o, const Data& data, const Shape& shape, int W) {
    const Arena arena = arena_layout(gpt2_tensors(shape));
    const size_t n = arena.n;
    const int G = int(o.micro_batches()), micro_batches = G / W;
    std::vector<Replica> replicas(static_cast<size_t>(W));
    std::vector<const float*> terms;
    for (Replica& r : replicas) {
        r.weights = floats(n, "weights");
        r.grads = floats(n, "gradients");
        model_create(&r.model, &gpt2_info, shape, o.batch_size, o.shape.T, o.recompute, r.weights, true);
        model_set_gradients(&r.model, r.grads);
        terms.push_back(r.grads);
    }
    float *const root = replicas[0].weights, *const m = floats(n, "m"), *const v = floats(n, "v"),
                 *const partials = floats(n / kUnit, "partials");
    arena_init(root, arena, o.seed);
    std::vector<PassResult> results(static_cast<size_t>(G));
    StepState state;
    Timings result;
    const Sampler sampler = {lockstep_info.sample, {0, data.train.samples}, o.seed, o.batch_size, G, o.replicas};
    std::barrier together(W);
    const auto run = [&](int w) {
        Replica& r = replicas[size_t(w)];
        BatchLoader loader(data.train, sampler, data.vocab_size, w * micro_batches, (w + 1) * micro_batches, 0);
        for (int64_t step = 0; step < o.steps; step++) {
            const double start = now_seconds();
            if (w == 0) {
                state = {
                    .seed = o.seed,
                    .step = uint32_t(step),
                    .lr = float(o.lr * schedule_fraction(o, step)),
                    .grad_scale = 0,
                    .tokens = double(o.total_batch_size)};
                adamw_info.prepare(&state, hyper_values(o, adamw_info.hyper).data(), step + 1, 1, nullptr);
            }
            together.arrive_and_wait();
            if (w > 0) std::memcpy(r.weights, root, n * sizeof(float));  // the broadcast
            together.arrive_and_wait();
            const double fetched = now_seconds();
            for (int k = 0; k < micro_batches; k++) {
                const BatchLoader::Batch& batch = loader.next();
                const int number = w * micro_batches + k;
                const Pass pass = {.B = o.batch_size,
                                   .T = o.shape.T,
                                   .accumulate = k > 0,
                                   .state = &state,
                                   .micro_batch = uint32_t(number)};
                model_forward_backward(&r.model, pass, &results[size_t(number)], batch.tokens.data(),
                                       batch.targets.data());
            }
            together.arrive_and_wait();
            if (w > 0) continue;  // the others wait at the next step's barrier
            const double computed = now_seconds();
            double norm;
            tree_reduce(r.grads, partials, terms.data(), W, Tree::kBalanced, n, nullptr);
            clip_scale(&state, &norm, partials, n / kUnit, o.grad_clip);
            float* const moments[] = {m, v};
            update(0, 0, {n, root, root, moments, r.grads, arena_rates(arena).data(), &state});
            double loss = 0;
            for (const PassResult& r : results) loss += r.loss;
            result.losses.push_back(loss / double(o.total_batch_size));
            result.step_ms.push_back((now_seconds() - start) * 1e3);
            result.root_ms.push_back((now_seconds() - computed + fetched - start) * 1e3);
        }
    };
    std::vector<std::thread> threads;
    for (int w = 1; w < W; w++) threads.emplace_back(run, w);
    run(0);
    for (std::thread& t : threads) t.join();
    for (Replica& r : replicas) {
        model_destroy(&r.model);
        device_free(r.weights);
        device_free(r.grads);
    }
    for (float* p : {m, v, partials}) device_free(p);
    return result;
}

// train_gpt beside this program, in a folder that goes away; its metrics.
static Timings ddp(const std::vector<std::string>& options, int W) {
    char self[4096] = "", folder[] = "/tmp/dp_vs_ddp-XXXXXX";
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0 || !mkdtemp(folder))
        die(kExitOther, "dp_vs_ddp: cannot find itself, or make a folder");
    std::string command(self);
    command = shell_quote(command.substr(0, command.rfind("/bench/")) + "/train_gpt") +
              format(" --np %d --threads 1 --out-dir %s/run", W, folder);
    for (const std::string& word : options) command += " " + shell_quote(word);
    const int code = std::system((command + " >" + folder + "/log 2>&1").c_str());
    if (code != 0) die(kExitOther, "%s: exit code %d", command.c_str(), code >> 8);
    Timings result;
    const std::string text = read_file(path_join(folder, "run/metrics.jsonl"));
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        const Json line = parse_json(std::string_view(text).substr(at, end - at), "metrics.jsonl");
        if (line.get_string("event", "metrics.jsonl") != "train") continue;
        result.losses.push_back(line.get_double("loss", "metrics.jsonl"));
        result.step_ms.push_back(line.get_double("step_ms", "metrics.jsonl"));
    }
    remove_tree(folder);
    return result;
}

static int compare(int W, std::vector<std::string> words) {
    const auto lacks = [&](const char* name) {
        return std::none_of(words.begin(), words.end(),
                            [&](const std::string& w) { return w.compare(0, std::strlen(name), name) == 0; });
    };
    for (const auto& [name, value] :
         std::vector<std::pair<const char*, std::string>>{{"--layers", "4"},
                                                          {"--heads", "8"},
                                                          {"--channels", "512"},
                                                          {"--seq-len", "64"},
                                                          {"--batch-size", "2"},
                                                          {"--total-batch-size", std::to_string(128 * W)},
                                                          {"--steps", "10"},
                                                          {"--warmup-steps", "2"},
                                                          {"--replicas", std::to_string(W)}})
        if (lacks(name)) words.insert(words.end(), {name, value});
    words.insert(words.end(), {"--device", "cpu", "--dtype", "fp32", "--eval-every", "0", "--save-every", "0",
                               "--sample-every", "0", "--audit-every", "0"});
    std::vector<const char*> argv = {"dp_vs_ddp"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    Options o = parse_options(int(argv.size()), argv.data());
    resolve_options(&o, false);
    if (o.replicas != W || o.total_batch_size % (int64_t(W) * o.batch_size * o.shape.T) || o.shape.dropout > 0)
        die(kExitUsage, "dp_vs_ddp: want --replicas %d as replicas, micro-batches that they divide, and no dropout", W);
    set_threads(1);  // each replica's thread is its one thread: kernels that see one run in their caller
    const Data data = open_data(data_options(o, Init()), nullptr);
    Shape shape = o.shape;
    set_vocabulary(&shape, data.vocab_size);

    Timings dp, dd;
    for (int round = 0; round < 3; round++) {
        const Timings a = data_parallel(o, data, shape, W), b = ddp(words, W);
        if (a.losses != b.losses || a.losses.size() != size_t(o.steps))
            die(kExitDisagree, "dp_vs_ddp: losses differ: last %.17g and %.17g", a.losses.back(), b.losses.back());
        dp.step_ms.insert(dp.step_ms.end(), a.step_ms.begin() + 2,
                          a.step_ms.end());  // the first steps touch memory for the first time
        dp.root_ms.insert(dp.root_ms.end(), a.root_ms.begin() + 2, a.root_ms.end());
        dd.step_ms.insert(dd.step_ms.end(), b.step_ms.begin() + 2, b.step_ms.end());
    }
    const double P = double(arena_layout(gpt2_tensors(shape)).n) * sizeof(float) * 1e-6, N = W;
    const int cores = int(std::thread::hardware_concurrency());
    std::printf(
        "%s parameters, %lld tokens per step, %d replicas of one thread on %d cores%s; the same %lld losses, bit for "
        "bit\n\n",
        with_commas(count_parameters(gpt2_tensors(shape))).c_str(), (long long)o.total_batch_size, W, cores,
        W > cores ? " (oversubscribed)" : "", (long long)o.steps);
    std::printf("| | DataParallel-style | DDP (train_gpt --np %d) |\n|---|---|---|\n", W);
    std::printf("| step, ms (median of 3 rounds by turns) | %.1f | %.1f (%.2f x as fast) |\n", median(dp.step_ms),
                median(dd.step_ms), median(dp.step_ms) / median(dd.step_ms));
    std::printf("| of it the root's own: parameters out, sum, update, ms | %.1f (the others idle: %.0f %%) | - |\n",
                median(dp.root_ms), 100 * median(dp.root_ms) / median(dp.step_ms));
    std::printf("| bytes of gradients and parameters through the busiest replica per step, MB | %.1f | %.1f |\n",
                2 * (N - 1) * P, 2 * (N - 1) / N * P * 2);
    std::printf("| memory of the root, of another: parameters, gradients, moments, MB | %.1f, %.1f | %.1f each |\n",
                4 * P, 2 * P, 2 * P + 2 * P / N);
    return 0;
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    set_program("dp_vs_ddp");
    const int W = argc > 1 && argv[1][0] != '-' ? std::atoi(argv[1]) : 2;
    try {
        if (W < 2 || (W & (W - 1)))
            die(kExitUsage, "usage: build/bench/dp_vs_ddp [replicas: 2, 4, 8] [options of train_gpt]");
        return BACKEND::compare(W,
                                std::vector<std::string>(argv + (argc > 1 && argv[1][0] != '-' ? 2 : 1), argv + argc));
    } catch (const Error& e) {
        print_error(e);
        return e.code;
    }
}
