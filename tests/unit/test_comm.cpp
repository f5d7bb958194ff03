// test_comm.cpp -- the ranks of a job as real processes: collectives, shared memory, bytes between hosts, every way to
// lose a rank, strangers at the door, and the --np launcher.
//
// Each job is forked from the test; LOCKSTEP_HOST_ID makes ranks of one machine believe in several hosts, so that the
// TCP paths run over loopback. tests/scripts/test_net.sh runs this program as `test_comm rank MODE` in
// two network namespaces.
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include "src/base/file.h"
#include "src/base/words.h"
#include "src/comm/comm.h"
#include "src/comm/rendezvous.h"
#include "tests/test.h"

namespace {

// --------------------------------------------------------------------------------------------- jobs of processes

struct Shape {                          // hosts > 1 means TCP
    int hosts, local;
    int ranks() const { return hosts * local; }
};
constexpr int kHung = -1;

struct Job {
    Shape shape;
    double timeout = 20;
    std::vector<int> ranks = {};        // the ranks that start; empty: all
    std::function<void(Comm*)> body = [](Comm*) {};
    std::function<void(int rank, World*)> before = [](int, World*) {};                  // before comm_create
    std::function<void(const std::vector<pid_t>&)> meanwhile = [](const auto&) {};      // in the parent
    double patience = 60;               // seconds, then the job counts as hung
    int port = 0;
    int stay = 0;                       // ranks that will not end by themselves
};
// By rank started.
struct Outcome { std::vector<int> code; std::vector<std::string> said; std::vector<double> seconds; };

// Counters that parent and children share.
std::atomic<int>* const board =
    static_cast<std::atomic<int>*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

// A socket with loopback's port, by bind or connect; -1: it is taken, or nobody listens there.
int loopback(int port, int (*call)(int, const sockaddr*, socklen_t)) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    const sockaddr_in a = {AF_INET, htons(uint16_t(port)), {htonl(INADDR_LOOPBACK)}, {}};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (call(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0) return fd;
    close(fd);
    return -1;
}
int listen_loopback(int port) {
    const int fd = loopback(port, bind);
    EXPECT(fd >= 0 && listen(fd, 9) == 0, "bind");
    return fd;
}

// Below the range from which listeners on port 0 and outgoing connections get theirs, so that nobody takes it
// meanwhile.
int free_port() {
    static int next = getpid() * 37;
    int port, fd;
    do fd = loopback(port = 10000 + next++ % 20000, bind);
    while (fd < 0);
    close(fd);
    return port;
}

World world_of(int rank, int size, const std::string& job) {
    World w;
    w.rank = rank, w.size = size, w.job = job;
    return w;
}

// A rank that `find` describes meets the others and does that. The exit code.
int be_rank(const std::function<void(World*)>& find, double timeout, const std::function<void(Comm*)>& body) {
    World world;
    Comm* comm = nullptr;
    try {
        find(&world);
        comm = comm_create(world, timeout);
        body(comm);
        comm_destroy(comm);
        return 0;
    } catch (const Error& e) {
        if (!comm) end_before_meeting(world, e);
        else if (!comm_abort(comm, e.code, e.message)) print_error(e);
        return e.code;
    } catch (const TestFailure& f) {
        print_error({99, f.message});
        if (comm) comm_abort(comm, 99, f.message);
        return 99;
    }
}

int run_rank(const Job& job, int rank, const std::string& name, int port) {
    const auto find = [&](World* w) {
        *w = world_of(rank, job.shape.ranks(), name);
        if (job.shape.hosts > 1) {
            w->master_addr = "127.0.0.1";
            w->master_port = port;
            setenv("LOCKSTEP_HOST_ID", format("host %d", rank / job.shape.local).c_str(), 1);
        }
        set_error_rank(rank);
        job.before(rank, w);
    };
    return be_rank(find, job.timeout, job.body);
}

// What was written to the file, which is closed.
std::string text_of(int log) {
    std::string text(size_t(lseek(log, 0, SEEK_END)), '\0');
    if (pread(log, text.data(), text.size(), 0) != ssize_t(text.size())) text = "?";
    close(log);
    return text;
}
int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

Outcome run_job(const Job& job) {
    static int jobs = 0;
    const std::string name = format("test %d %d", int(getpid()), jobs++);
    const int port = job.port ? job.port : job.shape.hosts > 1 ? free_port() : 0;
    std::vector<int> ranks = job.ranks;
    for (int r = 0; job.ranks.empty() && r < job.shape.ranks(); r++) ranks.push_back(r);
    for (int i = 0; i < 16; i++) board[i] = 0;
    std::vector<pid_t> pids;
    std::vector<int> logs;
    std::fflush(nullptr);
    for (const int rank : ranks) {
        logs.push_back(memfd_create("stderr", MFD_CLOEXEC));
        const pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            dup2(logs.back(), 2);
            _exit(run_rank(job, rank, name, port));
        }
        pids.push_back(pid);
    }
    const double start = now_seconds();
    Outcome o;
    o.code.assign(pids.size(), kHung);
    o.seconds.assign(pids.size(), 0);
    job.meanwhile(pids);
    const double limit = now_seconds() + job.patience;
    for (size_t left = pids.size() - size_t(job.stay); left > 0 && now_seconds() < limit; usleep(2000))
        for (size_t i = 0; i < pids.size(); i++) {
            int status;
            if (o.seconds[i] > 0 || waitpid(pids[i], &status, WNOHANG) != pids[i]) continue;
            o.code[i] = exit_code(status);
            o.seconds[i] = now_seconds() - start;
            left--;
        }
    for (size_t i = 0; i < pids.size(); i++)
        if (o.seconds[i] == 0) {
            kill(pids[i], SIGKILL);
            waitpid(pids[i], nullptr, 0);
        }
    for (const int log : logs) o.said.push_back(text_of(log));
    return o;
}

