// op_table.h -- the ops that are compiled once per instruction set: OP(result, name, parameters, arguments). Included
// with OP defined, for the table's members (ops.h), their values (isa.cpp) and the functions of kernels.h (ops.cpp).
OP(void, store_floats, (floatX* device, const float* host, size_t n), (device, host, n))
OP(void, load_floats, (float* host, const floatX* device, size_t n), (host, device, n))
OP(void, embedding_forward, (floatX* out, const int* tokens, const floatX* wte, const floatX* wpe, int B, int T, int C,
   int first, const Dropout& drop, Stream s), (out, tokens, wte, wpe, B, T, C, first, drop, s))
OP(void, embedding_backward, (float* dwte, float* dwpe, const floatX* dout, const int* tokens, int B, int T, int C, int
   maxT, const Dropout& drop, bool accumulate, Stream s), (dwte, dwpe, dout, tokens, B, T, C, maxT, drop, accumulate,
   s))
OP(void, residual_layernorm_forward, (floatX* residual, floatX* out, float* mean, float* rstd, const floatX* inp, const
   floatX* branch, const floatX* weight, const floatX* bias, int N, int C, const Dropout& drop, Stream s), (residual,
   out, mean, rstd, inp, branch, weight, bias, N, C, drop, s))
OP(void, layernorm_backward, (floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp, const
   float* mean, const float* rstd, const floatX* weight, int N, int C, bool first, bool accumulate, Stream s), (dinp,
   dweight, dbias, dout, inp, mean, rstd, weight, N, C, first, accumulate, s))
OP(void, dropout_backward, (floatX* dinp, const floatX* dout, size_t n, const Dropout& drop, Stream s), (dinp, dout, n,
   drop, s))
OP(void, matmul_gelu_forward, (floatX* out, floatX* pre, const floatX* inp, const floatX* weight, const floatX* bias,
   int N, int C, int OC, Stream s), (out, pre, inp, weight, bias, N, C, OC, s))
OP(void, gelu_forward, (floatX* out, const floatX* pre, size_t n, Stream s), (out, pre, n, s))
OP(void, matmul_gelu_backward_input, (floatX* dpre, const floatX* dout, const floatX* weight, const floatX* pre, int N,
   int C, int OC, Stream s), (dpre, dout, weight, pre, N, C, OC, s))
OP(void, matmul_backward_params, (float* dweight, float* dbias, const floatX* dout, const floatX* inp, int N, int C, int
   OC, bool accumulate, Stream s), (dweight, dbias, dout, inp, N, C, OC, accumulate, s))
OP(void, attention_forward, (floatX* out, float* lse, const floatX* qkv, int B, int T, int NH, int HS, const Dropout&
   drop, Stream s), (out, lse, qkv, B, T, NH, HS, drop, s))
OP(void, attention_cached, (floatX* out, floatX* cache, const floatX* qkv, int first, int n, int maxT, int NH, int HS,
   Stream s), (out, cache, qkv, first, n, maxT, NH, HS, s))
OP(void, attention_backward, (floatX* dqkv, float* delta, const floatX* dout, const floatX* qkv, const floatX* out,
   const float* lse, int B, int T, int NH, int HS, const Dropout& drop, Stream s), (dqkv, delta, dout, qkv, out, lse, B,
   T, NH, HS, drop, s))
OP(void, classifier, (float* losses, floatX* logits, const int* targets, int N, int V, int Vp, bool backward, Stream s),
   (losses, logits, targets, N, V, Vp, backward, s))
OP(void, sum_in_order, (double* total, const float* x, size_t n, Stream s), (total, x, n, s))
OP(void, tree_reduce, (float* out, float* partials, const float* const* terms, int count, Tree tree, size_t n, Stream
   s), (out, partials, terms, count, tree, n, s))
OP(void, clip_scale, (StepState* state, double* norm, const float* partials, size_t units, double clip, double tokens,
   Stream s), (state, norm, partials, units, clip, tokens, s))
OP(void, update, (int optimizer, int stage, floatX* param, float* master, float* const* state, const float* grad, const
   uint8_t* decay, size_t n, const StepState* step, Stream s), (optimizer, stage, param, master, state, grad, decay, n,
   step, s))
OP(void, matrix_polynomial, (floatX* out, float a, float b, const floatX* x, float c, const floatX* y, int n, Stream s),
   (out, a, b, x, c, y, n, s))
OP(uint64_t, hash_floats, (const float* x, size_t n, Stream s), (x, n, s))
