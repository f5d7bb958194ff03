// test_bad_files.cpp -- what the program says to broken and hostile files: a table of files, each given to train_gpt or
// a tool, with the exit code and the words that must come. What each reader refuses is tested beside its own code; here
// are some files for each, and all of those whose readers have no test of their own. It is what a user sees: one line
// that names the file and the reason, no control bytes on the terminal, no memory by a number that a file made up, no
// signal, no wait.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include "src/base/file.h"
#include "tests/test.h"

namespace {

std::string folder;  // scratch
std::string program(const char* variable, const char* otherwise) {
    const char* p = std::getenv(variable);
    return p ? p : otherwise;
}
const std::string train = program("TRAIN_GPT", "./train_gpt"), tools = program("TOOLS", "build");

struct End { int code; std::string said; long peak; double seconds; };  // code: 128 + signal if killed; peak: bytes

End run(const std::vector<std::string>& words) {
    std::vector<char*> args;
    for (const std::string& w : words) args.push_back(const_cast<char*>(w.c_str()));
    args.push_back(nullptr);
    const int log = memfd_create("stderr", MFD_CLOEXEC);
    const double start = now_seconds();
    std::fflush(nullptr);  // or the child has our unprinted lines too
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);  // no file may make it wait
        dup2(log, 2);
        if (!std::freopen("/dev/null", "w", stdout)) _exit(126);
        execv(args[0], args.data());
        _exit(127);
    }
    int status = 0;
    rusage used = {};
    wait4(pid, &status, 0, &used);
    std::string said(size_t(lseek(log, 0, SEEK_END)), '\0');
    if (pread(log, said.data(), said.size(), 0) != ssize_t(said.size())) said = "?";
    close(log);
    return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), said, used.ru_maxrss * 1024,
            now_seconds() - start};
}

template <class T> std::string raw(std::initializer_list<T> values) {
    return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

// ------------------------------------------------------------------------------------------- good files, to be spoilt

std::map<std::string, std::string> checkpoint;  // a real one: name -> bytes
std::string run_config;                         // of its run
std::string gguf, llmc_model;                   // the same model in these files
const std::string pair = "{\"prompt\": \"Hi\", \"completion\": \"Yo\"}\n";
const std::string chat = R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})"
                         "\n";

std::string tokens(size_t n) {
    std::string s;
    for (size_t i = 0; i < n; i++) s += raw<uint16_t>({uint16_t(i % 250)});
    return s;
}
std::string llmc(uint32_t n, const std::string& data, uint32_t magic = 20240520, uint32_t version = 1) {
    return raw<uint32_t>({magic, version, n}) + std::string(1012, '\0') + data;
}
std::string npy(const std::string& type, const std::string& order, const std::string& shape, const std::string& data) {
    const std::string head = "{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
    return std::string("\x93NUMPY\1\0", 8) + raw<uint16_t>({uint16_t(head.size())}) + head + data;
}
// A header of the checkpoint's own model.safetensors, changed, with the length that belongs to it.
std::string model(const std::string& from, const std::string& to) {
    const std::string& file = checkpoint.at("model.safetensors");
    uint64_t length;
    std::memcpy(&length, file.data(), 8);
    const std::string header = replaced(file.substr(8, length), from, to);
    return raw<uint64_t>({header.size()}) + header + file.substr(8 + length);
}
std::string with(const char* name, size_t at,
                 const std::string& bytes) {  // that file with other bytes at a place; from the end if > size
    std::string s = checkpoint.at(name);
    return s.replace(at < s.size() ? at : s.size() + at, bytes.size(), bytes);
}
std::string changed(const char* name, const std::string& from, const std::string& to) {
    return replaced(checkpoint.at(name), from, to);
}
std::string gguf_with(const std::string& from, const std::string& to) { return replaced(gguf, from, to); }
std::string number(const std::string& key, uint32_t x, uint32_t type = 4) { return key + raw<uint32_t>({type, x}); }
std::string wte(uint32_t dims, uint64_t cols, uint32_t type, uint64_t offset) {    // its description, from its name on
    return "token_embd.weight" + raw<uint32_t>({dims}) + raw<uint64_t>({cols, 257}) + raw<uint32_t>({type}) +
           raw<uint64_t>({offset});
}
// A file that has only this key.
std::string key(const std::string& name, std::initializer_list<uint32_t> types, const std::string& value) {
    return gguf.substr(0, 8) + raw<uint64_t>({0, 1, name.size()}) + name + raw(types) + value + std::string(16, '\1');
}
std::string llmc_with(size_t at, uint32_t x) { return std::string(llmc_model).replace(4 * at, 4, raw<uint32_t>({x})); }
std::string vocab_bpe(const std::string& lines) { return "#version: 0.2\n" + lines; }

