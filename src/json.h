// json.h -- JSON, read strictly where it lies and written plainly (RFC 8259).
//
// Reading: UTF-8 checked, depth at most 32, no duplicate keys, no lone surrogates, nothing after the value. Numbers keep their
// text: as_u64 is exact up to 2^64-1. No locale anywhere. Errors: code 65, "what: byte N: got X, want Y".
// A Json is a place in the text that parse_json has checked, which must outlive it. No tree is built: members are found by walking
// from there, so large objects are gone through once. While it checks, parse_json holds 4 bytes for each key of the open objects.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

struct Json {
    std::string_view from;                              // the value's first byte to the end of the text; empty: there is no such value
    enum Kind { null, boolean, number, string, array, object };

    Kind kind() const;                                  // null where there is no value
    explicit operator bool() const { return !from.empty(); }
    bool flag() const { return from[0] == 't'; }        // of a boolean
    std::string text() const;                           // of a string, decoded; of anything else, as written
    size_t size() const;                                // of an array or object: items; else 0
    Json find(std::string_view key) const;              // none if absent or not an object
    // The value under `key` as a type, or an Error (65) that says what, key, got and want.
    Json at(std::string_view key, const char* what) const;
    std::string get_string(std::string_view key, const char* what) const;
    uint64_t get_u64(std::string_view key, const char* what) const;
    double get_double(std::string_view key, const char* what) const;
    bool as_u64(uint64_t* out) const;                   // false if not an integer in 0..2^64-1
    bool as_double(double* out) const;
};
Json parse_json(std::string_view text, const char* what);
Json parse_json(std::string&& text, const char* what) = delete;         // it would be gone

// What is in an array or object, in the text's order: for (JsonItems i(x); i.next();) ... i.key, i.value
struct JsonItems {
    Json key, value;                                    // key: of an object
    explicit JsonItems(const Json& of) : rest(of.kind() >= Json::array ? of.from.substr(1) : ""), object(of.kind() == Json::object) {}
    bool next();
  private:
    std::string_view rest;
    bool object;
};

std::string json_quote(std::string_view text);          // "..." with escapes; invalid UTF-8 becomes U+FFFD
std::string json_shown(const Json& value);              // for "got X": short, whatever the file holds
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
