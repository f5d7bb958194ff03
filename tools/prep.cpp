// prep.cpp -- build/prep INPUT... -o DIR: texts become token shards once, which every run then reads at once.
//
//     DIR/train_000000.bin ...  DIR/val_000000.bin ...    llm.c's shards: 16-bit ids, or Llama 3's form of 32 bits
//     DIR/tokenizer.json                                  train_gpt --data DIR takes it from there
//     DIR/manifest.json                                   inputs, documents, tokens, the shards' CRC-32C; written last
//
// A reader takes chunks of whole documents from the inputs in order, some threads encode them, and the writer takes
// their tokens in order again: the bytes do not depend on threads. Behind each full shard the position is saved (files
// .part and prep.json), so that an interrupted run goes on there, to the same bytes. It first reads again what was read
// of the inputs: a hash of each tells whether these are still the same.
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <deque>
#include <future>
#include <optional>
#include <regex>
#include <set>
#include <utility>
#include "src/base/cache.h"
#include "src/base/common.h"
#include "src/base/cpus.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "tools/text/chat.h"
#include "tools/text/prepare.h"
#include "tools/text/text.h"
#include "tools/text/token_files.h"
#include "tools/text/tokenizer.h"
#include "tools/tool.h"

namespace {
struct Arguments {
    std::vector<std::string> inputs;
    std::string out, tokenizer = "gpt2", field = "text";
    double val_frac = 0.01;
    uint64_t shard_tokens = 100000000;
    int threads = available_cpus(), skip_bad_lines = 0;
    bool empty_cache = false, special_tokens = false;
};

Tool tool_of(Arguments* a) {
    return {"prep",
        "usage: prep INPUT... -o DIR [options]\n"
        "Writes the tokens of texts as shards for train_gpt --data DIR. INPUT: a file, folder or quoted glob of JSON "
        "or\ntext files (a text file is a document), also as .gz or .zst.\n",
        {{"-o", "DIR", "a new folder, or that of an interrupted start", &a->out},
         {"--tokenizer", "T", "as of train_gpt; bpe:N learns from the first 16 MiB", &a->tokenizer},
         {"--text-field", "NAME", "of JSON", &a->field},
         {"--skip-bad-lines", "N", "leave out at most N lines of JSON that cannot be read, in all inputs together",
          &a->skip_bad_lines},
         {"--special-tokens", "", "names of control tokens, such as <|endoftext|>, are these tokens, and end documents",
          &a->special_tokens},
         {"--val-frac", "X", "of the documents, for validation; of a single text its last part", &a->val_frac, "",
          {"from 0 to 0.5", 0, 0.5}},
         {"--shard-tokens", "N", "tokens of a shard", &a->shard_tokens, "", {"from 1 to 2147483648", 1, 0x1p31}},
         {"--threads", "N", "that encode; not given: one for each CPU", &a->threads, "", {"from 1 to 1024", 1, 1024}},
         {"--empty-cache", "", "alone: removes what train_gpt has kept of texts, in LOCKSTEP_CACHE, or lockstep/ in "
          "the user's cache", &a->empty_cache}},
        "Interrupted, the same command goes on, to the same bytes; an input that was read and has changed is refused.\n"
        "exit codes: 0, 2 usage, 65 bad content, 66 no input, 74 a write failed\n"};
}

// ---------------------------------------------------------------------------------------------------------- inputs

struct Input {
    std::string path, unpack;               // unpack: the program that prints it, or ""
    bool validation = false;                // by its name
    bool divided = true;                    // no input is for validation by its name
    uint64_t bytes = 0;                     // on the disk
    enum Kind { text, lines, value } kind = text;       // lines of JSON; one value of JSON
};

// The bytes of one input in order, unpacked.
struct Stream {
    const Input& input;
    InputFile file;
    std::unique_ptr<FILE, int (*)(FILE*)> pipe{nullptr, pclose};
    uint64_t at = 0, line = 1;              // bytes taken, and the line that is next
    std::string ahead = {};                 // bytes read, not taken yet

