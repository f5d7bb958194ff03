// tensorboard.cpp -- writes a run's event file for TensorBoard. It may run beside the trainer.
//
// With --follow it goes on until its standard input ends (Ctrl-D); then it adds the last lines. The folder is the
// working directory, so that it may be moved.
#include <poll.h>
#include "tools/curves.h"
#include "tools/event_file.h"
#include "tools/tool.h"

constexpr int kPause = 500;         // ms between two looks at metrics.jsonl

static int follow(EventFile* file) {
    int known = 0;
    for (bool ended = false;;) {
        pollfd input = {STDIN_FILENO, POLLIN, 0};
        char byte;
        ended = ended || (poll(&input, 1, kPause) > 0 && read(STDIN_FILENO, &byte, 1) <= 0);
        const int error = file->follow(ended);
        if (error && error != known) warn("the event file: %s; its lines wait in metrics.jsonl", strerror(error));
        known = error;
        if (ended && error) die(kExitWrite, "the event file: %s; the next start writes it anew", strerror(error));
        if (ended) return kExitDone;
    }
}

int main(int argc, char** argv) {
    bool follows = false;
    const Tool tool = {"tensorboard",
        "usage: build/tensorboard OUT... [options]     writes an event file beside each run's metrics.jsonl\n",
        {{"--follow", "", "of one run: goes on until standard input ends", &follows}}};
    return tool_main(tool, argc, argv, [&](const Words& words) {
        const auto write = [](const RunLog* run) { EventFile(run->folder); };
        if (!follows) return runs_of(words, write), int(kExitDone);
        if (words.size() != 1) die(kExitUsage, "--follow: want one run's folder; see --help");
        if (chdir(words[0].c_str()) != 0) die(kExitNoInput, "%s: %s", words[0].c_str(), strerror(errno));
        EventFile file(".");
        return follow(&file);
    });
}
