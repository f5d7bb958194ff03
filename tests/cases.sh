# cases.sh -- tests/lib.sh, tests as tables, and what many of them begin with.
[ "${suite:-}" ] || . tests/lib.sh

# Options of small runs: on a text of this tree, without evaluations and samples, of one layer, of eight micro-batches.
on_lines="--data $PWD/tests/golden/lines.txt"
mute="--eval-every 0 --sample-every 0"
tiny="--layers 1 --heads 1 --channels 16 --batch-size 1 $on_lines"
eight="--layers 2 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 512 --lr 3e-3 --warmup-steps 2"
eight="$eight $on_lines"

# cases [COMMAND...]: reads rows "NAME ~ CODE ~ PATTERN ~ MORE". The command, with MORE behind it as a shell reads it,
# must end with CODE and print a line that matches PATTERN (`expect`). A row's name is that of its test.
cases() {
    while IFS= read -r row; do
        row="$row "
        rest=${row#* ~ }
        match=${rest#* ~ }
        eval "expect \"\${row%% ~ *}\" \"\${rest%% ~ *}\" \"\${match%% ~ *}\" \"\$@\" ${match#* ~ }"
    done
}

# sh_block PAGE [N]: the commands in the N-th block of sh of a page, or in all of them.
sh_block() {
    awk -v n="${2:-0}" '/^```sh$/ { inside = !n || ++k == n; next } /^```$/ { inside = 0 } inside' "$1"
}

# ended_with CODE: the command in the background, $pid, ends with CODE; its output is in $log.
ended_with() {
    wait $pid
    code=$?
    [ $code -eq "$1" ] || { echo "exit code $code, want $1"; tail -n 3 "$log"; return 1; }
}
# signalled CODE SIGNALS FILE PATTERN COMMAND...: once the file has a line like PATTERN, the command gets the signals,
# with time between two of them for what asks again, and it ends with CODE. $log is where its output goes.
signalled() {
    want=$1 signals=$2 file=$3 line=$4; shift 4
    "$@" >"$log" 2>&1 &
    pid=$!
    await grep -q -e "$line" "$file" || return 1
    pause=0
    for signal in $signals; do sleep $pause; kill -$signal $pid; pause=1.2; done
    ended_with "$want"
}

# two_hosts: until the script ends there are the network namespaces $a and $b, 10.9.0.1 and 10.9.0.2, and a wire from
# va$$ to vb$$ between them. Where that cannot be all is skipped.
two_hosts() {
    [ "$(id -u)" = 0 ] || skip_all "two hosts" "needs root"
    command -v ip >/dev/null 2>&1 || skip_all "two hosts" "no ip command; on Debian: apt-get install iproute2"
    a=lsa$$ b=lsb$$ pids=
    trap 'kill -9 $pids 2>/dev/null; ip netns del $a; ip netns del $b; rm -rf "$tmp"' EXIT
    ip netns add $a 2>/dev/null && ip netns add $b && ip link add va$$ netns $a type veth peer name vb$$ netns $b ||
        skip_all "two hosts" "no network namespaces here"
    for host in a:1 b:2; do
        ns=ls${host%:*}$$ wire=v${host%:*}$$
        ip -n $ns addr add 10.9.0.${host#*:}/24 dev $wire
        ip -n $ns link set $wire up
        ip -n $ns link set lo up
    done
}

# hold LOG POINT COMMAND...: the command in the background, $pid, waits at POINT, as "rank=0,step=9,at=bwd", until
# `release CODE`, with which it ends. $on_start is called before it is there, $faults are further ones.
hold() {
    log=$1 at=$2; shift 2
    : >"$tmp/hold"
    : >"$log"
    LOCKSTEP_HOLD=$tmp/hold LOCKSTEP_FAULT="$at,do=hold${faults:-}" "$@" >"$log" 2>&1 &
    pid=$!
    ${on_start:-:}
    await grep -q 'LOCKSTEP_FAULT fires' "$log"
}
release() { rm "$tmp/hold"; ended_with "${1:-0}"; }
# flip FILE PLACE BYTES: other bytes in its midst.
flip() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>"$tmp/dd.log"; }
# preloads WHAT: $tmp/fail.so is tests/fail.c. Where it cannot be all of WHAT is skipped.
preloads() {
    cc -shared -fPIC -O2 -Wall -o "$tmp/fail.so" tests/fail.c -ldl 2>"$tmp/cc.log" ||
        skip_all "$1" "no C compiler for a library to preload: $(head -n 1 "$tmp/cc.log")"
}
# no_flock: with $tmp/noflock.so flock fails with FLOCK_ERRNO. It cannot be made without a C compiler.
no_flock() {
    echo '#include <errno.h>
        #include <stdlib.h>
        int flock(int fd, int how) { (void)fd; (void)how; errno = atoi(getenv("FLOCK_ERRNO")); return -1; }' |
        cc -shared -fPIC -x c -o "$tmp/noflock.so" - 2>"$tmp/cc.log"
}

# has FILE PATTERN...: it has a line like each of them (grep). lacks FILE PATTERN: none like that.
has() {
    looked=$1; shift
    for line in "$@"; do
        grep -q -e "$line" "$looked" || { echo "no line like '$line' in $looked:"; tail -n 4 "$looked"; return 1; }
    done
}
lacks() { [ -r "$1" ] && ! grep -e "$2" "$1"; }
