#!/bin/sh
# test_nccl_abi.sh -- what src/ddp/transport_gpu.cpp declares and loads against the real NCCL, with no GPU: every
# function is in the library, and its nccl.h agrees about signatures, values and sizes.
# The library and its header are those of $NCCL_HOME, of the Python package nvidia-nccl-cu13 or -cu12, or the system's.
. tests/lib.sh
cxx=$(configured cxx)
cxx=${cxx:-c++}

# Prints a folder with include/nccl.h and lib/libnccl.so.2, or with links to them.
find_nccl() {
    for python in build/venv/bin/python python3; do
        "$python" -c 'from importlib.util import find_spec
print(list(find_spec("nvidia.nccl").submodule_search_locations)[0])' 2>/dev/null
    done >"$tmp/homes"
    for home in "${NCCL_HOME:-}" $(cat "$tmp/homes"); do
        [ -n "$home" ] && [ -e "$home/include/nccl.h" ] && [ -e "$home/lib/libnccl.so.2" ] && echo "$home" && return
    done
    header=$(echo '#include <nccl.h>' | $cxx -x c++ -M - 2>/dev/null | tr ' ' '\n' | grep '/nccl\.h$')
    library=$(ldconfig -p 2>/dev/null | sed -n 's/.*libnccl\.so\.2 .*=> //p' | head -n 1)
    [ -n "$header" ] && [ -n "$library" ] || return
    mkdir -p "$tmp/system/include" "$tmp/system/lib"
    ln -s "$header" "$tmp/system/include/nccl.h"
    ln -s "$library" "$tmp/system/lib/libnccl.so.2"
    echo "$tmp/system"
}
nccl=$(find_nccl)
[ -n "$nccl" ] || skip_all "NCCL's interface" "no NCCL: pip install nvidia-nccl-cu13, or set NCCL_HOME"
# NCCL's header includes the toolkit's; without it these two types are enough so far.
mkdir -p "$tmp/types"
printf '%s\n' '#include <stddef.h>' 'typedef struct CUstream_st* cudaStream_t;' \
    'typedef struct CUevent_st* cudaEvent_t;' >"$tmp/types/cuda_runtime.h"
: >"$tmp/types/cuda_fp16.h"
compile() { $cxx -std=c++20 -fsyntax-only -I "$nccl/include" -I "$cuda" -I . "$@"; }
echo '#include <nccl.h>' >"$tmp/header.cpp"
for cuda in "${CUDA_HOME:-/usr/local/cuda}/include" "$tmp/types"; do
    compile "$tmp/header.cpp" 2>"$tmp/compiler" && break
    cuda=
done
[ -n "$cuda" ] ||
    skip_all "NCCL's interface" "$nccl/include/nccl.h needs the CUDA Toolkit: $(head -n 1 "$tmp/compiler")"

# ---- signatures, values, sizes
ours=$tmp/ours.h
{
    for header in cstddef cstdlib cstring dlfcn.h src/base/common.h; do echo "#include <$header>"; done
    sed -n '/^struct NcclId/,/^\/\/ ---- the transport/p' src/ddp/transport_gpu.cpp
    sed -n '/^static void load_nccl() {/,/^}/p' src/ddp/transport_gpu.cpp
} >"$ours"
# Its functions and the names in load_nccl belong together by their order.
members() { sed -n '/^struct Nccl {/,/^};/s/.*(\*\([a-z_]*\))(.*/\1/p' "$1"; }
names() { sed -n '/ names\[\] = {/,/};/p' "$ours" | grep -o '"[A-Za-z]*"' | tr -d '"'; }
program() {         # HEADER: a program that compiles if that header agrees with nccl.h
    members "$1" >"$tmp/members"
    cat <<CPP
#include <nccl.h>
#include <type_traits>
template <class T> concept Complete = requires { sizeof(T); };
// A caller that declares Ours passes what Theirs takes: integers for enums of their size, void or a struct that nobody
// knows behind a pointer for such a struct, a struct for one of the same size.
template <class Ours, class Theirs> constexpr bool agree() {
    if constexpr (std::is_same_v<Ours, Theirs>) return true;
    else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
        using A = std::remove_pointer_t<Ours>;
        using B = std::remove_pointer_t<Theirs>;
        if constexpr (std::is_const_v<A> != std::is_const_v<B>) return false;
        else if constexpr (!Complete<A> && !Complete<B>) return std::is_class_v<B> && !std::is_const_v<B>;
        else if constexpr (Complete<A> && Complete<B>) return agree<A, B>();
        else return false;
    }
    else if constexpr (std::is_enum_v<Theirs>) return std::is_integral_v<Ours> && sizeof(Ours) == sizeof(Theirs);
    else if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs>)
        return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
               std::is_trivially_copyable_v<Ours> && std::is_trivially_copyable_v<Theirs>;
    else return false;
}
template <class A, class... As, class B, class... Bs> constexpr bool signatures_agree(A (*)(As...), B (*)(Bs...)) {
    if constexpr (sizeof...(As) != sizeof...(Bs)) return false;
    else return agree<A, B>() && (agree<As, Bs>() && ...);
}
#include "$1"
$(names | paste "$tmp/members" - | sed 's/\(.*\)\t\(.*\)/static_assert(signatures_agree(decltype(Nccl::\1)(), \
    decltype(\&nccl\2)()), "nccl\2");/')
