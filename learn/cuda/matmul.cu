// matmul.cu -- the ladder of a matrix product: out (M,N) = a (M,K) times the transpose of b (N,K). A linear layer has
// this form: a are activations, b is the weight.
//
// Each number of a is needed N times and each of b M times. The ladder is about where it is fetched from each time: the
// L2 cache, the shared memory of a multiprocessor, or a register, each with more bytes a cycle than the one before.
// From rung 4 on the numbers are bf16 and tensor cores multiply, so that there is less to move.
#include <cuda.h>
#include <dlfcn.h>
#include "ladder.h"
#include "warp.h"

constexpr int M = SMALL ? 256 : 2048, N = M, K = SMALL ? 256 : 1024;

// Rung 1: a thread for each result. For one multiplication it fetches two numbers. Threads are numbered along x first,
// so a warp has one m and 32 n: one row of a and 32 rows of b. Of b it touches 32 sectors each time, for 4 bytes each.
__global__ void naive(float* out, const float* a, const float* b) {
    const int m = blockIdx.y * blockDim.y + threadIdx.y, n = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += a[m * K + k] * b[n * K + k];
    out[m * N + n] = sum;
}

// Rung 2: a block of 32 x 32 threads fetches 32 x 32 numbers of a and of b together, whole sectors, into shared memory,
// where each is used 32 times. __syncthreads waits until all threads of the block are there. The rows of the tile are
// 33 long: thread x reads row x, and with 32 all of a column would lie in one bank, so that a warp's 32 requests would
// take 32 turns. The instructions are as many as before: for each multiplication a thread still reads two numbers, and
// two turns at shared memory for each multiplication of a warp are now the limit.
__global__ void shared_tiles(float* out, const float* a, const float* b) {
    __shared__ float as[32][33], bs[32][33];
    const int x = threadIdx.x, y = threadIdx.y, m = blockIdx.y * 32 + y, n = blockIdx.x * 32 + x;
    float sum = 0;
    for (int k = 0; k < K; k += 32) {
        as[y][x] = a[m * K + k + x];
        bs[y][x] = b[(blockIdx.x * 32 + y) * K + k + x];
        __syncthreads();                                // all have written
        for (int i = 0; i < 32; i++) sum += as[y][i] * bs[x][i];
        __syncthreads();                                // all have read
    }
    out[m * N + n] = sum;
}

// Rung 3: a thread has 4 x 4 results in registers. For 16 multiplications it reads 4 + 4 numbers from shared memory,
// by two requests of 16 bytes, where rung 2 needs 32 of 4 bytes. They lie there transposed, [k][m] and [k][n]. Writing
// them so has a few bank conflicts. The block's tile is 64 x 64: each number that was fetched is used 64 times.
__global__ void register_tiles(float* out, const float* a, const float* b) {
    __shared__ float4 as[16][16 + 1], bs[16][16 + 1];   // 16 of k times 64 of m and of n
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, m0 = blockIdx.y * 64, n0 = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k = 0; k < K; k += 16) {
        for (int i = threadIdx.x; i < 64 * 16; i += 256) {
            reinterpret_cast<float*>(as[i % 16])[i / 16] = a[(m0 + i / 16) * K + k + i % 16];
            reinterpret_cast<float*>(bs[i % 16])[i / 16] = b[(n0 + i / 16) * K + k + i % 16];
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 16; i++) {
            const float4 p = as[i][y], q = bs[i][x];
            const float pm[4] = {p.x, p.y, p.z, p.w}, qn[4] = {q.x, q.y, q.z, q.w};
            #pragma unroll
            for (int j = 0; j < 16; j++) sum[j / 4][j % 4] += pm[j / 4] * qn[j % 4];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        reinterpret_cast<float4*>(out + (m0 + y * 4 + i) * N + n0)[x] = {sum[i][0], sum[i][1], sum[i][2], sum[i][3]};
}

// ---- tensor cores: mma.sync, sm_80 and later
//
// The instruction mma.sync computes d (16,8) += a (16,16) times the transpose of b (8,16). All 32 threads of a warp
// execute it together, and each holds a part of the matrices in registers. A cell of the picture is two neighbouring
// numbers of a row, and the cell's number is the thread that holds them.
//
//             a (16,16)                            b (8,16)                             d (16,8)
//    column   0  2  4  6   8 10 12 14    column   0  2  4  6   8 10 12 14    column   0  2  4  6
//    row  0   0  1  2  3 | 0  1  2  3    row  0   0  1  2  3 | 0  1  2  3    row  0   0  1  2  3
//         1   4  5  6  7 | 4  5  6  7         1   4  5  6  7 | 4  5  6  7         1   4  5  6  7
//        ..      a[0]    |    a[2]           ..      b0      |    b1             .. d[0], d[1]
//         7  28 29 30 31 |28 29 30 31         7  28 29 30 31 |28 29 30 31         7  28 29 30 31
//            ------------+------------                                               ------------
//         8   0  1  2  3 | 0  1  2  3                                             8   0  1  2  3
//        ..      a[1]    |    a[3]                                               .. d[2], d[3]
//        15  28 29 30 31 |28 29 30 31                                            15  28 29 30 31
//
// So all matrices consist of squares of 8 x 8 numbers, and in each square thread t has row t / 4 and the two columns
// from t % 4 * 2 on. For a and b a cell is one register, which packs two bf16. For d it is two registers: floats.
constexpr int kTile = 64, kStep = 32, kPieces = kStep / 8;    // a block's tile; k of a step, in pieces of 16 bytes
using Tile = bf16[kTile][kStep + 8];                        // with 16 bytes of padding
__device__ unsigned pair(const bf16& first) { return reinterpret_cast<const unsigned&>(first); }

// Fetches a thread's parts of 16 x 16 numbers of a tile, in the order in which mma wants those of a.
__device__ void fetch(unsigned (&r)[4], const Tile& tile, int first_row, int first_column) {
    const int lane = threadIdx.x % 32, row = first_row + lane / 4, column = first_column + lane % 4 * 2;
    r[0] = pair(tile[row][column]);
    r[1] = pair(tile[row + 8][column]);
    r[2] = pair(tile[row][column + 8]);
    r[3] = pair(tile[row + 8][column + 8]);
}
// Multiplies a step's tiles. A warp has 32 x 32 results, which are 2 x 4 matrices d. 16 rows of b are right operands of
// two products: the upper eight rows are r[0] and r[2], the lower eight are r[1] and r[3].
template <auto kFetch>
__device__ void multiply(float (&sum)[2][4][4], const Tile& as, const Tile& bs, int m, int n) {
    for (int k = 0; k < kStep; k += 16) {
        unsigned a[2][4], b[2][4];
        for (int i = 0; i < 2; i++) {
            kFetch(a[i], as, m + i * 16, k);
            kFetch(b[i], bs, n + i * 16, k);
        }
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++) mma(sum[i][j], a[i], b[j / 2][j % 2], b[j / 2][j % 2 + 2]);
    }
}