std::string all_said(const Outcome& o) {
    std::string all;
    for (size_t i = 0; i < o.said.size(); i++) all += format("[%d] code %d: ", int(i), o.code[i]) + o.said[i];
    return all;
}
void expect_success(const Job& job) {
    const Outcome o = run_job(job);
    for (const int code : o.code) EXPECT(code == 0, "%s", all_said(o).c_str());
}
// Rank i of the outcome ended with this code and said exactly one error line, with `part` in it.
void expect_end(const Outcome& o, size_t i, int code, const std::string& part) {
    EXPECT(o.code[i] == code && has(o.said[i], part) && count_of(o.said[i], ": error: ") == 1,
           "rank %zu: want code %d and one error line, \"%s\": %s", i, code, part.c_str(), all_said(o).c_str());
}
// An error of a rank's own: all end with its code, and rank 0 alone says it.
void expect_abort(const Job& job, int code, const std::string& part) {
    const Outcome o = run_job(job);
    expect_end(o, 0, code, part);
    for (size_t i = 1; i < o.code.size(); i++)
        EXPECT(o.code[i] == code && o.said[i].empty(), "rank %zu: want code %d and no word: %s", i, code,
               all_said(o).c_str());
}
struct End { size_t rank; int code; std::string part; };
struct Ending { const char* name; Job job; std::vector<End> ends; };
void expect_endings(const std::vector<Ending>& rows) {
    for (const auto& [name, job, ends] : rows) {
        const Row row(name);
        const Outcome o = run_job(job);
        for (const End& end : ends) expect_end(o, end.rank, end.code, end.part);
    }
}
std::vector<End> all_ends(size_t ranks, int code, const std::string& part) {
    std::vector<End> all;
    for (size_t r = 0; r < ranks; r++) all.push_back({r, code, part});
    return all;
}

void wait_board(int slot, int value) {
    for (const double limit = now_seconds() + 20; board[slot] < value && now_seconds() < limit;) usleep(1000);
}

std::string pattern(size_t bytes, int seed) {
    std::string v(bytes, '\0');
    for (size_t i = 0; i < bytes; i++) v[i] = char((i * 2654435761u + size_t(seed) * 977) >> 7);
    return v;
}

// --------------------------------------------------------------------------------------------------- collectives

void check_collectives(Comm* c) {
    EXPECT(c->rank == c->host * c->local_size + c->local_rank && c->size == c->hosts * c->local_size, "rank %d of %d",
           c->rank, c->size);
    EXPECT(c->peers.size() == size_t(c->size) && c->peers[size_t(c->rank)].pid == getpid(), "peers");
    comm_barrier(c);
    for (const size_t bytes : {0, 1, 7, 65539, 1 << 20, (2 << 20) + 5}) {
        std::string all(bytes * size_t(c->size) + 1, 'w'), want;
        comm_allgather(c, all.data(), pattern(bytes, c->rank).data(), bytes);
        for (int r = 0; r < c->size; r++) want += pattern(bytes, r);
        EXPECT(all == want + 'w', "all-gather of %zu bytes", bytes);
    }
    const auto text_of = [](int r) { return std::string(size_t(r) * 1000 + 1, char('a' + r)) + '\0' + "end"; };
    for (int first = 0; first <= c->size; first++) {
        const std::string text = comm_first_text(c, c->rank < first ? "" : text_of(c->rank));
        EXPECT(text == (first < c->size ? text_of(first) : ""), "text of rank %d", first);
    }
}

void check_shared(Comm* c) {
    const size_t n = 100003;
    int* const first = comm_shared<int>(c, n, "first");
    int* const second = comm_shared<int>(c, (5 << 18) + 1, "second");
    EXPECT(uintptr_t(first) % 4096 == 0 && uintptr_t(second) % 4096 == 0, "page alignment");
    for (size_t i = 0; i < n; i++) EXPECT(first[i] == 0 && second[i] == 0, "not zero at %zu", i);
    comm_barrier(c);  // nobody writes before all have looked
    for (size_t i = size_t(c->local_rank); i < n; i += size_t(c->local_size)) first[i] = int(i) * 3 + c->host;
    comm_local_barrier(c);
    for (size_t i = 0; i < n; i++)
        EXPECT(first[i] == int(i) * 3 + c->host, "shared memory at %zu: got %d", i, first[i]);
    comm_local_barrier(c);
    std::atomic<int>* turns = reinterpret_cast<std::atomic<int>*>(second);
    for (int i = 0; i < 500; i++) {         // patience bounds their time
        *turns += 1;
        comm_local_barrier(c);
        EXPECT(*turns >= (i + 1) * c->local_size, "barrier %d let a rank through", i);
    }
}

