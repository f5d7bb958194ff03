# lib.sh -- for test scripts: . tests/lib.sh from the repository's root, then check NAME COMMAND..., and `summary` at
# the end.
set -u
passed=0 failed=0 skipped=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
train=${TRAIN_GPT:-$PWD/train_gpt}
faulty=${TRAIN_GPT_FAULTS:-$PWD/build/train_gpt_faults}     # the same with tests/fault.cpp: LOCKSTEP_FAULT works
export LOCKSTEP_CACHE="${LOCKSTEP_CACHE:-$tmp/cache}"       # what build/prep makes of texts
shared=${LOCKSTEP_SHARED:-$PWD/../shared}

# A suite with lines "# inputs: ITEM..." is recorded when all of it passes: tests/verified has its name, a checksum of
# its inputs, and the CPU seconds that it took. With VERIFIED=use, as in .ci/run, a suite that stands there with this
# checksum is not run, but for a tenth of them, which the commit draws. An ITEM is a path or a pattern of git's, a
# compiler (cxx and nvcc are those of ./configure) or an environment variable. The suite and this file always count.
suite=${0#"$PWD/"} checksum=
inputs=$(sed -n 's/^# inputs: //p' "$suite" 2>/dev/null)
configured() { sed -n "s/^$1 = \(ccache \)*//p" build/config.ninja; }
fingerprint() (
    set -f
    for item in $inputs "$suite" tests/lib.sh; do
        case $item in
            cxx|nvcc) $(configured $item) --version ;;
            *++) $item --version ;;
            *[!A-Z_]*) git ls-files -co --exclude-standard -- "$item" | grep . >"$tmp/files" || exit 1
                xargs sha256sum <"$tmp/files" ;;
            *) printenv "$item" ;;
        esac
    done >"$tmp/inputs" 2>&1
    sort -u "$tmp/inputs" | sha256sum | cut -d' ' -f1
)
record() {
    times >"$tmp/times"
    awk '{ split($1 "m" $2, t, "m"); s += 60 * (t[1] + t[3]) + t[2] + t[4] } END { printf "%.0f\n", s }' \
        "$tmp/times" >"$tmp/seconds"
    flock tests sh -c '{ grep -v "^$1 " tests/verified; echo "$1 $2 $3"; } | sort >"$4" && cat "$4" >tests/verified' \
        sh "$suite" "$checksum" "$(cat "$tmp/seconds")" "$tmp/verified"
}

ok() { passed=$((passed + 1)); echo "ok   $1"; }
fail() { failed=$((failed + 1)); echo "FAIL $1: $2"; }
skip() { skipped=$((skipped + 1)); echo "SKIP $1: $2"; }
summary() {
    echo "tests: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] || return 1
    [ -z "$checksum" ] || [ "$passed" -eq 0 ] || [ "$skipped" -gt 0 ] || record
}
give_up() { summary; exit; }
# find_python MODULES WHAT: $python has them, or all of WHAT is skipped. MODULES: "torch, transformers"
find_python() {
    for python in "${PYTHON:-python3}" build/venv/bin/python /usr/bin/python3; do
        if "$python" -c "import $1" 2>/dev/null; then return; fi
    done
    skip_all "$2" "no Python with $1"
}
skip_all() { skip "$1" "$2"; give_up; }                 # what the script needs is not here
open_mpi() { mpirun --version 2>&1 | grep -q 'Open MPI'; }       # MPICH's mpirun has other options
needs_nvcc() { [ -n "$(configured nvcc)" ] || skip_all "$1" "no nvcc: the kernels are not compiled"; }
ninja=$(command -v ninja || command -v ninja-build || command -v samu)
# need TARGET...: builds what this suite alone uses, one suite at a time. Sanitizers' builds are built before.
need() {
    [ "${TOOLS:-$PWD/build}" = "$PWD/build" ] || return 0
    [ -n "$ninja" ] || skip_all "$suite" "no ninja"
    flock build "$ninja" "$@" >"$tmp/need.log" 2>&1 && return
    fail "$* can be built" "$(grep -E 'error|FAILED' "$tmp/need.log" | head -n 3 | tr '\n' '|')"
    give_up
}
if [ -n "$inputs" ] && [ $# -eq 0 ] && git rev-parse HEAD >"$tmp/commit" 2>/dev/null; then
    checksum=$(fingerprint) || { fail "inputs" "one of $inputs is no file"; give_up; }
    if [ "${VERIFIED:-}" = use ] && grep -q "^$suite $checksum " tests/verified; then
        case $(echo "$suite" | cat "$tmp/commit" - | sha256sum | tr -dc 0-9) in
            0*) echo "drawn: it would be taken as verified" ;;
            *) echo "verified: its inputs are those of the last run that passed"; checksum=; give_up ;;
        esac
    fi
