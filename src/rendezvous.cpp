// rendezvous.cpp -- see rendezvous.h.
#include "rendezvous.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>
#include "common.h"
#include "file.h"

namespace {

constexpr char kMagic[8] = {'L', 'K', 'S', 'T', 'E', 'P', '0', '1'};    // names the byte order too: it is compared as it lies
constexpr double kHandshakeSeconds = 2;                                 // for a stranger to prove itself
constexpr double kAnswerSeconds = 10;                                   // for the listening side, which may be busy with another peer
constexpr double kReturnSeconds = 2;                                    // for a member whose connection closed to come again
constexpr size_t kMaxStrangers = 64;                                    // and 4 per rank

struct Hello { char magic[8]; Purpose purpose; int32_t rank, size; Digest job, nonce; };
struct Challenge { char magic[8]; Digest nonce, proof; };
struct Proof { Card card; Digest proof; };
struct Reply { int32_t code; char text[508]; };                         // code 0: accepted

struct Address { sockaddr_storage storage = {}; socklen_t size = sizeof(sockaddr_storage); };      // TCP or Unix

sockaddr* raw(Address& a) { return reinterpret_cast<sockaddr*>(&a.storage); }
const sockaddr* raw(const Address& a) { return reinterpret_cast<const sockaddr*>(&a.storage); }

// A socket that closes itself, so that an Error on any way leaves none open.
struct Socket {
    int fd;
    Socket(int fd = -1) : fd(fd) {}
    Socket(Socket&& other) : fd(other.release()) {}
    Socket& operator=(Socket&& other) { std::swap(fd, other.fd); return *this; }
    ~Socket() { if (fd >= 0) close(fd); }
    int release() { return std::exchange(fd, -1); }
};

template <size_t n> void copy_text(char (&to)[n], const std::string& from) {
    std::snprintf(to, n, "%s", from.c_str());
}

template <class T> std::string bytes_of(const T& x) { return std::string(reinterpret_cast<const char*>(&x), sizeof x); }

Digest sha256(const std::string& message) {
    Digest d;
    Sha256 hash;
    hash.update(message.data(), message.size());
    hash.digest(d.bytes);
    return d;
}

std::string who(const Card& c) { return format("%s pid %d", c.host, c.pid); }

// Compares in the same time wherever the first difference is.
bool same_digest(const Digest& a, const Digest& b) {
    unsigned difference = 0;
    for (size_t i = 0; i < sizeof a.bytes; i++) difference |= unsigned(a.bytes[i] ^ b.bytes[i]);
    return difference == 0;
}

Digest prove(const Meeting& m, char role, const Hello& hello, const Digest& nonce, const Card* card) {
    return hmac_sha256(m.secret, std::string(1, role) + bytes_of(hello) + bytes_of(nonce) + (card ? bytes_of(*card) : ""));
}

Digest fresh_nonce() {
    Digest nonce;
    if (getrandom(nonce.bytes, sizeof nonce.bytes, 0) != ssize_t(sizeof nonce.bytes))
        die(kExitOther, "getrandom: %s", std::strerror(errno));
    return nonce;
}

// ------------------------------------------------------------------------------------------------------------ addresses

// Abstract: nothing in the file system, gone with its last descriptor. `suffix` tells the sockets of a job apart.
Address unix_address(const Meeting& m, const std::string& suffix) {
    Address a;
    sockaddr_un* un = reinterpret_cast<sockaddr_un*>(&a.storage);
    un->sun_family = AF_UNIX;
    const Digest job = sha256(m.job);
    std::string name = format("lockstep-%u-", unsigned(geteuid()));
    for (int i = 0; i < 16; i++) name += format("%02x", job.bytes[i]);
    name += suffix;
    std::memcpy(un->sun_path + 1, name.data(), name.size());
    a.size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return a;
}

// host "": this machine, to listen at every interface (AI_PASSIVE in flags) or at loopback only. Names that do not exist are an error at
// once; a name server that does not answer is asked again for a moment.
Address resolve(const std::string& host, int port, int family = AF_UNSPEC, int flags = 0) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_family = family;
    hints.ai_flags = flags;
    for (const double deadline = now_seconds() + 3;; usleep(200000)) {
        const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
        if (error == 0) break;
        if (error != EAI_AGAIN || now_seconds() > deadline)
            die(kExitPeer, "host of rank 0: %s: %s; set MASTER_ADDR to a name or address that all hosts know",
                host.empty() ? "this host" : host.c_str(), gai_strerror(error));
    }
    Address a;
    std::memcpy(&a.storage, found->ai_addr, found->ai_addrlen);
    a.size = found->ai_addrlen;
    freeaddrinfo(found);
    return a;
}

