#!/bin/sh
# test_learn.sh -- tests/scripts/test_learn.sh with 60 random jobs, and with each rule of sums changed in turn.
# slow
LEARN_JOBS=${LEARN_JOBS:-60} LEARN_RULES=all exec sh tests/scripts/test_learn.sh
