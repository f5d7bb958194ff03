#!/bin/sh
# test_export.sh -- build/export killed before any of its calls leaves no torn file, and the next one removes the rest.
. tests/cases.sh
preloads export
export=${TOOLS:-build}/export
job="--heads 1 --channels 16 --seq-len 16 --batch-size 1 --total-batch-size 16 $on_lines $mute"
check "a run to export" run run $train --layers 1 --steps 1
[ "$failed" -eq 0 ] || give_up
# to FOLDER: the options of an export into it.
to_hf() { echo "--hf $1/hf"; }
to_gguf() { echo "--gguf $1/m.gguf"; }
to_llmc() { echo "--llmc $1/m.bin"; }
contents() { (cd "$1" && find . -type f | sort | xargs sha256sum); }
whole() { case $2 in hf) [ -e "$1/hf/config.json" ] ;; gguf) [ -e "$1/m.gguf" ] ;; *) [ -e "$1/m.bin" ] ;; esac; }
# killed FORMAT CALL K: by the K-th call; fails with the reason, or with "done" if there are not so many.
killed() {
    at=$tmp/killed
    rm -rf "$at" && mkdir "$at" && echo mine >"$at/mine.gguf.export"
    LD_PRELOAD=$tmp/fail.so FAIL_CALL=$2 FAIL_AT=$3 FAIL_ERRNO=0 $export "$tmp/run" $(to_$1 "$at") >"$tmp/log" 2>&1
    case $? in
    0) echo "done"; return 1 ;;
    137) ;;
    *) grep -q 'import: was killed by signal 9' "$tmp/log" || { cat "$tmp/log"; return 1; } ;;     # what export asks
    esac
    if whole "$at" $1; then
        $export "$tmp/run" $(to_$1 "$at") >"$tmp/log" 2>&1
        [ $? -eq 2 ] || { echo "it is there, and is not refused"; return 1; }
    else
        (cd "$at" && find . -type f ! -path '*/.*.export/*' ! -path '*/.export/*' -exec sha256sum {} +) >"$tmp/there"
        ! grep -vFf "$tmp/$1.want" "$tmp/there" || { echo "a file that is not whole"; return 1; }
        $export "$tmp/run" $(to_$1 "$at") >"$tmp/log" 2>&1 || { cat "$tmp/log"; return 1; }
    fi
    contents "$at" | cmp - "$tmp/$1.want" || { echo "other files: $(ls -A "$at")"; return 1; }
}
for format in hf gguf llmc; do
    mkdir "$tmp/$format" && echo mine >"$tmp/$format/mine.gguf.export"
    check "export --$format" $export "$tmp/run" $(to_$format "$tmp/$format")
    contents "$tmp/$format" >"$tmp/$format.want"
    check "nothing but that is left" test -z "$(find "$tmp/$format" -name '.*')"
    for call in open write fsync close rename; do
        k=1
        while why=$(killed $format $call $k); do k=$((k + 1)); done
        case $why in
        "done") [ $k -gt 1 ] && ok "killed at each $call: $((k - 1))" || fail "killed at each $call" "none" ;;
        *) fail "killed at $call $k" "$(echo "$why" | tr '\n' '|')" ;;
        esac
    done
    # Two at once: the first waits before its last step, the other must not touch its files.
    mkdir "$tmp/both" && echo mine >"$tmp/both/mine.gguf.export" && : >"$tmp/hold"
    LD_PRELOAD=$tmp/fail.so FAIL_CALL=rename FAIL_AT=1 FAIL_HOLD=$tmp/hold $export "$tmp/run" \
        $(to_$format "$tmp/both") >"$tmp/first.log" 2>&1 &
    first=$!
    await test -e "$tmp/hold.held"
    expect "two at once" 74 'unfinished export is in use: .*by process' $export "$tmp/run" $(to_$format "$tmp/both")
    rm "$tmp/hold"
    check "the first ends" wait $first
    contents "$tmp/both" >"$tmp/both.got"
    check "with whole files" cmp "$tmp/both.got" "$tmp/$format.want"
    rm -rf "$tmp/both" "$tmp/hold.held"
done

mkdir "$tmp/full"
echo mine >"$tmp/full/notes.txt"
expect "a folder with somebody's file" 2 'notes.txt: it exists' $export "$tmp/run" --hf "$tmp/full"
check "which is still there" grep -q mine "$tmp/full/notes.txt"
mkdir "$tmp/empty"
ln -s empty "$tmp/link"
expect "an empty folder by a link" 0 'Hugging Face' $export "$tmp/run" --hf "$tmp/link"
check "is filled" test -s "$tmp/empty/model.safetensors"
echo mine >"$tmp/one.gguf.Modelfile"
expect "somebody's Modelfile" 2 'Modelfile: it exists' $export "$tmp/run" --gguf "$tmp/one.gguf"
check "stays" grep -q mine "$tmp/one.gguf.Modelfile"

# An average: each value is the sum in double in the order given, divided once.
check "a run with three checkpoints" run three $train --layers 1 --steps 3 --lr 0.1 --save-every 1 --keep 0
step=$tmp/three/ckpt/step_0000000
expect "--average" 0 'Hugging Face' $export --average ${step}1 ${step}2 ${step}3 --hf "$tmp/mean"
cat >"$tmp/mean.py" <<'END'
import array, json, sys
def read(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + length]), array.array("f", data[8 + length:])
(head, got), *models = [read(folder) for folder in sys.argv[1:]]
assert all(model[0] == head for model in models), "other tensors"
for i, value in enumerate(got):
    total = 0.0
    for _, values in models:
        total += values[i]
    want = array.array("f", [total / len(models)])[0]
    assert value == want, f"{i}: got {value}, want {want}"
assert got != models[-1][1], "the average is the last one"
END
if command -v python3 >/dev/null; then
    check "is the mean of each weight" python3 "$tmp/mean.py" "$tmp/mean" ${step}1 ${step}2 ${step}3
else skip "is the mean of each weight" "no python3"; fi
expect "and a model" 0 '^val loss' $train eval "$tmp/mean" $on_lines
expect "--average of the same twice" 0 'Hugging Face' $export --average ${step}2 ${step}2 --hf "$tmp/twice"
check "is that one" cmp "$tmp/twice/model.safetensors" ${step}2/model.safetensors
check "a run of two layers" run deeper $train --layers 2 --steps 1
expect "--average with another shape" 2 'deeper: --layers: got 2, want 1' \
    $export --average ${step}1 "$tmp/deeper" --hf "$tmp/none"
check "writes nothing" test ! -e "$tmp/none"
expect "--average of one" 2 'got 1 folders, want several' $export --average ${step}1 --hf "$tmp/none"
summary
