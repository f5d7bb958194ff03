#!/bin/sh
# gpt2_124m_fineweb.sh -- pretrains GPT-2 124M on 10 billion tokens of FineWeb with llm.c's settings, on 8 GPUs.
#
#   recipes/gpt2_124m_fineweb.sh [--smoke] [OUT]     OUT: runs/gpt2-124m-fineweb; a run in it goes on
#
# Data: data/fineweb10B/fineweb_train_*.bin and fineweb_val_*.bin, GPT-2's tokens in shards of 100 million, as llm.c's
# `dev/data/fineweb.py --version 10B` writes them.
#
# What llm.c reached: validation loss 3.28 after 18,865 steps, 94 minutes and about 20 dollars on 8 A100 of 80 GB
# (scripts/run_gpt2_124M.sh, discussion 481; modded-nanogpt quotes 3.2847), HellaSwag 29.9 % (OpenAI's weights: 29.4 %).
# `./train_gpt --dry-run --preset gpt2-124m --for 8xa100` predicts a step's time and memory with Lockstep.

set -eu
cd "$(dirname "$0")/.."
if [ "${1:-}" = --help ]; then sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit; fi

if [ "${1:-}" = --smoke ]; then         # the same, small: shards of the built-in text, two CPU ranks
    out=${2:-$(mktemp -d)}
    build/prep build/data/stories_train.jsonl --tokenizer bpe:512 -o "$out/shards"
    ranks=2 data=$out/shards tokenizer=$out/shards/tokenizer.json
    smaller='--device cpu --layers 2 --heads 2 --channels 64 --seq-len 64 --batch-size 4 --total-batch-size 2048
        --steps 60'
else
    out=${1:-runs/gpt2-124m-fineweb}
    [ -f data/vocab.bpe ] || data/get_gpt2_vocab.sh     # the text of tokens, for samples and bits per byte
    ranks=8 data=data/fineweb10B tokenizer=gpt2 smaller=
fi

# The preset holds llm.c's settings: 12 layers, 768 channels, 1,024 tokens of context, 524,288 tokens a step, AdamW with
# rate 6e-4, 700 steps of warm-up, a cosine to 0, weight decay 0.1, no dropout. An evaluation scores 10,485,760 tokens
# as llm.c's does: 640 batches of 16 x 1,024. `mpirun -np 8 --bind-to none ./train_gpt` starts the same 8 ranks.
./train_gpt --np $ranks --preset gpt2-124m $smaller --data "$data" --tokenizer "$tokenizer" \
    --eval-every 250 --eval-steps 640 --sample-every 1000 --save-every 1000 --out-dir "$out" --resume auto
./train_gpt eval "$out"                 # over all validation tokens
