// test_stories.cpp -- the built-in stories: probabilities that sum to one, texts that fit, questions that reading
// answers.
//
// The answers are checked by a simulation of its own, which knows the sentences' forms and nothing of the generator.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include "src/base/json.h"
#include "tests/test.h"
#define main make_stories
#include "data/make_stories.cpp"
#undef main

namespace {

constexpr uint64_t kMany = 20000;

// Index of the option that `text` continues with after `read`; every choice of a story can be found again this way.
size_t next_choice(std::string_view text, const std::string& read, const Options& options) {
    for (size_t k = 0; text.starts_with(read) && k < options.size(); k++)
        if (text.substr(read.size()).starts_with(options[k].text)) return k;
    FAIL("no option continues \"%s\"", read.c_str());
}

std::vector<std::string> split_words(const std::string& sentence) {
    std::istringstream in(sentence);
    std::vector<std::string> words;
    for (std::string w; in >> w;) {
        words.push_back(w.substr(0, w.find_last_not_of(",.?") + 1));
    }
    return words;
}

// Sentences of a story, the question and the answer among them. '!"' ends no sentence: "said" follows.
std::vector<std::string> split_sentences(const std::string& text) {
    std::vector<std::string> sentences;
    for (size_t begin = 0, end; (end = text.find_first_of(".?", begin)) != text.npos; begin = end + 2)
        sentences.push_back(text.substr(begin, end + 1 - begin));
    return sentences;
}

const std::set<std::string> kGirls = {"Mira", "Rosa", "Ella", "Cora", "Kate", "Iris", "Vera", "Gwen", "Olga", "Zara"};

// What somebody who reads the story from the first word to the last knows.
struct Reader {
    std::vector<std::string> cast;
    std::map<std::string, std::string> place, first, holder, lies;  // of persons, persons, things, things
    std::set<std::string> places;
    std::map<std::string, std::string> finder;  // of things
    std::string subject;                        // of the sentence before
    std::string last_person, last_place;

