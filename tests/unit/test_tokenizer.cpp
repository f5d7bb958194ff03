// test_tokenizer.cpp -- GPT-2's tokens against golden ones and slow references, learning merges, every file format and
// its refusals.
#include <sys/resource.h>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/data/data.h"
#include "tools/text/chat.h"
#include "tools/text/tokenizer.h"
#include "tools/text/unicode.h"
#include "tests/test.h"

static std::string shared_file(const std::string& name) {
    const char* shared = getenv("LOCKSTEP_SHARED");
    const std::string path = std::string(shared ? shared : "../shared") + "/data/" + name;
    if (!file_exists(path)) SKIP("%s is not here (LOCKSTEP_SHARED)", path.c_str());
    return path;
}
static const Tokenizer& gpt2() {
    static const Tokenizer t = tokenizer_load(shared_file("gpt2_vocab.bpe"));
    return t;
}

// A text of so many pieces, each one of these.
static std::string draw(std::mt19937& random, size_t pieces, const std::vector<std::string>& of) {
    std::string s;
    for (size_t i = 0; i < pieces; i++) s += of[random() % of.size()];
    return s;
}
// Letters, numbers, white space and others, of 1 to 4 bytes, and bytes that are not UTF-8.
static const std::vector<std::string> kMixed = {
    "a", "Z", "s", "t", "T", "ll", "ve", "'", "'", "'s", "\"", "1", "0", " ", " ", " ", "\n", "\t", "\r\n", "-", ".",
    "\xc3\xa9", "\xd0\x96", "\xc2\xa0", "\xc2\x85", "\xc2\xbd", "\xe6\x97\xa5", "\xe3\x80\x80", "\xe2\x80\x83",
    "\xe2\x82\xac", "\xef\xbb\xbf", "\xf0\x9f\x98\x80", "\xf0\x9d\x9f\x97", "\xf0\xa0\x80\x80", "\xff", "\x80",
    "\xe6\x97", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", std::string(1, '\0'), "\x1c"};

static std::vector<int> encode(const Tokenizer& t, std::string_view text) {
    std::vector<int> tokens;
    t.encode(text, &tokens);
    return tokens;
}
static std::string decode(const Tokenizer& t, const std::vector<int>& tokens) {
    std::string text;
    for (const int token : tokens) text += t.bytes[size_t(token)];
    return text;
}
static void expect_tokens(const Tokenizer& t, const std::string& text, const std::vector<int>& want) {
    const Row row(text);
    EXPECT_EQ(encode(t, text), want);
}
static bool operator==(const Tokenizer::Merge& a, const Tokenizer::Merge& b) {
    return a.left == b.left && a.right == b.right && a.merged == b.merged;
}

// An entry of added_tokens, and the one that is there.
static std::string entry(int id, const std::string& text, const std::string& more = "") {
    return format(R"({"id":%d,"content":%s%s})", id, json_quote(text).c_str(), more.c_str());
}
static const std::string kSpecial = R"(,"special":true)", kAdded = entry(256, "<|endoftext|>",
    R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false)" + kSpecial);

static Tokenizer small_bpe() { return tokenizer_train_bpe("abcabc abcabc abcabc ab ab xyz xyz", 262); }

// ------------------------------------------------------------------------------------------------- slow references

// The regular expression on the class and end of each character, alternative by alternative, backtracking where it says
// so.
static size_t slow_next_piece(std::string_view text) {
    std::vector<CharClass> kind;
    std::vector<size_t> bytes = {0};  // of the first n characters
    while (bytes.back() < text.size()) {
        const Utf8Char u = decode_utf8(text.substr(bytes.back()));
        kind.push_back(u.valid ? char_class(u.code) : kOther);
        bytes.push_back(bytes.back() + (u.valid ? u.length : 1));
    }
    for (const std::string_view tail : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
        if (text.starts_with(tail)) return tail.size();
    for (const CharClass of : {kLetter, kNumber, kOther})  // " ?" is greedy: with the space first, then without
        for (const size_t space : {1, 0}) {
            if (space && text[0] != ' ') continue;
            size_t n = space;
            while (n < kind.size() && kind[n] == of) n++;
            if (n > space) return bytes[n];
        }
    const size_t n = size_t(std::ranges::find_if(kind, [](CharClass k) { return k != kSpace; }) - kind.begin());
    for (size_t k = n; k > 0; k--)  // \s+(?!\S)
        if (k == kind.size() || kind[k] == kSpace) return bytes[k];
    return bytes[n];  // \s+
}

// Merges the leftmost pair of the lowest rank until there is none.
static std::vector<int> slow_encode(const Tokenizer& t, std::string_view text) {
    std::map<std::pair<int, int>, size_t> ranks;
    for (size_t k = 0; k < t.merges.size(); k++) ranks[{t.merges[k].left, t.merges[k].right}] = k;
    std::vector<int> tokens;
    for (size_t n; !text.empty(); text.remove_prefix(n)) {
        n = slow_next_piece(text);
        std::vector<int> s;
        for (const char c : text.substr(0, n))
            s.push_back(int(std::ranges::find(t.bytes, std::string(1, c)) - t.bytes.begin()));
        while (true) {
            size_t best = t.merges.size(), where = 0;
            for (size_t i = 0; i + 1 < s.size(); i++)
                if (const auto found = ranks.find({s[i], s[i + 1]}); found != ranks.end() && found->second < best)
                    best = found->second, where = i;
            if (best == t.merges.size()) break;
            s[where] = t.merges[best].merged;
            s.erase(s.begin() + long(where) + 1);
        }
        tokens.insert(tokens.end(), s.begin(), s.end());
    }
    return tokens;
}

// Counts all pairs anew for each merge. Returns the tokens of the text as the training leaves it.
static size_t slow_train(std::string_view text, int vocab_size, std::vector<Tokenizer::Merge>* merges,
                         std::vector<std::string>* bytes) {
    std::vector<std::vector<int>> pieces;
    for (; !text.empty(); text.remove_prefix(slow_next_piece(text))) {
        pieces.emplace_back();
        for (const char c : text.substr(0, slow_next_piece(text))) pieces.back().push_back(uint8_t(c));
    }
    *bytes = tokenizer_byte().bytes;
    while (int(bytes->size()) < vocab_size) {
        std::map<std::pair<int, int>, int> counts;
        for (const std::vector<int>& p : pieces)
            for (size_t i = 0; i + 1 < p.size(); i++) counts[{p[i], p[i + 1]}]++;
        std::pair<int, int> best;
        int most = 1;  // the map ascends, so of equals the smallest pair stays
        for (const auto& [pair, count] : counts) {
            const std::string joined = (*bytes)[size_t(pair.first)] + (*bytes)[size_t(pair.second)];
            if (count > most && std::ranges::find(*bytes, joined) == bytes->end())
                best = pair, most = count;
        }
        if (most == 1) break;
        const int token = int(bytes->size());
        merges->push_back({best.first, best.second, token});
        bytes->push_back((*bytes)[size_t(best.first)] + (*bytes)[size_t(best.second)]);
        for (std::vector<int>& p : pieces)
            for (size_t i = 0; i + 1 < p.size(); i++)
                if (p[i] == best.first && p[i + 1] == best.second) p[i] = token, p.erase(p.begin() + long(i) + 1);
    }
    size_t n = 0;
    for (const std::vector<int>& p : pieces) n += p.size();
    return n;
}

// ------------------------------------------------------------------------------------------------- the split

TEST(utf8) {
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (code >= 0xD800 && code < 0xE000) continue;
        std::string s;
        append_utf8(&s, code);
        const Utf8Char c = decode_utf8(s + "x");
        EXPECT(c.valid && c.code == code && c.length == s.size(), "U+%04X", code);
        for (size_t n = 1; n < s.size(); n++) {
            const Utf8Char part = decode_utf8(s.substr(0, n)), broken = decode_utf8(s.substr(0, n) + "x");
            EXPECT(!part.valid && part.cut && part.length == n && !broken.valid && !broken.cut && broken.length == n,
                   "U+%04X, %zu bytes", code, n);
        }
    }
    for (const char* bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                            "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
        const Utf8Char c = decode_utf8(bad);
        EXPECT(!c.valid && !c.cut && c.length == 1, "%s", json_quote(bad).c_str());
    }
}

TEST(classes) {
    size_t count[4] = {};
    for (uint32_t code = 0; code < 0x110000; code++)
        if (code < 0xD800 || code > 0xDFFF) count[char_class(code)]++;
    EXPECT(count[kSpace] == 25 && count[kLetter] == 141028 && count[kNumber] == 1911,
           "got %zu spaces, %zu letters, %zu numbers, want those of Unicode 16.0", count[kSpace], count[kLetter],
           count[kNumber]);
    for (const uint32_t code : {0x1Cu, 0x1Fu, 0x200Bu, 0xFEFFu, 0x180Eu, 0x301u, 0xFFFDu, 0x10FFFFu})
        EXPECT(char_class(code) == kOther, "U+%04X", code);
    for (const uint32_t code : {0xAAu, 0x3007u, 0xBDu, 0x2167u})
        EXPECT(char_class(code) == (code == 0xAA ? kLetter : kNumber), "U+%04X", code);
}

TEST(pieces_as_the_regular_expression) {
    std::mt19937 random(1);
    for (int round = 0; round < 20000; round++) {
        const std::string text = draw(random, 1 + random() % 12, kMixed);
        const Row row(text);
        EXPECT_EQ(splits[0].next_piece(text), slow_next_piece(text));
    }
}

// ------------------------------------------------------------------------------------------------- GPT-2

TEST(gpt2_vectors) {
    const std::vector<std::pair<std::string, std::vector<int>>> vectors = {
        {"", {}},
        {"hello world", {31373, 995}},
        {"Hello, I'm a language model,", {15496, 11, 314, 1101, 257, 3303, 2746, 11}},
        {"  two  spaces\n\n\nnl  don't 12345 \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e",
         {220, 734, 220, 9029, 628, 198, 21283, 220, 836, 470, 17031, 2231, 10545, 245, 98, 17312, 105, 45739, 252}},
        {"don't DON'T we'll", {9099, 470, 23917, 6, 51, 356, 1183}},
        {"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e x\xc2\xb2 \xc2\xbd \xc3\xa9 \xc3\xb1",
         {33768, 98, 17312, 105, 45739, 252, 2124, 31185, 25208, 38251, 6184, 109}},
        {"\r\n\r\n x", {201, 198, 201, 198, 2124}},
        {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}},
    };
    for (int again = 0; again < 2; again++)  // the second time out of the cache
        for (const auto& [text, want] : vectors) expect_tokens(gpt2(), text, want);
    EXPECT(gpt2().vocab_size == 50257 && gpt2().eot == 50256 && gpt2().bytes[0] == "!" &&
               gpt2().bytes[220] == " " && gpt2().bytes[50256].empty());
}

