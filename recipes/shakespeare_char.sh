#!/bin/sh
# shakespeare_char.sh -- nanoGPT's first example: a GPT learns to spell like Shakespeare, character by character.
#
#   recipes/shakespeare_char.sh [--smoke | --cpu] [OUT]     OUT: runs/shakespeare; a run in it goes on
#
# Data: data/tinyshakespeare.txt, 1.1 MB, which data/get_tinyshakespeare.sh fetches.
#
# nanoGPT's README reports a best validation loss of 1.4697 after about 3 minutes on an A100, and 1.88 after about 3
# minutes on a laptop with the smaller model of --cpu. The 1.88 is measured on 240 random windows. On the whole
# validation text PyTorch gets 1.90 to 1.91 (tests/long/test_shakespeare.sh). This recipe got 1.893 there, in 93 s on 2
# busy cores of an AMD EPYC. A fresh model has ln 65 = 4.17. The larger model takes 82 epochs, of which a warning tells:
# it overfits soon, and its validation loss rises again. ckpt/best is the checkpoint before that.

set -eu
cd "$(dirname "$0")/.."
if [ "${1:-}" = --help ]; then sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit; fi

# nanoGPT's config/train_shakespeare_char.py, for a GPU
size='--layers 6 --heads 6 --channels 384 --seq-len 256 --batch-size 64 --total-batch-size 16384 --dropout 0.2'
steps=5000 text=data/tinyshakespeare.txt
case ${1:-} in
    --cpu)              # as nanoGPT's README has it for a laptop
        shift
        size='--layers 4 --heads 4 --channels 128 --seq-len 64 --batch-size 12 --total-batch-size 768 --device cpu'
        steps=2000 ;;
    --smoke)            # still smaller; a file of this repository is the text
        set -- "${2:-$(mktemp -d)}"
        size='--layers 2 --heads 2 --channels 32 --seq-len 64 --batch-size 12 --total-batch-size 768 --device cpu'
        steps=300 text=README.md ;;
esac
out=${1:-runs/shakespeare}
[ -f "$text" ] || data/get_tinyshakespeare.sh

./train_gpt $size --data "$text" --tokenizer char --steps $steps --lr 1e-3 --final-lr-frac 0.1 --warmup-steps 100 \
    --beta2 0.99 --weight-decay 0.1 --grad-clip 1 --eval-every 250 --save-every 250 --out-dir "$out" --resume auto
./train_gpt eval "$out/ckpt/best"
./train_gpt sample "$out/ckpt/best" --prompt "ROMEO:" --max-tokens 500
