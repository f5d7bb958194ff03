#!/bin/sh
# test_chat.sh -- conversations as --data, what a checkpoint keeps of the template, and the chat command.
. tests/cases.sh
soft=${TRAIN_GPT_PTX:-$PWD/build/train_gpt_ptx} tools=${TOOLS:-build}
chat=$tmp/chat.jsonl
# Sums, in one to three turns; answers are short or long, so that micro-batches have different numbers of targets.
awk 'BEGIN { srand(7); for (i = 0; i < 300; i++) { line = ""
    for (turn = int(rand() * 3); turn >= 0; turn--) { a = int(rand() * 5); b = int(rand() * 5)
        long = rand() < 0.2 ? " is what you get when you add the two" : ""
        line = line (line == "" ? "" : ",") "{\"role\":\"user\",\"content\":\"" a "+" b "\"},{\"role\":\"assistant\"," \
            "\"content\":\"" a + b long "\"}" }
    print "{\"messages\":[" line "]}" } }' >"$chat"
shape="--layers 2 --heads 2 --channels 32 --seq-len 96 --batch-size 2 --total-batch-size 1536"
nano="$shape --replicas 8 --lr 1e-2 --sample-every 0"
job="$nano --data $chat --steps 8 --eval-every 4 --save-every 4 --dropout 0.1"
check "it trains" run one $train --threads 1
check "the loss falls" falls "$tmp/one"
expect "the conversations are counted" 0 '300 conversations, [0-9,]* tokens of the assistant' cat "$tmp/one.log"
for np in 2 4 8; do like_one np$np $train --np $np; done
like_one threads2 $train --threads 2
rm -rf "$tmp/np2/ckpt/step_00000008"
expect "a resume from its middle" 0 '^done ' $train --resume "$tmp/np2"
check "gives the same bytes" same "$tmp/one" "$tmp/np2"
if [ -x "$soft" ]; then
    job="$nano --data $chat --steps 2 --eval-every 0 --save-every 2 --device gpu"
    check "a GPU in software" run gpu env SOFT_GPU_DEVICES=2 "$soft"
    check "a GPU in software, --np 2" run gpu2 env SOFT_GPU_DEVICES=2 "$soft" --np 2
    check "the same bytes" same "$tmp/gpu" "$tmp/gpu2"
fi

# Rows have several conversations, of which none sees another: the loss is that of each in a row of its own.
scored() { $train eval "$tmp/one" --data "$chat" --dtype fp32 --threads 1 --rows "$1"; }
alone() {
    scored documents >"$tmp/packed" && scored join >"$tmp/alone" && cat "$tmp/packed" "$tmp/alone" &&
        awk 'NR > 1 { off = $3 / loss - 1; same = $NF == n } { loss = $3; n = $NF }
            END { exit !(same && off < 3e-6 && off > -3e-6) }' "$tmp/packed" "$tmp/alone"
}
check "a new run packs them" has "$tmp/one/config.json" '"rows": "documents"' '"padding":0\.[0-9]'
check "the loss of packed conversations is theirs one by one" alone

# What a checkpoint says of the template.
newest=$tmp/one/ckpt/step_00000008
check "eos_token ends a turn, and the template is there" has "$newest/tokenizer_config.json" \
    '"eos_token":"<|im_end|>"' im_start
check "the template is in a file of its own" has "$newest/chat_template.jinja" im_start
check "generation ends at either token" has "$newest/generation_config.json" '"eos_token_id":\[258,256]'
check "a text begins with another" has "$newest/config.json" '"bos_token_id": 256'
expect "a GGUF file has it" 0 . "$tools/export" "$tmp/one" --gguf "$tmp/chat.gguf"
$tools/info "$tmp/chat.gguf" >"$tmp/info"
check "and ends a turn, puts nothing before a template, and does not begin with that" has "$tmp/info" \
    'chat_template.*im_start' 'add_bos_token = false$' 'bos_token_id = 256$'
