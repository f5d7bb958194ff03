#!/bin/sh
# test_run_sh.sh -- run.sh on machines made of stand-ins: a folder of programs is the whole PATH.
. tests/lib.sh
project="$tmp/a project"
args='printf "%s|" "$@"; echo'

# program FOLDER NAME BODY: an executable script.
program() { printf '#!/bin/sh\n%s\n' "$3" >"$1/$2"; chmod +x "$1/$2"; }

# machine NAME UID: a machine with the usual small tools, neither compiler nor ninja. Its programs write to NAME.log.
machine() {
    m="$tmp/$1"; log="$tmp/$1.log"
    mkdir -p "$m"; : >"$log"
    for tool in sh dirname readlink cat grep sed date find mkdir mktemp rm tail printf touch chmod; do
        ln -s "$(command -v $tool 2>/dev/null || echo /usr/bin/$tool)" "$m/$tool" 2>/dev/null
    done
    program "$m" id "echo $2"
    rm -rf "$project"; mkdir -p "$project"
    cp run.sh "$project/run.sh"
    program "$project" configure "cd \"\$(dirname \"\$0\")\"; mkdir -p build; echo configure >>'$log'
: >build/config.ninja"
}
# A ninja that builds a train_gpt which prints its folder and arguments.
ninja_body() {
    cat <<EOF
[ "\$1" = -C ] && cd "\$2" && shift 2
if [ "\$1" = -n ]; then [ -x train_gpt ] && echo 'ninja: no work to do.'; exit 0; fi
echo "ninja \$*" >>'$log'
[ ! -e broken ] || { echo 'error: it does not compile'; exit 1; }
[ -n "\$*" ] || { printf '#!/bin/sh\necho in "\$(pwd)"\n%s\nexit 7\n' '$args' >train_gpt; chmod +x train_gpt; }
EOF
}
with_tools() { program "$m" g++ 'exit 0'; program "$m" ninja "$(ninja_body)"; }
# An apt-get that writes down its arguments and brings g++ and ninja.
with_apt() {
    program "$m" apt-get "echo apt-get \$* >>'$log'; [ ! -e '$tmp/no-network' ] || { echo 'E: no network'; exit 100; }
case \"\$*\" in *ninja-build*) cp '$tmp/ninja.body' '$m/ninja'; cp '$tmp/ninja.body' '$m/g++' ;; esac"
    ln -s "$(command -v cp)" "$m/cp"
    program "$tmp" ninja.body "$(ninja_body)"
}
# `on ARGUMENTS`: run.sh on the machine made last, started in $where (the project's folder).
program "$tmp" on 'cd "${where:-$project}" && PATH="$m" exec "$project/run.sh" "$@"'
on() { "$tmp/on" "$@"; }
export m project
unset CXX

# ---- all there: build, run, pass arguments and exit code on
machine ready 1000; with_tools
mkdir "$tmp/else where"
out=$(where="$tmp/else where" on --data 'my file.txt' '' --lr=1 2>"$tmp/err"); code=$?
want="in $tmp/else where
--data|my file.txt||--lr=1|"
equals() { [ "$1" = "$2" ] || { echo "got $1"; return 1; }; }
check "arguments, folder and exit code" equals "$code $out" "7 $want"
check "says how long the build took" grep -q 'built in [0-9]* s' "$tmp/err"
check "nothing but that" test "$(wc -l <"$tmp/err")" -eq 2
check "configured once, built once" test "$(tr '\n' ' ' <"$log")" = "configure ninja  "
out=$(on --help 2>"$tmp/err")
check "a second start builds nothing and says nothing" equals "$out$(cat "$tmp/err")" "in $project
--help|"
check "and does not configure" test "$(grep -c configure "$log")" -eq 1
sleep 1; touch "$project/configure"; on >/dev/null 2>&1
check "a newer configure is run again" test "$(grep -c configure "$log")" -eq 2
ln -s "$project/run.sh" "$tmp/link"
out=$(cd / && PATH="$m" "$tmp/link" x)
check "through a symbolic link" equals "$out" "in /
x|"

# ---- a build that fails
machine broken 1000; with_tools; : >"$project/broken"
expect "a failing build is shown" 1 'error: it does not compile' "$tmp/on"
machine badconfig 1000; with_tools; program "$project" configure 'echo "configure: too old a compiler"; exit 3'
expect "a failing configure is shown" 1 'too old a compiler' "$tmp/on"

# ---- missing tools
machine fresh 0; with_apt
out=$(on --seed 1 2>"$tmp/err"); code=$?
check "root on Debian: installs" equals "$code $(head -n 2 "$log" | tr '\n' ';')" \
    "7 apt-get update;apt-get install -y --no-install-recommends g++ ninja-build;"
