// attention.cuh -- what attention.cu and attention_sm90.cu share: who does which rows, and what is done with a warp's accumulators.
#pragma once
#include "common.cuh"

namespace BACKEND::attention {

constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;

struct Shape {
    int T, NH, HS, heads;                     // heads: B * NH
    int group;                                // heads that run side by side
    float scale;
};

// Which head, and which block of rows of it, a thread block does. Group after group of heads whose operands share the L2; within a
// group block 0 of all heads first, then block 1: the launcher's numbering puts the longest first.
struct Place { int head, block; };
DEVICE Place place(const Shape& s, int blocks) {
    const int all = s.group * blocks, first = int(blockIdx.x) / all * s.group, i = int(blockIdx.x) % all;
    const int heads = s.heads - first < s.group ? s.heads - first : s.group;
    return {first + i % heads, i / heads};
}

// Where row t of a head starts: `which` of q, k, v in qkv (B,T,3,NH,HS), and in out (B,T,NH,HS).
enum { kQ, kK, kV };
DEVICE size_t qkv_at(const Shape& s, int head, int t, int which) {
    return ((size_t(head / s.NH) * s.T + t) * 3 + which) * s.NH * s.HS + size_t(head % s.NH) * s.HS;
}
DEVICE size_t out_at(const Shape& s, int head, int t) {
    return (size_t(head / s.NH) * s.T + t) * s.NH * s.HS + size_t(head % s.NH) * s.HS;
}

// ------------------------------------------------------------------------------------------------ tiles and accumulators

DEVICE int lane() { return int(threadIdx.x % 32); }

// A tile in shared memory has rows of D / 8 chunks of 16 bytes. Chunk c of row r is kept at c ^ x(r), so that the eight rows of an
// 8x8 matrix lie in eight different groups of banks. x(r) = r >> kShift & kMask; it repeats after 8 rows.
template <int D> constexpr int kMask = D % 64 == 0 ? 7 : D % 32 == 0 ? 3 : 1;
template <int D> constexpr int kShift = D % 64 == 0 ? 0 : D % 32 == 0 ? 1 : 2;
template <int D> DEVICE int at(int row, int chunk) { return row * D + (chunk ^ (row >> kShift<D> & kMask<D>)) * 8; }

// Element e of accumulator [i][n] stands at row i * 16 + row_of(e), column n * 8 + column_of(e).
DEVICE int row_of(int e) { return lane() / 4 + e / 2 * 8; }
DEVICE int column_of(int e) { return lane() % 4 * 2 + e % 2; }

// Scores of keys after the query become -infinity. ahead: the query of column 0 minus the key of row 0 where KEY_ROWS, else the query
// of row 0 minus the key of column 0.
template <bool KEY_ROWS, int M, int N> DEVICE void hide_future(float (&x)[M][N][4], int ahead) {
    const int difference = (KEY_ROWS ? -1 : 1) * (column_of(0) - row_of(0)) - ahead;
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int n = 0; n < N; n++)
            UNROLL for (int e = 0; e < 4; e++)
                if (difference > (KEY_ROWS ? -1 : 1) * (i * 16 + e / 2 * 8 - n * 8 - e % 2)) x[i][n][e] = -INFINITY;
}

// Sum and maximum over the four lanes that share a row of an accumulator.
DEVICE float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
DEVICE float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

// The warp's rows times their factors go to global memory, by way of its own rows of a tile, which nobody reads any more: so they are
// stored 16 bytes at a time. Nothing beyond `rows`.
template <int D, int M> DEVICE void store_rows(bf16* to, int stride, int rows, int HS, bf16* own, const float (&sum)[M][D / 8][4],
                                               const float (&factor)[M][2]) {
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int n = 0; n < D / 8; n++)
            UNROLL for (int e = 0; e < 4; e += 2)
                *reinterpret_cast<unsigned*>(own + at<D>(i * 16 + row_of(e), n) + column_of(e)) =
                    pack2(sum[i][n][e] * factor[i][e / 2], sum[i][n][e + 1] * factor[i][e / 2]);
    __syncwarp();
    UNROLL for (int c = 0; c < M * 2 * D; c += 32) {
        const int r = (c + lane()) / (D / 8), j = (c + lane()) % (D / 8);
        if (r < rows && j * 8 < HS)
            *reinterpret_cast<uint4*>(to + r * stride + j * 8) = *reinterpret_cast<const uint4*>(own + at<D>(r, j));
    }
}

// ------------------------------------------------------------------------------------------------ attention_sm90.cu

// Whether that file has kernels for this, on the device in use; and its launchers.
bool sm90_takes(int HS, const Dropout& drop);
void forward_sm90(bf16* out, float* lse, const bf16* qkv, const Shape& s, Stream stream);
void backward_sm90(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse, const Shape& s, Stream stream);

}  // namespace BACKEND::attention
