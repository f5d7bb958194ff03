// tasks.h -- scores multiple-choice questions, as HellaSwag, ARC, PIQA and MMLU ask them: which ending does the model
// find likeliest? The rule is that of the lm-evaluation-harness (0.4, api/task.py and models/huggingface.py).
//
// An ending's score is the sum of log p of its tokens. acc is the share of questions whose right ending has the largest
// score; acc_norm compares the scores per character. src/text/questions.h makes the tokens.
#pragma once
#include "models/model.h"
#include "src/base/json.h"
#include "src/comm/comm.h"
#include "src/data/data.h"

namespace BACKEND {

struct TaskScore {
    std::string name;
    uint64_t items = 0, right = 0, right_norm = 0;
    double chance = 0;                  // share of right answers by guessing
    uint32_t requests = 0;              // requests to stop that ended it early
    JsonLine json() const;
    std::string text() const;           // "hellaswag acc 0.294 acc_norm 0.306 +- 0.005 (10042, chance 0.250)"
};
// Scores all questions, B rows at a time. to_its_end: requests to stop do not end it early. Collective.
TaskScore score_task(Model* model, const Task& task, int B, Comm* comm, bool to_its_end = false);

// Returns the sum of log p of each row's scored tokens. A request to stop ends it early and is added to *stop; if stop
// is null, none does. The ranks share batches of B rows; any number of ranks gives the same bits. Collective.
std::vector<double> score_rows(Model* model, const std::vector<Task::Row>& rows, int B, Comm* comm, uint32_t* stop);

}  // namespace BACKEND
