#!/bin/sh
# models.sh -- what each kind of model learns from the same tokens: the small preset of GPT-2 and that of the Llama
# family, which have as many parameters, each at several learning rates, on two texts.
#   bench/models.sh [FOLDER]   writes the table of docs/models.md: 12 runs, 12 minutes on two quiet cores. Runs that
#                              FOLDER holds already are not made again. TEXT=FILE is the second text
#                              (data/tinyshakespeare.txt).
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
folder=${1:-$tmp/runs}
text=${TEXT:-data/tinyshakespeare.txt}
[ -f "$text" ] || data/get_tinyshakespeare.sh
rates='0.0025 0.005 0.01'

train() {       # PRESET RATE TEXT [OPTION...]
    run=$folder/$3-$1-$2
    ! grep -qs '"event":"done".*"code":0,' "$run/metrics.jsonl" || return 0
    preset=$1 rate=$2
    shift 3
    ./train_gpt --preset "$preset" --lr "$rate" --eval-every 20 --eval-steps 16 --sample-every 0 --save-every 0 \
        --audit-every 0 --out-dir "$run" --force "$@" >"$tmp/log" || { tail -n 3 "$tmp/log" >&2; exit 1; }
}
final() {       # RUN: its last validation loss
    sed -n 's/.*"event":"val","step":[0-9]*,"loss":\([^,]*\),.*/\1/p' "$folder/$1/metrics.jsonl" | tail -n 1
}
for preset in nano llama-nano; do
    for rate in $rates; do
        train $preset $rate stories
        train $preset $rate shakespeare --data "$text" --tokenizer char
    done
done
{
    echo "By \`bench/models.sh\`, $(date +%Y-%m-%d): validation loss after 480 steps, in nats per token."
    echo
    echo '| preset | `--lr` | built-in stories | tinyshakespeare |'
    echo '|---|---:|---:|---:|'
    for preset in nano llama-nano; do
        for rate in $rates; do
            printf '| %s | %s | %.3f | %.3f |\n' $preset $rate "$(final stories-$preset-$rate)" \
                "$(final shakespeare-$preset-$rate)"
        done
    done
} | bench/put.sh docs/models.md table
