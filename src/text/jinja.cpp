// jinja.cpp -- see jinja.h. Grammar and precedences are those of Jinja 3.1. There is no tree: a rendering walks through
// the tokens. It is `live` where it computes; elsewhere it only goes past. A first walk, never live, finds all faults
// of grammar, and where each expression and each block ends, so that a rendering jumps over what is not live.
#include "src/text/jinja.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/json.h"
#include "src/text/unicode.h"

using Text = std::u32string;
using View = std::u32string_view;

struct JinjaToken {
    enum Kind { end, data, name, string, number, sign } kind = end;
    std::string text = {};                      // of a name, number or sign: "{{", "{%", "}}" and "%}" are signs
    Text s = {};                                // of a string or of data; the same as text
    int line = 1;
    size_t past = 0, condition = 0;             // begins an expression or block: its end, the "if" behind an expression
};

namespace {

using Token = JinjaToken;

struct Value {
    enum Kind { undefined, none, boolean, integer, string, list, dict, function } kind = undefined;
    int64_t n = 0;                              // of a boolean or integer; of a macro the token of its "(";
                                                // of a dict 1 if it is a namespace
    int depth = 0;                              // levels of lists and dicts
    Text s = {};                                // of a string; the name of a function or of what is undefined
    std::shared_ptr<std::vector<Value>> items = {};     // of a list or a dict
    std::shared_ptr<std::vector<Text>> keys = {};       // of a dict, for each item

    Value(Kind k = undefined, Text text = {}, int64_t number = 0) : kind(k), n(number), s(std::move(text)) {}
    Value(bool b) : kind(boolean), n(b) {}
    Value(int64_t i) : kind(integer), n(i) {}
    Value(Text text) : kind(string), s(std::move(text)) {}
    Value(std::vector<Value> all) : kind(list), items(std::make_shared<std::vector<Value>>(std::move(all))) {
        for (const Value& v : *items) depth = std::max(depth, v.depth + 1);
    }
    bool is_number() const { return kind == boolean || kind == integer; }
    int64_t size() const { return int64_t(kind == string ? s.size() : items ? items->size() : 0); }
    explicit operator bool() const { return kind == function || (is_number() ? n != 0 : kind != undefined && size()); }
};
const char* const kKinds[] = {"undefined", "none", "a boolean", "a number", "a text", "a list", "a dict", "a function"};

struct Argument { std::string name; Value value; };             // its name is empty in most calls
using Arguments = std::vector<Argument>;

bool is_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || (c < kByte && char_class(c) == kSpace); }  // as Python
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_word(char32_t c) { return is_digit(c) || c == '_' || ((c | 32) >= 'a' && (c | 32) <= 'z'); }
char32_t code_of(char32_t c) { return c & ~(kGiven | kAnswer); }
bool same(View a, View b) { return std::ranges::equal(a, b, {}, code_of, code_of); }
Text plain(Text text) {
    for (char32_t& c : text) c = code_of(c);
    return text;
}

Value* find_member(const Value& dict, View key) {
    for (size_t i = 0; dict.keys && i < dict.keys->size(); i++)
        if (same((*dict.keys)[i], key)) return &(*dict.items)[i];
    return nullptr;
}
Value dict_of(const Arguments& members) {
    Value v(Value::dict);
    v.items = std::make_shared<std::vector<Value>>();
    v.keys = std::make_shared<std::vector<Text>>();
    for (const Argument& member : members) {
        v.keys->push_back(characters_of(member.name));
        v.items->push_back(member.value);
        v.depth = std::max(v.depth, member.value.depth + 1);
    }
    return v;
}
// Removes the characters of `set`, by default white space, from the left, the right or both ends.
Text stripped(const Text& text, bool left, bool right, const Text* set = nullptr) {
    const Text wanted = set ? plain(*set) : Text();
    const auto goes = [&](char32_t c) { return set ? wanted.find(code_of(c)) != Text::npos : is_space(code_of(c)); };
    size_t begin = 0, end = text.size();
    while (left && begin < end && goes(text[begin])) begin++;
    while (right && begin < end && goes(text[end - 1])) end--;
    return text.substr(begin, end - begin);
}
std::vector<Value> split(const Text& text, const Text& separator) {
    std::vector<Value> parts;
    size_t at = 0;
    for (size_t end; (end = plain(text).find(plain(separator), at)) != Text::npos; at = end + separator.size())
        parts.emplace_back(text.substr(at, end - at));
    parts.emplace_back(text.substr(at));
    return parts;
}

