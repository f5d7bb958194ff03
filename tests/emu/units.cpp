// units.cpp -- the emulated instructions: shuffles and votes, ldmatrix and mma, cp.async, mbarriers, TMA, wgmma.
#include "tests/emu/emu.h"
#include <vector>

using namespace emu;
using simt::Loc, simt::Quiet, simt::fail;

// ------------------------------------------------------------------------------------------------ shuffles and votes

// for (lane l of mask)
#define EACH_LANE(l, mask)            \
    for (unsigned l = 0; l < 32; l++) \
        if ((mask) >> l & 1)

void simt::shuffle(unsigned mask, void* x, size_t bytes, int from, const char* what, Loc loc) {
    struct Arg {
        uint64_t in, out;
        int from;
    } arg{0, 0, from & 31};
    std::memcpy(&arg.in, x, bytes);
    simt::warp(
        mask, &arg,
        [](void* const* lanes, unsigned m) {
            EACH_LANE(l, m) {
                Arg* a = static_cast<Arg*>(lanes[l]);
                const Arg* source = static_cast<Arg*>(lanes[a->from]);
                a->out = source ? source->in : ~uint64_t(0);
            }
        },
        what, loc);
    std::memcpy(x, &arg.out, bytes);
}

// Gives every lane f(values of all lanes of the mask, number of lanes, own value).
template <class T, class F>
static T vote(unsigned mask, T x, F, const char* what, Loc loc) {
    T value = x;
    simt::warp(
        mask, &value,
        [](void* const* lanes, unsigned m) {
            T in[32] = {};
            EACH_LANE(l, m) in[l] = *static_cast<T*>(lanes[l]);
            EACH_LANE(l, m) * static_cast<T*>(lanes[l]) = F()(in, m, l);
        },
        what, loc);
    return value;
}
unsigned emu::__ballot_sync(unsigned mask, bool x, Loc loc) {
    return vote(
        mask, unsigned(x),
        [](const unsigned* in, unsigned m, unsigned) {
            unsigned bits = 0;
            EACH_LANE(l, m) bits |= in[l] << l;
            return bits;
        },
        "a vote", loc);
}
bool emu::__all_sync(unsigned mask, bool x, Loc loc) { return __ballot_sync(mask, !x, loc) == 0; }
unsigned emu::__match_any_sync(unsigned mask, unsigned x, Loc loc) {
    return vote(
        mask, x,
        [](const unsigned* in, unsigned m, unsigned self) {
            unsigned bits = 0;
            EACH_LANE(l, m) bits |= unsigned(in[l] == in[self]) << l;
            return bits;
        },
        "__match_any_sync", loc);
}
template <class T>
static T reduce(unsigned mask, T x, auto f, const char* what, Loc loc) {
    return vote(
        mask, x,
        [](const T* in, unsigned m, unsigned self) {
            T sum = in[self];
            EACH_LANE(l, m) if (l != self) sum = decltype(f)()(sum, in[l]);
            return sum;
        },
        what, loc);
}
constexpr auto kAdd = [](auto a, auto b) { return decltype(a)(unsigned(a) + unsigned(b)); };
constexpr auto kMax = [](auto a, auto b) { return a < b ? b : a; };
constexpr auto kMin = [](auto a, auto b) { return b < a ? b : a; };
int emu::__reduce_add_sync(unsigned mask, int x, Loc loc) { return reduce(mask, x, kAdd, "__reduce_add_sync", loc); }
unsigned emu::__reduce_add_sync(unsigned mask, unsigned x, Loc loc) {
    return reduce(mask, x, kAdd, "__reduce_add_sync", loc);
}
int emu::__reduce_max_sync(unsigned mask, int x, Loc loc) { return reduce(mask, x, kMax, "__reduce_max_sync", loc); }
unsigned emu::__reduce_max_sync(unsigned mask, unsigned x, Loc loc) {
    return reduce(mask, x, kMax, "__reduce_max_sync", loc);
}
int emu::__reduce_min_sync(unsigned mask, int x, Loc loc) { return reduce(mask, x, kMin, "__reduce_min_sync", loc); }
unsigned emu::__reduce_min_sync(unsigned mask, unsigned x, Loc loc) {
    return reduce(mask, x, kMin, "__reduce_min_sync", loc);
}

