#!/bin/sh
# gpu.sh -- everything that needs a GPU, in one unattended run: bench/results/<gpu>.md, a chart of the step (<gpu>.svg),
# and the figures that docs/make_kernels.sh puts into docs/kernels.md (<gpu>.facts).
#
#   bench/gpu.sh                      build test kernels step sanitize torch rungs: at most 9 minutes
#   bench/gpu.sh kernels step         only these; `build` comes first in any case
#   bench/gpu.sh quality              the losses of 500 steps beside PyTorch's, two seeds each (needs torch)
#   bench/gpu.sh --quick              fewer repetitions, no sanitizers
#   bench/gpu.sh --minutes 20 --out DIR --python /path/to/python3
#
# Needs a GPU, nvcc, ninja, a C++ compiler; a python3 with torch for `torch` and `quality`; compute-sanitizer for
# `sanitize`; cuBLASLt for the comparison in `kernels`. What is missing is skipped and named. Every command has a time
# limit; a stage that fails is reported and the next one begins. Logs stay in build/bench/log. bench/gpu_tune.sh, which
# comes after it, tries what could be faster. Exit codes: 0 all went well, 1 something failed, 66 no GPU or no nvcc.
set -u
cd "$(dirname "$0")/.."

stages='' quick=0 minutes=9 out=bench/results python=${PYTHON:-} command="bench/gpu.sh $*"
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=1 ;;
        --minutes) minutes=${2:?--minutes: want a number}; shift ;;
        --out) out=${2:?--out: want a folder}; shift ;;
        --python) python=${2:?--python: want a program}; shift ;;
        build|test|kernels|rungs|step|torch|sanitize|quality) stages="$stages $1" ;;
        *) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
if [ -z "$stages" ]; then stages='test kernels step sanitize torch rungs'; [ $quick = 0 ] ||
    stages='test kernels step torch'; fi

