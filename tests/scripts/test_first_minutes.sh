#!/bin/sh
# test_first_minutes.sh -- what a new user sees: each line "next" works as it is printed, and a run's
# folder says what is in it.
. tests/lib.sh
train=$faulty root=$PWD
small="--layers 1 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 512 --data
    $PWD/tests/golden/lines.txt --sample-every 0 --eval-steps 2"

# ---- the lines at the end
mkdir "$tmp/it's here" && cd "$tmp/it's here" || exit 1
ln -s "$train" "$tmp/it's here/train gpt"
follow() {          # LOG: each line "next" and those below it
    sed -n '/^next /,$p' "$1" | sed 's/^next */        /' | grep '^        ' >"$tmp/lines"
    while read -r line; do
        expect "$(echo "$line" | sed "s:$tmp::g;s:$root::g")" 0 '' sh -c "$line"
    done <"$tmp/lines"
}
lines() { check "$1 of them" test "$(wc -l <"$tmp/lines")" -eq "$1"; }
"./train gpt" $small --steps 6 --out-dir "a 'run'" >"$tmp/first.log" 2>&1
follow "$tmp/first.log"
lines 4
check "made what they name" test -s "a 'run'/step_00000006-hf/model.safetensors"
best=$(sed -n 's/^best *//p' "$tmp/first.log")
expect "the best checkpoint" 0 '' sh -c "'./train gpt' sample $best"
"./train gpt" --resume "a 'run'" --steps 18 >"$tmp/resumed.log" 2>&1
follow "$tmp/resumed.log"
lines 4
"./train gpt" --init "a 'run'" --lora 8 $small --steps 2 --out-dir lora >"$tmp/lora.log" 2>&1
follow "$tmp/lora.log"
lines 4
"./train gpt" --model lstm --layers 1 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 64 --data \
    "$root/tests/golden/lines.txt" --sample-every 0 --steps 2 --out-dir lstm >"$tmp/lstm.log" 2>&1
follow "$tmp/lstm.log"
lines 4

# ---- names
named() {           # PATTERN OPTIONS...: the folder of a run with these options
    pattern=$1; shift
    rm -rf runs
    "./train gpt" "$@" --steps 1 --eval-every 0 --sample-every 0 >"$tmp/named.log" 2>&1
    check "runs/$pattern" sh -c "ls runs | grep -xE '$pattern-[0-9]{8}-[0-9]{6}'"
}
batch="--batch-size 2 --total-batch-size 64"
cp "$root/tests/golden/lines.txt" "my text (1).v2.txt"
named 'nano-my_text__1_\.v2' ${small%%--data*} --data "my text (1).v2.txt"
mkdir shards && cp "$root/tests/golden/lines.txt" shards/.ö.txt && cp shards/.ö.txt shards/two.txt
named 'nano-shards' ${small%%--data*} --data 'shards/*.txt'
named 'nano-shards' ${small%%--data*} --data shards/
long=$(printf '%060d' 7)
cp "$root/tests/golden/lines.txt" "$long.txt"
named 'nano-0{32}' ${small%%--data*} --data "$long.txt"
named 'lstm-nano-lines' --model lstm --layers 1 --channels 32 --seq-len 32 $batch --data "$root/tests/golden/lines.txt"
cp -r "a 'run'" old
named 'old-lines' --init old $batch --data "$root/tests/golden/lines.txt"
named 'old-lora8-lines' --init old/ckpt/best --lora 8 $batch --data "$root/tests/golden/lines.txt"
named 'step_00000006-hf-lora8-lines' --init old/step_00000006-hf --lora 8 $batch --data "$root/tests/golden/lines.txt"
"$(dirname "$train")/export" old --gguf old/step.gguf >/dev/null
named 'step-lines' --init old/step.gguf $batch --data "$root/tests/golden/lines.txt"
summary
