// chat.cpp -- see chat.h. It reads the formats of OpenAI, ShareGPT, Alpaca and trl; its templates are those of Qwen2
// and Llama 3.
#include "src/text/chat.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/file.h"

namespace {

const ChatForm kForms[] = {
    {.name = "chatml", .begin = "", .open = "<|im_start|>", .head = "", .gap = "\n", .close = "<|im_end|>",
     .tail = "\n", .trims = false, .jinja =
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
     "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {.name = "llama3", .begin = "<|begin_of_text|>", .open = "<|start_header_id|>", .head = "<|end_header_id|>",
     .gap = "\n\n", .close = "<|eot_id|>", .tail = "", .trims = true, .jinja =
     "{{ '<|begin_of_text|>' }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
     "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt "
     "%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"}};

struct Role { const char *name, *means; };
constexpr Role kRoles[] = {{"system", "system"},   {"user", "user"}, {"assistant", "assistant"},
                           {"human", "user"},      {"gpt", "assistant"}};

std::string read_role(const std::string& role, const std::string& where) {
    std::string meant;
    for (const Role& r : kRoles) {
        if (role == r.name) return r.means;
        if (role.size() > 4 && edit_distance(role, r.name) <= 2) meant = std::string("; did you mean ") + r.name + "?";
    }
    die_content(where, json_quote(role.substr(0, 60)), "system, user or assistant" + meant);
}

// Reads a turn's content: a text, or a list of {"type": "text", "text": ...}.
std::string read_content(const Json& content, const std::string& where) {
    if (content.kind() == Json::string) return content.text();
    if (content.kind() != Json::array) die_content(where, content ? json_shown(content) : "nothing", "a text");
    std::string all;
    for (JsonItems part(content); part.next();) {
        if (part.value.find("type").text() != "text") die_content(where, json_shown(part.value), "parts of type text");
        all += part.value.get_string("text", where.c_str());
    }
    return all;
}

void read_turns(const Json& list, const std::string& where, Conversation* out) {
    if (list.kind() != Json::array) die_content(where, json_shown(list), "a list of turns");
    size_t number = 0;
    for (JsonItems i(list); i.next(); number++) {
        const std::string turn = where + format("[%zu]", number);
        const bool share = bool(i.value.find("from"));
        const std::string role = i.value.get_string(share ? "from" : "role", turn.c_str());
        const char* const content = share ? "value" : "content";
        out->turns.push_back({read_role(role, turn + (share ? ": from" : ": role")),
                              read_content(i.value.find(content), turn + ": " + content)});
    }
}

std::string trimmed(std::string_view text) {
    constexpr const char* kBlanks = " \t\r\n\v\f";
    const size_t first = text.find_first_not_of(kBlanks);
    return first == text.npos ? "" : std::string(text.substr(first, text.find_last_not_of(kBlanks) + 1 - first));
}

int find_token(const Tokenizer& tokenizer, std::string_view text) {
    const auto found = std::ranges::find(tokenizer.added, text, &Tokenizer::Added::text);
    return found == tokenizer.added.end() ? -1 : found->id;
}

// Returns the system turn that a template writes for a conversation without one, or "". It is the text between the head
// and the end of a system turn in the template, if that is plain.
std::string default_system(const std::string& jinja, const ChatForm& form) {
    const std::string head = std::string(form.open) + "system" + form.head + (form.gap[1] ? "\\n\\n" : "\\n");
    for (size_t at = 0; (at = jinja.find(head, at)) != jinja.npos;) {
        at += head.size();
        const std::string text = jinja.substr(at, jinja.find(form.close, at) - at);
        if (text.find_first_of("'\"{}") == text.npos) return text;
    }
    return "";
}

// Appends the tokens of a text. Those that reach beyond byte `trained` are trained on, the others are not.
void append(std::string_view text, size_t trained, const Tokenizer& tokenizer, std::vector<uint32_t>* tokens) {
    std::vector<int> ids;
    tokenizer.encode(text, &ids);
    size_t end = 0;
    for (const int id : ids) {
        end += tokenizer.text(id).size();
        tokens->push_back(uint32_t(id) | (end > trained ? 0 : kUntrained));
    }
}

void append_control(const char* name, bool trained, const Tokenizer& tokenizer, std::vector<uint32_t>* tokens) {
    if (*name) tokens->push_back(uint32_t(find_token(tokenizer, name)) | (trained ? 0 : kUntrained));
}

// Appends OPEN role HEAD gap content and, if `ends`, CLOSE tail.
void append_turn(const Turn& turn, bool ends, const ChatForm& form, const Tokenizer& tokenizer,
                 std::vector<uint32_t>* tokens) {
    const bool trained = turn.role == "assistant" && ends;
    std::string text = turn.role;
    append_control(form.open, false, tokenizer, tokens);
    if (*form.head) {
        append(text, text.npos, tokenizer, tokens);
        append_control(form.head, false, tokenizer, tokens);
        text.clear();
    }
    text += form.gap;
    const size_t from = text.size();
    text += form.trims ? trimmed(turn.content) : turn.content;
    append(text, trained ? from : text.npos, tokenizer, tokens);
    if (!ends) return;
    append_control(form.close, trained, tokenizer, tokens);
    append(form.tail, std::string::npos, tokenizer, tokens);
}

}  // namespace

