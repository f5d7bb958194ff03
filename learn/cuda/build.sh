# build.sh -- how learn/ladder, learn/check and the tests compile CUDA. $root is the repository.
#
# cuda_program PROGRAM SOURCE: for the GPU of this machine; without one for the software GPU of the tests, which
# executes the kernels on the CPU and counts what they do. Exits with 4 if it does not compile, and with 77 if there is
# neither. It is made of cuda_find, cuda_object OBJECT SOURCE and cuda_link PROGRAM OBJECT...
cuda_find() {
    nvcc=$(command -v nvcc || sed -n 's/^nvcc = //p' "$root/build/config.ninja" 2>/dev/null)
    ccbin=$(sed -n 's/^ccbin = //p' "$root/build/config.ninja" 2>/dev/null)
    [ -n "$nvcc" ] || { echo "needs nvcc, of the CUDA Toolkit"; exit 77; }
    flags="-std=c++20 -O3 -I $root/learn/cuda -I $root/learn/exercises ${ccbin:+-ccbin $ccbin}"
    kind=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
    case $kind in
    9.0) arch=-arch=sm_90a ;;                                           # wgmma and TMA need the a
    '') kind=soft arch='-DSMALL=1 --no-compress -lineinfo -gencode arch=compute_80,code=compute_80' ;;
    *) arch=-arch=native ;;
    esac
    [ $kind != soft ] || [ -f "$root/build/soft_gpu.a" ] || {
        echo "needs a GPU, or the software GPU: ./configure && ninja build/soft_gpu.a builds it in some minutes"
        exit 77
    }
}
cuda_object() {
    hopper=
    if [ $kind = soft ] && grep -q wgmma "$2"; then hopper='-gencode arch=compute_90a,code=compute_90a'; fi
    "$nvcc" $flags $arch $hopper -x cu -c "$2" -o "$1" || exit 4
}
cuda_link() {
    program=$1; shift
    if [ $kind != soft ]; then "$nvcc" $flags $arch "$@" -o "$program" || exit 4; return; fi
    ${CXX:-g++} "$@" "$root/build/soft_gpu.a" -Wl,--wrap=dlopen,--wrap=dlsym -pthread -ldl -o "$program" || exit 4
}
cuda_program() {
    cuda_find
    cuda_object "$1.o" "$2"
    cuda_link "$1" "$1.o"
}
