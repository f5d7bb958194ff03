// lstm_ops.cu -- the LSTM's operations on a GPU. Simple kernels suffice: the arrays of a time step are still in the L2
// cache, and a kernel takes about as long as its launch.
#include "kernels/cuda/common.cuh"
#include "models/lstm_ops_host.cpp"
