// Answers with thoughts and calls, read as events: the same for any chunking.
#include "generate/dialog_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "dialog/dialog_helpers.h"
#include "engine/models.h"
#include "engine/tiny_model.h"

namespace skein {
namespace {

using dialog::testing::must_find;
using dialog::testing::own_template;
using dialog::testing::syntax_of;
using dialog::testing::template_source;

const Tokenizer& byte_tokens() {  // the first 256 ids are the bytes
  static const testing::TestFolder folder;
  static const LoadedTokenizer loaded = testing::load(testing::write_tiny_model(folder));
  return loaded.tokenizer;
}

dialog::Tool tool_of(const char* name) {
  return {.name = name, .description = "", .parameters = {}, .strict = {}};
}

ReadOptions reading(const char* name, std::vector<std::string> stops = {}) {
  ReadOptions options{.stops = std::move(stops)};
  options.syntax =
      syntax_of(must_find(template_source(own_template(name))), {tool_of("now"), tool_of("run")});
  options.call_seed = 5;
  options.custom_tools = {"run"};
  return options;
}

// What the events of an answer say, joined; and that each token is named once, in order.
struct Joined {
  std::string reasoning, content, stop;
  std::vector<std::string> calls;  // "id name arguments", with an end where it is whole
  std::string content_tokens, logprob_tokens;
  std::string tokens;  // all of them
  size_t reasoning_tokens = 0;
  FinishReason reason = FinishReason::kError;
  uint32_t generated = 0;

