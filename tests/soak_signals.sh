#!/bin/sh
# soak_signals.sh -- runs tests/soak_signals.py, which says what it does; SKIP without Python.
. tests/lib.sh
find_python json "soak_signals"
TRAIN_GPT=$train "$python" tests/soak_signals.py
