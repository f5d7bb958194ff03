// rendezvous.cpp -- see rendezvous.h.
#include "src/comm/rendezvous.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <numeric>
#include <poll.h>
#include <set>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "src/base/common.h"

namespace {

constexpr size_t kMaxPending = 64;          // limit of connections without a valid Claim; 4 more per rank
constexpr double kNotice = 10;              // seconds after which a rank says what it waits for
constexpr double kLingers = 5;              // seconds for which a rank that cannot start tells the others so

// A Claim and an Answer have a fixed size, so that a stranger cannot make a rank allocate memory. code: 0, or the exit
// code with which the receiver must end; text: the error of that code.
struct Claim { PeerInfo peer; int32_t code; char text[508]; Digest nonce, proof; };
struct Answer { int32_t code; char text[508]; Digest proof; };
struct Connection { Socket socket; Digest nonce = {}; Claim claim = {}; };      // nonce: sent by the listener
using Connections = std::map<int, Connection>;              // by rank

struct Address {
    union { sockaddr any; sockaddr_un local; sockaddr_in tcp; sockaddr_storage storage = {}; };
    socklen_t size = sizeof storage;
};
using Addresses = std::vector<Address>;

template <size_t n> void copy_text(char (&to)[n], const std::string& from) { std::snprintf(to, n, "%s", from.c_str()); }

// Returns the proof of a Claim or an Answer. nonce: the one that was made by the side that checks the proof.
template <class T> Digest prove(const Meeting& m, const Digest& nonce, const T& message) {
    return hmac_sha256(m.key, bytes_of(nonce) + bytes_of(message).substr(0, offsetof(T, proof)));
}

// Compares in constant time, so that the time does not tell where the first difference is.
bool same(const Digest& a, const Digest& b) {
    int differ = 0;
    for (size_t i = 0; i < a.size(); i++) differ |= a[i] ^ b[i];
    return differ == 0;
}

Digest fresh_nonce() {
    Digest nonce;
    CHECK(getrandom(nonce.data(), nonce.size(), 0) == ssize_t(nonce.size()), "getrandom");
    return nonce;
}

// Warns once, after kNotice seconds, and says what a rank waits for.
struct Notice {
    double due = now_seconds() + kNotice;
    void say(const std::string& what) {
        if (now_seconds() < due) return;
        warn("waiting for %s", what.c_str());
        due = INFINITY;
    }
};

// ---- sockets

// Returns the address of an abstract Unix socket, which is in no file system and vanishes with its last descriptor.
// job: a hash of the job's name; pid: 0 for rank 0, whose pid the others do not know yet.
Address unix_address(uint64_t job, int rank, int pid) {
    Address a;
    a.local.sun_family = AF_UNIX;
    a.size = offsetof(sockaddr_un, sun_path) + 1 + std::snprintf(a.local.sun_path + 1, 64, "lockstep-%u-%016jx-%d-%d",
                                                                 unsigned(geteuid()), uintmax_t(job), rank, pid);
    return a;
}

std::string numeric(const Address& a) {
    char host[NI_MAXHOST] = "";
    getnameinfo(&a.any, a.size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
}

std::string describe(const Address& a) {
    if (a.any.sa_family == AF_UNIX) return "this host's job socket";
    return numeric(a) + format(":%d", ntohs(a.tcp.sin_port));       // sin6_port is at the same place
}

// Returns all addresses of a host, or none and the reason in *why. host "": every interface of this host.
Addresses resolve(const std::string& host, int port, std::string* why) {
    addrinfo hints = {AI_PASSIVE, AF_UNSPEC, SOCK_STREAM, 0, 0, nullptr, nullptr, nullptr}, *found = nullptr;
    const char* const name = host.empty() ? nullptr : host.c_str();
    if (const int error = getaddrinfo(name, std::to_string(port).c_str(), &hints, &found)) {
        *why = host + ": " + gai_strerror(error);
        return {};
    }
    Addresses all;
    for (const addrinfo* i = found; i; i = i->ai_next) {
        Address a;
        a.size = i->ai_addrlen;
        std::memcpy(&a.storage, i->ai_addr, a.size);
        const auto same_text = [&](const Address& other) { return describe(other) == describe(a); };
        if (std::ranges::none_of(all, same_text)) all.push_back(a);
    }
    freeaddrinfo(found);
    return all;
}

// Returns the addresses at which a rank listens, or none and the reason in *why.
Addresses addresses_of(const Meeting& m, int rank, std::string* why) {
    const PeerInfo& peer = m.peers[rank];
    if (m.master_addr.empty()) return {unix_address(m.job_hash, rank, rank ? peer.pid : 0)};
    if (rank == 0) return resolve(m.master_addr, m.master_port, why);
    return resolve(peer.address[0] ? peer.address : m.master_addr, int(peer.port), why);
}

Socket make_socket(const Address& a, int flags = 0) {
    Socket s(socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
    const int on = 1;
    const timeval patience = {2, 0};                        // for connect, in seconds
    setsockopt(s.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);     // accepted sockets inherit it
    setsockopt(s.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(s.fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);    // IPv4 has its own listener
    setsockopt(s.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return s;
}

// Listens at those `addresses` that belong to this host, at the first free port from `first` to `last` (0: any port).
// Sets me.port. kExitPeer: no address belongs to this host, or no port is free.
void listen_at(Meeting* m, Addresses addresses, int first, int last) {
    std::string why;
    bool taken = false;
    for (int tried = first; tried <= last; tried++) {
        m->listeners.clear();
        m->me.port = uint32_t(tried);
        why.clear();
        taken = false;
        for (Address& a : addresses) {
            if (a.any.sa_family != AF_UNIX) a.tcp.sin_port = htons(uint16_t(m->me.port));
            Socket s = make_socket(a, SOCK_NONBLOCK);
            if (bind(s.fd, &a.any, a.size) != 0 || listen(s.fd, 1024) != 0) {
                taken |= errno == EADDRINUSE;
                why += format("%s%s: %s", why.empty() ? "" : ", ", describe(a).c_str(), std::strerror(errno));
                continue;
            }
            getsockname(s.fd, &a.any, &a.size);
            if (a.any.sa_family != AF_UNIX) m->me.port = ntohs(a.tcp.sin_port);
            m->listeners.push_back(std::move(s));
        }
        if (!m->listeners.empty() && (!taken || first == 0)) return;
    }
    die(kExitPeer, "cannot listen: %s; %s", why.c_str(), taken
        ? "another program has it: MASTER_PORT, LOCKSTEP_PORTS or, on one host, LOCKSTEP_JOB must be this job's own"
        : "rank 0 is on this host, and MASTER_ADDR is not: set it to this host, with torchrun by --rdzv_endpoint");
}

// Returns whether a Unix socket's other side runs as this user; true for TCP, where the secret decides.
bool same_user(const Meeting& m, const Socket& s) {
    ucred peer = {};
    socklen_t size = sizeof peer;
    return !m.master_addr.empty() ||
           (getsockopt(s.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid());
}

[[noreturn]] void die_left(int rank, const char* where) {
    die(kExitPeer, "peer lost: rank %d (%s): left while the ranks were meeting; see its message", rank, where);
}

// ---- the listening side

// Answers a Claim with an error, or, if error.code is 0, with the message that all ranks have come.
void answer(const Meeting& m, const Connection& c, const Error& error) {
    Answer a = {error.code, {}, {}};
    copy_text(a.text, error.message);
    a.proof = prove(m, c.claim.nonce, a);
    send_all(c.socket.fd, &a, sizeof a, 1);
}

// Reads a Claim that has arrived completely. Returns whether its proof is right; if not, sets *stranger to its sender.
bool read_claim(const Meeting& m, Connection* c, std::string* stranger) {
    PeerInfo& peer = c->claim.peer;
    Address from;
    const bool tcp = !m.master_addr.empty() && getpeername(c->socket.fd, &from.any, &from.size) == 0;
    if (!receive_all(c->socket.fd, &c->claim, sizeof c->claim, 0)) return false;
    if (!same(c->claim.proof, prove(m, c->nonce, c->claim))) {
        const Answer nothing = {};          // its wrong proof says that the job or the secret differs
        *stranger = tcp ? numeric(from) : "this host";
        return send_all(c->socket.fd, &nothing, sizeof nothing, 0) && false;
    }
    for (char* end : {std::end(peer.address), std::end(peer.host), std::end(peer.host_id), std::end(c->claim.text)})
        end[-1] = 0;
    if (tcp && !is_loopback(numeric(from))) copy_text(peer.address, numeric(from));
    return true;
}

// Accepts the connections that wait, and sends a nonce to each. If there are too many, closes the oldest pending one.
void accept_waiting(const Meeting& m, std::vector<Connection>* pending) {
    for (const Socket& listener : m.listeners) {
        for (int fd; (fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
            Connection c = {Socket(fd), fresh_nonce()};
            if (!same_user(m, c.socket) || !send_all(fd, &c.nonce, sizeof c.nonce, 0)) continue;
            if (pending->size() >= kMaxPending + 4 * m.peers.size()) pending->erase(pending->begin());  // it may retry
            pending->push_back(std::move(c));
        }
        if (errno != EMFILE && errno != ENFILE) continue;
        if (pending->empty()) die(kExitOther, "accept: %s; raise it with ulimit -n", std::strerror(errno));
        pending->erase(pending->begin());
    }
}

// Waits up to 0.1 s for connections. Returns those whose valid Claim has come, and sets *stranger to the sender of one
// that is not of this job.
std::vector<Connection> read_claims(const Meeting& m, std::vector<Connection>* pending, std::string* stranger) {
    std::vector<pollfd> polls;
    for (const Socket& listener : m.listeners) polls.push_back({listener.fd, POLLIN, 0});
    poll(polls.data(), polls.size(), pending->empty() ? 100 : 5);
    accept_waiting(m, pending);
    std::vector<Connection> claims;
    for (Connection& c : std::exchange(*pending, {})) {
        const ssize_t n = recv(c.socket.fd, &c.claim, sizeof c.claim, MSG_PEEK | MSG_DONTWAIT);
        const bool partly = n > 0 ? n < ssize_t(sizeof c.claim) : n < 0 && errno == EAGAIN;
        if (partly) pending->push_back(std::move(c));
        else if (read_claim(m, &c, stranger)) claims.push_back(std::move(c));
    }
    return claims;
}

// Puts a connection into *all under its rank. If the launcher restarts ranks, *all keeps the process that began last;
// else kExitUsage: two processes claim one rank. Throws the error in the connection's Claim.
void take_place(const Meeting& m, Connection* c, std::set<int>* missing, Connections* all) {
    const PeerInfo& peer = c->claim.peer;
    const int rank = peer.rank;
    if (c->claim.code) die(c->claim.code, "rank %d (%s): %s", rank, peer.host, c->claim.text);
    const auto held = all->find(rank);
    if (missing->erase(rank)) {
        (*all)[rank] = std::move(*c);
        return;
    }
    if (!m.restarts_ranks)
        die(kExitUsage, "rank %d claimed twice: host %s, pid %d; set LOCKSTEP_JOB to tell two jobs apart", rank,
            peer.host, peer.pid);
    if (!m.met && held != all->end() && peer.began > held->second.claim.peer.began) std::swap(*c, held->second);
    answer(m, *c, {kExitPeer, format("rank %d: another process of this rank, begun later, has come", rank)});
    c->socket = Socket();
}

// Moves ranks that have disconnected from *all back to *missing if the launcher restarts ranks, else throws kExitPeer.
void drop_left(const Meeting& m, std::set<int>* missing, Connections* all) {
    std::erase_if(*all, [&](const auto& entry) {
        const auto& [rank, c] = entry;
        char byte;
        if (recv(c.socket.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) return false;
        if (!m.restarts_ranks || m.met) die_left(rank, c.claim.peer.host);
        warn("rank %d (%s) left while the ranks were meeting; waiting for its successor", rank, c.claim.peer.host);
        missing->insert(rank);
        return true;
    });
}

std::string list_ranks(const Meeting& m, const std::set<int>& ranks, const std::string& stranger) {
    std::string text = "rank";
    for (const int r : ranks) text += format(" %d", r);
    text += format(" of %zu", m.peers.size()) + m.assumed;
    if (!stranger.empty()) text += " (" + stranger + " knocks with another secret, job or number of ranks)";
    return text;
}

// Sends the error that ends this rank to the ranks of `claims`, and to those that connect within `seconds`. Returns
// early when all ranks have been told.
void tell_all(const Meeting& m, std::vector<Connection> claims, std::vector<Connection> pending, double seconds,
              const Error& error) {
    std::set<int> told = {m.me.rank};
    std::string stranger;
    for (const double end = now_seconds() + seconds;; claims = read_claims(m, &pending, &stranger)) {
        for (const Connection& c : claims) {
            answer(m, c, error);
            told.insert(c.claim.peer.rank);
        }
        if (told.size() == m.peers.size() || now_seconds() >= end) return;
    }
}

// Accepts each missing rank's connection. Answers all when the last has come, or with the error that ends this rank.
Connections accept_ranks(const Meeting& m, std::set<int> missing) {
    Connections all;
    std::vector<Connection> pending, claims;
    std::string stranger;
    // A rank that cannot connect to this one knows why and must report first, so this one waits longer.
    const double deadline = m.deadline + (m.met ? kLingers : 0);
    try {
        for (Notice notice; !missing.empty();) {
            const std::string ranks = list_ranks(m, missing, stranger);
            if (now_seconds() > deadline)
                die(kExitPeer, "peer missing: %s: not here in time; see its messages", ranks.c_str());
            notice.say(ranks);
            claims = read_claims(m, &pending, &stranger);
            for (Connection& c : claims) take_place(m, &c, &missing, &all);
            drop_left(m, &missing, &all);
        }
    } catch (const Error& error) {
        for (auto& [rank, c] : all) claims.push_back(std::move(c));
        const bool lingers = error.code != kExitPeer && !m.met;
        tell_all(m, std::move(claims), std::move(pending), lingers ? kLingers : 0, error);
        throw;
    }
    for (const auto& [rank, c] : all) answer(m, c, {});
    return all;
}

// ---- the connecting side

// Makes this rank listen for data connections, at the address of its socket `fd` to rank 0. If that is loopback and
// there may be other hosts (a host may resolve its own name to 127.0.1.1), it listens at every interface.
void listen_for_data(Meeting* m, int fd) {
    std::string none;
    Addresses at(1);
    getsockname(fd, &at[0].any, &at[0].size);
    if (m->master_addr.empty()) at[0] = unix_address(m->job_hash, m->me.rank, m->me.pid);
    else if (is_loopback(numeric(at[0])) && m->has_secret) at = resolve("", 0, &none);
    int first = 0, last = 0;
    if (const char* const ports = std::getenv("LOCKSTEP_PORTS")) {
        std::string_view rest = ports;
        const std::string_view low = next_word(&rest, '-'), high = low == ports ? low : rest;
        if (!parse_whole(low, &first) || !parse_whole(high, &last) || first < 1 || last < first || last > 65535)
            die(kExitUsage, "LOCKSTEP_PORTS: got \"%s\", want FIRST-LAST, ports from 1 to 65535", ports);
    }
    listen_at(m, at, first, last);
}

// Sends the Claim, with `error` in it, and reads the Answer. Returns true if the listener has proved that it belongs to
// the job, false if the connection closed or the time was up. kExitPeer: the proof is wrong. Throws the error in the
// Answer.
bool introduce(const Meeting& m, int fd, const std::string& to, const Error& error) {
    Digest nonce;
    Answer a;
    Claim claim = {m.me, error.code, {}, fresh_nonce(), {}};
    copy_text(claim.text, error.message);
    if (!receive_all(fd, &nonce, sizeof nonce, m.deadline - now_seconds())) return false;
    claim.proof = prove(m, nonce, claim);
    if (!send_all(fd, &claim, sizeof claim, 2)) return false;
    if (!receive_all(fd, &a, sizeof a, m.deadline + 1 - now_seconds())) return false;
    if (!same(a.proof, prove(m, claim.nonce, a)))
        die(kExitPeer, "not authenticated: %s: has another secret, job or number of ranks; give all hosts the same "
            "LOCKSTEP_SECRET, and each job its own MASTER_PORT", to.c_str());
    a.text[sizeof a.text - 1] = 0;
    if (a.code) die(a.code, "%s", a.text);
    return true;
}

// Connects to a rank and introduces this one; tries again until the deadline. kExitPeer: that rank cannot be reached.
Connection connect_to(Meeting* m, int rank, const Error& error = {}) {
    bool met = false;
    std::string tried;
    Notice notice;
    for (useconds_t pause = 2000; now_seconds() < m->deadline; pause = std::min<useconds_t>(2 * pause, 200000)) {
        bool refused = true;
        tried.clear();
        for (const Address& a : addresses_of(*m, rank, &tried)) {
            const std::string to = describe(a);
            Connection c = {make_socket(a)};
            const bool there = connect(c.socket.fd, &a.any, a.size) == 0;
            const int reason = errno == EINPROGRESS ? ETIMEDOUT : errno;
            refused &= !there && reason == ECONNREFUSED;
            tried += format("%s%s: %s", tried.empty() ? "" : ", ", to.c_str(),
                            there ? "no answer" : std::strerror(reason));
            if (!there) continue;
            if (!same_user(*m, c.socket))
                die(kExitPeer, "not authenticated: %s: is held by another user", to.c_str());
            if (!m->met && !error.code) listen_for_data(m, c.socket.fd);
            if (introduce(*m, c.socket.fd, to, error)) return c;
            met = true;
        }
        if (refused && met && !error.code) die_left(rank, tried.c_str());   // an error awaits the next listener
        notice.say(format("rank %d of %zu%s at %s", rank, m->peers.size(), m->assumed.c_str(), tried.c_str()));
        usleep(pause);
    }
    die(kExitPeer, "peer missing: rank %d of %zu: does not answer in time at %s; %s", rank, m->peers.size(),
        tried.c_str(), m->met ? "open that port, or others by LOCKSTEP_PORTS=FIRST-LAST on all hosts"
                              : "see its messages, or set MASTER_ADDR to rank 0's host on all ranks");
}

// ---- meetings

// Connects to each of `ranks` below this one, and then accepts a connection of each above. `ranks` ascend and include
// this one.
Connections meet(Meeting* m, const std::vector<int>& ranks) {
    const auto self = std::ranges::find(ranks, m->me.rank);
    Connections all;
    for (auto r = ranks.begin(); r < self; r++) all[*r] = connect_to(m, *r);
    all.merge(accept_ranks(*m, {self + 1, ranks.end()}));
    all[m->me.rank].claim.peer = m->me;
    return all;
}

// Returns a text that is equal on ranks that can share memory: on one boot of one machine and in the same namespaces.
std::string host_identity() {
    if (const char* const given = std::getenv("LOCKSTEP_HOST_ID")) return given;
    std::string id = read_kernel_file("/proc/sys/kernel/random/boot_id").substr(0, 36);
    char target[64];
    for (const char* name : {"/proc/self/ns/pid", "/proc/self/ns/user", "/proc/self/ns/net"})
        id.append(target, std::max<ssize_t>(readlink(name, target, sizeof target), 0));
    return id;
}

Meeting begin_meeting(const World& world, double patience) {
    Meeting m = {world};
    m.me.rank = world.rank;
    m.me.pid = getpid();
    m.me.began = std::chrono::system_clock::now().time_since_epoch().count();
    gethostname(m.me.host, sizeof m.me.host - 1);
    copy_text(m.me.host_id, host_identity());
    m.peers.assign(world.size, m.me);
    m.deadline = now_seconds() + patience;
    if (!m.assumed.empty()) m.assumed = format(" (all on this host, it is assumed: %s)", world.assumed.c_str());
    const std::string secret = m.master_addr.empty() ? "" : job_secret();
    m.has_secret = !secret.empty();
    m.key = secret + '\0' + world.job + '\0' + std::to_string(world.size);
    m.job_hash = hash_bytes(world.job.data(), world.job.size(), 0);
    // The default port is the same on all hosts, and below Linux's ephemeral ports.
    if (m.master_port == 0) m.master_port = 20000 + int(m.job_hash % 10000);
    return m;
}

// Returns the addresses of rank 0; waits while its name has none yet. kExitPeer: it gets none in time. kExitUsage: they
// are not loopback, and there is no secret.
Addresses find_rank_0(const Meeting& m) {
    std::string why;
    Addresses at;
    for (Notice notice; (at = addresses_of(m, 0, &why)).empty(); usleep(200000)) {
        if (now_seconds() > m.deadline)
            die(kExitPeer, "MASTER_ADDR: %s; set it to rank 0's host on all ranks", why.c_str());
        notice.say("an address of rank 0: MASTER_ADDR: " + why);
    }
    const bool loopback = std::ranges::all_of(at, [](const Address& a) { return is_loopback(numeric(a)); });
    if (!m.master_addr.empty() && !loopback && !m.has_secret)
        die(kExitUsage, "no secret: %s: only loopback is served without one; give all hosts the same "
            "LOCKSTEP_SECRET, or LOCKSTEP_SECRET_FILE=a file of mode 0600", m.master_addr.c_str());
    // On many distributions a host resolves its own name to 127.0.1.1, where other hosts would not find rank 0. So rank
    // 0 listens at every interface.
    return loopback && m.has_secret ? resolve("", m.master_port, &why) : at;
}

// Tells rank 0, or from rank 0 all ranks, that this rank ends with an error. Returns the error in reply; code 0: none.
Error tell(const World& world, const Error& error, double patience) {
    try {
        Meeting m = begin_meeting(world, patience);
        if (world.rank > 0) {
            connect_to(&m, 0, error);
            return {};
        }
        listen_at(&m, find_rank_0(m), m.master_port, m.master_port);
        tell_all(m, {}, {}, kLingers, {error.code, "rank 0: " + error.message});
    } catch (const Error& reply) {
        return reply;
    }
    return {};
}

}  // namespace

int move_some(int fd, bool out, Bytes* part) {
    if (part->size == 0) return 0;
    const ssize_t n = out ? send(fd, part->data, part->size, MSG_DONTWAIT | MSG_NOSIGNAL)
                          : recv(fd, part->data, part->size, MSG_DONTWAIT);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    *part = {part->data + n, part->size - size_t(n)};
    return 1;
}

bool move_all(int fd, bool out, Bytes part, double seconds) {
    const double deadline = now_seconds() + seconds;
    while (part.size > 0) {
        const int moved = move_some(fd, out, &part);
        const double left = deadline - now_seconds();
        if (moved < 0 || (moved == 0 && left <= 0)) return false;
        pollfd p = {fd, short(out ? POLLOUT : POLLIN), 0};
        if (moved == 0) poll(&p, 1, int(std::min(left, 10.0) * 1e3) + 1);
    }
    return true;
}

Digest hmac_sha256(const std::string& key, const std::string& message) {
    std::string inner = key.size() > 64 ? bytes_of(sha256(key)) : key;
    inner.resize(64);
    std::string outer = inner;
    for (char& c : inner) c ^= 0x36;
    for (char& c : outer) c ^= 0x5c;
    return sha256(outer + bytes_of(sha256(inner + message)));
}

std::string job_secret() {
    if (const char* secret = std::getenv("LOCKSTEP_SECRET")) return secret;
    const char* path = std::getenv("LOCKSTEP_SECRET_FILE");
    if (!path) return "";
    struct stat info = {};
    const bool found = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    if (!found || (info.st_mode & 077) || (info.st_uid != 0 && info.st_uid != geteuid()))
        die(kExitUsage, "LOCKSTEP_SECRET_FILE: %s: got mode %04o of user %u, want a file of your own of mode 0600; "
            "chmod 600 it", path, unsigned(info.st_mode & 07777), unsigned(info.st_uid));
    const std::string secret = read_file(path);
    return secret.substr(0, secret.find_last_not_of("\r\n") + 1);
}

Meeting meet_ranks(const World& world, int memory, double patience) {
    const bool first = world.rank == 0;
    Meeting m = begin_meeting(world, patience);
    m.me.memory = memory;
    if (world.size == 1) return m;
    const Addresses rank_0 = find_rank_0(m);
    if (first) listen_at(&m, rank_0, m.master_port, m.master_port);
    std::vector<int> ranks(world.size);    // in this rank's meeting
    std::iota(ranks.begin(), ranks.end(), 0);
    if (!first) ranks = {0, world.rank};
    Connections all = meet(&m, ranks);
    for (const auto& [rank, c] : all) m.peers[rank] = c.claim.peer;
    const Bytes table = {m.peers.data(), m.peers.size() * sizeof(PeerInfo)};
    for (auto& [rank, c] : all) {
        if (rank != world.rank && !move_all(c.socket.fd, first, table, 5))
            die_left(rank, first ? c.claim.peer.host : "where it was met");
        m.control.push_back(std::move(c.socket));
    }
    m.met = true;
    return m;
}

std::vector<Socket> meet_peers(Meeting* m, const std::vector<int>& ranks) {
    std::vector<Socket> sockets;
    for (auto& [rank, c] : meet(m, ranks)) sockets.push_back(std::move(c.socket));
    return sockets;
}

void end_before_meeting(const World& world, const Error& error) {
    // An error "rank N ..." comes from a meeting, which has told it to the other ranks.
    const bool tells = world.size > 1 && error.code != kExitPeer && !error.message.starts_with("rank ");
    const Error reply = tells && world.rank > 0 ? tell(world, error, kLingers) : Error{};
    if (reply.message != "rank 0: " + error.message) print_error(error);    // else rank 0 has said the same
    if (tells && world.rank == 0) tell(world, error, kLingers);
}
