// safetensors.cpp -- see safetensors.h.
#include "src/checkpoint/safetensors.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include "src/base/common.h"
#include "src/base/json.h"

std::string shape_text(const std::vector<uint64_t>& shape) {
    std::vector<std::string> sizes;
    for (const uint64_t size : shape) sizes.push_back(std::to_string(size));
    return "[" + join(sizes, ",") + "]";
}

std::vector<FileTensor> file_tensors(const TensorSpec& spec) {
    const uint64_t cols = spec.cols, n = spec.file_rows * cols;
    if (spec.rows == 0) return {};
    if (spec.transposed) return {{spec.name, {cols, spec.file_rows}, 0, n}};
    std::vector<FileTensor> tensors;
    size_t begin = 0;
    for (const auto& [name, count] : parts_of(spec)) {
        tensors.push_back({name, {count}, begin, spec.matrix ? count * cols : count});
        if (spec.matrix) tensors.back().shape.push_back(cols);
        begin += spec.repeated ? 0 : tensors.back().n;
    }
    CHECK(spec.repeated || begin == n, "%s: its parts have %zu elements of %zu", spec.name.c_str(),
          begin, n);
    return tensors;
}

// Sets out[c * rows + r] = in[r * cols + c], square by square, so that both arrays stay in the
// cache.
static void transpose(float* out, const float* in, size_t rows, size_t cols) {
    constexpr size_t kSquare = 32;
    for (size_t r0 = 0; r0 < rows; r0 += kSquare)
        for (size_t c0 = 0; c0 < cols; c0 += kSquare)
            for (size_t r = r0; r < std::min(rows, r0 + kSquare); r++)
                for (size_t c = c0; c < std::min(cols, c0 + kSquare); c++)
                    out[c * rows + r] = in[r * cols + c];
}

static float half_to_float(uint16_t h) {
    const uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 0x3FF;
    // Zero and denormals are exact.
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * fraction * 0x1p-24f;
    return std::bit_cast<float>(sign | (exponent == 31 ? 0xFFu : exponent + 112) << 23 |
                                fraction << 13);
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
    const size_t width = dtype == "F32" ? 4 : 2;
    std::vector<char> piece(std::min<size_t>(n, 32768) * width);
    bool known = convert_to_floats(out, nullptr, dtype, 0);
    for (size_t done = 0, count; known && done < n; done += count) {
        count = std::min<size_t>(n - done, 32768);
        file->read(begin + (first + done) * width, piece.data(), count * width);
        convert_to_floats(out + done, piece.data(), dtype, count);
    }
    return known;
}

static void check_finite(int code, std::span<const float> x, const std::string& tensor,
                         const char* then) {
    const auto bad = std::ranges::find_if_not(x, [](float v) { return std::isfinite(v); });
    if (bad == x.end()) return;
    die(code, "not finite: tensor %s: element %td is %g, want a number; %s", tensor.c_str(),
        bad - x.begin(), plain(*bad), then);
}

// What a file begins with, the whole file's size, and its tensors.
struct Beginning { std::string bytes; uint64_t size; std::vector<SafeTensor> tensors; };
static Beginning beginning_of(const Arena& arena, const std::vector<NamedArray>& arrays) {
    JsonLine header;
    Beginning file;
    // Older readers require this key.
    header.raw("__metadata__", "{\"format\":\"pt\"}");
    uint64_t at = 0;
    for (const NamedArray& array : arrays)
        for (const TensorSpec& spec : array.arena(arena).tensors)
            for (const FileTensor& t : file_tensors(spec)) {
                const std::string name = t.name + (array.name.empty() ? "" : "." + array.name);
                const uint64_t begin = at;
                at += t.n * sizeof(float);
                header.raw(name.c_str(), JsonLine().add("dtype", "F32")
                    .raw("shape", shape_text(t.shape))
                    .raw("data_offsets", shape_text({begin, at})).text());
                file.tensors.push_back({name, "F32", t.shape, begin, at - begin});
            }
    std::string text = header.text();
    // The spaces align the data in a mapped file.
    text.resize(round_up<size_t>(8 + text.size(), 64) - 8, ' ');
    file.bytes = bytes_of(text.size()) + text;
    file.size = file.bytes.size() + at;
    for (SafeTensor& t : file.tensors) t.begin += file.bytes.size();
    return file;
}

void write_safetensors(FileWriter* file, const Arena& arena, const std::vector<NamedArray>& arrays,
                       const std::function<void()>& progress) {
    const std::string begins = beginning_of(arena, arrays).bytes;
    file->write(begins.data(), begins.size());
    std::vector<float> buffer;
    for (const NamedArray& array : arrays)
        for (size_t i = 0; i < arena.tensors.size(); i++) {
            const Arena& own = array.arena(arena);
            const TensorSpec& spec = own.tensors[i];
            const size_t n = spec.file_rows * spec.cols;
            const float* values = array.data + own.offset[i];
            check_finite(kExitOther, {values, n}, spec.name, "the model is not saved");
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

Tensors read_tensors(Tensors tensors, const Arena& theirs, const Arena& arena, float* values) {
    std::fill_n(values, arena.n, 0.0f);
    std::vector<float> buffer;
    Countdown left{"reading", arena.tensors.size(), "tensors"};
    auto next = tensors.begin();
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        left.at(i);
        const TensorSpec &own = arena.tensors[i], &spec = theirs.tensors[i];
        for (const FileTensor& want : file_tensors(spec)) {
            CHECK(next != tensors.end(), "tensor %s: it is missing", want.name.c_str());
            const SafeTensor& t = *next++;
            buffer.resize(want.n);
            CHECK(t.read(0, want.n, buffer.data()), "tensor %s: dtype %s", want.name.c_str(),
                  t.dtype.c_str());
            check_finite(kExitBadContent, buffer, t.file->path + ": " + want.name,
                         "take another checkpoint");
            float* const to = values + arena.offset[i] + want.begin;
            if (spec.transposed) transpose(to, buffer.data(), spec.cols, spec.file_rows);
            else std::copy_n(buffer.data(), std::min(want.n, own.rows * own.cols - want.begin), to);
        }
    }
    return {next, tensors.end()};
}

void read_safetensors(const std::string& path, const Arena& arena,
                      const std::vector<NamedArray>& arrays) {
    Beginning want = beginning_of(arena, arrays);
    const auto file = std::make_shared<InputFile>(path);
    std::string got(std::min<uint64_t>(want.bytes.size(), file->size), 0);
    file->read(0, got.data(), got.size());
    if (got != want.bytes || file->size != want.size)
        die_content(path, "other tensors",
                    "those of this run; resume with the model, the optimizer and the --reduce "
                    "it began with");
    for (SafeTensor& t : want.tensors) t.file = file;
    Tensors rest = want.tensors;
    for (const NamedArray& array : arrays) {
        const Arena& own = array.arena(arena);
        rest = read_tensors(rest, own, own, array.data);
    }
}