std::string numeric(const Address& a) {
    char host[NI_MAXHOST] = "";
    getnameinfo(raw(a), a.size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
}

int port_of(int fd) {
    Address a;                          // the port lies at the same place for IPv4 and IPv6
    return getsockname(fd, raw(a), &a.size) == 0 ? ntohs(reinterpret_cast<sockaddr_in*>(&a.storage)->sin_port) : 0;
}

// -------------------------------------------------------------------------------------------------------------- sockets

void send_at_once(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);        // refused for Unix sockets, which need none
}

// For data: BBR paces by what it has seen of the path, which after the quiet of a computation is nothing; between a cluster's hosts that
// costs a quarter of the time (all-reduce of 25 MiB over loopback: 29 ms, 22 without). Any other choice of this host is left alone.
void send_in_bursts(int fd) {
    char now[16] = "";
    socklen_t size = sizeof now - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &size) != 0 || std::strncmp(now, "bbr", 3) != 0) return;
    for (const char* other : {"cubic", "reno"})         // the first may need a privilege, the second never does
        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, other, socklen_t(std::strlen(other))) == 0) return;
}

Socket open_socket(int family) {
    Socket s(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (s.fd < 0) die(kExitOther, "socket: %s", std::strerror(errno));
    send_at_once(s.fd);
    return s;
}

// No socket, and errno, if the address cannot be had.
Socket listen_at(const Address& a) {
    Socket s = open_socket(a.storage.ss_family);
    const int on = 1;
    if (a.storage.ss_family != AF_UNIX) setsockopt(s.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(s.fd, raw(a), a.size) == 0 && listen(s.fd, 1024) == 0) return s;
    const int error = errno;
    s = Socket();
    errno = error;
    return s;
}

// No socket if nobody listens there (yet).
Socket connect_to(const Address& a) {
    Socket s = open_socket(a.storage.ss_family);
    int error = connect(s.fd, raw(a), a.size) == 0 ? 0 : errno;
    pollfd p = {s.fd, POLLOUT, 0};
    socklen_t size = sizeof error;
    if (error == EINPROGRESS && poll(&p, 1, int(kHandshakeSeconds * 1e3)) == 1)
        getsockopt(s.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? std::move(s) : Socket();
}

// The user on the other side of a Unix socket; for TCP our own, since the secret decides there.
uid_t peer_user(int fd, bool tcp) {
    ucred peer = {};
    socklen_t size = sizeof peer;
    if (tcp) return geteuid();
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.uid : uid_t(-1);
}

void send_reply(int fd, int code, const std::string& text) {
    Reply reply = {};
    reply.code = code;
    copy_text(reply.text, text);
    send_all(fd, &reply, sizeof reply, 1);
}

// ------------------------------------------------------------------------------------------------------- listening side

struct Stranger {
    Socket socket;
    double until;
    bool challenged = false;
    Hello hello = {};
    Proof proof = {};
    Digest nonce = {};
    size_t got = 0;             // bytes of hello, then of proof
};
// A rank that must come. No socket: it is not here; left: then it was, and closed its connection at this time.
struct Member { int rank; Socket socket; Card card = {}; double left = 0; };

enum class Step { more, drop, proven };

// Reads what has arrived from a stranger. Never waits, and never takes more than the two frames.
Step read_stranger(const Meeting& m, Stranger* s) {
    for (;;) {
        char* const frame = s->challenged ? reinterpret_cast<char*>(&s->proof) : reinterpret_cast<char*>(&s->hello);
        const size_t size = s->challenged ? sizeof s->proof : sizeof s->hello;
        const ssize_t n = recv(s->socket.fd, frame + s->got, size - s->got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return Step::more;
        if (n <= 0) return Step::drop;
        s->got += size_t(n);
        const size_t check = s->challenged ? 0 : std::min(s->got, sizeof kMagic);
        if (std::memcmp(s->hello.magic, kMagic, check) != 0) return Step::drop;
        if (s->got < size) continue;
        if (s->challenged)
            return same_digest(s->proof.proof, prove(m, 'c', s->hello, s->nonce, &s->proof.card)) ? Step::proven : Step::drop;
        Challenge c;
        std::memcpy(c.magic, kMagic, sizeof kMagic);
        c.nonce = s->nonce = fresh_nonce();
        c.proof = prove(m, 's', s->hello, s->nonce, nullptr);
        if (send(s->socket.fd, &c, sizeof c, MSG_DONTWAIT | MSG_NOSIGNAL) != ssize_t(sizeof c)) return Step::drop;
        s->challenged = true;
        s->got = 0;
    }
}

std::string missing_ranks(const std::vector<Member>& members) {
    std::string list;
    for (const Member& member : members)
        if (member.socket.fd < 0) list += (list.empty() ? "" : ",") + std::to_string(member.rank);
    return list;
}

// A proven stranger becomes a member, replaces its own earlier connection, or ends the start of the job.
void admit(const Meeting& m, Stranger s, Purpose purpose, std::vector<Member>* members) {
    Card card = s.proof.card;
    card.address[sizeof card.address - 1] = card.host[sizeof card.host - 1] = card.host_id[sizeof card.host_id - 1] = 0;
    if (!same_digest(s.hello.job, sha256(m.job))) {
        send_reply(s.socket.fd, kExitUsage, format("another job listens there: its rank %d is %s; "
            "give each job a MASTER_PORT or LOCKSTEP_JOB of its own", m.me.rank, who(m.me).c_str()));
        return;
    }
    const auto member = std::find_if(members->begin(), members->end(), [&](const Member& other) { return other.rank == card.rank; });
    const bool expected = member != members->end() && s.hello.purpose == purpose;
    const Card before = card.rank == m.me.rank ? m.me : expected ? member->card : Card{};
    const bool same = before.pid == card.pid && std::strcmp(before.host_id, card.host_id) == 0;     // it had given up on the first
    std::string complaint;
    if (s.hello.size != m.size)
        complaint = format("number of ranks: rank %d (%s): got %d, want %d as rank %d (%s) has it", card.rank,
            who(card).c_str(), s.hello.size, m.size, m.me.rank, who(m.me).c_str());
    else if (card.rank == m.me.rank || (before.pid != 0 && !same))
        complaint = format("rank %d claimed twice: %s, %s; two jobs need different names: set LOCKSTEP_JOB", card.rank,
            who(before).c_str(), who(card).c_str());
    if (!complaint.empty()) {
        send_reply(s.socket.fd, kExitUsage, complaint);
        die(kExitUsage, "%s", complaint.c_str());
    }
    if (!expected) return;              // early for the next meeting at this listener: it will try again
    Address from;
    const bool known = !m.master_addr.empty() && getpeername(s.socket.fd, raw(from), &from.size) == 0;
    if (known && !is_loopback(numeric(from))) copy_text(card.address, numeric(from));
    send_reply(s.socket.fd, 0, "");
    member->socket = std::move(s.socket);
    member->card = card;
}

// A member that leaves before all are there, and does not come again, ends the start. polls: one for each member, in order.
void check_members(std::vector<Member>* members, const pollfd* polls) {
    for (Member& member : *members) {
        if ((polls++)->revents != 0) {          // never where there is no socket
            member.socket = Socket();
            member.left = now_seconds();
        }
        if (member.socket.fd < 0 && member.left > 0 && now_seconds() > member.left + kReturnSeconds)
            die(kExitPeer, "peer lost: rank %d (%s): left while the ranks were meeting; see its own message",
                member.card.rank, who(member.card).c_str());
    }
}

// Accepts in parallel until every wanted rank is there. On an error all members hear of it.
std::vector<Member> accept_ranks(const Meeting& m, int listener, Purpose purpose, const std::vector<int>& ranks) {
    std::vector<Member> members;
    for (const int rank : ranks) members.push_back({rank, Socket()});
    std::vector<Stranger> strangers;
    bool warned = false;
    double next_notice = now_seconds() + 10;
    try {
        for (std::string missing; !(missing = missing_ranks(members)).empty();) {
            const double now = now_seconds();
            if (now > m.deadline)
                die(kExitPeer, "peer missing: rank %s of %d: not here after %.0f s; see whether it started, and its messages",
                    missing.c_str(), m.size, m.patience);
            if (now > next_notice) {
                warn("waiting for ranks %s of %d", missing.c_str(), m.size);
                next_notice += 10;
            }
            std::vector<pollfd> polls = {{listener, POLLIN, 0}};
            for (const Stranger& s : strangers) polls.push_back({s.socket.fd, POLLIN, 0});
            const size_t first_member = polls.size();
            for (const Member& member : members) polls.push_back({member.socket.fd, POLLRDHUP, 0});
            if (poll(polls.data(), polls.size(), 100) < 0) continue;            // EINTR
            check_members(&members, polls.data() + first_member);
            std::vector<Stranger> remaining;
            for (size_t i = 0; i < strangers.size(); i++) {
                Stranger& s = strangers[i];
                Step step = polls[1 + i].revents ? read_stranger(m, &s) : Step::more;
                if (step == Step::more && now > s.until) step = Step::drop;
                if (step == Step::more) remaining.push_back(std::move(s));
                if (step == Step::proven) admit(m, std::move(s), purpose, &members);
                if (step != Step::drop) continue;
                if (!warned) warn("dropped a connection that does not belong to this job (others will not be mentioned)");
                warned = true;
            }
            strangers.swap(remaining);
            for (;;) {
                Stranger s = {Socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)), now + kHandshakeSeconds};
                if (s.socket.fd < 0 && (errno == EMFILE || errno == ENFILE))
                    die(kExitOther, "accept: %s; raise it with ulimit -n", std::strerror(errno));
                if (s.socket.fd < 0) break;
                send_at_once(s.socket.fd);
                if (peer_user(s.socket.fd, !m.master_addr.empty()) != geteuid()) continue;
                if (strangers.size() >= kMaxStrangers + 4 * size_t(m.size))     // the oldest makes room: a real rank tries again
                    strangers.erase(strangers.begin());
                strangers.push_back(std::move(s));
            }
        }
    } catch (const Error& e) {
        for (const Member& member : members)
            if (member.socket.fd >= 0) send_reply(member.socket.fd, e.code, e.message);
        throw;
    }
    return members;
}

// ------------------------------------------------------------------------------------------------------ connecting side

// False if none came; an Error if it says no.
bool receive_reply(int fd, double patience) {
    Reply reply;
    if (!receive_all(fd, &reply, sizeof reply, patience)) return false;
    reply.text[sizeof reply.text - 1] = 0;
    if (reply.code != 0) die(reply.code, "%s", reply.text);
    return true;
}

// True when the other side has proved that it belongs to the job and has accepted us; false: try again. An Error if it proved to be
// somebody else, or said so.
bool introduce(const Meeting& m, int fd, Purpose purpose, const std::string& where, double patience) {
    Hello hello = {};
    std::memcpy(hello.magic, kMagic, sizeof kMagic);
    hello.purpose = purpose;
    hello.rank = m.me.rank;
    hello.size = m.size;
    hello.job = sha256(m.job);
    hello.nonce = fresh_nonce();
    Challenge challenge;
    if (!send_all(fd, &hello, sizeof hello, patience) || !receive_all(fd, &challenge, sizeof challenge, patience)) return false;
    if (std::memcmp(challenge.magic, kMagic, sizeof kMagic) != 0) return false;
    if (!same_digest(challenge.proof, prove(m, 's', hello, challenge.nonce, nullptr)))
        die(kExitPeer, "not authenticated: %s: does not know this job's secret; give all hosts the same LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE",
            where.c_str());
    Proof proof = {};
    proof.card = m.me;
    proof.proof = prove(m, 'c', hello, challenge.nonce, &proof.card);
    return send_all(fd, &proof, sizeof proof, patience) && receive_reply(fd, patience);
}

Socket connect_until(const Meeting& m, const Address& to, Purpose purpose, int rank, const std::string& where) {
    for (useconds_t pause = 2000;; pause = std::min<useconds_t>(2 * pause, 200000)) {
        Socket s = connect_to(to);
        if (s.fd >= 0 && peer_user(s.fd, to.storage.ss_family != AF_UNIX) != geteuid())
            die(kExitPeer, "not authenticated: %s: is held by another user", where.c_str());
        if (s.fd >= 0 && introduce(m, s.fd, purpose, where, kAnswerSeconds)) return s;
        s = Socket();
        if (now_seconds() > m.deadline)
            die(kExitPeer, "peer missing: rank %d of %d: nobody of this job answers at %s after %.0f s; see whether it started, and its messages",
                rank, m.size, where.c_str(), m.patience);
        usleep(pause);
    }
}

// ------------------------------------------------------------------------------------------------------------- meetings

// The boot tells machines apart, the network namespace containers: abstract sockets, and with them shared memory, end at its border.
std::string host_identity(const std::string& name) {
    if (const char* given = std::getenv("LOCKSTEP_HOST_ID")) return given;
    char network[64] = "";
    if (readlink("/proc/self/ns/net", network, sizeof network - 1) < 0) network[0] = 0;
    return name.substr(0, 60) + " " + read_kernel_file("/proc/sys/kernel/random/boot_id").substr(0, 36) + " " + network;
}

Socket listen_as_rank0(const Meeting& m, const Address& address, const std::string& where) {
    const double give_up = std::min(m.deadline, now_seconds() + 2);     // an earlier attempt of this job may be on its way out
    for (;;) {
        Socket listener = listen_at(address);
        if (listener.fd >= 0) return listener;
        if (errno != EADDRINUSE || now_seconds() > give_up)
            die(kExitPeer, "cannot listen: %s: %s; %s", where.c_str(), std::strerror(errno),
                errno == EADDRNOTAVAIL ? "MASTER_ADDR must be an address of the host of rank 0" : "give another MASTER_PORT, or LOCKSTEP_JOB on one host");
        const Socket other = connect_to(address);   // if it is another rank 0 of this job, it will say so
        if (other.fd < 0) continue;
        try {
            introduce(m, other.fd, Purpose::control, where, 1);
        } catch (const Error& e) {
            if (e.code == kExitUsage) throw;
        }
        usleep(50000);
    }
}

void meet_as_rank0(Meeting* m, const Address& address, const std::string& where) {
    std::vector<int> others;
    for (int r = 1; r < m->size; r++) others.push_back(r);
    std::vector<Member> members = accept_ranks(*m, listen_as_rank0(*m, address, where).fd, Purpose::control, others);
    m->cards = {m->me};
    m->control = {-1};
    for (Member& member : members) {
        m->cards.push_back(member.card);
        m->control.push_back(member.socket.release());
    }
    for (const int fd : m->control) {
        if (fd < 0) continue;
        send_reply(fd, 0, "");
        send_all(fd, m->cards.data(), m->cards.size() * sizeof(Card), 5);
    }
}

void meet_rank0(Meeting* m, const Address& address, const std::string& where) {
    Socket s = connect_until(*m, address, Purpose::control, 0, where);
    m->cards.resize(size_t(m->size));
    const double left = m->deadline - now_seconds() + 5;        // rank 0 says at the deadline who is missing
    if (!receive_reply(s.fd, left) || !receive_all(s.fd, m->cards.data(), m->cards.size() * sizeof(Card), 5))
        die(kExitPeer, "peer lost: rank 0 (%s): connection closed while the ranks were meeting", where.c_str());
    m->control = {s.release()};
}

}  // namespace

