#!/bin/sh
# test_gpu.sh -- on a real GPU: every operation against the specification, then whole runs. Bits must not depend on
# ranks, transport, overlap, recomputation or an interruption; losses must follow PyTorch's and the CPU's.
#   tests/scripts/test_gpu.sh         all of it; SKIP where no GPU answers
#   tests/scripts/test_gpu.sh runs    the whole runs alone; bits: of these the ones of one rank without faults
# A kernel that waits for ever must not hold up the rest: every command here has its time.
. tests/lib.sh
train="timeout 120 $faulty"
tools=${TOOLS:-$PWD/build}
LOCKSTEP_SHARE_GPU=1; export LOCKSTEP_SHARE_GPU
if ! $train --device gpu --dry-run --preset nano --data tests/golden/lines.txt >"$tmp/probe" 2>&1; then
    if grep -qE 'no GPU answers|not in this build' "$tmp/probe"; then
        skip "runs on a GPU" "$(sed 's/.*error: //' "$tmp/probe" | tail -n 1)"
    else fail "a GPU answers" "$(tail -n 2 "$tmp/probe" | tr '\n' '|')"; fi
    give_up
fi

operations() {
    timeout 300 "$tools/tests/kernels_gpu" >"$tmp/kernels" 2>&1; code=$?
    tail -n 1 "$tmp/kernels" >&2
    [ $code -eq 0 ] || { echo "exit code $code"; grep '^FAIL' "$tmp/kernels" || tail -n 3 "$tmp/kernels"; return 1; }
}
if [ "${1:-all}" = all ]; then
    [ -x "$tools/tests/kernels_gpu" ] || need build/tests/kernels_gpu
    check "every operation is what the specification says" operations
fi

if [ "${1:-all}" != bits ]; then
    [ -x "$tools/tests/graph_gpu" ] || need build/tests/graph_gpu
    check "a step as a CUDA graph" timeout 60 "$tools/tests/graph_gpu"
fi

# 8 micro-batches, 8 replicas, dropout, clipping, an evaluation, audits (a micro-batch twice, bit for bit); wide enough
# for every size of tile.
size=${GPU_TEST_SIZE:---layers 3 --heads 4 --channels 256 --seq-len 256 --batch-size 2 --total-batch-size 4096}
job="--device gpu --preset nano $size
    --lr 1e-3 --warmup-steps 2 --dropout 0.1 --audit-every 4 --save-every 5 --data tests/golden/lines.txt
    --eval-steps 2 --sample-every 0 --keep 0 --timeout 60 --steps 12 --eval-every 6"
check one_rank run one $train
[ "$failed" -eq 0 ] || { [ -e "$tmp/one/metrics.jsonl" ] || give_up; }

like_one again $train
like_one overlap_off $train --overlap off
like_one graph_off $train --graph off
for level in 0 1 2 3; do like_one "recompute_$level" $train --recompute $level; done
# nothing may depend on what happens to run at the same time
like_one launches_one_by_one env CUDA_LAUNCH_BLOCKING=1 $train
[ "${1:-all}" != bits ] || give_up
# Ranks share a GPU where there are fewer. NCCL may refuse that, or not be here: then the runs of several ranks are left
# out.
ranks=1
if run nccl_2 $train --np 2 --max-restarts 0 >"$tmp/run.log" 2>&1; then ranks=2 &&
    check nccl_2 same "$tmp/one" "$tmp/nccl_2"
elif grep -q 'NCCL' "$tmp/nccl_2.log"; then skip nccl_2 "$(grep 'NCCL' "$tmp/nccl_2.log" | tail -n 1 |
    sed 's/.*error: //')"
else fail nccl_2 "$(tail -n 4 "$tmp/run.log" | tr '\n' '|')"; fi
if [ $ranks -eq 2 ]; then
    like_one nccl_4 $train --np 4 --max-restarts 0
    like_one nccl_2_overlap_off $train --np 2 --max-restarts 0 --overlap off
fi
# negative control
other_tree() { run replicas_2 $train --replicas 2 && ! same "$tmp/one" "$tmp/replicas_2" >/dev/null; }
check "another number of replicas is noticed" other_tree

# Interrupted, and gone on with another number of ranks.
killed() {
    LOCKSTEP_FAULT="rank=1,step=8,at=fwd,do=sleep:1;rank=1,step=8,at=fwd,do=kill" run killed $train --np 2 \
        --max-restarts 0 >/dev/null 2>&1
    # of the best evaluation
    [ "$(cat "$tmp/killed/ckpt/latest")" = step_00000006 ] || { echo "saved $(cat "$tmp/killed/ckpt/latest")"
        return 1; }
    $train --device gpu --resume "$tmp/killed" >"$tmp/killed.log2" 2>&1 || {
        tail -n 3 "$tmp/killed.log2"; return 1; }
    same "$tmp/one" "$tmp/killed"
}
[ $ranks -eq 1 ] || check killed_at_8_resumed_2_to_1 killed
stopped() {
    # `timeout` would keep the signal
    LOCKSTEP_FAULT="rank=0,step=3,at=fwd,do=sleep:2" "$faulty" $job --out-dir "$tmp/stopped" >"$tmp/stopped.log" \
        2>&1 & pid=$!
    for i in $(seq 300); do grep -q 'LOCKSTEP_FAULT fires' "$tmp/stopped.log" 2>/dev/null && break; sleep 0.1; done
    kill -USR1 $pid
    for i in $(seq 600); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
    kill -KILL $pid 2>/dev/null; wait $pid; code=$?
    [ $code -eq 75 ] || { echo "exit code $code, want 75"; tail -n 3 "$tmp/stopped.log"; return 1; }
    $train --device gpu --resume "$tmp/stopped" --np $ranks >"$tmp/stopped.log2" 2>&1 || {
        tail -n 3 "$tmp/stopped.log2"; return 1; }
    same "$tmp/one" "$tmp/stopped"
}
check stopped_at_3_resumed_1_to_$ranks stopped
flipped() { LOCKSTEP_FAULT="rank=1,step=4,at=audit,do=flip:1000" run flipped $train --np 2 --max-restarts 0 >/dev/null
    [ $? -ne 0 ] && grep -q 'computed micro-batch' "$tmp/flipped.log"; }
[ $ranks -eq 1 ] || check "a flipped bit in a gradient is found" flipped

check "losses follow the CPU's" as_the_cpu timeout 300 $faulty
tail -n 1 "$tmp/check.log"
check "20 steps follow PyTorch's losses" as_pytorch golden 2e-3 4e-2 $train --device gpu --batch-size 4
tail -n 1 "$tmp/check.log"
text_and_loss() {
    $train sample "$tmp/one" --device gpu --temperature 0.5 --max-tokens 40 --prompt 'The ' &&
        $train eval "$tmp/one" --device gpu
}
check "text, and the loss of the validation text" text_and_loss
summary
