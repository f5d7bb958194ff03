#!/bin/sh
# test_cli.sh -- the program as its users type it: commands, mistakes, exit codes, what a run leaves behind.
. tests/cases.sh
train=$faulty
tools=${TOOLS:-build}
lines=tests/golden/lines.txt
small="--layers 1 --heads 2 --channels 16 --seq-len 16 --batch-size 2 --total-batch-size 64"
any="$small --steps 4 --warmup-steps 1 --lr 1e-3 --sample-every 0"
here="--data $lines"
tiny="$any $here"

# quietly OUT OPTIONS...: a run that is only the start of a test.
quietly() { into=$tmp/$1; shift; $train "$@" --out-dir "$into" >"$into.log" 2>&1; }
same_output() { [ "$(eval "$1")" = "$(eval "$2")" ]; }

# ---- a run and what it leaves
out=$tmp/run
expect "a run" 0 '^done ' $train $tiny --out-dir "$out" --save-every 2 --eval-every 2 --eval-steps 2
check "its folder" test -s "$out/config.json" -a -s "$out/metrics.jsonl" -a "$(cat "$out/ckpt/latest")" = step_00000004
check "config.json is JSON" python3 -m json.tool "$out/config.json"
check "with an option a line, as they turned out" grep -q '^  "vocab_size": 257,$' "$out/config.json"
check "its checkpoint" sh -c "cd '$out/ckpt/step_00000004' &&
    ls DONE model.safetensors config.json tokenizer.json optim.safetensors state.json"
expect "no second run in the folder" 2 'not empty' $train $tiny --out-dir "$out"
expect "--force overwrites" 0 '^done ' $train $tiny --out-dir "$out" --force --save-every 2
expect "--steps may grow, and a resume may measure" 0 '^done ' $train --resume "$out" --steps 6 --measure activations \
    --measure-every 5
check "which is logged" grep -q '"step":5,.*,"activations/0":[0-9.]*,"activations/1":' "$out/metrics.jsonl"
expect "less than is done is done" 0 'finished' $train --resume "$out" --steps 5
expect "an identity option may not change" 2 'seed' $train --resume "$out" --seed 9 --steps 8
cp -r "$out" "$tmp/elsewhere"
if grep -q '"device":"cpu portable, ' "$out/ckpt/step_00000006/state.json"; then
    skip "another instruction set" "this CPU has but the portable one"
else
    expect "another instruction set" 0 'another device' \
        env LOCKSTEP_ISA=portable $train --resume "$tmp/elsewhere" --steps 7
    check "is in the log" grep -q '"event":"warn".*another device' "$tmp/elsewhere/metrics.jsonl"
fi
check "the same one is not spoken of" lacks "$out/metrics.jsonl" 'another device'
expect "a path of the run's from another folder" 66 'give --data' sh -c "cd '$tmp' && $train --resume '$out' --steps 8"

# ---- folders: in use, linked, shared, refused
LOCKSTEP_FAULT=rank=0,step=1,at=bwd,do=sleep:3 quietly used $tiny & first=$!
await test -s "$tmp/used/metrics.jsonl"
expect "a folder in use" 74 'in use' $train $tiny --out-dir "$tmp/used" --resume auto
wait $first
mkdir "$tmp/linked" && echo mine >"$tmp/mine" && ln -s ../mine "$tmp/linked/.lock"
expect "a lock that is a link" 74 'lock' $train $tiny --out-dir "$tmp/linked"
check "leaves its target" grep -qx mine "$tmp/mine"
# Started in the same second they would have one name.
two_at_once() { (
    mkdir "$tmp/at_once" && cd "$tmp/at_once" || exit 1
    $train $any & other=$!
    $train $any && wait $other && [ "$(ls runs | grep -vcx last)" -eq 2 ]
) }
check "two default runs at once have a folder each" two_at_once
expect "--resume takes the newest run" 0 'finished' sh -c "cd '$tmp/at_once' && $train --resume"
expect "sample of no folder" 66 'no folder' $train sample ''
# Two that are started in one new folder: one gets it, and the other leaves it alone.
both() {
    $train $tiny --out-dir "$tmp/both" >"$tmp/both.1" 2>&1 & one=$!
    $train $tiny --out-dir "$tmp/both" >"$tmp/both.2" 2>&1; two=$?
    wait $one; codes="$? $two"
    case $codes in '0 74'|'74 0'|'0 2'|'2 0') test -d "$tmp/both/ckpt/step_00000004" && return ;; esac
    echo "$codes"; cat "$tmp/both.1" "$tmp/both.2"; return 1
}
for i in 1 2 3; do check "two starts in one folder, $i" both; rm -rf "$tmp/both"; done

