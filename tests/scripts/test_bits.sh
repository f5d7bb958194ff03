#!/bin/sh
# test_bits.sh -- the same bits with any ranks, launcher, threads and overlap, and after any interruption.
. tests/cases.sh
train=$faulty
# A small job with everything on: 8 micro_batches, 8 replicas, dropout, clipping, evaluation.
model="$eight --dropout 0.1 --eval-steps 2 --sample-every 0 --keep 0 --audit-every 4 --timeout 30"
job="$model --steps 12 --eval-every 6 --save-every 5"

check one_rank run one $train
[ "$failed" -eq 0 ] || { cat "$tmp/one.log"; give_up; }
torchrun_2() {
    for r in 1 0; do
        env RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29611 \
            TORCHELASTIC_RUN_ID=$$ $train "$@" --threads $((r + 1)) & pids="${pids:-} $!"
    done
    for p in $pids; do wait "$p" || return 1; done
}
for n in 2 4 8; do like_one "np_$n" $train --np $n; done
for n in 1 2; do like_one "threads_$n" $train --threads $n; done
for n in 1 2 3; do like_one "recompute_$n" $train --recompute $n; done
for how in on off; do like_one "overlap_$how" $train --np 2 --overlap $how; done
like_one small_buckets env LOCKSTEP_BUCKET_UNITS=3 $train --np 4 --overlap on
like_one lanes_of_the_batch $train --replicas 8
like_one torchrun_environment torchrun_2
# mpirun's variables are enough: nothing is linked against it.
if open_mpi; then
    like_one mpirun_2 mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2 $train
    check "mpirun's output has no escape codes" sh -c "! grep -q '$(printf '\033')' '$tmp/mpirun_2.log'"
else skip mpirun_2 "no mpirun of Open MPI; on Debian: apt-get install openmpi-bin"; fi

# Many hosts, with a rank for each micro-batch.
all=$job
job="$tiny --seq-len 8 --total-batch-size 512 --replicas 64 --steps 2 $mute --timeout 60"
check "one rank with 64 micro-batches" run many_one $train
check "64 ranks on 32 hosts" run many on_hosts 64 32 $train --threads 1
alike() { [ "$(contents "$tmp/many_one")" = "$(contents "$tmp/many")" ]; }
check "write the same checkpoint, byte for byte" alike
job=$all
# Negative control: another tree must not give the same bits.
sum_of_parts() { ! same "$tmp/one" "$tmp/replicas_4"; }
run replicas_4 $train --replicas 4 && check "another number of replicas is noticed" sum_of_parts

# Ranks are processes: while a run of 4 is under way, 4 of them share its folder's job besides the supervisor.
$train --np 4 $model --steps 100000 --save-every 0 --eval-every 0 --out-dir "$tmp/processes" \
    >"$tmp/processes.log" 2>&1 &
pid=$! log=$tmp/processes.log
await grep -q '"event":"train"' "$tmp/processes/metrics.jsonl"
children=$(pgrep -c -P $pid)
ranks=$(sed -n 's/.*"event":"run".*"ranks":\[\(.*\)\].*/\1/p' "$tmp/processes/metrics.jsonl" |
    grep -o '"pid":[0-9]*' | sort -u | wc -l)
kill -USR1 $pid
check "ranks are processes" test "$children $ranks" = "4 4"
check "USR1 stops them with 75" ended_with 75

# Interrupted at a step, by a signal, and gone on with another number of ranks.
interrupted() {     # ranks before, ranks after, signal, step
    out=$tmp/int_$1_$2_$3 log=$tmp/int_$1_$2_$3.log
    signalled 75 "$3" "$log" 'LOCKSTEP_FAULT fires' \
        env LOCKSTEP_FAULT="rank=0,step=$4,at=bwd,do=sleep:1" $train --np $1 $job --out-dir "$out" || return 1
    [ "$(cat "$out/ckpt/latest")" = "$(printf 'step_%08d' $(($4 + 1)))" ] ||
        { echo "saved $(cat "$out/ckpt/latest")"; return 1; }
    grep -q "SIG$3" "$log" && grep -q "SIG$3" "$out/metrics.jsonl" || { echo "no SIG$3"; return 1; }
    $train --np $2 --resume "$out" && same "$tmp/one" "$out"
}
check stopped_by_usr1_at_3_resumed_1_to_4 interrupted 1 4 USR1 3
check stopped_by_term_at_7_resumed_4_to_2 interrupted 4 2 TERM 7
check stopped_by_int_at_0_resumed_2_to_1 interrupted 2 1 INT 0
# Killed: goes on from the last checkpoint, by hand and by the supervisor.
killed() {
    LOCKSTEP_FAULT="rank=1,step=8,at=fwd,do=sleep:1;rank=1,step=8,at=bwd,do=kill" \
        $train --np 2 --max-restarts 0 $job --out-dir "$tmp/killed"
    code=$?
    [ $code -eq 69 ] || { echo "exit code $code, want 69"; return 1; }
    $train --np 4 --resume "$tmp/killed" && same "$tmp/one" "$tmp/killed"
}
check killed_at_8_resumed_2_to_4 killed
# A rank that always dies at the same step: after two attempts with 4 ranks --elastic goes on with 2, to the same end,
# from step 6, whose score is the best so far.
elastic() {
    LOCKSTEP_FAULT="rank=3,step=8,at=fwd,do=sleep:1;rank=3,step=8,at=bwd,do=kill" \
        run elastic $train --np 4 --elastic || return 1
    grep -q 'only 2 ranks again.*from step_00000006' "$tmp/elastic.log" || { cat "$tmp/elastic.log"; return 1; }
    [ "$(grep -c 'rank 3 .*killed by signal 9' "$tmp/elastic.log")" = 2 ] && same "$tmp/one" "$tmp/elastic"
}
check "dies_at_4_ranks_ends_with_2" elastic

# Ranks must divide the replicas. Two ranks that compute one micro-batch differently are found by the audit (step 4),
# which names the odd one of three or more.
flip=do=flip:12345
cases <<END
3 ranks refused ~ 2 ~ a power of 2 up to 8 ~ $train --np 3 \$job --out-dir "$tmp/three"
a flipped bit in a gradient is found ~ 80 ~ ranks 1 and 0 computed micro-batch ~ \
    env LOCKSTEP_FAULT=rank=1,step=4,at=audit,$flip $train --np 2 \$job --out-dir "$tmp/flip2"
the odd rank of four is named ~ 80 ~ rank 2 computed micro-batch ~ \
    env LOCKSTEP_FAULT=rank=2,step=4,at=audit,$flip $train --np 4 \$job --out-dir "$tmp/flip4"
END
summary
