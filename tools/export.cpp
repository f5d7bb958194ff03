// export.cpp -- build/export OUT --hf DIR | --gguf FILE | --llmc FILE: a trained model for other programs.
//
//     --hf DIR       a Hugging Face folder: the checkpoint without the optimizer's state
//     --gguf FILE    GGUF version 3, F32, with tokenizer: llama.cpp, ollama, LM Studio
//     --llmc FILE    llm.c's model file, version 3 (fp32)
//
// OUT is a run, a checkpoint or a Hugging Face folder. A checkpoint's checksums are verified before anything is written.
#include <cstring>
#include <unistd.h>
#include "checkpoint.h"
#include "common.h"
#include "file.h"
#include "json.h"

namespace {
const char* const kUsage =
    "usage: export OUT [--hf DIR] [--gguf FILE] [--llmc FILE]\n"
    "Writes the model of a run, checkpoint or Hugging Face folder OUT for other programs:\n"
    "  --hf DIR      Hugging Face folder: transformers' from_pretrained(DIR)\n"
    "  --gguf FILE   GGUF, F32, with tokenizer: llama.cpp, ollama\n"
    "  --llmc FILE   llm.c's checkpoint, version 3 (fp32)\n"
    "Nothing is overwritten. exit codes: 0, 2 usage, 65 bad content, 66 no model, 74 a write failed\n";

struct Model {
    std::string folder, name;                           // name: of the run, for GGUF's general.name
    HfConfig config;
    Arena arena;
    std::vector<float> values;                          // in memory order: a weight is (outputs, inputs)
};

// A block's tensors in llm.c's order: names in a Hugging Face file and in GGUF, shape in units of the channels (0 rows: a vector).
struct Part { const char *hf, *gguf; size_t rows, cols; };
const Part kParts[] = {
    {"ln_1.weight", "attn_norm.weight", 0, 1},        {"ln_1.bias", "attn_norm.bias", 0, 1},
    {"attn.c_attn.weight", "attn_qkv.weight", 3, 1},  {"attn.c_attn.bias", "attn_qkv.bias", 0, 3},
    {"attn.c_proj.weight", "attn_output.weight", 1, 1}, {"attn.c_proj.bias", "attn_output.bias", 0, 1},
    {"ln_2.weight", "ffn_norm.weight", 0, 1},         {"ln_2.bias", "ffn_norm.bias", 0, 1},
    {"mlp.c_fc.weight", "ffn_up.weight", 4, 1},       {"mlp.c_fc.bias", "ffn_up.bias", 0, 4},
    {"mlp.c_proj.weight", "ffn_down.weight", 1, 4},   {"mlp.c_proj.bias", "ffn_down.bias", 0, 1},
};
constexpr size_t kFirstBlock = 2, kBlockTensors = sizeof kParts / sizeof kParts[0];    // places in the arena's table

Model load(const std::string& folder, const std::string& name, size_t vocab_multiple) {
    Model m;
    m.folder = folder;
    m.name = name;
    m.config = read_hf_config(folder);
    const SafeTensors file = open_safetensors(path_join(folder, "model.safetensors"));
    const size_t C = size_t(m.config.channels), V = size_t(m.config.vocab_size), T = size_t(m.config.seq_len);
    std::vector<TensorSpec> table = {{"transformer.wte.weight", round_up(V, vocab_multiple), C, V, false, 0, true},
                                     {"transformer.wpe.weight", T, C, T, false, 0, true}};
    for (int l = 0; l < m.config.layers; l++)
        for (const Part& p : kParts) {
            const bool matrix = p.rows > 0;
            const size_t rows = matrix ? p.rows * C : 1;
            table.push_back({"transformer.h." + std::to_string(l) + "." + p.hf, rows, p.cols * C, rows, matrix, 0, matrix});
        }
    for (const char* name : {"transformer.ln_f.weight", "transformer.ln_f.bias"}) table.push_back({name, 1, C, 1, false, 0, false});
    m.arena = arena_layout(std::move(table));
    m.values.resize(m.arena.n);
    read_safetensors(file, m.arena, "", m.values.data());
    return m;
}

const float* tensor(const Model& m, size_t i) { return m.values.data() + m.arena.offset[i]; }

// ---------------------------------------------------------------------------------------------------------- formats

void copy_hf(const std::string& folder, const std::string& out) {
    for (const char* name : {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json",
                             "tokenizer_config.json", "vocab.json", "merges.txt"}) {
        const std::string from = path_join(folder, name);
        if (!file_exists(from)) continue;
        const MappedFile file = map_file(from);
        FileWriter copy(path_join(out, name));
        copy.write(file.data, file.size);
        copy.finish();
    }
    sync_directory(out);
}

void export_hf(const std::string& folder, const std::string& out) {
    if (file_exists(out) && !(is_directory(out) && list_directory(out).empty()))
        die(kExitUsage, "--hf: %s: it exists; give a new folder", out.c_str());
    make_directories(out);
    try {
        copy_hf(folder, out);
    } catch (...) {
        remove_tree(out);
        throw;
    }
}

// int32[256]: magic, version 3 (fp32), context, V, layers, heads, channels, Vp; then each kind of tensor for all layers.
void export_llmc(const Model& m, FileWriter* file) {
    const HfConfig& c = m.config;
    const int32_t head[256] = {20240326, 3, c.seq_len, c.vocab_size, c.layers, c.heads, c.channels, int(m.arena.tensors[0].rows)};
    file->write(head, sizeof head);
    const auto put = [&](size_t i) {
        file->write(tensor(m, i), m.arena.tensors[i].rows * m.arena.tensors[i].cols * sizeof(float));
    };
    put(0);
    put(1);
    for (size_t part = 0; part < kBlockTensors; part++)
        for (size_t l = 0; l < size_t(m.config.layers); l++) put(kFirstBlock + l * kBlockTensors + part);
    put(m.arena.tensors.size() - 2);
    put(m.arena.tensors.size() - 1);
}

// GGUF: "GGUF", version, counts, keys, tensor descriptions, data; strings with u64 lengths, all little-endian.
struct GgufHead {
    std::string keys, tensors;
    uint64_t key_count = 0, tensor_count = 0, offset = 0;

