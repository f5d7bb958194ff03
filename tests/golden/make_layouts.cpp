// make_layouts.cpp -- writes tests/golden/layouts.txt: where CUTLASS (its CuTe) says that the elements of tensor core
// operands and results lie. Each line has a whole table. The file is committed; tests/cuda/test_gpu.cu reads it.
//
//   layout NAME SHAPE0:STRIDE0 SHAPE1:STRIDE1 SWIZZLE HASH
//       The entry (i, j) is a number. i is written in mixed radix with the digits' sizes SHAPE0, the smallest first,
//       and each digit is multiplied by its STRIDE0; so is j; the products are added. SWIZZLE is CuTe's B,M,S: the B
//       bits from bit M + S on are xor-ed into those from bit M on. HASH is FNV-1a of all entries as CuTe has them.
//           wgmma.* mma.*  (thread, element of its registers) -> row + rows * column, of A (m, k), B (n, k), C (m, n)
//           ldmatrix.*     (lane, element) -> element of 32 rows of 8, as a lane gives and as it gets them
//           k.* mn.*       (mn, k) -> element of a tile in shared memory, K-major and MN-major, 128-byte swizzle
//           row.*          (row, column) -> element of a tile of such rows, whose chunks of 8 are xor-ed with the row
//   descriptors NAME ROWS DESCRIPTOR...
//       wgmma's descriptors of ROWS x 16 pieces of the tile NAME at address 0: of the first ROWS rows for k = 0, 16,
//       32, ..., then of the next. For K-major tiles the leading offset (bits 16-29) means nothing.
//
//     git clone --depth 1 https://github.com/NVIDIA/cutlass
//     g++ -std=c++17 -I cutlass/include -I CUDA/include -I CUDA/include/cccl tests/golden/make_layouts.cpp -o make
//     ./make tests/golden/layouts.txt
// CUDA is the toolkit's folder (13.0). CuTe says on standard output that a host's pointer has no address in shared
// memory, and takes 0 for it, which is what is wanted.
#include <cstdint>
#include <cstdio>
#include <string>
#include <cute/arch/mma_sm90_gmma.hpp>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/version.h>

using namespace cute;
namespace GMMA = SM90::GMMA;
using T = cute::bfloat16_t;
static FILE* out;

// SHAPE:STRIDE of one mode.
template <class L> std::string text(const L& mode) {
    std::string sizes, steps;
    const auto add = [](std::string& list, int n) { list += (list.empty() ? "" : ",") + std::to_string(n); };
    for_each(flatten_to_tuple(shape(mode)), [&](auto n) { add(sizes, int(n)); });
    for_each(flatten_to_tuple(stride(mode)), [&](auto n) { add(steps, int(n)); });
    return sizes + ":" + steps;
}
template <class All, class Plain>
void write(const std::string& name, const All& all, const Plain& plain, const char* swizzle) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < size<0>(all); i++)
        for (int j = 0; j < size<1>(all); j++)
            for (int byte = 0; byte < 4; byte++)
                hash = (hash ^ (uint32_t(all(i, j)) >> 8 * byte & 255u)) * 0x100000001b3u;
    std::fprintf(out, "layout %s %s %s %s %016llx\n", name.c_str(), text(get<0>(plain)).c_str(),
                 text(get<1>(plain)).c_str(), swizzle, static_cast<unsigned long long>(hash));
}
template <class L> void write(const std::string& name, const L& layout) { write(name, layout, layout, "0,0,0"); }
template <int B, int M, int S, class O, class L>
void write(const std::string& name, const ComposedLayout<Swizzle<B, M, S>, O, L>& layout) {
    const std::string bits = std::to_string(B) + "," + std::to_string(M) + "," + std::to_string(S);
    write(name, layout, layout.layout_b(), bits.c_str());
}