// Uneven cuts, empty parts, and parts far larger than a socket's buffer in both directions at once.
void check_hosts(Comm* c) {
    const size_t host = size_t(c->host), hosts = size_t(c->hosts);
    for (const size_t unit : {0, 1, 1000, 300001}) {
        std::vector<size_t> cut = {0};
        for (size_t h = 0; h < hosts; h++) cut.push_back(cut[h] + (h == 1 ? 0 : unit * (h + 1)));
        std::vector<std::string> sent;  // by host
        for (int h = 0; h < c->hosts; h++) sent.push_back(pattern(cut[hosts], h * c->local_size + c->local_rank));
        for (const size_t piece : {size_t(7), size_t(65536), cut[hosts] + 1}) {  // in pieces; all at once
            if (cut[hosts] / piece > 2000) continue;
            std::string room(piece * hosts, 'w');
            size_t left = cut[host + 1] - cut[host], next = 0;
            const auto arrived = [&](size_t at, size_t n) {
                EXPECT(at == next && n == std::min(piece, left), "scatter unit %zu: %zu bytes at %zu", unit, n, at);
                next += n, left -= n;
                for (size_t h = 0; h < hosts; h++) {
                    const std::string want = h == host ? std::string(n, 'w') : sent[h].substr(cut[host] + at, n);
                    EXPECT(room.compare(h * piece, n, want) == 0, "scatter unit %zu, piece %zu: from host %zu", unit,
                           piece, h);
                }
            };
            comm_hosts_scatter(c, sent[host].data(), cut.data(), room.data(), piece, arrived);
            EXPECT(left == 0, "scatter unit %zu: %zu bytes are left", unit, left);
        }
        std::string whole = sent[host], want;
        comm_hosts_gather(c, whole.data(), cut.data());
        for (size_t h = 0; h < hosts; h++) want += sent[h].substr(cut[h], cut[h + 1] - cut[h]);
        EXPECT(whole == want, "gather unit %zu", unit);
    }
    for (const size_t bytes : {0, 1, 4097, 1 << 20, (3 << 20) + 3}) {
        std::string data = pattern(bytes, c->rank);
        comm_hosts_broadcast(c, data.data(), bytes);
        EXPECT(data == pattern(bytes, c->local_rank ? c->rank : 0), "broadcast of %zu bytes", bytes);
    }
}

void check_all(Comm* c) {
    check_collectives(c);
    check_shared(c);
    check_hosts(c);
}

TEST(everything) {
    struct Case { Job job; Shape found; };
    std::vector<Case> cases;
    for (const Shape s : {Shape{1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 8}, {2, 1}, {2, 2}, {4, 1}, {3, 2}})
        cases.push_back({{.shape = s}, s});
    // A rank in each of several containers on one host: the network's namespace alone is shared.
    const auto ids = [](int rank, World*) { setenv("LOCKSTEP_HOST_ID", rank < 2 ? "a" : "b", 1); };
    cases.push_back({{.shape = {1, 4}, .before = ids}, {2, 2}});
    const auto secret = [](int, World*) { setenv("LOCKSTEP_SECRET", "right", 1); };
    cases.push_back({{.shape = {2, 1}, .before = secret}, {2, 1}});
    for (auto& [job, found] : cases) {
        job.body = [found = found](Comm* c) {
            EXPECT(c->hosts == found.hosts && c->local_size == found.local, "%d hosts of %d", c->hosts, c->local_size);
            check_all(c);
        };
        expect_success(job);
    }
}

// Reductions run in a thread of their own, while the main thread calls no collective.
TEST(collectives_of_two_threads_in_turn) {
    const auto body = [](Comm* c) {
        for (int i = 0; i < 3; i++) {
            std::thread reduction([&] {
                check_hosts(c);
                comm_local_barrier(c);
            });
            reduction.join();
            check_collectives(c);
        }
    };
    expect_success({.shape = {2, 2}, .body = body});
}

TEST(shared_memory_too_large) {
    const auto body = [](Comm* c) { comm_shared(c, size_t(1) << 50, "gradients"); };
    for (const Shape s : {Shape{1, 2}, {2, 1}})
        expect_abort({.shape = s, .body = body}, 1, "shared memory: gradients: got Cannot allocate memory");
    Comm* alone = comm_create({}, 1);
    expect_error(1, "want 9,223,372,036,854,775,000 bytes",
                 [&] { comm_shared(alone, 9223372036854775000u, "weights"); });
    comm_destroy(alone);
}

// ------------------------------------------------------------------------------------------------- losing a rank

// A rank's body: steps 0 to 11 with a barrier each, then step 12, where ranks `first` to `last` do that, and the others
// wait for them.
std::function<void(Comm*)> at_12(int first, int last, const std::function<void(Comm*)>& act) {
    return [=](Comm* c) {
        for (int step = 0; step < 12; step++) {
            comm_progress(c, step, "forward");
            comm_barrier(c);
        }
        comm_progress(c, 12, "backward");
        board[0]++;
        if (first <= c->rank && c->rank <= last) act(c);
        comm_barrier(c);
    };
}
void sleep_long(Comm*) { sleep(1000); }

// Each of the others names the one that got a signal when all were at step 12, and in time.
TEST(killed_and_stopped_ranks_are_named_by_all) {
    const struct { int signal; Shape shape; int victim; } rows[] = {
        {SIGKILL, {1, 2}, 0}, {SIGKILL, {1, 2}, 1}, {SIGKILL, {1, 4}, 0}, {SIGKILL, {1, 4}, 3},
        {SIGKILL, {2, 2}, 0}, {SIGKILL, {2, 2}, 3}, {SIGKILL, {3, 1}, 0}, {SIGKILL, {3, 1}, 2},
        {SIGSTOP, {1, 3}, 0}, {SIGSTOP, {1, 3}, 1}, {SIGSTOP, {2, 2}, 0}, {SIGSTOP, {2, 2}, 1}};
    for (const auto& row : rows) {
        const bool stops = row.signal == SIGSTOP;
        const double timeout = stops ? 2 : 3, least = stops ? 1 : -1, most = stops ? 4 : 2, start = now_seconds();
        double from = 0;
        const auto meanwhile = [&](const std::vector<pid_t>& pids) {
            wait_board(0, row.shape.ranks());
            usleep(useconds_t(timeout * 0.45e6));      // rank 0 has heard of step 12
            from = now_seconds() - start;
            kill(pids[size_t(row.victim)], row.signal);
        };
        const auto body = at_12(row.victim, row.victim, sleep_long);
        const Outcome o = run_job(
            {.shape = row.shape, .timeout = timeout, .body = body, .meanwhile = meanwhile, .stay = stops});
        for (int r = 0; r < row.shape.ranks(); r++) {
            if (r == row.victim) continue;
            expect_end(o, size_t(r), 69, format("peer %s: rank %d (", stops ? "stuck" : "lost", row.victim));
            expect_end(o, size_t(r), 69, stops ? "no progress for 2 s, last step 12, phase backward" :
                       "connection closed; last step 12, phase backward; run again with --resume to go on");
            const double took = o.seconds[size_t(r)] - from;
            EXPECT(took > least && took < most, "rank %d took %.2f s", r, took);
        }
        EXPECT(!stops || o.code[size_t(row.victim)] == kHung, "the stopped one: %s", all_said(o).c_str());
    }
}

