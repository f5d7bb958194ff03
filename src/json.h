// json.h -- JSON, read strictly and written plainly (RFC 8259).
//
// Reading: UTF-8 checked, depth at most 32, no duplicate keys, no lone surrogates, nothing after the value. Numbers keep their
// text: as_u64 is exact up to 2^64-1. No locale anywhere. Errors: code 65, "what: byte N: got X, want Y".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct Json {
    enum Kind { null, boolean, number, string, array, object } kind = null;
    bool flag = false;
    std::string text;                                   // of a string (decoded) or a number (as written)
    std::vector<Json> items;                            // of an array
    std::vector<std::pair<std::string, Json>> members;  // of an object, in file order
    Json() {}           // written out: clang 14 asks pair<string, Json> whether Json is complete before it is

    const Json* find(std::string_view key) const;       // null if absent or not an object
    // The value under `key` as a type, or an Error (65) that says what, key, got and want.
    const Json& at(std::string_view key, const char* what) const;
    std::string get_string(std::string_view key, const char* what) const;
    uint64_t get_u64(std::string_view key, const char* what) const;
    double get_double(std::string_view key, const char* what) const;
    bool as_u64(uint64_t* out) const;                   // false if not an integer in 0..2^64-1
    bool as_double(double* out) const;
};
Json parse_json(std::string_view text, const char* what);

std::string json_quote(std::string_view text);          // "..." with escapes; invalid UTF-8 becomes U+FFFD
std::string json_shown(const Json& value);           // for "got X": short, whatever the file holds
std::string json_number(double x);                      // %.17g, null for NaN and infinities
std::string json_number(float x);                       // %.9g

// One object on one line: JsonLine().add("step", 3).add("loss", 1.5).text()
struct JsonLine {
    JsonLine& add(const char* key, double x) { return raw(key, json_number(x)); }
    JsonLine& add(const char* key, float x) { return raw(key, json_number(x)); }
    JsonLine& add(const char* key, int64_t x) { return raw(key, std::to_string(x)); }
    JsonLine& add(const char* key, uint64_t x) { return raw(key, std::to_string(x)); }
    JsonLine& add(const char* key, int x) { return raw(key, std::to_string(x)); }
    JsonLine& add(const char* key, bool x) { return raw(key, x ? "true" : "false"); }
    JsonLine& add(const char* key, const char* x) { return raw(key, json_quote(x)); }
    JsonLine& add(const char* key, const std::string& x) { return raw(key, json_quote(x)); }
    JsonLine& add(const JsonLine& more) { body += (body.empty() || more.body.empty() ? "" : ",") + more.body; return *this; }
    JsonLine& raw(const char* key, const std::string& json);   // already JSON
    std::string text() const { return "{" + body + "}"; }
  private:
    std::string body;
};
