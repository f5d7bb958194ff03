// info.cpp -- build/info FILE...: what a file or folder is: model, checkpoint, run, tokens, tokenizer, config or
// metrics.
//
// Everything printed may come from a hostile file: the readers check it, and control bytes are escaped before they
// reach a terminal. Exit codes: 0, 2 usage, 65 damaged or unknown content, 66 missing; of several files the first
// failure's.
#include <algorithm>
#include <cinttypes>
#include <climits>
#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>
#include "models/config.h"
#include "src/app/log.h"
#include "src/base/common.h"
#include "src/base/json.h"
#include "src/checkpoint/checkpoint.h"
#include "src/data/shards.h"
#include "src/data/tokenizer.h"

namespace {

uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
    if (uint64_t sum; !__builtin_add_overflow(a, b, &sum)) return sum;
    die(kExitBadContent, "%s: size overflows", what);
}

const char* const kUsage =
    "usage: info FILE...\n"
    "Says what a file or folder is and whether it is whole: a run, a checkpoint or Hugging Face folder, .safetensors, "
    "GGUF,\n"
    "token files (llm.c, nanoGPT, .npy), text, tokenizer.json, config.json, metrics.jsonl.\n"
    "exit codes: 0 all are fine, 65 one is damaged or of an unknown kind, 66 one is missing, 2 usage\n";

// One line of the answer.
__attribute__((format(printf, 1, 2))) void say(const char* text, ...) {
    va_list args;
    va_start(args, text);
    char* line = nullptr;
    const int n = vasprintf(&line, text, args);
    va_end(args);
    if (n < 0) return;
    std::printf("%s\n", escape_control(line).c_str());
    std::free(line);
}

// ---------------------------------------------------------------------------------------------------------- tensors

struct Stats {
    double mean = 0, deviation = 0, largest = 0;
    uint64_t not_finite = 0;
};

// In blocks, so that a tensor of any size needs 256 KiB.
Stats stats_of(const SafeTensor& t, size_t n) {
    std::vector<float> x(std::min<size_t>(n, 65536));
    Stats s;
    double sum = 0, squares = 0;
    for (size_t at = 0; at < n; at += x.size()) {
        const size_t count = std::min(x.size(), n - at);
        t.read(at, count, x.data());
        for (size_t i = 0; i < count; i++) {
            const double v = double(x[i]);
            if (!std::isfinite(v)) {
                s.not_finite++;
                continue;
            }
            sum += v;
            squares += v * v;
            s.largest = std::max(s.largest, std::fabs(v));
        }
    }
    const double count = double(n - s.not_finite);
    s.mean = count > 0 ? sum / count : 0;
    s.deviation = count > 0 ? std::sqrt(std::max(0.0, squares / count - s.mean * s.mean)) : 0;
    return s;
}

void show_safetensors(const std::string& path) {
    const SafeTensors file = open_safetensors(path);
    uint64_t values = 0, not_finite = 0;
    size_t width = 6;
    for (const SafeTensor& t : file.tensors) width = std::max(width, t.name.size());
    say("%s: safetensors, %s bytes, %zu tensors", path.c_str(), with_commas(file.files[0]->size).c_str(),
        file.tensors.size());
    if (!file.tensors.empty())
        say("  %-*s %-7s %-16s %10s %10s %10s", int(width), "tensor", "dtype", "shape", "mean", "std", "max abs");
    for (const SafeTensor& t : file.tensors) {
        uint64_t n = 1;
        for (const uint64_t dim : t.shape) n *= dim;  // checked by the reader
        values += n;
        const bool floats = t.dtype == "F32" || t.dtype == "F16" || t.dtype == "BF16";
        const Stats s = floats ? stats_of(t, size_t(n)) : Stats{};
        not_finite += s.not_finite;
        std::string numbers;
        if (floats)
            numbers = format(" %10.3g %10.3g %10.3g%s", s.mean, s.deviation, s.largest,
                             s.not_finite ? "  NaN or infinite!" : "");
        say("  %-*s %-7s %-16s%s", int(width), t.name.c_str(), t.dtype.c_str(), shape_text(t.shape).c_str(),
            numbers.c_str());
    }
    say("  %s values", with_commas(values).c_str());
    if (not_finite)
        die(kExitBadContent, "%s: %s values are NaN or infinite", path.c_str(), with_commas(not_finite).c_str());
}

