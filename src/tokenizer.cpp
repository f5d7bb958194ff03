// tokenizer.cpp -- GPT-2's split, merging by rank, and the files that hold vocabularies. Learning merges: bpe_train.cpp.
//
// Byte-level BPE (Radford et al. 2019, after Sennrich et al. 2016, arXiv 1508.07909): text is split into pieces (words with
// their space, numbers, punctuation, white space); the bytes of each piece are merged pairwise, lowest rank first.
#include "tokenizer.h"
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include "bpe.h"
#include "common.h"
#include "file.h"
#include "json.h"
#include "unicode.h"

static const char kEndOfText[] = "<|endoftext|>";

// ---------------------------------------------------------------------------------------------------- splitting text

// Class and length of the character at `at`; ASCII, nearly all of most texts, does not go through decode_utf8.
static CharClass class_at(std::string_view text, size_t at, size_t* length) {
    *length = 1;
    if (uint8_t(text[at]) < 0x80) return ascii_class[uint8_t(text[at])];
    const Utf8Char c = decode_utf8(text.substr(at));
    *length = c.length;
    return c.valid ? char_class(c.code) : kOther;
}

size_t gpt2_next_piece(std::string_view text) {
    if (text[0] == '\'')                                        // lower case only: DON'T is DON ' T
        for (const std::string_view tail : {"s", "t", "m", "d", "re", "ve", "ll"})
            if (text.substr(1, tail.size()) == tail) return 1 + tail.size();
    size_t length;
    // One U+0020 joins what follows it, unless that is white space. No other white space does.
    const size_t begin = text[0] == ' ' && text.size() > 1 && class_at(text, 1, &length) != kSpace ? 1 : 0;
    const CharClass kind = class_at(text, begin, &length);
    size_t last = begin, end = begin + length;                  // last: where the run's last character starts
    while (end < text.size() && class_at(text, end, &length) == kind) {
        last = end;
        end += length;
    }
    // White space before something else leaves its last character behind: "  two" is " ", " two".
    const bool leave_one = kind == kSpace && last > begin && end < text.size();
    return leave_one ? last : end;
}

std::string Utf8Stream::push(std::string_view bytes) {
    pending += bytes;
    std::string out;
    std::string_view rest = pending;
    while (!rest.empty()) {
        const Utf8Char c = decode_utf8(rest);
        if (c.cut) break;
        if (c.valid) out += rest.substr(0, c.length);
        else append_utf8(&out, 0xFFFD);
        rest.remove_prefix(c.length);
    }
    pending.erase(0, pending.size() - rest.size());
    return out;
}

std::string Utf8Stream::finish() {
    const bool some = !pending.empty();                         // the beginning of one character: one U+FFFD
    pending.clear();
    return some ? "\xEF\xBF\xBD" : "";
}

// ---------------------------------------------------------------------------------------------------- merging

void Tokenizer::Tables::add_merge(const Merge& merge) {
    ranks[pair_key(merge.left, merge.right)] = int(merges.size());
    merges.push_back(merge);
}

