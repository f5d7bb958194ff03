#!/bin/sh
# test_lists.sh -- all of the lists, and other shapes, give one rank's files and measured values by 2 and 4 ranks and
# after a resume.
. tests/cases.sh
values() { $train --help --device cpu | sed -n "s/^ *--$1 \([a-z0-9_|-]*\).*/\1/p" | tr '|' '\n'; }
each() { values "$1" | grep -vxE "${2:-}" | sed "s/^/--$1 /"; }     # OPTION [PATTERN]: what the other rows have, too
{
    each model
    each optimizer | sed 's/$/ --dropout 0.1/'
    each schedule cosine
    each loss cross-entropy
    each reduce 'nccl|ordered'
    each sampler lockstep
    each rows 'auto|join'
    cat <<'END'
--model llama --layers 2 --heads 4 --kv-heads 2 --mlp-size 48 --untied-head 1 --rope-factor 8 --lr 1e-2
--model qwen3 --layers 2 --heads 4 --kv-heads 2 --head-size 24 --window 5 --window-from 1 --dtype bf16 --lr 1e-2
--model lstm --layers 2 --dtype bf16 --lr 1e-2
--data tests/golden/lines.txt:0.7,README.md:0.3
END
} >"$tmp/rows"
check "--help has the lists" test "$(cut -d' ' -f1 "$tmp/rows" | sort -u | wc -l)" -ge 5
# Packed rows want documents.
mkdir "$tmp/texts"
sed 's/.*/{"text":"&"}/' tests/golden/lines.txt >"$tmp/texts/val.jsonl"
sed 60q "$tmp/texts/val.jsonl" >"$tmp/texts/a.jsonl"
sed 1,60d "$tmp/texts/val.jsonl" >"$tmp/texts/b.jsonl"
shape="--device cpu --threads 1 --data $tmp/texts --channels 64 --replicas 4 --seq-len 16 --batch-size 2"
shape="$shape --total-batch-size 256"
small="$shape --eval-every 4 --eval-steps 2 --sample-every 0 --audit-every 3 --warmup-steps 2 --steps 8 --save-every 4"
measurements=$(grep -v '^#' src/measure/list | paste -sd,)
# The members of train events whose names have a slash, behind the step.
measured() {
    sed -nE 's/^\{"event":"train","step":([0-9]*),[^/]*,("[a-z_]*\/.*),"time".*/\1 \2/p' "$tmp/$1/metrics.jsonl" |
        sort -u
}
alike() {
    same "$tmp/$1" "$tmp/$2" && [ "$(contents "$tmp/$1")" = "$(contents "$tmp/$2")" ] &&
        measured "$1" >"$tmp/a.measured" && measured "$2" | diff "$tmp/a.measured" -
}
# There are numbers of steps 0, 3 and 6, and the tensors' norms together are the gradient's.
all_measured() {
    measured first >"$tmp/lines"
    parts=$(echo "$measurements,activations/2" | tr , ' ')
    # A model without layers shows no residual stream.
    grep -q '"layers"' "$tmp/first/config.json" || parts=$(echo "$parts" | sed 's/activations[^ ]*//g')
    for part in $parts; do
        [ "$(grep -c "^[036] .*\"$part" "$tmp/lines")" -eq 3 ] || { echo "no $part"; return 1; }
    done
    losses "$tmp/first" >"$tmp/norms"
    ! grep -oE '"(grad_norm|activations)/[^:]*":(null|0[,}])' "$tmp/lines" | grep -v experts &&
        awk 'FILENAME == ARGV[1] { norm[$1] = $3; next }
        { sum = 0
            for (n = split($0, member, /[:,]/); n > 1; n--) if (member[n - 1] ~ /grad_norm/) sum += member[n] ^ 2
            off = sqrt(sum) / norm[$1] - 1
            if (off > 1e-6 || off < -1e-6) { print $0, norm[$1]; bad = 1 } }
        END { exit bad }' "$tmp/norms" "$tmp/lines"
}
by_ranks() { LOCKSTEP_BUCKET_UNITS=3 run "ranks_$1" $train --np "$1" --overlap on && alike first "ranks_$1"; }
resumed() {
    rm -rf "$tmp/ranks_4/ckpt/step_00000008" && $train --resume "$tmp/ranks_4" --np 2 && alike first ranks_4
}
while read -r row; do
    case $row in *--dtype*) plain="$small $row" ;; *) plain="$small --dtype fp32 $row" ;; esac
    # The row comes in place of the data of the others.
    case $row in --data*) plain=$(echo "$small --dtype fp32" | sed "s|--data [^ ]*|$row|") ;; esac
    job="$plain --measure $measurements --measure-every 3"
    rm -rf "$tmp/first" "$tmp"/ranks_?
    check "$row" run first $train
    check "$row: it is measured" all_measured
    case $row in *--lr*) check "$row: the loss falls" falls "$tmp/first" ;; esac
    for np in 2 4; do check "$row: --np $np" by_ranks $np; done
    check "$row: a resume from its middle" resumed
done <"$tmp/rows"
unmeasured() {
    job=$plain run unmeasured $train && same "$tmp/first" "$tmp/unmeasured" && [ -z "$(measured unmeasured)" ]
}
check "measurements change no bit" unmeasured
job="$shape --steps 2 --warmup-steps 0 --lr 1e30 --measure activations --measure-every 1"
blown_up() { run nan $train && measured nan >"$tmp/lines" && grep '^1 .*"activations/2":null' "$tmp/lines"; }
check "what is not finite is null" blown_up
# Negative control: another number of replicas is another sum.
job=$(echo $small | sed 's/--replicas 4/--replicas 2/')
other() { run two $train && job=$small run four $train && ! alike two four; }
check "other bits are noticed" other
summary
