#!/bin/sh
# test_cli.sh -- the program as its users type it: commands, mistakes, exit codes, what a run leaves behind.
. tests/lib.sh
tools=${TOOLS:-build}
lines=tests/golden/lines.txt
small="--layers 1 --heads 2 --channels 16 --seq-len 16 --batch-size 2 --total-batch-size 64"
tiny="$small --steps 4 --warmup-steps 1 --lr 1e-3 --sample-every 0"

# ---- a run and what it leaves
out=$tmp/run
expect "a run" 0 '^done ' $train $tiny --data $lines --out-dir "$out" --save-every 2 --eval-every 2 --eval-steps 2
check "its folder" test -s "$out/config.json" -a -s "$out/metrics.jsonl" -a "$(cat "$out/ckpt/latest")" = step_00000004
check "config.json, an option a line, as they turned out" sh -c "grep -q '^  \"vocab_size\": 257,\$' '$out/config.json' && grep -q '^  \"device\": \"cpu\",\$' '$out/config.json' && python3 -m json.tool '$out/config.json'"
check "its checkpoint" sh -c "cd '$out/ckpt/step_00000004' && ls DONE model.safetensors config.json tokenizer.json optim.safetensors state.json"
fields() { head -n 40 "$out/metrics.jsonl" | grep '"event":"train"' | head -n 1 | grep -oE '"[a-z_]+":' | tr -d '":\n'; }
check "every train line has the promised fields" sh -c "for f in step loss lr grad_norm step_ms tok_s tokens mfu compute_ms comm_ms exposed_ms; do grep -q '\"event\":\"train\".*\"'\$f'\":' '$out/metrics.jsonl' || { echo \$f; exit 1; }; done"
check "a loss at step 0 near ln V" awk -F'"loss":' '/"event":"train","step":0,/ { split($2, a, ","); exit !(a[1] > 5.4 && a[1] < 5.7) }' "$out/metrics.jsonl"
expect "no second run in the folder" 2 'not empty; --resume goes on' $train $tiny --data $lines --out-dir "$out"
expect "--force overwrites" 0 '^done ' $train $tiny --data $lines --out-dir "$out" --force --save-every 2
expect "--steps may grow" 0 'step *5/6|done' $train --resume "$out" --steps 6
expect "but not below what is done" 2 '--steps: got 5, but the run is at step 6; give more' $train --resume "$out" --steps 5
expect "which is said before the warm-up" 2 '--steps: got 0, but the run is at step 6' $train --resume "$out" --steps 0
expect "the same again" 0 'finished: 6 steps' $train --resume "$out" --steps 6
expect "an identity option may not change" 2 'seed' $train --resume "$out" --seed 9 --steps 8
cp -r "$out" "$tmp/elsewhere"
if grep -q '"device":"cpu portable"' "$out/ckpt/step_00000006/state.json"; then skip "another instruction set" "this CPU has but the portable one"; else
    expect "another instruction set" 0 'resumed with another device: got cpu portable, the checkpoint was written by .*cpu ' env LOCKSTEP_ISA=portable $train --resume "$tmp/elsewhere" --steps 7
    check "is in the log" grep -q '"event":"warn".*another device: got cpu portable' "$tmp/elsewhere/metrics.jsonl"
fi
check "the same one is not spoken of" sh -c "! grep -q 'resumed with another' '$out/metrics.jsonl'"
expect "a path of the run's from another folder" 66 'lines.txt: .*the path is the run.s own.*or give --data' sh -c "cd '$tmp' && $train --resume '$out' --steps 8"
expect "a folder in use" 74 'in use' sh -c "LOCKSTEP_FAULT=rank=0,step=1,at=bwd,do=sleep:3 $train $tiny --data $lines --out-dir '$tmp/used' >/dev/null 2>&1 &
    sleep 1.5; $train $tiny --data $lines --out-dir '$tmp/used' --resume auto; code=\$?; wait; exit \$code"
mkdir "$tmp/linked" && echo mine >"$tmp/mine" && ln -s ../mine "$tmp/linked/.lock"
expect "a lock that is a link" 74 'cannot lock the run folder' $train $tiny --data $lines --out-dir "$tmp/linked"
check "leaves its target" grep -qx mine "$tmp/mine"