TEST(gpt2_golden_unicode) {
    const std::string golden = read_file("tests/golden/tokenizer_unicode.txt");
    size_t lines = 0, bytes = 0;
    for (std::string_view rest = golden; !rest.empty(); lines++) {
        const Json line = parse_json(next_word(&rest, '\n'), "golden");
        std::vector<int> want;
        for (JsonItems id(line.at("ids", "golden")); id.next();) want.push_back(std::stoi(id.value.text()));
        const std::string text = line.get_string("text", "golden");
        expect_tokens(gpt2(), text, want);
        EXPECT_EQ(decode(gpt2(), want), text);
        bytes += text.size();
    }
    EXPECT(lines == 60 && bytes == 3865, "%zu lines of %zu bytes", lines, bytes);
}

TEST(gpt2_encoder_json) {
    const std::string file = read_file(shared_file("gpt2_encoder.json")), ours = gpt2().to_json();
    std::map<std::string, std::string> got;
    for (JsonItems i(parse_json(ours, "to_json").at("model", "model").find("vocab")); i.next();)
        got[i.key.text()] = i.value.text();
    size_t known = 0;
    for (JsonItems i(parse_json(file, "encoder.json")); i.next(); known++) {
        const Row row(i.key.text());
        EXPECT_EQ(got[i.key.text()], i.value.text());
    }
    EXPECT(known == 50257 && got.size() == 50257, "%zu, %zu", known, got.size());
}

TEST(gpt2_as_the_slow_reference) {
    const Tokenizer& t = gpt2();
    std::vector<std::string> of = kMixed;
    for (const char* s : {"the", " the", "ing", " Hello", "ation", "==", "    ", "\n\n", "9", "2024"}) of.push_back(s);
    std::mt19937 random(2);
    std::string all;
    for (int i = 0; i < 60; i++) {
        const std::string text = i % 3 ? draw(random, 100, of) : draw(random, 200, tokenizer_byte().bytes);
        all += text;
        EXPECT_EQ(decode(t, encode(t, text)), text);
    }
    // Letters without a break are one piece, long enough for the heap to matter.
    const std::string letters = draw(random, 3000, {"a", "b", "the", "ing", "st", "er", "zz", "Q"});
    for (const std::string& text : {all, letters, std::string(1000, 'a')}) expect_tokens(t, text, slow_encode(t, text));
}

TEST(a_megabyte_without_a_break) {
    const Tokenizer& t = gpt2();
    std::mt19937 random(3);
    const double start = now_seconds();
    for (const std::string& text : {std::string(1 << 20, 'a'), std::string(1 << 20, ' '), std::string(1 << 20, '='),
                                    draw(random, 1 << 20, {"a", "e", "t", "n", "i"}), std::string(1 << 20, '\xff'),
                                    draw(random, 300000, {"\xe6\x97\xa5", "\xe6\x9c\xac"})})
        EXPECT_EQ(decode(t, encode(t, text)), text);
    // Quadratic work would take minutes. Loose: the machine may be busy.
    EXPECT(now_seconds() - start < 60, "%.1f s", now_seconds() - start);
}

// ------------------------------------------------------------------------------------------------- other families

// The vocabulary of the vectors: the bytes, 18 merges, and a token that no merge makes.
static Tokenizer vector_tokenizer(const Split& split) {
    Tokenizer t = tokenizer_byte();
    t.bytes.pop_back();
    t.added.clear();
    t.eot = -1;
    const std::pair<const char*, const char*> merges[] = {
        {"h", "e"},   {"l", "l"},  {"he", "ll"}, {"hell", "o"}, {" ", "t"}, {"i", "n"}, {" ", "hello"},
        {"1", "2"},   {"12", "3"}, {" ", "1"},   {"\n", "\n"},  {" ", " "}, {"'", "s"}, {"'", "S"},
        {".", "\n"},  {"c", "a"},  {"ca", "n"},  {" ", "\xc3"}};
    const auto id = [&](const std::string& bytes) { return int(std::ranges::find(t.bytes, bytes) - t.bytes.begin()); };
    for (const auto& [left, right] : merges) {
        t.merges.push_back({id(left), id(right), int(t.bytes.size())});
        t.bytes.push_back(std::string(left) + right);
    }
    t.bytes.push_back(" world");
    t.split = split;
    tokenizer_finish(&t);
    return t;
}

// The checksums are those of the tokenizers library's ids.
TEST(vectors_of_the_families) {
    const char* const texts[] = {
        "Hello  world", "I can't, I CAN'T", " 'S", "it's123", " 12345 678", "a\n\nb", "  \n\n  x", "end  ",
        "end \n", "\t\tx", "(hello)", "...\n\nhi", "\u00a0x", "e\u0301t\u00e9", "\u00bd\u00b2\u2167\u0663",
        "'\u017f 'll", "a\r\n\r\n b", "__init__ a_b", "'tis rock'n'roll", "\u3000 \u3000\u5b57"};
    const std::map<std::string, uint32_t> want = {
        {"gpt2", 0xef3ec0f7}, {"llama3", 0xf46ac0cc}, {"qwen2", 0x876efcd0}, {"smollm", 0xa883fa31}};
    for (const Split& split : splits) {
        const Row row(split.name);
        const Tokenizer made = vector_tokenizer(split), read = tokenizer_parse(made.to_json(), "t.json");
        EXPECT(read.to_json() == made.to_json() && read.split.gguf == split.gguf);
        for (const Tokenizer& t : {made, read}) {
            std::string lines;
            for (const char* text : texts) lines += shown(encode(t, text)) + "\n";
            const uint32_t crc = crc32c(0, lines.data(), lines.size());
            EXPECT(crc == want.at(split.name), "got %08x of\n%s", crc, lines.c_str());
        }
        // A token that no merge makes.
        expect_tokens(made, "hello world world", split.ignore_merges ? std::vector{259, 274, 274} : std::vector{
            259, 32, 119, 111, 114, 108, 100, 32, 119, 111, 114, 108, 100});
    }
}

