// device.h -- numbers in a backend's memory, for tests.
#pragma once
#include <cstring>
#include <vector>
#include "kernels/kernels.h"
#include "tests/test.h"

namespace BACKEND {

constexpr bool kExact = sizeof(floatX) == sizeof(float);

// Values in device memory. Those of floatX come and go as floats.
template <class X> struct Device {
    X* at;
    size_t n;
    explicit Device(size_t count) : at(static_cast<X*>(device_alloc(count * sizeof(X), "test"))), n(count) {}
    template <class Y> explicit Device(const std::vector<Y>& x) : Device(x.size()) { put(x); }
    ~Device() { device_free(at); }
    Device(const Device&) = delete;
    template <class Y> void put(const std::vector<Y>& x) {
        std::vector<X> stored(n);
        if constexpr (std::is_same_v<X, Y>) stored = x;
        else store_floats(stored.data(), x.data(), n);
        copy_to_device(at, stored.data(), n * sizeof(X));
        stream_sync(nullptr);
    }
    std::vector<float> host() const {
        std::vector<X> stored(n);
        copy_to_host(stored.data(), at, n * sizeof(X));
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
    return Device<floatX>(x).host();
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
// |got - want| <= tolerance times the largest of want.
template <class X>
void expect_close(const std::vector<float>& got, const std::vector<X>& want, double tolerance,
                  const std::string& what) {
    EXPECT_EQ(got.size(), want.size());
    double largest = 0;
    for (const X x : want) largest = std::fmax(largest, std::fabs(double(x)));
    expect_near(got.data(), want.data(), want.size(), tolerance * largest, what);
}

}  // namespace BACKEND
