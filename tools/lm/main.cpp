// main.cpp -- how a command starts: reads the options, takes its place among the ranks, chooses a backend and calls the
// backend's command. train_gpt becomes this program for sample, chat, eval and --help.
#include <map>
#include <sys/prctl.h>
#include "src/app/program.h"
#include "src/base/file.h"
#include "tools/lm/commands.h"
#include "src/run/run.h"

using Commands = std::map<std::string, int (*)(Options, Comm*)>;
#define DECLARE(ns, ...) namespace ns { int sample(Options, Comm*), chat(Options, Comm*), eval(Options, Comm*); }
BACKENDS(DECLARE)
#define COMMANDS(ns, ...) {{"sample", ns::sample}, {"chat", ns::chat}, {"eval", ns::eval}},
static const Commands commands[] = {BACKENDS(COMMANDS)};       // of each backend

// A command computes in the storage type of the run that it reads, unless another one is asked for.
static void take_dtype(Options* options) {
    Options saved;
    if (options->dtype != "auto" || options->device == "gpu") return;
    if (merge_options_of(options->paths[0], &saved)) options->dtype = saved.dtype;
}

static int show(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    check_output();
    return kExitDone;
}

static int start(int argc, char** argv, Process* process) {
    Options options = read_command_line(parse_command, argc, argv, process);
    if (options.command == "help") return show(help_text(options, base_name(options.program).starts_with("lm")));
    if (options.command == "version") return show(format("lm %s\n", version_text()));
    take_place(options, options.command == "eval" ? "" : options.command, process);
    process->comm = comm_create(process->world, options.timeout);
    take_dtype(&options);
    const size_t backend = choose_backend(backends(), &options);
    const int code = commands[backend].at(options.command)(options, process->comm);
    check_output();
    comm_destroy(process->comm);
    return code;
}

// Errors, and ps, name the program that was called: train_gpt, if that has become this program.
int main(int argc, char** argv) {
    const std::string called = argc > 0 ? base_name(argv[0]) : "lm";
    prctl(PR_SET_NAME, called.c_str());
    if (called.starts_with("lm")) set_program("lm");
    return run_program(argc, argv, start);
}
