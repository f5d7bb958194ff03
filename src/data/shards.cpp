// shards.cpp -- recognising files and reading tokens from them. Layouts: llm.c's dataloader.h, numpy's format.py (1.0),
// nanoGPT's prepare.py. Nothing is allocated from a number in a file before it is checked against the file's size.
#include "src/data/shards.h"
#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"

using ull = unsigned long long;

// ---- one file

// Returns content_hash of n files. file(i) opens file i.
template <class F>
static uint64_t hash_files(size_t n, const F& file, std::vector<uint32_t>* crcs, bool all = false) {
    constexpr uint64_t kBlock = 64 << 10;
    uint64_t total = 0, h = n;
    for (size_t i = 0; i < n; i++) total += file(i)->size;
    const uint64_t step = all ? kBlock : std::max<uint64_t>(1, ceil_div(total, kHashed)) * kBlock;
    std::vector<char> block(kBlock);
    for (size_t i = 0; i < n; i++) {
        const std::shared_ptr<InputFile> f = file(i);
        uint32_t crc = 0;
        h = hash_bytes(&f->size, sizeof f->size, h);
        for (uint64_t at = 0; at < f->size; at += step) {
            const size_t bytes = size_t(std::min(kBlock, f->size - at));
            f->read(at, block.data(), bytes);
            h = hash_bytes(block.data(), bytes, h);
            crc = crc32c(crc, block.data(), bytes);
        }
        if (crcs && step == kBlock) crcs->push_back(crc);
    }
    return h;
}

uint64_t content_hash(const InputFiles& files, std::vector<uint32_t>* crcs) {
    return hash_files(files.size(), [&](size_t i) { return files[i]; }, crcs);
}

uint64_t content_hash(const std::vector<std::string>& files, bool all) {
    const auto open = [&](size_t i) { return std::make_shared<InputFile>(files[i], "data"); };
    return hash_files(files.size(), open, nullptr, all);
}

struct Listed { uint64_t tokens; uint32_t crc; };         // a shard in the manifest

// Reads what build/prep has recorded about a folder's shards; returns none if it did not make the folder.
// kExitBadContent if it has not finished there.
static std::map<std::string, Listed> read_manifest(const std::string& folder) {
    const std::string path = path_join(folder, "manifest.json"), begun = path_join(folder, "prep.json");
    std::map<std::string, Listed> shards;
    if (!file_exists(path)) {
        if (file_exists(begun)) die_content("data: " + folder, "a part of the shards", "all; run build/prep again");
        return shards;
    }
    const std::string text = read_file(path);
    const Json json = parse_json(text, path.c_str());
    for (const char* part : {"train", "val"})
        for (JsonItems i(json.find(part).find("shards")); i.next();)
            shards[i.value.get_string("file", path.c_str())] = {i.value.get_u64("tokens", path.c_str()),
                                                                uint32_t(i.value.get_u64("crc32c", path.c_str()))};
    return shards;
}

void check_manifest(const Source& source, const std::vector<uint32_t>& crcs) {
    const char* const again = "what build/prep wrote there; make the shards anew in another folder";
    std::string folder;
    std::map<std::string, Listed> listed;
    for (size_t i = 0; i < source.files.size() && source.format == Format::llmc; i++) {
        const std::string &file = source.files[i], beside = parent_folder(file);
        if (beside != folder) listed = read_manifest(folder = beside);
        if (listed.empty()) continue;
        const auto found = listed.find(base_name(file));
        if (found == listed.end()) die_content("data: " + file, "a file that manifest.json does not list", again);
        if (!crcs.empty() && crcs[i] != found->second.crc)
            die_content("data: " + file, format("CRC-32C %08x", crcs[i]), format("%08x, ", found->second.crc) + again);
        if (const uint64_t n = open_token_file(file, source.format).tokens; n != found->second.tokens)
            die_content("data: " + file, with_commas(n) + " tokens", with_commas(found->second.tokens) + ", " + again);
    }
}

// ---- finding files

