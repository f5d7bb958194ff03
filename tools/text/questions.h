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
#include "tools/text/tokenizer.h"

// Multiple-choice questions, such as those of HellaSwag, ARC, PIQA and MMLU. An ending's score is the sum of log p of
// its tokens, as in the lm-evaluation-harness (0.4, api/task.py and models/huggingface.py).
struct Task {
    struct Row { std::vector<int> tokens; int scored; };        // a text; the number of tokens at its end to score
    // A question: the number of its first ending's row, the index of the right ending, each ending's characters.
    struct Item { size_t first; int label; std::vector<size_t> characters; };
    std::string name;                       // the file's name without .jsonl
    std::vector<Row> rows;                  // a row is a context and one ending
    std::vector<Item> items;
};

// A row has at most T inputs, which are T + 1 tokens. What stands before a document in training stands before a
// context; before an empty one at least what ends a text. kExitNoInput; kExitBadContent with file, line and field;
// kExitUsage: there is no tokenizer.
Task read_questions(const std::string& path, const Tokenizer& tokenizer, int T);
