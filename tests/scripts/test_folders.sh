#!/bin/sh
# test_folders.sh -- a run goes on in its own folder wherever that is, leaves others alone, and obeys `latest`.
. tests/cases.sh
shape="--layers 1 --heads 2 --channels 64 --seq-len 16 --batch-size 1 --total-batch-size 16 --lr 3e-3 --dtype fp32"
job="$shape $on_lines $mute --timeout 60 --threads 1"
newest() { cat "$tmp/$1/ckpt/latest"; }
# begins POINT STEP [OPTION...]: a run in $tmp/first waits at the point until `release`. stops: in a new folder.
begins() {
    where=$1 step=$2; shift 2
    hold "$tmp/first.log" "rank=0,step=$step,at=$where" \
        $faulty $job --steps 20 --save-every 5 --keep 0 --out-dir "$tmp/first" "$@"
}
stops() { rm -rf "$tmp/first" "$tmp/y" && begins "$@"; }
# another STEPS: unless they are "none" a run of so many begins in $tmp/first.
another() {
    [ "$1" = none ] ||
        $train $job --steps "$1" --seed 9 --save-every 5 --out-dir "$tmp/first" >"$tmp/new.log" 2>&1
}
files() { find "$tmp/first" -type f "$@" -exec sha256sum {} + 2>/dev/null | sort; }

check golden $train $job --steps 20 --save-every 5 --keep 0 --out-dir "$tmp/golden"

# The folder is moved at each point of a save, and another run takes its name.
moved() {
    stops "$1" 10 && mv "$tmp/first" "$tmp/y" && another 7 || return 1
    before=$(files)
    release && [ "$before" = "$(files)" ] && has "$tmp/first.log" '^saved .*/y/ckpt/step_00000020' &&
        has "$tmp/first.log" "sample .*/y" && same "$tmp/golden" "$tmp/y"
}
for point in fwd ckpt_copy ckpt_write ckpt_done ckpt_placed ckpt_latest; do
    check "moved at $point, and a new run in its place" moved $point
done

# It is deleted: the run ends with 74, and makes no folder again.
deleted() {         # POINT STEP STEPS_OF_ANOTHER
    stops "$1" "$2" && await rm -rf "$tmp/first" && another "$3" || return 1
    before=$(files)
    release 74 && has "$tmp/first.log" 'error: the folder is gone: .*/first' && [ "$before" = "$(files)" ] || return 1
    [ "$3" != none ] || [ ! -e "$tmp/first" ]
}
check "deleted" deleted fwd 10 none
check "deleted while it saves" deleted ckpt_write 10 none
check "deleted at its last save" deleted ckpt_write 20 none
check "deleted and made again by another run" deleted fwd 10 3

# A supervisor starts ranks again in the run's own folder, whatever has its name now.
alone=$job
kill_rank() { for p in $(pgrep -P $pid); do grep -qz "^RANK=$1\$" /proc/$p/environ && kill -9 $p; done; }
again_in_y() { release && has "$tmp/first.log" 'starting all 2 ranks again' && [ "$(newest y)" = step_00000020 ]; }
restarted() {
    stops fwd 10 --np 2 && mv "$tmp/first" "$tmp/y" && again_in_y && [ ! -e "$tmp/first" ] &&
        [ "$(ls "$tmp/y/ckpt" | wc -l)" -eq 5 ]
}
taken_over() {      # STEPS_OF_ANOTHER
    stops fwd 10 --np 2 && mv "$tmp/first" "$tmp/y" && kill -CONT $pid && another "$1" || return 1
    before=$(files ! -name .lock)
    kill_rank 1
    again_in_y && [ "$before" = "$(files ! -name .lock)" ]
}
taken_away() {
    stops fwd 10 --np 2 && await rm -rf "$tmp/first" && kill -CONT $pid || return 1
    kill_rank 1
    release 74 && [ ! -e "$tmp/first" ] && has "$tmp/first.log" 'error: .*/first .deleted.'
}
job=$(echo "$alone" | sed 's/total-batch-size 16/total-batch-size 32/') faults=";rank=1,step=17,at=fwd,do=kill,try=0"
check "moved, and a rank is killed" restarted
# A supervisor that is not running gets to know the folder only after it was moved or deleted.
both() { [ "$(pgrep -c -P $pid)" = 2 ]; }
asleep() { await both && kill -STOP $pid; }
on_start=asleep faults=
check "moved and made again by another run, and a rank is killed" taken_over 7
check "moved and not made again, and a rank is killed" taken_over none
check "deleted, and a rank is killed" taken_away
on_start=
job=$alone

