#!/bin/sh
# test_prep.sh -- the tokens that build/prep makes are tiktoken's, on four kinds of text.
. tests/lib.sh
find_python "tiktoken, numpy" prep
vocabulary=$shared/data/gpt2_vocab.bpe
[ -f "$vocabulary" ] || skip_all prep "$vocabulary is not here"
$python - "$tmp" <<'PY'
import glob, os, random, sys, unicodedata
folder, tries = sys.argv[1], random.Random(5)
with open(folder + "/python.txt", "w", newline="") as file:
    for path in sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py")):
        file.write(open(path, encoding="utf-8", newline="").read())
known = [chr(c) for c in range(32, 0x1f9ff) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
odd = ["\n\n", "  ", "\t", " 'll", "'S", "\r\n", "\u00a0", "\u3000"]
with open(folder + "/unicode.txt", "w", newline="") as file:
    for _ in range(60000):
        kind = tries.random()
        some = tries.choices(known[:3000], k=tries.randint(1, 6)) if kind < 0.5 else [tries.choice(known)]
        file.write(tries.choice(odd) if kind > 0.9 else "".join(some))
        file.write(" " if tries.random() < 0.5 else "")
PY
same_tokens() {
    build/prep "$1" --tokenizer "$vocabulary" -o "$tmp/tokens" >"$tmp/prep.log" 2>&1 || cat "$tmp/prep.log"
    $python tests/check_prep.py "$vocabulary" "$tmp/tokens" "$1"
    code=$?
    rm -rf "$tmp/tokens"
    return $code
}
for text in "$shared/data/tinyshakespeare.txt" "$tmp/python.txt" "$tmp/unicode.txt" tests/kernels/test_kernels.cpp; do
    check "$(basename "$text")" same_tokens "$text"
done
# Negative control.
build/prep "$tmp/python.txt" --tokenizer "$vocabulary" -o "$tmp/tokens" >"$tmp/prep.log" 2>&1
expect "a text that differs is noticed" 1 'others' $python tests/check_prep.py "$vocabulary" "$tmp/tokens" \
    "$tmp/unicode.txt"
summary
