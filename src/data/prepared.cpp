// prepared.cpp -- reads the folder that build/prep writes (docs/data.md). Numbers in it are held to the sizes of files
// before they decide an allocation.
#include <algorithm>
#include <cstring>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/data/data.h"

// Skips all but whole numbers >= 0.
template <class T> static std::vector<T> parse_list(const Json& json) {
    std::vector<T> list;
    uint64_t n = 0;
    for (JsonItems i(json); i.next();)
        if (i.value.as_u64(&n)) list.push_back(T(n));
    return list;
}

static Shard read_shard(const Json& json, const std::string& folder, const char* what) {
    const std::string path = path_join(folder, json.get_string("file", what));
    const auto number = [&](const char* key) { return json.get_u64(key, what); };
    const Shard s = {.file = std::make_shared<InputFile>(path, "data"), .width = number("width"),
                     .offset = number("offset"), .begin = number("begin"), .tokens = number("tokens"),
                     .every = number("every"), .crc = number("crc32c"),
                     .masked = json.at("masked", what).text() == "true"};
    if (s.width != 2 && s.width != 4 && s.width != 8) refuse(what, "width", json.at("width", what), "2, 4 or 8");
    const uint64_t size = s.file->size, has = (size - std::min(s.offset, size)) / s.width;
    if (s.tokens == 0 || s.begin > has || s.tokens > has - s.begin)
        die_content("data: " + path, with_commas(has) + " tokens", "those that " + std::string(what) + " lists");
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
        d.samples += (s.tokens - 1) / uint64_t(T);
        d.tokens += s.tokens;
        d.shards.push_back(s);
    }
    d.first.push_back(d.samples);
    return d;
}

// Reads the bytes of all tokens: for each a length of 4 bytes, and the bytes.
static std::vector<std::string> read_table(const std::string& path) {
    const std::string table = read_file(path);
    std::vector<std::string> all;
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

static Vocabulary read_vocabulary(const Json& json, const std::string& folder, const char* what) {
    const auto is = [&](const char* key) { return json.at(key, what).text() == "true"; };
    const auto number = [&](const char* key) { return int(json.get_double(key, what)); };
    Vocabulary v = {.name = json.get_string("name", what), .tokens = number("tokens"),
                    .ends = parse_list<int>(json.at("ends", what)),
                    .documents = {number("begin"), number("end")},
                    .untrained = parse_list<int>(json.at("untrained", what)),
                    .config = json.at("config", what).text(), .chats = is("chats"), .is_bpe = is("is_bpe"),
                    .bytes = read_table(path_join(folder, json.get_string("bytes", what)))};
    for (JsonItems i(json.at("files", what)); i.next();)
        v.files.push_back({base_name(i.value.text()), read_file(path_join(folder, i.value.text()))});
    return v;
}

Data read_data(const std::string& folder, int T) {
    const std::string path = path_join(folder, "manifest.json"), text = read_file(path);
    const char* const what = path.c_str();
    const Json json = parse_json(text, what, true);
    Data data = {.train = read_dataset(json.find("train"), folder, T, what),
                 .val = read_dataset(json.find("val"), folder, T, what),
                 .vocab_size = int(json.get_u64("vocab_size", what)), .start = parse_list<int>(json.find("start"))};
    data.train.description = json.get_string("description", what);
    if (const Json vocabulary = json.find("vocabulary"))
        data.vocabulary = read_vocabulary(vocabulary, folder, what);
    if (const uint64_t rows = data.vocabulary.bytes.size(); rows && rows != uint64_t(data.vocab_size))
        refuse(what, "vocab_size", json.at("vocab_size", what), std::to_string(rows));
    if (std::ranges::any_of(data.start, [&](int token) { return token < 0 || token >= data.vocab_size; }))
        refuse(what, "start", json.at("start", what), "tokens of the vocabulary");
    return data;
}