std::string conversation_key(const Json& line) {
    constexpr const char* kFields[][2] = {{"messages", "messages"}, {"conversations", "conversations"},
                                          {"prompt", "completion"}, {"instruction", "output"}};
    for (const auto& [key, answer] : kFields)
        if (line.find(key) && line.find(answer)) return key;
    for (const auto& [key, answer] : kFields)           // incomplete: read_conversation says what is missing
        if (line.find(key) && !line.find("text")) return key;
    return "";
}

std::string describe_fields(const Json& line) {
    std::vector<std::string> names;
    for (JsonItems i(line); names.size() < 8 && i.next();) names.push_back(i.key.text().substr(0, 40));
    return "the fields " + json_quote(join(names, ", "));
}

Conversation read_conversation(const Json& line, const char* what) {
    const std::string where = what, form = conversation_key(line);
    Conversation out;
    if (form == "prompt") {
        const Json prompt = line.find("prompt");
        out.plain = prompt.kind() == Json::string;
        const Json completion = line.at("completion", what);
        if (out.plain) {
            out.turns = {{"user", prompt.text()}, {"assistant", line.get_string("completion", what)}};
            return out;
        }
        read_turns(prompt, where + ": prompt", &out);
        read_turns(completion, where + ": completion", &out);
    } else if (form == "instruction") {
        const std::string input = line.find("input") ? line.get_string("input", what) : "";
        out.turns = {{"user", line.get_string("instruction", what) + (input.empty() ? "" : "\n\n" + input)},
                     {"assistant", line.get_string("output", what)}};
    } else {
        if (form.empty())
            die_content(where, describe_fields(line), "messages, instruction and output, or prompt and completion");
        if (const Json system = line.find("system"); system.kind() == Json::string && !system.text().empty())
            out.turns.push_back({"system", system.text()});
        read_turns(line.find(form), where + ": " + form, &out);
    }
    if (std::ranges::find(out.turns, "assistant", &Turn::role) == out.turns.end())
        die_content(where, "no turn of the assistant", "one to train on");
    return out;
}

std::string chat_template_of(const std::string& jinja, const std::string& tokenizer_config, const char* what) {
    if (!jinja.empty() || tokenizer_config.empty()) return jinja;
    Json found = parse_json(tokenizer_config, what).find("chat_template");
    if (found.kind() == Json::array)                    // several, each with a name
        for (JsonItems i(found); i.next();)
            if (i.value.find("name").text() == "default") found = i.value.find("template");
    return found.kind() == Json::string ? found.text() : "";
}

std::string read_chat_template(const std::string& folder) {
    const std::string config = path_join(folder, "tokenizer_config.json");
    const auto text_of = [](const std::string& path) { return file_exists(path) ? read_file(path) : ""; };
    return chat_template_of(text_of(path_join(folder, "chat_template.jinja")), text_of(config), config.c_str());
}

