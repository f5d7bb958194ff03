#!/bin/sh
# make_kernels.sh -- puts what bench/gpu.sh measured (bench/results/<gpu>.facts, the newest) into docs/kernels.md, between <!--KEY--> and <!---->.
set -eu
cd "$(dirname "$0")/.."
facts=$(ls -t bench/results/*.facts 2>/dev/null | head -n 1)
[ -n "$facts" ] || { echo 'make_kernels.sh: no bench/results/*.facts; bench/gpu.sh writes them on a machine with a GPU' >&2; exit 66; }
awk -v gpu="$(basename "$facts" .facts)" 'NR == FNR { value[$1] = $2; next }
    BEGIN { value["gpu"] = gpu }
    {
        out = ""
        while (match($0, /<!--[a-zA-Z0-9_-]+-->[^<]*<!---->/)) {
            cell = substr($0, RSTART, RLENGTH)
            key = substr(cell, 5, index(cell, "-->") - 5)
            out = out substr($0, 1, RSTART - 1) (key in value ? "<!--" key "-->" value[key] "<!---->" : cell)
            $0 = substr($0, RSTART + RLENGTH)
        }
        print out $0
    }' "$facts" docs/kernels.md >docs/kernels.md.new
mv docs/kernels.md.new docs/kernels.md
