// tokenizer.cpp -- how fast text becomes tokens and merges are learnt, on one core; tokenizer.py runs it in turn with
// other encoders.
//
//   build/bench/tokenizer encode VOCAB TEXT OUT    prints the seconds of a first pass (nothing in the cache) and of a
//   second; OUT: int32 tokens build/bench/tokenizer train N TEXT OUT         prints the seconds to learn a vocabulary
//   of N tokens; OUT: tokenizer.json
#include "tools/text/tokenizer.h"

#include <cstdlib>
#include <cstring>

#include "src/base/common.h"
#include "src/base/file.h"

static double encode_pass(const Tokenizer& tokenizer, std::string_view text, std::vector<int>* tokens) {
    tokens->clear();
    const double start = now_seconds();
    tokenizer.encode(text, tokens);
    return now_seconds() - start;
}

static int bench(const std::string& what, const std::string& how, const std::string& text_file,
                 const std::string& out) {
    const std::string text = read_file(text_file);
    if (what == "train") {
        const double start = now_seconds();
        const Tokenizer tokenizer = tokenizer_train_bpe(text, std::atoi(how.c_str()));
        std::printf("%.6f\n", now_seconds() - start);
        write_file_atomic(out, tokenizer.to_json());
        return kExitDone;
    }
    const Tokenizer tokenizer = tokenizer_load(how);
    std::vector<int> tokens;
    tokens.reserve(text.size());  // as other encoders' results, these are memory that was not touched before
    const double cold = encode_pass(tokenizer, text, &tokens), warm = encode_pass(tokenizer, text, &tokens);
    std::printf("%.6f %.6f\n", cold, warm);
    write_file_atomic(out, {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof tokens[0]});
    return kExitDone;
}

int main(int argc, char** argv) {
    try {
        if (argc != 5) die(kExitUsage, "usage: tokenizer encode VOCAB TEXT OUT | train N TEXT OUT");
        return bench(argv[1], argv[2], argv[3], argv[4]);
    } catch (const Error& error) {
        print_error(error);
        return error.code;
    }
}
