#!/bin/sh
# test_prep.sh -- build/prep makes the tokens that training would make, whatever was interrupted or packed.
. tests/cases.sh
prep=${TOOLS:-build}/prep

mkdir "$tmp/in"
for i in $(seq 10 49); do
    awk -v n="$i" '{
        gsub(/[\\"\t]/, " ")
        if (NR % 3) gsub("e", "e\314\201")              # that NFC composes
        printf "{\"id\": %d, \"text\": \"%d %s\"}\n", NR, n, $0
    }' README.md >"$tmp/in/$i.jsonl"
done
plan="--tokenizer bpe:400:qwen2 --val-frac 0.05 --shard-tokens 20000"
# same_shards A B: both folders have the same files, and bytes as given, but for the inputs that the manifests name.
same_shards() {
    for d in "$1" "$2"; do
        (cd "$d" && sha256sum *.bin tokenizer.json && grep -o '"given":[^]]*]' manifest.json | sha256sum)
    done | sort | uniq -u >"$tmp/differ"
    cat "$tmp/differ"
    [ ! -s "$tmp/differ" ] && ls "$1"/train_000001.bin "$1"/val_000000.bin
}
# as_one NAME FOLDER COMMAND...: prep makes the shards of $tmp/one in that folder.
as_one() {
    name=$1 folder=$tmp/$2; shift 2
    expect "$name" 0 '^next ' "$@" -o "$folder"
    check "$name: the same shards" same_shards "$tmp/one" "$folder"
}
expect "two inputs and a glob" 0 '^next ' "$prep" "$tmp/in/1?.jsonl" "$tmp/in/2?.jsonl" "$tmp/in/[34]?.jsonl" $plan \
    --threads 1 -o "$tmp/one"
as_one "a folder, four threads" four "$prep" "$tmp/in" $plan --threads 4
expect "again" 0 'finished already' "$prep" "$tmp/in" $plan --threads 2 -o "$tmp/four"
if command -v gzip >/dev/null && command -v zstd >/dev/null; then
    cp -r "$tmp/in" "$tmp/packed" && gzip "$tmp"/packed/1?.jsonl && zstd -q --rm "$tmp"/packed/2?.jsonl
    as_one "packed files" unpacked "$prep" "$tmp/packed" $plan
    head -c 2000 "$tmp/packed/10.jsonl.gz" >"$tmp/cut.jsonl.gz"
    expect "a packed file cut short" 65 'cannot unpack' "$prep" "$tmp/cut.jsonl.gz" -o "$tmp/cut" --tokenizer byte
else skip "packed files" "no gzip and zstd"; fi

tokens() { sed -n 's/.*"'$1'":{"documents":[0-9]*,"tokens":\([0-9]*\).*/\1/p' "$tmp/one/manifest.json"; }
shape="--layers 1 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 64"
job="$shape --steps 2 --sample-every 0 --eval-steps 1 --save-every 0"
commas() { echo "$1" | sed ':a; s/\([0-9]\)\([0-9]\{3\}\)\($\|,\)/\1,\2\3/; ta'; }
expect "train_gpt takes the folder" 0 \
    "$(commas "$(tokens train)") training and $(commas "$(tokens val)") validation tokens.* . tokenizer .*json" \
    $train --data "$tmp/one" $job --out-dir "$tmp/run"
cat "$tmp"/in/*.jsonl >"$tmp/all.jsonl"
sum() {             # training and validation tokens of --data all.jsonl, which splits elsewhere
    $train --data "$tmp/all.jsonl" --tokenizer "$tmp/one" $job --out-dir "$tmp/direct" |
        sed -n 's/.*: \([0-9,]*\) training and \([0-9,]*\) validation.*/\1 \2/p' | tr -d ,
}
as_many() { set -- $(sum) && [ "$(($1 + $2))" = "$(($(tokens train) + $(tokens val)))" ]; }
check "as many tokens as training makes itself" as_many

# ---- interrupted
plan="--tokenizer $tmp/one/tokenizer.json --val-frac 0.05 --shard-tokens 20000"
of_broken="$prep $tmp/broken $plan" of_swapped="$prep $tmp/swapped $plan"
# begun SOURCE FOLDER: prep is ended by a bad line near the end, which is mended then.
begun() {
    sed -i '$ s/^{/[/' "$tmp/$1/49.jsonl"
    expect "ended by a bad line" 65 '49.jsonl: line [0-9]*: byte' "$prep" "$tmp/$1" $plan -o "$tmp/$2"
    sed -i '$ s/^\[/{/' "$tmp/$1/49.jsonl"
}
cp -r "$tmp/in" "$tmp/broken"
begun broken mended
check "some shards are there" test -s "$tmp/mended/train_000001.bin"
expect "other options" 2 'begun with other' "$prep" "$tmp/broken" --tokenizer byte -o "$tmp/mended"
touch -d '2000-01-01' "$tmp/mended/train_000000.bin"
as_one "goes on once it is mended" mended $of_broken
check "without the first again" test "$tmp/mended/train_000000.bin" -ot "$tmp/one/train_000000.bin"
for i in $(seq 20); do
    timeout -s KILL "0.0$((i * 3 % 10))$i" "$prep" "$tmp/in" $plan --threads 2 -o "$tmp/killed" >/dev/null 2>&1