    void move(const std::string& who, const std::string& to) {
        if (place[who] != to) first.emplace(who, to);
        place[who] = to;
    }
    void read(const std::string& sentence) {
        const Row row(sentence);
        const std::vector<std::string> w = split_words(sentence);
        if (cast.empty()) {
            size_t k = 0;
            for (; w.at(k) != "met"; k++)
                if (w[k] != "and") cast.push_back(w[k]);
            for (const std::string& p : cast) place[p] = w.at(k + 3);
            return note(w);
        }
        std::string who = w[0];
        if (who == "He" || who == "She") {
            EXPECT(!subject.empty() && (who == "She") == kGirls.contains(subject), "pronoun after %s", subject.c_str());
            who = subject;
        }
        subject = "";
        note(w);
        const auto said = std::ranges::find(w, "said");
        if (said != w.end()) subject = said[1];
        if (said != w.end() || !std::ranges::count(cast, who)) return;
        subject = who;
        const std::string& verb = w.at(1);
        if (verb == "found") {
            EXPECT(w[2] == (std::strchr("aeiou", w.at(3)[0]) ? "an" : "a"), "article");
            EXPECT(!holder.contains(w.at(5)), "found again");
            holder[w[5]] = finder[w[5]] = who;
        } else if (verb == "brought") {
            EXPECT(holder.at(w.at(4)) == who, "not %s's to bring", who.c_str());
            EXPECT(w.at(2) != who, "to oneself");
            holder[w[4]] = w[2];
            move(who, place.at(w[2]));
            if (kGirls.contains(who) == kGirls.contains(w[2])) subject = "";  // a pronoun could be either's
        } else if (verb == "left") {
            EXPECT(holder.at(w.at(3)) == who, "not %s's to leave", who.c_str());
            holder[w[3]] = "";
            lies[w[3]] = w.at(6);
            move(who, w[6]);
        } else if (verb == "picked") {
            EXPECT(holder.at(w.at(4)).empty() && lies.at(w[4]) == w.at(7), "is not there");
            holder[w[4]] = who;
            move(who, w[7]);
        } else if (w.at(2) == "to") {
            EXPECT(place.at(who) != w.at(4), "is there already");
            move(who, w[4]);
        } else if (w[2] == "her" || w[2] == "his") {
            EXPECT((w[2] == "her") == kGirls.contains(who), "possessive");
        } else {
            EXPECT(verb == "felt", "unknown sentence");
        }
    }
    // The last person and place named, and all places: those after "at the" and "to the".
    void note(const std::vector<std::string>& w) {
        for (size_t k = 0; k < w.size(); k++) {
            if (std::ranges::count(cast, w[k])) last_person = w[k];
            if (k >= 2 && w[k - 1] == "the" && (w[k - 2] == "at" || w[k - 2] == "to")) places.insert(last_place = w[k]);
        }
    }
    std::string answer(const std::string& question) const {
        const std::vector<std::string> w = split_words(question);
        if (w[0] == "Who") return (w.at(1) == "found" ? finder : holder).at(w.at(3)) + ".";
        if (w.at(1) == "did") return "To the " + first.at(w.at(2)) + ".";
        return "At the " + (w.at(2) == "the" ? lies.at(w.at(3)) : place.at(w[2])) + ".";
    }
};

// Bytes of a template, in which each # stands for a word, when the longest words are taken.
size_t longest(std::string_view form, std::initializer_list<const Words*> slots) {
    size_t n = form.size() - slots.size();
    for (const Words* words : slots) n += std::ranges::max(*words, {}, &std::string::size).size();
    return n;
}

// The same rules with so few words and bytes that all stories can be written down.
const Grammar small_grammar = {
    .limit = 224, .sentence = 37, .question = 38, .cast = 2, .weather = {"cold"}, .month = {"May"},
    .time = {"day"}, .name = {"Mira|Jack"}, .place = {"mill|barn"}, .thing = {"lamp|kite"}, .looks = {"an old"},
    .color = {"red"}, .walk = {"ran"}, .feeling = {"sad"}, .rub = {"rubbed"}, .body = {"nose"},
    .cry = {"Oh dear"}, .animal = {"cat"}, .rest = {"sat"}, .spot = {"on a log"}, .view = {"wind sang"},
};

std::vector<Story> enumerate_small_grammar() {
    std::vector<Story> stories;
    struct Digit { size_t value, base; };
    std::vector<Digit> path;  // an odometer: the choices of the story at hand
    do {
        size_t k = 0;
        stories.push_back(tell_story([&](const std::string&, const Options& options) {
            if (k == path.size()) path.push_back({0, options.size()});
            return path[k++].value;
        }, small_grammar));
        while (!path.empty() && ++path.back().value == path.back().base) path.pop_back();
    } while (!path.empty());
    return stories;
}

// The story with this text: its bits, and where its answer lies. False if no derivation gives the text.
bool read_story(std::string_view text, Story* story) {
    const auto choose = [&](const std::string& read, const Options& o) { return next_choice(text, read, o); };
    return !fails([&] { *story = tell_story(choose); }) && story->text == text;
}

bool same(const Story& a, const Story& b) {
    return a.text == b.text && a.bits == b.bits && a.answer == b.answer && a.answers == b.answers;
}

}  // namespace

// What the grammars say of their longest sentences and questions follows from their words.
TEST(rooms) {
    for (const Grammar* of : {&full_grammar, &small_grammar}) {
        const Grammar& g = *of;
        EXPECT_EQ(g.sentence, std::max({
            longest(" # found # # #.", {&g.name, &g.looks, &g.color, &g.thing}),
            longest(" # brought # the #.", {&g.name, &g.name, &g.thing}),
            longest(" # left the # at the #.", {&g.name, &g.thing, &g.place}),
            longest(" # picked up the # at the #.", {&g.name, &g.thing, &g.place}),
            longest(" # # to the #.", {&g.name, &g.walk, &g.place}), longest(" # felt #.", {&g.name, &g.feeling}),
            longest(" # # her #.", {&g.name, &g.rub, &g.body}), longest(" A # # #.", {&g.animal, &g.rest, &g.spot}),
            longest(" The #.", {&g.view}), longest(" \"#!\" said #.", {&g.cry, &g.name})}));
        EXPECT_EQ(g.question, std::max({
            longest(" Who found the #? #.", {&g.thing, &g.name}),
            longest(" Where is the #? At the #.", {&g.thing, &g.place}),
            longest(" Where is #? At the #.", {&g.name, &g.place}),
            longest(" Where did # go first? To the #.", {&g.name, &g.place})}));
    }
}

