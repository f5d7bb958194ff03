// chat.h -- reads conversations from the lines of a .jsonl and makes tokens of them with a chat template.
//
//     {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]}
//     {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]}
//     {"instruction": "Add.", "input": "2, 3", "output": "5"}       instruction and input are the user's turn
//     {"prompt": "2+3=", "completion": "5"}                         no template; the tokens around a document
//
// Beside them a line may have "system", and Alpaca's also "history". The loss counts only the tokens of the assistant's
// turns and the token that ends such a turn, and of those no turn with "weight": 0, "train": false or "masked": true.
// What is null is not there.
#pragma once
#include <string>
#include <vector>
#include "src/base/json.h"
#include "tools/text/token_files.h"
#include "tools/text/jinja.h"
#include "tools/text/tokenizer.h"

struct Turn {
    std::string role, content;                              // role: system, user or assistant
    std::string left_out = {};                              // the field by which it is not trained on, or ""
};
struct Conversation {
    std::vector<Turn> turns;
    bool plain = false;                                     // a prompt and its completion
    bool amended = false;                                   // a field beside those of its form has changed it
    std::string place = {};                                 // file and line
    std::vector<std::string> unknown = {};                  // fields that mean nothing here
};
// Returns the field that decides a line's form: messages, conversations, prompt or instruction; "": none is there.
std::string conversation_key(const Json& line);
std::string describe_fields(const Json& line);              // for errors: the fields "id, title"
// Reads a conversation of any form. what: file and line, for errors. kExitBadContent names the field.
Conversation read_conversation(const Json& line, const char* what);

// How a model writes turns.
struct ChatTemplate {
    std::shared_ptr<const Jinja> form = {};                 // null: none
    std::string jinja = {};                                 // its text
    std::string key = {};                                   // what identifies the tokens that it gives
    std::string begin = {}, end = {};                       // names of bos_token and eos_token, if it has them
    std::vector<std::string> controls = {};                 // of chatml and llama3: tokens that a tokenizer must have
};
// Returns the Jinja template of a model: its chat_template.jinja, or else that in tokenizer_config.json; "": none.
std::string chat_template_of(const ModelTexts& texts);
// Returns the template that the option --chat-template means. "auto": the model's own, or ChatML if it has none.
// kExitBadContent, with the folder's name and the template's line: it has what is not read.
ChatTemplate choose_chat_template(const std::string& option, const ModelTexts& texts, const std::string& folder);
void add_chat_tokens(Tokenizer* tokenizer, const ChatTemplate& chat);       // appends the controls that it lacks
std::string missing_control_token(const Tokenizer& tokenizer, const ChatTemplate& chat);    // the first of them, or ""
int begin_of_chat(const Tokenizer& tokenizer, const ChatTemplate& chat);    // the token; -1: there is none
// Returns the token that ends a turn of the assistant; -1: a control token is missing. kExitBadContent: text ends it.
int end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat);

// Appends the tokens of a conversation. What the assistant has to write is trained on: from where the template, given
// the turns before and add_generation_prompt, leaves it to the assistant, up to the control token that ends its turn.
// The other tokens have the bit kUntrained, and with open_end, which adds the beginning of the next turn, all of them.
// Only what the template writes becomes control tokens. kExitBadContent: the template refuses the turns, or writes a
// turn otherwise than add_generation_prompt begins it, or ends it with no control token. Returns how many bytes more
// what is trained on has than its tokens' text.
int64_t encode_chat(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer,
                    std::vector<uint32_t>* tokens, bool open_end = false);
// Returns the tokens of a conversation, followed by the beginning of the assistant's next turn.
std::vector<int> chat_prompt(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer);
// Returns the tokens with which a sample begins: what the tokenizer puts before a text, unless that begins with a name
// (Tokenizer::names), and the prompt. Without a prompt it is bos or else eot; without either a line feed, or the first
// token if `char` has not learnt that. With a template the sample answers the prompt, or a greeting.
// kExitBadContent: `char` has not learnt a character of the prompt.
std::vector<int> sample_start(const std::string& prompt, const ChatTemplate& chat, const Tokenizer& tokenizer);
// Returns the text of all turns, for a tokenizer to learn from.
std::string text_of(const Conversation& conversation);
