#!/bin/sh
# test_net.sh -- the promise across hosts: two network namespaces with a wire between them give the bits of one rank.
. tests/lib.sh
train=$faulty
hosts="2 namespaces"
[ "$(id -u)" = 0 ] || skip_all "$hosts" "needs root"
command -v ip >/dev/null 2>&1 || skip_all "$hosts" "no ip command; on Debian: apt-get install iproute2"
a=lsna$$ b=lsnb$$
clean() { ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$tmp"; }
trap clean EXIT
ip netns add $a 2>/dev/null && ip netns add $b && ip link add va$$ netns $a type veth peer name vb$$ netns $b ||
    skip_all "$hosts" "no network namespaces here"
ip -n $a addr add 10.9.0.1/24 dev va$$; ip -n $b addr add 10.9.0.2/24 dev vb$$
ip -n $a link set va$$ up; ip -n $b link set vb$$ up; ip -n $a link set lo up; ip -n $b link set lo up

job="--layers 2 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 512 --steps 10 --lr 3e-3
     --warmup-steps 2 --dropout 0.1 --data tests/golden/lines.txt --eval-every 5 --eval-steps 2 --sample-every 0
     --save-every 5 --audit-every 4 --timeout 20"
# two_hosts OUT RANKS_PER_HOST OPTIONS...: half of the ranks in each namespace.
two_hosts() {
    out=$tmp/$1 per=$2 r=0 pids=; shift 2
    for ns in $a $b; do
        l=0
        while [ $l -lt $per ]; do
            ip netns exec $ns env RANK=$r WORLD_SIZE=$((2 * per)) LOCAL_RANK=$l LOCAL_WORLD_SIZE=$per \
                MASTER_ADDR=10.9.0.1 MASTER_PORT=29612 LOCKSTEP_SECRET=shared-by-all \
                $train "$@" --out-dir "$out" >"$out.$r.log" 2>&1 & pids="$pids $!"
            r=$((r + 1)) l=$((l + 1))
        done
    done
    for p in $pids; do wait $p || { tail -n 3 "$out".*.log; return 1; }; done
}
bits() { two_hosts "$@" && same "$tmp/one" "$tmp/$1"; }
check one_rank $train $job --out-dir "$tmp/one"
check two_hosts_of_one_rank bits h2 1 $job
check two_hosts_of_two_ranks bits h4 2 $job
check two_hosts_of_four_ranks bits h8 4 $job
check overlap_off bits h4off 2 $job --overlap off
# A checkpoint written by two hosts is the one that a single rank writes, moments included.
equal() { [ "$(contents "$tmp/one")" = "$(contents "$tmp/h4")" ]; }
check "the same checkpoint, byte for byte" equal
# pair LOG OPTIONS...: a rank in each namespace, in the background; their numbers in $pids.
pair() {
    log=$1 r=0 pids=; shift
    for ns in $a $b; do
        ip netns exec $ns env RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
            MASTER_ADDR=10.9.0.1 MASTER_PORT=29613 LOCKSTEP_SECRET=x \
            $train "$@" >"$tmp/$log.$r.log" 2>&1 & pids="$pids $!"
        r=$((r + 1))
    done
}
resumed() {
    pair "$1" --resume "$tmp/$1"
    for p in $pids; do wait $p || { tail -n 3 "$tmp/$1".*.log; return 1; }; done
    same "$tmp/one" "$tmp/$1"
}
cp -r "$tmp/one" "$tmp/again" && rm -rf "$tmp/again/ckpt/step_00000010"
check one_rank_resumed_on_two_hosts resumed again
# The cable is pulled while rank 1 is in the middle of step 7 and rank 0 waits for its gradients.
pulled() {
    export LOCKSTEP_FAULT=rank=1,step=7,at=bwd,do=sleep:2
    pair pulled $(echo $job | sed 's/--timeout 20/--timeout 3/') --out-dir "$tmp/pulled"
    unset LOCKSTEP_FAULT
    for i in $(seq 200); do grep -q 'LOCKSTEP_FAULT fires' "$tmp/pulled.1.log" && break; sleep 0.05; done
    start=$(date +%s%N); ip -n $b link set vb$$ down
    for p in $pids; do wait $p; [ $? -eq 69 ] || { tail -n 3 "$tmp"/pulled.*.log; return 1; }; done
    ms=$((($(date +%s%N) - start) / 1000000)); ip -n $b link set vb$$ up
    [ $ms -lt 5000 ] || { echo "took $ms ms, want less than the 3 s of --timeout and 2"; return 1; }
    echo "bench: cable pulled: both ends stopped after $ms ms (--timeout 3)" >"$tmp/pulled.bench"
    for r in 0 1; do
        grep -qE "error: peer (stuck|lost): rank $((1 - r))" "$tmp/pulled.$r.log" && continue
        tail -n 3 "$tmp/pulled.$r.log"
        return 1
    done
}
check "cable pulled in the middle of a step: both ends name the other in time" pulled
cat "$tmp/pulled.bench" 2>/dev/null
check "and the run resumed on both is the undisturbed one" resumed pulled
summary
