#!/bin/sh
# test_tour.sh -- docs/tour.md: its numbers and pictures are what the programs print.
. tests/lib.sh
page=docs/tour.md
mkdir "$tmp/docs" "$tmp/learn"
made() { cp "$page" "$tmp/docs" && cp learn/layernorm.md "$tmp/learn" &&
    docs/make_tour.sh --by-hand "$tmp/docs/tour.md" && diff "$page" "$tmp/docs/tour.md" &&
    diff learn/layernorm.md "$tmp/learn/layernorm.md" && diff docs/pictures/tree.svg "$tmp/docs/pictures/tree.svg" &&
    diff docs/pictures/by_hand.svg "$tmp/docs/pictures/by_hand.svg"; }
check "the page is what docs/make_tour.sh writes" made
check "the gradients are right" sh -c "${CXX:-g++} -std=c++20 learn/by_hand.cpp -o '$tmp/by_hand' && '$tmp/by_hand'"
wrong() {           # FROM TO: by_hand.cpp with this change
    sed "s|$1|$2|" learn/by_hand.cpp >"$tmp/wrong.cpp" && ! cmp -s learn/by_hand.cpp "$tmp/wrong.cpp" &&
        ${CXX:-g++} -std=c++20 "$tmp/wrong.cpp" -o "$tmp/wrong" && ! "$tmp/wrong" >"$tmp/wrong.txt"
}
check "a wrong dlogits is noticed" wrong '(p\[n\]\[v\] - (v == target\[n\])) / N' 'p[n][v] - (v == target[n])'
check "a wrong dw is noticed" wrong 'dlogits\[n\]\[v\] \* x\[n\]\[c\]' 'dlogits[n][v] * x[n][0]'
check "a LayerNorm without one of its parts, too" wrong ' - norm\[0\]\[c\] \* b' ''
check "at most 3,000 words" test "$(wc -w <"$page")" -le 3000
sums=$(grep -cE '^[0-9a-f]{64}$' "$page")
check "two runs, one sha256" test "$sums $(grep -E '^[0-9a-f]{64}$' "$page" | sort -u | wc -l)" = "2 1"
for name in $(grep -o 'learn/check [a-z_0-9]*' "$page" | cut -d' ' -f2 | sort -u); do
    check "the exercise $name is there" sh -c "ls learn/exercises/$name.*"
done
summary
