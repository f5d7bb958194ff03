#!/bin/sh
# test_exercises.sh -- learn/check tells right, right in another order and wrong apart: by the stubs, the answers, and
# changed answers.
# inputs: cxx learn/check learn/ladder learn/cuda/*.cu learn/exercises
. tests/lib.sh
exercises=learn/exercises
${CXX:-g++} -std=c++20 -O0 -ffp-contract=off -c -I $exercises $exercises/check.cpp -o "$tmp/check.o" ||
    { fail "the checker compiles" "it does not"; give_up; }
# verdict EXERCISE FILE: as learn/check says it, without compiling the checker again.
cat >"$tmp/verdict" <<SCRIPT
${CXX:-g++} -std=c++20 -O0 -ffp-contract=off -I $exercises $tmp/check.o "\$2" -o $tmp/program && $tmp/program "\$1"
SCRIPT
names=$(ls $exercises | sed -n 's/\.cpp$//p' | grep -vx check)
check "at least twelve" test "$(echo "$names" | wc -l)" -ge 12
check "every answer has its exercise, and the other way round" \
    test "$(ls $exercises/answers | grep '\.cpp$')" = "$(echo "$names" | sed 's/$/.cpp/')"
for exercise in $names; do
    expect "$exercise: the answer" 0 '^RIGHT: all bits' sh "$tmp/verdict" "$exercise" $exercises/answers/"$exercise.cpp"
    case $exercise in
    same_bits) said='2 ^WRONG: 4 gradients: .*near, but not the same' ;;
    race) said='2 ^WRONG: .*gather1' ;;
    resume) said='2 ^WRONG: 1 rank stopped after step 1,' ;;
    *) said='3 ^not written yet' ;;
    esac
    expect "$exercise: the stub" "${said%% *}" "${said#* }" sh "$tmp/verdict" "$exercise" $exercises/"$exercise.cpp"
done
expect "learn/check: an answer" 0 '^RIGHT: all bits' learn/check dot $exercises/answers/dot.cpp
expect "learn/check: a stub" 3 '^not written yet' learn/check dot
expect "learn/check lists all" 0 '^tree +not written yet +the sum of R replicas' learn/check
expect "the begin of a name" 4 'did you mean softmax_(loss|rows)' learn/check softmax
expect "two letters in another order" 4 'did you mean tree' learn/check trea
expect "a name that is like none" 4 'no exercise xyzzy; learn/check lists them' learn/check xyzzy
expect "learn/ladder lists the ladders" 0 '^learn/ladder matmul +' learn/ladder
expect "a ladder that is not there" 4 'no ladder matmal' learn/ladder matmal
echo 'float dot(' >"$tmp/broken.cpp"
expect "a file that does not compile" 4 'error' learn/check dot "$tmp/broken.cpp"
echo '#include "exercises.h"
float dot(const float* a, const float* b, size_t n) { return n ? a[0] * b[0] : 0; }' >"$tmp/other.cpp"
expect "a function with other parameters" 4 'not defined in this file' learn/check dot "$tmp/other.cpp"
echo '#include "exercises.h"
float dot(const float*, const float*, int) { return *static_cast<volatile float*>(nullptr); }' >"$tmp/crash.cpp"
expect "a file that crashes" 2 '^WRONG: it was ended by signal 11' learn/check dot "$tmp/crash.cpp"

# NAME|what is in the answer|what stands there instead|exit code: 1 another order, 2 wrong|what is said of a wrong one
while IFS='|' read -r exercise from to code said; do
    answer=$exercises/answers/$exercise.cpp
    sed "s~$from~$to~g" "$answer" >"$tmp/$exercise.cpp"
    ! cmp -s "$answer" "$tmp/$exercise.cpp" || { fail "$exercise: $to" "the answer has no $from"; continue; }
    [ "$code" -eq 2 ] && said="^WRONG: .*$said" || said='^RIGHT IN ANOTHER ORDER'
    expect "$exercise: $to" "$code" "$said" sh "$tmp/verdict" "$exercise" "$tmp/$exercise.cpp"
