// llama_ops_host.cpp -- llama_ops.h for every backend; llama_ops.cu compiles it for GPUs. It computes in fp32.
#include "models/llama_ops.h"
#include <cmath>
#include "kernels/elements.h"
#include "src/base/numbers.h"

namespace BACKEND {

struct Frequencies { float of[64]; };           // radians per position

void rotary_table(float* table, int positions, int HS, const Rope& rope, Stream stream) {
    Frequencies f;
    const double context = rope.context, pi = 3.14159265358979324;
    for (int j = 0; j < HS / 2; j++) {
        const double own = double(1.0f / float(same_pow(double(rope.theta), 2.0 * j / HS)));
        const double turns = own * context / (2 * pi);
        const double kept = std::clamp((turns - double(rope.low)) / double(rope.high - rope.low), 0.0, 1.0);
        f.of[j] = float((1 - kept) * own / double(rope.factor) + kept * own);
    }
    const size_t half = size_t(HS) / 2;
    each_element(size_t(positions), half, [=] ON_DEVICE(size_t t, size_t j) {
        const double angle = double(float(t) * f.of[j]);
        table[2 * t * half + j] = float(same_cos(angle));
        table[(2 * t + 1) * half + j] = float(same_sin(angle));
    }, stream);
}

namespace {

// Numbers the heads of q and k over all rows: number i is head i % heads of row i / heads.
struct Heads {
    unsigned heads, queries;
    size_t rows, HS, width;     // width: of a row of qkv
    explicit Heads(const Attention& a)
        : heads(unsigned(a.NH + a.NK)), queries(unsigned(a.NH)), rows(size_t(a.B) * size_t(a.T)), HS(size_t(a.HS)),
          width(size_t(a.NH + 2 * a.NK) * HS) {}
    HOST_DEVICE size_t in_qkv(size_t i) const {
        return size_t(unsigned(i) / heads) * width + size_t(unsigned(i) % heads) * HS;
    }
    HOST_DEVICE bool of_q(size_t i) const { return unsigned(i) % heads < queries; }
};

}  // namespace

// A column is four elements of a head's first half and their partners in the second; HS/2 is a multiple of 4.
void rotate_heads(floatX* qkv, const float* table, int first, bool back, const Attention& attention, Stream stream) {
    const Heads of(attention);
    const size_t half = of.HS / 2, width = of.width;
    const unsigned fours = unsigned(half) / 4, length = unsigned(attention.T), start = unsigned(first);
    const float direction = back ? -1.0f : 1.0f;
    each_element(of.rows, size_t(of.heads) * fours, [=] ON_DEVICE(size_t row, size_t column) {
        const unsigned head = unsigned(column) / fours, j = unsigned(column) % fours * 4;
        const float* const angles = table + size_t(start + unsigned(row) % length) * 2 * half + j;
        floatX* const x = qkv + row * width + head * 2 * half + j;
        const Pack<4> cosine = load<4>(angles), sine = load<4>(angles + half);
        Pack<4> a = load<4>(x), b = load<4>(x + half);
        for (int k = 0; k < 4; k++) {
            const float before = a.x[k], turn = direction * sine.x[k];
            a.x[k] = before * cosine.x[k] - b.x[k] * turn;
            b.x[k] = b.x[k] * cosine.x[k] + before * turn;
        }
        store(x, a);
        store(x + half, b);
    }, stream);
}

void norm_heads_forward(floatX* qkv, const HeadNorm& norm, const Attention& attention, Stream stream) {
    const Heads of(attention);
    each_row(of.rows * of.heads, of.HS, [=] ON_DEVICE(size_t i, size_t j) {
        Pack<8> x = load<8>(qkv + of.in_qkv(i) + j);
        for (float& v : x.x) v *= v;
        return x;
    }, [=] ON_DEVICE(size_t i, size_t j, float squares) {
        floatX* const at = qkv + of.in_qkv(i) + j;
        Pack<8> x = load<8>(at);
        const Pack<8> weight = load<8>((of.of_q(i) ? norm.qweight : norm.kweight) + j);
        const float r = 1.0f / sqrtf(squares / float(of.HS) + norm.eps);
        if (j == 0) norm.rstd[i] = r;
        store(norm.raw + i * of.HS + j, x);
        for (int k = 0; k < 8; k++) x.x[k] = x.x[k] * r * weight.x[k];
        store(at, x);
    }, stream);
}

void norm_heads_backward(floatX* dqkv, float* dqweight, float* dkweight, float* partials, const HeadNorm& norm,
                         const Attention& attention, bool accumulate, Stream stream) {
    const Heads of(attention);
    const size_t normed = of.heads * of.HS;
    // The weights' gradients come first, because the last loop overwrites dqkv.
    each_element(kNormSums, normed / 8, [=] ON_DEVICE(size_t part, size_t eight) {
        const size_t column = eight * 8, head = unsigned(column) / unsigned(of.HS);
        Pack<8> sum = {};
        for (size_t row = part; row < of.rows; row += kNormSums) {
            const Pack<8> d = load<8>(dqkv + row * of.width + column), x = load<8>(norm.raw + row * normed + column);
            const float r = norm.rstd[row * of.heads + head];
            for (int k = 0; k < 8; k++) sum.x[k] += d.x[k] * x.x[k] * r;
        }
        store(partials + part * normed + column, sum);
    }, stream);
    each_element(1, normed, [=] ON_DEVICE(size_t, size_t column) {
        partials[column] = join_halves<kNormSums>([=](int i) { return partials[size_t(i) * normed + column]; });
    }, stream);
    each_element(2, of.HS, [=] ON_DEVICE(size_t which, size_t j) {
        float sum = 0;
        for (size_t head = which ? of.queries : 0; head < (which ? of.heads : of.queries); head++)
            sum += partials[head * of.HS + j];
        float* const to = (which ? dkweight : dqweight) + j;
        *to = accumulate ? *to + sum : sum;
    }, stream);
    each_row(of.rows * of.heads, of.HS, [=] ON_DEVICE(size_t i, size_t j) {
        const Pack<8> d = load<8>(dqkv + of.in_qkv(i) + j), x = load<8>(norm.raw + i * of.HS + j);
        Pack<8> terms = load<8>((of.of_q(i) ? norm.qweight : norm.kweight) + j);
        for (int k = 0; k < 8; k++) terms.x[k] = d.x[k] * terms.x[k] * x.x[k] * norm.rstd[i];
        return terms;
    }, [=] ON_DEVICE(size_t i, size_t j, float sum) {
        floatX* const at = dqkv + of.in_qkv(i) + j;
        const Pack<8> x = load<8>(norm.raw + i * of.HS + j);
        const Pack<8> weight = load<8>((of.of_q(i) ? norm.qweight : norm.kweight) + j);
        const float r = norm.rstd[i], mean = sum / float(of.HS);
        Pack<8> d = load<8>(at);
        for (int k = 0; k < 8; k++) d.x[k] = r * (d.x[k] * weight.x[k] - x.x[k] * r * mean);
        store(at, d);
    }, stream);
}

void swiglu_forward(floatX* out, const floatX* gateup, int N, int F, Stream stream) {
    const size_t width = size_t(F);
    each_element(size_t(N), width / 8, [=] ON_DEVICE(size_t row, size_t eight) {
        const floatX* const x = gateup + row * 2 * width + eight * 8;
        Pack<8> gate = load<8>(x);
        const Pack<8> up = load<8>(x + width);
        for (int k = 0; k < 8; k++) gate.x[k] = gate.x[k] * sigmoid(gate.x[k]) * up.x[k];
        store(out + row * width + eight * 8, gate);
    }, stream);
}

void swiglu_backward(floatX* gateup, const floatX* dout, int N, int F, Stream stream) {
    const size_t width = size_t(F);
    each_element(size_t(N), width / 8, [=] ON_DEVICE(size_t row, size_t eight) {
        floatX* const x = gateup + row * 2 * width + eight * 8;
        Pack<8> gate = load<8>(x), up = load<8>(x + width);
        const Pack<8> d = load<8>(dout + row * width + eight * 8);
        for (int k = 0; k < 8; k++) {
            const float g = gate.x[k], s = sigmoid(g);
            gate.x[k] = d.x[k] * up.x[k] * s * (1.0f + g * (1.0f - s));
            up.x[k] = d.x[k] * g * s;
        }
        store(x, gate);
        store(x + width, up);
    }, stream);
}

}  // namespace BACKEND
