#!/bin/sh
# test_tour.sh -- the first run of docs/tour.md, on this machine: the weights after the default run in fp32 have the
# sha256 that the page shows.
# inputs: cxx train_gpt.cu kernels/*.h kernels/cpu models/gpt2.* models/model.* optimizers src/data src/ddp
# inputs: data/make_stories.cpp docs/tour.md
. tests/lib.sh
run() { $train --device cpu --dtype fp32 --np 2 --out-dir "$tmp/run" >"$tmp/console"; }
check "the default run on two ranks" run
! grep -q 'cpu portable' "$tmp/console" || skip_all tour "this CPU has no fused multiply-add"
check "has the page's weights" \
    grep -qx "$(sha256sum <"$tmp/run/ckpt/step_00000480/model.safetensors" | cut -c1-64)" docs/tour.md
summary
