// test_stories.cpp -- the built-in stories: probabilities that sum to one, texts that fit, questions that reading
// answers.
//
// The answers are checked by a simulation of its own, which knows the sentences' forms and nothing of the generator.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include "src/base/file.h"
#include "src/base/json.h"
#include "tests/test.h"
#define main make_stories
#include "data/make_stories.cpp"
#undef main

namespace {

constexpr uint64_t kMany = 20000;

// Index of the option that `text` continues with after `read`; every choice of a story can be found again this way.
size_t next_choice(const std::string& text, const std::string& read, const Options& options) {
    for (size_t k = 0; k < options.size(); k++)
        if (text.compare(read.size(), options[k].text.size(), options[k].text) == 0) return k;
    FAIL("no option continues \"%s\" as in \"%s\"", read.c_str(), text.c_str());
}

std::vector<std::string> split_words(const std::string& sentence) {
    std::istringstream in(sentence);
    std::vector<std::string> words;
    for (std::string w; in >> w;) {
        while (!w.empty() && (w.back() == ',' || w.back() == '.' || w.back() == '?')) w.pop_back();
        words.push_back(w);
    }
    return words;
}

// Sentences of a story, the question and the answer among them. '!"' ends no sentence: "said" follows.
std::vector<std::string> split_sentences(const std::string& text) {
    std::vector<std::string> sentences;
    size_t begin = 0;
    for (size_t i = 0; i < text.size(); i++) {
        if (text[i] != '.' && text[i] != '?') continue;
        sentences.push_back(text.substr(begin, i + 1 - begin));
        begin = i + 2;
    }
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
        if (place[who] != to && !first.count(who)) first[who] = to;
        place[who] = to;
    }
    void read(const std::string& sentence) {
        const std::vector<std::string> w = split_words(sentence);
        if (cast.empty()) {
            size_t k = 0;
            for (; w.at(k) != "met"; k++)
                if (w[k] != "and") cast.push_back(w[k]);
            for (const std::string& p : cast) place[p] = w.at(k + 3);
            note(w);
            return;
        }
        std::string who = w[0];
        if (who == "He" || who == "She") {
            EXPECT(!subject.empty() && (who == "She") == (kGirls.count(subject) > 0), "pronoun in \"%s\" after %s",
                   sentence.c_str(), subject.c_str());
            who = subject;
        }
        subject = "";
        note(w);
        const size_t said = size_t(std::find(w.begin(), w.end(), "said") - w.begin());
        if (said < w.size()) {
            subject = w.at(said + 1);
            return;
        }
        if (!std::count(cast.begin(), cast.end(), who)) return;
        subject = who;
        const std::string& verb = w.at(1);
        if (verb == "found") {
            const bool vowel = std::string("aeiou").find(w.at(3)[0]) != std::string::npos;
            EXPECT(w[2] == (vowel ? "an" : "a"), "article in \"%s\"", sentence.c_str());
            EXPECT(!holder.count(w.at(5)), "found again: \"%s\"", sentence.c_str());
            holder[w[5]] = finder[w[5]] = who;
        } else if (verb == "brought") {
            EXPECT(holder.at(w.at(4)) == who, "not %s's to bring: \"%s\"", who.c_str(), sentence.c_str());
            EXPECT(w.at(2) != who, "to oneself: \"%s\"", sentence.c_str());
            holder[w[4]] = w[2];
            move(who, place.at(w[2]));
            if (kGirls.count(who) == kGirls.count(w[2])) subject = "";  // a pronoun could be either's
        } else if (verb == "left") {
            EXPECT(holder.at(w.at(3)) == who, "not %s's to leave: \"%s\"", who.c_str(), sentence.c_str());
            holder[w[3]] = "";
            lies[w[3]] = w.at(6);
            move(who, w[6]);
        } else if (verb == "picked") {
            EXPECT(holder.at(w.at(4)).empty() && lies.at(w[4]) == w.at(7), "is not there: \"%s\"", sentence.c_str());
            holder[w[4]] = who;
            move(who, w[7]);
        } else if (w.at(2) == "to") {
            EXPECT(place.at(who) != w.at(4), "is there already: \"%s\"", sentence.c_str());
            move(who, w[4]);
        } else if (w[2] == "her" || w[2] == "his") {
            EXPECT((w[2] == "her") == (kGirls.count(who) > 0), "\"%s\"", sentence.c_str());
        } else {
            EXPECT(verb == "felt", "unknown sentence \"%s\"", sentence.c_str());
        }
    }
    // The last person and place named, and all places: those after "at the" and "to the".
    void note(const std::vector<std::string>& w) {
        for (size_t k = 0; k < w.size(); k++) {
            if (std::count(cast.begin(), cast.end(), w[k])) last_person = w[k];
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
    for (const Words* words : slots) {
        size_t longest_word = 3;  // "She" may stand for a name
        for (std::string_view w : *words) longest_word = std::max(longest_word, w.size());
        n += longest_word;
    }
    return n;
}
size_t longest_sentence(const Grammar& g) {
    return std::max({longest(" # found # # #.", {&g.name, &g.looks, &g.color, &g.thing}),
                     longest(" # brought # the #.", {&g.name, &g.name, &g.thing}),
                     longest(" # left the # at the #.", {&g.name, &g.thing, &g.place}),
                     longest(" # picked up the # at the #.", {&g.name, &g.thing, &g.place}),
                     longest(" # # to the #.", {&g.name, &g.walk, &g.place}),
                     longest(" # felt #.", {&g.name, &g.feeling}), longest(" # # her #.", {&g.name, &g.rub, &g.body}),
                     longest(" A # # #.", {&g.animal, &g.rest, &g.spot}), longest(" The #.", {&g.view}),
                     longest(" \"#!\" said #.", {&g.cry, &g.name})});
}
size_t longest_question(const Grammar& g) {
    return std::max({longest(" Who found the #? #.", {&g.thing, &g.name}),
                     longest(" Where is the #? At the #.", {&g.thing, &g.place}),
                     longest(" Where is #? At the #.", {&g.name, &g.place}),
                     longest(" Where did # go first? To the #.", {&g.name, &g.place})});
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
    struct NotAStory {};
    try {
        *story = tell_story([&](const std::string& read, const Options& options) {
            const std::string_view rest = text.substr(0, read.size()) == read ? text.substr(read.size()) : "";
            for (size_t k = 0; k < options.size(); k++)
                if (rest.substr(0, options[k].text.size()) == options[k].text) return k;
            throw NotAStory();
        });
    } catch (NotAStory) {
        return false;
    }
    return story->text == text;
}

}  // namespace

// What the grammars say of their longest sentences and questions follows from their words.
TEST(rooms) {
    for (const Grammar* g : {&full_grammar, &small_grammar})
        EXPECT(g->sentence == longest_sentence(*g) && g->question == longest_question(*g),
               "%zu and %zu bytes, want %zu and %zu", g->sentence, g->question, longest_sentence(*g),
               longest_question(*g));
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
    size_t shortest = 1000, longest = 0;
    for (uint64_t i = 0; i < kMany; i++) {
        const Story s = make_story(1337, i);
        EXPECT(s.text.size() <= kStoryBytes - 1, "story %zu: %zu bytes", size_t(i), s.text.size());
        for (char c : s.text) EXPECT(c >= 0x20 && c < 0x7f, "story %zu: byte 0x%02x", size_t(i), unsigned(uint8_t(c)));
        EXPECT(!has(s.text, "  "), "two spaces: %s", s.text.c_str());
        EXPECT(s.answer > 2 && s.answer < s.text.size() && s.text.compare(s.answer - 2, 2, "? ") == 0,
               "answer at %zu: %s", s.answer, s.text.c_str());
        EXPECT(s.text.back() == '.' && s.text.find('.', s.answer) == s.text.size() - 1, "%s", s.text.c_str());
        EXPECT(s.answers.size() >= 2 && std::isfinite(s.bits) && s.bits > 0, "%zu answers, %g bits", s.answers.size(),
               s.bits);
        length += double(s.text.size()), bits += s.bits;
        shortest = std::min(shortest, s.text.size()), longest = std::max(longest, s.text.size());
    }
    std::printf("    %.1f bytes (%zu to %zu), %.2f bits a story, %.4f bits per byte\n", length / kMany, shortest,
                longest, bits / kMany, bits / length);
    EXPECT(length / kMany >= 200, "mean length %g", length / kMany);
    EXPECT(bits / length > 0.25 && bits / length < 0.8, "%g bits per byte", bits / length);
}

// However the choices fall: always the first, always the last, the longest word, the shortest.
TEST(text_fits_its_slot_in_the_extremes) {
    for (int rule = 0; rule < 4; rule++)
        for (size_t period = 1; period < 40; period++) {
            size_t count = 0;
            const Story s = tell_story([&](const std::string&, const Options& options) {
                size_t best = 0;
                if (rule == 1 || (rule == 2 && count++ % period == 0)) return options.size() - 1;
                if (rule == 3 && count++ % period == 0) return size_t(0);
                for (size_t k = 0; rule >= 2 && k < options.size(); k++)
                    if (options[k].text.size() > options[best].text.size()) best = k;
                return best;
            });
            EXPECT(s.text.size() <= kStoryBytes - 1, "%zu bytes: %s", s.text.size(), s.text.c_str());
        }
}

TEST(a_story_is_a_function_of_seed_and_number) {
    std::set<std::string> texts;
    for (uint64_t i = 0; i < 500; i++) {
        const Story a = make_story(7, i), other = make_story(8, i), far = make_story(7, i << 32 | 1);
        (void)make_story(9, i + 1);
        const Story b = make_story(7, i);
        EXPECT(a.text == b.text && a.bits == b.bits && a.answer == b.answer && a.answers == b.answers,
               "story %zu differs from itself", size_t(i));
        if (i > 0) EXPECT(a.text != far.text, "the upper half of the number has no effect: %zu", size_t(i));
        EXPECT(a.text != other.text, "seeds 7 and 8 tell the same story %zu", size_t(i));
        texts.insert(a.text), texts.insert(other.text);
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
            for (size_t a = 0; a < options.size(); a++) {
                EXPECT(options[a].weight > 0 && !options[a].text.empty(), "option \"%s\"",
                       std::string(options[a].text).c_str());
                for (size_t b = 0; b < options.size(); b++)
                    EXPECT(a == b || options[b].text.substr(0, options[a].text.size()) != options[a].text,
                           "\"%s\" begins \"%s\" after \"%s\"", std::string(options[a].text).c_str(),
                           std::string(options[b].text).c_str(), read.c_str());
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
                if (first) expected[std::string(o.text)] += p;
            }
            if (first) drawn[std::string(options[k].text)]++;
            first = false;
            bits -= std::log2(options[k].weight / sum);
            entropy += h, variance += h2 - h * h;
            return k;
        });
        EXPECT(std::fabs(bits - s.bits) < 1e-9, "story %zu: %.12g bits, by its choices %.12g", size_t(i), s.bits, bits);
        surprise += bits;
    }
    const double z = (surprise - entropy) / std::sqrt(variance);
    std::printf("    mean surprise %.3f, mean entropy of the choices %.3f bits (z = %.2f)\n", surprise / kMany,
                entropy / kMany, z);
    EXPECT(std::fabs(z) < 4.5, "z = %g", z);
    for (const auto& [word, n] : expected)
        EXPECT(std::fabs(drawn[word] - n) < 4.5 * std::sqrt(n), "\"%s\": drawn %g times, expected %g", word.c_str(),
               drawn[word], n);
}

