// isa.cpp -- the table of one instruction set's operations. It is compiled once per instruction
// set (configure). The flag -fno-math-errno lets the compiler use the sqrt instruction.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/classifier.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/layernorm.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/update.h"

namespace BACKEND::ISA {

// Converts n floats to the storage type, or back.
template <class To, class From> static void convert(To* out, const From* inp, size_t n) {
    for (size_t i = 0; i < n; i += kWidth) {
        const int left = n - i < kWidth ? int(n - i) : kWidth;
        store(out + i, load(inp + i, left), left);
    }
}
static void store_floats(floatX* device, const float* host, size_t n) { convert(device, host, n); }
static void load_floats(float* host, const floatX* device, size_t n) { convert(host, device, n); }

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
extern const Ops ops;
const Ops ops = {
    .isa = TEXT(ISA),
#define OP(result, name, parameters, arguments) .name = name,
#include "build/op_table.h"
};

}  // namespace BACKEND::ISA
