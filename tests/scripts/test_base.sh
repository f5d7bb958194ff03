#!/bin/sh
# test_base.sh -- what a fine-tune keeps of its model; tokenizers that are not read; untrained control tokens.
. tests/cases.sh
tools=${TOOLS:-build}
job="--batch-size 2 --total-batch-size 64 --seq-len 32 --dtype fp32 --threads 1 --replicas 1 --save-every 1 $mute"
lines=tests/golden/lines.txt
sed 's/[\\"]//g; s/.*/{"text": "&"}/' $lines | grep -v '""' | head -n 60 >"$tmp/docs.jsonl"
awk 'BEGIN { for (i = 0; i < 20; i++) print "{\"instruction\":\"" i % 4 "+1?\",\"output\":\"" i % 4 + 1 "\"}" }' \
    >"$tmp/chat.jsonl"
docs="$train $job --data $tmp/docs.jsonl" talks="$train $job --data $tmp/chat.jsonl --steps 1"
check "a model" $docs --model llama --layers 1 --heads 2 --channels 32 --steps 2 --out-dir "$tmp/run"
base=$tmp/base made=$tmp/run/ckpt/step_00000002
mkdir "$base" && cp "$made/model.safetensors" "$base" || give_up
# As others write such files. The blank makes the tokenizer one that this program has not written.
{ printf ' '; sed 's/<|endoftext|>/<end>/g' "$made/tokenizer.json"; } >"$base/tokenizer.json"
more='"eos_token_id": [256, 10],\n  "pad_token_id": 0,\n  "_name_or_path": "x\/y",\n  "limit": NaN'
sed "s/\"eos_token_id\": 256/$more/" "$made/config.json" >"$base/config.json"
printf '{\n "eos_token": {"content": "<end>"},\n "pad_token": "!",\n "padding_side": "left",\n %s}\n' \
    '"model_max_length": 32' >"$base/tokenizer_config.json"
printf '{\n "eos_token_id": [256, 10, 13],\n "temperature": 0.6\n}\n' >"$base/generation_config.json"
printf '{"eos_token": "<end>"}' >"$base/special_tokens_map.json"
texts="tokenizer.json tokenizer_config.json generation_config.json special_tokens_map.json"
kept() { for f in $texts; do cmp "$base/$f" "$1/$f" || return 1; done; }
tune() { out=$1; shift; $train $job --init "$base" --steps 1 --out-dir "$tmp/$out" "$@" >"$tmp/$out.log" 2>&1; }
check "a fine-tune on documents" tune docs --data "$tmp/docs.jsonl"
check "keeps the files" kept "$tmp/docs/ckpt/step_00000001"
check "and the keys of config.json" has "$tmp/docs/ckpt/step_00000001/config.json" '"eos_token_id": \[256, 10\],' \
    '"pad_token_id": 0' '"_name_or_path": "x/y"' '"limit": NaN'
check "is resumed" $train --resume "$tmp/docs" --steps 2
check "and still keeps them" kept "$tmp/docs/ckpt/step_00000002"
check "a folder of it" $tools/export "$tmp/docs" --hf "$tmp/docs.hf"
check "keeps them, too" kept "$tmp/docs.hf"
check "nothing is guessed" lacks "$tmp/docs.log" warning
check "on conversations" tune chat --data "$tmp/chat.jsonl"
newest=$tmp/chat/ckpt/step_00000001
check "generation has both" has "$newest/generation_config.json" '"eos_token_id":\[258,256,10,13\]' '"temperature":0.6'
check "the tokenizer has the turn's end and its own" has "$newest/tokenizer_config.json" '"eos_token":"<|im_end|>"' \
    '"pad_token":"!"' '"padding_side":"left"' '"model_max_length":32'
check "a GGUF file" $tools/export "$tmp/docs" --gguf "$tmp/docs.gguf"
expect "has three ends" 0 'eot_token_id = 10$' $tools/info "$tmp/docs.gguf"
check "which come back" grep -q '"eos_token_id":\[256,10,13\]' "$($tools/import "$tmp/docs.gguf")/config.json"

