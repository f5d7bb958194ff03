#!/bin/sh
# test_learn.sh -- learn/train.cpp, the trainer in one file, gives train_gpt's bits: each step's loss, learning rate and
# norm to the last digit, validation losses, samples, and model.safetensors byte for byte; for jobs in which every kind
# of sum is long, for random jobs, with 1, 2 and 4 ranks on either side, compiled by g++ and by clang++.
#   LEARN_JOBS    how many random jobs (default 3); LEARN_SEED: of the first one (default 1)
#   LEARN_RULES   all: each rule of sums is changed in turn, which some job must notice; else only two of them are
. tests/lib.sh
source=learn/train.cpp flags="-std=c++20 -march=native -ffp-contract=off -pthread"
text=tests/golden/lines.txt
few="--steps 3 --warmup-steps 1 --eval-every 3 --eval-steps 3 --sample-every 3 --max-tokens 12 --temperature 0.5"

# A job has a name, the ranks of either program, and options.
cat >"$tmp/jobs" <<END
long 2 1 --layers 1 --heads 1 --channels 72 --seq-len 300 --batch-size 3 --total-batch-size 1800 --dropout 0.1
long_context 1 2 --layers 1 --heads 2 --channels 16 --seq-len 590 --batch-size 1 --total-batch-size 1180 --dropout 0.2
wide 1 1 --layers 1 --heads 3 --channels 264 --seq-len 12 --batch-size 1 --total-batch-size 24
heads_of_8 4 1 --layers 2 --heads 4 --channels 32 --seq-len 23 --batch-size 2 --total-batch-size 184 --lr 0.01
heads_of_32 2 4 --layers 1 --heads 4 --channels 128 --seq-len 40 --batch-size 2 --total-batch-size 320
heads_of_128 1 1 --layers 1 --heads 1 --channels 128 --seq-len 40 --batch-size 2 --total-batch-size 80
one_token 2 2 --layers 1 --heads 1 --channels 16 --seq-len 1 --batch-size 7 --total-batch-size 14
four_rows 1 2 --layers 1 --heads 1 --channels 72 --seq-len 2 --batch-size 2 --total-batch-size 8 --prompt abcde
five_rows 2 1 --layers 1 --heads 1 --channels 72 --seq-len 5 --batch-size 1 --total-batch-size 10 --prompt abc
two_chunks 1 1 --layers 1 --heads 1 --channels 8 --seq-len 1 --batch-size 61634 --total-batch-size 61634
accumulated 4 2 --layers 1 --heads 2 --channels 32 --seq-len 20 --batch-size 2 --total-batch-size 480 --replicas 4
not_clipped 1 1 --layers 1 --heads 1 --channels 16 --seq-len 9 --total-batch-size 72 --grad-clip 0 --final-lr-frac 0
other_numbers 1 1 --layers 1 --heads 1 --channels 16 --seq-len 9 --total-batch-size 72 --beta1 0.8 --beta2 0.95
END
# The job of test_cpus.sh, whose weights are in tests/golden/cpus.txt.
golden="--steps 50 --warmup-steps 5 --batch-size 1 --total-batch-size 144 --replicas 4 --seq-len 36 --eval-every 25
    --eval-steps 2 --sample-every 50 --max-tokens 40 --layers 2 --heads 2 --channels 48 --dropout 0.1 --lr 3e-3"

# Random jobs: prints LEARN_JOBS lines as those above.
awk -v jobs="${LEARN_JOBS:-3}" -v seed="${LEARN_SEED:-1}" '
    function number(low, high) { return low + int(rand() * (high - low + 1)) }
    function one_of(words,  w) { return w[number(1, split(words, w, " "))] }
    BEGIN {
        for (i = 0; i < jobs; i++) {
            srand(seed + i)
            rand()
            size = 8 * one_of("1 1 2 3 4 5 6 7 8 9 11 12 13 15 16")
            heads = one_of("1 1 2 3")
            if (size * heads > 264) heads = 1
            kind = number(1, 4)
            T = kind == 1 ? number(1, 12) : kind == 2 ? number(5, 80) : kind == 3 ? number(60, 300) : number(190, 420)
            B = T * size * heads > 15000 ? 1 : one_of("1 1 2 3 5")
            R = one_of("1 2 4")
            k = one_of("1 1 2 3")
            if (B * T * R * k * size * heads > 300000) R = k = 1
            layers = one_of("1 1 2")
            ranks = R == 4 ? "1 2 4" : R == 2 ? "1 2" : "1"
            printf "random_%d %d %d", seed + i, one_of(ranks), one_of(ranks)
            printf " --layers %d --heads %d --channels %d", layers, heads, size * heads
            printf " --seq-len %d --batch-size %d --total-batch-size %d --replicas %d", T, B, B * T * R * k, R
            printf " --lr %s --seed %d", one_of("0.005 0.01 0.0003"), number(0, 2e9)
            printf " --dropout %s", one_of("0 0 0.1 0.3")
            printf " --grad-clip %s --weight-decay %s", one_of("1 0 0.1"), one_of("0.1 0")
            printf " --beta2 %s --final-lr-frac %s", one_of("0.99 0.95"), one_of("0.05 0 1")
            printf " --prompt %s\n", one_of("a The,quiet,child ####")
        }
    }' >"$tmp/random"