check "ollama is to take the template from it" lacks "$tmp/chat.gguf.Modelfile" TEMPLATE

# The chat command.
answer() { printf '%s\n' "$2" | $train chat "$1" --temperature 0 --threads 1; }
says() { got=$(answer "$1" "$2"); echo "got $got, want $3"; [ "$got" = "$3" ]; }
learnt=$tmp/learnt
awk 'BEGIN { for (i = 0; i < 64; i++) print "{\"instruction\":\"" (i % 2 ? "Hi" : "Who are you?") "\",\"output\":\"" \
    (i % 2 ? "Yo" : "A machine.") "\"}" }' >"$tmp/two.jsonl"
job="$nano --data $tmp/two.jsonl --val-data $tmp/two.jsonl --steps 60 --eval-every 0 --save-every 60 --dtype fp32"
check "a model of two answers" run learnt $train
expect "which is what to do next" 0 "^next .* chat $learnt\$" cat "$tmp/learnt.log"
check "it says one" says "$learnt" Hi Yo
check "and the other" says "$learnt" "Who are you?" "A machine."
check "it is exported" $tools/export "$learnt" --gguf "$tmp/learnt.gguf" --type f32
check "and says the same from there" says "$tmp/learnt.gguf" "Who are you?" "A machine."
check "answers in turn, as long as there is input" says "$learnt" "Hi
Hi
Hi" "Yo
Yo
Yo"
check "no input, no answer" says "$learnt" "" ""
printf '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n' >"$tmp/rendered"
expect "and to its rendered form" 0 '^Yo$' \
    sh -c "$train sample $learnt --special-tokens --prompt - --temperature 0 <$tmp/rendered | tail -n 1"
# Ctrl-C ends what waits for a line. The process has the name that was called, though train_gpt became lm.
asked_to_end() { kill -INT "$1"; sleep 0.1; case $(cut -d' ' -f3 "/proc/$1/stat") in ''|Z) ;; *) false ;; esac; }
interrupted() {
    mkfifo "$tmp/typed"
    $train chat "$learnt" --temperature 0 <"$tmp/typed" >"$tmp/heard" 2>&1 & pid=$!
    exec 9>"$tmp/typed"
    echo Hi >&9
    await grep -qx Yo "$tmp/heard"
    cat "$tmp/heard" "/proc/$pid/comm"
    name=$(cat "/proc/$pid/comm")
    await asked_to_end $pid
    wait $pid; code=$?
    exec 9>&-
    [ $code -eq 0 ] && [ "$name" = "$(basename "$train" | cut -c 1-15)" ] && [ "$(cat "$tmp/heard")" = Yo ]
}
check "Ctrl-C ends a conversation" interrupted
long=$(head -c 300 /dev/zero | tr '\0' x)
check "more than the context has room for" sh -c "printf '%s\n%s\nHi\n' $long $long | $train chat $learnt"
expect "sample continues a text" 0 . $train sample "$learnt" --prompt "Hi"
expect "a message beyond the context is said" 0 'chat: got [0-9]* tokens, and the context is [0-9]*: the beginning is' \
    sh -c "head -c 3000 README.md | tr '\n' ' ' | $train chat $learnt --max-tokens 1"
expect "eval counts trained tokens" 0 '^val loss .* tokens 448$' $train eval "$learnt" --data "$tmp/two.jsonl"

job="${nano%--sample-every 0} --data $chat --steps 2 --eval-every 0"
check "a sample of their characters alone" run characters $train --tokenizer char --sample-every 1

# A model with more rows than its tokenizer has tokens, which gets a template's tokens.
job="$nano $on_lines --steps 1 --eval-every 0 --save-every 1"
check "a model of 300 tokens" run wide $train --tokenizer bpe:300
check "and one of bytes" run of_bytes $train
mkdir "$tmp/padded"
cp "$tmp"/wide/ckpt/step_00000001/model.safetensors "$tmp"/wide/ckpt/step_00000001/config.json \
    "$tmp"/of_bytes/ckpt/step_00000001/tokenizer.json "$tmp/padded"