// Rung 4: mma.sync makes 16 x 8 x 16 multiplications: 64 for each thread, where an instruction of rung 3 makes one.
// Each of the four warps has a quarter of the block's tile. Rows of 80 bytes begin on multiples of 16, and the 32 cells
// of a square lie in different banks, so that a read takes one turn. The copies to the tile still have some conflicts.
template <auto kFetch>
__global__ void tensor_cores(float* out, const bf16* a, const bf16* b) {
    __shared__ Tile as, bs;
    const int warp = threadIdx.x / 32, m = warp / 2 * 32, n = warp % 2 * 32;
    const int m0 = blockIdx.y * kTile, n0 = blockIdx.x * kTile;
    float sum[2][4][4] = {};
    for (int k = 0; k < K; k += kStep) {
        for (int i = threadIdx.x; i < kTile * kPieces; i += 128) {
            const int row = i / kPieces, column = i % kPieces * 8, from = row * K + k + column;
            *reinterpret_cast<uint4*>(&as[row][column]) = *reinterpret_cast<const uint4*>(a + m0 * K + from);
            *reinterpret_cast<uint4*>(&bs[row][column]) = *reinterpret_cast<const uint4*>(b + n0 * K + from);
        }
        __syncthreads();
        multiply<kFetch>(sum, as, bs, m, n);
        __syncthreads();
    }
    for (int i = 0; i < 8; i++)
        store(out + (m0 + m + i / 4 * 16) * N + n0 + n + i % 4 * 8, N, sum[i / 4][i % 4]);
}

// Rung 5: the kernel is the same, but one ldmatrix (in warp.h) replaces the four reads. It fetches four squares, and of
// each a thread gets the cell that the picture gives it. What a thread names is not its cell but a whole row of a
// square: threads 0 to 7 name the rows of square r[0], 8 to 15 those of r[1], 16 to 23 of r[2] and 24 to 31 of r[3].
// r[0] and r[1] are rows 0 to 15 at column 0, which threads 0 to 15 name. r[2] and r[3] are the same rows at column 8,
// which threads 16 to 31 name. So a thread's row is lane % 16, and its column is lane / 16 * 8. As many bytes come from
// shared memory as in rung 4, in as many turns, with a fifth fewer instructions of PTX.
__device__ void fetch_by_ldmatrix(unsigned (&r)[4], const Tile& tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    ldmatrix(r, &tile[row + lane % 16][column + lane / 16 * 8]);
}

