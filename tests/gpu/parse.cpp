// parse.cpp -- PTX text to Kernel::code.
#include <algorithm>
#include <cctype>
#include <cstdarg>
#include <cstdio>
#include "engine.h"
#include "instructions.h"

namespace ptx {

std::string format(const char* f, ...) {
    char text[4096];
    va_list list;
    va_start(list, f);
    vsnprintf(text, sizeof text, f, list);
    va_end(list);
    return text;
}
void fail(const char* f, ...) {
    char text[4096];
    va_list list;
    va_start(list, f);
    vsnprintf(text, sizeof text, f, list);
    va_end(list);
    throw Error(text);
}

static std::vector<std::string>& opcodes() { static auto& list = *new std::vector<std::string>; return list; }
const char* opcode(int op) { return opcodes()[size_t(op)].c_str(); }
int opcode_number(const std::string& text) {
    static auto& numbers = *new std::unordered_map<std::string, int>;
    const auto [it, added] = numbers.try_emplace(text, int(opcodes().size()));
    if (added) opcodes().push_back(text);
    return it->second;
}

std::string Kernel::where(int loc) const {
    if (loc < 0 || size_t(loc) >= locs.size()) return "?";
    const Loc& l = locs[size_t(loc)];
    const auto name = [&](int f) {
        const auto it = files->find(f);
        return it == files->end() ? std::string("?") : it->second.substr(it->second.rfind('/') + 1);
    };
    std::string s = name(l.file) + format(":%d", l.line);
    if (l.in_file) s += " in " + name(l.in_file) + format(":%d", l.in_line);
    return s;
}

// ---- module

static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }

Module::Module(std::string t) : text(std::move(t)) {
    std::string_view s = text;
    if (const size_t at = s.find(".target "); at != s.npos) target = std::string(s.substr(at + 8, s.find('\n', at) - at - 8));
    for (size_t at = 0; (at = s.find(".file", at)) != s.npos; at++) {
        int number = 0;
        char name[1024] = "";
        if (sscanf(s.data() + at, ".file %d \"%1000[^\"]", &number, name) == 2) files[number] = name;
    }
    for (size_t at = 0; (at = s.find(".extern .shared", at)) != s.npos; at++) {
        int align = 1;
        char name[2048] = "";
        if (sscanf(s.data() + at, ".extern .shared .align %d .b8 %2000[^[]", &align, name) == 2) externs[name] = align;
    }
    for (size_t at = 0; (at = s.find(".entry ", at)) != s.npos; at++) {
        size_t begin = at + 7, end = begin;
        while (word_char(s[end])) end++;
        auto k = std::make_unique<Kernel>();
        k->name = std::string(s.substr(begin, end - begin));
        size_t brace = s.find('{', end), depth = 0, i = brace;
        for (;; i++) {
            if (s[i] == '{') depth++;
            if (s[i] == '}' && --depth == 0) break;
        }
        k->text = s.substr(end, i + 1 - end);
        k->files = &files;
        const std::string name = k->name;
        kernels[name] = std::move(k);
        at = i;
    }
    if (s.find("\n.func") != s.npos || s.find(".visible .func") != s.npos) fail("a .func: not supported");
}
Kernel* Module::find(const std::string& name) {
    const auto it = kernels.find(name);
    if (it == kernels.end()) return nullptr;
    if (!it->second->parsed) parse(*this, *it->second);
    return it->second.get();
}

// ---- kernel

namespace {

struct Reg { char kind; int slot; };        // 'p', 2 (b16), 4, 8

struct Parser {
    Parser(Module& m, Kernel& k) : m(m), k(k) {}
    Module& m;
    Kernel& k;
    std::unordered_map<std::string, Reg> regs[32];      // by scope
    std::vector<int> scope_ids{0};
    int depth = 0, scopes = 0;
    struct Family { char kind; int slot, count; };
    std::unordered_map<std::string, Family> families;
    std::map<std::pair<int, std::string>, int> labels;      // (scope id, name): instruction
    struct Jump { int at; std::string label; std::vector<int> scopes; };
    std::vector<Jump> jumps;
    std::map<std::string, std::pair<int, int>> shared;       // name: place, bytes
    std::map<std::string, int> params;                      // name: number
    std::map<std::pair<int, uint64_t>, int> constants;
    int loc = 0;

