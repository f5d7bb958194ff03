// test_maps.cu -- every map that a training step describes to TMA keeps the limits that cuda.h documents: of every
// model's presets, for many batches, whatever tile a product takes; and of attention whose heads share keys and values.
//
// The software GPU's cuTensorMapEncodeTiled checks them; the driver's own says CUDA_ERROR_NOT_INITIALIZED where no
// device is (libcuda 535, behind cuInit too). Steps are captured and never run, so the largest model takes no time and
// no memory.
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>
#include "kernels/cuda/hopper.cuh"
#include "models/gpt2.h"
#include "models/model.h"
#include "tests/test.h"

namespace ptx {
const std::string& map_refused();
uint64_t maps_made();
}

namespace BACKEND {
namespace {

// Arguments of cuTensorMapEncodeTiled, as tensor_map gives them for a matrix of 100 x 768 or seven of them.
struct Arguments {
    cuuint32_t rank = 3;
    uintptr_t address = 4096;
    cuuint64_t size[3] = {768, 100, 7}, stride[2] = {1536, 153600};
    cuuint32_t box[3] = {64, 64, 1}, step[3] = {1, 1, 1};
    CUresult encode() const {
        CUtensorMap map;
        return cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, reinterpret_cast<void*>(address),
                                      size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    }
};
struct Fault {
    const char* refused;  // what map_refused has to be
    std::function<void(Arguments&)> make;
};
const Fault kFaults[] = {
    {"address[0]: got 4104", [](Arguments& a) { a.address += 8; }},
    {"size[0]: got 0", [](Arguments& a) { a.size[0] = 0; }},
    {"size[1]: got 4294967297", [](Arguments& a) { a.size[1] = (cuuint64_t(1) << 32) + 1; }},
    {"size[2]: got 0", [](Arguments& a) { a.size[2] = 0; }},
    {"stride[0]: got 1544", [](Arguments& a) { a.stride[0] = 1544; }},
    {"stride[0]: got 1099511627776", [](Arguments& a) { a.stride[0] = cuuint64_t(1) << 40; }},
    {"stride[0]: got 1520", [](Arguments& a) { a.stride[0] = 1520; }},
    {"stride[1]: got 153608", [](Arguments& a) { a.stride[1] = 153608; }},
    {"stride[1]: got 153584", [](Arguments& a) { a.stride[1] = 153584; }},
    {"box[0]: got 0", [](Arguments& a) { a.box[0] = 0; }}, {"box[0]: got 60", [](Arguments& a) { a.box[0] = 60; }},
    {"box[0]: got 72", [](Arguments& a) { a.box[0] = 72; }},
    {"box[1]: got 257", [](Arguments& a) { a.box[1] = 257; }},
    {"box[1]: got 0", [](Arguments& a) { a.box[1] = 0; }}, {"step[1]: got 9", [](Arguments& a) { a.step[1] = 9; }},
};

// ------------------------------------------------------------------------------------------------ a training step

// A preset's numbers by the names of its options.
std::vector<std::pair<std::string, int>> numbers_of(const Preset& preset) {
    std::vector<std::pair<std::string, int>> all;
    std::istringstream words(preset.options);
    for (std::string name, value; words >> name >> value;) all.push_back({name, std::atoi(value.c_str())});
    return all;
}

// Returns why f cannot be captured as a graph, or "".
std::string captured(const std::function<void()>& f) {
    std::string why;
    graph_destroy(graph_capture(f, nullptr, true, &why));
    return why;
}
// Captures a step for B sequences of T tokens. `shift`: of the weights.
std::string capture(const ModelInfo& info, const Shape& shape, int B, int T, int shift = 0) {
    Model model;
    Pass pass;
    const size_t n = arena_layout(info.tensors(shape)).n;
    auto* const weights = static_cast<floatX*>(device_alloc((n + 8) * sizeof(floatX), "weights"));
    auto* const grads = static_cast<float*>(device_alloc(n * sizeof(float), "gradients"));
    model_create(&model, &info, shape, B, T, 0, weights + shift, true);
    model_set_gradients(&model, grads);
    pass.B = B, pass.T = T;
    auto* const tokens = static_cast<int*>(host_alloc(size_t(B) * size_t(T) * sizeof(int), "tokens"));
    auto* const result = static_cast<PassResult*>(device_alloc(sizeof(PassResult), "result"));
    const std::string why = captured([&] { model_forward_backward(&model, pass, result, tokens, tokens); });
    host_free(tokens);
    model_destroy(&model);
    device_free(result);
    device_free(grads);
    device_free(weights);
    return why;
}
void use_tile(const char* name) { name ? setenv("LOCKSTEP_TILE", name, 1) : unsetenv("LOCKSTEP_TILE"); }

}  // namespace

TEST(limits_are_checked) {
    EXPECT(Arguments().encode() == CUDA_SUCCESS, "refused: %s", ptx::map_refused().c_str());
    for (const Fault& fault : kFaults) {
        Arguments a;
        fault.make(a);
        EXPECT(a.encode() == CUDA_ERROR_INVALID_VALUE && ptx::map_refused() == fault.refused, "want '%s', got '%s'",
               fault.refused, ptx::map_refused().c_str());
    }
    Arguments largest;
    largest.size[0] = largest.size[1] = 1 << 16, largest.size[2] = cuuint64_t(1) << 32;
    largest.stride[0] = 1 << 17, largest.stride[1] = (cuuint64_t(1) << 40) - 16;
    largest.box[1] = 256;
    EXPECT(largest.encode() == CUDA_SUCCESS, "refused: %s", ptx::map_refused().c_str());
    // And by the kernels' own call.
    static const bf16* const p = reinterpret_cast<const bf16*>(4096);
    tensor_map(p, 768, 100, 768, 64, 256);
    expect_error(kExitOther, "error 1 for a 100x768 matrix", [] { tensor_map(p, 768, 100, 768, 64, 257); });
    expect_error(kExitOther, "error 1 for a 100x768 matrix", [] { tensor_map(p + 1, 768, 100, 768, 64, 64); });
}

// Captures attention of that shape, forward and backward. `shift`: of qkv.
struct Attention { bf16* qkv; int B, T, NH, NK, HS; };
std::string capture_attention(const Attention& shape, int shift = 0) {
    const size_t n = size_t(shape.B) * size_t(shape.T) * size_t(shape.NH + 2 * shape.NK) * size_t(shape.HS);
    Attention a = shape;
    a.qkv = static_cast<bf16*>(device_alloc((n + 8) * sizeof(bf16), "qkv")) + shift;
    const std::string why = captured([&a] {     // nothing runs: any memory will do
        auto* const f = reinterpret_cast<float*>(a.qkv);
        attention_forward(a.qkv, f, a.qkv, {a.B, a.T, a.NH, a.NK, a.HS});
        attention_backward(a.qkv, f, a.qkv, a.qkv, a.qkv, f, {a.B, a.T, a.NH, a.NK, a.HS});
    });
    device_free(a.qkv - shift);
    return why;
}

TEST(maps_of_grouped_attention) {
    if (!hopper()) SKIP("this GPU has no TMA");
    const struct { int NH, NK; } groups[] = {{14, 2}, {32, 8}, {16, 8}, {9, 3}, {7, 1}};
    for (const auto& g : groups)
        for (const int HS : {64, 128})
            for (const int B : {1, 3, 64})
                for (const int T : {1, 1021, 8192}) {
                    const uint64_t before = ptx::maps_made();
                    const std::string why = capture_attention({nullptr, B, T, g.NH, g.NK, HS});
                    EXPECT(why.empty(), "NH %d, NK %d, HS %d, B %d, T %d: %s (%s)", g.NH, g.NK, HS, B, T, why.c_str(),
                           ptx::map_refused().c_str());
                    EXPECT(ptx::maps_made() == before + 3, "%d maps were made, want 3: qkv twice, dout",
                           int(ptx::maps_made() - before));
                }
    // Negative control: qkv lies 2 bytes off.
    EXPECT(!capture_attention({nullptr, 1, 128, 14, 2, 64}, 1).empty() && ptx::map_refused().find("address") == 0,
           "a qkv that is not aligned is not noticed");
}

TEST(maps_of_every_preset) {
    if (!hopper()) SKIP("this GPU has no TMA");
    scratch(size_t(1) << 34, nullptr);  // it cannot grow while a step is captured
    int steps = 0;
    uint64_t maps = 0;
    for (const ModelInfo* info : all_models()) {
        if (!info->cuda) continue;
        for (const Preset& preset : info->presets())
            for (const int V : {256, 50257})
                for (const int B : {1, 2, 3, 5, 8, 16, 33, 64, 128})
                    for (const char* tile : {"", "wide", "fitting", "pingpong"}) {
                        Shape shape;
                        for (const auto& [name, value] : numbers_of(preset))
                            for (const ShapeKey& key : info->keys)
                                if (name == key.option) key.set(&shape, value);
                        set_vocabulary(&shape, V);
                        EXPECT(info->check(shape).empty(), "%s", preset.name);
                        const int T = B % 2 ? shape.T - 3 : shape.T;  // windows need not be whole
                        use_tile(*tile ? tile : nullptr);
                        const uint64_t before = ptx::maps_made();
                        const std::string why = capture(*info, shape, B, T);
                        use_tile(nullptr);
                        EXPECT(why.empty(), "%s, B %d, T %d, V %d, tile '%s': %s (%s)", preset.name, B, T, V, tile,
                               why.c_str(), ptx::map_refused().c_str());
                        EXPECT(ptx::maps_made() > before, "%s, B %d: no map was made", preset.name, B);
                        maps += ptx::maps_made() - before;
                        steps++;
                    }
    }
    std::printf("%d steps, %zu maps\n", steps, size_t(maps));
    // Negative control: weights that lie 2 bytes off.
    Shape shape;
    shape.L = 1, shape.NH = 2, shape.C = 128, shape.T = 128;
    set_vocabulary(&shape, 256);
    EXPECT(capture(gpt2_info, shape, 2, 128).empty(), "a step is refused");
    EXPECT(!capture(gpt2_info, shape, 2, 128, 1).empty() && ptx::map_refused().find("address") == 0,
           "weights that are not aligned are not noticed");
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    setenv("SOFT_GPU_MEMORY_MB", "4194304", 1);
    return run_tests(argc, argv);
}
