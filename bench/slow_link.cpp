// slow_link.cpp -- a slow link between two network namespaces, for bench/outer.sh: it passes every packet on between
// two interfaces of the namespace that it runs in, at a rate and after a delay. (tc's netem does that where the kernel
// has it.) A queue has no end, so nothing is lost.
//
//     slow_link FROM TO MBIT_PER_S MS       MS: one way. It runs until it is killed; needs root or a user namespace.
//
// Packets come and go with their virtio_net_hdr, so what the sending host has left to its network card (checksums,
// segments) is left to the receiving one's.
#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Packet { Clock::time_point at; std::vector<char> bytes; };
struct Direction {
    int from, to;
    Clock::time_point free = Clock::now();          // when the link can take the next packet
    std::deque<Packet> under_way = {};
};

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

// Returns a socket that receives what comes in by the interface, and sends by it.
int open_interface(const char* name) {
    const int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), on = 1, room = 64 << 20;
    sockaddr_ll address = {};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = int(if_nametoindex(name));
    if (fd < 0 || !address.sll_ifindex) fail(name);
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) ||
        bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address))
        fail(name);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    return fd;
}

// Takes all packets that wait, and says when each is through.
void take(Direction* d, double bytes_per_second, Clock::duration delay) {
    constexpr size_t kHeader = 10;                  // sizeof(virtio_net_hdr)
    static std::vector<char> buffer(1 << 17);
    for (ssize_t n; (n = recv(d->from, buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0;) {
        const std::chrono::duration<double> seconds((double(n) - kHeader) / bytes_per_second);
        d->free = std::max(d->free, Clock::now()) + std::chrono::duration_cast<Clock::duration>(seconds);
        d->under_way.push_back({d->free + delay, {buffer.begin(), buffer.begin() + n}});
    }
}

void give(Direction* d) {
    for (; !d->under_way.empty() && d->under_way.front().at <= Clock::now(); d->under_way.pop_front()) {
        const std::vector<char>& bytes = d->under_way.front().bytes;
        if (send(d->to, bytes.data(), bytes.size(), 0) < 0) std::perror("send");
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return std::fprintf(stderr, "usage: slow_link FROM TO MBIT_PER_S MS\n"), 2;
    const double bytes_per_second = std::atof(argv[3]) * 1e6 / 8;
    const auto delay = std::chrono::microseconds(int64_t(std::atof(argv[4]) * 1e3));
    const int a = open_interface(argv[1]), b = open_interface(argv[2]);
    Direction ways[] = {{a, b}, {b, a}};
    for (;;) {
        auto next = Clock::now() + std::chrono::seconds(1);
        for (Direction& d : ways) {
            take(&d, bytes_per_second, delay);
            give(&d);
            if (!d.under_way.empty()) next = std::min(next, d.under_way.front().at);
        }
        const auto wait = std::max(Clock::duration(0), next - Clock::now());
        const timespec time = {0, std::min<long>(999999999, std::chrono::nanoseconds(wait).count())};
        pollfd fds[] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
        ppoll(fds, 2, &time, nullptr);
    }
}