// ---------------------------------------------------------------------------------------------- ways to give a file

// The command of a run of one step of a tiny model.
std::vector<std::string> small_run(const std::string& out, const std::string& save_every) {
    return {train, "--out-dir", out, "--seq-len", "16", "--batch-size", "1", "--total-batch-size", "16", "--layers",
            "1", "--heads", "1", "--channels", "8", "--steps", "1", "--sample-every", "0", "--eval-every", "0",
            "--save-every", save_every};
}

// Lays the file where it is read from and returns the command: data NAME, tokenizer NAME, init NAME (in a Hugging Face
// folder), model NAME (a model of one file), resume NAME (in a checkpoint whose DONE is right for it), seal NAME (the
// same without a new DONE), run NAME (the run's own files), info NAME, plot NAME.
std::vector<std::string> command(const std::string& how, const std::string& name, const std::string& bytes) {
    std::vector<std::string> small = small_run(folder + "/out", "0");
    const std::string file = folder + "/" + name;
    remove_tree(folder + "/out");
    if (how != "init" && how != "resume" && how != "seal" && how != "run") put(file, bytes);
    if (how == "info") return {tools + "/info", file};
    if (how == "plot") return {tools + "/plot", file, "-o", folder + "/x.svg"};
    if (how == "data" || how == "tokenizer") {
        small.insert(small.end(), {"--" + how, file});
        if (how == "tokenizer") small.insert(small.end(), {"--data", "tests/golden/lines.txt"});
        return small;
    }
    if (how == "init" || how == "model") {
        make_directories(folder + "/hf");
        for (const char* n : {"config.json", "model.safetensors", "tokenizer.json"})
            put(folder + "/hf/" + n, n == name ? bytes : checkpoint.at(n));
        return {
            train, "--init", how == "model" ? file : folder + "/hf", "--data", "tests/golden/lines.txt",
            "--out-dir", folder + "/out", "--batch-size", "1", "--total-batch-size", "16", "--steps", "1",
            "--sample-every", "0", "--eval-every", "0", "--save-every", "0"};
    }
    const std::string step = folder + "/out/ckpt/step_00000001";
    make_directories(step);
    std::string done = "lockstep checkpoint 1\nstep 1\n";
    for (auto [n, content] : checkpoint) {
        if (n == name && how != "run") content = bytes;
        put(step + "/" + n, content);
        const std::string& summed = how == "seal" ? checkpoint.at(n) : content;
        if (n != "DONE")
            done += format("%08x %zu %s\n", crc32c(0, summed.data(), summed.size()), summed.size(), n.c_str());
    }
    if (name != "DONE") put(step + "/DONE", done + format("crc %08x\n", crc32c(0, done.data(), done.size())));
    put(folder + "/out/config.json", how == "run" && name == "config.json" ? bytes : run_config);
    put(folder + "/out/metrics.jsonl", how == "run" && name == "metrics.jsonl" ? bytes : "");
    return {train, "--resume", folder + "/out", "--steps", "2"};
}

struct Case {
    const char *how, *name;
    std::string bytes;
    int code;
    const char* words;
};

