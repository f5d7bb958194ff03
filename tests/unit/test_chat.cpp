// test_chat.cpp -- conversations: every form of line, every refusal, the tokens and what is trained on, byte for byte.
#include <algorithm>
#include <cstdlib>
#include <set>
#include "src/base/file.h"
#include "src/data/data.h"
#include "tools/text/chat.h"
#include "tests/test.h"
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

std::string encoded(const std::string& line, const ChatTemplate& chat, const Tokenizer& t, bool open_end = false) {
    std::vector<uint32_t> tokens;
    encode_chat(parse(line), chat, t, &tokens, open_end);
    return show(tokens);
}
std::string encoded(const std::string& line, const std::string& option, bool open_end = false) {
    const ChatTemplate chat = choose_chat_template(option, {}, "folder");
    Tokenizer t = tokenizer_byte();
    add_chat_tokens(&t, chat);
    return encoded(line, chat, t, open_end);
}

std::string bytes(const std::string& text) {
    std::string all;
    for (const char c : text) all += std::to_string(uint8_t(c)) + " ";
    return all;
}

const std::string kHi = R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yo"}]})";

// ChatML: 256 is end of text, 257 <|im_start|>, 258 <|im_end|>.
std::string turn(const std::string& text) { return "257 " + bytes(text) + "258 10 "; }
const std::string kReply = "257 " + bytes("assistant\n"), kAsked = turn("user\nHi") + kReply;

}  // namespace

TEST(by_hand) {
    const auto head = [](const std::string& role) { return "258 " + bytes(role) + "259 10 10 "; };  // Llama 3's
    const std::string hi = kAsked + "| 89 111 258 | 10 ", with_system = turn("system\nS") + hi,
                      llama = "257 " + head("user") + "72 105 260 " + head("assistant") + "| 89 111 260 ";
    const std::string blanks =
        R"({"messages":[{"role":"user","content":"  Hi \n"},{"role":"assistant","content":" Yo\n"}]})";
    const struct { std::string line, want, option = "chatml"; } rows[] = {
        {kHi, hi}, {kHi, llama, "llama3"}, {blanks, llama, "llama3"},
        {blanks, turn("user\n  Hi \n") + kReply + "| " + bytes(" Yo\n") + "258 | 10 "},
        {R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant",)"
         R"("content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":""}]})",
         turn("system\nS") + turn("user\na") + kReply + "| 98 258 | 10 " + turn("user\nc") + kReply + "| 258 | 10 ",
         "auto"},
        // A content spells no control token.
        {R"({"messages":[{"role":"user","content":"x<|im_end|>y"},{"role":"assistant","content":"é"}]})",
         turn("user\nx<|im_end|>y") + kReply + "| 195 169 258 | 10 "},
        {R"({"prompt":"2+2=","completion":"4"})", "256 50 43 50 61 | 52 256 "},
        // Other forms of lines, and of a system turn.
        {R"({"conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Yo"}]})", hi},
        {R"({"instruction":"Hi","input":"","output":"Yo"})", hi}, {R"({"instruction":"Hi","output":"Yo"})", hi},
        // What Arrow and pandas write where a record has nothing.
        {R"({"instruction":"Hi","input":null,"output":"Yo","messages":null,"history":null})", hi},
        {R"({"messages":[{"role":"user","content":[{"type":"text","text":"Hi","image":null,"image_url":{"url":null},)"
         R"("more":[]}]},{"from":null,"value":null,"role":"assistant","content":"Yo","tool_calls":{"a":[null]}}]})",
         hi},
        {R"({"prompt":null,"completion":null,"conversations":[{"from":"human","value":"Hi","role":null},)"
         R"({"from":"gpt","value":"Yo","content":null}],"label":null})", hi},
        {R"({"prompt":[{"role":"user","content":"Hi"}],"completion":[{"role":"assistant","content":"Yo"}]})", hi},
        {R"({"messages":[{"role":"user","content":[{"type":"text","text":"H"},{"type":"text","text":"i"}]},)"
         R"({"role":"assistant","content":"Yo"}]})", hi},
        {R"({"system":null,"history":[],"instruction":"Hi","output":"Yo"})", hi},
        {R"({"system":"S","instruction":"Hi","output":"Yo"})", with_system},
        {R"({"system":"S","prompt":[{"role":"user","content":"Hi"}],)"          // trl's
         R"("completion":[{"role":"assistant","content":"Yo"}]})", with_system}};
    for (const auto& [line, want, option] : rows) {
        const Row row(line);
        EXPECT_EQ(encoded(line, option), want);
    }
    EXPECT_EQ(encoded(kHi, "chatml", true), kAsked + "89 111 258 10 " + kReply);
}

