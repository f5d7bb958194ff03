// attention.cuh -- what the attention*.cu share: which block computes which rows, operations on
// accumulators, and, for attention.cu and attention_backward.cu, tiles and products by mma.
#pragma once
#include <cfloat>
#include <cmath>
#include <type_traits>
#include "kernels/cuda/common.cuh"

namespace BACKEND::attention {

constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;

struct AttentionShape {
    int T, NH, NK, HS, heads, group;    // heads: B * NH; group: NH / NK heads that share k and v
    int columns;    // elements of a row of qkv: (NH + 2 NK) * HS
    float scale;    // factor of the scores
};

// queries_of_block returns the rows and the head that a thread block computes. A head's blocks come
// one after another, so that its operands stay in the L2 cache. The last queries come first,
// because they see the most keys.
struct Queries { int head, begin, end; };
template <int ROWS> __device__ Queries queries_of_block(const AttentionShape& s) {
    const int blocks = div_up(s.T, ROWS), begin = (blocks - 1 - int(blockIdx.x) % blocks) * ROWS;
    return {int(blockIdx.x) / blocks, begin, begin + ROWS < s.T ? begin + ROWS : s.T};
}

// These return where row t of head b * NH + h starts: in qkv
// (B,T,NH+2NK,HS), out (B,T,NH,HS), lse and delta (B,NH,T).
enum { kQ, kK, kV };
__device__ inline int qkv_column(const AttentionShape& s, int head, int which) {
    const int h = head % s.NH;
    return (which == kQ ? h : s.NH + (which - kK) * s.NK + h / s.group) * s.HS;
}
__device__ inline size_t qkv_at(const AttentionShape& s, int head, int t, int which) {
    return (size_t(head / s.NH) * s.T + t) * s.columns + qkv_column(s, head, which);
}
__device__ inline size_t out_at(const AttentionShape& s, int head, int t) {
    return (size_t(head / s.NH) * s.T + t) * s.NH * s.HS + size_t(head % s.NH) * s.HS;
}
__device__ inline size_t row_at(const AttentionShape& s, int head, int t) {
    return size_t(head) * s.T + t;
}

// FirstKeys[t] is the first key that query t of head b * NH + h sees; queries after the last see as
// it does. `begin` is Attention's, or null where BEGIN is false: then all see key 0.
template <bool BEGIN> struct FirstKeys {
    const int* begin;
    int row, last;
    __device__ FirstKeys(const int* begin_, const AttentionShape& s, int head)
        : begin(begin_), row(head / s.NH * s.T), last(s.T - 1) {}
    __device__ int operator[](int t) const { return BEGIN ? begin[row + (t < last ? t : last)] : 0; }
};
// Returns the end of the steps of STEP queries, from query t on, in which a query sees a key before
// u. These steps come first, because begin does not fall. Each lane looks at a step's first query.
template <int STEP, bool BEGIN>
__device__ int end_of_steps(const FirstKeys<BEGIN>& first_key, int t, int u) {
    for (;; t += 32 * STEP) {
        const int first = t + lane() * STEP;
        const bool sees = first <= first_key.last && first_key[first] < u;
        const int steps = __popc(__ballot_sync(~0u, sees));
        if (steps < 32) return t + steps * STEP;
    }
}

// A tile in shared memory has rows of D / 8 chunks of 16 bytes; D is 32, 64 or 128. Chunk c of row
// r is stored at place c ^ (r >> kShift & kMask) of the row, so that the eight rows of an 8x8
// matrix lie in different banks.
template <int D> constexpr int kMask = D == 32 ? 3 : 7;
template <int D> constexpr int kShift = D == 32 ? 1 : 0;
template <int D> __device__ int at(int row, int chunk) {
    return row * D + (chunk ^ (row >> kShift<D> & kMask<D>)) * 8;
}

// Element e of a warp's accumulator [i][n] is at row i * 16 + row_of(e), column n * 8 +
// column_of(e) of its product.
__device__ inline int row_of(int e) { return lane() / 4 + e / 2 * 8; }
__device__ inline int column_of(int e) { return lane() % 4 * 2 + e % 2; }

// Sets the scores of keys after their query to -infinity. `ahead` is the first query minus the
// first key. If KEY_ROWS is true, rows are keys and columns are queries, else the other way round.
template <bool KEY_ROWS, int M, int N> __device__ void hide_future(float (&x)[M][N][4], int ahead) {
    const int difference = (KEY_ROWS ? -1 : 1) * (column_of(0) - row_of(0)) - ahead;
    for (int i = 0; i < M; i++) for (int n = 0; n < N; n++) for (int e = 0; e < 4; e++)
                if (difference > (KEY_ROWS ? -1 : 1) * (i * 16 + e / 2 * 8 - n * 8 - e % 2))
                    x[i][n][e] = -INFINITY;
}

// Sets the scores of keys before the first that their query sees to -infinity. u is the first key,
// and first_key[t] that of the first query.
template <bool KEY_ROWS, int M, int N, class First>
__device__ void hide_past(float (&x)[M][N][4], int u, const First& first_key, int t) {
    for (int i = 0; i < M; i++) for (int n = 0; n < N; n++) for (int e = 0; e < 4; e++) {
                const int row = i * 16 + row_of(e), column = n * 8 + column_of(e);
                if (u + (KEY_ROWS ? row : column) < first_key[t + (KEY_ROWS ? column : row)])
                    x[i][n][e] = -INFINITY;
    }
}

__device__ inline uint4 select(bool first, const uint4& a, const uint4& b) {
    return {first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w};
}

// row_sum and row_max return the sum and the maximum over
// the four lanes that share a row of an accumulator.
__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
__device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

// What `most` is before a row's first step. With BEGIN all scores of a step may be -infinity: then
// add_scores must not subtract two infinities.
template <bool BEGIN> constexpr float kLeast = BEGIN ? -FLT_MAX : -INFINITY;

// Adds a step's scores x to the softmax of row row_of(2 h). Raises `most`,
// which is c times the row's largest score. Turns x into exp2(c x - most)
// and adds that to `sum`, which covers only the lane's own columns. Returns
// the factor by which the output's sums of earlier steps must be multiplied.
template <int N>
__device__ float add_scores(float (&x)[N][4], int h, float c, float& most, float& sum) {
    float top = x[0][h * 2];
    for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(x[n][h * 2], x[n][h * 2 + 1]));
    top = fmaxf(most, row_max(top) * c);
    const float correction = exp2_fast(most - top);
    most = top;
    sum *= correction;
    for (int n = 0; n < N; n++) for (int e = h * 2; e < h * 2 + 2; e++) {
        x[n][e] = exp2_fast(x[n][e] * c - top);
        sum += x[n][e];
    }
    return correction;
}
// Writes the row's lse and returns its sum over all columns.
__device__ inline float finish_row(float* lse, const AttentionShape& s, int head, int t, float most,
                                   float sum) {
    const float total = row_sum(sum);
    if (lane() % 4 == 0 && t < s.T) lse[row_at(s, head, t)] = (most + log2f(total)) * kLn2;
    return total;
}

