// test.h -- what every test uses: TEST, EXPECT, and a summary line that tests/run counts.
//
//     TEST(name) { EXPECT(x == 3, "x is %d", x); }
//     int main(int argc, char** argv) { return run_tests(argc, argv); }
//
// A program runs its TESTs in order (or those whose names contain an argument), prints one line for each and exits 1 if
// any failed. SKIP("reason") ends a test without a verdict.
#pragma once
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>
#include "src/base/common.h"

struct TestCase { const char* name; void (*body)(); };
inline std::vector<TestCase>& test_cases() { static std::vector<TestCase> cases; return cases; }
struct TestFailure { std::string message; };
struct TestSkip { std::string reason; };

#define TEST(name) \
    static void test_##name(); \
    static const bool registered_##name = (test_cases().push_back({#name, test_##name}), true); \
    static void test_##name()

// Ends the test with a message: printf arguments.
#define FAIL(...) throw TestFailure{std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " + format(__VA_ARGS__)}
#define EXPECT(condition, ...)                                                                                \
    do {                                                                                                      \
        if (!(condition))                                                                                     \
            throw TestFailure{std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition ": " + \
                              format(__VA_ARGS__)};                                                           \
    } while (0)
#define SKIP(...) throw TestSkip{format(__VA_ARGS__)}

// Runs f, which must throw an Error with this code whose message contains `part`.
inline void expect_error(int code, const std::string& part, const std::function<void()>& f) {
    try { f(); } catch (const Error& e) {
        if (e.code != code || e.message.find(part) == std::string::npos)
            throw TestFailure{
                format("got error %d \"%s\", want %d \"...%s...\"", e.code, e.message.c_str(), code, part.c_str())};
        return;
    }
    throw TestFailure{format("got no error, want %d \"...%s...\"", code, part.c_str())};
}

// |got - want| <= tol for each element, NaN fails; says the first that is wrong. what: "dqkv of B=2 T=65".
template <class A, class B>
void expect_near(const A* got, const B* want, size_t n, double tol, const std::string& what) {
    for (size_t i = 0; i < n; i++) {
        const double g = double(got[i]), w = double(want[i]);
        if (!(std::fabs(g - w) <= tol))
            throw TestFailure{format("%s: [%zu]: got %.9g, want %.9g, tolerance %.3g", what.c_str(), i, g, w, tol)};
    }
}

inline int run_tests(int argc, char** argv) {
    int passed = 0, failed = 0, skipped = 0;
    for (const TestCase& t : test_cases()) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; i++) wanted |= std::string(t.name).find(argv[i]) != std::string::npos;
        if (!wanted) continue;
        const double start = now_seconds();
        std::string verdict = "ok  ", note;
        try { t.body(); passed++; }
        catch (const TestFailure& f) { verdict = "FAIL"; note = f.message; failed++; }
        catch (const TestSkip& s) { verdict = "SKIP"; note = s.reason; skipped++; }
        catch (const Error& e) { verdict = "FAIL"; note = format("error %d: %s", e.code, e.message.c_str()); failed++; }
        std::printf("%s %s (%.2f s)%s%s\n", verdict.c_str(), t.name, now_seconds() - start, note.empty() ? "" : ": ",
                    note.c_str());
        std::fflush(stdout);
    }
    std::printf("tests: %d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? 1 : 0;
}
