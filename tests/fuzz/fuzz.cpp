// fuzz.cpp -- libFuzzer against every reader of files and of messages from other processes: tests/fuzz/run.sh builds and runs it.
//
//     FUZZ_TARGET=NAME build/fuzz/fuzz CORPUS       a name of the table below; "list" prints them all
//     FUZZ_SEEDS=DIR                                writes the target's seeds there first
//     FUZZ_FOLDER=DIR                               where its files lie
//
// A finding is a crash, a sanitizer's report, an error code other than the reader's, or more memory than the table allows for the
// file's size. Files go through tmpfs and the program's own opening; a mapping is handed out as heap memory of exactly the file's
// size, so that the address sanitizer sees a read past its end.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>
#include "checkpoint.cpp"
#include "comm.cpp"
#include "data.h"
#include "log.h"
#include "options.h"
#include "rendezvous.cpp"
#include "shards.h"
#include "unicode.h"

static bool inside = false;                             // a reader is at work: its warnings are not printed
static std::atomic<ptrdiff_t> live = 0, peak = 0;       // bytes of heap since the input began; less than 0 where what was there before is freed
static void* mapped[8];                                 // files' copies

extern "C" {
void* __real_mmap(void*, size_t, int, int, int, off_t);
int __real_munmap(void*, size_t);
ssize_t __real_write(int, const void*, size_t);
void* __wrap_mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (fd < 0 || protection != PROT_READ) return __real_mmap(at, bytes, protection, flags, fd, offset);
    void** const place = std::find(mapped, mapped + 8, nullptr);
    if (place == mapped + 8) std::abort();
    *place = std::malloc(bytes);
    return pread(fd, *place, bytes, offset) == ssize_t(bytes) ? *place : MAP_FAILED;
}
int __wrap_munmap(void* at, size_t bytes) {
    void** const place = std::find(mapped, mapped + 8, at);
    if (place == mapped + 8) return __real_munmap(at, bytes);
    std::free(*place);
    *place = nullptr;
    return 0;
}
ssize_t __wrap_write(int fd, const void* data, size_t bytes) { return inside && fd == 2 ? ssize_t(bytes) : __real_write(fd, data, bytes); }
ssize_t __wrap_getrandom(void* data, size_t bytes, unsigned) { std::memset(data, 0, bytes); return ssize_t(bytes); }    // nonces we can answer
}