// Reads of a GGUF file's header, each checked against the bytes left.
struct Cursor {
    FileReader file;
    const char* path;
    size_t at = 0;
    std::string take(uint64_t n) {
        if (n > file.file->size - at) die(kExitBadContent, "%s: byte %zu: the file ends inside the header", path, at);
        std::string taken(file.look(n).substr(0, n));
        file.take(n);
        at += n;
        return taken;
    }
    template <class T>
    T number() {
        T x;
        std::memcpy(&x, take(sizeof x).data(), sizeof x);
        return x;
    }
    std::string text(uint64_t most) {
        return take(number<uint64_t>()).substr(0, most);
    }
};

// Bytes of GGUF's scalar types 0..12; 8 is a string, 9 an array.
constexpr uint64_t kGgufBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::string gguf_value(Cursor* c, uint32_t type) {
    if (type == 8) return json_quote(c->text(60));
    if (type == 9) {
        const uint32_t element = c->number<uint32_t>();
        const uint64_t n = c->number<uint64_t>();
        if (element > 12 || element == 9)
            die(kExitBadContent, "%s: byte %zu: array of type %u, want 0..8 or 10..12", c->path, c->at, element);
        if (element == 8)
            for (uint64_t i = 0; i < n; i++) c->text(0);  // each takes 8 bytes or more: ends with the file
        else
            c->take(checked_mul(n, kGgufBytes[element], c->path));
        return format("%s values", with_commas(n).c_str());
    }
    if (type > 12) die(kExitBadContent, "%s: byte %zu: value of type %u, want 0..12", c->path, c->at, type);
    if (type == 6) return format("%g", double(c->number<float>()));
    if (type == 12) return format("%g", c->number<double>());
    uint64_t x = 0;
    std::memcpy(&x, c->take(kGgufBytes[type]).data(), size_t(kGgufBytes[type]));
    if (type == 7) return x ? "true" : "false";
    if (type == 1) return std::to_string(int8_t(x));
    if (type == 3) return std::to_string(int16_t(x));
    if (type == 5) return std::to_string(int32_t(x));
    return type == 11 ? std::to_string(int64_t(x)) : std::to_string(x);
}

void show_gguf(const std::string& path) {
    Cursor c{FileReader(path), path.c_str()};
    c.take(4);
    const uint64_t size = c.file.file->size;
    const uint32_t version = c.number<uint32_t>();
    if (version < 2 || version > 3) die(kExitBadContent, "%s: GGUF version %u, want 2 or 3", path.c_str(), version);
    const uint64_t tensors = c.number<uint64_t>(), keys = c.number<uint64_t>();
    say("%s: GGUF version %u, %s bytes, %s tensors, %s keys", path.c_str(), version, with_commas(size).c_str(),
        with_commas(tensors).c_str(), with_commas(keys).c_str());
    for (uint64_t i = 0; i < keys; i++) {
        const std::string key = c.text(100);
        const uint32_t type = c.number<uint32_t>();
        say("  %s = %s", key.c_str(), gguf_value(&c, type).c_str());
    }
    struct Place {
        uint64_t offset, bytes;
    };
    std::vector<Place> places;
    for (uint64_t i = 0; i < tensors; i++) {
        const std::string name = c.text(100);
        const uint32_t dims = c.number<uint32_t>();
        if (dims > 4)
            die(kExitBadContent, "%s: tensor %s: %u dimensions, want at most 4", path.c_str(), name.c_str(), dims);
        std::vector<uint64_t> shape;
        uint64_t n = 1;
        for (uint32_t d = 0; d < dims; d++) {
            shape.insert(shape.begin(), c.number<uint64_t>());  // the file has the fastest first
            n = checked_mul(n, shape[0], path.c_str());
        }
        const uint32_t type = c.number<uint32_t>();
        const uint64_t offset = c.number<uint64_t>();
        const bool known = type == 0 || type == 1 || type == 30;  // F32, F16, BF16: others are blocks of several values
        places.push_back({offset, checked_mul(n, type == 0 ? 4 : known ? 2 : 0, path.c_str())});
        const std::string dtype = type == 0 ? "F32" : type == 1 ? "F16" : type == 30 ? "BF16" : format("type %u", type);
        say("  %-32s %-7s %s", name.c_str(), dtype.c_str(), shape_text(shape).c_str());
    }
    const uint64_t begin = round_up<uint64_t>(c.at, 32);
    for (const Place& p : places)
        if (checked_add(checked_add(begin, p.offset, path.c_str()), p.bytes, path.c_str()) > size)
            die(kExitBadContent, "%s: a tensor's data end beyond the file", path.c_str());
}

