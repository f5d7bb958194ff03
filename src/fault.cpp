// fault.cpp -- reads LOCKSTEP_FAULT and does what it asks; see fault.h.
#include "fault.h"
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>
#include "common.h"

namespace {

struct Fault { int64_t rank = 0, step = -1, attempt = -1, argument = 0; std::string at, action; };

int64_t number(std::string_view text, const char* all) {
    int64_t n = 0;
    if (!parse_whole(text, &n)) die(kExitUsage, "LOCKSTEP_FAULT: %s: got \"%.*s\", want a number", all, int(text.size()), text.data());
    return n;
}

Fault parse_one(std::string_view text, const char* all) {
    Fault f;
    while (!text.empty()) {
        std::string_view value = next_word(&text, ',');
        const std::string_view key = next_word(&value, '=');
        if (key == "rank") f.rank = number(value, all);
        else if (key == "step") f.step = number(value, all);
        else if (key == "try") f.attempt = number(value, all);
        else if (key == "at") f.at = value;
        else if (key == "do") {
            f.action = next_word(&value, ':');
            if (!value.empty()) f.argument = number(value, all);
        } else die(kExitUsage, "LOCKSTEP_FAULT: %s: unknown key \"%.*s\"; want rank, step, at, do, try", all, int(key.size()), key.data());
    }
    const auto want = [&](const char* what, const std::string& got, std::string_view known) {
        for (std::string_view rest = known; !rest.empty();)
            if (std::string_view word = next_word(&rest, ' '); next_word(&word, ':') == got) return;
        die(kExitUsage, "LOCKSTEP_FAULT: %s: unknown %s \"%s\"; want one of %s", all, what, got.c_str(), std::string(known).c_str());
    };
    want("point", f.at, "fwd bwd loss reduce opt opt_m opt_v ckpt_copy ckpt_write ckpt_done ckpt_placed ckpt_latest load");
    want("action", f.action, "kill stop exit:N sleep:S eio nan big flip:K");
    return f;
}

std::vector<Fault> parse(const char* all) {
    std::vector<Fault> faults;
    if (!all || !*all) return faults;
    for (std::string_view rest = all; !rest.empty();) faults.push_back(parse_one(next_word(&rest, ';'), all));
    warn("LOCKSTEP_FAULT is set: %s", all);
    return faults;
}

const std::vector<Fault>& all_faults() {
    static const std::vector<Fault> faults = parse(std::getenv("LOCKSTEP_FAULT"));
    return faults;
}

std::vector<Fault> faults_at(const char* point, int rank, int64_t step) {
    static const int attempt = std::getenv("LOCKSTEP_TRY") ? std::atoi(std::getenv("LOCKSTEP_TRY")) : 0;
    std::vector<Fault> here;
    for (const Fault& f : all_faults())
        if (f.at == point && f.rank == rank && f.step == step && (f.attempt < 0 || f.attempt == attempt)) here.push_back(f);
    return here;
}

}  // namespace

void check_faults() { all_faults(); }

bool fault_ahead(const char* point, int rank, int64_t step) { return !faults_at(point, rank, step).empty(); }

Damage fault_point(const char* point, int rank, int64_t step, size_t n) {
    for (const Fault& fault : faults_at(point, rank, step)) {
        warn("LOCKSTEP_FAULT fires: %s at %s", fault.action.c_str(), point);
        if (fault.action == "kill") raise(SIGKILL);
        if (fault.action == "stop") raise(SIGSTOP);
        if (fault.action == "exit") _exit(int(fault.argument));
        if (fault.action == "sleep") sleep(unsigned(fault.argument));
        if (fault.action == "eio") die(kExitWrite, "write failed: Input/output error (LOCKSTEP_FAULT)");
        if (fault.action == "nan") return {Damage::nan, 0};
        if (fault.action == "big") return {Damage::big, 0};
        if (fault.action != "flip") continue;
        if (n == 0) die(kExitUsage, "LOCKSTEP_FAULT: flip: got at=%s, where there are no numbers; want bwd, opt, opt_m or opt_v", point);
        return {Damage::flip, size_t(fault.argument) % n};
    }
    return {};
}
