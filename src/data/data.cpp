// data.cpp -- opens the data, for which it asks build/prep, and reads samples from them. Numbers in
// the folder that build/prep writes (docs/data.md) are held to the sizes of files before they
// decide an allocation.
#include "src/data/data.h"
#include <algorithm>
#include <climits>
#include <cstring>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"

void Shard::read(uint64_t first, size_t n, int* out, int vocab_size) const {
    CHECK(first <= tokens && n <= tokens - first, "token %lu of %lu", first + n, tokens);
    const uint64_t at = offset + (begin + first) * width;
    std::vector<char> bytes(n * width);
    file->read(at, bytes.data(), bytes.size());
    for (size_t i = 0; i < n; i++) {
        uint64_t raw = 0;
        std::memcpy(&raw, &bytes[i * width], width);
        const uint64_t token = masked ? raw & ~uint64_t(kUntrained | kBegins) : raw;
        if (token >= uint64_t(vocab_size))
            die(kExitBadContent,
                "data: %s: token %lu (byte %lu): got %lu, want less than %d, the vocabulary; is it the "
                "right --tokenizer?",
                file->path.c_str(), begin + first + i, at + i * width, token, vocab_size);
        out[i] = raw;
    }
}

// The table is numbers of 8 bytes: how many rows and pieces, the tokens in all pieces, the first
// piece of each row, the number of pieces, the pieces, and the first row of each shard. A piece is
// the number of its first token in the part << Piece::kBits | its tokens.
constexpr uint64_t kNumber = sizeof(uint64_t);

void Dataset::open_rows(const std::string& path) {
    uint64_t head[3];
    rows = std::make_shared<InputFile>(path, "data");
    rows->read(0, head, sizeof head);
    const auto [count, all_pieces, in_pieces] = head;
    const uint64_t has = rows->size / kNumber;
    if (double(count) + all_pieces + shards.size() + 4 != has)      // as doubles, which do not wrap
        die_content("data: " + path, with_commas(has) + " numbers", "those that it counts");
    first.resize(shards.size());
    rows->read((has - first.size()) * kNumber, first.data(), first.size() * kNumber);
    first.push_back(samples = count);
    if (!std::ranges::is_sorted(first))
        die_content("data: " + path, "shards whose rows are out of order", "those of build/prep");
    starts = {0};
    for (const Shard& s : shards) starts.push_back(starts.back() + s.tokens);
    padding = 1 - in_pieces / (double(samples) * T);
}

std::vector<Piece> Dataset::pieces(uint64_t i) const {
    CHECK(i < samples, "sample %lu of %lu", i, samples);
    const auto shard = [](const std::vector<uint64_t>& begins, uint64_t n) -> size_t {
        return std::ranges::upper_bound(begins, n) - begins.begin() - 1;
    };
    if (!rows) {
        const size_t k = shard(first, i);
        return {{&shards[k], (i - first[k]) * (T - overlap), uint64_t(T)}};
    }
    const auto damaged = [&] {
        die_content("data: " + rows->path, format("a damaged row %lu", i),
                    "what build/prep wrote; build/prep --empty-cache, and start again");
    };
    uint64_t bounds[2];
    rows->read((3 + i) * kNumber, bounds, sizeof bounds);
    const uint64_t count = bounds[1] - bounds[0];
    if (count > uint64_t(T)) damaged();
    std::vector<uint64_t> packed(count);
    rows->read((4 + samples + bounds[0]) * kNumber, packed.data(), count * kNumber);
    std::vector<Piece> all;
    uint64_t sum = 0;
    for (const uint64_t piece : packed) {
        const uint64_t at = piece >> Piece::kBits, n = piece % (1 << Piece::kBits);
        const size_t k = shard(starts, at);
        sum += n;
        if (k >= shards.size() || n > starts[k + 1] - at || sum > uint64_t(T)) damaged();
        all.push_back({&shards[k], at - starts[k], n});
    }
    return all;
}

