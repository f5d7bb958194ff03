// prepare.cpp -- see prepare.h.
#include "tools/text/prepare.h"
#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>
#include "src/base/cache.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "tools/text/config_reader.h"
#include "tools/text/model_texts.h"
#include "tools/text/rows.h"
#include "tools/text/tensor_files.h"
#include "tools/text/token_files.h"

using ull = unsigned long long;

namespace {

constexpr int kVersion = 6;                 // of what the cache holds; a new number makes all of it anew
constexpr uint64_t kLargeText = 16 << 20;   // bytes of a text whose encoding takes long enough to be reported

// Returns a name in the cache for what `content` describes.
std::string cache_name(const char* kind, const std::string& content) {
    return format("%s-%s", kind, data_hash(std::to_string(kVersion) + " " + content).c_str());
}

uint64_t bytes_of_files(const Source& source) {
    uint64_t bytes = 0;
    for (const std::string& path : source.files) bytes += InputFile(path, "data").size;
    return bytes;
}

// Returns a hash of all bytes of a text: an entry of the cache must not be taken for another text.
std::string hash_text(const Source& source) { return format("%016llx", ull(content_hash(source.files, kFileBlock))); }

std::string of_skipping(const Source& source) {
    return source.skip_bad_lines ? format(" without %d lines", source.skip_bad_lines) : "";
}

[[noreturn]] void die_changed(const Source& source) {
    die(kExitBadContent, "data: %s: it has changed while it was read; start again", source.path.c_str());
}

// ---- the tokenizer

bool learns(const std::string& option) { return option == "char" || option.starts_with("bpe:"); }

// Learns `char` or bpe:N. `char` learns from all text, also that for validation; bpe:N from the training text alone.
Tokenizer learn(const std::string& option, const std::vector<Sources>& all, const Progress& progress) {
    const bool bpe = option.starts_with("bpe:");
    std::string learnt;
    for (const auto& [train, val] : all) {
        Text text = read_text(train, bpe && val.files.empty(), progress);
        if (bpe && text.train > 0) text.all.resize(text.ends[text.train - 1]);
        if (!bpe && !val.files.empty() && val.is_text()) text.all += read_text(val, false, progress).all;
        if (learnt.empty()) learnt.swap(text.all);
        else learnt += text.all;
    }
    const std::string_view view = learnt;
    return tokenizer_open(option, &view);
}

// Returns the folder of a tokenizer that is learnt, unless the cache has it, learnt from the same texts.
std::string learn_once(const std::string& option, const std::vector<Sources>& all, const std::string& folder,
                       const Progress& progress) {
    const auto describe = [](const Source& s) {
        return " " + hash_text(s) + " " + format_name(s.format) + of_skipping(s);
    };
    std::string of;
    for (const auto& [train, val] : all) of += describe(train) + (val.files.empty() ? " cut" : describe(val));
    return cached(folder, cache_name("tokenizer", option + of), [&](auto& into) {
        write_file_atomic(path_join(into, "tokenizer.json"), learn(option, all, progress).to_json());
        std::string now;
        for (const auto& [train, val] : all) {
            now += describe(train) + (val.files.empty() ? " cut" : describe(val));
            if (!of.starts_with(now)) die_changed(train);
        }
    }, progress);
}

// Returns a number in the manifest.json beside token files; 0 if it is not there.
uint64_t listed_number(const Source& source, const char* key) {
    const std::string path = path_join(parent_folder(source.files[0]), "manifest.json");
    const std::string text = file_exists(path) ? read_file(path) : "null";
    const Json json = parse_json(text, path.c_str());
    if (json.find("vocab_size")) read_size(json, "vocab_size", {"from 1 to 16777216", 1, 1 << 24}, path.c_str());
    uint64_t n = 0;
    json.find(key).as_u64(&n);
    return n;
}

// Returns the tokenizer beside shards that a manifest.json lists. build/prep leaves one; a user's script need not.
Tokenizer tokenizer_beside(const Source& source, const std::string& folder) {
    const std::string path = path_join(folder, "tokenizer.json");
    if (!file_exists(path) && !listed_number(source, "tokenizer")) return {};
    const Tokenizer tokenizer = tokenizer_load(folder);
    if (const uint64_t n = listed_number(source, "vocab_size"); n && n != uint64_t(tokenizer.vocab_size))
        die_content(path, std::to_string(tokenizer.vocab_size) + " tokens",
                    std::to_string(n) + " as manifest.json says; restore it");
    return tokenizer;
}

// Returns the tokenizer of the model of --init. Tokens need none that this program can read.
Tokenizer tokenizer_of_init(const TextOptions& o, const Source& train, const Source& val) {
    const bool reads = train.is_text() || (!val.files.empty() && val.is_text()) || !o.prompt.empty();
    Tokenizer tokenizer;
    try {
        tokenizer = tokenizer_parse(o.init.tokenizer, o.init_path);
    } catch (const Error& error) {
        if (reads) die(error.code, "%s; or give tokens as --data", error.message.c_str());
        if (!o.whole) warn("samples have no text: %s", error.message.c_str());
    }
    read_ends(&tokenizer, o.init, o.init_path);
    return tokenizer;
}

Tokenizer choose_tokenizer(const TextOptions& o, const Source& train, const Source& val, const std::string& folder,
                           const Progress& progress) {
    if (o.tokenizer.empty() && !o.init.tokenizer.empty()) return tokenizer_of_init(o, train, val);
    const std::string beside = parent_folder(train.files[0]);
    if (o.tokenizer.empty() && !train.is_text() && file_exists(path_join(beside, "manifest.json")))
        return tokenizer_beside(train, beside);
    if (o.tokenizer.empty() && train.is_text() && o.init_vocab) refuse_older_form(parent_folder(o.init_path));
    if (o.tokenizer.empty()) return train.is_text() && !o.whole ? tokenizer_byte() : Tokenizer();
    if (!learns(o.tokenizer) || !train.is_text() || o.whole) return tokenizer_open(o.tokenizer, nullptr);
    Tokenizer tokenizer = tokenizer_load(learn_once(o.tokenizer, {{train, val}}, folder, progress));
    tokenizer.name = o.tokenizer;
    return tokenizer;
}

// Returns the texts of the model of --init. With another tokenizer those about tokens are the ones beside its file.
ModelTexts texts_beside(const TextOptions& o, const Tokenizer& t) {
    ModelTexts texts = o.init;
    if (o.tokenizer.empty() || o.init.tokenizer == t.to_json() || o.init.tokenizer == tokenizer_json_of_model(t))
        return texts;
    const bool is_file = base_name(o.tokenizer) == "tokenizer.json" || is_directory(o.tokenizer);
    const std::string folder = is_directory(o.tokenizer) ? o.tokenizer : parent_folder(o.tokenizer);
    const ModelTexts own = is_file ? read_model_texts(folder) : ModelTexts();
    texts.chat_template = chat_template_of(o.init);
    texts.tokenizer_config = own.tokenizer_config;
    texts.special_tokens_map = own.special_tokens_map;
    return texts;
}

// Returns how many rows the model's embedding has for a tokenizer. kExitUsage: the model of --init has another number.
int choose_vocabulary(const TextOptions& o, const Tokenizer& tokenizer, const ChatTemplate& chat) {
    const int own = tokenizer.vocab_size;
    const bool fits = own == o.init_vocab || (own < o.init_vocab && o.tokenizer.empty() && !o.init.tokenizer.empty());
    if (o.init_vocab && !chat.controls.empty() && o.tokenizer.empty() && own > o.init_vocab) {
        if (o.frozen_by.empty()) return own;              // it includes the template's tokens
        die(kExitUsage, "%s: the model's tokenizer has no token %s, and its embedding stays as it is; give "
            "--chat-template with tokens that it has, or train without %s", o.frozen_by.c_str(),
            chat.controls.back().c_str(), o.frozen_by.c_str());
    }
    if (o.init_vocab && !fits)
        die(kExitUsage, "--tokenizer: got %s of %d tokens, want %d as the model has; give the tokenizer or the data it "
            "was trained with", tokenizer.name.c_str(), own, o.init_vocab);
    if (o.init_vocab) return o.init_vocab;      // a model's tokenizer may leave rows of the embedding unused, as Qwen's
    if (o.vocab_size && own != o.vocab_size)
        die(kExitUsage, "--vocab-size: got %d, want %d as the tokenizer has; leave it out", o.vocab_size, own);
    return own;
}

// Returns for each of n tokens whether the data have it.
std::vector<bool> used_tokens(const Data& data, size_t n) {
    std::vector<bool> used(n);
    std::vector<int> tokens(1 << 16);
    for (const Dataset* part : {&data.train, &data.val})
        for (const Shard& shard : part->shards)
            for (uint64_t first = 0; first < shard.tokens; first += tokens.size()) {
                const size_t count = size_t(std::min<uint64_t>(tokens.size(), shard.tokens - first));
                shard.read(first, count, tokens.data(), int(n));
                for (size_t i = 0; i < count; i++) used[uint32_t(tokens[i]) % kBegins] = true;
            }
    return used;
}

// Returns the control tokens that the data use and nobody has trained: their rows in the embedding are zeros, or equal
// to another control token's. (Rows of the head say less: a token that is never a target keeps its row.) They begin
// anew, which is said, or are refused where rows do not change.
// data: the tokens of --data.
std::vector<int> untrained_tokens(const TextOptions& o, const TextChoice& c, const Data& data) {
    std::vector<int> found;
    std::vector<std::string> names;
    if (o.init_weights.empty() || !c.sources.train.is_text()) return found;
    const std::vector<bool> used = used_tokens(data, c.tokenizer.bytes.size());
    const SafeTensors file = open_model(o.init_weights);
    for (const SafeTensor& table : file.tensors) {
        const auto is = [&](const char* name) { return table.name.ends_with(name); };
        if (!is("embed_tokens.weight") && !is("wte.weight")) continue;
        if (table.shape.size() != 2) continue;              // train_gpt refuses it by its name
        std::map<int, std::vector<float>> rows;             // of all control tokens
        for (const Tokenizer::Added& a : c.tokenizer.added) {
            if (!a.special || uint64_t(a.id) >= table.shape[0]) continue;
            std::vector<float> row(table.shape[1]);
            if (table.read(uint64_t(a.id) * row.size(), row.size(), row.data())) rows[a.id] = row;
        }
        for (const Tokenizer::Added& a : c.tokenizer.added) {
            if (!used[size_t(a.id)] || !rows.count(a.id)) continue;
            if (std::ranges::count(found, a.id)) continue;
            const auto as_a = [&](const auto& row) { return row.second == rows[a.id]; };
            const bool zero = std::ranges::all_of(rows[a.id], [](float x) { return x == 0; });
            if (!zero && std::ranges::count_if(rows, as_a) == 1) continue;
            found.push_back(a.id);
            names.push_back(a.text);
        }
    }
    if (!o.frozen_by.empty() && !found.empty())
        die(kExitUsage, "%s: %s: nobody has trained the rows of %s, which the data use and which stay as they are; "
            "train without %s, or give --chat-template with trained tokens", o.frozen_by.c_str(),
            parent_folder(o.init_path).c_str(), join(names, ", ").c_str(), o.frozen_by.c_str());
    if (!found.empty())
        warn("nobody has trained the rows of %s: they begin as the mean of the others", join(names, ", ").c_str());
    return found;
}

// ---- tokens

// Warns of what a text has that the reader of a chat would look for, and that means nothing here: fields, with how many
// turns or lines have them, and JSON that is taken as text.
void warn_of_lost(const Source& source, const Text& text) {
    std::map<std::string, size_t> fields;
    for (const Conversation& conversation : text.conversations)
        for (const std::string& name : conversation.unknown) fields[name]++;
    for (const auto& [name, count] : fields)
        warn("data: %s: the field %s is not known and is not read; it stands there %s times", source.path.c_str(),
             json_quote(name).c_str(), with_commas(count).c_str());
    std::string_view begin = without_mark(text.all);
    begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n["), begin.size()));
    if (source.format == Format::text && begin.starts_with("{\""))
        warn("data: %s: JSON without a known field is taken as text; with a name that ends in .jsonl it is an error",
             source.path.c_str());
}

// Returns a path as a manifest.json in `folder` has it: a file that is not in the folder by its absolute path.
std::string path_in(const std::string& path, const std::string& folder) {
    if (!folder.empty() && path.starts_with(folder + "/")) return path.substr(folder.size() + 1);
    return std::filesystem::absolute(path).string();
}

std::string dataset_json(const Dataset& d, const std::string& folder) {
    std::vector<std::string> shards;
    for (const Shard& s : d.shards)
        shards.push_back(JsonLine().raw("file", json_quote(path_in(s.file->path, folder), true)).add("width", s.width)
            .add("offset", s.offset).add("begin", s.begin).add("tokens", s.tokens).add("every", s.every)
            .add("crc32c", s.crc).add("masked", s.masked).raw("given", given_json(s.given)).text());
    JsonLine line;
    line.raw("path", json_quote(d.path, true)).add("hash", d.hash).raw("shards", "[" + join(shards, ",") + "]")
        .raw("mixture", "[" + join(d.paths, ",") + "]");
    if (d.rows) line.raw("rows", json_quote(path_in(d.rows->path, folder), true));
    return line.text();
}

// Returns what a manifest.json in `folder` says of the tokens.
JsonLine tokens_line(const Data& data, const std::string& folder) {
    JsonLine line;
    line.add("vocab_size", data.vocab_size).raw("description", json_quote(data.train.description, true));
    if (!data.train.path.empty()) line.raw("train", dataset_json(data.train, folder));
    if (!data.val.path.empty()) line.raw("val", dataset_json(data.val, folder));
    return line;
}

// Returns the dataset of tokens [from, to), counted over all shards. content: identifies these.
Dataset cut_dataset(const std::vector<Shard>& shards, const std::string& path, std::string content, uint64_t from,
                    uint64_t to) {
    Dataset d = {.path = path};
    for (Shard s : shards) {
        const uint64_t begin = std::min(from, s.tokens), end = std::min(to, s.tokens);
        from -= begin;
        to -= end;
        if (begin == end) continue;
        s.begin = begin;
        s.tokens = end - begin;
        d.tokens += s.tokens;
        content += format(" %llu+%llu", ull(s.begin), ull(s.tokens));
        d.shards.push_back(std::move(s));
    }
    d.hash = data_hash(content);
    return d;
}

// Packs the documents of a part (write_rows). The cache keeps the table of rows.
void pack_documents(Dataset* part, const std::vector<size_t>& sources, const DocumentTokens& between, int vocab_size,
                    const std::string& folder, const Progress& progress) {
    const std::string name = format("%s %d %d %d", part->hash.c_str(), between.begin, between.end, part->T);
    const std::string entry = cached(folder, cache_name("rows", name), [&](const std::string& into) {
        if (!write_rows(*part, sources, between, vocab_size, path_join(into, "rows.bin"), progress))
            die(kExitUsage, "--rows: got documents, but the data have no token between documents: %s; take --rows join",
                part->path.c_str());
    }, progress);
    part->open_rows(path_join(entry, "rows.bin"));
}

// Reads and encodes a text. hash: of its bytes when the entry was named. content: identifies its tokens.
void make_tokens(const TextChoice& c, const Source& source, const TextOptions& o, bool split, Shard shard,
                 const std::string& hash, std::string content, const std::string& into, const Progress& progress) {
    std::vector<char> tokens;
    std::string note;
    uint64_t cut = 0;
    {
        Text text = read_text(source, split, progress);
        const bool names = c.tokenizer.names && !c.chat.form;
        if (std::vector<size_t>& ends = text.ends; names && text.documents == 0 && ends.size() == 2)
            ends[0] = c.tokenizer.outside_names(text.all, ends[0]);
        cut = shard.masked
            ? encode_conversations(&text, c.tokenizer, c.chat, o.seq_len, c.packs, &shard, &tokens, &note, progress)
            : encode_text(text, c.tokenizer, &shard, &tokens, progress);
        if (std::ranges::find(text.conversations, true, &Conversation::amended) != text.conversations.end())
            content += " amended";              // its tokens or its mask are not what they were before version 2
        if (!shard.masked)
            note = source.format == Format::text && source.files.size() == 1 ? "text" :
                with_commas(text.ends.size()) + (source.format == Format::text ? " texts" : " documents of JSON");
        Spelled spelled;
        c.tokenizer.find_names(text.all, &spelled);
        if (spelled.count > 0)
            note += "; " + with_commas(spelled.count) + " names of control tokens " +
                          (names ? "are tokens" : "stay text");
        if (!o.quiet && !names) spelled.warn("data: " + source.path, bool(c.chat.form));
        if (!o.quiet) warn_of_lost(source, text);
        for (const std::string& skipped : text.bad.text()) {
            note += "; " + skipped;
            if (!o.quiet && &source == &c.sources.val) warn("validation %s", skipped.c_str());
        }
    }
    if (hash_text(source) != hash) die_changed(source);
    require_space(into, tokens.size(), "the cache of texts");
    const std::string path = path_join(into, "tokens.bin");
    FileWriter file(path);
    file.write(tokens.data(), tokens.size());
    file.finish();
    shard.file = std::make_shared<InputFile>(path);
    shard.tokens = tokens.size() / shard.width;
    Data data = {.train = cut_dataset({shard}, source.path, content, 0, cut)};
    if (split) data.val = cut_dataset({shard}, source.path, content, cut, shard.tokens);
    data.train.description = note;
    write_file_atomic(path_join(into, "manifest.json"), tokens_line(data, into).text() + "\n");
}

// Says that a text which takes long is tokenised only now.
void say_large(const Source& source, const std::string& folder, const TextOptions& o) {
    const uint64_t bytes = bytes_of_files(source);
    if (!o.quiet && bytes > kLargeText)
        std::fprintf(stderr, "data    %s: %s bytes of text become tokens, once, in %s\n", source.path.c_str(),
                     with_commas(bytes).c_str(), folder.c_str());
}

// Returns the tokens of a text, which are made unless they are in the cache. The part for validation is in `val`, if
// the text is split. The description says what was left out.
Data tokens_of(const TextChoice& c, const Source& source, const TextOptions& o, bool split, const std::string& folder,
               const Progress& progress) {
    if (c.tokenizer.kind == Tokenizer::none)
        die(kExitUsage, "data: %s: got text, but without a tokenizer there are only tokens; give --tokenizer",
            source.path.c_str());
    const bool masked = source.is_masked();
    const std::string hash = hash_text(source);
    const uint64_t every = hashed_every(source.files);
    std::string content = every > kFileBlock ? format("%016llx", ull(content_hash(source.files, every))) : hash;
    content += c.tokenizer.own_json(true) + of_skipping(source) + (c.tokenizer.names ? " names" : "");
    const int begin = c.tokenizer.begin, eot = c.tokenizer.eot;
    if (c.chat.form) content += c.chat.key;
    else if (begin != eot && (begin >= 0 || source.has_documents()))        // else a text has neither, or eot before it
        content += format(" %d %d", begin, eot);
    const Shard shard = {.width = c.tokenizer.vocab_size <= 65536 && !masked ? 2u : 4u, .masked = masked};
    const std::string how = format(" %s %d %d %d %d%s%s", format_name(source.format), split, begin, eot,
                                   masked ? o.seq_len : 0, c.tokenizer.split.nfc ? " given" : "",
                                   masked && c.packs ? " packed" : "");
    const std::string name = cache_name("tokens", hash + " " + content + how);
    return read_data(cached(folder, name, [&](const std::string& into) {
        say_large(source, folder, o);
        make_tokens(c, source, o, split, shard, hash, content, into, progress);
    }, progress), 1);
}

// Opens token files of the user. The part for validation is in `val`, if they are split.
Data open_token_files(const Source& source, bool split) {
    const uint64_t every = hashed_every(source.files);
    std::vector<uint32_t> crcs;
    const std::string content = format("%016llx", ull(content_hash(source.files, every, &crcs)));
    if (every == kFileBlock) check_manifest(source.files, crcs);
    std::vector<Shard> shards;
    uint64_t count = 0;
    std::string folder;
    std::map<std::string, Listed> listed;
    for (size_t i = 0; i < source.files.size(); i++) {
        const std::string &file = source.files[i], beside = parent_folder(file);
        if (beside != folder) listed = read_manifest(folder = beside);
        shards.push_back(open_token_file(file));
        shards[i].given = listed[base_name(file)].given;
        shards[i].every = every;
        shards[i].crc = crcs[i];
        count += shards[i].tokens;
    }
    const uint64_t cut = split ? nine_tenths_of(count) : count;
    Data data = {.train = cut_dataset(shards, source.path, content, 0, cut)};
    if (split) data.val = cut_dataset(shards, source.path, content, cut, count);
    if (every > kFileBlock)
        data.train.description = format("a resume compares 1 of %llu blocks of 64 KiB", ull(every / kFileBlock));
    return data;
}

// Reads the first 2^28 tokens, which takes about a second, so that a bad token among them is found now and not later.
void check_tokens(const Dataset& set, int vocab_size) {
    uint64_t left = uint64_t(1) << 28;
    std::vector<int> block(1 << 16);
    for (const Shard& shard : set.shards)
        for (uint64_t at = 0, n; at < shard.tokens && left > 0; at += n, left -= n) {
            n = std::min({uint64_t(block.size()), shard.tokens - at, left});
            shard.read(at, size_t(n), block.data(), vocab_size);
        }
}

// ---- the vocabulary and the questions

// Returns what a manifest.json in the folder `to` says of a vocabulary, whose files are written unless the cache has
// them.
std::string vocabulary_json(const Vocabulary& v, const std::string& folder, const std::string& to,
                            const Progress& progress) {
    std::string table, all;
    for (const std::string& bytes : v.bytes) table += bytes_of(uint32_t(bytes.size())) + bytes;
    for (const auto& [name, text] : v.files) all += name + " " + text;
    const std::string entry = cached(folder, cache_name("vocabulary", table + all), [&](const std::string& into) {
        for (const auto& [name, text] : v.files) write_file_atomic(path_join(into, name), text);
        write_file_atomic(path_join(into, "bytes.bin"), table);
    }, progress);
    const auto quoted = [&](const std::string& name) {
        return json_quote(path_in(path_join(entry, name), to), true);
    };
    std::vector<std::string> files;
    for (const auto& [name, text] : v.files) files.push_back(quoted(name));
    return JsonLine().raw("name", json_quote(v.name, true)).add("tokens", v.tokens)
        .raw("ends", json_list(v.ends)).add("begin", v.documents.begin).add("end", v.documents.end)
        .raw("untrained", json_list(v.untrained)).raw("config", v.config).add("chats", v.chats)
        .raw("bytes", quoted("bytes.bin"))
        .raw("files", "[" + join(files, ",") + "]").text();
}

// Returns the description for the console. note: what was left out.
// Returns what the console says of packed rows; "" if they are not.
std::string padding_of(const Data& data, const TextOptions& o) {
    const Dataset& part = o.whole ? data.val : data.train;
    return part.rows ? format("; packed rows, of which padding is %.1f %%", 100 * part.padding) : "";
}

bool has_answers(const Sources& sources) {
    return sources.train.is_masked() && (sources.val.files.empty() || sources.val.is_masked());
}

std::string describe(const Data& data, const Sources& sources, const std::string& note, const TextOptions& o) {
    std::string text = (o.data.empty() ? "built-in stories" : o.data) + ": ";
    const std::string val = with_commas(data.val.tokens);
    const bool masked = sources.train.is_masked();
    if (!masked) text += (o.whole ? "" : with_commas(data.train.tokens) + " training and ") + val;
    if (!masked) text += o.whole ? " tokens" : " validation tokens";
    text += (masked || note.empty() ? "" : "; ") + note;
    return text + padding_of(data, o) + (o.data.empty() ? "" : describe_files(sources.train, sources.val));
}

}  // namespace

TextChoice choose_text(const TextOptions& o, const std::string& folder, const Progress& progress) {
    TextChoice c;
    c.sources = find_sources(o);
    const auto& [train, val] = c.sources;
    c.tokenizer = choose_tokenizer(o, train, val, folder, progress);
    c.tokenizer.names = o.special_tokens;
    c.texts = texts_beside(o, c.tokenizer);
    // A new model that learns one text never sees the end-of-text token; nor has one seen it whose config.json says so.
    const Json eos = o.init.config.empty() ? Json{"null"} : Json{o.init.config}.find("eos_token_id");
    if (!o.special_tokens && train.is_text() && (!train.has_documents() || o.whole) && eos &&
        eos.kind() == Json::null && (c.tokenizer.own || o.init.config.empty())) {
        if (c.tokenizer.own) c.tokenizer.begin = c.tokenizer.bos = -1;
        c.tokenizer.eot = -1;
        c.tokenizer.ends.clear();
    }
    const bool chats = train.format == Format::chat;
    c.packs = o.rows == "documents" || (o.rows == "auto" && has_answers(c.sources));
    if (!val.files.empty() && (chats ? val.format != train.format : val.format == Format::chat))
        die_content("data: " + val.path, format_name(val.format),
                    format_name(train.format) + (" as " + train.path));
    if (chats) c.chat = choose_chat_template(o.chat_template, c.texts, parent_folder(o.init_path));
    const bool reads = train.is_text() || (!val.files.empty() && val.is_text()) || !o.prompt.empty();
    if (o.special_tokens && (c.chat.form || !reads))
        die(kExitUsage, "--special-tokens: data: %s: got %s, want text; %s", train.path.c_str(),
            format_name(train.format), chats ? "the content of messages stays text" : "give it to build/prep");
    c.tokenizer.require_names();
    if (chats && !o.whole) add_chat_tokens(&c.tokenizer, c.chat);
    end_of_turn(c.tokenizer, c.chat);                       // refuses a template by which no turn can be learnt
    if (c.tokenizer.kind == Tokenizer::none) return c;      // open_data chooses the number of rows
    c.tokenizer.bytes.resize(size_t(choose_vocabulary(o, c.tokenizer, c.chat)));
    return c;
}

// Opens data of one source, and their vocabulary.
static Data open_source(const TextOptions& o, const std::string& folder, const Progress& progress,
                        bool alone = true) {
    const TextChoice c = choose_text(o, folder, progress);
    const auto& [train, val] = c.sources;
    const bool split = val.files.empty() && !o.whole;
    const auto open = [&](const Source& source) {
        Data data = source.is_text() ? tokens_of(c, source, o, split, folder, progress) :
            open_token_files(source, split);
        data.train.path = source.path;          // the cache may have another file's, of the same text
        if (split) data.val.path = source.path;
        return data;
    };
    Data data = open(train);
    Vocabulary& vocabulary = data.vocabulary = vocabulary_of(c.tokenizer, c.chat, o.init.config);
    vocabulary.files = tokenizer_files(c.tokenizer, c.chat, c.texts, o.seq_len);
    vocabulary.untrained = untrained_tokens(o, c, data);
    const std::string note = data.train.description;
    if (!val.files.empty()) data.val = open(val).train;
    else if (o.whole) data.val = std::exchange(data.train, {});
    const int listed = train.is_text() ? 0 : int(listed_number(train, "vocab_size"));
    const int without = o.init_vocab ? o.init_vocab : o.vocab_size ? o.vocab_size : listed ? listed : 50257;
    data.vocab_size = vocabulary.has_text() ? int(vocabulary.bytes.size()) : without;
    for (int* token : {&vocabulary.documents.begin, &vocabulary.documents.end})
        if (*token >= data.vocab_size) *token = -1;     // a config.json may name tokens that no row has
    std::erase_if(vocabulary.ends, [&](int token) { return token >= data.vocab_size; });
    if (!o.whole && !train.is_text()) check_tokens(data.train, data.vocab_size);
    if (!o.whole && !(split ? train : val).is_text()) check_tokens(data.val, data.vocab_size);
    for (Dataset* part : {&data.train, &data.val}) {
        part->T = o.seq_len;
        const bool whole = alone || (part == &data.val && !o.val_data.empty());
        if (c.packs && whole && !part->shards.empty())
            pack_documents(part, {}, vocabulary.documents, data.vocab_size, folder, progress);
    }
    data.train.description = describe(data, c.sources, note, o);
    const bool stated = std::ranges::all_of(data.val.shards, [](const Shard& s) { return !s.given.empty(); });
    if (c.tokenizer.split.nfc && !stated && !o.quiet)
        warn("data: %s: no manifest.json says how many bytes its text had, so bits per byte count those after NFC; "
             "build/prep makes shards that have it", data.val.path.c_str());
    data.start = sample_start(o.prompt, c.chat, c.tokenizer);
    return data;
}

// ---- mixtures

// Refuses a source that cannot be trained on beside another one.
static void check_beside(const Data& other, const std::string& other_path, const Data& data, const std::string& path) {
    const Vocabulary &own = data.vocabulary, &had = other.vocabulary;
    if (own.chats != had.chats)
        die(kExitUsage, "--data: %s: got conversations beside other data, want a run for each, the second with --init",
            (own.chats ? path : other_path).c_str());
    if (own.bytes != had.bytes || data.vocab_size != other.vocab_size)
        die(kExitUsage, "--data: %s: got another vocabulary (%s) than %s (%s), want one; give --tokenizer, or tokens "
            "that it has made", path.c_str(), own.name.c_str(), other_path.c_str(), had.name.c_str());
    if (&data != &other && data.train.hash + data.val.hash == other.train.hash + other.val.hash)
        die(kExitUsage, "--data: %s: got the same data as %s, want each source once", path.c_str(), other_path.c_str());
}

// Opens the sources one by one and joins them, the one of the largest weight first, whatever their order in --data.
static Data open_mixture(TextOptions o, const std::vector<WeightedPath>& mixture, const std::string& folder,
                         const Progress& progress) {
    const std::string data = o.data, tokenizer = o.tokenizer;
    std::vector<Sources> texts;
    for (const WeightedPath& source : mixture) {
        o.data = source.path;
        texts.push_back(find_sources(o));
        if (learns(tokenizer) && !texts.back().train.is_text()) tokenizer_open(tokenizer, nullptr);     // refuses it
    }
    if (learns(tokenizer) && !o.whole)
        o.tokenizer = path_join(learn_once(tokenizer, texts, folder, progress), "tokenizer.json");
    if (o.rows == "auto") o.rows = std::ranges::all_of(texts, has_answers) ? "documents" : "join";
    std::vector<std::pair<WeightedPath, Data>> parts;
    for (const WeightedPath& source : mixture) {
        o.data = source.path;
        parts.push_back({source, open_source(o, folder, progress, false)});
        for (const auto& [other, before] : parts)
            check_beside(before, other.path, parts.back().second, source.path);
    }
    const auto order = [](const auto& part) {
        return std::tuple(-part.first.weight, part.second.train.hash, part.second.val.hash);
    };
    std::ranges::sort(parts, {}, order);
    // The tokens around documents are known where a source has documents. Where none has, they are none.
    const auto ends = [](const auto& part) { return part.second.vocabulary.ends.size(); };
    Data all = std::ranges::max_element(parts, {}, ends)->second;
    if (o.tokenizer != tokenizer) all.vocabulary.name = tokenizer;
    for (Dataset Data::* member : {&Data::train, &Data::val}) {
        Dataset& joined = all.*member;
        // The data of --val-data are one source.
        if (joined.path.empty() || (member == &Data::val && !o.val_data.empty())) continue;
        joined = {.T = o.seq_len, .path = data};
        std::vector<size_t> begins;             // the first shard of each source
        for (const auto& [source, opened] : parts) {
            const Dataset& part = opened.*member;
            begins.push_back(joined.shards.size());
            joined.paths.push_back(JsonLine().raw("path", json_quote(source.path, true)).add("weight", source.weight)
                .add("shards", part.shards.size()).text());
            joined.shards.insert(joined.shards.end(), part.shards.begin(), part.shards.end());
            joined.hash = data_hash(joined.hash + format(" %.9g ", source.weight) + part.hash);
        }
        if (o.rows == "documents")
            pack_documents(&joined, begins, all.vocabulary.documents, all.vocab_size, folder, progress);
    }
    Words lines;
    for (const auto& [source, opened] : parts) {
        for (const int token : opened.vocabulary.untrained)
            if (std::ranges::count(all.vocabulary.untrained, token) == 0) all.vocabulary.untrained.push_back(token);
        lines.push_back(format("%.3g %% ", 100 * source.weight) + opened.train.description);
    }
    all.train.description = join(lines, "\n        ") + padding_of(all, o);
    return all;
}

std::string prepare(const TextOptions& o, const std::string& given, const Progress& progress) {
    const std::string folder = given.empty() ? cache_folder(o.cache) : given;
    const std::vector<WeightedPath> mixture = find_mixture(o.data);
    TextOptions one = o;
    one.data = mixture[0].path;
    const bool several = mixture.size() > 1;
    const Data data = several ? open_mixture(o, mixture, folder, progress) : open_source(one, folder, progress);
    JsonLine line = tokens_line(data, given);
    line.raw("vocabulary", vocabulary_json(data.vocabulary, folder, given, progress))
        .raw("start", json_list(data.start));
    const std::string json = line.text() + "\n";
    const auto write = [&](const std::string& into) { write_file_atomic(path_join(into, "manifest.json"), json); };
    if (given.empty()) return cached(folder, cache_name("data", json), write, progress);
    write(given);
    return given;
}
