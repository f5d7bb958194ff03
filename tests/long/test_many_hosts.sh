#!/bin/sh
# test_many_hosts.sh -- the promise on many hosts, which are simulated on this machine. 256 ranks on 128 hosts of CPUs
# write the checkpoint of one rank. 128 hosts of a GPU each, which are more than a kernel adds at a time (kGpuTerms), do
# so too.
. tests/lib.sh
soft=${TRAIN_GPT_PTX:-$PWD/build/train_gpt_ptx}
LOCKSTEP_SHARE_GPU=1; export LOCKSTEP_SHARE_GPU
job="--layers 1 --heads 1 --channels 16 --seq-len 8 --batch-size 1 --data tests/golden/lines.txt --eval-every 0
     --sample-every 0 --timeout 300"
alike() { [ "$(contents "$tmp/$1")" = "$(contents "$tmp/$2")" ]; }

cpus="--device cpu --total-batch-size 2048 --steps 2"
check "one rank" run one $train $cpus --replicas 256
check "256 ranks on 128 hosts" run hosts on_hosts 256 128 timeout 1500 $train --threads 1 $cpus --replicas 256
check "write the same checkpoint, byte for byte" alike one hosts
differs() { run tree_of_128 $train $cpus --replicas 128 && ! alike one tree_of_128; }
check "another number of replicas is noticed" differs

gpus="--device gpu --total-batch-size 1024 --replicas 128 --steps 1"
needs_nvcc "128 hosts of GPUs"
check "one GPU in software" run gpu $soft $gpus
check "128 hosts of a GPU each" run gpu_hosts on_hosts 128 128 timeout 1500 $soft $gpus
check "write the same checkpoint, byte for byte" alike gpu gpu_hosts
summary
