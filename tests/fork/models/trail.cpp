// trail.cpp -- the model of trail.h. Its own operation is a plain loop and has no CUDA form.
#include <algorithm>
#include "models/model.h"
#include "models/trail.h"
#include "src/base/numbers.h"

namespace BACKEND {
namespace {

struct Trail {
    floatX *trail, *fc, *gelu, *hidden;         // (N,C) (N,H) (N,H) (N,C)
    floatX* dfc;                                // (N,H)
};

// Rows begin, begin + step, ... of x become x + half of the row before, if that belongs to the same document. step is
// 1, or -1 for the gradient. state: the row before the first, and then the last; or null. Returns how many documents
// start.
int fade(Model* m, floatX* x, floatX* state, int begin, int step, int rows) {
    std::vector<float> sum(size_t(m->shape.C), 0.0f), row(sum);
    if (state) load_floats(sum.data(), state, sum.size());
    int documents = 0;
    for (int i = 0, n = begin; i < rows; i++, n += step) {
        const bool at = m->documents.start_at(m->tokens[n]), behind = m->documents.start_behind(m->tokens[n]);
        if (step > 0 ? at : behind) std::ranges::fill(sum, 0.0f);
        load_floats(row.data(), x + size_t(n) * row.size(), row.size());
        for (size_t c = 0; c < sum.size(); c++) sum[c] = row[c] + 0.5f * sum[c];
        store_floats(x + size_t(n) * sum.size(), sum.data(), sum.size());
        if (step > 0 ? behind : at) std::ranges::fill(sum, 0.0f);
        documents += at || behind;
    }
    if (state) store_floats(state, sum.data(), sum.size());
    return documents;
}

template <class F> TrailTensors<F> tensors_of(const std::vector<F>& all) {
    return {all[0], all[1], all[2], all[3], all[4]};
}

void plan(Model* m, Layout& place) {
    Trail& a = own<Trail>(m);
    const size_t N = size_t(m->B) * size_t(m->T), C = size_t(m->shape.C), H = size_t(m->shape.extra[0]);
    place(a.trail, N * C);
    place(a.fc, N * H);
    place(a.gelu, N * H);
    place(a.hidden, N * C);
    if (!m->training) return;
    place(a.dfc, N * H);
}

// logits = cap tanh(z / cap), and dz = dlogits (1 - (logits / cap)^2)
void capped_loss(Model* m, const LossRows& rows) {
    const double cap = double(m->shape.real[0]);
    if (cap == 0) return run_loss(m, rows);
    std::vector<float> y(size_t(rows.n) * size_t(rows.Vp)), d(y);
    load_floats(y.data(), rows.logits, y.size());
    for (float& value : y) value = float(cap * (1 - 2 / (1 + same_exp(2 * double(value) / cap))));
    store_floats(rows.logits, y.data(), y.size());
    run_loss(m, rows);
    if (!rows.backward) return;
    load_floats(d.data(), rows.logits, d.size());
    for (size_t i = 0; i < d.size(); i++) d[i] = float(double(d[i]) * (1 - double(y[i]) * double(y[i]) / (cap * cap)));
    store_floats(rows.logits, d.data(), d.size());
}

const floatX* forward(Model* m, const Pass& pass) {
    const Trail& a = own<Trail>(m);
    const auto w = tensors_of(m->weights);
    const int C = m->shape.C, N = pass.N();
    pass.needed(0, 5);
    embedding_forward(a.trail, m->tokens, w.embedding, nullptr, {.B = N, .T = 1, .C = C});
    floatX* const state = static_cast<floatX*>(pass.cache);
    if (state && pass.first == 0) device_zero(state, size_t(C) * sizeof(floatX));
    int documents = 0;
    for (int b = 0; b < pass.B; b++) documents += fade(m, a.trail, state, b * pass.T, 1, pass.T);
    if (pass.measures) pass.measures[0] = documents;
    linear_gelu_forward(a.gelu, a.fc, a.trail, w.fcw, w.fcb, N);
    linear_forward(a.hidden, a.gelu, w.projw, w.projb, N);
    return a.hidden;
}

void backward(Model* m, const Pass& pass, floatX* dhidden) {
    const Trail& a = own<Trail>(m);
    const auto w = tensors_of(m->weights);
    const auto d = tensors_of(m->grads);
    const int C = m->shape.C, N = pass.N();
    gelu_linear_backward(a.dfc, d.projw, d.projb, dhidden, a.gelu, a.fc, w.projw, N, pass.accumulate);
    linear_backward(dhidden, d.fcw, d.fcb, a.dfc, a.trail, w.fcw, N, pass.accumulate);
    for (int b = 0; b < pass.B; b++) fade(m, dhidden, nullptr, (b + 1) * pass.T - 1, -1, pass.T);
    embedding_backward(d.embedding, nullptr, dhidden, m->tokens, 1, {.B = N, .T = 1, .C = C}, pass.accumulate);
    pass.ready(0, 5);
}

}  // namespace

extern const ModelKind trail_kind = {
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .cache_bytes = [](const Shape& c) { return size_t(c.C) * sizeof(floatX); },
    .loss = capped_loss,
};

}  // namespace BACKEND