TEST(lost_ranks_are_named) {
    // The more ranks are stopped, the longer rank 0 would wait for room in their sockets, and could take that for a
    // stop of its own.
    const auto full_sockets = [](Comm* c) {
        const int smallest = 1;         // of the kernel's: room for two records
        for (int fd = 3; c->rank == 0 && fd < 256; fd++)
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &smallest, sizeof smallest);
        at_12(2, 15, [](Comm*) { raise(SIGSTOP); })(c);
    };
    // As GPUs that wait for each other: nobody is to blame, and nobody may hang.
    const auto deadlock = at_12(0, 1, [](Comm* c) {
        comm_waiting(c, true);
        sleep_long(c);
    });
    std::vector<Ending> rows = {
        {"exits", {.shape = {1, 3}, .body = at_12(1, 1, [](Comm*) { _exit(0); })},
         {{0, 69, "peer lost: rank 1 ("}, {2, 69, "peer lost: rank 1 ("}}},
        {"many stopped", {.shape = {1, 16}, .timeout = 2, .body = full_sockets, .patience = 30, .stay = 14},
         all_ends(2, 69, "peer stuck: rank ")},
        {"deadlock", {.shape = {1, 2}, .timeout = 0.5, .body = deadlock, .patience = 10},
         all_ends(2, 69, "peer stuck: all ranks, waiting for each other")}};
    // One whose threads live and whose records come, but do not advance; its victims wait in a collective.
    for (const Shape s : {Shape{1, 3}, {2, 1}})
        for (const int culprit : {0, 1}) {
            const Job job = {.shape = s, .timeout = 1.5, .body = at_12(culprit, culprit, sleep_long), .patience = 8};
            rows.push_back({"busy", job, all_ends(s.ranks(), 69, format("peer stuck: rank %d (", culprit))});
            rows.back().ends.push_back({1, 69, "last step 12, phase backward"});
        }
    expect_endings(rows);
}

TEST(stopped_for_a_second_goes_on) {
    const auto body = [](Comm* c) {
        for (int i = 0; i < 400; i++) {
            comm_progress(c, i, "work");
            usleep(5000);
            comm_barrier(c);
            board[0] = i;
        }
    };
    for (const int victim : {0, 1}) {
        const auto meanwhile = [&](const std::vector<pid_t>& pids) {
            wait_board(0, 20);
            kill(pids[size_t(victim)], SIGSTOP);
            usleep(1000000);
            kill(pids[size_t(victim)], SIGCONT);
        };
        expect_success({.shape = {1, 3}, .timeout = 3, .body = body, .meanwhile = meanwhile});
    }
}

TEST(slow_work_is_fine) {
    const auto reports = at_12(0, 0, [](Comm* c) {
        for (int i = 0; i < 12; i++) {
            usleep(300000);
            comm_progress(c, 12, "checkpoint");
        }
    });
    const auto first_step = [](Comm* c) {       // it may take longer
        comm_progress(c, 0, "forward");
        if (c->rank == 1) usleep(2000000);
        comm_barrier(c);
    };
    expect_success({.shape = {1, 2}, .timeout = 1, .body = reports});
    expect_success({.shape = {1, 2}, .timeout = 0.7, .body = first_step});
}

TEST(an_error_ends_all_with_its_code) {
    const std::string longest(600, 'x'), bad = "data: f.bin: got 7";
    const struct { Shape shape; int first, last; std::string error, said; } rows[] = {
        {{1, 4}, 0, 0, bad, "error: " + bad}, {{1, 4}, 3, 3, bad, "error: rank 3: " + bad},
        {{2, 2}, 0, 0, bad, "error: " + bad}, {{2, 2}, 3, 3, bad, "error: rank 3: " + bad},
        {{1, 2}, 1, 1, longest + ": missing", "error: rank 1: " + longest + ": missing"},       // is said whole
        {{1, 4}, 0, 3, "all at once", "all at once"}};
    for (const auto& row : rows) {
        const auto dies = [&](Comm*) { die(65, "%s", row.error.c_str()); };
        expect_abort({.shape = row.shape, .body = at_12(row.first, row.last, dies)}, 65, row.said);
    }
}

