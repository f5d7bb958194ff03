#!/bin/sh
# llama_124m_muon.sh -- pretrains a Llama of 111M parameters on your own texts with Muon, from raw text to a GGUF file.
#
#   recipes/llama_124m_muon.sh TEXTS [OUT]      TEXTS: a file, folder or quoted glob of .jsonl or text, also .gz, .zst
#   recipes/llama_124m_muon.sh --smoke [OUT]    the same, small, with the built-in text; OUT: runs/llama-124m-muon
#
# Interrupted, the same command goes on where it was, in any of its parts. Paths count from the repository.
#
# What to expect: no run of this size has been measured. With small models Muon took 1.7 to 2.7 times fewer steps than
# AdamW to AdamW's last loss (docs/optimizers.md). With 20 tokens for each of its 111 million parameters (Hoffmann and
# others 2022) it would take 2.2 billion, 4,200 steps of 524,288; the preset's 18,865 steps are 9.9 billion.

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

# Texts become tokens once: a vocabulary learned from their first 16 MiB, one document in a hundred for validation.
build/prep "$texts" --tokenizer $vocabulary -o "$out/shards"
# Muon moves the matrices at --muon-lr, AdamW all else at --lr: both rates here are the defaults.
./train_gpt --np $ranks --preset llama-124m --optimizer muon $smaller --data "$out/shards" \
    --eval-every 250 --eval-steps 640 --sample-every 1000 --save-every 1000 --out-dir "$out/run" --resume auto
./train_gpt eval "$out/run"
./train_gpt sample "$out/run" --max-tokens 100
[ -e "$out/model.gguf" ] || build/export "$out/run" --gguf "$out/model.gguf"        # for llama.cpp
