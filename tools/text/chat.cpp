// chat.cpp -- see chat.h. It reads the formats of OpenAI, ShareGPT, Alpaca and trl.
#include "tools/text/chat.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/words.h"
#include "tools/text/unicode.h"

namespace {

// The templates that --chat-template names.
struct Form { const char *name, *begin, *jinja; };
constexpr Form kForms[] = {
    {"chatml", "",
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
     "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"llama3", "<|begin_of_text|>",
     "{{ '<|begin_of_text|>' }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
     "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt "
     "%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"}};

// Fields beside those of a form. Their kinds: 1 or true, or else 0 or false, trains a turn or a line; a turn alone, and
// in a line is the user's own; refused unless empty, for what it says would be lost; says nothing of the tokens.
enum Meaning { kTrains, kMasks, kTrainsTurn, kRefused, kHarmless };
struct Meant { Meaning meaning; Words names; };
const Meant kMeanings[] = {
    {kTrains, split("weight train training trainable")}, {kMasks, {"masked"}}, {kTrainsTurn, {"loss"}},
    {kRefused, split("mask loss_mask loss_scale train_detail training_detail tool_calls tool_call_id function_call "
                     "tools functions documents reasoning_content reasoning thinking chat_template_kwargs chosen "
                     "rejected completion system history image images audio audios video videos prefix")},
    {kHarmless, split("id uuid hash index source dataset category model language lang timestamp created_at score text "
                      "prompt prompt_id metadata token_count")}};

// Whether a value is null or holds nothing else, as Arrow and pandas write what a record does not have.
bool is_null(const Json& value) {
    for (JsonItems i(value); i.next();)
        if (!is_null(i.value)) return false;
    return value.kind() == Json::null || value.kind() == Json::array || value.kind() == Json::object;
}

bool is_empty(const Json& value) {
    const std::string text = value.text();
    return is_null(value) || text.empty() || text == "false";
}

// Looks at the fields of a turn or a line but for those of its form. Returns the one by which it is not to be trained
// on, or "".
std::string read_fields(const Json& object, const std::string& where, std::initializer_list<std::string_view> form,
                        Conversation* out, bool turn = false) {
    std::string left_out;
    for (JsonItems i(object); i.next();) {
        const std::string key = i.key.text();
        if (i.value.kind() == Json::null || std::ranges::find(form, key) != form.end()) continue;
        const auto field = std::ranges::find_if(kMeanings, [&](auto& f) { return contains(f.names, key); });
        const bool known = field != std::end(kMeanings) && (turn || field->meaning != kTrainsTurn);
        if (!known) out->unknown.push_back(key.substr(0, 40));
        if (!known || field->meaning == kHarmless) continue;
        const std::string subject = where + ": " + key, value = i.value.text();
        if (field->meaning == kRefused && !is_empty(i.value))
            die_content(subject, json_shown(i.value),
                        "none, because it would be lost; remove it or put it into a content");
        double number = value == "true";
        const bool says = value == "true" || value == "false" || i.value.as_double(&number);
        if (field->meaning == kRefused) continue;
        if (!says || (number != 0 && number != 1)) die_content(subject, json_shown(i.value), "0, 1, false or true");
        if ((number != 0) == (field->meaning == kMasks)) left_out = key;
    }
    return left_out;
}

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
        for (JsonItems i(part.value); i.next();)
            if (const std::string key = i.key.text(); key != "type" && key != "text" && !is_null(i.value))
                die_content(where + ": " + key.substr(0, 40), json_shown(i.value), "type and text alone in a part");
        all += part.value.get_string("text", where.c_str());
    }
    return all;
}

void read_turns(const Json& list, const std::string& where, Conversation* out) {
    if (list.kind() != Json::array) die_content(where, json_shown(list), "a list of turns");
    size_t number = 0;
    for (JsonItems i(list); i.next(); number++) {
        const std::string turn = where + format("[%zu]", number);
        const bool share = !is_null(i.value.find("from"));
        const std::string role = i.value.get_string(share ? "from" : "role", turn.c_str());
        const char* const content = share ? "value" : "content";
        out->turns.push_back({read_role(role, turn + (share ? ": from" : ": role")),
                              read_content(i.value.find(content), turn + ": " + content)});
        Turn& last = out->turns.back();
        last.left_out = read_fields(i.value, turn, {share ? "from" : "role", content}, out, true);
        if (last.role == "assistant" && !last.left_out.empty()) out->amended = true;
    }
}