// ---------------------------------------------------------------------------------------------------------- llm.c

void show_llmc(const std::string& path, const InputFile& file) {
    int32_t head[256] = {};
    if (file.size < sizeof head)
        die(kExitBadContent, "%s: llm.c file of %zu bytes, want a header of 1,024", path.c_str(), size_t(file.size));
    file.read(0, head, sizeof head);
    static const std::map<int32_t, const char*> other = {{20240327, "debug state"},
                                                         {20240328, "tokenizer"},
                                                         {20240522, "evaluation data"},
                                                         {20240527, "optimizer state"},
                                                         {20240803, "Llama 3 model"}};
    if (const auto found = other.find(head[0]); found != other.end()) {
        say("%s: llm.c %s, version %d, %s bytes", path.c_str(), found->second, head[1], with_commas(file.size).c_str());
        return;
    }
    if (head[1] != 3 && head[1] != 5)
        die(kExitBadContent, "%s: llm.c model: version %d, want 3 (fp32) or 5 (bf16)", path.c_str(), head[1]);
    static const char* const names[] = {"max_seq_len", "vocab_size", "num_layers",
                                        "num_heads",   "channels",   "padded_vocab_size"};
    for (int i = 0; i < 6; i++)
        if (head[2 + i] < 1 || head[2 + i] > 1 << 24)
            die(kExitBadContent, "%s: llm.c model: %s: got %d, want 1..%d", path.c_str(), names[i], head[2 + i],
                1 << 24);
    const uint64_t T = uint64_t(head[2]), V = uint64_t(head[3]), L = uint64_t(head[4]), C = uint64_t(head[6]),
                   Vp = uint64_t(head[7]);
    if (Vp < V)
        die(kExitBadContent, "%s: llm.c model: padded_vocab_size: got %d, want %d or more", path.c_str(), head[7],
            head[3]);
    const auto mul = [&](uint64_t a, uint64_t b) { return checked_mul(a, b, path.c_str()); };
    const auto add = [&](uint64_t a, uint64_t b) { return checked_add(a, b, path.c_str()); };
    const uint64_t block = add(mul(12, mul(C, C)), mul(13, C));  // 4 matrices, 4 biases, 2 LayerNorms
    const uint64_t common = add(mul(add(T, 2), C), mul(L, block));
    const uint64_t bytes = add(mul(add(common, mul(Vp, C)), head[1] == 3 ? 4 : 2), sizeof head);
    if (bytes != file.size)
        die(kExitBadContent, "%s: llm.c model: got %s bytes, want %s for its header's shape", path.c_str(),
            with_commas(file.size).c_str(), with_commas(bytes).c_str());
    say("%s: llm.c model, %s, %s bytes", path.c_str(), head[1] == 3 ? "fp32" : "bf16", with_commas(file.size).c_str());
    say("  %d layers, %d heads, %d channels, context %d, vocabulary %d (%d rows), %s parameters", head[4], head[5],
        head[6], head[2], head[3], head[7], with_commas(common + V * C).c_str());
}

// ---------------------------------------------------------------------------------------------------- tokens and text

void show_tokens(const std::string& path, Format kind) {
    const Shard shard = open_token_file(path, kind);
    say("%s: %s, %s tokens (uint%zu)", path.c_str(), format_name(kind), with_commas(shard.tokens).c_str(),
        8 * shard.width);
    if (shard.tokens == 0) die(kExitBadContent, "%s: no tokens", path.c_str());
    std::vector<int> tokens(size_t(std::min<uint64_t>(shard.tokens, 1 << 20)));
    int smallest = INT_MAX, largest = 0;
    std::string first;
    for (uint64_t at = 0; at < shard.tokens; at += tokens.size()) {
        const size_t n = size_t(std::min<uint64_t>(tokens.size(), shard.tokens - at));
        shard.read(at, n, tokens.data(), INT_MAX);
        if (at == 0)
            for (size_t i = 0; i < std::min<size_t>(n, 16); i++) first += " " + std::to_string(tokens[i]);
        const auto [low, high] = std::minmax_element(tokens.begin(), tokens.begin() + long(n));
        smallest = std::min(smallest, *low);
        largest = std::max(largest, *high);
    }
    say("  ids %d to %d: a vocabulary of %d or more; first%s", smallest, largest, largest + 1, first.c_str());
}

