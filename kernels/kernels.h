// kernels.h -- every operation once: its formula, its shapes, whether it writes "=" or "+=", and what may alias.
//
// Sizes   B batch, T positions, N = B*T rows, C channels, NH heads, HS = C/NH head size, V vocabulary, Vp = V rounded up to 16.
//         C, OC and HS are multiples of 8; pointers are aligned to 16 bytes, those into the arena to 64.
// Names   gradient = "d" + name. Matrices are row-major; a weight is (outputs, inputs).
// Types   floatX is the backend's storage type. Arithmetic is float; sums over rows are float unless said.
// Writes  activations "="; parameter gradients are fp32 and "=" when accumulate is false, "+=" when true (the new sum is
//         complete before the one add, so that "+=" onto zeros equals "="). The residual stream's gradient is "+=".
//         What an op does not write it leaves alone. Arrays do not overlap but where "may be" says so.
// Dropout drop() is of types.h; an element's index is its place in the flat array (attention states its own).
// Promise the bits of a result depend on the arguments alone, never on the number of threads or on timing.
//
// A backend is a namespace that defines all of these: ref (ref.cpp, plain loops: the specification), cpu (cpu/), and the
// CUDA ones. No include guard: a test includes this file once per backend, with another BACKEND each time.
#include <string>
#include "types.h"

#ifndef LOCKSTEP_BACKENDS
#define LOCKSTEP_BACKENDS
namespace ref { using floatX = float; constexpr bool kOnGpu = false; }
namespace ref16 { using floatX = bf16; constexpr bool kOnGpu = false; }
namespace cpu { using floatX = float; constexpr bool kOnGpu = false; }
namespace cpu16 { using floatX = bf16; constexpr bool kOnGpu = false; }
namespace gpu { using floatX = bf16; constexpr bool kOnGpu = true; }
namespace emu { using floatX = bf16; constexpr bool kOnGpu = true; }
#endif

namespace BACKEND {

// ------------------------------------------------------------------------------------------------ memory and streams

// Zeroed memory of the device, 64-byte aligned; an Error (code 1) that says how much was asked when there is none.
void* device_alloc(size_t bytes, const char* what);
void device_free(void* memory);
void copy_to_device(void* device, const void* host, size_t bytes, Stream stream);   // host memory must stay until the stream is there
void copy_to_host(void* host, const void* device, size_t bytes, Stream stream);     // returns when the bytes have arrived
void copy_to_host_later(void* host, const void* device, size_t bytes, Stream stream);   // when the stream gets there; see mark_sync
void device_zero(void* device, size_t bytes, Stream stream);

// floatX <-> float, host side, round to nearest even.
void store_floats(floatX* device, const float* host, size_t n);
void load_floats(float* host, const floatX* device, size_t n);

// Streams: queues of work, each in order. null is the main stream: on a CPU what is put there is done when the call returns, on a GPU
// it is a queue like the others. A CPU's second stream is a thread that runs what stream_call gives it.
Stream stream_create();
void stream_destroy(Stream stream);
void stream_call(Stream stream, void (*function)(void*), void* argument);   // host work in the stream's order; it may not put work on a GPU
void stream_wait(Stream stream, Stream other);   // what comes next on `stream` starts after all that was put on `other` so far
void stream_check(Stream stream);                // an Error of a host function inside it is thrown here; waits for nothing
void stream_sync(Stream stream);                 // the caller waits until `stream` is empty; an Error inside it is thrown here
void* stream_native(Stream stream);              // the cudaStream_t, for libraries; null on a CPU

// A point in a stream's work: mark_set puts it behind what the stream has, others wait until it is passed, and two that were
// passed tell the time between them.
using Mark = struct MarkTag*;
Mark mark_create();
void mark_destroy(Mark mark);
void mark_set(Mark mark, Stream stream);
void mark_sync(Mark mark);                           // the caller waits; for one never set, not at all
bool mark_passed(Mark mark);                         // does not wait
void stream_wait_mark(Stream stream, Mark mark);     // what comes next on `stream` waits; for one never set, not at all
double mark_seconds(Mark from, Mark to);

// GPUs only: work that repeats, as one launch. graph_capture keeps what work(argument) puts on the main stream, and on `joined` behind a
// stream_wait for it, instead of running it; memory and marks it names are read and set again by every launch. Null where something of it
// cannot be kept, `why` says what. graph_launch puts it on the main stream; false: the kernels' work space has moved, capture again.
using Graph = struct GraphTag*;
Graph graph_capture(void (*work)(void*), void* argument, Stream joined, std::string* why);
bool graph_launch(Graph graph);
void graph_destroy(Graph graph);

void* host_alloc(size_t bytes, const char* what);    // zeroed host memory that copies to and from the device run fast with
void host_free(void* memory);
void host_register(void* memory, size_t bytes);      // makes memory that is there already as good, if the system allows it

int device_count();                                  // devices of this kind that answer; 0: none, or no driver
void device_select(int index);                       // this process uses that one
void device_memory(size_t* free, size_t* total);     // bytes

void set_threads(int n);                         // CPU threads of this process (0: what affinity and cgroup allow); a GPU ignores it
int get_threads();
const char* device_name();                       // "cpu avx2, 2 threads": what stands before the comma is the kind, alike on all ranks
const char* device_address();                    // of a GPU on the PCI bus, "0000:1b:00.0"; "" for a CPU
bool storage_is_fast();                          // floatX is the type to take: bf16 on a GPU and where a CPU multiplies it
double device_peak_flops();                      // dense bf16, fp32 sums, from the data sheet; NaN where it is not known

// ---------------------------------------------------------------------------------------------------------- forward

// out[b,t,:] = drop(wte[tokens[b,t],:] + wpe[first + t,:])          out (B,T,C), tokens (B,T) in 0..V-1, wte (Vp,C), wpe (maxT,C)
void embedding_forward(floatX* out, const int* tokens, const floatX* wte, const floatX* wpe, int B, int T, int C, int first,
                       const Dropout& drop, Stream stream);

// LayerNorm: out = (inp - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + 1e-5), var biased      inp, out (N,C), mean, rstd (N)
// On a GPU C is at most kGpuChannels.
void layernorm_forward(floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* weight, const floatX* bias,
                       int N, int C, Stream stream);

// residual = inp + drop(branch);  out = LayerNorm(residual)         all (N,C); residual may be inp
void residual_layernorm_forward(floatX* residual, floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* branch,
                                const floatX* weight, const floatX* bias, int N, int C, const Dropout& drop, Stream stream);

// out = inp weight^T + bias                                         inp (N,C), weight (OC,C), bias (OC) or null, out (N,OC)
void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N, int C, int OC, Stream stream);