void Tokenizer::Tables::consider(int at) {
    const Symbol& left = symbols[size_t(at)];
    if (left.next < 0) return;
    const auto found = ranks.find(pair_key(left.token, symbols[size_t(left.next)].token));
    if (found == ranks.end()) return;
    heap.push_back(uint64_t(found->second) << 32 | uint32_t(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

// The lowest rank first, of equals the leftmost: O(n log n) for n bytes, so a megabyte without a space is no trap. Entries
// of the heap whose pair has changed since are passed over.
void Tokenizer::Tables::merge_piece(std::string_view piece, std::vector<int>* tokens) {
    if (piece.size() > INT32_MAX)
        die(kExitBadContent, "tokenizer: text: got %zu bytes without a break, want less than 2^31; use --tokenizer byte", piece.size());
    const int n = int(piece.size());
    symbols.resize(piece.size());
    heap.clear();
    for (int i = 0; i < n; i++) symbols[size_t(i)] = {of_byte[uint8_t(piece[size_t(i)])], i - 1, i + 1 < n ? i + 1 : -1};
    for (int i = 0; i < n; i++) consider(i);
    while (!heap.empty()) {
        const int at = int(uint32_t(heap[0]));
        const Merge& merge = merges[heap[0] >> 32];
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        heap.pop_back();
        Symbol& left = symbols[size_t(at)];
        if (left.token != merge.left || left.next < 0 || symbols[size_t(left.next)].token != merge.right) continue;
        Symbol& right = symbols[size_t(left.next)];
        left.token = merge.merged;
        left.next = right.next;
        right.token = -1;
        if (left.next >= 0) symbols[size_t(left.next)].previous = at;
        if (left.previous >= 0) consider(left.previous);
        consider(at);
    }
    for (int i = 0; i >= 0; i = symbols[size_t(i)].next) tokens->push_back(symbols[size_t(i)].token);
}

void Tokenizer::Tables::encode_piece(std::string_view piece, std::vector<int>* tokens) {
    if (piece.size() > CachedPiece::kMaxBytes) return merge_piece(piece, tokens);
    uint64_t text[2] = {};
    std::memcpy(text, piece.data(), piece.size());
    text[1] |= uint64_t(piece.size()) << 56;
    if (cache.empty()) cache.resize(CachedPiece::kPlaces);
    CachedPiece& place = cache[mix(text[0] ^ mix(text[1])) % CachedPiece::kPlaces];
    if (place.text[0] == text[0] && place.text[1] == text[1]) {
        tokens->insert(tokens->end(), place.tokens, place.tokens + place.n);
        return;
    }
    const size_t before = tokens->size();
    merge_piece(piece, tokens);
    const size_t n = tokens->size() - before;
    if (n > CachedPiece::kMaxTokens) return;
    std::copy_n(text, 2, place.text);
    std::copy_n(tokens->data() + before, n, place.tokens);
    place.n = int(n);
}

// ---------------------------------------------------------------------------------------------------- encode and decode

// Calls visit(code, offset, length) for each character.
template <class Visit>
static void each_character(std::string_view text, Visit visit) {
    for (size_t at = 0; at < text.size();) {
        const Utf8Char c = decode_utf8(text.substr(at));
        if (!c.valid)
            die(kExitBadContent, "tokenizer char: byte %zu of the text: got 0x%02x, want UTF-8; use --tokenizer byte", at,
                uint8_t(text[at]));
        visit(c.code, at, c.length);
        at += c.length;
    }
}

static void encode_characters(std::string_view text, const std::vector<int>& of_code, std::vector<int>* tokens) {
    each_character(text, [&](uint32_t code, size_t at, uint32_t length) {
        const int token = code < of_code.size() ? of_code[code] : -1;
        if (token < 0)
            die(kExitBadContent, "tokenizer char: byte %zu of the text: got '%s' (U+%04X), want a character of the text it was made from; "
                "use --tokenizer byte or bpe:N", at, std::string(text.substr(at, length)).c_str(), code);
        tokens->push_back(token);
    });
}

void Tokenizer::encode(std::string_view text, std::vector<int>* tokens) const {
    CHECK(kind != none, "encode without a tokenizer");
    if (kind == character) return encode_characters(text, tables->of_code, tokens);
    if (merges.empty()) {                                       // without merges the split changes nothing
        for (const char c : text) tokens->push_back(tables->of_byte[uint8_t(c)]);
        return;
    }
    while (!text.empty()) {
        const size_t n = gpt2_next_piece(text);
        tables->encode_piece(text.substr(0, n), tokens);
        text.remove_prefix(n);
    }
}

std::string Tokenizer::decode(const int* tokens, size_t n) const {
    std::string out;
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || size_t(tokens[i]) >= bytes.size())
            die(kExitBadContent, "tokenizer %s: token number %zu: got %d, want 0..%d", name.c_str(), i, tokens[i], vocab_size - 1);
        out += bytes[size_t(tokens[i])];
    }
    return out;
}

// ---------------------------------------------------------------------------------------------------- making one

// GPT-2's files write each byte as a printable character: 33..126, 161..172 and 174..255 as themselves, the other 68 in
// order as U+0100, U+0101, ... (a space is U+0120). The same order, printable bytes first, gives the bytes' ids in vocab.bpe.
struct ByteAlphabet {
    std::array<uint32_t, 256> code_of;
    std::array<int, 256 + 68> byte_of;                          // by code; -1: not of the alphabet
    std::array<int, 256> order;                                 // id in vocab.bpe -> byte
    ByteAlphabet() {
        byte_of.fill(-1);
        int printable = 0, others = 0;
        for (int b = 0; b < 256; b++) {
            const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            code_of[size_t(b)] = uint32_t(shown ? b : 256 + others);
            byte_of[code_of[size_t(b)]] = b;
            order[size_t(shown ? printable++ : 188 + others++)] = b;
        }
    }
};
static const ByteAlphabet& alphabet() { static const ByteAlphabet a; return a; }

static std::string to_alphabet(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) append_utf8(&out, alphabet().code_of[uint8_t(c)]);
    return out;
}

