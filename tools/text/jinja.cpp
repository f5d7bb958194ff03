// jinja.cpp -- see jinja.h. Grammar and precedences are those of Jinja 3.1.
#include "tools/text/jinja.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/json.h"
#include "src/base/words.h"
#include "tools/text/unicode.h"

using Text = std::u32string;
using View = std::u32string_view;

// A part of a template: an expression, a statement or a block. An expression is a value and the steps that follow it
// from left to right: a member, a call, a filter, a test, or an operator with its other operand.
struct JinjaNode {
    std::string op;                             // "name", "[", "+", "if", ...
    Text s = {};                                // of a text, or a name
    int line = 1;
    std::vector<JinjaNode> parts = {}, steps = {};
    std::string name() const { return text_of(s); }
};

namespace {

using Node = JinjaNode;
struct Member;
using Members = std::vector<Member>;

struct Value {
    enum Kind { undefined, none, boolean, integer, string, list, dict, space, function } kind = undefined;
    int64_t n = 0;                              // of a boolean or integer
    Text s = {};                                // of a string; the name of a function or of what is undefined
    std::shared_ptr<Members> items = {};        // of a list, a dict, or a namespace, which changes; also of `loop`

    Value(Kind k = undefined, Text text = {}) : kind(k), s(std::move(text)) {}
    Value(bool b) : kind(boolean), n(b) {}
    Value(int64_t i) : kind(integer), n(i) {}
    Value(Text text) : kind(string), s(std::move(text)) {}
    Value(Kind k, Members all);
    bool is_number() const { return kind == boolean || kind == integer; }
    int64_t size() const;
    bool has_size() const { return kind == undefined || (kind >= string && kind <= dict); }
    explicit operator bool() const { return kind >= space || (is_number() ? n != 0 : kind != undefined && size()); }
};
const char* const kKinds[] = {"undefined", "none", "a boolean", "a number", "a text",
                              "a list", "a dict", "a namespace", "a function"};

struct Member { Text key; Value value; };       // the key is empty in a list, and of most arguments

Value::Value(Kind k, Members all) : kind(k), items(std::make_shared<Members>(std::move(all))) {}
int64_t Value::size() const { return int64_t(kind == string ? s.size() : items ? items->size() : 0); }

bool is_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || (c < kByte && char_class(c) == kSpace); }  // as Python
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_word(char32_t c) { return is_digit(c) || c == '_' || ((c | 32) >= 'a' && (c | 32) <= 'z'); }
char32_t code_of(char32_t c) { return c & ~(kGiven | kAnswer); }
bool same(View a, View b) { return std::ranges::equal(a, b, {}, code_of, code_of); }
Text plain(Text text) {
    for (char32_t& c : text) c = code_of(c);
    return text;
}

Value* find_member(const Value& of, View key) {
    if (of.items && of.kind != Value::list)
        for (Member& m : *of.items)
            if (same(m.key, key)) return &m.value;
    return nullptr;
}
// Removes the characters of `set`, by default white space, from the left, the right or both ends.
Text stripped(const Text& text, bool left, bool right, const Text& set = {}) {
    const Text wanted = plain(set);
    const auto goes = [&](char32_t c) { return set.empty() ? is_space(c) : wanted.find(c) != Text::npos; };
    size_t begin = 0, end = text.size();
    while (left && begin < end && goes(code_of(text[begin]))) begin++;
    while (right && begin < end && goes(code_of(text[end - 1]))) end--;
    return text.substr(begin, end - begin);
}
Value split_at(const Text& text, const Text& separator) {
    const Text all = plain(text), wanted = plain(separator);
    Members parts;
    size_t at = 0;
    for (size_t end; (end = all.find(wanted, at)) != Text::npos; at = end + wanted.size())
        parts.push_back({{}, text.substr(at, end - at)});
    parts.push_back({{}, text.substr(at)});
    return {Value::list, parts};
}

[[noreturn]] void refuse_at(const std::string& what, int line, const std::string& got) {
    die_content(what + ": line " + std::to_string(line), got, "what docs/guide.md says is read of Jinja; or give "
                "--chat-template chatml or llama3");
}

