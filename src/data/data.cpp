// data.cpp -- opens the data: decides which files are read and which part is validation, and asks build/prep for texts.
#include "src/data/data.h"
#include <algorithm>
#include <cmath>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/data/prepared.h"
#include "src/data/vocabulary.h"

using ull = unsigned long long;

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

void check_unchanged(const Dataset& part) {
    if (!part.content || !part.content->hash) return;
    std::string changed;
    uint64_t bytes = 0;
    for (const auto& file : part.content->files) {
        if (file->touched()) changed = file->path;
        bytes += file->size;
    }
    if (changed.empty()) return;
    if (content_hash(part.content->files) != part.content->hash)
        die(kExitBadContent, "data: %s: it has changed while the run reads it; restore it and resume from the last "
            "checkpoint, or begin a new run", changed.c_str());
    if (bytes > kHashed)
        warn("data: %s: written to while the run reads it; the blocks that are compared are the same", changed.c_str());
}

namespace {
// All tokens of --data or of --val-data, before the training and validation parts are cut out.
struct Tokens {
    std::vector<Shard> shards;
    std::shared_ptr<Content> files = {};    // the token files that the user gave; null: build/prep made the tokens
    uint64_t count = 0, cut = 0;            // number of tokens; the first token of validation
    std::string content = {};               // identifies the user's files; empty: train_hash and val_hash do that
    std::string train_hash = {}, val_hash = {}, note = {};
};

// Returns the dataset of tokens [from, to), counted over all shards.
Dataset make_dataset(const Tokens& tokens, uint64_t from, uint64_t to, int T) {
    Dataset d = {.T = T, .hash = from == 0 ? tokens.train_hash : tokens.val_hash, .content = tokens.files};
    std::string identity = tokens.content;
    for (Shard s : tokens.shards) {
        const uint64_t begin = std::min(from, s.tokens), end = std::min(to, s.tokens);
        from -= begin;
        to -= end;
        if (begin == end) continue;
        s.begin = begin;
        s.tokens = end - begin;
        d.first.push_back(d.samples);
        d.samples += (s.tokens - 1) / uint64_t(T);
        d.tokens += s.tokens;
        identity += format(" %llu+%llu", ull(s.begin), ull(s.tokens));
        d.shards.push_back(std::move(s));
    }
    d.first.push_back(d.samples);
    if (!tokens.content.empty()) d.hash = data_hash(identity);
    return d;
}

// Both return the value of this host's first rank; with comm null, `mine`. Collective.
template <class T> T of_leader(Comm* comm, const T& mine) {
    return comm ? comm_gather(comm, mine)[size_t(comm->host * comm->local_size)] : mine;
}
std::string text_of_leader(Comm* comm, const std::string& mine) {
    if (!comm || comm->size == 1) return mine;
    const size_t n = of_leader(comm, mine.size());
    char* const shared = comm_shared<char>(comm, n + 1, "what build/prep answers");
    if (comm->local_rank == 0) std::ranges::copy(mine, shared);
    comm_local_barrier(comm);
    return {shared, n};
}
bool leads(const Comm* comm) { return !comm || comm->local_rank == 0; }

Tokens open_shards(const std::vector<std::string>& files, bool split, Comm* comm) {
    Tokens all;
    all.files = std::make_shared<Content>();
    for (const std::string& path : files) {
        all.shards.push_back(open_token_file(path));
        all.files->files.push_back(all.shards.back().file);
        all.count += all.shards.back().tokens;
    }
    std::vector<uint32_t> crcs;
    if (leads(comm)) all.files->hash = content_hash(all.files->files, &crcs);
    if (leads(comm)) check_manifest(files, crcs);
    all.content = format("%016llx", ull(of_leader(comm, all.files->hash)));
    all.cut = split ? nine_tenths_of(all.count) : all.count;
    return all;
}

// Opens the tokens that build/prep has made from a text. kExitBadContent if their file is cut short.
Tokens open_prepared(const std::string& path, const std::string& folder) {
    const PreparedTokens about = read_prepared(folder);
    const auto file = std::make_shared<InputFile>(path_join(folder, "tokens.bin"), "data");
    if (const uint64_t want = checked_mul(about.count, about.width, "tokens.json"); file->size != want)
        die_content("data: " + file->path, with_commas(file->size) + " bytes", with_commas(want) + "; remove it");
    const Shard shard = {.width = size_t(about.width), .tokens = about.count, .name = path, .file = file,
                         .masked = about.masked};
    return {.shards = {shard}, .count = about.count, .cut = about.cut, .train_hash = about.train_hash,
            .val_hash = about.val_hash, .note = about.note};
}

// Returns whether --data, and --val-data if given, are each one file of tokens, and nothing needs text. Then build/prep
// is not asked.
bool is_tokens(const DataOptions& o) {
    const auto is_token_file = [](const std::string& path) {
        return file_exists(path) && !is_directory(path) && format_of(path) != Format::text &&
            !file_exists(path_join(parent_folder(path), "manifest.json"));      // shards that build/prep made
    };
    const bool has_text = !o.tokenizer.empty() || !o.init.tokenizer.empty() ||
        !o.init.generation_config.empty() || !o.task.empty() || o.special_tokens;
    return !has_text && base_name(o.data) != "train.bin" && is_token_file(o.data) &&
        (o.val_data.empty() || is_token_file(o.val_data));
}

// Returns whether the data are the built-in stories in bytes, whose tokens the build of this program has made.
bool is_default(const DataOptions& o) {
    const bool bytes = o.tokenizer.empty() || o.tokenizer == "byte";
    const bool fresh = o.init.tokenizer.empty() && o.init_vocab == 0 && o.vocab_size == 0 && !o.special_tokens;
    return o.data.empty() && o.val_data.empty() && bytes && fresh && o.prompt.empty() && o.task.empty() && !o.whole;
}

PrepAnswer answer_of(DataOptions o, Comm* comm) {
    if (is_tokens(o))
        return {.train_files = {o.data}, .val_files = std::vector<std::string>(!o.val_data.empty(), o.val_data)};
    if (is_default(o)) {
        const std::string path = find_story("stories/answer.json");
        return parse_prep_answer(read_file(path), parent_folder(path));
    }
    o.says = !comm || comm->rank == 0;
    const auto progress = [&] { if (comm) comm_progress(comm, -1, "reading text"); };
    const std::string request = data_request(o);
    const std::string answer = leads(comm) ? ask_prep(request, progress) : "";
    return parse_prep_answer(text_of_leader(comm, answer), "");
}

void require_samples(const Dataset& d, const std::string& path, const char* part) {
    if (d.samples > 0) return;
    if (!d.shards.empty() && d.shards[0].masked)
        die(kExitBadContent, "data: %s: got no %s conversation with an answer within its first %d tokens, want one or "
            "more; give a larger --seq-len", path.c_str(), part, d.T);
    die(kExitBadContent, "data: %s: got %s %s tokens, want at least %llu in one piece; give more text or a smaller "
        "--seq-len", path.c_str(), with_commas(d.tokens).c_str(), part, ull(d.T) + 1);
}

// Reads the first 2^28 tokens, which takes about a second, so that a bad token among them is found now and not later.
void check_tokens(const Dataset& set, int vocab_size) {
    if (!set.content) return;           // build/prep made the tokens
    uint64_t left = uint64_t(1) << 28;
    std::vector<int> block(1 << 16);
    for (const Shard& shard : set.shards)
        for (uint64_t at = 0, n; at < shard.tokens && left > 0; at += n, left -= n) {
            n = std::min({uint64_t(block.size()), shard.tokens - at, left});
            shard.read(at, size_t(n), block.data(), vocab_size);
        }
}

std::string describe(const Data& data, const std::string& files, const Tokens& tokens, const DataOptions& o) {
    std::string text = (o.data.empty() ? "built-in stories" : o.data) + ": ", more = tokens.note;
    const std::string val = with_commas(data.val.tokens);
    const bool masked = (o.whole ? data.val : data.train).shards[0].masked;
    if (!masked) text += (o.whole ? "" : with_commas(data.train.tokens) + " training and ") + val;
    if (!masked) text += o.whole ? " tokens" : " validation tokens";
    uint64_t bytes = 0;
    if (tokens.files)
        for (const auto& file : tokens.files->files) bytes += file->size;
    if (bytes > kHashed) more = format("a resume compares 1 of %llu blocks of 64 KiB", ull(ceil_div(bytes, kHashed)));
    return text + (masked || more.empty() ? "" : "; ") + more + (o.data.empty() ? "" : files);
}

}  // namespace

