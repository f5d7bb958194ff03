// chat.cpp -- the command chat: a conversation on standard input and output.
#include <algorithm>
#include <csignal>
#include <unistd.h>
#include "tools/lm/lm.h"

namespace BACKEND {

// Ctrl-C was pressed. It stops an answer; while the user types it ends the program.
static volatile sig_atomic_t interrupted;

// Asks for a line. Returns false at the end of the input or at Ctrl-C.
static bool read_line(std::string* line) {
    line->clear();
    if (isatty(STDIN_FILENO)) std::fputs("> ", stdout);
    std::fflush(stdout);
    int c;
    while ((c = std::getchar()) != EOF && c != '\n') *line += char(c);
    if (c == EOF && isatty(STDIN_FILENO)) std::puts("");
    return c != EOF || !line->empty();
}

// Removes the oldest questions and their answers, but not the system's turn, until history and an answer fit. Returns
// the tokens of history.
static std::vector<int> tokens_that_fit(Conversation* history, const ChatTemplate& chat, const Tokenizer& tokenizer,
                                        int T, int max_tokens) {
    const size_t room = size_t(T - std::min(max_tokens, T / 2));
    const bool system = history->turns[0].role == "system";
    std::vector<int> tokens = chat_prompt(*history, chat, tokenizer);
    while (tokens.size() > room && history->turns.size() > size_t(system) + 2) {
        history->turns.erase(history->turns.begin() + system, history->turns.begin() + system + 2);
        tokens = chat_prompt(*history, chat, tokenizer);
    }
    if (tokens.size() > size_t(T))
        warn("chat: got %zu tokens, and the context is %d: the beginning is cut off", tokens.size(), T);
    return tokens;
}

int chat(Options o, Comm*) {
    set_threads(o.threads);
    Loaded loaded(o, 1, SIZE_MAX);
    loaded.require_text("chat");
    const Tokenizer& tokenizer = loaded.tokenizer;
    const Init& init = loaded.init;
    const ChatTemplate chat = choose_chat_template(o.chat_template, init.texts, init.saved);
    if (const std::string token = missing_control_token(tokenizer, chat); !token.empty())
        die(kExitUsage, "chat: %s: its tokenizer has no %s; train it on conversations, or use sample",
            o.paths[0].c_str(), token.c_str());
    struct sigaction action = {};
    action.sa_handler = [](int) { interrupted = 1; };
    sigaction(SIGINT, &action, nullptr);                // without SA_RESTART, so that it also ends a read
    if (!o.is_given("max-tokens")) o.max_tokens = loaded.model.T;
    if (isatty(STDIN_FILENO)) print("Ctrl-C stops an answer, Ctrl-D ends.\n");
    const Vocabulary vocabulary = vocabulary_of(tokenizer, chat, init.config.text);
    Conversation history;
    if (!o.system.empty()) history.turns.push_back({"system", o.system});
    std::string line;
    for (uint32_t answer = 0; read_line(&line); answer++) {
        if (line.empty()) continue;
        interrupted = 0;
        Spelled spelled;
        tokenizer.find_names(line, &spelled);
        spelled.warn("chat", true);
        history.turns.push_back({"user", line});
        std::vector<int> tokens = tokens_that_fit(&history, chat, tokenizer, loaded.model.T, o.max_tokens);
        const std::string text = continue_text(&loaded.model, vocabulary, o, answer, &tokens, print,
                                               [] { return interrupted != 0; });
        print("\n");
        history.turns.push_back({"assistant", text});
    }
    return kExitDone;
}

}  // namespace BACKEND