// ---- a rendering

struct Scope {
    std::map<std::string, Value> names;
    Scope* outer;
};

struct Rendering {
    const std::string& what;
    Scope* scope;
    size_t work;                                // that it may still do
    int line = 1;
    Text out = {};

    [[noreturn]] void refuse(const std::string& got) const { refuse_at(what, line, got); }
    [[noreturn]] void refuse(const std::string& of, const Value& v) const {
        refuse(of + std::string(kKinds[v.kind]) + (v.kind == Value::undefined ? " " + text_of(v.s) : ""));
    }
    void spend(size_t amount) {
        if (amount > work) refuse("a loop or texts beyond any measure");
        work -= amount;
    }
    Text written(const Value& v) const {
        if (v.kind == Value::string) return v.s;
        if (v.kind == Value::undefined) return {};
        if (v.kind == Value::none) return U"None";
        if (v.kind == Value::boolean) return v.n ? U"True" : U"False";
        if (v.kind == Value::integer) return characters_of(std::to_string(v.n));
        refuse("as a text ", v);
    }
    // Returns what a loop goes over: the items of a list, or the characters of a text.
    Members elements(const Value& v) const {
        if (v.kind == Value::list) return *v.items;
        if (v.kind != Value::string && v.kind != Value::undefined) refuse("a loop over ", v);
        Members all;
        for (const char32_t c : v.kind == Value::string ? v.s : Text()) all.push_back({{}, Text(1, c)});
        return all;
    }
    bool equal(const Value& a, const Value& b) const {
        if (a.is_number() && b.is_number()) return a.n == b.n;
        if (a.kind != b.kind) return false;
        if (a.kind > Value::string) refuse("a comparison of ", a);
        return a.kind != Value::string || same(a.s, b.s);
    }
    bool contains(const Value& all, const Value& part) const {
        if (all.kind == Value::dict) return find_member(all, part.s);
        if (all.kind != Value::string)
            return std::ranges::any_of(elements(all), [&](const Member& m) { return equal(m.value, part); });
        if (part.kind != Value::string) refuse("in a text ", part);
        return plain(all.s).find(plain(part.s)) != Text::npos;
    }
    // Returns the names of Python's methods, which a member without a call would be.
    static const Words& methods_of(int kind) {
        static const Words kNone,
            kDict = split("clear copy fromkeys get items keys pop popitem setdefault update values"),
            kList = split("append clear copy count extend index insert pop remove reverse sort"),
            kText = split("capitalize count encode endswith find format index isalpha isdigit isspace join lower "
                          "lstrip replace rsplit rstrip split splitlines startswith strip title upper");
        return kind == Value::dict ? kDict : kind == Value::list ? kList : kind == Value::string ? kText : kNone;
    }
    Value member(const Value& of, const Value& key) const {
        if (of.kind == Value::undefined) refuse("a member of ", of);
        if (const Value* const found = key.kind == Value::string ? find_member(of, key.s) : nullptr) return *found;
        if (find_member(of, U"index0")) refuse("loop." + text_of(key.s));
        if (key.kind == Value::string && ::contains(methods_of(of.kind), text_of(key.s)))
            refuse("without a call the method " + text_of(key.s) + " of ", of);
        const int64_t i = key.n < 0 ? key.n + of.size() : key.n;
        if (!key.is_number() || of.kind >= Value::dict || i < 0 || i >= of.size()) return {Value::undefined, key.s};
        return of.items ? (*of.items)[size_t(i)].value : Value(Text(1, of.s[size_t(i)]));
    }
    // Returns of[begin:end], or of[::-1].
    Value slice(const Value& of, const Value& begin, const Value& end, const Value& step) const {
        const bool turns = step.n == -1 && !begin.is_number() && !end.is_number();
        if (of.kind != Value::list || (step.is_number() && !turns)) refuse("such a slice of ", of);
        const int64_t size = of.size();
        const auto bound = [&](const Value& v, int64_t otherwise) {
            return v.is_number() ? std::clamp<int64_t>(v.n < 0 ? v.n + size : v.n, 0, size) : otherwise;
        };
        const int64_t from = bound(begin, 0), to = std::max(from, bound(end, size));
        Members items(of.items->begin() + from, of.items->begin() + to);
        if (turns) std::ranges::reverse(items);
        return {Value::list, items};
    }
    // Returns a op b, for all operators but "and" and "or".
    Value joined(const Value& a, const std::string& op, const Value& b) const {
        if (op == "==" || op == "!=") return equal(a, b) == (op == "==");
        if (op == "in" || op == "not in") return contains(b, a) == (op == "in");
        const bool texts = a.kind == Value::string && b.kind == Value::string;
        if (op == "~" || (op == "+" && texts)) return written(a) + written(b);
        const bool small = std::max(std::abs(a.n), std::abs(b.n)) < 1 << 30;
        if (!a.is_number() || !b.is_number() || !small) refuse(kKinds[a.kind] + (" " + op + " "), b);
        if (op == "+") return a.n + b.n;
        if (op == "-") return a.n - b.n;
        if (op == "%" && b.n > 0) return (a.n % b.n + b.n) % b.n;
        if (op == "<") return a.n < b.n;
        if (op == ">") return a.n > b.n;
        if (op == "<=") return a.n <= b.n;
        if (op == ">=") return a.n >= b.n;
        refuse("the operator " + op);
    }
    Text cased(Text text, bool upper) const {
        for (char32_t& c : text) {
            if (code_of(c) >= 0x80) refuse("upper or lower case of a letter that is not English");
            if (is_word(code_of(c)) && (code_of(c) | 32) >= 'a') c = upper ? c & ~32u : c | 32;
        }
        return text;
    }
    bool tested(const std::string& name, const Value& v) const {
        if (name == "defined") return v.kind != Value::undefined;
        if (name == "undefined") return v.kind == Value::undefined;
        if (name == "none") return v.kind == Value::none;
        if (name == "string") return v.kind == Value::string;
        if (name == "mapping") return v.kind == Value::dict;
        if (name == "iterable") return v.has_size();
        refuse("the test " + name);
    }
    Value filtered(const std::string& name, const Value& v, const Members& given) const {
        const bool named = !given.empty() && !given.back().key.empty();
        if (name == "default" && !named && (given.size() == 1 || given.size() == 2))
            return v.kind == Value::undefined || (given.size() == 2 && given[1].value && !v) ? given[0].value : v;
        if (!given.empty()) refuse("such a filter " + name);
        if (name == "length" && v.has_size()) return v.size();
        if (name != "string" && name != "trim" && name != "upper" && name != "lower") refuse("the filter " + name);
        const Text text = written(v);
        return name == "string" ? text : name == "trim" ? stripped(text, true, true) : cased(text, name == "upper");
    }
    Value method(const std::string& name, const Value& of, const Members& given) const {
        if (of.kind != Value::string) refuse("the method " + name + " of ", of);
        const bool takes_text = given.size() == 1 && given[0].value.kind == Value::string && given[0].value;
        const Text& text = of.s, argument = takes_text ? given[0].value.s : Text();
        if ((name == "upper" || name == "lower") && given.empty()) return cased(text, name == "upper");
        if ((name == "strip" || name == "lstrip" || name == "rstrip") && (takes_text || given.empty()))
            return stripped(text, name != "rstrip", name != "lstrip", argument);
        if (name == "startswith" && takes_text) return plain(text).starts_with(plain(argument));
        if (name == "endswith" && takes_text) return plain(text).ends_with(plain(argument));
        if (name == "split" && takes_text) return split_at(text, argument);
        refuse("the method " + name);
    }
    Value called(const Value& f, const Members& given) const {
        const std::string name = text_of(f.s);
        if (f.kind != Value::function) refuse("a call of ", f);
        if (name == "raise_exception" && !given.empty())
            die_content(what, json_quote(text_of(written(given[0].value))), "turns that the template writes");
        if (name == "strftime_now")
            die_content(what, "today's date (strftime_now)", "a text that stays the same; put a date into a copy of "
                        "the template, or give --chat-template chatml or llama3");
        if (name != "namespace") refuse("the macro " + name);
        for (const Member& m : given)
            if (m.key.empty() || m.value.kind == Value::space) refuse("in a namespace ", m.value);
        return {Value::space, given};
    }