const char* format_name(Format format) {
    static const char* const names[] = {"text", "jsonl", "conversations", "prompts and completions",
                                        "a numpy array", "an llm.c token shard", "raw uint16 tokens"};
    return names[int(format)];
}

struct LlmcKind { uint32_t magic, version, width; };        // width: bytes of a token
static constexpr LlmcKind llmc_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};     // of GPT-2, of Llama 3

static Format recognise(const std::string& path) {
    const InputFile file(path, "data");
    std::string head(size_t(std::min<uint64_t>(file.size, 16384)), '\0');
    file.read(0, head.data(), head.size());
    if (path.ends_with(".npy") || head.starts_with("\x93NUMPY")) return Format::npy;
    for (const LlmcKind& kind : llmc_kinds)
        if (head.size() >= 4 && std::memcmp(head.data(), &kind.magic, 4) == 0) return Format::llmc;
    const auto is_control = [](char c) {
        return uint8_t(c) < 0x20 && std::string_view("\t\n\v\f\r\x1b").find(c) == std::string_view::npos;
    };
    // Up to 1 % of a text may be control bytes. Of a compressed file or a picture, 10 % are.
    const size_t controls = size_t(std::ranges::count_if(head, is_control));
    const bool text = head.find('\0') == std::string::npos && controls * 100 <= head.size();
    if (path.ends_with(".bin")) {
        if (text && head.size() >= 64) die_content("data: " + path, "text", "tokens in a .bin; rename it to .txt");
        return Format::raw;
    }
    if (path.ends_with(".jsonl")) return Format::jsonl;
    if (!text) die_content("data: " + path, "neither text nor tokens", "UTF-8 text, .jsonl, .npy, or a .bin");
    return Format::text;
}

std::vector<std::string> find_files(const std::string& path) {
    std::vector<std::string> files;
    if (!is_directory(path)) {
        files = file_exists(path) ? std::vector<std::string>{path} : expand_glob(path);
    } else {
        for (const std::string& name : list_directory(path))
            if (name[0] != '.') files.push_back(path_join(path, name));
    }
    std::erase_if(files, is_directory);
    return files;
}

Source find_source(const std::string& path) {
    Source source = {.path = path, .files = find_files(path)};
    for (const auto& [name, shard] : read_manifest(path))
        if (std::ranges::count(source.files, path_join(path, name)) == 0)
            die(kExitBadContent, "data: %s: it is missing, and manifest.json lists it; run build/prep again in "
                "another folder", path_join(path, name).c_str());
    // A manifest and tokenizer.json beside shards are no data.
    const auto ends_with = [](const char* end) { return [end](const std::string& f) { return f.ends_with(end); }; };
    if (source.files.size() > 1 && std::ranges::any_of(source.files, ends_with(".bin")))
        std::erase_if(source.files, ends_with(".json"));
    if (source.files.empty())
        die(kExitNoInput, "data: %s: no file is there or matches it; give --data or --val-data", path.c_str());
    source.format = recognise(source.files[0]);
    check_formats(source, recognise);
    check_manifest(source, {});
    return source;
}

void check_formats(const Source& source, const std::function<Format(const std::string& file)>& format_of) {
    for (const std::string& file : source.files)
        if (const Format format = format_of(file); format != source.format)
            die_content("data: " + file, format_name(format), format_name(source.format) + (" as " + source.files[0]));
}

Source take_validation(Source* source) {
    const std::string beside = path_join(parent_folder(source->files[0]), "val.bin");
    if (source->files.size() == 1 && base_name(source->files[0]) == "train.bin" && file_exists(beside))
        return find_source(beside);
    Source val = *source;
    std::erase_if(val.files, [](const std::string& file) {
        std::string words = "/" + base_name(file) + "/";
        std::ranges::replace_if(words, [](unsigned char c) { return !std::isalpha(c); }, '/');
        const auto has = [&](const char* word) { return words.find(word) != words.npos; };
        return !has("/val/") && !has("/valid/") && !has("/validation/");
    });
    if (val.files.empty() || val.files.size() == source->files.size()) return {};
    for (const std::string& f : val.files) std::erase(source->files, f);
    return val;
}