// To the thread sanitizer: whatever was before a fence anywhere is before what follows a later fence.
void emu::__threadfence() {
    static char tag;
    simt::release(&tag);
    simt::acquire(&tag);
}

// ------------------------------------------------------------------------------------------------ state of the
// asynchronous units

namespace {

struct Copy {
    void* dst;
    const void* src;
    bool valid, landed;
    int group;
    Loc loc;
};  // cp.async
struct Store {
    TensorMap map;
    uint32_t src;
    int x, y, group;
    bool landed;
    Loc loc;
};  // TMA store
struct Mma {
    Loc loc;
    float* d[32];
    uint64_t a;
    const unsigned* registers[32];
    uint64_t b;
    int n;
    bool ta, tb, accumulate;
};  // as one warp sees it
struct Waiter {
    unsigned thread;
    const uint64_t* bar;
    unsigned parity;
};

struct Units {  // anew for every cluster
    uint64_t cluster = 0;
    std::vector<std::vector<Copy>> copies;  // per thread: issued and not yet waited for, oldest first
    std::vector<std::vector<Store>> stores;
    std::vector<int> copy_groups, store_groups;  // per thread: groups committed
    std::vector<std::vector<const void*>>
        unfenced;          // per thread: rows that it wrote by stmatrix, with no async_fence since
    bool watched = false;  // the blocks' shared memory, for other writes that TMA and wgmma may not have seen:
    std::vector<std::vector<unsigned char>> seen;  // per block, its bytes as any thread's last async_fence left them
    std::vector<std::vector<Mma>> mmas;            // per warp: issued, not yet done
    std::vector<std::vector<size_t>> mma_groups;   // per warp, per group: how many of mmas it ends after
    std::vector<bool> mma_now;                     // per warp: the group that is being issued is done at once
    std::vector<bool> mma_fenced;                  // per warp: a fence came before the next wgmma
    std::vector<Waiter> waiters;                   // for mbarriers
};
thread_local Units the_units;

Units& units() {
    Units& u = the_units;
    if (u.cluster == simt::cluster_number() && !u.copies.empty()) return u;
    const size_t threads = simt::warp_count() * size_t(32);
    u = Units();
    u.cluster = simt::cluster_number();
    u.copies.resize(threads), u.stores.resize(threads), u.copy_groups.resize(threads), u.store_groups.resize(threads),
        u.unfenced.resize(threads);
    u.watched = simt::shared_bytes() <= 8192 || simt::random_bits() % 8 == 0;  // an async_fence copies all of it
    u.mmas.resize(simt::warp_count()), u.mma_groups.resize(simt::warp_count()), u.mma_fenced.resize(simt::warp_count()),
        u.mma_now.resize(simt::warp_count());
    return u;
}

// Of a block of the cluster; null where that is not watched. Shared memory holds 0xff when a block begins.
unsigned char* seen(unsigned rank) {
    Units& u = units();
    if (!u.watched) return nullptr;
    if (u.seen.size() <= rank) u.seen.resize(rank + 1);
    if (u.seen[rank].empty()) u.seen[rank].assign(simt::shared_bytes(), 0xff);
    return u.seen[rank].data();
}
void expect_fenced(uint32_t at, size_t bytes, const char* what, Loc loc) {
    const unsigned char* const known = seen(simt::cluster_rank());
    if (known && std::memcmp(known + at, simt::shared_memory() + at, bytes))
        fail("%s at %s:%u: no async_fence since its source was written", what, loc.file, loc.line);
}

uint32_t swizzle(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }  // 16-byte chunk ^= row mod 8
float widen(uint16_t bits) { return __uint_as_float(unsigned(bits) << 16); }

}  // namespace

// ------------------------------------------------------------------------------------------------ ldmatrix, mma

