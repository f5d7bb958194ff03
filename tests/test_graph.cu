// test_graph.cu -- a whole step is capturable as a CUDA graph: learning rate, step number, seed and clip factor are read from device
// memory, so the same graph launched again after the host has written another state computes that state's step.
#include <cmath>
#include <cstring>
#include <vector>
#include "common.cuh"
#include "gpt.h"
#include "test.h"

using namespace BACKEND;

namespace {

// A model, its optimizer and one step of two leaves, all on one stream; host memory that a graph may read again and again.
struct Job {
    GptConfig config = {2, 2, 16, 12, 19, 32, 0.1f};
    Arena arena = arena_layout(gpt_tensors(config));
    Gpt model;
    Stream stream = stream_create();
    size_t n = arena.n, N = 24;
    floatX* weights = static_cast<floatX*>(device_alloc(n * sizeof(floatX), "weights"));
    float* master = floats(n);
    float *m = floats(n), *v = floats(n), *grads = floats(n), *partials = floats(n / kUnit);
    uint8_t* decay = static_cast<uint8_t*>(device_alloc(n / kUnit, "decay"));
    double* results = static_cast<double*>(device_alloc(3 * sizeof(double), "losses and norm"));
    StepState* state = static_cast<StepState*>(device_alloc(sizeof(StepState), "state"));
    StepState* host_state = static_cast<StepState*>(host_alloc(sizeof(StepState), "state"));
    double* host_results = static_cast<double*>(host_alloc(3 * sizeof(double), "losses and norm"));
    int* batch = static_cast<int*>(host_alloc(4 * N * sizeof(int), "batch"));

    static float* floats(size_t count) { return static_cast<float*>(device_alloc(count * sizeof(float), "test")); }
    Job() {
        gpt_create(&model, config, 2, 12, 1, weights, true);
        gpt_set_gradients(&model, grads);
        std::vector<float> init(n);
        arena_init(init.data(), arena, 7);
        std::vector<floatX> stored(n);
        store_floats(stored.data(), init.data(), n);
        copy_to_device(weights, stored.data(), n * sizeof(floatX), stream);
        copy_to_device(master, init.data(), n * sizeof(float), stream);
        copy_to_device(decay, arena.decay.data(), arena.decay.size(), stream);
        stream_sync(stream);
    }
    ~Job() {
        gpt_destroy(&model);
        stream_destroy(stream);
        for (void* p : {(void*)weights, (void*)master, (void*)m, (void*)v, (void*)grads, (void*)partials, (void*)decay, (void*)results, (void*)state}) device_free(p);
        for (void* p : {(void*)host_state, (void*)host_results, (void*)batch}) host_free(p);
    }
    void prepare(int step) {            // what the host does before each step
        *host_state = {.seed = 42, .step = uint32_t(step), .lr = 1e-2f / float(step + 1), .grad_scale = 0,
                       .bias1 = float(1 - std::pow(0.9, step + 1)), .bias2 = float(1 - std::pow(0.95, step + 1))};
        for (size_t i = 0; i < 4 * N; i++) batch[i] = int((i * 7 + size_t(step) * 5) % 19);
    }
    void step() {                       // what the stream does
        copy_to_device(state, host_state, sizeof *state, stream);
        for (int leaf = 0; leaf < 2; leaf++)
            gpt_forward_backward(&model, results + leaf, batch + size_t(leaf) * 2 * N, batch + size_t(leaf) * 2 * N + N, leaf > 0, state, uint32_t(leaf), nullptr, nullptr, nullptr, stream);
        norm_partials(partials, grads, n, stream);
        clip_scale(state, results + 2, partials, n / kUnit, 1.0, 48, stream);
        adamw_update(weights, master, m, v, grads, decay, n, {0.9f, 0.95f, 1e-8f, 0.1f}, state, {}, stream);
        copy_to_host_later(host_results, results, 3 * sizeof(double), stream);
    }
};

}  // namespace

TEST(a_step_as_a_graph) {
    if (device_count() == 0) SKIP("no GPU answers");
    Job plain, graphed;
    constexpr int kSteps = 4;
    std::vector<double> want, got;
    for (int step = 0; step < kSteps; step++) {
        plain.prepare(step);
        plain.step();
        stream_sync(plain.stream);
        want.insert(want.end(), plain.host_results, plain.host_results + 3);
    }
    // The first step as it stands: work space is allocated in it. Then the graph.
    cudaGraph_t graph;
    cudaGraphExec_t launched = nullptr;
    for (int step = 0; step < kSteps; step++) {
        graphed.prepare(step);
        if (step == 0) graphed.step();
        if (step == 1) {
            EXPECT(cudaStreamBeginCapture(native(graphed.stream), cudaStreamCaptureModeThreadLocal) == cudaSuccess, "begin of the capture");
            graphed.step();
            EXPECT(cudaStreamEndCapture(native(graphed.stream), &graph) == cudaSuccess, "end of the capture");
            EXPECT(cudaGraphInstantiate(&launched, graph, 0) == cudaSuccess, "instantiation");
            EXPECT(graphed.host_results[0] == want[0], "something ran while it was captured");
        }
        if (step >= 1) EXPECT(cudaGraphLaunch(launched, native(graphed.stream)) == cudaSuccess, "launch of step %d", step);
        stream_sync(graphed.stream);
        got.insert(got.end(), graphed.host_results, graphed.host_results + 3);
    }
    for (size_t i = 0; i < want.size(); i++)
        EXPECT(got[i] == want[i], "step %zu, %s: got %.17g, want %.17g", i / 3, i % 3 < 2 ? "loss of a leaf" : "norm", got[i], want[i]);
    EXPECT(want[0] != want[3] && want[5] != want[8], "the steps do not differ: the test shows nothing");
    std::vector<float> a(plain.n), b(plain.n);
    copy_to_host(a.data(), plain.master, plain.n * sizeof(float), plain.stream);
    copy_to_host(b.data(), graphed.master, plain.n * sizeof(float), graphed.stream);
    EXPECT(std::memcmp(a.data(), b.data(), plain.n * sizeof(float)) == 0, "the weights differ");
    cudaGraphExecDestroy(launched);
    cudaGraphDestroy(graph);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
