// make_stories.cpp -- writes the built-in text: small English stories from a probabilistic grammar of known entropy.
//
//     build/make_stories DIR       writes to DIR
//         stories_train.jsonl      30,000 stories, 8 MB, one document a line
//         stories_val.jsonl        512 others
//         stories.json             {"bits_per_byte": of the validation stories: no model can have fewer}
//         questions.jsonl          their closing questions, for --task: {"ctx", "endings", "label"}
//
//     Rosa, Jack and Iris met at the mill one misty May evening. Jack found an old lamp. A fox slept in the hay. ...
//     ... Jack brought Iris the lamp. Rosa ran to the barn. Who has the lamp? Iris.
//
// A text grows in two ways: `say` appends what the state dictates, `pick` one of several strings, none of which begins
// another. So a text has one derivation, and its probability is the product of its choices.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>
#include "src/base/numbers.h"

namespace {

constexpr size_t kStoryBytes = 255;  // with the end of text in front a sample of 256 byte tokens; spaces fill it
constexpr uint64_t kTrainSeed = 1, kValidationSeed = 2, kTrainStories = 30000, kValidationStories = 512;

// Words, separated by '|', in order of frequency: word k has weight 1 / (k + 8), a mild Zipf's law.
struct Words : std::vector<std::string> {
    Words(const char* list) {
        std::istringstream in(list);
        for (std::string word; std::getline(in, word, '|');) push_back(word);
    }
};
double zipf(size_t k) { return 1.0 / double(k + 8); }

// Easy to learn: names, places and things have initials of their own, and names are of one length.
struct Grammar {
    size_t limit = kStoryBytes - 1;     // bytes: of the longest story,
    size_t sentence = 43;               // of the longest sentence, " Mira picked up the whistle at the orchard.",
    size_t question = 41;               // and question: " Where did Mira go first? To the orchard."
    size_t cast = 3;                    // people in a story
    Words weather = "cold|warm|windy|rainy|sunny|foggy|quiet|bright|gray|misty|stormy|mild|fine|cloudy|dull|calm";
    Words month = "May|June|April|October|March|July|August|winter|spring|autumn|summer|January";
    Words time = "morning|evening|day|night|afternoon|noon|Sunday|Monday|Friday|dawn";
    Words name = "Mira|Jack|Rosa|Luke|Ella|Hugo|Cora|Finn|Kate|Noah|Iris|Paul|Vera|Walt|Gwen|Seth|Olga|Bert|Zara|Dirk";
    Words place = "mill|barn|lake|school|inn|farm|tower|well|harbor|castle|dock|river|gate|pond|orchard";
    Words thing =
        "lamp|kite|drum|bell|hat|map|ring|flute|spoon|coin|teapot|jug|net|egg|whistle|pillow|apple|quilt|violin";
    Words looks =
        "an old|a small|a shiny|a broken|a tiny|a lovely|a heavy|an odd|a dusty|a huge|an ugly|a pretty|a crooked|"
        "a wet|a fine|a muddy";
    Words color = "red|blue|green|yellow|golden|white|black|pink|brown|silver|purple|striped";
    Words walk = "walked|went|ran|hurried|skipped|rode|strolled|marched|wandered|hopped|rushed";
    Words feeling =
        "happy|tired|brave|hungry|proud|sleepy|sad|shy|merry|lonely|curious|silly|lucky|grumpy|thirsty|clever|dizzy|"
        "cheerful|sorry|young";
    Words rub = "rubbed|scratched|touched|washed|tapped|bumped";
    Words body = "nose|chin|ear|knee|elbow|head|thumb|neck";
    Words cry =
        "What a day|Oh dear|Hello there|How lovely|Well done|Good luck|Not again|Look out|Never mind|Time for tea|"
        "Hush now|Dear me|Come along|Who knows";
    Words animal =
        "cat|dog|fox|mouse|goose|goat|frog|hen|rabbit|crow|pony|duck|hedgehog|lamb|toad|squirrel|sparrow|snail|"
        "beetle|badger";
    Words rest = "slept|waited|hid|yawned|watched|sneezed|played|listened|sat|danced|blinked|rested";
    Words spot =
        "in the grass|by the wall|in the sun|under a bush|on the roof|in the hay|near a tree|on the steps|"
        "by the fence|behind a rock|in the shade|under a cart|on a log|in a basket|beside the road|among the reeds";
    Words view =
        "wind sang|sun came out|rain stopped|clouds rolled by|leaves rustled|sky turned pink|birds fell silent|"
        "clock struck four|moon was up|air smelled of bread|fire crackled|grass swayed|kettle boiled|path was muddy|"
        "door creaked|bees hummed|shadows grew|first stars shone";
};
const Grammar full_grammar;

struct Story {
    std::string text;
    double bits = 0;    // -log2 of its probability
    size_t answer = 0;  // where the last answer starts in text
    std::vector<std::string> answers = {};  // that its question allows: "Iris.", or "At the mill."
};

// A Chooser is given the text so far and returns the index of an option; its probability is weight / sum of weights.
struct Option { std::string text; double weight; int id; };
using Options = std::vector<Option>;
using Chooser = std::function<size_t(const std::string& text, const Options& options)>;

// Adds words of one id, of weight `share` together.
void add(Options* options, bool possible, const Words& words, double share, int id) {
    double sum = 0;
    for (size_t k = 0; k < words.size(); k++) sum += zipf(k);
    for (size_t k = 0; possible && k < words.size(); k++) options->push_back({words[k], share * zipf(k) / sum, id});
}

constexpr int kNobody = -1;
struct Person { int name, place, moves, first; };   // first: where the first move led
struct Thing { int name, holder, place, finder; };  // lies at place if the holder is kNobody

// A story being told, and the world that its text has made. People, things, names and places are indices.
struct Tale {
    const Grammar& g;
    const Chooser& choose;
    Story story;
    std::vector<Person> cast;   // girls' names are even
    std::vector<Thing> things;
    std::vector<int> places;    // mentioned so far, each once
    int subject = kNobody;      // whom "he" or "she" would mean

