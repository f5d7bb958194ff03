// test_checkpoint.cpp -- safetensors against an independent reader and against malicious files; checkpoints against
// flipped bits, torn saves, full disks and kills at random moments.
#include <fcntl.h>
#include <sys/mount.h>
#include <algorithm>
#include <cstring>
#include <random>
#include "tools/text/config_reader.h"
#include "optimizers/optimizer.h"
#include "src/checkpoint/checkpoint.h"
#include "tools/text/model_file.h"
#include "tools/text/model_folder.h"
#include "tools/text/tokenizer.h"
#include "tests/test.h"
#include "tests/unit/limit.h"
#include "tests/unit/program.h"
#include "tests/unit/synced.h"

namespace {
std::mt19937_64 random_bits;

constexpr size_t kV = 257, kC = 16, kT = 5;
constexpr int kBlocks = 2;

// Values of each tensor are different numbers; padding is zero.
std::vector<float> fill(const Arena& arena, float first) {
    std::vector<float> x(arena.n);
    for (size_t i = 0; i < arena.tensors.size(); i++)
        for (size_t k = 0; k < arena.tensors[i].file_rows * arena.tensors[i].cols; k++)
            x[arena.offset[i] + k] = first + float(i) + float(k) * 0x1p-13f;
    return x;
}

// A GPT-2: wte has padding rows, the four matrices of a block are transposed in the file, c_proj is square.
struct Sample {
    const ModelConfig config = {
        find_model("gpt2"), {.L = kBlocks, .NH = 2, .C = int(kC), .T = int(kT), .V = int(kV), .Vp = 272}};
    Arena arena = arena_layout(config.info->tensors(config.shape));
    mutable std::vector<float> w = fill(arena, 1), m = fill(arena, 100), v = fill(arena, 200);
    CheckpointFiles files() const {
        return {.config_json = config_json(config, R"({"bos_token_id":256,"eos_token_id":256})"),
                .state_json = "{\"step\":7,\"tokens\":1234}\n",
                .texts = {{"tokenizer.json", tokenizer_byte().to_json()}, {"tokenizer_config.json", "{}\n"}},
                .arena = &arena,
                .arrays = {{"", w.data()}, {"exp_avg", m.data()}, {"exp_avg_sq", v.data()}}};
    }
    std::string save(const std::string& out, int64_t step, int keep = 0) const {
        CheckpointFiles all = files();
        all.keep = keep;
        return write_checkpoint(out, step, all);
    }
    float* tensor(const std::string& name) const {
        const auto found = std::ranges::find(arena.tensors, name, &TensorSpec::name);
        EXPECT(found != arena.tensors.end(), "no tensor %s", name.c_str());
        return w.data() + arena.offset[size_t(found - arena.tensors.begin())];
    }
};

// Returns the file's bytes.
std::string write_arrays(const std::string& path, const Arena& arena, const std::vector<NamedArray>& arrays) {
    FileWriter file(path);
    size_t progress = 0;
    write_safetensors(&file, arena, arrays, [&] { progress++; });
    file.finish();
    EXPECT_EQ(progress, arrays.size() * arena.tensors.size());
    const std::string bytes = read_file(path);
    EXPECT(file.bytes == bytes.size() && file.crc == crc32c(0, bytes.data(), bytes.size()), "size or checksum");
    return bytes;
}

template <class T> T number_at(const std::string& file, size_t place) {
    T x;
    std::memcpy(&x, &file.at(place), sizeof x);
    return x;
}

// In place: an existing file of another length or content becomes this one, without the flush that a file system may
// put behind a truncation to 0.
void restore(const std::string& path, const std::string& content) {
    const Descriptor file(open(path.c_str(), O_WRONLY));
    EXPECT(pwrite(file.fd, content.data(), content.size(), 0) == ssize_t(content.size()) &&
               ftruncate(file.fd, off_t(content.size())) == 0, "%s", path.c_str());
}

std::string with_flip(std::string bytes, size_t at, int bit) {
    bytes[at] = char(bytes[at] ^ 1 << bit);
    return bytes;
}

std::string safetensors(const std::string& header, const std::string& data) {
    return bytes_of(uint64_t(header.size())) + header + data;
}
// A tensor in such a header.
std::string entry(const std::string& name, const std::string& shape, const std::string& offsets,
                  const std::string& dtype = "F32") {
    return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets +
           "]}";
}

std::vector<SafeTensor> parse(const std::string& file) {
    static const Folder dir;
    return open_safetensors(dir.add("x.safetensors", file)).tensors;
}

std::vector<float> by_name(const SafeTensors& file, const Arena& arena) {
    std::vector<float> values(arena.n, NAN);
    read_tensors(find_tensors(file, arena.tensors), arena, arena, values.data());
    return values;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- safetensors

TEST(written_file_by_hand) {
    const Folder dir;
    const Sample s;
    const std::string file = write_arrays(dir / "m", s.arena, {{"", s.w.data()}});
    const uint64_t data = 8 + number_at<uint64_t>(file, 0);
    EXPECT(data % 64 == 0 && file[8] == '{', "data are not aligned: %llu", (unsigned long long)data);
    EXPECT(file.find("\"__metadata__\":{\"format\":\"pt\"}") < data, "metadata");
    EXPECT(!has(file, "lm_head"), "the tied head is left out");
    uint64_t params = 0;
    for (size_t i = 0; i < s.arena.tensors.size(); i++) {
        const TensorSpec& t = s.arena.tensors[i];
        const Row row(t.name);
        const size_t rows = t.file_rows, n = rows * t.cols;
        const bool turned = has(t.name, ".c_") && t.name.ends_with(".weight"), table = t.name.ends_with("e.weight");
        const std::string shape = turned  ? format("[%zu,%zu]", t.cols, rows)
                                  : table ? format("[%zu,%zu]", rows, t.cols)
                                          : format("[%zu]", t.cols);
        const std::string head = "\"" + t.name + "\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":[";
        const size_t at = file.find(head);
        EXPECT(at < data, "no entry %s", head.c_str());
        size_t begin, end;
        EXPECT(std::sscanf(&file[at + head.size()], "%zu,%zu]", &begin, &end) == 2 && end - begin == 4 * n);
        for (size_t k = 0; k < n; k++) {
            const size_t place = turned ? k % t.cols * rows + k / t.cols : k;
            EXPECT_EQ(number_at<float>(file, data + begin + 4 * place), s.w[s.arena.offset[i] + k]);
        }
        params += n;
    }
    EXPECT_EQ(file.size(), data + 4 * params);
}

TEST(round_trip_with_odd_shapes) {
    const Folder dir;
    const Arena arena = arena_layout({{"transposed", 129, 67, 127, true, 0, true},
                                      {"one_row", 1, 33, 1, true, 0, true},
                                      {"one_column", 65, 1, 65, true, 0, true}, {"row", 1, 5, 1, false, 0, true},
                                      {"scalar", 1, 1, 1, false, 0, false},
                                      {"tall", 40000, 40, 39999, true, 0, true}});
    std::vector<float> w = fill(arena, -3);
    write_arrays(dir / "m", arena, {{"", w.data()}});
    const SafeTensors file = open_safetensors(dir / "m");
    EXPECT_EQ(shape_text(file.tensors[3].shape) + shape_text(file.tensors[4].shape), "[1,5][1]");
    EXPECT(by_name(file, arena) == w, "values or padding");
}

// A matrix and a vector that are one in memory are their parts in a file; and the file may be several with an index.
TEST(parts_and_shards) {
    const Folder dir;
    const std::vector<TensorSpec> table = {
        {"embed.weight", 16, 2, 3, false, 0, true},
        {"qkv.weight", 5, 2, 5, false, 0, true, false, {{"q.weight", 3}, {"k.weight", 1}, {"v.weight", 1}}},
        {"qkv.bias", 1, 5, 1, false, 0, false, false, {{"q.bias", 3}, {"k.bias", 1}, {"v.bias", 1}}}};
    const Arena arena = arena_layout(table);
    std::vector<float> w = fill(arena, 2);
    write_arrays(dir / "model.safetensors", arena, {{"", w.data()}});
    const SafeTensors one = open_model(dir.path);
    std::string parts;
    for (const SafeTensor& t : one.tensors) parts += t.name + shape_text(t.shape) + " ";
    EXPECT_EQ(parts, "embed.weight[3,2] q.weight[3,2] k.weight[1,2] v.weight[1,2] q.bias[3] k.bias[1] v.bias[1] ");
    EXPECT_EQ(by_name(one, arena), w);

    remove_tree(dir / "model.safetensors");
    write_arrays(dir / "model-1.safetensors", arena_layout({table[0]}), {{"", w.data()}});
    write_arrays(dir / "model-2.safetensors", arena_layout({table[1], table[2]}), {{"", &w[arena.offset[1]]}});
    const auto read = [&](const std::string& map) {
        dir.add("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{" + map + "}}");
        return by_name(open_model(dir.path), arena);
    };
    const auto read_q = [&](const std::string& name) {
        return read(R"("embed.weight":"model-1.safetensors","q.weight":)" + name + R"(,"k.weight":)" + name);
    };
    EXPECT_EQ(read_q("\"model-2.safetensors\""), w);
    make_directories(dir / "a");
    write_arrays(dir / "a/b.safetensors", arena_layout({table[1], table[2]}), {{"", &w[arena.offset[1]]}});
    EXPECT_EQ(read_q("\"a/b.safetensors\""), w);
    expect_refusals(kExitNoInput, {{"\"model-3.safetensors\"", "model-3"}}, read_q);
    Refusals names = {{"\"model-1.safetensors\"", "tensor q.weight: it is missing"}};
    for (const char* name : {"\"../model.safetensors\"", "\"a/../b\"", "\"a/\"", "\"/b\"", "\"a//b\"", "3", "\"\"",
                             "\".hidden\""})
        names.push_back({name, "weight_map: q.weight"});
    expect_refusals(kExitBadContent, names, read_q);
    expect_refusals(kExitBadContent, {{"", "weight_map"}}, read);
}

TEST(not_finite_is_neither_saved_nor_loaded) {
    const Folder dir;
    Sample s;
    std::string file = write_arrays(dir / "m", s.arena, {{"", s.w.data()}});
    for (const float bad : {float(NAN), -float(INFINITY)}) {
        for (std::vector<float>* x : {&s.w, &s.v}) {
            const float good = std::exchange((*x)[s.arena.offset[4] + 37], bad);
            expect_error(kExitOther, "tensor transformer.h.0.attn.c_attn.weight: element 37",
                         [&] { s.save(dir.path, 1); }, "not saved");
            EXPECT(find_checkpoint(dir.path).empty() && list_directory(dir / "ckpt").empty(), "no trace");
            (*x)[s.arena.offset[4] + 37] = good;
        }
        std::memcpy(&file[file.size() - 4 * (kC + 3)], &bad, 4);
        dir.add("m", file);
        expect_error(kExitBadContent, "ln_f.weight: element 13",
                     [&] { read_safetensors(dir / "m", s.arena, {{"", s.w.data()}}); });
    }
}

TEST(half_and_bf16_and_unaligned) {
    // Every fp16 value, against ldexp; data begin at an odd address.
    std::string data = "x";
    for (unsigned i = 0; i < 65536; i++) data += bytes_of(uint16_t(i));
    std::vector<float> half(65536), brain(65536);
    EXPECT(convert_to_floats(half.data(), &data[1], "F16", 65536) &&
               convert_to_floats(brain.data(), &data[1], "BF16", 65536));
    EXPECT(!convert_to_floats(half.data(), data.data(), "F64", 1), "F64");
    for (unsigned i = 0; i < 65536; i++) {
        const int exponent = int(i >> 10 & 31), fraction = int(i & 1023);
        const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                            : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                           : std::ldexp(fraction, -24);
        const float want = float(i >> 15 ? -size : size);
        EXPECT(std::isnan(want) ? std::isnan(half[i]) : bytes_of(half[i]) == bytes_of(want), "fp16 %04x: %g, want %g",
               i, double(half[i]), double(want));
        EXPECT(bytes_of(brain[i]) == bytes_of(i << 16), "bf16 %04x", i);
    }
}

TEST(both_name_styles_masks_and_the_tied_head) {
    const Folder dir;
    const Arena arena = arena_layout({{"transformer.wte.weight", 16, 2, 3, false, 0, true},
                                      {"transformer.h.0.attn.c_proj.weight", 2, 2, 2, true, 0, true}});
    const std::string mask = "," + entry("h.0.attn.bias", "1,1,2", "20,22", "BOOL") + "," +
                             entry("h.0.attn.masked_bias", "", "22,23", "U8");
    const std::string matrices =
        "{" + entry("wte.weight", "3,2", "0,12", "BF16") + "," + entry("h.0.attn.c_proj.weight", "2,2", "12,20", "F16");
    const std::string head = "," + entry("lm_head.weight", "3,2", "23,35", "BF16") + "}";
    const uint16_t w[] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0}, p[] = {0x3c00, 0x4000, 0x4200, 0x4400};
    const std::string all = matrices + mask + head, bytes = bytes_of(w) + bytes_of(p) + "abc" + bytes_of(w);
    const auto open = [&](const std::string& header, const std::string& data) {
        return open_safetensors(dir.add("m", safetensors(header, data)));
    };
    const auto load = [&](const std::string& header) { return by_name(open(header, bytes), arena); };
    std::vector<float> want(arena.n);
    std::copy_n(std::initializer_list<float>{1, 2, 3, 4, 5, 6}.begin(), 6, want.begin());
    std::copy_n(std::initializer_list<float>{1, 3, 2, 4}.begin(), 4, &want[arena.offset[1]]);
    EXPECT_EQ(load(all), want);
    const auto named = [&](const std::string& of_wte, const std::string& of_head) {
        return replaced(replaced(all, "\"wte.", "\"" + of_wte + "wte."), "\"lm_head", "\"" + of_head + "lm_head");
    };
    for (const std::string prefix : {"_orig_mod.", "module.", "base_model.model.", "_orig_mod.transformer."})
        EXPECT(load(named(prefix, prefix)) == want, "%s", prefix.c_str());
    const std::string first = with_flip(bytes, 23, 0), last = with_flip(bytes, 34, 0);      // other numbers in the head
    const std::string tuned = named("base_model.model.", "module.");
    const struct { std::string header, data; bool own; } heads[] = {
        {all, bytes, false}, {all, first, true}, {all, last, true}, {tuned, bytes, false}, {tuned, last, true},
        {matrices + mask + "}", bytes.substr(0, 23), false}, {replaced(all, "\"wte.", "\"wtf."), last, false},
        {matrices + mask + replaced(head, "[3,2]", "[2,3]"), bytes, true},
        {matrices + mask + replaced(head, "BF16", "F16"), bytes, true}};
    for (const auto& [header, data, own] : heads)
        EXPECT(has_own_head(open(header, data), arena.tensors[0]) == own, "%s", header.c_str());
    const Refusals refused = {
        {replaced(all, "\"wte.weight\"", "\"wtf.weight\""), "wte.weight: it is missing"},
        {replaced(all, "attn.bias\"", "attn.biased\""), "tensor h.0.attn.biased: the model has none"},
        {replaced(all, "[3,2]", "[2,3]"), "shape: got [2,3], want [3,2]"},
        {replaced(all, "\"F16\"", "\"I16\""), "dtype: got I16, want F32, F16 or BF16"},
        {replaced(all, "lm_head.weight", "transformer.wte.weight"), "tensor wte.weight twice"}};
    expect_refusals(kExitBadContent, refused, load);
}

TEST(malicious_safetensors) {
    const std::string a = entry("a", "2,2", "0,16"), b = entry("b", "2", "16,24"), good = "{" + a + "," + b + "}";
    const std::string d24(24, '\1');
    for (const std::string& fine : {good, good + "         ", "{" + b + "," + a + "}"})
        EXPECT_EQ(parse(safetensors(fine, d24))[0].name, "a");
    parse(safetensors("{" + entry("e", "0,7", "0,0") + "," + a + "," + entry("z", "", "16,20") + "," +
                          entry("f", "0", "16,16") + "}", std::string(20, 'x')));
    parse(safetensors("{}", ""));

    const auto long_header = [&](uint64_t length) { return bytes_of(length) + good + d24; };
    const auto header = [&](const std::string& text) { return safetensors(text, d24); };
    const auto changed = [&](const std::string& from, const std::string& to) {
        return header(replaced(good, from, to));
    };
    const auto one = [&](const std::string& shape, const std::string& offsets, size_t bytes = 24) {
        return safetensors("{" + entry("a", shape, offsets) + "}", std::string(bytes, 'x'));
    };
    const auto two = [&](const std::string& shape, const char* of_a, const char* of_b) {
        return header("{" + entry("a", shape, of_a) + "," + entry("b", shape, of_b) + "}");
    };
    std::string many = "{\"0\":{}";
    for (int i = 1; i < 66000; i++) many += ",\"" + std::to_string(i) + "\":{}";
    const Refusals bad = {
        {"", "header: got 0 bytes in a file of 0"}, {std::string(7, '\0'), "in a file of 7"},
        {std::string(9, '\0'), "in a file of 9"}, {long_header(0), "header: got 0 bytes"},
        {long_header(1), "header: got 1 bytes"}, {long_header(good.size() + 25), "header: got"},
        {long_header(100000001), "header: got 100000001"},
        {long_header(uint64_t(1) << 63), "header: got 9223372036854775808"},
        {long_header(UINT64_MAX - 7), "header: got 18446744073709551608"},
        {safetensors("{}" + std::string(1 << 24, ' '), ""),
         "header: got 16777218 bytes in a file of 16777226, want 2 to 16777216"},
        {header(" " + good), "begin with '{'"}, {safetensors("[]", ""), "begin with '{'"},
        {header("\xEF\xBB\xBF" + good), "begin with '{'"},
        {safetensors("{" + std::string(40, 'x'), ""), "header: byte 1"}, {header(good + "x"), "nothing after"},
        {safetensors(many + "}", ""), "tensor 0: dtype: it is missing"},
        {header("{" + a + "," + a + "}"), R"(key "a" twice)"},
        {changed("F32", "F33"), "tensor a: dtype: got F33"}, {changed(R"("F32")", "32"), "dtype: got 32, want a str"},
        {header(R"({"a":{"dtype":"F32","data_offsets":[0,24]}})"), "shape: it is missing"},
        {header(R"({"a":{"dtype":"F32","shape":[6]}})"), "data_offsets: it is missing"},
        {header(R"({"a":3})"), "it is missing"}, {header(R"({"a":null})"), "it is missing"},
        {header(R"({"a":{"dtype":"F32","shape":6,"data_offsets":[0,24]}})"), "for F32 6"},
        {one("6", "0,24,24"), "data_offsets: got ["}, {one("6", "24"), "data_offsets: got ["},
        {one("6", "24,0"), "got [24,0], want 24 of the 24 bytes"}, {one("7", "0,28"), "got [0,28]"},
        {one("6", "-24,0"), "got [-24,0]"}, {one("6", "18446744073709551592,18446744073709551616"), "data_offsets"},
        {one("6", "18446744073709551608,16"), "data_offsets"}, {one("6", "0,24.5"), "got [0,24.5]"},
        {two("4", "0,16", "8,24"), "tensor b: data_offsets: got begin 8, want 16, the end of the tensor before"},
        {two("6", "0,24", "0,24"), "got begin 0, want 24"}, {two("2", "0,8", "16,24"), "got begin 16, want 8"},
        {one("4", "8,24"), "tensor a: data_offsets: got begin 8, want 0"},
        {safetensors(good, d24 + "x"), "got 25 bytes of data, want 24"},
        {safetensors(good, d24.substr(1)), "of the 23 bytes"}, {safetensors("{}", "x"), "got 1 bytes of data, want 0"},
        {one("5", "0,24"), "got [0,24], want 20 of the 24 bytes behind the header, for F32 [5]"},
        {one("-6", "0,24"), "got [-6], want at most 8 integers"}, {one("6.5", "0,24"), "got [6.5]"},
        {one(R"("6")", "0,24"), "want at most 8 integers"}, {one("1e1", "0,40", 40), "got [1e1]"},
        {one("18446744073709551616", "0,24"), "integers of 0..2^32"}, {one("1e400", "0,24"), "integers of 0..2^32"},
        {one("4611686018427387905,4", "0,16", 16), "want at most 8 integers of 0..2^32"},
        {one("4294967296,4294967296", "0,0", 0), "size overflows"},
        {one("4294967296,1073741824", "0,0", 0), "size overflows"},
        {one("1,1,1,1,1,1,1,1,6", "0,24"), "at most 8 integers"},
        {header("{" + entry(std::string(257, 'a'), "6", "0,24") + "}"), "a tensor name of 257 bytes"},
        {one("1099511627776", "0,4398046511104", 0), "integers of 0..2^32"}};
    expect_refusals(kExitBadContent, bad, parse, "x.safetensors: ");
}

TEST(truncations_and_flips_of_a_safetensors_file_do_no_harm) {
    const Folder dir;
    const Arena arena = arena_layout({{"wte", 4, 3, 3, false, 0, true}, {"proj", 2, 2, 2, true, 0, true}});
    std::vector<float> w = fill(arena, 1);
    const std::string file = write_arrays(dir / "m", arena, {{"", w.data()}});
    for (size_t n = 0; n < file.size(); n++)
        expect_error(kExitBadContent, "x.safetensors", [&] { parse(file.substr(0, n)); });
    for (size_t i = 0; i < 8 * file.size(); i++) try {
        parse(with_flip(file, i / 8, int(i % 8)));
    } catch (const Error& e) {
        EXPECT(e.code == kExitBadContent, "bit %zu: %d", i, e.code);
    }
}

// ---------------------------------------------------------------------------------------------------- checkpoints

TEST(save_and_find) {
    const Folder dir, other;
    const Sample s;
    EXPECT(find_checkpoint(dir.path).empty() && find_checkpoint(dir / "absent").empty(), "never saved");
    synced.clear();
    const std::string folder = s.save(dir.path, 1000);
    expect_synced(dir.path);
    EXPECT(folder == dir / "ckpt/step_00001000" && verify_checkpoint(folder, true).empty(), "%s", folder.c_str());
    EXPECT_EQ(read_file(dir / "ckpt/latest"), "step_00001000\n");
    EXPECT_EQ(join(list_directory(folder), " "), "DONE config.json model.safetensors optim.safetensors state.json "
                                                 "tokenizer.json tokenizer_config.json");
    EXPECT_EQ(by_name(open_model(folder), s.arena), s.w);
    EXPECT(resolve_model_folder(dir.path) == folder && resolve_model_folder(folder + "/") == folder, "resolve");
    const std::string state = s.files().state_json, done = read_file(folder + "/DONE");
    EXPECT(done.starts_with("lockstep checkpoint 1\nstep 1000\n") &&
               has(done, format("\n%08x %zu state.json\n", crc32c(0, state.data(), state.size()), state.size())) &&
               done.ends_with(format("\ncrc %08x\n", crc32c(0, done.data(), done.size() - 13))), "%s", done.c_str());
    EXPECT_EQ(read_file(folder + "/config.json"), s.files().config_json);
    EXPECT_EQ(read_file(folder + "/tokenizer_config.json"), "{}\n");

    // Files that are not the checkpoint's are no matter.
    put(folder + "/notes.txt", "x");
    for (const char* name : {"step_backup", "step_00002000x"}) make_directories(dir / (std::string("ckpt/") + name));
    EXPECT(verify_checkpoint(folder, true).empty() && find_checkpoint(dir.path) == folder, "extra");

    // The same state gives the same bytes: no time, no host, no path.
    const std::string again = s.save(other.path, 1000);
    for (const std::string& name : list_directory(again))
        EXPECT(read_file(folder + "/" + name) == read_file(again + "/" + name), "%s differs", name.c_str());
    CheckpointFiles f = s.files();
    f.texts.clear();
    const std::string bare = write_checkpoint(other.path, 1001, f);
    EXPECT(verify_checkpoint(bare, true).empty(), "no tokenizer");
    EXPECT_EQ(join(list_directory(bare), " "), "DONE config.json model.safetensors optim.safetensors state.json");
}

// What a resume reads: the weights and the optimizer's state, and no other optimizer's.
TEST(read_state_of_this_run) {
    const Folder dir;
    const Sample s;
    const std::string folder = s.save(dir.path, 5), optim = folder + "/optim.safetensors";
    std::vector<float> w(s.arena.n, NAN), m = w, v = w;
    std::vector<TensorSpec> less = s.arena.tensors;
    less.erase(less.begin() + 5);
    const Arena other = arena_layout(less);
    const NamedArray weights = {"", w.data()}, first = {"exp_avg", m.data()}, second = {"exp_avg_sq", v.data()};
    read_state(folder, s.arena, {first, weights, second});
    EXPECT(w == s.w && m == s.m && v == s.v, "values");
    const auto refused = [&](const std::vector<NamedArray>& arrays) {
        const auto read = [&] { read_state(folder, s.arena, arrays); };
        expect_error(kExitBadContent, "optim.safetensors: got other tensors, want those of this run; resume with the "
                                      "model, the optimizer", read);
    };
    const std::vector<NamedArray> others[] = {
        {weights}, {weights, first}, {weights, second, first}, {weights, {"momentum_buffer", m.data()}},
        {weights, first, {"momentum", v.data()}}, {weights, {"exp_avg", m.data(), &other}, second}};
    for (const auto& arrays : others) refused(arrays);
    expect_error(kExitBadContent, "model.safetensors: got other tensors",
                 [&] { read_state(folder, other, {weights, first, second}); });
    const std::string good = read_file(optim);
    for (const size_t size : {size_t(0), size_t(7), size_t(8), size_t(100), good.size() - 1, good.size() + 1}) {
        put(optim, (good + "x").substr(0, size));
        refused({weights, first, second});
    }
    CheckpointFiles stateless = s.files();
    stateless.arrays.resize(1);
    const std::string without = write_checkpoint(dir.path, 6, stateless);
    std::ranges::fill(w, NAN);
    read_state(without, s.arena, {weights});
    EXPECT_EQ(w, s.w);
    expect_error(kExitBadContent, "optim.safetensors: got other tensors",
                 [&] { read_state(without, s.arena, {weights, first}); });
}

// A tensor has the arrays that its stages use, and of its matrix rule's those that this declares, with a number per
// element, row or column: shapes in the file, and the same values back.
TEST(state_of_stages_rows_and_columns) {
    const Folder dir;
    Sample s;
    std::vector<TensorSpec> table = s.arena.tensors;
    table[0].parts = {{"top.weight", 100}, {"rest.weight", kV - 100}};
    s.arena = arena_layout(table);
    const StateSpec specs[] = {{"both"}, {"first"}, {"element", Per::element}, {"row", Per::row},
                               {"column", Per::column}};
    const int stages[] = {2, 1, 0};
    const OptimizerInfo info = {.name = "test", .state = specs, .stages = stages, .hyper = {}, .prepare = nullptr,
                                .whole = [](const TensorSpec& t) { return !t.name.ends_with("wpe.weight"); }};
    CheckpointFiles files = s.files();
    files.arrays.resize(1);
    std::vector<NamedArray> read = files.arrays;
    Arena arenas[5];
    std::vector<float> values[5], back[5];
    for (size_t k = 0; k < 5; k++) {
        arenas[k] = state_layout(info, specs[k], s.arena);
        values[k] = fill(arenas[k], 10);
        back[k].assign(arenas[k].n, NAN);
        files.arrays.push_back({specs[k].name, values[k].data(), &arenas[k]});
        read.push_back({specs[k].name, back[k].data(), &arenas[k]});
    }
    const std::string folder = write_checkpoint(dir.path, 1, files);
    read_state(folder, s.arena, read);
    for (size_t k = 0; k < 5; k++) EXPECT_EQ(back[k], values[k]);
    const SafeTensors state = open_safetensors(folder + "/optim.safetensors");
    const std::string fc = "transformer.h.1.mlp.c_fc.", wpe = "transformer.wpe.weight.";
    const struct { std::string name, want; } known[] = {
        {"top.weight.row", "[100,1]"}, {"rest.weight.row", "[157,1]"}, {"transformer.wte.weight.column", "[1,16]"},
        {fc + "weight.row", "[64,1]"}, {fc + "weight.column", "[1,16]"}, {fc + "weight.element", "[16,64]"},
        {fc + "weight.both", "[16,64]"}, {fc + "weight.first", "none"},
        {fc + "bias.both", "[64]"}, {fc + "bias.row", "[1]"}, {fc + "bias.column", "[64]"},
        {wpe + "both", "[5,16]"}, {wpe + "first", "[5,16]"},        // its rule is for single weights
        {wpe + "element", "none"}, {wpe + "row", "none"}, {wpe + "column", "none"}};
    for (const auto& [name, want] : known) {
        const Row row(name);
        const auto found = std::ranges::find(state.tensors, name, &SafeTensor::name);
        EXPECT_EQ(found == state.tensors.end() ? "none" : shape_text(found->shape), want);
    }
    EXPECT(arenas[1].n < s.arena.n && arenas[3].n < s.arena.n, "%zu and %zu of %zu", arenas[1].n, arenas[3].n,
           s.arena.n);
    expect_error(kExitBadContent, "other tensors", [&] { read_state(folder, s.arena, {read[0], read[1]}); });
}

TEST(every_flipped_bit_and_truncation_is_found) {
    const Folder dir;
    const std::string folder = Sample().save(dir.path, 5);
    std::vector<std::pair<std::string, std::string>> files;
    size_t total = 0;
    for (const std::string& name : list_directory(folder)) {
        files.emplace_back(name, read_file(folder + "/" + name));
        total += files.back().second.size();
    }
    const auto found = [&](size_t file, const std::string& changed, bool checksums) {
        const auto& [name, content] = files[file];
        const Row row(name);
        restore(folder + "/" + name, changed);
        const std::string why = verify_checkpoint(folder, checksums);
        EXPECT(has(why, name), "%zu bytes: \"%s\"", changed.size(), why.c_str());
        restore(folder + "/" + name, content);
    };
    const auto flip = [&](size_t file, size_t byte) {
        found(file, with_flip(files[file].second, byte, int(random_bits() % 8)), true);
    };
    for (int i = 0; i < 1000; i++) {  // anywhere; most of it is optim.safetensors
        size_t at = random_bits() % total, file = 0;
        while (at >= files[file].second.size()) at -= files[file++].second.size();
        flip(file, at);
    }
    for (size_t byte = 0; byte < files[0].second.size(); byte++) flip(0, byte);     // every byte of DONE
    for (size_t file = 0; file < files.size(); file++) {
        const std::string& content = files[file].second;
        for (int i = 0; i < 10; i++) flip(file, random_bits() % content.size());
        const size_t stride = content.size() > 5000 ? content.size() / 100 : 1;
        for (size_t n = 0; n < content.size(); n += stride) found(file, content.substr(0, n), false);
        found(file, content + "x", false);
    }
    EXPECT(verify_checkpoint(folder, true).empty(), "restored");
}

// If no file can be opened, this says nothing about the checkpoint. The resume must not take an older one.
TEST(cannot_be_read_is_not_bad) {
    const Folder dir;
    const std::string folder = Sample().save(dir.path, 5);
    const Limit<RLIMIT_NOFILE> none(0);
    expect_error(kExitOther, "Too many open files", [&] { verify_checkpoint(folder, true); });
}

TEST(broken_newest_falls_back) {
    const Folder dir;
    const Sample s;
    for (const int step : {10, 20, 30, 40, 50}) s.save(dir.path, step);
    const auto at = [&](int step) { return dir / format("ckpt/step_%08d", step); };
    const auto why = [&](int step) { return verify_checkpoint(at(step), true); };
    EXPECT(unlink((at(50) + "/DONE").c_str()) == 0 && unlink((at(40) + "/state.json").c_str()) == 0, "unlink");
    rename_file(at(20) + "/optim.safetensors", at(30) + "/optim.safetensors");      // the same bytes: 30 stays whole
    EXPECT_EQ(find_checkpoint(dir.path), at(30));
    EXPECT(why(50).ends_with("DONE: No such file or directory") &&
               why(40).ends_with("state.json: No such file or directory"));
    put(dir / "ckpt/latest", "step_00000050\n");        // latest is for people: not believed
    EXPECT_EQ(find_checkpoint(dir.path), at(30));
    const std::string model = at(30) + "/model.safetensors";
    EXPECT(unlink(model.c_str()) == 0 && mkfifo(model.c_str(), 0600) == 0, "mkfifo");
    EXPECT(why(30).ends_with("want a regular file"), "%s", why(30).c_str());
    EXPECT_EQ(find_checkpoint(dir.path), at(10));
    remove_tree(at(10));
    expect_error(kExitBadContent, "none of 4 checkpoints is whole", [&] { find_checkpoint(dir.path); });
    expect_error(kExitBadContent, "bad checkpoint", [&] { resolve_model_folder(at(40)); });
}

TEST(done_of_another_step_or_version) {
    const Folder dir;
    const Sample s;
    const std::string a = s.save(dir.path, 1), b = s.save(dir.path, 2), good = read_file(a + "/DONE");
    const auto why = [&](const std::string& text) {
        put(a + "/DONE", text);
        return verify_checkpoint(a, true);
    };
    const auto sealed = [&](const std::string& from, const std::string& to) {
        const std::string text = replaced(good.substr(0, good.size() - 13), from, to);
        return text + format("crc %08x\n", crc32c(0, text.data(), text.size()));
    };
    EXPECT_EQ(why(read_file(b + "/DONE")), "DONE: it is of step 2");
    EXPECT(why(sealed("step 1", "step 1")).empty(), "negative control");
    for (const std::string& bad : {sealed("checkpoint 1", "checkpoint 2"), sealed("step 1", "step 1\nsomething else"),
                                   sealed("step 1", "step 01"), sealed("state.json", "../state.json"), std::string(),
                                   std::string(100000, 'x')})
        EXPECT(has(why(bad), "another version"), "%s", bad.c_str());
    unlink((a + "/DONE").c_str());
    EXPECT(symlink("state.json", (a + "/DONE").c_str()) == 0 && !verify_checkpoint(a, false).empty(), "a link");
}

namespace {
// "best latest 20 40"
std::string kept(const Folder& dir) {
    std::string names = join(list_directory(dir / "ckpt"), " ");
    while (has(names, "step_000000")) names = replaced(names, "step_000000", "");
    return names;
}
}  // namespace

TEST(keep_retires_the_oldest_whole_ones) {
    const Folder dir;
    const Sample s;
    const auto save = [&](int step, int keep, const char* want) {
        s.save(dir.path, step, keep);
        EXPECT_EQ(kept(dir), want);
    };
    save(10, 2, "latest 10");
    save(20, 2, "latest 10 20");
    save(30, 2, "latest 20 30");
    unlink((dir / "ckpt/step_00000030/DONE").c_str());  // the run went on from 20; 30 is broken
    save(40, 2, "latest 20 30 40");
    save(50, 1, "latest 30 50");
    save(30, 1, "latest 30 50");        // saved over the broken one
    EXPECT(verify_checkpoint(dir / "ckpt/step_00000030", true).empty(), "30");
    save(60, 0, "latest 30 50 60");     // 0 keeps all
    go_on_from(dir.path, 30, -1);
    EXPECT(kept(dir) == "latest 30 50 60" && find_checkpoint(dir.path).ends_with("step_00000030"), "latest decides");
    save(60, 1, "latest 60");
}

TEST(every_nth_one_stays) {
    const struct { int keep; int64_t every; const char* want; } rows[] = {
        {1, 0, "best latest 10 60"}, {1, 20, "best latest 10 20 40 60"}, {2, 20, "best latest 10 20 40 50 60"},
        {1, 30, "best latest 10 30 60"}, {1, 60, "best latest 10 60"}, {1, 10, "best latest 10 20 30 40 50 60"},
        {1, 7, "best latest 10 60"}, {0, 20, "best latest 10 20 30 40 50 60"}, {3, 50, "best latest 10 40 50 60"}};
    const Sample s;
    for (const auto& [keep, every, want] : rows) {
        const Folder dir;
        CheckpointFiles files = s.files();
        files.keep = keep, files.keep_every = every, files.best_step = 10;
        for (int step = 10; step <= 60; step += 10) write_checkpoint(dir.path, step, files);
        EXPECT(kept(dir) == want, "--keep %d --keep-every %ld: %s", keep, every, kept(dir).c_str());
    }
}

TEST(the_best_one_stays) {
    const Folder dir;
    const Sample s;
    const std::string named = dir / "ckpt/best";
    const auto save = [&](int64_t step, int64_t best, int keep, const char* want) {
        CheckpointFiles files = s.files();
        files.best_step = best;
        files.keep = keep;
        write_checkpoint(dir.path, step, files);
        EXPECT_EQ(kept(dir), want);
    };
    save(10, -1, 1, "latest 10");
    EXPECT(checkpoint_named(named) == named && checkpoint_named(dir.path + "/") == dir.path &&
           checkpoint_named(dir / "ckpt/latest/") == dir / "ckpt/step_00000010");
    save(20, 20, 1, "best latest 20");
    save(30, 20, 1, "best latest 20 30");       // the best is kept, and not counted
    save(40, 20, 1, "best latest 20 40");
    EXPECT_EQ(resolve_model_folder(named), dir / "ckpt/step_00000020");
    EXPECT(find_checkpoint(dir.path).ends_with("40"));
    save(50, 45, 1, "best latest 20 50");       // the save of step 45 failed: one that is not there is not named
    EXPECT_EQ(read_file(named), "step_00000020\n");
    save(60, 60, 1, "best latest 60");          // the one before goes
    save(70, 60, 2, "best latest 60 70");
    save(80, 60, 2, "best latest 60 70 80");    // two and the best
    const struct { int step, best; const char *want, *why; } back[] = {
        {80, 65, "step_00000080\n", "one that is not there is not named"},
        {70, 60, "step_00000060\n", "the best up to there"}, {70, -1, "", "it is of a later step"}};
    for (const auto& [step, best, want, why] : back) {
        name_best(dir.path, 80);
        go_on_from(dir.path, step, best);
        EXPECT((file_exists(named) ? read_file(named) : "") == want, "%s", why);
    }
    for (const char* text : {"", "step_70", "../step_00000060", "step_00000060x\n"}) {
        put(named, text);
        EXPECT(checkpoint_named(named) == named, "%s", text);
        expect_error(kExitNoInput, "ckpt/best", [&] { resolve_model_folder(named); });
    }
}

TEST(saving_the_same_step_again) {
    const Folder dir;
    Sample s;
    s.save(dir.path, 7, 2);
    s.w[0] = 42;
    EXPECT_EQ(by_name(open_model(s.save(dir.path, 7, 2)), s.arena), s.w);
    EXPECT_EQ(kept(dir), "latest 07");          // no trace of the old
}

TEST(stale_folders_are_removed_and_never_found) {
    const Folder dir;
    const Sample s;
    rename_file(s.save(dir.path, 1), dir / "ckpt/.tmp_step_00000001");      // a save killed before its rename
    EXPECT(find_checkpoint(dir.path).empty(), "not found, and no error: it never existed");
    make_directories(dir / "ckpt/.del_step_00000009/x");
    make_directories(dir / "ckpt/.bad_step_00000009");  // of an older program: stays
    put(dir / "ckpt/latest.tmp123", "x");
    s.save(dir.path, 1);
    EXPECT_EQ(kept(dir), ".bad_09 latest 01");
}

TEST(a_full_disk_leaves_the_old_ones) {
    const Folder dir;
    const Sample s;
    s.save(dir.path, 1);
    for (const rlim_t limit : {0, 100, 5000, 60000, 80000}) {  // in config.json, model, optimiser
        const Limit<RLIMIT_FSIZE> bytes(limit);
        expect_error(kExitWrite, "", [&] { s.save(dir.path, 2, 1); });
        EXPECT(kept(dir) == "latest 01" && find_checkpoint(dir.path).ends_with("01"), "limit %lu: %s", limit,
               kept(dir).c_str());
    }
    s.save(dir.path, 2, 1);             // and then it works
    EXPECT(find_checkpoint(dir.path).ends_with("02"));
}

TEST(no_space_on_a_small_file_system) {
    const Folder dir;
    struct Mounted {
        const std::string path;
        ~Mounted() { umount(path.c_str()); }
    } const small{dir / "small"};
    make_directories(small.path);
    if (mount("none", small.path.c_str(), "tmpfs", 0, "size=512k") != 0)
        SKIP("mounting a small file system needs root: %s", std::strerror(errno));
    const Sample s;
    size_t step = 0;
    expect_error(kExitWrite, "no space for a checkpoint", [&] {
        while (step < 5) s.save(small.path, int64_t(++step));
    });
    EXPECT(find_checkpoint(small.path).ends_with(format("step_%08zu", step - 1)), "at step %zu", step);
    EXPECT(list_directory(small.path + "/ckpt").size() == step, "`latest` and what is whole");
}

// A process that saves in a loop is killed at a random moment after it has announced a random number of saves, many
// times. What it announced through the pipe must be there, whole; whatever else is there, the newest is found without
// help.
TEST(kill_9_at_random_moments) {
    const Folder dir;
    const Sample s;
    int64_t announced = 0;
    for (int round = 0; round < 30; round++) {
        int channel[2];
        EXPECT_EQ(pipe(channel), 0);
        const pid_t child = fork();
        if (child == 0) try {
            const auto tell = [&](int64_t message) {
                if (write(channel[1], &message, sizeof message) != sizeof message) _exit(2);
            };
            for (int64_t step = announced + 1;; step++) {
                CheckpointFiles files = s.files();
                files.progress = [&] { tell(-step); };
                files.keep = 2;
                write_checkpoint(dir.path, step, files);
                tell(step);
            }
        } catch (...) {
            _exit(1);
        }
        close(channel[1]);
        int64_t last = announced;
        const auto hear = [&] {
            int64_t message = 0;
            const bool more = read(channel[0], &message, sizeof message) == sizeof message;
            last = std::max(last, message);
            return more;
        };
        for (uint64_t n = random_bits() % 200; n > 0; n--) EXPECT(hear(), "round %d: the child ended by itself", round);
        usleep(useconds_t(random_bits() % 1000));  // between two of its messages
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        while (hear()) {}
        close(channel[0]);
        EXPECT(WIFSIGNALED(status), "round %d: the child ended by itself: %d", round, status);
        const std::string found = find_checkpoint(dir.path);
        if (last == 0 && found.empty()) continue;
        announced = std::atoll(found.c_str() + found.find_last_of('_') + 1);    // whether or not it could still say so
        EXPECT(announced == last || announced == last + 1, "round %d: found %s, announced %lld", round, found.c_str(),
               (long long)last);
        EXPECT(count_of("/" + join(list_directory(dir / "ckpt"), "/"), "/.") <= 1, "round %d: temporary folders: %s",
               round, kept(dir).c_str());
    }
    EXPECT(announced > 1, "no save was ever finished");
    std::printf("     %lld saves committed over 30 kills\n", (long long)announced);
}

// ---------------------------------------------------------------------------------------------------- the saver

namespace {
struct SaverFolder : Folder {
    Sample s;
    Saver* const saver;
    explicit SaverFolder(bool copy = true) : saver(saver_create(s.files(), copy, path)) {}
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
    const Sample before;
    for (std::vector<float>* x : {&f.s.w, &f.s.m, &f.s.v}) std::ranges::fill(*x, -1.0f);  // training goes on
    EXPECT(!saver_ready(f.saver), "under way");
    f.go = true;
    const Saved saved = saver_result(f.saver);
    EXPECT(saved.error.code == 0 && saved.folder == find_checkpoint(f.path) && saved.seconds >= 0, "saved");
    EXPECT(!saver_ready(f.saver), "its result was taken");
    read_state(saved.folder, f.s.arena, f.s.files().arrays);
    EXPECT(f.s.w == before.w && f.s.m == before.m && f.s.v == before.v, "the copy");
}

TEST(saver_tells_errors_and_goes_on) {
    SaverFolder f(false);
    f.add("ckpt", "a file where the folder should be");
    f.start(1);
    EXPECT_EQ(saver_result(f.saver).error.code, kExitWrite);
    unlink((f / "ckpt").c_str());
    f.start(2);
    while (!saver_ready(f.saver)) usleep(1000);
    EXPECT(saver_result(f.saver).error.code == 0 && find_checkpoint(f.path) == f / "ckpt/step_00000002");
}

TEST(the_last_save_is_tried_again) {
    SaverFolder f;
    f.add("ckpt", "x");
    const auto never = [] { return false; };
    f.start(1);
    EXPECT_EQ(saver_retry(f.saver, 0, never).error.code, kExitWrite);
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
    EXPECT(saver_retry(f.saver, 1e6, never).error.code == kExitOther, "what time does not mend");
}

TEST(resolve_model_folder_says_what_is_there) {
    const Folder dir;
    const auto resolve = [&](const std::string& name) { resolve_model_folder(dir.path + name); };
    expect_refusals(kExitNoInput, {{"/absent", "does not exist"}, {"", "it has none; want a run"}}, resolve);
    const std::pair<std::string, const char*> others[] = {      // what another program has left; what is said, HERE
        {"checkpoint-500/model.safetensors", "checkpoints of Trainer; want a run that has saved, "},
        {"checkpoint-1000/a", "give HERE/checkpoint-1000"},
        {"snapshots/ab12/config.json", "the hub's cache; want"},
        {"models--a--b/snapshots/ab12/a", "give HERE/models--a--b/snapshots/ab12"},
        {"final/model.safetensors", "give HERE/final"}, {"x.gguf", "give HERE/x.gguf"},
        {"pytorch_model-00001-of-00002.bin", "python3 data/torch_model.py HERE/pytorch_model.bin HERE makes it"},
        {"pytorch_model.bin.index.json", "python3 data/torch_model.py HERE/pytorch_model.bin HERE makes it"},
        {"zero_to_fp32.py", "python3 HERE/zero_to_fp32.py HERE HERE makes"},
        {"pytorch_model_fsdp_0/a.distcp", "accelerate merge-weights HERE/pytorch_model_fsdp_0 HERE"},
        {"ckpt.pt", "python3 data/torch_model.py HERE/ckpt.pt HERE-hf makes"},
        {"lit_model.pth", "litgpt convert_from_litgpt HERE HERE-hf && "},
        {"epoch=1.ckpt", "python3 data/torch_model.py HERE/epoch=1.ckpt HERE-hf CONFIG"},
        {"mp_rank_00_model_states.pt", "a file of torch"}, {"m.pth", "a file of torch"},
        {"__0_0.distcp", "dcp_to_torch HERE HERE/all.pt"},
        {"model-1-of-2.safetensors", "without model.safetensors.index"},
        {"model.fp16.safetensors", "if HERE/model.fp16.safetensors is all of the model"}};
    const Folder all;
    size_t folders = 0;
    for (const auto& [file, said] : others) {
        const Row row(file);
        for (const std::string name : {"plain", "my [runs]", "it's"}) {
            const std::string folder = all / format("%zu%s", ++folders, name.c_str());
            make_directories(parent_folder(path_join(folder, file)));
            put(path_join(folder, file), "x");
            std::string part = said;
            for (size_t at, end = 0; (at = part.find("HERE", end)) != part.npos;) {
                end = std::min(part.find(' ', at), part.size());
                const std::string path = shell_quote(folder + part.substr(at + 4, end - at - 4));
                part.replace(at, end - at, path);
                end = at + path.size();
            }
            expect_error(kExitNoInput, part, [&] { resolve_model_folder(folder); });
            // A file's own path gets the same advice.
            if (part.starts_with("give ") || file.find('/') != file.npos) continue;
            expect_error(kExitBadContent, part, [&] { open_model_file(path_join(folder, file)); });
        }
    }
    expect_error(kExitNoInput, "hf download 'no one/x' --local-dir x", [] { resolve_model_folder("no one/x"); });
    dir.add("pytorch_model.bin", "x");
    expect_refusals(kExitNoInput, {{"", "with model.safetensors"}, {"/pytorch_model.bin", "want a run"}}, resolve);
    dir.add("model.safetensors", "x");
    EXPECT_EQ(resolve_model_folder(dir.path), dir.path);
    for (const char* part : {"model.safetensors", "pytorch_model.bin"})
        expect_error(kExitBadContent, "; give " + dir.path, [&] { open_model_file(dir / part); });
    make_directories(dir / "run/ckpt");
    expect_refusals(kExitNoInput, {{"/run", "want a run that has saved"}}, resolve);
}

// ---------------------------------------------------------------------------------------------------- the tools

namespace {
End run_tool(const std::string& arguments) {
    Words words = words_of(arguments);
    words[0] = tools + "/" + words[0];
    return run(words, true);
}

// A table of calls: the exit code, what must be said, and the arguments.
struct Call { int code; std::string part, arguments; };
void expect_outputs(const std::vector<Call>& calls) {
    for (const auto& [code, part, arguments] : calls) {
        const Row row(arguments);
        const End out = run_tool(arguments);
        EXPECT(out.code == code && has(out.said, part), "code %d, want %d: %s; want ...%s...", out.code, code,
               out.said.c_str(), part.c_str());
        EXPECT(std::ranges::all_of(out.said, [](unsigned char c) { return c == '\n' || c >= 0x20; }),
               "a control byte reaches the terminal");
    }
}

// A checkpoint and what export made of it.
struct Exported : Folder {
    const Sample s;
    const std::string folder = s.save(path, 1), gguf = *this / "m.gguf", llmc = *this / "m.bin";
    Exported() {
        expect_outputs({{0, "m.gguf.Modelfile", "export " + path + " --type f32 --gguf=" + gguf + " --llmc " + llmc}});
    }
};

// A GGUF file as its bytes lie there: behind a tensor's name are its dimensions (fastest first), type and offset; the
// data begin at the multiple of 32 after the last description.
struct GgufBytes {
    const std::string file;
    const size_t end = file.find("output_norm.bias") + 16 + 4 + 8 + 4 + 8, data = round_up<size_t>(end, 32);
    struct Tensor { std::vector<uint64_t> dims; uint32_t type; const char* values; };
    Tensor tensor(const std::string& name) const {
        size_t place = file.find(name) + name.size();
        Tensor t = {};
        for (uint32_t k = number_at<uint32_t>(file, place); k > 0; k--)
            t.dims.push_back(number_at<uint64_t>(file, place + 4 + 8 * t.dims.size()));
        place += 4 + 8 * t.dims.size();
        const uint64_t offset = number_at<uint64_t>(file, place + 4);
        EXPECT(offset % 32 == 0, "%s: alignment", name.c_str());
        t.type = number_at<uint32_t>(file, place);
        t.values = &file[data + offset];
        return t;
    }
};
}  // namespace

TEST(export_llmc_by_hand) {
    const Exported f;
    const std::string file = read_file(f.llmc);
    const int32_t head[] = {20240326, 3, int(kT), int(kV), kBlocks, 2, int(kC), 384};
    EXPECT(file.starts_with(bytes_of(head)), "header");
    // The places follow from llm.c's order: wte wpe ln1w ln1b qkvw qkvb attprojw ..., each for all layers.
    const size_t wpe = 384 * kC, ln1w = wpe + kT * kC, ln1b = ln1w + 2 * kC, qkvw = ln1b + 2 * kC,
                 qkvb = qkvw + 2 * 3 * kC * kC, proj = qkvb + 2 * 3 * kC,
                 all = ln1w + kBlocks * (12 * kC * kC + 13 * kC) + 2 * kC;
    const struct { size_t place; const char* tensor; size_t n; } known[] = {
        {0, "wte.weight", kV * kC}, {wpe, "wpe.weight", kT * kC}, {ln1w + kC, "h.1.ln_1.weight", kC},
        {qkvw + 3 * kC * kC, "h.1.attn.c_attn.weight", 3 * kC * kC}, {proj, "h.0.attn.c_proj.weight", kC * kC},
        {all - kC, "ln_f.bias", kC}};
    EXPECT_EQ(file.size(), 1024 + 4 * all);
    for (const auto& [place, tensor, n] : known)
        EXPECT(!std::memcmp(&file[1024 + 4 * place], f.s.tensor(std::string("transformer.") + tensor), 4 * n), "%s",
               tensor);
    EXPECT_EQ(file.find_first_not_of('\0', 1024 + 4 * kV * kC) / 4, 256 + wpe);         // the padding of wte
    expect_outputs({{0, "llm.c model, fp32", "info " + f.llmc}});
    EXPECT_EQ(truncate(f.llmc.c_str(), off_t(file.size() - 4)), 0);
    expect_outputs({{65, "for its header's shape", "info " + f.llmc}});
}

TEST(export_gguf_by_hand) {
    const Exported f;
    EXPECT(has(read_file(f.gguf + ".Modelfile"), "\nFROM ./m.gguf\n"), "Modelfile");
    expect_outputs({{0, "m(1).gguf", "export " + f.path + " --type f32 --gguf=" + f.path + "/m(1).gguf"}});
    EXPECT(has(read_file(f / "m(1).gguf.Modelfile"), " -f 'm(1).gguf.Modelfile'\nFROM ./m(1).gguf\n"), "quoted");
    const GgufBytes gguf = {read_file(f.gguf)};
    EXPECT(gguf.file.starts_with(std::string("GGUF\x03\0\0\0", 8)));
    EXPECT_EQ(number_at<uint64_t>(gguf.file, 8), f.s.arena.tensors.size());
    EXPECT_EQ(number_at<uint64_t>(gguf.file, 16), 18);       // keys
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
        EXPECT(std::memcmp(t.values, f.s.tensor(hf), dims[0] * (dims.size() > 1 ? dims[1] : 1) * 4) == 0);
    }
    expect_outputs({{0, "GGUF version 3", "info " + f.gguf}});
    EXPECT_EQ(truncate(f.gguf.c_str(), off_t(gguf.file.size() - 32)), 0);
    expect_outputs({{65, "end beyond the file", "info " + f.gguf}});
}

// What --init reads of the files that export wrote: the same weights, sizes and tokenizer.
TEST(model_files_read_back) {
    const Exported f;
    for (const std::string& path : {f.gguf, f.llmc}) {
        const Row row(path);
        const Shape got = parse_config(open_model_file(path).config_json, path.c_str()).shape;
        for (const ShapeKey& key : f.s.config.info->keys)
            EXPECT(key.get(got) == key.get(f.s.config.shape), "%s", key.option);
        EXPECT_EQ(got.V, kV);
        std::vector<float> values(f.s.arena.n, 1.0f);
        read_model_file(path, f.s.arena, f.s.arena, values.data(), f / "scratch");
        EXPECT(values == f.s.w, "weights");
    }
    const ModelFile file = open_model_file(f.gguf);
    const Tokenizer got =
        tokenizer_parse(tokenizer_json_of_gguf(file.split, file.vocabulary, file.begin, f.gguf), f.gguf);
    const Tokenizer want = tokenizer_load(f.folder);
    EXPECT(got.bytes == want.bytes && got.eot == want.eot && got.added.size() == 1, "tokenizer");
    EXPECT(open_model_file(f.llmc).vocabulary.empty(), "llm.c's file has none");
}

// A value of another type is read where it says the same, and refused with its key where it does not: it is never as if
// the key were absent.
TEST(gguf_values_of_other_types) {
    const Exported f;
    const GgufBytes good = {read_file(f.gguf)};
    const std::string& file = good.file;
    const std::string epsilon = "gpt2.attention.layer_norm_epsilon", length = "gpt2.context_length";
    const std::string as_text = bytes_of(uint64_t(4)) + "1e-3", of_texts = bytes_of(8u) + bytes_of(uint64_t(0));
    // Reads the model with another value under a key that has one of `old` bytes.
    struct Value { std::string key; uint32_t type; std::string bytes; size_t old = 4; };
    const auto read = [&](const Value& value) {
        const size_t at = file.find(value.key) + value.key.size(), behind = at + 4 + value.old;
        std::string head = file.substr(0, at) + bytes_of(value.type) + value.bytes;
        head += file.substr(behind, good.end - behind);
        head.resize(round_up<size_t>(head.size(), 32));
        const std::string path = f.add("x.gguf", head + file.substr(good.data));
        const ModelFile model = open_model_file(path);
        std::vector<float> values(f.s.arena.n);
        read_model_file(path, f.s.arena, f.s.arena, values.data(), f / "scratch");
        EXPECT_EQ(values, f.s.w);
        return model.config_json;
    };
    const Value fine[] = {
        {epsilon, 12, bytes_of(1e-3)}, {epsilon, 6, bytes_of(1e-3f)}, {length, 0, bytes_of(uint8_t(kT))},
        {length, 1, bytes_of(int8_t(kT))}, {length, 2, bytes_of(uint16_t(kT))}, {length, 3, bytes_of(int16_t(kT))},
        {length, 5, bytes_of(int32_t(kT))}, {length, 10, bytes_of(uint64_t(kT))}, {length, 11, bytes_of(int64_t(kT))},
        {length, 6, bytes_of(float(kT))}};
    for (const Value& value : fine)
        EXPECT(has(read(value), value.key == length ? "\"n_positions\":5," : "\"layer_norm_epsilon\":0.001,"),
               "%s: type %u", value.key.c_str(), value.type);
    std::vector<Value> bad = {{"general.alignment", 8, as_text}, {"tokenizer.ggml.eos_token_id", 8, as_text},
                              {"tokenizer.ggml.add_bos_token", 0, std::string(1, '\0'), 1}};
    for (const std::string& key : {epsilon, length})
        for (const Value& value : {Value{key, 6, bytes_of(NAN)}, {key, 6, bytes_of(INFINITY)},
                                   {key, 12, bytes_of(double(NAN))}, {key, 12, bytes_of(-double(INFINITY))},
                                   {key, 7, "\1"}, {key, 8, as_text}, {key, 9, of_texts}})
            bad.push_back(value);
    for (const std::string key : {"general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre"})
        bad.push_back({key, 4, bytes_of(5u), 8 + number_at<uint64_t>(file, file.find(key) + key.size() + 4)});
    for (const Value& value : bad)
        expect_error(kExitBadContent, value.key + (value.old > 8 ? ": got 5, want a text" : ": got"),
                     [&] { read(value); });
}

// Names that cannot be told apart by a prefix, and those that GGUF has none for.
TEST(gguf_names) {
    const std::pair<const char*, const char*> names[] = {
        {"transformer.h.11.attn.c_proj.bias", "blk.11.attn_output.bias"}, {"model.norm.weight", "output_norm.weight"},
        {"model.layers.2.self_attn.q_norm.weight", "blk.2.attn_q_norm.weight"}, {"lm_head.weight", "output.weight"},
        {"model.layers.2.norm2.weight", ""}, {"x", ""}};
    for (const auto& [hf, want] : names) EXPECT_EQ(gguf_name(hf), want);
    EXPECT(gguf_keys("lstm").empty() && gguf_keys("qwen3").size() == gguf_keys("llama").size(), "architectures");
}

// The matrices of other types: one whose rows are too short for q8_0's blocks is f16, the table of positions is f32.
TEST(export_gguf_types) {
    const Folder dir;
    const Sample s;
    float* const down = s.tensor("transformer.h.0.mlp.c_proj.weight");
    const float block[8] = {127, 0.5f, 1.5f, -2.5f, 0x1p-24f, 0x1.8p-25f, -0x1.4p-24f, 2049};  // ties and small ones
    std::copy_n(block, 7, down);
    std::fill_n(down + 32, 32, 0.0f);
    std::copy_n(block, 8, down + 64);
    s.save(dir.path, 1);
    const std::string of_run = "export " + dir.path + " --gguf ";
    const struct { const char* option; uint32_t wte, down; } rows[] = {{"f16", 1, 1}, {"bf16", 30, 30}, {"q8_0", 1, 8}};
    for (const auto& row : rows) {
        const Row name(row.option);
        const std::string path = dir / (std::string(row.option) + ".gguf");
        expect_outputs({{0, "bytes", of_run + path + " --type " + row.option}, {0, "GGUF version 3", "info " + path}});
        const GgufBytes gguf = {read_file(path)};
        const GgufBytes::Tensor wpe = gguf.tensor("position_embd.weight");
        EXPECT(wpe.type == 0 && std::memcmp(wpe.values, s.tensor("transformer.wpe.weight"), 4 * kT * kC) == 0);
        const auto [dims, type, at] = gguf.tensor("blk.0.ffn_down.weight");
        EXPECT(gguf.tensor("token_embd.weight").type == row.wte && type == row.down, "types");
        if (type == 8) {
            const int8_t want[] = {127, 1, 2, -3, 0, 0, 0};
            EXPECT(std::memcmp(at, "\0\x3c", 2) == 0 && std::memcmp(at + 2, want, 7) == 0, "a block by hand");
            EXPECT(std::string(at + 34, 34) == std::string(34, '\0'), "a block of zeros");
            float scale;
            convert_to_floats(&scale, at + 68, "F16", 1);
            EXPECT(scale == 16.140625f && at[68 + 9] == 127 && at[68 + 2] == 8, "the third block: %g", double(scale));
        } else {
            float got[8];
            convert_to_floats(got, at + 2 * 64, type == 1 ? "F16" : "BF16", 8);
            const float half[] = {127, 0.5f, 1.5f, -2.5f, 0x1p-24f, 0x1p-24f, -0x1p-24f, 2048};
            const float brain[] = {127, 0.5f, 1.5f, -2.5f, 0x1p-24f, 0x1.8p-25f, -0x1.4p-24f, 2048};
            expect_near(got, type == 1 ? half : brain, 8, 0, row.option);
        }
    }
    down[0] = 65520;
    s.save(dir / "large", 1);
    const std::string again = of_run + (dir / "l.gguf"), large = replaced(again, dir.path, dir / "large");
    expect_outputs({{65, "ffn_down.weight: got 65520", large}});
    EXPECT(!file_exists(dir / "l.gguf") && !file_exists(dir / "l.gguf.Modelfile"), "nothing is written");
    expect_outputs({{0, "bytes", large + " --type bf16"}, {2, "l.gguf: it exists", again}});
    EXPECT_EQ(::unlink((dir / "l.gguf").c_str()), 0);
    expect_outputs({{2, "l.gguf.Modelfile: it exists", again},
                    {2, "--type: got q4_0, want f16, f32", of_run + "x.gguf --type q4_0"}});
}

TEST(export_hf_and_its_command_line) {
    const Folder dir;
    const Sample s;
    const std::string folder = s.save(dir.path, 1), hf = dir / "hf", of_run = "export " + dir.path;
    expect_outputs({{0, "Hugging Face folder of step_00000001", of_run + " --hf " + hf}});
    EXPECT_EQ(join(list_directory(hf), " "), "config.json model.safetensors tokenizer.json tokenizer_config.json");
    for (const std::string& name : list_directory(hf))
        EXPECT(read_file(hf + "/" + name) == read_file(folder + "/" + name), "%s", name.c_str());
    expect_outputs({
        {0, "", "export " + hf + " --llmc " + (dir / "again.bin")},  // such a folder is a model again
        {2, "it exists", of_run + " --hf " + hf}, {2, "it exists", of_run + " --llmc " + (dir / "again.bin")},
        {2, "unknown option --gugf; did you mean --gguf?", of_run + " --gugf x"}, {2, "want a value", of_run + " --hf"},
        {2, "want --hf DIR", of_run}, {2, "a second folder", "export a b --hf c"},
        {0, "usage: export", "export --help"}, {66, "does not exist", "export " + (dir / "absent --hf ") + (dir / "x")},
        {74, "cannot", of_run + " --llmc " + (dir / "no/such/folder.bin")}});
    restore(folder + "/model.safetensors", read_file(folder + "/optim.safetensors"));
    restore(hf + "/config.json", replaced(read_file(hf + "/config.json"), "\"n_layer\": 2", "\"n_layer\": 4096"));
    expect_outputs({{65, "bad checkpoint", "export " + folder + " --hf " + (dir / "x")},
                    {65, "config.json: got a model of", "export " + hf + " --hf " + (dir / "x")}});
    EXPECT(!file_exists(dir / "x"), "nothing is written");
}

TEST(info_names_what_it_sees) {
    const Folder dir;
    const std::string folder = Sample().save(dir.path, 1);
    // llm.c's header whose parameter count wraps to 0 (T=64, L=4, C=2^30, padded vocabulary -118) passes for a model
    // elsewhere.
    const int32_t wraps[256] = {20240326, 3, 64, 50257, 4, 1, 1 << 30, -118};
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
        {"z.gz", "\x1f\x8b\x08 and more", 65, "got a gzip file"},
        {"wraps.bin", bytes_of(wraps), 65, "n_embd: got 1073741824"}};
    for (const auto& f : files) expect_outputs({{f.code, f.part, "info " + dir.add(f.name, f.content)}});
    for (int i = 0; i < 60; i++) {  // noise behind every magic: an answer or an error, never a crash
        std::string noise(size_t(random_bits() % 400), '\0');
        for (char& c : noise) c = char(random_bits() % (i % 3 ? 256 : 3));
        const char* magic[] = {"GGUF\3", "\x93NUMPY\1", "{\"", "\x46\xd7\x34\x01", "", "[", "\x98\xd7\x34\x01"};
        const char* names[] = {"n.gguf", "n.npy", "n.json", "n.bin", "n.safetensors", "n.jsonl", "n.bpe"};
        const End out = run_tool("info " + dir.add(names[random_bits() % 7], magic[random_bits() % 7] + noise));
        EXPECT(out.code == 0 || out.code == 65, "code %d: %s", out.code, out.said.c_str());
    }
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
