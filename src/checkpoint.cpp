// checkpoint.cpp -- the commit protocol: at every instant a complete checkpoint exists, and no other kind is ever taken for one.
//
// Why each step: a name must not appear before its bytes are on the disk (fsync of files, then rename), and must not vanish in a
// power cut after it was announced (fsync of folders). DONE turns "complete" into something that can be checked: it names every
// other file with its size and CRC-32C, and ends with its own.
#include "checkpoint.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "common.h"
#include "fault.h"
#include "json.h"

// ------------------------------------------------------------------------------------------- Hugging Face's config.json

std::string hf_config_json(const HfConfig& c) {
    const std::string eot = c.eot >= 0 ? std::to_string(c.eot) : "null", dropout = json_number(c.dropout);
    return format("{\n"
                  "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
                  "  \"model_type\": \"gpt2\",\n"
                  "  \"vocab_size\": %d,\n  \"n_positions\": %d,\n  \"n_ctx\": %d,\n"
                  "  \"n_embd\": %d,\n  \"n_layer\": %d,\n  \"n_head\": %d,\n"
                  "  \"n_inner\": null,\n"
                  "  \"activation_function\": \"gelu_new\",\n"
                  "  \"layer_norm_epsilon\": 1e-05,\n"
                  "  \"resid_pdrop\": %s,\n  \"embd_pdrop\": %s,\n  \"attn_pdrop\": %s,\n"
                  "  \"scale_attn_weights\": true,\n"
                  "  \"initializer_range\": 0.02,\n"
                  "  \"use_cache\": true,\n"
                  "  \"bos_token_id\": %s,\n  \"eos_token_id\": %s,\n"
                  "  \"tie_word_embeddings\": true,\n"
                  "  \"torch_dtype\": \"float32\"\n"
                  "}\n",
                  c.vocab_size, c.seq_len, c.seq_len, c.channels, c.layers, c.heads, dropout.c_str(), dropout.c_str(),
                  dropout.c_str(), eot.c_str(), eot.c_str());
}

HfConfig read_hf_config(const std::string& folder) {
    const std::string path = path_join(folder, "config.json"), weights = path_join(folder, "model.safetensors");
    const HfConfig c = parse_hf_config(map_file(path).text(), path.c_str());
    // The config's sizes alone must not decide how much is allocated: the file has two bytes or more for each value.
    const uint64_t most = file_exists(weights) ? map_file(weights).size / 2 : UINT64_MAX, n = hf_parameters(c, path.c_str());
    if (n > most)
        die(kExitBadContent, "%s: got a model of %s parameters, want at most %s, all that %s has room for", path.c_str(), with_commas(n).c_str(),
            with_commas(most).c_str(), weights.c_str());
    return c;
}

