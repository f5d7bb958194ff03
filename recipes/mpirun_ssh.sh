#!/bin/sh
# mpirun_ssh.sh -- pretrains GPT-2 350M on several hosts, with Open MPI over ssh.
#
#   recipes/mpirun_ssh.sh HOST:RANKS,HOST:RANKS... [OUT]     gpu1:8,gpu2:8 for example; OUT: runs/gpt2-350m
#   recipes/mpirun_ssh.sh --smoke [OUT]                      two ranks on this host
#
# Every host has this folder at the same path, with the same build, and data as gpt2_124m_fineweb.sh has it. All hosts
# have as many ranks, in all a power of two of at most --replicas. After a failure run the same command again: every
# host then reads the checkpoint, so keep OUT on a shared file system.
#
# SIGUSR1 of mpirun saves and stops, with code 75. On Ctrl-C or SIGTERM Open MPI waits 20 s before it tells the ranks,
# here, and then leaves them 20 s for their save; by itself it takes one second for each.

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

# The first host's first rank is rank 0, which the others look for; the secret tells them from strangers.
MASTER_ADDR=${hosts%%[:,]*}
LOCKSTEP_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export MASTER_ADDR LOCKSTEP_SECRET

# By itself Open MPI ties each rank to a core or a socket.
exec $mpirun --host "$hosts" --bind-to none --mca odls_base_sigkill_timeout 20 -x MASTER_ADDR -x LOCKSTEP_SECRET \
    ./train_gpt $job --out-dir "$out" --resume auto
