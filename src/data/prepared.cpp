// prepared.cpp -- see prepared.h.
#include "src/data/prepared.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"

// Calls f(name, field) for every field of DataOptions.
template <class O, class F> static void each_option(O& o, const F& f) {
    f("data", o.data);
    f("val_data", o.val_data);
    f("tokenizer", o.tokenizer);
    f("chat_template", o.chat_template);
    f("init_path", o.init_path);
    for (const auto& [name, text] : kModelTexts) f(name, o.init.*text);
    f("init_weights", o.init_weights);
    f("prompt", o.prompt);
    f("task", o.task);
    f("cache", o.cache);
    f("init_vocab", o.init_vocab);
    f("vocab_size", o.vocab_size);
    f("seq_len", o.seq_len);
    f("skip_bad_lines", o.skip_bad_lines);
    f("special_tokens", o.special_tokens);
    f("frozen_by", o.frozen_by);
    f("whole", o.whole);
    f("evaluates", o.evaluates);
    f("says", o.says);
}

std::string data_request(const DataOptions& o) {
    JsonLine line;
    each_option(o, [&](const char* name, const auto& value) {
        if constexpr (requires { value.size(); }) line.raw(name, json_quote(value, true));
        else line.add(name, value);
    });
    return line.text();
}

DataOptions parse_data_request(const std::string& request) {
    const char* const what = "request";
    const Json json = parse_json(request, what, true);
    DataOptions o;
    each_option(o, [&](const char* name, auto& value) {
        using T = std::decay_t<decltype(value)>;
        const Json found = json.find(name);
        if (!found) return;
        if constexpr (std::is_same_v<T, std::string>) value = found.text();
        else if constexpr (std::is_same_v<T, bool>) value = found.text() == "true";
        else value = int(json.get_u64(name, what));
    });
    return o;
}

// ---- the answer

// A row is a list of its tokens and then `scored`. An item is a list of `first`, `label` and then `characters`.
static std::string task_json(const Task& task) {
    std::vector<std::string> rows, items;
    for (Task::Row row : task.rows) {
        row.tokens.push_back(row.scored);
        rows.push_back(json_list(row.tokens));
    }
    for (const Task::Item& item : task.items) {
        std::vector<size_t> numbers = {item.first, size_t(item.label)};
        numbers.insert(numbers.end(), item.characters.begin(), item.characters.end());
        items.push_back(json_list(numbers));
    }
    return JsonLine().raw("name", json_quote(task.name, true)).raw("rows", "[" + join(rows, ",") + "]")
        .raw("items", "[" + join(items, ",") + "]").text();
}

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

static std::string json_paths(const std::vector<std::string>& paths) {
    std::vector<std::string> quoted;
    for (const std::string& path : paths) quoted.push_back(json_quote(path, true));
    return "[" + join(quoted, ",") + "]";
}

static std::vector<std::string> parse_paths(const Json& json) {
    std::vector<std::string> paths;
    for (JsonItems i(json); i.next();) paths.push_back(i.value.text());
    return paths;
}

std::string prep_answer(const PrepAnswer& a, const std::string& folder) {
    JsonLine line;
    line.raw("folder", json_quote(folder, true)).add("train", a.train).add("val", a.val)
        .add("vocabulary", a.vocabulary).raw("start", json_list(a.start)).raw("train_files", json_paths(a.train_files))
        .raw("val_files", json_paths(a.val_files)).raw("files", json_quote(a.files, true));
    if (!a.task.items.empty()) line.raw("task", task_json(a.task));
    return line.text();
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
