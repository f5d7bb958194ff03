// embedding.h -- token and position embeddings: the start of the residual stream, and its gradient.
#pragma once
#include "kernels/cpu/dropout.h"

namespace BACKEND::ISA {

static void embedding_forward(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe,
                              const Embedding& embedding, Stream) {
    const auto& [B, T, C, drop, begin] = embedding;
    const Mask mask = mask_of(drop);
    // clang 14 captures no structured binding itself
    for_rows(B * T, C, [&, T = T, C = C, begin = begin](int n) {
        const size_t at = size_t(n) * C;
        const floatX *token = wte + size_t(tokens[n]) * C,
                     *position = wpe ? wpe + size_t(n % T - (begin ? begin[n] : 0)) * C : nullptr;
        each_dropped(C, mask, at, [&](int c, int left, Vec factor) {
            const Vec x = load(token + c, left);
            store(out + at + c, (position ? x + load(position + c, left) : x) * factor, left);
        });
    });
}

// A task takes a part of the vocabulary, and adds all rows of its tokens in order: a token may be
// in many rows. If tokens is null, positions are in their place.
static void embedding_backward(float* dwte, float* dwpe, const floatX* dout, const int* tokens,
                               int maxT, const Embedding& embedding, bool accumulate, Stream) {
    if (!dwte) return;
    const int B = embedding.B, T = embedding.T, C = embedding.C;
    const Mask mask = mask_of(embedding.drop);
    const int N = B * T, tasks = get_threads() == 1 ? 1 : 4 * get_threads();
    const auto row_of = [&](int n) { return tokens ? tokens[n] : n % T - embedding.begin[n]; };
    parallel_for(tasks, [&](int task) {
        const auto own = [&](int n) {    // the first row from n on with a token of this task
            while (n < N && row_of(n) % tasks != task) n++;
            return n;
        };
        for (int n = own(0), next; n < N; n = next) {
            next = own(n + 1);
            const float* ahead = dwte + size_t(row_of(min(next, N - 1))) * C;
            const size_t at = size_t(n) * C;
            float* const to = dwte + size_t(row_of(n)) * C;
            each_dropped(C, mask, at, [&](int c, int left, Vec factor) {
                __builtin_prefetch(ahead + c, 1);
                store(to + c, fma(load(dout + at + c, left), factor, load(to + c, left)), left);
            });
        }
    });
    if (!dwpe) return;
    if (!accumulate) memset(dwpe, 0, size_t(maxT) * C * sizeof(float));
    if (embedding.begin)
        return embedding_backward(dwpe, nullptr, dout, nullptr, maxT, embedding, true, nullptr);
    for_rows(T, B * C, [&](int t) {                         // adds up a position's rows
        alignas(64) float sums[kFactors];
        for (int begin = 0; begin < C; begin += kFactors) {
            const int n = min(kFactors, C - begin);
            memset(sums, 0, sizeof sums);
            for (int b = 0; b < B; b++) {
                const size_t at = (size_t(b) * T + t) * C + begin;
                add_dropped(sums, sums, dout + at, n, mask, at);
            }
            add_partials(dwpe + size_t(t) * C + begin, sums, 1, 0, n, accumulate);
        }
    });
}

}  // namespace BACKEND::ISA
