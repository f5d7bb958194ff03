// rendezvous.cpp -- see rendezvous.h.
#include "src/comm/rendezvous.h"
#include <algorithm>
#include <cerrno>
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

constexpr size_t kMaxPending = 64;          // connections that have proven nothing, and 4 more per rank

struct Claim { PeerInfo peer; Digest nonce, proof; };       // of fixed size: a stranger costs no memory
struct Connection { Socket socket; Digest nonce = {}; Claim claim = {}; };      // nonce: of the lower rank
using Connections = std::map<int, Connection>;              // by rank

struct Address {
    union { sockaddr any; sockaddr_un local; sockaddr_in tcp; sockaddr_storage storage = {}; };
    socklen_t size = sizeof storage;
    std::string text = "";
};

template <size_t n> void copy_text(char (&to)[n], const std::string& from) { std::snprintf(to, n, "%s", from.c_str()); }

// nonce: of the side that checks the proof.
Digest prove(const Meeting& m, const Digest& nonce, const Claim& claim) {
    return hmac_sha256(m.key, bytes_of(nonce) + bytes_of(claim).substr(0, offsetof(Claim, proof)));
}

// Compares in the same time wherever the first difference is.
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

// ---- sockets

// Names an abstract Unix socket: it is in no file system and goes with its last descriptor. job: a hash of its name.
Address unix_address(uint64_t job) {
    Address a;
    a.text = "this host's job socket";
    a.local.sun_family = AF_UNIX;
    a.size = offsetof(sockaddr_un, sun_path) + 1 + std::snprintf(a.local.sun_path + 1, 64, "lockstep-%u-%016jx",
                                                                 unsigned(geteuid()), uintmax_t(job));
    return a;
}

// host "": to listen at, every interface with AI_PASSIVE in flags, else loopback.
Address resolve(const std::string& host, int port, int family = AF_UNSPEC, int flags = 0) {
    addrinfo hints = {flags, family, SOCK_STREAM, 0, 0, nullptr, nullptr, nullptr}, *found = nullptr;
    const char* const name = host.empty() ? nullptr : host.c_str();
    if (const int error = getaddrinfo(name, std::to_string(port).c_str(), &hints, &found))
        die(kExitPeer, "MASTER_ADDR: %s: %s; set it to rank 0's host on all ranks", host.c_str(), gai_strerror(error));
    Address a;
    a.text = format("%s:%d", host.c_str(), port);
    a.size = found->ai_addrlen;
    std::memcpy(&a.storage, found->ai_addr, a.size);
    freeaddrinfo(found);
    return a;
}