  void name(std::span<const TokenId> named) {
    for (const TokenId id : named) tokens.push_back(static_cast<char>(id));
  }
  void take(const AnswerReasoning& part) {
    reasoning += part.text;
    reasoning_tokens += part.tokens.size();
    name(part.tokens);
  }
  void take(const AnswerContent& part) {
    content += part.text;
    name(part.tokens);
    for (const TokenId id : part.tokens) content_tokens.push_back(static_cast<char>(id));
    for (const TokenLogprob& one : part.logprobs) {
      logprob_tokens.push_back(static_cast<char>(one.token));
    }
  }
  void take(const AnswerCallBegin& part) {
    EXPECT_EQ(part.call, calls.size());
    EXPECT_EQ(part.custom, part.name == "run");
    calls.push_back(std::string(part.id) + " " + std::string(part.name) + " ");
    name(part.tokens);
  }
  void take(const AnswerArguments& part) {
    EXPECT_EQ(part.call + 1, calls.size());
    calls.back() += part.text;
    name(part.tokens);
  }
  void take(const AnswerCallEnd& part) {
    EXPECT_EQ(part.call + 1, calls.size());
    calls.back() += " end";
    name(part.tokens);
  }
  void take(const AnswerHidden& part) { name(part.tokens); }
  void take(const AnswerProgress&) {}
  void take(const AnswerEnd& end) {
    reason = end.how.reason;
    generated = end.how.generated_tokens;
    stop = end.stop;
  }
  std::string summary() const {
    std::string out = "[" + reasoning + "][" + content + "]";
    for (const std::string& call : calls) out += "{" + call + "}";
    return out + " " + std::string(name_of(reason)) + " " + stop + "|" + content_tokens + "|" +
           std::to_string(reasoning_tokens);
  }
};

// `cuts`: how many tokens each chunk has, the last of which goes on to the end.
Joined read_in(const ReadOptions& options, std::string_view answer, FinishReason reason,
               std::vector<size_t> cuts) {
  auto reader = EventReader::create(byte_tokens(), options);
  EXPECT_TRUE(reader.ok());
  Joined joined;
  std::vector<AnswerEvent> events;
  size_t at = 0;
  cuts.push_back(answer.size());
  for (const size_t cut : cuts) {
    StreamChunk chunk;
    for (const char byte : answer.substr(at, cut - at)) {
      const TokenId id = static_cast<uint8_t>(byte);
      chunk.tokens.push_back(id);
      chunk.logprobs.push_back({id, -1});
    }
    at = cut;
    reader->read(chunk, events);
    for (const AnswerEvent& event : events)
      std::visit([&](auto& part) { joined.take(part); }, event);
    if (reader->stopped()) break;
  }
  StreamChunk last;
  last.end = GenerationEnd{.reason = reason, .status = {}};
  reader->read(last, events);
  for (const AnswerEvent& event : events) std::visit([&](auto& part) { joined.take(part); }, event);
  EXPECT_EQ(joined.tokens, answer.substr(0, joined.tokens.size()));
  EXPECT_EQ(joined.tokens.size(), joined.generated);
  EXPECT_EQ(joined.logprob_tokens, joined.content_tokens);
  return joined;
}

Joined read_all(const ReadOptions& options, std::string_view answer,
                FinishReason reason = FinishReason::kStop) {
  const Joined whole = read_in(options, answer, reason, {});
  Rng rng(7);
  for (int round = 0; round < 40; ++round) {
    std::vector<size_t> cuts;
    for (size_t i = 1; i < answer.size(); ++i) {
      if (round == 0 || rng.below(4) == 0) cuts.push_back(i);
    }
    EXPECT_EQ(read_in(options, answer, reason, cuts).summary(), whole.summary()) << answer;
  }
  return whole;
}

const std::string kThought = "<think>\nSTOP it <tool_call>\n</think>\n\n";
const std::string kCall =
    "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": \"STOP\"}}\n</tool_call>";

TEST(DialogReader, ThoughtsTextAndCalls) {
  const Joined joined = read_all(reading("hermes", {"STOP"}), kThought + "Well, é.\n" + kCall);
  EXPECT_EQ(joined.reasoning, "STOP it <tool_call>");
  EXPECT_EQ(joined.content, "Well, é.");
  EXPECT_EQ(joined.content_tokens, "Well, é.");
  ASSERT_EQ(joined.calls.size(), 1U);
  EXPECT_THAT(joined.calls[0],
              ::testing::MatchesRegex("call_[A-Za-z0-9]+ now [{]\"a\": \"STOP\"[}] end"));
  EXPECT_EQ(joined.calls[0].find(' '), 5U + 24U);
  EXPECT_EQ(joined.reason, FinishReason::kToolCalls);
  EXPECT_GE(joined.reasoning_tokens, joined.reasoning.size() + 15);
}

TEST(DialogReader, AStopTextIsLookedForInContentAlone) {
  const Joined joined =
      read_all(reading("hermes", {"STOP", "zz"}), kThought + "one STOP two" + kCall);
  EXPECT_EQ(joined.content, "one ");
  EXPECT_EQ(joined.stop, "STOP");
  EXPECT_EQ(joined.reason, FinishReason::kStop);
  EXPECT_TRUE(joined.calls.empty());
  EXPECT_EQ(joined.tokens, kThought + "one STOP");
  // What looks like the beginning of one is shown when a call comes, and does not go on behind it.
  const Joined split = read_all(reading("hermes", {"STOP"}), "one STO" + kCall + "P");
  EXPECT_EQ(split.content, "one STOP");
  EXPECT_EQ(split.reason, FinishReason::kToolCalls);
}

TEST(DialogReader, ACutCallHasNoEnd) {
  const std::string answer = kThought + "Text" + kCall + kCall;
  for (size_t cut = 0; cut < answer.size(); ++cut) {
    const Joined joined =
        read_in(reading("hermes"), answer.substr(0, cut), FinishReason::kLength, {});
    EXPECT_EQ(joined.reason, FinishReason::kLength);
    EXPECT_LE(joined.calls.size(), 2U);
    size_t ends = 0;
    for (const std::string& call : joined.calls) ends += call.ends_with(" end") ? 1 : 0;
    EXPECT_LE(joined.calls.size() - ends, 1U);
    EXPECT_EQ(joined.tokens, answer.substr(0, cut));
  }
}

TEST(DialogReader, ACustomToolsArgumentIsItsText) {
  const Joined joined =
      read_all(reading("hermes"),
               "<tool_call>\n{\"name\": \"run\", \"arguments\": {\"input\": \"a\\n\\\"b\\\" \\\\ "
               "\\ud83d\\ude00: é\"}}\n</tool_call>");
  ASSERT_EQ(joined.calls.size(), 1U);
  EXPECT_TRUE(joined.calls[0].ends_with(" run a\n\"b\" \\ \U0001F600: é end")) << joined.calls[0];
}

TEST(DialogReader, IdsAreAFunctionOfTheSeedAndTheStyle) {
  ReadOptions options = reading("hermes");
  const std::string two = kCall + kCall;
  const auto first = read_all(options, two).calls;
  ASSERT_EQ(first.size(), 2U);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(read_all(options, two).calls, first);
  options.call_seed = 6;
  EXPECT_NE(read_all(options, two).calls, first);
  options.id_style = dialog::IdStyle::kAnthropic;
  EXPECT_TRUE(read_all(options, two).calls[0].starts_with("toolu_"));
  options.id_style = dialog::IdStyle::kNine;
  EXPECT_EQ(read_all(options, two).calls[0].find(' '), 9U);
}

TEST(DialogReader, ATokenOutsideTheVocabularyEndsTheAnswer) {
  auto reader = EventReader::create(byte_tokens(), reading("hermes"));
  ASSERT_TRUE(reader.ok());
  StreamChunk chunk;
  chunk.tokens = {'a', 1 << 20, 'b'};
  std::vector<AnswerEvent> events;
  reader->read(chunk, events);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<AnswerContent>(events[0]).text, "a");
  EXPECT_EQ(std::get<AnswerEnd>(events[1]).how.reason, FinishReason::kError);
}

TEST(DialogReader, APromptThatHasOpenedAThought) {
  ReadOptions options = reading("hermes");
  options.in_reasoning = true;
  const Joined joined = read_all(options, "hm</think>\n\nyes");
  EXPECT_EQ(joined.reasoning, "hm");
  EXPECT_EQ(joined.content, "yes");
  EXPECT_EQ(joined.reason, FinishReason::kStop);
}

TEST(DialogReader, ChannelsAndTags) {
  const Joined channels =
      read_all(reading("channels"),
               "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
               "to=functions.now <|constrain|>json<|message|>{\"a\": 1}<|call|>");
  EXPECT_EQ(channels.reasoning, "Hm.");
  ASSERT_EQ(channels.calls.size(), 1U);
  EXPECT_TRUE(channels.calls[0].ends_with(" now {\"a\": 1} end")) << channels.calls[0];
  const Joined tags = read_all(reading("parameters"), "So: <tool_call> is a tag.");
  EXPECT_EQ(tags.content, "So: <tool_call> is a tag.");
  EXPECT_TRUE(tags.calls.empty());
}

}  // namespace
}  // namespace skein
