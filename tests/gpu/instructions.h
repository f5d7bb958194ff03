// instructions.h -- the tables of instructions, for the parser.
#pragma once
#include "engine.h"

namespace ptx {

// Operands that are all registers or numbers; the first is written. width: bytes, 0 a predicate.
struct Simple { Fn fn; int n; int width[5]; bool loose = false; };      // loose: the written register may be wider
const Simple* find_simple(const std::string& op);
Fn memory_op(const std::string& space, bool store);
Fn unpack_op();
Fn pack_op();
Fn mov_op(int width);
Fn shuffle_op(const std::string& op);
Fn wgmma_op();
Fn other_op(const std::string& op);

void finish_wgmma(Warp& w, size_t keep_groups);
void land_copies(Warp& w, int lane, uint64_t before);

}  // namespace ptx
