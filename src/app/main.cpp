// main.cpp -- how a run starts: reads the options, takes its place among the ranks, finds the run's
// folder, chooses a backend and calls its train(). For the commands sample, chat and eval, and for
// --help, it becomes the program lm.
#include <csignal>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "src/app/program.h"
#include "src/base/file.h"
#include "src/base/words.h"
#include "src/run/run.h"

#define DECLARE(ns, ...) namespace ns { int train(Options, Comm*, Run); }
BACKENDS(DECLARE)
#define TRAIN(ns, ...) ns::train,
// One per backend; returns an exit code.
static int (*const train[])(Options, Comm*, Run) = {BACKENDS(TRAIN)};

// Returns the tool with this program's backends: lm_ref for train_gpt_ref, or lm where there is
// none of that name.
static std::string find_tool(const std::string& what, const std::string& tool) {
    const std::string own = base_name(program_path()), first = "train_gpt";
    const std::string same = tool + (own.starts_with(first) ? own.substr(first.size()) : "");
    return require_tool(what, file_exists(tool_path(same)) ? same : tool);
}

// Refuses options that would have no effect.
static void check_start(const Options& options) {
    for (const char* option : {"max-restarts", "elastic"})
        if (!options.is_given("np") && options.is_given(option))
            die(kExitUsage, "--%s: has no effect without --np N, which restarts ranks", option);
}

// Makes sure that a closed terminal or pipe does not end the run, and that one which nobody reads
// (Ctrl-S, a pager) does not block it: opens it again as non-blocking. The shell's own descriptor
// still blocks.
static void free_from_terminal() {
    signal(SIGPIPE, SIG_IGN);
    for (const int output : {STDOUT_FILENO, STDERR_FILENO}) {
        struct stat s;
        if (fstat(output, &s) != 0 || !(S_ISFIFO(s.st_mode) || isatty(output))) continue;
        const Descriptor own(open(format("/proc/self/fd/%d", output).c_str(),
                                  O_WRONLY | O_NONBLOCK | O_NOCTTY));
        if (own.fd >= 0) dup2(own.fd, output);
    }
}

static int start(int argc, char** argv, Process* process) {
    Options options = read_command_line(parse_options, argc, argv, process);
    if (options.command == "version") {
        std::printf("train_gpt %s\n", version_text());
        check_output();
        return kExitDone;
    }
    if (options.command != "train") {
        // With --np this process becomes the supervisor, whose ranks become lm. ps shows the name
        // that the user called.
        const std::string lm = find_tool(options.command, "lm");
        if (options.command != "help" && starts_ranks(options, *process))
            take_place(options, "", process);
        hand_over(options.command, lm, options.argv, options.program);
    }
    if (options.dry_run || options.is_given("for"))
        hand_over("--dry-run", find_tool("--dry-run", "plan"), options.argv, options.program);
    check_start(options);
    free_from_terminal();
    take_place(options, "", process);
    const World& world = process->world;
    if (world.launcher == "--np" && follow_supervisor(&options.out_dir, &options.resume))
        options.force = false;
    signal(SIGUSR2, SIG_IGN);
    Comm* const comm = process->comm = comm_create(world, options.timeout);
    // Until the ranks have met, a signal must end the process.
    catch_signals(world.rank == 0);
    const Run run = find_run(&options, comm);
    const size_t backend = choose_backend(backends(), &options);      // by --device and --dtype
    check_reduction(options, backends()[backend].gpu);
    const int code = train[backend](options, comm, run);
    comm_destroy(comm);
    return code;
}

int main(int argc, char** argv) { return run_program(argc, argv, start); }
