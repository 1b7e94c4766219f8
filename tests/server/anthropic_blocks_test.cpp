// Thoughts, texts and calls as the blocks of Anthropic's messages. Joined, a stream is the plain
// answer, but for calls that were cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/scripted_answers.h"

namespace skein::api {
namespace {

using namespace testing;  // NOLINT: what is scripted
using ::testing::HasSubstr;
using ::testing::Not;

// What an Anthropic client makes of a stream.
Json joined_message(const std::string& stream) {
  Json message;
  std::string input;
  bool is_open = false;
  for (const Json& frame : frames_of(stream)) {
    const auto type = frame["type"].get<std::string>();
    if (type == "message_start") {
      message = frame["message"];
    } else if (type == "content_block_start") {
      EXPECT_FALSE(std::exchange(is_open, true));
      EXPECT_EQ(frame["index"], message["content"].size());
      message["content"].push_back(frame["content_block"]);
      input.clear();
    } else if (type == "content_block_delta") {
      EXPECT_TRUE(is_open);
      EXPECT_EQ(frame["index"], message["content"].size() - 1);
      const Json& delta = frame["delta"];
      Json& block = message["content"].back();
      const auto add = [&](const char* name) {
        block[name] = block[name].get<std::string>() + delta[name].get<std::string>();
      };
      if (delta["type"] == "text_delta") add("text");
      if (delta["type"] == "thinking_delta") add("thinking");
      if (delta["type"] == "signature_delta") add("signature");
      if (delta["type"] == "input_json_delta") input += delta["partial_json"].get<std::string>();
    } else if (type == "content_block_stop") {
      EXPECT_TRUE(std::exchange(is_open, false));
      const bool is_whole = input.empty() || Json::accept(input);
      if (!input.empty() && is_whole) message["content"].back()["input"] = Json::parse(input);
    } else if (type == "message_delta") {
      EXPECT_FALSE(is_open);
      message.update(frame["delta"]);
      message["usage"].update(frame["usage"]);
    }
  }
  return message;
}

TEST(AnthropicBlocks, JoinedAreThePlainAnswer) {
  for (const auto& [name, events] : kAnswers) {
    SCOPED_TRACE(name);
    const std::string stream = written(AnswerKind::kMessage, true, events);
    EXPECT_THAT(stream, ::testing::EndsWith("{\"type\":\"message_stop\"}\n\n"));
    Json joined = joined_message(stream);
    const Json whole = Json::parse(written(AnswerKind::kMessage, false, events));
    // A call that was cut is in the stream, which could not know, and not in the plain answer.
    if (name == "a call that is cut" || name == "a call that is cut after a whole one") {
      joined["content"].erase(joined["content"].size() - 1);
      EXPECT_EQ(whole["stop_reason"], "max_tokens");
    } else if (name == "a call that goes on as text") {
      joined["content"].erase(0);
    }
    EXPECT_EQ(joined.dump(), whole.dump());
    for (const Json& block : whole["content"]) {
      EXPECT_NE(block.value("text", "-"), "") << "an empty block";
    }
  }
}

TEST(AnthropicBlocks, ThoughtsAndCallsWhole) {
  const Json whole =
      Json::parse(written(AnswerKind::kMessage, false, kAnswers.at("thought and calls")));
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  const auto signature = whole["content"][0]["signature"].get<std::string>();
  EXPECT_EQ(signature.size(), 32U);
  EXPECT_EQ(whole["content"].dump(), R"([{"type":"thinking","thinking":"Both.","signature":")" +
                                         signature +
                                         R"("},{"type":"tool_use","id":"id0","name":"weather",)"
                                         R"("input":{"city":"Paris"}},)"
                                         R"({"type":"tool_use","id":"id1","name":"time",)"
                                         R"("input":{}}])");
  EXPECT_EQ(Json::parse(written(AnswerKind::kMessage, false, kAnswers.at("nothing")))["content"],
            Json::array());
}

TEST(AnthropicBlocks, AStreamedCall) {
  EXPECT_THAT(written(AnswerKind::kMessage, true, kAnswers.at("thought and calls")),
              HasSubstr(
                  R"(event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"id0","name":"weather","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"city\": \"Par"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"is\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,)"));
}

TEST(AnthropicBlocks, ASignatureIsOfTheTextAlone) {
  const auto signature_of = [](const Events& events) {
    return joined_message(written(AnswerKind::kMessage, true, events))["content"][0]["signature"]
        .get<std::string>();
  };
  const std::string thought_of_all(1000, 'x');
  const std::string_view all = thought_of_all;
  const std::string whole = signature_of({thought(all), ended(FinishReason::kStop)});
  for (const size_t cut : {1UL, 63UL, 64UL, 65UL, 128UL, 999UL}) {
    EXPECT_EQ(signature_of({thought(all.substr(0, cut)), thought(all.substr(cut)),
                            ended(FinishReason::kStop)}),
              whole)
        << cut;
  }
  EXPECT_NE(signature_of({thought(all.substr(1)), ended(FinishReason::kStop)}), whole);
}

TEST(AnthropicBlocks, AThoughtThatIsOmittedHasItsSignatureAlone) {
  AnswerOptions wanted;
  wanted.include_reasoning = false;
  const Events& events = kAnswers.at("thought and text");
  const std::string stream = written(AnswerKind::kMessage, true, events, wanted);
  EXPECT_THAT(stream, Not(HasSubstr("thinking_delta")));
  const Json shown = Json::parse(written(AnswerKind::kMessage, false, events));
  const Json omitted = Json::parse(written(AnswerKind::kMessage, false, events, wanted));
  EXPECT_EQ(omitted["content"][0]["thinking"], "");
  EXPECT_EQ(omitted["content"][0]["signature"], shown["content"][0]["signature"]);
  EXPECT_EQ(joined_message(stream)["content"], omitted["content"]);
}

// Only a model that nothing binds writes such arguments; the answer is JSON all the same.
TEST(AnthropicBlocks, ArgumentsThatAreNoObject) {
  for (const char* of_call : {"", "[1]", "{\"a\":", "}{", "{\"a\":1}}"}) {
    const Json whole = Json::parse(written(
        AnswerKind::kMessage, false,
        {call(0, "i", "f"), arguments(0, of_call), call_end(0), ended(FinishReason::kStop)}));
    EXPECT_EQ(whole["content"][0]["input"], Json({{"arguments", of_call}})) << of_call;
  }
}

}  // namespace
}  // namespace skein::api
