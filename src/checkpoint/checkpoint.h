// checkpoint.h -- writes checkpoints, each of which is complete or absent, and finds them.
//
//     OUT/ckpt/step_00001000/  a Hugging Face folder: model.safetensors config.json tokenizer.json and its config
//         optim.safetensors    the optimizer's state: "TENSOR.exp_avg" ...
//         state.json           step, tokens, options, data hash, best loss, the run's id
//         DONE                 written last: name, size and CRC-32C of every other file
//     OUT/ckpt/latest          name of the newest complete one
//     OUT/ckpt/best            name of the one with the lowest validation loss; --keep never removes it
//
// A save writes and fsyncs every file in .tmp_step_*, then DONE; fsyncs that folder; renames it; fsyncs ckpt/; verifies
// it; writes `latest` and `best`; and only then removes the oldest checkpoints beyond `keep`. The files do not depend
// on the number of ranks, the time or the host, except for the id in state.json and so that file's checksum in DONE. A
// checkpoint with the id of another run is neither used nor removed.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "src/base/arena.h"

struct CheckpointFiles {
    std::string config_json, state_json;
    std::string run_id;                         // the id in state_json; empty: all checkpoints count as this run's
    std::vector<std::pair<std::string, std::string>> texts;     // further files: names and contents
    std::string weights = "model.safetensors";  // the file with the trained weights
    std::optional<uint32_t> frozen_crc = {};    // checksum of the weights that are not trained, in another folder
    const Arena* arena = nullptr;
    int64_t best_step = -1;                     // the step whose checkpoint `best` must name; -1: none
    std::vector<NamedArray> arrays;             // "": the weights; others: the optimizer's state, by name
    std::function<void()> progress = [] {};     // called whenever a part of the work is done
};
// Writes a checkpoint and returns its folder. keep: how many complete checkpoints stay, 0: all. Throws kExitWrite, or
// kExitOther if a value is not finite. Then older checkpoints are untouched, and nothing half-written remains.
std::string write_checkpoint(const std::string& out_dir, int64_t step, const CheckpointFiles& files, int keep);
// Throws kExitWrite if the folder's disk has less room than files.arrays take.
void require_space(const std::string& folder, const CheckpointFiles& files);

// Fills arrays from a checkpoint folder: "" with the weights, others with the optimizer's state. arena: of the weights.
// weights: the name of the weights' file. kExitBadContent if a file holds another optimizer's state.
void read_state(const std::string& folder, const Arena& arena, const std::vector<NamedArray>& arrays,
                const std::string& weights = "model.safetensors");

// Returns the id in a run's config.json or in a checkpoint's state.json; "" if it has none.
std::string run_id(const std::string& json_path);
// Returns the newest complete checkpoint of a run, and warns of each newer one that is not; "" if the run never saved.
// kExitBadContent: there are checkpoints, but none is complete and of this run.
std::string find_checkpoint(const std::string& out_dir);
// Returns "" if the folder is complete, and with `checksums` undamaged; else what is wrong, a damaged medium included.
// kExitOther: it cannot be read now.
std::string verify_checkpoint(const std::string& folder, bool checksums);
// Returns the folder with the weights. path: a run's folder, a checkpoint, OUT/ckpt/best, a Hugging Face folder or one
// with the file `other`. kExitNoInput: there are no weights; kExitBadContent: the checkpoint is damaged.
std::string resolve_model_folder(const std::string& path, const std::string& other = "model.safetensors");
// Returns the folder that OUT/ckpt/best or OUT/ckpt/latest names; any other path comes back without slashes at its end.
std::string checkpoint_named(const std::string& path);

// Prepares a run to go on from `step`. Renames its checkpoints of later steps to .bad_step_*, so that the next resume
// does not take them, and sets `latest`. Removes `best` if the checkpoint that it names is gone. Removes the oldest of
// the checkpoints that were renamed earlier, until at most `keep` renamed ones are left (0: all stay).
void set_aside_newer(const std::string& out_dir, int64_t step, const std::string& run_id, int keep);
// Sets `latest` and `best` if this is the run's newest checkpoint, because its save may have been killed before it did.
// Removes what killed saves have left.
void repair_names(const std::string& checkpoint, int64_t best_step);
// Removes all that this program writes into OUT/ckpt. That folder stays, or the link that it is.
void remove_checkpoints(const std::string& out_dir);