    Value variable(const std::string& name) const {
        for (const Scope* s = scope; s; s = s->outer)
            if (const auto found = s->names.find(name); found != s->names.end()) return found->second;
        static const Words kOthers = split("range caller self dict cycler joiner lipsum");
        if (::contains(kOthers, name)) refuse("the variable " + name);
        return {Value::undefined, characters_of(name)};
    }
    Members values(const std::vector<Node>& parts) {
        Members all;
        for (const Node& e : parts) all.push_back(e.op == "=" ? Member{e.s, value(e.parts[0])} : Member{{}, value(e)});
        return all;
    }
    Value first(const Node& e) {
        if (e.op == "name") return variable(e.name());
        if (e.op == "(") return value(e.parts[0]);
        if (e.op == "if") return value(e.parts[value(e.parts[0]) ? 1 : 2]);
        if (e.op == "number") return int64_t(std::atoi(e.name().c_str()));
        if (e.op == "true" || e.op == "false") return e.op == "true";
        if (e.op == "{") refuse("a dict");
        if (e.op != "[") return e.op == "text" ? Value(e.s) : e.op == "none" ? Value::none : Value::undefined;
        const Members all = values(e.parts);
        for (const Member& m : all)
            if (m.value.items) refuse("in a list ", m.value);       // so that no list nests without end
        return {Value::list, all};
    }
    Value stepped(const Value& v, const Node& step) {
        const std::string& op = step.op;
        const std::vector<Node>& parts = step.parts;
        if (op == "or" || op == "and") return bool(v) == (op == "and") ? value(parts[0]) : v;
        if (op == "not") return !v;
        if (op == "negative") return joined(int64_t(0), "-", v);
        if (op == ".") return member(v, step.s);
        if (op == "[") return member(v, value(parts[0]));
        if (op == ":") return slice(v, value(parts[0]), value(parts[1]), value(parts[2]));
        if (op == "(") return called(v, values(parts));
        if (op == "|" || op == "|(") return filtered(step.name(), v, values(parts));
        if (op == "is" || op == "is not") return tested(step.name(), v) == (op == "is");
        if (op == ".(") return method(step.name(), v, values(parts));
        return joined(v, op, value(parts[0]));
    }
    Value value(const Node& e) {
        Value v = first(e);
        spend(size_t(v.size()) + 1);
        for (const Node& step : e.steps) {
            v = stepped(v, step);
            spend(size_t(v.size()) + 1);
        }
        return v;
    }