// pre = inp weight^T + bias;  out = gelu(pre), gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))     pre, out (N,OC)
void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight, const floatX* bias,
                         int N, int C, int OC, Stream stream);

// out = gelu(pre), the same bits as matmul_gelu_forward gave: for a backward that did not keep them      pre, out (n), n a multiple of 8
void gelu_forward(floatX* out, const floatX* pre, size_t n, Stream stream);

// Causal attention, per head: out_t = sum_{u<=t} drop(p_tu) v_u,  p_tu = exp(q_t.k_u / sqrt(HS) - lse_t),
// lse_t = log sum_{u<=t} exp(q_t.k_u / sqrt(HS)).                   qkv (B,T,3,NH,HS), out (B,T,NH,HS), lse (B,NH,T)
// HS is a multiple of 8 up to 128. Dropout's element index is ((b*NH + h)*T + t)*T + u.
void attention_forward(floatX* out, float* lse, const floatX* qkv, int B, int T, int NH, int HS, const Dropout& drop, Stream stream);

// The same for n new positions at the end of `first` cached ones, one sequence: appends their k and v to the cache, no dropout.
// qkv (n,3,NH,HS), cache (2,NH,maxT,HS), out (n,NH,HS); first + n <= maxT.
void attention_cached(floatX* out, floatX* cache, const floatX* qkv, int first, int n, int maxT, int NH, int HS, Stream stream);

// Softmax and cross entropy of each row: losses[i] = -log softmax(logits_i)[targets[i]] over the first V columns.
// With `backward` logits become their gradient, softmax - onehot (columns V..Vp-1 become 0); not scaled by 1/N. Without it they
// are only read.                                                    logits (N,Vp), targets (N) in 0..V-1, losses (N)
void classifier(float* losses, floatX* logits, const int* targets, int N, int V, int Vp, bool backward, Stream stream);

// total[0] = sum of x[0..n-1] in double, in a fixed order: sum j of 256 starts at 0 and takes elements j, j+256, ... in order; then
// ((s0 + s1) + s2) + ... + s255.
void sum_in_order(double* total, const float* x, size_t n, Stream stream);

// --------------------------------------------------------------------------------------------------------- backward

// dwte[tokens[b,t],:] += drop(dout[b,t,:]), rows in order of (b,t); dwpe[t,:] (+)= sum_b drop(dout[b,t,:]).
// dwte is always "+=": the head has written it already (tied weights). dwpe rows T..maxT-1 are 0 with "=", untouched with "+=".
// dout (B,T,C), dwte (Vp,C), dwpe (maxT,C)
void embedding_backward(float* dwte, float* dwpe, const floatX* dout, const int* tokens, int B, int T, int C, int maxT,
                        const Dropout& drop, bool accumulate, Stream stream);

