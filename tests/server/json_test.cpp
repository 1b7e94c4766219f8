#include "server/json.h"

#include <gtest/gtest.h>

#include "text/json_text.h"

namespace skein::json {
namespace {

bool accepted(std::string_view text) {
  return parse(text).index() == 0;
}

TEST(Json, Taken) {
  for (const char* text :
       {"{}",
        "[]",
        " { } ",
        "\t[\r\n]\n",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "7",
        "-12.5e+3",
        "1E9",
        "0.25e-2",
        "123456789012345678901234567890",
        "1e-400",
        "\"\"",
        "\"plain\"",
        R"("\"\\\/\b\f\n\r\t")",
        R"("\u0041\u00e9\u20AC")",
        R"("\ud83d\ude00")",
        R"("\u0000 inside")",
        "\"\x7f\"",
        "\"caf\xc3\xa9 \xf0\x9f\x98\x80\"",
        "[1,2,[3,[4,[]]]]",
        R"({"a":{"b":{"c":[null]}}})",
        R"({"":0})",
        R"({"a":1,"a":2})",
        R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"temperature":0.7})"}) {
    EXPECT_TRUE(accepted(text)) << text;
  }
}

TEST(Json, Refused) {
  for (const std::string_view text :
       {// cut short, or more than one value
        "", " ", "{", "[", "[1", "[1,", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,", "\"", "\"a",
        "{}}", "[]]", "1 2", "{} {}", "null,", "[] x",
        // separators
        "[1 2]", "[,1]", "[1,]", "[1,,2]", "[1;2]", "{\"a\" 1}", "{\"a\"::1}", "{\"a\":1,}",
        "{,\"a\":1}", "{\"a\":1 \"b\":2}", "{\"a\",1}", "(1)", "<a>",
        // what JavaScript and Python would take
        "{a:1}", "{'a':1}", "['a']", "[1,2,3] // three", "/* none */ []", "undefined", "None",
        "True", "nul", "nulls", "TRUE", "NaN", "Infinity", "-Infinity",
        "[1,\x0c"
        "2]",
        "`a`",
        // numbers
        "01", "-", "+1", ".5", "1.", "-.5", "1e", "1e+", "0x10", "1_000", "--1", "1.2.3", "1e2e3",
        "0b1", "1a", "\xef\xbc\x91",
        // strings
        "\"\n\"", "\"\t\"", "\"\x01\"", R"("\x41")", R"("\a")", R"("\u12")", R"("\u12G4")",
        R"("\U00000041")", "\"\\\"", "\"a\\", R"("\ud83d")", R"("\ude00")", R"("\ud83d\u0041")",
        "\"\x80\"", "\"\xc0\xaf\"", "\"\xe2\x82\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
        "\"\xff\"",
        // names that are none
        "{1:2}", "{null:1}", "{[]:1}",
        // another encoding
        "\xfe\xff"}) {
    EXPECT_FALSE(accepted(text)) << text;
  }
  EXPECT_FALSE(accepted(std::string_view("[]\0", 3)));
  EXPECT_FALSE(accepted(std::string_view("\0[]", 3)));
  EXPECT_FALSE(accepted(std::string_view("[\0]", 3)));
  EXPECT_FALSE(accepted(std::string_view("{\0\"\0a\0\"\0:\0001\0}\0", 12)));  // UTF-16
}

TEST(Json, OfDuplicatesTheLastCountsAtThePlaceOfTheFirst) {
  const auto value = std::get<Value>(parse(R"({"a":1,"b":2,"a":{"x":[3]},"c":4,"b":5})"));
  EXPECT_EQ(value.dump(), R"({"a":{"x":[3]},"b":5,"c":4})");
}

TEST(Json, Limits) {
  static_assert(kMaxDepth == 128);
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(accepted(nested(kMaxDepth)));
  EXPECT_FALSE(accepted(nested(kMaxDepth + 1)));
  std::string list = "[0";
  for (size_t i = 2; i < kMaxValues; ++i) list += ",0";
  EXPECT_TRUE(accepted(list + "]"));
  EXPECT_FALSE(accepted(list + ",0]"));
}

TEST(Json, StringsAreAlwaysValid) {
  const auto written = [](std::string_view text) {
    std::string out;
    append_string(out, text);
    return out;
  };
  EXPECT_EQ(written("plain"), "\"plain\"");
  EXPECT_EQ(written("\"\\/\b\n\r\t\x01\x7f"), R"("\"\\/\u0008\n\r\t\u0001\u007f")");
  EXPECT_EQ(written("h\xc3\xa9\xf0\x9f\x98\x80"), "\"h\xc3\xa9\xf0\x9f\x98\x80\"");
  EXPECT_EQ(written("\xff|\xc3|\xed\xa0\x80"),
            "\"\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(written("end \xf0\x9f"), "\"end \xef\xbf\xbd\"");
  EXPECT_EQ(written("\xc2\x9b"
                    "2J\xc2\x80\xc2\x9f\xc2\xa0"),
            "\"\\u009b2J\\u0080\\u009f\xc2\xa0\"");
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string text = {static_cast<char>(a), static_cast<char>(b), 'x'};
      ASSERT_TRUE(accepted(written(text))) << a << " " << b;
    }
  }
}

TEST(Json, Numbers) {
  std::string out;
  append_number(out, 0.1);
  append_number(out, -0.25);
  append_number(out, 1.0 / 0.0);
  append_int(out, INT64_MIN);
  EXPECT_EQ(out, "0.1-0.25null-9223372036854775808");
}

TEST(Json, SaysATextOrNot) {
  EXPECT_TRUE(says("text", "text"));
  EXPECT_FALSE(says("texts", "text"));
  EXPECT_FALSE(says(7, "7"));
  EXPECT_FALSE(says(nullptr, ""));
}

}  // namespace
}  // namespace skein::json
