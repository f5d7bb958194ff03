#!/bin/sh
# test_mutants.sh -- the tests would see a fault in the kernels' special instructions: each of these is put into the PTX
# of all kernels (SOFT_GPU_PATCH of the software GPU), and a test must then fail.
#   tests/long/test_mutants.sh [PART]     only mutants whose names contain PART
# inputs: cxx nvcc kernels optimizers tests/kernels tests/gpu
. tests/lib.sh
program=${TOOLS:-$PWD/build}/tests/kernels_ptx
needs_nvcc mutants
need build/tests/kernels_ptx
unset SOFT_GPU_REPORT SOFT_GPU_COUNT
SOFT_GPU_SMS=2; export SOFT_GPU_SMS     # so that a persistent block has several tiles
tab=$(printf '\t')

# patched WORD REGEX TEXT TEST: the test's exit code with the fault; 124 if it never ends.
patched() {
    env ${split:+SOFT_GPU_SPLIT=1} SOFT_GPU_PATCH="$1$tab$2$tab$3" timeout 120 "$program" "$4" >"$tmp/mutant.log" 2>&1
}
seen() {
    if patched "$@"; then echo "passes with it"; return 1; fi
    ! grep 'PTX for' "$tmp/mutant.log"          # the parser's error: nothing was executed
}

# name | test | a word of the line | what there (regular expression) | becomes what
R='(%[a-z]+[0-9]+)'
split=
while IFS='~' read -r name test word what text; do
    case $name in *"${1:-}"*) ;; *) continue ;; esac
    split=                                      # lanes in lockstep hide a missing __syncwarp
    case $name in *syncwarp*) split=1 ;; esac
    what=$(printf '%s' "$what" | sed "s/R/$R/g")
    check "$name" seen "$word" "$what" "$text" "$test" </dev/null
done <<'MUTANTS'
ldmatrix: registers 1 and 2 exchanged~matmul_large~ldmatrix~\{R,R,R,R\}~{$1,$3,$2,$4}
ldmatrix: .trans forgotten~matmul_large~ldmatrix~\.trans~
ldmatrix: .trans everywhere~matmul_by_tile~ldmatrix~x4\.shared~x4.trans.shared
mma: a1 and a2 exchanged~matmul_large~mma.sync~\}, \{R,R,R,R\}, \{~}, {$1,$3,$2,$4}, {
mma: b0 and b1 exchanged~matmul_large~mma.sync~, \{R,R\}, \{~, {$2,$1}, {
mma: d1 and d2 exchanged~matmul_large~mma.sync~f32 \{R,R,R,R\}~f32 {$1,$3,$2,$4}
pack2: halves exchanged~matmul_large~cvt.rn.bf16x2~R, R, R~$1, $3, $2
cp.async: always 16 bytes~matmul_large~cp.async.cg~16, R~16, 16
cp.async.wait_group: 0 becomes 1~layernorm_backward~cp.async.wait_group~group 0~group 1
cp.async.wait_group: 1 becomes 2~matmul_large~cp.async.wait_group~group 1~group 2
cp.async.commit_group missing~layernorm_backward~cp.async.commit_group~cp.async.commit_group~
bar.arrive: the other barrier~matmul_by_tile~bar.arrive~arrive 1~arrive 2
bar.arrive missing~matmul_by_tile~bar.arrive~bar.arrive (.), 256;~
bar.arrive: 128 threads~matmul_by_tile~bar.arrive~256~128
bar.sync: 1 becomes 2~attention_forward~bar.sync~sync 1,~sync 2,
mbarrier.init: another count~matmul_by_tile~mbarrier.init~\[R\], R~[$1], 2
mbarrier.arrive: no bytes expected~matmul_by_tile~expect_tx~\.expect_tx(.*\]), R~$1
mbarrier.try_wait: predicate inverted~matmul_by_tile~@!ended~@!ended~@ended
mbarrier.try_wait: not repeated~matmul_by_tile~@!ended~@!ended bra retry;~
TMA: x and y exchanged~matmul_by_tile~tensor.2d~\{R, R\}~{$2, $1}
TMA of 3 dimensions: y and z exchanged~attention_forward~tensor.3d~\{R, R, R\}~{$1, $3, $2}
TMA: destination and barrier exchanged~matmul_by_tile~tensor.2d~\[R\], (\[.*\]), \[R\]~[$3], $2, [$1]
wgmma: majors exchanged~matmul_by_tile~wgmma.mma_async~1, 1, ([01]), ([01])~1, 1, $2, $1
wgmma: descriptors exchanged~matmul_by_tile~wgmma.mma_async~\}, (%rd[0-9]+), (%rd[0-9]+), add~}, $2, $1, add
wgmma: two accumulators exchanged~matmul_by_tile~wgmma.mma_async~bf16 \{R,R,~bf16 {$2,$1,
wgmma: accumulates where it should not~matmul_by_tile~setp.ne.b32 add~setp\.ne~setp.eq
wgmma: registers 1 and 2 of A exchanged~attention_forward~wgmma.mma_async~\}, \{R,R,R,R\}~}, {$1,$3,$2,$4}
wgmma: B of A in registers K-major~attention_forward~wgmma.mma_async~add, 1, 1, 1;~add, 1, 1, 0;
wgmma.fence missing~matmul_by_tile~wgmma.fence~wgmma.fence.sync.aligned~
wgmma.commit_group missing~matmul_by_tile~wgmma.commit~wgmma.commit_group.sync.aligned~
wgmma.wait_group: 0 becomes 1, products~matmul_by_tile~wgmma.wait_group~ 0~ 1
wgmma.wait_group: 0 becomes 1, attention~attention_forward~wgmma.wait_group~ 0~ 1
wgmma.wait_group: 1 becomes 2~matmul_by_tile~wgmma.wait_group~ 1~ 2
fence.proxy.async missing~matmul_by_tile~fence.proxy.async~fence.proxy.async.shared::cta~
griddepcontrol.wait missing~matmul_large~griddepcontrol.wait~griddepcontrol.wait~
ex2 becomes lg2~attention_forward~ex2.approx.ftz~ex2.approx.ftz~lg2.approx
shfl: butterfly becomes down~layernorm_forward~shfl.sync.bfly~bfly~down
bar.warp.sync missing (__syncwarp)~attention_forward~bar.warp.sync~bar.warp.sync[^;]*~
cvta.param missing~matmul_by_tile~cvta.param~cvta.param.u64~mov.u64
setmaxnreg: no multiple of 8~matmul_by_tile~setmaxnreg~ (40|24)~ 28
MUTANTS

# Negative controls: the tests pass with a patch that changes nothing; a patch whose word is nowhere is no fault.
split=
passes() { patched "$@"; }
check "a patch that changes nothing is no fault" passes ldmatrix 'ldmatrix' ldmatrix matmul_large
unknown() {
    ! patched griddepcontrol.wait griddepcontrol.wait griddepcontrol.nonsense matmul_large &&
        grep 'line [0-9]* .*griddepcontrol.nonsense: unknown instruction' "$tmp/mutant.log"
}
check "an unknown instruction is named, with its line" unknown
nonsense() { ! seen griddepcontrol.wait griddepcontrol.wait griddepcontrol.nonsense matmul_large; }
check "what the parser refuses is no mutant" nonsense
summary
