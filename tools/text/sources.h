// sources.h -- finds the files that --data and --val-data mean, by their names and by what they contain.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>
#include "tools/text/token_files.h"

// What the trainer tells build/prep.
struct TextOptions {
    std::string data = {}, val_data = {};   // paths; empty: the built-in stories
    std::string tokenizer = {};             // value of --tokenizer; empty: init.tokenizer, else "byte" for texts
    std::string chat_template = "auto";     // value of --chat-template
    std::string rows = "join";              // value of --rows; "auto": documents for conversations, else join
    ModelTexts init = {};                   // text files of the model that the run starts from
    std::string init_path = {};             // path of that model's tokenizer.json
    std::string init_weights = {};          // folder of that model's weights, if the run begins with them; else ""
    std::string prompt = {};                // value of --prompt
    std::string cache = {};                 // folder for prepared texts if the user has no cache; may be ""
    int init_vocab = 0, vocab_size = 0;     // that model's vocabulary, or 0; value of --vocab-size, or 0
    int seq_len = 0;                        // T
    int skip_bad_lines = 0;                 // value of --skip-bad-lines
    bool special_tokens = false;            // value of --special-tokens
    std::string frozen_by = {};             // the option that freezes the embedding, so no token can be added; or ""
    bool whole = false;                     // all of `data` is for validation, and no token is added
    bool quiet = false;                     // no notes and warnings are printed
};

const char* format_name(Format format);         // "text", "an llm.c token shard"

// The files that a path means: a file, the files of a folder, or the matches of a glob; all of one format, and sorted.
struct Source {
    std::string path;                           // as given
    std::vector<std::string> files = {};
    std::vector<std::string> others = {};       // what is there and not taken, but for hidden files
    Format format = Format::text;
    int skip_bad_lines = 0;                     // as the option
    bool is_text() const { return format <= Format::pairs; }
    bool is_masked() const { return format == Format::chat || format == Format::pairs; }
    bool has_documents() const { return is_text() && (format != Format::text || files.size() > 1); }
};
// Returns the path itself, the matches of a glob, or the files of a folder; without a format. Of a folder it leaves out
// hidden files, backups, and files about data, such as README.md, unless there are no others. It takes the files of
// the folders in it if it has none itself, as data/train-00000-of-00001.jsonl beside a README.md.
Source find_files(const std::string& path);

// Moves the files with the word test, tests, testing, testset, heldout or holdout in their name to `others`, and those
// with val, valid, validation, dev, devel, eval or evaluation to the result, unless all have such a word. A name counts
// from the folder given on. For a lone "train.bin" returns the "val.bin" beside it. Returns no files if there are none.
Source take_validation(Source* source);
// Returns "; training: a.txt, b.txt; validation: valid.txt; not taken: test.txt"; "" for a lone file.
std::string describe_files(const Source& train, const Source& val);

// Returns text without the byte order mark with which it may begin.
inline std::string_view without_mark(std::string_view text) {
    return text.substr(text.starts_with("\xef\xbb\xbf") ? 3 : 0);
}
inline bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

// Returns the next bytes of a text, n or more of them, fewer only at its end.
using Look = std::function<std::string_view(size_t n)>;
// Decides by its beginning what a text is, whatever its name. JSON has an object with the field `field`, or one that
// makes a conversation, on its first line, or first in a list. What is named .json, .jsonl, .jsonlines or .ndjson is
// read as JSON in any case. kExitBadContent: it is no text, or a table.
Format recognise_text(const std::string& path, const std::string& field, const Look& look);
// Whether JSON is one value, a list or an object, over all lines. Otherwise it has an object on each line.
bool is_one_value(std::string_view beginning);
Source find_texts(const std::string& path);     // kExitNoInput; kExitBadContent: not data of one kind

// A source of a mixture. The weights of all sources sum to 1.
struct WeightedPath { std::string path; double weight; };
// Returns the sources of a value PATH:WEIGHT,PATH:WEIGHT of --data. A value without comma and weight is one source, and
// so is the name of a file, of a folder or of a glob that has matches. kExitUsage.
std::vector<WeightedPath> find_mixture(const std::string& data);

// Where the data are, and what of them is for validation. Without files in `val` that is a part of `train`.
struct Sources { Source train, val; };
Sources find_sources(const TextOptions& options);
