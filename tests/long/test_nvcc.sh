#!/bin/sh
# test_nvcc.sh -- the CUDA kernels compile for every architecture we name, without a warning, a spilled register or
# local memory, and without wgmma that wait for each other: ptxas says so, C7510 to C7519, but not as a warning.
# Only the device code is compiled; the build compiles the host's. ARCHS="90" tests/long/test_nvcc.sh: only these.
[ $# -eq 2 ] || . tests/lib.sh            # with two arguments it is its own worker
nvcc=$(sed -n 's/^nvcc = //p' build/config.ninja 2>/dev/null)
[ -n "$nvcc" ] || skip_all nvcc "not installed; the CUDA Toolkit has it"
one() {         # ARCH FILE
    fmad= log=$tmp/$1.$(basename "$2").log
    case $2 in */update.cu) fmad=--fmad=false ;; esac           # as ./configure has it
    if "$nvcc" -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr --extended-lambda $fmad \
        -gencode "arch=compute_$1,code=sm_$1" -Xptxas -v,--warn-on-spills,--warn-on-local-memory-usage \
        -Werror all-warnings -I. -DBACKEND=gpu -x cu -cubin "$2" -o "$log.o" >"$log" 2>&1; then
        grep '(C75' "$log" >"$log.slow" || { echo "ok   sm_$1 $2"; return; }
        log=$log.slow
    fi
    echo "FAIL sm_$1 $2: $(head -n 3 "$log" | tr '\n' '|')"
}
if [ $# -eq 2 ]; then tmp=$WORK; one "$1" "$2"; exit; fi
for arch in ${ARCHS:-80 86 89 90a 100 120}; do
    for file in kernels/cuda/*.cu models/*.cu; do echo "$arch $file"; done
done |
    WORK=$tmp xargs -P "$(nproc)" -n 2 "$0" >"$tmp/verdicts"
cat "$tmp/verdicts"
passed=$(grep -c '^ok' "$tmp/verdicts") failed=$(grep -vc '^ok' "$tmp/verdicts")
# Negative control: a kernel that indexes registers at run time.
cat >"$tmp/spill.cu" <<'CU'
__global__ void spill(float* p, int n) {
    float x[64];
    for (int i = 0; i < 64; i++) x[i] = p[i];
    for (int i = 0; i < n; i++) x[i % 64] += p[i];
    p[0] = x[n % 64];
}
CU
one 90 "$tmp/spill.cu" >"$tmp/verdict"
check "local memory is noticed" grep -q '^FAIL.*[Ll]ocal memory' "$tmp/verdict"
# And one that changes the accumulators of products in flight.
cat >"$tmp/serial.cu" <<'CU'
#include "kernels/cuda/common.cuh"
__global__ void serial(float* p, uint64_t a, uint64_t b, int n) {
    float d[32] = {};
    BACKEND::wgmma_fence();
    for (int i = 0; i < n; i++) {
        BACKEND::wgmma<64, false, false>(d, a, b, true);
        BACKEND::wgmma_commit();
        d[i % 2] += p[i];
    }
    BACKEND::wgmma_wait<0>(d);
    for (int i = 0; i < 32; i++) p[i] = d[i];
}
CU
one 90a "$tmp/serial.cu" >"$tmp/verdict"
check "serialised wgmma are noticed" grep -q '^FAIL.*(C75' "$tmp/verdict"
summary
