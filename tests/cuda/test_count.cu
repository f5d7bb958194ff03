// test_count.cu -- the software GPU's counters, on kernels whose numbers are known by hand.
#include <cstdlib>
#include <cuda_runtime.h>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <unistd.h>
#include "tests/test.h"

extern "C" void soft_gpu_section(const char* name, uint64_t blocks, double bytes, double flops, double elements);

namespace {

// A warp each; STRIDE is the distance of neighbouring lanes' elements.
template <class T, int STRIDE> __global__ void global_store(T* x) { x[threadIdx.x * STRIDE] = T{}; }
__global__ void one_word(float* x) { x[64 + threadIdx.x] = x[0]; }
__global__ void odd_lanes(float* x) {
    if (threadIdx.x % 2) x[threadIdx.x] = 1;
}
template <class T, int STRIDE> __global__ void shared_memory(T* x) {
    __shared__ T s[32 * STRIDE];
    s[threadIdx.x * STRIDE] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[(31 - threadIdx.x) * STRIDE];
}
// Writes 16 words and reads one, which is the same of each lane, or not.
template <int STRIDE> __global__ void local_memory(float* x, unsigned n) {
    float own[16];
    for (int i = 0; i < 16; i++) own[i] = x[threadIdx.x] * float(i);
    x[threadIdx.x] = own[(n + threadIdx.x * STRIDE) % 16];
}
__global__ void sums(float* x, int n) {
    float sum = x[threadIdx.x];
    for (int i = 0; i < n; i++) sum += float(i);
    x[threadIdx.x] = sum;
}

std::string path;
float* memory;

template <class K, class... A> void run(K* kernel, int blocks, A... args) {
    const cudaLaunchConfig_t config = {dim3(unsigned(blocks)), dim3(32), 0, nullptr, nullptr, 0};
    const cudaError_t error = cudaLaunchKernelEx(&config, kernel, args...);
    EXPECT(error == cudaSuccess, "%s", cudaGetErrorString(error));
}
// Ends the section; the last kernel's counters by their columns' names.
using Columns = std::map<std::string, double>;
Columns counters() {
    soft_gpu_section("", ~uint64_t(0), 0, 0, 0);
    std::ifstream file(path);
    std::string columns, row, name, value;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("columns\t")) columns = line;
        if (line.starts_with("kernel\t")) row = line;
    }
    EXPECT(!row.empty() && count_of(columns, "\t") == count_of(row, "\t"), "%s: %s", columns.c_str(), row.c_str());
    std::istringstream names(columns), values(row);
    Columns by_name;
    while (std::getline(names, name, '\t') && std::getline(values, value, '\t'))
        by_name[name] = std::atof(value.c_str());
    return by_name;
}
// Runs `blocks` blocks, of which `counted` are executed.
template <class K, class... A> Columns count(K* kernel, int blocks, uint64_t counted, A... args) {
    soft_gpu_section("test", counted, 0, 0, 0);
    run(kernel, blocks, args...);
    return counters();
}
void expect(const char* what, Columns got, const Columns& want) {
    for (const auto& [name, value] : want)
        EXPECT(got[name] == value, "%s: %s: got %g, want %g", what, name.c_str(), got[name], value);
}

TEST(global_memory) {
    float4* const four = reinterpret_cast<float4*>(memory);
    const auto sectors = [](const char* what, const Columns& c, double got) {
        expect(what, c, {{"requests", 1}, {"sectors", got}, {"useful", 128}, {"written", 128}, {"read", 0}});
    };
    sectors("stride 1", count(global_store<float, 1>, 1, 1, memory), 4);
    sectors("stride 2", count(global_store<float, 2>, 1, 1, memory), 8);
    sectors("stride 8", count(global_store<float, 8>, 1, 1, memory), 32);
    sectors("stride 32", count(global_store<float, 32>, 1, 1, memory), 32);
    expect("16 bytes", count(global_store<float4, 1>, 1, 1, four), {{"sectors", 16}, {"useful", 512}});
    expect("one word", count(one_word, 1, 1, memory),
           {{"requests", 2}, {"sectors", 5}, {"useful", 132}, {"read", 4}, {"written", 128}});
    expect("odd lanes", count(odd_lanes, 1, 1, memory), {{"sectors", 4}, {"useful", 64}});
}

TEST(shared_memory) {
    float4* const four = reinterpret_cast<float4*>(memory);
    const auto wavefronts = [](const char* what, const Columns& c, double got, double ideal) {
        expect(what, c, {{"wavefronts", got}, {"ideal", ideal}});
    };
    wavefronts("4 bytes, stride 1", count(shared_memory<float, 1>, 1, 1, memory), 2, 2);
    wavefronts("4 bytes, stride 2", count(shared_memory<float, 2>, 1, 1, memory), 4, 2);
    wavefronts("4 bytes, stride 17", count(shared_memory<float, 17>, 1, 1, memory), 2, 2);
    wavefronts("4 bytes, stride 32", count(shared_memory<float, 32>, 1, 1, memory), 64, 2);
    wavefronts("16 bytes, stride 1", count(shared_memory<float4, 1>, 1, 1, four), 8, 8);
    wavefronts("16 bytes, stride 2", count(shared_memory<float4, 2>, 1, 1, four), 16, 8);
    wavefronts("16 bytes, stride 8", count(shared_memory<float4, 8>, 1, 1, four), 64, 8);
}

TEST(local_memory) {
    expect("one word", count(local_memory<0>, 1, 1, memory, 3u),
           {{"sectors", 4 + 16 * 4 + 4 + 4}, {"read", 128}, {"written", 128}});
    expect("other words", count(local_memory<1>, 1, 1, memory, 3u), {{"sectors", 4 + 16 * 4 + 32 + 4}});
}

// What grows with n by exactly n, however the compiler unrolls.
TEST(instructions) {
    const auto ten = count(sums, 1, 1, memory, 10), more = count(sums, 1, 1, memory, 1010);
    EXPECT(more.at("fp32") - ten.at("fp32") == 1000, "%g additions more", more.at("fp32") - ten.at("fp32"));
    EXPECT(more.at("convert") - ten.at("convert") == 1000, "%g conversions", more.at("convert") - ten.at("convert"));
    const auto all = count(one_word, 1, 1, memory), odd = count(odd_lanes, 1, 1, memory);
    EXPECT(all.at("lanes") == 32 * all.at("issued"), "%g lanes", all.at("lanes"));
    EXPECT(odd.at("lanes") < 32 * odd.at("issued"), "%g lanes", odd.at("lanes"));
}

TEST(blocks_of_a_section) {
    expect("3 of 7", count(one_word, 7, 3, memory),
           {{"launches", 1}, {"blocks", 3}, {"all_blocks", 7}, {"requests", 6}});
    expect("again", count(one_word, 7, 1000, memory), {{"blocks", 7}, {"threads", 32}, {"requests", 14}});
    soft_gpu_section("test", 2, 0, 0, 0);       // what is executed of two grids is not the same part of them
    run(one_word, 7, memory);
    run(one_word, 5, memory);
    run(one_word, 5, memory);
    expect("another grid", counters(), {{"launches", 2}, {"blocks", 4}, {"all_blocks", 10}});
}

}  // namespace

int main(int argc, char** argv) {
    path = format("/tmp/lockstep_counters.%d", int(getpid()));
    setenv("SOFT_GPU_COUNT", path.c_str(), 1);
    if (cudaMalloc(&memory, 1 << 16) || cudaMemsetAsync(memory, 0, 1 << 16, nullptr)) return 1;
    const int code = run_tests(argc, argv);
    unlink(path.c_str());
    return code;
}