void show_metrics(const std::string& path) {
    const std::string text = read_file(path);
    std::map<std::string, int> events;
    int torn = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        try {
            events[parse_json(std::string_view(text).substr(at, end - at), path.c_str())
                       .get_string("event", path.c_str())]++;
        } catch (const Error&) {
            torn++;
        }
        at = end + 1;
    }
    std::string counts;
    for (const auto& [name, n] : events)
        counts += format("%s%d %s", counts.empty() ? "" : ", ", n, name.substr(0, 40).c_str());
    say("%s: metrics: %s%s", path.c_str(), counts.c_str(),
        torn ? format(", %d lines that cannot be read", torn).c_str() : "");
    const Metrics m = read_metrics(path);
    const auto range = [](const char* name, const auto& points) {
        if (points.empty()) return;
        say("  %s: step %" PRId64 " loss %.4f ... step %" PRId64 " loss %.4f", name, int64_t(points.front().first),
            points.front().second, int64_t(points.back().first), points.back().second);
    };
    range("train", m.train);
    range("val", m.val);
}

void show_text(const std::string& path, Format kind) {
    FileReader file(path);
    std::string_view line;
    uint64_t lines = 0;
    if (!file.line(&line)) die(kExitBadContent, "%s: empty", path.c_str());
    if (kind == Format::jsonl || line.starts_with('{')) {
        const Json first = parse_json(line, path.c_str());
        if (first.find("event")) return show_metrics(path);
    }
    FileReader again(path);
    for (std::string_view piece; !(piece = again.look(1)).empty(); again.take(piece.size()))
        lines += uint64_t(std::ranges::count(piece, '\n'));
    say("%s: %s, %s bytes, %s lines", path.c_str(), format_name(kind), with_commas(file.file->size).c_str(),
        with_commas(lines).c_str());
}

// ---------------------------------------------------------------------------------------------------------- JSON

void show_tokenizer(const std::string& path) {
    const Tokenizer t = tokenizer_load(path);
    say("%s: tokenizer %s, %d tokens, end of text %s", path.c_str(), t.name.c_str(), t.vocab_size,
        t.eot < 0 ? "none" : std::to_string(t.eot).c_str());
    std::vector<int> tokens;
    const std::string text = "Hello world";
    try {
        t.encode(text, &tokens);
    } catch (const Error&) {
        return;
    }  // characters that it does not know
    std::string ids;
    for (const int id : tokens) ids += " " + std::to_string(id);
    say("  \"%s\" ->%s", text.c_str(), ids.c_str());
}

void show_model_config(const std::string& path, std::string_view text) {
    const ModelConfig c = parse_config(text, path.c_str());
    say("%s: %s config: %s, context %d, vocabulary %d, dropout %g, %s parameters", path.c_str(), c.info->title,
        c.info->text(c.shape).c_str(), c.shape.T, c.shape.V, double(c.shape.dropout),
        with_commas(count_parameters(c.info->tensors(c.shape))).c_str());
}

void show_json(const std::string& path) {
    const std::string text = read_file(path);
    const Json j = parse_json(text, path.c_str(), true);
    if (j.find("added_tokens") || j.find("model").find("vocab")) return show_tokenizer(path);
    if (j.find("model_type")) return show_model_config(path, text);
    std::string keys;
    size_t members = 0;
    for (JsonItems i(j); i.next(); members++)
        if (members < 12) keys += (members ? ", " : "") + i.key.text().substr(0, 40);
    const Json options = j.find("options");  // a vocabulary has words such as "options" and "step" among thousands
    const bool run = (options.kind() == Json::object && !j.find("step")) || (j.find("seq_len") && j.find("preset"));
    if (!run && !(j.find("step") && members <= 64))
        die(kExitBadContent, "%s: JSON, but no tokenizer, model config, run config or state; its keys: %s",
            path.c_str(), keys.empty() ? "none" : keys.c_str());
    say("%s: %s: %s%s", path.c_str(), run ? "a run's config" : "a checkpoint's state", keys.c_str(),
        members > 12 ? ", ..." : "");
}

