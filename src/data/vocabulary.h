// vocabulary.h -- writes and reads a Vocabulary. build/prep writes it as a folder, and the trainer reads that folder:
//
//     vocabulary.json  names and numbers    bytes.bin  u32 length and bytes of each token    files/  tokenizer.json ...
#pragma once
#include <string>
#include "src/data/data.h"

void write_vocabulary(const Vocabulary& vocabulary, const std::string& folder);     // into an empty folder; kExitWrite
Vocabulary read_vocabulary(const std::string& folder);                              // kExitNoInput, kExitBadContent
std::string vocabulary_content(const Vocabulary& vocabulary);                       // all its content, to be hashed
