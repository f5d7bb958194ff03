// tokenizer_files.cpp -- reads and writes tokenizer.json, reads GPT-2's vocab.bpe, and interprets --tokenizer.
#include <algorithm>
#include <unordered_map>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "tools/text/token_files.h"
#include "tools/text/tokenizer.h"
#include "tools/text/unicode.h"

namespace {
// The files write each byte as a printable character: 33..126, 161..172 and 174..255 as themselves, the other 68 in
// order as U+0100, U+0101, ... (a space is U+0120).
struct ByteAlphabet {
    std::string text_of[256];
    int byte_of[256 + 68];  // by code; -1: not of the alphabet
    ByteAlphabet() {
        std::fill(std::begin(byte_of), std::end(byte_of), -1);
        uint32_t others = 256;
        for (uint32_t b = 0; b < 256; b++) {
            const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            const uint32_t code = shown ? b : others++;
            append_utf8(&text_of[b], code);
            byte_of[code] = int(b);
        }
    }
};
const ByteAlphabet alphabet;

// Returns "" if a character of text stands for no byte.
std::string from_alphabet(std::string_view text) {
    std::string bytes;
    for (Utf8Char c; !text.empty(); text.remove_prefix(c.length)) {
        c = decode_utf8(text);
        if (!c.valid || c.code >= std::size(alphabet.byte_of) || alphabet.byte_of[c.code] < 0) return "";
        bytes += char(alphabet.byte_of[c.code]);
    }
    return bytes;
}

// Returns a text that is equal for equivalent pre_tokenizers: sorted, and without trim_offsets, which changes no token,
// and without a use_regex of true, its default. A Sequence of one is that one.
std::string plain(const Json& json) {
    for (const char* list : {"normalizers", "pretokenizers"})
        if (JsonItems i(json.find(list)); i.next())
            if (const Json first = i.value; !i.next()) return plain(first);
    const bool object = json.kind() == Json::object;
    if (!object && json.kind() != Json::array) return json_quote(json.text());
    std::vector<std::string> items;
    for (JsonItems i(json); i.next();) {
        const std::string key = object ? i.key.text() : "", value = plain(i.value);
        if (key != "trim_offsets" && (key != "use_regex" || value != "\"true\"")) items.push_back(key + ":" + value);
    }
    if (object) std::ranges::sort(items);
    return "[" + join(items, ",") + "]";
}

// Reads a file of a vocabulary. A setting with which the tokens would differ from the tokenizers library's is refused
// by name.
struct VocabularyFile {
    const std::string path, what = "tokenizer: " + path;
    Tokenizer t = {};
    std::unordered_map<std::string, int> ids = {};  // by the token's text in the file

    [[noreturn]] void fail(const std::string& field, const std::string& got, const std::string& want) const {
        die_content(what + ": " + field, got, want);
    }
    static std::string shown(const std::string& text) { return json_quote(text.substr(0, 60)); }

    void read_id(const std::string& text, const Json& id) {
        uint64_t i = INT32_MAX;
        if (!id.as_u64(&i) || i >= INT32_MAX || ids.try_emplace(text, int(i)).first->second != int(i))
            fail(shown(text), json_shown(id), "an id, the same everywhere");
    }
    int token_of_merge(const std::string& text) const {
        const auto found = ids.find(text);
        if (found == ids.end() || t.bytes[size_t(found->second)].empty())  // special tokens have no bytes
            fail(format("merges[%zu]", t.merges.size()), shown(text), "a known token");
        return found->second;
    }

    // Fills the tokens' bytes, empty for special ones and for ids that no token has.
    void read_bytes() {
        std::vector<bool> seen(2 * ids.size()), by_name(seen.size());   // some ids may be left out
        for (const Tokenizer::Added& a : t.added)
            if (size_t(a.id) < seen.size()) by_name[size_t(a.id)] = true;
        for (const auto& [text, id] : ids) {
            const size_t n = size_t(id);
            if (n >= seen.size() || seen[n]) fail(shown(text), std::to_string(id), "ids from 0 on, each once");
            seen[n] = true;
            const Utf8Char first = decode_utf8(text);
            const bool one = first.valid && first.length == text.size();
            const std::string bytes = t.kind == Tokenizer::bpe ? from_alphabet(text) : one ? text : "";
            if (bytes.empty() && !by_name[n])
                fail(format("id %zu", n), shown(text), "characters of GPT-2's alphabet of bytes, or a single one");
            t.bytes.resize(std::max(t.bytes.size(), n + 1));
            t.bytes[n] = bytes;
        }
        for (const Tokenizer::Added& a : t.added)
            if (a.special) t.bytes[size_t(a.id)].clear();
    }