// Returns element `index` of a pair of texts.
std::string content_at(const Json& pair, size_t index, const std::string& where) {
    if (pair.kind() != Json::array) die_content(where, json_shown(pair), "a list of pairs of texts");
    JsonItems i(pair);
    for (size_t k = 0; k <= index; k++) i.next();
    const std::string content = read_content(i.value, where);
    if (index == 1 && i.next()) die_content(where, "more than two texts", "a pair");
    return content;
}

int find_token(const Tokenizer& tokenizer, std::string_view text) {
    const auto found = std::ranges::find(tokenizer.added, text, &Tokenizer::Added::text);
    return found == tokenizer.added.end() ? -1 : found->id;
}

struct Control { size_t at, size; int id; };

bool begins_with(std::u32string_view text, std::string_view name) {
    for (Utf8Char c; !name.empty(); name.remove_prefix(c.length), text.remove_prefix(1)) {
        c = decode_utf8(name);
        if (text.empty() || text[0] != c.code) return false;
    }
    return true;
}

// Finds the control tokens that a template has written: at each place the longest.
std::vector<Control> find_controls(std::u32string_view text, const Tokenizer& tokenizer) {
    std::vector<Control> all;
    for (size_t at = 0; at < text.size();
         at = all.empty() ? at + 1 : std::max(at + 1, all.back().at + all.back().size)) {
        const Tokenizer::Added* found = nullptr;
        for (const Tokenizer::Added& added : tokenizer.added)
            if (added.special && (!found || added.text.size() > found->text.size()) &&
                begins_with(text.substr(at), added.text)) found = &added;
        if (found) all.push_back({at, characters_of(found->text).size(), found->id});
    }
    return all;
}

// Returns where the text of an empty turn would stand in `text`: with "x" in this turn, the rendering differs there for
// the first time. npos: the template writes no "x" there.
size_t place_of_empty(const ChatTemplate& chat, std::vector<JinjaTurn> turns, size_t turn, std::u32string_view text) {
    const std::u32string x = turns[turn].content = characters_of("x", kGiven | kAnswer);
    const std::u32string filled = chat.form->render(turns, turns.size(), false);
    const auto at = size_t(std::ranges::mismatch(text, filled).in1 - text.begin());
    return filled.substr(std::min(at, filled.size()), 1) == x ? at : text.npos;
}

// Returns which characters of a rendered conversation are trained on.
std::vector<bool> find_answers(const Conversation& conversation, const std::vector<JinjaTurn>& turns,
                               const ChatTemplate& chat, std::u32string_view text,
                               const std::vector<Control>& controls) {
    const auto fault = [&](const std::string& got) {
        die_content(chat.form->what, got, "one that can be trained on; give --chat-template chatml or llama3");
    };
    struct Answer { size_t turn, begin; };
    std::vector<Answer> answers;
    for (size_t i = 0; i < turns.size(); i++) {
        if (conversation.turns[i].role != "assistant") continue;
        const auto first = std::ranges::find_if(text, [](char32_t c) { return c & kAnswer; });
        if (i == 0 && first != text.end()) {            // many templates write no conversation without turns
            answers.push_back({0, size_t(first - text.begin())});
            continue;
        }
        const std::u32string before = chat.form->render(turns, i, true);
        if (!text.starts_with(before)) fault("one that writes turns otherwise than add_generation_prompt begins them");
        answers.push_back({i, before.size()});
    }
    std::vector<bool> trained(text.size());
    for (size_t k = 0; k < answers.size(); k++) {
        const size_t next = k + 1 < answers.size() ? answers[k + 1].begin : text.size();
        size_t end = answers[k].begin;
        for (size_t i = end; i < next; i++)
            if (text[i] & kAnswer) end = i + 1;
        const size_t turn = answers[k].turn;
        if (end == answers[k].begin) end = place_of_empty(chat, turns, turn, text);
        if (end < answers[k].begin || end > next) fault("one that gives a turn of the assistant no place");
        auto close = std::ranges::find_if(controls, [&](const Control& c) { return c.at >= end; });
        if (close == controls.end() || close->at >= next)
            fault("one that ends a turn of the assistant with no control token of the tokenizer");
        auto last = close;                              // of the control tokens that follow without text between them
        const auto ends_it = [&] { return begins_with(text.substr(last->at), chat.end) && !chat.end.empty(); };
        while (!ends_it() && last + 1 != controls.end() && last[1].at == last->at + last->size) last++;
        if (ends_it()) close = last;
        else if (last != close && turn + 1 == turns.size())
            fault("one that ends a turn of the assistant with several control tokens, and none is eos_token");
        if (!conversation.turns[turn].left_out.empty()) continue;
        std::fill(trained.begin() + long(answers[k].begin), trained.begin() + long(close->at + close->size), true);
    }
    return trained;
}

