#!/bin/sh
# outer.sh -- what --reduce outer costs and saves beside ordered: the validation loss after equal tokens, the bytes that
# a host sends in a step, and a step's time over a slow link.
#   bench/outer.sh [FOLDER]    writes the tables of docs/ddp.md: 10 runs of 1,000 steps, and 7 between two network
#                              namespaces; 20 minutes on two cores, as root. Runs that FOLDER holds already are not made
#                              again. TEXT=FILE is the second text (data/tinyshakespeare.txt).
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
relay=
net_down() {
    [ -z "$relay" ] || kill $relay
    relay=
    for h in a b m; do ip netns del outer_$h 2>"$tmp/net.log" || true; done
}
trap 'net_down; rm -rf "$tmp"' EXIT
folder=${1:-$tmp/runs}
text=${TEXT:-data/tinyshakespeare.txt}
[ -f "$text" ] || data/get_tinyshakespeare.sh
rounds='10 100 500'

# ---- loss after equal tokens
# run NAME OPTION...: unless it is there
run() {
    name=$1
    shift
    ! grep -qs '"event":"done".*"code":0,' "$folder/$name/metrics.jsonl" || return 0
    ./train_gpt --device cpu --dtype fp32 --layers 2 --heads 2 --channels 64 --seq-len 64 --batch-size 4 --dropout 0 \
        --total-batch-size 2048 --steps 1000 --lr 5e-3 --warmup-steps 100 --eval-every 1000 --eval-steps 0 \
        --sample-every 0 --save-every 0 --audit-every 0 --out-dir "$folder/$name" --force "$@" >"$tmp/log" 2>&1 ||
        { tail -n 3 "$tmp/log" >&2; exit 1; }
}
loss() { sed -n 's/.*"event":"val","step":1000,"loss":\([^,]*\),.*/\1/p' "$folder/$1/metrics.jsonl"; }
losses() {          # NAME: in both texts
    awk -v a="$(loss "stories-$1")" -v b="$(loss "shakespeare-$1")" 'BEGIN { printf "%.3f | %.3f", a, b }'
}
for on in stories shakespeare; do
    if [ $on = stories ]; then data=; else data="--data $text --tokenizer char"; fi
    run $on-ordered $data
    for H in $rounds; do run $on-$H --reduce outer --local-steps "$H" $data; done
    run $on-mean --reduce outer --local-steps 10 --meeting-lr 1 --meeting-momentum 0 $data
done

# ---- two hosts, and a link between them
net_up() {          # MBIT_PER_S MS, one way
    for h in a b m; do ip netns add outer_$h; done
    ip link add va netns outer_a type veth peer name wa netns outer_m
    ip link add vb netns outer_b type veth peer name wb netns outer_m
    ip -n outer_a addr add 10.9.0.1/24 dev va
    ip -n outer_b addr add 10.9.0.2/24 dev vb
    for at in a/lo b/lo a/va b/vb m/wa m/wb; do ip -n outer_${at%/*} link set dev ${at#*/} up; done
    ip netns exec outer_m build/bench/slow_link wa wb "$1" "$2" &
    relay=$!
    sleep 1
}
sent() { ip netns exec outer_a cat /sys/class/net/va/statistics/tx_bytes; }
# pair NAME STEPS OPTION...: a rank on each host. $tmp/NAME.sent: the bytes that the first one has sent.
pair() {
    name=$1 steps=$2 pids=
    shift 2
    before=$(sent)
    for rank in 0 1; do
        host=$(echo a b | cut -d' ' -f$((rank + 1)))
        ip netns exec outer_$host env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.9.0.1 \
            MASTER_PORT=29555 LOCKSTEP_SECRET=hush ./train_gpt --device cpu --dtype fp32 --threads 1 --layers 4 \
            --heads 4 --channels 256 --seq-len 64 --batch-size 1 --total-batch-size 128 --replicas 2 --steps $steps \
            --dropout 0 --warmup-steps 0 --eval-every 0 --sample-every 0 --save-every 0 --audit-every 0 --timeout 300 \
            --out-dir "$tmp/$name" --force "$@" >"$tmp/$name.$rank.log" 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do wait $pid || { tail -n 3 "$tmp/$name".*.log >&2; exit 1; }; done
    echo $(($(sent) - before)) >"$tmp/$name.sent"
}
# step_ms NAME EVERY IS: the mean over steps whose number + 1 is (IS = 1) or is not (0) divided by EVERY, but the first.
step_ms() {
    sed -n 's/.*"event":"train","step":\([0-9]*\),.*"step_ms":\([0-9.e+-]*\),.*/\1 \2/p' "$tmp/$1/metrics.jsonl" |
        awk -v every="$2" -v is="$3" '$1 > 0 && (($1 + 1) % every == 0) == is { sum += $2; n++ } END { print sum / n }'
}
scaled() { awk -v x="$1" -v s="$2" 'BEGIN { printf "%.3g", x * s }'; }
# in_rounds LOCAL MEETING H SCALE: a step's mean, of rounds of H.
in_rounds() { awk -v a="$1" -v b="$2" -v H="$3" -v s="$4" 'BEGIN { printf "%.3g", (a * (H - 1) + b) / H * s }'; }
for mbit in 100 1000; do
    net_up $mbit 10
    pair ordered$mbit 30
    pair seldom$mbit 30 --reduce outer --local-steps 10
    [ $mbit = 100 ] || {            # how many bytes there are does not depend on the rate
        pair ordered10 10
        pair seldom10 10 --reduce outer --local-steps 10
        pair each 30 --reduce outer --local-steps 1
    }
    net_down
    step_ms ordered$mbit 1 1 >"$tmp/ordered$mbit.ms"
    step_ms seldom$mbit 10 0 >"$tmp/local$mbit.ms"
    step_ms seldom$mbit 10 1 >"$tmp/meeting$mbit.ms"
