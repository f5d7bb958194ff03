#!/bin/sh
# test_soft_gpu.sh -- whole runs on GPUs in software (train_gpt_ptx): the trainer, its streams and a stand-in for NCCL,
# with the PTX of the CUDA kernels. Bits must not depend on ranks, overlap, recomputation or the random order of
# streams, blocks and warps; losses must follow the CPU's.
. tests/lib.sh
needs_nvcc "runs on GPUs in software"
need build/tests/kernels_ptx
soft="timeout 900 ${TRAIN_GPT_PTX:-$PWD/build/train_gpt_ptx}"
SOFT_GPU_DEVICES=8; export SOFT_GPU_DEVICES
# 4 micro_batches, 4 replicas, dropout, clipping, an evaluation, an audit.
job="--device gpu --preset nano --layers 2 --heads 2 --channels 32 --seq-len 24 --batch-size 1 --total-batch-size 96
     --lr 3e-3 --warmup-steps 2 --dropout 0.1 --data tests/golden/lines.txt --eval-steps 1 --sample-every 0 --keep 0
     --audit-every 3 --eval-every 5 --save-every 2 --timeout 60 --steps 5"

check one_rank run one $soft
[ "$failed" -eq 0 ] || { cat "$tmp/one.log"; give_up; }
like_one another_order env SOFT_GPU_SEED=2 $soft
like_one "nccl_2" env SOFT_GPU_SEED=3 $soft --np 2
like_one "nccl_4" env SOFT_GPU_SEED=4 LOCKSTEP_BUCKET_UNITS=5 $soft --np 4
like_one overlap_off env SOFT_GPU_SEED=7 $soft --np 2 --overlap off
for level in 1 2 3; do like_one "recompute_$level" env SOFT_GPU_SEED=1$level $soft --recompute $level; done
# Steps are graphs but for the first and the audited. Longer runs replay them more often, with two
# ranks too, and after an evaluation that made the work space grow.
like_one graph_off $soft --graph off
like_one graph_refused env SOFT_GPU_NO_GRAPHS=1 $soft
expect "a refused graph is said once" 0 '^1$' grep -c 'the step is no CUDA graph.*cudaErrorNotSupported' \
    "$tmp/graph_refused.log"
like_one dependent_graph_refused env SOFT_GPU_NO_GRAPHS=2 $soft
expect "without dependent launches the step is a graph" 1 '^0$' grep -c 'no CUDA graph' \
    "$tmp/dependent_graph_refused.log"
replayed() (
    job=$(echo "$job" | sed 's/--steps 5/--steps 9/; s/--eval-every 5/--eval-every 2/; s/\(--audit-every\) 3/\1 0/')
    for how in "off 1" "on 1" "on 2"; do
        set -- $how
        run "replayed_$1_$2" env SOFT_GPU_SEED=$2$2 $soft --graph "$1" --np "$2" || return 1
    done
    same "$tmp/replayed_off_1" "$tmp/replayed_on_1" && same "$tmp/replayed_off_1" "$tmp/replayed_on_2"
)
check "nine steps, replayed" replayed
# Hopper's attention in a whole run, which wants heads of 64 and no dropout: two ranks have the same bits, also where
# NCCL takes all multiprocessors but one; the portable kernels have others and nearly the same losses.
hopper() (
    job=$(echo "$job" | sed 's/--heads 2 --channels 32/--heads 1 --channels 64/; s/--dropout 0.1/--dropout 0/')
    run hopper_1 $soft && run hopper_2 env SOFT_GPU_SEED=9 SOFT_GPU_SMS=17 $soft --np 2 &&
        run portable env SOFT_GPU_ARCH=80 $soft &&
        same "$tmp/hopper_1" "$tmp/hopper_2" && ! same "$tmp/hopper_1" "$tmp/portable" >/dev/null &&
        near "$tmp/hopper_1" "$tmp/portable" 1e-3
)
# Two hosts of two ranks: both stages of the reduction.
like_one two_hosts_nccl on_hosts 4 2 env LOCKSTEP_BUCKET_UNITS=6 $soft
# Muon's matrices are whole on one rank, also where two hosts share a bucket.
job_adamw=$job job="$job --optimizer muon"
cp -r "$tmp/one" "$tmp/adamw"
check "one rank with muon" run one $soft --force
like_one muon_4 env SOFT_GPU_SEED=9 LOCKSTEP_BUCKET_UNITS=3 $soft --np 4
like_one muon_two_hosts on_hosts 4 2 env LOCKSTEP_BUCKET_UNITS=6 $soft
rm -rf "$tmp/one" && mv "$tmp/adamw" "$tmp/one"
job=$job_adamw
# Negative controls: without the waits between its streams, and with another tree.
no_waits() {
    for how in "1 --np 1" "0 --np 2" "3 --np 2"; do
        set -- $how; seed=$1; shift
        ! run no_waits env SOFT_GPU_IGNORE_WAITS=1 SOFT_GPU_SEED=$seed $soft "$@" --force --max-restarts 0 &&
            grep 'race: memory at .* in stream .*: got no order between them' "$tmp/no_waits.log" || return 1
    done
}
check "a missing wait between streams is named" no_waits
other_tree() { run replicas_2 $soft --replicas 2 && ! same "$tmp/one" "$tmp/replicas_2"; }
check "another number of replicas is noticed" other_tree
nccl_sums() {
    run nccl_sums $soft --np 4 --reduce nccl && ! same "$tmp/one" "$tmp/nccl_sums" >/dev/null &&
        near "$tmp/one" "$tmp/nccl_sums" 1e-3
}
check "--reduce nccl: other bits, the same losses" nccl_sums
check "a run of Hopper's kernels" hopper

