// parse.cpp -- PTX text becomes Kernel::code.
//
// It knows the PTX that nvcc writes: a statement goes to its semicolon, registers and labels belong to the braces
// around them, arrays may be declared late. What it does not know is an error, never a guess: it names the
// instruction, its line in the PTX and its place in the source.
#include <algorithm>
#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <regex>
#include "engine.h"

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

// They live to the end of the program: the reports of what was executed are written then.
static std::vector<std::string>& opcodes() {
    static auto& list = *new std::vector<std::string>;
    return list;
}
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
    const auto name = [&](int number) {
        const auto it = files->find(number);
        return it == files->end() ? std::string("?") : it->second.substr(it->second.rfind('/') + 1);
    };
    std::string text = name(l.file) + format(":%d", l.line);
    if (l.in_file) text += " in " + name(l.in_file) + format(":%d", l.in_line);
    return text;
}

// ------------------------ text

static bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)); }
static bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }
static bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }
static int round_up(int n, int to) { return (n + to - 1) / to * to; }

// The parts between commas or bars outside of braces and brackets, without spaces.
static std::vector<std::string> split(std::string_view s) {
    std::vector<std::string> parts;
    std::string part;
    int depth = 0;
    for (const char c : s) {
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if ((c == ',' || c == '|') && depth == 0) {
            parts.push_back(part);
            part.clear();
        } else if (!is_space(c)) {
            part += c;
        }
    }
    if (!part.empty()) parts.push_back(part);
    return parts;
}
// What is inside of braces or brackets.
static std::vector<std::string> inner(const std::string& s) {
    if (s.size() < 2) fail("operand %s: want a list or an address", s.c_str());
    return split(std::string_view(s).substr(1, s.size() - 2));
}
// A number of the text, or the bits of a float ("0f3F800000", "0d3FF0000000000000").
static std::optional<uint64_t> number(std::string s) {
    if (s.starts_with("0f") || s.starts_with("0d")) return std::stoull(s.substr(2), nullptr, 16);
    const bool negative = s[0] == '-';
    if (s.size() <= size_t(negative) || !is_digit(s[negative])) return std::nullopt;
    if (s.back() == 'U') s.pop_back();
    return negative ? uint64_t(std::stoll(s, nullptr, 0)) : std::stoull(s, nullptr, 0);
}

// ------------------------ modules

// Calls f with the rest of the text at each place of a word.
template <class F> static void each_place(std::string_view text, std::string_view word, const F& f) {
    for (size_t at = 0; (at = text.find(word, at)) != text.npos; at++) f(at);
}

// ".shared .align 4 .b8 name[256]", ".extern .shared .align 16 .b8 name[]", ".local ...", ".param .u64 name"; what a
// parameter points to (".ptr .global .align 1") says nothing here.
static DeclaredArray declared_array(std::string_view s, size_t at) {
    static const std::regex pointer("[.]ptr( [.][a-z]+)*( [0-9]+)? ");
    const std::string all(s.substr(at, s.find_first_of(";,", at) - at)), text = std::regex_replace(all, pointer, "");
    int align = 0, count = 1;
    char name[2048], type[16];
    if (sscanf(text.c_str(), ".%*[a-z] .align %d .%15s %2000[^[ \n][%d]", &align, type, name, &count) < 3 &&
        sscanf(text.c_str(), ".%*[a-z] .%15s %2000[^[ \n]", type, name) != 2)
        fail("%s: want .align N .type name", text.c_str());
    const bool dynamic = s.substr(0, at).ends_with(".extern ");
    const int bytes = std::atoi(type + 1) / 8;
    return {name, align ? align : bytes, dynamic ? 0 : bytes * count, dynamic};
}

