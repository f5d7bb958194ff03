#!/bin/sh
# test_faults.sh -- saves in the background, and a lost rank, an I/O error or a NaN at each of their points.
. tests/cases.sh
train=$faulty
shape="--layers 1 --heads 2 --channels 64 --seq-len 16 --batch-size 1 --total-batch-size 64 --lr 3e-3 --dropout 0.1"
job="$shape $on_lines --steps 15 --save-every 5 $mute --timeout 3 --threads 1"
run() {
    fault=$1 out="$tmp/$2"; shift 2
    LOCKSTEP_FAULT=$fault timeout 900 $train $job --max-restarts 0 --out-dir "$out" "$@" >"$out.log" 2>&1
}
newest() { cat "$tmp/$1/ckpt/latest"; }
equal() { same "$tmp/golden" "$tmp/$1" && [ "$(contents "$tmp/golden")" = "$(contents "$tmp/$1")" ]; }

check golden run "" golden --np 1
[ "$failed" -eq 0 ] || { cat "$tmp/golden.log"; give_up; }
for n in 2 4; do
    parts() { run "" "parts_$n" --np $n && equal "parts_$n"; }
    check "$n ranks write the same files as one" parts
done

# Training goes on while a save is written: steps are logged between the save's step and the line that says it is done.
background() {
    run "rank=0,step=5,at=ckpt_write,do=sleep:1" slow --np 2 --force && equal slow || return 1
    awk '/"event":"ckpt","step":5,/ { exit !(steps > 0) } /"event":"train","step":[5-9],/ { steps++ }' \
        "$tmp/slow/metrics.jsonl" || { echo "no step while step 5 was written"; return 1; }
    grep -q '"event":"ckpt","step":5,.*"stall_ms":.*"write_ms":' "$tmp/slow/metrics.jsonl"
}
check "training goes on while rank 0 writes" background

# A rank is lost at each point of the save of step 10: what is there is whole, and a resume with other ranks ends with
# the same bits.
killed() {          # POINT RANK DO NEWEST...: a checkpoint that may be the newest afterwards
    point=$1 rank=$2 do=$3 into=$1_$2_$3; shift 3
    run "rank=$rank,step=10,at=$point,do=$do" "$into" --np 2; code=$?
    [ $code -eq 69 ] || { echo "exit code $code, want 69"; tail -n 3 "$tmp/$into.log"; return 1; }
    case " $* " in *" $(newest "$into") "*) ;; *) echo "the newest is $(newest "$into"), want $*"; return 1 ;; esac
    $train --np 4 --resume "$tmp/$into" && equal "$into" || return 1
    [ -z "$(ls -A "$tmp/$into/ckpt" | grep '^\.tmp')" ] || { echo "left: $(ls -A "$tmp/$into/ckpt")"; return 1; }
}
for point in ckpt_copy ckpt_write ckpt_done ckpt_placed; do
    check "killed at $point" killed $point 0 kill step_00000005
done
check "killed at ckpt_latest" killed ckpt_latest 0 kill step_00000010
check "stopped at ckpt_write" killed ckpt_write 0 stop step_00000005
# Rank 1 is lost while rank 0 saves: the save is completed.
completed() {
    run "rank=0,step=10,at=ckpt_write,do=sleep:1;rank=1,step=10,at=bwd,do=kill" completed --np 2; code=$?
    [ $code -eq 69 ] && [ "$(newest completed)" = step_00000010 ] ||
        { echo "exit code $code, newest $(newest completed)"; return 1; }
}
check "a save under way outlives another rank" completed

# An I/O error in the large files or in the commit: training goes on, the save is tried again.
eio() {
    run "$fault,step=10,do=eio" eio --np 2 --force || return 1
    grep -q 'not saved: .*Input/output error' "$tmp/eio.log" && equal eio
}
late="rank=0,step=10,at=ckpt_write,do=sleep:1;rank=0,at=ckpt_write"      # noticed where the next save is due
for fault in rank=0,at=ckpt_write rank=0,at=ckpt_done rank=0,at=ckpt_placed rank=0,at=ckpt_latest "$late"; do
    check "I/O error: $fault" eio
done
last_fails() { run rank=0,step=15,at=ckpt_write,do=eio last --np 2 --save-patience 0; [ $? -eq 74 ]; }
check "the last save fails: 74" last_fails

# Numbers that are not finite: all ranks skip the step, whichever has them; five in a row end the run; none is saved.
skipped() {
    run "rank=$(($1 - 1)),step=7,at=bwd,do=nan" "skip_$1" --np $1 || return 1
    grep -q 'step 7 skipped' "$tmp/skip_$1.log" && same "$tmp/skip_1" "$tmp/skip_$1"
}
for n in 1 2 4; do check "a NaN in a gradient is skipped, $n ranks" skipped $n; done
again() {
    run "rank=3,step=7,at=bwd,do=nan;rank=0,step=11,at=fwd,do=sleep:1;rank=3,step=12,at=bwd,do=kill" "skip_again" --np 4
    $train --np 4 --resume "$tmp/skip_again" >/dev/null 2>&1 && same "$tmp/skip_4" "$tmp/skip_again"
}
check "the same bits when interrupted behind it" again
five() {
    run "$(for s in 8 9 10 11 12; do printf 'rank=1,step=%d,at=bwd,do=nan;' $s; done)" five --np 2; code=$?
    [ $code -eq 1 ] && grep -q '5 steps in a row without a finite gradient' "$tmp/five.log" &&
        [ "$(newest five)" = step_00000005 ] || { echo "exit code $code, newest $(newest five)"; return 1; }
}
check "five in a row stop the run" five

