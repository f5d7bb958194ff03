// prepare.cpp -- see prepare.h.
#include "src/text/prepare.h"
#include "src/base/cache.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/data/vocabulary.h"
#include "src/text/model_texts.h"
#include "src/text/questions.h"

using ull = unsigned long long;

namespace {

constexpr int kVersion = 1;                 // of what the cache holds; a new number makes all of it anew
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
std::string hash_text(const Source& source) { return format("%016llx", ull(content_hash(source.files, true))); }

[[noreturn]] void die_changed(const Source& source) {
    die(kExitBadContent, "data: %s: it has changed while it was read; start again", source.path.c_str());
}

// ---- the tokenizer

// Learns `char` or bpe:N. `char` learns from all text, also that for validation; bpe:N from the training text alone.
Tokenizer learn(const std::string& option, const Source& train, const Source& val, const Progress& progress) {
    const bool bpe = option.starts_with("bpe:");
    Text text = read_text(train, bpe && val.files.empty(), progress);
    if (bpe && text.train > 0) text.all.resize(text.ends[text.train - 1]);
    if (!bpe && !val.files.empty() && val.is_text()) text.all += read_text(val, false, progress).all;
    const std::string_view view = text.all;
    return tokenizer_open(option, &view);
}

// Learns a tokenizer, or takes it from the cache if it was learnt from the same text before.
Tokenizer learnt(const std::string& option, const Source& train, const Source& val, const std::string& folder,
                 const Progress& progress) {
    const auto describe = [](const Source& s) { return " " + hash_text(s) + " " + format_name(s.format); };
    const std::string of_train = describe(train), of_val = val.files.empty() ? " cut" : describe(val);
    const std::string path = cached(folder, cache_name("tokenizer", option + of_train + of_val), [&](auto& into) {
        write_file_atomic(path_join(into, "tokenizer.json"), learn(option, train, val, progress).to_json());
        if (describe(train) != of_train) die_changed(train);
        if (!val.files.empty() && describe(val) != of_val) die_changed(val);
    }, [&] { progress(0); });
    Tokenizer tokenizer = tokenizer_load(path);
    tokenizer.name = option;
    return tokenizer;
}

// Returns the tokenizer that build/prep has left beside its shards.
Tokenizer tokenizer_beside(const std::string& folder, const std::string& manifest) {
    const Tokenizer tokenizer = tokenizer_load(folder);
    const std::string text = read_file(manifest);
    const Json size = parse_json(text, manifest.c_str()).find("vocab_size");
    if (uint64_t n; size.as_u64(&n) && n != uint64_t(tokenizer.vocab_size))
        die_content(path_join(folder, "tokenizer.json"), std::to_string(tokenizer.vocab_size) + " tokens",
                    std::to_string(n) + " as manifest.json says; restore it");
    return tokenizer;
}

Tokenizer choose_tokenizer(const DataOptions& o, const Source& train, const Source& val, const std::string& folder,
                           const Progress& progress) {
    if (o.tokenizer.empty() && !o.init_tokenizer.empty()) return tokenizer_parse(o.init_tokenizer, o.init_path);
    const std::string beside = parent_folder(train.files[0]), manifest = path_join(beside, "manifest.json");
    if (o.tokenizer.empty() && !train.is_text() && file_exists(manifest)) return tokenizer_beside(beside, manifest);
    if (o.tokenizer.empty()) return train.is_text() && !o.whole ? tokenizer_byte() : Tokenizer();
    const bool learns = o.tokenizer == "char" || o.tokenizer.starts_with("bpe:");
    if (!learns || !train.is_text() || o.whole) return tokenizer_open(o.tokenizer, nullptr);
    return learnt(o.tokenizer, train, val, folder, progress);
}

// Returns how many rows the model's embedding has for a tokenizer. kExitUsage: the model of --init has another number.
int choose_vocabulary(const DataOptions& o, const Tokenizer& tokenizer, const ChatTemplate& chat) {
    const int own = tokenizer.vocab_size;
    const bool fits = own == o.init_vocab || (own < o.init_vocab && o.tokenizer.empty() && !o.init_tokenizer.empty());
    if (o.init_vocab && chat.form && o.tokenizer.empty() && own > o.init_vocab) {
        if (o.frozen_by.empty()) return own;              // it includes the template's tokens
        die(kExitUsage, "%s: the model's tokenizer has no token %s, and its embedding stays as it is; give "
            "--chat-template with tokens that it has, or train without %s", o.frozen_by.c_str(), chat.form->close,
            o.frozen_by.c_str());
    }
    if (o.init_vocab && !fits)
        die(kExitUsage, "--tokenizer: got %s of %d tokens, want %d as the model has; give the tokenizer or the data it "
            "was trained with", tokenizer.name.c_str(), own, o.init_vocab);
    if (o.init_vocab) return o.init_vocab;      // a model's tokenizer may leave rows of the embedding unused, as Qwen's
    if (o.vocab_size && own != o.vocab_size)
        die(kExitUsage, "--vocab-size: got %d, want %d as the tokenizer has; leave it out", o.vocab_size, own);
    return own;
}

// ---- tokens

// Reads and encodes a text. hash: of its bytes when the entry was named. content: identifies its tokens.
void make_tokens(const TextChoice& c, const Source& source, const DataOptions& o, bool split, PreparedTokens about,
                 const std::string& hash, const std::string& content, const std::string& into,
                 const Progress& progress) {
    std::vector<char> tokens;
    {
        const Text text = read_text(source, split, progress);
        about.cut = about.masked
            ? encode_conversations(text, c.tokenizer, c.chat, o.seq_len, &tokens, &about.note, progress)
            : encode_text(text, c.tokenizer, about.width, &tokens, progress);
    }
    about.count = tokens.size() / about.width;
    if (hash_text(source) != hash) die_changed(source);
    const auto part = [&](uint64_t begin, uint64_t n) {
        return data_hash(content + (n ? format(" %llu+%llu", ull(begin), ull(n)) : ""));
    };
    about.train_hash = part(0, about.cut);
    about.val_hash = part(about.cut, about.count - about.cut);
    require_space(into, tokens.size(), "the cache of texts");
    write_prepared(about, tokens, into);
}

// Says that a text which takes long is tokenised only now.
void say_large(const Source& source, const std::string& folder, const DataOptions& o) {
    const uint64_t bytes = bytes_of_files(source);
    if (o.says && bytes > kLargeText)
        std::fprintf(stderr, "data    %s: %s bytes of text become tokens, once, in %s\n", source.path.c_str(),
                     with_commas(bytes).c_str(), folder.c_str());
}

// Returns the name in the cache of a text's tokens, which are made unless they are there.
std::string tokens_of(const TextChoice& c, const Source& source, const DataOptions& o, const std::string& folder,
                      const Progress& progress) {
    if (c.tokenizer.kind == Tokenizer::none)
        die(kExitUsage, "data: %s: got text, but without a tokenizer there are only tokens; give --tokenizer",
            source.path.c_str());
    const bool split = c.sources.val.files.empty() && !o.whole, masked = source.is_masked();
    const std::string hash = hash_text(source);
    std::string content = bytes_of_files(source) > kHashed ? format("%016llx", ull(content_hash(source.files))) : hash;
    content += c.tokenizer.own_json(true);
    if (c.chat.form) content += c.chat.form->name + c.chat.system;
    const PreparedTokens about = {.width = c.tokenizer.vocab_size <= 65536 && !masked ? 2u : 4u, .masked = masked};
    const std::string how = format(" %s %d %d %d", format_name(source.format), split, c.tokenizer.eot,
                                   masked ? o.seq_len : 0);
    const std::string name = cache_name("tokens", hash + " " + content + how);
    cached(folder, name, [&](const std::string& into) {
        say_large(source, folder, o);
        make_tokens(c, source, o, split, about, hash, content, into, progress);
    }, [&] { progress(0); });
    return name;
}

// Returns the name in the cache of a vocabulary, which is written unless it is there.
std::string cached_vocabulary(const Vocabulary& vocabulary, const std::string& folder, const Progress& progress) {
    const std::string name = cache_name("vocabulary", vocabulary_content(vocabulary));
    const auto make = [&](const std::string& into) { write_vocabulary(vocabulary, into); };
    cached(folder, name, make, [&] { progress(0); });
    return name;
}

}  // namespace

