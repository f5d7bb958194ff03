#!/bin/sh
# test_import.sh -- a model in one file becomes a folder once, and all that takes models works as if it read the file.
. tests/cases.sh
tools=${TOOLS:-build}
import=$tools/import
corpus=tests/golden/lines.txt
job="--data $corpus --batch-size 2 --total-batch-size 64 $mute --device cpu --dtype fp32 --warmup-steps 2 --lr 1e-2"
begin() {           # NAME OPTIONS...: a run, its folder $tmp/NAME.hf and its file $tmp/NAME.gguf
    of=$1; shift
    check "a run of $of" $train $job --layers 2 --channels 32 --seq-len 16 --steps 10 --out-dir "$tmp/$of" "$@"
    check "its files" $tools/export "$tmp/$of" --hf "$tmp/$of.hf" --gguf "$tmp/$of.gguf" --type f32
}
begin gpt2 --model gpt2 --heads 2 --tokenizer bpe:300
begin llama --model llama --heads 4 --kv-heads 2 --tokenizer bpe:300
begin qwen3 --model qwen3 --heads 4 --kv-heads 2 --head-size 16 --tokenizer bpe:300
check "llm.c's file" $tools/export "$tmp/gpt2" --llmc "$tmp/gpt2.bin"
entries() { ls -d "$LOCKSTEP_CACHE"/import-* 2>/dev/null | wc -l; }
check "nothing was imported so far" test "$(entries)" -eq 0

# ---- the folder
for of in gpt2 llama qwen3; do
    expect "$of: -o" 0 "$tmp/$of.in" $import "$tmp/$of.gguf" -o "$tmp/$of.in"
    check "$of: weights as they were" cmp "$tmp/$of.in/model.safetensors" "$tmp/$of.hf/model.safetensors"
    expect "$of: is a folder" 0 'Hugging Face folder' $tools/info "$tmp/$of.in"
    check "$of: no other files" test "$(ls -A "$tmp/$of.in" | tr '\n' ' ')" = \
        "config.json model.safetensors tokenizer.json "
    loss_of() { $train eval "$1" --data $corpus --device cpu --dtype fp32; }
    same_loss() { [ "$(loss_of "$1")" = "$(loss_of "$tmp/$of")" ]; }
    check "$of: the loss of the folder" same_loss "$tmp/$of.in"
    check "$of: the loss of the file" same_loss "$tmp/$of.gguf"
    said() { $train sample "$1" --device cpu --dtype fp32 --prompt T --max-tokens 20 --temperature 0 2>&1; }
    check "$of: the text of the file" test "$(said "$tmp/$of.gguf")" = "$(said "$tmp/$of")"
done
expect "llm.c's file" 0 . $import "$tmp/gpt2.bin" -o "$tmp/bin.in"
check "has the same weights" cmp "$tmp/bin.in/model.safetensors" "$tmp/gpt2.hf/model.safetensors"
check "and no tokenizer" test ! -e "$tmp/bin.in/tokenizer.json"
expect "a folder that is there" 2 'it exists' $import "$tmp/gpt2.gguf" -o "$tmp/gpt2.in"
mkdir -p "$tmp/empty" "$tmp/volume/lost+found"
expect "the root of a disk" 2 'it exists' $import "$tmp/gpt2.gguf" -o "$tmp/volume"
expect "an empty one" 0 . $import "$tmp/gpt2.gguf" -o "$tmp/empty/"
expect "no file" 66 'none.gguf' $import "$tmp/none.gguf"
expect "no words" 2 'import --help' $import
expect "no model" 65 'no model, want GGUF' $import $corpus -o "$tmp/no"
check "leaves nothing" test ! -e "$tmp/no" -a ! -e "$tmp/.work-no"

