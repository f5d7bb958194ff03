// test_gpu.cu -- the software GPU's instructions against CUTLASS's layouts and plain loops over integers.
//
// tests/golden/make_layouts.cpp wrote the tables of the layouts, and says what they hold.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include "kernels/cuda/hopper.cuh"
#include "tests/test.h"

using namespace BACKEND;

namespace {

// ------------------------ CUTLASS's tables

struct Table {
    int rows = 0, columns = 0;
    std::vector<int> entries;
    int operator()(int i, int j) const { return entries[size_t(i * columns + j)]; }
};
uint64_t hash_of(const Table& t) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const int x : t.entries)
        for (int byte = 0; byte < 4; byte++) hash = (hash ^ (uint32_t(x) >> 8 * byte & 255u)) * 0x100000001b3u;
    return hash;
}
std::vector<int> numbers(const std::string& text) {
    std::istringstream in(text);
    std::vector<int> all;
    for (std::string word; std::getline(in, word, ',');) all.push_back(std::stoi(word));
    return all;
}
// One side of a table, "4,8:128,1": returns what each index adds to an entry.
std::vector<int> side(const std::string& text) {
    const size_t colon = text.find(':');
    const std::vector<int> sizes = numbers(text.substr(0, colon)), strides = numbers(text.substr(colon + 1));
    std::vector<int> sums = {0};
    for (size_t digit = 0; digit < sizes.size(); digit++) {
        const size_t n = sums.size();
        for (int x = 1; x < sizes[digit]; x++)
            for (size_t i = 0; i < n; i++) sums.push_back(sums[i] + x * strides[digit]);
    }
    return sums;
}
struct Facts {
    std::map<std::string, Table> layouts;
    std::map<std::string, std::vector<uint64_t>> descriptors;  // "k.128x64 64"
};
// A line that does not give the table it was made from is an error.
Facts parse(const std::string& text) {
    Facts facts;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        std::string kind, name, first, second, swizzle, word;
        words >> kind >> name >> first;
        if (kind == "layout") {
            words >> second >> swizzle >> word;
            const std::vector<int> rows = side(first), columns = side(second), bits = numbers(swizzle);
            Table& t = facts.layouts[name] = {int(rows.size()), int(columns.size()), {}};
            for (const int row : rows)
                for (const int column : columns) {
                    const int x = row + column;
                    t.entries.push_back(x ^ (x >> bits[2] & ((1 << bits[0]) - 1) << bits[1]));
                }
            EXPECT(hash_of(t) == std::stoull(word, nullptr, 16), "%s: not the table that CUTLASS gave", name.c_str());
        }
        if (kind == "descriptors")
            while (words >> word) facts.descriptors[name + " " + first].push_back(std::stoull(word, nullptr, 16));
    }
    return facts;
}
std::string text_of_facts() {
    std::ifstream file("tests/golden/layouts.txt");
    if (!file) FAIL("tests/golden/layouts.txt: not found; run the tests in the repository's root");
    return {std::istreambuf_iterator<char>(file), {}};
}
const Facts& facts() {
    static const Facts all = parse(text_of_facts());
    return all;
}
const Table& layout(const std::string& name) { return facts().layouts.at(name); }

TEST(tables_are_whole) {
    EXPECT(facts().layouts.size() == 28 && facts().descriptors.size() == 14, "%zu layouts, descriptors of %zu tiles",
           facts().layouts.size(), facts().descriptors.size());
    // Negative control: one stride changed, one size, one swizzle.
    for (const auto& [from, to] : {std::pair{"4,8:32,1", "4,8:32,2"}, {" 2,2:8,64", " 2,2:8,32"}, {"3,3,4", "3,3,3"}}) {
        std::string text = text_of_facts();
        text.replace(text.find(from), std::strlen(from), to);
        bool noticed = false;
        try {
            parse(text);
        } catch (const TestFailure&) { noticed = true; }
        EXPECT(noticed, "'%s' instead of '%s' is not noticed", to, from);
    }
}

// ------------------------ running instructions

