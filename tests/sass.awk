# sass.awk -- reads the machine code of CUDA kernels and prints what should not be in it, a line each.
#
# usage: awk -v arch=90a -v rows=FILE -f tests/sass.awk LIMITS DUMP
# LIMITS is tests/sass.limits. DUMP is what `ptxas -v` said and what `nvdisasm -c` printed, with demangled names and
# "function NAME:" for ".text.NAME:". A line per loop goes to FILE: label | arch | registers | counted | how often |
# instructions | R2UR | kernel, the last two numbers for so many of what is counted.
#
# An edge back to an instruction that is still on the path of the depth-first search closes a loop. The loop is all
# that reaches this edge without its head: addresses do not say so, as the compiler puts waits that spin behind the end
# of a kernel. A loop's way is the path around it with the most of what is counted and, among those, with the fewest
# instructions: masks, second looks at a barrier and other rare branches are not on it.

function finding(what) { print kernel ": " what }

# ------------------------ reading

# The kernel's name without namespaces, parameters and spaces.
function short(name,   i, c, depth) {
    gsub(/gpu::|attention::|\(anonymous namespace\)::/, "", name)
    sub(/^void /, "", name)
    gsub(/ /, "", name)
    for (i = 1; i <= length(name); i++) {
        c = substr(name, i, 1)
        depth += (c == "<") - (c == ">")
        if (c == "(" && depth == 0) break
    }
    return substr(name, 1, i - 1)
}
function read_limit(   field, block) {
    if (/^ *(#|$)/) return
    split($0, field, / *[|] */)
    if (field[2] != "*" && field[2] != arch) return
    limits++
    split(field[3], block, "x")
    label[limits] = field[1]; blocks[limits] = block[1]; threads[limits] = block[2]
    counted[limits] = field[4]; step[limits] = field[5]; most[limits] = field[6]; most_r2ur[limits] = field[7]
    prefix[limits] = field[8]
}
function hex(text,   i, value) {
    sub(/^0x/, "", text)
    for (i = 1; i <= length(text); i++) value = value * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1
    return value
}
# op[n], whether the next instruction may follow it, and the label it may jump to. Threads that wait for each other
# (BSYNC, WARPSYNC) and calls go on behind the instruction.
function read_instruction(   guarded) {
    n++
    sub(/^[^*]*\*[^*]*\*\/ +/, "")
    guarded = /^@/ || /^BRA\.(U\.ANY|DIV)/ || /^BRA[^ ]* !?U?P[0-9]/
    sub(/^@[^ ]+ +/, "")
    op[n] = $1
    goes_on[n] = guarded || !/^(BRA|BRX|JMP|EXIT|RET)/
    target[n] = /^(BRA|JMP)/ && match($0, /\.L_[A-Za-z0-9_]+/) ? substr($0, RSTART, RLENGTH) : ""
    if (/^USETMAXREG/ && match($0, /0x[0-9a-f]+/)) asked[/DEALLOC/ ? "down" : "up"] = hex(substr($0, RSTART, RLENGTH))
}
FNR == NR { read_limit(); next }
/Compiling entry function/ { split($0, part, "'"); kernel = short(part[2]); compiled++; next }
/ptxas info *: Used/ { sub(/.*Used /, ""); registers[kernel] = $1; next }
/^function / { check_kernel(); sub(/:$/, ""); kernel = short(substr($0, 10)); next }
/^\.L_.*:/ { sub(/:.*/, ""); place[$0] = n + 1; next }
/^[ \t]+\/\*[0-9a-f]+\*\// { read_instruction() }
END {
    check_kernel()
    if (checked != compiled) print "machine code: got that of " checked + 0 " kernels, want " compiled
}

# ------------------------ loops

function following(i) { return goes_on[i] && i < n ? i + 1 : 0 }
function visit(i) { path[++depth] = i; turn[depth] = 0; state[i] = 1 }
function leave(i) { depth--; order[++visited] = i; rank[i] = visited; state[i] = 2 }
# order[]: what can be reached, an instruction behind all that come after it; rank[] is the place there. Edges that
# close a loop: back_from[], back_to[].
function search(   i, s) {
    for (i = 1; i <= n; i++) { state[i] = 0; jumpers[i] = ""; jump[i] = 0 }
    for (i = 1; i <= n; i++)
        if (target[i] in place) {
            jump[i] = place[target[i]]
            jumpers[jump[i]] = jumpers[jump[i]] " " i
        }
    depth = visited = edges = 0
    visit(1)
    while (depth) {
        i = path[depth]
        turn[depth]++
        s = turn[depth] == 1 ? following(i) : jump[i]
        if (turn[depth] == 3) leave(i)
        else if (s && state[s] == 0) visit(s)
        else if (s && state[s] == 1) { back_from[++edges] = i; back_to[edges] = s }
    }
}
function take(l, i) {
    if (!state[i] || (l, i) in inside) return
    inside[l, i] = 1
    body[l, ++size[l]] = i
}
# head[l], and the instructions of loop l: body[l, 1 .. size[l]].
function find_loops(   edge, l, k, i, j, before, count_, loop_of) {
    split("", inside)
    loops = 0
    for (edge = 1; edge <= edges; edge++) {
        if (!(back_to[edge] in loop_of)) {
            l = loop_of[back_to[edge]] = ++loops
            size[l] = 0
            take(l, head[l] = back_to[edge])
        }
        l = loop_of[back_to[edge]]
        k = size[l]
        for (take(l, back_from[edge]); k < size[l]; ) {
            i = body[l, ++k]
            if (i == head[l]) continue
            count_ = split(jumpers[i], before, " ")
            for (j = 1; j <= count_; j++) take(l, before[j] + 0)
            if (i > 1 && following(i - 1)) take(l, i - 1)
        }
    }
}
# How many instructions of a loop are like PATTERN; whether some are, and no loop in it has any.
function count(l, pattern,   k, c) {
    for (k = 1; k <= size[l]; k++) c += op[body[l, k]] ~ pattern
    return c + 0
}
function is_in(inner, l) { return inner != l && (l, head[inner]) in inside }
function innermost(l, pattern,   x) {
    if (!count(l, pattern)) return 0
    for (x = 1; x <= loops; x++) if (is_in(x, l) && count(x, pattern)) return 0
    return 1
}
# The way of loop l, counting instructions like WORK: way_work of them, way_length in all, way_r2ur of these R2UR.
function find_way(l, work,   v, i, j, s, w, best, steps, before, last) {
    best[head[l]] = op[head[l]] ~ work
    steps[head[l]] = 1
    way_work = -1
    for (v = visited; v; v--) {
        i = order[v]
        if (!(i in steps)) continue
        for (j = 1; j <= 2; j++) {
            s = j == 1 ? following(i) : jump[i]
            if (s == head[l] && (best[i] > way_work || best[i] == way_work && steps[i] < way_length)) {
                way_work = best[i]; way_length = steps[i]; last = i
            }
            if (!((l, s) in inside) || rank[s] >= rank[i]) continue
            w = best[i] + (op[s] ~ work)
            if (s in steps && (w < best[s] || w == best[s] && steps[i] + 1 >= steps[s])) continue
            best[s] = w; steps[s] = steps[i] + 1; before[s] = i
        }
    }
    for (way_r2ur = 0; last; last = before[last]) way_r2ur += op[last] ~ /^R2UR/
}

# ------------------------ what is asked of a kernel

function check_kernel(   l) {
    if (!n) return
    checked++
    search()
    find_loops()
    for (l = 1; l <= loops; l++) check_loop(l)
    check_limits()
    n = 0
    split("", place)
    split("", asked)
}
function check_loop(l,   x, fences) {
    fences = count(l, "^(MEMBAR|ERRBAR|CCTL)")
    if (fences && innermost(l, "^HG?MMA"))
        finding(fences " of MEMBAR, ERRBAR and CCTL in a loop of products, want none")
    if (innermost(l, "^LDGSTS") && !(count(l, "^LDGDEPBAR") && count(l, "^DEPBAR")))
        finding("a loop of LDGSTS has no LDGDEPBAR or no DEPBAR: it does not wait for its copies")
    if (!innermost(l, "^HGMMA")) return
    if (!count(l, "^WARPGROUP.DEPBAR")) finding("a loop of HGMMA has no WARPGROUP.DEPBAR: it waits for no product")
    if (!count(l, "^SYNCS.PHASECHK")) finding("a loop of HGMMA has no SYNCS: it waits for no operand")
    for (x = 1; x <= loops; x++)
        if (is_in(x, l) && !count(x, "^SYNCS.PHASECHK")) finding("a loop of HGMMA spins on something other than SYNCS")
}
# All limits of the kernel, but for what is counted in a loop only the first; then its other loops, without limits. Of
# several loops the shortest is limited: the others have masks or are what unrolling has left over.
function check_limits(   k, l, seen, done, work, least, length_) {
    for (k = 1; k <= limits; k++) {
        if (!fits(prefix[k]) || counted[k] in seen) continue
        seen[counted[k]] = 1
        check_registers(k)
        if (counted[k] == "-") row(label[k], "-", 0, 0, 0)
        if (counted[k] == "behind") check_behind(k)
        least = ""
        for (l = 1; l <= loops; l++) {
            if (counted[k] == "-" || !innermost(l, "^" counted[k])) continue
            done[l] = 1
            length_ = length_of_step(l, k)
            if (least == "" || length_ < least) least = length_
        }
        if (least > most[k] + 0)
            finding(least " instructions for " step[k] " " counted[k] ", want at most " most[k])
    }
    for (l = 1; l <= loops; l++) {
        work = count(l, "^HMMA") ? "^HMMA" : "[.]128"
        if (l in done || !innermost(l, work)) continue
        find_way(l, work)
        row("-", work == "^HMMA" ? "HMMA" : "16 bytes", way_work, way_length, way_r2ur)
    }
}
function length_of_step(l, k,   steps) {
    find_way(l, "^" counted[k])
    steps = way_work / step[k]
    row(label[k], counted[k], step[k], way_length / steps, way_r2ur / steps)
    if (way_r2ur > most_r2ur[k] * steps)
        finding(way_r2ur / steps " R2UR for " step[k] " " counted[k] ", want at most " most_r2ur[k])
    return way_length / steps
}
# Whether the kernel's name begins with what stands before ".." and has what stands after it.
function fits(name,   part) {
    split(name, part, /[.][.]/)
    return index(kernel, part[1]) == 1 && (part[2] == "" || index(kernel, part[2]))
}
# The instructions behind the last HGMMA, by address: a product's epilogue.
function check_behind(k,   i) {
    for (i = n; i && op[i] !~ /^HGMMA/; i--) {}
    row(label[k], "behind", 0, n - i, 0)
    if (n - i > most[k] + 0) finding(n - i " instructions behind the last HGMMA, want at most " most[k])
}
function check_registers(k,   allowed, sum) {
    allowed = int(65536 / threads[k] / blocks[k] / 8) * 8
    if (registers[kernel] > allowed)
        finding(registers[kernel] " registers, want at most " allowed " for " blocks[k] " blocks of " threads[k])
    if (!("up" in asked)) return
    sum = 128 * asked["down"] + (threads[k] - 128) * asked["up"]
    if (sum > threads[k] * registers[kernel])
        finding("its warpgroups ask for " sum " registers, the block has " threads[k] * registers[kernel])
}
function row(label_, work, times, length_, r2ur) {
    printf "%-12s | %-4s | %9d | %-12s | %5d | %12.1f | %5.1f | %s\n", label_, arch, registers[kernel], work, times, \
        length_, r2ur, kernel >rows
}