struct Scope {
    std::map<std::string, Value> names;
    Scope* outer;
};

// A walk through the tokens.
struct Walk {
    const std::string& what;
    std::vector<Token>& tokens;
    Scope* root = nullptr;                      // of a rendering; null in the first walk
    size_t work = 0;                            // that a rendering may still do
    Scope* scope = root;
    size_t at = 0;
    bool reached = root != nullptr;             // false: in a branch that is not taken
    enum { goes_on, leaves, skips } flow = goes_on;     // behind break and continue, up to the end of the loop's body
    int depth = 0, loops = 0;
    Text out = {};

    bool live() const { return reached && flow == goes_on; }
    const Token& now() const { return tokens[at]; }
    [[noreturn]] void refuse(const std::string& got) const {
        die_content(what + ": line " + std::to_string(now().line), got,
                    "what docs/guide.md says is read of Jinja; give "
                    "--chat-template chatml or llama3, which is then the template of the result, too");
    }
    [[noreturn]] void refuse(const std::string& of, const Value& v) const {
        refuse(of + std::string(kKinds[v.kind]) + (v.kind == Value::undefined ? " " + text_of(v.s) : ""));
    }
    void spend(size_t amount) {
        if (amount > work) refuse("a loop or texts beyond any measure");
        work -= amount;
    }
    struct Deeper {
        Walk& walk;
        explicit Deeper(Walk& w) : walk(w) {
            if (++walk.depth > 100) walk.refuse("more than 100 levels");
        }
        ~Deeper() { walk.depth--; }
    };

    bool sees(std::string_view text, size_t ahead = 0) const {
        const Token& t = tokens[std::min(at + ahead, tokens.size() - 1)];
        return (t.kind == Token::name || t.kind == Token::sign) && t.text == text;
    }
    bool takes(std::string_view text) { return sees(text) && ++at; }
    void want(const char* text) {
        if (!takes(text)) refuse(now().text + " where " + text + " belongs");
    }
    std::string want_name() {
        if (now().kind != Token::name) refuse("\"" + now().text + "\" where a name belongs");
        return tokens[at++].text;
    }

    // ---- what is computed

