// adamw.cu -- the ladder of an optimizer's update: for each weight, two averages of its gradient, and a step.
//
// Nothing here depends on a neighbour, so it is all about bytes: gradient, weight and two averages in, the last three
// out, 28 bytes a weight. PyTorch's optimizers went up this ladder: a loop over tensors, foreach, and fused=True.
#include "ladder.h"

constexpr int n = SMALL ? 1 << 18 : 1 << 26;
constexpr float kRate = 1e-3f, kBeta1 = 0.9f, kBeta2 = 0.99f, kEps = 1e-8f, kDecay = 0.1f;
constexpr int kStep = 10;                               // steps that have been made
static float power(float x, int k) { return k == 0 ? 1 : x * power(x, k - 1); }

// Rung 1: a kernel for each line of the formula. Between two kernels every number goes through memory.
__global__ void average(float* m, const float* g, float beta) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    m[i] = beta * m[i] + (1 - beta) * g[i];
}
__global__ void square(float* out, const float* g) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = g[i] * g[i];
}
__global__ void direction(float* out, const float* m, const float* v, float bias1, float bias2) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = (m[i] / bias1) / (sqrtf(v[i] / bias2) + kEps);
}
__global__ void move(float* w, const float* step) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    w[i] -= kRate * (step[i] + kDecay * w[i]);
}

// Rung 2: one kernel. What one line leaves for the next stays in a register, and each number travels once.
__device__ void update(float& w, float& m, float& v, float g, float bias1, float bias2) {
    m = kBeta1 * m + (1 - kBeta1) * g;
    v = kBeta2 * v + (1 - kBeta2) * (g * g);
    w -= kRate * ((m / bias1) / (sqrtf(v / bias2) + kEps) + kDecay * w);
}
__global__ void fused(float* w, float* m, float* v, const float* g, float bias1, float bias2) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    update(w[i], m[i], v[i], g[i], bias1, bias2);
}

// Rung 3: 16 bytes a request. The instructions that ask for bytes are a quarter, and so are the addresses to be
// computed. The bytes are fewer, too: in rung 2 the compiler cannot know that m and w are different memory, so it reads
// w again after it has written m. Here everything is read before anything is written.
__global__ void four_at_a_time(float* w, float* m, float* v, const float* g, float bias1, float bias2) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 w4 = reinterpret_cast<float4*>(w)[i], m4 = reinterpret_cast<float4*>(m)[i];
    float4 v4 = reinterpret_cast<float4*>(v)[i];
    const float4 g4 = reinterpret_cast<const float4*>(g)[i];
    update(w4.x, m4.x, v4.x, g4.x, bias1, bias2);
    update(w4.y, m4.y, v4.y, g4.y, bias1, bias2);
    update(w4.z, m4.z, v4.z, g4.z, bias1, bias2);
    update(w4.w, m4.w, v4.w, g4.w, bias1, bias2);
    reinterpret_cast<float4*>(w)[i] = w4;
    reinterpret_cast<float4*>(m)[i] = m4;
    reinterpret_cast<float4*>(v)[i] = v4;
}

int main() {
    const auto w = numbers(n, 1), m = numbers(n, 2), g = numbers(n, 4);
    auto v = numbers(n, 3);
    for (float& x : v) x = fabsf(x);
    const float bias1 = 1 - power(kBeta1, kStep), bias2 = 1 - power(kBeta2, kStep);
    std::vector<float> want(n);
    for (int i = 0; i < n; i++) {
        const double mean = 0.9 * double(m[i]) + 0.1 * double(g[i]), size = 0.99 * double(v[i]) + 0.01 * pow(g[i], 2);
        const double way = mean / double(bias1) / (sqrt(size / double(bias2)) + 1e-8) + 0.1 * double(w[i]);
        want[i] = float(double(w[i]) - 1e-3 * way);
    }
    const Array<float> G = g;
    Array<float> W(n, "W"), M(n), V(n), step(n), squares(n);
    const auto begin = [&] {                            // the same start for each rung
        const size_t bytes = n * sizeof(float);
        for (const auto& [to, from] : {std::pair(&W, &w), {&M, &m}, {&V, &v}})
            check(cudaMemcpy(to->at, from->data(), bytes, cudaMemcpyHostToDevice));
    };
    Ladder ladder("adamw", 7.0 * n * sizeof(float), 16.0 * n, n);
    begin();
    ladder.climb("a kernel a line", W, want, 1e-6, [&] {
        average<<<n / 256, 256>>>(M, G, kBeta1);
        square<<<n / 256, 256>>>(squares, G);
        average<<<n / 256, 256>>>(V, squares, kBeta2);
        direction<<<n / 256, 256>>>(step, M, V, bias1, bias2);
        move<<<n / 256, 256>>>(W, step);
    });
    begin();
    ladder.climb("one kernel", W, want, 1e-6, [&] { fused<<<n / 256, 256>>>(W, M, V, G, bias1, bias2); });
    begin();
    ladder.climb("16 bytes a request", W, want, 1e-6, [&] {
        four_at_a_time<<<n / 1024, 256>>>(W, M, V, G, bias1, bias2);
    });
    return ladder.result();
}
