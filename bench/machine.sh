#!/bin/sh
# machine.sh -- prints the processor and the cores of this machine, for the heads of tables: "AMD EPYC, family 26, 2
# cores". The family tells Zen 4 (25) from Zen 5 (26) where the name is cut short.
awk -F ': ' -v cores="$(nproc)" -v name="$(uname -m)" '
    /^model name/ { name = $2 }
    /^cpu family/ { family = ", family " $2 }
    END { print name family ", " cores " cores" }' /proc/cpuinfo
