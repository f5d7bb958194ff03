// data.cpp -- what --data, --val-data and --tokenizer mean: which files, which vocabulary, which part is validation.
//
// Text is read through a mapping, at the start: a file that shrinks in those seconds ends the process with a bus error.
// Everything after that reads tokens from memory or with pread (shards.h), where a file cut short is an Error.
#include "data.h"
#include <algorithm>
#include <cstring>
#include <functional>
#include <sys/mman.h>
#include "common.h"
#include "file.h"
#include "json.h"
#include "shards.h"
#include "stories.h"

using ull = unsigned long long;

// ------------------------------------------------------------------------------------------------------------ datasets

void Dataset::sample(uint64_t i, int* inputs, int* targets, int vocab_size) const {
    CHECK(i < samples, "sample %llu of %llu", ull(i), ull(samples));
    const size_t k = size_t(std::upper_bound(first.begin(), first.end(), i) - first.begin()) - 1;
    std::vector<int> tokens(size_t(T) + 1);
    shards[k]->read((i - first[k]) * uint64_t(T), tokens.size(), tokens.data(), vocab_size);
    std::copy(tokens.begin(), tokens.end() - 1, inputs);
    std::copy(tokens.begin() + 1, tokens.end(), targets);
}

namespace {

using Shards = std::vector<Shard>;

std::string hex_hash(std::string_view text) { return format("%016llx", ull(hash_bytes(text.data(), text.size(), 0))); }

Dataset make_dataset(const Shards& shards, int T, const std::string& content) {
    Dataset d;
    d.T = T;
    std::string identity = content;
    for (const Shard& s : shards) {
        d.shards.push_back(std::make_shared<Shard>(s));
        d.first.push_back(d.samples);
        d.samples += s.tokens ? (s.tokens - 1) / uint64_t(T) : 0;
        d.tokens += s.tokens;
        identity += format(" %llu+%llu", ull(s.begin), ull(s.tokens));
    }
    d.first.push_back(d.samples);
    d.hash = hex_hash(identity);
    return d;
}

// A path's tokens: those to train on, and those the path itself sets apart for validation.
struct Parts { Dataset train, val; };

Parts open_tokens(const Source& source, int T, bool split) {
    Shards all, train, val;
    uint64_t total = 0;
    for (const std::string& path : source.files) {
        all.push_back(open_token_file(path, source.format));
        total += all.back().tokens;
    }
    uint64_t left = split ? nine_tenths_of(total) : total;          // of the training part
    for (const Shard& s : all) {
        const uint64_t n = std::min(left, s.tokens);
        if (n > 0) train.push_back(s.part(0, n));
        if (n < s.tokens) val.push_back(s.part(n, s.tokens - n));
        left -= n;
    }
    const std::string content = content_hash(source.files);
    return {make_dataset(train, T, content), make_dataset(val, T, content)};
}

// ---------------------------------------------------------------------------------------------------------------- text

using Visit = std::function<void(std::string_view document)>;

// Text as a sequence of documents that can be walked again and again; files never lie in memory as a whole.
struct Text {
    std::string name;
    std::vector<std::string> files;             // none: the built-in stories
    std::function<void(const Visit&)> each;     // calls visit for every document that is not empty, in order
    bool stream = false;                        // one text: no end-of-text token in front
};

// Where validation begins: at `byte` of document number `document`; with no validation, behind the last.
struct Cut { uint64_t document = 0; size_t byte = 0; };
struct Measure { uint64_t documents = 0, bytes = 0; Cut cut; };

void read_jsonl(const std::string& path, const Visit& visit) {
    const MappedFile file = map_file(path);
    std::string_view rest = file.text();
    if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);    // a byte order mark
    for (uint64_t number = 1; !rest.empty(); number++) {
        const std::string_view line = next_word(&rest, '\n');
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string what = format("data: %s: line %llu", path.c_str(), ull(number));
        const Json object = parse_json(line, what.c_str());
        const Json text = object.find("text");
        if (text.kind() != Json::string)
            die(kExitBadContent, "%s: got %s, want an object with a string \"text\"", what.c_str(),
                text ? "a \"text\" that is not a string" : object.kind() == Json::object ? "no \"text\"" : "no object");
        if (const std::string document = text.text(); !document.empty()) visit(document);
    }
}