HfConfig parse_hf_config(std::string_view text, const char* what) {
    const Json j = parse_json(text, what);
    if (const std::string type = j.get_string("model_type", what); type != "gpt2")
        die(kExitBadContent, "%s: model_type: got %s, want \"gpt2\"", what, json_quote(type.substr(0, 40)).c_str());
    HfConfig c;
    const std::pair<const char*, int*> sizes[] = {
        {"n_layer", &c.layers}, {"n_head", &c.heads}, {"n_embd", &c.channels}, {"n_positions", &c.seq_len}, {"vocab_size", &c.vocab_size}};
    for (const auto& [key, size] : sizes) {
        constexpr uint64_t kMost = 1 << 24;
        uint64_t n = 0;
        const Json v = j.at(key, what);
        if (!v.as_u64(&n) || n < 1 || n > kMost)
            die(kExitBadContent, "%s: %s: got %s, want an integer of 1..%llu", what, key, json_shown(v).c_str(), (unsigned long long)kMost);
        *size = int(n);
    }
    if (c.channels % c.heads) die(kExitBadContent, "%s: n_head: got %d, want a divisor of n_embd = %d", what, c.heads, c.channels);

    // What this program knows of each; absent is fine: it is Hugging Face's default.
    const struct { const char* key; std::vector<std::string> known; } fixed[] = {
        {"n_inner", {"null", std::to_string(4 * c.channels)}}, {"activation_function", {"\"gelu_new\"", "\"gelu_pytorch_tanh\""}},
        {"scale_attn_weights", {"true"}}, {"tie_word_embeddings", {"true"}}, {"scale_attn_by_inverse_layer_idx", {"false"}},
        {"add_cross_attention", {"false"}}, {"quantization_config", {"null"}}};
    for (const auto& f : fixed)
        if (const Json v = j.find(f.key); v && std::count(f.known.begin(), f.known.end(), json_shown(v)) == 0)
            die(kExitBadContent, "%s: %s: got %s, want %s", what, f.key, json_shown(v).c_str(), (f.known[0] + (f.known.size() > 1 ? " or " + f.known[1] : "")).c_str());
    double eps = 1e-5;
    if (const Json v = j.find("layer_norm_epsilon"); v && (!v.as_double(&eps) || eps != 1e-5))
        die(kExitBadContent, "%s: layer_norm_epsilon: got %s, want 1e-05", what, json_shown(v).c_str());

    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
        double x = 0.1;                                 // Hugging Face's default
        if (const Json v = j.find(key); v && (!v.as_double(&x) || !(x >= 0 && x < 1)))
            die(kExitBadContent, "%s: %s: got %s, want a number in [0, 1)", what, key, json_shown(v).c_str());
        if (key[0] == 'r') c.dropout = x;
        else if (x != c.dropout) warn("%s: %s differs from resid_pdrop; this program has one dropout, %g", what, key, c.dropout);
    }
    uint64_t eot = 0;
    if (j.find("eos_token_id").as_u64(&eot) && eot < uint64_t(c.vocab_size)) c.eot = int(eot);
    return c;
}

uint64_t hf_parameters(const HfConfig& c, const char* what) {
    const uint64_t C = uint64_t(c.channels);            // each size is below 2^25, so the inner sums cannot wrap
    const uint64_t block = (12 * C + 13) * C;           // 4 matrices, 4 biases, 2 LayerNorms
    return checked_add((uint64_t(c.vocab_size) + uint64_t(c.seq_len) + 2) * C, checked_mul(uint64_t(c.layers), block, what), what);
}

// ---------------------------------------------------------------------------------------------------------- DONE

namespace {
constexpr int kDoneFormat = 1;
constexpr size_t kMaxDone = 1 << 16;
const char* const kNeeded[] = {"model.safetensors", "optim.safetensors", "config.json", "state.json"};

struct DoneFile { std::string name; uint64_t bytes; uint32_t crc; };
struct Done { int64_t step = 0; std::vector<DoneFile> files; };

//     lockstep checkpoint 1
//     step 1000
//     9a3c05e1 497774208 model.safetensors         CRC-32C, bytes, name
//     ...
//     crc 7d01f5aa                                 of all bytes before this line
std::string done_text(const Done& done) {
    std::string text = format("lockstep checkpoint %d\nstep %lld\n", kDoneFormat, (long long)done.step);
    for (const DoneFile& f : done.files) text += format("%08x %llu %s\n", f.crc, (unsigned long long)f.bytes, f.name.c_str());
    return text + format("crc %08x\n", crc32c(0, text.data(), text.size()));
}

// Reads it loosely, then accepts only what it would have written itself, byte for byte.
Done parse_done(const std::string& text, const char* what) {
    constexpr std::string_view kHead = "lockstep checkpoint ";
    if (!text.starts_with(kHead) || text.size() > kMaxDone)
        die(kExitBadContent, "%s: it does not begin with \"lockstep checkpoint\"", what);
    if (const int version = std::atoi(text.c_str() + kHead.size()); version != kDoneFormat)
        die(kExitBadContent, "%s: format %d, want %d; another version of this program wrote it", what, version, kDoneFormat);
    Done done;
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        const std::string line = text.substr(at, end - at);
        long long step;
        unsigned crc;
        unsigned long long bytes;
        char name[65];
        if (std::sscanf(line.c_str(), "step %lld", &step) == 1) done.step = step;
        else if (std::sscanf(line.c_str(), "%8x %20llu %64[A-Za-z0-9._-]", &crc, &bytes, name) == 3)
            done.files.push_back({name, bytes, crc});
    }
    if (done_text(done) != text) die(kExitBadContent, "%s: its lines do not agree with its checksum", what);
    return done;
}

