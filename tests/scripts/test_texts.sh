#!/bin/sh
# test_texts.sh -- build/prep answers train_gpt from a cache or anew: tokens are the same, or it says what is wrong.
. tests/cases.sh
prep=${TOOLS:-$PWD/build}/prep
shape="--layers 1 --heads 2 --channels 32 --seq-len 64 --batch-size 2 --total-batch-size 512"
small="$shape --dtype fp32 --threads 1 $mute --save-every 2 --force"
tiny="$small --steps 2"
awk 'BEGIN { for (i = 1; i <= 400; i++) print "line " i " of a text: naïve 日本 " i * 7919 % 1000 }' >"$tmp/a.txt"
sed 's/.*/{"text": "&"}/' "$tmp/a.txt" >"$tmp/d.jsonl"
sed 's/.*/{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "&"}]}/' "$tmp/a.txt" \
    >"$tmp/c.jsonl"
sed 's/.*/{"prompt": "2+2=", "completion": "&"}/' "$tmp/a.txt" >"$tmp/p.jsonl"
mkdir "$tmp/texts" && head -n 100 "$tmp/a.txt" >"$tmp/texts/one.txt" && tail -n 50 "$tmp/a.txt" >"$tmp/texts/two.txt"
run() { out=$1; shift; $train $tiny --out-dir "$tmp/$out" "$@"; }
entries() { ls -d "${1:-$LOCKSTEP_CACHE}/$2"-* 2>/dev/null | wc -l; }

# The hashes that runs had when the trainer tokenised texts itself: their checkpoints resume.
golden() {
    rm -rf "$tmp/o"
    want=$1; shift
    run o "$@" || return 1
    got=$(sed -n 's/.*"data_hash":"\([0-9a-f]*\)","val_hash":"\([0-9a-f]*\)".*/\1 \2/p' "$tmp"/o/ckpt/step_*/state.json)
    [ "$got" = "$want" ] || { echo "got $got, want $want"; return 1; }
}
while read -r train_hash val_hash data; do
    case $data in *-data*) data="${data%-data*}-data $tmp/${data##* }" ;; esac
    check "the hashes of $(echo "$data" | sed "s,$tmp/,,")" golden "$train_hash $val_hash" --data $tmp/$data
done <<END
f39e268a0410e058 09b90368e66d9ce8 a.txt
ba43b22335b8dab4 f9d876145648e99a a.txt --tokenizer char
b0ae3d23226767c5 4cdc9eb0cba40ecd a.txt --tokenizer bpe:300
1511f39476327652 05cfebbd1470de7c d.jsonl --tokenizer bpe:300:llama3
ba0404df86aca551 bde401f74813c5ba c.jsonl --rows join
54c3f4f5a9c2941d c0df77d304cce6ce c.jsonl --chat-template llama3 --tokenizer bpe:290 --rows join
70debeefc17ddbb1 b7e2393411d2548e p.jsonl --rows join
4d7dc9467627ef9c 20077accbe968c5c texts
7b6bc92dc95311a2 7ee127e55071b41e a.txt --val-data d.jsonl
END

# A checkpoint of that time goes on to the weights of a run that was never stopped.
old_run() {
    job="--layers 1 --heads 1 --channels 8 --seq-len 32 --batch-size 2 --total-batch-size 64 --steps 4 --dtype fp32"
    job="$job --threads 1 --eval-every 2 --sample-every 0 --save-every 2 --keep 0 $on_lines --tokenizer bpe:280"
    cp -r tests/golden/old_run "$tmp/old" && $train --resume "$tmp/old" && $train $job --out-dir "$tmp/new" || return 1
    for f in model.safetensors optim.safetensors config.json tokenizer.json tokenizer_config.json; do
        cmp "$tmp/old/ckpt/step_00000004/$f" "$tmp/new/ckpt/step_00000004/$f" || return 1
    done
}
check 'a checkpoint from before goes on' old_run

