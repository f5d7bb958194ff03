#!/bin/sh
# test_ladders.sh -- learn/cuda on the software GPU: every rung is right, the counters say of each what its comment
# says, and planted faults are found. The table is left in build/ladders.txt.
# inputs: cxx nvcc learn/cuda tests/gpu
. tests/lib.sh
root=$PWD
. learn/cuda/build.sh
needs_nvcc ladders
need build/soft_gpu.a
# For the software GPU.
compile() {
    (export PATH=$tmp/no-gpu:$PATH NVCC_APPEND_FLAGS='-Werror all-warnings' && cuda_program "$2" "$1")
}
mkdir "$tmp/no-gpu" && printf '#!/bin/sh\nexit 1\n' >"$tmp/no-gpu/nvidia-smi" && chmod +x "$tmp/no-gpu/nvidia-smi"
: >build/ladders.txt
for ladder in $(cut -d"|" -f1 learn/cuda/list); do
    check "$ladder compiles" compile learn/cuda/$ladder.cu "$tmp/$ladder"
    check "$ladder: all rungs are right" sh -c "'$tmp/$ladder' >'$tmp/$ladder.txt'"
    cat "$tmp/$ladder.txt" >>build/ladders.txt
done
check "matmul without Hopper" env SOFT_GPU_ARCH=80 "$tmp/matmul"
rungs() { sed -n 's/^  [1-9] //p' build/ladders.txt | wc -l; }
check "there are 17 rungs" test "$(rungs)" -eq 17
# of LADDER RUNG WORD: a counter. A rung's name may have the word, too, and stands before it.
of() {
    case $3 in bound*) what= ;; *) what='s/ bound .*//;' ;; esac      # which names a unit: shared
    sed -n "$what s/^  $2 .*right .* $3 *\([0-9.]*\).*/\1/p" "$tmp/$1.txt"
}
while read -r ladder word rung low high why; do
    check "$ladder, rung $rung: $why" awk "BEGIN { x = $(of $ladder "$rung" "$word"); exit !(x >= $low && x <= $high) }"
done <<'COUNTERS'
layernorm bytes 1 8 10 of most sectors an eighth is used
layernorm bytes 2 2.2 2.4 the row is read three times
layernorm bytes 3 1.5 1.5 the row is read once
layernorm bound.L2 1 2.1 2.3 the L2 cache takes longer than memory, 1.2
layernorm bound.L2 3 0.3 0.4 memory takes longer than all units
layernorm issued 3 0.2 0.4 a third of the instructions
layernorm bytes 4 3 3.5 each row adds to the same numbers in memory
layernorm bytes 5 2.7 2.9 sums stay in registers
matmul bytes 1 500 900 a sector for each number of b
matmul bytes 2 4 7 each number is used 32 times
matmul shared 2 1 1.01 no bank conflicts
matmul bytes 3 2 4 each number is used 64 times
matmul issued 3 8 16 half of the instructions
matmul bound.shared 3 4 5 shared memory binds, a fourth of rung 2
matmul issued 4 0.7 1 tensor cores multiply
matmul bound.shared 4 0.4 0.6 reads of a square have no bank conflicts
matmul issued 5 0.5 0.65 ldmatrix issues a fifth less
matmul bound.shared 5 0.4 0.6 it takes as many turns
matmul issued 7 0.1 0.4 wgmma reads for itself
attention bytes 1 400 700 the scores travel
attention bytes 2 50 80 each position reads all keys
attention bytes 3 1 2 tiles are read once for 64 positions
attention issued 3 1 3 tensor cores multiply
attention bytes 4 90 100 each pair reads 8 D bytes and asks for 16 D of sums
attention bytes 5 1.5 2.5 sums stay in registers
attention issued 5 1 2 tensor cores multiply
COUNTERS
# Another order of blocks and warps: dweight and dv have other bits by atomics, and the same in a fixed order.
bits() { sed -n 's/.*in bits //p' "$1" | sed -n "$2p"; }
for ladder in layernorm attention; do
    SOFT_GPU_SEED=7 "$tmp/$ladder" >"$tmp/again.txt"
    check "$ladder, rung 4: other bits" test "$(bits "$tmp/$ladder.txt" 1)" != "$(bits "$tmp/again.txt" 1)"
    check "$ladder, rung 5: the same bits" test "$(bits "$tmp/$ladder.txt" 2)" = "$(bits "$tmp/again.txt" 2)"
done
check "ldmatrix: as many turns as by reads" test "$(of matmul 4 shared)" = "$(of matmul 5 shared)"

