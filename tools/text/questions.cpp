// questions.cpp -- see questions.h.
#include "tools/text/questions.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "tools/text/reader.h"
#include "tools/text/text.h"

static size_t characters(const std::string& text) {
    return size_t(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// Whether a text begins with a character of a script without blanks between words: Thai to Myanmar, Khmer, Chinese
// and Japanese with their punctuation.
static bool is_unspaced(std::string_view text) {
    constexpr uint32_t kRanges[][2] = {{0xE00, 0xFFF}, {0x1000, 0x109F}, {0x1780, 0x17FF}, {0x2E80, 0x312F},
                                       {0x31A0, 0x9FFF}, {0xF900, 0xFAFF}, {0xFF00, 0xFFEF}, {0x20000, 0x3FFFF}};
    const uint32_t code = decode_utf8(text).code;
    return std::ranges::any_of(kRanges, [=](const auto& r) { return code >= r[0] && code <= r[1]; });
}

static std::string_view last_character(std::string_view text) {
    size_t at = text.empty() ? 0 : text.size() - 1;
    while (at > 0 && (text[at] & 0xC0) == 0x80) at--;
    return text.substr(at);
}

// What is doubtful in a file: the first record of each kind. place: of the record that is read.
struct Doubts { std::string place = {}, twice = {}, unspaced = {}; Spelled spelled = {}; };

// Encodes context and ending together. The first tokens, as many as the context alone has, are not scored. ending: with
// what stands before it.
static Task::Row make_row(std::string context, std::string ending, const Tokenizer& tokenizer, size_t T) {
    const size_t end = context.find_last_not_of(" \t\r\n") + 1;         // blanks at the context's end join the ending
    ending = context.substr(end) + ending;
    context.resize(end);
    std::vector<int> alone, tokens;
    const int otherwise = context.empty() && tokenizer.begin < 0 ? tokenizer.eot : tokenizer.begin,
              first = tokenizer.begins_with_name(context) ? -1 : otherwise;
    for (std::vector<int>* start : {&alone, &tokens})
        if (first >= 0) start->push_back(first);
    tokenizer.encode(context, &alone, {}, tokenizer.names);
    tokenizer.encode(context + ending, &tokens, {}, tokenizer.names);
    const size_t scored = std::min(tokens.size() - std::min(alone.size(), tokens.size() - 1), T);
    if (tokens.size() > T + 1) tokens.erase(tokens.begin(), tokens.end() - ptrdiff_t(T) - 1);
    return {tokens, int(std::min(scored, tokens.size() - 1))};          // the first token has no probability
}

static void read_item(const Json& line, const char* what, const Tokenizer& tokenizer, int T, Task* task,
                      Doubts* doubts) {
    const std::string context = line.get_string("ctx", what);
    const bool says = bool(line.find("delimiter"));
    const std::string between = says ? line.get_string("delimiter", what) : " ";
    const Json endings = line.at("endings", what);
    if (endings.kind() != Json::array) refuse(what, "endings", endings, "a list");
    tokenizer.find_names(context, &doubts->spelled);
    Task::Item item = {task->rows.size(), 0, {}};
    for (JsonItems i(endings); i.next();) {
        const std::string ending = i.value.kind() == Json::string ? i.value.text() : "";
        if (ending.empty()) refuse(what, "endings", i.value, "a text that is not empty");
        tokenizer.find_names(ending, &doubts->spelled);
        const bool unspaced = !says && (is_unspaced(last_character(context)) || is_unspaced(ending));
        if (unspaced && doubts->unspaced.empty()) doubts->unspaced = doubts->place;
        const bool blank = is_blank(between) && !between.empty();
        if (blank && doubts->twice.empty() && (is_blank(last_character(context)) || is_blank(ending.substr(0, 1))))
            if (!context.empty()) doubts->twice = doubts->place;
        try {
            task->rows.push_back(make_row(context, between + ending, tokenizer, size_t(T)));
        } catch (const Error& error) {              // the tokenizer's error does not name the file
            die(error.code, "%s: %s", what, error.message.c_str());
        }
        if (task->rows.back().scored == 0)
            die_content(std::string(what) + ": ctx", json_quote(context), "a text in front of an ending of one token");
        item.characters.push_back(characters(ending));
    }
    const std::string label = line.at("label", what).text();            // a number, or a number in quotes
    if (!parse_whole(std::string_view(label), &item.label) || item.label < 0 ||
        size_t(item.label) >= item.characters.size())
        refuse(what, "label", line.find("label"), "the number of an ending, from 0");
    task->items.push_back(item);
}

Task read_questions(const std::string& path, const Tokenizer& tokenizer, int T) {
    if (tokenizer.kind == Tokenizer::none)
        die(kExitUsage, "--task: %s: got questions, but without a tokenizer there are only tokens; give --tokenizer",
            path.c_str());
    FileReader file(path);
    Task task = {base_name(path).substr(0, base_name(path).rfind('.')), {}, {}};
    Doubts doubts;
    BadLines none;                                      // no line may be bad
    RecordReader records = {path, &none};
    const auto read = [&](const Json& item) {
        doubts.place = path + records.place;
        read_item(item, path.c_str(), tokenizer, T, &task, &doubts);
    };
    std::string_view line;
    if (is_one_value(file.look(16384))) records.value(file.look(SIZE_MAX), read);
    else for (uint64_t number = 1; file.line(&line); number++) records.line(line, number, read);
    if (!tokenizer.names) doubts.spelled.warn("--task: " + path, false);
    if (!doubts.twice.empty())
        warn("%s: two blanks precede an ending: its own or the context's, and the delimiter; say \"delimiter\": \"\" "
             "on such lines", doubts.twice.c_str());
    if (!doubts.unspaced.empty())
        warn("%s: a blank is put before an ending in a script without blanks; \"delimiter\": \"\" on a line leaves it "
             "out", doubts.unspaced.c_str());
    if (task.items.empty()) die_content(path, "no line", "{\"ctx\": ..., \"endings\": [...], \"label\": ...}");
    return task;
}
