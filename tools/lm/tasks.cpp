// tasks.cpp -- scores multiple-choice questions, whose tokens tools/text/questions.h makes (lm.h).
#include "tools/lm/lm.h"
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include "src/base/common.h"

namespace BACKEND {

// Scores the rows whose numbers are in `order` as one batch. Shorter rows are padded at the end, after all that counts.
static void score_batch(Model* model, const std::vector<Task::Row>& rows, std::span<const size_t> order,
                        double* scores) {
    size_t longest = 0;
    for (const size_t i : order) longest = std::max(longest, rows[i].tokens.size() - 1);
    const size_t T = std::min(round_up<size_t>(longest, 8), size_t(model->T)), B = order.size();
    std::vector<int> tokens(B * T), targets(B * T);
    std::vector<float> losses(B * T);
    for (size_t b = 0; b < B; b++) {
        const std::vector<int>& row = rows[order[b]].tokens;
        std::copy(row.begin(), row.end() - 1, &tokens[b * T]);
        std::copy(row.begin() + 1, row.end(), &targets[b * T]);
    }
    model_loss(model, tokens.data(), targets.data(), int(B), int(T), losses.data());
    for (size_t b = 0; b < B; b++) {
        const Task::Row& row = rows[order[b]];
        const float* const last = &losses[b * T] + row.tokens.size() - 1;
        for (const float* loss = last - row.scored; loss < last; loss++) scores[order[b]] -= double(*loss);
    }
}

// Returns for each row the sum of log p of its scored tokens. A request to stop ends it early and is added to *stop.
// Batches of B rows go to the ranks in turn; their number changes no bit.
static std::vector<double> score_rows(Model* model, const std::vector<Task::Row>& rows, int B, Comm* comm,
                                      uint32_t* stop) {
    const size_t n = rows.size(), W = size_t(comm->size), rank = size_t(comm->rank), batch = size_t(B);
    std::vector<size_t> order(n);               // sorted by length: a batch then needs little padding
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](size_t i) { return rows[i].tokens.size(); });
    std::vector<double> mine(n), all(n * W);
    Countdown left{"scored", n, "rows"};
    for (size_t first = 0; first < n && !*stop; first += W * batch) {
        left.at(first);
        fault_point("task", comm->rank, current_step());
        const size_t begin = std::min(first + rank * batch, n), end = std::min(begin + batch, n);
        if (begin < end) score_batch(model, rows, {&order[begin], end - begin}, mine.data());
        for (const uint32_t requests : comm_gather(comm, stop_requested())) *stop |= requests;
    }
    comm_allgather(comm, all.data(), mine.data(), n * sizeof(double));
    for (size_t k = 0; k < n; k++) mine[order[k]] = all[(k / batch) % W * n + order[k]];
    return mine;
}

std::string TaskScore::text() const {
    const double n = double(items), acc = double(right) / n, norm = double(right_norm) / n;
    const double error = items > 1 ? std::sqrt(norm * (1 - norm) / (n - 1)) : 0;
    return format("%s acc %.3f acc_norm %.3f +- %.3f (%llu, chance %.3f)", name.c_str(), acc, norm, error,
                  (unsigned long long)items, chance);
}

TaskScore score_task(Model* model, const Task& task, int B, Comm* comm) {
    TaskScore score = {task.name, task.items.size()};
    const std::vector<double> mine = score_rows(model, task.rows, B, comm, &score.requests);
    for (const Task::Item& item : task.items) {
        size_t best = 0, best_norm = 0;
        const auto norm = [&](size_t i) { return mine[item.first + i] / double(item.characters[i]); };
        for (size_t i = 1; i < item.characters.size(); i++) {
            if (mine[item.first + i] > mine[item.first + best]) best = i;
            if (norm(i) > norm(best_norm)) best_norm = i;
        }
        score.right += best == size_t(item.label);
        score.right_norm += best_norm == size_t(item.label);
        score.chance += 1 / double(item.characters.size()) / double(task.items.size());
    }
    return score;
}

}  // namespace BACKEND
