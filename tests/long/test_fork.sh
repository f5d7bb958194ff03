#!/bin/sh
# test_fork.sh -- a fork: models, optimizers, a schedule, a reduction, a loss, an order and a measurement of its own
# (tests/fork), files and lines in lists, go into a copy of the tree where nothing else is touched. It builds, and all
# works with them.
# inputs: cxx configure build.ninja train_gpt.cu kernels/kernels.h models optimizers src/ddp src/measure src/data/orders
# inputs: tests/fork tests/models docs/fork.md tests/cases.sh
. tests/lib.sh
. tests/cases.sh
[ -n "$ninja" ] || skip_all fork "no ninja"
copy=$tmp/tree
mkdir "$copy"
# With what is built already, so that only what knows the lists is compiled again.
built=$(cd build 2>/dev/null && find . -maxdepth 1 ! -name . ! -name asan ! -name tsan ! -name gpu ! -name ptx \
    ! -name venv ! -name fuzz ! -name ci | sed 's|^\./|build/|')
tar -cf - $(ls -d * | grep -vE "^(build|runs|train_gpt)$") $built | tar -xf - -C "$copy" ||
    { fail copy "tar"; give_up; }
cxx=$(sed -n 's/^cxx = //p' build/config.ninja 2>/dev/null)
build() { (cd "$copy" && CXX="$cxx" NVCC= ./configure && "$ninja" "$@") >"$tmp/build.log" 2>&1; }
compiled() { grep -o 'C++ .*' "$tmp/build.log"; }
build train_gpt || { fail "the copy builds" "$(tail -n 3 "$tmp/build.log" | tr '\n' '|')"; give_up; }
# page N: the commands of the N-th block of docs/fork.md, in the copy and with its own programs.
page() {
    sh_block docs/fork.md "$1" >"$tmp/commands"
    grep -q . "$tmp/commands" && (
        unset TEST_TOTALS TEST_SECONDS TEST_FAILURES VERIFIED TRAIN_GPT TRAIN_GPT_FAULTS TRAIN_GPT_PTX TOOLS
        cd "$copy" && sh -eu "$tmp/commands"
    )
}
model_alone() {     # 6: its source and the lists of kinds for two backends, the lists of models and of their readers
    page 1 >"$tmp/build.log" 2>&1
    compiled
    [ "$(compiled | wc -l)" -eq 6 ] && ! compiled | grep -vE '/(trail|model|models|config_reader)\.o$'
}
check "a line in models/list compiles the model and the lists alone" model_alone
check "docs/fork.md: an optimizer and a schedule" page 2
check "docs/fork.md: more optimizers" page 3
check "docs/fork.md: a reduction" page 4
check "docs/fork.md: a loss" page 5
check "docs/fork.md: an order of data" page 6
check "docs/fork.md: a measurement" page 7
drawn() {
    sed -n 's/.*"event":"train","step":\([0-9]*\),.*"weights\/transformer.wte.weight":[0-9.]*,.*/\1/p' \
        "$copy/runs/measured/metrics.jsonl" | tr '\n' ' ' >"$tmp/steps"
    [ "$(cat "$tmp/steps")" = '0 4 8 ' ] && grep -q '<h3>weights</h3>' "$copy/runs/measured/report.html"
}
check "its values are logged and drawn" drawn
twice() {
    cp "$copy/models/list" "$tmp/list" && echo trail >>"$copy/models/list"
    (cd "$copy" && ./configure) >"$tmp/configured" 2>&1
    refused=$?
    cp "$tmp/list" "$copy/models/list"
    [ $refused -eq 1 ] && grep 'models/list: got trail twice' "$tmp/configured"
}
check "a name that is twice in a list is refused" twice
cp tests/fork/models/mixtral.* "$copy/models/" && echo mixtral >>"$copy/models/list"
cp tests/fork/test_mixtral.cpp "$copy/tests/models/"
if ! build train_gpt build/info build/export build/tests/model_cpu build/tests/options build/tests/config \
        build/tests/mixtral_cpu build/tests/kernels_cpu build/tests/rules_cpu; then
    fail "the fork builds" "$(grep -E 'error|FAILED' "$tmp/build.log" | head -n 3 | tr '\n' '|')"
    give_up
