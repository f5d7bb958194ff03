// races.h -- names two accesses to memory by different threads, at least one a write, that nothing orders. They are
// found in every run, whichever of the two comes first in it.
//
// A clock says for each agent up to which time its accesses happened before. A warp's time rises with each release of
// its lanes. An agent is a thread, an mbarrier (whose TMA loads write) or a warp's tensor core (whose wgmmas read).
// Memory has a cell for each 16, 4 or 1 bytes with the last write and the reads and atomics since. A cell of shared
// memory is the block's, one of global memory the launch's. Of other blocks' reads and atomics only the places are
// known: their blocks as a whole have released, or have not.
//
//   bar.sync, bar.warp.sync, mbarrier    what arrives releases, what has waited acquires
//   __threadfence() and an atomic        a fence and then an atomic release; an atomic that finds that and then a fence
//                                        acquire: PTX ISA, "Release and Acquire Patterns"
//   cp.async                             unordered until its own thread has waited for its group
//   TMA loads, wgmma                     see ordinary writes that fence.proxy.async has passed on
//   shfl, vote, ldmatrix, mma            order nothing
#pragma once
#include <cstdlib>
#include "order.h"
#include "ptx.h"

namespace ptx {

struct Clock;
using ClockRef = std::shared_ptr<const Clock>;
using BlockClocks = std::map<uint32_t, ClockRef>;       // by Races::block
struct Clock : std::vector<uint32_t> {      // [agent]: seen, then [agent]: passed on to TMA and wgmma
    using vector::vector;
    BlockClocks others;                     // of other blocks: seen
};
// A lane's fences for the whole device.
struct Fence {
    ClockRef before;                        // what is before the last one
    uint32_t time = 0;                      // of the warp, then
    BlockClocks found;                      // by atomics since, which the next fence acquires
};

// What the lanes of a warp have seen. Their own accesses are ordered anyway.
struct Order {
    ClockRef all, own[32];                  // own: of the lanes in `parted`
    uint32_t parted = 0, time = 1, finished = 0;    // finished: its wgmmas are, up to this time
    uint32_t passed[32] = {};               // of the lane's own writes: fence.proxy.async's time
    std::vector<Fence> fences;              // of each lane; none before the first fence or atomic

    const ClockRef& of(int lane) const { return parted >> lane & 1 ? own[lane] : all; }
};
// What has been released to a barrier.
struct Released {
    std::shared_ptr<Clock> sum;
    ClockRef last;                          // is in it

    void join(const ClockRef& clock);
    void add(const Warp& w, uint32_t lanes);        // the caller raises the warp's time
};

struct Trace {
    uint32_t time = 0, lanes = 0;           // time 0: there is none; lanes: of the agents from `agent` on
    uint16_t agent = 0;
    AccessKind kind = kNothing;
    int32_t loc = 0;                        // Kernel::locs
    uint32_t block = 0;                     // Races::block
};
struct Cell {
    uint32_t block;                         // whose reads and atomics these are
    uint32_t more;                          // Races::more, 0: none
    Trace write, read;
    int32_t own[2], other[2];               // places of a read and an atomic of this block and of others; 0: none
};
// What atomics at an address have released.
struct Meeting {
    BlockClocks released;
    bool all = true;                        // all of them have released something
};

// The lane or the copy that touches memory now.
struct Actor {
    const Warp* warp;
    int lane;                               // -1: the warp's tensor core
    AccessKind kind;
    const char* value = nullptr;            // the bytes that a store writes
    uint16_t mbarrier = 0;                  // a TMA load's agent, else 0
    uint32_t phase = 0;                     // and the mbarrier's time
    bool copy = false;                      // a cp.async's write
    int32_t loc = -1;                       // of the instruction; -1: the warp's
};
// The cells of some memory.
class Cells {
  public:
    void begin(size_t bytes);               // cells of 16 bytes; what they have been is stale

    struct Free { void operator()(Cell* p) const { std::free(p); } };
    std::vector<uint8_t> level;             // [16 bytes]: 0 one cell, 1 cells of 4 bytes, 2 of 1 byte
    std::unique_ptr<Cell[], Free> cells[3];
    size_t bytes = 0;
    uint32_t oldest = 0;                    // cells of blocks before this one are empty
};

// The races of the block that runs.
class Races {
  public:
    void begin(const Kernel& kernel, int threads, size_t shared_bytes);     // a launch
    void begin_block(std::vector<Warp>& warps);
    void shared(const Actor& actor, uint32_t at, int bytes, const char* memory);    // throws Error
    void global(const Actor& actor, uint64_t at, int bytes);
    void landed(const Warp& w, int lane, uint32_t at);                      // a cp.async of 16 bytes is waited for

    uint16_t mbarrier_agent();                                              // a new one
    void acquire(Warp& w, uint32_t lanes, const ClockRef& from);
    void adopt(Warp& w, uint32_t lanes, const ClockRef& all_they_know);     // they have released into it
    void sync_lanes(Warp& w, uint32_t lanes);                               // bar.warp.sync
    void pass_on(Warp& w, uint32_t lanes);                                  // fence.proxy.async
    void finish_wgmmas(Warp& w, uint32_t time);                             // those that were issued by then
    void fence(Warp& w, uint32_t lanes);                                    // __threadfence()
    void meet(Warp& w, int lane, uint64_t at);                              // an atomic in global memory

  private:
    friend struct Released;
    const Kernel* kernel = nullptr;
    int threads = 0, agents = 0, mbarriers = 0;
    uint32_t block = 0, launch = 0;         // launch: its first block
    Cells shared_memory;
    std::unordered_map<uint64_t, Cells> pages;         // of global memory, by address / kPage
    uint64_t recent = 0;                    // the page used last, and its shadow
    Cells* recent_page = nullptr;
    std::vector<std::vector<Trace>> more;
    std::unordered_map<uint64_t, Meeting> meetings;     // of the launch, by address

    template <class F> void each_cell(Cells& s, uint32_t at, int count, const F& f);
    void split(Cells& s, uint32_t place);
    Cells& page(uint64_t number);
    bool others_ordered(AccessKind kind, const Actor& now, uint64_t at) const;
    bool ordered(const Trace& before, const Actor& now, const ClockRef& clock, bool needs_passing) const;
    struct Range { const char* memory; bool global; uint32_t at, offset, count; };  // offset: in the access
    void touch(Cell& c, uint32_t oldest, const Actor& now, const Range& r);
    void remember(Cell& c, const Actor& now, const Trace& trace);
    [[noreturn]] void report(const Trace& before, const Actor& now, const Range& r) const;
    std::string what(const Range& r) const;
    std::string who(const Trace& t, const Actor& now) const;
};

}  // namespace ptx