// Against the tokenizers library: tests/long/test_tokenizers.sh.
TEST(as_the_library) {
    const char* const folder = getenv("LOCKSTEP_TOKENIZERS");
    if (!folder) SKIP("LOCKSTEP_TOKENIZERS is not set: tests/long/test_tokenizers.sh does it");
    for (const Split& split : splits) {
        const std::string path = std::string(folder) + "/" + split.name, all = read_file(path + ".cases");
        const Tokenizer t = tokenizer_load(path + ".json");
        EXPECT(t.split.name == std::string(split.name) && t.split.ignore_merges == split.ignore_merges &&
                   t.split.nfc == split.nfc && t.to_json() == read_file(path + ".json"),
               "%s: the file", split.name);
        size_t texts = 0, bytes = 0, wrong = 0;
        std::string first;
        std::string_view rest = all;
        const auto number = [&] {
            uint32_t n = 0;
            EXPECT(rest.size() >= 4, "%s.cases ends early", split.name);
            std::memcpy(&n, rest.data(), 4);
            rest.remove_prefix(4);
            return n;
        };
        for (; !rest.empty(); texts++) {
            const bool special = number();
            const size_t n = number();
            const std::string_view text = rest.substr(0, n);
            rest.remove_prefix(n);
            std::vector<int> got, want(number());
            for (int& id : want) id = int(number());
            t.encode(text, &got, {}, special);
            bytes += n;
            if (got == want || wrong++) continue;
            const size_t at = size_t(std::ranges::mismatch(got, want).in1 - got.begin());
            first = format("text %zu, special %d, token %zu: %s", texts, special, at, json_quote(text).c_str());
        }
        EXPECT(wrong == 0, "%s: %zu of %zu texts, the first: %s", split.name, wrong, texts, first.c_str());
        EXPECT(texts > 3000 && bytes > 10000000, "%s: only %zu texts of %zu bytes", split.name, texts, bytes);
    }
}

// ------------------------------------------------------------------------------------------------- byte and char

TEST(byte) {
    const Tokenizer t = tokenizer_byte();
    std::string all;
    std::vector<int> want;
    for (int b = 0; b < 256; b++) all += char(b), want.push_back(b);
    EXPECT(t.kind == Tokenizer::bpe && t.vocab_size == 257 && t.eot == 256 && t.name == "byte" &&
               t.bytes.size() == 257 && t.bytes[256].empty());
    expect_tokens(t, all, want);
    EXPECT(decode(t, want) == all && decode(t, {72, 256, 105}) == "Hi", "decode; end of text has no bytes");
    std::vector<int> tokens = {7};
    t.encode("A", &tokens);
    EXPECT(tokens == std::vector<int>({7, 65}), "encode appends");
}

TEST(character) {
    const Tokenizer t = tokenizer_char("b\u00e9a\n\U0001F600ab\u65e5");
    EXPECT(t.kind == Tokenizer::character && t.vocab_size == 6 && t.eot == -1 && t.name == "char", "fields");
    EXPECT_EQ(t.bytes, std::vector<std::string>{"\n", "a", "b", "\u00e9", "\u65e5", "\U0001F600"});  // by code point
    expect_tokens(t, "ab\n\u65e5", {1, 2, 0, 4});
    EXPECT_EQ(decode(t, {5, 3, 2}), "\U0001F600\u00e9b");
    const Refusals unknown = {{"\u00e9" "ac", "byte 3 of the text: got U+0063"},
                              {"a\U0001F601", "byte 1 of the text: got U+1F601"},
                              {"ab\xff", "byte 2 of the text: got 0xff, want UTF-8"}};
    expect_refusals(kExitBadContent, unknown, [&](const std::string& text) { encode(t, text); });
    const Refusals no_texts = {{"a\xc3", "byte 1 of the text: got 0xc3, want UTF-8"}, {"", "got no text"}};
    expect_refusals(kExitBadContent, no_texts, [](const std::string& text) { tokenizer_char(text); });
    EXPECT(tokenizer_char(std::string("\0\x7f", 2)).vocab_size == 2, "control characters are characters");
}

// ------------------------------------------------------------------------------------------------- learning merges

TEST(training_as_the_naive_trainer) {
    std::mt19937 random(4);
    const std::vector<std::vector<std::string>> alphabets = {
        {"a", "b"}, {"a", "b", "c", " "}, {"ab", "ba", "aab", " ", "\n"}, {"a"},
        {" the", " cat", " hat", "s", ".", "'s"}, kMixed};
    int dry = 0;
    for (int round = 0; round < 240; round++) {
        const std::string text = draw(random, 1 + random() % 150, alphabets[size_t(round) % alphabets.size()]);
        const Row row(text);
        std::vector<Tokenizer::Merge> merges;
        std::vector<std::string> bytes;
        const int want_size = 257 + int(random() % 40);
        const size_t count = slow_train(text, want_size, &merges, &bytes);
        const int n = int(bytes.size());
        if (n < want_size) {
            dry++;
            expect_error(kExitUsage, format("gives %d tokens, want %d; use bpe:%d", n, want_size, n),
                         [&] { tokenizer_train_bpe(text, want_size); });
        }
        const Tokenizer t = tokenizer_train_bpe(text, n);
        EXPECT(t.vocab_size == n && t.eot == 256 && t.bytes == bytes && t.merges == merges, "%d tokens", t.vocab_size);
        const std::vector<int> tokens = encode(t, text);
        EXPECT_EQ(tokens.size(), count);
        EXPECT_EQ(decode(t, tokens), text);
        const std::string other = draw(random, 80, kMixed);
        expect_tokens(t, other, slow_encode(t, other));
    }
    EXPECT(dry > 10 && dry < 230, "%d texts ran dry: both cases must be tested", dry);
}

TEST(training_on_shakespeare) {
    const std::string text = read_file(shared_file("tinyshakespeare.txt"));
    const Tokenizer t = tokenizer_train_bpe(text, 1024);
    const std::vector<int> tokens = encode(t, text);
    EXPECT(t.name == "bpe:1024" && t.kind == Tokenizer::bpe && t.vocab_size == 1024 && decode(t, tokens) == text);
    EXPECT_EQ(tokens.size(), 459913);
    EXPECT(std::set<std::string>(t.bytes.begin(), t.bytes.end()).size() == 1024, "no two tokens with the same bytes");
}

TEST(training_with_a_split) {
    const std::string text = "x12345 x12345 don'T don'T  e\u0301 e\u0301 (hello (hello a\n\nb a\n\nb";
    for (const Split& split : splits) {
        const std::string_view view = text;
        const std::string name = std::string("bpe:266") + (&split == splits ? "" : std::string(":") + split.name);
        const Tokenizer t = tokenizer_open(name, &view), back = tokenizer_parse(t.to_json(), "t.json");
        EXPECT(t.name == name && t.split.name == split.name && back.split.name == split.name && t.vocab_size == 266 &&
                   back.split.nfc == split.nfc && back.split.ignore_merges == split.ignore_merges,
               "%s", name.c_str());
        expect_tokens(back, text, encode(t, text));
        const auto knows = [&](const char* s) { return std::ranges::find(t.bytes, s) != t.bytes.end(); };
        const bool llama = has(split.pre_tokenizer, "Split");
        const bool digits = split.name == std::string("gpt2") || split.name == std::string("llama3");
        EXPECT(knows("12") == digits, "%s: 12", name.c_str());
        EXPECT(knows("'T") == llama && knows("\n\n") == llama, "%s: 'T", name.c_str());
        const std::string composed = replaced(replaced(text, "e\u0301", "\u00e9"), "e\u0301", "\u00e9");
        EXPECT(decode(t, encode(t, text)) == (split.nfc ? composed : text), "%s: round trip", name.c_str());
    }
    EXPECT_EQ(tokenizer_train_bpe("abab", 258).name, "bpe:258");
}

TEST(training_limits) {
    expect_error(kExitUsage, "want at least 257", [] { tokenizer_train_bpe("abc", 256); });
    EXPECT_EQ(tokenizer_train_bpe("", 257).vocab_size, 257);
    expect_error(kExitUsage, "", [] { tokenizer_train_bpe("", 258); });
    std::mt19937 random(5);
    const double start = now_seconds();  // a megabyte without a break, and one whose pieces double
    tokenizer_train_bpe(draw(random, 1 << 20, {"a", "b", "c", "d"}), 1000);
    tokenizer_train_bpe(std::string(1 << 20, 'a'), 270);
    EXPECT(now_seconds() - start < 60, "%.1f s", now_seconds() - start);
    std::string text;  // beyond 16 MiB nothing is learnt
    while (text.size() < (16u << 20)) text += "ababab ababab ";
    text.resize(16 << 20);
    const Tokenizer before = tokenizer_train_bpe(text, 260);
    for (int i = 0; i < 100000; i++) text += "xyzxyz xyzxyz xyzxyz xyzxyz xyzxyz xyzxyz xyzxyz xyzxyz ";
    EXPECT(tokenizer_train_bpe(text, 260).bytes == before.bytes, "learnt beyond 16 MiB");
}

