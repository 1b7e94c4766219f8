#include "generate/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <thread>

#include "base/rng.h"
#include "engine/models.h"
#include "engine/tiny_model.h"

namespace skein {
namespace {

using ::testing::ElementsAre;

// A tokenizer whose first 256 ids are the bytes.
const Tokenizer& bytes() {
  static const testing::TestFolder folder;
  static const LoadedTokenizer loaded = testing::load(testing::write_tiny_model(folder));
  return loaded.tokenizer;
}

StreamChunk chunk_of(std::string_view text, std::optional<FinishReason> end = {}) {
  StreamChunk chunk;
  for (const char byte : text) chunk.tokens.push_back(static_cast<uint8_t>(byte));
  if (end)
    chunk.end =
        GenerationEnd{.reason = *end, .status = {}, .prompt_tokens = 7, .generated_tokens = 99};
  return chunk;
}

EventReader reader(ReadOptions options = {}) {
  auto made = EventReader::create(bytes(), std::move(options));
  EXPECT_TRUE(made.ok()) << made.message();
  return std::move(made).value();
}

// Events as words: "3 of the prompt", "'text' 2", "end stop 'STOP'".
std::vector<std::string> words(const std::vector<AnswerEvent>& events) {
  std::vector<std::string> out;
  for (const AnswerEvent& event : events) {
    if (const auto* progress = std::get_if<AnswerProgress>(&event)) {
      out.push_back(fmt::format("{} of the prompt", progress->computed_tokens));
    } else if (const auto* content = std::get_if<AnswerContent>(&event)) {
      out.push_back(fmt::format("'{}' {}", content->text, content->tokens.size()));
    } else {
      const auto& end = std::get<AnswerEnd>(event);
      out.push_back(fmt::format("end {} '{}'", name_of(end.how.reason), end.stop));
    }
  }
  return out;
}

std::vector<std::string> read(EventReader& reader, const StreamChunk& chunk) {
  std::vector<AnswerEvent> events = {AnswerProgress{17}};  // what was there goes
  reader.read(chunk, events);
  return words(events);
}

TEST(EventReader, ContentIsWholeCharactersAndTheEndIsLast) {
  EventReader r = reader();
  EXPECT_THAT(read(r, chunk_of("h\xc3")), ElementsAre("'h' 2"));
  EXPECT_THAT(read(r, chunk_of("\xa9")), ElementsAre("'\u00e9' 1"));
  EXPECT_THAT(read(r, chunk_of("!", FinishReason::kLength)), ElementsAre("'!' 1", "end length ''"));
  EXPECT_TRUE(r.stopped());
  EXPECT_EQ(r.tokens(), 4U);
  EXPECT_THAT(read(r, chunk_of("more", FinishReason::kError)), ElementsAre());
}

TEST(EventReader, NothingThatFollowsAStopTextIsTaken) {
  EventReader r = reader({.stops = {"END", "\n\n"}});
  StreamChunk chunk = chunk_of("abENDxy");
  for (const TokenId token : chunk.tokens) {
    chunk.logprobs.push_back({token, -1});
    chunk.logprobs.push_back({0, -2});
  }
  std::vector<AnswerEvent> events;
  r.read(chunk, events);
  EXPECT_THAT(words(events), ElementsAre("'ab' 5"));
  EXPECT_EQ(std::get<AnswerContent>(events[0]).logprobs.size(), 10U) << "two for each token";
  EXPECT_TRUE(r.stopped());
  // However the engine ends what was cancelled, the answer is complete.
  r.read(chunk_of("z", FinishReason::kClient), events);
  EXPECT_THAT(words(events), ElementsAre("end stop 'END'"));
  EXPECT_EQ(std::get<AnswerEnd>(events[0]).how.generated_tokens, 5U);
  EXPECT_EQ(std::get<AnswerEnd>(events[0]).how.prompt_tokens, 7U);
}

TEST(EventReader, WhatMayBeAStopTextComesWithTheEnd) {
  EventReader r = reader({.stops = {"xyz"}});
  EXPECT_THAT(read(r, chunk_of("ax")), ElementsAre("'a' 2"));
  EXPECT_THAT(read(r, chunk_of("y")), ElementsAre("'' 1"));
  EXPECT_THAT(read(r, chunk_of("", FinishReason::kStop)), ElementsAre("'xy' 0", "end stop ''"));
}

TEST(EventReader, ProgressAndThePrefixComeBeforeTheAnswersOwnText) {
  EventReader r = reader({.prefix = "Say: "});
  StreamChunk chunk;
  chunk.computed_tokens = 3;
  EXPECT_THAT(read(r, chunk), ElementsAre("3 of the prompt", "'Say: ' 0"));
  EXPECT_THAT(read(r, chunk), ElementsAre()) << "no further";
  chunk = chunk_of("a");
  chunk.computed_tokens = 5;
  EXPECT_THAT(read(r, chunk), ElementsAre("5 of the prompt", "'a' 1"));
  EventReader at_once = reader({.prefix = "Say: "});
  EXPECT_THAT(read(at_once, chunk_of("a")), ElementsAre("'Say: a' 1"));
}

TEST(EventReader, ControlTokensShowOnlyWhenAskedFor) {
  StreamChunk chunk = chunk_of("a");
  chunk.tokens.push_back(static_cast<TokenId>(testing::kTinyEnd));
  EventReader hides = reader();
  EXPECT_THAT(read(hides, chunk), ElementsAre("'a' 2"));
  EventReader shows = reader({.decode = {.skip_special = false}});
  EXPECT_THAT(read(shows, chunk), ElementsAre("'a<|im_end|>' 2"));
}

TEST(EventReader, ATokenOutsideTheVocabularyEndsTheAnswer) {
  EventReader r = reader();
  StreamChunk chunk = chunk_of("ab");
  chunk.tokens.insert(chunk.tokens.begin() + 1, 9999);
  std::vector<AnswerEvent> events;
  r.read(chunk, events);
  EXPECT_THAT(words(events), ElementsAre("'a' 1", "end error ''"));
  EXPECT_EQ(std::get<AnswerEnd>(events[1]).how.status.code(), Code::kInternal);
  EXPECT_THAT(read(r, chunk_of("b", FinishReason::kStop)), ElementsAre());
}

TEST(EventReader, TheJoinedTextIsTheSameForAnyChunking) {
  const std::string text = "Zw\u00f6lf Boxk\u00e4mpfer, \u4f60\u597d, and then the END of it";
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    EventReader r = reader({.stops = {"END", "nd t"}});
    std::string joined;
    std::vector<AnswerEvent> events;
    for (size_t at = 0; at < text.size();) {
      const size_t count = std::min<size_t>(1 + rng.below(7), text.size() - at);
      r.read(chunk_of(std::string_view(text).substr(at, count)), events);
      at += count;
      for (const AnswerEvent& event : events) joined += std::get<AnswerContent>(event).text;
    }
    ASSERT_EQ(joined, text.substr(0, text.find("nd t")));
  }
}

TEST(EventReader, RefusesStopTextsThatCannotBe) {
  EXPECT_FALSE(EventReader::create(bytes(), {.stops = {""}}).ok());
  EXPECT_FALSE(EventReader::create(bytes(), {.stops = {std::string(1025, 'x')}}).ok());
}

struct FakeCanceller final : RequestCanceller {
  void cancel(RequestId, FinishReason reason) override { reasons.push_back(reason); }
  std::vector<FinishReason> reasons;
};

// A request of no engine: the test pushes what the engine would.
struct FakeRequest {
  std::shared_ptr<TokenStream> stream = std::make_shared<TokenStream>();
  std::shared_ptr<FakeCanceller> canceller = std::make_shared<FakeCanceller>();

