// shards.cpp -- recognising files and reading tokens from them. Layouts: llm.c's dataloader.h, numpy's format.py (versions 1.0
// and 2.0), nanoGPT's prepare.py. Nothing is allocated from a number in a file before it has been held against the file's size.
#include "shards.h"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sys/resource.h>
#include <unistd.h>
#include "common.h"
#include "file.h"
#include "stories.h"

using ull = unsigned long long;

// ------------------------------------------------------------------------------------------------------------ one file

InputFile::InputFile(const std::string& path) : fd(open_regular(path, "data", &size)), path(path) {}

InputFile::~InputFile() { ::close(fd); }

void InputFile::read(uint64_t offset, void* out, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = ::pread(fd, static_cast<char*>(out) + done, bytes - done, off_t(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) die(kExitBadContent, "data: %s: byte %llu: cannot read: %s", path.c_str(), ull(offset + done), std::strerror(errno));
        if (n == 0)
            die(kExitBadContent, "data: %s: got the end at byte %llu, want %llu bytes; the file was cut short while in use", path.c_str(),
                ull(offset + done), ull(offset + bytes));
        done += size_t(n);
    }
}

std::string content_hash(const std::vector<std::string>& files) {
    constexpr uint64_t kBlock = 64 << 10, kWhole = 1 << 30, kBlocks = 1024;
    uint64_t total = 0, h = files.size();
    for (const std::string& path : files) total += InputFile(path).size;
    std::vector<char> block(kBlock);
    for (const std::string& path : files) {
        const InputFile file(path);
        h = hash_bytes(&file.size, sizeof file.size, h);
        const uint64_t all = ceil_div(file.size, kBlock);
        const uint64_t count = total <= kWhole ? all : std::min(all, kBlocks * (file.size / kBlock) / (total / kBlock) + 2);
        for (uint64_t k = 0; k < count; k++) {              // the first block and the last are always among them
            const uint64_t at = (count == all ? k : k * (all - 1) / (count - 1)) * kBlock;
            const size_t n = size_t(std::min(kBlock, file.size - at));
            file.read(at, block.data(), n);
            h = hash_bytes(block.data(), n, h);
        }
    }
    return format("%016llx", ull(h));
}

// -------------------------------------------------------------------------------------------------------- what is it?

const char* format_name(Format format) {
    static const char* const names[] = {"text", "jsonl", "a numpy array", "an llm.c token shard", "raw uint16 tokens"};
    return names[int(format)];
}