no() { echo "gpu.sh: $*" >&2; exit 66; }
[ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || nvidia-smi -L >/dev/null 2>&1 ||
    no 'no GPU answers (no /dev/nvidiactl, and nvidia-smi finds none)'
command -v nvcc >/dev/null 2>&1 || [ -x "${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}" ] ||
    no 'no nvcc; install the CUDA toolkit, or set NVCC or CUDA_HOME'
command -v ninja >/dev/null 2>&1 || no 'no ninja'

log=build/bench/log
mkdir -p "$log" "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
begin=$(date +%s)
deadline=$((begin + minutes * 60))
report=$work/report.md facts=$work/facts bad=0
: >"$facts"

say() { printf '%s\n' "$*" | tee -a "$report"; }
problem() { bad=$((bad + 1)); say "- **FAILED** $*"; }
left() { echo $((deadline - $(date +%s))); }
# limit SECONDS COMMAND...: 124 when it took longer, or when the time of the whole run is over.
limit() {
    allowed=$1; shift
    [ "$allowed" -lt "$(left)" ] || allowed=$(left)
    [ "$allowed" -gt 1 ] || return 124
    timeout -k 5 "$allowed" "$@"
}
why() { if [ "$1" = 124 ] || [ "$1" = 137 ]; then echo "its time was over"; else echo "exit code $1"; fi; }
quote() { say '```'; tail -n "${2:-12}" "$1" | cut -c 1-240 | tee -a "$report"; say '```'; }
median() { sort -n | awk '{ x[NR] = $1 } END { if (NR) print x[int((NR + 1) / 2)] }'; }
fact() { awk -v key="$1" '$1 == key { v = $2 } END { print v }' "$facts"; }
over() { awk -v a="$1" -v b="$2" 'BEGIN { if (a > 0 && b > 0) printf "%.2f", a / b; else printf "-" }'; }
# after each stage: a run that is cut short leaves what it had
publish() { [ -z "${name:-}" ] || { cp "$report" "$out/$name.md"; sort -u "$facts" >"$out/$name.facts"; }; }
smi() { nvidia-smi --id=0 --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }

# ------------------------------------------------------------------------------------------------------------- build

stage_build() {
    start=$(date +%s)
    { limit 60 ./configure && limit 400 ninja -k 0 train_gpt build/tools build/tests/kernels_gpu \
        build/tests/graph_gpu build/bench/gpu_kernels; } >"$log/build.log" 2>&1
    code=$?
    build_seconds=$(($(date +%s) - start))
    cuda_root=$(sed -n 's/^cuda_root = //p' build/config.ninja 2>/dev/null)
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cuda_root/lib64
    export LD_LIBRARY_PATH
    device=$(limit 60 build/bench/gpu_kernels --device 2>"$log/device.log" || {
        limit 60 ./train_gpt --device gpu --preset nano --dry-run 2>>"$log/device.log" >/dev/null && smi name; })
    if grep -q 'no GPU answers' "$log/device.log" && [ -z "$device" ]; then
        no "no GPU answers: $(tail -n 1 "$log/device.log")"; fi
    [ -n "$device" ] || device="gpu $(smi name)"
    name=$(echo "$device" | sed 's/^gpu //; s/,.*//' | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
    [ -n "$name" ] || name=unknown
    say "# ${device#gpu }"
    say
    say "| | |"
    say "|---|---|"
    say "| date | $(date -u +%Y-%m-%d) |"
    say "| command | \`$command\` |"
    say "| version | $(./train_gpt --version 2>/dev/null | sed 's/^train_gpt //') |"
    say "| driver | $(smi driver_version) |"
    say "| compilers | $("$(sed -n 's/^nvcc = //p' build/config.ninja)" --version |
        sed -n 's/.*release \([^,]*\), \(.*\)/CUDA \1 (\2)/p'), $($(sed -n 's/^cxx = //p' build/config.ninja) \
        --version | head -n 1) |"
    say "| target | $(sed -n 's/^gencode = //p' build/config.ninja) |"
    say "| clocks, power limit, memory | $(smi clocks.max.sm), $(smi power.limit), $(smi memory.total) |"
    say "| before the run | $(smi clocks.sm), $(smi temperature.gpu) C, $(smi memory.used) in use |"
    say "| host | $(bench/machine.sh) |"
    say
    say '## Build'
    say
    if [ $code = 0 ]; then say "- \`./configure && ninja\`: $build_seconds s"
    else problem "the build: $(why $code)"; grep -E 'error|FAILED|Spill|spill' "$log/build.log" >"$work/errors"
        quote "$work/errors" 20; fi
}

# -------------------------------------------------------------------------------------------------------------- test

# One at a time, where all together did not end or failed in several: an error on the device stays, and spoils what
# comes after it.
kernels_one_by_one() {
    say '- one by one, each in its own process:'
    for t in $(sed -n 's/^TEST(\([a-z_0-9]*\)).*/\1/p' tests/kernels/test_kernels.cpp); do
        limit 40 build/tests/kernels_gpu "$t" >"$work/one" 2>&1
        code=$?
        [ $code = 0 ] || say "  - $t: $(why $code): $(grep -E "^FAIL|error" "$work/one" | head -n 1 | cut -c 1-300)"
    done
}
stage_test() {
    if [ -x build/tests/kernels_gpu ]; then
        limit 240 build/tests/kernels_gpu >"$log/kernels.log" 2>&1
        code=$?
        say "- every operation against the specification: $(tail -n 1 "$log/kernels.log" | cut -c 1-200)"
        if [ $code != 0 ]; then
            problem "build/tests/kernels_gpu: $(why $code)"
            kernels_one_by_one
        fi
    else problem 'build/tests/kernels_gpu was not built'; fi
    # PyTorch brings one
    if [ -z "${LOCKSTEP_NCCL:-}" ] && ! ldconfig -p 2>/dev/null | grep -q libnccl.so.2 && [ -n "$python" ]; then
        LOCKSTEP_NCCL=$("$python" -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")' \
            2>/dev/null)
        export LOCKSTEP_NCCL
    fi
    limit 300 tests/scripts/test_gpu.sh runs >"$log/runs.log" 2>&1
    code=$?
    say "- whole runs (tests/scripts/test_gpu.sh): $(grep '^tests:' "$log/runs.log" || echo 'did not end')"
    grep -E '^(FAIL|SKIP)' "$log/runs.log" | sed 's/^/  - /' | cut -c 1-400 | tee -a "$report"
    [ $code = 0 ] || problem "tests/scripts/test_gpu.sh: $(why $code)"
}

# ----------------------------------------------------------------------------------------------------------- kernels

stage_kernels() {
    seconds=0.1; [ $quick = 0 ] || seconds=0.03
    limit 180 build/bench/gpu_kernels --seconds $seconds >"$log/kernels.md" 2>"$log/kernels.err"
    code=$?
    grep -vE '^(summary|data|fact):' "$log/kernels.md" | tee -a "$report"
    sed -n 's/^summary: //p' "$log/kernels.md" >"$work/kernels"
    sed -n 's/^fact: //p' "$log/kernels.md" >>"$facts"
    if awk -v shape=gpt2-124m-64 -v repeats=8 \
        -v title="${device#gpu }: gpt2-124m, B = 64, a step of 524,288 tokens on one GPU" -f bench/bars.awk \
        "$log/kernels.md" >"$work/chart"; then
        cp "$work/chart" "$out/$name.svg"
        say
        say "![time of a step by kernel]($name.svg)"
    fi
    [ $code = 0 ] || { problem "build/bench/gpu_kernels: $(why $code), at:"; quote "$log/kernels.err" 3; }
    # A step has no pauses: products take all the power that the GPU may use, and the clock falls.
    limit 120 build/bench/gpu_kernels --sustained --seconds $seconds >"$log/sustained.md" 2>"$log/sustained.err" ||
        problem "build/bench/gpu_kernels --sustained: $(why $?)"
    say
    say 'Without pauses between the calls, at the clock that the power limit allows, as in a step:'
    say
    sed -n 's/^summary: \(matrix\|kernels of\|ceilings\)/- \1/p' "$log/sustained.md" | tee -a "$report"
    sed -n 's/^fact: /sustained-/p' "$log/sustained.md" >>"$facts"
}

# The tiles of docs/kernels.md on a Hopper, each for all shapes. (The portable kernels on a Hopper: a build with
# CUDA_ARCH=80.)
stage_rungs() {
    [ -s "$log/kernels.md" ] || { say 'Not run: needs the stage "kernels".'; return; }
    for rung in wide pingpong; do
        : >"$log/$rung.md"
        case $device in *H100*|*H200*|*H800*|*H20*)
            limit 60 env "LOCKSTEP_TILE=$rung" build/bench/gpu_kernels --only 'matmul ' --seconds 0.02 \
                >"$log/$rung.md" \
                2>"$log/rungs.err" || problem "LOCKSTEP_TILE=$rung build/bench/gpu_kernels: $(why $?)" ;;
        esac
    done
    say 'Microseconds of a call: by one kind of Hopper tile for all shapes, and as it is used.'
    say
    say '| shape | operation | wide | ping-pong | used | cuBLASLt |'
    say '|---|---|---:|---:|---:|---:|'
    awk -F '|' '
        function us(x) { return x > 0 ? sprintf("%.1f", x) : "" }
        /^data: / { sub(/^data: /, ""); if (file < 3) { at[file, $1, $2] = $4; next }
            if (at[1, $1, $2] > 0 && $2 ~ / (forward|input|params)/)
                printf "| %s | %s | %s | %s | %s | %s |\n", $1, $2, us(at[1, $1, $2]), us(at[2, $1, $2]),
                    us($4), us($6) }' \
        file=1 "$log/wide.md" file=2 "$log/pingpong.md" file=3 "$log/kernels.md" | tee -a "$report"
    for rung in wide pingpong kernels; do      # 65,536 x 3,072 x 768: 309,238 MFLOP
        awk -F '|' -v rung=$rung \
            '/^data: gpt2-124m-64\|fcproj forward/ && $4 > 0 { printf "rung-%s %.0f\n", rung, 309237.6 / $4 }' \
            "$log/$rung.md" >>"$facts"
    done
}

# -------------------------------------------------------------------------------------------------------------- step

tokens=$work/tokens.bin
# 32 M random tokens below 50257, as nanoGPT writes them: bytes 0 .. 195 only, so that two of them are 50115 at most.
make_tokens() { [ -s "$tokens" ] || head -c 64000000 /dev/urandom | LC_ALL=C tr '\304-\377' '\000-\073' >"$tokens"; }

column() { sed -n "s/.*\"event\":\"train\".*\"$2\":\"\{0,1\}\([^,}\"]*\).*/\1/p" "$1" | tail -n "+$3" | median; }
one_step_row() {        # PRESET BATCH_SIZE TOKENS_PER_STEP STEPS SECONDS [step|plain: no graph]
    kind=${6:-step} graph=on how=
    [ $kind != plain ] || graph=off how=', no graph'
    dir=$work/$kind-$1-$2-$3
    limit "$5" ./train_gpt --device gpu --preset "$1" --batch-size "$2" --total-batch-size "$3" --steps "$4" \
        --data "$tokens" --vocab-size 50257 \
        --eval-every 0 --sample-every 0 --save-every 0 --audit-every 0 --graph "$graph" --out-dir "$dir" \
        >"$log/$kind-$1-$2-$3.log" 2>&1 & pid=$!
    used=0
    while kill -0 $pid 2>/dev/null; do
        now=$(smi memory.used | tr -cd '0-9')
        [ "${now:-0}" -le "$used" ] || used=$now
        sleep 1
    done
    wait $pid; code=$?
    metrics=$dir/metrics.jsonl skip=$(($4 / 4 + 2))
    speed=$(column "$metrics" tok_s $skip 2>/dev/null | awk '{ printf "%.0f", $1 }')
    if [ $code != 0 ] || [ -z "$speed" ]; then
        say "| $1 | $2 | $3 | **FAILED**: $(why $code) | | | | |"
        bad=$((bad + 1))
        tail -n 2 "$log/$kind-$1-$2-$3.log" | cut -c 1-300 >>"$work/step-errors"
        return
    fi
    echo "$kind-$1-$2-$3 $speed" >>"$facts"
    grep -h 'no CUDA graph' "$log/$kind-$1-$2-$3.log" >>"$work/step-errors"
    last=$(sed -n 's/.*"event":"train".*"loss":\([^,]*\),.*/\1/p' "$metrics" | tail -n 1 | cut -c 1-6)
    mfu=$(column "$metrics" mfu $skip | awk '$1 > 0 { printf "%.1f %%", 100 * $1 }')
    say "| $1$how | $2 | $3 | $speed | $mfu | $(column "$metrics" step_ms $skip) | $used | $last |"
    rm -rf "$dir"
}
stage_step() {
    make_tokens
    rm -f "$work/step-errors"
    say 'Random tokens, V = 50,257, T = 1,024; medians after the first quarter. MFU by 6 N + 6 L C T flops per token'
    say "and the data sheet's dense bf16 peak."
    say
    say '| preset | B | tokens per step | tokens/s | MFU | ms per step | MiB in use | last loss |'
    say '|---|---:|---:|---:|---:|---:|---:|---:|'
    n=50; [ $quick = 0 ] || n=32
    one_step_row gpt2-124m 16 65536 $n 60
    one_step_row gpt2-124m 16 65536 $n 60 plain
    one_step_row gpt2-124m 16 524288 $((n / 4)) 90
    one_step_row gpt2-124m 64 524288 $((n / 4)) 90
    one_step_row gpt2-350m 8 65536 $((n * 2 / 5)) 60
    [ $quick = 1 ] || one_step_row gpt2-1558m 4 65536 12 90
    if [ -s "$work/step-errors" ]; then say; quote "$work/step-errors"; fi
}

# ----------------------------------------------------------------------------------------------------------- PyTorch

find_python() {
    for p in "$python" python3 build/venv/bin/python /usr/bin/python3; do
        [ -n "$p" ] && "$p" -c 'import torch; assert torch.cuda.is_available()' >/dev/null 2>&1 && { python=$p
            return 0; }
    done
    say 'Skipped: no python3 with torch that sees a GPU (--python names one).'
    return 1
}
# Attention as PyTorch has it: the best of its backends for each shape.
torch_attention() {
    limit 90 "$python" bench/torch_step.py attention >"$log/torch-attention.log" 2>"$log/torch-attention.err" ||
        problem "bench/torch_step.py attention: $(why $?)"
    say '| attention | B | PyTorch forward TFLOP/s | backward | ours forward | backward |'
    say '|---|---:|---:|---:|---:|---:|'
    for shape in $(awk '{ print $1 "-" $2 "-" $3 }' "$log/torch-attention.log" | uniq); do
        size=${shape%%-*} rest=${shape#*-}
        key=d$size-T${rest%-*}-B${rest#*-}
        for way in forward backward; do
            awk -v s="$size" -v t="${rest%-*}" -v b="${rest#*-}" -v column=$([ $way = forward ] && echo 5 || echo 6) \
                -v key="best-attention_$way-$key" \
                '$1 == s && $2 == t && $3 == b && $column > best { best = $column; name = $4 } 
                    END { if (best) print key, best, name }' "$log/torch-attention.log" >>"$facts"
        done
        ours() { fact "attention_$1-$key"; }
        best() { awk -v key="best-attention_$1-$key" '$1 == key { print $2 " (" $3 ")" }' "$facts"; }
        say "| head of $size, T = ${rest%-*} | ${rest#*-} | $(best forward) |" \
            "$(best backward) | $(ours forward) | $(ours backward) |"
    done
    say
}
stage_torch() {
    find_python || return
    torch_attention
    steps=10; [ $quick = 0 ] || steps=5
    version=$("$python" -c 'import torch; print(torch.__version__, "with CUDA", torch.version.cuda)')
    say "PyTorch $version: bf16 autocast,"
    say 'torch.compile, scaled_dot_product_attention, fused AdamW (bench/torch_step.py).'
    say
    say '| preset | B | tokens per step | PyTorch tokens/s | ours | ours / PyTorch | MB PyTorch allocated |'
    say '|---|---:|---:|---:|---:|---:|---:|'
    for b in 16 64; do
        sizes='65536 524288'; [ $b = 16 ] || sizes=524288
        limit 150 "$python" bench/torch_step.py speed --preset gpt2-124m --batch-size $b --total-batch-size $sizes \
            --steps $steps >"$log/torch-$b.log" 2>"$log/torch-$b.err"
        code=$?
        sed -n 's/^tok_s //p' "$log/torch-$b.log" >"$work/torch"
        while read -r size speed memory; do
            ours=$(fact "step-gpt2-124m-$b-$size")
            echo "torch-gpt2-124m-$b-$size $speed" >>"$facts"
            say "| gpt2-124m | $b | $size | $speed | $(printf '%.0f' "${ours:-0}") | $(over "$ours" \
                "$speed") | $memory |"
        done <"$work/torch"
        [ $code = 0 ] || { say; problem "bench/torch_step.py, B = $b: $(why $code)"; quote "$log/torch-$b.err" 4; say; }
    done
}

# -------------------------------------------------------------------------------------------------------- sanitizers

stage_sanitize() {
    sanitizer=$(command -v compute-sanitizer || ls "$cuda_root/bin/compute-sanitizer" \
        "$cuda_root/compute-sanitizer/compute-sanitizer" 2>/dev/null | head -n 1)
    [ -n "$sanitizer" ] || { say 'Skipped: no compute-sanitizer.'; return; }
    pids='' tools='memcheck racecheck initcheck synccheck'
    # All four at once: nothing is timed. Without the tests that ask for impossible memory or test the checker.
    for tool in $tools; do
        limit 120 "$sanitizer" --tool $tool --report-api-errors no --error-exitcode 9 build/tests/kernels_gpu \
            embedding layernorm dropout matmul gelu attention \
            classifier sum_in_order fold adamw hash >"$log/$tool.log" 2>&1 & pids="$pids $!"
    done
    for tool in $tools; do
        set -- $pids; wait "$1"; code=$?; shift; pids=$*
        say "- $tool: $(grep -E '^=+ (ERROR|RACECHECK) SUMMARY' "$log/$tool.log" | sed 's/^=* //' |
            tail -n 1), $(grep -c '^ok ' "$log/$tool.log") tests passed$([ $code = 0 ] || echo ", $(why $code)")"
        if [ $code = 9 ]; then problem "$tool found errors, the first:"; grep '^====' "$log/$tool.log" |
            sed -n '2,14p' >"$work/errors"; quote "$work/errors" 13; fi
    done
}

# ----------------------------------------------------------------------------------------------------------- quality

stage_quality() {
    find_python || return
    say '25 M weights (8 layers, 512 channels, T = 512, bytes of the built-in stories), 500 steps of 16,384 tokens, the'
    say 'same weights at the start, the same batches in the same order. Mean loss of the last 100 steps:'
    say
    "$python" -c 'import json, sys
text = "\n".join(json.loads(line)["text"] for line in sys.stdin).encode()
both = bytearray(2 * len(text))
both[::2] = text
sys.stdout.buffer.write(both)' <build/data/stories_train.jsonl >"$work/stories.bin"
    say '| seed | ours, bf16 | PyTorch, bf16 | ours - PyTorch | largest difference of a step |'
    say '|---:|---:|---:|---:|---:|'
    for seed in 1 2; do
        init=$work/init$seed
        {
            limit 60 "$python" bench/torch_step.py init --out "$init" --seed $seed &&
            limit 300 "$python" bench/torch_step.py train --init "$init" --data "$work/stories.bin" --seed $seed \
            --batch-size 16 --total-batch-size 16384 \
                --steps 500 --warmup-steps 50 --lr 6e-4 --out "$work/torch$seed" &&
            limit 300 ./train_gpt --device gpu --init "$init" --data "$work/stories.bin" \
            --val-data "$work/stories.bin" --sampler torch --replicas 1 --seed $seed --batch-size 16 \
                --total-batch-size 16384 --steps 500 --warmup-steps 50 --lr 6e-4 --final-lr-frac 0.1 --beta1 0.9 \
                --beta2 0.95 --eps 1e-8 --weight-decay 0.1 --grad-clip 1 \
                --dropout 0 --eval-every 0 --sample-every 0 --save-every 0 --audit-every 0 --out-dir "$work/ours$seed"
        } >"$log/quality-$seed.log" 2>&1
        code=$?
        [ $code = 0 ] || { problem "seed $seed: $(why $code)"; quote "$log/quality-$seed.log" 4; return; }
        sed -n 's/^{"event":"train","step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$work/ours$seed/metrics.jsonl" |
            awk 'NR == FNR { torch[$1] = $2; next } { d = $2 - torch[$1]; if (d < 0) d = -d;
                if (d > most) most = d } $1 >= 400 { a += $2; b += torch[$1]; n++ }
                 END { printf "%.5f %.5f %.5f %.4f\n", a / n, b / n, a / n - b / n, most }' "$work/torch$seed" - \
                     >"$work/row"
        read -r a b d most <"$work/row"
        say "| $seed | $a | $b | $d | $most |"
        echo "torch-loss-$seed $b" >>"$facts"; echo "loss-gap-$seed $d" >>"$facts"
    done
    say
    awk -v a="$(fact torch-loss-1)" -v b="$(fact torch-loss-2)" -v g="$(fact loss-gap-1)" -v h="$(fact loss-gap-2)" \
        'BEGIN {
        if (g < 0) g = -g; if (h < 0) h = -h; if (h > g) g = h; s = a > b ? a - b : b - a
        printf "Largest gap to PyTorch %.5f, spread of its two seeds %.5f: %s.\n", g, s,
            g <= s ? "the gap is within the spread" : "the gap is larger than the spread" }' >"$work/quality"
    say "$(cat "$work/quality")"
}