Module::Module(std::string text_) : text(std::move(text_)) {
    const std::string_view s = text;
    if (const size_t at = s.find(".target "); at != s.npos)
        target = std::string(s.substr(at + 8, s.find('\n', at) - at - 8));
    char name[2048];
    each_place(s, ".file", [&](size_t at) {
        int file = 0;
        if (sscanf(s.data() + at, ".file %d \"%2000[^\"]", &file, name) == 2) files[file] = name;
    });
    each_place(s, ".entry ", [&](size_t at) {
        const size_t begin = at + 7;
        size_t end = begin, depth = 0;
        while (in_word(s[end])) end++;
        auto k = std::make_unique<Kernel>();
        k->name = std::string(s.substr(begin, end - begin));
        size_t last = s.find('{', end);
        for (; last < s.size(); last++) {
            depth += s[last] == '{';
            if (s[last] == '}' && --depth == 0) break;
        }
        if (last >= s.size()) fail("PTX: %s: no closing brace", k->name.c_str());
        k->text = s.substr(end, last + 1 - end);
        k->files = &files;
        kernels[k->name] = std::move(k);
    });
    each_place(s, ".shared .align", [&](size_t at) {
        for (const auto& [_, k] : kernels)
            if (s.data() + at >= k->text.begin() && s.data() + at < k->text.end()) return;      // the kernel's own
        shared.push_back(declared_array(s, at));
    });
    if (s.find("\n.func") != s.npos || s.find(".visible .func") != s.npos)
        fail("PTX: a .func: got a call that is not inlined, want none; kernels call __device__ functions that inline");
}
Kernel* Module::find(const std::string& name) {
    const auto it = kernels.find(name);
    if (it == kernels.end()) return nullptr;
    if (!it->second->parsed) parse(*this, *it->second);
    return it->second.get();
}

// ------------------------ kernels

namespace {

// bytes: 2, 4, 8; 0: a predicate. count: of a family, "%r<17>", whose name is "%r<".
struct Reg { int bytes, slot, count; };
int room_of(int bytes) { return bytes == 0 ? 1 : bytes == 8 ? 256 : 128; }

using Parts = std::vector<std::string>;

struct Parser {
    Module& m;
    Kernel& k;
    struct Scope {                                              // every brace opens one
        std::unordered_map<std::string, Reg> regs;
        std::unordered_map<std::string, int> labels;            // name: instruction
        std::vector<std::pair<int, std::string>> jumps;         // instruction and label, not found yet
    };
    std::vector<Scope> scopes{1};
    std::map<std::string, int> places;                          // of arrays, and of parameters
    std::map<std::pair<int, uint64_t>, int> constants;          // (bytes, value): register
    std::vector<int> reads, writes;                             // registers of the instruction
    int loc = 0;

    Parser(Module& m_, Kernel& k_) : m(m_), k(k_) {}

    // ---- registers

    int room(int bytes, int n = 1) {
        int& used = bytes ? k.rf_bytes : k.preds;
        used += n * room_of(bytes);
        return used - n * room_of(bytes);
    }
    std::optional<Reg> find(const std::string& name) const {
        const size_t digits = name.find_last_not_of("0123456789") + 1;
        const std::string family = name.substr(0, digits) + '<';
        for (size_t d = scopes.size(); d-- > 0;) {
            const auto& regs = scopes[d].regs;
            if (const auto it = regs.find(name); it != regs.end()) return it->second;
            const auto it = regs.find(family);
            if (it == regs.end() || digits == name.size()) continue;
            Reg reg = it->second;
            const int n = std::stoi(name.substr(digits));
            if (n >= reg.count) fail("register %s: got number %d of %d", name.c_str(), n, reg.count);
            reg.slot += n * room_of(reg.bytes);
            return reg;
        }
        return std::nullopt;
    }
    int place_of(const std::string& name) const {
        const auto it = places.find(name);
        if (it == places.end()) fail("operand %s: unknown", name.c_str());
        return it->second;
    }
    // A register that holds the value; of width 0 a predicate.
    int constant(int width, uint64_t value) {
        const int bytes = width == 2 ? 4 : width;
        value = bytes == 0 ? value != 0 : bytes == 4 ? uint32_t(value) : value;
        const auto [it, added] = constants.try_emplace({bytes, value}, 0);
        if (added) it->second = room(bytes);
        return it->second;
    }

    // ---- operands

