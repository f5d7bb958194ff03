// small_shape.h -- a shape that any model of models/list takes, for tests that go over all of them.
#pragma once
#include <algorithm>
#include "models/shape.h"
#include "tests/test.h"

// Two layers, C channels, 12 positions, 19 tokens; what a model has beside these is as small as it goes.
inline Shape small_shape(const ModelInfo& info, int C = 16) {
    Shape shape;
    for (const ShapeKey& key : info.keys)
        if (*key.hf) key.set(&shape, std::max(key.limits.low, 1.0));
    shape.L = shape.NH = 2;
    shape.C = C;
    shape.T = 12;
    set_vocabulary(&shape, 19);
    EXPECT(info.check(shape).empty(), "%s: %s", info.name, info.check(shape).c_str());
    return shape;
}
