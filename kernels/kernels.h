// kernels.h -- declares every operation: its formula, its shapes, whether it writes "=" or "+=".
//
// Sizes   B sequences of T positions, N = B*T rows, C channels, OC output channels, NH heads, NK
//         heads of keys and values, HS head size, V vocabulary, Vp = V rounded up to a multiple of
//         16. C, OC and HS are multiples of 8. Pointers are aligned to 16 bytes, and pointers into
//         the arena to 64.
// Names   dx is the gradient of x. Matrices are row-major; a weight is (outputs, inputs).
//         Statistics and sums are fp32.
// Writes  Activations are written with "=". Parameter gradients, which are fp32, are written with
//         "=", or with "+=" if `accumulate` is set: then the complete sum is added once. Only
//         embedding_backward differs. An operation changes nothing else. Arrays overlap only where
//         "may be" says so. B, T, N, n and units may be 0: then only sums and, with "=", parameter
//         gradients are written, as 0.
// On one device_kind a result's bits depend on the arguments alone (docs/arithmetic.md). A backend
// is a namespace with these operations; a test can link several.
#include <functional>
#include <string>
#include "src/base/numbers.h"

#ifndef LOCKSTEP_BACKENDS
#define LOCKSTEP_BACKENDS
// The version of the rules in docs/arithmetic.md. It is part of a CPU's device_kind.
#define ARITHMETIC ", arithmetic 2"
// The backends. ref, ref16 and ref64 are the specification: plain loops that compute in `real`.
namespace ref { using floatX = float; using real = float; constexpr bool kOnGpu = false; }
namespace ref16 { using floatX = bf16; using real = float; constexpr bool kOnGpu = false; }
namespace ref64 { using floatX = float; using real = double; constexpr bool kOnGpu = false; }
namespace cpu { using floatX = float; constexpr bool kOnGpu = false; }
namespace cpu16 { using floatX = bf16; constexpr bool kOnGpu = false; }
namespace gpu { using floatX = bf16; constexpr bool kOnGpu = true; }
#endif

