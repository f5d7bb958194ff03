// test_json.cpp -- what the parser accepts and, above all, what it refuses; and that what is written can be read.
#include <cstring>
#include <limits>
#include <random>
#include "src/base/json.h"
#include "tests/test.h"

namespace {
Json parse(std::string_view text) { return parse_json(text, "t.json"); }

std::string repeated(const std::string& text, int times) {
    std::string s;
    while (times-- > 0) s += text;
    return s;
}
std::string arrays(int depth) { return repeated("[", depth) + repeated("]", depth); }
std::string objects(int depth) { return repeated("{\"a\":", depth) + "1" + repeated("}", depth); }

const std::string kDocument = "{\"a\":[1.5e3,-2,\"x\\u00e9\\ud83d\\ude00\xE2\x82\xAC\",true,null],\"b\":{}}";
}  // namespace

TEST(accepts) {
    const char* good[] = {
        "null", "true", "false", "0", "-0", "1.5e-3", "1E+5", "0.0", "\"\"", "[]", "{}", " \t\r\n[ 1 , 2 ] \n",
        "{\"a\":{\"b\":[null,true,{}]},\"c\":\"d\"}", "\"\\u0041\\n\\/\"", "[[],[[]]]",
        "123456789012345678901234567890",
        "\"\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\"",
        "\"\x7f\""};
    for (const char* text : good) parse(text);
    EXPECT(parse(arrays(32)).kind() == Json::array && parse(objects(32)).kind() == Json::object, "32 levels");
}

TEST(refuses) {
    const Refusals bad = {
        {"", "byte 0: got the end, want a value"}, {"  ", "byte 2: got the end, want a value"},
        {"nul", "byte 0: got \"n\", want a value"}, {"nulL", "byte 0: got \"n\", want a value"},
        {"True", "byte 0: got \"T\", want a value"}, {"NaM", "byte 0: got \"N\", want a value"},
        {"infinity", "byte 0"}, {"-Infinity", "byte 1: got \"I\", want a digit"}, {"-", "byte 1: got the end"},
        {"+1", "byte 0: got \"+\""}, {"01", "byte 1: got \"1\", want nothing after the value"},
        {"-01", "byte 2: got \"1\", want nothing"}, {".5", "byte 0: got \".\""},
        {"1.", "byte 2: got the end, want a digit"}, {"1.e5", "byte 2: got \"e\", want a digit"},
        {"1e", "byte 2: got the end, want a digit"}, {"1e+", "byte 3: got the end, want a digit"},
        {"0x10", "byte 1: got \"x\", want nothing after the value"},
        {"1 2", "byte 2: got \"2\", want nothing after"}, {"[1,]", "byte 3: got \"]\", want a value"},
        {"[1 2]", "byte 3: got \"2\", want ',' or ']'"}, {"[1", "byte 2: got the end"},
        {"[", "got the end, want a value"}, {"]", "got \"]\""}, {"{", "byte 1: got the end, want a string"},
        {"{1:2}", "want a string"}, {"{\"a\"}", "want ':'"}, {"{\"a\":}", "want a value"},
        {"{\"a\":1,}", "want a string"}, {"{a:1}", "want a string"}, {"{'a':1}", "want a string"},
        {"{\"a\":1 \"b\":2}", "',' or '}'"}, {"{\"a\":1}}", "byte 7: got \"}\", want nothing after"},
        {"[]/*c*/", "got \"/\", want nothing"}, {"{\"a\":1,\"b\":2,\"a\":3}", "byte 19: got key \"a\" twice"},
        {"{\"\\u0061\":1,\"a\":3}", "key \"a\" twice"},
        {"\"abc", "byte 4: got the end, want UTF-8 without control characters, up to a quote"},
        {"\"a\nb\"", "byte 2: got \"\\n\", want UTF-8 without control"},
        {std::string("\"a\0b\"", 5), "got \"\\u0000\""}, {"\"\\x41\"", "one of"},
        {"\"\\", "got the end, want one of"}, {"\"\\u12", "hexadecimal"},
        {"\"\\u12G4\"", "byte 3: got \"1\", want four hexadecimal"}, {"\"\\U0041\"", "one of"},
        {"\"\\ud800\"", "a pair of surrogates"}, {"\"\\udc00\"", "a pair of surrogates"},
        {"\"\\ud800\\u0041\"", "a pair of surrogates"}, {"\"\\ud800\\ud800\"", "a pair of surrogates"},
        {"\"\\ud800x\"", "pair"}, {"\"\\ude00\\ud83d\"", "pair"},
        {"\"\x80\"", "byte 1: got \"\xEF\xBF\xBD\", want UTF-8"}, {"\"\xC0\x80\"", "UTF-8"},
        {"\"\xC1\xBF\"", "UTF-8"}, {"\"\xE0\x9F\xBF\"", "UTF-8"}, {"\"\xED\xA0\x80\"", "UTF-8"},
        {"\"\xF0\x8F\xBF\xBF\"", "UTF-8"}, {"\"\xF4\x90\x80\x80\"", "UTF-8"},
        {"\"\xF5\x80\x80\x80\"", "UTF-8"}, {"\"\xC2\"", "UTF-8"}, {"\"\xE2\x82", "UTF-8"},
        {"\"\xF0\x9F\x98", "UTF-8"}, {"\"\xFF\"", "UTF-8"},
        {"\xEF\xBB\xBF{}", "byte 0: got \"\xEF\xBF\xBD\", want a value"},
        {std::string("1\0", 2), "byte 1: got \"\\u0000\""}, {std::string("\0", 1), "u0000"}, {"1\x0b", "u000b"},
        {"\xC2\xA0" "1", "byte 0"}, {arrays(33), "byte 32: got \"[\", want at most 32"},
        {objects(33), "at most 32"}, {std::string(1000000, '['), "at most 32"}};
    expect_refusals(kExitBadContent, bad, parse);
    expect_error(kExitBadContent, "t.json: byte 0", [] { parse("x"); });
}

