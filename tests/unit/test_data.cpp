// test_data.cpp -- every format and every refusal of --data, the cut of the validation part, vocabularies, the loader.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <set>
#include "src/app/app.h"
#include "src/app/program.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/data/orders/order.h"
#include "tests/test.h"
#include "tests/unit/text.h"
#include "tools/text/rows.h"
#include "tools/text/token_files.h"

static std::vector<int> counting(size_t n, size_t first = 0) {
    std::vector<int> v;
    for (size_t i = 0; i < n; i++) v.push_back(int((first + i) % 50000));
    return v;
}
template <class T = uint16_t> std::string raw(const std::vector<int>& ids) {
    const std::vector<T> v(ids.begin(), ids.end());
    return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}
static std::string llmc_header(int version, uint32_t tokens, int magic = 20240520) {
    return raw<uint32_t>({magic, version, int(tokens)}) + std::string(1012, '\0');
}
static std::string llmc(const std::vector<int>& ids) { return llmc_header(1, uint32_t(ids.size())) + raw(ids); }
static std::string llama_shard(const std::vector<int>& ids) {
    return llmc_header(7, uint32_t(ids.size()), 20240801) + raw<uint32_t>(ids);
}
static std::string npy(const std::string& dict, const std::string& data) {
    std::string header = dict;
    while ((10 + header.size() + 1) % 64) header += ' ';
    header += '\n';
    return std::string("\x93NUMPY\x01\0", 8) + char(header.size()) + char(header.size() >> 8) + header + data;
}
static std::string npy_of(const char* type, size_t n, const std::string& data) {
    return npy(format("{'descr': '%s', 'fortran_order': False, 'shape': (%zu,), }", type, n), data);
}

static TextOptions options_for(const std::string& data, int T = 4, const std::string& tokenizer = "",
                               const std::string& val_data = "") {
    return {.data = data, .val_data = val_data, .tokenizer = tokenizer, .seq_len = T};
}
static Opened open_one(const std::string& data, int T = 4, const std::string& tokenizer = "",
                       const std::string& val_data = "") {
    return open_text(options_for(data, T, tokenizer, val_data));
}

// A table: a file's name, its content, and what is said of it, beside the name, when it is opened as a whole.
struct BadFile { std::string name, content, part; };
static void expect_bad_files(const std::vector<BadFile>& rows, const Tokenizer& tokenizer, int T) {
    const Folder f;
    for (const auto& [name, content, part] : rows) {
        const Row row(name + " " + content);
        const std::string path = f.add(name, content);
        expect_error(kExitBadContent, part, [&] { open_whole(path, tokenizer, T); }, name);
        unlink(path.c_str());
    }
}

// All tokens of a dataset's shards, one after the other.
static std::vector<int> all_tokens(const Dataset& d, int vocab = 1 << 30) {
    std::vector<int> all;
    for (const auto& s : d.shards) {
        std::vector<int> part(size_t(s.tokens));
        s.read(0, part.size(), part.data(), vocab);
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}
static std::vector<int> tokens_of_text(std::string_view text) {
    return {(const uint8_t*)text.data(), (const uint8_t*)text.data() + text.size()};
}
static std::string random_text(size_t n, unsigned seed = 1) {
    std::string text;
    for (size_t i = 0; i < n; i++)
        text += char((seed = seed * 1664525u + 1013904223u) >> 24) % 7 ? char('a' + (seed >> 16) % 26) : ' ';
    return text;
}

// ------------------------------------------------------------------------------------------------------------ samples

static void expect_samples(const Dataset& d, const std::vector<std::vector<int>>& shards, const char* what) {
    uint64_t i = 0;
    std::vector<int> x(size_t(d.T)), y(size_t(d.T));
    for (const std::vector<int>& tokens : shards)
        for (size_t k = 0; (k + 1) * size_t(d.T) < tokens.size(); k++, i++) {
            EXPECT(i < d.samples, "%s: too few samples, %d", what, int(d.samples));
            d.sample(i, x.data(), y.data(), 1 << 30);
            const int* const want = &tokens[k * x.size()];
            EXPECT(std::equal(x.begin(), x.end(), want) && std::equal(y.begin(), y.end(), want + 1), "%s: sample %d",
                   what, int(i));
        }
    EXPECT(i == d.samples, "%s: %d samples, want %d", what, int(d.samples), int(i));
}

TEST(samples_of_one_text) {
    const Folder f;
    for (size_t n : {60, 61, 64, 65, 100}) {
        const std::string text = random_text(n);
        const Opened data = open_one(f.add("a.txt", text));
        const size_t cut = n * 9 / 10;
        expect_samples(data.train, {tokens_of_text(text.substr(0, cut))}, "train");
        expect_samples(data.val, {tokens_of_text(text.substr(cut))}, "val");
        EXPECT(data.train.tokens == cut && data.val.tokens == n - cut && data.vocab_size == 257, "tokens");
    }
    const Opened data = open_one(f.add("a.txt", random_text(100)));
    int x[4], y[4];
    expect_error(kExitOther, "sample 22 of 22", [&] { data.train.sample(22, x, y, 257); });
}

// Where in its sample each token's document begins: at the token before a document, or behind the one behind it.
TEST(documents_of_samples) {
    const Folder f;
    Dataset d = open_whole(f.add("a.bin", raw({7, 7, 1, 2, 7, 3, 4, 5, 8, 6, 7, 1, 8, 8, 2, 7, 3})), Tokenizer(), 8);
    struct Case { DocumentTokens between; std::vector<std::vector<int>> want; };
    for (const Case& c : {Case{{7, -1}, {{0, 1, 1, 1, 4, 4, 4, 4}, {0, 0, 2, 2, 2, 2, 2, 7}}},
                          Case{{7, 8}, {{0, 1, 1, 1, 4, 4, 4, 4}, {0, 0, 2, 2, 2, 2, 2, 7}}},
                          Case{{-1, 8}, {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 1, 1, 1, 5, 6, 6}}}}) {
        d.apart = c.between;
        BatchLoader loader(d, {[](const Sampler&, uint64_t i) { return i; }, d.begins, 3, 2, 1, 1}, 9, 0, 1, 0);
        const BatchLoader::Batch& batch = loader.next();
        for (size_t i = 0; i < 2; i++) {
            std::vector<int> x(8), y(8), begin(8, -1);
            d.sample(i, x.data(), y.data(), 9, nullptr, begin.data());
            EXPECT_EQ(begin, c.want[i]);
            EXPECT(std::equal(begin.begin(), begin.end(), &batch.begin[i * 8]), "sample %zu of a batch", i);
        }
        std::vector<int> all(48, -1);
        batch.copy(all.data());
        EXPECT(std::equal(all.begin(), all.begin() + 16, batch.tokens.begin()) && all[16] == batch.targets[0] &&
                   std::equal(all.begin() + 32, all.end(), batch.begins()), "the copy");
    }
}

TEST(samples_of_many_shards) {
    const Folder f;
    std::vector<std::vector<int>> shards;
    for (size_t n : {9, 1, 4, 5, 0, 30, 12}) {  // some give no sample at T = 4; an empty one is between others
        const std::vector<int> tokens = counting(n, shards.size() * 100);
        f.add(format("s%zu.bin", shards.size()), llmc(tokens));
        shards.push_back(tokens);
    }
    const Dataset d = open_whole(f.path, Tokenizer(), 4);
    expect_samples(d, shards, "shards");
    EXPECT(d.samples == 2 + 0 + 0 + 1 + 0 + 7 + 2 && d.tokens == 61, "%d samples, %d tokens", int(d.samples),
           int(d.tokens));
}

// ------------------------------------------------------------------------------------------------------- packed rows

// What is at T places: pieces of documents, "12+3", in rows.
static std::string packed(uint64_t T, const std::vector<uint64_t>& lengths, uint64_t more = 1) {
    uint64_t at = 0, end = more;
    for (const uint64_t n : lengths) end += n;
    Packer p = {T};
    for (const uint64_t n : lengths) {
        p.add(at, at + n, end);
        at += n;
    }
    p.pack();
    std::string text;
    for (size_t i = 0, row = 0; i < p.pieces.size(); i++) {
        const bool begins = row < p.rows.size() && p.rows[row] == i;
        row += begins;
        text += format("%s%d+%d", i == 0 ? "" : begins ? " | " : " ", int(p.pieces[i] >> Piece::kBits),
                       int(p.pieces[i] & 0xffffff));
    }
    return text;
}
TEST(packing) {
    const struct { uint64_t T; std::vector<uint64_t> lengths; uint64_t more; const char* rows; } rows[] = {
        {8, {}, 1, ""},
        {8, {3}, 1, "0+3"},
        {8, {3, 8, 5}, 1, "0+3 11+5 | 3+8"},                        // a row is full
        {8, {5, 4, 3, 4}, 1, "0+5 9+3 | 5+4 12+4"},                 // the longest first
        {8, {6, 5, 3, 2}, 1, "0+6 14+2 | 6+5 11+3"},                // each where the least room is left
        {8, {2, 2, 2, 2, 2}, 1, "0+2 2+2 4+2 6+2 | 8+2"},           // of the same length: in order
        {8, {19, 4}, 1, "0+8 | 8+8 | 16+3 19+4"},                   // a long one is cut, and its rest is one
        {8, {1, 1, 1}, 1, "0+1 1+1 2+1"},
        {8, {4, 1}, 0, "0+4"},                                      // the shard's last token has no target
        {8, {4, 9}, 0, "0+4 | 4+8"},
        {8, {4, 2}, 0, "0+4 4+2"},
        {1, {2, 1}, 1, "0+1 | 1+1 | 2+1"},
        {1 << 25, {20000000}, 1, "0+16777215 16777215+3222785"}};   // what a length in the table can say
    for (const auto& [T, lengths, more, want] : rows) EXPECT_EQ(packed(T, lengths, more), want);
}

// Against the rule in plain loops: over several blocks, each piece is in one row, and rows begin in order.
TEST(packing_by_plain_loops) {
    const uint64_t T = 50, count = 150000, block = 65536;
    std::vector<uint64_t> lengths(count);
    unsigned seed = 1;
    for (uint64_t& n : lengths) n = 1 + ((seed = seed * 1664525u + 1013904223u) >> 16) % 97;
    lengths[7] = 1000;
    Packer p = {T};
    std::vector<std::vector<uint64_t>> want;            // rows of pieces
    uint64_t at = 0, sum = 0;
    for (uint64_t from = 0; from < count; from += block) {
        std::vector<std::vector<uint64_t>> by_length(T + 1), made;
        for (uint64_t i = from; i < std::min(count, from + block); at += lengths[i++]) {
            p.add(at, at + lengths[i], UINT64_MAX);
            for (uint64_t k = 0; k < lengths[i]; k += T)
                by_length[std::min(T, lengths[i] - k)].push_back(at + k);
        }
        std::vector<std::vector<size_t>> with_room(T + 1);              // rows
        for (uint64_t n = T; n > 0; n--)
            for (const uint64_t first : by_length[n]) {
                uint64_t room = n;
                while (room < T && with_room[room].empty()) room++;
                size_t row = made.size();
                if (room == T) made.push_back({});
                else {
                    row = with_room[room].front();
                    with_room[room].erase(with_room[room].begin());
                }
                made[row].push_back(first << Piece::kBits | n);
                with_room[room - n].push_back(row);
                sum += n;
            }
        for (auto& row : made) std::ranges::sort(row);
        std::ranges::sort(made);
        want.insert(want.end(), made.begin(), made.end());
    }
    p.pack();
    EXPECT_EQ(p.rows.size(), want.size());
    EXPECT_EQ(p.tokens, sum);
    for (size_t r = 0; r < want.size(); r++) {
        const size_t end = r + 1 < want.size() ? p.rows[r + 1] : p.pieces.size();
        EXPECT(std::vector(p.pieces.begin() + ptrdiff_t(p.rows[r]), p.pieces.begin() + ptrdiff_t(end)) == want[r],
               "row %zu", r);
    }
}