# A run is its real folder, however it is named, and runs/last follows it. In the folder n: runs/a is the run, mine and
# half are links. link DIR TO: makes a link of a folder, and puts that to disk/TO.
two=$(echo "$job" | sed 's/batch-size 16/batch-size 32/; s/eval-every 0/eval-every 5/')
mkdir -p "$tmp/made/disk" && (cd "$tmp/made" && ln -s runs/last mine && ln -s runs/last/ckpt/step_00000005 half &&
    $train $two --steps 10 --save-every 5 --keep 0 --out-dir runs/a >/dev/null 2>&1 && ln -s last runs/newest)
anew() { rm -rf "$tmp/n" && cp -a "$tmp/made" "$tmp/n" && cd "$tmp/n"; }
link() { mv "$1" disk/"$2" && ln -s "$tmp/n/disk/$2" "$1"; }
follows() {         # RUN: runs/last is a link to it, and $tmp/n.log names it, and no link
    ls -l runs
    [ "$(readlink runs/last)" = "$1" ] && has "$tmp/n.log" "^output .*$1\$" &&
        ! grep -E '/last|mine|half|newest' "$tmp/n.log"
}
named() (           # WHERE NAME [LINKED]: a resume by that name there, after `link LINKED`
    anew && { [ -z "$3" ] || link $3; } || return 1
    (cd "$1" && $train --resume "$2" --steps 12 >"$tmp/n.log" 2>&1) && follows a
)
while read -r where name linked; do
    check "--resume $name in $where, $linked" named "$where" "$(echo "$name" | sed "s|^/|$tmp/n/|")" "$linked"
done <<END
. runs/last
. runs/last/
. ./runs//last/.
. /runs/last
. runs/last/ckpt/best
. runs/last/ckpt/step_00000005
. mine
. half
. runs/newest
runs last
runs/a .
runs/a/ckpt latest
runs/a/ckpt/step_00000005 .
. runs/last runs all
. runs/a runs all
. runs/last/ckpt/best runs/a/ckpt c
. /runs/last/ckpt/step_00000005 runs/a/ckpt c
END
begun() (           # OUT [OPTION...]: a new run there
    anew && $train $job --steps 2 --out-dir "$@" >"$tmp/n.log" 2>&1 && follows "${1##*/}"
)
for name in ./runs/b "$tmp/n/runs/b" runs/../runs/b; do check "--out-dir $name" begun $name; done
into_last() (
    anew && $train $job --steps 2 --out-dir runs/last --force >"$tmp/n.log" 2>&1 && follows a && [ ! -L runs/a ]
)
check "--out-dir runs/last --force" into_last
turned() (          # COMMAND CODE PATTERN: with what an older program left, a link to itself
    anew && ln -sfn last runs/last || return 1
    $train $1 >"$tmp/n.log" 2>&1
    [ $? -eq $2 ] && has "$tmp/n.log" "$3" && if [ $2 -eq 0 ]; then follows a; fi
)
check "runs/last -> last" turned "--resume runs/last" 66 'got runs/last, want'
check "... sample" turned "sample runs/last" 66 'no model: runs/last'
check "... auto" turned "--resume auto" 66 'got runs/last, want'
check "... by its name" turned "--resume runs/a --steps 12" 0 '^done'
relaunched() (
    anew && LOCKSTEP_FAULT="rank=1,step=17,at=fwd,do=kill,try=0" \
        $faulty --resume runs/last --steps 20 --np 2 >"$tmp/n.log" 2>&1
    has "$tmp/n.log" 'again .*, from step_000000' && [ "$(cat runs/a/ckpt/latest)" = step_00000020 ] && follows a
)
check "--np 2 --resume runs/last, and a rank is killed" relaunched
adrift() (          # while it goes on from runs/last, a newer run takes that name
    anew && $train --init runs/last --lora 8 $two --steps 2 --out-dir runs/b >"$tmp/n.log" 2>&1 &&
        $train --resume runs/b --steps 4 >"$tmp/n.log" 2>&1 && follows b
)
check "--init runs/last --lora, and its resume" adrift
moves_auto() (      # a run on another disk
    anew && mv runs/a disk/a && ln -s ../disk/a runs/a && $train --resume auto --steps 12 >"$tmp/n.log" 2>&1 &&
        has "$tmp/n.log" '^output  disk/a$'
)
check "--resume auto finds a run that is a link" moves_auto

