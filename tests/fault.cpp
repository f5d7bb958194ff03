// fault.cpp -- faults on purpose: linked into test programs (build/train_gpt_faults, train_gpt_ptx), where it fills the
// hook of common.h. LOCKSTEP_FAULT="rank=1,step=7,at=bwd,do=kill", several separated by ";".
//
//   at   fwd, bwd       before the first micro-batch; after its backward: nan, big and flip hit its gradients. On a GPU
//                       bwd, reduce and meet need --graph off
//        eval, task     before each batch of an evaluation, of questions; the step is the last one done, from 0
//        audit          after an audit's own micro-batch: the same
//        frozen         before an audit looks at weights that --lora freezes: the same to them
//        reduce         before the reduction is waited for
//        meet           in each bucket, between the sum of this rank's replicas and that of the ranks: the same
//        ckpt_copy      rank 0, a save: before the state is copied; the step is the checkpoint's
//        ckpt_write     in the background, between the two large files
//        ckpt_done, ckpt_placed, ckpt_latest, ckpt_best    DONE is written; the folder has its name; `latest` names it;
//                       `best` names the best one
//   do   kill  stop  exit:N  sleep:S  hold (while the file LOCKSTEP_HOLD is there)  eio (an Error 74)
//        nan, big (the first value: NaN, 1e6)  flip:K (bit 20 of value K)
//   try  N: only in attempt N of --np's supervisor, from 0
#include "src/base/common.h"
#include <bit>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

// The CUDA runtime, in programs that have it.
extern "C" [[gnu::weak]] int cudaMemcpy(void* to, const void* from, size_t bytes, int kind);
extern "C" [[gnu::weak]] int cudaDeviceSynchronize();

namespace {

struct Fault { int64_t rank = 0, step = -1, attempt = -1, argument = 0; std::string at, action; };

// A test that asks for what there is not must not pass by accident.
[[noreturn]] void refuse(std::string_view part) {
    print_error({kExitUsage, "LOCKSTEP_FAULT: cannot read \"" + std::string(part) + "\"; see tests/fault.cpp"});
    _exit(kExitUsage);
}

int64_t number(std::string_view text) {
    int64_t n = 0;
    if (!parse_whole(text, &n)) refuse(text);
    return n;
}

std::string known(std::string_view word, const char* all) {
    if ((" " + std::string(all) + " ").find(" " + std::string(word) + " ") == std::string::npos) refuse(word);
    return std::string(word);
}

Fault parse_one(std::string_view text) {
    Fault f;
    while (!text.empty()) {
        std::string_view value = next_word(&text, ',');
        const std::string_view key = next_word(&value, '=');
        if (key == "rank") f.rank = number(value);
        else if (key == "step") f.step = number(value);
        else if (key == "try") f.attempt = number(value);
        else if (key == "at")
            f.at = known(value, "fwd bwd eval task audit frozen reduce meet ckpt_copy ckpt_write ckpt_done ckpt_placed "
                                "ckpt_latest ckpt_best");
        else if (key == "do") {
            f.action = known(next_word(&value, ':'), "kill stop exit sleep hold eio nan big flip");
            if (!value.empty()) f.argument = number(value);
        } else refuse(key);
    }
    return f;
}

// Before main: what is wrong is said before anything is written.
const std::vector<Fault> faults = [] {
    std::vector<Fault> list;
    const char* const all = std::getenv("LOCKSTEP_FAULT");
    for (std::string_view rest = all ? all : ""; !rest.empty();) list.push_back(parse_one(next_word(&rest, ';')));
    return list;
}();

bool is_here(const Fault& f, const char* point, int rank, int64_t step) {
    const char* const attempt = std::getenv("LOCKSTEP_TRY");
    const bool now = f.attempt < 0 || f.attempt == std::atoi(attempt ? attempt : "0");
    return f.at == point && f.rank == rank && f.step == step && now;
}

// A test waits for "fires", changes the world and removes the file.
void hold() {
    const char* const file = std::getenv("LOCKSTEP_HOLD");
    while (file && access(file, F_OK) == 0) usleep(10000);
}

// Copies a number to or from memory that may be a GPU's.
void copy(void* to, const void* from) {
    constexpr int kDefault = 4;                         // cudaMemcpyDefault: the addresses say which way
    if (!cudaMemcpy || cudaMemcpy(to, from, sizeof(uint32_t), kDefault) != 0) std::memcpy(to, from, sizeof(uint32_t));
}

void damage(float* number, const std::string& action) {
    uint32_t bits;
    if (cudaDeviceSynchronize) cudaDeviceSynchronize(); // what is under way may still write the number
    copy(&bits, number);
    if (action == "flip") bits ^= 1u << 20;
    else bits = action == "nan" ? 0x7fc00000 : std::bit_cast<uint32_t>(1e6f);
    copy(number, &bits);
}

}  // namespace

void fault_hook(const char* point, int rank, int64_t step, float* numbers, size_t n) {
    for (const Fault& fault : faults) {
        if (!is_here(fault, point, rank, step)) continue;
        warn("LOCKSTEP_FAULT fires: %s at %s", fault.action.c_str(), point);
        if (fault.action == "kill") raise(SIGKILL);
        if (fault.action == "stop") raise(SIGSTOP);
        if (fault.action == "exit") _exit(int(fault.argument));
        if (fault.action == "sleep") sleep(unsigned(fault.argument));
        if (fault.action == "hold") hold();
        if (fault.action == "eio") die(kExitWrite, "write failed: Input/output error (LOCKSTEP_FAULT)");
        const bool damages = fault.action == "nan" || fault.action == "big" || fault.action == "flip";
        if (damages && n > 0) damage(numbers + size_t(fault.argument) % n, fault.action);
    }
}