void check(cudaError_t error) {
    if (error != cudaSuccess) FAIL("%s", cudaGetErrorString(error));
}
// Device memory that begins with a copy of the host's numbers.
template <class T> struct Memory {
    T* p = nullptr;
    size_t n;
    explicit Memory(const std::vector<T>& x) : n(x.size()) {
        check(cudaMalloc(reinterpret_cast<void**>(&p), n * sizeof(T)));
        check(cudaMemcpy(p, x.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    explicit Memory(size_t n) : Memory(std::vector<T>(n)) {}
    Memory(const Memory&) = delete;
    ~Memory() { cudaFree(p); }
    template <class U> U* as() const { return reinterpret_cast<U*>(p); }
    std::vector<T> host() const {
        std::vector<T> x(n);
        check(cudaDeviceSynchronize());
        check(cudaMemcpy(x.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return x;
    }
};
// What a kernel of one block makes of `in`, a thread of each element.
template <class Out, class In> std::vector<Out> results(void (*kernel)(Out*, const In*), const std::vector<In>& in) {
    const Memory<In> from(in);
    const Memory<Out> to(in.size());
    kernel<<<1, unsigned(in.size())>>>(to.p, from.p);
    check(cudaGetLastError());
    return to.host();
}
// An element of an operand: -4 .. 4, which bf16 has exactly, as all sums of 16 products.
int digit(int i, int j) {
    unsigned h = unsigned(i) * 0x9e3779b1u ^ unsigned(j) * 0x85ebca77u;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    return int(h >> 16) % 9 - 4;
}
bf16 exact(int x) { return {uint16_t(std::bit_cast<uint32_t>(float(x)) >> 16)}; }
using Bits = std::vector<bf16>;

__global__ void multiply(float* d, const uint4* a, const uint2* b) {
    const uint4 x = a[threadIdx.x];
    const uint2 y = b[threadIdx.x];
    float sums[4] = {};
    mma_m16n8k16(sums, {x.x, x.y, x.z, x.w}, {y.x, y.y});
    for (int i = 0; i < 4; i++) d[threadIdx.x * 4 + i] = sums[i];
}
// Whether mma is right with an operand of which one element has become `harm` larger.
bool mma_is_right(int harm) {
    Bits a(32 * 8), b(32 * 4);
    const Table &in_a = layout("mma.a"), &in_b = layout("mma.b"), &in_c = layout("mma.c");
    for (size_t i = 0; i < a.size(); i++) a[i] = exact(digit(in_a.entries[i] % 16, in_a.entries[i] / 16));
    for (size_t i = 0; i < b.size(); i++) b[i] = exact(digit(in_b.entries[i] / 8, in_b.entries[i] % 8));
    b[37] = exact(digit(in_b.entries[37] / 8, in_b.entries[37] % 8) + harm);
    const Memory<bf16> A(a), B(b);
    const Memory<float> D(128);
    multiply<<<1, 32>>>(D.p, A.as<uint4>(), B.as<uint2>());
    const std::vector<float> d = D.host();
    bool right = true;
    for (size_t i = 0; i < d.size(); i++) {
        int want = 0;
        for (int k = 0; k < 16; k++) want += digit(in_c.entries[i] % 16, k) * digit(k, in_c.entries[i] / 16);
        right &= d[i] == float(want);
    }
    return right;
}
TEST(mma_multiplies_fragments) {
    EXPECT(mma_is_right(0), "not the integers' product");
    EXPECT(!mma_is_right(1), "another element is not noticed");
}

template <bool TRANSPOSED> __global__ void load_matrices(uint4* out, const uint4* rows) {
    __shared__ uint4 s[32];
    s[threadIdx.x] = rows[threadIdx.x];
    __syncwarp();
    unsigned r[4];
    ldmatrix_x4<TRANSPOSED>(r, s + threadIdx.x);
    out[threadIdx.x] = {r[0], r[1], r[2], r[3]};
}
TEST(ldmatrix_loads_fragments) {
    Bits memory(256);
    for (int t = 0; t < 32; t++)        // lane t points to 8 elements, from there on
        for (int i = 0; i < 8; i++) memory[size_t(t * 8 + i)].bits = uint16_t(layout("ldmatrix.source")(t, 0) + i);
    const Memory<bf16> in(memory), plain(256), transposed(256);
    load_matrices<false><<<1, 32>>>(plain.as<uint4>(), in.as<uint4>());
    load_matrices<true><<<1, 32>>>(transposed.as<uint4>(), in.as<uint4>());
    const Bits a = plain.host(), b = transposed.host();
    int others = 0;
    for (int t = 0; t < 32; t++)
        for (int i = 0; i < 8; i++) {
            const int x = a[size_t(t * 8 + i)].bits, y = b[size_t(t * 8 + i)].bits;
            EXPECT(x == layout("ldmatrix.plain")(t, i), "lane %d, element %d: got %d", t, i, x);
            EXPECT(y == layout("ldmatrix.transposed")(t, i), "lane %d, element %d: got %d, transposed", t, i, y);
            others += x != y;
        }
    EXPECT(others > 200, "the two tables differ in %d elements", others);
}

// d = a b by a warpgroup. The tiles of both are in memory; or of a its fragments, at uint4 number `a`.
template <int N, bool TA, bool TB, bool REGISTERS>
__global__ void multiply_tiles(float* d, const uint4* memory, int pieces, uint64_t a, uint64_t b) {
    extern __shared__ __align__(1024) unsigned char tiles[];
    for (int i = int(threadIdx.x); i < pieces; i += 128) reinterpret_cast<uint4*>(tiles)[i] = memory[i];
    async_fence();
    __syncthreads();
    const unsigned begin = shared_address(tiles) / 16;
    float sums[N / 2] = {};
    wgmma_hold(sums);
    if constexpr (REGISTERS) {
        const uint4 v = memory[a + threadIdx.x];
        unsigned fragment[4] = {v.x, v.y, v.z, v.w};
        wgmma_hold(fragment);
        wgmma_fence();
        wgmma<N, TB>(sums, fragment, b + begin, false);
        wgmma_commit();
        wgmma_wait<0>(sums, fragment);
    } else {
        wgmma_fence();
        wgmma<N, TA, TB>(sums, a + begin, b + begin, false);
        wgmma_commit();
        wgmma_wait<0>(sums);
    }
    for (int i = 0; i < N / 2; i++) d[threadIdx.x * (N / 2) + i] = sums[i];
}
using Multiply = void(float*, const uint4*, int, uint64_t, uint64_t);
struct Product {
    const char *first, *second;     // tiles; "wgmma.a": registers
    int rows, n;                    // rows that the second's descriptors are for, and columns of the product
    Multiply* kernel;
};
const Product kProducts[] = {
    {"k.64x64", "k.8x64", 8, 8, multiply_tiles<8, false, false, false>},
    {"k.128x64", "k.64x64", 64, 64, multiply_tiles<64, false, false, false>},
    {"k.64x128", "k.128x64", 64, 64, multiply_tiles<64, false, false, false>},
    {"k.64x64", "k.64x128", 64, 64, multiply_tiles<64, false, false, false>},
    {"k.64x64", "k.128x128", 128, 128, multiply_tiles<128, false, false, false>},
    {"k.64x64", "k.160x64", 160, 160, multiply_tiles<160, false, false, false>},
    {"k.64x64", "k.256x64", 256, 256, multiply_tiles<256, false, false, false>},
    {"mn.128x64", "mn.64x64", 64, 64, multiply_tiles<64, true, true, false>},
    {"k.64x64", "mn.128x64", 128, 128, multiply_tiles<128, false, true, false>},
    {"k.64x64", "mn.128x128", 128, 128, multiply_tiles<128, false, true, false>},
    {"k.64x64", "mn.192x64", 192, 160, multiply_tiles<160, false, true, false>},
    {"mn.64x64", "mn.256x64", 256, 256, multiply_tiles<256, true, true, false>},
    {"wgmma.a", "k.64x64", 64, 64, multiply_tiles<64, false, false, true>},
    {"wgmma.a", "mn.128x64", 128, 128, multiply_tiles<128, false, true, true>},
};
// Whether step number `step` is right with a second operand of which one element has become `harm` larger.
bool product_is_right(const Product& p, int step, int harm) {
    const bool registers = std::string(p.first) == "wgmma.a";
    const Table &a = layout(p.first), &b = layout(p.second), &c = layout(format("wgmma.c.%d", p.n));
    const int begin = (int(a.entries.size()) + 511) / 512 * 512;
    Bits memory(size_t(begin) + b.entries.size());
    const auto fill = [&](int base, const Table& t) {
        for (int i = 0; i < t.rows; i++)
            for (int j = 0; j < t.columns; j++) memory[size_t(base + t(i, j))] = exact(digit(i, j));
    };
    if (registers)
        for (size_t i = 0; i < a.entries.size(); i++) memory[i] = exact(digit(a.entries[i] % 64, a.entries[i] / 64));
    else fill(0, a);
    fill(begin, b);
    struct At { int row, k; uint64_t descriptor; };
    const auto at = [&](const Table& t, const char* name, int rows) {
        const auto& list = facts().descriptors.at(name + format(" %d", rows));
        const int i = step % int(list.size()), steps = t.columns / 16;
        return At{i / steps * rows, i % steps * 16, list[size_t(i)]};
    };
    const At first = registers ? At{0, 0, 0} : at(a, p.first, 64), second = at(b, p.second, p.rows);
    memory[size_t(begin + b(second.row + 5, second.k + 3))] = exact(digit(second.row + 5, second.k + 3) + harm);
    const Memory<bf16> in(memory);
    const Memory<float> out(size_t(64 * p.n));
    p.kernel<<<1, 128, memory.size() * 2>>>(out.p, in.as<uint4>(), int(memory.size() / 8), first.descriptor,
                                            second.descriptor + uint64_t(begin / 8));
    const std::vector<float> d = out.host();
    bool right = true;
    for (size_t i = 0; i < d.size(); i++) {
        const int m = first.row + c.entries[i] % 64, n = second.row + c.entries[i] / 64;
        int want = 0;
        for (int k = 0; k < 16; k++) want += digit(m, first.k + k) * digit(n, second.k + k);
        right &= d[i] == float(want);
    }
    return right;
}
TEST(wgmma_multiplies_tiles) {
    if (!hopper()) SKIP("neither wgmma nor TMA on this GPU");
    for (const Product& p : kProducts)
        for (int step = 0; step < 8; step++) {
            EXPECT(product_is_right(p, step, 0), "%s x %s, step %d", p.first, p.second, step);
            EXPECT(step || !product_is_right(p, step, 1), "%s: another element is not noticed", p.second);
        }
}

constexpr int kBox = 64;
template <bool OF_SEVERAL>
__global__ void load_box(uint4* out, const __grid_constant__ CUtensorMap map, int x, int y, int z) {
    extern __shared__ __align__(1024) unsigned char box[];
    __shared__ uint64_t bar[1];
    if (threadIdx.x == 0) {
        mbar_init(bar, 1);
        mbar_fence_init();
        mbar_arrive(bar, kBox * kBox * 2);
        if (OF_SEVERAL) tma_load(box, &map, bar, x, y, z);
        else tma_load(box, &map, bar, x, y);
    }
    __syncthreads();
    mbar_wait(bar, 0);
    for (int i = int(threadIdx.x); i < kBox * kBox / 8; i += 32) out[i] = reinterpret_cast<uint4*>(box)[i];
}
// Boxes inside, over each edge and in each of several matrices lie as wgmma wants them, with zeros outside.
TEST(tma_loads_boxes) {
    if (!hopper()) SKIP("neither wgmma nor TMA on this GPU");
    constexpr int kRows = 100, kColumns = 72, kCount = 3;
    Bits numbers(kCount * kRows * kColumns);
    for (size_t i = 0; i < numbers.size(); i++) numbers[i].bits = uint16_t(i + 1);
    const Memory<bf16> from(numbers), to(kBox * kBox);
    const Table& where = layout("k.64x64");
    struct At { int x, y, z; };         // z: -9 for a matrix alone
    for (const At at : {At{0, 0, -9}, {8, 36, -9}, {40, 70, -9}, {-8, -3, -9}, {0, 60, 0}, {0, 60, 1}, {16, -5, 2},
                        {0, 0, 3}, {0, 0, -1}}) {
        const bool alone = at.z == -9;
        const CUtensorMap map = tensor_map(from.p, kColumns, kRows, kColumns, kBox, kBox, alone ? 0 : kCount,
                                         kRows * kColumns);
        (alone ? load_box<false> : load_box<true>)<<<1, 32, kBox * kBox * 2>>>(to.as<uint4>(), map, at.x, at.y, at.z);
        const Bits box = to.host();
        const auto wrong = [&](int more) {
            int n = 0;
            for (int r = 0; r < kBox; r++)
                for (int c = 0; c < kBox; c++) {
                    const int x = at.x + c, y = at.y + r + more, z = alone ? 0 : at.z;
                    const bool inside = x >= 0 && x < kColumns && y >= 0 && y < kRows && z >= 0 && z < kCount;
                    n += box[size_t(where(r, c))].bits != (inside ? (z * kRows + y) * kColumns + x + 1 : 0);
                }
            return n;
        };
        EXPECT(wrong(0) == 0, "box at (%d, %d, %d): %d wrong elements", at.x, at.y, at.z, wrong(0));
        EXPECT(wrong(1) > 0 || at.z == 3 || at.z == -1, "a box one row off is not noticed");
    }
}

// ------------------------ shared memory in every form, what warps tell each other, and atomics

__shared__ float of_both[32];
__shared__ double also_of_both;
template <int MORE> __global__ void use_shared_memory(float* out) {
    __shared__ int own;
    of_both[threadIdx.x] = float(threadIdx.x);
    if (threadIdx.x == 3) own = MORE, also_of_both = 0.5;
    __syncthreads();
    out[threadIdx.x] = of_both[threadIdx.x ^ 1] + float(own) + float(also_of_both);
}
TEST(shared_variables_have_places) {
    const Memory<float> out(32);
    for (const int more : {1, 2}) {
        (more == 1 ? use_shared_memory<1> : use_shared_memory<2>)<<<1, 32>>>(out.p);
        const std::vector<float> got = out.host();
        for (int t = 0; t < 32; t++)
            EXPECT(got[size_t(t)] == float(t ^ 1) + float(more) + 0.5f, "thread %d: got %g", t, got[size_t(t)]);
    }
}

__global__ void exchange(int* out) {
    const int t = int(threadIdx.x);
    int* const o = out + t;
    o[0] = __shfl_xor_sync(~0u, t, 5);
    o[64] = __shfl_down_sync(~0u, t, 3);
    o[128] = __shfl_up_sync(~0u, t, 3);
    o[192] = __shfl_sync(~0u, t, 7);
    o[256] = __shfl_xor_sync(~0u, t, 9, 8);     // 9 leaves the group of 8: down it may, up there is the own value
    o[320] = __shfl_down_sync(~0u, t, 3, 8);
    o[384] = __shfl_up_sync(~0u, t, 3, 8);
    o[448] = __shfl_sync(~0u, t, 11, 8);
    o[512] = int(__ballot_sync(~0u, t % 3 == 0));
}
TEST(shuffles_and_votes) {
    const Memory<int> out(9 * 64);
    exchange<<<1, 64>>>(out.p);
    const std::vector<int> got = out.host();
    for (int t = 0; t < 64; t++) {
        const int w = t & ~31, l = t & 31, g = t & ~7, m = t & 7;
        unsigned third = 0;
        for (int i = 0; i < 32; i++) third |= unsigned((w + i) % 3 == 0) << i;
        const int want[] = {t ^ 5, l < 29 ? t + 3 : t, l >= 3 ? t - 3 : t, w + 7, (t ^ 9) < g + 8 ? t ^ 9 : t,
                            m < 5 ? t + 3 : t, m >= 3 ? t - 3 : t, g + 3, int(third)};
        for (int k = 0; k < 9; k++)
            EXPECT(got[size_t(k * 64 + t)] == want[k], "case %d, thread %d: got %d", k, t, got[size_t(k * 64 + t)]);
    }
}

// Instructions that no kernel of the project has, by the names of the CUDA guide.
using Results = std::array<unsigned, 20>;
__global__ void compute(Results* out, const uint2* in) {
    const unsigned a = in[threadIdx.x].x, b = in[threadIdx.x].y, at = b % 40, length = a % 40;
    const int s = int(a), t = int(b);
    const unsigned long long wide = uint64_t(a) << 32 | b;
    const float x = float(s) / 65536, y = float(t) / 65536;
    const auto bits = [](float f) { return __float_as_uint(f); };
    unsigned field;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(field) : "r"(a), "r"(at), "r"(length));
    out[threadIdx.x] = {
        unsigned(__popc(a)), unsigned(__clz(s)), __brev(a), __umulhi(a, b), unsigned(__mulhi(s, t)),
        unsigned(__umul64hi(wide, wide) >> 32), unsigned(__mul64hi(wide, wide) >> 32), __funnelshift_l(a, b, t),
        __funnelshift_r(a, b, t), __byte_perm(a, b, 0x3715), unsigned(abs(s)), unsigned(min(s, t)), max(a, b),
        bits(fminf(x, y)), bits(fmaxf(x, y)), unsigned(short(a) * short(b)), unsigned(static_cast<signed char>(a)),
        unsigned(s / (t | 1)), unsigned(s % (t | 1)), field};
}
Results expected(unsigned a, unsigned b) {
    const int s = int(a), t = int(b);
    const uint64_t wide = uint64_t(a) << 32 | b, both = uint64_t(b) << 32 | a;
    const auto product = static_cast<unsigned __int128>(wide) * wide;
    const auto signed_product = static_cast<__int128>(int64_t(wide)) * int64_t(wide);
    const float x = float(s) / 65536, y = float(t) / 65536;
    const auto bits = [](float f) { return std::bit_cast<unsigned>(f); };
    unsigned reversed = 0, field = 0;
    for (unsigned i = 0; i < 32; i++) reversed |= (a >> i & 1) << (31 - i);
    for (unsigned i = 0; i < a % 40 && b % 40 + i < 32; i++) field |= (a >> (b % 40 + i) & 1) << i;
    return {unsigned(std::popcount(a)), unsigned(std::countl_zero(a)), reversed, unsigned(uint64_t(a) * b >> 32),
            unsigned(int64_t(s) * t >> 32), unsigned(product >> 96), unsigned(signed_product >> 96),
            unsigned(both << b % 32 >> 32), unsigned(both >> b % 32),
            (b >> 8 & 255) | (a >> 8 & 255) << 8 | b >> 24 << 16 | a >> 24 << 24, s < 0 ? 0 - a : a,
            unsigned(s < t ? s : t), a > b ? a : b, bits(x < y ? x : y), bits(x > y ? x : y),
            unsigned(short(a) * short(b)), unsigned(static_cast<signed char>(a)), unsigned(s / (t | 1)),
            unsigned(s % (t | 1)), field};
}
TEST(integers_are_computed) {
    std::vector<uint2> in(256);
    unsigned h = 1;
    for (uint2& two : in) {
        two.x = h = (h ^ h >> 15) * 0x2c1b3c6du + 7;
        two.y = (h = (h ^ h >> 13) * 0x85ebca77u + 3) >> h % 20;
    }
    const std::vector<Results> got = results(compute, in);
    Results differ = {};
    for (size_t i = 0; i < in.size(); i++) {
        const Results want = expected(in[i].x, in[i].y), other = expected(~in[i].x, in[i].y);
        for (size_t j = 0; j < want.size(); j++) {
            EXPECT(got[i][j] == want[j], "result %zu of %x and %x: got %x, want %x", j, in[i].x, in[i].y, got[i][j],
                   want[j]);
            differ[j] += other[j] != want[j];
        }
    }
    for (size_t j = 0; j < differ.size(); j++) EXPECT(differ[j], "result %zu: another number is not noticed", j);
}

__global__ void add_up(unsigned* sum, unsigned* before) {
    __shared__ unsigned s[1];
    if (threadIdx.x == 0) s[0] = 0;
    __syncthreads();
    atomicAdd(s, threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) before[blockIdx.x] = atomicAdd(sum, s[0]);
}
TEST(atomics_are_exact) {
    const Memory<unsigned> sum(1), before(5);
    add_up<<<5, 64>>>(sum.p, before.p);
    EXPECT(sum.host()[0] == 5 * 2016, "got %u", sum.host()[0]);
    std::vector<unsigned> seen = before.host();
    std::sort(seen.begin(), seen.end());
    for (unsigned i = 0; i < 5; i++) EXPECT(seen[i] == i * 2016, "an addition found %u", seen[i]);
}

// Arrays whose index is a variable lie in local memory, and a pointer may be into that or into shared memory.
__global__ void use_local_memory(uint4* out, const unsigned* in) {
    __shared__ unsigned shared[64];
    const unsigned t = threadIdx.x, x = in[t];
    unsigned own[8], counts[4] = {};
    short halves[7];
    uint4 fours[3];
    for (unsigned i = 0; i < 8; i++) own[i] = in[i] + t;
    for (unsigned i = 0; i < 64; i++) counts[in[i] % 4]++;
    for (unsigned i = 0; i < 7; i++) halves[i] = short(in[t ^ i]);
    for (unsigned i = 0; i < 3; i++) fours[i] = {x, x + i, x ^ t, i};
    shared[t] = x;
    *(x % 2 ? shared + t : own + x / 2 % 8) += 3;
    out[t] = {own[x / 2 % 8] + shared[t], counts[x % 4], unsigned(halves[x % 7]), fours[x % 3].y};
}
TEST(local_memory_is_a_threads_own) {
    std::vector<unsigned> in(64), counts(4);
    unsigned h = 1;
    for (unsigned& x : in) x = h = (h ^ h >> 15) * 0x2c1b3c6du + 7;
    for (const unsigned x : in) counts[x % 4]++;
    const std::vector<uint4> got = results(use_local_memory, in);
    for (unsigned t = 0; t < 64; t++) {
        const unsigned x = in[t];
        const uint4 want = {in[x / 2 % 8] + t + x + 3, counts[x % 4], unsigned(short(in[t ^ x % 7])), x + x % 3};
        EXPECT(got[t].x == want.x && got[t].y == want.y && got[t].z == want.z && got[t].w == want.w,
               "thread %u: got %u %u %u %u, want %u %u %u %u", t, got[t].x, got[t].y, got[t].z, got[t].w, want.x,
               want.y, want.z, want.w);
    }
}

// Conversions that no kernel of the trainer has, but a first kernel of one's own may.
struct Converted { int toward_zero, nearest; float whole, below, cut, near; };
__global__ void convert(Converted* out, const float* in) {
    const float x = in[threadIdx.x];
    const short whole = short(threadIdx.x * 1000);
    out[threadIdx.x] = {int(x), __float2int_rn(x), float(whole), floorf(x), truncf(x), rintf(x)};
}
TEST(floats_are_converted) {
    std::vector<float> in = {0, -0.0f, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, 1e-30f, -1e-30f, 16777216, 3e9f, -3e9f,
                             2147483520.0f, INFINITY, -INFINITY, NAN, 0.49999997f, -7.75f, 8388607.5f, 1e30f};
    in.resize(32, 1.25f);                       // a warp
    const std::vector<Converted> got = results(convert, in);
    for (size_t t = 0; t < in.size(); t++) {
        const float x = in[t];
        const auto whole = [](double y) {       // a NaN is 0, and what is too large the largest
            return std::isnan(y) ? 0 : int(std::min(std::max(y, -0x1p31), 0x1p31 - 1));
        };
        const Converted want = {whole(std::trunc(double(x))), whole(std::nearbyint(double(x))),
                                float(short(t * 1000)), std::floor(x), std::trunc(x), std::nearbyint(x)};
        // The floats of a NaN are NaNs of any bits.
        EXPECT(std::memcmp(&got[t], &want, std::isnan(x) ? 2 * sizeof(int) : sizeof want) == 0,
               "%g: got %d %d %g %g %g %g, want %d %d %g %g %g %g", x, got[t].toward_zero, got[t].nearest,
               got[t].whole, got[t].below, got[t].cut, got[t].near, want.toward_zero, want.nearest, want.whole,
               want.below, want.cut, want.near);
    }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
