// ops.cpp -- the CPU backend: every operation of kernels.h, cut into tasks for the threads. The loops are in hot.cpp.
//
// Streams: an op runs at once, on the thread that calls it and those of the pool, whatever its Stream says. What should go on
// beside it is given to stream_call.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>
#include "arena.h"
#include "common.h"
#include "hot.h"
#include "threads.h"

namespace BACKEND {

using cpu_threads::parallel_for;
using cpu_threads::caller_buffer;
using cpu_threads::thread_buffer;

// ------------------------------------------------------------------------------------------------ memory and streams

// calloc knows which pages are fresh from the kernel and need no clearing. Its address is kept in front of the aligned one.
void* device_alloc(size_t bytes, const char* what) {
    constexpr size_t kExtra = 64 + sizeof(void*);
    char* raw = bytes <= SIZE_MAX - kExtra ? static_cast<char*>(std::calloc(1, bytes + kExtra)) : nullptr;
    if (!raw) die(kExitOther, "out of memory: %s: wanted %zu bytes; make the model or the batch smaller", what, bytes);
    char* memory = reinterpret_cast<char*>(round_up<uintptr_t>(reinterpret_cast<uintptr_t>(raw) + sizeof(void*), 64));
    std::memcpy(memory - sizeof raw, &raw, sizeof raw);
    cpu_threads::advise_huge_pages(memory, bytes);
    return memory;
}

void device_free(void* memory) {
    if (!memory) return;
    void* raw;
    std::memcpy(&raw, static_cast<char*>(memory) - sizeof raw, sizeof raw);
    std::free(raw);
}

void copy_to_device(void* device, const void* host, size_t bytes, Stream) { std::memcpy(device, host, bytes); }
void copy_to_host(void* host, const void* device, size_t bytes, Stream) { std::memcpy(host, device, bytes); }
void copy_to_host_later(void* host, const void* device, size_t bytes, Stream) { std::memcpy(host, device, bytes); }
void device_zero(void* device, size_t bytes, Stream) { std::memset(device, 0, bytes); }

void* host_alloc(size_t bytes, const char* what) { return device_alloc(bytes, what); }
void host_free(void* memory) { device_free(memory); }
void host_register(void*, size_t) {}

void store_floats(floatX* device, const float* host, size_t n) { hot().store_floats(device, host, n); }
void load_floats(float* host, const floatX* device, size_t n) { hot().load_floats(host, device, n); }

Stream stream_create() { return cpu_threads::stream_create(); }
void stream_destroy(Stream stream) { cpu_threads::stream_destroy(stream); }
void stream_call(Stream stream, void (*function)(void*), void* argument) { cpu_threads::stream_call(stream, function, argument); }
void stream_wait(Stream stream, Stream other) { cpu_threads::stream_wait(stream, other); }
void stream_check(Stream stream) { cpu_threads::stream_check(stream); }
void stream_sync(Stream stream) { cpu_threads::stream_sync(stream); }

// Ops run at once on the thread that calls them, so a mark is the time of the call.
void* stream_native(Stream) { return nullptr; }
struct Noted { double seconds; };
Mark mark_create() { return reinterpret_cast<Mark>(new Noted{0}); }
void mark_destroy(Mark mark) { delete reinterpret_cast<Noted*>(mark); }
void mark_set(Mark mark, Stream) { reinterpret_cast<Noted*>(mark)->seconds = now_seconds(); }
void mark_sync(Mark) {}
bool mark_passed(Mark) { return true; }
void stream_wait_mark(Stream, Mark) {}
double mark_seconds(Mark from, Mark to) { return reinterpret_cast<Noted*>(to)->seconds - reinterpret_cast<Noted*>(from)->seconds; }

int device_count() { return 1; }
const char* device_address() { return ""; }
bool storage_is_fast() { return sizeof(floatX) == sizeof(float) || std::strcmp(hot().name, "amx") == 0; }
double device_peak_flops() { return NAN; }
void device_select(int) {}
void device_memory(size_t* free, size_t* total) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    *total = size_t(sysconf(_SC_PHYS_PAGES)) * page;
    *free = size_t(sysconf(_SC_AVPHYS_PAGES)) * page;
}

