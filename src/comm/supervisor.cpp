// supervisor.cpp -- see supervisor.h.
#include "src/comm/supervisor.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include "src/base/common.h"

bool follow_supervisor(std::string* out_dir, std::string* resume) {
    const char* const folder = std::getenv("LOCKSTEP_OUT_DIR");
    if (!folder) return false;
    *out_dir = folder;
    *resume = "auto";
    return true;
}

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
