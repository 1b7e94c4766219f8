// Steps that are started and finished: two under way at a time, late, lost and failed ones, and
// rows that give no token or several.
#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "engine/engine_fixture.h"
#include "engine/forms/form_cache.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

class StepsTest : public EngineTest {
 protected:
  StepsTest() { model_->depth = 2; }

  std::vector<RequestHandle> submit(int count, uint32_t prompt, uint32_t max_tokens) {
    std::vector<RequestHandle> handles;
    for (int i = 0; i < count; ++i) {
      handles.push_back(engine_->submit(request(prompt, max_tokens), {}).value());
    }
    return handles;
  }
  // The model was fed each token of prompt and answer, at its place, but for the last one.
  void expect_fed(uint64_t id, uint32_t prompt, const std::vector<TokenId>& answer) {
    std::vector<TokenId> tokens = request(prompt, 1).prompt;
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    const std::lock_guard lock(model_->mutex);
    const std::map<uint32_t, TokenId>& fed = model_->fed[id];
    for (uint32_t i = prompt; i + 1 < tokens.size(); ++i) {
      ASSERT_TRUE(fed.contains(i)) << i;
      EXPECT_EQ(fed.at(i), tokens[i]) << "request " << id << ", position " << i;
    }
  }
};

TEST_F(StepsTest, TwoUnderWayGiveTheSameTokens) {
  start();
  hang(true);
  std::vector<RequestHandle> handles = submit(8, 5, 20);
  hang(false);
  for (RequestHandle& handle : handles) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.tokens, expected(handle.id().value, 5, 20));
    EXPECT_EQ(answer.end.reason, FinishReason::kLength);
    expect_fed(handle.id().value, 5, answer.tokens);
  }
  EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
  EXPECT_GT(model_->ahead, 50U) << "tokens were taken from the step before";
  EXPECT_EQ(engine_->snapshot().scheduler.held_blocks, 0U);
}

TEST_F(StepsTest, OneIsDeliveredWhileTheNextIsUnderWay) {
  start();
  hang(true);
  size_t started = 0;  // when the first token was delivered
  auto handle = engine_->submit(request(5, 10), [&] {
    const std::lock_guard lock(model_->mutex);
    if (started == 0) started = model_->steps.size();
    model_->changed.notify_all();
  });
  allow(1);
  {
    std::unique_lock lock(model_->mutex);
    ASSERT_TRUE(model_->changed.wait_for(lock, 20s, [&] { return started > 0; }));
    EXPECT_EQ(started, 2U);
  }
  hang(false);
  EXPECT_EQ(read(*handle).end.generated_tokens, 10U);
}

TEST_F(StepsTest, ALateStepIsGivenUpAndTheEngineComesBack) {
  options_.step_timeout_us = 100 * kUsPerMs;
  start();
  hang(true);
  std::vector<RequestHandle> handles = submit(3, 5, 20);
  for (RequestHandle& handle : handles) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kError);
    EXPECT_EQ(answer.end.status.code(), Code::kDeadlineExceeded);
  }
  EXPECT_EQ(engine_->snapshot().state, EngineState::kHung);
  expect_recovery();
  EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
  EXPECT_EQ(engine_->snapshot().scheduler.held_blocks, 0U);
}

TEST_F(StepsTest, AStepThatFailsIsRunAgainAndSoIsTheOneAfterIt) {
  model_->throws = {2};
  start();
  hang(true);
  std::vector<RequestHandle> handles = submit(5, 4, 10);
  hang(false);
  const std::vector<Answer> answers = expect_one_failure(handles, 2, "planted fault", 4, 10);
  for (size_t i = 0; i < answers.size(); ++i) {
    const uint64_t id = handles[i].id().value;
    if (id != 2) expect_fed(id, 4, answers[i].tokens);
  }
  EXPECT_GE(engine_->snapshot().reruns, 1U);
}

