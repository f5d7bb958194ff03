// token_files.cpp -- recognises token files and opens them. Layouts: llm.c's dataloader.h, numpy's format.py (1.0),
// nanoGPT's prepare.py. A number in a file is checked against the file's size before it decides an allocation.
#include "tools/text/token_files.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "tools/text/reader.h"

// ---- hashes, and what manifest.json says

uint64_t hashed_every(const std::vector<std::string>& files) {
    uint64_t total = 0;
    for (const std::string& path : files) total += InputFile(path, "data").size;
    return std::max<uint64_t>(1, ceil_div(total, kHashed)) * kFileBlock;
}

uint64_t content_hash(const std::vector<std::string>& files, uint64_t every, std::vector<uint32_t>* crcs) {
    uint64_t h = files.size();
    Countdown left{"checking the data", files.size(), "files"};
    std::vector<char> block(kFileBlock);
    for (size_t i = 0; i < files.size(); i++) {
        const InputFile file(files[i], "data");
        left.at(i);
        uint32_t crc = 0;
        h = hash_bytes(&file.size, sizeof file.size, h);
        for (uint64_t at = 0; at < file.size; at += every) {
            const size_t bytes = size_t(std::min(kFileBlock, file.size - at));
            file.read(at, block.data(), bytes);
            h = hash_bytes(block.data(), bytes, h);
            crc = crc32c(crc, block.data(), bytes);
        }
        if (crcs) crcs->push_back(crc);
    }
    return h;
}

std::string data_hash(const std::string& content) {
    return format("%016llx", (unsigned long long)hash_bytes(content.data(), content.size(), 0));
}

std::string given_json(const Given& given) {
    std::vector<std::string> list;
    for (const auto& [token, bytes] : given) list.push_back(JsonLine().add("token", token).add("bytes", bytes).text());
    return "[" + join(list, ",") + "]";
}

Given read_given(const Json& list, const char* what) {
    Given given;
    for (JsonItems i(list); i.next();) {
        const double bytes = i.value.get_double("bytes", what);
        if (!kPositive.hold(bytes)) refuse(what, "bytes", i.value.find("bytes"), format("a number %s", kPositive.want));
        given[i.value.get_u64("token", what)] = bytes;
    }
    return given;
}

std::map<std::string, Listed> read_manifest(const std::string& folder) {
    const std::string path = path_join(folder, "manifest.json"), begun = path_join(folder, "prep.json");
    std::map<std::string, Listed> shards;
    if (!file_exists(path)) {
        if (file_exists(begun)) die_content("data: " + folder, "a part of the shards", "all; run build/prep again");
        return shards;
    }
    const std::string text = read_file(path);
    const char* const what = path.c_str();
    const Json json = parse_json(text, what);
    for (const char* part : {"train", "val"})
        for (JsonItems i(json.find(part).find("shards")); i.next();)
            shards[i.value.get_string("file", what)] = {
                i.value.get_u64("tokens", what),
                i.value.find("crc32c") ? i.value.get_u64("crc32c", what) : kNoCrc, part == std::string("val"),
                read_given(i.value.find("given"), what)};
    return shards;
}

void check_manifest(const std::vector<std::string>& files, const std::vector<uint32_t>& crcs) {
    const char* const again = "what build/prep wrote there; make the shards anew in another folder";
    std::string folder;
    std::map<std::string, Listed> listed;
    for (size_t i = 0; i < files.size(); i++) {
        const std::string &file = files[i], beside = parent_folder(file);
        if (beside != folder) listed = read_manifest(folder = beside);
        if (listed.empty()) continue;
        const auto found = listed.find(base_name(file));
        if (found == listed.end()) die_content("data: " + file, "a file that manifest.json does not list", again);
        if (const uint64_t crc = found->second.crc; !crcs.empty() && crc != kNoCrc && crcs[i] != crc)
            die_content("data: " + file, format("CRC-32C %08x", crcs[i]), format("%08x, ", unsigned(crc)) + again);
        if (const uint64_t n = open_token_file(file).tokens; n != found->second.tokens)
            die_content("data: " + file, with_commas(n) + " tokens", with_commas(found->second.tokens) + ", " + again);
    }
}

static std::string beginning(const InputFile& file, uint64_t bytes) {
    std::string head(size_t(std::min(file.size, bytes)), '\0');
    file.read(0, head.data(), head.size());
    return head;
}

// ---- token files

struct LlmcKind { uint32_t magic, version, width; };        // width: bytes of a token
static constexpr LlmcKind llmc_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};     // GPT-2's tokens, Llama 3's

Format format_of(const std::string& path) {
    const std::string head = beginning(InputFile(path, "data"), 8);
    if (path.ends_with(".npy") || head.starts_with("\x93NUMPY")) return Format::npy;
    for (const LlmcKind& kind : llmc_kinds)
        if (head.size() >= 4 && std::memcmp(head.data(), &kind.magic, 4) == 0) return Format::llmc;
    const bool is_zip = head.starts_with("PK\3\4");     // as torch.save writes
    return path.ends_with(".bin") && !is_zip ? Format::raw : Format::text;
}

