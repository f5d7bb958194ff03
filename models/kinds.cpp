// kinds.cpp -- finds the ModelKind of each model in models/list. ./configure writes the list as MODELS(X) to
// build/models.h, which only this file and models.cpp include.
#include "build/models.h"
#include "models/model.h"

namespace BACKEND {

#define X(name) extern const ModelKind name##_kind;
MODELS(X)
#undef X

const ModelKind* find_kind(const ModelInfo* info) {
#define X(name) if (info == &name##_info) return &name##_kind;
    MODELS(X)
#undef X
    CHECK(false, "model %s is not in models/list", info->name);
}

}  // namespace BACKEND