// False if text has a character that stands for no byte.
static bool from_alphabet(std::string_view text, std::string* bytes) {
    bytes->clear();
    while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        if (!c.valid || c.code >= alphabet().byte_of.size() || alphabet().byte_of[c.code] < 0) return false;
        *bytes += char(alphabet().byte_of[c.code]);
        text.remove_prefix(c.length);
    }
    return true;
}

static void add_end_of_text(Tokenizer* t) {
    t->eot = int(t->bytes.size());
    t->bytes.push_back("");
    t->special.push_back({t->eot, kEndOfText});
}

void tokenizer_finish(Tokenizer* t, const std::string& what) {
    CHECK(t->bytes.size() <= INT32_MAX, "%zu tokens", t->bytes.size());
    t->vocab_size = int(t->bytes.size());
    t->tables = std::make_shared<Tokenizer::Tables>();
    Tokenizer::Tables& tables = *t->tables;
    if (t->kind == Tokenizer::character) {
        for (int id = 0; id < t->vocab_size; id++) {
            if (t->bytes[size_t(id)].empty()) continue;         // a special token
            const uint32_t code = decode_utf8(t->bytes[size_t(id)]).code;
            if (code >= tables.of_code.size()) tables.of_code.resize(code + 1, -1);
            tables.of_code[code] = id;
        }
        return;
    }
    std::fill_n(tables.of_byte, 256, -1);
    for (int id = 0; id < t->vocab_size; id++)
        if (t->bytes[size_t(id)].size() == 1) tables.of_byte[uint8_t(t->bytes[size_t(id)][0])] = id;
    for (int b = 0; b < 256; b++)
        if (tables.of_byte[b] < 0)
            die(kExitBadContent, "tokenizer: %s: byte 0x%02x: got no token for it, want one for each byte", what.c_str(), b);
    for (const Tokenizer::Merge& merge : t->merges) tables.add_merge(merge);
}

Tokenizer tokenizer_byte() {
    Tokenizer t;
    t.kind = Tokenizer::byte;
    t.name = "byte";
    for (int b = 0; b < 256; b++) t.bytes.push_back(std::string(1, char(b)));
    add_end_of_text(&t);
    tokenizer_finish(&t, t.name);
    return t;
}

Tokenizer tokenizer_char(std::string_view text) {
    std::vector<bool> seen(0x110000);
    each_character(text, [&](uint32_t code, size_t, uint32_t) { seen[code] = true; });
    Tokenizer t;
    t.kind = Tokenizer::character;
    t.name = "char";
    for (uint32_t code = 0; code < seen.size(); code++)
        if (seen[code]) append_utf8(&t.bytes.emplace_back(), code);
    if (t.bytes.empty()) die(kExitBadContent, "tokenizer char: got no text to make it from, want at least one character");
    tokenizer_finish(&t, t.name);
    return t;
}