# ---- the cache
makes() {           # N COMMAND...: the command adds N texts to the cache
    n=$(($1 + $(entries "$LOCKSTEP_CACHE" tokens))); shift
    "$@" || return 1
    [ "$(entries "$LOCKSTEP_CACHE" tokens)" -eq "$n" ] || { echo "$(ls "$LOCKSTEP_CACHE"), want $n"; return 1; }
}
check 'a text is tokenised once' makes 0 run again --data "$tmp/a.txt" --tokenizer bpe:300
check 'a resume takes the tokens of the run' makes 0 $train --resume "$tmp/again" --steps 3
cp "$tmp/a.txt" "$tmp/b.md"
check 'the same text elsewhere is the same' makes 0 run again --data "$tmp/b.md" --tokenizer bpe:300
echo more >>"$tmp/b.md"
check 'another text is another' makes 1 run again --data "$tmp/b.md" --tokenizer bpe:300
check 'a prompt tokenises no text again' makes 0 run again --data "$tmp/a.txt" --prompt line
check 'four ranks share one' makes 0 run four --data "$tmp/a.txt" --np 4
starts() {          # N NAME OPTIONS...: N runs at once, NAME1 to NAMEN
    pids= count=$1 of=$2; shift 2
    for k in $(seq $count); do run "$of$k" "$@" >"$tmp/$of$k.log" 2>&1 & pids="$pids $!"; done
    for pid in $pids; do wait "$pid" || { cat "$tmp/$of"?.log; return 1; }; done
}
same_weights() { cmp "$tmp/$1/ckpt/step_00000002/model.safetensors" "$tmp/$2/ckpt/step_00000002/model.safetensors"; }
at_once() { starts 3 at --data "$tmp/a.txt" --tokenizer bpe:310 && same_weights at1 at3; }
check 'three runs at once make one' makes 1 at_once

# Damage is found, said and mended; the run has the same weights.
run whole --data "$tmp/d.jsonl" --tokenizer bpe:290 >"$tmp/whole.log" 2>&1
damaged() {
    for file in $(find "$LOCKSTEP_CACHE" -name "$1"); do
        case $2 in
            cut) truncate -s 20 "$file" ;;
            gone) rm "$file" ;;
            flipped) flip "$file" 9 '\377' ;;
        esac
    done
    starts 1 damaged --data "$tmp/d.jsonl" --tokenizer bpe:290 &&
        grep -q 'warning: the cache: .*: it is damaged, and made anew' "$tmp/damaged1.log" &&
        same_weights whole damaged1
}
for how in flipped cut gone; do
    for file in tokens.bin manifest.json bytes.bin tokenizer.json .made; do
        check "$file is $how" damaged $file $how
    done
done

mends_at_once() {
    find "$LOCKSTEP_CACHE" -name tokens.bin -exec truncate -s 20 {} +
    starts 4 mend --data "$tmp/d.jsonl" --tokenizer bpe:290 || return 1
    [ "$(cat "$tmp"/mend?.log | grep -c 'tokens-.* it is damaged')" -eq 1 ] || { cat "$tmp"/mend?.log; return 1; }
}
check 'four starts at once mend it once' mends_at_once