fi

# check NAME COMMAND...: ok if the command succeeds; its output is shown when it does not.
check() {
    name=$1; shift
    if "$@" >"$tmp/check.log" 2>&1; then ok "$name"; else fail "$name" "$(tail -n 5 "$tmp/check.log" | tr '\n' '|')"; fi
}

# await COMMAND...: until it succeeds, for at most two minutes.
await() {
    for _ in $(seq 1200); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "not in two minutes: $*"
    return 1
}

# expect NAME CODE PATTERN COMMAND...: the command must exit with CODE and print a line that matches PATTERN (grep -E).
expect() {
    name=$1 code=$2 pattern=$3; shift 3
    timeout 900 "$@" >"$tmp/expect.log" 2>&1 </dev/null
    got=$?
    if [ "$got" -ne "$code" ]; then fail "$name" "exit code $got, want $code: $(tail -n 3 "$tmp/expect.log" |
        tr '\n' '|')"
    elif ! grep -qE -- "$pattern" "$tmp/expect.log"; then
        fail "$name" "no line like '$pattern': $(tail -n 3 "$tmp/expect.log" | tr '\n' '|')"
    else ok "$name"; fi
}

# losses OUT: "step loss grad_norm" of every training step, the later line where a resume repeated one, digits as
# written.
losses() {
    sed -n 's/^{"event":"train","step":\([0-9]*\),"loss":\([^,]*\),"lr":[^,]*,"grad_norm":\([^,]*\),.*/\1 \2 \3/p' \
        "$1/metrics.jsonl" |
        awk '{ line[$1] = $0; if ($1 > last) last = $1 } END { for (i = 0; i <= last; i++) print line[i] }'
}
# The weights of the newest checkpoint, or its adapters; where there are none, what no other run has.
weights() { (cd "$1/ckpt/$(cat "$1/ckpt/latest")" && sha256sum *model.safetensors) || echo "$1"; }
# same A B: equal losses, bit for bit, and equal final weights.
same() {
    losses "$1" >"$tmp/a.losses"; losses "$2" >"$tmp/b.losses"
    [ -s "$tmp/a.losses" ] || { echo "no losses in $1"; return 1; }
    diff "$tmp/a.losses" "$tmp/b.losses" || return 1
    for o in "$1" "$2"; do grep '"event":"val"' "$o/metrics.jsonl" | sed 's/,"time".*//' | sort -u; done >"$tmp/vals"
    [ -z "$(sort "$tmp/vals" | uniq -u)" ] || { echo "validation losses differ: $(sort "$tmp/vals" | uniq -u |
        head -n 2)"; return 1; }
    [ "$(weights "$1")" = "$(weights "$2")" ] || { echo "weights differ: $1 $2"; return 1; }
}
# near A B TOLERANCE [OF_NORMS]: relative difference of every loss, and of every norm: 20 times as much if not said.
near() {
    losses "$1" >"$tmp/a.losses"; losses "$2" >"$tmp/b.losses"
    awk -v tol="$3" -v tol_norm="${4:-0}" 'function off(a, b) { return a > b ? (a - b) / b : (b - a) / b }
        NR == FNR { loss[$1] = $2; norm[$1] = $3; n++; next }
        {
            seen++
            l = off($2, loss[$1]); g = off($3, norm[$1])
            if (l > worst) worst = l
            if (g > worst_norm) worst_norm = g
            if (!(l <= tol) || !(g <= (tol_norm ? tol_norm : 20 * tol))) bad = 1
        }
        END {
            printf "largest relative difference: loss %.2g, norm %.2g of %d steps\n", worst, worst_norm, seen
            exit bad || !n || seen != n
        }' "$tmp/a.losses" "$tmp/b.losses"
}
# as_pytorch NAME TOLERANCE OF_NORMS COMMAND...: 20 AdamW steps of the tiny GPT-2, by the recipe of
# tests/golden/make_gpt2.py, have nearly the losses and norms that PyTorch has in double precision.
as_pytorch() {
    into=$1 tolerance=$2 of_norms=$3 golden=tests/golden/gpt2_tiny; shift 3
    "$@" --init $golden --data $golden/batch.bin --val-data $golden/batch.bin --total-batch-size 96 --steps 20 \
        --lr 3e-3 --warmup-steps 2 --final-lr-frac 0.1 --beta1 0.9 --beta2 0.95 --eps "${eps:-1e-8}" \
        --weight-decay 0.1 --grad-clip 1 --dropout 0 --eval-every 0 --sample-every 0 --save-every 0 \
        --out-dir "$tmp/$into" >"$tmp/$into.log" 2>&1 || { tail -n 2 "$tmp/$into.log"; return 1; }
    mkdir -p "$tmp/torch"
    awk '{ printf "{\"event\":\"train\",\"step\":%d,\"loss\":%s,\"lr\":0,\"grad_norm\":%s,\n", $1, $2, $3 }' \
        $golden/losses.txt >"$tmp/torch/metrics.jsonl"
    near "$tmp/torch" "$tmp/$into" "$tolerance" "$of_norms"
}
# as_the_cpu COMMAND...: the job, without its --device, run by COMMAND on the CPU has nearly the losses of $tmp/one.
# bf16 keeps 8 bits (2^-9 = 0.002 by rounding); over thousands of numbers the errors average, but they add up from step
# to step: on an H200 losses are 1.2e-3 off and norms 4e-3.
as_the_cpu() { (job="${job#--device gpu}" && run cpu "$@" --device cpu) && near "$tmp/cpu" "$tmp/one" 2e-3; }
# made NAME COMMAND...: the command makes NAME; exit 77 of it is a skip.
made() {
    of=$1; shift
    "$@" >"$tmp/made.log" 2>&1
    case $? in
        0) ok "$of is made" ;;
        77) skip "$of" "$(tail -n 1 "$tmp/made.log")"; return 1 ;;
        *) fail "$of is made" "$(tail -n 1 "$tmp/made.log")"; return 1 ;;
    esac
}
# Every file of the newest checkpoint, as checksums.
# contents OUT [best|latest]: sums of all files of a checkpoint but DONE, which depends on the id in state.json, and
# without that.
contents() {
    (cd "$1/ckpt/$(cat "$1/ckpt/${2:-latest}")" && sha256sum $(ls | grep -v 'DONE\|state.json') &&
        sed 's/,"run":"[0-9a-f]*"//' state.json | sha256sum)
}
# run OUT COMMAND...: the job, $job, run by COMMAND into $tmp/OUT.
run() { out=$1; shift; "$@" $job --out-dir "$tmp/$out" >"$tmp/$out.log" 2>&1 || { echo "exit code $?"
    tail -n 3 "$tmp/$out.log"; return 1; }; }
