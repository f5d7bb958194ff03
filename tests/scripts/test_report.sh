#!/bin/sh
# test_report.sh -- build/report and build/plot on runs that are written here, and the server of --serve.
. tests/lib.sh
tools=${TOOLS:-$PWD/build}

# a_run FOLDER TOKENIZER VOCABULARY: 40 steps with a spike at 5 and a resume from step 20 after step 29; the steps
# before the resume that it takes back have a loss of 7.
a_run() {
    mkdir -p "$1"
    printf '{"tokenizer": "%s", "vocab_size": %d, "steps": 40, "lr": 0.0012, "run": {"argv": "x"}}\n' "$2" "$3" \
        >"$1/config.json"
    awk 'function train(step, loss) {
            time += 0.5
            printf "{\"event\":\"train\",\"step\":%d,\"loss\":%s,\"lr\":0.0012,\"grad_norm\":%g,\"step_ms\":500," \
                "\"tok_s\":2048,\"tokens\":%d,\"mfu\":null,\"compute_ms\":400,\"comm_ms\":60,\"exposed_ms\":25," \
                "\"compute_ms_min\":395,\"compute_ms_max\":405,\"slowest_rank\":1,%s\"time\":%.3f}\n", \
                step, loss, 1 + step / 100, (step + 1) * 1024, "\"aux_loss\":0.25," (step % 10 < 9 ? "" : \
                "\"norm/a\":" step / 2 ",\"norm/b\":" (step < 30 ? 7 : "null") ",\"words\":\"none\","), time
        }
        function start(event, step) {
            printf "{\"event\":\"%s\",\"step\":%d,\"name\":\"a\",\"argv\":\"--steps 40\",\"version\":\"0.1\"," \
                "\"device_name\":\"cpu\",\"world_size\":2,\"launcher\":\"--np\"," \
                "\"ranks\":[{\"host\":\"h1\",\"pid\":1},{\"host\":\"h1\",\"pid\":2}]," \
                "\"params\":1234567,\"tokens_per_step\":1024,\"time\":%.3f}\n", \
                event, step, time
        }
        function text(event, step, rest) {
            printf "{\"event\":\"%s\",\"step\":%d,%s,\"time\":%.3f}\n", event, step, rest, time
        }
        BEGIN {
            time = 1000
            start("run", 0)
            for (i = 0; i < 30; i++) train(i, i == 5 ? 999 : i < 20 ? 4 - i / 20 : 7)
            text("val", 20, "\"loss\":3.25,\"bpb\":4.5,\"val_loss/a.txt\":3,\"val_loss/b\":3.5")
            text("val", 30, "\"loss\":7.7777,\"bpb\":9")
            text("sample", 20, "\"prompt\":\"\",\"text\":\"stays there\"")
            text("sample", 30, "\"prompt\":\"\",\"text\":\"taken back\"")
            time += 9000
            start("resume", 20)
            for (i = 20; i < 40; i++) train(i, i == 25 ? "null" : 3 - i / 40)
            text("warn", 25, "\"msg\":\"step 25 skipped: the gradient\"")
            text("val", 40, "\"loss\":2.1234,\"bpb\":3.0625,\"top1\":0.5,\"val_loss/a.txt\":2")
            text("ckpt", 40, "\"path\":\"x/step_00000040\",\"stall_ms\":12.5,\"write_ms\":80")
            text("task", 40, "\"name\":\"colours\",\"items\":8,\"right\":6,\"right_norm\":6")
            text("sample", 40, "\"prompt\":\"Mira\",\"text\":\" </script><script>alert(1)</script> <img onerror=x>\"")
            text("done", 40, "\"code\":0,\"why\":\"finished\"")
            printf "{\"event\":\"train\",\"step\":41,\"los"
        }' >"$1/metrics.jsonl"
}
a_run "$tmp/first" byte 257
a_run "$tmp/second" bpe:300 300
sed -i 's/0.0012/0.0024/' "$tmp/second/config.json"