    template <class T> static void put(std::string* to, T x) { to->append(reinterpret_cast<const char*>(&x), sizeof x); }
    static void put_text(std::string* to, std::string_view text) {
        put<uint64_t>(to, text.size());
        to->append(text);
    }
    void key(const char* name, uint32_t type) {
        put_text(&keys, name);
        put<uint32_t>(&keys, type);
        key_count++;
    }
    void add_u32(const char* name, uint32_t x) { key(name, 4); put(&keys, x); }
    void add_f32(const char* name, float x) { key(name, 6); put(&keys, x); }
    void add_bool(const char* name, bool x) { key(name, 7); put<uint8_t>(&keys, x); }
    void add_text(const char* name, std::string_view x) { key(name, 8); put_text(&keys, x); }
    void add_texts(const char* name, const std::vector<std::string>& x) {
        key(name, 9);
        put<uint32_t>(&keys, 8);
        put<uint64_t>(&keys, x.size());
        for (const std::string& s : x) put_text(&keys, s);
    }
    void add_i32s(const char* name, const std::vector<int32_t>& x) {
        key(name, 9);
        put<uint32_t>(&keys, 5);
        put<uint64_t>(&keys, x.size());
        for (const int32_t v : x) put(&keys, v);
    }
    void add_tensor(const std::string& name, const TensorSpec& t, bool matrix) {
        put_text(&tensors, name);
        put<uint32_t>(&tensors, matrix ? 2 : 1);
        put<uint64_t>(&tensors, t.cols);                // fastest dimension first
        if (matrix) put<uint64_t>(&tensors, t.rows);
        put<uint32_t>(&tensors, 0);                     // F32
        put<uint64_t>(&tensors, offset);
        offset += round_up<uint64_t>(t.rows * t.cols * sizeof(float), 32);
        tensor_count++;
    }
};

// Tokens as GPT-2 spells them (each byte a printable character): what tokenizer.json's vocabulary holds.
void add_tokenizer(GgufHead* head, const Model& m) {
    const std::string path = path_join(m.folder, "tokenizer.json");
    if (!file_exists(path))
        die(kExitNoInput,
            "--gguf: %s: missing; a GGUF file contains its tokenizer, and this model was trained on tokens without text",
            path.c_str());
    const char* what = path.c_str();
    const MappedFile file = map_file(path);
    const Json j = parse_json(file.text(), what);
    const Json model = j.at("model", what);
    if (const std::string type = model.get_string("type", what); type != "BPE")
        die(kExitBadContent, "%s: model type: got %s, want \"BPE\", the only one that GGUF has for GPT-2", what,
            json_quote(type.substr(0, 40)).c_str());
    const size_t V = size_t(m.config.vocab_size);
    std::vector<std::string> tokens(V);
    std::vector<int32_t> types(V, 5);                   // unused; 1 normal, 3 control
    const auto set = [&](uint64_t id, const std::string& text, int32_t type) {
        if (id >= V)
            die(kExitBadContent, "%s: token id %llu, want less than %zu, the model's", what, (unsigned long long)id, V);
        tokens[id] = text;
        types[id] = type;
    };
    for (JsonItems i(model.at("vocab", what)); i.next();) {
        const std::string text = i.key.text();
        uint64_t n;
        if (!i.value.as_u64(&n))
            die(kExitBadContent, "%s: token %s: its id is no integer", what, json_quote(text.substr(0, 40)).c_str());
        set(n, text, 1);
    }
    for (JsonItems i(j.find("added_tokens")); i.next();) set(i.value.get_u64("id", what), i.value.get_string("content", what), 3);
    for (size_t i = 0; i < V; i++)
        if (types[i] == 5) tokens[i] = "[UNUSED" + std::to_string(i) + "]";
    std::vector<std::string> merges;
    for (JsonItems i(model.at("merges", what)); i.next();) {
        merges.push_back(i.value.kind() == Json::string ? i.value.text() : "");
        for (JsonItems pair(i.value); pair.next();) merges.back() += (merges.back().empty() ? "" : " ") + pair.value.text();  // newer files: ["a","b"] for "a b"
    }
    head->add_text("tokenizer.ggml.model", "gpt2");
    head->add_text("tokenizer.ggml.pre", "gpt-2");
    head->add_texts("tokenizer.ggml.tokens", tokens);
    head->add_i32s("tokenizer.ggml.token_type", types);
    head->add_texts("tokenizer.ggml.merges", merges);
    if (m.config.eot >= 0) {
        head->add_u32("tokenizer.ggml.bos_token_id", uint32_t(m.config.eot));
        head->add_u32("tokenizer.ggml.eos_token_id", uint32_t(m.config.eot));
    }
    head->add_bool("tokenizer.ggml.add_bos_token", false);
}

std::string gguf_name(size_t i, size_t tensors) {
    if (i == 0) return "token_embd.weight";
    if (i == 1) return "position_embd.weight";
    if (i + 2 >= tensors) return i + 2 == tensors ? "output_norm.weight" : "output_norm.bias";
    return format("blk.%zu.%s", (i - kFirstBlock) / kBlockTensors, kParts[(i - kFirstBlock) % kBlockTensors].gguf);
}

void export_gguf(const Model& m, FileWriter* file) {
    const HfConfig& c = m.config;
    GgufHead head;
    head.add_text("general.architecture", "gpt2");
    head.add_text("general.name", m.name);
    head.add_u32("general.file_type", 0);               // all F32
    head.add_u32("general.alignment", 32);
    head.add_u32("gpt2.context_length", uint32_t(c.seq_len));
    head.add_u32("gpt2.embedding_length", uint32_t(c.channels));
    head.add_u32("gpt2.feed_forward_length", uint32_t(4 * c.channels));
    head.add_u32("gpt2.block_count", uint32_t(c.layers));
    head.add_u32("gpt2.attention.head_count", uint32_t(c.heads));
    head.add_f32("gpt2.attention.layer_norm_epsilon", 1e-5f);
    add_tokenizer(&head, m);
    const size_t n = m.arena.tensors.size();
    for (size_t i = 0; i < n; i++) head.add_tensor(gguf_name(i, n), m.arena.tensors[i], m.arena.tensors[i].decay);

    std::string text = "GGUF";
    GgufHead::put<uint32_t>(&text, 3);
    GgufHead::put(&text, head.tensor_count);
    GgufHead::put(&text, head.key_count);
    text += head.keys + head.tensors;
    text.resize(round_up<size_t>(text.size(), 32), '\0');
    file->write(text.data(), text.size());
    const char zeros[32] = {};
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = m.arena.tensors[i].rows * m.arena.tensors[i].cols * sizeof(float);
        file->write(tensor(m, i), bytes);
        file->write(zeros, round_up<size_t>(bytes, 32) - bytes);
    }
}

