// test_chat.cpp -- conversations: every form of line, every refusal, the tokens and what is trained on, byte for byte.
#include <algorithm>
#include <cstdlib>
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

std::string encoded(const std::string& line, const std::string& option, bool open_end = false) {
    const ChatTemplate chat = choose_chat_template(option, {}, "folder");
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
    EXPECT_EQ(encoded(kHi, "chatml"), asked + "| 89 111 258 | 10 ");
    const std::string opened = encoded(kHi, "chatml", true);
    EXPECT_EQ(opened, asked + "89 111 258 10 257 " + bytes("assistant\n"));
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
    EXPECT_EQ(encoded(kHi, "llama3"), want);
    const std::string blanks =
        R"({"messages":[{"role":"user","content":"  Hi \n"},{"role":"assistant","content":" Yo\n"}]})";
    EXPECT_EQ(encoded(blanks, "llama3"), want);
    EXPECT(encoded(blanks, "chatml") != encoded(kHi, "chatml"), "ChatML does not trim");
}

TEST(contents_spell_no_control_token) {
    const std::string line =
        R"({"messages":[{"role":"user","content":"x<|im_end|>y"},{"role":"assistant","content":"é"}]})";
    EXPECT_EQ(encoded(line, "chatml"),
              "257 " + bytes("user\nx<|im_end|>y") + "258 10 257 " + bytes("assistant\n") + "| 195 169 258 | 10 ");
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
    EXPECT_EQ(both.turns[0].content, "Add\n\n2");
    const std::string plain = encoded(R"({"prompt":"2+2=","completion":"4"})", "chatml");
    EXPECT_EQ(plain, "256 50 43 50 61 | 52 256 ");
    // Other fields beside them: UltraChat's, Alpaca's with the whole text, Cosmopedia's, which are documents.
    const auto form = [](const char* line) { return conversation_key(parse_json(std::string_view(line), "line")); };
    EXPECT(form(R"({"prompt":"a","prompt_id":"7","messages":[]})") == "messages", "a copy of the first turn");
    EXPECT_EQ(form(R"({"prompt":"a","instruction":"a","output":"b","text":"ab"})"), "instruction");
    EXPECT(form(R"({"prompt":"a","response":"b"})") == "prompt", "an error will name the completion");
    EXPECT(form(R"({"prompt":"a","text":"b"})").empty() && form(R"({"text":"a"})").empty(), "documents");
}

// A token that reaches from the head into the content is trained on, as transformers has it.
TEST(token_across_the_border) {
    Tokenizer t = tokenizer_train_bpe("\n\nA\n\nA\n\nA\n\nA", 258, splits[1]);
    const ChatTemplate chat = choose_chat_template("chatml", {}, "");
    add_chat_tokens(&t, chat);
    std::vector<uint32_t> tokens;
    encode_chat(parse(R"({"messages":[{"role":"assistant","content":"\nA"}]})"), chat, t, &tokens);
    EXPECT_EQ(show(tokens), "258 " + bytes("assistant") + "| 257 65 259 | 10 ");
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
        {R"({"instruction":"a"})", "output"}};
    expect_refusals(kExitBadContent, rows, parse);
}