TEST(every_prefix_of_a_document_is_refused) {
    parse(kDocument);
    for (size_t n = 0; n < kDocument.size(); n++)
        expect_error(kExitBadContent, "t.json: byte", [&] { parse(std::string_view(kDocument).substr(0, n)); });
}

// Any change of one byte gives a value or an Error, nothing else (run under the sanitizers).
TEST(one_byte_changed) {
    size_t refused = 0;
    for (size_t i = 0; i < 256 * kDocument.size(); i++) try {
        std::string t = kDocument;
        t[i / 256] = char(i);
        parse(t);
    } catch (const Error& e) {
        refused++;
        EXPECT_EQ(e.code, kExitBadContent);
    }
    EXPECT(refused > 256 * kDocument.size() / 2, "only %zu refused", refused);
}

TEST(strings_are_decoded) {
    const std::pair<const char*, std::string> cases[] = {
        {"\"\\ud83d\\ude00\\u20ac\\u00e9\\u0041\"", "\xF0\x9F\x98\x80\xE2\x82\xAC\xC3\xA9" "A"},
        {"\"\\uD83D\\uDE00\"", "\xF0\x9F\x98\x80"}, {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"a\\u0000b\"", std::string("a\0b", 3)},
        {"\"\\uffff\\ue000\\ud7ff\\udbff\\udfff\"", "\xEF\xBF\xBF\xEE\x80\x80\xED\x9F\xBF\xF4\x8F\xBF\xBF"}};
    for (const auto& [text, want] : cases) EXPECT_EQ(parse(text).text(), want);
}

