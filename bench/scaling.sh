#!/bin/sh
# scaling.sh -- what a second rank costs: measured on this machine's cores, modelled for GPUs. Writes docs/scaling.md.
#   bench/scaling.sh [--no-124m]        about a minute on a quiet machine
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ninja train_gpt build/bench/allreduce build/bench/scaling >"$tmp/log" || { cat "$tmp/log"; exit 1; }
median() { sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
best() { sort -n | tail -n 1; }
field() { sed -n "s/.*\"event\":\"train\".*\"$2\":\([^,}]*\).*/\1/p" "$1/metrics.jsonl" | tail -n +3; }
quiet="--eval-every 0 --sample-every 0 --save-every 0 --audit-every 0 --force"

# Turn by turn, so that a busy minute meets all of them; the best round's median stands for each: other work only ever takes.
setups='1x1 1x2 2x1 4x1'        # ranks x threads
for round in 1 2 3; do
    for s in $setups; do
        ./train_gpt --np "${s%x*}" --threads "${s#*x}" --steps 7 --warmup-steps 2 $quiet --out-dir "$tmp/$s" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
        field "$tmp/$s" tok_s | median >>"$tmp/$s.tok_s"
        field "$tmp/$s" exposed_ms >>"$tmp/$s.exposed"
    done
done
for i in 1 2; do build/bench/allreduce 2 shm >>"$tmp/allreduce"; done
awk '{ if (!($3 in t) || $4 < t[$3]) t[$3] = $4; k = $1; r = $2 } END { for (b in t) print k, r, b, t[b] }' "$tmp/allreduce" | sort -n -k3 >"$tmp/best"

# GPT-2 124M: with letters above 127 and zeros this is no text, and each pair a token below 50,257. One leaf of B 1 x T 64 per rank: how long the reduction takes does not depend on it.
exposed124=
if [ "${1:-}" != --no-124m ]; then
    tr 'a-z ' '\200-\231\000' <tests/golden/lines.txt >"$tmp/lines.bin"
    ./train_gpt --np 2 --threads 1 --preset gpt2-124m --device cpu --dtype fp32 --data "$tmp/lines.bin" --seq-len 64 --batch-size 1 --total-batch-size 128 --lanes 2 \
        --steps 5 --warmup-steps 2 $quiet --out-dir "$tmp/124m" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
    exposed124=$(field "$tmp/124m" exposed_ms | median)
    step124=$(field "$tmp/124m" step_ms | median)
    compute124=$(field "$tmp/124m" compute_ms | median)
fi

{
    echo '# What a second rank costs'
    echo
    echo "Written by \`bench/scaling.sh\`: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(date +%Y-%m-%d). The default model, 4,096 tokens per step, of 3 rounds by turns the best one's median."
    echo
    echo '| ranks x threads | tokens/s | beside 1 x 2 | exposed communication, ms per step |'
    echo '|---|---|---|---|'
    base=$(best <"$tmp/1x2.tok_s")
    for s in $setups; do
        note=; [ "$((${s%x*} * ${s#*x}))" -le "$(nproc)" ] || note=' (more threads than cores)'
        awk -v s="$s$note" -v t="$(best <"$tmp/$s.tok_s")" -v b="$base" -v e="$(median <"$tmp/$s.exposed")" 'BEGIN { printf "| %s | %.0f | %.0f %% | %.2f |\n", s, t, 100 * t / b, e }'
    done
    echo
    if [ -n "$exposed124" ]; then
        awk -v e="$exposed124" -v s="$step124" -v c="$compute124" 'BEGIN {
            long = c * (6 * 124.4e6 + 6 * 12 * 768 * 1024) * 4 * 1024 / ((6 * 124.4e6 + 6 * 12 * 768 * 64) * 64)
            printf "GPT-2 124M, 2 ranks of one thread, B 1, T 64, fp32: step %.0f ms, of it %.0f ms (%.1f %%) wait for the reduction. With B 4, T 1024 the\n", s, e, 100 * e / s
            printf "same reduction stands beside about %.0f s of computation (by operations): %.2f %%.\n\n", long / 1e3, 100 * e / (long + e) }'
    fi
    build/bench/scaling <"$tmp/best"
    echo
    echo 'The default step of 524,288 tokens gives each of 8 GPUs 4 leaves: the communication is the same, the computation four times as long.'
    echo 'Beyond some hundred nodes the messages count: a rank exchanges with every node directly.'
} >"$tmp/scaling.md"
cp "$tmp/scaling.md" docs/scaling.md
cat docs/scaling.md
