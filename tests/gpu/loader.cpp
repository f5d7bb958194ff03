// loader.cpp -- what is between a program and its kernels: the PTX in it, launches, descriptions of tensors for TMA,
// and the libraries that it loads.
//
// nvcc registers for each .cu file a "fat binary" with PTX for several architectures, and each kernel's address on the
// host and name in it. A kernel is parsed when it is launched for the first time.
#include "tests/gpu/runtime.h"
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <unordered_map>
#include <vector>
#include <cuda.h>
#include "tests/gpu/count.h"

namespace ptx {
namespace {

struct FatBinary {
    std::vector<std::string> texts;
    std::vector<std::unique_ptr<Module>> modules;       // of this architecture, when a kernel was asked for
};
struct Function {
    FatBinary* binary;
    std::string name;
    size_t dynamic_limit = 0;       // cudaFuncSetAttribute; 0: 48 KB, static arrays included
    Kernel* kernel = nullptr;
};

std::unordered_map<const void*, Function>& functions() {
    static auto* const all = new std::unordered_map<const void*, Function>;     // used until the process ends
    return *all;
}

[[noreturn]] void stop(const char* why) {
    std::fprintf(stderr, "software GPU: %s\n", why);
    std::abort();
}

template <class T> T read_at(const unsigned char* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

// SOFT_GPU_PATCH="WORD<tab>REGEX<tab>TEXT": in every line that has the word the regex's match becomes the text.
std::string patched(const std::string& text) {
    const char* const patch = std::getenv("SOFT_GPU_PATCH");
    if (!patch) return text;
    const std::string all = patch;
    const size_t first = all.find('\t'), second = all.find('\t', first + 1);
    if (second == all.npos) stop("SOFT_GPU_PATCH: want WORD<tab>REGEX<tab>TEXT");
    const std::string word = all.substr(0, first), to = all.substr(second + 1);
    const std::regex from(all.substr(first + 1, second - first - 1));
    std::string result;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        result += (line.find(word) == line.npos ? line : std::regex_replace(line, from, to)) + '\n';
        at = end + 1;
    }
    return result;
}

// Returns the number of an architecture: 90 of ".target sm_90a".
int target_of(const std::string& text) {
    const size_t at = text.find(".target sm_");
    return at == text.npos ? 0 : std::atoi(text.c_str() + at + 11);
}

// Returns the kernel, parsed; null if the program has none for this architecture.
Kernel* kernel_of(Function& f) {
    if (f.kernel) return f.kernel;
    FatBinary& binary = *f.binary;
    int newest = 0;
    for (const std::string& text : binary.texts)
        if (const int target = target_of(text); target <= architecture()) newest = std::max(newest, target);
    if (binary.modules.empty())
        for (const std::string& text : binary.texts)
            if (target_of(text) == newest) binary.modules.push_back(std::make_unique<Module>(patched(text)));
    for (const auto& module : binary.modules) {
        f.kernel = module->find(f.name);
        if (!f.kernel) continue;
        f.kernel->module = module->target;
        break;
    }
    return f.kernel;
}

// Returns what the hardware refuses of a launch; "" if nothing.
std::string wrong_sizes(const Kernel& k, const Function& f, const cudaLaunchConfig_t& c) {
    const dim3 grid = c.gridDim, block = c.blockDim;
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z) return "the grid or the block is empty";
    if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) return "the grid is too large";
    const uint64_t threads = uint64_t(block.x) * block.y * block.z;
    if (threads > 1024 || block.z > 64 || threads > uint64_t(k.max_threads))
        return format("the block is too large: got %llu threads, want at most %d",
                      static_cast<unsigned long long>(threads), k.max_threads);
    const size_t all = size_t(k.dynamic_at) + c.dynamicSmemBytes;
    const size_t limit = f.dynamic_limit ? shared_memory_of_block() : 48 * 1024;
    if (all > limit || (f.dynamic_limit && c.dynamicSmemBytes > f.dynamic_limit))
        return format("shared memory: got %zu bytes, want at most the %zu that were asked for and %zu in all", all,
                      f.dynamic_limit, limit);
    return "";
}

