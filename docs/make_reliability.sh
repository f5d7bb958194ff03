#!/bin/sh
# make_reliability.sh [ROW...] -- writes the table of docs/reliability.md: what the tests print now, or, of rows that
# are not named (fuzz, failures, ...), the last commit's. Rows with network namespaces need root. FUZZ_SECONDS per
# reader (10; FUZZ_RUNS=0: what earlier runs counted), POINTS per kind of failure (12), SOAK_SECONDS (300), CUTS (200).
cd "$(dirname "$0")/.." || exit 1
export FUZZ_SECONDS="${FUZZ_SECONDS:-10}" SOAK_SECONDS="${SOAK_SECONDS:-300}" CUTS="${CUTS:-200}"
tmp=$(mktemp -d) rows=$* page=docs/reliability.md
log=$tmp/log
trap 'rm -rf "$tmp"' EXIT
# measure COMMAND...: its output in $log; its last line as the verdict, which is empty if nothing failed or was skipped.
measure() {
    "$@" >"$log" 2>&1
    verdict=$(sed -n 's/^tests: /: /p' "$log" | grep -v ' 0 failed, 0 skipped$')
    grep -q '^tests: ' "$log" || verdict=': no verdict'
}
found() { sed -n "s/.*$1.*/\\1/p" "$log" | tail -n 1; }
total() { awk '{ n += $1 } END { print n }' | sed ':a;s/\B[0-9]\{3\}\>/,&/;ta'; }
# wanted NAME TRIED: 0 if this row is to be measured; else prints the last commit's, whose first cell ends with TRIED.
wanted() {
    tried=$2
    case " ${rows:-$1} " in *" $1 "*) return 0 ;; esac
    git show HEAD:$page | grep -F " $2 |"
    return 1
}
# row COUNT OUTCOME COMMAND
row() { echo "| $1 $tried | $2 | \`$3\` | $(date +%F), $(git describe --always --dirty) |"; }
# Inputs of a build of the fuzzer, by its lines of readers.
inputs() { sed -n 's/^ok *[a-z_]*: \([0-9]*\) inputs in all.*/\1/p' "$log" | total; }
# GPT-2 124M, a step of one micro-batch of 256 tokens, of which the preset's step has 2,048, in micro-batches of 64.
# Steps 0 and 1 are cold, 2 is plain, 3 is audited, from 4 to 5 or 7 a save is written.
costs() {
    head -c 1000000 /dev/urandom | LC_ALL=C tr '\300-\377' '\0-\77' >"$tmp/t.bin"        # tokens below 50,257
    build/train_gpt_cpu --preset gpt2-124m --seq-len 256 --batch-size 1 --total-batch-size 256 --steps 8 \
        --save-every 4 --audit-every 3 --eval-every 0 --sample-every 0 --data "$tmp/t.bin" --out-dir "$tmp/run"
    rm -rf "$tmp/run/ckpt"
    awk -F'[,:]' '{ for (i = 1; i < NF; i++) v[$i] = $(i + 1) }
        /"event":"train"/ { ms[v["\"step\""]] = v["\"step_ms\""] }
        /"event":"ckpt"/ && !stall { stall = v["\"stall_ms\""] }
        END { plain = ms[2]; audit = ms[3] - plain
              for (i = 4; i < 8; i++) if (i != 6) slower += ms[i] - plain
              printf "save costs %.1f s still, %.1f s of slower steps: %.1g %% of 1,000 steps\n", stall / 1e3,
                  slower / 1e3, (stall + slower) / plain / 20480
              printf "audit costs %.1f s for 256 tokens: ", audit / 1e3
              printf "%.1g %% of 500 steps\n", 64 * audit / plain / 10240 }' "$tmp/run/metrics.jsonl"
}

table() {
    if wanted files "hostile files of every format"; then
        measure build/tests/bad_files
        count=$(found '  \([0-9]*\) bad files')
        row "$count" "the promised exit code, a line with file and reason$verdict" build/tests/bad_files
    fi
    if wanted fuzz "by a fuzzer for every reader"; then
        FUZZ_FAST=1 measure tests/fuzz/run.sh
        fast=$(inputs) verdicts=$verdict
        measure tests/fuzz/run.sh
        row "$fast inputs (fast build), $(inputs) (address sanitizer)" "no failure$verdicts$verdict" \
            'FUZZ_FAST=1 tests/fuzz/run.sh`, `ninja fuzz'
    fi
    if wanted flips "checkpoint bits flipped, 10 in each file; files cut short"; then
        measure build/tests/checkpoint every_
        row 1,000 "every one found$verdict" 'build/tests/checkpoint every_'
    fi
    if wanted kills "times kill -9 during saves"; then
        measure build/tests/checkpoint kill_9
        row "$(found ' over \([0-9]*\) kills')" "the newest announced checkpoint is whole$verdict" \
            'build/tests/checkpoint kill_9'
    fi
    if wanted failures "allocations, mappings, system calls fail during saves"; then
        measure tests/scripts/test_failures.sh
        row "$(sed -n 's/^ok .*: \([0-9]*\) of [0-9]* calls/\1/p' "$log" | total)" \
            "exit code 0, 1, 66 or 74 with a line; the same weights$verdict" \
            "POINTS=${POINTS:-12} ERRNOS=\"${ERRNOS:-}\" tests/scripts/test_failures.sh"
    fi
    if wanted garbage "connections, a wrong secret"; then
        measure build/tests/comm garbage
        row "$(found '  \([0-9,]* garbage and [0-9]* idle\)')" \
            "the job starts in $(found 'the job took \(.*\)')$verdict" 'build/tests/comm garbage'
    fi
    if wanted cable "cable pulled between hosts during a step"; then
        measure tests/scripts/test_net.sh
        after=$(found 'both ends stopped after \([0-9]* ms\)')
        row 1 "both ends name the other after $after (--timeout 3); the same bits$verdict" tests/scripts/test_net.sh
    fi
    if wanted soak "of 1 to 4 ranks"; then
        measure tests/soak.sh
        row "$(found ' \([0-9]* faults\),') in $(found 'soak: \([0-9]* runs\)')" \
            "$(found ' s: \(.* other bits\)')$verdict" 'ninja soak'
    fi
    if wanted signals "resumed with other ranks and threads"; then
        measure tests/soak_signals.sh
        row "$(found ' \([0-9]* signals\),') in $(found 'signals: \([0-9]* runs\)')" \
            "$(found ' s: \([0-9]* failed\)')$verdict" 'ninja soak'
    fi
    if wanted cuts "power cuts during saves (ext4, half data=writeback,noauto_da_alloc)"; then
        measure tests/powercut.sh
        row "$(found 'power cuts: \([0-9]*\) ')" \
            "$(found ' announced, \([0-9]* with .*\)'); lost without fsync$verdict" tests/powercut.sh
    fi
    command='docs/make_reliability.sh costs'
    if wanted costs "saves of GPT-2 124M, --save-every 1000"; then
        measure costs
        row 2 "$(found 'save costs \(.*\)')" "$command"
    fi
    wanted costs "audit of GPT-2 124M, --audit-every 500" && row 1 "$(found 'audit costs \(.*\)')" "$command"
}
{
    printf 'On %s:\n\n| tried | outcome | command | when |\n|---|---|---|---|\n' "$(bench/machine.sh)"
    table
} | bench/put.sh $page tried