expect "--elastic without --np" 2 '--elastic' $train $any --elastic
expect "--max-restarts without --np" 2 '--max-restarts' $train $any --max-restarts 5
lost="LOCKSTEP_FAULT=rank=0,step=2,at=bwd,do=sleep:1,try=0;rank=0,step=3,at=bwd,do=kill,try=0"
expect "one rank that is lost" 0 'step_00000002' env "$lost" $train $tiny --np 1 --save-every 2 --out-dir "$tmp/lost"
cp $lines "$tmp/char.txt"; quietly char_changed $any --tokenizer char --data "$tmp/char.txt"
echo '{|}~^' >>"$tmp/char.txt"
expect "the text for --tokenizer char changed" 2 'data' $train --resume "$tmp/char_changed" --steps 6
cp $lines "$tmp/grown.txt"; quietly grown $any --data "$tmp/grown.txt"; head -c 3000 $lines >>"$tmp/grown.txt"
expect "eval says that the data changed" 0 'changed' $train eval "$tmp/grown"

no_run() {          # NAME CODE PATTERN COMMAND...: it says so, and there is no folder of a run
    expect "$@" --out-dir "$tmp/refused"
    [ ! -e "$tmp/refused" ] || fail "$1" "it leaves a folder"
}
bad_fault="LOCKSTEP_FAULT=rank=0,step=1,at=bwdd,do=kill" no_number="LOCKSTEP_FAULT=rank=x,step=1,at=bwd,do=kill"
no_run "a start that is refused" 66 'nowhere' $train $any --data "$tmp/nowhere.txt"
no_run "no steps" 0 'nothing to train' $train $small --steps 0 $here
no_run "a fault at no point" 2 'bwdd' env $bad_fault $train $tiny
no_run "a fault without a number" 2 'cannot read' env $no_number $train $tiny --np 2

