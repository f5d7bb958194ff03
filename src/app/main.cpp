// main.cpp -- reads the options, finds the ranks, chooses a backend and calls its train or command. Every error of the
// program ends here. Compiled once per program: -DGPU=gpu, -DSPEC=ref, or none of these.
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <new>
#include <sys/stat.h>
#include <unistd.h>
#include "src/app/run.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/tools.h"
#include "src/comm/supervisor.h"

// The functions of a backend that main calls.
struct Backend {
    bool gpu;
    const char* dtype;                                  // storage type of weights and activations
    int (*devices)();                                   // how many answer
    bool (*natural)();                                  // the device is fast with this type: --dtype auto takes it
    int (*train)(Options options, Comm* comm, Run run); // each returns an exit code
    int (*command)(Options options, Comm* comm);        // sample, chat or eval
};
#define DECLARE(ns) \
    namespace ns { \
    int device_count(); \
    bool storage_is_fast(); \
    int train(Options, Comm*, Run); \
    int command(Options, Comm*); \
    }
#define ROW(ns, gpu, dtype) {gpu, dtype, ns::device_count, ns::storage_is_fast, ns::train, ns::command}
DECLARE(cpu16)
DECLARE(cpu)
#ifdef GPU
DECLARE(GPU)
#endif
#ifdef SPEC
DECLARE(SPEC)
#endif

static const Backend backends[] = {                     // of this program, best first; the last is empty
#ifdef GPU
    ROW(GPU, true, "bf16"),
#endif
#ifdef SPEC
    ROW(SPEC, false, "fp32"),                           // before cpu, so that --dtype fp32 chooses it
#endif
    ROW(cpu16, false, "bf16"), ROW(cpu, false, "fp32"), {}};

// Takes the first backend that has a device and the storage type asked for, or one that the device is fast with.
static const Backend& choose_backend(Options* o) {
    for (const Backend* b = backends; b->train; b++) {
        if (o->device != "auto" && (o->device == "gpu") != b->gpu) continue;
        if (o->dtype == "auto" ? !b->natural() : o->dtype != b->dtype) continue;
        if (b->devices() == 0) continue;
        o->dtype = b->dtype;
        return *b;
    }
    const bool built = backends[0].gpu;
    die(kExitUsage, "--device %s --dtype %s: no GPU answers that has it; %s, or use --device cpu", o->device.c_str(),
        o->dtype.c_str(), built ? "see nvidia-smi" : "this program was built without CUDA: see ./configure");
}

// kExitWrite if a command's output is incomplete. (Training needs no terminal: its output is also in files.)
static void check_output() {
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
        die(kExitWrite, "standard output: not all could be written; is the disk full?");
}

