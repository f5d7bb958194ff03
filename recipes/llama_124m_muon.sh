#!/bin/sh
# llama_124m_muon.sh -- pretrains a Llama of 111M parameters on your own texts with Muon, from raw text to a GGUF file.
#
#   recipes/llama_124m_muon.sh TEXTS [OUT]      OUT: runs/llama-124m-muon by default
#   recipes/llama_124m_muon.sh --smoke [OUT]    the same, small, with the built-in text
#
# TEXTS: a file, folder or quoted glob of .jsonl or text, also .gz or .zst. After an interruption the same command
# goes on where it stopped. Paths are relative to the repository.
#
# What to expect: no run of this size has been measured. Small models reached AdamW's last loss in 1.7 to 2.7 times
# fewer steps with Muon (docs/optimizers.md). The preset's 18,865 steps of 524,288 tokens are 9.9 billion tokens. With
# 20 tokens for each of the 111 million parameters (Hoffmann and others 2022), 4,200 steps would do.

set -eu
cd "$(dirname "$0")/.."
case ${1:-} in --help|'') sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit ;; esac

if [ "$1" = --smoke ]; then
    set -- build/data/stories_train.jsonl "${2:-$(mktemp -d)}"
    ranks=2 vocabulary=bpe:512
    smaller='--device cpu --layers 2 --heads 4 --channels 64 --mlp-size 192 --seq-len 64 --batch-size 4
        --total-batch-size 2048 --steps 60'
else
    ranks=8 vocabulary=bpe:32000 smaller=
fi
texts=$1 out=${2:-runs/llama-124m-muon}

# Makes tokens once: learns a vocabulary from the first 16 MiB, and keeps one document in a hundred for validation.
build/prep "$texts" --tokenizer $vocabulary -o "$out/shards"
# Muon updates the matrices with --muon-lr, AdamW all else with --lr; both rates are the defaults here.
./train_gpt --np $ranks --preset llama-124m --optimizer muon $smaller --data "$out/shards" \
    --eval-every 250 --eval-steps 640 --sample-every 1000 --save-every 1000 --out-dir "$out/run" --resume auto
./train_gpt eval "$out/run"
./train_gpt sample "$out/run" --max-tokens 100
[ -e "$out/model.gguf" ] || build/export "$out/run" --gguf "$out/model.gguf"        # for llama.cpp