check "and says what" grep -q 'installing g++ ninja-build' "$tmp/err"
machine offline 0; with_apt; : >"$tmp/no-network"
expect "no network" 1 'could not install g\+\+ ninja-build; try: apt-get update && apt-get install -y g\+\+ ' "$tmp/on"
check "apt's own words" grep -q 'E: no network' "$tmp/expect.log"
rm "$tmp/no-network"
machine user 1000; with_apt
expect "not root: one line to type" 1 '^sudo apt-get update && sudo apt-get install -y g\+\+ ninja-build$' "$tmp/on"
check "and nothing was installed" test ! -s "$log"
machine only_ninja 1000; with_apt; program "$m" clang++ 'exit 0'
expect "only what is missing" 1 '^sudo apt-get update && sudo apt-get install -y ninja-build$' "$tmp/on"
for other in 'dnf:dnf install -y gcc-c\+\+ ninja-build' 'pacman:pacman -S --needed gcc ninja' \
    'zypper:zypper install -y gcc-c\+\+ ninja' 'apk:apk add g\+\+ linux-headers ninja-is-really-ninja'; do
    machine "other_${other%%:*}" 1000; program "$m" "${other%%:*}" 'exit 0'
    expect "${other%%:*}: its own line" 1 "^sudo ${other#*:}\$" "$tmp/on"
done
machine bare 0
expect "no package manager" 1 'g\+\+ ninja-build' "$tmp/on"
machine cxx 1000; with_tools
expect "CXX that is not there" 1 'CXX=nowhere-c\+\+: not found' env CXX=nowhere-c++ PATH="$m" "$project/run.sh"

# ---- test
machine tests 1000; with_tools
on test >"$tmp/out" 2>"$tmp/err"
check "test runs ninja test" grep -qx 'ninja test' "$log"
check "and says which extras are not here" grep -q 'openmpi-bin iproute2' "$tmp/err"
machine extras 0; with_tools; with_apt
on test >/dev/null 2>&1
check "root: test extras are installed" grep -q 'install -y --no-install-recommends openmpi-bin iproute2' "$log"
machine no_extras 0; with_tools; with_apt; : >"$tmp/no-network"
expect "without them the tests run all the same" 0 'will be skipped' "$tmp/on" test
check "indeed" grep -qx 'ninja test' "$log"

# ---- the version in a program, of real files, compiled by a stand-in that keeps what it is given to read
command -v git >/dev/null && command -v ninja >/dev/null || skip_all "the version in a program" "no git or no ninja"
unset GIT_DIR
tree="$tmp/a tree"
mkdir -p "$tree"
cp -r build.ninja configure src kernels models optimizers data tools bench tests train_gpt.cu "$tree"
program "$tmp" c++ 'case "$1" in -dumpmachine) echo x86_64 ;; --version) echo stand-in ;; esac
in=/dev/null
while [ $# -gt 0 ]; do case "$1" in -o) out=$2 ;; -) in=- ;; esac; shift; done
[ -z "${out:-}" ] || cat $in >"$out"
case "${out:-}" in *make_stories)
    echo "cd \$1 && touch stories.json stories_train.jsonl stories_val.jsonl questions.jsonl" >"$out"
    chmod +x "$out" ;;
*/prep)
    echo "into=\${2#--into=} && mkdir -p \$into && touch \$into/manifest.json" >"$out"
    chmod +x "$out" ;;
esac'
git_in_tree() { git -C "$tree" -c user.name=x -c user.email=x -c init.defaultBranch=main "$@"; }
build_tree() { ninja -C "$tree" train_gpt; }
version_is() {
    build_tree && grep -F "(${1:-$(git_in_tree describe --always --dirty)})" "$tree/train_gpt" &&
        build_tree | grep 'no work to do'
}
configure_tree() { (cd "$tree" && env -u EXTRA CXX="$tmp/c++" NVCC= ./configure) >"$tmp/configure.log" 2>&1; }
printf 'build/\n/train_gpt\n' >"$tree/.gitignore"
git_in_tree init -q && git_in_tree add . && git_in_tree commit -qm one && configure_tree
check "the version is the commit's" version_is
sleep 1; echo '// more' >>"$tree/train_gpt.cu"
check "and that something was changed since" version_is
check "dirty" grep -q -- -dirty "$tree/train_gpt"
touch "$tree/tools/plot.cpp"
check "a changed tool is no reason to run configure" sh -c "! ninja -C '$tree' train_gpt | grep -E 'configure|tools'"
git_in_tree commit -qam two
check "and the next commit's" version_is

rm -rf "$tree/.git" && touch "$tree/src/app/main.cpp"
check "without git" env GIT_CEILING_DIRECTORIES="$tmp" ninja -C "$tree" train_gpt
check "which it says" grep -F '(no git)' "$tree/train_gpt"
configure_tree
check "nor configured with it" version_is 'no git'
summary
