#!/bin/sh
# test_learn_ddp.sh -- learn/ddp: what the five programs say of bits, bytes and memory is so, for each number of ranks.
. tests/lib.sh
steps="1_mean 2_accumulate 3_buckets 4_sharded 5_tree"
compile() { ${CXX:-g++} -std=c++20 -O2 -pthread -Wall -Wextra -Werror -I learn/ddp "$@"; }
for step in $steps; do
    check "$step compiles" compile learn/ddp/$step.cpp -o "$tmp/$step"
    for ranks in 1 2 4 8; do
        check "$step, $ranks ranks" sh -c "timeout 300 $tmp/$step $ranks >$tmp/$step.$ranks"
    done
done
field() { sed -n "s/.*$2 \([^ ]*\).*/\1/p" "$tmp/$1"; }         # FILE WORD: what stands behind it
# kinds NAME...: how many different weights these runs have.
kinds() { for run in "$@"; do field "$run" weights; done | sort -u | wc -l; }
for ranks in 1 2 4 8; do
    check "steps 1 to 4 have the same bits, $ranks ranks" \
        test "$(kinds 1_mean.$ranks 2_accumulate.$ranks 3_buckets.$ranks 4_sharded.$ranks)" -eq 1
    others=$(((ranks - 1) * 4096)) halves=$((2 * (ranks - 1) * 4096 / ranks))
    for step in $steps; do
        case $step in [45]*) reads=$halves keeps=$((4096 / ranks));; *) reads=$others keeps=4096;; esac
        check "$step reads and keeps what it says, $ranks ranks" \
            test "$(field $step.$ranks reads) $(field $step.$ranks keeps)" = "$reads $keeps"
    done
done
check "step 1: each number of ranks has its own" test "$(kinds 1_mean.1 1_mean.2 1_mean.4 1_mean.8)" -eq 4
check "step 5: all have the same" test "$(kinds 5_tree.1 5_tree.2 5_tree.4 5_tree.8)" -eq 1
close() { cat "$tmp"/[1-5]_*.[1248] | awk '{ if (NR == 1) a = $4; d = $4 - a; if (d * d > 1e-14) exit 1 }
    END { exit NR != 20 || a > 0.2 }'; }
check "all losses agree to seven digits" close

# Negative controls: another order is noticed, and so is a program that is not run with a fitting number of ranks.
noticed() {         # FROM TO: this change of the tree gives other bits for 1 and 2 ranks
    sed "s|$1|$2|" learn/ddp/5_tree.cpp >"$tmp/other.cpp"
    ! cmp -s learn/ddp/5_tree.cpp "$tmp/other.cpp" || return 1
    compile "$tmp/other.cpp" -o "$tmp/other" || return 1
    for ranks in 1 2; do "$tmp/other" $ranks >"$tmp/other.$ranks" || return 1; done
    [ "$(kinds other.1 other.2)" -eq 2 ]
}
check "a sum in order is noticed" noticed 'return tree(grads, count / 2, i) + .*' \
    'return tree(grads, count - 1, i) + grads[(count - 1) * kWeights + i];'
check "replicas that are dealt to ranks in turn, too" noticed 'rank . own + k' 'k * s.ranks + rank'
expect "three ranks are refused" 1 'with 1, 2, 4 or 8' "$tmp/5_tree" 3
check "at most 500 lines" test "$(cat learn/ddp/* | wc -l)" -le 500
names=$(sed -n '/^\/\/ The same in train_gpt/,$s/^\/\/     .\{36\}//p' learn/ddp/5_tree.cpp |
    grep -oE '[a-z]+(_[a-z]+)+')
check "the last page names functions" test "$(echo "$names" | wc -l)" -ge 10
for name in $names; do
    check "$name is there" grep -qE "\<$name\(" train_gpt.cu src/ddp/*.cpp models/model.h
done
summary