    void run(const Node& block) {
        for (const Node& s : block.parts) {
            line = s.line;
            statement(s);
        }
    }
    void run(const Node& block, Scope* own) {           // whose variables are its own
        scope = own;
        run(block);
        scope = own->outer;
    }
    void statement(const Node& s) {
        if (s.op == "for") return loop(s);
        if (s.op == "set") scope->names[s.name()] = value(s.parts[0]);
        if (s.op == "set.") set_member(s);
        if (s.op == "macro") scope->names[s.name()] = {Value::function, s.s};
        if (s.op == "if")
            for (size_t i = 0; i < s.parts.size(); i += 2)
                if (value(s.parts[i])) return run(s.parts[i + 1]);
        if (s.op == "generation") {
            Scope own = {{}, scope};
            run(s.parts[0], &own);
        }
        if (s.op != "data" && s.op != "{{") return;
        const Text text = s.op == "data" ? s.s : written(value(s.parts[0]));
        spend(text.size());
        out += text;
    }
    void set_member(const Node& s) {
        const Value space = variable(s.name()), v = value(s.parts[0]);
        const Text& key = s.parts[1].s;
        if (space.kind != Value::space || find_member(space, U"index0")) refuse("a member set of ", space);
        if (v.kind == Value::space) refuse("in a namespace ", v);
        if (Value* const had = find_member(space, key)) *had = v;
        else space.items->push_back({key, v});
    }
    void loop(const Node& s) {
        if (s.s.empty()) refuse("a loop with a condition or several names");
        const Members all = elements(value(s.parts[0]));
        Scope own = {{}, scope};
        const auto n = int64_t(all.size());
        for (int64_t i = 0; i < n; i++) {
            spend(10);
            own.names = {{s.name(), all[size_t(i)].value}};
            own.names["loop"] = {Value::space, Members{{U"index0", i}, {U"index", i + 1}, {U"first", i == 0},
                                                       {U"last", i + 1 == n}, {U"length", n}}};
            run(s.parts[1], &own);
        }
    }
};

