// test_layouts.cpp -- where the elements of tensor core operands and results lie, against CUTLASS's tables: in the
// emulator's instructions, and in the kernels' own functions, which are included here whole.
//
// tests/golden/make_layouts.cpp wrote the tables, and says what they hold. What an instruction does is found out by
// numbers that name their place: bf16 has the integers up to 256, so large numbers take two runs. Every comparison is
// made a second time with a table of which one entry was changed, and has to fail then.
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include "kernels/cuda/matmul.cu"
#include "kernels/cuda/matmul_sm90.cu"
#include "kernels/cuda/attention_sm90.cu"
#include "tests/test.h"

namespace BACKEND {
namespace {

// ------------------------------------------------------------------------------------------------ CUTLASS's tables

struct Table {
    int rows, columns;
    std::vector<int> entries;
    Table(int rows, int columns) : rows(rows), columns(columns), entries(size_t(rows) * size_t(columns), -1) {}
    int& operator()(int i, int j) { return entries[size_t(i) * size_t(columns) + size_t(j)]; }
    int operator()(int i, int j) const { return entries[size_t(i) * size_t(columns) + size_t(j)]; }
};
template <class F>
Table table_of(int rows, int columns, F f) {
    Table t(rows, columns);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) t(i, j) = f(i, j);
    return t;
}
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
// One side of a table, "4,8:128,1": what index i adds to an entry.
struct Mode {
    std::vector<int> sizes, strides;
    explicit Mode(const std::string& text)
        : sizes(numbers(text.substr(0, text.find(':')))), strides(numbers(text.substr(text.find(':') + 1))) {}
    int count() const {
        int n = 1;
        for (const int size : sizes) n *= size;
        return n;
    }
    int at(int i) const {
        int sum = 0;
        for (size_t digit = 0; digit < sizes.size(); i /= sizes[digit++]) sum += i % sizes[digit] * strides[digit];
        return sum;
    }
};

struct Facts {
    std::map<std::string, Table> layouts;
    std::map<std::string, std::vector<uint64_t>> descriptors;  // "k.128x64 64"
};
// A line that does not give the table it was made from is an error.
Facts parse(std::istream& in) {
    Facts facts;
    for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        std::string kind, name, first, second, swizzle, word;
        words >> kind >> name >> first;
        if (kind == "layout") {
            words >> second >> swizzle >> word;
            const Mode i(first), j(second);
            const std::vector<int> bits = numbers(swizzle);
            const Table t = table_of(i.count(), j.count(), [&](int a, int b) {
                const int x = i.at(a) + j.at(b);
                return x ^ (x >> bits[2] & ((1 << bits[0]) - 1) << bits[1]);
            });
            EXPECT(hash_of(t) == std::stoull(word, nullptr, 16), "%s: not the table that CUTLASS gave", name.c_str());
            facts.layouts.emplace(name, t);
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
    static const Facts all = [] {
        std::istringstream in(text_of_facts());
        return parse(in);
    }();
    return all;
}
const Table& layout(const std::string& name) {
    const auto found = facts().layouts.find(name);
    if (found == facts().layouts.end()) FAIL("tests/golden/layouts.txt: no layout %s", name.c_str());
    return found->second;
}
const std::vector<uint64_t>& descriptors(const std::string& name) {
    const auto found = facts().descriptors.find(name);
    if (found == facts().descriptors.end()) FAIL("tests/golden/layouts.txt: no descriptors %s", name.c_str());
    return found->second;
}

// "" or the first difference. `got` may be of the first rows alone.
std::string difference(const Table& got, const Table& want) {
    if (got.rows > want.rows || got.columns != want.columns)
        return format("%d x %d entries, want %d x %d", got.rows, got.columns, want.rows, want.columns);
    for (int i = 0; i < got.rows; i++)
        for (int j = 0; j < got.columns; j++)
            if (got(i, j) != want(i, j)) return format("(%d, %d): got %d, want %d", i, j, got(i, j), want(i, j));
    return "";
}
void expect_layout(const Table& got, const std::string& name, const char* what) {
    const std::string found = difference(got, layout(name));
    EXPECT(found.empty(), "%s, %s: %s", what, name.c_str(), found.c_str());
    for (size_t i = 0; i < got.entries.size(); i += 97) {
        Table changed = got;
        changed.entries[i] ^= 1;
        EXPECT(!difference(changed, layout(name)).empty(), "entry %zu is not compared", i);
    }
}

// ------------------------------------------------------------------------------------------------ running instructions

template <class F>
__global__ void call_kernel(F f) {
    grid_dependency_sync();
    f();
}
// Runs f in every thread of a block.
template <class F>
void on_block(int threads, size_t bytes, F f) {
    launch(call_kernel<F>, 1, unsigned(threads), bytes, nullptr, f);
    stream_sync(nullptr);
}
int thread() { return int(threadIdx.x); }

using Memory = std::vector<bf16>;
Memory zeros(int n) { return Memory(size_t(n), bf16{0}); }
Memory numbered(int n) {
    Memory m(static_cast<size_t>(n));
    for (int i = 0; i < n; i++) m[size_t(i)].bits = uint16_t(i);
    return m;
}
bf16 exact(int x) {
    const bf16 rounded = to_bf16(float(x));
    CHECK(int(to_float(rounded)) == x, "%d is no bf16", x);
    return rounded;
}
// A tile whose element (i, j) is f(i, j), at `base`.
template <class F>
void fill(Memory* memory, int base, const Table& tile, F f) {
    for (int i = 0; i < tile.rows; i++)
        for (int j = 0; j < tile.columns; j++) (*memory)[size_t(base + tile(i, j))] = exact(f(i, j));
}
// All threads: the block's shared memory is `memory`, visible to every unit.
void to_shared(const Memory& memory) {
    DYNAMIC_SHARED(shared);
    for (size_t i = threadIdx.x; i < memory.size(); i += blockDim.x) as<bf16>(shared + i * 2) = memory[i];
    async_fence();
    __syncthreads();
}
// What follows a tile of n elements begins there, in elements and as a descriptor counts.
constexpr int kAlign = 512;
int behind(const Table& tile) { return div_up(tile.rows * tile.columns, kAlign) * kAlign; }
uint64_t moved(uint64_t descriptor, int elements) { return descriptor + uint64_t(elements * 2 / 16); }

// The registers of wgmma's d = a b, (thread, register): both operands in shared memory, or the first in registers.
template <int N, bool TA, bool TB>
std::vector<float> product(const Memory& memory, uint64_t a, uint64_t b) {
    std::vector<float> out(128 * N / 2);
    on_block(128, memory.size() * 2, [&] {
        to_shared(memory);
        float d[N / 2];
        wgmma_fence();
        wgmma<N, TA, TB>(d, a, b, false);
        wgmma_commit();
        wgmma_wait<0>(d);
        std::memcpy(&out[size_t(thread()) * N / 2], d, sizeof d);
    });
    return out;
}
template <int N, bool TB>
std::vector<float> product(const Memory& registers, const Memory& memory, uint64_t b) {
    std::vector<float> out(128 * N / 2);
    on_block(128, memory.size() * 2, [&] {
        to_shared(memory);
        unsigned a[4];
        std::memcpy(a, &registers[size_t(thread()) * 8], sizeof a);
        float d[N / 2];
        wgmma_fence();
        wgmma<N, TB>(d, a, b, false);
        wgmma_commit();
        wgmma_wait<0>(d);
        std::memcpy(&out[size_t(thread()) * N / 2], d, sizeof d);
    });
    return out;
}
// Element (m, n) of a result in registers.
template <class F>
void each_result(const std::vector<float>& d, const std::string& name, int rows, F f) {
    const Table& where = layout(name);
    for (int t = 0; t < where.rows; t++)
        for (int v = 0; v < where.columns; v++)
            f(where(t, v) % rows, where(t, v) / rows, d[size_t(t) * size_t(where.columns) + size_t(v)]);
}
std::string of_size(const char* name, int n) { return name + std::to_string(n); }

}  // namespace

// ------------------------------------------------------------------------------------------------ the file

TEST(tables_are_whole) {
    EXPECT(facts().layouts.size() == 28 && facts().descriptors.size() == 14, "%zu layouts, descriptors of %zu tiles",
           facts().layouts.size(), facts().descriptors.size());
    // Negative control: one stride changed, one size, one swizzle.
    for (const auto& [from, to] : {std::pair{"4,8:32,1", "4,8:32,2"}, {" 2,2:8,64", " 2,2:8,32"}, {"3,3,4", "3,3,3"}}) {
        std::string text = text_of_facts();
        EXPECT(text.find(from) != text.npos, "no '%s'", from);
        text.replace(text.find(from), std::strlen(from), to);
        bool noticed = false;
        try {
            std::istringstream in(text);
            parse(in);
        } catch (const TestFailure&) { noticed = true; }
        EXPECT(noticed, "'%s' instead of '%s' is not noticed", to, from);
    }
}

// ------------------------------------------------------------------------------------------------ the emulator

namespace {

// d(m, n) = m * 256 + n * 1
template <int N>
void expect_accumulators() {
    const Table &a = layout("k.64x64"), &b = layout("k." + std::to_string(N) + "x64");
    Memory memory = zeros(behind(a) + behind(b));
    fill(&memory, 0, a, [](int m, int k) { return k == 0 ? m : int(k == 1); });
    fill(&memory, behind(a), b, [](int n, int k) { return k == 0 ? 256 : k == 1 ? n : 0; });
    const auto d = product<N, false, false>(memory, descriptors("k.64x64 64")[0],
                                            moved(descriptors(format("k.%dx64 %d", N, N))[0], behind(a)));
    const Table got = table_of(128, N / 2, [&](int t, int v) {
        const int number = int(d[size_t(t * N / 2 + v)]);
        return number / 256 + 64 * (number % 256);
    });
    expect_layout(got, of_size("wgmma.c.", N), "accumulators");
}

// f(i, j, number) for each element (i, j) of a result that is one of n elements of an operand: which one. `run` gets
// the numbers 0 .. n-1 digit by digit.
template <class Run, class F>
void find_places(int n, const std::string& result, int rows, Run run, F f) {
    std::map<std::pair<int, int>, int> place;
    for (int digit = 0; digit < 2; digit++) {
        Memory digits(static_cast<size_t>(n));
        for (int i = 0; i < n; i++) digits[size_t(i)] = exact(digit ? i / 128 : i % 128);
        each_result(run(digits), result, rows,
                    [&](int i, int j, float x) { place[{i, j}] += int(x) * (digit ? 128 : 1); });
    }
    for (const auto& [at, number] : place) f(at.first, at.second, number);
}
int is_one(int i, int j) { return i == j; }

// Where a product reads its operand from shared memory: that operand times one.
template <bool MN>
void expect_first(const std::string& name) {
    const Table &tile = layout(name), &one = layout("k.64x64");
    const std::vector<uint64_t>& describe = descriptors(name + " 64");
    Table got(tile.rows, tile.columns);
    for (int block = 0; block < tile.rows / 64; block++)
        for (int k16 = 0; k16 < tile.columns / 16; k16++) {
            const auto run = [&](Memory memory) {
                memory.resize(size_t(behind(tile) + behind(one)), bf16{0});
                fill(&memory, behind(tile), one, is_one);
                return product<64, MN, false>(memory, describe[size_t(block * tile.columns / 16 + k16)],
                                              moved(descriptors("k.64x64 64")[0], behind(tile)));
            };
            find_places(behind(tile), "wgmma.c.64", 64, run, [&](int m, int k, int number) {
                if (k < 16) got(block * 64 + m, k16 * 16 + k) = number;
            });
        }
    expect_layout(got, name, "read as the first operand");
}
template <int N, bool MN>
void expect_second(const std::string& name, int rows = N) {
    const Table &tile = layout(name), &one = layout("k.64x64");
    const std::vector<uint64_t>& describe = descriptors(name + " " + std::to_string(rows));
    Table got(N, tile.columns);
    for (int k16 = 0; k16 < tile.columns / 16; k16++) {
        const auto run = [&](Memory memory) {
            memory.resize(size_t(behind(tile) + behind(one)), bf16{0});
            fill(&memory, behind(tile), one, is_one);
            return product<N, false, MN>(memory, moved(descriptors("k.64x64 64")[0], behind(tile)),
                                         describe[size_t(k16)]);
        };
        find_places(behind(tile), of_size("wgmma.c.", N), 64, run, [&](int k, int n, int number) {
            if (k < 16) got(n, k16 * 16 + k) = number;
        });
    }
    expect_layout(got, name, "read as the second operand");
}

}  // namespace

TEST(wgmma_leaves_results) {
    expect_accumulators<8>();
    expect_accumulators<64>();
    expect_accumulators<128>();
    expect_accumulators<160>();
    expect_accumulators<256>();
}

TEST(wgmma_reads_registers) {
    const Table& one = layout("k.64x64");
    Memory memory = zeros(behind(one));
    fill(&memory, 0, one, is_one);
    Table got(128, 8);
    const auto run = [&](const Memory& a) { return product<64, false>(a, memory, descriptors("k.64x64 64")[0]); };
    find_places(128 * 8, "wgmma.c.64", 64, run, [&](int m, int k, int number) {
        if (k < 16) got(number / 8, number % 8) = m + 64 * k;
    });
    expect_layout(got, "wgmma.a", "the first operand");
}

TEST(wgmma_reads_tiles) {
    expect_first<false>("k.64x64");
    expect_first<false>("k.128x64");
    expect_first<false>("k.64x128");
    expect_first<true>("mn.128x64");
    expect_second<8, false>("k.8x64");
    expect_second<128, false>("k.128x64");
    expect_second<160, false>("k.160x64");
    expect_second<256, false>("k.256x64");
    expect_second<64, false>("k.64x128");
    expect_second<128, false>("k.128x128");
    expect_second<64, true>("mn.64x64");
    expect_second<128, true>("mn.128x64");
    expect_second<160, true>("mn.192x64", 192);
    expect_second<256, true>("mn.256x64");
    expect_second<128, true>("mn.128x128");
}

namespace {
// d = a b by one warp; eight elements of a lane's first operand, four of its second.
std::vector<float> mma(const Memory& a, const Memory& b) {
    std::vector<float> out(32 * 4);
    on_block(32, 0, [&] {
        unsigned x[4], y[2];
        float d[4] = {};
        std::memcpy(x, &a[size_t(thread()) * 8], sizeof x);
        std::memcpy(y, &b[size_t(thread()) * 4], sizeof y);
        mma_m16n8k16(d, x, y);
        std::memcpy(&out[size_t(thread()) * 4], d, sizeof d);
    });
    return out;
}
template <class F>
Memory mma_operand(const char* name, int rows, F f) {
    const Table& where = layout(name);
    Memory registers = zeros(where.rows * where.columns);
    fill(&registers, 0, table_of(where.rows, where.columns, [&](int t, int v) { return t * where.columns + v; }),
         [&](int t, int v) { return f(where(t, v) % rows, where(t, v) / rows); });
    return registers;
}
}  // namespace

TEST(mma_fragments) {
    const auto d = mma(mma_operand("mma.a", 16, [](int m, int k) { return k == 0 ? m : int(k == 1); }),
                       mma_operand("mma.b", 8, [](int n, int k) { return k == 0 ? 16 : k == 1 ? n : 0; }));
    expect_layout(table_of(32, 4, [&](int t, int v) {
        const int number = int(d[size_t(t * 4 + v)]);
        return number / 16 + 16 * (number % 16);
    }), "mma.c", "the result");

    Table a(32, 8), b(32, 4);
    for (int half = 0; half < 2; half++) {
        const Memory one = mma_operand("mma.b", 8, [&](int n, int k) { return is_one(n + half * 8, k); });
        find_places(32 * 8, "mma.c", 16, [&](const Memory& x) { return mma(x, one); },
                    [&](int m, int k, int number) { a(number / 8, number % 8) = m + 16 * (k + half * 8); });
    }
    expect_layout(a, "mma.a", "the first operand");
    const Memory one = mma_operand("mma.a", 16, is_one);
    find_places(32 * 4, "mma.c", 16, [&](const Memory& x) { return mma(one, x); },
                [&](int k, int n, int number) { b(number / 4, number % 4) = n + 8 * k; });
    expect_layout(b, "mma.b", "the second operand");
}

namespace {
template <bool TRANSPOSED>
Table loaded() {
    Table got(32, 8);
    on_block(32, 256 * 2, [&] {
        DYNAMIC_SHARED(shared);
        to_shared(numbered(256));
        unsigned r[4];
        ldmatrix_x4<TRANSPOSED>(r, shared + layout("ldmatrix.source")(thread(), 0) * 2);
        for (int i = 0; i < 8; i++) got(thread(), i) = int(r[i / 2] >> i % 2 * 16 & 0xffff);
    });
    return got;
}
}  // namespace

TEST(ldmatrix_loads) {
    expect_layout(loaded<false>(), "ldmatrix.plain", "ldmatrix");
    expect_layout(loaded<true>(), "ldmatrix.transposed", "ldmatrix.trans");
}

// ------------------------------------------------------------------------------------------------ the kernels'
// functions

namespace {

// A tile of numbers that TMA has brought to shared memory, as it lies there.
template <class Load>
std::vector<int> brought(int bytes, Load load) {
    std::vector<int> there(size_t(bytes) / 2);
    on_block(32, size_t(bytes), [&] {
        DYNAMIC_SHARED(shared);
        SHARED(uint64_t, bar, 1);
        if (thread() == 0) {
            mbar_init(bar, 1);
            mbar_fence_init();
            mbar_arrive(bar, bytes);
            load(shared, bar);
        }
        __syncthreads();
        mbar_wait(bar, 0);
        for (size_t i = threadIdx.x; i < there.size(); i += 32) there[i] = as<bf16>(shared + i * 2).bits;
    });
    return there;
}
// Number n, found at place i, is element (n / columns, n % columns) of a matrix; of an MN-major one its transpose.
Table table_of_numbers(const std::vector<int>& there, int mn, int k, bool transposed) {
    Table got(mn, k);
    for (size_t i = 0; i < there.size(); i++) {
        const int number = there[i], columns = transposed ? mn : k;
        (transposed ? got(number % columns, number / columns) : got(number / columns, number % columns)) = int(i);
    }
    return got;
}

// The operand of a stage: TMA lays it out as CUTLASS does, and its descriptors are CUTLASS's.
template <bool MN, int WIDTH>
void expect_stage(int rows) {
    using Operand = OperandSm90<MN, WIDTH>;
    const int width = Operand::kBytes / kLine;  // whole boxes
    const std::string name = format("%s.%dx64", MN ? "mn" : "k", width);
    Memory matrix = numbered(width * 64);
    const TensorMap map = Operand::map(matrix.data(), width, 64);
    const auto there = brought(Operand::kBytes, [&](unsigned char* to, uint64_t* bar) {
        Operand::load(to, &map, bar, 0, 0);
    });
    expect_layout(table_of_numbers(there, width, 64, MN), name, "a stage");

    const std::vector<uint64_t>& want = descriptors(name + " " + std::to_string(rows));
    std::vector<uint64_t> got(want.size());
    on_block(1, Operand::kBytes, [&] {
        DYNAMIC_SHARED(shared);
        for (size_t i = 0; i < got.size(); i++) got[i] = Operand::descriptor(shared, int(i) / 4 * rows, int(i) % 4);
    });
    // A field of a direction in which there is no second step means nothing.
    const bool has_lbo = MN && rows > 64, has_sbo = MN || rows > 8;
    const uint64_t fields = 0xc00e000000003fffu | uint64_t(has_lbo) * 0x3fff0000u | uint64_t(has_sbo) * 0x3fff00000000u;
    const auto same = [&](uint64_t a, uint64_t b) { return ((a ^ b) & fields) == 0; };
    for (size_t i = 0; i < got.size(); i++) {
        EXPECT(same(got[i], want[i]), "%s, descriptor %zu: got %016lx, want %016lx", name.c_str(), i, got[i], want[i]);
        for (const int bit : {0, 4, 13, 32, 45, 62, 63})
            EXPECT(!same(got[i] ^ uint64_t(1) << bit, want[i]), "bit %d is not compared", bit);
        EXPECT(!has_lbo || !same(got[i] ^ 1u << 16, want[i]), "the leading offset is not compared");
    }
}

template <int COLUMNS, class F>
void expect_rows(const char* what, F at) {
    expect_layout(table_of(16, COLUMNS, [&](int row, int column) { return at(row, column / 8) + column % 8; }),
                  of_size("row.", COLUMNS), what);
}

// The registers that ldmatrix fills from a tile of matmul.cu are mma's fragments.
template <bool MN, int SIZE, int BK, int THREADS>
void expect_fragments() {
    using Tile = Operand<MN, SIZE, BK, THREADS>;
    Memory memory = zeros(SIZE * BK);
    for (int mn = 0; mn < 16; mn++)
        for (int k = 0; k < 16; k++) {
            const int i = MN ? k : mn, j = MN ? mn : k;
            memory[size_t(Tile::at(i, j / 8) + j % 8)].bits = uint16_t(mn * 16 + k);
        }
    Table a(32, 8), b[2] = {a, a};
    on_block(32, memory.size() * 2, [&] {
        DYNAMIC_SHARED(shared);
        to_shared(memory);
        unsigned x[4], y[4];
        Tile::template fragment<true>(x, reinterpret_cast<bf16*>(shared), 0, 0);
        Tile::template fragment<false>(y, reinterpret_cast<bf16*>(shared), 0, 0);
        const auto number = [](const unsigned(&r)[4], int i) { return int(r[i / 2] >> i % 2 * 16 & 0xffff); };
        for (int i = 0; i < 8; i++) {
            a(thread(), i) = number(x, i) / 16 + 16 * (number(x, i) % 16);
            b[i / 4](thread(), i % 4) = number(y, i) / 16 - i / 4 * 8 + 8 * (number(y, i) % 16);
        }
    });
    expect_layout(a, "mma.a", "fragment");
    for (Table& half : b) {
        half = table_of(32, 4, [&](int t, int v) { return half(t, v); });
        expect_layout(half, "mma.b", "fragment");
    }
}

}  // namespace

TEST(stages_of_matmul_sm90) {
    expect_stage<false, 128>(64);
    expect_stage<true, 128>(64);
    expect_stage<false, 128>(128);
    expect_stage<false, 160>(160);
    expect_stage<false, 256>(256);
    expect_stage<true, 128>(128);
    expect_stage<true, 160>(192);
    expect_stage<true, 256>(256);
}

TEST(tiles_of_matmul) {
    expect_rows<32>("Operand::at", Operand<false, 128, 32, 256>::at);
    expect_rows<64>("Operand::at", Operand<false, 64, 64, 128>::at);
    expect_rows<64>("Operand::at", Operand<true, 64, 64, 128>::at);
    expect_rows<128>("Operand::at", Operand<true, 128, 32, 128>::at);
    expect_rows<256>("Operand::at", Operand<true, 256, 32, 256>::at);
    expect_fragments<false, 128, 32, 256>();
    expect_fragments<false, 64, 64, 128>();
    expect_fragments<true, 64, 64, 128>();
    expect_fragments<true, 128, 32, 128>();
    expect_fragments<true, 256, 32, 256>();
}

namespace {
// store_sums writes what lies in registers by `name` as the matrix that it is.
template <int STRIDE, int COLUMNS>
void expect_stored(const char* name, int rows) {
    const Table& where = layout(name);
    const int threads = where.rows, each = where.columns, pieces = COLUMNS * rows / threads / each;
    std::vector<float> out(size_t(rows) * COLUMNS, -1);
    on_block(threads, 0, [&] {
        float sums[1][COLUMNS / 8][4];
        for (int i = 0; i < pieces * each; i++) {
            const int place = where(thread(), i % each), m = place % rows, n = place / rows + i / each * 8;
            sums[0][i / 4][i % 4] = float(m * COLUMNS + n);
        }
        store_sums<STRIDE>(sums, StoreFloat{out.data(), {rows, COLUMNS}, false}, warp() * 16 + lane() / 4, 0);
    });
    for (size_t i = 0; i < out.size(); i++)
        EXPECT(out[i] == float(i), "%s: row %zu, column %zu: got %g", name, i / COLUMNS, i % COLUMNS, out[i]);
}
}  // namespace

TEST(results_are_stored_where_they_belong) {
    expect_stored<64, 256>("wgmma.c.256", 64);
    expect_stored<64, 160>("wgmma.c.160", 64);
    expect_stored<64, 128>("wgmma.c.128", 64);
    expect_stored<16, 32>("mma.c", 16);
}
}  // namespace BACKEND

