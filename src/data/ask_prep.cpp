// ask_prep.cpp -- runs build/prep for open_data.
#include "src/base/tools.h"
#include "src/data/prepared.h"

std::string ask_prep(const std::string& request, const std::function<void()>& progress) {
    return ask_tool("--data", require_tool("--data", "prep"), {"--answer"}, request, progress);
}