// ------------------------------------------------------------------------------------------ files that are right

static void expect_same(const Tokenizer& got, const Tokenizer& want, const std::string& what) {
    const Row row(what);
    EXPECT(got.kind == want.kind && got.vocab_size == want.vocab_size && got.eot == want.eot &&
           got.bytes == want.bytes && got.merges == want.merges && got.added.size() == want.added.size());
    EXPECT_EQ(got.own_json(), want.own_json());
}

static void expect_round_trip(const Tokenizer& t, const std::string& text) {
    const Folder f;
    const Tokenizer back = tokenizer_load(f.add("tokenizer.json", t.to_json()));
    expect_same(back, t, t.name);
    EXPECT_EQ(back.name, (t.kind == Tokenizer::bpe ? f / "tokenizer.json" : "char"));
    expect_tokens(back, text, encode(t, text));
    EXPECT_EQ(decode(back, encode(t, text)), text);
    expect_same(tokenizer_load(f.path), t, "from the folder");
}

TEST(tokenizer_json_round_trip) {
    std::mt19937 random(6);
    const std::string text = draw(random, 3000, kMixed),
                      letters = "\"\\/\x7f\x01\n\t\r \xc2\x80\xe2\x80\xa8\xef\xbf\xbd\xf4\x8f\xbf\xbf" +
                                std::string(1, '\0') + "<|endoftext|>";
    expect_round_trip(tokenizer_byte(), text);
    expect_round_trip(tokenizer_char(letters), letters);
    expect_round_trip(tokenizer_char("x"), "xx");
    expect_round_trip(tokenizer_train_bpe(text, 400), text);
    expect_round_trip(gpt2(), text);
}

TEST(tokenizer_json_of_others) {
    const Folder f;
    const Tokenizer t = small_bpe();
    const std::string json = t.to_json();
    const auto load = [&](const std::string& s) { return tokenizer_load(f.add("t.json", s)); };
    std::string pairs = json.substr(0, json.find("\"merges\":[")) + "\"merges\":[";
    const Json parsed = parse_json(json, "json");
    for (JsonItems i(parsed.find("model").find("merges")); i.next();)
        pairs += (pairs.back() == '[' ? "[" : ",[") + replaced(json_quote(i.value.text()), " ", "\",\"") + "]";
    expect_same(load(pairs + "]}}"), t, "merges as pairs");
    // A model without a type; use_regex by default; white space before; the end of text only in added_tokens.
    const std::string of_end = R"("<|endoftext|>":256,)";
    for (const auto& [from, to] : Refusals{{R"("type":"BPE",)", ""}, {R"(,"use_regex":true)", ""}, {"{", "\n \t{"},
                                           {of_end, ""}})
        expect_same(load(replaced(json, from, to)), t, from);
    // A Sequence is what stands in it.
    const auto sequence = [](const std::string& list, const std::string& of) {
        return R"({"type":"Sequence",")" + list + "\":[" + of + "]}";
    };
    const std::string nfc = R"({"type":"NFC"})", none = R"("normalizer":null)";
    for (const std::string& of : {nfc, sequence("normalizers", nfc)}) {
        const Tokenizer composed = load(replaced(json, none, R"("normalizer":)" + sequence("normalizers", of)));
        expect_tokens(composed, "e\u0301", {195, 169});
    }
    const std::string split(t.split.pre_tokenizer);
    expect_same(load(replaced(json, split, sequence("pretokenizers", sequence("pretokenizers", split)))), t, "of one");
    // Another name for it; several special tokens; none.
    const Tokenizer named = load(replaced(replaced(json, kAdded, entry(256, "</s>", kSpecial)), of_end, ""));
    EXPECT(named.eot == 256 && named.added[0].text == "</s>" && named.bytes[256].empty(), "</s>");
    expect_same(load(named.to_json()), named, "</s> again");
    const Tokenizer two = load(replaced(json, kAdded, entry(262, "<pad>", kSpecial) + "," + kAdded));
    EXPECT(two.eot == 256 && two.vocab_size == 263 && two.bytes[262].empty() && two.added.size() == 2);
    expect_same(load(two.to_json()), two, "two again");
    EXPECT(load(replaced(replaced(two.to_json(), "\"content\":\"<|endoftext|>\"", "\"content\":\"<bos>\""),
                         "\"<|endoftext|>\":256", "\"<bos>\":256")).eot == -1, "none of two");
    EXPECT_EQ(load(replaced(replaced(json, kAdded, ""), "\"<|endoftext|>\":256", "\"qqq\":256")).eot, -1);
}

// Where the texts of a model begin with its end-of-text token, other programs read so: in the post-processor alone.
TEST(json_of_a_trained_model) {
    const Folder f;
    Tokenizer t = small_bpe();
    const std::string plain = t.to_json(), begun = tokenizer_json_of_model(t);
    const Json was = parse_json(plain, "plain").find("post_processor"), json = parse_json(begun, "begun"),
               now = json.find("post_processor");
    EXPECT(now.find("type").text() == "TemplateProcessing" && replaced(begun, now.text(), was.text()) == plain,
           "only the post-processor differs: %s", now.text().c_str());
    EXPECT_EQ(now.find("special_tokens").find("<|endoftext|>").find("ids").text(), "[256]");
    for (const char* key : {"single", "pair"}) {
        JsonItems i(now.find(key));
        EXPECT(i.next() && i.value.find("SpecialToken").find("id").text() == "<|endoftext|>" && i.next() &&
                   i.value.find("Sequence").find("id").text() == "A", "%s: the token, then the text", key);
    }
    expect_same(tokenizer_load(f.add("t.json", begun)), t, "read again");
    tokenizer_own(&t, -1);
    EXPECT(tokenizer_json_of_model(t) == plain, "a model of one text begins with nothing");
    EXPECT_EQ(tokenizer_json_of_model(tokenizer_char("abc")), tokenizer_char("abc").to_json());
}

TEST(added_tokens) {
    const Folder f;
    const std::string json = small_bpe().to_json();
    const auto load = [&](const std::vector<std::string>& entries) {
        return tokenizer_load(f.add("t.json", replaced(json, kAdded, kAdded + "," + join(entries, ","))));
    };
    const Tokenizer t = load({entry(262, "<a>"), entry(263, "<a><b>", R"(,"normalized":false)"),
                              entry(264, "<x>", kSpecial), entry(300, " "), entry(299, "\u65e5")});
    EXPECT(t.vocab_size == 301 && t.bytes[262] == "<a>" && t.bytes[264].empty() && t.bytes[270].empty() &&
               t.bytes[300] == " " && t.bytes[299] == "\u65e5" && t.eot == 256, "ids may be left out");
    expect_tokens(t, "<a><b><a><", {263, 262, '<'});                    // the longest
    expect_tokens(t, "ab<a>abc", {257, 262, 258});                      // between others
    expect_tokens(t, "  <a>\u65e5", {300, 300, 262, 299});              // the token of a byte is another one
    expect_tokens(t, "\n", {10});
    EXPECT(encode(t, "<x><|endoftext|>").size() >= 10, "names of special tokens are text");
    std::vector<int> special_ones;
    t.encode("<x>ab<|endoftext|><a", &special_ones, {}, true);
    EXPECT_EQ(special_ones, std::vector{264, 257, 256, int('<'), int('a')});
    EXPECT_EQ(decode(t, encode(t, "<x><|endoftext|> <a>")), "<x><|endoftext|> <a>");
    // What is not normalized is found first, and the split sees the end of a text between.
    expect_tokens(load({entry(262, "zq!", R"(,"normalized":true)"), entry(263, "q!?")}), "zq!?zq!", {'z', 263, 262});
    expect_tokens(load({entry(262, "<e>")}), "a\t\t<e>", {'a', '\t', '\t', 262});
    // The end of text by its name.
    const std::string llama = entry(262, "<|begin_of_text|>", kSpecial) + "," + entry(263, "<|end_of_text|>", kSpecial);
    const std::string of_llama = replaced(replaced(json, kAdded, llama), "\"<|endoftext|>\":256", "\"abx\":256");
    EXPECT(tokenizer_load(f.add("t.json", of_llama)).eot == 263, "Llama 3's end of text");
    EXPECT(load({entry(262, "<|im_end|>", kSpecial)}).eot == 256, "Qwen's end of text");
    // Of a text in chunks, the tokens come in the same order.
    std::string large;
    while (large.size() < 3000000) large += "abc <a> xyz ab ";
    std::vector<int> all, some;
    size_t calls = 0;
    t.encode(large, &some, [&] {
        all.insert(all.end(), some.begin(), some.end());
        some.clear();
        calls++;
    });
    all.insert(all.end(), some.begin(), some.end());
    EXPECT(calls > 3 && all == encode(t, large), "%zu chunks", calls);
}