# ---- a page
page=$tmp/first/report.html
has() { for part in "$@"; do grep -F -- "$part" "$page" || { echo "no $part"; return 1; }; done; }      # PART...
lacks() { [ -r "$page" ] && for part in "$@"; do ! grep -F -- "$part" "$page" || return 1; done; }
expect "a report beside its run" 0 "^$page\$" $tools/report "$tmp/first"
check "losses, bits per byte, a task" has '2.1234 <small>best 2.1234 at step 40' '3.0625 <small>' \
    '"task colours":{"s":[40],"v":[0.75]}'
check "parameters, tokens, time without the pause" has '1,234,567 parameters' '<dt>Tokens</dt><dd>41k' \
    '<dt>Time</dt><dd>25.0 s'
check "warnings, the slowest rank, its host, how it ended" has 'step 25 skipped: the gradient' 'rank 1 in 100 %' \
    'h1 (2)' '<dd class=words>finished'
check "a resume takes back a validation and a sample" lacks 7.7777 'taken back'
check "but not that of the checkpoint's step, and the event is there" has 'stays there' '<span class=resume>'
data() { sed -n 's/^<script type="application\/json" id="data">\(.*\)<\/script>$/\1/p' "$page"; }
values() {          # FILTER: of the page's data, checked
    data | python3 -c "
import json, sys
from itertools import accumulate
run = json.load(sys.stdin)['runs'][0]
curve = {key: dict(zip(accumulate(c['s']), c['v'])) for key, c in run['curves'].items()}
loss = curve['loss']
assert $1, curve"
}
check "every step is there once, with the later loss" values \
    'list(loss) == list(range(40)) and abs(loss[21] - (3 - 21 / 40)) < 1e-6'
check "a loss that is not a number, a spike" values 'loss[25] is None and loss[5] == 999'
check "what is left of a step" values 'curve["rest_ms"][3] == 75 and curve["spread_ms"][3] == 10'
check "nothing of what was never measured, and no words" values '"mfu" not in curve and "words" not in curve'
check "numbers that it does not know" values 'curve["aux_loss"][39] == 0.25 and curve["val top1"] == {40: 0.5} and \
    curve["norm/a"] == {9: 4.5, 19: 9.5, 29: 14.5, 39: 19.5} and curve["norm/b"] == {9: 7, 19: 7, 29: 7, 39: None}'
check "have a chart each, parts of one measurement the same" has '<figure data-y="aux_loss" data-dots="" data-smooth>' \
    '<figure data-y="" data-dots="val top1">' '<figure data-y="norm/" data-dots=""><figcaption><h3>norm</h3>' \
    '<figure data-y="val val_loss/" data-dots=""><figcaption><h3>val val_loss</h3>'
check "and there are no others" test "$(grep -o '<figure data' "$page" | wc -l)" -eq 20
check "tokens, seconds without the pause" values \
    'run["places"][1][3] == 4096 and run["places"][2][3] == 2 and run["places"][2][39] == 25'
check "a sample can neither end the script nor be a tag" lacks '<script>alert' '<img'
addresses() { grep -oE '(src|href|action)=("[^"]*"|[^" >]+)|url\([^)]*|@import|https?://.*' "$page"; }
check "nothing is loaded from elsewhere" test "$(addresses)" = 'href="data:,"'
check "and nothing may be" has "default-src 'none'"
check "no place is left open" lacks '{{'
check "pictures for those without scripts" test "$(grep -c '<polyline' "$page")" -ge 9

# ---- several runs
page=$tmp/both.html
expect "two runs" 0 '' $tools/report "$tmp/first" "$tmp/second/metrics.jsonl" -o "$page"
check "an option and tokenizers that differ" has '<td>0.0012<td>0.0024' 'These runs have different tokenizers'
check "bits per byte come first" test "$(grep -o '<figure data-y="[a-z_]*" data-dots="[a-z]*"' "$page" | head -n 1)" = \
    '<figure data-y="" data-dots="bpb"'
cp -r "$tmp/first" "$tmp/odd & <b>\"'"
page=$tmp/odd.html
expect "a hostile name" 0 '' $tools/report "$tmp/odd & <b>\"'" -o "$page"
check "is escaped" has '<h1>odd &amp; &lt;b&gt;&quot;&#39;</h1>'
check "everywhere" lacks '& <b>'

