// folder.h -- files for a test.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include "src/base/file.h"
#include "tests/test.h"

// A folder of its own for each test, removed at its end.
struct Folder {
    std::string path;
    Folder() {
        const char* tmp = getenv("TMPDIR");
        path = std::string(tmp ? tmp : "/tmp") + "/lockstep-test.XXXXXX";
        EXPECT(mkdtemp(path.data()), "mkdtemp %s", path.c_str());
    }
    ~Folder() { remove_tree(path); }
    std::string add(const std::string& name, std::string_view content) const {
        const std::string file = path + "/" + name;
        FILE* f = std::fopen(file.c_str(), "wb");
        EXPECT(f && std::fwrite(content.data(), 1, content.size(), f) == content.size() && std::fclose(f) == 0, "%s",
               file.c_str());
        return file;
    }
};
