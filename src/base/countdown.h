// countdown.h -- tells how far a long piece of work is. The code is in common.cpp.
#pragma once
#include <string>
#include "src/base/common.h"

std::string duration(double seconds);           // 3725 -> "1:02:05"

// at() prints a line on stderr, on rank 0 alone and at most every 10 s: "val 3,120 of 19,531 batches, 4:10 left"; where
// nothing is counted, "the save, 0:20 so far".
struct Countdown {
    std::string what;
    uint64_t all = 0;
    const char* unit = "";
    double began = now_seconds(), printed = began;
    void at(uint64_t done = 0);
};