TEST(different_collectives) {
    const auto other_bytes = [](Comm* c) {
        std::vector<char> in(100), out(300);
        comm_barrier(c);
        comm_allgather(c, out.data(), in.data(), c->rank == 1 ? 99 : 100);
    };
    const auto one_less = [](Comm* c) {         // rank 1 leaves one out
        std::vector<char> in(100), out(300);
        if (c->rank != 1) comm_barrier(c);
        comm_allgather(c, out.data(), in.data(), in.size());
    };
    const auto other_cut = [](Comm* c) {
        std::vector<char> data(300);
        const size_t cut[] = {0, 100, size_t(c->rank == 1 ? 200 : 201)};
        comm_hosts_gather(c, data.data(), cut);
    };
    const Job jobs[] = {{.shape = {1, 3}, .body = other_bytes}, {.shape = {3, 1}, .body = other_bytes},
                        {.shape = {1, 3}, .body = one_less}, {.shape = {3, 1}, .body = one_less},
                        {.shape = {2, 1}, .body = other_cut}};
    for (const Job& job : jobs) expect_abort(job, 80, "collectives differ");
}

// Rank 1 puts a message of its own on the data connection: the right header, then a payload that does not match its
// checksum.
TEST(damage_on_the_wire) {
    const auto body = [](Comm* c) {
        const size_t cut[] = {0, 8, 16};
        std::vector<char> data(16, 'x'), room(16);
        if (c->rank == 0) comm_hosts_scatter(c, data.data(), cut, room.data(), 8, nullptr);
        struct { uint64_t bytes, crc; char data[8]; } m = {8, crc32c(0, "xxxxxxxx", 8), {}};
        std::memset(m.data, 'x', sizeof m.data);
        m.data[3] ^= 1;
        std::vector<int> sockets;  // to rank 0, in order of their making: control, data
        for (int fd = 3; fd < 100; fd++) {
            sockaddr_in a = {};
            socklen_t size = sizeof a;
            if (getpeername(fd, reinterpret_cast<sockaddr*>(&a), &size) == 0 && a.sin_family == AF_INET)
                sockets.push_back(fd);
        }
        EXPECT_EQ(sockets.size(), 2);
        EXPECT(send_all(sockets[1], &m, sizeof m, 1));
    };
    expect_abort({.shape = {2, 1}, .body = body}, 80, "damaged on the wire: rank 1 (");
}

// ----------------------------------------------------------------------------------------------------- the start

TEST(ranks_that_do_not_meet) {
    const auto killed = [](size_t i) {
        return [=](const std::vector<pid_t>& pids) {
            usleep(300000);
            kill(pids[i], SIGKILL);
        };
    };
    const auto secrets = [](int rank, World*) { setenv("LOCKSTEP_SECRET", rank ? "wrong" : "right", 1); };
    const auto larger = [](int rank, World* w) {
        if (rank == 2) w->size = 4;
        else usleep(200000 * useconds_t(1 - rank));
    };
    const auto other_job = [](int rank, World* w) { w->job += rank == 1 ? " another" : ""; };
    const auto no_secret = [](int, World* w) { w->master_addr = "10.255.255.1"; };
    const auto at = [](const char* address) {
        return [=](int, World* w) {
            setenv("LOCKSTEP_SECRET", "s", 1);
            setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);  // a machine without a name server waits long otherwise
            w->master_addr = address;
        };
    };
    const std::string missing = "peer missing: rank 2 of 3", late = missing + ": not here in time";
    const std::string first = "peer missing: rank 0 of 3", taken = "Address already in use";
    const int port = free_port(), fd = listen_loopback(port);
    std::vector<Ending> rows = {
        {"rank 1 dies", {.shape = {1, 3}, .ranks = {0, 1}, .meanwhile = killed(1)}, {{0, 69, "peer lost: rank 1 ("}}},
        {"rank 0 dies", {.shape = {1, 3}, .ranks = {0, 1}, .meanwhile = killed(0)}, {{1, 69, "peer lost: rank 0 ("}}},
        {"another world size", {.shape = {1, 3}, .timeout = 0.5, .before = larger},
         {{2, 69, "not authenticated: this host's job socket: has another secret, job, user or number of ranks"},
          {0, 69, missing}, {1, 69, missing}}},
        {"another job", {.shape = {2, 1}, .timeout = 0.4, .before = other_job},
         {{1, 69, "not authenticated: "}, {0, 69, "peer missing: rank 1"}}},
        {"another secret", {.shape = {2, 1}, .timeout = 0.4, .before = secrets, .patience = 3},
         {{1, 69, "not authenticated: 127.0.0.1:"}, {0, 69, "peer missing: rank 1"}}},
        {"no secret", {.shape = {2, 1}, .before = no_secret}, {{0, 2, "LOCKSTEP_SECRET"}, {1, 2, "LOCKSTEP_SECRET"}}},
        {"no such host", {.shape = {2, 1}, .timeout = 0.2, .ranks = {1}, .before = at("no-such-host.invalid")},
         {{0, 69, "no-such-host.invalid"}}},
        {"not this host", {.shape = {2, 1}, .ranks = {0}, .before = at("192.0.2.1")},
         {{0, 69, "cannot listen: 192.0.2.1:"}}},
        {"the port is taken", {.shape = {2, 1}, .timeout = 0.2, .ranks = {0}, .port = port}, {{0, 69, taken}}}};
    for (const Shape s : {Shape{1, 3}, {3, 1}}) {
        rows.push_back({"rank 2", {.shape = s, .timeout = 0.3, .ranks = {0, 1}}, {{0, 69, late}, {1, 69, late}}});
        rows.push_back({"rank 0", {.shape = s, .timeout = 0.3, .ranks = {1, 2}}, {{0, 69, first}, {1, 69, first}}});
    }
    for (Ending& row : rows) row.job.patience = std::min(row.job.patience, 20.0);
    expect_endings(rows);
    close(fd);
}