Text text_of(const Source& source) {
    Text text;
    text.name = source.path;
    text.files = source.files;
    text.stream = source.format == Format::text && source.files.size() == 1;
    text.each = [source](const Visit& visit) {
        for (const std::string& path : source.files) {
            if (source.format == Format::jsonl) { read_jsonl(path, visit); continue; }
            const MappedFile file = map_file(path);
            if (file.size) visit(file.text());
        }
    };
    return text;
}

// Stories as documents, for tokenizers other than bytes. Telling them takes a second, so they are told when first asked for and kept.
Text text_of_stories(uint64_t seed, uint64_t bytes) {
    Text text;
    text.name = "built-in stories";
    text.each = [seed, bytes, told = std::make_shared<std::vector<std::string>>()](const Visit& visit) {
        for (uint64_t total = told->empty() ? 0 : bytes; total < bytes; total += told->back().size())
            told->push_back(make_story(seed, told->size()).text);
        for (const std::string& story : *told) visit(story);
    };
    return text;
}

// While one rank of a host reads, the others wait for it: it says every few megabytes that it is alive.
struct Pulse {
    Comm* comm;
    size_t quiet = 0;                           // bytes since the last sign of life
    void read(size_t bytes) {
        quiet += bytes;
        if (!comm || quiet < (4 << 20)) return;
        comm_progress(comm, -1, "reading text");
        quiet = 0;
    }
};

// What the grammar tells today: part of the identity of every dataset of stories.
std::string some_stories() {
    std::string text;
    for (uint64_t i = 0; i < 64; i++) text += make_story(kStoryValidationSeed, i).text;
    return text;
}

Measure measure(const Text& text, bool split, Comm* comm) {
    Measure m;
    Pulse pulse{comm};
    std::vector<uint64_t> starts;               // of the documents, in bytes
    size_t inside = 0;                          // the cut of the first document, should it be the only one
    text.each([&](std::string_view document) {
        starts.push_back(m.bytes);
        m.bytes += document.size();
        if (split && starts.size() == 1) inside = nine_tenths(document);
        pulse.read(document.size());
    });
    m.documents = m.cut.document = starts.size();
    if (!split || starts.empty()) return m;
    if (starts.size() == 1) {                   // a text, or a lone document
        m.cut = {0, inside};
        return m;
    }
    const uint64_t nine = nine_tenths_of(m.bytes);
    m.cut.document = std::min<uint64_t>(uint64_t(std::lower_bound(starts.begin(), starts.end(), nine) - starts.begin()), starts.size() - 1);
    return m;
}

// Calls visit(part, starts, validation) for the documents' parts on either side of the cut; starts: a document begins here.
void each_part(const Text& text, const Cut& cut, const std::function<void(std::string_view, bool, bool)>& visit) {
    uint64_t k = 0;
    text.each([&](std::string_view document) {
        const size_t split = k < cut.document ? document.size() : k == cut.document ? std::min(cut.byte, document.size()) : 0;
        if (split > 0) visit(document.substr(0, split), true, false);
        if (split < document.size()) visit(document.substr(split), split == 0, true);
        k++;
    });
}

// Bytes as they lie are the tokens of the byte tokenizer, wherever its file came from.
bool is_byte(const Tokenizer& tokenizer) { return tokenizer.eot == 256 && tokenizer.bytes == tokenizer_byte().bytes; }

// What one encoder, the first rank of a host, tells the host's other ranks.
struct Encoded {
    uint64_t tokens[2] = {}, bytes[2] = {};     // training, validation
};

// Memory for the encoder: room for the most tokens a text can have. Pages that are never written cost nothing.
std::shared_ptr<char> room_for(size_t bytes) {
    void* const memory = ::mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        die(kExitOther, "data: no memory for %s bytes of tokens; give token files instead of text", with_commas(bytes).c_str());
    return {static_cast<char*>(memory), [bytes](char* at) { ::munmap(at, std::max<size_t>(bytes, 1)); }};
}

// Every token stands for at least one byte of text or is a document's end-of-text token, so `room` = (bytes + documents) * width holds
// them all.
Encoded encode(const Text& text, const Measure& m, const Tokenizer& tokenizer, size_t width, char* out, size_t room, Comm* comm) {
    constexpr size_t kChunk = 2 << 20;          // bytes of text
    Encoded e;
    Pulse pulse{comm};
    size_t at = 0;
    std::vector<int> tokens;
    each_part(text, m.cut, [&](std::string_view part, bool starts, bool validation) {
        if (starts && !text.stream && tokenizer.eot >= 0) tokens.push_back(tokenizer.eot);
        e.bytes[validation] += part.size();
        while (!part.empty()) {
            const size_t n = safe_chunk(part, kChunk);
            tokenizer.encode(part.substr(0, n), &tokens);
            part.remove_prefix(n);
            if ((at + tokens.size()) * width > room) die(kExitBadContent, "data: the text grew while it was read; start again");
            for (const int token : tokens) std::memcpy(out + at++ * width, &token, width);    // little-endian: the low bytes
            e.tokens[validation] += tokens.size();
            tokens.clear();
            pulse.read(n);
        }
    });
    return e;
}