TEST(read_story_reads_back) {
    for (uint64_t i = 0; i < 3000; i++) {
        const Story s = make_story(5, i);
        Story r;
        EXPECT(read_story(s.text, &r), "not a story: %s", s.text.c_str());
        EXPECT(r.text == s.text && r.bits == s.bits && r.answer == s.answer && r.answers == s.answers,
               "read back differently: %s", s.text.c_str());
        for (size_t cut : {size_t(0), size_t(1), s.text.size() / 2, s.answer, s.text.size() - 1})
            EXPECT(!read_story(s.text.substr(0, cut), &r), "a torn story is read: %zu of %s", cut, s.text.c_str());
        EXPECT(!read_story(s.text + " ", &r) && !read_story(s.text + s.text, &r), "more than a story is read");
        std::string wrong = s.text;
        const size_t at = size_t(i) * 31 % wrong.size();
        wrong[at] = char(wrong[at] ^ 1);
        Story w;
        if (read_story(wrong, &w)) EXPECT_EQ(w.text, wrong);
        wrong = s.text.substr(0, s.answer) + "Nobody.";
        EXPECT(!read_story(wrong, &r), "a wrong answer is read");
    }
}

TEST(only_reading_answers_the_questions) {
    std::map<std::string, int> forms;
    int questions = 0, recency = 0, finder = 0, who = 0;
    double chance = 0;
    for (uint64_t i = 0; i < kMany; i++) {
        const Story s = make_story(2, i);
        const std::vector<std::string> sentences = split_sentences(s.text);
        std::set<std::string> asked;
        Reader reader;
        size_t k = 0;
        for (; sentences.at(k).back() != '?'; k++) reader.read(sentences[k]);
        EXPECT((sentences.size() - k) % 2 == 0, "%s", s.text.c_str());
        for (; k < sentences.size(); k += 2) {
            const std::string &question = sentences[k], &answer = sentences[k + 1];
            EXPECT(asked.insert(question).second, "asked twice: %s", s.text.c_str());
            EXPECT(reader.answer(question) == answer, "a reader says \"%s\": %s", reader.answer(question).c_str(),
                   s.text.c_str());
            if (k + 2 < sentences.size()) continue;
            // The closing question. Whoever only remembers the last name, or who found the thing, must often be wrong.
            const std::vector<std::string> w = split_words(question);
            const bool person = w.at(0) == "Who";
            const size_t answers = person ? reader.cast.size() : reader.places.size();
            EXPECT(answer == s.text.substr(s.answer), "answer at %zu of %s", s.answer, s.text.c_str());
            EXPECT(s.answers.size() == answers && std::ranges::count(s.answers, answer) == 1,
                   "%zu answers, want %zu: %s", s.answers.size(), answers, s.text.c_str());
            chance += 1.0 / double(answers);
            forms[question.substr(0, 8)]++;
            recency += answer == (person ? reader.last_person + "." : answer.substr(0, 7) + reader.last_place + ".");
            if (w.at(1) == "has") who++, finder += answer == reader.finder.at(w.at(3)) + ".";
        }
        questions += int(asked.size());
    }
    std::printf(
        "    %.2f questions a story; of the last: chance %.3f, last name mentioned %.3f, of \"who has\" the finder "
        "%.3f\n", questions / double(kMany), chance / kMany, recency / double(kMany), finder / double(who));
    EXPECT(recency < 0.6 * kMany, "the last name mentioned is right %d times of %d", recency, int(kMany));
    EXPECT(finder < 0.85 * who, "the finder is right %d times of %d", finder, who);
    for (const char* form : {"Who has ", "Who foun", "Where is", "Where di"})
        EXPECT(forms[form] > int(kMany) / 200, "\"%s\": %d", form, forms[form]);
}

