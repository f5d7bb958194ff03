// matmul.cu -- the matrix products of forward and backward,
// on the tensor cores of every GPU since sm_80.
//
//   forward     out  = inp weight^T + bias        sum over C         inp K-major, weight K-major
//   backward    dinp = dout weight                sum over OC        dout K-major, weight MN-major
//               dweight (+)= dout^T inp           sum over N         both MN-major
//               dbias (+)= column sums of dout
//
// An operand is K-major (neighbours in memory are neighbours in k) or MN-major; ldmatrix transposes
// the latter on the way to registers. dweight has few tiles and a long k: several blocks take a
// part of k each, and a second kernel adds their sums in order. dweight's kernel computes dbias,
// too, by an mma with a matrix of ones. On Hopper products of more than 64 rows may go to
// matmul_sm90.cu.
//
// Every element is summed over k in order. So tiles of the same instruction (mma here, wgmma in
// matmul_sm90.cu) give the same bits of out, dinp and dweight. dbias depends on the tile, which
// says how many warps share its sum (Turns). If k is split, dweight depends on the split, too.
#include "kernels/cuda/matmul.cuh"
#include "kernels/elements.h"

namespace BACKEND {
namespace {

// One operand of a block, SIZE of its rows (m or n) by BK of k. It is in shared memory as lines
// of 16-byte chunks; a line runs along k or, if MN-major, along mn. Chunks are swizzled within
// a line, so that those which one ldmatrix reads from eight lines lie in different banks.
template <bool MN, int SIZE, int BK, int THREADS> struct OperandSm80 {
    static constexpr int kChunks = (MN ? SIZE : BK) / 8;    // chunks of a line
    static constexpr int kLines = THREADS / kChunks;    // lines that the block fetches at once
    static constexpr int kFetches = SIZE * BK / 8 / THREADS;    // fetches per thread and tile
    static_assert(kLines % 8 == 0 && kChunks >= 4);

    const bf16* src;    // this thread's first chunk of the next tile
    int ld;    // elements from row to row in memory
    int k, k_end, mn, mn_end;   // that chunk's k and mn, and the ends of both

    // Returns where chunk c of line i is, in elements.
    static __device__ int at(int i, int c) {
        return (i * kChunks + (c ^ (kChunks == 4 ? i / 2 % 4 : i % 8))) * 8;
    }
    static __device__ int line() { return int(threadIdx.x) / kChunks; }
    static __device__ int chunk() { return int(threadIdx.x) % kChunks; }

    __device__ OperandSm80(const bf16* base, int ld, int mn0, int mn_end, int k0, int k_end)
        : ld(ld), k(k0 + (MN ? line() : chunk() * 8)), k_end(k_end),
          mn(mn0 + (MN ? chunk() * 8 : line())), mn_end(mn_end) {
        src = base + (MN ? size_t(k) * ld + mn : size_t(mn) * ld + k);
    }
    // Starts the copy of the next tile; elements outside of the matrix become 0.
    __device__ void fetch(bf16* tile) {
        for (int i = 0; i < kFetches; i++) {
            const bool valid = MN ? mn < mn_end && k + i * kLines < k_end
                                  : mn + i * kLines < mn_end && k < k_end;
            cp_async16(tile + at(line(), chunk()) + i * kLines * kChunks * 8,
                       src + size_t(i * kLines) * ld, valid);
        }
        k += BK;
        src += MN ? size_t(BK) * ld : size_t(BK);
    }
    // Loads the 16 x 16 elements of the tile that begin at (mn, k). The registers of A are for
    // (mn, k), (mn + 8, k), (mn, k + 8) and (mn + 8, k + 8); for B the middle two are exchanged.
    template <bool IS_A>
    static __device__ void fragment(unsigned (&f)[4], const bf16* tile, int mn, int k) {
        const int second = lane() / 8 % 2, third = lane() / 16;
        mn += (IS_A ? second : third) * 8;
        k += (IS_A ? third : second) * 8;
        ldmatrix_x4<MN>(f, tile + (MN ? at(k + lane() % 8, mn / 8) : at(mn + lane() % 8, k / 8)));
    }
};

// Computes out(m,n) = sum over k of A(m,k) B(n,k). A block computes BM x BN outputs by WM x WN
// warps, in steps of BK along k. A warp has MT x NT pieces of 16 x 8.
//
// One block per tile and part of k; StoreFloat's `out` has an array for every part. cp.async copies
// the tiles of the next STAGES - 1 steps to shared memory, kStage elements each. While the tensor
// cores work on 16 k, the fragments of the next 16 k are loaded from there into registers. A step's
// barrier is before its last 16 k. Then all fragments of the step are in registers, so its stage is
// free, and the copies of the next step have come.
template <class T, bool TA, bool TB, class Epilogue>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
matmul_kernel(Product p, Epilogue epilogue) {
    using OperandA = OperandSm80<TA, T::BM, T::BK, T::kThreads>;
    using OperandB = OperandSm80<TB, T::BN, T::BK, T::kThreads>;
    constexpr bool kSplits = TA;        // for dweight
    constexpr int kSteps16 = T::BK / 16;
    static_assert(kSteps16 >= 2 && T::MT * 16 * T::WM == T::BM && T::NT % 4 == 0);
    extern __shared__ __align__(1024) unsigned char raw[];
    bf16* const shared = reinterpret_cast<bf16*>(raw);
    grid_dependency_sync();

    const Place place = place_of(int(blockIdx.x), div_up(p.M, T::BM), div_up(p.N, T::BN));
    const int m0 = place.m * T::BM, n0 = place.n * T::BN, k0 = int(blockIdx.y) * p.plan.part;
    const int k_end = p.K - k0 < p.plan.part ? p.K : k0 + p.plan.part,
              steps = div_up(k_end - k0, T::BK);
    // The warp's corner
    const int wm = warp() / T::WN * (T::BM / T::WM), wn = warp() % T::WN * (T::BN / T::WN);

    OperandA a(p.A, TA ? p.M : p.K, m0, p.M, k0, k_end);
    OperandB b(p.B, TB ? p.N : p.K, n0, p.N, k0, k_end);
    const auto fetch = [&](int step) {
        if (step < steps) {
            bf16* const stage = shared + step % T::STAGES * T::kStage;
            a.fetch(stage);
            b.fetch(stage + T::BM * T::BK);
        }
        cp_async_commit();    // even an empty group: cp_async_wait counts groups
    };
    unsigned fa[2][T::MT][4], fb[2][T::NT / 2][4];
    const auto load_fragments = [&](int buffer, int step, int k) {
        const bf16* const stage = shared + step % T::STAGES * T::kStage;
        for (int x = 0; x < T::MT; x++)
            OperandA::template fragment<true>(fa[buffer][x], stage, wm + x * 16, k);
        for (int y = 0; y < T::NT / 2; y++)
            OperandB::template fragment<false>(fb[buffer][y], stage + T::BM * T::BK, wn + y * 16,
                                               k);
    };

    // dbias: warps with the same rows of dout^T take turns. Each sums the rows in every turns-th
    // step, and sum_parts adds their sums.
    Turns turns(p, place.n * T::WN + warp() % T::WN);
    float acc[T::MT][T::NT][4] = {}, sums[T::MT][4] = {};
    // Pairs of bf16 1.0: a product with ones is a row's sum.
    const unsigned ones[2] = {0x3f803f80u, 0x3f803f80u};
    for (int s = 0; s < T::STAGES - 1; s++) fetch(s);
    cp_async_wait<T::STAGES - 2>();
    __syncthreads();
    load_fragments(0, 0, 0);
    for (int step = 0; step < steps; step++) {
        const bool sums_rows = kSplits && turns.next(p);
        #pragma unroll
        for (int i = 0; i < kSteps16; i++) {
            if (i == kSteps16 - 1) {
                cp_async_wait<T::STAGES - 2>();
                __syncthreads();
                load_fragments(0, step + 1, 0);     // is not used after the last step
            } else {
                load_fragments((i + 1) % 2, step, (i + 1) * 16);
            }
            if (i == 0) fetch(step + T::STAGES - 1);
            for (int x = 0; x < T::MT; x++) for (int y = 0; y < T::NT; y++)
                    mma_m16n8k16(acc[x][y], fa[i % 2][x],
                                 {fb[i % 2][y / 2][y % 2 * 2], fb[i % 2][y / 2][y % 2 * 2 + 1]});
            if (sums_rows)
                for (int x = 0; x < T::MT; x++) mma_m16n8k16(sums[x], fa[i % 2][x], ones);
        }
    }
    if constexpr (kSplits) {
        epilogue.out += size_t(blockIdx.y) * p.M * p.N;
        turns.store<16>(p, sums, int(blockIdx.y), m0 + wm + lane() / 4);
    }
    const LateStarts<Epilogue> starts = {epilogue, n0 + wn};
    store_sums<16>(acc, starts, epilogue, m0 + wm + lane() / 4, n0 + wn);
}

// ------------------------ launchers

template <bool TA, bool TB, class T, class Epilogue>
void run_tile(const Product& p, const Epilogue& epilogue, Stream stream) {
    const dim3 grid(div_up(p.M, T::BM) * div_up(p.N, T::BN), p.plan.parts);
    launch(matmul_kernel<T, TA, TB, Epilogue>, grid, T::kThreads, T::kBytes, stream, p, epilogue);
}
template <bool TA, bool TB, class Epilogue>
void run(const Product& p, const Epilogue& epilogue, Stream stream) {
    using OfDweight = std::conditional_t<TA, Fitting, Wide>;
    constexpr decltype(&run_tile<TA, TB, Small, Epilogue>) kRun[] = {    // in the order of kTiles
        run_tile<TA, TB, Large>, run_tile<TA, TB, Medium>, run_tile<TA, TB, Small>,
        run_sm90<TA, TB, Wide>, run_sm90<TA, TB, OfDweight>, run_sm90<TA, TB, PingPong>};
    kRun[p.plan.tile](p, epilogue, stream);
}
// Runs out = A B with an epilogue for bf16. If TB, B is MN-major. M, N and K are the product's own
// sizes: its M is the N of kernels.h, its N is OC or C.
template <bool TB, Kind KIND>
void run_bf16(const bf16* A, const bf16* B, const StoreBf16<KIND>& epilogue, int K, Stream stream) {
    const int M = epilogue.extent.M, N = epilogue.extent.N;
    CHECK(M >= 0 && N > 0 && K > 0 && N % 8 == 0 && K % 8 == 0, "matmul: %d x %d outputs of %d", M,
          N, K);
    if (M == 0) return;
    run<false, TB>({A, B, nullptr, M, N, K, choose(M, N, K, 1)}, epilogue, stream);
}

// out (+)= parts[0] + parts[1] + ..., `count` arrays of n floats. A thread adds 4 columns and loads
// 8 parts at once.
void sum_parts(float* out, const float* parts, int count, size_t n, bool accumulate,
               Stream stream) {
    each_element(1, n / 4, [=] ON_DEVICE(size_t, size_t four) {
        const size_t i = four * 4;
        float4 sum = as<float4>(parts + i);
        for (int first = 1; first < count; first += 8) {
            float4 v[8];
            for (int j = 0; j < 8; j++)
                if (first + j < count) v[j] = as<float4>(parts + (first + j) * n + i);
            for (int j = 0; j < 8; j++) if (first + j < count) sum = sum + v[j];
        }
        float4& to = as<float4>(out + i);
        to = accumulate ? to + sum : sum;
    }, stream);
}

}  // namespace

void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N,
                    int C, int OC, Stream stream) {
    run_bf16<false, kPlain>(inp, weight, {{out}, bias, {N, OC}}, C, stream);
}