TEST(rank_claimed_twice) {
    for (const Shape s : {Shape{1, 3}, {3, 1}}) {
        Outcome o = run_job({.shape = s, .timeout = 0.5, .ranks = {0, 1, 1}, .patience = 8});
        expect_end(o, 0, 2, "rank 1 claimed twice: ");
        EXPECT(o.code[1] != 0 && o.code[2] != 0, "%s", all_said(o).c_str());
        o = run_job({.shape = s, .timeout = 1.5, .ranks = {0, 1, 0}, .patience = 12});
        const size_t second = !has(o.said[0], "cannot listen: ") ? 2 : 0;  // the run waits on
        expect_end(o, second, 69, "Address already in use");
        expect_end(o, 2 - second, 69, "peer missing: rank 2 of 3");
        expect_end(o, 1, 69, "peer missing: rank 2 of 3");
    }
}

// An error before the meeting, on each rank in turn, reaches all: the others end with its code and say it.
TEST(an_error_before_the_ranks_meet) {
    for (const Shape s : {Shape{1, 3}, {3, 1}})
        for (const int thrower : {0, 1, 2}) {
            const auto before = [&](int rank, World*) {
                if (rank == thrower) die(66, "--data: x.bin: missing");
            };
            std::vector<End> ends = all_ends(3, 66, format("rank %d", thrower));
            ends[size_t(thrower)].part = "error: --data: x.bin";
            expect_endings({{"an error", {.shape = s, .before = before}, ends}});
        }
}

// One that all ranks have is said once.
TEST(errors_of_all_ranks_before_they_meet) {
    const auto hosts = [](int of_first, int every) {    // ranks that believe in two hosts
        return [=](int rank, World*) {
            setenv("LOCKSTEP_HOST_ID", rank < of_first && rank % every == 0 ? "a" : "b", 1);
        };
    };
    const std::pair<Job, const char*> rows[] = {
        {{.shape = {1, 4}, .before = [](int, World*) { die(2, "--stpes: unknown option"); }}, "--stpes: unknown"},
        {{.shape = {2, 2}, .before = hosts(3, 1), .patience = 8}, "ranks per host: got rank 3 on "},
        {{.shape = {2, 2}, .before = hosts(4, 2), .patience = 8}, "ranks per host: got rank 1 on "}};
    for (const auto& [job, part] : rows) expect_abort(job, 2, part);
}

// The listener of rank 0's meeting may take a connection and close, before rank 0 listens again to tell the same error.
TEST(an_error_is_told_to_the_next_listener) {
    const int port = free_port();
    const auto before = [&](int rank, World*) {
        if (rank == 0) {
            const int fd = listen_loopback(port);
            board[0] = 1;
            close(accept(fd, nullptr, nullptr));
            close(fd);
            usleep(100000);
        }
        wait_board(0, 1);
        die(2, "hosts: unequal");
    };
    expect_abort({.shape = {2, 1}, .before = before, .port = port}, 2, "hosts: unequal");
}

TEST(secret_file) {
    const Folder f;
    const std::string path = f.add("secret", "hush\n");
    setenv("LOCKSTEP_SECRET_FILE", path.c_str(), 1);
    chmod(path.c_str(), 0600);
    EXPECT_EQ(job_secret(), "hush");
    chmod(path.c_str(), 0640);
    expect_error(2, "LOCKSTEP_SECRET_FILE", job_secret, "0640");
    unlink(path.c_str());
    expect_error(2, "LOCKSTEP_SECRET_FILE", job_secret);
    unsetenv("LOCKSTEP_SECRET_FILE");
}

// RFC 4231, test cases 1, 2 and 6.
TEST(hmac_vectors) {
    const auto hex = [](const Digest& d) {
        std::string s;
        for (const uint8_t b : d) s += format("%02x", b);
        return s;
    };
    const struct { std::string key, text, want; } cases[] = {
        {std::string(20, '\x0b'), "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"}};
    for (const auto& [key, text, want] : cases) EXPECT_EQ(hex(hmac_sha256(key, text)), want);
}

// Strangers while ranks are on their way: 50 that stay and say nothing, 2,000 with garbage, half a greeting or nothing;
// rank 1 comes in the middle of them, rank 2 with a wrong secret before and, as another process once that has ended,
// with the right one after them: they all find rank 0 listening. The job starts all the same.
TEST(garbage_and_idle_connections) {
    const int port = free_port();
    const double start = now_seconds();
    const auto before = [](int rank, World*) {
        const bool wrong = rank == 2 && board[1]++ == 0;
        if (wrong) board[2] = getpid();
        setenv("LOCKSTEP_SECRET", wrong ? "wrong" : "hush", 1);
        while (rank > 0 && board[0] < (rank == 1 ? 1000 : wrong ? 500 : 2000)) usleep(1000);
        while (rank == 2 && !wrong && kill(board[2], 0) == 0) usleep(1000);
    };
    const auto meanwhile = [&](const std::vector<pid_t>&) {
        std::vector<int> idle;
        for (const double limit = now_seconds() + 5; idle.size() < 50 && now_seconds() < limit;)
            if (const int fd = loopback(port, connect); fd >= 0) idle.push_back(fd);
            else usleep(1000);
        unsigned random = 1;
        int connected = 0;
        for (; board[0] < 2000; board[0]++) {
            const int fd = loopback(port, connect), i = board[0];
            if (fd < 0) continue;
            connected++;
            std::string noise(i % 3 == 0 ? 5000 : i % 3 == 1 ? 30 : 0, '\0');
            for (char& c : noise) c = char((random = random * 1103515245 + 12345) >> 16);
            if (i % 2 && noise.size() > 8) std::memcpy(noise.data(), "LKSTEP01", 8);
            if (!noise.empty() && send(fd, noise.data(), noise.size(), MSG_NOSIGNAL) < 0) {}
            close(fd);
        }
        EXPECT(idle.size() == 50 && connected == 2000, "%zu idle connections, %d with garbage", idle.size(), connected);
        for (const int fd : idle) close(fd);
    };
    const Outcome o = run_job({.shape = {3, 1}, .ranks = {0, 1, 2, 2}, .body = check_hosts, .before = before,
                               .meanwhile = meanwhile, .port = port});
    EXPECT(now_seconds() - start < 20, "took %.1f s", now_seconds() - start);
    const size_t wrong = o.code[2] ? 2 : 3;  // whichever of the two came first
    expect_end(o, wrong, 69, "not authenticated: 127.0.0.1:");
    for (size_t i = 0; i < 4; i++) EXPECT(i == wrong || o.code[i] == 0, "%s", all_said(o).c_str());
}