// "" if the file is there as DONE says, else what is wrong. Not through links: a checkpoint is a folder of plain files.
std::string check_file(const std::string& folder, const DoneFile& f, bool checksums) {
    const std::string path = path_join(folder, f.name);
    struct stat info;
    if (::lstat(path.c_str(), &info)) return f.name + ": missing";
    if (!S_ISREG(info.st_mode)) return f.name + ": not a regular file";
    if (uint64_t(info.st_size) != f.bytes)
        return format("%s: got %lld bytes, want %llu", f.name.c_str(), (long long)info.st_size, (unsigned long long)f.bytes);
    if (!checksums) return "";
    const MappedFile file = map_file(path);
    const uint32_t crc = crc32c(0, file.data, file.size);
    return crc == f.crc ? "" : format("%s: checksum mismatch: got %08x, want %08x", f.name.c_str(), crc, f.crc);
}

// The step of "step_00001000", -1 for any other name.
int64_t step_of(const std::string& name) {
    if (!name.starts_with("step_") || name.size() < 13 || name.size() > 5 + 18) return -1;
    int64_t step = -1;
    return parse_whole(std::string_view(name).substr(5), &step) ? step : -1;
}

std::vector<std::string> step_folders(const std::string& ckpt) {                         // newest first
    std::vector<std::string> names;
    for (const std::string& name : list_directory(ckpt))
        if (step_of(name) >= 0) names.push_back(name);
    std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) { return step_of(a) > step_of(b); });
    return names;
}
}  // namespace

std::string verify_checkpoint(const std::string& folder, bool checksums) try {
    const std::string path = path_join(folder, "DONE");
    struct stat info;
    if (::lstat(path.c_str(), &info)) return "no DONE: its save was never finished";
    if (!S_ISREG(info.st_mode) || size_t(info.st_size) > kMaxDone) return "DONE: not a small regular file";
    const Done done = parse_done(read_file(path), "DONE");
    const int64_t step = step_of(base_name(folder));
    if (step >= 0 && step != done.step) return format("DONE: it is of step %lld", (long long)done.step);
    for (const char* name : kNeeded)
        if (std::none_of(done.files.begin(), done.files.end(), [&](const DoneFile& f) { return f.name == name; }))
            return std::string("DONE: it names no ") + name;
    for (const DoneFile& f : done.files)
        if (const std::string bad = check_file(folder, f, checksums); !bad.empty()) return bad;
    return "";
} catch (const Error& error) {
    if (error.code == kExitOther) throw;        // too many open files: not known to be bad, an older one must not take its place
    return error.message;
}

std::string find_checkpoint(const std::string& out_dir) {
    const std::string ckpt = path_join(out_dir, "ckpt");
    const std::vector<std::string> names = is_directory(ckpt) ? step_folders(ckpt) : std::vector<std::string>();
    std::vector<std::string> bad;
    for (const std::string& name : names) {
        const std::string why = verify_checkpoint(path_join(ckpt, name), true);
        if (!why.empty()) {
            bad.push_back("bad checkpoint: " + name + ": " + why);
            continue;
        }
        for (const std::string& b : bad) warn("%s; using %s", b.c_str(), name.c_str());
        return path_join(ckpt, name);
    }
    if (!bad.empty())
        die(kExitBadContent, "%s: none of %zu checkpoints is whole: %s; restore one, or start again in another folder",
            ckpt.c_str(), bad.size(), bad[0].c_str());
    return "";
}

