// cuda.cuh -- the device side of common.cuh, for nvcc: launch, and the instructions that CUDA C++ has no words for.
//
// tests/emu/emu.h gives the same names with emulated bodies. All inline assembly of the project is here. An instruction that the
// target lacks becomes a trap, so that one source compiles for every architecture from sm_80 on; a launcher asks for the
// architecture before it picks a kernel. Besides the words that common.cuh lists, for Hopper:
//
//   mbar_init(bar, n)  mbar_fence_init()      a phase ends after n arrivals and all bytes announced for it; then the fence, once
//   mbar_arrive(bar, bytes = 0)               arrive, announcing bytes that TMA loads will bring to this phase
//   mbar_arrive_at(bar, rank)                 arrive at the barrier that lies where bar does, in that block of the cluster
//   mbar_wait(bar, parity)                    until the phase of that parity has ended (of a new barrier: that of parity 1 has)
//   bar_sync(id, n)  bar_arrive(id, n)        barrier 1..15 of n threads, a multiple of 32: wait at it; count for it and go on
//   tma_load(dst, map, bar, x, y)             box at column x, row y of a matrix of bf16, into rows of 128 bytes, swizzled; zeros outside
//   tma_load(dst, map, bar, x, y, z)          of matrix z, where the map is of several: rows beyond one's last are outside, not another's first
//   tma_load_multicast(dst, map, bar, x, y, blocks)     to that place of every block of the cluster whose bit is set; each hears of it at its own bar
//   tma_store(map, src, x, y)                 back; what lies outside is not written. Before it: async_fence() by those who wrote src
//   stmatrix_x4(row, r)                       what ldmatrix_x4 would read there, into shared memory
//   tma_prefetch(map)                         the description itself into a cache, where the first load finds it
//   tma_store_commit()  tma_store_wait<N>()   of the thread's groups of stores all but the newest N have read their source
//   launch_clusters(n, kernel, ...)           launch whose blocks run n neighbours at a time (a cluster), and reach each other's shared memory
//   cluster_rank()  cluster_sync()            the block's number in it; a barrier of all its threads. Nobody reaches into another block
//                                         before the first such barrier (it may not have begun) nor after the last (it may have ended)
//   wgmma_desc(tile, lbo, sbo)                operand in swizzled rows of 128 bytes, 1024-byte aligned; offsets in bytes
//       K-major tile [rows][64 k]:            sbo = 1024 (next 8 rows), lbo unused; the next 16 k are 32 bytes on
//       MN-major tile [mn/64][64 k][64 mn]:   sbo = 1024 (next 8 k), lbo = 8192 (next 64 mn); the next 16 k are 2048 bytes on
//   wgmma<N, TA, TB>(d, a, b, accumulate)     m64nNk16, d (+)= a b, N 8, 64, 128, 160 or 256; TA, TB: that operand is MN-major
//   wgmma<N, TB>(d, r, b, accumulate)     the same with A in registers, 16 k of it: a warp's rows as ldmatrix_x4 gives them to mma.
//                                         They must stay as they are until the product has been waited for
//   wgmma_fence()  wgmma_commit()  wgmma_wait<N>(d...)  before the first; end a group; all but the newest N groups are done, and the
//                                         compiler keeps what reads the accumulators d behind that
//   wgmma_hold(d)                         the compiler has made d by here, and makes no copy of it earlier
//   registers_up<R>()  registers_down<R>()    setmaxnreg, by a whole warpgroup
//   tensor_map(p, columns, rows, pitch, box_columns, box_rows, count = 0, distance = 0)     host: describes a matrix of bf16 to TMA,
//                                         or with a count that many, `distance` apart; pitch and distance in elements
//   kSm90a                                this pass of the compiler makes code for sm_90a: a kernel that begins with
//                                         `if (!kSm90a) return;` is empty for all other architectures
//   has_code_for(major)                   host: the build has a pass for devices of that compute capability; with 9, for sm_90a
//
// Swizzled: the 16-byte chunk number is xor-ed with row mod 8. Sources: PTX ISA 8.x, sections on wgmma and cp.async.bulk.tensor.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include "common.h"
#include "types.h"

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define SHARED(T, name, n) __shared__ T name[n]
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