// -------------------------------------------------------------------------------------------- nothing left behind

TEST(ranks_die_with_their_launcher) {
    for (int i = 0; i < 4; i++) board[i] = 0;
    const std::string name = format("orphans %d", int(getpid()));
    const pid_t launcher = fork();
    if (launcher == 0) {
        for (int r = 0; r < 2; r++)
            if (fork() == 0) {
                World w = world_of(r, 2, name);
                w.dies_with_parent = true;
                alarm(20);
                comm_create(w, 60);
                board[r] = getpid();
                for (;;) pause();
            }
        for (;;) pause();
    }
    wait_board(0, 1);
    wait_board(1, 1);
    const pid_t ranks[] = {board[0], board[1]};
    EXPECT(ranks[0] > 0 && ranks[1] > 0 && kill(ranks[0], 0) == 0, "the ranks did not start");
    kill(launcher, SIGKILL);
    waitpid(launcher, nullptr, 0);
    usleep(500000);
    for (const pid_t pid : ranks) EXPECT(waitpid(pid, nullptr, WNOHANG) == pid, "pid %d lives", int(pid));
}

size_t open_descriptors() { return list_directory("/proc/self/fd").size(); }

TEST(nothing_left_open) {
    const auto body = [](Comm* c) {
        unsetenv("LOCKSTEP_HOST_ID");
        const size_t before = open_descriptors();
        for (int i = 0; i < 5; i++) {       // a second job inside the first, again and again
            const std::string job = format("inner %d %d", int(c->peers[0].pid), i);
            Comm* inner = comm_create(world_of(c->rank, c->size, job), 20);
            comm_shared(inner, 100000, "x");
            comm_destroy(inner);
        }
        EXPECT_EQ(open_descriptors(), before);
    };
    for (const Shape s : {Shape{1, 2}, {2, 2}}) expect_success({.shape = s, .body = body});
}

// -------------------------------------------------------------------------------------------------- the launcher

// What a rank of launch_ranks does in this program: `test_comm rank MODE`.
int rank_main(const std::vector<std::string>& args) {
    static volatile sig_atomic_t got = 0;
    for (const int s : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU}) signal(s, [](int n) { got = n; });
    const auto find = [](World* w) {
        *w = find_world([](const char* name) -> const char* { return std::getenv(name); });
        set_error_rank(w->rank);
    };
    return be_rank(find, 2, [&](Comm* comm) {
        const std::string mode = args.empty() ? "" : args[0];
        const int attempt = std::getenv("LOCKSTEP_TRY") ? std::atoi(std::getenv("LOCKSTEP_TRY")) : 0;
        if (mode == "collectives") check_all(comm);
        if (mode == "train")  // SECONDS
            for (const double end = now_seconds() + std::atof(args[1].c_str());;) {
                static int64_t step = 0;
                std::vector<char> data(200000, 1);
                const size_t cut[] = {0, 100000, 200000};
                comm_progress(comm, step++, "reduction");
                comm_hosts_gather(comm, data.data(), cut);
                if (!comm_gather<char>(comm, now_seconds() < end)[0]) break;
                usleep(10000);
            }
        if (mode == "fail" && comm->rank == 1) die(66, "no input");
        if (mode == "kill" && comm->rank == 1) raise(SIGKILL);
        if (mode == "stop-and-fail") {
            comm_barrier(comm);
            if (comm->rank == 0) raise(SIGSTOP);
            usleep(200000);     // the other is stopped by then
            _exit(3);
        }
        if (mode == "hangup" && attempt == 0) {
            if (comm->rank == 0) kill(getppid(), SIGHUP);
            comm_barrier(comm);
            if (comm->rank == 1) {
                usleep(300000);
                raise(SIGKILL);
            }
            comm_barrier(comm);
        }
        if (mode == "leave") {  // HOW: rank 1 does, in attempt 0
            if (comm->rank == 1 && (attempt > 0 || args[1] == "kill")) raise(SIGKILL);
            if (comm->rank == 1 && args[1] != "stop") _exit(std::atoi(args[1].c_str()));
            if (comm->rank == 1) raise(SIGSTOP);
            comm_barrier(comm);
        }
        if (mode == "signal") {
            if (comm->rank == 0) kill(getppid(), std::atoi(args[1].c_str()));
            while (!got) usleep(1000);
            comm_barrier(comm);
            comm_destroy(comm);
            _exit(got == std::atoi(args[1].c_str()) ? 75 : 1);
        }
        if (mode == "restart") {  // DIR SAVES: saves in the first SAVES attempts, then is killed; succeeds in attempt 2
            const std::string dir = args[1];
            if (comm->rank == 0) give_folder(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
            std::string out_dir, resume = args[2] == "0" ? "" : "given";
            const bool force = !follow_supervisor(&out_dir, &resume);
            const std::string said = format("%s|%s|%d\n", shown_path(out_dir).c_str(), resume.c_str(), force);
            if (comm->rank == 0) put(dir + "/log", read_file(dir + "/log") + said);
            if (comm->rank == 0 && attempt < std::atoi(args[2].c_str()))
                put(dir + "/ckpt/latest", format("step_%08d\n", attempt));
            comm_barrier(comm);
            if (attempt < 2 || args[2] == "0") raise(SIGKILL);
        }
    });
}