std::string resolve_model_folder(const std::string& path) {
    std::string folder = path;
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    if (!is_directory(folder))
        die(kExitNoInput, "no model: %s: %s; want a run, a checkpoint or a Hugging Face folder", path.c_str(),
            file_exists(folder) ? "it is a file" : "it does not exist");
    if (file_exists(path_join(folder, "DONE")) || file_exists(path_join(folder, "state.json")) || step_of(base_name(folder)) >= 0) {
        if (const std::string why = verify_checkpoint(folder, true); !why.empty())
            die(kExitBadContent, "bad checkpoint: %s: %s", folder.c_str(), why.c_str());
        return folder;
    }
    if (file_exists(path_join(folder, "model.safetensors"))) return folder;
    if (is_directory(path_join(folder, "ckpt"))) {
        const std::string found = find_checkpoint(folder);
        if (found.empty()) die(kExitNoInput, "no model: %s: this run has not saved yet", path.c_str());
        return found;
    }
    for (const char* other : {"pytorch_model.bin", "model.safetensors.index.json"})
        if (file_exists(path_join(folder, other)))
            die(kExitNoInput,
                "no model: %s: it has %s, want one model.safetensors; load it with transformers and "
                "save_pretrained(safe_serialization=True, max_shard_size=\"100GB\")",
                path.c_str(), other);
    die(kExitNoInput, "no model: %s: it has no model.safetensors and no ckpt/", path.c_str());
}

// ---------------------------------------------------------------------------------------------------------- saving

namespace {
std::string generation_config_json(int eot) {
    JsonLine line;
    if (eot >= 0) line.add("bos_token_id", eot).add("eos_token_id", eot);
    return line.add("do_sample", true).add("temperature", 0.8).add("top_k", 50).text() + "\n";
}

// PreTrainedTokenizerFast takes tokenizer.json as it stands, whatever its kind.
std::string tokenizer_config_json(const CheckpointFiles& files) {
    JsonLine line;
    line.add("tokenizer_class", "PreTrainedTokenizerFast").add("clean_up_tokenization_spaces", false);
    line.add("model_max_length", parse_json(files.config_json, "config.json").get_u64("n_positions", "config.json"));
    if (files.eot < 0) return line.text() + "\n";
    const Json tokenizer = parse_json(files.tokenizer_json, "tokenizer.json");
    for (JsonItems token(tokenizer.find("added_tokens")); token.next();)
        if (token.value.get_u64("id", "tokenizer.json: added token") == uint64_t(files.eot)) {
            const std::string text = token.value.get_string("content", "tokenizer.json: added token");
            line.add("bos_token", text).add("eos_token", text).add("unk_token", text);
        }
    return line.text() + "\n";
}

void write_text(const std::string& folder, const char* name, const std::string& text, Done* done) {
    FileWriter file(path_join(folder, name));
    file.write(text.data(), text.size());
    file.finish();
    if (done) done->files.push_back({name, file.bytes, file.crc});
}

// The two large files: the arrays in them, in order.
struct LargeFile { const char* name; std::vector<std::string> suffixes; int first; };        // first: of master, m, v
std::vector<LargeFile> large_files() { return {{"model.safetensors", {""}, 0}, {"optim.safetensors", {".exp_avg", ".exp_avg_sq"}, 1}}; }

std::string temporary_folder(const std::string& out_dir, int64_t step) {
    return path_join(out_dir, format("ckpt/.tmp_step_%08lld", (long long)step));
}

void rename_folder(const std::string& from, const std::string& to, unsigned flags) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0) return;
    int error = errno;
    if (error == EINVAL || error == ENOSYS) {           // a file system without these flags, such as NFS
        error = flags == RENAME_NOREPLACE && file_exists(to) ? EEXIST : 0;
        if (error == 0 && ::rename(from.c_str(), to.c_str())) error = errno;
    }
    if (error) die(kExitWrite, "cannot rename: %s to %s: %s", from.c_str(), to.c_str(), std::strerror(error));
}

std::string free_name(const std::string& ckpt, const std::string& name) {
    std::string path = path_join(ckpt, name);
    for (int i = 2; file_exists(path); i++) path = path_join(ckpt, format("%s.%d", name.c_str(), i));
    return path;
}

