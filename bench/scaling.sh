#!/bin/sh
# scaling.sh -- what a second rank costs: measured on this machine's cores. Writes a table of docs/scaling.md.
#   bench/scaling.sh [--no-124m]        four minutes on a quiet machine, one without GPT-2 124M
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ninja train_gpt >"$tmp/log" || { cat "$tmp/log"; exit 1; }
median() { sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
best() { sort -n | tail -n 1; }
field() { sed -n "s/.*\"event\":\"train\".*\"$2\":\([^,}]*\).*/\1/p" "$1/metrics.jsonl" | tail -n +3; }
quiet="--eval-every 0 --sample-every 0 --save-every 0 --audit-every 0 --force"

# Turn by turn, so that a busy minute meets all of them; the best round's median stands for each: other work only ever
# takes.
setups='1x1 1x2 2x1 4x1'        # ranks x threads
for round in 1 2 3; do
    for s in $setups; do
        ./train_gpt --np "${s%x*}" --threads "${s#*x}" --steps 7 --warmup-steps 2 $quiet --out-dir "$tmp/$s" \
            >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
        field "$tmp/$s" tok_s | median >>"$tmp/$s.tok_s"
        field "$tmp/$s" exposed_ms >>"$tmp/$s.exposed"
    done
done

# GPT-2 124M, a micro-batch per rank. With letters above 127 and zeros this is no text, and each pair a token below
# 50,257.
sizes='1x64 2x1024'             # B x T
if [ "${1:-}" = --no-124m ]; then sizes=; fi
for i in 1 2 3 4 5 6 7 8; do tr 'a-z ' '\200-\231\000' <tests/golden/lines.txt; done >"$tmp/lines.u16.bin"
for s in $sizes; do
    ./train_gpt --np 2 --threads 1 --preset gpt2-124m --device cpu --dtype fp32 --data "$tmp/lines.u16.bin" \
        --batch-size "${s%x*}" --seq-len "${s#*x}" \
        --total-batch-size $((2 * ${s%x*} * ${s#*x})) --replicas 2 --steps 5 --warmup-steps 2 $quiet \
        --out-dir "$tmp/$s" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
done

{
    echo "Written by \`bench/scaling.sh\`: $(bench/machine.sh), $(date \
        +%Y-%m-%d). The default model, 4,096 tokens per step, of 3 rounds by turns the best one's median."
    echo
    echo '| ranks x threads | tokens/s | beside 1 x 2 | exposed communication, ms per step |'
    echo '|---|---|---|---|'
    base=$(best <"$tmp/1x2.tok_s")
    for s in $setups; do
        note=; [ "$((${s%x*} * ${s#*x}))" -le "$(nproc)" ] || note=' (more threads than cores)'
        awk -v s="$s$note" -v t="$(best <"$tmp/$s.tok_s")" -v b="$base" -v e="$(median <"$tmp/$s.exposed")" 'BEGIN {
            printf "| %s | %.0f | %.0f %% | %.2f |\n", s, t, 100 * t / b, e }'
    done
    echo
    for s in $sizes; do
        awk -v B="${s%x*}" -v T="${s#*x}" -v ms="$(field "$tmp/$s" step_ms | median)" \
            -v e="$(field "$tmp/$s" exposed_ms | median)" 'BEGIN {
            printf "GPT-2 124M, 2 ranks of one thread, each B %d, T %d, fp32: a step of %.0f ms, ", B, T, ms
            printf "of it %.0f ms (%.1f %%) wait for the reduction.\n", e, 100 * e / ms }'
    done
} | bench/put.sh docs/scaling.md ranks
