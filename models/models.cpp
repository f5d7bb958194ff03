// models.cpp -- the list of models. ./configure writes build/models.h from models/list. In it MODELS(X) is
// X(gpt2) X(lstm) ...
#include "build/models.h"

const std::vector<const ModelInfo*>& all_models() {
#define X(name) &name##_info,
    static const std::vector<const ModelInfo*> models = {MODELS(X)};
#undef X
    return models;
}

const ModelInfo* find_model(const std::string& name) {
    for (const ModelInfo* model : all_models())
        if (name == model->name) return model;
    return nullptr;
}

void set_vocabulary(Shape* shape, int V) {
    shape->V = V;
    shape->Vp = round_up(V, 16);
}
