// test_world.cpp -- what find_world makes of launchers' variables: each launcher, the precedence, and the traps.
#include <cstdlib>
#include <map>
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

static const Env kTwo = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};                   // by hand
static const Env kTorch = {
    {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "8"},
    {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "abc"},
    {"TORCHELASTIC_RESTART_COUNT", "0"}};
static const Env kFar = with(kTorch, {{"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}});
static const Env kOmpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"PMIX_NAMESPACE", "12345"}};
static const Env kOmpiHosts = with(kOmpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
static const Env kSlurm = {
    {"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NUM_NODES", "2"},
    {"SLURM_STEP_NODELIST", "node[01-02,7]"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}};
static const Env kSlurmPmi = with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}});      // Slurm's PMI-2
static const Env kLeftOver = with(kOmpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
static const Env kSecret = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"LOCKSTEP_SECRET", "s"}};

TEST(worlds) {
    const struct { Env env; int rank, size; std::string launcher, addr = ""; } rows[] = {
        {{}, 0, 1, "none"},
        {{{"WORLD_SIZE", "1"}}, 0, 1, "none"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "far"}}, 0, 1, "torchrun"},
        {kTorch, 3, 8, "torchrun"},
        {kFar, 3, 8, "torchrun", "n1"},
        {kTwo, 1, 2, "torchrun"},
        {with(kTwo, {{"MASTER_ADDR", "localhost"}}), 1, 2, "torchrun"},
        {with(kTwo, {{"MASTER_ADDR", "10.9.0.1"}, {"MASTER_PORT", "5"}}), 1, 2, "torchrun", "10.9.0.1"},
        {kSecret, 0, 2, "torchrun", "localhost"},               // others may have the host's name there
        {kOmpi, 1, 4, "Open MPI"},
        {with(kOmpiHosts, {{"MASTER_ADDR", "n9"}}), 1, 4, "Open MPI", "n9"},
        {with(kOmpi, kSlurm), 1, 4, "Open MPI"},                // mpirun inside SLURM
        {with(kOmpi, {{"PMIX_RANK", "1"}}), 1, 4, "Open MPI"},
        {{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}, 0, 1, "Open MPI"},
        {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}}, 0, 2, "PMI"},
        {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, 1, 2, "PMI"},
        {kSlurmPmi, 5, 8, "PMI", "node01"},
        {with(kSlurmPmi, {{"SLURM_STEP_NUM_NODES", "1"}}), 5, 8, "PMI"},
        {kSlurm, 5, 8, "srun", "node01"},
        {with(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}}), 5, 8, "srun"},
        {with(kSlurm, {{"SLURM_STEP_NODELIST", "r[2-3]n[01-04,7],x"}}), 5, 8, "srun", "r2n01"},
        {with(kSlurm, {{"SLURM_STEP_NODELIST", "login,node[1-3]"}}), 5, 8, "srun", "login"},
        {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}}, 0, 1, "none"},      // a batch shell
        {with(kSlurm, {{"WORLD_SIZE", "8"}}), 5, 8, "srun", "node01"},      // exported by the batch script
        {with(kOmpi, {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}}), 1, 4,
         "torchrun"},
        {with(kOmpi, kTorch), 3, 8, "torchrun"},                // torchrun started by mpirun
        {with(kLeftOver, {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}, {"LOCKSTEP_TRY", "0"},
                          {"LOCKSTEP_JOB", "np-1"}}), 0, 2, "--np"}};
    for (const auto& row : rows) {
        const Row name(format("row %td, %s %s", &row - rows, row.launcher.c_str(), row.addr.c_str()));
        const World w = world_of(row.env);
        EXPECT(w.rank == row.rank && w.size == row.size, "got %d of %d", w.rank, w.size);
        EXPECT_EQ(w.launcher, row.launcher);
        EXPECT_EQ(w.master_addr, row.addr);
    }
}

