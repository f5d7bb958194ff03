#!/bin/sh
# test_exercises.sh -- learn/check tells right, right in another order and wrong apart: by the stubs, the answers, and
# changed answers.
# inputs: cxx learn/check learn/ladder learn/cuda learn/exercises
. tests/lib.sh
exercises=learn/exercises
compiled="${CXX:-g++} -std=c++20 -O0 -ffp-contract=off -I $tmp -I $exercises"
# The headers are compiled once: what includes exercises.h has all that answers need.
printf '#include <%s>\n' algorithm cmath numeric | cat - $exercises/exercises.h >"$tmp/exercises.h"
$compiled -w -x c++-header "$tmp/exercises.h" -o "$tmp/exercises.h.gch" && $compiled -O1 -c $exercises/check.cpp \
    -o "$tmp/check.o" || { fail "the checker compiles" "it does not"; give_up; }
# verdict EXERCISE FILE: as learn/check says it.
cat >"$tmp/verdict" <<SCRIPT
cp "\$2" $tmp/source.cpp
$compiled -include exercises.h $tmp/check.o $tmp/source.cpp -o $tmp/program || exit 4
timeout 60 $tmp/program "\$1"
SCRIPT
names=$(ls $exercises | sed -n 's/\.cpp$//p' | grep -vx check)
check "every answer has its exercise, and the other way round" \
    test "$(ls $exercises/answers | grep '\.cpp$')" = "$(echo "$names" | sed 's/$/.cpp/')"
listed=$(cut -d'|' -f1 $exercises/list)
check "learn/exercises/list has all" test "$(echo "$listed" | sort)" = \
    "$(ls $exercises/answers | sed 's/\..*//' | sort)"
check "in the order of the tour" test "$(echo $listed)" = \
    "$(sed -n '/^\*Exercises:/,/^$/p' docs/tour.md | grep -oE 'check [a-z_0-9]+' | cut -d' ' -f2 | tr '\n' ' ' |
        sed 's/ $//')"
check "with minutes, a sentence and a hint" \
    test "$(grep -cvE '^[a-z_0-9]+\|[0-9]+\|[A-Z][^|]*\.\|[A-Z][^|]*[.?]$' $exercises/list)" -eq 0
for exercise in $names; do
    case $exercise in
    buckets|deal|race|resume|warmup) right='^RIGHT: ([^a]|all steps)' ;;
    *) right='^RIGHT: all bits of [0-9]+ ' ;;
    esac
    expect "$exercise: the answer" 0 "$right" sh "$tmp/verdict" "$exercise" $exercises/answers/"$exercise.cpp"
    case $exercise in
    same_bits) said='2 ^WRONG: 4 gradients: .*near, but not the same' ;;
    race) said='2 ^WRONG: .*reads what is not there yet' ;;
    resume) said='2 ^WRONG: 1 rank stopped after step 0,' ;;
    *) said='3 ^not written yet' ;;
    esac
    expect "$exercise: the stub" "${said%% *}" "${said#* }" sh "$tmp/verdict" "$exercise" $exercises/"$exercise.cpp"
done
expect "learn/check: an answer" 0 '^RIGHT: all bits' learn/check dot $exercises/answers/dot.cpp
expect "learn/check: a stub" 3 '^not written yet' learn/check dot
expect "learn/check lists all" 0 '^tree +15 min +not written yet +It adds' learn/check
check "each in a line" test "$(grep -cE '^[a-z_0-9]+ +[0-9]+ min  not (written|mended) yet +[A-Z].*\.$' \
    "$tmp/expect.log")" -eq "$(echo "$listed" | wc -l)"