# ---- runs/*: each run once, and those without a log left out
mkdir -p "$tmp/runs/empty" "$tmp/runs/begun" && echo words >"$tmp/runs/notes.txt"
cp -r "$tmp/first" "$tmp/second" "$tmp/runs" && ln -s second "$tmp/runs/last" && ln -s gone "$tmp/runs/dangling"
ln -s itself "$tmp/runs/itself" && head -n 1 "$tmp/first/metrics.jsonl" >"$tmp/runs/begun/metrics.jsonl"
page=$tmp/all.html
names() { grep -o '"name":"[^"]*"' "$page" | sort | tr '\n' ' '; }
expect "runs/*" 0 'left out: .*/notes.txt: no events in it' $tools/report "$tmp"/runs/* -o "$page"
check "has each run once" test "$(names)" = '"name":"begun" "name":"first" "name":"second" '
while read -r paths; do
    (cd "$tmp/runs" && $tools/report $paths -o "$page" >/dev/null 2>&1)
    check "$paths is one run" test "$(names)" = '"name":"second" '
done <<END
last second
second second/metrics.jsonl
./second/ $tmp/runs/second
../runs/last/metrics.jsonl second
second empty
END
expect "none is left" 66 'got no run, want one or more' $tools/report "$tmp/runs/empty" "$tmp/runs/dangling"
expect "plot runs/*" 0 'left out: .*/begun/metrics.jsonl: no losses in it' $tools/plot "$tmp"/runs/* -o "$tmp/all.svg"
check "draws each once" test "$(grep -c '>\(first\|second\)  ' "$tmp/all.svg")" -eq 2
expect "TensorBoard's files of runs/*" 0 'left out: .*/empty' $tools/tensorboard "$tmp"/runs/*
check "are one in each run" test "$(find "$tmp/runs" -name 'events.*' | sed 's|/[^/]*$||' | sort | uniq -d)" = ''
expect "--follow of two" 2 'want one' $tools/tensorboard --follow "$tmp/first" "$tmp/second"

# ---- -o -
for tool in report plot; do
    $tools/$tool "$tmp/first" -o "$tmp/to.$tool" >/dev/null
    check "$tool -o - writes to standard output" sh -c "$tools/$tool '$tmp/first' -o - | cmp - '$tmp/to.$tool'"
    expect "$tool, if that is full" 74 'standard output' sh -c "$tools/$tool '$tmp/first' -o - >/dev/full"
done
check "and no file -" test ! -e -

# ---- a long run
mkdir "$tmp/long"
awk 'BEGIN { for (i = 0; i < 20000; i++)
    printf "{\"event\":\"train\",\"step\":%d,\"loss\":%d,\"time\":%d}\n", i, i == 12345 ? 77 : 3, i }' \
    >"$tmp/long/metrics.jsonl"
page=$tmp/long.html
expect "20,000 steps" 0 '' $tools/report "$tmp/long" -o "$page"
check "are 2,000 points, among them the last one and the spike" values \
    'len(loss) <= 2000 and loss[0] == loss[19999] == 3 and loss[12345] == 77'
check "the last line is being written" $tools/report "$tmp/first/metrics.jsonl" -o "$tmp/torn.html"

# ---- what cannot be
expect "no run" 2 'got no run' $tools/report
expect "no folder" 66 'absent' $tools/report "$tmp/absent"
expect "-o and --serve" 2 'one of them' $tools/report "$tmp/first" --serve -o "$tmp/x.html"
expect "a port that is none" 2 '99999' $tools/report "$tmp/first" --serve 99999
expect "no place to write" 74 'no/where' $tools/report "$tmp/first" -o "$tmp/no/where.html"
expect "help" 0 'usage: report' $tools/report --help
echo 'words' >"$tmp/words"
expect "what is no log" 65 'no events' $tools/report "$tmp/words"

# ---- the server
# serves ARGUMENTS...: $server is its process, $port where it listens.
serves() {
    : >"$tmp/address"
    $tools/report "$@" >"$tmp/address" 2>"$tmp/server.log" &
    server=$!
    await grep -q '^http://127.0.0.1:' "$tmp/address"
    port=$(sed 's/.*:\([0-9]*\).*/\1/' "$tmp/address")
}
# ask TEXT: what the server answers to these bytes.
cat >"$tmp/ask.py" <<'END'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
s.sendall(sys.argv[2].encode().decode("unicode_escape").encode("latin-1"))
if len(sys.argv) > 3: s.shutdown(socket.SHUT_WR)
answer = b""
try:
    while block := s.recv(65536): answer += block