# The README's command for 8 GPUs, as it stands there, with tiny sizes: the bits of one rank, also if a rank is killed
# and 4 go on. By Open MPI, where it is installed.
if open_mpi; then
    mpirun() { timeout 900 mpirun --allow-run-as-root --oversubscribe --bind-to none "$@"; }
else
    skip "the README's command by Open MPI" "no mpirun of Open MPI; on Debian: apt-get install openmpi-bin"
    mpirun() { of=$2; shift 2; timeout 900 "$@" --np "$of" --max-restarts 0; }
fi
readme=$(sed -n 's/^\(mpirun -np 8 [^#]*[^# ]\) *#.*/\1/p' README.md)
box=$tmp/box
mkdir "$box" && ln -s "${soft#timeout 900 }" "$box/train_gpt"
tiny="--layers 1 --heads 1 --channels 16 --seq-len 8 --batch-size 1 --total-batch-size 64 --steps 3 --save-every 1
      --eval-every 0 --sample-every 0 --keep 0 --timeout 60"
# in_box OUT COMMAND: a line of sh in the folder with the program and the shards.
in_box() { (cd "$box" && eval "$2") >"$tmp/$1.log" 2>&1 || { tail -n 4 "$tmp/$1.log"; return 1; }; }
headline() { in_box "$1" "$readme $(echo $tiny) --out-dir $1"; }
check "shards" in_box shards "'${TOOLS:-$PWD/build}/prep' '$PWD/tests/golden/lines.txt' -o shards --tokenizer byte"
alone() { in_box alone "${readme#mpirun -np 8 } $(echo $tiny) --out-dir alone"; }
check "the README's command by one rank" alone
check "$readme" headline eight
check "$readme: on 8 GPUs" grep -q 'ranks 8 (.*), joined by NCCL' "$tmp/eight.log"
check "$readme: to the same bits" same "$box/alone" "$box/eight"
said() { ! headline eight && grep -q 'error: --out-dir: eight: not empty' "$tmp/eight.log"; }
check "$readme: an error is said" said
killed_of_8() {
    ! LOCKSTEP_FAULT=rank=5,step=2,at=fwd,do=kill headline killed || return 1
    in_box on "mpirun -np 4 ./train_gpt --resume killed" && grep 'ranks 4 ' "$tmp/on.log" &&
        same "$box/alone" "$box/killed"
}
check "$readme: a rank is killed, 4 go on to the same bits" killed_of_8

# Interrupted and gone on with another number of ranks.
resumed() {
    LOCKSTEP_FAULT="rank=1,step=3,at=fwd,do=sleep:1;rank=1,step=3,at=fwd,do=kill" \
        run killed $soft --np 2 --max-restarts 0 >/dev/null 2>&1
    latest=$(cat "$tmp/killed/ckpt/latest")
    [ "$latest" = step_00000002 ] || { echo "saved $latest"; return 1; }
    $soft --device gpu --resume "$tmp/killed" --np 4 >"$tmp/killed.log2" 2>&1 ||
        { tail -n 3 "$tmp/killed.log2"; return 1; }
    same "$tmp/one" "$tmp/killed"
}
check "killed, resumed with 4 ranks" resumed
flipped() {
    ! LOCKSTEP_FAULT="rank=2,step=3,at=audit,do=flip:100" run flipped $soft --np 4 &&
        grep -q 'rank 2 computed micro-batch 2 differently' "$tmp/flipped.log"
}
check "a flipped bit in a gradient is found, the rank named" flipped
# Blocks of these GPUs have 99 KB of shared memory; the others of the tests run as on an H100.
expect "with the shared memory of sm_89" 0 ' 0 failed' \
    env SOFT_GPU_ARCH=89 "${TOOLS:-$PWD/build}/tests/kernels_ptx" classifier attention_forward attention_backward
lost() {
    LOCKSTEP_FAULT="rank=1,step=3,at=fwd,do=$1" $soft ${job% --timeout 60*} --timeout 4 --steps 5 --np 2 \
        --max-restarts 0 --out-dir "$tmp/lost_$1" >"$tmp/lost.log" 2>&1
    code=$?
    [ $code -eq 69 ] && grep -q "peer $2: rank 1 " "$tmp/lost.log" && return
    echo "exit code $code"
    tail -n 2 "$tmp/lost.log"
    return 1
}
check "a stopped rank is named while GPUs wait for it" lost stop stuck
check "a killed rank too" lost kill lost
check "a slow one too" lost sleep:8 stuck
expect "more channels than a GPU's LayerNorm takes" 2 '--channels: got 8256, want at most 8192' \
    $soft --device gpu --heads 129 --channels 8256 --out-dir "$tmp/wide"
check "leave no folder" test ! -e "$tmp/wide"
expect "more ranks than GPUs" 2 'one rank per GPU|more ranks than GPUs' \
    env SOFT_GPU_DEVICES=1 $soft $job --np 2 --max-restarts 0 --out-dir "$tmp/crowded"

check "losses follow the CPU's" as_the_cpu $soft
tail -n 1 "$tmp/check.log"
check "20 steps follow PyTorch's losses" as_pytorch golden 2e-3 4e-2 $soft --device gpu --batch-size 4
tail -n 1 "$tmp/check.log"
expect "a sample by a software GPU" 0 '^The ' \
    $soft sample "$tmp/one" --device gpu --temperature 0.5 --max-tokens 12 --prompt 'The '
loss_on() { $soft eval "$tmp/one" --device $1 | sed -n 's/^val loss \([0-9.]*\) .*/\1/p'; }
evaluated() {
    set -- "$(loss_on gpu)" "$(loss_on cpu)"
    echo "$@"
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 2e-3 && d > -2e-3) }'
}
check "its evaluation is the CPU's" evaluated
summary