# A text changes while a start waits for the lock under which it would learn the old text's tokenizer.
changes() {
    LOCKSTEP_CACHE="$tmp/changing"
    cp "$tmp/a.txt" "$tmp/live.txt"
    run was --data "$tmp/live.txt" --tokenizer bpe:350 || return 1
    name=$(cd "$LOCKSTEP_CACHE" && ls -d tokenizer-*)
    rm -r "$LOCKSTEP_CACHE"/t* && mkdir "$LOCKSTEP_CACHE/.work-$name" && touch "$tmp/held"
    flock "$LOCKSTEP_CACHE/.work-$name/.lock" sh -c "while [ -e '$tmp/held' ]; do sleep 0.1; done" &
    holder=$!
    await test -e "$LOCKSTEP_CACHE/.work-$name/.lock" || return 1
    run waits --data "$tmp/live.txt" --tokenizer bpe:350 >"$tmp/waits.log" 2>&1 &
    waiter=$!
    sleep 1
    tr a-z A-Z <"$tmp/a.txt" >"$tmp/live.txt"
    rm "$tmp/held"
    wait $holder
    wait $waiter || grep -q 'live.txt: it has changed while it was read' "$tmp/waits.log" || return 1
    cp "$tmp/a.txt" "$tmp/live.txt"
    run after --data "$tmp/live.txt" --tokenizer bpe:350 && same_weights was after
}
in_own_cache() { (changes); }
check 'a text that changes under a start leaves nothing wrong' in_own_cache
unknown_prompt() {
    run quiet --data "$tmp/a.txt" --tokenizer char --prompt '€' && grep -q '€' "$tmp/quiet/config.json"
}
check 'a prompt that no sample takes is not read' unknown_prompt

# Where the cache can be.
mkdir "$tmp/none"
homeless="env -u LOCKSTEP_CACHE -u XDG_CACHE_HOME TMPDIR=$tmp/none HOME= $train $tiny"
expect "without a home" 0 '^done' $homeless --data "$tmp/a.txt" --out-dir "$tmp/h2"
check "it is in the run's folder" test "$(entries "$tmp/h2/cache" tokens)" -eq 1
printf 'not UTF-8: \377\n%.0s' $(seq 300) >"$tmp/bad.txt"
expect 'a start without a home that fails' 65 . $homeless --data "$tmp/bad.txt" --tokenizer char --out-dir "$tmp/h6"
expect 'and a dry run' 0 . $homeless --data "$tmp/a.txt" --out-dir "$tmp/h6" --dry-run
check 'leave no folder of a run' test ! -e "$tmp/h6"
expect 'a cache that cannot be' 74 'LOCKSTEP_CACHE: .*/a\.txt' env LOCKSTEP_CACHE="$tmp/a.txt" $train $tiny \
    --data "$tmp/d.jsonl" --out-dir "$tmp/h4"
bad_run="$train $tiny --out-dir $tmp/bad"
# Lines that cannot be read. What is skipped is part of the identity.
for bad in '{"text": "cut' '{"txet": 1}' '{"text": 5}' '["text"]' '{"text": "\ud800"}' \
    "$(printf '{"text": "caf\351"}')" '{"text": NaN}' 'no JSON' '{"text": "a", "text": "b"}' '{"messages": []}'; do
    { head -n 9 "$tmp/d.jsonl"; printf '%s\n%s\n' "$bad" "$bad"; sed 1,9d "$tmp/d.jsonl"; } >"$tmp/bad.jsonl"
    expect "$bad is bad" 65 'bad.jsonl: line 10: ' $bad_run --data "$tmp/bad.jsonl"
    expect "twice" 65 'bad.jsonl: line 11: .*--skip-bad-lines allows no more' $bad_run --data "$tmp/bad.jsonl" \
        --skip-bad-lines 1
    expect "and skipped" 0 '400 documents of JSON; .*bad.jsonl: 2 lines are skipped, the first: line 10: ' \
        $bad_run --data "$tmp/bad.jsonl" --skip-bad-lines 2
done
expect "a resume skips no others" 2 'skip-bad-lines: got 3' $train --resume "$tmp/bad" --steps 3 --skip-bad-lines 3
expect "but as many" 0 '^done' $train --resume "$tmp/bad" --steps 3
cp "$tmp/bad.jsonl" "$tmp/bad_val.jsonl"
expect "those of validation are said, too" 0 'validation .*bad_val.jsonl: 2 lines are skipped' $bad_run \
    --data "$tmp/d.jsonl" --val-data "$tmp/bad_val.jsonl" --skip-bad-lines 2