// The descriptors of ROWS x 16 pieces of a tile, as a tiled product of CuTe would step through them.
template <GMMA::Major MAJOR, int ROWS, class L> void write_descriptors(const std::string& name, const L& layout) {
    const auto tile = make_tensor(make_smem_ptr(static_cast<T*>(nullptr)), layout);
    const auto all = make_tensor<GMMA::smem_desc<MAJOR>>(tiled_divide(tile, Shape<Int<ROWS>, _16>{}));
    std::fprintf(out, "descriptors %s %d", name.c_str(), ROWS);
    for (int block = 0; block < size<1>(all); block++)
        for (int k = 0; k < size<2>(all); k++)
            std::fprintf(out, " %016llx", static_cast<unsigned long long>(uint64_t(all(0, block, k))));
    std::fprintf(out, "\n");
}
// ROWS...: pieces to describe
template <int MN, int K, int... ROWS> void k_major() {
    const std::string name = "k." + std::to_string(MN) + "x" + std::to_string(K);
    const auto layout = tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<MN>, Int<K>>{});
    write(name, as_position_independent_swizzle_layout(layout));
    (write_descriptors<GMMA::Major::K, ROWS>(name, layout), ...);
}
template <int MN, int K, int... ROWS> void mn_major() {
    const std::string name = "mn." + std::to_string(MN) + "x" + std::to_string(K);
    const auto layout = tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{}, Shape<Int<MN>, Int<K>>{}, Step<_2, _1>{});
    write(name, as_position_independent_swizzle_layout(layout));
    (write_descriptors<GMMA::Major::MN, ROWS>(name, layout), ...);
}
template <int N> void accumulator() { write("wgmma.c." + std::to_string(N), GMMA::CLayout_64xN<N>{}); }
template <class Swizzle, int COLUMNS> void rows() {
    const auto plain = Layout<Shape<_16, Int<COLUMNS>>, Stride<Int<COLUMNS>, _1>>{};
    write("row." + std::to_string(COLUMNS), composition(Swizzle{}, plain));
}

int main(int argc, char** argv) {
    out = argc == 2 ? std::fopen(argv[1], "w") : nullptr;
    if (!out) return std::fprintf(stderr, "usage: make_layouts FILE\n"), 2;
    std::fprintf(out, "# make_layouts.cpp, CUTLASS %d.%d.%d\n", CUTLASS_MAJOR, CUTLASS_MINOR, CUTLASS_PATCH);
    accumulator<8>(), accumulator<64>(), accumulator<128>(), accumulator<160>(), accumulator<256>();
    write("wgmma.a", GMMA::ALayout_64x16{});
    using Mma = MMA_Traits<SM80_16x8x16_F32BF16BF16F32_TN>;
    write("mma.a", Mma::ALayout{}), write("mma.b", Mma::BLayout{}), write("mma.c", Mma::CLayout{});
    using Plain = Copy_Traits<SM75_U32x4_LDSM_N>;
    using Transposed = Copy_Traits<SM75_U16x8_LDSM_T>;
    write("ldmatrix.source", recast_layout<uint1_t, uint16_t>(Plain::SrcLayout{}));
    write("ldmatrix.plain", recast_layout<uint1_t, uint16_t>(Plain::DstLayout{}));
    write("ldmatrix.transposed", recast_layout<uint1_t, uint16_t>(Transposed::DstLayout{}));

    k_major<8, 64, 8>();                // the ones of matmul_sm90.cu
    k_major<64, 64, 64>();
    k_major<128, 64, 64, 128>();
    k_major<160, 64, 160>();
    k_major<256, 64, 256>();
    k_major<64, 128, 64>();             // attention, heads of 128
    k_major<128, 128, 128>();
    mn_major<64, 64, 64>();
    mn_major<128, 64, 64, 128>();
    mn_major<192, 64, 192>();           // of which a product reads 160
    mn_major<256, 64, 256>();
    mn_major<128, 128, 128>();
    rows<Swizzle<2, 3, 3>, 32>();
    rows<Swizzle<3, 3, 3>, 64>();
    rows<Swizzle<3, 3, 4>, 128>();
    rows<Swizzle<3, 3, 5>, 256>();
    std::fclose(out);
}
