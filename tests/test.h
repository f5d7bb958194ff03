// test.h -- what every test uses: TEST, the EXPECTs, a folder, and summary lines that tests/run counts.
//
//     TEST(name) { EXPECT(x > 3, "x is %d", x); EXPECT_EQ(f(x), 4); }
//
// tests/main.cpp has main, unless a test has its own. A program runs its TESTs in order (or those whose names contain
// an argument), prints one line for each and exits 1 if any failed. SKIP("reason") ends a test without a verdict.
#pragma once
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#include "src/base/common.h"
#include "src/base/file.h"

struct TestCase { const char* name; void (*body)(); };
inline std::vector<TestCase>& test_cases() { static std::vector<TestCase> cases; return cases; }
struct TestFailure { std::string message; };
struct TestSkip { std::string reason; };
inline std::atomic<long> checks_made = 0;

#define TEST(name) \
    static void test_##name(); \
    static const bool registered_##name = (test_cases().push_back({#name, test_##name}), true); \
    static void test_##name()

// Names the row of a table while it lives: a failure begins with it, and so does an Error that ends the test.
inline thread_local std::string rows_at_work, rows_left;        // rows_left: those of an exception
struct Row {
    const std::string before = rows_at_work;
    explicit Row(const std::string& text) {
        rows_at_work += escape_control(text.substr(0, 200)) + ": ";
        rows_left.clear();
    }
    ~Row() {
        if (std::uncaught_exceptions() > 0 && rows_left.empty()) rows_left = rows_at_work;
        rows_at_work = before;
    }
};
inline TestFailure test_failure(const char* file, int line, const std::string& what, const std::string& more = "") {
    return {format("%s:%d: ", file, line) + rows_at_work + what + (more.empty() ? "" : ": ") + more};
}

// Ends the test with a message: printf arguments.
#define FAIL(...) throw test_failure(__FILE__, __LINE__, format(__VA_ARGS__))
// Ends the test unless the condition holds. A message may follow it.
#define EXPECT(condition, ...)                                                               \
    do {                                                                                     \
        if (checks_made++; !(condition))                                                     \
            throw test_failure(__FILE__, __LINE__, #condition __VA_OPT__(, format(__VA_ARGS__))); \
    } while (0)
#define SKIP(...) throw TestSkip{format(__VA_ARGS__)}

template <class T> std::string shown(const T& x) {
    if constexpr (std::is_convertible_v<const T&, std::string_view>)
        return "\"" + std::string(std::string_view(x).substr(0, 2000)) + "\"";
    else if constexpr (std::is_floating_point_v<T>) return format("%.17g", double(x));
    else if constexpr (std::is_integral_v<T>) return std::to_string(x);
    else if constexpr (requires { x.begin(); }) {
        std::string all;
        for (const auto& one : x)
            if (all.size() < 1000) all += (all.empty() ? "" : " ") + shown(one);
        return all;
    } else return "another value";
}
template <class T> constexpr bool kIsNumber = std::is_integral_v<T> && sizeof(T) > 1;
// Ends the test unless got == want, and shows both.
template <class Got, class Want>
void expect_equal(const char* file, int line, const char* what, const Got& got, const Want& want) {
    checks_made++;
    bool equal;
    if constexpr (kIsNumber<Got> && kIsNumber<Want>) equal = std::cmp_equal(got, want);
    else equal = got == want;
    if (!equal) throw test_failure(file, line, what, "got " + shown(got) + ", want " + shown(want));
}
#define EXPECT_EQ(got, ...) expect_equal(__FILE__, __LINE__, #got, got, __VA_ARGS__)

// Runs f, which must throw an Error with this code whose message contains `part` and `also`.
inline void expect_error(int code, const std::string& part, const std::function<void()>& f,
                         const std::string& also = "") {
    checks_made += also.empty() ? 1 : 2;
    const std::string want = format(", want %d \"...%s...\" %s", code, part.c_str(), also.c_str());
    try {
        f();
    } catch (const Error& e) {
        rows_left.clear();
        if (e.code == code && e.message.find(part) != e.message.npos && e.message.find(also) != e.message.npos) return;
        throw TestFailure{rows_at_work + format("got error %d \"%s\"", e.code, e.message.c_str()) + want};
    }
    throw TestFailure{rows_at_work + "got no error" + want};
}
// A table of refusals: f(input) must throw an Error with this code whose message contains what stands beside the input.
using Refusals = std::vector<std::pair<std::string, std::string>>;
inline void expect_refusals(int code, const Refusals& rows, const std::function<void(const std::string& input)>& f,
                            const std::string& also = "") {
    for (const auto& [input, part] : rows) {
        const Row row(input);
        expect_error(code, part, [&, &input = input] { f(input); }, also);
    }
}

// |got - want| <= tol for each element, NaN fails; says the first that is wrong. what: "dqkv of B=2 T=65".
template <class A, class B>
void expect_near(const A* got, const B* want, size_t n, double tol, const std::string& what) {
    for (size_t i = 0; i < n; i++, checks_made++) {
        const double g = double(got[i]), w = double(want[i]);
        if (!(std::fabs(g - w) <= tol))
            throw TestFailure{rows_at_work + what +
                              format(": [%zu]: got %.9g, want %.9g, tolerance %.3g", i, g, w, tol)};
    }
}
// Whether f fails as a test: for negative controls.
inline bool fails(const std::function<void()>& f) {
    try {
        f();
    } catch (const TestFailure&) {
        return true;
    }
    return false;
}

// ---- texts and files

inline bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }
inline size_t count_of(std::string_view text, std::string_view part) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) n++;
    return n;
}
// The text with the first `from` replaced, which must be there.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT(at != text.npos, "no %s in %s", from.c_str(), text.substr(0, 300).c_str());
    return text.replace(at, from.size(), to);
}

