// vocabulary.h -- reads a Vocabulary from a folder that build/prep has written (tools/text/prepare.cpp):
//
//     vocabulary.json  names and numbers    bytes.bin  u32 length and bytes of each token    files/  tokenizer.json ...
#pragma once
#include <string>
#include "src/data/data.h"

Vocabulary read_vocabulary(const std::string& folder);      // kExitNoInput, kExitBadContent