    void say(const std::string& text) { story.text += text; }
    bool she(int p) const { return cast[p].name % 2 == 0; }

    // Says `before` and one of the options, returns its id. Nothing is decided elsewhere.
    int pick(const std::string& before, const Options& options) {
        say(before);
        double sum = 0;
        for (const Option& o : options) sum += o.weight;
        const Option& chosen = options.at(choose(story.text, options));
        story.bits += same_log(sum / chosen.weight) / same_log(2);
        say(chosen.text);
        return chosen.id;
    }
    int pick(const std::string& before, const Words& words, const std::vector<int>& except = {}) {
        Options options;
        for (int k = 0; k < int(words.size()); k++)
            if (!std::count(except.begin(), except.end(), k)) options.push_back({words[k], zipf(k), k});
        return pick(before, options);
    }
    void words(std::initializer_list<const Words*> lists) {
        for (const Words* list : lists) pick(" ", *list);
    }
    Options people(int except = kNobody) const {
        Options options;
        for (int p = 0; p < int(cast.size()); p++)
            if (p != except) options.push_back({g.name[cast[p].name], 1, p});
        return options;
    }
    Options held_by(int holder) const {
        Options options;
        for (int t = 0; t < int(things.size()); t++)
            if (things[t].holder == holder) options.push_back({g.thing[things[t].name], 1, t});
        return options;
    }
    void move(int p, int place) {
        if (cast[p].place == place) return;
        if (cast[p].moves++ == 0) cast[p].first = place;
        cast[p].place = place;
        if (!std::count(places.begin(), places.end(), place)) places.push_back(place);
    }

    // "Mira, Jack and Rosa met at the mill one cold May morning."
    void opening() {
        std::vector<int> names;
        for (size_t p = 0; p < g.cast; p++)
            names.push_back(pick(p == 0 ? "" : p + 1 < g.cast ? ", " : " and ", g.name, names));
        places = {pick(" met at the ", g.place)};
        for (const int name : names) cast.push_back({name, places[0], 0, 0});
        say(" one");
        words({&g.weather, &g.month, &g.time});
        say(".");
    }

