// instructions.cpp -- what instructions do that are more than a lane's own arithmetic: memory, warps, barriers, tensor
// cores, and copies that run beside the program. Source: PTX ISA 9.0, "Instruction Set".
#include <algorithm>
#include <array>
#include <bit>
#include "count.h"

namespace ptx {
namespace {

using Ull = unsigned long long;

// ---- who executes

// The instruction that F is for one lane.
template <auto F> Result by_lane(Warp& w, const Ins& i, uint32_t mask) {
    each_lane(mask, [&](int lane) { F(w, i, lane); });
    return kNext;
}
// Whether all of `members` are here that have not returned.
bool gathered(const Warp& w, uint32_t members) { return (members & w.alive & ~w.mask) == 0; }
// The instruction that F is for a whole warp (.sync.aligned): it waits until all lanes are here.
template <auto F> Result by_warp(Warp& w, const Ins& i, uint32_t mask) {
    if (!gathered(w, ~0u)) return kConverge;
    if (mask != ~0u) {
        const std::string name = opcode(i.op);
        fail("%s by lanes %08x: it wants all", name.substr(0, name.find(".sync")).c_str(), mask);
    }
    F(w, i);
    return kNext;
}
// Returns what all lanes of the mask have in a register.
template <class T> T common(const Warp& w, int slot, uint32_t mask, const char* what) {
    const T* const x = w.reg<T>(slot);
    const T value = x[std::countr_zero(mask)];
    each_lane(mask, [&](int lane) { if (x[lane] != value) fail("lanes give different %s", what); });
    return value;
}

// ---- memory

enum Space { kGlobal, kShared, kParam, kLocal, kGeneric };

[[noreturn]] void out_of_bounds(const char* space, uint64_t at, int bytes) {
    fail("%s access of %d bytes at 0x%llx: not allocated", space, bytes, Ull(at));
}
// Returns an access's place as a host pointer, after all checks: alignment, bounds, races, launches that come before.
// value: the bytes that a store writes.
char* place(Warp& w, Space space, AccessKind kind, uint64_t at, int bytes, int lane, const char* value = nullptr) {
    Block& b = *w.block;
    const Actor actor{&w, lane, kind, value};
    if (at % unsigned(bytes)) fail("address 0x%llx is not aligned to %d bytes", Ull(at), bytes);
    for (const auto& [window, of] : {std::pair{kLocalWindow, kLocal}, {kSharedWindow, kShared}, {kParamWindow, kParam}})
        if (space == kGeneric && at - window < kWindow) {
            space = of;
            at -= window;
        }
    if (space == kShared) {
        if (at >> 32) fail("shared address 0x%llx", Ull(at));
        return shared_at(b, uint32_t(at), bytes, kind != kWrites, kind != kReads, &actor);
    }
    if (space == kParam) {
        if (kind != kReads || at + unsigned(bytes) > b.launch->params.size()) out_of_bounds("parameter", at, bytes);
        return const_cast<char*>(b.launch->params.data()) + at;
    }
    if (space == kLocal) {
        const uint64_t size = uint64_t(b.kernel->local);
        if (at + unsigned(bytes) > size || at > size)
            fail("local access of %d bytes at %lld of %llu", bytes, static_cast<long long>(at), Ull(size));
        return w.local.data() + uint64_t(lane) * size + at;
    }
    if (b.launch->dependent && !(w.waited >> lane & 1)) fail("global memory before griddepcontrol.wait");
    if (!memory_has(reinterpret_cast<void*>(at), size_t(bytes))) out_of_bounds("global", at, bytes);
    b.races->global(actor, at, bytes);
    return reinterpret_cast<char*>(at);
}

template <Space SPACE> void load(Warp& w, const Ins& i, int lane) {
    const int32_t* const list = w.list(i);
    const int bytes = i.width, unused = 64 - 8 * bytes;
    const char* const from = place(w, SPACE, kReads, address_of(w, i, lane), bytes * i.vec, lane);
    for (int v = 0; v < i.vec; v++) {
        uint64_t x = 0;
        std::memcpy(&x, from + v * bytes, size_t(bytes));
        if (i.extends) x = uint64_t(int64_t(x << unused) >> unused);      // extends the sign
        w.write(list[v], i.list_width, lane, x);
    }
}
template <Space SPACE> void store(Warp& w, const Ins& i, int lane) {
    const int32_t* const list = w.list(i);
    const int bytes = i.width, all = bytes * i.vec;
    char value[32];
    for (int v = 0; v < i.vec; v++) {
        const uint64_t x = w.read(list[v], i.list_width, lane);
        std::memcpy(value + v * bytes, &x, size_t(bytes));
    }
    std::memcpy(place(w, SPACE, kWrites, address_of(w, i, lane), all, lane, value), value, size_t(all));
}
template <Space SPACE, class X, bool MAX = false> void atomic_add(Warp& w, const Ins& i, int lane) {
    char* const at = place(w, SPACE, kAtomically, address_of(w, i, lane), sizeof(X), lane);
    if (SPACE == kGlobal) w.block->races->meet(w, lane, uint64_t(at));
    X before;
    std::memcpy(&before, at, sizeof before);
    const X given = w.reg<X>(i.a[2])[lane], sum = !MAX ? before + given : std::max(before, given);
    std::memcpy(at, &sum, sizeof sum);
    if (i.a[1] >= 0) w.reg<X>(i.a[1])[lane] = before;
}
// mov.b64 {a, b}, c and mov.b64 c, {a, b}; b32, too.
void unpack(Warp& w, const Ins& i, int lane) {
    const int32_t* const list = w.list(i);
    const int bytes = i.width / i.list_n;
    for (int v = 0; v < i.list_n; v++)
        if (list[v] >= 0) w.write(list[v], bytes, lane, w.read(i.a[0], i.width, lane) >> v * bytes * 8);
}
void pack(Warp& w, const Ins& i, int lane) {
    const int32_t* const list = w.list(i);
    const int bytes = i.width / i.list_n;
    uint64_t x = 0;
    for (int v = 0; v < i.list_n; v++) x |= w.read(list[v], bytes, lane) << v * bytes * 8;
    w.write(i.a[0], i.width, lane, x);
}

// ---- warps

// The lanes of the mask jump; the others go on at the next instruction.
Result branch(Warp& w, const Ins& i, uint32_t mask) {
    const Group all = w.groups[size_t(w.at)];
    Group& g = w.groups[size_t(w.at)];
    g.pc = i.target;
    g.mask = mask;
    if (const uint32_t others = all.mask & ~mask) w.groups.push_back({.pc = all.pc, .mask = others});
    return kNext;
}
// The lanes of the mask return. Lanes that wait for others look again.
Result leave(Warp& w, const Ins&, uint32_t mask) {
    if (w.in_flight) fail("returns with wgmma not waited for");
    if (w.block->launch->dependent && (mask & ~w.waited)) fail("returns without griddepcontrol.wait");
    for (const CpAsync& c : w.copies)
        if (mask >> c.lane & 1) fail("returns with cp.async not waited for");
    w.alive &= ~mask;
    Group& g = w.groups[size_t(w.at)];
    g.mask &= ~mask;
    if (!g.mask) w.groups.erase(w.groups.begin() + w.at);
    for (Group& other : w.groups)
        if (other.wait == kConverge) other.wait = kNext;
    return kNext;
}

// Returns the member mask that the lanes give, in which all of them are.
uint32_t members_of(const Warp& w, int slot, uint32_t mask) {
    const uint32_t members = common<uint32_t>(w, slot, mask, "member masks");
    if (const uint32_t others = mask & ~members)
        fail("lane %d is not in its member mask %08x", std::countr_zero(others), members);
    return members;
}

enum Mode { kUp, kDown, kBfly, kIdx };
// shfl.sync. A lane whose source is outside of its segment keeps its own value, and its predicate is false.
template <Mode MODE> Result shuffle(Warp& w, const Ins& i, uint32_t mask) {
    if (!gathered(w, members_of(w, i.a[4], mask))) return kConverge;
    const uint32_t *a = w.reg<uint32_t>(i.a[1]), *b = w.reg<uint32_t>(i.a[2]), *c = w.reg<uint32_t>(i.a[3]);
    uint32_t values[32], in_range = 0;
    each_lane(mask, [&](int lane) {
        const int by = int(b[lane] & 31), clamp = int(c[lane] & 31), segment = int(c[lane] >> 8 & 31);
        const int first = lane & segment, last = first | (clamp & ~segment);
        const int from = MODE == kUp ? lane - by : MODE == kDown ? lane + by : MODE == kBfly ? lane ^ by
                                                                             : first | (by & ~segment);
        const bool valid = MODE == kUp ? from >= last : from <= last;       // up: c's bound is the lowest lane
        const int source = valid ? from : lane;
        if (!(mask >> source & 1)) fail("shfl: lane %d reads lane %d, which takes no part", lane, source);
        values[lane] = a[source];
        in_range |= uint32_t(valid) << lane;
    });
    each_lane(mask, [&](int lane) { w.reg<uint32_t>(i.a[0])[lane] = values[lane]; });
    if (i.a[5] >= 0) w.set_predicate(i.a[5], mask, in_range);
    return kNext;
}
Result ballot(Warp& w, const Ins& i, uint32_t mask) {
    const uint32_t members = members_of(w, i.a[2], mask);
    if (!gathered(w, members)) return kConverge;
    const uint32_t bits = w.pr[i.a[1]] & mask & members;
    each_lane(mask, [&](int lane) { w.reg<uint32_t>(i.a[0])[lane] = bits; });
    return kNext;
}
Result warp_sync(Warp& w, const Ins& i, uint32_t mask) {
    const uint32_t members = members_of(w, i.a[0], mask);
    if (!gathered(w, members)) return kConverge;
    w.block->races->sync_lanes(w, members & w.alive);
    return kNext;
}

// ---- barriers

// bar.sync and bar.arrive, which does not wait. A warp counts as 32 threads.
template <bool WAITS> Result barrier(Warp& w, const Ins& i, uint32_t mask) {
    if (!gathered(w, ~0u)) return kConverge;
    Block& b = *w.block;
    const uint32_t id = common<uint32_t>(w, i.a[0], mask, "barriers");
    const uint32_t threads = i.a[1] < 0 ? 0 : common<uint32_t>(w, i.a[1], mask, "numbers of threads");
    if (id > 15) fail("barrier %u", id);
    if (i.a[1] >= 0 && (!threads || threads % 32 || threads > b.warps.size() * 32))
        fail("barrier for %u threads", threads);
    Barrier& bar = b.barriers[id];
    const uint32_t expected = threads ? threads : kAllThreads;
    if (bar.arrived && bar.expected != expected)
        fail("barrier %u: %u threads, and %u before", id, threads, bar.expected);
    bar.expected = expected;
    bar.arrived += 32;
    bar.released.add(w, w.alive);
    w.order.time++;
    if (threads && bar.arrived > threads) fail("barrier %u: more than %u threads", id, threads);
    if (!WAITS) return kNext;
    w.barrier = int(id);
    w.generation = bar.generation;
    return kBarrier;            // the scheduler looks whether it is complete
}

// Returns the mbarrier at an address, which a lane may use if it was made before.
Mbar& mbar_at(Warp& w, int lane, uint32_t at) {
    const auto it = w.block->mbars.find(at);
    if (it == w.block->mbars.end()) fail("no mbarrier at shared address %u", at);
    w.block->races->shared({&w, lane, kLooks}, at, 8, nullptr);
    return it->second;
}
void mbar_init(Warp& w, const Ins& i, int lane) {
    Block& b = *w.block;
    const uint32_t at = uint32_t(address_of(w, i, lane)), arrivals = w.reg<uint32_t>(i.a[1])[lane];
    if (at % 8 || arrivals < 1 || arrivals >= 1u << 20) fail("mbarrier.init of %u at %u", arrivals, at);
    const Actor actor{&w, lane, kWrites};
    shared_at(b, at, 8, false, true, &actor);
    std::memset(b.shadow.data() + at, kBarrierByte, 8);
    Mbar& m = b.mbars[at] = {};
    m.expected = m.pending = arrivals;
    m.agent = b.races->mbarrier_agent();
}
// a[1]: the bytes that the phase waits for, too; -1: none.
void mbar_arrive(Warp& w, const Ins& i, int lane) {
    Mbar& m = mbar_at(w, lane, uint32_t(address_of(w, i, lane)));
    if (!m.pending) fail("mbarrier: more arrivals in a phase than the %u it was made for", m.expected);
    if (i.a[1] >= 0) m.bytes += int(w.reg<uint32_t>(i.a[1])[lane]);
    if (m.bytes >= 1 << 20) fail("mbarrier: %d bytes expected", m.bytes);
    m.pending--;
    m.released.add(w, 1u << lane);
    w.order.time++;
    m.may_end();
}
Result mbar_try_wait(Warp& w, const Ins& i, uint32_t mask) {
    uint32_t ended = 0;
    Group& g = w.groups[size_t(w.at)];
    each_lane(mask, [&](int lane) {
        const uint32_t at = uint32_t(address_of(w, i, lane)), parity = w.reg<uint32_t>(i.a[1])[lane];
        if (parity > 1) fail("mbarrier.try_wait: parity %u", parity);
        ended |= uint32_t(mbar_at(w, lane, at).phase != parity) << lane;
        g.bar[lane] = at;
        g.parity[lane] = uint8_t(parity);
    });
    if (!ended && w.block->draw() % 4) {        // sometimes it gives up, as the hardware may
        g.barred = mask;
        return kMbar;
    }
    w.set_predicate(i.a[2], mask, ended);
    while (ended) {                             // the lanes at one mbarrier together
        const uint32_t at = g.bar[std::countr_zero(ended)];
        uint32_t same = 0;
        each_lane(ended, [&](int lane) { same |= uint32_t(g.bar[lane] == at) << lane; });
        Mbar& m = w.block->mbars[at];
        m.waited = m.time;
        w.block->races->acquire(w, same, m.ended);
        ended &= ~same;
    }
    return kNext;
}

// ---- cp.async

// The bytes are not to be read until they land.
void under_way(Block& b, uint32_t at, uint32_t bytes) {
    std::memset(b.shadow.data() + at, kFresh, bytes);
    std::memset(b.shared.data() + at, 0xff, bytes);
}
// a[0] + imm: to; a[1] + from: from; a[2]: bytes that exist, others become zeros
void cp_async(Warp& w, const Ins& i, int lane) {
    const uint32_t to = uint32_t(address_of(w, i, lane));
    const uint64_t from = (i.a[1] < 0 ? 0 : w.read(i.a[1], 8, lane)) + uint64_t(i.from);
    const int size = int(w.reg<uint32_t>(i.a[2])[lane]);
    if (size < 0 || size > 16 || to % 16 || from % 16)
        fail("cp.async: %d bytes from 0x%llx to %u", size, Ull(from), to);
    if (size) place(w, kGlobal, kReads, from, 16, lane);
    Actor actor{&w, lane, kWrites};
    actor.copy = true;
    shared_at(*w.block, to, 16, false, true, &actor);
    under_way(*w.block, to, 16);
    w.copies.push_back({lane, to, reinterpret_cast<void*>(from), size, w.commits[lane]});
}
void cp_commit(Warp& w, const Ins&, int lane) { w.commits[lane]++; }
// All but the newest groups of each lane land.
Result cp_wait(Warp& w, const Ins& i, uint32_t mask) {
    std::erase_if(w.copies, [&](const CpAsync& c) {
        if (!(mask >> c.lane & 1) || c.group + uint64_t(i.imm) >= w.commits[c.lane]) return false;
        char* const to = shared_at(*w.block, c.to, 16, false, true);
        std::memset(to, 0, 16);
        if (c.size) std::memcpy(to, c.from, size_t(c.size));
        w.block->races->landed(w, c.lane, c.to);
        return true;
    });
    return kNext;
}

// ---- TMA

// A load under way: rows of the box stand one after another; with a swizzle of `span` bytes bits 4.. of the address are
// xor-ed with bits 7.. (PTX ISA, "Tensor Swizzling Modes").
struct Box {
    TensorMap map;
    uint32_t to, bar, row_bytes, rows = 1, span;
    std::array<int32_t, 3> start = {};
    Actor reader;                               // the global memory's