namespace {

constexpr uint32_t kLlmc16 = 20240520, kLlmc32 = 20240801;  // llm.c's magic numbers: uint16 tokens (version 1), uint32 (version 7)

uint32_t u32_at(std::string_view bytes, size_t at) {
    uint32_t x = 0;
    if (at + 4 <= bytes.size()) std::memcpy(&x, bytes.data() + at, 4);
    return x;
}

std::string extension(const std::string& path) {
    const std::string name = base_name(path);
    const size_t dot = name.rfind('.');
    std::string tail = dot == std::string::npos ? "" : name.substr(dot);
    for (char& c : tail) c = char(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return tail;
}

// Files that people have and that are not tokens or text: named, with what turns them into something that is.
void refuse_foreign(const std::string& path, std::string_view head, char last) {
    static const char kToNpy[] = "save the tokens in Python with numpy.save('tokens.npy', tokens.astype('<u2'))";
    static const char kToJsonl[] = "convert it in Python: pandas.read_parquet(FILE).to_json('text.jsonl', orient='records', lines=True)";
    static const struct { std::string_view magic; const char *name, *hint; } foreign[] = {
        {"\x1f\x8b\x08", "a gzip archive", "unpack it first: gunzip FILE"},
        {"\x28\xb5\x2f\xfd", "a zstandard archive", "unpack it first: zstd -d FILE"},
        {std::string_view("\xfd" "7zXZ\0", 6), "an xz archive", "unpack it first: unxz FILE"},
        {"BZh", "a bzip2 archive", "unpack it first: bunzip2 FILE"},
        {"PK\x03\x04", "a zip archive (.zip, .npz, .pt)", kToNpy},
        {"PAR1", "a Parquet file", kToJsonl},
        {"ARROW1", "an Arrow file", kToJsonl},
        {"\x89HDF\r\n", "an HDF5 file", kToNpy},
        {"GGUF", "a model", "give text or token files"},
        {"%PDF-", "a PDF document", "extract its text first: pdftotext FILE"},
    };
    for (const auto& f : foreign)
        if (head.starts_with(f.magic)) die(kExitBadContent, "data: %s: got %s, want text or tokens; %s", path.c_str(), f.name, f.hint);
    // A pickle starts with PROTO 2..5; two bytes could be a token, so look for FRAME, torch.save's LONG1, or the closing STOP too.
    if (head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5 && (head[2] == '\x95' || head[2] == '\x8a' || last == '.'))
        die(kExitBadContent, "data: %s: got a Python pickle (.pkl, .pt), want text or tokens; %s", path.c_str(), kToNpy);
    const uint32_t magic = u32_at(head, 0);
    if (magic == __builtin_bswap32(kLlmc16) || magic == __builtin_bswap32(kLlmc32))
        die(kExitBadContent, "data: %s: got llm.c's token shard in the other byte order (magic %08x), want little-endian", path.c_str(), magic);
    // llm.c's other files
    if (magic == 20240326 || magic == 20240327 || magic == 20240522 || magic == 20240527 || magic == 20240328 || magic == 20240803)
        die(kExitBadContent, "data: %s: got an llm.c file of another kind (magic %u), want %u or %u for tokens; give the token shards",
            path.c_str(), magic, kLlmc16, kLlmc32);
}

// No NUL, and hardly a control character: true for every encoding of text but UTF-16 and UTF-32.
bool looks_like_text(std::string_view head) {
    size_t controls = 0;
    for (unsigned char c : head) {
        if (c == 0) return false;
        controls += c < 0x20 && !(c >= '\t' && c <= '\r') && c != 0x1b;
    }
    return controls * 100 <= head.size();
}

Format recognise(const std::string& path, uint64_t* bytes) {
    const InputFile file(path);
    *bytes = file.size;
    std::string head(size_t(std::min<uint64_t>(file.size, 16384)), '\0');
    file.read(0, head.data(), head.size());
    char last = 0;
    if (file.size) file.read(file.size - 1, &last, 1);
    refuse_foreign(path, head, last);

    const std::string ext = extension(path);
    const uint32_t magic = u32_at(head, 0);
    if (head.starts_with("\x93NUMPY")) return Format::npy;
    if (magic == kLlmc16 || magic == kLlmc32) return Format::llmc;
    if (ext == ".npy")
        die(kExitBadContent, "data: %s: got a file that does not start as numpy.save's do, want \\x93NUMPY", path.c_str());
    if (ext == ".bin") {
        // A few tokens may look like anything; a page of text is nothing else.
        if (head.size() >= 64 && looks_like_text(head))
            die(kExitBadContent, "data: %s: got text, want tokens in a .bin; rename it to .txt", path.c_str());
        return Format::raw;
    }
    if (ext == ".jsonl" || ext == ".ndjson") return Format::jsonl;
    if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff"))
        die(kExitBadContent, "data: %s: got UTF-16, want UTF-8; convert it: iconv -f UTF-16 -t UTF-8 FILE", path.c_str());
    if (ext != ".txt" && !looks_like_text(head))
        die(kExitBadContent, "data: %s: got neither text nor a known token file; want .txt, .jsonl, .npy, or a .bin of llm.c or nanoGPT",
            path.c_str());
    return Format::text;
}

// Every shard keeps its file open: ask for as many descriptors as we may have when the usual 1,024 could run out.
void allow_open_files(size_t n) {
    rlimit limit;
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= n + 256) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);                     // if refused, opening says so
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool has_validation_word(const std::string& path) {
    const std::string name = base_name(path);
    for (std::string_view word : {"val", "valid", "validation"})
        for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
            const size_t end = at + word.size();
            if ((at == 0 || !is_letter(name[at - 1])) && (end == name.size() || !is_letter(name[end]))) return true;
        }
    return false;
}

}  // namespace