# Names that a run writes decide whether a folder is new: what else is in it does not count.
while read -r code file; do
    rm -rf "$tmp/first" && mkdir -p "$tmp/first/${file%/*}"
    case $file in */) ;; *) echo "a line" >"$tmp/first/$file" ;; esac
    expect "a folder with $file" "$code" '^done |not empty|another program' $train $job --steps 1 --out-dir "$tmp/first"
    check "... which stays" test -e "$tmp/first/$file"
done <<END
0 lost+found/
0 ckpt/lost+found/
0 ./train.log
0 wandb/run/
0 ckpt/model.pt
0 ./events.out.tfevents.1.host
2 ckpt/step_00000003/
2 ckpt/latest
2 ./config.json
2 ./metrics.jsonl
END
: >"$tmp/first/metrics.jsonl"
expect "--force overwrites a log that has nothing" 0 '^done ' $train $job --steps 1 --out-dir "$tmp/first" --force
echo '{"loss": 3}' >"$tmp/first/metrics.jsonl"
expect "... but not another program's" 2 "another program's" $train $job --steps 1 --out-dir "$tmp/first" --force

# A group shares a run: the locks obey the umask, and one that is another's and can only be read is locked.
modes() (
    rm -rf "$tmp/first"; umask 002; $train $job --steps 1 --out-dir "$tmp/first" >/dev/null 2>&1
    [ "$(stat -c %a "$tmp/first/.lock" "$tmp/first/ckpt/.lock" | uniq)" = 664 ]
)
check "locks obey the umask" modes
plainly=
[ "$(id -u)" -ne 0 ] || plainly="setpriv --bounding-set=-dac_override,-dac_read_search"
chmod 444 "$tmp/first/.lock" "$tmp/first/ckpt/.lock"
if [ "$(id -u)" -ne 0 ] || $plainly true 2>/dev/null; then
    expect "a lock that can only be read" 0 '^done ' $plainly $train --resume "$tmp/first" --steps 2
    chmod 555 "$tmp/first"
    expect "not in a folder that is read-only" 74 'Permission denied' $plainly $train --resume "$tmp/first" --steps 3
    chmod 755 "$tmp/first"
else skip "a lock that can only be read" "no setpriv"; fi

# Parts of it go away: what can be made again is.
cleared() {
    stops fwd 10 && await rm -rf "$tmp/first/ckpt" "$tmp/first/.lock" "$tmp/first/config.json" && release &&
        has "$tmp/first/metrics.jsonl" '"step":19,' && [ "$(newest first)" = step_00000020 ] &&
        has "$tmp/first/config.json" '"run":'
}
check "ckpt/, config.json and .lock are deleted" cleared
stolen() {
    stops fwd 10 && rm "$tmp/first/.lock" || return 1
    flock "$tmp/first/.lock" sh -c "rm '$tmp/hold'; while kill -0 $pid 2>/dev/null; do sleep 0.1; done" &
    ended_with 74 && has "$tmp/first.log" 'in use'
}
check "its lock is taken" stolen

# `latest` decides: a run that goes back never takes what was saved after that, whatever ends it before its next save.
went_back() {       # SEEN FAULT: at the fault it is killed, and a resume without a name goes on from SEEN
    rm -rf "$tmp/back" && cp -a "$tmp/golden" "$tmp/back" && echo step_00000020 >"$tmp/back/ckpt/best"
    LOCKSTEP_FAULT=rank=0,$2,do=kill $faulty --resume "$tmp/back/ckpt/step_00000005" --lr 1e-3 >"$tmp/back.log" 2>&1
    [ $? -eq 137 ] && [ "$(newest back)" = "$1" ] && [ ! -e "$tmp/back/ckpt/best" ] &&
        [ -e "$tmp/back/ckpt/step_00000020/DONE" ] || { tail -n 3 "$tmp/back.log"; ls "$tmp/back/ckpt"; return 1; }
    $train sample "$tmp/back" --max-tokens 1 && $train --init "$tmp/back" --steps 0 $job || return 1
    $train --resume "$tmp/back" >"$tmp/back.log" 2>&1 && has "$tmp/back.log" "^resumed .*$1" &&
        same "$tmp/other" "$tmp/back" && [ "$(newest back)" = step_00000020 ]
}
check "another future" sh -c "cp -a '$tmp/golden' '$tmp/other' &&
    '$train' --resume '$tmp/other/ckpt/step_00000005' --lr 1e-3 && rm -rf '$tmp/other/ckpt/best'"
