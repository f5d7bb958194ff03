// text.cpp -- see text.h.
#include "tools/text/text.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "tools/text/reader.h"

size_t nine_tenths(std::string_view text) {
    const auto starts = [](char c) { return (c & 0xC0) != 0x80; };  // true except for continuation bytes
    uint64_t left = nine_tenths_of(uint64_t(std::count_if(text.begin(), text.end(), starts)));
    for (size_t at = 0; at < text.size(); at++)
        if (starts(text[at]) && left-- == 0) return at;
    return text.size();
}

void require_utf8(std::string_view text, const std::string& where) {
    for (size_t at = 0; at < text.size();) {
        const Utf8Char c = decode_utf8(text.substr(at));
        if (!c.valid) {
            const auto line = std::count(text.begin(), text.begin() + ptrdiff_t(at), '\n') + 1;
            die_content(format("%s: line %zu: byte %zu", where.c_str(), size_t(line), at),
                        format("%02x", uint8_t(text[at])), "UTF-8; if it is another encoding, iconv -f cp1252 -t UTF-8 "
                        "or the like converts it");
        }
        at += c.length;
    }
}

void BadLines::skip(const std::string& place, Error error) {
    if (count > 0 && count == allowed) error.message += "; --skip-bad-lines allows no more";
    if (count == allowed) throw error;
    const std::string file = place.substr(0, place.rfind(": "));
    add(file, {1, std::stoull(place.substr(place.rfind(' ') + 1)), error.message.substr(file.size() + 2)});
}

void BadLines::add(const std::string& file, const File& more) {
    File& all = files.try_emplace(file, File{0, more.line, more.first}).first->second;
    if (more.line < all.line) all = {all.count, more.line, more.first};
    all.count += more.count;
    count += more.count;
}

std::vector<std::string> BadLines::text() const {
    std::vector<std::string> out;
    for (const auto& [file, bad] : files)
        out.push_back(file + ": " + with_commas(bad.count) + (bad.count == 1 ? " line is" : " lines are") +
                      " skipped, the first: " + bad.first);
    return out;
}

static void read_records(const std::string& path, bool masked, Text* text) {
    RecordReader records = {"data: " + path, &text->bad};
    FileReader file(path);
    if (text->all.empty()) text->all.reserve(file.file->size);
    const char* const what = records.what.c_str();
    const auto add = [&](const Json& json) {
        if (json.kind() != Json::object) die_content(what, json_shown(json), "an object");
        if (masked) {
            Conversation conversation = read_conversation(json, what);
            conversation.place = what + records.place;
            if (!text->conversations.empty() && conversation.plain != text->conversations[0].plain)
                die_content(what, describe_fields(json), "what the first line has");
            text->add(text_of(conversation));
            return text->conversations.push_back(std::move(conversation));
        }
        if (!json.find("text")) die_content(what, describe_fields(json), "text, messages, prompt or instruction; a "
                                            "file of another name, as .txt, is read as it stands");
        text->add(json.get_string("text", what));
    };
    if (is_one_value(file.look(16384))) return records.value(file.look(SIZE_MAX), add);
    std::string_view line;
    for (uint64_t number = 1; file.line(&line); number++) records.line(line, number, add);
}

static void read_whole(const std::string& path, Text* text) {
    FileReader file(path);
    if (text->all.empty()) text->all.reserve(file.file->size);
    std::string_view piece = file.look(3);
    const size_t begin = text->all.size(), mark = piece.size() - without_mark(piece).size();
    for (file.take(mark); !(piece = file.look(1)).empty(); file.take(piece.size())) text->all += piece;
    require_utf8(std::string_view(text->all).substr(begin), "data: " + path);
    if (text->all.size() > begin) text->ends.push_back(text->all.size());
}

Text read_text(const Source& source, bool split, const Progress& progress) {
    Text text;
    text.bad.allowed = uint64_t(source.skip_bad_lines);
    for (const std::string& path : source.files) {
        if (source.format == Format::text) read_whole(path, &text);
        else read_records(path, source.is_masked(), &text);
        progress();
    }
    std::vector<size_t>& ends = text.ends;
    text.train = ends.size();
    if (source.has_documents()) text.documents = ends.size();
    if (!split || ends.empty()) return text;
    if (ends.size() == 1 && source.is_masked())
        die_content("data: " + source.path, "one conversation", "two or more, or --val-data");
    if (ends.size() == 1) {
        ends.insert(ends.begin(), nine_tenths(text.all));
        return text;
    }
    // The documents that begin after nine tenths of the text are for validation, at least the last one.
    const auto behind = std::ranges::lower_bound(ends, nine_tenths_of(text.all.size()));
    text.train = std::min(size_t(behind - ends.begin()) + 1, ends.size() - 1);
    return text;
}

