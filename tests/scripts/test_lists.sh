#!/bin/sh
# test_lists.sh -- all of the lists, and other shapes, give one rank's files by 2 and 4 ranks and after a resume.
. tests/cases.sh
values() { $train --help --device cpu | sed -n "s/^ *--$1 \([a-z0-9_|-]*\).*/\1/p" | tr '|' '\n'; }
each() { values "$1" | grep -vxE "${2:-}" | sed "s/^/--$1 /"; }     # OPTION [PATTERN]: what the other rows have, too
{
    each model
    each optimizer | sed 's/$/ --dropout 0.1/'
    each schedule cosine
    each reduce 'nccl|ordered'
    each sampler lockstep
    cat <<'END'
--model llama --layers 2 --heads 4 --kv-heads 2 --mlp-size 48 --untied-head 1 --rope-factor 8 --lr 1e-2
--model qwen3 --layers 2 --heads 4 --kv-heads 2 --mlp-size 48 --head-size 24 --dtype bf16 --lr 1e-2
--model lstm --layers 2 --dtype bf16 --lr 1e-2
END
} >"$tmp/rows"
check "--help has the lists" test "$(cut -d' ' -f1 "$tmp/rows" | sort -u | wc -l)" -ge 4
# A mixture wants two files.
mkdir "$tmp/texts"
sed 60q tests/golden/lines.txt >"$tmp/texts/a.txt"
sed 1,60d tests/golden/lines.txt >"$tmp/texts/b.txt"
cp tests/golden/lines.txt "$tmp/texts/val.txt"
shape="--device cpu --threads 1 --data $tmp/texts --channels 64 --replicas 4 --seq-len 16 --batch-size 2"
shape="$shape --total-batch-size 256"
small="$shape --eval-every 4 --eval-steps 2 --sample-every 0 --audit-every 3 --warmup-steps 2 --steps 8 --save-every 4"
alike() { same "$tmp/$1" "$tmp/$2" && [ "$(contents "$tmp/$1")" = "$(contents "$tmp/$2")" ]; }
by_ranks() { LOCKSTEP_BUCKET_UNITS=3 run "ranks_$1" $train --np "$1" --overlap on && alike first "ranks_$1"; }
resumed() {
    rm -rf "$tmp/ranks_4/ckpt/step_00000008" && $train --resume "$tmp/ranks_4" --np 2 && alike first ranks_4
}
while read -r row; do
    case $row in *--dtype*) job="$small $row" ;; *) job="$small --dtype fp32 $row" ;; esac
    rm -rf "$tmp/first" "$tmp"/ranks_?
    check "$row" run first $train
    case $row in *--lr*) check "$row: the loss falls" falls "$tmp/first" ;; esac
    for np in 2 4; do check "$row: --np $np" by_ranks $np; done
    check "$row: a resume from its middle" resumed
done <"$tmp/rows"
# Negative control: another number of replicas is another sum.
job=$(echo $small | sed 's/--replicas 4/--replicas 2/')
other() { run two $train && job=$small run four $train && ! alike two four; }
check "other bits are noticed" other
summary
