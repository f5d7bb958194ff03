// audit.cpp -- finds silent corruption (app.h).
#include <cmath>
#include <utility>
#include "src/app/app.h"
#include "src/base/common.h"

namespace BACKEND {

[[noreturn]] static void disagree(const std::string& what) {
    die(kExitDisagree, "replicas disagree: %s; nothing of this step was saved", what.c_str());
}

// Adds the kept gradients of all replicas. Returns a text that names the first element of this
// rank's slice for which the update has used another sum; "": there is none.
static std::string wrong_sum(Ddp* ddp) {
    const std::vector<float> mine = std::exchange(ddp->kept, {});
    const Range whole = ddp->buckets[0].whole(), own = ddp->buckets[0].own(ddp->comm->rank);
    // all: (replicas, whole).
    std::vector<float> all(mine.size() * size_t(ddp->comm->size)), used(own.size());
    comm_allgather(ddp->comm, all.data(), mine.data(), mine.size() * sizeof(float));
    copy_to_host(used.data(), ddp->grads[0] + own.begin, used.size() * sizeof(float), ddp->stream);
    // Row 0 gets the sum in a balanced tree.
    for (size_t apart = whole.size(); apart < all.size(); apart *= 2)
        for (size_t i = 0; i + apart < all.size(); i++) all[i] += all[i + apart];
    for (size_t i = own.begin; i < own.end; i++) {
        const float got = used[i - own.begin], want = all[i - whole.begin];
        // The host flushes subnormal numbers to 0 and a GPU does not. A step with a NaN changes no
        // weight.
        if (!(std::fabs(got - want) >= 1e-36f)) continue;
        return format(
            "rank %d: the sum of the replicas' gradients of %s: element %zu of the arena is %.9g, want %.9g",
            ddp->comm->rank, tensor_at(*ddp->arena, i).name.c_str(), i, double(got), double(want));
    }
    return "";
}

void audit_step(Model* model, Ddp* ddp, const BatchLoader& loader, const StepState* state,
                PassResult* result) {
    Comm* const comm = ddp->comm;
    const int W = comm->size, rank = comm->rank;
    const size_t n = ddp->arena->n;
    ddp_settle(ddp);
    const std::string wrong = ddp->kept.empty() ? "" : comm_first_text(comm, wrong_sum(ddp));
    if (!wrong.empty()) disagree(wrong);

    fault_point("frozen", rank, current_step(), reinterpret_cast<float*>(model->weights[0].at),
                kUnit / 2);
    if (const std::string tensor = changed_frozen_tensor(*model); !tensor.empty())
        disagree(
            format("rank %d: %s, which is frozen, has changed in memory", rank, tensor.c_str()));

    float* const grads = ddp_grads(ddp, 0);
    model_set_gradients(model, grads);
    // Returns the hash of the gradients of rank r's first micro-batch, computed on this rank.
    const auto hash_of = [&](int r) {
        const int number = r * ddp->micro_batches;
        const BatchLoader::Batch batch = loader.micro_batch(uint64_t(current_step()), number);
        const Pass pass = {.B = model->B, .T = model->T, .state = state,
                           .micro_batch = uint32_t(number), .samples = batch.samples.data(),
                           .begin = batch.begins()};
        // A gradient that backward does not write stays 0. The next step names it.
        device_zero(grads, n * sizeof(float));
        model_forward_backward(model, pass, result, batch.tokens.data(), batch.targets.data());
        if (r == rank) fault_point("audit", rank, current_step(), grads, n);
        comm_progress(comm, current_step(), "audit");
        return hash_floats(grads, n);
    };
    struct Hashes { uint64_t weights, own, of_previous; };
    const float* const weights = reinterpret_cast<const float*>(ddp->weights);
    const std::vector<Hashes> all =
        comm_gather(comm, Hashes{hash_floats(weights, n * sizeof(floatX) / sizeof(float)),
                                 hash_of(rank), hash_of((rank + W - 1) % W)});
    for (int r = 0; r < W; r++) {
        if (all[size_t(r)].weights != all[0].weights)
            disagree(format("the weights of ranks 0 and %d differ", r));
        const int next = (r + 1) % W, third = (r + 2) % W;
        const uint64_t own = all[size_t(r)].own, again = all[size_t(next)].of_previous;
        if (own == again) continue;
        const uint64_t vote =
            comm_gather(comm, W > 2 && rank == third ? hash_of(r) : 0)[size_t(third)];
        const std::string odd = vote == again || W == 1 ? format("rank %d", r)
                                : vote == own           ? format("rank %d", next)
                                                        : format("ranks %d and %d", r, next);
        disagree(
            format("%s computed micro-batch %d differently", odd.c_str(), r * ddp->micro_batches));
    }
}

void refuse_unwritten(const std::vector<PassResult>& results, const std::string& model,
                      const Arena& arena) {
    for (size_t i = 0; i < results.size(); i++)
        if (const uint64_t left = results[i].unwritten)
            die(kExitOther,
                "model %s: gradient of %s: not written by micro-batch %zu; backward has to write all "
                "gradients in every pass, zeros too",
                model.c_str(), tensor_at(arena, arena.n - left).name.c_str(), i);
}

}  // namespace BACKEND