done <<'CHANGES'
dot|half = 4; half > 0; half /= 2|half = 7; half > 0; half /= 7|2
dot|i % 8|i % 4|1
dot|p\[i % 8\] = std::fma(a\[i\], b\[i\], p\[i % 8\])|p[i % 8] += a[i] * b[i]|1
dot|i < n|i < n / 8 * 8|2
relu2|\* 2 \*|*|2|2 times too small
relu2|dx\[i\] = |dx[i] = -|2|the sign is turned
relu2|dx\[i\] = dout\[i\] \* 2|dx[i] = 2|2
relu2|std::max(x\[i\], 0.0f) \* ||2
softmax_loss|row\[v\] - most); *$|row[v]);|2
softmax_loss| - most)|)|2|too large for a float
softmax_loss|v == targets\[n\] ? 1.0f|v == targets[0] ? 1.0f|2
softmax_loss|int v = 0; v < V; v++) sum|int v = V - 1; v >= 0; v--) sum|1
layernorm_backward| - norm(c) \* b||2
layernorm_backward| - a||2
layernorm_backward|dbias\[c\] += |dbias[c] = |2
layernorm_backward|int n = 0; n < N; n++|int n = N - 1; n >= 0; n--|1
mask|document\[t\] != document\[begin\]|t < 0|2
mask|s <= t; s++) {|s < t; s++) {|2
mask|sum / total|sum|2
mask|int s = begin; s <= t; s++) sum|int s = t; s >= begin; s--) sum|1
warmup|(step + 1) / warmup|step / warmup|2
warmup|step + 1 - warmup|step - warmup|2
warmup|step < warmup|step <= warmup|2
lion|(1 - beta2) \* grad\[i\]|(grad[i] - beta2 * grad[i])|2|each line has to be computed as it is written
lion|m\[i\] = beta2|m[i] = u + 0 * beta2|2
lion|const float u = |m[i] = beta2 * m[i] + (1 - beta2) * grad[i]; const float u = |2
lion|u < 0 ? -1.0f : 0.0f|-1.0f|2
lion|(sign + decay \* w\[i\])|sign + decay * w[i]|2
clip|if (!std::isfinite(norm)) return 0;||2|one number is nan
clip|begin += 4096|begin += 8192|2
clip|4096|4095|1
clip|begin + 4096, n); i++) sum += grads\[i\] \* grads\[i\]|begin + 4096, n); i++) sum += std::fabs(grads[i])|2
clip|limit) / norm|limit) / (norm + 1e-6)|2
clip|limit) / norm|limit) / (norm + 1e-4)|2
clip|float sum = 0|double sum = 0|1
tree|i < n|i < n - 1|2|number 99
tree|if (replicas.size() == 1)|if (replicas.size() <= 2)|2
tree|sum\[i\] += other|sum[i] -= other|2
tree|replicas.size() / 2|1|1
same_bits|(begin + end) / 2|begin + 1|2
same_bits|mean\[i\] = tree(parts, 0, ranks)|mean[i] = 0; for (const float x : all) mean[i] += x; mean[i] = mean[i]|1
same_bits|float(count)|float(own)|2
same_bits|(rank + 1) \* own|rank * own + 1|2
deal|rank \* own + i|rank + i * ranks|2
deal|step \* replicas \* batch|step * ranks * batch|2
buckets|        sum = 0;|        sum -= 1;|2
buckets|all.empty() ? first : others|first|2
buckets|i > 0 \&\& ||2
race|{"reduce1", "backward1"}, ||2|reduce1 may begin .*: backward2; comm: reduce2. It needs what backward1
race|{"update"|{"reduce2", "backward0"}, {"update"|2|reduce2 waits for backward0 without a reason
race|, {"forward1", "gather1"}||2
race|"backward1"}|"backward0"}|2
race|{"gather0", "update"}|{"gather0", "forward0"}|2
race|{"reduce2", "backward2"}|{"reduce3", "backward2"}|2
resume|, &t.v}|, \&t.m}|2
resume|float(t.step)|0.0f|2
resume|float(t.random >> 16)|0.0f|2
resume|i / own\]\[i % own\] = saved\[7|0][0] = saved[7|2
resume|: \*average) saved|: *average) if (\&slice == \&(*average)[0]) saved|2
CHANGES
summary
