# bars.awk -- a bar chart (SVG) of where a step's time goes: each operation's time, and within it what it would take at
# this GPU's own ceilings (bytes / copy rate, flops / rate of 8192^3). Input: "data:" lines of bench/gpu_kernels.
#     awk -v shape=gpt2-124m-64 -v repeats=8 -v title="..." -f bench/bars.awk kernels.md >step.svg
# repeats: micro-batches of a step. Operations that are not called in a step are left out; the update counts once.
BEGIN { FS = "|" }
/^data: / {
    sub(/^data: /, "", $1)
    times = $1 == shape ? repeats : $1 == "update" ? 1 : 0
    if (!times || $3 == 0) next
    n++; label[n] = $2; took[n] = times * $3 * $4 / 1000; floor_of[n] = times * $3 * $5 / 1000
    whole += took[n]; floors += floor_of[n]
}
function escaped(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); return s }
function text(x, y, anchor, s) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, escaped(s)
}
function bar(y, width, colour) {
    printf "<rect x=\"250\" y=\"%.1f\" width=\"%.1f\" height=\"14\" fill=\"%s\"/>\n", y, width, colour
}
END {
    if (!n) exit 1
    for (i = 1; i <= n; i++) for (j = n; j > i; j--) if (took[j] > took[j - 1]) {      # longest first
        t = took[j]; took[j] = took[j - 1]; took[j - 1] = t
        t = floor_of[j]; floor_of[j] = floor_of[j - 1]; floor_of[j - 1] = t
        t = label[j]; label[j] = label[j - 1]; label[j - 1] = t
    }
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"%d\" ", 70 + 20 * n
    print "font-family=\"sans-serif\" font-size=\"12\">"
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    text(20, 22, "start", title)
    text(20, 42, "start", sprintf("light: measured, %.1f ms in all; dark: at this GPU's ceilings, %.1f ms (%.0f %%)",
                                  whole, floors, 100 * floors / whole))
    for (i = 1; i <= n; i++) {
        y = 56 + 20 * (i - 1); wide = 430 * took[i] / took[1]
        text(242, y + 11, "end", label[i])
        bar(y, wide, "#9ecae1")
        bar(y, 430 * (floor_of[i] < took[i] ? floor_of[i] : took[i]) / took[1], "#3182bd")
        share = floor_of[i] > 0 ? sprintf(", %.0f %%", 100 * floor_of[i] / took[i]) : ""
        text(256 + wide, y + 11, "start", sprintf("%.2f ms", took[i]) share)
    }
    print "</svg>"
}