    Text written(const Value& v) const {
        constexpr const char32_t* kNames[] = {U"False", U"True"};
        if (v.kind == Value::string || v.kind == Value::undefined) return v.kind == Value::string ? v.s : Text();
        if (v.kind == Value::none) return U"None";
        if (v.kind == Value::boolean) return kNames[v.n];
        if (v.kind == Value::integer) return characters_of(std::to_string(v.n));
        refuse("as a text ", v);
    }
    // Returns what a loop goes over: the items of a list, the keys of a dict, or the characters of a text.
    std::vector<Value> elements(const Value& v) {
        spend(10 * size_t(v.size()));
        if (v.kind == Value::list) return *v.items;
        if (v.kind == Value::dict) return {v.keys->begin(), v.keys->end()};
        std::vector<Value> all;
        if (v.kind != Value::string && v.kind != Value::undefined) refuse("a loop over ", v);
        for (const char32_t c : v.kind == Value::string ? v.s : Text()) all.emplace_back(Text(1, c));
        return all;
    }
    bool equal(const Value& a, const Value& b) {
        spend(1);
        if (a.is_number() && b.is_number()) return a.n == b.n;
        if (a.kind != b.kind || a.kind == Value::undefined) return a.kind == b.kind;
        if (a.size() != b.size() || !same(a.s, b.s)) return false;
        for (size_t i = 0; a.items && i < a.items->size(); i++) {
            const Value* const other = a.keys ? find_member(b, (*a.keys)[i]) : &(*b.items)[i];
            if (!other || !equal((*a.items)[i], *other)) return false;
        }
        return true;
    }
    bool contains(const Value& all, const Value& part) {
        if (all.kind == Value::dict) return find_member(all, part.s);
        if (all.kind == Value::string && part.kind == Value::string)
            return plain(all.s).find(plain(part.s)) != Text::npos;
        if (all.kind == Value::string) refuse("in a text ", part);
        return std::ranges::any_of(elements(all), [&](const Value& v) { return equal(v, part); });
    }
    // Returns v, which becomes a part of another value: that must not be without end, or part of itself.
    const Value& part(const Value& v) const {
        if (v.depth > 50) refuse("more than 50 levels of lists");
        if (v.kind == Value::dict && v.n) refuse("a namespace in another value");
        return v;
    }
    Value member(const Value& of, const Value& key) const {
        if (of.kind == Value::undefined) refuse("a member of ", of);
        if (const Value* const found = key.kind == Value::string ? find_member(of, key.s) : nullptr) return *found;
        if (key.kind == Value::string && find_member(of, U"revindex")) refuse("loop." + text_of(key.s));
        const int64_t i = key.n < 0 ? key.n + of.size() : key.n;
        if (!key.is_number() || of.kind == Value::dict || i < 0 || i >= of.size()) return {Value::undefined, key.s};
        return of.items ? (*of.items)[size_t(i)] : Value(Text(1, of.s[size_t(i)]));
    }
    // Returns of[begin:end:step] as Python cuts it, with a step of 1 or -1.
    Value slice(const Value& of, const Value& begin, const Value& end, const Value& step) {
        const int64_t size = of.size(), by = step.is_number() ? step.n : 1;
        if ((of.kind != Value::string && of.kind != Value::list) || std::abs(by) != 1) refuse("a slice of ", of);
        const auto bound = [&](const Value& v, int64_t otherwise) {
            const int64_t low = by < 0 ? -1 : 0;
            return v.is_number() ? std::clamp(v.n < 0 ? v.n + size : v.n, low, low + size) : otherwise;
        };
        spend(of.items ? 10 * size_t(size) : size_t(size));
        Value cut = of.items ? Value(std::vector<Value>()) : Value(Text());
        const int64_t to = bound(end, by < 0 ? -1 : size);
        for (int64_t i = bound(begin, by < 0 ? size - 1 : 0); by * (to - i) > 0; i += by)
            if (of.items) cut.items->push_back((*of.items)[size_t(i)]);
            else cut.s += of.s[size_t(i)];
        return cut;
    }
    Value joined(const Value& a, const std::string& op, const Value& b) {
        if (op == "~" || (op == "+" && a.kind == Value::string && b.kind == Value::string)) {
            Text text = written(a) + written(b);
            spend(text.size());
            return text;
        }
        const bool small = a.is_number() && b.is_number() && std::abs(a.n) < 1 << 30 && std::abs(b.n) < 1 << 30;
        if (small && op == "+") return a.n + b.n;
        if (small && op == "-") return a.n - b.n;
        if (small && op == "%" && b.n > 0) return (a.n % b.n + b.n) % b.n;
        refuse(kKinds[a.kind] + (" " + op + " "), b);
    }
    bool compared(const Value& a, const std::string& op, const Value& b) {
        if (op == "==" || op == "!=") return equal(a, b) == (op == "==");
        if (op == "in" || op == "not in") return contains(b, a) == (op == "in");
        if (!a.is_number() || !b.is_number()) refuse(kKinds[a.kind] + (" " + op + " "), b);
        return op == "<" ? a.n < b.n : op == ">" ? a.n > b.n : op == "<=" ? a.n <= b.n : a.n >= b.n;
    }
    Text cased(Text text, bool upper) const {
        for (char32_t& c : text) {
            if (code_of(c) >= 0x80) refuse("upper or lower case of a letter that is not English");
            if (is_word(code_of(c)) && (code_of(c) | 32) >= 'a') c = upper ? c & ~32u : c | 32;
        }
        return text;
    }

