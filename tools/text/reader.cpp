// reader.cpp -- see reader.h.
#include "tools/text/reader.h"
#include <algorithm>
#include <fnmatch.h>

std::string_view FileReader::look(uint64_t n) {
    const size_t left = ahead.size() - taken;
    if (left < n && at < file->size) {
        ahead.erase(0, std::exchange(taken, 0));
        const uint64_t more = std::min(std::max<uint64_t>(n - left, 64 << 10), file->size - at);
        ahead.resize(left + more);
        file->read(at, &ahead[left], more);
        at += more;
    }
    return std::string_view(ahead).substr(taken);
}

bool FileReader::line(std::string_view* out) {
    uint64_t want = 1;
    std::string_view text;
    while ((text = look(want)).find('\n') == text.npos && text.size() >= want) want = 2 * text.size();
    *out = text.substr(0, text.find('\n'));
    take(std::min(out->size() + 1, text.size()));
    return !text.empty();
}

// Appends the existing paths that consist of `done` and a match of the pattern `rest`. This does not use glob(), which
// mistakes an error in the middle of reading a folder for the folder's end.
static void expand(const std::string& done, const std::string& rest, std::vector<std::string>* paths) {
    if (rest.empty()) {
        if (file_exists(done)) paths->push_back(done);
        return;
    }
    const size_t end = std::min(rest.find('/'), rest.size() - 1) + 1;
    const std::string part = rest.substr(0, rest.find('/')), slash = rest.substr(part.size(), end - part.size());
    if (part.find_first_of("*?[\\") == part.npos) return expand(done + part + slash, rest.substr(end), paths);
    const std::string folder = done.empty() ? "." : done;
    if (!is_directory(folder)) return;
    for (const std::string& name : list_directory(folder))
        if (::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0)
            expand(done + name + slash, rest.substr(end), paths);
}

std::vector<std::string> expand_glob(const std::string& pattern, const std::string& folder) {
    std::vector<std::string> paths;
    expand(folder.empty() ? "" : path_join(folder, ""), pattern, &paths);
    std::sort(paths.begin(), paths.end());
    return paths;
}
