#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

#include "server/json/append.h"
#include "server/json/parse.h"

namespace skein::json {
namespace {

const std::filesystem::path kVectors = SKEIN_SOURCE_DIR "/../shared/vectors/json";

bool accepted(std::string_view text) {
  return parse(text).index() == 0;
}

TEST(Json, TheTestSuite) {
  if (!std::filesystem::exists(kVectors)) GTEST_SKIP() << kVectors << " is not there";
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kVectors)) {
    const std::string name = entry.path().filename().string();
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const bool taken = accepted(text);
    if (!name.starts_with("i_")) {
      EXPECT_EQ(taken, name.starts_with("y_")) << name;
    }
    ++files;
  }
  EXPECT_GT(files, 300U);
}

TEST(Json, OfDuplicatesTheLastCountsAtThePlaceOfTheFirst) {
  const auto value = std::get<Value>(parse(R"({"a":1,"b":2,"a":{"x":[3]},"c":4,"b":5})"));
  EXPECT_EQ(value.dump(), R"({"a":{"x":[3]},"b":5,"c":4})");
}

TEST(Json, Limits) {
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

}  // namespace
}  // namespace skein::json