ModelTexts read_model_texts(const std::string& folder) {
    ModelTexts texts;
    for (const auto& [name, text] : kModelTexts)
        if (const std::string path = path_join(folder, name); file_exists(path)) texts.*text = read_file(path);
    return texts;
}

Data open_data(const DataOptions& o, Comm* comm) {
    const PrepAnswer answer = answer_of(o, comm);
    Data data = {.start = answer.start, .task = answer.task};
    if (!answer.vocabulary.empty()) data.vocabulary = read_vocabulary(answer.vocabulary);
    const int without = o.init_vocab ? o.init_vocab : o.vocab_size ? o.vocab_size : 50257;
    data.vocab_size = data.vocabulary.has_text() ? int(data.vocabulary.bytes.size()) : without;

    for (const int token : data.start)
        CHECK(token >= 0 && token < data.vocab_size, "build/prep answers the token %d", token);
    const bool split = answer.val.empty() && answer.val_files.empty();
    const std::string& val_path = o.val_data.empty() ? o.data : o.val_data;
    const auto open = [&](const std::string& path, const std::string& folder, const std::vector<std::string>& files) {
        return folder.empty() ? open_shards(files, split, comm) : open_prepared(path, folder);
    };
    Tokens tokens = open(o.data, answer.train, answer.train_files);
    if (o.whole) tokens.cut = 0;
    data.train = make_dataset(tokens, 0, tokens.cut, o.seq_len);
    if (split) {
        data.val = make_dataset(tokens, tokens.cut, tokens.count, o.seq_len);
    } else {
        const Tokens val = open(val_path, answer.val, answer.val_files);
        data.val = make_dataset(val, 0, val.count, o.seq_len);
    }
    if (!o.whole) require_samples(data.train, o.data, "training");
    if (o.evaluates) require_samples(data.val, val_path, o.whole ? "usable" : "validation");
    if (!o.whole)                           // with `whole` eval reads all of them at once
        for (const Dataset* part : {&data.val, &data.train}) check_tokens(*part, data.vocab_size);
    data.train.description = describe(data, answer.files, tokens, o);
    return data;
}

std::string TaskScore::text() const {
    const double n = double(items), acc = double(right) / n, norm = double(right_norm) / n;
    const double error = items > 1 ? std::sqrt(norm * (1 - norm) / (n - 1)) : 0;
    return format("%s acc %.3f acc_norm %.3f +- %.3f (%llu, chance %.3f)", name.c_str(), acc, norm, error,
                  (unsigned long long)items, chance);
}
