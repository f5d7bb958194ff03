// json.cpp -- a recursive-descent parser. The same code first checks a text and later finds values
// in it.
#include "src/base/json.h"
#include <algorithm>
#include <cmath>
#include "src/base/common.h"
#include "src/base/utf8.h"

namespace {
constexpr int kMaxDepth = 32;   // levels of arrays and objects

struct Parser {
    std::string_view text;
    const char* what = nullptr;     // null: the text was checked before
    bool paths = true;              // \udcXX is byte XX
    size_t at = 0;

    [[noreturn]] void fail(const char* want) const {
        const std::string got = at < text.size() ? json_quote(text.substr(at, 1)) : "the end";
        die_content(format("%s: byte %zu", what, at), got, want);
    }
    // No rule accepts a NUL in the text.
    char peek() const { return at < text.size() ? text[at] : '\0'; }
    bool take(char c) { return peek() == c && ++at; }
    void space() { at = std::min(text.find_first_not_of(" \t\n\r", at), text.size()); }
    bool token(char c) {
        space();
        return take(c);
    }
    void word(std::string_view w) {
        if (!text.substr(at).starts_with(w)) fail("a value");
        at += w.size();
    }

    void digits() {
        const size_t begin = at;
        while (peek() >= '0' && peek() <= '9') at++;
        if (at == begin) fail("a digit");
    }
    void number() {
        take('-');
        if (!take('0')) digits();
        if (take('.')) digits();
        if (!take('e') && !take('E')) return;
        if (!take('+')) take('-');
        digits();
    }

    uint32_t hex4() {
        const std::string_view hex = text.substr(at, 4);
        uint32_t code = 0;
        if (hex.size() < 4 ||
            std::from_chars(hex.data(), hex.data() + 4, code, 16).ptr != hex.data() + 4)
            fail("four hexadecimal digits");
        at += 4;
        return code;
    }
    static bool is_byte(uint32_t code) { return code >= 0xDC80 && code < 0xDD00; }
    uint32_t escape() {                                 // parses what follows a backslash
        static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
        if (const size_t i = kFrom.find(peek()); i != kFrom.npos && ++at) return kTo[i];
        if (!take('u')) fail("one of \" \\ / b f n r t u");
        const uint32_t code = hex4();
        if (code < 0xD800 || code >= 0xE000 || (paths && is_byte(code))) return code;
        const uint32_t low = code < 0xDC00 && take('\\') && take('u') ? hex4() : 0;
        if (low < 0xDC00 || low >= 0xE000) fail("a pair of surrogates");
        return 0x10000 + ((code & 0x3FF) << 10 | (low & 0x3FF));
    }
    // Parses a string. Appends its decoded text to out, unless out is null.
    void string(std::string* out = nullptr) {
        const auto plain = [](char c) { return c >= ' ' && c < 0x7F && c != '"' && c != '\\'; };
        if (!take('"')) fail("a string");
        while (!take('"')) {
            if (take('\\')) {
                const uint32_t code = escape();
                if (out && is_byte(code)) *out += code;
                else if (out) append_utf8(out, code);
                continue;
            }
            const size_t begin = at;
            at = std::find_if_not(text.begin() + at, text.end(), plain) - text.begin();
            if (at == begin) {
                const Utf8Char c = decode_utf8(text.substr(at));
                if (!c.valid || c.code < 0x20)
                    fail("UTF-8 without control characters, up to a quote");
                at += c.length;
            }
            if (out) out->append(text, begin, at - begin);
        }
    }

    void key() {
        string();
        if (!token(':')) fail("':'");
    }
    void items(bool object, int depth) {                // parses what follows the bracket
        const char close = object ? '}' : ']';
        std::vector<size_t> keys;       // the byte at which each begins
        if (token(close)) return;
        do {
            space();
            if (object && what) keys.push_back(at);
            if (object) key();
            value(depth);
        } while (token(','));
        if (!take(close)) fail(object ? "',' or '}'" : "',' or ']'");
        const auto name = [&](size_t place) { return Json{text.substr(place)}.text(); };
        std::ranges::sort(keys, {}, name);  // fast enough for a vocabulary of 50,000 keys
        if (const auto twice = std::ranges::adjacent_find(keys, {}, name); twice != keys.end())
            die_content(format("%s: byte %zu", what, at),
                        "key " + json_quote(name(*twice)) + " twice", "each once");
    }
    void value(int depth) {
        space();
        switch (const char c = peek()) {
            case '{': case '[':
                if (depth == kMaxDepth) fail("at most 32 levels of nesting");
                at++;
                return items(c == '{', depth + 1);
            case '"': return string();
            case 't': return word("true");
            case 'f': return word("false");
            case 'n': return word("null");
            case 'N': return word("NaN");
            case 'I': return word("Infinity");
            default:
                if (c != '-' && (c < '0' || c > '9')) fail("a value");
                return number();
        }
    }
};

std::string_view raw(const Json& value) {               // the value's text as it is written
    Parser parser{value.from};
    if (value) parser.value(0);
    return value.from.substr(0, parser.at);
}
}  // namespace

