// safetensors.cpp -- checks each number in a file against the file's size before it is used, so that a damaged number
// cannot decide how much memory is allocated.
#include "src/checkpoint/safetensors.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include "src/base/common.h"
#include "src/base/json.h"

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

std::string shape_text(const std::vector<uint64_t>& shape) {
    std::vector<std::string> sizes;
    for (const uint64_t size : shape) sizes.push_back(std::to_string(size));
    return "[" + join(sizes, ",") + "]";
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
        if (map.kind() != Json::object || i.value.kind() != Json::string || name.empty() || name[0] == '.' ||
            name.find_first_of(std::string("/\0", 2)) != std::string::npos)
            die_content(index + ": weight_map: " + i.key.text(), json_shown(i.value), "the name of a file beside it");
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

static size_t file_elements(const TensorSpec& spec) { return spec.file_rows * spec.cols; }

// A tensor as a file has it. begin, n: its elements [begin, begin + n) in the memory of its TensorSpec.
struct FileTensor { std::string name; std::vector<uint64_t> shape; size_t begin, n; };
static std::vector<FileTensor> file_tensors(const TensorSpec& spec) {
    const uint64_t cols = spec.cols, n = file_elements(spec);
    if (spec.rows == 0) return {};
    if (spec.transposed) return {{spec.name, {cols, spec.file_rows}, 0, n}};
    std::vector<FileTensor> tensors;
    size_t begin = 0;
    for (const auto& [name, count] : parts_of(spec)) {
        tensors.push_back({name, {count}, begin, spec.matrix ? count * cols : count});
        if (spec.matrix) tensors.back().shape.push_back(cols);
        begin += spec.repeated ? 0 : tensors.back().n;
    }
    CHECK(spec.repeated || begin == n, "%s: its parts have %zu elements of %zu", spec.name.c_str(), begin, size_t(n));
    return tensors;
}

size_t count_file_tensors(const Arena& arena) {
    size_t n = 0;
    for (const TensorSpec& spec : arena.tensors) n += file_tensors(spec).size();
    return n;
}

// Sets out[c * rows + r] = in[r * cols + c], square by square, so that both arrays stay in the cache.
static void transpose(float* out, const float* in, size_t rows, size_t cols) {
    constexpr size_t kSquare = 32;
    for (size_t r0 = 0; r0 < rows; r0 += kSquare)
        for (size_t c0 = 0; c0 < cols; c0 += kSquare)
            for (size_t r = r0; r < std::min(rows, r0 + kSquare); r++)
                for (size_t c = c0; c < std::min(cols, c0 + kSquare); c++) out[c * rows + r] = in[r * cols + c];
}

static float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3FF;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * float(fraction) * 0x1p-24f;       // zero and denormals, exact
    return std::bit_cast<float>(sign | (exponent == 31 ? 0xFFu : exponent + 112) << 23 | fraction << 13);
}