TEST(fields_of_lines) {
    const Conversation own = parse(R"({"system":"S","conversations":[{"from":"gpt","value":"Yo"}]})");
    EXPECT(own.turns.size() == 2 && own.turns[0].role == "system" && own.turns[0].content == "S", "a system field");
    EXPECT_EQ(parse(R"({"instruction":"Add","input":"2","output":"3"})").turns[0].content, "Add\n\n2");
    const Conversation past = parse(R"({"instruction":"c","output":"d","history":[["a","b"]]})");
    EXPECT(past.turns.size() == 4 && past.turns[1].role == "assistant" && past.turns[1].content == "b" &&
               past.turns[2].content == "c" && past.amended);
    // Other fields beside them: UltraChat's, Alpaca's with the whole text, Cosmopedia's, which are documents.
    const std::pair<std::string_view, const char*> forms[] = {
        {R"({"prompt":"a","prompt_id":"7","messages":[]})", "messages"},
        {R"({"prompt":"a","instruction":"a","output":"b","text":"ab"})", "instruction"},
        {R"({"prompt":"a","response":"b"})", "prompt"}, {R"({"prompt":"a","text":"b"})", ""}, {R"({"text":"a"})", ""},
        {R"({"messages":null,"text":"a"})", ""}, {R"({"messages":[],"text":null})", "messages"},
        {R"({"messages":null,"prompt":"a","completion":"b"})", "prompt"},
        {R"({"prompt":"a","completion":null,"instruction":"a","output":"b"})", "instruction"}};
    for (const auto& [line, key] : forms) EXPECT_EQ(conversation_key(parse_json(line, "line")), key);
    // The user's own, whatever they are.
    for (const std::string name : {"label", "ignore", "loss", "labels", "colour"})
        for (const std::string value : {"0", "1", "false", "2.31", "\"pos\""})
            EXPECT_EQ(parse("{\"" + name + "\":" + value + R"(,"prompt":"a","completion":"b"})").unknown,
                      std::vector{name});
}

// A token that reaches from the head into the content is trained on, as transformers has it.
TEST(token_across_the_border) {
    Tokenizer t = tokenizer_train_bpe("\n\nA\n\nA\n\nA\n\nA", 258, splits[1]);
    const ChatTemplate chat = choose_chat_template("chatml", {}, "");
    add_chat_tokens(&t, chat);
    EXPECT_EQ(encoded(R"({"messages":[{"role":"assistant","content":"\nA"}]})", chat, t),
              "258 " + bytes("assistant") + "| 257 65 259 | 10 ");
}

