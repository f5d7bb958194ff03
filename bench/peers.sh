#!/bin/sh
# peers.sh -- Lockstep beside PyTorch on this machine's CPU, in turns in one run: bench/peers.py says what is compared.
#   bench/peers.sh [nano|64|1024] [options of peers.py]     without a size: nano and 64
# PYTHON=FILE names a Python with torch; else build/peers-venv is made and torch installed into it, where there is a
# network.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-build/peers-venv/bin/python}
if ! "$python" -c 'import torch' 2>/dev/null; then
    [ -z "${PYTHON:-}" ] || { echo "SKIP peers: $PYTHON has no torch"; exit 0; }
    echo 'installing torch into build/peers-venv'
    { python3 -m venv build/peers-venv && build/peers-venv/bin/pip install -q torch numpy
        } >build/peers-venv.log 2>&1 ||
        { echo "SKIP peers: no torch: $(tail -n 1 build/peers-venv.log)"; rm -rf build/peers-venv; exit 0; }
fi
case ${1:-} in
    nano|64|1024) exec "$python" bench/peers.py "$@" ;;
    *) for size in nano 64; do "$python" bench/peers.py $size "$@"; done ;;
esac
