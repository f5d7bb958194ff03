#!/bin/sh
# gpu.sh -- everything that needs a GPU, unattended, in two commands: what a step costs and why, beside variants; then
# the best of these variants and its tests. What decides comes first.
#
#   bench/gpu.sh first [NAME=CHANGE...] [OPTIONS]         420 s: steps pairs variants kernels test ncu torch quality
#                                                         sanitize
#   bench/gpu.sh second [NAME=CHANGE...] [OPTIONS]        240 s: pairs winner variants, and what first did not do
#   bench/gpu.sh pack FILE.tar.xz [NAME=FOLDER...]        the programs of this build and of others, for --bin;
#   bench/gpu.sh targets                                  and what ninja has to build for that
#   bench/gpu.sh --rehearse                               both on a GPU in software: tests/long/test_rehearsal.sh
#
# A CHANGE is what a variant has other than the default, with commas between: an option (--batch-size=128), a variable
# (LOCKSTEP_TILE=wide), a build folder. NAME alone is the folder of that name in --bin.
#   --bin FOLDER|FILE         programs of `pack`; those that do not run here are built, as without --bin
#   --out FOLDER              gets all that is written: a report, facts for docs/make_kernels.sh, logs as an archive
#   --stages "A B", --seconds N                           only these, after the build; of the whole command
#   --run "PRESET BATCH TOKENS STEPS", --pairs N          a run of `pairs`, and how often each variant has its turn
#   --shapes A,B, --only A,B                              rows of `variants`: parts of shapes' and operations' names
#
# What is missing (ncu, compute-sanitizer, cuBLASLt, torch, which $PYTHON or python3 may have) is skipped and named.
# Every stage and command has a time limit; one that fails is reported and the next begins. build/gpu.facts keeps what
# first measured for second. Exit codes: 0 all went well, 1 something failed, 2 usage, 66 no GPU or nothing to run.
set -u
cd "$(dirname "$0")/.."
usage() { sed -n '2,23s/^# \{0,1\}//p' "$0"; exit 2; }
order="bench/gpu.sh $*" order=$(echo "$order" | cut -c 1-300) command=${1:-}
[ $# -eq 0 ] || shift
programs='train_gpt train_gpt_faults lm lm_faults import launch plan prep tensorboard bench/gpu_kernels
    tests/kernels_gpu tests/graph_gpu'
case $command in
    first) standard=420 stages='steps pairs variants kernels test ncu torch quality sanitize' pairs=1 ;;
    second) standard=240 stages='pairs winner variants test ncu torch quality sanitize' pairs=2 ;;
    --rehearse) exec tests/long/test_rehearsal.sh ;;
    targets) for p in $programs; do echo "build/$p"; done; exit ;;
    pack)
        into=${1:?want FILE.tar.xz}; shift
        work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
        for source in default=build "$@"; do
            name=${source%%=*} from=${source#*=}
            rm -rf "${work:?}/$name"
            for p in $programs; do
                case $name,$p in default,*|*,train_gpt|*,*/gpu_kernels|*,*/kernels_gpu) ;; *) continue ;; esac
                [ -x "$from/$p" ] || { echo "gpu.sh: no $from/$p" >&2; continue; }
                mkdir -p "$(dirname "$work/$name/$p")"
                strip -o "$work/$name/$p" "$from/$p" 2>/dev/null || cp "$from/$p" "$work/$name/$p"
            done
            [ "$name" = default ] || for p in lm import launch plan prep; do ln -s "../default/$p" "$work/$name"; done
            sed -n 's/^gencode = //p' "$from/config.ninja" >"$work/$name/target"
        done
        mkdir "$work/default/data" && cp build/data/stories_train.jsonl "$work/default/data"
        tar -C "$work" -c . | ${COMPRESS:-xz -T0 --lzma2=preset=6,dict=128MiB} >"$into"
        ls -l "$into"
        exit ;;
    *) usage ;;
esac
seconds=$standard out=bench/results python=${PYTHON:-} bin='' asked=''
shapes=124m-64 only='' run='gpt2-124m 64 524288 8'
while [ $# -gt 0 ]; do
    case $1 in
        --bin|--out|--stages|--seconds|--pairs|--run|--shapes|--only)
            [ $# -gt 1 ] || usage
            case $1 in
                --bin) bin=$2 ;; --out) out=$2 ;; --stages) stages=$2 ;; --seconds) seconds=$2 ;; --pairs) pairs=$2 ;;
                --run) run=$2 ;; --shapes) shapes=$2 ;; --only) only=$2 ;;
            esac
            shift ;;
        -*) usage ;;
        *) asked="$asked $1" ;;
    esac
    shift
done
for stage in $stages; do
    case $stage in steps|pairs|variants|kernels|test|ncu|torch|quality|sanitize|winner) ;; *) usage ;; esac