    int room(char kind, int n = 1) {
        if (kind == 'p') { const int at = k.preds; k.preds += n; return at; }
        const int size = (kind == 8 ? 8 : 4) * 32, at = k.rf_bytes;
        k.rf_bytes += size * n;
        return at;
    }
    static char kind_of(std::string_view type) {
        if (type == ".pred") return 'p';
        if (type == ".b16" || type == ".u16" || type == ".s16" || type == ".b8") return 2;
        if (type == ".b32" || type == ".u32" || type == ".s32" || type == ".f32") return 4;
        if (type == ".b64" || type == ".u64" || type == ".s64" || type == ".f64") return 8;
        fail("register of type %s", std::string(type).c_str());
    }
    const Reg* find(const std::string& name, Reg* family) {
        for (int d = depth; d >= 0; d--) {
            const auto it = regs[d].find(name);
            if (it != regs[d].end()) return &it->second;
        }
        size_t i = name.size();
        while (i && std::isdigit(static_cast<unsigned char>(name[i - 1]))) i--;
        const auto it = families.find(name.substr(0, i));
        if (it == families.end() || i == name.size()) return nullptr;
        const int n = std::stoi(name.substr(i));
        if (n >= it->second.count) fail("register %s", name.c_str());
        const int size = it->second.kind == 'p' ? 1 : (it->second.kind == 8 ? 8 : 4) * 32;
        *family = {it->second.kind, it->second.slot + n * size};
        return family;
    }
    int constant(int width, uint64_t value) {
        if (width < 8) value = uint32_t(value);
        const auto [it, added] = constants.try_emplace({width < 8 ? 4 : 8, value}, 0);
        if (added) {
            it->second = room(width < 8 ? 4 : 8);
            (width < 8 ? k.constants4 : k.constants8).emplace_back(it->second, value);
        }
        return it->second;
    }
    static bool number(const std::string& s, uint64_t* value) {
        if (s.size() == 10 && s[0] == '0' && s[1] == 'f') return *value = std::stoull(s.substr(2), nullptr, 16), true;
        if (s.size() == 18 && s[0] == '0' && s[1] == 'd') return *value = std::stoull(s.substr(2), nullptr, 16), true;
        size_t i = s[0] == '-' ? 1 : 0;
        if (i >= s.size() || !std::isdigit(static_cast<unsigned char>(s[i]))) return false;
        std::string t = s;
        if (t.back() == 'U') t.pop_back();
        *value = s[0] == '-' ? uint64_t(std::stoll(t, nullptr, 0)) : std::stoull(t, nullptr, 0);
        return true;
    }

    std::vector<int> reads, writes;
    // An operand of `width` bytes (0: a predicate); its slot.
    int operand(const std::string& s, int width, bool write, int* own_width = nullptr) {
        Reg family;
        if (const Reg* r = find(s, &family)) {
            if ((r->kind == 'p') != (width == 0)) fail("operand %s", s.c_str());
            if (own_width) *own_width = r->kind;
            else if (width && (width == 8) != (r->kind == 8)) fail("operand %s of another width", s.c_str());
            if (r->kind != 'p') (write ? writes : reads).push_back(r->slot);
            return r->slot;
        }
        if (write) {
            if (s == "_") return -1;
            fail("cannot write %s", s.c_str());
        }
        uint64_t value;
        if (number(s, &value)) {
            if (own_width) *own_width = width;
            if (!width) {       // a constant predicate
                const int at = room('p');
                constant_preds.emplace_back(at, value != 0);
                return at;
            }
            return constant(width, value);
        }
        if (s[0] == '%' && s.find('.') != s.npos) {
            if (width != 4) fail("%s in 64 bits", s.c_str());
            if (own_width) *own_width = 4;
            const auto [it, added] = k.special.try_emplace(s, 0);
            if (added) it->second = room(4);
            return it->second;
        }
        if (const auto it = shared.find(s); it != shared.end()) return constant(width, uint64_t(it->second.first));
        if (m.externs.contains(s)) {
            k.has_dynamic = true;
            return constant(width, uint64_t(k.dynamic_at));
        }
        if (const auto it = params.find(s); it != params.end())
            return constant(width, uint64_t(k.params[size_t(it->second)].offset));
        fail("unknown operand %s", s.c_str());
    }
    std::vector<std::pair<int, bool>> constant_preds;

