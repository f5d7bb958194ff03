// model_texts.cpp -- see model_texts.h.
#include "tools/text/model_texts.h"
#include <algorithm>
#include "src/base/common.h"

// Returns the tokens that end a text or, of conversations, a turn; the one that training writes is the first.
static std::vector<int> ends_of(const Tokenizer& t, const ChatTemplate& chat) {
    std::vector<int> ends = t.ends;
    int turn = -1;
    try {
        turn = end_of_turn(t, chat);
    } catch (const Error&) {}                           // one can chat by a template by which nothing can be learnt
    std::erase(ends, turn);
    if (turn >= 0) ends.insert(ends.begin(), turn);
    return ends;
}

// Returns the member eos_token_id for a file that had the text `had`. It stays if the file names the first end already.
static JsonMembers eos_member(const std::vector<int>& ends, const std::string& had) {
    std::vector<std::string> texts, known;
    for (const int end : ends) texts.push_back(std::to_string(end));
    const Json old = had.empty() ? Json() : Json{had}.find("eos_token_id");
    for (JsonItems i(old); old.kind() == Json::array && i.next();) known.push_back(i.value.text());
    if (ends.empty() || old.text() == texts[0] || std::ranges::count(known, texts[0])) return {};
    return {{"eos_token_id", texts.size() == 1 ? texts[0] : "[" + join(texts, ",") + "]"}};
}

// Returns the members that config.json gets.
static std::string config_changes(const Tokenizer& t, const ChatTemplate& chat, const std::string& had) {
    JsonLine line;
    const int first = begin_of_chat(t, chat), bos = first < 0 && had.empty() ? t.bos : first;
    if (bos >= 0) line.add("bos_token_id", bos);
    for (const auto& [key, value] : eos_member(ends_of(t, chat), had)) line.raw(key.c_str(), value);
    return line.text();
}

Vocabulary vocabulary_of(const Tokenizer& t, const ChatTemplate& chat, const std::string& config) {
    Vocabulary v = {.name = t.kind == Tokenizer::none ? "none" : t.name, .tokens = t.vocab_size,
                    .ends = ends_of(t, chat), .documents = {t.begin, t.eot}, .config = config_changes(t, chat, config),
                    .chats = chat.form != nullptr, .bytes = t.bytes};
    for (size_t id = 0; id < v.bytes.size(); id++)
        if (!t.counted(int(id))) v.bytes[id].clear();
    return v;
}

// Returns the text of an object with the members `changes`; the text itself if it has them.
static std::string changed(const std::string& text, const JsonMembers& changes) {
    JsonMembers all = text.empty() ? JsonMembers() : json_members(parse_json(text, "tokenizer_config.json"));
    const JsonMembers had = all;
    for (const auto& [key, value] : changes) set_member(&all, key, value);
    if (all == had) return text;
    JsonLine line;
    for (const auto& [key, value] : all) line.raw(key.c_str(), value);
    return line.text() + "\n";
}

// Returns the members of tokenizer_config.json and special_tokens_map.json that name tokens.
static JsonMembers token_members(const Tokenizer& t, const ChatTemplate& chat, const std::string& had) {
    const std::string eos = t.name_of(chat.form ? end_of_turn(t, chat) : t.eot),
        bos = t.name_of(begin_of_chat(t, chat));
    JsonMembers members;
    const auto set = [&](const char* key, const std::string& name) {
        if (!had.empty() && chat.jinja.find(key) != chat.jinja.npos) return;    // what a template reads stays
        const Json old = had.empty() ? Json() : Json{had}.find(key);        // a text, or an object with its "content"
        if (!name.empty() && old.text() != name && old.find("content").text() != name)
            members.push_back({key, json_quote(name)});
    };
    set("bos_token", had.empty() && bos.empty() ? t.name_of(t.bos) : bos);
    if (had.empty() || chat.form) set("eos_token", eos);
    if (had.empty()) set("unk_token", t.name_of(t.eot));
    return members;
}

// Returns the members that tokenizer_config.json gets.
static JsonMembers config_members(const Tokenizer& t, const ChatTemplate& chat, const ModelTexts& texts, int T) {
    JsonMembers members = token_members(t, chat, texts.tokenizer_config);
    const Json had = texts.tokenizer_config.empty() ? Json() : Json{texts.tokenizer_config};
    // PreTrainedTokenizerFast takes tokenizer.json as it stands, whatever its kind.
    if (!had) members.insert(members.begin(), {{"tokenizer_class", "\"PreTrainedTokenizerFast\""},
                                               {"clean_up_tokenization_spaces", "false"}});
    const Json own = had.find("chat_template");
    if (chat.form && (chat.jinja != chat_template_of(texts) || !own || (own.kind() == Json::string &&
                                                                         own.text() != chat.jinja)))
        members.push_back({"chat_template", json_quote(chat.jinja)});
    const Json config = texts.config.empty() ? Json() : Json{texts.config};
    uint64_t context = 0, length = 0;
    for (const char* key : {"n_positions", "max_position_embeddings"}) config.find(key).as_u64(&context);
    if (had.find("model_max_length").as_u64(&length) && context && context != uint64_t(T) && length < 1 << 30)
        members.push_back({"model_max_length", std::to_string(T)});
    return members;
}

std::vector<std::pair<std::string, std::string>> tokenizer_files(const Tokenizer& t, const ChatTemplate& chat,
                                                                 ModelTexts texts, int T) {
    if (t.kind != Tokenizer::none) {
        const JsonMembers members = config_members(t, chat, texts, T);
        if (!texts.special_tokens_map.empty())
            texts.special_tokens_map = changed(texts.special_tokens_map,
                                               token_members(t, chat, texts.special_tokens_map));
        texts.tokenizer_config = changed(texts.tokenizer_config, members);
        // With conversations tokenizer.json adds no first token, because the chat template writes it.
        texts.tokenizer = chat.form ? t.to_json() : tokenizer_json_of_model(t);
    }
    // Where there is no generation_config.json, the ends in config.json count; a template may add one that it lacks.
    if (t.kind != Tokenizer::none && (chat.form || !texts.generation_config.empty()))
        texts.generation_config = changed(texts.generation_config, eos_member(ends_of(t, chat),
                                                                              texts.generation_config));
    if (t.kind != Tokenizer::none && chat.form) texts.chat_template = chat.jinja;
    std::vector<std::pair<std::string, std::string>> files;
    texts.config.clear();
    for (const auto& [name, text] : kModelTexts)
        if (!(texts.*text).empty()) files.push_back({name, texts.*text});
    return files;
}
