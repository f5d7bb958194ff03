// world.cpp -- finds out which rank this process is, from the launcher's environment
// variables, and what else the launcher wants: how many threads, and which run to go on with.
// No code of a launcher is linked or called.
//
// Pitfalls: under mpirun inside SLURM the variables of both are set; a batch shell of SLURM is
// no step and has no SLURM_STEP_ variables; a RANK left exported in a shell contradicts mpirun;
// with a size but no rank, or a rank but no size, each of N processes would take itself for rank
// 0; torchrun's agents count restarts independently of each other; MASTER_ADDR may be a name on
// one rank and a number on another.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/cpus.h"
#include "src/comm/rendezvous.h"

namespace {

using Get = std::function<const char*(const char*)>;

// The names of each launcher's variables, in order of precedence. "": the launcher has no such
// variable.
struct Launcher {
    const char *name, *rank, *size;
    const char *local_size, *hosts;     // ranks on this host; hosts of the job
    const char* job[3];                 // values are equal on all ranks of a job, and
                                        // different for two jobs
    bool starter;                       // two jobs on a host may have equal `job` values; their
                                        // starters differ
};
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "", {"TORCHELASTIC_RUN_ID", "", ""}, false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", ""}, false},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_NODES",
     {"I_MPI_HYDRA_UUID", "SLURM_JOB_ID", "SLURM_STEP_ID"}, true},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", "SLURM_STEP_NUM_NODES",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", ""}, false},
};
constexpr const Launcher *kTorchrun = &kLaunchers[0], *kSrun = std::end(kLaunchers) - 1;
constexpr int kMaxRanks = 1 << 16;

std::string text(const Get& get, const char* name) {
    const char* value = get(name);
    return value ? value : "";
}

// Returns the variable's value, or `absent` if it is unset or empty. kExitUsage: it is no number
// from low to high.
int number(const Get& get, const char* name, int low, int high, int absent) {
    const std::string value = text(get, name);
    if (value.empty()) return absent;
    if (int n; parse_whole(value, &n) && n >= low && n <= high) return n;
    die(kExitUsage, "launcher: %s: got \"%s\", want a number from %d to %d", name, value.c_str(), low, high);
}

// Returns the first host of a SLURM host list: "rack[2-3]n[01-04,7],login" -> "rack2n01".
std::string first_host(std::string hosts) {
    for (size_t open; (open = hosts.find('[')) < hosts.find(',');) {
        const size_t close = std::min(hosts.find(']', open), hosts.size() - 1);
        const size_t end = std::min(hosts.find_first_of(",-", open), close);
        hosts.replace(open, close + 1 - open, hosts.substr(open + 1, end - open - 1));
    }
    return hosts.substr(0, hosts.find(','));
}

// Returns the pid of the process that started the ranks of this host: the nearest ancestor whose
// environment lacks `variable`, such as "RANK=1". The environment of a script between that process
// and this one has it. 0: not visible.
int find_starter(const std::string& variable) {
    int pid = getppid();
    for (int parent = 0; pid > 0; pid = std::exchange(parent, 0)) {
        const std::string proc = format("/proc/%d/", pid), stat = read_kernel_file(proc + "stat");
        const std::string environment = '\0' + read_kernel_file(proc + "environ");
        if (environment.find('\0' + variable + '\0') == environment.npos) return pid;
        // The name in () may be any text.
        std::sscanf(stat.c_str() + stat.rfind(')'), ") %*c %d", &parent);
    }
    return 0;
}

// Returns a name that is equal on all ranks of a job and, if the launcher's variables allow
// that, different for any other job.
std::string job_name(const Get& get, const Launcher& launcher, int starter, bool one_host) {
    if (get("LOCKSTEP_JOB")) return text(get, "LOCKSTEP_JOB");
    std::string job = launcher.name;
    for (const char* name : {launcher.job[0], launcher.job[1], launcher.job[2], "MASTER_PORT"})
        if (get(name)) job += " " + text(get, name);
    if (launcher.starter && one_host) job += format(" %d", starter);
    return job;
}

// Sets master_addr to the address of rank 0, or to "" if all ranks are on this host. If no variable
// says how many hosts there are, that may be an assumption. In the body, `hosts` is 0 if unknown,
// and 2 stands for any number above 1.
void find_master(const Get& get, const Launcher& launcher, World* world) {
    const int local = number(get, launcher.local_size, 1, world->size, 0);
    const int hosts = local == world->size ? 1
                      : local > 0          ? 2
                                           : number(get, launcher.hosts, 1, kMaxRanks, 0);
    const bool secret = get("LOCKSTEP_SECRET") || get("LOCKSTEP_SECRET_FILE");
    std::string address = text(get, "MASTER_ADDR");
    // If nothing says how many hosts there are, MASTER_ADDR=localhost means that all ranks are on
    // this one. With a secret it does not, because only several hosts need one: some Kubernetes
    // operators set "localhost" on rank 0 and rank 0's name on the others.
    const bool assumed = hosts == 0 && (address.empty() || (is_loopback(address) && !secret));
    if (assumed) world->assumed = "MASTER_ADDR is " + (address.empty() ? "not set" : address);
    if (hosts == 1 || assumed) return;
    if (address.empty() && hosts > 1 && launcher.hosts[0])
        address = first_host(text(get, "SLURM_STEP_NODELIST"));
    if (address.empty())
        die(kExitUsage, "launcher: %s: the ranks are on several hosts, and there is no address of rank 0; set "
            "MASTER_ADDR to rank 0's host on all ranks", world->variables.c_str());
    world->master_addr = address;
}