// The supervisor with ranks that are this program. A rank that outlives it becomes a child of this process.
struct Launched { int code; std::string said; double seconds; };
Launched launch(int np, int restarts, const std::vector<std::string>& args,
                const std::function<void(pid_t)>& meanwhile = nullptr) {
    std::vector<std::string> words = {
        format("--np=%d", np), format("--max-restarts=%d", restarts), program_path(), "rank"};
    words.insert(words.end(), args.begin(), args.end());
    const int log = memfd_create("stderr", MFD_CLOEXEC);
    fcntl(log, F_SETFL, O_APPEND);          // or two ranks that write at once could write at one place
    const double start = now_seconds();
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        dup2(log, 2);
        try {
            hand_over("--np", parent_folder(program_path()) + "/../launch", words);
        } catch (const Error& e) {
            print_error(e);
        }
        _exit(1);
    }
    if (meanwhile) meanwhile(pid);
    int status = 0;
    waitpid(pid, &status, 0);
    const bool alone = WIFSIGNALED(status) || (waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD);
    EXPECT(alone, "a child is left");
    return {exit_code(status), text_of(log), now_seconds() - start};
}

// What the launcher ends with and says, by what its ranks do.
TEST(np_ends_as_its_ranks_do) {
    const std::string again = "starting all 2 ranks again (1 of 1)";
    struct Ends { int np, restarts; std::vector<std::string> args; int code; std::string said; double least, most; };
    std::vector<Ends> rows = {
        {4, 0, {"collectives"}, 0, "", 0, 30}, {3, 3, {"fail"}, 66, "no input", 0, 4},
        {3, 0, {"kill"}, 69, "rank 1 (pid ", 0, 30}, {3, 0, {"kill"}, 69, "killed by signal 9", 0, 30},
        {2, 0, {"stop-and-fail"}, 3, "", 2.5, 6}};          // it ends those that are stopped
    for (const int s : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU})
        rows.push_back({2, 3, {"signal", std::to_string(s)}, 75, "", 0, 30});
    // A rank that leaves, whichever way, is a lost one to the others: they are all started again.
    for (const char* how : {"0", "75", "kill", "stop"}) rows.push_back({2, 1, {"leave", how}, 69, again, 0, 30});
    for (const Ends& row : rows) {
        const Launched l = launch(row.np, row.restarts, row.args);
        EXPECT(l.code == row.code && has(l.said, row.said) && l.seconds > row.least && l.seconds < row.most &&
                   (row.said != "no input" || count_of(l.said, row.said) == 1),
               "%s: code %d after %.1f s: %s", join(row.args, " ").c_str(), l.code, l.seconds, l.said.c_str());
    }
}

// As under nohup: the terminal's hangup does not count as a request to stop.
TEST(np_ignored_hangup) {
    const auto before = signal(SIGHUP, SIG_IGN);
    const Launched l = launch(2, 1, {"hangup"});
    signal(SIGHUP, before);
    EXPECT(l.code == 0, "code %d: %s", l.code, l.said.c_str());
}

// The run's folder goes before what was named, which may be another run by now, such as runs/last.
TEST(np_restarts) {
    const Folder dir;
    make_directories(dir / "ckpt");
    const auto run = [&](const char* saves, int restarts) {
        unlink((dir / "ckpt/latest").c_str());
        dir.add("log", "");
        const Launched l = launch(2, restarts, {"restart", dir.path, saves});
        return std::make_pair(l, read_file(dir / "log"));
    };
    const auto [twice, log] = run("2", 3);
    const auto [spent, log1] = run("2", 1);
    const auto [fruitless, log2] = run("0", 9);
    EXPECT(twice.code == 0, "code %d: %s", twice.code, twice.said.c_str());
    EXPECT_EQ(log, "|given|1\n" + dir.path + "|auto|0\n" + dir.path + "|auto|0\n");
    EXPECT(spent.code == 69 && count_of(log1, "\n") == 2, "code %d: %s", spent.code, log1.c_str());
    EXPECT_EQ(log2, "||1\n" + dir.path + "|auto|0\n");
    EXPECT(fruitless.code == 69 && has(fruitless.said, "giving up"), "code %d: %s", fruitless.code,
           fruitless.said.c_str());
}

TEST(killed_supervisor_takes_its_ranks_along) {
    board[0] = 0;
    launch(2, 0, {"signal", "0"}, [](pid_t pid) {
        usleep(700000);
        kill(pid, SIGKILL);
    });
    usleep(500000);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {}
    EXPECT(waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD, "a rank lives");
}

}  // namespace

int main(int argc, char** argv) {
    signal(SIGPIPE, SIG_IGN);
    set_program("test_comm");
    if (argc > 1 && std::string(argv[1]) == "rank") return rank_main(std::vector<std::string>(argv + 2, argv + argc));
    alarm(300);  // no test may hang
    prctl(PR_SET_CHILD_SUBREAPER, 1);       // orphans become this process's children
    for (const char* name : {"LOCKSTEP_SECRET", "LOCKSTEP_SECRET_FILE", "LOCKSTEP_JOB", "LOCKSTEP_HOST_ID"})
        unsetenv(name);
    return run_tests(argc, argv);
}
