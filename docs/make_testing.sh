#!/bin/sh
# make_testing.sh -- writes what the last .ci/run on this machine cost (build/ci/seconds) into docs/testing.md, between
# "<!-- costs" and "<!-- end of costs", and into tests/seconds, by which tests/run sorts. VERIFIED=none .ci/run before.
set -eu
cd "$(dirname "$0")/.."
seconds=build/ci/seconds page=docs/testing.md
{
    printf 'On %s, %s, %s:\n\n' "$(bench/machine.sh)" "$(date +%F)" "$(git describe --always)"
    printf '| stage | CPU, minutes | wall-clock, minutes | most expensive, CPU seconds |\n|---|---|---|---|\n'
    awk -v seconds=$seconds '
        function row(cells, list) { printf "| %s | %.1f | %.1f | %s |\n", cells, cpu, wall, list }
        BEGIN {
            while ((getline line <seconds) > 0) {
                split(line, s, " ")
                if (s[1] != "stage") { cost[s[3]] = s[1]; continue }
                list = ""
                for (k = 1; k <= 4; k++) {
                    best = ""
                    for (p in cost) if (cost[p] >= 1 && (best == "" || cost[p] > cost[best])) best = p
                    if (best == "") break
                    name = best
                    sub(/.*\//, "", name)
                    list = list (list == "" ? "" : ", ") name " " int(cost[best])
                    delete cost[best]
                }
                split("", cost)
                cpu = s[2] / 60; wall = s[3] / 60; all_cpu += cpu; all_wall += wall
                row(s[4], list)
            }
            cpu = all_cpu; wall = all_wall
            row("in all", "")
            exit
        }'
} | bench/put.sh $page costs
awk '$1 != "stage" && $2 > 1' $seconds | sort -k3 >tests/seconds