// Refuses variables that say that there are several ranks, and not which one this is.
void refuse_incomplete(const Get& get) {
    for (const Launcher& l : kLaunchers)
        if (const int size = number(get, l.size, 1, kMaxRanks, 0); size > 1)
            die(kExitUsage, "launcher: %s=%d is set, %s is not; start the program with a launcher, "
                "or unset %s", l.size, size, l.rank, l.size);
    // Also by launchers that the table lacks.
    for (const char* rank : {"RANK", "PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE", "JSM_NAMESPACE_RANK",
                             "MV2_COMM_WORLD_RANK", "HOROVOD_RANK", "FLUX_TASK_RANK"})
        if (!text(get, rank).empty())
            die(kExitUsage, "launcher: %s is set, WORLD_SIZE is not; set RANK and WORLD_SIZE on each rank, or unset %s",
                rank, rank);
}

}  // namespace

bool is_loopback(const std::string& host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
}

World find_world(const Get& get) {
    World world;
    const Launcher* chosen = nullptr;
    // torchrun and --np set RANK themselves, even inside an mpirun job whose ranks are numbered
    // otherwise.
    const bool innermost = get("TORCHELASTIC_RUN_ID") || get("LOCKSTEP_TRY");
    for (const Launcher& l : kLaunchers) {
        const int size = number(get, l.size, 1, kMaxRanks, 0);
        const int rank = size > 0 ? number(get, l.rank, 0, size - 1, -1) : -1;
        if (rank < 0) continue;
        const std::string variables = format("%s=%d %s=%d", l.rank, rank, l.size, size);
        if (chosen == kTorchrun && &l != kSrun && !innermost && (rank != world.rank || size != world.size))
            die(kExitUsage, "launchers disagree: %s, but %s; unset the pair that is not meant", world.variables.c_str(),
                variables.c_str());
        if (chosen) continue;
        chosen = &l;
        world.rank = rank;
        world.size = size;
        world.variables = variables;
    }
    if (!chosen) refuse_incomplete(get);
    if (!chosen) return world;
    world.launcher = chosen == kTorchrun && get("LOCKSTEP_TRY") ? "--np" : chosen->name;
    if (world.size == 1) return world;
    // srun cleans up by itself, and a shell into which RANK was typed may leave before the job
    // does.
    world.dies_with_parent = chosen != kSrun && (chosen != kTorchrun || innermost);
    world.starter = find_starter(chosen->rank + ("=" + text(get, chosen->rank)));
    find_master(get, *chosen, &world);
    world.job = job_name(get, *chosen, world.starter, world.master_addr.empty());
    world.master_port = number(get, "MASTER_PORT", 0, 65535, 0);
    // torchrun itself listens there.
    if (text(get, "TORCHELASTIC_USE_AGENT_STORE") == "True") world.master_port = 0;
    return world;
}

bool follow_supervisor(std::string* out_dir, std::string* resume) {
    const char* const folder = std::getenv("LOCKSTEP_OUT_DIR");
    if (!folder) return false;
    *out_dir = folder;
    *resume = "auto";
    return true;
}

void give_folder(int folder) {
    const char* const fd = std::getenv("LOCKSTEP_SUPERVISOR_FD");
    Gift gift;
    cmsghdr* const head = CMSG_FIRSTHDR(&gift.message);
    head->cmsg_len = CMSG_LEN(sizeof folder);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    std::memcpy(CMSG_DATA(head), &folder, sizeof folder);
    if (fd && sendmsg(std::atoi(fd), &gift.message, MSG_DONTWAIT) < 0)
        warn("--np: cannot tell the supervisor where this run saves: %s", std::strerror(errno));
}

int rank_threads(Comm* comm, int wanted) {
    check_threads(wanted);
    const cpu_set_t mine = affinity_of(0);
    const std::vector<cpu_set_t> all = comm_gather(comm, mine);
    const auto first = all.begin() + comm->host * comm->local_size;
    const std::vector<cpu_set_t> masks(first, first + comm->local_size);
    cpu_set_t together = mine;
    for (const cpu_set_t& mask : masks) CPU_OR(&together, &together, &mask);
    const double quota = cgroup_cpus();
    const int usable = cpu_share({together}, 0, quota), sum = wanted * comm->local_size;
    const int theirs = comm->launcher == "Open MPI" ? cpu_share({affinity_of(getppid())}, 0, quota) : 0;
    if (comm->local_rank == 0 && usable < theirs)
        warn("mpirun ties its ranks to %d of this host's %d CPUs; all of them: mpirun --bind-to none", usable, theirs);
    if (comm->local_rank == 0 && sum > usable)
        warn("--threads %d: %d threads on %d CPUs are slower than %d; leave it out", wanted, sum, usable, usable);
    const int share = cpu_share(masks, comm->local_rank, quota);
    // Its ranks share a Slurm task.
    const bool started = comm->launcher == "--np" || comm->launcher == "torchrun";
    const int ranks = !started ? 1 : std::getenv("SLURM_STEP_ID") ? comm->local_size : 0;
    const int own = wanted ? wanted : threads_by_environment(share, ranks);
    if (comm->local_rank == 0 && !wanted && own < share)
        warn("threads: %d per rank by OMP_NUM_THREADS or SLURM_CPUS_PER_TASK; --threads %d has all CPUs", own, share);
    return own;
}
