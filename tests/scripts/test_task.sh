#!/bin/sh
# test_task.sh -- multiple-choice questions by eval: the same answers for any ranks and batch; errors with place.
. tests/cases.sh
text='{"text": "the sky is blue and the grass is green"}'
for i in $(seq 60); do echo "$text"; done >"$tmp/text.jsonl"
{
    for i in $(seq 9); do
        echo '{"ctx": "the sky is", "endings": ["green and the", "blue and the"], "label": 1}'
        echo '{"ctx": "the sky is blue and the grass is", "endings": ["green", "blue", "the sky"], "label": "0"}'
    done
    echo '{"ctx": "", "endings": ["the sky is blue", "grass the"], "label": 0}'
    printf '{"ctx": "%0400d the sky is", "endings": ["blue", "green"], "label": 1}\n' 7
} >"$tmp/colours.jsonl"
shape="--layers 1 --heads 2 --channels 32 --seq-len 64 --batch-size 2 --sample-every 0"
job="$shape --total-batch-size 512 --replicas 4 --steps 120 --warmup-steps 4 --lr 1e-2 --data $tmp/text.jsonl"
job="$job --eval-every 60 --eval-steps 2 --save-every 120 --device cpu --dtype fp32"
answers='acc [0-9.]* acc_norm 0\.9[0-9]* \+- [0-9.]* \(20, chance 0\.4[0-9]*\)'
check "a model" $train $job --out-dir "$tmp/one"
expect "eval asks" 0 "^colours $answers" $train eval "$tmp/one" --task "$tmp/colours.jsonl"
asks() { $train eval "$tmp/one" --task "$@" | sed 's/^[a-z]* //'; }
for np in 2 4; do
    check "--np $np gives the same" test "$(asks "$tmp/colours.jsonl")" = "$(asks "$tmp/colours.jsonl" --np $np)"
done
{ printf '\357\273\277[\n'; sed '$!s/$/,/' "$tmp/colours.jsonl"; echo ']'; } >"$tmp/list.json"
check "a list of questions is the same" test "$(asks "$tmp/list.json")" = "$(asks "$tmp/colours.jsonl")"
for b in 1 3 64; do
    expect "batches of $b" 0 "^colours $answers" $train eval "$tmp/one" --task "$tmp/colours.jsonl" --batch-size $b
done
guess() { $train eval "$tmp/one" --task "$tmp/colours.jsonl" --data "$tmp/text.jsonl" | sed -n '2s/ .*//p'; }
check "the loss too where there are data" test "$(guess)" = val

# The delimiter is the file's. Transformers gives the same figures (tests/check_task.py).
for i in $(seq 90); do
    printf '{"text": "%s"}\n' 天空是蓝色的。 草地是绿色的。 太阳是黄色的。 '不 是。'
done >"$tmp/zh.jsonl"
check "a model of Chinese" $train $(echo "$job" | sed "s,120,400,g; s,$tmp/text,$tmp/zh,") --tokenizer char \
    --out-dir "$tmp/zh"
ask() {             # PATTERN ENDINGS MORE: of three questions, whose contexts end with $end
    { printf '\357\273\277'; i=0; for ctx in 天空是 草地是 太阳是; do
        echo "{\"ctx\": \"$ctx$end\", \"endings\": [$2], \"label\": $i${3:-}}"; i=$((i + 1))
    done; } >"$tmp/ask.jsonl"
    expect "endings $2${3:-} after '$end'" 0 "$1" $train eval "$tmp/zh" --task "$tmp/ask.jsonl"
}
end='' colours='"蓝色的。", "绿色的。", "黄色的。"'
spaced='" 蓝色的。", " 绿色的。", " 黄色的。"'
ask '^ask acc 1.000' "$colours" ', "delimiter": ""'
ask 'line 1: a blank is put before an ending in a script without blanks' "$colours"
ask 'line 1: two blanks precede an ending' "$spaced"
end=' '
ask 'line 1: two blanks precede an ending' "$colours"
silent() { ! $train eval "$tmp/zh" --task "$tmp/ask.jsonl" 2>&1 | grep warning; }
ask '^ask acc' "$colours" ', "delimiter": ""'
check "where the file decides nothing is warned of" silent

# ---- perplexity by a sliding window
of="$train eval $tmp/one --data $tmp/text.jsonl"
perplexity() { $of --perplexity "$@" | sed -n 's/^\(perplexity .*\)/\1/p'; }
field() { echo "$1" | awk -v n="$2" '{ for (i = 1; i < NF; i++) if ($i == n) print $(i + 1) }'; }
by32=$(perplexity) by1=$(perplexity --stride 1) by63=$(perplexity --stride 63)
check "half the context is the default" test "$by32" = "$(perplexity --stride 32)" -a -n "$by32"
for option in "--np 2" "--np 4" "--batch-size 3" "--batch-size 64"; do
    check "perplexity, $option" test "$by1" = "$(perplexity --stride 1 $option)"