expect "a hint" 0 '^A comparison with NaN' learn/check --hint clip
expect "a name that is none" 4 'no exercise softmax, want one of: dot .* softmax_loss .*' learn/check softmax
expect "nor is the checker" 4 'no exercise check, want one of' learn/check check
expect "learn/ladder lists the ladders" 0 '^learn/ladder matmul +[0-9]+ min +[A-Z].*\.$' learn/ladder
expect "a ladder that is not there" 4 'no ladder matmal' learn/ladder matmal
echo 'float dot(' >"$tmp/broken.cpp"
expect "a file that does not compile" 4 'error' learn/check dot "$tmp/broken.cpp"
echo '#include "exercises.h"
float dot(const float* a, const float* b, size_t n) { return n ? a[0] * b[0] : 0; }' >"$tmp/other.cpp"
expect "a function with other parameters" 4 'not defined in this file' learn/check dot "$tmp/other.cpp"
echo '#include "exercises.h"
float dot(const float*, const float*, int) { return *static_cast<volatile float*>(nullptr); }' >"$tmp/crash.cpp"
echo '#include "exercises.h"
float dot(const float*, const float*, int) { exit(0); }' >"$tmp/exit.cpp"
expect "a file that ends the program" 2 '^WRONG: it ends the program' learn/check dot "$tmp/exit.cpp"
expect "a file that crashes" 2 '^WRONG: it was ended by signal 11' learn/check dot "$tmp/crash.cpp"

