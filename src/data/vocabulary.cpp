// vocabulary.cpp -- see vocabulary.h.
#include "src/data/vocabulary.h"
#include <cstring>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/data/prepared.h"

// Reads bytes.bin: the bytes of `rows` tokens. kExitBadContent if the file is too short or too long.
static std::vector<std::string> read_table(const std::string& path, uint64_t rows) {
    const std::string table = read_file(path);
    std::vector<std::string> all;
    size_t at = 0;
    for (uint32_t length; all.size() < rows && table.size() - at >= sizeof length; at += length) {
        std::memcpy(&length, &table[at], sizeof length);
        at += sizeof length;
        if (length > table.size() - at) break;
        all.push_back(table.substr(at, length));
    }
    if (all.size() != rows || at != table.size())
        die_content(path, std::to_string(all.size()) + " tokens", std::to_string(rows));
    return all;
}

Vocabulary read_vocabulary(const std::string& folder) {
    const std::string path = path_join(folder, "vocabulary.json"), text = read_file(path);
    const char* const what = path.c_str();
    const Json json = parse_json(text, what, true);
    const auto is = [&](const char* key) { return json.at(key, what).text() == "true"; };
    Vocabulary v = {.name = json.get_string("name", what), .tokens = int(json.get_double("tokens", what)),
                    .ends = parse_list<int>(json.at("ends", what)),
                    .documents = {int(json.get_double("begin", what)), int(json.get_double("end", what))},
                    .untrained = parse_list<int>(json.at("untrained", what)),
                    .config = json.at("config", what).text(), .chats = is("chats"), .is_bpe = is("is_bpe")};
    v.bytes = read_table(path_join(folder, "bytes.bin"), json.get_u64("rows", what));
    for (JsonItems i(json.at("files", what)); i.next();)
        v.files.push_back({i.value.text(), read_file(path_join(folder, "files/" + i.value.text()))});
    return v;
}
