#!/bin/sh
# weight.sh -- counts what train_gpt is made of: the sources of the objects that the linker takes, by its map, and the
# headers that these include, by ninja's record of dependencies. Headers of the system and of the build do not count.
#
# usage: bench/weight.sh [-l]       prints "N lines, M bytes, F files"; -l: lines and name of each file, too
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
program=build/train_gpt_$(sed -n 's/^goal = //p' build/config.ninja)
ninja "$program" >"$tmp/log" || { cat "$tmp/log"; exit 1; }
eval "$(ninja -t commands -s "$program") -Wl,-Map=$tmp/map -o $tmp/program"

# Objects by name, and members of archives: build/src.a(json.o) is the input of build/src.a that ends in /json.o.
{
    sed -n 's/^LOAD \(build[^(]*\.o\)$/\1/p' "$tmp/map"
    sed -n 's/^\(build[^( ]*\.a\)(\([^)]*\)).*/\1 \2/p' "$tmp/map" | sort -u | while read -r archive member; do
        ninja -t query "$archive" | sed -n "s|^    \(.*/$member\)\$|\1|p"
    done
} | sort -u >"$tmp/objects"
xargs ninja -t deps <"$tmp/objects" | sed -n 's/^    //p' | grep -vE '^(/|build/)' | sort -u >"$tmp/files"
[ "${1:-}" != -l ] || xargs wc -l <"$tmp/files" | grep -v ' total$' | sort -rn
set -- $(xargs cat <"$tmp/files" | wc -lc) $(wc -l <"$tmp/files")
echo "$1 lines, $2 bytes, $3 files"