// mbarrier and TMA: sm_90 and later. wgmma and setmaxnreg: sm_90a only.
#if __CUDA_ARCH__ >= 900
#define ASM_SM90(...) asm volatile(__VA_ARGS__)
#define ASM_DEPENDENCY(...) asm volatile(__VA_ARGS__)
#else
#define ASM_SM90(...) asm volatile("trap;")
#define ASM_DEPENDENCY(...)
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ASM_SM90A(...) asm volatile(__VA_ARGS__)
constexpr bool kSm90a = true;
#else
#define ASM_SM90A(...) asm volatile("trap;")
constexpr bool kSm90a = false;
#endif

namespace BACKEND {

// configure makes 90 90a
constexpr bool has_code_for(int major) { return [=](auto... built) { return ((built / 100 == major) || ...); }(__CUDA_ARCH_LIST__); }

// ------------------------------------------------------------------------------------------------ host

cudaStream_t launch_stream(Stream stream, bool* behind_kernel);   // runtime.cu: for a kernel launched now; whether it may begin early
inline const char* device_error_text(cudaError_t error) { return cudaGetErrorString(error); }

// More than 48 KB of shared memory must be asked for. A kernel's static arrays count too: rounded up to 1024, as the dynamic memory
// behind them is aligned. Only kernels with less than that of them have dynamic memory as well.
constexpr size_t kUnaskedSharedBytes = 47 * 1024;

// The only launch there is.
template <class... P, class... A>
void launch_clusters(unsigned cluster, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, Stream stream, A&&... args) {
    cudaError_t error = cudaSuccess;
    if (smem > kUnaskedSharedBytes) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(smem));
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {cluster, 1, 1};
    unsigned count = cluster > 1;
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    bool behind_kernel = false;
    const cudaStream_t queue = launch_stream(stream, &behind_kernel);
    const cudaLaunchConfig_t config = {grid, block, smem, queue, attributes, count + behind_kernel};
    if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
    if (error != cudaSuccess)
        die(kExitOther, "gpu: launch of %ux%ux%u blocks of %u threads with %zu bytes of shared memory: %s", grid.x, grid.y, grid.z,
            block.x * block.y * block.z, smem, device_error_text(error));
}
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, Stream stream, A&&... args) {
    launch_clusters(1, kernel, grid, block, smem, stream, args...);
}

// The driver's function, asked of the runtime so that nothing links against the driver's library.
inline decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
    void* encode = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess || !encode)
        die(kExitOther, "gpu: cuTensorMapEncodeTiled: %s; the driver is too old", device_error_text(error));
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode);
}

using TensorMap = CUtensorMap;
inline TensorMap tensor_map(const bf16* p, size_t columns, size_t rows, size_t pitch, int box_columns, int box_rows, size_t count = 0,
                            size_t distance = 0) {
    static const auto encode = tensor_map_encoder();
    TensorMap map;
    const cuuint64_t size[3] = {columns, rows, count}, stride[2] = {pitch * sizeof(bf16), distance * sizeof(bf16)};
    const cuuint32_t box[3] = {cuuint32_t(box_columns), cuuint32_t(box_rows), 1}, step[3] = {1, 1, 1};
    const CUresult result = encode(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, count ? 3 : 2, const_cast<bf16*>(p), size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) die(kExitOther, "gpu: cuTensorMapEncodeTiled: error %d for a %zux%zu matrix", int(result), rows, columns);
    return map;
}

// ------------------------------------------------------------------------------------------------ the kernel before

// And lets the next one's blocks in as soon as all of this kernel's have come here: there is no earlier use for the places, as blocks that
// wait cost nothing else. Not before the wait, or kernels would queue up in the multiprocessors with nothing to do.
DEVICE void grid_dependency_sync() {
    ASM_DEPENDENCY("griddepcontrol.wait;" ::: "memory");
    ASM_DEPENDENCY("griddepcontrol.launch_dependents;" ::: "memory");
}

// ------------------------------------------------------------------------------------------------ ldmatrix, mma, cp.async

DEVICE unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