void Dataset::sample(uint64_t i, int* inputs, int* targets, int vocab_size, double* given,
                     int* begin) const {
    int t = 0;
    for (const auto& [s, at, n] : pieces(i)) {
        std::vector<int> tokens(n + 1, int(kUntrained));
        s->read(at, std::min(tokens.size(), s->tokens - at), tokens.data(), vocab_size);
        for (int j = 0, start = t; j < int(n); j++, t++) {
            inputs[t] = tokens[j] & (kBegins - 1);
            if (apart &&
                (apart->start_at(inputs[t]) || (j > 0 && apart->start_behind(inputs[t - 1]))))
                start = t;
            const bool trained = !(at && j < overlap) && tokens[j + 1] >= 0;
            targets[t] = trained ? tokens[j + 1] & (kBegins - 1) : -1;
            if (begin) begin[t] = start;
            if (given) given[t] = std::prev(s->given.upper_bound(s->begin + at + j + 1))->second;
        }
    }
    for (; t < T; t++) {                // padding: each place is a document of its own
        inputs[t] = 0;
        targets[t] = -1;
        if (begin) begin[t] = t;
    }
}

uint64_t Dataset::trained(uint64_t i, int vocab_size) const {
    uint64_t n = 0;
    for (const auto& [s, at, tokens] : pieces(i)) n += std::min(tokens, s->tokens - 1 - at);
    if (std::ranges::none_of(shards, &Shard::masked)) return n;
    std::vector<int> inputs(T), targets(T);
    sample(i, inputs.data(), targets.data(), vocab_size);
    return std::ranges::count_if(targets, [](int t) { return t >= 0; });
}

uint64_t Dataset::batches(size_t k, int B, int64_t most) const {
    const uint64_t all = ceil_div(begins[k + 1] - begins[k], uint64_t(B));
    return most > 0 ? std::min(uint64_t(most), all) : all;
}

void check_unchanged(const Dataset& part) {
    for (const Shard& s : part.shards) {
        if (!s.every || !s.file->touched()) continue;
        if (s.file->checksum(0, s.every) != s.crc)
            die(kExitBadContent,
                "data: %s: it has changed while the run reads it; restore it and resume from the last "
                "checkpoint, or begin a new run",
                s.file->path.c_str());
        if (s.every > kFileBlock)
            warn("data: %s: written to while the run reads it; the blocks that are compared are the same",
                 s.file->path.c_str());
    }
}

std::string find_data_file(const std::string& name, const char* what_to_do) {
    const std::string beside = parent_folder(program_path());
    for (const std::string folder : {"", "build/", "../", "../../"})
        if (const std::string path = beside + "/" + folder + "data/" + name; file_exists(path))
            return path;
    if (file_exists("data/" + name)) return "data/" + name;
    die(kExitNoInput, "%s: it is not beside the program; %s", name.c_str(), what_to_do);
}

ModelTexts read_model_texts(const std::string& folder) {
    ModelTexts texts;
    for (const auto& [name, text] : kModelTexts)
        if (const std::string path = path_join(folder, name); file_exists(path))
            texts.*text = read_file(path);
    return texts;
}

void require_samples(const Data& data, bool evaluates) {
    for (const Dataset* d : {&data.train, &data.val}) {
        const bool trains = d == &data.train, needed = !d->path.empty() && (trains || evaluates);
        const char* const part = trains ? "training" : "validation";
        const auto empty = std::ranges::adjacent_find(d->begins);       // a source without a sample
        if (!needed || empty == d->begins.end()) continue;
        const std::string& source = d->paths[size_t(empty - d->begins.begin())];
        const char* const path = (source.empty() ? d->path : source).c_str();
        if (!d->shards.empty() && d->shards[0].masked)
            die(kExitBadContent,
                "data: %s: got no %s conversation with an answer within its first %d tokens, want one "
                "or more; give a larger --seq-len",
                path, part, d->T);
        die(kExitBadContent,
            "data: %s: got %s %s tokens, want at least %ld in one piece; give more text or a smaller "
            "--seq-len",
            path, source.empty() ? with_commas(d->tokens).c_str() : "too few", part, d->T + 1L);
    }
}

