#!/bin/sh
# run.sh [TARGET...] -- builds tests/fuzz/fuzz.cpp with clang's libFuzzer and sanitizers and runs its targets (all):
# ninja fuzz.
#   FUZZ_RUNS=N      inputs per target (10,000,000), with those of earlier runs of the same build and reader
#   FUZZ_SECONDS=S   at most S seconds per target (0: no limit)
#   FUZZ_SEED=N      of the random numbers (0: another one each time); a build finds with it what it found before
#   FUZZ_TIMEOUT=S   a slower input is a finding (60, by the clock: more where processes are stopped)
#   FUZZ_FAST=1      optimised, for many inputs: without the address sanitizer and traced comparisons, whose operands
#                    the slower build has put into the corpus that they share
# Corpora grow in build/fuzz/TARGET; what crashes a reader is left in build/fuzz/TARGET-crash-*. build/fuzz/TARGET.runs
# has a line per run: the build, a checksum of the reader's sources without their comments, inputs, inputs a second, the
# commit. A change of the reader starts a new count.
cd "$(dirname "$0")/../.."
# inputs: clang++ FUZZ_FAST FUZZ_RUNS src/base src/comm src/data src/checkpoint src/options tools
# inputs: models/*.h optimizers/*.h
. tests/lib.sh
clang=${FUZZ_CXX:-clang++}
if [ "${FUZZ_FAST:-}" ]; then
    kind=fast link=-fsanitize=fuzzer
    sanitize="-O2 -fsanitize=fuzzer-no-link,undefined -fsanitize-trap=undefined -fno-sanitize-coverage=trace-cmp"
else
    kind=asan link=-fsanitize=fuzzer,address,undefined
    sanitize="-O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined"
fi
dir=build/fuzz/.$kind
mkdir -p $dir
if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$tmp/x.cpp" ||
   ! $clang -fsanitize=fuzzer,address "$tmp/x.cpp" -o "$tmp/x" 2>"$tmp/x.log"; then
    skip fuzz "$clang has no libFuzzer here (on Debian: apt-get install clang libclang-rt-14-dev)"; summary; exit
fi
wraps=-Wl
for w in open close fstat stat pread read write getrandom recv send poll getpeername usleep; do
    wraps=$wraps,--wrap=$w
done
flags="-std=c++20 -g -pthread $sanitize -fsanitize-coverage-ignorelist=tests/fuzz/uncovered.txt"
flags="$flags -D_GLIBCXX_ASSERTIONS -ffp-contract=off -Wno-psabi -I."
[ -f build/models.h ] && [ -f build/optimizers.h ] || ./configure >"$tmp/x.log" || {
    fail fuzz "configure"; summary; exit 1; }
# All sources that no backend compiles, but for the program's own and for those that fuzz.cpp includes.
sources=$(grep -L 'namespace BACKEND' src/*/*.cpp src/*/*/*.cpp tools/*/*.cpp models/*.cpp optimizers/*.cpp |
    grep -vE '/(main|program|checkpoint|comm|rendezvous)\.cpp$')
newest=$(ls -t src/*/*.h src/*/*.cpp src/*/*/* models/*.h models/*.cpp optimizers/*.h tools/*.* tools/*/* tests/fuzz/* |
    head -n 1)
if [ ! -x $dir/fuzz ] || [ "$newest" -nt $dir/fuzz ]; then
    rm -f $dir/*.o                                      # a removed source must leave none that is linked
    for f in $sources tests/fuzz/fuzz.cpp; do echo "$f"; done |
        xargs -P "$(nproc)" -I{} sh -c "$clang $flags -c {} -o $dir/\$(basename {} .cpp).o" || {
            fail fuzz "it does not build"; summary; exit 1; }
    $clang $link -pthread $wraps $dir/*.o -o $dir/fuzz || { fail fuzz "it does not link"; summary; exit 1; }
fi
FUZZ_TARGET=list $dir/fuzz >"$tmp/list"
stat() { sed -n "s/^stat::$1: *//p" "$tmp/log"; }
stop=
trap 'stop=1' INT TERM                                  # the run under way ends with the same signal, and counts
for t in ${*:-$(cut -d' ' -f1 "$tmp/list")}; do
    [ -z "$stop" ] || break
    mkdir -p build/fuzz/$t
    reader=$(for f in $(sed -n "s/^$t //p" "$tmp/list"); do
        cat src/*/$f.h src/*/$f.cpp src/*/*/$f.h src/*/*/$f.cpp models/$f.h models/$f.cpp tools/$f.h tools/$f.cpp \
            tools/*/$f.h tools/*/$f.cpp 2>/dev/null
    done | sed 's,//.*,,; s/ *$//' | sha256sum | cut -c1-12)
    before=$(awk -v key="$kind $reader" '$1 " " $2 == key { n += $3 } END {
        print n + 0 }' build/fuzz/$t.runs 2>/dev/null || echo 0)
    left=$((${FUZZ_RUNS:-10000000} - before))
    [ $left -gt 0 ] || { ok "$t: $before inputs in all"; continue; }
    case $kind,$t in asan,*|*,tokenizer_json) longest=16384 ;;
    fast,vocab_bpe|fast,arguments) longest=1024 ;; *) longest=4096 ;; esac
    FUZZ_TARGET=$t FUZZ_SEEDS=build/fuzz/$t $dir/fuzz build/fuzz/$t -runs=$left -max_total_time="${FUZZ_SECONDS:-0}" \
        -max_len=$longest -timeout="${FUZZ_TIMEOUT:-60}" -seed="${FUZZ_SEED:-0}" \
        -rss_limit_mb=2048 -malloc_limit_mb=64 -artifact_prefix=build/fuzz/$t- -print_final_stats=1 -reload=0 \
        -print_funcs=0 -entropic=0 >"$tmp/log" 2>&1
    code=$?
    runs=$(stat number_of_executed_units)
    if [ $code -eq 0 ] || [ $code -eq 72 ]; then        # 72: a signal ended it
        echo "$kind $reader $runs $(stat average_exec_per_sec)/s $(git describe --always --dirty 2>/dev/null)" \
            >>build/fuzz/$t.runs
        ok "$t: $((before + runs)) inputs in all, $runs runs, $(stat average_exec_per_sec)/s, $(sed \
            -n 's/.*cov: \([0-9]*\).*/\1/p' "$tmp/log" | tail -n 1) edges, $(ls build/fuzz/$t |
                wc -l) inputs kept, heap $(stat most_heap_beyond_factor) bytes beyond"
        [ "$(ls build/fuzz/$t | wc -l)" -le 500 ] || { mkdir "$tmp/$t" &&
            FUZZ_TARGET=$t $dir/fuzz -merge=1 -max_len=$longest "$tmp/$t" build/fuzz/$t >"$tmp/log" 2>&1 &&
                rm -rf build/fuzz/$t && mv "$tmp/$t" build/fuzz/; }
    else fail "$t" "code $code after $runs runs: $(grep -aE \
        'ERROR|runtime error|SUMMARY|bytes of|left open|exit code|deadly' "$tmp/log" | head -n 3 |
            tr '\n' '|') see build/fuzz/$t-*"; cp "$tmp/log" build/fuzz/$t.log; fi
done
summary