void simt::ldmatrix(unsigned* r, const void* row, bool transposed, Loc loc) {
    struct Arg {
        unsigned* r;
        uint16_t row[8];
        bool transposed;
    } arg{r, {}, transposed};
    if (reinterpret_cast<uintptr_t>(row) % 16)
        fail("ldmatrix at %s:%u: a row that is not 16-byte aligned", loc.file, loc.line);
    std::memcpy(arg.row, row, 16);  // here, by the lane that gives the address: the thread sanitizer watches
    simt::warp(
        ~0u, &arg,
        [](void* const* lanes, unsigned) {
            uint16_t m[32][8];  // row 8i + j: row j of matrix i
            for (int l = 0; l < 32; l++) std::memcpy(m[l], static_cast<Arg*>(lanes[l])->row, 16);
            for (int l = 0; l < 32; l++) {
                Arg* a = static_cast<Arg*>(lanes[l]);
                const int p = l / 4, q = l % 4 * 2;
                for (int i = 0; i < 4; i++) {
                    const uint16_t(*at)[8] = m + i * 8;
                    a->r[i] = a->transposed ? at[q][p] | unsigned(at[q + 1][p]) << 16
                                            : at[p][q] | unsigned(at[p][q + 1]) << 16;
                }
            }
        },
        transposed ? "ldmatrix.trans" : "ldmatrix", loc, true);
}

// Sums are plain float in order of k. Tensor cores add otherwise: results differ in the last bits, so tests have
// tolerances.
void emu::mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Loc loc) {
    struct Arg {
        float* d;
        const unsigned *a, *b;
    } arg{d, a, b};
    simt::warp(
        ~0u, &arg,
        [](void* const* lanes, unsigned) {
            float A[16][16], B[16][8], D[16][8] = {};  // B[k][n]
            for (int l = 0; l < 32; l++) {
                const Arg* q = static_cast<Arg*>(lanes[l]);
                const int p = l / 4, k = l % 4 * 2;
                for (int i = 0; i < 4; i++) {
                    float* x = &A[p + i % 2 * 8][k + i / 2 * 8];
                    x[0] = __uint_as_float(q->a[i] << 16), x[1] = __uint_as_float(q->a[i] & 0xffff0000u);
                }
                for (int i = 0; i < 2; i++)
                    B[k + i * 8][p] = __uint_as_float(q->b[i] << 16),
                              B[k + i * 8 + 1][p] = __uint_as_float(q->b[i] & 0xffff0000u);
            }
            typedef float Four __attribute__((vector_size(16)));
            for (int m = 0; m < 16; m++) {
                Four low = {}, high = {}, x, y;
                for (int k = 0; k < 16; k++) {
                    std::memcpy(&x, B[k], 16), std::memcpy(&y, B[k] + 4, 16);
                    low += A[m][k] * x, high += A[m][k] * y;
                }
                std::memcpy(D[m], &low, 16), std::memcpy(D[m] + 4, &high, 16);
            }
            for (int l = 0; l < 32; l++) {
                float* out = static_cast<Arg*>(lanes[l])->d;
                for (int i = 0; i < 4; i++) out[i] += D[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
            }
        },
        "mma", loc, true);
}

// ------------------------------------------------------------------------------------------------ cp.async

static void land(const Copy& c) {
    if (c.valid)
        std::memcpy(c.dst, c.src, 16);
    else
        std::memset(c.dst, 0, 16);
}
void emu::cp_async16(void* dst, const void* src, bool valid, Loc loc) {
    if ((reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src)) % 16)
        fail("cp.async at %s:%u: %p to %p, not 16-byte aligned", loc.file, loc.line, src, dst);
    Copy copy{dst, src, valid, false, 0, loc};
    {
        Quiet quiet;
        Units& u = units();
        copy.group = u.copy_groups[simt::thread()];
        copy.landed = simt::at_once();
        u.copies[simt::thread()].push_back(copy);
    }
    if (copy.landed) land(copy);  // not quiet: the thread sanitizer watches
}
void emu::cp_async_commit() {
    Quiet quiet;
    units().copy_groups[simt::thread()]++;
}
void simt::cp_async_wait(int newest) {
    for (;;) {
        Copy copy;
        {
            Quiet quiet;
            Units& u = units();
            std::vector<Copy>& queue = u.copies[simt::thread()];
            if (queue.empty() || queue.front().group >= u.copy_groups[simt::thread()] - newest) return;
            copy = queue.front();
            queue.erase(queue.begin());
        }
        if (!copy.landed) land(copy);
    }
}