# An evaluation is held in its first batch, until the save of its step is done; then the run gets signals.
plain=$job
job="$shape $on_lines --steps 15 --eval-every 5 --sample-every 0 --timeout 60 --threads 1"
run "" scored --save-every 5 --np 1
held() {            # STEP CODE SIGNALS SAVE_EVERY [OPTION...]
    due=$(printf step_%08d $1) last=$(($1 - 1)) code=$2 signals=$3 every=$4 o=$tmp/held; shift 4
    rm -rf "$o"
    hold "$o.log" "rank=0,step=$last,at=eval" $train $job --save-every $every --out-dir "$o" "$@" || return 1
    [ $every != 5 ] || await grep -q $due "$o/ckpt/latest" || return 1
    for s in $signals; do
        kill -$s $pid
        [ $s = KILL ] || await grep -q saving "$log" || return 1
        [ "$signals" = $s ] || sleep 1.2
    done
    release $code && [ "$(newest held)" = $due ] && [ -e "$o/ckpt/$due/DONE" ] || { newest held; return 1; }
    lacks "$o/metrics.jsonl" "\"val\",\"step\":$((last + 1))," || return 1
    $train --resume "$o" && same "$tmp/scored" "$o" || return 1
    [ $every = 0 ] || [ "$(newest scored)" = "$(cat "$o/ckpt/best")" ] || return 1
    $train --resume "$o" | grep finished
}
for step in 10 15; do
    check "killed in an evaluation at step $step: saved" held $step 137 KILL 5
    check "asked to stop there: saved, 75" held $step 75 TERM 5
done
check "asked twice: ended at once, saved" held 15 1 "TERM TERM" 5
check "two ranks asked to stop where no save was due" held 10 75 INT 7 --np 2
check "and with --save-every 0" held 15 75 USR1 0
each() {            # a rank is lost in each evaluation
    fault="rank=1,step=4,at=eval,do=kill,try=0;rank=1,step=9,at=eval,do=kill,try=1"
    LOCKSTEP_FAULT="$fault;rank=1,step=14,at=eval,do=kill,try=2" timeout 900 $train $job --save-every 5 --np 2 \
        --out-dir "$tmp/each" >"$tmp/each.log" 2>&1 && same "$tmp/scored" "$tmp/each" && ! grep giving "$tmp/each.log"
}
check "each attempt loses a rank in an evaluation, and has saved" each
# What lasts longer than 10 s says how far it is: here the evaluation of --init, before the first step.
slow() {
    LOCKSTEP_FAULT="rank=0,step=-1,at=eval,do=sleep:6" $train $job --save-every 0 --init "$tmp/scored" --eval-steps 3 \
        --out-dir "$tmp/counted" >"$tmp/counted.log" 2>&1
    grep '^val [12] of 3 batches, [0-9:]* left$' "$tmp/counted.log" &&
        grep '^val  *first 3 of 37 batches' "$tmp/counted.log"
}
check "a slow evaluation says how far it is" slow
short() {           # validation tokens are cut short while the run trains
    mkdir "$tmp/short" && head -c 20000 /dev/zero | tee "$tmp/short/train.bin" >"$tmp/short/val.bin"
    of_tokens=$(echo "$job" | sed "s|--data [^ ]*|--data $tmp/short --vocab-size 8|")
    hold "$tmp/cut.log" rank=0,step=9,at=fwd $train $of_tokens --save-every 5 --out-dir "$tmp/cut" || return 1
    truncate -s 1000 "$tmp/short/val.bin"
    release 65 && [ "$(newest cut)" = step_00000010 ] || { newest cut; return 1; }
}
check "validation data cut short: the step is saved" short
job=$plain

# A disk that never answers: the writer hangs, and all others wait for it in their saves.
hung() {
    (job=${job%--timeout*}; run "rank=0,step=15,at=ckpt_write,do=sleep:60" hung --np 2 --threads 1 --timeout 1); code=$?
    [ $code -eq 69 ] && grep -q 'peer stuck: rank 0 .*phase checkpoint' "$tmp/hung.log" && return
    echo "exit code $code"; tail -n 2 "$tmp/hung.log"; return 1
}
check "a writer that hangs is named" hung
sed -i 's/"seed": [0-9]*/"seed": 7/' "$tmp/golden/config.json"
expect "config.json of another run" 65 'state.json: --seed: got .*, want 7 as in the run.s config.json' \
    $train --resume "$tmp/golden" --steps 50
summary
