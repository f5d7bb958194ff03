#!/bin/sh
# peers.sh -- Lockstep beside PyTorch and llm.c on this machine's CPU, in turns in one run: bench/peers.py says what is
# compared.
#   bench/peers.sh [nano|64|1024|llama|llama-1024] [options of peers.py]     without a size: nano, 64 and llama
# PYTHON=FILE names a Python with torch and transformers; else build/peers-venv is made and both are installed into it,
# where there is a network. LLMC=DIR names a folder of llm.c with its train_gpt2 built; else build/llm.c is fetched and
# built for size 64.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-build/peers-venv/bin/python}
if ! "$python" -c 'import torch' 2>/dev/null; then
    [ -z "${PYTHON:-}" ] || { echo "SKIP peers: $PYTHON has no torch"; exit 0; }
    echo 'installing torch and transformers into build/peers-venv'
    { python3 -m venv build/peers-venv && build/peers-venv/bin/pip install -q torch numpy transformers
        } >build/peers-venv.log 2>&1 ||
        { echo "SKIP peers: no torch: $(tail -n 1 build/peers-venv.log)"; rm -rf build/peers-venv; exit 0; }
fi

# Prints the folder of llm.c, of the last commit that was compared.
find_llmc() {
    [ -z "${LLMC:-}" ] || { echo "$LLMC"; return; }
    commit=f1e2ace651495b74ae22d45d1723443fd00ecd3a
    if [ ! -x build/llm.c/train_gpt2 ]; then
        rm -rf build/llm.c
        { git init -q build/llm.c && cd build/llm.c &&
            git fetch -q --depth 1 https://github.com/karpathy/llm.c $commit && git checkout -q FETCH_HEAD &&
            make train_gpt2; } >build/llm.c.log 2>&1 || return 1
    fi
    echo build/llm.c
}
compare() {
    size=$1; shift
    llmc=
    case $size in 64) llmc=$(find_llmc) || echo "SKIP llm.c: $(tail -n 1 build/llm.c.log)" ;; esac
    [ -z "$llmc" ] || [ -x "$llmc/train_gpt2" ] || { echo "SKIP llm.c: no $llmc/train_gpt2"; llmc=; }
    "$python" bench/peers.py "$size" ${llmc:+--llmc "$llmc"} "$@"
}
case ${1:-} in
    nano|64|1024|llama|llama-1024) compare "$@" ;;
    *) for size in nano 64 llama; do compare $size "$@"; done ;;
esac
