#!/bin/sh
# test_run.sh -- tests/run and tests/verified: what counts as a failure, what ends a run early, which suites run again.
# first
. tests/lib.sh
command -v git >/dev/null 2>&1 || skip_all "suites" "no git or no ninja"
tree=$tmp/tree
mkdir -p "$tree/tests" "$tree/build" && cp tests/run tests/lib.sh "$tree/tests"
echo 'cxx = true' >"$tree/build/config.ninja"
echo 'test -e lacks ~ no such machine' >"$tree/tests/skips"
echo one >"$tree/input"
# program NAME LINE...: a script of the tree.
program() {
    name=$1; shift
    { echo '#!/bin/sh'; printf '%s\n' "$@"; } >"$tree/$name"
    chmod +x "$tree/$name"
}
passes='echo "tests: 1 passed, 0 failed, 0 skipped"' skips='echo "tests: 0 passed, 0 failed, 1 skipped"'
program good "$passes"
program bad 'echo "FAIL it: is bad"' 'echo "tests: 0 passed, 1 failed, 0 skipped"; exit 1'
program crash 'echo "ok   it"; exit 3'
program unknown 'echo "SKIP it: build/x is not built"' "$skips"
program lacking 'echo "SKIP it: no such machine"' "$skips"
program works 'n=0; while [ $n -lt 400000 ]; do n=$((n + 1)); done' "$passes"
program suite '# inputs: input cxx OF_THE_SUITE' '. tests/lib.sh' 'check of_input grep -q "" input' \
    '[ ! -e breaks ] || fail it "it breaks"' 'summary'
program lost '# inputs: input nothing' '. tests/lib.sh' 'ok it' 'summary'
git -C "$tree" init -q && git -C "$tree" add -A &&
    git -C "$tree" -c user.name=a -c user.email=a@b commit -q -m tests >"$tmp/git.log"
# In the tree, without what the run around this has told.
alone="env -u TEST_TOTALS -u TEST_SECONDS -u TEST_FAILURES -u VERIFIED -C $tree"
expect "what passes" 0 '^1 passed, 0 failed, 0 skipped$' $alone tests/run ./good
expect "a crash is a failure" 1 '^1 passed, 1 failed, 0 skipped$' $alone tests/run ./good ./crash
expect "a reason that is not in the list is a failure" 1 'not built .tests/skips' $alone tests/run ./unknown
expect "so is one of another machine" 1 '^0 passed, 1 failed, 1 skipped$' $alone tests/run ./lacking
touch "$tree/lacks"
expect "what this machine lacks is none" 0 '^0 passed, 0 failed, 1 skipped$' $alone tests/run ./lacking
expect "a failure ends a run at --" 1 '^ended early' $alone tests/run ./bad -- ./good
expect "but not before" 1 '^1 passed, 1 failed' $alone tests/run ./good ./bad
$alone TEST_SECONDS="$tmp/cost" tests/run ./works >"$tmp/works.log"
expect "CPU seconds are counted" 0 '^([1-9][0-9.]*|0[.][1-9]) [0-9]+ ./works$' cat "$tmp/cost"
printf '8 9 ./good\n80 90 ./works\n' >"$tree/tests/seconds"
order() { $alone JOBS=1 tests/run ./good ./bad ./works | sed -n 's/^== //p' | tr '\n' ' '; }
check "the longest begins, a new one counts as a minute" test "$(order)" = './works ./bad ./good '

# recorded: has a line. ran COMMAND...: the suite was run.
recorded() { grep -q '^./suite [0-9a-f]\{64\} [0-9]*$' "$tree/tests/verified"; }
not() { ! "$@"; }
ran() { $alone "$@" tests/run ./suite >"$tmp/ran.log"; grep -q '1 passed, 0 failed' "$tmp/ran.log"; }
# No commit of these draws the suite.
undrawn() {
    until $alone VERIFIED=use tests/run ./suite | grep -q '^verified'; do
        git -C "$tree" -c user.name=a -c user.email=a@b commit -q --allow-empty -m again || return 1
    done
}
: >"$tree/tests/verified"
touch "$tree/breaks"
expect "a suite that fails" 1 'FAIL it' $alone tests/run ./suite
check "writes no line" not recorded
rm "$tree/breaks"
check "without a line a suite is run" ran VERIFIED=use
check "one that passes writes its line" recorded
check "and is taken as verified" undrawn
check "by hand it runs" ran OF=nothing
check "as with VERIFIED=none" ran VERIFIED=none
check "another value of a variable runs it" ran VERIFIED=use OF_THE_SUITE=other
check "then it is verified with that value alone" ran VERIFIED=use
echo two >"$tree/input"
check "another input runs it" ran VERIFIED=use
echo '#' >>"$tree/suite"
check "and another text of the suite" ran VERIFIED=use
echo '#' >>"$tree/tests/lib.sh"
check "and another tests/lib.sh" ran VERIFIED=use
echo 'cxx = echo' >"$tree/build/config.ninja"
check "and another compiler" ran VERIFIED=use
check "the last of them is verified" undrawn
touch "$tree/breaks"
drawn() {
    for n in $(seq 200); do
        git -C "$tree" -c user.name=a -c user.email=a@b commit -q --allow-empty -m "$n"
        $alone VERIFIED=use tests/run ./suite >"$tmp/draw.log" || break
    done
    grep -q '^drawn' "$tmp/draw.log" && grep -q '^FAIL it' "$tmp/draw.log"
}
check "some commit draws it" drawn
expect "a pattern that fits no file is a failure" 1 'inputs: one of input nothing' $alone tests/run ./lost
summary
