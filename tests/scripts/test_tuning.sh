#!/bin/sh
# test_tuning.sh -- fine-tuning: the rate and first score that --init brings, and a run's best checkpoint.
. tests/cases.sh
train=$faulty
shape="--layers 1 --heads 2 --channels 64 --seq-len 16"
data="--dtype fp32 --batch-size 2 --total-batch-size 128 $on_lines --sample-every 0 --threads 1"
data="$data --timeout 3"
job="$shape $data --lr 3e-2 --schedule constant --steps 60"
usual="--eval-every 5 --save-every 20 --keep 1"

named() { cat "$tmp/$1/ckpt/${2:-best}"; }              # OUT [best|latest]
scores() { sed -n 's/^{"event":"val","step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$tmp/$1/metrics.jsonl"; }
score() { scores "$1" | awk -v s="$2" '$1 == s { print $2; exit }'; }       # OUT STEP
lowest() { scores "$1" | sort -s -g -k 2 | awk 'NR == 1 { printf "step_%08d\n", $1 }'; }
option() { sed -n 's/^  "'"$2"'": \(.*\),$/\1/p' "$tmp/$1/config.json"; }   # OUT NAME

# ---- the best checkpoint
# Its step is neither the last nor one of --save-every, and --keep 1 keeps it beside the newest.
check "a run that gets worse at its end" run golden $train $usual
kept() {
    echo "best $(named golden), lowest $(lowest golden): $(ls "$tmp/golden/ckpt" | tr '\n' ' ')"
    case $(named golden) in *[24680]0|'') return 1 ;; esac
    [ "$(named golden)" = "$(lowest golden)" ] && [ "$(named golden latest)" = step_00000060 ] &&
        [ "$(ls "$tmp/golden/ckpt" | tr '\n' ' ')" = "best latest $(named golden) step_00000060 " ]
}
check "keeps its best checkpoint and its newest" kept
[ "$failed" -eq 0 ] || give_up
best=$(named golden) step=$((1$(named golden | sed 's/step_//') - 100000000))
check "and says where it is" grep -q '^best    .*/golden/ckpt/best$' "$tmp/golden.log"
equal() { same "$tmp/golden" "$tmp/$1" && [ "$(contents "$tmp/golden" best)" = "$(contents "$tmp/$1" best)" ]; }
ranks() { run "ranks_$1" $train $usual --np "$1" && equal "ranks_$1"; }
for n in 2 4; do check "$n ranks keep the same one" ranks $n; done
evaluated() {
    want=$(printf 'val loss %.6f' "$(score golden $step)")
    $train eval "$tmp/golden/ckpt/best" | grep "^$want " || { $train eval "$tmp/golden/ckpt/best"; echo "want $want"
        return 1; }
    ! $train eval "$tmp/golden" | grep "^$want "
}
check "eval OUT/ckpt/best scores it, eval OUT the newest" evaluated
expect "sample OUT/ckpt/best" 0 . $train sample "$tmp/golden/ckpt/best" --max-tokens 5
never() { run never $train --eval-every 5 --save-every 0 && [ ! -e "$tmp/never/ckpt" ]; }
check "--save-every 0 saves no best one either" never

