#!/bin/sh
# test_first_minutes.sh -- each line "next" works as it is printed, and a run's folder says what is in it.
. tests/cases.sh
train=$faulty root=$PWD
small="--layers 1 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 512"
seen="$small $on_lines --sample-every 0 --eval-steps 2"

# ---- the lines at the end
mkdir "$tmp/it's here" && cd "$tmp/it's here" || exit 1
ln -s "$train" "$tmp/it's here/train gpt"
leads() {           # OPTIONS...: each of the four lines "next" of this run works
    "./train gpt" "$@" >"$tmp/run.log" 2>&1
    sed -n '/^next /,$p' "$tmp/run.log" | sed 's/^next */        /' | grep '^        ' >"$tmp/lines"
    while read -r line; do
        expect "$(echo "$line" | sed "s:$tmp::g;s:$root::g")" 0 '' sh -c "$line"
    done <"$tmp/lines"
    check "there are four" test "$(wc -l <"$tmp/lines")" -eq 4
}
batch="--batch-size 2 --total-batch-size 64" lstm="--model lstm --layers 1 --channels 32 --seq-len 32"
leads $seen --steps 6 --out-dir "a 'run'"
check "made what they name" test -s "a 'run'/step_00000006-hf/model.safetensors"
best=$(sed -n 's/^best *//p' "$tmp/run.log")
expect "the best checkpoint" 0 '' sh -c "'./train gpt' sample $best"
leads --resume "a 'run'" --steps 18
leads --init "a 'run'" --lora 8 $seen --steps 2 --out-dir lora
leads $lstm $batch $on_lines --sample-every 0 --steps 2 --out-dir lstm

# ---- names
named() {           # PATTERN OPTIONS...: the folder of a run with these options
    pattern=$1; shift
    rm -rf runs
    "./train gpt" "$@" --steps 1 $mute >"$tmp/named.log" 2>&1
    check "runs/$pattern" sh -c "ls runs | grep -xE '$pattern-[0-9]{8}-[0-9]{6}'"
}
cp "$root/tests/golden/lines.txt" "my text (1).v2.txt"
named 'nano-my_text__1_\.v2' $small --data "my text (1).v2.txt"
mkdir shards && cp "$root/tests/golden/lines.txt" shards/.ö.txt && cp shards/.ö.txt shards/two.txt
named 'nano-shards' $small --data 'shards/*.txt'
named 'nano-shards' $small --data shards/
long=$(printf '%060d' 7)
cp "$root/tests/golden/lines.txt" "$long.txt"
named 'nano-0{32}' $small --data "$long.txt"
named 'lstm-nano-lines' $lstm $batch $on_lines
cp -r "a 'run'" old
named 'old-lines' --init old $batch $on_lines
named 'old-lora8-lines' --init old/ckpt/best --lora 8 $batch $on_lines
named 'step_00000006-hf-lora8-lines' --init old/step_00000006-hf --lora 8 $batch $on_lines
"$(dirname "$train")/export" old --gguf old/step.gguf >/dev/null
named 'step-lines' --init old/step.gguf $batch $on_lines
summary