done
await flock -n "$tmp/killed/.lock" true         # the last one has ended
expect "killed 20 times at some moment" 0 'next|finished' "$prep" "$tmp/in" $plan --threads 2 -o "$tmp/killed"
check "it ends with the same shards" same_shards "$tmp/one" "$tmp/killed"
check "and leaves nothing else" test "$(ls -A "$tmp/killed")" = "$(ls -A "$tmp/one")"
# Moments that those kills may miss: before the first prep.json is there, and before tokenizer.json.
mkdir "$tmp/early"
: >"$tmp/early/.train.1.part"
: >"$tmp/early/prep.json.tmp77"
as_one "killed before it had saved" early "$prep" "$tmp/in" $plan
check "and nothing else" test "$(ls -A "$tmp/early")" = "$(ls -A "$tmp/one")"
begun broken late
rm "$tmp/late/tokenizer.json"
as_one "without its tokenizer.json" late $of_broken

# ---- what is not as it was
mine="holiday.mkv.part notes.tmpl.txt photos.tmp_backup/one.jpg .train.part prep.json.tmp .train.1.part.bak"
kept() { for f in $mine; do [ "$(cat "$1/$f")" = mine ] || { echo "$f is gone"; return 1; }; done; }
mkdir -p "$tmp/mine/photos.tmp_backup" "$tmp/late/photos.tmp_backup"
for f in $mine; do echo mine | tee "$tmp/mine/$f" >"$tmp/late/$f"; done
expect "a folder with somebody's files" 2 'not empty' "$prep" "$tmp/in" $plan -o "$tmp/mine"
mkdir -p "$tmp/volume/lost+found"
expect "the root of a disk" 0 'next ' "$prep" "$tmp/in" $plan -o "$tmp/volume"
expect "a finished one" 0 'finished already' $of_broken -o "$tmp/late"
check "leaves them" kept "$tmp/mine"
check "so does that" kept "$tmp/late"
flip "$tmp/late/train_000001.bin" 5000 '\377\377'
expect "a finished shard that has changed" 65 'train_000001.bin: checksum mismatch' $of_broken -o "$tmp/late"
rm "$tmp/late/val_000000.bin" "$tmp/late/train_000001.bin"
expect "one that is gone" 65 'train_000001.bin: it is gone' $of_broken -o "$tmp/late"
begun broken half
cp -r "$tmp/half" "$tmp/half2"
sed -i 's/"at":[0-9]*/"at":8/' "$tmp/half/prep.json"
expect "a state that has changed" 65 'prep.json: it is damaged' $of_broken -o "$tmp/half"
flip "$tmp/half2/train_000000.bin" 5000 '\377\377'
expect "a shard that changed before it goes on" 65 'train_000000.bin: checksum' $of_broken -o "$tmp/half2"
mkdir "$tmp/locked"
expect "two at once" 74 'in use: .*/locked: by' flock "$tmp/locked/.lock" "$prep" "$tmp/in" $plan -o "$tmp/locked"
preloads "inputs that change"
no_flock
expect "a file system without locks" 0 'nolock: its file system cannot lock' \
    env LD_PRELOAD="$tmp/noflock.so" FLOCK_ERRNO=38 "$prep" README.md --tokenizer byte -o "$tmp/nolock"