// The test's reader is no yes-man: it notices what cannot be.
TEST(the_reader_notices_nonsense) {
    const auto objects = [](std::vector<std::string> sentences) {
        Reader reader;
        try {
            for (const std::string& s : sentences) reader.read(s);
        } catch (const TestFailure&) {
            return true;
        } catch (const std::out_of_range&) {
            return true;
        }
        return false;
    };
    const std::string start = "Mira, Jack and Rosa met at the mill one cold May day.",
                      found = "Jack found an old red lamp.";
    EXPECT(!objects({start, found, "He felt sad.", "Jack left the lamp at the barn.",
                     "Rosa picked up the lamp at the barn."}));
    EXPECT(objects({start, found, "She felt sad."}), "a wrong pronoun");
    EXPECT(objects({start, found, "Mira rubbed his nose."}), "a wrong possessive");
    EXPECT(objects({start, "Jack found an red old lamp."}), "a wrong article");
    EXPECT(objects({start, found, "Mira brought Rosa the lamp."}), "a thing that another holds");
    EXPECT(objects({start, found, "Rosa picked up the lamp at the barn."}), "a thing that does not lie there");
    EXPECT(objects({start, found, "Rosa ran to the mill."}), "a walk to where one is");
}

TEST(vocabulary_is_rich) {
    std::set<std::string> words;
    for (uint64_t i = 0; i < 5000; i++)
        for (std::string w : split_words(make_story(4, i).text)) {
            w.erase(std::remove_if(w.begin(), w.end(), [](char c) { return c == '"' || c == '!'; }), w.end());
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