// ------------------------------------------------------------------------------------------------ mbarriers

namespace {
void needs(int architecture, const char* what, Loc loc);
struct Mbar {
    uint16_t expected, pending;
    int32_t bytes : 31;
    uint32_t phase : 1;
};  // lies in the kernel's uint64_t
static_assert(sizeof(Mbar) == 8);
Mbar load(const uint64_t* bar) { return std::bit_cast<Mbar>(*bar); }

// Stores a barrier; if its phase has ended begins the next one and wakes those who waited.
void store(uint64_t* bar, Mbar m) {
    const bool ended = !m.pending && !m.bytes;
    if (ended) m.phase ^= 1, m.pending = m.expected;
    *bar = std::bit_cast<uint64_t>(m);
    if (!ended) return;
    std::vector<Waiter>& waiters = units().waiters;
    for (size_t i = 0; i < waiters.size();) {
        if (waiters[i].bar != bar || waiters[i].parity == m.phase) {
            i++;
            continue;
        }
        simt::wake(waiters[i].thread);
        waiters[i] = waiters.back();
        waiters.pop_back();
    }
}
}  // namespace

void emu::mbar_init(uint64_t* bar, int n) {
    *bar = 0;  // the thread sanitizer watches
    Quiet quiet;
    if (n < 1 || n > 0x7fff) fail("mbarrier for %d arrivals", n);
    *bar = std::bit_cast<uint64_t>(Mbar{uint16_t(n), uint16_t(n), 0, 0});
}
void emu::mbar_arrive(uint64_t* bar, int bytes, Loc loc) {
    Quiet quiet;
    Mbar m = load(bar);
    if (!m.expected || m.expected > 0x7fff) fail("mbarrier at %s:%u: not initialised", loc.file, loc.line);
    if (!m.pending)
        fail("mbarrier at %s:%u: more arrivals in a phase than the %d it was made for", loc.file, loc.line, m.expected);
    simt::release(bar);
    m.bytes = m.bytes + bytes;
    m.pending--;
    store(bar, m);
}
void emu::mbar_arrive_at(uint64_t* bar, unsigned rank, Loc loc) {
    needs(90, "a cluster", loc);
    mbar_arrive(static_cast<uint64_t*>(simt::in_block(bar, rank)), 0, loc);
}
void emu::mbar_wait(uint64_t* bar, unsigned parity, Loc loc) {
    if (simt::taken_out(loc)) return;
    Quiet quiet;
    const Mbar m = load(bar);
    if (!m.expected || m.expected > 0x7fff) fail("mbarrier at %s:%u: not initialised", loc.file, loc.line);
    if (m.phase == (parity & 1)) {  // the phase that runs now has this parity
        units().waiters.push_back({simt::thread(), bar, parity & 1});
        simt::park("mbarrier wait", loc);
    }
    simt::acquire(bar);
}

// ------------------------------------------------------------------------------------------------ TMA

unsigned emu::shared_address(const void* p) {
    const auto offset = uintptr_t(p) - uintptr_t(simt::shared_memory());
    if (offset >= simt::shared_bytes()) fail("an address outside dynamic shared memory");
    return unsigned(offset);
}

constinit thread_local uint64_t simt::maps_made = 0;
thread_local std::string simt::map_refused;