# big NAME RANKS OPTIONS...: runs train_gpt, and writes its curve as learn/train.cpp prints it.
big() {
    out=$1 np=$2; shift 2
    rm -rf "$tmp/$out"
    $train --device cpu --dtype fp32 --data $text --out-dir "$tmp/$out" --np "$np" --threads 1 --save-every 1000 "$@" \
        >"$tmp/$out.log" 2>&1 || { tail -n 3 "$tmp/$out.log"; return 1; }
    number='\([^,]*\)' event='^{"event":'
    {
        sed -n -e "s/$event\"train\",\"step\":$number,\"loss\":$number,\"lr\":$number,\"grad_norm\":$number,.*/step \
\1 loss \2 lr \3 norm \4/p" -e "s/$event\"val\",\"step\":$number,\"loss\":$number,.*/val step \1 loss \2/p" \
            "$tmp/$out/metrics.jsonl"
        sed -n 's/.*"event":"sample".*"prompt":"\(.*\)","text":"\(.*\)","time".*/\1\2/p' "$tmp/$out/metrics.jsonl" |
            sed 's/\\\\/\x01/g; s/\\u[0-9a-f]\{4\}//g; s/\\[nrtbf]//g; s/\\\(.\)/\1/g; s/\x01/\\/g' |
            LC_ALL=C tr -cd ' -~'
    } >"$tmp/$out.curve"
    weights "$tmp/$out" >"$tmp/$out.sum"
}
# small PROGRAM NAME RANKS OPTIONS...: the same by learn/train.cpp. Of samples only visible ASCII is compared.
small() {
    program=$1 out=$2 np=$3; shift 3
    mkdir -p "$tmp/$out.small"
    "$program" $text --out-dir "$tmp/$out.small" --np "$np" "$@" >"$tmp/$out.out" 2>&1 || { tail -n 3 "$tmp/$out.out"
        return 1; }
    {
        grep -aE '^(step|val step) ' "$tmp/$out.out"
        sed '1,/^sample step/d' "$tmp/$out.out" | LC_ALL=C tr -cd ' -~'
    } >"$tmp/$out.small.curve"
    (cd "$tmp/$out.small" && sha256sum model.safetensors) >"$tmp/$out.small.sum"
}
# agrees NAME: what both have written.
agrees() {
    [ -s "$tmp/$1.curve" ] || { echo "no curve"; return 1; }
    diff -a "$tmp/$1.curve" "$tmp/$1.small.curve" && diff "$tmp/$1.sum" "$tmp/$1.small.sum"
}
# alike NAME RANKS RANKS OPTIONS...: runs both.
alike() {
    job=$1 ours=$2 theirs=$3; shift 3
    big $job $theirs $few "$@" && small "$tmp/learn" $job $ours $few "$@" && agrees $job
}
# all_of FILE: its jobs.
all_of() {
    while read -r line; do
        set -- $line
        check "$1: $2 ranks, train_gpt $3" alike "$@"
    done <"$1"
}
compile() { ${CXX:-g++} $flags "$@"; }

check "g++ compiles it" compile -O3 -Wall -Wextra -Werror -o "$tmp/learn" $source
check "train_gpt's golden job" big golden 2 $golden
of_golden() { grep -q "^gpt2 $(cut -d ' ' -f 1 "$tmp/golden.small.sum") " tests/golden/cpus.txt; }
for n in 1 2 4; do
    check "the golden job, $n ranks" small "$tmp/learn" golden $n $golden
    check "gives train_gpt's losses, sample and weights" agrees golden
    check "and those of tests/golden/cpus.txt" of_golden
done
all_of "$tmp/jobs"
all_of "$tmp/random"