std::vector<Case> cases() {
    const std::string ids = tokens(400), nan = raw<uint32_t>({0x7fc00000}),
                      lines = "{\"text\": \"a line that is long enough to be a sample of sixteen tokens\"}\n";
    const auto tokenizer = [](const std::string& from, const std::string& to) {
        return changed("tokenizer.json", from, to);
    };
    const auto merges = [&](const std::string& list) { return tokenizer("\"merges\":[]", "\"merges\":" + list); };
    const auto config = [](const std::string& from, const std::string& to) { return changed("config.json", from, to); };
    const auto state = [](const std::string& from, const std::string& to) { return changed("state.json", from, to); };
    const std::string deep = std::string(100000, '[');
    return {
        // ---- token shards: llm.c, nanoGPT
        {"data", "a.bin", llmc(0xffffffff, ids), 65, "want 8,589,934,590"},
        {"data", "a.bin", llmc(0x80000190, ids), 65, "want 4,294,968,096"},  // wraps to 400 in 32 bits
        {"data", "a.bin", llmc(400, tokens(399) + "\xff\xff"), 65, "token 399 (byte 1822): got 65535"},
        {"data", "\x1b[2Ja.bin", ids + "x", 65, "\\x1b[2Ja.bin"},
        // ---- .npy
        {"data", "a.npy", ids, 65, "want a .npy"},
        {"data", "a.npy", npy("'<u2'", "True", "(20, 20)", ids), 65, "one dimension of"},
        {"data", "a.npy", npy("'<u2'", "False", "(4611686018427387904, 8)", ids), 65, "one dimension"},
        {"data", "a.npy", npy("'<u2'", "False", "(9223372036854776208,)", ids), 65, "size overflows"},
        {"data", "a.npy", npy("'<u4'", "False", "(200,)", raw<uint32_t>({~0u}) + std::string(796, '\0')), 65,
         "got 4294967295"},
        {"data", "a.npy", std::string("\x93NUMPY\1\0\x40\0", 10) + std::string(64, '{') + ids, 65,
         "one dimension of"},
        // ---- text, jsonl
        {"data", "a.txt", "", 65, "got 0 training tokens"}, {"data", "a.txt", "short", 65, "want at least 17"},
        {"data", "a.txt", "\xff\xfeh" + ids, 65, "want UTF-8 text"},
        {"data", "a.jsonl", chat + "{\"messages\": [{\"role\": \"assistent\"}]}", 65, "line 2: messages[0]: role: "},
        {"data", "a.jsonl", chat + lines, 65, "line 2: got the fields \"text\""},
        {"data", "a.jsonl", chat + chat + "{\"messages\": " + deep, 65, "at most 32 levels"},
        {"data", "a.jsonl", lines + "{\"text\": " + deep, 65, "at most 32 levels"},
        {"data", "a.jsonl", lines + std::string("\0\0\0", 3), 65, "line 2: byte 0"},
        // ---- tokenizer.json
        {"tokenizer", "t.json", "", 65, "want a vocab.bpe"},
        {"tokenizer", "t.json", "{\"model\":" + deep, 65, "at most 32 levels"},
        {"tokenizer", "t.json", tokenizer("\"normalizer\":null", "\"normalizer\":{\"type\":\"Prepend\"}"), 65,
         "normalizer: got [type:\"Prepend\"], want null or NFC"},
        {"tokenizer", "t.json", tokenizer("\"type\":\"ByteLevel\"", "\"type\":\"Metaspace\""), 65,
         "pre_tokenizer: got [add_prefix_space:\"false\",type:\"Metaspace\"]"},
        {"tokenizer", "t.json", tokenizer("\"use_regex\":true", "\"\\u001b[2J\":true"), 65, "\\x1b[2J"},
        {"tokenizer", "t.json", tokenizer("\"!\":33", "\"!\":99"), 65, "got 99, want ids from 0 on"},
        {"tokenizer", "t.json", tokenizer("\"!\":33", "\"!\":4294967329"), 65, "got 4294967329"},
        {"tokenizer", "t.json", tokenizer("\"!\":33", "\"\\u001b[2J\":33"), 65, "\\u001b[2J"},
        {"tokenizer", "t.json", tokenizer("\"!\":33", "\"" + std::string(1 << 20, 'a') + "\":33"), 65,
         "byte 0x21: got no token"},
        {"tokenizer", "t.json", tokenizer("\"!\":33,", "\"!\":520,"), 65, "got 520, want ids from 0 on"},
        {"tokenizer", "t.json", merges("[\"b c\"]"), 65, "merges[0]: got \"bc\""},
        // ---- vocab.bpe
        {"tokenizer", "t.bpe", vocab_bpe("a \x1b\n"), 65, "got \"\\u001b\""},
        // ---- a Hugging Face folder: config.json, model.safetensors
        {"init", "config.json", "", 65, "config.json: byte 0"},
        {"init", "config.json", config("\"n_layer\": 1", "\"n_layer\": 2"), 65,
         "tensor transformer.h.1.ln_1.weight: it is missing"},
        {"init", "config.json", config("\"n_layer\": 1", "\"n_layer\": 4096"), 65,
         "config.json: got a model of"},
        {"init", "config.json", config("\"n_embd\": 8", "\"n_embd\": 16"), 65, "want at most"},
        {"init", "config.json", config("\"vocab_size\": 257", "\"vocab_size\": 16777216"), 65, "want at most"},
        {"init", "config.json", config("\"n_embd\": 8", "\"n_embd\": 8, \"n_embd\": 8"), 65, "twice"},
        {"init", "model.safetensors", "", 65, "want at most 0"},
        {"init", "model.safetensors", with("model.safetensors", 0, raw<uint64_t>({UINT64_MAX - 7})), 65,
         "header: got 18446744073709551608"},
        {"init", "model.safetensors", with("model.safetensors", size_t(-4), nan), 65, "is nan"},
        {"init", "model.safetensors", model("[257,8]", "[8,257]"), 65, "wte.weight: shape: got [8,257], want [257,8]"},
        {"init", "model.safetensors", model("[257,8]", "[4294967296,4294967296]"), 65, "size overflows"},
        {"init", "model.safetensors", model("[257,8]", "[2056]"), 65, "wte.weight: shape: got [2056]"},
        {"init", "model.safetensors", model("\"F32\",\"shape\":[257,8]", "\"F33\",\"shape\":[257,8]"), 65,
         "dtype: got F33"},
        {"init", "model.safetensors", model("transformer.wpe.weight", "../../../etc/x"), 65, "it is missing"},
        {"init", "model.safetensors", model("transformer.wpe.weight", "transformer.wpx.weight"), 65,
         "wpe.weight: it is missing"},
        {"init", "model.safetensors", model("\"data_offsets\":[0,8224]", "\"data_offsets\":[8,8232]"), 65,
         "data_offsets"},
        {"init", "tokenizer.json", tokenizer("\"!\":33,", "").substr(0, 100), 65, "tokenizer.json: byte"},
        // ---- a model of one file: GGUF
        {"model", "m.gguf", "", 65, "m.gguf: got a file that is no model, want GGUF, llm.c's GPT-2, or a folder"},
        {"model", "m.gguf", gguf.substr(0, 20), 65, "byte 16: got 8 bytes, want the file to go on"},
        {"model", "m.gguf", replaced(gguf, "GGUF\3", "GGUF\2"), 65, "version: got 2, want 3"},
        {"model", "m.gguf", gguf.substr(0, 8) + raw<uint64_t>({UINT64_MAX, 0}), 65, "want the file to go on"},
        {"model", "m.gguf", gguf.substr(0, 8) + raw<uint64_t>({0, 1, UINT64_MAX}), 65, "want the file to go on"},
        {"model", "m.gguf", key("k", {9, 9}, ""), 65, "k: got type 4294967295, want 0 to 12, no array of arrays"},
        {"model", "m.gguf", key("k", {9, 8}, raw<uint64_t>({UINT64_MAX})), 65, "want the file to go on"},
        {"model", "m.gguf", key("k", {13}, ""), 65, "k: got type 13"},
        {"model", "m.gguf", gguf_with("gpt2", "bert"), 65,
         "general.architecture: got \"bert\", want gpt2, llama, qwen2 or qwen3"},
        {"model", "m.gguf", gguf_with("gpt2.context_length", "gpt2.context_lengtx"), 65,
         "gpt2.context_lengtx: got 16, want none: it is not known here"},
        {"model", "m.gguf", gguf_with("general.file_type", "general.alignment"), 65, "general.alignment: got it twice"},
        {"model", "m.gguf", gguf_with(number("general.alignment", 32), number("general.alignment", 64)), 65,
         "general.alignment: got 64, want 32"},
        {"model", "m.gguf", gguf_with(number("block_count", 1), number("block_count", 4096)), 65, "got a model of"},
        {"model", "m.gguf", gguf_with(number("block_count", 1), number("block_count", 0)), 65, "n_layer: got 0"},
        {"model", "m.gguf", gguf_with(number("head_count", 1), number("head_count", 3)), 65, "--heads: got 3"},
        {"model", "m.gguf", gguf_with(number("epsilon", 0x3727c5ac, 6), number("epsilon", 0x3727c5ad, 6)), 65,
         "layer_norm_epsilon: got 1.0000001e-05"},
        {"model", "m.gguf", gguf_with("gpt-2", "gpt-9"), 65, "tokenizer.ggml.pre: got \"gpt-9\""},
        {"model", "m.gguf", gguf_with(wte(2, 8, 0, 0), wte(2, 8, 8, 0)), 65, "token_embd.weight: got type Q8_0"},
        {"model", "m.gguf", gguf_with(wte(2, 8, 0, 0), wte(2, 8, 2, 0)), 65, "got type 2, want F32, F16, BF16 or Q8_0"},
        {"model", "m.gguf", gguf_with(wte(2, 8, 0, 0), wte(5, 8, 0, 0)), 65, "got 5 dimensions, want 1 to 4"},
        {"model", "m.gguf", gguf_with(wte(2, 8, 0, 0), wte(2, uint64_t(1) << 60, 0, 0)), 65, "size overflows"},
        {"model", "m.gguf", gguf_with(wte(2, 8, 0, 0), wte(2, 4, 0, 0)), 65, "got 8224 as offset, want 4128"},
        {"model", "m.gguf", gguf_with(wte(2, 8, 0, 0), wte(2, 8, 0, 64)), 65, "token_embd.weight: got 64 as offset"},
        {"model", "m.gguf", gguf_with("position_embd", "position_emb2"), 65, "position_embd.weight: it is missing"},
        {"model", "m.gguf", gguf.substr(0, gguf.size() - 40), 65, "want the file to go on"},
        {"model", "m.gguf", gguf.substr(0, gguf.size() - 4) + nan, 65, "is nan"},
        // ---- and llm.c
        {"model", "m.bin", llmc_model.substr(0, 1000), 65, "byte 0: got 1,024 bytes, want the file to go on"},
        {"model", "m.bin", llmc_with(1, 4), 65, "version: got 4, want 3 (fp32) or 5 (bf16)"},
        {"model", "m.bin", llmc_with(1, 5), 65, "size: got"},
        {"model", "m.bin", llmc_with(2, 0), 65, "n_positions: got 0"},
        {"model", "m.bin", llmc_with(3, 0xffffffff), 65, "vocab_size: got 4294967295"},
        {"model", "m.bin", llmc_with(3, 256), 2, "tokens"},
        {"model", "m.bin", llmc_with(4, 4096), 65, "got a model of"},
        {"model", "m.bin", llmc_with(5, 3), 65, "--heads: got 3"},
        {"model", "m.bin", llmc_with(7, 256), 65, "header[7]: got 256, want 257 or more"},
        {"model", "m.bin", llmc_with(7, 0xffffffff), 65, "want the file to go on"},
        {"model", "m.bin", llmc_model + std::string(4, '\0'), 65, "size: got"},
        {"model", "m.bin", llmc_model.substr(0, llmc_model.size() - 4) + nan, 65, "is nan"},
        // ---- a checkpoint of a run, its DONE right: optimizer, state
        {"resume", "optim.safetensors", "", 65, "other tensors"},
        {"resume", "optim.safetensors", checkpoint.at("model.safetensors"), 65, "other tensors"},
        {"resume", "optim.safetensors", with("optim.safetensors", size_t(-4), nan), 65, "is nan"},
        {"resume", "model.safetensors", checkpoint.at("optim.safetensors"), 65, "other tensors"},
        {"resume", "state.json", "", 65, "state.json: byte 0"},
        {"resume", "state.json", "[]", 65, "it is missing"},
        {"resume", "state.json", state("\"step\":1", "\"step\":-1"), 65, "step: got -1"},
        {"resume", "state.json", state("\"step\":1", "\"step\":1.5"), 65, "step: got 1.5"},
        {"resume", "state.json", state("\"step\":1", "\"step\":2"), 65, "step: got 2, want that of step_00000001"},
        {"resume", "state.json", state("\"step\":1", "\"step\":18446744073709551615"), 65,
         "step: got 18446744073709551615"},
        {"resume", "state.json", state("\"bad_steps\":0", "\"bad_steps\":4294967296"), 65, "bad_steps: got 4294967296"},
        {"resume", "state.json", state("\"data_hash\":\"", "\"data_hash\":\"\\u001b[2J"), 2, "began with"},
        {"resume", "tokenizer.json", "{}", 65, "model: it is missing"},
        // ---- the same with bytes that DONE does not know
        {"seal", "model.safetensors", with("model.safetensors", size_t(-9), "x"), 65, "checksum mismatch"},
        {"seal", "optim.safetensors", checkpoint.at("optim.safetensors").substr(1), 65, "optim.safetensors: got"},
        {"seal", "state.json", state("\"step\":1", "\"step\":2"), 65, "state.json: checksum mismatch"},
        {"resume", "DONE", "", 65, "another version"},
        {"resume", "DONE", "lockstep checkpoint 2\n", 65, "another version"},
        {"resume", "DONE", changed("DONE", "step 1", "step 2"), 65, "it is damaged"},
        {"resume", "DONE", std::string(1 << 20, 'x'), 65, "it is damaged"},
        // ---- the run's own files
        {"run", "config.json", "", 65, "config.json: empty"},
        {"run", "config.json", "[]", 65, "want an object"},
        {"run", "config.json", replaced(run_config, "\"heads\": 1", "\"heads\": \"1\""), 65, "heads: got \"1\""},
        {"run", "config.json", replaced(run_config, "\"heads\": 1", "\"heads\": 99999999999999999999"), 65,
         "heads: got"},
        {"run", "config.json", replaced(run_config, "\"replicas\": 1", "\"replicas\": 3"), 2, "--replicas: got 3"},
        {"run", "config.json", replaced(run_config, "\"channels\": 8", "\"channels\": 16"), 65,
         "channels: got"},
        {"run", "config.json", replaced(run_config, "\"layers\": 1", "\"layers\": 4096"), 65,
         "layers: got"},
        {"run", "config.json", replaced(run_config, "\"seed\": 1337", "\"seed\": -1"), 65, "seed: got"},
        // ---- tools
        {"info", "x.gguf", std::string("GGUF\3\0\0\0", 8), 65, "the file ends inside the header"},
        {"info", "x.gguf", "GGUF" + raw<uint32_t>({3}) + raw<uint64_t>({UINT64_MAX, 0}), 65, "the file ends inside"},
        {"info", "x.gguf", "GGUF" + raw<uint32_t>({3}) + raw<uint64_t>({0, 1, UINT64_MAX}), 65, "the file ends inside"},
        {"info", "x.gguf",
         "GGUF" + raw<uint32_t>({3}) + raw<uint64_t>({0, 1, 1}) + "k" + raw<uint32_t>({9, 10}) +
             raw<uint64_t>({uint64_t(1) << 61}),
         65, "the file ends inside"},
        {"info", "x.json", "{\"\\u001b[2J\":1}", 65, "no tokenizer, model config"},
        {"info", "x.safetensors", raw<uint64_t>({100}), 65, "is it a safetensors file"},
        {"plot", "metrics.jsonl", "", 65, "metrics.jsonl"},
        {"plot", "metrics.jsonl", std::string(1000, '\xff'), 65, "metrics.jsonl"},
    };
}

