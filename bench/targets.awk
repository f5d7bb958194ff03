# targets.awk -- what bench/gpu.sh measured beside what it should be: a Markdown table. Input: lines "KEY VALUE [NAME]",
# the last of a key counts.
#     awk -f bench/targets.awk FACTS
{ value[$1] = $2; name[$1] = $3; for (i = 4; i <= NF; i++) name[$1] = name[$1] " " $i }
function row(what, key, least, unit,    v, text) {
    v = value[key]
    text = v == "" ? "not measured" : sprintf(unit == "" ? "%.2f" : unit, v) (name[key] == "" ? "" : " (" name[key] ")")
    verdict = v == "" ? "" : v + 0 >= least ? "met" : "**not met**"
    printf "| %s | %s | %s | %s |\n", what, sprintf(unit == "" ? "%.2f" : unit, least), text, verdict
}
function ratio(to, a, b) { if (value[a] > 0 && value[b] > 0) { value[to] = value[a] / value[b]; name[to] = name[b] } }
END {
    print "| target | at least | measured | |\n|---|---:|---:|---|"
    split("gpt2-124m-16 gpt2-124m-64 gpt2-1558m-4 gpt2-1558m-16", shapes, " ")
    for (i = 1; i <= 4; i++) {
        text = shapes[i]
        sub(/-[0-9]+$/, ", B = ", text); text = text substr(shapes[i], match(shapes[i], /[0-9]+$/))
        row("matrix products of " text ", summed, against cuBLASLt", "products-" shapes[i], 1)
        row("the slowest of them", "lowest-product-" shapes[i], 0.9)
    }
    split("d64-T1024-B16 d64-T1024-B64 d64-T1024-B4 d128-T8192-B2", rows, " ")
    for (i = 1; i <= 4; i++)
        for (j = 1; j <= 2; j++) {
            way = j == 1 ? "forward" : "backward"
            key = "attention_" way "-" rows[i]
            ratio("ratio-" key, key, "best-" key)
            row("attention " way ", " rows[i] ", against PyTorch's best", "ratio-" key, 1)
        }
    row("attention forward, head of 64, T = 1,024: TFLOP/s", "attention_forward-d64-T1024-B16", 300, "%.0f")
    row("attention backward, head of 64, T = 1,024: TFLOP/s", "attention_backward-d64-T1024-B16", 260, "%.0f")
    row("attention forward, head of 128, T = 8,192: TFLOP/s", "attention_forward-d128-T8192-B2", 550, "%.0f")
    row("attention backward, head of 128, T = 8,192: TFLOP/s", "attention_backward-d128-T8192-B2", 450, "%.0f")
    row("bound by memory, the slowest operation: of the copy rate", "memory-lowest", 0.88)
    row("gpt2-124m: tokens/s (H200)", "best-step-gpt2-124m", 650000, "%.0f")
    row("gpt2-1558m: tokens/s (H200)", "best-step-gpt2-1558m", 60000, "%.0f")
    ratio("ratio-step", "best-step-gpt2-124m", "best-torch-gpt2-124m")
    row("gpt2-124m: tokens/s against PyTorch's, compiled", "ratio-step", 1.1)
    ratio("ratio-graph", "step-gpt2-124m-16-65536", "plain-gpt2-124m-16-65536")
    row("gpt2-124m, 65,536 tokens: a graph against plain launches", "ratio-graph", 1)
}