// A path of any bytes comes back, and the file stays JSON of ASCII and whole characters for other readers.
TEST(paths_of_any_bytes) {
    std::string bytes = "/a\xE2\x82/\xE2\x82\xAC\xED\xB2\x80\n";    // cut, whole, and a surrogate in UTF-8
    for (int b = 1; b < 256; b++) bytes += char(b);
    const std::string json = json_quote(bytes, true);
    EXPECT(parse_json(json, "j", true).text() == bytes, "%s", json.c_str());
    EXPECT(json.find("/a\\udce2\\udc82/\xE2\x82\xAC\\udced\\udcb2\\udc80\\n") == 1, "%s", json.c_str());
    expect_error(kExitBadContent, "a pair of surrogates", [&] { parse_json(json, "j"); });      // in a text
    for (const char* other : {"\"\\udc7f\"", "\"\\udd00\"", "\"\\ud800\""})
        expect_error(kExitBadContent, "a pair of surrogates", [&] { parse_json(std::string_view(other), "j", true); });
}

TEST(numbers) {
    const std::pair<const char*, uint64_t> integers[] = {
        {"0", 0}, {"18446744073709551615", UINT64_MAX}, {"9007199254740993", 9007199254740993}};
    const std::pair<const char*, double> doubles[] = {
        {"0.1", 0.1}, {"-1.5e3", -1500}, {"1e308", 1e308}, {"5e-324", 5e-324}, {"1E2", 100}, {"1e+2", 100},
        {"123456789012345678901234567890", 123456789012345678901234567890.0}};
    uint64_t whole;
    double real;
    for (const auto& [text, want] : integers) EXPECT(parse(text).as_u64(&whole) && whole == want, "%s", text);
    for (const auto& [text, want] : doubles) EXPECT(parse(text).as_double(&real) && real == want, "%s: %g", text, real);
    for (const char* text : {"18446744073709551616", "99999999999999999999999", "-1", "-0", "1.0", "1e3", "true",
                             "\"1\""})
        EXPECT(!parse(text).as_u64(&whole), "%s", text);
    for (const char* text : {"1e400", "-1e400", "null", "\"1\""}) EXPECT(!parse(text).as_double(&real), "%s", text);
}

TEST(getters_name_the_key) {
    const Json j = parse("{\"n\":3,\"s\":\"x\",\"big\":1e400,\"f\":1.5,\"neg\":-1,\"o\":{}}");
    EXPECT(j.get_u64("n", "w") == 3 && j.get_string("s", "w") == "x" && j.get_double("f", "w") == 1.5 &&
               j.get_double("n", "w") == 3);
    EXPECT(!j.find("nope") && !parse("[1]").find("a"), "find");
    const struct { const char* error; std::function<void()> get; } bad[] = {
        {"w: nope: it is missing", [&] { j.at("nope", "w"); }},
        {"w: n: got 3, want a string", [&] { j.get_string("n", "w"); }},
        {"w: s: got \"x\", want an integer", [&] { j.get_u64("s", "w"); }},
        {"w: neg: got -1, want an integer", [&] { j.get_u64("neg", "w"); }},
        {"w: f: got 1.5, want an integer", [&] { j.get_u64("f", "w"); }},
        {"w: big: got 1e400, want a number that a double holds", [&] { j.get_double("big", "w"); }},
        {"w: o: got an object, want a number", [&] { j.get_double("o", "w"); }}};
    for (const auto& [error, get] : bad) expect_error(kExitBadContent, error, get);
    expect_error(kExitBadContent, "w: a: it is missing", [&] { parse("3").at("a", "w"); });
}

// 50,000 keys: a way through them that is quadratic would not end within the tests' own limit.
TEST(order_is_kept_in_large_objects) {
    std::string s = "{";
    for (int i = 0; i < 50000; i++)
        s += (i ? ",\"k" : "\"k") + std::to_string(i * 7919 % 50000) + "\":" + std::to_string(i);
    const std::string whole = s + "}";
    const Json j = parse(whole);
    std::vector<std::string> keys, values;
    for (JsonItems i(j); i.next();) keys.push_back(i.key.text()), values.push_back(i.value.text());
    EXPECT(keys.size() == 50000 && keys[1] == "k7919" && values[49999] == "49999", "order");
    expect_error(kExitBadContent, "key \"k7\" twice", [&] { parse(s + ",\"k7\":1}"); });
}

