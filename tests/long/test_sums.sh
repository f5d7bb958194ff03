#!/bin/sh
# test_sums.sh -- the tests see the order of every sum and every rounding of the specification: each rule of
# kernels/ref.cpp is changed in a copy, which is linked into the CPU's kernel test, and the test must then fail.
#   tests/long/test_sums.sh [PART]     only rules whose names contain PART
. tests/lib.sh
source=kernels/ref.cpp b=build
object=$b/tests/kernels_cpu.tests/kernels/test_kernels.o
[ -f $object ] && [ -f $b/cpu.a ] || skip_all rules "build/tests/kernels_cpu is not built"
if "$b/tests/kernels_cpu" one_rounding | grep -q FAIL; then skip_all rules "kernels_cpu fails"; fi

# linked SED LINES: $tmp/changed is the kernel test with what sed makes of the specification, LINES lines of it.
linked() {
    sed "$1" $source >"$tmp/ref.cpp"
    lines=$(diff $source "$tmp/ref.cpp" | grep -c '^>')
    [ "$lines" -eq "$2" ] || { echo "sed changes $lines lines: $1"; return 1; }
    ${CXX:-g++} -std=c++20 -O1 -pthread -ffp-contract=off -Wno-psabi -I. -DBACKEND=ref -c "$tmp/ref.cpp" \
        -o "$tmp/ref.o" && ${CXX:-g++} -pthread $object "$tmp/ref.o" $b/ref.a $b/cpu16.a $b/cpu.a $b/src.a -ldl \
        -o "$tmp/changed"
}
passes() { linked "$1" "$2" && "$tmp/changed" "$3"; }
seen() {            # SED TEST
    linked "$1" 1 || return 1
    "$tmp/changed" "$2" >"$tmp/changed.log"
    [ $? -eq 1 ] && grep '^FAIL .* want exactly' "$tmp/changed.log" || { echo "passes with it"; return 1; }
}
check "the specification itself passes" passes '' 0 layernorm
check "so does a sum whose terms are exchanged" passes 's/first ? dx : dx + get(to)/first ? dx : get(to) + dx/' 1 \
    layernorm_backward
two() { ! linked 's/constexpr/ constexpr/' 1; }
check "a rule of several lines is refused" two

# name | test | sed
while IFS='~' read -r name test rule; do
    case $name in *"${1:-}"*) check "$name" seen "$rule" "$test" </dev/null ;; esac
done <<'RULES'
64 partial sums: 32~layernorm_forward~s/kSums = 64/kSums = 32/
products: blocks of 384~matmul~s/kDepth = 768/kDepth = 384/
products: blocks of 1536~matmul~s/kDepth = 768/kDepth = 1536/
products: depth not rounded to 8~matmul~s/kDepthUnit = 8/kDepthUnit = 1/
products: blocks of 768, not equal ones~matmul~s/depth = (K + blocks - 1) .*;/depth = std::min(K, blocks * 0 + kDepth);/
products: a b + c in two roundings~matmul~s/part = fma(a(k), b(k), part)/part = a(k) * b(k) + part/
products: fma in double, then rounded~matmul~s/part = fma(a(k), b(k), part)/part = real(fma(double(a(k)), double(b(k)), double(part)))/
few rows: none~matmul_forward~s/kFewRows = 4/kFewRows = 0/
few rows: up to 5~matmul~s/kFewRows = 4/kFewRows = 5/
few rows: in two roundings~matmul_forward~s/part = fma(x(c), w(c), part)/part += x(c) * w(c)/
bias: blocks of 128 rows~matmul_backward_params~s/kBiasRows = 256/kBiasRows = 128/
bias: blocks of 512 rows~matmul_backward_params~s/kBiasRows = 256/kBiasRows = 512/
LayerNorm: blocks of 64 rows~layernorm_backward~s/kNormRows = 32/kNormRows = 64/
LayerNorm: fused variance~layernorm_forward~s/sum += (get(x.c.) - m) \* (get(x.c.) - m)/sum = fma(get(x[c]) - m, get(x[c]) - m, sum)/
LayerNorm: output in two roundings~layernorm_forward~s/fma((get(x.c.) - m) \* r, get(weight.c.), \(bias.*0\)));/(get(x[c]) - m) * r * get(weight[c]) + (\1));/
LayerNorm: g xhat in two roundings~layernorm_backward~s/sum = fma(g(n, c), xhat(n, c), sum)/sum += g(n, c) * xhat(n, c)/
attention: keys cut at 128~attention_forward~s/kKeys = 256/kKeys = 128/
attention: keys cut at 512~attention~s/kKeys = 256/kKeys = 512/
attention: dq cut at 256~attention_backward~s/kBackwardKeys = 192/kBackwardKeys = 256/
attention: dk and dv cut at 256~attention_backward~s/kBackwardQueries = 128/kBackwardQueries = 256/
attention: dk cut from u~attention_backward~s/for (int begin = first .*; begin < last/for (int begin = first; begin < last/
attention: output by division~attention~s/ \* (1 \/ total));/ \/ total);/
attention: fused argument~attention_backward~s/exponential(scale \* s - lse.row.)/exponential(fma(scale, s, -lse[row]))/
attention: fused delta~attention_backward~s/sum += get(o.i.) \* get(dout_t.i.)/sum = fma(get(o[i]), get(dout_t[i]), sum)/
attention: scale first~attention_backward~s/= e \* (m \* dp - delta.row.) \* scale/= e * scale * (m * dp - delta[row])/
attention: dp fused~attention_backward~s/(m \* dp - delta.row.)/fma(m, dp, -delta[row])/
dropout: the factor's last bit~dropout_backward~s/1.0f \/ (1.0f - d.rate)/float(1 \/ (1 - double(d.rate)) * 1.0000001)/
exp: a term more~attention_forward~s/float p = 1.0f \/ 5040/float p = fma(r, 1.0f \/ 40320, 1.0f \/ 5040)/
exp: in two roundings~attention_forward~s/p = fma(p, r, c);/p = p * r + c;/
GELU: slope in two roundings~gelu_backward~s/fma(s \* (e \* s), \(x \* fma(.*kTwiceK)\), s)/s * (e * s) * (\1) + s/
log of the C library in float~attention_forward~s/return float(same_log(double(x)))/return std::log(float(x))/
parameter gradients: the last bit~layernorm_backward~s/to + float(sum) : float(sum)/float(double(to) + double(sum) * 1.0000001) : float(sum)/
RULES
summary
