// order.h -- names two operations of different streams that touch the same bytes, one of them writing, when nothing
// orders them. They are found in every run, whichever of the two comes first in it.
//
// An operation is a kernel, a copy, a fill or a group of NCCL. It has seen those before it in its stream, those before
// the records that its stream has waited for, and those that the host had waited for when it put the operation there.
// All threads of the host count as one. The host's own accesses are known only where it changes what a copy has yet to
// read, and where it frees pinned memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ptx {

enum AccessKind : uint8_t { kNothing, kReads, kWrites, kAtomically, kLooks };      // kLooks: leaves no trace
const char* verb(AccessKind kind);          // "reads"
std::string demangled(const std::string& name);

using Seen = std::vector<uint64_t>;         // [stream]: how many of its operations
void see(Seen& to, const Seen& from);

// An operation is executed between these two. order_end returns "", or the race with one before it.
void order_begin(const std::string& name, int stream, const Seen& seen);     // seen: itself, too
void touched(const void* at, size_t bytes, AccessKind kind);        // an aligned access, or a range
std::string order_end();

// What a copy is to read from the host, as it was when the copy was put into its stream.
struct Taken {
    const char* source = nullptr;
    size_t size = 0;
    std::vector<char> bytes = {};
    uint64_t operations = 0;                // that had been executed
};
void take(Taken& t);
// Returns "", or where the host has changed the bytes: no operation has.
std::string changed_by_host(const Taken& t);
// A function of the program is executed, which may change anything.
void host_function();
// Returns "", or which operation uses memory that the host frees without having seen it.
std::string freed_too_early(const void* begin, size_t bytes, const Seen& host);
// Nothing is queued: what the host has seen is before all that comes.
void forget(const Seen& host);

}  // namespace ptx