// A shard cut at token `cut`, and the bytes of text on either side.
Parts cut_shard(const Shard& s, uint64_t cut, int T, const std::string& content, uint64_t train_bytes, uint64_t val_bytes) {
    Parts parts = {make_dataset({s.part(0, cut)}, T, content), make_dataset({s.part(cut, s.tokens - cut)}, T, content)};
    parts.train.bytes = train_bytes;
    parts.val.bytes = val_bytes;
    return parts;
}

// The text of one file as it lies: a byte is a token.
Parts bytes_in_place(const std::string& path, int T, bool split) {
    Shard s;
    s.kind = Shard::u8;
    s.file = std::make_shared<InputFile>(path);
    s.name = path;
    s.tokens = s.file->size;
    const MappedFile file = map_file(path);
    const uint64_t cut = split ? std::min<uint64_t>(nine_tenths(file.text()), s.tokens) : s.tokens;
    return cut_shard(s, cut, T, content_hash({path}), cut, s.tokens - cut);
}

Parts open_text(const Text& text, const Tokenizer& tokenizer, int T, bool split, Comm* comm) {
    if (text.stream && is_byte(tokenizer)) return bytes_in_place(text.files[0], T, split);
    const size_t width = tokenizer.vocab_size <= 65536 ? 2 : 4;
    const bool first = !comm || comm->local_rank == 0, shared = comm && comm->local_size > 1;
    std::shared_ptr<char> pages;
    Encoded e;
    if (first) {
        const Measure m = measure(text, split, comm);
        const size_t room = (m.bytes + m.documents) * width;
        pages = room_for(room);
        e = encode(text, m, tokenizer, width, pages.get(), room, comm);
    }
    if (comm && comm->size > 1) {
        std::vector<Encoded> all(size_t(comm->size));
        comm_allgather(comm, all.data(), &e, sizeof e);
        e = all[size_t(comm->host * comm->local_size)];
        if (std::memcmp(&e, &all[0], sizeof e) != 0)
            die(kExitBadContent, "data: %s: got another text on host %s than on %s, want the same files on all hosts", text.name.c_str(),
                comm->peers[size_t(comm->rank)].host.c_str(), comm->peers[0].host.c_str());
    }
    Shard s;
    s.kind = width == 2 ? Shard::u16 : Shard::u32;
    s.name = text.name;
    s.tokens = e.tokens[0] + e.tokens[1];
    if (shared && s.tokens > 0) {
        void* memory = comm_shared(comm, s.tokens * width, "the tokens of the text");
        if (first) std::memcpy(memory, pages.get(), s.tokens * width);
        comm_local_barrier(comm, 0);
        s.memory = static_cast<const char*>(memory);
    } else if (!shared) {
        s.memory = pages.get();
        s.owner = pages;
    }
    std::string identity = text.files.empty() ? some_stories() : content_hash(text.files);  // tokens follow from text and vocabulary
    for (const std::string& token : tokenizer.bytes) identity += format(" %zu ", token.size()) + token;
    for (const Tokenizer::Merge& m : tokenizer.merges) identity += format(" %d %d", m.left, m.right);
    return cut_shard(s, e.tokens[0], T, hex_hash(identity), e.bytes[0], e.bytes[1]);
}

// ------------------------------------------------------------------------------------------------- the built-in stories

constexpr uint64_t kStories = 1ull << 32, kValidationStories = 512;
constexpr uint64_t kStoryBytes = 16 << 20, kStoryValidationBytes = 1 << 20;     // as documents, for other tokenizers

// Story k of the seed in slot k; one more token, so that the last target of the last slot exists.
Dataset story_dataset(uint64_t seed, uint64_t count, int eot, int T) {
    Shard s;
    s.kind = Shard::stories;
    s.name = "built-in stories";
    s.seed = seed;
    s.eot = eot;
    s.tokens = count * kStorySlot + 1;
    Dataset d = make_dataset({s}, T, format("seed %llu ", ull(seed)) + some_stories());
    d.stories = true;
    return d;
}

