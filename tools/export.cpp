// export.cpp -- build/export OUT --hf DIR | --gguf FILE | --llmc FILE: a trained model for other programs.
//
//     --hf DIR       a Hugging Face folder: the checkpoint without the optimizer's state
//     --gguf FILE    GGUF version 3, F32, with tokenizer: llama.cpp, ollama, LM Studio; GPT-2 only
//     --llmc FILE    llm.c's model file, version 3 (fp32); GPT-2 only
//
// OUT is a run, a checkpoint or a Hugging Face folder. A checkpoint's checksums are verified first.
#include <unistd.h>
#include "models/config.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/checkpoint/checkpoint.h"

namespace {
const char* const kUsage =
    "usage: export OUT [--hf DIR] [--gguf FILE] [--llmc FILE]\n"
    "Writes the model of a run, checkpoint or Hugging Face folder OUT for other programs:\n"
    "  --hf DIR      Hugging Face folder: transformers' from_pretrained(DIR)\n"
    "  --gguf FILE   GGUF, F32, with tokenizer: llama.cpp, ollama\n"
    "  --llmc FILE   llm.c's checkpoint, version 3 (fp32)\n"
    "Nothing is overwritten. exit codes: 0, 2 usage, 65 bad content, 66 no model, 74 a write failed\n";

struct Exported {
    std::string folder, name;                           // name: of the run, for GGUF's general.name
    ModelConfig config;
    Arena arena;
    std::vector<float> values;                          // in memory order: a weight is (outputs, inputs)
};

// vocab_multiple: what the rows of the vocabulary are padded to.
Exported load(const std::string& folder, const std::string& name, int vocab_multiple) {
    Exported m = {folder, name, read_config(folder), {}, {}};
    m.config.shape.Vp = round_up(m.config.shape.V, vocab_multiple);
    m.arena = arena_layout(m.config.info->tensors(m.config.shape));
    m.values.resize(m.arena.n);
    read_safetensors(open_model(folder), m.arena, "", m.values.data());
    return m;
}

size_t bytes_of(const TensorSpec& t) { return t.rows * t.cols * sizeof(float); }
const float* values_of(const Exported& m, size_t i) { return m.values.data() + m.arena.offset[i]; }

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

// Names of GPT-2's tensors in a GGUF file, in the order of its table: two, then those of each block, then two.
const char* const kGgufBlock[] = {
    "attn_norm.weight", "attn_norm.bias", "attn_qkv.weight", "attn_qkv.bias", "attn_output.weight", "attn_output.bias",
    "ffn_norm.weight",  "ffn_norm.bias",  "ffn_up.weight",   "ffn_up.bias",   "ffn_down.weight",    "ffn_down.bias",
};
constexpr size_t kBlock = sizeof kGgufBlock / sizeof kGgufBlock[0];

// int32[256]: magic, version 3 (fp32), T, V, L, NH, C, Vp; then each kind of tensor for all layers.
void export_llmc(const Exported& m, FileWriter* file) {
    const Shape& c = m.config.shape;
    const int32_t head[256] = {20240326, 3, c.T, c.V, c.L, c.NH, c.C, c.Vp};
    file->write(head, sizeof head);
    const size_t n = m.arena.tensors.size();
    const auto put = [&](size_t i) { file->write(values_of(m, i), bytes_of(m.arena.tensors[i])); };
    put(0);
    put(1);
    for (size_t part = 0; part < kBlock; part++)
        for (size_t i = 2 + part; i + 2 < n; i += kBlock) put(i);
    put(n - 2);
    put(n - 1);
}

// GGUF: "GGUF", version, counts, keys, tensor descriptions, data; strings with u64 lengths, all little-endian.
struct GgufHead {
    std::string keys, tensors;
    uint64_t key_count = 0, tensor_count = 0, offset = 0;

    template <class T> static void put(std::string* to, T x) {
        to->append(reinterpret_cast<const char*>(&x), sizeof x);
    }
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
        offset += round_up<uint64_t>(bytes_of(t), 32);
        tensor_count++;
    }
};