// A file that is complete or absent.
void write_model(const std::string& path, const Model& m, void (*write)(const Model&, FileWriter*)) {
    FileWriter file(path);
    try {
        write(m, &file);
        file.finish();
    } catch (...) {
        ::unlink(path.c_str());
        throw;
    }
    std::printf("%s: %s bytes\n", escape_control(path).c_str(), with_commas(file.bytes).c_str());
}

// ---------------------------------------------------------------------------------------------------- command line

struct Arguments { std::string out, hf, gguf, llmc; bool help = false; };

Arguments parse_arguments(int argc, char** argv) {
    Arguments a;
    const struct { const char* name; std::string* value; } options[] = {{"--hf", &a.hf}, {"--gguf", &a.gguf}, {"--llmc", &a.llmc}};
    for (int i = 1; i < argc; i++) {
        std::string arg = argv[i];
        if (arg == "--help" || arg == "-h") { a.help = true; return a; }
        if (arg.empty() || arg[0] != '-') {
            if (!a.out.empty() || arg.empty()) die(kExitUsage, "got a second folder: %s: want one; see export --help", arg.c_str());
            a.out = arg;
            continue;
        }
        const size_t equals = arg.find('=');
        const std::string name = arg.substr(0, equals);
        std::string* value = nullptr;
        const char* nearest = "--help";
        for (const auto& o : options) {
            if (name == o.name) value = o.value;
            if (edit_distance(name, o.name) < edit_distance(name, nearest)) nearest = o.name;
        }
        if (!value) die(kExitUsage, "unknown option: %s: did you mean %s?", name.c_str(), nearest);
        if (equals == std::string::npos && i + 1 == argc) die(kExitUsage, "%s: want a value", name.c_str());
        *value = equals == std::string::npos ? argv[++i] : arg.substr(equals + 1);
        if (value->empty()) die(kExitUsage, "%s: want a value", name.c_str());
    }
    if (a.out.empty()) die(kExitUsage, "want the folder of a run, a checkpoint or a Hugging Face model; see export --help");
    if (a.hf.empty() && a.gguf.empty() && a.llmc.empty())
        die(kExitUsage, "want --hf DIR, --gguf FILE or --llmc FILE; see export --help");
    for (const std::string* path : {&a.gguf, &a.llmc})
        if (!path->empty() && file_exists(*path)) die(kExitUsage, "%s: it exists; give a new name", path->c_str());
    return a;
}

int run(int argc, char** argv) {
    const Arguments a = parse_arguments(argc, argv);
    if (a.help) { std::fputs(kUsage, stdout); return 0; }
    const std::string folder = resolve_model_folder(a.out);
    const std::string name = base_name(a.out);
    const Model m = load(folder, name, 1);  // first of all: nothing is written from a model that does not fit its config
    if (!a.hf.empty()) {
        export_hf(folder, a.hf);
        std::printf("%s: Hugging Face folder of %s\n", escape_control(a.hf).c_str(), escape_control(base_name(folder)).c_str());
    }
    if (!a.gguf.empty()) write_model(a.gguf, m, export_gguf);
    if (!a.llmc.empty()) write_model(a.llmc, load(folder, name, 128), export_llmc);        // llm.c pads the vocabulary to 128 rows
    return 0;
}
}  // namespace

int main(int argc, char** argv) {
    set_program("export");
    try {
        return run(argc, argv);
    } catch (const Error& error) {
        print_error(error);
        return error.code;
    } catch (const std::exception& error) {
        print_error({kExitOther, error.what()});
        return kExitOther;
    }
}