    // What person p does. One who is only called "he" or "she" does nothing that matters later.
    void action(int p, bool pronoun) {
        enum { kFound, kBrought, kLeft, kPicked, kFelt, kWalked, kRubbed };
        const bool known = !things.empty(), holds = !pronoun && !held_by(p).empty();
        Options verbs;
        add(&verbs, known, "felt", 2, kFelt);
        add(&verbs, known, g.rub, 1.5, kRubbed);
        add(&verbs, !pronoun && things.size() < 2, "found", 2, kFound);
        add(&verbs, holds, "brought", 9, kBrought);
        add(&verbs, holds, "left", 3, kLeft);
        add(&verbs, !pronoun && !held_by(kNobody).empty(), "picked", 4, kPicked);
        add(&verbs, !pronoun && known, g.walk, 5, kWalked);
        subject = p;
        const int verb = pick(" ", verbs);
        if (verb == kFelt) {                            // "Mira felt brave."
            words({&g.feeling});
        } else if (verb == kRubbed) {                   // "Jack rubbed his nose."
            pick(she(p) ? " her " : " his ", g.body);
        } else if (verb == kWalked) {                   // "Jack ran to the lake."
            move(p, pick(" to the ", g.place, {cast[p].place}));
        } else if (verb == kFound) {                    // "Mira found an old red lamp."
            std::vector<int> names;
            for (const Thing& t : things) names.push_back(t.name);
            words({&g.looks, &g.color});
            things.push_back({pick(" ", g.thing, names), p, 0, p});
        } else if (verb == kBrought) {                  // "Mira brought Jack the lamp." She goes to where he is.
            const int q = pick(" ", people(p));
            things[pick(" the ", held_by(p))].holder = q;
            move(p, cast[q].place);
            if (she(p) == she(q)) subject = kNobody;    // "she" could be either
        } else if (verb == kLeft) {                     // "Jack left the lamp at the barn." He goes there.
            Thing& thing = things[pick(" the ", held_by(p))];
            thing.holder = kNobody;
            move(p, thing.place = pick(" at the ", g.place, {cast[p].place}));
        } else {                                        // "Rosa picked up the lamp at the barn."
            Thing& thing = things[pick(" up the ", held_by(kNobody))];
            thing.holder = p;
            say(" at the " + g.place[thing.place]);
            move(p, thing.place);
        }
    }

    void sentence() {
        enum { kAnimal = 100, kView, kCry, kPronoun };  // other ids are people
        const bool known = !things.empty();
        const int before = subject;
        Options starts = people();
        add(&starts, known, "A", 0.4, kAnimal);
        add(&starts, known, "The", 0.3, kView);
        add(&starts, known, "\"", 0.3, kCry);
        if (before != kNobody) add(&starts, true, she(before) ? "She" : "He", 0.4, kPronoun);
        subject = kNobody;
        const int start = pick(" ", starts);
        if (start < kAnimal) action(start, false);
        if (start == kPronoun) action(before, true);
        if (start == kView) words({&g.view});  // "The wind sang."
        if (start == kAnimal) words({&g.animal, &g.rest, &g.spot});  // "A fox slept in the hay."
        if (start == kCry) {  // "\"Oh dear!\" said Jack."
            pick("", g.cry);
            subject = pick("!\" said ", people());
        }
        say(".");
    }

