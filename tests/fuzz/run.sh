#!/bin/sh
# run.sh [TARGET...] -- builds tests/fuzz/fuzz.cpp with clang's libFuzzer and sanitizers and runs its targets (all): ninja fuzz.
#   FUZZ_RUNS=N      inputs per target (10,000,000)        FUZZ_SECONDS=S   at most S seconds per target (0: no limit)
#   FUZZ_TIMEOUT=S   a slower input is a finding (60, by the clock: more where processes are stopped)
#   FUZZ_FAST=1      without the address sanitizer, optimised: for many inputs; undefined behaviour and too much memory still end it
#                    (comparisons are not traced: their operands found by the slower build are in the corpus they share)
# Corpora grow in build/fuzz/TARGET; what crashes a reader is left in build/fuzz/TARGET-crash-*.
cd "$(dirname "$0")/../.." && . tests/lib.sh
clang=${FUZZ_CXX:-clang++}
if [ "${FUZZ_FAST:-}" ]; then dir=build/fuzz/.fast sanitize="-O2 -fsanitize=fuzzer-no-link,undefined -fsanitize-trap=undefined -fno-sanitize-coverage=trace-cmp" link=-fsanitize=fuzzer
else dir=build/fuzz/.asan sanitize="-O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined" link=-fsanitize=fuzzer,address,undefined; fi
mkdir -p $dir
FUZZ_FOLDER=$(mktemp -d -p /dev/shm 2>/dev/null || echo "$tmp")
export FUZZ_FOLDER
trap 'rm -rf "$tmp" "$FUZZ_FOLDER"' EXIT
if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$tmp/x.cpp" ||
   ! $clang -fsanitize=fuzzer,address "$tmp/x.cpp" -o "$tmp/x" 2>"$tmp/x.log"; then
    skip fuzz "$clang has no libFuzzer here (on Debian: apt-get install clang libclang-rt-14-dev)"; summary; exit
fi
sources= wraps=-Wl
for w in mmap munmap write getrandom; do wraps=$wraps,--wrap=$w; done
flags="-std=c++20 -g -pthread $sanitize -ffp-contract=off -Wno-psabi -DLOCKSTEP_VERSION=__DATE__ -Isrc -Ikernels -Imodels -Idata -Itests"
newest=$(ls -t src/*.h src/*.cpp data/*.h tests/fuzz/fuzz.cpp | head -n 1)
for f in arena bpe_train common curve data fault file gpu_health json loader log options safetensors sampler shards tokenizer unicode world; do sources="$sources src/$f.cpp"; done
if [ ! -x $dir/fuzz ] || [ "$newest" -nt $dir/fuzz ]; then
    for f in $sources data/stories.cpp tests/fuzz/fuzz.cpp; do echo "$f"; done |
        xargs -P "$(nproc)" -I{} sh -c "$clang $flags -c {} -o $dir/\$(basename {} .cpp).o" || { fail fuzz "it does not build"; summary; exit 1; }
    $clang $link -pthread $wraps $dir/*.o -o $dir/fuzz || { fail fuzz "it does not link"; summary; exit 1; }
fi
for t in ${*:-$(FUZZ_TARGET=list $dir/fuzz)}; do
    mkdir -p build/fuzz/$t
    FUZZ_TARGET=$t FUZZ_SEEDS=build/fuzz/$t $dir/fuzz build/fuzz/$t -runs="${FUZZ_RUNS:-10000000}" -max_total_time="${FUZZ_SECONDS:-0}" -max_len=16384 -timeout="${FUZZ_TIMEOUT:-60}" \
        -rss_limit_mb=2048 -malloc_limit_mb=64 -artifact_prefix=build/fuzz/$t- -print_final_stats=1 -reload=0 -print_funcs=0 -entropic=0 >"$tmp/log" 2>&1
    code=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$tmp/log")
    speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$tmp/log")
    if [ $code -eq 0 ]; then ok "$t: $runs runs, $speed/s, $(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$tmp/log" | tail -n 1) edges, $(ls build/fuzz/$t | wc -l) inputs kept, heap $(sed -n 's/^stat::most_heap_beyond_factor: *//p' "$tmp/log") bytes beyond"
    else fail "$t" "code $code after $runs runs: $(grep -aE 'ERROR|runtime error|SUMMARY|bytes of heap|deadly' "$tmp/log" | head -n 3 | tr '\n' '|') see build/fuzz/$t-*"; cp "$tmp/log" build/fuzz/$t.log; fi
done
summary
