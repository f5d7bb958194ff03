// inference.cpp -- evaluation and generation. See inference.h.
#include "inference.h"
#include <algorithm>
#include <cstdio>
#include "checkpoint.h"
#include "common.h"
#include "file.h"
#include "json.h"
#include "run.h"
#include "stories.h"

namespace BACKEND {

// ---------------------------------------------------------------------------------------------------------- evaluation

// Batch i is rank i % W's.
Score evaluate(Gpt* model, const Data& data, const Dataset& set, int B, int64_t batches, Comm* comm) {
    struct Sums { double nats, text_nats; uint64_t bytes, tokens; };
    const int T = set.T, rank = comm->rank, W = comm->size;
    const uint64_t all = ceil_div<uint64_t>(set.samples, uint64_t(B)), count = batches > 0 ? std::min(uint64_t(batches), all) : all;
    const uint64_t rows = ceil_div<uint64_t>(count, uint64_t(W));
    std::vector<Sums> mine(rows), sums(rows * size_t(W));
    std::vector<int> tokens(size_t(B) * size_t(T)), targets(tokens.size());
    std::vector<float> losses(tokens.size());
    const double began = now_seconds();
    Score score;
    for (uint64_t row = 0, ask = 0; row < rows && !score.requests; row++) {
        const uint64_t i = row * uint64_t(W) + uint64_t(rank);
        const int n = i >= count ? 0 : int(std::min<uint64_t>(uint64_t(B), set.samples - i * uint64_t(B)));
        for (int b = 0; b < n; b++)
            set.sample(i * uint64_t(B) + uint64_t(b), &tokens[size_t(b) * size_t(T)], &targets[size_t(b) * size_t(T)], data.vocab_size);
        Sums& s = mine[row];
        if (n > 0) s.nats = gpt_loss(model, tokens.data(), targets.data(), n, T, losses.data(), nullptr);
        s.tokens = uint64_t(n) * uint64_t(T);
        for (size_t k = 0; k < s.tokens && data.tokenizer.kind != Tokenizer::none; k++) {
            const size_t bytes = data.tokenizer.bytes[size_t(targets[k])].size();
            s.bytes += bytes;
            if (bytes) s.text_nats += double(losses[k]);
        }
        comm_progress(comm, -1, "evaluation");
        if (row < ask) continue;
        struct Ask { uint64_t next, requests; } own = {row + 1 + uint64_t(double(row + 1) / std::max(now_seconds() - began, 1e-3)), stop_requested()};
        std::vector<Ask> all(static_cast<size_t>(W));
        comm_allgather(comm, all.data(), &own, sizeof own);
        for (const Ask& a : all) score.requests |= uint32_t(a.requests);
        ask = all[0].next;                              // a second later, by rank 0's clock
    }
    if (score.requests) return score;
    comm_allgather(comm, sums.data(), mine.data(), rows * sizeof(Sums));
    Sums total = {};
    for (uint64_t i = 0; i < count; i++) {
        const Sums& s = sums[size_t(i % uint64_t(W)) * rows + i / uint64_t(W)];
        total.nats += s.nats; total.text_nats += s.text_nats; total.bytes += s.bytes; total.tokens += s.tokens;
    }
    score.tokens = total.tokens;
    if (total.tokens) score.loss = total.nats / double(total.tokens);
    if (total.bytes) score.bpb = total.text_nats / std::log(2.0) / double(total.bytes);
    return score;
}

// ---------------------------------------------------------------------------------------------------------- generation

// Continues `text` (tokens, not empty) by up to max_tokens, or until `print`, which gets each token, returns false. When the context
// is full, the newer half of it is read again and generation goes on.
template <class Print>
static void generate(Gpt* model, std::vector<int>* text, int max_tokens, const Choosing& how, Print print) {
    GptCache cache;
    gpt_cache_create(&cache, model->config);
    std::vector<float> logits(size_t(model->config.V));
    const int maxT = model->config.maxT;
    size_t begin = text->size() > size_t(maxT) ? text->size() - size_t(maxT) : 0;       // first token of the context
    size_t cached = begin;
    for (int i = 0; i < max_tokens; i++) {
        if (text->size() - begin > size_t(maxT)) begin = cached = text->size() - size_t(std::max(1, maxT / 2));
        gpt_generate_step(model, &cache, text->data() + cached, int(cached - begin), int(text->size() - cached), logits.data(), nullptr);
        cached = text->size();
        text->push_back(choose_token(logits, how, text->size()));
        if (!print(text->back())) break;
    }
    gpt_cache_destroy(&cache);
}

Answers closing_questions(Gpt* model, const Tokenizer& tokenizer, uint64_t seed, int count, Comm* comm) {
    Answers result;
    for (int i = 0; i < count && !stop_requested(); i++) {
        comm_progress(comm, -1, "closing questions");
        const Story story = make_story(seed, uint64_t(i));
        std::vector<int> text = {tokenizer.eot};
        tokenizer.encode(std::string_view(story.text).substr(0, story.answer), &text);
        std::string answer;
        const std::string want = story.text.substr(story.answer);
        generate(model, &text, int(want.size()), {.temperature = 0}, [&](int token) {
            answer += tokenizer.bytes[size_t(token)];
            return answer.size() < want.size() && want.starts_with(answer);
        });
        result.right += answer == want;
        result.asked++;
        result.chance += 1.0 / story.answers / count;
    }
    return result;
}

std::vector<int> opening(const Tokenizer& tokenizer, const std::string& prompt, int vocab_size) {
    std::vector<int> tokens;
    if (tokenizer.eot >= 0) tokens.push_back(tokenizer.eot);
    if (tokenizer.kind != Tokenizer::none) tokenizer.encode(prompt.empty() && tokenizer.eot < 0 ? "\n" : prompt, &tokens);
    if (tokens.empty()) tokens.push_back(vocab_size - 1);
    return tokens;
}

std::string generate_text(Gpt* model, const Tokenizer& tokenizer, std::vector<int> tokens, int max_tokens, const Choosing& how,
                          const std::function<void(const std::string&)>& print) {
    std::string all;
    Utf8Stream utf8;
    const auto emit = [&](const std::string& piece) { all += piece; print(piece); };
    generate(model, &tokens, max_tokens, how, [&](int token) {
        if (token == tokenizer.eot) return false;
        emit(tokenizer.kind == Tokenizer::none ? std::to_string(token) + " " : utf8.push(tokenizer.bytes[size_t(token)]));
        return !stop_requested();
    });
    emit(utf8.finish());
    return all;
}

// --------------------------------------------------------------------------------------------------------- sample and eval

namespace {
// A model to run forward only, from a run, a checkpoint or a Hugging Face folder.
struct Loaded {
    std::string folder, tokenizer_json;             // the latter empty: it has none
    Gpt model;
    Tokenizer tokenizer;
    floatX* weights;

