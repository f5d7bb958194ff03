// test_bad_files.cpp -- what the program says to broken and hostile files: one line that names the file and the reason,
// no control bytes on the terminal, no memory by a number that a file made up, no signal, no wait. What each reader
// refuses is tested beside its own code; here are some files for each, and all of those whose readers have no test of
// their own.
#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include "tests/test.h"
#include "tests/unit/program.h"

namespace {

const Folder folder;  // scratch
const std::string train = std::getenv("TRAIN_GPT") ? std::getenv("TRAIN_GPT") : "./train_gpt";

std::string told(const End& e) { return format("code %d, %ld KiB: %s", e.code, e.peak >> 10, e.said.c_str()); }

template <class T> std::string raw(std::initializer_list<T> values) {
    return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

// ------------------------------------------------------------------------------------------- good files, to be spoilt

std::map<std::string, std::string> checkpoint;  // a real one: name -> bytes
std::string run_config;                         // of its run
std::string gguf, llmc_model;                   // the same model in these files
const std::string chat = R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})"
                         "\n";

std::string tokens(size_t n) {
    std::string s;
    for (size_t i = 0; i < n; i++) s += bytes_of(uint16_t(i % 250));
    return s;
}
std::string llmc(uint32_t n, const std::string& data) {
    return raw<uint32_t>({20240520, 1, n}) + std::string(1012, '\0') + data;
}
std::string npy(const std::string& order, const std::string& shape, const std::string& data) {
    const std::string head = "{'descr': '<u2', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
    return std::string("\x93NUMPY\1\0", 8) + bytes_of(uint16_t(head.size())) + head + data;
}
// Returns the file with other bytes at a place. A place beyond the size, as size_t(-4), counts from the end.
std::string with(const char* name, size_t at, const std::string& bytes) {
    std::string s = checkpoint.at(name);
    return s.replace(at < s.size() ? at : s.size() + at, bytes.size(), bytes);
}
std::string gguf_with(const std::string& from, const std::string& to) { return replaced(gguf, from, to); }
std::string number(const std::string& key, uint32_t x, uint32_t type = 4) { return key + raw<uint32_t>({type, x}); }
// Returns the GGUF file with another number under a key.
std::string gguf_number(const std::string& key, uint32_t from, uint32_t to, uint32_t type = 4) {
    return gguf_with(number(key, from, type), number(key, to, type));
}
// Returns the GGUF file with another description of wte.
std::string gguf_wte(uint32_t dims, uint64_t cols, uint32_t type, uint64_t offset) {
    const auto text = [](uint32_t d, uint64_t c, uint32_t t, uint64_t at) {
        return "token_embd.weight" + bytes_of(d) + raw<uint64_t>({c, 257}) + bytes_of(t) + bytes_of(at);
    };
    return gguf_with(text(2, 8, 0, 0), text(dims, cols, type, offset));
}
// Returns a GGUF file that has only this key.
std::string key(const std::string& name, std::initializer_list<uint32_t> types, const std::string& value) {
    return gguf.substr(0, 8) + raw<uint64_t>({0, 1, name.size()}) + name + raw(types) + value + std::string(16, '\1');
}
std::string llmc_with(size_t at, uint32_t x) { return std::string(llmc_model).replace(4 * at, 4, bytes_of(x)); }
std::string vocab_bpe(const std::string& lines) { return "#version: 0.2\n" + lines; }

// ---------------------------------------------------------------------------------------------- ways to give a file

// Returns the words of a run of one step.
Words one_step(const Words& words, const std::string& more, const std::string& save_every = "0") {
    return words_of("--batch-size 1 --total-batch-size 16 --steps 1 --sample-every 0 --eval-every 0 " + more +
                    " --save-every " + save_every, words);
}
const std::string kTiny = "--seq-len 16 --layers 1 --heads 1 --channels 8 ", kLines = "--data tests/golden/lines.txt";

Words saving(const std::string& out, const std::string& more = "") {
    return one_step({train, "--out-dir", out}, kTiny + kLines + more, "1");
}

