#!/bin/sh
# test_arm.sh -- the program compiled for Arm and run by qemu-aarch64: its kernels against the specification, the golden
# bits of tests/scripts/test_cpus.sh, and one job of two ranks of which one is emulated.
# inputs: aarch64-linux-gnu-g++ kernels/*.h kernels/ref.cpp kernels/cpu src/base models optimizers tests/kernels
# inputs: tests/unit/test_same_math.cpp tests/scripts/test_cpus.sh tests/golden/cpus.txt
. tests/lib.sh
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v $tool >/dev/null 2>&1 ||
        skip_all "Arm" "no $tool; on Debian: apt-get install g++-aarch64-linux-gnu qemu-user"
done
case $(uname -m) in aarch64) skip_all "Arm by emulation" "this machine is one" ;; esac
arm="$tmp/aarch64" native=$train
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu        # where the libraries for Arm are
cross_build() (         # with the version that the native program has
    mkdir "$arm" && git ls-files | tar -c -T - | tar -x -C "$arm" || return 1
    GIT_DIR=$(git rev-parse --absolute-git-dir) GIT_WORK_TREE=$arm GIT_OPTIONAL_LOCKS=0
    export GIT_DIR GIT_WORK_TREE GIT_OPTIONAL_LOCKS
    cd "$arm" || return 1
    EMULATOR=qemu-aarch64 CXX=aarch64-linux-gnu-g++ EXTRA=-Werror NVCC= ./configure &&
        ninja train_gpt build/tests/kernels_cpu build/tests/same_math
)
check "it builds" cross_build
[ "$failed" -eq 0 ] || give_up
# The kernel starts no program for Arm: the tools that train_gpt starts become scripts that do.
for tool in prep lm launch; do
    mv "$arm/build/$tool" "$arm/build/$tool.arm"
    printf '#!/bin/sh\nexec qemu-aarch64 "%s" "$@"\n' "$arm/build/$tool.arm" >"$arm/build/$tool"
    chmod +x "$arm/build/$tool"
done
check "kernels" qemu-aarch64 "$arm/build/tests/kernels_cpu"
check "functions" qemu-aarch64 "$arm/build/tests/same_math"
golden_bits() { TRAIN_GPT="qemu-aarch64 $arm/train_gpt" RANKS=2 sh tests/scripts/test_cpus.sh; }
check "golden bits" golden_bits

# Ranks on two kinds of CPU.
job="--dtype fp32 --data tests/golden/lines.txt --steps 8 --batch-size 2 --total-batch-size 128 --seq-len 32 --layers 1
    --heads 2 --channels 32 --sample-every 0 --save-every 8 --timeout 120"
both() {
    port=$((20000 + $$ % 10000))
    for rank in 0 1; do
        if [ $rank = 0 ]; then program=$native; else program="qemu-aarch64 $arm/train_gpt"; fi
        env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            $program $job --out-dir "$tmp/both" & pids="${pids:-} $!"
    done
    for p in $pids; do wait "$p" || return 1; done
}
check "two ranks, one of them Arm" both
check "one rank" run one $native
check "the same bits" same "$tmp/one" "$tmp/both"
summary