except ConnectionResetError: pass
print(answer.decode("utf-8", "replace"))
END
ask() { python3 "$tmp/ask.py" "$port" "$@"; }
get() { ask "GET $1 HTTP/1.1\r\nHost: ${2:-127.0.0.1:$port}\r\n\r\n"; }
answers() {         # NAME PATTERN COMMAND...
    name=$1 pattern=$2; shift 2
    "$@" >"$tmp/answer" 2>&1
    check "$name" grep -E -- "$pattern" "$tmp/answer"
}
mkdir "$tmp/live"
serves "$tmp/live" --serve 0
answers "a run that has not begun" '^HTTP/1.1 200 OK' get /
answers "may ask this server only" "connect-src 'self'" get /
head -n 10 "$tmp/first/metrics.jsonl" >"$tmp/live/metrics.jsonl"
answers "its first steps" '"loss":\{"s":\[0,1,1,1,1,1,1,1,1\],' get /data.json
sed -n '11,12p' "$tmp/first/metrics.jsonl" >>"$tmp/live/metrics.jsonl"
printf '{"event":"train","st' >>"$tmp/live/metrics.jsonl"
answers "and the next ones" '"loss":\{"s":\[0,1,1,1,1,1,1,1,1,1,1\],' get /data.json
sed 's/"time":1000.000/"time":2000.000/; 3q' "$tmp/first/metrics.jsonl" >"$tmp/live/metrics.jsonl"
answers "a run in its place" '"loss":\{"s":\[0,1\],' get /data.json
answers "no other page" '^HTTP/1.1 404' get /../../etc/passwd
answers "another site's name" '^HTTP/1.1 403' get / evil.example
answers "the other name of this machine" '^HTTP/1.1 200' get / "localhost:$port"
answers "no name" '^HTTP/1.1 403' ask 'GET / HTTP/1.1\r\n\r\n'
answers "no POST" '^HTTP/1.1 405' ask "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"
answers "no HTTP" '^HTTP/1.1 400' ask '\x00\xff\r\n\r\n'
answers "a request that ends early" '^HTTP/1.1 400' ask 'GET / HT' torn
large() { ask "GET /$(printf '%09000d' 1)"; }
check "a request that is too large" large
answers "and it still answers" '^HTTP/1.1 200 OK' get /data.json
ends() { kill -TERM $server && wait $server; }
check "SIGTERM ends it with 0" ends
expect "no folder to watch" 66 'absent' $tools/report "$tmp/absent" --serve 0

