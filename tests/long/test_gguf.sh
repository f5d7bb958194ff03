#!/bin/sh
# test_gguf.sh -- a run, its Hugging Face folder and its GGUF files are one model: the same greedy text by train_gpt,
# transformers and llama.cpp, the same loss, and quantized matrices byte for byte as the package gguf makes them.
. tests/lib.sh
tools=${TOOLS:-build}
find_python "torch, transformers, gguf, xllamacpp" gguf
# A model, trained for a few seconds.
shape="--layers 2 --heads 2 --channels 64 --seq-len 128"
small="--batch-size 4 --total-batch-size 1024 --steps 400 --warmup-steps 10 --lr 5e-3 --sample-every 0 --eval-every 0
       --save-every 400 --dtype fp32"
text=$shared/data/tinyshakespeare.txt
[ -r "$text" ] || text=data/tinyshakespeare.txt
[ -r "$text" ] || text=tests/golden/lines.txt
head -c 200000 "$text" >"$tmp/one.txt"

# compare NAME PROMPT TYPES OPTIONS...: trains and exports a model, then compares. Where documents were its data, the
# end-of-text token stands before a prompt everywhere; behind one single text there is no such token. The file read
# again by --init is the model.
compare() {
    model=$1 prompt=$2 types=$3 out=$tmp/$1
    shift 3
    check "train $model" $train "$@" $small --out-dir "$out"
    check "$model: a folder" $tools/export "$out" --hf "$out.hf"
    $python tests/check_gguf.py known "$out.hf" >"$tmp/known" || { skip "$model" "$(tail -n 1 "$tmp/known")"; return; }
    $train sample "$out" --dtype fp32 --prompt "$prompt" --max-tokens 60 --temperature 0 >"$out.said"
    check "$model: tokens" $python tests/check_gguf.py tokens "$out.hf" README.md "$out.bin"
    loss=$($train eval "$out" --dtype fp32 --data "$out.bin")
    for type in $types; do
        file=$out.$type.gguf
        case $type in f32) tolerance=1e-4 ;; f16) tolerance=1e-3 ;; *) tolerance=1e-2 ;; esac
        check "$model: export --type $type" $tools/export "$out" --gguf "$file" --type $type
        check "$model: bytes and loss of $type" $python tests/check_gguf.py model "$out.hf" "$file" $type "$out.bin" \
            "$(echo "$loss" | sed 's/val loss \([0-9.]*\).*/\1/')" $tolerance
    done
    check "$model: greedy text" $python tests/check_gguf.py text "$out.hf" "$out.f32.gguf" "$prompt" "$out.said"
    check "$model: --init of the file" test "$($train eval "$out.f32.gguf" --dtype fp32 --data "$out.bin")" = "$loss"
    check "$model: its greedy text" test "$($train sample "$out.f32.gguf" --dtype fp32 --prompt "$prompt" \
        --max-tokens 60 --temperature 0)" = "$(cat "$out.said")"
}
compare documents Mira 'f32 f16 bf16 q8_0' $shape
compare one_text 'KING R' 'f32 q8_0' $shape --data "$tmp/one.txt" --tokenizer bpe:300
check "llm.c's file" $tools/export "$tmp/documents" --llmc "$tmp/documents.llmc"
check "--init of llm.c's file" test "$($train eval "$tmp/documents.llmc" --dtype fp32 --data "$tmp/documents.bin" |
    sed 's/ bpb.*//')" = "$($train eval "$tmp/documents" --dtype fp32 --data "$tmp/documents.bin" | sed 's/ bpb.*//')"
compare llama Mira 'f32 q8_0' --model llama $shape --kv-heads 1 --mlp-size 96
compare untied Mira 'f32 f16' --model llama $shape --kv-heads 1 --head-size 24 --untied-head 1 --rope-theta 100000
compare qwen2 Mira 'f32 q8_0' --model qwen2 $shape --kv-heads 1 --rope-theta 1000000
compare qwen3 Mira 'f32 q8_0' --model qwen3 $shape --kv-heads 2 --head-size 40
# Llama 3's scaling is a tensor of divisors.
scaled="--model llama $shape --rope-factor 8 --rope-context 32"
check "train scaled" $train $scaled $small --out-dir "$tmp/scaled"
check "scaled: a folder" $tools/export "$tmp/scaled" --hf "$tmp/scaled.hf" --gguf "$tmp/scaled.gguf" --type f32
$train sample "$tmp/scaled" --dtype fp32 --prompt Mira --max-tokens 60 --temperature 0 >"$tmp/scaled.said"
check "scaled: greedy text" $python tests/check_gguf.py text "$tmp/scaled.hf" "$tmp/scaled.gguf" Mira "$tmp/scaled.said"
check "scaled: --init of the file" test "$($train sample "$tmp/scaled.gguf" --dtype fp32 --prompt Mira --max-tokens 60 \
    --temperature 0)" = "$(cat "$tmp/scaled.said")"
check "scaled: in q8_0" $tools/export "$tmp/scaled" --gguf "$tmp/scaled.q8.gguf" --type q8_0
check "scaled: which is read, too" $train eval "$tmp/scaled.q8.gguf" --dtype fp32 --data "$tmp/one.txt"

# Negative controls: another loss, another type, a file without its begin token.
fails() { ! "$@"; }
loss=$($train eval "$tmp/documents" --dtype fp32 --data "$tmp/documents.bin" | sed 's/val loss \([0-9.]*\).*/\1/')
check "another loss is noticed" fails $python tests/check_gguf.py model "$tmp/documents.hf" \
    "$tmp/documents.q8_0.gguf" q8_0 "$tmp/documents.bin" "$loss" 1e-6
check "other bytes are noticed" fails $python tests/check_gguf.py model "$tmp/documents.hf" \
    "$tmp/documents.bf16.gguf" f16 "$tmp/documents.bin" "$loss" 1
LC_ALL=C sed 's/\(add_bos_token\x07\x00\x00\x00\)\x01/\1\x00/' "$tmp/documents.f32.gguf" >"$tmp/no_begin.gguf"
check "only that byte differs" test "$(cmp -l "$tmp/documents.f32.gguf" "$tmp/no_begin.gguf" | wc -l)" -eq 1
check "a missing begin token is noticed" fails $python tests/check_gguf.py text "$tmp/documents.hf" \
    "$tmp/no_begin.gguf" Mira "$tmp/documents.said"
summary