// ---------------------------------------------------------------------------------------------------- tokenizer.json

// Token names as the file writes them: the byte alphabet, a character, or a special token's text.
static std::vector<std::string> token_texts(const Tokenizer& t) {
    std::vector<std::string> texts;
    for (const std::string& bytes : t.bytes) texts.push_back(t.kind == Tokenizer::character ? bytes : to_alphabet(bytes));
    for (const Tokenizer::Special& special : t.special) texts[size_t(special.id)] = special.text;
    return texts;
}

// Characters are a word-level vocabulary behind a split into single characters; [\s\S], since a dot does not match a line feed.
static const char kCharSplit[] = R"({"type":"Split","pattern":{"Regex":"[\\s\\S]"},"behavior":"Isolated","invert":false})";

std::string Tokenizer::to_json() const {
    CHECK(kind != none, "to_json without a tokenizer");
    const std::vector<std::string> texts = token_texts(*this);
    std::string added, vocab, pairs;
    for (const Special& s : special) {
        added += (added.empty() ? "" : ",") + format(R"({"id":%d,"content":%s,)", s.id, json_quote(s.text).c_str());
        added += R"("single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})";
    }
    for (size_t id = 0; id < texts.size(); id++) vocab += (id ? "," : "") + json_quote(texts[id]) + ":" + std::to_string(id);
    for (const Merge& m : merges)
        pairs += (pairs.empty() ? "" : ",") + json_quote(texts[size_t(m.left)] + " " + texts[size_t(m.right)]);

    std::string out = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" + added + R"(],"normalizer":null,)";
    if (kind == character)
        return out + R"("pre_tokenizer":)" + kCharSplit + R"(,"post_processor":null,"decoder":{"type":"Fuse"},)" +
               R"("model":{"type":"WordLevel","vocab":{)" + vocab + R"(},"unk_token":"<unk>"}})" + "\n";
    return out + R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)" +
           R"("post_processor":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},)" +
           R"("decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)" +
           R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"","end_of_word_suffix":"",)" +
           R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{)" + vocab + R"(},"merges":[)" + pairs + "]}}\n";
}

namespace {
// Reading tokenizer.json: what this program cannot do exactly as the tokenizers library does is refused, with the field's name.
struct JsonFile {
    std::string path;
    Json root;
    std::string what;                                           // "tokenizer: PATH"
    Tokenizer t;
    std::vector<const std::string*> texts;                      // of each token, in ids
    std::unordered_map<std::string, int> ids;                   // -1: not read yet

    [[noreturn]] void fail(const std::string& field, const std::string& got, const std::string& want) const {
        die(kExitBadContent, "%s: %s: got %s, want %s", what.c_str(), field.c_str(), got.c_str(), want.c_str());
    }
    static std::string show(const Json& x) { return x.kind() == Json::null ? "nothing" : json_shown(x); }
    void require(bool good, const std::string& field, const Json& got, const char* want) const {
        if (!good) fail(field, show(got), want);
    }

    void add_token(const std::string& field, const std::string& text, const Json& id) {
        uint64_t i;
        const size_t n = texts.size();
        if (!id.as_u64(&i) || i >= n) fail(field, show(id), format("an id of 0..%zu, for %zu tokens", n - 1, n));
        if (texts[i])
            fail(field, format("id %s, that of %s too", id.text().c_str(), json_quote(texts[i]->substr(0, 60)).c_str()),
                 "a different id for each token");
        const auto entry = ids.find(text);
        texts[i] = &entry->first;
        entry->second = int(i);
    }