# ---- a GPU's sensors
# NVML of the GPUs in software, whose bus is their number: 100.5, 201, ... W, 1500, 1400, ... MHz, 50, 51, ... degrees.
# FAILS: functions that fail, as "power1" for bus 1.
fake_nvml() {
    cc -shared -fPIC -w -x c -o "$tmp/nvml/libnvidia-ml.so.1" - <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int buses[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static int answer(const char* what, int bus, unsigned* to, unsigned value) {
    char name[32];
    snprintf(name, sizeof name, "%s%d", what, bus);
    if (bus < 0 || strstr(getenv("FAILS"), name)) return 999;
    *to = value;
    return 0;
}
int nvmlInit_v2(void) { unsigned none; return answer("init", 0, &none, 0); }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, int** device) {
    unsigned bus, none;
    if (sscanf(id, "5f00:%x:00.0", &bus) != 1 || answer("device", bus, &none, 0)) return 6;
    *device = buses + bus;
    return 0;
}
int nvmlDeviceGetPowerUsage(int* device, unsigned* milliwatts) {
    return device ? answer("power", *device, milliwatts, 100500 * (*device + 1)) : 2;
}
int nvmlDeviceGetClockInfo(int* device, int kind, unsigned* mhz) {
    return device && kind == 1 ? answer("clock", *device, mhz, 1500 - 100 * *device) : 2;
}
int nvmlDeviceGetTemperature(int* device, int sensor, unsigned* celsius) {
    return device && sensor == 0 ? answer("heat", *device, celsius, 50 + *device) : 2;
}
END
}
mkdir "$tmp/nvml" "$tmp/no"
soft=${TRAIN_GPT_PTX:-$PWD/build/train_gpt_ptx}
sensors() {         # RANKS FAILS WANT [FOLDER]: the sensors in the events of all steps, "RANK:" before those of a rank
    out=$tmp/gpu${runs:=0} runs=$((runs + 1))
    FAILS=$2 LD_LIBRARY_PATH=$tmp/${4:-nvml} SOFT_GPU_DEVICES=2 timeout 300 "$soft" --device gpu --preset nano \
        --layers 1 --heads 1 --channels 16 --seq-len 16 --batch-size 1 --total-batch-size 32 --replicas 2 --steps 8 \
        --data tests/golden/lines.txt --eval-every 0 --sample-every 0 --save-every 0 --np "$1" --max-restarts 0 \
        --out-dir "$out" >"$tmp/gpu.log" 2>&1 || { tail -n 2 "$tmp/gpu.log"; return 1; }
    got=$(sed -n 's/^{"event":"train".*"exposed_ms":[^,]*//p' "$out/metrics.jsonl" |
        sed 's/,"compute_ms_min.*"slowest_rank":\([01]\)/\1:/; s/,"time".*//' | sort -u | tr '\n' ' ')
    case "$3" in *"$got"*) [ "$got" ] && return ;; esac
    echo "got '$got', want '$3'"
    return 1
}
if [ ! -x "$soft" ]; then skip "sensors" "no nvcc, or sanitizers: no GPU in software"
elif ! fake_nvml 2>"$tmp/cc.log"; then skip "sensors" "no C compiler: $(head -n 1 "$tmp/cc.log")"
else
    one=',"gpu_watts":100.5,"gpu_mhz":1500,"gpu_c":50' two=',"gpu_watts":201,"gpu_mhz":1400,"gpu_c":51'
    check "power, clock and temperature" sensors 1 "" "$one "
    # all steps may have one slowest rank
    check "of two GPUs those of the slowest rank" sensors 2 "" "0:$one 1:$two "
    page=$out/report.html
    expect "which a report shows" 0 '' $tools/report "$out"
    check "as charts" values \
        'all((curve["gpu_watts"][i], curve["gpu_mhz"][i]) in ((100.5, 1500), (201, 1400)) for i in range(8))'
    check "each by itself" sensors 1 "clock0 heat0" ',"gpu_watts":100.5 '
    check "nothing where NVML knows no device" sensors 1 "device0" ' '
    check "nor where it is not" sensors 1 "" ' ' no
    : >"$tmp/empty.c" && cc -shared -x c -o "$tmp/no/libnvidia-ml.so.1" "$tmp/empty.c"
    check "nor where it has none of the functions" sensors 1 "" ' ' no
fi

# ---- plot
page=$tmp/p.svg
plots() { $tools/plot "$@" -o "$page" >"$tmp/plot.log" 2>&1 || rm -f "$page"; }
plots "$tmp/first" --y grad_norm --x tokens
check "plot of the norm over tokens" has '>tokens</text>' '>grad_norm</text>'
: >"$page.tmp77"
: >"$page.tmp77.bak"
plots "$tmp/first" --x time --log
check "plot over time is in seconds" has '>seconds</text>'
check "without what a killed one left" test ! -e "$page.tmp77" -a -e "$page.tmp77.bak"
check "a spike does not stretch the axis" lacks '>200</text>' '>500</text>' '>1k</text>' '>1000</text>'
plots "$tmp/first" "$tmp/second"
check "plot of two tokenizers" has 'bits per byte), since the runs have different tokenizers'
plots "$tmp/first" "$tmp/second" --y loss
check "but not where a curve is named" has 'loss (nats per token)<'
expect "plot of what is not there" 65 'no foo in it, only .*grad_norm' $tools/plot "$tmp/first" --y foo
expect "plot over nothing" 2 'want step, tokens or time' $tools/plot "$tmp/first" --x foo
summary
