// world.cpp -- which rank is this? Launchers say so in the environment; nothing of theirs is linked or called.
//
// Traps: a batch shell of SLURM has SLURM_PROCID=0 and SLURM_NTASKS=N without being a step; mpirun inside SLURM sets both families;
// RANK left exported in a shell contradicts mpirun; a size without a rank would make N lonely rank 0s.
#include <cstring>
#include <unistd.h>
#include "comm.h"
#include "common.h"

namespace {

using Get = std::function<const char*(const char*)>;

// One line per family of variables, in order of precedence. The parent of a rank of the first four is the launcher; slurmstepd
// cleans up by itself.
struct Launcher { const char *name, *rank, *size, *local_rank, *local_size; bool is_parent; };
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK",                  "WORLD_SIZE",          "LOCAL_RANK",                 "LOCAL_WORLD_SIZE",           true},
    {"Open MPI", "OMPI_COMM_WORLD_RANK",  "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", true},
    {"MVAPICH2", "MV2_COMM_WORLD_RANK",   "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",  "MV2_COMM_WORLD_LOCAL_SIZE",  true},
    {"PMI",      "PMI_RANK",              "PMI_SIZE",            "MPI_LOCALRANKID",            "MPI_LOCALNRANKS",            true},
    {"srun",     "SLURM_PROCID",          "SLURM_NTASKS",        "SLURM_LOCALID",              nullptr,                      false},
};
constexpr int kMaxRanks = 1 << 16;

std::string text(const Get& get, const char* name) {
    const char* value = name ? get(name) : nullptr;
    return value ? value : "";
}

// The variable's number, or `absent` if it is unset or empty. Error 2 for what is not a number from low to high.
int number(const Get& get, const char* name, int low, int high, int absent) {
    const std::string value = text(get, name);
    if (value.empty()) return absent;
    int n = 0;
    if (!parse_whole(value, &n) || n < low || n > high)
        die(kExitUsage, "launcher: %s: got \"%s\", want a number from %d to %d", name, value.c_str(), low, high);
    return n;
}

// A step started by srun. The batch script, the external and the interactive step have ids near 2^32 and are one process each.
bool inside_slurm_step(const Get& get) {
    uint64_t n = 0;
    return parse_whole(text(get, "SLURM_STEP_ID"), &n) && n < 0xfffffff0u;
}

// "2(x3),1": two tasks on each of the first three nodes, one on the fourth. 0 if the text does not say.
int slurm_tasks_of_node(const std::string& list, int node) {
    const char* at = list.c_str();
    while (*at) {
        int tasks = 0, times = 1, used = 0;
        if (std::sscanf(at, "%5d%n", &tasks, &used) != 1) return 0;
        at += used;
        if (*at == '(' && (std::sscanf(at, "(x%5d)%n", &times, &used) != 1 || at[used - 1] != ')')) return 0;
        if (*at == '(') at += used;
        if (node < times) return tasks;
        node -= times;
        if (*at == ',') at++;
        else if (*at) return 0;
    }
    return 0;
}

// "rack[2-3]n[01-04,7],login" -> "rack2n01"
std::string first_host(const std::string& list) {
    std::string host;
    bool skipping = false;                          // the rest of a bracket after its first number
    int depth = 0;
    for (const char c : list) {
        if (c == '[') depth++;
        else if (c == ']') { depth--; skipping = false; }
        else if (c == ',' && depth == 0) break;
        else if (depth > 0 && (c == ',' || c == '-')) skipping = true;
        else if (!skipping) host += c;
    }
    return host;
}

// "1234.0;tcp://10.0.0.5,192.168.0.5:41123" -> "10.0.0.5": where mpirun runs
std::string open_mpi_host(const std::string& uri) {
    const size_t at = uri.find("tcp://");
    if (at == std::string::npos) return "";
    return uri.substr(at + 6, uri.find_first_of(",:;", at + 6) - at - 6);
}

