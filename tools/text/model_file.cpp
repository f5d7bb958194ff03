// model_file.cpp -- checks each number in a file against the file's size before use; no such number alone decides how
// much memory is allocated.
#include "tools/text/model_file.h"
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include "src/base/common.h"
#include "src/base/json.h"
#include "tools/text/model_folder.h"
#include "tools/text/reader.h"

// GPT-2's feed_forward_length is 4 * embedding_length if n_inner in config.json is null.
constexpr GgufKey kGpt2Keys[] = {
    {"context_length", "n_positions"}, {"embedding_length", "n_embd"}, {"feed_forward_length", "n_inner"},
    {"block_count", "n_layer"}, {"attention.head_count", "n_head"},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", true},
};
constexpr GgufKey kLlamaKeys[] = {
    {"context_length", "max_position_embeddings"}, {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"}, {"block_count", "num_hidden_layers"}, {"vocab_size", "vocab_size"},
    {"attention.head_count", "num_attention_heads"}, {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"}, {"attention.value_length", "head_dim"}, {"rope.dimension_count", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true}, {"rope.freq_base", "rope_theta", true},
};
std::string gguf_architecture(const std::string& model_type) {
    return model_type == "mistral" ? "llama" : model_type;
}
std::span<const GgufKey> gguf_keys(const std::string& name) {
    if (name == "gpt2") return kGpt2Keys;
    return name == "llama" || name == "qwen2" || name == "qwen3" ? kLlamaKeys : std::span<const GgufKey>();
}

// The last part of a tensor's name, without ".weight" or ".bias": Hugging Face's and GGUF's.
constexpr const char* kNames[][2] = {
    {"wte", "token_embd"}, {"wpe", "position_embd"}, {"ln_f", "output_norm"}, {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"}, {"ln_2", "ffn_norm"}, {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"}, {"embed_tokens", "token_embd"}, {"norm", "output_norm"}, {"lm_head", "output"},
    {"input_layernorm", "attn_norm"}, {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"}, {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"}, {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"}, {"mlp.down_proj", "ffn_down"},
};
std::string gguf_name(const std::string& hf) {
    const size_t layer = hf.find_first_of("0123456789"), dot = std::min(hf.rfind('.'), hf.size());
    const std::string stem = "." + hf.substr(0, dot), block = hf.substr(std::min(layer, dot));
    for (const auto& [ours, theirs] : kNames)
        if (stem.ends_with(std::string(".") + ours))
            return (layer < dot ? "blk." + block.substr(0, block.find('.') + 1) : "") + theirs + hf.substr(dot);
    return "";
}

bool gguf_turns(const std::string& architecture, const std::string& hf) {
    return architecture == "llama" && (hf.ends_with("q_proj.weight") || hf.ends_with("k_proj.weight"));
}

namespace {
constexpr uint64_t kQ8Values = 32, kQ8Bytes = 34;       // of a block: f16 d, then 32 int8 q; a value is d q

struct Reader {
    FileReader file;
    uint64_t at = 0;
    std::map<std::string, std::string> keys = {};       // each value as JSON; null for NaN and infinities
    std::vector<SafeTensor> tensors = {};

    [[noreturn]] void fail(const std::string& field, const std::string& got, const std::string& want) const {
        die_content(file.file->path + ": " + field.substr(0, 80), got.substr(0, 80), want);
    }
    // Moves `at` past `bytes` and returns where they begin. It does not move `file`; only take() does that, so nothing
    // can be taken after another function has called skip().
    uint64_t skip(uint64_t bytes, const char* why = "") {
        if (bytes > file.file->size - at)
            fail("byte " + std::to_string(at), with_commas(bytes) + " bytes", std::string("the file to go on") + why);
        at += bytes;
        return at - bytes;
    }
    std::string take(uint64_t bytes) {
        skip(bytes, "; the file ends inside the header");
        std::string taken(file.look(bytes).substr(0, bytes));
        file.take(bytes);
        return taken;
    }
    template <class T> T number() {
        T x;
        return std::memcpy(&x, take(sizeof x).data(), sizeof x), x;
    }
    std::string text() { return take(number<uint64_t>()); }

    template <class T> static std::string shortest(T x) {   // the fewest digits that are read back as x
        char digits[32];
        return std::isfinite(x) ? std::string(digits, std::to_chars(digits, std::end(digits), x).ptr) : "null";
    }
    std::string value(const std::string& name, uint32_t type) {
        switch (type) {
            case 0: return std::to_string(number<uint8_t>());
            case 1: return std::to_string(number<int8_t>());
            case 2: return std::to_string(number<uint16_t>());
            case 3: return std::to_string(number<int16_t>());
            case 4: return std::to_string(number<uint32_t>());
            case 5: return std::to_string(number<int32_t>());
            case 6: return shortest(number<float>());
            case 7: return number<uint8_t>() ? "true" : "false";
            case 8: return json_quote(text());
            case 10: return std::to_string(number<uint64_t>());
            case 11: return std::to_string(number<int64_t>());
            case 12: return shortest(number<double>());
        }
        if (type != 9) fail(name, format("type %u", type), "0 to 12, no array of arrays");
        const uint32_t of = number<uint32_t>();
        std::string items;                              // each takes a byte or more, so the file bounds n
        for (uint64_t n = number<uint64_t>(); n > 0; n--)
            items += (items.empty() ? "" : ",") + value(name, of == 9 ? UINT32_MAX : of);
        return "[" + items + "]";
    }
    void read_tensor() {
        SafeTensor t = {text(), "", {}, 0, 1, file.file};
        const uint32_t dims = number<uint32_t>();
        if (dims < 1 || dims > 4) fail(t.name, format("%u dimensions", dims), "1 to 4");
        for (uint32_t d = 0; d < dims; d++) {
            t.shape.insert(t.shape.begin(), number<uint64_t>());
            t.bytes = checked_mul(t.bytes, t.shape[0], t.name.c_str());
        }
        const uint32_t type = number<uint32_t>();
        t.dtype = type == 0 ? "F32" : type == 1 ? "F16" : type == 30 ? "BF16" : type == 8 ? "type Q8_0" :
            format("type %u", type);
        if (type == 8 && t.shape.back() % kQ8Values == 0) {
            t.dtype = "Q8_0";
            t.bytes = checked_mul(t.bytes / kQ8Values, kQ8Bytes, t.name.c_str());
        } else {
            t.bytes = checked_mul(t.bytes, type == 0 ? 4 : t.dtype.ends_with("F16") ? 2 : 0, t.name.c_str());
        }
        t.begin = number<uint64_t>();
        tensors.push_back(std::move(t));
    }
    void read_head() {
        take(4);
        if (const uint32_t version = number<uint32_t>(); version != 3) fail("version", std::to_string(version), "3");
        const uint64_t n = number<uint64_t>(), key_count = number<uint64_t>();
        for (uint64_t i = 0; i < key_count; i++)
            if (const std::string name = text(); !keys.emplace(name, value(name, number<uint32_t>())).second)
                fail(name, "it twice", "once");
        check_kinds();
        for (uint64_t i = 0; i < n; i++) read_tensor();
    }

    // Refuses a value of a kind that is wrong for its key. If it were taken for absent, the model would be another one.
    void check_kinds() const {
        constexpr struct { const char *key, *begins, *want; } kKinds[] = {
            {"general.architecture", "\"", "a text"}, {"general.alignment", "0123456789", "a number"},
            {"tokenizer.ggml.model", "\"", "a text"}, {"tokenizer.ggml.pre", "\"", "a text"},
            {"tokenizer.ggml.tokens", "[\"", "texts"}, {"tokenizer.ggml.merges", "[\"", "texts"},
            {"tokenizer.ggml.token_type", "[0123456789", "numbers"}, {"tokenizer.chat_template", "\"", "a text"},
            {"tokenizer.ggml.eos_token_id", "0123456789", "a number"}, {"tokenizer.ggml.add_bos_token", "tf", "true"},
            {"tokenizer.ggml.eot_token_id", "0123456789", "a number"},
            {"tokenizer.ggml.eom_token_id", "0123456789", "a number"},
            {"tokenizer.ggml.bos_token_id", "0123456789", "a number"}};
        for (const auto& [key, begins, want] : kKinds) {
            const auto found = keys.find(key);
            if (found == keys.end() || found->second == "[]") continue;
            const bool array = begins[0] == '[' && found->second[0] == '[';
            if (!std::strchr(begins + array, found->second[array])) fail(key, found->second, want);
        }
    }
    std::vector<SafeTensor>::iterator find(const char* tensor) {
        return std::ranges::find(tensors, tensor, &SafeTensor::name);
    }
    std::string text_of(const std::string& key) const {
        const auto found = keys.find(key);
        return found != keys.end() ? Json{found->second}.text() : "";
    }
    std::string config() const {
        const std::string name = text_of("general.architecture");
        const std::span<const GgufKey> known = gguf_keys(name);
        if (known.empty()) fail("general.architecture", json_quote(name), "gpt2, llama, qwen2 or qwen3");
        std::map<std::string, std::string> values = {{"tie_word_embeddings", "true"}};
        for (const auto& [key, value] : keys) {         // an unknown key may change what the model computes
            if (!key.starts_with(name + ".")) continue;
            const auto found = std::ranges::find(known, key.substr(name.size() + 1), &GgufKey::name);
            if (found == known.end()) fail(key, value, "none: it is not known here");
            if (Json{value}.kind() != Json::number) fail(key, value, "a finite number");
            if (const std::string& x = values.emplace(found->hf, value).first->second; x != value)
                fail(key, value, x + ", as another key has it");
        }
        for (const SafeTensor& t : tensors)
            if (t.name == "token_embd.weight") values["vocab_size"] = std::to_string(t.shape[0]);
            else if (t.name == "lm_head.weight" && name != "gpt2") values["tie_word_embeddings"] = "false";
        std::vector<std::string> ends;                  // of a text, of a turn, of a message
        for (const char* key : {"eos", "eot", "eom"})
            if (const std::string end = text_of(format("tokenizer.ggml.%s_token_id", key)); !end.empty())
                if (!std::ranges::count(ends, end)) ends.push_back(end);
        values["eos_token_id"] = ends.empty() ? "null" : ends.size() == 1 ? ends[0] : "[" + join(ends, ",") + "]";
        if (const std::string bos = text_of("tokenizer.ggml.bos_token_id"); !bos.empty()) values["bos_token_id"] = bos;
        JsonLine line;
        line.add("model_type", name);
        for (const auto& [key, value] : values) line.raw(key.c_str(), value);
        return line.text();
    }
    // The token before a text; -1: none. llama.cpp's default is that of the split.
    int begin() const {
        const std::string adds = text_of("tokenizer.ggml.add_bos_token"), bos = text_of("tokenizer.ggml.bos_token_id");
        const bool begins = adds.empty() ? text_of("tokenizer.ggml.pre") == "llama-bpe" : adds == "true";
        int token = -1;
        if (begins && !bos.empty() && !parse_whole(std::string_view(bos), &token))
            fail("tokenizer.ggml.bos_token_id", bos, "a token");
        return token;
    }
    // Unused tokens (type 5) are left out; control tokens (3) are special, other added ones (4) are not.
    std::string vocabulary() {
        std::vector<std::string> vocab, added;
        const bool typed = keys.count("tokenizer.ggml.token_type") > 0;
        JsonItems token(Json{keys["tokenizer.ggml.tokens"]}), type(Json{keys["tokenizer.ggml.token_type"]});
        for (size_t id = 0; token.next(); id++) {
            const std::string text = token.value.text(), kind = type.next() ? type.value.text() : typed ? "" : "1";
            if (kind.empty()) fail("tokenizer.ggml.token_type", std::to_string(id) + " types", "one for each token");
            if (kind != "5") vocab.push_back(json_quote(text) + ":" + std::to_string(id));
            if (kind == "3" || kind == "4")
                added.push_back(JsonLine().add("id", id).add("content", text).add("single_word", false)
                                    .add("lstrip", false).add("rstrip", false).add("normalized", false)
                                    .add("special", kind == "3").text());
        }
        return R"("vocab":{)" + join(vocab, ",") + R"(},"merges":)" + keys["tokenizer.ggml.merges"] +
               R"(},"added_tokens":[)" + join(added, ",") + "]}";
    }
};

ModelFile read_gguf(Reader in) {
    in.read_head();
    if (const std::string size = in.text_of("general.alignment"); !size.empty() && size != "32")
        in.fail("general.alignment", size, "32");
    uint64_t offset = 0;
    for (SafeTensor& t : in.tensors) {
        if (t.dtype.starts_with("type")) in.fail(t.name, t.dtype, "F32, F16, BF16 or Q8_0");
        if (t.begin != offset || t.bytes > in.file.file->size)
            in.fail(t.name, std::to_string(t.begin) + " as offset", std::to_string(offset) +
                    ", and data within the file");
        offset += round_up<uint64_t>(t.bytes, 32);
        if (t.name == "output.weight") t.name = "lm_head.weight";       // it may equal the embedding
        in.skip(round_up<uint64_t>(in.at, 32) - in.at);
        t.begin = in.skip(t.bytes);
    }
    std::vector<float> divisors;
    if (const auto rope = in.find("rope_freqs.weight"); rope != in.tensors.end()) {
        divisors.resize(size_t(rope->bytes) / sizeof(float));
        if (rope->dtype != "F32" || rope->shape.size() != 1) in.fail(rope->name, rope->dtype, "F32, of one dimension");
        rope->read(0, divisors.size(), divisors.data());
        in.tensors.erase(rope);
    }
    const bool bpe = in.text_of("tokenizer.ggml.model") == "gpt2";
    return {in.config(), in.text_of("tokenizer.ggml.pre"), bpe ? in.vocabulary() : "",
            {in.file.file->path, {in.file.file}, in.tensors}, in.text_of("tokenizer.chat_template"), in.begin(),
            divisors};
}

ModelFile read_llmc(Reader in) {
    const auto head = in.number<std::array<uint32_t, 256>>();
    if (head[1] != 3 && head[1] != 5) in.fail("version", std::to_string(head[1]), "3 (fp32) or 5 (bf16)");
    return {JsonLine().add("model_type", "gpt2").add("n_positions", head[2]).add("vocab_size", head[3])
                .add("n_layer", head[4]).add("n_head", head[5]).add("n_embd", head[6]).text(), "", "",
            {in.file.file->path, {in.file.file}, {{"", head[1] == 3 ? "F32" : "BF16", {head[7]}, 1024, 0}}}};
}

// Cuts llm.c's data into the tensors of a table. Their order in the file is wte, wpe, then each of a block's 12 tensors
// for all layers, then the two of ln_f.
std::vector<SafeTensor> cut_llmc(const std::string& path, const SafeTensor& all, const std::vector<TensorSpec>& table) {
    std::vector<size_t> order = {0, 1};
    for (size_t part = 2; part < 14; part++)
        for (size_t i = part; i + 2 < table.size(); i += 12) order.push_back(i);
    order.insert(order.end(), {table.size() - 2, table.size() - 1});
    std::vector<SafeTensor> tensors;
    Reader in = {FileReader(path), all.begin};
    for (const size_t i : order) {
        const TensorSpec& t = table[i];
        const uint64_t row = t.cols * (all.dtype == "F32" ? 4 : 2), rows = i == 0 ? all.shape[0] : t.rows;  // padded
        if (rows < t.file_rows) in.fail("header[7]", std::to_string(rows), std::to_string(t.file_rows) + " or more");
        const auto shape = t.matrix ? std::vector<uint64_t>{t.file_rows, t.cols} : std::vector<uint64_t>{t.cols};
        tensors.push_back({t.name, all.dtype, shape, in.skip(rows * row), t.file_rows * row, in.file.file});
    }
    const uint64_t size = in.file.file->size;
    if (in.at != size) in.fail("size", with_commas(size), with_commas(in.at) + " by its header");
    return tensors;
}
}  // namespace

GgufContents read_gguf_head(const std::string& path) {
    Reader in = {FileReader(path)};
    in.read_head();
    return {std::move(in.keys), std::move(in.tensors), round_up<uint64_t>(in.at, 32)};
}

ModelFile open_model_file(const std::string& path) {
    FileReader file(path);
    const std::string magic(file.look(4).substr(0, 4));
    if (magic == "GGUF") return read_gguf({std::move(file)});
    if (magic == "\xc6\xd7\x34\x01") return read_llmc({std::move(file)});           // is 20240326
    refuse_file(path);
}

// Writes the tensors of Q8_0 to a file as F32, and lets them be read from there.
static void dequantize(SafeTensors* weights, const std::string& scratch) {
    const auto quantized = [](const SafeTensor& t) { return t.dtype == "Q8_0"; };
    if (std::ranges::none_of(weights->tensors, quantized)) return;
    FileWriter out(scratch);
    std::array<char, kQ8Bytes> block;
    std::array<float, kQ8Values> x;
    std::vector<uint64_t> begins;
    for (const SafeTensor& t : weights->tensors) {
        begins.push_back(out.bytes);
        for (uint64_t at = 0; quantized(t) && at < t.bytes; at += kQ8Bytes) {
            t.file->read(t.begin + at, block.data(), block.size());
            float d;
            convert_to_floats(&d, block.data(), "F16", 1);
            for (size_t i = 0; i < x.size(); i++) x[i] = d * float(int8_t(block[2 + i]));
            out.write(x.data(), sizeof x);
        }
    }
    out.finish();
    const auto file = std::make_shared<const InputFile>(scratch);
    for (size_t i = 0; i < begins.size(); i++)
        if (SafeTensor& t = weights->tensors[i]; quantized(t))
            t = {t.name, "F32", t.shape, begins[i], t.bytes / kQ8Bytes * sizeof x, file};
    remove_tree(scratch);
}

void read_model_file(const std::string& path, Arena theirs, const Arena& arena, float* values,
                     const std::string& scratch) {
    SafeTensors weights = open_model_file(path).weights;
    dequantize(&weights, scratch);
    for (TensorSpec& t : theirs.tensors) {
        t.transposed = false;
        if (t.name != "lm_head.weight") t.name = gguf_name(t.name);
        for (TensorSpec::Part& part : t.parts) part.name = gguf_name(part.name);
    }
    if (!weights.tensors.empty() && weights.tensors[0].name.empty())
        weights.tensors = cut_llmc(path, weights.tensors[0], theirs.tensors);
    if (has_own_head(weights, theirs.tensors[0]))
        die_content(path + ": output.weight", "another than token_embd.weight", "a tied head");
    read_tensors(find_tensors(weights, theirs.tensors), theirs, arena, values);
}