// Gives the finished temporary folder its name. One of this step may be there, whole (a run that saves its last step twice) or
// broken (the run resumed from an older one): the two are exchanged in one system call, so that no instant is without either.
void place(const std::string& ckpt, const std::string& temporary, const std::string& name) {
    const std::string final = path_join(ckpt, name);
    if (!file_exists(final)) return rename_folder(temporary, final, RENAME_NOREPLACE);
    const std::string aside = free_name(ckpt, (verify_checkpoint(final, true).empty() ? ".del_" : ".bad_") + name);
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
        rename_folder(temporary, aside, RENAME_NOREPLACE);
    } else {
        rename_folder(final, aside, RENAME_NOREPLACE);
        rename_folder(temporary, final, RENAME_NOREPLACE);
    }
}

bool is_stale(const std::string& name) {
    return name.starts_with(".tmp_step_") || name.starts_with(".del_step_") || name.starts_with("latest.tmp");
}

void remove_stale(const std::string& ckpt) {
    for (const std::string& name : list_directory(ckpt))
        if (is_stale(name)) remove_tree(path_join(ckpt, name));
}

// Removes whole checkpoints older than the one just committed, beyond `keep` in all. Broken ones are nobody's to delete and do not
// count.
void retire(const std::string& ckpt, int64_t step, int keep) {
    int kept = 1;
    for (const std::string& name : step_folders(ckpt)) {
        if (keep == 0 || step_of(name) >= step || !verify_checkpoint(path_join(ckpt, name), false).empty() || ++kept <= keep)
            continue;
        const std::string gone = path_join(ckpt, ".del_" + name);       // so that it is never half-deleted under its own name
        rename_folder(path_join(ckpt, name), gone, RENAME_NOREPLACE);
        remove_tree(gone);
    }
    remove_stale(ckpt);                                                 // what place() set aside
}
}  // namespace

size_t part_begin(const Arena& arena, int part, int parts) {
    const size_t cut = arena.n / kUnit * size_t(part) / size_t(parts) * kUnit;
    const size_t tensor = cut < arena.n ? tensor_at(arena, cut) : 0;
    return cut < arena.n && arena.tensors[tensor].transposed ? arena.offset[tensor] : cut;
}

void require_space(const std::string& folder, const Arena& arena) {
    struct statvfs disk;
    const uint64_t want = 3 * bytes_before(arena, arena.n);
    if (statvfs(folder.c_str(), &disk) != 0 || disk.f_blocks == 0) return;
    if (const uint64_t got = disk.f_bavail * disk.f_frsize; got < want)
        die(kExitWrite, "no space for a checkpoint: %s: got %s bytes free, want %s; make room, or give another --out-dir", folder.c_str(), with_commas(got).c_str(),
            with_commas(want).c_str());
}

void begin_checkpoint(const std::string& out_dir, int64_t step, const CheckpointFiles& files) {
    const std::string ckpt = path_join(out_dir, "ckpt"), folder = temporary_folder(out_dir, step);
    make_directories(ckpt);
    remove_stale(ckpt);
    require_space(ckpt, *files.arena);
    make_directories(folder);
    for (const LargeFile& large : large_files()) {                             // not synced: the first part's writer does that
        const std::string header = safetensors_header(*files.arena, large.suffixes);
        FileWriter(path_join(folder, large.name)).write(header.data(), header.size());
    }
}

CheckpointPart write_checkpoint_part(const std::string& out_dir, int64_t step, const CheckpointFiles& files, int part, int parts) {
    const Arena& arena = *files.arena;
    const size_t begin = part_begin(arena, part, parts), end = part_begin(arena, part + 1, parts);
    const float* const arrays[] = {files.master, files.m, files.v};
    CheckpointPart sums;
    for (size_t i = begin; i < end && files.sums; i += kUnit)
        if (state_sum(arrays[0] + (i - files.base), arrays[1] + (i - files.base), arrays[2] + (i - files.base)) != files.sums[(i - files.base) / kUnit])
            die(kExitDisagree, "the state of step %lld is damaged: %s: its weights or moments are not the bits that the last update wrote; this machine's "
                "memory is at fault; nothing of it was saved", (long long)step, arena.tensors[tensor_at(arena, i)].name.c_str());
    for (const LargeFile& large : large_files()) {
        FileWriter file(path_join(temporary_folder(out_dir, step), large.name), true);
        uint64_t at = safetensors_header(arena, large.suffixes).size() + bytes_before(arena, begin);
        for (size_t k = 0; k < large.suffixes.size(); k++, at += bytes_before(arena, arena.n)) {
            file.start_at(at);
            write_elements(&file, arena, begin, end, arrays[large.first + k], files.base);
            sums.of[large.first + k] = {file.bytes, file.crc};
            files.moved();
        }
        file.finish();
        files.moved();
        if (large.first == 0) fault_point("ckpt_write", part, step);
    }
    return sums;
}