void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight,
                         const floatX* bias, int N, int C, int OC, Stream stream) {
    run_bf16<false, kGelu>(inp, weight, {{pre, out}, bias, {N, OC}}, C, stream);
}

// gelu_forward is here because its bits must be those of
// the product's epilogue. An element is a pack of eight.
void gelu_forward(floatX* out, const floatX* pre, size_t n, Stream stream) {
    CHECK(n % 8 == 0, "gelu_forward: %zu elements", n);
    each_element(1, n / 8, [=] ON_DEVICE(size_t, size_t pack) {
        Pack8 x = load8(pre + pack * 8);
        for (int j = 0; j < 8; j++) x.x[j] = gelu(x.x[j]);
        store8(out + pack * 8, x);
    }, stream);
}

void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C,
                           int OC, Stream stream) {
    run_bf16<true, kPlain>(dout, weight, {{dinp}, nullptr, {N, C}}, OC, stream);
}

void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* weight,
                                const floatX* pre, int N, int C, int OC, Stream stream) {
    run_bf16<true, kGeluBackward>(dout, weight, {{dpre}, pre, {N, C}}, OC, stream);
}

void matmul_backward_params(float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                            int N, int C, int OC, bool accumulate, Stream stream) {
    CHECK(N >= 0 && C > 0 && OC > 0 && C % 8 == 0 && OC % 8 == 0,
          "matmul_backward_params: N %d, C %d, OC %d", N, C, OC);
    if (N == 0) {
        if (!accumulate) device_zero(dweight, size_t(OC) * C * sizeof(float), stream);
        if (!accumulate && dbias) device_zero(dbias, OC * sizeof(float), stream);
        return;
    }
    const Plan plan = choose(OC, C, N, 16);     // k in at most 16 parts
    const bool split = plan.parts > 1;
    // The work space is (parts, OC, C), if there are
    // several parts, and then (parts, turns, OC) for dbias.
    const size_t weights = size_t(OC) * C, rows = plan.parts * plan.turns,
                 partial = split ? plan.parts * weights : 0;
    float* const memory =
        static_cast<float*>(scratch((partial + rows * OC) * sizeof(float), stream));
    float* const row_sums = dbias ? memory + partial : nullptr;
    const StoreFloat epilogue = {split ? memory : dweight, {OC, C}, accumulate && !split};
    run<true, true>({dout, inp, row_sums, OC, C, N, plan}, epilogue, stream);
    if (split) sum_parts(dweight, memory, plan.parts, weights, accumulate, stream);
    if (dbias) sum_parts(dbias, row_sums, rows, OC, accumulate, stream);
}

}  // namespace BACKEND
