// supervisor.cpp -- see supervisor.h.
#include "src/comm/supervisor.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>
#include "src/base/common.h"

bool follow_supervisor(std::string* out_dir, std::string* resume) {
    const char* const folder = std::getenv("LOCKSTEP_OUT_DIR");
    if (!folder) return false;
    *out_dir = folder;
    *resume = "auto";
    return true;
}

// A message with one byte and room for one descriptor.
struct Gift {
    char byte = 0;
    iovec bytes = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {nullptr, 0, &bytes, 1, control, sizeof control, 0};
};

void give_folder(int folder) {
    const char* const fd = std::getenv("LOCKSTEP_SUPERVISOR_FD");
    Gift gift;
    cmsghdr* const head = CMSG_FIRSTHDR(&gift.message);
    head->cmsg_len = CMSG_LEN(sizeof folder);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    std::memcpy(CMSG_DATA(head), &folder, sizeof folder);
    if (fd && sendmsg(std::atoi(fd), &gift.message, MSG_DONTWAIT) < 0)
        warn("--np: cannot tell the supervisor where this run saves: %s", std::strerror(errno));
}

int take_folder(int socket) {
    Gift gift;
    int folder = -1;
    const bool given = recvmsg(socket, &gift.message, MSG_DONTWAIT) > 0;
    if (const cmsghdr* head = CMSG_FIRSTHDR(&gift.message); given && head)
        std::memcpy(&folder, CMSG_DATA(head), sizeof folder);
    return folder;
}

static const double process_began = now_seconds();

double job_seconds() {
    const char* const began = std::getenv("LOCKSTEP_BEGAN");        // by a clock that all processes share
    return now_seconds() - (began ? std::atof(began) : process_began);
}

int job_restarts() {
    const char* const attempt = std::getenv("LOCKSTEP_TRY");
    return attempt ? std::atoi(attempt) : 0;
}
