// order.cpp -- see order.h.
#include "tests/gpu/order.h"
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cxxabi.h>
#include "tests/gpu/ptx.h"

namespace ptx {
namespace {

struct Span { uintptr_t begin, end; };
struct Operation {
    std::string name;
    int stream;
    uint64_t number;                        // in its stream
    uint64_t place;                         // among all
    std::vector<Span> spans[4];             // by AccessKind, in order, with gaps between them
};
constexpr AccessKind kKinds[] = {kReads, kWrites, kAtomically};

// A bit for each byte that the operation has touched.
constexpr uintptr_t kPage = 4096;
struct Page { uint64_t bits[4][kPage / 64]; };

Operation now;
Seen now_seen;
std::unordered_map<uintptr_t, Page> pages;
struct Recent { uintptr_t number; Page* page; } recent[64];
std::vector<Operation> log;                 // those that something to come may not have seen
uint64_t operations, last_function;

bool has_seen(const Seen& seen, const Operation& o) {
    return size_t(o.stream) < seen.size() && seen[size_t(o.stream)] >= o.number;
}
Page& page_of(uintptr_t number) {
    Recent& r = recent[number % std::size(recent)];
    if (!r.page || r.number != number) r = {number, &pages[number]};
    return *r.page;
}
void add_spans(uintptr_t begin, const uint64_t* bits, std::vector<Span>& to) {
    for (uintptr_t word = 0; word < kPage / 64; word++) {
        uint64_t rest = bits[word];
        while (rest) {
            const int from = std::countr_zero(rest), n = std::countr_one(rest >> from);
            to.push_back({begin + word * 64 + uintptr_t(from), begin + word * 64 + uintptr_t(from + n)});
            rest = from + n == 64 ? 0 : rest >> (from + n) << (from + n);
        }
    }
}
void put_in_order(std::vector<Span>& spans) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    size_t n = 0;
    for (const Span& s : spans)
        if (n && s.begin <= spans[n - 1].end) spans[n - 1].end = std::max(spans[n - 1].end, s.end);
        else spans[n++] = s;
    spans.resize(n);
}
// Returns the first bytes that are in both; none: an empty span.
Span common(const std::vector<Span>& a, const std::vector<Span>& b) {
    for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
        const Span both = {std::max(i->begin, j->begin), std::min(i->end, j->end)};
        if (both.begin < both.end) return both;
        if (i->end < j->end) ++i;
        else ++j;
    }
    return {};
}
std::string race(const Span& where, const std::string& one, const std::string& other, const char* wanted) {
    return format("race: memory at %p, %zu bytes: %s it, and %s it: got no order between them, want %s",
                  reinterpret_cast<void*>(where.begin), size_t(where.end - where.begin), one.c_str(), other.c_str(),
                  wanted);
}
// "fill in stream 2 writes"
std::string who(const Operation& o, AccessKind kind) {
    std::string name = demangled(o.name);
    const std::string nameless = "(anonymous namespace)::";
    for (size_t at; (at = name.find(nameless)) != name.npos;) name.erase(at, nameless.size());
    return format("%s in stream %d %s", name.substr(0, name.find('(')).c_str(), o.stream, verb(kind));
}

}  // namespace

const char* verb(AccessKind kind) {
    return kind == kReads ? "reads" : kind == kWrites ? "writes" : kind == kAtomically ? "adds to" : "uses";
}
std::string demangled(const std::string& name) {
    char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr);
    const std::string result = text ? text : name;
    std::free(text);
    return result;
}
void see(Seen& to, const Seen& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
}

void order_begin(const std::string& name, int stream, const Seen& seen) {
    now = {name, stream, seen[size_t(stream)], operations++, {}};
    now_seen = seen;
    pages.clear();
    std::fill(std::begin(recent), std::end(recent), Recent{});
}
void touched(const void* p, size_t bytes, AccessKind kind) {
    const uintptr_t at = uintptr_t(p);
    if (at % 64 + bytes > 64) return now.spans[kind].push_back({at, at + bytes});
    const uint64_t ones = bytes == 64 ? ~uint64_t(0) : (uint64_t(1) << bytes) - 1;
    page_of(at / kPage).bits[kind][at % kPage / 64] |= ones << at % 64;
}
std::string order_end() {
    for (const auto& [number, page] : pages)
        for (const AccessKind kind : kKinds) add_spans(number * kPage, page.bits[kind], now.spans[kind]);
    for (auto& spans : now.spans) put_in_order(spans);
    std::string text;
    for (const Operation& o : log) {
        if (has_seen(now_seen, o)) continue;
        for (const AccessKind mine : kKinds)
            for (const AccessKind its : kKinds) {
                if (mine == its && mine != kWrites) continue;
                const Span both = common(now.spans[mine], o.spans[its]);
                if (both.end && text.empty())
                    text = race(both, who(now, mine), who(o, its), "an event or a synchronization");
            }
    }
    log.push_back(std::move(now));
    return text;
}

void take(Taken& t) {
    t.bytes.assign(t.source, t.source + t.size);
    t.operations = operations;
}
std::string changed_by_host(const Taken& t) {
    if (last_function > t.operations) return "";
    for (size_t i = 0; i < t.bytes.size(); i++) {
        if (t.source[i] == t.bytes[i]) continue;
        const uintptr_t at = uintptr_t(t.source + i);
        uintptr_t end = 0;                  // of what an operation has written there
        for (const Operation& o : log)
            for (const Span& s : o.spans[kWrites])
                if (o.place >= t.operations && s.begin <= at && at < s.end) end = std::max(end, s.end);
        if (end) {
            i += end - at - 1;
            continue;
        }
        size_t n = 1;
        while (i + n < t.bytes.size() && t.source[i + n] != t.bytes[i + n]) n++;
        return race({at, at + n}, "the host writes", who(now, kReads), "a wait for the copy before");
    }
    return "";
}
void host_function() { last_function = ++operations; }
std::string freed_too_early(const void* begin, size_t bytes, const Seen& host) {
    const uintptr_t at = uintptr_t(begin);
    for (const Operation& o : log)
        for (const AccessKind kind : kKinds) {
            const Span both = common({{at, at + bytes}}, o.spans[kind]);
            if (both.end && !has_seen(host, o))
                return race(both, "the host frees", who(o, kind), "a wait for its stream before");
        }
    return "";
}
void forget(const Seen& host) {
    std::erase_if(log, [&](const Operation& o) { return has_seen(host, o); });
}

}  // namespace ptx
