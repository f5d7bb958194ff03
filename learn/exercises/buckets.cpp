// buckets -- which tensors' gradients are sent together, so that sending begins while backward still computes.
//
// bytes[i] is the size of tensor i's gradient; tensors are in the order of the forward pass, so backward finishes the
// last one first. Begin a bucket at the end and put tensors into it, from the last to the first, until it has at least
// `first` bytes (a later bucket: `others` bytes). Then it is full and the next tensor begins another one. A tensor is
// never cut.
//
// Returns the first tensor of each bucket, in the order in which buckets become full: of {1, 1, 5, 1, 1} with first = 2
// and others = 4 that is {3, 2, 0}: tensors 3 and 4, tensor 2, tensors 0 and 1. The last bucket may have less.
// train_gpt's is cut_buckets in src/ddp/create.cpp; it may cut tensors.
#include "exercises.h"

std::vector<int> buckets(const std::vector<size_t>& bytes, size_t first, size_t others) {
    not_written();
}