    uint32_t bytes() const { return row_bytes * rows; }
};
// Returns the address of element x of row `row`, or 0 where it lies outside of the tensor.
uint64_t element(const Box& box, int64_t x, uint32_t row) {
    const TensorMap& map = box.map;
    int64_t at = box.start[0] + x;
    bool inside = at >= 0 && uint64_t(at) < map.size[0];
    uint64_t address = map.address + uint64_t(at) * 2;
    for (unsigned d = 1; d < map.rank; d++) {
        at = box.start[d] + row % map.box[d];
        row /= map.box[d];
        inside &= at >= 0 && uint64_t(at) < map.size[d];
        address += uint64_t(at) * map.stride[d - 1];
    }
    return inside ? address : 0;
}
// Copies the box, in elements of 2 bytes; outside of the tensor they are 0.
void bring(Block& b, const Box& box) {
    for (uint32_t row = 0; row < box.rows; row++)
        for (uint32_t x = 0; x < box.row_bytes; x += 2) {
            uint32_t to = box.to + row * box.row_bytes + x;
            if (box.span) to ^= (to >> 7 & (box.span / 16 - 1)) << 4;
            uint16_t value = 0;
            if (const uint64_t at = element(box, x / 2, row)) {
                const void* const from = reinterpret_cast<void*>(at);
                if (!memory_has(from, 2)) fail("TMA load of the element at %p: not allocated", from);
                std::memcpy(&value, from, 2);
                const int64_t first = box.start[0] + int64_t(x / 2);
                const uint64_t left = (box.map.size[0] - uint64_t(first)) * 2;      // bytes to the row's end
                const uint64_t more = std::min(uint64_t(box.row_bytes - x), left);
                if (b.kernel->counters && x == 0) count_box(b, from, unsigned(more));
                if (x == 0 || at % 16 == 0) b.races->global(box.reader, at, int(std::min(16 - at % 16, more)));
            }
            std::memcpy(b.shared.data() + to, &value, 2);
        }
    std::memset(b.shadow.data() + box.to, kSet, box.bytes());
    b.landed(box.bar, int(box.bytes()));
}
TensorMap map_at(const Warp& w, uint64_t at, int rank) {
    const std::vector<char>& params = w.block->launch->params;
    TensorMap map;
    if (at % 64) fail("tensor map at 0x%llx: not aligned to 64 bytes", Ull(at));
    if (at < kParamWindow || at + 128 > kParamWindow + params.size())
        fail("tensor map at 0x%llx: in no kernel parameter", Ull(at));
    std::memcpy(&map, params.data() + (at - kParamWindow), sizeof map);
    if (map.magic != kMapMagic) fail("no tensor map at 0x%llx", Ull(at));
    if (int(map.rank) != rank) fail("tensor map of rank %u, instruction of %d", map.rank, rank);
    return map;
}
// a[0] + imm: to; a[1]: the map; a[2..4]: where in it; a[5]: the mbarrier
void tma_load(Warp& w, const Ins& i, int lane) {
    Block& b = *w.block;
    Box box;
    const int dimensions = i.a[4] < 0 ? 2 : 3;
    box.map = map_at(w, w.read(i.a[1], 8, lane), dimensions);
    if (b.launch->dependent && !(w.waited >> lane & 1)) fail("TMA before griddepcontrol.wait");
    box.to = uint32_t(address_of(w, i, lane));
    box.bar = w.reg<uint32_t>(i.a[5])[lane];
    box.row_bytes = box.map.box[0] * 2u;
    box.span = box.map.swizzle ? 16u << box.map.swizzle : 0;
    for (unsigned d = 1; d < box.map.rank; d++) box.rows *= box.map.box[d];
    for (int d = 0; d < dimensions; d++) box.start[size_t(d)] = w.reg<int32_t>(i.a[2 + d])[lane];
    if (box.to % (box.span == 128 ? 1024 : 128)) fail("TMA load to shared address %u: not aligned", box.to);
    const Mbar& m = mbar_at(w, lane, box.bar);
    if (!m.fenced) fail("TMA load: no fence.mbarrier_init since its barrier was made");
    Actor writer{&w, lane, kWrites};
    writer.mbarrier = m.agent;
    writer.phase = m.time;
    writer.loc = i.loc;
    box.reader = writer;
    box.reader.kind = kReads;
    for (uint32_t x = 0; x < box.bytes(); x += 16) shared_at(b, box.to + x, 16, false, true, &writer);
    under_way(b, box.to, box.bytes());
    if (b.kernel->counters) b.kernel->counters->box_bytes += box.bytes();
    b.later.push_back([&b, box] { bring(b, box); });
}

// ---- tensor cores

// d += a b: 16 rows and 16 steps k, up to 256 columns. One stands here at a time.
struct Product {
    float a[16][16], b[16][256], d[16][256];    // a[m][k], b[k][n], d[m][n]
} product;

float low(uint32_t two) { return std::bit_cast<float>(two << 16); }
float high(uint32_t two) { return std::bit_cast<float>(two & 0xffff0000u); }

// 16 products in order of k, in float, and their sum to d.
void multiply(int columns) {
    for (int m = 0; m < 16; m++)
        for (int first = 0; first < columns; first += 8) {
            float sums[8] = {};
            for (int k = 0; k < 16; k++)
                for (int n = 0; n < 8; n++) sums[n] += product.a[m][k] * product.b[k][first + n];
            for (int n = 0; n < 8; n++) product.d[m][first + n] += sums[n];
        }
}
// Where fragments have their elements: PTX ISA, "Matrix Fragments for mma.m16n8k16", and those of wgmma.
void read_a(const Warp& w, const int32_t* registers) {
    for (int j = 0; j < 4; j++)
        for (int lane = 0; lane < 32; lane++) {
            const uint32_t two = w.reg<uint32_t>(registers[j])[lane];
            float* const a = &product.a[lane / 4 + j % 2 * 8][lane % 4 * 2 + j / 2 * 8];
            a[0] = low(two);
            a[1] = high(two);
        }
}
void read_b(const Warp& w, const int32_t* registers) {
    for (int j = 0; j < 2; j++)
        for (int lane = 0; lane < 32; lane++) {
            const uint32_t two = w.reg<uint32_t>(registers[j])[lane];
            product.b[lane % 4 * 2 + j * 8][lane / 4] = low(two);
            product.b[lane % 4 * 2 + j * 8 + 1][lane / 4] = high(two);
        }
}
// f(the product's element, the lane's register) for each accumulator
template <class F> void each_sum(const Warp& w, const int32_t* registers, int columns, const F& f) {
    for (int j = 0; j < columns / 2; j++)
        for (int lane = 0; lane < 32; lane++) {
            const int m = lane / 4 + j % 4 / 2 * 8, n = j / 4 * 8 + lane % 4 * 2 + j % 2;
            f(product.d[m][n], w.reg<float>(registers[j])[lane]);
        }
}
void mma(Warp& w, const Ins& i) {
    const int32_t* const registers = w.list(i);         // d 4, a 4, b 2, c 4
    read_a(w, registers + 4);
    read_b(w, registers + 8);
    each_sum(w, registers + 10, 8, [](float& d, float c) { d = c; });
    multiply(8);
    each_sum(w, registers, 8, [](float d, float& out) { out = d; });
}
// What was never written reads as NaN: a kernel may load more rows than it uses.
template <bool TRANSPOSES> void ldmatrix(Warp& w, const Ins& i) {
    uint16_t rows[32][8];
    for (int lane = 0; lane < 32; lane++) {
        const uint64_t at = address_of(w, i, lane);
        if (at % 16) fail("ldmatrix: a row at %u, not aligned", uint32_t(at));
        const Actor actor{&w, lane, kReads};
        std::memcpy(rows[lane], shared_at(*w.block, uint32_t(at), 16, false, false, &actor), 16);
    }
    for (int j = 0; j < 4; j++)
        for (int lane = 0; lane < 32; lane++) {
            const auto element = [&](int row, int column) {
                return uint32_t(TRANSPOSES ? rows[8 * j + column][row] : rows[8 * j + row][column]);
            };
            const int row = lane / 4, column = lane % 4 * 2;
            w.reg<uint32_t>(w.list(i)[j])[lane] = element(row, column) | element(row, column + 1) << 16;
        }
}

// ---- wgmma

// Returns the address of 8 elements along the major dimension at (mn, k), of which a descriptor says where they are.
// Source: PTX ISA, "Matrix Descriptor Format", and CUTLASS's canonical layouts, in units of 16 bytes: K-major
// ((8,m),(T,2)):((8T,SBO),(1,T)), MN-major ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)), swizzled by the address's own bits.
uint32_t chunk(uint64_t descriptor, uint32_t mn, uint32_t k, bool mn_major) {
    const auto field = [&](int bit) { return uint32_t(descriptor >> bit & 0x3fff) << 4; };
    const uint32_t start = field(0), lbo = field(16), sbo = field(32);
    const uint32_t base = uint32_t(descriptor >> 49 & 7), mode = uint32_t(descriptor >> 62);
    constexpr uint64_t kUnused = uint64_t(3) << 14 | uint64_t(3) << 30 | uint64_t(7) << 46 | uint64_t(0x3ff) << 52;
    if (mode != 1) fail("wgmma: swizzle mode %u", mode);
    if (base) fail("wgmma: base offset %u", base);
    if (descriptor & kUnused) fail("wgmma: descriptor %016llx", Ull(descriptor));
    if (start >> 7 & 7) fail("wgmma: a tile at %u with base offset 0: not at a multiple of 1024", start);
    const uint32_t at = start + (mn_major ? mn / 64 * lbo + mn % 64 * 2 + k / 8 * sbo + k % 8 * 128
                                          : mn / 8 * sbo + mn % 8 * 128 + k * 2);
    return at ^ (at >> 7 & 7) << 4;
}
// f(mn, k, address) for each 16 bytes of an operand of 16 k
template <class F> void each_chunk(uint64_t descriptor, int begin, int count, bool mn_major, const F& f) {
    for (int mn = 0; mn < count; mn += mn_major ? 8 : 1)
        for (int k = 0; k < 16; k += mn_major ? 1 : 8)
            f(mn, k, chunk(descriptor, uint32_t(begin + mn), uint32_t(k), mn_major));
}
// x[mn * by_mn + k * by_k] becomes what the descriptor shows.
void read_tile(Warp& w, uint64_t descriptor, int begin, int count, bool mn_major, float* x, int by_mn, int by_k) {
    each_chunk(descriptor, begin, count, mn_major, [&](int mn, int k, uint32_t at) {
        uint16_t eight[8];
        std::memcpy(eight, shared_at(*w.block, at, 16, true, false), 16);
        for (int e = 0; e < 8; e++) x[mn * by_mn + k * by_k + e * (mn_major ? by_mn : by_k)] = low(eight[e]);
    });
}
void mark(Warp& w, const Ins& i, uint8_t accumulator, uint8_t operand) {
    for (int j = 0; j < i.list_n; j++) w.busy[size_t(w.list(i)[j] / 128)] = j < i.imm / 2 ? accumulator : operand;
}
void mark_busy(Warp& w, const Ins& i) { mark(w, i, kWritten, kRead); }

// Rows of a that belong to this warp of the warpgroup.
int first_row(const Warp& w) { return w.id % 4 * 16; }
// Issues it: it is carried out when it is waited for, and until then nobody may touch what it uses.
void wgmma(Warp& w, const Ins& i) {
    if (w.block->warps.size() < size_t(w.id / 4 * 4 + 4)) fail("wgmma: not a whole warpgroup");
    if (!w.fenced) fail("wgmma: no wgmma.fence before it");
    for (int j = 0; j < i.list_n; j++)
        if (w.written[size_t(w.list(i)[j] / 128)] >= w.fences)
            fail("wgmma: register %d of its was written since wgmma.fence", j);
    const bool a_in_registers = i.a[0] < 0;
    const uint64_t a = a_in_registers ? 0 : common<uint64_t>(w, i.a[0], ~0u, "A");
    const uint64_t b = common<uint64_t>(w, i.a[1], ~0u, "B");
    const uint32_t scale_d = w.pr[i.a[2]];
    if (scale_d && scale_d != ~0u) fail("lanes give different scale-d");
    const Actor core{&w, -1, kReads};
    const auto reads = [&](int, int, uint32_t at) { shared_at(*w.block, at, 16, false, false, &core); };
    if (!a_in_registers) each_chunk(a, first_row(w), 16, i.a[3], reads);
    each_chunk(b, 0, int(i.imm), i.a[4], reads);
    w.mmas.push_back({&i, a, b, scale_d != 0, w.order.time});
    mark_busy(w, i);
    w.in_flight++;
}
void carry_out(Warp& w, const Wgmma& g) {
    const Ins& i = *g.ins;
    const int columns = int(i.imm);
    w.loc = i.loc;
    if (i.a[0] < 0) read_a(w, w.list(i) + columns / 2);
    else read_tile(w, g.a, first_row(w), 16, i.a[3], product.a[0], 16, 1);
    read_tile(w, g.b, 0, columns, i.a[4], product.b[0], 1, 256);
    each_sum(w, w.list(i), columns, [&](float& d, float c) { d = g.accumulate ? c : 0; });
    multiply(columns);
    each_sum(w, w.list(i), columns, [](float d, float& out) { out = d; });
}
void wgmma_fence(Warp& w, const Ins&) {
    w.fenced = true;
    w.fences++;
}
void wgmma_commit(Warp& w, const Ins&) {
    w.mma_groups.push_back(w.mmas.size());
    w.order.time++;
}
// Carries out all but the newest groups.
void wgmma_wait(Warp& w, const Ins& i) {
    const size_t keep = size_t(i.imm), groups = w.mma_groups.size();
    if (groups <= keep) return;
    const size_t done = w.mma_groups[groups - keep - 1];
    for (size_t j = 0; j < done; j++) carry_out(w, w.mmas[j]);
    if (done) w.block->races->finish_wgmmas(w, w.mmas[done - 1].time);
    for (size_t j = 0; j < done; j++) mark(w, *w.mmas[j].ins, kIdle, kIdle);
    w.mmas.erase(w.mmas.begin(), w.mmas.begin() + std::ptrdiff_t(done));
    for (const Wgmma& g : w.mmas) mark_busy(w, *g.ins);
    w.mma_groups.erase(w.mma_groups.begin(), w.mma_groups.end() - std::ptrdiff_t(keep));
    for (size_t& group : w.mma_groups) group -= done;
    w.in_flight = w.mmas.size();
}

// ---- fences, launches, and what only hardware needs

Result prefetch(Warp&, const Ins&, uint32_t) { return kNext; }
Result trap(Warp&, const Ins&, uint32_t) { fail("trap"); }
Result device_fence(Warp& w, const Ins&, uint32_t mask) {
    w.block->races->fence(w, mask);
    return kNext;
}
Result async_fence(Warp& w, const Ins&, uint32_t mask) {
    w.block->races->pass_on(w, mask);
    return kNext;
}
Result mbar_fence(Warp& w, const Ins&, uint32_t) {
    for (auto& [at, m] : w.block->mbars) m.fenced = true;
    return kNext;
}
Result dependency_wait(Warp& w, const Ins&, uint32_t mask) {
    w.waited |= mask;
    return kNext;
}
Result launch_dependents(Warp& w, const Ins&, uint32_t mask) {
    if (w.block->launch->dependent && (mask & ~w.waited)) fail("griddepcontrol.launch_dependents before the wait");
    return kNext;
}
void set_registers(Warp&, const Ins& i) {
    if (i.imm % 8 || i.imm < 24 || i.imm > 256) fail("setmaxnreg %lld", static_cast<long long>(i.imm));
}

}  // namespace

static Instructions make_table() {
    Instructions table = {
        {"ld", {by_lane<load<kGeneric>>, "D*, @0"}},
        {"ld.global", {by_lane<load<kGlobal>>, "D*, @0"}},
        {"ld.local", {by_lane<load<kLocal>>, "D*, @0"}},
        {"ld.param", {by_lane<load<kParam>>, "D*, @0"}},
        {"ld.shared", {by_lane<load<kShared>>, "D*, @0"}},
        {"st", {by_lane<store<kGeneric>>, "@0, R*"}},
        {"st.global", {by_lane<store<kGlobal>>, "@0, R*"}},
        {"st.local", {by_lane<store<kLocal>>, "@0, R*"}},
        {"st.shared", {by_lane<store<kShared>>, "@0, R*"}},
        {"mov.b32 {0}", {by_lane<unpack>, "D+, r0"}},
        {"mov.b32 {1}", {by_lane<pack>, "d0, R+"}},
        {"mov.b64 {0}", {by_lane<unpack>, "D+, s0"}},
        {"mov.b64 {1}", {by_lane<pack>, "e0, R+"}},
        {"atom.global.add.u32", {by_lane<atomic_add<kGlobal, uint32_t>>, "d1, @0, r2"}},
        {"atom.global.add.f32", {by_lane<atomic_add<kGlobal, float>>, "d1, @0, r2"}},
        {"atom.global.max.u64", {by_lane<atomic_add<kGlobal, uint64_t, true>>, "e1, @0, s2"}},
        {"atom.shared.add.u32", {by_lane<atomic_add<kShared, uint32_t>>, "d1, @0, r2"}},
        {"bra", {branch, "L"}},
        {"bra.uni", {branch, "L"}},
        {"exit", {leave}},
        {"ret", {leave}},
        {"shfl.sync.bfly.b32", {shuffle<kBfly>, "d0, q5?, r1, r2, r3, r4"}},
        {"shfl.sync.down.b32", {shuffle<kDown>, "d0, q5?, r1, r2, r3, r4"}},
        {"shfl.sync.idx.b32", {shuffle<kIdx>, "d0, q5?, r1, r2, r3, r4"}},
        {"shfl.sync.up.b32", {shuffle<kUp>, "d0, q5?, r1, r2, r3, r4"}},
        {"vote.sync.ballot.b32", {ballot, "d0, p1, r2"}},
        {"bar.arrive", {barrier<false>, "r0, r1?"}},
        {"bar.sync", {barrier<true>, "r0, r1?"}},
        {"bar.warp.sync", {warp_sync, "r0"}},
        {"mbarrier.init.shared::cta.b64", {by_lane<mbar_init>, "@0, r1"}},
        {"mbarrier.arrive.shared::cta.b64", {by_lane<mbar_arrive>, "_, @0, r1?"}},
        {"mbarrier.arrive.expect_tx.shared::cta.b64", {by_lane<mbar_arrive>, "_, @0, r1?"}},
        {"mbarrier.try_wait.parity.shared::cta.b64", {mbar_try_wait, "q2, @0, r1"}},
        {"membar.gl", {device_fence}},
        {"membar.sys", {device_fence}},
        {"fence.acq_rel.gpu", {device_fence}},
        {"fence.acq_rel.sys", {device_fence}},
        {"fence.mbarrier_init.release.cluster", {mbar_fence}},
        {"fence.proxy.async.shared::cta", {async_fence}},
        {"cp.async.cg.shared.global.L2::128B", {by_lane<cp_async>, "@0, @1, 16, r2=16"}},
        {"cp.async.commit_group", {by_lane<cp_commit>}},
        {"cp.async.wait_group", {cp_wait, "#"}},
        {"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
         {by_lane<tma_load>, "@0, [s1, {r2, r3}], [r5]"}},
        {"cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes",
         {by_lane<tma_load>, "@0, [s1, {r2, r3, r4}], [r5]"}},
        {"prefetch.tensormap", {prefetch, "@0"}},
        {"prefetch.global.L2", {prefetch, "@0"}},
        {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", {by_warp<ldmatrix<false>>, "D4, @0"}},
        {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", {by_warp<ldmatrix<true>>, "D4, @0"}},
        {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", {by_warp<mma>, "D4, R4, R2, R4"}},
        {"wgmma.fence.sync.aligned", {by_warp<wgmma_fence>}},
        {"wgmma.commit_group.sync.aligned", {by_warp<wgmma_commit>}},
        {"wgmma.wait_group.sync.aligned", {by_warp<wgmma_wait>, "#"}},
        {"setmaxnreg.inc.sync.aligned.u32", {by_warp<set_registers>, "#"}},
        {"setmaxnreg.dec.sync.aligned.u32", {by_warp<set_registers>, "#"}},
        {"griddepcontrol.wait", {dependency_wait}},
        {"griddepcontrol.launch_dependents", {launch_dependents}},
        {"trap", {trap}},
    };
    for (int n = 8; n <= 256; n += 8) {
        const std::string name = format("wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {0}", n);
        table[name] = {by_warp<wgmma>, format("D%d, s0, s1, p2, 1, 1, #3, #4", n / 2), n};
        table[name + " {1}"] = {by_warp<wgmma>, format("D%d, R4, s1, p2, 1, 1, #4", n / 2), n};
    }
    add_arithmetic(table);
    return table;
}
const Instruction* find_instruction(const std::string& name) {
    static const Instructions table = make_table();
    const auto it = table.find(name);
    return it == table.end() ? nullptr : &it->second;
}

}  // namespace ptx