void set_threads(int n) { cpu_threads::set_count(n); }
int get_threads() { return cpu_threads::count(); }

const char* device_name() {
    static thread_local std::string name;
    const int n = get_threads();
    name = format("cpu %s, %d thread%s", hot().name, n, n == 1 ? "" : "s");
    return name.c_str();
}

// ----------------------------------------------------------------------------------------------------------- cutting

// f(row, rows) for blocks of rows, of `cols` elements each, that are worth a task: a function of the shape.
template <class F> static void for_rows(int N, int cols, const F& f) {
    constexpr int kElements = 16384;
    const int rows = std::max(1, kElements / std::max(cols, 1));
    parallel_for(ceil_div(N, rows), [&](int task) { f(task * rows, std::min(rows, N - task * rows)); });
}

// f(begin, count) for blocks of units.
template <class F> static void for_units(size_t n, const F& f) {
    constexpr size_t kElements = 8 * kUnit;
    CHECK(n % kUnit == 0, "%zu elements, want a multiple of %zu", n, kUnit);
    parallel_for(int(ceil_div(n, kElements)), [&](int task) {
        const size_t begin = size_t(task) * kElements;
        f(begin, std::min(kElements, n - begin));
    });
}

static Mask mask(const Dropout& drop) {
    if (drop.rate <= 0) return {0, 1, 0, 0, 0, 0, 0};
    const StepState& s = *drop.state;
    return {drop.rate, 1.0f / (1.0f - drop.rate), drop.purpose, s.step, drop.leaf, uint32_t(s.seed), uint32_t(s.seed >> 32)};
}

// ----------------------------------------------------------------------------------------------------------- matmuls

constexpr int kFewRows = 4;         // up to so many rows, packing the weights would cost more than it saves

// `all` in equal pieces of at most `most`, multiples of unit.
static int piece(int all, int most, int unit) { return round_up(ceil_div(all, ceil_div(all, std::max(most, unit))), unit); }

// Tasks are blocks of the output. An element's sum has the same order in every block it could be in, so the cut is free to follow
// the number of threads. Few rows stay together: each task then packs the columns of b that it alone reads. Many are cut so that two
// blocks of k fit (matmul.h).
struct Cut { int rows, cols; };
static Cut cut(int M, int N) {
    const HotLoops& h = hot();
    const int wanted = cpu_threads::count() == 1 ? 1 : 4 * cpu_threads::count();
    const bool few = M <= h.task_rows;
    int rows = few ? h.task_rows : h.task_rows / 2, cols = h.task_cols;
    const auto tasks = [&] { return ceil_div(M, rows) * ceil_div(N, cols); };
    while (tasks() < wanted && (rows > 4 * h.rows || cols > 4 * h.cols)) ((few || rows < cols) && cols > 4 * h.cols ? cols : rows) /= 2;
    return {piece(M, rows, h.rows), piece(N, cols, h.cols)};
}

