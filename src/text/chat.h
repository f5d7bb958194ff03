// chat.h -- reads conversations from the lines of a .jsonl and makes tokens of them with a chat template.
//
//     {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]}
//     {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]}
//     {"instruction": "Add.", "input": "2, 3", "output": "5"}       instruction and input are the user's turn
//     {"prompt": "2+3=", "completion": "5"}                         no template; the tokens around a document
//
// The loss counts only the tokens of the assistant's turns and the token that ends such a turn.
#pragma once
#include <string>
#include <vector>
#include "src/base/json.h"
#include "src/data/shards.h"
#include "src/text/tokenizer.h"

struct Turn { std::string role, content; };                 // role: system, user or assistant
struct Conversation {
    std::vector<Turn> turns;
    bool plain = false;                                     // a prompt and its completion
};
// Returns the field that decides a line's form: messages, conversations, prompt or instruction; "": none is there.
std::string conversation_key(const Json& line);
std::string describe_fields(const Json& line);              // for errors: the fields "id, title"
// Reads a conversation of any form. what: file and line, for errors. kExitBadContent names the field.
Conversation read_conversation(const Json& line, const char* what);

// How a family of models writes a turn: OPEN role HEAD gap content CLOSE tail. The names in capitals are control
// tokens, the others text. The control token BEGIN comes once, before the first turn.
struct ChatForm {
    const char *name, *begin, *open, *head, *gap, *close, *tail;
    bool trims;                                             // white space around a content is removed
    const char* jinja;                                      // the same as a Jinja template, for other programs
};
struct ChatTemplate {
    const ChatForm* form = nullptr;                         // null: none
    std::string system;                                     // the system turn for conversations without one, or empty
    std::string jinja;
};
// Returns the Jinja template of a model: the text of its chat_template.jinja, or else what its tokenizer_config.json
// contains; "": none. Both may be empty. what: names tokenizer_config.json in errors.
std::string chat_template_of(const std::string& jinja, const std::string& tokenizer_config, const char* what);
std::string read_chat_template(const std::string& folder);                  // of a model's folder
// Returns the template that the option --chat-template means. "auto": the model's own, `jinja`, or ChatML if that is
// empty. kExitBadContent, with the folder's name: `jinja` has none of the known forms.
ChatTemplate choose_chat_template(const std::string& option, const std::string& jinja, const std::string& folder);
// Appends the control tokens that the tokenizer lacks.
void add_chat_tokens(Tokenizer* tokenizer, const ChatForm& form);
int begin_of_chat(const Tokenizer& tokenizer, const ChatTemplate& chat);    // the token BEGIN; -1: there is none
// Returns the first of the template's control tokens that the tokenizer lacks; "": it has all.
std::string missing_control_token(const Tokenizer& tokenizer, const ChatTemplate& chat);
int end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat);      // the token CLOSE; -1: there is none

// Appends the tokens of a conversation, and with open_end the beginning of the assistant's next turn. Tokens that are
// not trained on have the bit kUntrained.
void encode_chat(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer,
                 std::vector<uint32_t>* tokens, bool open_end = false);
// Returns the tokens of a conversation, followed by the beginning of the assistant's next turn.
std::vector<int> chat_prompt(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer);
// Returns the tokens with which a sample begins: what the tokenizer puts before a text, and the prompt. Without a
// prompt it is bos or else eot; without either a line feed, or the first token if `char` has not learnt that. With a
// template the sample answers the prompt, or a greeting.
// kExitBadContent: `char` has not learnt a character of the prompt.
std::vector<int> sample_start(const std::string& prompt, const ChatTemplate& chat, const Tokenizer& tokenizer);
// Returns the text of all turns, for a tokenizer to learn from.
std::string text_of(const Conversation& conversation);
