// epilogue.cuh -- what the matmuls do with their sums, for every kernel that leaves them in a warp's accumulators.
//
// mma.sync and wgmma leave them alike: of every 8 columns lane t holds 2 (t % 4) and its right neighbour, in rows t / 4 and t / 4 + 8.
// An epilogue is a struct of plain data that says
//
//   starts(), start(n)        whether the sums start from anything, and from what those of columns n and n + 1 do: the bias. So it costs
//                             nothing at the end
//   Old, fetch(m, n)          what must be read before it can write; asked for many rows ahead, so that the reads overlap
//   operator()(m, n, v, old)  stores row m, columns n .. n+31: v[2j], v[2j+1] are this lane's sums of columns n + 8j + 2 (t % 4), +1
//
// and, where it writes bf16, for who stores in another way (matmul_sm90.cu):
//
//   kOutputs, output(i)       the matrices it writes
//   pairs(w, v, old)          what of matrix 0 comes of v, w[j] holding columns 2j and 2j+1 of it; next(w) makes of it what matrix 1 gets
//
// The 32 lanes call these together, for rows and columns outside of the matrix too; nothing is read or written there.
// bf16 goes out by 16 bytes: the four lanes of a row hand each other pairs (transpose_quad) until each has eight neighbours. A pair
// is 4 bytes, and stored as it is would fill every 32-byte sector by two instructions.
#pragma once
#include "common.cuh"

namespace BACKEND {

// Every lane's w[j] becomes w[t % 4] of the quad's lane j. Its own inverse.
DEVICE void transpose_quad(unsigned (&w)[4]) {
    UNROLL for (int bit = 1; bit < 4; bit *= 2)
        UNROLL for (int j = 0; j < 4; j++) {
            if (j & bit) continue;
            const bool upper = threadIdx.x & unsigned(bit);
            const unsigned got = __shfl_xor_sync(~0u, upper ? w[j] : w[j | bit], bit);
            if (upper) w[j] = got;
            else w[j | bit] = got;
        }
}

// The matrix (M,N) that an epilogue writes, N a multiple of 8. A lane's chunk is columns n + 8 (t % 4) and the seven behind it.
struct Extent {
    int M, N;
    DEVICE bool has(int m, int n) const { return m < M && n < N; }
    DEVICE size_t at(int m, int n) const { return size_t(m) * size_t(N) + size_t(n); }
};
DEVICE int chunk_of(int n) { return n + int(threadIdx.x % 4) * 8; }

// Row m, columns n .. n+31 of a bf16 matrix, given and taken as pairs.
DEVICE void store_pairs(bf16* out, Extent e, int m, int n, unsigned (&w)[4]) {
    transpose_quad(w);
    n = chunk_of(n);
    if (e.has(m, n)) *reinterpret_cast<uint4*>(out + e.at(m, n)) = {w[0], w[1], w[2], w[3]};
}

// gelu(x) = x/2 (1 + tanh u), u = k (x + a x^3). (1 + tanh u)/2 is the logistic function of 2u: one exponential and no cancellation
// for negative x. 1/y is taken as rsqrt(y)^2, two instructions where a division takes ten; y may be infinite. Relative error 1e-6.
// The one fused multiply-add is written out, so that every kernel that takes gelu of a number gets the same bits.
constexpr float kGeluK = 0.7978845608f, kGeluA = 0.044715f;                 // sqrt(2/pi)
DEVICE float gelu_gate(float x) {
    const float r = rsqrtf(1.0f + __expf(-2.0f * kGeluK * x * fmaf(kGeluA * x, x, 1.0f)));
    return r * r;
}
DEVICE float gelu(float x) { return x * gelu_gate(x); }
// With s for the gate, s' = 2 s (1 - s) u'.
DEVICE float gelu_derivative(float x) {
    const float s = gelu_gate(x);
    return s + x * s * (1.0f - s) * 2.0f * kGeluK * (1.0f + 3.0f * kGeluA * x * x);
}

DEVICE void pack_pairs(unsigned (&w)[4], const float (&v)[8]) { UNROLL for (int j = 0; j < 4; j++) w[j] = pack2(v[2 * j], v[2 * j + 1]); }

struct Nothing {};

// out = sum + bias
struct Store {
    bf16* out;
    const bf16* bias;                                                        // (N), or null
    Extent extent;

