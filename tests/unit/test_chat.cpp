// test_chat.cpp -- conversations: every form of line, every refusal, the tokens and what is trained on, byte for byte.
#include <algorithm>
#include <cstdlib>
#include "src/base/file.h"
#include "src/data/data.h"
#include "src/text/chat.h"
#include "tests/test.h"
#include "tests/unit/folder.h"
#include "tests/unit/text.h"

namespace {

Conversation parse(const std::string& line) { return read_conversation(parse_json(line, "line"), "f: line 3"); }

// "257 117 | 89": the tokens, in runs that are trained on or not.
std::string show(const std::vector<uint32_t>& tokens) {
    std::string all;
    bool trained = false;
    for (const uint32_t token : tokens) {
        if (trained == bool(token & kUntrained)) all += "| ";
        trained = !(token & kUntrained);
        all += std::to_string(token & ~kUntrained) + " ";
    }
    return all;
}

std::string encoded(const std::string& line, const std::string& option, bool open_end = false) {
    const ChatTemplate chat = choose_chat_template(option, "", "", "folder");
    Tokenizer t = tokenizer_byte();
    add_chat_tokens(&t, chat);
    std::vector<uint32_t> tokens;
    encode_chat(parse(line), chat, t, &tokens, open_end);
    return show(tokens);
}

std::string bytes(const std::string& text) {
    std::string all;
    for (const char c : text) all += std::to_string(uint8_t(c)) + " ";
    return all;
}

const char* const kHi = R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yo"}]})";

}  // namespace

TEST(chatml_by_hand) {
    const std::string asked = "257 " + bytes("user\nHi") + "258 10 257 " + bytes("assistant\n");
    EXPECT(encoded(kHi, "chatml") == asked + "| 89 111 258 | 10 ", "%s", encoded(kHi, "chatml").c_str());
    const std::string opened = encoded(kHi, "chatml", true);
    EXPECT(opened == asked + "89 111 258 10 257 " + bytes("assistant\n"), "%s", opened.c_str());
    const std::string system = encoded(
        R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant",)"
        R"("content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":""}]})", "auto");
    EXPECT(system == "257 " + bytes("system\nS") + "258 10 257 " + bytes("user\na") + "258 10 257 " +
                         bytes("assistant\n") + "| 98 258 | 10 257 " + bytes("user\nc") + "258 10 257 " +
                         bytes("assistant\n") + "| 258 | 10 ", "%s", system.c_str());
}

TEST(llama3_by_hand) {
    const auto turn = [](const std::string& role) { return "258 " + bytes(role) + "259 10 10 "; };
    const std::string want = "257 " + turn("user") + "72 105 260 " + turn("assistant") + "| 89 111 260 ";
    EXPECT(encoded(kHi, "llama3") == want, "%s", encoded(kHi, "llama3").c_str());
    const std::string blanks =
        R"({"messages":[{"role":"user","content":"  Hi \n"},{"role":"assistant","content":" Yo\n"}]})";
    EXPECT(encoded(blanks, "llama3") == want, "trimmed");
    EXPECT(encoded(blanks, "chatml") != encoded(kHi, "chatml"), "ChatML does not trim");
}

TEST(contents_spell_no_control_token) {
    const std::string line =
        R"({"messages":[{"role":"user","content":"x<|im_end|>y"},{"role":"assistant","content":"é"}]})";
    EXPECT(encoded(line, "chatml") == "257 " + bytes("user\nx<|im_end|>y") + "258 10 257 " + bytes("assistant\n") +
                                          "| 195 169 258 | 10 ", "%s", encoded(line, "chatml").c_str());
}

