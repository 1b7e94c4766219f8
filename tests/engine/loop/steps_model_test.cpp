// Drafts with a real model.
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

}  // namespace
}  // namespace skein
