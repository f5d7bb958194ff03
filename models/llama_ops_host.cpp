// llama_ops_host.cpp -- llama_ops.h for every backend; llama_ops.cu compiles it for GPUs. fp32, one rounding per store.
#include "models/llama_ops.h"
#include <cmath>
#include "kernels/elements.h"
#include "src/base/same_math.h"

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
        table[(t * half + j) * 2] = float(same_cos(angle));
        table[(t * half + j) * 2 + 1] = float(same_sin(angle));
    }, stream);
}

void rotate_heads(floatX* qkv, const float* table, int N, int T, int first, int NH, int NK, int HS, bool back,
                  Stream stream) {
    const size_t half = size_t(HS) / 2, turned = size_t(NH + NK), width = size_t(NH + 2 * NK) * size_t(HS);
    const float direction = back ? -1.0f : 1.0f;
    each_element(size_t(N), turned * half, [=] ON_DEVICE(size_t row, size_t column) {
        const size_t head = column / half, j = column % half, position = size_t(first) + row % size_t(T);
        floatX* const x = qkv + row * width + head * 2 * half + j;
        const float cosine = table[(position * half + j) * 2], sine = direction * table[(position * half + j) * 2 + 1];
        const float a = widen(x[0]), b = widen(x[half]);
        store(x[0], a * cosine - b * sine);
        store(x[half], b * cosine + a * sine);
    }, stream);
}

void norm_heads_forward(floatX* qkv, floatX* raw, float* rstd, const floatX* qweight, const floatX* kweight, int N,
                        int NH, int NK, int HS, float eps, Stream stream) {
    const size_t H = size_t(HS), normed = size_t(NH + NK), width = size_t(NH + 2 * NK) * H;
    each_element(size_t(N), normed, [=] ON_DEVICE(size_t row, size_t head) {
        floatX *const x = qkv + row * width + head * H, *const before = raw + (row * normed + head) * H;
        const floatX* const weight = head < size_t(NH) ? qweight : kweight;
        float squares = 0;
        for (size_t j = 0; j < H; j++) squares += widen(x[j]) * widen(x[j]);
        const float r = 1.0f / sqrtf(squares / float(HS) + eps);
        rstd[row * normed + head] = r;
        for (size_t j = 0; j < H; j++) {
            before[j] = x[j];
            store(x[j], widen(x[j]) * r * widen(weight[j]));
        }
    }, stream);
}

void norm_heads_backward(floatX* dqkv, float* dqweight, float* dkweight, float* partials, const floatX* raw,
                         const float* rstd, const floatX* qweight, const floatX* kweight, int N, int NH, int NK,
                         int HS, bool accumulate, Stream stream) {
    const size_t H = size_t(HS), rows = size_t(N), normed = size_t(NH + NK), width = size_t(NH + 2 * NK) * H;
    const size_t blocks = (rows + kNormRows - 1) / kNormRows;
    // First the weights' gradients, of q's, then of k's: the last loop overwrites dqkv.
    each_element(blocks, 2 * H, [=] ON_DEVICE(size_t block, size_t column) {
        const size_t j = column % H, begin = column < H ? 0 : size_t(NH), end = column < H ? size_t(NH) : normed;
        const size_t last = (block + 1) * kNormRows < rows ? (block + 1) * kNormRows : rows;
        float sum = 0;
        for (size_t row = block * kNormRows; row < last; row++)
            for (size_t head = begin; head < end; head++)
                sum += widen(dqkv[row * width + head * H + j]) * widen(raw[(row * normed + head) * H + j]) *
                       rstd[row * normed + head];
        partials[block * 2 * H + column] = sum;
    }, stream);
    each_element(2, H, [=] ON_DEVICE(size_t which, size_t j) {
        float sum = 0;
        for (size_t block = 0; block < blocks; block++) sum += partials[(block * 2 + which) * H + j];
        float* const to = (which ? dkweight : dqweight) + j;
        *to = accumulate ? *to + sum : sum;
    }, stream);
    each_element(rows, normed, [=] ON_DEVICE(size_t row, size_t head) {
        floatX* const d = dqkv + row * width + head * H;
        const floatX* const x = raw + (row * normed + head) * H;
        const floatX* const weight = head < size_t(NH) ? qweight : kweight;
        const float r = rstd[row * normed + head];
        float mean = 0;
        for (size_t j = 0; j < H; j++) mean += widen(d[j]) * widen(weight[j]) * widen(x[j]) * r;
        mean /= float(HS);
        for (size_t j = 0; j < H; j++) store(d[j], r * (widen(d[j]) * widen(weight[j]) - widen(x[j]) * r * mean));
    }, stream);
}

void swiglu_forward(floatX* out, const floatX* gateup, int N, int F, Stream stream) {
    const size_t width = size_t(F);
    each_element(size_t(N), width, [=] ON_DEVICE(size_t row, size_t j) {
        const floatX* const x = gateup + row * 2 * width + j;
        const float gate = widen(x[0]);
        store(out[row * width + j], gate * sigmoid(gate) * widen(x[width]));
    }, stream);
}

void swiglu_backward(floatX* gateup, const floatX* dout, int N, int F, Stream stream) {
    const size_t width = size_t(F);
    each_element(size_t(N), width, [=] ON_DEVICE(size_t row, size_t j) {
        floatX* const x = gateup + row * 2 * width + j;
        const float gate = widen(x[0]), up = widen(x[width]), d = widen(dout[row * width + j]), s = sigmoid(gate);
        store(x[0], d * up * s * (1.0f + gate * (1.0f - s)));
        store(x[width], d * gate * s);
    }, stream);
}

}  // namespace BACKEND
