// safetensors.cpp -- the reader believes nothing: every number is checked against the bytes there are before it is used, and
// nothing is allocated by a number from the file.
#include "safetensors.h"
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include "common.h"

namespace {
// GPT-2 1558M with both moments needs 150 KB of header. The format's own limit is 100 MB, which the table of tensors would double.
constexpr uint64_t kMaxHeader = 1 << 20, kMaxTensors = 65536, kMaxName = 256, kMaxDims = 8, kMaxDim = uint64_t(1) << 32;

uint64_t dtype_bytes(std::string_view name) {           // 0: unknown
    static constexpr struct { std::string_view name; uint64_t bytes; } kDtypes[] = {
        {"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2}, {"BF16", 2},
        {"I32", 4}, {"U32", 4}, {"F32", 4}, {"F64", 8}, {"I64", 8}, {"U64", 8}};
    for (const auto& d : kDtypes)
        if (d.name == name) return d.bytes;
    return 0;
}

void check_name(const std::string& name, const char* what) {
    const auto good = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    };
    if (name.empty() || name.size() > kMaxName || !std::all_of(name.begin(), name.end(), good))
        die(kExitBadContent, "%s: tensor name: got %s (%zu bytes), want 1 to %zu of A-Z a-z 0-9 . _ -", what,
            json_quote(name.substr(0, 40)).c_str(), name.size(), size_t(kMaxName));
}

// One entry of the header; data and data_bytes are of the whole data part.
SafeTensor read_entry(const std::string& name, const Json& entry, const char* data, uint64_t data_bytes, const char* what) {
    check_name(name, what);
    const std::string where = std::string(what) + ": tensor " + name;
    SafeTensor t;
    t.name = name;
    t.dtype = entry.get_string("dtype", where.c_str());
    uint64_t bytes = dtype_bytes(t.dtype);
    if (bytes == 0)
        die(kExitBadContent, "%s: dtype: got %s, want F32, F16, BF16 or another of the format's", where.c_str(),
            json_quote(t.dtype.substr(0, 40)).c_str());

    const Json shape = entry.at("shape", where.c_str());
    const size_t dims = shape.size();
    if (shape.kind() != Json::array || dims > kMaxDims)
        die(kExitBadContent, "%s: shape: want an array of at most %zu dimensions", where.c_str(), size_t(kMaxDims));
    t.shape.reserve(dims);
    for (JsonItems i(shape); i.next();) {
        uint64_t dim;
        if (!i.value.as_u64(&dim) || dim > kMaxDim)
            die(kExitBadContent, "%s: shape: got %s, want an integer of 0..2^32", where.c_str(),
                json_quote(i.value.text().substr(0, 40)).c_str());
        bytes = checked_mul(bytes, dim, where.c_str());
        t.shape.push_back(dim);
    }

    uint64_t begin, end;
    if (JsonItems i(entry.at("data_offsets", where.c_str())); !i.next() || !i.value.as_u64(&begin) || !i.next() || !i.value.as_u64(&end) || i.next())
        die(kExitBadContent, "%s: data_offsets: want [begin,end], two integers of 0..2^64-1", where.c_str());
    if (begin > end || end > data_bytes)
        die(kExitBadContent, "%s: data_offsets: got [%llu,%llu], want 0 <= begin <= end <= %llu, the bytes after the header",
            where.c_str(), (unsigned long long)begin, (unsigned long long)end, (unsigned long long)data_bytes);
    if (end - begin != bytes)
        die(kExitBadContent, "%s: data_offsets: got %llu bytes, want %llu for %s %s", where.c_str(),
            (unsigned long long)(end - begin), (unsigned long long)bytes, t.dtype.c_str(), shape_text(t.shape).c_str());
    t.data = data + begin;
    t.bytes = bytes;
    return t;
}

// Sorted by their data, tensors must lie end to end from the first byte to the last.
void check_contiguous(std::vector<SafeTensor>* tensors, const char* data, uint64_t data_bytes, const char* what) {
    std::stable_sort(tensors->begin(), tensors->end(), [](const SafeTensor& a, const SafeTensor& b) {
        return std::pair(a.data, a.bytes) < std::pair(b.data, b.bytes);
    });
    uint64_t at = 0;
    for (const SafeTensor& t : *tensors) {
        const uint64_t begin = uint64_t(t.data - data);
        if (begin != at)
            die(kExitBadContent, "%s: tensor %s: data_offsets: got begin %llu, want %llu, the end of the tensor before: %s",
                what, t.name.c_str(), (unsigned long long)begin, (unsigned long long)at,
                begin < at ? "they overlap" : "bytes belong to no tensor");
        at += t.bytes;
    }
    if (at != data_bytes)
        die(kExitBadContent, "%s: got %llu bytes of data, want %llu, the end of the last tensor", what,
            (unsigned long long)data_bytes, (unsigned long long)at);
}
}  // namespace

