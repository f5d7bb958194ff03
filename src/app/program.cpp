// program.cpp -- see program.h.
#include "src/app/program.h"
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <new>
#include <unistd.h>
#include "src/base/file.h"
#include "src/base/words.h"
#include "src/ddp/reductions/reduction.h"

Options read_command_line(CommandLine* parse, int argc, char** argv, Process* process) {
    try {
        process->world =
            find_world([](const char* name) -> const char* { return std::getenv(name); });
    } catch (const Error& e) {
        process->no_world = e;
    }
    if (process->world.size > 1) set_error_rank(process->world.rank);
    return parse(argc, argv);
}

bool starts_ranks(const Options& options, const Process& process) {
    return options.is_given("np") && process.world.launcher != "--np";
}

void take_place(const Options& options, const std::string& alone, Process* process) {
    World& world = process->world;
    const Error& error = process->no_world;
    if (error.code && alone.empty()) throw error;
    if (!alone.empty() && (error.code || world.size > 1)) {
        warn("%s runs alone, without what the environment says: %s", alone.c_str(),
             error.code ? error.message.c_str() : world.variables.c_str());
        world = {};
    }
    if (!starts_ranks(options, *process)) return;
    if (world.size > 1)
        die(kExitUsage,
            "--np %d: %s (%s) says that a launcher has started the ranks; leave --np out, or unset them",
            options.np, world.variables.c_str(), world.launcher.c_str());
    // The supervisor starts this program by its absolute path. If a build replaces that file during
    // the run, ranks that are restarted run the new program.
    Words words = {format("--np=%d", options.np),
                       format("--max-restarts=%d", options.max_restarts)};
    if (options.elastic) words.push_back("--elastic");
    words.push_back(program_path());
    words.insert(words.end(), options.argv.begin(), options.argv.end());
    hand_over("--np", require_tool("--np", "launch"), words);
}

size_t choose_backend(std::span<const Backend> backends, Options* o) {
    for (const Backend& b : backends) {
        if (o->device != "auto" && (o->device == "gpu") != b.gpu) continue;
        if (o->dtype == "auto" ? !b.storage_is_fast() : o->dtype != b.dtype) continue;
        if (b.devices() == 0) continue;
        o->dtype = b.dtype;
        return size_t(&b - backends.data());
    }
    const bool built = backends[0].gpu;
    die(kExitUsage, "--device %s --dtype %s: no GPU answers that has it; %s, or use --device cpu",
        o->device.c_str(), o->dtype.c_str(),
        built ? "see nvidia-smi" : "this program was built without CUDA: see ./configure");
}

void check_reduction(const Options& options, bool gpu) {
    const ReductionInfo& reduction = find_row(kReductions, options.reduce);
    if (!(gpu ? reduction.on_gpus : reduction.on_cpus))
        die(kExitUsage, "--reduce %s: needs %s; leave it out on a %s", reduction.name,
            gpu ? "CPUs" : "GPUs", gpu ? "GPU, or take --device cpu" : "CPU");
}

void check_output() {
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
        die(kExitWrite, "standard output: not all could be written; is the disk full?");
}

// Sets the terminate handler, for exceptions before main and in other threads. Most likely memory
// ran out.
[[gnu::constructor(101)]] static void before_all_tables() {
    std::set_terminate([] {
        static const char line[] = "train_gpt: error: out of memory, or an internal error\n";
        if (write(STDERR_FILENO, line, sizeof line - 1) >= 0) std::_Exit(kExitOther);
        std::abort();
    });
}

int run_program(int argc, char** argv, int (*start)(int argc, char** argv, Process* process)) {
    // Opens 0, 1 and 2 if they are closed, so that no file of the run gets them.
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= 2) {}
    close(fd);
    signal(SIGXFSZ, SIG_IGN);
    Process process;
    Error error;
    try {
        return start(argc, argv, &process);
    } catch (const Error& e) {
        error = e;
    } catch (const std::bad_alloc&) {
        error = {kExitOther,
                 "out of memory; try a smaller --batch-size with the same --total-batch-size"};
    } catch (const std::filesystem::filesystem_error& e) {
        error = {kExitOther, format("%s: %s", e.path1().c_str(), e.code().message().c_str())};
    } catch (const std::exception& e) {
        error = {kExitOther, format("internal error: %s", e.what())};
    }
    if (!process.comm) end_before_meeting(process.world, error);
    else if (!comm_abort(process.comm, error.code, error.message)) print_error(error);
    std::fflush(nullptr);
    // This runs no destructors, because other threads may still use the objects.
    std::_Exit(error.code);
}
