#!/bin/sh
# test_rooms.sh -- the house: which folder may include which, and what is not linked into train_gpt.
# first
. tests/lib.sh

# Folders whose headers a folder may include, besides its own.
allowed() {
    case $1 in
        src/base) echo '' ;;
        src/comm) echo 'src/base' ;;
        src/data) echo 'src/base src/comm build' ;;
        src/checkpoint) echo 'src/base src/comm' ;;
        tools/text) echo 'src/base src/data src/checkpoint models kernels build' ;;
        src/ddp) echo 'src/base src/comm kernels optimizers build' ;;
        optimizers) echo 'src/base kernels build' ;;
        models) echo 'src/base src/checkpoint kernels build' ;;
        kernels) echo 'src/base optimizers build' ;;
        src/measure) echo 'src/base src/comm src/ddp models kernels build' ;;
        src/options) echo 'src/base src/data src/ddp src/measure models optimizers kernels build' ;;
        src/run) echo 'src/options src/base src/comm src/data src/checkpoint src/ddp models kernels build' ;;
        src/app) echo 'src/options src/run src/base src/comm src/data src/checkpoint src/ddp src/measure models' \
            'optimizers kernels build' ;;
        tools/lm) echo 'tools tools/text src/app src/options src/run src/base src/comm src/data src/ddp models' \
            'kernels' ;;
    esac
}
folder_of() {       # FILE: its room
    case $1 in src/*|tools/*/*) echo "$1" | cut -d/ -f1-2 ;; *) echo "${1%%/*}" ;; esac
}
arrows() {          # ROOM [MORE FILES]: the includes that point the wrong way
    room=$1
    shift
    grep -rnE '^#include "' "$room" "$@" --include='*.cpp' --include='*.h' --include='*.cu' --include='*.cuh' |
        sed -E 's/^([^:]*):[0-9]+:#include "([^"]*)".*/\1 \2/' |
        while read -r file header; do
            to=$(folder_of "$header")
            [ "$to" = "$room" ] || case " $(allowed "$room") " in *" $to "*) ;; *) echo "$file -> $header" ;; esac
        done
}
points_one_way() {
    arrows "$1" >"$tmp/arrows"
    cat "$tmp/arrows"
    [ ! -s "$tmp/arrows" ]
}
for room in src/base src/comm src/data src/checkpoint tools/text src/ddp src/measure src/options src/run src/app \
    tools/lm optimizers models kernels; do
    check "$room includes what it may" points_one_way $room
done
# Negative control.
mkdir -p "$tmp/src/base"
echo '#include "src/options/options.h"' >"$tmp/src/base/bad.h"
noticed() { (cd "$tmp" && arrows src/base | grep -q 'src/options/options.h'); }
check "a wrong arrow is noticed" noticed

# The linker's word: what only the tools and lm are made of is not in train_gpt. Weak symbols are of headers.
build=${TOOLS:-$PWD/build}
strong() { nm --defined-only "$@" 2>"$tmp/nm.log" | awk '$2 ~ /[TDBR]/ && $3 != "main" { print $3 }' | sort -u; }
of_tools() { strong "$build"/tools/text/*.o "$build"/tools/lm/*.o "$build"/cpu/tools/lm/*.o "$build"/*.tools/*.o; }
shared_with() { of_tools >"$tmp/of_tools"; strong "$1" | comm -12 "$tmp/of_tools" - >"$tmp/shared"; }
none_in() {
    shared_with "$1"
    [ "$(wc -l <"$tmp/of_tools")" -gt 40 ] || { echo 'no symbols of tools'; return 1; }
    [ ! -s "$tmp/shared" ] || { cat "$tmp/shared"; return 1; }
}
some_in() { shared_with "$1"; grep -q "$2" "$tmp/shared"; }
check 'nothing of tools is in train_gpt' none_in "$train"
check 'the tokenizers are in prep, where this looks' some_in "$build/prep" tokenizer
check 'the commands are in lm, where this looks' some_in "$build/lm" eval

# What a suite runs is built before the suites, or the suite names it in a line "need".
unbuilt() {         # SUITE...: "SUITE: PROGRAM" where neither holds
    ninja -t targets rule link | sort >"$tmp/programs"
    for suite in "$@"; do
        for target in test-ci $(sed -n 's/.*need \(build[^$]*\)$/\1/p' "$suite"); do ninja -t commands $target; done |
            sed -n 's/.* -o \(build[^ ]*\).*/\1/p' | sort | comm -23 "$tmp/programs" - |
            sed 's,^build\(.*\),[}d]\1\\>,' | grep -oEf - "$suite" | sed "s,^,$suite: ,"
    done >"$tmp/unbuilt"
    cat "$tmp/unbuilt"
    [ ! -s "$tmp/unbuilt" ]
}
check "suites name the programs that they build" unbuilt tests/scripts/*.sh tests/long/*.sh
echo "$build"/bench/"model" >"$tmp/lacks.sh"
forgotten() { ! unbuilt "$tmp/lacks.sh" && grep -q bench/model "$tmp/unbuilt"; }
check "a suite that does not is found" forgotten

summary
