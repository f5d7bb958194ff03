// ops.h -- the table of one instruction set's ops: those of kernels.h, as ./configure lists them.
#pragma once
#include "kernels/kernels.h"

namespace BACKEND {

struct Ops {
    const char* isa;
#define OP(result, name, parameters, arguments) result (*name) parameters;
#include "build/op_table.h"
#undef OP
};

}  // namespace BACKEND
