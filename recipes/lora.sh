#!/bin/sh
# lora.sh -- fine-tunes a Hugging Face model on a text of yours with LoRA and writes the result as a whole model.
#
#   recipes/lora.sh MODEL TEXT [OUT]      OUT: runs/lora by default; a run in it goes on
#   recipes/lora.sh --smoke [OUT]         the same with a small model that is made first
#
# MODEL: a folder with config.json, model.safetensors and tokenizer.json of GPT-2, Llama, SmolLM2, Qwen2 or Qwen3.
# TEXT: file, folder or glob of text or .jsonl; its last tenth is for validation. Paths are relative to the repository.
#
# What to expect depends on the text. The validation loss at step 0 is that of MODEL alone; ckpt/best is the checkpoint
# with the lowest. docs/models.md lists the memory that models need, and losses at several learning rates.

set -eu
cd "$(dirname "$0")/.."
case ${1:-} in --help|'') sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit ;; esac

size='--batch-size 1 --seq-len 512 --total-batch-size 8192 --steps 300 --eval-every 50 --save-every 50'
if [ "$1" = --smoke ]; then             # a small Llama, trained on the built-in stories for 60 steps
    dir=${2:-$(mktemp -d)}
    small='--device cpu --batch-size 2 --seq-len 64 --total-batch-size 1024 --eval-steps 8 --sample-every 0'
    [ -e "$dir/model" ] || {
        ./train_gpt --preset llama-nano --layers 2 --channels 64 $small --steps 60 --out-dir "$dir/base" --resume auto
        build/export "$dir/base" --hf "$dir/model"
    }
    set -- "$dir/model" README.md "$dir/lora"
    size="$small --steps 60 --eval-every 20 --lr 1e-2"
fi
model=$1 text=$2 out=${3:-runs/lora}

# Every matrix gets an adapter of rank 16. The default --lr is ten times that of full fine-tuning.
./train_gpt --init "$model" --lora 16 --data "$text" $size --out-dir "$out" --resume auto
./train_gpt eval "$out/ckpt/best"       # over the validation part
./train_gpt sample "$out/ckpt/best" --max-tokens 100
[ -e "$out/adapter" ] || build/export "$out/ckpt/best" --hf "$out/adapter"              # for PEFT
[ -e "$out/merged" ] || build/export "$out/ckpt/best" --hf "$out/merged" --merge        # for all other programs