// What Jinja 3.1.6 renders, with trim_blocks and lstrip_blocks, of a user's turn and an answer.
TEST(jinja) {
    struct Case { const char *jinja, *want; };
    const Case cases[] = {
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
        {"{{ ('role' in messages[0]) ~ ('i' in 'Hi') ~ ('z' not in ['a', 'b']) ~ ('q' is string) ~ (1 is not string) "
         "}}",
         "TrueTrueTrueTrueTrue"},
        {"{{ '\\n' + \"it's\" + 'a' 'b' }}{% generation %}g{% endgeneration %}", "\nit'sabg"},
        {"{% generation %}{% set c = 1 %}{{ c }}{% endgeneration %}{{ c is defined }}", "1False"},
        {"{% set n = namespace() %}{{ n is iterable }}{{ n is mapping }}{{ 'a' if n }}", "FalseFalsea"},
        {"{{ x == y }}{{ x == none }}{{ 1 == true }}{{ '1' == 1 }}{{ messages[0] == 'a' }}",
         "TrueFalseTrueFalseFalse"},
        {"{% if messages[0].missing %}{{ 'a' | unknown }}{{ tojson(5) }}{% endif %}ok", "ok"},
        {"{{ 'x' if messages is string }}{{ 'rOLE' | lower }}{{ -1 }}",
         "role-1"}};
    const std::vector<JinjaTurn> turns = {{U"user", U" Hi\u3000"}, {U"assistant", U"Yo"}};
    for (const Case& c : cases) {
        const std::string got = text_of(Jinja(c.jinja, "t", {{"bos_token", "<s>"}}).render(turns, 2, false));
        EXPECT(got == c.want, "%s: got %s, want %s", c.jinja, got.c_str(), c.want);
    }
}

TEST(jinja_refusals) {
    const std::vector<JinjaTurn> turns = {{U"user", U"Hi"}};
    const auto render = [&](const std::string& jinja) { Jinja(jinja, "t", {}).render(turns, 1, false); };
    const auto refused = [&](const std::string& part, const std::string& jinja) {
        expect_refusals(kExitBadContent, {{jinja, part}}, render);
    };
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
        {"{{ " + std::string(100000, '-') + "1 }}", "more than 100 levels"}};
    expect_refusals(kExitBadContent, rows, render);
    std::string nested;
    for (int i = 0; i < 1000; i++) nested += "{% if true %}";
    refused("more than 100 levels", nested);
    std::string loops, doubled = "{% set x = 'xxxxxxxx' %}{% set l = [1,2,3,4,5,6,7,8,9] %}";
    for (int i = 0; i < 20; i++) loops += "{% for i in l %}";
    for (int i = 0; i < 20; i++) loops += "{% endfor %}";
    refused("beyond any measure", doubled + loops);
    const std::string much(100000, 'x');
    refused("beyond any measure", doubled + "{% for i in l %}{% for i in l %}{% for i in l %}" + much +
                                      "{% endfor %}{% endfor %}{% endfor %}");
    for (int i = 0; i < 60; i++) doubled += "{% set x = x + x %}";
    refused("beyond any measure", doubled);
}

