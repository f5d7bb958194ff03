// questions.h -- reads a file of multiple-choice questions for --task. A line of it is:
//
//     {"ctx": "The cat sat on", "endings": ["the mat.", "a cloud."], "label": 0}
//     {"ctx": "\u732b\u5750\u5728", "endings": ["\u57ab\u5b50\u4e0a", "\u4e91\u4e0a"], "label": 0,
//      "delimiter": ""}
//
// Context and ending become tokens together, with the delimiter between, a space if the line does not say, as in the
// lm-evaluation-harness (target_delimiter); those of the ending are scored. Warns where that makes two blanks, or
// stands between characters that are written without blanks. A text that is too long loses its beginning.
#pragma once
#include "src/data/data.h"
#include "tools/text/tokenizer.h"

// A row has at most T inputs, which are T + 1 tokens. What stands before a document in training stands before a
// context; before an empty one at least what ends a text. kExitNoInput; kExitBadContent with file, line and field;
// kExitUsage: there is no tokenizer.
Task read_questions(const std::string& path, const Tokenizer& tokenizer, int T);