// The same on all ranks of a job and, where the launcher lets us, different for two jobs.
std::string job_name(const Get& get, const std::string& launcher) {
    const std::string address = text(get, "MASTER_ADDR") + ":" + text(get, "MASTER_PORT");
    if (get("LOCKSTEP_JOB")) return text(get, "LOCKSTEP_JOB");
    if (get("TORCHELASTIC_RUN_ID") && launcher == "torchrun")
        return "torchrun " + text(get, "TORCHELASTIC_RUN_ID") + " " + text(get, "TORCHELASTIC_RESTART_COUNT") + " " + address;
    for (const char* id : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
        if (get(id) && launcher == "Open MPI") return "mpirun " + text(get, id);
    if (inside_slurm_step(get) && launcher != "torchrun")
        return "srun " + text(get, "SLURM_JOB_ID") + "." + text(get, "SLURM_STEP_ID");
    if (address != ":") return "at " + address;
    if (launcher == "torchrun") return "by hand";              // RANK and WORLD_SIZE typed in, perhaps in two terminals
    return format("session %d", int(getsid(0)));               // all ranks of one mpiexec on this host
}

void find_hosts(const Get& get, const Launcher& launcher, World* world) {
    world->local_rank = number(get, launcher.local_rank, 0, world->size - 1, -1);
    world->local_size = number(get, launcher.local_size, 1, world->size, 0);
    if (std::strcmp(launcher.name, "srun") == 0) {
        const int nodes = number(get, get("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES", 1, kMaxRanks, 0);
        const int node = number(get, "SLURM_NODEID", 0, kMaxRanks, 0);
        world->local_size = nodes == 1 ? world->size : slurm_tasks_of_node(text(get, "SLURM_STEP_TASKS_PER_NODE"), node);
        if (nodes > 1)
            world->master_addr = first_host(text(get, get("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST"));
    }
    if (world->local_size > 0 && world->local_rank >= world->local_size)
        die(kExitUsage, "launcher: %s: got %d, want less than %d, the ranks of this host", launcher.local_rank,
            world->local_rank, world->local_size);
    if (get("OMPI_MCA_orte_hnp_uri") && world->local_size != world->size)
        world->master_addr = open_mpi_host(text(get, "OMPI_MCA_orte_hnp_uri"));
    if (get("MASTER_ADDR")) world->master_addr = text(get, "MASTER_ADDR");
    world->master_port = number(get, "MASTER_PORT", 0, 65535, 0);
    if (text(get, "TORCHELASTIC_USE_AGENT_STORE") == "True") world->master_port = 0;    // torchrun itself listens there
    const bool near = world->master_addr.empty() || is_loopback(world->master_addr);
    const bool one_host = world->local_size == world->size || (world->local_size == 0 && near);
    if (one_host) world->master_addr = "";
    else if (world->master_addr.empty())
        die(kExitUsage, "launcher: %s: got %d ranks, %d of them on this host, and no address of rank 0; set MASTER_ADDR to rank 0's "
            "host on all ranks", launcher.name, world->size, world->local_size);
}

}  // namespace

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

World find_world(const Get& get) {
    World world;
    const Launcher *chosen = nullptr, *lonely = nullptr;        // lonely: a size without a rank
    int lonely_size = 0;
    // Started by one of these, RANK is no leftover: they may run inside an mpirun job that counts otherwise.
    const bool innermost = get("TORCHELASTIC_RUN_ID") || get("LOCKSTEP_TRY");
    for (const Launcher& l : kLaunchers) {
        if (l.local_size == nullptr && !inside_slurm_step(get)) continue;
        const char* size_name = l.local_size == nullptr && get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : l.size;
        const int size = number(get, size_name, 1, kMaxRanks, 0);
        if (size == 0 && text(get, l.rank).empty()) continue;
        if (size == 0) {
            if (&l == kLaunchers) die(kExitUsage, "launcher: %s is set, %s is not; set both or none", l.rank, l.size);
            continue;
        }
        const int rank = number(get, l.rank, 0, size - 1, -1);
        if (rank < 0) {
            if (size > 1 && !lonely) { lonely = &l; lonely_size = size; }
        } else if (!chosen) {
            chosen = &l;
            world.rank = rank;
            world.size = size;
        } else if (chosen == kLaunchers && l.is_parent && !innermost && (rank != world.rank || size != world.size)) {
            die(kExitUsage, "launchers disagree: %s=%d %s=%d, but %s=%d %s=%d; unset the pair that is not meant",
                chosen->rank, world.rank, chosen->size, world.size, l.rank, rank, l.size, size);
        }
    }
    // WORLD_SIZE alone is common in batch scripts whose ranks come from srun: right if srun says the same.
    if (lonely && (!chosen || lonely_size != world.size))
        die(kExitUsage, "launcher: %s=%d, but no %s%s; start the program with a launcher, or unset %s", lonely->size,
            lonely_size, lonely->rank,
            chosen ? format(" (and %s says %d ranks)", chosen->name, world.size).c_str() : "", lonely->size);
    if (!chosen) return world;
    world.launcher = chosen == kLaunchers && get("LOCKSTEP_TRY") ? "--np" : chosen->name;
    if (world.size == 1) return world;
    // RANK and WORLD_SIZE typed into a shell: that shell may leave before the job does.
    world.dies_with_parent = chosen->is_parent && (chosen != kLaunchers || innermost);
    world.job = job_name(get, chosen->name);
    find_hosts(get, *chosen, &world);
    return world;
}
