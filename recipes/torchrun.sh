#!/bin/sh
# torchrun.sh -- pretrains GPT-2 350M on several hosts with PyTorch's torchrun as launcher, and nothing else of PyTorch.
#
#   LOCKSTEP_SECRET=... recipes/torchrun.sh HOSTS MEET [OUT]      the same on every host; OUT: runs/gpt2-350m
#   recipes/torchrun.sh --smoke [OUT]                             two ranks on this host
#
# HOSTS: how many, 1 or 2, with 8 GPUs each. MEET: the name of one of them, to which all torchrun processes connect;
# from PyTorch 2.5 on it must be the one that gets rank 0.
# LOCKSTEP_SECRET: a text that only your job knows. Every host has this folder at the same path, with the same build,
# and the data of gpt2_124m_fineweb.sh.
#
# When a rank is lost torchrun starts all ranks again, here up to 3 times, and --resume auto goes on from the newest
# checkpoint. Every host reads the checkpoint, so keep OUT on a shared file system.

set -eu
cd "$(dirname "$0")/.."
case ${1:-} in --help|'') sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit ;; esac

if [ "$1" = --smoke ]; then
    out=${2:-$(mktemp -d)}
    hosts='--standalone --nproc_per_node 2'
    job='--preset nano --layers 2 --channels 64 --seq-len 64 --total-batch-size 2048 --steps 60 --threads 1
        --device cpu'
else
    : "${LOCKSTEP_SECRET:?set it to the same text on every host}"
    hosts="--nnodes $1 --nproc_per_node 8 --max_restarts 3 --rdzv_id lockstep --rdzv_backend c10d
        --rdzv_endpoint $2:29400"
    out=${3:-runs/gpt2-350m}
    job='--preset gpt2-350m --replicas 16 --data data/fineweb10B --eval-every 250 --eval-steps 1280
        --save-every 1000'
fi
# --no_python: train_gpt is no Python script.
exec torchrun $hosts --no_python ./train_gpt $job --out-dir "$out" --resume auto
