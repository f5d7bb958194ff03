// test_world.cpp -- what find_world makes of launchers' variables: each launcher, the precedence, and the traps.
#include <cstdlib>
#include <map>
#include <sys/stat.h>
#include "src/base/cpus.h"
#include "src/base/file.h"
#include "src/comm/comm.h"
#include "tests/test.h"

using Env = std::map<std::string, std::string>;
static World world_of(const Env& env) {
    return find_world([&](const char* name) -> const char* {
        const auto it = env.find(name);
        return it == env.end() ? nullptr : it->second.c_str();
    });
}
static Env with(Env env, const Env& more) {
    for (const auto& [k, v] : more) env[k] = v;
    return env;
}
static void expect_world(const World& w, int rank, int size, const std::string& launcher, const std::string& addr) {
    EXPECT(w.rank == rank && w.size == size, "got %d of %d", w.rank, w.size);
    EXPECT_EQ(w.launcher, launcher);
    EXPECT_EQ(w.master_addr, addr);
}

static const Env kTorch = {
    {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "8"},
    {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "abc"},
    {"TORCHELASTIC_RESTART_COUNT", "0"}};
static const Env kOmpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"PMIX_NAMESPACE", "12345"}};
static const Env kSlurm = {
    {"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NUM_NODES", "2"},
    {"SLURM_STEP_NODELIST", "node[01-02,7]"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}};

TEST(no_launcher) {
    expect_world(world_of({}), 0, 1, "none", "");
    expect_world(world_of({{"WORLD_SIZE", "1"}}), 0, 1, "none", "");
    expect_world(world_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "far"}}), 0, 1, "torchrun", "");
}

TEST(torchrun) {
    const World w = world_of(kTorch);
    expect_world(w, 3, 8, "torchrun", "");
    EXPECT(w.dies_with_parent, "torchrun is the parent");
    EXPECT(w.job != world_of(with(kTorch, {{"TORCHELASTIC_RUN_ID", "abd"}})).job, "two runs");
    EXPECT(w.job == world_of(with(kTorch, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).job, "each agent counts for itself");
    EXPECT(w.job == world_of(with(kTorch, {{"MASTER_ADDR", "localhost"}})).job, "two spellings of an address");
    EXPECT(w.job == world_of(with(kTorch, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).job, "two ranks of one run");
    const World far = world_of(with(kTorch, {{"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}}));
    expect_world(far, 3, 8, "torchrun", "n1");
    EXPECT_EQ(far.master_port, 29500);
    EXPECT(world_of(with(kTorch,
                         {{"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}))
                   .master_port == 0, "the agent listens there");
}

TEST(by_hand) {
    expect_world(world_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), 1, 2, "torchrun", "");
    expect_world(world_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}}), 1, 2, "torchrun", "");
    expect_world(world_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.9.0.1"}, {"MASTER_PORT", "5"}}), 1,
                 2, "torchrun", "10.9.0.1");
    EXPECT(!world_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).dies_with_parent, "a shell may leave");
    EXPECT(world_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).assumed == "MASTER_ADDR is not set", "one host is a guess");
    const Env operated = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"LOCKSTEP_SECRET", "s"}};
    expect_world(world_of(operated), 0, 2, "torchrun", "localhost");        // others may have the host's name there
    EXPECT(world_of(operated).job == world_of(with(operated, {{"RANK", "1"}, {"MASTER_ADDR", "h"}})).job, "one job");
    EXPECT_EQ(world_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_JOB", "j"}}).job, "j");
    expect_error(2, "no address of rank 0", [] {
        world_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
    });
}

TEST(open_mpi) {
    const World w = world_of(kOmpi);
    expect_world(w, 1, 4, "Open MPI", "");
    EXPECT(w.job == "Open MPI 12345" && w.dies_with_parent, "got %s", w.job.c_str());
    expect_error(2, "MASTER_ADDR", [] { world_of(with(kOmpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})); });
    expect_world(world_of(with(kOmpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"MASTER_ADDR", "n9"}})), 1, 4, "Open MPI",
                 "n9");
    expect_world(world_of(with(kOmpi, kSlurm)), 1, 4, "Open MPI", "");  // mpirun inside SLURM
}