inline void put(const std::string& path, std::string_view content) {
    FILE* f = std::fopen(path.c_str(), "wb");
    EXPECT(f && std::fwrite(content.data(), 1, content.size(), f) == content.size() && std::fclose(f) == 0, "%s",
           path.c_str());
}
// A folder of its own for a test, removed at its end.
struct Folder {
    std::string path;
    Folder() {
        const char* tmp = std::getenv("TMPDIR");
        path = std::string(tmp && *tmp ? tmp : "/tmp") + "/lockstep-test.XXXXXX";
        EXPECT(mkdtemp(path.data()), "mkdtemp %s", path.c_str());
    }
    ~Folder() { remove_tree(path); }
    Folder(const Folder&) = delete;
    std::string operator/(const std::string& name) const { return path + "/" + name; }
    std::string add(const std::string& name, std::string_view content) const {
        put(*this / name, content);
        return *this / name;
    }
};

inline int run_tests(int argc, char** argv) {
    int passed = 0, failed = 0, skipped = 0;
    for (const TestCase& t : test_cases()) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; i++) wanted |= has(t.name, argv[i]);
        if (!wanted) continue;
        const double start = now_seconds();
        std::string verdict = "ok  ", note;
        rows_left.clear();
        try { t.body(); passed++; }
        catch (const TestFailure& f) { verdict = "FAIL"; note = f.message; failed++; }
        catch (const TestSkip& s) { verdict = "SKIP"; note = s.reason; skipped++; }
        catch (const Error& e) {
            verdict = "FAIL", failed++;
            note = rows_left + format("error %d: %s", e.code, e.message.c_str());
        }
        std::printf("%s %s (%.2f s)%s%s\n", verdict.c_str(), t.name, now_seconds() - start, note.empty() ? "" : ": ",
                    note.c_str());
        std::fflush(stdout);
    }
    std::printf("checks: %ld\n", checks_made.load());
    std::printf("tests: %d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? 1 : 0;
}
