// export.cpp -- build/export OUT --hf DIR | --gguf FILE | --llmc FILE: a trained model for other programs.
//
//     --hf DIR       a Hugging Face folder: the checkpoint without the optimizer's state; a folder of PEFT if the model
//                    is in another folder, or with --merge the whole model
//     --gguf FILE    GGUF version 3 with tokenizer: llama.cpp, ollama, LM Studio; beside it FILE.Modelfile for ollama
//     --llmc FILE    llm.c's model file, version 3 (fp32); GPT-2 only
//
// OUT is whatever --init takes: a run, a checkpoint, a Hugging Face folder, a folder of PEFT. A checkpoint's checksums
// are verified first. With --average there are several, and their average is exported.
#include <unistd.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include "tools/text/config_reader.h"
#include "models/config.h"
#include "src/app/program.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/checkpoint/checkpoint.h"
#include "tools/text/chat.h"
#include "tools/text/model_file.h"
#include "tools/rope.h"
#include "tools/text/reader.h"
#include "tools/tool.h"

namespace {
struct Exported {
    std::string folder, name;                           // name: of the run, for GGUF's general.name
    bool tuned;                                         // the folder is PEFT's; `values` are merged
    bool averaged;                                      // `values` are of several folders
    ModelTexts texts;
    ModelConfig config;
    Arena arena;
    std::vector<float> values;                          // in memory order: a weight is (outputs, inputs)
};

Exported load(const Init& init, const std::string& name) {
    Exported m = {init.saved, name, init.adapted, false, init.texts, init.config, {}, {}};
    m.config.shape.Vp = m.config.shape.V;               // no padding
    m.arena = arena_layout(m.config.info->tensors(m.config.shape));
    m.values.resize(m.arena.n);
    load_init(m.values.data(), m.arena, init);
    return m;
}

struct Arguments {
    Words out;
    std::string hf, gguf, llmc, type = "f16";
    bool merge = false, average = false;
};

// Returns how a model's shape differs from that of `first`: "--layers: got 2, want 1"; "" if it does not.
std::string difference(const ModelConfig& first, const ModelConfig& own) {
    if (own.info != first.info) return format("--model: got %s, want %s", own.info->name, first.info->name);
    if (own.shape.V != first.shape.V) return format("vocabulary: got %d, want %d", own.shape.V, first.shape.V);
    for (const ShapeKey& key : first.info->keys)
        if (const double got = key.get(own.shape), want = key.get(first.shape); got != want)
            return format("--%s: got %g, want %g", key.option, got, want);
    return "";
}

// Returns the average of models of one shape: sums in double, in the order given, divided once. All but the weights is
// the first one's.
Exported load_average(const Words& folders) {
    Exported m = load(init_of_path(folders[0]), base_name(real_path(folders[0])));
    std::vector<double> sums(m.values.begin(), m.values.end());
    for (size_t k = 1; k < folders.size(); k++) {
        const Exported next = load(init_of_path(folders[k]), "");
        if (const std::string differs = difference(m.config, next.config); !differs.empty())
            die(kExitUsage, "--average: %s: %s as in %s", folders[k].c_str(), differs.c_str(), folders[0].c_str());
        for (size_t i = 0; i < sums.size(); i++) sums[i] += double(next.values[i]);
    }
    for (size_t i = 0; i < sums.size(); i++) m.values[i] = float(sums[i] / double(folders.size()));
    m.tuned = false;
    m.averaged = true;
    return m;
}

size_t bytes_of(const TensorSpec& t) { return t.rows * t.cols * sizeof(float); }
const float* values_of(const Exported& m, size_t i) { return m.values.data() + m.arena.offset[i]; }

// ---------------------------------------------------------------------------------------------------------- formats

// Files `names` of the folder `into` that belong together. They are written into the folder `work` and renamed in this
// order once all are whole; without the last one the others are of no use. A killed export leaves `work` and what it
// has renamed; the next one removes both, by these names.
struct Output {
    std::string option, into, work;
    std::vector<std::string> names;
    std::string path(const std::string& name) const { return path_join(work, name); }