// The rows of a part as text: a document's tokens between blanks, "." for padding, and the targets behind ">".
static std::string shown_rows(const Dataset& d) {
    std::string text;
    std::vector<int> x(size_t(d.T)), y(x), begin(x);
    const auto letter = [](int token) { return token == 256 ? '^' : token < 0 ? '.' : char(token); };
    for (uint64_t i = 0; i < d.samples; i++) {
        d.sample(i, x.data(), y.data(), 257, nullptr, begin.data());
        text += i ? " | " : "";
        for (int t = 0; t < d.T; t++) {
            if (x[size_t(t)] == 0) EXPECT(begin[size_t(t)] == t && y[size_t(t)] == -1, "padding at %d", t);
            text += begin[size_t(t)] == t && t ? " " : "";
            text += x[size_t(t)] ? letter(x[size_t(t)]) : '_';
        }
        text += ">";
        for (const int target : y) text += letter(target);
        uint64_t trained = 0;
        for (const int target : y) trained += target >= 0;
        EXPECT_EQ(d.trained(i, 257), trained);
    }
    return text;
}
static TextOptions packing_options(const std::string& data, int T, const std::string& val = "") {
    TextOptions o = options_for(data, T, "", val);
    o.rows = "documents";
    return o;
}
static std::string json_lines(const Words& texts) {
    std::string lines;
    for (const std::string& text : texts) lines += JsonLine().add("text", text).text() + "\n";
    return lines;
}
TEST(rows_of_documents) {
    const Folder f;
    const std::string val = f.add("val.jsonl", json_lines({"xy"}));
    const struct { int T; Words texts; const char* rows; } rows[] = {
        {6, {"ab", "cde", "f"}, "^ab _ _ _>ab^... | ^cde ^f>cde^f."},
        {6, {"ab", "cdefghi"}, "^ab hi _>ab^i.. | ^cdefg>cdefgh"},
        {6, {"abcdefghijklm"}, "^abcde>abcdef | fghijk>ghijkl | lm _ _ _ _>m....."},
        {20, {"ab", "c"}, "^ab ^c _ _ _ _ _ _ _ _ _ _ _ _ _ _ _>ab^c................"},
        {3, {"abcde", "f"}, "^ab>abc | cde>de^ | ^f _>f.."}};
    for (const auto& row : rows) {
        const Row name(row.rows);
        const Opened data = open_text(packing_options(f.add("a.jsonl", json_lines(row.texts)), row.T, val));
        EXPECT_EQ(shown_rows(data.train), row.rows);
        EXPECT(has(data.train.description, "; packed rows, of which padding is"), "%s",
               data.train.description.c_str());
    }
}

// Token files are packed, too. A document may be empty, and a file may begin within one.
TEST(rows_of_token_files) {
    const Folder f;
    f.add("a.u32.bin", raw<uint32_t>({'a', 256, 'b', 'c', 256, 256, 256, 'd'}));
    f.add("b.u32.bin", raw<uint32_t>({256}));
    f.add("c.u32.bin", raw<uint32_t>({256, 'e'}));
    f.add("val.u32.bin", raw<uint32_t>({256, 'f', 256}));
    TextOptions o = packing_options(f.path, 4);
    o.tokenizer = "byte";
    const Opened data = open_text(o);
    EXPECT_EQ(shown_rows(data.train), "a ^bc>^bc^ | ^ ^ _ _>^^.. | ^d ^e>d.e.");
    EXPECT_EQ(shown_rows(data.val), "^f _ _>f^..");
    EXPECT_EQ(data.train.first, std::vector<uint64_t>{0, 3, 3, 3});
    EXPECT(std::fabs(data.train.padding - 2.0 / 12) < 1e-12, "%g", data.train.padding);
}

// A source of a mixture shares no row with another; files of one source do.
TEST(sources_of_packed_rows) {
    const Folder f, texts;
    const std::string a = f.add("a.jsonl", json_lines({"aaaa", "a"})), b = f.add("b.jsonl", json_lines({"b", "bb"})),
                      val = f.add("v.jsonl", json_lines({"vv"}));
    for (const char* text : {"aaaa", "bb", "cccccc", "d"}) texts.add(std::string(1, *text) + ".txt", text);
    const struct { std::string data; const char* rows; std::vector<uint64_t> first; } rows[] = {
        {a + ":0.4," + b + ":0.6", "^b ^bb _ _ _>b^bb.... | ^aaaa ^a _>aaaa^a..", {0, 1, 2}},
        {texts.path, "^aaaa ^bb>aaaa^bb^ | ^cccccc _>cccccc^. | ^d _ _ _ _ _ _>d.......", {0, 3}}};
    for (const auto& [data, want, first] : rows) {
        const Opened opened = open_text(packing_options(data, 8, val));
        EXPECT_EQ(shown_rows(opened.train), want);
        EXPECT_EQ(opened.train.first, first);
    }
}

TEST(what_cannot_be_packed) {
    const Folder f;
    const std::string text = f.add("a.txt", random_text(100)), tokens = f.add("c.bin", raw(counting(200))),
                      lines = f.add("b.jsonl", json_lines({"aa", "b", "c"}));
    const struct { std::string data, tokenizer, val; } rows[] = {
        {text, "", ""}, {lines, "char", ""}, {lines, "", text}, {tokens, "", ""}, {tokens, "byte", ""}};
    for (const auto& [data, tokenizer, val] : rows) {
        TextOptions o = packing_options(data, 8, val);
        o.tokenizer = tokenizer;
        expect_error(kExitUsage, "--rows: got documents, but the data have no token between documents: " +
                     (val.empty() ? data : val), [&] { open_text(o); });
    }
}

// A damaged table is refused, or gives other pieces of the same data. Its numbers are counts, rows, pieces and shards.
TEST(damaged_rows) {
    const Folder f;
    const Words texts = {"ab", "cde", "f", "ghijklmnop"};
    const std::string folder =
        prepare(packing_options(f.add("a.jsonl", json_lines(texts)), 6), f.path + "/cache", [] {});
    const std::string good = read_file(folder + "/manifest.json");
    const std::string rows = R"("rows":")";
    std::string table = good.substr(good.find(rows) + rows.size());
    table = folder + "/" + table.substr(0, table.find('"'));
    const std::string whole = read_file(table);
    std::vector<int> x(6), y(6), begin(6);
    const auto read_all = [&] {
        const Dataset d = read_data(folder, 6).train;
        for (uint64_t i = 0; i < d.samples; i++) d.sample(i, x.data(), y.data(), 257, nullptr, begin.data());
    };
    read_all();
    for (size_t at = 0; at < whole.size(); at += 8)
        for (const uint64_t value : {uint64_t(0), uint64_t(7), uint64_t(1) << 24, (uint64_t(1) << 25) - 1,
                                     uint64_t(1) << 63, UINT64_MAX}) {
            std::string bad = whole;
            std::memcpy(&bad[at], &value, 8);
            put(table, bad);
            try {
                read_all();
            } catch (const Error& e) {
                EXPECT(e.code == kExitBadContent && has(e.message, "rows.bin: "), "%s", e.message.c_str());
            }
        }
    for (const size_t bytes : {size_t(0), size_t(31), whole.size() / 2, whole.size() - 1}) {
        put(table, whole.substr(0, bytes));
        expect_error(kExitBadContent, "rows.bin: ", read_all);
    }
    put(table, whole);
    read_all();
}

// ------------------------------------------------------------------------------------------------------------ mixtures

static std::string json_texts(int n) {
    std::string lines;
    for (int i = 0; i < n; i++) lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
    return lines;
}

// The samples of a source are those that it has alone, in both parts, whatever its place in --data and the scale of the
// weights. The heaviest comes first.
TEST(sources_of_a_mixture) {
    const Folder f;
    f.add("a.txt", random_text(100));
    f.add("b.jsonl", json_texts(30));
    make_directories(f / "c");
    f.add("c/train.txt", random_text(50, 3));
    f.add("c/val.txt", random_text(40, 4));
    const std::string a = f / "a.txt", b = f / "b.jsonl", c = f / "c";
    const Opened data = open_one(a + ":0.3," + b + ":0.6," + c + ":0.1");
    uint64_t at[2] = {};
    for (const auto& [path, weight] : {std::pair(b, 0.6), {a, 0.3}, {c, 0.1}}) {
        const Row row(path);
        const Opened alone = open_one(path);
        for (const Dataset Data::* part : {&Data::train, &Data::val}) {
            const Dataset &all = data.*part, &own = alone.*part;
            const size_t k = path == b ? 0 : path == a ? 1 : 2;
            EXPECT_EQ(all.paths.size(), 3);
            EXPECT(all.paths[k] == path && all.weights[k] == weight, "source %zu", k);
            uint64_t& first = at[part == &Data::val];
            EXPECT_EQ(all.begins[k], first);
            EXPECT_EQ(all.begins[k + 1], first += own.samples);
            std::vector<int> x(8), y(8);
            for (uint64_t i = 0; i < own.samples; i++) {
                all.sample(all.begins[k] + i, &x[0], &x[4], 257);
                own.sample(i, &y[0], &y[4], 257);
                EXPECT_EQ(x, y);
            }
        }
    }
    EXPECT(data.train.samples == at[0] && data.val.samples == at[1], "no other samples");
    // b has the token between documents; a and c, of a single text, have none.
    EXPECT_EQ(data.vocabulary.ends, std::vector<int>{256});
    const std::string is = data.train.description;
    EXPECT(is.starts_with("60 % " + b + ": "), "%s", is.c_str());
    EXPECT(is.find("\n        30 % " + a + ": 90 training and 10") != is.npos, "%s", is.c_str());

    const std::string hashes = data.train.hash + data.val.hash;
    const auto hashes_of = [](const std::string& mixture) {
        const Opened data = open_one(mixture);
        return data.train.hash + data.val.hash;
    };
    EXPECT_EQ(hashes_of(c + ":1," + a + ":3," + b + ":6"), hashes);
    rename(a.c_str(), (f / "z").c_str());
    EXPECT_EQ(hashes_of(f / "z:0.3," + b + ":0.6," + c + ":0.1"), hashes);
    EXPECT(hashes_of(f / "z:0.4," + b + ":0.5," + c + ":0.1") != hashes, "other weights");
    EXPECT(hashes_of(f / "z:0.3," + b + ":0.7") != hashes, "without one");
    EXPECT_EQ(hashes_of(b + ":0.2"), hashes_of(b));
    EXPECT_EQ(hashes_of(f / "z:1," + c + ":1"), hashes_of(c + ":1," + (f / "z:1")));
    const Opened own = open_one(b + ":2," + c + ":1", 4, "", f / "z");
    EXPECT(own.val.paths.size() == 1 && own.val.tokens == 100 && own.train.paths.size() == 2, "--val-data");
    // What has such a name is a file.
    const std::string name = f.add("p:0.5,q:0.5", random_text(70));
    EXPECT_EQ(open_one(name).train.tokens, 63);
}

