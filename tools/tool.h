// tool.h -- what the programs in tools/ share: --help, and errors as exit codes.
#pragma once
#include <cstdio>
#include <exception>
#include <new>
#include <map>
#include <string>
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

// Runs run(argc, argv), which returns an exit code, as the program `name`.
template <class F> int tool_main(const char* name, const char* usage, int argc, char** argv, const F& run) {
    set_program(name);
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        if (word == "--help" || word == "-h") return std::fputs(usage, stdout), kExitDone;
    }
    try {
        return run(argc, argv);
    } catch (const Error& error) {
        print_error(error);
        return error.code;
    } catch (const std::bad_alloc&) {
        print_error({kExitOther, "out of memory"});
        return kExitOther;
    } catch (const std::exception& error) {
        print_error({kExitOther, format("internal error: %s", error.what())});
        return kExitOther;
    }
}
