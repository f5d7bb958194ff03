// engine.cpp -- runs grids: blocks one after another, a block's warps by turns in random order.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include "count.h"
#include "tests/gpu/runtime.h"

namespace ptx {

// ---- memory

static std::map<uintptr_t, Allocation> allocations;         // by address
static Allocation recent;                                   // found last by memory_has

static bool holds(const Allocation& a, uintptr_t at, size_t bytes) {
    return at >= a.begin && bytes <= a.bytes && at - a.begin <= a.bytes - bytes;
}
void memory_add(const Allocation& a) { allocations[a.begin] = a; }
void memory_remove(const void* p) {
    allocations.erase(uintptr_t(p));
    recent = {};
}
const Allocation* memory_at(const void* p, size_t bytes) {
    const auto it = allocations.upper_bound(uintptr_t(p));
    if (it == allocations.begin()) return nullptr;
    const Allocation& before = std::prev(it)->second;
    return holds(before, uintptr_t(p), bytes) ? &before : nullptr;
}
bool memory_has(const void* p, size_t bytes) {
    if (holds(recent, uintptr_t(p), bytes)) return true;
    const Allocation* const found = memory_at(p, bytes);
    if (found) recent = *found;
    return found;
}

char* shared_at(Block& b, uint32_t at, int bytes, bool read, bool write, const Actor* actor) {
    if (size_t(at) + size_t(bytes) > b.shared.size())
        fail("shared access of %d bytes at %u of %zu", bytes, at, b.shared.size());
    uint8_t* const shadow = b.shadow.data() + at;
    char* const place = b.shared.data() + at;
    if (actor) b.races->shared(*actor, at, bytes, place);
    static const std::vector<uint8_t> all_set(64, kSet);
    if (size_t(bytes) <= all_set.size() && !std::memcmp(shadow, all_set.data(), size_t(bytes))) return place;
    for (int x = 0; x < bytes; x++) {
        const bool initializes = write && bytes == 8 && !read;
        if (shadow[x] == kGap) fail("shared access at %u: between the arrays", at);
        if (shadow[x] == kBarrierByte && !initializes) fail("shared access at %u: an mbarrier", at);
        if (read && shadow[x] == kFresh)
            fail("shared read of %d bytes at %u: byte %d was never written", bytes, at, x);
    }
    if (write && shadow[0] != kBarrierByte) std::memset(shadow, kSet, size_t(bytes));
    return place;
}

void Block::landed(uint32_t bar, int bytes) {
    const auto it = mbars.find(bar);
    if (it == mbars.end()) fail("TMA: no mbarrier at %u", bar);
    Mbar& m = it->second;
    m.bytes -= bytes;
    m.loaded = m.time;
    if (m.bytes <= -(1 << 20)) fail("mbarrier: %d bytes too many", -m.bytes);
    m.may_end();
}
// Ends the phase when all have arrived and all bytes have landed.
void Mbar::may_end() {
    if (pending || bytes) return;
    phase ^= 1;
    pending = expected;
    (*released.sum)[agent] = time++;
    ended = std::make_shared<const Clock>(*released.sum);
}

namespace {

// ---- which lanes of a warp go on

bool may_go(const Warp& w, const Group& g) {
    if (g.wait == kNext) return true;
    if (g.wait == kConverge) return false;
    bool ended = false;
    each_lane(g.barred, [&](int lane) {
        const auto it = w.block->mbars.find(g.bar[lane]);
        ended |= it == w.block->mbars.end() || it->second.phase != g.parity[lane];
    });
    return ended;
}
// Joins groups that have come to one instruction, but for those that stay behind.
void join_groups(Warp& w) {
    for (size_t i = 0; i < w.groups.size(); i++)
        for (size_t j = i + 1; j < w.groups.size();) {
            Group &a = w.groups[i], &b = w.groups[j];
            if (a.pc != b.pc || (a.until > w.steps) != (b.until > w.steps)) {
                j++;
                continue;
            }
            a.mask |= b.mask;
            a.until = 0;
            a.wait = kNext;
            w.groups.erase(w.groups.begin() + std::ptrdiff_t(j));
        }
}
// Returns the number of the group that goes on, -1 for none: the first in the program, or one that stays behind when
// there is nobody else.
int next_group(Warp& w) {
    join_groups(w);
    for (const bool behind : {false, true}) {
        int best = -1;
        for (size_t i = 0; i < w.groups.size(); i++)
            if (may_go(w, w.groups[i]) && (w.groups[i].until > w.steps) == behind &&
                (best < 0 || w.groups[i].pc < w.groups[size_t(best)].pc))
                best = int(i);
        if (best < 0) continue;
        if (!behind) return best;
        w.groups[size_t(best)].until = 0;
        return next_group(w);
    }
    return -1;
}
bool choose(Warp& w) {
    w.at = next_group(w);
    if (w.at >= 0) w.groups[size_t(w.at)].wait = kNext;
    return w.at >= 0;
}
// SOFT_GPU_SPLIT=1: some lanes fall behind, as those of a real warp may; whoever needs all of them has to say so.
void split(Warp& w) {
    static const bool splits = std::getenv("SOFT_GPU_SPLIT");
    Block& b = *w.block;
    if (!splits || b.draw() % 2 == 0) return;
    Group& g = w.groups[size_t(w.at)];
    const uint32_t behind = g.mask & uint32_t(b.draw() >> 16);
    if (!behind || behind == g.mask) return;
    g.mask &= ~behind;
    w.groups.push_back({.pc = g.pc, .mask = behind, .until = w.steps + 1 + b.draw() % 3000});
}

bool complete(const Block& b, const Barrier& bar) {
    uint32_t expected = bar.expected;
    if (expected == kAllThreads)
        expected = 32 * uint32_t(std::ranges::count_if(b.warps, [](const Warp& w) { return w.alive != 0; }));
    return bar.arrived && bar.arrived >= expected;
}
// Whether the warp has something to execute. The barrier that it waits at opens here.
bool runnable(Warp& w) {
    if (!w.alive) return false;
    if (w.barrier >= 0) {
        Barrier& bar = w.block->barriers[w.barrier];
        if (bar.generation == w.generation) {
            if (!complete(*w.block, bar)) return false;
            bar.generation++;
            bar.arrived = 0;
            bar.done = bar.released.sum;
            bar.released = {};
        }
        w.barrier = -1;
        w.block->races->adopt(w, w.alive, bar.done);
    }
    return next_group(w) >= 0;
}

// ---- instructions

// Executes an instruction; registers of an unfinished wgmma are not to be touched.
Result execute(Warp& w, const Kernel& k, const Ins& i, uint32_t mask) {
    if (!k.has_wgmma || i.is_wgmma) return i.fn(w, i, mask);    // accumulators of wgmmas may follow each other
    const int32_t* const writes = k.more.data() + i.uses;
    const int32_t* const reads = writes + i.writes;
    for (int j = 0; w.in_flight && j < i.writes; j++)
        if (w.busy[size_t(writes[j] / 128)]) fail("writes a register of an unfinished wgmma");
    for (int j = 0; w.in_flight && j < i.reads; j++)
        if (w.busy[size_t(reads[j] / 128)] == kWritten) fail("reads an accumulator of an unfinished wgmma");
    const Result result = i.fn(w, i, mask);
    if (result == kConverge || result == kMbar) return result;
    for (int j = 0; j < i.writes; j++) w.written[size_t(writes[j] / 128)] = w.fences;
    return result;
}
// Runs until the warp has to wait or has made so many steps.
void run_warp(Warp& w, int steps) {
    const Kernel& k = *w.block->kernel;
    Site* const sites = k.counters ? k.counters->sites.data() : nullptr;
    if (!choose(w)) return;
    split(w);
    for (; steps > 0; steps--) {
        Group& g = w.groups[size_t(w.at)];
        const size_t pc = size_t(g.pc);
        if (pc >= k.code.size()) fail("ran past the end");
        const Ins& i = k.code[pc];
        w.loc = i.loc;
        w.mask = g.mask;
        w.steps++;
        i.hits++;
        uint32_t mask = g.mask;
        if (i.guard >= 0) mask &= i.guard_not ? ~w.pr[i.guard] : w.pr[i.guard];
        if (sites) count_issue(w, i, sites[pc], mask, 1);
        g.pc++;
        const Result result = mask ? execute(w, k, i, mask) : kNext;
        if (result == kBarrier) return;
        if (result != kNext) {                  // the instruction comes again
            g.pc--;
            g.wait = result;
            if (sites) count_issue(w, i, sites[pc], mask, -1);
        }
        const bool alone = w.groups.size() == 1 && w.groups[0].wait == kNext;
        if (alone) w.at = 0;
        else if (!choose(w)) return;
    }
}

// ---- blocks

// The place of each group that has not returned.
std::string state_of(const Block& b) {
    std::string text;
    for (const Warp& w : b.warps)
        for (const Group& g : w.groups) {
            const size_t at = size_t(g.pc - (w.barrier >= 0));      // of a warp in a barrier: the bar.sync
            text += format("\n  warp %d lanes %08x at %s: %s", w.id, g.mask,
                           b.kernel->where(b.kernel->code[at].loc).c_str(), b.kernel->source[at].c_str());
        }
    return text;
}

uint32_t special_value(const std::string& name, const Block& b, unsigned thread) {
    const Launch& l = *b.launch;
    const unsigned axis = unsigned(name.back() - 'x'), x = l.block[0], y = l.block[1];
    const unsigned tid[3] = {thread % x, thread / x % y, thread / x / y};
    if (name == "%laneid") return thread % 32;
    if (name.starts_with("%tid.")) return tid[axis];
    if (name.starts_with("%ntid.")) return l.block[axis];
    if (name.starts_with("%ctaid.")) return b.id[axis];
    if (name.starts_with("%nctaid.")) return l.grid[axis];
    fail("special register %s", name.c_str());
}
// Predicates that nobody has set are random, and the bytes of registers and local memory 0xff.
void set_up_warp(Warp& w, Block& b, int id, char* registers) {
    const Kernel& k = *b.kernel;
    w.block = &b;
    w.id = id;
    w.rf = registers;
    w.pr = reinterpret_cast<uint32_t*>(w.rf + k.rf_bytes);
    w.local.assign(32 * size_t(k.local), char(0xff));
    w.groups.resize(1);
    std::memcpy(w.rf, k.registers.data(), k.registers.size());
    for (int p = 0; p < k.preds; p++) w.pr[p] = uint32_t(b.draw());
    for (const auto& [p, value] : k.constant_predicates) w.pr[p] = value;
    for (const auto& [name, slot] : k.special)
        for (unsigned lane = 0; lane < 32; lane++)
            w.reg<uint32_t>(slot)[lane] = special_value(name, b, unsigned(id) * 32 + lane);
    if (!k.has_wgmma) return;
    w.busy.assign(size_t(k.rf_bytes / 128), kIdle);
    w.written.assign(size_t(k.rf_bytes / 128), 0);
}
// memory: for the registers of all warps
void set_up(Block& b, size_t warps, std::vector<char>& memory) {
    const Kernel& k = *b.kernel;
    b.shared.assign(size_t(k.dynamic_at) + b.launch->smem, char(0xff));
    b.shadow.assign(b.shared.size(), kFresh);
    std::fill(b.shadow.begin() + k.static_shared, b.shadow.begin() + k.dynamic_at, kGap);
    const size_t per_warp = size_t(k.rf_bytes) + (size_t(k.preds) * 4 + 255) / 256 * 256;
    memory.resize(per_warp * warps + 256);
    char* const base = memory.data() + (256 - uintptr_t(memory.data()) % 256) % 256;
    b.warps.clear();
    b.warps.resize(warps);
    for (size_t n = 0; n < warps; n++) set_up_warp(b.warps[n], b, int(n), base + n * per_warp);
    std::ranges::fill(b.barriers, Barrier());
    b.mbars.clear();
    b.later.clear();
}

// Runs the block's warps and its TMA loads by turns to the end. now: the warp that runs, for the report of an error.
void run_turns(Block& b, const Warp*& now) {
    for (;;) {
        std::vector<Warp*> ready;
        for (Warp& w : b.warps)
            if (runnable(w)) ready.push_back(&w);
        if (std::ranges::none_of(b.warps, [](const Warp& w) { return w.alive != 0; })) return;
        if (ready.empty() && b.later.empty()) fail("deadlock:%s", state_of(b).c_str());
        if (!b.later.empty() && (ready.empty() || b.draw() % 3 == 0)) {
            const size_t n = b.draw() % b.later.size();
            const auto load = std::move(b.later[n]);
            b.later.erase(b.later.begin() + std::ptrdiff_t(n));
            load();
            continue;
        }
        Warp& w = *ready[b.draw() % ready.size()];
        now = &w;
        run_warp(w, 1 + int(b.draw() % 4096));
        now = nullptr;
    }
}
void check_end(const Block& b) {
    for (const Barrier& bar : b.barriers)
        if (bar.arrived) fail("ends with a barrier that %u threads have come to", bar.arrived);
    bool waited = b.later.empty();
    for (const auto& [at, m] : b.mbars) waited &= m.waited > m.loaded;
    if (!waited) fail("ends with a TMA load that was not waited for");
    for (const auto& [at, m] : b.mbars)
        if (m.bytes) fail("ends with an mbarrier of %d bytes", m.bytes);
}
void run_block(Block& b) {
    const Warp* now = nullptr;
    try {
        run_turns(b, now);
        check_end(b);
    } catch (const Error& e) {
        const Kernel& k = *b.kernel;
        std::string text = format("%s block %u,%u: ", k.name.c_str(), b.id[0], b.id[1]);
        if (now) text += format("%s: warp %d lanes %08x: ", k.where(now->loc).c_str(), now->id, now->mask);
        throw Error(text + e.what());
    }
}

}  // namespace

void run(const Launch& l) {
    Kernel& k = *l.kernel;
    const unsigned threads = l.block[0] * l.block[1] * l.block[2];
    if (threads % 32) fail("%s: %u threads: no whole warps", k.name.c_str(), threads);
    static std::vector<char> memory;
    static Races races;
    static uint64_t launches = 0;
    Block b;
    b.races = &races;
    b.launch = &l;
    b.kernel = &k;
    b.random = (seed() + ++launches) * 0x9e3779b97f4a7c15u | 1;
    for (int i = 0; i < 8; i++) b.draw();
    // Blocks in random order: n -> n * step + begin, step without a common divisor.
    const uint64_t blocks = uint64_t(l.grid[0]) * l.grid[1] * l.grid[2];
    uint64_t step = blocks > 2 ? 1 + b.draw() % (blocks - 1) : 1;
    while (std::gcd(step, blocks) != 1) step++;
    uint64_t at = b.draw() % blocks;
    count_begin(l);
    races.begin(k, int(threads), size_t(k.dynamic_at) + l.smem);
    for (uint64_t n = 0; n < blocks; n++, at = (at + step) % blocks) {
        if (!count_takes(at)) continue;
        b.id[0] = unsigned(at % l.grid[0]);
        b.id[1] = unsigned(at / l.grid[0] % l.grid[1]);
        b.id[2] = unsigned(at / l.grid[0] / l.grid[1]);
        set_up(b, threads / 32, memory);
        races.begin_block(b.warps);
        count_block(b);
        run_block(b);
    }
    count_end(l);
}

}  // namespace ptx
