// data.cpp -- opens the data, for which it asks build/prep, and reads samples from them.
#include "src/data/data.h"
#include <algorithm>
#include <climits>
#include <cstring>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/words.h"

using ull = unsigned long long;

void Shard::read(uint64_t first, size_t n, int* out, int vocab_size) const {
    CHECK(first <= tokens && n <= tokens - first, "token %llu of %llu", ull(first + n), ull(tokens));
    const uint64_t at = offset + (begin + first) * width;
    std::vector<char> bytes(n * width);
    file->read(at, bytes.data(), bytes.size());
    for (size_t i = 0; i < n; i++) {
        uint64_t raw = 0;
        std::memcpy(&raw, &bytes[i * width], width == 2 ? 2 : width == 4 ? 4 : 8);  // bytes may be unaligned
        const uint64_t token = masked ? raw & ~uint64_t(kUntrained) : raw;
        if (token >= uint64_t(vocab_size))
            die(kExitBadContent, "data: %s: token %llu (byte %llu): got %llu, want less than %d, the vocabulary; is it "
                "the right --tokenizer?", file->path.c_str(), ull(begin + first + i), ull(at + i * width), ull(token),
                vocab_size);
        out[i] = int(raw);
    }
}

void Dataset::sample(uint64_t i, int* inputs, int* targets, int vocab_size) const {
    CHECK(i < samples, "sample %llu of %llu", ull(i), ull(samples));
    const size_t k = size_t(std::upper_bound(first.begin(), first.end(), i) - first.begin()) - 1;
    std::vector<int> tokens(size_t(T) + 1);
    shards[k].read((i - first[k]) * uint64_t(T), tokens.size(), tokens.data(), vocab_size);
    const bool masked = shards[k].masked;
    std::transform(tokens.begin(), tokens.end() - 1, inputs, [=](int t) { return masked ? t & INT32_MAX : t; });
    std::transform(tokens.begin() + 1, tokens.end(), targets, [](int t) { return std::max(t, -1); });
}

uint64_t Dataset::trained(uint64_t i, int vocab_size) const {
    if (!shards[0].masked) return uint64_t(T);
    std::vector<int> inputs(static_cast<size_t>(T)), targets(inputs.size());
    sample(i, inputs.data(), targets.data(), vocab_size);
    return uint64_t(std::ranges::count_if(targets, [](int t) { return t >= 0; }));
}

uint64_t Dataset::batches(int B, int64_t most) const {
    const uint64_t all = ceil_div(samples, uint64_t(B));
    return most > 0 ? std::min(uint64_t(most), all) : all;
}

uint64_t blocks_crc(const InputFile& file, uint64_t every) {
    uint32_t crc = 0;
    std::vector<char> block(kBlock);
    for (uint64_t at = 0; at < file.size; at += every) {
        const size_t bytes = size_t(std::min(kBlock, file.size - at));
        file.read(at, block.data(), bytes);
        crc = crc32c(crc, block.data(), bytes);
    }
    return crc;
}

void check_unchanged(const Dataset& part) {
    for (const Shard& s : part.shards) {
        if (!s.every || !s.file->touched()) continue;
        if (blocks_crc(*s.file, s.every) != s.crc)
            die(kExitBadContent, "data: %s: it has changed while the run reads it; restore it and resume from the last "
                "checkpoint, or begin a new run", s.file->path.c_str());
        if (s.every > kBlock)
            warn("data: %s: written to while the run reads it; the blocks that are compared are the same",
                 s.file->path.c_str());
    }
}

std::string find_data_file(const std::string& name, const char* what_to_do) {
    const std::string beside = parent_folder(program_path());
    for (const std::string folder : {"", "build/", "../", "../../"})
        if (const std::string path = beside + "/" + folder + "data/" + name; file_exists(path)) return path;
    if (file_exists("data/" + name)) return "data/" + name;
    die(kExitNoInput, "%s: it is not beside the program; %s", name.c_str(), what_to_do);
}

std::string find_story(const char* name) {
    return find_data_file(name, "run ninja, which makes the built-in text, or give --data");
}

ModelTexts read_model_texts(const std::string& folder) {
    ModelTexts texts;
    for (const auto& [name, text] : kModelTexts)
        if (const std::string path = path_join(folder, name); file_exists(path)) texts.*text = read_file(path);
    return texts;
}

void require_samples(const Data& data, bool evaluates) {
    for (const Dataset* d : {&data.train, &data.val}) {
        const bool trains = d == &data.train, needed = !d->path.empty() && (trains || evaluates);
        const char* const part = trains ? "training" : "validation";
        if (!needed || d->samples > 0) continue;
        if (!d->shards.empty() && d->shards[0].masked)
            die(kExitBadContent, "data: %s: got no %s conversation with an answer within its first %d tokens, want one "
                "or more; give a larger --seq-len", d->path.c_str(), part, d->T);
        die(kExitBadContent, "data: %s: got %s %s tokens, want at least %llu in one piece; give more text or a smaller "
            "--seq-len", d->path.c_str(), with_commas(d->tokens).c_str(), part, ull(d->T) + 1);
    }
}

// Runs build/prep, which gets the model's text files from its standard input: this host may not see the run's folder.
static std::string ask_prep(const DataOptions& o, Comm* comm) {
    Words words = {"--answer", format("--seq-len=%d", o.seq_len)};
    words.insert(words.end(), o.prep.begin(), o.prep.end());
    if (!o.cache.empty()) words.push_back("--cache=" + o.cache);
    if (comm && comm->rank > 0) words.push_back("--quiet");
    std::string texts;
    for (const auto& [name, text] : kModelTexts) texts += bytes_of((o.init.*text).size()) + o.init.*text;
    const auto progress = [&] { if (comm) comm_progress(comm, -1, "reading text"); };
    return ask_tool("--data", require_tool("--data", "prep"), words, texts, progress);
}

// Returns the folder with the data.
static std::string find_folder(const DataOptions& o, Comm* comm) {
    if (o.prep.empty()) return parent_folder(find_story("stories/manifest.json"));
    if (!comm) return ask_prep(o, comm);
    char* const folder = comm_shared<char>(comm, PATH_MAX, "the path of the data");
    if (comm->local_rank == 0) ask_prep(o, comm).copy(folder, PATH_MAX - 1);
    comm_local_barrier(comm);
    return folder;
}

Data open_data(const DataOptions& o, Comm* comm) {
    Data data = read_data(find_folder(o, comm), o.seq_len);
    require_samples(data, o.evaluates);
    return data;
}
