// words.cpp -- see words.h.
#include "src/base/words.h"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/mman.h>
#include <sys/wait.h>
#include <type_traits>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/file.h"

Words split(std::string_view text, char separator) {
    Words words;
    while (!text.empty())
        if (const std::string_view word = next_word(&text, separator); !word.empty())
            words.emplace_back(word);
    return words;
}

bool contains(const Words& list, const std::string& word) {
    return std::ranges::find(list, word) != list.end();
}

std::string replaced(std::string text, char from, char to) {
    std::ranges::replace(text, from, to);
    return text;
}

std::string shown(const std::string& text) { return text.empty() ? "nothing" : text.substr(0, 80); }

// ---- text <-> value

static bool takes_any_text(const Option& option) {
    return option.value.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") != option.value.npos;
}

std::string value_text(const Option& option) {
    return std::visit([](const auto* value) -> std::string {
        using T = std::decay_t<decltype(*value)>;
        char digits[64];
        if constexpr (std::is_same_v<T, std::string>) return *value;
        else if constexpr (std::is_same_v<T, bool>) return *value ? "on" : "off";
        else if (*value != *value) return "";           // a number that is not set
        else return {digits, std::to_chars(digits, std::end(digits), *value).ptr};
    }, option.to);
}

// Reads a number. A whole number in digits is exact; in other forms (2.5e3, 512k, 2M) it may be up
// to 2^53.
template <class T> static bool parse_number(std::string_view text, const Limits& limits, T* out) {
    constexpr bool kWhole = std::is_integral_v<T>;
    if (kWhole && parse_whole(text, out)) return limits.hold(*out);
    const double unit = text.ends_with('k') ? 1e3 : text.ends_with('M') ? 1e6 : 1;
    double x;
    if (!parse_whole(text.substr(0, text.size() - (unit > 1)), &x) || !limits.hold(x *= unit))
        return false;
    if (kWhole &&
        (x != std::floor(x) || x > std::min(0x1p53, double(std::numeric_limits<T>::max()))))
        return false;
    *out = T(x);
    return limits.hold(*out);           // a float is rounded
}

bool set_option(const Option& option, const std::string& text) {
    return std::visit([&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        if constexpr (std::is_same_v<T, std::string>) {
            const auto alias = option.aliases.find(text);
            *to = alias == option.aliases.end() ? text : alias->second;
            if (takes_any_text(option)) return !text.empty();
            const char by = option.value.find(',') == option.value.npos ? '|' : ',';
            const Words typed = by == ',' ? split(*to, by) : Words{*to};
            return std::ranges::all_of(typed, [known = split(option.value, by)](
                                                  const auto& word) { return contains(known, word); });
        } else if constexpr (std::is_same_v<T, bool>) {
            *to = text == "on" || text == "true";
            return *to || text == "off" || text == "false";
        } else {
            return parse_number(text, option.limits, to);
        }
    }, option.to);
}

std::string wanted(const Option& option) {
    if (option.is_text()) return option.value;
    if (std::holds_alternative<bool*>(option.to)) return "on|off";
    const bool real =
        std::holds_alternative<float*>(option.to) || std::holds_alternative<double*>(option.to);
    return (real ? "a number " : "a whole number ") + std::string(option.limits.want);
}

// ---- the command line

void refuse_option(const std::string& name, const std::string& got, const std::string& want) {
    die(kExitUsage, "%s: got %s, want %s", name.c_str(), got.c_str(), want.c_str());
}

static std::string without_dashes(const std::string& name) {
    return name.starts_with("--") ? name.substr(2) : name;
}

// typed: the name that no option has, with its dashes.
[[noreturn]] static void refuse_unknown(const std::string& typed,
                                        const std::vector<Option>& options) {
    const std::string name = replaced(typed, '_', '-'),
                      bare = name.substr(name.starts_with("--") ? 2 : 1);
    std::string meant;
    size_t least = bare.size() / 4 + 2;
    for (const Option& option : options) {
        if (!*option.help) continue;
        const bool begun = bare.size() >= 3 && without_dashes(option.name).starts_with(bare);
        for (const std::string& other : split(option.name + " " + option.elsewhere)) {
            const size_t distance = other == name ? 0 : begun ? 1 :
                edit_distance(bare, without_dashes(other));
            if (distance < least) meant = option.typed(), least = distance;
        }
    }
    die(kExitUsage, "unknown option %s; %s", shown(typed).c_str(),
        meant.empty() ? "--help lists all" : ("did you mean " + meant + "?").c_str());
}