cp -r "$tmp/in" "$tmp/swapped"
begun swapped swap
cp -p "$tmp/swapped/20.jsonl" "$tmp/20.jsonl"
sed 's/"text": "./"text": "#/' "$tmp/20.jsonl" >"$tmp/swapped/20.jsonl"
touch -r "$tmp/20.jsonl" "$tmp/swapped/20.jsonl"
expect "an input replaced by one of the same size" 65 '20.jsonl: its text has changed' $of_swapped -o "$tmp/swap"
cp -p "$tmp/20.jsonl" "$tmp/swapped/20.jsonl"
cp -r "$tmp/swap" "$tmp/swap2"
sed 's/a/b/' "$tmp/swap/tokenizer.json" >"$tmp/swap2/tokenizer.json"
expect "another tokenizer.json" 65 'tokenizer.json: it has changed' $of_swapped -o "$tmp/swap2"
as_one "with the old one it goes on" swap $of_swapped
sed 's/"text": "./"text": "#/' "$tmp/20.jsonl" >"$tmp/swapped/20.jsonl"
expect "replaced under a finished folder" 65 '20.jsonl: its text has changed' $of_swapped -o "$tmp/swap"
cp "$tmp/20.jsonl" "$tmp/swapped/20.jsonl"
truncate -s -2 "$tmp/swap/train_000003.bin"
expect "a shard that was cut" 65 'train_000003.bin: checksum' $of_swapped -o "$tmp/swap"
# held COMMAND...: prep waits before its second shard, and the command changes an input meanwhile.
held() {
    : >"$tmp/hold"
    log=$tmp/held.log
    LD_PRELOAD=$tmp/fail.so FAIL_CALL=rename FAIL_AT=6 FAIL_HOLD=$tmp/hold "$prep" "$tmp/growing.jsonl" $plan \
        --threads 1 -o "$tmp/held" >"$log" 2>&1 &
    pid=$!
    await test -e "$tmp/hold.held"
    "$@"
    rm -f "$tmp/hold" "$tmp/hold.held"
    ended_with 65 && grep -q 'growing.jsonl: ' "$log" && rm -rf "$tmp/held"
}
for i in 1 2 3; do cat "$tmp/all.jsonl" "$tmp/all.jsonl" "$tmp/all.jsonl"; done >"$tmp/nine.jsonl"
for what in "truncate -s -1000000" "truncate -s +1" "cp $tmp/nine.jsonl"; do
    cp "$tmp/nine.jsonl" "$tmp/growing.jsonl"
    check "an input changes while it is read: ${what%% /*}" held $what "$tmp/growing.jsonl"
done
tr -d '{' <"$tmp/nine.jsonl" | gzip >"$tmp/large.txt.gz"
expect "a text that does not fit into memory" 1 'large.txt.gz: .*does not fit' sh -c "ulimit -v 60000
    exec '$prep' '$tmp/large.txt.gz' --tokenizer byte --threads 1 -o '$tmp/large'"

# ---- other inputs
cp README.md "$tmp/lone.txt"
expect "a lone text" 0 '^val: 1 document' "$prep" "$tmp/lone.txt" --tokenizer byte -o "$tmp/lone"
printf 'one line and another' >"$tmp/open.txt"
of_open="$prep $tmp/open.txt --tokenizer byte --val-frac"
expect "no part of a line without its end" 0 '^val: 0 document' $of_open 0 -o "$tmp/none"
expect "half of it" 0 '^val: 1 document' $of_open 0.5 -o "$tmp/some"
mkdir "$tmp/hub" && printf '{"text": "a"}\n' | tee "$tmp/hub/train.json" "$tmp/hub/test.json" >"$tmp/hub/README.md"
printf '\357\273\277[{"text": "a"}]' >"$tmp/hub/valid.json"        # a list, behind a byte order mark
expect "a folder with splits" 0 'training: train.json; validation: valid.json; not taken: README.md, test.json' \
    "$prep" "$tmp/hub" --tokenizer byte -o "$tmp/hub.out"
check "two tokens of each" grep -q '"train":{"documents":1,"tokens":2,.*"val":{"documents":1,"tokens":2,' \
    "$tmp/hub.out/manifest.json"
printf 'one\ncaf\351' >"$tmp/latin.txt"
expect "no UTF-8" 65 'latin.txt: line 2: byte 7: got e9' "$prep" "$tmp/latin.txt" --tokenizer byte -o "$tmp/latin"
expect "a lone text is a stream without end-of-text" 0 '^done ' $train --data "$tmp/lone" $job --out-dir "$tmp/run2"
awk '{ at = index($0, "\"added_tokens\":[")
       if (!at) { print; next }
       print substr($0, 1, at + 15)
       for (id = 257; id <= 65536; id++)
           printf "{\"id\":%d,\"content\":\"<%d>\",\"special\":false,\"normalized\":false},\n", id, id
       print substr($0, at + 16) }' "$tmp/lone/tokenizer.json" >"$tmp/wide.json"
expect "a vocabulary beyond 16 bits" 0 '^next ' "$prep" "$tmp/in" --tokenizer "$tmp/wide.json" -o "$tmp/wide"
check "has Llama 3's shards" grep -q '"token_bytes":4' "$tmp/wide/manifest.json"
expect "which train" 0 '^done ' $train --data "$tmp/wide" $job --out-dir "$tmp/run3"
expect "another field" 65 'title' "$prep" "$tmp/in" --text-field title --tokenizer byte -o "$tmp/title"
expect "no such file" 66 'no file' "$prep" "$tmp/absent" -o "$tmp/absent.out"
expect "no folder for the shards" 2 'want -o' "$prep" "$tmp/in"
summary
