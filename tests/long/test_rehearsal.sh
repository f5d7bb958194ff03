#!/bin/sh
# test_rehearsal.sh -- both commands of bench/gpu.sh from end to end without a GPU: small runs on a GPU in software, and
# stand-ins for nvidia-smi, ncu, compute-sanitizer and a python3 with torch. Every table, fact and file must come out,
# and what fails must be named.
# inputs: cxx nvcc bench/gpu.sh bench/*.awk bench/*.h bench/gpu_kernels.cpp bench/cublaslt.cpp bench/torch_step.py
# inputs: tests/gpu tests/kernels tests/scripts/test_gpu.sh kernels models train_gpt.cu src/run src/app
. tests/lib.sh
needs_nvcc "bench/gpu.sh"
need build/train_gpt_ptx build/plan_ptx build/bench/gpu_kernels_ptx build/tests/kernels_ptx build/tools
build=$PWD/build
made=$tmp/made soft=$tmp/soft
mkdir -p "$made" "$soft/bench" "$soft/tests"
script() { cat >"$1"; chmod +x "$1"; }
calls() { printf '#!/bin/sh\n%s\n' "$2" | script "$1"; }
script "$made/nvidia-smi" <<'END'
#!/bin/sh
# Every other time the GPU has nothing to do.
[ "$1" != -L ] || { echo 'GPU 0: made up'; exit; }
count=$(($(cat "$0.count" 2>/dev/null || echo 0) + 1))
echo $count >"$0.count"
for a in "$@"; do
    case $a in --query-gpu=*) fields=${a#*=} ;; --format=*nounits*) plain=1 ;; esac
done
line=
for f in $(echo "$fields" | tr , ' '); do
    unit=
    case $f in
        name) value='Made Up 100' ;; clocks.sm) value=$((count % 2 ? 345 : 1500)) unit=' MHz' ;;
        power.draw) value=$((count % 2 ? 90 : 690)).25 unit=' W' ;; temperature.gpu) value=41 ;;
        memory.used) value=2048 unit=' MiB' ;; *) value=580 ;;
    esac
    [ -z "${plain:-}" ] || unit=
    line="$line${line:+, }$value$unit"
done
echo "$line"
END
script "$made/ncu" <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
        --export) export=$2; shift ;; --import) import=$2; shift ;; --page) page=$2; shift ;;
        --set|--clock-control|--profile-from-start|--print-units) shift ;;
        --csv) ;;
        *) break ;;
    esac
    shift
done
[ -z "${export:-}" ] || { "$@" >&2 && echo report >"$export.ncu-rep"; exit; }
[ -s "$import" ] || { echo '==ERROR== no report'; exit 1; }
[ "$page" = raw ] || { echo details; exit; }
awk -F '|' '{ for (i = 1; i <= 3; i++) row[i] = row[i] ",\"" $i "\"" }
    END { for (i = 1; i <= 3; i++) print substr(row[i], 2) }' <<'CSV'
ID||0
Process Name||gpu_kernels
Kernel Name||void matmul<Wide, (int)2>(Args, unsigned long)
Block Size||(384, 1, 1)
gpu__time_duration.sum|ns|537,500
sm__throughput.avg.pct_of_peak_sustained_elapsed|%|81.2
gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed|%|22.5
lts__throughput.avg.pct_of_peak_sustained_elapsed|%|40.1
sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active|%|66.6
sm__inst_issued.avg.pct_of_peak_sustained_active|%|33.3
launch__registers_per_thread|register/thread|168
smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio|inst|1.5
smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio|inst|4.25
CSV
END
calls "$made/compute-sanitizer" "printf '%s\\n' 'ok   one' '========= ERROR SUMMARY: 0 errors'"
script "$made/python3" <<'END'
#!/bin/sh
golden=tests/golden/gpt2_tiny
case "$*" in
    *torch.cuda.is_available*) exit 0 ;;
    *torch.__version__*) echo '2.11.0 with CUDA 13.0' ;;
    *'import json'*) cat $golden/batch.bin ;;
    *nccl*) exit 1 ;;
    *'torch_step.py attention'*)
        printf '%s\n' '64 1024 16 flash 300 150 F' '64 1024 16 cudnn 320 180 C' '128 8192 2 cudnn 580 466 C' ;;
    *'torch_step.py speed'*) echo 'tok_s 524288 500000 31000' ;;
    *'torch_step.py init'*) while [ "$1" != --out ]; do shift; done; cp -r $golden "$2" ;;
    *'torch_step.py train'*) while [ "$1" != --out ]; do shift; done; head -n 6 $golden/losses.txt >"$2" ;;
    *) exit 2 ;;