TEST(what_else_is_known) {
    EXPECT(world_of(kTorch).dies_with_parent && world_of(kOmpi).dies_with_parent, "the launcher is the parent");
    EXPECT(!world_of(kTwo).dies_with_parent && !world_of(kSlurm).dies_with_parent, "a shell may leave");
    EXPECT_EQ(world_of(kTorch).variables, "RANK=3 WORLD_SIZE=8");
    EXPECT_EQ(world_of(kFar).master_port, 29500);
    const Env agent = with(kFar, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
    EXPECT(world_of(agent).master_port == 0, "the agent listens there");
    EXPECT(world_of(kTwo).assumed == "MASTER_ADDR is not set", "one host is a guess");
    EXPECT(world_of(with(kSlurmPmi, {{"SLURM_STEP_NUM_NODES", "1"}})).assumed.empty(), "srun says that it is one");
}

// The job's name is made of what is equal on all ranks, and of all that is.
TEST(jobs) {
    const auto job = [](const Env& env, const Env& more = {}) { return world_of(with(env, more)).job; };
    EXPECT(job(kTorch) != job(kTorch, {{"TORCHELASTIC_RUN_ID", "abd"}}), "two runs");
    EXPECT(job(kTorch) == job(kTorch, {{"TORCHELASTIC_RESTART_COUNT", "1"}}), "each agent counts for itself");
    EXPECT(job(kTorch) == job(kTorch, {{"MASTER_ADDR", "localhost"}}), "two spellings of an address");
    EXPECT(job(kTorch) == job(kTorch, {{"RANK", "0"}, {"LOCAL_RANK", "0"}}), "two ranks of one run");
    EXPECT(job(kSecret) == job(kSecret, {{"RANK", "1"}, {"MASTER_ADDR", "h"}}), "two ranks by hand");
    EXPECT_EQ(job(kTwo, {{"LOCKSTEP_JOB", "j"}}), "j");
    EXPECT_EQ(job(kOmpi), "Open MPI 12345");
    EXPECT_EQ(job(kSlurm), "srun 77 0");
    const Env pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
    EXPECT(job(pmi) == job(pmi, {{"PMI_RANK", "0"}}) && job(pmi) != "PMI", "one starter: got %s", job(pmi).c_str());
    EXPECT(has(job(pmi), format(" %d", int(getppid()))), "its process: got %s", job(pmi).c_str());
    // Two hosts that differ in nothing but a number of theirs.
    EXPECT_EQ(job(pmi, {{"MPI_LOCALNRANKS", "1"}, {"MASTER_ADDR", "n1"}, {"I_MPI_HYDRA_UUID", "u"}}), "PMI u");
}

TEST(wrong_variables) {
    std::vector<std::pair<Env, std::string>> bad = {
        {{{"WORLD_SIZE", "8"}}, "WORLD_SIZE=8 is set, RANK is not"},
        {{{"OMPI_COMM_WORLD_SIZE", "4"}}, "OMPI_COMM_WORLD_SIZE=4 is set, OMPI_COMM_WORLD_RANK is not"},
        {{{"RANK", "1"}}, "RANK is set, WORLD_SIZE is not"},
        {with(kTorch, {{"RANK", "8"}}), "RANK: got \"8\", want a number from 0 to 7"},
        {with(kTorch, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE: got"},
        {with(kTorch, {{"MASTER_PORT", "65536"}}), "MASTER_PORT: got"},
        {with(kTwo, {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}), "no address of rank 0"},
        {kOmpiHosts, "MASTER_ADDR"},
        {kLeftOver, "RANK=0 WORLD_SIZE=2, but OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4"}};
    for (const char* alone : {"PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE", "JSM_NAMESPACE_RANK", "MV2_COMM_WORLD_RANK",
                              "HOROVOD_RANK", "FLUX_TASK_RANK"})
        bad.push_back({{{alone, "0"}}, format("%s is set, WORLD_SIZE is not", alone)});
    for (const char* rank : {"-1", "1x", "x", " 1", "99999999999999999999", "0x1", "1.0"})
        bad.push_back({with(kTorch, {{"RANK", rank}}), "RANK: got"});
    for (const char* size : {"0", "-8", "8 ", "2147483648"})
        bad.push_back({with(kTorch, {{"WORLD_SIZE", size}}), "WORLD_SIZE: got"});
    for (const auto& [env, part] : bad) {
        const Row row(part);
        expect_error(2, part, [&, env = env] { world_of(env); });
    }
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
    using Files = std::vector<std::pair<std::string, std::string>>;
    const Folder root;
    const std::string groups = "/proc/self/cgroup", group = "/sys/fs/cgroup", cpu = group + "/cpu/cpu.cfs_";
    const auto write = [&](const Files& files) {
        for (const auto& [name, text] : files) {
            make_directories(parent_folder(root.path + name));
            put(root.path + name, text);
        }
    };
    const std::pair<Files, double> steps[] = {
        {{}, 0},
        {{{groups, "0::/a/b\n"}, {group + "/a/b/cpu.max", "max 100000\n"}}, 0},
        {{{group + "/a/b/cpu.max", "350000 100000\n"}}, 3.5},
        {{{group + "/a/cpu.max", "150000 100000\n"}}, 1.5},
        {{{groups, "4:cpu:/\n"}, {cpu + "quota_us", "200000\n"}, {cpu + "period_us", "100000\n"}}, 2},
        {{{cpu + "quota_us", "-1\n"}}, 0},
        {{{groups, "4:cpuacct,cpu:/a\n"}, {group + "/cpu/a/cpu.cfs_quota_us", "50000\n"},
          {group + "/cpu/a/cpu.cfs_period_us", "100000\n"}}, 0.5}};
    for (const auto& [files, cpus] : steps) {
        write(files);
        EXPECT_EQ(cgroup_cpus(root.path), cpus);
    }
    const auto memory = [&](const Files& files) {
        write(files);
        return allowed_memory(root.path);
    };
    const double host = memory({}).amount;
    EXPECT_EQ(memory({{groups, "0::/a/b\n"}, {group + "/a/b/memory.max", "max\n"}}).amount, host);
    const Allowance inner = memory({{group + "/a/b/memory.max", "1048576\n"}});
    EXPECT(inner.by == "memory.max of " + root.path + group + "/a/b" && inner.amount < host, "%s", inner.by.c_str());
    const Allowance outer = memory({{group + "/a/memory.max", "65536\n"}});
    EXPECT(outer.amount < inner.amount && outer.by.ends_with("/a"), "%s", outer.by.c_str());
    const Allowance first = memory({{groups, "5:memory:/a\n0::/\n"},
                                    {group + "/memory/a/memory.limit_in_bytes", "32768\n"},
                                    {group + "/memory/memory.limit_in_bytes", "9223372036854771712\n"}});
    EXPECT(first.amount < outer.amount && first.by.starts_with("memory.limit_in_bytes"), "%s", first.by.c_str());
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