    // [base+offset]: base's slot (-1: none) and width, the offset.
    void address(Ins& i, std::string s) {
        if (s.size() < 2 || s[0] != '[' || s.back() != ']') fail("address %s", s.c_str());
        s = s.substr(1, s.size() - 2);
        std::string base = s;
        i.imm = 0;
        if (const size_t plus = s.find('+'); plus != s.npos) {
            base = s.substr(0, plus);
            i.imm = std::stoll(s.substr(plus + 1));
        }
        while (!base.empty() && base.back() == ' ') base.pop_back();
        Reg family;
        if (const Reg* r = find(base, &family)) {
            i.a[0] = r->slot, i.base_width = uint8_t(r->kind);
            reads.push_back(r->slot);
            return;
        }
        i.a[0] = -1, i.base_width = 8;
        if (const auto it = shared.find(base); it != shared.end()) i.imm += it->second.first;
        else if (m.externs.contains(base)) i.imm += k.dynamic_at, k.has_dynamic = true;
        else if (const auto p = params.find(base); p != params.end()) i.imm += k.params[size_t(p->second)].offset;
        else fail("address %s", s.c_str());
    }
    static std::vector<std::string> split(const std::string& s) {     // at commas outside of braces and brackets
        std::vector<std::string> parts;
        std::string part;
        int d = 0;
        for (const char c : s) {
            if (c == '{' || c == '[') d++;
            if (c == '}' || c == ']') d--;
            if (c == ',' && d == 0) parts.push_back(part), part.clear();
            else if (c != ' ' && c != '\t' && c != '\n') part += c;
        }
        if (!part.empty()) parts.push_back(part);
        return parts;
    }
    static std::vector<std::string> braced(const std::string& s) {
        if (s.size() > 1 && s[0] == '{') return split(s.substr(1, s.size() - 2));
        return {s};
    }

    void directive(const std::string& s) {
        if (s.starts_with(".reg")) {
            const size_t at = s.find('.', 1);
            size_t end = at;
            while (!std::isspace(static_cast<unsigned char>(s[end]))) end++;
            const char kind = kind_of(s.substr(at, end - at));
            for (const std::string& name : split(s.substr(end))) {
                if (const size_t angle = name.find('<'); angle != name.npos) {
                    const int n = std::stoi(name.substr(angle + 1));
                    families[name.substr(0, angle)] = {kind, room(kind, n), n};
                } else {
                    regs[depth][name] = {kind, room(kind)};
                }
            }
        } else if (s.starts_with(".shared")) {
            int align = 1, bytes = 0;
            char name[2048], type[16];
            if (sscanf(s.c_str(), ".shared .align %d .%15s %2000[^[][%d]", &align, type, name, &bytes) != 4 ||
                std::string(type) != "b8")
                fail("%s", s.c_str());
            k.static_shared = (k.static_shared + align - 1) / align * align;
            shared[name] = {k.static_shared, bytes};
            statics.push_back({k.static_shared, bytes});
            k.static_shared += bytes;
        } else if (!s.starts_with(".pragma")) {
            fail("directive %s", s.substr(0, 60).c_str());
        }
    }
    std::vector<std::pair<int, int>> statics;

