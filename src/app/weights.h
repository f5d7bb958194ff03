// weights.h -- weights of --init in the type that models compute with.
#pragma once
#include "models/model.h"
#include "src/app/init.h"

namespace BACKEND {

// Fills arena.n elements of device memory with the weights of `init`.
void load_device_weights(floatX* weights, const Arena& arena, const Init& init);
// With --lora returns the model's frozen weights; else null. Rank 0 reads them. The ranks of a host share one copy, but
// each GPU has its own; they are never freed. On a resume the checkpoint names the model that the weights belong to,
// and *init becomes that model. kExitNoInput if the model is missing, kExitBadContent if it has changed. Collective.
floatX* load_frozen_weights(Comm* comm, const Options& options, Init* init);

}  // namespace BACKEND
