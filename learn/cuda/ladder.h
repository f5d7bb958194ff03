// ladder.h -- what all ladders share: memory, the comparison with plain loops, and what is said of each rung.
//
// A ladder is one operation, written again and again. `learn/ladder layernorm` climbs one. Each rung is a kernel with
// one idea more than the rung before. Its result is compared with plain loops; in brackets stands its largest error, as
// a part of the largest number. On a GPU a rung's time follows. On the software GPU of this repository's tests counters
// follow: time says which rung is fast, and counters say why.
//
//     bytes      the sectors of 32 bytes that warps ask for, as a multiple of the bytes that the operation has to move
//                at least. 8 means that an eighth of each sector is used, or that everything is read 8 times. It is as
//                if there was no L1 cache, which answers a part of them on a GPU. Local memory counts, too.
//     issued     instructions of PTX that warps execute, for each element of the result
//     shared     turns at shared memory, as a multiple of the fewest possible. It has 32 banks of 4 bytes: word i is in
//                bank i % 32, which serves one word a turn. More than 1 are bank conflicts. TMA and wgmma, of the
//                last rung of matmul.cu, do not count.
//     bound      of a multiprocessor's units the one with most to do, and its cycles for each element of the result. A
//                cycle has 4 instructions, 64 bytes from the L2 cache, one turn at shared memory, half a warp's special
//                function (exp, a root), 4,096 flops of tensor cores. A rung takes at least that, and at least what
//                memory takes, which stands in a ladder's first line. How long warps wait no counter shows.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>
#include <unistd.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
using bf16 = __nv_bfloat16;
using Floats = std::vector<float>;
#ifndef SMALL                                           // -DSMALL=1: sizes for the software GPU
#define SMALL 0
#endif

// The software GPU has this function, which begins another section of its counters. A real one does not.
extern "C" __attribute__((weak)) void soft_gpu_section(const char* name, uint64_t blocks, double bytes, double flops,
                                                       double elements);

inline void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    exit(2);
}

// An array in the GPU's memory. It converts to its pointer. A vector has one column.
template <class X> struct Array {
    X* at = nullptr;
    size_t n, columns;
    const char* name;                                   // for messages
    explicit Array(size_t n, const char* name = "out", size_t columns = 1) : n(n), columns(columns), name(name) {
        check(cudaMalloc(reinterpret_cast<void**>(&at), n * sizeof(X)));
        fill(0xff);                                     // NaN
    }
    Array(const std::vector<X>& from) : Array(from.size()) {
        check(cudaMemcpy(at, from.data(), n * sizeof(X), cudaMemcpyHostToDevice));
    }
    Array(const Array&) = delete;
    ~Array() { cudaFree(at); }
    operator X*() const { return at; }
    void fill(int byte) const { check(cudaMemsetAsync(at, byte, n * sizeof(X), nullptr)); }
    std::vector<X> values() const {
        std::vector<X> to(n);
        check(cudaMemcpy(to.data(), at, n * sizeof(X), cudaMemcpyDeviceToHost));
        return to;
    }
};

// Returns n numbers in -1 .. 1, always the same.
template <class X = float> std::vector<X> numbers(size_t n, uint32_t seed) {
    std::vector<X> x(n);
    for (X& value : x) {
        seed = seed * 1664525 + 1013904223;
        value = X(float(int32_t(seed)) / 2147483648.0f);
    }
    return x;
}

constexpr double kMemoryBytes = 3.35e12 / 1.98e9 / 132;  // an H100's, for a cycle of a multiprocessor

struct Ladder {
    double bytes, flops, elements;                      // what the operation has to move, to multiply and to make
    std::string file = {};                              // of the software GPU's counters
    static inline int rung = 0, wrong = 0;              // of all parts of a ladder
    Ladder(const char* name, double bytes, double flops, double elements)
        : bytes(bytes), flops(flops), elements(elements) {
        if (bytes > 0)
            printf("%s: moves %.3g MB, %.3g GFLOP; memory takes %.2g cycles an element\n", name, bytes / 1e6,
                   flops / 1e9, bytes / elements / kMemoryBytes);
        if (!soft_gpu_section) return;
        file = "/tmp/ladder." + std::to_string(getpid());
        setenv("SOFT_GPU_COUNT", file.c_str(), 1);
    }