Source find_source(const std::string& path) {
    Source source;
    source.path = path;
    const bool folder = is_directory(path), glob = !folder && !file_exists(path) && path.find_first_of("*?[") != std::string::npos;
    if (folder) {
        for (const std::string& name : list_directory(path))
            if (name[0] != '.') source.files.push_back(path_join(path, name));
    } else {
        source.files = glob ? expand_glob(path) : std::vector{path};        // opening a file says what is wrong with it
    }
    if (folder || glob) source.folders = std::erase_if(source.files, is_directory);
    if (source.files.empty())
        die(kExitNoInput, folder ? "data: %s: got a folder without files, want text or token files in it" : "data: %s: no file matches", path.c_str());
    allow_open_files(source.files.size());
    std::sort(source.files.begin(), source.files.end());
    for (size_t k = 0; k < source.files.size(); k++) {
        uint64_t bytes;
        const Format f = recognise(source.files[k], &bytes);
        if (k > 0 && f != source.format)
            die(kExitBadContent, "data: %s: got files of two kinds, want one: %s is %s, %s is %s; give a glob such as '*%s'", path.c_str(),
                base_name(source.files[0]).c_str(), format_name(source.format), base_name(source.files[k]).c_str(), format_name(f),
                extension(source.files[k]).c_str());
        source.format = f;
        source.bytes += bytes;
    }
    return source;
}

Source take_validation(Source* source) {
    if (source->files.size() == 1 && base_name(source->files[0]) == "train.bin") {
        const std::string beside = source->files[0].substr(0, source->files[0].size() - 9) + "val.bin";
        return file_exists(beside) ? find_source(beside) : Source();
    }
    Source val;
    std::vector<std::string> rest;
    for (const std::string& f : source->files) (has_validation_word(f) ? val.files : rest).push_back(f);
    if (val.files.empty() || rest.empty()) return {};
    val.path = source->path;
    val.format = source->format;
    for (const std::string& f : val.files) val.bytes += InputFile(f).size;
    source->files = rest;
    source->bytes -= val.bytes;
    return val;
}

// --------------------------------------------------------------------------------------------------------- token files

