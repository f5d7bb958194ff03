// fault.cpp -- reads LOCKSTEP_FAULT and does what it asks; see fault.h.
#include "fault.h"
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include "common.h"

namespace {

struct Fault { bool on = false; int64_t rank = 0, step = -1, argument = 0; std::string at, action; };

int64_t number(std::string_view text, const char* all) {
    int64_t n = 0;
    const std::from_chars_result r = std::from_chars(text.data(), text.data() + text.size(), n);
    if (r.ec != std::errc() || r.ptr != text.data() + text.size()) die(kExitUsage, "LOCKSTEP_FAULT: %s: got \"%.*s\", want a number", all, int(text.size()), text.data());
    return n;
}

Fault parse(const char* all) {
    Fault f;
    f.on = true;
    for (std::string_view rest = all; !rest.empty();) {
        const std::string_view word = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), word.size() + 1));
        const std::string_view key = word.substr(0, word.find('=')), value = word.substr(std::min(word.size(), key.size() + 1));
        if (key == "rank") f.rank = number(value, all);
        else if (key == "step") f.step = number(value, all);
        else if (key == "at") f.at = value;
        else if (key == "do") {
            f.action = value.substr(0, value.find(':'));
            if (f.action.size() < value.size()) f.argument = number(value.substr(f.action.size() + 1), all);
        } else die(kExitUsage, "LOCKSTEP_FAULT: %s: unknown key \"%.*s\"; want rank, step, at, do", all, int(key.size()), key.data());
    }
    for (const char* known : {"kill", "stop", "exit", "sleep", "nan", "flip"})
        if (f.action == known) {
            warn("LOCKSTEP_FAULT is set: %s", all);
            return f;
        }
    die(kExitUsage, "LOCKSTEP_FAULT: %s: unknown action \"%s\"; want kill, stop, exit:N, sleep:S, nan, flip:K", all, f.action.c_str());
}

}  // namespace

Damage fault_point(const char* point, int rank, int64_t step, size_t n) {
    static const Fault fault = std::getenv("LOCKSTEP_FAULT") ? parse(std::getenv("LOCKSTEP_FAULT")) : Fault{};
    if (!fault.on || fault.at != point || fault.rank != rank || fault.step != step) return {};
    warn("LOCKSTEP_FAULT fires: %s at %s", fault.action.c_str(), point);
    if (fault.action == "kill") raise(SIGKILL);
    if (fault.action == "stop") raise(SIGSTOP);
    if (fault.action == "exit") _exit(int(fault.argument));
    if (fault.action == "sleep") sleep(unsigned(fault.argument));
    if (fault.action == "nan") return {Damage::nan, 0};
    if (fault.action == "flip") return {Damage::flip, size_t(fault.argument) % n};
    return {};
}
