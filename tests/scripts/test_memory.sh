#!/bin/sh
# test_memory.sh -- what --dry-run says a run takes is what it takes, and weights are read without a copy of their own.
. tests/cases.sh
[ -r /proc/self/status ] || skip_all memory "no /proc"
tools=${TOOLS:-build}
shape="--model llama --layers 16 --heads 4 --channels 256 --mlp-size 1024 --seq-len 16"
job="--batch-size 1 --total-batch-size 16 $on_lines --dtype fp32 --device cpu --threads 1 $mute"

# peak COMMAND...: its largest resident memory, in MB.
peak() {
    "$@" >"$tmp/peak.log" 2>&1 &
    pid=$! most=0
    while kb=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\).*/\1/p' /proc/$pid/status 2>/dev/null) && [ -n "$kb" ]; do
        most=$kb; sleep 0.02
    done
    wait $pid || { tail -n 3 "$tmp/peak.log" >&2; return 1; }
    echo $((most / 1000))
}
# at_most MB COMMAND...
at_most() {
    limit=$1; shift
    got=$(peak "$@") || return 1
    echo "got $got MB, want at most $limit"
    [ "$got" -le "$limit" ]
}
check "a model to begin with" $train $shape $job --steps 1 --save-every 1 --lr 1e-3 --out-dir "$tmp/one"
check "as a folder" $tools/export "$tmp/one" --hf "$tmp/hf"
file=$(($(stat -c %s "$tmp/hf/model.safetensors") / 1000000))
predicted=$($train --init "$tmp/hf" $job --dry-run | sed -n 's/^memory.* = \([0-9]*\).*/\1/p')
check "a dry run says how much" test "${predicted:-0}" -gt $((file * 4))
# A further copy of the weights would be as large as the file. The process itself takes less than half of that.
room=$((file / 2))
check "fine-tuning takes what the dry run says" at_most $((predicted + room)) \
    $train --init "$tmp/hf" $job --steps 2 --save-every 2 --out-dir "$tmp/two"
check "eval has the weights once" at_most $((file + room)) \
    $train eval "$tmp/hf" $on_lines --dtype fp32 --device cpu --threads 1
predicted=$($train --init "$tmp/hf" --lora 8 $job --dry-run | sed -n 's/^memory.* = \([0-9]*\).*/\1/p')
check "adapters take less than twice the weights" test "${predicted:-0}" -lt $((file * 2))
check "they take what the dry run says" at_most $((predicted + room)) \
    $train --init "$tmp/hf" --lora 8 $job --steps 2 --save-every 2 --out-dir "$tmp/lora"
low() { ! at_most $file $train eval "$tmp/hf" $on_lines --dtype fp32 --device cpu; }
check "less than they take is noticed" low
summary