TEST(other_mpis) {
    expect_world(world_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}}),
                 0, 2, "PMI", "");
    expect_world(world_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), 1, 2, "PMI", "");
}

// Two hosts that differ in nothing but a number of theirs: the job's name is made of what is equal on all ranks, and of
// all that is.
TEST(jobs_of_process_managers) {
    const auto job = [](const Env& more) { return world_of(with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, more)).job; };
    const std::string here = job({{"MPI_LOCALNRANKS", "2"}});
    EXPECT(here == job({{"MPI_LOCALNRANKS", "2"}}) && here != "PMI", "one starter: got %s", here.c_str());
    EXPECT(has(here, format(" %d", int(getppid()))), "its process: got %s", here.c_str());
    EXPECT(here == job({{"MPI_LOCALNRANKS", "2"}, {"PMI_RANK", "0"}}), "of another rank: got %s", here.c_str());
    const Env apart = {{"MPI_LOCALNRANKS", "1"}, {"MASTER_ADDR", "n1"}, {"I_MPI_HYDRA_UUID", "u"}};
    EXPECT_EQ(job(apart), "PMI u");
}

// Slurm's PMI-2 sets these, and srun's own beside them.
TEST(pmi_of_slurm) {
    Env env = with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}});
    expect_world(world_of(env), 5, 8, "PMI", "node01");
    env["SLURM_STEP_NUM_NODES"] = "1";
    expect_world(world_of(env), 5, 8, "PMI", "");
    EXPECT(world_of(env).assumed.empty(), "srun says that there is one host");
}

TEST(slurm) {
    const World w = world_of(kSlurm);
    expect_world(w, 5, 8, "srun", "node01");
    EXPECT(w.job == "srun 77 0" && !w.dies_with_parent, "got %s", w.job.c_str());
    expect_world(world_of(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}})), 5, 8, "srun", "");
    expect_world(world_of(with(kSlurm, {{"SLURM_STEP_NODELIST", "r[2-3]n[01-04,7],x"}})), 5, 8, "srun", "r2n01");
    expect_world(world_of(with(kSlurm, {{"SLURM_STEP_NODELIST", "login,node[1-3]"}})), 5, 8, "srun", "login");
    const Env batch_shell = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}};
    expect_world(world_of(batch_shell), 0, 1, "none", "");
    expect_world(world_of(with(kSlurm, {{"WORLD_SIZE", "8"}})), 5, 8, "srun",
                 "node01");  // exported by the batch script
}

TEST(wrong_variables) {
    std::vector<std::pair<Env, std::string>> bad = {
        {{{"WORLD_SIZE", "8"}}, "WORLD_SIZE=8 is set, RANK is not"},
        {{{"OMPI_COMM_WORLD_SIZE", "4"}}, "OMPI_COMM_WORLD_SIZE=4 is set, OMPI_COMM_WORLD_RANK is not"},
        {{{"RANK", "1"}}, "RANK is set, WORLD_SIZE is not"},
        {with(kTorch, {{"RANK", "8"}}), "RANK: got \"8\", want a number from 0 to 7"},
        {with(kTorch, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE: got"},
        {with(kTorch, {{"MASTER_PORT", "65536"}}), "MASTER_PORT: got"}};
    for (const char* alone : {"PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE", "JSM_NAMESPACE_RANK", "MV2_COMM_WORLD_RANK",
                              "HOROVOD_RANK", "FLUX_TASK_RANK"})
        bad.push_back({{{alone, "0"}}, format("%s is set, WORLD_SIZE is not", alone)});
    expect_world(world_of(with(kOmpi, {{"PMIX_RANK", "1"}})), 1, 4, "Open MPI", "");
    expect_world(world_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}), 0, 1,
                 "Open MPI", "");
    EXPECT_EQ(world_of(kTorch).variables, "RANK=3 WORLD_SIZE=8");
    for (const char* rank : {"-1", "1x", "x", " 1", "99999999999999999999", "0x1", "1.0"})
        bad.push_back({with(kTorch, {{"RANK", rank}}), "RANK: got"});
    for (const char* size : {"0", "-8", "8 ", "2147483648"})
        bad.push_back({with(kTorch, {{"WORLD_SIZE", size}}), "WORLD_SIZE: got"});
    for (const auto& [env, part] : bad) {
        const Row row(part);
        expect_error(2, part, [&, env = env] { world_of(env); });
    }
}