std::string commit_checkpoint(const std::string& out_dir, int64_t step, const CheckpointFiles& files, int keep,
                              const std::vector<CheckpointPart>& parts) {
    const std::string ckpt = path_join(out_dir, "ckpt"), name = format("step_%08lld", (long long)step);
    const std::string folder = temporary_folder(out_dir, step), final = path_join(ckpt, name);
    Done done;
    done.step = step;
    for (const LargeFile& large : large_files()) {
        const std::string header = safetensors_header(*files.arena, large.suffixes);
        DoneFile file = {large.name, header.size(), crc32c(0, header.data(), header.size())};
        for (size_t k = 0; k < large.suffixes.size(); k++)
            for (const CheckpointPart& part : parts) {
                const auto& sum = part.of[large.first + k];
                file.crc = crc32c_join(file.crc, sum.crc, sum.bytes);
                file.bytes += sum.bytes;
            }
        done.files.push_back(file);
    }
    write_text(folder, "config.json", files.config_json, &done);
    write_text(folder, "generation_config.json", generation_config_json(files.eot), &done);
    if (!files.tokenizer_json.empty()) {
        write_text(folder, "tokenizer.json", files.tokenizer_json, &done);
        write_text(folder, "tokenizer_config.json", tokenizer_config_json(files), &done);
    }
    write_text(folder, "state.json", files.state_json, &done);
    write_text(folder, "DONE", done_text(done), nullptr);
    sync_directory(folder);
    files.moved();
    fault_point("ckpt_done", 0, step);
    place(ckpt, folder, name);
    sync_directory(ckpt);
    files.moved();
    fault_point("ckpt_placed", 0, step);
    if (const std::string bad = verify_checkpoint(final, false); !bad.empty())
        die(kExitWrite, "write failed: %s: it does not read back: %s", final.c_str(), bad.c_str());
    write_file_atomic(path_join(ckpt, "latest"), name + "\n");
    fault_point("ckpt_latest", 0, step);
    try {
        retire(ckpt, step, keep);
    } catch (const Error& error) {                                      // the new one is safe; only space is lost
        warn("old checkpoints stay: %s", error.message.c_str());
    }
    return final;
}

void cancel_checkpoint(const std::string& out_dir, int64_t step) {
    try { remove_tree(temporary_folder(out_dir, step)); } catch (const Error&) {}       // the first error is the one to tell
}

void repair_latest(const std::string& checkpoint) try {
    const std::string name = base_name(checkpoint), ckpt = checkpoint.substr(0, checkpoint.size() - name.size()), latest = ckpt + "latest";
    if (step_folders(ckpt)[0] != name || (file_exists(latest) && read_file(latest) == name + "\n")) return;
    write_file_atomic(latest, name + "\n");
} catch (const Error& error) {
    warn("%s", error.message.c_str());
}

void abandon_newer(const std::string& out_dir, int64_t step) {
    const std::string ckpt = path_join(out_dir, "ckpt");
    for (const std::string& name : step_folders(ckpt)) {
        if (step_of(name) <= step) continue;
        const std::string aside = free_name(ckpt, ".bad_" + name);
        rename_folder(path_join(ckpt, name), aside, RENAME_NOREPLACE);
        warn("%s: set aside as %s: the run goes on from step %lld", name.c_str(), base_name(aside).c_str(), (long long)step);
    }
    sync_directory(ckpt);
    write_file_atomic(path_join(ckpt, "latest"), format("step_%08lld\n", (long long)step));
}
