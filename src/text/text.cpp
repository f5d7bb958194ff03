// text.cpp -- see text.h.
#include "src/text/text.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/utf8.h"

size_t nine_tenths(std::string_view text) {
    const auto starts = [](char c) { return (c & 0xC0) != 0x80; };  // true except for continuation bytes
    uint64_t left = nine_tenths_of(uint64_t(std::count_if(text.begin(), text.end(), starts)));
    for (size_t at = 0; at < text.size(); at++)
        if (starts(text[at]) && left-- == 0) return at;
    return text.size();
}

// ---- what a file is

// What is no text, by its first bytes; the last two are.
struct Kind { std::string_view begin; const char *name, *want; };
constexpr const char *kUnpacked = "the text in it: build/prep FILE -o DIR makes tokens of it, for --data DIR",
    *kText = "UTF-8 text, JSON, .npy, or a .bin of tokens", *kRows = "JSON: pandas.read_parquet(FILE)"
    ".to_json(FILE, orient='records', lines=True) makes it", *kUtf8 = "UTF-8 text: iconv -f UTF-16 -t UTF-8 makes it";
constexpr Kind kKinds[] = {
    {"\x1f\x8b", "a gzip file", kUnpacked}, {"\x28\xb5\x2f\xfd", "a zstd file", kUnpacked},
    {"PAR1", "a Parquet file", kRows}, {"ARROW1", "an Arrow file", kRows},
    {"\xff\xff\xff\xff", "an Arrow file", kRows}, {"PK\3\4", "a zip file", kText}, {"\xfd" "7zXZ", "an xz file", kText},
    {"BZh", "a bzip2 file", kText}, {"%PDF-", "a PDF file", kText}, {"\xff\xfe", "UTF-16", kUtf8},
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

Format recognise_text(const std::string& path, const std::string& field, const Look& look) {
    const std::string name = lower(path), what = "data: " + path;
    std::string_view head = look(16384).substr(0, 16384);
    for (const Kind& kind : kKinds)
        if (head.starts_with(kind.begin)) die_content(what, kind.name, kind.want);
    const auto is_control = [](char c) {
        return uint8_t(c) < 0x20 && std::string_view("\t\n\v\f\r\x1b").find(c) == std::string_view::npos;
    };
    // Up to 1 % of a text may be control bytes. Of a compressed file or a picture, 10 % are.
    if (head.find('\0') != head.npos || size_t(std::ranges::count_if(head, is_control)) * 100 > head.size())
        die_content(what, "neither text nor tokens", kText);
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
    if (!std::ranges::any_of(std::vector{".json", ".jsonl", ".jsonlines", ".ndjson"}, ends)) return Format::text;
    // Its first lines may be bad.
    for (std::string_view rest = head.substr(0, 1 << 20); !rest.empty(); next_word(&rest, '\n'))
        if (const Format format = format_of_object(rest, field); format != Format::text) return format;
    return Format::jsonl;
}

static Format recognise_file(const std::string& path) {
    FileReader file(path);
    return recognise_text(path, "text", [&](size_t n) { return file.look(n); });
}

Source find_texts(const std::string& path) {
    Source source = find_source(path);
    if (!source.is_text()) return source;
    source.format = recognise_file(source.files[0]);
    check_formats(source, recognise_file);
    return source;
}

void require_utf8(std::string_view text, const std::string& where) {
    for (size_t at = 0; at < text.size();) {
        const Utf8Char c = decode_utf8(text.substr(at));
        if (!c.valid) {
            const auto line = std::count(text.begin(), text.begin() + ptrdiff_t(at), '\n') + 1;
            die_content(format("%s: line %zu: byte %zu", where.c_str(), size_t(line), at),
                        format("%02x", uint8_t(text[at])), "UTF-8; if it is another encoding, iconv -f cp1252 -t UTF-8 "
                        "or the like converts it");
        }
        at += c.length;
    }
}

// ---- its text

static void read_records(const std::string& path, bool masked, Text* text) {
    RecordReader records = {"data: " + path, &text->bad};
    FileReader file(path);
    if (text->all.empty()) text->all.reserve(file.file->size);
    const char* const what = records.what.c_str();
    const auto add = [&](const Json& json) {
        if (json.kind() != Json::object) die_content(what, json_shown(json), "an object");
        if (masked) {
            const Conversation conversation = read_conversation(json, what);
            if (!text->conversations.empty() && conversation.plain != text->conversations[0].plain)
                die_content(what, describe_fields(json), "what the first line has");
            text->add(text_of(conversation));
            return text->conversations.push_back(conversation);
        }
        if (!json.find("text")) die_content(what, describe_fields(json), "text, messages, prompt or instruction; a "
                                            "file of another name, as .txt, is read as it stands");
        text->add(json.get_string("text", what));
    };
    if (is_one_value(file.look(16384))) return records.value(file.look(SIZE_MAX), add);
    std::string_view line;
    for (uint64_t number = 1; file.line(&line); number++) records.line(line, number, add);
}

static void read_whole(const std::string& path, Text* text) {
    FileReader file(path);
    if (text->all.empty()) text->all.reserve(file.file->size);
    std::string_view piece = file.look(3);
    const size_t begin = text->all.size(), mark = piece.size() - without_mark(piece).size();
    for (file.take(mark); !(piece = file.look(1)).empty(); file.take(piece.size())) text->all += piece;
    require_utf8(std::string_view(text->all).substr(begin), "data: " + path);
    if (text->all.size() > begin) text->ends.push_back(text->all.size());
}

Text read_text(const Source& source, bool split, const Progress& progress) {
    Text text;
    text.bad.allowed = uint64_t(source.skip_bad_lines);
    for (const std::string& path : source.files) {
        if (source.format == Format::text) read_whole(path, &text);
        else read_records(path, source.is_masked(), &text);
        progress(0);
    }
    std::vector<size_t>& ends = text.ends;
    text.train = ends.size();
    if (source.has_documents()) text.documents = ends.size();
    if (!split || ends.empty()) return text;
    if (ends.size() == 1 && source.is_masked())
        die_content("data: " + source.path, "one conversation", "two or more, or --val-data");
    if (ends.size() == 1) {
        ends.insert(ends.begin(), nine_tenths(text.all));
        return text;
    }
    // The documents that begin after nine tenths of the text are for validation, at least the last one.
    const auto behind = std::ranges::lower_bound(ends, nine_tenths_of(text.all.size()));
    text.train = std::min(size_t(behind - ends.begin()) + 1, ends.size() - 1);
    return text;
}

uint64_t encode_text(const Text& text, const Tokenizer& tokenizer, size_t width, std::vector<char>* out,
                     const Progress& progress) {
    const std::string_view all = text.all;
    out->reserve(all.size() / (tokenizer.merges.empty() ? 1 : 4) * width);  // a guess: a token of BPE is 4 bytes
    std::vector<int> tokens;
    const auto store = [&] {
        const size_t at = out->size();
        out->resize(at + tokens.size() * width);
        if (width == 2) std::ranges::copy(tokens, reinterpret_cast<uint16_t*>(out->data() + at));
        else std::ranges::copy(tokens, reinterpret_cast<uint32_t*>(out->data() + at));
        tokens.clear();
        progress(out->size() / width);
    };
    size_t train = 0;
    for (size_t k = 0, begin = 0; k < text.ends.size(); begin = text.ends[k++]) {
        if (k < text.documents && tokenizer.eot >= 0) tokens.push_back(tokenizer.eot);
        tokenizer.encode(all.substr(begin, text.ends[k] - begin), &tokens, store);
        store();
        if (k < text.train) train = out->size();
    }
    return train / width;
}

uint64_t encode_conversations(const Text& text, const Tokenizer& tokenizer, const ChatTemplate& chat, int T,
                              std::vector<char>* out, std::string* note, const Progress& progress) {
    if (const std::string token = chat.form ? missing_control_token(tokenizer, chat) : ""; !token.empty())
        die(kExitUsage, "data: got conversations, but the tokenizer has no %s; train on conversations first, or choose "
            "--chat-template", token.c_str());
    std::vector<uint32_t> all, tokens;
    const uint32_t fill = uint32_t(std::max(tokenizer.eot, 0)) | kUntrained;
    const auto is_trained = [](uint32_t token) { return !(token & kUntrained); };
    uint64_t begin = 0, used = 0, trained = 0, cut = 0, empty = 0;
    for (size_t i = 0; i < text.conversations.size(); i++) {
        tokens.clear();
        encode_chat(text.conversations[i], chat, tokenizer, &tokens);
        progress(all.size());
        cut += tokens.size() > size_t(T);
        used += std::min(tokens.size(), size_t(T));
        tokens.resize(size_t(T), fill);
        tokens[0] |= kUntrained;
        const auto count = uint64_t(std::ranges::count_if(tokens, is_trained));
        trained += count;
        empty += count == 0;
        if (count > 0) all.insert(all.end(), tokens.begin(), tokens.end());
        if (i + 1 != text.train) continue;
        all.push_back(fill);
        begin = all.size();
    }
    if (text.train < text.conversations.size()) all.push_back(fill);
    out->resize(all.size() * sizeof(uint32_t));
    std::ranges::copy(all, reinterpret_cast<uint32_t*>(out->data()));
    *note = format("%s conversations, %s tokens of the assistant; windows are %.0f %% full",
                   with_commas(text.conversations.size()).c_str(), with_commas(trained).c_str(),
                   100.0 * double(used) / double(text.conversations.size()) / T);
    if (cut) *note += format("; %s are longer than %d tokens and cut", with_commas(cut).c_str(), T);
    if (empty) *note += format("; %s have nothing to train on and are left out", with_commas(empty).c_str());
    return begin;
}