# planted LADDER WHAT SED: the program that sed makes of the ladder and warp.h is wrong, or the software GPU stops it.
mkdir "$tmp/fault"
planted() {
    for file in "$1.cu" warp.h; do sed "$3" "learn/cuda/$file" >"$tmp/fault/$file"; done
    if cmp -s "learn/cuda/$1.cu" "$tmp/fault/$1.cu" && cmp -s learn/cuda/warp.h "$tmp/fault/warp.h"; then
        fail "$2" "sed changes nothing"
        return
    fi
    check "$2 compiles" compile "$tmp/fault/$1.cu" "$tmp/planted"
    check "$2 is found" sh -c "! '$tmp/planted' >'$tmp/planted.txt' 2>&1"
}
# named RUNG NUMBER COUNT: the planted program says which number is the first wrong one of how many.
named() {
    grep -F "    $1: $2, the first wrong number of $3" "$tmp/planted.txt" >"$tmp/named.txt"
    check "$1: $2 is named" grep -qE ': got [^ ]+, want [^ ]+; [a-z]+' "$tmp/named.txt"
}
planted layernorm "a reduction over half a warp" '/ x += __shfl/s/kThreads . 2/kThreads \/ 4/'
named "a warp a row" "y[0] (row 0, column 0)" ""
check "and none of the right rung" test "$(grep -c '^    a thread a row:' "$tmp/planted.txt")" -eq 0
planted layernorm "a number that no thread writes" \
    's/c = 0; c < C; c++) y/c = row == 2; c < C; c++) y/'
named "a thread a row" "y[1536] (row 2, column 0)" 1:
check "and its rung is not right" grep -q '^  1 .* WRONG (-\{0,1\}nan)' "$tmp/planted.txt"
planted layernorm "a wrong number of the second array" 's/a\[i\] + b\[i\];/a[i] + (i == 770 ? 0 : b[i]);/'
named "a warp a row" "sum[770] (row 1, column 2)" 1:
planted layernorm "a sum of rows without the last" 's/block < kBlocks; block++/block < kBlocks - 1; block++/'
named "sums in a fixed order" "dx, dweight, dbias[393216] (row 512, column 0)" ""
planted matmul "tiles that are overwritten while others read" '/all have read/s/__syncthreads();//'
planted matmul "a wait for too few copies" 's/wait_group 1/wait_group 2/'
planted matmul "two squares of mma that are exchanged" 's/r\[1\] = .*/r[1] = pair(tile[row][column + 8]);/'
named "tensor cores: mma.sync" "out[8] (row 0, column 8)" ""
planted matmul "pairs of columns that lie apart" 's/first_column + lane % 4 \* 2/first_column + lane % 4 * 4 % 8/'
named "tensor cores: mma.sync" "out[0] (row 0, column 0)" ""
planted matmul "squares of ldmatrix in another order" 's/row + lane % 16/row + lane % 8 + lane \/ 16 * 8/'
named ldmatrix "out[0] (row 0, column 0)" ""
planted attention "a mask of one key too few" 's/u <= t ? s\[/u < t ? s[/'
planted attention "a gradient without delta, by atomics" 's/ - delta) \* kRoot/) * kRoot/'
named "a warp a query, atomics" "dq, dk, dv[0] (row 0, column 0)" ""
planted attention "a gradient without delta, by tiles" 's/ - delta\[head + t\]//'
named "tiles in a fixed order" "dq, dk, dv[0] (row 0, column 0)" ""
planted attention "a mask of one key too few, backward" 's/prob = u <= t/prob = u < t/'
named "tiles in a fixed order" "dq, dk, dv[64] (row 1, column 0)" ""
planted attention "a mask of one key too many, backward" 's/prob = u <= t/prob = u <= t + 1/'
planted attention "the lse of another position" 's/lse\[head + t\]/lse[head + u]/'
planted attention "a dk without 1 over root D" 's/x_sum\[j\], kRoot, kRoot/x_sum[j]/'
planted attention "keys without the queries of their own tile" 's/kKeys ? begin : 0/kKeys ? begin + 64 : 0/'
backward='/void backward_by_tiles/,/^}/'
planted attention "tiles of backward that are overwritten too early" "$backward s/__syncthreads();  *.. all are.*//"
planted attention "tiles of backward that are read too early" "$backward s/__syncthreads();\$//"
# An index that is not known when it is compiled: the rung's row lies in local memory, which is right, and costs bytes.
sed 's/#pragma unroll$/#pragma unroll 1/' learn/cuda/layernorm.cu >"$tmp/local.cu"
check "a row in local memory compiles" compile "$tmp/local.cu" "$tmp/local"
check "it is right" sh -c "'$tmp/local' >'$tmp/local.txt'"
check "and moves 2.25 times the least" test "$(of local 3 bytes)" = 2.25
check "at most 1,400 lines" test "$(cat learn/cuda/* | wc -l)" -le 1400
check "and 156 in the header, below its words" \
    test "$(sed -n '/^#pragma once/,$p' learn/cuda/ladder.h | wc -l)" -le 156
# The lines of each kernel, from its head to its closing brace.
long() { awk '/^__global__/ { n = 0; name = $0 } { n++ } /^}/ { if (name != "" && n > 60) print name, n; name = "" }' \
    learn/cuda/*.cu; }
check "no kernel has more than 60 lines" test -z "$(long)"
summary