std::string numeric(const Address& a) {
    char host[NI_MAXHOST] = "";
    getnameinfo(&a.any, a.size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
}

Socket make_socket(const Address& a, int flags = 0) {
    Socket s(socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
    const int on = 1;
    const timeval patience = {2, 0};                        // of connect
    setsockopt(s.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);     // connections that it accepts inherit this
    setsockopt(s.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(s.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return s;
}

Socket listen_at(const Address& a) {
    Socket s = make_socket(a, SOCK_NONBLOCK);
    if (bind(s.fd, &a.any, a.size) != 0 || listen(s.fd, 1024) != 0)
        die(kExitPeer, "cannot listen: %s: %s; MASTER_ADDR must be rank 0's host, and MASTER_PORT, or on one host "
            "LOCKSTEP_JOB, this job's own", a.text.c_str(), std::strerror(errno));
    return s;
}

// Returns whether this user is on the other side of a Unix socket; true for TCP, where the secret decides.
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

// Reads a Claim that is there as a whole. Returns whether its proof is right.
bool read_claim(const Meeting& m, Connection* c) {
    PeerInfo& peer = c->claim.peer;
    const Digest nothing = {};              // tells a rank of another job or secret why it is dropped
    if (!receive_all(c->socket.fd, &c->claim, sizeof c->claim, 0)) return false;
    if (!same(c->claim.proof, prove(m, c->nonce, c->claim)))
        return send_all(c->socket.fd, &nothing, sizeof nothing, 0) && false;
    for (char* end : {std::end(peer.address), std::end(peer.host), std::end(peer.host_id)}) end[-1] = 0;
    Address from;
    if (!m.master_addr.empty() && getpeername(c->socket.fd, &from.any, &from.size) == 0 && !is_loopback(numeric(from)))
        copy_text(peer.address, numeric(from));
    return true;
}

// Accepts the connections that wait, and sends each a nonce. Without descriptors for more the oldest goes.
void accept_waiting(const Meeting& m, int listener, std::vector<Connection>* pending) {
    for (int fd; (fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
        Connection c = {Socket(fd), fresh_nonce()};
        if (!same_user(m, c.socket) || !send_all(fd, &c.nonce, sizeof c.nonce, 0)) continue;
        if (pending->size() >= kMaxPending + 4 * m.peers.size()) pending->erase(pending->begin());      // may try again
        pending->push_back(std::move(c));
    }
    if (errno != EMFILE && errno != ENFILE) return;
    if (pending->empty()) die(kExitOther, "accept: %s; raise it with ulimit -n", std::strerror(errno));
    pending->erase(pending->begin());
}

// Accepts a connection of each missing rank, and tells them when all are there.
Connections accept_ranks(const Meeting& m, int listener, std::set<int> missing) {
    Connections all;
    std::vector<Connection> pending;
    for (double next_notice = now_seconds() + 10; !missing.empty();) {
        if (const double now = now_seconds(); now > std::min(next_notice, m.deadline)) {
            std::string ranks = "rank";
            for (const int r : missing) ranks += format(" %d", r);
            ranks += format(" of %zu", m.peers.size());
            if (now > m.deadline) die(kExitPeer, "peer missing: %s: not here in time; see its messages", ranks.c_str());
            warn("waiting for %s", ranks.c_str());
            next_notice += 10;
        }
        pollfd polled = {listener, POLLIN, 0};
        poll(&polled, 1, pending.empty() ? 100 : 5);
        accept_waiting(m, listener, &pending);
        for (Connection& c : std::exchange(pending, {})) {
            const PeerInfo& peer = c.claim.peer;
            const ssize_t n = recv(c.socket.fd, &c.claim, sizeof c.claim, MSG_PEEK | MSG_DONTWAIT);
            const bool partly = n > 0 ? n < ssize_t(sizeof c.claim) : n < 0 && errno == EAGAIN;
            if (partly) pending.push_back(std::move(c));
            if (partly || !read_claim(m, &c)) continue;
            if (!missing.erase(peer.rank))
                die(kExitUsage, "rank %d claimed twice: host %s, pid %d; set LOCKSTEP_JOB to tell two jobs apart",
                    peer.rank, peer.host, peer.pid);
            all[peer.rank] = std::move(c);
        }
        char byte;
        for (const auto& [rank, c] : all)
            if (recv(c.socket.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN)
                die_left(rank, c.claim.peer.host);
    }
    for (const auto& [rank, c] : all)
        send_all(c.socket.fd, hmac_sha256(m.key, bytes_of(c.claim.nonce)).data(), sizeof(Digest), 1);
    return all;
}

// ---- the connecting side

// Returns true when the listener has proved that it is of the job, false if it closed. Error 69: it proves nothing.
bool introduce(const Meeting& m, int fd, const std::string& to) {
    Digest nonce, proof;
    Claim claim = {m.me, fresh_nonce(), {}};
    if (!receive_all(fd, &nonce, sizeof nonce, m.deadline - now_seconds())) return false;
    claim.proof = prove(m, nonce, claim);
    if (!send_all(fd, &claim, sizeof claim, 2)) return false;
    if (!receive_all(fd, &proof, sizeof proof, m.deadline + 1 - now_seconds())) return false;
    if (!same(proof, hmac_sha256(m.key, bytes_of(claim.nonce))))
        die(kExitPeer, "not authenticated: %s: has another secret, job or number of ranks; give all hosts the same "
            "LOCKSTEP_SECRET, and each job its own MASTER_PORT", to.c_str());
    return true;
}

Connection connect_to(const Meeting& m, const Address& address, int rank) {
    const char* const to = address.text.c_str();
    bool met = false;
    for (useconds_t pause = 2000; now_seconds() < m.deadline; pause = std::min<useconds_t>(2 * pause, 200000)) {
        Connection c = {make_socket(address)};
        const bool there = connect(c.socket.fd, &address.any, address.size) == 0;
        const bool refused = !there && errno == ECONNREFUSED;
        if (there && !same_user(m, c.socket)) die(kExitPeer, "not authenticated: %s: is held by another user", to);
        if (there && introduce(m, c.socket.fd, to)) return c;
        if (refused && met) break;
        met |= there;
        usleep(pause);
    }
    if (met) die_left(rank, to);
    die(kExitPeer, "peer missing: rank %d of %zu: does not answer in time at %s; see its messages", rank,
        m.peers.size(), to);
}

// ---- meetings

// Connects to the lower of `ranks`, one after the other, and accepts the higher. They ascend and include this one.
template <class F>
Connections meet(const Meeting& m, int listener, const std::vector<int>& ranks, const F& address_of) {
    const auto self = std::ranges::find(ranks, m.me.rank);
    Connections all;
    for (auto r = ranks.begin(); r < self; r++) all[*r] = connect_to(m, address_of(*r), *r);
    all.merge(accept_ranks(m, listener, {self + 1, ranks.end()}));
    all[m.me.rank].claim.peer = m.me;
    return all;
}

// Ranks can share memory on one boot of a machine, in the same namespaces.
std::string host_identity() {
    if (const char* const given = std::getenv("LOCKSTEP_HOST_ID")) return given;
    std::string id = read_kernel_file("/proc/sys/kernel/random/boot_id").substr(0, 36);
    char target[64];
    for (const char* name : {"/proc/self/ns/pid", "/proc/self/ns/user", "/proc/self/ns/net"})
        id.append(target, std::max<ssize_t>(readlink(name, target, sizeof target), 0));
    return id;
}

// Makes the listener for data. Returns the address of rank 0.
Address prepare_tcp(Meeting* m, const World& world, uint64_t job, bool secret) {
    // The default is equal on all hosts and below Linux's ephemeral ports.
    const int port = world.master_port ? world.master_port : 20000 + int(job % 10000);
    const Address address = resolve(world.master_addr, port);
    const bool loopback = is_loopback(numeric(address));
    if (!loopback && !secret)
        die(kExitUsage, "no secret: %s: only loopback is served without one; give all hosts the same LOCKSTEP_SECRET, "
            "or LOCKSTEP_SECRET_FILE=a file of mode 0600", world.master_addr.c_str());
    const bool named = world.master_addr == "localhost" || world.master_addr == numeric(address);
    const int family = address.any.sa_family, flags = secret && !(loopback && named) ? AI_PASSIVE : 0;
    m->listener = listen_at(resolve("", 0, family, flags));
    Address own;
    getsockname(m->listener.fd, &own.any, &own.size);
    m->me.port = ntohs(own.tcp.sin_port);                   // it lies at the same place for IPv6
    // Many distributions let a host's own name mean 127.0.1.1, where the others would not find rank 0.
    const bool own_name = loopback && flags;
    return world.rank == 0 && own_name ? resolve("", port, family, flags) : address;
}

}  // namespace

int move_part(int fd, bool out, Part* part) {
    if (part->size == 0) return 0;
    const ssize_t n = out ? send(fd, part->data, part->size, MSG_DONTWAIT | MSG_NOSIGNAL)
                          : recv(fd, part->data, part->size, MSG_DONTWAIT);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    *part = {part->data + n, part->size - size_t(n)};
    return 1;
}

bool move_all(int fd, bool out, Part part, double seconds) {
    const double deadline = now_seconds() + seconds;
    while (part.size > 0) {
        const int moved = move_part(fd, out, &part);
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
    Meeting m;
    m.me = {world.rank, getpid(), memory, 0, "", "", ""};
    gethostname(m.me.host, sizeof m.me.host - 1);
    copy_text(m.me.host_id, host_identity());
    m.peers.assign(world.size, m.me);
    if (world.size == 1) return m;
    m.deadline = now_seconds() + patience;
    m.master_addr = world.master_addr;
    const bool first = world.rank == 0, one_host = m.master_addr.empty();
    const std::string secret = one_host ? "" : job_secret();
    m.key = secret + '\0' + world.job + '\0' + std::to_string(world.size);
    const uint64_t job = hash_bytes(world.job.data(), world.job.size(), 0);
    const Address address = one_host ? unix_address(job) : prepare_tcp(&m, world, job, !secret.empty());
    const Socket listener = first ? listen_at(address) : Socket();
    std::vector<int> ranks(world.size);    // that meet here
    std::iota(ranks.begin(), ranks.end(), 0);
    if (!first) ranks = {0, world.rank};
    Connections all = meet(m, listener.fd, ranks, [&](int) { return address; });
    for (const auto& [rank, c] : all) m.peers[rank] = c.claim.peer;
    const Part table = {m.peers.data(), m.peers.size() * sizeof(PeerInfo)};
    for (auto& [rank, c] : all) {
        if (rank != world.rank && !move_all(c.socket.fd, first, table, 5))
            die_left(rank, first ? c.claim.peer.host : address.text.c_str());
        m.control.push_back(std::move(c.socket));
    }
    return m;
}

std::vector<Socket> meet_peers(const Meeting& m, const std::vector<int>& ranks) {
    const auto address_of = [&](int r) {
        return resolve(m.peers[r].address[0] ? m.peers[r].address : m.master_addr, int(m.peers[r].port));
    };
    std::vector<Socket> sockets;
    for (auto& [rank, c] : meet(m, m.listener.fd, ranks, address_of)) sockets.push_back(std::move(c.socket));
    return sockets;
}
