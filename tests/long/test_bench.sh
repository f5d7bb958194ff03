#!/bin/sh
# test_bench.sh -- what bench/gpu.sh makes its report from (tests/long/test_rehearsal.sh runs all of it): the table of
# targets, docs/kernels.md filled from such figures. The program of bench/matmul.py answers and refuses; bench/readme.sh
# fills docs/performance.md.
. tests/lib.sh
need build/benches
matmul=${TOOLS:-$PWD/build}/bench/matmul
targets() {
    printf '%s\n' 'products-gpt2-124m-16 1.02' 'lowest-product-gpt2-124m-16 0.87 attproj params' \
        'attention_forward-d64-T1024-B16 262' 'best-attention_forward-d64-T1024-B16 288 cudnn' \
        'best-step-gpt2-124m 530000' 'best-torch-gpt2-124m 490000' >"$tmp/facts"
    awk -f bench/targets.awk "$tmp/facts" >"$tmp/targets"
    while read -r row; do
        grep -q -- "$row" "$tmp/targets" || { echo "no row like $row"; return 1; }
    done <<'ROWS'
B = 16, summed, against cuBLASLt | 1.00 | 1.02 | met
slowest of them | 0.90 | 0.87 (attproj params) | \*\*not met
forward, d64-T1024-B16, .* | 0.91 (cudnn) | \*\*not met
tokens/s (H200) | 650000 | 530000 | \*\*not met
compiled | 1.10 | 1.08 | \*\*not met
T = 1,024: TFLOP/s | 300 | 262 | \*\*not met
B = 64, .* | not measured |  |
ROWS
}
check "targets are met, not met, or not measured" targets
filled() {
    copy=$tmp/copy
    mkdir -p "$copy/docs" "$copy/bench/results" && cp docs/make_kernels.sh docs/kernels.md "$copy/docs" &&
        cp "$tmp/facts" "$copy/bench/results/made-up.facts"
    "$copy/docs/make_kernels.sh" && grep -q 'GPU: <!--gpu-->made-up<!---->' "$copy/docs/kernels.md" &&
        grep -q '<!--products-gpt2-124m-16-->1.02<!---->' "$copy/docs/kernels.md" &&
        [ "$(diff docs/kernels.md "$copy/docs/kernels.md" | grep -c '^>')" -ge 3 ]
}
check "docs/kernels.md is filled" filled
products() {
    printf '%s\n' 'forward 24 16 32 0.01' 'input 24 16 32 0' 'params 8 8 8 0' | "$1" 2 >"$tmp/times" &&
        [ "$(grep -Ec '^[0-9]+\.[0-9]+$' "$tmp/times")" = 3 ] && ! grep -Eq '^0\.0+$' "$tmp/times"
}
for dtype in '' 16; do check "each product is timed, matmul$dtype" products "$matmul$dtype"; done
for request in 'sideways 8 8 8 0' 'forward 8 8 0' 'forward 0 8 8 0' 'forward 8 12 8 0' 'forward 8 8 -8 0' \
    'params 8 8 8 inf' 'params 8 8 8 0 0' 'input 8 99999999999 8 0' ''; do
    expect "a request is refused: '$request'" 2 'matmul: request: got' sh -c 'echo "$2" | "$1"' sh "$matmul" "$request"
done
expect "threads are a number" 2 'got other arguments' "$matmul" two
table() {
    printf '%s\n' 'made up:' '' '| model | smallest |' '|---|---:|' '| nano | 0.98 |' >"$tmp/matmul.md"
    mkdir -p "$tmp/tables/docs" && cp -r bench "$tmp/tables/" && cp docs/performance.md "$tmp/tables/docs/" || return 1
    "$tmp/tables/bench/readme.sh" matmul "$tmp/matmul.md" || return 1
    sed -n '/^made up:/,/^<!-- end of/p' "$tmp/tables/docs/performance.md" | sed '$d' | grep . >"$tmp/got"
    grep . "$tmp/matmul.md" | diff "$tmp/got" -
}
check "the table of products is written into docs/performance.md" table
for script in step gpu scaling; do      # the tokens that it makes, but fewer
    work=$tmp tokens=$tmp/tokens.u16.bin
    eval "$(sed -n 's/^.*\(head -c \)[0-9]*\( .dev.urandom .*\)/\1200000\2/p; /^for i in .*lines.u16.bin/p' \
        bench/$script.sh)"
    expect "the tokens of bench/$script.sh are read" 0 '^done ' $train --data "$tmp/*.u16.bin" --vocab-size 50257 \
        --layers 1 --heads 1 --channels 16 --seq-len 8 --batch-size 1 --total-batch-size 8 --steps 1 \
        --out-dir "$tmp/$script"
    rm "$tmp"/*.u16.bin
done
summary
