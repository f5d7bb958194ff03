// import.cpp -- build/import FILE [-o DIR]: a Hugging Face folder of a model in one file, GGUF or llm.c's.
//
//     config.json           as the file's header says
//     model.safetensors     F32, in Hugging Face's order
//     tokenizer.json        GGUF's; GPT-2's for a file without one that has as many tokens, if it can be opened
//     chat_template.jinja   if the file has one
//
// Without -o the folder is in the cache (src/base/cache.h), by the file's content. With --answer or --crc train_gpt
// asks for a model, whose path is the request: tools/text/model_folder.h.
#include <algorithm>
#include <cmath>
#include <csignal>
#include "tools/text/config_reader.h"
#include "src/base/cache.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/data/data.h"
#include "tools/text/model_file.h"
#include "tools/text/model_folder.h"
#include "tools/text/reader.h"
#include "tools/text/tokenizer.h"
#include "tools/rope.h"
#include "tools/tool.h"

namespace {

constexpr int kVersion = 2;                 // of what is made of a file; part of its name in the cache

using Progress = std::function<void()>;

std::string hash_of(const std::string& path, const Progress& progress) {
    constexpr size_t kPiece = 1 << 20;
    FileReader file(path);
    uint64_t hash = 0;
    for (std::string_view piece; !(piece = file.look(kPiece)).empty(); file.take(piece.size())) {
        hash = hash_bytes(piece.data(), piece.size(), hash);
        progress();
    }
    return format("%llu-%016llx", (unsigned long long)file.file->size, (unsigned long long)hash);
}

// What is made of a file without its weights.
struct Head {
    std::string config_json, tokenizer, chat_template;
    ModelConfig config;
    bool lent = false;                      // the tokenizer is GPT-2's, which the file does not contain
};

// Returns config.json with Llama 3's scaling, of which GGUF has the divisors alone. Those of Llama 3.1 to 3.3 have low
// and high factors of 1 and 4. The factor is the largest divisor, and the context the power of two that gives all.
std::string with_scaling(const ModelFile& file, const std::string& path) {
    if (file.divisors.empty()) return file.config_json;
    const float factor = *std::ranges::max_element(file.divisors);
    for (int context = 1; context <= 1 << 24; context *= 2) {
        const std::string scaling = format(
            R"("rope_scaling":{"rope_type":"llama3","factor":%s,"low_freq_factor":1,"high_freq_factor":4,)"
            R"("original_max_position_embeddings":%d})", number_text(double(factor)).c_str(), context);
        const std::string config = "{" + scaling + "," + file.config_json.substr(1);
        const std::vector<float> ours = rope_divisors(parse_config(config, path.c_str()).shape);
        const auto near = [](float a, float b) { return std::fabs(a - b) <= 1e-6f * b; };
        if (std::ranges::equal(ours, file.divisors, near)) return config;
    }
    die_content(path + ": rope_freqs.weight", "other divisors", "those of Llama 3's scaling: low 1, high 4, and a "
                "context that is a power of two");
}

Head read_head(const std::string& path) {
    const ModelFile file = open_model_file(path);
    const std::string config = with_scaling(file, path);
    Head head = {config, "", file.chat_template, parse_config(config, path.c_str())};
    const ModelInfo& info = *head.config.info;
    head.config_json = format("{\"architectures\":[\"%s\"],%s\n", info.architecture, config.c_str() + 1);
    if (const uint64_t n = count_parameters(info.tensors(head.config.shape)); n > InputFile(path).size)
        die_content(path, "a model of " + with_commas(n) + " parameters", "one that the file has room for");
    if (!file.vocabulary.empty())
        head.tokenizer = tokenizer_json_of_gguf(file.split, file.vocabulary, file.begin, path);
    else if (head.config.shape.V == 50257) try {
        head.tokenizer = tokenizer_json_of_model(tokenizer_open("gpt2", nullptr));
        head.lent = true;
    } catch (const Error&) {}               // --tokenizer may name another
    return head;
}

void turn_rows(float* matrix, size_t rows, size_t cols, size_t head) {
    const std::vector<float> theirs(matrix, matrix + rows * cols);
    for (size_t row = 0; row < rows; row++)
        std::copy_n(&theirs[row * cols], cols, matrix + row_of_gguf(row, head) * cols);
}

// Brings the rows of Llama's q and k from GGUF's order to Hugging Face's.
void turn_heads(const ModelConfig& config, const Arena& arena, float* values) {
    if (!config.info->head_size) return;
    const size_t head = size_t(config.info->head_size(config.shape));
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        const size_t cols = arena.tensors[i].cols;
        float* part = values + arena.offset[i];
        for (const auto& [name, rows] : parts_of(arena.tensors[i])) {
            if (gguf_turns(config.info->name, name)) turn_rows(part, rows, cols, head);
            part += rows * cols;
        }
    }
}