// ---- tokens

struct Token {
    enum Kind { end, data, name, string, number, sign } kind = end;
    std::string word = {};                      // of a name, number or sign: "{{", "{%", "}}" and "%}" are signs
    Text s = {};                                // of a string or of data
    int line = 1;
};

struct Lexer {
    const std::string& what;
    const Text text;
    std::vector<Token> tokens = {};
    size_t i = 0;
    int line = 1;

    [[noreturn]] void refuse(const std::string& got) const { refuse_at(what, line, got); }
    void add(Token::Kind kind, const std::string& word, const Text& s = {}) { tokens.push_back({kind, word, s, line}); }
    char32_t next(size_t ahead = 0) const { return i + ahead < text.size() ? text[i + ahead] : 0; }
    bool sees(View part) const { return View(text).substr(std::min(i, text.size())).starts_with(part); }
    void skip_to(size_t to) {
        for (; i < to && i < text.size(); i++) line += text[i] == '\n';
    }

    void read_string() {
        const char32_t quote = text[i++];
        constexpr View kEscapes = U"n\nt\tr\r\\\\\'\'\"\"";
        Text s;
        for (; next() != quote; skip_to(i + 1)) {
            if (i >= text.size()) refuse("a text without its closing quote");
            const size_t known = next() == '\\' ? kEscapes.find(next(1)) : View::npos;
            if (next() == '\\' && (known == View::npos || known % 2))
                refuse("the escape \\" + text_of(Text(1, next(1))));
            i += known != View::npos;
            s += known == View::npos ? text[i] : kEscapes[known + 1];
        }
        i++;
        add(Token::string, "", s);
    }
    void read_word() {
        const char32_t c = next();
        size_t end = i + 1;
        while (is_word(c) && end < text.size() && is_word(text[end])) end++;
        for (const View two : {U"==", U"!=", U"<=", U">=", U"//"})
            if (sees(two)) end = i + 2;
        const std::string word = text_of(View(text).substr(i, end - i));
        const bool digits = word.find_first_not_of("0123456789") == word.npos && next(end - i) != '.';
        if (is_digit(c) && (!digits || word.size() > 9)) refuse("the number " + word);
        if (!is_word(c) && end == i + 1 && View(U"+-*/%~[](){}<>=.:|,").find(c) == View::npos)
            refuse("the sign " + word);
        if (word == "in" && tokens.back().word == "not") tokens.back().word = "not in";
        else add(is_digit(c) ? Token::number : is_word(c) ? Token::name : Token::sign, word);
        i = end;
    }
    // Reads "{{ ... }}" or "{% ... %}", whose kind is its second character. Returns the sign before its end.
    char32_t read_tag(char32_t kind) {
        const Text closing = {kind == '{' ? U'}' : kind, U'}'};
        add(Token::sign, kind == '{' ? "{{" : "{%");
        for (int open = 0; i < text.size();) {
            const char32_t c = next();
            const bool trims = c == '-' || (c == '+' && kind != '{');
            if (open == 0 && View(text).substr(i + trims).starts_with(closing)) {
                add(Token::sign, text_of(closing));
                i += trims + 2;
                return trims ? c : 0;
            }
            open += View(U"([{").find(c) != View::npos;
            open -= View(U")]}").find(c) != View::npos;
            if (is_space(c)) skip_to(i + 1);
            else if (c == '\'' || c == '"') read_string();
            else read_word();
        }
        refuse("a tag that does not end");
    }
    void read() {
        for (bool line_starts = true; i < text.size();) {       // true: what precedes on the line was removed
            size_t tag = i;
            while (tag < text.size() && !(text[tag] == '{' && tag + 1 < text.size() &&
                                          View(U"{%#").find(text[tag + 1]) != View::npos)) tag++;
            Text before = text.substr(i, tag - i);
            const char32_t kind = tag < text.size() ? text[tag + 1] : 0,
                           sign = tag + 2 < text.size() ? text[tag + 2] : 0;
            const size_t begin = before.rfind(U'\n') + 1;       // of the tag's line
            if (kind && sign == '-') before = stripped(before, false, true);
            else if ((kind == '%' || kind == '#') && sign != '+' && (begin > 0 || line_starts) &&
                     stripped(before.substr(begin), true, false).empty()) before.resize(begin);
            if (!before.empty()) add(Token::data, "", before);
            skip_to(tag);
            if (!kind) break;
            i = tag + 2 + (sign == '-' || sign == '+');
            char32_t last = 0;
            if (kind == '#') {
                const size_t end = text.find(U"#}", i);
                if (end == Text::npos) refuse("a comment that does not end");
                last = text[end - 1];
                skip_to(end + 2);
            } else last = read_tag(kind);
            const size_t from = i;
            while (last == '-' && is_space(next()) && i < text.size()) skip_to(i + 1);
            if (last != '-' && last != '+' && kind != '{' && next() == '\n') skip_to(i + 1);
            line_starts = i > from && text[i - 1] == '\n';
        }
        add(Token::end, "the end");
    }
};