few="--batch-size 2 --total-batch-size 1536 --eval-every 0 --save-every 1 --sample-every 0"
job="$few --data $chat --steps 2"
check "the first with the second's tokenizer learns to talk" run talks $train --init "$tmp/padded"
expect "and can be resumed" 0 '^done ' $train --resume "$tmp/talks" --steps 3
check "and talked to" answer "$tmp/talks" Hi

# A prompt and its completion: no template.
awk 'BEGIN { for (i = 0; i < 16; i++) print "{\"prompt\":\"" i % 4 "+1=\",\"completion\":\"" i % 4 + 1 "\"}" }' \
    >"$tmp/pairs.jsonl"
taught="--steps 60 --eval-every 0 --save-every 60 --dtype fp32"
expect "prompts and completions" 0 '16 conversations.*vocabulary 257' $train $nano --data "$tmp/pairs.jsonl" \
    --val-data "$tmp/pairs.jsonl" $taught --out-dir "$tmp/pairs"
expect "sample completes" 0 '^3[+]1=4$' $train sample "$tmp/pairs" --prompt "3+1=" --temperature 0

expect "perplexity is of text" 2 'got conversations, want text' $train eval "$learnt" --data "$chat" --perplexity

# A model without the template's tokens gets them; one that has them keeps its vocabulary.
bytes=$tmp/of_bytes
expect "has nothing to chat with" 2 'has no <.im_start.>; train it on conversations' $train chat "$bytes"
expect "nor to score conversations with" 2 'has no <.im_start.>' $train eval "$bytes" --data "$chat"
cp -r "$bytes/ckpt/step_00000001" "$tmp/foreign"
rm "$tmp/foreign/DONE" "$tmp/foreign/state.json" && echo '[INST]' >"$tmp/foreign/chat_template.jinja"
expect "a template without turns" 65 'foreign: chat_template: got one that gives a turn of the assistant no place' \
    $train eval "$tmp/foreign" --data "$chat"
expect "another instead" 2 'has no <.begin_of_text.>' $train eval "$tmp/foreign" --data "$chat" --chat-template llama3
echo '{{ messages | tojson }}' >"$tmp/foreign/chat_template.jinja"
expect "a template that is not read" 65 'foreign: chat_template: line 1: got the filter tojson.*give --chat-template' \
    $train eval "$tmp/foreign" --data "$chat"
expect "scoring a text needs none" 0 '^val loss' $train eval "$tmp/foreign" $on_lines
tuned="$train $few --data $chat --steps 1" more=$tmp/more
expect "gets two tokens" 0 'vocabulary 259' $tuned --init "$bytes" --out-dir "$more"
expect "and goes on" 0 '^done ' $train --resume "$more" --steps 2
expect "from there no more" 0 'vocabulary 259' $tuned --init "$more" --out-dir "$tmp/again"
expect "a template of other tokens" 0 'vocabulary 263' $tuned --init "$more" --chat-template llama3 \
    --out-dir "$tmp/llama3"
expect "adapters cannot teach new tokens" 2 '--lora: .* no token <.im_end.>' $tuned --init "$bytes" --lora 8 \
    --out-dir "$tmp/lora"
check "adapters of a model that has them" $tuned --init "$more" --lora 8 --out-dir "$tmp/adapter"
expect "also answer" 0 . sh -c "echo Hi | $train chat $tmp/adapter"