    Loaded(const std::string& path, int B) : folder(resolve_model_folder(path)), tokenizer_json(path_join(folder, "tokenizer.json")) {
        const HfConfig hf = read_hf_config(folder);
        check_channels(hf.channels);
        const GptConfig config = {hf.layers, hf.heads, hf.channels, hf.seq_len, hf.vocab_size, round_up(hf.vocab_size, 16), 0};
        const Arena arena = arena_layout(gpt_tensors(config));
        std::vector<float> master(arena.n);
        read_safetensors(open_safetensors(path_join(folder, "model.safetensors")), arena, "", master.data());
        weights = static_cast<floatX*>(device_alloc(arena.n * sizeof(floatX), "weights"));
        std::vector<floatX> stored(arena.n);
        store_floats(stored.data(), master.data(), arena.n);
        copy_to_device(weights, stored.data(), arena.n * sizeof(floatX), nullptr);
        stream_sync(nullptr);
        gpt_create(&model, config, B, hf.seq_len, 3, weights, false);
        if (!file_exists(tokenizer_json)) tokenizer_json.clear();
        else tokenizer = tokenizer_load(tokenizer_json);
    }
    ~Loaded() {
        gpt_destroy(&model);
        device_free(weights);
    }
};
}  // namespace

int sample(Options o, Comm*) {
    set_threads(o.threads);
    Loaded loaded(o.paths[0], 1);
    if (loaded.tokenizer.kind == Tokenizer::none && !o.prompt.empty())
        die(kExitUsage, "--prompt: %s has no tokenizer.json, so text means nothing to it; leave the prompt out to see token numbers", loaded.folder.c_str());
    catch_signals(false);
    const auto print = [](const std::string& piece) { std::fputs(piece.c_str(), stdout); std::fflush(stdout); };
    const std::vector<int> tokens = opening(loaded.tokenizer, o.prompt, loaded.model.config.V);
    print(o.prompt);
    const Choosing how = {.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p, .seed = o.seed, .stream = 0};
    generate_text(&loaded.model, loaded.tokenizer, tokens, o.max_tokens, how, print);
    print("\n");
    return kExitDone;
}

int eval(Options o, Comm* comm) {
    set_threads(o.threads);
    const int B = o.batch_size > 0 ? o.batch_size : kOnGpu ? 8 : 1;
    Loaded loaded(o.paths[0], B);
    const int T = loaded.model.config.maxT;
    Data data;
    data.tokenizer = loaded.tokenizer;
    data.vocab_size = loaded.model.config.V;
    if (o.is_given("data")) {
        if (o.is_given("tokenizer")) data.tokenizer = tokenizer_open(o.tokenizer, nullptr);
        if (o.is_given("tokenizer") && data.tokenizer.vocab_size != data.vocab_size)
            die(kExitUsage, "--tokenizer: got %s of %d tokens, want %d as the model has; give the --tokenizer it was trained with",
                data.tokenizer.name.c_str(), data.tokenizer.vocab_size, data.vocab_size);
        data.val = open_dataset(o.data, data.tokenizer, T, comm);
    } else {
        const std::string run = run_of(o.paths[0]), config = path_join(run, "config.json");
        if (run.empty() || !file_exists(config)) die(kExitUsage, "eval %s: not a run folder, so it has no validation part; give --data PATH", o.paths[0].c_str());
        options_merge_saved(&o, read_file(config), config);
        resolve_options(&o, kOnGpu);
        data = open_data(o, comm, loaded.tokenizer_json, data.vocab_size);
        const std::string where = path_join(loaded.folder, "state.json"), state = file_exists(where) ? read_file(where) : "{\"val_hash\":\"\"}";
        if (const std::string hash = parse_json(state, where.c_str()).get_string("val_hash", where.c_str()); !hash.empty() && hash != data.val.hash)
            warn("the validation data have changed: this loss does not compare with the run's own");
    }
    const Score score = evaluate(&loaded.model, data, data.val, B, 0, comm);
    const std::string bpb = std::isnan(score.bpb) ? "null" : format("%.6f", score.bpb);
    std::printf("val loss %.6f  bpb %s  tokens %llu\n", score.loss, bpb.c_str(), (unsigned long long)score.tokens);
    return kExitDone;
}

}  // namespace BACKEND