    // The register of an operand of `width` bytes (0: a predicate). own_width: any width will do, and is told.
    int operand(const std::string& s, int width, bool write = false, int* own_width = nullptr) {
        if (const auto reg = find(s)) {
            if ((reg->bytes == 0) != (width == 0)) fail("operand %s: a predicate where none belongs", s.c_str());
            if (own_width) *own_width = reg->bytes;
            else if ((width == 8) != (reg->bytes == 8)) fail("operand %s: want %d bytes", s.c_str(), width);
            if (width) (write ? writes : reads).push_back(reg->slot);
            return reg->slot;
        }
        if (write) {
            if (s == "_") return -1;
            fail("operand %s: cannot be written", s.c_str());
        }
        if (own_width) *own_width = width;
        if (const auto value = number(s)) return constant(width, *value);
        if (s[0] == '%' && s.find('.') != s.npos) {
            if (width != 4) fail("operand %s: has 4 bytes, want %d", s.c_str(), width);
            const auto [it, added] = k.special.try_emplace(s, 0);
            if (added) it->second = room(4);
            return it->second;
        }
        return constant(width, uint64_t(place_of(s)));
    }
    // "[base+offset]": a[n] becomes the base's register (-1: none). Returns the offset.
    int64_t address(Ins& i, int n, const std::string& s) {
        if (s.size() < 2 || s[0] != '[' || s.back() != ']') fail("address %s: want [base+offset]", s.c_str());
        const size_t plus = std::min(s.find('+'), s.size() - 1);
        const std::string base = s.substr(1, plus - 1);
        const int64_t offset = s[plus] == '+' ? std::stoll(s.substr(plus + 1)) : 0;
        const auto reg = find(base);
        if (n == 0) i.base_width = uint8_t(reg ? reg->bytes : 8);
        else want(!reg || reg->bytes == 8, s, "want a 64-bit address");
        if (!reg) return offset + place_of(base);
        i.a[n] = reg->slot;
        reads.push_back(reg->slot);
        return offset;
    }
    static void want(bool good, const std::string& subject, const char* what) {
        if (!good) fail("%s: %s", subject.c_str(), what);
    }
    // Adds to Ins::list the registers in braces, or one alone: all of 8 bytes, or none; "_" is -1. Returns how many.
    int list(Ins& i, const std::string& s, int width, bool write) {
        if (i.list < 0) i.list = int32_t(k.more.size());
        const Parts names = s[0] == '{' ? inner(s) : Parts{s};
        for (const std::string& name : names) {
            int own = width;
            k.more.push_back(operand(name, width, write, &own));
            want(i.list_n == 0 || (own == 8) == (i.list_width == 8), name, "want registers of one width");
            i.list_width = uint8_t(own);
            i.list_n++;
        }
        return int(names.size());
    }
    // An operand by its word of Instruction::operands.
    void by_word(Ins& i, const std::string& word, const std::string& s) {
        const int n = std::atoi(word.c_str() + 1);
        if (const size_t letter = std::string_view("dresqp").find(word[0]); letter != word.npos) {
            i.a[n] = operand(s, letter < 2 ? 4 : letter < 4 ? 8 : 0, letter % 2 == 0);
        } else if (word[0] == 'D' || word[0] == 'R') {
            const bool as_type = word[1] == '*';
            const int got = list(i, s, as_type && i.width == 8 ? 8 : 4, word[0] == 'D');
            want(word[1] == '+' || got == (as_type ? i.vec : n), s, "another number of registers");
        } else if (word[0] == '@') {
            (n ? i.from : i.imm) = address(i, n, s);
        } else if (word[0] == '#') {
            want(number(s).has_value(), s, "want a number");
            if (n) i.a[n] = int32_t(*number(s));
            else i.imm = int64_t(*number(s));
        } else if (word[0] == 'L') {
            scopes.back().jumps.emplace_back(int(k.code.size()), s);
        } else if (word[0] == '[' || word[0] == '{') {
            by_words(i, inner(word), inner(s), s);
        } else {
            want(s == word, s, "want another operand");
        }
    }
    void by_words(Ins& i, const Parts& words, const Parts& p, const std::string& subject) {
        size_t n = 0;
        for (const std::string& word : words) {
            const size_t option = word.find_first_of("?=");
            if (option == word.npos || p.size() == words.size()) by_word(i, word, p.at(n++));
            else if (word[option] == '=') by_word(i, word, word.substr(option + 1));
        }
        want(n == p.size(), subject, "another number of operands");
    }
    // Its row is named as engine.h says.
    void by_row(Ins& i, const std::string& op, const Parts& p) {
        const size_t type = op.rfind('.') + 1;
        std::string name = op;
        i.width = uint8_t(std::atoi(op.c_str() + type + 1) / 8);
        i.extends = op[type] == 's';
        i.is_wgmma = op.starts_with("wgmma.mma_async");
        k.has_wgmma |= i.is_wgmma;
        if (op.starts_with("ld.") || op.starts_with("st.")) {
            name.resize(type - 1);
            for (const int n : {2, 4})
                if (name.ends_with(format(".v%d", n))) {
                    i.vec = uint8_t(n);
                    name.resize(name.size() - 3);
                }
            if (name.ends_with(".nc") || name.ends_with(".wb")) name.resize(name.size() - 3);
        } else if (op.starts_with("mov.") || i.is_wgmma) {
            for (size_t j = 0; j < 2; j++) name += p.at(j)[0] == '{' ? format(" {%zu}", j) : "";
        }
        const Instruction* const row = find_instruction(name);
        want(row, op, "unknown instruction");
        i.fn = row->fn;
        i.imm = row->imm;
        by_words(i, split(row->operands), p, op);
    }

