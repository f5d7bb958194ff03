#!/bin/sh
# weight.sh -- counts what this repository weighs, in code tokens (bench/tokens.awk) and files: each folder, and, where
# it is built with CUDA, train_gpt as linked: the sources of the objects that the linker takes, by its map, and the
# headers that these include, by ninja's record of dependencies. Headers of the system and the build do not count.
# Lines are free: two plain lines weigh what one crowded line does.
#
# usage: bench/weight.sh            prints "NAME TOKENS FILES" for train_gpt and each folder
#        bench/weight.sh -l         prints "TOKENS LINES FILE" for each file of train_gpt
#        bench/weight.sh -w         lowers the numbers of .ci/budget that are too high, and writes README's line from it
#        bench/weight.sh --log      names each commit that raised a number of .ci/budget and does not say what it buys
set -eu
cd "${WEIGHT_OF:-$(dirname "$0")/..}"
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

folders() {
    git ls-files | grep -E '\.(cpp|h|cu|cuh|c|py|sh|awk|ninja)$|/run$|/house$|^configure$' |
        xargs awk -f "$here/tokens.awk" |
        awk '{ folder = $3 ~ /\// ? $3 : "root"; sub("/.*", "", folder); t[folder] += $1; n[folder]++ }
            END { for (folder in t) print folder, t[folder], n[folder] }' | sort
}
linked() {
    program=build/train_gpt_$(sed -n 's/^goal = //p' build/config.ninja)
    ninja "$program" >"$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
    eval "$(ninja -t commands -s "$program") -Wl,-Map=$tmp/map -o $tmp/program"
    # Objects by name, and members of archives: build/src.a(json.o) is the input of build/src.a that ends in /json.o.
    {
        sed -n 's/^LOAD \(build[^(]*\.o\)$/\1/p' "$tmp/map"
        sed -n 's/^\(build[^( ]*\.a\)(\([^)]*\)).*/\1 \2/p' "$tmp/map" | sort -u | while read -r archive member; do
            ninja -t query "$archive" | sed -n "s|^    \(.*/$member\)\$|\1|p"
        done
    } | sort -u | xargs ninja -t deps | sed -n 's/^    //p' | grep -vE '^(/|build/)' | sort -u |
        xargs awk -f "$here/tokens.awk"
}
weigh() {
    folders
    grep -q '^goal = gpu' build/config.ninja || return 0
    linked >"$tmp/linked"
    awk '{ t += $1 } END { print "train_gpt", t, NR }' "$tmp/linked"
}
# A commit may raise a number if its message has a line "Budget: +N NAME, what it buys", N at least the tokens added.
raised() {
    for commit in $(git log --format=%H -- .ci/budget); do
        git show "$commit^:.ci/budget" >"$tmp/before" 2>/dev/null || continue       # the commit that began it
        git show "$commit:.ci/budget" >"$tmp/after"
        git log -1 --format=%B "$commit" | sed -n 's/^Budget: +\([0-9]*\) \([^,]*\), [^ ].*/\2 \1/p' >"$tmp/bought"
        awk -v commit="$(git log -1 --format='%h %s' "$commit")" '
            /^#/ { next }
            FILENAME == ARGV[1] { bought[$1] += $2; next }
            FILENAME == ARGV[2] { tokens[$1] = $2; files[$1] = $3; next }
            ($2 > tokens[$1] || $3 > files[$1]) && (!($1 in bought) || $2 > tokens[$1] + bought[$1]) {
                printf "%s: %s rose from %d tokens, %d files to %d, %d\n", commit, $1, tokens[$1], files[$1], $2, $3
            }' "$tmp/bought" "$tmp/before" "$tmp/after"
    done
}
case ${1:-} in
    -l) linked | sort -rn ;;
    --log) raised ;;
    -w)
        weigh >"$tmp/weight"
        awk 'FILENAME == ARGV[1] { tokens[$1] = $2; files[$1] = $3; next }
            /^#/ { print; next }
            { printf "%-10s %7d %7d\n", $1, least($2, tokens[$1]), least($3, files[$1]) }
            function least(a, b) { return b == "" || a < b ? a : b }' "$tmp/weight" .ci/budget >"$tmp/budget"
        cp "$tmp/budget" .ci/budget
        set -- $(grep '^train_gpt ' .ci/budget)
        sed -i "s/^Linked into train_gpt: .* files/Linked into train_gpt: $2 code tokens in $3 files/" README.md ;;
    *) weigh ;;
esac