sed 's/"text"/"txt"/' "$tmp/d.jsonl" >"$tmp/fields.dat"
expect "JSON as text is said" 0 'fields.dat: JSON without a known field is taken as text' $bad_run \
    --data "$tmp/fields.dat"
printf '\377\376\0\0a\0\0\0' >"$tmp/wide.txt"
expect "UTF-32" 65 'got UTF-32, want UTF-8 text: iconv -f UTF-32' $bad_run --data "$tmp/wide.txt"
for n in 1 2; do
    expect "prep, up to $n" $((n % 2 * 65)) 'bad.jsonl: .*line 1[01]: ' $prep "$tmp/bad.jsonl" -o "$tmp/bad$n" \
        --tokenizer byte --skip-bad-lines $n
done
tail -n +2 "$tmp/c.jsonl" | { echo '{"messages": [{"role": "user"'; cat; } >"$tmp/bad.jsonl"
expect "the first of conversations" 0 '399 conversations.*bad.jsonl: 1 line is skipped, the first: line 1: ' $bad_run \
    --data "$tmp/bad.jsonl" --skip-bad-lines 1
# Each file is named with its number, in whatever it is given; a file without any is not. N is for all together.
mkdir "$tmp/mixed"
{ head -n 2 "$tmp/d.jsonl"; echo '{'; head -n 9 "$tmp/d.jsonl"; echo '["text"]'; } >"$tmp/mixed/a.jsonl"
cp "$tmp/d.jsonl" "$tmp/mixed/b.jsonl"
{ cat "$tmp/d.jsonl"; echo '{"text": 5}'; } >"$tmp/mixed/c.jsonl"
of_a='a.jsonl: 2 lines are skipped, the first: line 3: ' of_c='c.jsonl: 1 line is skipped, the first: line 401: '
expect "a folder" 0 "$of_a.*; data: .*$of_c" $bad_run --data "$tmp/mixed" --skip-bad-lines 3
check "names no good file" lacks "$tmp/expect.log" 'b.jsonl: .*skipped'
expect "and no more in all" 65 'c.jsonl: line 401: .*allows no more' $bad_run --data "$tmp/mixed" --skip-bad-lines 2
# Lines are counted over prep's chunks of 4 MiB, and over what an interrupted start had read.
awk '{ for (i = 0; i < 400; i++) print } END { for (i = 0; i < 400; i++) print "{" }' "$tmp/d.jsonl" >"$tmp/large.jsonl"
named() {
    grep -q "prep: warning: .*$of_a" "$tmp/expect.log" && grep -q "prep: warning: .*$of_c" "$tmp/expect.log" &&
        grep -q 'large.jsonl: 400 lines are skipped, the first: line 160001: ' "$tmp/expect.log" &&
        ! grep 'b.jsonl: .*skipped' "$tmp/expect.log"
}
sources="$tmp/large.jsonl $tmp/mixed/a.jsonl $tmp/mixed/[bc].jsonl"
sources="$sources -o $tmp/named --tokenizer byte --shard-tokens 1000000 --skip-bad-lines 403"
sed -i '2 s/^{/[/' "$tmp/mixed/c.jsonl"
expect "prep, one too many" 65 'c.jsonl: line 2: .*in all 404 lines are bad, and 403 may be' $prep $sources
check "has saved some" grep -q '"bad_files":\[{"file":".*large.jsonl","lines":' "$tmp/named/prep.json"
sed -i '2 s/^\[/{/' "$tmp/mixed/c.jsonl"
expect "goes on" 0 '^next ' $prep $sources
check "and names each" named
emptied() { $prep --empty-cache && [ "$(entries "$LOCKSTEP_CACHE" '*')" -eq 0 ]; }
check 'prep empties it' emptied
expect 'a write that fails' 74 'File too large.*; make room, or set LOCKSTEP_CACHE' env LOCKSTEP_CACHE="$tmp/full" \
    sh -c "ulimit -f 8; exec $train $(echo $tiny) --data '$tmp/a.txt' --out-dir '$tmp/h5'"