// The output in parts whose packed operands stay small beside the weights.
static void run_matmul(const Matmul& m) {
    const HotLoops& h = hot();
    CHECK(m.N % 8 == 0 && (m.K % 8 == 0 || !(m.a_rows || m.b_rows)), "matmul: %d x %d x %d, want channels in multiples of 8",
          m.M, m.N, m.K);
    if (m.M <= 0) return;
    if (m.a_rows && m.b_rows && m.M <= kFewRows) {
        const int cols = round_up(std::max(1, 65536 / m.K), h.cols);
        parallel_for(ceil_div(m.N, cols), [&](int task) { h.matvec(m, task * cols, std::min(cols, m.N - task * cols)); });
        return;
    }
    constexpr int kLanes = 2048, kBlocks = 8, kTask = 16384;    // of a part: rows, columns, blocks of k; elements that a task packs
    constexpr int kLines = 48;                                  // lanes side by side that it packs at least: whole cache lines
    const int rows = piece(m.M, kLanes, h.rows), cols = piece(m.N, kLanes, h.cols), deep = std::min(m.K, kBlocks * h.depth(m.K));
    const Cut task = cut(rows, cols);
    const bool pack_b = task.rows < rows;
    const size_t a_bytes = round_up<size_t>(h.packed_size(rows, deep), 64), b_bytes = pack_b ? round_up<size_t>(h.packed_size(cols, deep), 64) : 0;
    char* a = reinterpret_cast<char*>(cpu_threads::caller_buffer((a_bytes + b_bytes) / sizeof(float) + size_t(rows) * size_t(cols)));
    const auto lanes = [&](bool in_rows, int unit) { return round_up(std::max(in_rows ? 1 : kLines, kTask / deep), unit); };
    const int a_lanes = lanes(m.a_rows, h.rows), b_lanes = lanes(m.b_rows, h.cols);
    for (int row = 0; row < m.M; row += rows)
        for (int col = 0; col < m.N; col += cols)
            for (int k = 0; k < m.K; k += deep) {
                const Packing p = {row, std::min(rows, m.M - row), col, std::min(cols, m.N - col), k, std::min(deep, m.K - k),
                                   a, pack_b ? a + a_bytes : nullptr, reinterpret_cast<float*>(a + a_bytes + b_bytes)};
                const int a_tasks = col > 0 && deep == m.K ? 0 : ceil_div(p.rows, a_lanes);                     // there already
                const int b_tasks = !pack_b || (row > 0 && deep == m.K && cols >= m.N) ? 0 : ceil_div(p.cols, b_lanes);
                parallel_for(a_tasks + b_tasks, [&](int i) {
                    const int a_row = i * a_lanes, b_col = (i - a_tasks) * b_lanes;
                    if (i < a_tasks) h.pack_a(m, p, a_row, std::min(a_lanes, p.rows - a_row));
                    else h.pack_b(m, p, b_col, std::min(b_lanes, p.cols - b_col));
                });
                const int row_blocks = ceil_div(p.rows, task.rows);
                parallel_for(row_blocks * ceil_div(p.cols, task.cols), [&](int i) {
                    const int r = i % row_blocks * task.rows, c = i / row_blocks * task.cols;
                    h.matmul(m, p, r, std::min(task.rows, p.rows - r), c, std::min(task.cols, p.cols - c));
                });
            }
}

void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight, const floatX* bias,
                         int N, int C, int OC, Stream) {
    run_matmul({.a = inp, .b = weight, .lda = size_t(C), .ldb = size_t(C), .a_rows = true, .b_rows = true, .M = N, .N = OC, .K = C,
                .epilogue = pre ? Epilogue::kGelu : Epilogue::kStore, .out = out, .pre = pre, .bias = bias, .gradient = nullptr});
}

void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N, int C, int OC, Stream stream) {
    matmul_gelu_forward(out, nullptr, inp, weight, bias, N, C, OC, stream);
}

void gelu_forward(floatX* out, const floatX* pre, size_t n, Stream) {
    constexpr size_t kElements = 16384;
    parallel_for(int(ceil_div(n, kElements)), [&](int task) {
        const size_t begin = size_t(task) * kElements;
        hot().gelu(out + begin, pre + begin, std::min(kElements, n - begin));
    });
}

void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* weight, const floatX* pre, int N, int C, int OC,
                                Stream) {
    run_matmul({.a = dout, .b = weight, .lda = size_t(OC), .ldb = size_t(C), .a_rows = true, .b_rows = false, .M = N, .N = C, .K = OC,
                .epilogue = pre ? Epilogue::kGeluBackward : Epilogue::kStore, .out = dpre, .pre = const_cast<floatX*>(pre),
                .bias = nullptr, .gradient = nullptr});
}