// dinp += the gradient through LayerNorm (dinp is the residual stream's gradient), or "=" where `first`;
// dweight, dbias (+)= sums over rows.
void layernorm_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp, const float* mean,
                        const float* rstd, const floatX* weight, int N, int C, bool first, bool accumulate, Stream stream);

// dinp = drop(dout), with forward's mask                            (n); dinp may be dout. For the branches of the residual stream
void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop, Stream stream);

// dinp = dout weight                                                dout (N,OC), weight (OC,C), dinp (N,C)
void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C, int OC, Stream stream);

// dpre = (dout weight) * gelu'(pre)                                 dout (N,OC), weight (OC,C), pre, dpre (N,C); dpre may be pre
void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* weight, const floatX* pre, int N, int C, int OC,
                                Stream stream);

// dweight (+)= dout^T inp,  dbias (+)= sum over rows of dout        dweight (OC,C), dbias (OC) or null
void matmul_backward_params(float* dweight, float* dbias, const floatX* dout, const floatX* inp, int N, int C, int OC,
                            bool accumulate, Stream stream);

// dqkv = the gradient of attention_forward                          delta: workspace (B,NH,T), p is computed again from lse
void attention_backward(floatX* dqkv, float* delta, const floatX* dout, const floatX* qkv, const floatX* out, const float* lse,
                        int B, int T, int NH, int HS, const Dropout& drop, Stream stream);

// ------------------------------------------------------------------------- the update, over the arena, cut only at units

// out[i] = the sum of terms[0..count-1][i]. By halves: sum(lo,n) = sum(lo,n/2) + sum(lo+n/2,n/2), count a power of two. From the back:
// sum(lo,n) = terms[lo] + sum(lo+1,n-1). n is a multiple of kUnit; out may be any of the terms. The one place where
// gradients of different replicas meet. A GPU takes at most kGpuTerms.
// partials[k], if not null, = sum of squares of unit k of out, in float: sum j of 16 starts at 0 and takes the elements i = j, j+16,
// j+32, ... of the unit in order; then ((s0 + s1) + s2) + ... + s15. The same bits in every backend.
void fold(float* out, float* partials, const float* const* terms, int count, Tree tree, size_t n, Stream stream);

// norm[0] = sqrt(the sum of partials) / tokens, in double: sum j of 256 starts at 0 and takes partials j, j+256, ... in order; then
// ((s0 + s1) + s2) + ... + s255. state->grad_scale = min(1, clip / (norm + 1e-6)) / tokens, or 1 / tokens where clip <= 0, as
// torch.nn.utils.clip_grad_norm_; NaN where norm is not finite or above state->norm_limit > 0. partials of fold (units); tokens of the step.
void clip_scale(StepState* state, double* norm, const float* partials, size_t units, double clip, double tokens, Stream stream);

// AdamW on n elements, a multiple of kUnit.  g = grad * grad_scale;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
//   w = master - lr ( (m/bias1) / (sqrt(v/bias2) + eps) + decay * weight_decay * master );  master = w;  param = w rounded.
// decay[k] is 0 or 1 per unit. With floatX = float, master and param are the same memory. Loshchilov and Hutter, arXiv 1711.05101.
// Where grad_scale is not finite nothing is written: a step without a finite gradient is skipped.
// Every operation is rounded to float, in the order written; no fused multiply-add.
// check.sums[k] is the sum (mod 2^32) of the bits of unit k's master, m and v after the update. Where it was not before it, or param was
// not master rounded, check.changed[0] = k + 1 for one such k: memory has lost a bit.
void adamw_update(floatX* param, float* master, float* m, float* v, const float* grad, const uint8_t* decay, size_t n,
                  const AdamW& adamw, const StepState* state, const StateSums& check, Stream stream);

// Order-sensitive 64-bit hash of the bits of n elements (any n; the last unit may be short), the same value in every backend:
//   unit k:  u_k = sum over its elements i = 0, 1, ... of mix((i + 1) << 32 | bits of x[k * kUnit + i])     (mod 2^64)
//   whole:   h = n;  for k = 0, 1, ...: h = mix(h ^ u_k)
//   mix(z):  z ^= z >> 30;  z *= 0xbf58476d1ce4e5b9;  z ^= z >> 27;  z *= 0x94d049bb133111eb;  z ^= z >> 31
// mix is a bijection (splitmix64's, Steele, Lea and Flood 2014): one changed element always changes h, several but for a chance of
// 2^-64. A unit's terms may be added in any order, so it vectorises; the place is inside the term, so a swap shows.
uint64_t hash_floats(const float* x, size_t n, Stream stream);

}  // namespace BACKEND
