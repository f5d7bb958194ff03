#!/bin/sh
# test_failures.sh -- memory that cannot be had and system calls that fail, one at a time, in a whole run with saves: a
# message and an exit code, never a crash; afterwards the run goes on from what it saved to the same weights.
# POINTS=N: at most N places per row (12); a number above the calls there are means every single one.
# ERRNOS="5 28 30 116 122": EIO, ENOSPC, EROFS, ESTALE and EDQUOT, once and for ever (5 and 28, 28). JOBS=N: runs at a
# time (1).
. tests/cases.sh
preloads failures
train=${TOOLS:-$PWD/build}/train_gpt_cpu_faults    # the CUDA runtime crashes before main where it gets no memory
points=${POINTS:-12} jobs=${JOBS:-1}
job="$tiny --seq-len 16 --total-batch-size 32 --steps 5 --save-every 2 $mute --threads 1 --save-patience 0"
preload() { LD_PRELOAD=$tmp/fail.so "$@"; }
FAIL_CALL=malloc FAIL_COUNT=$tmp/count preload $train $job --out-dir "$tmp/whole" >"$tmp/whole.log" 2>&1
[ -s "$tmp/count" ] && [ "$(cat "$tmp/count")" -gt 100 ] ||
    skip_all failures "this build cannot be preloaded: $(tail -n 1 "$tmp/whole.log")"
want=$(weights "$tmp/whole")

# fail_at CALL K ERRNO CODES JOB: one run with one failure, then, if it saved anything, its continuation. CODES: exit
# codes that are right.
fail_at() {
    out=$tmp/run$5 log=$tmp/log$5
    rm -rf "$out"
    FAIL_CALL=$1 FAIL_AT=$2 FAIL_ERRNO=$3 preload timeout 900 $train $job --out-dir "$out" >"$log" 2>&1
    code=$?
    case " $4 " in
    *" $code "*) ;;
    *) echo "errno $3: exit code $code, want one of $4: $(tail -n 2 "$log")"; return 1 ;;
    esac
    [ $code -eq 0 ] || [ "$(grep -c 'error: ' "$log")" -eq 1 ] ||
        { echo "code $code without a line that says why: $(tail -n 2 "$log")"; return 1; }
    ls "$out"/ckpt/step_* >/dev/null 2>&1 || return 0
    $train --resume "$out" >"$log" 2>&1 || { echo "afterwards: $(tail -n 2 "$log")"; return 1; }
    [ "$(weights "$out")" = "$want" ] || { echo "other weights afterwards"; return 1; }
}
# every CALLS N JOB CALL ERRNO CODES: a job's share of N calls: the first, the last and between them.
every() {
    i=$3
    while [ $i -lt "$2" ]; do
        k=$((1 + ($1 - 1) * i / ($2 > 1 ? $2 - 1 : 1)))
        why=$(fail_at "$4" $k $5 "$6" $3) || { echo "call $k of $1: $why"; return; }
        i=$((i + jobs))
    done
}
# row NAME CALL ERRNO CODES: at evenly spaced calls, or all.
row() {
    FAIL_CALL=$2 FAIL_COUNT=$tmp/count preload $train $job --out-dir "$tmp/count.run" --force >/dev/null 2>&1
    rm -rf "$tmp/count.run"
    calls=$(cat "$tmp/count") n=$points
    [ "$n" -le "$calls" ] || n=$calls
    for j in $(seq 0 $((jobs - 1))); do every $calls $n $j "$2" $3 "$4" & done >"$tmp/why" 2>&1
    wait
    if [ -s "$tmp/why" ]; then fail "$1" "$(tr '\n' '|' <"$tmp/why")"
    elif [ "$n" -gt 0 ]; then ok "$1: $n of $calls calls"; else fail "$1" "it was never called"; fi
}
row "an allocation fails" malloc 12 "0 1 74"
row "a mapping fails" mmap 12 "0 1 66 74"
row "write is interrupted" write 4 0
one="$job" job="${job%--threads 1*} --threads 3 ${job#*--threads 1}"
row "a thread cannot be had" pthread_create 11 "0 1"
expect "no thread can be had" 1 'error: no thread: .* allows no more' env FAIL_CALL=pthread_create FAIL_AT=1 \
    FAIL_EVER=1 FAIL_ERRNO=11 LD_PRELOAD="$tmp/fail.so" $train $job --out-dir "$tmp/threads"
job=$one                                   # the reduction's thread is the first one
expect "none for data and saves: the main one does it" 0 '^done' env OMP_NUM_THREADS=1 FAIL_CALL=pthread_create \
    FAIL_AT=2 FAIL_EVER=1 FAIL_ERRNO=11 LD_PRELOAD="$tmp/fail.so" $train $job --out-dir "$tmp/data"
check "to the same weights" test "$(weights "$tmp/data")" = "$want"
calls_of_a_save="open write fsync close rename mkdir unlink"
for e in ${ERRNOS:-5 28}; do for c in $calls_of_a_save; do row "$c fails, errno $e" $c $e "0 74"; done; done
export FAIL_EVER=1
for e in ${ERRNOS:-28}; do for c in $calls_of_a_save; do row "$c fails for ever, errno $e" $c $e "0 74"; done; done
unset FAIL_EVER
# A file system that cannot rename folders, or none that is not empty.
for e in 38 18 1 24; do
    expect "no folder can be renamed, errno $e" 74 "cannot save: $tmp/fixed/ckpt: .* cannot rename folders" \
        env FAIL_CALL=rename FAIL_PATH=/.tmp_step_ FAIL_AT=1 FAIL_EVER=1 FAIL_ERRNO=$e LD_PRELOAD="$tmp/fail.so" \
        $train $job --out-dir "$tmp/fixed"
    check "it leaves nothing" test ! -e "$tmp/fixed"
done
expect "a run that saves nothing does not mind" 0 '^done' env FAIL_CALL=rename FAIL_PATH=/.tmp_step_ FAIL_AT=1 \
    FAIL_EVER=1 FAIL_ERRNO=38 LD_PRELOAD="$tmp/fail.so" $train $(echo "$job" | sed 's/every 2/every 0/') \
    --out-dir "$tmp/unsaved"
# Memory ends while training goes on during a save (of step 300): the run must wait for it before it ends.
job="$(echo "$job" | sed 's/--steps 5 --save-every 2/--steps 600 --save-every 300/')"
during() {
    LOCKSTEP_FAULT=rank=0,step=300,at=ckpt_write,do=sleep:2 FAIL_CALL=malloc \
        preload $train $job --out-dir "$tmp/during" --force >"$tmp/during.log" 2>&1
}
FAIL_COUNT=$tmp/count during
FAIL_AT=$(($(cat "$tmp/count") * 3 / 5)) during
check "memory ends during a save" test "$? $(cat "$tmp/during/ckpt/latest")" = "1 step_00000300"
summary
