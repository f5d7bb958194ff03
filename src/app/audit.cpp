// audit.cpp -- finds silent corruption (app.h).
#include "src/app/app.h"
#include <algorithm>
#include "src/base/common.h"

namespace BACKEND {

// Ends the run with the name of the tensor whose gradient is missing. unwritten: PassResult::unwritten.
[[noreturn]] static void die_unwritten(const std::string& model, const Arena& arena, uint64_t unwritten,
                                       size_t micro_batch, int64_t step) {
    die(kExitOther, "model %s: gradient of %s: not written by micro-batch %zu of step %lld; backward has to write all "
        "gradients in every pass, zeros too", model.c_str(), tensor_at(arena, arena.n - unwritten).name.c_str(),
        micro_batch, (long long)step);
}

void audit_replicas(Model* model, const std::string& name, Ddp* ddp, BatchLoader* loader, StepState* device_state,
                    const StepState& state, int64_t step, int micro_batches) {
    Comm* const comm = ddp->comm;
    const int W = comm->size;
    ddp_settle(ddp);
    copy_to_device(device_state, &state, sizeof state, nullptr);
    PassResult* const result = static_cast<PassResult*>(device_alloc(sizeof(PassResult), "result"));

    // Returns the hash of the gradients of rank r's first micro-batch, computed on this rank.
    const auto hash_of = [&](int r) {
        const int number = r * micro_batches;
        const BatchLoader::Batch batch = loader->micro_batch(uint64_t(step), number);
        const Pass pass = {.B = model->B, .T = model->T, .state = device_state, .micro_batch = uint32_t(number)};
        float* const grads = ddp_grads(ddp, 0);
        model_set_gradients(model, grads);
        model_forward_backward(model, pass, result, batch.tokens.data(), batch.targets.data());
        if (r == comm->rank) ddp_fault(ddp, "audit", grads, ddp->arena->n);
        const uint64_t hash = hash_floats(grads, ddp->arena->n, nullptr);
        comm_progress(comm, step, "audit");
        return hash;
    };
    const auto disagree = [&](const std::string& what) {
        die(kExitDisagree, "replicas disagree: step %lld: %s; nothing of this step was saved", (long long)step,
            what.c_str());
    };

    float* const first_frozen = reinterpret_cast<float*>(model->weights[0].at);
    if (!model->frozen_hashes.empty()) ddp_fault(ddp, "frozen", first_frozen, kUnit / 2);
    if (const std::string tensor = changed_frozen_tensor(*model); !tensor.empty())
        disagree(format("rank %d: %s, which is frozen, has changed in memory", comm->rank, tensor.c_str()));

    struct Hashes { uint64_t own, unwritten, of_previous, weights; };
    Hashes mine = {hash_of(comm->rank), 0, 0, ddp_hash_weights(ddp)};
    copy_to_host(&mine.unwritten, &result->unwritten, sizeof mine.unwritten, nullptr);
    mine.of_previous = hash_of((comm->rank + W - 1) % W);
    const std::vector<Hashes> all = comm_gather(comm, mine);
    for (int r = 0; r < W; r++)
        if (all[size_t(r)].unwritten)
            die_unwritten(name, *ddp->arena, all[size_t(r)].unwritten, size_t(r * micro_batches), step);
    for (int r = 1; r < W; r++)
        if (all[size_t(r)].weights != all[0].weights) disagree(format("the weights of ranks 0 and %d differ", r));
    for (int r = 0; r < W; r++) {
        const int next = (r + 1) % W, third = (r + 2) % W;
        const uint64_t own = all[size_t(r)].own, again = all[size_t(next)].of_previous;
        if (own == again) continue;
        uint64_t vote = W > 2 && comm->rank == third ? hash_of(r) : 0;
        if (W > 2) comm_broadcast(comm, &vote, sizeof vote, third);
        const int odd = W < 3 ? -1 : vote == own ? next : vote == again ? r : -1;
        if (W == 1) disagree("micro-batch 0 computed twice gave two gradients");
        if (odd < 0)
            disagree(format("ranks %d and %d computed micro-batch %d differently", std::min(r, next),
                            std::max(r, next), r * micro_batches));
        disagree(format("rank %d computed micro-batch %d differently from two others", odd, r * micro_batches));
    }
    device_free(result);
    ddp_keep_replicas(ddp);
}

void refuse_unwritten(const std::vector<PassResult>& results, const std::string& model, const Arena& arena,
                      int64_t step) {
    for (size_t i = 0; i < results.size(); i++)
        if (results[i].unwritten) die_unwritten(model, arena, results[i].unwritten, i, step);
}

void audit_sum(Ddp* ddp, int64_t step) {
    if (ddp->kept.empty()) return;
    const std::string wrong = comm_first_text(ddp->comm, ddp_wrong_sum(ddp));
    if (!wrong.empty())
        die(kExitDisagree, "replicas disagree: step %lld: %s; a replica's gradient may be changed before it enters the "
            "tree, not where ranks meet (docs/ddp.md); nothing of this step was saved", (long long)step, wrong.c_str());
}

}  // namespace BACKEND
