#!/bin/sh
# test_tokenizers.sh -- the splits of GPT-2, Llama 3, Qwen and SmolLM2 against the tokenizers library, token by token.
. tests/lib.sh
find_python "tokenizers" tokenizers
text=$shared/data/tinyshakespeare.txt
[ -f "$text" ] || { skip tinyshakespeare "$text is not here"; text=; }
check "the library encodes, $($python -c 'import tokenizers; print(tokenizers.__version__)')" \
    $python tests/check_tokenizers.py "$tmp" $text
export LOCKSTEP_TOKENIZERS=$tmp
check "the same tokens" build/tests/tokenizer as_the_library
# Negative control: a text that has changed by a byte, of the first split: the test ends there.
printf '!' | dd of="$tmp/gpt2.cases" bs=1 seek=8 conv=notrunc 2>/dev/null
expect "a difference is noticed" 1 'gpt2: 1 of' build/tests/tokenizer as_the_library
summary