// Opens a pipe or terminal again as non-blocking: output that nobody reads (Ctrl-S, a pager) must not stop a run. The
// shell's own descriptor still blocks.
static void unblock(int fd) {
    struct stat s;
    if (fstat(fd, &s) != 0 || !(S_ISFIFO(s.st_mode) || isatty(fd))) return;
    const int own = open(format("/proc/self/fd/%d", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY);
    if (own < 0) return;
    dup2(own, fd);
    close(own);
}

static int run(Options options, const World& world, Comm** comm) {
    const bool trains = options.command == "train";
    if (trains) signal(SIGUSR2, SIG_IGN);
    *comm = comm_create(world, options.timeout);
    if (trains) catch_signals(world.rank == 0);     // not before: while the ranks meet, a signal ends it
    Run run;
    Options saved;                                  // the storage type of the run decides the backend
    if (trains) run = find_run(&options, *comm);
    else if (options.dtype == "auto" && options.device != "gpu" && merge_options_of(options.paths[0], &saved))
        options.dtype = saved.dtype;
    if (trains && options.tensorboard && world.rank == 0) require_tool("tensorboard", "tensorboard");
    const Backend& backend = choose_backend(&options);
    if (options.reduce == "nccl" && !backend.gpu) die(kExitUsage, "--reduce nccl: needs GPUs; leave it out on a CPU");
    const int code = trains ? backend.train(options, *comm, run) : backend.command(options, *comm);
    if (!trains) check_output();
    comm_destroy(*comm);
    return code;
}

// Returns the ranks that the launcher's variables describe, or throws their error. Commands that need one process
// ignore the variables, with a warning: a shell may still have old ones.
static World world_for(const Options& options, const World& world, const Error& error) {
    const bool alone = options.command == "sample" || options.command == "chat";
    if (error.code && !alone && !options.dry_run) throw error;
    if (!error.code && (!alone || world.size == 1)) return world;
    warn("%s runs alone, without what the environment says: %s", alone ? options.command.c_str() : "--dry-run",
         error.code ? error.message.c_str() : world.says.c_str());
    return {};
}

// Becomes the supervisor, which starts this very program by its absolute path. If a build replaces that file during the
// run, ranks that are started again run the new program.
[[noreturn]] static void become_supervisor(const Options& options) {
    Arguments words = {format("--np=%d", options.np),
                       format("--max-restarts=%d", options.max_restarts)};
    if (options.elastic) words.push_back("--elastic");
    words.push_back(program_path());
    words.insert(words.end(), options.argv.begin(), options.argv.end());
    hand_over("np", require_tool("np", "launch"), words);
}

static int start(int argc, char** argv, World* world, Comm** comm) {
    Error no_world = {};
    try {
        *world = find_world([](const char* name) -> const char* { return std::getenv(name); });
    } catch (const Error& e) {
        no_world = e;
    }
    if (world->size > 1) set_error_rank(world->rank);
    int code = -1;
    Options options = parse_options(argc, argv, &code);
    if (code >= 0) {
        check_output();
        return code;
    }
    *world = world_for(options, *world, no_world);
    if (options.command == "train") {
        signal(SIGPIPE, SIG_IGN);           // a closed terminal or pipe must not end a run
        for (const int output : {STDOUT_FILENO, STDERR_FILENO}) unblock(output);
    }
    const bool is_started = world->launcher == "--np";
    if (is_started && follow_supervisor(&options.out_dir, &options.resume)) options.force = false;
    const bool supervises = options.is_given("np") && !is_started;
    if (supervises && world->size > 1)
        die(kExitUsage, "--np %d: %s (%s) says that a launcher has started the ranks; leave --np out, or unset them",
            options.np, world->says.c_str(), world->launcher.c_str());
    for (const char* option : {"max-restarts", "elastic"})
        if (!options.is_given("np") && options.is_given(option))
            die(kExitUsage, "--%s: has no effect without --np N, which restarts ranks", option);
    if (options.is_given("for")) {
        if (!options.dry_run || options.dtype == "fp32")
            die(kExitUsage, "--for: plans a run on GPUs, in bf16; give --dry-run with it, and no --dtype fp32");
        options.dtype = "bf16";
    }
    if (supervises) become_supervisor(options);
    return run(options, *world, comm);
}

// Exceptions before main and in other threads end here: most likely memory ran out.
[[gnu::constructor(101)]] static void before_all_tables() {
    std::set_terminate([] {
        static const char line[] = "train_gpt: error: out of memory, or an internal error\n";
        if (write(STDERR_FILENO, line, sizeof line - 1) >= 0) std::_Exit(kExitOther);
        std::abort();
    });
}

int main(int argc, char** argv) {
    int fd;                             // opens 0, 1 and 2 if they are closed: no file of the run may get these numbers
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= 2) {}
    close(fd);
    signal(SIGXFSZ, SIG_IGN);
    Comm* comm = nullptr;
    World world;
    Error error;
    try {
        return start(argc, argv, &world, &comm);
    } catch (const Error& e) {
        error = e;
    } catch (const std::bad_alloc&) {
        error = {kExitOther, "out of memory; try a smaller --batch-size with the same --total-batch-size"};
    } catch (const std::filesystem::filesystem_error& e) {
        error = {kExitOther, format("%s: %s", e.path1().c_str(), e.code().message().c_str())};
    } catch (const std::exception& e) {
        error = {kExitOther, format("internal error: %s", e.what())};
    }
    if (!comm) end_before_meeting(world, error);
    else if (!comm_abort(comm, error.code, error.message)) print_error(error);
    std::fflush(nullptr);
    std::_Exit(error.code);                 // no destructors: other threads may still use the objects
}
