// model_folder.h -- build/import's side of what the trainer asks about a model (src/app/program.h): finds the weights
// of a run, a checkpoint, a Hugging Face folder, a PEFT folder or a model in one file, and says where each tensor is.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "src/checkpoint/safetensors.h"

// Returns the answer, JSON on one line. crc: it has the CRC-32C of the weights. kExitNoInput: there is no model;
// kExitBadContent: it is damaged, not supported, or an adapter of other weights.
// convert: makes a folder of a model in one file, and returns it.
std::string describe_model(const std::string& path, bool crc,
                           const std::function<std::string(const std::string& file)>& convert);

// Returns the folder with the weights that `path` means: a run's folder, a checkpoint, a Hugging Face folder or one
// with adapters. kExitNoInput: there are no weights; kExitBadContent: the checkpoint is damaged.
std::string resolve_model_folder(const std::string& path);

// kExitBadContent for a file that is no model: what it is, and the command that makes a model of it, which is the one
// that is said of its folder.
[[noreturn]] void refuse_file(const std::string& path);

// What a PEFT folder's adapter_config.json says. base: the model's folder; scale: of B A. Names and meanings are those
// of peft 0.17, config.py and lora/config.py.
struct Tuned { std::string base; size_t rank; float scale; };
Tuned read_tuned(const std::string& folder);    // kExitBadContent, also for settings that are not computed here
// A (rank,cols) and B (rows,rank) of a matrix of `rows` rows. tensor: the number of the tensor that has the matrix in
// the table; begin: the matrix's first element in it.
struct Adapter { size_t tensor, begin, rows; SafeTensor A, B; };
// Returns the adapters in a PEFT folder. kExitBadContent if they do not fit the table.
std::vector<Adapter> find_adapters(const std::string& folder, const Tuned& tuned, const std::vector<TensorSpec>& table);
