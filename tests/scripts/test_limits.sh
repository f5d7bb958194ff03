#!/bin/sh
# test_limits.sh -- what a run may use is asked before it hurts, and a job always ends.
. tests/cases.sh
preloads limits
any="--seq-len 16 --batch-size 1 --total-batch-size 32 $on_lines --dtype fp32 --device cpu --warmup-steps 0 $mute"
small="--layers 1 --heads 1 --channels 8 --threads 1 $any"
tiny="$small --steps 4 --save-every 2"
wide="--layers 2 --heads 2 --channels 256 --threads 1 $any --steps 4 --save-every 2"
faulty=${TOOLS:-$PWD/build}/train_gpt_cpu_faults

# ---- sizes
expect "too many threads" 2 'threads: got 100000, want at most [0-9]+: this host has' \
    $train --layers 1 --heads 1 --channels 8 $any --steps 4 --threads 100000 --out-dir "$tmp/threads"
huge="--layers 4096 --heads 512 --channels 65536 --threads 1 $any --steps 4"
# 4 GB of address space: the tables of such a model alone would take more.
expect "a model that no memory holds" 1 'memory: got .* by this host' sh -c "ulimit -v 4000000
    exec $train $(echo $huge) --out-dir '$tmp/huge'"
expect "its dry run" 0 'it does not fit' sh -c "ulimit -v 4000000; exec $train $(echo $huge) --dry-run"
check "they leave no folder" test ! -e "$tmp/huge"
expect "few open files" 1 'ulimit -n: got 20 open files, want 36 for 4 ranks' \
    sh -c "ulimit -n 20; exec $train $(echo $tiny) --np 4 --out-dir '$tmp/files'"
expect "files that may not be long" 74 'ulimit -f: got files of' \
    sh -c "ulimit -f 8; exec $train $(echo $wide) --out-dir '$tmp/long'"
# A cgroup's limit, as a container shows it.
in_group='mount -t tmpfs t /sys/fs/cgroup && echo 10000000 >/sys/fs/cgroup/memory.max && exec "$@"'
if unshare -m sh -c "$in_group" sh true 2>/dev/null; then
    expect "a cgroup's memory: a dry run" 0 'memory.max of .*does not fit' unshare -m sh -c "$in_group" sh \
        $train $wide --dry-run
    expect "a cgroup's memory: a run" 1 'memory: got .* by memory.max of' unshare -m sh -c "$in_group" sh \
        $train $wide --out-dir "$tmp/group"
else skip "a cgroup's limits" "no mount namespace for this user"; fi
expect "ranks that --replicas helps" 2 \
    "ranks: got 4, want a power of 2 up to 2, .*--replicas, .* that divides the step's 2 micro" \
    $train $tiny --np 4 --dry-run

# ---- a resume
expect "a run" 0 '^done' $train $tiny --out-dir "$tmp/run" --lr 1e-3 --final-lr-frac 0.1
expect "more steps: what the rate does" 0 'rate at step 4 goes from 0.0001 to 0.00038 .--schedule cosine' \
    $train --resume "$tmp/run" --steps 8
expect "a run at a constant rate" 0 '^done' $train $tiny --out-dir "$tmp/constant" --schedule constant
expect "more steps of it" 0 '^done' $train --resume "$tmp/constant" --steps 8
check "nothing is said" lacks "$tmp/expect.log" goes
expect "a rate far too high: the rise of the loss is told" 0 'warning: the loss rises: got ' \
    $train --resume "$tmp/constant" --steps 60 --lr 3
# One NaN in a small tensor, at step 0, is no gradient that backward forgot.
expect "a NaN at step 0" 0 'step 0 skipped' \
    env LOCKSTEP_FAULT=rank=0,step=0,at=bwd,do=nan $faulty $tiny --out-dir "$tmp/nan"
for np in 1 2; do
    expect "a flipped bit of frozen weights, --np $np" 80 'rank [01]: .*weight, which is frozen, has changed' \
        env LOCKSTEP_FAULT=rank=0,step=2,at=frozen,do=flip:5 $faulty --np $np --init "$tmp/run" --lora 8 $any \
        --steps 4 --threads 1 --audit-every 2 --out-dir "$tmp/flipped$np"
