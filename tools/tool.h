// tool.h -- what the programs in tools/ share: --help, and errors as exit codes.
#pragma once
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include "src/base/common.h"

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
