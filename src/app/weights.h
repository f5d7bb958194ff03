// weights.h -- weights of --init in the type that models compute with.
#pragma once
#include "models/model.h"
#include "src/app/init.h"

namespace BACKEND {

// Fills arena.n elements of device memory.
void load_device_weights(floatX* weights, const Arena& arena, const Init& init);
// Returns the model's weights if they are frozen, because what is trained lies beside them; else null. Rank 0 reads
// them. A checkpoint of a run with frozen weights names the model that they are of: on a resume *init becomes that one.
// The ranks of a host share one copy; GPUs have one each. They are never freed. Collective. Error 66 if the model has
// gone, 65 if it has changed.
floatX* load_frozen_weights(Comm* comm, const Options& options, Init* init);

}  // namespace BACKEND