#ifndef OPERATIONS_DECLARED  // by this backend; a test of two undefines it and includes this again
#define OPERATIONS_DECLARED
namespace BACKEND {
// ---------------- memory and streams

// These return zeroed memory, aligned to 64 bytes, or throw an Error that names `what`. The host's
// memory is pinned for a GPU, so that copies are fast.
void* device_alloc(size_t bytes, const char* what);
void device_free(void* memory);
void* host_alloc(size_t bytes, const char* what);
void host_free(void* memory);

// copy_to_host returns when the bytes are there. copy_to_device may return before it has read
// `host`, which must not change until then. copy_to_host_later may return before it has written
// `host`. Wait for either by event_sync or stream_sync.
void copy_to_device(void* device, const void* host, size_t bytes, Stream stream = nullptr);
void copy_to_host(void* host, const void* device, size_t bytes, Stream stream = nullptr);
void copy_to_host_later(void* host, const void* device, size_t bytes, Stream stream = nullptr);
void device_zero(void* device, size_t bytes, Stream stream = nullptr);
// poison writes kPoison (numbers.h) to elements 0, step, 2 step, ... of n. find_poison searches
// these elements: if x[i] is the first that holds it, left[0] = max(left[0], end - (x + i)), where
// `end` is that of x's arena.
void poison(float* x, size_t n, size_t step, Stream stream = nullptr);
void find_poison(uint64_t* left, const float* x, size_t n, size_t step, const float* end,
                 Stream stream = nullptr);
// store_floats converts n floats to floatX, rounded to nearest even, and load_floats converts them
// back. Both arrays are in host memory.
void store_floats(floatX* stored, const float* floats, size_t n);
void load_floats(float* floats, const floatX* stored, size_t n);

// A stream is a queue of work that runs in order; null is the main stream, on which models work. On
// a CPU the main stream's work is done when the call returns; another stream is a thread.
Stream stream_create();
void stream_destroy(Stream stream);
void stream_call(Stream stream, std::function<void()> call);    // a CPU's thread calls it in turn
void stream_wait(Stream stream, Stream other);    // later work waits for what is on `other` now
void stream_sync(Stream stream);    // waits until it is empty; an Error of its work is thrown here
void* stream_native(Stream stream);    // GPUs only: the cudaStream_t, for libraries
// Persistent kernels launched from now on leave `count` multiprocessors free for other streams.
void spare_multiprocessors(int count);

// An event is a point in a stream's work. On a CPU, and if never recorded, it counts as passed.
using Event = struct EventTag*;
Event event_create();
void event_destroy(Event event);
void event_record(Event event, Stream stream);    // it is passed after the work that is there now
void event_sync(Event event);    // the caller waits until it is passed
bool event_done(Event event);    // whether it is passed; does not wait
void stream_wait_event(Stream stream, Event event);  // later work on `stream` waits for it
double event_seconds(Event from, Event to);    // between two events that are passed

// GPUs only: a CUDA graph launches recorded work at once. graph_capture records the work that
// enqueue() puts on the main stream, and on `joined` after a stream_wait for the main stream; this
// work does not run. If something cannot be recorded, it returns null and sets `why`. `dependent`:
// programmatic dependent launches are recorded as such, and not as plain launches. graph_launch
// runs the work with the same memory and events. It returns false and launches nothing if work
// space has moved since; then the caller has to capture again.
using Graph = struct GraphTag*;
Graph graph_capture(const std::function<void()>& enqueue, Stream joined, bool dependent,
                    std::string* why);
bool graph_launch(Graph graph);
void graph_destroy(Graph graph);

int device_count();    // usable devices of this kind; 0 if there is none, or no driver
// GPUs only: this process uses device `index` from now on, by CPUs near it.
void device_select(int index);
void device_memory(size_t* free, size_t* total);     // in bytes
const char* device_name();    // "cpu avx2, 2 threads"
const char* device_kind();    // "cpu fma, arithmetic 2": devices of one kind round alike
const char* device_address();    // address on the PCI bus, "0000:1b:00.0"; "" for a CPU
Sensors device_sensors();    // at most a second old; call it while the device computes
bool storage_is_fast();    // whether the device is fast with floatX: then --dtype auto takes it
double device_peak_flops();    // per second: dense bf16, from the data sheet; NaN if unknown
void set_threads(int n);    // CPU threads of this process (0: what affinity and cgroup allow)
int get_threads();

// ---------------- forward

// out[b,t,:] = drop(wte[tokens[b,t],:] + wpe[p,:]), where p = t - begin[b,t]
//   out (B,T,C), tokens (B,T) in 0..V-1, wte (Vp,C), wpe (T,C), or null if there are no position
//   embeddings. begin is that of Embedding (numbers.h), drop() the Dropout of numbers.h; an
//   element's index is its place in the flat array (attention has an index of its own)
void embedding_forward(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe,
                       const Embedding& embedding, Stream stream = nullptr);

// LayerNorm: out = (inp - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps); var is the
// biased variance. If mean is null it is RMSNorm (Zhang and Sennrich 2019): 0 takes the mean's
// place, var is the mean of inp^2, and bias is null. Every backend's forward names all members, by
// `const auto& [N, C, ...] = norm`: with a new member none compiles until it names it, too.
struct LayerNorm {
    int N, C;                               // on a GPU C is at most kGpuChannels
    floatX *inp, *out;                      // (N,C)   inp is the residual stream
    float *mean = nullptr, *rstd;           // (N)
    const floatX *weight, *bias = nullptr;  // (C)
    float eps;
};

// Computes norm.out, norm.rstd and, unless it is null, norm.mean from norm.inp.
void layernorm_forward(const LayerNorm& norm, Stream stream = nullptr);
// norm.inp = inp + drop(branch), then layernorm_forward(norm), which reads norm.inp as it is stored
//   inp, branch (N,C); norm.inp, the new residual, may be inp
void residual_layernorm_forward(const LayerNorm& norm, const floatX* inp, const floatX* branch,
                                const Dropout& drop, Stream stream = nullptr);

// out = inp weight^T + bias    inp (N,C), weight (OC,C), bias (OC) or null, out (N,OC)
void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N,
                    int C, int OC, Stream stream = nullptr);
// pre = inp weight^T + bias; out = gelu(pre): x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight,
                         const floatX* bias, int N, int C, int OC, Stream stream = nullptr);
// out = gelu(pre), the same bits as matmul_gelu_forward gave    (n), n a multiple of 8
void gelu_forward(floatX* out, const floatX* pre, size_t n, Stream stream = nullptr);

// Causal attention, per head: out_t = sum_u drop(p_tu) v_u, p_tu = exp(scale q_t.k_u - lse_t),
// lse_t = log sum_u exp(scale q_t.k_u), where begin[b,t] <= u <= t.
//   qkv (B,T,NH+2NK,HS), out (B,T,NH,HS), lse (B,NH,T)
//   Sizes, dropout, scale and begin are those of Attention (numbers.h). A row of qkv holds q of NH
//   heads, k of NK heads and v of NK heads; query head h reads k and v of head h / (NH/NK), rounded
//   down.
void attention_forward(floatX* out, float* lse, const floatX* qkv, const Attention& attention,
                       Stream stream = nullptr);

// Computes the same for T new positions of one sequence, after `first` positions in the cache, and
// appends their k and v to the cache. B must be 1 and the dropout rate 0. begin (T) counts keys
// from the cache's first one.
//   qkv (T,NH+2NK,HS), cache (2,NK,maxT,HS), out (T,NH,HS); first + T <= maxT
void attention_cached(floatX* out, floatX* cache, const floatX* qkv, int first, int maxT,
                      const Attention& attention, Stream stream = nullptr);

// Computes softmax and cross entropy by row: losses[i] = -log softmax(logits_i)[targets[i]] over
// the first V columns. With `backward` the logits become their gradient: softmax - onehot, not
// scaled by 1/N, and 0 in columns V..Vp-1.
//   logits (N,Vp), losses (N), targets (N) in 0..V-1, or -1 for a row whose loss and gradient are 0
void classifier(float* losses, floatX* logits, const int* targets, int N, int V, int Vp,
                bool backward, Stream stream = nullptr);

