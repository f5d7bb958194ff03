#!/bin/sh
# test_gguf.sh -- a run, its Hugging Face folder and its GGUF files are one model: the same greedy text by train_gpt,
# transformers and llama.cpp, the same loss, and quantized matrices byte for byte as the package gguf makes them.
. tests/lib.sh
tools=${TOOLS:-build}
find_python "torch, transformers, gguf, xllamacpp" gguf
theirs="$python tests/check_gguf.py"
# A model, trained for a few seconds.
shape="--layers 2 --heads 2 --channels 64 --seq-len 128"
small="--batch-size 4 --total-batch-size 1024 --steps 400 --warmup-steps 10 --lr 5e-3 --sample-every 0 --eval-every 0
       --save-every 400 --dtype fp32"
text=$shared/data/tinyshakespeare.txt
[ -r "$text" ] || text=data/tinyshakespeare.txt
[ -r "$text" ] || text=tests/golden/lines.txt
head -c 200000 "$text" >"$tmp/one.txt"

score() { $train eval "$1" --dtype fp32 --data "$2"; }
number() { sed 's/val loss \([0-9.]*\).*/\1/'; }
greedy() { $train sample "$1" --dtype fp32 --prompt "$2" --max-tokens 60 --temperature 0; }
# compare NAME PROMPT TYPES OPTIONS...: trains and exports a model, then compares. Where documents were its data, the
# end-of-text token stands before a prompt everywhere; behind one single text there is no such token. The file read
# again by --init is the model.
compare() {
    model=$1 prompt=$2 types=$3 out=$tmp/$1
    shift 3
    check "train $model" $train "$@" $small --out-dir "$out"
    check "$model: a folder" $tools/export "$out" --hf "$out.hf"
    made "$model: tokens" $theirs tokens "$out.hf" README.md "$out.bin" || return
    loss=$(score "$out" "$out.bin")
    greedy "$out" "$prompt" >"$out.said"
    for type in $types; do
        file=$out.$type.gguf
        case $type in f32) tolerance=1e-4 ;; f16) tolerance=1e-3 ;; *) tolerance=1e-2 ;; esac
        check "$model: export --type $type" $tools/export "$out" --gguf "$file" --type $type
        check "$model: bytes and loss of $type" $theirs model "$out.hf" "$file" $type "$out.bin" \
            "$(echo "$loss" | number)" $tolerance
        check "$model: $type is read" score "$file" "$out.bin"
    done
    check "$model: greedy text" $theirs text "$out.hf" "$out.f32.gguf" "$prompt" "$out.said"
    check "$model: --init of the file" test "$(score "$out.f32.gguf" "$out.bin")" = "$loss"
    check "$model: its greedy text" test "$(greedy "$out.f32.gguf" "$prompt")" = "$(cat "$out.said")"
}
compare documents Mira 'f32 f16 bf16 q8_0' $shape
compare one_text 'KING R' 'f32 q8_0' $shape --data "$tmp/one.txt" --tokenizer bpe:300
compare llama Mira 'f32 q8_0' --model llama $shape --kv-heads 1 --mlp-size 96
compare untied Mira 'f32 f16' --model llama $shape --kv-heads 1 --head-size 24 --untied-head 1 --rope-theta 100000
# Llama 3's scaling is a tensor of divisors.
compare scaled Mira 'f32 q8_0' --model llama $shape --rope-factor 8 --rope-context 32
# A window of the whole context, which llama.cpp has no key for.
compare mistral Mira f32 --model mistral $shape --kv-heads 1 --window 128
compare qwen2 Mira 'f32 q8_0' --model qwen2 $shape --kv-heads 1 --rope-theta 1000000
compare qwen3 Mira 'f32 q8_0' --model qwen3 $shape --kv-heads 2 --head-size 40
of=$tmp/documents
check "llm.c's file" $tools/export "$of" --llmc "$of.llmc"
check "--init of llm.c's file" test "$(score "$of.llmc" "$of.bin" | number)" = "$(score "$of" "$of.bin" | number)"

# Negative controls: another loss, another type, a file without its begin token.
fails() { ! "$@"; }
loss=$(score "$of" "$of.bin" | number)
check "another loss is noticed" fails $theirs model "$of.hf" "$of.q8_0.gguf" q8_0 "$of.bin" "$loss" 1e-6
check "other bytes are noticed" fails $theirs model "$of.hf" "$of.bf16.gguf" f16 "$of.bin" "$loss" 1
LC_ALL=C sed 's/\(add_bos_token\x07\x00\x00\x00\)\x01/\1\x00/' "$of.f32.gguf" >"$tmp/no_begin.gguf"
check "only that byte differs" test "$(cmp -l "$of.f32.gguf" "$tmp/no_begin.gguf" | wc -l)" -eq 1
check "a missing begin token is noticed" fails $theirs text "$of.hf" "$tmp/no_begin.gguf" Mira "$of.said"
summary
