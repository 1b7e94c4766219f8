// Drafts and constraints with a real model.
#include <cmath>
#include <gtest/gtest.h>

#include "engine/drafting_runner.h"
#include "engine/manager_fixture.h"

namespace skein {
namespace {

// Guesses of which every fourth is wrong, with a real model; penalties look at the drafts as well.
TEST_F(ManagerTest, DraftsSaveStepsAndChangeNoTokenOfARealModel) {
  GenerationRequest wanted = request(20, 40, 5);
  wanted.sampling.frequency_penalty = 0.5F;
  wanted.sampling.repetition_penalty = 1.1F;
  start();
  ModelLease plain = manager_->acquire("a").value();
  RequestHandle alone = plain->submit(wanted, {}).value();
  const std::vector<TokenId> expected = read(alone).tokens;
  ASSERT_EQ(expected.size(), 40U);
  change_ = [&](ServedModelParts& parts) {
    parts.engine.scheduler.step_drafts = 4;
    parts.make_runner = [real = parts.make_runner,
                         expected]() -> Result<std::unique_ptr<StepRunner>> {
      SKEIN_ASSIGN(auto runner, real());
      return std::unique_ptr<StepRunner>(
          std::make_unique<DraftingRunner>(std::move(runner), [expected](uint32_t position) {
            std::vector<TokenId> drafts;
            for (size_t i = position - 20 + 1; i < 40; ++i) {
              drafts.push_back(i % 4 == 0 ? 7 : expected[i]);
            }
            return drafts;
          }));
    };
  };
  ModelLease guessing = manager_->acquire("b").value();
  RequestHandle handle = guessing->submit(wanted, {}).value();
  EXPECT_EQ(read(handle).tokens, expected);
  EXPECT_LT(guessing->snapshot().scheduler.steps, 20U);
}

// Every token is divisible by four, and the sixth is the last.
class ByFour final : public TokenConstraint {
 public:
  void mask(std::span<const TokenId>, std::span<float> logits) const override {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (i % 4 != 0) logits[i] = -INFINITY;
    }
  }
  bool is_last(std::span<const TokenId> ahead, TokenId) const override {
    return accepted_ + ahead.size() == 5;
  }
  void accept(TokenId) override { ++accepted_; }

 private:
  size_t accepted_ = 0;
};

TEST_F(ManagerTest, AnswerKeepsToItsConstraintWithAndWithoutBatching) {
  start();
  ModelLease batched = manager_->acquire("a").value();
  change_ = [](ServedModelParts& parts) { parts.engine.scheduler.max_batch = 0; };
  ModelLease direct = manager_->acquire("b").value();
  std::vector<TokenId> first;
  for (ModelLease* lease : {&batched, &direct}) {
    GenerationRequest wanted = request(20, 40, 5);
    wanted.constraint = std::make_shared<ByFour>();
    RequestHandle handle = (*lease)->submit(std::move(wanted), {}).value();
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kStop) << answer.end.status.message();
    ASSERT_EQ(answer.tokens.size(), 6U);
    for (const TokenId token : answer.tokens) EXPECT_EQ(token % 4, 0);
    if (first.empty()) first = answer.tokens;
    EXPECT_EQ(answer.tokens, first);
  }
  for (ModelLease* lease : {&batched, &direct}) {
    GenerationRequest wanted = request(20, 40, 5);
    wanted.wants_hidden = true;
    RequestHandle handle = (*lease)->submit(std::move(wanted), {}).value();
    EXPECT_EQ(read(handle).end.status.code(), Code::kUnimplemented);
  }
}

}  // namespace
}  // namespace skein
