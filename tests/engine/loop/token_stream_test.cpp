#include "engine/loop/token_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

namespace skein {
namespace {

using ::testing::ElementsAre;

TEST(TokenStream, ReaderGetsEverythingInOrderAndTheEndOnce) {
  TokenStream stream;
  StreamChunk chunk;
  EXPECT_FALSE(stream.take(chunk));
  EXPECT_TRUE(stream.push(1, {}, 0, -1));
  EXPECT_TRUE(stream.push(2, {}, 0, -1));
  ASSERT_TRUE(stream.take(chunk));
  EXPECT_THAT(chunk.tokens, ElementsAre(1, 2));
  EXPECT_FALSE(chunk.end);
  EXPECT_TRUE(stream.push(3, {}, 0, -1));
  GenerationEnd end;
  end.reason = FinishReason::kTimedOut;
  stream.end(end);
  end.reason = FinishReason::kLength;
  stream.end(end);
  EXPECT_TRUE(stream.push(4, {}, 0, -1));  // ignored
  ASSERT_TRUE(stream.take(chunk));
  EXPECT_THAT(chunk.tokens, ElementsAre(3));
  ASSERT_TRUE(chunk.end);
  EXPECT_EQ(chunk.end->reason, FinishReason::kTimedOut);
  EXPECT_FALSE(stream.take(chunk));
  EXPECT_TRUE(stream.ended());
}

TEST(TokenStream, AnnouncesOncePerSilence) {
  int announced = 0;
  TokenStream stream([&] { ++announced; });
  EXPECT_TRUE(stream.push(1, {}, 0, -1));
  EXPECT_TRUE(stream.push(2, {}, 0, -1));
  EXPECT_EQ(announced, 1);
  StreamChunk chunk;
  EXPECT_TRUE(stream.take(chunk));
  stream.end({});
  EXPECT_EQ(announced, 2);
}

TEST(TokenStream, SaysWhenTheReaderIsTooFarBehind) {
  TokenStream stream({}, 10 * sizeof(TokenId));
  for (TokenId i = 0; i < 10; ++i) EXPECT_TRUE(stream.push(i, {}, 0, -1));
  EXPECT_FALSE(stream.push(10, {}, 0, -1));
  StreamChunk chunk;
  EXPECT_TRUE(stream.take(chunk));
  EXPECT_EQ(chunk.tokens.size(), 10U);
  EXPECT_TRUE(stream.push(11, {}, 0, -1));
}

TEST(TokenStream, LogprobsCountAgainstTheBound) {
  TokenStream stream({}, 100);
  const std::array<TokenLogprob, 10> logprobs{};
  EXPECT_TRUE(stream.push(1, logprobs, 0, -1));  // one token always goes in
  EXPECT_FALSE(stream.push(2, logprobs, 0, -1));
  StreamChunk chunk;
  EXPECT_TRUE(stream.take(chunk));
  EXPECT_EQ(chunk.logprobs.size(), 10U);
}

TEST(TokenStream, SaysWhenNobodyHasReadForTooLong) {
  TokenStream stream;
  EXPECT_TRUE(stream.push(1, {}, 1000, 0));
  EXPECT_TRUE(stream.push(2, {}, 2000, 1000));
  EXPECT_FALSE(stream.push(3, {}, 3000, 1001));
  StreamChunk chunk;
  EXPECT_TRUE(stream.take(chunk));
  EXPECT_TRUE(stream.push(4, {}, 3000, 1001));
}

TEST(TokenStream, WaitsForAnotherThread) {
  TokenStream stream;
  std::thread writer([&] {
    for (TokenId i = 0; i < 1000; ++i) ASSERT_TRUE(stream.push(i, {}, 0, -1));
    stream.end({});
  });
  std::vector<TokenId> all;
  StreamChunk chunk;
  do {
    ASSERT_TRUE(stream.wait(chunk, 20 * kUsPerSecond));
    all.insert(all.end(), chunk.tokens.begin(), chunk.tokens.end());
  } while (!chunk.end);
  writer.join();
  ASSERT_EQ(all.size(), 1000U);
  for (TokenId i = 0; i < 1000; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
}

// Who has many streams adds to all of them before their readers hear of it.
TEST(TokenStream, AReaderHearsOfWhatWasAddedOnceItIsTold) {
  int calls = 0;
  TokenStream stream([&] { ++calls; });
  StreamChunk chunk;
  EXPECT_TRUE(stream.add(1, {}, 0, -1));
  EXPECT_TRUE(stream.add(2, {}, 0, -1));
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(stream.take(chunk));
  EXPECT_TRUE(stream.tell());
  EXPECT_TRUE(stream.tell());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(stream.add(3, {}, 0, -1));
  ASSERT_TRUE(stream.take(chunk));  // of news that was there before
  EXPECT_EQ(chunk.tokens, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_TRUE(stream.tell());
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(stream.take(chunk));
  EXPECT_TRUE(stream.add(4, {}, 0, -1));
  stream.end({});
  EXPECT_EQ(calls, 2);
  ASSERT_TRUE(stream.take(chunk));
  EXPECT_EQ(chunk.tokens, (std::vector<TokenId>{4}));
  EXPECT_TRUE(chunk.end.has_value());
}

}  // namespace
}  // namespace skein