// A byte tokenizer with these tokens added.
static Tokenizer with_added(const std::vector<std::string>& names) {
    Tokenizer t = tokenizer_byte();
    for (const std::string& name : names) {
        t.added.push_back({int(t.bytes.size()), name, false});
        t.bytes.push_back("");
    }
    tokenizer_finish(&t);
    return t;
}

// Against the rule itself: at each place the longest name that begins there.
TEST(added_tokens_at_random) {
    std::mt19937 random(5);
    for (int round = 0; round < 300; round++) {
        const std::vector<std::string> letters = {"a", "b", "\xff", std::string(1, '\0')};
        std::set<std::string> names;
        for (size_t i = random() % 40; i > 0; i--) names.insert(draw(random, 1 + random() % 9, letters));
        const Tokenizer t = with_added({names.begin(), names.end()});
        const std::string text = draw(random, random() % 300, letters);
        std::vector<int> want;
        for (size_t at = 0; at < text.size();) {
            const Tokenizer::Added* best = nullptr;
            for (const Tokenizer::Added& a : t.added)
                if (!a.special && text.substr(at).starts_with(a.text) && (!best || a.text.size() > best->text.size()))
                    best = &a;
            want.push_back(best ? best->id : uint8_t(text[at]));
            at += best ? best->text.size() : 1;
        }
        expect_tokens(t, text, want);
    }
}

// Many names, of which each begins like the text everywhere, and names of 3,000 lengths that begin with each other: the
// text takes as many comparisons as characters.
TEST(many_added_tokens) {
    std::vector<std::string> many, nested;
    for (int i = 0; i < 20000; i++) many.push_back(format("<token_%d>", i));
    for (size_t i = 1; i <= 3000; i++) nested.push_back(std::string(i, 'a'));
    std::string text, letters;
    while (text.size() < 4000000) text += "<token_";
    while (letters.size() < 1000000) letters += "ab";
    const Tokenizer t = with_added(many);
    EXPECT(encode(t, text + many[7]).back() == 257 + 7 && encode(t, text).size() == text.size(), "tokens");
    const std::vector<int> tokens = encode(with_added(nested), letters);
    EXPECT(tokens.size() == letters.size() && tokens[0] == 257 && tokens[1] == 'b', "tokens");
}

TEST(files_are_kept) {
    const Folder f;
    const std::string json = "\n " + replaced(small_bpe().to_json(), "\"post_processor\":",
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<|endoftext|>\","
        "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
        "\"special_tokens\":{\"<|endoftext|>\":{\"ids\":[256]}}},\"x\":");
    const Tokenizer t = tokenizer_load(f.add("t.json", json));
    EXPECT_EQ(t.to_json(), json);
    expect_tokens(t, "ab", {257});  // a template of the file adds nothing
    EXPECT(t.begin == 256 && !t.own, "to a document it does");
}

// Which tokens stand around a document. The values are those of transformers 4.44: tokenizer("ab").input_ids[0] or
// none, tokenizer.eos_token_id, and what generate stops at.
TEST(tokens_around_a_document) {
    const char* const names[] = {"<s>", "</s>", "<|im_end|>", "<pad>"};     // 262 to 265
    std::string added;
    for (int i = 0; i < 4; i++) added += "," + entry(262 + i, names[i], kSpecial);
    const std::string json = replaced(small_bpe().to_json(), kAdded, kAdded + added);
    const auto item = [](const std::string& name) {
        return "{\"SpecialToken\":{\"id\":\"" + name + "\",\"type_id\":0}}";
    };
    const std::string text = "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}";
    const auto with = [&](const std::string& single) {
        return replaced(json, "\"post_processor\":", "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{"
            "\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\",\"single\":[" + single + "],"
            "\"special_tokens\":{\"<s>\":{\"ids\":[262]},\"</s>\":{\"ids\":[263]},\"<pad>\":{\"ids\":[265,262]}}"
            "}]},\"x\":");
    };
    const auto read = [&](const std::string& tokenizer, const ModelTexts& texts) {
        Tokenizer t = tokenizer_parse(tokenizer, "m/tokenizer.json");
        read_ends(&t, texts, "m/tokenizer.json");
        return t;
    };
    const std::string begins = with(item("<s>") + "," + text), none = R"({"eos_token_id":null})";
    const std::string own = small_bpe().to_json();                          // this program's, of one text
    const struct { ModelTexts texts; std::vector<int> ends; int bos = -1, begin = -1; std::string of = ""; } good[] = {
        {{R"({"eos_token_id":263})"}, {263}},
        {{R"({"eos_token_id":[263,264],"bos_token_id":262})"}, {263, 264}, 262},
        {{R"({"eos_token_id":[263,264]})", R"({"eos_token_id":[264,256]})", R"({"eos_token":"<|im_end|>"})"},
         {264, 263, 256}},
        {{"", R"({"eos_token_id":264})"}, {264}}, {{none, R"({"eos_token_id":264})"}, {264}},
        {{none, "", R"({"eos_token":null})"}, {}},
        {{"", "", R"({"eos_token":{"content":"</s>","lstrip":false},"bos_token":"<s>"})"}, {263}, 262},
        {{R"({"eos_token_id":263})", "", R"({"eos_token":"<nobody>"})"}, {263}},
        {{R"({"eos_token_id":[50256,263],"bos_token_id":50256})"}, {263}},
        {{}, {256}},                                                        // by its name
        {{R"({"eos_token_id":[]})", "", R"({"eos_token":""})"}, {}}, {{R"({"eos_token_id":[263,263]})"}, {263}},
        {{"", "", R"({"eos_token":null})", R"({"eos_token":"</s>","bos_token":"<s>"})"}, {263}, 262},
        // Where both name it special_tokens_map.json decides, but not beside added_tokens_decoder: transformers 4.44.
        {{"", "", R"({"eos_token":"<pad>"})", R"({"eos_token":{"content":"</s>"}})"}, {263}},
        {{"", "", R"({"eos_token":"<pad>","added_tokens_decoder":{}})", R"({"eos_token":"</s>"})"}, {265}},
        {{R"({"eos_token_id":264})", "", R"({"eos_token":"<pad>"})", R"({"eos_token":null})"}, {264}},
        {{R"({"eos_token_id":258})", "", R"({"eos_token":"ab"})"}, {257, 258}},         // no special token
        {{R"({"eos_token_id":263,"bos_token_id":262})"}, {263}, 262, 262, begins},
        {{R"({"eos_token_id":263,"bos_token_id":264})"}, {263}, 262, 262, begins},
        {{}, {263}, -1, -1, with(text + "," + item("</s>"))},
        {{R"({"eos_token_id":264})"}, {264}, 262, 262, with(item("<s>") + "," + text + "," + item("</s>"))},
        {{none}, {}, -1, -1, own}, {{R"({"eos_token_id":256})"}, {256}, 256, 256, own},
        {{R"({"eos_token_id":257})", R"({"eos_token_id":[257,256]})"}, {257, 256}, 256, 256, own}};
    for (size_t i = 0; i < std::size(good); i++) {
        const Row row(std::to_string(i));
        const auto& [texts, ends, bos, begin, of] = good[i];
        const Tokenizer t = read(of.empty() ? json : of, texts);
        // Its own begins with the end of texts.
        const int eot = begin == 256 ? 256 : ends.empty() ? -1 : ends[0];
        EXPECT(t.begin == begin && t.eot == eot && t.ends == ends && t.bos == bos,
               "begin %d, eot %d, bos %d, %zu ends", t.begin, t.eot, t.bos, t.ends.size());
        std::vector<int> tokens, want = {257};
        if (begin >= 0) want.insert(want.begin(), begin);
        if (eot >= 0 && eot != begin) want.push_back(eot);
        t.encode_document("ab", &tokens);
        EXPECT_EQ(tokens, want);
    }
    for (const char* key : {"eos_token_id", "bos_token_id"})
        for (const char* value : {"-1", "2.5", "\"2\"", "true", "1e999", "{}", "[\"2\"]"})
            expect_error(kExitBadContent, "m: config.json: " + std::string(key) + ": got",
                         [&] { read(json, {format("{\"%s\":%s}", key, value), "", ""}); });
    const std::string roberta =
        R"("post_processor":{"type":"RobertaProcessing","sep":["</s>",263],"cls":["<s>",262]},"x":)";
    expect_refusals(kExitBadContent, {
        {replaced(json, R"("post_processor":)", roberta), "post_processor: got \"RobertaProcessing\""},
        {with(item("<s>") + "," + item("</s>") + "," + text), "post_processor: got"},
        {with(item("<pad>") + "," + text), "post_processor: got"},
        {with(item("<x>") + "," + text), "post_processor: got"}}, [&](const std::string& file) { read(file, {}); });
}