TEST(a_mixture_has_one_tokenizer) {
    const Folder f;
    f.add("a.txt", std::string(30, 'a') + "bcd");
    f.add("b.jsonl", "{\"text\": \"xyzabc\"}\n{\"text\": \"12345\"}\n");
    f.add("t.bin", raw(counting(100)));
    const std::string mixture = f / "a.txt" + ":1," + (f / "b.jsonl") + ":1";
    const Opened data = open_text(options_for(mixture, 4, "char"), false);
    EXPECT(data.vocab_size == 12 && data.vocabulary.name == "char", "of all text: %d", data.vocab_size);
    const Opened bpe = open_text(options_for(mixture, 4, "bpe:258"), false);
    EXPECT_EQ(std::ranges::count(bpe.vocabulary.bytes, "aa"), 1);
    const Opened tokens = open_text(options_for(f / "a.txt:1," + (f / "t.bin:2"), 4, "byte"), false);
    EXPECT_EQ(tokens.train.samples, 22 + 7);
    const Opened pairs = open_text(options_for(
        f / "a.txt:1," + f.add("p.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                                          "{\"prompt\": \"c\", \"completion\": \"d\"}\n") + ":2", 8), false);
    EXPECT(pairs.train.trained(0, 257) < 8 && pairs.train.trained(1, 257) == 8, "the loss counts what it counts alone");
}

TEST(refused_mixtures) {
    const Folder f;
    for (const char* name : {"a.txt", "same.txt"}) f.add(name, random_text(200));
    f.add("b.txt", random_text(300, 5));
    f.add("short.txt", random_text(4));
    f.add("empty.txt", "");
    f.add("t.bin", raw(counting(100)));
    f.add("c.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
                     "\"b\"}]}\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                     "\"content\": \"c\"}]}\n");
    const struct { int code; const char *mixture, *tokenizer, *part; } rows[] = {
        {kExitUsage, "a.txt,b.txt", "", "/a.txt, want PATH:WEIGHT with a weight from 1e-6"},
        {kExitUsage, "a.txt:0.5,b.txt", "", "/b.txt, want PATH:WEIGHT"},
        {kExitUsage, "a.txt:-1,b.txt:2", "", "/a.txt:-1, want PATH:WEIGHT"},
        {kExitUsage, "a.txt:0,b.txt:2", "", "/a.txt:0, want PATH:WEIGHT"},
        {kExitUsage, "a.txt:nan,b.txt:2", "", "/a.txt:nan, want"},
        {kExitUsage, "a.txt:inf,b.txt:2", "", "/a.txt:inf, want"},
        {kExitUsage, "a.txt:1e-7,b.txt:2", "", "a.txt:1e-7, want"},
        {kExitUsage, "a.txt:0.5x,b.txt:1", "", "0.5x, want"},
        {kExitUsage, "a.txt:,b.txt:1", "", "/a.txt:, want"}, {kExitUsage, "a.txt:-1", "", "/a.txt:-1, want"},
        {kExitUsage, "a.txt:1,a.txt:2", "", "got the same data as"},
        {kExitUsage, "a.txt:1,same.txt:1", "", "got the same data"},
        {kExitNoInput, "a.txt:1,none.txt:1", "", "/none.txt: no file is there"},
        {kExitNoInput, "none:x", "", "none:x: no file is there"},
        {kExitNoInput, "none:1", "", "/none: no file is there"},
        {kExitBadContent, "a.txt:1,empty.txt:1", "", "/empty.txt: got too few training tokens"},
        {kExitBadContent, "short.txt:1,b.txt:1", "", "/short.txt: got too few training tokens"},
        {kExitUsage, "a.txt:1,t.bin:1", "", "t.bin: got another vocabulary (none) than "},
        {kExitUsage, "a.txt:1,t.bin:1", "char", "it learns from the text of a training run"},
        {kExitUsage, "a.txt:1,c.jsonl:2", "", "c.jsonl: got conversations beside other data"},
        {kExitUsage, "a.txt:2,c.jsonl:1", "", "c.jsonl: got conversations beside other data"}};
    for (const auto& [code, mixture, tokenizer, part] : rows) {
        const Row row(mixture);
        std::string paths;
        for (const std::string& item : split(mixture, ',')) paths += (paths.empty() ? "" : ",") + (f / item);
        expect_error(code, part, [&, &tokenizer = tokenizer] { open_one(paths, 4, tokenizer); });
    }
}

// An evaluation scores the first batches of each source, and no batch has two.
TEST(batches_of_sources) {
    const Dataset d = {.paths = {"a", "b", "c"}, .weights = {0.5, 0.3, 0.2}, .begins = {0, 5, 7, 9}};
    const auto count = [&](int B, int64_t most) {
        return std::vector{d.batches(0, B, most), d.batches(1, B, most), d.batches(2, B, most)};
    };
    EXPECT_EQ(count(2, 0), std::vector<uint64_t>{3, 1, 1});
    EXPECT_EQ(count(2, 2), std::vector<uint64_t>{2, 1, 1});
    EXPECT_EQ(count(1, 0), std::vector<uint64_t>{5, 2, 2});
}

// ------------------------------------------------------------------------------------------------------------- formats

TEST(token_formats) {
    const Folder f;
    const std::vector<int> want = counting(50);
    const std::pair<const char*, std::string> files[] = {
        {"a.bin", llmc(want)}, {"c.bin", raw(want)}, {"d.npy", npy_of("<u2", 50, raw(want))},
        {"e.npy", npy_of("<u4", 50, raw<uint32_t>(want))},
        {"h.npy", npy("{'shape': (50,), 'fortran_order': False, 'descr': '<u2'}", raw(want))},
        {"i", llmc(want)},  // the magic number counts, not the name
        {"j.bin", llama_shard(want)}};
    for (const auto& [name, content] : files) {
        const Dataset d = open_whole(f.add(name, content), Tokenizer(), 7);
        EXPECT(all_tokens(d) == want, "%s", name);
        EXPECT(d.samples == 7, "%s: %d samples", name, int(d.samples));
    }
    const std::vector<int> llama = {128000, 128255, 0, 65535, 65536, 7};
    const std::string shard = f.add("l.bin", llama_shard(llama));
    EXPECT_EQ(all_tokens(open_whole(shard, Tokenizer(), 4)), llama);
    make_directories(f / "both");
    f.add("both/a.bin", llmc(want));
    f.add("both/b.bin", read_file(shard));
    EXPECT(open_whole(f / "both", Tokenizer(), 4).tokens == 56, "shards of both kinds");
    make_directories(f / "numpy");
    f.add("numpy/a.npy", files[2].second);
    f.add("numpy/tokenizer.json", tokenizer_byte().to_json());
    EXPECT(open_whole(f / "numpy", Tokenizer(), 4).tokens == 50, "a tokenizer.json beside them is no data");
    const Opened data = open_one(f / "a.bin", 4);
    EXPECT(data.vocab_size == 50257 && data.tokenizer.kind == Tokenizer::none, "vocabulary %d", data.vocab_size);
    EXPECT(data.train.tokens == 45 && data.val.tokens == 5, "cut at %d", int(data.train.tokens));
    EXPECT_EQ(all_tokens(data.val), std::vector<int>(want.begin() + 45, want.end()));
}

TEST(token_refusals) {
    const std::string u16 = raw(counting(100));
    const std::string pair = "{'descr': [('a', '<u2'), ('b', '<u2')], 'fortran_order': False, 'shape': (50,), }";
    const std::string huge = "{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775907,), }";
    std::vector<BadFile> rows = {
        {"a.bin", llmc_header(2, 100) + u16, "got version 2, want a header with version 1"},
        {"a.bin", llmc_header(1, 50, 20240801) + u16, "got version 1, want a header with version 7"},
        {"a.bin", llmc_header(7, 100, 20240801) + u16, "got 200 bytes of tokens, want 400 for 100 tokens"},
        {"a.bin", llmc_header(1, 101) + u16, "got 200 bytes of tokens, want 202 for 101 tokens"},
        {"a.bin", llmc_header(1, 99) + u16, "want 198"},
        {"a.bin", llmc_header(1, 0x80000064u) + u16, "want 4,294,967,496"},  // would wrap to 200 in 32 bits
        {"a.bin", llmc_header(1, 100) + u16 + "x", "got 201 bytes"},
        {"a.bin", llmc_header(1, 0).substr(0, 1023), "want a header"},
        {"a.bin", llmc_header(1, 0).substr(0, 4), "want a header"},
        {"a.bin", u16 + "x", "got 201 bytes of tokens, want 200"},
        {"a.dat", u16, "neither text nor tokens"},
        {"a.txt", std::string("\xff\xfeh\0i\0", 6), "want UTF-8 text"},
        {"a.npy", "numpy", "got no header, want a .npy of version 1"},
        {"a.npy", std::string("\x93NUMPY\x02\0\x10\0\0\0", 12) + u16, "version 1"},
        {"a.npy", std::string("\x93NUMPY\x01\0\xff\xff", 10), "got no header"},
        {"a.npy", std::string("\x93NUMPY\x01\0\x10", 9), "version 1"},
        {"a.npy", npy(pair, u16), "one dimension of '<u2'"},
        {"a.npy", npy(huge, u16), "overflows"},  // * 2 wraps to 198
        {"a.npy", npy("{}", u16), "got {}"},
        {"a.npy", npy_of("<u2", 101, u16), "got 200 bytes of tokens, want 202"},
        {"a.npy", npy_of("<u2", 4, raw(counting(4))), "got 4 validation tokens, want at least 5"},
        {"a.bin", "", "got 0 validation tokens"},
        {"a.bin", std::string(100, 'x'), "rename it to .txt"},
        {"a.bin", llmc({7}), "got 1 validation tokens"}};
    for (const char* type : {">u2", "|u1", "<f4", "|O", "<u8", "<i4"})
        rows.push_back({"a.npy", npy_of(type, 100, u16), "one dimension of '<u2' or '<u4'"});
    for (const char* shape : {"(10, 10), }", "(), }", "(-1,), }", "(99999999999999999999,), }", "('9',)", "", "(100"})
        rows.push_back({"a.npy", npy(std::string("{'descr': '<u2', 'fortran_order': False, 'shape': ") + shape, u16),
                        "one dimension"});
    expect_bad_files(rows, Tokenizer(), 4);
}

static std::string swapped(std::string bytes, size_t width) {
    for (size_t i = 0; i < bytes.size(); i += width) std::reverse(&bytes[i], &bytes[i] + width);
    return bytes;
}

// Raw numbers of another width than the name says are refused; a name states it.
TEST(raw_widths) {
    const Folder f;
    std::vector<int> gpt2, llama, chars, dna, zeros(500);
    for (int i = 0; i < 500; i++) {
        gpt2.push_back(i * 7919 % 50257);
        llama.push_back(i * 7919 % 128256);
        chars.push_back(i * 7919 % 65);
        dna.push_back(i * i / 7 % 4);
    }
    for (const std::vector<int>& ids : {gpt2, llama, chars}) {
        std::vector<int> negative = ids;
        negative[3] = -100;
        const std::pair<std::string, const char*> wrong[] = {
            {raw<uint32_t>(ids), "like uint32, want uint16; rename it to NAME.u32.bin or .u64.bin"},
            {raw<int64_t>(ids), "like uint64"}, {raw<int32_t>(negative), "like uint32"},
            {raw<int64_t>(negative), "like uint64"}, {swapped(raw<int64_t>(ids), 8), ""},
            {swapped(raw<uint32_t>(ids), 4), ""}, {swapped(raw(ids), 2), ""}, {raw<float>(ids), ""},
            {raw<double>(ids), ""}, {std::string(3, 'x') + raw<uint32_t>(ids), ""}};
        for (const auto& [bytes, part] : wrong)
            expect_error(kExitBadContent, part, [&] { open_one(f.add("a.bin", bytes)); });
    }
    const auto expect_bytes = [&](const char* name, const std::string& bytes, const char* kind) {
        const Row row(kind);
        expect_error(kExitBadContent, "uint8 or int8, want uint16: numpy.fromfile(FILE, 'u1')",
                     [&] { open_one(f.add(name, bytes)); });
    };
    expect_bytes("a.u8.bin", raw(chars), "a name that says so");
    expect_bytes("a.i8.bin", raw(chars), "a name that says so");
    const struct { const char* kind; int (*token)(int i); } narrow[] = {
        {"characters", [](int i) { return i * 7919 % 65; }}, {"bases", [](int i) { return i * i / 7 % 4; }},
        {"bits", [](int i) { return i * 7919 % 97 % 2; }}, {"sound", [](int i) { return i / 3 % 256; }},
        {"padded with -1", [](int i) { return i % 50 < 30 ? i % 50 : 255; }},
        {"of both signs", [](int i) { return i * 37 % 128 + i * 37 % 3 * 64; }},
        {"pairs of 7 bits", [](int i) { return i % 2 ? i * 31 % 128 : i / 2 % 90; }},
        {"moves on a board", [](int i) { return i % 2 ? i * 31 % 64 : i * 17 % 64; }},
        {"pixels", [](int i) { return i * 7919 % 11 ? 0 : i * 31 % 256; }},
        {"rising", [](int i) { return i % 127; }}};
    for (const auto& [kind, token] : narrow) {
        std::string bytes;
        for (int i = 0; i < 4501; i++) bytes += char(token(i));
        expect_bytes("a.bin", bytes, kind);
    }
    std::vector<int> few, han;                  // of a small vocabulary; of one page of a large one
    for (int i = 0; i < 500; i++) few.push_back(i * 7919 % 600), han.push_back(30000 + i * 7919 % 2000);
    const struct { const char* name; std::string bytes; const std::vector<int>& ids; } right[] = {
        {"d.bin", raw(few), few}, {"d.bin", raw(han), han},
        {"d.bin", raw(gpt2), gpt2}, {"d.bin", raw(chars), chars}, {"d.bin", raw(dna), dna},
        {"d.bin", raw(zeros), zeros}, {"a.u16.bin", raw(chars), chars}, {"a.u32.bin", raw<uint32_t>(chars), chars},
        {"a.u64.bin", raw<int64_t>(chars), chars}, {"npy.dat", npy_of("<u2", 500, raw(chars)), chars},
        {"llama.u32.bin", raw<uint32_t>(llama), llama}};
    for (const auto& [name, bytes, ids] : right)
        EXPECT(all_tokens(open_whole(f.add(name, bytes), Tokenizer(), 4)) == ids, "%s", name);
    expect_error(kExitBadContent, "token 3 (byte 24): got 18446744073709551516, want less than 50257",
                 [&] { open_one(f.add("n.u64.bin", raw<int64_t>({1, 2, 3, -100, 5, 6, 7, 8, 9, 10, 11})), 1); });
    expect_error(kExitBadContent, "got 1,998 bytes of tokens, want 1,996",
                 [&] { open_one(f.add("h.u32.bin", raw<uint32_t>(chars).substr(2))); });
}

TEST(token_beyond_the_vocabulary) {
    const Folder f;
    std::vector<int> first = counting(100), last = first;   // in the training part, and in that for validation
    first[37] = 50300, last[95] = 50257;                    // numbers count from the file's start
    const Refusals rows = {{llmc(first), "a.bin: token 37 (byte 1098): got 50300, want less than 50257"},
                           {llmc(last), "token 95 (byte 1214): got 50257"}};
    expect_refusals(kExitBadContent, rows, [&](const std::string& content) { open_one(f.add("a.bin", content)); });
    const std::string b = f.add("b.npy", npy_of("<u4", 5, raw<uint32_t>({1, 2, -1, 4, 5})));
    const Dataset d = open_whole(b, Tokenizer(), 4);
    int x[4], y[4];
    expect_error(kExitBadContent, "token 2 (byte 136): got 4294967295", [&] { d.sample(0, x, y, 50257); });
}

// All that this process has read from files so far; 0 where the kernel does not say.
static uint64_t bytes_read() {
    unsigned long n = 0;
    std::sscanf(read_kernel_file("/proc/self/io").c_str(), "rchar: %lu", &n);
    return n;
}

// 8 GB that take a few blocks of disk: positions beyond 2^31 tokens, 2^31 and 2^32 bytes.
TEST(huge_shards) {
    const Folder f;
    const uint64_t n = (1ull << 32) + 1000;
    const uint64_t half = 1ull << 31, whole = 1ull << 32;
    const uint64_t marks[] = {half - 1, half, half + 1, whole - 1, whole, whole + 1, (n - 1) / 8 * 8};
    for (const bool array : {false, true}) {
        const std::string header = array ? npy_of("<u2", n, "") : "";
        const std::string path = f.add(array ? "a.npy" : "a.bin", header);
        if (truncate(path.c_str(), off_t(header.size() + 2 * n)) != 0) SKIP("no sparse files of 8 GB here");
        const Descriptor file(open(path.c_str(), O_WRONLY));
        for (const uint64_t m : marks) {
            const uint16_t token = uint16_t(m % 40000 + 1);
            EXPECT_EQ(pwrite(file.fd, &token, 2, off_t(header.size() + 2 * m)), 2);
        }
        const uint64_t before = bytes_read();
        const Dataset d = open_whole(path, Tokenizer(), 8);
        EXPECT(bytes_read() - before < 3ull << 30, "opening read %g GB", double(bytes_read() - before) * 1e-9);
        EXPECT(d.tokens == n && d.samples == (n - 1) / 8, "%llu tokens", (unsigned long long)d.tokens);
        int x[8], y[8];
        for (const uint64_t m : marks) {
            d.sample(std::min(m / 8, d.samples - 1), x, y, 50257);
            const int got = m / 8 == d.samples ? y[7] : x[m % 8];  // the last mark is the last target of all
            EXPECT(got == int(m % 40000 + 1), "token %llu is %d", (unsigned long long)m, got);
        }
        const Data split = open_one(path, 8);
        EXPECT(split.train.tokens == n / 10 * 9 + n % 10 * 9 / 10 && split.train.tokens + split.val.tokens == n);
        split.val.sample(split.val.samples - 1, x, y, 50257);
    }
}

TEST(file_cut_short_while_in_use) {
    const Folder f;
    const std::string path = f.add("a.bin", llmc(counting(5000)));
    const Opened data = open_one(path, 100);
    std::vector<int> x(100), y(100);
    data.train.sample(40, x.data(), y.data(), 50257);
    EXPECT_EQ(truncate(path.c_str(), 100), 0);
    expect_error(kExitBadContent, "cut short while in use", [&] { data.train.sample(40, x.data(), y.data(), 50257); });
}

// ---------------------------------------------------------------------------------------------------------------- text

TEST(text_is_cut_at_a_character) {
    EXPECT(nine_tenths("") == 0 && nine_tenths("a") == 0 && nine_tenths("0123456789") == 9, "short");
    std::string text;
    for (int i = 0; i < 100; i++) text += i % 3 == 0 ? "\xe6\x97\xa5" : i % 3 == 1 ? "\xc3\xa9" : "x";
    EXPECT_EQ(nine_tenths(text), 30 * (3 + 2 + 1));
    std::string large = random_text(1000000);  // beyond the blocks that are counted as a whole
    EXPECT_EQ(nine_tenths(large), 900000);
    large += std::string(100000, '\x80');  // continuation bytes are no characters
    EXPECT_EQ(nine_tenths(large), 900000);
}

TEST(text_names_and_kinds) {
    const Folder f;
    const std::string text = random_text(100);
    for (const char* name : {"a.txt", "README", "code.cpp", "A.TXT", ".hidden"})
        EXPECT(open_one(f.add(name, text)).train.tokens == 90, "%s", name);
    const Refusals few = {{"", "got 0 training tokens, want at least 5"}, {"x", "got 0 training tokens"},
                          {"abcde", "got 4 training tokens"},
                          {"0123456789abcd", "got 2 validation tokens, want at least 5"}};
    expect_refusals(kExitBadContent, few, [&](const std::string& text) { open_one(f.add("c.txt", text)); });
    EXPECT_EQ(open_text(options_for(f / "c.txt"), false).val.samples, 0);
    EXPECT_EQ(mkfifo((f / "pipe").c_str(), 0600), 0);
    Refusals none = {{"nothing.txt", "nothing.txt: no file is there"},
                     {"pipe", "pipe: got something else, want a regular file"}};
    if (getuid() != 0) {
        chmod(f.add("d.txt", text).c_str(), 0);
        none.push_back({"d.txt", "Permission denied"});
    }
    expect_refusals(kExitNoInput, none, [&](const std::string& name) { open_one(f / name); });
}

static std::vector<int> joined(const std::vector<std::string>& documents) {
    std::vector<int> tokens;
    for (const std::string& d : documents) {
        tokens.push_back(256);
        for (unsigned char c : d) tokens.push_back(c);
    }
    return tokens;
}

// Documents of a tokenizer of Llama 3's kind: its own end of text behind each, and no token that text spells.
TEST(documents_of_llama) {
    const Folder f;
    std::string json = tokenizer_byte().to_json();
    const std::string name = "<|endoftext|>", end = "<|end_of_text|>";
    for (size_t at; (at = json.find(name)) != json.npos;) json.replace(at, name.size(), end);
    const std::string begin = "{\"id\":257,\"content\":\"<|begin_of_text|>\",\"special\":true},";
    json.insert(json.find("{\"id\":256"), begin);
    make_directories(f / "texts");
    const std::vector<std::string> documents = {"one <|end_of_text|>", "two <|begin_of_text|>", "three"};
    for (size_t k = 0; k < documents.size(); k++) f.add(format("texts/%zu.txt", k), documents[k]);
    const Opened data = open_one(f / "texts", 4, f.add("tokenizer.json", json));
    EXPECT(data.vocab_size == 258 && data.tokenizer.eot == 256, "%d tokens", data.vocab_size);
    std::vector<int> want = joined({documents[0], documents[1]});
    want.erase(want.begin());
    want.push_back(256);
    EXPECT_EQ(all_tokens(data.train), want);
}

TEST(folder_of_texts) {
    const Folder f;
    std::vector<std::string> documents;
    for (int i = 0; i < 12; i++) {
        documents.push_back(random_text(20, unsigned(i)));
        f.add(format("%02d.txt", i), documents.back());
    }
    f.add("005.txt", "");  // an empty file is no document
    f.add(".hidden", "not this");
    make_directories(f / "folder.txt");
    f.add("folder.txt/inner.txt", "nor this");
    const Opened data = open_one(f.path);
    // 240 bytes, 216 for training: document 10 straddles, document 11 begins in the last tenth.
    EXPECT(all_tokens(data.train) == joined({documents.begin(), documents.end() - 1}), "train");
    EXPECT(all_tokens(data.val) == joined({documents.back()}), "val");
    EXPECT(data.tokenizer.eot == 256 && open_one(f / "07.txt", 1).tokenizer.eot == -1,
           "documents have an end-of-text token, one text has none");
    TextOptions goes_on = options_for(f / "07.txt", 1);
    goes_on.init.tokenizer = tokenizer_byte().to_json();
    for (const bool knows : {true, false}) {
        goes_on.init.config = knows ? R"({"eos_token_id":256})" : R"({"eos_token_id":null})";
        EXPECT(open_text(goes_on).tokenizer.eot == (knows ? 256 : -1), "the model knows it: %d", knows);
    }
    EXPECT_EQ(open_one(f / "0?.txt").train.tokens, 21 * 9);
    EXPECT(open_one(f / "07.t*", 1).train.tokens == 18, "a glob of one file is one text");
    expect_error(kExitNoInput, "*.md: no file is there or matches it", [&] { open_one(f / "*.md"); });
    expect_error(kExitNoInput, "folder*: no file is there", [&] { open_one(f / "folder*"); });
    const Data all = open_one(f / "*");  // the folder among the matches is not read
    EXPECT(all.train.hash == data.train.hash, "%s", all.train.description.c_str());
    f.add("tokens.bin", llmc({1, 2, 3}));
    expect_error(kExitBadContent, "tokens.bin: got an llm.c token shard, want text as ", [&] { open_one(f.path); });
    const Folder empty;
    expect_error(kExitNoInput, "no file is there", [&] { open_one(empty.path); });
    EXPECT(symlink(empty.path.c_str(), (empty.path + "/loop").c_str()) == 0 &&
               symlink("self", (empty.path + "/self").c_str()) == 0);
    expect_error(kExitNoInput, "self", [&] { open_one(empty.path); });
}

TEST(validation_files) {
    const Folder f;
    f.add("train.bin", raw(counting(60)));
    f.add("val.bin", raw(counting(20, 1000)));
    for (const std::string& path : {f.path, f.path + "/*.bin", f.path + "/train.bin"}) {
        const Opened data = open_one(path);
        EXPECT(data.train.tokens == 60 && data.val.tokens == 20 && all_tokens(data.val)[0] == 1000, "%s", path.c_str());
    }
    EXPECT(open_one(f / "val.bin", 1).train.tokens == 18, "alone it is data like any other");
    const std::string other = f.add("other.bin", raw(counting(40, 2000)));
    Opened data = open_one(f.path, 4, "", other);
    EXPECT(data.val.tokens == 40 && data.train.tokens == 100, "val.bin is not trained on, whatever --val-data says");
    const Folder g;
    for (int i = 0; i < 3; i++) g.add(format("fineweb_train_%06d.bin", i), llmc(counting(50)));
    g.add("fineweb_val_000000.bin", llmc(counting(30, 500)));
    data = open_one(g.path + "/fineweb_*.bin");
    EXPECT(data.train.tokens == 150 && data.train.shards.size() == 3 && data.val.tokens == 30, "fineweb");
    const Folder h;  // words, not letters: a medieval valley is text
    for (const char* name : {"medieval.txt", "valley.txt", "interval.txt"}) h.add(name, random_text(100));
    EXPECT_EQ(open_one(h.path).val.tokens, 101);
    h.add("tale-valid.txt", random_text(50));
    EXPECT(open_one(h.path).val.tokens == 50 && open_one(h.path).train.tokens == 303,
           "one validation text is a stream");
}

static std::string names(const std::vector<std::string>& files) {
    std::string all;
    for (const std::string& file : files) all += " " + base_name(file);
    return all;
}

// What is for training, for validation and for neither, by names.
TEST(splits_of_a_folder) {
    struct Case { std::vector<const char*> files; const char *train, *val = "", *others = ""; };
    const Case cases[] = {
        {{"train.txt", "valid.txt", "test.txt"}, " train.txt", " valid.txt", " test.txt"},
        {{"train.txt", "dev.txt", "eval.txt", "x_test_2.txt"}, " train.txt", " dev.txt eval.txt", " x_test_2.txt"},
        {{"a.txt", "b.txt", "TEST.txt", "Valid.TXT"}, " a.txt b.txt", " Valid.TXT", " TEST.txt"},
        {{"latest.txt", "contest.txt", "devil.txt", "evaluate.txt"}, " contest.txt devil.txt evaluate.txt latest.txt"},
        {{"a.txt", "a.txt~", "b.txt.bak", "c.orig", ".gitignore"}, " a.txt", "", " a.txt~ b.txt.bak c.orig"},
        {{"train.txt", "testing.txt", "tests.txt", "evaluation.txt", "holdout.txt"}, " train.txt", " evaluation.txt",
         " holdout.txt testing.txt tests.txt"},
        {{"a.txt", "#a.txt#", "a (copy).txt", "a - Copy.txt", "a copy.txt", "Copy of a.txt", "b.txt.part"}, " a.txt",
         "", " #a.txt# Copy of a.txt a (copy).txt a - Copy.txt a copy.txt b.txt.part"},
        {{"copy.txt", "copyleft.txt", "photocopy.txt"}, " copy.txt copyleft.txt photocopy.txt"},
        {{"a.txt", "README.md", "LICENSE", "readme", "License.txt", "NOTICE"}, " a.txt", "",
         " LICENSE License.txt NOTICE README.md readme"},
        {{"README.md"}, " README.md"},
        {{"test.txt", "README.md"}, " test.txt", "", " README.md"},
        {{"valid.txt", "test.txt"}, " valid.txt", "", " test.txt"},
        {{"README.md", "data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl",
          "data/validation-00000-of-00001.jsonl", "data/test-00000-of-00001.jsonl"},
         " train-00000-of-00002.jsonl train-00001-of-00002.jsonl", " validation-00000-of-00001.jsonl",
         " README.md test-00000-of-00001.jsonl"},
        {{"train/0.txt", "train/1.txt", "validation/0.txt", "test/0.txt"}, " 0.txt 1.txt", " 0.txt", " 0.txt"},
        {{"a.txt", "more/b.txt"}, " a.txt", "", " more"},
        {{"readme_first.txt", "licensed.txt", "backup.txt"}, " backup.txt licensed.txt readme_first.txt"},
    };
    for (const Case& c : cases) {
        const Folder f;
        for (const char* file : c.files) {
            make_directories(parent_folder(f / "" + file));
            f.add(file, "{\"text\": \"x\"}");
        }
        Source train = find_texts(f.path);
        const Source val = take_validation(&train);
        EXPECT_EQ(names(train.files), c.train);
        EXPECT(names(val.files) == c.val, "%s: validation%s", c.train, names(val.files).c_str());
        EXPECT(names(train.others) == c.others, "%s: others%s", c.train, names(train.others).c_str());
    }
    const Folder f;
    for (const char* file : {"a.txt", "b.txt", "c.txt", "d.txt", "dev.txt", "test.txt", "LICENSE"})
        f.add(file, random_text(50));
    const std::string said = open_one(f.path).train.description;
    EXPECT(said.ends_with("204 training and 50 validation tokens; 4 texts; training: a.txt, b.txt, c.txt and 1 more; "
                          "validation: dev.txt; not taken: LICENSE, test.txt"), "%s", said.c_str());
    Source lone = find_texts(f / "test.txt");
    EXPECT(take_validation(&lone).files.empty() && lone.files.size() == 1, "a file that is named is data");
}

TEST(jsonl) {
    const Folder f;
    const std::string lines =
        "\xef\xbb\xbf{\"text\": \"first\"}\r\n"
        "\n   \t\n"
        "{\"id\": [1, {\"text\": \"no\"}], \"text\": \"tab\\t quote\\\" back\\\\ slash\\/ nl\\n\", \"x\": null}\n"
        "{\"text\": \"\"}\n"
        "{\"text\": \"\\u00e9\\u65e5\\ud83d\\ude00 caf\xc3\xa9\"}\r\n"
        "  {\"text\": \"last\"}";
    const std::vector<std::string> documents = {"first", "tab\t quote\" back\\ slash/ nl\n",
                                                "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80 caf\xc3\xa9", "last"};
    const std::string path = f.add("a.jsonl", lines);
    const Tokenizer byte = tokenizer_byte();
    EXPECT_EQ(all_tokens(open_whole(path, byte, 4)), joined(documents));
    Opened data = open_one(path, 3);
    EXPECT(all_tokens(data.val) == joined({"last"}), "the last document is validation");
    EXPECT_EQ(data.train.tokens, 3 + 5 + 28 + 15);

    f.add("b.jsonl", "{\"text\": \"second file\"}\n");
    std::vector<std::string> both = documents;
    both.push_back("second file");
    EXPECT_EQ(all_tokens(open_whole(f.path, byte, 4)), joined(both));
    EXPECT(all_tokens(open_whole(f.add("mark.txt", "\xef\xbb\xbfwith a mark"), byte, 4)) ==
               tokens_of_text("with a mark"), "a byte order mark");
    remove_tree(f / "mark.txt");
    data = open_one(f / "b.jsonl", 1);  // a lone document is cut inside
    EXPECT(all_tokens(data.train) == joined({"second fi"}) &&
               all_tokens(data.val) == tokens_of_text("le"));

    const Refusals bad = {
        {"{\"text\": \"a\"}\n\n{\"Text\": \"b\"}\n", "bad.jsonl: line 3: got the fields \"Text\", want text"},
        {R"({"text": 5})", "line 1: text: got 5"}, {R"(["text"])", "record 1: got \"text\", want an object"},
        {"{\"text\": \"a\"} x\n", "line 1: byte 14"}, {"{\"text\": \"a\"}\n{\"text\": \"cut", "line 2: byte 13"},
        {R"({"text": "\ud83d"})", "surrogate"}, {"{\"text\": \"caf\xe9\"}", "UTF-8"},
        {R"({"text": "a", "text": "b"})", "twice"}, {"\n \r\n", "got 0 validation tokens"},
        {"{\"text\": \"\"}\n", "got 0 validation tokens"}};
    const auto open = [&](const std::string& content) { open_whole(f.add("bad.jsonl", content), byte, 1); };
    expect_refusals(kExitBadContent, bad, open);
}

TEST(json_under_any_name) {
    const Folder f;
    const std::string a = "{\"id\": 1, \"text\": \"one }] \\\" [{\"}", b = "{\n  \"text\" :\n  \"two\"\n}";
    const std::string lines = a + "\n{\"text\": \"two\"}\n", list = "[" + a + ", " + b + "]";
    const std::vector<int> want = joined({"one }] \" [{", "two"});
    const Tokenizer byte = tokenizer_byte();
    for (const char* name : {"a.json", "a.jsonl", "a.ndjson", "a.JSONL", "a.jsonl.txt", "a.jsonlines", "a.txt", "a"})
        for (const std::string& text : {lines, list, "\xef\xbb\xbf" + lines, "\xef\xbb\xbf" + list, "\r\n \n" + lines,
                                        "[\n" + a + ",\n" + b + "\n]\n", "\n [ " + a + "," + b + "\n] "}) {
            const Dataset d = open_whole(f.add(name, text), byte, 4);
            EXPECT(all_tokens(d) == want, "%s: %s", name, text.c_str());
            EXPECT(find_texts(f / "" + name).format == Format::jsonl, "%s", name);
        }
    EXPECT(all_tokens(open_whole(f.add("one", b), byte, 2)) == joined({"two"}), "one object over several lines");
    const std::string turns = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, "
                              "{\"role\": \"assistant\", \"content\": \"Yo\"}]}";
    const std::string pair = "{\"prompt\": \"2+2=\", \"completion\": \"4\"}";
    for (const char* name : {"c.json", "c.txt", "c"})
        for (const auto& [record, form] : {std::pair(turns, Format::chat), std::pair(pair, Format::pairs)})
            for (const std::string& text : {record + "\n" + record, "[" + record + ",\n" + record + "]"}) {
                const Source source = find_texts(f.add(name, text));
                EXPECT(source.format == form, "%s: %s", name, text.c_str());
                EXPECT(read_text(source, false, [] {}).conversations.size() == 2, "%s", text.c_str());
            }
    const std::string large = "[{\"text\": \"" + random_text(100000) + "\"}]";     // longer than what is looked at
    EXPECT_EQ(open_whole(f.add("large", large), byte, 4).tokens, 100001);
}

TEST(text_that_begins_with_a_bracket) {
    const Folder f;
    for (const char* text : {"[section]\nkey = value\n", "{\\bf bold} and \\LaTeX", "{ int x = 0; }\n", "{", "[",
                             "[1] Smith, 1999\n", "[[package]]\nname = 1\n", "{% for x in y %}{{ x }}", "{}\nmore",
                             "[link](http://a.b) text", "[12:30] <bob> {\"text\": 1}", "[1, 2, 3].map(f)\n",
                             "{'text': 'python'}", "{ // c\n  a: 1 }", "{\"name\": \"x\"}\n", "[{\"name\": 1}]",
                             "[]\nmore", "{\"text\": never closed", "{\"text\"} no JSON"})
        EXPECT(find_texts(f.add("a.txt", text)).format == Format::text, "%s", text);
}

TEST(what_is_no_text) {
    expect_bad_files({
        {"package.json", "{\n  \"name\": \"x\",\n  \"version\": \"1\"\n}\n",
         "fields \"name, version\", want text, messages, prompt or instruction; a file of another name"},
        {"map.json", "{\"type\": \"FeatureCollection\", \"features\": []}",
         "line 1: got the fields \"type, features\""},
        {"wrapped.json", "{\"data\": [\n{\"text\": \"a\"},\n{\"text\": \"b\"}\n]}", "got the fields \"data\""},
        {"numbers.json", "[1, 2]", "record 1: got 1, want an object"},
        {"texts.json", "[\"a\", \"b\"]", "record 1: got \"a\", want an object"},
        {"half.json", "[{\"text\": \"a\"}, {\"text\": \"b\"", "byte"},
        {"two.json", "{\n\"text\": \"a\"\n}\n{\n\"text\": \"b\"\n}\n", "byte 16: got \"{\""},
        {"mixed.json", "[{\"text\": \"a\"}, {\"title\": \"b\"}]", "record 2: got the fields \"title\""},
        {"comment.json", "// a comment\n{\"text\": \"a\"}", "byte 0"},
        {"empty.json", "[]", "got 0 validation tokens"},
        {"a.csv", "id,text\n1,abc\n", "got a table"},
        {"a.TSV", "id\ttext\n1\tabc\n", "got a table"},
        {"a.jsonl.gz", "\x1f\x8b\x08...", "got a gzip file, want the text in it: build/prep"},
        {"a.jsonl.zst", "\x28\xb5\x2f\xfd...", "got a zstd file, want the text in it: build/prep"},
        {"train-00000-of-00001.parquet", "PAR1...", "got a Parquet file"},
        {"a.arrow", "ARROW1...", "JSON: pandas.read_feather(FILE)"},
        {"a.feather", "FEA1...", "pandas.read_feather(FILE)"},
        {"b.arrow", "\xff\xff\xff\xff...", "JSON: datasets.Dataset.from_file(FILE)"},
        {"a.npz", "PK\3\4...", "numpy.load(FILE)[NAME]"}, {"a.pt", "PK\3\4...", "torch.load(FILE).numpy()"},
        {"pytorch_model.bin", "PK\3\4...", "got a file of torch"}, {"a.pth", "PK\3\4...", "got a file of torch"},
        {"a.ckpt", "PK\3\4...", "a model goes with --init"}, {"a.zip", "PK\3\4...", "got a zip file"},
        {"a.txt", "\xff\xfe" "a", "got UTF-16"}}, tokenizer_byte(), 1);
}

TEST(what_is_not_utf8) {
    const Folder f;
    const Refusals rows = {
        {"caf\xe9 noir", "a.txt: line 2: byte 24: got e9, want UTF-8"},     // cp1252
        {"\xc4\xe3\xba\xc3", "line 2: byte 21: got c4"},     // GBK
        {"\x93\xfa\x96\x7b", "byte 21: got 93"},     // Shift-JIS
        {"\xb3\xae", "byte 21: got b3"},     // EUC-KR
        {"\xf0\xd2\xc9", "byte 21: got f0"},     // KOI8-R
        {"\xe6\x97", "byte 21: got e6"},     // cut in a character
        {"\n\nab\xf0\x9f\x98", "line 4: byte 25: got f0"},
        {"\x80 alone", "byte 21: got 80"},
        {"\xc0\xaf overlong", "byte 21: got c0"},
        {"\xed\xa0\x80 a surrogate", "byte 21: got ed"},
        {"\xf4\x90\x80\x80 beyond", "byte 21: got f4"},
        {"caf\xc3\xa9 \xe9", "byte 27: got e9"}};
    for (const char* tokenizer : {"byte", "char", "bpe:300"})
        expect_refusals(kExitBadContent, rows, [&](const std::string& content) {
            open_one(f.add("a.txt", std::string(20, '.') + "\n" + content), 1, tokenizer);
        });
}

// ---------------------------------------------------------------------------------------------------------- tokenizers

TEST(char_tokenizer_knows_every_symbol) {
    const Folder f;
    std::string text;
    for (int i = 0; i < 30; i++) text += "abcde";
    text += "zyxwv";  // only in the validation part
    Opened data = open_one(f.add("a.txt", text), 4, "char");
    EXPECT(data.vocab_size == 10 && data.train.tokens + data.val.tokens == text.size(), "vocabulary %d",
           data.vocab_size);
    EXPECT(all_tokens(data.train)[4] == 4 && all_tokens(data.val).back() == 5, "ids by code point");
    data = open_one(f / "a.txt", 4, "char", f.add("val.txt", "QQQQQabcdeQQ"));
    EXPECT(data.vocab_size == 11 && data.val.tokens == 12 && data.train.tokens == text.size(), "vocabulary %d",
           data.vocab_size);
    f.add("b.jsonl", "{\"text\": \"abcab\"}\n{\"text\": \"defgh\"}\n");
    data = open_one(f / "b.jsonl", 4, "char");  // no end of text: documents follow each other directly
    EXPECT(data.vocab_size == 8 && data.train.tokens == 5 && data.val.tokens == 5, "documents");
}

static std::string decode(const Tokenizer& tokenizer, const std::vector<int>& tokens) {
    std::string text;
    for (const int token : tokens) text += tokenizer.bytes[size_t(token)];
    return text;
}

TEST(bpe_of_the_training_part) {
    const Folder f;
    std::string text;
    for (int i = 0; i < 300; i++) text += "the cat sat. ";
    for (int i = 0; i < 33; i++) text += "qxj zv kwy. ";  // the last tenth: no merge may come from it
    const Opened data = open_one(f.add("a.txt", text), 8, "bpe:265");
    EXPECT(data.vocab_size == 265 && data.train.tokens < text.size() / 2, "sizes");
    const auto decoded = [&](const Dataset& d) { return decode(data.tokenizer, all_tokens(d, data.vocab_size)); };
    EXPECT(decoded(data.train) + decoded(data.val) == text, "decoding gives the text");
    for (const std::string& token : data.tokenizer.bytes)
        EXPECT(token.size() < 2 || token.find_first_of("qxjzvkwy") == std::string::npos, "%s", token.c_str());
    EXPECT(data.train.shards[0].width == 2, "two bytes a token");
}

TEST(chunks_give_the_same_tokens) {
    const Folder f;
    std::string text;
    const char* const parts[] = {"don't  stop \n\n", "\xe6\x97\xa5\xe6\x9c\xac \xe8\xaa\x9e\n",
                                 "na\xc3\xafve 12345!? \t x", "\xe3\x80\x80 \xc2\xa0 \xe2\x80\x83 wide",
                                 "we'll \r\n 'tis\xff \xf0\x9f\x98\x80 "};
    for (int i = 0; i < 400; i++) text += parts[i % 5];
    const std::string_view view = text;
    const Tokenizer bpe = tokenizer_open("bpe:310", &view);
    std::vector<int> whole;
    bpe.encode(text, &whole);
    for (size_t want : {1, 2, 3, 7, 50, 1000}) {  // chunks of whole pieces, as open_data encodes them
        std::vector<int> tokens;
        for (std::string_view rest = text; !rest.empty();) {
            size_t n = 0;
            while (n < rest.size() && n < want) n += splits[0].next_piece(rest.substr(n));
            bpe.encode(rest.substr(0, n), &tokens);
            rest.remove_prefix(n);
        }
        EXPECT(tokens == whole, "chunks of %zu", want);
    }
    const std::string large = random_text(5 << 20);  // more than a chunk of open_data
    const Opened data = open_one(f.add("large.txt", large), 8, "bpe:300");
    std::vector<int> tokens = all_tokens(data.train), want;
    data.tokenizer.encode(std::string_view(large).substr(0, nine_tenths(large)), &want);
    EXPECT(tokens == want, "a text of several chunks");
}

// The vocabulary that options and the model of --init give, or the refusal.
TEST(vocabulary_rules) {
    const Folder f;
    const std::string text = f.add("a.txt", random_text(200)), tokens = f.add("a.bin", llmc(counting(100)));
    const std::string byte = tokenizer_byte().to_json();
    struct Case { std::string data, tokenizer, init; int vocab, init_vocab, want; std::string error = {}, val = {}; };
    const Case cases[] = {
        {tokens, "", "", 0, 0, 50257}, {tokens, "", "", 165, 0, 165}, {tokens, "byte", "", 0, 0, 257},
        {tokens, "", "", 0, 777, 777}, {tokens, "", byte, 0, 257, 257},
        {tokens, "", byte, 0, 300, 300},        // some rows of the model are unused, and have no text
        {tokens, "", byte, 0, 256, 0, "want 256 as the model has"},
        {tokens, "byte", "", 0, 50257, 0, "got byte of 257 tokens, want 50257 as the model has"},
        {tokens, "byte", "", 50304, 0, 0, "--vocab-size: got 50304, want 257 as the tokenizer has"},
        {tokens, "char", "", 0, 0, 0}, {tokens, "bpe:265", "", 0, 0, 0},        // nothing to learn from
        {text, "", "", 0, 0, 257}, {text, "", "", 0, 257, 257}, {text, "", byte, 0, 257, 257},
        {text, "", byte, 0, 300, 300}, {text, "", "", 0, 50257, 0, "want 50257 as the model has; give the tokenizer"},
        {text, "bpe:265", byte, 0, 257, 0, "want 257"},     // an option wins over --init's, then must fit
        {text, "bpe:265", "", 0, 266, 0, "want 266 as the model has"},
        {tokens, "", "", 0, 0, 0, "got text, but without a tokenizer", text}};
    for (const Case& c : cases) {
        const Row row(format("%s %s %d %d", c.data.c_str(), c.tokenizer.c_str(), c.vocab, c.init_vocab));
        TextOptions o = options_for(c.data, 4, c.tokenizer, c.val);
        o.init.tokenizer = c.init;
        o.init_path = c.init.empty() ? "" : "tokenizer.json";
        o.init_vocab = c.init_vocab, o.vocab_size = c.vocab;
        if (!c.want) {
            expect_error(kExitUsage, c.error, [&] { open_text(o); });
            continue;
        }
        const Opened opened = open_text(o);
        const bool has_text = c.data == text || !(c.tokenizer + c.init).empty();
        EXPECT_EQ(opened.vocab_size, c.want);
        EXPECT_EQ(opened.tokenizer.bytes.size(), has_text ? c.want : 0);
    }
}

// What the trainer's options mean to the data layer.
TEST(options_of_the_trainer) {
    Options o;
    Init none, init;
    init.texts.tokenizer = "{}";
    init.config.shape.V = 9;
    const auto asks = [&](const Init& model, const char* option) {
        return std::ranges::count(data_options(o, model).prep, option) == 1;
    };
    EXPECT(data_options(o, none).prep.empty() && !data_options(o, none).evaluates, "nothing is chosen");
    o.skip_bad_lines = 3;
    EXPECT(data_options(o, none).prep.empty(), "the built-in stories have no bad lines");
    o.tokenizer = "char";  // on a resume it is saved, not given
    EXPECT(asks(init, "--tokenizer=char") && asks(init, "--init-vocab=9") && asks(init, "--skip-bad-lines=3"), "saved");
    o.command = "eval";
    EXPECT(!asks(init, "--tokenizer=char") && asks(none, "--tokenizer=char"), "the model's own");
    EXPECT(data_options(o, none).evaluates, "eval");
    o.given = {"tokenizer"};
    EXPECT(asks(init, "--tokenizer=char"), "given");
}

TEST(hash_is_of_the_content) {
    const Folder f, g;
    const std::string text = random_text(100000);
    const std::string a = open_one(f.add("a.txt", text)).train.hash;
    EXPECT(a == open_one(g.add("elsewhere.md", text)).train.hash && a.size() == 16, "the name does not count");
    std::set<std::string> seen = {a, open_one(f / "a.txt").val.hash};
    for (size_t at : {0, 50000, 65536, 99999}) {
        std::string other = text;
        other[at] ^= 1;
        seen.insert(open_one(f.add("a.txt", other)).train.hash);
    }
    seen.insert(open_one(f.add("a.txt", text), 4, "char").train.hash);
    seen.insert(open_one(f / "a.txt", 4, "bpe:300").train.hash);
    seen.insert(open_one(f / "a.txt", 4, "", g / "elsewhere.md").train.hash);    // nothing was cut off
    EXPECT_EQ(seen.size(), 9);
    // Two files are not one, and their order counts.
    const std::vector<std::string> ab = {f.add("x", "ab"), f.add("y", "c")}, ba = {ab[1], ab[0]},
                                   other = {f.add("z", "a"), f.add("w", "bc")};
    const auto hash = [](const std::vector<std::string>& files) { return content_hash(files, kFileBlock); };
    EXPECT(hash(ab) != hash(ba) && hash(ab) != hash(other) &&
               hash(ab) != hash({ab[0], f.add("u", "d")}) && hash(ab) != hash({f.add("v", "abc")}));
}

// What build/prep leaves: shards, tokenizer.json, and what it says of them.
TEST(shards_are_held_to_the_manifest) {
    const Folder f;
    std::vector<std::string> listed;
    for (int i = 0; i < 3; i++) {
        const std::string name = format("train_%06d.bin", i), shard = llmc(counting(50, size_t(i)));
        f.add(name, shard);
        const uint32_t crc = crc32c(0, shard.data(), shard.size());
        listed.push_back(JsonLine().add("file", name).add("tokens", 50).add("crc32c", crc).text());
    }
    f.add("tokenizer.json", tokenizer_byte().to_json());
    const auto manifest = [&](int vocabulary) {
        const std::string shards = JsonLine().raw("shards", "[" + join(listed, ",") + "]").text();
        f.add("manifest.json", JsonLine().add("vocab_size", vocabulary).raw("train", shards).text());
    };
    const auto refused = [&](const char* part, const char* path = "") {
        expect_error(kExitBadContent, part, [&] { open_one(f.path + path); });
        expect_error(kExitBadContent, part, [&] { open_whole(f.path + path, tokenizer_byte(), 4); });
    };
    const std::string second = f.path + "/train_000001.bin", good = read_file(second);
    f.add("prep.json", "{}");
    refused("a part of the shards, want all");
    unlink((f / "prep.json").c_str());
    manifest(257);
    EXPECT(open_one(f.path).train.tokens == 135 && open_one(second).train.tokens == 45, "whole, and a shard of it");
    for (const size_t at : {1024ul, 1100ul, 1123ul}) {
        std::string other = good;
        other[at] = char(other[at] ^ 1);
        f.add("train_000001.bin", other);
        refused("train_000001.bin: got CRC-32C");
        refused("train_000001.bin: got CRC-32C", "/*_000001.bin");
    }
    f.add("train_000001.bin", llmc(counting(40)));
    refused("train_000001.bin: got 40 tokens, want 50");
    unlink(second.c_str());
    refused("train_000001.bin: it is missing");
    f.add("train_000001.bin", good);
    f.add("train_000007.bin", good);
    refused("train_000007.bin: got a file that manifest.json does not list");
    unlink((f / "train_000007.bin").c_str());
    manifest(300);
    expect_error(kExitBadContent, "tokenizer.json: got 257 tokens, want 300", [&] { open_one(f.path); });
    f.add("manifest.json", "{\"name\":\"of another program\"}");
    open_one(f.path);
    for (int i = 0; i < 3; i++) unlink((f.path + format("/train_%06d.bin", i)).c_str());
    manifest(257);
    refused("train_000000.bin: it is missing");
}

// What a user's script may write: any token files, names of its own, no CRC-32C, no tokenizer.
TEST(a_folder_of_a_script) {
    const Folder f;
    const auto manifest = [&](const char* train) {
        f.add("manifest.json", format("{\"vocab_size\":200,\"train\":{\"shards\":[{\"file\":\"%s\",\"tokens\":30}]},"
                                      "\"val\":{\"shards\":[{\"file\":\"a.npy\",\"tokens\":50}]}}", train));
    };
    f.add("a.npy", npy_of("<u4", 50, raw<uint32_t>(counting(50))));
    f.add("b.u32.bin", raw<uint32_t>(counting(30, 100)));
    manifest("b.u32.bin");
    expect_error(kExitBadContent, "got raw tokens, want a numpy array", [&] { open_one(f.path); });
    f.add("b.npy", npy_of("<u4", 30, raw<uint32_t>(counting(30, 100))));
    unlink((f / "b.u32.bin").c_str());
    manifest("b.npy");
    const Opened data = open_one(f.path);
    EXPECT(data.vocab_size == 200 && data.train.tokens == 30 && data.val.tokens == 50 && !data.vocabulary.has_text(),
           "%s", data.train.description.c_str());
    EXPECT(all_tokens(data.train)[0] == 100 && all_tokens(data.val)[49] == 49, "tokens");
    f.add("c.npy", npy_of("<u4", 30, raw<uint32_t>(counting(30))));
    expect_error(kExitBadContent, "c.npy: got a file that manifest.json does not list", [&] { open_one(f.path); });
    unlink((f / "c.npy").c_str());
    const std::string good = read_file(f / "manifest.json");
    const auto with = [&](std::string text, const std::string& old, const std::string& now) {
        f.add("manifest.json", text.replace(text.find(old), old.size(), now));
        open_one(f.path);
    };
    const auto given = [&](const std::string& each) {
        with(good, "\"tokens\":30", R"("tokens":30,"given":[{"token":0,"bytes":)" + each + "}]");
    };
    given("1.25");
    for (const char* bad : {"0", "-1", "1e300", "NaN", "\"1\"", "null"})
        expect_error(kExitBadContent, "manifest.json: bytes: got", [&] { given(bad); });
    for (const char* bad : {"0", "-1", "2.5", "16777217", "4294967496", "1e400", "\"200\"", "null"})
        expect_error(kExitBadContent, "manifest.json: vocab_size: got", [&] { with(good, "200", bad); });
    for (const char* bad : {"-1", "2.5", "\"30\"", "null"})
        expect_error(kExitBadContent, "manifest.json: tokens: got", [&] { with(good, "30", bad); });
    for (const char* bad : {"0", "29", "18446744073709551615"})
        expect_error(kExitBadContent, "b.npy: got 30 tokens, want", [&] { with(good, "30", bad); });
}

// What the trainer reads, damaged: refused, whatever a number says.
TEST(damaged_folders) {
    const Folder f;
    const std::string folder = prepare(options_for(f.add("a.txt", random_text(1000))), f.path + "/cache", [] {});
    const std::string manifest = folder + "/manifest.json", good = read_file(manifest);
    EXPECT_EQ(read_data(folder, 4).train.tokens, 900);
    const std::string most = "18446744073709551615";
    const auto source = [](const std::string& weight, const std::string& shards) {
        return "{\"path\":\"a\",\"weight\":" + weight + ",\"shards\":" + shards + "}]";
    };
    const struct { std::string key; std::vector<std::string> values; const char* part; } rows[] = {
        {"\"tokens\":", {"0", "1001", "9223372036854775808", most}, "tokens.bin: got 1,000 tokens"},
        {"\"begin\":", {most}, "tokens.bin: got 1,000 tokens"}, {"\"offset\":", {most}, "tokens.bin: got 0 tokens"},
        {"\"width\":", {"0", "1", "3", most}, "width"},
        {"\"vocab_size\":", {"258"}, "vocab_size: got 258, want 257"},
        {"\"vocab_size\":", {"-1", "16777217", "1e300", "\"257\"", "null"}, "vocab_size"},
        {"\"bytes\":", {"0", "-1", "1e400", "NaN", "\"1\"", "null"}, "manifest.json: bytes"},
        {"\"token\":", {"-1", "0.5", "1e3", "\"0\"", "null"}, "manifest.json: token"},
        {"\"ends\":[", {"-1]", "257]", "\"a\"]", most + "]"}, "manifest.json: ends"},
        {"\"untrained\":[", {"-1]", "257]", "1e2]", most + "]"}, "manifest.json: untrained"},
        {"\"start\":[", {"-1]", "257]", "\"a\"]", most + "]"}, "manifest.json: start"},
        {"\"vocabulary\":{\"name\":\"byte\",\"tokens\":", {"-2", "258", "1e300", "\"1\""}, "manifest.json: tokens"},
        {"\"end\":", {"-2", "1e300", "null"}, "manifest.json: end"},
        {"\"shards\":[", {"1"}, ""}, {"\"hash\":", {"7"}, "hash"},
        {"\"mixture\":[", {"{}]"}, "manifest.json: path"},
        {"\"mixture\":[", {source("0", "1"), source("-1", "1"), source("null", "1")}, "json: weight"},
        {"\"mixture\":[", {source("1", "-1"), source("1", "null")}, "json: shards"}};
    Refusals bad = {{good.substr(0, good.size() / 2), "manifest.json: byte"}};
    for (const auto& [key, values, part] : rows)
        for (const std::string& value : values) {
            const Row row(key + value);
            CHECK(good.find(key) != good.npos, "%s", good.c_str());
            const size_t from = good.find(key) + key.size();
            bad.push_back({std::string(good).replace(from, good.find_first_of(",}", from) - from, value), part});
        }
    expect_refusals(kExitBadContent, bad, [&](const std::string& text) {
        put(manifest, text);
        read_data(folder, 4);
    });
    put(manifest, good);
    for (const std::string& entry : list_directory(folder))
        for (const char* name : {"tokens.bin", "bytes.bin"})
            if (const std::string path = folder + "/" + entry + "/" + name; file_exists(path)) {
                const std::string whole = read_file(path);
                put(path, whole.substr(0, whole.size() - 1));
                expect_error(kExitBadContent, name, [&] { read_data(folder, 4); });
                put(path, whole);
            }
    EXPECT_EQ(read_data(folder, 4).train.tokens, 900);
}

TEST(data_that_change_during_a_run) {
    const Folder f;
    const auto bytes = [](size_t first) { return raw(counting(500, first)); };
    const std::string path = f.add("a.bin", bytes(0)), other = f.add("b.bin", bytes(0));
    for (const std::string& changed : {path, other}) {
        const Opened data = open_one(path, 4, "", other);
        const Dataset& part = changed == path ? data.train : data.val;
        check_unchanged(part);
        chmod(changed.c_str(), 0600);
        put(changed, bytes(0));                                 // other times, the same content
        check_unchanged(part);
        write_file_atomic(changed + ".new", bytes(7));
        rename(changed.c_str(), (changed + ".old").c_str());
        rename((changed + ".new").c_str(), changed.c_str());    // the open file stays what it was
        check_unchanged(part);
        rename((changed + ".old").c_str(), changed.c_str());
        put(changed, bytes(1));                                 // in place
        expect_error(kExitBadContent, changed + ": it has changed while the run reads it",
                     [&] { check_unchanged(part); });
        put(changed, bytes(0));
        truncate(changed.c_str(), 998);
        const Opened shorter = open_one(path, 4, "", other);
        truncate(changed.c_str(), 500);
        const Dataset& cut = changed == path ? shorter.train : shorter.val;
        expect_error(kExitBadContent, changed + ": byte", [&] { check_unchanged(cut); });
        put(changed, bytes(0));
    }
    check_unchanged(open_one(f.add("a.txt", random_text(1000))).train);   // a text is in memory
}

TEST(of_large_data_it_is_said_what_is_hashed) {
    const Folder f;
    const std::string path = f.add("a.bin", "");
    const Data small = open_one(f.add("b.bin", raw(counting(99))));
    EXPECT(!has(small.train.description, "block"), "%s", small.train.description.c_str());
    if (truncate(path.c_str(), off_t(5) << 28) != 0) SKIP("no room for a sparse file of 1.25 GiB");
    EXPECT(open_one(path).train.description.ends_with("1 of 2 blocks of 64 KiB"), "large");
}

TEST(many_shards) {
    const Folder f;
    const std::string shard = llmc(counting(10));
    for (int i = 0; i < 2000; i++) f.add(format("%05d.bin", i), shard);
    const Opened data = open_one(f.path);
    EXPECT(data.train.samples > 0 && data.train.tokens == 18000, "%d tokens", int(data.train.tokens));
}

TEST(tinyshakespeare) {
    const char* shared = getenv("LOCKSTEP_SHARED");
    const std::string folder = std::string(shared ? shared : "../shared") + "/data";
    const std::string path = folder + "/tinyshakespeare.txt";
    if (!file_exists(path)) SKIP("%s is not here (LOCKSTEP_SHARED)", path.c_str());
    const std::string gpt2 = folder + "/gpt2_vocab.bpe";
    const struct { std::string tokenizer; int vocab; uint64_t train, val; } rows[] = {      // nanoGPT's numbers
        {"", 257, 1003854, 111540}, {"char", 65, 1003854, 111540}, {gpt2, 50257, 301966, 36059}};
    for (const auto& row : rows) {
        if (row.tokenizer == gpt2 && !file_exists(gpt2)) SKIP("no gpt2_vocab.bpe");
        const Opened data = open_one(path, 256, row.tokenizer);
        EXPECT(data.vocab_size == row.vocab && data.train.tokens == row.train && data.val.tokens == row.val,
               "%s: %d, %d / %d", row.tokenizer.c_str(), data.vocab_size, int(data.train.tokens), int(data.val.tokens));
    }
}

// ------------------------------------------------------------------------------------------------------------- stories

TEST(built_in_stories) {
    const Opened data = open_one("", 256);
    EXPECT(data.vocab_size == 257 && data.train.tokens == 30000 * 256 && data.val.tokens == 512 * 256, "%s",
           data.train.description.c_str());
    std::vector<int> x(256), y(256);
    for (const uint64_t i : {uint64_t(0), uint64_t(1), data.train.samples - 1}) {  // a sample of 256 tokens is a story
        data.train.sample(i, x.data(), y.data(), 257);
        const std::string text = decode(data.tokenizer, x);
        EXPECT(x[0] == 256 && y[255] == 256 && text.size() == 255 && text.find(" met at the ") < 32, "%s",
               text.c_str());
    }
    EXPECT(data.train.hash != data.val.hash && data.train.hash == open_one("", 64).train.hash,
           "the hash is of the text");
    const Folder f;
    const Opened other = open_one("", 64, "bpe:400", f.add("val.txt", random_text(1000)));
    EXPECT(other.vocab_size == 400 && other.train.tokens < data.train.tokens / 2, "bpe:400");
    expect_error(kExitBadContent, "want at least 16777217", [&] { open_one("", 1 << 24); });
}

// ------------------------------------------------------------------------------------------------------- the loader

static Sampler sampler_of(const Dataset& d, int B, int G, int R, const OrderInfo& order = lockstep_info) {
    return {order.sample, {0, d.samples}, 3, B, G, R};
}

TEST(loader_gives_what_the_sampler_says) {
    const Folder f;
    const Opened data = open_one(f.add("a.bin", raw(counting(500))), 7);  // 64 samples: 20 steps are many epochs
    const size_t B = 3, T = 7;
    const int G = 8;
    for (const OrderInfo* order : {&lockstep_info, &torch_info})
        for (int W : {1, 2, 4, 8})
            for (int rank = 0; rank < W; rank++) {
                const Sampler sampler = sampler_of(data.train, B, G, 8, *order);
                const int begin = rank * G / W, end = begin + G / W;
                BatchLoader loader(data.train, sampler, data.vocab_size, begin, end, uint64_t(W));
                const auto expect_batch = [&](const BatchLoader::Batch& got, uint64_t step, int micro_batch) {
                    std::vector<int> x(B * T), y(B * T);
                    std::vector<uint64_t> samples;
                    for (size_t b = 0; b < B; b++) {
                        samples.push_back(sampler.index(step, micro_batch, int(b)));
                        data.train.sample(samples[b], &x[b * T], &y[b * T], 1 << 30);
                    }
                    EXPECT(got.tokens == x && got.targets == y && got.samples == samples,
                           "W %d, step %d, micro_batch %d", W, int(step), micro_batch);
                };
                for (uint64_t step = uint64_t(W); step < uint64_t(W) + 20; step++)
                    for (int micro_batch = begin; micro_batch < end; micro_batch++) {
                        expect_batch(loader.next(), step, micro_batch);
                        const int other = (micro_batch + 1) % G;    // for the audit, while the thread runs
                        expect_batch(loader.micro_batch(step, other), step, other);
                    }
            }
}

TEST(loader_batch_stays_while_others_are_made) {
    const Opened data = open_one("", 64);
    BatchLoader loader(data.train, sampler_of(data.train, 2, 4, 4), 257, 0, 4, 0);
    for (int k = 0; k < 50; k++) {
        const BatchLoader::Batch& batch = loader.next();
        const BatchLoader::Batch copy = batch;
        if (k % 10 == 0) usleep(5000);  // time enough for the thread to fill what it may
        EXPECT(copy.tokens == batch.tokens && copy.targets == batch.targets, "overwritten while in use");
    }
}

TEST(loader_passes_errors_on) {
    const Folder f;
    std::vector<int> tokens = counting(400);
    const std::string path = f.add("a.bin", llmc(tokens));
    const Opened data = open_one(path);
    const Sampler sampler = sampler_of(data.train, 1, 8, 1);
    tokens[50 * 4 + 2] = 60000;
    f.add("a.bin", llmc(tokens));
    BatchLoader loader(data.train, sampler, data.vocab_size, 0, 8, 0);
    int good = 0;
    try {
        for (;; good++) loader.next();
    } catch (const Error& e) {
        EXPECT(e.code == kExitBadContent && has(e.message, "got 60000"), "%s", e.message.c_str());
    }
    int want = 0;
    while (sampler.index(uint64_t(want / 8), want % 8, 0) != 50) want++;
    EXPECT_EQ(good, want / 8 * 8);
    expect_error(kExitBadContent, "got 60000", [&] { loader.next(); });  // and again
}

TEST(loader_ends_at_any_time) {
    const Opened data = open_one("", 256);
    for (int k = 0; k < 50; k++) {
        BatchLoader loader(data.train, sampler_of(data.train, 4, 2, 2), 257, 0, 2, 0);
        if (k % 2) loader.next();
    }
}

TEST(samples_from_several_threads) {
    const Folder f;
    const Data text = open_one(f.add("a.txt", random_text(5000)), 16), story = open_one("", 64);
    const auto sum = [&] {
        std::vector<int> x(64), y(64);
        uint64_t all = 0;
        for (uint64_t i = 0; i < 200; i++) {
            text.train.sample(i, x.data(), y.data(), 257);
            story.val.sample(i, x.data(), y.data(), 257);
            for (int v : x) all = all * 31 + uint64_t(v);
        }
        return all;
    };
    std::vector<std::future<uint64_t>> others;
    for (int k = 0; k < 3; k++) others.push_back(std::async(std::launch::async, sum));
    const uint64_t want = sum();
    for (auto& other : others) EXPECT_EQ(other.get(), want);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