bool convert_to_floats(float* out, const char* data, const std::string& dtype, size_t n) {
    if (dtype == "F32" && n > 0) std::memcpy(out, data, n * sizeof(float));
    for (size_t i = 0; i < n && dtype.ends_with("F16"); i++) {
        uint16_t bits;
        std::memcpy(&bits, data + 2 * i, 2);
        out[i] = dtype == "F16" ? half_to_float(bits) : std::bit_cast<float>(uint32_t(bits) << 16);
    }
    return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

bool SafeTensor::read(uint64_t first, size_t n, float* out) const {
    const size_t width = dtype_bytes(dtype);
    std::vector<char> piece(std::min<size_t>(n, 32768) * width);
    bool known = convert_to_floats(out, nullptr, dtype, 0);
    for (size_t done = 0, count; known && done < n; done += count) {
        count = std::min<size_t>(n - done, 32768);
        file->read(begin + (first + done) * width, piece.data(), count * width);
        convert_to_floats(out + done, piece.data(), dtype, count);
    }
    return known;
}

static void check_finite(int code, const float* x, size_t n, const std::string& tensor, const char* then) {
    const float* const bad = std::find_if(x, x + n, [](float v) { return !std::isfinite(v); });
    if (bad == x + n) return;
    die(code, "not finite: tensor %s: element %td is %g, want a number; %s", tensor.c_str(), bad - x, plain(*bad),
        then);
}

static std::string header_of(const Arena& arena, const std::vector<NamedArray>& arrays) {
    JsonLine header;
    header.raw("__metadata__", "{\"format\":\"pt\"}");                  // older readers require this key
    uint64_t at = 0;
    for (const NamedArray& array : arrays)
        for (const TensorSpec& spec : array.arena(arena).tensors)
            for (const FileTensor& t : file_tensors(spec)) {
                const std::string name = t.name + (array.name.empty() ? "" : "." + array.name);
                const uint64_t begin = at;
                at += t.n * sizeof(float);
                header.raw(name.c_str(), JsonLine().add("dtype", "F32").raw("shape", shape_text(t.shape))
                                             .raw("data_offsets", shape_text({begin, at})).text());
            }
    std::string text = header.text();
    text.resize(round_up<size_t>(8 + text.size(), 64) - 8, ' ');        // so that the data are aligned in a mapped file
    CHECK(text.size() <= kMaxHeader, "header of %zu bytes", text.size());
    return text;
}

void write_safetensors(FileWriter* file, const Arena& arena, const std::vector<NamedArray>& arrays,
                       const std::function<void()>& progress) {
    const std::string header = header_of(arena, arrays);
    const uint64_t length = header.size();
    file->write(&length, sizeof length);
    file->write(header.data(), header.size());
    std::vector<float> buffer;
    for (const NamedArray& array : arrays)
        for (size_t i = 0; i < arena.tensors.size(); i++) {
            const Arena& own = array.arena(arena);
            const TensorSpec& spec = own.tensors[i];
            const size_t n = file_elements(spec);
            const float* values = array.data + own.offset[i];
            check_finite(kExitOther, values, n, spec.name, "the model is not saved");
            if (spec.transposed) {
                buffer.resize(n);
                transpose(buffer.data(), values, spec.file_rows, spec.cols);
                values = buffer.data();
            }
            for (size_t copies = spec.repeated ? spec.parts.size() : 1; copies > 0; copies--)
                file->write(values, n * sizeof(float));
            progress();
        }
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

// Reads a tensor into `values`, at most its first `most` elements. buffer: scratch memory that all tensors share.
static void read_tensor(const TensorSpec& spec, const FileTensor& want, const SafeTensor& t, float* values, size_t most,
                        const std::string& path, std::vector<float>* buffer) {
    const std::string where = path + ": tensor " + t.name;
    if (t.shape != want.shape) die_content(where + ": shape", shape_text(t.shape), shape_text(want.shape));
    const bool at_once = !spec.transposed && want.n <= most;
    if (!at_once) buffer->resize(std::max(buffer->size(), want.n));
    float* const to = at_once ? values : buffer->data();
    if (!t.read(0, want.n, to)) die_content(where + ": dtype", t.dtype, "F32, F16 or BF16");
    check_finite(kExitBadContent, to, want.n, path + ": " + t.name, "take another checkpoint");
    if (spec.transposed) transpose(values, to, spec.cols, spec.file_rows);
    else if (!at_once) std::copy_n(to, most, values);
}

void read_safetensors(const SafeTensors& file, const Arena& arena, const std::string& suffix, float* values,
                      const Arena* theirs) {
    const std::vector<TensorSpec>& table = theirs ? theirs->tensors : arena.tensors;
    std::map<std::string, const SafeTensor*> by_name;
    for (const SafeTensor& t : file.tensors)
        if (t.name.ends_with(suffix) && !holds_no_weights(t.name))
            if (!by_name.emplace(plain_name(t.name), &t).second)
                die_content(file.path, "tensor " + plain_name(t.name) + " twice", "one of them");
    // Tensor 0 of a model is its head. If it is the embedding, lm_head.weight has the same numbers: has_own_head.
    if (table[0].name != "lm_head.weight") by_name.erase("lm_head.weight");
    std::fill_n(values, arena.n, 0.0f);
    std::vector<float> buffer;
    Countdown left{"reading", arena.tensors.size(), "tensors"};
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        left.at(i);
        const TensorSpec &spec = table[i], &own = arena.tensors[i];
        for (const FileTensor& want : file_tensors(spec)) {
            const std::string name = want.name + suffix;
            const auto found = by_name.extract(plain_name(name));
            if (!found) die(kExitBadContent, "%s: tensor %s: it is missing", file.path.c_str(), name.c_str());
            read_tensor(spec, want, *found.mapped(), values + arena.offset[i] + want.begin,
                        own.rows * own.cols - want.begin, file.path, &buffer);
        }
    }
    if (!by_name.empty())
        die(kExitBadContent, "%s: tensor %s: the model has none of this name", file.path.c_str(),
            by_name.begin()->second->name.c_str());
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