static void read_llmc_header(Shard* s) {
    uint32_t header[256] = {};  // magic, version, tokens, zeros
    if (s->file->size >= sizeof header) s->file->read(0, header, sizeof header);
    const LlmcKind& kind = llmc_kinds[header[0] == llmc_kinds[1].magic];
    if (header[1] != kind.version)
        die_content("data: " + s->file->path, format("version %u", header[1]),
                    format("a header with version %u", kind.version));
    s->width = kind.width;
    s->tokens = header[2];
    s->offset = sizeof header;
}

// The header is a Python dictionary as numpy writes it: {'descr': '<u2', 'fortran_order': False, 'shape': (1234,), }.
static void read_npy_header(Shard* s) {
    std::string header = beginning(*s->file, 10 + 65535);
    const bool numpy = header.size() >= 10 && header.starts_with("\x93NUMPY\x01");
    if (numpy) s->offset = 10 + uint8_t(header[8]) + 256 * uint64_t(uint8_t(header[9]));
    const bool whole = numpy && s->offset <= header.size();
    header = whole ? header.substr(10, s->offset - 10) : "";
    const auto at = [&](const char* key) { return header.c_str() + std::min(header.find(key), header.size()); };
    char width[2], quote = 0, count[21], end = 0;
    std::sscanf(at("'descr'"), "'descr': '<u%1[24]%c", width, &quote);
    std::sscanf(at("'shape'"), "'shape': (%20[0-9],%c", count, &end);
    if (quote != '\'' || end != ')' || !parse_whole(std::string_view(count), &s->tokens))
        die_content("data: " + s->file->path, whole ? header.substr(0, 100) : "no header",
                    "a .npy of version 1, one dimension of '<u2' or '<u4'; numpy.save(FILE, tokens.astype('<u2'))");
    s->width = size_t(width[0] - '0');
}

// Returns whether a beginning looks like numbers of one byte. Lower halves of uint16 reach beyond 127 if an upper half
// is 2 or more, and are spread otherwise than upper halves. Of bytes, those at odd places are spread like the others.
static bool is_of_bytes(const std::string& head) {
    int more[256] = {};                         // [value]: how much more often it is at even places than at odd ones
    uint8_t most[2] = {};
    for (size_t i = 0; i < head.size() / 2 * 2; i++) {
        const auto byte = uint8_t(head[i]);
        more[byte] += i % 2 ? -1 : 1;
        most[i % 2] = std::max(most[i % 2], byte);
    }
    int sum = 0, apart = 0;                     // Kolmogorov and Smirnov's distance, times the size / 2
    for (const int n : more) apart = std::max(apart, std::abs(sum += n));
    return most[1] > 0 && ((most[0] < 128 && most[1] > 1) || size_t(apart) < head.size() / 16);
}

// Takes the width from the name, or else 2. Then kExitBadContent if the first 64 KiB do not look like uint16: the upper
// halves of wider numbers, at odd places, are zero, small, or 65535 in a negative number.
static void read_raw(Shard* s) {
    const std::string &path = s->file->path, what = "data: " + path;
    for (const size_t width : {8, 4, 2})
        if (path.ends_with(format(".u%zu.bin", 8 * width))) return void(s->width = width);
    const std::string head = beginning(*s->file, 65536);
    uint32_t most[4] = {}, low = 0;             // [k]: the largest number at places k mod 4; low bytes, or-ed
    for (size_t i = 0; i + 1 < head.size() / 16 * 16; i += 2) {
        const uint32_t number = uint8_t(head[i]) + 256u * uint8_t(head[i + 1]);
        low |= uint8_t(head[i]);
        most[i / 2 % 4] = std::max(most[i / 2 % 4], i / 2 % 4 && number == 65535 ? 0 : number);
    }
    const uint32_t even = std::max(most[0], most[2]), odd = std::max(most[1], most[3]);
    const auto is_binary = [](char c) { return uint8_t(c) < '\t'; };
    const char* found = odd < 16 && even > 64 * odd ? most[2] || most[3] ? "uint32" : "uint64" :
        std::ranges::max(most) && !(std::ranges::min(most) && low) ? "big-endian or floating-point" : nullptr;
    if (head.size() >= 64 && std::ranges::none_of(head, is_binary))
        die_content(what, "text", "tokens in a .bin; rename it to .txt");
    if (path.ends_with(".u8.bin") || path.ends_with(".i8.bin") || (!found && head.size() >= 64 && is_of_bytes(head)))
        die_content(what, "what looks like uint8 or int8", "uint16: numpy.fromfile(FILE, 'u1').astype('<u2')"
                    ".tofile('NAME.u16.bin') makes it; rename it to .u16.bin if it is uint16");
    if (found)
        die_content(what, std::string("what looks like ") + found,
                    "uint16; rename it to NAME.u32.bin or .u64.bin, or to .u16.bin if it is uint16");
}

Shard open_token_file(const std::string& path) {
    const Format format = format_of(path);
    Shard s = {.file = std::make_shared<InputFile>(path, "data")};
    if (format == Format::raw) read_raw(&s);
    s.tokens = s.file->size / s.width;  // for raw tokens; a header has its own number
    if (format == Format::npy) read_npy_header(&s);
    if (format == Format::llmc) read_llmc_header(&s);
    const uint64_t got = s.file->size - s.offset, want = checked_mul(s.tokens, s.width, path.c_str());
    if (got != want)
        die_content("data: " + path, with_commas(got) + " bytes of tokens",
                    with_commas(want) + " for " + with_commas(s.tokens) + " tokens; was the download interrupted?");
    return s;
}