cudaError_t launch(const cudaLaunchConfig_t& c, const void* host, void** arguments) {
    const auto f = functions().find(host);
    if (f == functions().end()) return refuse(cudaErrorInvalidDeviceFunction);
    const Kernel* k = nullptr;
    while_idle([&] { k = kernel_of(f->second); });
    if (!k)
        return refuse(cudaErrorNoKernelImageForDevice,
                      format("%s: no PTX for sm_%d in this program", f->second.name.c_str(), architecture()));
    if (const std::string wrong = wrong_sizes(*k, f->second, c); !wrong.empty())
        return refuse(cudaErrorInvalidConfiguration, k->name + ": " + wrong);
    Launch l = {f->second.kernel, {c.gridDim.x, c.gridDim.y, c.gridDim.z},
                {c.blockDim.x, c.blockDim.y, c.blockDim.z}, c.dynamicSmemBytes,
                std::vector<char>(size_t(k->param_bytes), char(0xff)), false};
    for (size_t i = 0; i < k->params.size(); i++)
        std::memcpy(l.params.data() + k->params[i].offset, arguments[i], size_t(k->params[i].size));
    for (unsigned i = 0; i < c.numAttrs; i++) {
        if (c.attrs[i].id != cudaLaunchAttributeProgrammaticStreamSerialization)
            return refuse(cudaErrorNotSupported, format("%s: launch attribute %d", k->name.c_str(), c.attrs[i].id));
        l.dependent = c.attrs[i].val.programmaticStreamSerializationAllowed;
    }
    const bool dependent = l.dependent;
    return append_kernel(c.stream, k->name, dependent, [l = std::move(l)] { run(l); });
}

struct CallConfiguration {
    dim3 grid, block;
    size_t smem;
    cudaStream_t stream;
};
thread_local CallConfiguration called;          // between <<<...>>> and the call behind it

uint64_t maps = 0;
std::string refused;

// Notes what is wrong with a description.
CUresult wrong(const char* what, unsigned i, uint64_t value) {
    refused = format("%s[%u]: got %llu", what, i, static_cast<unsigned long long>(value));
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

uint64_t maps_made() { return maps; }
const std::string& map_refused() { return refused; }

}  // namespace ptx

using namespace ptx;

extern "C" {

// ------------------------ the program's kernels

void** __cudaRegisterFatBinary(void* wrapper) {
    struct Wrapper {
        int magic, version;
        const unsigned char* data;
        void* file;
    };
    FatBinary* const binary = new FatBinary;
    const unsigned char* const start = static_cast<const Wrapper*>(wrapper)->data;
    if (read_at<uint32_t>(start) != 0xba55ed50u) stop("the program holds no fat binary");
    const unsigned char* at = start + read_at<uint16_t>(start + 6);
    const unsigned char* const end = at + read_at<uint64_t>(start + 8);
    while (at < end) {
        const uint16_t kind = read_at<uint16_t>(at);
        const uint32_t header = read_at<uint32_t>(at + 4);
        const uint64_t size = read_at<uint64_t>(at + 8);
        if (kind == 1) {            // PTX; machine code is of no use here
            const char* const text = reinterpret_cast<const char*>(at + header);
            binary->texts.emplace_back(text, strnlen(text, size));
            if (!target_of(binary->texts.back())) stop("compressed PTX: compile with --no-compress");
        }
        at += header + size;
    }
    return reinterpret_cast<void**>(binary);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    count_name(name);
    functions()[host] = {reinterpret_cast<FatBinary*>(binary), name};
}

cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
    const auto f = functions().find(host);
    if (f == functions().end()) return refuse(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || size_t(value) > shared_memory_of_block())
        return refuse(cudaErrorInvalidValue, format("%d bytes of shared memory: sm_%d has %zu for a block", value,
                                                    architecture(), shared_memory_of_block()));
    f->second.dynamic_limit = size_t(value);
    return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** arguments) {
    try {
        return launch(*config, host, arguments);
    } catch (const Error& e) {          // PTX that the parser does not know
        return refuse(cudaErrorInvalidPtx, e.what());
    }
}
cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, size_t smem,
                             cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = smem, config.stream = stream;
    return cudaLaunchKernelExC(&config, host, arguments);
}

