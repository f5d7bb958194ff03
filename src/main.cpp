// main.cpp -- options, ranks, one backend, one call. Every error of the program ends here.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <new>
#include <sys/stat.h>
#include <unistd.h>
#include "backends.h"
#include "common.h"
#include "fault.h"
#include "file.h"
#include "launch.h"
#include "run.h"

// --device auto takes the first backend of the table that has a device and the storage type asked for, or one that the device is
// fast with; the table is best first.
static const Backend& choose_backend(Options* o) {
    Options& options = *o;
    std::string have;
    const bool asked = options.dtype != "auto";                     // typed, or saved by the run that goes on
    for (const Backend* b = backends; b->name; b++) {
        const bool fits = (options.device == "auto" || (options.device == "gpu") == b->gpu) && (asked ? options.dtype == b->dtype : b->natural());
        if (fits && b->devices() > 0) {
            options.dtype = b->dtype;
            return *b;
        }
        if (fits && options.device == "gpu") die(kExitUsage, "--device gpu: no GPU answers; see nvidia-smi, or use --device cpu");
        have += std::string(have.empty() ? "" : ", ") + (b->gpu ? "gpu" : "cpu") + " " + b->dtype;
    }
    die(kExitUsage, "--device %s%s%s: not in this build, which has: %s%s", options.device.c_str(), asked ? " --dtype " : "", asked ? options.dtype.c_str() : "",
        have.c_str(), options.device == "gpu" ? "; a build with nvcc has a GPU's too: ./configure && ninja" : "");
}

// What a run is sampled and evaluated with, unless told otherwise: the storage type it was trained with. auto: the folder is no run's.
static std::string dtype_of_run(const std::string& folder) {
    Options saved;
    const std::string run = run_of(folder), config = path_join(run, "config.json");
    if (!run.empty() && file_exists(config)) options_merge_saved(&saved, read_file(config), config);
    return saved.dtype;
}

// For a command whose result is what it prints. (A run whose terminal is gone goes on, and has its files.)
static void check_output() {
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) die(kExitWrite, "standard output: not all could be written; is the disk full?");
}

// Output that nobody reads (Ctrl-S, a pager) must not stop a run, its supervisor least of all. The pipe or terminal is opened once more,
// so that the shell's own file stays a blocking one.
static void unblock(int fd) {
    struct stat s;
    if (fstat(fd, &s) != 0 || !(S_ISFIFO(s.st_mode) || isatty(fd))) return;
    const int own = open(format("/proc/self/fd/%d", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY);
    if (own >= 0) dup2(own, fd), close(own);
}

static int run(Options options, const World& world, Comm** comm) {
    if (options.command != "train" && world.size > 1) die(kExitUsage, "%s runs on one rank, not on %d; start it without a launcher", options.command.c_str(), world.size);
    if (options.command == "train") signal(SIGUSR2, SIG_IGN);
    *comm = comm_create(world, options.timeout);
    if (options.command == "train") catch_signals(world.rank == 0);       // while the ranks meet, a request to stop ends the process
    Run run;
    if (options.command == "train" && !options.selftest) run = find_run(&options, *comm);       // its storage type decides the backend
    if (options.command != "train" && options.dtype == "auto" && options.device != "gpu") options.dtype = dtype_of_run(options.paths[0]);
    const Backend& backend = choose_backend(&options);
    if (options.reduce == "nccl" && !backend.gpu) die(kExitUsage, "--reduce nccl: needs GPUs; leave it out on a CPU");
    const int code = options.selftest ? backend.selftest(options, *comm) : options.command == "sample" ? backend.sample(options, *comm) : options.command == "eval" ? backend.eval(options, *comm)
                                                 : backend.train(options, *comm, run);
    if (options.command != "train") check_output();
    comm_destroy(*comm);
    return code;
}

int main(int argc, char** argv) {
    int fd;                             // descriptors 0 to 2 are taken, or a closed one would become a file of the run
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= 2) {}
    close(fd);
    signal(SIGXFSZ, SIG_IGN);
    if (argc > 0 && argv[0][0]) set_program_path(argv[0]);
    Comm* comm = nullptr;
    int rank = 0;
    Error error;
    try {
        int exit_now = -1;
        const World world = find_world([](const char* name) -> const char* { return std::getenv(name); });
        rank = world.rank;
        if (world.size > 1) set_error_rank(rank);
        Options options = parse_options(argc, argv, &exit_now);
        if (exit_now >= 0) {
            check_output();
            return exit_now;
        }
        if (options.command == "train") {
            signal(SIGPIPE, SIG_IGN);   // a closed terminal or pipe must not end a run
            for (const int output : {STDOUT_FILENO, STDERR_FILENO}) unblock(output);
            check_faults();
        }
        if (world.launcher == "--np") {
            follow_supervisor(&options);
            return run(options, world, &comm);
        }
        const bool supervised = options.is_given("np");
        if (supervised && world.size > 1) die(kExitUsage, "--np %d under %s: the launcher has already started %d ranks; leave --np out", options.np, world.launcher.c_str(), world.size);
        for (const char* of_supervisor : {"max-restarts", "elastic"})
            if (!supervised && options.is_given(of_supervisor)) die(kExitUsage, "--%s: has no effect without --np, which restarts ranks; give --np N, or leave it out", of_supervisor);
        if (supervised) return launch_ranks(options.np, options.max_restarts, options.elastic, options.argv);
        return run(options, world, &comm);
    } catch (const Error& e) {
        error = e;
    } catch (const std::bad_alloc&) {
        error = {kExitOther, "out of memory; try a smaller --batch-size with the same --total-batch-size"};
    } catch (const std::exception& e) {
        error = {kExitOther, format("internal error: %s", e.what())};
    }
    // What is wrong with the command line is wrong on every rank: one says it.
    const bool said = comm ? comm_abort(comm, error.code, error.message) : rank > 0 && error.code == kExitUsage;
    if (!said) print_error(error);
    std::fflush(nullptr);
    std::_Exit(error.code);             // other threads may still be at work: no destructors under their feet
}