    void read_added(const Json& token) {
        const std::string text = token.get_string("content", what.c_str());
        const auto is = [&](const char* key) { return token.find(key).text() == "true"; };
        for (const char* key : {"single_word", "lstrip", "rstrip"})
            if (is(key)) fail("added_tokens: " + shown(text) + ": " + key, "true", "false");
        if (text.empty() || (t.kind == Tokenizer::character && !is("special")))
            fail("added_tokens", shown(text), "a text; special, beside characters");
        read_id(text, token.find("id"));
        t.added.push_back({ids[text], text, is("special"), is("normalized")});
    }

    // The decoder is not read: decoding joins bytes. tokenizer_ends.cpp reads the post-processor.
    void read_json(const Json& root) {
        const Json model = root.at("model", what.c_str()), type = model.find("type"), vocab = model.find("vocab");
        const Json split = root.find("pre_tokenizer"), merges = model.find("merges"), form = root.find("normalizer");
        const bool bpe = type.text() == "BPE" || (!type && merges);  // files of 2020 do not name it
        const auto want = [&](const std::string& field, const Json& got, const std::string& value, bool ok) {
            if (!ok) fail(field, got ? plain(got).substr(0, 200) : "nothing", value);
        };
        want("model.type", type, "\"BPE\" of bytes, or \"WordLevel\" of characters", bpe || type.text() == "WordLevel");
        for (const char* key : {"byte_fallback", "dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
            const Json got = model.find(key);
            const bool ok = got.kind() == Json::null || got.text() == "false" || got.text() == "";
            want(std::string("model.") + key, got, "null, false or \"\"", ok);
        }
        const auto plain_form = [](const Split& s) { return plain(parse_json(s.pre_tokenizer, "split")); };
        const auto found = std::ranges::find(splits, plain(split), plain_form);
        want("pre_tokenizer", split, "that of GPT-2, Llama 3, Qwen or SmolLM2", !bpe || found != std::end(splits));
        if (bpe) t.split = *found;
        t.split.ignore_merges = model.find("ignore_merges").text() == "true";
        t.split.nfc = plain(form) == "[type:\"NFC\"]";
        want("normalizer", form, "null or NFC", form.kind() == Json::null || (bpe && t.split.nfc));
        t.kind = bpe ? Tokenizer::bpe : Tokenizer::character;
        t.name = bpe ? path : "char";
        for (JsonItems i(vocab); i.next();) read_id(i.key.text(), i.value);
        for (JsonItems i(root.find("added_tokens")); i.next();) read_added(i.value);
        if (ids.empty()) fail("model.vocab", "nothing", "tokens and ids");
        if (bpe && merges.kind() != Json::array) fail("model.merges", json_shown(merges), "an array");
        read_bytes();
        for (JsonItems m(merges); bpe && m.next();) {  // "a b", or ["a", "b"] since tokenizers 0.20
            const std::string text = m.value.text();
            std::string_view rest = text;
            std::string left(next_word(&rest, ' ')), right(rest);
            if (JsonItems pair(m.value); m.value.kind() == Json::array) {
                left = pair.next() ? pair.value.text() : "";
                right = pair.next() ? pair.value.text() : "";
            }
            const int merged = token_of_merge(left + right);
            t.merges.push_back({token_of_merge(left), token_of_merge(right), merged});
        }
    }

    // vocab.bpe: "#version: 0.2", then a line per merge: two tokens with a space between. The ids of the bytes come
    // first, in the order of their characters in the alphabet.
    void read_bpe(std::string_view text) {
        t = {.kind = Tokenizer::bpe, .name = path};
        for (const int b : alphabet.byte_of) {
            if (b < 0) continue;
            ids[alphabet.text_of[b]] = int(t.bytes.size());
            t.bytes.push_back(std::string(1, char(b)));
        }
        if (text.starts_with("#version:")) next_word(&text, '\n');
        while (!text.empty()) {
            std::string_view rest = next_word(&text, '\n');
            const std::string left(next_word(&rest, ' ')), right(rest);
            const int a = token_of_merge(left), b = token_of_merge(right), merged = int(t.bytes.size());
            if (!ids.try_emplace(left + right, merged).second) fail("merges", shown(left + right), "each token once");
            t.bytes.push_back(t.bytes[size_t(a)] + t.bytes[size_t(b)]);
            t.merges.push_back({a, b, merged});
        }
        if (t.merges.empty() || ids.count("<|endoftext|>")) fail("merges", "none or end of text", "a vocab.bpe");
        tokenizer_add_end_of_text(&t);
    }
};
}  // namespace

std::string added_item(const Tokenizer::Added& token) {
    return format(R"({"id":%d,"content":%s,"single_word":false,"lstrip":false,"rstrip":false,"normalized":%s,)"
                  R"("special":%s})", token.id, json_quote(token.text).c_str(), token.normalized ? "true" : "false",
                  token.special ? "true" : "false");
}

std::string with_added(std::string json, const std::string& items) {
    const Json list = parse_json(json, "tokenizer.json").find("added_tokens");
    if (list.kind() != Json::array) return json.insert(json.find('{') + 1, "\"added_tokens\":[" + items + "],");
    const size_t end = size_t(list.from.data() - json.data()) + list.text().size() - 1;
    return json.insert(end, (JsonItems(list).next() ? "," : "") + items);
}

std::string Tokenizer::own_json(bool with_gaps) const {
    CHECK(kind != none, "own_json without a tokenizer");
    std::vector<std::string> texts(bytes.size());  // tokens as the file writes them
    for (size_t id = 0; id < texts.size(); id++)
        for (const char c : bytes[id])
            texts[id] += kind == character ? std::string(1, c) : alphabet.text_of[uint8_t(c)];
    for (const Added& a : added) texts[size_t(a.id)] = a.text;
    std::vector<std::string> entries, vocab, pairs;
    for (const Added& a : added) entries.push_back(added_item(a));
    for (size_t id = 0; id < texts.size(); id++)    // a number without a text is a gap, or pads the model's vocabulary
        if (with_gaps || !texts[id].empty()) vocab.push_back(json_quote(texts[id]) + ":" + std::to_string(id));
    for (const Merge& m : merges) pairs.push_back(json_quote(texts[size_t(m.left)] + " " + texts[size_t(m.right)]));

    const std::string head = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" +
        join(entries, ",") + R"(],"normalizer":)" + (split.nfc ? R"({"type":"NFC"})" : "null") +
        R"(,"pre_tokenizer":)";
    if (kind == character)  // a word-level vocabulary behind a split into characters; a dot would not match a line feed
        return head + R"({"type":"Split","pattern":{"Regex":"[\\s\\S]"},"behavior":"Isolated","invert":false},)" +
            R"("post_processor":null,"decoder":{"type":"Fuse"},"model":{"type":"WordLevel","vocab":{)" +
            join(vocab, ",") + R"(},"unk_token":"<unk>"}})" + "\n";
    return head + std::string(split.pre_tokenizer) +
        R"(,"post_processor":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},)" +
        R"("decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)" +
        R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"",)" +
        R"("end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,"ignore_merges":)" +
        (split.ignore_merges ? "true" : "false") + R"(,"vocab":{)" + join(vocab, ",") + R"(},"merges":[)" +
        join(pairs, ",") + "]}}\n";
}