// Returns a template's characters with each line's end as \n, without that of the last line.
Text lines_of(std::string_view source) {
    Text text;
    for (const char32_t c : characters_of(source)) {
        if (c == '\n' && text.ends_with(U'\r')) text.pop_back();
        text += c;
    }
    std::ranges::replace(text, U'\r', U'\n');
    if (text.ends_with(U'\n')) text.pop_back();
    return text;
}

// ---- the grammar

struct Parser {
    const std::string& what;
    const std::vector<Token>& tokens;
    size_t at = 0;
    int depth = 0;
    std::string ended = {};                     // the tag that ended the last block

    const Token& now() const { return tokens[at]; }
    [[noreturn]] void refuse(const std::string& got) const { refuse_at(what, now().line, got); }
    struct Level {
        Parser& parser;
        explicit Level(Parser& p) : parser(p) {
            if (++parser.depth > 100) parser.refuse("more than 100 levels");
        }
        ~Level() { parser.depth--; }
    };
    bool sees(std::string_view word, size_t ahead = 0) const {
        const Token& t = tokens[std::min(at + ahead, tokens.size() - 1)];
        return (t.kind == Token::name || t.kind == Token::sign) && t.word == word;
    }
    bool takes(std::string_view word) { return sees(word) && ++at; }
    void want(const char* word) {
        if (!takes(word)) refuse(now().word + " where " + word + " belongs");
    }
    Text want_name() {
        if (now().kind != Token::name) refuse("\"" + now().word + "\" where a name belongs");
        return characters_of(tokens[at++].word);
    }
    Node node(const std::string& op, const Text& s = {}, const std::vector<Node>& parts = {}) const {
        return {op, s, now().line, parts};
    }

