// linear.h -- products with a matrix of the model's table, for all models. With --lora they add the matrix's adapter
// (lora.h), and the gradient is the adapter's alone.
//
// weight, bias: pointers of Model::weights; the table has their sizes, here (OC,C). Gradients go where Model::grads has
// the same tensors.
#pragma once
#include "models/model.h"

namespace BACKEND {

// out = inp weight^T + bias    inp (N,C), out (N,OC), bias may be null
// Where `pre` (N,OC) is given: pre = that, out = gelu(pre).
void linear_forward(Model* m, floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N,
                    floatX* pre = nullptr);

// dweight (+)= dout^T inp,  dbias (+)= sum over rows of dout,  dinp = dout weight, with `pre`: times gelu'(pre)
//   dout (N,OC); inp, dinp, pre (N,C); dinp may be pre.
//   inp null: dweight and dbias are not wanted. dinp null: dinp is not wanted.
void linear_backward(Model* m, floatX* dinp, const floatX* dout, const floatX* inp, const floatX* weight,
                     const floatX* bias, int N, bool accumulate, const floatX* pre = nullptr);

// out = x + scale y    (n); out may be x or y; x null: 0
void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n, Stream stream);

}  // namespace BACKEND
