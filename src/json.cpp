// json.cpp -- a recursive descent parser of RFC 8259's grammar, and the few lines that write it.
#include "json.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include "common.h"
#include "unicode.h"

namespace {
constexpr int kMaxDepth = 32;                           // of arrays and objects inside each other: the parser's recursion

// Length of the UTF-8 character at text[at], 0 if there is none.
size_t utf8_length(std::string_view text, size_t at) {
    const Utf8Char c = decode_utf8(text.substr(at));
    return c.valid ? c.length : 0;
}

struct Parser {
    std::string_view text;
    const char* what;
    size_t at = 0;

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

    std::string number() {
        const size_t begin = at;
        take('-');
        if (!take('0')) digits("a digit");
        if (digit()) fail(at, "no digit after a leading 0");
        if (take('.')) digits("a digit after the point");
        if (take('e') || take('E')) {
            if (!take('+')) take('-');
            digits("a digit of the exponent");
        }
        return std::string(text.substr(begin, at - begin));
    }

    uint32_t hex4() {
        uint32_t c = 0;
        for (int i = 0; i < 4; i++, at++) {
            const char d = peek();
            const size_t v = std::string_view("0123456789abcdefABCDEF").find(d);
            if (at >= text.size() || v == std::string_view::npos) fail(at, "four hexadecimal digits");
            c = c << 4 | uint32_t(v < 16 ? v : v - 6);
        }
        return c;
    }

    void escape(std::string* out) {                     // after the backslash
        const size_t begin = at - 1;
        static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
        const size_t simple = at < text.size() ? kFrom.find(text[at]) : std::string_view::npos;
        if (simple != std::string_view::npos) { *out += kTo[simple]; at++; return; }
        expect('u', "one of \" \\ / b f n r t u after the backslash");
        uint32_t c = hex4();
        if (c >= 0xD800 && c < 0xE000) {                // a pair of surrogates, or an error
            if (c >= 0xDC00 || !take('\\') || !take('u')) fail(begin, "a pair of surrogates, not one alone");
            const uint32_t low = hex4();
            if (low < 0xDC00 || low >= 0xE000) fail(begin, "a pair of surrogates, not one alone");
            c = 0x10000 + ((c & 0x3FF) << 10 | (low & 0x3FF));
        }
        append_utf8(out, c);
    }

    std::string string(const char* want) {
        expect('"', want);
        std::string out;
        while (!take('"')) {
            if (at >= text.size()) fail(at, "the quote that ends a string");
            if ((unsigned char)text[at] < 0x20) fail(at, "control characters written as \\u00XX");
            if (take('\\')) { escape(&out); continue; }
            const size_t n = utf8_length(text, at);
            if (n == 0) fail(at, "UTF-8");
            out.append(text, at, n);
            at += n;
        }
        return out;
    }

    void array(Json* value, int depth) {
        space();
        if (take(']')) return;
        do {
            value->items.push_back(this->value(depth));
            space();
        } while (take(','));
        expect(']', "',' or ']'");
    }

    void object(Json* value, int depth) {
        space();
        if (take('}')) return;
        do {
            space();
            std::string key = string("a quoted key");
            space();
            expect(':', "':'");
            value->members.emplace_back(std::move(key), this->value(depth));
            space();
        } while (take(','));
        expect('}', "',' or '}'");
        std::vector<std::string_view> keys;             // sorted: a vocabulary has 50,000 of them
        keys.reserve(value->members.size());
        for (const auto& member : value->members) keys.push_back(member.first);
        std::sort(keys.begin(), keys.end());
        const auto twice = std::adjacent_find(keys.begin(), keys.end());
        if (twice != keys.end())
            die(kExitBadContent, "%s: byte %zu: got key %s twice in the object that ends here, want each once", what, at - 1,
                json_quote(*twice).c_str());
    }