# Another context is another model_max_length. A map of special tokens says what a template means by bos_token.
check "a context of 16" $(echo $docs | sed 's/seq-len 32/seq-len 16/') --init "$base" --steps 1 --out-dir "$tmp/short"
check "is the tokenizer's, too" grep -qF '"model_max_length":16' "$tmp/short/ckpt/step_00000001/tokenizer_config.json"
mkdir "$tmp/spoken" && cp "$base"/* "$tmp/spoken" && printf '{}' >"$tmp/spoken/tokenizer_config.json"
printf '%s' "{% for m in messages %}{{ m.role + ' ' + m.content + eos_token }}{% endfor %}" \
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}" >"$tmp/spoken/chat_template.jinja"
expect "eos_token is that of special_tokens_map.json" 0 '^done ' $talks --init "$tmp/spoken" --out-dir "$tmp/speaks"
check "and ends a turn" $train chat "$tmp/spoken" --max-tokens 2 </dev/null
check "a GGUF file of it" $tools/export "$tmp/spoken" --gguf "$tmp/spoken.gguf" --type f32
check "a folder of that" $tools/export "$tmp/spoken.gguf" --hf "$tmp/spoken.hf"
check "has the template" cmp "$tmp/spoken/chat_template.jinja" "$tmp/spoken.hf/chat_template.jinja"
check "a GGUF file of that" $tools/export "$tmp/spoken.gguf" --gguf "$tmp/again.gguf" --type f32
expect "has it, too" 0 'chat_template.*for m in messages' $tools/info "$tmp/again.gguf"

# Another tokenizer than the model's: the files are those beside it, or new ones.
mkdir "$tmp/other" && sed 's/<end>/<stop>/g' "$base/tokenizer.json" >"$tmp/other/tokenizer.json"
other="$docs --init $base --steps 1 --force --out-dir $tmp/another"
expect "another tokenizer" 0 '^done ' $other --tokenizer "$tmp/other/tokenizer.json"
check "its end is named" grep -qF '"eos_token":"<stop>"' "$tmp/another/ckpt/step_00000001/tokenizer_config.json"
check "no other file names one" test ! -e "$tmp/another/ckpt/step_00000001/special_tokens_map.json"
printf '{"eos_token": "<stop>", "pad_token": "?"}' >"$tmp/other/tokenizer_config.json"
expect "with a file beside it" 0 '^done ' $other --tokenizer "$tmp/other"
check "which is kept" cmp "$tmp/other/tokenizer_config.json" "$tmp/another/ckpt/step_00000001/tokenizer_config.json"
expect "the model's own" 0 '^done ' $other --tokenizer "$base"
check "keeps all" kept "$tmp/another/ckpt/step_00000001"

# Control tokens that nobody has trained. A step of no size leaves both at the mean, so they are equal.
check "a model that has them" tune equal --data "$tmp/chat.jsonl" --lr 1e-30 --weight-decay 0
nobody='nobody has trained the rows of <.im_start.>, <.im_end.>' adapt="$talks --lora 8 --out-dir $tmp/trained"
expect "are refused with adapters" 2 "$nobody" $adapt --init "$tmp/equal"
check "as a GGUF file" $tools/export "$tmp/equal" --gguf "$tmp/equal.gguf" --type f32
expect "which is named" 2 "$tmp/equal.gguf: nobody has trained" $adapt --init "$tmp/equal.gguf"
expect "without, they begin anew" 0 "$nobody: they begin as" $talks --init "$tmp/equal" --lr 1e-2 --out-dir "$tmp/anew"
expect "and are trained then" 0 '^done ' $adapt --init "$tmp/anew"
check "in silence" lacks "$tmp/expect.log" nobody
expect "texts do not use them" 0 '^done ' $train $job --init "$tmp/equal" --data $lines --steps 1 --lora 8 \
    --out-dir "$tmp/texts"

# A tokenizer that this program cannot read: work on tokens goes on.
head -c 4000 $lines | tr -dc 'a-z' | sed 's/./&\n/g' | head -n 900 | tr '\n' '\0' >"$tmp/t.bin"     # below 257
loss=$($train eval "$base" --data "$tmp/t.bin" --dtype fp32)
cp -r "$base" "$tmp/foreign" && sed -i 's/"byte_fallback":false/"byte_fallback":true/' "$tmp/foreign/tokenizer.json"
foreign="$train $job --init $tmp/foreign --steps 1 --out-dir $tmp/ids"
expect "tokens train" 0 'samples have no text: .*model.byte_fallback: got "true"' $foreign --data "$tmp/t.bin"
check "its files stay" cmp "$tmp/foreign/tokenizer.json" "$tmp/ids/ckpt/step_00000001/tokenizer.json"
check "tokens are scored" test "$($train eval "$tmp/foreign" --data "$tmp/t.bin" --dtype fp32 2>"$tmp/eval.log" |
    sed 's/bpb [^ ]*//')" = "$(echo "$loss" | sed 's/bpb [^ ]*//')"