// Returns a tokenizer.json whose post_processor puts a token before a text.
static std::string with_begin(std::string json, int id, const std::string& name) {
    static constexpr std::string_view kBegins =         // $: the token's name, #: its id
        R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":$,"type_id":0}},)"
        R"({"Sequence":{"id":"A","type_id":0}}],"pair":[{"SpecialToken":{"id":$,"type_id":0}},)"
        R"({"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)"
        R"("special_tokens":{$:{"id":$,"ids":[#],"tokens":[$]}}})";
    std::string post;
    for (const char c : kBegins)
        post += c == '$' ? json_quote(name) : c == '#' ? std::to_string(id) : std::string(1, c);
    const Json old = parse_json(json, "tokenizer.json").find("post_processor");
    if (!old) return json.insert(json.find('{') + 1, "\"post_processor\":" + post + ",");
    return json.replace(size_t(old.from.data() - json.data()), old.text().size(), post);
}

std::string tokenizer_json_of_model(const Tokenizer& t) {
    for (const Tokenizer::Added& a : t.added)
        if (t.own && a.id == t.begin) return with_begin(t.to_json(), a.id, a.text);
    return t.to_json();
}

std::string tokenizer_json_of_gguf(const std::string& split, const std::string& rest, int begin,
                                   const std::string& path) {
    const auto found = std::ranges::find(splits, split, &Split::gguf);
    if (found == std::end(splits))
        die_content(path + ": tokenizer.ggml.pre", json_quote(split), "gpt-2, llama-bpe, qwen2 or smollm");
    const std::string json = R"({"normalizer":)" + std::string(found->nfc ? R"({"type":"NFC"})" : "null") +
        R"(,"pre_tokenizer":)" + std::string(found->pre_tokenizer) +
        R"(,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)" +
        R"("model":{"type":"BPE","ignore_merges":)" + (found->ignore_merges ? "true," : "false,") + rest;
    for (JsonItems i(parse_json(json, path.c_str()).find("added_tokens")); begin >= 0 && i.next();)
        if (i.value.find("id").text() == std::to_string(begin))
            return with_begin(json, begin, i.value.find("content").text());
    if (begin >= 0) die_content(path + ": tokenizer.ggml.bos_token_id", std::to_string(begin), "a control token");
    return json;
}