ChatTemplate choose_chat_template(const std::string& option, const std::string& jinja, const std::string& folder) {
    for (const ChatForm& form : kForms)
        if (option == form.name || (option == "auto" && jinja == form.jinja)) return {&form, "", form.jinja};
    if (jinja.empty()) return {kForms, "", kForms[0].jinja};
    const auto has = [&](const char* part) { return jinja.find(part) != jinja.npos; };
    for (const char* foreign : {"<think>", "strftime_now", "date_string", "[INST]"})
        if (has(foreign))
            die_content(folder + ": chat_template", std::string("one with ") + foreign,
                        "Qwen2's, SmolLM2's or Llama 3's; give --chat-template chatml or llama3");
    for (const ChatForm& form : kForms)
        if (has(form.open) && has(form.close)) return {&form, default_system(jinja, form), jinja};
    die_content(folder + ": chat_template", json_quote(jinja.substr(0, 60)),
                "Qwen2's, SmolLM2's or Llama 3's; give --chat-template chatml or llama3");
}

void add_chat_tokens(Tokenizer* tokenizer, const ChatForm& form) {
    bool added = false;
    for (const char* name : {form.begin, form.open, form.head, form.close}) {
        if (!*name || find_token(*tokenizer, name) >= 0) continue;
        tokenizer->added.push_back({tokenizer->vocab_size++, name});
        tokenizer->bytes.emplace_back();
        added = true;
    }
    if (!added) return;
    tokenizer->json.clear();
    tokenizer_finish(tokenizer);
}

int begin_of_chat(const Tokenizer& tokenizer, const ChatTemplate& chat) {
    return chat.form ? find_token(tokenizer, chat.form->begin) : -1;
}

std::string missing_control_token(const Tokenizer& tokenizer, const ChatTemplate& chat) {
    for (const char* name : {chat.form->begin, chat.form->open, chat.form->head, chat.form->close})
        if (*name && find_token(tokenizer, name) < 0) return name;
    return "";
}

int end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat) {
    return chat.form ? find_token(tokenizer, chat.form->close) : -1;
}

void encode_chat(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer,
                 std::vector<uint32_t>* tokens, bool open_end) {
    const std::vector<Turn>& turns = conversation.turns;
    if (conversation.plain) {
        if (tokenizer.begin >= 0) tokens->push_back(uint32_t(tokenizer.begin) | kUntrained);
        append(turns[0].content, std::string::npos, tokenizer, tokens);
        append(turns[1].content, 0, tokenizer, tokens);
        if (tokenizer.eot >= 0) tokens->push_back(uint32_t(tokenizer.eot));
        return;
    }
    const ChatForm& form = *chat.form;
    append_control(form.begin, false, tokenizer, tokens);
    if (!chat.system.empty() && (turns.empty() || turns[0].role != "system"))
        append_turn({"system", chat.system}, true, form, tokenizer, tokens);
    for (const Turn& turn : turns) append_turn(turn, true, form, tokenizer, tokens);
    if (open_end) append_turn({"assistant", ""}, false, form, tokenizer, tokens);
}

std::vector<int> chat_prompt(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer) {
    std::vector<uint32_t> tokens;
    encode_chat(conversation, chat, tokenizer, &tokens, true);
    for (uint32_t& token : tokens) token &= ~kUntrained;
    return {tokens.begin(), tokens.end()};
}

std::vector<int> sample_start(const std::string& prompt, const ChatTemplate& chat, const Tokenizer& tokenizer) try {
    if (chat.form) {
        // A char tokenizer may not have learnt the characters of a greeting.
        const bool greets = prompt.empty() && tokenizer.kind != Tokenizer::character;
        return chat_prompt({{{"user", greets ? "Hello" : prompt}}}, chat, tokenizer);
    }
    std::vector<int> start;
    const int otherwise = tokenizer.bos >= 0 ? tokenizer.bos : tokenizer.eot;       // as transformers' generate begins
    const int first = prompt.empty() ? otherwise : tokenizer.begin;
    if (first >= 0) start.push_back(first);
    if (tokenizer.kind == Tokenizer::none || (prompt.empty() && !start.empty())) return start;
    const bool knows = tokenizer.kind != Tokenizer::character || std::ranges::count(tokenizer.bytes, "\n") > 0;
    if (prompt.empty() && !knows) return {0};
    tokenizer.encode(prompt.empty() ? "\n" : prompt, &start);
    return start;
} catch (const Error& error) {
    die(error.code, "--prompt: %s", error.message.c_str());
}

std::string text_of(const Conversation& conversation) {
    std::string all;
    for (const Turn& turn : conversation.turns)
        all += (conversation.plain ? "" : turn.role + "\n") + turn.content + "\n";
    return all;
}