expect "sample shows tokens" 0 '^[0-9 ]*$' $train sample "$tmp/ids" --max-tokens 4
expect "chat does not" 2 'chat: .*foreign has no tokenizer.json that is read here; sample without --prompt' \
    $train chat "$tmp/foreign"
expect "a folder" 0 . $tools/export "$tmp/ids" --hf "$tmp/ids.hf"
check "has the tokenizer" cmp "$tmp/foreign/tokenizer.json" "$tmp/ids.hf/tokenizer.json"
expect "a GGUF file is refused" 65 'model.byte_fallback: got "true"' $tools/export "$tmp/ids" --gguf "$tmp/ids.gguf"
expect "and so are texts" 65 'byte_fallback.*; or give tokens as --data' $foreign --data $lines --force

# What training writes at an end is what the result's files say, and what stands before texts stays out of chats.
expect "a GGUF file of conversations" 0 'add_bos_token is false: <end> stands before texts' $tools/export "$tmp/chat" \
    --gguf "$tmp/chat.gguf"
expect "puts nothing before them" 0 'add_bos_token = false' $tools/info "$tmp/chat.gguf"
like_base() { rm -rf "$tmp/$1" && cp -r "$base" "$tmp/$1"; }
like_base lacks && printf '{"eos_token_id": [10], "temperature": 0.6}' >"$tmp/lacks/generation_config.json"
check "generation lacks the end" $docs --init "$tmp/lacks" --steps 1 --out-dir "$tmp/ends"
check "the result has it" grep -qF '"eos_token_id":[256,10]' "$tmp/ends/ckpt/step_00000001/generation_config.json"
like_base nested && sed -i -e 's/"post_processor":{/"post_processor":{"type":"Sequence","processors":[{"type":\
"Sequence","processors":[{/' -e 's/},"decoder"/}]}]},"decoder"/' "$tmp/nested/tokenizer.json"
score() { $train eval "$tmp/$1" --data "$tmp/docs.jsonl" --dtype fp32; }
like_base flat
check "a Sequence in a Sequence" test "$(score nested)" = "$(score flat)"
like_base bare && sed -i 's/"post_processor":{.*},"decoder"/"post_processor":null,"decoder"/' "$tmp/bare/tokenizer.json"
check "without it there are fewer tokens" test "$(score bare)" != "$(score flat)"
# Where the files are silent, the class of the tokenizer speaks, as transformers' own do (4.44).
as() {              # FROM JSON: a copy of it with these tokenizer_config.json and config.json without tokens
    rm -rf "$tmp/as" && cp -r "$tmp/$1" "$tmp/as" && rm -f "$tmp/as/generation_config.json" \
        "$tmp/as/special_tokens_map.json" && echo "$2" >"$tmp/as/tokenizer_config.json" || return 1
    sed -i '/eos_token_id\|bos_token_id/d' "$tmp/as/config.json"
}
class() { echo "{\"tokenizer_class\": \"$1\", \"bos_token\": \"<end>\", \"eos_token\": \"<end>\"${2:-}}"; }
with=$(score flat) without=$(score bare)
while read -r from name more want; do
    [ "$more" != none ] || more=
    as "$from" "$(class "$name" "$more")"
    check "$from, $name $more: $want" test "$(score as 2>"$tmp/as.log")" = "$(eval "echo \"\$$want\"")"
done <<'CLASSES'
bare LlamaTokenizerFast none with
bare GemmaTokenizer none with
flat LlamaTokenizer ,"add_bos_token":false without
flat GPTNeoXTokenizerFast none without
bare GPTNeoXTokenizerFast ,"add_bos_token":true with
bare PreTrainedTokenizerFast none without
flat PreTrainedTokenizerFast none with
flat GPT2Tokenizer none with
bare GPT2TokenizerFast ,"add_bos_token":true without
bare Qwen2Tokenizer ,"add_bos_token":true without
flat LlamaTokenizer ,"add_bos_token":null without
bare CodeLlamaTokenizer ,"add_eos_token":true with
CLASSES
# A class that obeys no such key is taken as the file says. Whether one that is not known here does is not known.
scores() { as "$1" "$(class "$2" "$3")" && score as >/dev/null 2>"$tmp/as.log"; }
says() { scores "$@" && has "$tmp/as.log" "$4"; }
silent() { scores "$@" && lacks "$tmp/as.log" "add_[be]os"; }
unknown='of tokenizer_class "MyTokenizerFast", which is not known here, is true'
check "an unknown class, bos" says bare MyTokenizerFast ',"add_bos_token":true' "add_bos_token $unknown"
check "that the file has" silent flat MyTokenizerFast ',"add_bos_token":true'
check "an unknown class, eos" says flat MyTokenizerFast ',"add_eos_token":true' "add_eos_token $unknown"
check "that it has not" silent flat MyTokenizerFast ',"add_eos_token":false'
check "a class that obeys" says flat LlamaTokenizerFast ',"add_eos_token":true' 'add_eos_token is true, but documents'
for name in GPT2 Qwen2 CodeGen PreTrained; do
    check "$name does not" silent flat "${name}TokenizerFast" ',"add_eos_token":true'