TEST(two_launchers) {
    const Env left_over = with(kOmpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
    expect_error(2, "RANK=0 WORLD_SIZE=2, but OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4",
                 [&] { world_of(left_over); });
    expect_world(
        world_of(with(kOmpi, {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}})), 1,
        4, "torchrun", "");
    expect_world(world_of(with(kOmpi, kTorch)), 3, 8, "torchrun", "");  // torchrun started by mpirun
    Env np = with(left_over,
                  {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}, {"LOCKSTEP_TRY", "0"}, {"LOCKSTEP_JOB", "np-1"}});
    expect_world(world_of(np), 0, 2, "--np", "");
}

// A mask of CPUs by their numbers.
static cpu_set_t mask(std::initializer_list<int> cpus) {
    cpu_set_t m;
    CPU_ZERO(&m);
    for (const int c : cpus) CPU_SET(c, &m);
    return m;
}

TEST(cpu_shares) {
    const cpu_set_t four = mask({0, 1, 2, 3}), low = mask({0, 1}), high = mask({2, 3}), one = mask({0}),
                    far = mask({63, 64, 1000});
    const struct { std::vector<cpu_set_t> masks; int rank; double quota; int want; const char* what; } cases[] = {
        {{four}, 0, 0, 4, "alone"},
        {{four, four}, 1, 0, 2, "two ranks share"},
        {{four, four, four}, 0, 0, 1, "rounded down: 4 threads of 6 would be too many"},
        {{low, high}, 1, 0, 2, "tied to different CPUs: nothing is shared"},
        {{four, low}, 0, 0, 3, "half of what the other may use too"},
        {{four, low}, 1, 0, 1, "and the other has that half"}, {{one, one, one}, 2, 0, 1, "more ranks than CPUs"},
        {{four}, 0, 2.5, 2, "a quota"}, {{four, four}, 0, 2.5, 1, "a quota is for all ranks together"},
        {{four}, 0, 0.5, 1, "less than a CPU"}, {{four}, 0, 99, 4, "a quota beyond the mask"},
        {{far}, 0, 0, 3, "high numbers"},
    };
    for (const auto& c : cases) {
        const int got = cpu_share(c.masks, c.rank, c.quota);
        EXPECT(got == c.want, "%s: got %d, want %d", c.what, got, c.want);
    }
}

TEST(threads_by_environment) {
    const struct { const char *omp, *slurm, *torchrun; int ranks, want; } cases[] = {
        {"", "", "", 1, 8},   {"3", "", "", 1, 3},  {"99", "", "", 1, 8}, {"4,2", "", "", 1, 4}, {"four", "", "", 1, 8},
        {"", "6", "", 1, 6},  {"", "6", "", 2, 3},  {"3", "6", "", 4, 1}, {"1", "", "", 1, 1},   {"1", "", "run", 1, 8},
        {"2", "", "run", 1, 2}, {"0", "-1", "", 1, 8}, {"", "1", "", 8, 1},
        {"", "6", "", 0, 8}};
    for (const auto& c : cases) {
        setenv("OMP_NUM_THREADS", c.omp, 1);
        setenv("SLURM_CPUS_PER_TASK", c.slurm, 1);
        if (c.torchrun[0]) setenv("TORCHELASTIC_RUN_ID", c.torchrun, 1);
        const int got = threads_by_environment(8, c.ranks);
        for (const char* name : {"OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK", "TORCHELASTIC_RUN_ID"}) unsetenv(name);
        EXPECT(got == c.want, "OMP %s, Slurm %s, %d ranks: got %d, want %d", c.omp, c.slurm, c.ranks, got, c.want);
    }
}

