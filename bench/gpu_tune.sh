#!/bin/sh
# gpu_tune.sh -- the experiments that need no other code: each beside the default in
# turn. Writes bench/results/<gpu>-tune.md, a row as soon as it is known. The first, `tiles`, measures two tiles of
# products and says what follows for choose() of kernels/cuda/matmul.cu.
#
#   bench/gpu_tune.sh                         all, at most 15 minutes
#   bench/gpu_tune.sh wide overlap            only these; --list names them
#   bench/gpu_tune.sh --minutes 5 --out DIR
#
# Needs what bench/gpu.sh needs; that one comes first, as it tests the kernels. A row is the median of three pairs of
# runs, default and changed one after the other; a ratio above 1 speaks for the change. Exit codes: 0,
# 1 a run failed, 2 usage, 66 no GPU.
set -u
cd "$(dirname "$0")/.."
train=${TRAIN_GPT:-./train_gpt} kernels=${GPU_KERNELS:-build/bench/gpu_kernels}
pairs=${PAIRS:-3} minutes=12 out=bench/results names=''

# name; what changes (an option or NAME=VALUE); preset, micro-batch, tokens and steps of a run; ranks that share the
# GPU. Tests bring their own EXPERIMENTS, and OPTIONS for all runs.
experiments=${EXPERIMENTS:-'
tiles
nograph    --graph=off                  gpt2-124m 16 65536 30 1
wide       LOCKSTEP_TILE=wide           gpt2-124m 16 65536 30 1
pingpong   LOCKSTEP_TILE=pingpong       gpt2-124m 16 65536 30 1
portable   LOCKSTEP_TILE=large          gpt2-124m 16 65536 30 1
batch32    --batch-size=32              gpt2-124m 16 65536 30 1
batch64    --batch-size=64              gpt2-124m 16 65536 30 1
gelu       --recompute=1                gpt2-124m 16 65536 30 1
norms      --recompute=2                gpt2-124m 16 65536 30 1
overlap    --overlap=off                gpt2-124m 16 65536 20 2
blocks4    NCCL_MAX_CTAS=4              gpt2-124m 16 65536 20 2
blocks8    NCCL_MAX_CTAS=8              gpt2-124m 16 65536 20 2
blocks32   NCCL_MAX_CTAS=32             gpt2-124m 16 65536 20 2
buckets8   LOCKSTEP_BUCKET_UNITS=512    gpt2-124m 16 65536 20 2
buckets100 LOCKSTEP_BUCKET_UNITS=6400   gpt2-124m 16 65536 20 2
'}

while [ $# -gt 0 ]; do
    case $1 in
        --minutes) minutes=${2:?--minutes: want a number}; shift ;;
        --out) out=${2:?--out: want a folder}; shift ;;
        --list) echo "$experiments" | awk 'NF { print $1 }'; exit 0 ;;
        *) echo "$experiments" | grep -q "^$1\( \|$\)" || { echo "gpu_tune.sh: $1: no experiment; --list names them" >&2
            exit 2; }
            names="$names $1" ;;
    esac
    shift
done
[ -n "$names" ] || names=$(echo "$experiments" | awk 'NF { print $1 }')

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
deadline=$(($(date +%s) + minutes * 60)) bad=0
gpu=$("$train" --device gpu --preset nano --dry-run 2>&1 >/dev/null) ||
    { echo "gpu_tune.sh: $gpu" | head -n 1 >&2; exit 66; }
