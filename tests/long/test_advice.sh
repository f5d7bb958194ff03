#!/bin/sh
# test_advice.sh -- where train_gpt says which command makes something readable, that command is run, and what it makes
# is read: models of other programs by their loss, tables and tokens by their text.
. tests/lib.sh
find_python "torch, transformers, numpy" "advice about models"
PATH=$(dirname "$(command -v "$python")"):$PATH
loss_of() { $train eval "$1" --dtype fp32 --data "$base/tokens.npy"; }
# follow FOLDER: what is said of it is done. $into is where a model then is.
follow() {
    into=$1
    loss_of "$1" >"$tmp/said" 2>&1 && return
    way=$(sed -n 's/.*; \(give\|python3\|accelerate\|litgpt\) /\1 /p' "$tmp/said" | sed 's/ makes .*//')
    case $way in
        give*) into=${way#give }; return ;;
        *ADAPTER*) way="python3 data/torch_model.py $1 $1-hf" ;;
        "") cat "$tmp/said"; return 1 ;;
    esac
    sh -c "$(echo "$way" | sed "s,CONFIG,$base,; s,python3 ,$python ,g")" >"$tmp/way" 2>&1 ||
        { tail -n 3 "$tmp/way"; return 1; }
    [ ! -d "$1-hf" ] || into=$1-hf
}
# way FOLDER WANT: it is not read; after one command or two it has the loss of WANT.
way() {
    ! loss_of "$1" >"$tmp/said" 2>&1 && follow "$1" && follow "$into" || return 1
    [ "$(loss_of "$into")" = "$(loss_of "$2")" ] || { loss_of "$into"; loss_of "$2"; return 1; }
}
for row in feather:jsonl parquet:jsonl arrow:jsonl npz:npy pt:npy bin:u16.bin; do
    kind=${row%:*} file=$tmp/file.${row%:*} into=$tmp/$kind.${row#*:}
    made "data: $kind" "$python" tests/check_advice.py data $kind "$file" || continue
    read_it="$train --layers 1 --heads 1 --channels 16 --seq-len 8 --batch-size 1 --total-batch-size 8 --steps 1"
    expect "$kind is not read" 65 ' makes it' $read_it --out-dir "$tmp/none" --data "$file"
    cp "$tmp/expect.log" "$tmp/said"
    check "what is said of $kind" "$python" tests/check_advice.py obey "$tmp/said" "$file" "$into"
    expect "makes a file that is read" 0 '^done ' $read_it --out-dir "$tmp/$kind" --data "$into"
done
for kind in gpt2 llama; do
    base=$tmp/$kind
    mkdir "$base"
    made $kind "$python" tests/check_transformers.py make $kind "$base" || continue
    forms="trainer hub lightning pickle pickles torch_file fsdp shards deepspeed grown dora embedding"
    # saved: a head of its own, which GPT-2 has not
    case $kind in gpt2) forms="$forms nanogpt nanogpt_bare" ;; *) forms="$forms litgpt saved" ;; esac
    for form in $forms; do
        mkdir "$base-$form"
        made "$kind: $form" "$python" tests/check_advice.py $form "$base" "$base-$form" || continue
        want=$base-$form-want
        [ -d "$want" ] || want=$base
        check "$kind: the way from $form" way "$base-$form" "$want"
    done
done
summary
