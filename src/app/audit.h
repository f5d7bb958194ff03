// audit.h -- finds silent corruption: two ranks compute the same micro-batch and compare the results.
#pragma once
#include "models/model.h"
#include "src/data/data.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

// Runs between two steps. Each rank computes its own first micro-batch of the coming step and that of the rank before
// it, and all ranks compare hashes of the gradients and of the weights. Where two ranks differ, a third one computes
// the micro-batch again: kExitDisagree names the rank that it contradicts, or both if it cannot tell. It also names a
// frozen tensor that has changed in this process's memory. micro_batches: of a rank. state: of the step, copied to
// device_state. Collective.
void audit_replicas(Model* model, Ddp* ddp, BatchLoader* loader, StepState* device_state, const StepState& state,
                    int64_t step, int micro_batches);

// Returns the name of a tensor whose gradient backward does not write; "" if there is none. Runs a micro-batch once
// more: in the step's sum, a NaN that was left in memory looks like one that was computed.
std::string find_unwritten(Model* model, Ddp* ddp, const Pass& pass, double* loss, const int* tokens,
                           const int* targets);

}  // namespace BACKEND