    explicit Stream(const Input& of) : input(of), file(of.path) {
        if (of.unpack.empty()) return;
        const std::string command = "exec " + of.unpack + " -dc -- " + shell_quote(of.path);
        pipe.reset(popen(command.c_str(), "r"));
        if (!pipe) die(kExitOther, "%s: cannot start %s", of.path.c_str(), of.unpack.c_str());
    }

    // Returns what is left, as far as it has been read; at least n bytes if there are so many.
    std::string_view look(size_t n) {
        if (const size_t old = ahead.size(); input.unpack.empty() && old < n) {
            ahead.resize(size_t(std::min<uint64_t>(n, file.size - at)));
            file.read(at + old, &ahead[old], ahead.size() - old);
        }
        while (pipe && ahead.size() < n) {
            const size_t old = ahead.size();
            ahead.resize(old + (1 << 20));
            const size_t got = fread(&ahead[old], 1, ahead.size() - old, pipe.get());
            ahead.resize(old + got);
            if (got > 0) continue;
            const int status = pclose(pipe.release());
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                die(kExitBadContent, "%s: %s cannot unpack it (exit code %d)", input.path.c_str(), input.unpack.c_str(),
                    WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        }
        if (file.touched())
            die(kExitBadContent, "%s: it changes while it is read; give a file that nobody writes to",
                input.path.c_str());
        return ahead;
    }
    std::string take(size_t n) {
        at += n;
        if (n == ahead.size()) return std::exchange(ahead, "");
        const std::string text = ahead.substr(0, n);
        ahead.erase(0, n);
        return text;
    }
};

Input find_input(const std::string& file, const std::string& field, bool validation) {
    const std::string unpack = file.ends_with(".gz") ? "gzip" : file.ends_with(".zst") ? "zstd" : "";
    Input input = {.path = file, .unpack = unpack, .validation = validation, .bytes = InputFile(file).size};
    if (const Format format = format_of(file); format != Format::text)
        die_content(file, format_name(format), "text or JSON");
    Stream stream(input);
    const std::string name = unpack.empty() ? file : file.substr(0, file.rfind('.'));
    const Format format = recognise_text(name, field, [&](size_t n) { return stream.look(n); });
    if (format != Format::text)
        input.kind = is_one_value(stream.look(16384).substr(0, 16384)) ? Input::value : Input::lines;
    return input;
}

// Finds the inputs, those for validation behind the others, and says what they are.
std::vector<Input> find_inputs(const std::vector<std::string>& paths, const std::string& field) {
    constexpr const char* kKinds[] = {"text", "JSON lines", "a JSON value"};
    std::vector<Input> inputs, val;
    for (const std::string& path : paths) {
        Source train = find_files(path);
        if (train.files.empty()) die(kExitNoInput, "%s: no file is there or matches it", path.c_str());
        const Source held_out = take_validation(&train);
        std::set<std::string> kinds;
        for (const Source* part : {&std::as_const(train), &held_out})
            for (const std::string& file : part->files) {
                std::vector<Input>& to = part == &train ? inputs : val;
                to.push_back(find_input(file, field, part == &held_out));
                kinds.insert(kKinds[to.back().kind]);
            }
        std::fprintf(stderr, "prep: %s: %s%s\n", path.c_str(), join({kinds.begin(), kinds.end()}, " and ").c_str(),
                     describe_files(train, held_out).c_str());
    }
    inputs.insert(inputs.end(), val.begin(), val.end());
    for (Input& input : inputs) input.divided = val.empty();
    return inputs;
}

// Whole documents: lines of JSON, one value of JSON, or one text.
constexpr size_t kChunk = 4 << 20;
struct Chunk { std::string text; const Input& of; uint64_t line; bool alone; };     // its first; the only text of all

[[noreturn]] void too_large(const std::string& where) {
    die(kExitOther, "%s: a text that does not fit into memory; make it several files, or lines of .jsonl",
        where.c_str());
}

struct Reader {
    const std::vector<Input>& inputs;
    size_t input = 0;
    uint64_t read = 0;                      // bytes on the disk of the inputs before this one
    std::vector<uint64_t> hashes = std::vector<uint64_t>(inputs.size());    // of what was taken from each input
    std::unique_ptr<Stream> stream = {};

