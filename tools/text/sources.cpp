// sources.cpp -- see sources.h.
#include "tools/text/sources.h"
#include <algorithm>
#include <cctype>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/words.h"
#include "tools/text/chat.h"
#include "tools/text/reader.h"

// ---- what a file is

const char* format_name(Format format) {
    static const char* const names[] = {"text", "jsonl", "conversations", "prompts and completions",
                                        "a numpy array", "an llm.c token shard", "raw tokens"};
    return names[int(format)];
}

// What is no text, by its first bytes and the end of its name; the last two are.
struct Kind { std::string_view begin; const char *name, *want, *end = ""; };
constexpr const char *kUnpacked = "the text in it: build/prep FILE -o DIR makes tokens of it, for --data DIR",
    *kText = "UTF-8 text, JSON, .npy, or a .bin of tokens", *kRows = "JSON: pandas.read_parquet(FILE)"
    ".to_json(FILE, orient='records', lines=True) makes it", *kFeather = "JSON: pandas.read_feather(FILE)"
    ".to_json(FILE, orient='records', lines=True) makes it", *kStream = "JSON: datasets.Dataset.from_file(FILE)"
    ".to_json(FILE) makes it", *kUtf8 = "UTF-8 text: iconv -f UTF-16 -t UTF-8 makes it",
    *kUtf32 = "UTF-8 text: iconv -f UTF-32 -t UTF-8 makes it", *kTorch = ".npy: numpy.save(FILE, torch.load(FILE)"
    ".numpy().astype('<u4')) makes it of tokens; a model goes with --init";
constexpr Kind kKinds[] = {
    {"\x1f\x8b", "a gzip file", kUnpacked}, {"\x28\xb5\x2f\xfd", "a zstd file", kUnpacked},
    {"PAR1", "a Parquet file", kRows}, {"ARROW1", "an Arrow file", kFeather}, {"FEA1", "an Arrow file", kFeather},
    {"\xff\xff\xff\xff", "an Arrow file of datasets", kStream},
    {"PK\3\4", "an .npz file", ".npy: numpy.save(FILE, numpy.load(FILE)[NAME]) makes it", ".npz"},
    {"PK\3\4", "a file of torch", kTorch, ".pt"}, {"PK\3\4", "a file of torch", kTorch, ".pth"},
    {"PK\3\4", "a file of torch", kTorch, ".ckpt"}, {"PK\3\4", "a file of torch", kTorch, ".bin"},
    {"PK\3\4", "a zip file", kText}, {"\xfd" "7zXZ", "an xz file", kText},
    {"BZh", "a bzip2 file", kText}, {"%PDF-", "a PDF file", kText}, {{"\xff\xfe\0\0", 4}, "UTF-32", kUtf32},
    {{"\0\0\xfe\xff", 4}, "UTF-32", kUtf32}, {"\xff\xfe", "UTF-16", kUtf8},
    {"\xfe\xff", "UTF-16", kUtf8}};

// Returns the text from its first character on that is not blank.
static std::string_view without_blanks(std::string_view text) {
    text = without_mark(text);
    return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

// Returns the length of the JSON object with which a text begins, npos if its end is not there, 0 if it has none: what
// follows a brace in JSON is a quote or the other brace.
static size_t object_length(std::string_view text) {
    if (!text.starts_with('{')) return 0;
    const std::string_view inside = without_blanks(text.substr(1));
    if (!inside.empty() && !inside.starts_with('"') && !inside.starts_with('}')) return 0;
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (quoted && c == '\\') i++;
        else if (c == '"') quoted = !quoted;
        else if (!quoted) depth += (c == '{') - (c == '}');
        if (depth == 0) return i + 1;
    }
    return text.npos;
}

// Returns the format of the JSON object with which a text begins; text: it is none of a known form.
static Format format_of_object(std::string_view text, const std::string& field) try {
    const size_t length = object_length(text);
    if (length == 0 || length == text.npos) return Format::text;
    const Json record = parse_json(text.substr(0, length), "");
    const std::string form = conversation_key(record);
    if (form.empty()) return record.find(field) ? Format::jsonl : Format::text;
    return form == "prompt" && record.find(form).kind() == Json::string ? Format::pairs : Format::chat;
} catch (const Error&) {
    return Format::text;
}

static std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    return text;
}

bool is_one_value(std::string_view beginning) {
    std::string_view text = without_blanks(beginning);
    if (text.starts_with('[')) return true;
    text = text.substr(0, text.find('\n'));
    const size_t last = text.find_last_not_of(" \t\r");
    return text.starts_with('{') && std::string_view("{[,").find(text[last]) != text.npos;
}

