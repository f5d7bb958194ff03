# cases.sh -- tests as tables. For scripts that have read tests/lib.sh.

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