void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C, int OC, Stream stream) {
    matmul_gelu_backward_input(dinp, dout, weight, nullptr, N, C, OC, stream);
}

void matmul_backward_params(float* dweight, float* dbias, const floatX* dout, const floatX* inp, int N, int C, int OC,
                            bool accumulate, Stream) {
    run_matmul({.a = dout, .b = inp, .lda = size_t(OC), .ldb = size_t(C), .a_rows = false, .b_rows = false, .M = OC, .N = C,
                .K = N, .epilogue = accumulate ? Epilogue::kGradientAdd : Epilogue::kGradient, .out = nullptr, .pre = nullptr,
                .bias = nullptr, .gradient = dweight});
    if (!dbias) return;
    constexpr int kCols = 64;
    parallel_for(ceil_div(OC, kCols), [&](int task) {
        hot().column_sums(dbias, dout, N, OC, task * kCols, std::min(kCols, OC - task * kCols), accumulate);
    });
}

// --------------------------------------------------------------------------------------------------------- attention

void attention_forward(floatX* out, float* lse, const floatX* qkv, int B, int T, int NH, int HS, const Dropout& drop, Stream) {
    const size_t C = size_t(NH) * size_t(HS), rows = size_t(T);
    const Mask m = mask(drop);
    parallel_for(B * NH, [&](int head) {
        const size_t b = size_t(head / NH), at = size_t(head % NH) * size_t(HS);
        const floatX* q = qkv + b * rows * 3 * C + at;
        hot().attention_forward({.q = q, .k = q + C, .v = q + 2 * C, .q_stride = 3 * C, .kv_stride = 3 * C, .out_stride = C,
                                 .out = out + b * rows * C + at, .lse = lse + size_t(head) * rows, .queries = T, .first = 0, .HS = HS,
                                 .mask = m, .mask_base = uint64_t(head) * rows * rows, .T = T},
                                thread_buffer(hot().attention_forward_buffer(T, HS)));
    });
}

void attention_cached(floatX* out, floatX* cache, const floatX* qkv, int first, int n, int maxT, int NH, int HS, Stream) {
    CHECK(first >= 0 && n >= 0 && first + n <= maxT, "attention_cached: positions %d to %d, room for %d", first, first + n, maxT);
    const size_t C = size_t(NH) * size_t(HS), H = size_t(HS);
    parallel_for(NH, [&](int head) {
        const floatX* q = qkv + size_t(head) * H;
        floatX* k = cache + size_t(head) * size_t(maxT) * H;
        floatX* v = k + size_t(maxT) * C;
        for (int t = 0; t < n; t++) {
            std::memcpy(k + size_t(first + t) * H, q + size_t(t) * 3 * C + C, H * sizeof(floatX));
            std::memcpy(v + size_t(first + t) * H, q + size_t(t) * 3 * C + 2 * C, H * sizeof(floatX));
        }
        hot().attention_forward({.q = q, .k = k, .v = v, .q_stride = 3 * C, .kv_stride = H, .out_stride = C,
                                 .out = out + size_t(head) * H, .lse = nullptr, .queries = n, .first = first, .HS = HS,
                                 .mask = mask({}), .mask_base = 0, .T = n},
                                thread_buffer(hot().attention_forward_buffer(first + n, HS)));
    });
}

