#!/bin/sh
# get_gpt2_vocab.sh -- fetches data/vocab.bpe: the 50,000 merges of GPT-2's tokenizer (OpenAI, MIT licence), 456,318
# bytes. Then: ./train_gpt --tokenizer gpt2
set -eu
url=https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe
want=1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5
cd "$(dirname "$0")"
out=vocab.bpe
part=$out.part

sum() { sha256sum "$1" | cut -d ' ' -f 1; }
fail() { rm -f "$part"; echo "get_gpt2_vocab.sh: error: $*" >&2; exit 1; }

if [ -f "$out" ] && [ "$(sum "$out")" = "$want" ]; then
    echo "data/$out is here already"
    exit 0
fi
if command -v curl > /dev/null; then
    curl --fail --location --silent --show-error --connect-timeout 20 --output "$part" "$url" ||
        fail "cannot fetch $url; is there a network?"
elif command -v wget > /dev/null; then
    wget --quiet --timeout=20 --tries=2 --output-document="$part" "$url" ||
        fail "cannot fetch $url; is there a network?"
else
    fail "neither curl nor wget is here; fetch $url by other means, as data/$out"
fi
got=$(sum "$part")
[ "$got" = "$want" ] || fail "$url: sha256 got $got, want $want; the file has changed or the download is broken"
mv "$part" "$out"
echo "data/$out: $(wc -c < "$out") bytes"