# like_one NAME COMMAND...: the job run by COMMAND gives the bits of the job in $tmp/one.
like_one() {
    name=$1; shift
    run "$name" "$@" >"$tmp/run.log" 2>&1 || { fail "$name" "$(tail -n 4 "$tmp/run.log" | tr '\n' '|')"; return; }
    check "$name" same "$tmp/one" "$tmp/$name"
}
# on_hosts RANKS HOSTS COMMAND...: as many ranks run the command, on simulated hosts that all are this machine.
on_hosts() {
    ranks=$1 per=$(($1 / $2)) rank=0 pids= bad=0; shift 2
    while [ $rank -lt $ranks ]; do
        env RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$((rank % per)) LOCAL_WORLD_SIZE=$per \
            LOCKSTEP_HOST_ID=host$((rank / per)) MASTER_ADDR=127.0.0.1 MASTER_PORT=29$((620 + $$ % 280)) \
            LOCKSTEP_SECRET=hush "$@" &
        rank=$((rank + 1)) pids="$pids $!"
    done
    for p in $pids; do wait $p || bad=1; done
    pids=
    return $bad
}
# The loss of a run goes down.
falls() {
    awk -F'"loss":' '
        /"event":"train"/ { split($2, a, ","); if (!n++) first = a[1]; last = a[1] }
        END { exit !(last < first) }' "$1/metrics.jsonl"
}
# all_of WHAT STEPS PROGRAM OPTIONS...: the job trains in STEPS steps, with 1, 2 and 4 ranks to the same bytes, and
# after a resume from its middle.
all_of() {
    what=$1 steps=$2 program=$3 of_all=$job; shift 3
    job="$job --steps $steps --save-every $((steps / 2)) $*"
    check "$what: it trains" run "$what-one" $program
    check "$what: the loss falls" falls "$tmp/$what-one"
    for np in 2 4; do
        check "$what: --np $np" run "$what-$np" $program --np $np
        check "$what: to the same bytes" same "$tmp/$what-one" "$tmp/$what-$np"
    done
    cp -r "$tmp/$what-2" "$tmp/$what-half" && rm -rf "$tmp/$what-half/ckpt/$(printf step_%08d "$steps")"
    expect "$what: a resume from its middle" 0 '^done ' $program --resume "$tmp/$what-half"
    check "$what: gives the same bytes" same "$tmp/$what-one" "$tmp/$what-half"
    job=$of_all
}
