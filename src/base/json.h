// json.h -- JSON, read strictly where it lies and written plainly (RFC 8259).
//
// Reading: UTF-8 checked, depth at most 32, no duplicate keys, no lone surrogates, nothing after the value. Numbers
// keep their text: as_u64 is exact up to 2^64-1. Errors: kExitBadContent, "what: byte N: got X, want Y".
//
// A path need not be UTF-8. In the files that keep paths a byte XX that belongs to no character is \udcXX, as Python
// has it in a str (surrogateescape).
//
// A Json is a place in a text that parse_json has checked; the text must outlive it. No tree is built.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

struct Json {
    std::string_view from;                    // from the value to the end of the text; empty: no such value
    enum Kind { null, boolean, number, string, array, object };

    Kind kind() const;                        // null where there is no value
    explicit operator bool() const { return !from.empty(); }
    std::string text() const;                 // of a string, decoded; of anything else, as written
    bool as_u64(uint64_t* out) const;         // false if not an integer in 0..2^64-1; 1.0 is none
    bool as_double(double* out) const;        // false if not a number, or too large
    Json find(std::string_view key) const;    // none if absent or not an object
    // The value under `key` as a type, or a kExitBadContent error that says what, key, got and want.
    Json at(std::string_view key, const char* what) const;
    std::string get_string(std::string_view key, const char* what) const;
    uint64_t get_u64(std::string_view key, const char* what) const;
    double get_double(std::string_view key, const char* what) const;
};
Json parse_json(std::string_view text, const char* what, bool paths = false);     // paths: \udcXX is a byte
Json parse_json(std::string&& text, const char* what, bool paths = false) = delete;  // it would be gone

// Walks through an array or object in the text's order: for (JsonItems i(x); i.next();) ... i.key, i.value
struct JsonItems {
    Json key, value;                          // key: of an object
    explicit JsonItems(const Json& of);
    bool next();
  private:
    std::string_view rest;                    // from the value before, at first from behind the bracket
    bool object;
};

// Throws kExitBadContent, "WHAT: KEY: got GOT, want WANT".
[[noreturn]] void refuse(const char* what, std::string_view key, const Json& got, const std::string& want);
// "..." with escapes; a byte that belongs to no character becomes U+FFFD, of a path \udcXX.
std::string json_quote(std::string_view text, bool path = false);
std::string json_shown(const Json& value);    // for "got X": short, whatever the file holds
std::string json_number(double x, int digits = 17); // null for NaN and infinities
inline std::string json_number(float x) { return json_number(double(x), 9); }

// One object on one line: JsonLine().add("step", 3).add("loss", 1.5).text()
struct JsonLine {
    template <class T> JsonLine& add(const char* key, const T& x) {
        if constexpr (std::is_same_v<T, bool>) return raw(key, x ? "true" : "false");
        else if constexpr (std::is_floating_point_v<T>) return raw(key, json_number(x));
        else if constexpr (std::is_integral_v<T>) return raw(key, std::to_string(x));
        else return raw(key, json_quote(x));
    }
    JsonLine& add(const JsonLine& more);      // its members
    JsonLine& raw(const char* key, const std::string& json);  // already JSON
    std::string text() const { return "{" + body + "}"; }
  private:
    std::string body;
};