    static constexpr int kOutputs = 1;
    bf16* output(int) const { return out; }
    static DEVICE void next(unsigned (&)[4]) {}
    using Old = Nothing;
    DEVICE bool starts() const { return bias; }
    DEVICE float2 start(int n) const {
        if (!bias || n >= extent.N) return {0, 0};
        const unsigned pair = *reinterpret_cast<const unsigned*>(bias + n);
        return {low2(pair), high2(pair)};
    }
    DEVICE Old fetch(int, int) const { return {}; }
    DEVICE void pairs(unsigned (&w)[4], const float (&v)[8], const Old&) const { pack_pairs(w, v); }
    DEVICE void operator()(int m, int n, const float (&v)[8], const Old&) const {
        unsigned w[4];
        pack_pairs(w, v);
        store_pairs(out, extent, m, n, w);
    }
};

// pre = sum + bias, out = gelu(pre): of pre as it was stored, which is what backward will see.
struct StoreGelu {
    bf16* out;
    Store pre;

    static constexpr int kOutputs = 2;
    bf16* output(int i) const { return i ? out : pre.out; }
    static DEVICE void next(unsigned (&w)[4]) { UNROLL for (int j = 0; j < 4; j++) w[j] = pack2(gelu(low2(w[j])), gelu(high2(w[j]))); }
    using Old = Nothing;
    DEVICE bool starts() const { return pre.starts(); }
    DEVICE float2 start(int n) const { return pre.start(n); }
    DEVICE Old fetch(int, int) const { return {}; }
    DEVICE void pairs(unsigned (&w)[4], const float (&v)[8], const Old&) const { pack_pairs(w, v); }
    DEVICE void operator()(int m, int n, const float (&v)[8], const Old&) const {
        unsigned w[4];                              // one trip through the quad serves both
        pack_pairs(w, v);
        transpose_quad(w);
        n = chunk_of(n);
        const bool inside = pre.extent.has(m, n);
        const size_t at = pre.extent.at(m, n);
        if (inside) *reinterpret_cast<uint4*>(pre.out + at) = {w[0], w[1], w[2], w[3]};
        next(w);
        if (inside) *reinterpret_cast<uint4*>(out + at) = {w[0], w[1], w[2], w[3]};
    }
};

// dpre = sum * gelu'(pre). dpre may be pre: a lane reads the chunk that it will write, and only that.
struct StoreGeluBackward {
    bf16* dpre;
    const bf16* pre;
    Extent extent;

    static constexpr int kOutputs = 1;
    bf16* output(int) const { return dpre; }
    static DEVICE void next(unsigned (&)[4]) {}
    struct Old { unsigned pair[4]; };
    DEVICE bool starts() const { return false; }
    DEVICE float2 start(int) const { return {0, 0}; }
    DEVICE Old fetch(int m, int n) const {
        n = chunk_of(n);
        if (!extent.has(m, n)) return {};
        const uint4 u = *reinterpret_cast<const uint4*>(pre + extent.at(m, n));
        return {{u.x, u.y, u.z, u.w}};
    }
    DEVICE void pairs(unsigned (&w)[4], const float (&v)[8], Old old) const {
        transpose_quad(old.pair);
        UNROLL for (int j = 0; j < 4; j++)
            w[j] = pack2(v[2 * j] * gelu_derivative(low2(old.pair[j])), v[2 * j + 1] * gelu_derivative(high2(old.pair[j])));
    }
    DEVICE void operator()(int m, int n, const float (&v)[8], const Old& old) const {
        unsigned w[4];
        pairs(w, v, old);
        store_pairs(dpre, extent, m, n, w);
    }
};

// out (+)= sum, in fp32. A quad's pairs fill a sector as they are.
struct StoreFloat {
    float* out;
    Extent extent;
    bool accumulate;