namespace {

size_t width(Shard::Kind kind) {
    static const size_t widths[] = {1, 2, 4, 4, 8, 0};
    return widths[kind];
}

// From the header's end to the file's there are exactly its tokens.
void check_size(const Shard& s) {
    const uint64_t got = s.file->size - s.offset, want = checked_mul(s.tokens, width(s.kind), s.name.c_str());
    if (got != want)
        die(kExitBadContent, "data: %s: got %s bytes of tokens, want %s for the %s tokens of its header; was the download interrupted?",
            s.name.c_str(), with_commas(got).c_str(), with_commas(want).c_str(), with_commas(s.tokens).c_str());
}

void read_llmc_header(Shard* s) {
    constexpr uint64_t kHeader = 1024;                      // 256 int32: magic, version, tokens, zeros
    const char* path = s->name.c_str();
    if (s->file->size < kHeader)
        die(kExitBadContent, "data: %s: got %llu bytes, want a header of 1,024; was the download interrupted?", path, ull(s->file->size));
    char bytes[12];
    s->file->read(0, bytes, sizeof bytes);
    const std::string_view header(bytes, sizeof bytes);
    const bool wide = u32_at(header, 0) == kLlmc32;
    const uint32_t version = u32_at(header, 4), want = wide ? 7 : 1;
    if (version != want) die(kExitBadContent, "data: %s: got version %u of llm.c's token shards, want %u", path, version, want);
    s->kind = wide ? Shard::u32 : Shard::u16;
    s->tokens = u32_at(header, 8);
    s->offset = kHeader;
    check_size(*s);
}

// The value of a key of the header, which is a Python dictionary as numpy writes it: {'descr': '<u2', 'shape': (3, 4), }.
std::string npy_value(std::string_view header, const char* key, const char* path) {
    const std::string quoted = format("'%s':", key);
    size_t at = header.find(quoted);
    if (at == std::string_view::npos) die(kExitBadContent, "data: %s: got a header without '%s', want numpy.save's", path, key);
    at = std::min(header.find_first_not_of(' ', at + quoted.size()), header.size());
    int depth = 0;
    size_t end = at;
    for (; end < header.size() && (depth > 0 || (header[end] != ',' && header[end] != '}')); end++)
        depth += header[end] == '(' || header[end] == '[' ? 1 : header[end] == ')' || header[end] == ']' ? -1 : 0;
    return std::string(header.substr(at, std::min<size_t>(end - at, 80)));
}

void read_npy_header(Shard* s) {
    const char* path = s->name.c_str();
    char start[12] = {};
    s->file->read(0, start, size_t(std::min<uint64_t>(s->file->size, sizeof start)));
    const int major = start[6];
    if (major != 1 && major != 2) die(kExitBadContent, "data: %s: got version %d of numpy's format, want 1 or 2", path, major);
    // The header's length has two bytes in version 1 and four in version 2; 64 KiB are far more than an array of integers needs.
    const uint32_t length = major == 2 ? u32_at({start, 12}, 8) : u32_at({start, 12}, 8) & 0xffff;
    const uint64_t first = major == 2 ? 12 : 10;
    if (length > 65536 || first + length > s->file->size)
        die(kExitBadContent, "data: %s: got a header of %u bytes in a file of %llu; was the download interrupted?", path, length, ull(s->file->size));
    std::string header(length, '\0');
    s->file->read(first, header.data(), length);

    static const struct { const char* name; Shard::Kind kind; } types[] = {
        {"'<u2'", Shard::u16}, {"'<u4'", Shard::u32}, {"'<i4'", Shard::i32}, {"'<i8'", Shard::i64}};
    const std::string type = npy_value(header, "descr", path);
    const auto known = std::find_if(std::begin(types), std::end(types), [&](const auto& t) { return type == t.name; });
    if (known == std::end(types))
        die(kExitBadContent, "data: %s: got elements of type %s (%s), want '<u2', '<u4', '<i4' or '<i8'; numpy.save(FILE, tokens.astype('<u2'))",
            path, type.c_str(), type.starts_with("'>") ? "big-endian" : type.starts_with("[") ? "a structure" : type.starts_with("'<f") ? "floats" :
            type.find('O') != std::string::npos ? "Python objects" : "not one for tokens");
    s->kind = known->kind;
    if (npy_value(header, "fortran_order", path) != "False")
        die(kExitBadContent, "data: %s: got an array in column order, want one in C order; numpy.save(FILE, tokens.reshape(-1))", path);
    const std::string shape = npy_value(header, "shape", path);
    const char* end = shape.data() + shape.size();
    const auto [rest, bad] = std::from_chars(shape.data() + (shape.size() > 0), end, s->tokens);
    if (shape[0] != '(' || bad != std::errc() || std::string_view(rest, size_t(end - rest)) != ",)")
        die(kExitBadContent, "data: %s: got an array of shape %s, want one dimension; numpy.save(FILE, tokens.reshape(-1))", path, shape.c_str());
    s->offset = first + length;
    check_size(*s);
}

[[noreturn]] void bad_token(const Shard& s, uint64_t number, int64_t token, int vocab_size) {
    const uint64_t at = s.begin + number;
    die(kExitBadContent, "data: %s: token %llu%s: got %lld, want less than %d, the vocabulary; is this the right --tokenizer or --vocab-size?",
        s.name.c_str(), ull(at), s.file ? format(" (byte %llu)", ull(s.offset + at * width(s.kind))).c_str() : "", (long long)token, vocab_size);
}

template <class T>
void widen(const Shard& s, uint64_t first, size_t n, const char* bytes, int* out, int vocab_size) {
    for (size_t i = 0; i < n; i++) {
        T token;
        std::memcpy(&token, bytes + i * sizeof(T), sizeof(T));              // nothing in a file need be aligned
        if (uint64_t(token) >= uint64_t(vocab_size)) bad_token(s, first + i, int64_t(token), vocab_size);   // negative: huge
        out[i] = int(token);
    }
}

// Consecutive samples often cut one story, so each thread keeps the slot it told last.
const int* story_slot(uint64_t seed, uint64_t k, int eot) {
    struct Slot { bool filled = false; uint64_t seed, k; int eot; int tokens[kStorySlot]; };
    thread_local Slot slot;
    if (slot.filled && slot.seed == seed && slot.k == k && slot.eot == eot) return slot.tokens;
    const Story story = make_story(seed, k);
    CHECK(story.text.size() + 2 <= size_t(kStorySlot), "a story of %zu bytes", story.text.size());
    slot.filled = true, slot.seed = seed, slot.k = k, slot.eot = eot;
    std::fill(std::begin(slot.tokens), std::end(slot.tokens), eot);
    for (size_t i = 0; i < story.text.size(); i++) slot.tokens[i + 1] = (unsigned char)story.text[i];
    return slot.tokens;
}

void read_stories(const Shard& s, uint64_t first, size_t n, int* out) {
    for (size_t i = 0; i < n;) {
        const uint64_t at = s.begin + first + i, k = at / kStorySlot, within = at % kStorySlot;
        const size_t take = std::min<size_t>(n - i, size_t(kStorySlot - within));
        if (within == 0 && take == 1) out[i] = s.eot;       // the last target of a sample of whole slots: no story needed
        else std::copy_n(story_slot(s.seed, k, s.eot) + within, take, out + i);
        i += take;
    }
}

}  // namespace