// total[0] = sum of x in double: s_j, j < 256, takes elements j, j+256, ...; then (s_0 + s_1) + ...
void sum_in_order(double* total, const float* x, size_t n, Stream stream = nullptr);

// ---------------- backward
// dwte[tokens[b,t],:] += drop(dout[b,t,:]), one row after another, in the order of (b,t), whether
// or not `accumulate` is set; dwpe[t,:] (+)= sum_b drop(dout[b,t,:]). With begin dwpe takes rows as
// dwte does: dwpe[t - begin[b,t],:] += drop(dout[b,t,:]), after all of it has become 0 unless
// `accumulate` is set.
//   dout (B,T,C); dwte (Vp,C), which already holds the head's gradient, or null: then dwpe is not
//   written, either; dwpe (maxT,C) or null; with "=" its rows from T on become 0
void embedding_backward(float* dwte, float* dwpe, const floatX* dout, const int* tokens, int maxT,
                        const Embedding& embedding, bool accumulate, Stream stream = nullptr);

// dinp += the gradient through LayerNorm, or "=" if `first` is set; dinp is the residual stream's
// gradient. dweight and dbias (+)= sums over rows; for RMSNorm dbias is null. It reads of norm all
// but out, bias and eps.
void layernorm_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout,
                        const LayerNorm& norm, bool first, bool accumulate,
                        Stream stream = nullptr);

// dinp = drop(dout), with forward's mask    (n), n a multiple of 8; dinp may be dout
void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop,
                      Stream stream = nullptr);

// dinp = dout weight    dout (N,OC), weight (OC,C), dinp (N,C)
void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C,
                           int OC, Stream stream = nullptr);
// dpre = (dout weight) * gelu'(pre)    dout (N,OC), weight (OC,C), pre, dpre (N,C); dpre may be pre
void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* weight,
                                const floatX* pre, int N, int C, int OC, Stream stream = nullptr);
// dweight (+)= dout^T inp,  dbias (+)= sum over rows of dout    dweight (OC,C), dbias (OC) or null
void matmul_backward_params(float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                            int N, int C, int OC, bool accumulate, Stream stream = nullptr);

// dqkv = the gradient through attention_forward, dk and dv of all heads that read k and v
//   delta: work space (B,NH,T)
void attention_backward(floatX* dqkv, float* delta, const floatX* dout, const floatX* qkv,
                        const floatX* out, const float* lse, const Attention& attention,
                        Stream stream = nullptr);

// ---------------- the update, over the arena

// out[i] = sum(0,count), a sum of terms[0..count-1][i]: the only addition of different replicas'
// gradients, unless --reduce nccl lets NCCL add them.
//   sum(lo,1) = terms[lo], and for n > 1
//   Tree::kBalanced: sum(lo,n) = sum(lo,n/2) + sum(lo+n/2,n/2), where count is a power of two
//   Tree::kNested: sum(lo,n) = terms[lo] + sum(lo+1,n-1), for a rank's own buffers (numbers.h)
//   n is a multiple of kUnit; out may be any of the terms; on a GPU count is at most kGpuTerms
// If partials is not null, partials[k] = the sum of squares of unit k of out, in float: partial sum
// s_j, j < 16, takes elements j, j+16, ... in order; then ((s_0 + s_1) + s_2) + ... + s_15.
void tree_reduce(float* out, float* partials, const float* const* terms, int count, Tree tree,
                 size_t n, Stream stream = nullptr);

// norm[0] = sqrt(sum_in_order of partials) / tokens, as torch.nn.utils.clip_grad_norm_ computes it;
// state->grad_scale = min(1, clip / (norm + 1e-6)) / tokens, 1 / tokens where clip <= 0, NaN where
// norm is not finite.    partials (units); tokens: state->tokens
void clip_scale(StepState* state, double* norm, const float* partials, size_t units, double clip,
                Stream stream = nullptr);

// The arrays of one stage of an optimizer's rule. Every backend names all members, as LayerNorm's.
struct Update {
    size_t n;                       // a multiple of kUnit
    floatX* param;                  // (n)   master rounded; with floatX = float it may be master
    float *master, *const *state;   // (n), each (n)   weights in fp32; the stage's state arrays
    const float* grad;              // (n)   may be master
    const Rates* rates;             // (n / kUnit)   the rates of each unit
    const StepState* step;
};

// Runs one stage of an optimizer's rule on every element; writes param, master and state. The rule
// is NAME_rule::element of optimizers/NAME.h, NAME is number `optimizer` of optimizers/list. Each
// operation is rounded to float, as written. If step->grad_scale is not finite, nothing is written.
void update(int optimizer, int stage, const Update& arrays, Stream stream = nullptr);

// Returns a hash of n elements' bits; the last unit may be short. mix is mix64 (numbers.h).
//   unit k:  u_k = sum over its elements i = 0, 1, ... of mix((i + 1) << 32 | its bits)  (mod 2^64)
//   whole:   h = n;  for k = 0, 1, ...: h = mix(h ^ u_k)
uint64_t hash_floats(const float* x, size_t n, Stream stream = nullptr);

}  // namespace BACKEND
#endif
