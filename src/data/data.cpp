// data.cpp -- what --data, --val-data and --tokenizer mean: which files, which vocabulary, which part is validation.
#include "src/data/data.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"

using ull = unsigned long long;

void Dataset::sample(uint64_t i, int* inputs, int* targets, int vocab_size) const {
    CHECK(i < samples, "sample %llu of %llu", ull(i), ull(samples));
    const size_t k = size_t(std::upper_bound(first.begin(), first.end(), i) - first.begin()) - 1;
    std::vector<int> tokens(size_t(T) + 1);
    shards[k].read((i - first[k]) * uint64_t(T), tokens.size(), tokens.data(), vocab_size);
    const bool masked = shards[k].masked;
    std::transform(tokens.begin(), tokens.end() - 1, inputs, [=](int t) { return masked ? t & INT32_MAX : t; });
    std::transform(tokens.begin() + 1, tokens.end(), targets, [](int t) { return std::max(t, -1); });
}

uint64_t Dataset::trained(uint64_t i, int vocab_size) const {
    if (!shards[0].masked) return uint64_t(T);
    std::vector<int> inputs(static_cast<size_t>(T)), targets(inputs.size());
    sample(i, inputs.data(), targets.data(), vocab_size);
    return uint64_t(std::ranges::count_if(targets, [](int t) { return t >= 0; }));
}

static void check_unchanged(const Content& content) {
    std::string changed;
    uint64_t bytes = 0;
    for (const auto& file : content.files) {
        if (file->touched()) changed = file->path;
        bytes += file->size;
    }
    if (changed.empty()) return;
    if (content_hash(content.files) != content.hash)
        die(kExitBadContent, "data: %s: it has changed while the run reads it; restore it and resume from the last "
            "checkpoint, or begin a new run", changed.c_str());
    if (bytes > kHashed)
        warn("data: %s: written to while the run reads it; the blocks that are compared are the same", changed.c_str());
}

void check_unchanged(const Data& data) {
    for (const Dataset* part : {&data.train, &data.val})
        if (part->content && part->content->hash) check_unchanged(*part->content);
}

