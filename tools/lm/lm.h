// lm.h -- the commands of the program lm: sample, chat and eval, which train_gpt hands over to it.
#pragma once
#include <string>
#include "src/app/app.h"
#include "src/app/program.h"
#include "tools/text/chat.h"
#include "tools/text/model_texts.h"
#include "tools/text/questions.h"

namespace BACKEND {

// A model to run forward only, from a run, a checkpoint or a Hugging Face folder.
struct Loaded {
    Init init;
    Model model = {};
    Tokenizer tokenizer;
    floatX* weights;

    // Loads o.paths[0]. T: the longest sequence that the model will get; the model's own limit holds, too. comm: see
    // init_of_path.
    Loaded(const Options& o, int B, size_t T, Comm* comm = nullptr);
    ~Loaded();
    void require_text(const char* what) const;  // kExitUsage, which names `what`: its tokens have no text
    Loaded(const Loaded&) = delete;
};

void print(const std::string& piece);       // at once, on standard output

// ---- multiple-choice questions: which ending does the model find likeliest? tasks.cpp

// acc is the share of questions whose right ending has the largest score; acc_norm compares the scores per character.
struct TaskScore {
    std::string name;
    uint64_t items = 0, right = 0, right_norm = 0;
    double chance = 0;                      // expected share of right answers by guessing
    uint32_t requests = 0;                  // requests to stop that ended the scoring early
    std::string text() const;               // "hellaswag acc 0.294 acc_norm 0.306 +- 0.005 (10042, chance 0.250)"
};

TaskScore score_task(Model* model, const Task& task, int B, Comm* comm);     // of all questions, B rows at a time

// The commands return exit codes. sample and chat are one process's and ignore comm.
int sample(Options options, Comm* comm);
int chat(Options options, Comm* comm);
int eval(Options options, Comm* comm);

}  // namespace BACKEND