TEST(refusals) {
    const Refusals rows = {
        {R"({"messages":[{"role":"user","content":"a"},{"role":"assistent","content":"b"}]})",
         "f: line 3: messages[1]: role: got \"assistent\", want system, user or assistant; did you mean assistant?"},
        {R"({"messages":[{"role":"bot","content":"a"}]})", "got \"bot\", want system, user or assistant"},
        {R"({"messages":[{"role":"tool","content":"a"}]})", "messages[0]: role: got \"tool\""},
        {R"({"messages":[{"role":"user","content":null}]})", "messages[0]: content: got null"},
        {R"({"messages":[{"role":"user"}]})", "messages[0]: content: got nothing"},
        {R"({"messages":[{"content":"a"}]})", "role"},
        {R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})", "want parts of type text"},
        {R"({"messages":[]})", "got no turn of the assistant"},
        {R"({"messages":[{"role":"user","content":"a"}]})", "got no turn of the assistant"},
        {R"({"messages":"x"})", "messages: got \"x\", want a list of turns"},
        {R"({"prompt":"a"})", "completion"},
        {R"({"prompt":"a","completion":3})", "completion"},
        {R"({"instruction":"a"})", "output"},
        {R"({"system":5,"instruction":"a","output":"b"})", "f: line 3: system: got 5"},
        {R"({"history":["x"],"instruction":"a","output":"b"})", "history: got \"x\""},
        {R"({"history":[["x"]],"instruction":"a","output":"b"})", "history: got nothing"},
        {R"({"tools":[1],"messages":[{"role":"assistant","content":"b"}]})",
         "f: line 3: tools: got an array, want none"},
        {R"({"rejected":"x","prompt":"a","completion":"b"})", "rejected: got \"x\""},
        {R"({"system":"x","prompt":"a","completion":"b"})", "system: got \"x\""},
        {R"({"train":false,"prompt":"a","completion":"b"})", "f: line 3: train: got false, want a line to train on"},
        {R"({"masked":1,"instruction":"a","output":"b"})", "f: line 3: masked: got 1, want a line to train on"},
        {R"({"weight":0.5,"messages":[{"role":"assistant","content":"b"}]})", "f: line 3: weight: got 0.5, want 0, 1"},
        {R"({"messages":[{"role":"user","content":[{"type":"text","text":"a","weight":0}]}]})", "weight: got 0"},
        {R"({"messages":[{"role":"user","content":[{"type":"text","text":"a","image":[0]}]}]})", "image: got an array"},
        {R"({"messages":[{"role":"user","content":[{"type":"text","text":null}]}]})", "text: got null"}};
    expect_refusals(kExitBadContent, rows, parse);
}

// What Jinja 3.1.6 renders, with trim_blocks and lstrip_blocks, of a user's turn and an answer.
TEST(jinja) {
    const std::pair<const char*, const char*> cases[] = {
        {"{% for m in messages %}{{ m.role ~ ':' + m['content'] }}{% if not loop.last %}, {% endif %}{% endfor %}",
         "user: Hi\u3000, assistant:Yo"},
        {"  {% if true %}  \n a {%- if false -%} b {%- elif none %} c {% else %}\n  d\n {% endif %}\n{% endif %}\n\n",
         "  \n a  d\n"},
        {"{# no\n #}\nx {#- no -#} y\n{{ 'l' }}\n", "xy\nl"},
        {"{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"},
        {"{% set x = 1 %}{% for m in messages %}{% set x = 5 %}{% endfor %}{{ x }}", "1"},
        {"{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.index0 }}{{ loop.length }}{% endfor %}",
         "1True022False12"},
        {"{{ messages[1:][0].content ~ messages[::-1][0].role ~ messages[:-1] | length }}", "Yoassistant1"},
        {"[{{ messages[0].content | trim }}][{{ messages[0].content.lstrip() }}]", "[Hi][Hi\u3000]"},
        {"{{ 'a,b,,c'.split(',')[-1] }}{{ '--x-'.strip('-') }}{{ 'x' * 0 if false else 'y' }}{{ 'Ab'.upper() }}",
         "cxyAB"},
        {"{{ ' \x1c\x1f\u0085\u00a0\u1680\u2003\u2028\u202f\u205f\u3000\u200bz' | trim }}", "\u200bz"},
        {"{{ bos_token }}{{ nothing }}{{ nothing is defined }}{{ tools is none }}{{ messages.x | default('d') }}",
         "<s>FalseTrued"},
        {"{% macro tag(a, b='!') %}<{{ a * 2 | unknown }}>{% endmacro %}{{ 'not called' }}", "not called"},
        {"{{ 1 + 2 - 1 }}{{ 5 % 3 == 2 and not 1 > 2 or x.y }}{{ -5 % 3 }}", "2True1"},
        {"{{ ('role' in messages[0]) ~ ('i' in 'Hi') ~ ('z' not in ['a', 'b']) ~ ('q' is string) ~ (1 is not string)}}",
         "TrueTrueTrueTrueTrue"},
        {"{{ '\\n' + \"it's\" + 'a' 'b' }}{% generation %}g{% endgeneration %}", "\nit'sabg"},
        {"{% generation %}{% set c = 1 %}{{ c }}{% endgeneration %}{{ c is defined }}", "1False"},
        {"{% set n = namespace() %}{{ n is iterable }}{{ n is mapping }}{{ 'a' if n }}", "FalseFalsea"},
        {"{{ x == y }}{{ x == none }}{{ 1 == true }}{{ '1' == 1 }}{{ messages[0] == 'a' }}", "TrueFalseTrueFalseFalse"},
        {"{% if messages[0].missing %}{{ 'a' | unknown }}{{ tojson(5) }}{% endif %}ok", "ok"},
        {"{{ 'x' if messages is string }}{{ 'rOLE' | lower }}{{ -1 }}", "role-1"}};
    const std::vector<JinjaTurn> turns = {{U"user", U" Hi\u3000"}, {U"assistant", U"Yo"}};
    for (const auto& [jinja, want] : cases) {
        const Row row(jinja);
        EXPECT_EQ(text_of(Jinja(jinja, "t", {{"bos_token", "<s>"}}).render(turns, 2, false)), want);
    }
}