    void instruction(std::string s) {
        Ins i;
        i.loc = loc;
        if (s[0] == '@') {
            size_t end = 1;
            i.guard_not = s[1] == '!';
            if (i.guard_not) end++;
            const size_t begin = end;
            while (word_char(s[end])) end++;
            i.guard = int16_t(operand(s.substr(begin, end - begin), 0, false));
            while (std::isspace(static_cast<unsigned char>(s[end]))) end++;
            s = s.substr(end);
        }
        size_t end = 0;
        while (end < s.size() && !std::isspace(static_cast<unsigned char>(s[end]))) end++;
        const std::string op = s.substr(0, end);
        const std::vector<std::string> parts = split(s.substr(end));
        i.op = opcode_number(op);
        reads.clear(), writes.clear();
        if (op == "bra" || op == "bra.uni") {
            i.flow = kBranch;
            jumps.push_back({int(k.code.size()), parts.at(0), scope_ids});
        } else if (op == "ret" || op == "exit") {
            i.flow = kReturn;
        } else if (const Simple* d = find_simple(op)) {
            i.fn = d->fn;
            if (parts.size() != size_t(d->n)) fail("%s: %zu operands", op.c_str(), parts.size());
            i.n = uint8_t(d->n);
            for (int j = 0; j < d->n; j++) {
                int own = d->width[j];
                i.a[j] = operand(parts[size_t(j)], d->width[j], j == 0, d->loose && j == 0 ? &own : nullptr);
                if (j == 0) i.width = uint8_t(own);
            }
        } else {
            special(i, op, parts);
        }
        i.uses = int32_t(k.more.size());
        k.more.push_back(int(writes.size()));
        k.more.push_back(int(reads.size()));
        k.more.insert(k.more.end(), writes.begin(), writes.end());
        k.more.insert(k.more.end(), reads.begin(), reads.end());
        k.code.push_back(i);
        k.source.push_back(s.size() > 120 ? s.substr(0, 117) + "..." : s);
    }
    int list(Ins& i, const std::string& s, int width, bool write) {
        i.list = int32_t(k.more.size());
        for (const std::string& r : braced(s)) {
            int own = width;
            const int slot = operand(r, width, write, &own);
            k.more.push_back(slot);
            k.more.push_back(own);
            i.list_n++;
        }
        return i.list_n;
    }
    void special(Ins& i, const std::string& op, const std::vector<std::string>& p) {
        const auto starts = [&](const char* t) { return op.starts_with(t); };
        if (starts("ld.") || starts("st.")) {
            const std::string type = op.substr(op.rfind('.') + 1);
            i.vec = op.find(".v4.") != op.npos ? 4 : op.find(".v2.") != op.npos ? 2 : 1;
            i.width = uint8_t(std::stoi(type.substr(1)) / 8);
            i.flags = type[0] == 's';
            std::string space = op.substr(3, op.rfind('.') - 3);
            if (const size_t v = space.find("v"); v != space.npos && (space.size() == v + 2)) space = v ? space.substr(0, v - 1) : "";
            i.fn = memory_op(space, op[0] == 's');
            if (!i.fn) fail("%s: space %s", op.c_str(), space.c_str());
            const bool store = op[0] == 's';
            address(i, p.at(store ? 0 : 1));
            if (list(i, p.at(store ? 1 : 0), i.width == 8 ? 8 : 4, !store) != i.vec) fail("%s: vector", op.c_str());
            return;
        }
        if (op == "mov.b64" || op == "mov.b32") {
            if (p[0][0] == '{') {
                i.fn = unpack_op();
                i.width = op == "mov.b64" ? 8 : 4;
                i.a[0] = operand(p[1], i.width, false);
                list(i, p[0], 4, true);
                return;
            }
            if (p[1][0] == '{') {
                i.fn = pack_op();
                i.width = op == "mov.b64" ? 8 : 4;
                i.a[0] = operand(p[0], i.width, true);
                list(i, p[1], 4, false);
                return;
            }
            i.fn = mov_op(op == "mov.b64" ? 8 : 4);
            i.a[0] = operand(p[0], op == "mov.b64" ? 8 : 4, true);
            i.a[1] = operand(p[1], op == "mov.b64" ? 8 : 4, false);
            i.n = 2;
            return;
        }
        if (starts("shfl.sync.")) {
            i.fn = shuffle_op(op);
            const size_t bar = p[0].find('|');
            i.a[0] = operand(p[0].substr(0, bar), 4, true);
            i.a[5] = bar == std::string::npos ? -1 : operand(p[0].substr(bar + 1), 0, true);
            for (int j = 1; j < 5; j++) i.a[j] = operand(p.at(size_t(j)), 4, false);
            return;
        }
        if (starts("mma.sync.")) {
            i.fn = other_op(op);
            if (!i.fn) fail("unknown instruction %s", op.c_str());
            i.list = int32_t(k.more.size());
            for (int part = 0; part < 4; part++)
                for (const std::string& r : braced(p.at(size_t(part)))) {
                    const int slot = operand(r, 4, part == 0);
                    pending.push_back(slot);
                }
            i.list_n = int(pending.size());
            k.more.insert(k.more.end(), pending.begin(), pending.end());
            pending.clear();
            if (i.list_n != 14) fail("%s: %d registers", op.c_str(), i.list_n);
            return;
        }
        if (starts("wgmma.mma_async")) {
            k.has_wgmma = true;
            i.fn = wgmma_op();
            i.is_wgmma = true;
            i.width = 0;
            const int n = std::stoi(op.substr(op.find(".m64n") + 5));
            const std::string want = format("wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16", n);
            if (op != want || n % 8 || n < 8 || n > 256) fail("unknown instruction %s", op.c_str());
            for (const std::string& r : braced(p.at(0))) pending.push_back(operand(r, 4, true));
            if (int(pending.size()) != n / 2) fail("%s: %zu accumulators", op.c_str(), pending.size());
            const std::vector<int> accumulators = pending;
            reads.insert(reads.end(), writes.begin(), writes.end());
            i.imm = n;
            const bool a_in_registers = p.at(1)[0] == '{';
            i.flags = a_in_registers;
            if (a_in_registers) {
                for (const std::string& r : braced(p[1])) pending.push_back(operand(r, 4, false));
                if (int(pending.size()) != n / 2 + 4) fail("%s: A", op.c_str());
            } else {
                i.a[0] = operand(p[1], 8, false);
            }
            i.a[1] = operand(p.at(2), 8, false);
            i.a[2] = operand(p.at(3), 0, false);
            if (p.size() != (a_in_registers ? 7u : 8u)) fail("%s: %zu operands", op.c_str(), p.size());
            if (p[4] != "1" || p[5] != "1") fail("%s: scales %s %s", op.c_str(), p[4].c_str(), p[5].c_str());
            const auto flag = [&](size_t j) {
                if (p[j] != "0" && p[j] != "1") fail("%s: transposition %s", op.c_str(), p[j].c_str());
                return p[j] == "1";
            };
            i.a[3] = a_in_registers ? 0 : flag(6);
            i.a[4] = flag(a_in_registers ? 6 : 7);
            i.list = int32_t(k.more.size());
            i.list_n = int(pending.size());
            k.more.insert(k.more.end(), pending.begin(), pending.end());
            pending.clear();
            return;
        }
        i.fn = other_op(op);
        if (!i.fn) fail("unknown instruction %s", op.c_str());
        if (starts("ldmatrix.")) {
            address(i, p.at(1));
            if (list(i, p[0], 4, true) != 4) fail("%s", op.c_str());
        } else if (starts("cp.async.cg")) {
            address(i, p.at(0));            // a[0], imm
            Ins from;
            address(from, p.at(1));
            if (from.base_width != 8 || p.at(2) != "16") fail("%s", op.c_str());
            i.a[1] = from.a[0];
            i.list = int32_t(from.imm);
            i.a[2] = p.size() > 3 ? operand(p[3], 4, false) : constant(4, 16);
        } else if (starts("cp.async.bulk.tensor")) {
            address(i, p.at(0));
            const std::string map = p.at(1).substr(1, p[1].size() - 2);
            const std::vector<std::string> parts = split(map);
            Ins from, bar;
            i.a[1] = operand(parts.at(0), 8, false);
            const std::vector<std::string> places = braced(parts.at(1));
            const int rank = op[op.find("tensor.") + 7] - '0';
            if (int(places.size()) != rank || rank > 3) fail("%s: %zu places", op.c_str(), places.size());
            for (int j = 0; j < rank; j++) i.a[2 + j] = operand(places[size_t(j)], 4, false);
            address(bar, p.at(2));
            if (bar.imm || bar.base_width != 4) fail("%s: barrier", op.c_str());
            i.a[5] = bar.a[0];
            i.n = uint8_t(rank);
        } else if (starts("mbarrier.init")) {
            address(i, p.at(0));
            i.a[1] = operand(p.at(1), 4, false);
        } else if (starts("mbarrier.arrive")) {
            if (p.at(0) != "_") fail("%s: a state", op.c_str());
            address(i, p.at(1));
            i.a[1] = p.size() > 2 ? operand(p[2], 4, false) : -1;
        } else if (starts("mbarrier.try_wait.parity")) {
            i.a[2] = operand(p.at(0), 0, true);
            address(i, p.at(1));
            i.a[1] = operand(p.at(2), 4, false);
        } else if (starts("bar.warp.sync")) {
            i.a[0] = operand(p.at(0), 4, false);
        } else if (starts("bar.")) {
            i.a[0] = operand(p.at(0), 4, false);
            i.a[1] = p.size() > 1 ? operand(p[1], 4, false) : -1;
        } else if (starts("vote.sync.ballot")) {
            i.a[0] = operand(p.at(0), 4, true);
            i.a[1] = operand(p.at(1), 0, false);
            i.a[2] = operand(p.at(2), 4, false);
        } else if (starts("atom.")) {
            address(i, p.at(1));
            i.a[1] = operand(p[0], 4, true);
            i.a[2] = operand(p.at(2), 4, false);
        } else if (starts("prefetch")) {
            address(i, p.at(0));
        } else if (starts("cp.async.wait_group") || starts("wgmma.wait_group") || starts("setmaxnreg")) {
            uint64_t value;
            if (!number(p.at(0), &value)) fail("%s", op.c_str());
            i.imm = int64_t(value);
        } else if (!p.empty()) {
            fail("%s: operands", op.c_str());
        }
    }
    std::vector<int> pending;

