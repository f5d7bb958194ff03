// tool.h -- what the programs in tools/ share: --help, errors as exit codes, answers to another program.
#pragma once
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>
#include "src/base/common.h"

// Sets the options, "--name VALUE" or "--name=VALUE", and returns the other words. null: one without a value, a word.
inline std::vector<std::string> read_options(const char* program, int argc, char** argv,
                                             const std::map<std::string, std::string*>& options) {
    std::vector<std::string> words;
    for (int i = 1; i < argc; i++) {
        const std::string arg = argv[i], name = arg.substr(0, arg.find('='));
        const auto option = options.find(name);
        const bool known = option != options.end();
        if (!known && arg.starts_with("-")) die(kExitUsage, "unknown option: %s; see %s --help", name.c_str(), program);
        if (!known || !option->second) {
            words.push_back(arg);
            continue;
        }
        *option->second = name != arg ? arg.substr(name.size() + 1) : i + 1 < argc ? argv[++i] : "";
        if (option->second->empty()) die(kExitUsage, "%s: want a value; see %s --help", name.c_str(), program);
    }
    return words;
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

// Runs run(argc, argv), which returns an exit code, as the program `name`.
template <class F> int tool_main(const char* name, const char* usage, int argc, char** argv, const F& run) {
    set_program(name);
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        if (word == "--help" || word == "-h") return std::fputs(usage, stdout), kExitDone;
    }
    return code_of_errors([&] { return run(argc, argv); }, print_error);
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

// Calls work(request) for ask_tool (src/base/tools.h): the request is what standard input has. The answer, one line, or
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