// Rounds columns 16 k .. 16 k + 15 of accumulators to bf16,
// in the layout of the next product's first operand.
template <int N> __device__ void pack_operand(unsigned (&a)[4], const float (&x)[N][4], int k) {
    for (int e = 0; e < 4; e++)
        a[e] = pack2(x[k * 2 + e / 2][e % 2 * 2], x[k * 2 + e / 2][e % 2 * 2 + 1]);
}

// Stores the warp's 16 M rows times factor(i, h), 16 bytes at a time. They pass through `own`, the
// warp's rows of a tile in shared memory that is no longer read. Neither rows from `rows` on nor
// columns from HS on are written.
template <int D, int M, class Factor>
__device__ void store_rows(bf16* to, int stride, int rows, int HS, bf16* own,
                           const float (&sum)[M][D / 8][4], Factor factor) {
    #pragma unroll
    for (int i = 0; i < M; i++) for (int n = 0; n < D / 8; n++) for (int h = 0; h < 2; h++)
        as<unsigned>(own + at<D>(i * 16 + row_of(h * 2), n) + column_of(0)) =
            pack2(sum[i][n][h * 2] * factor(i, h), sum[i][n][h * 2 + 1] * factor(i, h));
    __syncwarp();
    #pragma unroll
    for (int c = 0; c < M * 2 * D; c += 32) {
        const int r = (c + lane()) / (D / 8), j = (c + lane()) % (D / 8);
        if (r < rows && j * 8 < HS)
            as<uint4>(to + r * stride + j * 8) = as<uint4>(own + at<D>(r, j));
    }
}

