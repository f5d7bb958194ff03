#!/bin/sh
# soak.sh -- random faults for SOAK_SECONDS (an hour unless said): every rank may be killed, stopped, ended or get an
# I/O error, in forward, backward, reduction, and at each point of a save; the job restarts, with another number of
# ranks when its supervisor gave up. In the end losses, weights and moments must be those of the undisturbed run, and no
# process may be left, nor a temporary checkpoint beside the last attempt's.
#
#   SOAK_SECONDS=300 SEED=1 tests/soak.sh
# Each round has a seed of its own: ROUNDS=1 SEED=N repeats the one that failed.
limit=${SOAK_SECONDS:-3600} seed=${SEED:-$(date +%s)} rounds=${ROUNDS:-0}
. tests/lib.sh
train=$faulty
steps=24 every=3
job="--layers 1 --heads 2 --channels 32 --seq-len 16 --batch-size 1 --total-batch-size 64 --lr 3e-3 --dropout 0.1
     --data tests/golden/lines.txt --steps $steps --save-every $every --eval-every 12 --eval-steps 2 --sample-every 0
     --audit-every 5 --timeout 2 --threads 1"

# Faults for each attempt of a supervisor, three to choose from, and the number of ranks: a function of the seed.
plan() {
    awk -v seed="$1" -v steps=$steps -v every=$every 'function pick(n) { return int(rand() * n) }
        BEGIN { srand(seed); rand(); ranks = 2 ^ pick(3)
            n = split("fwd bwd reduce ckpt_copy ckpt_write ckpt_done ckpt_placed ckpt_latest ckpt_best", at, " ")
            k = split("kill kill kill exit:7 eio stop", act, " ")
            for (t = 0; t < 6; t++) for (i = 0; i < 3; i++) {
                p = at[1 + pick(n)]; a = act[1 + pick(k)]; s = 1 + pick(steps - 1)
                if (a == "stop" && ranks == 1) a = "kill"       # nobody is there to notice
                if (a == "eio" && p !~ /ckpt_[wdplb]/) a = "kill"
                if (p ~ /ckpt/) s = every * (1 + pick(steps / every))
                r = p ~ /ckpt_[dplb]/ ? 0 : pick(ranks)
                list = list (list ? ";" : "") "rank=" r ",step=" s ",at=" p ",do=" a ",try=" t
            }
            print ranks, list }'
}
# What a job has left behind. Its sockets and its shared memory (a memfd) have no name in a file system: they end with
# its processes.
left() {
    pgrep -f -- "--out-dir $1( |$)" | sed 's/^/process /'
    ls -A "$1/ckpt" 2>/dev/null | grep '^\.' | awk 'NR > 1 { print "ckpt/" $0 }'
}

$train $job --out-dir "$tmp/golden" >"$tmp/golden.log" 2>&1 ||
    { tail -n 5 "$tmp/golden.log"; fail golden "the undisturbed run"; give_up; }
begin=$(date +%s) done_rounds=0 fired=0 starts=0 hangs=0 orphans=0 different=0
while [ $(($(date +%s) - begin)) -lt "$limit" ] && { [ "$rounds" -eq 0 ] || [ $done_rounds -lt "$rounds" ]; }; do
    out="$tmp/run" bad=
    rm -rf "$out"; : >"$tmp/log"
    code=1 tries=0
    # By hand where the supervisor gives up; the last attempts are without faults.
    while [ $code -ne 0 ] && [ $tries -lt 8 ]; do
        set -- $(plan $((seed * 10 + tries)))
        LOCKSTEP_FAULT=$([ $tries -lt 6 ] && echo "$2") timeout -s KILL 100 \
            $train $job --np "$1" --max-restarts 6 --resume auto --out-dir "$out" >>"$tmp/log" 2>&1
        code=$? tries=$((tries + 1))
        [ $code -ne 137 ] || { bad="hang"; hangs=$((hangs + 1)); }
        rest=$(left "$out")
        [ -z "$rest" ] || { bad="left behind: $rest"; orphans=$((orphans + 1)); }
    done
    same "$tmp/golden" "$out" >"$tmp/same.log" 2>&1 && [ "$(contents "$out")" = "$(contents "$tmp/golden")" ] ||
        { bad="$bad different: $(head -n 2 "$tmp/same.log")"; different=$((different + 1)); }
    fired=$((fired + $(grep -c 'LOCKSTEP_FAULT fires' "$tmp/log")))
    starts=$((starts + $(grep -c '^output ' "$tmp/log")))
    [ -z "$bad" ] || { fail "seed $seed" "$bad"; cat "$tmp/log"; }
    done_rounds=$((done_rounds + 1)) seed=$((seed + 1))
done
echo "bench: soak: $done_rounds runs (seeds $((seed - done_rounds)) to $((seed - 1))), $fired faults, $starts starts" \
    "in $(($(date +%s) - begin)) s: $hangs hangs, $orphans with something left behind, $different with other bits"
[ "$failed" -eq 0 ] && ok soak
summary