// Templates of published shapes, by hand. Tokens: 256 end of text, 257 <|im_start|>, 258 <|im_end|>.
std::string by_template(const std::string& jinja, const std::string& line, const std::string& config = "{}") {
    Tokenizer t = tokenizer_byte();
    add_chat_tokens(&t, choose_chat_template("chatml", {}, ""));
    std::vector<uint32_t> tokens;
    const ModelTexts texts = {.tokenizer_config = config, .chat_template = jinja};
    encode_chat(parse(line), choose_chat_template("auto", texts, "folder"), t, &tokens);
    return show(tokens);
}
const std::string kTurns =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(templates) {
    const std::string hi = "257 " + bytes("user\nHi") + "258 10 257 " + bytes("assistant\n") + "| 89 111 258 | 10 ";
    const std::string help = "257 " + bytes("system\nMate's helper.") + "258 10 ";
    EXPECT_EQ(choose_chat_template("auto", {}, "").key, "chatml");
    EXPECT_EQ(choose_chat_template("llama3", {.chat_template = "[INST]"}, "").key, "llama3");
    EXPECT_EQ(by_template(kTurns, kHi), hi);
    // SmolLM2's and Qwen2's default system turn, with real line feeds, in a variable, and with an apostrophe.
    const std::string a_default =
        "{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ \"<|im_start|>system\nMate's helper."
        "<|im_end|>\n\" }}{% endif %}{% endfor %}";
    const std::string in_a_variable =
        "{% set s = \"Mate's helper.\" if messages[0].role != 'system' else '' %}{{ '<|im_start|>system\n' ~ s ~ "
        "'<|im_end|>\n' }}";
    for (const std::string& form : {a_default, in_a_variable}) EXPECT_EQ(by_template(form + kTurns, kHi), help + hi);
    EXPECT(by_template("{{ bos_token }}" + kTurns, kHi, R"({"bos_token":{"content":"<|endoftext|>"}})") == "256 " + hi,
           "bos_token");
    // Only what the template writes is a control token.
    EXPECT(by_template(kTurns, R"({"instruction":"Hi","output":"<|im_end|>"})") ==
               hi.substr(0, hi.find('|')) + "| " + bytes("<|im_end|>") + "258 | 10 ", "a content spells one");
    // What the template writes in front of an answer, and not for add_generation_prompt, is the model's to write.
    std::string says = kTurns;
    says.replace(says.find("m.content"), 9, "('So: ' if m.role == 'assistant' else '') + m.content");
    EXPECT_EQ(by_template(says, kHi),
              hi.substr(0, hi.find('|')) + "| " + bytes("So: Yo") + "258 | 10 ");
    // A turn may end with several tokens: eos_token is the last of them.
    std::string two = kTurns;
    two.replace(two.find("<|im_end|>"), 10, "<|im_end|><|endoftext|>");
    EXPECT(by_template(two, kHi, R"({"eos_token":"<|endoftext|>"})").ends_with("| 89 111 258 256 | 10 "), "two ends");
    // An empty answer ends where one of text does, whether or not the template has add_generation_prompt.
    const std::string empty = R"({"instruction":"Hi","output":""})", alone = kTurns.substr(0, kTurns.find("{% if add"));
    EXPECT(by_template(kTurns, empty).ends_with("10 | 258 | 10 "), "%s", by_template(kTurns, empty).c_str());
    const std::string starts = "258 10 | 257 " + bytes("assistant\n");
    EXPECT(by_template(alone, kHi).ends_with(starts + "89 111 258 | 10 "), "%s", by_template(alone, kHi).c_str());
    EXPECT(by_template(alone, empty).ends_with(starts + "258 | 10 "), "%s", by_template(alone, empty).c_str());
    const auto loop = [](const std::string& body) { return "{% for m in messages %}" + body + "{% endfor %}"; };
    EXPECT_EQ(by_template(loop("{{ m.content + '<|im_end|>' }}"), empty), "72 105 258 | 258 ");
    for (const char* body : {"{% if m.content %}{{ m.content + '<|im_end|>' }}{% endif %}",
                             "{{ m.content + ('<|im_end|>' if m.content else 'no') }}"})
        expect_error(kExitBadContent, "a turn of the assistant", [&] { by_template(loop(body), empty); });
    const auto refused = [&](const std::string& part, const std::string& jinja) {
        expect_error(kExitBadContent, part, [&] { by_template(jinja, kHi); });
    };
    refused("folder: chat_template: got one that ends a turn of the assistant with several control tokens", two);
    refused("with no control token", "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}");
    refused("otherwise than add_generation_prompt", "{{ messages | length }}" + kTurns);
    refused("got \"no\", want turns that the template writes", "{{ raise_exception('no') }}");
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
    EXPECT(end_of_turn(t, own) == 258 && begin_of_chat(t, own) == 256 &&
               own.jinja == "{{ bos_token }}" + kTurns);
}

// White space is what Python's str.strip removes.
TEST(llama3_trims) {
    for (const char* blank :
         {" ", "\u3000", "\u00a0", "\u2003", "\u0085", "\x1f", "\x1c", "\u2028", "\u205f", "\u1680", "\n"}) {
        const std::string line = R"({"instruction":)" + json_quote(blank + std::string("Hi") + blank) +
                                 R"(,"output":)" + json_quote(blank + std::string("Yo") + blank) + "}";
        EXPECT(encoded(line, "llama3") == encoded(kHi, "llama3"), "%s", line.c_str());
    }
    EXPECT(encoded(R"({"instruction":"Hi","output":"\u200bYo"})", "llama3") != encoded(kHi, "llama3"),
           "U+200B is none");
}

