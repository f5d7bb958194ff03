#!/bin/sh
# test_learn.sh -- tests/scripts/test_learn.sh with 400 random jobs, and with each rule of sums changed in turn.
# slow
LEARN_JOBS=${LEARN_JOBS:-400} LEARN_RULES=all exec sh tests/scripts/test_learn.sh