esac
END
for p in train_gpt train_gpt_faults; do ln -s "$build/train_gpt_ptx" "$soft/$p"; done
ln -s "$build/lm_ptx" "$soft/lm_faults"
for p in lm_ptx import launch plan_ptx prep tensorboard; do ln -s "$build/$p" "$soft/${p%_ptx}"; done
calls "$soft/bench/gpu_kernels" "exec $build/bench/gpu_kernels_ptx --tiny --seconds 0.001 \"\$@\""
calls "$soft/tests/kernels_gpu" "exec $build/tests/kernels_ptx layernorm"
calls "$soft/tests/graph_gpu" 'exit 0'
cp -r "$soft" "$tmp/slow"
calls "$tmp/slow/bench/gpu_kernels" 'exit 3'

[ -e /dev/nvidiactl ] || command -v nvidia-smi >/dev/null 2>&1 ||
    expect "no GPU answers" 66 'no GPU answers' bench/gpu.sh first --out "$tmp/none"
expect "a command is asked for" 2 'gpu.sh first' bench/gpu.sh
targets() { ninja -n $(bench/gpu.sh targets) >"$tmp/ninja" 2>&1 || { tail -n 2 "$tmp/ninja"; return 1; }; }
check "ninja knows what is to be built" targets
packed() { COMPRESS='xz -0' bench/gpu.sh pack "$tmp/bin.tar.xz" default="$soft" other="$soft" >"$tmp/pack.log" 2>&1; }
check "programs are put together" packed

calls "$made/ninja" 'exit 1'
unset PYTHON
export PATH="$made:$PATH" TICK=0.2 RUN_OPTIONS='--layers 1 --heads 1 --channels 64 --seq-len 16 --tokenizer byte
    --data tests/golden/lines.txt' GPU_TEST_SIZE='--layers 1 --heads 1 --channels 16 --seq-len 8 --batch-size 1
    --total-batch-size 64' QUALITY_RUN='--batch-size 4 --total-batch-size 96 --steps 6 --warmup-steps 2'
export STEP_ROWS='gpt2-124m 1 64 6 step
    gpt2-124m 1 64 6 plain
    gpt2-1558m 2 64 5 step
    gpt2-nothing 1 64 5 step'
mv build/gpu.facts "$tmp/kept" 2>/dev/null
expect "first: what fails is counted" 1 '^gpu.sh: wrote .*first-logs' bench/gpu.sh first --out "$tmp/out" \
    --bin "$tmp/bin.tar.xz" --seconds 8400 --run 'gpt2-124m 1 64 6' \
    --shapes tiny,update graph=--graph=off both=LOCKSTEP_TILE=wide,--batch-size=2 other slow="$tmp/slow" \
    wrong=--graph=maybe none=/nowhere
cp "$tmp/expect.log" "$tmp/first.log"
report=$(ls "$tmp"/out/in-software*.md 2>/dev/null | head -n 1)
# has FILE PATTERN...: a line like each of these.
has() {
    file=$1 bad=; shift
    for p in "$@"; do grep -qE -- "$p" "$file" || { echo "no line like $p"; bad=1; }; done
    [ -z "$bad" ]
}
n='[0-9]+(\.[0-9]+)?'
check "steps" has "$report" "^\| gpt2-124m \| 1 \| 64 \| $n \|.*\| $n \| $n \| 1500 \| 690.25 \| 41 \| 2048 \| $n \|" \
    '^\| gpt2-124m, no graph \|' '^\| gpt2-1558m \| 2 ' 'gpt2-nothing .*FAILED.*exit code 2' \
    '^step-gpt2-nothing-1-64: .*preset'
