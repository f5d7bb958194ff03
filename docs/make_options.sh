#!/bin/sh
# make_options.sh -- writes docs/options.md from the program itself: `train_gpt --help` and the presets' defaults.
#   docs/make_options.sh > docs/options.md        tests/scripts/test_cli.sh fails when the file is not what this prints
set -eu
cd "$(dirname "$0")/.."
train=${TRAIN_GPT:-./train_gpt}
cat <<'END'
# Options

Written by `docs/make_options.sh` from `train_gpt --help`; one table in `src/options/options.cpp` drives the parser, this page and
the saved config.

```
END
$train --help | sed '1d' | sed '1{/^$/d}'
echo '```'
echo
echo '## Presets'
echo
presets=$($train --help | sed -n 's/^  --preset \([^ ]*\).*/\1/p' | tr '|' ' ')
options="model layers heads channels seq-len batch-size total-batch-size steps lr warmup-steps final-lr-frac weight-decay beta2"
# The default of an option: the first "(default X)" from its line on, and before the next option.
value() {
    $train --help --preset "$1" | awk -v o="--$2" '
        /^  --/ { found = $1 == o }
        found && match($0, /\(default [^)]*\)/) { print substr($0, RSTART + 9, RLENGTH - 10); exit }'
}
row() { printf '| %s |' "$1"; shift; for cell; do printf ' %s |' "$cell"; done; echo; }
row option $presets
row --- $(for p in $presets; do echo ---; done)
for o in $options grad-clip dropout; do
    printf '| `--%s` |' "$o"; for p in $presets; do printf ' %s |' "$(value "$p" "$o")"; done; echo
done
