#include "server/answer/answer_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/test_folder.h"
#include "server/store/store.h"

namespace skein {
namespace {

GenerationEnd ended(uint32_t cached, TimeUs queue_us, TimeUs prefill_us, TimeUs decode_us) {
  GenerationEnd end;
  end.reason = FinishReason::kStop;
  end.cached_tokens = cached;
  end.preemptions = 1;
  end.queue_us = queue_us;
  end.prefill_us = prefill_us;
  end.decode_us = decode_us;
  return end;
}

class AnswerAccountTest : public ::testing::Test {
 protected:
  AnswerAccountTest() {
    open_store();
    key_->key_id = "k";
    key_->tokens_per_minute = 100;
  }
  void open_store() {
    StoreOptions options;
    options.state_dir = folder_ / "state";
    store_ = Store::open(options).value();
  }
  AnswerAccount account() {
    FinishedRequest about;
    about.id = "cmpl-1";
    return AnswerAccount({clock_, limiter_, metrics_, store_->usage(), write_, recent_}, key_,
                         about);
  }
  // What the key could still take.
  uint64_t left() {
    for (uint64_t tokens = 100; tokens > 0; --tokens) {
      const Admission admission = limiter_.admit(*key_, tokens);
      if (!admission.admitted()) continue;
      limiter_.settle(*key_, admission.reserved, 0);
      return tokens;
    }
    return 0;
  }

  testing::TestFolder folder_;
  ManualClock clock_{1'000'000};
  RateLimiter limiter_{clock_};
  Metrics metrics_{clock_};
  std::unique_ptr<Store> store_;
  RecentRequests recent_;
  std::shared_ptr<Principal> key_ = std::make_shared<Principal>();
  std::vector<FinishedRequest> log_;
  std::function<void(const FinishedRequest&)> write_ = [this](const FinishedRequest& request) {
    log_.push_back(request);
  };
};

TEST_F(AnswerAccountTest, AddsUpChoicesAndCountsAPromptOnce) {
  AnswerAccount a = account();
  EXPECT_FALSE(a.reserve(10, 2, 20));
  for (int i = 0; i < 2; ++i) a.begin_choice();
  clock_.advance(2000);
  a.add_tokens(0, 3);
  a.add_tokens(1, 0);
  a.add_tokens(1, 4);
  a.end_choice(0, ended(8, 1000, 2000, 3000), true);
  a.end_choice(1, ended(10, 500, 4000, 1000), false);
  EXPECT_EQ(a.usage().prompt_tokens, 10U);
  EXPECT_EQ(a.usage().completion_tokens, 7U);
  EXPECT_EQ(a.usage().cached_tokens, 8U);
  a.settle(FinishReason::kStop);
  a.log(200);
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_EQ(log_[0].choices, 2U);
  EXPECT_EQ(log_[0].prompt_tokens, 10U);
  EXPECT_EQ(log_[0].output_tokens, 7U);
  EXPECT_EQ(log_[0].preemptions, 2U);
  EXPECT_EQ(log_[0].queue_us, 1000) << "the longest";
  EXPECT_EQ(log_[0].prefill_us, 4000);
  EXPECT_EQ(log_[0].first_token_us, 2000);
  EXPECT_EQ(log_[0].total_us, 2000);
}

TEST_F(AnswerAccountTest, TimingsAreOfTheFirstChoice) {
  AnswerAccount a = account();
  EXPECT_FALSE(a.reserve(10, 2, 20));
  clock_.advance(5000);
  a.add_tokens(0, 2);
  clock_.advance(1000);
  EXPECT_EQ(a.timings().prefill_ms, 5) << "as far as it is known";
  EXPECT_EQ(a.timings().decode_ms, 1);
  a.add_tokens(1, 100);
  a.end_choice(1, ended(0, 9, 9, 9), false);
  a.end_choice(0, ended(0, 1000, 2000, 4000), true);
  const api::Timings timings = a.timings();
  EXPECT_EQ(timings.queue_ms, 1);
  EXPECT_EQ(timings.prefill_ms, 2);
  EXPECT_EQ(timings.decode_ms, 4);
  EXPECT_EQ(timings.prompt_per_second, 5000);
  EXPECT_EQ(timings.predicted_per_second, 500);
}

TEST_F(AnswerAccountTest, WhatWasReservedAndNotUsedGoesBackOnce) {
  AnswerAccount a = account();
  EXPECT_FALSE(a.reserve(10, 2, 20));
  EXPECT_EQ(left(), 50U);
  EXPECT_FALSE(a.answer_tokens()) << "the request said how many";
  a.begin_choice();
  a.add_tokens(0, 5);
  a.settle(FinishReason::kStop);
  EXPECT_EQ(left(), 85U);
  a.settle(FinishReason::kError);
  EXPECT_EQ(left(), 85U);
}

TEST_F(AnswerAccountTest, WithoutMaxTokensTheChoicesShareWhatIsLeft) {
  AnswerAccount a = account();
  EXPECT_FALSE(a.reserve(10, 3, std::nullopt));
  EXPECT_EQ(a.answer_tokens(), 30U);
  EXPECT_EQ(left(), 0U);
  a.settle(FinishReason::kError);  // nothing was submitted
  EXPECT_EQ(left(), 100U);
  key_->tokens_per_minute = 0;
  AnswerAccount unlimited = account();
  EXPECT_FALSE(unlimited.reserve(10, 3, std::nullopt));
  EXPECT_FALSE(unlimited.answer_tokens());
}

TEST_F(AnswerAccountTest, WhatTheMinuteDoesNotHoldIsRefused) {
  AnswerAccount never = account();
  EXPECT_FALSE(never.reserve(10, 1, 91)->retry_after_s) << "no minute holds it";
  AnswerAccount first = account(), second = account();
  EXPECT_FALSE(first.reserve(10, 1, 80));
  const auto error = second.reserve(10, 1, 30);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 429);
  EXPECT_EQ(error->retry_after_s, 18U);
  second.settle(FinishReason::kError);
  EXPECT_EQ(left(), 10U) << "it took nothing and gives nothing back";
}

// Its text was read, and who could have that for nothing would have it done without end.
TEST_F(AnswerAccountTest, WhatIsRefusedForItsTokensWasARequestAllTheSame) {
  key_->requests_per_minute = 2;
  for (int i = 0; i < 2; ++i) {
    AnswerAccount a = account();
    EXPECT_FALSE(a.enter());
    EXPECT_EQ(a.reserve(90, 1, 30)->status, 429);
    a.settle(FinishReason::kError);
  }
  AnswerAccount third = account();
  EXPECT_EQ(third.enter()->status, 429);
  key_->requests_per_minute = 0;
  EXPECT_EQ(left(), 100U);
}

TEST_F(AnswerAccountTest, TheKeysUsageCountsWhatWasSubmitted) {
  for (const uint32_t choices : {0U, 1U}) {
    AnswerAccount a = account();
    EXPECT_FALSE(a.reserve(10, 1, 20));
    for (uint32_t i = 0; i < choices; ++i) a.begin_choice();
    a.settle(FinishReason::kStop);
  }
  store_.reset();  // which writes it
  open_store();
  const auto usage = await<std::vector<OwnerUsage>>(
      [&](Done<std::vector<OwnerUsage>> done) { store_->keys().usage(std::move(done)); });
  ASSERT_TRUE(usage.ok()) << usage.message();
  ASSERT_EQ(usage->size(), 1U);
  EXPECT_EQ(usage->front().counts.requests, 1U);
  EXPECT_EQ(usage->front().counts.prompt_tokens, 10U);
}

}  // namespace
}  // namespace skein