// Source: cuda.h of CUDA 13.0, cuTensorMapEncodeTiled, for elements of 2 bytes.
CUresult emu::cuTensorMapEncodeTiled(TensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                     const cuuint64_t* size, const cuuint64_t* stride, const cuuint32_t* box,
                                     const cuuint32_t* step, CUtensorMapInterleave interleave,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    if (type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        swizzle != CU_TENSOR_MAP_SWIZZLE_128B || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || rank < 2 || rank > 3)
        return CUDA_ERROR_NOT_SUPPORTED;
    std::string& why = simt::map_refused;
    why.clear();
    const auto want = [&](bool held, const char* what, cuuint32_t i, uint64_t got) {
        if (!held && why.empty()) why = format("%s[%u]: got %zu", what, i, size_t(got));
    };
    want(uintptr_t(address) % 16 == 0, "address", 0, uintptr_t(address));
    for (cuuint32_t i = 0; i < rank; i++) {
        want(size[i] >= 1 && size[i] <= uint64_t(1) << 32, "size", i, size[i]);
        want(box[i] >= 1 && box[i] <= 256, "box", i, box[i]);
        want(step[i] >= 1 && step[i] <= 8, "step", i, step[i]);
    }
    want(box[0] * 2 % 16 == 0 && box[0] * 2 <= 128, "box", 0, box[0]);
    for (cuuint32_t i = 0; i + 1 < rank; i++) {
        want(stride[i] % 16 == 0 && stride[i] < uint64_t(1) << 40, "stride", i, stride[i]);
        want(stride[i] >= size[i] * (i ? stride[i - 1] : 2), "stride", i, stride[i]);  // it includes what is inside
    }
    if (!why.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; i++)
        if (step[i] != 1 || (i == 2 && box[i] != 1)) return CUDA_ERROR_NOT_SUPPORTED;
    *map = {static_cast<unsigned char*>(address), int64_t(size[0]), int64_t(size[1]), int64_t(stride[0]),
            rank > 2 ? int64_t(size[2]) : 0,      rank > 2 ? int64_t(stride[1]) : 0,
            int(box[0]),                          int(box[1])};
    simt::maps_made++;
    return CUDA_SUCCESS;
}

namespace {
// f(place in shared memory, place in the matrix or null) for each row's bytes of a box, element by element
template <class F>
void each_element(const TensorMap& map, unsigned char* shared, uint32_t at, int x, int y, F f) {
    for (int r = 0; r < map.box_rows; r++)
        for (int c = 0; c < map.box_columns; c++) {
            const bool inside = x + c >= 0 && x + c < map.columns && y + r >= 0 && y + r < map.rows;
            f(shared + swizzle(at + uint32_t(r) * 128 + uint32_t(c) * 2),
              inside ? map.data + (y + r) * map.pitch + (x + c) * 2 : nullptr);
        }
}
uint32_t tile_address(const void* p, const TensorMap& map, const char* what, Loc loc) {
    const uint32_t at = shared_address(p);
    if (at % 1024 || at + size_t(map.box_rows) * 128 > simt::shared_bytes())
        fail("%s at %s:%u: a tile of %d rows at byte %u of %zu", what, loc.file, loc.line, map.box_rows, at,
             simt::shared_bytes());
    return at;
}
}  // namespace

