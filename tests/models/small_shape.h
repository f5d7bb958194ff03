// small_shape.h -- a shape that any model of models/list takes, for tests that go over all of them.
#pragma once
#include <algorithm>
#include <sstream>
#include "models/shape.h"
#include "tests/test.h"

// Two layers of two heads, C channels, 12 positions, 19 tokens, and what ModelInfo::test_shape names.
inline Shape small_shape(const ModelInfo& info, int C = 16) {
    Shape shape;
    for (const ShapeKey& key : info.keys)
        if (*key.hf && std::holds_alternative<int& (*)(Shape&)>(key.at))
            key.set(&shape, std::max(key.limits.low, 1.0));
    shape.L = shape.NH = 2;
    shape.C = C;
    shape.T = 12;
    std::istringstream words(info.test_shape);
    std::string name;
    for (double value; words >> name >> value;) {
        const auto key = std::ranges::find_if(info.keys, [&](const ShapeKey& k) { return name == k.option; });
        EXPECT(key != info.keys.end(), "%s: test_shape: no key %s", info.name, name.c_str());
        key->set(&shape, value);
    }
    set_vocabulary(&shape, 19);
    EXPECT(words.eof(), "%s: test_shape: want names and numbers", info.name);
    EXPECT(info.check(shape).empty(), "%s: %s", info.name, info.check(shape).c_str());
    return shape;
}

// Calls f(model, a small shape of it) for each model of the list.
template <class F> void each_model(const F& f) {
    for (const ModelInfo* info : all_models()) {
        const Row row(info->name);
        f(*info, small_shape(*info));
    }
}