Digest hmac_sha256(const std::string& key, const std::string& message) {
    std::string inner = key;
    if (key.size() > 64) inner = bytes_of(sha256(key));
    inner.resize(64);
    std::string outer = inner;
    for (char& c : inner) c ^= 0x36;
    for (char& c : outer) c ^= 0x5c;
    return sha256(outer + bytes_of(sha256(inner + message)));
}

// Waits for `events` with what is left of a deadline; false when it has passed.
static bool wait_for(int fd, short events, double deadline) {
    for (;;) {
        const double left = deadline - now_seconds();
        if (left <= 0) return false;
        pollfd p = {fd, events, 0};
        if (poll(&p, 1, int(std::min(left, 10.0) * 1e3) + 1) > 0) return true;
    }
}

// move(at, n): send or recv.
template <class F> static bool move_all(int fd, short events, size_t bytes, double seconds, const F& move) {
    const double deadline = now_seconds() + seconds;
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = move(done, bytes - done);
        if (n > 0) done += size_t(n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !wait_for(fd, events, deadline)) return false;
    }
    return true;
}

bool send_all(int fd, const void* data, size_t bytes, double seconds) {
    return move_all(fd, POLLOUT, bytes, seconds,
        [&](size_t at, size_t n) { return send(fd, static_cast<const char*>(data) + at, n, MSG_DONTWAIT | MSG_NOSIGNAL); });
}

