// What a request of /v1/responses continues and what is kept of it.
#include "server/api/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::api {
namespace {

using ::testing::HasSubstr;

Parsed<ChatRequest> parse(const std::string& body, const ResponsesTerms& terms) {
  return parse_responses_request(body, terms);
}

TEST(KeptResponses, WhatIsKeptIsTheInputAsItCame) {
  const ResponsesTerms keeps{.can_keep = true};
  auto text = parse(R"({"input":"hi \"you\""})", keeps);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->options.kept->input,
            R"([{"type":"message","role":"user","content":[{"type":"input_text",)"
            R"("text":"hi \"you\""}]}])");
  EXPECT_EQ(text->options.kept->previous, "");
  const std::string items =
      R"([{"role":"user","content":"a","zebra":[1.5,null]},{"type":"reasoning","content":[]}])";
  auto list = parse(R"({"previous_response_id":"resp_1","input":)" + items + "}", keeps);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->options.kept->input, items);
  EXPECT_EQ(list->options.kept->previous, "resp_1");
  EXPECT_THAT(*list->options.echo, HasSubstr(R"("previous_response_id":"resp_1")"));
}

TEST(KeptResponses, WhetherItIsKept) {
  const auto is_kept = [](const char* fields, const ResponsesTerms& terms) {
    auto request = parse(std::string(R"({"input":"x")") + fields + "}", terms);
    EXPECT_TRUE(request.ok());
    return request->options.kept != nullptr;
  };
  EXPECT_TRUE(is_kept("", {.can_keep = true}));
  EXPECT_TRUE(is_kept(R"(,"store":null)", {.can_keep = true}));
  EXPECT_FALSE(is_kept(R"(,"store":false)", {.can_keep = true}));
  EXPECT_FALSE(is_kept(R"(,"store":true)", {.can_keep = false}));
  EXPECT_FALSE(is_kept("", {.can_keep = true, .keeps_by_default = false}));
  EXPECT_TRUE(is_kept(R"(,"store":true)", {.can_keep = true, .keeps_by_default = false}));
  EXPECT_FALSE(is_kept("", {.counting = true, .can_keep = true}));
}

// The messages are those of a request that brings all of it; the instructions are its own.
TEST(KeptResponses, WhatCameBeforeIsReadInFrontOfTheInput) {
  const std::string turns[] = {
      R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}])",
      R"([{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},)"
      R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"Ho"}]},)"
      R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"}])",
      R"([{"type":"function_call_output","call_id":"c","output":"5"}])",
      R"([{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Five"}]}])"};
  const std::string rest = R"({"role":"user","content":"And?"})";
  std::string whole;
  for (const std::string& turn : turns) whole += turn.substr(1, turn.size() - 2) + ",";
  auto continued =
      parse(R"({"instructions":"s","previous_response_id":"resp_1","input":[)" + rest + "]}",
            {.can_keep = true, .before = {turns, turns + 4}});
  ASSERT_TRUE(continued.ok()) << continued.error().message;
  auto sent = parse(R"({"instructions":"s","input":[)" + whole + rest + "]}", {});
  ASSERT_TRUE(sent.ok());
  EXPECT_EQ(continued->messages.dump(), sent->messages.dump());
  EXPECT_EQ(continued->messages[0].dump(), R"({"role":"system","content":"s"})");
  EXPECT_EQ(continued->options.kept->input, "[" + rest + "]") << "its own turn alone";
}

