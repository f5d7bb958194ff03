#!/bin/sh
# test_net.sh -- two network namespaces give the bits of one rank; addresses, secrets, lost cables, a slow link.
. tests/cases.sh
train=$faulty
comm="${TOOLS:-$PWD/build}/tests/comm rank"
two_hosts

job="$eight --steps 10 --dropout 0.1 --eval-every 5 --eval-steps 2 --sample-every 0 --save-every 5 --audit-every 4"
job="$job --timeout 20"
# start RANKS LOG COMMAND...: so many ranks on each host, in the background.
secret=shared-by-all
start() {
    per=$1 log=$tmp/$2 r=0 pids=; shift 2
    for ns in $a $b; do
        for l in $(seq 0 $((per - 1))); do
            ip netns exec $ns env RANK=$r WORLD_SIZE=$((2 * per)) LOCAL_RANK=$l LOCAL_WORLD_SIZE=$per \
                MASTER_ADDR=10.9.0.1 MASTER_PORT=29612 LOCKSTEP_SECRET=$secret "$@" >"$log.$r.log" 2>&1 &
            pids="$pids $!"
            r=$((r + 1))
        done
    done
}
# end CODE [PATTERN]: all of them end with the code, and say something like the pattern.
end() {
    worst=
    for p in $pids; do wait $p; code=$?; [ $code -eq "$1" ] || worst="exit code $code, want $1"; done
    pids=
    [ -z "${2:-}" ] || [ "$(grep -lE "$2" "$log".*.log | wc -l)" -eq $r ] || worst="$worst; want $2 of $r ranks"
    [ -z "$worst" ] || { tail -n 1 "$log".*.log; echo "$worst"; return 1; }
}
bits() {            # OUT RANKS OPTIONS...
    out=$1 ranks=$2; shift 2
    start $ranks $out $train $job "$@" --out-dir "$tmp/$out" && end 0 && same "$tmp/one" "$tmp/$out"
}
check one_rank run one $train
check two_hosts_of_one_rank bits h2 1
check two_hosts_of_two_ranks bits h4 2
check two_hosts_of_four_ranks bits h8 4
check overlap_off bits h4off 2 --overlap off
# A checkpoint written by two hosts is the one that a single rank writes, moments included.
equal() { [ "$(contents "$tmp/one")" = "$(contents "$tmp/h4")" ]; }
check "the same checkpoint, byte for byte" equal
resumed() { start 1 "$1" $train --resume "$tmp/$1" && end 0 && same "$tmp/one" "$tmp/$1"; }
cp -r "$tmp/one" "$tmp/again" && rm -rf "$tmp/again/ckpt/step_00000010"
check one_rank_resumed_on_two_hosts resumed again
# The cable is pulled while rank 1 is in the middle of step 7 and rank 0 waits for its gradients.
pulled() {
    start 1 pulled env LOCKSTEP_FAULT=rank=1,step=7,at=bwd,do=sleep:2 \
        $train $(echo $job | sed 's/--timeout 20/--timeout 3/') --out-dir "$tmp/pulled"
    await grep -q 'LOCKSTEP_FAULT fires' "$log.1.log"
    start=$(date +%s%N); ip -n $b link set vb$$ down
    end 69
    named=$? ms=$((($(date +%s%N) - start) / 1000000)); ip -n $b link set vb$$ up
    [ $ms -lt 5000 ] || { echo "took $ms ms, want less than the 3 s of --timeout and 2"; return 1; }
    echo "bench: cable pulled: both ends stopped after $ms ms (--timeout 3)" >"$tmp/pulled.bench"
    for r in 0 1; do grep -qE "error: peer (stuck|lost): rank $((1 - r))" "$log.$r.log" || named=1; done
    return $named
}
check "cable pulled in the middle of a step: both ends name the other in time" pulled
cat "$tmp/pulled.bench" 2>/dev/null
check "and the run resumed on both is the undisturbed one" resumed pulled

# ---- the ranks of tests/unit/test_comm.cpp, which wait for each other at most 2 s
start 2 collectives $comm collectives
check "two hosts, two ranks each" end 0
listens() {
    start 1 listens sh -c "[ \$RANK = 0 ] || sleep 1; exec $comm train 3"
    sleep 0.5
    while_it_starts=$(ip netns exec $a ss -ltnH | awk '/:29612/ { print $4 }')
    sleep 1.5
    afterwards=$(ip netns exec $a ss -ltnH)
    end 0 || return 1
    echo "listened at $while_it_starts, then '$afterwards'"
    [ "$while_it_starts$afterwards" = 10.9.0.1:29612 ]
}
! command -v ss >/dev/null || check "listens on the given address while starting, on nothing afterwards" listens
secret=
start 1 secret $comm train 1
check "no secret, no listener" end 2 'set LOCKSTEP_SECRET|same LOCKSTEP_SECRET'
secret=hush
lost() {            # SECONDS MODE CODE PATTERN: what goes from rank 0 to 1 is lost; "": until they end
    start 1 "lost$1" $comm train "$2"
    sleep 1.5
    ip -n $a route add blackhole 10.9.0.2/32
    [ -z "$1" ] || { sleep "$1"; ip -n $a route del blackhole 10.9.0.2/32; }
    end "$3" "$4"
    ended=$?
    ip -n $a route del blackhole 10.9.0.2/32 2>/dev/null
    return $ended
}
check "one direction lost for a second" lost 1 4 0 ''
# Rank 1 hears nothing of rank 0; rank 0 sees both wait. Whoever's patience ends first says it.
check "one direction lost for good" lost '' 20 69 'peer stuck: (all )?rank'
if ip netns exec $a tc qdisc add dev va$$ root tbf rate 20mbit burst 32kbit latency 400ms 2>/dev/null; then
    start 1 slow $comm collectives
    check "a slow link" end 0
fi
summary
