#!/bin/sh
# test_stories.sh -- the default run: how near its validation loss comes to the entropy of the built-in text, and how
# many of the closing questions it answers.
# inputs: cxx train_gpt.cu kernels/*.h kernels/cpu models/gpt2.* models/model.* optimizers src/data src/ddp
# inputs: data/make_stories.cpp
. tests/lib.sh
stories=${TOOLS:-build}/data
[ -f "$stories/stories.json" ] || stories=build/data
start=$(date +%s)
check train $train --out-dir "$tmp/run"
seconds=$(($(date +%s) - start))
bpb=$(grep '"event":"val"' "$tmp/run/metrics.jsonl" | tail -n 1 | sed 's/.*"bpb":\([0-9.]*\).*/\1/')
floor=$(sed 's/.*"bits_per_byte":\([0-9.]*\).*/\1/' "$stories/stories.json")
check "within 0.15 bits per byte of the entropy, and not below it" \
    awk "BEGIN { d = $bpb - $floor; exit !(d <= 0.15 && d > -0.005) }"

check "no warning" sh -c "! grep '\"warn\"' '$tmp/run/metrics.jsonl'"
score=$($train eval "$tmp/run" --task "$stories/questions.jsonl")
echo "bench: stories: $bpb bits per byte, entropy $floor; $score; $seconds s"
check "closing questions clearly above chance" \
    awk "BEGIN { split(\"$score\", w); exit !(w[3] > w[10] + 0.08) }"
summary
