#!/bin/sh
# chat.sh -- fine-tunes a small model on conversations, talks to it, and writes a file for llama.cpp and ollama.
#
#   recipes/chat.sh MODEL CHAT [OUT]      OUT: runs/chat by default; a run in it goes on
#   recipes/chat.sh --smoke [OUT]         the same, small: makes a model and conversations first
#
# MODEL: a Hugging Face folder (GPT-2, Llama, SmolLM2, Qwen2) or a run. CHAT: a .jsonl of conversations, as
# tools/text/chat.h describes them; their last tenth is for validation. Paths are relative to the repository.
#
# What to expect: the loss counts the assistant's tokens only, so it is lower than that of the same model on text. It
# falls within a few hundred steps. One to three passes over the conversations are common. If the validation loss rises
# at last, ckpt/best is the checkpoint before that. docs/models.md says what fits into 16 GB on a CPU.

set -eu
cd "$(dirname "$0")/.."
case ${1:-} in --help|'') sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit ;; esac

size='--batch-size 4 --seq-len 512 --total-batch-size 16384 --steps 300 --eval-every 50 --save-every 50'
question='Who are you?'
if [ "$1" = --smoke ]; then
    dir=${2:-$(mktemp -d)}
    small='--device cpu --batch-size 6 --seq-len 64 --total-batch-size 2304 --sample-every 0'
    mkdir -p "$dir"
    awk 'BEGIN { for (i = 0; i < 400; i++) { a = i % 10; b = int(i / 10) % 10
        print "{\"messages\":[{\"role\":\"user\",\"content\":\"" a " plus " b "?\"}," \
              "{\"role\":\"assistant\",\"content\":\"" a " and " b " make " a + b ".\"}]}" } }' >"$dir/chat.jsonl"
    [ -e "$dir/base" ] ||
        ./train_gpt --preset llama-nano --layers 2 --channels 64 $small --steps 20 --out-dir "$dir/base"
    set -- "$dir/base" "$dir/chat.jsonl" "$dir/chat"
    size="$small --steps 240 --eval-every 80 --lr 1e-2"
    question='2 plus 3?'
fi
model=$1 chat=$2 out=${3:-runs/chat}

# Control tokens that the model's tokenizer lacks are added. With --lora 16 none can be added.
./train_gpt --init "$model" --data "$chat" $size --prompt "$question" --out-dir "$out" --resume auto
./train_gpt eval "$out/ckpt/best"                               # nats per token of the assistant
echo "$question" | ./train_gpt chat "$out/ckpt/best"            # without echo you type the questions
[ -e "$out/chat.gguf" ] || build/export "$out/ckpt/best" --gguf "$out/chat.gguf"
echo "talk to it: ./train_gpt chat $out"
