#!/bin/sh
# test_model.sh -- the step model against what llm.c's steps were measured at, and train_gpt --dry-run --for.
. tests/cases.sh
need build/bench/model
model=${TOOLS:-build}/bench/model
soft=${TRAIN_GPT_PTX:-$PWD/build/train_gpt_ptx}

# ---- against published steps
$model --check >"$tmp/check.md"
near() {            # FILE: every step of llm.c's is within 10 %, and those of the goals are among them
    awk -F '|' '$7 ~ /%/ { n++; if ($7 + 0 > 10 || $7 + 0 < -10) bad = 1 } END { exit bad || n != 7 }' "$1" &&
        grep -q '^| 124M, h100 | 140 |' "$1" && grep -q '^| 1558M, h100 | 2750 |' "$1"
}
check "llm.c's published steps within 10 %" near "$tmp/check.md"
expect "which the program says, too" 0 'off by' $model --check
# Negative controls.
for grossly in "rate 0.7" "copy 0.5" "attention 0.4"; do
    expect "not with $grossly of what is assumed" 1 'off by' $model --check $grossly
done
$model --check rate 0.7 >"$tmp/slow.md"
far() { ! near "$tmp/slow.md"; }
check "nor in the table" far
expect "an assumption of another name" 2 'rate' $model --check speed 2

$model --assumptions >"$tmp/assumptions"
unprinted() {       # FILES: constants that --assumptions leaves out
    sed -n 's/^constexpr double //p; s/^                 k\([A-Z]\)/k\1/p' "$@" | grep -o 'k[A-Z][A-Za-z0-9]*' |
        while read -r name; do
            case $name in kModelTiles) name='- tile' ;; esac
            grep -qe "$name" "$tmp/assumptions" || echo "$name"
        done
}
all_printed() { ! unprinted tools/step_model.h bench/model.cpp | grep .; }
check "every constant is printed" all_printed
echo 'constexpr double kForgotten = 1;' >"$tmp/forgotten.h"
check "one that is not is noticed" test "$(unprinted "$tmp/forgotten.h")" = kForgotten
written() { cp docs/performance.md "$tmp/page.md" && docs/make_model.sh "$tmp/page.md" &&
    diff docs/performance.md "$tmp/page.md"; }
check "docs/performance.md is what docs/make_model.sh writes" written

# ---- train_gpt --dry-run --for
dry="$train --dry-run"
line='^predicted [0-9.]+ ms per step, [0-9]+ tokens/s, MFU [0-9.]+ %, exposed communication [0-9.]+ ms; not measured'
expect "a prediction" 0 "$line" $dry --for 8xh100
expect "of a GPU's preset" 0 '^model   GPT-2: 12 layers.* 124,439,808 parameters' $dry --for h200
expect "on so many ranks" 0 'on 8 ranks' $dry --for 8xa100
check "said by rank 0 alone" sh -c "[ \$($dry --np 2 --for 8xa100 | grep -c ^predicted) = 1 ]"
expect "of a model that does not fit" 0 '24000.0 MB.*does not fit' $dry --for 4090 --preset gpt2-1558m
expect "that fits elsewhere" 0 '141000.0 MB.*it fits' $dry --for 8xh200 --preset gpt2-1558m
expect "--for without --dry-run" 2 'dry-run' $train --for 8xh100 --out-dir "$tmp/no"
expect "--for in fp32" 2 'bf16' $dry --for 8xh100 --dtype fp32
for wrong in 8xh101 h1000 12xh100 0xh100 xh100 8h100 -8xh100 8x 8; do
    expect "--for $wrong" 2 'want one of a100 h100 h200 b200 4090' $dry --for=$wrong
done
expect "more ranks than replicas" 2 'ranks: got 16' $dry --for 16xh100
expect "as many" 0 'predicted' $dry --for 16xh100 --replicas 16
expect "a model whose positions wait for each other" 0 'it fits' $dry --for h100 --model lstm
check "has no prediction" lacks "$tmp/expect.log" predicted
time_of() { $dry --for $1 | sed -n 's/^predicted \([0-9.]*\) ms.*/\1/p'; }
faster() { set -- "$(time_of "$1")" "$(time_of "$2")"; echo "$@"; awk "BEGIN { exit !($1 < $2) }"; }
check "eight GPUs are faster than one" faster 8xh100 h100
check "an H200 is faster than an H100" faster h200 h100
check "a preset's vocabulary counts" test "$(time_of h100)" = "$(time_of "h100 --vocab-size 50257")"
check "fewer tokens are faster" faster "h100 --tokenizer byte" h100
check "recomputation takes time" faster h100 "h100 --recompute 3"
expect "by the tool" 0 "$line" "${TOOLS:-build}/plan" --dry-run --for 8xh100 --layers 6 --vocab-size 257
# The micro-batch to take, by the models of memory and time.
large="--preset gpt2-1558m --vocab-size 50257 --total-batch-size 65536"
advised() { expect "advised on $1: $2" 0 "^advised   $2" $dry $large --for "$1"; }
advised h200 '--batch-size 16 --replicas 4:'
advised h100 '--batch-size 8 --replicas 8:'
advised 4090 'none: .* no --batch-size fits'
as_advised() {
    set -- $($dry --for 8xh100 | sed -n 's/^advised *\(.*\): \(.*\) ms .* \([0-9.]*\) MB.*/\1 \2 \3/p')
    $dry --for 8xh100 $1 $2 $3 $4 >"$tmp/advised"
    grep "take $6: it fits" "$tmp/advised" && grep "predicted $5 ms" "$tmp/advised"
}
check "with that a plan has the time and the bytes that were said" as_advised
# A GPU's memory, counted by a CPU: what the GPU backend counts itself.
memory() { grep '^memory'; }
counted() {
    for o in "" "--recompute 3 --batch-size 3"; do
        $dry --for h100 --preset small $o | memory >"$tmp/cpu" &&
            "$soft" --dry-run --device gpu --preset small $o | memory >"$tmp/gpu" && [ -s "$tmp/gpu" ] &&
            diff "$tmp/cpu" "$tmp/gpu" || return 1
    done
    $dry --device cpu --dtype fp32 --preset small | memory >"$tmp/cpu"
    ! diff "$tmp/cpu" "$tmp/gpu" >/dev/null
}
if [ -x "$soft" ]; then check "memory is that of the GPU backend, not of this one" counted
else skip "memory of the GPU backend" "no nvcc to compile the kernels"; fi
summary