void prepare() {
    static bool done = false;
    if (done) return;
    done = true;
    char name[] = "/tmp/test_bad_files.XXXXXX";
    CHECK(mkdtemp(name), "mkdtemp");
    folder = name;
    setenv("LOCKSTEP_CACHE", (folder + "/cache").c_str(), 1);
    const std::string out = folder + "/good";
    std::vector<std::string> words = small_run(out, "1");
    words.insert(words.end(), {"--data", "tests/golden/lines.txt"});
    const End e = run(words);
    CHECK(e.code == 0, "%s", e.said.c_str());
    const std::string step = out + "/ckpt/step_00000001";
    for (const std::string& n : list_directory(step)) checkpoint[n] = read_file(step + "/" + n);
    run_config = read_file(out + "/config.json");
    const std::string to = out + "/m";
    const End exported = run({tools + "/export", out, "--gguf", to + ".gguf", "--type", "f32", "--llmc", to + ".bin"});
    CHECK(exported.code == 0, "%s", exported.said.c_str());
    gguf = read_file(out + "/m.gguf");
    llmc_model = read_file(out + "/m.bin");
}

std::string told(const End& e) {
    return format("code %d after %.2f s, %ld KiB: %s", e.code, e.seconds, e.peak >> 10, e.said.c_str());
}

}  // namespace

