#!/bin/sh
# test_software_gpu.sh -- the tests of the software GPU itself (tests/cuda), on both architectures; maps, which are
# Hopper's, on one.
# inputs: cxx nvcc tests/cuda tests/gpu tests/test.h
. tests/lib.sh
needs_nvcc "the software GPU"
programs=$(for f in tests/cuda/test_*.cu; do basename "$f" .cu | sed 's|test_\(.*\)|build/tests/\1_ptx|'; done)
need $programs
for program in $programs; do
    check "$program, sm_90" env SOFT_GPU_ARCH=90 $program
    case $program in *maps*) continue ;; esac
    check "$program, sm_80" env SOFT_GPU_ARCH=80 $program
done
summary