Json parse_json(std::string_view text, const char* what, bool paths) {
    Parser parser{text, what, paths};
    parser.space();
    const size_t begin = parser.at;
    parser.value(0);
    parser.space();
    if (parser.at != text.size()) parser.fail("nothing after the value");
    return {text.substr(begin)};
}

JsonItems::JsonItems(const Json& of)
    : rest(of.kind() >= Json::array ? of.from.substr(1) : ""), object(of.kind() == Json::object) {}

bool JsonItems::next() {
    Parser parser{rest};
    if (value) parser.value(0);
    parser.token(',');
    parser.space();
    const char c = parser.peek();
    key = value = {};
    if (c == ']' || c == '}' || c == '\0') return rest = {}, false;
    if (object) {
        key = {rest.substr(parser.at)};
        parser.key();
        parser.space();
    }
    rest.remove_prefix(parser.at);
    value = {rest};
    return true;
}

Json::Kind Json::kind() const {
    switch (from.empty() ? 'n' : from[0]) {
        case '{': return object;
        case '[': return array;
        case '"': return string;
        case 'n': return null;
        case 't': case 'f': return boolean;
        default: return number;
    }
}

std::string Json::text() const {
    if (kind() != string) return std::string(raw(*this));
    std::string out;
    Parser{from}.string(&out);
    return out;
}

Json Json::find(std::string_view key) const {
    for (JsonItems i(*this); i.next();)
        if (i.key && i.key.text() == key) return i.value;
    return {};
}

Json Json::at(std::string_view key, const char* what) const {
    if (const Json value = find(key)) return value;
    throw Error{kExitBadContent, what + (": " + std::string(key)) + ": it is missing"};
}

bool Json::as_u64(uint64_t* out) const { return kind() == number && parse_whole(raw(*this), out); }
bool Json::as_double(double* out) const {
    return kind() == number && parse_whole(raw(*this), out) && std::isfinite(*out);
}

std::string Json::get_string(std::string_view key, const char* what) const {
    const Json value = at(key, what);
    if (value.kind() != string) refuse(what, key, value, "a string");
    return value.text();
}

uint64_t Json::get_u64(std::string_view key, const char* what) const {
    const Json value = at(key, what);
    if (uint64_t x; value.as_u64(&x)) return x;
    refuse(what, key, value, "an integer of 0..2^64-1");
}

double Json::get_double(std::string_view key, const char* what) const {
    const Json value = at(key, what);
    if (double x; value.as_double(&x)) return x;
    refuse(what, key, value, "a number that a double holds");
}

void refuse(const char* what, std::string_view key, const Json& got, const std::string& want) {
    die_content(what + (": " + std::string(key)), json_shown(got), want);
}

std::string json_quote(std::string_view text, bool path) {
    static constexpr std::string_view kFrom = "\"\\\n\r\t", kTo = "\"\\nrt";
    std::string out = "\"";
    while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        const size_t escape = kFrom.find(text[0]);
        if (!c.valid && !path) out += "\uFFFD";
        else if (!c.valid)
            for (uint32_t i = 0; i < c.length; i++) out += format("\\udc%02x", uint8_t(text[i]));
        else if (escape != kFrom.npos) (out += '\\') += kTo[escape];
        else if (c.code < 0x20 || c.code == 0x7F) out += format("\\u%04x", c.code);
        else out += text.substr(0, c.length);
        text.remove_prefix(c.length);
    }
    return out + '"';
}

std::string json_shown(const Json& value) {
    if (value.kind() >= Json::array) return value.kind() == Json::array ? "an array" : "an object";
    const std::string text = value.text().substr(0, 60);
    return value.kind() == Json::string ? json_quote(text) : text;
}

// Writes the digits from which the same bits are read back, like printf's %.17g but in any locale.
std::string json_number(double x, int digits) {
    if (!std::isfinite(x)) return "null";
    char buffer[64];
    return {
        buffer,
        std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::general, digits).ptr};
}

JsonLine& JsonLine::add(const JsonLine& more) {
    body += (body.empty() || more.body.empty() ? "" : ",") + more.body;
    return *this;
}

JsonLine& JsonLine::raw(std::string_view key, const std::string& json) {
    body += (body.empty() ? "" : ",") + json_quote(key) + ':' + json;
    return *this;
}

JsonMembers json_members(const Json& object) {
    JsonMembers members;
    for (JsonItems i(object); i.next();)
        members.push_back({i.key.text(), std::string(raw(i.value))});
    return members;
}

void set_member(JsonMembers* members, const std::string& key, const std::string& value) {
    const auto found = std::ranges::find(*members, key, &JsonMembers::value_type::first);
    if (found != members->end() && value.empty()) members->erase(found);
    else if (found != members->end()) found->second = value;
    else if (!value.empty()) members->push_back({key, value});
}
