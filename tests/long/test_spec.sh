#!/bin/sh
# test_spec.sh -- whole runs by the specification, train_gpt_ref, have the golden bits of tests/scripts/test_cpus.sh.
# inputs: cxx train_gpt.cu kernels/*.h kernels/ref.cpp models optimizers src/ddp src/data tests/golden/cpus.txt
# inputs: tests/scripts/test_cpus.sh
spec=$PWD/build/train_gpt_ref
. tests/scripts/test_cpus.sh
