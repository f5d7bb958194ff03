#!/bin/bash
# test_launch.sh -- ranks in two network namespaces find each other, or end at once with the cause.
. tests/cases.sh
two_hosts
ip -n $a addr add fd77::1/64 dev va$$ nodad 2>/dev/null
ip -n $b addr add fd77::2/64 dev vb$$ nodad 2>/dev/null
printf '127.0.0.1 localhost\n' >"$tmp/no.hosts"
printf '127.0.0.1 localhost\n10.9.0.1 head\n' >"$tmp/number.hosts"
printf '127.0.0.1 localhost\nfd77::1 head\n10.9.0.1 head\n' >"$tmp/two.hosts"
printf '127.0.0.1 localhost\n127.0.1.1 head\n' >"$tmp/own.hosts"
job="$tiny --seq-len 8 --total-batch-size 64 --steps 1 $mute --save-every 0 --threads 1 --device cpu"

# rank R HOSTS VARIABLE=VALUE... [-- OPTIONS...]: rank R of 2, each in a namespace of its own, in the background; HOSTS
# is its /etc/hosts. Its output is $tmp/R.log, its code $tmp/R.code.
rank() {
    r=$1 names=$2 ns=$a vars=; shift 2
    [ "$r" = 0 ] || ns=$b
    while [ $# -gt 0 ] && [ "$1" != -- ]; do vars="$vars $1"; shift; done
    [ $# = 0 ] || shift
    rm -rf "$tmp/out" "$tmp/$r.code"
    (
        ip netns exec $ns unshare -m sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$tmp/$names.hosts" \
            env RANK="$r" WORLD_SIZE=2 MASTER_PORT=29614 LOCKSTEP_SECRET=hush $vars \
            timeout -s KILL 100 $train $job --timeout "${timeout:-12}" --out-dir "$tmp/out" "$@" >"$tmp/$r.log" 2>&1
        echo $? >"$tmp/$r.code"
    ) &
    pids="$pids $!"
}
said() { [ -z "$2" ] || grep -qE -- "$2" "$tmp/$1.log"; }
# ends CODE0 REGEX0 CODE1 REGEX1: both ranks end so.
ends() {
    wait
    pids=
    for r in 0 1; do
        [ "$(cat "$tmp/$r.code")" = "$1" ] && said $r "$2" || {
            echo "rank $r: code $(cat "$tmp/$r.code"), want $1 and '$2': $(tail -n 3 "$tmp/$r.log")"
            return 1
        }
        shift 2
    done
}
trains() { ends 0 '^done' 0 ''; }

rank 0 no MASTER_ADDR=localhost; rank 1 number MASTER_ADDR=head
check "localhost on rank 0 alone, as operators set it" trains
rank 0 no MASTER_ADDR=localhost LOCAL_WORLD_SIZE=1; rank 1 number MASTER_ADDR=10.9.0.1 LOCAL_WORLD_SIZE=1
check "and told that there are several hosts" trains
rank 0 number MASTER_ADDR=10.9.0.1; rank 1 number MASTER_ADDR=head
check "an address spelled in two ways" trains
rank 0 own MASTER_ADDR=head; rank 1 two MASTER_ADDR=head
check "a name of two addresses, and of loopback on its own host" trains
rank 0 number MASTER_ADDR=head; rank 1 two MASTER_ADDR=head
check "a name with an address where rank 0 does not listen" trains
rank 0 two MASTER_ADDR=head; rank 1 number MASTER_ADDR=head
check "listened at under all its addresses" trains

cp "$tmp/no.hosts" "$tmp/late.hosts"
rank 0 number MASTER_ADDR=head; rank 1 late MASTER_ADDR=head
late() {
    await said 1 'waiting for rank 0 of 2 at head: ' || return 1
    await said 0 'waiting for rank 1 of 2' || return 1
    cat "$tmp/number.hosts" >"$tmp/late.hosts"
    trains
}
check "a name that is not yet known is waited for, which is said" late

rank 0 no MASTER_ADDR=10.9.0.1; rank 1 no MASTER_ADDR=10.9.0.1 -- --stpes 3
check "an unknown option on rank 1 ends both" ends 2 'error: rank 1 .*--stpes' 2 'error: unknown option --stpes'
rank 0 no MASTER_ADDR=10.9.0.1 -- --stpes 3; rank 1 no MASTER_ADDR=10.9.0.1
check "and on rank 0" ends 2 'error: unknown option --stpes' 2 'error: rank 0: unknown option --stpes'
rank 0 no MASTER_ADDR=10.9.0.1; rank 1 no MASTER_ADDR=10.9.0.1 LOCKSTEP_PORTS=9-
check "and a bad variable" ends 2 'rank 1 .*LOCKSTEP_PORTS: got "9-"' 2 'error: LOCKSTEP_PORTS: got "9-"'
timeout=1
rank 0 no MASTER_ADDR=10.9.0.2; rank 1 no MASTER_ADDR=10.9.0.2
check "rank 0 is not where MASTER_ADDR says" ends 69 'cannot listen: 10.9.0.2:29614: .*and MASTER_ADDR is not' \
    69 'peer missing: rank 0 of 2: does not answer in time at 10.9.0.2:29614: Connection refused'
rank 0 no; rank 1 no
check "hosts that nobody tells of: one is assumed, and said" ends 69 'rank 1 of 2 .*assumed: MASTER_ADDR is not set' \
    69 'rank 0 of 2'

command -v iptables >/dev/null 2>&1 || skip_all "closed ports" "no iptables"
timeout=12
ip netns exec $a iptables -A INPUT -p tcp --syn ! --dport 29614 -j DROP
rank 0 no MASTER_ADDR=10.9.0.1; rank 1 no MASTER_ADDR=10.9.0.1
check "no port of rank 0's host is open but MASTER_PORT" trains
summary