// A file that this program wrote is known by its text.
static bool is_own(const Tokenizer& t, const Tokenizer::Added& end) {
    if (!t.json.starts_with(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)")) return false;
    const std::string own = t.own_json();
    return t.json == own || (end.id >= 0 && t.json == with_begin(own, end.id, end.text));
}

Tokenizer tokenizer_load(const std::string& path) {
    if (is_directory(path)) {
        const std::string json = path_join(path, "tokenizer.json");
        return tokenizer_load(file_exists(json) ? json : path_join(path, "vocab.bpe"));
    }
    Tokenizer t = tokenizer_parse(read_file(path), path);
    const bool is_model = base_name(path) == "tokenizer.json";
    read_ends(&t, is_model ? read_model_texts(parent_folder(path)) : ModelTexts(), path);
    return t;
}

Tokenizer tokenizer_parse(std::string_view text, const std::string& path) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    VocabularyFile in = {path};
    if (first == text.npos || text[first] != '{') {
        in.read_bpe(text);
        tokenizer_finish(&in.t);
        return in.t;
    }
    const Json root = parse_json(in.t.json = text, in.what.c_str());
    in.read_json(root);
    tokenizer_finish(&in.t);
    const Tokenizer::Added end = end_by_name(in.t);
    if (is_own(in.t, end)) tokenizer_own(&in.t, end.id);
    else read_post_processor(&in.t, root, end.id, path);
    return in.t;
}

Tokenizer tokenizer_open(const std::string& option, const std::string_view* text) {
    const bool is_bpe = option.starts_with("bpe:");
    if ((option == "char" || is_bpe) && !text)
        die(kExitUsage, "--tokenizer %s: it learns from the text of a training run; give its tokenizer.json, or a "
            "fixed one", option.c_str());
    if (option == "byte") return tokenizer_byte();
    if (option == "char") return tokenizer_char(*text);
    if (option == "gpt2") {
        const char* const what_to_do = "run data/get_gpt2_vocab.sh, or give --tokenizer FILE";
        Tokenizer t = tokenizer_load(find_data_file("vocab.bpe", what_to_do));
        t.name = option;
        return t;
    }
    int size = 0;
    std::string_view rest = std::string_view(option).substr(is_bpe ? 4 : 0);
    const bool has_size = is_bpe && parse_whole(next_word(&rest, ':'), &size);
    const std::string_view name = rest.empty() && !option.ends_with(':') ? "gpt2" : rest;
    const auto found = std::ranges::find(splits, name, &Split::name);
    if (has_size && found != std::end(splits)) return tokenizer_train_bpe(*text, size, *found);
    if (is_bpe || !file_exists(option))
        die(is_bpe ? kExitUsage : kExitNoInput, "--tokenizer: got %s, want byte, char, gpt2, bpe:4096, bpe:4096:llama3 "
            "(or :qwen2, :smollm), or a file or folder that is there", option.c_str());
    return tokenizer_load(option);
}
