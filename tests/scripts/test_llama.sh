#!/bin/sh
# test_llama.sh -- whole runs of the Llama family: the same bytes for any number of ranks, resume, and every command, on
# CPUs; what its config.json may say.
. tests/lib.sh
tools=${TOOLS:-build}
job="--layers 2 --heads 4 --kv-heads 2 --channels 32 --mlp-size 48 --seq-len 16 --batch-size 2 --total-batch-size 256
    --replicas 8 --data tests/golden/lines.txt --warmup-steps 2 --lr 1e-2 --eval-every 4 --eval-steps 2
    --audit-every 3 --sample-every 0"

all_of llama 8 "$train" --model llama --device cpu --dtype fp32 --threads 1 --untied-head 1 --rope-factor 8
all_of qwen3 8 "$train" --model qwen3 --device cpu --dtype bf16 --threads 1 --head-size 24

llama=$tmp/llama-one
job="$job --steps 8 --save-every 4 --model llama --device cpu --dtype fp32 --untied-head 1 --rope-factor 8"
check "two threads" run threads "$train" --threads 2
check "give the same bytes as one" same "$llama" "$tmp/threads"
check "--np 8" run eight "$train" --threads 1 --np 8
check "gives the same bytes" same "$llama" "$tmp/eight"
for level in 1 2 3; do
    check "--recompute $level" run recompute-$level "$train" --threads 1 --recompute $level
    check "gives the same bytes" same "$llama" "$tmp/recompute-$level"
done
check "Muon trains" run muon "$train" --threads 1 --optimizer muon
expect "sample" 0 '.' "$train" sample "$llama" --prompt "The " --max-tokens 40
expect "eval" 0 '^val loss' "$train" eval "$llama"
expect "eval of shorter windows" 0 '^val loss' "$train" eval "$llama" --seq-len 8
expect "longer ones count as the context" 0 "$("$train" eval "$llama")" "$train" eval "$llama" --seq-len 64
expect "info" 0 'Llama' "$tools/info" "$llama/ckpt/step_00000008"
for preset in llama-124m smollm2-135m smollm2-360m llama3.2-1b qwen2.5-0.5b qwen3-0.6b; do
    expect "dry run of $preset" 0 'predicted' "$train" --preset $preset --dry-run --for 8xh100
done
expect "an option of another model" 2 'dropout' "$train" --model llama --dropout 0.1 --dry-run
expect "heads that do not divide" 2 'kv-heads' "$train" --model llama --heads 4 --kv-heads 3 --dry-run
expect "a head that no kernel takes" 2 'head-size' "$train" --model llama --head-size 12 --dry-run

# ---- files
init="--data tests/golden/lines.txt --batch-size 2 --total-batch-size 64 --steps 2 --eval-every 0 --sample-every 0"
expect "export --hf" 0 '.' "$tools/export" "$llama" --hf "$tmp/hf"
expect "from which another run begins" 0 '^done ' "$train" --init "$tmp/hf" $init --out-dir "$tmp/init"
# Whatever config.json says, a lm_head.weight with other numbers than the embedding is a tensor of its own.
cp -r "$tmp/hf" "$tmp/tied" && sed -i 's/\("tie_word_embeddings": \)false/\1true/' "$tmp/tied/config.json"
expect "a head that config.json denies is said" 0 'tied: lm_head.weight has other numbers' \
    "$train" eval "$tmp/tied" --data tests/golden/lines.txt
as_said() {         # NAME OPTIONS: training with it is training with the folder that says so
    for from in hf tied; do
        "$train" --init "$tmp/$from" $init --dtype fp32 ${2:-} --out-dir "$tmp/$1-$from" >"$tmp/said" 2>&1 || return 1
    done
    [ "$(grep -c 'lm_head.weight has' "$tmp/said")" = 1 ] && same "$tmp/$1-hf" "$tmp/$1-tied"
}
check "and trained" as_said whole
check "by two ranks" as_said ranks "--np 2"
check "and trained beside" as_said beside "--lora 8"
text="--data tests/golden/lines.txt --dtype fp32"
kept() {
    "$tools/export" "$tmp/tied" --hf "$tmp/told" --gguf "$tmp/told.gguf" --type f32 &&
        grep '"tie_word_embeddings": false' "$tmp/told/config.json" &&
        [ "$("$train" eval "$tmp/told.gguf" $text)" = "$("$train" eval "$tmp/hf" $text)" ]
}
check "and exported" kept
cp -r tests/golden/gpt2_tiny "$tmp/gpt2" && mv "$tmp/gpt2/model.safetensors" "$tmp/gpt2/body.safetensors"
head='{"lm_head.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}'
printf "\\$(printf %o ${#head})\0\0\0\0\0\0\0%s\0\0\0\0" "$head" >"$tmp/gpt2/head.safetensors"
echo '{"weight_map":{"lm_head.weight":"head.safetensors","h":"body.safetensors"}}' \
    >"$tmp/gpt2/model.safetensors.index.json"
expect "GPT-2 has none" 65 'error: .*gpt2/config.json: tie_word_embeddings: got false, want true' \
    "$train" eval "$tmp/gpt2" $text

refused() {         # NAME FIELD SED: config.json changed so
    cp -r "$tmp/hf" "$tmp/bad" && sed -i "$3" "$tmp/bad/config.json"
    expect "$1" 65 "$2" "$train" --init "$tmp/bad" $init --out-dir "$tmp/none"
    rm -rf "$tmp/bad"
}
refused "an unknown rope type" 'rope_type: got "yarn"' 's/"llama3"/"yarn"/'
refused "a sliding window" 'layer_types' '2s/^/"layer_types": ["full_attention", "sliding_attention"],/'
refused "experts" 'num_local_experts' '2s/^/"num_local_experts": 8,/'
refused "an activation" 'hidden_act' 's/"silu"/"gelu"/'
refused "biases" 'attention_bias' 's/"attention_bias": false/"attention_bias": true/'
refused "quantized weights" 'quantization_config' '2s/^/"quantization_config": {},/'
refused "part of a head turned" 'partial_rotary_factor: got 0.5' '2s/^/"partial_rotary_factor": 0.5,/'
refused "another family" 'model_type: got "mistral"' 's/"llama"/"mistral"/'
expect "a part of a scaling without its factor" 2 'rope-factor' "$train" --model llama --rope-context 4096 --dry-run
refused "a wrong shape" 'tensor model.layers.0.mlp.gate_proj.weight: shape' \
    's/"intermediate_size": 48/"intermediate_size": 40/'

summary
