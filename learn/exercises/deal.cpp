// deal -- which samples a rank reads in a step.
//
// A run has `replicas` replicas, which `ranks` ranks share evenly; both are powers of two. In each step each replica
// reads `batch` samples. Samples have running numbers: step 0 uses the first replicas * batch of them, step 1 the next.
// Within a step replica 0 has the first `batch`, replica 1 the next, and so on.
//
// Rank r has the replicas from r * replicas / ranks on, in order: the tree's inner sums are then made inside a rank.
// Return the numbers of its samples, in that order. For step 1, rank 1 of 2, 4 replicas and batch 3 these are 18 to 23.
//
// PyTorch's DistributedSampler deals to ranks in turn, so that another number of ranks gives another order.
#include "exercises.h"

std::vector<int> samples_of(int step, int rank, int ranks, int replicas, int batch) {
    not_written();
}
