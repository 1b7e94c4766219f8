// What `skein top` shows of a frame, and that nothing in a frame acts on a terminal.
#include "apps/top_text.h"

#include <gtest/gtest.h>

#include "apps/terminal_text.h"

namespace skein::apps {
namespace {

using nlohmann::json;

json frame(double at_ms, int tokens, int steps) {
  return {{"at_ms", at_ms},
          {"version", "1.2.3"},
          {"live_requests", 2},
          {"watchers", 1},
          {"models",
           {{{"id", "tiny"},
             {"state", "ready"},
             {"max_batch", 4},
             {"engine",
              {{"state", "running"},
               {"running", 1},
               {"prefilling", 1},
               {"waiting_high", 0},
               {"waiting_normal", 3},
               {"oldest_normal_ms", 1500.0},
               {"waiting_low", 0},
               {"steps", steps},
               {"step_us_sum", steps * 2000},
               {"generated_tokens", tokens},
               {"computed_tokens", 2 * tokens},
               {"completed", 7},
               {"prefix_query_tokens", 100},
               {"prefix_hit_tokens", 25},
               {"preemptions", 1}}},
             {"kv", {{"pool", 64}, {"held", 16}, {"cached", 8}}}}}},
          {"requests",
           {{{"id", "chatcmpl-1"},
             {"class", "normal"},
             {"age_ms", 250.0},
             {"choices",
              {{{"state", "running"},
                {"prompt_tokens", 12},
                {"generated_tokens", 5},
                {"blocks", 1},
                {"explanation", "running: nothing holds it up"}}}}}}}};
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all.append(line).append("\n");
  return all;
}

TEST(TopText, ALoadHasABar) {
  json now = frame(1000, 100, 10);
  now["models"][0].erase("engine");
  now["models"][0]["state"] = "loading";
  now["models"][0]["loaded_share"] = 0.5;
  const std::string all = joined(top_lines(nullptr, now, {120, 40}));
  EXPECT_NE(all.find("tiny  loading"), std::string::npos) << all;
  EXPECT_NE(all.find("[############............] 50 %"), std::string::npos) << all;
}

TEST(TopText, RatesComeFromTwoFrames) {
  const std::string all = joined(top_lines(frame(1000, 100, 10), frame(1500, 150, 20), {120, 40}));
  EXPECT_NE(all.find("100.0 tokens/s generated"), std::string::npos) << all;
  EXPECT_NE(all.find("200.0 computed"), std::string::npos) << all;
  EXPECT_NE(all.find("2.0 ms a step"), std::string::npos) << all;
  EXPECT_NE(all.find("2 of 4: 1 decode, 1 in prefill"), std::string::npos) << all;
  EXPECT_NE(all.find("[######..................] 16 of 64 blocks held, 8 cached"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("normal 3 (oldest 1.5 s)"), std::string::npos) << all;
  EXPECT_NE(all.find("25 % prefix hits"), std::string::npos) << all;
  EXPECT_NE(all.find("chatcmpl-1"), std::string::npos) << all;
  EXPECT_NE(all.find("nothing holds it up"), std::string::npos) << all;
}

TEST(TopText, TheTerminalsSizeIsKept) {
  json now = frame(1500, 150, 20);
  for (int i = 0; i < 100; ++i) now["requests"].push_back(now["requests"][0]);
  const auto lines = top_lines(frame(1000, 100, 10), now, {40, 16});
  EXPECT_EQ(lines.size(), 16U);
  EXPECT_EQ(lines.back(), "...");
  for (const std::string& line : lines) EXPECT_LE(line.size(), 40U);
  EXPECT_LE(top_lines(nullptr, now, {40, 3}).size(), 3U);
}

TEST(TopText, NothingInAFrameActsOnTheTerminal) {
  json now = frame(1500, 150, 20);
  const std::string evil =
      "\x1b]0;pwned\x07\x1b[2J\r\n\xc2\x9b"
      "31m";
  now["version"] = evil;
  now["models"][0]["id"] = evil;
  now["models"][0]["engine"]["state"] = evil;
  now["requests"][0]["id"] = evil;
  now["requests"][0]["class"] = evil;
  now["requests"][0]["choices"][0]["state"] = evil;
  now["requests"][0]["choices"][0]["explanation"] = evil;
  for (const std::string& line : top_lines(now, now, {500, 40})) {
    for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20U) << line;
    EXPECT_EQ(line.find("\xc2\x9b"), std::string::npos);
  }
}

TEST(TopText, AFrameOfAnotherShapeIsNoReasonToEnd) {
  for (const char* text : {"null", "[]", "{}", "3", R"({"models":3,"requests":"a"})",
                           R"({"models":[1,null,{"engine":[]}],"requests":[1,{"choices":{}}]})",
                           R"({"models":[{"id":1,"engine":{"running":"x"},"kv":[]}]})"}) {
    const json now = json::parse(text);
    EXPECT_FALSE(top_lines(now, now, {80, 24}).empty()) << text;
    EXPECT_FALSE(top_lines(frame(1, 2, 3), now, {80, 24}).empty()) << text;
  }
}

// Comparing such values would take a frame of the stack for each level.
TEST(TopText, NothingIsComparedLevelByLevel) {
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  const json now = json::parse(R"({"models":[{"engine":{"running":1},"id":)" + deep + "}]}");
  EXPECT_FALSE(top_lines(now, now, {80, 24}).empty());
}

TEST(TerminalText, ControlCharactersBecomePictures) {
  EXPECT_EQ(terminal_safe("plain text\n\twith \xc3\xa9 and \xe2\x82\xac"),
            "plain text\n\twith \xc3\xa9 and \xe2\x82\xac");
  EXPECT_EQ(terminal_safe("\x1b[31m"), "\u241b[31m");
  EXPECT_EQ(terminal_safe(std::string_view("\0\x07\x7f", 3)), "\u2400\u2407\u2421");
  EXPECT_EQ(terminal_safe("a\r\nb\rc"), "a\nb\u240dc");
  EXPECT_EQ(terminal_safe("\xc2\x9b"
                          "1m\xc2\xa0"),
            "\uFFFD1m\xc2\xa0");
}

}  // namespace
}  // namespace skein::apps