check "... differs" sh -c "! cmp '$tmp/golden/ckpt/step_00000020/DONE' '$tmp/other/ckpt/step_00000020/DONE'"
while read -r seen fault; do check "goes back, and is killed at $fault" went_back $seen $fault; done <<END
step_00000005 step=7,at=fwd
step_00000005 step=10,at=ckpt_write
step_00000005 step=10,at=ckpt_placed
step_00000010 step=10,at=ckpt_latest
step_00000015 step=15,at=ckpt_best
END
torn() {            # `latest` names a damaged one: the newest whole one below it is taken, with a later one beside it
    rm -rf "$tmp/back" && cp -a "$tmp/golden" "$tmp/back" && echo step_00000015 >"$tmp/back/ckpt/latest"
    $1 "$tmp/back/ckpt/step_00000015"
    $train --resume "$tmp/back" >"$tmp/back.log" 2>&1 && has "$tmp/back.log" "bad checkpoint: step_00000015: $2" &&
        has "$tmp/back.log" '^resumed .*step_00000010' && same "$tmp/golden" "$tmp/back"
}
cut_short() { truncate -s 9 "$1/optim.safetensors"; }
check "latest is damaged" torn cut_short 'optim.safetensors: got'
check "latest is not there" torn "rm -rf" 'it is not there'
no_latest() { rm -f "$tmp/back/ckpt/latest"; $train --resume "$tmp/back" | grep -q 'finished: 20 of 20 steps'; }
check "without latest the newest counts" no_latest
echo step_00000005 >"$tmp/back/ckpt/latest" && rm "$tmp/back/ckpt/step_00000005/DONE"
expect "latest is the first, and damaged" 65 'none of 4 checkpoints is whole and at most as old as .latest.' \
    $train --resume "$tmp/back"
cp -r "$tmp/golden" "$tmp/mixed"
$train $job --steps 15 --save-every 5 --keep 0 --seed 9 --out-dir "$tmp/theirs" >/dev/null 2>&1
cp -r "$tmp/theirs/ckpt/." "$tmp/mixed/ckpt/"
expect "a checkpoint of another run" 65 'step_00000015/state.json: --seed: got "9", want 1337 as in' \
    $train --resume "$tmp/mixed"

# Two runs, one folder of checkpoints.
linked() {
    rm -rf "$tmp/first" "$tmp/z" "$tmp/disk"
    mkdir "$tmp/first" "$tmp/z" "$tmp/disk" && ln -s ../disk "$tmp/first/ckpt" && ln -s ../disk "$tmp/z/ckpt"
    begins fwd 3 || return 1
    $train $job --steps 3 --out-dir "$tmp/z" >"$tmp/z.log" 2>&1; refused=$?
    release && [ $refused -eq 74 ] && has "$tmp/z.log" "in use: .*/z/ckpt: by process [0-9]* on " || return 1
    [ -L "$tmp/first/ckpt" ] && same "$tmp/golden" "$tmp/first"
}
check "two runs whose ckpt/ are links to one folder" linked
forced() {
    echo mine >"$tmp/disk/notes.txt"
    $train $job --steps 20 --save-every 5 --keep 0 --out-dir "$tmp/first" --force >"$tmp/first.log" 2>&1 || return 1
    [ -L "$tmp/first/ckpt" ] && [ -f "$tmp/disk/notes.txt" ] && same "$tmp/golden" "$tmp/first"
}
check "--force keeps a link, and what the run did not write" forced
mkdir "$tmp/gone" && ln -s "$tmp/nowhere" "$tmp/gone/ckpt" && ln -s "$tmp/nowhere" "$tmp/dangling"
expect "ckpt/ is a link to a disk that is not there" 74 'ckpt.*a link to .*nowhere, which is not there' \
    $train $job --steps 3 --out-dir "$tmp/gone"