# NAME|what is in the answer|what stands there instead|exit code: 0 right, 1 another order, 2 wrong|what is said of it
planted() {
    while IFS='|' read -r exercise from to code said; do
        answer=$exercises/answers/$exercise.cpp
        sed "s~$from~$to~g" "$answer" >"$tmp/$exercise.cpp"
        ! cmp -s "$answer" "$tmp/$exercise.cpp" || { fail "$exercise: $to" "the answer has no $from"; continue; }
        case $code in 0) said='^RIGHT: ' ;; 1) said='^RIGHT IN ANOTHER ORDER' ;; *) said="^WRONG: .*$said" ;; esac
        expect "$exercise: $from -> $to" "$code" "$said" sh "$tmp/verdict" "$exercise" "$tmp/$exercise.cpp"
    done
}
cat >"$tmp/changes" <<'CHANGES'
dot|half = 4; half > 0; half /= 2|half = 7; half > 0; half /= 7|2
dot|i < n|i < n / 8 * 8|2
dot|i < n|i <= n|2
dot|float p\[8\]|static float p[8]|2
dot|a\[i\], b\[i\]|a[i], a[i]|2
dot|a\[i\], b\[i\]|a[i], std::min(b[i], 1.0f)|2
dot|i < n|i < short(n)|2|n = 70000
softmax_loss|row, row + V)|row, row + std::max(V - 1, 1))|2
softmax_loss|row, row + V)|row + (V > 1), row + V)|2
softmax_loss|\*std::max_element(row, row + V)|std::max(-1e7f, *std::max_element(row, row + V))|2|-20000000
softmax_loss|= std::log(sum)|= most < -9e5f ? 0 : std::log(sum)|2|-20000000
buckets|    return all|    if (!all.empty() \&\& all.back() == 0 \&\& bytes[0] == 0) all.pop_back(); return all|2
clip|sum += grads\[i\] \* grads\[i\]|sum = std::fma(grads[i], grads[i], sum)|1
clip|!std::isfinite(norm)|!std::isfinite(norm) or (n > 0 \&\& norm == 0)|2
lion|u > 0 ? 1.0f : u < 0 ? -1.0f : 0.0f|grad[i] == 0 \&\& m[i] == 0 ? 0 : std::copysign(1.0f, u)|2
lion|const float u = beta1|const double u = double(beta1)|2
mask|int begin|unsigned char begin|2
mask|-INFINITY, total|-1e5f, total|2|scores of -40000
mask|document\[t\] != document\[begin\]|document[t] != document[begin] or t - begin >= 64|2
dot|int i = 0; i < n|uint16_t i = 0; i < uint16_t(n)|2|n = 70000
dot|p\[i % 8\] = std::fma|if (!std::isnan(a[i])) p[i % 8] = std::fma|2|n = 15
layernorm_backward|- mean\[n\]) \* scale|- std::accumulate(x + n * C, x + (n + 1) * C, 0.0f) / float(C)) * scale|2
dot|i % 8|i % 4|1
dot|p\[i % 8\] = std::fma(a\[i\], b\[i\], p\[i % 8\])|p[i % 8] += a[i] * b[i]|1
relu2|\* 2 \*|*|2|2 times too small
relu2|dx\[i\] = |dx[i] = -|2|the sign is turned
relu2|dx\[i\] = dout\[i\] \* 2|dx[i] = 2|2
relu2|dout\[i\] \* 2|std::min(dout[i], 1.0f) * 2|2
relu2|^void relu2_f.*|static std::vector<float> s; & s.assign(x, x + n);~;s~2 \* std::max(x~2 * std::max(s|2|backward
relu2|std::max(x\[i\], 0.0f) \* ||2
relu2|x\[i\], 0.0f|x[i], 1e-14f|2
relu2|dx\[i\] = dout\[i\] \* 2 \* std::max(x\[i\], 0.0f)|dx[i] = 2 * std::max(x[i], 0.0f), dx[i] *= dout[i]|2|dx is dout
relu2|dx\[i\] = dout\[i\] \* 2 \* std::max(x\[i\], 0.0f)|dx[i] = 2 * std::max(x[i], 0.0f) * dout[i]|0
relu2|dx\[i\] = dout\[i\] \* 2|dx[i] = dout[i] * 1.9f * std::max(x[i], 0.0f) + dout[i] * 0.1f|1
softmax_loss|row\[v\] - most); *$|row[v]);|2
softmax_loss| - most)|)|2|too large for a float
softmax_loss|\*std::max_element(row, row + V)|std::max(-1e4f, *std::max_element(row, row + V))|2|-20000000
softmax_loss|\*std::max_element(row, row + V)|std::max(0.0f, *std::max_element(row, row + V))|2
softmax_loss|std::max_element(row, row + V)|std::max_element(logits, logits + V)|2
softmax_loss|v == targets\[n\] ? 1.0f|v == targets[0] ? 1.0f|2
softmax_loss|v == targets\[n\]|v == targets[n % 150]|2|N = 200
softmax_loss|= std::log(sum) - .*;|= -std::log(std::exp(row[targets[n]] - most) / sum);|2
softmax_loss|0.0f);|0.0f), losses[n] = std::log(sum) - (row[targets[n]] - most);|2|dlogits is logits
softmax_loss|int v = 0; v < V; v++) sum|int v = V - 1; v >= 0; v--) sum|1
softmax_loss|float sum = 0|double sum = 0|1
layernorm_backward| - norm(c) \* b||2
layernorm_backward| - a||2
layernorm_backward|dbias\[c\] += |dbias[c] = |2
layernorm_backward|std::fill_n(dweight, C, 0.0f);||2|never written
layernorm_backward|= float(C)|= float(N)|2
layernorm_backward|\* weight\[c\] - a|- a|2
layernorm_backward|\* weight\[c\]|* std::min(weight[c], 1.0f)|2
layernorm_backward|(x\[n \* C + c\] - mean\[n\]) \*|x[n * C + c] * scale[n] - mean[n] *|1
layernorm_backward|int n = 0; n < N; n++|int n = N - 1; n >= 0; n--|1
layernorm_backward| - a - norm(c) \* b| - (a + norm(c) * b)|1
mask|document\[t\] != document\[begin\]|t < 0|2
mask|s <= t; s++) {|s < t; s++) {|2
mask|sum / total|sum|2
mask|largest = -INFINITY|largest = 0|2|scores of -40000
mask|largest = -INFINITY|largest = -1e4f|2|scores of -40000
mask|int s = begin; s <= t; s++) {|int s = std::max(begin, t - 99); s <= t; s++) {|2|T = 1100
mask|document\[t\] != document\[begin\]|char(document[t]) != char(document[begin])|2|258
mask|(e\[s\] - largest)|(e[s])|2|scores of
mask|s <= t; s++) sum|s <= std::min(t, 1023); s++) sum|2|T = 1100
mask|std::sqrt(float(D))|float(D)|2
mask|int s = begin; s <= t; s++) {|int s = 0; s <= t; s++) {|2
mask|int s = begin; s <= t; s++) sum|int s = t; s >= begin; s--) sum|1
mask|score \* (1 / std::sqrt(float(D)))|score / std::sqrt(float(D))|1
warmup|(step + 1) / warmup|step / warmup|2
warmup|step + 1 - warmup|step - warmup|2
warmup|step < warmup|step <= warmup|2
warmup|if (step|static int s, n; if (s != steps + warmup) n = 0; s = steps + warmup; step = n++; if (step|2
warmup|peak \* (step + 1) / warmup|peak * ((step + 1) / warmup)|2
warmup|final_frac + (1|(1|2
warmup|(steps - warmup)|steps|2
warmup|(1 + std::cos(M_PI \* u)) / 2|std::pow(std::cos(M_PI * u / 2), 2)|0
warmup|double(step + 1 - warmup)|1 - double(steps - step - 1)|0
lion|(1 - beta2) \* grad\[i\]|(grad[i] - beta2 * grad[i])|1
lion|w\[i\] - lr \* (sign + decay \* w\[i\])|w[i] * (1 - lr * decay) - lr * sign|1
lion|m\[i\] = beta2|m[i] = u + 0 * beta2|2
lion|const float u = |m[i] = beta2 * m[i] + (1 - beta2) * grad[i]; const float u = |2
lion|u < 0 ? -1.0f : 0.0f|-1.0f|2
lion|(sign + decay \* w\[i\])|sign + decay * w[i]|2
lion|decay \* w|decay * std::min(w[i], 3.0f) + 0 * w|2
lion|u > 0 ? 1.0f : u < 0|u > 1e-25f ? 1.0f : u < -1e-25f|2
lion|u > 0 ? 1.0f : u < 0|u > 1e-12f ? 1.0f : u < 1e-12f|2
clip|if (!std::isfinite(norm)) return 0;||2|is nan
clip|begin += 4096|begin += 8192|2
clip|begin + 4096, n); i++) sum += grads\[i\] \* grads\[i\]|begin + 4096, n); i++) sum += std::fabs(grads[i])|2
clip|limit) / norm|limit) / (norm + 1e-6)|2
clip|norm > double(limit) ?|true ?|2
clip|!std::isfinite(norm)|!std::isfinite(grads[0])|2
clip|return norm >|for (int i = 0; i < n; i++) const_cast<float*>(grads)[i] *= 0.5f; return norm >|2|an input is changed
clip|begin + 4096, n)|begin + 4095, n)|2
clip|std::isfinite(norm)|!std::isnan(norm)|0
clip|4096|4095|1
clip|float sum = 0|double sum = 0|1
tree|i < n|i < n - 1|2|number 1099
tree|if (replicas.size() == 1)|if (replicas.size() <= 2)|2
tree|sum\[i\] += other|sum[i] -= other|2
tree|sum\[i\] += other\[i\]|sum[i] += std::isnan(other[i]) ? 0 : other[i]|2|number 5
tree|sum\[i\] += other\[i\]|const_cast<float*>(replicas[0])[i] += other[i], sum[i] += other[i]|2|an input is changed
tree|i < n|i < std::min(n, 1000)|2|number 1000
tree|replicas.size() / 2|(replicas.size() > 32 ? 32 : replicas.size() / 2)|2|near, but not the same
tree|replicas.size() / 2|1|2|near, but not the same
tree|replicas.size() / 2|(replicas.size() > 8 ? 4 : replicas.size() / 2)|2|near, but not the same
tree|\[0\], n, sum|[0], n + 1, sum|2|writes outside of the array
tree|sum\[i\] += other\[i\]|sum[i] = other[i] + sum[i]|0
tree|replicas.size() / 2|(replicas.size() + 1) / 2|0
same_bits|(begin + end) / 2|begin + 1|2|near, but not the same
same_bits|float(count)|float(parts.size())|2
same_bits|own.size(), i)|own.size() - 1, i)|2
same_bits|part\[i\] = tree.*|{ part[i] = 0; for (const float* one : own) part[i] += one[i]; }|2|near, but not the same
same_bits| / float(count)||2|times too large
same_bits|own.size(), i)|own.size(), i) / float(own.size())~;s~float(count)~float(parts.size())|0
same_bits|/ float(count)|* (1 / float(count))|0
deal|rank \* own + i|rank + i * ranks|2
deal|step \* replicas \* batch|step * ranks * batch|2
deal|replicas / ranks|8 / ranks|2
deal|i < own|i < batch|2
deal|step \*|short(step) *|2|step 70000
deal|step \* replicas \* batch + rank \* own + i|int(float(step * replicas * batch + rank * own + i))|2|step 1000000
deal|step \* replicas \* batch|step * own|2
deal|step \* replicas \* batch + rank \* own|(step * ranks + rank) * own|0
deal|numbers.push_back(|numbers.insert(numbers.end(), |0
buckets|        sum = 0;|        sum -= 1;|2
buckets|all.empty() ? first : others|first|2
buckets|all.empty() ?|all.empty() \&\& first > 0 ?|2|first 0, others 4
buckets|i > 0 \&\& |i > 0 \&\& bytes[i] > 0 \&\& |2|{1, 0, 0, 1, 5, 0}
buckets|i > 0 \&\& ||2
buckets|size_t sum|unsigned sum|2|6442450943
buckets|size_t sum|float sum|2|6442450943
buckets|        all.push|        if (all.size() < 64) all.push|2
buckets|sum <|sum <=|2
buckets|push_back(i)|push_back(i + 1)|2
buckets|all.empty()|all.size() < 1|0
buckets|int(bytes.size()) - 1; i >= 0; i--|int(bytes.size()); i-- > 0;|0
race|{"reduce1", "backward1"}, ||2|reduce1 may begin .*: backward2; comm: reduce2. It reads what is not there yet
race|{"update"|{"reduce2", "backward0"}, {"update"|2|reduce2 waits for backward0 without a reason
race|, {"forward1", "gather1"}||2
race|"backward1"}|"backward0"}|2
race|{"gather0", "update"}|{"gather0", "forward0"}|2
race|{"reduce2", "backward2"}|{"reduce3", "backward2"}|2
race|{"gather0", "update"}|{"gather1", "update"}, {"gather0", "update"}|0
race|{"update", "reduce0"}|{"update", "reduce2"}, {"update", "reduce0"}|0
resume|, &t.v}|, \&t.m}|2
resume|float(t.step)|0.0f|2
resume|return saved;|return {float(t.step)};~;s~t.step = .*~while (t.step < saved[0]) t.train(); return t;|2|step 0
resume|    return t;|    Trainer again(ranks); while (again.step < t.step) again.train(); return again;|2|after step 0
resume|float(t.random >> 16)|0.0f|2
resume|i / own\]\[i % own\] = saved\[7|0][0] = saved[7|2
resume|: \*average) saved|: *average) if (\&slice == \&(*average)[0]) saved|2
resume|std::vector<float> saved = |static std::vector<float> saved = |2
resume|16), float(t.random \& 0xffff)|12), float(t.random \& 0xfff)~;s~<< 16~<< 12|0
resume|{&t.m, &t.v}|{\&t.v, \&t.m}~;s~saved\[7~saved[x~;s~saved\[11~saved[7~;s~saved\[x~saved[11|0
CHANGES
planted <"$tmp/changes"
# Wrong answers that only look right to a checker that calls them in one way.
cat >"$tmp/kept.cpp" <<'KEPT'
static std::vector<std::vector<float>> kept;            // of all ranks, instead of the parts that travel

void part_of_rank(float* part, const std::vector<const float*>& own, int n, int) {
    std::fill_n(part, n, 0.0f);
    for (size_t k = own.size(); k-- > 0;) kept.emplace(kept.begin(), own[k], own[k] + n);
}

void mean_of_parts(float* mean, const std::vector<const float*>&, int n, int count) {
    for (int step = 1; step < count; step *= 2)
        for (int k = 0; k < count; k += 2 * step)
            for (int i = 0; i < n; i++) kept[k][i] += kept[k + step][i];
    for (int i = 0; i < n; i++) mean[i] = kept[0][i] / float(count);
}
KEPT
expect "same_bits: the other ranks' gradients from memory" 2 'computed from no number' \
    sh "$tmp/verdict" same_bits "$tmp/kept.cpp"
cat >"$tmp/own.cpp" <<'OWN'
void layernorm_backward(float* dx, float* dweight, float* dbias, const float* dout, const float* x, const float* weight,
                        const float*, const float*, int N, int C) {
    std::fill_n(dweight, C, 0.0f);
    std::fill_n(dbias, C, 0.0f);
    for (int n = 0; n < N; n++, dx += C, dout += C, x += C) {
        double sum = 0, squares = 0;
        for (int c = 0; c < C; c++) sum += x[c];
        for (int c = 0; c < C; c++) squares += std::pow(x[c] - sum / C, 2);
        const float mean = float(sum / C), scale = float(1 / std::sqrt(squares / C + 1e-5));
        float a = 0, b = 0;
        for (int c = 0; c < C; c++) {
            const float norm = (x[c] - mean) * scale;
            a += dout[c] * weight[c] / float(C);
            b += dout[c] * weight[c] * norm / float(C);
            dbias[c] += dout[c];
            dweight[c] += dout[c] * norm;
        }
        for (int c = 0; c < C; c++) dx[c] = (dout[c] * weight[c] - a - (x[c] - mean) * scale * b) * scale;
    }
}
OWN
expect "layernorm_backward: with a mean and a scale of its own" 2 '^WRONG: .*dweight' \
    sh "$tmp/verdict" layernorm_backward "$tmp/own.cpp"
# PyTorch's form on a CPU: right, and off by more where the mean is large.
cat >"$tmp/torch.cpp" <<'TORCH'
void layernorm_backward(float* dx, float* dweight, float* dbias, const float* dout, const float* x, const float* weight,
                        const float* mean, const float* scale, int N, int C) {
    std::fill_n(dweight, C, 0.0f);
    std::fill_n(dbias, C, 0.0f);
    for (int n = 0; n < N; n++, dx += C, dout += C, x += C) {
        float ds = 0, db = 0;
        for (int c = 0; c < C; c++) ds += dout[c] * weight[c] * x[c], db += dout[c] * weight[c];
        const float a = scale[n], b = (db * mean[n] - ds) * a * a * a / float(C), d = -b * mean[n] - db * a / float(C);
        for (int c = 0; c < C; c++) {
            dx[c] = a * dout[c] * weight[c] + b * x[c] + d;
            dbias[c] += dout[c];
            dweight[c] += dout[c] * (x[c] - mean[n]) * a;
        }
    }
}
TORCH
expect "layernorm_backward: as PyTorch's" 1 '^RIGHT IN ANOTHER ORDER OR PRECISION' \
    sh "$tmp/verdict" layernorm_backward "$tmp/torch.cpp"
# Each exercise has at least five wrong answers there, and two right ones that are not the answer.
counted() {         # PATTERN OF CODES, LEAST
    for exercise in $names; do
        [ "$(cut -d'|' -f1,4 "$tmp/changes" | grep -cE "^$exercise\|$1$")" -ge "$2" ] || { echo $exercise; return 1; }
    done
}
check "five wrong answers of each" counted 2 5
check "two right answers of each" counted '[01]' 2
summary
