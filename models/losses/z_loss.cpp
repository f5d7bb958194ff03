// z_loss.cpp -- the rule of z_loss.h, without a sum of its own: a row's log sum exp is its cross
// entropy plus the logit of its target, which is kept before the gradient takes its place.
#include "kernels/elements.h"
#include "models/losses/loss.h"

namespace BACKEND {

// With z = log sum exp and p = softmax the gradient of w z^2 is 2 w z p, and p is the cross
// entropy's gradient plus 1 in the target's column. Without a target z counts as 0.
void z_loss_rule(const LossRows& rows) {
    floatX* const logits = rows.logits;
    float *const losses = rows.losses, *const z = rows.memory;
    const int *const targets = rows.targets, Vp = rows.Vp;
    const float weight = rows.hyper.at("z-loss");
    each_element(1, rows.n, [=] ON_DEVICE(size_t, size_t i) {
        z[i] = targets[i] < 0 ? 0 : widen(logits[i * Vp + targets[i]]);
    }, nullptr);
    cross_entropy_rule(rows);
    each_element(1, rows.n, [=] ON_DEVICE(size_t, size_t i) {
        z[i] += losses[i];
        losses[i] += weight * z[i] * z[i];
    }, nullptr);
    each_element(rows.n, Vp, [=] ON_DEVICE(size_t i, size_t j) {
        floatX& to = logits[i * Vp + j];
        const float d = widen(to), p = d + float(int(j) == targets[i]);
        store(to, d + 2 * weight * z[i] * p);
    }, nullptr);
}

}  // namespace BACKEND