TEST_F(StepsTest, AFaultInMidAnswerHurtsNobodyElse) {
  start();
  allow(0);
  std::vector<RequestHandle> handles = submit(4, 4, 30);
  allow(5);
  wait_for_step(7);  // the sixth waits, the seventh is under way behind it
  {
    const std::lock_guard lock(model_->mutex);
    model_->throws = {handles[1].id().value};
  }
  hang(false);
  for (RequestHandle& handle : handles) {
    const Answer answer = read(handle);
    const bool hurt = handle.id() == handles[1].id();
    EXPECT_EQ(answer.end.reason, hurt ? FinishReason::kError : FinishReason::kLength);
    if (hurt) continue;
    EXPECT_EQ(answer.tokens, expected(handle.id().value, 4, 30));
    expect_fed(handle.id().value, 4, answer.tokens);
  }
}

TEST_F(StepsTest, ALostRunnerTakesAlongAllThatIsUnderWay) {
  start();
  allow(0);
  std::vector<RequestHandle> handles = submit(3, 4, 100);
  allow(3);
  wait_for_step(5);
  {
    const std::lock_guard lock(model_->mutex);
    model_->lost = true;
  }
  hang(false);
  for (RequestHandle& handle : handles) EXPECT_EQ(read(handle).end.reason, FinishReason::kError);
  EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
  EXPECT_EQ(engine_->snapshot().state, EngineState::kFailed);
  EXPECT_EQ(engine_->snapshot().live, 0U);
}

TEST_F(StepsTest, WhoHangsUpMayStillBeUnderWay) {
  start();
  allow(0);
  auto keeps = engine_->submit(request(4, 60), {});
  auto leaves = engine_->submit(request(4, 900), {});
  allow(5);
  wait_for_step(7);
  leaves = RequestHandle();
  hang(false);
  EXPECT_EQ(read(*keeps).tokens, expected(keeps->id().value, 4, 60));
  EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
  EXPECT_EQ(engine_->snapshot().finished[static_cast<size_t>(FinishReason::kClient)], 1U);
  EXPECT_EQ(engine_->snapshot().scheduler.held_blocks, 0U);
}

TEST_F(StepsTest, StopFinishesWhatIsUnderWay) {
  start();
  allow(0);
  std::vector<RequestHandle> handles = submit(2, 4, 900);
  allow(3);
  wait_for_step(5);
  auto stopped = std::async(std::launch::async, [&] { return engine_->stop(20 * kUsPerSecond); });
  while (stopped.wait_for(1ms) != std::future_status::ready) allow(1);
  EXPECT_TRUE(stopped.get());
  for (RequestHandle& handle : handles) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kDrained);
    EXPECT_EQ(answer.tokens,
              expected(handle.id().value, 4, static_cast<uint32_t>(answer.tokens.size())));
  }
}

// Guesses of which every third is wrong.
TEST_F(StepsTest, DraftsSaveStepsAndChangeNoToken) {
  for (const uint32_t depth : {1U, 2U}) {
    model_ = std::make_shared<FakeModel>();
    model_->depth = depth;
    model_->drafts = [](uint64_t id, uint32_t position) {
      std::vector<TokenId> drafts;
      for (uint32_t n = 1; n <= 5; ++n) {
        const TokenId token = FakeModel::token(id, position + n);
        drafts.push_back((position + n) % 3 == 0 ? (token + 1) % 1000 : token);
      }
      return drafts;
    };
    options_.scheduler.step_drafts = 16;
    options_.speculation = Speculation::kNgram;  // what the runner guesses goes before
    start();
    hang(true);
    std::vector<RequestHandle> handles = submit(4, 5, 40);
    hang(false);
    for (RequestHandle& handle : handles) {
      const Answer answer = read(handle);
      EXPECT_EQ(answer.tokens, expected(handle.id().value, 5, 40));
      EXPECT_EQ(answer.end.generated_tokens, 40U);
      expect_fed(handle.id().value, 5, answer.tokens);
    }
    EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
    EXPECT_EQ(model_->ahead, 0U) << "drafts wait for their token";
    EXPECT_LT(model_->steps.size(), 35U);
    engine_.reset();
  }
}