// Lays the file where it is read from and returns the command: data NAME, tokenizer NAME, init NAME (in a Hugging Face
// folder), model NAME (a model of one file), resume NAME (in a checkpoint whose DONE is right for it), seal NAME (the
// same without a new DONE), run NAME (the run's own files), info NAME, plot NAME.
Words command(const std::string& how, const std::string& name, const std::string& bytes) {
    const std::string file = folder / name, out = folder / "out", hf = folder / "hf";
    remove_tree(out);
    const bool in_run = how == "resume" || how == "seal" || how == "run";
    if (how != "init" && !in_run) put(file, bytes);
    if (how == "info") return {tools + "/info", file};
    if (how == "plot") return {tools + "/plot", file, "-o", folder / "x.svg"};
    if (how == "data") return one_step({train, "--out-dir", out, "--data", file}, kTiny);
    if (how == "tokenizer") return one_step({train, "--out-dir", out, "--tokenizer", file}, kTiny + kLines);
    if (how == "model") return one_step({train, "--out-dir", out, "--init", file}, kLines);
    if (how == "init") {
        make_directories(hf);
        for (const char* n : {"config.json", "model.safetensors", "tokenizer.json"})
            put(hf + "/" + n, n == name ? bytes : checkpoint.at(n));
        return one_step({train, "--out-dir", out, "--init", hf}, kLines);
    }
    const std::string step = out + "/ckpt/step_00000001";
    make_directories(step);
    std::string done = "lockstep checkpoint 1\nstep 1\n";
    for (auto [n, content] : checkpoint) {
        const std::string good = content;
        if (n == name && how != "run") content = bytes;
        put(step + "/" + n, content);
        const std::string& summed = how == "seal" ? good : content;
        if (n != "DONE")
            done += format("%08x %zu %s\n", crc32c(0, summed.data(), summed.size()), summed.size(), n.c_str());
    }
    if (name != "DONE") put(step + "/DONE", done + format("crc %08x\n", crc32c(0, done.data(), done.size())));
    put(out + "/config.json", how == "run" && name == "config.json" ? bytes : run_config);
    put(out + "/metrics.jsonl", how == "run" && name == "metrics.jsonl" ? bytes : "");
    return {train, "--resume", out, "--steps", "2"};
}

// Files of one kind: each with the words that must come.
struct Kind {
    const char *how, *name;
    Refusals files;
    int code = 65;
};

