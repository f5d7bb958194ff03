// checkpoint.h -- checkpoints that are complete or absent, and finding them.
//
//     OUT/ckpt/step_00001000/  a Hugging Face folder: model.safetensors config.json tokenizer.json and its config
//         optim.safetensors    the optimizer's state: "TENSOR.exp_avg" ...
//         state.json           step, tokens, options, data hash, best loss, the run's id
//         DONE                 written last: name, size and CRC-32C of every other file
//     OUT/ckpt/latest          name of the newest complete one
//     OUT/ckpt/best            name of the one with the lowest validation loss; --keep never removes it
//
// Commit: write .tmp_step_*, fsync every file, DONE, fsync the folder; rename; fsync ckpt/; verify; latest; best; only
// then retire the oldest beyond `keep`. No file but the id in state.json, and its checksum in DONE, depends on the
// number of ranks, the time or the host. A checkpoint with the id of another run is neither taken nor removed.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>
#include "src/checkpoint/safetensors.h"

// With --lora these stand for model.safetensors. The names are PEFT's.
constexpr const char *kAdapterConfig = "adapter_config.json", *kAdapterWeights = "adapter_model.safetensors";

struct CheckpointFiles {
    std::string config_json, state_json;
    std::string run_id;                         // the one in state_json; empty: every checkpoint counts as the run's
    std::vector<std::pair<std::string, std::string>> texts;     // further files: names and contents
    std::string adapter_json;                   // not empty: the weights are adapters, and this their kAdapterConfig
    uint32_t base_crc = 0;                      // of the weights they belong to
    const Arena* arena = nullptr;
    int64_t best_step = -1;                     // whose checkpoint `best` shall name; -1: none
    std::vector<NamedArray> arrays;             // "": the weights; others: the optimizer's state, by name
    std::function<void()> progress = [] {};     // called whenever a part of the work is done
};
// Writes a checkpoint and returns its folder. keep: whole checkpoints to keep, 0: all. kExitWrite; kExitOther if a
// value is not finite; then older checkpoints are untouched and nothing half-written remains.
std::string write_checkpoint(const std::string& out_dir, int64_t step, const CheckpointFiles& files, int keep);
// kExitWrite if the folder's disk has less room than `arrays` arrays take.
void require_space(const std::string& folder, const Arena& arena, size_t arrays);

// Fills arrays of arena.n floats from a checkpoint folder: "" with the weights, others with the optimizer's state.
// kExitBadContent if the file holds another optimizer's state.
void read_state(const std::string& folder, const Arena& arena, const std::vector<NamedArray>& arrays);

// The id in a run's config.json or in a checkpoint's state.json; "" if it has none.
std::string run_id(const std::string& json_path);
// The newest complete checkpoint of a run, with a warning for each newer one that is not; "" if the run never saved.
// kExitBadContent if some are present but none is whole and of this run.
std::string find_checkpoint(const std::string& out_dir);
// "" if the folder is complete (and its checksums right), else what is wrong, a damaged medium too.
// kExitOther: it cannot be read now.
std::string verify_checkpoint(const std::string& folder, bool checksums);
// Run folder, checkpoint, OUT/ckpt/best, Hugging Face folder or adapter -> the folder with the weights. kExitNoInput
// if there is none, kExitBadContent if it is damaged.
std::string resolve_model_folder(const std::string& path);
// OUT/ckpt/best, OUT/ckpt/latest -> the folder that it names; any other path is its own, without a slash at its end.
std::string checkpoint_named(const std::string& path);

// A run goes on from `step`: renames its checkpoints of later steps to .bad_step_*, so that the next resume does not
// take them, and sets `latest`. Removes `best` if the one it names is gone. Of those renamed earlier at most `keep`
// stay (0: all), the newest.
void abandon_newer(const std::string& out_dir, int64_t step, const std::string& run_id, int keep);
// Sets `latest` and `best`, if this is the run's newest checkpoint: its save may have been cut short before it did.
// Removes what killed saves left.
void repair_names(const std::string& checkpoint, int64_t best_step);
void remove_checkpoints(const std::string& out_dir);    // all that this program writes into OUT/ckpt; a link stays
