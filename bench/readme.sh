#!/bin/sh
# readme.sh -- measures what README.md and docs/performance.md say and writes it between their markers.
#   bench/readme.sh          about 6 minutes; needs a quiet machine. The date and the processor go with the numbers.
#   bench/readme.sh steps FILE...   only what steps cost: the tables that bench/step.sh and bench/peers.sh printed into
#                                   these files
#   bench/readme.sh coverage        only how many instructions of the CUDA kernels the tests have executed
#   bench/readme.sh matmul FILE     only the table of products, which bench/matmul.py printed into this file
# The tables of steps and of products of Intel's CPUs stand beside those of AMD's.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
now() { date +%s.%N; }
took() { awk "BEGIN { printf \"%.0f\", $(now) - $1 }"; }
median() { sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
field() { sed -n "s/.*\"event\":\"$2\".*\"$3\":\([^,}]*\).*/\1/p" "$1/metrics.jsonl" | tail -n 1; }

# What tests/long/test_coverage.sh counted when it last ran; nothing changes where it has not run.
coverage() {
    [ -s build/gpu_coverage.txt ] || return 0
    awk '
        function grouped(n) { return n < 1000 ? n : sprintf("%d,%03d", n / 1000, n % 1000) }
        { said = grouped($3) " of " grouped($5) " for " substr($2, 1, length($2) - 1) (said ? " and " said : "") }
        END { print "Executed by the tests: instructions " said "." }' build/gpu_coverage.txt |
        bench/put.sh README.md coverage
}
machine="$(bench/machine.sh) shared with other work"
case $machine in *Intel*) of=intel- ;; *) of= ;; esac
if [ "${1:-}" = coverage ]; then
    coverage
    exit
fi
if [ "${1:-}" = steps ]; then
    shift
    { echo "What a step costs on $machine, $(date \
        +%Y-%m-%d), by \`bench/step.sh\` and beside PyTorch and llm.c by \`bench/peers.sh\`:"
        for f in "$@"; do awk '/^\|/ { if (!table) print ""; print } { table = /^\|/ }' "$f"; done; } |
        bench/put.sh docs/performance.md "${of}steps"
    exit
fi
if [ "${1:-}" = matmul ]; then
    bench/put.sh docs/performance.md "${of}matmul" <"$2"
    exit
fi

echo 'a clean build'
git archive HEAD | (mkdir "$tmp/clone" && tar -x -C "$tmp/clone")
start=$(now); (cd "$tmp/clone" && NVCC= ./configure && ninja) >"$tmp/build.log"; build=$(took "$start")

echo 'the default run'
start=$(now); ./train_gpt --out-dir "$tmp/default" >"$tmp/default.log"; default=$(took "$start")
start=$(now); ./train_gpt --np 2 --threads 1 --out-dir "$tmp/ranks" >"$tmp/ranks.log"; by_ranks=$(took "$start")
bpb=$(field "$tmp/default" val bpb)
steps=$(sed -n 's/^ *"steps": \([0-9]*\),$/\1/p' "$tmp/default/config.json")
floor=$(printf '%.3f' "$(sed 's/.*"bits_per_byte": *\([0-9.]*\).*/\1/' build/data/stories.json)")

speed() { ./train_gpt --steps 60 --warmup-steps 6 --eval-every 0 --sample-every 0 --save-every 0 \
    --out-dir "$tmp/speed" --force "$@" >/dev/null 2>&1
    sed -n 's/.*"event":"train".*"tok_s":\([^,]*\),.*/\1/p' "$tmp/speed/metrics.jsonl" | tail -n 50 | median; }
echo 'ranks'
one=$(speed --threads 1) two=$(speed) ranks=$(speed --np 2 --threads 1)

{
    echo "Measured on $machine, $(date +%Y-%m-%d), by \`bench/readme.sh\`:"
    echo
    echo '| | |'
    echo '|---|---|'
    echo "| clean build without CUDA, $(nproc) cores | $build s |"
    echo "| default run ($steps steps of $(field "$tmp/default" run \
        tokens_per_step) tokens, $(field "$tmp/default" run params) parameters) | $default s |"
    echo "| the same as 2 ranks of 1 thread (\`--np 2 --threads 1\`), which meet once a step | $by_ranks s |"
    echo "| its validation loss | $(printf '%.3f' "$bpb") bits per byte; the text's entropy is $floor |"
    awk -v one="$one" -v two="$two" -v ranks="$ranks" 'BEGIN {
        printf "| tokens/s of the default model: 1 thread, 2 threads, 2 ranks of 1 thread | %.0f, %.0f, %.0f |\n",
            one, two, ranks }'
} | bench/put.sh docs/performance.md numbers
{
    set -- $(grep '^train_gpt ' .ci/budget)
    echo "Linked into train_gpt: $2 code tokens in $3 files (the goal is 165,000 in 100;"
    echo '`bench/weight.sh` counts them, `.ci/budget` limits them);'
    printf 'clean CPU build %s s; default run to %.3f bits per byte %s s, ' "$build" "$bpb" "$default"
    echo "with \`--np 2 --threads 1\` $by_ranks s ($machine, $(date +%Y-%m-%d);"
    echo 'by `bench/readme.sh`, more in [docs/performance.md](docs/performance.md)).'
} | bench/put.sh README.md figures
coverage
