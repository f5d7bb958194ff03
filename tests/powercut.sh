#!/bin/sh
# powercut.sh -- the power fails at a random moment of a run that saves every step: an ext4 file system in a file is
# shut down without a flush, not even of its journal (FS_IOC_SHUTDOWN, ioctl_xfs_goingdown's NOLOGFLUSH), and mounted
# again. No checkpoint that was announced may be lost, and what goes on from there must end with the undisturbed
# run's bits. Root and a loop device; SKIP elsewhere.
#
#   CUTS=200 SEED=1 tests/powercut.sh      half of them with data=writeback,noauto_da_alloc: nothing is flushed unasked
. tests/lib.sh
cuts=${CUTS:-20} seed=${SEED:-1} image=$tmp/image mount=$tmp/mount
mkdir "$mount"
job="--layers 1 --heads 2 --channels 64 --seq-len 16 --batch-size 1 --total-batch-size 64 --steps 400
     --data tests/golden/lines.txt --eval-every 0 --sample-every 0 --threads 1 --timeout 20"
power_off() {       # the number is that of FS_IOC_SHUTDOWN; 2: without a flush
    python3 -c 'import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack("I", 2))' "$mount"
}
unmount() { await umount "$mount"; }
trap 'umount "$mount" 2>/dev/null; rm -rf "$tmp"' EXIT
fresh() { rm -f "$image" && truncate -s 64M "$image" && mkfs.ext4 -q -F "$image" && mount -o "$1" "$image" "$mount"; }
possible() { fresh loop,commit=1 && power_off && umount "$mount"; }
possible 2>"$tmp/why" || skip_all "power cuts" "no file system can be shut down here: $(tail -n 1 "$tmp/why")"

# cut N: one power cut; sets `acknowledged`, the newest step announced before it. Fails with the reason on its output.
cut() {
    options=loop,commit=1 np=$((1 + $1 % 2))
    [ $(($1 / 2 % 2)) -eq 0 ] || options=$options,data=writeback,noauto_da_alloc
    fresh "$options" || { echo "no file system"; return 1; }
    $train $job --save-every 1 --np $np --max-restarts 0 --out-dir "$mount/run" >"$tmp/log" 2>&1 &
    child=$!
    sleep "$(awk -v seed=$((seed * 1000 + $1)) 'BEGIN { srand(seed); rand(); print 0.05 + rand() * 1.5 }')"
    power_off
    acknowledged=$(sed -n 's/^saved .*step_0*\([0-9][0-9]*\)$/\1/p' "$tmp/log" | tail -n 1)
    pkill -KILL -P $child 2>/dev/null; kill -KILL $child 2>/dev/null; wait $child 2>/dev/null
    unmount && mount -o "$options" "$image" "$mount" || { echo "cannot be mounted again"; return 1; }
    left=$(ls -A "$mount/run/ckpt" 2>/dev/null | grep -c '^\.tmp')
    $train $job --resume auto --save-every 1000 --out-dir "$mount/run" >"$tmp/again" 2>&1 ||
        { echo "does not go on: $(tail -n 2 "$tmp/again")"; return 1; }
    from=$(sed -n 's/^resumed .* at step \([0-9]*\)$/\1/p' "$tmp/again" | head -n 1)
    [ "${from:-0}" -ge "${acknowledged:-0}" ] ||
        { echo "step $acknowledged was announced, it went on from ${from:-nothing}"; return 1; }
    [ "$left" -le 1 ] && [ "$(weights "$mount/run")" = "$want" ] ||
        { echo "other weights, or left over: $left"; return 1; }
    unmount
}
$train $job --save-every 1000 --out-dir "$tmp/golden" >"$tmp/golden.log" 2>&1 ||
    { cat "$tmp/golden.log"; fail golden "the undisturbed run"; give_up; }
want=$(weights "$tmp/golden") n=0 before=0 lost=0

# Negative control: a program whose fsync does nothing must lose something in one of three cuts.
echo 'int fsync(int fd) { return fd < 0; }' >"$tmp/lies.c"
cc -shared -fPIC -o "$tmp/lies.so" "$tmp/lies.c"
honest=$train train="env LD_PRELOAD=$tmp/lies.so $train"
until ! cut $((2 + n)) >/dev/null 2>&1 || [ $n -eq 3 ]; do n=$((n + 1)); done
umount "$mount" 2>/dev/null
if [ $n -lt 3 ]; then ok "without fsync they are lost"; else fail "without fsync" "nothing was lost in 3 power cuts"; fi
train=$honest n=0
while [ $n -lt "$cuts" ]; do
    acknowledged=
    if ! cut $n >"$tmp/why" 2>&1; then
        lost=$((lost + 1))
        fail "cut $n" "$(tr '\n' '|' <"$tmp/why")"
        umount "$mount" 2>/dev/null
    fi
    [ "${acknowledged:-0}" -gt 0 ] || before=$((before + 1))
    n=$((n + 1))
done
echo "bench: power cuts: $n (seed $seed), $before before a checkpoint was announced, $lost lost one or had other bits"
[ $lost -eq 0 ] && ok "power cuts"
summary
