#!/bin/sh
# test_bench.sh -- the report of bench/gpu.sh without a GPU: the measuring program on a GPU in software, the chart and
# the table of targets made from what it prints, and docs/kernels.md filled from such figures. The program of
# bench/matmul.py answers and refuses; bench/readme.sh fills docs/performance.md.
. tests/lib.sh
kernels=${TOOLS:-$PWD/build}/bench/gpu_kernels_ptx soft=${TRAIN_GPT_PTX:-$PWD/build/train_gpt_ptx}
on_gpu() { if [ -x "$kernels" ] && [ -x "$soft" ]; then check "$@"; else skip "$1" "no nvcc: no GPU in software"; fi; }
matmul=${TOOLS:-$PWD/build}/bench/matmul
measured() {
    timeout 900 "$kernels" --tiny >"$tmp/kernels.md" && grep -q '^data: tiny-2|head params|' "$tmp/kernels.md" &&
        grep -q '^fact: attention_backward-d128-T40-B1 ' "$tmp/kernels.md"
}
on_gpu "every operation is measured" measured
chart() {
    awk -v shape=tiny-2 -v repeats=3 -v title='a <tiny> step' -f bench/bars.awk "$tmp/kernels.md" >"$tmp/step.svg" ||
        return 1
    # Two bars for each operation that a micro-batch or an update has, and the background.
    want=$(awk -F '|' '/^data: (tiny-2|update)\|/ && $3 > 0 { n++ } END { print 2 * n + 1 }' "$tmp/kernels.md")
    [ "$(grep -c '<rect' "$tmp/step.svg")" = "$want" ] || { echo "$want bars wanted"; return 1; }
    grep -q 'a &lt;tiny> step' "$tmp/step.svg" && [ "$(tail -n 1 "$tmp/step.svg")" = '</svg>' ] || return 1
    ! awk -v shape=none -f bench/bars.awk /dev/null >/dev/null
}
on_gpu "the chart has all its bars" chart
targets() {
    printf '%s\n' 'products-gpt2-124m-16 1.02' 'lowest-product-gpt2-124m-16 0.87 attproj params' \
        'attention_forward-d64-T1024-B16 262' 'best-attention_forward-d64-T1024-B16 288 cudnn' 'best-step 530000' \
        'best-torch 490000' >"$tmp/facts"
    awk -f bench/targets.awk "$tmp/facts" >"$tmp/targets"
    while read -r row; do
        grep -q -- "$row" "$tmp/targets" || { echo "no row like $row"; return 1; }
    done <<'ROWS'
B = 16, summed, against cuBLASLt | 1.00 | 1.02 | met
slowest of them | 0.90 | 0.87 (attproj params) | \*\*not met
forward, d64-T1024-B16, .* | 0.91 (cudnn) | \*\*not met
tokens/s (H200) | 520000 | 530000 | met
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
    mkdir -p "$tmp/tables/docs" && cp -r bench "$tmp/tables/" && cp docs/performance.md "$tmp/tables/docs/" || return 1
    printf '%s\n' 'made up:' '' '| model | smallest |' '|---|---:|' '| nano | 0.98 |' >"$tmp/matmul.md"
    "$tmp/tables/bench/readme.sh" matmul "$tmp/matmul.md" || return 1
    sed -n '/^<!-- matmul:/,/^<!-- end of matmul/p' "$tmp/tables/docs/performance.md" | sed '1d;$d' |
        grep . | diff - "$tmp/matmul.lines"
}
printf '%s\n' 'made up:' '| model | smallest |' '|---|---:|' '| nano | 0.98 |' >"$tmp/matmul.lines"
check "the table of products is written into docs/performance.md" table
# The experiments, each in one pair of runs of a tiny model on a GPU in software.
tuned() {
    env TRAIN_GPT="$soft" PAIRS=1 SOFT_GPU_DEVICES=1 \
        EXPERIMENTS="$(printf '%s\n' 'plain --graph=off nano 1 16 6 1' 'blocks NCCL_MAX_CTAS=4 nano 1 32 6 2' \
            'wrong --graph=maybe nano 1 16 6 1')" \
        OPTIONS='--layers 1 --heads 1 --channels 16 --seq-len 16 --data tests/golden/lines.txt' \
        bench/gpu_tune.sh --minutes 5 --out "$tmp/tuned" >"$tmp/tune.log" 2>&1
    [ $? = 1 ] && grep -Eq '\| plain \| `--graph=off` \|.*\| [0-9]+ \| [0-9]+ \| [0-9.]+ \|' "$tmp/tuned"/*-tune.md &&
        grep -Eq '\| blocks \| .* ranks 2 \| [0-9]+ \|' "$tmp/tuned"/*-tune.md &&
        grep -q '| wrong .* FAILED' "$tmp/tuned"/*-tune.md
}
on_gpu "experiments are run in pairs, and a failure is named" tuned
# Tiles, with times that are made up: PINGPONG us beside 60.
cat >"$tmp/kernels" <<'END'
#!/bin/sh
us=60; [ "$LOCKSTEP_TILE" = wide ] || us=$PINGPONG
[ -n "$us" ] || exit 1
printf 'data: gpt2-124m-16|%s forward|12|%s|1|1\n' qkv $us attproj $us
END
chmod +x "$tmp/kernels"
tiles() {           # PINGPONG CODE LINE
    rm -rf "$tmp/tiles"
    env TRAIN_GPT=true GPU_KERNELS="$tmp/kernels" PINGPONG="$1" OPTIONS=none PAIRS=2 bench/gpu_tune.sh \
        --out "$tmp/tiles" tiles >"$tmp/tiles.log" 2>&1
    [ $? = "$2" ] && grep -q "$3" "$tmp/tiles"/*-tune.md || { cat "$tmp/tiles.log"; return 1; }
}
check "tiles: shared memory binds" tiles 72 0 '| 1680 | 1335 | 1.200: they do |'
check "tiles: it does not" tiles 57 0 '| 1680 | 1686 | 0.950: they do not |'
check "tiles: no times" tiles '' 1 'tiles .* FAILED'
summary
