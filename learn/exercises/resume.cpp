// resume -- what a checkpoint must hold, so that training goes on as if it had never stopped.
//
// The Trainer of exercises.h trains three weights with AdamW and dropout. `save` and `load` are what somebody wrote who
// thought that a model is its weights. The checker trains 20 steps, saves after each of them, loads, and trains the
// rest: the weights at the end must have the same bits each time.
//
// Mend both. A float holds integers up to 2^24 exactly, and Trainer::random has 32 bits.
//
// train_gpt saves weights and optimizer state; its dropout masks and data order are functions of the step, so that
// there is no generator to save. Hint: how could 32 bits travel as two floats?
#include "exercises.h"

std::vector<float> save(const Trainer& trainer) { return {trainer.w[0], trainer.w[1], trainer.w[2]}; }

Trainer load(const std::vector<float>& saved) {
    Trainer trainer;
    for (int i = 0; i < 3; i++) trainer.w[i] = saved[size_t(i)];
    return trainer;
}
