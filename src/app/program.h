// program.h -- what the programs train_gpt and lm share: how a process of theirs starts, which ranks it belongs to,
// which backend it chooses, and how it ends. Every error of a program ends here.
#pragma once
#include <span>
#include <string>
#include "src/base/common.h"
#include "src/comm/comm.h"
#include "src/options/options.h"

// A process of the program: what an error at its end has to know.
struct Process {
    World world;                        // the ranks that it belongs to
    Error no_world = {};                // code 0, or why the launcher's variables describe no ranks
    Comm* comm = nullptr;               // null until the ranks have met
};

// What a backend is chosen by.
struct Backend {
    bool gpu;
    const char* dtype;                  // storage type of weights and activations
    int (*devices)();                   // how many answer
    bool (*storage_is_fast)();          // the device is fast with this type: --dtype auto takes it
};

// The main function of a program: calls start and returns its exit code. An error ends the process here, with a line
// on stderr or a message to the other ranks.
int run_program(int argc, char** argv, int (*start)(int argc, char** argv, Process* process));

// Finds out which rank this process is, so that errors say it, and reads the command line. program: "train_gpt" or
// "lm". Returns -1, or the exit code if only --help or --version was asked for.
int read_command_line(const char* program, int argc, char** argv, Process* process, Options* options);
// Returns whether --np asks this process to start ranks, rather than to be one.
bool starts_ranks(const Options& options, const Process& process);
// Takes the place among the ranks that the launcher's variables describe, or throws their error. alone: what needs one
// process, and ignores the variables with a warning, as a shell may still have old ones; "": nothing. With --np the
// process becomes the supervisor, which starts ranks of this program.
void take_place(const Options& options, const std::string& alone, Process* process);
// Returns the number of the first backend that has a device and the storage type asked for, or one that the device is
// fast with, and sets options->dtype. backends: best first.
size_t choose_backend(std::span<const Backend> backends, Options* options);
// Throws kExitWrite if what was printed is incomplete. (Training needs no terminal: its output is also in files.)
void check_output();