done
as bare "$(class LlamaTokenizerFast)"
expect "it is said" 0 'a LlamaTokenizer puts "<end>" before a text, whatever the post_processor' \
    $train eval "$tmp/as" --data "$tmp/docs.jsonl"
for name in "<s> </s> Llama" "<bos> <eos> Gemma"; do
    set -- $name
    as bare "{\"tokenizer_class\": \"$3TokenizerFast\"}"
    sed -i "s,<end>,$1,g" "$tmp/as/tokenizer.json"
    check "$3's own $1" test "$(score as 2>"$tmp/as.log")" = "$with"
done
as flat '{"tokenizer_class": "LlamaTokenizer"}'
check "without its token the file decides" test "$(score as 2>"$tmp/as.log")" = "$with"
as flat '{"tokenizer_class": "GPT2Tokenizer"}' && sed -i 's/<end>/<|endoftext|>/g' "$tmp/as/tokenizer.json"
sed -i 's/"model_type"/"eos_token_id": null,\n  &/' "$tmp/as/config.json"
check "GPT2Tokenizer's own end" $docs --init "$tmp/as" --steps 1 --out-dir "$tmp/gpt2"
check "is in the result" grep -q '"eos_token_id": 256' "$tmp/gpt2/ckpt/step_00000001/config.json"
like_base several
several="$talks --init $tmp/several --out-dir $tmp/several.run --force"
printf '{"chat_template": [{"name": "rag", "template": "x"}]}' >"$tmp/several/tokenizer_config.json"
expect "templates of which none is the default" 65 'got an array, want a text, or a list with one named default' \
    $several
printf '{"chat_template": "{{ additional_special_tokens }}"}' >"$tmp/several/tokenizer_config.json"
expect "a variable that is not read" 65 'got additional_special_tokens' $several
cp "$tmp/spoken/chat_template.jinja" "$tmp/several"
printf '{"eos_token": "<end>", "chat_template": "another"}' >"$tmp/several/tokenizer_config.json"
expect "two templates" 0 'chat_template.jinja is taken; tokenizer_config.json has another' $several
check "one ships" lacks "$tmp/several.run/ckpt/step_00000001/tokenizer_config.json" another
turns='[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]'
while read -r line; do
    echo "$line" | sed "s/TURNS/$turns/" >"$tmp/lost.jsonl"
    expect "$line" 65 'lost.jsonl: line 1: .*got' $train $job --data "$tmp/lost.jsonl" --steps 1 --out-dir "$tmp/lost"
done <<'LINES'
{"messages":TURNS,"completion":"lost"}
{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b","weight":0}]}]}
{"instruction":"a","output":"b","history":"lost"}
{"instruction":"a","output":"b","history":[["c","d","lost"]]}
{"instruction":"a","output":"b","history":{"c":"d"}}
LINES

# What a folder without weights, or without a tokenizer, has instead.
mkdir "$tmp/pickle" "$tmp/shards" && cp "$base"/*.json "$tmp/pickle" && cp "$base"/*.json "$tmp/shards"
touch "$tmp/pickle/pytorch_model.bin" "$tmp/shards/model-00001-of-00002.safetensors"
expect "pytorch_model.bin" 66 'pytorch_model.bin.*python3 data/torch_model.py' $train sample "$tmp/pickle"
expect "shards without an index" 66 'without model.safetensors.index.json' $train sample "$tmp/shards"
like_base old && rm "$tmp/old/tokenizer.json" && touch "$tmp/old/vocab.json" "$tmp/old/merges.txt"
expect "vocab.json and merges.txt" 66 'vocab.json.*save_pretrained' $train $job --init "$tmp/old" --data $lines \
    --steps 1 --out-dir "$tmp/none"
expect "for a prompt, too" 66 'vocab.json.*save_pretrained' $train sample "$tmp/old" --prompt a
summary
