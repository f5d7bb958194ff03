// tokenizer_ends.cpp -- which tokens stand before and behind a text. What a model's files say decides, in this order:
//
//     begin   what the post_processor of tokenizer.json puts in front, as transformers' tokenizers do
//     eot     eos_token, which trl appends; else eos_token_id of config.json; else that of generation_config.json, of
//             a list the first; else what the post_processor puts behind; else, and this is said, the only special
//             token or the one with a name for it
//     ends    all of these: transformers' generate stops at any of a list
//     bos     begin, else bos_token, else bos_token_id of config.json
//
// Where no file names a token, it is what transformers' class of the tokenizer takes, and some classes decide about the
// begin, too (kClasses).
//
// In a tokenizer that this program made, <|endoftext|> stands before a document, unless eos_token_id is null.
#include <algorithm>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/data/data.h"
#include "tools/text/tokenizer.h"

namespace {
// A class of transformers 4.44, the tokens that it takes where the files name none, and whether it makes the
// post_processor anew: then bos_token stands before a text if add_bos_token is true, whose default is `adds`.
enum Adds { kAsFile = -1, kNothing, kBegin };
struct TokenizerClass { const char *name, *bos, *eos, *pad; Adds adds; };
constexpr TokenizerClass kClasses[] = {
    {"PreTrainedTokenizer", "", "", "", kAsFile},
    {"GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>", "", kAsFile},
    {"CodeGenTokenizer", "<|endoftext|>", "<|endoftext|>", "", kAsFile},
    {"Qwen2Tokenizer", "", "<|endoftext|>", "<|endoftext|>", kAsFile},
    {"GPTNeoXTokenizer", "<|endoftext|>", "<|endoftext|>", "", kNothing},
    {"LlamaTokenizer", "<s>", "</s>", "", kBegin},
    {"CodeLlamaTokenizer", "<s>", "</s>", "", kBegin},
    {"GemmaTokenizer", "<bos>", "<eos>", "<pad>", kBegin},
    {"CohereTokenizer", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<PAD>", kBegin}};

Json parsed(const std::string& text, const std::string& what) {
    return text.empty() ? Json() : parse_json(text, what.c_str());
}

// Returns the tokens of a number, or a list of numbers.
std::vector<int> tokens_of(const Json& file, const char* key, uint64_t rows, const std::string& what) {
    std::vector<int> tokens;
    const auto add = [&](const Json& id) {
        uint64_t n = 0;
        if (!id.as_u64(&n)) refuse(what.c_str(), key, id, "an integer, a list of them, or null");
        if (n < rows) tokens.push_back(int(n));
        else warn("%s: %s: got %llu, want less than %llu, the model's tokens; it is not used", what.c_str(), key,
                  (unsigned long long)n, (unsigned long long)rows);
    };
    const Json value = file.find(key);
    if (value.kind() == Json::array) for (JsonItems i(value); i.next();) add(i.value);
    else if (value.kind() != Json::null) add(value);
    return tokens;
}

// Returns the row of the class that the files name; null: it is not known, and the files say all.
const TokenizerClass* class_of(const ModelTexts& texts) {
    std::string name = parsed(texts.tokenizer_config, "tokenizer_config.json").find("tokenizer_class").text();
    if (name.empty()) name = parsed(texts.config, "config.json").find("tokenizer_class").text();
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    const auto found = std::ranges::find(kClasses, name, [](const TokenizerClass& c) { return std::string(c.name); });
    return found == std::end(kClasses) ? nullptr : found;
}

void add_once(std::vector<int>* to, int token) {
    if (token >= 0 && !std::ranges::count(*to, token)) to->push_back(token);
}
// Returns the token that an item of a template names; -1: it is a text.
int token_of_item(const Json& post, const Json& item, const std::string& where) {
    const Json token = item.find("SpecialToken").find("id");
    if (!token) return -1;
    JsonItems ids(post.find("special_tokens").find(token.text()).find("ids"));
    uint64_t id = 0;
    if (!ids.next() || !ids.value.as_u64(&id) || id > INT32_MAX || ids.next())
        die_content(where + ": post_processor", json_shown(token), "a token with one id");
    return int(id);
}
}  // namespace

void refuse_older_form(const std::string& folder) {
    const auto has = [&](const char* name) { return file_exists(path_join(folder, name)); };
    if (has("vocab.json") && has("merges.txt") && !has("tokenizer.json"))
        die(kExitNoInput, "%s: got vocab.json and merges.txt, want tokenizer.json; make it with transformers: "
            "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)", folder.c_str());
}

std::string Tokenizer::name_of(int token) const {
    const auto found = std::ranges::find(added, token, &Added::id);
    return found == added.end() ? "" : found->text;
}

Tokenizer::Added end_by_name(const Tokenizer& t) {
    const bool lone = std::ranges::count(t.added, true, &Tokenizer::Added::special) == 1;
    Tokenizer::Added end = {-1, ""};
    for (const Tokenizer::Added& a : t.added)
        if (a.special && (lone || a.text == "<|endoftext|>" || a.text == "<|end_of_text|>")) end = a;
    return end;
}

void read_post_processor(Tokenizer* t, const Json& root, int guess, const std::string& where) {
    int behind = -1;
    const auto take = [&](int* place, int token) {
        if (*place >= 0) die_content(where + ": post_processor", "several tokens on one side of a text", "one");
        if (token >= t->vocab_size)
            die_content(where + ": post_processor", "token " + std::to_string(token), "one of the vocabulary");
        *place = token;
    };
    const std::function<void(const Json&)> read = [&](const Json& post) {
        const std::string type = post.find("type").text();
        if (type == "RobertaProcessing" || type == "BertProcessing")
            die_content(where + ": post_processor", json_quote(type), "TemplateProcessing or ByteLevel");
        int* place = &t->begin;
        for (JsonItems i(post.find("single")); type == "TemplateProcessing" && i.next();)
            if (const int token = token_of_item(post, i.value, where); token >= 0) take(place, token);
            else place = &behind;
        for (JsonItems i(post.find("processors")); i.next();) read(i.value);    // of a Sequence
    };
    read(root.find("post_processor"));
    t->guessed = behind < 0 && guess >= 0;
    t->eot = behind < 0 ? guess : behind;
}

// As transformers reads them: special_tokens_map.json decides, unless the other has added_tokens_decoder.
std::map<std::string, std::string> special_tokens(const ModelTexts& texts) {
    const Json own = parsed(texts.tokenizer_config, "tokenizer_config.json");
    const Json map = parsed(texts.special_tokens_map, "special_tokens_map.json");
    std::map<std::string, std::string> tokens;
    if (const TokenizerClass* const c = class_of(texts))
        tokens = {{"bos_token", c->bos}, {"eos_token", c->eos}, {"pad_token", c->pad}};
    std::erase_if(tokens, [](const auto& token) { return token.second.empty(); });
    for (const Json& file : {own, own.find("added_tokens_decoder") ? Json() : map})
        for (JsonItems i(file); i.next();) {
            const std::string key = i.key.text();
            const Json value = i.value.kind() == Json::object ? i.value.find("content") : i.value;
            if (!key.ends_with("_token") || (value.kind() != Json::string && value.kind() != Json::null)) continue;
            tokens.erase(key);
            if (!value.text().empty() && value.kind() == Json::string) tokens[key] = value.text();
        }
    return tokens;
}

static int id_of(const Tokenizer& t, const std::string& name) {
    const auto added = std::ranges::find(t.added, name, &Tokenizer::Added::text);
    const auto found = std::ranges::find(t.bytes, name);
    return added != t.added.end() ? added->id : found != t.bytes.end() ? int(found - t.bytes.begin()) : -1;
}

// Returns the special tokens that the files name, with an id or without.
static std::vector<std::string> named_tokens(const ModelTexts& texts) {
    std::vector<std::string> names;
    for (const auto& [key, name] : special_tokens(texts)) names.push_back(name);
    for (const std::string& text : {texts.tokenizer_config, texts.special_tokens_map})
        for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
            for (JsonItems i(parsed(text, "tokenizer_config.json").find(key)); i.next();)
                names.push_back(i.value.kind() == Json::object ? i.value.find("content").text() : i.value.text());
    return names;
}

// Adds the tokens that tokenizer.json lacks and that tokenizer_config.json, or else added_tokens.json, gives an id: the
// next one, as transformers gives them. What no file gives an id is told and stays out.
static void read_beside(Tokenizer* t, const ModelTexts& texts, uint64_t rows, const std::string& where) {
    const std::string folder = parent_folder(where), config = path_join(folder, "tokenizer_config.json"),
        map = path_join(folder, "added_tokens.json");
    const Json decoder = parsed(texts.tokenizer_config, config).find("added_tokens_decoder");
    const std::string path = decoder || !file_exists(map) ? config : map, text = path == map ? read_file(map) : "";
    const std::vector<std::string> named = named_tokens(texts);
    std::multimap<int, std::pair<std::string, std::string>> lacks;      // by id: name, and item of the list
    for (JsonItems i(decoder ? decoder : parsed(text, path)); i.next();) {
        const std::string name = decoder ? i.value.get_string("content", path.c_str()) : i.key.text();
        const Json number = decoder ? i.key : i.value;
        int id = -1;
        if (!parse_whole(number.text(), &id) || id < 0) die_content(path + ": " + name, json_shown(number), "an id");
        const bool special = std::ranges::count(named, name);
        if (t->name_of(id) != name)
            lacks.insert({id, {name, decoder ? format("{\"id\":%d,", id) + i.value.text().substr(1) :
                                               added_item({id, name, special, !special})}});
    }
    std::string items;
    for (int next = t->vocab_size; const auto& [id, token] : lacks) {
        if (id_of(*t, token.first) < 0 && (id != next++ || uint64_t(id) >= rows))
            die_content(path + ": " + json_quote(token.first), format("id %d", id),
                        format("%d, the next one, and less than %d as the model has", next - 1, int(rows)));
        items += (items.empty() ? "" : ",") + token.second;
    }
    if (!items.empty()) *t = tokenizer_parse(with_added(t->json, items), where);
    std::ranges::copy_if(named, std::back_inserter(t->unplaced), [&](auto& name) { return id_of(*t, name) < 0; });
    if (!t->unplaced.empty())
        warn("%s: the files name %s, which tokenizer.json does not have and nothing gives an id; not used; "
             "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) adds what is missing", folder.c_str(),
             join(t->unplaced, ", ").c_str());
}

void read_ends(Tokenizer* t, const ModelTexts& texts, const std::string& where) {
    const std::string folder = parent_folder(where), of_config = folder + ": config.json",
        of_generation = folder + ": generation_config.json";
    const Json config = parsed(texts.config, of_config), generation = parsed(texts.generation_config, of_generation);
    uint64_t rows = INT32_MAX;
    const bool stated_rows = config.find("vocab_size").as_u64(&rows);
    if (!t->json.empty()) read_beside(t, texts, rows, where);
    if (!stated_rows) rows = uint64_t(t->vocab_size);
    const bool behind = !t->guessed && t->eot >= 0;     // the post_processor puts a token there
    const std::map<std::string, std::string> names = special_tokens(texts);
    const auto token = [&](const char* key) {
        const auto name = names.find(key);
        return name == names.end() || t->kind == Tokenizer::none ? -1 : id_of(*t, name->second);
    };
    const int named = token("eos_token");
    std::vector<int> ends, numbers = tokens_of(config, "eos_token_id", rows, of_config);
    for (const int id : tokens_of(generation, "eos_token_id", rows, of_generation)) numbers.push_back(id);
    add_once(&ends, named);
    for (const int id : numbers) add_once(&ends, id);
    if (named >= 0 && !numbers.empty() && !std::ranges::count(numbers, named) && !t->own)
        warn("%s: eos_token is token %d, eos_token_id %d: the first ends a document, all of them end an answer",
             folder.c_str(), named, numbers[0]);
    const Json stated = config.find("eos_token_id");
    if (t->own) {
        if (ends.empty() && stated && stated.kind() == Json::null) tokenizer_own(t, -1);
        add_once(&ends, t->eot);
        t->ends = ends;
        return;
    }
    if (behind && !ends.empty() && t->eot != ends[0])
        warn("%s: post_processor: token %d behind a text: %d is taken, as eos_token or eos_token_id says",
             where.c_str(), t->eot, ends[0]);
    if (ends.empty() && t->guessed && !stated)
        warn("%s: no file says which token ends a text; %s is taken, for its name", where.c_str(),
             end_by_name(*t).text.c_str());
    if (ends.empty() && !(t->guessed && stated)) add_once(&ends, t->eot);
    t->ends = ends;
    t->eot = ends.empty() ? -1 : ends[0];
    const int before = t->begin;
    t->bos = token("bos_token");
    for (const int id : tokens_of(config, "bos_token_id", rows, of_config))
        if (t->bos < 0) t->bos = id;
    const Json own = parsed(texts.tokenizer_config, folder), adds = own.find("add_bos_token");
    const auto is_true = [](const Json& x) { return x.kind() != Json::null && x.text() != "false" && x.text() != "0"; };
    const bool stated_begin = bool(adds), adds_begin = is_true(adds);
    const TokenizerClass* const c = class_of(texts);
    const Json kind = own.find("tokenizer_class") ? own.find("tokenizer_class") : config.find("tokenizer_class");
    const std::string of = c ? "" : " of tokenizer_class " + (kind ? json_shown(kind) : "null") +
        ", which is not known here,";
    const char* const to_do = c ? "" : "; if the class obeys it, the post_processor has to say so";
    if (is_true(own.find("add_eos_token")) && (c ? c->adds != kAsFile : !behind))
        warn("%s: tokenizer_config.json: add_eos_token%s is true, but %s%s", folder.c_str(), of.c_str(), t->eot < 0 ?
             "no file names eos_token" : "documents alone end so, not a prompt or a single text", to_do);
    const bool class_begins = c && (stated_begin ? adds_begin : c->adds == kBegin);
    if (c && c->adds != kAsFile && (t->bos >= 0 || !class_begins)) {        // without bos_token the file decides
        t->begin = class_begins ? t->bos : -1;
        if (t->begin != before)
            warn("%s: tokenizer_class: a %s puts %s before a text, whatever the post_processor of tokenizer.json "
                 "says", folder.c_str(), c->name, t->begin < 0 ? "nothing" : json_quote(t->name_of(t->bos)).c_str());
        return;
    }
    if (before >= 0 && t->bos >= 0 && t->bos != before)
        warn("%s: post_processor: token %d stands before a text, though bos_token is %d", where.c_str(), before,
             t->bos);
    if (stated_begin && adds_begin != (before >= 0))
        warn("%s: tokenizer_config.json: add_bos_token%s is %s, but the post_processor of tokenizer.json puts %s "
             "before a text, which is done%s", folder.c_str(), of.c_str(), adds.text().c_str(),
             before >= 0 ? "a token" : "none", to_do);
    if (before >= 0) t->bos = before;
}