check 'leaves nothing' test -z "$(ls -A "$tmp/full")"

# ---- names of control tokens: told by every reader, and tokens only on request
sed '10~10 s/$/<|endoftext|>/' "$tmp/a.txt" >"$tmp/n.txt"
sed 's/.*/{"text": "&"}/' "$tmp/n.txt" >"$tmp/n.jsonl"
sed 's/.*/{"prompt": "2+2=", "completion": "&"}/' "$tmp/n.txt" >"$tmp/np.jsonl"
sed 's/.*/{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "&"}]}/' "$tmp/n.txt" \
    >"$tmp/nc.jsonl"
echo '{"ctx": "a<|endoftext|>b", "endings": ["c", "d<|endoftext|>"], "label": 0}' >"$tmp/nt.jsonl"
say='spells control tokens, such as <.endoftext.>' train_n=$(echo $train $tiny --out-dir "$tmp/names")
while read -r times what; do
    eval "expect \"$what: told\" 0 '$say, $times times' $what"
done <<END
40 $train_n --data $tmp/n.txt
40 $train_n --data $tmp/a.txt --val-data $tmp/n.txt
40 $train_n --data $tmp/n.jsonl
40 $train_n --data $tmp/np.jsonl
40 $train_n --data $tmp/nc.jsonl
40 $prep $tmp/n.txt --tokenizer byte -o $tmp/names1
40 $prep $tmp/n.jsonl $tmp/a.txt --tokenizer byte -o $tmp/names2
2 $(echo "$train_n" | sed 's/--sample-every 0//') --data $tmp/a.txt --prompt 'a<|endoftext|>b<|endoftext|>'
1 $train sample $tmp/names --temperature 0 --prompt 'a<|endoftext|>b' --max-tokens 1
2 $train eval $tmp/names --task $tmp/nt.jsonl
END
asked=40_names_of_control_tokens_are_tokens train_n="$train_n --special-tokens"
while read -r code pattern what; do
    eval "expect \"$what\" $code \"$(echo "$pattern" | tr _ ' ')\" $what"
    check "and nothing else" lacks "$tmp/expect.log" "$say"
done <<END
0 data_.*_text;_$asked $train_n --data $tmp/n.txt
0 data_.*JSON;_$asked $train_n --data $tmp/n.jsonl
0 data_.*;_$asked $train_n --data $tmp/np.jsonl
0 ^$asked $prep $tmp/n.txt --tokenizer byte --special-tokens -o $tmp/names3
0 ^$asked $prep $tmp/n.jsonl --tokenizer byte --special-tokens -o $tmp/names4
0 . $train sample $tmp/names --special-tokens --prompt '<|endoftext|>b' --max-tokens 1
0 nt_acc $train eval $tmp/names --special-tokens --task $tmp/nt.jsonl
0 ^val_loss $train eval $tmp/names --special-tokens --data $tmp/n.txt
2 special-tokens:_data:_.*got_conversations $train_n --data $tmp/nc.jsonl
2 special-tokens:_data:_.*got_an_llm.c_token_shard $train_n --data $tmp/names3
2 special-tokens:_the_tokenizer_char $train_n --data $tmp/n.txt --tokenizer char
2 special-tokens:_has_no_effect_on_chat $train chat $tmp/names --special-tokens
2 special-tokens:_want_--prompt $train sample $tmp/names --special-tokens
2 begun_with_other $prep $tmp/n.txt --tokenizer byte -o $tmp/names3
END
ends() { od -An -v -t u2 -j 1024 "$1/train_000000.bin" | tr -s ' ' '\n' | grep -cx 256; }
check "none is an end unasked" [ "$(ends "$tmp/names1")" = 0 ]
check "and each is one" [ "$(ends "$tmp/names3")" -ge 39 ]
expect "a resume goes on so" 0 '^done' $train --resume "$tmp/names" --steps 3
expect "and no other begins" 2 'special-tokens: got on, the run has off' $train --resume "$tmp/h2" --special-tokens

