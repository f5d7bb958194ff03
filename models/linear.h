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

// dweight (+)= dout^T inp,  dbias (+)= sum over rows of dout, where there is a bias    dout (N,OC), inp (N,C)
void linear_backward_params(Model* m, const floatX* dout, const floatX* inp, const floatX* weight, const floatX* bias,
                            int N, bool accumulate);

// dinp = dout weight; where `pre` (N,C) is given, times gelu'(pre)    dinp (N,C), it may be pre
void linear_backward_input(Model* m, floatX* dinp, const floatX* dout, const floatX* weight, int N,
                           const floatX* pre = nullptr);

// out = x + scale y    (n); out may be x or y; x null: 0
void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n, Stream stream);

}  // namespace BACKEND
