// tasks.h -- multiple-choice questions, as HellaSwag, ARC, PIQA and MMLU ask them: which ending does the model find
// likeliest? The rule is that of the lm-evaluation-harness (0.4, api/task.py and models/huggingface.py).
//
//     {"ctx": "The cat sat on", "endings": ["the mat.", "a cloud."], "label": 0}        a line of the file
//
// An ending's score is the sum of log p of its tokens behind the context and a blank; context and ending are turned
// into tokens together. A text that is too long loses its beginning. acc: the largest score is the right ending's;
// acc_norm: the largest score per character.
#pragma once
#include "models/model.h"
#include "src/base/json.h"
#include "src/comm/comm.h"
#include "src/data/tokenizer.h"

namespace BACKEND {

struct Task {
    struct Row { std::vector<int> tokens; int scored; };        // a text, and how many tokens at its end are scored
    struct Item { size_t first; int label; std::vector<size_t> characters; };       // rows from `first` on; of endings
    std::string name;                   // of the file
    std::vector<Row> rows;              // of a context and one ending
    std::vector<Item> items;
};
// T: the longest row. Where the tokenizer has an end-of-text token, it stands before a context, as it does before a
// document in training. 66; 65 with file, line and field.
Task read_task(const std::string& path, const Tokenizer& tokenizer, int T);

struct TaskScore {
    std::string name;
    uint64_t items = 0, right = 0, right_norm = 0;
    double chance = 0;                  // share of a guess
    uint32_t requests = 0;              // to stop, which broke it off
    JsonLine json() const;
    std::string text() const;           // "hellaswag acc 0.294 acc_norm 0.306 +- 0.005 (10042, chance 0.250)"
};
TaskScore score_task(Model* model, const Task& task, int B, Comm* comm);

// The sums of log p of each row's scored tokens, or what asks to stop. Batches of B rows are shared by the ranks; the
// same bits for any number of them. Collective.
std::vector<double> score_rows(Model* model, const std::vector<Task::Row>& rows, int B, Comm* comm, uint32_t* stop);

}  // namespace BACKEND
