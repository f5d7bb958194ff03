#!/bin/sh
# put.sh -- bench/put.sh PAGE MARKER: what stands in the page between "<!-- MARKER" and "<!-- end of MARKER" becomes
# standard input, which is also printed.
set -eu
new=$(mktemp)
trap 'rm -f "$new" "$new.page"' EXIT
tee "$new"
{
    sed "/^<!-- $2/q" "$1"
    echo
    cat "$new"
    echo
    sed -n "/^<!-- end of $2/,\$p" "$1"
} >"$new.page"
cat "$new.page" >"$1"
