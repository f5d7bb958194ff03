// engine.cpp -- runs grids: blocks one after another, a block's warps by turns in random order.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include "count.h"
#include "instructions.h"
#include "tests/gpu/runtime.h"

namespace ptx {

// ---- memory

static std::map<uintptr_t, size_t> allocations;
static thread_local uintptr_t cached_begin = 1, cached_end = 0;
static uint64_t memory_version = 0;
static thread_local uint64_t cached_version = 0;

void memory_add(const void* p, size_t bytes) { allocations[uintptr_t(p)] = bytes, memory_version++; }
void memory_remove(const void* p) { allocations.erase(uintptr_t(p)), memory_version++; }
bool memory_has(const void* p, size_t bytes) {
    const uintptr_t at = uintptr_t(p);
    if (cached_version == memory_version && at >= cached_begin && at + bytes <= cached_end) return true;
    auto it = allocations.upper_bound(at);
    if (it == allocations.begin()) return false;
    --it;
    if (at + bytes > it->first + it->second) return false;
    cached_begin = it->first, cached_end = it->first + it->second, cached_version = memory_version;
    return true;
}

char* shared_at(Block& b, uint32_t at, int bytes, bool read, bool write, const Actor* actor) {
    if (size_t(at) + size_t(bytes) > b.shared.size())
        fail("shared access of %d bytes at %u of %zu", bytes, at, b.shared.size());
    uint8_t* s = b.shadow.data() + at;
    char* const place = b.shared.data() + at;
    if (actor) b.races->shared(*actor, at, bytes, place);
    static const std::vector<uint8_t> all_set(64, kSet);
    if (size_t(bytes) <= all_set.size() && !std::memcmp(s, all_set.data(), size_t(bytes))) return place;
    for (int x = 0; x < bytes; x++) {
        if (s[x] == kGap) fail("shared access at %u: between the arrays", at);
        if (s[x] == kBarrierByte && !(write && bytes == 8 && !read)) fail("shared access at %u: an mbarrier", at);
        if (read && s[x] == kFresh) fail("shared read of %d bytes at %u: byte %d was never written", bytes, at, x);
    }
    if (write && s[0] != kBarrierByte) std::memset(s, kSet, size_t(bytes));
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
void Mbar::may_end() {
    if (pending || bytes) return;
    phase ^= 1;
    pending = expected;
    (*released.sum)[agent] = time++;
    ended = std::make_shared<const Clock>(*released.sum);
}

// ---- warps

namespace {

bool may_go(const Warp& w, const Group& g) {
    if (g.wait == kNext) return true;
    if (g.wait == kConverge) return false;
    for (int l = 0; l < 32; l++)
        if (g.barred >> l & 1) {
            const auto it = w.block->mbars.find(g.bar[l]);
            if (it == w.block->mbars.end() || it->second.phase != g.parity[l]) return true;
        }
    return false;
}
bool complete(const Block& b, const Barrier& bar) {
    uint32_t expected = bar.expected;
    if (expected == ~0u) {
        expected = 0;
        for (const Warp& w : b.warps) expected += w.alive ? 32u : 0u;
    }
    return bar.arrived && bar.arrived >= expected;
}
// Joins groups at one instruction; the number of the lowest that may go on, -1 for none.
int choose(Warp& w) {
    for (size_t i = 0; i < w.groups.size(); i++)
        for (size_t j = i + 1; j < w.groups.size();) {
            Group &a = w.groups[i], &b = w.groups[j];
            if (a.pc != b.pc || ((a.until > w.steps) != (b.until > w.steps))) { j++; continue; }
            a.mask |= b.mask;
            a.until = b.until = 0;
            a.wait = kNext;
            w.groups.erase(w.groups.begin() + std::ptrdiff_t(j));
        }
    int best = -1;
    for (const bool late : {false, true}) {
        for (size_t i = 0; i < w.groups.size(); i++)
            if (may_go(w, w.groups[i]) && (w.groups[i].until > w.steps) == late &&
                (best < 0 || w.groups[i].pc < w.groups[size_t(best)].pc))
                best = int(i);
        if (best >= 0) break;
    }
    if (best >= 0 && w.groups[size_t(best)].until > w.steps) {      // there is nobody else: it catches up
        w.groups[size_t(best)].until = 0;
        return choose(w);
    }
    return best;
}
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
    return choose(w) >= 0;
}

void check_in_flight(Warp& w, const Ins& i) {
    const int32_t* u = w.block->kernel->more.data() + i.uses;
    const int nw = u[0], nr = u[1];
    if (i.is_wgmma) return;       // its own rules: accumulators may follow each other
    for (int j = 0; j < nw; j++) if (w.busy[size_t(u[2 + j] / 128)]) fail("writes a register of an unfinished wgmma");
    for (int j = 0; j < nr; j++)
        if (w.busy[size_t(u[2 + nw + j] / 128)] == 2)
            fail("reads an accumulator of an unfinished wgmma");
}

// Runs until the warp has to wait or has made `quantum` steps.
void run_warp(Warp& w, int quantum) {
    const Kernel& k = *w.block->kernel;
    const Ins* const code = k.code.data();
    const int end = int(k.code.size());
    Site* const sites = k.counters ? k.counters->sites.data() : nullptr;
    w.at = choose(w);
    if (w.at < 0) return;
    // SOFT_GPU_SPLIT=1: some lanes fall behind, as those of a real warp may; whoever needs all of them has to say so.
    static const bool splits = std::getenv("SOFT_GPU_SPLIT");
    if (splits && w.block->draw() % 2) {
        const uint32_t some = w.groups[size_t(w.at)].mask & uint32_t(w.block->draw() >> 16);
        if (some && some != w.groups[size_t(w.at)].mask) {
            Group behind{};
            behind.pc = w.groups[size_t(w.at)].pc, behind.mask = some,
            behind.until = w.steps + 1 + w.block->draw() % 3000;
            w.groups[size_t(w.at)].mask &= ~some;
            w.groups.push_back(behind);
        }
    }
    Group* g = &w.groups[size_t(w.at)];
    g->wait = kNext;
    int pc = g->pc;
    w.mask = g->mask;
    while (quantum-- > 0) {
        if (pc >= end) fail("ran past the end");
        const Ins& i = code[pc];
        w.loc = i.loc;
        w.steps++;
        uint32_t mask = w.mask;
        if (i.guard >= 0) mask &= i.guard_not ? ~w.pr[i.guard] : w.pr[i.guard];
        i.hits++;
        if (sites) count_issue(w, i, sites[pc], mask, 1);
        if (i.flow == kPlain) {
            if (w.in_flight && mask) check_in_flight(w, i);
            const int result = mask ? i.fn(w, i, mask) : kNext;
            if (result == kNext || result == kBarrier) {
                pc++;
                if (k.has_wgmma && mask && !i.is_wgmma) {
                    const int32_t* u = k.more.data() + i.uses;
                    for (int j = 0; j < u[0]; j++) w.written[size_t(u[2 + j] / 128)] = w.fences;
                }
                if (result == kBarrier) { g->pc = pc; return; }
            } else {
                if (sites) count_issue(w, i, sites[pc], mask, -1);      // it will come again
                g->pc = pc;
                g->wait = Result(result);
                w.at = choose(w);
                if (w.at < 0) return;
                g = &w.groups[size_t(w.at)];
                g->wait = kNext;
                pc = g->pc, w.mask = g->mask;
                continue;
            }
        } else if (i.flow == kBranch) {
            if (mask == w.mask) {
                pc = i.target;
            } else if (!mask) {
                pc++;
            } else {
                const uint32_t rest = w.mask & ~mask;
                g->pc = i.target, g->mask = mask;
                Group other{};
                other.pc = pc + 1, other.mask = rest;
                w.groups.push_back(other);
                w.at = choose(w);
                g = &w.groups[size_t(w.at)];
                pc = g->pc, w.mask = g->mask;
                continue;
            }
        } else {
            if (w.in_flight) fail("returns with wgmma not waited for");
            if (w.block->launch->dependent && (mask & ~w.waited)) fail("returns without griddepcontrol.wait");
            for (int l = 0; l < 32; l++)
                if (mask >> l & 1 && !w.copies[l].empty())
                    fail("returns with cp.async not waited for");
            w.alive &= ~mask;
            if (mask == w.mask) {
                w.groups.erase(w.groups.begin() + w.at);
                if (w.groups.empty()) return;
                for (Group& o : w.groups) if (o.wait == kConverge) o.wait = kNext;
                w.at = choose(w);
                if (w.at < 0) return;
                g = &w.groups[size_t(w.at)];
                pc = g->pc, w.mask = g->mask;
                continue;
            }
            w.mask &= ~mask;
            g->mask = w.mask;
            pc++;
        }
        if (w.groups.size() > 1) {
            g->pc = pc, g->mask = w.mask;
            w.at = choose(w);
            if (w.at < 0) return;
            g = &w.groups[size_t(w.at)];
            g->wait = kNext;
            pc = g->pc, w.mask = g->mask;
        }
    }
    g->pc = pc, g->mask = w.mask;
}

std::string state_of(const Block& b) {
    std::string text;
    for (const Warp& w : b.warps) {
        if (!w.alive) continue;
        for (const Group& g : w.groups) {
            const size_t at = size_t(g.pc - (w.barrier >= 0));      // of a warp in a barrier: the bar.sync
            text += format("\n  warp %d lanes %08x at %s: %s", w.id, g.mask,
                           b.kernel->where(b.kernel->code[at].loc).c_str(), b.kernel->source[at].c_str());
        }
    }
    return text;
}

void set_up(Block& b, const Launch& l, std::vector<char>& memory) {
    Kernel& k = *l.kernel;
    const size_t dynamic_at = k.has_dynamic ? size_t(k.dynamic_at) : size_t(k.static_shared);
    b.shared.assign(dynamic_at + l.smem, char(0xff));
    b.shadow.assign(b.shared.size(), kFresh);
    if (k.has_dynamic)
        std::fill(b.shadow.begin() + k.static_shared, b.shadow.begin() + std::ptrdiff_t(dynamic_at),
                  kGap);
    const unsigned threads = l.block[0] * l.block[1] * l.block[2], warps = threads / 32;
    const size_t per_warp = size_t(k.rf_bytes) + (size_t(k.preds) * 4 + 255) / 256 * 256;
    memory.resize(per_warp * warps + 256);
    char* base = memory.data() + (256 - uintptr_t(memory.data()) % 256) % 256;
    std::memset(base, 0xff, per_warp * warps);
    b.warps.clear();
    b.warps.resize(warps);
    for (unsigned n = 0; n < warps; n++) {
        Warp& w = b.warps[n];
        w.block = &b;
        w.id = int(n);
        w.rf = base + n * per_warp;
        w.pr = reinterpret_cast<uint32_t*>(w.rf + k.rf_bytes);
        for (int p = 0; p < k.preds; p++) w.pr[p] = uint32_t(b.draw());
        for (const auto& [slot, value] : k.constants4) {
            if (slot < 0) w.pr[-1 - slot] = uint32_t(value);
            else std::fill_n(w.reg<uint32_t>(slot), 32, uint32_t(value));
        }
        for (const auto& [slot, value] : k.constants8) std::fill_n(w.reg<uint64_t>(slot), 32, value);
        for (const auto& [name, slot] : k.special)
            for (unsigned lane = 0; lane < 32; lane++) {
                const unsigned t = n * 32 + lane, axis = unsigned(name.back() - 'x');
                const unsigned tid[3] = {t % l.block[0], t / l.block[0] % l.block[1], t / l.block[0] / l.block[1]};
                uint32_t value = 0;
                if (name.starts_with("%tid.")) value = tid[axis];
                else if (name.starts_with("%ntid.")) value = l.block[axis];
                else if (name.starts_with("%ctaid.")) value = b.id[axis];
                else if (name.starts_with("%nctaid.")) value = l.grid[axis];
                else if (name == "%laneid") value = lane;
                else fail("special register %s", name.c_str());
                w.reg<uint32_t>(slot)[lane] = value;
            }
        Group g{};
        g.mask = ~0u;
        w.groups.push_back(g);
        if (k.has_wgmma) w.busy.assign(size_t(k.rf_bytes / 128), 0), w.written.assign(size_t(k.rf_bytes / 128), 0);
    }
}

void run_block(Block& b) {
    Warp* now = nullptr;
    try {
        for (;;) {
            std::vector<Warp*> ready;
            for (Warp& w : b.warps) if (runnable(w)) ready.push_back(&w);
            const bool left = std::any_of(b.warps.begin(), b.warps.end(), [](const Warp& w) { return w.alive; });
            if (!left) break;
            if (ready.empty() && b.later.empty()) {
                now = nullptr;
                fail("deadlock:%s", state_of(b).c_str());
            }
            if (!b.later.empty() && (ready.empty() || b.draw() % 3 == 0)) {
                const size_t n = b.draw() % b.later.size();
                const auto work = std::move(b.later[n]);
                b.later.erase(b.later.begin() + std::ptrdiff_t(n));
                now = nullptr;
                work();
                continue;
            }
            now = ready[b.draw() % ready.size()];
            run_warp(*now, 1 + int(b.draw() % 4096));
        }
        now = nullptr;
        for (const Barrier& bar : b.barriers)
            if (bar.arrived) fail("ends with a barrier that %u threads have come to", bar.arrived);
        bool waited = b.later.empty();
        for (const auto& [at, m] : b.mbars) waited &= m.waited > m.loaded;
        if (!waited) fail("ends with a TMA load that was not waited for");
        for (const auto& [at, m] : b.mbars) if (m.bytes) fail("ends with an mbarrier of %d bytes", m.bytes);
    } catch (const Error& e) {
        std::string text = e.what();
        if (now)
            text = format("%s: warp %d lanes %08x: ", b.kernel->where(now->loc).c_str(), now->id,
                          now->mask) +
                   text;
        throw Error(format("%s block %u,%u: ", b.kernel->name.c_str(), b.id[0], b.id[1]) + text);
    }
}

}  // namespace

void run(const Launch& l) {
    Kernel& k = *l.kernel;
    const unsigned threads = l.block[0] * l.block[1] * l.block[2];
    if (threads % 32) fail("%s: %u threads: no whole warps", k.name.c_str(), threads);
    static std::vector<char> memory;
    static Races races;
    Block b;
    b.races = &races;
    b.launch = &l;
    b.kernel = &k;
    // Blocks in random order: n -> n * step + start, step without a common divisor.
    const uint64_t blocks = uint64_t(l.grid[0]) * l.grid[1] * l.grid[2];
    static uint64_t number = 0;
    b.random = (seed() + ++number) * 0x9e3779b97f4a7c15u | 1;
    for (int i = 0; i < 8; i++) b.draw();
    uint64_t step = blocks > 2 ? 1 + b.draw() % (blocks - 1) : 1;
    while (std::gcd(step, blocks) != 1) step++;
    uint64_t at = b.draw() % blocks;
    count_begin(l);
    races.begin(k, int(threads), size_t(std::max(k.static_shared, k.dynamic_at)) + l.smem);
    for (uint64_t n = 0; n < blocks; n++, at = (at + step) % blocks) {
        if (!count_takes(at)) continue;
        b.id[0] = unsigned(at % l.grid[0]), b.id[1] = unsigned(at / l.grid[0] % l.grid[1]),
        b.id[2] = unsigned(at / l.grid[0] / l.grid[1]);
        for (Barrier& bar : b.barriers) bar = {};
        b.mbars.clear();
        b.later.clear();
        set_up(b, l, memory);
        races.begin_block(b.warps);
        count_block(b);
        run_block(b);
    }
    count_end(l);
}

}  // namespace ptx
