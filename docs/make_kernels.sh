#!/bin/sh
# make_kernels.sh -- fills docs/kernels.md, between <!--KEY--> and <!---->, with what bench/gpu.sh measured (the newest of
# bench/results/<gpu>.facts), what tests/long/test_nvcc.sh read in the machine code (build/sass.facts) and the bounds
# of tests/long/test_bounds.sh (build/gpu_bounds.facts), whose table (build/gpu_bounds.md) it puts in, too: kernels
# of 20 us and more.
set -eu
cd "$(dirname "$0")/.."
facts=$(ls -t bench/results/*.facts 2>/dev/null | head -n 1)
counts=$(ls build/sass.facts build/gpu_bounds.facts 2>/dev/null || true)
[ -n "$facts$counts" ] || {
    echo 'make_kernels.sh: no bench/results/*.facts, which bench/gpu.sh writes on a machine with a GPU, no' \
        'build/sass.facts of tests/long/test_nvcc.sh, and no build/gpu_bounds.facts of tests/long/test_bounds.sh' >&2
    exit 66
}
awk -v gpu="$(basename "$facts" .facts)" '
    # Of a line of build/gpu_bounds.md the columns that the page shows; "" for a kernel of less than 20 us.
    function columns(line,   field, shown, n, i, out) {
        split(line, field, / *[|] */)
        if (field[19] ~ /^[0-9.]+$/ && field[19] < 20) return ""
        n = split("2 4 6 7 9 18 19 22 20", shown, " ")
        for (i = 1; i <= n; i++) out = out "| " field[shown[i]] " "
        return out "|"
    }
    /^<!-- bounds: / && (getline line <"build/gpu_bounds.md") > 0 {
        print
        while ((getline line <"build/gpu_bounds.md") > 0) if (line ~ /^[|]/ && columns(line) != "") print columns(line)
        while ($0 != "<!-- end -->") if (getline <= 0) exit 1
    }
    FILENAME != "docs/kernels.md" { value[$1] = $2; next }
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
    }' $facts $counts docs/kernels.md >docs/kernels.md.new
mv docs/kernels.md.new docs/kernels.md