    // ---- statements

    // "@!%p1 add.s32 %r1, %r2, %r3"
    void instruction(const std::string& s) {
        Ins i;
        i.loc = loc;
        reads.clear();
        writes.clear();
        size_t begin = 0, end;
        if (s[0] == '@') {
            i.guard_not = s[1] == '!';
            begin = end = 1 + size_t(i.guard_not);
            while (in_word(s[end])) end++;
            i.guard = int16_t(operand(s.substr(begin, end - begin), 0));
            begin = s.find_first_not_of(' ', end);
        }
        end = std::min(s.find(' ', begin), s.size());
        const std::string op = s.substr(begin, end - begin);
        const Parts parts = split(std::string_view(s).substr(end));
        i.op = opcode_number(op);
        by_row(i, op, parts);
        i.uses = int32_t(k.more.size());
        i.writes = uint16_t(writes.size());
        i.reads = uint16_t(reads.size());
        k.more.insert(k.more.end(), writes.begin(), writes.end());
        k.more.insert(k.more.end(), reads.begin(), reads.end());
        k.code.push_back(i);
        k.source.push_back(s.size() > 120 ? s.substr(0, 117) + "..." : s);
    }

    // ".reg .b32 %r<17>", ".reg .pred done"
    void declare_registers(const std::string& s) {
        const size_t at = s.find('.', 1), end = s.find(' ', at);
        const std::string type = s.substr(at, end - at);
        const int bits = type == ".pred" ? 0 : std::atoi(type.c_str() + 2), bytes = bits == 8 ? 2 : bits / 8;
        if (type != ".pred" && bytes != 2 && bytes != 4 && bytes != 8) fail("register of type %s", type.c_str());
        for (const std::string& name : split(std::string_view(s).substr(end))) {
            const size_t angle = name.find('<');
            const int n = angle == name.npos ? 1 : std::stoi(name.substr(angle + 1));
            scopes.back().regs[name.substr(0, angle == name.npos ? angle : angle + 1)] = {bytes, room(bytes, n), n};
        }
    }
    void place_shared(std::string_view text) {
        std::vector<DeclaredArray> arrays;
        for (const DeclaredArray& a : m.shared)
            if (text.find(a.name) != text.npos) arrays.push_back(a);
        each_place(text, ".shared .align", [&](size_t at) { arrays.push_back(declared_array(text, at)); });
        std::ranges::stable_partition(arrays, [](const DeclaredArray& a) { return !a.dynamic; });
        for (const DeclaredArray& a : arrays) {
            k.dynamic_at = places[a.name] = round_up(k.dynamic_at, a.align);
            if (a.dynamic) continue;
            k.arrays[k.dynamic_at] = a.name;
            k.static_shared = k.dynamic_at += a.bytes;
        }
    }
    void place_local(std::string_view text) {
        each_place(text, ".local .align", [&](size_t at) {
            const DeclaredArray a = declared_array(text, at);
            places[a.name] = round_up(k.local, a.align);
            k.local = places[a.name] + a.bytes;
        });
    }
    void statement(const std::string& s) {
        if (s[0] != '.') instruction(s);
        else if (s.starts_with(".reg")) declare_registers(s);
        else if (!s.starts_with(".shared") && !s.starts_with(".local") && !s.starts_with(".pragma"))
            fail("directive %.60s: unknown", s.c_str());
    }