bool receive_all(int fd, void* data, size_t bytes, double seconds) {
    return move_all(fd, POLLIN, bytes, seconds, [&](size_t at, size_t n) { return recv(fd, static_cast<char*>(data) + at, n, MSG_DONTWAIT); });
}

std::string job_secret() {
    if (const char* secret = std::getenv("LOCKSTEP_SECRET")) return secret;
    const char* path = std::getenv("LOCKSTEP_SECRET_FILE");
    if (!path) return "";
    struct stat info;
    if (stat(path, &info) != 0) die(kExitUsage, "LOCKSTEP_SECRET_FILE: %s: %s", path, std::strerror(errno));
    if (!S_ISREG(info.st_mode) || (info.st_mode & 077) != 0 || (info.st_uid != geteuid() && info.st_uid != 0))
        die(kExitUsage, "LOCKSTEP_SECRET_FILE: %s: got mode %04o of user %u, want a file of mode 0600 of your own; chmod 600 it",
            path, unsigned(info.st_mode & 07777), unsigned(info.st_uid));
    std::string secret = read_file(path);
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
    if (secret.empty()) die(kExitUsage, "LOCKSTEP_SECRET_FILE: %s: is empty; write 32 random characters into it", path);
    return secret;
}

Meeting meet_ranks(const World& world, double patience) {
    Meeting m;
    m.size = world.size;
    m.job = world.job;
    m.patience = patience;
    m.deadline = now_seconds() + patience;
    m.me.rank = world.rank;
    m.me.pid = getpid();
    char name[sizeof m.me.host] = "";
    gethostname(name, sizeof name - 1);
    copy_text(m.me.host, name);
    // Whoever can reach an abstract socket is on this host, whatever it is called.
    copy_text(m.me.host_id, world.master_addr.empty() ? "this host" : host_identity(name));
    Address address;
    Socket listener;
    std::string where;
    if (world.master_addr.empty()) {
        address = unix_address(m, "");
        where = "this host's job socket";
    } else {
        m.master_addr = world.master_addr;
        // By default the same on all hosts, below the range of ports that connections get by chance.
        const Digest job = sha256(m.job);
        m.master_port = world.master_port ? world.master_port : 20000 + (job.bytes[0] * 256 + job.bytes[1]) % 10000;
        m.secret = job_secret();
        where = format("%s:%d", m.master_addr.c_str(), m.master_port);
        address = resolve(m.master_addr, m.master_port);
        const bool loopback = is_loopback(numeric(address));
        if (!loopback && m.secret.empty())
            die(kExitUsage, "no secret: %s: only loopback is served without one; give all hosts the same LOCKSTEP_SECRET, or LOCKSTEP_SECRET_FILE=a file of mode 0600",
                where.c_str());
        const int family = address.storage.ss_family, everywhere = m.secret.empty() ? 0 : AI_PASSIVE;
        const Address any = resolve("", 0, family, everywhere);
        listener = listen_at(any);
        if (listener.fd >= 0 && port_of(listener.fd) == m.master_port)      // chance gave us rank 0's: ask again before giving it back
            listener = listen_at(any);
        if (listener.fd < 0) die(kExitPeer, "cannot listen for data connections: %s", std::strerror(errno));
        m.me.port = uint32_t(port_of(listener.fd));
        // Many distributions let a host's own name mean 127.0.1.1: rank 0 must then listen where the others will look for it.
        const bool own_name = loopback && m.master_addr != "localhost" && m.master_addr != numeric(address);
        if (world.rank == 0 && own_name && everywhere) address = resolve("", m.master_port, family, everywhere);
    }
    if (world.rank == 0) meet_as_rank0(&m, address, where);
    else meet_rank0(&m, address, where);
    m.listener = listener.release();
    return m;
}

