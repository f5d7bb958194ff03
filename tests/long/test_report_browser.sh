#!/bin/sh
# test_report_browser.sh -- the page of build/report in a headless Chromium: it draws, its script makes no error, the
# values under the crosshair are those of metrics.jsonl, it fits phones, is dark where pages are, and shows its curves
# without script.
. tests/lib.sh
tools=${TOOLS:-$PWD/build}
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    skip_all "a browser" "no chromium"

# Two runs of 600 and 500 steps: the loss of the first has spikes, the second resumes and warns.
python3 - "$tmp" <<'END'
import json, math, os, sys
for name, n in (("first", 600), ("second-with-a-name-that-is-far-too-long-for-a-phone", 500)):
    lines, time = [], 1000.0
    def event(kind, step, **more):
        lines.append(json.dumps({"event": kind, "step": step, **more, "time": round(time, 3)}))
    def train(step):
        loss = 2 + 4 * math.exp(-step / 80) + 0.1 * math.sin(step * 1.7)
        if n == 600 and step in (30, 31): loss *= 300
        if step == 77: loss = None
        norms = {f"grad_norm/h.{k}.w": 1 + k + math.sin(step) / 4 for k in range(12)} if step % 50 == 49 else {}
        event("train", step, **norms, loss=loss, lr=1e-3 * (1 - step / n), grad_norm=1 + math.cos(step), step_ms=250.5,
              tok_s=4096 + step, tokens=(step + 1) * 1024, mfu=None, compute_ms=200, exposed_ms=20,
              compute_ms_min=190, compute_ms_max=200 + step % 7, slowest_rank=step % 2)
    event("run", 0, argv="--steps", ranks=[{"host": "h", "pid": 1}] * 2, world_size=2, params=1000)
    for step in range(n):
        time += 0.25
        if n == 500 and step == 300:
            event("warn", step, msg="a warning")
            time += 500
            event("resume", 250)
            for again in range(250, 300): time += 0.25; train(again)
        train(step)
        if step % 100 == 99:
            event("val", step + 1, loss=2.1 + 40 / (step + 20), bpb=3 + 60 / (step + 20))
            event("ckpt", step + 1, path="ckpt/step", stall_ms=step / 10)
            event("sample", step + 1, prompt="A <b>", text=" " + "word" * 60)
    event("done", n, code=0, why="finished")
    os.mkdir(f"{sys.argv[1]}/{name}")
    open(f"{sys.argv[1]}/{name}/metrics.jsonl", "w").write("\n".join(lines) + "\n")
    json.dump({"steps": n, "lr": n, "data": "/a/path/" + "x" * 90}, open(f"{sys.argv[1]}/{name}/config.json", "w"))
END
check "the page" $tools/report "$tmp/first" "$tmp/second"* -o "$tmp/page.html"
check "and of one run" $tools/report "$tmp/first" -o "$tmp/one.html"
awk '/^<script>$/ { off = 1 } !off { print } /^<\/script>$/ { off = 0 }' "$tmp/page.html" >"$tmp/bare.html"
check "and without script" test -z "$(grep '^.use strict' "$tmp/bare.html")"

# A page that loads others into frames, moves a pointer there and writes down what it sees, a line each.
cat >"$tmp/drive.html" <<'END'
<!doctype html><pre id="out">