TEST_F(StepsTest, ALastTokenIsDeliveredAndEnds) {
  start();
  allow(0);
  auto handle = engine_->submit(request(4, 50), {});
  allow(3);
  wait_for_step(5);
  {
    const std::lock_guard lock(model_->mutex);
    model_->lasts = {handle->id().value};
  }
  hang(false);
  const Answer answer = read(*handle);
  EXPECT_EQ(answer.end.reason, FinishReason::kStop);
  EXPECT_EQ(answer.tokens, expected(handle->id().value, 4, 4));
}

TEST_F(StepsTest, ARequestForHiddenStateHasNoTokens) {
  start();
  GenerationRequest wanted = request(100, 1);
  wanted.max_tokens = {};
  wanted.pooling = Pooling::kLast;
  auto handle = engine_->submit(std::move(wanted), {});
  ASSERT_TRUE(handle.ok()) << handle.message();
  const Answer answer = read(*handle);
  EXPECT_THAT(answer.tokens, ::testing::IsEmpty());
  EXPECT_EQ(answer.end.reason, FinishReason::kStop);
  EXPECT_THAT(answer.end.hidden, ::testing::ElementsAre(1, 100 - 64)) << "of its last chunk";
}

// Rows have their position in the second column, so that its mean tells which ones counted.
TEST_F(StepsTest, AMeanHasEveryRowOnceAfterAPreemptionToo) {
  options_.scheduler.pool_blocks = 8;
  start();
  hang(true);
  GenerationRequest wanted = request(200, 1);
  wanted.pooling = Pooling::kMean;
  wanted.priority = Priority::LOW;
  auto mean = engine_->submit(wanted, {});
  wait_for_step(1);
  GenerationRequest urgent = request(180, 1);
  urgent.priority = Priority::HIGH;
  auto other = engine_->submit(std::move(urgent), {});
  hang(false);
  EXPECT_EQ(read(*other).end.reason, FinishReason::kLength);
  const Answer answer = read(*mean);
  EXPECT_EQ(answer.end.preemptions, 1U);
  EXPECT_THAT(answer.end.hidden, ::testing::ElementsAre(1, 99.5F));
  // Nothing of it was left in the prefix cache, nor is anything taken from there.
  auto again = engine_->submit(std::move(wanted), {});
  const Answer warm = read(*again);
  EXPECT_EQ(warm.end.cached_tokens, 0U);
  EXPECT_THAT(warm.end.hidden, ::testing::ElementsAre(3, 99.5F));
}

// The real sampling is the runner's; here it is enough that nothing is planned ahead.
TEST_F(StepsTest, ARequestWithAFormIsNotPlannedAhead) {
  start();
  std::vector<std::string> tokens(kFakeVocab);
  for (size_t b = 0; b < 256; ++b) tokens[b] = std::string(1, static_cast<char>(b));
  auto trie = grammar::TokenTrie::make(std::move(tokens));
  ASSERT_TRUE(trie.ok()) << trie.message();
  auto rules = rules_of({.kind = FormSpec::Kind::kRegex, .text = "[a-z]*"});
  auto grammar = grammar::compile(std::move(rules->rules), *trie);
  GenerationRequest wanted = request(5, 20);
  wanted.form = std::make_shared<Form>(Form{.grammar = *grammar});
  auto handle = engine_->submit(std::move(wanted), {});
  EXPECT_EQ(read(*handle).tokens, expected(handle->id().value, 5, 20));
  EXPECT_TRUE(engine_->stop(20 * kUsPerSecond));
  EXPECT_EQ(model_->ahead, 0U);
}

}  // namespace
}  // namespace skein
