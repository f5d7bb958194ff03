// model.cpp -- what tools/step_model.h predicts, and how far it is off where others have measured.
//
//     build/bench/model                    the tables of docs/performance.md (docs/make_model.sh)
//     build/bench/model --check            llm.c's published steps; exit code 1 if one is off by more than 10 %
//     build/bench/model --check rate 0.7   the same with an assumption multiplied: rate, copy, attention or nvlink
//     build/bench/model --assumptions      every constant
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include "models/model.h"
#include "src/base/common.h"
#include "tools/step_model.h"

namespace BACKEND {

static std::string assumption;      // that is multiplied, and by what
static double factor = 1;
static double assumed(const char* name, double value) { return assumption == name ? value * factor : value; }

static Gpu find_gpu(const std::string& name) {
    for (Gpu g : kGpus) {
        if (name != g.name) continue;
        g.rate = assumed("rate", g.rate);
        g.copy = assumed("copy", g.copy);
        g.nvlink = assumed("nvlink", g.nvlink);
        for (auto& way : g.attention)
            for (double& rate : way) rate = assumed("attention", rate);
        return g;
    }
    CHECK(false, "no GPU %s", name.c_str());
}

// ---- llm.c's structure, and what it was measured at

// Products by cuBLASLt, attention by cuDNN, the rest kernels of its own, gradients in bf16, ZeRO-1 on 8 GPUs (-z 1).
// A100's rates: cuBLAS 244 to 262 (gau-nernst) and 271 (ml-engineering) without waves and edges; cuDNN's in the
// profile of llm.c's #378, taken at 1,095 MHz, times 1,410 / 1,095. H100's: the mean of what cuBLAS reaches, 716
// TFLOP/s at 4096^3, 762 and 795 at 8192^3, without waves and edges: 759, 796 and 830; cuDNN's forward 288 at T 1,024,
// its backward 348 without the mask, times what the mask costs FlashAttention 2 (229 / 306): Shah et al. 2024.
constexpr double kA100Cublas = 268e12, kA100Cudnn[2] = {177e12, 123e12};
constexpr double kH100Cublas = 795e12, kH100Cudnn[2] = {387e12, 349e12};
constexpr double kLlmcCopy = 0.87;          // of the copy rate: its kernels, by #378: 1,220 of 1,555 GB/s x 0.9
constexpr double kLlmcGap = 1.5e-6;         // between kernels that are launched one by one
constexpr double kLlmcKernels = 24;         // per block and micro-batch
constexpr double kLlmcAdamw = 30;           // bytes per weight: masters and moments, gradient, weight, the norm's read

struct Published {
    const char *model, *gpu;
    int L, C, NH, B, T;
    double total;                           // tokens per step of 8 GPUs
    int gelu;                               // -ge: 1 fuses its forward into the product
    bool ordered;                           // since its #652: dP, (B, NH, T, T) in bf16, goes through memory on Hopper
    double seconds;
    const char* source;
};
// GPT-3 125M: the script says A100, where 150 ms would be 121 % of the peak. 1558M: the mean of both figures.
static const Published kPublished[] = {
    {"124M", "a100", 12, 768, 12, 64, 1024, 524288, 0, false, 0.300, "scripts/run_gpt2_124M.sh: ~300 ms"},
    {"350M", "a100", 24, 1024, 16, 64, 1024, 524288, 0, false, 0.820, "scripts/run_gpt2_350M.sh: ~820 ms"},
    {"774M", "a100", 36, 1280, 20, 32, 1024, 524288, 0, false, 1.700, "scripts/run_gpt2_774M.sh: ~1.7 s"},
    {"124M", "h100", 12, 768, 12, 64, 1024, 524288, 0, true, 0.140, "modded-nanogpt, record 1: mean 140 ms"},
    {"350M", "h100", 24, 1024, 16, 64, 1024, 524288, 0, true, 0.348, "modded-nanogpt, track 2: 60,000 steps in 5.8 h"},
    {"GPT-3 125M", "h100", 12, 768, 12, 32, 2048, 524288, 1, true, 0.150, "scripts/run_gpt3_125M.sh: ~150 ms"},
    {"1558M", "h100", 48, 1600, 25, 16, 1024, 1048576, 1, true, 2.750, "scripts/run_gpt2_1558M.sh: 2.80 s and 2.7 s"}};

static double llmc_seconds(const Published& p) {
    Gpu g = find_gpu(p.gpu);
    const bool ampere = !std::strcmp(p.gpu, "a100");
    g.rate = assumed("rate", ampere ? kA100Cublas : kH100Cublas);
    const double* const cudnn = ampere ? kA100Cudnn : kH100Cudnn;
    for (int way = 0; way < 2; way++) g.attention[0][way] = assumed("attention", cudnn[way]);
    g.copy *= kLlmcCopy;
    const double N = double(p.B) * p.T, C = p.C, L = p.L, V = 50304, pass = 2 * N * C;
    const double n = 12 * L * C * C + (V + p.T) * C;
    // In passes of (N,C): residual and LayerNorm 8, their backward 8, bias gradients 9, GELU 8 unless fused, its
    // backward 12; embeddings and the last LayerNorm 11. llm.c's classifier reads the logits twice.
    const double passes = L * (8 + 8 + 9 + (p.gelu < 1 ? 8 : 0) + 12) + 11;
    const double dP = p.ordered ? 2 * L * 2 * p.B * p.NH * double(p.T) * p.T : 0;
    // Its gather hides behind nothing: as gradients that are late.
    Work w = {.ranks = 8, .micro_batches = p.total / 8 / N, .T = double(p.T), .head_size = C / p.NH, .tokens = N,
              .attention = 2 * p.T * C * N * L, .forwards = 1, .bytes = passes * pass + 3 * 2 * N * V + dP,
              .gaps = (kLlmcKernels * L + 20) * kLlmcGap, .gradients = 2 * n + 2 * n, .weights = 0,
              .update = kLlmcAdamw * n / 8 + 2 * n, .bucket = 2 * 12 * C * C, .late = 2 * (V + p.T) * C + 2 * n,
              .matrices = {{V, C}}};
    for (int l = 0; l < p.L; l++)
        for (const auto& m : {std::pair{3 * C, C}, {C, C}, {4 * C, C}, {C, 4 * C}}) w.matrices.push_back(m);
    return predict_step(g, w).total;
}

static bool check() {
    bool good = true;
    std::printf("| llm.c on 8 GPUs | published, ms | tokens/s per GPU | model, ms | tokens/s per GPU | off by |"
                " source |\n|---|---:|---:|---:|---:|---:|---|\n");
    for (const Published& p : kPublished) {
        const double seconds = llmc_seconds(p), off = p.seconds / seconds - 1;
        std::printf("| %s, %s | %.0f | %.0f | %.0f | %.0f | %+.1f %% | %s |\n", p.model, p.gpu, p.seconds * 1e3,
                    p.total / 8 / p.seconds, seconds * 1e3, p.total / 8 / seconds, 100 * off, p.source);
        good &= std::fabs(off) <= 0.10;
    }
    return good;
}

// Products that were published alone. rate: of the main loop, that of cuBLAS.
static const struct { const char* gpu; double rate, M, N, K, tflops; const char* source; } kProducts[] = {
    {"h100", kH100Cublas, 4096, 4096, 4096, 716, "cuBLAS, fast.cu"},
    {"h100", kH100Cublas, 8192, 8192, 8192, 795, "cuBLAS, fast.cu"},
    {"h100", kH100Cublas, 8192, 8192, 8192, 762, "cuBLAS, waynehacking8"},
    {"h100", kH100Cublas, 2048, 2048, 13312, 794.5, "cuBLAS's best, ml-engineering"},
    {"h100", kH100Cublas, 4096, 24576, 1536, 767, "cuBLAS, waynehacking8"},
    {"h100", kH100Cublas, 4096, 32768, 512, 642, "cuBLAS, waynehacking8"},
    {"a100", kA100Cublas, 4096, 4096, 4096, 244, "cuBLAS, gau-nernst"},
    {"a100", kA100Cublas, 8192, 8192, 8192, 262, "cuBLAS, gau-nernst"},
    {"a100", kA100Cublas, 1024, 10240, 5120, 271.2, "cuBLAS's best, ml-engineering"}};

static void check_products() {
    std::printf("| product | published, TFLOP/s | model | off by | source |\n|---|---:|---:|---:|---|\n");
    for (const auto& p : kProducts) {
        Gpu g = find_gpu(p.gpu);
        g.rate = assumed("rate", p.rate);
        const double tflops = 2 * p.M * p.N * p.K / product_seconds(g, p.M, p.N, p.K) * 1e-12;
        std::printf("| %.0f x %.0f x %.0f, %s | %.0f | %.0f | %+.1f %% | %s |\n", p.M, p.N, p.K, p.gpu, p.tflops,
                    tflops, 100 * (tflops / p.tflops - 1), p.source);
    }
}

// ---- Lockstep's steps

// The most GPUs by which the preset's total divides; beyond, each has one micro-batch.
static Work lockstep_work(const char* preset, int ranks, double* tokens, double* flops) {
    const char* argv[] = {"model", "--preset", preset, "--device", "gpu"};
    Options o = parse_options(5, argv);
    resolve_options(&o, true);
    set_vocabulary(&o.shape, o.vocabulary);
    const int64_t batch = int64_t(o.batch_size) * o.shape.T;
    const int64_t count = std::max<int64_t>(o.total_batch_size / batch, ranks);
    o.replicas = std::max(o.replicas, ranks);
    *tokens = double(count * batch);
    *flops = find_model(o.model)->flops_per_token(o.shape, o.shape.T);
    return step_work(o, ranks, int(count));
}

static const char* const kPresets[] = {"gpt2-124m", "gpt2-1558m", "llama-124m", "smollm2-135m", "smollm2-360m",
                                       "qwen2.5-0.5b", "qwen3-0.6b", "llama3.2-1b"};

static void print_table(const std::vector<int>& counts) {
    std::printf("| preset | GPU | MFU of 1 |");
    for (const int n : counts) std::printf(" %d |", n);
    std::printf("\n|---|---|---:|");
    for (size_t i = 0; i < counts.size(); i++) std::printf("---:|");
    std::printf("\n");
    for (const char* const name : kPresets)
        for (const Gpu& any : kGpus) {
            std::printf("| %s | %s |", name, any.name);
            for (const int ranks : counts) {
                double tokens, flops;
                const Gpu g = find_gpu(any.name);
                const double seconds = predict_step(g, lockstep_work(name, ranks, &tokens, &flops)).total;
                const double speed = tokens / seconds / ranks;
                if (ranks == 1) std::printf(" %.0f %% |", 100 * speed * flops / g.peak);
                std::printf(" %.0f, %.1f |", seconds * 1e3, speed * 1e-3);
            }
            std::printf("\n");
        }
}

static void print_tables() {
    print_table({1, 2, 4, 8, 16, 64, 512, 4096});
    std::printf("\nWhere the time goes on 8 H100s, ms: of a micro-batch, then of a step:\n\n| preset | products |"
                " attention | memory | gaps | update | exposed communication |\n|---|---:|---:|---:|---:|---:|---:|\n");
    for (const char* name : {"gpt2-124m", "gpt2-1558m"}) {
        double tokens, flops;
        const Work w = lockstep_work(name, 8, &tokens, &flops);
        const StepTime s = predict_step(find_gpu("h100"), w);
        const double ms = 1e3 / w.micro_batches;
        std::printf("| %s | %.1f | %.1f | %.1f | %.2f | %.2f | %.2f |\n", name, s.products * ms, s.attention * ms,
                    s.memory * ms, s.gaps * ms, s.update * 1e3, s.exposed * 1e3);
    }
}

static void print_assumptions() {
    std::printf("Per second, bf16; sources stand in tools/step_model.h and bench/model.cpp.\n\n"
                "| GPU | processors | peak, TFLOP/s | products | attention, heads up to 64: forward, backward |"
                " larger heads | copy, TB/s | memory, GB | NVLink, GB/s | network |\n"
                "|---|---|---|---|---|---|---|---|---|---|\n");
    for (const Gpu& g : kGpus)
        std::printf("| %s | %.0f | %.0f | %.0f | %.0f, %.0f | %.0f, %.0f | %.2f | %.0f | %.0f | %.1f |\n", g.name,
                    g.processors, g.peak * 1e-12, g.rate * 1e-12, g.attention[0][0] * 1e-12, g.attention[0][1] * 1e-12,
                    g.attention[1][0] * 1e-12, g.attention[1][1] * 1e-12, g.copy * 1e-12,
                    g.memory * 1e-9, g.nvlink * 1e-9, g.network * 1e-9);
    std::printf("\n");
    for (const auto& [BM, BN, share, edge] : kModelTiles)
        std::printf("- tile %.0f x %.0f: %.3f of the rate, an edge of %.0f k\n", BM, BN, share, edge);
    const std::pair<const char*, double> constants[] = {
        {"kHalfT", kHalfT}, {"kGap, us", kGap * 1e6}, {"kNvlinkLatency, us", kNvlinkLatency * 1e6},
        {"kNetworkLatency, us", kNetworkLatency * 1e6}, {"kMessage, us", kMessage * 1e6},
        {"kNcclProcessors", kNcclProcessors}, {"kPerHost", kPerHost}, {"kMostParts", kMostParts},
        {"kBucketBytes", double(kBucketBytes)}, {"kA100Cublas, TFLOP/s", kA100Cublas * 1e-12},
        {"kH100Cublas, TFLOP/s", kH100Cublas * 1e-12},
        {"kA100Cudnn forward", kA100Cudnn[0] * 1e-12}, {"kA100Cudnn backward", kA100Cudnn[1] * 1e-12},
        {"kH100Cudnn forward", kH100Cudnn[0] * 1e-12}, {"kH100Cudnn backward", kH100Cudnn[1] * 1e-12},
        {"kLlmcCopy", kLlmcCopy}, {"kLlmcGap, us", kLlmcGap * 1e6}, {"kLlmcKernels", kLlmcKernels},
        {"kLlmcAdamw", kLlmcAdamw}};
    for (const auto& [name, value] : constants) std::printf("- %s %g\n", name, value);
}

static int run(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const std::vector<std::string> known = {"rate", "copy", "attention", "nvlink"};
    if (argc == 4) assumption = argv[2];
    const bool right = argc <= 2 || (argc == 4 && std::ranges::find(known, assumption) != known.end() &&
                                     parse_whole(argv[3], &factor) && factor > 0);
    if (!right || (what != "" && what != "--check" && what != "--assumptions"))
        die(kExitUsage, "model: got other arguments, want none, --assumptions, or --check [%s FACTOR]",
            join(known, "|").c_str());
    if (what == "") print_tables();
    else if (what == "--assumptions") print_assumptions();
    else {
        const bool good = check();
        std::printf("\n");
        check_products();
        return good ? 0 : 1;
    }
    return 0;
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    set_program("model");
    try {
        return BACKEND::run(argc, argv);
    } catch (const Error& e) {
        print_error(e);
        return e.code;
    }
}
