// linear.h -- products with a matrix of the model's table, for all models. Where the matrix has an adapter (lora.h),
// the product has a second term, and the gradient is the adapter's alone.
#pragma once
#include "models/model.h"

namespace BACKEND {

// out = inp weight^T + bias    inp (N,C), weight (OC,C), out (N,OC), bias may be null
void linear_forward(floatX* out, const floatX* inp, const Weight& weight, const floatX* bias, int N);

// pre = inp weight^T + bias,  out = gelu(pre)    pre (N,OC)
void linear_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const Weight& weight, const floatX* bias, int N);

// dweight (+)= dout^T inp,  dbias (+)= sum over rows of dout,  dinp = dout weight
//   dout (N,OC); inp, dinp (N,C). Null: dbias if there is no bias, dweight if the matrix is frozen, inp if only dinp is
//   wanted, dinp if it is not wanted.
void linear_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                     const Weight& weight, int N, bool accumulate);

// The same for inp = gelu(pre):  dpre = (dout weight) * gelu'(pre)    pre, dpre (N,C); dpre may be pre
void gelu_linear_backward(floatX* dpre, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                          const floatX* pre, const Weight& weight, int N, bool accumulate);

// out = x + scale y    (n); out may be x or y; a null x counts as 0
void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n, Stream stream);

// ---- what --lora adds to a model

struct Adapters {
    Lora lora;
    floatX* weights = nullptr;                  // of Model::trained
    float* grads = nullptr;
    // Work space.
    floatX *low = nullptr, *dlow = nullptr;     // (N,rank) (N,rank)
    floatX* wide = nullptr;                     // (N, widest matrix)
    float* unread = nullptr;                    // gradients of frozen vectors: written, never read
};
void add_adapters(Model* m, const Lora& lora);              // makes the adapters the trained tensors
void place_adapters(Model* m, Layout& place);               // lays out the work space
void attach_adapters(Model* m);                             // connects them to the table's weights

}  // namespace BACKEND