// ---- the folder that build/prep has written

// Returns a list of whole numbers below `end`. key: the list's name, for errors.
static std::vector<int> read_numbers(const Json& json, const char* key, uint64_t end,
                                     const char* what) {
    std::vector<int> list;
    uint64_t n = 0;
    for (JsonItems i(json); i.next(); list.push_back(int(n)))
        if (!i.value.as_u64(&n) || n >= end)
            refuse(what, key, i.value, format("from 0 to %lu", end - 1).c_str());
    return list;
}

static Shard read_shard(const Json& json, const std::string& folder, const char* what) {
    const std::string path = path_join(folder, json.get_string("file", what));
    const auto number = [&](const char* key) { return json.get_u64(key, what); };
    Shard s = {.file = std::make_shared<InputFile>(path, "data"),
               .width = number("width"),
               .offset = number("offset"),
               .begin = number("begin"),
               .tokens = number("tokens"),
               .every = number("every"),
               .crc = number("crc32c"),
               .masked = json.at("masked", what).text() == "true"};
    for (JsonItems i(json.find("given")); i.next();) {
        const double bytes = i.value.get_double("bytes", what);
        if (bytes <= 0) refuse(what, "bytes", i.value.find("bytes"), "more than 0");
        s.given[i.value.get_u64("token", what)] = bytes;
    }
    if (s.width != 2 && s.width != 4 && s.width != 8)
        refuse(what, "width", json.at("width", what), "2, 4 or 8");
    const uint64_t size = s.file->size, has = (size - std::min(s.offset, size)) / s.width;
    if (s.tokens == 0 || s.begin > has || s.tokens > has - s.begin)
        die_content("data: " + path, with_commas(has) + " tokens",
                    "those that " + std::string(what) + " lists");
    return s;
}

static Dataset read_dataset(const Json& json, const std::string& folder, int T, const char* what) {
    Dataset d = {.T = T};
    if (!json) return d;
    d.path = json.get_string("path", what);
    d.hash = json.get_string("hash", what);
    for (JsonItems i(json.find("shards")); i.next();) {
        const Shard s = read_shard(i.value, folder, what);
        d.first.push_back(d.samples);
        d.samples += (s.tokens - 1) / T;
        d.tokens += s.tokens;
        d.shards.push_back(s);
    }
    d.first.push_back(d.samples);
    if (json.find("rows")) d.open_rows(path_join(folder, json.get_string("rows", what)));
    size_t shard = 0;
    for (JsonItems i(json.find("mixture")); i.next(); shard += i.value.get_u64("shards", what)) {
        d.paths.push_back(i.value.get_string("path", what));
        d.weights.push_back(i.value.get_double("weight", what));
        d.begins.push_back(d.first[std::min(shard, d.shards.size())]);
        if (d.weights.back() <= 0) refuse(what, "weight", i.value.find("weight"), "above 0");
    }
    if (d.paths.empty()) d.paths = {""}, d.weights = {1}, d.begins = {0};
    d.begins.push_back(d.samples);
    return d;
}

// Reads the bytes of all tokens: for each a length of 4 bytes, and the bytes.
static Words read_table(const std::string& path) {
    const std::string table = read_file(path);
    Words all;
    size_t at = 0;
    for (uint32_t length; table.size() - at >= sizeof length; at += length) {
        std::memcpy(&length, &table[at], sizeof length);
        at += sizeof length;
        if (length > table.size() - at) break;
        all.push_back(table.substr(at, length));
    }
    if (at != table.size()) die_content(path, "a token that is cut short", "whole ones");
    return all;
}