void attention_backward(floatX* dqkv, float* delta, const floatX* dout, const floatX* qkv, const floatX* out, const float* lse,
                        int B, int T, int NH, int HS, const Dropout& drop, Stream) {
    const size_t C = size_t(NH) * size_t(HS), rows = size_t(T);
    const Mask m = mask(drop);
    parallel_for(B * NH, [&](int head) {
        const size_t b = size_t(head / NH), at = size_t(head % NH) * size_t(HS), q = b * rows * 3 * C + at, o = b * rows * C + at;
        hot().attention_backward({.q = qkv + q, .k = qkv + q + C, .v = qkv + q + 2 * C, .out = out + o, .dout = dout + o,
                                  .dq = dqkv + q, .dk = dqkv + q + C, .dv = dqkv + q + 2 * C, .qkv_stride = 3 * C, .out_stride = C,
                                  .lse = lse + size_t(head) * rows, .delta = delta + size_t(head) * rows, .T = T, .HS = HS,
                                  .mask = m, .mask_base = uint64_t(head) * rows * rows},
                                 thread_buffer(hot().attention_backward_buffer(T, HS)));
    });
}

// ---------------------------------------------------------------------------------------------- rows, and the two ends

void embedding_forward(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe, int B, int T, int C, int first,
                       const Dropout& drop, Stream) {
    const Mask m = mask(drop);
    for_rows(B * T, C, [&](int row, int rows) {
        for (int n = row; n < row + rows; n++) {
            const size_t at = size_t(n) * size_t(C);
            hot().embedding(out + at, wte + size_t(tokens[n]) * size_t(C), wpe + size_t(first + n % T) * size_t(C), C, m, at);
        }
    });
}

void embedding_backward(float* dwte, float* dwpe, const floatX* dout, const int* tokens, int B, int T, int C, int maxT,
                        const Dropout& drop, bool accumulate, Stream) {
    constexpr int kCols = 64;
    const Mask m = mask(drop);
    parallel_for(ceil_div(C, kCols), [&](int task) {
        hot().embedding_backward(dwte, dout, tokens, B * T, C, task * kCols, std::min(kCols, C - task * kCols), m);
    });
    for_rows(T, B * C, [&](int row, int rows) {
        for (int t = row; t < row + rows; t++) {
            const size_t at = size_t(t) * size_t(C);
            hot().position_backward(dwpe + at, dout + at, B, size_t(T) * size_t(C), C, m, at, accumulate);
        }
    });
    if (!accumulate) std::memset(dwpe + size_t(T) * size_t(C), 0, size_t(maxT - T) * size_t(C) * sizeof(float));
}

void layernorm_forward(floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* weight, const floatX* bias,
                       int N, int C, Stream stream) {
    residual_layernorm_forward(nullptr, out, mean, rstd, inp, nullptr, weight, bias, N, C, {}, stream);
}

void residual_layernorm_forward(floatX* residual, floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* branch,
                                const floatX* weight, const floatX* bias, int N, int C, const Dropout& drop, Stream) {
    const LayerNorm l = {.residual = residual, .out = out, .mean = mean, .rstd = rstd, .inp = inp, .branch = branch,
                         .weight = weight, .bias = bias, .C = C, .mask = mask(drop)};
    for_rows(N, C, [&](int row, int rows) { hot().layernorm(l, row, rows); });
}

void layernorm_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp, const float* mean,
                        const float* rstd, const floatX* weight, int N, int C, bool first, bool accumulate, Stream) {
    constexpr int kRows = 32;           // each block of rows has its own sums, which then meet in order
    const LayerNormBackward l = {.dinp = dinp, .dout = dout, .inp = inp, .weight = weight, .mean = mean, .rstd = rstd, .C = C,
                                 .first = first};
    const int blocks = ceil_div(N, kRows);
    const size_t stride = 2 * size_t(C);
    float* partials = caller_buffer(std::max<size_t>(1, size_t(blocks)) * stride);       // [block][dweight, dbias][C]
    if (blocks == 0) std::memset(partials, 0, stride * sizeof(float));
    parallel_for(blocks, [&](int block) {
        float* sums = partials + size_t(block) * stride;
        hot().layernorm_backward(l, sums, sums + C, block * kRows, std::min(kRows, N - block * kRows));
    });
    constexpr int kCols = 256;
    parallel_for(ceil_div(C, kCols), [&](int task) {
        const int col = task * kCols, cols = std::min(kCols, C - col);
        hot().add_partials(dweight + col, partials + col, std::max(1, blocks), stride, cols, accumulate);
        hot().add_partials(dbias + col, partials + C + col, std::max(1, blocks), stride, cols, accumulate);
    });
}