std::string shape_text(const std::vector<uint64_t>& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); i++) text += (i ? "," : "") + std::to_string(shape[i]);
    return text + "]";
}

std::vector<SafeTensor> parse_safetensors(const char* data, size_t size, const char* what, Json* metadata) {
    if (size < 10) die(kExitBadContent, "%s: got %zu bytes, want at least 10: not a safetensors file", what, size);
    uint64_t length;
    std::memcpy(&length, data, 8);
    const uint64_t most = std::min<uint64_t>(size - 8, kMaxHeader);
    if (length < 2 || length > most)
        die(kExitBadContent, "%s: byte 0: header length: got %llu, want 2 to %llu", what, (unsigned long long)length,
            (unsigned long long)most);
    if (data[8] != '{')
        die(kExitBadContent, "%s: byte 8: got 0x%02x, want '{', the header's first byte", what, (unsigned char)data[8]);

    const Json header = parse_json(std::string_view(data + 8, size_t(length)), (std::string(what) + ": header").c_str());
    const size_t most_tensors = header.size();
    if (most_tensors > kMaxTensors)
        die(kExitBadContent, "%s: got %zu tensors, want at most %zu", what, most_tensors, size_t(kMaxTensors));
    const char* begin = data + 8 + length;
    const uint64_t data_bytes = size - 8 - length;
    std::vector<SafeTensor> tensors;
    tensors.reserve(most_tensors);
    for (JsonItems i(header); i.next();) {
        if (const std::string name = i.key.text(); name != "__metadata__") {
            tensors.push_back(read_entry(name, i.value, begin, data_bytes, what));
            continue;
        }
        if (i.value.kind() != Json::object) die(kExitBadContent, "%s: __metadata__: want an object of strings", what);
        for (JsonItems m(i.value); m.next();)
            if (m.value.kind() != Json::string)
                die(kExitBadContent, "%s: __metadata__: %s: want a string", what, json_quote(m.key.text().substr(0, 40)).c_str());
        if (metadata) *metadata = i.value;
    }
    check_contiguous(&tensors, begin, data_bytes, what);
    return tensors;
}

SafeTensors open_safetensors(const std::string& path) {
    SafeTensors file;
    file.file = map_file(path);
    file.tensors = parse_safetensors(file.file.data, file.file.size, path.c_str(), &file.metadata);
    return file;
}

const SafeTensor* SafeTensors::find(const std::string& name) const {
    for (const SafeTensor& t : tensors)
        if (t.name == name) return &t;
    return nullptr;
}

// ------------------------------------------------------------------------------------------- values in file and memory

namespace {
constexpr size_t kStrip = size_t(1) << 20;              // floats: the most that is transposed or converted at a time, 4 MiB

std::vector<uint64_t> file_shape(const TensorSpec& spec) {
    if (!spec.decay && spec.rows == 1) return {spec.cols};              // a vector
    return spec.transposed ? std::vector<uint64_t>{spec.cols, spec.file_rows} : std::vector<uint64_t>{spec.file_rows, spec.cols};
}

// out[c * out_stride + r] = in[r * in_stride + c]; by squares, so that both sides stay in the cache.
void transpose(float* out, size_t out_stride, const float* in, size_t in_stride, size_t rows, size_t cols) {
    constexpr size_t kSquare = 32;
    for (size_t r0 = 0; r0 < rows; r0 += kSquare)
        for (size_t c0 = 0; c0 < cols; c0 += kSquare)
            for (size_t r = r0; r < std::min(rows, r0 + kSquare); r++)
                for (size_t c = c0; c < std::min(cols, c0 + kSquare); c++) out[c * out_stride + r] = in[r * in_stride + c];
}

float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3FF;
    float x;
    if (exponent == 0) {                                // zero and denormals: fraction * 2^-24, exact
        x = float(fraction) * 0x1p-24f;
        return sign ? -x : x;
    }
    const uint32_t bits = sign | (exponent == 31 ? 0xFFu : exponent + 112) << 23 | fraction << 13;
    std::memcpy(&x, &bits, 4);
    return x;
}