# ---- the cache
check "three were imported" test "$(entries)" -eq 3
folder=$($import "$tmp/gpt2.gguf")
check "it has the weights" cmp "$folder/model.safetensors" "$tmp/gpt2.hf/model.safetensors"
stamp() { stat -c %Y.%i "$folder/model.safetensors"; }
was=$(stamp)
cp "$tmp/gpt2.gguf" "$tmp/other name.gguf"
check "the content counts" test "$($import "$tmp/other name.gguf")" = "$folder"
check "it is made once" test "$(stamp) $(entries)" = "$was 3"
mends() {           # a value of the weights changes in the cache
    before=$($train eval "$tmp/gpt2.gguf" --data $corpus)
    size=$(stat -c %s "$folder/model.safetensors")
    flip "$folder/model.safetensors" $((size - 5000)) '\077\077'
    [ "$($train eval "$tmp/gpt2.gguf" --data $corpus 2>"$tmp/mends.log")" = "$before" ] &&
        grep -q 'it is damaged, and made anew' "$tmp/mends.log"
}
check "damaged weights are made anew" mends
rm -r "$LOCKSTEP_CACHE"
for i in 1 2 3 4; do $import "$tmp/llama.gguf" >"$tmp/asked.$i" 2>&1 & done
wait
check "four at once have one" test "$(cat "$tmp"/asked.* | sort -u | wc -l) $(entries)" = "1 1"
# A full disk: no file may grow beyond 8 KiB.
full() {            # NAME PATTERN COMMAND...
    of=$1 line=$2; shift 2
    expect "$of" 74 "$line" env LOCKSTEP_CACHE="$tmp/full" sh -c 'ulimit -f 8 && exec "$@"' limited "$@"
}
full "a full cache" 'write failed' $import "$tmp/gpt2.gguf"
full "a full cache of --init" 'train_gpt: error: write failed' $train eval "$tmp/gpt2.gguf" --data $corpus
check "one line says so" test "$(wc -l <"$tmp/expect.log")" -eq 1
check "nothing is left of it" test -z "$(ls -A "$tmp/full")"
cp -r "$tmp/llama.in" "$tmp/chatty" && echo "{{ messages }}" >"$tmp/chatty/chat_template.jinja"
check "a chat template" $tools/export "$tmp/chatty" --gguf "$tmp/chatty.gguf"
check "comes along" cmp "$($import "$tmp/chatty.gguf")/chat_template.jinja" "$tmp/chatty/chat_template.jinja"

# ---- training
begins() { $train $job --init "$1" --steps 4 --out-dir "$2" >"$2.log" 2>&1; }
for of in gpt2 llama; do
    check "$of: --init of the folder" begins "$tmp/$of.hf" "$tmp/$of-a"
    check "$of: --init of the file" begins "$tmp/$of.gguf" "$tmp/$of-b"
    check "$of: are the same" same "$tmp/$of-a" "$tmp/$of-b"
    check "$of: it names the file" grep -q "$tmp/$of.gguf" "$tmp/$of-b.log"
    check "$of: nothing names the cache" test -z "$(grep -rl "$LOCKSTEP_CACHE" "$tmp/$of-b.log" "$tmp/$of-b")"
done
check "two ranks" $train $job --init "$tmp/llama.gguf" --steps 4 --np 2 --out-dir "$tmp/two"
check "are the same" same "$tmp/llama-a" "$tmp/two"

# ---- adapters
lora=$tmp/adapted
check "--lora of the file" $train $job --init "$tmp/llama.gguf" --lora 8 --steps 4 --save-every 2 --out-dir "$lora"
newest=$lora/ckpt/step_00000004
check "names the file" grep -q "\"base_model_name_or_path\":\"$tmp/llama.gguf\"" "$newest/adapter_config.json"
cp -r "$lora" "$tmp/again" && rm -r "$tmp/again/ckpt/step_00000004" && echo step_00000002 >"$tmp/again/ckpt/latest"
expect "a resume" 0 '^done ' $train --resume "$tmp/again"
check "has the same bytes" same "$lora" "$tmp/again"
scores() { $train eval "$1" --data $corpus --dtype fp32; }
check "the merged model scores as it" $tools/export "$lora" --merge --hf "$tmp/merged"
check "alike" test "$(scores "$tmp/merged")" = "$(scores "$lora")"
flip "$tmp/llama.gguf" $(($(stat -c %s "$tmp/llama.gguf") - 2)) x
expect "another file fits no adapter" 65 'have changed since' $train eval "$lora" --data $corpus
summary
