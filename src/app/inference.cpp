// inference.cpp -- loads weights in the type that models compute with, and runs a model forward:
// losses of data and continued texts (app.h).
#include "src/app/app.h"
#include <algorithm>
#include "src/app/program.h"
#include "src/base/common.h"
#include "src/base/utf8.h"

namespace BACKEND {

void load_stored(floatX* weights, const Arena& arena, const Init& init) {
    if (sizeof(floatX) == sizeof(float))
        return load_init(reinterpret_cast<float*>(weights), arena, init);
    std::vector<float> masters(arena.n);
    load_init(masters.data(), arena, init);
    store_floats(weights, masters.data(), arena.n);
}

floatX* load_frozen_weights(Comm* comm, const Options& o, Init* init) {
    if (!o.freezes()) return nullptr;
    if (comm->rank == 0 && !init->first) *init = init_of_path(init->folder, nullptr, true);
    // These are this run's trained tensors, which load_init must not add.
    init->adapted = false;
    const Arena arena = arena_layout(find_model(o.model)->tensors(o.shape));
    const size_t bytes = arena.n * sizeof(floatX);
    floatX* const host = comm_shared<floatX>(comm, arena.n, "frozen weights");
    if (comm->rank == 0) load_stored(host, arena, *init);
    comm_hosts_broadcast(comm, host, bytes);
    comm_barrier(comm);
    if (!kOnGpu) return host;
    floatX* const weights = static_cast<floatX*>(device_alloc(bytes, "frozen weights"));
    copy_to_device(weights, host, bytes);
    stream_sync(nullptr);
    return weights;
}

void Score::add(const Score& more) {
    nats += more.nats;
    text_nats += more.text_nats;
    bytes += more.bytes;
    tokens += more.tokens;
    requests |= more.requests;
}

// Scores the windows [begin, end) of data.val.
static Score score_batch(Model* model, const Data& data, uint64_t begin, uint64_t end) {
    const uint64_t T = data.val.T, n = end - begin;
    Score sums;
    std::vector<int> tokens(n * T), targets(n * T), documents(n * T);
    std::vector<float> losses(n * T);
    std::vector<double> given(n * T);
    for (uint64_t b = 0; b < n; b++)
        data.val.sample(begin + b, &tokens[b * T], &targets[b * T], data.vocab_size,
                        &given[b * T], &documents[b * T]);
    sums.nats = model_loss(model, tokens.data(), targets.data(), n, T, losses.data(),
                           data.val.apart ? documents.data() : nullptr);
    for (size_t k = 0; k < n * T; k++) {
        const size_t bytes = data.vocabulary.text(targets[k]).size();
        sums.bytes += bytes * given[k];
        sums.tokens += targets[k] >= 0;
        if (bytes) sums.text_nats += losses[k];
    }
    return sums;
}

// In each round every rank scores one batch of a source: rank i % W scores batch i.
std::vector<Score> evaluate(Model* model, const Data& data, int B, int64_t batches, Comm* comm) {
    const uint64_t W = comm->size;
    const size_t sources = data.val.paths.size();
    std::vector<Score> scores(1);
    for (size_t k = 0; k < sources && !scores[0].requests; k++) {
        const uint64_t end = data.val.begins[k + 1], count = data.val.batches(k, B, batches);
        Score total;
        Countdown left{"val", count, "batches"};
        for (uint64_t first = 0; first < count && !total.requests; first += W) {
            left.at(first);
            const uint64_t i = first + comm->rank, begin = data.val.begins[k] + i * B;
            fault_point("eval", comm->rank, current_step());
            Score mine =
                i < count ? score_batch(model, data, begin, std::min(begin + B, end)) : Score();
            mine.requests = stop_requested();
            for (const Score& s : comm_gather(comm, mine)) total.add(s);
        }
        scores[0].add(total);
        if (sources > 1) scores.push_back(total);
    }
    return scores;
}

std::string continue_text(Model* model, const Vocabulary& v, const Options& o, uint32_t stream,
                          std::vector<int>* tokens, const Print& print,
                          const std::function<bool()>& stops) {
    std::string all;
    Utf8Stream utf8;
    const auto emit = [&](const std::string& piece) {
        all += piece;
        print(piece);
    };
    const SamplingParams params = {o.temperature, o.top_k, o.top_p, o.seed, stream, v.tokens};
    generate(model, tokens, o.max_tokens, params, [&](int token) {
        if (std::ranges::count(v.ends, token)) return false;
        emit(v.has_text() ? utf8.push(v.text(token)) : std::to_string(token) + " ");
        return !stops();
    });
    emit(utf8.finish());
    return all;
}

std::string generate_text(Model* model, const Vocabulary& v, const std::vector<int>& start,
                          const Options& o, uint32_t stream, const Print& print) {
    std::string all;
    for (int i = 0; i < o.samples && !stop_requested(); i++) {
        std::vector<int> tokens = start;
        if (tokens.empty()) tokens.push_back(model->shape.V - 1);
        const std::string between = (i > 0 ? "\n---\n" + o.prompt : "") + (v.chats ? "\n" : "");
        // Steps stay below 2^24 in practice.
        const uint32_t own = stream + (uint32_t(i) << 24);
        print(between);
        all += between + continue_text(model, v, o, own, &tokens, print, stop_requested);
    }
    return all;
}

}  // namespace BACKEND
