#!/bin/sh
# test_faults.sh -- checkpoints in the background, and what must not get into one: a rank that dies at each point of a save, an I/O error there,
# a flipped bit in a weight or a moment, numbers that are not finite.
. tests/lib.sh
job="--layers 1 --heads 2 --channels 64 --seq-len 16 --batch-size 1 --total-batch-size 64 --lr 3e-3 --dropout 0.1 --data tests/golden/lines.txt
     --steps 15 --save-every 5 --eval-every 0 --sample-every 0 --timeout 3 --threads 1"
run() { fault=$1 out="$tmp/$2"; shift 2; LOCKSTEP_FAULT=$fault timeout 60 $train $job --max-restarts 0 --out-dir "$out" "$@" >"$out.log" 2>&1; }
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
    run "rank=$2,step=5,at=ckpt_write,do=sleep:1" slow --np 2 --force && equal slow || return 1
    awk '/"event":"ckpt","step":5,/ { exit !(steps > 0) } /"event":"train","step":[5-9],/ { steps++ }' "$tmp/slow/metrics.jsonl" || { echo "no step while step 5 was written"; return 1; }
    grep -q '"event":"ckpt","step":5,.*"stall_ms":.*"write_ms":' "$tmp/slow/metrics.jsonl"
}
check "training goes on while rank 0 writes" background slow 0
check "training goes on while rank 1 writes" background slow 1

# A rank is lost at each point of the save of step 10: what is there is whole, and a resume with other ranks ends with the same bits.
killed() {          # POINT RANK DO NEWEST...: a checkpoint that may be the newest afterwards
    point=$1 rank=$2 do=$3 into=$1_$2_$3; shift 3
    run "rank=$rank,step=10,at=$point,do=$do" "$into" --np 2; code=$?
    [ $code -eq 69 ] || { echo "exit code $code, want 69"; tail -n 3 "$tmp/$into.log"; return 1; }
    case " $* " in *" $(newest "$into") "*) ;; *) echo "the newest is $(newest "$into"), want $*"; return 1 ;; esac
    $train --np 4 --resume "$tmp/$into" >"$tmp/$into.log2" 2>&1 || { tail -n 3 "$tmp/$into.log2"; return 1; }
    equal "$into" || return 1
    [ -z "$(ls -A "$tmp/$into/ckpt" | grep '^\.tmp')" ] || { echo "left: $(ls -A "$tmp/$into/ckpt")"; return 1; }
}
for point in ckpt_copy ckpt_write ckpt_done ckpt_placed; do check "killed at $point" killed $point 0 kill step_00000005; done
check "killed at ckpt_latest" killed ckpt_latest 0 kill step_00000010
check "rank 1 killed at ckpt_copy" killed ckpt_copy 1 kill step_00000005
check "rank 1 killed at ckpt_write" killed ckpt_write 1 kill step_00000005
check "rank 1 stopped at ckpt_write" killed ckpt_write 1 stop step_00000005

# An I/O error in any rank's part or in the commit: training goes on, the save is tried again.
for fault in rank=0,at=ckpt_write rank=1,at=ckpt_write rank=0,at=ckpt_done rank=0,at=ckpt_placed rank=0,at=ckpt_latest; do
    eio() { run "$fault,step=10,do=eio" eio --np 2 --force && grep -q 'not saved: .*Input/output error' "$tmp/eio.log" && equal eio; }
    check "I/O error: $fault" eio
done
check "the last save fails: 74" sh -c "LOCKSTEP_FAULT=rank=1,step=15,at=ckpt_write,do=eio timeout 60 $train $(echo $job) --max-restarts 0 --np 2 --out-dir '$tmp/last' >'$tmp/last.log' 2>&1; [ \$? -eq 74 ]"

# A flipped bit in a weight or a moment, after an update: found by the next one, or by the save between the two; nothing of it is saved.
flipped() {         # RANKS POINT STEP NEWEST ELEMENT MESSAGE
    run "rank=1,step=$3,at=$2,do=flip:$5" flip --np $1 --force; code=$?
    [ $code -eq 80 ] && grep -q "$6" "$tmp/flip.log" && [ "$(newest flip)" = "$4" ] || { echo "exit code $code, newest $(newest flip)"; tail -n 2 "$tmp/flip.log"; return 1; }
}
for n in 2 4; do for point in opt opt_m opt_v; do
    check "a flipped bit, $point, $n ranks" flipped $n $point 7 step_00000005 40000 'rank [0-9] (host .*: transformer.* between two updates its weights or moments changed'
    check "a flipped bit before the last save, $point, $n ranks" flipped $n $point 14 step_00000010 40000 'the state of step 15 is damaged: transformer'
done; done