// To the place of dst and bar in block `rank` of the cluster.
static void load(const TensorMap& map, void* dst, uint64_t* bar, int x, int y, unsigned rank, Loc loc) {
    needs(90, "TMA load", loc);
    struct Load {
        TensorMap map;
        unsigned char* shared;
        uint64_t* bar;
        uint32_t at;
        int x, y;
        unsigned rank;
        void operator()() const {
            each_element(map, shared, at, x, y, [](unsigned char* to, const unsigned char* from) {
                if (from)
                    std::memcpy(to, from, 2);
                else
                    std::memset(to, 0, 2);
            });
            if (unsigned char* const known = seen(rank))
                std::memcpy(known + at, shared + at, size_t(map.box_rows) * 128);
            Mbar m = load(bar);
            m.bytes = m.bytes - map.box_rows * map.box_columns * 2;
            store(bar, m);
        }
    };
    const uint32_t at = tile_address(dst, map, "TMA load", loc);
    simt::later(Load{map, static_cast<unsigned char*>(simt::in_block(simt::shared_memory(), rank)),
                     static_cast<uint64_t*>(simt::in_block(bar, rank)), at, x, y, rank},
                rank);
}
void emu::tma_load(void* dst, const TensorMap* map, uint64_t* bar, int x, int y, Loc loc) {
    Quiet quiet;
    if (map->count) fail("TMA load at %s:%u: the map is of several matrices", loc.file, loc.line);
    load(*map, dst, bar, x, y, simt::cluster_rank(), loc);
}
void emu::tma_load_multicast(void* dst, const TensorMap* map, uint64_t* bar, int x, int y, unsigned blocks, Loc loc) {
    Quiet quiet;
    for (unsigned rank = 0; blocks >> rank; rank++)  // they land one by one, in any order
        if (blocks >> rank & 1) load(*map, dst, bar, x, y, rank, loc);
}
void emu::tma_load(void* dst, const TensorMap* map, uint64_t* bar, int x, int y, int z, Loc loc) {
    Quiet quiet;
    if (!map->count) fail("TMA load at %s:%u: the map is of one matrix", loc.file, loc.line);
    TensorMap one = *map;
    if (z < 0 || z >= map->count)
        one.rows = 0;
    else
        one.data += z * map->distance;
    load(one, dst, bar, x, y, simt::cluster_rank(), loc);
}

void emu::stmatrix_x4(void* row, const unsigned (&r)[4], Loc loc) {
    needs(90, "stmatrix", loc);
    struct Arg {
        void* row;
        const unsigned* r;
    } arg{row, r};
    if (reinterpret_cast<uintptr_t>(row) % 16)
        fail("stmatrix at %s:%u: a row that is not 16-byte aligned", loc.file, loc.line);
    simt::warp(
        ~0u, &arg,
        [](void* const* lanes, unsigned) {
            for (unsigned l = 0; l < 32; l++) {  // points at row l % 8 of matrix l / 8, which four lanes hold
                char* const to = static_cast<char*>(static_cast<Arg*>(lanes[l])->row);
                for (unsigned q = 0; q < 4; q++)
                    std::memcpy(to + q * 4, static_cast<Arg*>(lanes[l % 8 * 4 + q])->r + l / 8, 4);
                units().unfenced[simt::thread() / 32 * 32 + l].push_back(to);
            }
        },
        "stmatrix", loc, true);
}
void emu::async_fence(Loc loc) {
    if (simt::taken_out(loc)) return;
    Quiet quiet;
    units().unfenced[simt::thread()].clear();
    if (unsigned char* const known = seen(simt::cluster_rank()))
        std::memcpy(known, simt::shared_memory(), simt::shared_bytes());
}
static void land(const Store& s) {
    each_element(s.map, simt::shared_memory(), s.src, s.x, s.y, [](const unsigned char* from, unsigned char* to) {
        if (to) std::memcpy(to, from, 2);
    });
}
void emu::tma_store(const TensorMap* map, const void* src, int x, int y, Loc loc) {
    Quiet quiet;
    needs(90, "TMA store", loc);
    Units& u = units();
    Store s{*map, tile_address(src, *map, "TMA store", loc), x, y, u.store_groups[simt::thread()], simt::at_once(),
            loc};
    const auto* const box = simt::shared_memory() + s.src;
    for (const auto& rows : u.unfenced)
        for (const void* row : rows)
            if (row >= box && row < box + map->box_rows * 128)
                fail("TMA store at %s:%u: no async_fence since a row of it was written", loc.file, loc.line);
    expect_fenced(s.src, size_t(map->box_rows) * 128, "TMA store", loc);
    if (s.landed) land(s);
    u.stores[simt::thread()].push_back(s);
}
void emu::tma_store_commit() {
    Quiet quiet;
    units().store_groups[simt::thread()]++;
}
void simt::tma_store_wait(int newest, Loc loc) {
    if (taken_out(loc)) return;
    Quiet quiet;
    Units& u = units();
    std::vector<Store>& queue = u.stores[simt::thread()];
    while (!queue.empty() && queue.front().group < u.store_groups[simt::thread()] - newest) {
        if (!queue.front().landed) land(queue.front());
        queue.erase(queue.begin());
    }
}

