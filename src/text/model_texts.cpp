// model_texts.cpp -- see model_texts.h.
#include "src/text/model_texts.h"

Vocabulary vocabulary_of(const Tokenizer& t, const ChatTemplate& chat) {
    if (t.kind == Tokenizer::none) return {};
    return {.name = t.name, .tokens = t.vocab_size, .eot = t.eot, .begin = begin_of_chat(t, chat),
            .end = end_of_turn(t, chat), .chats = chat.form != nullptr, .is_bpe = t.kind == Tokenizer::bpe,
            .bytes = t.bytes};
}

// Returns tokenizer_config.json. PreTrainedTokenizerFast takes tokenizer.json as it stands, whatever its kind.
static std::string tokenizer_config_json(const Tokenizer& t, const ChatTemplate& chat, const std::string& config,
                                         const std::string& jinja) {
    const std::string text = config.empty() ? "{}" : config;
    const Json had = parse_json(text, "tokenizer_config.json");
    std::string end;
    for (const Tokenizer::Added& s : t.added)
        if (s.id == t.eot) end = s.text;
    JsonLine line;
    line.add("tokenizer_class", "PreTrainedTokenizerFast").add("clean_up_tokenization_spaces", false);
    for (const std::string token : {"bos_token", "eos_token", "unk_token"}) {
        const Json old = had.find(token);           // a text, or an object whose "content" is the text
        std::string name = old.kind() == Json::object ? old.find("content").text() : old ? old.text() : end;
        const int own = token == "eos_token"   ? end_of_turn(t, chat)
                        : token == "bos_token" ? begin_of_chat(t, chat)
                                               : -1;
        for (const Tokenizer::Added& s : t.added)       // but what a template reads stays what it was read as
            if (s.id == own && !chat.form->reads(token)) name = s.text;
        if (!name.empty() && name != "null") line.add(token.c_str(), name);
    }
    if (!jinja.empty()) line.add("chat_template", jinja);
    return line.text() + "\n";
}

std::vector<std::pair<std::string, std::string>> tokenizer_files(const Tokenizer& t, const ChatTemplate& chat,
                                                                 const DataOptions& o) {
    if (t.kind == Tokenizer::none) return {};
    const std::string own = chat_template_of(o.init_chat_template, o.init_tokenizer_config, "tokenizer_config.json");
    const std::string& jinja = chat.form ? chat.jinja : own;
    // With conversations tokenizer.json adds no first token, because the chat template writes it.
    std::vector<std::pair<std::string, std::string>> files = {
        {"tokenizer.json", chat.form ? t.to_json() : tokenizer_json_of_model(t)},
        {"tokenizer_config.json", tokenizer_config_json(t, chat, o.init_tokenizer_config, jinja)}};
    if (!jinja.empty()) files.push_back({"chat_template.jinja", jinja});
    std::string generation = o.init_generation_config;
    if (chat.form) {
        std::string ends = std::to_string(end_of_turn(t, chat));
        if (t.eot >= 0) ends += "," + std::to_string(t.eot);
        generation = JsonLine().raw("eos_token_id", "[" + ends + "]").text() + "\n";
    }
    if (!generation.empty()) files.push_back({"generation_config.json", generation});
    return files;
}