# Numbers that are not finite: all ranks skip the step, whoever has them; five in a row end the run, and none of them is saved.
skipped() { run "rank=$(($1 - 1)),step=7,at=bwd,do=nan" "skip_$1" --np $1 && grep -q 'step 7 skipped' "$tmp/skip_$1.log" && same "$tmp/skip_1" "$tmp/skip_$1"; }
for n in 1 2 4; do check "a NaN in a gradient is skipped, $n ranks" skipped $n; done
again() { run "rank=3,step=7,at=bwd,do=nan;rank=0,step=11,at=fwd,do=sleep:1;rank=3,step=12,at=bwd,do=kill" "skip_again" --np 4; $train --np 4 --resume "$tmp/skip_again" >/dev/null 2>&1 && same "$tmp/skip_4" "$tmp/skip_again"; }
check "the same bits when interrupted behind it" again
five() {
    run "$(for s in 8 9 10 11 12; do printf 'rank=1,step=%d,at=bwd,do=nan;' $s; done)" five --np 2; code=$?
    [ $code -eq 1 ] && grep -q '5 steps in a row without a finite gradient' "$tmp/five.log" && [ "$(newest five)" = step_00000005 ] || { echo "exit code $code, newest $(newest five)"; return 1; }
}
check "five in a row stop the run" five

# Spikes of the norm (step 70) and of the loss (90, 130) are skipped, no other step, by all ranks alike; what came before is remembered over
# a resume. The one of step 20 comes before there is anything to compare it with.
spikes=$(echo "$job" | sed 's/--steps [0-9]*/--steps 140/; s/--save-every [0-9]*/--save-every 120/; s/--lr [^ ]*/--lr 1e-5 --schedule constant --skip-spikes 6/')
thrice="rank=0,step=20,at=loss,do=big;rank=0,step=70,at=bwd,do=big;rank=0,step=90,at=loss,do=big;rank=0,step=130,at=loss,do=big"
skips() { [ "$(sed -n 's/^.*step \([0-9]* skipped: its [a-z ]*\) of .*/\1/p' "$1" | tr '\n' ';')" = "$2" ] || { grep skipped "$1"; return 1; }; }
spike() { (job=$spikes; run "$thrice" "spike_$1" --np $1) && skips "$tmp/spike_$1.log" "70 skipped: its gradient norm;90 skipped: its loss;130 skipped: its loss;" && same "$tmp/spike_1" "$tmp/spike_$1"; }
for n in 1 4; do check "spikes are skipped, $n ranks" spike $n; done
spike_again() {
    (job=$spikes; run "$thrice;rank=0,step=125,at=fwd,do=sleep:1;rank=0,step=125,at=bwd,do=kill" spike_again --np 2)
    [ "$(newest spike_again)" = step_00000120 ] && LOCKSTEP_FAULT=$thrice $train --np 4 --resume "$tmp/spike_again" >"$tmp/spike_again.log2" 2>&1 &&
        skips "$tmp/spike_again.log2" "130 skipped: its loss;" && same "$tmp/spike_1" "$tmp/spike_again"
}
check "and after a resume" spike_again

# Where the time went, over the attempts of a supervisor: the two must agree on the whole.
goodput() {
    LOCKSTEP_FAULT="rank=0,step=7,at=fwd,do=sleep:1,try=0;rank=1,step=8,at=bwd,do=kill,try=0" timeout 60 $train $job --max-restarts 2 --np 2 --out-dir "$tmp/time" >"$tmp/time.log" 2>&1 || { tail -n 3 "$tmp/time.log"; return 1; }
    grep -q '^time .* % of .* s trained; .*and 1 restarts' "$tmp/time.log" || { grep '^time' "$tmp/time.log"; return 1; }
    sed -n 's/.*"event":"done".*"goodput":\([^,]*\),"wall_s":\([^,]*\),"train_s":\([^,]*\),"stall_s":\([^,]*\),"eval_s":\([^,]*\),"save_s":\([^,]*\),"again_s":\([^,]*\),"other_s":\([^,]*\),"restarts":1.*/\1 \2 \3 \4 \5 \6 \7 \8/p' "$tmp/time/metrics.jsonl" |
        awk '{ n++; d = $2 - $3 - $4 - $5 - $6 - $7 - $8; bad = d > 0.01 || d < -0.01 || $1 <= 0 || $1 >= 1 || $7 <= 0; print } END { exit !(n == 1 && !bad) }'
}
check "goodput over a restart" goodput
# A disk that never answers: the writer hangs, and all others wait for it in their saves.
hung() { job_all=$job job=${job%--timeout*} && run "rank=1,step=15,at=ckpt_write,do=sleep:60" hung --np 2 --threads 1 --timeout 1; code=$?
    job=$job_all
    [ $code -eq 69 ] && grep -q 'peer stuck: rank 1 .*phase checkpoint' "$tmp/hung.log" || { echo "exit code $code"; tail -n 2 "$tmp/hung.log"; return 1; }; }
check "a writer that hangs is named" hung
stalled() { (job=$(echo "$job" | sed 's/--steps 15/--steps 40/'); run "rank=0,step=36,at=fwd,do=sleep:2" stalled --np 1) && grep -q '^time .*stalls [12]\.[0-9] s' "$tmp/stalled.log" || { grep '^time' "$tmp/stalled.log"; return 1; }; }
check "a stall is no time that trained" stalled
expect "config.json of another run" 65 'state.json: --seed: got .*, want 7 as in the run.s config.json' sh -c "sed -i 's/\"seed\": [0-9]*/\"seed\": 7/' '$tmp/stalled/config.json' && $train --resume '$tmp/stalled' --steps 50"
summary
