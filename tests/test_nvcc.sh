#!/bin/sh
# test_nvcc.sh -- the CUDA kernels compile for every architecture we name, without a warning, a spilled register or local memory, and
# without wgmma that wait for each other: ptxas says so, C7510 to C7519, but not as a warning.
# ARCHS="90" tests/test_nvcc.sh: only these.
[ $# -eq 2 ] || . tests/lib.sh            # with two arguments it is its own worker
nvcc=$(sed -n 's/^nvcc = //p' build/config.ninja 2>/dev/null)
[ -n "$nvcc" ] || skip_all nvcc "not installed; the CUDA Toolkit has it"
one() {         # ARCH FILE
    fmad= log=$tmp/$1.$(basename "$2").log
    case $2 in kernels/update.cu) fmad=--fmad=false ;; esac
    if "$nvcc" -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr $fmad -gencode "arch=compute_$1,code=sm_$1" -Xcompiler -Wall,-Wextra \
        -Xptxas -v,--warn-on-spills,--warn-on-local-memory-usage -Werror all-warnings -Isrc -Ikernels -Imodels -DBACKEND=gpu -x cu -c "$2" -o "$log.o" >"$log" 2>&1; then
        grep '(C75' "$log" >"$log.slow" || { echo "ok   sm_$1 $2"; return; }
        log=$log.slow
    fi
    echo "FAIL sm_$1 $2: $(head -n 3 "$log" | tr '\n' '|')"
}
if [ $# -eq 2 ]; then tmp=$WORK; one "$1" "$2"; exit; fi
for arch in ${ARCHS:-80 86 89 90a 100 120}; do for file in kernels/*.cu; do echo "$arch $file"; done; done |
    WORK=$tmp xargs -P "$(nproc)" -n 2 "$0" >"$tmp/verdicts"
cat "$tmp/verdicts"
passed=$(grep -c '^ok' "$tmp/verdicts") failed=$(grep -vc '^ok' "$tmp/verdicts")
# Negative control: a kernel that indexes registers at run time.
cat >"$tmp/spill.cu" <<'CU'
__global__ void spill(float* p, int n) { float x[64]; for (int i = 0; i < 64; i++) x[i] = p[i]; for (int i = 0; i < n; i++) x[i % 64] += p[i]; p[0] = x[n % 64]; }
CU
one 90 "$tmp/spill.cu" >"$tmp/verdict"
if grep -q '^FAIL.*[Ll]ocal memory' "$tmp/verdict"; then ok "local memory is noticed"; else fail "local memory is noticed" "$(cat "$tmp/verdict")"; fi
# And one that changes the accumulators of products in flight.
cat >"$tmp/serial.cu" <<'CU'
#include "common.cuh"
__global__ void serial(float* p, uint64_t a, uint64_t b, int n) {
    float d[32] = {};
    BACKEND::wgmma_fence();
    for (int i = 0; i < n; i++) { BACKEND::wgmma<64, false, false>(d, a, b, true); BACKEND::wgmma_commit(); d[i % 2] += p[i]; }
    BACKEND::wgmma_wait<0>(d);
    for (int i = 0; i < 32; i++) p[i] = d[i];
}
CU
one 90a "$tmp/serial.cu" >"$tmp/verdict"
if grep -q '^FAIL.*(C75' "$tmp/verdict"; then ok "serialised wgmma are noticed"; else fail "serialised wgmma are noticed" "$(cat "$tmp/verdict")"; fi
summary