namespace {
// All tokens of a source.
struct Tokens {
    std::vector<Shard> shards;
    std::shared_ptr<Content> files = {};    // those of shards that are not in memory
    uint64_t count = 0, cut = 0;    // tokens, and where validation begins
    std::string content;            // identifies them
    std::string note;               // statistics of conversations, on the rank that read them
};

// Returns tokens [from, to) as a dataset.
Dataset make_dataset(const Tokens& tokens, uint64_t from, uint64_t to, int T) {
    Dataset d = {.T = T, .content = tokens.files};
    std::string identity = tokens.content;
    for (Shard s : tokens.shards) {
        const uint64_t begin = std::min(from, s.tokens), end = std::min(to, s.tokens);
        from -= begin;
        to -= end;
        if (begin == end) continue;
        s.begin = begin;
        s.tokens = end - begin;
        d.first.push_back(d.samples);
        d.samples += (s.tokens - 1) / uint64_t(T);
        d.tokens += s.tokens;
        identity += format(" %llu+%llu", ull(s.begin), ull(s.tokens));
        d.shards.push_back(std::move(s));
    }
    d.first.push_back(d.samples);
    d.hash = format("%016llx", ull(hash_bytes(identity.data(), identity.size(), 0)));
    return d;
}

// The text of a source. Its parts are documents, or one text, or the two parts of one if its end is for validation.
struct Text {
    std::string all;
    std::vector<size_t> ends;               // of the parts, in `all`; only the first of a cut text may be empty
    size_t documents = 0, train = 0;        // how many parts begin a document; how many are for training
    std::vector<Conversation> conversations = {};   // part i is the text of conversation i
    void add(std::string_view part) {
        if (!part.empty()) ends.push_back(all.append(part).size());
    }
};

void read_jsonl(const std::string& path, bool masked, Text* text) {
    const std::string what = "data: " + path;
    FileReader file(path);
    if (text->all.empty()) text->all.reserve(file.file->size);
    std::string_view line;
    for (size_t number = 1; file.line(&line); number++) try {
        if (number == 1) line = without_mark(line);
        if (is_blank(line)) continue;
        const Json json = parse_json(line, what.c_str());
        if (masked) text->conversations.push_back(read_conversation(json, what.c_str()));
        else if (json.kind() == Json::object && !json.find("text"))
            die_content(what, describe_fields(json), "text, messages, prompt or instruction");
        text->add(masked ? text_of(text->conversations.back()) : json.get_string("text", what.c_str()));
        if (masked && text->conversations.back().plain != text->conversations[0].plain)
            die_content(what, describe_fields(json), "what the first line has");
    } catch (Error& e) {
        e.message.insert(what.size(), format(": line %zu", number));
        throw;
    }
}

void read_whole(const std::string& path, Text* text) {
    FileReader file(path);
    if (text->all.empty()) text->all.reserve(file.file->size);
    std::string_view piece = file.look(3);
    const size_t begin = text->all.size(), mark = piece.size() - without_mark(piece).size();
    for (file.take(mark); !(piece = file.look(1)).empty(); file.take(piece.size())) text->all += piece;
    if (text->all.size() > begin) text->ends.push_back(text->all.size());
}

// Reads the text of a source. split: keeps a part for validation. Reports progress per file: other ranks may wait.
Text read_text(const Source& source, bool split, Comm* comm) {
    Text text;
    for (const std::string& path : source.files) {
        if (source.format == Format::text) read_whole(path, &text);
        else read_jsonl(path, source.is_masked(), &text);
        if (comm) comm_progress(comm, -1, "reading text");
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

// Appends the tokens of a text to *out, `width` bytes each. Returns how many tokens are for training.
uint64_t encode(const Text& text, const Tokenizer& tokenizer, size_t width, std::vector<char>* out, Comm* comm) {
    const std::string_view all = text.all;
    out->reserve(all.size() / (tokenizer.merges.empty() ? 1 : 4) * width);  // a guess: a token of BPE is 4 bytes
    std::vector<int> tokens;
    const auto store = [&] {
        const size_t at = out->size();
        out->resize(at + tokens.size() * width);
        if (width == 2) std::ranges::copy(tokens, reinterpret_cast<uint16_t*>(out->data() + at));
        else std::ranges::copy(tokens, reinterpret_cast<uint32_t*>(out->data() + at));
        tokens.clear();
        if (comm) comm_progress(comm, -1, "reading text");
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

// Appends a window of T tokens for each conversation. The last target of a window is the first token of the next one,
// which is untrained, so one more token follows the last window for training, and another the last for validation.
// Returns where validation begins.
uint64_t encode_conversations(const Text& text, const Tokenizer& tokenizer, const ChatTemplate& chat, int T,
                              std::vector<char>* out, std::string* note, Comm* comm) {
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
        if (comm) comm_progress(comm, -1, "reading text");
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

// Opens a source. The first rank of each host encodes a text; the others of the host share its memory.
Tokens open_source(const Source& source, const Tokenizer& tokenizer, const ChatTemplate& chat, int T, bool split,
                   Comm* comm) {
    Tokens all;
    const bool leads = !comm || comm->local_rank == 0;
    const auto of_leader = [&](const auto& x) {
        return comm ? comm_gather(comm, x)[size_t(comm->host * comm->local_size)] : x;
    };
    if (!source.is_text()) {
        all.files = std::make_shared<Content>();
        for (const std::string& path : source.files) {
            all.shards.push_back(open_token_file(path, source.format));
            all.files->files.push_back(all.shards.back().file);
            all.count += all.shards.back().tokens;
        }
        std::vector<uint32_t> crcs;
        if (leads) all.files->hash = content_hash(all.files->files, &crcs);
        if (leads) check_manifest(source, crcs);
        all.content = format("%016llx", ull(of_leader(all.files->hash)));
        all.cut = split ? nine_tenths_of(all.count) : all.count;
        return all;
    }
    if (tokenizer.kind == Tokenizer::none)
        die(kExitUsage, "data: %s: got text, but without a tokenizer there are only tokens; give --tokenizer",
            source.path.c_str());
    const uint64_t hash = of_leader(leads ? content_hash(source.files) : 0);
    all.content = format("%016llx", ull(hash));
    uint64_t bytes = 0;
    for (const std::string& path : source.files) bytes += InputFile(path).size;
    if (bytes > 100000000 && !source.is_masked() && (!comm || comm->rank == 0))
        warn("data: %s: %s bytes of text are read again at every start; build/prep makes tokens of them once",
             source.path.c_str(), with_commas(bytes).c_str());
    all.content += tokenizer.own_json(true);
    auto tokens = std::make_shared<std::vector<char>>();
    const bool masked = source.is_masked();
    Shard s = {.width = tokenizer.vocab_size <= 65536 && !masked ? 2u : 4u, .name = source.path, .masked = masked};
    if (chat.form) all.content += chat.form->name + chat.system;
    if (leads) {
        const Text text = read_text(source, split, comm);
        all.cut = s.masked ? encode_conversations(text, tokenizer, chat, T, tokens.get(), &all.note, comm)
                           : encode(text, tokenizer, s.width, tokens.get(), comm);
        all.count = tokens->size() / s.width;
        if (content_hash(source.files) != hash)
            die(kExitBadContent, "data: %s: it has changed while it was read; start again", source.path.c_str());
    }
    s.memory = tokens->data();
    s.owner = tokens;
    if (comm && comm->local_size > 1) {
        struct Counts { uint64_t all, cut; };
        const Counts counts = of_leader(Counts{all.count, all.cut});
        all.count = counts.all;
        all.cut = counts.cut;
        char* const memory = comm_shared<char>(comm, all.count * s.width + 1, "the tokens of the text");
        std::copy(tokens->begin(), tokens->end(), memory);
        comm_local_barrier(comm, 0);
        s.memory = memory;
        s.owner = nullptr;
    }
    s.tokens = all.count;
    all.shards.push_back(s);
    return all;
}

// Returns the tokenizer. `char` learns from all text, also that for validation, and bpe:N from the training text alone.
Tokenizer choose_tokenizer(const DataOptions& o, const Source& source, const Source& val, Comm* comm) {
    if (o.tokenizer.empty() && !o.init_tokenizer.empty()) return tokenizer_parse(o.init_tokenizer, o.init_path);
    // build/prep leaves the tokenizer beside its shards.
    const std::string folder = parent_folder(source.files[0]);
    if (const std::string path = path_join(folder, "manifest.json");
        o.tokenizer.empty() && !source.is_text() && file_exists(path)) {
        const Tokenizer tokenizer = tokenizer_load(folder);
        const std::string text = read_file(path);
        const Json size = parse_json(text, path.c_str()).find("vocab_size");
        if (uint64_t n; size.as_u64(&n) && n != uint64_t(tokenizer.vocab_size))
            die_content(path_join(folder, "tokenizer.json"), std::to_string(tokenizer.vocab_size) + " tokens",
                        std::to_string(n) + " as manifest.json says; restore it");
        return tokenizer;
    }
    if (o.tokenizer.empty()) return source.is_text() ? tokenizer_byte() : Tokenizer();
    const bool bpe = o.tokenizer.starts_with("bpe:");
    if (!source.is_text() || (o.tokenizer != "char" && !bpe)) return tokenizer_open(o.tokenizer, nullptr);
    Text text = read_text(source, bpe && val.files.empty(), comm);
    if (bpe && text.train > 0) text.all.resize(text.ends[text.train - 1]);
    if (!bpe && !val.files.empty() && val.is_text()) text.all += read_text(val, false, comm).all;
    const std::string_view view = text.all;
    return tokenizer_open(o.tokenizer, &view);
}

int choose_vocabulary(const DataOptions& o, const Tokenizer& tokenizer, const ChatTemplate& chat) {
    const int own = tokenizer.vocab_size;
    if (tokenizer.kind == Tokenizer::none) return o.init_vocab ? o.init_vocab : o.vocab_size ? o.vocab_size : 50257;
    const bool fits = own == o.init_vocab || (own < o.init_vocab && o.tokenizer.empty() && !o.init_tokenizer.empty());
    if (o.init_vocab && chat.form && o.tokenizer.empty() && own > o.init_vocab) {
        if (!o.frozen) return own;              // it includes the template's tokens
        die(kExitUsage, "--lora: the model's tokenizer has no token %s, and its embedding stays as it is; give "
            "--chat-template with tokens that it has, or train without --lora", chat.form->close);
    }
    if (o.init_vocab && !fits)
        die(kExitUsage, "--tokenizer: got %s of %d tokens, want %d as the model has; give the tokenizer or the data it "
            "was trained with", tokenizer.name.c_str(), own, o.init_vocab);
    if (o.init_vocab) return o.init_vocab;      // a model's tokenizer may leave rows of the embedding unused, as Qwen's
    if (o.vocab_size && own != o.vocab_size)
        die(kExitUsage, "--vocab-size: got %d, want %d as the tokenizer has; leave it out", o.vocab_size, own);
    return own;
}

void require_samples(const Dataset& d, const std::string& path, const char* part) {
    if (d.samples > 0) return;
    if (!d.shards.empty() && d.shards[0].masked)
        die(kExitBadContent, "data: %s: got no %s conversation with an answer within its first %d tokens, want one or "
            "more; give a larger --seq-len", path.c_str(), part, d.T);
    die(kExitBadContent, "data: %s: got %s %s tokens, want at least %llu in one piece; give more text or a smaller "
        "--seq-len", path.c_str(), with_commas(d.tokens).c_str(), part, ull(d.T) + 1);
}

// Checks the first 2^28 tokens, in about a second, so that a bad one does not end a run hours later.
void check_tokens(const Dataset& set, int vocab_size) {
    uint64_t left = uint64_t(1) << 28;
    std::vector<int> block(1 << 16);
    for (const Shard& shard : set.shards)
        for (uint64_t at = 0, n; shard.file && at < shard.tokens && left > 0; at += n, left -= n) {
            n = std::min({uint64_t(block.size()), shard.tokens - at, left});
            shard.read(at, size_t(n), block.data(), vocab_size);
        }
}

}  // namespace

Data open_data(const DataOptions& o, Comm* comm) {
    const auto story_file = [](const char* name) {
        return find_data_file(name, "run ninja, which makes the built-in text, or give --data");
    };
    const bool built_in = o.data.empty();
    Source source = find_source(built_in ? story_file("stories_train.jsonl") : o.data);
    Source val = take_validation(&source);
    if (!o.val_data.empty()) val = find_source(o.val_data);
    else if (built_in) val = find_source(story_file("stories_val.jsonl"));
    const bool split = val.files.empty();

    Data data;
    data.tokenizer = choose_tokenizer(o, source, val, comm);
    // A new model that learns one text never sees the end-of-text token.
    if (source.is_text() && !source.has_documents() && !o.init_eot) data.tokenizer.eot = -1;
    const bool chat = source.format == Format::chat;
    if (!split && (chat ? val.format != source.format : val.format == Format::chat))
        die_content("data: " + val.path, format_name(val.format), format_name(source.format) + (" as " + source.path));
    if (chat) data.chat = choose_chat_template(o.chat_template, o.init_chat, parent_folder(o.init_path));
    if (chat) add_chat_tokens(&data.tokenizer, *data.chat.form);
    data.vocab_size = choose_vocabulary(o, data.tokenizer, data.chat);
    if (data.tokenizer.kind != Tokenizer::none) data.tokenizer.bytes.resize(size_t(data.vocab_size));
    const Tokens tokens = open_source(source, data.tokenizer, data.chat, o.seq_len, split, comm);
    const Tokens other = split ? tokens : open_source(val, data.tokenizer, data.chat, o.seq_len, false, comm);
    data.train = make_dataset(tokens, 0, tokens.cut, o.seq_len);
    data.val = make_dataset(other, split ? tokens.cut : 0, other.count, o.seq_len);
    require_samples(data.train, source.path, "training");
    if (o.evaluates) require_samples(data.val, split ? source.path : val.path, "validation");
    check_tokens(data.val, data.vocab_size);
    check_tokens(data.train, data.vocab_size);

    data.train.description = (built_in ? "built-in stories" : source.path) + ": " + with_commas(data.train.tokens) +
        " training and " + with_commas(data.val.tokens) + " validation tokens";
    if (source.is_masked()) data.train.description = source.path + ": " + tokens.note;
    uint64_t bytes = 0;
    for (const Shard& shard : tokens.shards) bytes += shard.file ? shard.file->size : 0;
    if (bytes > kHashed)
        data.train.description += format("; a resume compares 1 of %llu blocks of 64 KiB",
                                         ull(ceil_div(bytes, kHashed)));
    return data;
}

Dataset open_dataset(const std::string& path, const Tokenizer& tokenizer, int T, Comm* comm,
                     const std::string& chat_template, const std::string& jinja) {
    const Source source = find_source(path);
    ChatTemplate chat;
    if (source.format == Format::chat) chat = choose_chat_template(chat_template, jinja, "the model");
    const Tokens tokens = open_source(source, tokenizer, chat, T, false, comm);
    const Dataset d = make_dataset(tokens, 0, tokens.count, T);
    require_samples(d, path, "usable");
    return d;
}