TEST(cgroup_quotas) {
    char root[] = "/tmp/lockstep-cgroup-XXXXXX";
    EXPECT(mkdtemp(root), "mkdtemp");
    const std::string r = root;
    for (const char* folder : {"/proc", "/proc/self", "/sys", "/sys/fs", "/sys/fs/cgroup", "/sys/fs/cgroup/a",
                               "/sys/fs/cgroup/a/b", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/a",
                               "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/a"})
        mkdir((r + folder).c_str(), 0700);
    const auto quota = [&](const std::vector<std::pair<std::string, std::string>>& files) {
        for (const auto& [name, text] : files) write_file_atomic(r + name, text);
        return cgroup_cpus(r);
    };
    const std::string group = "/sys/fs/cgroup";
    const double none = quota({}),
                 top = quota({{"/proc/self/cgroup", "0::/a/b\n"}, {group + "/a/b/cpu.max", "max 100000\n"}});
    const double own = quota({{group + "/a/b/cpu.max", "350000 100000\n"}}),
                 above = quota({{group + "/a/cpu.max", "150000 100000\n"}});
    const double old = quota({{"/proc/self/cgroup", "4:cpu:/\n"},
                              {group + "/cpu/cpu.cfs_quota_us", "200000\n"},
                              {group + "/cpu/cpu.cfs_period_us", "100000\n"}});
    const double unlimited = quota({{group + "/cpu/cpu.cfs_quota_us", "-1\n"}});
    const double nested = quota({{"/proc/self/cgroup", "4:cpuacct,cpu:/a\n"},
                                 {group + "/cpu/a/cpu.cfs_quota_us", "50000\n"},
                                 {group + "/cpu/a/cpu.cfs_period_us", "100000\n"}});
    EXPECT_EQ(nested, 0.5);
    const auto memory = [&](const std::vector<std::pair<std::string, std::string>>& files) {
        for (const auto& [name, text] : files) write_file_atomic(r + name, text);
        return allowed_memory(r);
    };
    const double host = memory({}).amount;
    EXPECT_EQ(memory({{"/proc/self/cgroup", "0::/a/b\n"}, {group + "/a/b/memory.max", "max\n"}}).amount, host);
    const Allowance inner = memory({{group + "/a/b/memory.max", "1048576\n"}});
    EXPECT(inner.by == "memory.max of " + r + group + "/a/b" && inner.amount < host, "%s", inner.by.c_str());
    const Allowance outer = memory({{group + "/a/memory.max", "65536\n"}});
    EXPECT(outer.amount < inner.amount && outer.by.ends_with("/a"), "%s", outer.by.c_str());
    const Allowance first = memory({{"/proc/self/cgroup", "5:memory:/a\n0::/\n"},
                                    {group + "/memory/a/memory.limit_in_bytes", "32768\n"},
                                    {group + "/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
    EXPECT(first.amount < outer.amount && first.by.starts_with("memory.limit_in_bytes"), "%s", first.by.c_str());
    remove_tree(r);
    EXPECT(none == 0 && top == 0 && own == 3.5 && above == 1.5 && old == 2 && unlimited == 0, "got %g %g %g %g %g %g",
           none, top, own, above, old, unlimited);
}

// This process tied to one CPU, as taskset does it.
TEST(affinity) {
    cpu_set_t before;
    EXPECT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &before)) last--;
    const cpu_set_t one = mask({last});
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const int tied = available_cpus();
    sched_setaffinity(0, sizeof before, &before);
    EXPECT_EQ(tied, 1);
    EXPECT(available_cpus() <= CPU_COUNT(&before), "got %d of %d", available_cpus(), CPU_COUNT(&before));
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