// Tokens that files beside tokenizer.json name, by transformers 5.24: get_vocab and input_ids. Where it gives another
// id than the file, or another than llama.cpp, that is refused. The vocabulary has 262 tokens, of the model 264.
TEST(tokens_of_other_files) {
    const auto load = [](const std::string& config, const std::string& added) {
        const Folder f;
        f.add("tokenizer.json", small_bpe().to_json() + " ");
        f.add("config.json", R"({"vocab_size":264})");
        f.add("tokenizer_config.json", config);
        if (!added.empty()) f.add("added_tokens.json", added);
        return tokenizer_load(f.path);
    };
    const auto decoder = [](const std::string& items) { return "{\"added_tokens_decoder\":{" + items + "}}"; };
    const std::string x = R"("262":{"content":"<x>"})", y = R"("263":{"content":"<y>","special":true})",
                      end = R"("256":{"content":"<|endoftext|>","special":true})";
    const struct { std::string config, added; std::vector<int> tokens; size_t unplaced = 0; } good[] = {
        {decoder(end + "," + x), "", {262}}, {decoder(y + "," + x), "", {262}}, {"{}", R"({"<x>":262})", {262}},
        {"{}", R"({"<y>":263,"<x>":262})", {262}}, {decoder(end + "," + x), R"({"<y>":263})", {262}},
        {R"({"additional_special_tokens":["<x>"]})", R"({"<x>":262})", {'<', 'x', '>'}},
        {decoder(end), R"({"<x>":262})", {'<', 'x', '>'}},
        {R"({"additional_special_tokens":["<x>","<y>"],"pad_token":"<p>"})", "", {'<', 'x', '>'}, 3},
        {R"({"extra_special_tokens":{"a":"<x>"}})", "", {'<', 'x', '>'}, 1},
        {R"({"extra_special_tokens":[{"content":"<x>"},"ab"]})", "", {'<', 'x', '>'}, 1}};
    for (const auto& [config, added, tokens, unplaced] : good) {
        const Row row(config + added);
        const Tokenizer t = load(config, added);
        EXPECT_EQ(encode(t, "<x>"), tokens);
        EXPECT_EQ(t.unplaced.size(), unplaced);
        expect_same(tokenizer_parse(t.to_json(), t.name), t, "again");
    }
    Tokenizer lost = load(R"({"additional_special_tokens":["<|im_end|>","<|im_start|>"]})", "");
    expect_error(kExitBadContent, "<|im_start|>: got a token that tokenizer_config.json names without an id",
                 [&] { add_chat_tokens(&lost, choose_chat_template("chatml", {}, "")); });
    const std::string chat = R"("263":{"content":"<|im_start|>","special":true},"262":{"content":"<|im_end|>"})";
    Tokenizer both = load(decoder(chat), "");
    add_chat_tokens(&both, choose_chat_template("chatml", {}, ""));
    EXPECT(both.vocab_size == 264 && both.name_of(262) == "<|im_end|>", "ids stay");
    const Refusals bad = {
        {decoder(R"("263":{"content":"<x>"})"), "config.json: \"<x>\": got id 263, want 262, the next one"},
        {decoder(x + R"(,"264":{"content":"<z>"})"), "\"<z>\": got id 264, want 263, the next one"},
        {decoder(x + "," + y + R"(,"264":{"content":"<z>"})"), "\"<z>\": got id 264, want 264, the next one, and less"},
        {decoder(R"("262":{"content":"<|endoftext|>"})"), "\"<|endoftext|>\": got 262, want an id, the same"},
        {decoder(R"("33":{"content":"<x>"})"), "\"<x>\": got id 33, want 262"},
        {decoder(R"("262":{"content":"<x>","lstrip":true})"), "\"<x>\": lstrip: got true"},
        {decoder(R"("x":{"content":"<x>"})"), "<x>: got \"x\", want an id"}, {decoder(R"("262":7)"), "content"}};
    expect_refusals(kExitBadContent, bad, [&](const std::string& config) { load(config, ""); });
    expect_error(kExitBadContent, "added_tokens.json: \"<y>\": got id 262, want 263",
                 [&] { load("{}", R"({"<x>":262,"<y>":262})"); });
}

TEST(nfc) {
    const auto nfc = [](std::string_view text) {
        std::string out;
        return to_nfc(text, &out) ? out : "same:" + out + std::string(text);
    };
    const std::pair<const char*, const char*> cases[] = {
        {"", "same:"}, {"abc \u00e9\u4e16\uac00", "same:abc \u00e9\u4e16\uac00"}, {"e\u0301", "\u00e9"},
        {"xe\u0301y", "x\u00e9y"}, {"\u0301", "\u0301"}, {"\n\u0301a", "\n\u0301a"},     // nothing before it
        {"e\u0327\u0301", "\u0229\u0301"}, {"e\u0301\u0327", "\u0229\u0301"},         // the first in order joins first
        {"\u00e9\u0327", "\u0229\u0301"},           // what was composed comes apart again
        {"a\u0328\u0301\u0301", "\u0105\u0301\u0301"},    // blocked by one of its class
        {"\u212b\u2126", "\u00c5\u03a9"},           // singletons
        {"\u0958", "\u0915\u093c"},                 // not composed again
        {"\u1100\u1161\u11a8\u11a8", "\uac01\u11a8"}, {"\uac00\u11a8", "\uac01"}, {"\u1e9b\u0323", "\u1e9b\u0323"},
        {"\uf900", "\u8c48"}, {"\xff" "e\u0301\xff\u0301", "\xff\u00e9\xff\u0301"},
        {"\U000105d2\u0307", "\U000105d2\u0307"},   // Unicode 16
    };
    for (const auto& [text, want] : cases) EXPECT_EQ(nfc(text), want);
    size_t changed = 0;
    for (uint32_t code = 0; code < 0x110000; code++) {
        std::string s, out;
        append_utf8(&s, code);
        if (code < 0xD800 || code > 0xDFFF) changed += to_nfc(s, &out) && out != s;
    }
    EXPECT_EQ(changed, 1120);
    std::string marks = "a", out;                   // a million marks are no trap
    for (int k = 0; k < 500000; k++) marks += "\u0301\u0327";
    EXPECT(to_nfc(marks, &out) && out.size() == marks.size() - 1, "%zu bytes", out.size());
}

TEST(folders) {
    const Folder f;
    expect_error(kExitNoInput, "vocab.bpe", [&] { tokenizer_load(f.path); });
    f.add("vocab.bpe", "#version: 0.2\na b\n");
    EXPECT_EQ(tokenizer_load(f.path).vocab_size, 258);
    f.add("tokenizer.json", tokenizer_byte().to_json());
    EXPECT_EQ(tokenizer_load(f.path).vocab_size, 257);
    expect_error(kExitNoInput, "nothing_here", [&] { tokenizer_load(f.path + "/nothing_here"); });
}

TEST(vocab_bpe) {
    const Folder f;
    const Tokenizer t = tokenizer_load(f.add("x.bpe", "#version: 0.2\na b\nab c\n\xc4\xa0 a\n"));
    EXPECT(t.vocab_size == 260 && t.eot == 259 && t.bytes[256] == "ab" && t.bytes[257] == "abc" &&
               t.bytes[258] == " a" && t.merges.size() == 3);
    expect_same(tokenizer_load(f.add("y.bpe", "a b\nab c\n\xc4\xa0 a")), t, "no version line, no line feed at the end");
    EXPECT(encode(t, "abc")[0] == 257 && encode(t, "x a").back() == 258, "encode");
}

TEST(option) {
    const std::string_view text = "abab abab";
    EXPECT(tokenizer_open("byte", nullptr).name == "byte" && tokenizer_open("char", &text).vocab_size == 3 &&
               tokenizer_open("bpe:258", &text).vocab_size == 258, "kinds");
    expect_error(kExitUsage, "it learns from the text", [] { tokenizer_open("char", nullptr); });
    expect_error(kExitUsage, "it learns from the text", [] { tokenizer_open("bpe:300", nullptr); });
    for (const char* bad : {"bpe:", "bpe:x", "bpe:-5", "bpe:3e2", "bpe:300 ", "bpe:99999999999999999999", "bpe:256",
                            "bpe:0", "bpe:999999999", "bpe:300:", "bpe:300:gpt3", "bpe:300:llama3:", "bpe::llama3"})
        expect_error(kExitUsage, bad, [&] { tokenizer_open(bad, &text); });
    expect_error(kExitNoInput, "got gpt-2, want byte, char, gpt2, bpe:", [] { tokenizer_open("gpt-2", nullptr); });
    const Folder f;
    EXPECT_EQ(tokenizer_open(f.add("tokenizer.json", tokenizer_byte().to_json()), nullptr).vocab_size, 257);
    EXPECT_EQ(tokenizer_open(f.path, &text).vocab_size, 257);
}

