#!/bin/sh
# test_sums.sh -- the tests see the order of every sum and every rounding of the specification: each rule of
# kernels/ref.cpp is changed in a copy, which is linked into the CPU's kernel test, and the test must then fail.
#   tests/long/test_sums.sh [PART]     only rules whose names contain PART
# inputs: cxx kernels/*.h kernels/ref.cpp kernels/cpu optimizers tests/kernels
. tests/lib.sh
source=kernels/ref.cpp b=build
object=$b/tests/kernels_cpu.tests/kernels/test_kernels.o
need build/tests/kernels_cpu
if "$b/tests/kernels_cpu" one_rounding | grep -q FAIL; then fail rules "kernels_cpu fails"; give_up; fi
if "$b/tests/kernels_cpu" matmul_backward_params_bias | grep -q 'same bits: 0 elements'; then
    skip_all rules "this CPU has no fused multiply-add: it is not held to the specification's bits"
fi
# A function whose products the compiler fuses.
case $(uname -m) in x86_64) fma='target("fma"),' ;; *) fma= ;; esac
fused="__attribute__(($fma optimize(\"O2\", \"fp-contract=fast\")))"

# linked SED LINES: $tmp/changed is the kernel test with what sed makes of the specification, LINES lines of it.
linked() {
    sed "$1" $source >"$tmp/ref.cpp"
    lines=$(diff $source "$tmp/ref.cpp" | grep -c '^>')
    [ "$lines" -eq "$2" ] || { echo "sed changes $lines lines: $1"; return 1; }
    ${CXX:-g++} -std=c++20 -O1 -pthread -ffp-contract=off -Wno-psabi -I. -DBACKEND=ref -D"FUSED=$fused" \
        -c "$tmp/ref.cpp" -o "$tmp/ref.o" &&
        ${CXX:-g++} -pthread $object "$tmp/ref.o" $b/ref.a $b/cpu16.a $b/cpu.a $b/src.a -ldl -o "$tmp/changed"
}
passes() { linked "$1" "$2" && "$tmp/changed" "$3"; }
seen() {            # SED TEST
    linked "$1" 1 || return 1
    "$tmp/changed" "$2" >"$tmp/changed.log"
    [ $? -eq 1 ] && grep '^FAIL .* want exactly' "$tmp/changed.log" || { echo "passes with it"; return 1; }
}
check "the specification itself passes" passes '' 0 layernorm
check "so does a product whose factors are exchanged" passes 's/fma(a(k), b(k), sum)/fma(b(k), a(k), sum)/' 1 \
    layernorm_backward
two() { ! linked 's/constexpr/ constexpr/' 1; }
check "a rule of several lines is refused" two

# name~test~sed, which stands below where it is long. Not among them: the log of the C library in double, in place of
# same_log. Both err by less than 4e-16, so the float is another one only where a log lies that near to the middle of
# two floats, and no log of a test does; tests/unit/test_same_math.cpp holds same_log to its bits.
while IFS='~' read -r name test rule; do
    [ -n "$rule" ] || read -r rule
    case $name in *"${1:-}"*) check "$name" seen "$rule" "$test" </dev/null ;; esac
done <<'RULES'
64 partial sums: 32~layernorm_forward~s/kSums = 64/kSums = 32/
products: cut at 768~matmul
    s/for (int k = f/if (!first \&\& last > 768) return product(768, a, b) + add_products(0, 768, last, a, b); &/
products: the last first~matmul~s/int k = first; k < last; k++/int k = last - 1; k >= first; k--/
products: a b + c in two roundings~matmul~s/sum = fma(a(k), b(k), sum)/sum = a(k) * b(k) + sum/
products: fma in double, then rounded~matmul
    s/sum = fma(a(k), b(k), sum)/sum = real(fma(double(a(k)), double(b(k)), double(sum)))/
few rows: none~matmul_forward~s/kFewRows = 4/kFewRows = 0/
few rows: up to 5~matmul~s/kFewRows = 4/kFewRows = 5/
few rows: in two roundings~matmul_forward~s/part = fma(x(c), w(c), part)/part += x(c) * w(c)/
bias: blocks of 32 rows~matmul_backward_params~s/product(N, dy, one)/sum_of_blocks(N, dy, one)/
LayerNorm: blocks of 64 rows~layernorm_backward~s/kNormRows = 32/kNormRows = 64/
LayerNorm: bias not in blocks~layernorm_backward~s/sum_of_blocks(N, dy_c, one)/product(N, dy_c, one)/
LayerNorm: variance in two roundings~layernorm_forward
    s/sum = fma(\(get(x.c.) - m\), get(x.c.) - m, sum)/sum += (\1) * (\1)/
LayerNorm: output in two roundings~layernorm_forward
    s/fma((get(x.c.) - m) \* r, get(weight.c.), \(bias.*0\)));/(get(x[c]) - m) * r * get(weight[c]) + (\1));/
