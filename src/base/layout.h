// layout.h -- places arrays one after another in one allocation. The same calls are made twice: to count the bytes that
// all arrays need, and then, with `memory` set, to point each array into it.
#pragma once
#include <cstddef>

struct Layout {
    char* memory = nullptr;         // null: only counts bytes
    size_t bytes = 0;               // used so far
    template <class T> void operator()(T*& array, size_t n) {
        if (memory) array = reinterpret_cast<T*>(memory + bytes);
        bytes += (n * sizeof(T) + 255) / 256 * 256;
    }
};