// The program's memory, counted.
void* operator new(size_t bytes) {
    if (bytes > size_t(64) << 20) { std::fprintf(stderr, "%zu bytes of heap at once\n", bytes); std::abort(); }
    void* const p = std::malloc(bytes);
    if (!p) throw std::bad_alloc();
    const ptrdiff_t now = live += ptrdiff_t(malloc_usable_size(p));
    if (now > peak) peak = now;
    return p;
}
void operator delete(void* p) noexcept { live -= ptrdiff_t(malloc_usable_size(p)); std::free(p); }
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return operator new(bytes); }        // the limit above ends the process
void operator delete(void* p, size_t) noexcept { operator delete(p); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete[](void* p, size_t) noexcept { operator delete(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { operator delete(p); }

namespace {
std::string folder;                                     // in memory where there is such a place: run.sh makes and removes it

std::string put(const char* name, std::string_view bytes) {
    const std::string path = path_join(folder, name);
    static const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);     // a process has one target, a target one file
    if (pwrite(fd, bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()) || ftruncate(fd, off_t(bytes.size())) != 0) std::abort();
    return path;
}

// ---------------------------------------------------------------------------------------------------------- files

void safetensors(std::string_view in) {
    static const Arena arena = arena_layout({{"wte.weight", 16, 2, 3, false, 0, true}, {"h.0.attn.c_proj.weight", 2, 2, 2, true, 0, true}});
    const SafeTensors file = open_safetensors(put("m.safetensors", in));
    std::vector<float> values(arena.n);
    read_safetensors(file, arena, "", values.data());
}
void config(std::string_view in) { hf_parameters(parse_hf_config(in, "config.json"), "config.json"); }
void options(std::string_view in) {
    Options o;
    options_merge_saved(&o, std::string(in), "config.json");
    options_to_json(o);
}
void state(std::string_view in) {
    const Json j = parse_json(in, "state.json");
    j.get_u64("step", "state.json");
    j.get_string("data_hash", "state.json");
    json_shown(j.at("best_val", "state.json"));
}
void done(std::string_view in) { parse_done(std::string(in), "DONE"); }
void metrics(std::string_view in) { read_metrics(put("metrics.jsonl", in)); }
void tokenizer(const char* name, std::string_view in) {
    const Tokenizer t = tokenizer_load(put(name, in));
    // Pieces of more than 15 bytes: of shorter ones encode() keeps 2 MB of tokens, which would be most of the work here.
    const std::string text = t.kind == Tokenizer::character ? t.bytes[0] : " thethethetheabcabcabc................\xff\xe6\x97";
    std::vector<int> ids;
    t.encode(text, &ids);
    if (t.decode(ids.data(), ids.size()) != text) std::abort();
    const std::string json = t.to_json();
    parse_json(json, "to_json");
}
void tokenizer_json(std::string_view in) { tokenizer("t.json", in); }
void vocab_bpe(std::string_view in) { tokenizer("t.bpe", in); }
void tiktoken(std::string_view in) { tokenizer("t.tiktoken", in); }
const Tokenizer bytes_as_tokens = tokenizer_byte();
void dataset(const char* name, std::string_view in) {
    const Dataset d = open_dataset(put(name, in), bytes_as_tokens, 4, nullptr);
    int x[4], y[4];
    for (uint64_t i = 0; i < d.samples; i += 1 + i / 4) d.sample(i, x, y, 50257);      // the first ones, then fewer
    if (d.samples) d.sample(d.samples - 1, x, y, 50257);
}
void bin(std::string_view in) { dataset("a.bin", in); }
void npy(std::string_view in) { dataset("a.npy", in); }
void jsonl(std::string_view in) { dataset("a.jsonl", in); }
void text(std::string_view in) { dataset("a.txt", in); }
void arguments(std::string_view in) {
    std::vector<std::string> words = {"train_gpt"};
    for (size_t at = 0; at < in.size() && words.size() < 40; at += words.back().size() + 1) words.emplace_back(in.substr(at, in.find('\n', at) - at));
    std::vector<const char*> argv;
    for (const std::string& w : words) if (w.find("help") == std::string::npos && w.find("version") == std::string::npos) argv.push_back(w.c_str());
    int exit_now = -1;
    Options o = parse_options(int(argv.size()), argv.data(), &exit_now);
    resolve_options(&o, false);
}

// ------------------------------------------------------------------------------------------------------- messages

struct Pair {                                           // what a stranger sent lies in ours; more may follow
    Socket ours, theirs;
    explicit Pair(std::string_view sent) {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
        ours = Socket(fds[0]), theirs = Socket(fds[1]);
        send_all(fds[1], sent.data(), sent.size(), 0);
    }
};

Meeting meeting() {
    Meeting m;
    m.size = 4;
    m.job = "job", m.secret = "secret", m.master_addr = "127.0.0.1";
    m.me.pid = 1;
    return m;
}
template <class T> T take(std::string_view* in) {
    T x = {};
    const size_t n = std::min(sizeof x, in->size());
    std::memcpy(static_cast<void*>(&x), in->data(), n);
    in->remove_prefix(n);
    return x;
}

// The listening side: bytes of anybody; then a greeting of anybody who knows the secret.
void stranger(std::string_view in) {
    const Meeting m = meeting();
    Pair pair(in);
    Stranger s = {std::move(pair.ours), 0};
    if (read_stranger(m, &s) == Step::proven) std::abort();                 // without the secret
    Stranger member = {Socket(dup(pair.theirs.fd)), 0};
    const bool right_job = take<char>(&in) & 1;
    member.hello = take<Hello>(&in);
    member.proof.card = take<Card>(&in);
    if (right_job) std::memcpy(member.hello.job, sha256(m.job).bytes, sizeof member.hello.job);
    std::vector<Member> members;
    for (int r = 1; r < 4; r++) members.push_back({r, Socket()});
    members[1].card.pid = 7, members[1].card.rank = 2;
    admit(m, std::move(member), Purpose::control, &members);
}
// The connecting side: a listener that may or may not know the secret.
void listener(std::string_view in) {
    const Meeting m = meeting();
    const bool knows = take<char>(&in) & 1;
    Challenge c = take<Challenge>(&in);
    Hello hello = {};
    std::memcpy(hello.magic, kMagic, sizeof kMagic);
    hello.purpose = Purpose::control, hello.size = m.size;
    std::memcpy(hello.job, sha256(m.job).bytes, sizeof hello.job);
    if (knows) std::memcpy(c.magic, kMagic, sizeof kMagic), c.proof = prove(m, 's', hello, c.nonce, nullptr);
    Pair pair(bytes_of(c) + std::string(in));
    shutdown(pair.theirs.fd, SHUT_WR);
    if (introduce(m, pair.ours.fd, Purpose::control, "there", 1) && !knows) std::abort();
}
// Records and verdicts of a rank that has been admitted; what rank 0 then says about it.
void control(std::string_view in) {
    Pair pair(in);
    Comm comm;
    Comm::Impl impl;
    comm.impl = &impl;
    comm.size = comm.local_size = 2;
    comm.peers = {{"a", 1}, {"b", 2}};
    comm.timeout = 1;
    impl.ending = true;                                 // nobody leaves the process
    impl.watched.resize(2);
    impl.watched[1].fd = pair.ours.release();
    listen_to(&comm, 1);
    judge(&comm, now_seconds() + 100);
    if (impl.watched[1].fd >= 0) close(impl.watched[1].fd);
}
// Data between hosts: header, payload, checksum.
void wire(std::string_view in) {
    const bool right = take<char>(&in) & 1;
    char payload[64];
    const Call call = {Op::scatter, 0, 3, 128};
    const Wire head = make_flow(call, payload, sizeof payload).wire;
    Pair pair((right ? bytes_of(head) : "") + std::string(in));
    Comm comm;
    comm.peers = {{"a", 1}, {"b", 2}};
    Link link = {pair.ours.fd, 1, call, make_flow(call, payload, sizeof payload), make_flow(call, payload, sizeof payload)};
    move_flow(&comm, &link, false);
}

// ----------------------------------------------------------------------------------------------------------- the table

std::string bytes(std::initializer_list<uint32_t> words) { return std::string(reinterpret_cast<const char*>(words.begin()), 4 * words.size()); }
std::string header(const std::string& json) { const uint64_t n = json.size(); return std::string(reinterpret_cast<const char*>(&n), 8) + json; }
std::string byte_ranks() {
    static const char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string s;
    for (int b = 0; b < 256; b++) s += format("%c%c== %d\n", kDigits[b >> 2], kDigits[(b & 3) << 4], b);
    return s + "YWI= 256\nYWJj 257\n";
}
// Most memory for their size: 4 bytes a token, and 8.
std::string many_merges() {
    std::string s;
    for (char a = '!'; a <= '~'; a++) for (char b = '!'; b <= '~' && s.size() < 16000; b++) s += {a, ' ', b, '\n'};
    return s;
}
std::string many_characters() {
    std::string text;
    for (uint32_t code = 0x100; code < 0x780; code++) append_utf8(&text, code);
    return tokenizer_char(text).to_json();
}
std::string greeting() {
    Hello h = {};
    std::memcpy(h.magic, kMagic, sizeof kMagic);
    h.purpose = Purpose::control, h.rank = 2, h.size = 4;
    return bytes_of(h) + bytes_of(Proof{});
}
std::string record(Kind kind) { Message m = {}; m.kind = kind; std::memcpy(m.record.phase, "forward", 8); return bytes_of(m); }

// An input may take `factor` bytes of heap for each of its own, and `room` for what is of one size: messages, a tokenizer of bytes, buffers
// of 64 KiB. A tokenizer is tables: 4 bytes of a vocab.bpe, "a b\n", are a token and a merge, with their look-ups 60 bytes; and of
// characters it has a number for each code point below the largest, twice while they grow. DONE, at most 64 KiB, is a list of files: a line
// of 6 bytes is an entry of 48, in a vector that doubles.
constexpr size_t kLittle = 16 << 10, kRoom = 128 << 10, kCodePoints = 9 << 20, kTables = 64;
struct Target { const char* name; void (*run)(std::string_view); size_t factor, room; std::vector<std::string> seeds; };
const std::vector<Target>& targets() {
    static const std::vector<Target> all = {
        {"safetensors", safetensors, 2, kRoom, {header("{\"wte.weight\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[0,12]},\"h.0.attn.c_proj.weight\":{\"dtype\":\"F16\","
            "\"shape\":[2,2],\"data_offsets\":[12,20]},\"__metadata__\":{\"format\":\"pt\"}}") + std::string(20, '\1')}},
        {"config", config, 2, kLittle, {hf_config_json({2, 2, 16, 8, 257, 0.1, 256})}},
        {"options", options, 2, kLittle, {options_to_json(Options()), "{\"options\":{\"heads\":4,\"overlap\":false,\"lr\":1e-3}}"}},
        {"state", state, 2, kLittle, {"{\"version\":1,\"step\":7,\"tokens\":99,\"data_hash\":\"0123\",\"val_hash\":\"4\",\"bad_steps\":0,\"best_val\":null}\n"}},
        {"done", done, 32, kLittle, {done_text({12, {{"model.safetensors", 1000, 77}, {"state.json", 5, 1}}})}},
        {"metrics", metrics, 2, kLittle, {"{\"event\":\"run\",\"step\":0}\n{\"event\":\"train\",\"step\":0,\"loss\":5.5}\n{\"event\":\"val\",\"step\":1,\"loss\":5,\"bpb\":null}\ntorn"}},
        {"tokenizer_json", tokenizer_json, kTables, kCodePoints, {tokenizer_char("ab").to_json(), tokenizer_byte().to_json(), many_characters()}},
        {"vocab_bpe", vocab_bpe, kTables, kRoom, {"#version: 0.2\na b\nab c\n\xc4\xa0 a\n", many_merges()}},
        {"tiktoken", tiktoken, kTables, kRoom, {byte_ranks()}},
        {"bin", bin, 2, kRoom, {bytes({20240520, 1, 8}) + std::string(1012, '\0') + bytes({1, 2, 3, 4}), bytes({20240801, 7, 6}) + std::string(1012, '\0') + bytes({1, 2, 3, 4, 5, 6}), bytes({1, 2, 3, 4, 5})}},
        {"npy", npy, 2, kRoom, {std::string("\x93NUMPY\1\0\x40\0", 10) + "{'descr': '<u2', 'fortran_order': False, 'shape': (6,), }       \n" + bytes({1, 2, 3})}},
        {"jsonl", jsonl, 2, kRoom, {"\xef\xbb\xbf{\"text\": \"first \\u00e9\"}\r\n\n{\"id\": [1], \"text\": \"second\"}\n"}},
        {"text", text, 2, kRoom, {"some text\nof two lines", "\xff\xfeh\0i\0", "PK\x03\x04"}},
        {"arguments", arguments, 2, kRoom, {"--steps\n5\n--lr=1e-3\n--total-batch-size\n512k", "sample\nx\n--prompt\nabc", "--stpes\n3"}},
        {"stranger", stranger, 2, kLittle, {greeting(), "\1" + greeting()}},
        {"listener", listener, 2, kLittle, {"\1" + std::string(sizeof(Challenge), '\0') + bytes_of(Reply{}), std::string("\0", 1) + bytes_of(Challenge{})}},
        {"control", control, 2, kLittle, {record(Kind::record), record(Kind::verdict) + record(Kind::farewell)}},
        {"wire", wire, 2, kLittle, {"\1" + std::string(68, 'x'), std::string(1, '\0') + bytes_of(make_flow({Op::scatter, 0, 3, 128}, nullptr, 64).wire)}},
    };
    return all;
}
const Target* target = nullptr;
ptrdiff_t most = 0;                                     // of heap beyond target->factor
}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    const char *name = std::getenv("FUZZ_TARGET"), *seeds = std::getenv("FUZZ_SEEDS");
    folder = std::getenv("FUZZ_FOLDER") ? std::getenv("FUZZ_FOLDER") : "/tmp";
    for (const Target& t : targets()) {
        if (name && !std::strcmp(name, "list")) std::puts(t.name);
        if (name && !std::strcmp(name, t.name)) target = &t;
    }
    if (!target) std::exit(name && !std::strcmp(name, "list") ? 0 : 2);
    for (size_t i = 0; seeds && i < 3 * target->seeds.size(); i++) {       // whole, a byte short, half
        const std::string& s = target->seeds[i / 3];
        FILE* f = std::fopen(path_join(seeds, format("seed%zu", i)).c_str(), "wb");
        std::fwrite(s.data(), 1, i % 3 == 0 ? s.size() : i % 3 == 1 ? s.size() - 1 : s.size() / 2, f);
        std::fclose(f);
    }
    std::atexit([] { std::fprintf(stderr, "stat::most_heap_beyond_factor: %td\n", most); });
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    live = peak = 0;
    inside = true;
    int code = 0;
    try { target->run({reinterpret_cast<const char*>(data), size}); } catch (const Error& e) { code = e.code; }
    inside = false;
    const bool known = code == 0 || code == kExitBadContent || code == kExitUsage || code == kExitNoInput || code == kExitPeer || code == kExitDisagree;
    if (!known && target->run != listener) std::abort();            // a listener may name any code
    most = std::max(most, peak - ptrdiff_t(target->factor * size));
    if (most > ptrdiff_t(target->room)) { std::fprintf(stderr, "%td bytes of heap for %zu bytes\n", peak.load(), size); std::abort(); }
    return 0;
}
