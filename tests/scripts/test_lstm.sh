#!/bin/sh
# test_lstm.sh -- whole runs of the LSTM: the same bytes for any number of ranks, resume, and every command, on CPUs.
. tests/lib.sh
tools=${TOOLS:-build}
job="--model lstm --layers 2 --channels 32 --seq-len 16 --batch-size 2 --total-batch-size 256 --replicas 4
    --data tests/golden/lines.txt --warmup-steps 2 --lr 1e-2 --eval-every 4 --eval-steps 2 --audit-every 3"

# Both begin alike, since they have the same first weights and data, and have as many steps; then they differ.
other() {
    losses "$1" >"$tmp/a.losses"
    losses "$2" >"$tmp/b.losses"
    [ -s "$tmp/a.losses" ] && [ "$(head -n 1 "$tmp/a.losses")" = "$(head -n 1 "$tmp/b.losses")" ] &&
        [ "$(wc -l <"$tmp/a.losses")" = "$(wc -l <"$tmp/b.losses")" ] && ! cmp -s "$tmp/a.losses" "$tmp/b.losses"
}
all_of cpu 8 "$train" --device cpu --dtype fp32 --threads 1 --sample-every 4
all_of bf16 8 "$train" --device cpu --dtype bf16 --threads 1 --sample-every 0

lstm=$tmp/cpu-one
job="$job --steps 8 --save-every 4"
check "its samples are in the log" test "$(grep -c '"event":"sample"' "$lstm/metrics.jsonl")" -eq 2
check "two threads give the same bytes" run threads "$train" --device cpu --dtype fp32 --threads 2
check "as one" same "$lstm" "$tmp/threads"
check "dropout and --recompute train" run dropout "$train" --device cpu --dropout 0.1 --recompute 3
check "Muon trains" run muon "$train" --device cpu --dtype fp32 --threads 1 --optimizer muon
check "its matrices otherwise than AdamW does" other "$lstm" "$tmp/muon"
expect "sample" 0 '.' "$train" sample "$lstm" --prompt "The " --max-tokens 40
expect "eval" 0 '^val loss' "$train" eval "$lstm"
expect "info" 0 'LSTM|lstm' "$tools/info" "$lstm/ckpt/step_00000008"
expect "dry run" 0 '.' "$train" $job --dry-run
expect "--help of its preset" 0 'lstm-nano' "$train" --help --model lstm
expect "an option of another model" 2 'heads' "$train" --model lstm --heads 2 --dry-run
expect "channels that no kernel takes" 2 'multiple of 8' "$train" --model lstm --channels 12 --dry-run
expect "export --hf" 0 '.' "$tools/export" "$lstm" --hf "$tmp/hf"
expect "from which another run begins" 0 '^done ' "$train" --init "$tmp/hf" --data tests/golden/lines.txt \
    --batch-size 2 --total-batch-size 64 --steps 2 --out-dir "$tmp/init" --eval-every 0 --save-every 0 --sample-every 0
expect "a format without LSTMs" 2 'lstm' "$tools/export" "$lstm" --gguf "$tmp/x.gguf"
summary