# Started in the same second they would have one name.
two_at_once() { (cd "$tmp" && mkdir at_once && cd at_once && { $train $tiny & other=$!; $train $tiny; one=$?; wait $other; } && [ $one -eq 0 ] && [ "$(ls runs | wc -l)" -eq 2 ]); }
check "two default runs at once have a folder each" two_at_once
expect "--elastic without --np" 2 '--elastic: has no effect without --np' $train $tiny --elastic
expect "--max-restarts without --np" 2 '--max-restarts: has no effect without --np' $train $tiny --max-restarts 5
expect "one rank that is lost" 0 'starting all 1 ranks again .1 of 3., from step_00000002' env LOCKSTEP_FAULT="rank=0,step=2,at=bwd,do=sleep:1,try=0;rank=0,step=3,at=bwd,do=kill,try=0" \
    $train $tiny --data $lines --np 1 --save-every 2 --out-dir "$tmp/one_rank"
cp $lines "$tmp/char.txt" && $train $tiny --tokenizer char --data "$tmp/char.txt" --out-dir "$tmp/char_changed" >"$tmp/log" 2>&1
echo '{|}~^' >>"$tmp/char.txt"
cp $lines "$tmp/grown.txt" && $train $tiny --data "$tmp/grown.txt" --out-dir "$tmp/grown" >"$tmp/log" 2>&1; head -c 3000 $lines >>"$tmp/grown.txt"
expect "eval says that the data changed" 0 'the validation data have changed' $train eval "$tmp/grown"
expect "the text for --tokenizer char changed" 2 'it learns them from the data: give those' $train --resume "$tmp/char_changed" --steps 6

expect "a start that is refused" 66 'nowhere' $train $tiny --data "$tmp/nowhere.txt" --out-dir "$tmp/refused"
check "leaves no folder" test ! -e "$tmp/refused"
expect "no steps" 0 '^--steps 0: nothing to train' $train $small --steps 0 --data $lines --out-dir "$tmp/refused"
check "leave no folder" test ! -e "$tmp/refused"
expect "a failed save is noticed where the next one is due" 0 'not saved: .* the next try is after step 4' env \
    LOCKSTEP_FAULT="rank=0,step=2,at=ckpt_write,do=sleep:1;rank=0,step=2,at=ckpt_write,do=eio" $train $small --data $lines --steps 6 --sample-every 0 --save-every 2 --out-dir "$tmp/eio"
expect "a fault at no point" 2 'unknown point "bwdd"; want one of fwd bwd' env LOCKSTEP_FAULT="rank=0,step=1,at=bwdd,do=kill" $train $tiny --data $lines --out-dir "$tmp/refused"
expect "a fault without a number" 2 'got "x", want a number' env LOCKSTEP_FAULT="rank=x,step=1,at=bwd,do=kill" $train $tiny --np 2 --data $lines --out-dir "$tmp/refused"
check "are refused before there is a folder" test ! -e "$tmp/refused"
expect "a fault where there is nothing to spoil" 2 'flip: got at=fwd, where there are no numbers' env \
    LOCKSTEP_FAULT="rank=0,step=1,at=fwd,do=flip:3" $train $tiny --data $lines --out-dir "$tmp/flip"