static_assert(kNcclBytes == int(ncclUint8), "kNcclBytes");
static_assert(kNcclFloat == int(ncclFloat32), "kNcclFloat");
static_assert(kNcclSum == int(ncclSum), "kNcclSum");
static_assert(kNcclInProgress == int(ncclInProgress), "kNcclInProgress");
static_assert(int(ncclSuccess) == 0, "0 is success");
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId) && sizeof(NcclId) == NCCL_UNIQUE_ID_BYTES, "NcclId");
CPP
}
compiles() {        # HEADER
    program "$1" >"$tmp/abi.cpp"
    compile "$tmp/abi.cpp"
}
whole() {
    echo "$(members "$ours" | wc -l) functions, $(names | wc -l) names"
    [ "$(names | wc -l)" -ge 11 ] && [ "$(members "$ours" | wc -l)" = "$(names | wc -l)" ] &&
        for constant in $(grep -o 'kNccl[A-Za-z]*' "$ours" | sort -u); do
            grep -q "static_assert($constant == " "$tmp/abi.cpp" || { echo "$constant is not compared"; return 1; }
        done
}
check "nccl.h agrees with NCCL's" compiles "$ours"
check "all functions and values are compared" whole
# Negative controls: each change of our header is named.
noticed() {         # ASSERTION SED_SCRIPT
    sed "$2" "$ours" >"$tmp/changed.h"
    cmp -s "$ours" "$tmp/changed.h" && { echo "$2 changes nothing"; return 1; }
    ! compiles "$tmp/changed.h" >"$tmp/compiler" 2>&1 && grep -q "static.*assert.*$1" "$tmp/compiler" && return
    head -n 3 "$tmp/compiler"
    return 1
}
check "another value is noticed" noticed kNcclFloat 's/kNcclFloat = 7/kNcclFloat = 6/'
check "another size is noticed" noticed NcclId 's/bytes\[128\]/bytes[64]/'
check "a narrower argument is noticed" noticed ncclSend '/\*send/s/size_t count/int count/'
check "an argument too few is noticed" noticed ncclReduce '/\*reduce/s/int op, //'
check "a pointer to another thing is noticed" noticed ncclCommInitRank '/\*comm_init_rank/s/NcclComm\* c/NcclComm c/'
check "another order is noticed" noticed ncclRecv '/\*send/{h;d}; /\*recv/G'

# ---- the library
cat >"$tmp/load.cpp" <<'CPP'
#include <cstdio>
#include "ours.h"
int main() {
    try {
        load_nccl();
        int version = 0;
        const int result = nccl.get_version(&version);
        std::printf("version %d, result %d: %s\n", version, result, nccl.error_string(result));
        return 0;
    } catch (const Error& e) {
        std::printf("%s\n", e.message.c_str());
        return e.code;
    }
}
CPP
check "a program that loads NCCL" $cxx -std=c++20 -pthread -I . "$tmp/load.cpp" "${TOOLS:-build}/src.a" -ldl \
    -o "$tmp/load"
version=$(sed -n 's/^#define NCCL_VERSION_CODE  *\([0-9]*\).*/\1/p' "$nccl/include/nccl.h")
expect "load_nccl finds every function, and they answer" 0 "^version ${version:-none}, result 0: no error" \
    env LOCKSTEP_NCCL="$nccl/lib/libnccl.so.2" "$tmp/load"
expect "a library without them is refused" 66 'undefined symbol: ncclGetVersion' \
    env LOCKSTEP_NCCL=libm.so.6 "$tmp/load"
summary
