#!/bin/sh
# test_cpus.sh -- the same bits on every CPU with fused multiply-add: small runs of a GPT-2, LSTM and Llama in fp32
# give the weights and curves whose sha256 stand in tests/golden/cpus.txt, by each instruction set of this machine, with
# 1 and 2 threads, with 1, 2 and 4 ranks and with ranks of several sets in one job.
#   tests/long/test_spec.sh                     by the specification
#   sh tests/scripts/test_cpus.sh --update      writes tests/golden/cpus.txt anew, by this machine's best set
. tests/lib.sh
golden=tests/golden/cpus.txt
# The shapes are no multiples of a vector's or a tile's size. A run takes an emulated CPU half a minute. Every sum of
# the three models' jobs is of one block; the jobs of few steps have longer ones (docs/arithmetic.md):
#   long      900 rows and 300 positions: products, biases, keys and queries; 72 channels: the sums along a row
#   few       4 rows: products with weight^T are sums along a row
#   chunks    61,634 rows: the head takes them in two chunks, the second of 2 rows
common="--dtype fp32 --data tests/golden/lines.txt --steps 50 --warmup-steps 5 --batch-size 1 --total-batch-size 144
    --replicas 4 --seq-len 36 --eval-every 25 --eval-steps 2 --sample-every 50 --max-tokens 40 --save-every 25 --keep 0"
short="--dtype fp32 --data tests/golden/lines.txt --warmup-steps 1 --layers 1 --heads 1 --lr 3e-3 --eval-every 0
    --sample-every 0"
job_of() {          # NAME
    case $1 in
        long) echo "$short --steps 4 --channels 72 --seq-len 300 --batch-size 3 --total-batch-size 1800 --replicas 2
            --dropout 0.1" ;;
        few) echo "$short --steps 4 --channels 72 --seq-len 2 --batch-size 2 --total-batch-size 8 --replicas 2" ;;
        chunks) echo "$short --steps 1 --channels 8 --seq-len 1 --batch-size 61634 --total-batch-size 61634" ;;
        gpt2) echo "$common --layers 2 --heads 2 --channels 48 --dropout 0.1 --lr 3e-3" ;;
        lstm) echo "$common --model lstm --layers 1 --channels 56 --optimizer sgd --lr 1" ;;
        llama) echo "$common --model llama --layers 2 --heads 2 --kv-heads 1 --channels 48 --optimizer muon
            --lr 3e-3" ;;
    esac
}
sets() {
    LOCKSTEP_ISA=none $train $common --out-dir "$tmp/none" 2>&1 | sed -n 's/.*want one this CPU has: //p' |
        head -n 1 | tr -d ,
}
with_fma() { case $1,$(uname -m),$train in portable,aarch64,*|portable,*,*aarch64*|avx*) ;; *) false ;; esac; }
# What a run gave: the weights' sha256, and that of its losses, norms, validation losses and samples.
bits() {            # OUT
    weights "$1" | cut -d ' ' -f 1
    {
        losses "$1"
        grep -E '"event":"(val|sample)"' "$1/metrics.jsonl" | sed 's/,"time".*//'
    } | sha256sum | cut -d ' ' -f 1
}
# ranks N COMMAND...: as N ranks that torchrun's variables join; rank r uses word r of $isa, in turn.
ranks() {
    n=$1; shift
    port=$((20000 + $$ % 10000)) pids=
    for r in $(seq 0 $((n - 1))); do
        set_of=$(echo $isa | cut -d ' ' -f $((r % $(echo $isa | wc -w) + 1)))
        env RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            LOCKSTEP_ISA=$set_of "$@" & pids="$pids $!"
    done
    worst=0
    for p in $pids; do wait $p || worst=$?; done
    return $worst
}
# gives JOB RANKS OPTIONS...: the run has the golden bits.
gives() {
    model=$1 n=$2; shift 2
    rm -rf "$tmp/out"
    ranks $n $train $(job_of $model) --out-dir "$tmp/out" "$@" >"$tmp/log" 2>&1 || { tail -n 3 "$tmp/log"; return 1; }
    got="$model $(bits "$tmp/out" | tr '\n' ' ')"
    grep -qxF "${got% }" $golden || { echo "got  $got"; grep "^$model " $golden; return 1; }
}

all=$(sets) jobs="chunks few long gpt2 lstm llama"
if [ "${1:-}" = --update ]; then
    isa=${all%% *}
    for model in $jobs; do
        ranks 1 $train $(job_of $model) --out-dir "$tmp/$model" >"$tmp/log" 2>&1 || { tail -n 3 "$tmp/log"; exit 1; }
        echo "$model" $(bits "$tmp/$model")
    done >"$tmp/golden"
    cp "$tmp/golden" $golden
    cat $golden
    exit
fi
fused=
for isa in $all; do if with_fma "$isa"; then fused="${fused:+$fused }$isa"; fi; done
[ -n "$fused" ] || skip_all "the golden bits" "this CPU has no fused multiply-add"
[ "${fused% *}" != "$fused" ] || skip "another set" "this CPU has only $fused"
# Whole runs by the specification, kernels/ref.cpp, with 1 and 2 ranks in turn.
by_spec() { gives "$@" && grep -q '^train_gpt .* | ref |' "$tmp/log"; }
if [ -n "${spec:-}" ]; then
    need build/train_gpt_ref
    train=$spec isa=$fused n=1
    for model in few long gpt2 lstm llama; do
        check "$model, kernels/ref.cpp, $n ranks" by_spec $model $n --threads 1
        n=$((3 - n))
    done
    give_up
fi
for model in $jobs; do
    threads=2
    for isa in $fused; do
        check "$model, $isa, --threads $threads" gives $model 1 --threads $threads
        threads=$((3 - threads))
    done
    isa=$fused
    case $model in
        chunks) counts= ;;          # one replica
        few|long) counts=2 ;;
        *) counts=${RANKS:-2 4} ;;
    esac
    for n in $counts; do check "$model, $n ranks: $isa" gives $model $n --threads 1; done
done

# The last run, from step 25 on by another set.
rm -r "$tmp/out/ckpt/step_00000050"
resumed() {
    LOCKSTEP_ISA=${fused##* } $train --resume "$tmp/out" >"$tmp/resume.log" 2>&1 || { cat "$tmp/resume.log"; return 1; }
    ! grep 'another device' "$tmp/resume.log" && [ "$(weights "$tmp/out" | cut -d ' ' -f 1)" = \
        "$(sed -n 's/^llama \([^ ]*\) .*/\1/p' $golden)" ]
}
check "resumed by ${fused##* }" resumed
differs() { ! gives gpt2 1 --seed 7 && sed 's/^got  //' "$tmp/check.log" | grep -q '^gpt2 [0-9a-f]* [0-9a-f]*'; }
check "another seed has other bits" differs
refused() {
    gives lstm 2 || grep 'rank 1: got device=cpu portable, .*, want device=cpu fma, .* as rank 0' "$tmp/log"
}
isa="${fused##* } portable"
with_fma portable || check "products that are rounded by themselves are refused" refused
summary