// ------------------------------------------------------------------------------------------------ wgmma

namespace {
// Eight elements of an operand that lie in one 16-byte chunk, the descriptor decoded as the hardware does: (mn, k) and
// its neighbours in memory, mn + 1 .. mn + 7 of an MN-major one.
struct Chunk {
    uint16_t bits[8];
};
Chunk chunk(uint64_t desc, int mn, int k, bool mn_major, Loc loc) {
    auto field = [&](int bit) { return uint32_t(desc >> bit & 0x3fff) << 4; };
    uint32_t at = field(0);
    const uint32_t lbo = field(16), sbo = field(32), row = uint32_t(mn), depth = uint32_t(k);
    if (mn_major)
        at += row / 64 * lbo + depth / 8 * sbo + depth % 8 * 128 + row % 64 * 2;
    else
        at += row / 8 * sbo + row % 8 * 128 + depth * 2;
    at = swizzle(at);
    if (at + 16 > simt::shared_bytes()) fail("wgmma: a descriptor that points outside dynamic shared memory");
    expect_fenced(at, 16, "wgmma", loc);
    Chunk c;
    std::memcpy(&c, simt::shared_memory() + at, 16);
    return c;
}
// to[k * stride + i] = element (mn + i, k), i < count, k < 16
void operand(float* to, int stride, uint64_t desc, int mn, int count, bool mn_major, Loc loc) {
    for (int i = 0; i < (mn_major ? 16 : count); i++)
        for (int j = 0; j < (mn_major ? count : 16); j += 8) {
            const Chunk c = mn_major ? chunk(desc, mn + j, i, true, loc) : chunk(desc, mn + i, j, false, loc);
            for (int e = 0; e < 8; e++) to[mn_major ? i * stride + j + e : (j + e) * stride + i] = widen(c.bits[e]);
        }
}
void carry_out(unsigned warp, const Mma& o) {
    static thread_local float A[16][16], B[16][256], C[16][256];  // A[k][m]
    if (o.registers[0])
        for (int m = 0; m < 16; m++)
            for (int k = 0; k < 16; k++)
                A[k][m] = widen(uint16_t(o.registers[m % 8 * 4 + k % 8 / 2][m / 8 + k / 8 * 2] >> k % 2 * 16));
    else
        operand(A[0], 16, o.a, int(warp % 4) * 16, 16, o.ta, o.loc);
    operand(B[0], 256, o.b, 0, o.n, o.tb, o.loc);
    for (int m = 0; m < 16; m++) {
        for (int n = 0; n < o.n; n++) C[m][n] = 0;
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < o.n; n++) C[m][n] += A[k][m] * B[k][n];
    }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < o.n / 2; i++) {
            const float sum = C[l / 4 + i / 2 % 2 * 8][i / 4 * 8 + l % 4 * 2 + i % 2];
            o.d[l][i] = o.accumulate ? o.d[l][i] + sum : sum;
        }
}
unsigned own_warp() { return simt::thread() / 32; }
}  // namespace