static void require_text(std::string_view text, const std::string& what) {
    const auto is_control = [](char c) {
        return uint8_t(c) < 0x20 && std::string_view("\t\n\v\f\r\x1b").find(c) == std::string_view::npos;
    };
    // Up to 1 % of a text may be control bytes. Of a compressed file or a picture, 10 % are.
    if (text.find('\0') != text.npos || size_t(std::ranges::count_if(text, is_control)) * 100 > text.size())
        die_content(what, "neither text nor tokens", kText);
}

Format recognise_text(const std::string& path, const std::string& field, const Look& look) {
    const std::string name = lower(path), what = "data: " + path;
    std::string_view head = look(16384).substr(0, 16384);
    for (const Kind& kind : kKinds)
        if (head.starts_with(kind.begin) && name.ends_with(kind.end)) die_content(what, kind.name, kind.want);
    if (name.ends_with(".csv") || name.ends_with(".tsv"))
        die_content(what, "a table", "JSON with a field text, or a name that ends in .txt for the lines as they are");
    std::string_view text;
    bool whole = false;
    for (size_t n = 16384; !whole; n *= 4) {    // until the first record is there
        head = look(n);
        whole = head.size() < n;
        text = without_blanks(head);
        if (text.starts_with('[')) text = without_blanks(text.substr(1));
        if (!text.empty() && object_length(text) != text.npos) break;
    }
    if (const Format format = format_of_object(text, field); format != Format::text) return format;
    const auto ends = [&](const char* end) { return name.ends_with(end) || name.ends_with(end + std::string(".txt")); };
    if (!std::ranges::any_of(std::vector{".json", ".jsonl", ".jsonlines", ".ndjson"}, ends)) {
        require_text(head.substr(0, 16384), what);
        return Format::text;
    }
    // Its first lines may be bad.
    for (std::string_view rest = head.substr(0, 1 << 20); !rest.empty(); next_word(&rest, '\n'))
        if (const Format format = format_of_object(rest, field); format != Format::text) return format;
    return Format::jsonl;
}

static Format recognise(const std::string& path) {
    if (const Format format = format_of(path); format != Format::text) return format;
    FileReader file(path);
    return recognise_text(path, "text", [&](size_t n) { return file.look(n); });
}

// ---- the files of a path

// Whether a file of this name in a folder is no data.
static bool is_beside_data(std::string name) {
    static const Words about = split("readme license licence copying notice authors citation contributing changelog "
                                     "dataset_info dataset_infos dataset_dict checksums sha256sums md5sums");
    name = lower(name);
    const auto ends = [&](const std::string& end) { return name.ends_with(end); };
    const auto has = [&](const char* part) { return name.find(part) != name.npos; };
    return std::ranges::any_of(split("~ .bak .backup .orig .old .swp .tmp .part .crdownload"), ends) ||
        name.starts_with('#') || name.starts_with("copy of ") || has("(copy") || has(" copy.") || has(" - copy") ||
        contains(about, name.substr(0, name.find('.')));
}

// Appends the files of a folder to a source, and returns the folders in it.
static std::vector<std::string> list_files(const std::string& folder, Source* source) {
    std::vector<std::string> folders;
    for (const std::string& name : list_directory(folder)) {
        const std::string path = path_join(folder, name);
        if (name[0] != '.')
            (is_directory(path) ? folders : is_beside_data(name) ? source->others : source->files).push_back(path);
    }
    return folders;
}

Source find_files(const std::string& path) {
    Source source = {.path = path};
    if (is_directory(path)) {
        const std::vector<std::string> folders = list_files(path, &source);
        if (!source.files.empty()) source.others.insert(source.others.end(), folders.begin(), folders.end());
        else for (const std::string& folder : folders) list_files(folder, &source);
        if (source.files.empty()) source.files.swap(source.others);
    } else {
        source.files = file_exists(path) ? std::vector<std::string>{path} : expand_glob(path);
        std::erase_if(source.files, is_directory);
    }
    return source;
}

static void check_formats(const Source& source, const std::function<Format(const std::string& file)>& format_of) {
    for (const std::string& file : source.files)
        if (const Format format = format_of(file); format != source.format)
            die_content("data: " + file, format_name(format), format_name(source.format) + (" as " + source.files[0]));
}