std::vector<Kind> kinds() {
    const std::string ids = tokens(400), nan = bytes_of(0x7fc00000u), deep = std::string(100000, '[');
    const std::string numbers = "GGUF" + bytes_of(3u), end = "the file ends inside", on = "want the file to go on";
    const auto changing = [](const std::string& file) {
        return [&file](const std::string& from, const std::string& to) { return replaced(file, from, to); };
    };
    const auto tokenizer = changing(checkpoint["tokenizer.json"]), config = changing(checkpoint["config.json"]);
    const auto state = changing(checkpoint["state.json"]), of_run = changing(run_config);
    return {
        // ---- token shards: llm.c, nanoGPT; .npy
        {"data", "a.bin", {{llmc(0xffffffff, ids), "want 8,589,934,590"},
                           {llmc(400, tokens(399) + "\xff\xff"), "token 399 (byte 1822): got 65535"}}},
        {"data", "\x1b[2Ja.bin", {{ids + "x", "\\x1b[2Ja.bin"}}},
        {"data", "a.npy", {{npy("True", "(20, 20)", ids), "one dimension of"},
                           {npy("False", "(9223372036854776208,)", ids), "size overflows"}}},
        // ---- text, jsonl
        {"data", "a.txt", {{"", "got 0 training tokens"}}},
        {"data", "a.jsonl", {{chat + "{\"messages\": [{\"role\": \"assistent\"}]}", "line 2: messages[0]: role: "},
                             {chat + chat + "{\"messages\": " + deep, "at most 32 levels"},
                             {"{\"text\": \"a line\"}\n" + std::string("\0\0\0", 3), "line 2: byte 0"}}},
        // ---- tokenizer.json, vocab.bpe
        {"tokenizer", "t.json", {
            {"{\"model\":" + deep, "at most 32 levels"},
            {tokenizer("\"use_regex\":true", "\"\\u001b[2J\":true"), "\\x1b[2J"},
            {tokenizer("\"!\":33", "\"!\":4294967329"), "got 4294967329"},
            {tokenizer("\"!\":33", "\"\\u001b[2J\":33"), "\\u001b[2J"},
            {tokenizer("\"!\":33", "\"" + std::string(1 << 20, 'a') + "\":33"), "byte 0x21: got no token"}}},
        {"tokenizer", "t.bpe", {{vocab_bpe("a \x1b\n"), "got \"\\u001b\""}}},
        // ---- a Hugging Face folder
        {"init", "config.json", {
            {config("\"n_layer\": 1", "\"n_layer\": 2"), "tensor transformer.h.1.ln_1.weight: it is missing"},
            {config("\"n_layer\": 1", "\"n_layer\": 4096"), "config.json: got a model of"},
            {config("\"vocab_size\": 257", "\"vocab_size\": 16777216"), "want at most"}}},
        {"init", "model.safetensors", {
            {"", "want at most 0"}, {with("model.safetensors", size_t(-4), nan), "is nan"},
            {with("model.safetensors", 0, bytes_of(UINT64_MAX - 7)), "header: got 18446744073709551608"}}},
        {"init", "tokenizer.json", {{tokenizer("\"!\":33,", "").substr(0, 100), "tokenizer.json: byte"}}},
        // ---- a model of one file: GGUF, llm.c
        {"model", "m.gguf", {
            {"", "m.gguf: got a file that is no model, want GGUF, llm.c's GPT-2, or a folder"},
            {gguf.substr(0, 20), "byte 16: got 8 bytes, want the file to go on"},
            {gguf_with("GGUF\3", "GGUF\2"), "version: got 2, want 3"},
            {numbers + raw<uint64_t>({UINT64_MAX, 0}), on}, {numbers + raw<uint64_t>({0, 1, UINT64_MAX}), on},
            {key("k", {9, 9}, ""), "k: got type 4294967295, want 0 to 12, no array of arrays"},
            {key("k", {9, 8}, bytes_of(UINT64_MAX)), on}, {key("k", {13}, ""), "k: got type 13"},
            {gguf_with("gpt2", "bert"), "general.architecture: got \"bert\", want gpt2, llama, qwen2 or qwen3"},
            {gguf_with("gpt2.context_length", "gpt2.context_lengtx"),
             "gpt2.context_lengtx: got 16, want none: it is not known here"},
            {gguf_with("general.file_type", "general.alignment"), "general.alignment: got it twice"},
            {gguf_number("general.alignment", 32, 64), "general.alignment: got 64, want 32"},
            {gguf_number("block_count", 1, 4096), "got a model of"},
            {gguf_number("block_count", 1, 0), "n_layer: got 0"}, {gguf_number("head_count", 1, 3), "--heads: got 3"},
            {gguf_number("epsilon", 0x3727c5ac, 0x3727c5ad, 6), "layer_norm_epsilon: got 1.0000001e-05"},
            {gguf_with("gpt-2", "gpt-9"), "tokenizer.ggml.pre: got \"gpt-9\""},
            {gguf_wte(2, 8, 8, 0), "token_embd.weight: got type Q8_0"},
            {gguf_wte(2, 8, 2, 0), "got type 2, want F32, F16, BF16 or Q8_0"},
            {gguf_wte(5, 8, 0, 0), "got 5 dimensions, want 1 to 4"},
            {gguf_wte(2, uint64_t(1) << 60, 0, 0), "size overflows"},
            {gguf_wte(2, 4, 0, 0), "got 8224 as offset, want 4128"},
            {gguf_wte(2, 8, 0, 64), "token_embd.weight: got 64 as offset"},
            {gguf_with("position_embd", "position_emb2"), "position_embd.weight: it is missing"},
            {gguf.substr(0, gguf.size() - 40), on}, {gguf.substr(0, gguf.size() - 4) + nan, "is nan"}}},
        {"model", "m.bin", {
            {llmc_model.substr(0, 1000), "byte 0: got 1,024 bytes, want the file to go on"},
            {llmc_with(1, 4), "version: got 4, want 3 (fp32) or 5 (bf16)"}, {llmc_with(1, 5), "size: got"},
            {llmc_with(2, 0), "n_positions: got 0"}, {llmc_with(3, 0xffffffff), "vocab_size: got 4294967295"},
            {llmc_with(4, 4096), "got a model of"}, {llmc_with(5, 3), "--heads: got 3"},
            {llmc_with(7, 256), "header[7]: got 256, want 257 or more"}, {llmc_with(7, 0xffffffff), on},
            {llmc_model + std::string(4, '\0'), "size: got"},
            {llmc_model.substr(0, llmc_model.size() - 4) + nan, "is nan"}}},
        {"model", "m.bin", {{llmc_with(3, 256), "tokens"}}, 2},
        // ---- a checkpoint of a run: its DONE right, its DONE older, or another DONE
        {"resume", "optim.safetensors", {{checkpoint.at("model.safetensors"), "other tensors"},
                                         {with("optim.safetensors", size_t(-4), nan), "is nan"}}},
        {"resume", "state.json", {
            {"", "state.json: byte 0"}, {"[]", "it is missing"},
            {state("\"step\":1", "\"step\":2"), "step: got 2, want that of step_00000001"},
            {state("\"step\":1", "\"step\":18446744073709551615"), "step: got 18446744073709551615"},
            {state("\"bad_steps\":0", "\"bad_steps\":4294967296"), "bad_steps: got 4294967296"}}},
        {"resume", "state.json", {{state("\"data_hash\":\"", "\"data_hash\":\"\\u001b[2J"), "began with"}}, 2},
        {"resume", "tokenizer.json", {{"{}", "model: it is missing"}}},
        {"seal", "model.safetensors", {{with("model.safetensors", size_t(-9), "x"), "checksum mismatch"}}},
        {"resume", "DONE", {{std::string(1 << 20, 'x'), "it is damaged"}}},
        // ---- the run's own files
        {"run", "config.json", {{"", "config.json: empty"},
                                {of_run("\"channels\": 8", "\"channels\": 16"), "channels: got"},
                                {of_run("\"layers\": 1", "\"layers\": 4096"), "layers: got"}}},
        {"run", "config.json", {{of_run("\"replicas\": 1", "\"replicas\": 3"), "--replicas: got 3"}}, 2},
        // ---- tools
        {"info", "x.gguf", {
            {numbers + raw<uint64_t>({UINT64_MAX, 0}), end}, {numbers + raw<uint64_t>({0, 1, UINT64_MAX}), end},
            {numbers + raw<uint64_t>({0, 1, 1}) + "k" + raw<uint32_t>({9, 10}) + bytes_of(uint64_t(1) << 61), end}}},
        {"info", "x.safetensors", {{bytes_of(uint64_t(100)), "is it a safetensors file"}}},
        {"plot", "metrics.jsonl", {{"", "metrics.jsonl"}, {std::string(1000, '\xff'), "metrics.jsonl"}}}};
}

