// allreduce_mpi.cpp -- MPI_Allreduce, measured as bench/allreduce.cpp measures Lockstep's. Built and run by
// bench/allreduce.sh.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (const size_t kib : {4, 16, 64, 256, 1024, 4096, 16384, 25 * 1024, 100 * 1024}) {
        const size_t bytes = kib << 10, n = bytes / sizeof(float);
        std::vector<float> data(n, 1);
        const int calls = int(std::clamp<size_t>((size_t(64) << 20) / bytes, 2, 100));
        const auto sum = [&] { MPI_Allreduce(MPI_IN_PLACE, data.data(), int(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
        sum();
        if (data[n - 1] != float(size)) MPI_Abort(MPI_COMM_WORLD, 80);
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        for (int i = 0; i < calls; i++) sum();
        double mine = (MPI_Wtime() - start) / calls, slowest;
        MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) std::printf("mpi %d %zu %.9f\n", size, bytes, slowest);
    }
    MPI_Finalize();
}