done
# Rows of `steps`: preset, micro-batch, tokens and steps of a run, the fact's name. Tests bring their own.
rows=${STEP_ROWS:-'gpt2-124m 64 524288 8 step
    gpt2-124m 128 524288 8 step
    gpt2-1558m 16 65536 6 step
    gpt2-1558m 32 65536 5 step
    gpt2-124m 16 65536 16 step
    gpt2-124m 16 65536 16 plain
    gpt2-1558m 4 65536 5 step'}

no() { echo "gpu.sh: $*" >&2; exit 66; }
[ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || nvidia-smi -L >/dev/null 2>&1 ||
    no 'no GPU answers (no /dev/nvidiactl, and nvidia-smi finds none)'
work=$(mktemp -d)
log=$work/log report=$work/report.md facts=$work/facts variants=$work/variants bad=0 name=unknown default=build
mkdir -p "$log" "$out" build
: >"$report"; : >"$facts"; : >"$variants"
begin=$(date +%s)
deadline=$((begin + seconds)) stage_end=$((begin + seconds))
[ "$command" = first ] || [ ! -s build/gpu.facts ] || cp build/gpu.facts "$facts"
suffix=; [ "$command" = first ] || suffix=-second

say() { printf '%s\n' "$*" | tee -a "$report"; }
problem() { bad=$((bad + 1)); say "- **FAILED** $*"; }
left() { echo $((stage_end - $(date +%s))); }
# limit SECONDS COMMAND...: 124 when it took longer, or when the time of the stage is over. Ten times the --seconds, as
# tests have them, are ten times the limits.
patience=$((seconds > standard ? seconds / standard : 1))
limit() {
    allowed=$(($1 * patience)); shift
    [ "$allowed" -lt "$(left)" ] || allowed=$(left)
    [ "$allowed" -gt 1 ] || return 124
    timeout -k 5 "$allowed" "$@"
}
why() { if [ "$1" = 124 ] || [ "$1" = 137 ]; then echo "its time was over"; else echo "exit code $1"; fi; }
quote() { say '```'; tail -n "${2:-12}" "$1" | cut -c 1-240 | tee -a "$report"; say '```'; }
median() { sort -n | awk '{ x[NR] = $1 } END { if (NR) print x[int((NR + 1) / 2)] }'; }
fact() { awk -v key="$1" '$1 == key { v = $2 } END { print v }' "$facts"; }
learn() { echo "$@" >>"$facts"; }
# After each stage: a command that is cut short leaves what it had. The last value of a key is kept.
publish() {
    awk '{ line[$1] = $0 } END { for (k in line) print line[k] }' "$facts" | sort >"$out/$name.facts"
    cp "$report" "$out/$name$suffix.md"
    [ "$command" = second ] || cp "$facts" build/gpu.facts
    tar -C "$work" -czf "$out/$command-logs.tar.gz" log
}
trap 'publish; rm -rf "$work"' EXIT
trap 'exit 1' TERM INT HUP
smi() { nvidia-smi --id=0 --query-gpu="$1" --format="csv,noheader${2:-}" 2>/dev/null | head -n 1; }
# program FOLDER NAME: where it is, in a build folder or in one of its programs alone.
program() {
    for p in "$1/$2" "$1/bench/$2" "$1/tests/$2"; do [ ! -x "$p" ] || { echo "$p"; return; }; done
    echo "$1/$2"
    return 1
}
# change TEXT: sets folder, env and opts.
change() {
    folder=$default env='' opts=''
    for part in $(echo "$1" | tr ',' ' '); do
        case $part in
            --*) opts="$opts $part" ;;
            [A-Z]*=*) env="$env $part" ;;
            -) ;;
            *) folder=$part ;;
        esac
    done
}

# ------------------------------------------------------------------------------------------------------------- build