# two_ranks CODE OPTIONS...: each in a folder of its own, as on a host of its own, and both end with the code.
two_ranks() { (
    want=$1 pids=; shift
    for r in 0 1; do
        cd "$tmp/at/$r"
        RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 LOCKSTEP_HOST_ID=$r LOCKSTEP_SECRET=hush LOCKSTEP_JOB=$tmp \
            timeout 20 $train "$@" >"$tmp/at/$r.log" 2>&1 & pids="$pids $!"
    done
    for p in $pids; do wait $p; [ $? -eq $want ] || { cat "$tmp/at"/*.log; exit 1; }; done
) }
# Here the data are there for rank 0 alone.
refused_by_rank1() {
    rm -rf "$tmp/at" && mkdir -p "$tmp/at/0" "$tmp/at/1" && cp $lines "$tmp/at/0" && two_ranks 66 $tiny "$@" --data lines.txt &&
        [ ! -e "$tmp/at/0/out" ] && [ -z "$(ls "$tmp/at/0/runs" 2>/dev/null)" ]
}
check "a start that another rank refuses leaves no folder" refused_by_rank1 --out-dir out
check "nor one named by default" refused_by_rank1
# No host but rank 0's needs the run's folder: it has what all read, the tokenizer of --init among it.
elsewhere() { two_ranks 0 $tiny --save-every 2 --init "$tmp/char_changed" --data "$PWD/$lines" --out-dir out && two_ranks 0 --resume out --steps 6 && cat "$tmp/at/0.log" && ls "$tmp/at/0/out/ckpt/step_00000006"; }
check "a host without the run's folder goes on" elsewhere
$train $tiny --data $lines --out-dir "$tmp/lost" >"$tmp/log" 2>&1 && rm -rf "$tmp/lost/ckpt/step_"*
expect "a run whose checkpoints are gone does not start again" 65 'no checkpoint is there, but the run has saved some' $train --resume "$tmp/lost"
# Two that are started in one new folder: one gets it, and the other leaves it alone.
both() { $train $tiny --data $lines --out-dir "$tmp/both" >"$tmp/both.1" 2>&1 & one=$!; $train $tiny --data $lines --out-dir "$tmp/both" >"$tmp/both.2" 2>&1; two=$?
    wait $one; codes="$? $two"; case $codes in '0 74'|'74 0'|'0 2'|'2 0') test -d "$tmp/both/ckpt/step_00000004" ;; *) echo "$codes"; cat "$tmp/both.1" "$tmp/both.2"; return 1 ;; esac; }
for i in 1 2 3; do check "two starts in one folder, $i" both; rm -rf "$tmp/both"; done
$train $small --warmup-steps 1 --data $lines --out-dir "$tmp/unsaved" --save-every 0 --steps 100000 >"$tmp/log" 2>&1 & pid=$!
for i in $(seq 100); do [ -s "$tmp/unsaved/metrics.jsonl" ] && break; sleep 0.05; done
kill -KILL $pid; wait $pid 2>/dev/null
expect "a run that never saved goes on from its first step" 0 'nothing saved in .* starting at step 0' $train --resume "$tmp/unsaved" --steps 2
LOCKSTEP_FAULT="rank=0,step=1,at=bwd,do=nan;rank=0,step=5,at=bwd,do=nan" $train $small --sample-every 0 --steps 6 --data $lines --out-dir "$tmp/skips" --save-every 2 --keep 0 >"$tmp/log" 2>&1
check "a save that a skipped step is in the way of comes after the next one, and the last step's comes all the same" test \
    "$(ls "$tmp/skips/ckpt" | grep step | tr '\n' ' ')" = "step_00000003 step_00000004 step_00000006 "

mkdir "$tmp/bin" && ln -s "$(command -v "$train")" "$tmp/bin/train_gpt"
expect "through PATH it names a tool that is there" 0 "^ +$(readlink -f "$tools")/export $tmp/by_path --hf" sh -c "cd '$tmp' && PATH='$tmp/bin':\$PATH train_gpt $tiny --data '$PWD/$lines' --out-dir '$tmp/by_path'"

# ---- eval, sample
expect "eval" 0 '^val loss [0-9]+\.[0-9]{6}  bpb [0-9]+\.[0-9]{6}  tokens [0-9]+$' $train eval "$out"
check "of the run's own data it has no warning" sh -c "! $train eval '$out' 2>&1 | grep 'have changed'"
expect "eval of a checkpoint folder on a file" 0 '^val loss ' $train eval "$out/ckpt/step_00000004" --data $lines
expect "sample" 0 'the ' $train sample "$out" --prompt "the " --max-tokens 20 --seed 3
check "samples are a function of the seed" sh -c "[ \"\$($train sample '$out' --prompt a --max-tokens 30 --seed 4)\" = \"\$($train sample '$out' --prompt a --max-tokens 30 --seed 4)\" ]"
check "another seed, another sample" sh -c "[ \"\$($train sample '$out' --prompt a --max-tokens 30 --seed 4)\" != \"\$($train sample '$out' --prompt a --max-tokens 30 --seed 5)\" ]"
expect "a result that cannot be written" 74 'standard output' sh -c "$train eval '$out' >/dev/full"
expect "help of which one line is read" 0 'train_gpt' sh -c "$train --help | head -n 1"
expect "sample of nothing" 66 'missing|no such|not a|no ' $train sample "$tmp/nowhere"
mkdir "$tmp/no_tokenizer" && cp "$out"/ckpt/step_00000006/model.safetensors "$out"/ckpt/step_00000006/config.json "$tmp/no_tokenizer"
expect "eval of a folder without a tokenizer" 2 'without a tokenizer there are only tokens; give --tokenizer' $train eval "$tmp/no_tokenizer" --data $lines
check "to which one is given" sh -c "[ \"\$($train eval '$tmp/no_tokenizer' --data $lines --tokenizer byte)\" = \"\$($train eval '$out' --data $lines)\" ]"
$train $tiny --tokenizer char --data $lines --out-dir "$tmp/chars" >"$tmp/log" 2>&1
expect "but not any" 2 'tokenizer: got .* tokens, want 257 as the model has' $train eval "$tmp/no_tokenizer" --data $lines --tokenizer "$tmp/chars/ckpt/step_00000004/tokenizer.json"
expect "eval needs data outside a run" 2 'give --data' $train eval tests/golden/gpt2_tiny

# ---- start from a Hugging Face folder, from a run
expect "--init of a run" 0 '^done ' $train --init "$out" --data $lines --steps 2 --batch-size 2 --total-batch-size 64 --sample-every 0 --out-dir "$tmp/init"
expect "--init contradicted" 2 'channels: got 32, want 16' $train --init "$out" --channels 32 --data $lines --steps 2 --out-dir "$tmp/no"
expect "--init with a shorter context" 0 'context 8 of its 16' $train --init "$out" --seq-len 8 --data $lines --steps 1 --lr 1e-30 --batch-size 2 --total-batch-size 64 --sample-every 0 --out-dir "$tmp/short"
check "takes the first rows of the position table, all else as it is" python3 - "$out/ckpt/$(cat "$out/ckpt/latest")" "$tmp/short/ckpt/step_00000001" <<'EOF'
import json, sys
def tensors(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    n = int.from_bytes(data[:8], "little")
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
long, short = map(tensors, sys.argv[1:])
wpe = "transformer.wpe.weight"
assert len(short[wpe]) == 8 * 16 * 4 and long[wpe][:len(short[wpe])] == short[wpe] and long.keys() == short.keys()
assert all(long[k] == short[k] for k in long if k != wpe)
assert json.load(open(sys.argv[2] + "/config.json"))["n_positions"] == 8
EOF
expect "--init with a longer one" 2 'seq-len: got 32, want 16' $train --init "$out" --seq-len 32 --data $lines --steps 2 --out-dir "$tmp/no"
expect "--init with text of another vocabulary" 2 '257 tokens, want 67' $train --init tests/golden/gpt2_tiny --data $lines --steps 2 --batch-size 1 --total-batch-size 24 --out-dir "$tmp/no"
expect "--init of nothing" 66 'nowhere' $train --init "$tmp/nowhere" --steps 2 --out-dir "$tmp/no"

# ---- threads: what affinity, the launcher and the other ranks leave
few="--layers 1 --heads 2 --channels 16 --seq-len 16 --batch-size 1 --total-batch-size 128 --steps 1 --save-every 0 --eval-every 0 --sample-every 0 --data $lines --out-dir $tmp/threads --force"
cpus=$(nproc)
threads() { name=$1 count=$2; shift 2; expect "threads: $name" 0 "^train_gpt .*, $count threads? " "$@" $few; }
threads "all CPUs" "$cpus" $train
threads "ranks share them" $((cpus < 8 ? 1 : cpus / 8)) $train --np 8
threads "tied to one" 1 taskset -c "$(taskset -cp $$ | sed 's/.*[-, ]//')" $train
threads "as many as asked for" 3 $train --threads 3
expect "threads: too many are warned of" 0 "64 threads on $cpus CPUs" $train $few --threads 64
if [ "$cpus" -lt 2 ]; then skip "mpirun that binds" "one CPU"
elif ! command -v mpirun >/dev/null 2>&1; then skip "mpirun that binds" "no mpirun; on Debian: apt-get install openmpi-bin"
else
    expect "mpirun that binds is warned of" 0 "mpirun ties its ranks to 1 of $cpus CPUs" mpirun --allow-run-as-root --bind-to core -np 1 $train $few
    check "mpirun that does not is not" sh -c "mpirun --allow-run-as-root --bind-to none -np 1 $train $few >$tmp/free 2>&1 && ! grep 'ties its ranks' $tmp/free"
fi

# ---- mistakes: one line, before any work
mistake() { name=$1 code=$2 pattern=$3; shift 3; expect "$name" "$code" "$pattern" $train "$@" --out-dir "$tmp/mistake"
    [ ! -e "$tmp/mistake/ckpt" ] || fail "$name" "work was done"; rm -rf "$tmp/mistake"; }
mistake "a misspelt option" 2 'did you mean --steps' --stpes 3
mistake "another trainer's option" 2 'did you mean --seq-len' --block_size 3
mistake "not a number" 2 'lr' --lr fast
mistake "a missing file" 66 'nowhere.txt' --data "$tmp/nowhere.txt"
mistake "heads that do not divide" 2 'heads' --heads 3 --channels 64
mistake "a batch that does not divide" 2 'total-batch-size' --batch-size 3 --seq-len 16 --total-batch-size 100
CUDA_VISIBLE_DEVICES= mistake "no GPU, or no CUDA in this build" 2 'no GPU answers|not in this build' --device gpu
mistake "nccl on a CPU" 2 'nccl' --reduce nccl
: >"$tmp/empty.txt"; mistake "an empty file" 65 'empty' --data "$tmp/empty.txt"
printf 'short' >"$tmp/short.txt"; mistake "text shorter than a sequence" '65' 'token' --data "$tmp/short.txt"
gzip -c $lines >"$tmp/lines.gz"; mistake "gzip" 65 'gzip|gz' --data "$tmp/lines.gz"
head -c 100 /dev/urandom >"$tmp/odd.npy"; mistake "a broken .npy" 65 'npy' --data "$tmp/odd.npy"
mistake "a token beyond the vocabulary" 65 'vocabulary|token' --data tests/golden/gpt2_tiny/batch.bin --vocab-size 20 --seq-len 24 --batch-size 1 --total-batch-size 24 --steps 5 --layers 1 --heads 1 --channels 8
expect "an unwritable folder" 74 '/proc' $train --data $lines --out-dir /proc/nowhere
expect "a size without a rank" 2 'OMPI_COMM_WORLD_RANK' env OMPI_COMM_WORLD_SIZE=8 $train $tiny
expect "--version" 0 '^train_gpt ' $train --version
expect "--help" 0 '--total-batch-size' $train --help
check "docs/options.md is what docs/make_options.sh writes" sh -c "TRAIN_GPT='$train' docs/make_options.sh | sed '/^train_gpt [0-9]/d' | diff docs/options.md -"

# ---- damaged checkpoints
cp -r "$out" "$tmp/damaged"
newest=$(cat "$tmp/damaged/ckpt/latest")
printf 'X' | dd of="$tmp/damaged/ckpt/$newest/model.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
expect "a damaged checkpoint is passed over, aloud" 0 "warning.*$newest" $train --resume "$tmp/damaged" --steps 7
for d in "$tmp/damaged"/ckpt/step_*; do : >"$d/DONE"; done
expect "none whole" 65 'checkpoint' $train --resume auto --out-dir "$tmp/damaged" --steps 8

# ---- what is refused, or has nothing to do, changes nothing
cp -r "$out" "$tmp/kept"
expect "--force with missing data" 66 'nowhere' $train $tiny --force --out-dir "$tmp/kept" --data nowhere.txt
expect "--force with ranks that do not divide" 2 'start 1, 2' $train $tiny --force --out-dir "$tmp/kept" --data $lines --np 3
check "neither removed the run" sh -c "cmp '$out/metrics.jsonl' '$tmp/kept/metrics.jsonl' && diff -r '$out/ckpt' '$tmp/kept/ckpt'"
expect "--resume of a finished run" 0 'finished' $train --resume "$tmp/kept/" --lr 5
check "did not touch it" sh -c "cmp '$out/metrics.jsonl' '$tmp/kept/metrics.jsonl' && cmp '$out/config.json' '$tmp/kept/config.json'"
expect "a run of five bad steps saves none of them" 1 'without a finite gradient' $train $small --steps 40 --sample-every 0 --eval-every 0 --data $lines --out-dir "$tmp/bad" --lr 1e30 --grad-clip 0 --save-every 1 --force
check "its only checkpoint is from before them" test "$(ls "$tmp/bad/ckpt" | tr '\n' ' ')" = 'latest step_00000001 '

# ---- going on with what the run began with
expect "bf16 on a CPU" 0 '^done ' $train $small --data $lines --dtype bf16 --steps 4 --save-every 2 --sample-every 0 --out-dir "$tmp/bf16"
check "goes on in bf16" sh -c "rm -r '$tmp/bf16/ckpt/step_00000004' && cp '$tmp/bf16/metrics.jsonl' '$tmp/bf16.jsonl' && $train --resume '$tmp/bf16' && [ \"\$(grep '\"step\":3,' '$tmp/bf16.jsonl' | cut -d, -f3)\" = \"\$(grep '\"step\":3,' '$tmp/bf16/metrics.jsonl' | tail -n 1 | cut -d, -f3)\" ]"
dtype_of() { sed -n 's/.*"dtype": *"\([a-z0-9]*\)".*/\1/p' "$1/config.json" | head -n 1; }
check "its config says bf16" test "$(dtype_of "$tmp/bf16")" = bf16
expect "and not in fp32" 2 'dtype' $train --resume "$tmp/bf16" --steps 8 --dtype fp32
expect "--dtype auto is the run's own" 0 '^done ' $train --resume "$tmp/bf16" --steps 6 --dtype auto
for other in fp32 bf16; do
    [ $other = bf16 ] || $train $small --data $lines --dtype $other --steps 4 --sample-every 0 --out-dir "$tmp/$other" >/dev/null 2>&1
    for typed in fp32 bf16; do $train eval "$tmp/$other" --dtype $typed >"$tmp/eval.$typed" 2>&1; done
    check "eval of an $other run computes in $other" sh -c "$train eval '$tmp/$other' | cmp - '$tmp/eval.$other' && ! cmp -s '$tmp/eval.fp32' '$tmp/eval.bf16'"
done
grep -qw amx_bf16 /proc/cpuinfo && natural=bf16 || natural=fp32
expect "--dtype auto" 0 '^done ' $train $small --data $lines --dtype auto --device cpu --steps 1 --sample-every 0 --save-every 0 --out-dir "$tmp/auto"
check "is $natural here" test "$(dtype_of "$tmp/auto")" = $natural
expect "--init with a tokenizer of its own" 0 '^done ' $train --data $lines --tokenizer char --steps 4 $small --out-dir "$tmp/char"
expect "a run from --init" 0 '^done ' $train --init "$tmp/char" --data $lines --steps 2 --save-every 2 --batch-size 2 --total-batch-size 64 --sample-every 0 --out-dir "$tmp/tuned"
expect "goes on with that tokenizer" 0 '^done ' $train --resume "$tmp/tuned" --steps 4
expect "a resumed run evaluates where it stopped" 0 '"event":"val","step":2' sh -c "rm -rf '$tmp/tuned/ckpt/step_00000004' && $train --resume '$tmp/tuned/ckpt/step_00000002' --eval-every 2 && tail -n 8 '$tmp/tuned/metrics.jsonl'"
check "data may move: their content is the identity" sh -c "cp $lines '$tmp/moved.txt' && $train --resume '$tmp/tuned' --data '$tmp/moved.txt' --steps 5"
expect "other data are refused" 2 'the data have changed' sh -c "sed 1d $lines >'$tmp/other.txt'; $train --resume '$tmp/tuned' --data '$tmp/other.txt' --steps 6"
check "closed descriptors do not become files of the run" sh -c "$train $tiny --data $lines --out-dir '$tmp/closed' <&- >&- 2>&-; ! grep -qv '^{' '$tmp/closed/metrics.jsonl'"
# A stop while the ranks are still starting ends the job: it is not a lost rank to start again.
stopped_early() { for ms in 2 5 8 12 16; do
    $train $tiny --steps 100000 --np 2 --data $lines --force --out-dir "$tmp/early" >"$tmp/early.log" 2>&1 & pid=$!
    sleep 0.0$(printf %02d $ms); kill -TERM $pid; wait $pid; code=$?
    ! grep -q 'starting all' "$tmp/early.log" && [ $code -ne 0 ] || { echo "after $ms ms: code $code"; cat "$tmp/early.log"; return 1; }
    done; }
check "a stop at start-up is no restart" stopped_early
stopped_by() {
    $train $small --data $lines --steps 1000000 --np 2 --sample-every 0 --eval-every 0 --out-dir "$tmp/by$1" >"$tmp/by.log" 2>&1 & pid=$!
    for i in $(seq 100); do grep -q '^step' "$tmp/by.log" && break; sleep 0.05; done
    kill -$1 $pid; wait $pid; code=$?
    cat "$tmp/by.log"; [ $code -eq 75 ] && grep -q "stopped on request (SIG$1) at step" "$tmp/by.log" && grep -q "stopped on request (SIG$1)" "$tmp/by$1/metrics.jsonl"
}
for signal in TERM USR1; do check "a stop names its signal: $signal" stopped_by $signal; done
# In a long step Ctrl-C is answered at once, and a second one ends it.
stopped_twice() {
    $train --layers 1 --heads 2 --channels 16 --seq-len 16 --batch-size 2 --total-batch-size 4194304 --steps 4 --data $lines --out-dir "$tmp/twice" >"$tmp/twice.log" 2>&1 & pid=$!
    for i in $(seq 100); do [ -s "$tmp/twice/metrics.jsonl" ] && break; sleep 0.05; done
    kill -TERM $pid; sleep 1.2; cat "$tmp/twice.log"; grep -q 'saving and stopping after this step' "$tmp/twice.log" || return 1
    kill -TERM $pid; wait $pid; code=$?
    cat "$tmp/twice.log"; [ $code -eq 1 ] && grep -q 'stopped at once, unsaved' "$tmp/twice.log"
}
check "a second request to stop does not wait" stopped_twice
# A long evaluation is broken off; it is not logged, and the resume does it from where the run was.
stopped_evaluating() {
    for i in $(seq 1500); do cat $lines; done >"$tmp/long.txt"
    $train $small --data $lines --val-data "$tmp/long.txt" --steps 4 --eval-every 2 --eval-steps 0 --save-every 0 --sample-every 0 --threads 1 --np 2 --out-dir "$tmp/evaluating" >"$tmp/evaluating.log" 2>&1 & pid=$!
    for i in $(seq 200); do grep -q '"step":1,' "$tmp/evaluating/metrics.jsonl" 2>/dev/null && break; sleep 0.05; done
    kill -TERM $pid; wait $pid; code=$?
    cat "$tmp/evaluating.log"; [ $code -eq 75 ] && [ "$(cat "$tmp/evaluating/ckpt/latest")" = step_00000002 ] && ! grep '"val"' "$tmp/evaluating/metrics.jsonl" || return 1
    $train --resume "$tmp/evaluating" --eval-steps 3 --save-every 4 && grep -q '"val","step":2,' "$tmp/evaluating/metrics.jsonl" && grep -q '"val","step":4,' "$tmp/evaluating/metrics.jsonl"
}
check "a stop during an evaluation" stopped_evaluating
# While ranks are missing there is nothing to save: a stop ends the process.
stopped_alone() {
    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 LOCKSTEP_JOB=alone$$ $train $tiny --data $lines --out-dir "$tmp/alone" >"$tmp/alone.log" 2>&1 & pid=$!
    sleep 0.5; kill -TERM $pid; sleep 0.5; ! kill -KILL $pid 2>/dev/null
}
check "a stop while ranks are missing" stopped_alone
# A full pipe behind stdout and stderr holds up neither the ranks nor their supervisor.
unread() {
    { timeout 0.2 cat /dev/zero
      LOCKSTEP_FAULT="rank=1,step=2,at=bwd,do=kill,try=0" $train $small --data $lines --steps 4 --sample-every 1 --np 2 --timeout 3 --out-dir "$tmp/unread" 2>&1
      echo $? >"$tmp/unread.code"; } | { for i in $(seq 200); do [ ! -s "$tmp/unread.code" ] || break; sleep 0.1; done; [ -s "$tmp/unread.code" ]; } || { echo "hangs"; return 1; }
    read -r code <"$tmp/unread.code"
    [ "$code" -eq 0 ] && grep -q '"event":"done".*"code":0,.*"restarts":1' "$tmp/unread/metrics.jsonl" || { echo "exit code $code"; tail -n 2 "$tmp/unread/metrics.jsonl"; return 1; }
}
check "output that nobody reads stops nothing" unread
# USR2 while a sample is written saves too.
saved_by_usr2() {
    $train $small --data $lines --tokenizer char --steps 4 --sample-every 2 --save-every 0 --max-tokens 100000 --out-dir "$tmp/usr2" >"$tmp/usr2.log" 2>&1 & pid=$!
    for i in $(seq 100); do grep -q '^sample' "$tmp/usr2.log" && break; sleep 0.05; done
    kill -USR2 $pid; sleep 0.3; kill -TERM $pid; wait $pid
    ls "$tmp/usr2/ckpt"/step_0000000[34] >/dev/null
}
check "a request to save during a sample is kept" saved_by_usr2

# ---- what a run would take, and where its time went
expect "--dry-run of a large model" 0 '48 layers x 25 heads x 1600 channels.* 1,477,611,200 parameters' $train --dry-run --preset gpt2-1558m --out-dir "$tmp/dry"
check "wrote nothing" test ! -e "$tmp/dry"
check "names the vocabulary of the published size" grep -q 'tokenizer byte; with --tokenizer gpt2, of 50,257, it has 1,557,611,200 parameters' "$tmp/expect.log"
expect "--dry-run of a batch that does not fit" 0 'it does not fit; it would with --recompute 3 --batch-size [0-9]+$' $train --dry-run --preset small --batch-size 524288 --total-batch-size 134217728
expect "--dry-run of a model that does not fit" 0 'it does not fit, nor with --recompute 3 --batch-size 1; take more' $train --dry-run --layers 20000 --heads 16 --channels 1024
activations() { $train --dry-run --preset small "$@" | sed -n 's/.*activations \([0-9]*\).*/\1/p'; }
less_memory() { set -- $(activations) $(activations --recompute 1) $(activations --recompute 3); echo "$@"; [ "$1" -gt "$2" ] && [ "$2" -gt "$3" ]; }
check "--recompute takes less memory" less_memory
expect "--trace" 0 '^done ' $train $tiny --data $lines --np 2 --out-dir "$tmp/traced" --trace "$tmp/trace.json"
check "is JSON with both tracks" python3 -c "import json; t = json.load(open('$tmp/trace.json')) + json.load(open('$tmp/trace.json.rank1')); assert {e['tid'] for e in t} == {'compute', 'communication', 'host'} and {e['pid'] for e in t} == {0, 1}"
expect "--trace to no folder" 74 'no/where/t.json' $train $tiny --data $lines --out-dir "$tmp/traced2" --trace no/where/t.json

expect "--selftest" 0 'slow link' $train --selftest --np 2
expect "--selftest of one rank" 0 'no road to measure' $train --selftest

# ---- tools
expect "info of a checkpoint" 0 'transformer.wte.weight' $tools/info "$out/ckpt/step_00000004/model.safetensors"
expect "export" 0 '' $tools/export "$out" --hf "$tmp/hf"
check "an exported folder evaluates alike" sh -c "[ \"\$($train eval '$out' --data $lines)\" = \"\$($train eval '$tmp/hf' --data $lines)\" ]"
expect "plot" 0 '' $tools/plot "$out" -o "$tmp/loss.svg"
expect "plot beside the run" 0 "^$out/loss.svg\$" $tools/plot "$out"
check "draws the same" cmp "$out/loss.svg" "$tmp/loss.svg"
rm -f "$out/loss.svg"
expect "plot beside a log" 0 "^$out/loss.svg\$" $tools/plot "$out/metrics.jsonl"
summary
