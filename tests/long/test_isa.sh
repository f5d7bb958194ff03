#!/bin/sh
# test_isa.sh -- the CPU's hot loops in every instruction set that this machine can run, not only its best: each
# operation against the specification, with fp32 and with bf16 storage. AMX's tables run everywhere, with its
# instructions in software (tests/tiles.h).
# inputs: cxx kernels/*.h kernels/ref.cpp kernels/cpu models optimizers tests/kernels tests/tiles.h
. tests/lib.sh
programs=${TOOLS:-$PWD/build}/tests
need build/tests/kernels_cpu build/tests/kernels_cpu16
sets() { LOCKSTEP_ISA=none "$1" floats 2>&1 | sed -n 's/.*want one this CPU has: //p' | head -n 1 | tr -d ,; }
for program in kernels_cpu kernels_cpu16; do
    check "$program knows no set named none" test -n "$(sets "$programs/$program")"
    for isa in $(sets "$programs/$program"); do
        check "$program, $isa" env LOCKSTEP_ISA="$isa" "$programs/$program"
    done
done
# The order is by speed: pairs of bf16 before floats on AMD's CPUs, after them on others.
pairs_in_order() {
    case $(sets "$programs/kernels_cpu16" | tr '\n' ' ') in
        *avx512_bf16*avx512\ *) grep -q AuthenticAMD /proc/cpuinfo ;;
        *avx512\ *avx512_bf16*) ! grep -q AuthenticAMD /proc/cpuinfo ;;
    esac
}
check "pairs of bf16 are used where they are fast" pairs_in_order
case $(uname -m) in x86_64) check "AMX in software is among them" test "$(sets "$programs/kernels_cpu16" |
    grep -c amx_in_software)" = 1 ;; esac
summary
