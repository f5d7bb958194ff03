#!/bin/sh
# test_disk.sh -- a disk that is full: training goes on, a save is tried again, the last one for as long as it takes;
# what was saved before stays whole. Needs root (a small tmpfs).
. tests/lib.sh
train=$faulty
mkdir "$tmp/disk"
mount -t tmpfs -o size=4m tmpfs "$tmp/disk" 2>/dev/null || skip_all "a full disk" "cannot mount a tmpfs here"
trap 'umount "$tmp/disk"; rm -rf "$tmp"' EXIT
job="--layers 1 --heads 1 --channels 64 --seq-len 32 --batch-size 2 --total-batch-size 128 --data tests/golden/lines.txt
     --save-every 20 --eval-every 0 --sample-every 0"
fill() { dd if=/dev/zero of="$tmp/disk/filler" bs=1k count=8000 2>/dev/null; }
free() { rm -f "$tmp/disk/filler"; }
saved() { [ "$(cat "$tmp/disk/$1/ckpt/latest" 2>/dev/null)" = "step_000000$2" ]; }

# begin OUT OPTIONS...: a run in the background that finds the disk full from step 30 on, and step 20 saved.
begin() {
    out=$1; shift
    : >"$tmp/hold"
    LOCKSTEP_HOLD=$tmp/hold LOCKSTEP_FAULT="rank=0,step=30,at=bwd,do=hold" \
        $train $job --out-dir "$tmp/disk/$out" "$@" >"$tmp/$out.log" 2>&1 &
    pid=$!
    await grep -q 'LOCKSTEP_FAULT fires' "$tmp/$out.log" && await saved "$out" 20
    fill
    rm "$tmp/hold"
}
# ends OUT CODE STEP: the run ends with this code, its newest checkpoint is STEP; afterwards the disk is empty.
ends() {
    wait $pid; code=$?
    free
    [ $code -eq "$2" ] && saved "$1" "$3" && return
    echo "exit code $code, newest $(cat "$tmp/disk/$1/ckpt/latest"):"
    grep -a 'error\|warning' "$tmp/$1.log" | tail -n 3
    return 1
}
waits() { await grep -q "$2" "$tmp/$1.log"; }
again() { begin again --steps 60 && waits again 'training goes on' && free && ends again 0 60; }
check "a save that failed is tried again" again
rm -rf "$tmp/disk/again"
last() { begin last --steps 40 && waits last 'not saved.*tried again' && free && ends last 0 40; }
check "the last save waits for room" last
rm -rf "$tmp/disk/last"
signal() { begin signal --steps 40 && waits signal 'not saved.*tried again' && kill -TERM $pid && ends signal 74 20; }
check "a signal ends the wait with 74" signal
rm -rf "$tmp/disk/signal"
impatient() { begin impatient --steps 40 --save-patience 0 && ends impatient 74 20; }
check "so does the end of --save-patience" impatient
rm -rf "$tmp/disk/impatient"
thrice() { begin thrice --steps 400 && ends thrice 74 20; }
check "three failures in a row end the run with 74" thrice
expect "goes on from the last whole checkpoint" 0 '^done ' $train --resume "$tmp/disk/thrice" --steps 40

# build/prep says at its start that there is no room, and leaves the disk as it is.
expect "prep refuses a disk that is too small" 74 "no space: .*: got .* bytes free, want about" \
    "${TOOLS:-build}/prep" build/data/stories_train.jsonl --tokenizer byte -o "$tmp/disk/tokens"
check "and writes nothing" test -z "$(find "$tmp/disk/tokens" -type f ! -name .lock 2>/dev/null)"
summary