TEST(jinja_refusals) {
    const auto times = [](int n, const std::string& text) {
        std::string all;
        for (int i = 0; i < n; i++) all += text;
        return all;
    };
    const std::string set = "{% set x = 'xxxxxxxx' %}{% set l = [1,2,3,4,5,6,7,8,9] %}", loop = "{% for i in l %}",
                      end = "{% endfor %}";
    const Refusals rows = {
        {"\n{{ messages | tojson }}", "t: line 2: got the filter tojson, want"},
        {"{{ 4 is divisibleby(2) }}", "line 1: got the test divisibleby"},
        {"{{ 4 is odd }}", "line 1: got the test odd"},
        {"{{ 'a'.title() }}", "the method title"},
        {"{% include 'x' %}", "the statement include"},
        {"{% if false %}{% filter trim %}{% endfilter %}{% endif %}", "the statement filter"},
        {"{{ cycler('a') }}", "the variable cycler"},
        {"{{ x.y }}", "a member of undefined x"},
        {"{% for t in tools %}{% endfor %}", "a loop over none"},
        {"{% if true %}a", "no endif"},
        {"{{ raise_exception('no system turn') }}", "got \"no system turn\", want turns"},
        {"{{ strftime_now('%d %b %Y') }}", "today's date (strftime_now)"},
        {"{{ 'é' | upper }}", "upper or lower case of a letter that is not English"},
        {"{{ '\\u00e9' }}", "the escape \\u"},
        {"{{ 1.5 }}", "got the number 1,"},
        {"{{ messages }}", "a list"},
        {"{% for m in messages %}{{ loop.depth }}{% endfor %}", "loop.depth"},
        {"{{ 'a' | safe + '<' }}", "the filter safe"},       // which Jinja writes as &lt;
        {"{{ {1: 2} }}", "a dict"},
        {"{{ 'a }}", "a text without its closing quote"},
        {"{{ a ", "a tag that does not end"},
        {"{# a ", "a comment that does not end"},
        // Jinja has these, and few templates need them.
        {"{% for m in messages %}{% break %}{% endfor %}", "the statement break"},
        {"{% set x %}a{% endset %}", "a block of set"},
        {"{% for m in messages %}{% else %}{% endfor %}", "else in a loop"},
        {"{% for m in messages if m.role %}{% endfor %}", "a loop with a condition"},
        {"{% for a, b in messages %}{% endfor %}", "several names"},
        {"{% macro f() %}a{% endmacro %}{{ f() }}", "the macro f"},
        {"{% for m in messages %}{{ loop.previtem }}{% endfor %}", "loop.previtem"},
        {"{{ messages[0] == messages[0] }}", "a comparison of a dict"},
        {"{{ 'ab'[1:] }}", "a slice of a text"},
        {"{{ messages[::2] }}", "a slice of a list"},
        {"{{ messages | selectattr('role', 'equalto', 'user') }}", "such a filter selectattr"},
        {"{{ 'a' | capitalize }}", "the filter capitalize"},
        {"{{ messages[0].get('role') }}", "the method get of a dict"},
        {"{% if messages[0].items %}a{% endif %}", "without a call the method items of a dict"},
        {"{{ messages[0]['role'].strip }}", "without a call the method strip of a text"},
        {"{{ messages['count'] }}", "without a call the method count of a list"},
        {"{% for i in range(3) %}{% endfor %}", "the variable range"},
        {"{{ 1 is eq 1 }}", "the test eq of something"},
        {"{{ 1 == 1 == 1 }}", "== where }} belongs"},
        {"{{ namespace(a=1) | length }}", "the filter length"},
        {"{% for m in messages %}{{ loop | length }}{% endfor %}", "the filter length"},
        {"{% for m in messages %}{% set loop.last = 1 %}{% endfor %}", "a member set of a namespace"},
        // What a hostile template could do is bounded.
        {"{% set n = namespace(a=1) %}{% set n.a = n %}", "in a namespace a namespace"},
        {"{% set n = namespace(a=1) %}{% set n.a = [n] %}", "in a list a namespace"},
        {"{% set n = namespace(a=[]) %}{% set n.a = [n.a] %}", "in a list a list"},
        {"{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}", "more than 100 levels"},
        {"{{ " + std::string(100000, '-') + "1 }}", "more than 100 levels"},
        {times(1000, "{% if true %}"), "more than 100 levels"},
        {set + times(20, loop) + times(20, end), "beyond any measure"},
        {set + times(3, loop) + std::string(100000, 'x') + times(3, end), "beyond any measure"},
        {set + times(60, "{% set x = x + x %}"), "beyond any measure"}};
    const std::vector<JinjaTurn> turns = {{U"user", U"Hi"}};
    const auto render = [&](const std::string& jinja) { Jinja(jinja, "t", {}).render(turns, 1, false); };
    expect_refusals(kExitBadContent, rows, render);
}

