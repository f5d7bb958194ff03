// rows.h -- packs documents into rows, each of which has whole documents and as little padding as best fit leaves.
#pragma once
#include <string>
#include <vector>
#include "src/data/data.h"
#include "tools/text/text.h"

// Packs documents in blocks of 65,536, in the order of the data. The longest piece of a block comes first, and each
// goes into the row that has the least room for it. So the rows are a function of the documents and T.
struct Packer {
    uint64_t T;                             // tokens of a row
    // What the table of rows has: the first piece of each row, the pieces, and the tokens in all of them. Rows are in
    // the order of their first tokens, and so are the pieces of a row.
    std::vector<uint64_t> rows = {}, pieces = {};
    uint64_t tokens = 0;
    std::vector<uint64_t> block = {};       // its pieces
    size_t of_block = 0;                    // its documents

    // Adds tokens [first, end), which are one document, behind those before. It is cut into pieces of T tokens, and
    // what is left of it is one, too. A piece that is the last token of its shard, which ends at shard_end, has no
    // target and is left out.
    void add(uint64_t first, uint64_t end, uint64_t shard_end);
    void pack();                            // packs the block and begins the next one
};

// Packs the documents of a part into rows of T tokens and writes the table of rows. Documents of masked shards begin
// with kBegins, others are those that `between` tells apart. sources: the first shard of each source of a mixture,
// which shares no row with others. Returns whether there is a token between documents.
bool write_rows(const Dataset& part, const std::vector<size_t>& sources, const DocumentTokens& between, int vocab_size,
                const std::string& path, const Progress& progress);