// x: n elements of the tensor from number `first` on. The first loop has no branch: it runs at the speed of memory.
void check_finite(int code, const float* x, size_t n, const std::string& tensor, const char* then, size_t first = 0) {
    const auto bad = [&](size_t i) {
        uint32_t bits;
        std::memcpy(&bits, x + i, 4);
        return (bits & 0x7F800000) == 0x7F800000;
    };
    unsigned any = 0;
    for (size_t i = 0; i < n; i++) any |= unsigned(bad(i));
    for (size_t i = 0; any && i < n; i++)
        if (bad(i)) die(code, "not finite: tensor %s: element %zu is %g, want a number; %s", tensor.c_str(), first + i, double(x[i]), then);
}

void write_transposed(FileWriter* file, const TensorSpec& spec, const float* values, std::vector<float>* buffer) {
    const size_t strip = std::max<size_t>(1, kStrip / spec.file_rows);      // rows of the file at a time
    buffer->resize(std::min(strip, spec.cols) * spec.file_rows);
    for (size_t c = 0; c < spec.cols; c += strip) {
        const size_t n = std::min(strip, spec.cols - c);
        transpose(buffer->data(), spec.file_rows, values + c, spec.cols, spec.file_rows, n);
        file->write(buffer->data(), n * spec.file_rows * sizeof(float));
    }
}

void read_tensor(const TensorSpec& spec, const SafeTensor& t, float* values, std::vector<float>* buffer) {
    if (!spec.transposed) {
        convert_to_floats(values, t.data, t.dtype, spec.file_rows * spec.cols);
        return;
    }
    const size_t strip = std::max<size_t>(1, kStrip / spec.file_rows), row_bytes = spec.file_rows * dtype_bytes(t.dtype);
    buffer->resize(std::min(strip, spec.cols) * spec.file_rows);
    for (size_t c = 0; c < spec.cols; c += strip) {
        const size_t n = std::min(strip, spec.cols - c);
        convert_to_floats(buffer->data(), t.data + c * row_bytes, t.dtype, n * spec.file_rows);
        transpose(values + c, spec.cols, buffer->data(), spec.file_rows, n, spec.file_rows);
    }
}
}  // namespace

bool convert_to_floats(float* out, const char* data, const std::string& dtype, size_t n) {
    if (dtype == "F32") {
        if (n > 0) std::memcpy(out, data, n * 4);
        return true;
    }
    if (dtype != "F16" && dtype != "BF16") return false;
    const bool half = dtype == "F16";
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        std::memcpy(&bits, data + 2 * i, 2);
        const uint32_t wide = uint32_t(bits) << 16;     // bf16 is a float's upper half
        if (half) out[i] = half_to_float(bits);
        else std::memcpy(out + i, &wide, 4);
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------- writing

// Elements of tensor i that are before `end` and in the file.
static size_t file_elements(const Arena& arena, size_t i, size_t end) {
    return std::min(arena.tensors[i].file_rows * arena.tensors[i].cols, end - std::min(end, arena.offset[i]));
}

uint64_t bytes_before(const Arena& arena, size_t element) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < arena.tensors.size(); i++) bytes += file_elements(arena, i, element) * sizeof(float);
    return bytes;
}

std::string safetensors_header(const Arena& arena, const std::vector<std::string>& suffixes) {
    std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";           // older readers ask for this key
    uint64_t at = 0;
    for (const std::string& suffix : suffixes)
        for (size_t i = 0; i < arena.tensors.size(); i++) {
            const TensorSpec& spec = arena.tensors[i];
            const uint64_t end = at + file_elements(arena, i, arena.n) * sizeof(float);
            header += "," + json_quote(spec.name + suffix) + ":{\"dtype\":\"F32\",\"shape\":" + shape_text(file_shape(spec)) +
                      ",\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(end) + "]}";
            at = end;
        }
    header += "}";
    header.resize(round_up<size_t>(8 + header.size(), 64) - 8, ' ');        // data at 64 bytes: aligned when the file is mapped
    CHECK(header.size() <= kMaxHeader, "header of %zu bytes", header.size());
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header;
}

