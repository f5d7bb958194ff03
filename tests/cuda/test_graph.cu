// test_graph.cu -- a whole step as a CUDA graph: learning rate, step number, seed and clip factor are read from device
// memory, so the same graph launched again after the host has written another state computes that state's step, the
// bits of plain launches.
#include <cmath>
#include <cstring>
#include <vector>
#include "kernels/cuda/common.cuh"
#include "models/gpt2.h"
#include "models/model.h"
#include "optimizers/adamw.h"
#include "tests/test.h"

using namespace BACKEND;

namespace ptx {
[[gnu::weak]] uint64_t dependent_launches();        // of the software GPU, where it is linked
}

namespace {

// Launches that were allowed to begin before the one before them had ended; only a GPU in software counts them.
#ifdef __CUDACC__
const bool kCounts = ptx::dependent_launches;
uint64_t dependent_launches() { return kCounts ? ptx::dependent_launches() : 0; }
#else
constexpr bool kCounts = true;
using simt::dependent_launches;
#endif

// A model, its optimizer and one step of two micro-batches: forward and backward on the main stream, the update on
// another, as the trainer has it; host memory that a graph may read again and again. A step waits for the update before
// it, whose event another one records: CUDA does not say whether a graph that waits for an event and records it waits
// for the old one.
struct Job {
    std::vector<void*> owned[2];                // of the device, of the host
    template <class T> T* memory(size_t count, bool of_host = false) {
        owned[of_host].push_back((of_host ? host_alloc : device_alloc)(count * sizeof(T), "test"));
        return static_cast<T*>(owned[of_host].back());
    }
    Shape shape = {.L = 2, .NH = 2, .C = 16, .T = 12, .V = 19, .Vp = 32, .dropout = 0.1f};
    Arena arena = arena_layout(gpt2_tensors(shape));
    Model model;
    Stream updates = stream_create();
    Event updated[2] = {event_create(), event_create()}, done = event_create();
    int turn = 0;
    size_t n = arena.n, N = 24;
    floatX* weights = memory<floatX>(n);
    float *master = memory<float>(n), *m = memory<float>(n), *v = memory<float>(n), *grads = memory<float>(n);
    float* partials = memory<float>(n / kUnit);
    Rates* rates = memory<Rates>(n / kUnit);
    PassResult *results = memory<PassResult>(3), *host_results = memory<PassResult>(3, true);  // losses and norm
    StepState *state = memory<StepState>(1), *host_state = memory<StepState>(1, true);
    int* batch = memory<int>(4 * N, true);

    Job() {
        model_create(&model, &gpt2_info, shape, 2, 12, 1, weights, true);
        model_set_gradients(&model, grads);
        std::vector<float> init(n);
        arena_init(init.data(), arena, 7);
        std::vector<floatX> stored(n);
        store_floats(stored.data(), init.data(), n);
        copy_to_device(weights, stored.data(), n * sizeof(floatX), nullptr);
        copy_to_device(master, init.data(), n * sizeof(float), nullptr);
        const std::vector<Rates> own = arena_rates(arena);
        copy_to_device(rates, own.data(), own.size() * sizeof(Rates), nullptr);
        stream_sync(nullptr);
    }
    ~Job() {
        model_destroy(&model);
        stream_destroy(updates);
        for (const Event mark : {updated[0], updated[1], done}) event_destroy(mark);
        for (void* p : owned[0]) device_free(p);
        for (void* p : owned[1]) host_free(p);
    }
    void prepare(int step) {  // what the host does before each step
        turn = step % 2;
        *host_state = {.seed = 42, .step = uint32_t(step), .lr = 1e-2f / float(step + 1), .grad_scale = 0};
        host_state->tokens = 4 * 12;
        const double hyper[] = {0.9, 0.95, 1e-8, 0.1};
        adamw_info.prepare(host_state, hyper, step + 1, 1, nullptr);
        for (size_t i = 0; i < 4 * N; i++) batch[i] = int((i * 7 + size_t(step) * 5) % 19);
    }
    void step() {  // what the streams do
        stream_wait_event(nullptr, updated[1 - turn]);
        copy_to_device(state, host_state, sizeof *state, nullptr);
        for (uint32_t k = 0; k < 2; k++) {
            const int* const tokens = batch + k * 2 * N;
            const Pass pass = {.B = 2, .T = 12, .accumulate = k > 0, .state = state, .micro_batch = k};
            model_forward_backward(&model, pass, results + k, tokens, tokens + N);
        }
        stream_wait(updates, nullptr);
        const float* const sum = grads;
        tree_reduce(grads, partials, &sum, 1, Tree::kBalanced, n, updates);
        clip_scale(state, &results[2].loss, partials, n / kUnit, 1.0, updates);
        copy_to_host_later(host_results, results, 3 * sizeof(PassResult), updates);
        event_record(done, updates);
        float* const moments[] = {m, v};
        update(0, 0, {n, weights, master, moments, grads, rates, state}, updates);
        event_record(updated[turn], updates);
    }};

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
        event_sync(plain.done);
        for (int i = 0; i < 3; i++) want.push_back(plain.host_results[i].loss);
    }
    // The first step as it stands: work space is allocated in it. Then a graph for each turn; as in the trainer, nobody
    // waits for an update before the next step is launched.
    Graph graphs[2] = {};
    for (int step = 0; step < kSteps; step++) {
        std::string why;
        graphed.prepare(step);
        if (step == 0) graphed.step();
        Graph& graph = graphs[step % 2];
        if (step == 1 || step == 2) {
            graph = graph_capture([&] { graphed.step(); }, graphed.updates, true, &why);
            EXPECT(graph && why.empty(), "capture: %s", why.c_str());
            EXPECT(graphed.host_results[0].loss == want[size_t(step - 1) * 3], "something ran while it was captured");
        }
        before = dependent_launches();
        if (step >= 1) {
            EXPECT(graph_launch(graph), "launch of step %d", step);
            EXPECT(dependent_launches() - before == dependents, "a graph of %d dependent launches, want %d",
                   int(dependent_launches() - before), int(dependents));
        }
        event_sync(graphed.done);
        for (int i = 0; i < 3; i++) got.push_back(graphed.host_results[i].loss);
    }
    for (size_t i = 0; i < want.size(); i++)
        EXPECT(got[i] == want[i], "step %zu, %s: got %.17g, want %.17g", i / 3,
               i % 3 < 2 ? "loss of a micro-batch" : "norm", got[i], want[i]);
    EXPECT(!kCounts || (hopper() ? dependents > 20 : dependents == 0), "%d dependent launches in a step",
           int(dependents));
    EXPECT(want[0] != want[3] && want[5] != want[8], "the steps do not differ: the test shows nothing");
    std::vector<float> a(plain.n), b(plain.n);
    copy_to_host(a.data(), plain.master, plain.n * sizeof(float), plain.updates);
    copy_to_host(b.data(), graphed.master, plain.n * sizeof(float), nullptr);    // the graph ends there
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
    EXPECT(!graph_capture([] { stream_sync(nullptr); }, other, true, &why) && !why.empty(),
           "a wait of the host");
    // And the streams are as before.
    float number = 1;
    float* const there = static_cast<float*>(device_alloc(sizeof number, "a number"));
    device_zero(there, sizeof number, nullptr);
    stream_wait(other, nullptr);
    copy_to_host(&number, there, sizeof number, other);
    EXPECT(number == 0, "got %g", double(number));
    device_free(there);
    stream_destroy(other);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
