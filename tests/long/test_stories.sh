#!/bin/sh
# test_stories.sh -- the default run: how near its validation loss comes to the entropy of the built-in text, and how
# many of the closing questions it answers.
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

# ask N: answers the first N questions, greedily; writes how many were right, and how many a guess would get.
ask() {
    asked=0 right=0
    head -n "$1" "$stories/questions.jsonl" |
        sed 's/^{"context":"//; s/","answer":"/|/; s/","choices":/|/; s/}$//; s/\\"/"/g' >"$tmp/asked"
    while IFS='|' read -r context answer choices; do
        said=$($train sample "$tmp/run" --prompt "$context" --temperature 0 --max-tokens ${#answer} </dev/null)
        asked=$((asked + 1))
        [ "$said" != "$context$answer" ] || right=$((right + 1))
        echo "$choices" >>"$tmp/choices"
    done <"$tmp/asked"
    chance=$(awk '{ sum += 1 / $1 } END { print sum / NR }' "$tmp/choices")
}
ask 200
echo "bench: stories: $bpb bits per byte, entropy $floor; $right of $asked questions, chance $chance; $seconds s"
check "closing questions clearly above chance" awk "BEGIN { exit !($right / $asked > $chance + 0.08) }"
summary