// Entropy per byte of the stories that stand in a validation part: of the first `count`, or of the first `bytes` bytes.
void set_floor(Dataset* d, uint64_t count, uint64_t bytes) {
    double bits = 0;
    d->bytes = 0;
    for (uint64_t i = 0; i < count && d->bytes < bytes; i++) {
        const Story story = make_story(kStoryValidationSeed, i);
        bits += story.bits;
        d->bytes += story.text.size();
    }
    d->floor_bits_per_byte = bits / double(d->bytes);
}

// texts: as for choose_tokenizer.
Parts open_stories(const std::vector<Text>& texts, const Tokenizer& tokenizer, int T, Comm* comm) {
    Parts parts;
    if (is_byte(tokenizer)) {
        parts.train = story_dataset(kStoryTrainSeed, kStories, tokenizer.eot, T);
        parts.val = story_dataset(kStoryValidationSeed, kValidationStories, tokenizer.eot, T);
        set_floor(&parts.val, kValidationStories, ~0ull);
    } else {
        parts.train = open_text(texts[0], tokenizer, T, false, comm).train;
        parts.val = open_text(texts[1], tokenizer, T, false, comm).train;
        set_floor(&parts.val, ~0ull, kStoryValidationBytes);
    }
    return parts;
}

// ---------------------------------------------------------------------------------------------------------- vocabulary

// What char and bpe:N learn from. char must know every symbol, of validation too; bpe sees training text alone, and no more than it
// looks at.
std::string text_to_learn(const std::vector<Text>& texts, bool split, bool all) {
    constexpr size_t kMost = 16 << 20;
    std::string learned;
    for (size_t k = 0; k < (all ? texts.size() : 1); k++) {
        const Measure m = measure(texts[k], split && !all, nullptr);
        each_part(texts[k], m.cut, [&](std::string_view part, bool, bool validation) {
            if (all) learned += part;
            else if (!validation && learned.size() < kMost) learned += part.substr(0, safe_chunk(part, kMost - learned.size()));
        });
    }
    return learned;
}

bool learns(const Options& o) { return o.tokenizer == "char" || o.tokenizer.starts_with("bpe:"); }

// texts: training's, then validation's; none when --data are tokens.
Tokenizer choose_tokenizer(const Options& o, const std::string& init_tokenizer, const std::vector<Text>& texts, bool split) {
    // On a resume nothing is given, so an option that is not the default counts as well. eval means the model's own unless one is given.
    const bool chosen = o.is_given("tokenizer") || (o.command == "train" && o.tokenizer != "byte");
    if (!chosen && !init_tokenizer.empty()) return tokenizer_load(init_tokenizer);
    if (texts.empty()) return chosen || o.tokenizer != "byte" ? tokenizer_open(o.tokenizer, nullptr) : Tokenizer();
    const std::string learned = learns(o) ? text_to_learn(texts, split, o.tokenizer == "char") : "";
    const std::string_view view = learned;
    return tokenizer_open(o.tokenizer, &view);
}

int choose_vocabulary(const Options& o, const Tokenizer& tokenizer, int init_vocab) {
    const int own = tokenizer.vocab_size;
    if (tokenizer.kind == Tokenizer::none) return init_vocab ? init_vocab : o.vocab_size ? o.vocab_size : 50257;
    if (init_vocab && own != init_vocab)
        die(kExitUsage, "--tokenizer: got %s of %d tokens, want %d as the model has; %s", tokenizer.name.c_str(), own, init_vocab,
            learns(o) ? "it learns them from the data: give those the model was trained with, or with --init leave --tokenizer out"
                      : "give the --tokenizer it was trained with");
    if (o.vocab_size && own != o.vocab_size)
        die(kExitUsage, "--vocab-size: got %d, want %d as the tokenizer %s has; leave --vocab-size out", o.vocab_size, own,
            tokenizer.name.c_str());
    return own;
}

void require_samples(const Dataset& d, const std::string& path, const char* part) {
    if (d.samples == 0)
        die(kExitBadContent, "data: %s: got %s %s tokens, want at least %d in one %s (--seq-len and 1); give more text or a smaller "
            "--seq-len", path.c_str(), with_commas(d.tokens).c_str(), part, d.T + 1, d.shards.size() > 1 ? "file" : "piece");
}

