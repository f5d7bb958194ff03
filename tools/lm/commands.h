// commands.h -- the command line of the program lm.
#pragma once
#include "src/options/options.h"

extern const Program kLm;
