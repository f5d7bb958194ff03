#!/bin/sh
# start.sh -- how long ranks on one machine take to start, and how much memory they need. Writes a table of
# docs/scaling.md.
#   bench/start.sh              two minutes; needs a quiet machine and 2 GB
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ninja train_gpt >"$tmp/log" || { cat "$tmp/log"; exit 1; }
median() { sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
first_step() { grep -m 1 '"event":"train"' "$tmp/run/metrics.jsonl" 2>/dev/null; }

# start RANKS: prints the seconds from the command to the first step, and the MiB of all ranks after it (PSS: memory
# that n processes share counts as 1/n in each).
start() {
    began=$(date +%s.%N)
    ./train_gpt --np "$1" --threads 1 --max-restarts 0 --layers 1 --heads 1 --channels 16 --seq-len 8 --batch-size 1 \
        --total-batch-size $((8 * $1)) --replicas "$1" --steps 1000000 --eval-every 0 --sample-every 0 --save-every 0 \
        --audit-every 0 --force --out-dir "$tmp/run" >"$tmp/log" 2>&1 &
    supervisor=$!
    until first_step >/dev/null; do
        kill -0 $supervisor 2>/dev/null || { tail -n 3 "$tmp/log" >&2; exit 1; }
        sleep 0.1
    done
    pss=$(for pid in $(pgrep -P $supervisor); do cat "/proc/$pid/smaps_rollup"; done |
        awk '/^Pss:/ { sum += $2 } END { print sum / 1024 }')
    kill -KILL $supervisor              # the ranks end with it
    first_step | sed 's/.*"step_ms":\([^,]*\),.*"time":\([0-9.]*\).*/\1 \2/' |
        awk -v began="$began" -v pss="$pss" '{ print $2 - $1 / 1000 - began, pss }'
    wait $supervisor 2>/dev/null || true
    while pgrep -f "$tmp/run" >/dev/null; do sleep 0.1; done
    rm -rf "$tmp/run"
}

{
    echo "Written by \`bench/start.sh\`: $(bench/machine.sh), $(date \
        +%Y-%m-%d). \`--np W --threads 1\`, a model of one layer and 16 channels, 8 tokens" \
        "per rank; medians of 3 starts. Start: from the command to the first step. Memory: of all ranks while they" \
        "train; what they share counts once (PSS)."
    echo
    echo '| ranks W | start, s | memory, MiB | per rank, MiB |'
    echo '|---:|---:|---:|---:|'
    for ranks in 16 64 256 1024; do
        for round in 1 2 3; do start $ranks; done >"$tmp/starts"
        awk -v ranks=$ranks -v s="$(cut -d' ' -f1 "$tmp/starts" | median)" \
            -v mib="$(cut -d' ' -f2 "$tmp/starts" | median)" 'BEGIN {
            printf "| %s | %.1f | %.0f | %.1f |\n", ranks, s, mib, mib / ranks }'
    done
} | bench/put.sh docs/scaling.md start