// Appends the tokens of a text. Those that reach beyond byte `trained` are trained on, the others are not. names: see
// Tokenizer; the content of a message spells none. Returns what Tokenizer::encode returns.
int64_t append(std::string_view text, size_t trained, const Tokenizer& tokenizer, std::vector<uint32_t>* tokens,
               bool names = false) {
    std::vector<int> ids;
    const int64_t more = tokenizer.encode(text, &ids, {}, names);
    size_t end = 0;
    for (const int id : ids) {
        end += names ? 1 : tokenizer.text(id).size();       // a control token has no bytes
        tokens->push_back(uint32_t(id) | (end > trained ? 0 : kUntrained));
    }
    return more;
}

}  // namespace

std::string conversation_key(const Json& line) {
    constexpr const char* kFields[][2] = {{"messages", "messages"}, {"conversations", "conversations"},
                                          {"prompt", "completion"}, {"instruction", "output"}};
    const auto has = [&](const char* key) { return line.find(key).kind() != Json::null; };
    for (const auto& [key, answer] : kFields)
        if (has(key) && has(answer)) return key;
    for (const auto& [key, answer] : kFields)           // incomplete: read_conversation says what is missing
        if (has(key) && !has("text")) return key;
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
    if (form.empty())
        die_content(where, describe_fields(line), "messages, instruction and output, or prompt and completion");
    const Json prompt = line.find("prompt"), system = line.find("system"), history = line.find("history");
    out.plain = form == "prompt" && prompt.kind() == Json::string;
    const bool alpaca = form == "instruction";
    const std::string left_out =
        out.plain ? read_fields(line, where, {"prompt", "completion"}, &out)
        : alpaca ? read_fields(line, where, {"instruction", "input", "output", "system", "history"}, &out)
                 : read_fields(line, where, {form, form == "prompt" ? "completion" : "system", "system"}, &out);
    if (!left_out.empty())
        die_content(where + ": " + left_out, json_shown(line.find(left_out)), "a line to train on; remove it");
    if (out.plain) {
        out.turns = {{"user", prompt.text()}, {"assistant", line.get_string("completion", what)}};
        return out;
    }
    if (!is_empty(system)) out.turns.push_back({"system", line.get_string("system", what)});
    if (alpaca) {
        if (!is_empty(history) && history.kind() != Json::array)
            die_content(where + ": history", json_shown(history), "a list of pairs of texts");
        for (JsonItems i(is_empty(history) ? Json() : history); i.next();)
            for (const auto& [role, content] : {std::pair("user", 0), std::pair("assistant", 1)})
                out.turns.push_back({role, content_at(i.value, size_t(content), where + ": history")});
        const std::string input = is_null(line.find("input")) ? "" : line.get_string("input", what);
        out.amended = !out.turns.empty();
        out.turns.push_back({"user", line.get_string("instruction", what) + (input.empty() ? "" : "\n\n" + input)});
        out.turns.push_back({"assistant", line.get_string("output", what)});
    } else {
        read_turns(line.find(form), where + ": " + form, &out);
        if (form == "prompt") read_turns(line.at("completion", what), where + ": completion", &out);
    }
    if (std::ranges::find(out.turns, "assistant", &Turn::role) == out.turns.end())
        die_content(where, "no turn of the assistant", "one to train on");
    return out;
}

static Json template_in_config(const ModelTexts& texts) {
    if (texts.tokenizer_config.empty()) return {};
    return parse_json(texts.tokenizer_config, "tokenizer_config.json").find("chat_template");
}