    // kExitUsage if a name is taken by anything but an export that did not end.
    void refuse_existing() const {
        std::vector<std::string> there = names;
        if (option == "--hf") there = file_exists(into) ? list_directory(into) : std::vector<std::string>();
        else if (!is_directory(into))
            die(kExitWrite, "%s: cannot write to %s: no such folder", option.c_str(), into.c_str());
        const bool unfinished = std::ranges::any_of(names, [&](const auto& name) { return file_exists(path(name)); });
        std::ranges::reverse(there);            // the main one is named first
        for (const std::string& name : there) {
            const bool ours = name == base_name(work) || (unfinished && std::ranges::count(names, name));
            if (!file_exists(path_join(into, name)) || ours) continue;
            if (!unfinished) remove_work();         // of an export that was killed when all was renamed
            die(kExitUsage, "%s: %s: it exists; give a new name", option.c_str(), path_join(into, name).c_str());
        }
    }
    void remove(const std::string& folder) const {
        for (const std::string& name : names) ::unlink(path_join(folder, name).c_str());
    }
    void remove_work() const {
        remove(work);
        ::unlink(path(".lock").c_str());
        ::rmdir(work.c_str());
    }
    template <class F> void write(const F& fill) const {
        make_directories(work);
        FolderLock lock;
        lock_folder(&lock, work, (option + ": the folder of an unfinished export").c_str(), ", or give another name");
        refuse_existing();
        remove(into);
        remove(work);
        try {
            fill();
            sync_directory(work);
        } catch (...) {
            remove_work();
            throw;
        }
        for (const std::string& name : names)
            if (file_exists(path(name))) rename_file(path(name), path_join(into, name));
        sync_directory(into);
        remove_work();
    }
};

Output hf_output(const std::string& folder) {
    return {"--hf", folder, path_join(folder, ".export"),
            {"model.safetensors", kTunedWeights, "generation_config.json", "tokenizer.json", "tokenizer_config.json",
             "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja",
             kTunedConfig, "config.json"}};
}
Output file_output(const char* option, const std::string& path, const char* beside = "") {
    const std::string into = parent_folder(path), name = base_name(path);
    Output out = {option, into, path_join(into, "." + name + ".export"), {name}};
    if (*beside) out.names.insert(out.names.begin(), name + beside);
    return out;
}

void put_file(const std::string& path, std::string_view text) {
    FileWriter file(path);
    file.write(text.data(), text.size());
    file.finish();
}

void copy_file(const std::string& from, const std::string& to) {
    FileReader source(from);
    FileWriter file(to);
    for (std::string_view piece; !(piece = source.look(1)).empty(); source.take(piece.size()))
        file.write(piece.data(), piece.size());
    file.finish();
}

void fill_hf(const Exported& m, const Arguments& a, const Output& out) {
    const bool whole = m.averaged || (m.tuned ? a.merge : !file_exists(path_join(m.folder, "model.safetensors")));
    for (const std::string& name : out.names) {
        const std::string from = path_join(m.folder, name), to = out.path(name);
        // In PEFT's folder a config.json would say that the model is there, too.
        const bool peft = name == kTunedWeights || name == kTunedConfig;
        const bool out_of_place = peft ? whole : name == "config.json" && m.tuned && !whole;
        if (whole && name == "config.json") {
            put_file(to, config_json(m.config));
        } else if (whole && name == "model.safetensors") {
            FileWriter file(to);
            write_safetensors(&file, m.arena, {{"", const_cast<float*>(m.values.data())}}, [] {});
            file.finish();
        } else if (file_exists(from) && !out_of_place && name != "config.json") {
            copy_file(from, to);
        }
        for (const auto& [other, text] : kModelTexts)   // of a model in one file, or of an adapter's base
            if (name == other && !file_exists(to) && !out_of_place && !(m.texts.*text).empty())
                put_file(to, m.texts.*text);
    }
}

constexpr size_t kBlock = 12;                           // tensors of a block of GPT-2

// int32[256]: magic, version 3 (fp32), T, V, L, NH, C, Vp; then each kind of tensor for all layers.
void fill_llmc(const Exported& m, const Arguments&, const Output& out) {
    const Shape& c = m.config.shape;
    const int32_t head[256] = {20240326, 3, c.T, c.V, c.L, c.NH, c.C, round_up(c.V, 128)};      // as llm.c pads
    const std::vector<float> padding(size_t(head[7] - c.V) * size_t(c.C));
    FileWriter file(out.path(out.names.back()));
    file.write(head, sizeof head);
    const size_t n = m.arena.tensors.size();
    const auto put = [&](size_t i) { file.write(values_of(m, i), bytes_of(m.arena.tensors[i])); };
    put(0);
    file.write(padding.data(), padding.size() * sizeof(float));
    put(1);
    for (size_t part = 0; part < kBlock; part++)
        for (size_t i = 2 + part; i + 2 < n; i += kBlock) put(i);
    put(n - 2);
    put(n - 1);
    file.finish();
}

// How GGUF stores a matrix: its number and that of a file mostly so, and how many values a block of bytes holds.
struct GgufType { const char* option; uint32_t id, file_type; size_t values, bytes; };
constexpr GgufType kGgufTypes[] = {{"f16", 1, 1, 1, 2}, {"f32", 0, 0, 1, 4}, {"bf16", 30, 32, 1, 2},
                                   {"q8_0", 8, 7, 32, 34}};
constexpr const GgufType &kF16 = kGgufTypes[0], &kF32 = kGgufTypes[1], &kQ8 = kGgufTypes[3];

const GgufType& gguf_type(const std::string& option) {
    std::vector<std::string> known;
    for (const GgufType& type : kGgufTypes) {
        if (option == type.option) return type;
        known.push_back(type.option);
    }
    die(kExitUsage, "--type: got %s, want %s", option.c_str(), join(known, ", ").c_str());
}

struct GgufTensor {
    std::string name;
    size_t rows, cols;                                  // rows 0: a vector
    const float* values;
    const GgufType* type;
    size_t head = 0;                                    // rows of a head whose halves are interleaved; 0: none are
    size_t row(size_t i) const { return head ? row_of_gguf(i, head) : i; }      // where row i is in memory
    size_t count() const { return std::max<size_t>(rows, 1) * cols; }
    size_t bytes() const { return count() / type->values * type->bytes; }
};

// To nearest, ties to even.
uint16_t half_of(float x, const std::string& name) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (std::fabs(x) >= 65520)
        die(kExitBadContent, "--type: tensor %s: got %g, want at most 65504 for f16; take bf16 or f32", name.c_str(),
            double(x));
    if (std::fabs(x) < 0x1p-14f) return uint16_t(sign | uint32_t(std::nearbyint(std::fabs(x) * 0x1p24f)));
    return uint16_t(sign | (((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112 << 10)));
}
uint16_t bf16_of(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A block: f16 d, then 32 int8 q; x is about d q. q is rounded by the unrounded d, half away from zero.
void quantize(const float* x, char* out, const std::string& name) {
    float largest = 0;
    for (size_t i = 0; i < kQ8.values; i++) largest = std::max(largest, std::fabs(x[i]));
    const float d = largest / 127, inverse = d > 0 ? 1 / d : 0;
    const uint16_t stored = half_of(d, name);
    std::memcpy(out, &stored, sizeof stored);
    for (size_t i = 0; i < kQ8.values; i++) out[2 + i] = char(int8_t(std::round(x[i] * inverse)));
}

std::vector<char> encode(const GgufTensor& t) {
    std::vector<char> out(t.bytes());
    for (size_t i = 0, at = 0; i < t.count(); i += t.type->values, at += t.type->bytes) {
        const float* const x = t.values + t.row(i / t.cols) * t.cols + i % t.cols;
        const uint16_t bits = t.type == &kF16 ? half_of(*x, t.name) : bf16_of(*x);
        if (t.type == &kQ8) quantize(x, &out[at], t.name);
        else std::memcpy(&out[at], t.type == &kF32 ? static_cast<const void*>(x) : &bits, t.type->bytes);
    }
    return out;
}

// The part of the file in front of the data.
struct GgufHead {
    std::string keys, tensors;
    uint64_t key_count = 0, tensor_count = 0, offset = 0;

    template <class T> static void put(std::string* to, T x) {
        to->append(reinterpret_cast<const char*>(&x), sizeof x);
    }
    static void put(std::string* to, const std::string& text) {
        put<uint64_t>(to, text.size());
        to->append(text);
    }
    void key(const std::string& name, uint32_t type) {
        put(&keys, name);
        put<uint32_t>(&keys, type);
        key_count++;
    }
    void add_u32(const std::string& name, uint32_t x) { key(name, 4); put(&keys, x); }
    void add_f32(const std::string& name, float x) { key(name, 6); put(&keys, x); }
    void add_bool(const char* name, bool x) { key(name, 7); put<uint8_t>(&keys, x); }
    void add_text(const char* name, const std::string& x) { key(name, 8); put(&keys, x); }
    template <class T> void add_list(const char* name, uint32_t type, const std::vector<T>& x) {
        key(name, 9);
        put(&keys, type);
        put<uint64_t>(&keys, x.size());
        for (const T& item : x) put(&keys, item);
    }
    void add_tensor(const GgufTensor& t) {
        put(&tensors, t.name);
        put<uint32_t>(&tensors, t.rows ? 2 : 1);
        put<uint64_t>(&tensors, t.cols);                // fastest dimension first
        if (t.rows) put<uint64_t>(&tensors, t.rows);
        put<uint32_t>(&tensors, t.type->id);
        put<uint64_t>(&tensors, offset);
        offset += round_up<uint64_t>(t.bytes(), 32);
        tensor_count++;
    }
};

// The numbers of config.json. n_inner is null where it is 4 n_embd.
void add_config(GgufHead* head, const Exported& m) {
    const std::string architecture = gguf_architecture(m.config.info->name), text = config_json(m.config);
    const Json config = parse_json(text, "config.json");
    for (const GgufKey& key : gguf_keys(architecture)) {
        double x = 4.0 * m.config.shape.C;
        const std::string name = architecture + "." + key.name;
        config.find(key.hf).as_double(&x);
        if (key.real) head->add_f32(name, float(x));
        else head->add_u32(name, uint32_t(x));
    }
}

// Tokens as GPT-2 spells them (each byte a printable character): what tokenizer.json's vocabulary holds. As many as the
// embedding has rows.
void add_tokenizer(GgufHead* head, const Exported& m) {
    const std::string path = path_join(m.folder, "tokenizer.json");
    if (m.texts.tokenizer.empty())
        die(kExitNoInput, "--gguf: %s: missing; a GGUF file contains its tokenizer", path.c_str());
    const char* what = path.c_str();
    Tokenizer tokenizer = tokenizer_parse(m.texts.tokenizer, path);
    read_ends(&tokenizer, m.texts, path);               // which may add tokens
    const Json j = parse_json(tokenizer.json, what);
    const Json model = j.at("model", what);
    if (const std::string type = model.get_string("type", what); type != "BPE")
        die(kExitBadContent, "%s: model type: got %s, want \"BPE\", the only one that llama.cpp has for these models",
            what, json_quote(type.substr(0, 40)).c_str());
    const size_t V = size_t(m.config.shape.V);
    std::vector<std::string> tokens(V);
    std::vector<int32_t> types(V, 5);                   // unused; 1 normal, 3 control, 4 other added ones
    const auto set = [&](uint64_t id, const std::string& text, int32_t type) {
        if (id >= V)
            die(kExitBadContent, "%s: token id %llu, want less than %zu, the model's", what, (unsigned long long)id, V);
        tokens[id] = text;
        types[id] = type;
    };
    uint64_t id = 0;                                    // tokenizer_parse has found that all are integers
    for (JsonItems i(model.at("vocab", what)); i.next() && i.value.as_u64(&id);) set(id, i.key.text(), 1);
    for (JsonItems i(j.find("added_tokens")); i.next();)
        set(i.value.get_u64("id", what), i.value.get_string("content", what),
            i.value.find("special").text() == "true" ? 3 : 4);
    for (size_t i = 0; i < V; i++)
        if (types[i] == 5) tokens[i] = "[PAD" + std::to_string(i) + "]";
    std::vector<std::string> merges;
    for (JsonItems i(model.at("merges", what)); i.next();) {
        std::string merge = i.value.kind() == Json::string ? i.value.text() : "";
        for (JsonItems pair(i.value); pair.next();)     // newer files: ["a","b"] for "a b"
            merge += (merge.empty() ? "" : " ") + pair.value.text();
        merges.push_back(merge);
    }
    head->add_text("tokenizer.ggml.model", "gpt2");
    head->add_text("tokenizer.ggml.pre", tokenizer.split.gguf);
    head->add_list("tokenizer.ggml.tokens", 8, tokens);
    head->add_list("tokenizer.ggml.token_type", 5, types);
    head->add_list("tokenizer.ggml.merges", 8, merges);
    // Without the first two llama.cpp takes token 11 for both. GGUF has room for three tokens that end a text.
    std::vector<int> ends = tokenizer.ends;
    if (ends.empty()) ends = {end_by_name(tokenizer).id};   // which a model of one text never writes
    const int first = tokenizer.bos >= 0 ? tokenizer.bos : ends[0];
    if (first >= 0) head->add_u32("tokenizer.ggml.bos_token_id", uint32_t(first));
    constexpr const char* kEnds[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < ends.size() && ends[i] >= 0; i++)
        if (i < std::size(kEnds)) head->add_u32(kEnds[i], uint32_t(ends[i]));
        else warn("--gguf: token %d ends a text, too: a GGUF file has room for three such tokens", ends[i]);
    Tokenizer written;                                  // a template writes the first token itself
    written.vocab_size = tokenizer.vocab_size;
    read_post_processor(&written, j, -1, path);
    const std::string chat = chat_template_of(m.texts);
    // llama.cpp puts the token before a conversation, too, unless the template has written it.
    const bool lacks = !chat.empty() && chat.find("bos_token") == chat.npos && written.begin >= 0 &&
                       chat.find(tokens[size_t(written.begin)]) == chat.npos;
    if (lacks)
        warn("--gguf: add_bos_token is false: %s stands before texts, but the chat template does not write it",
             tokens[size_t(written.begin)].c_str());
    head->add_bool("tokenizer.ggml.add_bos_token", written.begin >= 0 && !lacks);
    if (!chat.empty()) head->add_text("tokenizer.chat_template", chat);
}

// Vectors and the table of positions stay F32, as llama.cpp's own converter leaves them.
std::vector<GgufTensor> gguf_tensors(const Exported& m, const GgufType& type, const std::vector<float>& divisors) {
    std::vector<GgufTensor> all;
    for (size_t i = 0; i < m.arena.tensors.size(); i++) {
        const TensorSpec& spec = m.arena.tensors[i];
        const float* values = values_of(m, i);
        for (const auto& [name, count] : parts_of(spec)) {
            GgufTensor t = {gguf_name(name), spec.matrix ? count : 0, spec.matrix ? spec.cols : count, values, &kF32};
            if (t.rows && t.name != "position_embd.weight") t.type = t.cols % type.values == 0 ? &type : &kF16;
            if (gguf_turns(gguf_architecture(m.config.info->name), name))
                t.head = size_t(m.config.info->head_size(m.config.shape));
            values += t.count();
            all.push_back(t);
        }
    }
    if (!divisors.empty()) all.push_back({"rope_freqs.weight", 0, divisors.size(), divisors.data(), &kF32});
    return all;
}

// What `ollama create NAME -f FILE.Modelfile` reads. It takes a chat template from the GGUF file; to a model without
// one the text goes as it is.
std::string modelfile(const Exported& m, const std::string& gguf) {
    const char* const plain = chat_template_of(m.texts).empty() ? "TEMPLATE \"{{ .Prompt }}\"\n" : "";
    return format("# ollama create NAME -f %s\nFROM ./%s\n%s"
                  "PARAMETER num_ctx %d\nPARAMETER temperature 0.8\n",
                  shell_quote(gguf + ".Modelfile").c_str(), gguf.c_str(), plain, m.config.shape.T);
}

void fill_gguf(const Exported& m, const Arguments& a, const Output& out) {
    const GgufType& type = gguf_type(a.type);
    put_file(out.path(out.names[0]), modelfile(m, out.names[1]));
    GgufHead head;
    const std::string architecture = gguf_architecture(m.config.info->name);
    head.add_text("general.architecture", architecture);
    head.add_text("general.name", m.name);
    head.add_u32("general.file_type", type.file_type);
    head.add_u32("general.alignment", 32);
    if (&type == &kQ8) head.add_u32("general.quantization_version", 2);
    add_config(&head, m);
    add_tokenizer(&head, m);
    Shape shape = m.config.shape;
    const std::vector<float> divisors = rope_divisors(shape);
    if (const int W = window(shape); W > 0 && W < shape.T)
        die(kExitUsage, "--gguf: %s with --window %d and --seq-len %d: llama.cpp has no windows for %s",
            m.config.info->name, W, shape.T, architecture.c_str());
    if (!divisors.empty() && architecture != "llama")
        die(kExitUsage, "--gguf: %s with rope_scaling: llama.cpp knows it for llama only", m.config.info->name);
    const std::vector<GgufTensor> tensors = gguf_tensors(m, type, divisors);
    for (const GgufTensor& t : tensors) head.add_tensor(t);

    std::string text = "GGUF";
    GgufHead::put<uint32_t>(&text, 3);
    GgufHead::put(&text, head.tensor_count);
    GgufHead::put(&text, head.key_count);
    text += head.keys + head.tensors;
    text.resize(round_up<size_t>(text.size(), 32), '\0');
    FileWriter file(out.path(out.names[1]));
    file.write(text.data(), text.size());
    for (const GgufTensor& t : tensors) {
        std::vector<char> data = encode(t);
        data.resize(round_up<size_t>(data.size(), 32));
        file.write(data.data(), data.size());
    }
    file.finish();
}

// ---------------------------------------------------------------------------------------------------- command line

void check_arguments(const Words& models, Arguments* a) {
    if (models.size() > 1 && !a->average)
        die(kExitUsage, "got a second folder: %s: want one, or --average", models[1].c_str());
    if (models.size() < 2 && a->average) die(kExitUsage, "--average: got %zu folders, want several", models.size());
    if (models.empty()) die(kExitUsage, "want the folder of a run, a checkpoint or a Hugging Face model");
    a->out = models;
    if (a->hf.empty() && a->gguf.empty() && a->llmc.empty())
        die(kExitUsage, "want --hf DIR, --gguf FILE or --llmc FILE; see export --help");
    gguf_type(a->type);
    for (const std::string& path : {a->gguf, a->llmc})
        if (path.ends_with('/')) die(kExitUsage, "%s: want the name of a file", path.c_str());
}

// The options of a model's shape that other programs compute with, for each architecture they have. A model of that
// name may have others, where they are off: what is written would else compute another function there.
constexpr const char kLlama[] = "layers heads kv-heads head-size channels mlp-size seq-len untied-head norm-eps "
                                "rope-theta rope-factor rope-low rope-high rope-context window window-from";
constexpr struct { const char *architecture, *options; } kKnown[] = {
    {"GPT2LMHeadModel", "layers heads channels seq-len"}, {"LlamaForCausalLM", kLlama}, {"MistralForCausalLM", kLlama},
    {"Qwen2ForCausalLM", kLlama}, {"Qwen3ForCausalLM", kLlama},
};

// kExitUsage if the model is not what a format, or a program that reads it, knows by its architecture.
void refuse_unknown(const std::string& option, const ModelConfig& config) {
    const ModelInfo& info = *config.info;
    for (const auto& [architecture, options] : kKnown) {
        if (std::string(info.architecture) != architecture) continue;
        for (const ShapeKey& key : info.keys) {
            const double value = key.get(config.shape), off = key.absent == ShapeKey::kNone ? 0 : key.absent;
            if ((" " + std::string(options) + " ").find(format(" %s ", key.option)) != std::string::npos) continue;
            if (value == off) continue;
            die(kExitUsage, "%s: %s: got --%s %g, want %g: %s has no such number elsewhere; give the model an "
                "architecture of its own", option.c_str(), info.name, key.option, value, off, architecture);
        }
    }
}

int run(const Arguments& a) {
    const Init init = init_of_path(a.out[0]);
    const std::string name = base_name(real_path(a.out[0])), kind = init.config.info->name;
    for (const auto& [option, path, known] : {std::tuple("--gguf", a.gguf, !gguf_keys(gguf_architecture(kind)).empty()),
                                              std::tuple("--llmc", a.llmc, kind == "gpt2")})
        if (!path.empty() && !known)
            die(kExitUsage, "%s: has no form for a model %s; --hf holds any", option, kind.c_str());
    for (const auto& [option, path] : {std::pair("--hf", a.hf), {"--gguf", a.gguf}, {"--llmc", a.llmc}})
        if (!path.empty()) refuse_unknown(option, init.config);
    std::vector<std::pair<Output, decltype(&fill_hf)>> wanted;
    if (!a.hf.empty()) wanted.push_back({hf_output(a.hf), fill_hf});
    if (!a.gguf.empty()) wanted.push_back({file_output("--gguf", a.gguf, ".Modelfile"), fill_gguf});
    if (!a.llmc.empty()) wanted.push_back({file_output("--llmc", a.llmc), fill_llmc});
    for (const auto& [out, fill] : wanted) out.refuse_existing();
    // Nothing is written from a model that does not fit its config.
    const Exported m = a.average ? load_average(a.out) : load(init, name);
    for (const auto& [out, fill] : wanted) {
        out.write([&, fill = fill, &out = out] { fill(m, a, out); });
        if (fill == fill_hf)
            std::printf("%s: %s of %s\n", escape_control(a.hf).c_str(),
                        m.tuned && !a.merge ? "folder of PEFT" : "Hugging Face folder",
                        escape_control(base_name(m.folder)).c_str());
        else
            for (auto file = out.names.rbegin(); file != out.names.rend(); file++)
                std::printf("%s: %s bytes\n", escape_control(path_join(out.into, *file)).c_str(),
                            with_commas(InputFile(path_join(out.into, *file)).size).c_str());
    }
    return 0;
}
}  // namespace

int main(int argc, char** argv) {
    Arguments a;
    const Tool tool = {"export",
        "usage: export OUT [--hf DIR [--merge]] [--gguf FILE [--type TYPE]] [--llmc FILE]\n"
        "       export --average OUT OUT... with the same options: the average of models of one shape\n"
        "Writes the model of a run, checkpoint or Hugging Face folder OUT for other programs:\n",
        {{"--hf", "DIR", "Hugging Face folder: transformers' from_pretrained(DIR)", &a.hf},
         {"--merge", "", "of a run with --lora the whole model, not PEFT's adapters beside it", &a.merge},
         {"--average", "", "of the weights of several OUT, such as a run's last checkpoints", &a.average},
         {"--gguf", "FILE", "GGUF with tokenizer: llama.cpp, LM Studio; with FILE.Modelfile for ollama", &a.gguf},
         {"--type", "TYPE", "of its matrices: f16, f32, bf16, or q8_0 of 8 bits", &a.type},
         {"--llmc", "FILE", "llm.c's checkpoint, version 3 (fp32)", &a.llmc}},
        "Nothing is overwritten. exit codes: 0, 2 usage, 65 bad content, 66 no model, 74 a write failed\n"};
    return tool_main(tool, argc, argv, [&](const Words& models) {
        check_arguments(models, &a);
        return run(a);
    });
}
