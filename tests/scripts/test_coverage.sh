#!/bin/sh
# test_coverage.sh -- every CUDA kernel there is has been run by the tests.
#   tests/scripts/test_coverage.sh [PROGRAM...] [-- KERNEL.cu...]
#   PROGRAM    the tests of kernels and those of the single models, emulated
#
# Runs each emulated test program with SIMT_COVERAGE, which lists the kernels it launches, finds their names with nm,
# and fails for a __global__ function of the kernels' or models' files that was never among them. With SIMT_COVERAGE
# set it does not run the programs but reads that file, which runs of them have written. Programs must not be stripped,
# and are told apart by the names of their files.
cd "$(dirname "$0")/../.."
. tests/lib.sh

programs= files=
while [ $# -gt 0 ] && [ "$1" != -- ]; do programs="$programs $1"; shift; done
[ $# -eq 0 ] || shift
files=${*:-kernels/cuda/*.cu kernels/*.h models/*.cu}
if [ -z "$programs" ]; then
    programs=${TOOLS:-build}/tests/kernels_emu
    for source in tests/models/test_*.cpp; do
        name=$(basename "$source" .cpp)             # test_model is of what models have in common, it compares no kernel
        [ "$name" = test_model ] || programs="$programs ${TOOLS:-build}/tests/${name#test_}_emu"
    done
fi

# The names after __global__, which may stand lines before: the first word with a parenthesis that is not an attribute.
kernels_of() {
    cat "$@" | sed 's@//.*@@' | tr '\n' ' ' | sed 's/__global__/\n&/g' | grep '^__global__' |
        sed -E 's/__launch_bounds__ *\([^)]*\)//; s/^__global__[^(]*[^A-Za-z0-9_(]([A-Za-z0-9_]+) *\(.*/\1/' | sort -u
}
# What was launched, as demangled names. $1: coverage file, then programs.
launched() {
    coverage=$1; shift
    for program in "$@"; do
        nm -C "$program" | awk -v coverage="$coverage" -v program="$(basename "$program")" '
            BEGIN {
                while ((getline line < coverage) > 0) {
                    split(line, part, " ")
                    if (part[2] == program) wanted[part[1]] = 1
                }
            }
            { address = $1; sub(/^0+/, "", address); if (address in wanted) { $1 = $2 = ""; print } }'
    done
}
# Names of `kernels` that no line of `names` has: as a function or a template, behind any namespace.
never_launched() {
    while read -r kernel; do
        grep -qE "(^|[^A-Za-z0-9_])$kernel(<|\()" "$1" || echo "$kernel"
    done
}

coverage=${SIMT_COVERAGE:-}
if [ -z "$coverage" ]; then
    coverage=$tmp/coverage
    for program in $programs; do
        check "$(basename "$program") runs" env SIMT_COVERAGE="$coverage" "$program"
    done
fi
[ -s "$coverage" ] || { fail coverage "no kernel was launched"; give_up; }

# shellcheck disable=SC2086
launched "$coverage" $programs >"$tmp/names"
# shellcheck disable=SC2086
kernels_of $files >"$tmp/kernels"
if [ ! -s "$tmp/kernels" ]; then fail kernels "none found in $files"
else
    never_launched "$tmp/names" <"$tmp/kernels" >"$tmp/missing"
    if [ -s "$tmp/missing" ]; then fail "all kernels are launched" "never: $(tr '\n' ' ' <"$tmp/missing")"
    else ok "all $(wc -l <"$tmp/kernels" | tr -d ' ') kernels are launched"; fi
fi

# Negative control: one kernel more, in the ways they are written.
cat >"$tmp/more.cu" <<'CU'
__global__ void nobody_calls_this(int* p) { p[0] = 1; }
template <int N>
__global__ void __launch_bounds__(128, 2)
nor_this(int* p) { p[0] = N; }
// __global__ void this_is_a_comment(int* p)
CU
found=$(kernels_of "$tmp/more.cu" | never_launched "$tmp/names" | tr '\n' ' ')
check "a kernel that nobody calls is named" [ "$found" = "nobody_calls_this nor_this " ]
summary
