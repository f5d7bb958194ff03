// commands.h -- the command line of the program lm, and what --help prints.
#pragma once
#include <string>
#include "src/options/options.h"

Options parse_command(int argc, const char* const* argv);
// Returns the text of --help, with the defaults of the model, preset and optimizer asked for. paths may have a topic:
// then it has only the groups of options whose title begins with that. of_lm: it has only the options of lm's commands.
std::string help_text(const Options& asked, bool of_lm);

// Merges a run's saved options into *options; path: its folder or a checkpoint of it. Returns false if there are none.
bool merge_options_of(const std::string& path, Options* options);