# ------------------------------------------------------------------------------------------------------------- summary

fastest() { awk -v key="$1" 'index($1, key) == 1 && $2 > best { best = $2 } END { printf "%.0f", best }' "$facts"; }
summarise() {
    say
    say '## Summary'
    say
    for what in step torch; do echo "best-$what $(fastest $what-gpt2-124m)" | awk '$2 > 0' >>"$facts"; done
    awk -f bench/targets.awk "$facts" | tee -a "$report"
    say
    for file in kernels quality; do [ ! -s "$work/$file" ] || sed 's/^/- /' "$work/$file" | tee -a "$report"; done
    say "- $([ $bad = 0 ] && echo 'nothing failed' || echo "$bad failures, marked FAILED above"); $(($(date +%s) - \
        begin)) s in all; after it $(smi clocks.sm), $(smi temperature.gpu) C"
}

stage_build
publish
[ -n "$python" ] || python=$(command -v python3)
for stage in $stages; do
    [ $stage != build ] || continue
    say
    case $stage in
        test) say '## Tests' ;; kernels) say '## Kernels' ;; rungs) say '## Portable kernels, and those used' ;;
        step) say '## Training steps' ;; torch) say '## The same in PyTorch' ;;
        sanitize) say '## Sanitizers' ;; quality) say '## Losses beside PyTorch' ;;
    esac
    say
    if [ "$(left)" -lt 10 ]; then say "Not run: the $minutes minutes were over (--minutes)."
    else
        start=$(date +%s)
        "stage_$stage"
        say
        say "($(($(date +%s) - start)) s)"
    fi
    publish
done
summarise
publish
echo "gpu.sh: wrote $out/$name.md"
[ $bad = 0 ]
