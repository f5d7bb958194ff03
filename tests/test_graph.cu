// test_graph.cu -- a whole step as a CUDA graph: learning rate, step number, seed and clip factor are read from device memory, so the
// same graph launched again after the host has written another state computes that state's step, the bits of plain launches.
#include <cmath>
#include <cstring>
#include <vector>
#include "common.cuh"
#include "gpt.h"
#include "test.h"

using namespace BACKEND;

namespace {

// Launches that were allowed to begin before the one before them had ended; only the emulator counts them.
#ifdef __CUDACC__
constexpr bool kCounts = false;
uint64_t dependent_launches() { return 0; }
#else
constexpr bool kCounts = true;
using simt::dependent_launches;
#endif

// A model, its optimizer and one step of two leaves: forward and backward on the main stream, the update on another, as the trainer has
// it; host memory that a graph may read again and again. A step waits for the update before it, whose mark another one sets: CUDA does not
// say whether a graph that waits for a mark and sets it afterwards waits for the old one.
struct Job {
    GptConfig config = {2, 2, 16, 12, 19, 32, 0.1f};
    Arena arena = arena_layout(gpt_tensors(config));
    Gpt model;
    Stream updates = stream_create();
    Mark updated[2] = {mark_create(), mark_create()}, done = mark_create();
    int turn = 0;
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
        copy_to_device(weights, stored.data(), n * sizeof(floatX), nullptr);
        copy_to_device(master, init.data(), n * sizeof(float), nullptr);
        copy_to_device(decay, arena.decay.data(), arena.decay.size(), nullptr);
        stream_sync(nullptr);
    }
    ~Job() {
        gpt_destroy(&model);
        stream_destroy(updates);
        for (const Mark mark : {updated[0], updated[1], done}) mark_destroy(mark);
        for (void* p : {(void*)weights, (void*)master, (void*)m, (void*)v, (void*)grads, (void*)partials, (void*)decay, (void*)results, (void*)state}) device_free(p);
        for (void* p : {(void*)host_state, (void*)host_results, (void*)batch}) host_free(p);
    }
    void prepare(int step) {            // what the host does before each step
        turn = step % 2;
        *host_state = {.seed = 42, .step = uint32_t(step), .lr = 1e-2f / float(step + 1), .grad_scale = 0,
                       .bias1 = float(1 - std::pow(0.9, step + 1)), .bias2 = float(1 - std::pow(0.95, step + 1))};
        for (size_t i = 0; i < 4 * N; i++) batch[i] = int((i * 7 + size_t(step) * 5) % 19);
    }
    void step() {                       // what the streams do
        stream_wait_mark(nullptr, updated[1 - turn]);
        copy_to_device(state, host_state, sizeof *state, nullptr);
        for (int leaf = 0; leaf < 2; leaf++)
            gpt_forward_backward(&model, results + leaf, batch + size_t(leaf) * 2 * N, batch + size_t(leaf) * 2 * N + N, leaf > 0, state, uint32_t(leaf), nullptr, nullptr, nullptr);
        stream_wait(updates, nullptr);
        const float* const sum = grads;
        fold(grads, partials, &sum, 1, Tree::kHalves, n, updates);
        clip_scale(state, results + 2, partials, n / kUnit, 1.0, 48, updates);
        copy_to_host_later(host_results, results, 3 * sizeof(double), updates);
        mark_set(done, updates);
        adamw_update(weights, master, m, v, grads, decay, n, {0.9f, 0.95f, 1e-8f, 0.1f}, state, {}, updates);
        mark_set(updated[turn], updates);
    }
    static void run_step(void* job) { static_cast<Job*>(job)->step(); }
};

}  // namespace

TEST(a_step_as_a_graph) {
    if (device_count() == 0) SKIP("no GPU answers");
    Job plain, graphed;
    constexpr int kSteps = 5;
    std::vector<double> want, got;
    uint64_t before, dependents = 0;
    for (int step = 0; step < kSteps; step++) {
        plain.prepare(step);
        before = dependent_launches();
        plain.step();
        dependents = dependent_launches() - before;
        mark_sync(plain.done);
        want.insert(want.end(), plain.host_results, plain.host_results + 3);
    }
    // The first step as it stands: work space is allocated in it. Then a graph for each turn; as in the trainer, nobody waits for an update
    // before the next step is launched.
    Graph graphs[2] = {};
    for (int step = 0; step < kSteps; step++) {
        std::string why;
        graphed.prepare(step);
        if (step == 0) graphed.step();
        Graph& graph = graphs[step % 2];
        if (step == 1 || step == 2) {
            graph = graph_capture(Job::run_step, &graphed, graphed.updates, &why);
            EXPECT(graph && why.empty(), "capture: %s", why.c_str());
            EXPECT(graphed.host_results[0] == want[size_t(step - 1) * 3], "something ran while it was captured");
        }
        before = dependent_launches();
        if (step >= 1) {
            EXPECT(graph_launch(graph), "launch of step %d", step);
            EXPECT(dependent_launches() - before == dependents, "a graph of %d dependent launches, want %d", int(dependent_launches() - before), int(dependents));
        }
        mark_sync(graphed.done);
        got.insert(got.end(), graphed.host_results, graphed.host_results + 3);
    }
    for (size_t i = 0; i < want.size(); i++)
        EXPECT(got[i] == want[i], "step %zu, %s: got %.17g, want %.17g", i / 3, i % 3 < 2 ? "loss of a leaf" : "norm", got[i], want[i]);
    EXPECT(!kCounts || dependents > 20, "%d dependent launches in a step", int(dependents));
    EXPECT(want[0] != want[3] && want[5] != want[8], "the steps do not differ: the test shows nothing");
    std::vector<float> a(plain.n), b(plain.n);
    copy_to_host(a.data(), plain.master, plain.n * sizeof(float), plain.updates);
    copy_to_host(b.data(), graphed.master, plain.n * sizeof(float), graphed.updates);
    EXPECT(std::memcmp(a.data(), b.data(), plain.n * sizeof(float)) == 0, "the weights differ");

    // Kernels in a graph hold the address of the work space: once that has moved the graph must not run.
    scratch(size_t(64) << 20, nullptr);
    EXPECT(!graph_launch(graphs[0]) && !graph_launch(graphs[1]), "a graph ran with work space that is gone");
    for (const Graph graph : graphs) graph_destroy(graph);
}

TEST(what_cannot_be_a_graph) {
    if (device_count() == 0) SKIP("no GPU answers");
    const Stream other = stream_create();
    std::string why;
    EXPECT(!graph_capture([](void*) { stream_call(nullptr, [](void*) {}, nullptr); }, nullptr, other, &why) && why.find("host function") != std::string::npos,
           "a host function: \"%s\"", why.c_str());
    EXPECT(!graph_capture([](void*) { stream_sync(nullptr); }, nullptr, other, &why) && !why.empty(), "a wait of the host");
    // And the streams are as before.
    int called = 0;
    stream_call(nullptr, [](void* n) { ++*static_cast<int*>(n); }, &called);
    stream_wait(other, nullptr);
    stream_sync(other);
    EXPECT(called == 1, "called %d times", called);
    stream_destroy(other);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
