#!/bin/bash
# hosts.sh PROGRAM: two network namespaces with a wire between them stand for two hosts; PROGRAM is the built test_comm.
# Checks what loopback cannot show: addresses, the secret, a cable pulled, a one-way loss, a slow link. Needs root.
program=$(realpath "${1:-build/tests/comm}")
name=hosts
skip(){ echo "SKIP $name (0.00 s): $1"; echo "tests: 0 passed, 0 failed, 1 skipped"; exit 0; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "no ip command"
[ -x "$program" ] || { echo "FAIL $name: $program is not there"; exit 1; }
a=lsa$$ b=lsb$$ wire=v$$
work=$(mktemp -d)
clean(){
  jobs -p | xargs -r kill -9 2>/dev/null
  ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$work"
}
trap clean EXIT
ip netns add $a 2>/dev/null && ip netns add $b &&
  ip link add ${wire}a netns $a type veth peer name ${wire}b netns $b || skip "no network namespaces here"
ip -n $a addr add 10.9.0.1/24 dev ${wire}a; ip -n $b addr add 10.9.0.2/24 dev ${wire}b
for h in a b; do n=ls$h$$; ip -n $n link set $wire$h up; ip -n $n link set lo up; done

passed=0 failed=0
# start RANK SIZE LOCAL_RANK LOCAL_SIZE NAMESPACE MODE... : in the background, output to rank.R, exit code to code.R
start(){
  local r=$1 size=$2 lr=$3 ls=$4 ns=$5; shift 5
  ( ip netns exec $ns env RANK=$r WORLD_SIZE=$size LOCAL_RANK=$lr LOCAL_WORLD_SIZE=$ls \
      MASTER_ADDR=10.9.0.1 MASTER_PORT=29555 LOCKSTEP_SECRET="$secret" \
      timeout -s KILL 30 "$program" rank "$@" >"$work/rank.$r" 2>&1; echo $? >"$work/code.$r" ) &
}
# verdict NAME CODE REGEX RANK... : these ranks ended with CODE (a regular expression too) and said REGEX
verdict(){
  local what=$1 code=$2 regex=$3; shift 3
  for r in "$@"; do
    grep -Eqx "$code" "$work/code.$r" 2>/dev/null && grep -Eq "$regex" "$work/rank.$r" && continue
    [ -z "$regex" ] && grep -Eqx "$code" "$work/code.$r" && continue
    echo "FAIL $what: rank $r: code $(cat "$work/code.$r"), want $code and \"$regex\": $(cat "$work/rank.$r")"
    failed=$((failed + 1)); return
  done
  echo "ok   $what"; passed=$((passed + 1))
}

secret=hush
start 0 4 0 2 $a collectives; start 1 4 1 2 $a collectives
start 2 4 0 2 $b collectives; start 3 4 1 2 $b collectives; wait
verdict "two hosts, two ranks each" 0 '' 0 1 2 3

if command -v ss >/dev/null; then
  start 0 2 0 1 $a train 3; sleep 1
  listening=$(ip netns exec $a ss -ltnH | awk '{print $4}' | grep ':29555')
  start 1 2 0 1 $b train 3; sleep 1
  later=$(ip netns exec $a ss -ltnH)
  wait
  echo "$listening" >"$work/rank.0"; [ "$listening" = 10.9.0.1:29555 ] && [ -z "$later" ]; echo $? >"$work/code.0"
  verdict "listens on the given address while starting, on nothing afterwards" 0 '' 0
fi

secret=
start 0 2 0 1 $a train 1; start 1 2 0 1 $b train 1; wait
verdict "no secret, no listener" 2 'set LOCKSTEP_SECRET|same LOCKSTEP_SECRET' 0 1

secret=hush
start 0 2 0 1 $a train 20; start 1 2 0 1 $b train 20; sleep 2
ip -n $b link set ${wire}b down; wait; ip -n $b link set ${wire}b up
verdict "cable pulled: rank 0 names rank 1" 69 'peer stuck: rank 1 \(.*no progress for 2 s, last step [1-9]' 0
verdict "cable pulled: rank 1 names rank 0" 69 'peer stuck: rank 0 \(.*no progress for 2 s, last step [1-9]' 1

start 0 2 0 1 $a train 4; start 1 2 0 1 $b train 4; sleep 1.5
ip -n $a route add blackhole 10.9.0.2/32; sleep 1; ip -n $a route del blackhole 10.9.0.2/32; wait
verdict "one direction lost for a second" 0 '' 0 1

start 0 2 0 1 $a train 20; start 1 2 0 1 $b train 20; sleep 1.5
ip -n $a route add blackhole 10.9.0.2/32; wait; ip -n $a route del blackhole 10.9.0.2/32
# Rank 1 hears nothing of rank 0; rank 0 sees both wait. Whoever's patience ends first says it.
verdict "one direction lost for good" 69 'peer stuck: (all )?rank' 0 1

if ip netns exec $a tc qdisc add dev ${wire}a root tbf rate 20mbit burst 32kbit latency 400ms 2>/dev/null; then
  start 0 2 0 1 $a collectives; start 1 2 0 1 $b collectives; wait
  verdict "slow link" 0 '' 0 1
fi
echo "tests: $passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