TEST(forms_of_lines) {
    const std::string same[] = {
        kHi, R"({"conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Yo"}]})",
        R"({"instruction":"Hi","input":"","output":"Yo"})", R"({"instruction":"Hi","output":"Yo"})",
        R"({"prompt":[{"role":"user","content":"Hi"}],"completion":[{"role":"assistant","content":"Yo"}]})",
        R"({"messages":[{"role":"user","content":[{"type":"text","text":"H"},{"type":"text","text":"i"}]},)"
        R"({"role":"assistant","content":"Yo"}]})"};
    for (const std::string& line : same)
        EXPECT(encoded(line, "chatml") == encoded(kHi, "chatml"), "%s", line.c_str());
    const Conversation own = parse(R"({"system":"S","conversations":[{"from":"gpt","value":"Yo"}]})");
    EXPECT(own.turns.size() == 2 && own.turns[0].role == "system" && own.turns[0].content == "S", "a system field");
    const Conversation both = parse(R"({"instruction":"Add","input":"2","output":"3"})");
    EXPECT(both.turns[0].content == "Add\n\n2", "instruction and input");
    const std::string plain = encoded(R"({"prompt":"2+2=","completion":"4"})", "chatml");
    EXPECT(plain == "256 50 43 50 61 | 52 256 ", "%s", plain.c_str());
    // Other fields beside them: UltraChat's, Alpaca's with the whole text, Cosmopedia's, which are documents.
    const auto form = [](const char* line) { return conversation_key(parse_json(std::string_view(line), "line")); };
    EXPECT(form(R"({"prompt":"a","prompt_id":"7","messages":[]})") == "messages", "a copy of the first turn");
    EXPECT(form(R"({"prompt":"a","instruction":"a","output":"b","text":"ab"})") == "instruction", "copies of both");
    EXPECT(form(R"({"prompt":"a","response":"b"})") == "prompt", "an error will name the completion");
    EXPECT(form(R"({"prompt":"a","text":"b"})").empty() && form(R"({"text":"a"})").empty(), "documents");
}

// A token that reaches from the head into the content is trained on, as transformers has it.
TEST(token_across_the_border) {
    Tokenizer t = tokenizer_train_bpe("\n\nA\n\nA\n\nA\n\nA", 258, splits[1]);
    const ChatTemplate chat = choose_chat_template("chatml", "", "", "");
    add_chat_tokens(&t, chat);
    std::vector<uint32_t> tokens;
    encode_chat(parse(R"({"messages":[{"role":"assistant","content":"\nA"}]})"), chat, t, &tokens);
    EXPECT(show(tokens) == "258 " + bytes("assistant") + "| 257 65 259 | 10 ", "%s", show(tokens).c_str());
}

TEST(refusals) {
    const auto refused = [](const std::string& part, const std::string& line) {
        expect_error(kExitBadContent, part, [&] { parse(line); });
    };
    refused("f: line 3: messages[1]: role: got \"assistent\", want system, user or assistant; did you mean assistant?",
            R"({"messages":[{"role":"user","content":"a"},{"role":"assistent","content":"b"}]})");
    refused("got \"bot\", want system, user or assistant", R"({"messages":[{"role":"bot","content":"a"}]})");
    refused("messages[0]: role: got \"tool\"", R"({"messages":[{"role":"tool","content":"a"}]})");
    refused("messages[0]: content: got null", R"({"messages":[{"role":"user","content":null}]})");
    refused("messages[0]: content: got nothing", R"({"messages":[{"role":"user"}]})");
    refused("role", R"({"messages":[{"content":"a"}]})");
    refused("want parts of type text", R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})");
    refused("got no turn of the assistant", R"({"messages":[]})");
    refused("got no turn of the assistant", R"({"messages":[{"role":"user","content":"a"}]})");
    refused("messages: got \"x\", want a list of turns", R"({"messages":"x"})");
    refused("completion", R"({"prompt":"a"})");
    refused("completion", R"({"prompt":"a","completion":3})");
    refused("output", R"({"instruction":"a"})");
}

TEST(templates) {
    const auto chosen = [](const std::string& jinja) { return choose_chat_template("auto", jinja, "{}", "folder"); };
    EXPECT(chosen("").key == "chatml", "none");
    EXPECT(choose_chat_template("llama3", "[INST]", "", "").key == "llama3", "the option decides");
}

TEST(template_of_a_folder) {
    const Folder dir;
    EXPECT(read_chat_template(dir.path).empty(), "none");
    dir.add("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"t"},)"
                                     R"({"name":"default","template":"d"}]})");
    EXPECT(read_chat_template(dir.path) == "d", "%s", read_chat_template(dir.path).c_str());
    dir.add("tokenizer_config.json", R"({"chat_template":"c"})");
    EXPECT(read_chat_template(dir.path) == "c", "%s", read_chat_template(dir.path).c_str());
    dir.add("chat_template.jinja", "j");
    EXPECT(read_chat_template(dir.path) == "j", "%s", read_chat_template(dir.path).c_str());
}

