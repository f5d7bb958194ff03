// answer.cpp -- build/prep's side of the messages to and from the trainer (src/data/prepared.h).
#include "src/base/common.h"
#include "tools/text/prepare.h"

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

static std::string json_paths(const std::vector<std::string>& paths) {
    std::vector<std::string> quoted;
    for (const std::string& path : paths) quoted.push_back(json_quote(path, true));
    return "[" + join(quoted, ",") + "]";
}

std::string prep_answer(const PrepAnswer& a, const std::string& folder) {
    JsonLine line;
    line.raw("folder", json_quote(folder, true)).add("train", a.train).add("val", a.val)
        .add("vocabulary", a.vocabulary).raw("start", json_list(a.start)).raw("train_files", json_paths(a.train_files))
        .raw("val_files", json_paths(a.val_files)).raw("files", json_quote(a.files, true));
    if (!a.task.items.empty()) line.raw("task", task_json(a.task));
    return line.text();
}