done
# Without the start: 20 steps more, of which 2 meet; 30 steps, of which 27 more meet.
sent_by() { cat "$tmp/$1.sent"; }
ordered=$((($(sent_by ordered1000) - $(sent_by ordered10)) / 20))
meeting=$((($(sent_by each) - $(sent_by seldom1000)) / 27))
local=$(((($(sent_by seldom1000) - $(sent_by seldom10)) - 2 * meeting) / 20))
machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
{
    echo "Written by \`bench/outer.sh\`: $machine, $(nproc) cores, $(date +%Y-%m-%d). Validation loss after 1,000"
    echo "steps of 2,048 tokens on 8 replicas, 2 layers of 64 channels, one seed:"
    echo
    echo '| `--reduce` | built-in stories | tinyshakespeare, characters |'
    echo '|---|---:|---:|'
    echo "| ordered | $(losses ordered) |"
    for H in $rounds; do echo "| outer, \`--local-steps $H\` | $(losses "$H") |"; done
    echo "| outer, \`--local-steps 10 --meeting-lr 1 --meeting-momentum 0\` | $(losses mean) |"
    echo
    echo "Two hosts of a rank and a replica each, 4 layers of 256 channels, 128 tokens per step, a round trip of 20 ms"
    echo "(\`bench/slow_link.cpp\`). Measured are 30 steps of ordered, and of outer those between meetings and those"
    echo "that meet, every tenth; rows are computed from these:"
    echo
    echo '| `--reduce` | MB a host sends per step | s per step, 100 Mbit/s | s per step, 1 Gbit/s |'
    echo '|---|---:|---:|---:|'
    printf '| ordered | %s | %s | %s |\n' "$(scaled $ordered 1e-6)" "$(scaled "$(cat "$tmp/ordered100.ms")" 1e-3)" \
        "$(scaled "$(cat "$tmp/ordered1000.ms")" 1e-3)"
    for H in $rounds; do
        printf '| outer, `--local-steps %s` | %s | %s | %s |\n' "$H" \
            "$(in_rounds $local $((local + meeting)) "$H" 1e-6)" \
            "$(in_rounds "$(cat "$tmp/local100.ms")" "$(cat "$tmp/meeting100.ms")" "$H" 1e-3)" \
            "$(in_rounds "$(cat "$tmp/local1000.ms")" "$(cat "$tmp/meeting1000.ms")" "$H" 1e-3)"
    done
} >"$tmp/table"
cat "$tmp/table"
awk -v file="$tmp/table" '
    /^<!-- outer/ { print; print ""; while ((getline line < file) > 0) print line; print ""; skip = 1 }
    /^<!-- end of outer/ { skip = 0 }
    !skip && !/^<!-- outer/' docs/ddp.md >"$tmp/page"
cp "$tmp/page" docs/ddp.md