void prepare() {
    if (!checkpoint.empty()) return;
    setenv("LOCKSTEP_CACHE", (folder / "cache").c_str(), 1);
    const std::string out = folder / "good", step = out + "/ckpt/step_00000001", to = out + "/m";
    const End trained = run(saving(out));
    CHECK(trained.code == 0, "%s", trained.said.c_str());
    const End exported = run({tools + "/export", out, "--gguf", to + ".gguf", "--type", "f32", "--llmc", to + ".bin"});
    CHECK(exported.code == 0, "%s", exported.said.c_str());
    for (const std::string& n : list_directory(step)) checkpoint[n] = read_file(step + "/" + n);
    run_config = read_file(out + "/config.json");
    gguf = read_file(to + ".gguf");
    llmc_model = read_file(to + ".bin");
}

}  // namespace

// Taken as they are: what is refused below is refused for what was changed. And cut anywhere, or with bytes changed:
// taken or refused, never a crash.
TEST(good_files_whole_and_damaged) {
    prepare();
    const std::string ids = tokens(400), line = "{\"text\": \"" + std::string(400, 'a') + "\"}\n";
    const std::string pair = "{\"prompt\": \"Hi\", \"completion\": \"Yo\"}\n";
    struct Good { const char *how, *name; std::string bytes; };
    std::vector<Good> good = {
        {"data", "a.bin", ids}, {"data", "a.bin", llmc(400, ids)}, {"data", "a.npy", npy("False", "(400,)", ids)},
        {"data", "a.txt", std::string(400, 'a')}, {"data", "a.jsonl", line}, {"data", "a.jsonl", pair + pair},
        {"tokenizer", "t.bpe", vocab_bpe("a b\n")}, {"model", "m.gguf", gguf}, {"model", "m.bin", llmc_model},
        {"run", "config.json", run_config}, {"run", "metrics.jsonl", "torn"}};
    for (const auto& [how, name] : {std::pair("tokenizer", "tokenizer.json"), {"info", "tokenizer.json"},
                                    {"init", "config.json"}, {"init", "model.safetensors"},
                                    {"resume", "optim.safetensors"}, {"resume", "state.json"}, {"resume", "DONE"},
                                    {"seal", "state.json"}})
        good.push_back({how, name, checkpoint.at(name)});
    uint32_t random = 1;
    const auto below = [&](size_t n) { return size_t((random = random * 1664525 + 1013904223) >> 8) % n; };
    for (const auto& [how, name, bytes] : good)
        for (int round = 0; round <= 16; round++) {
            std::string s = bytes;
            if (round % 2) s.resize(below(s.size()));
            else
                for (size_t k = round ? below(3) + 1 : 0; k-- > 0;)
                    s[below(std::min<size_t>(s.size(), 3000))] = char(below(256));
            const End e = run(command(how, name, s));
            EXPECT(e.code == 0 || (round > 0 && (e.code == 2 || e.code == 65 || e.code == 66)), "%s %s, round %d: %s",
                   how, name, round, told(e).c_str());
        }
}

