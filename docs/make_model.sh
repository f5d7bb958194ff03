#!/bin/sh
# make_model.sh -- writes what build/bench/model predicts, and how far it is off, into docs/performance.md, between
# "<!-- model" and "<!-- end of model". Of the presets it leaves out the small Llamas and Qwens.
#   docs/make_model.sh          tests/scripts/test_model.sh fails when the page is not what this writes
set -eu
cd "$(dirname "$0")/.."
page=${1:-docs/performance.md}
model=${TOOLS:-build}/bench/model
{
    $model --check
    echo
    $model | grep -vE '^\| (llama-124m|smollm2-[0-9a-z]*|qwen[0-9.]*-[0-9.]*b) \|'
} | bench/put.sh "$page" model
