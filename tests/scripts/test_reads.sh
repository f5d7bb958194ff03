#!/bin/sh
# test_reads.sh -- reads that fail. An error that passes is waited for; one that stays ends the start with the file's
# name and takes no older checkpoint; only what a damaged medium gives (EIO) makes an older checkpoint take its place.
. tests/cases.sh
preloads reads
tools=${TOOLS:-build}
# failing CALL ERRNO PATH AT COMMAND...: call number AT fails; "AT+": from there on all do. A script, for `timeout`.
failing=$tmp/failing
cat >"$failing" <<'END'
#!/bin/sh
export FAIL_CALL=$1 FAIL_ERRNO=$2 FAIL_PATH=$3 FAIL_AT=${4%+} LD_PRELOAD="${0%/*}/fail.so"
case $4 in *+) export FAIL_EVER=1 ;; esac
shift 4
exec "$@"
END
chmod +x "$failing"
EIO=5 EINTR=4 ENOMEM=12 EACCES=13 EMFILE=24 ESTALE=116
shape="--layers 1 --heads 1 --channels 16 --seq-len 16 --batch-size 1 --total-batch-size 32"
tiny="$shape --device cpu --threads 1 $mute"
seq 3000 >"$tmp/text"
FAIL_COUNT=$tmp/count "$failing" openr 0 DONE 0 $train $tiny --data "$tmp/text" --steps 4 --save-every 2 \
    --out-dir "$tmp/run" >"$tmp/log" 2>&1 || { fail "a run that saves" "$(tail -n 1 "$tmp/log")"; give_up; }
[ "$(cat "$tmp/count" 2>/dev/null)" ] && [ "$(cat "$tmp/count")" -gt 0 ] ||
    skip_all reads "this build cannot be preloaded"