    // Returns what the filter, test or method `name` makes of v. kind: which of the three.
    Value applied(const char* kind, const std::string& name, const Value& v, const Arguments& given) {
        using V = Value;
        std::vector<Value> a;
        for (const Argument& argument : given) a.push_back(argument.value);
        const bool named = !given.empty() && !given.back().name.empty(), test = *kind == 't', method = *kind == 'm';
        const auto is = [&](const char* wanted, size_t arguments) { return name == wanted && a.size() == arguments; };
        const auto unknown = [&] { refuse(std::string("the ") + kind + " " + name); };
        if (named) unknown();
        if (test) {
            constexpr std::pair<const char*, V::Kind> kTests[] = {
                {"undefined", V::undefined}, {"none", V::none}, {"boolean", V::boolean}, {"integer", V::integer},
                {"string", V::string}, {"mapping", V::dict}};
            for (const auto& [other, wanted] : kTests)
                if (name == other) return v.kind == wanted;
            if (name == "defined") return v.kind != V::undefined;
            if (name == "iterable" || name == "sequence") return v.kind == V::undefined || v.kind >= V::string;
            if (name == "true" || name == "false") return v.kind == V::boolean && v.n == (name == "true");
            if (is("in", 1)) return contains(a[0], v);
            if (is("equalto", 1) || is("eq", 1) || is("==", 1)) return equal(v, a[0]);
            if (is("ne", 1) || is("!=", 1)) return !equal(v, a[0]);
            unknown();
        }
        if (!method && (is("default", 1) || is("default", 2)))
            return v.kind == V::undefined || (a.size() == 2 && a[1] && !v) ? a[0] : v;
        if (!method && is("length", 0) && v.kind != V::none && !v.is_number()) return v.size();
        if (!method && is("list", 0)) return elements(v);
        if (!method && (is("selectattr", 2) || is("selectattr", 3) || is("selectattr", 1))) {
            std::vector<Value> kept;
            const Arguments rest(given.begin() + std::min<long>(2, long(a.size())), given.end());
            for (const Value& x : elements(v)) {
                const Value own = member(x, a[0]);
                if (a.size() == 1 ? bool(own) : bool(applied("test", text_of(a[1].s), own, rest))) kept.push_back(x);
            }
            return kept;
        }
        if (method && v.kind == V::dict && (is("get", 1) || is("get", 2))) {
            const Value* const found = find_member(v, a[0].s);
            return found ? *found : a.size() == 2 ? a[1] : V(V::none);
        }
        if (method && v.kind != V::string) refuse("the method " + name + " of ", v);
        if (v.items) unknown();
        const Text s = written(v);                      // the others are of texts
        spend((name == "split" ? 10 : 1) * s.size());
        if (!method && is("string", 0)) return s;
        if (is(method ? "strip" : "trim", 0)) return stripped(s, true, true);
        if (is("upper", 0) || is("lower", 0)) return cased(s, name == "upper");
        if (is("capitalize", 0)) return cased(s.substr(0, 1), true) + cased(s.substr(!s.empty()), false);
        for (const Value& x : a)
            if (x.kind != V::string || a[0].s.empty()) unknown();
        if (!method || a.size() > 1) unknown();
        if (name == "strip" || name == "lstrip" || name == "rstrip")
            return stripped(s, name != "rstrip", name != "lstrip", a.empty() ? nullptr : &a[0].s);
        if (is("startswith", 1)) return plain(s).starts_with(plain(a[0].s));
        if (is("endswith", 1)) return plain(s).ends_with(plain(a[0].s));
        if (is("split", 1)) return split(s, a[0].s);
        unknown();
        return {};
    }

