// instructions.h -- the tables of instructions, for the parser.
#pragma once
#include "engine.h"

namespace ptx {

// An instruction whose operands are all registers or numbers; the first is written. width: bytes, 0 for a predicate.
struct Simple {
    Fn fn;
    int n;
    int width[5];
};
const Simple* find_simple(const std::string& op);

// Any other. operands: for each a word, whose digit n says that it becomes Ins::a[n]:
//   d1, r1     a register of 32 bits that is written, or read       q1, p1     a predicate
//   D4, R4     a list of 4 registers                                []         an address: a[0] + imm
//   #          a number: imm                                        _          itself
// With "?" it may be left out, and then a[n] is -1. Loads, stores, moves, wgmma, cp.async and TMA have no words: the
// parser has functions for their operands.
struct Special {
    Fn fn;
    const char* operands = "";
};
// The name is the opcode, but of loads and stores without the type ("ld.global"), of wgmma.mma_async "wgmma", and of
// mov.b32 and mov.b64 with a list "pack" or "unpack". Null where there is none.
const Special* find_special(const std::string& name);

}  // namespace ptx