TEST(KeptResponses, WhatCannotBeContinuedSaysWhy) {
  const auto param = [](const std::string& body, const ResponsesTerms& terms) {
    auto request = parse(body, terms);
    return request.ok() ? "nothing" : request.error().param;
  };
  const std::string body = R"({"previous_response_id":"resp_1","input":"x"})";
  EXPECT_EQ(param(body, {.can_keep = false}), "previous_response_id");
  EXPECT_EQ(param(R"({"previous_response_id":5,"input":"x"})", {.can_keep = true}),
            "previous_response_id");
  EXPECT_EQ(param(R"({"previous_response_id":"","input":"x"})", {.can_keep = true}),
            "previous_response_id");
  EXPECT_EQ(param(R"({"previous_response_id":null,"input":"x"})", {.can_keep = false}), "nothing");
  const std::string longest(kMaxNameBytes, 'x');
  EXPECT_TRUE(read_previous_response({{"previous_response_id", longest}}, true).ok());
  EXPECT_FALSE(read_previous_response({{"previous_response_id", longest + "x"}}, true).ok());
  // As many items as a request may bring, and one beyond.
  std::string many = "[";
  for (size_t i = 1; i < kMaxMessages; ++i) many += R"({"role":"user","content":"a"},)";
  many.back() = ']';
  const ResponsesTerms terms{.can_keep = true, .before = {many}};
  EXPECT_EQ(param(R"({"input":[{"role":"user","content":"b"}]})", terms), "nothing");
  auto beyond =
      parse(R"({"input":[{"role":"user","content":"b"},{"role":"user","content":""}]})", terms);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().param, "input");
  EXPECT_THAT(beyond.error().message, HasSubstr("16385 items, and 16384"));
  // What only a damaged store can hold.
  EXPECT_EQ(parse(R"({"input":"x"})", {.before = {"{}"}}).error().status, 500);
}

TEST(KeptResponses, ItemsAreShownWithIdsAndParts) {
  const auto shown = [](const char* item) {
    return shown_item(std::get<0>(json::parse(item)), "resp_f00d", 3).dump();
  };
  EXPECT_EQ(shown(R"({"role":"user","content":"a"})"),
            R"({"id":"msg_f00di3","type":"message","role":"user","content":[{"type":"input_text",)"
            R"("text":"a"}],"status":"completed"})");
  EXPECT_EQ(
      shown(R"({"id":"msg_1","role":"assistant","status":"incomplete","content":"a","x":null})"),
      R"({"id":"msg_1","type":"message","role":"assistant","status":"incomplete","content":[)"
      R"({"type":"output_text","text":"a","annotations":[]}]})");
  EXPECT_EQ(shown(R"({"type":"reasoning"})"),
            R"({"id":"rs_f00di3","type":"reasoning","status":"completed","summary":[]})");
  EXPECT_EQ(shown(R"({"type":"function_call_output","call_id":"c","output":"5"})"),
            R"({"id":"fc_f00di3","type":"function_call_output","call_id":"c","output":"5",)"
            R"("status":"completed"})");
  EXPECT_THAT(shown(R"({"type":"custom_tool_call","call_id":"c","name":"f"})"), HasSubstr("ctc_"));
  std::string crowded = R"({"role":"user","content":"a")";
  for (int i = 0; i < 100'000; ++i) crowded += fmt::format(R"(,"x{}":1)", i);
  EXPECT_EQ(shown((crowded + "}").c_str()), shown(R"({"role":"user","content":"a"})"))
      << "what nobody reads is not shown, and does not take minutes";
}

// The two members that are known alone: each of 60,000 others would be looked for among them all.
TEST(KeptResponses, OfTextWhatIsKnownIsEchoed) {
  std::string others;
  for (int i = 0; i < 60'000; ++i) others += fmt::format(R"(,"m{}":0)", i);
  auto request = parse(
      R"({"input":"x","text":{"verbosity":"low","format":{"type":"text"})" + others + "}}", {});
  ASSERT_TRUE(request.ok());
  EXPECT_THAT(*request->options.echo,
              HasSubstr(R"("text":{"format":{"type":"text"},"verbosity":"low"},"tool_choice")"));
  EXPECT_LT(request->options.echo->size(), 1000U);
  auto silent = parse(R"({"input":"x","text":{"m":1}})", {});
  EXPECT_THAT(*silent->options.echo, HasSubstr(R"("text":{"format":{"type":"text"}},)"));
}

}  // namespace
}  // namespace skein::api
