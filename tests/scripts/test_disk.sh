#!/bin/sh
# test_disk.sh -- a full disk: training goes on, saves are tried again, what was saved stays. Needs root (a tmpfs).
. tests/cases.sh
train=$faulty
mkdir "$tmp/disk"
mount -t tmpfs -o size=4m tmpfs "$tmp/disk" 2>/dev/null || skip_all "a full disk" "cannot mount a tmpfs here"
trap 'umount "$tmp/disk"; rm -rf "$tmp"' EXIT
shape="--layers 1 --heads 1 --channels 64 --seq-len 32 --batch-size 2 --total-batch-size 128"
job="$shape $on_lines --save-every 20 $mute"
fill() { dd if=/dev/zero of="$tmp/disk/filler" bs=1k count=8000 2>/dev/null; }
free() { rm -f "$tmp/disk/filler"; }
saved() { [ "$(cat "$out/ckpt/latest" 2>/dev/null)" = "step_000000$1" ]; }

# full SAID DO CODE STEP OPTION...: a run finds the disk full from step 30 on, and step 20 saved. After SAID in its log
# DO is done. It ends with CODE, and its newest checkpoint is STEP.
full() {
    said=$1 does=$2 code=$3 step=$4 out=$tmp/disk/run; shift 4
    free
    rm -rf "$out"
    hold "$tmp/run.log" rank=0,step=30,at=bwd $train $job --out-dir "$out" "$@" && await saved 20
    fill
    rm "$tmp/hold"
    await grep -q "$said" "$tmp/run.log" && $does
    ended_with $code && free && saved $step
}
stop() { kill -TERM $pid; }
check "a save that failed is tried again" full 'training goes on' free 0 60 --steps 60
check "the last save waits for room" full 'not saved.*tried again' free 0 40 --steps 40
check "a signal ends the wait with 74" full 'not saved.*tried again' stop 74 20 --steps 40
check "so does the end of --save-patience" full '' : 74 20 --steps 40 --save-patience 0
check "three failures in a row end the run with 74" full '' : 74 20 --steps 400
expect "goes on from the last whole checkpoint" 0 '^done ' $train --resume "$out" --steps 40

# A run in an image's layer: overlayfs cannot rename its folders.
mkdir "$tmp/layers"
mount -t tmpfs none "$tmp/layers"
trap 'umount "$tmp/layers/run" "$tmp/layers" "$tmp/disk" 2>/dev/null; rm -rf "$tmp"' EXIT
(cd "$tmp/layers" && mkdir image over work run)
expect "a run for an image" 0 '^done' $train $job --steps 80 --keep 0 --out-dir "$tmp/layers/image/a"
in_image() {
    umount "$tmp/layers/run" 2>/dev/null
    (cd "$tmp/layers" && rm -rf over work && mkdir over work &&
        mount -t overlay -o lowerdir=image,upperdir=over,workdir=work overlay run)
}
# image NAME CHECKPOINTS COMMAND...: the command works on the run in the image, loses no save and leaves these there.
image() {
    name=$1 want=$2; shift 2
    in_image
    expect "an image: $name" 0 '^done' "$@"
    check "without trouble" lacks "$tmp/expect.log" 'not saved\|checkpoints stay'
    check "it leaves step $want" test "$(cd "$out/ckpt" && echo $(ls -A | sed -n 's/^\.*[a-z_]*step_0*//p'))" = "$want"
}
out=$tmp/layers/run/a
if in_image 2>"$tmp/mount.log"; then
    image "it goes on" "100 120" $train --resume "$out" --steps 120 --keep 2
    image "from an earlier step" "20 40 60 80 100" $train --resume "$out/ckpt/step_00000040" --steps 100
    image "all but every 40th go" "40 80 100" $train --resume "$out" --steps 100 --keep 1 --keep-every 40
    image "--force" "20 40" $train $job --steps 40 --out-dir "$out" --force
else skip "a run in an image" "cannot mount an overlay here"; fi

# build/prep says at its start that there is no room, and leaves the disk as it is.
expect "prep refuses a disk that is too small" 74 "no space: .*: got .* bytes free, want about" \
    "${TOOLS:-build}/prep" build/data/stories_train.jsonl --tokenizer byte -o "$tmp/disk/tokens"
check "and writes nothing" test -z "$(find "$tmp/disk/tokens" -type f ! -name .lock 2>/dev/null)"
summary