Words read_options(const std::vector<Option>& options, const Words& words, Words* given,
                   const char* want) {
    Words rest;
    for (size_t i = 0; i < words.size(); i++) {
        const std::string& word = words[i];
        if (word.size() < 2 || word[0] != '-') {
            rest.push_back(word);
            continue;
        }
        const size_t equals = word.find('=');
        const std::string typed = word.substr(0, equals), name = replaced(typed, '_', '-');
        const auto option = std::ranges::find(options, name, &Option::typed);
        if (option == options.end()) refuse_unknown(typed, options);
        if (contains(*given, option->name)) refuse_option(name, "two values", "one");
        given->push_back(option->name);
        const bool text = option->is_text();
        const std::string wants = (text && takes_any_text(*option) ? want : "") + wanted(*option);
        const std::string next = i + 1 < words.size() ? words[i + 1] : "--";
        double x;
        std::string value = "on";
        if (equals != word.npos) {
            value = word.substr(equals + 1);
        } else if (*option->alone && (text ? next.starts_with('-') : !parse_whole(next, &x))) {
            value = option->alone;
        } else if (!option->value.empty()) {
            if (next.starts_with("--")) refuse_option(name, "no value", wants);
            value = next;
            i++;
        }
        if (!set_option(*option, value)) refuse_option(name, shown(value), wants);
    }
    return rest;
}

// ---- tools

static bool is_program(const std::string& path) {
    return access(path.c_str(), X_OK) == 0 && !is_directory(path);
}

std::string tool_path(const std::string& name) {
    const std::string own = parent_folder(program_path()) + "/", built = own + "build/" + name;
    return is_program(own + name) && !is_program(built) ? own + name : built;
}

std::string require_tool(const std::string& what, const std::string& name) {
    const std::string path = tool_path(name);
    if (!is_program(path))
        die(kExitNoInput, "%s: %s: it is not beside the program; build it with: ninja build/%s",
            what.c_str(), shown_path(path).c_str(), name.c_str());
    return path;
}

// Returns the argv for execv: the program's name, its arguments, null.
static std::vector<char*> pointers(const std::string& name, const Words& arguments) {
    std::vector<char*> argv = {const_cast<char*>(name.c_str())};
    for (const std::string& argument : arguments)
        argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    return argv;
}

void hand_over(const std::string& what, const std::string& path, const Words& arguments,
               const std::string& name) {
    std::fflush(nullptr);
    execv(path.c_str(), pointers(name.empty() ? path : name, arguments).data());
    die(kExitOther, "%s: cannot start %s: %s", what.c_str(), shown_path(path).c_str(),
        std::strerror(errno));
}

// Reads lines until the other side closes the pipe; calls progress() at each empty one. Returns the
// last other one.
static std::string read_answer(int pipe, const std::function<void()>& progress) {
    std::string line, answer;
    char piece[4096];
    for (ssize_t n; (n = read(pipe, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR);)
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] != '\n') line += piece[i];
            else if (line.empty()) progress();
            else answer = std::exchange(line, "");
        }
    return answer;
}

// The request is a file in memory. A pipe could fill up while the tool waits until its own output
// is read.
std::string ask_tool(const std::string& what, const std::string& path, const Words& arguments,
                     const std::string& request, const std::function<void()>& progress) {
    const std::string name = format("%s: %s", what.c_str(), shown_path(path).c_str());
    const Descriptor input(memfd_create("request", MFD_CLOEXEC));
    int ends[2] = {-1, -1};
    const bool ready =
        input.fd >= 0 &&
        pwrite(input.fd, request.data(), request.size(), 0) == ssize_t(request.size()) &&
        pipe2(ends, O_CLOEXEC) == 0;
    const Descriptor ours(ends[0]);
    Descriptor theirs(ends[1]);
    signal(SIGCHLD, SIG_DFL);   // if it were ignored, as by our parent, waitpid would fail
    const std::vector<char*> argv = pointers(path, arguments);
    const pid_t pid = ready ? fork() : -1;
    if (pid < 0) die(kExitOther, "%s: cannot be asked: %s", name.c_str(), std::strerror(errno));
    if (pid == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, nullptr);
        dup2(input.fd, STDIN_FILENO);
        dup2(theirs.fd, STDOUT_FILENO);
        execv(path.c_str(), argv.data());
        dprintf(STDOUT_FILENO, "%s: cannot start: %s\n", name.c_str(), std::strerror(errno));
        _exit(kExitOther);
    }
    theirs = Descriptor();
    Countdown left{base_name(path)};
    const std::string answer = read_answer(ours.fd, [&] { left.at(), progress(); });
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (WIFSIGNALED(status))
        die(kExitOther, "%s: was killed by signal %d (%s)", name.c_str(), WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    const int code = WEXITSTATUS(status);
    if (code && answer.empty()) die(code, "%s: ended with code %d", name.c_str(), code);
    if (code) die(code, "%s", answer.c_str());
    return answer;
}
