#!/bin/sh
# tokenizer.sh -- the speed of the tokenizers beside tiktoken and Hugging Face's tokenizers (bench/tokenizer.py), and of
# the start: from the command to the first step.
#   bench/tokenizer.sh [ROUNDS]      about a minute; needs a quiet machine
#   PYTHON=/path/to/python           one that has tiktoken, tokenizers and numpy
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-5}
shared=${LOCKSTEP_SHARED:-$PWD/../shared}/data
ninja train_gpt build/bench/tokenizer >/dev/null
[ -f "$shared/gpt2_vocab.bpe" ] || {
    echo "SKIP bench/tokenizer.sh: $shared/gpt2_vocab.bpe is not here (LOCKSTEP_SHARED)"; exit 0; }

# start NAME OPTIONS...: medians of the wall time of a run of one step that neither evaluates, samples nor saves: what
# is not the step (start, end, a new model of that vocabulary), and the step.
start() {
    name=$1; shift
    tmp=$(mktemp -d)
    for i in $(seq "$rounds"); do
        begin=$(date +%s%N)
        ./train_gpt --steps 1 --warmup-steps 0 --eval-every 0 --sample-every 0 --save-every 0 --out-dir "$tmp/run" \
            --force "$@" >/dev/null
        end=$(date +%s%N)
        step=$(sed -n 's/.*"event":"train".*"step_ms":\([0-9.]*\).*/\1/p' "$tmp/run/metrics.jsonl")
        echo "$begin $end $step" | awk '{ printf "%.0f %.0f\n", ($2 - $1) / 1e6 - $3, $3 }'
    done | sort -n | awk -v name="$name" '{ x[NR] = $1; s[NR] = $2 } END { k = int((NR + 1) / 2);
        printf "bench: start of %s: %d ms; its first step: %d ms\n", name, x[k], s[k] }'
    rm -rf "$tmp"
}
start 'the default run'
start 'tinyshakespeare.txt in bytes' --data "$shared/tinyshakespeare.txt"
start "tinyshakespeare.txt with GPT-2's vocabulary" --data "$shared/tinyshakespeare.txt" \
    --tokenizer "$shared/gpt2_vocab.bpe"
start 'tinyshakespeare.txt with bpe:1024' --data "$shared/tinyshakespeare.txt" --tokenizer bpe:1024

for python in "${PYTHON:-python3}" build/venv/bin/python; do
    "$python" -c 'import numpy, tiktoken, tokenizers' 2>/dev/null && LOCKSTEP_SHARED=${shared%/data} exec "$python" \
        bench/tokenizer.py "$rounds"
done
echo 'SKIP bench/tokenizer.py: no Python with numpy, tiktoken and tokenizers; set PYTHON'