TEST(small_grammar_sums_to_one_and_repeats_nothing) {
    const std::vector<Story> stories = enumerate_small_grammar();
    EXPECT(stories.size() > 5000, "%zu stories", stories.size());
    double sum = 0;
    std::map<std::string, int> texts, starts;
    for (const Story& s : stories) {
        sum += std::exp2(-s.bits);
        texts[s.text]++;
        for (const std::string& sentence : split_sentences(s.text)) {
            const std::vector<std::string> w = split_words(sentence);
            if (w.size() > 1) starts[w[1]]++;
            if (w.size() > 1 && w[0] == "Where") starts["Where " + w[1]]++;
        }
    }
    EXPECT(std::fabs(sum - 1) < 1e-12, "sum of probabilities - 1 = %g", sum - 1);
    EXPECT_EQ(texts.size(), stories.size());
    // Every rule takes part, else this test says little.
    for (const char* rule :
         {"found", "brought", "left", "picked", "felt", "ran", "rubbed", "cat", "wind", "has", "Where is", "Where did"})
        EXPECT(starts.count(rule), "no story uses \"%s\"", rule);
}

TEST(text_fits_its_slot) {
    double length = 0, bits = 0;
    for (uint64_t i = 0; i < kMany; i++) {
        const Story s = make_story(1337, i);
        const Row row(s.text);
        EXPECT(s.text.size() <= kStoryBytes - 1, "%zu bytes", s.text.size());
        EXPECT(std::ranges::all_of(s.text, [](char c) { return c >= 0x20 && c < 0x7f; }) && !has(s.text, "  "));
        EXPECT(s.answer > 2 && s.answer < s.text.size() && s.text.compare(s.answer - 2, 2, "? ") == 0, "%zu", s.answer);
        EXPECT(s.text.back() == '.' && s.text.find('.', s.answer) == s.text.size() - 1);
        EXPECT(s.answers.size() >= 2 && std::isfinite(s.bits) && s.bits > 0, "%zu answers, %g bits", s.answers.size(),
               s.bits);
        length += double(s.text.size());
        bits += s.bits;
    }
    EXPECT(length / kMany >= 200, "mean length %g", length / kMany);
    EXPECT(bits / length > 0.25 && bits / length < 0.8, "%g bits per byte", bits / length);
}

// However the choices fall: always the first, always the last, the longest word, the shortest.
TEST(text_fits_its_slot_in_the_extremes) {
    for (int rule = 0; rule < 4; rule++)
        for (size_t period = 1; period < 40; period++) {
            size_t count = 0;
            const Story s = tell_story([&](const std::string&, const Options& options) {
                if (rule == 1 || (rule == 2 && count++ % period == 0)) return options.size() - 1;
                if (rule == 0 || (rule == 3 && count++ % period == 0)) return size_t(0);
                const auto size = [](const Option& o) { return o.text.size(); };
                return size_t(std::ranges::max_element(options, {}, size) - options.begin());
            });
            EXPECT(s.text.size() <= kStoryBytes - 1, "%zu bytes: %s", s.text.size(), s.text.c_str());
        }
}

TEST(a_story_is_a_function_of_seed_and_number) {
    std::set<std::string> texts;
    for (uint64_t i = 0; i < 500; i++) {
        const Story a = make_story(7, i), other = make_story(8, i), far = make_story(7, i << 32 | 1);
        EXPECT(same(a, make_story(7, i)), "story %zu differs from itself", size_t(i));
        if (i > 0) EXPECT(a.text != far.text, "the upper half of the number has no effect: %zu", size_t(i));
        texts.insert({a.text, other.text});
    }
    EXPECT_EQ(texts.size(), 1000);
    EXPECT(make_story(1, 0).text != make_story(1ull << 32 | 1, 0).text, "the upper half of the seed has no effect");
}

// What makes the grammar unambiguous: no choice offers a string that begins another.
TEST(choices_are_prefix_free) {
    size_t choices = 0;
    for (uint64_t i = 0; i < 5000; i++) {
        const Story s = make_story(3, i);
        tell_story([&](const std::string& read, const Options& options) {
            for (const Option& a : options) {
                EXPECT(a.weight > 0 && !a.text.empty(), "option \"%s\"", a.text.c_str());
                for (const Option& b : options)
                    EXPECT(&a == &b || !b.text.starts_with(a.text), "\"%s\" begins \"%s\" after \"%s\"", a.text.c_str(),
                           b.text.c_str(), read.c_str());
            }
            choices++;
            return next_choice(s.text, read, options);
        });
    }
    EXPECT(choices > 5000 * 15, "%zu choices", choices);
}

