// layout.h -- arrays one after another in one allocation: the same calls first count its bytes, then hand it out.
#pragma once
#include <cstddef>

struct Layout {
    char* memory = nullptr;         // null: bytes are counted only
    size_t bytes = 0;               // used so far
    template <class T> void operator()(T*& array, size_t n) {
        if (memory) array = reinterpret_cast<T*>(memory + bytes);
        bytes += (n * sizeof(T) + 255) / 256 * 256;
    }
};
