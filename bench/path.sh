#!/bin/sh
# path.sh -- the files of README's reading path, the tables' first one. Prints each file that these include and that the
# path lacks, then "N lines, F files". Headers that the build writes do not count.
#
# usage: bench/path.sh
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# A name without a folder is in the folder of the name before it.
sed -n '/^| file | minutes/,/^$/p' README.md | grep '^| `' | cut -d'|' -f2 | grep -o '`[^`]*`' | tr -d '`' |
    awk '/\// { folder = $0; sub("[^/]*$", "", folder); print; next }
        { print ($0 == "train_gpt.cu" ? "" : folder) $0 }' \
        >"$tmp/listed"
xargs sed -n 's/^#include "\(.*\)"/\1/p' <"$tmp/listed" | grep -v '^build/' | sort -u | grep -vxFf "$tmp/listed" || true
# The optimizers come by a list that the build writes.
grep -v "^#" optimizers/list | sed "s|.*|optimizers/&.h|" | grep -vxFf "$tmp/listed" || true
echo "$(xargs cat <"$tmp/listed" | wc -l) lines, $(wc -l <"$tmp/listed") files"