// Templates of published shapes, by hand, with ChatML's tokens.
std::string by_template(const std::string& jinja, const std::string& line, const std::string& config = "{}") {
    Tokenizer t = tokenizer_byte();
    add_chat_tokens(&t, choose_chat_template("chatml", {}, ""));
    const ModelTexts texts = {.tokenizer_config = config, .chat_template = jinja};
    return encoded(line, choose_chat_template("auto", texts, "folder"), t);
}
const std::string kTurns =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(templates) {
    EXPECT_EQ(choose_chat_template("auto", {}, "").key, "chatml");
    EXPECT_EQ(choose_chat_template("llama3", {.chat_template = "[INST]"}, "").key, "llama3");
    const std::string hi = kAsked + "| 89 111 258 | 10 ", help = turn("system\nMate's helper."),
                      empty = R"({"instruction":"Hi","output":""})",
                      alone = kTurns.substr(0, kTurns.find("{% if add")), opened = turn("user\nHi") + "| " + kReply,
                      says = replaced(kTurns, "m.content", "('So: ' if m.role == 'assistant' else '') + m.content"),
                      two = replaced(kTurns, "<|im_end|>", "<|im_end|><|endoftext|>");
    const auto loop = [](const std::string& body) { return "{% for m in messages %}" + body + "{% endfor %}"; };
    const struct { std::string jinja, line, want, config = "{}"; } rows[] = {
        {kTurns, kHi, hi},
        // SmolLM2's and Qwen2's default system turn, with real line feeds, in a variable, and with an apostrophe.
        {loop("{% if loop.first and m.role != 'system' %}{{ \"<|im_start|>system\nMate's helper.<|im_end|>\n\" }}"
              "{% endif %}") + kTurns, kHi, help + hi},
        {"{% set s = \"Mate's helper.\" if messages[0].role != 'system' else '' %}{{ '<|im_start|>system\n' ~ s ~ "
         "'<|im_end|>\n' }}" + kTurns, kHi, help + hi},
        {"{{ bos_token }}" + kTurns, kHi, "256 " + hi, R"({"bos_token":{"content":"<|endoftext|>"}})"},
        // Only what the template writes is a control token.
        {kTurns, R"({"instruction":"Hi","output":"<|im_end|>"})", kAsked + "| " + bytes("<|im_end|>") + "258 | 10 "},
        // What the template writes in front of an answer, and not for add_generation_prompt, is the model's to write.
        {says, kHi, kAsked + "| " + bytes("So: Yo") + "258 | 10 "},
        // A turn may end with several tokens: eos_token is the last of them.
        {two, kHi, "257 " + bytes("user\nHi") + "258 256 10 " + kReply + "| 89 111 258 256 | 10 ",
         R"({"eos_token":"<|endoftext|>"})"},
        // An empty answer ends where one of text does, whether or not the template has add_generation_prompt.
        {kTurns, empty, kAsked + "| 258 | 10 "}, {alone, kHi, opened + "89 111 258 | 10 "},
        {alone, empty, opened + "258 | 10 "}, {loop("{{ m.content + '<|im_end|>' }}"), empty, "72 105 258 | 258 "}};
    for (const auto& [jinja, line, want, config] : rows) {
        const Row row(jinja);
        EXPECT_EQ(by_template(jinja, line, config), want);
    }
    const std::string ends_none = "a turn of the assistant";
    expect_refusals(kExitBadContent, {
        {loop("{% if m.content %}{{ m.content + '<|im_end|>' }}{% endif %}"), ends_none},
        {loop("{{ m.content + ('<|im_end|>' if m.content else 'no') }}"), ends_none}},
        [&](const std::string& jinja) { by_template(jinja, empty); });
    expect_refusals(kExitBadContent, {
        {two, "folder: chat_template: got one that ends a turn of the assistant with several control tokens"},
        {loop("{{ m.role + ': ' + m.content + '\n' }}"), "with no control token"},
        {"{{ messages | length }}" + kTurns, "otherwise than add_generation_prompt"},
        {"{{ raise_exception('no') }}", "got \"no\", want turns that the template writes"}},
        [](const std::string& jinja) { by_template(jinja, kHi); });
    expect_error(kExitBadContent, "folder: chat_template: got bos_token, want a tokenizer_config.json", [] {
        choose_chat_template("auto", {.chat_template = "{{ bos_token }}"}, "folder");
    });
}

