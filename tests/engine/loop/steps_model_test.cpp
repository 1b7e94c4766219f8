// Drafts, and steps that are started behind others, with a real model.
#include <gtest/gtest.h>

#include "engine/drafting_runner.h"
#include "engine/losable_device.h"
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
      return std::unique_ptr<StepRunner>(std::make_unique<DraftingRunner>(
          std::move(runner), [expected](RequestId, uint32_t position) {
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

// A device that draws tokens itself: the host looks at the logits of some rows, beside which
// nothing is started ahead, and no token changes.
TEST_F(ManagerTest, StepsBehindOthersChangeNoToken) {
  const auto device = std::make_shared<testing::LosableDevice>();
  serving_.model.backend_maker = testing::LosableBackend::maker(device);
  std::vector<GenerationRequest> all;
  for (uint32_t i = 0; i < 12; ++i) {
    GenerationRequest wanted = request(3 + 11 * i % 50, 30 - i, i);
    wanted.sampling.temperature = 0;
    if (i % 6 == 3) wanted.sampling.temperature = 0.8F, wanted.sampling.top_p = 0.9F;
    if (i % 6 == 4) wanted.sampling.presence_penalty = 0.5F;
    if (i % 6 == 5) wanted.sampling.logprobs = true;
    all.push_back(wanted);
  }
  start();
  const auto answers = [&](const char* id, size_t count) {
    ModelLease lease = manager_->acquire(id).value();
    std::vector<RequestHandle> handles;
    for (size_t i = 0; i < count; ++i) handles.push_back(lease->submit(all[i], {}).value());
    std::vector<std::vector<TokenId>> tokens;
    for (RequestHandle& handle : handles) tokens.push_back(read(handle).tokens);
    return tokens;
  };
  const auto expected = answers("a", all.size());
  EXPECT_EQ(device->awaited, 0U);
  device->queues_draws = true;
  EXPECT_EQ(answers("b", all.size()), expected);
  const uint64_t beside_others = device->awaited;
  // Those that are greedy or drawn by temperature, top_k, top_p and min_p alone: every token but
  // the first of each is taken from the step before.
  EXPECT_EQ(answers("c", 4), std::vector(expected.begin(), expected.begin() + 4));
  EXPECT_GE(device->awaited - beside_others, uint64_t{30 + 29 + 28 + 27 - 4});
}

TEST_F(ManagerTest, ADeviceReadsPromptsInLargerPieces) {
  const auto largest_step = [&](const char* id) {
    ModelLease lease = manager_->acquire(id).value();
    RequestHandle handle = lease->submit(request(300, 2, 1), {}).value();
    EXPECT_EQ(read(handle).tokens.size(), 2U);
    const DoublingBuckets tokens = lease->snapshot().step_tokens;
    size_t last = DoublingBuckets::kCount;
    while (last > 0 && tokens.counts[last - 1] == 0) --last;
    return size_t{1} << (last - 1);
  };
  start();
  const size_t on_host = largest_step("a");
  EXPECT_LE(on_host, 256U);
  serving_.model.backend_maker =
      testing::LosableBackend::maker(std::make_shared<testing::LosableDevice>());
  start();
  EXPECT_EQ(largest_step("a"), 512U);
}

}  // namespace
}  // namespace skein