LayerNorm: g xhat in two roundings~layernorm_backward~s/sum = fma(g(n, c), xhat(n, c), sum)/sum += g(n, c) * xhat(n, c)/
LayerNorm: dx in two roundings~layernorm_backward
    s/fma(-xhat(n, c), g_xhat_mean, \(.*\));/\1 - xhat(n, c) * g_xhat_mean;/
LayerNorm: dinp in two roundings~layernorm_backward~s/fma(real(rstd.n.), rest, \(.*\)));/rstd[n] * rest + (\1));/
residual: in two roundings~residual
    s/fma(get(branch.i.), dropped(drop, i), get(inp.i.))/get(inp[i]) + get(branch[i]) * dropped(drop, i)/
embedding: in two roundings~embedding
    s/float(fma(get(dout.i.), dropped(drop, i), real(to)))/to + float(get(dout[i]) * dropped(drop, i))/
embedding: positions from the start of the sequence~embedding_forward~s/n % T - (begin ? begin.n. : 0)/n % T/
embedding: dwpe in two roundings~embedding_backward
    s/float(fma(get(dout.i.), dropped(drop, i), real(position)))/position + float(get(dout[i]) * dropped(drop, i))/
classifier: by a reciprocal~classifier~s/p.j. \/ total/p[j] * (1 \/ total)/
classifier: e / total - 1~classifier~s/p\[targets.n.\] -= total;/p[targets[n]] = (p[targets[n]] \/ total - 1) * total;/
attention: output by a reciprocal~attention~s/return p.u.; }) \/ total/return p[u]; }) * (1 \/ total)/
attention: lse in two roundings~attention~s/fma(scale, max, logarithm(total))/scale * max + logarithm(total)/
attention: dq in blocks~attention_backward~s/add_products(0, first, t + 1, k, ds_t)/sum_of_blocks(t + 1, k, ds_t)/
attention: a key before begin~attention
    s/return attention.begin ? \(.*\) : 0;/return attention.begin ? std::max(0, \1 - 1) : 0;/
attention: dk anew for each head~attention_backward~s/dk = add_products(dk, u/dk += add_products(0, u/
attention: argument in two roundings~attention_backward~s/fma(scale, s, -lse.row.)/scale * s - lse[row]/
attention: delta in two roundings~attention_backward
    s/sum = fma(get(o.i.), get(dout_t.i.), sum)/sum += get(o[i]) * get(dout_t[i])/
attention: ds in two roundings~attention_backward~s/fma(m, dp, -delta.row.)/(m * dp - delta[row])/
attention: scale first~attention_backward
    s/= e \* fma(m, dp, -delta.row.) \* scale/= e * scale * fma(m, dp, -delta[row])/
dropout: the factor's last bit~dropout_backward~s/1.0f \/ (1.0f - d.rate)/float(1 \/ (1 - double(d.rate)) * 1.0000001)/
exp: a term more~attention_forward~s/float p = 1.0f \/ 5040/float p = fma(r, 1.0f \/ 40320, 1.0f \/ 5040)/
exp: in two roundings~attention_forward~s/p = fma(p, r, c);/p = p * r + c;/
exp: 0 below -87~classifier_least~s/x < -87.3f/x < -87.0f/
exp: 0 below -89 only~classifier_least~s/x < -87.3f/x < -89.0f/
GELU: slope in two roundings~gelu_backward~s/fma(s \* (e \* s), \(x \* fma(.*kTwiceK)\), s)/s * (e * s) * (\1) + s/
log of the C library in float~attention_forward~s/return float(same_log(double(x)))/return std::log(float(x))/
parameter gradients: the last bit~layernorm_backward
    s/to + float(sum) : float(sum)/float(double(to) + double(sum) * 1.0000001) : float(sum)/
squares: 8 sums~tree_reduce~s/sums.i % 16. += out/sums[i % 8] += out/
squares: in one rounding~tree_reduce
    s/sums.i % 16. += \(out.*\) \* \(out.*\);/sums[i % 16] = fma(\1, \2, sums[i % 16]);/
tree: in order~tree_reduce~s/tree == Tree::kBalanced ? count \/ 2 : 1/count - 1/
AdamW: in one rounding~update~s/^static void update_loop/FUSED &/
RULES
summary
