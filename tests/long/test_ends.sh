#!/bin/sh
# test_ends.sh -- the token that begins a text and those that end one, whatever their names and wherever a model's
# folder says them: in training, samples, checkpoints, GGUF files and back, by what transformers, tokenizers and
# llama.cpp say.
. tests/lib.sh
tools=${TOOLS:-build}
find_python "torch, transformers, tokenizers, gguf, xllamacpp" "ends of texts"
ends="$python tests/check_ends.py"
variants=$($ends make "$tmp" 2>"$tmp/make.log") || { cat "$tmp/make.log"; skip_all variants "transformers makes none"; }
job="--replicas 1 --sample-every 0 --threads 1 --dtype fp32 --eval-every 0"
loss_of() { $train eval "$base" --data "$1" --dtype fp32 2>"$tmp/eval.log" | sed 's/val loss \([0-9.]*\).*/\1/'; }
said_by() { $train sample "$1" --prompt '3+4=' --temperature 0 --max-tokens 20 --dtype fp32 2>"$tmp/sample.log"; }
counted() {
    sed -n 's/.*: \([0-9]*\) training and \([0-9]*\) validation tokens.*/\1 \2/p' "$1" | awk '{ print $1 + $2 }'
}
for v in $variants; do
    base=$tmp/$v docs=$tmp/$v.docs pairs=$tmp/$v.pairs
    check "$v: the loss of documents" $ends loss "$base" "$tmp/docs.jsonl" "$(loss_of "$tmp/docs.jsonl")"
    check "$v: the loss of one text" $ends loss "$base" "$tmp/one.txt" "$(loss_of "$tmp/one.txt")"
    check "$v: train on documents" sh -c "$train --init $base --data $tmp/docs.jsonl $job --total-batch-size 64 \
        --batch-size 2 --seq-len 32 --steps 1 --save-every 1 --out-dir $docs >$docs.log 2>&1"
    check "$v: their tokens" $ends tokens "$base" "$tmp/docs.jsonl" "$(counted "$docs.log")"
    check "$v: train on completions" sh -c "$train --init $base --data $tmp/pairs.jsonl $job --total-batch-size 128 \
        --batch-size 8 --lr 3e-3 --seq-len 16 --steps 200 --save-every 200 --out-dir $pairs >$pairs.log 2>&1"
    case $v in
        name) expect "$v: a guess is said" 0 '<.endoftext.> is taken, for its name' cat "$pairs.log" ;;
        *) check "$v: nothing is guessed" sh -c "! grep warning $pairs.log | grep -v epochs" ;;
    esac
    check "$v: a folder" $tools/export "$pairs" --hf "$pairs.hf"
    check "$v: has the base's files" $ends kept "$base" "$pairs.hf"
    check "$v: sample ends" test "$(said_by "$pairs")" = '3+4=7'
    case $v in null|name|object|behind) ;;      # transformers reads eos_token_id alone
        *) check "$v: transformers ends" $ends stops "$pairs.hf" '3+4=' 7 ;;
    esac
    check "$v: a GGUF file" $tools/export "$pairs" --gguf "$pairs.gguf" --type f32
    check "$v: llama.cpp ends" $ends gguf "$pairs.hf" "$pairs.gguf" '3+4=' 7
    check "$v: sample of it ends" test "$(said_by "$pairs.gguf")" = '3+4=7'
    check "$v: it comes back" $ends same "$pairs.hf" "$($tools/import "$pairs.gguf")"
done
# Any of several ends a sample, and no other token does.
for stop in instruct,401,0 instruct,404,0 qwen,402,0 qwen,400,0 generation,400,0 qwen,65,5 instruct,65,5; do
    v=${stop%%,*} left=${stop##*,} id=${stop#*,} && id=${id%,*}
    $ends always "$tmp/$v" "$tmp/$v-$id" $id 2>"$tmp/always.log"
    said=$($train sample "$tmp/$v-$id" --prompt 'a' --temperature 0 --max-tokens 5 2>"$tmp/sample.log")
    check "$v: token $id leaves $left" test ${#said} -eq $((left + 1))
done
summary
