// race -- two streams, and the waits between them: one is missing, and one is longer than needed. Where you shorten
// that one another becomes necessary.
//
// A stream executes its operations in order; two streams know nothing of each other. In a step of three layers
//
//     compute:   backward2  backward1  backward0               update               forward0  forward1  forward2
//     comm:      reduce2    reduce1    reduce0                          gather0  gather1  gather2
//
// backwardN writes the gradient of layer N, which reduceN sums over ranks. update reads all sums and writes this rank's
// slice of all weights. gatherN reads this slice and writes the weights of layer N, which forwardN, of the next step,
// reads.
//
// Return the waits: {"reduce2", "backward2"} lets reduce2 begin when backward2 has completed. The checker looks at all
// orders that the waits allow, shows one in which an operation reads what is not there yet, and names waits that hold
// up something for no reason: they cost the overlap. train_gpt's are events: src/ddp/ddp.h, Ddp::Events.
#include "exercises.h"

std::vector<Wait> waits() {
    return {{"reduce2", "backward2"}, {"reduce1", "backward0"}, {"update", "reduce0"}, {"gather0", "update"},
            {"forward0", "gather0"}, {"forward2", "gather2"}};
}
