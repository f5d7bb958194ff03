// checkpoint.h -- writes checkpoints and finds them. A checkpoint is complete or does not exist.
//
//     OUT/ckpt/step_00001000/  a Hugging Face folder: model.safetensors config.json tokenizer.json
//         optim.safetensors    the optimizer's state: "TENSOR.exp_avg" ...
//         state.json           step, tokens, options, data hash, best loss
//         DONE                 written last: name, size and CRC-32C of every other file
//     OUT/ckpt/latest          a file: the name of the checkpoint from which the run goes on
//     OUT/ckpt/best            a file: the name of that with the lowest validation loss, which is
//                              never removed. It is written when both the save and the
//                              score of that step are done
//
// A save writes and fsyncs every file in .tmp_step_*, then DONE; fsyncs that folder; renames it;
// fsyncs ckpt/; verifies it; writes `latest` and `best`; and only then removes the oldest
// checkpoints beyond `keep` and `keep_every`. The files do not depend on the number of ranks, the
// time or the host's name, but state.json has the kind of device.
//
// `latest` decides. A run that goes back to an earlier checkpoint writes it first. The folders of
// later steps stay, but no resume takes them, and a save of their step replaces them.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "src/base/arena.h"
#include "src/base/common.h"

struct CheckpointFiles {
    std::string config_json, state_json;
    std::vector<std::pair<std::string, std::string>> texts;     // other files: names and contents
    std::string weights = "model.safetensors";  // name of the file for the trained weights
    // CRC-32C of the frozen weights, which are in another folder.
    std::optional<uint32_t> frozen_crc = {};
    const Arena* arena = nullptr;               // where the trained tensors lie in the arrays
    // The step whose checkpoint `best` must name; -1: none.
    int64_t best_step = -1;
    // The array named "" has the weights, the others have the optimizer's state.
    std::vector<NamedArray> arrays;
    std::function<void()> progress = [] {};     // called whenever a part of the work is done
    // How many complete checkpoints stay (0: all), beside the best one and those whose step is a
    // multiple of keep_every (0: none).
    int keep = 0;
    int64_t keep_every = 0;
};
// Returns whether what happens every so many steps (0: never) happens at this one.
inline bool is_multiple(int64_t step, int64_t every) { return every > 0 && step % every == 0; }
// Writes a checkpoint and returns its folder. Throws kExitWrite, or kExitOther if a value is not
// finite; then older checkpoints stay, and no partial one remains.
std::string write_checkpoint(const std::string& out_dir, int64_t step,
                             const CheckpointFiles& files);
// Tries on a small folder in OUT/ckpt, which must be there, whether its file system can rename one:
// kExitWrite if not.
void try_rename(const std::string& out_dir);
// Throws kExitWrite if the folder's disk has less room than files.arrays take.
void require_space(const std::string& folder, const CheckpointFiles& files);

// Fills arrays from a checkpoint: the one named "" with the weights, others with the optimizer's
// state. arena: the weights' layout. weights: name of their file. kExitBadContent if a file is
// damaged or of another run.
void read_state(const std::string& folder, const Arena& arena,
                const std::vector<NamedArray>& arrays,
                const std::string& weights = "model.safetensors");

// Returns the folder of the checkpoint that `latest` names, or of the newest complete one of an
// earlier step, and warns of those that are not complete; "" if there are no checkpoints. Without
// `latest` all steps count. kExitBadContent: there are some, but none is complete.
std::string find_checkpoint(const std::string& out_dir);
// Checks DONE and the sizes of its files, with `checksums` also their CRCs. Returns "" or what is
// wrong, which may be an error of the disk. kExitOther: the files cannot be read at the moment.
std::string verify_checkpoint(const std::string& folder, bool checksums);
// Returns the folder of the checkpoint that `path` names. kExitBadContent if it is not whole.
std::string whole_checkpoint(const std::string& path);
// Returns the folder that OUT/ckpt/best or OUT/ckpt/latest names. Returns any other path without
// slashes at its end.
std::string checkpoint_named(const std::string& path);

// Prepares a run to go on from `step`: sets `latest`, and lets `best` name the checkpoint of
// best_step, if there is one, and none that is gone or of a later step.
void go_on_from(const std::string& out_dir, int64_t step, int64_t best_step);
// Lets `best` name the checkpoint of that step, if there is one. An error is only a warning.
void name_best(const std::string& out_dir, int64_t step);
// Removes all that this program writes into OUT/ckpt. The folder itself, which may be a link,
// stays.
void remove_checkpoints(const std::string& out_dir);

// ---- saves in another thread of rank 0, one at a time
//
// Training waits only while the state is copied.
//
//     main thread   ... step | copy |  step  |  step  |  step  | result ...
//     writer                        | write, sync, commit      |

struct Saver;
// files: their arrays have the sizes that every save will have. copy: saver_start copies the arrays
// (4 bytes per element), which may change after that; without `copy` they must not change until the
// save has ended.
Saver* saver_create(const CheckpointFiles& files, bool copy, const std::string& out_dir);
void saver_destroy(Saver* saver);           // waits for the save under way; does nothing for null

// Starts a save; none may be under way. The writing thread calls before_commit first, then
// files.progress as it writes.
void saver_start(Saver* saver, int64_t step, const CheckpointFiles& files,
                 std::function<void()> before_commit);
// Returns whether a save has ended whose result was not taken yet; false for null.
bool saver_ready(const Saver* saver);

struct Saved { Error error; std::string folder; double seconds; };     // error.code 0: it is saved
Saved saver_result(Saver* saver);           // waits for the save to end
// Does the same for a run's last save. If the save fails with kExitWrite, this tries it again for
// `patience` seconds or until stop() becomes true, and warns every half minute.
Saved saver_retry(Saver* saver, double patience, const std::function<bool()>& stop);
// Waits until no save is under way in this process, at most `seconds`. The watchdog thread calls it
// before it exits.
void saver_wait(double seconds);