// Taken as they are: what is refused below is refused for what was changed.
static std::vector<Case> good_files() {
    const std::string ids = tokens(400), line = "{\"text\": \"" + std::string(400, 'a') + "\"}\n";
    std::vector<Case> good = {
        {"data", "a.bin", ids, 0, ""}, {"data", "a.bin", llmc(400, ids), 0, ""},
        {"data", "a.npy", npy("'<u2'", "False", "(400,)", ids), 0, ""},
        {"data", "a.txt", std::string(400, 'a'), 0, ""}, {"data", "a.jsonl", line, 0, ""},
        {"data", "a.jsonl", pair + pair, 0, ""},
        {"tokenizer", "t.bpe", vocab_bpe("a b\n"), 0, ""}, {"model", "m.gguf", gguf, 0, ""},
        {"model", "m.bin", llmc_model, 0, ""}, {"run", "config.json", run_config, 0, ""},
        {"run", "metrics.jsonl", "torn", 0, ""}};
    const std::pair<const char*, const char*> of_checkpoint[] = {
        {"tokenizer", "tokenizer.json"}, {"info", "tokenizer.json"}, {"init", "config.json"},
        {"init", "model.safetensors"}, {"resume", "optim.safetensors"}, {"resume", "state.json"}, {"resume", "DONE"},
        {"seal", "state.json"}};
    for (const auto& [how, name] : of_checkpoint) good.push_back({how, name, checkpoint.at(name), 0, ""});
    return good;
}

