#!/bin/sh
# optimizers.sh -- after how many steps does each optimizer have the validation loss that the best AdamW ends with?
#   bench/optimizers.sh [FOLDER]   trains the default model with each optimizer and learning rate on two texts, and
#                                  writes the table of docs/optimizers.md: 14 runs, 20 minutes on two quiet cores.
#                                  Runs that FOLDER holds already are not made again. TEXT=FILE is the second text
#                                  (data/tinyshakespeare.txt).
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
folder=${1:-$tmp/runs}
text=${TEXT:-data/tinyshakespeare.txt}
[ -f "$text" ] || data/get_tinyshakespeare.sh

# train NAME OPTION...: on both texts.
train() {
    name=$1
    shift
    for on in stories shakespeare; do
        run=$folder/$on-$name
        ! grep -qs '"event":"done".*"code":0,' "$run/metrics.jsonl" || continue
        [ $on = stories ] || set -- "$@" --data "$text" --tokenizer char
        ./train_gpt --eval-every 20 --eval-steps 16 --sample-every 0 --save-every 0 --audit-every 0 --out-dir "$run" \
            --force "$@" >"$tmp/log" || { tail -n 3 "$tmp/log" >&2; exit 1; }
    done
}
losses() { sed -n 's/.*"event":"val","step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$folder/$1/metrics.jsonl"; }
final() { losses "$1" | awk 'END { print $2 }'; }
# reached RUN LOSS: the first evaluation that has it.
reached() { losses "$1" | awk -v want="$2" '!step && $2 <= want { step = $1 } END { print step ? step : "never" }'; }

rates='adamw-0.00125 adamw-0.0025 adamw-0.005 adamw-0.01 muon-0.01 muon-0.02 muon-0.04'
for rate in $rates; do
    case $rate in
        adamw-*) train $rate --lr "${rate#*-}" ;;
        muon-*) train $rate --optimizer muon --muon-lr "${rate#*-}" ;;
    esac
done
for on in stories shakespeare; do
    for rate in $rates; do
        case $rate in adamw-*) final $on-$rate ;; esac
    done | sort -g | head -n 1 >"$tmp/best-$on"
done
{
    echo "By \`bench/optimizers.sh\`, $(date +%Y-%m-%d), with an evaluation every 20 steps. An optimizer's step is the"
    echo "first with the loss that the best AdamW ends with:"
    echo
    echo '| optimizer | built-in stories: final loss | step | tinyshakespeare: final loss | step |'
    echo '|---|---:|---:|---:|---:|'
    for rate in $rates; do
        option=--lr
        [ "${rate%-*}" = adamw ] || option=--muon-lr
        printf '| %s, `%s %s` |' "${rate%-*}" $option "${rate#*-}"
        for on in stories shakespeare; do
            printf ' %.3f | %s |' "$(final $on-$rate)" "$(reached $on-$rate "$(cat "$tmp/best-$on")")"
        done
        echo
    done
} | bench/put.sh docs/optimizers.md table