void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop, Stream) {
    constexpr size_t kElements = 16384;
    const Mask m = mask(drop);
    parallel_for(int(ceil_div(n, kElements)), [&](int task) {
        const size_t begin = size_t(task) * kElements;
        hot().dropout(dinp + begin, dout + begin, std::min(kElements, n - begin), m, begin);
    });
}

void classifier(float* losses, floatX* logits, const int* targets, int N, int V, int Vp, bool backward, Stream) {
    for_rows(N, Vp, [&](int row, int rows) { hot().classifier(losses, logits, targets, V, Vp, backward, row, rows); });
}

void sum_in_order(double* total, const float* x, size_t n, Stream) {
    double sums[256] = {}, sum = 0;
    for (size_t i = 0; i < n; i++) sums[i % 256] += double(x[i]);
    for (int j = 0; j < 256; j++) sum += sums[j];
    *total = sum;
}

// ------------------------------------------------------------------------- the update, over the arena, cut only at units

void fold(float* out, float* partials, const float* const* terms, int count, Tree tree, size_t n, Stream) {
    CHECK(count > 0 && (tree == Tree::kStack || (count & (count - 1)) == 0), "fold: %d terms", count);
    const bool in_place = count == 1 && terms[0] == out;
    if (in_place && !partials) return;
    for_units(n, [&](size_t begin, size_t elements) {
        for (size_t i = begin; i < begin + elements; i += kUnit) {              // a unit is in the cache still when its squares are summed
            if (!in_place) hot().fold(out, terms, count, tree, i, kUnit);
            if (partials) partials[i / kUnit] = hot().norm(out + i);
        }
    });
}

void clip_scale(StepState* state, double* norm, const float* partials, size_t units, double clip, double tokens, Stream) {
    double sum;
    sum_in_order(&sum, partials, units, nullptr);
    norm[0] = std::sqrt(sum) / tokens;
    const double factor = clip > 0 ? std::fmin(1, clip / (norm[0] + 1e-6)) : 1;
    const bool spike = state->norm_limit > 0 && norm[0] > double(state->norm_limit);
    state->grad_scale = std::isfinite(norm[0]) && !spike ? float(factor / tokens) : NAN;
}

void adamw_update(floatX* param, float* master, float* m, float* v, const float* grad, const uint8_t* decay, size_t n,
                  const AdamW& adamw, const StepState* state, const StateSums& check, Stream) {
    if (!std::isfinite(state->grad_scale)) return;
    for_units(n, [&](size_t begin, size_t elements) {
        for (size_t i = begin; i < begin + elements; i += kUnit) {
            const UnitSums unit = hot().adamw(param + i, master + i, m + i, v + i, grad + i, float(decay[i / kUnit]), adamw, *state);
            if (!check.sums) continue;
            if (check.sums[i / kUnit] != unit.before || !unit.rounded)
                __atomic_store_n(check.changed, uint32_t(i / kUnit + 1), __ATOMIC_RELAXED);
            check.sums[i / kUnit] = unit.after;
        }
    });
}

uint64_t hash_floats(const float* x, size_t n, Stream) {
    std::vector<uint64_t> units(ceil_div(n, kUnit));
    parallel_for(int(ceil_div<size_t>(units.size(), 8)), [&](int task) {
        for (size_t k = size_t(task) * 8; k < std::min(units.size(), size_t(task) * 8 + 8); k++)
            units[k] = hot().hash(x + k * kUnit, std::min(kUnit, n - k * kUnit));
    });
    uint64_t hash = n;
    for (const uint64_t unit : units) hash = hash_mix(hash ^ unit);
    return hash;
}

}  // namespace BACKEND
