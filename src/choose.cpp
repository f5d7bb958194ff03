// choose.cpp -- temperature, top-k and top-p, in double and in a fixed order, so that a text is a function of its seed.
#include "choose.h"
#include <algorithm>
#include <cmath>
#include "rng.h"

int choose_token(const std::vector<float>& logits, const Choosing& how, uint64_t position) {
    const int V = int(logits.size());
    if (how.temperature <= 0) return int(std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::vector<int> order(logits.size());
    for (int i = 0; i < V; i++) order[size_t(i)] = i;
    const auto better = [&](int a, int b) { return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)] : a < b; };
    std::sort(order.begin(), order.end(), better);
    if (how.top_k > 0 && how.top_k < V) order.resize(size_t(how.top_k));

    std::vector<double> p;
    double total = 0;
    for (const int token : order) total += p.emplace_back(std::exp((double(logits[size_t(token)]) - double(logits[size_t(order[0])])) / how.temperature));
    double kept = 0;
    size_t n = 0;
    while (n < p.size() && (n == 0 || kept < how.top_p * total)) kept += p[n++];

    const Random4 r = random4({how.seed, kRandomSample, how.stream, 0}, position);
    double u = (double(r.v[0]) * 4294967296.0 + double(r.v[1])) / 18446744073709551616.0 * kept;
    for (size_t i = 0; i < n; i++) {
        if (u < p[i]) return order[i];
        u -= p[i];
    }
    return order[n - 1];
}