# Another compiler, and no optimisation.
if command -v clang++ >/dev/null; then
    check "clang++ compiles it" env CXX=clang++ sh -c "clang++ $flags -O2 -o $tmp/clang $source"
    check "the golden job by clang++" small "$tmp/clang" golden 2 $golden
    check "gives the same" agrees golden
else
    skip "clang++" "it is not here"
fi

# Negative controls. A program with another rule of sums differs in some job.
differs() {         # PROGRAM
    mutant=$1
    small "$mutant" golden 1 $golden && ! agrees golden && return
    while read -r line; do
        set -- $line
        job=$1; shift 3
        small "$mutant" $job 1 $few "$@" || return 1
        agrees $job >"$tmp/agrees.log" || return 0
    done <"$tmp/jobs"
    return 1
}
# noticed SED: the program that sed makes of learn/train.cpp differs.
noticed() {
    sed "$1" $source >"$tmp/mutant.cpp"
    ! cmp -s $source "$tmp/mutant.cpp" || { echo "sed changes nothing: $1"; return 1; }
    compile -O2 -o "$tmp/mutant" "$tmp/mutant.cpp" && differs "$tmp/mutant"
}
# The constants of section 5, each doubled.
rules=$(sed -n '/ 5\. two kinds of sums/,/ 6\. /s/^constexpr size_t \([^;]*\);.*/\1/p' $source | tr -d ' ' | tr , '\n')
check "section 5 has the constants" test "$(echo "$rules" | wc -l)" -ge 2
[ "${LEARN_RULES:-}" = all ] || rules=$(echo "$rules" | sed -n '1p;$p')
for constant in $rules; do
    rule=${constant%=*} value=${constant#*=}
    check "$rule = $((2 * value)) is noticed" noticed "s/\<$rule = $value\>/$rule = $((2 * value))/"
done
if [ "${LEARN_RULES:-}" = all ]; then
    while IFS='|' read -r what rule; do check "$what is noticed" noticed "$rule"; done <<'END'
a variance in two roundings|s/sum = fma(x\[c\] - mean, x\[c\] - mean, sum)/sum += (x[c] - mean) * (x[c] - mean)/
LayerNorm's output in two roundings|s/= fma(\(.*rstd\), layer.weight.c., /= (\1 * layer.weight[c] + /
g xhat in two roundings|s/sum = fma(g.c., xhat.c., sum)/sum += g[c] * xhat[c]/
products in two roundings|s/sums.j. = fma(\(x.i \* x_stride.\), \(rows.i \* stride + j.\), sums.j.)/sums[j] += \1 * \2/
delta in two roundings|s/sum = fma(o.i., d.i., sum)/sum += o[i] * d[i]/
scores in two roundings|s/fma(scale, s.u., -lse.scores + t.)/scale * s[u] - lse[scores + t]/
ds in two roundings|s/fma(m, dp.u., -delta)/(m * dp[u] - delta)/
LayerNorm's dx in two roundings|s/fma(-xhat.c., gx, g.c. - gm)/g[c] - gm - xhat[c] * gx/
the residual in two roundings|s/= fma(branch.i., pass.drop(site, i), inp.i.)/= inp[i] + branch[i] * pass.drop(site, i)/
wte's gradient in two roundings|s/token = fma(d, factor, token)/token += d * factor/
the last row first|s/size_t i = 0; i < count; i++/size_t i = count; i-- > 0;/
another exponential|s/p = fma(p, r, c);/p = p * r + c;/
another logarithm|s/return float(log_(double(x)))/return std::log(x)/
probabilities by a reciprocal|s/x\[j\] \/ total/x[j] * (1 \/ total)/
attention's output by a reciprocal|s/y\[i\] \/= total/y[i] *= 1 \/ total/
a tree that is none|s/lo, n \/ 2, i) + tree(grads, lo + n \/ 2, n \/ 2/lo, n - 1, i) + tree(grads, lo + n - 1, 1/
END
fi

# Errors are one line.
refuses() { "$tmp/learn" "$@" 2>"$tmp/refused" >/dev/null; [ $? -eq 1 ] && [ "$(wc -l <"$tmp/refused")" -eq 1 ]; }
check "no text is refused" refuses
check "an unknown option is refused" refuses $text --layer 2
check "a word instead of a number is refused" refuses $text --layers two
check "a shape that does not fit is refused" refuses $text --heads 3 --channels 32
check "a text that is too short is refused" refuses $text --seq-len 6000
check "a folder that cannot be written is refused" refuses $text --steps 1 --np 1 --eval-every 0 --sample-every 0 \
    --out-dir /dev/null/none
summary