    static constexpr int kOutputs = 0;
    struct Old { float2 pair[4]; };
    DEVICE bool starts() const { return false; }
    DEVICE float2 start(int) const { return {0, 0}; }
    DEVICE float2* at(int m, int n, int j) const {
        n += j * 8 + int(threadIdx.x % 4) * 2;
        return extent.has(m, n) ? reinterpret_cast<float2*>(out + extent.at(m, n)) : nullptr;
    }
    DEVICE Old fetch(int m, int n) const {
        Old old = {};
        if (!accumulate) return old;
        UNROLL for (int j = 0; j < 4; j++)
            if (const float2* p = at(m, n, j)) old.pair[j] = *p;
        return old;
    }
    DEVICE void operator()(int m, int n, const float (&v)[8], const Old& old) const {
        UNROLL for (int j = 0; j < 4; j++) {
            float2 sum = {v[2 * j], v[2 * j + 1]};
            if (accumulate) sum = {old.pair[j].x + sum.x, old.pair[j].y + sum.y};
            if (float2* p = at(m, n, j)) *p = sum;
        }
    }
};

// A warp's accumulators of MT x NT pieces of 16 x 8, this lane's first row being m and the warp's first column n. NT a multiple of 4.
template <int MT, int NT, class Epilogue> DEVICE void start_sums(float (&acc)[MT][NT][4], const Epilogue& epilogue, int n) {
    UNROLL for (int y = 0; y < NT; y++) {
        const float2 s = epilogue.start(n + y * 8 + int(threadIdx.x % 4) * 2);
        UNROLL for (int x = 0; x < MT; x++) { acc[x][y][0] = acc[x][y][2] = s.x; acc[x][y][1] = acc[x][y][3] = s.y; }
    }
}
// What columns n .. n+31 start from, where the sums began at zero. v as an epilogue takes it.
template <class Epilogue> DEVICE void add_start(float (&v)[8], const Epilogue& epilogue, int n) {
    UNROLL for (int j = 0; j < 4; j++) {
        const float2 s = epilogue.start(n + j * 8 + int(threadIdx.x % 4) * 2);
        v[2 * j] += s.x, v[2 * j + 1] += s.y;
    }
}
// add_starts: the sums began at zero.
template <int MT, int NT, class Epilogue>
DEVICE void store_sums(const float (&acc)[MT][NT][4], const Epilogue& epilogue, int m, int n, bool add_starts = false) {
    constexpr int kColumns = NT / 4, kAhead = MT < 4 && kColumns % 2 == 0 ? 2 : 1;   // of 32 columns each; what is asked for at a time
    UNROLL for (int first = 0; first < kColumns; first += kAhead) {
        typename Epilogue::Old old[kAhead][2 * MT];
        UNROLL for (int i = 0; i < kAhead * 2 * MT; i++) old[i % kAhead][i / kAhead] = epilogue.fetch(m + i / kAhead * 8, n + (first + i % kAhead) * 32);
        float2 start[kAhead * 4] = {};
        if (add_starts)
            UNROLL for (int j = 0; j < kAhead * 4; j++) start[j] = epilogue.start(n + (first * 4 + j) * 8 + int(threadIdx.x % 4) * 2);
        UNROLL for (int i = 0; i < kAhead * 2 * MT; i++) {
            const int r = i / kAhead, y = (first + i % kAhead) * 4;
            float v[8];
            UNROLL for (int j = 0; j < 8; j++) v[j] = acc[r / 2][y + j / 2][r % 2 * 2 + j % 2];
            if (add_starts)
                UNROLL for (int j = 0; j < 8; j++) v[j] += j % 2 ? start[i % kAhead * 4 + j / 2].y : start[i % kAhead * 4 + j / 2].x;
            epilogue(m + r * 8, n + y * 8, v, old[i % kAhead][r]);
        }
    }
}

}  // namespace BACKEND