// Changes the current folder while it lives.
struct Inside {
    const std::filesystem::path before = std::filesystem::current_path();
    explicit Inside(const std::string& path) { std::filesystem::current_path(path); }
    ~Inside() { std::filesystem::current_path(before); }
};

TEST(option_gpt2) {
    for (const char* place : {"../../data/vocab.bpe", "../../../data/vocab.bpe"})
        if (file_exists(path_join(parent_folder(program_path()), place))) SKIP("data/vocab.bpe is here");
    const Folder f;
    {
        const Inside inside(f.path);
        const auto open = [] { tokenizer_open("gpt2", nullptr); };
        expect_error(kExitNoInput, "data/get_gpt2_vocab.sh", open, "--tokenizer FILE");
    }
    make_directories(f.path + "/data");
    f.add("data/vocab.bpe", read_file(shared_file("gpt2_vocab.bpe")));
    const Inside inside(f.path);
    const Tokenizer t = tokenizer_open("gpt2", nullptr);
    EXPECT(t.name == "gpt2" && t.vocab_size == 50257 && t.eot == 50256, "gpt2");
}

// ------------------------------------------------------------------------------------------ files that are wrong

TEST(bad_tokenizer_json) {
    const Folder f;
    const std::string json = small_bpe().to_json(), characters = tokenizer_char("abc").to_json();
    const auto load = [&](const std::string& content) { tokenizer_load(f.add("bad.json", content)); };
    expect_refusals(kExitBadContent, {{"{}", "model: it is missing"}, {"{", "byte 1"},
        {R"({"model":3})", "model.type: got nothing, want \"BPE\""}, {R"({"model":{}})", "model.type"},
        {"{\"model\":\"\xff\"}", "want UTF-8"}}, load, "bad.json");
    // What is changed in the tokenizer's file, and what is said of it. of: another file.
    struct Change { std::string from, to, part, of = ""; };
    const auto id = [](const std::string& entry, const std::string& part) {         // in place of "!", which is 33
        return Change{R"("!":33,)", entry, part};
    };
    const auto added = [](const std::string& list, const std::string& part) {
        return Change{"\"added_tokens\":[" + kAdded + "]", "\"added_tokens\":[" + list + "]", part};
    };
    std::vector<Change> changes = {
        {R"("type":"BPE")", R"("type":"Unigram")", "model.type: got \"Unigram\", want \"BPE\""},
        {R"("normalizer":null)", R"("normalizer":{"type":"NFKC"})", "got [type:\"NFKC\"], want null or NFC"},
        {R"("pre_tokenizer":{"type":"ByteLevel")", R"("pre_tokenizer":{"type":"Whitespace")",
         "pre_tokenizer: got [add_prefix_space:\"false\",type:\"Whitespace\"], want that of GPT-2, Llama 3, Qwen or "
         "SmolLM2"},
        {R"("pre_tokenizer":{)", R"("pre_tokenizer":null,"x":{)", "pre_tokenizer: got \"null\""},
        {R"("pre_tokenizer":{)", R"("x":{)", "pre_tokenizer: got nothing"},
        {R"("add_prefix_space":false)", R"("add_prefix_space":true)", "pre_tokenizer: got "},
        {R"("add_prefix_space":false,)", "", "pre_tokenizer: got "},
        {R"("use_regex":true)", R"("use_regex":false)", "pre_tokenizer: got "},
        {R"("use_regex":true)", R"("use_regex":true,"more":1)", "more:\"1\""},
        {R"("byte_fallback":false)", R"("byte_fallback":true)", "model.byte_fallback: got \"true\", want null, false"},
        {R"("dropout":null)", R"("dropout":0.1)", "model.dropout: got \"0.1\""},
        {R"("continuing_subword_prefix":"")", R"("continuing_subword_prefix":"##")",
         "model.continuing_subword_prefix: got \"##\""},
        {R"("end_of_word_suffix":"")", R"("end_of_word_suffix":"</w>")", "model.end_of_word_suffix: got \"</w>\""},
        {R"("vocab":{)", R"("vocab":[],"v":{)", "want ids from 0 on"},
        {R"("vocab":{)", R"("v":{)", "want ids from 0 on"},         // of one token more than twice as many
        id(R"("!":34,)", "got 34, want ids from 0 on, each once"), id("", "byte 0x21: got no token"),
        id(R"("!":33,"!":262,)", "twice"), id(R"("?!":33,)", "byte 0x21: got no token"),
        id("\"\u65e5\":33,", "id 33: got \"\u65e5\", want characters of GPT-2's alphabet"),
        id(R"("a b":33,)", "id 33: got \"a b\""), id(R"("":33,)", "id 33: got \"\""),
        added("7", "content: it is missing"),
        added(R"({"content":"","id":262,"special":true})", "added_tokens: got \"\", want a text"),
        added(R"({"content":7,"id":256,"special":true})", "content: got 7"),
        added(R"({"content":"<x>","special":true})", "\"<x>\": got"),
        added(R"({"content":"<x>","id":526,"special":true})", "got 526, want ids from 0 on"),
        added(R"({"content":"<x>","id":-3,"special":true})", "\"<x>\": got -3"),
        added(R"({"content":"<x>","id":33,"special":true})", "got 33, want ids from 0 on, each once"),
        added(R"({"content":"<|endoftext|>","id":255,"special":true})",
              "\"<|endoftext|>\": got 255, want an id, the same"),
        added(R"({"content":"<x>","id":262,"special":true},{"content":"<x>","id":263,"special":true})",
              "\"<x>\": got 263"),
        {R"("a":0)", R"("aa":0)", "id 0: got \"aa\", want", characters},
        {R"("a":0)", R"("":0)", "id 0: got \"\", want", characters},
        {R"("a":0)", R"("a":6)", "got 6, want ids from 0 on", characters},
        {R"("added_tokens":[])", R"("added_tokens":[{"content":"b","id":1}])",
         "added_tokens: got \"b\", want a text; special, beside characters", characters},
        {R"("normalizer":null)", R"("normalizer":{"type":"NFC"})", "normalizer: got", characters},
        {R"("a":0,"b":1,"c":2)", "", "model.vocab", characters}};
    for (const std::string form : {R"({"type":"Sequence"})", R"({"type":"Sequence","normalizers":[{"type":"NFC"},7]})",
                                   R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})",
                                   R"({"type":"NFKC"})", "{}", "7", R"(["NFC"])", R"({"type":"Lowercase"})"})
        changes.push_back({R"("normalizer":null)", R"("normalizer":)" + form, "normalizer: got "});
    for (const std::string bad : {"-1", "524", "1000000000", "2147483647", "2147483648", "4294967295", "4294967296",
                                  "18446744073709551616", "1.5", "1e1", "\"7\"", "null", "[]"})
        changes.push_back(id(R"("!":)" + bad + ",", "\"!\": got "));
    for (const std::string key : {"lstrip", "rstrip", "single_word"})
        changes.push_back(added(R"({"content":"<x>","id":262,")" + key + "\":true}",
                                "added_tokens: \"<x>\": " + key + ": got true, want false"));
    const std::pair<const char*, const char*> parts[] = {
        {R"("individual_digits":true)", R"("individual_digits":false)"}, {"(?i:", "(?:"}, {"{1,3}", "{1,2}"},
        {"Isolated", "Removed"}, {R"("invert":false)", R"("invert":true)"},
        {R"("use_regex":false)", R"("use_regex":true)"}, {"pretokenizers", "x"}};
    for (const auto& [from, to] : parts) {  // of each split, every part counts
        const size_t before = changes.size();
        for (const Split& split : splits)
            if (const std::string of = tokenizer_train_bpe("abcabc", 258, split).to_json(); has(of, from))
                changes.push_back({from, to, "pre_tokenizer: got ", of});
        EXPECT(changes.size() > before, "no split has %s", from);
    }
    rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (const auto& [from, to, part, of] : changes) {
        const Row row(from + " -> " + to);
        expect_refusals(kExitBadContent, {{replaced(of.empty() ? json : of, from, to), part}}, load, "bad.json");
    }
    getrusage(RUSAGE_SELF, &after);
    const long more = after.ru_maxrss - before.ru_maxrss;
    EXPECT(more < 64 << 10, "%ld KiB for files of 5 kB", more);
    const std::string head = json.substr(0, json.find(R"("merges":[)")) + R"("merges":)";
    const auto merges = [&](const std::string& list) { load(head + list + "}}"); };
    expect_refusals(kExitBadContent, {
        {R"(["a q"])", "merges[0]: got \"aq\", want a known token"}, {R"(["a b","ab qq"])", "merges[1]: got \"abqq\""},
        {R"(["ab"])", "merges[0]: got \"\""}, {R"(["a b c"])", "merges[0]: got \"ab c\""},
        {R"([" b"])", "merges[0]: got \"\""}, {R"([["a",3]])", "merges[0]"}, {"[7]", "merges[0]: got \"\""},
        {"{}", "model.merges: got an object, want an array"},
        {R"(["<|endof text|>"])", "merges[0]: got \"<|endoftext|>\""}}, merges, "bad.json");
}