    // The tokens of model.vocab and those that added_tokens adds to it. n ids below n, none twice: none is left out.
    void read_tokens(const Json& model) {
        const Json vocab = model.at("vocab", (what + ": model").c_str()), added = root.find("added_tokens");
        require(vocab.kind() == Json::object, "model.vocab", vocab, "an object of tokens and their ids");
        require(added.kind() == Json::null || added.kind() == Json::array, "added_tokens", added, "an array");
        for (JsonItems i(vocab); i.next();) ids[i.key.text()] = -1;
        for (JsonItems i(added); i.next();)
            if (const Json content = i.value.find("content")) ids[content.text()] = -1;
        if (ids.empty()) fail("model.vocab", "no tokens", "at least one");
        texts.resize(ids.size());
        for (JsonItems i(vocab); i.next();) add_token("model.vocab: " + json_shown(i.key), i.key.text(), i.value);
        std::unordered_set<std::string> names;
        for (JsonItems i(added); i.next();) {
            const std::string field = format("added_tokens[%zu]", names.size());
            const Json content = i.value.find("content"), id = i.value.find("id"), flag = i.value.find("special");
            const std::string text = content.text();
            require(content.kind() == Json::string && !text.empty(), field + ".content", content, "a token's text");
            require(bool(id), field + ".id", id, "an id");
            require(show(flag) == "true", field + ".special", flag, "true: no other added tokens are known here");
            if (!names.insert(text).second) fail(field + ".content", show(content) + " again", "each token once");
            if (ids[text] < 0) add_token(field, text, id);
            else if (id.text() != std::to_string(ids[text])) fail(field + ".id", show(id), std::to_string(ids[text]) + ", as in model.vocab");
            t.special.push_back({ids[text], text});
        }
        for (const Tokenizer::Special& s : t.special)
            if (s.text == kEndOfText || t.special.size() == 1) t.eot = s.id;
    }

    // Each token's bytes, empty for special ones.
    void read_bytes() {
        std::vector<bool> special(texts.size());
        for (const Tokenizer::Special& s : t.special) special[size_t(s.id)] = true;
        t.bytes.resize(texts.size());
        for (size_t id = 0; id < texts.size(); id++) {
            if (special[id]) continue;
            const Utf8Char first = decode_utf8(*texts[id]);
            const bool character = t.kind == Tokenizer::character;
            const bool good = character ? first.valid && first.length == texts[id]->size() : from_alphabet(*texts[id], &t.bytes[id]);
            if (character) t.bytes[id] = *texts[id];
            if (!good || t.bytes[id].empty())
                fail(format("model.vocab: id %zu", id), json_quote(texts[id]->substr(0, 60)),
                     character ? "one character" : "characters of the byte-level alphabet");
        }
    }

    int token_of_merge(const std::string& field, const std::string& text) const {
        const auto found = ids.find(text);
        if (found == ids.end() || t.bytes[size_t(found->second)].empty())       // empty: a special token
            fail(field, json_quote(text.substr(0, 60)), "a token of model.vocab");
        return found->second;
    }

    void read_merges(const Json& merges) {
        require(merges.kind() == Json::array, "model.merges", merges, "an array");
        std::unordered_map<uint64_t, size_t> seen;
        for (JsonItems m(merges); m.next();) {
            const std::string field = format("model.merges[%zu]", t.merges.size());
            std::string left, right;
            if (m.value.kind() == Json::string) {               // "a b"; ["a", "b"] since tokenizers 0.20
                left = m.value.text();
                const size_t space = left.find(' ');
                require(space != std::string::npos, field, m.value, "two tokens with a space between");
                right = left.substr(space + 1);
                left.resize(space);
            } else {
                JsonItems pair(m.value);
                for (std::string* side : {&left, &right}) {
                    require(pair.next() && pair.value.kind() == Json::string, field, m.value, "two tokens");
                    *side = pair.value.text();
                }
                require(!pair.next(), field, m.value, "two tokens");
            }
            const Tokenizer::Merge merge = {token_of_merge(field, left), token_of_merge(field, right), token_of_merge(field, left + right)};
            const auto [before, is_new] = seen.try_emplace(pair_key(merge.left, merge.right), t.merges.size());
            if (!is_new) fail(field, format("the pair of model.merges[%zu]", before->second), "each pair once");
            t.merges.push_back(merge);
        }
    }

