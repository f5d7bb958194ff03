// linear_ops.cu -- the operation of linear.h on a GPU.
#include "kernels/cuda/common.cuh"
#include "models/linear_ops_host.cpp"
