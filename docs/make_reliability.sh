#!/bin/sh
# make_reliability.sh -- writes docs/reliability.md to standard output: the figures are what the tests print now. Root for the rows with
# network namespaces. FUZZ_SECONDS per reader (10), POINTS per kind of failure (12), SOAK_SECONDS (300), CUTS (200): a longer run is a stronger statement.
cd "$(dirname "$0")/.." || exit 1
export FUZZ_SECONDS="${FUZZ_SECONDS:-10}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(date +%F), $(git describe --always --dirty)"
# measure COMMAND...: its output in $log; its last line as the verdict.
measure() { "$@" >"$log" 2>&1; verdict=$(grep '^tests: ' "$log" | sed 's/^tests: //'); }
found() { sed -n "s/.*$1.*/\\1/p" "$log" | tail -n 1; }

cat <<END
# Reliability

What the README and the code do not say: what was tried, how often, and what came out. Written by \`docs/make_reliability.sh\` on $machine.

| tried | times | outcome | command |
|---|---|---|---|
END
measure build/tests/bad_files
echo "| broken and hostile files of every format, given to the program | $(found '  \([0-9]* bad files\)') | the promised exit code and one line that names file and reason: $verdict | \`build/tests/bad_files\` |"
measure tests/fuzz/run.sh
echo "| bytes made by a fuzzer, for $(grep -c '^ok' "$log") readers of files and messages (address and undefined-behaviour sanitizers) | $(sed -n 's/^ok .*: \([0-9]*\) runs.*/\1/p' "$log" | awk '{ n += $1 } END { print n }') inputs, $FUZZ_SECONDS s each | $verdict | \`ninja fuzz\` |"
measure build/tests/checkpoint every_
echo "| one bit of a checkpoint flipped, anywhere, in each file, in each byte of DONE; files cut short, at each byte where they are small | 1,000 anywhere, 10 in each file | every one found: $verdict | \`build/tests/checkpoint every_\` |"
measure build/tests/checkpoint kill_9
echo "| kill -9 at a random moment of a loop of saves | $(found ' over \([0-9]* kills\)') | the newest announced checkpoint is whole: $verdict | \`build/tests/checkpoint kill_9\` |"
measure tests/test_failures.sh
echo "| an allocation, a mapping or a system call of a run with saves fails, once or for ever | $(sed -n 's/^ok .*: \([0-9]*\) of [0-9]* calls/\1/p' "$log" | awk '{ n += $1 } END { print n }') places | exit code 0, 1 or 74 with a line, no crash; continued to the same weights: $verdict | \`tests/test_failures.sh\` |"
measure build/tests/comm garbage
echo "| garbage and idle connections, a wrong secret, while ranks meet | $(found '  \([0-9,]* garbage and [0-9]* idle\)') | the job starts, in $(found 'the job took \(.*\)'): $verdict | \`build/tests/comm garbage\` |"
measure tests/test_net.sh
echo "| the cable between two hosts pulled in the middle of a step | 1 | both ends name the other after $(found 'both ends stopped after \([0-9]* ms\)') with --timeout 3; resumed to the same bits: $verdict | \`tests/test_net.sh\` |"
SOAK_SECONDS="${SOAK_SECONDS:-300}" && export SOAK_SECONDS
measure tests/soak.sh
echo "| random faults (killed, stopped, ended, an I/O error) in every phase of a step and of a save, 1 to 4 ranks | $(found "soak: \([0-9]* runs\)") with $(found ' \([0-9]* faults\),') | $(found ' s: \(.* other bits\)'): $verdict | \`ninja soak\` |"
CUTS="${CUTS:-200}" && export CUTS
measure tests/powercut.sh
echo "| the power fails while a run saves every step (ext4 in a file, shut down without a flush, half of them with data=writeback,noauto_da_alloc) | $(found 'power cuts: \([0-9]*\) ') | $(found ' announced, \([0-9]* with .*\)'); a program whose fsync does nothing does lose them: $verdict | \`tests/powercut.sh\` |"
cat <<'END'

What these do not show: drive caches that lie, NFS, a network that alters bytes and their CRC-32C alike, a GPU's memory (the audit of
`--audit-every` is for that). N trials without a failure bound its rate by 3/N (95 %).

Memory: the fuzzers hold every reader to twice its input and a constant of 16 or 128 KiB. JSON is checked and read where it lies. A tokenizer
is tables: 64 times its file (a line of 4 bytes is a token and a merge), and up to 9 MiB where a vocabulary of characters has high code points; a DONE, at most
64 KiB, takes 32 times.

Trust: on one host ranks meet at a Unix socket and the kernel says who the other is. Between hosts both sides prove the job's secret (HMAC-SHA256
over nonces) before a byte of theirs is believed: 2 s and two frames for a stranger, 64 + 4 per rank of them at a time. What follows is
clear text with checksums: the network between hosts must be private.
END