# A model's own template is what it is trained by, and what it keeps.
own=$tmp/own
cp -r "$more/ckpt/step_00000002" "$own" && rm "$own/DONE" "$own/state.json"
cat >"$own/chat_template.jinja" <<'END'
{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ '<|im_start|>system
The mate helps.<|im_end|>
' }}{% endif %}{{ '<|im_start|>' + m.role + '
' + m.content | trim + '<|im_end|>
' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}
END
job="--data $tmp/two.jsonl --val-data $tmp/two.jsonl $taught --batch-size 2 --total-batch-size 1536 --sample-every 0"
check "a model with a template of its own" run owned $train --init "$own" --lr 1e-2
check "keeps it" cmp "$own/chat_template.jinja" "$tmp/owned/ckpt/step_00000060/chat_template.jinja"
check "and answers by it" says "$tmp/owned" Hi Yo
expect "adapters of it" 0 . $tuned --init "$own" --lora 8 --out-dir "$tmp/own_lora"

# Fields beside the form's: obeyed, or told.
awk 'BEGIN { for (i = 0; i < 8; i++) print "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}," \
    "{\"role\":\"assistant\",\"content\":\"wrong\",\"weight\":0},{\"role\":\"user\",\"content\":\"a\",\"colour\":1}," \
    "{\"role\":\"assistant\",\"content\":\"<|im_end|>\"}],\"source\":\"x\"}" }' >"$tmp/fields.jsonl"
job="$nano --data $tmp/fields.jsonl --val-data $tmp/fields.jsonl --steps 1 --save-every 1"
check "conversations with fields" run fields $train
check "a turn of weight 0 is not trained on" has "$tmp/fields.log" \
    '8 conversations, 88 tokens of the assistant.*; "weight" leaves out 8 turns'
check "an unknown field is told, and the name of a control token" has "$tmp/fields.log" \
    'warning: .*fields.jsonl: the field "colour" is not known .* 8 times' \
    'warning: .*fields.jsonl: it spells .*<.im_end.>, 8 times'
check "once" test "$(grep -c warning: "$tmp/fields.log")" -eq 2

# Refusals name file, line and field.
bad() {             # WHAT IS SAID LINE...
    said=$1; shift
    printf '%s\n' "$@" >"$tmp/bad.jsonl"
    expect "$said" 65 "$said" $train $nano --data "$tmp/bad.jsonl" --steps 1
}
{ echo '{"prompt":"a","completion":"b","train":false}'; for i in 1 2 3; do
    printf '\357\273\277{"prompt":"a","completion":"b","label":0}\n'; done; } >"$tmp/left_out.jsonl"  # of several files
good='{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}'
of_long="{\"prompt\":\"$long\",\"completion\":\"a\"}"
bad 'bad.jsonl: line 2: messages\[0\]: role: got "assistent".*did you mean assistant' "$good" \
    '{"messages":[{"role":"assistent","content":"b"}]}'
bad 'bad.jsonl: line 2: got the fields "text", want messages' "$good" '{"text":"a"}'
bad 'got one conversation, want two or more' "$good"
bad 'got no training conversation with an answer within its first 96 tokens' "$of_long" "$of_long"
none='{"messages":[{"role":"assistant","content":"b","train":false}]}'
bad 'bad.jsonl: line 1: got no answer to train on here or below; "train" leaves out 2 turns' "$none" "$none" "$good"
expect "a line that is left out names its field" 0 'skipped, the first: line 1: train: got false' $train $nano \
    --data "$tmp/left_out.jsonl" --steps 1 --skip-bad-lines 1 --out-dir "$tmp/left_out"
expect "prep has nothing to do with them" 65 'line 1: .*fields "messages", want text; .* train_gpt --data' \
    "$tools/prep" "$chat" --tokenizer byte -o "$tmp/prep"
awk 'BEGIN { for (i = 0; i < 90; i++) print "{\"prompt\":\"Tell\",\"text\":\"A tale of " i ".\"}" }' >"$tmp/tales.jsonl"
expect "documents with a prompt beside are texts" 0 . "$tools/prep" "$tmp/tales.jsonl" --tokenizer byte -o "$tmp/tales"
expect "text to validate conversations" 65 'got text, want conversations' $tuned --val-data tests/golden/lines.txt
expect "an unknown template" 2 'chat-template: got alpaca, want' $train --chat-template alpaca
summary
