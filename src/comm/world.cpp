// world.cpp -- which rank is this? Launchers say so in the environment; nothing of theirs is linked or called.
//
// Traps: mpirun inside SLURM sets both families; a batch shell of SLURM is no step and has no SLURM_STEP_ variables;
// RANK left exported in a shell contradicts mpirun; a size without a rank would make N lonely rank 0s.
#include <algorithm>
#include <unistd.h>
#include "src/base/common.h"
#include "src/comm/comm.h"

namespace {

using Get = std::function<const char*(const char*)>;

// Families of variables, in order of precedence. job: variables that are equal on all ranks and tell jobs apart.
struct Launcher { const char *name, *rank, *size, *local_size, *job[2]; };
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};
constexpr const Launcher *kTorchrun = &kLaunchers[0], *kSrun = std::end(kLaunchers) - 1;
constexpr int kMaxRanks = 1 << 16;

std::string text(const Get& get, const char* name) {
    const char* value = get(name);
    return value ? value : "";
}

// Returns the variable's number, or `absent` if it is unset or empty. Error 2: it is none from low to high.
int number(const Get& get, const char* name, int low, int high, int absent) {
    const std::string value = text(get, name);
    if (value.empty()) return absent;
    if (int n; parse_whole(value, &n) && n >= low && n <= high) return n;
    die(kExitUsage, "launcher: %s: got \"%s\", want a number from %d to %d", name, value.c_str(), low, high);
}

// "rack[2-3]n[01-04,7],login" -> "rack2n01"
std::string first_host(std::string hosts) {
    for (size_t open; (open = hosts.find('[')) < hosts.find(',');) {
        const size_t close = std::min(hosts.find(']', open), hosts.size() - 1);
        const size_t end = std::min(hosts.find_first_of(",-", open), close);
        hosts.replace(open, close + 1 - open, hosts.substr(open + 1, end - open - 1));
    }
    return hosts.substr(0, hosts.find(','));
}

// A name that all ranks of a job have and, where the launcher lets us, no other job.
std::string job_name(const Get& get, const Launcher& launcher) {
    if (get("LOCKSTEP_JOB")) return text(get, "LOCKSTEP_JOB");
    std::string job;
    for (const char* name : {launcher.job[0], launcher.job[1], "MASTER_ADDR", "MASTER_PORT"})
        if (get(name)) job += " " + text(get, name);
    if (job.empty() && &launcher != kTorchrun) job = format(" session %d", int(getsid(0)));
    return launcher.name + job;
}

// Returns the address of rank 0; empty where all ranks are on this host.
std::string find_master(const Get& get, const Launcher& launcher, int size) {
    const int local = number(get, launcher.local_size, 1, size, 0);
    const int nodes = &launcher == kSrun ? number(get, "SLURM_STEP_NUM_NODES", 1, kMaxRanks, 0) : 0;
    std::string address = text(get, "MASTER_ADDR");
    if (local == size || nodes == 1) return "";
    if (local == 0 && nodes == 0 && (address.empty() || is_loopback(address))) return "";       // nobody says how many
    if (address.empty() && nodes > 1) address = first_host(text(get, "SLURM_STEP_NODELIST"));
    if (address.empty())
        die(kExitUsage, "launcher: %s: got %d ranks, %d of them on this host, and no address of rank 0; set "
            "MASTER_ADDR to rank 0's host on all ranks", launcher.name, size, local);
    return address;
}

}  // namespace

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

World find_world(const Get& get) {
    World world;
    const Launcher *chosen = nullptr, *lonely = nullptr;        // lonely: a size without a rank
    // Both launchers set RANK themselves, also inside an mpirun job that counts otherwise.
    const bool innermost = get("TORCHELASTIC_RUN_ID") || get("LOCKSTEP_TRY");
    for (const Launcher& l : kLaunchers) {
        const int size = number(get, l.size, 1, kMaxRanks, 0);
        if (size == 0 && &l == kTorchrun && !text(get, l.rank).empty())
            die(kExitUsage, "launcher: %s is set, %s is not; set both or none", l.rank, l.size);
        const int rank = size > 0 ? number(get, l.rank, 0, size - 1, -1) : -1;
        if (size > 1 && rank < 0 && !lonely) lonely = &l;
        if (rank < 0) continue;
        if (chosen == kTorchrun && &l != kSrun && !innermost && (rank != world.rank || size != world.size))
            die(kExitUsage, "launchers disagree: %s=%d %s=%d, but %s=%d %s=%d; unset the pair that is not meant",
                chosen->rank, world.rank, chosen->size, world.size, l.rank, rank, l.size, size);
        if (chosen) continue;
        chosen = &l;
        world.rank = rank;
        world.size = size;
    }
    // Under srun a WORLD_SIZE that the batch script exported does no harm.
    if (lonely && (!chosen || world.size == 1))
        die(kExitUsage, "launcher: %s is set, %s is not; start the program with a launcher, or unset %s", lonely->size,
            lonely->rank, lonely->size);
    if (!chosen) return world;
    world.launcher = chosen == kTorchrun && get("LOCKSTEP_TRY") ? "--np" : chosen->name;
    if (world.size == 1) return world;
    // srun cleans up by itself, and a shell into which RANK was typed may leave before the job does.
    world.dies_with_parent = chosen != kSrun && (chosen != kTorchrun || innermost);
    world.job = job_name(get, *chosen);
    world.master_addr = find_master(get, *chosen, world.size);
    world.master_port = number(get, "MASTER_PORT", 0, 65535, 0);
    if (text(get, "TORCHELASTIC_USE_AGENT_STORE") == "True") world.master_port = 0;     // torchrun itself listens there
    return world;
}
