#!/bin/sh
# build.sh -- builds variants: copies of this tree with one patch of this folder each. A patch is a trade that is not
# the default yet; its first lines say what it should win, what it costs, which other patch it needs before it, and
# which tests of tests/kernels it concerns.
#
#   bench/variants/build.sh NAME...         build/variants/NAME/{train_gpt,gpu_kernels,kernels_gpu}, for the GPU that
#                                           build/ is for, or for CUDA_ARCH: CUDA_ARCH=90a bench/variants/build.sh NAME
#   bench/variants/build.sh --ptx NAME...   build/variants/NAME/kernels_ptx instead, which runs on the software GPU
#
# NAME is that of a patch, or a path to one. The copy has the objects of build/: what a patch does not touch is not
# compiled again, where both are for one GPU. build/variants/NAME/build is a build folder as bench/gpu.sh takes it.
set -eu
cd "$(dirname "$0")/../.."
programs='train_gpt build/bench/gpu_kernels build/tests/kernels_gpu'
[ "${1:-}" != --ptx ] || { programs=build/tests/kernels_ptx; shift; }
[ $# -gt 0 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
[ -f build/config.ninja ] || ./configure
for name in "$@"; do
    patch=bench/variants/$name.patch
    [ -f "$patch" ] || patch=$name
    [ -f "$patch" ] || { echo "build.sh: no patch $name, but $(cd bench/variants && echo *.patch)" >&2; exit 66; }
    tree=build/variants/$(basename "$name" .patch)
    rm -rf "$tree"
    mkdir -p "$tree"
    # Times are kept. Objects are copied, not linked: compilers write into the files that are there.
    tar -cf - --exclude=./.git --exclude=./runs --exclude='./data/*.bin' --exclude=./data/fineweb10B \
        --exclude=./build/variants --exclude=./build/asan --exclude=./build/tsan --exclude=./build/venv \
        --exclude='./build/*_ptx' . |
        tar -xf - -C "$tree"
    patches=$patch
    while needed=$(sed -n '/^diff/q; s/^Needs: //p' "$patch") && [ -n "$needed" ]; do
        patch=bench/variants/$needed.patch
        patches="$patch $patches"
    done
    # As if there were no repository around the copy: git would look for the patch's paths at its root.
    for patch in $patches; do
        GIT_CEILING_DIRECTORIES=$PWD/build/variants git -C "$tree" apply --whitespace=nowarn - <"$patch" && continue
        echo "build.sh: $patch does not apply" >&2
        exit 65
    done
    (
        cd "$tree"
        [ -z "${CUDA_ARCH:-}" ] || ./configure >/dev/null
        ninja $programs
        for program in $programs; do [ -e "${program##*/}" ] || ln -s "$program" "${program##*/}"; done
    )
done