# ---- mixtures
a=$tmp/a.txt d=$tmp/d.jsonl
mix_job="$shape --dtype fp32 --threads 1 --sample-every 0 --save-every 2 --out-dir $tmp/mix --data $a:0.7,$d:0.3"
passes="[0-9.]* epochs of $a . [0-9.]* epochs of $d"
expect "a mixture is planned" 0 "$passes" $train $mix_job --steps 4 --dry-run
expect "and trained" 0 "^val .*4 .*loss [0-9.]* . [0-9.]* bpb . $a [0-9.]* . $d [0-9.]*" $train $mix_job --steps 4 \
    --eval-every 2
check "its data are described" grep -q "^data    70 % $a: [0-9,]* training and .* text$" "$tmp/expect.log"
events() { grep "\"event\":\"$1\"" "$tmp/mix/metrics.jsonl"; }
logged() { events run | grep "\"epochs/$a\":[0-9.]*,\"epochs/$d\":[0-9.]*,"; }
check "its epochs are logged" logged
scores() {          # eval's, and those of the run's last step
    $train eval "$tmp/mix" >"$tmp/eval" && cat "$tmp/eval" && for source in '' "$a" "$d"; do
        member=loss; [ -z "$source" ] || member=val_loss/$source
        want=$(events val | grep '"step":4' | sed "s|.*\"$member\":\([^,]*\),.*|\1|")
        grep "^${source:+$source: }val loss" "$tmp/eval" | awk -v want="$want" '{ sub(/.*val loss/, "") }
            { print $1, want; off = $1 - want; exit !(off < 1e-6 && off > -1e-6) }' || return 1
    done
    # The loss of all is the mean over all tokens.
    awk '{ sub(/.*val loss/, ""); sum[NR > 1] += $1 * $5; n[NR > 1] += $5 }
        END {
            off = sum[1] / n[1] - sum[0] / n[0]
            exit !(NR == 3 && n[1] == n[0] && off < 1e-5 && off > -1e-5)
        }' "$tmp/eval"
}
check "eval scores each source" scores
drawn() { "${TOOLS:-$PWD/build}/report" "$tmp/mix" -o "$tmp/mix.html" && grep -q "val_loss/$a" "$tmp/mix.html"; }
check "and the report draws them" drawn
cp "$a" "$tmp/moved.txt"
cases $train --resume "$tmp/mix" --steps 5 <<'END'
a resume refuses other weights ~ 2 ~ got other data or weights ~ --data "$a:0.6,$d:0.4"
and another source ~ 2 ~ got other data or weights ~ --data "$a:0.7,$tmp/n.txt:0.3"
not another order, scale or place ~ 0 ~ ^done ~ --data "$d:3,$tmp/moved.txt:7"
END
expect "PyTorch's order has no mixtures" 2 'sampler torch: got 2 sources' $train $mix_job --steps 4 --force \
    --sampler torch
check "other weights make no tokens" makes 0 run weighted --data "$a:1,$d:1"

# ---- prep itself
stop_it() {         # a request to stop while prep works is heard when the tokens are there
    awk '{ for (i = 0; i < 60; i++) print }' "$tmp/a.txt" "$tmp/a.txt" "$tmp/a.txt" >"$tmp/long.txt"
    log=$tmp/stop.log
    signalled 75 TERM "$tmp/stop/.lock" '' $train $small --steps 900000 --data "$tmp/long.txt" --tokenizer bpe:400 \
        --out-dir "$tmp/stop"
}
expect 'prep names a wrong request' 65 'request: .*cut short' sh -c "echo nonsense | $prep --answer"
check 'a request to stop waits for the tokens' stop_it
summary
