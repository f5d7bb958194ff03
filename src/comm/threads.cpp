// threads.cpp -- how many threads each rank of a host gets.
#include <cstdlib>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/cpus.h"
#include "src/comm/comm.h"

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
    const bool started = comm->launcher == "--np" || comm->launcher == "torchrun";      // its ranks share a Slurm task
    const int ranks = !started ? 1 : std::getenv("SLURM_STEP_ID") ? comm->local_size : 0;
    const int own = wanted ? wanted : threads_by_environment(share, ranks);
    if (comm->local_rank == 0 && !wanted && own < share)
        warn("threads: %d per rank by OMP_NUM_THREADS or SLURM_CPUS_PER_TASK; --threads %d has all CPUs", own, share);
    return own;
}
