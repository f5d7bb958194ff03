// rendezvous.cpp -- see rendezvous.h.
#include "src/comm/rendezvous.h"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <set>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace {

constexpr size_t kMaxPending = 64;          // limit of connections without a valid Claim;
                                            // 4 more per rank
constexpr double kNotice = 10;              // seconds after which a rank says what it waits for
constexpr double kLingers = 5;              // seconds in which a rank that ends while meeting
                                            // tells the others so

// A Claim and an Answer have a fixed size, so that a stranger cannot make a rank allocate memory.
// code: 0, or the exit code with which the receiver must end; text: the error of that code.
struct Claim { PeerInfo peer; int32_t code; char text[508]; Digest nonce, proof; };
struct Answer { int32_t code; char text[508]; Digest proof; };
// nonce: sent by the listener.
struct Connection { Socket socket; Digest nonce = {}; Claim claim = {}; };
using Connections = std::multimap<int, Connection>;         // by rank

struct Address {
    union { sockaddr any; sockaddr_un local; sockaddr_in tcp; sockaddr_storage storage = {}; };
    socklen_t size = sizeof storage;
};
using Addresses = std::vector<Address>;

template <size_t n> void copy_text(char (&to)[n], const std::string& from) {
    std::snprintf(to, n, "%s", from.c_str());
}

// Returns the proof of a Claim or an Answer. nonce: the one that was made by the side that
// checks the proof.
template <class T> Digest prove(const Meeting& m, const Digest& nonce, const T& message) {
    return hmac_sha256(m.key, bytes_of(nonce) + bytes_of(message).substr(0, offsetof(T, proof)));
}

