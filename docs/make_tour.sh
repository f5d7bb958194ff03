#!/bin/sh
# make_tour.sh -- writes the numbers and pictures of docs/tour.md and learn/layernorm.md: what learn/by_hand.cpp
# prints, learn/cuda/start.cu, the console and curve of the default run with one rank and with two, and the counters of
# learn/cuda (build/ladders.txt, which tests/long/test_ladders.sh leaves; they stay as they are where it has not run).
#
#   docs/make_tour.sh                   runs the default run twice, in fp32
#   docs/make_tour.sh --by-hand PAGE    only what takes neither training nor counters, into PAGE; pictures go beside it
set -eu
cd "$(dirname "$0")/.."
page=docs/tour.md
[ "${1:-}" != --by-hand ] || page=$2
pictures=$(dirname "$page")/pictures
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$pictures"

# put MARKER FILE [PAGE]: lines between "<!-- MARKER" and "<!-- end of MARKER" become the file's, as a block of code.
put() { { echo '```'; cat "$2"; echo '```'; } | bench/put.sh "${3:-$page}" "$1"; }

# A picture is lines of "box X Y TEXT COLOUR" and "line X Y X Y COLOUR", in units of 10 pixels; _ stands for a blank.
draw() {            # WIDTH HEIGHT <LINES
    awk -v width="$1" -v height="$2" '
        BEGIN {
            printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" " \
                "font-size=\"13\" text-anchor=\"middle\">\n", width * 10, height * 10
            print "<defs><marker id=\"end\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"3\" orient=\"auto\">" \
                "<path d=\"M0,0 L7,3 L0,6 z\" fill=\"#888\"/></marker></defs>"
        }
        $1 == "line" {
            printf "<line x1=\"%.0f\" y1=\"%.0f\" x2=\"%.0f\" y2=\"%.0f\" stroke=\"%s\" stroke-width=\"2\" " \
                "marker-end=\"url(#end)\"/>\n", $2 * 10, $3 * 10, $4 * 10, $5 * 10, $6
        }
        $1 == "box" {
            text = $4
            gsub("_", " ", text)
            wide = 18 + 7.5 * length(text)
            printf "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"26\" rx=\"5\" fill=\"%s\"/>" \
                "<text x=\"%.0f\" y=\"%.0f\" fill=\"#fff\">%s</text>\n", $2 * 10 - wide / 2, $3 * 10 - 13, wide, $5,
                $2 * 10, $3 * 10 + 4, text
        }
        END { print "</svg>" }'
}
by_hand_picture() {
    cat <<'PICTURE'
line 11 4 24 4 #888
line 11 12 24 6 #888
line 36 4 45.5 4 #888
line 48.5 4 60.3 4 #888
line 58.6 12 54.8 12 #c0504d
line 40 12 20 17 #c0504d
line 40 12 20 22 #c0504d
box 8 4 x_(2,3) #4a7ebb
box 8 12 w_(4,3) #4a7ebb
box 30 4 logits_=_x_wT #4a7ebb
box 47 4 p #4a7ebb
box 63 4 loss #4a7ebb
box 63 12 dloss_=_1 #c0504d
box 44 12 dlogits_=_(p_-_onehot)_/_N #c0504d
box 13 17 dx_=_dlogits_w #c0504d
box 13 22 dw_=_dlogitsT_x #c0504d
PICTURE
}
tree_picture() {    # of 8 replicas on 2 ranks, which have a colour each
    awk 'BEGIN {
        split("#4a7ebb #5b8c5a", rank, " ")
        for (i = 0; i < 8; i++) x[i] = 6 + 9 * i
        y = 4
        for (count = 8; count > 1; count /= 2) {
            for (i = 0; i < count / 2; i++) {
                middle = (x[2 * i] + x[2 * i + 1]) / 2
                for (k = 0; k < 2; k++) print "line", x[2 * i + k], y, middle, y + 5.5, "#888"
                x[i] = middle
            }
            y += 7
        }
        for (i = 0; i < 8; i++) print "box", 6 + 9 * i, 3, "replica_" i, rank[1 + (i >= 4)]
        y = 10
        for (count = 4; count >= 1; count /= 2) {
            for (i = 0; i < count; i++) {
                size = 8 / count
                color = count == 1 ? "#c0504d" : rank[1 + (i >= count / 2)]
                print "box", 6 + 9 * (i * size + (size - 1) / 2), y, "+", color
            }
            y += 7
        }
        print "box", 15, 28, "rank_0", rank[1]
        print "box", 60, 28, "rank_1", rank[2]
        print "box", 37.5, 28, "across_ranks", "#c0504d"
    }'
}

${CXX:-g++} -std=c++20 learn/by_hand.cpp -o "$tmp/by_hand"
"$tmp/by_hand" >"$tmp/all"
sed '/^$/,$d' "$tmp/all" >"$tmp/numbers"
sed '1,/^$/d' "$tmp/all" >"$tmp/layernorm"
put layernorm "$tmp/layernorm" "$(dirname "$page")/../learn/layernorm.md"
put 'by hand' "$tmp/numbers"
sed '1d' learn/cuda/start.cu >"$tmp/start"
put start "$tmp/start"
by_hand_picture | draw 74 25 >"$pictures/by_hand.svg"
tree_picture | draw 76 31 >"$pictures/tree.svg"
[ "${1:-}" != --by-hand ] || exit 0

if [ -s build/ladders.txt ]; then
    sed -n '/^[a-z][^:]*: moves/p; /^  [1-9] /s/right ([^)]*) *//p' build/ladders.txt >"$tmp/ladders"
    put ladders "$tmp/ladders"
fi

./train_gpt --dtype fp32 --out-dir "$tmp/one" >"$tmp/console"
./train_gpt --dtype fp32 --np 2 --out-dir "$tmp/two" >"$tmp/console2"
sum() { sha256sum <"$tmp/$1/ckpt/step_00000480/model.safetensors" | cut -c1-64; }
[ "$(sum one)" = "$(sum two)" ]
{
    echo '$ ./train_gpt --dtype fp32'
    # Without what depends on the machine, and the steps in between.
    sed -e "s/(.*) | cpu/| cpu/; s/ | [0-9.]* ms |.*//" "$tmp/console" |
        awk '/^step/ { if (split($2, at, "/") && at[1] % 80 && at[1] != 479) next } /^done/ { exit }
            !/^(data|output|saved)/ { print }'
    echo '$ sha256sum runs/last/ckpt/step_00000480/model.safetensors'
    echo "$(sum one)"
    echo '$ ./train_gpt --dtype fp32 --np 2 && sha256sum runs/last/ckpt/step_00000480/model.safetensors'
    echo "$(sum two)"
} | cut -c1-140 >"$tmp/first"
put 'first run' "$tmp/first"
build/plot "$tmp/one" -o "$pictures/curve.svg"
