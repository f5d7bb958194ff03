#!/bin/sh
# test_recipes.sh -- every recipe with --smoke: it ends, saves, and leaves what it promises; run again it goes on.
. tests/lib.sh
tools=${TOOLS:-build}

finished() { grep -q '"event":"done"' "$1/metrics.jsonl" && [ -f "$1/ckpt/$(cat "$1/ckpt/latest")/DONE" ]; }
# smoke NAME [/RUN]: the recipe with --smoke trains to the end, in the folder RUN of its own.
smoke() {
    out=$tmp/$1
    set -- "$1" "${2:-}"
    check "$1 --smoke" recipes/$1.sh --smoke "$out"
    check "$1: the run is finished" finished "$out$2"
    check "$1: the loss falls" falls "$out$2"
}
helps() {
    recipes/$1 --help >"$tmp/help" && grep -q "^$1 -- " "$tmp/help" && grep -qF 'OUT]' "$tmp/help" &&
        ! grep -qE '^(#|set )' "$tmp/help"
}
for recipe in recipes/*.sh recipes/*.sbatch; do check "${recipe#recipes/} --help" helps "${recipe#recipes/}"; done

smoke gpt2_124m_fineweb
check "gpt2_124m_fineweb: it trained in 8 replicas" grep -q '"replicas": 8' "$tmp/gpt2_124m_fineweb/config.json"
before=$(weights "$tmp/gpt2_124m_fineweb")
expect "run again it is finished" 0 '60 of 60 steps' recipes/gpt2_124m_fineweb.sh --smoke "$tmp/gpt2_124m_fineweb"
unchanged() { [ "$(weights "$tmp/gpt2_124m_fineweb")" = "$before" ]; }
check "and as it was" unchanged

smoke shakespeare_char
check "shakespeare_char: the best checkpoint" $train eval "$tmp/shakespeare_char/ckpt/best"

smoke lora /lora
expect "lora: an adapter for PEFT" 0 'LORA' cat "$tmp/lora/lora/adapter/adapter_config.json"
score() { $train eval "$1" --dtype fp32 --data "$2"; }
equal() { [ "$(score "$1" "$3")" = "$(score "$2" "$3")" ]; }
check "lora: the merged model scores as the run" equal "$tmp/lora/lora/merged" "$tmp/lora/lora/ckpt/best" README.md
control() { ! equal "$tmp/lora/lora/merged" "$tmp/lora/model" README.md; }
check "and the model before does not" control

smoke chat /chat
expect "chat: it answers in the form that it learnt" 0 "^[0-9]* and [0-9]* make [0-9]*[.]$" sh -c \
    "echo '2 plus 3?' | $train chat $tmp/chat/chat"

smoke llama_124m_muon /run
expect "llama_124m_muon: a GGUF file" 0 'llama' $tools/info "$tmp/llama_124m_muon/model.gguf"

if open_mpi; then smoke mpirun_ssh
else skip mpirun_ssh "no mpirun of Open MPI; on Debian: apt-get install openmpi-bin"; fi
if command -v torchrun >/dev/null 2>&1; then
    export PET_REDIRECTS=1 PET_TEE=1        # what Debian 12's torchrun needs with its Python
    smoke torchrun
else skip torchrun "no torchrun; on Debian: apt-get install python3-torch"; fi

# What the Dockerfile copies into the image is all that the program needs.
image() {
    sed -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' recipes/Dockerfile |
        sed -n 's/^COPY --from=build //p' >"$tmp/copies"
    [ "$(wc -l <"$tmp/copies")" -eq 4 ] || return 1
    while read -r line; do
        set -f; set -- $line; set +f
        for last in "$@"; do :; done
        mkdir -p "$tmp/image/$last"
        while [ $# -gt 1 ]; do
            from=${1#/lockstep/}
            if [ -d "$from" ]; then from=$from/.; fi        # COPY takes what is in a folder
            cp -r $from "$tmp/image/$last" || return 1
            shift
        done
    done <"$tmp/copies"
    echo 'a text of its own, which is as long as a window at least' >"$tmp/image/own.txt"
    (cd "$tmp" && image/lockstep/train_gpt --steps 1 --eval-every 0 --sample-every 0 --out-dir image/run &&
        image/lockstep/build/export image/run --hf image/hf && image/lockstep/train_gpt eval image/run &&
        image/lockstep/train_gpt eval image/run --seq-len 16 --data image/own.txt)
}
check "the Dockerfile's files make a program" image
summary
