#!/bin/sh
# test_models.sh -- whole runs of LSTMs and Llamas on CPUs: every command, heads, what is refused.
. tests/cases.sh
tools=${TOOLS:-build}
lines=tests/golden/lines.txt
shape="--device cpu --dtype fp32 --layers 2 --channels 32 --seq-len 16 --batch-size 2 --total-batch-size 256 $on_lines"
all="$shape --steps 8 --save-every 4 --warmup-steps 2 --lr 1e-2 --eval-every 4 --eval-steps 2 --audit-every 3"
init="--data $lines --dtype fp32 --batch-size 2 --total-batch-size 64 --steps 2 $mute"
lstm=$tmp/lstm llama=$tmp/llama

job="$all --model lstm --replicas 4 --sample-every 4"
check "an LSTM trains" run lstm $train --threads 1
check "its samples are in the log" test "$(grep -c '"event":"sample"' "$lstm/metrics.jsonl")" -eq 2
ln -s lstm "$tmp/one" && like_one "two threads give the LSTM's bytes" $train --threads 2 && rm "$tmp/one"
check "dropout trains" run dropout $train --dropout 0.1
check "Muon trains an LSTM" run muon $train --threads 1 --optimizer muon
# Both begin alike, since they have the same first weights and data, and have as many steps; then they differ.
other() {
    losses "$1" >"$tmp/a.losses"
    losses "$2" >"$tmp/b.losses"
    [ -s "$tmp/a.losses" ] && [ "$(head -n 1 "$tmp/a.losses")" = "$(head -n 1 "$tmp/b.losses")" ] &&
        [ "$(wc -l <"$tmp/a.losses")" = "$(wc -l <"$tmp/b.losses")" ] && ! cmp -s "$tmp/a.losses" "$tmp/b.losses"
}
check "its matrices otherwise than AdamW does" other "$lstm" "$tmp/muon"

grouped="--model llama --heads 4 --kv-heads 2 --mlp-size 48 --untied-head 1 --rope-factor 8"
job="$all $grouped --replicas 8 --sample-every 0"
check "a Llama trains" run llama $train --threads 1
ln -s llama "$tmp/one"
for how in "--threads 2" "--np 8" "--recompute 1" "--recompute 2" "--recompute 3"; do
    like_one "$how gives the Llama's bytes" $train $how
done
check "Muon trains a Llama" run muon2 $train --threads 1 --optimizer muon

job="$all --model mistral --heads 4 --kv-heads 2 --mlp-size 48 --window 5 --replicas 8 --sample-every 0"
check "a Mistral trains" run mistral $train --threads 1
rm "$tmp/one" && ln -s mistral "$tmp/one"
for how in "--threads 2" "--np 4" "--recompute 1" "--recompute 2" "--recompute 3"; do
    like_one "$how gives the Mistral's bytes" $train $how
done

# ---- every command
for model in lstm llama mistral; do
    expect "export --hf of $model" 0 . "$tools/export" "$tmp/$model" --hf "$tmp/hf_$model"
    expect "info of $model" 0 "(LSTM|Llama|Mistral.*window 5,) " "$tools/info" "$tmp/$model/ckpt/step_00000008"
    cases $train <<END
from which another run begins ~ 0 ~ ^done ~ --init "$tmp/hf_$model" $init --out-dir "$tmp/init_$model"
sample of $model ~ 0 ~ . ~ sample "$tmp/$model" --prompt "The " --max-tokens 40
eval of $model ~ 0 ~ ^val loss ~ eval "$tmp/$model"
a dry run of $model ~ 0 ~ . ~ --model $model --dry-run
END
done
expect "a format without LSTMs" 2 'lstm' "$tools/export" "$lstm" --gguf "$tmp/x.gguf"
expect "a format without windows" 2 'mistral with --window 5 and --seq-len 16: llama.cpp has no windows for llama' \
    "$tools/export" "$tmp/mistral" --gguf "$tmp/x.gguf"
