// eval.cpp -- the command eval: scores a text, the run's validation data or a task's questions, on any number of ranks.
#include <algorithm>
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/numbers.h"
#include "src/ddp/ddp.h"
#include "tools/lm/commands.h"
#include "tools/lm/lm.h"
#include "src/run/run.h"
#include "tools/text/text.h"

namespace BACKEND {

static void refuse_conversations(const Options& o) {
    if (!o.perplexity || o.data.empty()) return;
    for (const auto& [path, weight] : find_mixture(o.data))
        if (find_texts(path).is_masked())
            die(kExitUsage, "--perplexity: %s: got conversations, want text", path.c_str());
}

// Opens what eval scores: --data, or without it the validation part of the run.
static Data data_to_score(Options o, const Loaded& loaded, int T, Comm* comm) {
    o.prompt = "";                          // it is not part of the data here
    const ModelInfo& model = *loaded.init.config.info;
    if (o.is_given("data")) {
        if (o.rows == "auto" && !model.documents) o.rows = "join";
        if (o.rows != "join" && !model.documents)
            refuse_option("--rows", o.rows, format("join with --model %s", model.name));
        refuse_conversations(o);
        o.shape = {};
        o.shape.T = T;
        DataOptions whole = data_options(o, loaded.init);
        whole.prep.push_back("--whole");
        return open_data(whole, comm);
    }
    if (!merge_options_of(o.paths[0], &o))
        die(kExitUsage, "eval %s: not a run folder, so it has no validation part; give --data", o.paths[0].c_str());
    refuse_conversations(o);
    resolve_options(&o, kOnGpu);
    o.shape.T = T;
    Data data = open_data(data_options(o, loaded.init), comm);
    const std::string where = path_join(loaded.init.saved, "state.json");
    const std::string state = file_exists(where) ? read_file(where) : "";
    if (!state.empty() && parse_json(state, where.c_str(), true).get_string("val_hash", where.c_str()) != data.val.hash)
        warn("the validation data have changed: this loss does not compare with the run's own");
    return data;
}

// Makes windows of T tokens that begin `given` apart (0: T / 2), which score each token but a shard's first once. From
// the second window on a scored token sees at least T - stride tokens.
static void slide(Dataset* d, int T, int given) {
    const int stride = given > 0 ? given : std::max(T / 2, 1);
    if (stride >= T) die(kExitUsage, "--stride: got %d, want less than the context of %d tokens", given, T);
    d->T = T - 1;
    d->overlap = d->T - stride;
    d->first = {0};
    for (const Shard& s : d->shards)
        d->first.push_back(d->first.back() + 1 + ceil_div(std::max(s.tokens, uint64_t(T)) - T, uint64_t(stride)));
    d->samples = d->first.back();
    d->paths = {""};                        // the score of all alone
    d->begins = {0, d->samples};
}

// Returns what eval does not score of texts: it scores windows of T tokens, as training does.
static std::string left_out(const Data& data, int T) {
    uint64_t all = 0;
    for (const Shard& shard : data.val.shards) all += shard.masked ? 0 : shard.tokens - 1;
    const uint64_t scored = data.val.samples * uint64_t(T);
    if (all <= scored) return "";
    return format("; %s of %s tokens are no whole window of %d and not scored, --perplexity scores all",
                  with_commas(all - scored).c_str(), with_commas(all).c_str(), T);
}

int eval(Options o, Comm* comm) {
    set_threads(rank_threads(comm, o.threads));
    transport_place(comm);
    const auto say = [&](const std::string& line) {
        if (comm->rank == 0) std::printf("%s\n", line.c_str());
    };
    const int B = o.batch_size > 0 ? o.batch_size : kOnGpu ? 8 : 1;
    Loaded loaded(o, B, o.is_given("seq-len") ? size_t(o.shape.T) : SIZE_MAX, comm);
    Model* const model = &loaded.model;
    o.perplexity |= o.stride > 0;
    if (o.perplexity) {
        if (o.is_given("rows") && o.rows != "join") refuse_option("--rows", o.rows, "join with --perplexity");
        o.rows = "join";
        o.given.push_back("rows");
    }
    if (!o.task.empty()) say(score_task(model, read_questions(o.task, loaded.tokenizer, model->T), B, comm).text());
    if (!o.task.empty() && !o.is_given("data") && !o.perplexity) return kExitDone;
    Data data = data_to_score(o, loaded, o.perplexity ? 1 : model->T, comm);
    const std::string rest = o.perplexity ? "" : left_out(data, model->T);
    if (comm->rank == 0) std::fprintf(stderr, "data    %s%s\n", data.train.description.c_str(), rest.c_str());
    if (o.perplexity) slide(&data.val, model->T, o.stride);
    const std::vector<Score> scores = evaluate(model, data, B, 0, comm);
    for (size_t k = 0; k < scores.size(); k++) {
        const double loss = scores[k].loss(), bits = scores[k].bpb();
        const std::string of = k ? data.val.paths[k - 1] + ": " : "";
        const std::string bpb = std::isnan(bits) ? "null" : format("%.6f", bits);
        const auto tokens = (unsigned long long)scores[k].tokens;
        if (o.perplexity) say(of + format("perplexity %.6f  nats per token %.6f", same_exp(loss), loss) +
                              format("  bits per byte %s  tokens %llu", bpb.c_str(), tokens));
        else say(of + format("val loss %.6f  bpb %s  tokens %llu", loss, bpb.c_str(), tokens));
    }
    return kExitDone;
}

}  // namespace BACKEND