// ---------------------------------------------------------------------------------------------------------- folders

void show_model_folder(const std::string& folder) {
    if (file_exists(path_join(folder, "DONE"))) {
        if (const std::string why = verify_checkpoint(folder, true); !why.empty())
            die(kExitBadContent, "bad checkpoint: %s: %s", folder.c_str(), why.c_str());
        say("%s: a complete checkpoint, all checksums right", folder.c_str());
    } else {
        say("%s: a Hugging Face folder", folder.c_str());
    }
    show_model_config(path_join(folder, "config.json"), read_file(path_join(folder, "config.json")));
    if (file_exists(path_join(folder, "tokenizer.json"))) show_tokenizer(path_join(folder, "tokenizer.json"));
    show_safetensors(path_join(folder, "model.safetensors"));
}

void show_run(const std::string& folder) {
    say("%s: a run", folder.c_str());
    if (file_exists(path_join(folder, "metrics.jsonl"))) show_metrics(path_join(folder, "metrics.jsonl"));
    const std::string ckpt = path_join(folder, "ckpt");
    if (!is_directory(ckpt)) return;
    for (const std::string& name : list_directory(ckpt)) {
        if (!name.starts_with("step_")) continue;
        const std::string why = verify_checkpoint(path_join(ckpt, name), true);
        say("  ckpt/%s: %s", name.c_str(), why.empty() ? "complete, all checksums right" : ("bad: " + why).c_str());
    }
    find_checkpoint(folder);  // the error where none is whole
}

void show(const std::string& path) {
    if (is_directory(path)) {
        if (file_exists(path_join(path, "model.safetensors")) || file_exists(path_join(path, "DONE")))
            return show_model_folder(path);
        if (is_directory(path_join(path, "ckpt")) || file_exists(path_join(path, "metrics.jsonl")))
            return show_run(path);
        die(kExitBadContent, "%s: a folder, but no run, checkpoint or Hugging Face folder", path.c_str());
    }
    const InputFile file(path);
    std::string head(std::min<size_t>(file.size, 16), '\0');
    file.read(0, head.data(), head.size());
    uint32_t magic = 0;
    std::memcpy(&magic, head.data(), std::min<size_t>(head.size(), 4));
    const auto ends = [&](std::string_view suffix) {
        return path.size() > suffix.size() && std::string_view(path).ends_with(suffix);
    };
    if (ends(".safetensors")) return show_safetensors(path);
    if (head.starts_with("GGUF")) return show_gguf(path);
    if (magic == 20240326 || magic == 20240327 || magic == 20240328 || magic == 20240522 || magic == 20240527 ||
        magic == 20240803)
        return show_llmc(path, file);
    if (ends(".json")) return show_json(path);
    if (ends(".bpe")) return show_tokenizer(path);
    if (head.size() > 8 && head[8] == '{' && head.substr(2, 6) == std::string(6, '\0'))
        return show_safetensors(path);
    const Source source = find_source(path);
    source.is_text() ? show_text(path, source.format) : show_tokens(path, source.format);
}
}  // namespace

int main(int argc, char** argv) {
    set_program("info");
    int code = 0, files = 0;
    for (int i = 1; i < argc; i++) {
        const std::string arg = argv[i];
        try {
            if (arg == "--help" || arg == "-h") {
                std::fputs(kUsage, stdout);
                return 0;
            }
            if (arg.size() > 1 && arg[0] == '-')
                die(kExitUsage, "unknown option: %s: %s; see info --help", arg.c_str(),
                    edit_distance(arg, "--help") <= 3 ? "did you mean --help?" : "there is only --help");
            files++;
            show(arg);
        } catch (const Error& error) {
            std::fflush(stdout);
            print_error(error);
            if (error.code == kExitUsage) return kExitUsage;
            if (code == 0) code = error.code;
        } catch (const std::exception& error) {
            std::fflush(stdout);
            print_error({kExitOther, arg + ": " + error.what()});
            if (code == 0) code = kExitOther;
        }
    }
    if (files == 0) {
        std::fputs(kUsage, stderr);
        return kExitUsage;
    }
    return code;
}