// Tokens as GPT-2 spells them (each byte a printable character): what tokenizer.json's vocabulary holds.
void add_tokenizer(GgufHead* head, const Exported& m) {
    const std::string path = path_join(m.folder, "tokenizer.json");
    if (!file_exists(path))
        die(kExitNoInput,
            "--gguf: %s: missing; a GGUF file contains its tokenizer", path.c_str());
    const char* what = path.c_str();
    const MappedFile file = map_file(path);
    const Json j = parse_json(file.text(), what);
    const Json model = j.at("model", what);
    if (const std::string type = model.get_string("type", what); type != "BPE")
        die(kExitBadContent, "%s: model type: got %s, want \"BPE\", the only one that GGUF has for GPT-2", what,
            json_quote(type.substr(0, 40)).c_str());
    const size_t V = size_t(m.config.shape.V);
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
    for (JsonItems i(j.find("added_tokens")); i.next();)
        set(i.value.get_u64("id", what), i.value.get_string("content", what), 3);
    for (size_t i = 0; i < V; i++)
        if (types[i] == 5) tokens[i] = "[UNUSED" + std::to_string(i) + "]";
    std::vector<std::string> merges;
    for (JsonItems i(model.at("merges", what)); i.next();) {
        std::string merge = i.value.kind() == Json::string ? i.value.text() : "";
        for (JsonItems pair(i.value); pair.next();)     // newer files: ["a","b"] for "a b"
            merge += (merge.empty() ? "" : " ") + pair.value.text();
        merges.push_back(merge);
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
    return format("blk.%zu.%s", (i - 2) / kBlock, kGgufBlock[(i - 2) % kBlock]);
}

void export_gguf(const Exported& m, FileWriter* file) {
    const Shape& c = m.config.shape;
    GgufHead head;
    head.add_text("general.architecture", "gpt2");
    head.add_text("general.name", m.name);
    head.add_u32("general.file_type", 0);               // all F32
    head.add_u32("general.alignment", 32);
    head.add_u32("gpt2.context_length", uint32_t(c.T));
    head.add_u32("gpt2.embedding_length", uint32_t(c.C));
    head.add_u32("gpt2.feed_forward_length", uint32_t(4 * c.C));
    head.add_u32("gpt2.block_count", uint32_t(c.L));
    head.add_u32("gpt2.attention.head_count", uint32_t(c.NH));
    head.add_f32("gpt2.attention.layer_norm_epsilon", 1e-5f);
    add_tokenizer(&head, m);
    const std::vector<TensorSpec>& tensors = m.arena.tensors;
    const size_t n = tensors.size();
    for (size_t i = 0; i < n; i++) head.add_tensor(gguf_name(i, n), tensors[i], tensors[i].decay);

    std::string text = "GGUF";
    GgufHead::put<uint32_t>(&text, 3);
    GgufHead::put(&text, head.tensor_count);
    GgufHead::put(&text, head.key_count);
    text += head.keys + head.tensors;
    text.resize(round_up<size_t>(text.size(), 32), '\0');
    file->write(text.data(), text.size());
    const char zeros[32] = {};
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = bytes_of(tensors[i]);
        file->write(values_of(m, i), bytes);
        file->write(zeros, round_up<size_t>(bytes, 32) - bytes);
    }
}

// A file that is complete or absent.
using Write = void (*)(const Exported&, FileWriter*);
void write_model(const char* option, const std::string& path, const Exported& m, Write write) {
    if (std::string(m.config.info->name) != "gpt2")
        die(kExitUsage, "%s: holds gpt2, not %s; --hf holds any model", option, m.config.info->name);
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

struct Arguments { std::string out, hf, gguf, llmc; };

Arguments parse_arguments(int argc, char** argv) {
    Arguments a;
    for (int i = 1; i < argc; i++) {
        const std::string arg = argv[i];
        const size_t equals = arg.find('=');
        const std::string name = arg.substr(0, equals);
        std::string* value = name == "--hf" ? &a.hf : name == "--gguf" ? &a.gguf : name == "--llmc" ? &a.llmc : nullptr;
        if (value) {
            *value = equals != std::string::npos ? arg.substr(equals + 1) : i + 1 < argc ? argv[++i] : "";
            if (value->empty()) die(kExitUsage, "%s: want a value", name.c_str());
            continue;
        }
        if (arg.starts_with("-"))
            die(kExitUsage, "unknown option: %s; want --hf DIR, --gguf FILE or --llmc FILE", name.c_str());
        if (!a.out.empty() || arg.empty()) die(kExitUsage, "got a second folder: %s: want one", arg.c_str());
        a.out = arg;
    }
    if (a.out.empty()) die(kExitUsage, "want the folder of a run, a checkpoint or a Hugging Face model");
    if (a.hf.empty() && a.gguf.empty() && a.llmc.empty())
        die(kExitUsage, "want --hf DIR, --gguf FILE or --llmc FILE; see export --help");
    for (const std::string* path : {&a.gguf, &a.llmc})
        if (!path->empty() && file_exists(*path)) die(kExitUsage, "%s: it exists; give a new name", path->c_str());
    return a;
}

int run(int argc, char** argv) {
    for (int i = 1; i < argc; i++)
        if (std::string(argv[i]) == "--help" || std::string(argv[i]) == "-h") return std::fputs(kUsage, stdout), 0;
    const Arguments a = parse_arguments(argc, argv);
    const std::string folder = resolve_model_folder(a.out), name = base_name(a.out);
    const Exported m = load(folder, name, 1);           // nothing is written from a model that does not fit its config
    if (!a.hf.empty()) {
        export_hf(folder, a.hf);
        std::printf("%s: Hugging Face folder of %s\n", escape_control(a.hf).c_str(),
                    escape_control(base_name(folder)).c_str());
    }
    if (!a.gguf.empty()) write_model("--gguf", a.gguf, m, export_gguf);
    if (!a.llmc.empty()) write_model("--llmc", a.llmc, load(folder, name, 128), export_llmc);      // as llm.c pads
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
