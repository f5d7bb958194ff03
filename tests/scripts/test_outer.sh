#!/bin/sh
# test_outer.sh -- --reduce outer (DiLoCo): replicas take steps of their own and meet now and then. The same bytes with
# any number of ranks, after any interruption, inside a round too; what it computes is held to the ordinary step where
# theory says they are equal.
. tests/lib.sh
train=$faulty
base="--dtype fp32 --layers 2 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 512 --lr 3e-3
    --data tests/golden/lines.txt --sample-every 0 --eval-steps 2 --timeout 30"
outer="$base --reduce outer --local-steps 4"
# Three rounds; the fifth step is inside one.
job="$outer --warmup-steps 2 --dropout 0.1 --steps 12 --eval-every 6 --save-every 5 --keep 0 --audit-every 4"
alike() { [ -e "$tmp/one/ckpt/latest" ] && [ "$(contents "$tmp/one")" = "$(contents "$tmp/$1")" ]; }
check "one rank" run one $train
check "the loss falls" falls "$tmp/one"
for np in 2 4 8; do
    like_one np_$np $train --np $np
    check "np_$np: the same checkpoint, byte for byte" alike np_$np
done
like_one threads $train --threads 2
like_one small_buckets env LOCKSTEP_BUCKET_UNITS=3 $train --np 4
like_one hosts on_hosts 4 2 $train
check "hosts: the same checkpoint, byte for byte" alike hosts
# Negative controls: other rounds, other replicas and other meetings are other bits.
differs() {
    rm -rf "$tmp/other"
    run other $train "$@" && losses "$tmp/one" | grep -q . && ! same "$tmp/one" "$tmp/other" >"$tmp/differs"
}
keep=$job
job=$(echo "$keep" | sed 's/local-steps 4/local-steps 3/'); check "other rounds are noticed" differs
job=$keep
check "other replicas are noticed" differs --replicas 4
check "another rate of meetings is noticed" differs --meeting-lr 0.6
check "no momentum of meetings is noticed" differs --meeting-momentum 0
for optimizer in sgd muon; do
    job="$keep --optimizer $optimizer"
    check "$optimizer" run $optimizer $train
    check "$optimizer: --np 4" run ${optimizer}_4 $train --np 4
    check "$optimizer: to the same bytes" same "$tmp/$optimizer" "$tmp/${optimizer}_4"
done
job="$outer --steps 8 --init $tmp/one --lora 8 --save-every 8"
check "adapters beside frozen weights" run lora $train
check "adapters: --np 4" run lora_4 $train --np 4
check "adapters: to the same bytes" same "$tmp/lora" "$tmp/lora_4"
job=$keep

# Moments and weights of each replica are saved, and go on inside a round.
names() { head -c 100000 "$tmp/one/ckpt/step_00000005/optim.safetensors" | tr '"' '\n' | grep "^transformer.wte.*$1$"; }
for array in weights.replica7 exp_avg.replica0 exp_avg_sq.replica7 meeting_momentum; do
    check "saved: $array" names $array
done
inside() {          # NAME COMMAND...: from step 5, in the second round
    of=$1; shift
    cp -r "$tmp/np_2" "$tmp/$of" && rm -rf "$tmp/$of"/ckpt/step_0000001* "$tmp/$of"/ckpt/step_0000000[6-9] &&
        "$@" --resume "$tmp/$of" >"$tmp/$of.log" 2>&1 && grep -q 'resumed.*at step 5' "$tmp/$of.log" ||
        { tail -n 3 "$tmp/$of.log"; return 1; }
}
for ranks in 1 4 8; do
    check "a round begun by 2 ranks goes on with $ranks" inside resumed_$ranks $train --np $ranks
    check "to the same checkpoint, byte for byte" alike resumed_$ranks
done
check "and with 4 on two hosts" inside resumed_hosts on_hosts 4 2 $train
check "to the same checkpoint, byte for byte" alike resumed_hosts
inside_of_hosts() {
    rm -rf "$tmp"/hosts/ckpt/step_0000001* "$tmp"/hosts/ckpt/step_0000000[6-9] &&
        $train --resume "$tmp/hosts" >"$tmp/hosts.log" 2>&1 && grep -q 'resumed.*at step 5' "$tmp/hosts.log"
}
check "a round begun on two hosts goes on with one rank" inside_of_hosts
check "to the same checkpoint, byte for byte" alike hosts
# Negative control: the replicas' own weights and moments decide what comes next.
shorter() { inside shorter $train --local-steps 5 && ! alike shorter; }
check "a round that ends elsewhere is noticed" shorter
killed() {
    LOCKSTEP_FAULT="rank=1,step=6,at=fwd,do=sleep:1;rank=1,step=6,at=bwd,do=kill,try=0" \
        run killed $train --np 2 --max-restarts 1 || return 1
    grep -q 'rank 1 .*killed by signal 9' "$tmp/killed.log" && alike killed
}
check "killed by -9 inside a round, it goes on to the same checkpoint" killed
stopped() {
    LOCKSTEP_FAULT="rank=0,step=5,at=bwd,do=sleep:1" $train --np 4 $job --out-dir "$tmp/stopped" \
        >"$tmp/stopped.log" 2>&1 &
    await grep -q 'FAULT fires' "$tmp/stopped.log" && kill -USR1 $! && wait $!
    [ $? -eq 75 ] && $train --np 2 --resume "$tmp/stopped" >"$tmp/stopped.log2" 2>&1 && alike stopped ||
        { tail -n 3 "$tmp/stopped.log" "$tmp/stopped.log2"; return 1; }
}
check "stopped by a signal inside a round, it goes on to the same checkpoint" stopped

