#!/bin/sh
# test_learn.sh -- tests/scripts/test_learn.sh with 60 random jobs, and with each rule of sums changed in turn.
# inputs: cxx clang++ LEARN_JOBS LEARN_SEED learn/train.cpp train_gpt.cu kernels/*.h kernels/cpu models/gpt2.*
# inputs: models/model.* optimizers src/data tests/scripts/test_learn.sh tests/golden/cpus.txt
LEARN_JOBS=${LEARN_JOBS:-60} LEARN_RULES=all
. tests/scripts/test_learn.sh
