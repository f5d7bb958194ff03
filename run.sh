#!/bin/sh
# run.sh -- from a fresh machine to a falling loss: installs what is missing, builds, runs.
#   ./run.sh [options]       builds and trains; options are those of train_gpt (./run.sh --help)
#   ./run.sh test            builds and runs all tests
#
# Needed: a C++20 compiler and ninja. As root on Debian or Ubuntu they are installed; anywhere else the one line that
# installs them is printed. CXX=clang++ ./run.sh chooses a compiler.
set -eu

self=$(readlink -f -- "$0" 2>/dev/null || printf '%s' "$0")
here=$(CDPATH='' cd -- "$(dirname -- "$self")" && pwd)
say() { printf 'run.sh: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

goal=train_gpt
[ "${1:-}" != test ] || goal='test'

# ------------------------------------------------------------------------------------------------------ what is missing
compiler='' ninja=''            # words to install, in Debian's names
if [ -n "${CXX:-}" ]; then
    have "${CXX%% *}" || { say "CXX=$CXX: not found; leave CXX unset or install it"; exit 1; }
else
    have g++ || have clang++ || compiler=g++
fi
have ninja || ninja='ninja-build'
missing=$(printf '%s' "$compiler $ninja" | sed 's/^ *//; s/ *$//')

# Prints the line that installs $missing with this machine's package manager.
install_line() {
    sudo=
    [ "$(id -u)" -eq 0 ] || sudo='sudo '
    if have apt-get; then echo "${sudo}apt-get update && ${sudo}apt-get install -y $missing"
    elif have dnf; then echo "${sudo}dnf install -y $(echo "$missing" | sed 's/g++/gcc-c++/')"
    elif have pacman; then echo "${sudo}pacman -S --needed $(echo "$missing" | sed 's/g++/gcc/; s/ninja-build/ninja/')"
    elif have zypper; then
        echo "${sudo}zypper install -y $(echo "$missing" | sed 's/g++/gcc-c++/; s/ninja-build/ninja/')"
    elif have apk; then
        echo "${sudo}apk add $(echo "$missing" | sed 's/g++/g++ linux-headers/; s/ninja-build/ninja-is-really-ninja/')"
    else echo "(with this system's package manager) $missing"
    fi
}

# apt_install PACKAGE...: quiet unless it fails.
apt_install() {
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    if { apt-get update && apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; then
        rm -f "$log"
    else
        tail -n 5 "$log" >&2
        rm -f "$log"
        return 1
    fi
}

if [ -n "$missing" ]; then
    if [ "$(id -u)" -eq 0 ] && have apt-get; then
        say "installing $missing (apt-get)"
        apt_install $missing || { say "could not install $missing; try: $(install_line)"; exit 1; }
    else
        say "missing: $missing; install with:"
        install_line
        exit 1
    fi
fi

# What only some tests use: a launcher, and ip for networks of their own. Without it those tests say SKIP.
if [ $goal = test ]; then
    extras=
    mpirun --version 2>&1 | grep -q 'Open MPI' || extras=openmpi-bin
    have ip || extras="$extras iproute2"
    if [ -n "$extras" ] && [ "$(id -u)" -eq 0 ] && have apt-get; then
        say "installing $extras (apt-get), which some tests use"
        apt_install $extras || say 'not installed: tests that need them will be skipped'
    elif [ -n "$extras" ]; then
        say "not here: $extras; tests that need them will be skipped"
    fi
fi

# --------------------------------------------------------------------------------------------------------------- build
config="$here/build/config.ninja"
if [ ! -f "$config" ] || [ -n "$(find "$here/configure" -newer "$config")" ] || [ -n "${CXX:-}" ]; then
    mkdir -p "$here/build"
    "$here/configure" >"$here/build/run.log" 2>&1 || { cat "$here/build/run.log" >&2; exit 1; }
fi

if [ $goal = test ]; then
    shift
    exec ninja -C "$here" test "$@"
fi

if ! ninja -C "$here" -n 2>/dev/null | grep -q 'no work to do'; then
    say 'building train_gpt ...'
    start=$(date +%s)
    ninja -C "$here" >"$here/build/run.log" 2>&1 || { cat "$here/build/run.log" >&2; say 'the build failed'; exit 1; }
    say "built in $(($(date +%s) - start)) s"
fi
exec "$here/train_gpt" "$@"         # where the caller is: paths among the options mean what they say