std::string chat_template_of(const ModelTexts& texts) {
    if (!texts.chat_template.empty()) return texts.chat_template;
    Json found = template_in_config(texts);
    if (found.kind() == Json::array)                    // several, each with a name
        for (JsonItems i(found); i.next();)
            if (i.value.find("name").text() == "default") found = i.value.find("template");
    return found.kind() == Json::string ? found.text() : "";
}

ChatTemplate choose_chat_template(const std::string& option, const ModelTexts& texts, const std::string& folder) {
    const std::string jinja = chat_template_of(texts);
    const Json stated = template_in_config(texts);
    const bool none = jinja.empty() && (!stated || stated.kind() == Json::null);
    for (const Form& form : kForms) {
        const bool own = option == "auto" && (jinja == form.jinja || (none && &form == kForms));
        if (option != form.name && !own) continue;
        ChatTemplate chat = {std::make_shared<Jinja>(form.jinja, form.name, std::map<std::string, std::string>()),
                             form.jinja, form.name, form.begin, "", {}};
        std::string_view rest = form.jinja;
        for (size_t at; (at = rest.find("<|")) != rest.npos; rest.remove_prefix(rest.find("|>") + 2)) {
            rest.remove_prefix(at);
            const std::string name(rest.substr(0, rest.find("|>") + 2));
            if (std::ranges::find(chat.controls, name) == chat.controls.end()) chat.controls.push_back(name);
        }
        return chat;
    }
    const std::string what = folder + ": chat_template";
    if (jinja.empty())
        die_content(what, json_shown(stated), "a text, or a list with one named default; or give --chat-template "
                    "chatml or llama3");
    if (stated.kind() == Json::string && stated.text() != jinja)
        warn("%s: chat_template.jinja is taken; tokenizer_config.json has another", what.c_str());
    const auto reads = [&](const std::string& variable) { return jinja.find(variable) != jinja.npos; };
    const bool says = !texts.tokenizer_config.empty() || !texts.special_tokens_map.empty();
    if (reads("additional_special_tokens"))
        die_content(what, "additional_special_tokens", "bos_token, eos_token and the like; or give --chat-template "
                    "chatml or llama3");
    for (const char* name : {"bos_token", "eos_token"})
        if (!says && reads(name))
            die_content(what, name, "a tokenizer_config.json, which says what that is; or give --chat-template chatml "
                        "or llama3");
    std::map<std::string, std::string> variables = special_tokens(texts);
    const auto form = std::make_shared<Jinja>(jinja, what, variables);
    std::string key = jinja;
    for (const auto& [name, text] : variables)          // the others change with training, and nothing that it writes
        if (reads(name)) key += " " + name + " " + text;
    return {form, jinja, key, variables["bos_token"], variables["eos_token"]};
}

void add_chat_tokens(Tokenizer* tokenizer, const ChatTemplate& chat) {
    if (missing_control_token(*tokenizer, chat).empty()) return;
    std::string items;
    for (const std::string& name : chat.controls) {
        if (find_token(*tokenizer, name) >= 0) continue;
        if (std::ranges::count(tokenizer->unplaced, name))
            die_content("chat_template: " + name, "a token that tokenizer_config.json names without an id",
                        "one of tokenizer.json; AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) adds it");
        tokenizer->added.push_back({tokenizer->vocab_size++, name});
        items += (items.empty() ? "" : ",") + added_item(tokenizer->added.back());
        tokenizer->bytes.emplace_back();
    }
    // Another program's file gets them at the end of its list; all else in it stays.
    std::string& json = tokenizer->json;
    json = tokenizer->own || json.empty() ? "" : with_added(json, items);
    tokenizer_finish(tokenizer);
}

std::string missing_control_token(const Tokenizer& tokenizer, const ChatTemplate& chat) {
    for (const std::string& name : chat.controls)
        if (find_token(tokenizer, name) < 0) return name;
    return "";
}

// Returns the tokens of a short conversation.
static std::vector<uint32_t> probe(const Tokenizer& tokenizer, const ChatTemplate& chat) {
    std::vector<uint32_t> tokens;
    if (chat.form && missing_control_token(tokenizer, chat).empty() && tokenizer.kind != Tokenizer::none)
        encode_chat({{{"user", "a"}, {"assistant", "a"}}}, chat, tokenizer, &tokens);
    return tokens;
}