done

# ---- a job ends
expect "a rank stops while it exits" 0 'rank 1 .* hung when all was done' \
    env FAIL_LEAVES=1 LD_PRELOAD="$tmp/fail.so" $faulty --np 2 $tiny --out-dir "$tmp/leaves"
check "all is saved" test -e "$tmp/leaves/ckpt/step_00000004/DONE"
endless="$small --steps 100000000 --log-every 0"
# A limit of CPU time. The kernel repeats its signal, and a batch system may send it to the launcher, too.
expect "a limit of CPU time is a request to stop" 75 'request .SIGXCPU. at step .*saved' \
    sh -c "ulimit -S -t 1; exec $train $(echo $endless) --out-dir '$tmp/limited'"
# repeated CODE NP SIGNALS: a run gets the signals in one step, and ends with CODE.
repeated() {
    want=$1 np=$2; shift 2
    hold "$tmp/repeated.log" rank=0,step=2,at=bwd $faulty --np $np $endless --out-dir "$tmp/repeated" --force ||
        return 1
    for signal in "$@"; do kill -$signal $pid; sleep 1.2; done
    release $want
}
for np in 1 2; do
    check "sent again it is no second request, --np $np" repeated 75 $np XCPU XCPU XCPU
    check "nor behind another one, --np $np" repeated 75 $np TERM XCPU
    check "another one behind it stops at once, --np $np" repeated 1 $np XCPU TERM
done
trained() { grep -q '"step":3,' "$1/metrics.jsonl"; }
state_of() { sed 's/.*) \(.\).*/\1/' "/proc/$1/stat" 2>/dev/null; }
ranks_of() { cat /proc/$1/task/$1/children 2>/dev/null; }
all_are() { for p in $(ranks_of $1); do [ "$(state_of $p)" = "$2" ] || return 1; done; }
gone() { for p in "$@"; do case $(state_of $p) in ''|Z) ;; *) return 1 ;; esac; done; }
$train --np 2 $endless --timeout 900 --out-dir "$tmp/stuck" >"$tmp/stuck.log" 2>&1 & job=$!
check "a job" await trained "$tmp/stuck"
kill -STOP $(ranks_of $job)
kill -TERM $job; sleep 1.5; kill -TERM $job
check "a second request ends a job whose ranks are stopped" await gone $job
kill -CONT $(ranks_of $job) 2>/dev/null; kill -KILL $job 2>/dev/null
wait $job

# Ctrl-Z. timeout puts the job into a process group of its own: one without a parent in its session is never stopped so.
timeout 900 $train --np 2 $endless --timeout 900 --out-dir "$tmp/pause" >"$tmp/pause.log" 2>&1 & group=$!
check "another job" await trained "$tmp/pause"
job=$(ranks_of $group)
kill -TSTP $job
check "Ctrl-Z stops its ranks, too" await all_are $job T
kill -CONT $job
goes_on() { ! all_are $job T; }
check "and they go on" await goes_on
kill -TERM $job
pid=$group log=$tmp/pause.log
check "it stops and saves" ended_with 75

# Between the launcher and each rank is a script that lives on.
printf '#!/bin/sh\n%s "$@"\necho wrapper\n' "$train" >"$tmp/wrap"
cat >"$tmp/mpirun" <<'END'
#!/bin/sh
for r in 0 1; do
    OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=$$ "$@" &
done
wait
END
chmod +x "$tmp/wrap" "$tmp/mpirun"
"$tmp/mpirun" "$tmp/wrap" $endless --timeout 900 --out-dir "$tmp/orphans" >"$tmp/orphans.log" 2>&1 & job=$!
check "a job of a launcher" await trained "$tmp/orphans"
two=$(for p in $(ranks_of $job); do ranks_of $p; done)
kill -KILL $job
check "its ranks end after the launcher, behind scripts" await gone $two
for p in $two; do kill -KILL $p 2>/dev/null; done
wait
summary
