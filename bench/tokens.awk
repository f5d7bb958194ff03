# tokens.awk -- counts code tokens: prints "TOKENS LINES FILE" for each file, in no order. A word or number, a string
# and any other character that is not a blank are a token each; a comment is none. In C++ a comment is // or /* */, in
# all other files it begins with a # at the start of a word.
FNR == 1 {
    cpp = FILENAME ~ /\.(cpp|h|cu|cuh|c)$/
    inside = 0
}
{
    lines[FILENAME]++
    for (s = $0; s != ""; s = substr(s, RLENGTH + 1)) {
        if (inside) {
            if (!match(s, /\*\//)) break
            RLENGTH += RSTART - 1
            inside = 0
        } else if (match(s, /^[ \t\r]+/)) {
            if (!cpp && substr(s, RLENGTH + 1, 1) == "#") break
        } else if (cpp && s ~ /^\/\// || !cpp && s == $0 && s ~ /^#/) {
            break
        } else if (cpp && match(s, /^\/\*/)) {
            inside = 1
        } else {
            match(s, /^("([^"\\]|\\.)*"|'(\\.[0-7]*|[^'\\])'|[A-Za-z0-9_]+|.)/)
            tokens[FILENAME]++
        }
    }
}
END { for (file in lines) print tokens[file] + 0, lines[file], file }
