// lstm_ops.cu -- the LSTM's operations on a GPU. A step's arrays are still in the L2: its time is that of a launch.
#include "kernels/cuda/common.cuh"
#include "models/lstm_ops_host.cpp"
