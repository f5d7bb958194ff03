// stories.cpp -- the grammar of the built-in stories: its words, its templates, and what happens to people and things.
//
// Why the grammar is unambiguous: text grows in two ways only. `say` appends what the state dictates; `pick` appends one of
// several strings, none of which begins another. So a reader who has followed the story up to a choice sees in the next
// bytes which string it was, then is in the same state as the writer, and so on: a text has at most one derivation.
// (The test checks the strings of every choice of thousands of stories.)
//
// Why no story is too long: there is another sentence only while the longest sentence and two of the longest questions would
// still fit, and another question only while the longest would. These are rules of the state, not rejections: they change no
// probability.
//
// What makes the stories easy to learn for a model of under a million parameters: few templates; names, places and things
// have initials of their own, so that one byte settles which it is; names are of one length, so that the cast stands at the
// same positions in every story; and there are up to four questions and answers, for practice.
#include "stories.h"
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include "rng.h"

const StoryGrammar& full_grammar() {
    static const StoryGrammar grammar = {
        .limit = kStorySlot - 2,
        .sentence = 43,                                     // " Mira picked up the whistle at the orchard."
        .question = 41,                                     // " Where did Mira go first? To the orchard."
        .cast = 3,
        .weather = {"cold", "warm", "windy", "rainy", "sunny", "foggy", "quiet", "bright", "gray", "misty",
                    "stormy", "mild", "fine", "cloudy", "dull", "calm"},
        .month = {"May", "June", "April", "October", "March", "July", "August", "winter", "spring", "autumn",
                  "summer", "January"},
        .time = {"morning", "evening", "day", "night", "afternoon", "noon", "Sunday", "Monday", "Friday", "dawn"},
        .name = {"Mira", "Jack", "Rosa", "Luke", "Ella", "Hugo", "Cora", "Finn", "Kate", "Noah", "Iris", "Paul",
                 "Vera", "Walt", "Gwen", "Seth", "Olga", "Bert", "Zara", "Dirk"},
        .place = {"mill", "barn", "lake", "school", "inn", "farm", "tower", "well", "harbor", "castle", "dock",
                  "river", "gate", "pond", "orchard"},
        .thing = {"lamp", "kite", "drum", "bell", "hat", "map", "ring", "flute", "spoon", "coin", "teapot", "jug",
                  "net", "egg", "whistle", "pillow", "apple", "quilt", "violin"},
        .looks = {"an old", "a small", "a shiny", "a broken", "a tiny", "a lovely", "a heavy", "an odd", "a dusty",
                  "a huge", "an ugly", "a pretty", "a crooked", "a wet", "a fine", "a muddy"},
        .color = {"red", "blue", "green", "yellow", "golden", "white", "black", "pink", "brown", "silver",
                  "purple", "striped"},
        .walk = {"walked", "went", "ran", "hurried", "skipped", "rode", "strolled", "marched", "wandered",
                 "hopped", "rushed"},
        .feeling = {"happy", "tired", "brave", "hungry", "proud", "sleepy", "sad", "shy", "merry", "lonely",
                    "curious", "silly", "lucky", "grumpy", "thirsty", "clever", "dizzy", "cheerful", "sorry",
                    "young"},
        .rub = {"rubbed", "scratched", "touched", "washed", "tapped", "bumped"},
        .body = {"nose", "chin", "ear", "knee", "elbow", "head", "thumb", "neck"},
        .cry = {"What a day", "Oh dear", "Hello there", "How lovely", "Well done", "Good luck", "Not again",
                "Look out", "Never mind", "Time for tea", "Hush now", "Dear me", "Come along", "Who knows"},
        .animal = {"cat", "dog", "fox", "mouse", "goose", "goat", "frog", "hen", "rabbit", "crow", "pony", "duck",
                   "hedgehog", "lamb", "toad", "squirrel", "sparrow", "snail", "beetle", "badger"},
        .rest = {"slept", "waited", "hid", "yawned", "watched", "sneezed", "played", "listened", "sat", "danced",
                 "blinked", "rested"},
        .spot = {"in the grass", "by the wall", "in the sun", "under a bush", "on the roof", "in the hay",
                 "near a tree", "on the steps", "by the fence", "behind a rock", "in the shade", "under a cart",
                 "on a log", "in a basket", "beside the road", "among the reeds"},
        .view = {"wind sang", "sun came out", "rain stopped", "clouds rolled by", "leaves rustled",
                 "sky turned pink", "birds fell silent", "clock struck four", "moon was up",
                 "air smelled of bread", "fire crackled", "grass swayed", "kettle boiled", "path was muddy",
                 "door creaked", "bees hummed", "shadows grew", "first stars shone"},
    };
    return grammar;
}

