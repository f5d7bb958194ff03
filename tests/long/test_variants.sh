#!/bin/sh
# test_variants.sh -- every patch of bench/variants says what it wins and costs, applies to this tree, compiles, and
# passes the kernel tests that it names, on the software GPU as a Hopper and as an older GPU. A patch that another
# needs is tested in the other's build.
#   tests/long/test_variants.sh [PART]     only patches whose names contain PART
# inputs: cxx nvcc kernels models tests/kernels tests/gpu tests/test.h bench/variants
. tests/lib.sh
needs_nvcc variants
need build/tests/kernels_ptx
unset CUDA_ARCH SOFT_GPU_REPORT SOFT_GPU_COUNT

words() { sed '/^diff --git /,$d' "$1"; }
needs() { words "$1" | sed -n 's/^Needs: //p'; }
for patch in bench/variants/*"${1:-}"*.patch; do
    v=$(basename "$patch" .patch)
    words "$patch" >"$tmp/words"
    for word in Wins Costs Cases; do check "$v says $word" grep -q "^$word: ." "$tmp/words"; done
    for other in bench/variants/*.patch; do needs "$other"; done | grep -qx "$v" && continue
    cases= tested=$patch
    while [ -n "$tested" ]; do
        cases="$cases $(words "$tested" | sed -n 's/^Cases: //p')"
        tested=$(needs "$tested" | sed 's|.*|bench/variants/&.patch|')
    done
    check "$v applies and compiles" bench/variants/build.sh --ptx "$patch"
    for arch in 90 80; do
        expect "$v on a GPU of $arch:$cases" 0 '^tests: [1-9][0-9]* passed, 0 failed' \
            env SOFT_GPU_ARCH=$arch "build/variants/$v/kernels_ptx" $cases
    done
    rm -rf "build/variants/$v"
done

# Negative controls: a patch for another tree, and none.
printf '%s\n' '--- a/README.md' '+++ b/README.md' '@@ -1 +1 @@' '-another' '+line' >"$tmp/stale.patch"
expect "a patch for another tree is named" 65 'stale.patch does not apply' \
    bench/variants/build.sh --ptx "$tmp/stale.patch"
expect "a name without a patch too" 66 'no patch nothing' bench/variants/build.sh nothing
rm -rf build/variants/stale
summary