answers() {         # the programs of $default run here; sets device
    limit 30 "$default/train_gpt" --version >"$log/device.log" 2>&1 &&
        device=$(limit 60 "$(program "$default" gpu_kernels)" --device 2>>"$log/device.log")
}
stage_build() {
    start=$(date +%s) how="programs of \`${bin##*/}\`"
    if [ -f "$bin" ]; then
        mkdir "$work/bin"
        tar -C "$work/bin" -xf "$bin" || python3 -m tarfile -e "$bin" "$work/bin"       # where there is no xz
        bin=$work/bin
    fi
    [ -z "$bin" ] || default=$bin/default
    if [ -z "$bin" ] || ! answers; then
        [ -z "$bin" ] || problem "$default/train_gpt does not run here: $(tail -n 1 "$log/device.log" | cut -c 1-200)"
        default=build how='`./configure && ninja`'
        { limit 60 ./configure && limit 400 ninja -k 0 $("$0" targets) \
            build/data/stories/manifest.json; } >"$log/build.log" 2>&1
        code=$?
        [ $code = 0 ] || { problem "the build: $(why $code)"
            grep -E 'error|FAILED|Spill|spill' "$log/build.log" >"$work/errors"; quote "$work/errors" 20; }
        answers || device="gpu $(smi name)"
        [ -x build/train_gpt ] && ! grep -q 'no GPU answers' "$log/device.log" || no "$(tail -n 1 "$log/device.log")"
    fi
    build_seconds=$(($(date +%s) - start))
    for v in $asked; do
        c=${v#*=}
        [ "$c" != "$v" ] || c=$bin/$v
        change "$c"
        if [ -x "$(program "$folder" train_gpt)" ]; then echo "${v%%=*} $c" >>"$variants"
        else problem "${v%%=*}: no program train_gpt in $folder"; fi
    done
    cuda_root=$(sed -n 's/^cuda_root = //p' build/config.ninja 2>/dev/null)
    cuda_root=${cuda_root:-/usr/local/cuda}
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cuda_root/lib64"
    name=$(echo "$device" | sed 's/^gpu //; s/,.*//' | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
    say "# ${device#gpu }: $command"
    say
    say "| | |"
    say "|---|---|"
    say "| date | $(date -u +%Y-%m-%d) |"
    say "| command | \`$order\` |"
    say "| version | $("$default/train_gpt" --version 2>/dev/null | sed 's/^train_gpt //') |"
    say "| driver | $(smi driver_version) |"
    say "| target | $(cat "$default/target" 2>/dev/null || sed -n 's/^gencode = //p' build/config.ninja) |"
    say "| clocks, power limit, memory | $(smi clocks.max.sm), $(smi power.limit), $(smi memory.total) |"
    say "| before | $(smi clocks.sm), $(smi temperature.gpu) C, $(smi memory.used) in use |"
    say "| host | $(bench/machine.sh) |"
    say "| $how | $build_seconds s |"
}

# ------------------------------------------------------------------------------------------------------ steps, pairs

options() {         # of all runs; 32 M random tokens below 50257, as nanoGPT writes them: bytes 0 .. 195 only
    [ -z "${RUN_OPTIONS:-}" ] || { echo "$RUN_OPTIONS"; return; }
    tokens=$work/tokens.u16.bin
    [ -s "$tokens" ] || head -c 64000000 /dev/urandom | LC_ALL=C tr '\304-\377' '\000-\073' >"$tokens"
    echo "--data $tokens --vocab-size 50257"
}
# Medians of a run: of the steps after the second, and of the GPU while it drew 80 % of the most power or more.
column() {
    sed -n "s/.*\"event\":\"train\".*\"$1\":\"\{0,1\}\([^,}\"]*\).*/\1/p" "$dir/metrics.jsonl" | tail -n +3 | median
}
gauge() { awk -F ', *' -v n="$1" '{ x[NR] = $n; w[NR] = $2; if ($2 + 0 > most) most = $2 + 0 }
    END { for (i = 1; i <= NR; i++) if (w[i] + 0 >= 0.8 * most) print x[i] }' "$log/$label.smi" | median; }
# one_run LABEL SECONDS PRESET BATCH TOKENS STEPS [OPTION...]: by the change last set. Sets speed, ms, compute, mhz,
# watts, celsius; fails where there is no speed.
one_run() {
    label=$1 most=$2 dir=$work/run
    set -- "--preset=$3" "--batch-size=$4" "--total-batch-size=$5" "--steps=$6" "${7:-}"
    for o in "$@"; do
        shift
        case " $opts" in *" ${o%%=*}="*) ;; *) set -- "$@" ${o:+"$o"} ;; esac
    done
    rm -rf "$dir"
    started=$(date +%s)
    limit "$most" env LOCKSTEP_SHARE_GPU=1 $env "$folder/train_gpt" --device gpu "$@" $opts $(options) --eval-every 0 \
        --sample-every 0 --save-every 0 --audit-every 0 --out-dir "$dir" >"$log/$label.log" 2>&1 </dev/null & pid=$!
    : >"$log/$label.smi"
    while kill -0 $pid 2>/dev/null; do
        smi clocks.sm,power.draw,temperature.gpu,memory.used ,nounits >>"$log/$label.smi"
        sleep "${TICK:-1}"
    done
    wait $pid; code=$? took=$(($(date +%s) - started)) speed=
    cp "$dir/metrics.jsonl" "$log/$label.jsonl" 2>/dev/null && speed=$(column tok_s | awk '{ printf "%.0f", $1 }')
    [ $code = 0 ] && [ -n "$speed" ] || return 1
    ms=$(column step_ms) compute=$(column compute_ms) mhz=$(gauge 1) watts=$(gauge 2) celsius=$(gauge 3)
    used=$(awk -F ', *' '$4 + 0 > most { most = $4 + 0 } END { print most + 0 }' "$log/$label.smi")
    ms=$(printf '%.1f' "$ms") compute=$(printf '%.1f' "$compute")
}
failed_run() { bad=$((bad + 1)); echo "$label: $(tail -n 1 "$log/$label.log" | cut -c 1-300)" >>"$work/run-errors"; }

stage_steps() {
    say 'Random tokens, V = 50,257, T = 1,024; medians of the steps after the second. MHz, W, C once a second.'
    say
    say '| preset | B | tokens per step | tokens/s | MFU | ms per step | compute ms | MHz | W | C | MiB | last loss |'
    say '|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|'
    : >"$work/run-errors"
    change -
    echo "$rows" | awk 'NF' >"$work/rows"
    while read -r preset batch tokens steps kind <&3; do
        id=$preset-$batch-$tokens
        what="$preset | $batch | $tokens"
        if one_run "$kind-$id" 60 "$preset" "$batch" "$tokens" "$steps" "$([ $kind = step ] || echo --graph=off)"; then
            learn "$kind-$id" "$speed"; learn "compute-$kind-$id" "$compute"; learn "mhz-$kind-$id" "$mhz"
            grep -h 'no CUDA graph' "$log/$label.log" >>"$work/run-errors"
            [ $kind = step ] || what="$preset, no graph | $batch | $tokens"
            say "| $what | $speed | $(column mfu | awk '$1 > 0 { printf "%.1f %%", 100 * $1 }') | $ms | $compute |" \
                "$mhz | $watts | $celsius | $used | $(sed -n 's/.*"event":"train".*"loss":\([^,]*\),.*/\1/p' \
                "$dir/metrics.jsonl" | tail -n 1 | cut -c 1-6) |"
        else say "| $what | **FAILED**: $(why $code) | | | | | | | | |"; failed_run; fi
    done 3<"$work/rows"
    [ ! -s "$work/run-errors" ] || { say; quote "$work/run-errors"; }
}

# A run of the default before the first variant, after every second and after the last: D a b D c D.
turn() {            # NAME CHANGE
    change "$2"
    if [ "$(left)" -le "$((took + 2))" ]; then return; fi
    count=$((count + 1))
    if one_run "pair-$count-$1" 60 $run; then echo "$1 $speed $ms $compute $mhz $watts" >>"$work/runs"
    else echo "$1 0" >>"$work/runs"; failed_run; fi
}
stage_pairs() {
    [ -s "$variants" ] || { say 'No variants were named.'; return; }
    : >"$work/runs"; : >"$work/run-errors"
    count=0 took=0
    turn default -
    for round in $(seq "$pairs"); do
        after=0
        while read -r v c <&3; do
            turn "$v" "$c"
            after=$((after + 1))
            [ $((after % 2)) = 1 ] || turn default -
        done 3<"$variants"
        [ $((after % 2)) = 0 ] || turn default -
    done
    say "Runs of \`$run\` (preset, B, tokens, steps) in turn; the default ran before, after every second and after the"
    say 'last. A ratio is to the mean of the defaults on both sides; above 1 it speaks for the change.'
    say
    say '| variant | change | tokens/s | ratio | of each run | before | ms per step | compute ms | MHz | W |'
    say '|---|---|---:|---:|---|---:|---:|---:|---:|---:|'
    awk -v facts="$facts" -v changes="$variants" -v command="$command" '
        function compare(a, b) {            # what ran between the defaults of speeds a and b
            for (; waiting > 0; waiting--) {
                v = who[waiting]
                r = 2 * speed[waiting] / (a + b)
                ratios[v] = sprintf(" %.3f", r) ratios[v]
                logs[v] += log(r)
                m[v]++
            }
        }
        FILENAME == facts { if (sub(/^first-pair-/, "", $1)) before[$1] = $2; next }
        FILENAME == changes { change[$1] = "`" $2 "`"; next }
        !($1 in last) { order[++kinds] = $1; last[$1] = "" }
        !$2 { next }
        { last[$1] = $0; runs[$1]++; sum[$1] += $2 }
        $1 == "default" { compare(was ? was : $2, $2); was = $2; next }
        { who[++waiting] = $1; speed[waiting] = $2 }
        END {
            if (was) compare(was, was)
            for (k = 1; k <= kinds; k++) {
                v = order[k]
                if (!runs[v]) { printf "| %s | %s | **FAILED** | | | | | | | |\n", v, change[v]; continue }
                split(last[v], x, " ")
                ratio = m[v] ? sprintf("%.3f", exp(logs[v] / m[v])) : ""
                printf "| %s | %s | %.0f | %s |%s | %s | %s | %s | %s | %s |\n", v, change[v], sum[v] / runs[v], ratio,
                       ratios[v], before[v], x[3], x[4], x[5], x[6]
                if (ratio) print command "-pair-" v, ratio >>facts
            }
        }' "$facts" "$variants" "$work/runs" | sed "s|$work/||g" | tee -a "$report"
    [ ! -s "$work/run-errors" ] || { say; quote "$work/run-errors"; }
}

# ----------------------------------------------------------------------------------------------------------- kernels

stage_variants() {
    set --
    { echo default -; cat "$variants"; } >"$work/all"
    while read -r v c <&3; do
        change "$c"
        [ "$v" = default ] || [ "$folder" != "$default" ] || [ -n "$env" ] || continue
        kernels=$(program "$folder" gpu_kernels) || { say "$v: no gpu_kernels in its folder."; continue; }
        limit 25 env $env "$kernels" --alone --shape "$shapes" --only "$only" >"$log/$v.rows" \
            2>"$log/$v.rows.err" </dev/null || problem "$v: $kernels: $(why $?): $(tail -n 1 "$log/$v.rows.err")"
        awk -F '|' -v rung="$([ "$v" = default ] && echo kernels || echo "$c" | sed -n 's/^LOCKSTEP_TILE=//p')" '
            rung && /^data: gpt2-124m-64\|fcproj forward/ { printf "rung-%s %.0f\n", rung, 309237.6 / $4 }' \
            "$log/$v.rows" >>"$facts"       # 65,536 x 3,072 x 768: 309,238 MFLOP
        set -- "$@" "$log/$v.rows"
    done 3<"$work/all"
    say 'Microseconds of a call, without pauses between the calls; below, of a micro-batch.'
    say
    awk -F '|' '
        function add(key, us) {
            if (!(key in seen)) { seen[key] = 1; name[++keys] = key }
            time[key, n] += us
        }
        FNR == 1 { n++; f = FILENAME; gsub(/.*\/|\.rows$/, "", f); head = head " " f " |"; line = line "---:|" }
        sub(/^data: /, "") { add($1 " | " $2, $4); add($1 " | **all, x calls**", $3 * $4) }
        END {
            print "| shape | operation |" head "\n|---|---|" line
            for (sums = 0; sums <= 1; sums++) for (k = 1; k <= keys; k++) if (sums == (name[k] ~ /[*]/)) {
                printf "| %s |", name[k]
                for (i = 1; i <= n; i++) printf (name[k], i) in time ? " %.1f |" : " |", time[name[k], i]
                print ""
            }
        }' "$@" | tee -a "$report"
}

stage_kernels() {
    kernels=$(program "$default" gpu_kernels)
    limit 100 "$kernels" >"$log/kernels.md" 2>"$log/kernels.err"
    code=$?
    say 'Each kernel without pauses between the calls, at the clock that the power limit allows, as in a step.'
    grep -vE '^(summary|data|fact):' "$log/kernels.md" >>"$report"
    sed -n 's/^summary: //p' "$log/kernels.md" >"$work/kernels"
    sed -n 's/^fact: //p' "$log/kernels.md" >>"$facts"
    [ $code = 0 ] || { problem "$kernels: $(why $code), at:"; quote "$log/kernels.err" 3; }
}

# -------------------------------------------------------------------------------------------------------------- test

# One at a time, where all together did not end or failed in several: an error on the device stays, and spoils what
# comes after it.
operations() {      # FOLDER ENV
    tests=$(program "$1" kernels_gpu) || { say "- no kernels_gpu in ${1##*/}"; return; }
    limit 60 env $2 "$tests" >"$log/kernels_gpu.log" 2>&1
    code=$?
    say "- every operation against the specification: $(tail -n 1 "$log/kernels_gpu.log" | cut -c 1-200)"
    [ $code != 0 ] || return
    problem "kernels_gpu: $(why $code); one by one, each in its own process:"
    for t in $(sed -n 's/^TEST(\([a-z_0-9]*\)).*/\1/p' tests/kernels/test_kernels.cpp); do
        limit 15 env $2 "$tests" "$t" >"$work/one" 2>&1
        code=$?
        [ $code = 0 ] || say "  - $t: $(why $code): $(grep -E "^FAIL|error" "$work/one" | head -n 1 | cut -c 1-300)"
    done
}
whole_runs() {      # FOLDER ENV runs|bits: train_gpt_faults, or train_gpt where that is not built
    # PyTorch brings one
    if [ -z "${LOCKSTEP_NCCL:-}" ] && ! ldconfig -p 2>/dev/null | grep -q libnccl.so.2 && [ -n "$python" ]; then
        LOCKSTEP_NCCL=$("$python" -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")' \
            2>/dev/null)
        export LOCKSTEP_NCCL
    fi
    faults=$(program "$1" train_gpt_faults) || faults=$1/train_gpt
    limit 90 env $2 TRAIN_GPT_FAULTS="$(realpath "$faults")" TOOLS="$(realpath "$default")" \
        tests/scripts/test_gpu.sh "$3" >"$log/$3.log" 2>&1
    code=$?
    say "- whole runs (tests/scripts/test_gpu.sh $3): $(grep '^tests:' "$log/$3.log" || echo 'did not end')"
    grep -E '^(FAIL|SKIP)' "$log/$3.log" | sed 's/^/  - /' | cut -c 1-400 | tee -a "$report"
    [ $code = 0 ] || problem "tests/scripts/test_gpu.sh $3: $(why $code)"
}
stage_test() {
    operations "$default" ''
    whole_runs "$default" '' runs
}
# Of the variants named here the fastest in pairs of this command, else of the first.
stage_winner() {
    while read -r v c; do
        r=$(fact "$command-pair-$v")
        [ -n "$r" ] || r=$(fact "first-pair-$v")
        echo "${r:-0} $v $c"
    done <"$variants" | sort -rn >"$work/ranked"
    read -r r v c <"$work/ranked" || { say 'No variants were named.'; return; }
    say "The fastest is $v (\`${c#"$work/"}\`), $r times the default."
    learn winner "$v"
    change "$c"
    [ "$folder$env" != "$default" ] || { say 'It has the programs of the default.'; return; }
    operations "$folder" "$env"
    whole_runs "$folder" "$env" bits
}

# --------------------------------------------------------------------------------------------------------------- ncu

# Each kernel's utilisation of the units, issue slots and what its warps waited for, of one call at B 64.
stage_ncu() {
    ncu=$(command -v ncu || ls "$cuda_root"/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | head -n 1)
    [ -n "$ncu" ] || { say 'Skipped: no ncu.'; return; }
    set -- attention_forward attention_backward 'fc forward' 'fcproj input' 'qkv forward' 'fc params' 'head params' \
        residual_layernorm_forward
    list=$(printf '%s,' "$@")
    limit 60 "$ncu" --set full --clock-control none --profile-from-start off --export "$work/ncu" \
        "$(program "$default" gpu_kernels)" --profile --shape 124m-64,tiny --only "${list%,}" >"$log/ncu.log" 2>&1 ||
        problem "ncu: $(why $?): $(grep -E '==ERROR==|error' "$log/ncu.log" | tail -n 1 | cut -c 1-200)"
    set -- --import "$work/ncu.ncu-rep" --print-units base
    limit 20 "$ncu" "$@" --page raw --csv >"$log/ncu.csv" 2>>"$log/ncu.log"
    limit 20 "$ncu" "$@" --page details >"$log/ncu.txt" 2>>"$log/ncu.log"
    say '| kernel | us | SM % | tensor % | DRAM % | L2 % | issue % | registers | waits, cycles per instruction |'
    say '|---|---:|---:|---:|---:|---:|---:|---:|---|'
    awk -F '","' -v names='gpu__time_duration.sum sm__throughput.*elapsed pipe_tensor.*active dram__?throughput.*elapsed
            lts__t(hroughput|_sectors).*elapsed inst_issued.*active registers_per_thread' '
        BEGIN { n = split(names, metric, " ") }
        /^"ID"/ {
            for (i = 1; i <= NF; i++) {
                for (m = 1; m <= n; m++) if ($i ~ metric[m]) of[i] = m
                if ($i == "Kernel Name") name = i
                if (sub(/.*issue_stalled_/, "", $i) && sub(/_per_issue_active.*/, "", $i)) wait[i] = $i
            }
            next
        }
        name && $name != "" {
            k = $name
            sub(/^void /, "", k)
            if (!sub(/>\(.*/, ">", k)) sub(/\(.*/, "", k)
            split("", most)
            for (i in of) { gsub(/[",]/, "", $i); if ($i + 0 > most[of[i]]) most[of[i]] = $i + 0 }
            printf "| %s | %.1f |", substr(k, 1, 80), most[1] / 1000
            for (m = 2; m <= n; m++) printf " %.0f |", most[m]
            for (turn = 1; turn <= 3; turn++) {
                at = 0
                for (i in wait) if (wait[i] != "selected" && $i + 0 > (at ? $at + 0 : 0)) at = i
                if (at) printf " %s %.1f", wait[at], $at
                if (at) $at = 0
            }
            print " |"
        }' "$log/ncu.csv" >"$work/ncu.rows"
    tee -a "$report" <"$work/ncu.rows"
    [ -s "$work/ncu.rows" ] || problem "ncu: no kernel: $(tail -n 1 "$log/ncu.log" | cut -c 1-200)"
}

# ----------------------------------------------------------------------------------------------------------- PyTorch

find_python() {
    for p in "$python" python3 build/venv/bin/python /usr/bin/python3; do
        [ -n "$p" ] && "$p" -c 'import torch; assert torch.cuda.is_available()' >/dev/null 2>&1 && { python=$p
            return 0; }
    done
    say 'Skipped: no python3 with torch that sees a GPU (PYTHON names one).'
    return 1
}
# Attention by each of PyTorch's backends that takes the shape; the best of them is a fact.
torch_attention() {
    limit 45 "$python" bench/torch_step.py attention >"$log/torch-attention.log" 2>"$log/torch-attention.err" ||
        problem "bench/torch_step.py attention: $(why $?)"
    say '| attention, TFLOP/s forward, backward | B | flash | cudnn | efficient | ours |'
    say '|---|---:|---:|---:|---:|---:|'
    awk -v facts="$facts" '
        FILENAME == facts { if ($1 ~ /^attention_/) ours[$1] = $2; next }
        {
            key = "d" $1 "-T" $2 "-B" $3
            if (!(key in seen)) { seen[key] = "head of " $1 ", T = " $2 " | " $3; name[++n] = key }
            shown[key, $4] = $5 ", " $6
            for (w = 5; w <= 6; w++) if ($w > best[w, key]) { best[w, key] = $w; by[w, key] = $4 }
        }
        END {
            for (i = 1; i <= n; i++) {
                key = name[i]
                printf "| %s | %s | %s | %s | %s, %s |\n", seen[key], shown[key, "flash"], shown[key, "cudnn"],
                       shown[key, "efficient"], ours["attention_forward-" key], ours["attention_backward-" key]
                for (w = 5; w <= 6; w++)
                    print "best-attention_" (w == 5 ? "forward-" : "backward-") key, best[w, key], by[w, key] >>facts
            }
        }' "$facts" "$log/torch-attention.log" | tee -a "$report"
    say
}
stage_torch() {
    find_python || return
    torch_attention
    limit 100 "$python" bench/torch_step.py speed --preset gpt2-124m --batch-size 64 --total-batch-size 524288 \
        --steps 5 >"$log/torch.log" 2>"$log/torch.err"
    code=$?
    say "PyTorch $("$python" -c 'import torch; print(torch.__version__, "with CUDA", torch.version.cuda)'),"
    say 'bf16 autocast, torch.compile, scaled_dot_product_attention, fused AdamW (bench/torch_step.py).'
    say
    say '| preset | B | tokens per step | PyTorch tokens/s | ours | ours / PyTorch | MB PyTorch allocated |'
    say '|---|---:|---:|---:|---:|---:|---:|'
    sed -n 's/^tok_s //p' "$log/torch.log" >"$work/torch"
    while read -r size speed memory; do
        ours=$(fact "step-gpt2-124m-64-$size") ours=${ours:-0}
        learn "torch-gpt2-124m-64-$size" "$speed"
        say "| gpt2-124m | 64 | $size | $speed | $ours | $(echo "$ours $speed" | awk '{ printf "%.3f", $1 / $NF }') |" \
            "$memory |"
    done <"$work/torch"
    [ $code = 0 ] || { say; problem "bench/torch_step.py: $(why $code)"; quote "$log/torch.err" 4; }
}

# ----------------------------------------------------------------------------------------------------------- quality

one_seed() {        # SEED: losses of PyTorch and of ours, from the same weights
    init=$work/init$1
    set -- "$1" --init "$init" --data "$work/stories.bin" --seed "$1" --lr 6e-4 \
        ${QUALITY_RUN:---batch-size 16 --total-batch-size 16384 --steps 500 --warmup-steps 50}
    seed=$1; shift
    limit 40 "$python" bench/torch_step.py init --out "$init" --seed "$seed" &&
        limit 100 "$python" bench/torch_step.py train "$@" --no-compile --out "$work/torch$seed" &&
        limit 100 "$default/train_gpt" --device gpu "$@" --val-data "$work/stories.bin" --sampler torch --replicas 1 \
            --final-lr-frac 0.1 --beta1 0.9 --beta2 0.95 --eps 1e-8 --weight-decay 0.1 --grad-clip 1 --dropout 0 \
            --eval-every 0 --sample-every 0 --save-every 0 --audit-every 0 --out-dir "$work/ours$seed"
}
stage_quality() {
    find_python || return
    "$python" -c 'import json, sys
text = "\n".join(json.loads(line)["text"] for line in sys.stdin).encode()
both = bytearray(2 * len(text))
both[::2] = text
sys.stdout.buffer.write(both)' <"$default/data/stories_train.jsonl" >"$work/stories.bin"
    say '25 M weights (8 layers, 512 channels, T = 512, bytes of the built-in stories), 500 steps of 16,384 tokens, the'
    say 'same weights at the start, the same batches in the same order. Mean loss of the last 100 steps:'
    say
    say '| seed | ours, bf16 | PyTorch, bf16 | ours - PyTorch | largest difference of a step |'
    say '|---:|---:|---:|---:|---:|'
    one_seed 1 >"$log/quality-1.log" 2>&1 & one=$!
    one_seed 2 >"$log/quality-2.log" 2>&1 & two=$!
    for seed in 1 2; do
        if [ $seed = 1 ]; then wait $one; else wait $two; fi
        code=$?
        [ $code = 0 ] || { problem "seed $seed: $(why $code)"; quote "$log/quality-$seed.log" 4; continue; }
        sed -n 's/^{"event":"train","step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$work/ours$seed/metrics.jsonl" |
            awk 'NR == FNR { torch[$1] = $2; last = $1; next } { d = $2 - torch[$1]; if (d < 0) d = -d;
                if (d > most) most = d } $1 > last - 100 { a += $2; b += torch[$1]; n++ }
                END { printf "%.5f %.5f %.5f %.4f\n", a / n, b / n, a / n - b / n, most }' "$work/torch$seed" - \
                    >"$work/row"
        read -r a b d most <"$work/row"
        say "| $seed | $a | $b | $d | $most |"
        learn "torch-loss-$seed" "$b"; learn "loss-gap-$seed" "$d"
    done
    awk -v a="$(fact torch-loss-1)" -v b="$(fact torch-loss-2)" -v g="$(fact loss-gap-1)" -v h="$(fact loss-gap-2)" \
        'BEGIN {
            if (a == "" || b == "") exit
            if (g < 0) g = -g; if (h < 0) h = -h; if (h > g) g = h; s = a > b ? a - b : b - a
            printf "Largest gap to PyTorch %.5f, spread of its two seeds %.5f: %s.\n", g, s,
                g <= s ? "the gap is within the spread" : "the gap is larger than the spread"
        }' >"$work/quality"
    say
    say "$(cat "$work/quality")"
}

# -------------------------------------------------------------------------------------------------------- sanitizers

stage_sanitize() {
    sanitizer=$(command -v compute-sanitizer || ls "$cuda_root/bin/compute-sanitizer" \
        "$cuda_root/compute-sanitizer/compute-sanitizer" 2>/dev/null | head -n 1)
    [ -n "$sanitizer" ] || { say 'Skipped: no compute-sanitizer.'; return; }
    tests=$(program "$default" kernels_gpu) || { say 'Skipped: no kernels_gpu.'; return; }
    pids='' tools='memcheck racecheck initcheck synccheck'
    # All four at once: nothing is timed. Without the tests that ask for impossible memory or test the checker.
    for tool in $tools; do
        limit 120 "$sanitizer" --tool $tool --report-api-errors no --error-exitcode 9 "$tests" embedding layernorm \
            dropout matmul gelu attention classifier sum_in_order fold adamw hash >"$log/$tool.log" 2>&1 &
        pids="$pids $!"
    done
    for tool in $tools; do
        set -- $pids; wait "$1"; code=$?; shift; pids=$*
        say "- $tool: $(grep -E '^=+ (ERROR|RACECHECK) SUMMARY' "$log/$tool.log" | sed 's/^=* //' |
            tail -n 1), $(grep -c '^ok ' "$log/$tool.log") tests passed$([ $code = 0 ] || echo ", $(why $code)")"
        if [ $code = 9 ]; then problem "$tool found errors, the first:"; grep '^====' "$log/$tool.log" |
            sed -n '2,14p' >"$work/errors"; quote "$work/errors" 13; fi
    done
}

# ----------------------------------------------------------------------------------------------------------- summary

fastest() { awk -v key="$1" 'index($1, key) == 1 && $2 > best { best = $2 } END { printf "%.0f", best }' "$facts"; }
summarise() {
    say
    say '## Summary'
    say
    for what in step-gpt2-124m torch-gpt2-124m step-gpt2-1558m; do
        echo "best-$what $(fastest $what-)" | awk '$2 > 0' >>"$facts"
    done
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
    # What the first command had done is not done again.
    case $command,$stage in second,pairs|second,winner|second,variants|first,*) ;;
        *) [ -z "$(fact "done-$stage")" ] || continue ;; esac
    case $stage in steps) most=130 ;; pairs) most=175 ;; test) most=80 ;; ncu) most=60 ;; *) most=105 ;; esac
    start=$(date +%s) before=$bad
    stage_end=$((start + most * patience))
    [ $stage_end -lt $((deadline - 3)) ] || stage_end=$((deadline - 3))
    say
    say "## $stage"
    say
    if [ "$(left)" -lt 10 ]; then say "Not run: the $seconds s were over (--seconds)."
    else
        "stage_$stage"
        [ $bad != "$before" ] || learn "done-$stage" 1
        say
        say "($stage: $(($(date +%s) - start)) s)"
    fi
    publish
done
summarise
publish
echo "gpu.sh: wrote $out/$name$suffix.md, $name.facts, $command-logs.tar.gz"
[ $bad = 0 ]