// ------------------------ for attention.cu and attention_backward.cu, by mma

constexpr int kWarpsSm80 = 4, kThreadsSm80 = kWarpsSm80 * 32;

// All threads call this. Starts the copy of ROWS rows from global memory; zeros replace rows >=
// `rows`, columns >= HS.
template <int D, int ROWS>
__device__ void load_tile(bf16* tile, const bf16* from, int stride, int rows, int HS) {
    constexpr int kAcross = D / 8, kDown = kThreadsSm80 / kAcross;
    const int first = int(threadIdx.x) / kAcross, j = int(threadIdx.x) % kAcross;
    const bf16* const mine = from + first * stride + j * 8;
    for (int i = 0; i < ROWS; i += kDown)
        cp_async16(tile + at<D>(i + first, j), mine + i * stride, i + first < rows && j * 8 < HS);
}
// Does the same for two matrices, into the two tiles of a stage, and ends the group of copies.
template <int D, int ROWS>
__device__ void load_pair(bf16* tiles, const bf16* a, int a_stride, const bf16* b, int b_stride,
                          int rows, int HS) {
    load_tile<D, ROWS>(tiles, a, a_stride, rows, HS);
    load_tile<D, ROWS>(tiles + ROWS * D, b, b_stride, rows, HS);
    cp_async_commit();
}

// Loads a 16x16 piece of a tile in the layout of the tensor cores. row is a multiple of 8 and
// column of 16. Loops are unrolled, so both are constants: then an address is one of a few that the
// lane keeps, plus a constant.
template <int D, bool TRANS> __device__ void load_piece(unsigned (&r)[4], const bf16* tile, int row,
                                                        int column, int lane_row, int lane_chunk) {
    const int chunk = column / 8, x = lane_chunk ^ (lane_row >> kShift<D> & kMask<D>);
    const bf16* const mine = tile + (lane_row * D + ((chunk & kMask<D>) ^ x) * 8);
    ldmatrix_x4<TRANS>(r, mine + (row * D + (chunk & ~kMask<D>) * 8));
}

// Computes d += a b for two neighbouring 8-column tiles of d and all of its row tiles.
template <int M, int N>
__device__ void multiply(float (&d)[M][N][4], int n, const unsigned (&a)[M][4],
                         const unsigned (&b)[4]) {
    const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
    for (int i = 0; i < M; i++) {
        mma_m16n8k16(d[i][n], a[i], low);
        mma_m16n8k16(d[i][n + 1], a[i], high);
    }
}

// Rows is the warp's own 16 M rows of a tile, as first operand. It is kept in registers, or loaded
// each time if !KEEP.
template <int D, int M, bool KEEP> struct Rows {
    const bf16* tile;
    int row;
    unsigned kept[KEEP ? D / 16 : 1][M][4];
    __device__ Rows(const bf16* tile_, int row_) : tile(tile_), row(row_) {
        if constexpr (KEEP) for (int k = 0; k < D / 16; k++) load(kept[k], k);
    }
    __device__ void load(unsigned (&a)[M][4], int k) const {
        for (int i = 0; i < M; i++)
            load_piece<D, false>(a[i], tile, row + i * 16, k * 16, lane() % 16, lane() / 16);
    }
};

// Computes s = rows other^T, where other is the 8 N rows of a tile from `row` on.
template <int D, int M, bool KEEP, int N>
__device__ void multiply_rows(float (&s)[M][N][4], Rows<D, M, KEEP>& rows, const bf16* tile,
                              int row) {
    for (int i = 0; i < M; i++)
        for (int n = 0; n < N; n++)
            for (int e = 0; e < 4; e++) s[i][n][e] = 0;
    #pragma unroll
    for (int k = 0; k < D / 16; k++) {
        if constexpr (!KEEP) rows.load(rows.kept[0], k);
        for (int n = 0; n < N; n += 2) {
            unsigned b[4];
            load_piece<D, false>(b, tile, row + n * 8, k * 16, lane() % 8 + lane() / 16 * 8,
                                 lane() / 8 % 2);
            multiply(s, n, rows.kept[KEEP ? k : 0], b);
        }
    }
}