    // Calls a macro, whose parameters and body are walked through again, or one of the functions that templates have.
    Value called(const Value& f, const Arguments& given) {
        if (f.kind != Value::function) refuse("a call of ", f);
        if (f.n) return expanded(size_t(f.n), given);
        const std::string name = text_of(f.s);
        if (name == "raise_exception" && !given.empty())
            die_content(what, json_quote(text_of(written(given[0].value))), "turns that the template writes");
        if (name == "strftime_now")
            die_content(what, "today's date (strftime_now)",
                        "a text that stays the same; put a date into a copy of the "
                        "template, or give --chat-template chatml or llama3");
        if (name == "namespace") {
            for (const Argument& argument : given) part(argument.value);
            Value space = dict_of(given);
            space.n = 1;
            return space;
        }
        const bool counts = std::ranges::all_of(given, [](const Argument& a) { return a.value.is_number(); });
        if (name != "range" || !counts || given.empty() || given.size() > 2) refuse("such a call of " + name);
        std::vector<Value> numbers;
        for (int64_t i = given.size() == 2 ? given[0].value.n : 0; i < given.back().value.n; i++) {
            spend(10);
            numbers.emplace_back(i);
        }
        return numbers;
    }
    Value expanded(size_t macro, const Arguments& given) {
        const Deeper deeper(*this);
        Scope own = {{}, root};
        Scope* const outer = std::exchange(scope, &own);
        const size_t back = std::exchange(at, macro);
        Text text;
        text.swap(out);
        auto argument = given.begin();
        for (const std::string& name : parameters()) {
            const auto found = std::ranges::find(given, name, &Argument::name);
            if (found != given.end()) own.names[name] = found->value;
            else if (argument != given.end() && argument->name.empty()) own.names[name] = argument++->value;
        }
        block({"endmacro"});
        text.swap(out);
        scope = outer;
        at = back;
        return text;
    }
    // Walks through "(a, b=1) %}", which sets defaults.
    std::vector<std::string> parameters() {
        std::vector<std::string> names;
        for (want("("); !takes(")"); sees(")") ? void() : want(",")) {
            names.push_back(want_name());
            const Value otherwise = takes("=") ? expression() : Value(Value::undefined, characters_of(names.back()));
            if (live()) scope->names[names.back()] = otherwise;
        }
        want("%}");
        return names;
    }

    // ---- expressions

