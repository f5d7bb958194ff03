#!/bin/sh
# test_docs.sh -- what documents promise about files and commands.
# first
. tests/cases.sh

# The commands of docs/reproducibility.md, as they stand there, in a folder of their own.
ln -s "$train" "$tmp/train_gpt"
sh_block docs/reproducibility.md >"$tmp/commands"
commands() { (cd "$tmp" && sh -eu "$1"); }
check "docs/reproducibility.md has commands" grep -q 'train_gpt --resume' "$tmp/commands"
check "they find the same bits" commands "$tmp/commands"
# Negative controls: a step that has another loss, a checkpoint with another bit.
sed -n '/^losses/,$p' "$tmp/commands" >"$tmp/comparison"
check "the comparison alone" commands "$tmp/comparison"
differs() { ! commands "$tmp/comparison"; }
cp "$tmp/runs/again/metrics.jsonl" "$tmp/kept"
sed -i 's/\("step":15,"loss":[0-9.]*\)[0-9],/\10,/' "$tmp/runs/again/metrics.jsonl"
check "another digit of one loss is seen" differs
mv "$tmp/kept" "$tmp/runs/again/metrics.jsonl"
printf x >>"$tmp/runs/four/ckpt/step_00000020/optim.safetensors"
check "another byte of a checkpoint is seen" differs

# Those of docs/ddp_in_an_hour.md, which end if two runs that should have the same bytes do not; on a port of our own.
mkdir -p "$tmp/hour" && ln -s "$train" "$tmp/hour/train_gpt"
sh_block docs/ddp_in_an_hour.md | sed "s/29500/$((20000 + $$ % 10000))/" >"$tmp/hour.sh"
check "DDP in an hour compares five times" test "$(grep -c '^cmp ' "$tmp/hour.sh")" -eq 5
check "its commands do what it says" env -C "$tmp/hour" timeout 600 sh -eu "$tmp/hour.sh"
sed 's/ --np 2$/ --np 2 --seed 3/' "$tmp/hour.sh" | sed '/^cmp/q' >"$tmp/other.sh"
others_differ() { ! env -C "$tmp/hour" sh -eu "$tmp/other.sh"; }
check "other weights are noticed" others_differ
need build/bench/dp_vs_ddp
if [ -x build/bench/dp_vs_ddp ]; then
    expect "DataParallel beside DDP" 0 'the same 3 losses, bit for bit' build/bench/dp_vs_ddp 2 --layers 1 --heads 2 \
        --channels 32 --steps 3
else skip "DataParallel beside DDP" "bench/dp_vs_ddp.cpp is not built"; fi

# The guide's lines for Weights & Biases, on the run that was resumed and so logged steps twice.
mkdir -p "$tmp/guide/runs" && cp -r "$tmp/runs/again" "$tmp/guide/runs/base"
awk '/^```python$/ { inside = 1; next } /^```$/ { inside = 0 } inside' docs/guide.md >"$tmp/guide/log.py"
kept() { cat "$tmp"/guide/wandb/offline-run-*/*.wandb | grep -ao "$1" | wc -l; }    # it writes a key twice
python=$(for p in "${PYTHON:-python3}" "$PWD/build/venv/bin/python"; do
    "$p" -c "import wandb" 2>/dev/null && echo "$p" && break
done)
if [ "$python" ]; then
    expect "the log goes to Weights & Biases" 0 'val/loss' env -C "$tmp/guide" WANDB_SILENT=false "$python" log.py
    check "each step once" test "$(kept train/loss) $(kept val/loss)" = "40 4"
else skip "the guide's lines for wandb" "no Python with wandb"; fi

# Every file that a page names in backquotes with its folder is there, every link leads somewhere.
named() {
    grep -oE '`(src|models|kernels|optimizers|data|learn|tools|tests|bench|docs|recipes)/[A-Za-z0-9_./-]*\.[a-z]+`' \
        "$1" | tr -d '`'
    grep -oE '\]\([A-Za-z0-9_./-]+\)' "$1" | sed "s|](\(.*\))|$(dirname "$1")/\1|"
}
missing() {
    named "$1" | while read -r file; do [ -e "$file" ] || git ls-files | grep -q "/$file$" || echo "no $file"; done
}
names_what_is() { [ -n "$(named "$1")" ] && [ -z "$(missing "$1")" ] || { missing "$1"; return 1; }; }
for page in README.md CONTRIBUTING.md docs/*.md learn/*.md; do
    case $page in docs/options.md|docs/scaling.md) continue ;; esac         # written by programs, name no files
    check "$page names files that are there" names_what_is "$page"
done
echo 'See `src/ddp/none.h`.' >"$tmp/page.md"
check "a file that is not there is noticed" test -n "$(missing "$tmp/page.md")"
# These two name functions, too; these are PyTorch's.
theirs='^(_sync_module_states|init_process_group|register_comm_hook|set_epoch)$'
unknown() {
    for name in $(grep -ohE '`[a-z_]+_[a-z_]+`' docs/ddp.md docs/reading.md | tr -d '`' | sort -u |
        grep -vE "$theirs"); do
        grep -rqw "$name" src kernels models train_gpt.cu || echo "$name"
    done
}
check "docs/ddp.md and docs/reading.md name functions that are there" test -z "$(unknown)"
workflow() {
    "$python" -c 'import sys, yaml; jobs = yaml.safe_load(open(sys.argv[1]))["jobs"]
assert any("./run.sh test" in step.get("run", "") for job in jobs.values() for step in job["steps"])' "$1"
}
find_python yaml "the workflow's YAML"
check "the workflow runs the README's test command" workflow .github/workflows/test.yml
summary