expect "so is the run folder" 74 'dangling: it is a link to .*nowhere' $train $job --steps 3 --out-dir "$tmp/dangling"
cp -r "$tmp/golden" "$tmp/unmounted" && rm -rf "$tmp/unmounted/ckpt" && mkdir "$tmp/unmounted/ckpt"
expect "the disk of ckpt/ is not mounted" 65 'the run has saved, but no checkpoint is there' \
    $train --resume auto --out-dir "$tmp/unmounted" $job --steps 20
check "... and its log is whole" cmp "$tmp/golden/metrics.jsonl" "$tmp/unmounted/metrics.jsonl"
expect "--force over the model of --init" 2 'which a new run there changes' \
    $train $job --init "$tmp/golden" --steps 3 --out-dir "$tmp/golden" --force
expect "... of one of its checkpoints" 2 'which a new run there changes' \
    $train $job --init "$tmp/golden/ckpt/step_00000020" --steps 3 --out-dir "$tmp/golden/." --force
check "an adapter" $train $job --init "$tmp/golden" --lora 8 --steps 2 --out-dir "$tmp/lora"
expect "... of the model of an adapter" 2 'which a new run there changes|adapters need that' \
    $train $job --init "$tmp/lora" --steps 3 --out-dir "$tmp/golden" --force
check "... which is whole" test -e "$tmp/golden/ckpt/step_00000020/DONE"
mkdir "$tmp/books" && cp README.md "$tmp/books/a.txt" && cp README.md "$tmp/b.txt"
for data in "$tmp/books" "$tmp/b.txt:0.5,$tmp/books/.:0.5"; do
    expect "--out-dir is a folder of texts: $data" 2 'the run reads .*books.*, which a new run there changes' \
        $train --data "$data" --steps 1 --out-dir "$tmp/books"
done
check "... which stays as it was" test "$(ls -A "$tmp/books")" = a.txt

cp -r "$tmp/golden" "$tmp/below" && rm -rf "$tmp/below/ckpt/step_0000002"? "$tmp/below/ckpt/step_00000015"
echo step_00000010 >"$tmp/below/ckpt/latest"
expect "ckpt/ shows an older state" 0 'the log tells of .*/below/ckpt/step_00000020, which is not there' \
    $train --resume "$tmp/below" --steps 20

# What kills leave is removed by exact name at the next save.
leftovers() {
    c="$tmp/golden/ckpt"
    mkdir "$c/.del_step_00000001" "$c/.tmp_step_00000002" "$c/.tmp_step_mine" &&
        touch "$c/latest.tmp12" "$c/latest.tmpl"
    $train --resume "$tmp/golden" --steps 21 >/dev/null 2>&1 || return 1
    [ "$(ls -A "$c" | grep -c 'tmp\|del')" -eq 2 ] || { ls -A "$c"; return 1; }
}
check "leftovers of kills" leftovers

# Without flock a warning says that nothing is locked.
no_flock || skip_all "a file system without flock" "no cc"
for errno in 37 38 95; do
    expect "a file system without flock, errno $errno" 0 'the run folder: .*cannot lock files.*one process' \
        env LD_PRELOAD="$tmp/noflock.so" FLOCK_ERRNO=$errno $train $job --steps 2 --out-dir "$tmp/errno$errno"
done
at_once() {     # each makes the cache's entry in a folder of its own
    for n in 1 2 3 4; do
        LOCKSTEP_CACHE="$tmp/c" LD_PRELOAD="$tmp/noflock.so" FLOCK_ERRNO=38 \
            $train $job --steps 1 --out-dir "$tmp/once$n" >"$tmp/once$n.log" 2>&1 &
    done
    wait
    [ "$(cat "$tmp"/once?.log | grep -c '^done')" -eq 4 ] || { tail -n 1 "$tmp"/once?.log; return 1; }
}
for turn in 1 2 3; do rm -rf "$tmp"/once? "$tmp/c"; check "... four starts with one cache, turn $turn" at_once; done
summary
