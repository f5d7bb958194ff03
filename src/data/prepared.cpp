// prepared.cpp -- see prepared.h.
#include "src/data/prepared.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"

std::string data_request(const DataOptions& o) {
    JsonLine line;
    each_option(o, [&](const char* name, const auto& value) {
        if constexpr (requires { value.size(); }) line.raw(name, json_quote(value, true));
        else line.add(name, value);
    });
    return line.text();
}

// A row is a list of its tokens and then `scored`. An item is a list of `first`, `label` and then `characters`.
static Task parse_task(const Json& json, const char* what) {
    Task task = {json.get_string("name", what), {}, {}};
    for (JsonItems i(json.at("rows", what)); i.next();) {
        std::vector<int> tokens = parse_list<int>(i.value);
        CHECK(tokens.size() > 1, "a question without tokens");
        const int scored = tokens.back();
        tokens.pop_back();
        task.rows.push_back({std::move(tokens), scored});
    }
    for (JsonItems i(json.at("items", what)); i.next();) {
        const std::vector<size_t> numbers = parse_list<size_t>(i.value);
        CHECK(numbers.size() > 2, "a question without endings");
        task.items.push_back({numbers[0], int(numbers[1]), {numbers.begin() + 2, numbers.end()}});
    }
    return task;
}

static std::vector<std::string> parse_paths(const Json& json) {
    std::vector<std::string> paths;
    for (JsonItems i(json); i.next();) paths.push_back(i.value.text());
    return paths;
}

PrepAnswer parse_prep_answer(const std::string& answer, const std::string& folder) {
    const char* const what = "what build/prep answers";
    const Json json = parse_json(answer, what, true);
    const std::string where = folder.empty() ? json.get_string("folder", what) : folder;
    const auto path = [&](const char* key) {
        const std::string name = json.get_string(key, what);
        return name.empty() ? name : path_join(where, name);
    };
    PrepAnswer a = {path("train"), path("val"), path("vocabulary"), parse_paths(json.at("train_files", what)),
                    parse_paths(json.at("val_files", what)), json.get_string("files", what),
                    parse_list<int>(json.at("start", what)), {}};
    if (const Json task = json.find("task")) a.task = parse_task(task, what);
    return a;
}

// ---- prepared tokens

std::string data_hash(const std::string& content) {
    return format("%016llx", (unsigned long long)hash_bytes(content.data(), content.size(), 0));
}

PreparedTokens read_prepared(const std::string& folder) {
    const std::string path = path_join(folder, "tokens.json"), text = read_file(path);
    const char* const what = path.c_str();
    const Json json = parse_json(text, what);
    return {json.get_u64("count", what), json.get_u64("cut", what), json.get_u64("width", what),
            json.at("masked", what).text() == "true", json.get_string("train_hash", what),
            json.get_string("val_hash", what), json.get_string("note", what)};
}