TEST(bad_vocab_bpe) {
    const Folder f;
    std::mt19937 random(10);
    const std::string head = "#version: 0.2\n", name = "<|endoftext|>";
    Refusals rows = {
        {"", "want a vocab.bpe"}, {head, "want a vocab.bpe"},
        {head + "ab\n", "merges[0]: got \"ab\", want a known token"}, {head + "a b\n\nc d\n", "merges[1]: got \"\""},
        {head + "a b c\n", "merges[0]: got \"b c\""}, {head + "a b\r\n", "merges[0]"},
        {head + "a \n", "merges[0]: got \"\""}, {head + " b\n", "merges[0]: got \"\""},
        {head + "a b\nabc d\n", "merges[1]: got \"abc\""},
        {head + "ab c\na b\n", "merges[0]: got \"ab\""},            // of the lines before
        {head + "a b\na b\n", "got \"ab\", want each token once"},
        {head + "a b\nb c\nab c\na bc\n", "got \"abc\", want each token once"}, {head + "a \xff\n", "merges[0]"},
        {head + "a \u65e5\n", "merges[0]"}, {"First Citizen:\nBefore we proceed\n", "merges[0]: got \"First\""},
        {head, "end of text"}, {draw(random, 5000, tokenizer_byte().bytes), "merges[0]"}};
    for (size_t i = 2; i <= 13; i++)                                // a merge that makes the text of the special token
        rows[15].first += name.substr(0, i - 1) + " " + name.substr(i - 1, 1) + "\n";
    const auto load = [&](const std::string& content) { tokenizer_load(f.add("bad.bpe", content)); };
    expect_refusals(kExitBadContent, rows, load, "bad.bpe");
}

// Whatever the bytes: a tokenizer or an Error 65, and if a tokenizer, one that gives every text back.
TEST(torn_and_changed_files) {
    const Folder f;
    std::mt19937 random(8);
    const std::pair<const char*, std::string> files[] = {{"t.json", small_bpe().to_json()},
                                                         {"c.json", tokenizer_char("abc \n").to_json()},
                                                         {"t.bpe", "#version: 0.2\na b\nab c\n\xc4\xa0 a\n"}};
    for (const auto& [name, content] : files) {
        const Row row(name);
        int refused = 0;
        for (int round = 0; round < 300; round++) {
            std::string s = content;
            if (round % 2) s.resize(random() % s.size());
            else
                for (size_t k = random() % 3 + 1; k > 0; k--)
                    s[random() % s.size()] = "0123456789\"{}[],: aZ=\xff\n"[random() % 24];
            try {
                const Tokenizer t = tokenizer_load(f.add(name, s));
                const std::string text = t.kind == Tokenizer::character ? t.bytes[0] + t.bytes[0]
                                                                        : draw(random, 50, tokenizer_byte().bytes);
                EXPECT_EQ(decode(t, encode(t, text)), text);
                t.to_json();
            } catch (const Error& e) {
                refused++;
                EXPECT(e.code == kExitBadContent && has(e.message, name), "%d %s", e.code, e.message.c_str());
            }
        }
        EXPECT(refused > 50, "%d of 300 refused", refused);
    }
}

// ------------------------------------------------------------------------------------------------- Utf8Stream

// What a decoder that sees the whole text would print; end: nothing follows it.
static std::string replaced_utf8(std::string_view text, bool end) {
    std::string out;
    for (Utf8Char c; !text.empty() && (end || !decode_utf8(text).cut); text.remove_prefix(c.length)) {
        c = decode_utf8(text);
        out += c.valid ? text.substr(0, c.length) : "\uFFFD";
    }
    return out;
}

TEST(utf8_stream) {
    const struct { std::vector<std::string> pushed, shown; } rows[] = {     // the last is of the end
        {{"x\xc3", "", "\xa9y"}, {"x", "", "\u00e9y", "", ""}}, {{"\xf0\x9f", "z"}, {"", "\uFFFDz", ""}},
        {{"\xe6\x97"}, {"", "\uFFFD", ""}}, {{"\xf0", "\x9f", "\x98", "\x80"}, {"", "", "", "\U0001F600", ""}},
        {{"\xff\xe6\x97", "\xe6\x97\xa5"}, {"\uFFFD", "\uFFFD\u65e5", ""}},      // never more than 3 bytes back
        {{"\xf0\x80", "\xed\xa0"}, {"\uFFFD\uFFFD", "\uFFFD\uFFFD", ""}}};        // nothing can complete them
    for (const auto& [pushed, want] : rows) {
        Utf8Stream s;
        std::vector<std::string> got;
        for (const std::string& piece : pushed) got.push_back(s.push(piece));
        while (got.size() < want.size()) got.push_back(s.finish());
        EXPECT_EQ(got, want);
        EXPECT(s.push("z") == "z", "after the end");
    }
    std::mt19937 random(9);
    for (int round = 0; round < 2000; round++) {
        const std::string text = draw(random, random() % 12, kMixed);
        const Row row(text);
        Utf8Stream stream;
        std::string out;
        for (size_t at = 0; at < text.size();) {
            const size_t n = std::min<size_t>(1 + random() % 4, text.size() - at);
            out += stream.push(text.substr(at, n));
            at += n;
            EXPECT_EQ(out, replaced_utf8(text.substr(0, at), false));
        }
        EXPECT_EQ(out + stream.finish(), replaced_utf8(text, true));
    }
}

// With `names` a text spells control tokens: none stands twice at an end of a document, and no cut goes through one.
TEST(names_on_request) {
    Tokenizer own = tokenizer_byte(), theirs = own;
    theirs.begin = 257;
    theirs.added.insert(theirs.added.end(), {{257, "<s>"}, {258, "<t>", false}});
    theirs.bytes.resize(259);
    tokenizer_finish(&theirs);
    const auto document = [](Tokenizer* t, const std::string& text, bool names) {
        std::vector<int> tokens;
        std::string shown;
        t->names = names;
        t->encode_document(text, &tokens);
        for (const int token : tokens) shown += token < 256 ? char(token) : "|^#"[token - 256];
        return shown;
    };
    const std::string end = "<|endoftext|>";
    const struct { std::string text, own, theirs; size_t names; std::string first; } rows[] = {
        {"a", "|a", "^a|", 0, ""}, {"a" + end, "|a", "^a|", 1, end}, {end + "a", "|a", "^|a|", 1, end},
        {"a" + end + "b", "|a|b", "^a|b|", 1, end}, {end, "|", "^||", 1, end}, {end + end, "|", "^||", 2, end},
        {"a" + end + end + "b\n" + end, "|a||b\n", "^a||b\n|", 3, end}, {"<s>a", "|<s>a", "^a|", 1, "<s>"},
        {"a<s><t>", "|a<s><t>", "^a^#|", 1, "<s>"},
        {"<|endoftext" + end + "|>", "|<|endoftext||>", "^<|endoftext||>|", 1, end}};
    for (const auto& [text, of_own, of_theirs, names, first] : rows) {
        const Row row(text);
        EXPECT_EQ(document(&own, text, true), of_own);
        EXPECT_EQ(document(&theirs, text, true), of_theirs);
        EXPECT_EQ(document(&own, text, false), "|" + text);
        Spelled spelled;
        theirs.find_names(text, &spelled);
        EXPECT_EQ(spelled.count, names);
        EXPECT_EQ(spelled.first, first);
    }
    const std::string text = "ab" + end + "cd";
    for (size_t at = 0; at <= text.size(); at++)
        EXPECT(own.outside_names(text, at) == (at > 2 && at < 2 + end.size() ? 2 : at), "a cut at %zu", at);
    own.names = true;
    EXPECT(own.begins_with_name(end + "a") && !own.begins_with_name("a" + end), "at the beginning");
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