TEST(items) {
    const std::string text = " { \"a\" : [ 1 , [ ] , {\"b\":[2]} ] , \"\\u0063]}\" : \"x,]\" , \"e\" : {} } ";
    std::string seen;
    const Json j = parse(text);
    for (JsonItems i(j); i.next();) seen += i.key.text() + "=" + i.value.text() + ";";
    EXPECT(seen == "a=[ 1 , [ ] , {\"b\":[2]} ];c]}=x,];e={};", "%s", seen.c_str());
    seen.clear();
    for (JsonItems i(j.find("a")); i.next();) seen += (i.key ? "key " : "") + i.value.text() + ";";
    EXPECT(seen == "1;[ ];{\"b\":[2]};", "%s", seen.c_str());
    for (const char* key : {"e", "c]}", "nope"}) EXPECT(!JsonItems(j.find(key)).next(), "%s has items", key);
    JsonItems none((Json()));
    EXPECT(!none.next() && !none.next(), "nothing in nothing");
}

TEST(quote) {
    EXPECT_EQ(json_quote("a\"b\\c\n\r\t\b\f\x1b\x7f"),
              "\"a\\\"b\\\\c\\n\\r\\t\\u0008\\u000c\\u001b\\u007f\"");
    EXPECT_EQ(json_quote("\xC3\xA9\xE2\x82\xAC"), "\"\xC3\xA9\xE2\x82\xAC\"");
    EXPECT_EQ(json_quote("a\xFFz\xC3"), "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\"");
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b += 5) {
            const std::string raw = {char(a), char(b), 'x'};
            const std::string back = parse(json_quote(raw)).text();  // always parses
            EXPECT(a >= 128 || b >= 128 || back == raw, "%02x %02x", a, b);
        }
    EXPECT_EQ(parse(json_quote(std::string("a\0b", 3))).text(), std::string("a\0b", 3));
}

TEST(number_round_trip) {
    for (const double x : {double(NAN), double(INFINITY), -double(INFINITY)}) EXPECT_EQ(json_number(x), "null");
    EXPECT(json_number(float(NAN)) == "null" && json_number(1.0) == "1" && json_number(0.1) == "0.10000000000000001" &&
               json_number(0.1f) == "0.100000001" && json_number(-0.0) == "-0");
    EXPECT(json_number(1e22) == "1e+22" && json_number(123456.0) == "123456", "as %%.17g: %s",
           json_number(1e22).c_str());
    std::mt19937_64 random;
    for (int i = 0; i < 20000; i++) {
        const uint64_t bits = random();
        double x, back;
        std::memcpy(&x, &bits, 8);
        if (!std::isfinite(x)) continue;
        EXPECT_EQ(json_number(x), format("%.17g", x));
        EXPECT(parse(json_number(x)).as_double(&back) && back == x, "%.17g", x);
        const float f = float(x);
        if (!std::isfinite(f)) continue;
        EXPECT(parse(json_number(f)).as_double(&back) && float(back) == f, "%.9g", double(f));
    }
    double smallest;
    EXPECT(parse(json_number(std::numeric_limits<double>::denorm_min())).as_double(&smallest) && smallest > 0);
}

TEST(line) {
    JsonLine line;
    line.add("event", "train").add("step", int64_t(3)).add("big", UINT64_MAX).add("i", -1).add("loss", 1.5);
    line.add("f", 0.5f).add("nan", NAN).add("ok", true).add("s", std::string("a\"\n")).raw("r", "[1,2]");
    const std::string text = line.text();
    EXPECT_EQ(text, R"({"event":"train","step":3,"big":18446744073709551615,"i":-1,"loss":1.5,"f":0.5,"nan":null,)"
                    R"("ok":true,"s":"a\"\n","r":[1,2]})");
    EXPECT_EQ(parse(text).get_u64("big", "w"), UINT64_MAX);
    EXPECT(JsonLine().text() == "{}", "empty");
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