    Json at(std::string_view path) const {                      // "model.type"
        const size_t dot = path.rfind('.');
        return (dot == path.npos ? root : at(path.substr(0, dot))).find(path.substr(dot + 1));     // npos + 1 is 0
    }

    // What this program does not do, by kind of tokenizer. `good`: as show() writes it, which says "nothing" for null too.
    void check_fields() const {
        static const struct { Tokenizer::Kind kind; const char* field; std::vector<std::string> good; const char* want; } fields[] = {
            {Tokenizer::bpe, "pre_tokenizer.type", {R"("ByteLevel")"}, R"("ByteLevel", as GPT-2 splits text)"},
            {Tokenizer::bpe, "pre_tokenizer.add_prefix_space", {"false"}, "false"},
            {Tokenizer::bpe, "pre_tokenizer.use_regex", {"nothing", "true"}, "true"},
            {Tokenizer::bpe, "model.dropout", {"nothing"}, "null"},
            {Tokenizer::bpe, "model.ignore_merges", {"nothing", "false"}, "false"},
            {Tokenizer::bpe, "model.continuing_subword_prefix", {"nothing", R"("")"}, "none"},
            {Tokenizer::bpe, "model.end_of_word_suffix", {"nothing", R"("")"}, "none"},
            {Tokenizer::character, "pre_tokenizer.type", {R"("Split")"}, R"("Split" into characters)"},
            {Tokenizer::character, "pre_tokenizer.pattern.Regex", {R"("[\\s\\S]")"}, R"("[\\s\\S]", a split into characters)"},
            {Tokenizer::character, "pre_tokenizer.behavior", {R"("Isolated")"}, R"("Isolated")"}};
        for (const auto& f : fields)
            if (f.kind == t.kind) require(std::count(f.good.begin(), f.good.end(), show(at(f.field))) > 0, f.field, at(f.field), f.want);
    }

    // The post-processor and the decoder are not asked: the one adds tokens around a text, which is the trainer's affair, and
    // decoding joins bytes.
    Tokenizer read() {
        require(root.kind() == Json::object, "the file", root, "an object");
        const Json model = root.at("model", what.c_str()), type = model.find("type");                  // files of 2020 do not name it
        const bool characters = show(type) == R"("WordLevel")";
        const bool bpe = show(type) == R"("BPE")" || (type.kind() == Json::null && model.find("merges"));
        require(characters || bpe, "model.type", type, "\"BPE\" (byte-level) or \"WordLevel\" (characters)");
        require(at("normalizer").kind() == Json::null, "normalizer", at("normalizer"), "null");
        t.kind = characters ? Tokenizer::character : Tokenizer::bpe;
        t.name = characters ? "char" : path;
        check_fields();
        read_tokens(model);
        read_bytes();
        if (!characters) read_merges(model.at("merges", (what + ": model").c_str()));
        tokenizer_finish(&t, path);
        if (t.merges.empty() && !characters && t.bytes == tokenizer_byte().bytes) {
            t.kind = Tokenizer::byte;
            t.name = "byte";
        }
        return std::move(t);
    }
};

// ---------------------------------------------------------------------------------------------------- vocab.bpe

// A line of a text file, counted from 1.
struct Line {
    const std::string& path;
    size_t number;
    std::string_view text;
    void require(bool good, const std::string& want) const {
        if (!good)
            die(kExitBadContent, "tokenizer: %s: line %zu: got %s, want %s", path.c_str(), number, json_quote(text.substr(0, 60)).c_str(), want.c_str());
    }
};

// "#version: 0.2", then a line per merge: two tokens in the byte alphabet and a space between.
Tokenizer read_vocab_bpe(std::string_view text, const std::string& path) {
    Tokenizer t;
    t.kind = Tokenizer::bpe;
    t.name = path;
    std::unordered_map<std::string, int> ids;
    for (const int b : alphabet().order) {
        ids[std::string(1, char(b))] = int(t.bytes.size());
        t.bytes.push_back(std::string(1, char(b)));
    }
    for (size_t number = 1; !text.empty(); number++) {
        const Line line = {path, number, next_word(&text, '\n')};
        if (number == 1 && line.text.starts_with("#version:")) continue;
        std::string_view rest = line.text, first = next_word(&rest, ' ');
        std::string left, right;
        line.require(!rest.empty() && from_alphabet(first, &left) && from_alphabet(rest, &right),
                     "two tokens in GPT-2's byte alphabet with a space between; is this a vocab.bpe?");
        const auto a = ids.find(left), b = ids.find(right);
        line.require(a != ids.end() && b != ids.end(), "two bytes or tokens of the lines before");
        const int token = int(t.bytes.size());
        t.merges.push_back({a->second, b->second, token});
        t.bytes.push_back(left + right);
        line.require(left + right != kEndOfText && ids.try_emplace(left + right, token).second, "a token that is not there yet");
    }
    if (t.merges.empty()) die(kExitBadContent, "tokenizer: %s: got no merges, want at least one; is this a vocab.bpe?", path.c_str());
    add_end_of_text(&t);
    tokenizer_finish(&t, path);
    return t;
}
}  // namespace