    Arguments arguments() {                             // from behind the "("
        Arguments all;
        for (; !takes(")"); sees(")") ? void() : want(",")) {
            const bool named = now().kind == Token::name && sees("=", 1);
            const std::string name = named ? want_name() : "";
            if (named) want("=");
            all.push_back({name, expression()});
        }
        return all;
    }
    std::vector<Value> values(const char* closing) {    // from behind the bracket
        std::vector<Value> all;
        for (; !takes(closing); sees(closing) ? void() : want(",")) all.push_back(part(expression()));
        return all;
    }
    Value variable(const std::string& name) {
        for (const Scope* s = live() ? scope : nullptr; s; s = s->outer)
            if (const auto found = s->names.find(name); found != s->names.end()) {
                spend(found->second.s.size() + 1);
                return found->second;
            }
        constexpr std::string_view kOther[] = {"varargs", "kwargs", "caller", "self",
                                               "dict",    "cycler", "joiner", "lipsum"};
        if (live() && std::ranges::find(kOther, name) != std::end(kOther)) refuse("the variable " + name);
        return {Value::undefined, characters_of(name)};
    }
    Value primary() {
        const Token& t = now();
        at += t.kind != Token::end;
        if (t.kind == Token::string) {
            Text s = t.s;
            for (; now().kind == Token::string; at++) s += now().s;
            return s;
        }
        if (t.kind == Token::number) return int64_t(std::atoi(t.text.c_str()));
        if (t.kind == Token::sign && t.text == "[") return values("]");
        if (t.kind == Token::sign && t.text == "(") {
            const std::vector<Value> all = values(")");
            return all.size() == 1 && !(tokens[at - 2].text == ",") ? all[0] : Value(all);
        }
        if (t.kind == Token::sign && t.text == "{") {
            Arguments all;
            for (; !takes("}"); sees("}") ? void() : want(",")) {
                const Value key = expression();
                if (live() && key.kind != Value::string) refuse("as a key ", key);
                want(":");
                all.push_back({text_of(key.s), part(expression())});
            }
            return dict_of(all);
        }
        if (t.kind != Token::name) refuse("\"" + t.text + "\" where a value belongs");
        if (t.text == "true" || t.text == "True") return true;
        if (t.text == "false" || t.text == "False") return false;
        if (t.text == "none" || t.text == "None") return Value::none;
        return variable(t.text);
    }
    Value subscript(const Value& of) {                  // from behind the "["
        Value bounds[3];
        int colons = 0;
        for (; !takes("]"); takes(":") ? void(colons++) : sees("]") ? void() : want("]")) {
            if (colons > 2) refuse("a slice of four parts");
            if (!sees(":")) bounds[colons] = expression();
        }
        if (!live()) return {};
        return colons ? slice(of, bounds[0], bounds[1], bounds[2]) : member(of, bounds[0]);
    }
    Value postfix(Value v) {
        for (;;) {
            if (takes("[")) v = subscript(v);
            else if (takes("(")) {
                const Arguments given = arguments();
                if (live()) v = called(v, given);
            } else if (takes(".")) {
                const Text key = now().s;
                const std::string name = want_name();
                const bool calls = takes("(");
                const Arguments given = calls ? arguments() : Arguments();
                if (!live()) continue;
                const Value* const own = find_member(v, key);
                if (!calls) v = member(v, key);
                else v = own ? called(*own, given) : applied("method", name, v, given);
            } else return v;
        }
    }
    Value unary(bool with_filters) {
        const Deeper deeper(*this);
        Value v = takes("-") ? Value(Value::integer, {}, -unary(false).n) : primary();
        v = postfix(v);
        while (with_filters && (sees("|") || sees("is"))) {
            const bool is_test = sees("is");
            at++;
            const bool wanted = !is_test || !takes("not");
            const std::string name = is_test && now().kind == Token::sign ? tokens[at++].text : want_name();
            Arguments given;
            if (takes("(")) given = arguments();
            else if (is_test && !sees("else") && !sees("or") && !sees("and") && !sees("if") && !sees("is") &&
                     now().kind != Token::end && (now().kind != Token::sign || sees("[")))
                given = {{"", postfix(primary())}};
            if (live()) v = applied(is_test ? "test" : "filter", name, v, given);
            if (live() && !wanted) v = !v;
        }
        return v;
    }
    // Reads operators that bind alike: those of level 0, + and -, bind least.
    Value arithmetic(size_t level = 0) {
        constexpr const char* kSigns[][4] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}};
        if (level == std::size(kSigns)) return unary(true);
        Value v = arithmetic(level + 1);
        while (std::ranges::any_of(kSigns[level], [&](const char* sign) { return sign && sees(sign); })) {
            const std::string op = tokens[at++].text;
            const Value other = arithmetic(level + 1);
            if (live()) v = joined(v, op, other);
        }
        return v;
    }
    Value comparison() {
        Value v = arithmetic();
        constexpr std::string_view kSigns[] = {"==", "!=", "<", ">", "<=", ">=", "in", "not"};
        const auto op = std::ranges::find_if(kSigns, [&](std::string_view sign) { return sees(sign); });
        const bool inverse = sees("not");
        if (op == std::end(kSigns) || (inverse && !sees("in", 1))) return v;
        at += inverse ? 2 : 1;
        const Value other = arithmetic();
        return live() ? Value(compared(v, inverse ? "not in" : std::string(*op), other)) : Value();
    }
    Value negation() {
        const Deeper deeper(*this);
        if (takes("not")) return !negation();
        return comparison();
    }
    Value junction(bool is_or = true) {
        const char* const word = is_or ? "or" : "and";
        Value v = is_or ? junction(false) : negation();
        while (takes(word)) {
            const bool decided = bool(v) == is_or, was = reached;
            reached = reached && !decided;
            const Value other = is_or ? junction(false) : negation();
            reached = was;
            if (!decided) v = other;
        }
        return v;
    }
    // Reads A or "A if B else C", in which B comes first.
    Value expression() {
        const Deeper deeper(*this);
        const size_t from = at;
        Value v;
        if (!root) {
            v = junction();
            if (sees("if")) tokens[from].condition = at++, junction(), takes("else") ? expression() : Value();
            tokens[from].past = at;
        } else if (live() && !now().condition) v = junction();
        else if (live()) {
            at = now().condition + 1;
            if (junction()) at = from, v = junction();
            else if (takes("else")) v = expression();
        }
        at = tokens[from].past;
        return v;
    }

    // ---- statements

    // Walks through statements up to one of these tags and past its name, which it returns.
    std::string block(std::initializer_list<std::string_view> ends) {
        const Deeper deeper(*this);
        const size_t from = at;
        if (root && !live()) at = tokens[from].past - 2;        // to the tag
        for (;;) {
            const Token& t = now();
            if (t.kind == Token::end && ends.size()) refuse("no " + std::string(*(ends.end() - 1)));
            if (t.kind == Token::end) return "";
            at++;
            if (t.kind == Token::data) {
                if (live()) out += t.s;
            } else if (t.text == "{{") {
                const Value v = expression();
                want("}}");
                if (live()) out += written(v);
                spend(live() * v.s.size());
            } else {
                const std::string tag = want_name();
                if (std::ranges::find(ends, tag) != ends.end()) {
                    tokens[from].past = at;
                    return tag;
                }
                statement(tag);
                want("%}");
            }
        }
    }
    // Walks through a block whose variables are its own. Returns what it writes if `captures`.
    Text inner(const char* end, bool captures) {
        Text text;
        want("%}");
        Scope own = {{}, scope};
        scope = &own;
        if (captures) text.swap(out);
        block({end});
        if (captures) text.swap(out);
        scope = own.outer;
        return text;
    }
    void statement(const std::string& tag) {
        if (tag == "if") return choose();
        if (tag == "for") return loop();
        if (tag == "set") return set();
        if (tag == "generation") {
            inner("endgeneration", false);
        } else if (tag == "macro") {
            if (loops || (root && scope != root)) refuse("a macro in a loop or in a macro");
            const std::string name = want_name();
            if (live()) scope->names[name] = {Value::function, characters_of(name), int64_t(at)};
            const bool was = std::exchange(reached, false);
            parameters();
            block({"endmacro"});
            reached = was;
        } else if (loops && (tag == "break" || tag == "continue")) {
            if (live()) flow = tag == "break" ? leaves : skips;
        } else refuse("the statement " + tag);
    }
    void choose() {
        const bool was = reached;
        bool decided = false;
        for (std::string tag = "if"; tag != "endif";) {
            reached = was && !decided;
            const bool holds = tag == "else" || expression();
            want("%}");
            decided |= reached = reached && holds;
            tag = tag == "else" ? block({"endif"}) : block({"elif", "else", "endif"});
        }
        reached = was;
    }
    void assign(const std::vector<std::string>& names, const Value& v) {
        if (!live()) return;
        const std::vector<Value> all = names.size() == 1 ? std::vector<Value>{v} : elements(v);
        if (all.size() != names.size()) refuse(std::to_string(all.size()) + " values for more or fewer names");
        for (size_t i = 0; i < names.size(); i++) scope->names[names[i]] = all[i];
    }
    std::vector<std::string> targets() {
        std::vector<std::string> names = {want_name()};
        while (takes(",")) names.push_back(want_name());
        return names;
    }
    void set() {
        const std::vector<std::string> names = targets();
        if (takes(".")) {
            const Value space = variable(names[0]);
            const Text key = characters_of(want_name());
            want("=");
            const Value v = expression();
            if (!live()) return;
            if (space.kind != Value::dict) refuse("a member set of ", space);
            if (Value* const had = find_member(space, key)) *had = part(v);
            else space.keys->push_back(key), space.items->push_back(part(v));
        } else if (takes("=")) assign(names, expression());
        else assign(names, inner("endset", true));
    }
    void loop() {
        const std::vector<std::string> names = targets();
        want("in");
        const Value over = junction();
        const size_t condition = at;
        Scope own = {{}, scope};
        std::vector<Value> all = live() ? elements(over) : std::vector<Value>();
        const bool was = reached;
        const auto walk_condition = [&] { return !takes("if") || expression(); };
        if (sees("if"))
            std::erase_if(all, [&](const Value& v) {
                scope = &own;
                at = condition;
                assign(names, v);
                const bool kept = walk_condition();
                scope = own.outer;
                return !kept;
            });
        reached = false;
        at = condition;
        walk_condition();
        want("%}");
        const size_t body = at;
        loops++;
        for (size_t i = 0; i <= all.size(); i++) {      // the last time only past it
            at = body;
            reached = was && i < all.size() && flow != leaves;
            if (reached) begin_turn(&own, names, all, i);
            const std::string end = block({"else", "endfor"});
            scope = own.outer;
            if (flow == skips && reached) flow = goes_on;
            if (i < all.size()) continue;
            if (flow == leaves && was && !all.empty()) flow = goes_on;
            loops--;
            reached = was && all.empty();
            if (end == "endfor") break;
            want("%}");
            block({"endfor"});
        }
        reached = was;
    }
    void begin_turn(Scope* own, const std::vector<std::string>& names, const std::vector<Value>& all, size_t i) {
        spend(10);
        const auto n = int64_t(all.size()), k = int64_t(i);
        const auto other = [&](size_t index) {
            return index < all.size() ? all[index] : Value(Value::undefined, U"turn");
        };
        own->names.clear();
        scope = own;
        assign(names, all[i]);
        own->names["loop"] = dict_of({{"index0", k}, {"index", k + 1}, {"first", k == 0}, {"last", k + 1 == n},
                                      {"length", n}, {"revindex", n - k}, {"previtem", other(i - 1)},
                                      {"nextitem", other(i + 1)}});
    }
};

