// weights.h -- weights of --init in the type that models compute with.
#pragma once
#include "models/model.h"
#include "src/app/init.h"

namespace BACKEND {

// Fills arena.n elements of device memory.
void load_device_weights(floatX* weights, const Arena& arena, const Init& init);
// Returns the weights that --lora freezes. Rank 0 reads them (its `init` alone counts), and the ranks of a host share
// one copy; GPUs have one each. They are never freed. Collective.
floatX* load_frozen_weights(Comm* comm, const Arena& arena, const Init& init);

}  // namespace BACKEND