Shard open_token_file(const std::string& path, Format format) {
    Shard s;
    s.file = std::make_shared<InputFile>(path);
    s.name = path;
    if (format == Format::npy) read_npy_header(&s);
    if (format == Format::llmc) read_llmc_header(&s);
    if (format == Format::raw) {
        if (s.file->size % 2)
            die(kExitBadContent, "data: %s: got %llu bytes, want an even number for uint16 tokens; was the download interrupted?", path.c_str(),
                ull(s.file->size));
        s.kind = Shard::u16;
        s.tokens = s.file->size / 2;
    }
    return s;
}

Shard Shard::part(uint64_t first, uint64_t n) const {
    CHECK(first <= tokens && n <= tokens - first, "part of a shard");
    Shard s = *this;
    s.begin = begin + first;
    s.tokens = n;
    return s;
}

void Shard::read(uint64_t first, size_t n, int* out, int vocab_size) const {
    CHECK(first <= tokens && n <= tokens - first, "token %llu of %llu", ull(first + n), ull(tokens));
    if (kind == stories) return read_stories(*this, first, n, out);
    const uint64_t at = (begin + first) * width(kind);
    std::vector<char> buffer(file ? n * width(kind) : 0);
    if (file) file->read(offset + at, buffer.data(), buffer.size());
    const char* bytes = file ? buffer.data() : memory + at;
    switch (kind) {
        case u8: return widen<uint8_t>(*this, first, n, bytes, out, vocab_size);
        case u16: return widen<uint16_t>(*this, first, n, bytes, out, vocab_size);
        case u32: return widen<uint32_t>(*this, first, n, bytes, out, vocab_size);
        case i32: return widen<int32_t>(*this, first, n, bytes, out, vocab_size);
        case i64: return widen<int64_t>(*this, first, n, bytes, out, vocab_size);
        case stories: break;
    }
}

// ---------------------------------------------------------------------------------------------------------------- text

size_t nine_tenths(std::string_view text) {
    const auto starts = [](char c) { return (c & 0xC0) != 0x80; };
    uint64_t left = nine_tenths_of(uint64_t(std::count_if(text.begin(), text.end(), starts)));
    for (size_t at = 0; at < text.size(); at++)
        if (starts(text[at]) && left-- == 0) return at;
    return text.size();
}

size_t safe_chunk(std::string_view text, size_t want) {
    const auto byte = [&](size_t i) { return (unsigned char)text[i]; };
    for (size_t p = std::max<size_t>(want, 1); p < text.size(); p++) {
        if (text[p] != ' ' && text[p] != '\n') continue;
        const unsigned char c = byte(p - 1);
        // What stands before must not be white space: printable ASCII, or a character whose first byte starts no white space
        // (those start with C2, E1, E2 or E3).
        const bool two = p >= 2 && c >= 0x80 && byte(p - 2) >= 0xC3 && byte(p - 2) <= 0xDF;
        const bool three = p >= 3 && c >= 0x80 && byte(p - 2) >= 0x80 && byte(p - 3) >= 0xE4;
        if ((c > 0x20 && c < 0x7f) || two || three) return p;
    }
    return text.size();
}
