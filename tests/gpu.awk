# gpu.awk -- from the software GPU's counters, what each unit of an H100 or H200 has to do at least: bounds, not times.
#
# usage: awk [-v rows=FILE] [-v limits=FILE] [-v facts=FILE] -f tests/gpu.awk BOUNDS COUNTS
# BOUNDS is tests/golden/gpu_bounds.txt, COUNTS what SOFT_GPU_COUNT wrote of build/bench/gpu_counts. Prints what is
# beyond the bounds, a line each. A table goes to `rows`, BOUNDS with the numbers of now to `limits`, to `facts` what
# docs/make_kernels.sh takes: "bound-SECTION TFLOP/s", of an H100.
#
# Instructions are those of the PTX, not of the machine code: a division counts as one, and addresses count more than
# they cost, so the columns issue and integer are estimates. Rates per cycle of a multiprocessor: 4 instructions of a
# warp, of these 4 fp32 and products of integers, 2 products of integers or fp64, 2 other integers, 1/2 special
# function, 2 conversions, 1 access of memory or shuffle; 128 bytes of shared memory; 64 bytes from the L2, as if no
# access hit the L1; 4,096 flops of bf16. TMA's writes and wgmma's reads take cycles of shared memory. No latency, no
# dependency, no imbalance: a kernel is slower than its bound.
BEGIN {
    FS = "\t"
    SMS = 132; GHZ = 1.98; HBM["H100"] = 3.35e3; HBM["H200"] = 4.8e3        # bytes per ns
    resources = split("issue fp32 integer special memory shared tensor L2", resource, " ")
    if (rows == "") rows = "/dev/null"
    if (limits == "") limits = "/dev/null"
    if (facts == "") facts = "/dev/null"
}
function max(a, b) { return a > b ? a : b }
function share(part, whole) { return whole > 0 ? sprintf("%.2f", part / whole) : "-" }
function up(x) { return x == "-" ? x : sprintf(x + 0 < 10 ? "%.2f" : x + 0 < 100 ? "%.1f" : "%.0f", x * 1.01 + 0.005) }