new=step_00000004
# resumes NAME CODE PATTERN CALL ERRNO PATH AT: a resume of a copy of the run ends with CODE and a line like
# PATTERN. The log goes on as it was, and no checkpoint is lost: one whose medium is damaged is saved again.
resumes() {
    name=$1 code=$2 pattern=$3; shift 3
    rm -rf "$tmp/copy" && cp -a "$tmp/run" "$tmp/copy"
    expect "$name" "$code" "$pattern" "$failing" "$@" "$train" --resume "$tmp/copy" --steps 5
    grep -q "bad checkpoint: $new" "$tmp/expect.log" || (cd "$tmp/run/ckpt" && sha256sum $new/*) |
        (cd "$tmp/copy/ckpt" && sha256sum -c --quiet) || fail "$name" "a checkpoint is another"
    head -c "$(wc -c <"$tmp/run/metrics.jsonl")" "$tmp/copy/metrics.jsonl" | cmp - "$tmp/run/metrics.jsonl" ||
        fail "$name" "the log has been emptied"
}
for e in $EIO $ESTALE $ENOMEM; do resumes "errno $e of a read once" 0 "resumed .*$new" read $e $new/model 1; done
for e in $EIO $ESTALE $EINTR $EMFILE; do
    resumes "errno $e of an open once" 0 "resumed .*$new" openr $e $new/optim 1
done
resumes "EIO of a look-up once" 0 "resumed .*$new" stat $EIO copy/ckpt 1
resumes "EIO of a listing once" 0 "resumed .*$new" list $EIO copy/ckpt 1
later="cannot be read now: .*$new/model.safetensors"
for e in $ESTALE $ENOMEM; do resumes "errno $e of reads" 1 "$later" read $e $new/model 1+; done
for e in $EACCES $EMFILE $ESTALE; do resumes "errno $e of opens" 1 "$later" openr $e $new/model 1+; done
resumes "a damaged medium" 0 "bad checkpoint: $new: .*model.safetensors: byte 0: Input/output" \
    read $EIO $new/model 1+
resumes "a damaged folder" 0 "bad checkpoint: $new: .*DONE: Input/output" openr $EIO $new/DONE 1+
resumes "both are damaged" 65 "none of 2 checkpoints is whole" read $EIO /model 1+
# What cannot be looked up is not missing: a fresh start would empty the log.
for path in copy/config.json copy/ckpt copy/metrics.jsonl; do
    resumes "EACCES of $path" 1 $path stat $EACCES $path 1+
    resumes "EIO of $path" 65 $path stat $EIO $path 1+
done
resumes "the checkpoints cannot be listed" 65 "cannot list: .*copy/ckpt" list $EIO copy/ckpt 1+
resumes "a part of the checkpoints is listed" 65 "cannot list: .*copy/ckpt" list $EIO copy/ckpt 4+

no="$train $tiny --steps 1 --force --out-dir $tmp/no --data"
mkdir "$tmp/texts" && for i in 1 2 3; do cp "$tmp/text" "$tmp/texts/$i.txt"; done
for path in "$tmp/texts" "$tmp/texts/*.txt"; do
    expect "a part of the data is listed: ${path#"$tmp/"}" 65 "cannot list: .*texts" \
        "$failing" list $EIO texts 3+ $no "$path"
done
expect "data that cannot be read" 65 "cannot read: .*text: byte 0: Input/output" \
    "$failing" read $EIO "$tmp/text" 1+ $no "$tmp/text"
for tool in info export; do
    case $tool in export) more="--gguf $tmp/m.gguf" ;; *) more= ;; esac
    expect "$tool: a read once" 0 "" "$failing" read $EIO model.safetensors 1 "$tools/$tool" "$tmp/run/ckpt/$new" $more
    expect "$tool: reads" 1 "cannot be read now" \
        "$failing" read $ESTALE model.safetensors 1+ "$tools/$tool" "$tmp/run/ckpt/$new" ${more:+${more}2}
done

# ---- data that are not what they were

"$tools/prep" "$tmp/text" --tokenizer byte --shard-tokens 5000 --val-frac 0 -o "$tmp/shards" >"$tmp/log" 2>&1
expect "shards as prep left them" 0 "" "$train" $tiny --data "$tmp/shards" --dry-run
rm "$tmp/shards/train_000001.bin"
expect "a shard is missing" 65 "train_000001.bin: it is missing" $no "$tmp/shards"

head -c 200000 /dev/zero >"$tmp/tokens.bin"
timeout 240 $train $tiny --data "$tmp/tokens.bin" --vocab-size 300 --steps 10000000 --save-every 20 \
    --out-dir "$tmp/changing" >"$tmp/changing.log" 2>&1 &
pid=$! log=$tmp/changing.log
await grep -q '"event":"ckpt"' "$tmp/changing/metrics.jsonl"
flip "$tmp/tokens.bin" 5000 '\001'
check "data written to end the run with 65" ended_with 65
check "and the file's name" grep -q 'tokens.bin: it has changed while the run reads it' "$log"

# ---- paths of any bytes

odd=$tmp/$(printf 'p\377 \342\202 \303\251')
mkdir "$odd" && cp "$tmp/text" "$odd/text" && "$tools/prep" "$tmp/text" --tokenizer byte -o "$odd/prep" >"$tmp/log" 2>&1
cp "$odd/prep/tokenizer.json" "$odd/t.json"
expect "a run with such paths" 0 "" "$train" $tiny --data "$odd/text" --tokenizer "$odd/t.json" --steps 2 \
    --out-dir "$odd/run"
expect "is resumed" 0 "resumed" "$train" --resume "$odd/run" --steps 4
expect "is started again by its own options" 0 "resumed" "$train" --resume "$odd/run" --steps 5 --np 2 --threads 1
expect "its config is known" 0 "a run's config" "$tools/info" "$odd/run/config.json"
expect "adapters of it" 0 "" "$train" $tiny --init "$odd/run" --data "$odd/text" --lora 8 --steps 2 \
    --out-dir "$tmp/adapters"
expect "find their model" 0 "" "$train" sample "$tmp/adapters" --prompt 1 --max-tokens 2
if python3 -c '' 2>/dev/null; then
    as_python() { python3 -c "import json, os, sys; c = json.load(open(sys.argv[1])); assert os.fsencode(c['data']) == \
        os.fsencode(sys.argv[2]), c['data']" "$odd/run/config.json" "$odd/text"; }
    check "Python reads the path" as_python
fi
summary