sed 's/"sliding_window": 5/"sliding_window": 16/' "$tmp/hf_mistral/config.json" >"$tmp/config.json"
cp -r "$tmp/hf_mistral" "$tmp/whole" && cp "$tmp/config.json" "$tmp/whole"
expect "one that leaves out nothing" 0 . "$tools/export" "$tmp/whole" --gguf "$tmp/whole.gguf" --type f32
score_of() { $train eval "$1" --data $lines --dtype fp32; }
check "is a Llama there" test "$(score_of "$tmp/whole")" = "$(score_of "$tmp/whole.gguf")"
longer=$($train eval "$llama")
for preset in llama-124m smollm2-135m smollm2-360m llama3.2-1b qwen2.5-0.5b qwen3-0.6b; do
    expect "dry run of $preset" 0 'predicted' $train --preset $preset --dry-run --for 8xh100
done
cases $train <<END
--help of its preset ~ 0 ~ lstm-nano ~ --help --model lstm
channels that no kernel takes ~ 2 ~ multiple of 8 ~ --model lstm --channels 12 --dry-run
a window that the kind has not ~ 2 ~ window.*mistral ~ --model llama --window 64 --dry-run
a window of no layer ~ 2 ~ window-from: got 2, want less ~ --model qwen2 --layers 2 --window 8 --window-from 2 --dry-run
layers without their window ~ 2 ~ window-from: got 1 ~ --model qwen3 --window-from 1 --dry-run
a part of a scaling without its factor ~ 2 ~ rope-factor ~ --model llama --rope-context 4096 --dry-run
eval of shorter windows ~ 0 ~ ^val loss ~ eval "$llama" --seq-len 8
longer ones count as the context ~ 0 ~ $longer ~ eval "$llama" --seq-len 64
END

# ---- a Llama's folder
# Whatever config.json says, a lm_head.weight with other numbers than the embedding is a tensor of its own.
hf=$tmp/hf_llama
cp -r "$hf" "$tmp/tied" && sed -i 's/\("tie_word_embeddings": \)false/\1true/' "$tmp/tied/config.json"
expect "a head that config.json denies is said" 0 'tied: lm_head.weight has other numbers' \
    $train eval "$tmp/tied" --data $lines
as_said() {         # NAME OPTIONS: training with it is training with the folder that says so
    for from in hf_llama tied; do
        $train --init "$tmp/$from" $init ${2:-} --out-dir "$tmp/$1-$from" >"$tmp/said" 2>&1 || return 1
    done
    [ "$(grep -c 'lm_head.weight has' "$tmp/said")" = 1 ] && same "$tmp/$1-hf_llama" "$tmp/$1-tied"
}
check "and trained" as_said whole
check "by two ranks" as_said ranks "--np 2"
check "and trained beside" as_said beside "--lora 8"
text="--data $lines --dtype fp32"
kept() {
    "$tools/export" "$tmp/tied" --hf "$tmp/told" --gguf "$tmp/told.gguf" --type f32 &&
        grep '"tie_word_embeddings": false' "$tmp/told/config.json" &&
        [ "$($train eval "$tmp/told.gguf" $text)" = "$($train eval "$hf" $text)" ]
}
check "and exported" kept
cp -r tests/golden/gpt2_tiny "$tmp/gpt2" && mv "$tmp/gpt2/model.safetensors" "$tmp/gpt2/body.safetensors"
head='{"lm_head.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}'
printf "\\$(printf %o ${#head})\0\0\0\0\0\0\0%s\0\0\0\0" "$head" >"$tmp/gpt2/head.safetensors"
echo '{"weight_map":{"lm_head.weight":"head.safetensors","h":"body.safetensors"}}' \
    >"$tmp/gpt2/model.safetensors.index.json"
expect "GPT-2 has none" 65 'error: .*gpt2/config.json: tie_word_embeddings: got false, want true' \
    $train eval "$tmp/gpt2" $text

bad() {             # NAME SAID SED: what is said of this config.json
    rm -rf "$tmp/bad" && cp -r "$hf" "$tmp/bad" && sed -i "$3" "$tmp/bad/config.json"
    expect "$1" 65 "$2" $train --init "$tmp/bad" $init --out-dir "$tmp/none"
}
bad "another family" 'model_type: got "gemma"' 's/"llama"/"gemma"/'
bad "a wrong shape" 'gate_proj.weight: shape' 's/"intermediate_size": 48/"intermediate_size": 40/'
summary