std::string describe(const Source& s) {
    const std::string many = s.files.size() > 1 ? format(", %s files", with_commas(s.files.size()).c_str()) : "";
    const std::string but = s.folders ? format(" (%zu folder%s not looked into)", s.folders, s.folders > 1 ? "s" : "") : "";
    return s.path + many + but + ", " + with_commas(s.bytes) + " bytes";
}

// All of a path as one dataset.
Dataset open_whole(const Source& source, const Tokenizer& tokenizer, int T, Comm* comm) {
    if (source.is_text() && tokenizer.kind == Tokenizer::none)
        die(kExitUsage, "data: %s: got text, but without a tokenizer there are only tokens; give --tokenizer", source.path.c_str());
    Dataset d = (source.is_text() ? open_text(text_of(source), tokenizer, T, false, comm) : open_tokens(source, T, false)).train;
    d.description = describe(source) + ": " + with_commas(d.tokens) + " tokens";
    return d;
}

}  // namespace

// Tokens of files are looked at before any work, so that a bad one does not end a run hours later: all of them up to 2^28, about
// a second; of larger sets the first 2^28. What lies beyond is checked when it is read.
static void check_tokens(const Dataset& set, int vocab_size) {
    constexpr uint64_t kMost = uint64_t(1) << 28;
    std::vector<int> block(1 << 16);
    uint64_t left = kMost;
    for (const std::shared_ptr<Shard>& shard : set.shards) {
        if (!shard->file || shard->kind == Shard::u8) continue;
        for (uint64_t at = 0; at < shard->tokens && left > 0;) {
            const uint64_t n = std::min({uint64_t(block.size()), shard->tokens - at, left});
            shard->read(at, size_t(n), block.data(), vocab_size);
            at += n;
            left -= n;
        }
    }
}

// A path that comes from a run is as it was typed where that run was started.
static Source source_of(const Options& o, const char* name, const std::string& path) {
    try { return find_source(path); }
    catch (Error& e) {
        if (e.code == kExitNoInput && std::count(o.saved.begin(), o.saved.end(), name))
            e.message += format("; the path is the run's own, as seen from where it was started: start there, or give --%s", name);
        throw;
    }
}

Data open_data(const Options& o, Comm* comm, const std::string& init_tokenizer, int init_vocab) {
    const bool built_in = o.data.empty();
    Source source, val_source;
    if (!built_in) {
        source = source_of(o, "data", o.data);
        val_source = take_validation(&source);
    }
    if (!o.val_data.empty()) val_source = source_of(o, "val-data", o.val_data);
    const bool split = val_source.files.empty();

    std::vector<Text> texts;
    if (built_in) texts = {text_of_stories(kStoryTrainSeed, kStoryBytes), text_of_stories(kStoryValidationSeed, kStoryValidationBytes)};
    else if (source.is_text()) texts = {text_of(source)};
    if (!texts.empty() && !split && val_source.is_text()) texts.push_back(text_of(val_source));
    Data data;
    data.tokenizer = choose_tokenizer(o, init_tokenizer, texts, split && !built_in);
    data.vocab_size = choose_vocabulary(o, data.tokenizer, init_vocab);

    const int T = o.seq_len;
    Parts parts = built_in ? open_stories(texts, data.tokenizer, T, comm) :
                  source.is_text() ? open_text(texts[0], data.tokenizer, T, split, comm) : open_tokens(source, T, split);
    data.train = std::move(parts.train);
    data.val = split ? std::move(parts.val) : open_whole(val_source, data.tokenizer, T, comm);
    const std::string name = built_in ? "built-in stories" : o.data;
    require_samples(data.train, name, "training");
    const bool evaluates = o.command != "train" || o.eval_every > 0;
    if (evaluates) require_samples(data.val, split ? name : val_source.path, "validation");

    check_tokens(data.val, data.vocab_size);
    check_tokens(data.train, data.vocab_size);

    const bool endless = built_in && data.train.stories;
    data.train.description = (built_in ? name : describe(source)) + ": " +
        (endless ? "endless training" : with_commas(data.train.tokens) + " training") + " and " +
        with_commas(data.val.tokens) + " validation tokens" + (split ? "" : " of " + describe(val_source));
    return data;
}

Dataset open_dataset(const std::string& path, const Tokenizer& tokenizer, int T, Comm* comm) {
    Dataset d = open_whole(find_source(path), tokenizer, T, comm);
    require_samples(d, path, "usable");
    return d;
}
