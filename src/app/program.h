// program.h -- what train_gpt shares with the tools: how a process starts and ends, which ranks it
// belongs to, which backend it chooses, and the model that it starts from. Each section names the
// file with its functions.
#pragma once
#include <span>
#include <string>
#include "models/config.h"
#include "src/base/common.h"
#include "src/comm/comm.h"
#include "src/data/data.h"
#include "src/options/options.h"

// ---- how a process starts and ends: program.cpp. run_program prints every error.

// What run_program needs to know about this process to report an error.
struct Process {
    World world;                        // the ranks that it belongs to
    Error no_world = {};                // code 0, or why the launcher's variables describe no ranks
    Comm* comm = nullptr;               // null until the ranks have met
};

// What choose_backend knows about a backend.
struct Backend {
    bool gpu;
    const char* dtype;                  // storage type of weights and activations
    int (*devices)();                   // how many devices respond
    // Whether the device is fast with this type, so that --dtype auto takes it.
    bool (*storage_is_fast)();
};

// The main function of a program: calls start and returns its exit code. If start throws, this
// prints the error here or on rank 0, tells the other ranks, and ends the process with the error's
// code.
int run_program(int argc, char** argv, int (*start)(int argc, char** argv, Process* process));

// Finds out which rank this process is, for errors to name it, and then reads the command line.
using CommandLine = Options(int argc, const char* const* argv);
Options read_command_line(CommandLine* parse, int argc, char** argv, Process* process);
// Returns whether --np asks this process to start ranks, rather than to be one.
bool starts_ranks(const Options& options, const Process& process);
// Takes the rank that the launcher's variables give this process, or throws the error in them. With
// --np the process becomes the supervisor, which starts ranks of this program. alone: "", or what
// needs a single process, "--dry-run"; that process warns and ignores the variables, because a
// shell may still have old ones.
void take_place(const Options& options, const std::string& alone, Process* process);
// Chooses the first of `backends` that fits --device and --dtype and has a device; with --dtype
// auto the device must be fast with the type. Sets options->dtype and returns the backend's index.
// kExitUsage if none fits.
size_t choose_backend(std::span<const Backend> backends, Options* options);
// Refuses a reduction that cannot run on the backend. kExitUsage.
void check_reduction(const Options& options, bool gpu);
// Flushes stdout. Throws kExitWrite if not all was written. Training does not need it: its output
// is also in files.
void check_output();

// ---- the backends of a program
//
// Only main files call backends(). They are compiled once per program, with -DGPU=gpu, -DSPEC=ref
// or neither. So it is a static function: where it is not called, it refers to no backend.

// BACKENDS(X) is X(namespace, whether it runs on a GPU, storage type) for each backend, best first.
#ifdef GPU
#define GPU_BACKEND(X) X(GPU, true, "bf16")
#else
#define GPU_BACKEND(X)
#endif
#ifdef SPEC
// Before cpu, so that --dtype fp32 chooses it.
#define SPEC_BACKEND(X) X(SPEC, false, "fp32")
#else
#define SPEC_BACKEND(X)
#endif
#define BACKENDS(X) GPU_BACKEND(X) SPEC_BACKEND(X) X(cpu16, false, "bf16") X(cpu, false, "fp32")

#define DECLARE(ns, gpu, dtype) \
    namespace ns { \
    int device_count(); \
    bool storage_is_fast(); \
    }
BACKENDS(DECLARE)
#undef DECLARE

static inline std::span<const Backend> backends() {
#define ROW(ns, gpu, dtype) {gpu, dtype, ns::device_count, ns::storage_is_fast},
    static const Backend all[] = {BACKENDS(ROW)};
#undef ROW
    return all;
}

// ---- a model to start from: what its folder or file says, and its weights: init.cpp

struct Init {
    // The folder of the whole model, or the path of a model in one file. "": random weights.
    std::string folder = "";
    // The folder with its weights; of a file the one that build/import made.
    std::string weights = "";
    // The folder with adapters, or `folder`; it has state.json, if a run wrote it.
    std::string saved = "";
    ModelConfig config = {};
    ModelTexts texts = {};              // texts.config is config.text
    uint32_t crc = 0;                   // CRC-32C of the files of weights, if it was asked for
    // What build/import says, with the places of all tensors in files.
    std::string answer = "";
    bool adapted = false;               // load_init adds the adapters of `answer` to the weights
    bool first = false;                 // a run begins with its weights
};

// Asks build/import for a run, checkpoint, Hugging Face folder, PEFT folder or model in one file.
// Its errors are thrown here. comm: the ranks that need it together, of which rank 0 reads it;
// null: one process. crc: sets Init::crc.
Init init_of_path(const std::string& path, Comm* comm = nullptr, bool crc = false);
// Fills arena.n floats with the weights of `init`, of a PEFT folder the sum. Of a longer position
// table it takes the first rows. Rows of tokens that `init` does not have, and of the tokens
// `untrained`, get the mean of the others.
void load_init(float* weights, const Arena& arena, const Init& init,
               const std::vector<int>& untrained = {});
