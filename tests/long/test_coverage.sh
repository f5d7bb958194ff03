#!/bin/sh
# test_coverage.sh -- the tests launch every CUDA kernel that there is, and execute every site of a special instruction:
# tensor cores, TMA, cp.async, mbarriers, barriers, shuffles, fences.
#   tests/long/test_coverage.sh [REPORT]
#
# REPORT is what the software GPU wrote of the tests of kernels and models, on both architectures (SOFT_GPU_REPORT,
# whose fields are in tests/gpu/count.h); without one the programs are run. The exceptions are in
# tests/golden/gpu_unreached.txt.
cd "$(dirname "$0")/../.."
# inputs: cxx nvcc kernels models optimizers tests/kernels tests/models tests/gpu tests/golden/gpu_unreached.txt
. tests/lib.sh
programs=${TOOLS:-build}/tests
needs_nvcc coverage
need build/ptx_units
report=${1:-} list=tests/golden/gpu_unreached.txt

if [ -z "$report" ]; then
    report=$tmp/report
    for arch in 90 80; do
        for program in kernels llama lora lstm model; do
            check "${program}_ptx runs on sm_$arch" \
                env SOFT_GPU_ARCH=$arch SOFT_GPU_REPORT="$report" "$programs/${program}_ptx"
        done
    done
fi

# findings LIST REPORT: a line for each kernel that was not launched, each kind of site that was not executed and each
# exception that does not apply; "executed ARCH N of M instructions, S sites of special ones" goes to $tmp/sums.
findings() {
    c++filt <"$2" | awk -F '\t' -v sums="$tmp/sums" '
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
        function excused(arch, what, name,   k) {
            for (k = 1; k <= entries; k++)
                if ((of[k] == "*" || of[k] == arch) && index(what, op[k]) == 1 && index(name, prefix[k]) == 1) {
                    used[k]++
                    return 1
                }
            return 0
        }
        FNR == NR {
            if (/^ *(#|$)/) next
            split($0, field, / *[|] */)
            entries++
            of[entries] = field[1]; op[entries] = field[2]; prefix[entries] = field[3]
            next
        }
        $3 !~ /gpu::/ { next }          # a kernel that only a test of the software GPU has
        { key = $2 "\t" $3 }
        $1 == "kernel" {
            launches[key] += $4
            if ($5 > sites[key]) sites[key] = $5
            if ($6 == "") next
            if (size[key] && size[key] != length($6)) print $3 ": reports of two builds"
            size[key] = length($6)
            for (i = 1; i <= size[key]; i++) if (substr($6, i, 1) == 1 && !hit[key, i]++) done[$2]++
        }
        $1 == "site" { place[key, $4] = $5 "\t" $6 }
        END {
            for (key in launches) {
                split(key, part, "\t")
                arch = part[1]
                kernels[arch]++
                all[arch] += size[key]
                special[arch] += sites[key]
                if (launches[key]) launched[arch]++
                else if (!excused(arch, "launch", short(part[2]))) print arch ": never launched: " short(part[2])
            }
            for (site in place) {
                if (site in hit) continue
                split(site, part, "[\t" SUBSEP "]")
                split(place[site], what, "\t")
                missed[part[1]]++
                if (!excused(part[1], what[1], short(part[2])))
                    print part[1] ": never executed: " what[1] " of " short(part[2]) ", " what[2]
            }
            for (k = 1; k <= entries; k++)
                if (!used[k]) print of[k] ": not needed: " op[k] " | " prefix[k] ", the tests reach it"
            for (arch in kernels)
                print "executed " arch ": " done[arch] " of " all[arch] " instructions, " \
                    special[arch] - missed[arch] " of " special[arch] " sites of special ones, " \
                    launched[arch] " of " kernels[arch] " kernels" >sums
        }' "$1" -
}

if [ -s "$report" ]; then findings "$list" "$report" >"$tmp/findings"
else echo "nothing was executed" >"$tmp/findings"; fi
for arch in 80 90a; do
    if ! grep -q "^executed sm_$arch:" "$tmp/sums"; then fail "sm_$arch" "nothing was executed"; continue; fi
    name="sm_$arch: $(sed -n "s/^executed sm_$arch: //p" "$tmp/sums")"
    grep -E "^(sm_$arch|[*]):" "$tmp/findings" >"$tmp/of_arch"
    if [ -s "$tmp/of_arch" ]; then fail "$name" "$(head -n 8 "$tmp/of_arch" | tr '\n' ';')"; else ok "$name"; fi
done
cp "$tmp/sums" build/gpu_coverage.txt

# Negative controls: a kernel that nobody calls, a barrier in a branch that nobody takes, and an exception too many.
{
    cat "$report"
    printf 'kernel\tsm_80\tgpu::nobody_calls_this(int*)\t0\t0\t\n'
    printf 'site\tsm_80\tgpu::some_kernel(int*)\t2\tbar.sync\tsome.cu:7\n'
    printf 'kernel\tsm_80\tgpu::some_kernel(int*)\t3\t1\t101\n'
    printf 'kernel\tsm_80\tgpu::some_kernel(int*)\t1\t1\t001\n'
} >"$tmp/more"
{ cat "$list"; echo '* | bar.sync | token_backward_kernel | for no reason'; } >"$tmp/list"
findings "$tmp/list" "$tmp/more" | sort >"$tmp/got"
sort "$tmp/findings" | comm -13 - "$tmp/got" >"$tmp/new"
cat >"$tmp/want" <<'FINDINGS'
*: not needed: bar.sync | token_backward_kernel, the tests reach it
sm_80: never executed: bar.sync of some_kernel, some.cu:7
sm_80: never launched: nobody_calls_this
FINDINGS
check "what is not reached, and an exception too many, are named" diff "$tmp/want" "$tmp/new"
summary
