// json.cpp -- RFC 8259's grammar by recursive descent, used twice: to check a text, and to walk through what was checked; and the few
// lines that write it.
#include "json.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include "common.h"
#include "unicode.h"

namespace {
constexpr int kMaxDepth = 32;                           // of arrays and objects inside each other: the parser's recursion
constexpr uint32_t kEnd = UINT32_MAX;                   // for the quote that ends a string

bool is_plain(char c) { return c >= ' ' && c != '"' && c != '\\'; }        // one byte of a string that stands for itself

struct Parser {
    std::string_view text;
    const char* what = "";
    size_t at = 0;
    std::vector<uint32_t>* keys = nullptr;              // where those of the open objects are; null: they were compared before

    [[noreturn]] void fail(size_t where, const char* want) const {
        std::string got = "the end";
        if (where < text.size()) {
            const unsigned char c = (unsigned char)text[where];
            got = c > 0x20 && c < 0x7F ? format("'%c'", c) : format("byte 0x%02x", c);
        }
        die(kExitBadContent, "%s: byte %zu: got %s, want %s", what, where, got.c_str(), want);
    }
    char peek() const { return at < text.size() ? text[at] : '\0'; }    // a NUL in the text is refused wherever it stands
    bool take(char c) { return peek() == c && at < text.size() ? (at++, true) : false; }
    void expect(char c, const char* want) { if (!take(c)) fail(at, want); }
    void space() { while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') at++; }
    bool digit() const { return peek() >= '0' && peek() <= '9'; }

    void word(const char* w) {
        for (const char* c = w; *c; c++) expect(*c, w);
    }

    void digits(const char* want) {
        if (!digit()) fail(at, want);
        while (digit()) at++;
    }

    void number() {
        take('-');
        if (!take('0')) digits("a digit");
        if (digit()) fail(at, "no digit after a leading 0");
        if (take('.')) digits("a digit after the point");
        if (take('e') || take('E')) {
            if (!take('+')) take('-');
            digits("a digit of the exponent");
        }
    }

    uint32_t hex4() {
        uint32_t c = 0;
        for (int i = 0; i < 4; i++, at++) {
            const size_t v = std::string_view("0123456789abcdefABCDEF").find(peek());
            if (at >= text.size() || v == std::string_view::npos) fail(at, "four hexadecimal digits");
            c = c << 4 | uint32_t(v < 16 ? v : v - 6);
        }
        return c;
    }

    uint32_t escape() {                                 // after the backslash
        const size_t begin = at - 1;
        static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
        const size_t simple = at < text.size() ? kFrom.find(text[at]) : std::string_view::npos;
        if (simple != std::string_view::npos) { at++; return uint32_t(kTo[simple]); }
        expect('u', "one of \" \\ / b f n r t u after the backslash");
        uint32_t c = hex4();
        if (c >= 0xD800 && c < 0xE000) {                // a pair of surrogates, or an error
            if (c >= 0xDC00 || !take('\\') || !take('u')) fail(begin, "a pair of surrogates, not one alone");
            const uint32_t low = hex4();
            if (low < 0xDC00 || low >= 0xE000) fail(begin, "a pair of surrogates, not one alone");
            c = 0x10000 + ((c & 0x3FF) << 10 | (low & 0x3FF));
        }
        return c;
    }

    // The next character of a string, or kEnd.
    uint32_t character() {
        if (at >= text.size()) fail(at, "the quote that ends a string");
        const unsigned char c = (unsigned char)text[at];
        if (c < 0x20) fail(at, "control characters written as \\u00XX");
        if (c < 0x80) {
            at++;
            return c == '"' ? kEnd : c == '\\' ? escape() : c;
        }
        const Utf8Char u = decode_utf8(text.substr(at));
        if (!u.valid) fail(at, "UTF-8");
        at += u.length;
        return u.code;
    }

    void string(const char* want, std::string* out = nullptr) {
        expect('"', want);
        for (uint32_t c = 0; c != kEnd;) {
            const size_t begin = at;
            while (at < text.size() && is_plain(text[at])) at++;
            if (out) out->append(text, begin, at - begin);
            if ((c = character()) != kEnd && out) append_utf8(out, c);
        }
    }

    bool reads(std::string_view word) {                 // the string here, without a copy if it has no escapes
        const std::string_view plain = text.substr(1, text.find_first_of("\"\\", 1) - 1);
        return text[plain.size() + 1] == '"' ? plain == word : Json{text}.text() == word;
    }

    void key() {
        space();
        if (keys) keys->push_back(uint32_t(at));
        string("a quoted key");
        space();
        expect(':', "':'");
    }

    void items(bool object, int depth) {                // of an object or array, behind its brace or bracket
        const char close = object ? '}' : ']';
        const size_t outer = keys ? keys->size() : 0;
        space();
        if (take(close)) return;
        do {
            if (object) key();
            value(depth);
            space();
        } while (take(','));
        expect(close, object ? "',' or '}'" : "',' or ']'");
        if (object && keys) check_keys(keys->begin() + ptrdiff_t(outer));
    }

    bool key_less(uint32_t a, uint32_t b) const {       // character by character, as it may be written in several ways
        while (text[a + 1] == text[b + 1] && is_plain(text[a + 1])) a++, b++;
        if (is_plain(text[a + 1]) && is_plain(text[b + 1])) return text[a + 1] < text[b + 1];
        Parser x{text, what, a + 1}, y{text, what, b + 1};
        uint32_t c, d;
        do c = x.character(), d = y.character(); while (c == d && c != kEnd);
        return c < d;
    }

    // Those of the object that ends here. Sorted: a vocabulary has 50,000 of them.
    void check_keys(std::vector<uint32_t>::iterator first) {
        std::sort(first, keys->end(), [&](uint32_t a, uint32_t b) { return key_less(a, b); });
        const auto twice = std::adjacent_find(first, keys->end(), [&](uint32_t a, uint32_t b) { return !key_less(a, b); });
        if (twice != keys->end())
            die(kExitBadContent, "%s: byte %zu: got key %s twice in the object that ends here, want each once", what, at - 1,
                json_quote(Json{text.substr(*twice)}.text()).c_str());
        keys->erase(first, keys->end());
    }

    void value(int depth) {
        space();
        const char c = peek();
        if (c == '{' || c == '[') {
            if (depth == kMaxDepth) fail(at, "at most 32 levels of nesting");
            at++;
            items(c == '{', depth + 1);
        }
        else if (c == '"') string("a string");
        else if (c == '-' || digit()) number();
        else if (c == 't') word("true");
        else if (c == 'f') word("false");
        else if (c == 'n') word("null");
        else fail(at, "a value");
    }
};

// A value as it is written.
std::string_view raw(const Json& value) {
    Parser parser{value.from};
    if (value) parser.value(0);
    return value.from.substr(0, parser.at);
}

// The value under a key is of the wrong type.
[[noreturn]] void fail_type(const char* what, std::string_view key, const Json& value, const char* want) {
    die(kExitBadContent, "%s: %.*s: got %s, want %s", what, int(key.size()), key.data(), json_shown(value).c_str(), want);
}
}  // namespace

Json parse_json(std::string_view text, const char* what) {
    if (text.size() > UINT32_MAX) die(kExitBadContent, "%s: got %zu bytes of JSON, want less than 4 GiB", what, text.size());
    std::vector<uint32_t> keys;
    Parser parser{text, what, 0, &keys};
    parser.space();
    const size_t begin = parser.at;
    parser.value(0);
    parser.space();
    if (parser.at != text.size()) parser.fail(parser.at, "nothing after the value");
    return {text.substr(begin)};
}

bool JsonItems::next() {
    Parser parser{rest};
    bool more = true;
    if (value) {                                        // rest begins with the value before
        parser.value(0);
        parser.space();
        more = parser.take(',');
    }
    parser.space();
    const char c = parser.peek();
    if (!more || c == ']' || c == '}' || c == '\0') return rest = {}, value = {}, false;
    if (object) key = {rest.substr(parser.at)}, parser.key();
    parser.space();
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
    Parser{from}.string("", &out);
    return out;
}

size_t Json::size() const {
    size_t n = 0;
    for (JsonItems i(*this); i.next();) n++;
    return n;
}

Json Json::find(std::string_view key) const {
    for (JsonItems i(*this); i.next();)
        if (i.key && Parser{i.key.from}.reads(key)) return i.value;
    return {};
}

Json Json::at(std::string_view key, const char* what) const {
    const Json value = find(key);
    if (!value)
        die(kExitBadContent, "%s: %.*s: it is missing%s", what, int(key.size()), key.data(),
            kind() == object ? "" : " (not an object)");
    return value;
}

std::string Json::get_string(std::string_view key, const char* what) const {
    const Json value = at(key, what);
    if (value.kind() != string) fail_type(what, key, value, "a string");
    return value.text();
}

uint64_t Json::get_u64(std::string_view key, const char* what) const {
    const Json value = at(key, what);
    uint64_t x;
    if (!value.as_u64(&x)) fail_type(what, key, value, "an integer of 0..2^64-1");
    return x;
}

double Json::get_double(std::string_view key, const char* what) const {
    const Json value = at(key, what);
    double x;
    if (!value.as_double(&x)) fail_type(what, key, value, "a number that a double holds");
    return x;
}

// 1.0 and 1e3 are no integers here.
bool Json::as_u64(uint64_t* out) const { return kind() == number && parse_whole(raw(*this), out); }
bool Json::as_double(double* out) const { return kind() == number && parse_whole(raw(*this), out) && std::isfinite(*out); }

// ---------------------------------------------------------------------------------------------------------- writing

std::string json_quote(std::string_view text) {
    std::string out = "\"";
    for (size_t at = 0; at < text.size();) {
        const Utf8Char u = decode_utf8(text.substr(at));
        const unsigned char c = (unsigned char)text[at];
        if (c == '"' || c == '\\') (out += '\\') += char(c);
        else if (c == '\n') out += "\\n";
        else if (c == '\r') out += "\\r";
        else if (c == '\t') out += "\\t";
        else if (c < 0x20 || c == 0x7F) out += format("\\u%04x", c);
        else if (!u.valid) out += "\xEF\xBF\xBD";        // U+FFFD for a byte that is no UTF-8
        else out.append(text, at, u.length);
        at += u.valid ? u.length : 1;
    }
    return out + '"';
}

std::string json_shown(const Json& value) {
    if (value.kind() == Json::string) return json_quote(value.text().substr(0, 60));
    return value.kind() == Json::array ? "an array" : value.kind() == Json::object ? "an object" : std::string(raw(value).substr(0, 60));
}

// %.17g and %.9g, the digits that give the same bits back, without printf's locale.
template <class F> static std::string number_text(F x, int digits) {
    if (!std::isfinite(x)) return "null";
    char buffer[64];
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::general, digits);
    return std::string(buffer, result.ptr);
}
std::string json_number(double x) { return number_text(x, 17); }
std::string json_number(float x) { return number_text(x, 9); }

JsonLine& JsonLine::raw(const char* key, const std::string& json) {
    if (!body.empty()) body += ',';
    body += json_quote(key) + ':' + json;
    return *this;
}