    // Returns the largest error, as a part of the largest number, and "" or a line that names the first wrong number.
    template <class X> auto compare(const char* name, const Array<X>& out, const auto& want, double tolerance) {
        double worst = 0, largest = 0;
        std::vector<size_t> bad;                        // the indices of the wrong numbers
        const std::vector<X> got = out.values();
        for (const float value : want) largest = std::max(largest, std::fabs(double(value)));
        for (size_t i = 0; i < want.size(); i++) {
            const double error = std::fabs(double(float(got[i])) - double(want[i]));
            if (!(error <= worst) && !std::isnan(worst)) worst = error;         // a NaN stays
            if (!(error <= tolerance * largest)) bad.push_back(i);
        }
        wrong += !bad.empty();
        const size_t first = bad.empty() ? 0 : bad[0];
        char text[400];
        snprintf(text, sizeof text, "    %s: %s[%zu] (row %zu, column %zu), the first wrong number of %zu: got %.9g, "
                 "want %.9g; follow the thread that has to write it\n", name, out.name, first, first / out.columns,
                 first % out.columns, bad.size(), float(got[first]), want[first]);
        return std::pair(worst / largest, std::string(bad.empty() ? "" : text));
    }
    // Runs a rung and compares what it leaves in `out` with `want`. tolerance: of the largest number of `want`.
    void climb(const char* name, const Array<float>& out, const Floats& want, double tolerance, const auto& run) {
        out.fill(0xff);                                 // NaN, so that what a kernel forgets to write is seen
        if (soft_gpu_section) soft_gpu_section(name, UINT64_MAX, bytes, flops, elements);
        run();
        check(cudaGetLastError());
        check(cudaDeviceSynchronize());
        const auto [error, fault] = compare(name, out, want, tolerance);
        printf("  %d %-34s %s (%.0e)  %s\n%s", ++rung, name, fault.empty() ? "right" : "WRONG", error,
               soft_gpu_section ? counters(name).c_str() : time_of(run).c_str(), fault.c_str());
        fflush(stdout);
    }
    // Returns a rung's time, the median of 20, and the rates that follow from it.
    std::string time_of(const auto& run) const {
        Floats all(20);
        cudaEvent_t begin, end;
        for (cudaEvent_t* event : {&begin, &end}) check(cudaEventCreateWithFlags(event, 0));
        for (float& milliseconds : all) {
            check(cudaEventRecord(begin, nullptr));
            run();
            check(cudaEventRecord(end, nullptr));
            check(cudaEventSynchronize(end));
            check(cudaEventElapsedTime(&milliseconds, begin, end));
        }
        std::sort(all.begin(), all.end());
        char text[100];
        const double rate = 1e-6 / all[10];
        snprintf(text, sizeof text, "%9.4f ms  %7.0f GB/s  %9.0f GFLOP/s", all[10], bytes * rate, flops * rate);
        return text;
    }
    // Returns what the software GPU has counted for all kernels of a rung.
    std::string counters(const std::string& name) const {
        soft_gpu_section("", UINT64_MAX, 0, 0, 0);
        std::map<std::string, double> n;                // the sum of each counter
        std::ifstream in(file);
        std::vector<std::string> columns;
        for (std::string line; std::getline(in, line);) {
            std::vector<std::string> fields;
            std::stringstream text(line);
            for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
            if (fields[0] == "columns") columns = fields;
            for (size_t i = 3; i < fields.size() && fields[0] == "kernel" && fields[1] == name; i++)
                n[columns[i]] += atof(fields[i].c_str());
        }
        remove(file.c_str());
        const double sectors = n["sectors"] + n["box_sectors"], box = n["box_bytes"] + n["wgmma_bytes"];
        const std::pair<double, const char*> unit = std::max<std::pair<double, const char*>>({
            {n["issued"] / 4, "issue"}, {sectors * 32 / 64, "L2"}, {n["tensor_cycles"], "tensor"},
            {n["wavefronts"] + n["shuffle"] + box / 128, "shared"}, {2 * n["special"], "special"}});
        char text[120], shared[20] = "  -   ";
        if (n["ideal"] > 0) snprintf(shared, sizeof shared, "%.2f x", n["wavefronts"] / n["ideal"]);
        snprintf(text, sizeof text, "bytes %6.2f x  issued %6.3f  shared %s  bound %s %.3f", sectors * 32 / bytes,
                 n["issued"] / elements, shared, unit.second, unit.first / elements);
        return text;
    }
    static int result() { return wrong > 0; }
};
