#!/bin/sh
# step.sh -- what a step costs on this machine's CPU: speed, share of the fp32 ceiling measured in the same minute, peak
# memory.
#   bench/step.sh [nano] [64] [1024] [recompute]     nano, and GPT-2 124M with B 4 and T 64 or 1024, also with
#                                                    --recompute 1 (default: nano and 64; T 1024 takes minutes)
# Medians of the steps after the first. Peak memory is VmHWM, start is from the command to the first step.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
median() { sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
# Random tokens below 50,176: both bytes of each are below 196.
head -c 2000000 /dev/urandom | LC_ALL=C tr '\304-\377' '\000-\073' >"$tmp/tokens.u16.bin"
[ -x build/bench/roofline ] || ninja build/bench/roofline >/dev/null

# row NAME STEPS OPTION...: runs it in fp32 and bf16 and prints a row each.
row() {
    name=$1 steps=$2; shift 2
    for dtype in fp32 bf16; do
        start=$(date +%s.%N)
        ./train_gpt --dtype $dtype --steps "$steps" --warmup-steps 1 --log-every 1 --eval-every 0 --sample-every 0 \
            --save-every 0 --out-dir "$tmp/run" --force "$@" >"$tmp/log" 2>&1 &
        pid=$! peak=0
        while kb=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\).*/\1/p' /proc/$pid/status 2>/dev/null) && [ -n "$kb" ]; do
            peak=$kb; sleep 0.05; done
        wait $pid || { tail -n 3 "$tmp/log" >&2; exit 1; }
        ceiling=$(build/bench/roofline fp32)
        sed -n 's/.*"event":"train","step":[1-9][0-9]*,.*"step_ms":\([^,]*\),.*/\1/p' "$tmp/run/metrics.jsonl" |
            median >"$tmp/ms"
        first=$(sed -n 's/.*"event":"train","step":0,.*"step_ms":\([^,]*\),.*"time":\([0-9.]*\).*/\2 \1/p' \
            "$tmp/run/metrics.jsonl" | awk -v start="$start" '{ printf "%.2f", $1 - $2 / 1000 - start }')
        tokens=$(sed -n 's/.*"event":"train","step":0,.*"tokens":\([0-9]*\),.*/\1/p' "$tmp/run/metrics.jsonl")
        rate=$(sed -n 's/^step  *[1-9][0-9]*\/.*| *\([0-9.]*\) GFLOP.*/\1/p' "$tmp/log" | median)
        awk -v name="$name" -v dtype=$dtype -v ms="$(cat "$tmp/ms")" -v tokens="$tokens" -v rate="$rate" \
            -v ceiling="$ceiling" -v peak="$peak" -v first="$first" 'BEGIN {
            printf "| %s | %s | %.1f | %.0f | %.1f | %.0f %% of %.0f | %.2f | %s |\n", name, dtype, ms,
                tokens / ms * 1000, rate, 100 * rate / ceiling, ceiling, peak * 1024e-9, first }'
    done
}

echo '| step | dtype | ms | tokens/s | GFLOP/s | of the fp32 ceiling | peak memory, GB | start, s |'
echo '|---|---|---|---|---|---|---|---|'
for what in ${*:-nano 64}; do
    case $what in
        nano) row nano 40 ;;
        64) row '124M, B 4, T 64' 8 --preset gpt2-124m --data "$tmp/tokens.u16.bin" --batch-size 4 --seq-len 64 \
            --total-batch-size 256 ;;
        1024) row '124M, B 4, T 1024' 4 --preset gpt2-124m --data "$tmp/tokens.u16.bin" --batch-size 4 --seq-len 1024 \
            --total-batch-size 4096 ;;
        recompute) row '124M, B 4, T 1024, `--recompute 1`' 4 --preset gpt2-124m --data "$tmp/tokens.u16.bin" \
            --batch-size 4 --seq-len 1024 --total-batch-size 4096 --recompute 1 ;;
        *) echo "step.sh: got $what, want nano, 64, 1024 or recompute" >&2; exit 2 ;;
    esac
done