Source find_texts(const std::string& path) {
    Source source = find_files(path);
    for (const auto& [name, shard] : read_manifest(path))
        if (std::ranges::count(source.files, path_join(path, name)) == 0)
            die(kExitBadContent, "data: %s: it is missing, and manifest.json lists it; run build/prep again in "
                "another folder", path_join(path, name).c_str());
    // A manifest and tokenizer.json beside shards are no data.
    const auto is_tokens = [](const std::string& f) { return f.ends_with(".bin") || f.ends_with(".npy"); };
    if (source.files.size() > 1 && std::ranges::any_of(source.files, is_tokens))
        std::erase_if(source.files, [](const std::string& f) { return f.ends_with(".json"); });
    if (source.files.empty())
        die(kExitNoInput, "data: %s: no file is there or matches it; give --data or --val-data", path.c_str());
    source.format = recognise(source.files[0]);
    check_formats(source, recognise);
    if (!source.is_text()) check_manifest(source.files, {});
    return source;
}

// Removes the files with one of these words in their name from a source, unless all have one, and returns them.
static std::vector<std::string> take(Source* source, const Words& words) {
    std::vector<std::string> taken, left;
    for (const std::string& file : source->files) {
        std::string name = file.starts_with(source->path) ? file.substr(source->path.size()) : base_name(file);
        std::ranges::replace_if(name, [](char c) { return !std::isalpha(uint8_t(c)); }, ' ');
        const Words parts = split(lower(name));
        const bool has = std::ranges::any_of(parts, [&](const std::string& w) { return contains(words, w); });
        (has ? taken : left).push_back(file);
    }
    if (left.empty()) return {};
    source->files = left;
    return taken;
}

Source take_validation(Source* source) {
    const std::string beside = path_join(parent_folder(source->files[0]), "val.bin");
    if (source->files.size() == 1 && base_name(source->files[0]) == "train.bin" && file_exists(beside))
        return find_texts(beside);
    const std::map<std::string, Listed> listed = read_manifest(source->path);
    const auto is_listed = [&](const std::string& file) {
        const auto found = listed.find(base_name(file));
        return found != listed.end() && found->second.validation;
    };
    Source val = {.path = source->path, .format = source->format};
    if (!std::ranges::all_of(source->files, is_listed)) {
        std::ranges::copy_if(source->files, std::back_inserter(val.files), is_listed);
        std::erase_if(source->files, is_listed);
    }
    if (!listed.empty()) return val;
    const std::vector<std::string> tests = take(source, split("test tests testing testset heldout holdout"));
    source->others.insert(source->others.end(), tests.begin(), tests.end());
    val.files = take(source, split("val valid validation dev devel eval evaluation"));
    return val;
}

std::string describe_files(const Source& train, const Source& val) {
    if (train.files.size() == 1 && val.files.empty() && train.others.empty()) return "";
    std::string text;
    const auto add = [&](const char* what, const std::vector<std::string>& files) {
        for (size_t i = 0; i < std::min<size_t>(files.size(), 3); i++) text += (i ? ", " : what) + base_name(files[i]);
        if (files.size() > 3) text += format(" and %zu more", files.size() - 3);
    };
    add("; training: ", train.files);
    add("; validation: ", val.files);
    add("; not taken: ", train.others);
    return text;
}

std::vector<WeightedPath> find_mixture(const std::string& data) {
    if (data.empty() || !find_files(data).files.empty()) return {{data, 1}};
    std::vector<WeightedPath> mixture;
    double sum = 0;
    for (const std::string& item : split(data, ',')) {
        const size_t colon = std::min(item.rfind(':'), item.size() - 1);
        double weight = 0;
        const bool has = parse_whole(std::string_view(item).substr(colon + 1), &weight);
        if (item == data && !has) return {{data, 1}};
        if (!has || !(weight >= 1e-6 && weight <= 1e6))
            die(kExitUsage, "--data: %s: no such file; of several sources got %s, want PATH:WEIGHT with a weight from "
                "1e-6 to 1e6, as a.txt:0.7,b.txt:0.3", shown(data).c_str(), shown(item).c_str());
        mixture.push_back({item.substr(0, colon), weight});
        sum += weight;
    }
    // 0.7 and 0.3 are the same weights as 7 and 3, whatever the quotients are rounded to.
    for (auto& [path, weight] : mixture) parse_whole(format("%.9g", weight / sum), &weight);
    return mixture;
}

Sources find_sources(const TextOptions& o) {
    Sources s;
    s.train = find_texts(o.data.empty() ? find_data_file("stories_train.jsonl") : o.data);
    if (!o.whole) s.val = take_validation(&s.train);
    if (!o.val_data.empty()) s.val = find_texts(o.val_data);
    else if (o.data.empty()) s.val = find_texts(find_data_file("stories_val.jsonl"));
    if (o.data.empty()) s.train.path = "the built-in stories";
    if (o.data.empty() && o.val_data.empty()) s.val.path = s.train.path;
    s.train.skip_bad_lines = s.val.skip_bad_lines = o.skip_bad_lines;
    return s;
}