// ---------------------------------------------------------------------------------------------------- .tiktoken

// Base64 of RFC 4648 with its padding; false if it is not.
bool from_base64(std::string_view text, std::string* bytes) {
    static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bytes->clear();
    if (text.size() % 4 != 0) return false;
    const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < text.size(); i++) {
        const size_t digit = i < text.size() - padding ? kDigits.find(text[i]) : 0;
        if (digit == std::string_view::npos) return false;
        bits = bits << 6 | uint32_t(digit);
        if (i % 4 == 3) *bytes += {char(bits >> 16), char(bits >> 8), char(bits)};
    }
    bytes->resize(bytes->size() - padding);
    return true;
}

// A token that is text of its own, and that GPT-2's split would cut, can only come from another split (cl100k's ".\n").
bool survives_split(std::string_view token) {
    for (std::string_view rest = token; !rest.empty();) {
        const Utf8Char c = decode_utf8(rest);
        if (!c.valid) return true;                              // part of a character: the whole may be of another class
        rest.remove_prefix(c.length);
    }
    return gpt2_next_piece(token) == token.size();
}

// A line per token, "base64 rank"; ids are ranks, end of text comes after the last. The merges are not in the file: the one
// that makes a token joins the two parts that remain when the token is encoded with the merges before it.
Tokenizer read_tiktoken(std::string_view text, const std::string& path) {
    Tokenizer t;
    t.kind = Tokenizer::bpe;
    t.name = path;
    const size_t n = size_t(std::count(text.begin(), text.end(), '\n')) + (text.empty() || text.back() == '\n' ? 0 : 1);
    t.bytes.resize(n);
    std::vector<size_t> line_of(n);
    std::unordered_map<std::string, size_t> seen;
    for (size_t number = 1; !text.empty(); number++) {
        const Line line = {path, number, next_word(&text, '\n')};
        std::string_view rest = line.text, token = next_word(&rest, ' ');
        std::string bytes;
        line.require(token.size() < line.text.size() && from_base64(token, &bytes) && !bytes.empty(), "a token in base64, a space and its rank");
        uint64_t id = 0;
        const char* const line_end = rest.data() + rest.size();
        const auto [end, error] = std::from_chars(rest.data(), line_end, id);
        line.require(error == std::errc() && end == line_end && id < n, format("a rank of 0..%zu, for %zu tokens", n - 1, n));
        line.require(line_of[id] == 0, format("a rank other than that of line %zu", line_of[id]));
        line.require(survives_split(bytes), "a token that GPT-2's split can give; only vocabularies of GPT-2's split can be used");
        const auto [before, is_new] = seen.try_emplace(bytes, number);
        line.require(is_new, format("a token other than that of line %zu", before->second));
        line_of[id] = number;
        t.bytes[id] = bytes;
    }
    tokenizer_finish(&t, path);
    for (size_t id = 0; id < n; id++) {
        if (t.bytes[id].size() == 1) continue;
        std::vector<int> parts;
        t.tables->merge_piece(t.bytes[id], &parts);
        Line{path, line_of[id], t.bytes[id]}.require(parts.size() == 2, "a token that is two tokens of lower rank joined");
        t.merges.push_back({parts[0], parts[1], int(id)});
        t.tables->add_merge(t.merges.back());
    }
    add_end_of_text(&t);
    tokenizer_finish(&t, path);
    return t;
}