    // Reads what a bracket holds: values, in a call some of them with names, in a dict all of them with keys.
    std::vector<Node> list(const std::string& closing) {
        std::vector<Node> all;
        for (; !takes(closing); sees(closing) ? void() : want(",")) {
            const bool named = closing == ")" && now().kind == Token::name && sees("=", 1);
            const Node key = node("=", named ? want_name() : Text());
            all.push_back(named && takes("=") ? Node{key.op, key.s, key.line, {expression()}} : expression());
            if (closing != "}") continue;
            want(":");
            expression();
        }
        return all;
    }
    Node primary() {
        const Token& t = now();
        if (takes("[")) return node("[", {}, list("]"));
        if (takes("{")) return node("{", {}, list("}"));
        if (takes("(")) {
            const std::vector<Node> all = list(")");
            return node(all.size() == 1 && tokens[at - 2].word != "," ? "(" : "[", {}, all);
        }
        Text text;
        for (; now().kind == Token::string; at++) text += now().s;
        if (t.kind == Token::string) return node("text", text);
        if (t.kind != Token::name && t.kind != Token::number) refuse("\"" + t.word + "\" where a value belongs");
        at++;
        for (const std::string constant : {"true", "false", "none"})
            if (t.word.substr(1) == constant.substr(1) && char(t.word[0] | 32) == constant[0]) return node(constant);
        return node(t.kind == Token::number ? "number" : "name", characters_of(t.word));
    }
    Node subscript() {                                  // from behind the "["
        Node step = node("[");
        step.parts.resize(3, node("undefined"));
        size_t colons = 0;
        for (; !takes("]"); takes(":") ? void(colons++) : sees("]") ? void() : want("]")) {
            if (colons > 2) refuse("a slice of four parts");
            if (!sees(":")) step.parts[colons] = expression();
        }
        if (colons) step.op = ":";
        return step;
    }
    Node named(const std::string& op) {                 // from behind the "." of a member or the "|" of a filter
        const Text name = want_name();
        return takes("(") ? node(op + "(", name, list(")")) : node(op, name);
    }
    Node test() {
        want("is");
        const bool wanted = !takes("not");
        const Node step = node(wanted ? "is" : "is not", want_name());
        const bool ends = sees("else") || sees("or") || sees("and") || sees("if");
        if (sees("(") || sees("[") || (now().kind != Token::sign && now().kind != Token::end && !ends))
            refuse("the test " + step.name() + " of something");
        return step;
    }
    // Reads a value and all that follows it but operators.
    Node unary(bool with_filters = true) {
        const Level level(*this);
        const bool negative = takes("-");
        Node v = negative ? unary(false) : primary();
        if (negative) v.steps.push_back(node("negative"));
        for (;;) {
            if (takes("[")) v.steps.push_back(subscript());
            else if (takes(".")) v.steps.push_back(named("."));
            else if (takes("(")) v.steps.push_back(node("(", {}, list(")")));
            else break;
        }
        while (with_filters && (sees("|") || sees("is"))) v.steps.push_back(takes("|") ? named("|") : test());
        return v;
    }
    // Reads operators that bind alike, those of level 0 least.
    Node operation(size_t level = 0) {
        static const std::vector<Words> kLevels = {split("or"), split("and"), {"==", "!=", "<", ">", "<=", ">=", "in",
                                                   "not in"}, split("+ -"), split("~"), split("* / // %")};
        constexpr size_t kComparison = 2;
        if (level == kLevels.size()) return unary();
        const Level deeper(*this);
        const bool inverse = level == kComparison && takes("not");
        Node v = operation(inverse ? level : level + 1);
        if (inverse) v.steps.push_back(node("not"));
        while (!inverse && std::ranges::any_of(kLevels[level], [&](const std::string& op) { return sees(op); })) {
            const std::string op = tokens[at++].word;
            v.steps.push_back(node(op, {}, {operation(level + 1)}));
            if (level == kComparison) break;
        }
        return v;
    }
    // Reads A or "A if B else C".
    Node expression() {
        const Level level(*this);
        const Node v = operation();
        if (!takes("if")) return v;
        const Node condition = operation();
        return node("if", {}, {condition, v, takes("else") ? expression() : node("undefined")});
    }