// A checkpoint of another arithmetic is taken, and the run says so.
TEST(older_arithmetic) {
    prepare();
    const std::string now = checkpoint.at("state.json");
    for (const std::string& state : {now, replaced(now, ", arithmetic 2", "")}) {
        const End e = run(command("resume", "state.json", state));
        EXPECT(e.code == 0 && has(e.said, "another device: got cpu") == (state != now), "%s", told(e).c_str());
    }
}

// A run whose Muon took stacked matrices as one, and which saved two numbers of every weight: refused by name.
TEST(older_muon) {
    prepare();
    const auto kept = std::pair(checkpoint, run_config);
    const std::string out = folder / "muon", adamw = checkpoint.at("optim.safetensors");
    const End trained = run(saving(out, " --optimizer muon"));
    EXPECT(trained.code == 0, "%s", told(trained).c_str());
    for (auto& [name, content] : checkpoint) content = read_file(out + "/ckpt/step_00000001/" + name);
    run_config = read_file(out + "/config.json");
    EXPECT_EQ(run(command("resume", "", "")).code, 0);
    EXPECT(checkpoint.at("optim.safetensors").size() < adamw.size(), "matrices have AdamW's second moment");
    uint64_t length;
    std::memcpy(&length, adamw.data(), sizeof length);
    std::string header = adamw.substr(8, length);
    for (size_t at = 0; (at = header.find(".exp_avg\"", at)) != header.npos;) header.replace(at, 8, ".momentum");
    checkpoint["optim.safetensors"] = bytes_of(uint64_t(header.size())) + header + adamw.substr(8 + length);
    const std::string state = replaced(checkpoint.at("state.json"), "\"version\":2", "\"version\":1");
    const End e = run(command("resume", "state.json", state));
    EXPECT(e.code == 65 && has(e.said, "version: got 1, want 2") && has(e.said, "stacked matrices") &&
               has(e.said, "--init"), "%s", told(e).c_str());
    std::tie(checkpoint, run_config) = kept;
}

// Bytes that a reader may take besides a multiple of the file's. The address sanitizer keeps what was freed.
#ifdef __SANITIZE_ADDRESS__
constexpr long kRoom = 64 << 20;
#else
constexpr long kRoom = 8 << 20;
#endif

TEST(bad_files) {
    prepare();
    const long usual = run(command("data", "a.bin", tokens(400))).peak;
    int wrong = 0, all = 0;
    for (const auto& [how, name, files, code] : kinds())
        for (const auto& [bytes, words] : files) {
            const End e = run(command(how, name, bytes));
            const bool control = std::ranges::any_of(e.said, [](unsigned char b) { return b < 32 && b != '\n'; });
            const bool good = e.code == code && count_of(e.said, ": error: ") == 1 && !control && has(e.said, words) &&
                              e.said.back() == '\n' && e.peak < usual + 4 * long(bytes.size()) + kRoom;
            if (!good)
                std::printf("     %s %s: want code %d, one line with \"%s\", got %s", how, name, code, words.c_str(),
                            told(e).c_str());
            wrong += !good;
            all++;
        }
    std::printf("     %d bad files\n", all);
    EXPECT(wrong == 0, "%d of %d", wrong, all);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