// ---------------------------------------------------------------------------------------------------- opening

static std::string find_in_folder(const std::string& folder) {
    for (const char* name : {"tokenizer.json", "vocab.bpe"})
        if (file_exists(path_join(folder, name))) return path_join(folder, name);
    std::vector<std::string> found;
    for (const std::string& name : list_directory(folder))
        if (name.ends_with(".tiktoken")) found.push_back(name);
    if (found.size() != 1)
        die(kExitNoInput, "tokenizer: %s: got %zu .tiktoken files, want one, or tokenizer.json or vocab.bpe; name a file", folder.c_str(),
            found.size());
    return path_join(folder, found[0]);
}

Tokenizer tokenizer_load(const std::string& path) {
    if (is_directory(path)) return tokenizer_load(find_in_folder(path));
    const MappedFile file = map_file(path);
    if (path.ends_with(".tiktoken")) return read_tiktoken(file.text(), path);
    const size_t first = file.text().find_first_not_of(" \t\r\n");
    if (first == std::string::npos || file.text()[first] != '{') return read_vocab_bpe(file.text(), path);
    JsonFile json;
    json.path = path;
    json.what = "tokenizer: " + path;
    json.root = parse_json(file.text(), json.what.c_str());
    return json.read();
}

// GPT-2's own merges: beside the program or in the current folder, and exactly those.
static Tokenizer open_gpt2() {
    const std::string places[] = {path_join(parent_folder(program_path()), "data/vocab.bpe"), "data/vocab.bpe"};
    for (const std::string& path : places) {
        if (!file_exists(path)) continue;
        Sha256 sha;
        const MappedFile file = map_file(path);
        sha.update(file.data, file.size);
        const std::string got = sha.hex(), want = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5";
        if (got != want)
            die(kExitBadContent, "tokenizer: %s: got sha256 %s, want %s, that of GPT-2's; fetch it again: data/get_gpt2_vocab.sh", path.c_str(),
                got.c_str(), want.c_str());
        Tokenizer t = read_vocab_bpe(file.text(), path);
        t.name = "gpt2";
        return t;
    }
    die(kExitNoInput, "--tokenizer gpt2: %s: it is missing; fetch it with data/get_gpt2_vocab.sh, or give --tokenizer FILE "
        "(vocab.bpe, tokenizer.json, .tiktoken)", places[0].c_str());
}

Tokenizer tokenizer_open(const std::string& option, const std::string_view* text) {
    const bool is_bpe = option.starts_with("bpe:");
    if ((option == "char" || is_bpe) && !text)
        die(kExitUsage, "--tokenizer %s: it learns from text, but the data are tokens; give the tokenizer they were made with",
            option.c_str());
    if (option == "byte") return tokenizer_byte();
    if (option == "char") return tokenizer_char(*text);
    if (option == "gpt2") return open_gpt2();
    if (is_bpe) {
        const std::string digits = option.substr(4);
        if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos)
            die(kExitUsage, "--tokenizer %s: got \"%s\", want a number of tokens such as bpe:4096", option.c_str(), digits.c_str());
        return tokenizer_train_bpe(*text, std::stoi(digits));
    }
    if (!file_exists(option))
        die(kExitNoInput, "--tokenizer: got %s, want byte, char, gpt2, bpe:N, or a file or folder that is there", option.c_str());
    return tokenizer_load(option);
}
