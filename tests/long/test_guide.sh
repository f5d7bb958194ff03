#!/bin/sh
# test_guide.sh -- runs every command of docs/guide.md, in its order, in a folder with nothing but the programs.
. tests/lib.sh
. tests/cases.sh
mkdir "$tmp/house"
for name in train_gpt build README.md; do ln -s "$PWD/$name" "$tmp/house/$name"; done
sh_block docs/guide.md >"$tmp/commands"
expect "the guide has commands" 0 'train_gpt chat runs/chat' cat "$tmp/commands"
in_house() {
    (cd "$tmp/house" && sh -eu "$tmp/commands") >"$tmp/guide.log" 2>&1 && return
    tail -n 3 "$tmp/guide.log"
    return 1
}
check "all of them run" in_house
expect "the loss falls to a number" 0 '^val loss [0-4][.].*  bpb [0-9.]*  tokens' cat "$tmp/guide.log"
expect "perplexity is printed" 0 '^perplexity ' cat "$tmp/guide.log"
expect "questions are scored" 0 '^questions acc 0[.]' cat "$tmp/guide.log"
expect "it answers as it was taught" 0 '^At the mill[.]$' cat "$tmp/guide.log"
for file in report.html compare.html chat.gguf chat-hf/chat_template.jinja; do
    check "$file is there" test -s "$tmp/house/$file"
done
summary