// ---- tokens

struct Lexer {
    const Text text;
    Walk& walk;                                         // whose tokens it appends
    size_t i = 0;
    int line = 1;

    [[noreturn]] void refuse(const std::string& got) {
        add(Token::end);
        walk.at = walk.tokens.size() - 1;
        walk.refuse(got);
    }
    void add(Token::Kind kind, const std::string& name = "", const Text& s = {}) {
        walk.tokens.push_back({kind, name, s, line});
    }
    char32_t next(size_t ahead = 0) const { return i + ahead < text.size() ? text[i + ahead] : 0; }
    bool sees(View part) const { return View(text).substr(std::min(i, text.size())).starts_with(part); }
    void skip_to(size_t to) {
        for (; i < to && i < text.size(); i++) line += text[i] == '\n';
    }

    void read_string() {
        const char32_t quote = text[i++];
        constexpr View kEscapes = U"n\nt\tr\r\\\\'\'\"\"";
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
    // Reads "{{ ... }}" or "{% ... %}", whose kind is its second character. Returns the character before its end.
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
            size_t end = i + 1;
            if (is_space(c)) {
                skip_to(end);
                continue;
            }
            if (c == '\'' || c == '"') {
                read_string();
                continue;
            }
            while (is_word(c) && end < text.size() && is_word(text[end])) end++;
            for (const View two : {U"==", U"!=", U"<=", U">=", U"//"})
                if (sees(two)) end = i + 2;
            const std::string word = text_of(View(text).substr(i, end - i));
            const bool fraction = is_digit(c) && next(end - i) == '.';
            if (fraction || (is_digit(c) && (word.find_first_not_of("0123456789") != word.npos || word.size() > 9)))
                refuse("the number " + word);
            if (!is_word(c) && end == i + 1 && View(U"+-*/%~[](){}<>=.:|,").find(c) == View::npos)
                refuse("the sign " + word);
            open += View(U"([{").find(c) != View::npos;
            open -= View(U")]}").find(c) != View::npos;
            add(is_digit(c) ? Token::number : is_word(c) ? Token::name : Token::sign, word, text.substr(i, end - i));
            i = end;
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
        const bool second = c == '\n' && !text.empty() && text.back() == '\r';
        if (second) text.back() = '\n';
        else text += c;
    }
    std::ranges::replace(text, U'\r', U'\n');
    if (text.ends_with(U'\n')) text.pop_back();
    return text;
}

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
    : what(name), variables(texts), tokens(std::make_shared<std::vector<Token>>()) {
    Walk walk = {what, *tokens};
    Lexer{lines_of(text), walk}.read();
    walk.block({});
}

bool Jinja::reads(const std::string& variable) const {
    return std::ranges::any_of(*tokens, [&](const Token& t) { return t.kind == Token::name && t.text == variable; });
}

std::u32string Jinja::render(const std::vector<JinjaTurn>& turns, size_t count, bool add_generation_prompt) const {
    std::vector<Value> messages;
    size_t size = 20 * (count + 1) * (count + 1) + tokens->size();
    for (size_t i = 0; i < count; i++) {
        messages.push_back(dict_of({{"role", turns[i].role}, {"content", turns[i].content}}));
        size += turns[i].content.size();
    }
    Scope root = {{{"messages", messages}, {"add_generation_prompt", add_generation_prompt},
                   {"tools", Value::none}, {"documents", Value::none}}, nullptr};
    for (const char* name : {"raise_exception", "strftime_now", "namespace", "range"})
        root.names[name] = {Value::function, characters_of(name)};
    for (const auto& [name, text] : variables) root.names[name] = characters_of(text);
    Walk walk = {what, *tokens, &root, 100 * size};
    walk.block({});
    return walk.out;
}