static Vocabulary read_vocabulary(const Json& json, const std::string& folder, int size,
                                  const char* what) {
    const auto number = [&](const char* key) {
        const double x = json.get_double(key, what);
        if (x < -1 || x > size) refuse(what, key, json.find(key), "one of the vocabulary");
        return int(x);
    };
    Vocabulary v = {.name = json.get_string("name", what),
                    .tokens = number("tokens"),
                    .ends = read_numbers(json.at("ends", what), "ends", size, what),
                    .documents = {number("begin"), number("end")},
                    .untrained =
                        read_numbers(json.at("untrained", what), "untrained", size, what),
                    .config = json.at("config", what).text(),
                    .chats = json.at("chats", what).text() == "true",
                    .bytes = read_table(path_join(folder, json.get_string("bytes", what)))};
    for (JsonItems i(json.at("files", what)); i.next();)
        v.files.push_back(
            {base_name(i.value.text()), read_file(path_join(folder, i.value.text()))});
    return v;
}

Data read_data(const std::string& folder, int T) {
    const std::string path = path_join(folder, "manifest.json"), text = read_file(path);
    const char* const what = path.c_str();
    const Json json = parse_json(text, what, true);
    Data data = {.train = read_dataset(json.find("train"), folder, T, what),
                 .val = read_dataset(json.find("val"), folder, T, what),
                 .vocab_size = int(json.get_u64("vocab_size", what))};
    data.start = read_numbers(json.find("start"), "start", data.vocab_size, what);
    data.train.description = json.get_string("description", what);
    if (const Json vocabulary = json.find("vocabulary"))
        data.vocabulary = read_vocabulary(vocabulary, folder, data.vocab_size, what);
    if (const uint64_t rows = data.vocabulary.bytes.size();
        rows && rows != uint64_t(data.vocab_size))
        refuse(what, "vocab_size", json.at("vocab_size", what), std::to_string(rows));
    return data;
}

// Runs build/prep, which gets the model's text files from its standard input: this host may not see
// the run's folder.
static std::string ask_prep(const DataOptions& o, Comm* comm) {
    Words words = {"--answer", format("--seq-len=%d", o.seq_len)};
    words.insert(words.end(), o.prep.begin(), o.prep.end());
    if (!o.cache.empty()) words.push_back("--cache=" + o.cache);
    if (comm && comm->rank > 0) words.push_back("--quiet");
    std::string texts;
    for (const auto& [name, text] : kModelTexts)
        texts += bytes_of((o.init.*text).size()) + o.init.*text;
    const auto progress = [&] { if (comm) comm_progress(comm, -1, "reading text"); };
    return ask_tool("--data", require_tool("--data", "prep"), words, texts, progress);
}

// Returns the folder with the data.
static std::string find_folder(const DataOptions& o, Comm* comm) {
    if (o.prep.empty()) return parent_folder(find_data_file("stories/manifest.json"));
    if (!comm) return ask_prep(o, comm);
    char* const folder = comm_shared<char>(comm, PATH_MAX, "the path of the data");
    if (comm->local_rank == 0) ask_prep(o, comm).copy(folder, PATH_MAX - 1);
    comm_local_barrier(comm);
    return folder;
}

Data open_data(const DataOptions& o, Comm* comm) {
    Data data = read_data(find_folder(o, comm), o.seq_len);
    require_samples(data, o.evaluates);
    if (data.train.rows || data.val.rows)
        data.train.apart = data.val.apart = DocumentTokens{};
    if (o.rows != "masked") return data;
    const DocumentTokens between = data.vocabulary.documents;
    if (between.begin < 0 && between.end < 0)
        die(kExitUsage,
            "--rows: got %s, but the tokenizer has no token between documents; take --rows join",
            o.rows.c_str());
    data.train.apart = data.val.apart = between;
    return data;
}