// ------------------------------------------------------------------------------------------------ attention

namespace BACKEND::attention {
namespace {

int digit(int i, int j) { return (i * 7 + j * 3 + i * j % 5) % 9 - 4; }

// d = a b^T and d = p b for tiles of D columns, against plain loops. With `harm` an element of the tile changes places
// with its neighbour.
template <int D, int ROWS>
bool rows_are_multiplied(int harm) {
    Table a = layout(of_size("k.64x", D)), b = layout(format("k.%dx%d", ROWS, D));
    std::swap(b(3, 5), b(3, 5 + harm));
    Memory memory = zeros(64 * D + ROWS * D);
    fill(&memory, 0, a, digit);
    fill(&memory, 64 * D, b, [](int n, int k) { return digit(k, n); });
    std::vector<float> out(128 * ROWS / 2);
    on_block(128, memory.size() * 2, [&] {
        DYNAMIC_SHARED(shared);
        to_shared(memory);
        float d[1][ROWS / 8][4];
        multiply_rows<D, ROWS>(d, reinterpret_cast<bf16*>(shared), reinterpret_cast<bf16*>(shared) + 64 * D);
        wgmma_commit();
        wgmma_wait<0>(flat(d));
        std::memcpy(&out[size_t(thread()) * ROWS / 2], d, sizeof d);
    });
    bool right = true;
    each_result(out, of_size("wgmma.c.", ROWS), 64, [&](int m, int n, float x) {
        int want = 0;
        for (int k = 0; k < D; k++) want += digit(m, k) * digit(k, n);
        right &= x == float(want);
    });
    return right;
}
template <int D, int ROWS>
bool product_is_added(int harm) {
    Table b = layout(format("mn.%dx%d", D, ROWS));
    std::swap(b(3, 5), b(3, 5 + harm));
    Memory memory = zeros(D * ROWS);
    fill(&memory, 0, b, [](int n, int k) { return digit(k, n); });
    const Table& where = layout("wgmma.a");
    std::vector<float> out(128 * D / 2);
    on_block(128, memory.size() * 2, [&] {
        DYNAMIC_SHARED(shared);
        to_shared(memory);
        bf16 p[ROWS / 16][8];
        unsigned registers[ROWS / 16][4];
        for (int i = 0; i < ROWS / 2; i++) {
            const int place = where(thread(), i % 8);
            p[i / 8][i % 8] = exact(digit(place % 64, place / 64 + i / 8 * 16));
        }
        std::memcpy(registers, p, sizeof p);
        float d[1][D / 8][4] = {};
        add_product<D, ROWS>(d, registers, reinterpret_cast<bf16*>(shared));
        wgmma_commit();
        wgmma_wait<0>(flat(d));
        std::memcpy(&out[size_t(thread()) * D / 2], d, sizeof d);
    });
    bool right = true;
    each_result(out, of_size("wgmma.c.", D), 64, [&](int m, int n, float x) {
        int want = 0;
        for (int k = 0; k < ROWS; k++) want += digit(m, k) * digit(k, n);
        right &= x == float(want);
    });
    return right;
}
template <int D, int ROWS>
void expect_products() {
    EXPECT((rows_are_multiplied<D, ROWS>(0)), "a b^T of heads of %d, %d rows", D, ROWS);
    EXPECT(!(rows_are_multiplied<D, ROWS>(1)), "two elements exchanged are not noticed");
    EXPECT((product_is_added<D, ROWS>(0)), "p b of heads of %d, %d rows", D, ROWS);
    EXPECT(!(product_is_added<D, ROWS>(1)), "two elements exchanged are not noticed");
}

// The tile that load_tile brings.
template <int D, int ROWS>
void expect_tile() {
    Memory matrix = numbered(ROWS * D);
    const TensorMap map = tensor_map(matrix.data(), D, ROWS, D, kBox, kBox, 1, ROWS * D);
    const auto there = brought(ROWS * D * 2, [&](unsigned char* to, uint64_t* bar) {
        load_tile<D, ROWS>(reinterpret_cast<bf16*>(to), &map, bar, 0, 0, 0);
    });
    const Table got = table_of_numbers(there, ROWS, D, false);
    expect_layout(got, format("k.%dx%d", ROWS, D), "load_tile");
    // The same bytes are the MN-major tile of D x ROWS.
    expect_layout(table_of(D, ROWS, [&](int mn, int k) { return got(k, mn); }), format("mn.%dx%d", D, ROWS),
                  "load_tile");
}

}  // namespace

TEST(tiles_of_attention) {
    expect_tile<64, 64>();
    expect_tile<128, 64>();
    expect_tile<128, 128>();
    for (const int D : {64, 128})
        expect_layout(table_of(64, D, [](int row, int column) { return in_tile(row, column / 8) + column % 8; }),
                      of_size("k.64x", D), "in_tile");
    expect_rows<32>("at", at<32>);
    expect_rows<64>("at", at<64>);
    expect_rows<128>("at", at<128>);
}

TEST(products_of_attention) {
    expect_products<64, 64>();
    expect_products<128, 64>();
    expect_products<128, 128>();
}

// Accumulators stand where row_of and column_of say; 16 columns of them become the next product's first operand.
TEST(accumulators_of_attention) {
    Table places(32, 4), operand(32, 8);
    const Table& where = layout("mma.c");
    on_block(32, 0, [&] {
        float x[2][4];
        for (int e = 0; e < 4; e++) {
            places(thread(), e) = row_of(e) + 16 * column_of(e);
            for (int n = 0; n < 2; n++) x[n][e] = float(where(thread(), e) + n * 8 * 16);  // m + 16 k
        }
        unsigned a[4];
        pack_operand(a, x, 0);
        for (int i = 0; i < 8; i++) operand(thread(), i) = int(i % 2 ? high2(a[i / 2]) : low2(a[i / 2]));
    });
    expect_layout(places, "mma.c", "row_of and column_of");
    expect_layout(operand, "mma.a", "pack_operand");
}

}  // namespace BACKEND::attention

int main(int argc, char** argv) { return run_tests(argc, argv); }
