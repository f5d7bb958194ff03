// adafactor.cu -- the rule of adafactor.h on a GPU.
#include "kernels/cuda/common.cuh"
#include "optimizers/adafactor_host.cpp"
