// z_loss.cpp -- the rule of z_loss.h, without a sum of its own: a row's log sum exp is its cross
// entropy plus the logit of its target, which is kept before the gradient takes its place.
#include "kernels/elements.h"
#include "models/losses/loss.h"

namespace BACKEND {

// With p = softmax and z = log sum exp the gradient of w z^2 is 2 w z p, and p is the cross
// entropy's gradient plus 1 in the target's column. In columns V..Vp-1 both are 0.
void z_loss_rule(const LossRows& r) {
    floatX* const logits = r.logits;
    float *const losses = r.losses, *const kept = r.memory;
    const int* const targets = r.targets;
    const size_t width = r.Vp;
    const float weight = r.hyper[0];
    each_element(1, r.n, [=] ON_DEVICE(size_t, size_t row) {
        if (targets[row] >= 0) kept[row] = widen(logits[row * width + targets[row]]);
    }, nullptr);
    cross_entropy_rule(r);
    each_element(r.n, width / 8, [=] ON_DEVICE(size_t row, size_t eight) {
        if (targets[row] < 0) return;
        floatX* const at = logits + row * width + eight * 8;
        const float factor = 2 * weight * (losses[row] + kept[row]);
        const size_t target = targets[row] - eight * 8;
        Pack<8> d = load<8>(at);
        for (size_t k = 0; k < 8; k++) d.x[k] += factor * (d.x[k] + float(k == target));
        store(at, d);
    }, nullptr);
    each_element(1, r.n, [=] ON_DEVICE(size_t, size_t row) {
        const float z = losses[row] + kept[row];
        if (targets[row] >= 0) losses[row] += weight * z * z;
    }, nullptr);
}

}  // namespace BACKEND