  std::unique_ptr<Completion> read(ReadOptions options = {}) const {
    return std::make_unique<Completion>(RequestHandle(RequestId{1}, stream, canceller),
                                        reader(std::move(options)));
  }
  void push(std::string_view text) const {
    for (const char byte : text) {
      EXPECT_TRUE(stream->push(static_cast<uint8_t>(byte), {}, 1, 0));
    }
  }
};

TEST(Completion, GivesWhatArrivedAndNothingTwice) {
  const FakeRequest request;
  const auto completion = request.read();
  std::vector<AnswerEvent> events;
  EXPECT_FALSE(completion->take(events));
  request.push("ab");
  EXPECT_TRUE(completion->take(events));
  EXPECT_THAT(words(events), ElementsAre("'ab' 2"));
  EXPECT_FALSE(completion->take(events));
  std::thread engine([&] { request.stream->end({.reason = FinishReason::kLength, .status = {}}); });
  completion->wait(events);
  engine.join();
  EXPECT_THAT(words(events), ElementsAre("end length ''"));
}

TEST(Completion, AStopTextCancelsTheRestAndWaitsForTheEnd) {
  const FakeRequest request;
  const auto completion = request.read({.stops = {"b"}});
  std::vector<AnswerEvent> events;
  request.push("abc");
  EXPECT_TRUE(completion->take(events));
  EXPECT_THAT(words(events), ElementsAre("'a' 2"));
  EXPECT_THAT(request.canceller->reasons, ElementsAre(FinishReason::kStop));
  completion->cancel();  // only the first counts
  request.stream->end({.reason = FinishReason::kStop, .status = {}});
  EXPECT_TRUE(completion->take(events));
  EXPECT_THAT(words(events), ElementsAre("end stop 'b'"));
  EXPECT_THAT(request.canceller->reasons, ElementsAre(FinishReason::kStop));
}

TEST(Completion, LettingGoCancels) {
  const FakeRequest let_go, cancelled;
  { const auto completion = let_go.read(); }
  EXPECT_THAT(let_go.canceller->reasons, ElementsAre(FinishReason::kClient));
  cancelled.read()->cancel();
  EXPECT_THAT(cancelled.canceller->reasons, ElementsAre(FinishReason::kClient));
}

}  // namespace
}  // namespace skein
