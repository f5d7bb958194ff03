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
printf 'abc' >"$tmp/abc.txt"
expect "of a text shorter than the context" 0 '^perplexity .* tokens 2$' \
    $train eval "$tmp/one" --data "$tmp/abc.txt" --perplexity
expect "of the validation part" 0 '^perplexity' $train eval "$tmp/one" --perplexity
expect "of joined tokens alone" 2 '^.*--rows: got documents, want join with --perplexity' \
    $train eval "$tmp/one" --perplexity --rows documents
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

# ---- bits per byte: the nats of the tokens that have text, for each byte of that text as given
near() { awk "BEGIN { d = ($1) / ($2); print d; exit !(d > 0.99999 && d < 1.00001) }"; }
# bits COMMAND...: bits per byte.  by_hand A B OPTIONS: both files have the same bits, by eval and their bytes.
bits() { "$@" 2>"$tmp/said" | sed -n 's/.*\(bpb\|bits per byte\) \([0-9.]*\).*/\2/p'; }
bytes() { sed 's/^{.*: "\(.*\)"}$/\1/' "$tmp/$1" | case $1 in *.txt) cat;; *) tr -d '\n'; esac | wc -c; }
by_hand() {
    a=$1 b=$2; shift 2
    near "$(bits $train eval "$tmp/nfc" "$@" --data "$tmp/$a") * $(bytes "$a")" \
        "$(bits $train eval "$tmp/nfc" "$@" --data "$tmp/$b") * $(bytes "$b")"
}
alike() {           # COMMAND: windows of one token that sees one other: both score all tokens but the first
    near "$(bits "$@" --seq-len 1)" "$(bits "$@" --seq-len 2 --stride 1)"
}
acute=$(printf 'e\314\201') hangul=$(printf '\341\204\222\341\205\241\341\206\253')
kelvin=$(printf '\342\204\252') nukta=$(printf '\340\245\230')
# nfc FILE: the same text after NFC; nukta becomes longer
nfc() { sed "s/$acute/é/g; s/$hangul/한/g; s/$kelvin/K/g; s/$nukta/$(printf '\340\244\225\340\244\274')/g"; }
for i in $(seq 40); do
    printf '{"text": "%s"}\n' "d${acute}j$acute $i" "the sky is blue" "$hangul $i" "300 $kelvin $nukta"
done >"$tmp/nfd.jsonl"
nfc <"$tmp/nfd.jsonl" >"$tmp/nfc.jsonl"
grep "$acute" "$tmp/nfd.jsonl" | sed 's/ [0-9]*"}/"}/' >"$tmp/equal.jsonl"
nfc <"$tmp/equal.jsonl" >"$tmp/equal_nfc.jsonl"
sed 's/^{.*: "\(.*\)"}$/\1/' "$tmp/equal.jsonl" >"$tmp/equal.txt"
nfc <"$tmp/equal.txt" >"$tmp/equal_nfc.txt"
sed "s/.*: \(.*\)}/{\"prompt\": \"$acute\", \"completion\": \1}/" "$tmp/nfd.jsonl" >"$tmp/pairs.jsonl"
nfc <"$tmp/pairs.jsonl" >"$tmp/pairs_nfc.jsonl"
check "a model of NFC" $train $shape --total-batch-size 512 --steps 20 --data "$tmp/nfc.jsonl" --save-every 20 \
    --tokenizer bpe:270:qwen2 --val-data "$tmp/nfd.jsonl" --eval-every 20 --eval-steps 0 --dtype fp32 \
    --out-dir "$tmp/nfc"
for form in "nfd.jsonl nfc.jsonl" "equal.txt equal_nfc.txt"; do
    check "NFC changes no bits: $form" by_hand $form --perplexity
    check "eval: $form" by_hand $form --seq-len 1
done
check "conversations: the bytes of answers" by_hand pairs.jsonl pairs_nfc.jsonl
check "the run's validation" near "$(bits $train eval "$tmp/nfc")" \
    "$(sed -n 's/.*"bpb":\([0-9.]*\).*/\1/p' "$tmp/nfc/metrics.jsonl" | tail -n 1)"
for data in "$tmp/nfd.jsonl" "$tmp/equal.txt" "$tmp/text.jsonl"; do
    check "eval and --perplexity: ${data##*/}" alike $train eval "$tmp/nfc" --data "$data"
done
cp -r "$tmp"/nfc/ckpt/*20 "$tmp/ends" && rm "$tmp/ends/DONE" "$tmp/ends/state.json"
sed -i 's/"special": *true/"special":false/' "$tmp/ends/tokenizer.json"
of="--dtype fp32 --data $tmp/nfd.jsonl"
check "an end of text that is no special token" near "$(bits $train eval "$tmp/ends" $of)" \
    "$(bits $train eval "$tmp/nfc" $of)"
prep="${TOOLS:-build}/prep --val-frac 0 --tokenizer $(echo "$tmp"/nfc/ckpt/*20/tokenizer.json)"
check "prep" $prep "$tmp/nfd.jsonl" -o "$tmp/nfd"
check "prep's shards" near "$(bits $train eval "$tmp/nfc" --data "$tmp/nfd" --perplexity)" \
    "$(bits $train eval "$tmp/nfc" --data "$tmp/nfd.jsonl" --perplexity)"
for form in equal equal_nfc; do check "prep $form" $prep "$tmp/$form.jsonl" -o "$tmp/$form" --shard-tokens 17; done
check "documents that shards cut" near "$(bits $train eval "$tmp/nfc" --data "$tmp/equal" --seq-len 1) * 8" \
    "$(bits $train eval "$tmp/nfc" --data "$tmp/equal_nfc" --seq-len 1) * 6"
sed -i 's/,"given":[^]]*]//g' "$tmp/nfd/manifest.json"
expect "shards of an older form" 0 'no manifest.json says how many bytes its text had' \
    $train eval "$tmp/nfc" --data "$tmp/nfd"

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
