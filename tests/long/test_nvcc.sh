#!/bin/sh
# test_nvcc.sh -- the CUDA kernels compile for every architecture we name, without a warning, a spilled register or
# local memory, and without wgmma that wait for each other: ptxas says so, C7510 to C7519, but not as a warning. Then
# tests/sass.awk reads the machine code: build/sass.txt has its table, build/sass.facts what docs/make_kernels.sh takes.
# Only the device code is compiled; the build compiles the host's. ARCHS="90a" tests/long/test_nvcc.sh: only these.
# NVDISASM: where nvdisasm is, if neither beside nvcc nor in build/venv.
# inputs: nvcc ARCHS kernels/*.h kernels/cuda models src/base/*.h tests/sass.* tests/cuda/bad_kernels.cu
[ $# -eq 2 ] || . tests/lib.sh            # with two arguments it is its own worker
nvcc=$(sed -n 's/^nvcc = //p' build/config.ninja 2>/dev/null)
[ -n "$nvcc" ] || skip_all nvcc "not installed; the CUDA Toolkit has it"
nvdisasm=${NVDISASM:-$(ls "${nvcc%/*}/nvdisasm" build/venv/lib/python3*/site-packages/nvidia/*/bin/nvdisasm \
    2>/dev/null | head -n 1)}
archs=${ARCHS:-80 86 89 90a 100 120} limits=tests/sass.limits
# The PTX of 80 is that of 86 and 89, but for its .target.
ptx_of() { case $1 in 86|89) echo 80 ;; *) echo "$1" ;; esac; }
one() {         # ARCH FILE
    fmad= log=$tmp/$1.$(basename "$2").log from=$(ptx_of "$1")
    ptx=$tmp/$from.$(basename "$2").ptx
    case $2 in */update.cu) fmad=--fmad=false ;; esac           # as ./configure has it
    if { [ -s "$ptx" ] || "$nvcc" -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr --extended-lambda $fmad \
            -gencode "arch=compute_$from,code=compute_$from" -Werror all-warnings -I. -DBACKEND=gpu -x cu -ptx "$2" \
            -o "$ptx"; } >"$log" 2>&1 &&
        "$nvcc" -O3 -lineinfo -gencode "arch=compute_$from,code=sm_$1" -Werror all-warnings \
            -Xptxas -v,--warn-on-spills,--warn-on-local-memory-usage -cubin "$ptx" -o "$log.o" >>"$log" 2>&1; then
        grep '(C75' "$log" >"$log.slow" || { echo "ok   sm_$1 $2"; lint "$1" "$2"; return; }
        log=$log.slow
    fi
    echo "FAIL sm_$1 $2: $(head -n 3 "$log" | tr '\n' '|')"
}
lint() {        # ARCH FILE: a FAIL for what should not be in its machine code; $log.rows gets the loops
    [ -n "$nvdisasm" ] || return
    { cat "$log"; "$nvdisasm" -c "$log.o" | sed 's/^\.text\./function /'; } | c++filt |
        awk -v arch="$1" -v rows="$log.rows" -f tests/sass.awk "$limits" - | sed "s|^|FAIL sm_$1 $2: |"
}
if [ $# -eq 2 ]; then           # FILE ARCHS: one after the other, as they share PTX
    tmp=$WORK
    for arch in $2; do one "$arch" "$1"; done
    exit
fi
for file in kernels/cuda/*.cu $(grep -l kernels/elements.h models/*.cpp optimizers/*.cpp); do
    printf '%s\0%s\0' "$file" "$archs"
done |
    WORK=$tmp xargs -0 -P "$(nproc)" -n 2 "$0" >"$tmp/verdicts"
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
#include "kernels/cuda/hopper.cuh"
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

# ------------------------ the machine code
[ -n "$nvdisasm" ] || { skip "machine code" "no nvdisasm; the CUDA Toolkit has it, or pip install nvidia-cuda-nvdisasm"
    give_up; }
{
    echo "label        | arch | registers | counted      | times | instructions |  R2UR | kernel"
    sort -t '|' -k 1,1r -k 8 "$tmp"/*.cu.log.rows
} >build/sass.txt
# For docs/make_kernels.sh: of a kernel's loops the shortest, of kernels with one label the longest.
awk -F ' *[|] *' '
    $1 == "-" || $2 != "90a" || $5 == 0 { next }
    { k = $1 " " $8 }
    !(k in least) || $6 + 0 < least[k] { least[k] = $6 + 0; line[k] = $1 " " least[k] " " $7 + 0 " " $3 }
    END { for (k in line) print line[k] }' build/sass.txt |
    sort -k 1,1 -k 2,2nr |
    awk '!seen[$1]++ { print "sass-" $1, $2 "\nr2ur-" $1, $3 "\nregisters-" $1, $4 }' >build/sass.facts
# A limit that fits no kernel would say nothing. idle LIMITS ROWS prints them.
idle() {
    awk -F ' *[|] *' -v archs=" $archs " 'NR == FNR { found[$1]; next }
        /^[^#]/ && !($1 in found) && ($2 == "*" || index(archs, " " $2 " ")) { print $1 }' "$2" "$1"
}
all_fit() { [ -z "$(idle "$limits" build/sass.txt)" ]; }
check "every limit is for some kernel" all_fit

# Negative controls: each kernel but the good ones breaks one rule.
limits=$tmp/limits
cat >"$limits" <<'LIMITS'
loop  | 90a | 1x128 | HGMMA | 1 | 99 | 0 | products<Divergent>
loop  | 90a | 1x128 | HGMMA | 1 |  5 | 0 | products<Long>
loop  | 90a | 4x512 | HGMMA | 1 | 99 | 0 | products<Many>
tail  | 90a | 1x128 | behind |  |  9 |   | products<Long>
loop  | 90a | 1x128 | HGMMA | 1 | 99 | 0 | products<
block | 90a | 1x384 | -     |   |    |   | warpgroups
gone  | 90a | 1x128 | HGMMA | 1 | 99 | 0 | renamed_kernel
LIMITS
one 90a tests/cuda/bad_kernels.cu >"$tmp/verdict"
while IFS='|' read -r kernel what; do
    check "in $kernel '$what' is noticed" grep -q "bad_kernels.cu: $kernel: .*$what" "$tmp/verdict"
done <<'FINDINGS'
products<Fences>|MEMBAR, ERRBAR and CCTL in a loop of products
products<Spins>|spins on something other than SYNCS
products<NoOperand>|has no SYNCS
products<NoWait>|has no WARPGROUP.DEPBAR
products<Divergent>|R2UR for 1 HGMMA, want at most 0
products<Long>|instructions for 1 HGMMA, want at most 5
products<Long>|instructions behind the last HGMMA, want at most 9
products<Many>|registers, want at most 32 for 4 blocks of 512
warpgroups|ask for 66560 registers, the block has 64512
portable<Fences>|MEMBAR, ERRBAR and CCTL in a loop of products
copies|has no LDGDEPBAR or no DEPBAR
FINDINGS
good() { grep '^ok' "$tmp/verdict" && ! grep '<Good>' "$tmp/verdict"; }
check "nothing is found in good kernels" good
archs=90a
check "a limit for no kernel is noticed" [ "$(idle "$limits" "$tmp"/90a.bad_kernels.cu.log.rows)" = gone ]
nvdisasm=true
lint 90a tests/cuda/bad_kernels.cu >"$tmp/nothing" 2>&1
check "machine code that is not read is noticed" grep -q 'got that of 0 kernels, want 12' "$tmp/nothing"
summary
