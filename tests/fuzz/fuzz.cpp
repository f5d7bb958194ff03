// fuzz.cpp -- libFuzzer against every reader of files and of messages from other processes: tests/fuzz/run.sh builds
// and runs it.
//
//     FUZZ_TARGET=NAME build/fuzz/fuzz CORPUS    a name of the table below; "list" prints them, and what reads
//     FUZZ_SEEDS=DIR                             gets the target's seeds first; they are read whole, however long
//
// A finding is a crash, a sanitizer's report, an error code other than the reader's, more memory than the table allows
// for the file's size, and memory or a descriptor that is left.
#include <malloc.h>
#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <new>
#include "tools/text/config_reader.h"
#include "models/llama.h"
#include "models/config.h"
#include "src/app/program.h"
#include "src/data/data.h"
#include "src/options/options.h"
#include "src/base/cache.h"
#include "src/base/cpus.h"
#include "src/base/file.h"
#include "src/checkpoint/checkpoint.cpp"
#include "tools/text/model_file.h"
#include "tools/text/model_folder.h"
#include "src/comm/comm.cpp"
#include "src/comm/rendezvous.cpp"
#include "tools/text/prepare.h"
#include "tools/text/questions.h"
#include "tools/text/unicode.h"
#include "tools/event_file.h"
#include "tools/serve.h"
#include "tools/tables.h"
#include "tools/tool.h"

// The tools' functions are in programs of their own. What they include has been included above or here, outside of
// these namespaces.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <deque>
#include <future>
#include <optional>
#include <regex>
namespace prep_tool {
#include "tools/prep.cpp"
}
namespace report_tool {
#include "tools/report.cpp"
}

// The kernel, as far as readers ask it for an input: files or a connection whose bytes lie in memory. The readers' own
// calls of open, pread and recv come here; a file on tmpfs and a pair of sockets cost more than most readers take
// (AMD EPYC, 2 cores: 8 and 12 us).
static bool inside = false;         // a reader is at work; its warnings are not printed
static std::string_view input;      // what it reads
struct File {
    const char* path;
    std::string_view bytes;
};
static File files[8];               // by which the reader finds the input, or parts of it
static int file_count = 0;
static size_t received = 0;         // bytes of the connection that were taken
static int status = 0;              // of the HTTP response that was sent
static bool closed = false;         // the other side sends no more
static int descriptors = 0;         // that the reader has open
constexpr int kConnection = 999, kFile = 1000;      // descriptors; of a file kFile and its number

static bool is_file(int fd) { return fd >= kFile && fd < kFile + file_count; }
// The descriptor of a file of the input, or -1.
static int find_file(const char* path) {
    for (int i = 0; inside && i < file_count; i++)
        if (!std::strcmp(path, files[i].path)) return kFile + i;
    return -1;
}

// Reads come in pieces of 1 to 977 bytes, and most of them whole: who reads must go on.
static size_t piece(size_t at, size_t bytes) {
    return std::min(bytes, at % 3 == 1 ? 1 + at * 2654435761u % 977 : bytes);
}

extern "C" {
int __real_open(const char*, int, ...);
int __real_close(int);
int __real_fstat(int, struct stat*);
int __real_stat(const char*, struct stat*);
ssize_t __real_read(int, void*, size_t);
int __real_poll(pollfd*, nfds_t, int);
ssize_t __real_write(int, const void*, size_t);
int __wrap_open(const char* path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    const int fd = find_file(path);
    if (fd < 0) return __real_open(path, flags, mode);
    descriptors++;
    return fd;
}
int __wrap_close(int fd) { return is_file(fd) || fd == kConnection ? descriptors--, 0 : __real_close(fd); }
int __wrap_fstat(int fd, struct stat* s) {
    if (!is_file(fd)) return __real_fstat(fd, s);
    *s = {};
    s->st_mode = S_IFREG | 0600, s->st_size = off_t(files[fd - kFile].bytes.size());
    return 0;
}
int __wrap_stat(const char* path, struct stat* s) {
    const int fd = find_file(path);
    return fd < 0 ? __real_stat(path, s) : __wrap_fstat(fd, s);
}
ssize_t __wrap_pread(int fd, void* out, size_t bytes, off_t at) {
    if (!is_file(fd)) std::abort();
    const std::string_view file = files[fd - kFile].bytes, rest = file.substr(std::min(size_t(at), file.size()));
    const size_t n = piece(size_t(at), std::min(bytes, rest.size()));
    if (n > 0) std::memcpy(out, rest.data(), n);
    return ssize_t(n);
}
ssize_t __wrap_write(int fd, const void* data, size_t bytes) {
    return inside && fd == 2 ? ssize_t(bytes) : __real_write(fd, data, bytes);
}
ssize_t __wrap_getrandom(void* data, size_t bytes, unsigned) {
    std::memset(data, 0, bytes);        // nonces we can answer
    return ssize_t(bytes);
}
ssize_t __wrap_recv(int fd, void* out, size_t bytes, int flags) {
    if (fd != kConnection) std::abort();
    const size_t all = std::min(bytes, input.size() - received);
    const bool peeks = flags & MSG_PEEK;
    const size_t n = peeks || flags == 0 ? all : piece(received, all);  // flags 0: what a peek has seen
    errno = EAGAIN;
    if (n == 0) return closed ? 0 : -1;
    std::memcpy(out, input.data() + received, n);
    if (!peeks) received += n;
    return ssize_t(n);
}
ssize_t __wrap_read(int fd, void* out, size_t bytes) {
    return fd == kConnection ? __wrap_recv(fd, out, bytes, MSG_DONTWAIT) : __real_read(fd, out, bytes);
}
ssize_t __wrap_send(int, const void* data, size_t bytes, int) {
    const std::string_view text(static_cast<const char*>(data), bytes);
    if (text.starts_with("HTTP/1.1 ")) status = std::atoi(text.substr(9, 3).data());
    return ssize_t(bytes);
}
int __wrap_poll(pollfd* fds, nfds_t n, int timeout) {
    return fds->fd == kConnection ? fds->revents = fds->events, 1 : __real_poll(fds, n, timeout);
}
int __wrap_getpeername(int, sockaddr* address, socklen_t* size) {
    const sockaddr_in far = {AF_INET, 0, {htonl(0x0a000001)}, {}};  // 10.0.0.1: a loopback address would not be kept
    std::memcpy(address, &far, *size = sizeof far);
    return 0;
}
int __wrap_usleep(useconds_t) { return 0; }
}