int meet_memory(const Meeting& meeting, int leader, int local_size, size_t bytes) {
    Meeting m = meeting;
    m.master_addr = m.secret = "";              // this meeting is on the host, whatever the others were
    const Address address = unix_address(m, format("-memory-%d", leader));
    char byte = 0;
    iovec data = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (m.me.rank == leader) {
        const int memory = memfd_create("lockstep", MFD_CLOEXEC);
        if (memory < 0 || ftruncate(memory, off_t(bytes)) != 0)
            die(kExitOther, "shared memory: memfd of %zu bytes: %s", bytes, std::strerror(errno));
        if (local_size == 1) return memory;
        const Socket listener = listen_at(address);
        if (listener.fd < 0) die(kExitPeer, "cannot listen: job socket of rank %d: %s", leader, std::strerror(errno));
        std::vector<int> others;
        for (int l = 1; l < local_size; l++) others.push_back(leader + l);
        const std::vector<Member> members = accept_ranks(m, listener.fd, Purpose::memory, others);
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(head), &memory, sizeof(int));
        for (const Member& member : members) sendmsg(member.socket.fd, &message, MSG_NOSIGNAL);     // a failure shows on the other side
        return memory;
    }
    const Socket s = connect_until(m, address, Purpose::memory, leader, "this host's memory socket");
    int memory = -1;
    if (wait_for(s.fd, POLLIN, m.deadline) && recvmsg(s.fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) == 1)
        if (const cmsghdr* head = CMSG_FIRSTHDR(&message); head && head->cmsg_type == SCM_RIGHTS)
            std::memcpy(&memory, CMSG_DATA(head), sizeof(int));
    if (memory < 0) die(kExitOther, "shared memory: rank %d did not pass its descriptor; raise ulimit -n", leader);
    return memory;
}

std::vector<int> meet_peers(const Meeting& m, Purpose plane, const std::vector<int>& peers) {
    std::vector<int> fds, higher;
    for (const int peer : peers) {
        if (peer > m.me.rank) { higher.push_back(peer); continue; }
        const Card& card = m.cards[size_t(peer)];
        const std::string host = card.address[0] ? card.address : m.master_addr;
        const Address to = resolve(host, int(card.port));
        fds.push_back(connect_until(m, to, plane, peer, format("%s:%u", host.c_str(), card.port)).release());
    }
    for (Member& member : accept_ranks(m, m.listener, plane, higher)) fds.push_back(member.socket.release());
    for (const int fd : fds) send_in_bursts(fd);
    return fds;
}