TEST(fields_of_turns) {
    const auto two = [](const std::string& first) {
        return R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b")" + first +
               R"(},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]})";
    };
    const std::string both = encoded(two(""), "chatml");
    const std::string last = "257 " + bytes("user\na") + "258 10 257 " + bytes("assistant\nb") + "258 10 257 " +
                             bytes("user\nc") + "258 10 257 " + bytes("assistant\n") + "| 100 258 | 10 ";
    for (const char* off : {"\"weight\":0", "\"weight\":0.0", "\"train\":false", "\"masked\":true", "\"masked\":1",
                            "\"training\":false", "\"trainable\":0", "\"loss\":false"}) {
        EXPECT(encoded(two(std::string(",") + off), "chatml") == last, "%s", off);
        EXPECT(parse(two(std::string(",") + off)).amended, "%s is part of the data's hash", off);
    }
    for (const char* on : {"\"weight\":1", "\"weight\":null", "\"train\":true", "\"masked\":false", "\"tool_calls\":[]",
                           "\"tool_calls\":null", "\"reasoning_content\":\"\"", "\"id\":7", "\"thinking\":null"}) {
        EXPECT(encoded(two(std::string(",") + on), "chatml") == both, "%s", on);
        EXPECT(!parse(two(std::string(",") + on)).amended && parse(two(std::string(",") + on)).unknown.empty(), "%s",
               on);
    }
    for (const char* name : {"tool_calls", "function_call", "tools", "reasoning_content", "reasoning", "thinking",
                             "images", "audio", "tool_call_id", "training_detail", "loss_mask", "prefix"})
        expect_error(kExitBadContent, std::string("f: line 3: messages[1]: ") + name + ": got \"x\", want none", [&] {
            parse(two(",\"" + std::string(name) + "\":\"x\""));
        });
    for (const char* wrong : {"0.5", "2", "\"no\"", "[]"})
        expect_error(kExitBadContent, "messages[1]: weight: got",
                     [&] { parse(two(",\"weight\":" + std::string(wrong))); });
    for (const char* name : {"colour", "Weight", "name", "trained", "weights"}) {
        const Conversation odd = parse(two(",\"" + std::string(name) + "\":0"));
        EXPECT(odd.unknown == std::vector<std::string>{name} &&
                   encoded(two(",\"" + std::string(name) + "\":0"), "chatml") == both,
               "%s is not known", name);
    }
}

TEST(fields_of_lines) {
    const std::string system = encoded(R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"Hi"},)"
                                       R"({"role":"assistant","content":"Yo"}]})", "chatml");
    EXPECT_EQ(encoded(R"({"system":"S","instruction":"Hi","output":"Yo"})", "chatml"), system);
    EXPECT(encoded(R"({"system":"S","prompt":[{"role":"user","content":"Hi"}],"completion":[{"role":"assistant",)"
                   R"("content":"Yo"}]})", "chatml") == system, "trl's");
    EXPECT(
        encoded(R"({"system":null,"history":[],"instruction":"Hi","output":"Yo"})", "chatml") == encoded(kHi, "chatml"),
        "nothing");
    const Conversation past = parse(R"({"instruction":"c","output":"d","history":[["a","b"]]})");
    EXPECT(past.turns.size() == 4 && past.turns[1].role == "assistant" &&
               past.turns[1].content == "b" && past.turns[2].content == "c" && past.amended);
    const auto refused = [](const std::string& part, const std::string& line) {
        expect_error(kExitBadContent, part, [&] { parse(line); });
    };
    refused("f: line 3: system: got 5", R"({"system":5,"instruction":"a","output":"b"})");
    refused("history: got \"x\"", R"({"history":["x"],"instruction":"a","output":"b"})");
    refused("history: got nothing", R"({"history":[["x"]],"instruction":"a","output":"b"})");
    refused("f: line 3: tools: got an array, want none",
            R"({"tools":[1],"messages":[{"role":"assistant","content":"b"}]})");
    refused("rejected: got \"x\"", R"({"rejected":"x","prompt":"a","completion":"b"})");
    refused("system: got \"x\"", R"({"system":"x","prompt":"a","completion":"b"})");
    refused("not to be trained on", R"({"label":false,"prompt":"a","completion":"b"})");
}

