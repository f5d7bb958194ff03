// questions.h -- reads a file of multiple-choice questions for --task. A line of it is:
//
//     {"ctx": "The cat sat on", "endings": ["the mat.", "a cloud."], "label": 0}
//
// Context and ending become tokens together, with a space between; those of the ending are scored. A text that is too
// long loses its beginning.
#pragma once
#include "src/data/data.h"
#include "src/text/tokenizer.h"

// A row has at most T inputs, which are T + 1 tokens. An end-of-text token, if the tokenizer has one, stands before a
// context as before a document in training. kExitNoInput; kExitBadContent with file, line and field; kExitUsage: there
// is no tokenizer.
Task read_questions(const std::string& path, const Tokenizer& tokenizer, int T);
