#!/bin/sh
# allreduce.sh -- how long an all-reduce takes: Lockstep's and Open MPI's (shared memory, and TCP over loopback) and
# Gloo's, turn by turn in one run; a table of medians and ratios, as nccl-tests print them (algbw = bytes / time, busbw
# = algbw 2 (N-1) / N).
#   bench/allreduce.sh [ranks [rounds]]       default: 2 ranks, 3 rounds, under a minute
# Open MPI: mpicxx and mpirun (Debian: libopenmpi-dev). Gloo: PYTHON=a python with torch, else build/venv's or
# python3's. What is missing is skipped with the reason. Each rank has one thread; a machine with fewer cores than ranks
# is said to be oversubscribed.
set -eu
cd "$(dirname "$0")/.."
ranks=${1:-2} rounds=${2:-3}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ninja build/bench/allreduce >"$tmp/log" || { cat "$tmp/log"; exit 1; }
kinds='shm tcp'; [ "$ranks" -ne 2 ] || kinds="$kinds raw"

if command -v mpirun >/dev/null && mpicxx -O2 -std=c++17 bench/allreduce_mpi.cpp -o "$tmp/mpi" >"$tmp/log" 2>&1; then
    kinds="$kinds mpi mpi-tcp"
else echo "SKIP mpi: no mpirun, or mpicxx cannot build; on Debian: apt-get install libopenmpi-dev"; fi
python=
for p in ${PYTHON:-build/venv/bin/python python3}; do
    [ -n "$python" ] || ! "$p" -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null || python=$p
done
if [ -n "$python" ]; then kinds="$kinds gloo"; else echo 'SKIP gloo: no python with torch; name one with PYTHON='; fi

port=$((20000 + $$ % 20000))
one() {     # kind
    case $1 in
        mpi*) [ "$1" = mpi ] || tcp='--mca pml ob1 --mca btl self,tcp'
            mpirun --allow-run-as-root --oversubscribe --bind-to none ${tcp:-} -np "$ranks" "$tmp/mpi" |
                sed "s/^mpi/$1/"; tcp= ;;
        gloo)
            for r in $(seq $((ranks - 1))); do RANK=$r WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
                "$python" bench/allreduce_gloo.py & done
            RANK=0 WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$python" bench/allreduce_gloo.py
            wait
            port=$((port + 1)) ;;
        *) build/bench/allreduce "$ranks" "$1" ;;
    esac
}
for round in $(seq "$rounds"); do
    for kind in $kinds; do one "$kind" 2>"$tmp/log" || { echo "$kind failed:"; cat "$tmp/log"; exit 1; }; done
done >"$tmp/times"

over=; [ "$(nproc)" -ge "$ranks" ] || over=' (oversubscribed)'
echo "$ranks ranks of one thread, $(bench/machine.sh)$over, $(date +%Y-%m-%d): median of $rounds rounds"
awk -v kinds="$kinds" '
    { t[$1, $3, ++n[$1, $3]] = $4; ranks = $2; if (!($3 in seen)) { seen[$3] = 1; sizes[++count] = $3 } }
    function median(kind, size,   k, i, j, x) {
        k = n[kind, size]
        for (i = 1; i <= k; i++) v[i] = t[kind, size, i]
        for (i = 1; i <= k; i++) for (j = i + 1; j <= k; j++) if (v[j] < v[i]) { x = v[i]; v[i] = v[j]; v[j] = x }
        return v[int((k + 1) / 2)]
    }
    END {
        m = split(kinds, kind, " ")
        printf "%9s", "KiB"
        for (i = 1; i <= m; i++) printf kind[i] == "raw" ? "%9s ms" : "%9s ms  algbw  busbw", kind[i]
        for (i = 2; i <= m; i++) { over[i] = kind[i] ~ /gloo|mpi-tcp/ ? "tcp" : "shm"; printf "%12s",
            kind[i] == "raw" ? "tcp/raw" : kind[i] "/" over[i] }
        print "      (GB/s)"
        for (s = 1; s <= count; s++) {
            bytes = sizes[s]
            printf "%9d", bytes / 1024
            for (i = 1; i <= m; i++) {
                us[kind[i]] = median(kind[i], bytes)
                printf "%12.3f", us[kind[i]] * 1e3
                if (kind[i] != "raw") printf "%7.2f%7.2f", bytes / us[kind[i]] / 1e9,
                    bytes / us[kind[i]] / 1e9 * 2 * (ranks - 1) / ranks
            }
            for (i = 2; i <= m; i++) printf "%12.2f",
                kind[i] == "raw" ? us["tcp"] / us["raw"] : us[kind[i]] / us[over[i]]
            print ""
        }
    }' "$tmp/times"
