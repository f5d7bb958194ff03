#!/bin/sh
# mpirun_ssh.sh -- pretrains GPT-2 350M on several hosts, with Open MPI over ssh.
#
#   recipes/mpirun_ssh.sh HOST:RANKS,HOST:RANKS... [OUT]     e.g. gpu1:8,gpu2:8; OUT: runs/gpt2-350m
#   recipes/mpirun_ssh.sh --smoke [OUT]                      two ranks on this host
#
# Every host has this folder at the same path, with the same build, and the data of gpt2_124m_fineweb.sh. Each host has
# the same number of ranks; all ranks together are a power of two of at most --replicas. After a failure run the same
# command again. Every host then reads the checkpoint, so keep OUT on a shared file system.
#
# Send SIGUSR1 to mpirun: the run saves and stops with code 75. On Ctrl-C or SIGTERM Open MPI waits, signals the ranks,
# waits again and kills them. Each wait is 20 s here, by odls_base_sigkill_timeout; Open MPI's default is 1 s.

set -eu
cd "$(dirname "$0")/.."
case ${1:-} in --help|'') sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit ;; esac

if [ "$1" = --smoke ]; then
    hosts=localhost:2 out=${2:-$(mktemp -d)}
    job='--preset nano --layers 2 --channels 64 --seq-len 64 --total-batch-size 2048 --steps 60 --threads 1
        --device cpu'
    mpirun='mpirun --oversubscribe'
else
    hosts=$1 out=${2:-runs/gpt2-350m}
    job='--preset gpt2-350m --replicas 16 --data data/fineweb10B --eval-every 250 --eval-steps 1280
        --save-every 1000'
    mpirun=mpirun
fi
[ "$(id -u)" -ne 0 ] || mpirun="$mpirun --allow-run-as-root"

# Rank 0 runs on the first host; the others connect to it. With the secret the ranks prove that they belong together.
MASTER_ADDR=${hosts%%[:,]*}
LOCKSTEP_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export MASTER_ADDR LOCKSTEP_SECRET

# Without --bind-to none Open MPI binds each rank to a core or a socket.
exec $mpirun --host "$hosts" --bind-to none --mca odls_base_sigkill_timeout 20 -x MASTER_ADDR -x LOCKSTEP_SECRET \
    ./train_gpt $job --out-dir "$out" --resume auto