// The sampler draws by the weights it charges for: mean surprise = mean entropy of the choices, within 4.5 standard
// errors.
TEST(draws_follow_the_weights) {
    double surprise = 0, entropy = 0, variance = 0;
    std::map<std::string, double> drawn, expected;
    for (uint64_t i = 0; i < kMany; i++) {
        const Story s = make_story(11, i);
        bool first = true;
        double bits = 0;
        tell_story([&](const std::string& read, const Options& options) {
            const size_t k = next_choice(s.text, read, options);
            double sum = 0, h = 0, h2 = 0;
            for (const Option& o : options) sum += o.weight;
            for (const Option& o : options) {
                const double p = o.weight / sum, b = -std::log2(p);
                h += p * b, h2 += p * b * b;
                if (first) expected[o.text] += p;
            }
            if (first) drawn[options[k].text]++;
            first = false;
            bits -= std::log2(options[k].weight / sum);
            entropy += h, variance += h2 - h * h;
            return k;
        });
        EXPECT(std::fabs(bits - s.bits) < 1e-9, "story %zu: %.12g bits, by its choices %.12g", size_t(i), s.bits, bits);
        surprise += bits;
    }
    const double z = (surprise - entropy) / std::sqrt(variance);
    EXPECT(std::fabs(z) < 4.5, "z = %g", z);
    for (const auto& [word, n] : expected)
        EXPECT(std::fabs(drawn[word] - n) < 4.5 * std::sqrt(n), "\"%s\": drawn %g times, expected %g", word.c_str(),
               drawn[word], n);
}

TEST(read_story_reads_back) {
    for (uint64_t i = 0; i < 3000; i++) {
        const Story s = make_story(5, i);
        const Row row(s.text);
        Story r;
        EXPECT(read_story(s.text, &r) && same(r, s));
        for (size_t cut : {size_t(0), size_t(1), s.text.size() / 2, s.answer, s.text.size() - 1})
            EXPECT(!read_story(s.text.substr(0, cut), &r), "a torn story is read: %zu", cut);
        EXPECT(!read_story(s.text + " ", &r) && !read_story(s.text + s.text, &r), "more than a story is read");
        EXPECT(!read_story(s.text.substr(0, s.answer) + "Nobody.", &r), "a wrong answer is read");
        std::string wrong = s.text;
        wrong[i * 31 % wrong.size()] ^= 1;
        if (read_story(wrong, &r)) EXPECT_EQ(r.text, wrong);
    }
}

TEST(only_reading_answers_the_questions) {
    std::map<std::string, int> forms;
    int recency = 0, finder = 0, who = 0;
    for (uint64_t i = 0; i < kMany; i++) {
        const Story s = make_story(2, i);
        const Row row(s.text);
        const std::vector<std::string> sentences = split_sentences(s.text);
        std::set<std::string> asked;
        Reader reader;
        size_t k = 0;
        for (; sentences.at(k).back() != '?'; k++) reader.read(sentences[k]);
        EXPECT((sentences.size() - k) % 2 == 0);
        for (; k < sentences.size(); k += 2) {
            const std::string &question = sentences[k], &answer = sentences[k + 1];
            EXPECT(asked.insert(question).second, "asked twice");
            EXPECT_EQ(reader.answer(question), answer);
            if (k + 2 < sentences.size()) continue;
            // The closing question. Whoever only remembers the last name, or who found the thing, must often be wrong.
            const std::vector<std::string> w = split_words(question);
            const bool person = w.at(0) == "Who";
            const size_t answers = person ? reader.cast.size() : reader.places.size();
            EXPECT(answer == s.text.substr(s.answer), "answer at %zu", s.answer);
            EXPECT(s.answers.size() == answers && std::ranges::count(s.answers, answer) == 1,
                   "%zu answers, want %zu", s.answers.size(), answers);
            forms[question.substr(0, 8)]++;
            recency += answer == (person ? reader.last_person + "." : answer.substr(0, 7) + reader.last_place + ".");
            if (w.at(1) == "has") who++, finder += answer == reader.finder.at(w.at(3)) + ".";
        }
    }
    EXPECT(recency < 0.6 * kMany, "the last name mentioned is right %d times of %d", recency, int(kMany));
    EXPECT(finder < 0.85 * who, "the finder is right %d times of %d", finder, who);
    for (const char* form : {"Who has ", "Who foun", "Where is", "Where di"})
        EXPECT(forms[form] > int(kMany) / 200, "\"%s\": %d", form, forms[form]);
}

