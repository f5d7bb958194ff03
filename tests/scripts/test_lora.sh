#!/bin/sh
# test_lora.sh -- whole runs with --lora on CPUs: the same bytes for any ranks, every command, what is refused.
. tests/cases.sh
tools=${TOOLS:-build}
text="$on_lines"
begin() {           # NAME OPTIONS...: a model to adapt
    of=$1; shift
    check "a $of to begin with" $train $text --layers 2 --channels 32 --seq-len 16 --batch-size 2 --sample-every 0 \
        --eval-every 0 --total-batch-size 128 --steps 60 --save-every 60 --warmup-steps 2 --lr 1e-2 \
        --out-dir "$tmp/$of-run" "$@"
    check "its folder" $tools/export "$tmp/$of-run" --hf "$tmp/$of"
}
begin gpt2 --model gpt2 --heads 2
begin qwen3 --model qwen3 --heads 4 --kv-heads 2 --mlp-size 48
begin lstm --model lstm
batch="--data tests/golden/layouts.txt --sample-every 0 --batch-size 2 --total-batch-size 256 --replicas 8"
of_all="$batch --warmup-steps 2 --lr 5e-2 --eval-every 4 --eval-steps 2 --audit-every 3"

job=$of_all
all_of gpt2-lora 8 "$train --init $tmp/gpt2 --lora 8" --device cpu --dtype fp32 --threads 1
all_of qwen3-lora 8 "$train --init $tmp/qwen3 --lora 16" --device cpu --dtype bf16 --threads 1 --lora-alpha 8
all_of lstm-lora 8 "$train --init $tmp/lstm --lora 8" --device cpu --dtype fp32 --threads 1

lora=$tmp/gpt2-lora-one adapt="$train --init $tmp/gpt2"
job="$of_all --steps 8 --save-every 4 --device cpu --dtype fp32"
ln -s gpt2-lora-one "$tmp/one"
like_one "--np 8 gives the same bytes" $adapt --lora 8 --threads 1 --np 8
like_one "--recompute 3 gives the same bytes" $adapt --lora 8 --threads 2 --recompute 3
check "Muon trains" run muon $adapt --lora 8 --lora-targets c_attn --optimizer muon
expect "sample" 0 '.' "$train" sample "$lora" --max-tokens 20
expect "eval" 0 '^val loss' "$train" eval "$lora"
expect "adapters on their own" 0 'folder of PEFT' "$tools/export" "$lora" --hf "$tmp/adapter"
expect "a whole model" 0 'Hugging Face folder' "$tools/export" "$lora" --merge --hf "$tmp/merged"
scores_as_the_run() { [ "$($train eval "$1" $text --dtype fp32)" = "$($train eval "$lora" $text)" ]; }
check "the adapters are the run's" scores_as_the_run "$tmp/adapter"
check "so is the whole model" scores_as_the_run "$tmp/merged"
control() { ! scores_as_the_run "$tmp/gpt2"; }
check "and without them it is another" control
expect "export --gguf" 0 'bytes' "$tools/export" "$lora" --gguf "$tmp/one.gguf"
expect "fine-tuning of the sum" 0 '^done ' "$train" --init "$lora" $of_all --steps 2 --out-dir "$tmp/sum"
expect "a dry run" 0 'frozen' "$train" --init "$tmp/gpt2" --lora 8 $of_all --dry-run

# ---- what is refused
few="$of_all --steps 2" out="--out-dir $tmp/none"
cases $train $few <<'END'
a rank above the width ~ 2 ~ at most 32, the width of ~ $out --init "$tmp/gpt2" --lora 40
a rank that no product takes ~ 2 ~ multiple of 8 ~ $out --init "$tmp/gpt2" --lora 12
no model to adapt ~ 2 ~ want --init ~ $out --lora 8
an adapter of an adapter ~ 2 ~ build/export --merge ~ $out --init "$lora" --lora 8
a part of one matrix ~ 2 ~ k_proj,v_proj together ~ $out --init "$tmp/qwen3" --lora 8 --lora-targets q_proj,v_proj
a matrix that is not there ~ 2 ~ names of c_attn, c_proj ~ $out --init "$tmp/gpt2" --lora 8 --lora-targets c_atn
END
expect "another rank on a resume" 2 '--lora: got 16' "$train" --resume "$lora" --lora 16
# NAME|what is said|what sed makes of adapter_config.json
while IFS='|' read -r name said change; do
    rm -rf "$tmp/bad" && cp -r "$tmp/adapter" "$tmp/bad" && sed -i "$change" "$tmp/bad/adapter_config.json"
    expect "$name" 65 "$said" $train eval "$tmp/bad" $text
done <<END
another kind of adapter|peft_type: got "IA3"|s/"LORA"/"IA3"/
DoRA|use_dora: got true.*python3 data/torch_model.py|s/^{/{"use_dora": true, /
ranks of their own|rank_pattern|s/^{/{"rank_pattern": {"c_attn": 4}, /
another rank than the file's|shape|s/"r":8/"r":16/
an adapter of another base|tensor|s,$tmp/gpt2,$tmp/qwen3,
an adapter that changes the base|init_lora_weights: got "pissa"|s/^{/{"init_lora_weights": "pissa", /
a rank beyond memory|lora_A.weight: shape|s/"r":8/"r":1048576/
a scale that is none|lora_alpha|s/"lora_alpha":16/"lora_alpha":1e300/
an adapter of itself|base_model_name_or_path: got the adapter|s,$tmp/gpt2,$tmp/bad,
END
check "a shorter context" $adapt --lora 8 $few --seq-len 8 --out-dir "$tmp/short"
short() { [ "$($train eval "$tmp/short" $text)" = "$($train eval "$tmp/short" $text --seq-len 8)" ]; }
check "stays the run's" short
check "a tokenizer of more tokens" $train $text --tokenizer bpe:300 --layers 1 --heads 2 --channels 32 --seq-len 16 \
    --steps 1 --save-every 1 $mute --out-dir "$tmp/more"
cp -r "$tmp/gpt2" "$tmp/large" && cp "$tmp/more/ckpt/step_00000001/tokenizer.json" "$tmp/large"
expect "than the model has is refused" 65 'got 300 tokens' "$train" sample "$tmp/large" --max-tokens 4
sed -i 's/"n_head": 2/"n_head": 4/' "$tmp/gpt2/config.json"
expect "a base with more heads than it had" 65 'have changed since' "$train" eval "$lora" $text
sed -i 's/"n_head": 4/"n_head": 2/' "$tmp/gpt2/config.json"
mv "$tmp/gpt2" "$tmp/kept"
expect "a base that has gone" 66 "no model: $tmp/gpt2" "$train" eval "$lora" $text
expect "also on a resume" 66 "no model: $tmp/gpt2" "$train" --resume "$lora" --steps 9
cp -r "$tmp/merged" "$tmp/gpt2"
expect "other weights in its place" 65 'its weights have changed since' "$train" eval "$lora" $text
expect "also on a resume" 65 'its weights have changed since' "$train" --resume "$lora" --steps 9
rm -rf "$tmp/gpt2" && mv "$tmp/kept" "$tmp/gpt2"
expect "they find it again" 0 '^done ' "$train" --resume "$lora" --steps 9
summary
