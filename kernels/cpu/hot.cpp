// hot.cpp -- the table of hot loops of one instruction set. Compiled with -DISA=portable, and on x86-64 again with -DISA=avx2,
// avx512 and, for bf16 storage, amx, and their flags. -fno-math-errno lets sqrt be an instruction.
#include "attention.h"
#include "matmul.h"
#include "rows.h"

namespace BACKEND::ISA {

extern const HotLoops hot_loops;
const HotLoops hot_loops = {
    .name = LOCKSTEP_NAME(ISA), .rows = kRows, .cols = kCols, .task_rows = kTaskRows, .task_cols = kTaskCols,
    .packed_size = packed_size, .depth = depth, .pack_a = pack<false>, .pack_b = pack<true>, .matmul = matmul,
    .matvec = matvec, .column_sums = column_sums,
    .attention_forward_buffer = attention_forward_buffer, .attention_forward = attention_forward,
    .attention_backward_buffer = attention_backward_buffer, .attention_backward = attention_backward,
    .layernorm = layernorm, .layernorm_backward = layernorm_backward, .add_partials = add_partials,
    .classifier = classifier,
    .embedding = embedding, .embedding_backward = embedding_backward, .position_backward = position_backward,
    .gelu = gelu_all, .dropout = dropout,
    .fold = fold, .norm = norm, .adamw = adamw, .hash = hash,
    .store_floats = convert, .load_floats = convert,
};

}  // namespace BACKEND::ISA
