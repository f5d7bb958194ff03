#!/bin/sh
# get_tinyshakespeare.sh -- fetches data/tinyshakespeare.txt: 1,115,394 bytes of Shakespeare (public domain), the text
# of char-rnn and nanoGPT. Then: ./train_gpt --data data/tinyshakespeare.txt --tokenizer char
set -eu
url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
want=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
cd "$(dirname "$0")"
out=tinyshakespeare.txt
part=$out.part

sum() { sha256sum "$1" | cut -d ' ' -f 1; }
fail() { rm -f "$part"; echo "get_tinyshakespeare.sh: error: $*" >&2; exit 1; }

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