// The program's memory, counted; readers have one thread. A too large block ends the process.
// Bytes of heap since the input began; less than 0 where what was there before is freed.
static ptrdiff_t live = 0, peak = 0;
void* operator new(size_t bytes) {
    if (bytes > size_t(64) << 20) {
        std::fprintf(stderr, "%zu bytes of heap at once\n", bytes);
        std::abort();
    }
    void* const p = std::malloc(bytes);
    if (!p) throw std::bad_alloc();
    live += ptrdiff_t(malloc_usable_size(p));
    peak = std::max(peak, live);
    return p;
}
void operator delete(void* p) noexcept {
    live -= ptrdiff_t(malloc_usable_size(p));
    std::free(p);
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return operator new(bytes); }
void operator delete(void* p, size_t) noexcept { operator delete(p); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete[](void* p, size_t) noexcept { operator delete(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { operator delete(p); }

static void finding(const char* what, ptrdiff_t bytes) { std::fprintf(stderr, "%td %s\n", bytes, what), std::abort(); }
constexpr size_t kLittle = 16 << 10;  // bytes of heap that are of one size, as messages are
constexpr size_t kLayer = 4 << 10;    // and of a table of a layer's tensors

namespace {
// A file of this name with these bytes, which stay; the input is all of one, or what comes from a connection.
std::string file(const char* name, std::string_view content) {
    files[file_count++] = {name, content};
    return name;
}
std::string file(const char* name) { return file(name, input); }
Socket connection(std::string_view sent, bool and_closed) {
    input = sent, received = 0, closed = and_closed, descriptors++;
    return Socket(kConnection);
}

template <class T> T take(std::string_view* in) {
    T x = {};
    const size_t n = std::min(sizeof x, in->size());
    std::memcpy(static_cast<void*>(&x), in->data(), n);
    in->remove_prefix(n);
    return x;
}

// ---------------------------------------------------------------------------------------------------------- files

void safetensors(std::string_view) {
    static const Arena arena =
        arena_layout({{"wte.weight", 16, 2, 3, false, 0, true}, {"h.0.attn.c_proj.weight", 2, 2, 2, true, 0, true}});
    const SafeTensors tensors = open_safetensors(file("m.safetensors"));
    std::vector<float> values(arena.n);
    read_tensors(find_tensors(tensors, arena.tensors), arena, arena, values.data());
}
void model_file(const char* name) {
    static const Arena arena = arena_layout({{"transformer.wte.weight", 16, 8, 3, false, 0, true},
                                             {"transformer.wpe.weight", 4, 8, 4, false, 0, true},
                                             {"transformer.ln_f.weight", 1, 8, 1, false, 0, false},
                                             {"transformer.ln_f.bias", 1, 8, 1, false, 0, false}});
    const ModelFile m = open_model_file(file(name));
    parse_config(m.config_json, name);
    std::vector<float> values(arena.n);
    read_model_file(name, arena, arena, values.data(), "scratch");
    if (!m.vocabulary.empty()) tokenizer_parse(tokenizer_json_of_gguf(m.split, m.vocabulary, m.begin, name), name);
}
// A key that is there counts: no type and no value of it may leave the model with another number.
void gguf_keys(std::string_view) {
    const std::string text = open_model_file(file("m.gguf")).config_json;
    const Json config = parse_json(text, "m.gguf");
    const std::string kind = config.get_string("model_type", "m.gguf");
    for (const GgufKey& key : ::gguf_keys(kind))
        if (const Json value = config.find(key.hf); value && value.kind() == Json::null) std::abort();
    parse_config(text, "m.gguf");
}
void config(std::string_view in) {
    const ModelConfig c = parse_config(in, "config.json");
    const ptrdiff_t reading = peak;
    peak = live;
    count_parameters(c.info->tensors(c.shape));     // a table of the tensors: the layers give its size, not the input's
    if (peak > live + ptrdiff_t(kLayer * size_t(c.shape.L) + kLittle)) finding("bytes of heap to count", peak - live);
    peak = reading;
}
// A folder of PEFT, its two files with a zero byte between them, into a model's weights.
void merge(std::string_view in) {
    static const Arena arena = arena_layout({{"transformer.h.0.attn.c_attn.weight", 6, 2, 6, true, 0, true}});
    file("./adapter_config.json", next_word(&in, '\0'));
    file("./adapter_model.safetensors", in);
    std::vector<float> values(arena.n);
    const Tuned tuned = read_tuned(".");
    for (const Adapter& a : find_adapters(".", tuned, arena.tensors))
        add_adapter(&values[a.begin], a.rows, 2, tuned.rank, tuned.scale, {a.A, a.B});
}
void options(std::string_view in) {
    Options o;
    options_merge_saved(&o, std::string(in), "config.json");
    const ptrdiff_t reading = peak;
    peak = live;
    const std::string json = options_to_json(o);  // of its own size, not the input's: "\b" is written as six bytes
    if (peak > reading + ptrdiff_t(4 * json.size() + kLittle))
        finding("bytes of heap to write the options", peak - reading);
    peak = reading;
}
void state(std::string_view in) {
    const Json j = parse_json(in, "state.json");
    j.get_u64("step", "state.json");
    j.get_string("data_hash", "state.json");
    json_shown(j.at("best_val", "state.json"));
}
std::string there_and_back(const Tokenizer& t, std::string_view text) {
    std::vector<int> ids;
    t.encode(text, &ids);
    std::string decoded;
    for (const int id : ids) decoded += t.bytes[size_t(id)];
    return decoded;
}
void tokenizer(const char* name) {
    const Tokenizer t = tokenizer_load(file(name));
    // Pieces of more than 15 bytes: of shorter ones encode() keeps 2 MB of tokens, which would be most of the work.
    const std::string text =
        t.kind == Tokenizer::character ? t.bytes[0] : " thethethetheabcabcabc................\xff\xe6\x97";
    if (there_and_back(t, text) != text) std::abort();
    std::vector<int> ids;
    t.encode(text, &ids, {}, true);
    const std::string json = t.to_json();
    parse_json(json, "to_json");
}
// A tokenizer of each split, whose merges are those of a text with all that the splits tell apart.
const Tokenizer& tokenizer_of(const Split& split) {
    static std::vector<Tokenizer> all;
    const char* const text = "ab'S 12 ab'S 12  \n (c (c e\u0301\u0301";
    for (const Split& s : splits)
        if (all.size() < std::size(splits)) all.push_back(tokenizer_train_bpe(text, 260, s));
    return all[size_t(&split - splits)];
}
const bool with_tables = tokenizer_of(splits[2]).split.nfc;     // NFC's are made once, and count for no input
// Each split cuts any bytes into pieces that are not empty, and the tokens give the text back; with NFC its form, which
// does not change again.
void encoder(std::string_view in) {
    std::string composed, again;
    if (!to_nfc(in, &composed)) composed = in;
    if (to_nfc(composed, &again) && again != composed) std::abort();
    for (const Split& split : splits) {
        for (std::string_view rest = in; !rest.empty();) {
            const size_t n = split.next_piece(rest);
            if (n == 0 || n > rest.size()) std::abort();
            rest.remove_prefix(n);
        }
        Tokenizer t = tokenizer_of(split);
        tokenizer_finish(&t);                       // an empty cache
        if (there_and_back(t, in) != (split.nfc ? composed : in)) std::abort();
    }
}
const Tokenizer bytes_as_tokens = tokenizer_byte();
void samples_of(const Dataset& d) {
    int x[4], y[4], begin[4];
    double given[4];
    const auto read = [&](uint64_t i) { d.sample(i, x, y, 50257, given, begin); };
    for (uint64_t i = 0; i < d.samples; i += 1 + i / 4) read(i);    // the first ones, then fewer
    if (d.samples) read(d.samples - 1);
}
void shard(const char* name) {
    const Shard one = open_token_file(file(name));
    const uint64_t samples = one.tokens ? (one.tokens - 1) / 4 : 0;
    samples_of({.shards = {one}, .first = {0, samples}, .T = 4, .samples = samples});
}

void tokens_of(const char* name, const Tokenizer& tokenizer, const ChatTemplate& chat, int T) {
    const auto nothing = [] {};
    const Source source = find_texts(file(name));
    Text text = read_text(source, false, nothing);
    std::vector<char> tokens;
    Shard made;
    std::string note;
    if (!source.is_masked()) encode_text(text, tokenizer, &made, &tokens, nothing);
    else if (chat.form || source.format == Format::pairs)
        encode_conversations(&text, tokenizer, chat, T, T % 2, &made, &tokens, &note, nothing);
}
void chat(std::string_view in) {
    static const Tokenizer tokens = [] {
        Tokenizer t = tokenizer_byte();
        for (const char* form : {"chatml", "llama3"}) add_chat_tokens(&t, choose_chat_template(form, {}, ""));
        return t;
    }();
    const ChatTemplate form = choose_chat_template(in.size() % 2 ? "chatml" : "llama3", {}, "");
    tokens_of("a.jsonl", tokens, form, 8);
}
// A template that writes some turns; what it writes of them is theirs.
void jinja(std::string_view in) {
    static const std::vector<JinjaTurn> turns = {{U"system", characters_of("Be brief.", kGiven)},
                                                 {U"user", characters_of(" H\xC3\xA9\xff ", kGiven)},
                                                 {U"assistant", characters_of("Yo", kGiven | kAnswer)}};
    const Jinja read(in, "chat_template", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    for (size_t count = 0; count <= turns.size(); count++) text_of(read.render(turns, count, count % 2 == 0));
}
const std::string kShard =
    R"({"vocab_size":1,"description":"a","train":{"path":"a","hash":"b","shards":[{"file":"tokens.bin","width":2,)"
    R"("offset":0,"begin":0,"tokens":12,"every":0,"crc32c":0,"masked":false)";
// The manifest.json that the trainer reads, a zero byte, and what bytes.bin and rows.bin have.
void data(std::string_view in) {
    file("./manifest.json", next_word(&in, '\0'));
    for (const char* name : {"./bytes.bin", "./rows.bin"}) file(name, in);
    file("./tokens.bin", "some tokens of two bytes"), file("./tokenizer.json", "{}");
    const Data data = read_data(".", 4);
    for (const Dataset* part : {&data.train, &data.val}) samples_of(*part);
}

// config.json and metrics.jsonl of a run, with a zero byte between them. No text of theirs is markup in the page.
void report(std::string_view in) {
    file("./config.json", next_word(&in, '\0'));
    Runs runs = {RunLog(file("metrics.jsonl", in))};
    runs[0].read();
    runs[0].read();
    const std::string json = report_tool::data_json(runs, true);
    parse_json(json, "data.json");
    if (json.find('<') != json.npos || report_tool::page(runs, false).find("<x") != json.npos) std::abort();
}
void tensorboard(std::string_view in) {
    const std::string records = event_records(in);
    for (std::string_view rest = records; !rest.empty();) {
        const uint64_t bytes = take<uint64_t>(&rest);
        if (rest.size() < bytes + 8) std::abort();
        rest.remove_prefix(bytes + 8);
    }
}

const prep_tool::Arguments prep_arguments = {.inputs = {"a.jsonl"}, .out = ".", .tokenizer = "byte"};
// Documents, to tokens. Those of a single text are its bytes.
void prep(std::string_view in) {
    const prep_tool::Arguments& a = prep_arguments;
    const char* const name = in.starts_with('{') ? "a.jsonl" : "a.txt";
    const std::vector<prep_tool::Input> inputs = prep_tool::find_inputs({file(name)}, "text");
    prep_tool::Reader reader = {inputs};
    while (const auto chunk = reader.next()) {
        const prep_tool::Encoded encoded = prep_tool::encode(*chunk, bytes_as_tokens, a);
        const size_t tokens = encoded.parts[0].tokens.size() + encoded.parts[1].tokens.size();
        if (chunk->alone && tokens != chunk->text.size()) std::abort();
    }
}
// The state of an interrupted one. Its checksum is right: anybody can make that.
void prep_state(std::string_view in) {
    if (in.empty()) return;
    const std::string state = prep_tool::with_crc(std::string(in));
    file("./prep.json", state);
    file("./.train.1.part", "abcd"), file("./.val.1.part", ""), file("./train_000000.bin", "a shard");
    file("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
    const std::vector<prep_tool::Input> inputs = prep_tool::find_inputs(prep_arguments.inputs, "text");
    prep_tool::Reader reader = {inputs};
    prep_tool::Job job = {prep_arguments, inputs};
    const auto place = job.resume("./prep.json");
    if (!place) std::abort();
    reader.repeat(place->hashes, place->at);
    while (reader.next()) {}
}
void arguments(std::string_view in) {
    std::vector<std::string> words = {"train_gpt"};
    for (size_t at = 0; at < in.size() && words.size() < 40; at += words.back().size() + 1)
        words.emplace_back(in.substr(at, in.find('\n', at) - at));
    std::vector<const char*> argv;
    for (const std::string& w : words)
        if (w.find("help") == std::string::npos && w.find("version") == std::string::npos) argv.push_back(w.c_str());
    Options o = parse_options(int(argv.size()), argv.data());
    resolve_options(&o, false);
}

// ------------------------------------------------------------------------------------------------------- messages

Meeting meeting() {
    Meeting m;
    m.me.pid = 1;
    m.key = "secret", m.master_addr = "127.0.0.1";
    m.peers.resize(4);
    m.deadline = now_seconds() + 1;
    return m;
}

// The listening side: bytes of anybody; then a Claim of anybody who knows the secret.
void stranger(std::string_view in) {
    const Meeting m = meeting();
    const auto comes = [&](std::string_view bytes) {
        Connection c = {connection(bytes, false)};
        return receive_message(c.socket.fd, &c.claim, sizeof c.claim) > 0 && check_claim(m, &c);
    };
    if (comes(in)) std::abort();  // without the secret
    Claim claim = take<Claim>(&in);
    claim.proof = prove(m, {}, claim);
    if (!comes(bytes_of(claim))) std::abort();
}
// The connecting side: a listener, which cannot know the secret: the nonce that it must prove is fresh.
void listener(std::string_view in) {
    const Meeting m = meeting();
    const Socket s = connection(in, true);
    if (introduce(m, s.fd, "a stranger", {})) std::abort();
}
// Records and failures of a rank that has been admitted; what rank 0 then says about it.
void control(std::string_view in) {
    const bool left = take<char>(&in) & 1;
    Comm comm;
    Comm::Impl impl;
    comm.impl = &impl;
    comm.size = comm.local_size = 2;
    comm.peers = {{"a", 1}, {"b", 2}};
    comm.timeout = 1;
    impl.ending = true;  // nobody leaves the process
    impl.watched.resize(2);
    impl.watched[1].socket = connection(in, left);
    read_messages(&comm, 1);
    judge(&comm, now_seconds() + 100);
}
// Data between hosts: the header and its bytes.
void wire(std::string_view in) {
    const char how = take<char>(&in);
    char payload[64] = {};
    Comm comm;
    Comm::Impl impl;
    comm.impl = &impl;
    comm.hosts = 2;
    comm.peers = {{"a", 1}, {"b", 2}};
    Header head = {sizeof payload, 0};
    if (how & 2) head.crc = crc32c(0, in.data(), std::min(in.size(), sizeof payload));
    const std::string sent = (how & 1 ? bytes_of(head) : "") + std::string(in);
    impl.mesh.emplace_back();
    impl.mesh.push_back(connection(sent, true));
    const auto all = [&](int) { return Bytes{payload, sizeof payload}; };
    exchange(&comm, all, all);
}

// A request of a browser. A page of another site gets nothing.
void http(std::string_view in) {
    const Socket s = connection(in, true);
    answer_request(s.fd, [](const std::string& path, std::string*) { return path == "/" ? "page" : ""; });
    const bool local = in.find("127.0.0.1") != in.npos || in.find("localhost") != in.npos;
    if (status < 200 || status > 405 || (status == 200 && !local)) std::abort();
}

// ----------------------------------------------------------------------------------------------------------- the table

std::string words(const std::vector<uint32_t>& all) {
    return std::string(reinterpret_cast<const char*>(all.data()), 4 * all.size());
}
// A text behind its size, as GGUF and safetensors have it.
std::string sized(std::string_view s) { return bytes_of(uint64_t(s.size())) + std::string(s); }
// Most memory for their size: 4 bytes a token, and 8.
std::string many_merges() {
    std::string s;
    for (char a = '!'; a <= '~'; a++)
        for (char b = '!'; b <= '~' && s.size() < 16000; b++) s += {a, ' ', b, '\n'};
    return s;
}
std::string many_characters() {
    std::string text;
    for (uint32_t code = 0x100; code < 0x780; code++) append_utf8(&text, code);
    return tokenizer_char(text).to_json();
}
std::string with_added() {
    std::string json = tokenizer_of(splits[3]).to_json();
    return json.insert(json.find("\"added_tokens\":[") + 16,
                       "{\"id\":270,\"content\":\"the<\"},{\"id\":280,\"content\":\"abc\",\"normalized\":true},");
}
std::string claim() {
    Claim c = {};
    c.peer.rank = 2;
    return bytes_of(c);
}
std::string record(Kind kind) {
    Message m = {};
    m.kind = kind;
    std::memcpy(m.record.phase, "forward", 8);
    return bytes_of(m);
}

// An input may take `factor` bytes of heap for each of its own, and `room` for what is of one size: messages, a
// tokenizer of bytes, buffers of 64 KiB. A tokenizer is tables: 4 bytes of a vocab.bpe, "a b\n", are a token and a
// merge, with their look-ups 60 bytes; and of characters it has a number for each code point below the largest, twice
// while they grow. DONE, at most 64 KiB, is a list of files: a line of 6 bytes is an entry of 48, in a vector that
// doubles.
constexpr size_t kRoom = 128 << 10, kCodePoints = 9 << 20, kTables = 64;
// sources: what reads, in src/ or models/, beside common and file: inputs of a run count as long as it stays as it is
// (run.sh).
std::string some_config(const char* name, float dropout) {
    ModelConfig c = {.info = find_model(name), .shape = {.L = 2, .NH = 2, .C = 16, .T = 8, .dropout = dropout}};
    if (!dropout) rope_factor(c.shape) = 8;
    c.info->check(c.shape);
    set_vocabulary(&c.shape, 257);
    return config_json(c, R"({"bos_token_id":256,"eos_token_id":256})");
}
// A model with those tensors, in both formats.
template <class T> std::string gguf_key(const char* name, uint32_t type, T x) {
    return sized(name) + bytes_of(type) + bytes_of(x);
}
std::string gguf_texts(const char* name, std::initializer_list<const char*> texts) {
    std::string all = gguf_key(name, 9, uint32_t(8)) + bytes_of(uint64_t(texts.size()));
    for (const char* s : texts) all += sized(s);
    return all;
}
std::string gguf_model() {
    const auto text = [](const char* name, const char* s) {
        return sized(name) + bytes_of(uint32_t(8)) + sized(s);
    };
    std::string file = "GGUF" + bytes_of(uint32_t(3)) + bytes_of(uint64_t(4)) + bytes_of(uint64_t(14));
    file += text("general.architecture", "gpt2") + gguf_key("gpt2.context_length", 4, 4u);
    file += gguf_key("gpt2.embedding_length", 4, 8u) + gguf_key("gpt2.feed_forward_length", 4, 32u);
    file += gguf_key("gpt2.block_count", 4, 1u) + gguf_key("gpt2.attention.head_count", 4, 1u);
    file += gguf_key("gpt2.attention.layer_norm_epsilon", 6, 1e-5f) + gguf_key("general.alignment", 4, 32u);
    file += text("tokenizer.ggml.model", "gpt2") + text("tokenizer.ggml.pre", "gpt-2");
    file += gguf_texts("tokenizer.ggml.tokens", {"a", "ab", "<|endoftext|>"}) + gguf_texts("tokenizer.ggml.merges", {});
    file += gguf_key("tokenizer.ggml.token_type", 9, 5u) + bytes_of(uint64_t(3)) + words({1, 1, 3});
    file += gguf_key("tokenizer.ggml.eos_token_id", 4, 2u);
    uint64_t offset = 0;
    const std::pair<const char*, uint64_t> tensors[] = {{"token_embd.weight", 3}, {"position_embd.weight", 4},
                                                        {"output_norm.weight", 0}, {"output_norm.bias", 0}};
    for (const auto& [name, rows] : tensors) {
        file += sized(name) + bytes_of(rows ? 2u : 1u) + bytes_of(uint64_t(8));
        if (rows) file += bytes_of(rows);
        file += bytes_of(0u) + bytes_of(offset);
        offset += 32 * std::max<uint64_t>(rows, 1);
    }
    file.resize(round_up<size_t>(file.size(), 32));
    return file + std::string(offset, '\1');
}
// All that a file may say of a llama, without a tensor.
std::string llama_keys(uint32_t rope_type) {
    std::string file = gguf_key("general.architecture", 8, uint64_t(5)) + "llama";
    uint64_t count = 1;
    for (const GgufKey& key : ::gguf_keys("llama")) {
        const std::string name = std::string("llama.") + key.name;
        const bool of_head = std::string(key.hf) == "head_dim";
        const uint32_t whole = of_head ? 8 : name.ends_with("length") ? 16 : 2;
        file += key.real ? gguf_key(name.c_str(), 6, 1e-3f) : gguf_key(name.c_str(), 4, whole);
        count++;
    }
    if (rope_type == 12) file.replace(file.size() - 8, 8, bytes_of(12u) + bytes_of(5e5));       // a double
    return "GGUF" + bytes_of(3u) + bytes_of(uint64_t(0)) + bytes_of(count) + file;
}
std::string metrics_lines() {
    return "{\"event\":\"run\",\"step\":0,\"argv\":\"<x>\",\"time\":1.5}\n"
           "{\"event\":\"train\",\"step\":0,\"loss\":5.5,\"lr\":1e-3,\"grad_norm\":2,\"step_ms\":7,\"tokens\":64,"
           "\"mfu\":null,\"compute_ms\":5,\"exposed_ms\":1,\"compute_ms_max\":6,\"compute_ms_min\":5,\"time\":2}\n"
           "{\"event\":\"val\",\"step\":1,\"loss\":5,\"bpb\":1.5,\"time\":3}\n"
           "{\"event\":\"task\",\"step\":1,\"name\":\"<x>\",\"items\":4,\"right\":2,\"time\":3}\n"
           "{\"event\":\"sample\",\"step\":1,\"prompt\":\"<x>\",\"text\":\"a\\n<x>\",\"time\":3}\n"
           "{\"event\":\"ckpt\",\"step\":1,\"path\":\"<x>\",\"stall_ms\":2,\"time\":4}\n"
           "{\"event\":\"warn\",\"step\":1,\"msg\":\"<x>\",\"time\":4}\n"
           "{\"event\":\"resume\",\"step\":1,\"time\":9}\n"
           "{\"event\":\"done\",\"step\":1,\"code\":75,\"why\":\"<x>\",\"time\":9}\n";
}
std::string adapter_files() {
    const std::string config = tuned_config_json(2, 4, "all", {}, "."), json =
        "{\"base_model.model.transformer.h.0.attn.c_attn.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],"
        "\"data_offsets\":[0,16]},\"base_model.model.transformer.h.0.attn.c_attn.lora_B.weight\":{\"dtype\":\"F32\","
        "\"shape\":[6,2],\"data_offsets\":[16,64]}}";
    return config + std::string(1, '\0') + sized(json) + std::string(64, '\1');
}
std::string prepared() {
    using namespace prep_tool;
    file("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
    const bool was = std::exchange(inside, true);
    const std::vector<Input> inputs = find_inputs(prep_arguments.inputs, "text");
    Job job = {prep_arguments, inputs};
    job.saves = 1;
    job.out[0].tokens = {0x64636261};               // "abcd"
    job.out[0].shards = {
        JsonLine().add("file", "train_000000.bin").add("tokens", 3).add("crc32c", crc32c(0, "a shard", 7)).text()};
    std::string text;
    {
        Reader reader = {inputs};
        const auto chunk = reader.next();
        text = job.state({reader.hashes, chunk->text.size()});
    }                                               // closes its file
    inside = was, file_count = 0;
    return text.substr(0, text.rfind(kCrcKey)) + "}";
}
std::string llmc_model() {
    return words({20240326, 3, 4, 3, 1, 1, 8, 5}) + std::string(992, '\0') + std::string((5 + 4 + 2) * 32, '\1');
}
struct Target {
    const char *name, *sources;
    void (*run)(std::string_view);
    size_t factor, room;
    std::vector<std::string> seeds;
};
const std::vector<Target>& targets() {
    static const std::vector<Target> all = {
        {"safetensors", "safetensors tensor_files arena json unicode", safetensors, 2, kRoom,
         {sized("{\"wte.weight\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[0,12]},"
                "\"h.0.attn.c_proj.weight\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[12,20]},"
                "\"__metadata__\":{\"format\":\"pt\"}}") +
          std::string(20, '\1')}},
        {"gguf", "model_file safetensors tensor_files config_reader tokenizer tokenizer_files json unicode",
         [](auto) { model_file("m.gguf"); }, kTables, kCodePoints, {gguf_model()}},
        {"gguf_keys", "model_file config_reader llama_reader json unicode", gguf_keys, 16, kRoom,
         {llama_keys(6), llama_keys(12)}},
        {"llmc", "model_file safetensors tensor_files config_reader json unicode", [](auto) { model_file("m.bin"); }, 2,
         kRoom, {llmc_model()}},
        {"config", "config config_reader model shape gpt2 lstm llama llama_config llama_reader json unicode",
         config, 2, kLittle, {some_config("gpt2", 0.1f), some_config("llama", 0)}},
        {"adapter", "model_folder json unicode",
         [](auto) { file("./adapter_config.json"), read_tuned("."); }, 2, kLittle,
         {tuned_config_json(8, 16, "all", {}, ".")}},
        {"merge", "model_folder config safetensors tensor_files arena json unicode", merge, 4, kRoom,
         {adapter_files()}},
        {"task", "questions tokenizer json unicode",
         [](auto) { read_questions(file("a.jsonl"), bytes_as_tokens, 8); }, 64, kRoom,
         {"{\"ctx\": \"The cat sat on \", \"endings\": [\"the mat.\", \"a cloud.\"], \"label\": 0}\n\n"
          "{\"ctx\":\"\",\"endings\":[\"x\"],\"label\":\"0\"}"}},
        {"report", "report curves tables picture json unicode", report, 256, 1 << 20,
         {"{\"run\":1,\"data\":\"<x>\"}" + std::string(1, '\0') + metrics_lines()}},
        {"tensorboard", "event_file json unicode", tensorboard, 32, kLittle, {metrics_lines()}},
        {"prep", "prep token_files tokenizer json unicode", prep, 64, kRoom,
         {"{\"text\": \"a\"}\n\n{\"text\": \"\\u00e9\"}\n{\"messages\":[]}",
          "\xef\xbb\xbf<html> a text\nof two lines"}},
        {"prep_state", "prep json unicode", prep_state, 4, kRoom, {prepared()}},
        {"http", "serve", http, 4, kLittle,
         {"GET / HTTP/1.1\r\nHost: localhost:6180\r\n\r\n", "GET /data.json HTTP/1.0\r\nhost:a.example\r\n\r\n",
          "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"}},
        {"options", "options words json unicode", options, 2, kRoom,     // the table of options takes 80 KiB
         {options_to_json(Options()), "{\"options\":{\"heads\":4,\"overlap\":false,\"lr\":1e-3}}"}},
        {"state", "json unicode", state, 2, kLittle,
         {"{\"version\":1,\"step\":7,\"tokens\":99,\"data_hash\":\"0123\",\"val_hash\":\"4\",\"bad_steps\":0,\"best_"
          "val\":null}\n"}},
        {"done", "checkpoint", [](std::string_view in) { parse_done(std::string(in), "DONE"); }, 32, kLittle,
         {done_text({12, {{"model.safetensors", 1000, 77}, {"state.json", 5, 1}}})}},
        {"tokenizer_json", "tokenizer tokenizer_files json unicode", [](auto) { tokenizer("t.json"); }, kTables,
         kCodePoints, {tokenizer_char("ab").to_json(), tokenizer_byte().to_json(), many_characters(),
                       tokenizer_of(splits[1]).to_json(), tokenizer_of(splits[2]).to_json(), with_added()}},
        {"encoder", "tokenizer unicode unicode_tables", encoder, kTables, kRoom,
         {"don'T  e\u0327\u0301 123456\r\n\n x(y \u1100\u1161\u11a8", "'\u017f \u3000\xff\xe6\x97\u0958"}},
        {"vocab_bpe", "tokenizer tokenizer_files json unicode", [](auto) { tokenizer("t.bpe"); }, kTables, kRoom,
         {"#version: 0.2\na b\nab c\n\xc4\xa0 a\n", many_merges()}},
        {"bin", "data token_files", [](auto) { shard("a.bin"); }, 2, kRoom,
         {words({20240520, 1, 8}) + std::string(1012, '\0') + words({1, 2, 3, 4}), words({1, 2, 3, 4, 5})}},
        {"npy", "data token_files", [](auto) { shard("a.npy"); }, 2, kRoom,
         {std::string("\x93NUMPY\1\0\x40\0", 10) +
          "{'descr': '<u2', 'fortran_order': False, 'shape': (6,), }       \n" + words({1, 2, 3})}},
        {"jsonl", "text token_files tokenizer json unicode",
         [](auto) { tokens_of("a.jsonl", bytes_as_tokens, {}, 4); }, 16, kRoom,
         {"\xef\xbb\xbf{\"text\": \"first \\u00e9\"}\r\n\n{\"id\": [1], \"text\": \"second\"}\n"}},
        {"data", "data json unicode", data, 16, kRoom,
         {kShard + R"(}]},"vocabulary":{"name":"byte","tokens":1,"ends":[0],"begin":0,"end":0,"untrained":[],)"
          R"("config":{},"chats":false,"bytes":"bytes.bin","files":["tokenizer.json"]},"start":[0]})" +
              std::string("\0\1\0\0\0x", 6),
          kShard + R"(}],"rows":"rows.bin"}})" + '\0' +
              bytes_of(std::array<uint64_t, 9>{1, 1, 2, 4, 0, 2, 5 << 24 | 3, 9 << 24 | 1, 0})}},
        {"chat", "chat jinja text token_files tokenizer json unicode", chat, 64, kRoom,
         {"{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"
          "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"Yo\"}]}]}\n"
          "{\"instruction\":\"a\",\"output\":\"b\"}\n",
          "{\"conversations\":[{\"from\":\"gpt\",\"value\":\"Yo\"}]}\n",
          "{\"prompt\":\"2+2=\",\"completion\":\"4\"}\n"}},
        {"jinja", "jinja unicode", jinja, 1024, 1 << 20,
         {"{%- if messages[0].role == 'system' %}{{ messages[0]['content'] | trim }}{% set m = messages[1:] "
          "%}{% else %}\n{% set m = messages %}{% endif %}{# no #}{% for x in m %}{{ '<|' + x.role ~ loop.index0 }}"
          "{% if not loop.last and x.content.split(' ')[-1] in ['a', \"b\"] or x.y is defined %}a{% elif 1 < 2 %}b"
          "{% endif %}{% endfor %}{{ eos_token if add_generation_prompt else '' }}",
          "{% macro f(a, b='c') %}{{ a }}{% endmacro %}{% set ns = namespace(n=0) %}{% for i in messages[::-1] %}"
          "{% set ns.n = ns.n + loop.index % 2 %}{% endfor %}{% generation %}{{ -ns.n }}{% endgeneration %}"
          "{{ messages | length }}{{ messages[1].content.lstrip('h') | default('d') | upper }}",
          "{{ raise_exception('no') }}", "{{ tools.x }}{{ 'a' in 'ab' }}"}},
        {"text", "text token_files tokenizer", [](auto) { tokens_of("a.txt", bytes_as_tokens, {}, 4); }, 16, kRoom,
         {"some text\nof two lines", "\xff\xfeh\0i\0", "PK\x03\x04"}},
        {"arguments", "options", arguments, 2, kRoom,
         {"--steps\n5\n--lr=1e-3\n--total-batch-size\n512k", "sample\nx\n--prompt\nabc", "--stpes\n3"}},
        {"stranger", "rendezvous", stranger, 2, kLittle, {claim()}},
        {"listener", "rendezvous", listener, 2, kLittle, {bytes_of(Digest{}) + bytes_of(Digest{}), bytes_of(Digest{})}},
        {"control", "comm rendezvous", control, 2, kLittle,
         {std::string(1, '\0') + record(Kind::record), "\1" + record(Kind::failure) + record(Kind::farewell)}},
        {"wire", "comm rendezvous", wire, 2, kLittle,
         {"\3" + std::string(64, 'x'), "\1" + std::string(68, 'x'), std::string(1, '\0') + bytes_of(Header{64, 0})}},
    };
    return all;
}
const Target* target = nullptr;
ptrdiff_t most = 0;  // of heap beyond target->factor
}  // namespace

static void read_once(std::string_view in) {
    live = peak = 0;
    input = in;
    file_count = status = 0;
    inside = true;
    int code = 0;
    try {
        target->run(in);
    } catch (const Error& e) {
        code = e.code;
    }
    inside = false;
    const bool known = code == 0 || code == kExitBadContent || code == kExitUsage || code == kExitNoInput ||
                       code == kExitPeer || code == kExitDisagree;
    if (!known && target->run != listener)
        finding("is no exit code of a reader", code);  // a listener may name any code
    most = std::max(most, peak - ptrdiff_t(target->factor * in.size()));
    if (most > ptrdiff_t(target->room)) finding("bytes of heap beyond its limit", most);
    if (descriptors != 0) finding("descriptors left open", descriptors);
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    const char *name = std::getenv("FUZZ_TARGET"), *seeds = std::getenv("FUZZ_SEEDS");
    for (const Target& t : targets()) {
        if (name && !std::strcmp(name, "list")) std::printf("%s common file %s\n", t.name, t.sources);
        if (name && !std::strcmp(name, t.name)) target = &t;
    }
    if (!target) std::exit(name && !std::strcmp(name, "list") ? 0 : 2);
    for (size_t i = 0; seeds && i < 3 * target->seeds.size(); i++) {  // whole, a byte short, half
        const std::string& s = target->seeds[i / 3];
        FILE* f = std::fopen(path_join(seeds, format("seed%zu", i)).c_str(), "wb");
        std::fwrite(s.data(), 1, i % 3 == 0 ? s.size() : i % 3 == 1 ? s.size() - 1 : s.size() / 2, f);
        std::fclose(f);
    }
    for (const int limit : {M_TRIM_THRESHOLD, M_MMAP_THRESHOLD}) mallopt(limit, 64 << 20);      // pages are kept
    for (const std::string& s : target->seeds) read_once(s);
    std::atexit([] { std::fprintf(stderr, "stat::most_heap_beyond_factor: %td\n", most); });
    return 0;
}

// A little may be left the first time: what is made once for all inputs.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    for (int times = 0; times < 3; times++) {
        read_once({reinterpret_cast<const char*>(data), size});
        if (live <= 0) return 0;
    }
    finding("bytes of heap left each time", live);
    return 0;
}
