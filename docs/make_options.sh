#!/bin/sh
# make_options.sh -- writes docs/options.md from the program itself: `train_gpt --help` and the presets' defaults.
#   docs/make_options.sh > docs/options.md        tests/test_cli.sh fails when the file is not what this prints
set -eu
cd "$(dirname "$0")/.."
train=${TRAIN_GPT:-./train_gpt}
echo '# Options'
echo
echo 'Written by `docs/make_options.sh` from `train_gpt --help`; one table in `src/options.cpp` drives the parser, this page and the saved config.'
echo
echo '```'
$train --help | sed '1d' | sed '1{/^$/d}'
echo '```'
echo
echo '## Presets'
echo
presets='nano small gpt2-124m gpt2-350m gpt2-774m gpt2-1558m'
# The default of an option: the first "(default X)" from its line on.
value() { $train --help --preset "$1" | awk -v o="--$2" '/^  --/ && $1 == o { found = 1 } found && match($0, /\(default [^)]*\)/) { print substr($0, RSTART + 9, RLENGTH - 10); exit }'; }
printf '| option |'; for p in $presets; do printf ' %s |' "$p"; done; echo
printf '|---|'; for p in $presets; do printf '%s' '---|'; done; echo
for o in layers heads channels seq-len batch-size total-batch-size steps lr warmup-steps final-lr-frac weight-decay beta2 grad-clip dropout; do
    printf '| `--%s` |' "$o"; for p in $presets; do printf ' %s |' "$(value "$p" "$o")"; done; echo
done