TEST(names_of_tokens_in_the_result) {
    Tokenizer t = tokenizer_byte();
    const ChatTemplate form = choose_chat_template("chatml", {}, "");
    add_chat_tokens(&t, form);
    EXPECT(end_of_turn(t, form) == 258 && begin_of_chat(t, form) == -1, "ChatML's");
    const ChatTemplate own =
        choose_chat_template("auto", {.tokenizer_config = R"({"bos_token":"<|endoftext|>"})",
                                      .chat_template = "{{ bos_token }}" + kTurns}, "f");
    EXPECT(end_of_turn(t, own) == 258 && begin_of_chat(t, own) == 256 && own.jinja == "{{ bos_token }}" + kTurns);
}

TEST(fields_of_turns) {
    const auto two = [](const std::string& field) {
        return R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b")" + field +
               R"(},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]})";
    };
    const std::string both = encoded(two(""), "chatml");
    const std::string last = turn("user\na") + turn("assistant\nb") + turn("user\nc") + kReply + "| 100 258 | 10 ";
    for (const std::string off : {"\"weight\":0", "\"weight\":0.0", "\"train\":false", "\"masked\":true",
                                  "\"masked\":1", "\"training\":false", "\"trainable\":0", "\"loss\":false"}) {
        const Row row(off);
        EXPECT_EQ(encoded(two("," + off), "chatml"), last);
        EXPECT(parse(two("," + off)).amended, "it is part of the data's hash");
    }
    for (const std::string on :
         {"\"weight\":1", "\"weight\":null", "\"train\":true", "\"masked\":false", "\"tool_calls\":[]",
          "\"tool_calls\":null", "\"reasoning_content\":\"\"", "\"id\":7", "\"thinking\":null"}) {
        const Row row(on);
        EXPECT_EQ(encoded(two("," + on), "chatml"), both);
        EXPECT(!parse(two("," + on)).amended && parse(two("," + on)).unknown.empty());
    }
    for (const std::string name : {"tool_calls", "function_call", "tools", "reasoning_content", "reasoning", "thinking",
                                   "images", "audio", "tool_call_id", "training_detail", "loss_mask", "prefix"})
        expect_error(kExitBadContent, "f: line 3: messages[1]: " + name + ": got \"x\", want none",
                     [&] { parse(two(",\"" + name + "\":\"x\"")); });
    for (const std::string wrong : {"0.5", "2", "\"no\"", "[]"})
        expect_error(kExitBadContent, "messages[1]: weight: got", [&] { parse(two(",\"weight\":" + wrong)); });
    for (const std::string name : {"colour", "Weight", "name", "trained", "weights", "label", "ignore"}) {
        const std::string odd = two(",\"" + name + "\":0");
        EXPECT_EQ(parse(odd).unknown, std::vector{name});
        EXPECT_EQ(encoded(odd, "chatml"), both);
    }
}

