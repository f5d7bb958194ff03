#!/bin/sh
# test_backward.sh -- the tests of models see every statement of every backward: each one is taken out in turn, and a
# test has to fail. All but the statements that have no part in a gradient without --recompute and overlap have to fail
# gradient_of_every_tensor, which compares with finite differences.
#   tests/long/test_backward.sh [PART]     only mutants whose names contain PART: gpt2.cpp:160
# inputs: cxx kernels/*.h kernels/cpu models tests/models
. tests/lib.sh
cxx=$(configured cxx)
need build/tests/model_cpu
main=build/tests/model_cpu.tests/models/test_model.o

# statements FILE: "FIRST LAST" lines of each statement in a function named *backward*, after lines of declarations.
statements() {
    awk '
        /^[a-z].*backward[a-z_]*\(/ { inside = 1 }
        /^}/ { inside = 0 }
        !inside || /^[^ ]/ { next }
        /^ +(if|for|return|while) \([^;]*$/ { next }
        first == 0 && /^ +((if|for) \(.*\) )?[a-z_.]+(->[a-z]+)*\(/ { first = NR }
        first && /;( *\/\/.*)?$/ { print first, NR; first = 0 }
        /\{$/ { first = 0 }
    ' "$1"
}

# built SOURCE: the tests of models with that source in place of the model of the same name.
built() {
    $cxx -std=c++20 -O1 -pthread -ffp-contract=off -w -I. -DBACKEND=cpu -c "$1" -o "$tmp/mutant.o" &&
        $cxx -pthread "$tmp/mutant.o" $main build/tests/main.a build/cpu16.a build/cpu.a build/src.a -ldl \
            -o "$tmp/mutant"
}
found() {       # SOURCE FIRST LAST
    awk -v first="$2" -v last="$3" 'NR == first { print ";" } NR < first || NR > last' "$1" >"$tmp/mutant.cpp"
    built "$tmp/mutant.cpp" >"$tmp/mutant.log" 2>&1 || { tail -n 2 "$tmp/mutant.log"; return 1; }
    timeout 300 "$tmp/mutant" gradient_of_every_tensor >"$tmp/mutant.log" 2>&1 || return 0
    case $(sed -n "$2p" "$1") in
        *own_backward*) return 0 ;;     # a fork's function of qkv: tests/long/test_fork.sh takes that out
        *recompute_block*|*pass.ready*) timeout 300 "$tmp/mutant" >"$tmp/mutant.log" 2>&1 || return 0 ;;
    esac
    echo "passes without it: $(sed -n "$2,$3p" "$1" | tr -s ' \n' ' ')"
    return 1
}

part=${1:-}
# Negative control: with the model as it is the tests pass.
for model in $(grep -l '_kind = ' models/*.cpp); do
    whole() { built "$model" && timeout 300 "$tmp/mutant" >"$tmp/mutant.log" 2>&1; }
    case $model in *"${part%%:*}"*) check "$model as it is" whole ;; esac
    for lines in $(statements "$model" | tr ' ' ,); do
        name=$(basename "$model"):${lines%,*}
        case $name in *"$part"*) check "$name" found "$model" "${lines%,*}" "${lines#*,}" ;; esac
    done
done
summary