    Json value(int depth) {
        space();
        Json v;
        const char c = peek();
        if (c == '{' || c == '[') {
            if (depth == kMaxDepth) fail(at, "at most 32 levels of nesting");
            at++;
            v.kind = c == '{' ? Json::object : Json::array;
            c == '{' ? object(&v, depth + 1) : array(&v, depth + 1);
        } else if (c == '"') {
            v.kind = Json::string;
            v.text = string("a string");
        } else if (c == '-' || digit()) {
            v.kind = Json::number;
            v.text = number();
        } else if (c == 't' || c == 'f') {
            v.kind = Json::boolean;
            v.flag = c == 't';
            word(v.flag ? "true" : "false");
        } else if (c == 'n') {
            word("null");
        } else {
            fail(at, "a value");
        }
        return v;
    }
};

// The value under a key is of the wrong type.
[[noreturn]] void fail_type(const char* what, std::string_view key, const Json& value, const char* want) {
    die(kExitBadContent, "%s: %.*s: got %s, want %s", what, int(key.size()), key.data(), json_shown(value).c_str(), want);
}
}  // namespace

Json parse_json(std::string_view text, const char* what) {
    Parser parser{text, what};
    Json value = parser.value(0);
    parser.space();
    if (parser.at != text.size()) parser.fail(parser.at, "nothing after the value");
    return value;
}

const Json* Json::find(std::string_view key) const {
    for (const auto& member : members)
        if (member.first == key) return &member.second;
    return nullptr;
}

const Json& Json::at(std::string_view key, const char* what) const {
    const Json* value = find(key);
    if (!value)
        die(kExitBadContent, "%s: %.*s: it is missing%s", what, int(key.size()), key.data(),
            kind == object ? "" : " (not an object)");
    return *value;
}

std::string Json::get_string(std::string_view key, const char* what) const {
    const Json& value = at(key, what);
    if (value.kind != string) fail_type(what, key, value, "a string");
    return value.text;
}

uint64_t Json::get_u64(std::string_view key, const char* what) const {
    const Json& value = at(key, what);
    uint64_t x;
    if (!value.as_u64(&x)) fail_type(what, key, value, "an integer of 0..2^64-1");
    return x;
}

double Json::get_double(std::string_view key, const char* what) const {
    const Json& value = at(key, what);
    double x;
    if (!value.as_double(&x)) fail_type(what, key, value, "a number that a double holds");
    return x;
}

// from_chars knows no locale, and says when a number does not fit. The end is checked: 1.0 and 1e3 are no integers here.
template <class T> static bool read_number(const Json& value, T* out) {
    const char* end = value.text.data() + value.text.size();
    const auto result = std::from_chars(value.text.data(), end, *out);
    return value.kind == Json::number && result.ec == std::errc() && result.ptr == end;
}
bool Json::as_u64(uint64_t* out) const { return read_number(*this, out); }
bool Json::as_double(double* out) const { return read_number(*this, out) && std::isfinite(*out); }

// ---------------------------------------------------------------------------------------------------------- writing

std::string json_quote(std::string_view text) {
    std::string out = "\"";
    for (size_t at = 0; at < text.size();) {
        const size_t n = utf8_length(text, at);
        const unsigned char c = (unsigned char)text[at];
        if (c == '"' || c == '\\') (out += '\\') += char(c);
        else if (c == '\n') out += "\\n";
        else if (c == '\r') out += "\\r";
        else if (c == '\t') out += "\\t";
        else if (c < 0x20 || c == 0x7F) out += format("\\u%04x", c);
        else if (n == 0) out += "\xEF\xBF\xBD";         // U+FFFD for a byte that is no UTF-8
        else out.append(text, at, n);
        at += std::max<size_t>(n, 1);
    }
    return out + '"';
}

std::string json_shown(const Json& value) {
    static const char* const names[] = {"null", "", "", "", "an array", "an object"};
    if (value.kind == Json::string) return json_quote(value.text.substr(0, 60));
    if (value.kind == Json::number) return value.text.substr(0, 60);
    return value.kind == Json::boolean ? (value.flag ? "true" : "false") : names[value.kind];
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