    // Asks a question that was not asked yet; false if there is none. Its answer is no choice and costs no bits.
    bool ask() {
        Options options;
        std::vector<std::string> answers;
        const auto name = [&](int p) { return g.name[cast[p].name]; };
        const auto question = [&](double weight, const std::string& text, const std::string& answer) {
            if (story.text.find(text) != std::string::npos) return;
            options.push_back({text, weight, int(answers.size())});
            answers.push_back(answer);
        };
        for (const Thing& t : things) {
            const std::string thing = "the " + g.thing[t.name] + "?";
            question(1, "Who found " + thing, name(t.finder));
            if (t.holder == kNobody) question(3, "Where is " + thing, "At the " + g.place[t.place]);
            else question(3, "Who has " + thing, name(t.holder));
        }
        for (int p = 0; p < int(cast.size()); p++) {
            if (places.size() > 1) question(1, "Where is " + name(p) + "?", "At the " + g.place[cast[p].place]);
            if (cast[p].moves > 1)
                question(8, "Where did " + name(p) + " go first?", "To the " + g.place[cast[p].first]);
        }
        if (options.empty()) return false;
        const std::string answer = answers[size_t(pick(" ", options))] + ".";
        story.answer = story.text.size() + 1;
        story.answers.clear();
        const size_t blank = answer.rfind(' ') + 1;             // behind "At the"; 0, npos + 1, of a name
        for (size_t p = 0; blank == 0 && p < cast.size(); p++) story.answers.push_back(name(int(p)) + ".");
        const std::string before = answer.substr(0, blank);
        for (const int k : blank ? places : std::vector<int>()) story.answers.push_back(before + g.place[k] + ".");
        say(" " + answer);
        return true;
    }
};

// The rules of length depend on the state alone: they change no probability.
Story tell_story(const Chooser& choose, const Grammar& g = full_grammar) {
    Tale tale = {g, choose, {}, {}, {}, {}};
    const auto fits = [&](size_t bytes) { return tale.story.text.size() + bytes <= g.limit; };
    tale.opening();
    do tale.sentence();
    while (fits(g.sentence + 2 * g.question));
    while (fits(g.question) && tale.ask()) {}
    return tale.story;
}

Story make_story(uint64_t seed, uint64_t i) {
    uint64_t count = 0;
    return tell_story([&](const std::string&, const Options& options) {
        const Random4 r = random4({seed, kRandomStory, uint32_t(i), uint32_t(i >> 32)}, count++);
        double sum = 0;
        for (const Option& o : options) sum += o.weight;
        double u = double((uint64_t(r.v[0]) << 32 | r.v[1]) >> 11) * 0x1p-53 * sum;  // 53 random bits
        size_t k = 0;
        while (k + 1 < options.size() && u >= options[k].weight) u -= options[k++].weight;
        return k;
    });
}

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? "\\\"" : std::string(1, c);
    return out + '"';
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: make_stories DIR\n");
        return 2;
    }
    const auto document = [](const Story& s) {
        return "{\"text\":" + quoted(s.text + std::string(kStoryBytes - s.text.size(), ' ')) + "}\n";
    };
    std::string train, val, questions;
    for (uint64_t i = 0; i < kTrainStories; i++) train += document(make_story(kTrainSeed, i));
    double bits = 0;
    for (uint64_t i = 0; i < kValidationStories; i++) {
        const Story s = make_story(kValidationSeed, i);
        val += document(s);
        bits += s.bits;
        std::string endings;
        for (const std::string& answer : s.answers) endings += "," + quoted(answer);
        const auto right = std::ranges::find(s.answers, s.text.substr(s.answer)) - s.answers.begin();
        questions += "{\"ctx\":" + quoted(s.text.substr(0, s.answer - 1)) + ",\"endings\":[" + endings.substr(1) +
            "],\"label\":" + std::to_string(right) + "}\n";
    }
    char facts[64];
    std::snprintf(facts, sizeof facts, "{\"bits_per_byte\":%.17g}\n", bits / double(kValidationStories * kStoryBytes));
    const std::string folder = argv[1];
    const auto written = [&](const char* name, const std::string& content) {
        return bool(std::ofstream(folder + "/" + name, std::ios::binary) << content << std::flush);
    };
    if (written("stories_train.jsonl", train) && written("stories_val.jsonl", val) &&
        written("questions.jsonl", questions) && written("stories.json", facts))
        return 0;
    std::fprintf(stderr, "make_stories: error: cannot write to %s\n", argv[1]);
    return 74;
}
