#!/bin/sh
# make_kernels.sh -- fills docs/kernels.md, between <!--KEY--> and <!---->, with what bench/gpu.sh measured (the newest of
# bench/results/<gpu>.facts) and with what tests/long/test_nvcc.sh read in the machine code (build/sass.facts).
set -eu
cd "$(dirname "$0")/.."
facts=$(ls -t bench/results/*.facts 2>/dev/null | head -n 1)
sass=$(ls build/sass.facts 2>/dev/null || true)
[ -n "$facts$sass" ] || {
    echo 'make_kernels.sh: no bench/results/*.facts, which bench/gpu.sh writes on a machine with a GPU,' \
        'and no build/sass.facts, which tests/long/test_nvcc.sh writes' >&2
    exit 66
}
awk -v gpu="$(basename "$facts" .facts)" 'FILENAME != "docs/kernels.md" { value[$1] = $2; next }
    BEGIN { if (gpu != "") value["gpu"] = gpu }
    {
        out = ""
        while (match($0, /<!--[a-zA-Z0-9_-]+-->[^<]*<!---->/)) {
            cell = substr($0, RSTART, RLENGTH)
            key = substr(cell, 5, index(cell, "-->") - 5)
            out = out substr($0, 1, RSTART - 1) (key in value ? "<!--" key "-->" value[key] "<!---->" : cell)
            $0 = substr($0, RSTART + RLENGTH)
        }
        print out $0
    }' $facts $sass docs/kernels.md >docs/kernels.md.new
mv docs/kernels.md.new docs/kernels.md