# ---- ranks with a folder of their own each, as on a host of its own: two_ranks CODE OPTIONS...
two_ranks() { (
    want=$1 pids=; shift
    for r in 0 1; do
        cd "$tmp/at/$r"
        RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 LOCKSTEP_HOST_ID=$r \
            LOCKSTEP_SECRET=hush LOCKSTEP_JOB=$tmp timeout 900 $train "$@" >"$tmp/at/$r.log" 2>&1 & pids="$pids $!"
    done
    for p in $pids; do wait $p; [ $? -eq $want ] || { cat "$tmp/at"/*.log; exit 1; }; done
) }
# Here the data are there for rank 0 alone.
refused_by_rank1() {
    rm -rf "$tmp/at" && mkdir -p "$tmp/at/0" "$tmp/at/1" && cp $lines "$tmp/at/0" &&
        two_ranks 66 $any "$@" --data lines.txt &&
        [ ! -e "$tmp/at/0/out" ] && [ -z "$(ls "$tmp/at/0/runs" 2>/dev/null)" ]
}
check "a start that another rank refuses leaves no folder" refused_by_rank1 --out-dir out
check "nor one named by default" refused_by_rank1
# No host but rank 0's needs the run's folder: it has what all read, the tokenizer of --init among it.
elsewhere() {
    two_ranks 0 $any --save-every 2 --init "$tmp/char_changed" $on_lines --out-dir out &&
        two_ranks 0 --resume out --steps 6 && cat "$tmp/at/0.log" && ls "$tmp/at/0/out/ckpt/step_00000006"
}
check "a host without the run's folder goes on" elsewhere
$train $small --warmup-steps 1 $here --out-dir "$tmp/unsaved" --save-every 0 --steps 100000 >"$tmp/log" 2>&1 & pid=$!
await test -s "$tmp/unsaved/metrics.jsonl"
kill -KILL $pid; wait $pid 2>/dev/null
expect "a run that never saved goes on from its first step" 0 'step 0' $train --resume "$tmp/unsaved" --steps 2
LOCKSTEP_FAULT="rank=0,step=1,at=bwd,do=nan;rank=0,step=5,at=bwd,do=nan" \
    quietly skips $small --sample-every 0 --steps 6 $here --save-every 2 --keep 0
check "a skipped step is not saved, unless it is the last one" test \
    "$(ls "$tmp/skips/ckpt" | grep step | tr '\n' ' ')" = "step_00000004 step_00000006 "
mkdir "$tmp/bin" && ln -s "$(command -v "$train")" "$tmp/bin/train_gpt"
expect "through PATH it names a tool that is there" 0 "^ +$(readlink -f "$tools")/export by_path --hf" \
    sh -c "cd '$tmp' && PATH='$tmp/bin':\$PATH train_gpt $any $on_lines --out-dir '$tmp/by_path'"

# ---- eval, sample
expect "eval" 0 '^val loss [0-9]+\.[0-9]{6}  bpb [0-9]+\.[0-9]{6}  tokens [0-9]+$' $train eval "$out"
check "of the run's own data it has no warning" lacks "$tmp/expect.log" changed
expect "eval of a checkpoint folder on a file" 0 '^val loss ' $train eval "$out/ckpt/step_00000004" $here
expect "sample" 0 'the ' $train sample "$out" --prompt "the " --max-tokens 20 --seed 3
sample="$train sample '$out' --prompt a --max-tokens 30 --seed"
check "samples are a function of the seed" same_output "$sample 4" "$sample 4"
different() { ! same_output "$@"; }
check "another seed, another sample" different "$sample 4" "$sample 5"
expect "a result that cannot be written" 74 'output' sh -c "$train eval '$out' >/dev/full"
expect "help of which one line is read" 0 'train_gpt' sh -c "$train --help | head -n 1"
expect "sample of nothing" 66 'nowhere' $train sample "$tmp/nowhere"
bare=$tmp/no_tokenizer
mkdir "$bare" && cp "$out"/ckpt/step_00000006/model.safetensors "$out"/ckpt/step_00000006/config.json "$bare"
expect "eval of a folder without a tokenizer" 2 '--tokenizer' $train eval "$bare" $here
check "to which one is given" same_output "$train eval '$bare' $here --tokenizer byte" "$train eval '$out' $here"
quietly chars $tiny --tokenizer char
expect "but not any" 2 '257' $train eval "$bare" $here --tokenizer "$tmp/chars/ckpt/step_00000004/tokenizer.json"
expect "eval needs data outside a run" 2 '--data' $train eval tests/golden/gpt2_tiny

# ---- the commands are lm's, to which train_gpt hands over
lm=$tools/lm_faults
for command in "sample '$out' --prompt a --seed 4 --max-tokens 30" "eval '$out' --np 2" "chat '$out' 2>&1"; do
    check "lm does the same: $command" same_output "$train $command" "$lm $command | sed 's/^lm: /train_gpt: /'"
done
expect "lm has help of its own" 0 '^  lm eval OUT' $lm --help
check "eval by ranks" same_output "$train eval '$out'" "$train eval '$out' --np 2"
if open_mpi; then
    check "by mpirun's ranks" same_output "$train eval '$out'" \
        "mpirun --allow-run-as-root --oversubscribe -np 2 $train eval '$out' --threads 1"
fi
# So are the other tools: without one it is said how to build it.
mkdir "$tmp/alone" && cp "$train" "$tmp/alone/train_gpt" && printf 'GGUF\3' >"$tmp/a.gguf"
while read -r tool words; do
    expect "without $tool: $words" 66 "^train_gpt: error: .*$tool: .*build it with: ninja build/$tool$" \
        "$tmp/alone/train_gpt" $words
done <<END
launch $any --np 2
prep $tiny --out-dir $tmp/alone/out
plan --dry-run --for h100
import $tiny --init $tmp/a.gguf
lm sample $out
lm eval $out --np 2
END
check "no folder is left" test ! -e "$tmp/alone/out"
mkdir "$tmp/kinds" && cp "$tmp/alone/train_gpt" "$tmp/kinds/train_gpt_mine" && printf '#!/bin/sh\necho "$0:" "$@"\n' |
    tee "$tmp/kinds/lm" >"$tmp/kinds/lm_mine" && chmod +x "$tmp"/kinds/lm*
expect "another program's lm has its name" 0 "/lm_mine: --threads 1 eval a b\$" \
    "$tmp/kinds/train_gpt_mine" --threads 1 eval 'a b'
rm "$tmp/kinds/lm_mine"
expect "or is lm" 0 '/lm: eval ' "$tmp/kinds/train_gpt_mine" eval "$out"
of_training() { nm -C "$1" | grep -oE ' (cpu::train|report_step|checkpoints_start)\(' | sort -u | wc -l; }
check "train_gpt has the training, and lm none" test "$(of_training "$train") $(of_training "$lm")" = "3 0"
of_lm() { nm -C "$1" | grep -oE ' cpu::(sample|chat|eval|Loaded::Loaded)\(| getchar@| getc@' | sort -u | wc -l; }
check "lm has the commands, and train_gpt none" test "$(of_lm "$lm")" -ge 5 -a "$(of_lm "$train")" -eq 0

# ---- start from a Hugging Face folder, from a run
batch="--batch-size 2 --total-batch-size 64 --sample-every 0"
expect "--init of a run" 0 '^done ' $train --init "$out" $here --steps 2 $batch --out-dir "$tmp/init"
init() {
    name=$1 code=$2 pattern=$3; shift 3
    expect "$name" "$code" "$pattern" $train --init "$@" --steps 2 --out-dir "$tmp/no"
}
init "--init contradicted" 2 'channels' "$out" --channels 32 $here
init "--init of another model's preset" 2 'preset' "$out" --preset gpt5 $here
init "--init with text of another vocabulary" 2 '257' tests/golden/gpt2_tiny $here --batch-size 1 --total-batch-size 24
init "--init of nothing" 66 'nowhere' "$tmp/nowhere"
expect "--init with a shorter context" 0 '^done ' \
    $train --init "$out" --seq-len 8 $here --steps 1 --lr 1e-30 $batch --out-dir "$tmp/short"
check "takes the first rows of the position table, all else as it is" python3 - \
    "$out/ckpt/$(cat "$out/ckpt/latest")" "$tmp/short/ckpt/step_00000001" <<'EOP'
import json, sys
def tensors(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    n = 8 + int.from_bytes(data[:8], "little")
    return {k: data[n + v["data_offsets"][0]:n + v["data_offsets"][1]]
            for k, v in json.loads(data[8:n]).items() if k != "__metadata__"}
long, short = map(tensors, sys.argv[1:])
wpe = "transformer.wpe.weight"
assert len(short[wpe]) == 8 * 16 * 4 and long[wpe][:len(short[wpe])] == short[wpe] and long.keys() == short.keys()
assert all(long[k] == short[k] for k in long if k != wpe)
assert json.load(open(sys.argv[2] + "/config.json"))["n_positions"] == 8
EOP

# ---- threads: what affinity, the launcher and the other ranks leave
few="--layers 1 --heads 2 --channels 16 --seq-len 16 --batch-size 1 --total-batch-size 128 --steps 1"
few="$few --save-every 0 $mute $here --out-dir $tmp/threads --force"
cpus=$(nproc)
threads() { name=$1 count=$2; shift 2; expect "threads: $name" 0 "^train_gpt .*, $count threads? " "$@" $few; }
threads "all CPUs" "$cpus" $train
threads "ranks share them" $((cpus < 8 ? 1 : cpus / 8)) $train --np 8
threads "tied to one" 1 taskset -c "$(taskset -cp $$ | sed 's/.*[-, ]//')" $train
threads "as many as asked for" 3 $train --threads 3
expect "threads: too many are warned of" 0 "64 threads" $train $few --threads 64
if [ "$cpus" -lt 2 ]; then skip "mpirun that binds" "one CPU"
elif ! open_mpi; then
    skip "mpirun that binds" "no mpirun of Open MPI; on Debian: apt-get install openmpi-bin"
else
    mpi="mpirun --allow-run-as-root -np 1"
    expect "mpirun that binds is warned of" 0 "ties its ranks" $mpi --bind-to core $train $few
    check "mpirun that does not is not" \
        sh -c "$mpi --bind-to none $train $few >$tmp/free 2>&1 && ! grep 'ties' $tmp/free"
fi

# ---- mistakes: one line, before any work
mistake() {
    name=$1 code=$2 pattern=$3; shift 3
    expect "$name" "$code" "$pattern" $train "$@" --out-dir "$tmp/mistake"
    [ ! -e "$tmp/mistake/ckpt" ] || fail "$name" "work was done"
    rm -rf "$tmp/mistake"
}
mistake "a misspelt option" 2 '--steps' --stpes 3
mistake "no such model" 2 'gpt2' --model gpt5
mistake "a missing file" 66 'nowhere.txt' --data "$tmp/nowhere.txt"
mistake "a preset's heads that do not divide" 2 'channels 32; --heads comes with --preset nano$' --channels 40
mistake "one's own heads that do not divide" 2 'try --channels 24$' --channels 36 --heads 3
CUDA_VISIBLE_DEVICES= mistake "no GPU, or no CUDA in this build" 2 'gpu' --device gpu
mistake "nccl on a CPU" 2 'nccl' --reduce nccl
: >"$tmp/empty.txt"; mistake "an empty file" 65 'empty' --data "$tmp/empty.txt"
mistake "a token beyond the vocabulary" 65 'token' --data tests/golden/gpt2_tiny/batch.bin --vocab-size 20 \
    --seq-len 24 --batch-size 1 --total-batch-size 24 --steps 5 --layers 1 --heads 1 --channels 8
expect "an unwritable folder" 74 '/proc' $train $here --out-dir /proc/nowhere
expect "a size without a rank" 2 'OMPI_COMM_WORLD_RANK' env OMPI_COMM_WORLD_SIZE=8 $train $any
# A shell that a launcher's variables are left in, and errors that only a later rank has.
expect "and needs none for help" 0 '--total-batch-size' env OMPI_COMM_WORLD_SIZE=8 WORLD_SIZE=4 $train --help
expect "for a plan" 0 'dry-run runs alone, without .*: launcher: WORLD_SIZE' env WORLD_SIZE=4 $train $any --dry-run
expect "for a sample" 0 'sample runs alone, without .*: RANK=1 WORLD_SIZE=2' env RANK=1 WORLD_SIZE=2 \
    $train sample "$out" --prompt a --max-tokens 3
far="env RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.255.255.1 MASTER_PORT=9"
expect "rank 1 says what it has no option for" 2 'rank 1.*: error: unknown option --stepz' $far $train $any --stepz 1
expect "that it has no secret" 2 'rank 1.*: error: no secret' $far $train $tiny --out-dir "$tmp/far"
expect "that it would start ranks itself" 2 'rank 1.*: error: --np 2' $far $train $any --np 2
expect "--version" 0 '^train_gpt ' $train --version
expect "--help" 0 '--total-batch-size' $train --help
expect "help of a topic" 0 '--val-data' $train help data
check "docs/options.md is what docs/make_options.sh writes" \
    sh -c "TRAIN_GPT='$train' docs/make_options.sh | diff docs/options.md -"

# ---- a folder that is no run
for file in config.json metrics.jsonl; do
    mkdir "$tmp/foreign_$file"
    echo '{"model_type": "gpt2", "loss": 3}' >"$tmp/foreign_$file/$file"
    cp -r "$tmp/foreign_$file" "$tmp/before_$file"
    expect "--resume auto overwrites no $file that is no run's" 2 "$file: got another program's" \
        $train $tiny --resume auto --out-dir "$tmp/foreign_$file"
    check "and changes nothing there" diff -r "$tmp/foreign_$file" "$tmp/before_$file"
done
mkdir "$tmp/empty" && echo job 1 >"$tmp/empty/slurm.log"
expect "one with a log begins" 0 '^done ' $train $tiny --resume auto --out-dir "$tmp/empty"
expect "and goes on" 0 '^done ' $train --resume auto --out-dir "$tmp/empty" --steps 5

# ---- what is refused, or has nothing to do, changes nothing
cp -r "$out" "$tmp/kept"
untouched() { cmp "$out/metrics.jsonl" "$tmp/kept/metrics.jsonl" && diff -r -x .lock "$out/$1" "$tmp/kept/$1"; }
expect "--force with missing data" 66 'nowhere' $train $any --force --out-dir "$tmp/kept" --data nowhere.txt
expect "--force with ranks that do not divide" 2 'ranks' $train $tiny --force --out-dir "$tmp/kept" --np 3
check "neither removed the run" untouched ckpt
expect "--resume of a finished run" 0 'finished' $train --resume "$tmp/kept/" --lr 5
check "did not touch it" untouched config.json

# ---- going on with what the run began with
quietly bf16 $small $here --dtype bf16 --steps 4 --save-every 2 --sample-every 0
dtype_of() { sed -n 's/.*"dtype": *"\([a-z0-9]*\)".*/\1/p' "$1/config.json" | head -n 1; }
check "its config says bf16" test "$(dtype_of "$tmp/bf16")" = bf16
expect "--dtype auto is the run's own" 0 '^done ' $train --resume "$tmp/bf16" --steps 6 --dtype auto
quietly fp32 $small $here --dtype fp32 --steps 4 --sample-every 0
for other in fp32 bf16; do
    for typed in fp32 bf16; do $train eval "$tmp/$other" --dtype $typed >"$tmp/eval.$typed" 2>"$tmp/log"; done
    check "eval of an $other run computes in $other" \
        sh -c "$train eval '$tmp/$other' | cmp - '$tmp/eval.$other' && ! cmp -s '$tmp/eval.fp32' '$tmp/eval.bf16'"
done
grep -qw amx_bf16 /proc/cpuinfo && natural=bf16 || natural=fp32
quietly auto $small $here --dtype auto --device cpu --steps 1 --sample-every 0 --save-every 0
check "--dtype auto is $natural here" test "$(dtype_of "$tmp/auto")" = $natural
quietly char $here --tokenizer char --steps 4 $small
expect "--init with a tokenizer of its own" 0 '^done ' \
    $train --init "$tmp/char" $here --steps 2 --save-every 2 $batch --out-dir "$tmp/tuned"
expect "goes on with that tokenizer" 0 '^done ' $train --resume "$tmp/tuned" --steps 4
cp $lines "$tmp/moved.txt"; sed 1d $lines >"$tmp/other.txt"
expect "data may move" 0 '^done ' $train --resume "$tmp/tuned" --data "$tmp/moved.txt" --steps 5
expect "other data are refused" 2 'began with' $train --resume "$tmp/tuned" --data "$tmp/other.txt" --steps 6
check "closed descriptors do not become files of the run" sh -c \
    "$train $tiny --out-dir '$tmp/closed' <&- >&- 2>&-; ! grep -qv '^{' '$tmp/closed/metrics.jsonl'"

# ---- requests to stop and to save
# A stop while the ranks are still starting ends the job: it is not a lost rank to start again.
stopped_early() {
    for ms in 2 5 8 12 16; do
        $train $small $here --steps 100000 --np 2 --force --out-dir "$tmp/early" >"$tmp/early.log" 2>&1 & pid=$!
        sleep 0.0$(printf %02d $ms); kill -TERM $pid; wait $pid; code=$?
        ! grep -q 'starting all' "$tmp/early.log" && [ $code -ne 0 ] ||
            { echo "after $ms ms: code $code"; cat "$tmp/early.log"; return 1; }
    done
}
check "a stop at start-up is no restart" stopped_early
# In a long step Ctrl-C is answered at once, and a second one ends it.
stopped_twice() {
    log=$tmp/twice.log
    $train ${small%64}4194304 --steps 4 $here --out-dir "$tmp/twice" >"$log" 2>&1 & pid=$!
    await test -s "$tmp/twice/metrics.jsonl"
    kill -TERM $pid; await grep -q 'saving' "$log" || return 1
    sleep 1.2; kill -TERM $pid
    ended_with 1 && grep -q 'unsaved' "$log"
}
check "a second request to stop does not wait" stopped_twice
# In the last step the save is done, and the resume scores; there is no empty sample.
stopped_at_the_end() {
    e=$tmp/at_the_end
    hold "$e.log" rank=0,step=3,at=bwd $train $small $here --steps 4 --lr 1e-3 --eval-every 2 --sample-every 2 \
        --out-dir "$e"
    kill -TERM $pid; await grep -q 'saving' "$e.log"
    release 75 && [ "$(cat "$e/ckpt/best") $(cat "$e/ckpt/latest")" = "step_00000002 step_00000004" ] &&
        $train --resume "$e" && [ "$(cat "$e/ckpt/best")" = step_00000004 ] || return 1
    at_step4=$(grep -oE '"(sample|val|done)","step":4,' "$e/metrics.jsonl" | cut -d'"' -f2 | sort -u | tr '\n' ' ')
    [ "$at_step4" = "done val " ]
}
check "a stop in the last step" stopped_at_the_end
# While ranks are missing there is nothing to save: a stop ends the process.
stopped_alone() {
    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 LOCKSTEP_JOB=alone$$ \
        $train $tiny --out-dir "$tmp/alone" >"$tmp/alone.log" 2>&1 & pid=$!
    sleep 0.5; kill -TERM $pid; sleep 0.5; ! kill -KILL $pid 2>/dev/null
}
check "a stop while ranks are missing" stopped_alone
# A full pipe behind stdout and stderr holds up neither the ranks nor their supervisor.
unread() {
    { timeout 0.2 cat /dev/zero
      LOCKSTEP_FAULT="rank=1,step=2,at=bwd,do=kill,try=0" $train $small $here --steps 4 --sample-every 1 --np 2 \
          --timeout 3 --out-dir "$tmp/unread" 2>&1
      echo $? >"$tmp/unread.code"; } | await test -s "$tmp/unread.code" || return 1
    read -r code <"$tmp/unread.code"
    [ "$code" -eq 0 ] && grep -q '"event":"done".*"code":0' "$tmp/unread/metrics.jsonl" ||
        { echo "exit code $code"; tail -n 2 "$tmp/unread/metrics.jsonl"; return 1; }
}
check "output that nobody reads stops nothing" unread
# USR2 while a sample is written saves too.
saved_by_usr2() {
    $train $small $here --tokenizer char --steps 4 --sample-every 2 --save-every 0 --max-tokens 100000 \
        --out-dir "$tmp/usr2" >"$tmp/usr2.log" 2>&1 & pid=$!
    await grep -q '^sample' "$tmp/usr2.log"
    kill -USR2 $pid; sleep 0.3; kill -TERM $pid; wait $pid
    ls "$tmp/usr2/ckpt"/step_0000000[34] >/dev/null
}
check "a request to save during a sample is kept" saved_by_usr2

# ---- what a run would take, and where its time went
plan() { name=$1 pattern=$2; shift 2; expect "--dry-run: $name" 0 "$pattern" $train --dry-run "$@"; }
plan "without data a preset has its model's vocabulary" '^model .* 1,557,611,200 parameters$' --preset gpt2-1558m \
    --out-dir "$tmp/dry"
check "wrote nothing" test ! -e "$tmp/dry"
plan "and says so" '^data .*none given; .* vocabulary 151936: ' --preset qwen2.5-0.5b
other='\(vocabulary 257, gpt2-124m has 50257\)'
plan "else the data's" "85,265,664 parameters $other" --preset gpt2-124m $here --seq-len 16
plan "or the tokenizer's" "86,039,808 parameters $other" --preset d12 --tokenizer byte
plan "or that of --vocab-size" '\(vocabulary 50257, smollm2-135m has 49152\)' --preset smollm2-135m --vocab-size 50257
plan "without a model's preset" '^data .* tokenizer none, vocabulary 50257: ' --preset nano --vocab-size 50257
expect "a run says it" 0 "$other" $train --preset gpt2-124m $tiny --out-dir "$tmp/named"
plan "and a resume" "$other" --resume "$tmp/named" --steps 8
plan "--init has its own" '^model .* parameters$' --init "$tmp/named"
# How many passes a run makes: over the stories, over fifty conversations.
awk 'BEGIN { for (i = 0; i < 50; i++) print "{\"prompt\":\"" i "?\",\"completion\":\"It is " i ".\"}" }' \
    >"$tmp/fifty.jsonl"
fifty="--data $tmp/fifty.jsonl --seq-len 64 --rows join"
plan "a part of the stories" '^data .* \| 0\.26 epochs$' --preset nano
check "is no warning" lacks "$tmp/expect.log" warning
for o in '' '--replicas 2' '--sampler torch' '--np 2' '--resume'; do
    set -- $fifty $o
    [ "$o" != --resume ] || { quietly fifty $fifty --layers 1 --channels 32 --steps 1 --sample-every 0
        set -- --resume "$tmp/fifty" --steps 480; }
    plan "few conversations ${o%% *}" 'warning: data: 668 epochs; .* --steps 3 for' "$@"
done
expect "a run says it" 0 'warning: data: 83 epochs; .* --steps 3 for' $train $fifty --layers 1 --channels 32 \
    --steps 60 --sample-every 0 --out-dir "$tmp/many"
check "its log, too" grep -q '"event":"warn".*83 epochs' "$tmp/many/metrics.jsonl"
# Losses that are not numbers are nan, whatever their sign.
expect "a NaN in a norm" 1 'norm of the gradient nan' $train $small $here --lr 1e15 --grad-clip 0 --warmup-steps 0 \
    --eval-every 2 --steps 8 --out-dir "$tmp/nans"
check "and in a loss" has "$tmp/expect.log" '^val.* nan'
check "has no sign" lacks "$tmp/expect.log" -nan
expect "--dry-run of a batch that does not fit" 0 'does not fit' \
    $train --dry-run --preset small --batch-size 524288 --total-batch-size 134217728
expect "--dry-run --verbose" 0 'wte' $train --dry-run --verbose
activations() { $train --dry-run --preset small "$@" | sed -n 's/.*activations \([0-9]*\).*/\1/p'; }
less_memory() {
    set -- $(activations) $(activations --recompute 1) $(activations --recompute 3)
    echo "$@"; [ "$1" -gt "$2" ] && [ "$2" -gt "$3" ]
}
check "--recompute takes less memory" less_memory

# ---- samples
expect "a sample that takes longer than --timeout" 0 '^done ' $train $small $here --steps 3 --sample-every 3 \
    --max-tokens 200000 --np 2 --threads 1 --timeout 2 --out-dir "$tmp/talkative"
says() { printf 'The \n' | $train sample "$out" --prompt - --max-tokens 8; }
check "a prompt from standard input" same_output says "$train sample '$out' --prompt 'The ' --max-tokens 8"
$train sample "$out" --samples 3 --seed 4 --max-tokens 8 >"$tmp/3"
check "there are three samples" test "$(grep -c '^---' "$tmp/3")" -eq 2
check "the first is the one" same_output "head -c 6 '$tmp/3'" "$train sample '$out' --seed 4 --max-tokens 8 | head -c 6"
mkdir "$tmp/home"
expect "runs/last is the last run" 0 '^done ' sh -c "cd '$tmp/home' && $train $any $on_lines &&
    [ -f runs/last/metrics.jsonl -a -L runs/last ] && $train --resume auto --steps 5"
program=$(realpath "$train")
expect "a finished run says which options had no effect" 0 'without effect on .*: --lr: got 0.007, the run has 0.001' \
    sh -c "cd '$tmp/home' && '$program' --resume auto --lr 7e-3"
mkdir "$tmp/bare"
expect "a first start without --out-dir" 66 'got runs/last, .* with --out-dir DIR it begins' \
    sh -c "cd '$tmp/bare' && '$program' --resume auto"

expect "a sequence as long as can be" 65 'want at least 2147483648 in' $train --seq-len 2147483647 --batch-size 1 \
    --device cpu
mkdir "$tmp/gone"
expect "a current folder that was deleted" 74 'cannot make folder: runs: No such file' \
    sh -c "cd '$tmp/gone' && rmdir '$tmp/gone' && '$program' --data . --device cpu"
mkdir "$tmp/gone"
expect "which a run with whole paths does not need" 0 '^done ' \
    sh -c "cd '$tmp/gone' && rmdir '$tmp/gone' && '$program' $any $on_lines --out-dir '$tmp/nowhere'"

# ---- tools
expect "info of a config" 0 'GPT-2 config: 1 layers' $tools/info "$out/ckpt/step_00000004/config.json"
expect "plot beside the run" 0 "^$out/loss.svg\$" $tools/plot "$out"
rm "$out/loss.svg"
expect "plot beside a log" 0 "^$out/loss.svg\$" $tools/plot "$out/metrics.jsonl"
while read -r tool typed meant; do
    expect "$tool suggests $meant" 2 "unknown option $typed; did you mean $meant\\?" $tools/$tool "$out" $typed 3
    expect "$tool knows no --zzzzzzzzzz" 2 'unknown option --zzzzzzzzzz; --help lists all' $tools/$tool --zzzzzzzzzz=3
    expect "$tool lists it" 0 "^  $meant " $tools/$tool --help
done <<END
prep --val_fraq --val-frac
export --ggfu --gguf
import --o -o
plan --forr --for
plot --smoth --smooth
report --srve --serve
tensorboard --folow --follow
END
expect "launch suggests, too" 2 'unknown option --max_restart; did you mean --max-restarts\?' \
    $tools/launch --max_restart=3 x
expect "underscores are dashes" 2 '^prep: error: --val-frac: got 2, want a number from 0 to 0.5$' \
    $tools/prep --val_frac 2
summary