fi
ok "the fork builds"
check "docs/fork.md: the tests of models and of rules pass" page 8
check "their declarations come back from config.json" "$copy/build/tests/config"
check "the mixture of experts has transformers' loss and gradients" "$copy/build/tests/mixtral_cpu"
check "its options pass the tests of options" "$copy/build/tests/options"
check "its rules pass the tests of rules" "$copy/build/tests/kernels_cpu"
train=$copy/train_gpt
plan="--device cpu --dtype fp32 --preset gpt2-124m --dry-run"
unmixed="--device cpu --seq-len 32 --sampler blocks --out-dir $tmp/unmixed"
adapted="--device cpu --data tests/golden/lines.txt --lora 8 --steps 2 --sample-every 0"
small="--device cpu --threads 1 --data tests/golden/lines.txt --replicas 4"
trail="$small --model trail --steps 12 --save-every 6 --eval-steps 0"
job="$small --audit-every 1"
all_of trail 12 $train --model trail --eval-steps 0 --optimizer lion
all_of mixture 12 $train --model mixtral --overlap on
all_of int8 12 $train --reduce int8
all_of smooth 12 $train --loss smooth
one=$tmp/trail-one mixture=$tmp/mixture-one
check "the mixture's measures are in metrics.jsonl" grep -q '"aux_loss":[0-9.]*,"expert_load":[0-9.]*' \
    "$mixture/metrics.jsonl"
check "and on the console" grep -q 'aux_loss [0-9.]* | expert_load [0-9.]*' "$mixture.log"
# The reduction changes a replica's gradient, with a state of each replica.
own_bits() { run ordered $train --steps 12 && ! same "$tmp/int8-one" "$tmp/ordered" >"$tmp/differs"; }
check "int8: other bits than without it" own_bits
check "int8: each replica's errors are saved" grep -q 'wte.weight.error.replica3"' \
    "$tmp/int8-one/ckpt/step_00000012/optim.safetensors"