done
tokens=$(field "$by1" tokens)
check "each token but the first is scored" test "$tokens" -eq $((60 * 39 - 1))      # end of text and 38 bytes
check "once, whatever the stride" test "$tokens $tokens" = "$(field "$by32" tokens) $(field "$by63" tokens)"
check "is the exponential of the nats" awk "BEGIN {
    d = exp($(field "$by1" token)) / $(field "$by1" perplexity); exit !(d > 0.99999 && d < 1.00001) }"
check "bits per byte" awk "BEGIN { d = $(field "$by1" token) * $tokens / log(2) / (60 * 38) / $(field "$by1" byte)
    exit !(d > 0.99999 && d < 1.00001) }"
printf 'abc' >"$tmp/abc.txt"
expect "of a text shorter than the context" 0 '^perplexity .* tokens 2$' \
    $train eval "$tmp/one" --data "$tmp/abc.txt" --perplexity
expect "of the validation part" 0 '^perplexity' $train eval "$tmp/one" --perplexity
head -c 126 README.md >"$tmp/short.txt"
expect "eval says what is no whole window" 0 \
    'short.txt: 126 tokens; text; 61 of 125 tokens are no whole window of 64 and not scored' \
    $train eval "$tmp/one" --data "$tmp/short.txt"
expect "and a prompt that is cut" 0 'prompt: got 201 tokens, and the context is 64: its last 64 are continued' \
    $train sample "$tmp/one" --prompt "$(printf '%0200d' 1)" --max-tokens 1
marked() { printf '\357\273\277the sky' | $train sample "$tmp/one" --prompt - --max-tokens 1 | grep -q '^the sky'; }
check "a byte order mark is no prompt" marked
expect "a stride too long" 2 'less than the context of 64' $of --perplexity --stride 64
expect "a stride alone" 0 '^perplexity' $of --stride 8
expect "the loss by two ranks" 0 "$($of | sed 's/ .*//') loss" $of --np 2
check "is that of one" test "$($of)" = "$($of --np 2)"

# ---- mistakes
bad() {             # NAME MESSAGE LINE
    { head -n 1 "$tmp/colours.jsonl"; echo "$3"; } >"$tmp/bad.jsonl"
    expect "$1" 65 "bad.jsonl: line 2.*$2" $train eval "$tmp/one" --task "$tmp/bad.jsonl"
}
bad "no endings" 'endings' '{"ctx": "a", "label": 0}'
bad "an ending that is no text" 'endings: got 3' '{"ctx": "a", "endings": ["b", 3], "label": 0}'
bad "a label beyond" 'label: got 2' '{"ctx": "a", "endings": ["b", "c"], "label": 2}'
bad "a label that is none" 'label' '{"ctx": "a", "endings": ["b", "c"], "label": "b"}'
bad "a delimiter that is no text" 'delimiter: got 1' '{"ctx": "a", "endings": ["b", "c"], "label": 1, "delimiter": 1}'
bad "no JSON" 'byte' 'blue'
echo '[{"ctx": "a", "endings": ["b", "c"], "label": 0}, {"ctx": "a", "label": 0}]' >"$tmp/list.json"
expect "a record of a list" 65 'list.json: record 2: endings' $train eval "$tmp/one" --task "$tmp/list.json"
lines="--steps 1 --total-batch-size 128 $on_lines"
check "a model of one text" $train $shape $lines --tokenizer bpe:300 --out-dir "$tmp/text"
echo '{"ctx": "", "endings": ["e", "t"], "label": 0}' >"$tmp/bare.jsonl"
expect "nothing before an ending of one token" 65 'line 1: ctx' $train eval "$tmp/text" --task "$tmp/bare.jsonl"
: >"$tmp/empty.jsonl"
check "a model of characters" $train $shape $lines --tokenizer char --out-dir "$tmp/chars"
echo '{"ctx": "\u65e5", "endings": ["e", "t"], "label": 0}' >"$tmp/unknown.jsonl"
expect "a character that it has not learnt" 65 'unknown.jsonl: line 1: .*U.65E5' $train eval "$tmp/chars" \
    --task "$tmp/unknown.jsonl"
expect "no questions" 65 'no line' $train eval "$tmp/one" --task "$tmp/empty.jsonl"
expect "no file" 66 'absent.jsonl' $train eval "$tmp/one" --task "$tmp/absent.jsonl"
summary
