// outer.cpp -- see outer.h. It runs on CPUs in fp32: weights and masters are one array that a host's ranks share.
#include "src/ddp/reductions/outer.h"
#include <algorithm>
#include <cmath>
#include "src/base/common.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

static float* floats(floatX* weights) { return reinterpret_cast<float*>(weights); }

// Returns the Ddp with which one replica takes its steps: that of a run on one rank, which updates the whole arena.
static Ddp alone(const Ddp* ddp, int replica) {
    static constexpr ReductionRule plain = {};
    const Arena& arena = *ddp->arena;
    Ddp one = {};
    one.arena = &arena;
    one.optimizer = ddp->optimizer;
    one.rule = &plain;
    one.rates = ddp->rates;
    one.grads = {ddp->grads[0]};
    one.marks[0].updated = ddp->marks[0].updated;
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const TensorSpec& tensor = arena.tensors[t];
        const size_t begin = arena.offset[t], end = begin + round_up(tensor.rows * tensor.cols, kUnit);
        const bool whole = one.optimizer->whole && one.optimizer->whole(tensor);
        one.pieces.push_back({whole ? int(t) : -1, {begin, end}});
    }
    for (const StateArray& array : ddp->replica_state) {
        one.state.push_back(ddp_describe_state(&one, array.name, array.arena));
        one.state.back().host = one.state.back().own = array.host + size_t(replica) * array.arena.n;
    }
    one.weights = reinterpret_cast<floatX*>(one.state[0].own);
    return one;
}

void outer_create(Ddp* ddp) {
    const double steps = ddp->settings.hyper.at("local-steps");
    if (steps != std::floor(steps)) die(kExitUsage, "--local-steps: got %g, want a whole number", steps);
    if (ddp->optimizer->exchange || std::ranges::any_of(ddp->optimizer->state, &StateSpec::from_weights))
        die(kExitUsage, "--reduce outer: got --optimizer %s, which averages weights itself; want another",
            ddp->optimizer->name);
    for (int r = 0; r < ddp->own_replicas; r++)
        ddp->replicas.push_back(alone(ddp, ddp->comm->rank * ddp->own_replicas + r));
    device_free(ddp->work);
    ddp->work = device<char>(ddp_work_bytes(&ddp->replicas[0]), "work space of the optimizer");
    for (Ddp& one : ddp->replicas) one.work = ddp->work;
}

void outer_begin(Ddp* ddp, int64_t step) {
    ddp->meets = (step + 1) % int64_t(ddp->settings.hyper.at("local-steps")) == 0 || step + 1 == ddp->settings.steps;
    ddp->norm = 0;
    if (step == 0) outer_gathered(ddp);
}

// Takes the replica's own step: optimizer(w_r, state_r, g_r). When replicas meet, overwrites its gradient with w - w_r.
void outer_on_replica(const ReplicaGradient& g) {
    Ddp* const ddp = g.ddp;
    Ddp* const one = &ddp->replicas[size_t(g.replica % ddp->own_replicas)];
    const float* const grads = g.grads;
    std::vector<float> partials(ddp->arena->n / kUnit);
    tree_reduce(g.grads, partials.data(), &grads, 1, Tree::kNested, ddp->arena->n);
    StepState step = *g.step;
    double norm;
    clip_scale(&step, &norm, partials.data(), partials.size(), ddp->settings.grad_clip,
               step.tokens / ddp->settings.replicas);
    one->grads = {g.grads};
    ddp_update(one, &step);
    ddp->norm = std::max(ddp->norm, std::isfinite(norm) ? norm : INFINITY);
    if (!ddp->meets) return;
    const float *const last = floats(ddp->weights), *const own = floats(one->weights);
    for (size_t i = g.range.begin; i < g.range.end; i++) g.grads[i] = last[i] - own[i];
}

void outer_update(Ddp* ddp) {
    if (!ddp->meets) return;
    const float share = 1.0f / float(ddp->settings.replicas), lr = float(ddp->settings.hyper.at("meeting-lr"));
    const float momentum = float(ddp->settings.hyper.at("meeting-momentum"));
    float *const w = floats(ddp->weights), *const m = ddp->state[1].own;
    for (const Piece& p : ddp->pieces)
        for (size_t i = p.range.begin; i < p.range.end; i++) {
            const float d = ddp->grads[0][i] * share;
            m[i] = momentum * m[i] + d;
            w[i] = w[i] - lr * (d + momentum * m[i]);
        }
}

void outer_gathered(Ddp* ddp) {
    for (Ddp& one : ddp->replicas) std::copy_n(ddp->weights, ddp->arena->n, one.weights);
}

}  // namespace BACKEND
