// json.h -- reads and writes JSON (RFC 8259). NaN and Infinity (Python writes them) are numbers
// that as_double refuses.
//
// The reader checks that the text is UTF-8, nests at most 32 deep and has no duplicate keys, no
// lone surrogates and nothing after the value. Numbers stay text, so as_u64 is exact up to 2^64-1.
// Errors of parse_json are kExitBadContent, "what: byte N: got X, want Y".
//
// A path need not be UTF-8. In files that contain paths, a byte XX that is not UTF-8 is written as
// \udcXX, as Python's surrogateescape does.
//
// A Json points into a text that parse_json has checked, and that must outlive it. There is no
// tree.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

struct Json {
    std::string_view from;  // the value and all text behind it; empty: there is no such value
    enum Kind { null, boolean, number, string, array, object };

    Kind kind() const;                        // null where there is no value
    explicit operator bool() const { return !from.empty(); }
    // Returns a string decoded, and any other value as it is written.
    std::string text() const;
    // Returns false if it is not an integer in 0..2^64-1. 1.0 is not an integer.
    bool as_u64(uint64_t* out) const;
    // Returns false if it is not a finite number that a double holds.
    bool as_double(double* out) const;
    // Returns the value under `key`; an empty one if it is absent or this is no object.
    Json find(std::string_view key) const;
    // These return the value under `key`. kExitBadContent, with what and key: it is absent or of
    // another type.
    Json at(std::string_view key, const char* what) const;
    std::string get_string(std::string_view key, const char* what) const;
    uint64_t get_u64(std::string_view key, const char* what) const;
    double get_double(std::string_view key, const char* what) const;
};
// paths: \udcXX in a string is byte XX.
Json parse_json(std::string_view text, const char* what, bool paths = false);
// The value would point into a text that is gone.
Json parse_json(std::string&& text, const char* what, bool paths = false) = delete;

// Walks through an array or object in the text's order:
//     for (JsonItems i(x); i.next();) ... i.key, i.value
struct JsonItems {
    Json key, value;        // of the current item; key is empty in an array
    explicit JsonItems(const Json& of);
    bool next();
  private:
    std::string_view rest;  // from the current value on; at first, what is behind the bracket
    bool object;
};

// Throws kExitBadContent, "WHAT: KEY: got GOT, want WANT".
[[noreturn]] void refuse(const char* what, std::string_view key, const Json& got,
                         const std::string& want);
// Returns text as a JSON string with its quotes. A byte that is not UTF-8 becomes U+FFFD, or with
// `path` \udcXX.
std::string json_quote(std::string_view text, bool path = false);
std::string json_shown(const Json& value);  // for "got X" in an error: short, whatever the value is
std::string json_number(double x, int digits = 17); // "null" for NaN and infinities
inline std::string json_number(float x) { return json_number(x, 9); }

// One object on one line: JsonLine().add("step", 3).add("loss", 1.5).text()
struct JsonLine {
    template <class T> JsonLine& add(std::string_view key, const T& x) {
        if constexpr (std::is_same_v<T, bool>) return raw(key, x ? "true" : "false");
        else if constexpr (std::is_floating_point_v<T>) return raw(key, json_number(x));
        else if constexpr (std::is_integral_v<T>) return raw(key, std::to_string(x));
        else return raw(key, json_quote(x));
    }
    JsonLine& add(const JsonLine& more);      // adds the members of `more`
    JsonLine& raw(std::string_view key, const std::string& json);     // json: a value that is JSON already
    std::string text() const { return "{" + body + "}"; }
  private:
    std::string body;
};

// The members of an object in their order: keys, and values as JSON. set_member with an empty value
// removes one.
using JsonMembers = std::vector<std::pair<std::string, std::string>>;
JsonMembers json_members(const Json& object);
void set_member(JsonMembers* members, const std::string& key, const std::string& value);