// Computes sum += p other, with p rounded to bf16, where
// other is the 8 N rows of a tile from `row` on.
template <int D, int M, int N>
__device__ void add_product(float (&sum)[M][D / 8][4], const float (&p)[M][N][4], const bf16* tile,
                            int row) {
    for (int k = 0; k < N; k += 2) {
        unsigned a[M][4];
        for (int i = 0; i < M; i++) pack_operand(a[i], p[i], k / 2);
        #pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            unsigned b[4];
            load_piece<D, true>(b, tile, row + k * 8, n * 8, lane() % 16, lane() / 16);
            multiply(sum, n, a, b);
        }
    }
}

// Returns bits: bit i says whether element first + i is kept. A lane
// computes them for N neighbours in a row of p, and the other lanes get
// them by shuffle. So an element costs about a quarter of a random4.
template <int N> __device__ unsigned keep_bits(const Dropout& drop, uint64_t first) {
    const RandomKey key = key_of(drop);
    const unsigned skip = unsigned(first) % 4;
    // uniform01(v) >= rate where v >= least
    const unsigned least = unsigned(ceilf(drop.rate * 0x1p24f)) << 8;
    const auto four = [&](uint64_t i) {
        const Random4 r = random4(key, i);
        unsigned bits = 0;
        for (int k = 0; k < 4; k++) bits |= r.v[k] >= least ? 1u << k : 0;
        return bits;
    };
    unsigned bits = 0;
    #pragma unroll
    for (int j = 0; j < N / 4; j++) bits |= four(first / 4 + j) << (4 * j);
    if (skip == 0) return bits;
    return bits >> skip | four(first / 4 + N / 4) << (N - skip);
}

// Calls step(row, stage) for rows begin, begin + STEP, ... before `end`, while load(row, stage)
// copies the next rows.
template <int STEP, class Load, class Step>
__device__ void pipeline(int begin, int end, Load load, Step step) {
    for (int row = begin, stage = 0; row < end; row += STEP, stage ^= 1) {
        if (row + STEP < end) load(row + STEP, stage ^ 1);
        step(row, stage);
        cp_async_wait<0>();  // the next rows have come
        __syncthreads();  // all warps are done with the rows of this step
    }
}

// Returns whether `bits`, shifted right by the lane's first
// column, keep element e of the n-th 8 columns.
__device__ inline bool kept(unsigned bits, int n, int e) { return bits & 1u << (n * 8 + e % 2); }

// Calls f(x) with x as an integral constant.
template <class F> void with_bool(bool x, F f) { x ? f(std::true_type()) : f(std::false_type()); }
// Calls f(D, DROP, BEGIN), as integral constants, for the narrowest tile that holds HS columns.
template <class F> void with_tile(const Attention& attention, F f) {
    const auto with = [&](auto D) {
        with_bool(attention.drop.rate > 0, [&](auto DROP) {
            with_bool(attention.begin, [&](auto BEGIN) { f(D, DROP, BEGIN); });
        });
    };
    if (attention.HS <= 32) with(std::integral_constant<int, 32>());
    else if (attention.HS <= 64) with(std::integral_constant<int, 64>());
    else with(std::integral_constant<int, 128>());
}

template <class Tile, class... P, class... A> void launch_rows(void (*kernel)(P...), int heads,
                                                               const AttentionShape& s,
                                                               Stream stream, const A&... args) {
    launch(kernel, heads * div_up(s.T, Tile::kRows), kThreadsSm80, Tile::kBytes, stream, args...);
}

// Checks the sizes and returns the shape; in attention.cu.
AttentionShape shape_of(const Attention& attention);
// In attention_sm90.cu: sm90_takes returns whether it has
// kernels for this case and device; the others launch them.
bool sm90_takes(const Attention& attention);
void forward_sm90(bf16* out, float* lse, const bf16* qkv, const AttentionShape& s,
                  const int* begin, Stream stream);
void backward_sm90(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv, const bf16* out,
                   const float* lse, const AttentionShape& s, const int* begin, Stream stream);

}  // namespace BACKEND::attention
