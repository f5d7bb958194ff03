#!/bin/sh
# test_stories.sh -- the default run: how near its validation loss comes to the entropy of the stories, and what it answers.
. tests/lib.sh
start=$(date +%s)
check train $train --out-dir "$tmp/run"
seconds=$(($(date +%s) - start))
line=$(grep '"event":"val"' "$tmp/run/metrics.jsonl" | tail -n 1)
bpb=$(echo "$line" | sed 's/.*"bpb":\([0-9.]*\).*/\1/')
floor=$(sed -n 's/.*"floor":\([0-9.]*\).*/\1/p' "$tmp/run/metrics.jsonl" | tail -n 1)
questions=$(grep '"event":"questions"' "$tmp/run/metrics.jsonl" | tail -n 1)
right=$(echo "$questions" | sed 's/.*"right":\([0-9]*\).*/\1/') asked=$(echo "$questions" | sed 's/.*"asked":\([0-9]*\).*/\1/')
chance=$(echo "$questions" | sed 's/.*"chance":\([0-9.]*\).*/\1/')
echo "bench: stories: $bpb bits per byte, the text's entropy is $floor; $right of $asked questions, chance $chance; $seconds s"
check "within 0.15 bits per byte of the entropy, and not below it" awk "BEGIN { d = $bpb - $floor; exit !(d <= 0.15 && d > -0.005) }"
check "closing questions clearly above chance" awk "BEGIN { exit !($right / $asked > $chance + 0.08) }"
check "the first step is done three seconds after start at the latest" awk -F'"time":' '/"event":"run"/ { split($2, a, ","); t = a[1] } /"event":"train","step":0,/ { split($2, b, ","); d = b[1] - t; print d; exit !(d < 3) }' "$tmp/run/metrics.jsonl"
summary