    // Reads again what another start had read: all of the first inputs, `at` bytes of the last. kExitBadContent if
    // these are other bytes now.
    void repeat(const std::vector<uint64_t>& were, uint64_t at) {
        while (input + 1 < were.size() || (input + 1 == were.size() && (stream ? stream->at : 0) < at))
            if (!next()) break;
        for (size_t i = 0; i < were.size(); i++)
            if (i >= inputs.size() || hashes[i] != were[i])
                die(kExitBadContent, "%s: its text has changed since prep read it; begin again in another folder",
                    inputs[std::min(i, inputs.size() - 1)].path.c_str());
    }
    std::optional<Chunk> next() try {
        while (input < inputs.size()) {
            const Input& of = inputs[input];
            if (!stream) stream = std::make_unique<Stream>(of);
            size_t n = 0, want = of.kind == Input::lines ? kChunk : SIZE_MAX / 4;
            for (bool more = true; more && n == 0; want *= 2) {     // a line may be longer than a chunk
                const std::string_view rest = stream->look(want);
                more = of.kind == Input::lines && rest.size() >= want;
                n = more ? rest.substr(0, want).rfind('\n') + 1 : rest.size();      // npos + 1 is 0
            }
            if (n > 0) {
                const uint64_t at = stream->at;
                Chunk chunk = {stream->take(n), of, stream->line, of.kind == Input::text && inputs.size() == 1};
                stream->line += uint64_t(std::ranges::count(chunk.text, '\n'));
                hashes[input] = hash_bytes(chunk.text.data(), n, hashes[input]);
                if (at == 0) chunk.text.erase(0, n - without_mark(chunk.text).size());
                return chunk;
            }
            stream.reset();
            read += of.bytes;
            input++;
        }
        return {};
    } catch (const std::bad_alloc&) {
        too_large(inputs[input].path);
    }
};

// What a start has read: hashes of the first inputs, of the last of them only `at` bytes.
struct Place { std::vector<uint64_t> hashes; uint64_t at; };

// --------------------------------------------------------------------------------------------------------- encoding

struct Part { std::vector<uint32_t> tokens; uint64_t documents = 0; Given given = {{0, 1}}; };
struct Encoded { Part parts[2]; size_t bytes = 0; BadLines bad = {}; Spelled spelled = {}; };  // training, validation

// Copies of a document fall on the same side.
bool is_validation(std::string_view document, double fraction) {
    return double(hash_bytes(document.data(), document.size(), 7) >> 11) < fraction * 0x1p53;
}

void add_document(std::string_view text, const Tokenizer& tokenizer, bool begins, Part* part) {
    std::vector<int> tokens;
    const uint64_t first = part->tokens.size();
    uint64_t bytes = 0;
    const auto move = [&] {
        for (const int token : tokens) bytes += tokenizer.counted(token);
        part->tokens.insert(part->tokens.end(), tokens.begin(), tokens.end());
        tokens.clear();
    };
    const int64_t more = begins ? tokenizer.encode_document(text, &tokens, move) :
        tokenizer.encode(text, &tokens, move, tokenizer.names);
    move();
    note_given(&part->given, first, each_given(bytes, more));
    part->documents++;
}

template <class F> void each_document(const Chunk& chunk, const std::string& field, BadLines* bad, const F& f) {
    RecordReader records = {chunk.of.path, bad};
    const auto add = [&](const Json& json) {
        const char* const what = records.what.c_str();
        if (json.kind() != Json::object) die_content(what, json_shown(json), "an object");
        if (!json.find(field) && !conversation_key(json).empty())
            die_content(what, describe_fields(json), field + "; conversations go to train_gpt --data as they are");
        if (!json.find(field)) die_content(what, describe_fields(json), field);
        const std::string text = json.get_string(field, what);
        if (!text.empty()) f(std::string_view(text));
    };
    std::string_view rest = chunk.text;
    if (chunk.of.kind == Input::value) return records.value(rest, add);
    if (chunk.of.kind == Input::text) require_utf8(rest, chunk.of.path);
    if (chunk.of.kind == Input::text) return rest.empty() ? void() : f(rest);
    for (uint64_t number = chunk.line; !rest.empty(); number++) records.line(next_word(&rest, '\n'), number, add);
}

Encoded encode(const Chunk& chunk, const Tokenizer& tokenizer, const Arguments& a) try {
    Encoded out;
    out.bytes = chunk.text.size();
    if (chunk.alone) {                      // one stream without documents: its end is for validation
        const std::string_view all = chunk.text;
        require_utf8(all, chunk.of.path);
        tokenizer.find_names(all, &out.spelled);
        const double head = double(all.size()) * (1 - a.val_frac);
        const size_t line = all.rfind('\n', size_t(head)), at = line == all.npos ? size_t(head) : line + 1;
        const size_t cut = a.val_frac > 0 ? tokenizer.outside_names(all, at) : all.size();
        add_document(all.substr(0, cut), tokenizer, false, &out.parts[0]);
        if (cut < all.size()) add_document(all.substr(cut), tokenizer, false, &out.parts[1]);
        return out;
    }
    out.bad.allowed = uint64_t(a.skip_bad_lines);
    each_document(chunk, a.field, &out.bad, [&](std::string_view text) {
        tokenizer.find_names(text, &out.spelled);
        add_document(text, tokenizer, true,
                     &out.parts[chunk.of.divided ? is_validation(text, a.val_frac) : chunk.of.validation]);
    });
    return out;
} catch (const std::bad_alloc&) {
    too_large(chunk.of.path);
}

Tokenizer open_tokenizer(const Arguments& a, const std::vector<Input>& inputs) {
    if (!a.tokenizer.starts_with("bpe:")) return tokenizer_open(a.tokenizer, nullptr);
    std::string sample;
    Reader reader = {inputs};
    while (sample.size() < 16 << 20) {
        const std::optional<Chunk> chunk = reader.next();
        if (!chunk) break;
        BadLines bad = {.allowed = uint64_t(a.skip_bad_lines)};
        each_document(*chunk, a.field, &bad, [&](std::string_view text) { sample += text; });
    }
    const std::string_view view = sample;
    return tokenizer_open(a.tokenizer, &view);
}

// ---------------------------------------------------------------------------------------------------------- writing

struct Output {
    const char* name;
    std::vector<std::string> shards;        // JSON: name, tokens, CRC-32C
    std::vector<uint32_t> tokens;           // of the shard that is not full
    uint64_t documents = 0, total = 0;      // tokens
    Given given = {{0, 1}};                 // of `tokens`
};

// What must be the same for a start to go on where another ended.
std::string identity(const Arguments& a, const std::vector<Input>& inputs) {
    std::vector<std::string> files;
    for (const Input& i : inputs) files.push_back(JsonLine().add("path", i.path).add("bytes", i.bytes).text());
    JsonLine json;
    json.add("tokenizer", a.tokenizer).add("text_field", a.field).add("val_frac", a.val_frac)
        .add("shard_tokens", a.shard_tokens).raw("inputs", "[" + join(files, ",") + "]");
    if (a.skip_bad_lines) json.add("skip_bad_lines", a.skip_bad_lines);
    if (a.special_tokens) json.add("special_tokens", true);
    return json.text();
}

// Files that a killed start leaves, beside shards, tokenizer.json and prep.json. These are all names that the program
// makes, and no others: what a user keeps beside them is not touched.
bool is_leftover(const std::string& name) {
    static const std::regex ours(R"(\.(train|val)\.[0-9]+\.part(\.tmp[0-9]+)?|(train|val)_[0-9]{6,}\.bin\.tmp|)"
                                 R"((prep|manifest|tokenizer|tokenizer_config)\.json\.tmp[0-9]+|\.lock)");
    return std::regex_match(name, ours);
}

// kExitBadContent if a finished shard is not what it was when it was written.
void check_shard(const std::string& path, uint64_t crc) {
    if (!file_exists(path)) die(kExitBadContent, "%s: it is gone; begin again in another folder", path.c_str());
    if (InputFile(path).checksum() != crc)
        die(kExitBadContent, "%s: checksum mismatch: it has changed; begin again in another folder", path.c_str());
}

// A text of JSON, whose last value is a checksum of what stands before it.
constexpr std::string_view kCrcKey = ",\"crc32c\":";
std::string with_crc(std::string text) {
    text.pop_back();
    const uint32_t crc = crc32c(0, text.data(), text.size());
    return text + std::string(kCrcKey) + std::to_string(crc) + "}\n";
}
// The state in such a text. kExitBadContent if it has changed.
Json checked_state(const std::string& text, const char* what) {
    const size_t end = text.rfind(kCrcKey);
    if (end == text.npos || with_crc(text.substr(0, end) + "}") != text)
        die(kExitBadContent, "%s: it is damaged, or of another version; begin again in another folder", what);
    return parse_json(text, what);
}

struct Job {
    const Arguments& a;
    const std::vector<Input>& inputs;
    FolderLock lock = {};
    Output out[2] = {{"train", {}, {}}, {"val", {}, {}}};
    BadLines bad = {.allowed = uint64_t(a.skip_bad_lines)};     // so far
    Spelled spelled = {};                   // so far
    uint64_t saves = 0;                     // 0: all is done
    int vocab_size = 0;
    size_t width = 0;                       // bytes of a token
    uint32_t tokenizer = 0;                 // checksum of tokenizer.json
    std::string path(const std::string& name) const { return path_join(lock.held, name); }
    std::string part(const Output& o, uint64_t save) const {
        return path(std::string(".") + o.name + "." + std::to_string(save) + ".part");
    }

