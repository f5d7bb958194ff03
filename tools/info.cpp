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
#include <cstring>
#include <map>
#include "tools/text/config_reader.h"
#include "src/base/common.h"
#include "src/base/json.h"
#include "src/checkpoint/checkpoint.h"
#include "tools/curves.h"
#include "tools/text/model_file.h"
#include "tools/text/reader.h"
#include "tools/text/tensor_files.h"
#include "tools/text/text.h"
#include "tools/text/token_files.h"
#include "tools/text/tokenizer.h"
#include "tools/tool.h"

namespace {

const Tool kTool = {"info",
    "usage: info FILE...\n"
    "Says what a file or folder is and whether it is whole: a run, a checkpoint or Hugging Face folder, .safetensors, "
    "GGUF,\n"
    "token files (llm.c, nanoGPT, .npy), text, tokenizer.json, config.json, metrics.jsonl.\n"
    "exit codes: 0 all are fine, 65 one is damaged or of an unknown kind, 66 one is missing, 2 usage\n"};

// One line of the answer.
__attribute__((format(printf, 1, 2))) void say(const char* text, ...) {
    va_list args;
    va_start(args, text);
    std::printf("%s\n", escape_control(vformat(text, args)).c_str());
    va_end(args);
}

// ---------------------------------------------------------------------------------------------------------- tensors

struct Stats { double mean = 0, deviation = 0, largest = 0; uint64_t not_finite = 0; };

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

void show_gguf(const std::string& path, uint64_t size) {
    const GgufContents file = read_gguf_head(path);
    const uint64_t data = size - std::min(size, file.data);
    say("%s: GGUF version 3, %s bytes, %zu tensors, %zu keys", path.c_str(), with_commas(size).c_str(),
        file.tensors.size(), file.keys.size());
    for (const auto& [key, json] : file.keys) {
        size_t n = 0;
        for (JsonItems i(Json{json}); i.next();) n++;
        const std::string value = json[0] == '[' ? with_commas(n) + " values" : json_shown({json});
        say("  %s = %s", key.substr(0, 100).c_str(), value.c_str());
    }
    for (const SafeTensor& t : file.tensors) {
        say("  %-32s %-9s %s", t.name.substr(0, 100).c_str(), t.dtype.c_str(), shape_text(t.shape).c_str());
        if (t.bytes > data || t.begin > data - t.bytes)
            die(kExitBadContent, "%s: a tensor's data end beyond the file", path.c_str());
    }
}

// ---------------------------------------------------------------------------------------------------- tokens and text

void show_tokens(const std::string& path, Format kind) {
    const Shard shard = open_token_file(path);
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
    for (std::string_view rest = text; !rest.empty();) try {
        events[parse_json(next_word(&rest, '\n'), path.c_str()).get_string("event", path.c_str())]++;
    } catch (const Error&) {
        torn++;
    }
    std::vector<std::string> counts;
    for (const auto& [name, n] : events) counts.push_back(std::to_string(n) + " " + name.substr(0, 40));
    if (torn) counts.push_back(format("%d lines that cannot be read", torn));
    say("%s: metrics: %s", path.c_str(), join(counts, ", ").c_str());
    RunLog log(path);
    log.read();
    const auto range = [](const char* name, const Points& points) {
        if (points.empty()) return;
        say("  %s: step %.0f loss %.4f ... step %.0f loss %.4f", name, points.front().at[kSteps], points.front().y,
            points.back().at[kSteps], points.back().y);
    };
    range("train", log.curve("loss"));
    range("val", log.curve("val"));
}

void show_text(const std::string& path, Format kind) {
    FileReader file(path);
    std::string_view line;
    uint64_t lines = 1;
    if (!file.line(&line)) die(kExitBadContent, "%s: empty", path.c_str());
    if (kind == Format::jsonl || line.starts_with('{'))
        if (parse_json(line, path.c_str()).find("event")) return show_metrics(path);
    while (file.line(&line)) lines++;
    say("%s: %s, %s bytes, %s lines", path.c_str(), format_name(kind), with_commas(file.file->size).c_str(),
        with_commas(lines).c_str());
}

// ---------------------------------------------------------------------------------------------------------- JSON

void show_tokenizer(const std::string& path) {
    const Tokenizer t = tokenizer_load(path);
    say("%s: tokenizer %s, %d tokens, end of text %s", path.c_str(), t.name.c_str(), t.vocab_size,
        t.eot < 0 ? "none" : std::to_string(t.eot).c_str());
    std::vector<int> tokens;
    try {
        t.encode("Hello world", &tokens);
    } catch (const Error&) {        // characters that it does not know
        return;
    }
    std::string ids;
    for (const int id : tokens) ids += " " + std::to_string(id);
    say("  \"Hello world\" ->%s", ids.c_str());
}

void show_model_config(const std::string& path, std::string_view text) {
    const ModelConfig c = parse_config(text, path.c_str());
    say("%s: %s config: %s, context %d, vocabulary %d, dropout %g, %s parameters", path.c_str(), c.info->title,
        c.info->text(c.shape).c_str(), c.shape.T, c.shape.V, double(c.shape.dropout),
        with_commas(count_parameters(c.info->tensors(c.shape))).c_str());
}

void show_llmc(const std::string& path, uint64_t size) {
    const ModelFile model = open_model_file(path);
    const SafeTensor& weights = model.weights.tensors[0];
    const ModelConfig c = parse_config(model.config_json, path.c_str());
    const uint64_t rows = weights.shape[0], V = uint64_t(c.shape.V), width = weights.dtype == "F32" ? 4 : 2;
    const uint64_t values = count_parameters(c.info->tensors(c.shape)) + (rows - V) * uint64_t(c.shape.C);
    const uint64_t want = 1024 + values * width;
    if (rows < V || size != want)
        die_content(path, with_commas(size) + " bytes", with_commas(want) + " for its header's shape");
    say("%s: llm.c model, %s, %s bytes", path.c_str(), width == 4 ? "fp32" : "bf16", with_commas(size).c_str());
    show_model_config(path, model.config_json);
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

constexpr std::pair<uint32_t, const char*> kLlmcFiles[] = {
    {20240327, "debug state"}, {20240328, "tokenizer"}, {20240522, "evaluation data"}, {20240527, "optimizer state"},
    {20240803, "Llama 3 model"}};

void show(const std::string& path) {
    if (is_directory(path)) {
        if (file_exists(path_join(path, "model.safetensors")) || file_exists(path_join(path, "DONE")))
            return show_model_folder(path);
        if (is_directory(path_join(path, "ckpt")) || file_exists(path_join(path, "metrics.jsonl")))
            return show_run(path);
        die(kExitBadContent, "%s: a folder, but no run, checkpoint or Hugging Face folder", path.c_str());
    }
    FileReader file(path);
    const std::string head(file.look(16).substr(0, 16));
    const uint64_t size = file.file->size;
    uint32_t magic = 0;
    std::memcpy(&magic, head.data(), std::min<size_t>(head.size(), 4));
    if (path.ends_with(".safetensors")) return show_safetensors(path);
    if (head.starts_with("GGUF")) return show_gguf(path, size);
    if (magic == 20240326) return show_llmc(path, size);
    for (const auto& [number, kind] : kLlmcFiles)
        if (magic == number) return say("%s: llm.c %s, %s bytes", path.c_str(), kind, with_commas(size).c_str());
    if (path.ends_with(".json")) return show_json(path);
    if (path.ends_with(".bpe")) return show_tokenizer(path);
    if (head.size() > 8 && head[8] == '{' && head.substr(2, 6) == std::string(6, '\0'))
        return show_safetensors(path);
    const Source source = find_texts(path);
    source.is_text() ? show_text(path, source.format) : show_tokens(path, source.format);
}

int run(const Words& files) {
    int code = kExitDone;
    if (files.empty()) return std::fputs(kTool.head, stderr), kExitUsage;
    for (const std::string& file : files) try {
        show(file);
    } catch (const Error& error) {
        std::fflush(stdout);
        print_error(error);
        if (code == kExitDone) code = error.code;
    }
    return code;
}
}  // namespace

int main(int argc, char** argv) { return tool_main(kTool, argc, argv, run); }