    void header(std::string_view s) {
        size_t at = s.find('(');
        const size_t end = s.find(')', at);
        std::string list(s.substr(at + 1, end - at - 1));
        for (const std::string& p0 : split_params(list)) {
            std::string p = p0;
            if (const size_t ptr = p.find(".ptr"); ptr != p.npos) {     // .ptr [.space] .align N: of what it points to
                size_t end = p.find(".align", ptr);
                end = end == p.npos ? ptr + 4 : p.find_first_not_of("0123456789 ", end + 6);
                p.erase(ptr, end - ptr);
            }
            int align = 0, size = 0, count = 1;
            char type[16] = "", name[4096] = "";
            if (sscanf(p.c_str(), " .param .align %d .%15s %4000[^[ ,\n][%d]", &align, type, name, &count) < 3) {
                align = 0;
                if (sscanf(p.c_str(), " .param .%15s %4000[^[ ,\n]", type, name) != 2) fail("parameter %s", p.c_str());
            }
            size = std::stoi(std::string(type).substr(1)) / 8;
            if (!align) align = size;
            k.param_bytes = (k.param_bytes + align - 1) / align * align;
            params[name] = int(k.params.size());
            k.params.push_back({k.param_bytes, size * count});
            k.param_bytes += size * count;
        }
        std::string rest(s.substr(end + 1));
        int x = 1, y = 1, z = 1;
        if (const size_t max = rest.find(".maxntid"); max != rest.npos) {
            sscanf(rest.c_str() + max, ".maxntid %d, %d, %d", &x, &y, &z);
            k.max_threads = x * y * z;
        }
        if (const size_t min = rest.find(".minnctapersm"); min != rest.npos)
            k.min_blocks = std::atoi(rest.c_str() + min + 13);
    }
    static std::vector<std::string> split_params(const std::string& s) {
        std::vector<std::string> parts;
        size_t begin = 0;
        for (size_t i = 0; i <= s.size(); i++)
            if (i == s.size() || s[i] == ',') {
                const std::string part = s.substr(begin, i - begin);
                if (part.find(".param") != part.npos) parts.push_back(part);
                begin = i + 1;
            }
        return parts;
    }