    // Writes the first n tokens as a shard.
    void write(Output* o, size_t n) {
        check_lock(&lock, "-o");
        const std::string name = format("%s_%06zu.bin", o->name, o->shards.size()), temporary = path(name + ".tmp");
        const uint32_t header[256] = {width == 2 ? 20240520u : 20240801u, width == 2 ? 1u : 7u, uint32_t(n)};
        std::string bytes;
        for (size_t i = 0; i < n; i++) bytes.append(reinterpret_cast<const char*>(&o->tokens[i]), width);
        remove_tree(temporary);
        FileWriter file(temporary);
        file.write(header, sizeof header);
        file.write(bytes.data(), bytes.size());
        file.finish();
        rename_file(temporary, path(name));
        Given given = {{0, std::prev(o->given.upper_bound(n))->second}};       // of what is left
        for (auto i = o->given.upper_bound(n); i != o->given.end(); i++) given[i->first - n] = i->second;
        o->given.erase(o->given.lower_bound(n), o->given.end());
        o->shards.push_back(JsonLine().add("file", name).add("tokens", n).add("crc32c", file.crc)
                                .raw("given", given_json(std::exchange(o->given, given))).text());
        o->tokens.erase(o->tokens.begin(), o->tokens.begin() + ptrdiff_t(n));
    }
    // What is done and, for going on, where the next chunk begins. The tokens of an unfinished shard are in .part.
    std::string state(const Place& place) const {
        std::vector<std::string> hashes;
        for (const uint64_t hash : place.hashes) hashes.push_back(std::to_string(hash));
        JsonLine json;
        json.raw("of", identity(a, inputs)).add("vocab_size", vocab_size).add("token_bytes", width).add("saves", saves)
            .raw("hashes", "[" + join(hashes, ",") + "]").add("at", place.at).add("tokenizer", tokenizer);
        std::vector<std::string> bad_files;
        for (const auto& [file, of] : bad.files)
            bad_files.push_back(JsonLine().add("file", file).add("lines", of.count).add("first", of.first).text());
        json.add("control_names", spelled.count).add("control_name", spelled.first);
        if (a.skip_bad_lines) json.add("bad_lines", bad.count).raw("bad_files", "[" + join(bad_files, ",") + "]");
        for (const Output& o : out)
            json.raw(o.name, JsonLine().add("documents", o.documents).add("tokens", o.total)
                                 .add("rest", crc32c(0, o.tokens.data(), o.tokens.size() * 4))
                                 .raw("given", given_json(o.given))
                                 .raw("shards", "[" + join(o.shards, ",") + "]").text());
        return with_crc(json.text());
    }
    void save(const Place& place) {
        saves++;
        for (const Output& o : out)
            write_file_atomic(part(o, saves), {reinterpret_cast<const char*>(o.tokens.data()), o.tokens.size() * 4});
        write_file_atomic(path("prep.json"), state(place));
        for (const Output& o : out) remove_tree(part(o, saves - 1));
    }
    // Takes over the state in a file, if it is there. kExitBadContent if anything is not as it was then, kExitUsage if
    // it is of others.
    std::optional<Place> resume(const std::string& file) {
        if (!file_exists(file)) return {};
        const char* const what = file.c_str();
        const std::string text = read_file(file);
        const Json state = checked_state(text, what);
        if (state.at("of", what).text() != identity(a, inputs))
            die(kExitUsage, "-o: %s: it was begun with other inputs or options; give those, or another folder",
                a.out.c_str());
        saves = state.get_u64("saves", what);
        if (a.skip_bad_lines) bad.count = state.get_u64("bad_lines", what);
        spelled.first = state.find("control_name").text();
        state.find("control_names").as_u64(&spelled.count);
        for (JsonItems i(state.find("bad_files")); i.next();)
            bad.files[i.value.get_string("file", what)] =   // a later line is not the first
                {i.value.get_u64("lines", what), 0, i.value.get_string("first", what)};
        for (Output& o : out) {
            const Json of = state.at(o.name, what);
            o.documents = of.get_u64("documents", what);
            o.total = of.get_u64("tokens", what);
            for (JsonItems i(of.at("shards", what)); i.next();) {
                check_shard(path(i.value.get_string("file", what)), i.value.get_u64("crc32c", what));
                o.shards.push_back(i.value.text());
            }
            const std::string rest = saves > 0 ? read_file(part(o, saves)) : "";
            if (rest.size() % 4 || crc32c(0, rest.data(), rest.size()) != of.get_u64("rest", what))
                die(kExitBadContent, "%s: it is damaged; begin again in another folder", part(o, saves).c_str());
            o.given = read_given(of.find("given"), what);
            if (saves > 0 && o.given.empty())
                die(kExitBadContent, "%s: it is of an older version; begin again in another folder", what);
            o.tokens.resize(rest.size() / 4);
            if (!rest.empty()) std::memcpy(o.tokens.data(), rest.data(), rest.size());
        }
        tokenizer = uint32_t(state.get_u64("tokenizer", what));
        Place place = {{}, state.get_u64("at", what)};
        for (JsonItems i(state.at("hashes", what)); i.next();) i.value.as_u64(&place.hashes.emplace_back());
        return place;
    }
    void finish(const Place& place) {
        for (Output& o : out)
            if (!o.tokens.empty()) write(&o, o.tokens.size());
        saves = 0;
        write_file_atomic(path("manifest.json"), state(place));
        clean();
    }
    // Removes what is for going on, also that of starts that were killed.
    void clean() const {
        remove_tree(path("prep.json"));
        for (const std::string& name : list_directory(lock.held))
            if (is_leftover(name) && !name.starts_with(".lock")) remove_tree(path(name));
    }
};

struct Meter {                              // of what is done, on a terminal
    uint64_t total, at_start;
    double began = now_seconds(), last = began;
    void show(uint64_t done, uint64_t text_bytes, uint64_t tokens) {
        const double now = now_seconds();
        if (now - last < 2 || !isatty(2)) return;
        last = now;
        const double rate = double(done - at_start) / (now - began);
        std::fprintf(stderr, "\r%5.1f %% | %.1f MB/s of text | %s tokens | %.0f s left   ",
                     100 * double(done) / double(total), double(text_bytes) * 1e-6 / (now - began),
                     with_commas(tokens).c_str(), rate > 0 ? double(total - done) / rate : 0);
    }
};

int run(const Arguments& a) {
    const std::vector<Input> inputs = find_inputs(a.inputs, a.field);
    Job job = {a, inputs};
    uint64_t bytes = 0;
    for (const Input& i : inputs) bytes += i.bytes;
    make_directories(a.out);
    lock_folder(&job.lock, a.out, "-o", ", or give another folder");
    Reader reader = {inputs};
    const bool finished = file_exists(job.path("manifest.json"));
    const std::optional<Place> resumed = job.resume(job.path(finished ? "manifest.json" : "prep.json"));
    if (!resumed && !std::ranges::all_of(list_directory(a.out), is_leftover))
        die(kExitUsage, "-o: %s: not empty; give another folder", a.out.c_str());
    if (resumed) reader.repeat(resumed->hashes, resumed->at);
    const std::string own = job.path("tokenizer.json");
    const bool has_own = resumed && file_exists(own);
    Tokenizer tokenizer = has_own ? tokenizer_load(own) : open_tokenizer(a, inputs);
    tokenizer.names = a.special_tokens;
    tokenizer.require_names();
    const std::string json = tokenizer.to_json();
    const uint32_t crc = crc32c(0, json.data(), json.size());
    if (resumed && crc != job.tokenizer)
        die(kExitBadContent, "%s: it has changed; begin again in another folder", own.c_str());
    if (finished) {
        job.clean();
        std::printf("%s: finished already\n", a.out.c_str());
        return kExitDone;
    }
    job.tokenizer = crc;
    job.vocab_size = tokenizer.vocab_size;
    job.width = tokenizer.vocab_size <= 65536 ? 2 : 4;
    if (!resumed) {
        const uint64_t want = bytes / (tokenizer.merges.empty() ? 1 : 4) * job.width;
        std::fprintf(stderr, "prep: %s bytes of input, about %s bytes of tokens in %s\n", with_commas(bytes).c_str(),
                     with_commas(want).c_str(), a.out.c_str());
        require_space(a.out, want, "no space");
        job.save({{0}, 0});                 // first of all: from here on a start goes on
    }
    if (!has_own) write_file_atomic(own, json);
    // tokenizer.json does not say what ends a text.
    if (const std::string end = tokenizer.name_of(tokenizer.eot); !has_own && !tokenizer.own && !end.empty())
        write_file_atomic(job.path("tokenizer_config.json"), JsonLine().add("eos_token", end).text() + "\n");

    // Each thread has a tokenizer of its own: copies share a cache.
    struct Work { std::future<Encoded> result; size_t input; uint64_t end, hash; };
    std::vector<Tokenizer> tokenizers;
    for (int i = 0; i < a.threads; i++) {
        tokenizers.push_back(tokenizer_parse(json, own));
        tokenizers[i].begin = tokenizer.begin;
        tokenizers[i].eot = tokenizer.eot;
        tokenizers[i].ends = tokenizer.ends;
        tokenizers[i].names = tokenizer.names;
    }
    std::deque<Work> under_way;
    Meter meter = {bytes, reader.read};
    uint64_t text_bytes = 0;
    const auto take = [&] {                 // the oldest chunk's tokens
        Work done = std::move(under_way.front());
        under_way.pop_front();
        const Encoded encoded = done.result.get();
        bool full = false;
        text_bytes += encoded.bytes;
        if (job.spelled.count == 0) job.spelled.first = encoded.spelled.first;
        job.spelled.count += encoded.spelled.count;
        for (const auto& [file, bad] : encoded.bad.files) {
            job.bad.add(file, bad);
            if (job.bad.count > job.bad.allowed)
                die(kExitBadContent, "%s: %s; in all %llu lines are bad, and %d may be", file.c_str(),
                    bad.first.c_str(), (unsigned long long)job.bad.count, a.skip_bad_lines);
        }
        for (int k = 0; k < 2; k++) {
            Output& o = job.out[k];
            const Part& part = encoded.parts[k];
            for (const auto& [token, each] : part.given) note_given(&o.given, o.tokens.size() + token, each);
            o.tokens.insert(o.tokens.end(), part.tokens.begin(), part.tokens.end());
            o.documents += part.documents;
            o.total += part.tokens.size();
            for (; o.tokens.size() >= a.shard_tokens; full = true) job.write(&o, a.shard_tokens);
        }
        if (full) {
            Place place = {reader.hashes, done.end};
            place.hashes.resize(done.input + 1);
            place.hashes.back() = done.hash;
            job.save(place);
        }
        meter.show(reader.read, text_bytes, job.out[0].total + job.out[1].total);
    };
    for (size_t k = 0; std::optional<Chunk> chunk = reader.next(); k++) {
        if (under_way.size() == tokenizers.size()) take();          // the one that uses chunk k's tokenizer
        const Tokenizer& its_own = tokenizers[k % tokenizers.size()];
        // Where no thread can be started, take() does the work: the default policy.
        under_way.push_back({std::async([&a, &its_own, c = std::move(*chunk)] { return encode(c, its_own, a); }),
                             reader.input, reader.stream->at, reader.hashes[reader.input]});
    }
    while (!under_way.empty()) take();
    job.finish({reader.hashes, UINT64_MAX});
    if (isatty(2)) std::fputc('\n', stderr);
    for (const std::string& line : job.bad.text()) warn("%s", line.c_str());
    if (!a.special_tokens) job.spelled.warn(a.inputs[0] + (a.inputs.size() > 1 ? " and others" : ""), false);
    else std::printf("%s names of control tokens are tokens\n", with_commas(job.spelled.count).c_str());
    for (const Output& o : job.out)
        std::printf("%s: %s documents, %s tokens, %zu shards\n", o.name, with_commas(o.documents).c_str(),
                    with_commas(o.total).c_str(), o.shards.size());
    if (job.out[1].total == 0) warn("%s: no document fell to validation: give a larger --val-frac", a.out.c_str());
    std::printf("next    ./train_gpt --data %s\n", shell_quote(shown_path(job.lock.held)).c_str());
    return kExitDone;
}

// ----------------------------------------------------------------------------------------------------- command line

int run_command(Arguments a) {
    a.out = without_slash(a.out);
    if (a.empty_cache) {
        if (!a.inputs.empty() || !a.out.empty()) die(kExitUsage, "--empty-cache: want it alone; see prep --help");
        empty_cache(cache_folder(""));
        return kExitDone;
    }
    if (a.inputs.empty()) die(kExitUsage, "want texts to read; see prep --help");
    if (a.out.empty()) die(kExitUsage, "want -o DIR, a new folder");
    if (a.tokenizer == "char") die(kExitUsage, "--tokenizer: got char, want gpt2, byte, bpe:N or a file");
    return run(a);
}

// Takes the texts of a model from what the trainer has written: for each a length of 8 bytes, and the text.
ModelTexts take_texts(std::string_view from) {
    ModelTexts texts;
    for (const auto& [name, text] : kModelTexts) {
        uint64_t length = 0;
        const std::string_view head = from.substr(0, sizeof length);
        if (from.empty()) break;                // the model has no text, as that of the built-in stories
        std::memcpy(&length, head.data(), head.size());
        from.remove_prefix(head.size());
        if (length > from.size()) die_content("request", std::string(name) + " cut short", "all of its text");
        texts.*text = from.substr(0, length);
        from.remove_prefix(length);
    }
    return texts;
}

// prep --answer OPTIONS: makes the folder that train_gpt reads, and answers with its path (tools/text/prepare.h).
int answer(const Words& words) {
    return answer_request([&](const std::string& texts, const std::function<void()>& progress) {
        TextOptions o;
        std::string into;
        Words given;
        read_options({{"--data", "X", "", &o.data}, {"--val-data", "X", "", &o.val_data},
                      {"--tokenizer", "X", "", &o.tokenizer}, {"--chat-template", "X", "", &o.chat_template},
                      {"--rows", "X", "", &o.rows},
                      {"--init-path", "X", "", &o.init_path}, {"--init-weights", "X", "", &o.init_weights},
                      {"--init-vocab", "N", "", &o.init_vocab}, {"--vocab-size", "N", "", &o.vocab_size},
                      {"--prompt", "X", "", &o.prompt}, {"--cache", "X", "", &o.cache},
                      {"--into", "X", "", &into}, {"--seq-len", "N", "", &o.seq_len},
                      {"--skip-bad-lines", "N", "", &o.skip_bad_lines},
                      {"--special-tokens", "", "", &o.special_tokens}, {"--frozen-by", "X", "", &o.frozen_by},
                      {"--whole", "", "", &o.whole}, {"--quiet", "", "", &o.quiet}}, words, &given);
        o.init = take_texts(texts);
        return prepare(o, into, progress);
    });
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::string(argv[1]) == "--answer") return answer({argv + 2, argv + argc});
    Arguments a;
    return tool_main(tool_of(&a), argc, argv, [&](const Words& inputs) {
        a.inputs = inputs;
        return run_command(a);
    });
}
