// checkpoint.h -- Hugging Face folders, and checkpoints that are complete or absent.
//
//     OUT/ckpt/step_00001000/   model.safetensors (fp32) config.json generation_config.json tokenizer.json ...  a Hugging Face GPT-2 folder
//                               optim.safetensors  "<tensor>.exp_avg", "<tensor>.exp_avg_sq"
//                               state.json         step, tokens, options, data hash, best loss
//                               DONE               written last, inside the temporary folder: name, size, CRC-32C of every other file
//     OUT/ckpt/latest           name of the newest complete one
//
// Commit: .tmp_step_*; every file fsynced; DONE; fsync of the folder; rename; fsync of ckpt/; verify; latest; only then retire the
// oldest beyond `keep`. No file depends on the number of ranks, the time or the host.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>
#include "safetensors.h"

// ---- Hugging Face config.json
struct HfConfig { int layers = 0, heads = 0, channels = 0, seq_len = 0, vocab_size = 0; double dropout = 0; int eot = -1; };
std::string hf_config_json(const HfConfig& config);
HfConfig read_hf_config(const std::string& folder);      // 65 if it is not a GPT-2 this program can hold, or larger than its weights' file
HfConfig parse_hf_config(std::string_view text, const char* what);
uint64_t hf_parameters(const HfConfig& config, const char* what);       // 65 if there are more than 2^64

// ---- checkpoints of a run
struct CheckpointFiles {
    std::string config_json, tokenizer_json, state_json; // tokenizer_json may be empty
    int eot = -1;
    const Arena* arena;
    const float *master, *m, *v;                         // from the arena's element `base` on
    size_t base = 0;
    const uint32_t* sums = nullptr;                      // state_sum of their units; null: not checked
    std::function<void()> moved = [] {};                 // called whenever a part of the work is done: slow is not stuck
};
// A save, by `parts` writers at once, each of an equal part but for a transposed tensor at its end: begin by part 0; then each writes its
// own, elements part_begin(part) to part_begin(part + 1); commit by part 0 when all are there. All throw Error 74, a part that is not what its sums say Error 80: then cancel, and older checkpoints are untouched, nothing half-written remains.
struct CheckpointPart { struct { uint64_t bytes; uint32_t crc; } of[3]; };          // master, m, v
size_t part_begin(const Arena& arena, int part, int parts);
void require_space(const std::string& folder, const Arena& arena);      // 74 if its disk has less room than a checkpoint takes; quotas do not show
void begin_checkpoint(const std::string& out_dir, int64_t step, const CheckpointFiles& files);
CheckpointPart write_checkpoint_part(const std::string& out_dir, int64_t step, const CheckpointFiles& files, int part, int parts);
std::string commit_checkpoint(const std::string& out_dir, int64_t step, const CheckpointFiles& files, int keep,
                              const std::vector<CheckpointPart>& parts);            // returns the folder's path
void cancel_checkpoint(const std::string& out_dir, int64_t step);

// Newest complete checkpoint of a run; for each newer one that is not whole, a warning that says why. "" if there is none and
// never was; Error 65 if some are present but none is whole.
std::string find_checkpoint(const std::string& out_dir);
// "" if the folder is complete and every checksum right, else what is wrong with it. An Error if a file that is there cannot be read.
std::string verify_checkpoint(const std::string& folder, bool checksums);
// Run folder, checkpoint folder or Hugging Face folder -> the folder with model.safetensors. 66 if there is none.
std::string resolve_model_folder(const std::string& path);

// A run goes on from `step`: checkpoints of later steps (it was resumed from an older one, or they are broken) are renamed .bad_step_*,
// so that the next resume does not take them, and `latest` is set right.
//
// repair_latest: of a finished run, whose last save may have failed between the folder's rename and `latest`.
void repair_latest(const std::string& checkpoint);
void abandon_newer(const std::string& out_dir, int64_t step);
