#!/bin/sh
# test_bounds.sh -- the CUDA kernels use memory, banks and instructions no worse than tests/golden/gpu_bounds.txt says.
#   tests/long/test_bounds.sh            counts, checks, writes the table of all bounds: build/gpu_bounds.md
#   tests/long/test_bounds.sh --new      prints gpu_bounds.txt with the numbers of now
#   tests/long/test_bounds.sh COUNTS     reads what SOFT_GPU_COUNT wrote of build/bench/gpu_counts before
#
# The software GPU counts (tests/gpu/count.h), for 132 multiprocessors; tests/gpu.awk makes bounds of the counts.
cd "$(dirname "$0")/../.."
# inputs: cxx nvcc kernels models optimizers bench/gpu_counts.cpp tests/gpu tests/gpu.awk tests/golden/gpu_bounds.txt
. tests/lib.sh
program=${TOOLS:-build}/bench/gpu_counts bounds=tests/golden/gpu_bounds.txt
needs_nvcc bounds
need build/bench/gpu_counts
unset SOFT_GPU_REPORT SOFT_GPU_COUNT SOFT_GPU_SMS SOFT_GPU_SEED LOCKSTEP_TILE

count() { SOFT_GPU_ARCH=$1 SOFT_GPU_COUNT=$2 "$program" "$3"; }         # ARCH FILE PART
# BOUNDS COUNTS [TABLE [LIMITS]]
findings() {
    awk -v rows="${3:-}" -v limits="${4:-}" -v facts="${3:+build/gpu_bounds.facts}" -f tests/gpu.awk "$1" "$2"
}
none() { [ ! -s "$1" ] || { head -n 6 "$1"; return 1; }; }

counts=$tmp/counts
case ${1:-} in
    '') for arch in 90 80; do check "the kernels run on sm_$arch" count $arch "$counts" ''; done ;;
    --new)
        count 90 "$counts" '' && count 80 "$counts" '' && findings $bounds "$counts" build/gpu_bounds.md "$tmp/new" >&2
        cat "$tmp/new"
        exit ;;
    *) counts=$1 ;;
esac
findings $bounds "$counts" build/gpu_bounds.md >"$tmp/findings"
check "efficiency, bank conflicts, traffic and instructions are within the bounds" none "$tmp/findings"

# Negative controls: a kernel whose threads lie twice as far apart, each number of the bounds lowered, a kernel that has
# no bounds, one that is not there, and an operation that was not done.
tab=$(printf '\t')
SOFT_GPU_PATCH="shl.b64${tab}, 4;${tab}, 5;" count 90 "$tmp/stride" gelu_forward >"$tmp/log" 2>&1
findings $bounds "$tmp/stride" | grep -E '^gelu_forward: (efficiency|traffic)' >"$tmp/got"
echo 'gelu_forward: efficiency: got 0.50, want at least 1.00' >"$tmp/want"
grep '^gelu_forward: traffic: got 2.00' "$tmp/got" >>"$tmp/want"
check "a stride of 32 bytes between threads of 16 is noticed" diff "$tmp/want" "$tmp/got"

awk -F '|' -v OFS='|' '/^tree_reduce of 2/ { $2 = 1.01; $3 = 0.99; $4 = 0.99; $5 = 1 } !/^hash_floats/
    END { print "nobody | 1 | 1 | 1 | 1 |" }' $bounds >"$tmp/lowered"
awk -F '\t' -v OFS='\t' '/^kernel\tgelu_forward\t/ { $4 *= 2 } { print }' "$counts" >"$tmp/undone"
findings "$tmp/lowered" "$tmp/undone" | sed 's/: got .*//' | sort >"$tmp/got"
cat >"$tmp/want" <<'FINDINGS'
gelu_forward: traffic
hash_floats: not in the bounds; tests/long/test_bounds.sh --new prints it
nobody: not counted, but in the bounds
tree_reduce of 2: bank factor
tree_reduce of 2: efficiency
tree_reduce of 2: instructions/element
tree_reduce of 2: traffic
FINDINGS
check "each bound is one" diff "$tmp/want" "$tmp/got"
summary