TextChoice choose_text(const DataOptions& o, const std::string& folder, const Progress& progress) {
    TextChoice c;
    c.sources = find_sources(o, find_texts);
    const auto& [train, val] = c.sources;
    c.tokenizer = choose_tokenizer(o, train, val, folder, progress);
    // A new model that learns one text never sees the end-of-text token.
    if (train.is_text() && (!train.has_documents() || o.whole) && !o.init_eot) c.tokenizer.eot = -1;
    const bool chats = train.format == Format::chat;
    if (!val.files.empty() && (chats ? val.format != train.format : val.format == Format::chat))
        die_content("data: " + val.path, format_name(val.format),
                    format_name(train.format) + (" as " + train.path));
    const std::string own = chat_template_of(o.init_chat_template, o.init_tokenizer_config, "tokenizer_config.json");
    if (chats) c.chat = choose_chat_template(o.chat_template, own, parent_folder(o.init_path));
    if (chats && !o.whole) add_chat_tokens(&c.tokenizer, *c.chat.form);
    if (c.tokenizer.kind == Tokenizer::none) return c;      // open_data chooses the number of rows
    c.tokenizer.bytes.resize(size_t(choose_vocabulary(o, c.tokenizer, c.chat)));
    return c;
}

std::string prepare(const DataOptions& o, const std::string& given, const Progress& progress) {
    const std::string folder = given.empty() ? cache_folder(o.cache) : given;
    const TextChoice c = choose_text(o, folder, progress);
    const auto& [train, val] = c.sources;
    PrepAnswer answer;
    if (train.is_text()) answer.train = tokens_of(c, train, o, folder, progress);
    if (!val.files.empty() && val.is_text()) answer.val = tokens_of(c, val, o, folder, progress);
    if (c.tokenizer.kind != Tokenizer::none) {
        Vocabulary vocabulary = vocabulary_of(c.tokenizer, c.chat);
        vocabulary.files = tokenizer_files(c.tokenizer, c.chat, o);
        answer.vocabulary = cached_vocabulary(vocabulary, folder, progress);
        answer.start = sample_start(o.prompt, c.chat, c.tokenizer);
    }
    if (!o.task.empty()) answer.task = read_questions(o.task, c.tokenizer, o.seq_len);
    return prep_answer(answer, folder);
}