std::string find_data_file(const std::string& name, const char* what_to_do) {
    const std::string beside = parent_folder(program_path());
    for (const std::string folder : {"", "build/", "../", "../../"})
        if (const std::string path = beside + "/" + folder + "data/" + name; file_exists(path)) return path;
    if (file_exists("data/" + name)) return "data/" + name;
    die(kExitNoInput, "%s: it is not beside the program; %s", name.c_str(), what_to_do);
}

// ---- token files

static void read_llmc_header(Shard* s) {
    uint32_t header[256] = {};  // magic, version, tokens, zeros
    if (s->file->size >= sizeof header) s->file->read(0, header, sizeof header);
    const LlmcKind& kind = llmc_kinds[header[0] == llmc_kinds[1].magic];
    if (header[1] != kind.version)
        die_content("data: " + s->name, format("version %u", header[1]),
                    format("a header with version %u", kind.version));
    s->width = kind.width;
    s->tokens = header[2];
    s->offset = sizeof header;
}

// The header is a Python dictionary as numpy writes it: {'descr': '<u2', 'fortran_order': False, 'shape': (1234,), }.
static void read_npy_header(Shard* s) {
    std::string header(size_t(std::min<uint64_t>(s->file->size, 10 + 65535)), '\0');
    s->file->read(0, header.data(), header.size());
    const bool numpy = header.size() >= 10 && header.starts_with("\x93NUMPY\x01");
    if (numpy) s->offset = 10 + uint8_t(header[8]) + 256 * uint64_t(uint8_t(header[9]));
    const bool whole = numpy && s->offset <= header.size();
    header = whole ? header.substr(10, s->offset - 10) : "";
    const auto at = [&](const char* key) { return header.c_str() + std::min(header.find(key), header.size()); };
    char width[2], quote = 0, count[21], end = 0;
    std::sscanf(at("'descr'"), "'descr': '<u%1[24]%c", width, &quote);
    std::sscanf(at("'shape'"), "'shape': (%20[0-9],%c", count, &end);
    if (quote != '\'' || end != ')' || !parse_whole(std::string_view(count), &s->tokens))
        die_content("data: " + s->name, whole ? header.substr(0, 100) : "no header",
                    "a .npy of version 1, one dimension of '<u2' or '<u4'; numpy.save(FILE, tokens.astype('<u2'))");
    s->width = size_t(width[0] - '0');
}

Shard open_token_file(const std::string& path, Format format) {
    Shard s = {.name = path, .file = std::make_shared<InputFile>(path, "data")};
    s.tokens = s.file->size / 2;  // of raw tokens
    if (format == Format::npy) read_npy_header(&s);
    if (format == Format::llmc) read_llmc_header(&s);
    const uint64_t got = s.file->size - s.offset, want = checked_mul(s.tokens, s.width, path.c_str());
    if (got != want)
        die_content("data: " + path, with_commas(got) + " bytes of tokens",
                    with_commas(want) + " for " + with_commas(s.tokens) + " tokens; was the download interrupted?");
    return s;
}

void Shard::read(uint64_t first, size_t n, int* out, int vocab_size) const {
    CHECK(first <= tokens && n <= tokens - first, "token %llu of %llu", ull(first + n), ull(tokens));
    const uint64_t at = offset + (begin + first) * width;
    std::vector<char> bytes(n * width);
    file->read(at, bytes.data(), bytes.size());
    for (size_t i = 0; i < n; i++) {
        uint32_t raw = 0;
        std::memcpy(&raw, &bytes[i * width], width == 2 ? 2 : 4);       // nothing in a file need be aligned
        const uint32_t token = masked ? raw & ~kUntrained : raw;
        if (token >= uint32_t(vocab_size))
            die(kExitBadContent, "data: %s: token %llu (byte %llu): got %u, want less than %d, the vocabulary; is it "
                "the right --tokenizer?", name.c_str(), ull(begin + first + i), ull(at + i * width), token, vocab_size);
        out[i] = int(raw);
    }
}