check "pairs" has "$report" "^\| graph \| .--graph=off. \| $n \| $n \| $n \|" \
    "^\| both \| .*wide,--batch-size=2. \| $n " "^\| other \| .*bin/other. \| $n \| $n " '^\| wrong \| .*FAILED' \
    '^pair-[0-9]+-wrong: .*maybe' 'none: no program train_gpt'
check "variants" has "$report" '^\| shape \| operation \| default \| both \| other \|' \
    "^\| tiny-2 \| fc params \| $n \| $n \| $n \|" "^\| update \| find_poison \| $n " '\*\*all, x calls' \
    'slow: .*exit code 3'
check "kernels" has "$report" '^### tiny, B = 2' '^\| fcproj params \|' '^\| head params \|' '^\| find_poison \|' \
    'kernels of a micro-batch'
check "tests" has "$report" 'every operation against the spec.*: .' 'whole runs.*: [1-9][0-9]* passed, 0 failed'
check "ncu" has "$report" '^\| matmul<Wide, .int.2> \| 537.5 \| 81 \| 67 \| 22 \| 40 \| 33 \| 168 \| long.* 4.2 barrier'
check "PyTorch" has "$report" '^\| head of 64, T = 1024 \| 16 \| 300, 150 \| 320, 180 \|' \
    'gpt2-124m \| 64 \| 524288 \| 500000'
check "quality" has "$report" "^\| 1 \| $n \| $n \| -?$n " '^\| 2 \|' 'Largest gap to PyTorch'
check "sanitizers" has "$report" 'racecheck: ERROR SUMMARY: 0 errors, 1 tests passed'
check "targets" has "$report" 'tokens/s \(H200\) \| 650000 \| [0-9]' 'tokens/s \(H200\) \| 60000 \| [0-9]' 'cudnn'
facts=${report%.md}.facts
check "facts" has "$facts" '^step-gpt2-124m-1-64 [1-9]' '^compute-step-gpt2-124m-1-64 ' \
    '^mhz-step-gpt2-124m-1-64 1500' '^plain-gpt2-124m-1-64 ' '^attention_backward-d128-T40-B1 [0-9]' \
    '^first-pair-other [0-9]' '^best-step-gpt2-124m ' '^best-torch-gpt2-124m 500000' \
    '^best-step-gpt2-1558m ' '^best-attention_backward-d64-T1024-B16 180 cudnn' '^loss-gap-2 ' '^done-ncu 1'
check "logs" sh -c 'tar -tzf "$1" | grep -q log/ncu.csv && tar -tzf "$1" | grep -q "log/pair-1-default.smi"' sh \
    "$tmp/out/first-logs.tar.gz"

expect "second" 0 '^gpu.sh: wrote ' bench/gpu.sh second --out "$tmp/out2" --bin "$tmp/bin.tar.xz" --seconds 4800 \
    --run 'gpt2-124m 1 64 6' --pairs 2 --shapes tiny other
cp "$tmp/expect.log" "$tmp/second.log"
report=$(ls "$tmp"/out2/in-software*-second.md 2>/dev/null | head -n 1)
check "its pairs, beside those of first" has "$report" "^\| other \| .*bin/other. \| $n \| $n \| $n $n \| $n \|"
check "the winner's tests" has "$report" '^The fastest is other' 'every operation against the spec.*: .' \
    'bits\): tests: [1-9][0-9]* passed, 0 f'
check "what first had done is not done again" sh -c '! grep -qE "^## (ncu|quality|sanitize)" "$1"' sh "$report"
check "all facts" has "${report%-second.md}.facts" '^second-pair-other ' '^first-pair-other ' '^winner other'
few() { for folder in "$@"; do [ "$(ls "$folder" | wc -l)" -eq 3 ] || { ls "$folder"; return 1; }; done; }
check "three files come back" few "$tmp/out" "$tmp/out2"
rm -f build/gpu.facts
expect "second without facts" 0 'It has the programs of the default' bench/gpu.sh second --out "$tmp/out3" \
    --bin "$tmp/bin.tar.xz" --seconds 4800 --stages 'winner ncu' graph=--graph=off
mv "$tmp/kept" build/gpu.facts 2>/dev/null
[ "$failed" = 0 ] || [ -z "${KEEP:-}" ] || { rm -rf "$KEEP"; cp -r "$tmp" "$KEEP"; }
summary