TEST(control_tokens_are_added_once) {
    const ChatTemplate form = choose_chat_template("llama3", "", "", "");
    Tokenizer t = tokenizer_byte();
    add_chat_tokens(&t, form);
    EXPECT(t.vocab_size == 261 && t.bytes.size() == 261 && t.eot == 256, "%d tokens", t.vocab_size);
    Tokenizer again = tokenizer_parse(t.to_json(), "tokenizer.json");
    EXPECT(again.vocab_size == 261 && again.eot == 256, "read back: %d tokens", again.vocab_size);
    const std::string json = again.to_json();
    add_chat_tokens(&again, form);
    EXPECT(again.vocab_size == 261 && again.to_json() == json, "they are there");
}

// Windows: one conversation each, filled up or cut; nothing of one is a target of another.
TEST(windows) {
    const Folder dir;
    std::string lines;
    for (int i = 19; i >= 0; i--)
        lines += R"({"prompt":")" + std::string(size_t(i), 'p') + R"(","completion":"cc"})" "\n";
    const std::string path = dir.add("chat.jsonl", lines);
    DataOptions o;
    o.data = path;
    o.seq_len = 12;
    const Opened data = open_text(o);
    EXPECT(data.vocab_size == 257 && !data.chat.form, "%d tokens", data.vocab_size);
    // A window of 12 has its end of text, up to 11 more tokens and none behind: prompts up to 8 keep all 3 targets.
    EXPECT(data.train.samples + data.val.samples == 11, "%d and %d", int(data.train.samples), int(data.val.samples));
    std::vector<int> inputs(12), targets(12);
    for (uint64_t i = 0; i < data.train.samples; i++) {
        const size_t prompt = 10 - i, end = std::min<size_t>(prompt + 3, 11);
        data.train.sample(i, inputs.data(), targets.data(), 257);
        EXPECT(data.train.trained(i, 257) == end - prompt, "window %d", int(i));
        EXPECT(inputs[0] == 256 && inputs[prompt + 1] == 'c', "window %d", int(i));
        for (size_t k = 0; k < 12; k++) {
            const int want = k < prompt || k >= end ? -1 : k < prompt + 2 ? 'c' : 256;
            EXPECT(targets[k] == want, "window %d, target %zu: %d", int(i), k, targets[k]);
        }
    }
    EXPECT(data.train.description.find("are longer than 12 tokens and cut") != std::string::npos, "%s",
           data.train.description.c_str());
    dir.add("chat.jsonl", lines + kHi);
    expect_error(kExitBadContent, "line 21: got the fields \"messages\"", [&] { open_text(o); });
    dir.add("chat.jsonl", lines.substr(0, lines.find('\n')));
    expect_error(kExitBadContent, "one conversation", [&] { open_text(o); });
    dir.add("chat.jsonl", lines + "{\"prompt\":\"a\",\"completion\":1}\n");
    expect_error(kExitBadContent, "chat.jsonl: line 21: completion", [&] { open_text(o); });
}

// Against transformers: tests/long/test_chat.sh.
TEST(as_transformers_has_it) {
    const char* const folder = getenv("LOCKSTEP_CHAT");
    if (!folder) SKIP("LOCKSTEP_CHAT is not set: tests/long/test_chat.sh does it");
    const std::string cases = read_file(path_join(folder, "cases.jsonl"));
    const ChatTemplate chat = choose_chat_template("auto", read_chat_template(folder), "{}", folder);
    const Tokenizer t = tokenizer_load(folder);
    std::string_view rest = cases;
    size_t count = 0, trained = 0;
    for (; !rest.empty(); count++) {
        const Json line = parse_json(next_word(&rest, '\n'), "case");
        std::vector<uint32_t> got;
        encode_chat(read_conversation(line, "case"), chat, t, &got);
        std::string ids, mask;
        for (const uint32_t token : got) {
            ids += std::to_string(token & ~kUntrained) + " ";
            mask += token & kUntrained ? '0' : '1';
        }
        EXPECT(ids == line.get_string("ids", "case"), "%zu: got %s, want %s", count, ids.c_str(),
               line.get_string("ids", "case").c_str());
        EXPECT(mask == line.get_string("mask", "case"), "%zu: got %s, want %s", count, mask.c_str(),
               line.get_string("mask", "case").c_str());
        trained += size_t(std::ranges::count(mask, '1'));
    }
    EXPECT(count >= 500 && trained > 1000, "only %zu conversations with %zu tokens", count, trained);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
