#!/bin/sh
# test_disk.sh -- a disk that is full: training goes on, the save is tried again; what was saved before stays whole. Needs root (a small tmpfs).
. tests/lib.sh
mkdir "$tmp/disk"
mount -t tmpfs -o size=4m tmpfs "$tmp/disk" 2>/dev/null || skip_all "a full disk" "cannot mount a tmpfs here"
trap 'umount "$tmp/disk"; rm -rf "$tmp"' EXIT
job="--layers 1 --heads 1 --channels 64 --seq-len 32 --batch-size 2 --total-batch-size 128 --data tests/golden/lines.txt --save-every 20 --eval-every 0 --sample-every 0"
fill() { dd if=/dev/zero of="$tmp/disk/filler" bs=1k count=8000 2>/dev/null; true; }
saved() { cat "$tmp/disk/$1/ckpt/latest" 2>/dev/null; }
# Full from step 30 on, free again after the first failure: the run ends well.
LOCKSTEP_FAULT="rank=0,step=30,at=bwd,do=sleep:2" $train $job --steps 60 --out-dir "$tmp/disk/a" >"$tmp/a.log" 2>&1 & pid=$!
for i in $(seq 100); do grep -q 'LOCKSTEP_FAULT fires' "$tmp/a.log" && break; sleep 0.05; done
fill
for i in $(seq 100); do grep -q 'not saved' "$tmp/a.log" && break; sleep 0.02; done
rm -f "$tmp/disk/filler"
wait $pid; code=$?
if [ $code -eq 0 ] && grep -q 'training goes on' "$tmp/a.log" && [ "$(saved a)" = step_00000060 ]; then ok "a save that failed is tried again"
else fail "a save that failed is tried again" "exit code $code, newest $(saved a): $(grep -a 'error\|warning' "$tmp/a.log" | tail -n 3 | tr '\n' '|')"; fi
rm -rf "$tmp/disk/a"
# Full for good: exit 74, and the last whole checkpoint is still there.
LOCKSTEP_FAULT="rank=0,step=30,at=bwd,do=sleep:2" $train $job --steps 400 --out-dir "$tmp/disk/b" >"$tmp/b.log" 2>&1 & pid=$!
for i in $(seq 100); do grep -q 'LOCKSTEP_FAULT fires' "$tmp/b.log" && break; sleep 0.05; done
fill
wait $pid; code=$?
rm -f "$tmp/disk/filler"
if [ $code -eq 74 ] && [ "$(saved b)" = step_00000020 ]; then ok "three failures in a row end the run with 74"
else fail "three failures in a row end the run with 74" "exit code $code, newest $(saved b): $(tail -n 2 "$tmp/b.log" | tr '\n' '|')"; fi
expect "goes on from the last whole checkpoint" 0 '^done ' $train --resume "$tmp/disk/b" --steps 40
summary
