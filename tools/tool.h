// tool.h -- what the programs in tools/ share: options, --help, errors as exit codes, answers to another program.
#pragma once
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>
#include "src/base/common.h"
#include "src/base/words.h"

// A program, with the texts of --help in front of the lines of its options and behind them.
struct Tool {
    const char *name, *head;
    std::vector<Option> options = {};
    const char* tail = "";
};

// Returns the option's line of --help. defaults: it ends with "(default X)", unless the option is a flag or refuses X,
// its present value; to find out, X is set again.
inline std::string help_line(const Option& option, const std::string& help, int width, bool defaults) {
    const std::string value = value_text(option), left = option.typed() + " " + option.value;
    const bool has = defaults && !option.value.empty() && !value.empty() && set_option(option, value);
    return format("  %-*s %s%s\n", width, left.c_str(), help.c_str(), has ? (" (default " + value + ")").c_str() : "");
}

inline std::string help_of(const Tool& tool) {
    std::string text = tool.head;
    for (const Option& option : tool.options)
        if (*option.help) text += help_line(option, option.help, 20, true);
    return text + tool.tail;
}

// Runs run(), which returns an exit code. Passes its error to tell, and returns the error's code.
template <class F, class T> int code_of_errors(const F& run, const T& tell) {
    Error told;
    try {
        return run();
    } catch (const Error& error) {
        told = error;
    } catch (const std::bad_alloc&) {
        told = {kExitOther, "out of memory"};
    } catch (const std::exception& error) {
        told = {kExitOther, format("internal error: %s", error.what())};
    }
    tell(told);
    return told.code;
}

// Sets the tool's options and runs run(words), the other words, which returns an exit code. kExitWrite: standard output
// has not taken all.
template <class F> int tool_main(const Tool& tool, int argc, char** argv, const F& run) {
    set_program(tool.name);
    const Words words(argv + 1, argv + argc);
    if (contains(words, "--help") || contains(words, "-h")) return std::fputs(help_of(tool).c_str(), stdout), kExitDone;
    const auto all = [&] {
        Words given;
        const int code = run(read_options(tool.options, words, &given, "a value, "));
        if (std::fflush(stdout) != 0 || std::ferror(stdout)) die(kExitWrite, "cannot write to standard output");
        return code;
    };
    return code_of_errors(all, print_error);
}

// Writes a line to standard output at once. Throws kExitPeer if nobody reads it any more.
inline void answer_line(const std::string& text) {
    const std::string line = text + "\n";
    for (size_t done = 0; done < line.size();) {
        const ssize_t n = write(STDOUT_FILENO, line.data() + done, line.size() - done);
        if (n < 0 && errno != EINTR) die(kExitPeer, "the program that asked has ended");
        if (n > 0) done += size_t(n);
    }
}

// Calls work(request) for ask_tool (src/base/words.h): the request is what standard input has. The answer, one line, or
// the error goes to standard output, where nothing else may write. Returns the exit code. work() calls progress()
// often; that throws when the program that asked has ended, so that nothing is left behind.
inline int answer_request(const std::function<std::string(const std::string& request,
                                                          const std::function<void()>& progress)>& work) {
    constexpr double kSeconds = 0.1;                        // between two lines
    for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_IGN);
    double next = 0;
    const auto progress = [&] {
        if (now_seconds() < next) return;
        answer_line("");
        next = now_seconds() + kSeconds;
    };
    const auto run = [&] {
        std::string request;
        char piece[4096];
        for (ssize_t n; (n = read(STDIN_FILENO, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR);)
            if (n > 0) request.append(piece, size_t(n));
        const std::string answer = work(request, progress);
        CHECK(answer.find('\n') == answer.npos, "an answer of several lines");
        answer_line(answer);
        return int(kExitDone);
    };
    return code_of_errors(run, [](const Error& error) {
        try {
            answer_line(escape_control(error.message));
        } catch (const Error&) {}                           // nobody is there to hear it
    });
}
