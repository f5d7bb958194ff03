// commands.cpp -- the commands sample, chat and eval: main calls Backend::command. They return exit codes.
#include <algorithm>
#include <csignal>
#include <unistd.h>
#include "src/app/inference.h"
#include "src/app/run.h"
#include "src/app/tasks.h"
#include "src/app/weights.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/same_math.h"
#include "src/ddp/transport.h"
#include "src/text/model_texts.h"
#include "src/text/questions.h"
#include "src/text/text.h"

namespace BACKEND {

int command(Options options, Comm* comm);

namespace {
// A model to run forward only, from a run, a checkpoint or a Hugging Face folder.
struct Loaded {
    Init init;
    Model model = {};
    Tokenizer tokenizer;
    floatX* weights;

    // T: the longest sequence that the model will get; the model's own limit holds, too.
    Loaded(const std::string& path, int B, size_t T) {
        if (path.empty()) die(kExitNoInput, "no model: got no folder, want a run or a checkpoint");
        init = init_of_path(path);
        if (!init.tokenizer.empty())
            tokenizer = tokenizer_parse(init.tokenizer, path_join(init.saved(), "tokenizer.json"));
        if (tokenizer.vocab_size > init.config.shape.V)
            die_content(path_join(init.saved(), "tokenizer.json"), std::to_string(tokenizer.vocab_size) + " tokens",
                        "at most " + std::to_string(init.config.shape.V) + ", the model's");
        if (init.config.no_eot) tokenizer.eot = -1;
        Shape shape = init.config.shape;
        shape.T = int(std::min(size_t(shape.T), T));
        shape.dropout = 0;
        const Arena arena = arena_layout(init.config.info->tensors(shape));
        weights = static_cast<floatX*>(device_alloc(arena.n * sizeof(floatX), "weights"));
        load_device_weights(weights, arena, init);
        model_create(&model, init.config.info, shape, B, shape.T, 3, weights, false);
    }
    ~Loaded() {
        model_destroy(&model);
        device_free(weights);
    }
};
}  // namespace

static void print(const std::string& piece) {
    std::fputs(piece.c_str(), stdout);
    std::fflush(stdout);
}

static std::string read_standard_input() {
    std::string text;
    for (int c; (c = std::getchar()) != EOF;) text += char(c);
    if (text.ends_with("\n")) text.pop_back();
    return text;
}

static int sample(Options o) {
    set_threads(o.threads);
    if (o.prompt == "-") o.prompt = read_standard_input();
    Loaded loaded(o.paths[0], 1, o.prompt.size() + size_t(o.max_tokens) + 2);       // a token has at least a byte
    if (loaded.tokenizer.kind == Tokenizer::none && !o.prompt.empty())
        die(kExitUsage, "--prompt: %s has no tokenizer.json; leave the prompt out to see token numbers",
            loaded.init.folder.c_str());
    catch_signals(false);
    print(o.prompt);
    const std::vector<int> start = sample_start(o.prompt, {}, loaded.tokenizer);
    generate_text(&loaded.model, vocabulary_of(loaded.tokenizer, {}), start, o, 0, print);
    print("\n");
    return kExitDone;
}

// ---- chat

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

// Removes the oldest turns, but not the system's, until history and an answer fit. Returns the tokens of history.
static std::vector<int> tokens_that_fit(Conversation* history, const ChatTemplate& chat, const Tokenizer& tokenizer,
                                        int T, int max_tokens) {
    const size_t room = size_t(T - std::min(max_tokens, T / 2));
    const bool system = history->turns[0].role == "system";
    std::vector<int> tokens = chat_prompt(*history, chat, tokenizer);
    while (tokens.size() > room && history->turns.size() > size_t(system) + 1) {
        history->turns.erase(history->turns.begin() + system);
        tokens = chat_prompt(*history, chat, tokenizer);
    }
    return tokens;
}

static int chat(Options o) {
    set_threads(o.threads);
    Loaded loaded(o.paths[0], 1, SIZE_MAX);
    const Tokenizer& tokenizer = loaded.tokenizer;
    const Init& init = loaded.init;
    const std::string jinja = chat_template_of(init.chat_template, init.tokenizer_config, "tokenizer_config.json");
    const ChatTemplate chat = choose_chat_template(o.chat_template, jinja, init.saved());
    if (const std::string token = missing_control_token(tokenizer, chat); !token.empty())
        die(kExitUsage, "chat: %s: its tokenizer has no %s; train it on conversations, or use sample",
            o.paths[0].c_str(), token.c_str());
    struct sigaction action = {};
    action.sa_handler = [](int) { interrupted = 1; };
    sigaction(SIGINT, &action, nullptr);                // without SA_RESTART, so that it also ends a read
    if (!o.is_given("max-tokens")) o.max_tokens = loaded.model.T;
    if (isatty(STDIN_FILENO)) print("Ctrl-C stops an answer, Ctrl-D ends.\n");
    const Vocabulary vocabulary = vocabulary_of(tokenizer, chat);
    Conversation history;
    if (!o.system.empty()) history.turns.push_back({"system", o.system});
    std::string line;
    for (uint32_t answer = 0; read_line(&line); answer++) {
        if (line.empty()) continue;
        interrupted = 0;
        history.turns.push_back({"user", line});
        std::vector<int> tokens = tokens_that_fit(&history, chat, tokenizer, loaded.model.T, o.max_tokens);
        const std::string text = continue_text(&loaded.model, vocabulary, o, answer, &tokens, print,
                                               [] { return interrupted != 0; });
        print("\n");
        history.turns.push_back({"assistant", text});
    }
    return kExitDone;
}

static void refuse_conversations(const Options& o) {
    if (o.perplexity && !o.data.empty() && find_texts(o.data).is_masked())
        die(kExitUsage, "--perplexity: %s: got conversations, want text", o.data.c_str());
}

// Opens what eval scores: --data, or without it the validation part of the run.
static Data data_to_score(Options o, const Loaded& loaded, int T, Comm* comm) {
    o.task = o.prompt = "";                 // they are not part of the data here
    if (o.is_given("data")) {
        refuse_conversations(o);
        o.shape = {};
        o.shape.T = T;
        DataOptions whole = data_options(o, loaded.init);
        whole.whole = true;
        return open_data(whole, comm);
    }
    if (!merge_options_of(o.paths[0], &o))
        die(kExitUsage, "eval %s: not a run folder, so it has no validation part; give --data", o.paths[0].c_str());
    refuse_conversations(o);
    resolve_options(&o, kOnGpu);
    o.shape.T = T;
    Data data = open_data(data_options(o, loaded.init), comm);
    const std::string where = path_join(loaded.init.saved(), "state.json");
    const std::string state = file_exists(where) ? read_file(where) : "";
    if (!state.empty() && parse_json(state, where.c_str(), true).get_string("val_hash", where.c_str()) != data.val.hash)
        warn("the validation data have changed: this loss does not compare with the run's own");
    return data;
}

// Scores each token but a shard's first once, in windows of T tokens that begin `given` apart (0: T / 2). From the
// second window on a scored token sees at least T - stride tokens.
static Score score_windows(Model* model, const Data& data, int given, int B, Comm* comm) {
    const uint64_t T = uint64_t(model->T), stride = given > 0 ? uint64_t(given) : std::max<uint64_t>(T / 2, 1);
    if (stride >= T) die(kExitUsage, "--stride: got %d, want less than the context of %d tokens", given, model->T);
    std::vector<Task::Row> rows;
    Score score;
    for (const Shard& shard : data.val.shards)
        for (uint64_t begin = 0, end, done = 1; done < shard.tokens; begin += stride, done = end) {
            end = std::min(begin + T, shard.tokens);
            rows.push_back({std::vector<int>(end - begin), int(end - done)});
            std::vector<int>& tokens = rows.back().tokens;
            shard.read(begin, end - begin, tokens.data(), data.vocab_size);
            score.tokens += end - done;
            for (uint64_t k = done; k < end && data.vocabulary.has_text(); k++)
                score.bytes += data.vocabulary.text(tokens[k - begin]).size();
        }
    for (const double p : score_rows(model, rows, B, comm, &score.requests)) score.nats -= p;
    score.text_nats = score.bytes ? score.nats : 0;
    return score;
}

static int eval(Options o, Comm* comm) {
    set_threads(rank_threads(comm, o.threads));
    transport_place(comm);
    const auto say = [&](const std::string& line) {
        if (comm->rank == 0) std::printf("%s\n", line.c_str());
    };
    const int B = o.batch_size > 0 ? o.batch_size : kOnGpu ? 8 : 1;
    Loaded loaded(o.paths[0], B, o.is_given("seq-len") ? size_t(o.shape.T) : SIZE_MAX);
    Model* const model = &loaded.model;
    o.perplexity |= o.stride > 0;
    if (!o.task.empty()) say(score_task(model, read_questions(o.task, loaded.tokenizer, model->T), B, comm).text());
    if (!o.task.empty() && !o.is_given("data") && !o.perplexity) return kExitDone;
    const Data data = data_to_score(o, loaded, o.perplexity ? 1 : model->T, comm);
    const Score score = o.perplexity ? score_windows(model, data, o.stride, B, comm) :
        evaluate(model, data, B, 0, comm);
    const std::string bpb = std::isnan(score.bpb()) ? "null" : format("%.6f", score.bpb());
    if (o.perplexity) say(format("perplexity %.6f  nats per token %.6f", same_exp(score.loss()), score.loss()) +
                          format("  bits per byte %s  tokens %llu", bpb.c_str(), (unsigned long long)score.tokens));
    else say(format("val loss %.6f  bpb %s  tokens %llu", score.loss(), bpb.c_str(), (unsigned long long)score.tokens));
    return kExitDone;
}

int command(Options o, Comm* comm) {
    if (o.command == "sample") return sample(o);
    return o.command == "chat" ? chat(o) : eval(o, comm);
}

}  // namespace BACKEND