void put_file(const std::string& path, const std::string& text) {
    if (text.empty()) return;
    FileWriter file(path);
    file.write(text.data(), text.size());
    file.finish();
}

// Returns tokenizer_config.json, which says what a template means by bos_token and eos_token.
std::string tokenizer_config(const Head& head, const std::string& path) {
    if (head.chat_template.empty() || head.tokenizer.empty()) return "";
    Tokenizer tokenizer = tokenizer_parse(head.tokenizer, path);
    read_ends(&tokenizer, {.config = head.config_json}, path);
    JsonLine line;
    line.add("tokenizer_class", "PreTrainedTokenizerFast").add("clean_up_tokenization_spaces", false);
    for (const auto& [key, token] : {std::pair("bos_token", tokenizer.bos), {"eos_token", tokenizer.eot}})
        if (const std::string name = tokenizer.name_of(token); !name.empty()) line.add(key, name);
    return line.text() + "\n";
}

void fill(const std::string& path, const Head& head, const std::string& into, const Progress& progress) {
    Shape shape = head.config.shape;
    shape.Vp = shape.V;                     // no padding
    const Arena arena = arena_layout(head.config.info->tensors(shape));
    std::vector<float> values(arena.n);
    read_model_file(path, arena, arena, values.data(), path_join(into, ".scratch"));
    progress();
    turn_heads(head.config, arena, values.data());
    require_space(into, arena.n * sizeof(float), "import");
    put_file(path_join(into, "config.json"), head.config_json);
    put_file(path_join(into, "tokenizer.json"), head.tokenizer);
    put_file(path_join(into, "chat_template.jinja"), head.chat_template);
    put_file(path_join(into, "tokenizer_config.json"), tokenizer_config(head, path));
    FileWriter file(path_join(into, "model.safetensors"));
    write_safetensors(&file, arena, {{"", values.data()}}, progress);
    file.finish();
}

std::string import_into_cache(const std::string& path, const Progress& progress) {
    const std::string hash = hash_of(path, progress);       // first: make() finds out whether it has changed since
    const Head head = read_head(path);
    const std::string name = format("import-%d-%s%s", kVersion, hash.c_str(), head.lent ? "-gpt2" : "");
    const auto make = [&](const std::string& into) {
        fill(path, head, into, progress);
        if (hash_of(path, progress) != hash)
            die(kExitBadContent, "%s: it has changed while it was read; start again", path.c_str());
    };
    return cached(cache_folder(""), name, make, progress);
}

// Answers train_gpt. crc: the answer has the CRC-32C of the weights.
int answer(bool crc) {
    return answer_request([crc](const std::string& path, const Progress& progress) {
        const auto convert = [&](const std::string& file) { return import_into_cache(file, progress); };
        return describe_model(path, crc, convert);
    });
}

int run(const Words& words, std::string into, bool answers, bool crc) {
    std::signal(SIGXFSZ, SIG_IGN);          // a limit of file sizes is an error like a full disk
    if ((answers || crc) && words.empty()) return answer(crc);
    if (words.size() != 1) die(kExitUsage, "got %zu files, want one; see import --help", words.size());
    if (into.empty()) {
        into = import_into_cache(words[0], [] {});
    } else {
        const Head head = read_head(words[0]);
        if (rmdir(into.c_str()) != 0 && errno != ENOENT)
            die(kExitUsage, "-o: %s: it exists; give a new name", into.c_str());
        make_folder(without_slash(into), [&](const std::string& work) { fill(words[0], head, work, [] {}); });
    }
    std::printf("%s\n", escape_control(into).c_str());
    return kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
    std::string into;
    bool answers = false, crc = false;
    const Tool tool = {"import",
        "usage: import FILE [-o DIR]\n"
        "Makes a Hugging Face folder of a model in one file: .gguf of f32, f16, bf16 or q8_0, or llm.c's GPT-2 .bin.\n",
        {{"-o", "DIR", "where; it must not exist, or be empty (not given: in the cache, LOCKSTEP_CACHE or "
          "~/.cache/lockstep)", &into},
         {"--answer", "", "", &answers},
         {"--crc", "", "", &crc}},
        "Prints the folder. exit codes: 0, 2 usage, 65 bad content, 66 no file, 74 a write failed\n"};
    return tool_main(tool, argc, argv, [&](const Words& words) { return run(words, into, answers, crc); });
}