# The kernel's name without namespaces, parameters and templates'; of a function of elements whose elements they are.
function short(name) {
    gsub(/gpu::|attention::|\(anonymous namespace\)::/, "", name)
    sub(/^void /, "", name)
    sub(/^each_(element|row)_kernel</, "", name)
    sub(/[<(].*/, "", name)
    sub(/_kernel$/, "", name)
    return name
}

# ---------------- reading

FNR == NR {
    if (/^ *(#|$)/) { if (/^ *#/) head = head $0 "\n"; next }
    split($0, field, / *[|] */)
    label = field[1]
    least_efficiency[label] = field[2]; most_bank[label] = field[3]; most_traffic[label] = field[4]
    most_work[label] = field[5]; reason[label] = field[6]
    next
}
$1 == "columns" { for (i = 2; i <= NF; i++) column[$i] = i }
function value(name) { return $(column[name]) }
$1 == "kernel" {
    n++
    section[n] = value("section")
    name[n] = short(value("name"))
    kernels[section[n]]++
    first = section[n]
    sub(/ .*/, "", first)
    if (index(name[n], first "_") == 1) name[n] = substr(name[n], length(first) + 2)
    if (times[section[n], name[n]]++) name[n] = name[n] " " times[section[n], name[n]]
    bytes[n] = value("bytes"); flops[n] = value("flops")
    all = value("all_blocks"); scale = all / value("blocks")
    blocks[n] = value("blocks") "/" all
    units = max(1, all / value("launches"))
    if (units > SMS) units = SMS
    per = scale / units                         # from what was counted to cycles of a multiprocessor

    sectors = value("sectors"); requests = value("requests"); wavefronts = value("wavefronts")
    fp32 = value("fp32"); products_of_integers = value("multiply"); memory = value("memory") + value("shuffle")
    cycles[n, "issue"] = per * value("issued") / 4
    cycles[n, "fp32"] = per * max((fp32 + products_of_integers) / 4, max(products_of_integers, value("fp64")) / 2)
    cycles[n, "integer"] = per * value("integer") / 2
    cycles[n, "special"] = per * (2 * value("special") + value("convert") / 2)
    cycles[n, "memory"] = per * memory
    cycles[n, "shared"] = per * (wavefronts + value("shuffle") + (value("box_bytes") + value("wgmma_bytes")) / 128)
    cycles[n, "tensor"] = per * value("tensor_cycles")
    cycles[n, "L2"] = per * 32 * (sectors + value("box_sectors")) / 64

    efficiency[n] = share(value("useful"), 32 * sectors)
    per_request[n] = requests > 0 ? sprintf("%.1f", sectors / requests) : "-"
    bank[n] = share(wavefronts, value("ideal"))
    lanes[n] = sprintf("%.1f", value("lanes") / max(1, value("issued")))
    moved[n] = scale * 32 * (sectors + value("box_sectors"))
    footprint[n] = scale * (value("read") + value("written"))
    products = value("products"); elements = value("elements")
    work[n] = products > 0 ? value("issued") / products : elements > 0 ? 32 * scale * value("issued") / elements : "-"
    if (work[n] != "-") work[n] = work[n] >= 100 ? sprintf("%.0f", work[n]) : sprintf("%.1f", work[n])
    of[n] = products > 0 ? "/product" : "/element"
}

# ---------------- bounds

# ns of kernel k on a GPU; leaves what takes longest in `binds` and the bytes of global memory in `dram`: of a
# section's only kernel the section's, else at most those.
function bound(k, gpu,   i, ns) {
    dram = bytes[k] > 0 && (kernels[section[k]] == 1 || footprint[k] > bytes[k]) ? bytes[k] : footprint[k]
    ns = dram / HBM[gpu]
    binds = "DRAM"
    for (i = 1; i <= resources; i++)
        if (cycles[k, resource[i]] / GHZ > ns) {
            ns = cycles[k, resource[i]] / GHZ
            binds = resource[i]
        }
    return ns
}
function least(k, gpu) { return max(bytes[k] / HBM[gpu], flops[k] / (4096 * SMS * GHZ)) }       # ns of the section
function finding(label, what, got, want) { print label ": " what ": got " got ", want " want }
function at_most(label, what, got, most) {
    if (got != "-" && got + 0 > most + 0) finding(label, what, got, "at most " most)
}

function good(k) {
    return (efficiency[k] == "-" || efficiency[k] >= 0.95) && (bank[k] == "-" || bank[k] <= 1.05)
}
function check(label, k, traffic) {
    seen[label] = 1
    if (!(label in most_bank)) {
        print label ": not in the bounds; tests/long/test_bounds.sh --new prints it"
        return
    }
    if (efficiency[k] != "-" && efficiency[k] + 0 < least_efficiency[label] + 0)
        finding(label, "efficiency", efficiency[k], "at least " least_efficiency[label])
    at_most(label, "bank factor", bank[k], most_bank[label])
    at_most(label, "traffic", traffic, most_traffic[label])
    at_most(label, "instructions" of[k], work[k], most_work[label])
    if (traffic != "-" && traffic < 0.98) finding(label, "traffic", traffic, "all that the operation has to move")
    if (good(k) && reason[label] != "") print label ": needs no reason"
    bound(k, "H100")
    if (!good(k) && index(reason[label], binds " ") != 1)
        finding(label, "reason", "\"" reason[label] "\"", "one that begins with what binds: " why(k))
}
# What binds and its count, and what the old reason said behind that.
function why(k, old) {
    bound(k, "H100")
    sub(/^[^:]*/, "", old)
    if (binds == "DRAM") return sprintf("DRAM %.3g MB", dram / 1e6) old
    return sprintf("%s %.3g kcycles", binds, cycles[k, binds] / 1e3) old
}
function kilo(k,   i, list) {
    for (i = 1; i <= resources; i++) list = list sprintf("%s%.1f", i > 1 ? " | " : "", cycles[k, resource[i]] / 1e3)
    return list
}
END {
    print "Bounds, not times; PTX instructions, not machine code (tests/gpu.awk). Cycles: thousands.\n" >rows
    line = "| kernel | blocks run | efficiency | sectors/request | traffic | bank factor | lanes | instructions |"
    for (i = 1; i <= resources; i++) line = line " " resource[i] " |"
    line = line " binds, H100 | us, H100 | floor/bound | binds, H200 | us, H200 | floor/bound |"
    print line >rows
    gsub(/[^|]+/, "---", line)
    print line >rows
    printf "%s", head >limits
    for (k = 1; k <= n; k++) {
        s = section[k]
        label = s (kernels[s] > 1 ? ": " name[k] : "")
        bound(k, "H100")
        traffic = share(moved[k], dram)
        check(label, k, traffic)
        line = ""
        for (i = 1; i <= 2; i++) {
            gpu = i == 1 ? "H100" : "H200"
            ns = bound(k, gpu)
            total[s, gpu] += ns
            line = line sprintf(" %s | %.1f | %s |", binds, ns / 1e3, kernels[s] == 1 ? share(least(k, gpu), ns) : "-")
        }
        printf "| %s | %s | %s | %s | %s | %s | %s | %s%s | %s |%s\n", label, blocks[k], efficiency[k], per_request[k],
            traffic, bank[k], lanes[k], work[k], of[k], kilo(k), line >rows
        if (kernels[s] > 1 && section[k + 1] != s)
            printf "| %s, all | | | | | | | | | | | | | | | | | %.1f | %s | | %.1f | %s |\n", s, total[s, "H100"] / 1e3,
                share(least(k, "H100"), total[s, "H100"]), total[s, "H200"] / 1e3,
                share(least(k, "H200"), total[s, "H200"]) >rows
        if (flops[k] > 0 && section[k + 1] != s) {
            slug = s
            gsub(/[^A-Za-z0-9]+/, "-", slug)
            printf "bound-%s %.0f\n", slug, flops[k] / total[s, "H100"] / 1e3 >facts
        }
        if (kernels[s] == 1 && least(k, "H100") > 1.005 * bound(k, "H100")) print label ": the floor is above the bound"
        line = sprintf("%-46s | %4s | %4s | %5s | %5s | %s", label, efficiency[k], bank[k], up(traffic), up(work[k]),
            good(k) ? "" : why(k, reason[label]))
        sub(/ +$/, "", line)
        print line >limits
    }
    for (label in most_bank) if (!(label in seen)) print label ": not counted, but in the bounds"
}