// Returns whether two digests are equal, in a time that does not tell where they differ.
bool equal(const Digest& a, const Digest& b) {
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

// Returns the address of an abstract Unix socket, which is in no file system and vanishes with its
// last descriptor. job: a hash of the job's name; pid: 0 for rank 0, whose pid the others do not
// know yet.
Address unix_address(uint64_t job, int rank, int pid) {
    Address a;
    a.local.sun_family = AF_UNIX;
    a.size = offsetof(sockaddr_un, sun_path) + 1 +
             std::snprintf(a.local.sun_path + 1, 64, "lockstep-%u-%016jx-%d-%d", unsigned(geteuid()),
                           uintmax_t(job), rank, pid);
    return a;
}

std::string numeric(const Address& a) {
    char host[NI_MAXHOST] = "";
    getnameinfo(&a.any, a.size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
}

std::string describe(const Address& a) {
    if (a.any.sa_family == AF_UNIX) return "this host's job socket";
    // sin6_port is at the same place.
    return numeric(a) + format(":%d", ntohs(a.tcp.sin_port));
}

// Adds "ADDRESS: REASON" to a list.
void add_reason(std::string* all, const Address& a, const char* reason) {
    *all += format("%s%s: %s", all->empty() ? "" : ", ", describe(a).c_str(), reason);
}

bool all_loopback(const Addresses& all) {
    return std::ranges::all_of(all, [](const Address& a) { return is_loopback(numeric(a)); });
}

// Returns all addresses of a host, or none and the reason in *why. host "": every interface of this
// host.
Addresses resolve(const std::string& host, int port, std::string* why) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_flags = AI_PASSIVE;
    hints.ai_socktype = SOCK_STREAM;
    const char* const name = host.empty() ? nullptr : host.c_str();
    if (const int error = getaddrinfo(name, std::to_string(port).c_str(), &hints, &found)) {
        *why = host + ": " + gai_strerror(error);
        return {};
    }
    Addresses all;
    std::set<std::string> seen;
    for (const addrinfo* i = found; i; i = i->ai_next) {
        Address a;
        a.size = i->ai_addrlen;
        std::memcpy(&a.storage, i->ai_addr, a.size);
        if (seen.insert(describe(a)).second) all.push_back(a);
    }
    freeaddrinfo(found);
    return all;
}

// Returns the addresses at which a rank can be reached, or none and the reason in *why. kExitUsage:
// one of them is not loopback, and there is no secret.
Addresses addresses_of(const Meeting& m, int rank, std::string* why) {
    const PeerInfo& peer = m.peers[rank];
    if (m.master_addr.empty()) return {unix_address(m.job_hash, rank, rank ? peer.pid : 0)};
    const Addresses all = resolve(peer.address[0] ? peer.address : m.master_addr, int(peer.port), why);
    if (!m.has_secret && !all_loopback(all))
        die(kExitUsage, "no secret: %s: only loopback is served without one; give all hosts the same "
            "LOCKSTEP_SECRET, or LOCKSTEP_SECRET_FILE=a file of mode 0600", m.master_addr.c_str());
    return all;
}

// Returns the addresses at which this rank listens. Those of rank 0 are MASTER_ADDR's. With a
// secret it listens at every interface if its host resolves MASTER_ADDR to 127.0.1.1, as many
// distributions do, or not at all yet. So does any other rank.
Addresses own_addresses(const Meeting& m, std::string* why) {
    const Addresses at = addresses_of(m, m.me.rank, why);
    return m.has_secret && (m.me.rank > 0 || all_loopback(at)) ? resolve("", 0, why) : at;
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

// Listens at this rank's addresses: rank 0 at MASTER_PORT, any other rank at the first free port of
// LOCKSTEP_PORTS, or at any. Sets the port. kExitPeer: no address belongs to this host, or no port
// is free.
void start_listening(Meeting* m) {
    int first = m->me.rank ? 0 : m->master_port, last = first;
    if (const char* const ports = std::getenv("LOCKSTEP_PORTS"); ports && m->me.rank) {
        std::string_view rest = ports;
        const bool numbers = parse_whole(next_word(&rest, '-'), &first) && parse_whole(rest, &last);
        if (!numbers || first < 1 || last < first || last > 65535)
            die(kExitUsage, "LOCKSTEP_PORTS: got \"%s\", want FIRST-LAST, ports from 1 to 65535", ports);
    }
    std::string why;
    bool taken = false;
    for (; first <= last; first++) {
        taken = false;
        why.clear();
        m->listeners.clear();
        m->me.port = uint32_t(first);
        for (Address& a : own_addresses(*m, &why)) {
            if (a.any.sa_family != AF_UNIX) a.tcp.sin_port = htons(uint16_t(m->me.port));
            Socket s = make_socket(a, SOCK_NONBLOCK);
            if (bind(s.fd, &a.any, a.size) != 0 || listen(s.fd, 1024) != 0) {
                taken |= errno == EADDRINUSE;
                add_reason(&why, a, std::strerror(errno));
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

// Returns whether a Unix socket's other side runs as this user; true for TCP, where the secret
// decides.
bool same_user(const Meeting& m, int fd) {
    ucred peer = {};
    socklen_t size = sizeof peer;
    return !m.master_addr.empty() ||
           (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid());
}

std::string left_text(int rank, const char* where) {
    return format("peer lost: rank %d (%s): left while the ranks were meeting; see its message", rank, where);
}

// ---- the listening side

// Answers a Claim with an error, or, if error.code is 0, with the message that all ranks have come.
void answer(const Meeting& m, const Connection& c, const Error& error) {
    Answer a = {error.code, {}, {}};
    copy_text(a.text, error.message);
    a.proof = prove(m, c.claim.nonce, a);
    send_all(c.socket.fd, &a, sizeof a, 1);
}

// Returns whether the proof of a Claim is right. If so, mends its texts and notes from where it
// came.
bool check_claim(const Meeting& m, Connection* c) {
    PeerInfo& peer = c->claim.peer;
    Address from;
    if (!equal(c->claim.proof, prove(m, c->nonce, c->claim))) {
        const Answer nothing = {};          // its wrong proof says that the job or the
                                            // secret differs
        return send_all(c->socket.fd, &nothing, sizeof nothing, 0) && false;
    }
    for (char* end : {std::end(peer.address), std::end(peer.host), std::end(peer.host_id), std::end(c->claim.text)})
        end[-1] = 0;
    if (m.master_addr.empty() || getpeername(c->socket.fd, &from.any, &from.size) != 0) return true;
    if (!is_loopback(numeric(from))) copy_text(peer.address, numeric(from));
    return true;
}

// Accepts connections, and sends a nonce to each. Returns those whose valid Claim has come. If too
// many are pending, closes the oldest.
std::vector<Connection> read_claims(const Meeting& m, std::vector<Connection>* pending) {
    for (const Socket& listener : m.listeners) {
        for (int fd; (fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
            Connection c = {Socket(fd), fresh_nonce()};
            if (!same_user(m, fd) || !send_all(fd, &c.nonce, sizeof c.nonce, 0)) continue;
            // It may retry.
            if (pending->size() >= kMaxPending + 4 * m.peers.size()) pending->erase(pending->begin());
            pending->push_back(std::move(c));
        }
    }
    std::vector<Connection> claims;
    for (Connection& c : std::exchange(*pending, {})) {
        const int got = receive_message(c.socket.fd, &c.claim, sizeof c.claim);
        if (got == 0) pending->push_back(std::move(c));
        else if (got > 0 && check_claim(m, &c)) claims.push_back(std::move(c));
    }
    return claims;
}

std::string list_ranks(const Meeting& m, const std::set<int>& ranks) {
    std::string text = "rank";
    for (const int r : ranks) text += format(" %d", r);
    return text + format(" of %zu", m.peers.size()) + m.assumed;
}

// Accepts a connection of each missing rank, and answers all when the last has come. If there is an
// error - the one with which this rank begins, that of a Claim, or a rank that left - answers with
// the first one, and throws it. Ranks that have not come by then may still do so for kLingers
// seconds, so that they get it, too.
Connections accept_ranks(const Meeting& m, std::set<int> missing, Error error = {}) {
    Connections came;
    std::vector<Connection> pending;
    // A rank that cannot connect to this one knows why and must report first, so this one waits
    // longer.
    double deadline = m.deadline + (m.met ? kLingers : 0);
    const auto fail = [&](int code, const std::string& message) {
        if (error.code) return;
        error = {code, message};
        deadline = code == kExitPeer ? 0 : std::min(deadline, now_seconds() + kLingers);
    };
    for (Notice notice; !missing.empty() && now_seconds() < deadline;) {
        notice.say(list_ranks(m, missing));
        for (Connection& c : read_claims(m, &pending)) {
            const PeerInfo& peer = c.claim.peer;
            if (c.claim.code)
                fail(c.claim.code, format("rank %d (%s): %s", peer.rank, peer.host, c.claim.text));
            else if (!missing.contains(peer.rank))
                fail(kExitUsage, format("rank %d claimed twice: host %s, pid %d; set LOCKSTEP_JOB to tell two jobs "
                                        "apart", peer.rank, peer.host, peer.pid));
            missing.erase(peer.rank);
            came.emplace(peer.rank, std::move(c));
        }
        for (const auto& [rank, c] : came) {
            char byte;
            if (receive_message(c.socket.fd, &byte, 1) != 0)
                fail(kExitPeer, left_text(rank, c.claim.peer.host));
        }
        usleep(2000);
    }
    if (!missing.empty())
        fail(kExitPeer, "peer missing: " + list_ranks(m, missing) + ": not here in time; see its messages");
    for (const auto& [rank, c] : came) answer(m, c, error);
    if (error.code) throw error;
    return came;
}

// ---- the connecting side

// Sends the Claim, with `error` in it, and reads the Answer. Returns true if the listener has
// proved that it belongs to the job, false if the connection closed or the time was up. kExitPeer:
// the proof is wrong. Throws the error in the Answer.
bool introduce(const Meeting& m, int fd, const std::string& to, const Error& error) {
    Digest nonce;
    Answer a;
    Claim claim = {m.me, error.code, {}, fresh_nonce(), {}};
    copy_text(claim.text, error.message);
    if (!receive_all(fd, &nonce, sizeof nonce, m.deadline - now_seconds())) return false;
    claim.proof = prove(m, nonce, claim);
    if (!send_all(fd, &claim, sizeof claim, 2)) return false;
    if (!receive_all(fd, &a, sizeof a, m.deadline + 1 - now_seconds())) return false;
    if (!same_user(m, fd) || !equal(a.proof, prove(m, claim.nonce, a)))
        die(kExitPeer, "not authenticated: %s: has another secret, job, user or number of ranks; give all hosts the "
            "same LOCKSTEP_SECRET, and each job its own MASTER_PORT", to.c_str());
    a.text[sizeof a.text - 1] = 0;
    if (a.code) die(a.code, "%s", a.text);
    return true;
}

// Connects to a rank and introduces this one; tries again until the deadline. kExitPeer: that rank
// cannot be reached.
Socket connect_to(const Meeting& m, int rank, const Error& error = {}) {
    bool met = false;
    std::string tried;
    Notice notice;
    while (now_seconds() < m.deadline) {
        bool refused = true;
        tried.clear();
        for (const Address& a : addresses_of(m, rank, &tried)) {
            Socket s = make_socket(a);
            const bool there = connect(s.fd, &a.any, a.size) == 0;
            const int reason = errno == EINPROGRESS ? ETIMEDOUT : errno;
            refused &= !there && reason == ECONNREFUSED;
            add_reason(&tried, a, there ? "no answer" : std::strerror(reason));
            if (!there) continue;
            if (introduce(m, s.fd, describe(a), error)) return s;
            met = true;
        }
        if (refused && met && !error.code)      // an error awaits the next listener
            throw Error{kExitPeer, left_text(rank, tried.c_str())};
        notice.say(format("rank %d of %zu%s at %s", rank, m.peers.size(), m.assumed.c_str(), tried.c_str()));
        usleep(20000);
    }
    die(kExitPeer, "peer missing: rank %d of %zu: does not answer in time at %s; %s", rank, m.peers.size(),
        tried.c_str(), m.met ? "open that port, or others by LOCKSTEP_PORTS=FIRST-LAST on all hosts"
                             : "see its messages, or set MASTER_ADDR to rank 0's host on all ranks");
}

// ---- meetings

// Returns a text that is equal on ranks that can share memory: on one boot of one machine and in
// the same namespaces.
std::string host_identity() {
    if (const char* const given = std::getenv("LOCKSTEP_HOST_ID")) return given;
    std::string id = read_kernel_file("/proc/sys/kernel/random/boot_id").substr(0, 36);
    char target[64];
    for (const char* name : {"/proc/self/ns/pid", "/proc/self/ns/user", "/proc/self/ns/net"})
        id.append(target, std::max<ssize_t>(readlink(name, target, sizeof target), 0));
    return id;
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

int receive_message(int fd, void* data, size_t bytes) {
    const ssize_t n = recv(fd, data, bytes, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return -1;
    return n == ssize_t(bytes) && recv(fd, data, bytes, 0) == n;
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

Meeting meet_ranks(const World& world, int memory, double patience, const Error& error) {
    Meeting m = {world};
    const bool first = world.rank == 0;
    m.me.rank = world.rank;
    m.me.memory = memory;
    m.me.pid = getpid();
    gethostname(m.me.host, sizeof m.me.host - 1);
    copy_text(m.me.host_id, host_identity());
    m.deadline = now_seconds() + patience;
    if (!m.assumed.empty()) m.assumed = format(" (all on this host, it is assumed: %s)", world.assumed.c_str());
    const std::string secret = m.master_addr.empty() ? "" : job_secret();
    m.has_secret = !secret.empty();
    m.key = secret + '\0' + world.job + '\0' + std::to_string(world.size);
    m.job_hash = hash_bytes(world.job.data(), world.job.size(), 0);
    // The default port is the same on all hosts, and below Linux's ephemeral ports.
    if (m.master_port == 0) m.master_port = 20000 + int(m.job_hash % 10000);
    m.peers.assign(world.size, m.me);
    m.peers[0].port = uint32_t(m.master_port);
    if (world.size == 1) return m;
    if (first || !error.code) start_listening(&m);
    Connections others;
    std::set<int> missing;
    for (int r = 1; r < world.size; r++) missing.insert(r);
    if (first) others = accept_ranks(m, missing, error);
    else others.emplace(0, Connection{connect_to(m, 0, error)});
    for (const auto& [rank, c] : others)
        if (first) m.peers[rank] = c.claim.peer;
    const Bytes table = {m.peers.data(), m.peers.size() * sizeof(PeerInfo)};
    m.control.resize(first ? world.size : 1);
    for (auto& [rank, c] : others) {
        if (!move_all(c.socket.fd, first, table, 5))
            throw Error{kExitPeer, left_text(rank, first ? m.peers[rank].host : "where it was met")};
        m.control[rank] = std::move(c.socket);
    }
    m.met = true;
    return m;
}

std::vector<Socket> meet_peers(const Meeting& m, const std::vector<int>& ranks) {
    std::vector<Socket> sockets;
    std::set<int> higher;
    for (const int r : ranks) {
        if (r < m.me.rank) sockets.push_back(connect_to(m, r));
        if (r > m.me.rank) higher.insert(r);
    }
    sockets.emplace_back();
    for (auto& [rank, c] : accept_ranks(m, higher)) sockets.push_back(std::move(c.socket));
    return sockets;
}

void end_before_meeting(const World& world, const Error& error) {
    // An error "rank N ..." comes from a meeting, which has told it to the other ranks.
    const bool tells = world.size > 1 && error.code != kExitPeer && !error.message.starts_with("rank ");
    const std::string of_first = "rank 0: " + error.message;
    Error reply;
    if (!tells || world.rank == 0) print_error(error);
    if (!tells) return;
    try {
        meet_ranks(world, 0, kLingers, {error.code, world.rank == 0 ? of_first : error.message});
    } catch (const Error& e) {
        reply = e;
    }
    // Else rank 0 has said the same.
    if (world.rank > 0 && reply.message != of_first) print_error(error);
}