TEST(template_of_a_folder) {
    const Folder dir;
    const struct { const char *file, *content, *found; } rows[] = {
        {"tokenizer_config.json", "{}", ""},
        {"tokenizer_config.json",
         R"({"chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]})", "d"},
        {"tokenizer_config.json", R"({"chat_template":"c"})", "c"}, {"chat_template.jinja", "j", "j"}};
    EXPECT_EQ(chat_template_of(read_model_texts(dir.path)), "");
    for (const auto& [file, content, found] : rows) {
        dir.add(file, content);
        EXPECT_EQ(chat_template_of(read_model_texts(dir.path)), found);
    }
}

TEST(control_tokens_are_added_once) {
    const ChatTemplate form = choose_chat_template("llama3", {}, "");
    Tokenizer t = tokenizer_byte();
    add_chat_tokens(&t, form);
    const std::string json = t.to_json();
    EXPECT(t.vocab_size == 261 && t.bytes.size() == 261 && t.eot == 256, "%d tokens", t.vocab_size);
    t = tokenizer_parse(json, "tokenizer.json");
    EXPECT(t.vocab_size == 261 && t.eot == 256, "read back: %d tokens", t.vocab_size);
    add_chat_tokens(&t, form);
    EXPECT(t.vocab_size == 261 && t.to_json() == json, "they are there");
}

// Windows: one conversation each, filled up or cut; nothing of one is a target of another.
TEST(windows) {
    const Folder dir;
    std::string lines;
    for (int i = 19; i >= 0; i--)
        lines += R"({"prompt":")" + std::string(size_t(i), 'p') + R"(","completion":"cc"})" "\n";
    const std::string path = dir.add("chat.jsonl", lines);
    TextOptions o;
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
    EXPECT(has(data.train.description, "are longer than 12 tokens and cut"), "%s", data.train.description.c_str());
    const Refusals files = {{lines + kHi, "line 21: got the fields \"messages\""},
                            {lines.substr(0, lines.find('\n')), "one conversation"},
                            {lines + R"({"prompt":"a","completion":1})" "\n", "chat.jsonl: line 21: completion"}};
    expect_refusals(kExitBadContent, files, [&](const std::string& text) {
        dir.add("chat.jsonl", text);
        open_text(o);
    });
}

