// device.h -- numbers in a backend's memory, for tests of models.
#pragma once
#include <vector>
#include "models/model.h"
#include "src/base/numbers.h"

namespace BACKEND {

constexpr bool kExact = sizeof(floatX) == sizeof(float);

// Values in device memory, floatX or float.
template <class X> struct Device {
    X* at;
    size_t n;
    explicit Device(size_t count) : at(static_cast<X*>(device_alloc(count * sizeof(X), "test"))), n(count) {}
    explicit Device(const std::vector<float>& x) : Device(x.size()) { put(x); }
    ~Device() { device_free(at); }
    Device(const Device&) = delete;
    void put(const std::vector<float>& x) {
        std::vector<X> stored(n);
        if constexpr (std::is_same_v<X, float>) stored = x;
        else store_floats(stored.data(), x.data(), n);
        copy_to_device(at, stored.data(), n * sizeof(X), nullptr);
        stream_sync(nullptr);
    }
    std::vector<float> host() const {
        std::vector<X> stored(n);
        copy_to_host(stored.data(), at, n * sizeof(X), nullptr);
        if constexpr (std::is_same_v<X, float>) return stored;
        std::vector<float> x(n);
        load_floats(x.data(), reinterpret_cast<const floatX*>(stored.data()), n);
        return x;
    }
};

// Numbers between -scale and scale that floatX holds.
inline std::vector<float> numbers(size_t n, uint32_t key, float scale) {
    std::vector<float> x(n);
    for (size_t i = 0; i < n; i++) x[i] = scale * (2 * uniform01(random4({1, key, 0, 0}, i).v[0]) - 1);
    std::vector<floatX> stored(n);
    store_floats(stored.data(), x.data(), n);
    load_floats(x.data(), stored.data(), n);
    return x;
}

}  // namespace BACKEND