// And cut anywhere, or with bytes changed: taken or refused, never a crash.
TEST(good_files_whole_and_damaged) {
    prepare();
    uint32_t random = 1;
    const auto below = [&](size_t n) { return size_t((random = random * 1664525 + 1013904223) >> 8) % n; };
    for (const Case& g : good_files())
        for (int round = 0; round <= 16; round++) {
            std::string s = g.bytes;
            if (round % 2) s.resize(below(s.size()));
            else
                for (size_t k = round ? below(3) + 1 : 0; k-- > 0;)
                    s[below(std::min<size_t>(s.size(), 3000))] = char(below(256));
            const End e = run(command(g.how, g.name, s));
            EXPECT(e.code == 0 || (round > 0 && (e.code == 2 || e.code == 65 || e.code == 66)), "%s %s, round %d: %s",
                   g.how, g.name, round, told(e).c_str());
        }
}

// A checkpoint of another arithmetic is taken, and the run says so.
TEST(older_arithmetic) {
    prepare();
    const std::string now = checkpoint.at("state.json"), before = changed("state.json", ", arithmetic 2", "");
    const End older = run(command("resume", "state.json", before)), same = run(command("resume", "state.json", now));
    EXPECT(older.code == 0 && has(older.said, "another device: got cpu"), "%s",
           told(older).c_str());
    EXPECT(same.code == 0 && !has(same.said, "another device"), "%s", told(same).c_str());
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
    const std::vector<Case> all = cases();
    int wrong = 0;
    for (const Case& c : all) {
        const End e = run(command(c.how, c.name, c.bytes));
        size_t errors = 0, control = 0;
        for (size_t at = 0; (at = e.said.find(": error: ", at)) != std::string::npos; at++) errors++;
        for (const char b : e.said) control += (unsigned char)b < 32 && b != '\n';
        const bool good = e.code == c.code && errors == 1 && control == 0 &&
                          has(e.said, c.words) && e.said.back() == '\n' &&
                          e.peak < usual + 4 * long(c.bytes.size()) + kRoom;
        if (!good)
            std::printf("     %s %s: want code %d, one line with \"%s\", got %s", c.how, c.name, c.code, c.words,
                        told(e).c_str());
        wrong += !good;
    }
    std::printf("     %zu bad files\n", all.size());
    EXPECT(wrong == 0, "%d of %zu", wrong, all.size());
}

int main(int argc, char** argv) {
    const int code = run_tests(argc, argv);
    if (!folder.empty()) remove_tree(folder);
    return code;
}
