// test_checkpoint.cpp -- safetensors against an independent reader and against malicious files; checkpoints against
// flipped bits, torn saves, full disks and kills at random moments.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include "tools/text/config_reader.h"
#include "optimizers/optimizer.h"
#include "src/base/json.h"
#include "src/checkpoint/checkpoint.h"
#include "tools/text/model_file.h"
#include "tools/text/model_folder.h"
#include "tools/text/tokenizer.h"
#include "tests/test.h"
#include "tests/unit/synced.h"

namespace {
uint64_t random_state = 1;
uint64_t random_bits() {  // xorshift64
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

constexpr size_t kV = 257, kVp = 272, kC = 16, kT = 5;
constexpr int kBlocks = 2;

// GPT-2's table: wte has padding rows, the four matrices of a block are transposed in the file, c_proj is square.
std::vector<TensorSpec> gpt2_table() {
    std::vector<TensorSpec> t = {
        {"transformer.wte.weight", kVp, kC, kV, false, 0.02f, true},
        {"transformer.wpe.weight", kT, kC, kT, false, 0.02f, true}};
    const auto vector = [&](const std::string& name, size_t n) { t.push_back({name, 1, n, 1, false, 0, false}); };
    const auto matrix = [&](const std::string& name, size_t out, size_t in) {
        t.push_back({name, out, in, out, true, 0.02f, true});
    };
    const auto norm = [&](const std::string& name) {
        vector(name + ".weight", kC);
        vector(name + ".bias", kC);
    };
    const auto linear = [&](const std::string& name, size_t out, size_t in) {
        matrix(name + ".weight", out, in);
        vector(name + ".bias", out);
    };
    for (int l = 0; l < kBlocks; l++) {
        const std::string h = "transformer.h." + std::to_string(l) + ".";
        norm(h + "ln_1");
        linear(h + "attn.c_attn", 3 * kC, kC);
        linear(h + "attn.c_proj", kC, kC);
        norm(h + "ln_2");
        linear(h + "mlp.c_fc", 4 * kC, kC);
        linear(h + "mlp.c_proj", kC, 4 * kC);
    }
    norm("transformer.ln_f");
    return t;
}

// Values of each tensor are different numbers; padding is zero.
std::vector<float> fill(const Arena& arena, float first) {
    std::vector<float> x(arena.n);
    for (size_t i = 0; i < arena.tensors.size(); i++)
        for (size_t k = 0; k < arena.tensors[i].file_rows * arena.tensors[i].cols; k++)
            x[arena.offset[i] + k] = first + float(i) + float(k) * 0x1p-13f;
    return x;
}

struct Sample {
    Arena arena = arena_layout(gpt2_table());
    mutable std::vector<float> w = fill(arena, 1), m = fill(arena, 100), v = fill(arena, 200);
    CheckpointFiles files() const {
        CheckpointFiles f;
        ModelConfig config = {
            .info = find_model("gpt2"), .shape = {.L = kBlocks, .NH = 2, .C = int(kC), .T = int(kT)}};
        set_vocabulary(&config.shape, int(kV));
        f.config_json = config_json(config, R"({"bos_token_id":256,"eos_token_id":256})");
        f.texts = {{"tokenizer.json", tokenizer_byte().to_json()}, {"tokenizer_config.json", "{}\n"}};
        f.state_json = "{\"step\":7,\"tokens\":1234}\n";
        f.arena = &arena;
        f.arrays = {{"", w.data()}, {"exp_avg", m.data()}, {"exp_avg_sq", v.data()}};
        return f;
    }
    std::string save(const std::string& out, int64_t step, int keep = 0) const {
        return write_checkpoint(out, step, files(), keep);
    }
    float* tensor(const std::string& name) const {
        for (size_t t = 0; t < arena.tensors.size(); t++)
            if (arena.tensors[t].name == name) return w.data() + arena.offset[t];
        FAIL("no tensor %s", name.c_str());
    }
};

uint32_t write_arrays(const std::string& path, const Arena& arena, const std::vector<NamedArray>& arrays,
                      uint64_t* bytes) {
    FileWriter file(path);
    int progress = 0;
    write_safetensors(&file, arena, arrays, [&] { progress++; });
    file.finish();
    EXPECT_EQ(size_t(progress), arrays.size() * arena.tensors.size());
    *bytes = file.bytes;
    return file.crc;
}

std::string step_name(int64_t step) { return format("step_%08lld", (long long)step); }

// Reading without the code under test: the tensor's entry is found as text, its values at the offsets it names.
std::vector<float> read_by_hand(const std::string& file, const std::string& name, const std::string& shape) {
    uint64_t length;
    std::memcpy(&length, file.data(), 8);
    const std::string head = "\"" + name + "\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":[";
    const size_t at = file.find(head);
    EXPECT(at != std::string::npos && at < 8 + length, "no entry %s", head.c_str());
    unsigned long long begin, end;
    EXPECT(std::sscanf(file.c_str() + at + head.size(), "%llu,%llu]", &begin, &end) == 2, "offsets of %s",
           name.c_str());
    std::vector<float> values((end - begin) / 4);
    std::memcpy(values.data(), file.data() + 8 + length + begin, end - begin);
    return values;
}

// In place: an existing file of another length or content becomes this one, without the flush that a file system may
// put behind a truncation to 0.
void restore(const std::string& path, const std::string& content) {
    const int fd = open(path.c_str(), O_WRONLY);
    EXPECT(fd >= 0 && pwrite(fd, content.data(), content.size(), 0) == ssize_t(content.size()) &&
               ftruncate(fd, off_t(content.size())) == 0, "%s", path.c_str());
    close(fd);
}

std::string safetensors(const std::string& header, const std::string& data, uint64_t length = UINT64_MAX) {
    if (length == UINT64_MAX) length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::vector<SafeTensor> parse(const std::string& file) {
    static const Folder dir;
    put(dir / "x.safetensors", file);
    return open_safetensors(dir / "x.safetensors").tensors;
}

void by_name(const SafeTensors& file, const Arena& arena, float* values) {
    read_tensors(find_tensors(file, arena.tensors), arena, arena, values);
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- safetensors

TEST(written_file_by_hand) {
    Folder dir;
    const Sample s;
    uint64_t bytes = 0;
    const uint32_t crc = write_arrays(dir / "m", s.arena, {{"", s.w.data()}}, &bytes);
    const std::string file = read_file(dir / "m");
    EXPECT(bytes == file.size() && crc == crc32c(0, file.data(), file.size()), "size or checksum");
    uint64_t length, params = 0;
    std::memcpy(&length, file.data(), 8);
    EXPECT((8 + length) % 64 == 0 && file[8] == '{', "data are not aligned: %llu", (unsigned long long)length);
    EXPECT(file.find("\"__metadata__\":{\"format\":\"pt\"}") < length, "metadata");
    EXPECT(!has(file, "lm_head"), "the tied head is left out");
    for (size_t i = 0; i < s.arena.tensors.size(); i++) {
        const TensorSpec& t = s.arena.tensors[i];
        params += t.file_rows * t.cols;
        const bool matrix = has(t.name, ".c_") && t.name.ends_with(".weight");
        const std::string shape = has(t.name, ".w") && has(t.name, "e.weight")
                                      ? format("[%zu,%zu]", t.file_rows, t.cols)
                                  : matrix ? format("[%zu,%zu]", t.cols, t.rows)
                                           : format("[%zu]", t.cols);
        const std::vector<float> got = read_by_hand(file, t.name, shape);
        for (size_t r = 0; r < t.file_rows; r++)
            for (size_t c = 0; c < t.cols; c++) {
                const float want = s.w[s.arena.offset[i] + r * t.cols + c],
                            x = matrix ? got[c * t.rows + r] : got[r * t.cols + c];
                EXPECT(x == want, "%s (%zu,%zu): got %g, want %g", t.name.c_str(), r, c, double(x), double(want));
            }
    }
    EXPECT_EQ(file.size(), 8 + length + 4 * params);
}

TEST(round_trip_with_odd_shapes) {
    Folder dir;
    const Arena arena = arena_layout({{"transposed", 129, 67, 127, true, 0, true},
                                      {"one_row", 1, 33, 1, true, 0, true},
                                      {"one_column", 65, 1, 65, true, 0, true}, {"row", 1, 5, 1, false, 0, true},
                                      {"scalar", 1, 1, 1, false, 0, false},
                                      {"tall", 40000, 40, 39999, true, 0, true}});
    std::vector<float> w = fill(arena, -3);
    uint64_t bytes;
    write_arrays(dir / "m", arena, {{"", w.data()}}, &bytes);
    const SafeTensors file = open_safetensors(dir / "m");
    EXPECT(file.tensors[3].shape == (std::vector<uint64_t>{1, 5}) &&
               file.tensors[4].shape == std::vector<uint64_t>{1});
    std::vector<float> back(arena.n, NAN);
    by_name(file, arena, back.data());
    for (size_t i = 0; i < arena.n; i++)
        EXPECT(back[i] == w[i], "[%zu]: got %g, want %g", i, double(back[i]), double(w[i]));  // padding too
}

// A matrix and a vector that are one in memory are their parts in a file; and the file may be several with an index.
TEST(parts_and_shards) {
    Folder dir;
    const std::vector<TensorSpec> table = {
        {"embed.weight", 16, 2, 3, false, 0, true},
        {"qkv.weight", 5, 2, 5, false, 0, true, false, {{"q.weight", 3}, {"k.weight", 1}, {"v.weight", 1}}},
        {"qkv.bias", 1, 5, 1, false, 0, false, false, {{"q.bias", 3}, {"k.bias", 1}, {"v.bias", 1}}}};
    const Arena arena = arena_layout(table);
    std::vector<float> w = fill(arena, 2);
    uint64_t bytes;
    write_arrays(dir / "model.safetensors", arena, {{"", w.data()}}, &bytes);
    const auto read = [&] {
        std::vector<float> back(arena.n, NAN);
        by_name(open_model(dir.path), arena, back.data());
        return back;
    };
    const SafeTensors one = open_model(dir.path);
    EXPECT_EQ(one.tensors.size(), 7);
    EXPECT(one.tensors[2].name == "k.weight" && one.tensors[2].shape == (std::vector<uint64_t>{1, 2}), "a part");
    EXPECT(one.tensors[4].name == "q.bias" && one.tensors[4].shape == std::vector<uint64_t>{3}, "part of a vector");
    EXPECT_EQ(read(), w);

    const Arena shards[] = {arena_layout({table[0], table[2]}), arena_layout({table[1]})};
    for (size_t i = 0; i < 2; i++) {
        std::vector<float> part(shards[i].n);
        for (size_t t = 0; t < shards[i].tensors.size(); t++) {
            const size_t from = i ? 1 : 2 * t, n = table[from].rows * table[from].cols;
            std::copy_n(&w[arena.offset[from]], n, &part[shards[i].offset[t]]);
        }
        write_arrays(dir / format("model-0000%zu-of-00002.safetensors", i + 1), shards[i], {{"", part.data()}}, &bytes);
    }
    remove_tree(dir / "model.safetensors");
    const auto index = [&](const char* first, const char* second) {
        put(dir / "model.safetensors.index.json",
                    format("{\"metadata\":{},\"weight_map\":{\"embed.weight\":%s,\"q.weight\":%s,\"k.weight\":%s}}",
                           first, second, second));
    };
    const char *first = "\"model-00001-of-00002.safetensors\"", *second = "\"model-00002-of-00002.safetensors\"";
    index(first, second);
    EXPECT_EQ(read(), w);
    index(first, first);
    expect_error(kExitBadContent, "tensor q.weight: it is missing", [&] { read(); });
    index(first, "\"model-00003-of-00002.safetensors\"");
    expect_error(kExitNoInput, "model-00003", [&] { read(); });
    for (const char* name : {"\"../model.safetensors\"", "\"a/b\"", "3", "\"\"", "\".hidden\""}) {
        index(first, name);
        expect_error(kExitBadContent, "weight_map: q.weight", [&] { read(); });
    }
    put(dir / "model.safetensors.index.json", "{\"weight_map\":{}}");
    expect_error(kExitBadContent, "weight_map", [&] { read(); });
}

TEST(several_arenas_in_one_file) {
    Folder dir;
    const Sample s;
    uint64_t bytes;
    write_arrays(dir / "o", s.arena, {{"exp_avg", s.m.data()}, {"exp_avg_sq", s.v.data()}}, &bytes);
    std::vector<float> m(s.arena.n, NAN), v(s.arena.n, NAN);
    const std::vector<NamedArray> arrays = {{"exp_avg", m.data()}, {"exp_avg_sq", v.data()}};
    read_safetensors(dir / "o", s.arena, arrays);
    EXPECT(m == s.m && v == s.v, "values");
    std::vector<TensorSpec> less = gpt2_table();
    less.erase(less.begin() + 5);
    const Arena other = arena_layout(less);
    const auto refused = [&](const Arena& arena, const std::vector<NamedArray>& these) {
        const auto read = [&] { read_safetensors(dir / "o", arena, these); };
        expect_error(kExitBadContent, "other tensors, want those of this run", read);
    };
    refused(other, arrays);
    refused(s.arena, {arrays[0]});
    refused(s.arena, {arrays[1], arrays[0]});
    const std::string good = read_file(dir / "o");
    for (const size_t size : {size_t(0), size_t(7), size_t(8), size_t(100), good.size() - 1}) {
        put(dir / "o", good.substr(0, size));
        refused(s.arena, arrays);
    }
    put(dir / "o", good + "x");
    refused(s.arena, arrays);
}

TEST(not_finite_is_neither_saved_nor_loaded) {
    Folder dir;
    Sample s;
    uint64_t bytes;
    write_arrays(dir / "good", s.arena, {{"", s.w.data()}}, &bytes);
    const std::string good = read_file(dir / "good");
    for (const float bad : {float(NAN), -float(INFINITY)}) {
        const size_t at = s.arena.offset[4] + 37;  // h.0.attn.c_attn.weight, row 2, column 5
        std::vector<float> w = s.w;
        w[at] = bad;
        expect_error(kExitOther, "tensor transformer.h.0.attn.c_attn.weight: element 37", [&] {
            write_arrays(dir / "bad", s.arena, {{"", w.data()}}, &bytes);
        });
        remove_tree(dir / "bad");
        expect_error(kExitOther, "not saved", [&] {
            Sample t;
            t.v[at] = bad;
            t.save(dir.path, 1);
        });
        EXPECT(find_checkpoint(dir.path).empty() && list_directory(dir / "ckpt").empty(), "no trace");
        std::string file = good;
        std::memcpy(file.data() + file.size() - 4 * (kC + 3), &bad, 4);
        put(dir / "in", file);
        expect_error(kExitBadContent, "ln_f.weight: element 13",
                     [&] { read_safetensors(dir / "in", s.arena, {{"", w.data()}}); });
    }
}

TEST(half_and_bf16_and_unaligned) {
    // Every finite fp16 value, against ldexp; data begin at an odd address.
    std::string data(2 * 65536, '\0');
    for (unsigned i = 0; i < 65536; i++) data[2 * i] = char(i), data[2 * i + 1] = char(i >> 8);
    std::vector<float> half(65536), brain(65536);
    const std::string shifted = "x" + data;
    EXPECT(convert_to_floats(half.data(), shifted.data() + 1, "F16", 65536) &&
               convert_to_floats(brain.data(), shifted.data() + 1, "BF16", 65536));
    EXPECT(!convert_to_floats(half.data(), data.data(), "F64", 1), "F64");
    for (unsigned i = 0; i < 65536; i++) {
        const int exponent = int(i >> 10 & 31), fraction = int(i & 1023);
        double want = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                     : std::ldexp(fraction, -24);
        if (i >> 15) want = -want;
        EXPECT(std::isnan(want) ? std::isnan(half[i])
                                : double(half[i]) == want && std::signbit(half[i]) == std::signbit(want),
               "fp16 %04x: %g, want %g", i, double(half[i]), want);
        const uint32_t bits = i << 16;
        EXPECT(std::memcmp(&brain[i], &bits, 4) == 0, "bf16 %04x", i);
    }
}

TEST(both_name_styles_masks_and_the_tied_head) {
    Folder dir;
    const Arena arena = arena_layout({{"transformer.wte.weight", 16, 2, 3, false, 0, true},
                                      {"transformer.h.0.attn.c_proj.weight", 2, 2, 2, true, 0, true}});
    const std::string wte = "\"wte.weight\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[0,12]}",
                      proj = ",\"h.0.attn.c_proj.weight\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[12,20]}";
    const std::string mask =
        ",\"h.0.attn.bias\":{\"dtype\":\"BOOL\",\"shape\":[1,1,2],\"data_offsets\":[20,22]},\"h.0.attn."
        "masked_bias\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[22,23]}";
    const std::string head = ",\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[23,35]}";
    const uint16_t w[6] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0},
                   p[4] = {0x3c00, 0x4000, 0x4200, 0x4400};  // 1 2 3 4 5 6 and 1 2 3 4
    const std::string wte_bytes(reinterpret_cast<const char*>(w), 12), proj_bytes(reinterpret_cast<const char*>(p), 8);
    const auto load = [&](const std::string& header, const std::string& data) {
        put(dir / "m", safetensors(header, data));
        std::vector<float> x(arena.n, NAN);
        by_name(open_safetensors(dir / "m"), arena, x.data());
        return x;
    };
    const std::string all = "{" + wte + proj + mask + head + "}", bytes = wte_bytes + proj_bytes + "abc" + wte_bytes;
    const std::vector<float> x = load(all, bytes);
    for (size_t i = 0; i < 6; i++) EXPECT(x[i] == float(i + 1), "wte[%zu] = %g", i, double(x[i]));
    for (size_t i = 6; i < 32; i++) EXPECT_EQ(x[i], 0);
    const float want[4] = {1, 3, 2, 4};
    for (size_t i = 0; i < 4; i++)
        EXPECT(x[arena.offset[1] + i] == want[i], "proj[%zu] = %g", i, double(x[arena.offset[1] + i]));

    std::string first = bytes, last = bytes;            // other numbers in the head
    first[23] = char(first[23] ^ 1);
    last[34] = char(last[34] ^ 1);
    const std::string tuned =
        replaced(replaced(all, "\"wte.", "\"base_model.model.wte."), "\"lm_head", "\"module.lm_head");
    const struct { std::string header, data; bool own; } heads[] = {
        {all, bytes, false}, {all, first, true}, {all, last, true}, {tuned, bytes, false}, {tuned, last, true},
        {"{" + wte + proj + mask + "}", bytes.substr(0, 23), false}, {replaced(all, "\"wte.", "\"wtf."), last, false},
        {replaced(all, head, replaced(head, "[3,2]", "[2,3]")), bytes, true},
        {replaced(all, head, replaced(head, "BF16", "F16")), bytes, true}};
    for (const auto& [header, data, own] : heads) {
        put(dir / "m", safetensors(header, data));
        EXPECT(has_own_head(open_safetensors(dir / "m"), arena.tensors[0]) == own, "%s", header.c_str());
    }
    for (const std::string prefix : {"_orig_mod.", "module.", "base_model.model.", "_orig_mod.transformer."})
        EXPECT(load(replaced(replaced(all, "\"wte.", "\"" + prefix + "wte."), "\"lm_head", "\"" + prefix + "lm_head"),
                    bytes) == x, "%s", prefix.c_str());
    const Refusals refused = {
        {replaced(all, "\"wte.weight\"", "\"wtf.weight\""), "wte.weight: it is missing"},
        {replaced(all, "attn.bias\"", "attn.biased\""), "tensor h.0.attn.biased: the model has none"},
        {replaced(all, "[3,2]", "[2,3]"), "shape: got [2,3], want [3,2]"},
        {replaced(all, "\"F16\"", "\"I16\""), "dtype: got I16, want F32, F16 or BF16"},
        {replaced(all, "lm_head.weight", "transformer.wte.weight"), "tensor wte.weight twice"}};
    expect_refusals(kExitBadContent, refused, [&](const std::string& header) { load(header, bytes); });
}

TEST(malicious_safetensors) {
    const auto entry = [](const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
        return R"({"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}";
    };
    const std::string a = R"("a":)" + entry("2,2", "0,16"), b = R"("b":)" + entry("2", "16,24"),
                      good = "{" + a + "," + b + "}", d24(24, '\1');
    parse(safetensors(good, d24));
    parse(safetensors(good + "         ", d24));
    parse(safetensors(R"({"e":)" + entry("0,7", "0,0") + "," + a + R"(,"z":)" + entry("", "16,20") +
                          R"(,"f":)" + entry("0", "16,16") + "}", std::string(20, 'x')));
    parse(safetensors("{}", ""));
    EXPECT_EQ(parse(safetensors("{" + b + "," + a + "}", d24))[0].name, "a");

    std::string nested = R"({"a":)", many = "{";
    for (int i = 0; i < 40; i++) nested += "[";
    for (int i = 0; i < 66000; i++) many += (i ? R"(,")" : R"(")") + std::to_string(i) + R"(":{})";
    const auto one = [&](const std::string& shape, const std::string& offsets) {
        return safetensors(R"({"a":)" + entry(shape, offsets) + "}", d24);
    };
    const auto two = [&](const std::string& shape, const char* of_a, const char* of_b) {
        return safetensors(R"({"a":)" + entry(shape, of_a) + R"(,"b":)" + entry(shape, of_b) + "}", d24);
    };
    const Refusals bad = {
        {"", "header: got 0 bytes in a file of 0"}, {std::string(7, '\0'), "in a file of 7"},
        {std::string(9, '\0'), "in a file of 9"}, {safetensors(good, d24, 0), "header: got 0 bytes"},
        {safetensors(good, d24, 1), "header: got 1 bytes"}, {safetensors(good, d24, good.size() + 25), "header: got"},
        {safetensors(good, d24, 100000001), "header: got 100000001"},
        {safetensors(good, d24, uint64_t(1) << 63), "header: got 9223372036854775808"},
        {safetensors(good, d24, UINT64_MAX - 7), "header: got 18446744073709551608"},
        {safetensors(std::string("{}") + std::string(1 << 24, ' '), ""),
         "header: got 16777218 bytes in a file of 16777226, want 2 to 16777216"},
        {safetensors(" " + good, d24), "begin with '{'"},
        {safetensors("[]", ""), "begin with '{'"},
        {safetensors("\xEF\xBB\xBF" + good, d24), "begin with '{'"},
        {safetensors(replaced(good, R"("a")", "\"\xFF\""), d24), "want UTF-8"},
        {safetensors("{" + std::string(40, 'x'), ""), "header: byte 1"},
        {safetensors(good.substr(0, good.size() - 1), d24), "got the end"},
        {safetensors(good + "x", d24), "nothing after the value"},
        {safetensors(nested, ""), "at most 32"},
        {safetensors(many + "}", ""), "tensor 0: dtype: it is missing"},
        {safetensors("{" + a + "," + replaced(b, R"("b")", R"("a")") + "}", d24), R"(key "a" twice)"},
        {safetensors(replaced(good, R"("shape":[2])", R"("shape":[9],"shape":[2])"), d24), R"("shape" twice)"},
        {safetensors(replaced(good, "F32", "F33"), d24), "tensor a: dtype: got F33"},
        {safetensors(replaced(good, R"("F32")", "32"), d24), "dtype: got 32, want a string"},
        {safetensors(R"({"a":{"dtype":"F32","data_offsets":[0,24]}})", d24), "shape: it is missing"},
        {safetensors(R"({"a":{"dtype":"F32","shape":[6]}})", d24), "data_offsets: it is missing"},
        {safetensors(R"({"a":3})", d24), "it is missing"},
        {safetensors(R"({"a":null})", d24), "it is missing"},
        {safetensors(R"({"a":{"dtype":"F32","shape":6,"data_offsets":[0,24]}})", d24), "for F32 6"},
        {one("6", "0,24,24"), "data_offsets: got ["},
        {one("6", "24"), "data_offsets: got ["},
        {one("6", "24,0"), "got [24,0], want 24 of the 24 bytes"},
        {one("7", "0,28"), "got [0,28]"},
        {one("6", "-24,0"), "got [-24,0]"},
        {one("6", "18446744073709551592,18446744073709551616"), "data_offsets"},
        {one("6", "18446744073709551608,16"), "data_offsets"},
        {one("6", "0,24.5"), "got [0,24.5]"},
        {two("4", "0,16", "8,24"),
         "tensor b: data_offsets: got begin 8, want 16, the end of the tensor before"},
        {two("6", "0,24", "0,24"),
         "got begin 0, want 24"},
        {two("2", "0,8", "16,24"),
         "got begin 16, want 8"},
        {one("4", "8,24"), "tensor a: data_offsets: got begin 8, want 0"},
        {safetensors(good, d24 + "x"), "got 25 bytes of data, want 24"},
        {safetensors(good, d24.substr(1)), "of the 23 bytes"},
        {safetensors("{}", "x"), "got 1 bytes of data, want 0"},
        {one("5", "0,24"),
         "got [0,24], want 20 of the 24 bytes behind the header, for F32 [5]"},
        {one("-6", "0,24"), "got [-6], want at most 8 integers"},
        {one("6.5", "0,24"), "got [6.5]"},
        {one(R"("6")", "0,24"), "want at most 8 integers"},
        {safetensors(R"({"a":)" + entry("1e1", "0,40") + "}", std::string(40, 'x')), "got [1e1]"},
        {one("18446744073709551616", "0,24"), "integers of 0..2^32"},
        {one("1e400", "0,24"), "integers of 0..2^32"},
        {safetensors(R"({"a":)" + entry("4611686018427387905,4", "0,16") + "}", std::string(16, 'x')),
         "want at most 8 integers of 0..2^32"},
        {safetensors(R"({"a":)" + entry("4294967296,4294967296", "0,0") + "}", ""), "size overflows"},
        {safetensors(R"({"a":)" + entry("4294967296,1073741824", "0,0") + "}", ""), "size overflows"},
        {one("1,1,1,1,1,1,1,1,6", "0,24"), "at most 8 integers"},
        {safetensors(R"({")" + std::string(257, 'a') + R"(":)" + entry("6", "0,24") + "}", d24),
         "a tensor name of 257 bytes"},
        {safetensors("{\"\\ud800\":" + entry("6", "0,24") + "}", d24), "surrogates"},
        {safetensors(R"({"a":)" + entry("1099511627776", "0,4398046511104") + "}", ""), "integers of 0..2^32"}};
    expect_refusals(kExitBadContent, bad, parse, "x.safetensors: ");
}

TEST(truncations_and_flips_of_a_safetensors_file_do_no_harm) {
    Folder dir;
    const Arena arena = arena_layout({{"wte", 4, 3, 3, false, 0, true}, {"proj", 2, 2, 2, true, 0, true}});
    std::vector<float> w = fill(arena, 1);
    uint64_t bytes;
    write_arrays(dir / "m", arena, {{"", w.data()}}, &bytes);
    const std::string file = read_file(dir / "m");
    for (size_t n = 0; n < file.size(); n++)
        expect_error(kExitBadContent, "x.safetensors", [&] { parse(file.substr(0, n)); });
    expect_error(kExitBadContent, "bytes of data", [&] { parse(file + '\0'); });
    for (size_t i = 0; i < file.size(); i++)
        for (int bit = 0; bit < 8; bit++) {
            std::string changed = file;
            changed[i] = char(changed[i] ^ 1 << bit);
            try {
                parse(changed);
            } catch (const Error& e) {
                EXPECT(e.code == kExitBadContent, "byte %zu bit %d: %d", i, bit, e.code);
            }
        }
}

// ---------------------------------------------------------------------------------------------------- checkpoints

TEST(save_and_find) {
    Folder dir;
    const Sample s;
    EXPECT(find_checkpoint(dir.path).empty() && find_checkpoint(dir / "absent").empty(), "never saved");
    synced.clear();
    const std::string folder = s.save(dir.path, 1000);
    expect_synced(dir.path);
    EXPECT(folder == dir / "ckpt/step_00001000" && find_checkpoint(dir.path) == folder &&
               verify_checkpoint(folder, true).empty(), "%s", folder.c_str());
    EXPECT_EQ(read_file(dir / "ckpt/latest"), "step_00001000\n");
    const std::vector<std::string> want = {
        "DONE",       "config.json",    "model.safetensors",    "optim.safetensors",
        "state.json", "tokenizer.json", "tokenizer_config.json"};
    EXPECT(list_directory(folder) == want && list_directory(dir / "ckpt").size() == 2, "files");
    std::vector<float> back(s.arena.n, NAN);
    read_safetensors(folder + "/model.safetensors", s.arena, {{"", back.data()}});
    EXPECT_EQ(back, s.w);
    EXPECT(resolve_model_folder(dir.path) == folder && resolve_model_folder(folder + "/") == folder, "resolve");
    EXPECT_EQ(read_file(folder + "/config.json"), s.files().config_json);
    EXPECT(read_file(folder + "/tokenizer_config.json") == "{}\n", "tokenizer_config.json");

    Folder other;  // the same state gives the same bytes: no time, no host, no path
    s.save(other.path, 1000);
    for (const std::string& name : want)
        EXPECT(read_file(folder + "/" + name) == read_file(other / ("ckpt/step_00001000/" + name)), "%s differs",
               name.c_str());
}

TEST(done_file_layout) {
    Folder dir;
    const std::string folder = Sample().save(dir.path, 12), done = read_file(folder + "/DONE");
    EXPECT(done.starts_with("lockstep checkpoint 1\nstep 12\n"), "%s", done.c_str());
    const std::string state = read_file(folder + "/state.json");
    const std::string line = format("\n%08x %zu state.json\n", crc32c(0, state.data(), state.size()), state.size());
    EXPECT(has(done, line), "%s", done.c_str());
    EXPECT(done.ends_with(format("\ncrc %08x\n", crc32c(0, done.data(), done.size() - 13))), "%s", done.c_str());
}

TEST(without_tokenizer) {
    Folder dir;
    const Sample s;
    CheckpointFiles f = s.files();
    f.texts.clear();
    const std::string folder = write_checkpoint(dir.path, 1, f, 1);
    EXPECT(!file_exists(folder + "/tokenizer.json") && !file_exists(folder + "/tokenizer_config.json") &&
               verify_checkpoint(folder, true).empty(), "files");
}

// What a resume reads: the weights and the optimizer's state, and no other optimizer's.
TEST(read_state_of_this_run) {
    Folder dir;
    const Sample s;
    const std::string folder = s.save(dir.path, 5);
    std::vector<float> w(s.arena.n, NAN), m(s.arena.n, NAN), v(s.arena.n, NAN);
    read_state(folder, s.arena, {{"exp_avg", m.data()}, {"", w.data()}, {"exp_avg_sq", v.data()}});
    EXPECT(w == s.w && m == s.m && v == s.v, "values");
    const std::vector<NamedArray> others[] = {{{"", w.data()}, {"momentum_buffer", m.data()}}, {{"", w.data()}},
                                              {{"", w.data()}, {"exp_avg", m.data()}, {"momentum", v.data()}}};
    const std::string part = "optim.safetensors: got other tensors, want those of this run; resume with the model, "
                             "the optimizer";
    for (const auto& arrays : others)
        expect_error(kExitBadContent, part, [&] { read_state(folder, s.arena, arrays); });
    CheckpointFiles stateless = s.files();
    stateless.arrays.resize(1);
    const std::string without = write_checkpoint(dir.path, 6, stateless, 0);
    std::fill(w.begin(), w.end(), NAN);
    read_state(without, s.arena, {{"", w.data()}});
    EXPECT_EQ(w, s.w);
    expect_error(kExitBadContent, "optim.safetensors: got other tensors",
                 [&] { read_state(without, s.arena, {{"", w.data()}, {"exp_avg", m.data()}}); });
}

// Arrays with a number per row or column of a matrix: shapes in the file, and the same values back.
TEST(state_of_rows_and_columns) {
    Folder dir;
    Sample s;
    std::vector<TensorSpec> table = gpt2_table();
    table[0].parts = {{"top.weight", 100}, {"rest.weight", kV - 100}};
    s.arena = arena_layout(table);
    const StateSpec specs[] = {{"row", Per::row, Per::none}, {"column", Per::column, Per::none},
                               {"vector", Per::none, Per::element}};
    const OptimizerInfo info = {.name = "test", .state = specs, .hyper = {}, .prepare = nullptr,
                                .whole = [](const TensorSpec& t) { return !t.name.ends_with("wpe.weight"); }};
    std::vector<Arena> arenas;
    std::vector<std::vector<float>> values, back;
    for (const StateSpec& spec : specs) arenas.push_back(state_layout(info, spec, s.arena));
    CheckpointFiles files = s.files();
    files.arrays.resize(1);
    std::vector<float> weights(s.arena.n);
    std::vector<NamedArray> read = {{"", weights.data()}};
    for (size_t k = 0; k < 3; k++) values.push_back(fill(arenas[k], 10));
    for (const Arena& arena : arenas) back.push_back(std::vector<float>(arena.n, NAN));
    for (size_t k = 0; k < 3; k++) files.arrays.push_back({specs[k].name, values[k].data(), &arenas[k]});
    for (size_t k = 0; k < 3; k++) read.push_back({specs[k].name, back[k].data(), &arenas[k]});
    const std::string folder = write_checkpoint(dir.path, 1, files, 0);
    read_state(folder, s.arena, read);
    EXPECT_EQ(back, values);
    const SafeTensors state = open_safetensors(folder + "/optim.safetensors");
    const auto shape = [&](const std::string& name) {
        const auto found = std::ranges::find(state.tensors, name, &SafeTensor::name);
        return found == state.tensors.end() ? "none" : shape_text(found->shape);
    };
    const std::string fc = "transformer.h.1.mlp.c_fc.", wpe = "transformer.wpe.weight.";
    const struct { std::string name, want; } known[] = {
        {"top.weight.row", "[100,1]"}, {"rest.weight.row", "[157,1]"}, {"transformer.wte.weight.column", "[1,16]"},
        {fc + "weight.row", "[64,1]"}, {fc + "weight.column", "[1,16]"}, {fc + "weight.vector", "none"},
        {fc + "bias.vector", "[64]"}, {fc + "bias.row", "none"}, {fc + "bias.column", "none"},
        {wpe + "row", "[5,16]"}, {wpe + "vector", "[5,16]"}};        // its rule is for single weights
    for (const auto& [name, want] : known)
        EXPECT(shape(name) == want, "%s: got %s, want %s", name.c_str(), shape(name).c_str(), want.c_str());
    EXPECT(arenas[1].n < s.arena.n && arenas[2].n < s.arena.n, "%zu and %zu of %zu", arenas[1].n, arenas[2].n,
           s.arena.n);
    expect_error(kExitBadContent, "other tensors", [&] { read_state(folder, s.arena, {read[0], read[1]}); });
}

TEST(every_flipped_bit_is_found) {
    Folder dir;
    const std::string folder = Sample().save(dir.path, 5);
    std::vector<std::pair<std::string, std::string>> files;
    size_t total = 0;
    for (const std::string& name : list_directory(folder)) {
        files.emplace_back(name, read_file(folder + "/" + name));
        total += files.back().second.size();
    }
    const auto flip = [&](size_t file, size_t byte, int bit) {
        const auto& [name, content] = files[file];
        std::string changed = content;
        changed[byte] = char(changed[byte] ^ 1 << bit);
        restore(folder + "/" + name, changed);
        const std::string why = verify_checkpoint(folder, true);
        EXPECT(!why.empty(), "%s byte %zu bit %d: not found", name.c_str(), byte, bit);
        EXPECT(has(why, name), "%s byte %zu: %s", name.c_str(), byte, why.c_str());
        restore(folder + "/" + name, content);
    };
    for (int i = 0; i < 1000; i++) {  // anywhere; most of it is optim.safetensors
        size_t at = random_bits() % total, file = 0;
        while (at >= files[file].second.size()) at -= files[file++].second.size();
        flip(file, at, int(random_bits() % 8));
    }
    for (size_t file = 0; file < files.size(); file++)  // and in each file
        for (int i = 0; i < 10; i++) flip(file, random_bits() % files[file].second.size(), int(random_bits() % 8));
    for (size_t byte = 0; byte < files[0].second.size(); byte++) flip(0, byte, int(byte % 8));  // every byte of DONE
    EXPECT(verify_checkpoint(folder, true).empty(), "restored");
}

TEST(every_truncation_is_found) {
    Folder dir;
    const std::string folder = Sample().save(dir.path, 5);
    for (const std::string& name : list_directory(folder)) {
        const std::string path = folder + "/" + name, content = read_file(path);
        const size_t stride = content.size() > 5000 ? content.size() / 100 : 1;
        for (size_t n = 0; n < content.size(); n += stride) {
            EXPECT_EQ(truncate(path.c_str(), off_t(n)), 0);
            const std::string why = verify_checkpoint(folder, false);  // sizes are enough
            EXPECT(has(why, name), "%s at %zu: %s", name.c_str(), n, why.c_str());
            restore(path, content);
        }
        restore(path, content + "x");
        EXPECT(!verify_checkpoint(folder, false).empty(), "%s with a byte more", name.c_str());
        restore(path, content);
    }
    EXPECT(verify_checkpoint(folder, true).empty(), "restored");
}

// If no file can be opened, this says nothing about the checkpoint. The resume must not take an older one.
TEST(cannot_be_read_is_not_bad) {
    Folder dir;
    const std::string folder = Sample().save(dir.path, 5);
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    const rlimit none = {0, files.rlim_max};
    std::string why = "nothing was thrown";
    setrlimit(RLIMIT_NOFILE, &none);
    try {
        verify_checkpoint(folder, true);
    } catch (const Error& e) {
        why = e.message;
    }
    setrlimit(RLIMIT_NOFILE, &files);
    EXPECT(has(why, "Too many open files"), "%s", why.c_str());
}

TEST(broken_newest_falls_back) {
    Folder dir;
    const Sample s;
    for (const int step : {10, 20, 30, 40, 50}) s.save(dir.path, step);
    const auto at = [&](int step) { return dir / ("ckpt/" + step_name(step)); };
    EXPECT(unlink((at(50) + "/DONE").c_str()) == 0 && unlink((at(40) + "/state.json").c_str()) == 0, "unlink");
    EXPECT_EQ(rename((at(20) + "/optim.safetensors").c_str(), (at(30) + "/optim.safetensors").c_str()),
              0);  // the same bytes: 30 stays whole
    EXPECT_EQ(find_checkpoint(dir.path), at(30));
    EXPECT(verify_checkpoint(at(50), false).ends_with("DONE: No such file or directory") &&
               verify_checkpoint(at(40), false).ends_with("state.json: No such file or directory"));
    write_file_atomic(dir / "ckpt/latest", "step_00000050\n");  // latest is for people: not believed
    EXPECT_EQ(find_checkpoint(dir.path), at(30));
    unlink((at(30) + "/model.safetensors").c_str());
    EXPECT_EQ(mkfifo((at(30) + "/model.safetensors").c_str(), 0600), 0);
    EXPECT(verify_checkpoint(at(30), true).ends_with("want a regular file"), "%s",
           verify_checkpoint(at(30), true).c_str());
    EXPECT_EQ(find_checkpoint(dir.path), at(10));
    remove_tree(at(10));
    expect_error(kExitBadContent, "none of 4 checkpoints is whole", [&] { find_checkpoint(dir.path); });
    expect_error(kExitBadContent, "bad checkpoint", [&] { resolve_model_folder(at(40)); });
}

TEST(done_of_another_step_or_version) {
    Folder dir;
    const Sample s;
    const std::string a = s.save(dir.path, 1), b = s.save(dir.path, 2), good = read_file(a + "/DONE");
    put(a + "/DONE", read_file(b + "/DONE"));
    EXPECT_EQ(verify_checkpoint(a, true), "DONE: it is of step 2");
    const auto sealed = [](std::string text) {
        return text + format("crc %08x\n", crc32c(0, text.data(), text.size()));
    };
    const std::string body = good.substr(0, good.size() - 13);
    const auto why = [&](const std::string& text) {
        put(a + "/DONE", text);
        return verify_checkpoint(a, true);
    };
    EXPECT(why(sealed(body)).empty(), "negative control");
    EXPECT(why(sealed(replaced(body, "checkpoint 1", "checkpoint 2"))).find("another version") != std::string::npos);
    EXPECT(!why(sealed(body + "something else\n")).empty() &&
               !why(sealed(replaced(body, "step 1", "step 01"))).empty() && !why("").empty());
    EXPECT(!why(sealed(replaced(body, "state.json", "../state.json"))).empty(), "a path");
    EXPECT(!why(std::string(100000, 'x')).empty(), "large");
    unlink((a + "/DONE").c_str());
    EXPECT(symlink("state.json", (a + "/DONE").c_str()) == 0 && !verify_checkpoint(a, false).empty(), "a link");
}

TEST(keep_retires_the_oldest_whole_ones) {
    Folder dir;
    const Sample s;
    const auto steps = [&] {
        std::string text;
        for (const std::string& name : list_directory(dir / "ckpt"))
            if (name != "latest")
                text +=
                    name.substr(name.find_last_of('_') + 1).substr(5) + (name[0] == '.' ? name.substr(1, 3) : "") + " ";
        return text;
    };
    s.save(dir.path, 10, 2);
    s.save(dir.path, 20, 2);
    s.save(dir.path, 30, 2);
    EXPECT_EQ(steps(), "020 030 ");
    unlink((dir / "ckpt/step_00000030/DONE").c_str());  // the run went on from 20; 30 is broken
    s.save(dir.path, 40, 2);
    EXPECT_EQ(steps(), "020 030 040 ");
    s.save(dir.path, 50, 1);
    EXPECT_EQ(steps(), "030 050 ");
    s.save(dir.path, 30, 1);  // saved over the broken one
    EXPECT_EQ(steps(), "030 050 ");
    EXPECT(verify_checkpoint(dir / "ckpt/step_00000030", true).empty(), "30");
    s.save(dir.path, 60, 0);
    go_on_from(dir.path, 30, -1);
    EXPECT(steps() == "030 050 060 " && find_checkpoint(dir.path) == dir / "ckpt/step_00000030", "latest decides");
    s.save(dir.path, 60, 1);
    EXPECT_EQ(steps(), "060 ");
    Folder all;
    for (const int step : {1, 2, 3, 4}) s.save(all.path, step, 0);
    EXPECT(list_directory(all / "ckpt").size() == 5, "keep 0 keeps all");
}

TEST(the_best_one_stays) {
    Folder dir;
    const Sample s;
    const auto save = [&](int64_t step, int64_t best, int keep = 1) {
        CheckpointFiles files = s.files();
        files.best_step = best;
        return write_checkpoint(dir.path, step, files, keep);
    };
    const auto list = [&] {
        std::string names = join(list_directory(dir / "ckpt"), " ");
        while (has(names, "step_000000")) names = replaced(names, "step_000000", "");
        return names;
    };
    const auto best = [&] { return read_file(dir / "ckpt/best"); };
    save(10, -1);
    EXPECT_EQ(list(), "latest 10");
    EXPECT(checkpoint_named(dir / "ckpt/best") == dir / "ckpt/best" &&
           checkpoint_named(dir / "ckpt/latest/") == dir / "ckpt/step_00000010" &&
           checkpoint_named(dir.path + "/") == dir.path);
    save(20, 20);
    for (const int step : {30, 40}) save(step, 20);
    EXPECT_EQ(list(), "best latest 20 40");     // the best is kept, and not counted
    EXPECT_EQ(resolve_model_folder(dir / "ckpt/best"), dir / "ckpt/step_00000020");
    EXPECT(best() == "step_00000020\n" && find_checkpoint(dir.path).ends_with("40"));
    save(50, 45);  // the save of step 45 failed: one that is not there is not named
    EXPECT(list() == "best latest 20 50" && best() == "step_00000020\n", "%s", list().c_str());
    save(60, 60);
    EXPECT_EQ(list(), "best latest 60");        // the one before goes
    save(70, 60, 2);
    save(80, 60, 2);
    EXPECT_EQ(list(), "best latest 60 70 80");  // two and the best
    name_best(dir.path, 80);
    go_on_from(dir.path, 80, 65);
    EXPECT(read_file(dir / "ckpt/best") == "step_00000080\n", "one that is not there is not named");
    go_on_from(dir.path, 70, 60);
    EXPECT(read_file(dir / "ckpt/best") == "step_00000060\n", "the best up to there");
    name_best(dir.path, 80);
    go_on_from(dir.path, 70, -1);
    EXPECT(!file_exists(dir / "ckpt/best"), "it is of a later step");
    for (const char* text : {"", "step_70", "../step_00000060", "step_00000060x\n"}) {
        put(dir / "ckpt/best", text);
        EXPECT(checkpoint_named(dir / "ckpt/best") == dir / "ckpt/best", "%s", text);
        expect_error(kExitNoInput, "ckpt/best", [&] { resolve_model_folder(dir / "ckpt/best"); });
    }
}

TEST(saving_the_same_step_again) {
    Folder dir;
    Sample s;
    s.save(dir.path, 7, 2);
    s.w[0] = 42;
    const std::string folder = s.save(dir.path, 7, 2);
    std::vector<float> back(s.arena.n);
    read_safetensors(folder + "/model.safetensors", s.arena, {{"", back.data()}});
    EXPECT(back[0] == 42 && list_directory(dir / "ckpt").size() == 2, "the new one, and no trace of the old");
}

TEST(stale_folders_are_removed_and_never_found) {
    Folder dir;
    const Sample s;
    s.save(dir.path, 1);
    EXPECT(rename((dir / "ckpt/step_00000001").c_str(), (dir / "ckpt/.tmp_step_00000001").c_str()) == 0,
           "a save killed before its rename");
    EXPECT(find_checkpoint(dir.path).empty(), "not found, and no error: it never existed");
    make_directories(dir / "ckpt/.del_step_00000009/x");
    make_directories(dir / "ckpt/.bad_step_00000009");  // of an older program
    put(dir / "ckpt/latest.tmp123", "x");
    s.save(dir.path, 1);
    EXPECT(list_directory(dir / "ckpt") == (std::vector<std::string>{".bad_step_00000009", "latest", "step_00000001"}),
           "stale ones are gone, bad ones stay");
}

TEST(unknown_extra_files_are_ignored) {
    Folder dir;
    const std::string folder = Sample().save(dir.path, 1);
    put(folder + "/notes.txt", "x");
    make_directories(dir / "ckpt/step_backup");
    make_directories(dir / "ckpt/step_00000002x");
    EXPECT(verify_checkpoint(folder, true).empty() && find_checkpoint(dir.path) == folder, "extra");
}

TEST(a_full_disk_leaves_the_old_ones) {
    Folder dir;
    const Sample s;
    s.save(dir.path, 1);
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit old;
    getrlimit(RLIMIT_FSIZE, &old);
    for (const size_t limit : {0, 100, 5000, 60000, 80000}) {  // in config.json, model, optimiser
        const rlimit now{limit, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &now);
        expect_error(kExitWrite, "", [&] { s.save(dir.path, 2, 1); });
        setrlimit(RLIMIT_FSIZE, &old);
        EXPECT(list_directory(dir / "ckpt") == (std::vector<std::string>{"latest", "step_00000001"}),
               "limit %zu: something half-written stays", limit);
        EXPECT(find_checkpoint(dir.path) == dir / "ckpt/step_00000001", "limit %zu", limit);
    }
    s.save(dir.path, 2, 1);
    EXPECT(find_checkpoint(dir.path) == dir / "ckpt/step_00000002", "and then it works");
}

TEST(no_space_on_a_small_file_system) {
    Folder dir;
    const std::string small = dir / "small";
    make_directories(small);
    if (mount("none", small.c_str(), "tmpfs", 0, "size=512k") != 0)
        SKIP("mounting a small file system needs root: %s", std::strerror(errno));
    const Sample s;
    std::string failure;
    try {
        s.save(small, 1, 1);
        int full = 0;
        for (int i = 0; i < 4 && !full; i++) {
            try {
                s.save(small, 2 + i, 0);
            } catch (const Error& e) {
                full = 2 + i;
                EXPECT(e.code == kExitWrite && has(e.message, "no space for a checkpoint"),
                       "%d %s", e.code, e.message.c_str());
            }
        }
        EXPECT(full > 0, "512 KiB were enough");
        EXPECT_EQ(find_checkpoint(small), small + "/ckpt/" + step_name(full - 1));
        for (const std::string& name : list_directory(small + "/ckpt"))
            EXPECT(name[0] != '.', "%s stays", name.c_str());
    } catch (const TestFailure& f) {
        failure = f.message;
    } catch (const Error& e) {
        failure = e.message;
    }
    umount(small.c_str());
    EXPECT(failure.empty(), "%s", failure.c_str());
}

// A process that saves in a loop is killed at a random moment after it has announced a random number of saves, many
// times. What it announced through the pipe must be there, whole; whatever else is there, the newest is found without
// help.
TEST(kill_9_at_random_moments) {
    Folder dir;
    const Sample s;
    int64_t next = 1, announced = 0;
    for (int round = 0; round < 30; round++) {
        int channel[2];
        EXPECT_EQ(pipe(channel), 0);
        const pid_t child = fork();
        if (child == 0) {
            for (int64_t step = next;; step++) {
                CheckpointFiles files = s.files();
                const int64_t moment = -step;
                files.progress = [&] {
                    if (write(channel[1], &moment, sizeof moment) != sizeof moment) _exit(2);
                };
                try {
                    write_checkpoint(dir.path, step, files, 2);
                } catch (...) {
                    _exit(1);
                }
                if (write(channel[1], &step, sizeof step) != sizeof step) _exit(2);
            }
        }
        close(channel[1]);
        int64_t message = 0;
        const auto hear = [&] {
            const bool more = read(channel[0], &message, sizeof message) == sizeof message;
            if (more && message > 0) announced = message;
            return more;
        };
        for (uint64_t n = random_bits() % 200; n > 0; n--) EXPECT(hear(), "round %d: the child ended by itself", round);
        usleep(useconds_t(random_bits() % 1000));  // between two of its messages
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        while (hear()) {
        }
        close(channel[0]);
        EXPECT(WIFSIGNALED(status), "round %d: the child ended by itself: %d", round, status);
        const std::string found = find_checkpoint(dir.path);
        if (announced == 0 && found.empty()) continue;
        const int64_t at = std::atoll(found.c_str() + found.find_last_of('_') + 1);
        EXPECT(at >= announced && at <= announced + 1, "round %d: found %s, announced %lld", round, found.c_str(),
               (long long)announced);
        int hidden = 0;
        for (const std::string& name : list_directory(dir / "ckpt")) hidden += name[0] == '.';
        EXPECT(hidden <= 1, "round %d: %d temporary folders", round, hidden);
        announced = at;  // committed, whether or not it could still say so
        next = at + 1;
    }
    EXPECT(announced > 1, "no save was ever finished");
    std::printf("     %lld saves committed over 30 kills\n", (long long)announced);
}

// ---------------------------------------------------------------------------------------------------- the saver

namespace {
struct SaverFolder : Folder {
    Sample s;
    Saver* saver;
    explicit SaverFolder(bool copy = true) : saver(saver_create(s.files(), copy, path, 0)) {}
    ~SaverFolder() { saver_destroy(saver); }
    // A save waits, once begun, until `go` is true.
    std::atomic<bool> go{true};
    void start(int64_t step) {
        saver_start(saver, step, s.files(), [this] {
            while (!go) usleep(1000);
        });
    }
};
}  // namespace

TEST(saver_writes_what_it_copied) {
    SaverFolder f;
    EXPECT(!saver_ready(f.saver) && !saver_ready(nullptr), "idle");
    f.go = false;
    f.start(3);
    const Sample before = f.s;
    for (std::vector<float>* x : {&f.s.w, &f.s.m, &f.s.v}) std::fill(x->begin(), x->end(), -1.0f);  // training goes on
    EXPECT(!saver_ready(f.saver), "under way");
    f.go = true;
    const Saved saved = saver_result(f.saver);
    EXPECT(saved.error.code == 0 && saved.folder == find_checkpoint(f.path) && saved.seconds >= 0, "saved");
    EXPECT(!saver_ready(f.saver), "its result was taken");
    std::vector<float> w(f.s.arena.n), m = w, v = w;
    read_state(saved.folder, f.s.arena, {{"", w.data()}, {"exp_avg", m.data()}, {"exp_avg_sq", v.data()}});
    EXPECT(w == before.w && m == before.m && v == before.v, "the copy");
}

TEST(saver_tells_errors_and_goes_on) {
    SaverFolder f(false);
    put(f / "ckpt", "a file where the folder should be");
    f.start(1);
    EXPECT_EQ(saver_result(f.saver).error.code, kExitWrite);
    unlink((f / "ckpt").c_str());
    f.start(2);
    while (!saver_ready(f.saver)) usleep(1000);
    EXPECT(saver_result(f.saver).error.code == 0 &&
               find_checkpoint(f.path) == f / "ckpt/step_00000002");
}

TEST(the_last_save_is_tried_again) {
    SaverFolder f;
    put(f / "ckpt", "x");
    f.start(1);
    EXPECT_EQ(saver_retry(f.saver, 0, [] { return false; }).error.code, kExitWrite);
    f.start(2);
    int asked = 0;
    EXPECT(saver_retry(f.saver, 1e6, [&] { return ++asked > 4; }).error.code == kExitWrite && asked >= 5,
           "a signal ends the wait");
    f.start(3);
    asked = 0;
    const Saved saved = saver_retry(f.saver, 1e6, [&] {
        if (++asked == 3) unlink((f / "ckpt").c_str());
        return false;
    });
    EXPECT(saved.error.code == 0 && saved.folder == f / "ckpt/step_00000003" && find_checkpoint(f.path) == saved.folder,
           "%s", saved.error.message.c_str());
    f.s.w[0] = NAN;
    f.start(4);
    EXPECT(saver_retry(f.saver, 1e6, [] { return false; }).error.code == kExitOther, "what time does not mend");
}

TEST(resolve_model_folder_says_what_is_there) {
    Folder dir;
    const auto resolve = [&](const std::string& name) { resolve_model_folder(dir.path + name); };
    expect_refusals(kExitNoInput, {{"/absent", "does not exist"}, {"", "it has none; want a run"}}, resolve);
    dir.add("pytorch_model.bin", "x");
    expect_refusals(kExitNoInput, {{"", "with model.safetensors"}, {"/pytorch_model.bin", "want a run"}}, resolve);
    dir.add("model.safetensors", "x");
    EXPECT_EQ(resolve_model_folder(dir.path), dir.path);
    make_directories(dir / "run/ckpt");
    expect_refusals(kExitNoInput, {{"/run", "want a run that has saved"}}, resolve);
}

// ---------------------------------------------------------------------------------------------------- the tools

namespace {
struct Output { int code; std::string text; };      // of both streams

Output run_tool(const std::string& arguments) {
    const char* tools = std::getenv("TOOLS");
    const std::string folder = tools ? tools : "build", name = arguments.substr(0, arguments.find(' '));
    if (!file_exists(folder + "/" + name))
        SKIP("%s/%s is not built (TOOLS names the folder)", folder.c_str(), name.c_str());
    FILE* pipe = popen(("'" + folder + "/" + name + "'" + arguments.substr(name.size()) + " 2>&1").c_str(), "r");
    EXPECT(pipe, "popen");
    Output out;
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.text.append(buffer, n);
    const int status = pclose(pipe);
    out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return out;
}

void expect_output(int code, const std::string& part, const std::string& arguments) {
    const Output out = run_tool(arguments);
    EXPECT(out.code == code && has(out.text, part), "%s: code %d, want %d: %s; want ...%s...",
           arguments.c_str(), out.code, code, out.text.c_str(), part.c_str());
    for (const char c : out.text)
        EXPECT(c == '\n' || (unsigned char)c >= 0x20, "%s: a control byte reaches the terminal", arguments.c_str());
}
// A table: the exit code, what must be said, and the arguments.
struct Call { int code; std::string part, arguments; };
void expect_outputs(const std::vector<Call>& calls) {
    for (const Call& c : calls) expect_output(c.code, c.part, c.arguments);
}

// A GGUF file as its bytes lie there: behind a tensor's name are its dimensions (fastest first), type and offset; the
// data begin at the multiple of 32 after the last description.
struct GgufBytes {
    const std::string file;
    const size_t end = file.find("output_norm.bias") + 16 + 4 + 8 + 4 + 8, data = round_up<size_t>(end, 32);
    template <class T> T at(size_t place) const {
        T x;
        std::memcpy(&x, file.data() + place, sizeof x);
        return x;
    }
    struct Tensor { std::vector<uint64_t> dims; uint32_t type; const char* values; };
    Tensor tensor(const std::string& name) const {
        const size_t place = file.find(name) + name.size();
        Tensor t = {};
        for (uint32_t k = 0; k < at<uint32_t>(place); k++) t.dims.push_back(at<uint64_t>(place + 4 + 8 * k));
        const size_t behind = place + 4 + 8 * t.dims.size();
        const uint64_t offset = at<uint64_t>(behind + 4);
        EXPECT(offset % 32 == 0, "%s: alignment", name.c_str());
        t.type = at<uint32_t>(behind);
        t.values = file.data() + data + offset;
        return t;
    }
};
}  // namespace

TEST(export_llmc_by_hand) {
    Folder dir;
    const Sample s;
    s.save(dir.path, 1);
    expect_output(0, "bytes", "export " + dir.path + " --llmc " + (dir / "m.bin"));
    const std::string file = read_file(dir / "m.bin");
    int32_t head[8];
    std::memcpy(head, file.data(), sizeof head);
    const int32_t want[8] = {20240326, 3, int(kT), int(kV), kBlocks, 2, int(kC), 384};
    EXPECT_EQ(std::memcmp(head, want, sizeof head), 0);
    const auto at = [&](size_t i) {
        float x;
        std::memcpy(&x, file.data() + 1024 + 4 * i, 4);
        return x;
    };
    // The places follow from llm.c's order: wte wpe ln1w ln1b qkvw qkvb attprojw ..., each for all layers.
    const size_t wpe = 384 * kC, ln1w = wpe + kT * kC, ln1b = ln1w + 2 * kC, qkvw = ln1b + 2 * kC,
                 qkvb = qkvw + 2 * 3 * kC * kC, proj = qkvb + 2 * 3 * kC;
    EXPECT(at(kV * kC - 1) == s.tensor("transformer.wte.weight")[kV * kC - 1] && at(kV * kC) == 0 && at(wpe - 1) == 0,
           "wte and its padding");
    EXPECT_EQ(at(wpe + 3), s.tensor("transformer.wpe.weight")[3]);
    EXPECT_EQ(at(ln1w + kC), s.tensor("transformer.h.1.ln_1.weight")[0]);
    const float* const qkv = s.tensor("transformer.h.1.attn.c_attn.weight");
    for (size_t i = 0; i < 3 * kC * kC; i++) EXPECT_EQ(at(qkvw + 3 * kC * kC + i), qkv[i]);
    for (size_t i = 0; i < kC * kC; i++)
        EXPECT(at(proj + i) == s.tensor("transformer.h.0.attn.c_proj.weight")[i], "attprojw: [%zu]", i);
    EXPECT_EQ(file.size(),
              1024 + 4 * (384 * kC + kT * kC + kBlocks * (12 * kC * kC + 13 * kC) + 2 * kC));
    EXPECT_EQ(at((file.size() - 1024) / 4 - 1), s.tensor("transformer.ln_f.bias")[kC - 1]);
    expect_output(0, "llm.c model, fp32", "info " + (dir / "m.bin"));
    EXPECT_EQ(truncate((dir / "m.bin").c_str(), off_t(file.size() - 4)), 0);
    expect_output(65, "for its header's shape", "info " + (dir / "m.bin"));
}

TEST(export_gguf_by_hand) {
    Folder dir;
    const Sample s;
    s.save(dir.path, 1);
    expect_output(0, "m.gguf.Modelfile", "export " + dir.path + " --type f32 --gguf=" + (dir / "m.gguf"));
    EXPECT(read_file(dir / "m.gguf.Modelfile").find("\nFROM ./m.gguf\n") != std::string::npos, "Modelfile");
    const GgufBytes gguf = {read_file(dir / "m.gguf")};
    EXPECT(gguf.file.starts_with(std::string("GGUF\x03\0\0\0", 8)));
    EXPECT_EQ(gguf.at<uint64_t>(8), s.arena.tensors.size());
    EXPECT_EQ(gguf.at<uint64_t>(16), 18);       // keys
    const struct { const char *name, *hf; std::vector<uint64_t> dims; } tensors[] = {
        {"token_embd.weight", "transformer.wte.weight", {kC, kV}},
        {"position_embd.weight", "transformer.wpe.weight", {kC, kT}},
        {"blk.1.attn_qkv.weight", "transformer.h.1.attn.c_attn.weight", {kC, 3 * kC}},
        {"blk.0.attn_output.weight", "transformer.h.0.attn.c_proj.weight", {kC, kC}},
        {"blk.1.ffn_down.weight", "transformer.h.1.mlp.c_proj.weight", {4 * kC, kC}},
        {"blk.1.ffn_up.bias", "transformer.h.1.mlp.c_fc.bias", {4 * kC}},
        {"output_norm.bias", "transformer.ln_f.bias", {kC}}};
    for (const auto& [name, hf, dims] : tensors) {
        const Row row(name);
        const GgufBytes::Tensor t = gguf.tensor(name);
        EXPECT_EQ(t.dims, dims);
        EXPECT(std::memcmp(t.values, s.tensor(hf), dims[0] * (dims.size() > 1 ? dims[1] : 1) * 4) == 0);
    }
    expect_output(0, "GGUF version 3", "info " + (dir / "m.gguf"));
    EXPECT_EQ(truncate((dir / "m.gguf").c_str(), off_t(gguf.file.size() - 32)), 0);
    expect_output(65, "end beyond the file", "info " + (dir / "m.gguf"));
}

// What --init reads of the files that export wrote: the same weights, sizes and tokenizer.
TEST(model_files_read_back) {
    Folder dir;
    const Sample s;
    const std::string folder = s.save(dir.path, 1), gguf = dir / "m.gguf", llmc = dir / "m.bin";
    expect_output(0, "bytes", "export " + dir.path + " --type f32 --gguf " + gguf + " --llmc " + llmc);
    for (const std::string& path : {gguf, llmc}) {
        const ModelFile file = open_model_file(path);
        const ModelConfig got = parse_config(file.config_json, path.c_str()), want = read_config(folder);
        for (const ShapeKey& key : want.info->keys)
            EXPECT(key.get(got.shape) == key.get(want.shape), "%s: %s", path.c_str(), key.option);
        EXPECT(got.shape.V == int(kV), "%s: V", path.c_str());
        std::vector<float> values(s.arena.n, 1.0f);
        read_model_file(path, s.arena, s.arena, values.data(), dir / "scratch");
        EXPECT(values == s.w, "%s: weights", path.c_str());
    }
    const ModelFile file = open_model_file(gguf);
    const Tokenizer got = tokenizer_parse(tokenizer_json_of_gguf(file.split, file.vocabulary, file.begin, gguf), gguf);
    const Tokenizer want = tokenizer_load(folder);
    EXPECT(got.bytes == want.bytes && got.eot == want.eot && got.added.size() == 1, "tokenizer");
    EXPECT(open_model_file(llmc).vocabulary.empty(), "llm.c's file has none");
}

// A value of another type is read where it says the same, and refused with its key where it does not: it is never as if
// the key were absent.
TEST(gguf_values_of_other_types) {
    Folder dir;
    const Sample s;
    s.save(dir.path, 1);
    expect_output(0, "bytes", "export " + dir.path + " --type f32 --gguf " + (dir / "m.gguf"));
    const GgufBytes good = {read_file(dir / "m.gguf")};
    const std::string& file = good.file;
    // Reads the model with another value under a key that has one of `old` bytes.
    const auto read = [&](const std::string& key, size_t old, uint32_t type, const std::string& value) {
        const size_t at = file.find(key) + key.size();
        const size_t behind = at + 4 + old;
        std::string head = file.substr(0, at) + bytes_of(type) + value + file.substr(behind, good.end - behind);
        head.resize(round_up<size_t>(head.size(), 32));
        put(dir / "x.gguf", head + file.substr(good.data));
        const ModelFile model = open_model_file(dir / "x.gguf");
        std::vector<float> values(s.arena.n);
        read_model_file(dir / "x.gguf", s.arena, s.arena, values.data(), dir / "scratch");
        EXPECT_EQ(values, s.w);
        return model.config_json;
    };
    const std::string epsilon = "gpt2.attention.layer_norm_epsilon", length = "gpt2.context_length";
    const std::string as_text = bytes_of(uint64_t(4)) + "1e-3", of_texts = bytes_of(8u) + bytes_of(uint64_t(0));
    EXPECT(has(read(epsilon, 4, 12, bytes_of(1e-3)), "\"layer_norm_epsilon\":0.001,"), "double");
    EXPECT(has(read(epsilon, 4, 6, bytes_of(1e-3f)), "\"layer_norm_epsilon\":0.001,"), "float");
    const std::string eight = format("\"n_positions\":%zu,", kT);
    const std::pair<uint32_t, std::string> wholes[] = {
        {0, bytes_of(uint8_t(kT))}, {1, bytes_of(int8_t(kT))}, {2, bytes_of(uint16_t(kT))}, {3, bytes_of(int16_t(kT))},
        {5, bytes_of(int32_t(kT))}, {10, bytes_of(uint64_t(kT))}, {11, bytes_of(int64_t(kT))},
        {6, bytes_of(float(kT))}};
    for (const auto& [type, value] : wholes)
        EXPECT(has(read(length, 4, type, value), eight), "type %u", type);
    const std::pair<uint32_t, std::string> bad[] = {
        {6, bytes_of(NAN)}, {6, bytes_of(INFINITY)}, {12, bytes_of(double(NAN))}, {12, bytes_of(-double(INFINITY))},
        {7, "\1"}, {8, as_text}, {9, of_texts}};
    for (const std::string& key : {epsilon, length})
        for (const auto& [type, value] : bad)
            expect_error(kExitBadContent, key + ": got",
                         [&, type = type, value = value] { read(key, 4, type, value); });
    const std::string five = bytes_of(5u);
    for (const std::string key : {"general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre"}) {
        uint64_t bytes;
        std::memcpy(&bytes, &file[file.find(key) + key.size() + 4], 8);
        expect_error(kExitBadContent, key + ": got 5, want a text", [&] { read(key, 8 + bytes, 4, five); });
    }
    const struct { const char* key; size_t old; uint32_t type; std::string value; } others[] = {
        {"general.alignment", 4, 8, as_text}, {"tokenizer.ggml.eos_token_id", 4, 8, as_text},
        {"tokenizer.ggml.add_bos_token", 1, 0, "\0"}};
    for (const auto& [key, old, type, value] : others)
        expect_error(kExitBadContent, key + std::string(": got"),
                     [&, key = key, old = old, type = type, value = value] { read(key, old, type, value); });
}

// Names that cannot be told apart by a prefix, and those that GGUF has none for.
TEST(gguf_names) {
    EXPECT(gguf_name("transformer.h.11.attn.c_proj.bias") == "blk.11.attn_output.bias", "a block of GPT-2");
    EXPECT(gguf_name("model.layers.2.self_attn.q_norm.weight") == "blk.2.attn_q_norm.weight", "a layer of Qwen3");
    EXPECT(gguf_name("model.norm.weight") == "output_norm.weight" &&
               gguf_name("lm_head.weight") == "output.weight");
    EXPECT(gguf_name("model.layers.2.norm2.weight").empty() && gguf_name("x").empty(), "unknown");
    EXPECT(gguf_keys("lstm").empty() && gguf_keys("qwen3").size() == gguf_keys("llama").size(), "architectures");
    for (const ModelInfo* model : all_models())
        EXPECT(model->gguf == !gguf_keys(model->name).empty(), "%s: .gguf says so", model->name);
}

// The matrices of other types: one whose rows are too short for q8_0's blocks is f16, the table of positions is f32.
TEST(export_gguf_types) {
    Folder dir;
    Sample s;
    float* const down = s.tensor("transformer.h.0.mlp.c_proj.weight");
    const float block[8] = {127, 0.5f, 1.5f, -2.5f, 0x1p-24f, 0x1.8p-25f, -0x1.4p-24f, 2049};  // ties and small ones
    std::copy_n(block, 7, down);
    std::fill_n(down + 32, 32, 0.0f);
    std::copy_n(block, 8, down + 64);
    s.save(dir.path, 1);
    const struct { const char* option; uint32_t wte, down; } rows[] = {{"f16", 1, 1}, {"bf16", 30, 30}, {"q8_0", 1, 8}};
    for (const auto& row : rows) {
        const std::string path = dir / (std::string(row.option) + ".gguf");
        expect_output(0, "bytes", "export " + dir.path + " --gguf " + path + " --type " + row.option);
        expect_output(0, "GGUF version 3", "info " + path);
        const GgufBytes gguf = {read_file(path)};
        const GgufBytes::Tensor wpe = gguf.tensor("position_embd.weight");
        EXPECT(wpe.type == 0 && std::memcmp(wpe.values, s.tensor("transformer.wpe.weight"), 4 * kT * kC) == 0);
        const auto [dims, type, at] = gguf.tensor("blk.0.ffn_down.weight");
        EXPECT(gguf.tensor("token_embd.weight").type == row.wte && type == row.down, "%s: types", row.option);
        std::vector<float> got(96);
        if (type == 8) {
            const int8_t want[] = {127, 1, 2, -3, 0, 0, 0};
            EXPECT(std::memcmp(at, "\0\x3c", 2) == 0 && std::memcmp(at + 2, want, 7) == 0, "q8_0: a block by hand");
            EXPECT(std::string(at + 34, 34) == std::string(34, '\0'), "q8_0: a block of zeros");
            convert_to_floats(got.data(), at + 68, "F16", 1);
            EXPECT(got[0] == 16.140625f && at[68 + 9] == 127 && at[68 + 2] == 8, "q8_0: the third block: %g", got[0]);
        } else {
            convert_to_floats(got.data(), at, type == 1 ? "F16" : "BF16", 96);
            const float half[8] = {127, 0.5f, 1.5f, -2.5f, 0x1p-24f, 0x1p-24f, -0x1p-24f, 2048};
            const float brain[8] = {127, 0.5f, 1.5f, -2.5f, 0x1p-24f, 0x1.8p-25f, -0x1.4p-24f, 2048};
            for (int i = 0; i < 8; i++)
                EXPECT(got[size_t(64 + i)] == (type == 1 ? half : brain)[i], "%s: [%d] %g", row.option, i,
                       double(got[size_t(64 + i)]));
        }
    }
    down[0] = 65520;
    s.save(dir / "large", 1);
    const std::string large = "export " + (dir / "large") + " --gguf " + (dir / "l.gguf");
    const std::string again = "export " + dir.path + " --gguf " + (dir / "l.gguf");
    expect_output(65, "ffn_down.weight: got 65520", large);
    EXPECT(!file_exists(dir / "l.gguf") && !file_exists(dir / "l.gguf.Modelfile"), "nothing is written");
    expect_outputs({{0, "bytes", large + " --type bf16"}, {2, "l.gguf: it exists", again}});
    EXPECT_EQ(::unlink((dir / "l.gguf").c_str()), 0);
    expect_outputs({{2, "l.gguf.Modelfile: it exists", again},
                    {2, "--type: got q4_0, want f16, f32", "export " + dir.path + " --gguf x.gguf --type q4_0"}});
}

TEST(export_hf_and_its_command_line) {
    Folder dir;
    const Sample s;
    const std::string folder = s.save(dir.path, 1), hf = dir / "hf";
    expect_output(0, "Hugging Face folder of step_00000001", "export " + dir.path + " --hf " + hf);
    EXPECT(list_directory(hf) == (std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.json",
                                                           "tokenizer_config.json"}), "files");
    for (const std::string& name : list_directory(hf))
        EXPECT(read_file(hf + "/" + name) == read_file(folder + "/" + name), "%s", name.c_str());
    const std::string of_run = "export " + dir.path;
    expect_outputs({
        {0, "", "export " + hf + " --llmc " + (dir / "again.bin")},  // such a folder is a model again
        {2, "it exists", of_run + " --hf " + hf}, {2, "it exists", of_run + " --llmc " + (dir / "again.bin")},
        {2, "unknown option --gugf; did you mean --gguf?", of_run + " --gugf x"}, {2, "want a value", of_run + " --hf"},
        {2, "want --hf DIR", of_run}, {2, "a second folder", "export a b --hf c"},
        {0, "usage: export", "export --help"}, {66, "does not exist", "export " + (dir / "absent --hf ") + (dir / "x")},
        {74, "cannot", of_run + " --llmc " + (dir / "no/such/folder.bin")}});
    restore(folder + "/model.safetensors", read_file(folder + "/optim.safetensors"));
    expect_output(65, "bad checkpoint", "export " + folder + " --hf " + (dir / "y"));
    restore(hf + "/config.json", replaced(read_file(hf + "/config.json"), "\"n_layer\": 2", "\"n_layer\": 4096"));
    expect_output(65, "config.json: got a model of", "export " + hf + " --hf " + (dir / "z"));
    EXPECT(!file_exists(dir / "x") && !file_exists(dir / "y") && !file_exists(dir / "z"), "nothing is written");
}

TEST(info_names_what_it_sees) {
    Folder dir;
    const std::string folder = Sample().save(dir.path, 1);
    expect_outputs({{0, "complete, all checksums right", "info " + dir.path},
                    {0, "10,784 parameters", "info " + folder},
                    {0, "transformer.h.1.mlp.c_proj.weight", "info " + folder + "/model.safetensors"},
                    {0, "a checkpoint's state", "info " + folder + "/state.json"},
                    {2, "--help lists all", "info --hlep"}, {2, "usage", "info"},
                    {66, "No such file", "info " + (dir / "absent ") + folder}});
    const struct { const char* name; std::string content; int code; const char* part; } files[] = {
        {"a.bin", std::string("\1\0\2\0\3\0", 6), 0, "ids 1 to 3"}, {"odd.bin", "abc", 65, "got 3 bytes"},
        {"a.txt", "one\ntwo\n", 0, "2 lines"}, {"e.txt", "", 65, "empty"},
        {"m.jsonl", "{\"event\":\"train\",\"step\":0,\"loss\":5.5}\n{\"event\":\"x\\u001b[2J\"}\ntorn", 0, "1 train"},
        {"x.json", "{\"\\u001b[2J\":1}", 65, "its keys"},
        {"x.safetensors", safetensors("{\"__metadata__\":{\"k\":\"\\u001b[2J\"}}", ""), 0, "0 tensors"},
        {"g.gguf", std::string("GGUF\3\0\0\0\1\0", 10), 65, "ends inside the header"},
        {"w.gguf", std::string("GGUF\3\0\0\0", 8) + std::string(8, '\0') + std::string(8, '\xff'), 65,
         "ends inside the header"},
        {"z.gz", "\x1f\x8b\x08 and more", 65, "got a gzip file"}};
    for (const auto& f : files) {
        put(dir / f.name, f.content);
        expect_output(f.code, f.part, "info " + (dir / f.name));
    }
    // llm.c's header whose parameter count wraps to 0 (T=64, L=4, C=2^30, padded vocabulary -118) passes for a model
    // elsewhere.
    int32_t head[256] = {20240326, 3, 64, 50257, 4, 1, 1 << 30, -118};
    put(dir / "wraps.bin", std::string(reinterpret_cast<const char*>(head), sizeof head));
    expect_output(65, "n_embd: got 1073741824", "info " + (dir / "wraps.bin"));
    for (int i = 0; i < 60; i++) {  // noise behind every magic: an answer or an error, never a crash
        std::string noise(size_t(random_bits() % 400), '\0');
        for (char& c : noise) c = char(random_bits() % (i % 3 ? 256 : 3));
        const char* magic[] = {"GGUF\3", "\x93NUMPY\1", "{\"", "\x46\xd7\x34\x01", "", "[", "\x98\xd7\x34\x01"};
        const char* names[] = {"n.gguf", "n.npy", "n.json", "n.bin", "n.safetensors", "n.jsonl", "n.bpe"};
        const std::string path = dir / names[random_bits() % 7];
        put(path, magic[random_bits() % 7] + noise);
        const Output out = run_tool("info " + path);
        EXPECT(out.code == 0 || out.code == 65, "code %d: %s", out.code, out.text.c_str());
    }
}

// Left behind on purpose when asked: for tests/check_transformers.py.
TEST(write_for_transformers) {
    const char* out = std::getenv("CHECKPOINT_OUT");
    if (!out) SKIP("CHECKPOINT_OUT=DIR keeps a checkpoint there");
    Sample s;
    arena_init(s.w.data(), s.arena, 1);
    s.save(out, 1);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