int begin_of_chat(const Tokenizer& tokenizer, const ChatTemplate& chat) {
    const std::vector<uint32_t> tokens = probe(tokenizer, chat);
    const int begin = find_token(tokenizer, chat.begin);
    return !tokens.empty() && tokens[0] == (uint32_t(begin) | kUntrained) ? begin : -1;
}

int end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat) {
    int end = -1;
    for (const uint32_t token : probe(tokenizer, chat))
        if (!(token & kUntrained)) end = int(token);
    return end;
}

int64_t encode_chat(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer,
                    std::vector<uint32_t>* tokens, bool open_end) {
    int64_t more = 0;
    const std::vector<Turn>& turns = conversation.turns;
    if (conversation.plain) {
        if (tokenizer.begin >= 0 && !tokenizer.begins_with_name(turns[0].content, tokenizer.begin))
            tokens->push_back(uint32_t(tokenizer.begin) | kUntrained);
        append(turns[0].content, std::string::npos, tokenizer, tokens, tokenizer.names);
        more = append(turns[1].content, 0, tokenizer, tokens, tokenizer.names);
        const bool ended = !tokens->empty() && tokens->back() == uint32_t(tokenizer.eot);     // by its name
        if (tokenizer.eot >= 0 && !ended) tokens->push_back(uint32_t(tokenizer.eot));
        return more;
    }
    std::vector<JinjaTurn> given;
    for (const Turn& turn : turns)
        given.push_back({characters_of(turn.role),
                         characters_of(turn.content, kGiven | (turn.role == "assistant" ? kAnswer : 0))});
    const std::u32string text = chat.form->render(given, given.size(), open_end);
    const std::vector<Control> controls = find_controls(text, tokenizer);
    std::vector<bool> trained(text.size());
    if (!open_end) trained = find_answers(conversation, given, chat, text, controls);
    size_t at = 0;
    const auto text_to = [&](size_t end) {
        const auto border =
            size_t(std::find(trained.begin() + long(at), trained.begin() + long(end), true) - trained.begin());
        std::string before = text_of(text.substr(at, border - at)), composed;
        if (tokenizer.split.nfc && to_nfc(before, &composed)) before = composed;
        more += append(before + text_of(text.substr(border, end - border)), before.size(), tokenizer, tokens);
    };
    for (const Control& control : controls) {
        text_to(control.at);
        tokens->push_back(uint32_t(control.id) | (trained[control.at] ? 0 : kUntrained));
        at = control.at + control.size;
    }
    text_to(text.size());
    return more;
}

std::vector<int> chat_prompt(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer) {
    std::vector<uint32_t> tokens;
    encode_chat(conversation, chat, tokenizer, &tokens, true);
    for (uint32_t& token : tokens) token &= ~kUntrained;
    return {tokens.begin(), tokens.end()};
}

std::vector<int> sample_start(const std::string& prompt, const ChatTemplate& chat, const Tokenizer& tokenizer) try {
    Spelled spelled;
    if (chat.form || !tokenizer.names) tokenizer.find_names(prompt, &spelled);
    spelled.warn("--prompt", bool(chat.form));
    if (chat.form) {
        // A char tokenizer may not have learnt the characters of a greeting.
        const bool greets = prompt.empty() && tokenizer.kind != Tokenizer::character;
        return chat_prompt({{{"user", greets ? "Hello" : prompt}}}, chat, tokenizer);
    }
    std::vector<int> start;
    const int otherwise = tokenizer.bos >= 0 ? tokenizer.bos : tokenizer.eot;       // as transformers' generate begins
    const int first = prompt.empty() ? otherwise : tokenizer.begins_with_name(prompt) ? -1 : tokenizer.begin;
    if (first >= 0) start.push_back(first);
    if (tokenizer.kind == Tokenizer::none || (prompt.empty() && !start.empty())) return start;
    const bool knows = tokenizer.kind != Tokenizer::character || std::ranges::count(tokenizer.bytes, "\n") > 0;
    if (prompt.empty() && !knows) return {0};
    tokenizer.encode(prompt.empty() ? "\n" : prompt, &start, {}, tokenizer.names);
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