    // Where dynamic shared memory begins depends on the static arrays, which all are declared before the first use.
    void place_dynamic() {
        int align = 1;
        for (const auto& [name, a] : m.externs) align = std::max(align, a);
        k.dynamic_at = (k.static_shared + align - 1) / align * align;
    }

    void body(std::string_view s) {
        // Static arrays first: .shared lines may come late.
        for (size_t at = 0; (at = s.find(".shared .align", at)) != s.npos; at++)
            directive(std::string(s.substr(at, s.find(';', at) - at)));
        place_dynamic();
        size_t i = 0;
        const auto skip_line = [&] { while (i < s.size() && s[i] != '\n') i++; };
        while (i < s.size()) {
            const char c = s[i];
            if (std::isspace(static_cast<unsigned char>(c)) || c == ';') { i++; continue; }
            if (s.substr(i, 2) == "//") { skip_line(); continue; }
            if (c == '{') {
                depth++, i++;
                scope_ids.push_back(++scopes);
                regs[depth].clear();
                continue;
            }
            if (c == '}') { depth--, i++; scope_ids.pop_back(); continue; }
            if (s.substr(i, 4) == ".loc") {
                Loc l{};
                const std::string line(s.substr(i, s.find('\n', i) - i));
                sscanf(line.c_str(), ".loc %d %d", &l.file, &l.line);
                if (const size_t in = line.find("inlined_at"); in != line.npos)
                    sscanf(line.c_str() + in, "inlined_at %d %d", &l.in_file, &l.in_line);
                k.locs.push_back(l);
                loc = int(k.locs.size()) - 1;
                skip_line();
                continue;
            }
            size_t end = i;
            while (word_char(s[end])) end++;
            if (end > i && s[end] == ':' && s[end + 1] != ':') {
                labels[{scope_ids.back(), std::string(s.substr(i, end - i))}] = int(k.code.size());
                i = end + 1;
                continue;
            }
            end = s.find(';', i);
            if (end == s.npos) break;
            std::string statement(s.substr(i, end - i));
            for (char& ch : statement) if (ch == '\n' || ch == '\t') ch = ' ';
            while (!statement.empty() && statement.back() == ' ') statement.pop_back();
            i = end + 1;
            try {
                if (statement[0] == '.') {
                    if (!statement.starts_with(".shared")) directive(statement);
                } else {
                    instruction(statement);
                }
            } catch (const std::exception& e) {
                fail("%s, in \"%s\" of %s", e.what(), statement.substr(0, 200).c_str(), k.name.c_str());
            }
        }
        for (const Jump& j : jumps) {
            int target = -1;
            for (size_t d = j.scopes.size(); d-- > 0 && target < 0;)
                if (const auto it = labels.find({j.scopes[d], j.label}); it != labels.end()) target = it->second;
            if (target < 0) fail("label %s", j.label.c_str());
            k.code[size_t(j.at)].target = target;
        }
    }
};

}  // namespace

void parse(Module& m, Kernel& k) {
    Parser p(m, k);
    k.locs.push_back({0, 0});
    const size_t brace = k.text.find('{');
    p.header(k.text.substr(0, brace));
    p.body(k.text.substr(brace + 1, k.text.size() - brace - 2));
    for (const auto& [at, value] : p.constant_preds) k.constants4.emplace_back(-1 - at, value ? ~0u : 0u);
    k.parsed = true;
    k.rf_bytes = (k.rf_bytes + 255) / 256 * 256;
}

}  // namespace ptx
