# build.sh -- how learn/ladder, learn/check and the tests compile CUDA. $root is the repository.
#
# cuda_program PROGRAM SOURCE...: for the GPU of this machine; without one for the software GPU of the tests, which
# executes the kernels on the CPU and counts what they do. Exits with 4 if it does not compile, and with 77 if there is
# neither.
cuda_program() {
    program=$1; shift
    nvcc=$(command -v nvcc || sed -n 's/^nvcc = //p' "$root/build/config.ninja" 2>/dev/null)
    ccbin=$(sed -n 's/^ccbin = //p' "$root/build/config.ninja" 2>/dev/null)
    [ -n "$nvcc" ] || { echo "needs nvcc, of the CUDA Toolkit"; exit 77; }
    flags="-std=c++20 -O3 -Werror all-warnings -I $root/learn/cuda -I $root/learn/exercises ${ccbin:+-ccbin $ccbin}"
    if kind=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) && [ -n "$kind" ]; then
        case $kind in 9.0) arch=sm_90a ;; *) arch=native ;; esac        # wgmma and TMA need the a
        "$nvcc" $flags -arch=$arch "$@" -o "$program" || exit 4
        return
    fi
    if [ ! -f "$root/build/soft_gpu.a" ]; then
        echo "needs a GPU, or the software GPU: ./configure && ninja build/soft_gpu.a builds it in some minutes"
        exit 77
    fi
    objects=
    for source in "$@"; do
        hopper=
        if grep -q wgmma "$source"; then hopper='-gencode arch=compute_90a,code=compute_90a'; fi
        object=$program.$(basename "$source").o
        "$nvcc" $flags -DSMALL=1 --no-compress -lineinfo -gencode arch=compute_80,code=compute_80 $hopper -x cu \
            -c "$source" -o "$object" || exit 4
        objects="$objects $object"
    done
    ${CXX:-g++} $objects "$root/build/soft_gpu.a" -Wl,--wrap=dlopen,--wrap=dlsym -pthread -ldl -o "$program" || exit 4
}
