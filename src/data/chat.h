// chat.h -- conversations: their lines in a .jsonl, and their tokens by a chat template.
//
//     {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]}
//     {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]}
//     {"instruction": "Add.", "input": "2, 3", "output": "5"}       the user asks for both, the assistant answers
//     {"prompt": "2+3=", "completion": "5"}                         no template: end of text, prompt, completion, again
//
// Trained on are the tokens of what the assistant says, and the one that ends its turn.
#pragma once
#include <span>
#include <string>
#include <vector>
#include "src/base/json.h"
#include "src/data/tokenizer.h"

struct Turn { std::string role, content; };                 // system, user or assistant
struct Conversation {
    std::vector<Turn> turns;
    bool plain = false;                                     // a prompt and its completion
};
// Which of the forms above: messages, conversations, prompt or instruction; "": none. Other fields may stand beside.
std::string form_of_line(const Json& line);
std::string fields_of(const Json& line);                    // for messages: the fields "id, title"
// Error 65 names the field. what: file and line.
Conversation read_conversation(const Json& line, const char* what);

// How a family of models writes a turn: OPEN role HEAD content CLOSE tail, with control tokens in capitals, BEGIN in
// front of the first and gap between role and content.
struct ChatForm {
    const char *name, *begin, *open, *head, *gap, *close, *tail;
    bool trims;                                             // white space around a content
    const char* jinja;                                      // the same for Hugging Face and llama.cpp
};
struct ChatTemplate {
    const ChatForm* form = nullptr;                         // null: none
    std::string system;                                     // what stands in front where no system turn does, or empty
    std::string jinja;
};
// The template in a model's folder, Jinja: a file of its own, or in tokenizer_config.json; "": none.
std::string read_chat_template(const std::string& folder);
// --chat-template's value; auto: that of a model's folder, ChatML if there is none. Error 2; 65 for a template of
// another form.
ChatTemplate choose_chat_template(const std::string& option, const std::string& jinja, const std::string& folder);
// Appends the control tokens that the tokenizer lacks.
void add_chat_tokens(Tokenizer* tokenizer, const ChatForm& form);
int begin_of_chat(const Tokenizer& tokenizer, const ChatTemplate& chat);    // the token BEGIN; -1: there is none
int end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat);      // the token CLOSE; -1: there is none

// A token that is not trained on has this bit.
constexpr uint32_t kUntrained = 1u << 31;
// Appends a conversation. With an open end the assistant's next turn begins behind it.
void encode_chat(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer,
                 std::vector<uint32_t>* tokens, bool open_end = false);
// All that a tokenizer could learn from.
std::string text_of(const Conversation& conversation);
