// serve.h -- a small HTTP server for browsers on this machine. It answers GET, one request a connection, one at a time.
//
// It listens on 127.0.0.1 only. The page of another site can resolve its own name to 127.0.0.1; it then sends that name
// as Host and is refused (403). A request of more than 8 KiB, or not complete within two seconds, is refused (400).
#pragma once
#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "src/base/common.h"

inline volatile std::sig_atomic_t serve_ends = 0;
inline void end_serving(int) { serve_ends = 1; }

// Reads until the empty line after the headers. If that does not come in time, returns what has come.
inline std::string read_request(int fd) {
    const double deadline = now_seconds() + 2;
    std::string request;
    while (request.size() < 8192 && request.find("\r\n\r\n") == request.npos) {
        pollfd wait = {fd, POLLIN, 0};
        const int left = int((deadline - now_seconds()) * 1000);
        char block[1024];
        const ssize_t n = left > 0 && poll(&wait, 1, left) > 0 ? read(fd, block, sizeof block) : 0;
        if (n <= 0) break;
        request.append(block, size_t(n));
    }
    return request;
}

// The value of a request's header, "" if it is absent. name: in lower case.
inline std::string header_of(std::string_view request, const std::string& name) {
    next_word(&request, '\n');
    while (!request.empty()) {
        std::string_view line = next_word(&request, '\n');
        std::string key(next_word(&line, ':'));
        for (char& c : key) c = char(std::tolower((unsigned char)c));
        if (key != name) continue;
        const size_t begin = line.find_first_not_of(" \t"), end = line.find_last_not_of(" \t\r");
        return begin == line.npos ? "" : std::string(line.substr(begin, end - begin + 1));
    }
    return "";
}

inline void send_response(int fd, const std::string& status, const std::string& type, const std::string& body) {
    std::string text = format("HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\n"
                              "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                              status.c_str(), type.c_str(), body.size()) + body;
    const timeval patience = {5, 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    for (size_t sent = 0; sent < text.size();) {
        const ssize_t n = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return;
        sent += size_t(n);
    }
}

// Reads a request and answers it. answer(path, &type) returns the body, or "" if there is no such page.
template <class F> void answer_request(int fd, const F& answer) {
    const std::string request = read_request(fd), host = header_of(request, "host");
    const auto refuse = [&](const std::string& status) { send_response(fd, status, "text/plain", status + "\n"); };
    std::string_view rest = request;
    const std::string_view method = next_word(&rest, ' '), path = next_word(&rest, ' ');
    if (request.find("\r\n\r\n") == request.npos || !rest.starts_with("HTTP/1.")) return refuse("400 Bad Request");
    if (method != "GET") return refuse("405 Method Not Allowed");
    const std::string name = host.substr(0, host.find(':'));    // without the port: a tunnel may have another one
    if (name != "127.0.0.1" && name != "localhost") return refuse("403 Forbidden");
    std::string type;
    const std::string body = answer(std::string(path), &type);
    if (body.empty()) return refuse("404 Not Found");
    send_response(fd, "200 OK", type, body);
}

// Prints the address and serves until SIGINT or SIGTERM. port 0: any free one.
template <class F> void serve(int port, const F& answer) {
    struct sigaction action = {};
    action.sa_handler = end_serving;            // without SA_RESTART: poll and accept return
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (listener < 0 || bind(listener, (sockaddr*)&address, size) != 0 || listen(listener, 16) != 0 ||
        getsockname(listener, (sockaddr*)&address, &size) != 0)
        die(kExitOther, "--serve: port %d: %s; try --serve 0", port, strerror(errno));
    std::printf("http://127.0.0.1:%d/\n", ntohs(address.sin_port));
    std::fflush(stdout);
    while (!serve_ends) {
        pollfd wait = {listener, POLLIN, 0};
        if (poll(&wait, 1, 1000) <= 0) continue;    // a signal just before poll takes effect after 1 s
        const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) continue;
        answer_request(fd, answer);
        close(fd);
    }
    close(listener);
}
