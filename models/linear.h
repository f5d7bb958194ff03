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
//   dout (N,OC); inp, dinp (N,C). Null: dbias where there is no bias, dweight of a frozen matrix, inp where no gradient
//   of parameters is wanted, dinp where it is not.
void linear_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                     const Weight& weight, int N, bool accumulate);

// The same for inp = gelu(pre):  dpre = (dout weight) * gelu'(pre)    pre, dpre (N,C); dpre may be pre
void gelu_linear_backward(floatX* dpre, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                          const floatX* pre, const Weight& weight, int N, bool accumulate);

// out = x + scale y    (n); out may be x or y; x null: 0
void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n, Stream stream);

// ---- what --lora adds to a model

struct Adapters {
    Lora lora;
    floatX* weights = nullptr;                  // of Model::trained
    float* grads = nullptr;
    // Work space.
    floatX *low = nullptr, *dlow = nullptr;     // (N,rank) (N,rank)
    floatX* wide = nullptr;                     // (N, widest matrix)
    float* unread = nullptr;                    // gradients of frozen vectors: operations write them all the same
};
void add_adapters(Model* m, const Lora& lora);              // makes them what is trained
void place_adapters(Model* m, Layout& place);
void attach_adapters(Model* m);                             // to the table's weights

}  // namespace BACKEND
