// lora_ops.cu -- the operation of lora.h on a GPU.
#include "kernels/cuda/common.cuh"
#include "models/lora_ops_host.cpp"