uint64_t encode_text(const Text& text, const Tokenizer& tokenizer, Shard* shard, std::vector<char>* out,
                     const Progress& progress) {
    const std::string_view all = text.all;
    const size_t width = shard->width;
    out->reserve(all.size() / (tokenizer.merges.empty() ? 1 : 4) * width);  // a guess: a token of BPE is 4 bytes
    std::vector<int> tokens;
    uint64_t bytes = 0;                         // of the part's tokens
    const auto store = [&] {
        const size_t at = out->size();
        for (const int token : tokens) bytes += tokenizer.counted(token);
        out->resize(at + tokens.size() * width);
        if (width == 2) std::ranges::copy(tokens, reinterpret_cast<uint16_t*>(out->data() + at));
        else std::ranges::copy(tokens, reinterpret_cast<uint32_t*>(out->data() + at));
        tokens.clear();
        progress();
    };
    size_t train = 0;
    for (size_t k = 0, begin = 0; k < text.ends.size(); begin = text.ends[k++]) {
        const std::string_view part = all.substr(begin, text.ends[k] - begin);
        const uint64_t first = out->size() / width;
        bytes = 0;
        // A single text has no end, and in this program's own tokenizers no beginning.
        if (k == 0 && text.documents == 0 && tokenizer.begin != tokenizer.eot && tokenizer.begin >= 0 &&
            !tokenizer.begins_with_name(part, tokenizer.begin))
            tokens.push_back(tokenizer.begin);
        const int64_t more = k < text.documents ? tokenizer.encode_document(part, &tokens, store) :
            tokenizer.encode(part, &tokens, store, tokenizer.names);
        store();
        note_given(&shard->given, first, each_given(bytes, more));
        if (k < text.train) train = out->size();
    }
    return train / width;
}

// Encodes a conversation, unless the template refuses it and it is skipped. *more: as encode_chat returns it.
static std::vector<uint32_t> encode_or_skip(const Conversation& conversation, const Tokenizer& tokenizer,
                                            const ChatTemplate& chat, BadLines* bad, int64_t* more) {
    std::vector<uint32_t> tokens;
    try {
        *more = encode_chat(conversation, chat, tokenizer, &tokens);
    } catch (Error& error) {
        error.message = conversation.place + ": " + error.message;
        bad->skip(conversation.place, error);
        tokens.clear();
    }
    return tokens;
}

uint64_t encode_conversations(Text* text, const Tokenizer& tokenizer, const ChatTemplate& chat, int T, bool packed,
                              Shard* shard, std::vector<char>* out, std::string* note, const Progress& progress) {
    if (const std::string token = chat.form ? missing_control_token(tokenizer, chat) : ""; !token.empty())
        die(kExitUsage, "data: got conversations, but the tokenizer has no %s; train on conversations first, or choose "
            "--chat-template", token.c_str());
    std::vector<uint32_t> all;
    const uint32_t first = kUntrained | (packed ? kBegins : 0);
    const uint32_t fill = uint32_t(std::max(tokenizer.eot, 0)) | kUntrained;
    const auto is_trained = [](uint32_t token) { return !(token & kUntrained); };
    uint64_t begin = 0, read = 0, used = 0, trained = 0, cut = 0, empty = 0;
    std::map<std::string, uint64_t> left_out;               // turns of the assistant, by the field that says so
    for (size_t i = 0; i < text->conversations.size(); i++) {
        int64_t more = 0;
        std::vector<uint32_t> tokens = encode_or_skip(text->conversations[i], tokenizer, chat, &text->bad, &more);
        uint64_t bytes = 0;
        for (const uint32_t token : tokens) bytes += is_trained(token) ? tokenizer.counted(int(token)) : 0;
        progress();
        const bool skipped = tokens.empty();
        for (const Turn& turn : text->conversations[i].turns)
            if (turn.role == "assistant" && !turn.left_out.empty() && !skipped) left_out[turn.left_out]++;
        read += !skipped;
        cut += tokens.size() > size_t(T);
        tokens.resize(std::min(tokens.size(), size_t(T)));
        used += tokens.size();
        if (!skipped) tokens[0] |= first;
        const auto count = uint64_t(std::ranges::count_if(tokens, is_trained));
        trained += count;
        empty += count == 0 && !skipped;
        if (count > 0) {
            while (packed && !is_trained(tokens.back())) tokens.pop_back();
            if (!packed) tokens.resize(size_t(T), fill);
            note_given(&shard->given, all.size(), each_given(bytes, more));
            all.insert(all.end(), tokens.begin(), tokens.end());
        }
        if (i + 1 != text->train) continue;
        all.push_back(fill | first);
        begin = all.size();
    }
    if (text->train < text->conversations.size()) all.push_back(fill | first);
    out->resize(all.size() * sizeof(uint32_t));
    std::ranges::copy(all, reinterpret_cast<uint32_t*>(out->data()));
    *note = format("%s conversations, %s tokens of the assistant", with_commas(read).c_str(),
                   with_commas(trained).c_str());
    const double full = double(used) / double(std::max<uint64_t>(read, 1)) / T;
    if (!packed) *note += format("; windows are %.0f %% full", 100 * full);
    if (cut) *note += format("; %s are longer than %d tokens and cut", with_commas(cut).c_str(), T);
    if (empty) *note += format("; %s have nothing to train on and are left out", with_commas(empty).c_str());
    std::string says;
    for (const auto& [field, n] : left_out)
        says += "; " + json_quote(field) + " leaves out " + with_commas(n) + " turns";
    if (!says.empty() && (begin == 1 || all.size() == begin + 1))       // a part has no more than the last token
        die_content(text->conversations[0].place, "no answer to train on here or below" + says, "one or more");
    *note += says;
    return begin;
}