</pre>
<script>
const say = (...words) => { out.textContent += words.join(' ') + '\n' }
const rest = () => new Promise(done => setTimeout(done, 1))     // all is drawn
async function open(address, width) {
    const frame = document.createElement('iframe')
    frame.style = `position: fixed; top: 0; left: 0; border: 0; width: ${width}px; height: 900px`
    frame.src = address
    document.body.append(frame)
    await new Promise(done => frame.onload = done)
    await rest()
    const page = frame.contentDocument, root = page.documentElement
    const figure = name => page.querySelector(`figure[data-y="${name}"]`)
    const plot = figure('loss').querySelector('.plot')
    const send = async event => {
        plot.dispatchEvent(event)
        await rest()
    }
    const act = (kind, part) => {
        const box = plot.getBoundingClientRect()
        return send(new frame.contentWindow.PointerEvent(kind, {clientX: box.left + part * box.width,
            clientY: box.top + 60, pointerType: 'mouse', bubbles: true}))
    }
    const press = key => send(new frame.contentWindow.KeyboardEvent('keydown', {key, bubbles: true}))
    const click = async item => {
        item.click()
        await rest()
    }
    const top = () => Math.max(...ticks('loss', 'end').map(Number).filter(isFinite))
    const ticks = (name, anchor) => [...figure(name).querySelectorAll(`text[text-anchor=${anchor}]`)]
        .map(text => text.textContent)
    const keys = name => [...figure(name).querySelectorAll('.key li')]
        .map(item => [...item.querySelectorAll('span, b:not(.badge)')].map(part => part.textContent))
    return {frame, page, root, figure, plot, act, press, click, top, ticks, keys}
}
async function phone(address, width) {
    const {root, page, frame} = await open(address, width)
    say('width', root.scrollWidth <= width, address, width)
    const small = [...page.querySelectorAll('button, label, summary')].filter(item => item.offsetParent &&
        (item.offsetHeight < 24 || item.offsetWidth < 24))
    say('small', small.length)
    frame.remove()
}
(async () => {
    const {page, figure, plot, act, press, click, top, ticks, keys, root, frame} = await open('page.html', 1200)
    say('width', root.scrollWidth <= 1200)
    say('dark', getComputedStyle(page.body).backgroundColor, getComputedStyle(page.body).color)
    say('lines', page.querySelectorAll('figure:not([hidden]) .line').length)
    say('many', keys('grad_norm/').length, figure('grad_norm/').querySelectorAll('.line').length,
        keys('grad_norm/').map(key => key.at(-2)).slice(0, 4).join())
    say('hidden', page.querySelectorAll('figure[hidden]').length)
    say('spikes', figure('loss').querySelectorAll('.spike').length)
    say('top', top() > 3 && top() < 20)
    say('marks', plot.querySelectorAll('.warn').length, plot.querySelectorAll('.resume').length,
        plot.querySelectorAll('.ckpt').length)
    for (const part of [0.05, 0.1, 0.3, 0.77]) {
        await act('pointermove', part)
        for (const name of ['loss', 'tok_s', 'grad_norm']) keys(name).forEach((key, run) => say('under', name, run,
            key[0].replace(/step |,/g, ''), key[name == 'loss' ? 2 : 1].replaceAll(',', '')))
    }
    for (const key of ['Home', 'ArrowRight', 'ArrowRight']) await press(key)
    say('third', keys('loss')[0][0])
    await act('pointerdown', 0.4)
    await act('pointermove', 0.6)
    await act('pointerup', 0.6)
    say('zoomed', ticks('loss', 'middle')[0].replace(',', '') >= 200, !page.getElementById('all').disabled)
    await act('dblclick', 0.5)
    say('again', ticks('loss', 'middle')[0], page.getElementById('all').disabled)
    for (const [value, anchor] of [['1', 'middle'], ['2', 'end']]) {
        await click(page.querySelector(`[name=axis][value="${value}"]`))
        say('axis', ticks('loss', anchor).at(-1))
    }
    await click(page.getElementById('log'))
    say('log', top())
    say('raw', plot.querySelectorAll('.raw').length)
    page.getElementById('smooth').value = 0
    page.getElementById('smooth').oninput()
    await rest()
    say('raw', plot.querySelectorAll('.raw').length)
    await click(page.querySelectorAll('#runs input')[1])
    say('shown', plot.querySelectorAll('.line').length)
    frame.remove()
    for (const address of ['page.html', 'one.html', 'bare.html'])
        for (const width of [390, 320]) await phone(address, width)
    const bare = await open('bare.html', 1200)
    const lines = [...bare.page.querySelectorAll('polyline')].filter(line => line.getBoundingClientRect().width > 100)
    say('bare', lines.length, bare.page.getElementById('controls').hidden)
    const linked = await open('page.html#step=123', 1200)
    say('linked', linked.keys('loss')[0][0])
    say('end')
})()
</script>
END
# browse ADDRESS DOM OPTIONS...: the page as it is in the end; what it says on the console is in $tmp/console.
browse() {
    address=$1 dom=$2; shift 2
    timeout 300 "$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files \
        --user-data-dir="$tmp/chromium" --virtual-time-budget=20000 --window-size=1200,900 --enable-logging=stderr \
        --v=0 --dump-dom "$@" "$address" >"$dom" 2>"$tmp/stderr"
    grep CONSOLE "$tmp/stderr" >"$tmp/console"
    [ -s "$dom" ]
}
check "Chromium runs" browse "file://$tmp/drive.html" "$tmp/dom"
said() { grep -qx -- "$1" "$tmp/dom" || { grep -m 3 -- "^${1%% *}" "$tmp/dom"; return 1; }; }
check "nothing on the console" test ! -s "$tmp/console"
while IFS='|' read -r name line; do check "$name" said "$line"; done <<'ROWS'
everything was tried|end
a line per run and chart, many in that of a measurement|lines 46
its parts are named, the largest first|many 24 24 h.11.w,h.11.w,h.10.w,h.10.w
no chart without values, those of a GPU's sensors among them|hidden 4
spikes are marked|spikes 2
and do not stretch the axis|top true
marks of events|marks 1 1 11
arrow keys|third step 2
a drag zooms|zoomed true true
a double click shows all|again 0 true
over tokens|axis .*[kM]
over time|axis seconds
a log scale|log [1-9][0-9]*
raw values behind smoothed ones|raw 2
and none where nothing is smoothed|raw 0
a run can be left out|shown 1
an address with a step|linked step 123
curves without script|bare [2-9][0-9] true
in the light|dark rgb(246, 247, 248) rgb(26, 30, 35)
ROWS
under() {
    python3 - "$tmp" <<'END'
import json, sys
runs = []
for name in ("first", "second-with-a-name-that-is-far-too-long-for-a-phone"):
    lines = map(json.loads, open(f"{sys.argv[1]}/{name}/metrics.jsonl"))
    runs.append({line["step"]: line for line in lines if line["event"] == "train"})
seen = [line.split(maxsplit=5) for line in open(f"{sys.argv[1]}/dom") if line.startswith("under ")]
assert len(seen) == 4 * 3 * 2, len(seen)
for _, name, run, step, value in seen:
    want = runs[int(run)][int(step)][name]
    assert abs(float(value) - want) <= (0.51 if want > 1000 else 6e-4 * max(1, want)), (name, run, step, value, want)
assert len({step for _, _, _, step, _ in seen}) >= 4
END
}
check "the values under the crosshair are the log's" under
all() { [ "$(grep -c "^$1" "$tmp/dom")" -eq $2 ] && ! grep "^$1" "$tmp/dom" | grep -v "^$1 $3"; }
check "nothing is wider than the window, also of phones" all width 7 true
check "what is to be touched is large enough" all small 6 0
check "Chromium runs with dark pages" browse "file://$tmp/drive.html" "$tmp/dom" --force-dark-mode
check "in the dark" said 'dark rgb(13, 17, 23) rgb(230, 234, 239)'

# ---- live
: >"$tmp/address"
$tools/report "$tmp/first" --serve 0 >"$tmp/address" &
server=$!
await grep -q http "$tmp/address"
check "a live page" browse "$(cat "$tmp/address")" "$tmp/dom"
check "asks again" grep -q 'role="status">live, ' "$tmp/dom"
check "and may" test ! -s "$tmp/console"
kill $server
summary