    // "(.param ..., .param ...) .maxntid 128, 1, 1"
    void header(std::string_view s) {
        const std::string_view list = s.substr(0, s.find(')'));
        each_place(list, ".param ", [&](size_t at) {
            const DeclaredArray a = declared_array(list, at);
            places[a.name] = k.param_bytes = round_up(k.param_bytes, a.align);
            k.params.push_back({k.param_bytes, a.bytes});
            k.param_bytes += a.bytes;
        });
        int x = 1, y = 1, z = 1;
        each_place(s, ".maxntid", [&](size_t at) {
            sscanf(std::string(s.substr(at)).c_str(), ".maxntid %d, %d, %d", &x, &y, &z);
            k.max_threads = x * y * z;
        });
    }

    // .loc FILE LINE COLUMN, function_name ..., inlined_at FILE LINE COLUMN
    void location(const std::string& line) {
        Loc l{};
        sscanf(line.c_str(), ".loc %d %d", &l.file, &l.line);
        if (const size_t in = line.find("inlined_at"); in != line.npos)
            sscanf(line.c_str() + in, "inlined_at %d %d", &l.in_file, &l.in_line);
        k.locs.push_back(l);
        loc = int(k.locs.size()) - 1;
    }
    void body(std::string_view s) {
        place_shared(s);
        place_local(s);
        for (size_t i = 0; i < s.size();) {
            const size_t line_end = std::min(s.find('\n', i), s.size());
            size_t word_end = i;
            while (in_word(s[word_end])) word_end++;
            if (is_space(s[i]) || s[i] == ';') {
                i++;
            } else if (s.substr(i, 2) == "//") {
                i = line_end;
            } else if (s[i] == '{') {
                i++;
                scopes.emplace_back();
            } else if (s[i] == '}') {
                i++;
                close_scope();
            } else if (s.substr(i, 5) == ".loc\t" || s.substr(i, 5) == ".loc ") {
                location(std::string(s.substr(i, line_end - i)));
                i = line_end;
            } else if (word_end > i && s[word_end] == ':' && s[word_end + 1] != ':') {
                scopes.back().labels[std::string(s.substr(i, word_end - i))] = int(k.code.size());
                i = word_end + 1;
            } else {
                const size_t end = std::min(s.find(';', i), s.size());
                std::string text(s.substr(i, end - i));
                std::replace_if(text.begin(), text.end(), is_space, ' ');
                text.resize(text.find_last_not_of(' ') + 1);
                try {
                    statement(text);
                } catch (const std::exception& e) {
                    const char* const begin = m.text.data();
                    const auto line = 1 + std::count(begin, s.data() + i, '\n');
                    fail("PTX for %s: line %td (%s): %s; in \"%.200s\" of %s", m.target.c_str(), line,
                         k.where(loc).c_str(), e.what(), text.c_str(), k.name.c_str());
                }
                i = end;
            }
        }
        close_scope();
    }
    // Jumps to labels that this scope does not have are the outer one's.
    void close_scope() {
        const Scope inner = std::move(scopes.back());
        scopes.pop_back();
        for (const auto& [at, label] : inner.jumps) {
            const auto it = inner.labels.find(label);
            if (it != inner.labels.end()) k.code[size_t(at)].target = it->second;
            else if (!scopes.empty()) scopes.back().jumps.emplace_back(at, label);
            else fail("PTX: %s: label %s: not found", k.name.c_str(), label.c_str());
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
    k.parsed = true;
    k.registers.assign(size_t(round_up(k.rf_bytes, 256)), char(0xff));
    for (const auto& [constant, slot] : p.constants) {
        const auto& [bytes, value] = constant;
        if (!bytes) k.constant_predicates.emplace_back(slot, value ? ~0u : 0u);
        for (int lane = 0; lane < 32; lane++)
            std::memcpy(k.registers.data() + slot + lane * bytes, &value, size_t(bytes));
    }
    k.rf_bytes = int(k.registers.size());
}

}  // namespace ptx