template <bool TRANS = false> DEVICE void ldmatrix_x4(unsigned (&r)[4], const void* row) {
    if constexpr (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
DEVICE void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// One instruction; exp2f would spend three more on results below 2^-126, which are 0 here.
DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE unsigned pack2(float low, float high) {
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
// A source size of 0 fills with zeros. The L2 fetches whole lines: a neighbour needs the rest.
DEVICE void cp_async16(void* dst, const void* src, bool valid = true) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(shared_address(dst)), "l"(src), "r"(valid ? 16 : 0) : "memory");
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// ------------------------------------------------------------------------------------------------ clusters, barriers, TMA

DEVICE unsigned cluster_rank() {
    unsigned rank = 0;
    ASM_SM90("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
DEVICE void cluster_sync() { ASM_SM90("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }

DEVICE void bar_sync(int id, int n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory"); }
DEVICE void bar_arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory"); }

DEVICE void mbar_init(uint64_t* bar, int n) {
    ASM_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(bar)), "r"(n) : "memory");
}
DEVICE void mbar_fence_init() { ASM_SM90("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void mbar_arrive(uint64_t* bar, int bytes = 0) {
    if (bytes)
        ASM_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(bar)), "r"(bytes) : "memory");
    else
        ASM_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(bar)) : "memory");
}
DEVICE void mbar_arrive_at(uint64_t* bar, unsigned rank) {
    ASM_SM90("{\n"
             ".reg .b32 there;\n"
             "mapa.shared::cluster.u32 there, %0, %1;\n"
             "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
             "}" :: "r"(shared_address(bar)), "r"(rank) : "memory");
}
DEVICE void mbar_wait(uint64_t* bar, unsigned parity) {
    ASM_SM90("{\n"
             ".reg .pred ended;\n"
             "retry:\n"
             "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
             "@!ended bra retry;\n"
             "}" :: "r"(shared_address(bar)), "r"(parity) : "memory");
}

DEVICE void stmatrix_x4(void* row, const unsigned (&r)[4]) {
    ASM_SM90("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
             :: "r"(shared_address(row)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
// Ordinary writes to shared memory become visible to TMA and wgmma.
DEVICE void async_fence() { ASM_SM90("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void tma_load(void* dst, const TensorMap* map, uint64_t* bar, int x, int y) {
    ASM_SM90("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
             :: "r"(shared_address(dst)), "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y) : "memory");
}
DEVICE void tma_load(void* dst, const TensorMap* map, uint64_t* bar, int x, int y, int z) {
    ASM_SM90("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
             :: "r"(shared_address(dst)), "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z) : "memory");
}
DEVICE void tma_load_multicast(void* dst, const TensorMap* map, uint64_t* bar, int x, int y, unsigned blocks) {
    ASM_SM90A("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
              :: "r"(shared_address(dst)), "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "h"(uint16_t(blocks)) : "memory");
}
DEVICE void tma_prefetch(const TensorMap* map) { ASM_SM90("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }
DEVICE void tma_store(const TensorMap* map, const void* src, int x, int y) {
    ASM_SM90("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
             :: "l"(map), "r"(shared_address(src)), "r"(x), "r"(y) : "memory");
}
DEVICE void tma_store_commit() { ASM_SM90("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> DEVICE void tma_store_wait() { ASM_SM90("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory"); }

// ------------------------------------------------------------------------------------------------ wgmma

// Addresses and offsets count 16 bytes in fields of 14 bits; bits 62-63 = 1: swizzle of 128 bytes.
DEVICE uint64_t wgmma_desc(const void* tile, int lbo, int sbo) {
    const uint64_t start = (shared_address(tile) & 0x3ffffu) >> 4;
    return start | uint64_t(lbo >> 4) << 16 | uint64_t(sbo >> 4) << 32 | uint64_t(1) << 62;
}

// The accumulators are operands 0 .. N/2-1 of the assembly; A and B, the flag and the majors follow.
#define REGISTERS_0_31 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define REGISTERS_32_63 \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define REGISTERS_64_79 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define REGISTERS_80_127 \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define BIND8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define BIND16(i) BIND8(i), BIND8(i + 8)
#define BIND32(i) BIND16(i), BIND16(i + 16)
#define WGMMA(n, registers, a, b, flag, ta, tb) \
    "{\n.reg .pred add;\nsetp.ne.b32 add, %" #flag ", 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" registers "}, %" #a ", %" #b ", add, 1, 1, %" #ta ", %" #tb ";\n}"
#define WGMMA_INPUTS "l"(a), "l"(b), "r"(int(accumulate)), "n"(int(TA)), "n"(int(TB))
#define WGMMA_REGISTERS(n, registers, a0, a1, a2, a3, b, flag, tb) \
    "{\n.reg .pred add;\nsetp.ne.b32 add, %" #flag ", 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" registers "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b ", add, 1, 1, %" #tb ";\n}"
#define WGMMA_REGISTERS_INPUTS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)), "n"(int(TB))

template <int N, bool TA, bool TB> DEVICE void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate) {
    static_assert(N == 8 || N == 64 || N == 128 || N == 160 || N == 256);
    if constexpr (N == 8)
        ASM_SM90A(WGMMA(8, "%0,%1,%2,%3", 4, 5, 6, 7, 8) : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : WGMMA_INPUTS);
    else if constexpr (N == 64)
        ASM_SM90A(WGMMA(64, REGISTERS_0_31, 32, 33, 34, 35, 36) : BIND32(0) : WGMMA_INPUTS);
    else if constexpr (N == 128)
        ASM_SM90A(WGMMA(128, REGISTERS_0_31 "," REGISTERS_32_63, 64, 65, 66, 67, 68) : BIND32(0), BIND32(32) : WGMMA_INPUTS);
    else if constexpr (N == 160)
        ASM_SM90A(WGMMA(160, REGISTERS_0_31 "," REGISTERS_32_63 "," REGISTERS_64_79, 80, 81, 82, 83, 84)
                  : BIND32(0), BIND32(32), BIND16(64) : WGMMA_INPUTS);
    else
        ASM_SM90A(WGMMA(256, REGISTERS_0_31 "," REGISTERS_32_63 "," REGISTERS_64_79 "," REGISTERS_80_127, 128, 129, 130, 131, 132)
                  : BIND32(0), BIND32(32), BIND32(64), BIND32(96) : WGMMA_INPUTS);
}
template <int N, bool TB> DEVICE void wgmma(float (&d)[N / 2], const unsigned (&a)[4], uint64_t b, bool accumulate) {
    static_assert(N == 64 || N == 128);
    if constexpr (N == 64)
        ASM_SM90A(WGMMA_REGISTERS(64, REGISTERS_0_31, 32, 33, 34, 35, 36, 37, 38) : BIND32(0) : WGMMA_REGISTERS_INPUTS);
    else
        ASM_SM90A(WGMMA_REGISTERS(128, REGISTERS_0_31 "," REGISTERS_32_63, 64, 65, 66, 67, 68, 69, 70) : BIND32(0), BIND32(32) : WGMMA_REGISTERS_INPUTS);
}
#undef REGISTERS_0_31
#undef REGISTERS_32_63
#undef REGISTERS_64_79
#undef REGISTERS_80_127
#undef BIND8
#undef BIND16
#undef BIND32
#undef WGMMA
#undef WGMMA_INPUTS
#undef WGMMA_REGISTERS
#undef WGMMA_REGISTERS_INPUTS

DEVICE void wgmma_fence() { ASM_SM90A("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { ASM_SM90A("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define HOLD8(type, i) asm volatile("" : type(d[i]), type(d[i + 1]), type(d[i + 2]), type(d[i + 3]), \
                                         type(d[i + 4]), type(d[i + 5]), type(d[i + 6]), type(d[i + 7]))
template <size_t R> DEVICE void wgmma_hold(float (&d)[R]) { UNROLL for (size_t i = 0; i < R; i += 8) HOLD8("+f", i); }
template <size_t R> DEVICE void wgmma_hold(unsigned (&d)[R]) { UNROLL for (size_t i = 0; i < R; i += 8) HOLD8("+r", i); }
#undef HOLD8
template <int N, class... D> DEVICE void wgmma_wait(D&... d) {
    ASM_SM90A("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
    (wgmma_hold(d), ...);
}

template <int R> DEVICE void registers_up() { ASM_SM90A("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(R)); }
template <int R> DEVICE void registers_down() { ASM_SM90A("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(R)); }

}  // namespace BACKEND

#undef ASM_SM90
#undef ASM_SM90A
#undef ASM_DEPENDENCY
