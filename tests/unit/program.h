// program.h -- runs programs and says how they ended.
#pragma once
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <sstream>
#include "tests/test.h"

using Words = std::vector<std::string>;
inline Words words_of(const std::string& text, Words words = {}) {
    std::istringstream in(text);
    for (std::string w; in >> w;) words.push_back(w);
    return words;
}
inline const std::string tools = std::getenv("TOOLS") ? std::getenv("TOOLS") : "build";

struct End { int code; std::string said; long peak; };      // code: 128 + signal if killed; peak: bytes

// said: on standard error; with `both` on standard output, too.
inline End run(const Words& words, bool both = false) {
    std::vector<char*> args;
    for (const std::string& w : words) args.push_back(const_cast<char*>(w.c_str()));
    args.push_back(nullptr);
    const int log = memfd_create("log", MFD_CLOEXEC);
    std::fflush(nullptr);  // or the child has our unprinted lines too
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);  // no file may make it wait
        dup2(log, 2);
        if (both) dup2(log, 1);
        else if (!std::freopen("/dev/null", "w", stdout)) _exit(126);
        execv(args[0], args.data());
        _exit(127);
    }
    int status = 0;
    rusage used = {};
    wait4(pid, &status, 0, &used);
    std::string said(size_t(lseek(log, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(log, said.data(), said.size(), 0), said.size());
    close(log);
    return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), said, used.ru_maxrss * 1024};
}