namespace {

double zipf(size_t k) { return 1.0 / double(k + 8); }

using Words = StoryWords;
using Grammar = StoryGrammar;

// The world of a story. People, things, places and names are indices.
constexpr int kNobody = -1;
struct Person { int name, place, moves, first; };  // first: where the first move led
struct Thing { int name, holder, place, finder; };  // lies at place if the holder is kNobody

// A story being told: its text so far, and the world that the text has made.
struct Tale {
    const Grammar& g;
    const StoryChooser& choose;
    Story story;
    std::vector<Person> cast;
    std::vector<Thing> things;
    std::vector<int> places;           // mentioned so far, each once
    int subject = kNobody;             // whom "he" or "she" would mean

    void say(std::string_view text) { story.text += text; }
    bool she(int p) const { return cast[p].name % 2 == 0; }
};

// The only place where anything is decided: says one of the options, returns its id.
int pick(Tale* tale, const std::vector<StoryOption>& options) {
    double sum = 0;
    for (const StoryOption& o : options) sum += o.weight;
    const StoryOption& chosen = options.at(tale->choose(tale->story.text, options));
    tale->story.bits += std::log2(sum / chosen.weight);
    tale->say(chosen.text);
    return chosen.id;
}

int pick_word(Tale* tale, const Words& words, const std::vector<int>& except = {}) {
    std::vector<StoryOption> options;
    for (int k = 0; k < int(words.size()); k++)
        if (!std::count(except.begin(), except.end(), k)) options.push_back({words[k], zipf(k), k});
    return pick(tale, options);
}

// Says a template, with a word from each list in place of the #s.
void fill(Tale* tale, std::string_view form, std::initializer_list<const Words*> slots) {
    const Words* const* slot = slots.begin();
    for (char c : form) {
        if (c == '#') pick_word(tale, **slot++);
        else tale->say({&c, 1});
    }
}

// Adds a list's words to the options; they have the weight `share` together, and the same id.
void add_words(std::vector<StoryOption>* options, const Words& words, double share, int id) {
    double sum = 0;
    for (size_t k = 0; k < words.size(); k++) sum += zipf(k);
    for (size_t k = 0; k < words.size(); k++) options->push_back({words[k], share * zipf(k) / sum, id});
}

std::vector<StoryOption> people(const Tale& tale, int except) {
    std::vector<StoryOption> options;
    for (int p = 0; p < int(tale.cast.size()); p++)
        if (p != except) options.push_back({tale.g.name[tale.cast[p].name], 1, p});
    return options;
}

std::vector<StoryOption> held_by(const Tale& tale, int holder) {
    std::vector<StoryOption> options;
    for (int t = 0; t < int(tale.things.size()); t++)
        if (tale.things[t].holder == holder) options.push_back({tale.g.thing[tale.things[t].name], 1, t});
    return options;
}

void mention(Tale* tale, int place) {
    if (!std::count(tale->places.begin(), tale->places.end(), place)) tale->places.push_back(place);
}

void move(Tale* tale, int p, int place) {
    Person& person = tale->cast[p];
    if (person.place == place) return;
    if (person.moves++ == 0) person.first = place;
    person.place = place;
    mention(tale, place);
}

// "Mira, Jack and Rosa met at the mill one cold May morning."
void opening(Tale* tale) {
    const Grammar& g = tale->g;
    std::vector<int> names;
    for (size_t p = 0; p < g.cast; p++) {
        if (p > 0) tale->say(p + 1 < g.cast ? ", " : " and ");
        names.push_back(pick_word(tale, g.name, names));
    }
    tale->say(" met at the ");
    const int place = pick_word(tale, g.place);
    mention(tale, place);
    for (int name : names) tale->cast.push_back({name, place, 0, 0});
    fill(tale, " one # # #.", {&g.weather, &g.month, &g.time});
}

// "Mira found an old red lamp."  p's sentences: the verb is the choice, the rest follows from it.
void found(Tale* tale, int p) {
    const Grammar& g = tale->g;
    fill(tale, " # # ", {&g.looks, &g.color});
    std::vector<int> known;
    for (const Thing& t : tale->things) known.push_back(t.name);
    const int name = pick_word(tale, g.thing, known);
    tale->things.push_back({name, p, 0, p});
}

// "Mira brought Jack the lamp."  She goes to where he is.
void brought(Tale* tale, int p) {
    tale->say(" ");
    const int q = pick(tale, people(*tale, p));
    tale->say(" the ");
    tale->things[pick(tale, held_by(*tale, p))].holder = q;
    move(tale, p, tale->cast[q].place);
    if (tale->she(p) == tale->she(q)) tale->subject = kNobody;         // "she" could be either
}

// "Jack left the lamp at the barn."  He goes there.
void left(Tale* tale, int p) {
    tale->say(" the ");
    Thing& thing = tale->things[pick(tale, held_by(*tale, p))];
    tale->say(" at the ");
    thing.place = pick_word(tale, tale->g.place, {tale->cast[p].place});
    thing.holder = kNobody;
    move(tale, p, thing.place);
}

// "Rosa picked up the lamp at the barn."  She goes to where it lies.
void picked(Tale* tale, int p) {
    tale->say(" up the ");
    Thing& thing = tale->things[pick(tale, held_by(*tale, kNobody))];
    tale->say(" at the ");
    tale->say(tale->g.place[thing.place]);
    thing.holder = p;
    move(tale, p, thing.place);
}

// "Jack ran to the lake."
void walked(Tale* tale, int p) {
    tale->say(" to the ");
    move(tale, p, pick_word(tale, tale->g.place, {tale->cast[p].place}));
}

// What person p does. One who is only called "he" or "she" does nothing that matters later; the first action finds the
// first thing.
void action(Tale* tale, int p, bool pronoun) {
    enum Verb { kFound, kBrought, kLeft, kPicked, kFelt, kWalked, kRubbed };
    const Grammar& g = tale->g;
    std::vector<StoryOption> verbs;
    if (!tale->things.empty()) {
        verbs.push_back({"felt", 2, kFelt});
        add_words(&verbs, g.rub, 1.5, kRubbed);
    }
    if (!pronoun) {
        const bool holds = !held_by(*tale, p).empty();
        if (tale->things.size() < 2) verbs.push_back({"found", 2, kFound});
        if (holds) verbs.push_back({"brought", 9, kBrought});
        if (holds) verbs.push_back({"left", 3, kLeft});
        if (!held_by(*tale, kNobody).empty()) verbs.push_back({"picked", 4, kPicked});
        if (!tale->things.empty()) add_words(&verbs, g.walk, 5, kWalked);
    }
    tale->subject = p;
    tale->say(" ");
    switch (pick(tale, verbs)) {
    case kFound: found(tale, p); break;
    case kBrought: brought(tale, p); break;
    case kLeft: left(tale, p); break;
    case kPicked: picked(tale, p); break;
    case kWalked: walked(tale, p); break;
    case kFelt: fill(tale, " #", {&g.feeling}); break;                                 // "Mira felt brave."
    case kRubbed: fill(tale, tale->she(p) ? " her #" : " his #", {&g.body}); break;    // "Jack rubbed his nose."
    }
}

void sentence(Tale* tale) {
    enum Start { kAnimal = 100, kView, kCry, kPronoun };       // other ids are people
    const Grammar& g = tale->g;
    const int subject = tale->subject;
    std::vector<StoryOption> starts = people(*tale, kNobody);
    if (!tale->things.empty()) {
        starts.push_back({"A ", 0.4, kAnimal});
        starts.push_back({"The ", 0.3, kView});
        starts.push_back({"\"", 0.3, kCry});
    }
    if (subject != kNobody) starts.push_back({tale->she(subject) ? "She" : "He", 0.4, kPronoun});
    tale->say(" ");
    tale->subject = kNobody;
    const int start = pick(tale, starts);
    switch (start) {
    case kAnimal: fill(tale, "# # #", {&g.animal, &g.rest, &g.spot}); break;   // "A fox slept in the hay."
    case kView: fill(tale, "#", {&g.view}); break;                             // "The wind sang."
    case kCry:                                                                 // "\"Oh dear!\" said Jack."
        fill(tale, "#!\" said ", {&g.cry});
        tale->subject = pick(tale, people(*tale, kNobody));
        break;
    case kPronoun: action(tale, subject, true); break;
    default: action(tale, start, false);
    }
    tale->say(".");
}

// All that can be asked. The question is a choice, its answer is not: it costs no bits to one who has read.
struct Question { std::string text, answer; int answers; double weight; };

std::vector<Question> questions(const Tale& tale) {
    const Grammar& g = tale.g;
    const int people = int(tale.cast.size()), places = int(tale.places.size());
    const auto place = [&](int k) { return "the " + std::string(g.place[k]); };
    std::vector<Question> list;
    for (const Thing& t : tale.things) {
        const std::string name(g.thing[t.name]);
        list.push_back({"Who found the " + name + "?", std::string(g.name[tale.cast[t.finder].name]), people, 1});
        if (t.holder == kNobody) list.push_back({"Where is the " + name + "?", "At " + place(t.place), places, 3});
        else list.push_back({"Who has the " + name + "?", std::string(g.name[tale.cast[t.holder].name]), people, 3});
    }
    for (const Person& p : tale.cast) {
        const std::string name(g.name[p.name]);
        if (places > 1) list.push_back({"Where is " + name + "?", "At " + place(p.place), places, 1});
        if (p.moves > 1) list.push_back({"Where did " + name + " go first?", "To " + place(p.first), places, 8});
    }
    return list;
}

// Asks a question that was not asked yet; false if there is none.
bool ask(Tale* tale) {
    const std::vector<Question> list = questions(*tale);
    std::vector<StoryOption> options;
    for (size_t k = 0; k < list.size(); k++)
        if (tale->story.text.find(list[k].text) == std::string::npos)
            options.push_back({list[k].text, list[k].weight, int(k)});
    if (options.empty()) return false;
    tale->say(" ");
    const Question& question = list[pick(tale, options)];
    tale->say(" ");
    tale->story.answer = tale->story.text.size();
    tale->story.answers = question.answers;
    tale->say(question.answer);
    tale->say(".");
    return true;
}

}  // namespace

Story tell_story(const StoryChooser& choose, const StoryGrammar& g) {
    Tale tale = {g, choose, {}, {}, {}, {}};
    opening(&tale);
    do sentence(&tale);
    while (tale.story.text.size() + g.sentence + 2 * g.question <= g.limit);
    while (tale.story.text.size() + g.question <= g.limit && ask(&tale)) {}
    return tale.story;
}

Story make_story(uint64_t seed, uint64_t i) {
    uint64_t count = 0;
    return tell_story([&](const std::string&, const std::vector<StoryOption>& options) {
        const Random4 r = random4({seed, kRandomStory, uint32_t(i), uint32_t(i >> 32)}, count++);
        double sum = 0;
        for (const StoryOption& o : options) sum += o.weight;
        double u = double((uint64_t(r.v[0]) << 32 | r.v[1]) >> 11) * 0x1p-53 * sum;     // 53 random bits
        size_t k = 0;
        while (k + 1 < options.size() && u >= options[k].weight) u -= options[k++].weight;
        return k;
    });
}