# The audit that is due at step 4 looks at the next meeting, of step 7.
expect "what is changed where ranks meet is found at the next meeting" 80 'step 7: rank [0-9]*: the sum of the rep' \
    env LOCKSTEP_FAULT=rank=1,step=7,at=meet,do=flip:99 $train --np 2 $job --out-dir "$tmp/meet"
quiet() {
    LOCKSTEP_FAULT=rank=1,step=6,at=meet,do=flip:99 run quiet $train --np 2 && ! grep 'FAULT fires' "$tmp/quiet.log"
}
check "between meetings nothing meets" quiet

# Theory. Replicas begin a round with the same weights, and sgd is linear in the gradient: the mean of their steps is
# the step by the mean gradient. With one replica there is nothing to average, for any optimizer and any round.
linear="$(echo "$base" | sed 's/--lr 3e-3/--lr 0.3/') --optimizer sgd --warmup-steps 0 --grad-clip 0 --steps 12
    --eval-every 0 --save-every 0"
plain="--reduce outer --meeting-lr 1 --meeting-momentum 0"
losses_near() { # TOLERANCE: of the losses alone; the norms are another thing
    losses "$tmp/a" >"$tmp/a.losses"; losses "$tmp/b" >"$tmp/b.losses"
    paste "$tmp/a.losses" "$tmp/b.losses" | awk -v tol="$1" '
        { d = ($2 - $5) / $2; if (d < 0) d = -d; if (d > worst) worst = d }
        END { printf "largest relative difference %.2g of %d\n", worst, NR; exit !(worst <= tol && NR == 12) }'
}
two_runs() { rm -rf "$tmp/a" "$tmp/b"; (job=$1; run a $train) && (job=$2; run b $train); }
equal() { two_runs "$1" "$2" && losses_near 1e-5; }
apart() { two_runs "$1" "$2" && ! losses_near 1e-4; }
check "sgd, a meeting after each step: the ordinary steps" equal "$linear" "$linear $plain --local-steps 1"
check "not with a meeting after 6" apart "$linear" "$linear $plain --local-steps 6"
adam="$base --warmup-steps 0 --steps 12 --eval-every 0 --save-every 0"
check "one replica, adamw: the ordinary steps" equal "$adam --replicas 1" "$adam --replicas 1 $plain --local-steps 5"
check "not with two" apart "$adam --replicas 2" "$adam --replicas 2 $plain --local-steps 5"

# Refused.
expect "a GPU" 2 'reduce outer: needs CPUs' $train --reduce outer --dry-run --for h100
expect "bf16 is not chosen where it is fast" 0 'in 8 replicas' $train --reduce outer --dry-run
expect "bf16" 2 'reduce outer: got --dtype bf16, want fp32' $train --reduce outer --dtype bf16 --dry-run
expect "--help has its defaults" 0 'local-steps X .*default 500' $train --reduce outer --help
expect "no steps" 2 'local-steps: got 0' $train --reduce outer --local-steps 0
expect "half a step" 2 'local-steps: got 2.5, want a whole' $train $base --reduce outer --local-steps 2.5 --steps 2 \
    --out-dir "$tmp/half"
expect "a momentum of 1" 2 'meeting-momentum' $train --reduce outer --meeting-momentum 1
expect "its options without it" 2 'local-steps: is no option of.*reduce ordered' $train --local-steps 4 --dry-run
expect "its checkpoint for another reduction" 65 'reduce the run began with' $train --resume "$tmp/one" --steps 14 \
    --reduce ordered
# The dry run counts what each replica has: weights and two moments of 8 replicas and the meeting's momentum, 25 arrays,
# where an ordinary run has 2.
optimizer_of() { $train $base --dry-run "$@" | sed -n 's/.*, optimizer \([0-9.]*\),.*/\1/p'; }
memory() {
    ordinary=$(optimizer_of) own=$(optimizer_of --reduce outer)
    echo "$ordinary $own"
    awk -v a="$ordinary" -v b="$own" 'BEGIN { r = b / a; exit !(r > 12 && r < 13) }'
}
check "the dry run counts the replicas' arrays" memory

# Bytes between two hosts, each with a rank: on the wire of a network of its own, both ways.
wire="--dtype fp32 --layers 2 --heads 2 --channels 128 --seq-len 32 --batch-size 2 --total-batch-size 512 --lr
    3e-3 --warmup-steps 0 --data tests/golden/lines.txt --sample-every 0 --eval-every 0 --save-every 0
    --audit-every 0"
counted() {         # OPTION...
    unshare -rn sh -c '. tests/lib.sh; rm -rf "$tmp"; tmp=$1; trap - EXIT; shift
        ip link set lo up && on_hosts 2 2 "$@" >"$tmp/sent.log" 2>&1 &&
            sed -n "s/^ *lo: *\([0-9]*\) .*/\1/p" /proc/net/dev' sh "$tmp" $train $wire "$@" \
        --force --out-dir "$tmp/sent" 2>"$tmp/unshare.log"
}
sent() {            # OPTION...: by 16 steps, without the start
    of_16=$(counted --steps 16 "$@") of_32=$(counted --steps 32 "$@")
    echo $((of_32 - of_16))
}
if [ -n "$(counted --steps 1)" ]; then
    fewer() {       # a sixteenth of the bytes, and the losses of each step
        ordinary=$(sent) seldom=$(sent --reduce outer --local-steps 16) each=$(sent --reduce outer --local-steps 1)
        echo "ordinary $ordinary, a meeting in 16 steps $seldom, one in each $each"
        awk -v a="$ordinary" -v b="$seldom" -v c="$each" 'BEGIN {
            exit !(b > a / 17 && b < a / 14 && c > 0.98 * a && c < 1.02 * a) }'
    }
    check "bytes on the wire" fewer
else skip "bytes on the wire" "no network of its own: unshare -rn"; fi
summary