// What nvcc makes of kernel<<<grid, block, smem, stream>>>(...).
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t smem, CUstream_st* stream) {
    called = {grid, block, smem, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* smem, void* stream) {
    *grid = called.grid, *block = called.block, *smem = called.smem;
    *static_cast<cudaStream_t*>(stream) = called.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t smem,
                               cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, smem, stream);
}

// ------------------------ TMA

// The driver's function, with the limits that cuda.h documents, for what kernels here use: bf16, no interleaving, boxes
// of whole swizzled rows, zeros outside.
CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* size, const cuuint64_t* stride, const cuuint32_t* box,
                                const cuuint32_t* step, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill outside) {
    static const unsigned kSpan[] = {0, 32, 64, 128};       // by swizzle, bytes
    constexpr uint64_t kLargestSize = uint64_t(1) << 32, kLargestStride = uint64_t(1) << 40;
    if (type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        outside != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || size_t(swizzle) >= std::size(kSpan))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (uintptr_t(out) % 64 || rank < 1 || rank > 5) return wrong("rank", rank, uintptr_t(out));
    if (uintptr_t(address) % 16) return wrong("address", 0, uintptr_t(address));
    TensorMap map = {};
    map.magic = kMapMagic, map.type = type, map.rank = rank, map.swizzle = swizzle, map.address = uint64_t(address);
    uint64_t distance = 2;          // of neighbours along this dimension, at least
    for (cuuint32_t i = 0; i < rank; i++) {
        if (size[i] < 1 || size[i] > kLargestSize) return wrong("size", i, size[i]);
        if (box[i] < 1 || box[i] > 256) return wrong("box", i, box[i]);
        if (step[i] < 1 || step[i] > 8) return wrong("step", i, step[i]);
        if (step[i] != 1) return CUDA_ERROR_NOT_SUPPORTED;
        map.size[i] = size[i], map.box[i] = uint16_t(box[i]), map.step[i] = 1;
        distance *= size[i];
        if (i + 1 == rank) break;
        if (stride[i] % 16 || stride[i] >= kLargestStride || stride[i] < distance) return wrong("stride", i, stride[i]);
        map.stride[i] = distance = stride[i];
    }
    const unsigned row = box[0] * 2, span = kSpan[swizzle];
    if (row % 16 || (span && row > span)) return wrong("box", 0, box[0]);
    if (span && row != span) return CUDA_ERROR_NOT_SUPPORTED;
    maps++;
    std::memset(out, 0, sizeof *out);
    std::memcpy(out, &map, sizeof map);
    return CUDA_SUCCESS;
}

// ------------------------ libraries

// Programs are linked with --wrap=dlopen,--wrap=dlsym: the driver's library and NCCL's are here.
static char driver_library, nccl_library;
void* __real_dlopen(const char* file, int flags);
void* __real_dlsym(void* library, const char* name);
void* __wrap_dlopen(const char* file, int flags) {
    if (file && !std::strcmp(file, "libcuda.so.1")) return &driver_library;
    if (file && !std::strcmp(file, "libnccl.so.2")) return &nccl_library;
    return __real_dlopen(file, flags);
}
void* __wrap_dlsym(void* library, const char* name) {
    if (library == &nccl_library) return nccl_function(name);
    if (library != &driver_library) return __real_dlsym(library, name);
    return std::strcmp(name, "cuTensorMapEncodeTiled") ? nullptr : reinterpret_cast<void*>(cuTensorMapEncodeTiled);
}

}  // extern "C"
