// tensor_files.cpp -- checks each number in a file against the file's size before it is used, so that a damaged number
// cannot decide how much memory is allocated.
#include "tools/text/tensor_files.h"
#include <algorithm>
#include <map>
#include <set>
#include "src/base/common.h"
#include "src/base/json.h"
#include "tools/text/reader.h"

// The largest header is 16 MB. GPT-2 1558M needs 75 KB of header per state array, and a reduction may have many arrays.
// The format's own limit is 100 MB.
constexpr uint64_t kMaxHeader = 1 << 24, kMaxName = 256, kMaxDims = 8, kMaxDim = uint64_t(1) << 32;

static uint64_t dtype_bytes(const std::string& dtype) {     // 0: unknown
    static const std::map<std::string, uint64_t> kBytes = {
        {"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
        {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4}, {"F64", 8}, {"I64", 8}, {"U64", 8}};
    const auto found = kBytes.find(dtype);
    return found == kBytes.end() ? 0 : found->second;
}

static std::string shown(const Json& value) { return value.text().substr(0, 60); }

// Reads one entry of the header. data: the number of bytes behind the header. `begin` counts from the header's end.
static SafeTensor read_entry(const std::string& name, const Json& entry, uint64_t data, const std::string& what) {
    if (name.size() > kMaxName) die_content(what, "a tensor name of " + std::to_string(name.size()) + " bytes", "256");
    const std::string where = what + ": tensor " + name;
    SafeTensor t = {name, entry.get_string("dtype", where.c_str()), {}, 0, 0};
    t.bytes = dtype_bytes(t.dtype);
    if (t.bytes == 0) die_content(where + ": dtype", t.dtype.substr(0, 40), "F32, F16, BF16 or another known");

    const Json shape = entry.at("shape", where.c_str()), offsets = entry.at("data_offsets", where.c_str());
    uint64_t dim, begin, end;
    for (JsonItems i(shape); i.next(); t.shape.push_back(dim)) {
        if (!i.value.as_u64(&dim) || dim > kMaxDim || t.shape.size() == kMaxDims)
            die_content(where + ": shape", shown(shape), "at most 8 integers of 0..2^32");
        t.bytes = checked_mul(t.bytes, dim, where.c_str());
    }
    JsonItems i(offsets);
    if (shape.kind() != Json::array || offsets.kind() != Json::array || !i.next() || !i.value.as_u64(&begin) ||
        !i.next() || !i.value.as_u64(&end) || i.next() || begin > end || end > data || end - begin != t.bytes)
        die_content(where + ": data_offsets", shown(offsets), std::to_string(t.bytes) + " of the " +
                    std::to_string(data) + " bytes behind the header, for " + t.dtype + " " + shown(shape));
    t.begin = begin;
    return t;
}

static void open_more(SafeTensors* all, const std::string& path) {
    const SharedFile file = std::make_shared<InputFile>(path);
    uint64_t length = 0;
    if (file->size >= 8) file->read(0, &length, 8);
    const bool fits = length >= 2 && length <= kMaxHeader && length <= file->size - 8;
    std::string text(fits ? length : 0, '\0');
    file->read(8, text.data(), text.size());
    if (!text.starts_with('{'))
        die_content(path + ": header", std::to_string(length) + " bytes in a file of " + std::to_string(file->size),
                    "2 to " + std::to_string(kMaxHeader) + " that begin with '{'; is it a safetensors file?");
    const Json header = parse_json(text, (path + ": header").c_str());
    const uint64_t data = file->size - 8 - length;
    std::vector<SafeTensor> tensors;
    for (JsonItems i(header); i.next();)
        if (const std::string name = i.key.text(); name != "__metadata__")
            tensors.push_back(read_entry(name, i.value, data, path));
    std::ranges::stable_sort(tensors, {}, [](const SafeTensor& t) { return std::pair(t.begin, t.bytes); });
    uint64_t at = 0;
    for (SafeTensor& t : tensors) {
        if (t.begin != at)
            die_content(path + ": tensor " + t.name + ": data_offsets", "begin " + std::to_string(t.begin),
                        std::to_string(at) + ", the end of the tensor before");
        at += t.bytes;
        t.begin += 8 + length;
        t.file = file;
        all->tensors.push_back(std::move(t));
    }
    if (at != data)
        die_content(path, std::to_string(data) + " bytes of data",
                    std::to_string(at) + ", the end of the last tensor");
    all->files.push_back(file);
}

SafeTensors open_safetensors(const std::string& path) {
    SafeTensors file = {path, {}, {}};
    open_more(&file, path);
    return file;
}

// Returns the paths of the files that contain a folder's model.
static std::vector<std::string> model_files(const std::string& folder) {
    const std::string one = path_join(folder, "model.safetensors"), index = one + ".index.json";
    if (file_exists(one) || !file_exists(index)) return {one};
    const std::string text = read_file(index);
    const Json map = parse_json(text, index.c_str()).at("weight_map", index.c_str());
    std::set<std::string> files;
    for (JsonItems i(map); i.next();) {
        const std::string name = i.value.text();
        const auto has = [&](std::string_view part) { return ("/" + name + "/").find(part) != std::string::npos; };
        if (map.kind() != Json::object || i.value.kind() != Json::string || has("//") || has("/.") || has({"\0", 1}))
            die_content(index + ": weight_map: " + i.key.text(), json_shown(i.value), "a file in the same folder");
        files.insert(path_join(folder, name));
    }
    if (files.empty()) die_content(index + ": weight_map", json_shown(map), "the files of the model's tensors");
    return {files.begin(), files.end()};
}

SafeTensors open_model(const std::string& folder) {
    const std::vector<std::string> paths = model_files(folder);
    SafeTensors model = {paths.size() == 1 ? paths[0] : folder, {}, {}};
    for (const std::string& path : paths) open_more(&model, path);
    return model;
}

// Removes prefixes. Hugging Face writes "transformer.h.0..." (GPT2LMHeadModel) or "h.0..." (GPT2Model). Prefixes of
// torch.compile, DistributedDataParallel and PEFT stand before that.
static std::string plain_name(std::string name) {
    for (const std::string prefix : {"_orig_mod.", "module.", "base_model.model.", "transformer.", "model."})
        if (name.starts_with(prefix)) name.erase(0, prefix.size());
    return name;
}

static bool holds_no_weights(const std::string& name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

std::vector<SafeTensor> find_tensors(const SafeTensors& file, const std::vector<TensorSpec>& table) {
    std::map<std::string, const SafeTensor*> by_name;
    std::vector<SafeTensor> found;
    for (const SafeTensor& t : file.tensors)
        if (!holds_no_weights(t.name) && !by_name.emplace(plain_name(t.name), &t).second)
            die_content(file.path, "tensor " + plain_name(t.name) + " twice", "one of them");
    // Tensor 0 of a model is its head. If it is the embedding, lm_head.weight has the same numbers: has_own_head.
    if (table[0].name != "lm_head.weight") by_name.erase("lm_head.weight");
    for (const TensorSpec& spec : table)
        for (const FileTensor& want : file_tensors(spec)) {
            const auto node = by_name.extract(plain_name(want.name));
            if (!node) die(kExitBadContent, "%s: tensor %s: it is missing", file.path.c_str(), want.name.c_str());
            const SafeTensor& t = *node.mapped();
            const std::string where = file.path + ": tensor " + t.name;
            if (t.shape != want.shape) die_content(where + ": shape", shape_text(t.shape), shape_text(want.shape));
            if (!t.read(0, 0, nullptr)) die_content(where + ": dtype", t.dtype, "F32, F16 or BF16");
            found.push_back(t);
        }
    if (!by_name.empty())
        die(kExitBadContent, "%s: tensor %s: the model has none of this name", file.path.c_str(),
            by_name.begin()->second->name.c_str());
    return found;
}

bool has_own_head(const SafeTensors& file, const TensorSpec& embedding) {
    const auto find = [&](const std::string& name) {
        return std::ranges::find(file.tensors, name, [](const SafeTensor& t) { return plain_name(t.name); });
    };
    const auto head = find("lm_head.weight"), table = find(plain_name(embedding.name));
    if (head == table || std::max(head, table) == file.tensors.end()) return false;
    const size_t cols = embedding.cols;
    std::vector<float> ours(cols), theirs(cols);
    bool same = head->shape == table->shape;
    for (size_t row = 0; same && row < embedding.file_rows; row++)
        same = head->read(row * cols, cols, ours.data()) && table->read(row * cols, cols, theirs.data()) &&
               ours == theirs;
    return !same;
}
