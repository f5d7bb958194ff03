// help_line.cpp -- a line of --help (words.h). train_gpt does not need it: lm prints its --help.
#include "src/base/common.h"
#include "src/base/words.h"

std::string help_line(const Option& option, const std::string& help, int width, bool defaults) {
    const std::string value = value_text(option), left = option.typed() + " " + option.value;
    const bool has = defaults && !option.value.empty() && set_option(option, value);
    return format("  %-*s %s%s\n", width, left.c_str(), help.c_str(), has ? (" (default " + value + ")").c_str() : "");
}
