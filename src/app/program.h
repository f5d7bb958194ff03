// program.h -- what the programs train_gpt and lm share: how a process starts, which ranks it belongs to, which backend
// it chooses, and how it ends. run_program prints every error.
#pragma once
#include <span>
#include <string>
#include "src/base/common.h"
#include "src/comm/comm.h"
#include "src/options/options.h"

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
    bool (*storage_is_fast)();          // whether the device is fast with this type, so that --dtype auto takes it
};

// The main function of a program: calls start and returns its exit code. If start throws, this prints the error here or
// on rank 0, tells the other ranks, and ends the process with the error's code.
int run_program(int argc, char** argv, int (*start)(int argc, char** argv, Process* process));

// Finds out which rank this process is, for errors to name it, and then reads the command line.
using CommandLine = Options(int argc, const char* const* argv);
Options read_command_line(CommandLine* parse, int argc, char** argv, Process* process);
// Returns whether --np asks this process to start ranks, rather than to be one.
bool starts_ranks(const Options& options, const Process& process);
// Takes the rank that the launcher's variables give this process, or throws the error in them. With --np the process
// becomes the supervisor, which starts ranks of this program. alone: "", or what needs a single process, "--dry-run";
// that process warns and ignores the variables, because a shell may still have old ones.
void take_place(const Options& options, const std::string& alone, Process* process);
// Chooses the first of `backends` that fits --device and --dtype and has a device; with --dtype auto the device must be
// fast with the type. Sets options->dtype and returns the backend's index. kExitUsage if none fits.
size_t choose_backend(std::span<const Backend> backends, Options* options);
// Flushes stdout. Throws kExitWrite if not all was written. Training does not need it: its output is also in files.
void check_output();
