// races.cpp -- see races.h. Source of what orders what: PTX ISA 9.0, memory consistency model.
#include <algorithm>
#include <bit>
#include "count.h"

namespace ptx {
namespace {

constexpr int kMbarriers = 64;              // of a block
constexpr uint32_t kUnderWay = ~0u;         // the time of a cp.async's write that nobody has waited for

// Adds what another block has released.
void see(BlockClocks& to, uint32_t block, const ClockRef& clock);
// The larger of both for each agent; true where `from` had something new.
bool join(Clock& to, const Clock& from) {
    bool more = !from.others.empty();
    for (size_t i = 0; i < to.size(); i++) {
        more |= from[i] > to[i];
        to[i] = std::max(to[i], from[i]);
    }
    for (const auto& [block, clock] : from.others) see(to.others, block, clock);
    return more;
}
ClockRef joined(const ClockRef& a, const ClockRef& b) {
    if (!a || !b || a == b) return a ? a : b;
    const auto both = std::make_shared<Clock>(*a);
    join(*both, *b);
    return both;
}
void see(BlockClocks& to, uint32_t block, const ClockRef& clock) {
    ClockRef& seen = to[block];
    seen = joined(seen, clock);
}
uint16_t first_agent(const Warp& w) { return uint16_t(w.id * 32); }
// Gives the lanes f(their clock); one of a clock that several have in common.
template <class F> void change(Warp& w, uint32_t lanes, const F& f) {
    Order& o = w.order;
    ClockRef from, to, first;
    bool same = true;
    each_lane(lanes & w.alive, [&](int l) {
        const ClockRef old = o.of(l);
        if (old != from) {
            from = old;
            to = f(old);
            same &= !first || first == to;
            if (!first) first = to;
        }
        if (to == old) return;
        o.own[l] = to;
        o.parted |= 1u << l;
    });
    if (!to || !same || (w.alive & ~lanes)) return;
    o.all = to;
    o.parted = 0;
}

}  // namespace

// ---- what is released and acquired

void Released::join(const ClockRef& clock) {
    if (clock == last) return;
    if (sum) ptx::join(*sum, *clock);
    else sum = std::make_shared<Clock>(*clock);
    last = clock;
}
void Released::add(const Warp& w, uint32_t lanes) {
    const Order& o = w.order;
    if (lanes & ~o.parted) join(o.all);
    each_lane(lanes & o.parted, [&](int l) { join(o.own[l]); });
    const size_t first = first_agent(w), agents = sum->size() / 2;
    each_lane(lanes, [&](int l) {
        (*sum)[first + size_t(l)] = o.time;
        uint32_t& passed = (*sum)[agents + first + size_t(l)];
        passed = std::max(passed, o.passed[l]);
    });
}
void Races::acquire(Warp& w, uint32_t lanes, const ClockRef& from) {
    if (!from) return;
    change(w, lanes, [&](const ClockRef& old) {
        auto sum = std::make_shared<Clock>(*old);
        return join(*sum, *from) ? ClockRef(sum) : old;
    });
}
void Races::adopt(Warp& w, uint32_t lanes, const ClockRef& all_they_know) {
    change(w, lanes, [&](const ClockRef&) { return all_they_know; });
}
void Races::sync_lanes(Warp& w, uint32_t lanes) {
    Released r;
    r.add(w, lanes);
    w.order.time++;
    adopt(w, lanes, r.sum);
}
void Races::pass_on(Warp& w, uint32_t lanes) {
    change(w, lanes, [&](const ClockRef& old) {
        auto sum = std::make_shared<Clock>(*old);
        std::copy_n(old->begin(), agents, sum->begin() + agents);
        return *sum == *old ? old : ClockRef(sum);
    });
    each_lane(lanes, [&](int l) { w.order.passed[l] = w.order.time; });
    w.order.time++;
}
void Races::finish_wgmmas(Warp& w, uint32_t time) {
    auto clock = std::make_shared<Clock>(size_t(agents) * 2);
    (*clock)[size_t(threads + kMbarriers + w.id)] = time;
    acquire(w, ~0u, clock);
}
// First it acquires what the lanes' atomics have found, then it keeps what their next atomics release.
void Races::fence(Warp& w, uint32_t lanes) {
    Order& o = w.order;
    o.fences.resize(32);
    each_lane(lanes, [&](int l) {
        Fence& fence = o.fences[size_t(l)];
        auto clock = std::make_shared<Clock>(size_t(agents) * 2);
        for (const auto& [from, found] : fence.found) {
            for (const auto& [other, seen] : found->others)
                if (other != block) see(clock->others, other, seen);
            if (from == block) join(*clock, *found);
            else see(clock->others, from, found);
        }
        if (!fence.found.empty()) acquire(w, 1u << l, clock);
        Released released;
        released.add(w, 1u << l);
        fence = {released.sum, o.time, {}};
    });
    o.time++;
}
void Races::meet(Warp& w, int lane, uint64_t at) {
    w.order.fences.resize(32);
    Fence& fence = w.order.fences[size_t(lane)];
    Meeting& meeting = meetings[at];
    for (const auto& [from, clock] : meeting.released) see(fence.found, from, clock);
    if (fence.before) see(meeting.released, block, fence.before);
    else meeting.all = false;
}
uint16_t Races::mbarrier_agent() {
    if (mbarriers == kMbarriers) fail("mbarriers: got more than %d in a block, want fewer", kMbarriers);
    return uint16_t(threads + mbarriers++);
}

// ---- cells

constexpr uint64_t kPage = 1 << 16;         // bytes of global memory

void Cells::begin(size_t want) {
    const size_t places = (want + 15) / 16;
    level.assign(places, 0);
    if (places * 16 <= bytes) return;
    bytes = places * 16;
    constexpr size_t kBytes[] = {16, 4, 1};
    for (size_t i = 0; i < 3; i++)          // zeros that take no room until they are touched
        cells[i].reset(static_cast<Cell*>(std::calloc(bytes / kBytes[i], sizeof(Cell))));
}
void Races::begin(const Kernel& k, int threads_, size_t shared_bytes) {
    kernel = &k, threads = threads_, agents = threads + kMbarriers + threads / 32;
    shared_memory.begin(shared_bytes);
    launch = block + 1;
    meetings.clear();
    recent_page = nullptr;
    if (pages.size() > 256) pages.clear();
}
void Races::begin_block(std::vector<Warp>& warps) {
    shared_memory.oldest = ++block;
    mbarriers = 0;
    more.assign(1, {});
    const auto none = std::make_shared<const Clock>(size_t(agents) * 2);
    for (Warp& w : warps) w.order.all = none;
}
Cells& Races::page(uint64_t number) {
    if (recent_page && recent == number) return *recent_page;
    Cells& s = pages[number];
    if (s.oldest != launch) {
        s.begin(kPage);
        s.oldest = launch;
    }
    recent = number, recent_page = &s;
    return s;
}
// The cell of 16 bytes, or its cells of 4 bytes, become smaller ones with the same traces.
void Races::split(Cells& s, uint32_t place) {
    const uint8_t from = s.level[place]++;
    const uint32_t n = from ? 4 : 1;        // cells before
    for (uint32_t i = 0; i < n * 4; i++) {
        Cell& to = s.cells[from + 1][place * n * 4 + i];
        to = s.cells[from][place * n + i / 4];
        if (to.block != block || !to.more) continue;
        more.push_back(std::vector<Trace>(more[to.more]));
        to.more = uint32_t(more.size() - 1);
    }
}
// f(cell, its offset, bytes of the access in it)
template <class F> void Races::each_cell(Cells& s, uint32_t at, int count, const F& f) {
    const uint32_t end = at + uint32_t(count);
    for (uint32_t place = at / 16; place * 16 < end; place++) {
        const uint32_t from = std::max(at, place * 16), to = std::min(end, place * 16 + 16);
        const uint8_t want = (from | to) % 16 == 0 ? 0 : (from | to) % 4 == 0 ? 1 : 2;
        while (s.level[place] < want) split(s, place);
        const uint32_t size = s.level[place] == 0 ? 16 : s.level[place] == 1 ? 4 : 1;
        for (uint32_t x = from; x < to; x += size) f(s.cells[s.level[place]][x / size], x, size);
    }
}
void Races::shared(const Actor& actor, uint32_t at, int count, const char* memory) {
    each_cell(shared_memory, at, count, [&](Cell& c, uint32_t x, uint32_t size) {
        touch(c, block, actor, {memory + (x - at), false, x, x - at, size});
    });
}
void Races::global(const Actor& actor, uint64_t at, int count) {
    if (counting()) return;             // of large arrays, whose traces take gigabytes
    const uint32_t in_page = uint32_t(at % kPage);      // an access is aligned: it lies in one page
    const char* const memory = reinterpret_cast<const char*>(at);
    touched(memory, size_t(count), actor.kind);
    each_cell(page(at / kPage), in_page, count, [&](Cell& c, uint32_t x, uint32_t size) {
        touch(c, launch, actor, {memory + (x - in_page), true, x, x - in_page, size});
    });
}
void Races::landed(const Warp& w, int lane, uint32_t at) {
    each_cell(shared_memory, at, 16, [&](Cell& c, uint32_t, uint32_t) {
        Trace& t = c.write;
        if (c.block != block || t.time != kUnderWay || t.agent != first_agent(w) || t.lanes != 1u << lane) return;
        t.time = w.order.time;
    });
}

bool Races::ordered(const Trace& before, const Actor& now, const ClockRef& clock, bool needs_passing) const {
    const uint16_t own = first_agent(*now.warp);
    uint32_t lanes = before.lanes;
    const Clock* from = clock.get();
    if (before.block != block) {
        const auto it = clock->others.find(before.block);
        if (it == clock->others.end()) return false;
        from = it->second.get();
    } else if (before.agent == own && now.lane >= 0 && before.time != kUnderWay && lanes >> now.lane & 1) {
        if (!needs_passing || now.warp->order.passed[now.lane] >= before.time) lanes &= ~(1u << now.lane);
    }
    const uint32_t* const seen = from->data() + before.agent + (needs_passing ? agents : 0);
    for (; lanes; lanes &= lanes - 1)
        if (seen[std::countr_zero(lanes)] < before.time) return false;
    return true;
}
// Whether all reads or atomics at an address by other blocks are before this access.
bool Races::others_ordered(AccessKind kind, const Actor& now, uint64_t at) const {
    const BlockClocks& seen = now.warp->order.of(std::max(now.lane, 0))->others;
    if (kind == kReads) return seen.size() == block - launch;       // by any of those that have run
    const auto it = meetings.find(at);
    if (it == meetings.end() || !it->second.all) return false;
    return std::ranges::all_of(it->second.released,
                               [&](const auto& from) { return from.first == block || seen.contains(from.first); });
}
void Races::touch(Cell& c, uint32_t oldest, const Actor& now, const Range& r) {
    if (c.block < oldest) c = {};
    if (c.block != block) {
        for (int kind = 0; kind < 2; kind++) {
            if (c.own[kind]) c.other[kind] = c.own[kind];
            c.own[kind] = 0;
        }
        c.read.time = c.more = 0;
        c.block = block;
    }
    for (const AccessKind kind : {kReads, kAtomically})
        if (const int32_t loc = c.other[kind == kAtomically]; loc && now.kind != kind)
            if (!others_ordered(kind, now, uint64_t(r.memory))) report({.kind = kind, .loc = loc}, now, r);
    const Warp& w = *now.warp;
    const Order& o = w.order;
    const bool core = now.lane < 0;
    const auto is_ordered = [&](const Trace& before, bool needs_passing) {
        if (!core) return ordered(before, now, o.of(now.lane), needs_passing);
        for (int l = 0; l < 32; l++)
            if ((!l || o.parted >> l & 1) && !ordered(before, now, o.of(l), needs_passing)) return false;
        return true;
    };
    Trace trace{o.time, core ? 1u : 1u << now.lane, core ? uint16_t(threads + kMbarriers + w.id) : first_agent(w),
                now.kind, now.loc < 0 ? w.loc : now.loc, block};
    if (c.write.time && !is_ordered(c.write, (core || now.mbarrier) && c.write.agent < threads)) {
        // Lanes may write equal values by one instruction.
        const bool one = now.kind == kWrites && now.value && c.write.kind == kWrites && c.write.block == block &&
                         c.write.agent == trace.agent && c.write.loc == trace.loc && c.write.time == trace.time;
        if (!one || std::memcmp(now.value + r.offset, r.memory, r.count)) report(c.write, now, r);
        trace.lanes |= c.write.lanes;
    }
    if (now.kind == kLooks) return;
    const auto against = [&](const Trace& t) {
        if (t.time && (now.kind == kWrites || t.kind != now.kind) && !is_ordered(t, false)) report(t, now, r);
    };
    against(c.read);
    if (c.more) for (const Trace& t : more[c.more]) against(t);
    if (now.mbarrier) trace.agent = now.mbarrier, trace.lanes = 1, trace.time = now.phase;
    if (now.kind == kAtomically && r.global && !o.fences.empty() && o.fences[size_t(now.lane)].before)
        trace.time = o.fences[size_t(now.lane)].time;       // it is released together with what it releases
    if (now.kind != kWrites) return remember(c, now, trace);
    if (now.copy) trace.time = kUnderWay;
    c.write = trace;
    c.read.time = 0;
    for (int kind = 0; kind < 2; kind++) c.own[kind] = c.other[kind] = 0;
    if (c.more) more[c.more].clear();
    if (r.global && !meetings.empty()) meetings.erase(uint64_t(r.memory));
}
// Adds a read or an atomic to the cell's; those before it that it makes superfluous go.
void Races::remember(Cell& c, const Actor& now, const Trace& trace) {
    c.own[trace.kind == kAtomically] = trace.loc;
    const auto stays = [&](Trace& t) {
        if (t.kind != trace.kind) return true;
        if (t.agent == trace.agent && now.lane >= 0 && !(t.lanes &= ~trace.lanes)) return false;
        return now.lane < 0 ? t.agent != trace.agent : !ordered(t, now, now.warp->order.of(now.lane), false);
    };
    const auto same = [&](Trace& t) {
        const bool is = t.time == trace.time && t.agent == trace.agent && t.kind == trace.kind;
        if (is) t.lanes |= trace.lanes;
        return is;
    };
    if (same(c.read)) return;
    if (!c.read.time || !stays(c.read)) {
        c.read = trace;
        return;
    }
    if (!c.more) {
        c.more = uint32_t(more.size());
        more.emplace_back();
    }
    std::vector<Trace>& list = more[c.more];
    for (Trace& t : list) if (same(t)) return;
    std::erase_if(list, [&](Trace& t) { return !stays(t); });
    list.push_back(trace);
}

// ---- what is said

std::string Races::who(const Trace& t, const Actor& now) const {
    const std::string place = kernel->where(t.loc);
    if (t.agent >= threads + kMbarriers)
        return format("a wgmma of warp %d reads it (%s)", t.agent - threads - kMbarriers, place.c_str());
    if (t.agent >= threads) return format("a TMA load %s it (%s)", verb(t.kind), place.c_str());
    int lane = std::countr_zero(t.lanes);
    const uint32_t* const seen = now.lane < 0 ? nullptr : now.warp->order.of(now.lane)->data() + t.agent;
    each_lane(t.lanes, [&](int l) {
        if (seen && seen[l] < t.time && (t.agent != first_agent(*now.warp) || l != now.lane)) lane = l;
    });
    return format("%swarp %d lane %d %s it (%s)", t.time == kUnderWay ? "cp.async of " : "", t.agent / 32, lane,
                  verb(t.kind), place.c_str());
}
// "bytes 4 to 7 of tile"
std::string Races::what(const Range& r) const {
    if (r.global) return format("global memory at %p, %u bytes", static_cast<const void*>(r.memory), r.count);
    std::string array = "dynamic shared memory";
    uint32_t begin = uint32_t(kernel->dynamic_at);
    for (const auto& [place, name] : kernel->arrays)
        if (r.at >= uint32_t(place) && r.at < uint32_t(kernel->static_shared))
            array = demangled(name), begin = uint32_t(place);
    array = array.substr(array.rfind(':') + 1);          // "s" of "kernel()::s"
    return format("bytes %u to %u of %s", r.at - begin, r.at - begin + r.count - 1, array.c_str());
}
void Races::report(const Trace& before, const Actor& now, const Range& r) const {
    const Warp& w = *now.warp;
    const bool other_block = before.block != block, same_warp = before.agent == first_agent(w);
    const char* wanted = same_warp ? "__syncwarp() between them" : "__syncthreads() or an mbarrier between them";
    if (other_block) wanted = "two launches, or atomics with __threadfence() on both sides";
    else if (before.time == kUnderWay) wanted = "cp.async.wait_group by the copying thread, and a barrier for others";
    else if (before.agent >= threads + kMbarriers) wanted = "wgmma.wait_group, and then a barrier";
    else if (before.agent >= threads) wanted = "a wait for the mbarrier's phase that the load completes";
    else if ((now.lane < 0 || now.mbarrier) && before.kind == kWrites)
        wanted = "fence.proxy.async by the writer, and then a barrier";
    else if (same_warp && before.loc == w.loc && now.kind == kWrites) wanted = "one of them alone, or equal values";
    const std::string subject = now.mbarrier ? "a TMA load" : now.lane < 0 ? "a wgmma" : format("lane %d", now.lane);
    const std::string other = other_block ? format("another block %s it (%s)", verb(before.kind),
                                                   kernel->where(before.loc).c_str())
                                          : who(before, now);
    fail("race: %s: %s of warp %d %s it, and %s: got no order between them, want %s", what(r).c_str(),
         subject.c_str(), w.id, verb(now.kind), other.c_str(), wanted);
}

}  // namespace ptx