void write_elements(FileWriter* file, const Arena& arena, size_t begin, size_t end, const float* values, size_t base) {
    std::vector<float> buffer;
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        const TensorSpec& spec = arena.tensors[i];
        const size_t first = file_elements(arena, i, begin), n = file_elements(arena, i, end) - first;
        if (n == 0) continue;
        const float* const from = values + (arena.offset[i] + first - base);
        check_finite(kExitOther, from, n, spec.name, "the model is not saved", first);
        if (spec.transposed) write_transposed(file, spec, from, &buffer);
        else file->write(from, n * sizeof(float));
    }
}

// ---------------------------------------------------------------------------------------------------------- reading

namespace {
// Hugging Face writes "transformer.h.0..." (GPT2LMHeadModel) or "h.0..." (GPT2Model): names are compared without the prefix.
std::string plain_name(const std::string& name) { return name.starts_with("transformer.") ? name.substr(12) : name; }

// Present in some files, needed by none: causal masks, and the head when it is the same as the embedding.
bool can_be_ignored(const SafeTensor& t, const std::unordered_map<std::string, const SafeTensor*>& by_name, const char* path) {
    if (t.name.ends_with(".attn.bias") || t.name.ends_with(".attn.masked_bias")) return true;
    if (t.name != "lm_head.weight") return false;
    const auto wte = by_name.find("wte.weight");
    if (wte == by_name.end()) return true;               // the missing embedding is the error to tell
    const SafeTensor& embedding = *wte->second;
    if (t.dtype != embedding.dtype || t.shape != embedding.shape || std::memcmp(t.data, embedding.data, t.bytes) != 0)
        die(kExitBadContent, "%s: tensor lm_head.weight: differs from wte.weight, want a tied head", path);
    return true;
}
}  // namespace

void read_safetensors(const SafeTensors& file, const Arena& arena, const char* suffix, float* values) {
    const char* path = file.file.path.c_str();
    std::unordered_map<std::string, const SafeTensor*> by_name;             // those that end in suffix
    for (const SafeTensor& t : file.tensors)
        if (t.name.ends_with(suffix) && !by_name.emplace(plain_name(t.name), &t).second)
            die(kExitBadContent, "%s: tensor %s: it is there with and without \"transformer.\"", path, t.name.c_str());
    for (const SafeTensor& t : file.tensors)
        if (by_name.count(plain_name(t.name)) && can_be_ignored(t, by_name, path)) by_name.erase(plain_name(t.name));

    std::fill(values, values + arena.n, 0.0f);
    std::vector<float> buffer;
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        const TensorSpec& spec = arena.tensors[i];
        const std::string name = spec.name + suffix;
        const auto found = by_name.find(plain_name(name));
        if (found == by_name.end()) die(kExitBadContent, "%s: tensor %s: it is missing", path, name.c_str());
        const SafeTensor& t = *found->second;
        if (t.shape != file_shape(spec))
            die(kExitBadContent, "%s: tensor %s: shape: got %s, want %s", path, t.name.c_str(), shape_text(t.shape).c_str(),
                shape_text(file_shape(spec)).c_str());
        if (t.dtype != "F32" && t.dtype != "F16" && t.dtype != "BF16")
            die(kExitBadContent, "%s: tensor %s: dtype: got %s, want F32, F16 or BF16", path, t.name.c_str(), t.dtype.c_str());
        read_tensor(spec, t, values + arena.offset[i], &buffer);
        check_finite(kExitBadContent, values + arena.offset[i], spec.file_rows * spec.cols, std::string(path) + ": " + t.name,
                     "take another checkpoint");
        by_name.erase(found);
    }
    if (!by_name.empty()) {
        std::string first = by_name.begin()->second->name;                  // the smallest name: the same message every time
        for (const auto& [name, t] : by_name) first = std::min(first, t->name);
        die(kExitBadContent, "%s: tensor %s: the model has none of this name", path, first.c_str());
    }
}
