// selftest.cpp -- `train_gpt --selftest`: do the ranks reach each other, how fast, and is one link slower than the others?
//
// Compiled once per backend. What runs is the trainer's own exchange and fold, so a road that works here works there. Nobody waits for
// ever: the ranks' progress is watched as in training (--timeout).
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <vector>
#include "common.h"
#include "exchange.h"
#include "options.h"

namespace BACKEND {

int selftest(Options options, Comm* comm);

namespace {

constexpr size_t kMiB = size_t(1) << 20, kLargest = 100 * kMiB / sizeof(float), kPair = 32 * kMiB / sizeof(float);

Range own(const Comm* comm, Range bucket) { return own_slice(bucket, comm, comm->local_rank, comm->host); }

// Rank 0 prints.
__attribute__((format(printf, 2, 3))) void say(const Comm* comm, const char* format, ...) {
    va_list args;
    va_start(args, format);
    if (comm->rank == 0) std::vprintf(format, args);
    va_end(args);
}

// The reduction of ddp.cpp for one bucket, then the gather of weights.
void reduce_and_gather(Exchange* x, const Comm* comm, Range bucket, Stream stream) {
    float* const sums = exchange_gradients(x);
    const auto add = [&](Range to, const std::vector<const float*>& terms) {
        if (terms.size() > 1) fold(sums + to.begin, nullptr, terms.data(), int(terms.size()), Tree::kHalves, to.size(), stream);
    };
    add(host_slice(bucket, comm, comm->local_rank), exchange_local(x, bucket, stream));
    exchange_hosts(x, bucket, stream, add);
    exchange_gather_weights(x, bucket, stream);
    stream_sync(stream);
    exchange_finish(x, stream);
}

// Element i of rank r is (r + 1) (i mod 7 + 1): sums of whole numbers are exact, and each is another one.
void check_sums(Exchange* x, Comm* comm) {
    const Range bucket = {0, 16 * kUnit}, mine = own(comm, bucket);
    std::vector<float> values(bucket.size());
    for (size_t i = 0; i < values.size(); i++) values[i] = float(comm->rank + 1) * float(i % 7 + 1);
    copy_to_device(exchange_gradients(x), values.data(), values.size() * sizeof(float), nullptr);
    stream_sync(nullptr);
    comm_progress(comm, -1, "selftest: the first sum");
    comm_barrier(comm);
    reduce_and_gather(x, comm, bucket, nullptr);
    copy_to_host(values.data(), exchange_gradients(x), values.size() * sizeof(float), nullptr);
    const float ranks = float(comm->size * (comm->size + 1) / 2);
    std::string wrong;
    for (size_t i = mine.begin; i < mine.end && wrong.empty(); i++)
        if (values[i] != ranks * float(i % 7 + 1)) wrong = format("rank %d: element %zu of the sum: got %g, want %g", comm->rank, i, double(values[i]), double(ranks * float(i % 7 + 1)));
    for (const std::string& text : comm_gather_text(comm, wrong))
        if (!text.empty()) die(kExitDisagree, "selftest: %s; the road between the ranks changes numbers", text.c_str());
}

// Seconds of the slowest rank, the median of several.
template <class F> double slowest(Comm* comm, int repeats, const F& f) {
    std::vector<double> times, all(size_t(comm->size));
    for (int i = 0; i < repeats; i++) {
        comm_progress(comm, -1, "selftest");
        comm_barrier(comm);
        const double start = now_seconds();
        f();
        const double own_time = now_seconds() - start;
        comm_allgather(comm, all.data(), &own_time, sizeof own_time);
        times.push_back(*std::max_element(all.begin(), all.end()));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

void peer_table(Exchange* x, Comm* comm) {
    const int W = comm->size;
    struct Link { int from, to; double rate; };
    std::vector<Link> links;
    say(comm, "peer to peer, GB/s (row sends to column)\n      ");
    for (int to = 0; to < W; to++) say(comm, "%8d", to);
    for (int from = 0; from < W; from++) {
        say(comm, "\n%6d", from);
        for (int to = 0; to < W; to++) {
            bool reached = from != to;
            const double seconds = from == to ? 0 : slowest(comm, 3, [&] {
                reached = exchange_pair(x, from, to, kPair, nullptr);
                stream_sync(nullptr);
            });
            if (reached) links.push_back({from, to, double(kPair) * sizeof(float) / seconds * 1e-9});
            say(comm, "%8s", from == to ? "." : reached ? format("%.2f", links.back().rate).c_str() : "-");
        }
    }
    if (links.empty()) return;
    std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) { return a.rate < b.rate; });
    const Link slow = links[0];
    const double median = links[links.size() / 2].rate;
    const auto host = [&](int rank) { return comm->peers[size_t(rank)].host.c_str(); };
    if (slow.rate < median / 2)
        say(comm, "\nslow link: rank %d on %s to rank %d on %s: %.2f GB/s, the median is %.2f; look at its cable, slot or NUMA node\n", slow.from,
            host(slow.from), slow.to, host(slow.to), slow.rate, median);
    else say(comm, "\nno slow link: the slowest, rank %d to rank %d, has %.2f GB/s, the median is %.2f\n", slow.from, slow.to, slow.rate, median);
}

}  // namespace

int selftest(Options options, Comm* comm) {
    exchange_place(comm);
    Exchange* const x = exchange_create(comm, kLargest, kLargest, options.reduce == "nccl");
    const std::vector<std::string> names = comm_gather_text(comm, std::string(device_name()) + (*device_address() ? ", PCI " : "") + device_address());
    say(comm, "ranks\n");
    for (size_t r = 0; r < names.size(); r++) say(comm, "%6zu  %s, process %d, %s\n", r, comm->peers[r].host.c_str(), comm->peers[r].pid, names[r].c_str());
    say(comm, "road      %s\n", exchange_name(x));
    check_sums(x, comm);
    if (comm->size == 1) {
        say(comm, "one rank: there is no road to measure; start several with --np N or mpirun\n");
    } else {
        say(comm, "first sum right on all ranks\n\nbucket MiB        ms   GB/s     reduce-scatter and gather; GB/s: bytes of the bucket over the time\n");
        for (const double mib : {0.25, 1.0, 4.0, 25.0, 100.0}) {
            const Range bucket = {0, size_t(mib * double(kMiB)) / sizeof(float)};
            const double seconds = slowest(comm, 5, [&] { reduce_and_gather(x, comm, bucket, nullptr); });
            say(comm, "%10.2f %9.3f %6.2f\n", mib, seconds * 1e3, double(bucket.size()) * sizeof(float) / seconds * 1e-9);
        }
        say(comm, "\n");
        peer_table(x, comm);
        comm_barrier(comm);
    }
    exchange_destroy(x);
    return kExitDone;
}

}  // namespace BACKEND