// Packed, each conversation is in one row as far as its last target, with the targets that it has in its own window.
TEST(packed_conversations) {
    const Folder dir;
    std::string lines;
    for (int i = 0; i < 40; i++)
        lines += R"({"messages":[{"role":"user","content":")" + std::string(size_t(i * 7 % 23), 'u') +
            R"("},{"role":"assistant","content":")" + std::string(size_t(i), char('A' + i % 26)) + R"("}]})" "\n";
    TextOptions o;
    o.data = dir.add("chat.jsonl", lines);
    o.seq_len = 48;
    const size_t T = 48;
    const auto conversations = [&](const Dataset& d) {
        std::multiset<std::string> all;
        for (uint64_t i = 0; i < d.samples; i++) {
            std::vector<int> x(T), y(T), begin(T);
            d.sample(i, x.data(), y.data(), 300, nullptr, begin.data());
            uint64_t trained = 0;
            for (size_t t = 0, next; t < T; t = next) {
                next = t + 1;
                while (next < T && d.rows && begin[next] == int(t)) next++;
                if (!d.rows) next = T;
                size_t end = next;
                while (end > t && y[end - 1] == -1) end--;
                trained += uint64_t(std::count_if(&y[t], &y[t] + (next - t), [](int k) { return k >= 0; }));
                if (end > t)
                    all.insert(shown(std::vector(x.begin() + ptrdiff_t(t), x.begin() + ptrdiff_t(end))) + ">" +
                               shown(std::vector(y.begin() + ptrdiff_t(t), y.begin() + ptrdiff_t(end))));
            }
            EXPECT_EQ(d.trained(i, 300), trained);
        }
        return all;
    };
    const Opened alone = open_text(o);
    for (const char* rows : {"auto", "documents"}) {
        o.rows = rows;
        const Opened packed = open_text(o);
        EXPECT(packed.train.rows && packed.val.rows, "%s", rows);
        EXPECT(packed.train.samples < alone.train.samples, "%d rows", int(packed.train.samples));
        EXPECT(conversations(packed.train) == conversations(alone.train), "training");
        EXPECT(conversations(packed.val) == conversations(alone.val), "validation");
        EXPECT(packed.train.hash != alone.train.hash && !has(packed.train.description, "windows") &&
               has(packed.train.description, "; packed rows, of which padding is "), "%s",
               packed.train.description.c_str());
    }
    o.seq_len = 4;
    expect_error(kExitBadContent, "got no training conversation with an answer within its first 4 tokens",
                 [&] { open_text(o); });
    // Pairs may have a text for validation, which has no documents: then nothing is packed unasked.
    o.data = dir.add("pairs.jsonl", R"({"prompt":"a","completion":"b"})" "\n");
    o.val_data = dir.add("val.txt", std::string(100, 'v'));
    o.rows = "auto";
    EXPECT(!open_text(o).train.rows, "packed");
}

TEST(conversations_that_a_template_refuses) {
    const Folder dir;
    const std::string system = R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},)"
                               R"({"role":"assistant","content":"b"}]})" "\n";
    TextOptions o;
    o.seq_len = 32;
    o.init_path = "folder/tokenizer.json";
    o.init.tokenizer = tokenizer_byte().to_json();
    o.init_vocab = 257;
    o.init.chat_template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
                           "{% endif %}{{ m.role + m.content + '<|endoftext|>' }}{% endfor %}"
                           "{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}";
    const std::string what = "folder: chat_template: got \"no system\"";
    const auto said = [&] { return open_text(o).train.description; };
    for (const int at : {1, 7, 18}) {
        std::string lines;                              // a bad one as line `at` of 20
        for (int i = 1; i <= 20; i++) lines += i == at ? system : kHi + "\n";
        o.data = dir.add("chat.jsonl", lines);
        const std::string where = format("chat.jsonl: line %d: ", at) + what;
        o.skip_bad_lines = 0;
        expect_error(kExitBadContent, where, said);
        o.skip_bad_lines = 1;
        const Opened data = open_text(o);
        EXPECT_EQ(data.train.samples + data.val.samples, 19);
        for (const std::string& part :
             {std::string("19 conversations"), replaced(where, "jsonl: ", "jsonl: 1 line is skipped, the first: ")})
            EXPECT(has(said(), part), "no %s: %s", part.c_str(), said().c_str());
    }
    dir.add("chat.jsonl", system + read_file(dir.path + "/chat.jsonl"));
    expect_error(kExitBadContent, "line 19: " + what + ", want turns that the template writes; --skip-bad-lines allows "
                 "no more", said);
    o.skip_bad_lines = 5;
    EXPECT(has(said(), "chat.jsonl: 2 lines are skipped, the first: line 1: "), "%s", said().c_str());
}

// Against transformers: tests/long/test_chat.sh.
TEST(as_transformers_has_it) {
    const char* const folder = getenv("LOCKSTEP_CHAT");
    if (!folder) SKIP("LOCKSTEP_CHAT is not set: tests/long/test_chat.sh does it");
    const std::string cases = read_file(path_join(folder, "cases.jsonl"));
    const ChatTemplate chat = choose_chat_template("auto", read_model_texts(folder), folder);
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
        const Row row(std::to_string(count));
        EXPECT_EQ(ids, line.get_string("ids", "case"));
        EXPECT_EQ(mask, line.get_string("answer", "case"));
        trained += size_t(std::ranges::count(mask, '1'));
    }
    EXPECT(count >= 200 && trained > 1000, "only %zu conversations with %zu tokens", count, trained);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