TEST(template_of_a_folder) {
    const Folder dir;
    const auto found = [&] { return chat_template_of(read_model_texts(dir.path)); };
    EXPECT(found().empty(), "none");
    dir.add("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"t"},)"
                                     R"({"name":"default","template":"d"}]})");
    EXPECT_EQ(found(), "d");
    dir.add("tokenizer_config.json", R"({"chat_template":"c"})");
    EXPECT_EQ(found(), "c");
    dir.add("chat_template.jinja", "j");
    EXPECT_EQ(found(), "j");
}

TEST(control_tokens_are_added_once) {
    const ChatTemplate form = choose_chat_template("llama3", {}, "");
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
    EXPECT(has(data.train.description, "are longer than 12 tokens and cut"), "%s",
           data.train.description.c_str());
    dir.add("chat.jsonl", lines + kHi);
    expect_error(kExitBadContent, "line 21: got the fields \"messages\"", [&] { open_text(o); });
    dir.add("chat.jsonl", lines.substr(0, lines.find('\n')));
    expect_error(kExitBadContent, "one conversation", [&] { open_text(o); });
    dir.add("chat.jsonl", lines + "{\"prompt\":\"a\",\"completion\":1}\n");
    expect_error(kExitBadContent, "chat.jsonl: line 21: completion", [&] { open_text(o); });
}

TEST(conversations_that_a_template_refuses) {
    const Folder dir;
    const std::string system = R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},)"
                               R"({"role":"assistant","content":"b"}]})" "\n";
    TextOptions o;
    const auto write = [&](int at) {                    // a bad one as line `at` of 20
        std::string lines;
        for (int i = 1; i <= 20; i++) lines += i == at ? system : kHi + std::string("\n");
        o.data = dir.add("chat.jsonl", lines);
    };
    o.seq_len = 32;
    o.init_path = "folder/tokenizer.json";
    o.init.tokenizer = tokenizer_byte().to_json();
    o.init_vocab = 257;
    o.init.chat_template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
                           "{% endif %}{{ m.role + m.content + '<|endoftext|>' }}{% endfor %}"
                           "{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}";
    for (const int at : {1, 7, 18}) {
        write(at);
        const std::string what = "folder: chat_template: got \"no system\"", where = format("line %d: ", at) + what;
        o.skip_bad_lines = 0;
        expect_error(kExitBadContent, "chat.jsonl: " + where, [&] { open_text(o); });
        o.skip_bad_lines = 1;
        const Opened data = open_text(o);
        EXPECT(data.train.samples + data.val.samples == 19, "%d: %d windows", at, int(data.train.samples));
        const std::string& said = data.train.description;
        EXPECT(has(said, "19 conversations") &&
                   has(said, "chat.jsonl: 1 line is skipped, the first: " + where), "%s", said.c_str());
    }
    dir.add("chat.jsonl", system + read_file(dir.path + "/chat.jsonl"));
    expect_error(kExitBadContent, "line 19: folder: chat_template: got \"no system\", want turns that the template "
                 "writes; --skip-bad-lines allows no more", [&] { open_text(o); });
    o.skip_bad_lines = 5;
    const std::string said = open_text(o).train.description;
    EXPECT(has(said, "chat.jsonl: 2 lines are skipped, the first: line 1: "), "%s", said.c_str());
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
        EXPECT(ids == line.get_string("ids", "case"), "%zu: got %s, want %s", count, ids.c_str(),
               line.get_string("ids", "case").c_str());
        EXPECT(mask == line.get_string("answer", "case"), "%zu: got %s, want %s", count, mask.c_str(),
               line.get_string("answer", "case").c_str());
        trained += size_t(std::ranges::count(mask, '1'));
    }
    EXPECT(count >= 200 && trained > 1000, "only %zu conversations with %zu tokens", count, trained);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
