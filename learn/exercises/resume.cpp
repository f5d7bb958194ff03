// resume -- what a checkpoint must hold, so that training goes on as if it had never stopped, with any number of ranks.
//
// The Trainer of exercises.h trains four weights with AdamW and dropout; each rank keeps the averages of its own
// weights, rank r those from number r * 4 / ranks on. `save` and `load` are what somebody wrote who thought that a
// model is its weights. The checker trains 20 steps, saves after each of them, loads with as many ranks or with others,
// and trains the rest: the weights at the end must have the same bits each time. What is saved has to be the whole
// state: training again from the start does not count.
//
// Mend both. A float holds integers up to 2^24 exactly, and Trainer::random has 32 bits. train_gpt saves weights and
// optimizer state, in the order of the weights whoever had them; its dropout masks and data order are functions of the
// step, so that there is no generator to save.
#include "exercises.h"

std::vector<float> save(const Trainer& trainer) { return {trainer.w, trainer.w + 4}; }

Trainer load(const std::vector<float>& saved, int ranks) {
    Trainer trainer(ranks);
    for (size_t i = 0; i < 4; i++) trainer.w[i] = saved[i];
    return trainer;
}