# Rank 0 is lost, or a write fails, at each point of the best one's save.
killed() {          # POINT BEST LATEST
    LOCKSTEP_FAULT="rank=0,step=$step,at=$1,do=kill" run "$1" $train $usual --np 2 --max-restarts 0
    [ "$(named "$1") $(named "$1" latest)" = "$2 $3" ] && [ -e "$tmp/$1/ckpt/$2/DONE" ] ||
        { echo "best $(named "$1"), latest $(named "$1" latest)"; return 1; }
    $train --np 4 --resume "$tmp/$1" && equal "$1" && [ "$(ls "$tmp/$1/ckpt")" = "$(ls "$tmp/golden/ckpt")" ]
}
before=$(scores golden | awk -v s=$step '$1 < s && (!n++ || $2 < low) { low = $2; at = $1 }
    END { printf "step_%08d\n", at }')
for point in ckpt_copy ckpt_write ckpt_done ckpt_placed; do
    check "killed at $point" killed $point "$before" "$before"
done
check "killed at ckpt_latest" killed ckpt_latest "$before" "$best"
check "killed at ckpt_best" killed ckpt_best "$best" "$best"
last() {
    LOCKSTEP_FAULT="rank=0,step=$step,at=ckpt_latest,do=kill" run last $train $usual --np 2 --max-restarts 0
    [ "$(named last)" = "$before" ] && $train --resume "$tmp/last" --steps $step | grep finished &&
        [ "$(named last)" = "$best" ]
}
check "where nothing is left to train it is named" last
eio() { LOCKSTEP_FAULT="rank=0,step=$step,at=ckpt_latest,do=eio" run eio $train $usual && equal eio; }
check "an I/O error before it is named" eio

# ---- resume
older() {
    run older $train --eval-every 5 --save-every 20 --keep 0 &&
        $train --resume "$tmp/older/ckpt/step_00000020" --steps 21 --eval-every 0 &&
        [ "$(named older)" = step_00000005 ] || { named older; return 1; }
}
check "a resume from an older checkpoint goes back to the best before it" older
late() {
    run late $train --eval-every 0 --save-every 20 && [ ! -e "$tmp/late/ckpt/best" ] &&
        $train --resume "$tmp/late" --eval-every 5 --lr 1 --steps 65 && [ "$(named late)" = step_00000060 ] &&
        scores late
}
check "a score that comes after the save names its checkpoint" late
from_best() {
    $train --resume "$tmp/older/ckpt/best" --steps 6 --eval-every 0 &&
        [ "$(named older latest)" = step_00000006 ] && [ "$(named older)" = step_00000005 ]
}
check "--resume OUT/ckpt/best" from_best

# ---- --init
job="$data --init $tmp/golden/ckpt/best --steps 10 --save-every 5"
tune() { into=$1; shift; run "$into" $train --eval-every 5 "$@"; }          # OUT OPTIONS...
note='^lr +%s, for fine-tuning, because of --init; --lr sets another$'
rate() {            # WANT OUT OPTIONS...
    want=$1 into=$2; shift 2
    tune "$into" "$@" && [ "$(printf %g "$(option "$into" lr)")" = "$want" ] &&
        grep -Eq "$(printf "$note" "$want")" "$tmp/$into.log" ||
        { echo "lr $(option "$into" lr)"; head -n 8 "$tmp/$into.log"; return 1; }
}
check "--init brings a rate for fine-tuning" rate 0.00036 tuned
check "that of sgd" rate 0.036 sgd --optimizer sgd
check "and those of muon" rate 0.00036 muon --optimizer muon
check "its matrices'" test "$(option muon muon_lr)" = 0.001
expect "--dry-run says so" 0 "$(printf "$note" 0.00036)" $train $data --init "$tmp/golden" --dry-run
tune given --lr 3e-4
check "a given rate is taken" test "$(option given lr)" = 3e-04
check "without a word" lacks "$tmp/given.log" '^lr '
check "without --init there is none" lacks "$tmp/golden.log" '^lr '
check "the weights are scored before the first step" test "$(score tuned 0)" = "$(score golden $step)"
by_four() { tune tuned_4 --np 4 && same "$tmp/tuned" "$tmp/tuned_4"; }
check "as all ranks score them" by_four
check "and better ones are the best" test "$(named tuned)" = "$(lowest tuned)"
unscored() { run unscored $train --eval-every 0 && [ -z "$(scores unscored)" ] && [ ! -e "$tmp/unscored/ckpt/best" ]; }
check "--eval-every 0 scores nothing" unscored
tied() { tune tied --lr 1e-30 && [ "$(score tied 10)" = "$(score tied 0)" ] && [ ! -e "$tmp/tied/ckpt/best" ]; }
check "what is as good as the weights of --init is not called best" tied
# A rate that wrecks the weights: no later score is the best one, in no start of the run.
wrecked() {
    tune wrecked --lr 1 && $train --resume "$tmp/wrecked" --steps 20 --lr 1 >>"$tmp/wrecked.log" 2>&1
    grep 'best' "$tmp/wrecked.log"
    [ "$(scores wrecked | wc -l)" -ge 5 ] && [ "$(grep -c '| best$' "$tmp/wrecked.log")" = 1 ] &&
        grep -q '^val  step 0 .*| best$' "$tmp/wrecked.log" && [ ! -e "$tmp/wrecked/ckpt/best" ]
}
check "what is worse than the weights of --init is not called best" wrecked
# A stop in the midst of that evaluation is kept like any other.
stopped() {
    hold "$tmp/stopped.log" rank=0,step=-1,at=eval $train $data --init "$tmp/golden" --steps 4 --eval-every 2 \
        --out-dir "$tmp/stopped"
    kill -TERM $pid; await grep -q saving "$log"
    release 75 && [ "$(named stopped latest)" = step_00000000 ] && [ -z "$(scores stopped)" ] &&
        $train --resume "$tmp/stopped" && [ "$(scores stopped | awk '{ printf "%d ", $1 }')" = '0 2 4 ' ]
}
check "a stop before the first step" stopped
summary
