#!/bin/bash
# test_launchers.sh -- real launchers: the ranks of a job meet, also behind a script; two jobs that one script starts at
# once do not; all have the bits of one rank. Under torchrun a host that is lost and replaced meets the others again.
. tests/lib.sh
. tests/cases.sh
job="--layers 1 --heads 1 --channels 16 --seq-len 8 --batch-size 1 --total-batch-size 64 --steps 3 --eval-every 0
     --sample-every 0 --threads 1 --device cpu --data tests/golden/lines.txt --timeout 60"
check "one rank" run one $train

# two_jobs NAME COMMAND...: at once, each with a script between the launcher and the rank.
two_jobs() {
    at=$1 pids=; shift
    for j in 1 2; do run $at$j "$@" sh -c '"$0" "$@"; exit $?' $train & pids="$pids $!"; done
    for p in $pids; do wait "$p" || return 1; done
    same "$tmp/one" "$tmp/${at}1" && same "$tmp/one" "$tmp/${at}2"
}
# launcher NAME PROGRAM COMMAND...: it starts two ranks, if the program is there.
launcher() {
    what=$1 program=$2; shift 2
    command -v "$program" >/dev/null 2>&1 || { skip "$what" "no $program"; return; }
    for turn in 1 2 3; do check "$what: two jobs at once, turn $turn" two_jobs "$what$turn." "$@"; done
    like_one "$what: each rank in a container" "$@" unshare -U -r -p -f --mount-proc $train
    expect "$what: an error is said" 2 'unknown option --stpes' "$@" $train --stpes 3
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launcher OpenMPI mpirun.openmpi mpirun.openmpi --oversubscribe --bind-to none -np 2
launcher MPICH /usr/bin/mpiexec.hydra /usr/bin/mpiexec.hydra -n 2
intel=${IMPI_ROOT:-$PWD/build/venv}
launcher IntelMPI "$intel/bin/mpiexec.hydra" env I_MPI_ROOT="$intel" LD_LIBRARY_PATH="$intel/lib" \
    "$intel/bin/mpiexec.hydra" -n 2

# Two hosts: namespaces with a wire between them.
[ "$(id -u)" = 0 ] && command -v torchrun >/dev/null 2>&1 || skip_all "torchrun" "no torchrun, or not root"
two_hosts
printf '127.0.0.1 localhost\n10.9.0.1 a\n10.9.0.2 b\n' >"$tmp/hosts"
job="$job --timeout 5 --steps 100000 --save-every 500 --keep 1 --resume auto"
job=${job/--timeout 60/} job=${job/--steps 3 /}
# agent HOST LOG: torchrun's on a host; the store is on host a.
agent() {
    ns=$a; [ "$1" = a ] || ns=$b
    ip netns exec $ns unshare -mu \
        sh -c 'hostname "$1"; mount --bind "$0/hosts" /etc/hosts; shift; exec "$@"' "$tmp" "$1" \
        env LOCKSTEP_SECRET=hush torchrun --nnodes 2 --nproc_per_node 1 --max_restarts 1 --rdzv_id j \
        --rdzv_backend c10d --rdzv_endpoint a:29415 --redirects 1 --tee 1 \
        --no_python $train $job --out-dir "$tmp/elastic" \
        >"$tmp/$2.log" 2>&1 &
    pids="$pids $!"
}
saved() { [ -f "$tmp/elastic/ckpt/latest" ]; }
resumed() { grep -aq "resumed .*ckpt/step_" "$tmp"/[ab]*.log; }
agent a a; agent b b; lost=$!
if await saved; then
    kill -9 "$lost"
    agent b b2
    check "torchrun: a host that is replaced meets the others again" await resumed
    check "without a failed attempt" sh -c "! grep -aq 'not authenticated' '$tmp'/*.log"
else
    fail "torchrun trains on two hosts" "$(tail -n 3 "$tmp"/a.log | tr '\n' '|')"
fi
summary
