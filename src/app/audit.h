// audit.h -- finds silent corruption: two ranks compute the same micro-batch and compare the results.
#pragma once
#include "models/model.h"
#include "src/data/data.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

// Between two steps: each rank computes its own first micro-batch of the coming step and that of the rank before, and
// all compare hashes of the gradients and of the weights. kExitDisagree names the rank that a third contradicts, or
// both. A frozen tensor that has changed in this process's memory is named, too. micro_batches: of a rank.
// state: of the step, copied to device_state. Collective.
void audit_replicas(Model* model, Ddp* ddp, BatchLoader* loader, StepState* device_state, const StepState& state,
                    int64_t step, int micro_batches);

// Names a tensor whose gradient backward leaves unwritten, "" if there is none. It runs a micro-batch once more: in the
// step's sum a NaN that was there before does not differ from one that was computed.
std::string find_unwritten(Model* model, Ddp* ddp, const Pass& pass, double* loss, const int* tokens,
                           const int* targets);

}  // namespace BACKEND
