// model_files.cpp -- see model_files.h.
#include "src/app/model_files.h"
#include "src/app/adapter.h"
#include "src/base/json.h"

std::string model_config_json(const ModelInfo* info, const Shape& shape, const Data& data, const Init& init) {
    const Tokenizer& t = data.tokenizer;
    const int end = data.chat.form ? end_of_turn(t, data.chat) : t.eot;
    int begin = begin_of_chat(t, data.chat);            // the same as bos_token in tokenizer_config.json
    if (begin < 0) begin = init.config.bot >= 0 ? init.config.bot : t.eot;
    return config_json({info, shape, end, begin});
}

// PreTrainedTokenizerFast takes tokenizer.json as it stands, whatever its kind.
static std::string tokenizer_config_json(const Data& data, const Init& init, const std::string& jinja) {
    const Json had = parse_json(init.tokenizer_config, "tokenizer_config.json");
    const ChatForm* const form = data.chat.form;
    std::string end;
    for (const Tokenizer::Added& s : data.tokenizer.added)
        if (s.id == data.tokenizer.eot) end = s.text;
    JsonLine line;
    line.add("tokenizer_class", "PreTrainedTokenizerFast").add("clean_up_tokenization_spaces", false);
    for (const std::string token : {"bos_token", "eos_token", "unk_token"}) {
        const Json old = had.find(token);           // a text, or an object whose "content" is the text
        std::string text = old.kind() == Json::object ? old.find("content").text() : old ? old.text() : end;
        if (form && token == "eos_token") text = form->close;
        if (form && token == "bos_token" && *form->begin) text = form->begin;
        if (!text.empty() && text != "null") line.add(token.c_str(), text);
    }
    if (!jinja.empty()) line.add("chat_template", jinja);
    return line.text() + "\n";
}

std::vector<std::pair<std::string, std::string>> tokenizer_files(const Data& data, const Init& init) {
    const Tokenizer& t = data.tokenizer;
    if (t.kind == Tokenizer::none) return {};
    const std::string& jinja = data.chat.form ? data.chat.jinja : init.chat_template;
    // With conversations tokenizer.json adds no first token, because the chat template writes it.
    std::vector<std::pair<std::string, std::string>> files = {
        {"tokenizer.json", data.chat.form ? t.to_json() : tokenizer_json_of_model(t)},
        {"tokenizer_config.json", tokenizer_config_json(data, init, jinja)}};
    if (!jinja.empty()) files.push_back({"chat_template.jinja", jinja});
    std::string generation = init.generation_config;
    if (data.chat.form) {
        std::string ends = std::to_string(end_of_turn(t, data.chat));
        if (t.eot >= 0) ends += "," + std::to_string(t.eot);
        generation = JsonLine().raw("eos_token_id", "[" + ends + "]").text() + "\n";
    }
    if (!generation.empty()) files.push_back({"generation_config.json", generation});
    return files;
}

void describe_adapters(CheckpointFiles* files, const Options& o, const Init& init) {
    if (!o.lora.rank) return;
    files->adapter_json = adapter_config_json(o.lora, find_model(o.model)->tensors(o.shape), init.folder);
    files->base_crc = weights_checksum(init);
}