void simt::wgmma(float* d, int n, bool ta, bool tb, uint64_t a, const unsigned* registers, uint64_t b, bool accumulate,
                 Loc loc) {
    needs(90, "wgmma", loc);
    struct Arg {
        float* d;
        uint64_t a;
        const unsigned* registers;
        uint64_t b;
        int n;
        bool ta, tb, accumulate;
        Loc loc;
    };
    Arg arg{d, a, registers, b, n, ta, tb, accumulate, loc};
    simt::warp(
        ~0u, &arg,
        [](void* const* lanes, unsigned) {
            const unsigned w = own_warp();
            const Arg& first = *static_cast<Arg*>(lanes[0]);
            if (simt::warp_count() < w / 4 * 4 + 4)
                fail("wgmma at %s:%u: not a whole warpgroup", first.loc.file, first.loc.line);
            Units& u = units();
            if (!u.mma_fenced[w]) fail("wgmma at %s:%u: no wgmma_fence before it", first.loc.file, first.loc.line);
            Mma mma{first.loc, {}, first.a, {}, first.b, first.n, first.ta, first.tb, first.accumulate};
            for (int l = 0; l < 32; l++) {
                const Arg& own = *static_cast<Arg*>(lanes[l]);
                if (own.a != first.a || own.b != first.b || own.accumulate != first.accumulate)
                    fail("wgmma at %s:%u: lanes give different operands", first.loc.file, first.loc.line);
                mma.d[l] = own.d;
                mma.registers[l] = own.registers;
            }
            // A group that is late stays so: or a wait for all but the newest group would hardly ever be missed.
            if (u.mmas[w].size() == (u.mma_groups[w].empty() ? 0 : u.mma_groups[w].back()))
                u.mma_now[w] = simt::at_once();
            u.mmas[w].push_back(mma);
            if (!u.mma_now[w]) return;
            for (const Mma& o : u.mmas[w]) carry_out(w, o);
            u.mmas[w].clear();
            for (size_t& end : u.mma_groups[w]) end = 0;
        },
        "wgmma", loc, true);
}
void emu::wgmma_fence(Loc loc) {
    simt::warp(
        ~0u, nullptr, [](void* const*, unsigned) { units().mma_fenced[own_warp()] = true; }, "wgmma.fence", loc, true);
}
void emu::wgmma_commit(Loc loc) {
    simt::warp(
        ~0u, nullptr,
        [](void* const*, unsigned) {
            units().mma_groups[own_warp()].push_back(units().mmas[own_warp()].size());
            units().mma_fenced[own_warp()] = false;
        },
        "wgmma.commit_group", loc, true);
}
void simt::wgmma_wait(int newest, Loc loc) {
    if (taken_out(loc)) return;
    struct Arg {
        int newest;
    } arg{newest};
    simt::warp(
        ~0u, &arg,
        [](void* const* lanes, unsigned) {
            const unsigned w = own_warp();
            Units& u = units();
            auto& mmas = u.mmas[w];
            auto& groups = u.mma_groups[w];
            const auto keep = size_t(static_cast<Arg*>(lanes[0])->newest);
            if (groups.size() <= keep) return;
            const size_t old = groups.size() - keep, end = groups[old - 1];
            for (size_t i = 0; i < end; i++) carry_out(w, mmas[i]);
            mmas.erase(mmas.begin(), mmas.begin() + std::ptrdiff_t(end));
            groups.erase(groups.begin(), groups.begin() + std::ptrdiff_t(old));
            for (size_t& g : groups) g -= end;
        },
        "wgmma.wait_group", loc, true);
}

// ------------------------------------------------------------------------------------------------ the end of a thread

namespace {
void needs(int architecture, const char* what, Loc loc) {
    static const char* text = std::getenv("SIMT_ARCH");
    static const int present = text ? std::atoi(text) : 90;
    if (present < architecture) fail("%s at %s:%u: sm_%d has none", what, loc.file, loc.line, present);
}
}  // namespace

void simt::units_thread_end(unsigned thread) {
    const Units& u = the_units;
    if (u.cluster != cluster_number() || u.copies.empty()) return;
    if (!u.copies[thread].empty())
        fail("returned with %zu cp.async not waited for, the oldest from %s:%u", u.copies[thread].size(),
             u.copies[thread][0].loc.file, u.copies[thread][0].loc.line);
    if (!u.stores[thread].empty())
        fail("returned with %zu TMA stores not waited for, the oldest from %s:%u", u.stores[thread].size(),
             u.stores[thread][0].loc.file, u.stores[thread][0].loc.line);
    if (!u.mmas[thread / 32].empty() || !u.mma_groups[thread / 32].empty()) fail("returned with wgmma not waited for");
}
