#!/bin/sh
# path.sh -- checks README's reading path: at most 12 files with at most 3,000 lines. They may
# include each other, lists that the build writes, and the headers of README's second table: at
# most 8, each of them included somewhere. Prints what is wrong, and last "N lines, F files,
# H headers". Exit code 1 if anything is wrong.
#
# usage: bench/path.sh
cd "${PATH_OF:-$(dirname "$0")/..}" || exit 1
exec awk '
    function wrong(what) { print what; bad = 1 }
    /^\| (file|header) \|/ { table = $2 }
    /^$/ { table = "" }
    table && split($0, cell, "`") > 2 { role[cell[2]] = table; count[table]++ }
    END {
        for (file in role) if (role[file] == "file") {
            while ((got = (getline line <file)) > 0) {
                lines++
                if (line !~ /^#include "/ || line ~ /"build\//) continue
                split(line, part, "\"")
                included[part[2]]
                if (!(part[2] in role)) wrong(file ": it includes " part[2] ", which README does not list")
            }
            if (got < 0) wrong(file ": it is not there")
        }
        for (file in role) if (role[file] == "header" && !(file in included)) wrong(file ": no file includes it")
        if (lines < 1 || lines > 3000 || count["file"] > 12 || count["header"] > 8)
            wrong("README.md: want at most 3,000 lines, 12 files, 8 headers")
        print lines " lines, " count["file"] " files, " count["header"] " headers"
        exit bad
    }' README.md