// Rung 6: in rung 5 the tensor cores wait while the next tiles come. cp.async copies to shared memory beside the
// program, without registers between; so three steps have tiles of their own, and two are under way while one is
// multiplied. A group is what a thread has started up to a commit, which may be nothing; wait_group 1 waits for all of
// its groups but the newest. More instructions are issued than in rung 5, for addresses. What is won, less waiting, no
// counter shows.
__device__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, 16;" :: "r"(address(to)), "l"(from) : "memory");
}
__global__ void asynchronous_copies(float* out, const bf16* a, const bf16* b) {
    __shared__ Tile as[3], bs[3];
    const int warp = threadIdx.x / 32, m = warp / 2 * 32, n = warp % 2 * 32;
    const int m0 = blockIdx.y * kTile, n0 = blockIdx.x * kTile;
    const auto start = [&](int step) {
        for (int i = threadIdx.x; i < kTile * kPieces && step < K / kStep; i += 128) {
            const int row = i / kPieces, column = i % kPieces * 8, from = row * K + step * kStep + column;
            copy16(&as[step % 3][row][column], a + m0 * K + from);
            copy16(&bs[step % 3][row][column], b + n0 * K + from);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float sum[2][4][4] = {};
    start(0);
    start(1);
    for (int step = 0; step < K / kStep; step++) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");    // this step's tiles are there, for this thread
        __syncthreads();                                        // for all; and all have multiplied the step before
        start(step + 2);                                        // into the tiles of the step before
        multiply<fetch_by_ldmatrix>(sum, as[step % 3], bs[step % 3], m, n);
    }
    for (int i = 0; i < 8; i++)
        store(out + (m0 + m + i / 4 * 16) * N + n0 + n + i % 4 * 8, N, sum[i / 4][i % 4]);
}

// ---- tensor cores of Hopper: wgmma and TMA, sm_90a alone

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)                  // nvcc -arch=sm_90a
#define HOPPER(...) asm volatile(__VA_ARGS__)
#else
#define HOPPER(...)
#endif
__global__ void is_for_hopper(int* answer) { HOPPER("st.global.u32 [%0], 1;" :: "l"(answer) : "memory"); }
// Returns the descriptor of a tile of 64 rows of 64 bf16: 64 bits that tell wgmma where it lies, and how. They have its
// address and, from bit 32 on, the distance of 8 rows, both in units of 16 bytes; and in bit 62 the swizzle, the order
// in which TMA has left it: piece p of 16 bytes of row r lies at place p xor r % 8, so that a column of pieces is
// spread over all banks.
__device__ uint64_t descriptor(const void* tile) {
    return (address(tile) & 0x3ffff) >> 4 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
// TMA copies a tile by one instruction of one thread. The barrier counts the bytes that have come. Its phase ends with
// the last of them: use n of a slot waits for phase n % 2.
__device__ void copy_tile(void* to, const CUtensorMap* map, uint64_t* bar, int x, int y) {
    HOPPER("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
           :: "r"(address(to)), "l"(map), "r"(address(bar)), "r"(x), "r"(y) : "memory");
}
__device__ void wait_for(uint64_t* bar, int phase) {
    HOPPER("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
           "@!done bra again;\n}" :: "r"(address(bar)), "r"(phase) : "memory");
}
#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS FOUR(0), FOUR(4), FOUR(8), FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28)
// d (64,64) += a (64,16) times the transpose of b (64,16), by four warps, from shared memory, beside the program.
__device__ void wgmma(float (&d)[32], uint64_t a, uint64_t b) {
    HOPPER("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,"
           "%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
           : SUMS : "l"(a), "l"(b));
}
// Before the first product the registers are ready; wait_for_products waits for all. Both name the registers, so that
// the compiler moves no access to them across the wait.
__device__ void fence(float (&d)[32]) { HOPPER("wgmma.fence.sync.aligned;" : SUMS :: "memory"); }
__device__ void wait_for_products(float (&d)[32]) { HOPPER("wgmma.wait_group.sync.aligned 0;" : SUMS :: "memory"); }

// Rung 7: mma.sync still reads its operands from shared memory into registers, each warp for itself, and 128 threads
// compute addresses for the copies. wgmma reads shared memory itself, once for four warps, and one thread starts the
// copies. What is left for the program are the waits.
__global__ void wgmma_and_tma(float* out, const __grid_constant__ CUtensorMap a,
                              const __grid_constant__ CUtensorMap b) {
    constexpr int kSlots = 4, kBytes = 64 * 64 * sizeof(bf16), kSteps = K / 64;
    extern __shared__ __align__(1024) unsigned char tiles[];    // (kSlots, a and b, kBytes)
    __shared__ uint64_t full[kSlots];
    const int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64, warp = threadIdx.x / 32;
    const auto start = [&](int step) {
        if (threadIdx.x > 0 || step >= kSteps) return;
        uint64_t* const bar = &full[step % kSlots];
        unsigned char* const to = tiles + step % kSlots * 2 * kBytes;
        HOPPER("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(address(bar)), "r"(2 * kBytes) : "memory");
        copy_tile(to, &a, bar, step * 64, m0);
        copy_tile(to + kBytes, &b, bar, step * 64, n0);
    };
    if (threadIdx.x == 0) {
        for (uint64_t& bar : full) HOPPER("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&bar)) : "memory");
        HOPPER("fence.mbarrier_init.release.cluster;" ::: "memory");    // TMA sees the barriers
    }
    __syncthreads();
    for (int step = 0; step + 1 < kSlots; step++) start(step);
    float sum[32] = {};
    for (int step = 0; step < kSteps; step++) {
        const unsigned char* const tile = tiles + step % kSlots * 2 * kBytes;
        wait_for(&full[step % kSlots], step / kSlots % 2);
        fence(sum);
        #pragma unroll
        for (int byte = 0; byte < 128; byte += 32)              // 16 of a row's 64 numbers
            wgmma(sum, descriptor(tile + byte), descriptor(tile + kBytes + byte));
        HOPPER("wgmma.commit_group.sync.aligned;" ::: "memory");
        start(step + kSlots - 1);                               // into the tiles of the step before
        wait_for_products(sum);
        __syncthreads();                                        // all four warps are done with this step's tiles
    }
    for (int j = 0; j < 8; j++) store(out + (m0 + warp * 16) * N + n0 + j * 8, N, sum + j * 4);    // d is as mma's
}
// Returns TMA's description of a matrix (rows, K): boxes of 64 x 64, swizzled. The driver makes it.
static CUtensorMap map_of(const bf16* matrix, uint64_t rows) {
    CUtensorMap map;
    const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
        dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuTensorMapEncodeTiled"));
    const cuuint64_t size[] = {K, rows}, stride[] = {K * sizeof(bf16)};
    const cuuint32_t box[] = {64, 64}, step[] = {1, 1};
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(matrix), size, stride, box, step,
           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

int main() {
    const auto a = numbers<bf16>(M * K, 1), b = numbers<bf16>(N * K, 2);
    const Floats a32(a.begin(), a.end()), b32(b.begin(), b.end());
    Floats want(M * N);
    for (int i = 0; i < M * N; i++) {                           // products of two bf16 are exact, and sums double
        const float* const row = &a32[i / N * K];
        want[i] = float(std::inner_product(row, row + K, &b32[i % N * K], 0.0));
    }
    const Array<bf16> A = a, B = b;
    const Array<float> A32 = a32, B32 = b32;
    Array<float> out(M * N, "out", N);
    const auto climb = [&](Ladder& ladder, const char* name, const auto& run) {
        ladder.climb(name, out, want, 1e-5, run);
    };
    Ladder fp32("matmul, fp32", (M * K + N * K + M * N) * 4.0, 2.0 * M * N * K, M * N);
    climb(fp32, "naive", [&] { naive<<<dim3(N / 32, M / 8), dim3(32, 8)>>>(out, A32, B32); });
    climb(fp32, "tiles in shared memory", [&] { shared_tiles<<<dim3(N / 32, M / 32), dim3(32, 32)>>>(out, A32, B32); });
    climb(fp32, "tiles in registers", [&] { register_tiles<<<dim3(N / 64, M / 64), 256>>>(out, A32, B32); });
    Ladder bf("matmul, bf16", (M * K + N * K) * 2.0 + M * N * 4.0, 2.0 * M * N * K, M * N);
    const dim3 grid(N / kTile, M / kTile);
    climb(bf, "tensor cores: mma.sync", [&] { tensor_cores<fetch><<<grid, 128>>>(out, A, B); });
    climb(bf, "ldmatrix", [&] { tensor_cores<fetch_by_ldmatrix><<<grid, 128>>>(out, A, B); });
    climb(bf, "asynchronous copies", [&] { asynchronous_copies<<<grid, 128>>>(out, A, B); });
    Array<int> hopper(1);
    is_for_hopper<<<1, 32>>>(hopper);
    if (hopper.values()[0] != 1) printf("  7 wgmma and TMA: skipped; on Hopper, compile with -arch=sm_90a\n");
    else
        climb(bf, "wgmma and TMA", [&] {
            constexpr int kShared = 4 * 2 * 64 * 64 * sizeof(bf16);
            check(cudaFuncSetAttribute(wgmma_and_tma, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
            wgmma_and_tma<<<grid, 128, kShared>>>(out, map_of(A, M), map_of(B, N));
        });
    return Ladder::result();
}