job="$trail --optimizer lion"
halved() {      # steps 0 to 11: half of --lr from step 9 on
    run halved $train --schedule half --halve-at 0.75 --lr 0.0078125 --warmup-steps 0 &&
        grep -o '"lr":[^,]*' "$tmp/halved/metrics.jsonl" | uniq -c | tr -s ' \n' ' ' | tee "$tmp/rates" &&
        [ "$(cat "$tmp/rates")" = ' 9 "lr":0.0078125 3 "lr":0.00390625 ' ]
}
check "its schedule sets the rate" halved
# Each of the others: the same bytes on two ranks, on two hosts, and from the middle on. state.json has times and a name
# of the run, and what the rule keeps from step to step.
units="env LOCKSTEP_BUCKET_UNITS=1 $train"
alike() {
    for o in "$1" "$2"; do grep -o '"sum[0-9]":[^,]*' "$o/ckpt/step_00000012/state.json" >"$o.sums"; done
    cmp "$1.sums" "$2.sums" && diff -r "$1/ckpt/step_00000012" "$2/ckpt/step_00000012" -x state.json -x DONE
}
for rule in $(ls tests/fork/optimizers/*.h | sed 's|.*/||; s|\.h$||; /^lion$/d'); do
    job="$trail --optimizer $rule" first=$tmp/${rule}1
    both() { run ${rule}1 $train && run ${rule}2 $units --np 2 && alike "$first" "$tmp/${rule}2"; }
    hosts() { run ${rule}h on_hosts 4 2 $units && alike "$first" "$tmp/${rule}h"; }
    again() {
        rm -rf "$tmp/${rule}2/ckpt/step_00000012" && $train --resume "$tmp/${rule}2" --np 4 &&
            alike "$first" "$tmp/${rule}2"
    }
    check "$rule: --np 2 writes the checkpoint of --np 1" both
    check "$rule: so do two hosts of two ranks" hosts
    check "$rule: so does a resume from the middle with --np 4" again
done
job="$trail --optimizer lion"
# What a user gets of schedule-free AdamW is the average: evaluation, model.safetensors and what is made of it.
scored() {      # RUN: eval says the loss of the run's last evaluation
    want=$(sed -n 's/.*"event":"val","step":12,"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl")
    $train eval "$1" >"$tmp/eval" && awk -v want="$want" '/^val loss/ { got = $3 }
        END { print got, want; exit !(got - want < 1e-6 && want - got < 1e-6) }' "$tmp/eval"
}
check "schedulefree: the checkpoint has the weights that were evaluated" scored "$tmp/schedulefree1"
bytes() { wc -c <"$tmp/adafactor1/ckpt/step_00000012/$1"; }
smaller() { [ $((2 * $(bytes optim.safetensors))) -lt "$(bytes model.safetensors)" ]; }
check "adafactor: the checkpoint has rows and columns" smaller
cases $train <<'END'
another schedule's option is refused ~ 2 ~ halve-at ~ $job --halve-at 0.75 --dry-run
a schedule that is in no list is refused with those that are ~ 2 ~ half\|cosine ~ $job --schedule haif --dry-run
int8: a GPU is refused ~ 2 ~ reduce int8: needs CPUs ~ --dry-run --for h100 --reduce int8
int8: another's state is refused ~ 65 ~ --reduce it began with ~ --resume "$tmp/int8-one" --steps 14 --reduce ordered
adafactor: rows and columns in the plan ~ 0 ~ optimizer [0-9]\.[0-9] ~ $plan --optimizer adafactor
other blocks are refused on resume ~ 2 ~ block: got 5, the run has 3 ~ --resume "$copy/runs/blocks" --block 5
an order refuses a mixture ~ 2 ~ sampler blocks: got 2 sources ~ $unmixed --data README.md:1,LICENSE:1
options of its own: refused values ~ 2 ~ inner ~ --model trail --inner 3 --dry-run
another loss's option is refused ~ 2 ~ want --loss smooth ~ $job --loss z-loss --smoothing 0.5 --dry-run
mixture: a GPU is refused ~ 2 ~ mixtral has no CUDA kernels ~ --dry-run --for h100 --model mixtral
mixture: --recompute is refused ~ 2 ~ recompute: got 1, want at most 0 ~ --dry-run --model mixtral --recompute 1
--help lists them ~ 0 ~ inner ~ --model trail --help
another model's option is refused ~ 2 ~ heads ~ --model trail --heads 2 --dry-run
dry run ~ 0 ~ trail|inside ~ --model trail --optimizer lion --dry-run
sample ~ 0 ~ . ~ sample "$one" --prompt "The " --max-tokens 40
mixture: sample ~ 0 ~ . ~ sample "$mixture" --prompt "The " --max-tokens 20
eval ~ 0 ~ ^val loss ~ eval "$one"
another optimizer's state is refused ~ 2 ~ optimizer.*adamw.*lion ~ --resume "$one" --optimizer adamw --steps 20
adapters beside it ~ 0 ~ ^done ~ $adapted --init "$one" --out-dir "$tmp/adapters"
mixture: adapters beside it ~ 0 ~ ^done ~ $adapted --init "$mixture" --out-dir "$tmp/m_adapters"
END
# The tokenizer's begin of a document reaches the model, in training and in eval.
documents() {
    rm -rf "$tmp/texts" "$tmp/documents"
    mkdir "$tmp/texts" && for i in 1 2 3 4 5 6 7 8; do cp tests/golden/lines.txt "$tmp/texts/$i.txt"; done
    job=$(echo $job | sed "s|--data [^ ]*|--data $tmp/texts --val-data $tmp/texts|") \
        run documents $train --seq-len 24 &&
        ! grep '"documents":[^0]' "$one/metrics.jsonl" &&
        grep '"documents":[0-9.]*[1-9]' "$tmp/documents/metrics.jsonl"
}
check "where a document starts the model knows it" documents
check "and eval knows it" scored "$tmp/documents"
expect "info" 0 'Trail|trail' "$copy/build/info" "$one/ckpt/step_00000012"
expect "export --hf" 0 '.' "$copy/build/export" "$one" --hf "$tmp/hf"
check "with the config" grep -q '"inner_size": 64' "$tmp/hf/config.json"
expect "a format that holds no such model says so" 2 'trail' "$copy/build/export" "$one" --gguf "$tmp/x.gguf"

# A model that another one's format cannot hold is no file of that format: it would compute another function there.
borrowed() { sed -i 's/TrailLMHead/LlamaForCausalLM/' "$copy/models/trail.h" && build build/info build/export; }
check "a model under another's architecture builds" borrowed
expect "its export names the number that transformers would not read" 2 'inner|soft-cap' \
    "$copy/build/export" "$one" --hf "$tmp/borrowed"
check "and writes nothing" test ! -e "$tmp/borrowed/config.json"
cp tests/fork/models/trail.h "$copy/models/" && build train_gpt

# Editors save by renaming, so that the folder is new too: only what the source is part of is built again.
little() {
    (cd "$copy" && cp models/trail.cpp models/trail.new && echo '// saved' >>models/trail.new &&
        mv models/trail.new models/trail.cpp && "$ninja" build/config.ninja >/dev/null &&
        "$ninja" -n train_gpt) >"$tmp/n"
    grep -c 'C++' "$tmp/n"
    [ "$(grep -c 'C++' "$tmp/n")" -le 4 ] && ! grep 'C++' "$tmp/n" | grep -v trail
}
check "a source that is saved is built again alone" little

# Another branch does not have the model: ninja alone finds that out, before it compiles with the old list.
gone() {
    mkdir "$tmp/aside" && mv "$copy"/models/trail.* "$tmp/aside/" && cp "$copy/models/list" "$tmp/aside/" &&
        sed -i /trail/d "$copy/models/list" && (cd "$copy" && "$ninja" train_gpt) >"$tmp/build.log" 2>&1 ||
        { tail -n 3 "$tmp/build.log"; return 1; }
    ! $train --help | grep trail && mv "$tmp"/aside/* "$copy/models/"
}
check "a model that is gone is out of the program after ninja" gone

# A rule that uses more state than it names would write where another rank reads.
unnamed() {
    sed -i 's/, {"exp_avg_slow"}//' "$copy/optimizers/ademamix.h" && ! build build/optimizers/optimizers.o &&
        grep -o 'optimizers/ademamix.h: kState uses more arrays.*' "$tmp/build.log" &&
        cp tests/fork/optimizers/ademamix.h "$copy/optimizers/"
}
check "a rule with more state than it names does not compile" unnamed

# A rule for matrices needs both what names them and the function.
halves() {
    sed -i 's/\.sums = 1,/.whole = [](const TensorSpec\& t) { return t.matrix; }, &/' \
        "$copy/optimizers/schedulefree.h" && build train_gpt
}
check "an optimizer with matrices and no rule for them builds" halves
expect "the start names it" 1 'optimizers/schedulefree.h: got one of .whole. and a matrix rule' \
    $train $trail --optimizer schedulefree --out-dir "$tmp/halves"
cp tests/fork/optimizers/schedulefree.h "$copy/optimizers/"

# Where a term of a gradient is left out, the tests of models say so: a cap of logits, an auxiliary loss, a function of
# qkv, losses.
broken() {      # FILE SED_SCRIPT WHERE
    cp "$copy/$1" "$tmp/whole" && sed -i "$2" "$copy/$1" && ! cmp -s "$copy/$1" "$tmp/whole" &&
        build build/tests/model_cpu && ! "$copy/build/tests/model_cpu" gradient_of_every_tensor >"$tmp/seen"
    seen=$?
    cp "$tmp/whole" "$copy/$1"
    [ $seen -eq 0 ] && grep "FAIL gradient_of_every_tensor.*$3" "$tmp/seen"
}
check "the cap of logits" broken models/trail.cpp 's/if (!rows.backward) return/if (rows.losses) return/' trail
check "the auxiliary loss" broken models/mixtral.cpp \
    's/dp\[n \* experts + e\] = balancing/dp[n * experts + e] = 0/' mixtral
check "a function of qkv" broken models/mixtral.cpp '/> c) d\[i\] = 0/d' mixtral
check "z-loss" broken models/losses/z_loss.cpp 's/ 2 \* weight/ weight/' z-loss
check "label smoothing" broken models/losses/smooth.h 's| - 1 / double(V)||' smooth
# A key that cannot be read back is refused when the model is read.
incomplete() {
    sed -i 's/"final_logit_softcapping"/""/' "$copy/models/trail.h"
    build train_gpt
}
check "an incomplete model builds" incomplete
expect "a model with a key that cannot be read back trains" 0 '' $train $job --out-dir "$tmp/incomplete"
expect "such a key is refused" 65 'config.json: --soft-cap: got 0, want ' \
    "$copy/build/train_gpt" sample "$tmp/incomplete"
cp tests/fork/models/trail.h "$copy/models/"

# A model sees which samples it computes: in a step that is an epoch, all of 0 to 15, of which a micro-batch has two.
numbers() {
    sed -i 's/pass.measures\[0\] = documents;/pass.measures[0] = double(pass.samples[0] + pass.samples[1]);/' \
        "$copy/models/trail.cpp" && build train_gpt && head -c 1025 tests/golden/lines.txt >"$tmp/epoch.txt" || return 1
    for np in 1 2; do
        rm -rf "$tmp/numbers" && $train --device cpu --model trail --data "$tmp/epoch.txt" --val-data "$tmp/epoch.txt" \
            --seq-len 64 --batch-size 2 --total-batch-size 1024 --steps 5 --audit-every 2 --np $np \
            --out-dir "$tmp/numbers" && [ "$(grep -c '"documents":15[,}]' "$tmp/numbers/metrics.jsonl")" -eq 5 ] ||
            return 1
    done
    cp tests/fork/models/trail.cpp "$copy/models/" && build train_gpt
}
check "a pass has the numbers of its samples" numbers

# A gradient that backward forgets is named: in the first step, or in the one step whose tokens it leaves out. The ranks
# agree on the tensor, the step and the micro-batch, whose number does not depend on them.
changed() {     # SED_SCRIPT: applied to the model as it was
    cp tests/fork/models/trail.cpp "$copy/models/" && sed -i "$1" "$copy/models/trail.cpp" &&
        build train_gpt || return 1
    ! cmp -s tests/fork/models/trail.cpp "$copy/models/trail.cpp"
}
check "a backward that forgets a tensor builds" changed '/linear_backward(dhidden/d'
expect "the tensor is named" 1 'fc\.weight: not written by micro-batch 0;' $train $job --out-dir "$tmp/forgetful"
check "and nothing of it is saved" test ! -e "$tmp/forgetful/ckpt/latest"
expect "on two ranks, too" 1 'fc\.weight: not written by micro-batch 0;' $train $job --np 2 \
    --out-dir "$tmp/forgetful2"
check "a backward that forgets it in some steps builds" changed \
    's/^    linear_backward(dhidden/    if (pass.state->step < 3 || pass.micro_batch % 8 != 4) linear_backward(dhidden/'
for more in "--np 1" "--np 2 --overlap on" "--np 4 --overlap on" "--np 2 --grad-clip 0" "--np 2 --audit-every 3"; do
    expect "it is named then: $more" 1 'step 3.: error: .*fc\.weight: not written by micro-batch 4;' \
        $train $job $more --force --out-dir "$tmp/sometimes"
done
forgets_experts() {
    sed -i 's/^\( *\)linear_backward(a.dact/\1if (n == 0) continue;\n&/' "$copy/models/mixtral.cpp"
    build train_gpt || return 1
    grep -q 'if (n == 0) continue' "$copy/models/mixtral.cpp"
}
check "a mixture that leaves an expert without tokens out builds" forgets_experts
few="--steps 12 --seq-len 8 --batch-size 1 --total-batch-size 32 --experts 16 --experts-used 1"
for ranks in 1 2; do
    expect "the expert is named, --np $ranks" 1 'experts\.[0-9]*\.w13\.weight: not written by micro-batch' \
        $train $small --model mixtral $few --np $ranks --out-dir "$tmp/expert$ranks"
done
summary