    // Reads statements up to one of these tags and past its name, which it keeps in `ended`.
    Node block(std::initializer_list<std::string_view> ends) {
        const Level level(*this);
        Node all = node("block");
        while (now().kind != Token::end || ends.size()) {
            const Token& t = now();
            if (t.kind == Token::end) refuse("no " + std::string(*(ends.end() - 1)));
            at++;
            Node s = {t.word == "{{" ? t.word : "data", t.s, t.line};
            if (t.word == "{{") {
                s.parts = {expression()};
                want("}}");
            } else if (t.word == "{%") {
                s.op = ended = text_of(want_name());
                if (std::ranges::find(ends, ended) != ends.end()) break;
                statement(&s);
                want("%}");
            }
            all.parts.push_back(std::move(s));
        }
        return all;
    }
    void statement(Node* s) {
        if (s->op == "if") return choice(s);
        if (s->op == "for") return loop(s);
        if (s->op == "set") return set(s);
        if (s->op == "macro") return pass_macro(s);
        if (s->op != "generation") refuse("the statement " + s->op);
        want("%}");
        s->parts = {block({"endgeneration"})};
    }
    void choice(Node* s) {
        for (std::string tag = "if"; tag != "endif"; tag = ended) {
            s->parts.push_back(tag == "else" ? node("true") : expression());
            want("%}");
            s->parts.push_back(tag == "else" ? block({"endif"}) : block({"elif", "else", "endif"}));
        }
    }
    void loop(Node* s) {
        s->s = want_name();
        for (; takes(","); want_name()) s->s.clear();
        want("in");
        s->parts = {operation()};
        if (takes("if")) expression(), s->s.clear();
        want("%}");
        s->parts.push_back(block({"else", "endfor"}));
        if (ended == "else") refuse("else in a loop");
    }
    void set(Node* s) {
        s->s = want_name();
        const bool of_space = takes(".");
        if (of_space) s->op = "set.";
        const Node key = node("key", of_space ? want_name() : Text());
        if (sees("%}")) refuse("a block of set");
        want("=");
        s->parts = {expression(), key};
    }
    // Goes past a macro, which is refused where it is called: it is for tools in most templates.
    void pass_macro(Node* s) {
        s->s = want_name();
        for (; !sees("endmacro") || tokens[at - 1].word != "{%"; at++)
            if (now().kind == Token::end || (sees("{%") && sees("macro", 1))) refuse("no endmacro");
        at++;
    }
};

}  // namespace

std::u32string characters_of(std::string_view text, char32_t bits) {
    Text all;
    for (Utf8Char c; !text.empty(); text.remove_prefix(c.length)) {
        c = decode_utf8(text);
        if (!c.valid) c = {kByte + uint8_t(text[0]), 1, false, false};
        all += c.code | bits;
    }
    return all;
}

std::string text_of(std::u32string_view characters) {
    std::string all;
    for (const char32_t c : characters)
        if (code_of(c) >= kByte) all += char(code_of(c) - kByte);
        else append_utf8(&all, code_of(c));
    return all;
}

Jinja::Jinja(std::string_view text, const std::string& name, const std::map<std::string, std::string>& texts)
    : what(name), variables(texts), size(text.size()) {
    Lexer lexer = {what, lines_of(text)};
    lexer.read();
    body = std::make_shared<const Node>(Parser{what, lexer.tokens}.block({}));
}

std::u32string Jinja::render(const std::vector<JinjaTurn>& turns, size_t count, bool add_generation_prompt) const {
    Members messages;
    size_t work = 20 * (count + 1) * (count + 1) + size;
    for (size_t i = 0; i < count; i++) {
        messages.push_back({{}, {Value::dict, Members{{U"role", turns[i].role}, {U"content", turns[i].content}}}});
        work += turns[i].content.size();
    }
    Scope root = {{{"messages", {Value::list, messages}}, {"add_generation_prompt", add_generation_prompt},
                   {"tools", Value::none}, {"documents", Value::none}}, nullptr};
    for (const char* name : {"raise_exception", "strftime_now", "namespace"})
        root.names[name] = {Value::function, characters_of(name)};
    for (const auto& [name, text] : variables) root.names[name] = characters_of(text);
    Rendering rendering = {what, &root, 100 * work};
    rendering.run(*body);
    return rendering.out;
}