// The test's reader is no yes-man: it notices what cannot be.
TEST(the_reader_notices_nonsense) {
    const auto read = [](const std::vector<std::string>& sentences) {
        Reader reader;
        reader.read("Mira, Jack and Rosa met at the mill one cold May day.");
        for (const std::string& s : sentences) reader.read(s);
    };
    const std::string found = "Jack found an old red lamp.";
    read({found, "He felt sad.", "Jack left the lamp at the barn.", "Rosa picked up the lamp at the barn."});
    const std::pair<std::vector<std::string>, const char*> bad[] = {
        {{found, "She felt sad."}, "a wrong pronoun"}, {{found, "Mira rubbed his nose."}, "a wrong possessive"},
        {{"Jack found an red old lamp."}, "a wrong article"},
        {{found, "Mira brought Rosa the lamp."}, "a thing that another holds"},
        {{found, "Jack left the lamp at the barn.", "Rosa picked up the lamp at the well."}, "it lies elsewhere"},
        {{found, "Rosa picked up the lamp at the barn."}, "it does not lie there"},
        {{found, "Rosa ran to the mill."}, "a walk to where one is"}};
    for (const auto& [sentences, what] : bad) EXPECT(fails([&, &s = sentences] { read(s); }), "%s", what);
}

TEST(vocabulary_is_rich) {
    std::set<std::string> words;
    for (uint64_t i = 0; i < 5000; i++)
        for (std::string w : split_words(make_story(4, i).text)) {
            std::erase_if(w, [](char c) { return c == '"' || c == '!'; });
            words.insert(w);
        }
    EXPECT(words.size() >= 280, "%zu words", words.size());
}

// What the build's run of the program wrote, beside this program or above it.
TEST(files_hold_the_stories) {
    std::string folder = parent_folder(program_path()) + "/../data";
    if (!file_exists(folder + "/stories.json")) folder = parent_folder(program_path()) + "/../../data";
    double bits = 0;
    const std::string val = read_file(folder + "/stories_val.jsonl"),
                      questions = read_file(folder + "/questions.jsonl");
    std::string_view stories = val, asked = questions;
    for (uint64_t i = 0; i < kValidationStories; i++) {
        const Story s = make_story(kValidationSeed, i);
        const std::string text = parse_json(next_word(&stories, '\n'), "story").get_string("text", "story");
        EXPECT(text.size() == kStoryBytes && text.starts_with(s.text), "%s", text.c_str());
        EXPECT(text.find_first_not_of(' ', s.text.size()) == std::string::npos, "more than spaces: %s", text.c_str());
        const Json q = parse_json(next_word(&asked, '\n'), "question");
        std::vector<std::string> endings;
        for (JsonItems k(q.at("endings", "q")); k.next();) endings.push_back(k.value.text());
        EXPECT(endings == s.answers, "%zu endings: %s", endings.size(), s.text.c_str());
        EXPECT_EQ(q.get_string("ctx", "q") + " " + endings.at(q.get_u64("label", "q")), s.text);
        bits += s.bits;
    }
    EXPECT(stories.empty() && asked.empty(), "more stories than %d", int(kValidationStories));
    const std::string facts = read_file(folder + "/stories.json");
    const double floor = parse_json(facts, "stories.json").get_double("bits_per_byte", "stories.json");
    EXPECT(std::fabs(floor - bits / double(kValidationStories * kStoryBytes)) < 1e-12, "%g bits per byte", floor);
    const std::string train = read_file(folder + "/stories_train.jsonl");
    EXPECT(std::count(train.begin(), train.end(), '\n') == long(kTrainStories), "stories to train on");
    const std::string_view line = std::string_view(train).substr(0, train.find('\n'));
    const std::string first = parse_json(line, "first").get_string("text", "first");
    EXPECT(first.starts_with(make_story(kTrainSeed, 0).text), "%s", first.c_str());
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
