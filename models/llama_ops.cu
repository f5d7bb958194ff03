// llama_ops.cu -- the Llama family's own operations on a GPU.
#include "kernels/cuda/common.cuh"
#include "models/llama_ops_host.cpp"
