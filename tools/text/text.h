// text.h -- reads the texts that --data means, finds their documents and their part for validation, and encodes them.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>
#include "src/base/common.h"
#include "src/base/json.h"
#include "tools/text/chat.h"
#include "tools/text/sources.h"
#include "tools/text/token_files.h"

using Progress = std::function<void()>;      // called often while a function works; it may throw

size_t nine_tenths(std::string_view text);  // the byte at which character floor(9 n / 10) of n begins

void require_utf8(std::string_view text, const std::string& where);     // kExitBadContent, with line and byte

// Records that cannot be read: `allowed` of them, of all files together, are skipped, the next one is an error.
struct BadLines {
    struct File { uint64_t count, line; std::string first; };   // the first one's number and error
    uint64_t allowed = 0, count = 0;
    std::map<std::string, File> files = {};     // those that have any
    void skip(const std::string& place, Error error);   // or throws the error, which begins with "FILE: line 3"
    void add(const std::string& file, const File& more);
    std::vector<std::string> text() const;      // of each file: "a.jsonl: 2 lines are skipped, the first: line 3: ..."
};

// Reads the records of JSON: objects on lines, or in a list. Errors name the record behind `what`.
struct RecordReader {
    const std::string what;
    BadLines* bad;
    std::string place = {};                     // of the record: ": line 3"
    // Calls f(json) for the record in a line.
    template <class F> void line(std::string_view text, uint64_t number, const F& f) {
        text = without_mark(text);                  // of each file, where several have become one
        if (!is_blank(text)) read(": line ", number, [&] { f(parse_json(text, what.c_str())); });
    }
    // Calls f(json) for each record of a text that is one value.
    template <class F> void value(std::string_view text, const F& f) {
        const Json all = parse_json(without_mark(text), what.c_str());
        if (all.kind() != Json::array) return read(": record ", 1, [&] { f(all); });
        uint64_t number = 0;
        for (JsonItems i(all); i.next();) read(": record ", ++number, [&] { f(i.value); });
    }
  private:
    template <class F> void read(const char* kind, uint64_t number, const F& f) try {
        place = kind + std::to_string(number);
        f();
    } catch (Error& e) {
        e.message.insert(what.size(), place);
        bad->skip(what + place, e);
    }
};

// The text of a source. Its parts are documents, or one text, or the two parts of one if its end is for validation.
struct Text {
    std::string all;
    std::vector<size_t> ends;               // of the parts, in `all`; only the first of a cut text may be empty
    size_t documents = 0, train = 0;        // how many parts begin a document; how many are for training
    std::vector<Conversation> conversations = {};   // part i is the text of conversation i
    BadLines bad = {};
    void add(std::string_view part) {
        if (!part.empty()) ends.push_back(all.append(part).size());
    }
};

// Reads the text of a source. split: keeps a part for validation. kExitBadContent names file and line.
Text read_text(const Source& source, bool split, const Progress& progress);

// Returns what Shard::given has for a text whose tokens have `bytes` bytes, `more` fewer than were given.
inline double each_given(uint64_t bytes, int64_t more) { return bytes ? 1 + double(more) / double(bytes) : 1; }
inline void note_given(Given* given, uint64_t first, double each) {
    if (each != std::prev(given->upper_bound(first))->second) (*given)[first] = each;
}

// Appends the tokens of a text to *out, shard->width bytes each, and says in *shard what they were given as. Returns
// how many tokens are for training.
uint64_t encode_text(const Text& text, const Tokenizer& tokenizer, Shard* shard, std::vector<char>* out,
                     const Progress& progress);
// Appends a window of T tokens of 4 bytes for each conversation. packed: appends up to T tokens of each, the first with
// kBegins, the last one that is trained on. The last target of a conversation is the first token of the next one, which
// is untrained, so one more token follows the last one for training, and another the last for validation. Returns how
// many tokens are for training. *note: statistics for the user. A conversation that the template refuses is a bad line.
uint64_t encode_conversations(Text* text, const Tokenizer& tokenizer, const ChatTemplate& chat, int T, bool packed,
                              Shard* shard, std::vector<char>* out, std::string* note, const Progress& progress);
