// jinja.h -- reads the part of Jinja that most chat templates need, and renders conversations with it as transformers
// does: with trim_blocks and lstrip_blocks; `tools` and `documents` are none.
//
// What it does not know is kExitBadContent with its name and line: signs and statements when the template is read;
// macros, filters, tests and methods where a conversation reaches them, because much of a template is for tools.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// A character of a text is a code point, or kByte + a byte that is not UTF-8, and these bits: it came with the
// conversation, and in a turn of the assistant. Characters without them are the template's own.
constexpr char32_t kByte = 0x110000, kGiven = 1u << 31, kAnswer = 1u << 30;

std::u32string characters_of(std::string_view text, char32_t bits = 0);
std::string text_of(std::u32string_view characters);

struct JinjaTurn { std::u32string role, content; };
struct JinjaNode;

struct Jinja {
    // what: begins errors. variables: texts by name, such as bos_token.
    Jinja(std::string_view text, const std::string& what, const std::map<std::string, std::string>& variables);
    // Renders the first `count` turns. Its work is limited by the sizes of the template and of the turns.
    std::u32string render(const std::vector<JinjaTurn>& turns, size_t count, bool add_generation_prompt) const;
    const std::string what;
  private:
    std::map<std::string, std::string> variables;
    size_t size;                                // of the template
    std::shared_ptr<const JinjaNode> body;
};