device=$(nvidia-smi --id=0 --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
mkdir -p "$out"
report=$out/$(echo "${device:-unknown}" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')-tune.md
say() { printf '%s\n' "$*" | tee -a "$report"; }
if [ -z "${OPTIONS:-}" ]; then                      # random tokens below 50,257, two bytes each
    head -c 64000000 /dev/urandom | LC_ALL=C tr '\304-\377' '\000-\073' >"$work/tokens.bin"
    OPTIONS="--data $work/tokens.bin --vocab-size 50257"
fi

# one_run CHANGE PRESET BATCH TOKENS STEPS RANKS: prints the median of tokens per second after the first quarter.
one_run() {
    dir=$work/run change=$1 preset=$2 batch=$3 tokens=$4 steps=$5 ranks=$6
    shift 6
    case $change in
        --batch-size=*) batch=${change#*=} change= ;;
        --*) set -- "$change"; change= ;;
    esac
    [ "$ranks" -eq 1 ] || set -- "$@" --np "$ranks" --max-restarts 0
    rm -rf "$dir"
    timeout -k 5 90 env LOCKSTEP_SHARE_GPU=1 ${change:+"$change"} "$train" --device gpu --preset "$preset" \
        --batch-size "$batch" --total-batch-size "$tokens" --steps "$steps" --eval-every 0 --sample-every 0 \
        --save-every 0 --audit-every 0 --out-dir "$dir" $OPTIONS "$@" >"$work/log" 2>&1 ||
        { tail -n 1 "$work/log" >&2; return 1; }
    sed -n 's/.*"event":"train".*"tok_s":\([0-9.e+]*\).*/\1/p' "$dir/metrics.jsonl" |
        tail -n "+$((steps / 4 + 2))" | sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

# Times forward products of gpt2-124m by ping-pong and wide tiles. It is not known whether what TMA writes to shared
# memory takes cycles from what wgmma reads there. The bounds of the two, in kcycles of a multiprocessor for qkv, are
#     if it does        shared memory, 142.9 and 115.2: ping-pong takes 1.24 times as long
#     if it does not    the L2, 120.4, and tensor cores, 110.6: 1.09 times
# The wide tile's stores, which are in no bound, take about 0.1 off both, so 1.05 lies between. At equal rates choose()
# expects 0.9 times the cycles for ping-pong, k = 768; with the rate 1780 x 0.9 / RATIO it expects what was measured.
tiles() {
    : >"$work/times"
    for pair in $(seq "$pairs"); do
        for tile in pingpong wide; do
            LOCKSTEP_TILE=$tile "$kernels" --only ' forward' >"$work/log" 2>&1 ||
                { tail -n 1 "$work/log" >&2; return 1; }
            sed -n "s/^data: gpt2-124m-16|\(qkv\|attproj\) forward|[0-9]*|\([0-9.]*\)|.*/$tile \1 \2/p" "$work/log"
        done >>"$work/times"
    done
    awk -v date="$(date -u +%F)" '
        $1 == "pingpong" { before[$2] = $3; next }
        $3 > 0 {
            n[$2]++
            ratios[$2] = ratios[$2] sprintf(" %.3f", before[$2] / $3)
            us[$2] = before[$2] " us | " $3 " us"
            sum += log(before[$2] / $3)
        }
        END {
            if (!n["qkv"] || n["attproj"] != n["qkv"]) exit 1
            ratio = exp(sum / n["qkv"] / 2)
            for (i = split("attproj qkv", name); i > 0; i--)
                printf "| %s | tiles | `LOCKSTEP_TILE=wide` | gpt2-124m, B 16, %s, beside pingpong | %s |%s |\n",
                       date, name[i], us[name[i]], ratios[name[i]]
            printf "| %s | tiles | rate of pingpong in kTiles | bounds: 1.24 if TMA writes take shared memory, " \
                   "else 1.09 | 1680 | %.0f | %.3f: they do%s |\n",
                   date, 1780 * 0.9 / ratio, ratio, (ratio > 1.05 ? "" : " not")
        }' "$work/times" >"$work/said" || { echo "gpu_tune.sh: $kernels: no times of qkv and attproj" >&2; return 1; }
    say "$(cat "$work/said")"
}

[ -s "$report" ] || { say "# ${device:-unknown}: experiments"; say
    say '| date | experiment | change | run | default, tokens/s | changed | ratio, of each pair |'
    say '|---|---|---|---|---:|---:|---|'; }
for name in $names; do
    if [ "$name" = tiles ]; then
        tiles || { bad=1; say "| $(date -u +%F) | tiles | \`LOCKSTEP_TILE=wide\` | FAILED | | | |"; }
        continue
    fi
    set -- $(echo "$experiments" | grep "^$name ")
    shift
    : >"$work/pairs"
    for pair in $(seq "$pairs"); do
        [ "$(date +%s)" -lt "$deadline" ] || break
        default=$(one_run '' "$2" "$3" "$4" "$5" "$6") && changed=$(one_run "$@") || { bad=1; break; }
        echo "$default $changed" >>"$work/pairs"
    done
    if [ ! -s "$work/pairs" ]; then
        [ "$(date +%s)" -lt "$deadline" ] || break
        say "| $(date -u +%F) | $name | \`$1\` | FAILED | | | |"
        continue
    fi
    say "$(sort -n "$work/pairs" | awk -v date="$(date -u +%F)" -v name="$name" -v change="$1" \
        -v run="$2, B $3, $4 tokens, ranks $6" '
        { a[NR] = $1; b[NR] = $2; ratios = ratios sprintf(" %.3f", $2 / $1) }
        END { m = int((NR + 1) / 2)
            printf "| %s | %s | `%s` | %s | %.0f | %.0f |%s |", date, name, change, run, a[m], b[m], ratios }')"
done
exit $bad
