#!/bin/sh
# What bench/weight.sh counts, which commits it says raised .ci/budget without a word of what that buys, and what
# bench/path.sh refuses.
. tests/lib.sh
weight=$PWD/bench/weight.sh
cat >"$tmp/a.cpp" <<'END'
const char* s = "a // b \" /* c";  // no tokens
char c = '"'; int n = 12; /* none
"nor here */ f(n);
END
cat >"$tmp/b.sh" <<'END'
# nothing
echo "$#" ${x#y}   # nor this
END
counts() { awk -f bench/tokens.awk "$1" | cut -d' ' -f1-2; }
check "comments weigh nothing, a string or a character one" test "$(counts "$tmp/a.cpp")" = '22 3'
check "in a script a # begins a comment where a word begins" test "$(counts "$tmp/b.sh")" = '8 2'

# What bench/path.sh says of a README whose path is one file and one header.
mkdir "$tmp/read"
printf '| %s | a |\n|---|---|\n| `%s` | a |\n\n' file a.cu header b.h >"$tmp/read/README.md"
printf '#include "b.h"\n#include "build/list.h"\n' >"$tmp/read/a.cu"
: >"$tmp/read/b.h"
export PATH_OF="$tmp/read"
expect "a path that is closed" 0 '^2 lines, 1 files, 1 headers' bench/path.sh
echo '#include "c.h"' >>"$tmp/read/a.cu"
expect "an include that README does not list" 1 'a.cu: it includes c.h' bench/path.sh
seq 3000 >"$tmp/read/a.cu"
expect "a header that nothing includes" 1 'b.h: no file includes it' bench/path.sh
seq 3001 >"$tmp/read/a.cu"
expect "a path that is too long" 1 'want at most 3,000 lines' bench/path.sh
rm "$tmp/read/a.cu"
expect "a file that is missing" 1 'a.cu: it is not there' bench/path.sh

# commit TOKENS FILES MESSAGE: the next state of the budget
commit() {
    echo "src $1 $2" >.ci/budget
    git add .ci/budget && git -c user.name=a -c user.email=a@b commit -q -m "$3"
}
raises() { WEIGHT_OF=$tmp/repo "$weight" --log >"$tmp/log"; grep -c . "$tmp/log"; }
mkdir -p "$tmp/repo/.ci" && cd "$tmp/repo" && git init -q . || exit 1
commit 100 10 'The first'
commit 90 10 'It falls'
commit 95 10 "$(printf 'It is bought\n\nBudget: +5 src, a feature')"
commit 95 9 'Files fall'
check "what falls or is bought is in order" test "$(raises)" = 0
commit 96 9 'Silent'
commit 98 9 "$(printf 'Too little\n\nBudget: +1 src, a feature')"
commit 99 9 "$(printf 'Another folder\n\nBudget: +9 tools, a feature')"
commit 99 11 'More files'
commit 120 11 "$(printf 'No word of what\n\nBudget: +30 src,')"
check "what rises silently, by more, elsewhere or for nothing is named" test "$(raises)" = 5
summary
