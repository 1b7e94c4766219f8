// A device is lost under real models: what has sent nothing runs on with its very tokens, the rest
// ends with the reason, and every model on the device is loaded anew.
#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "engine/deep_runner.h"
#include "engine/losable_device.h"
#include "engine/lost_device_fixture.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::LosableBackend;
using testing::LosableDevice;

class LostDeviceTest : public LostDeviceFixture {
 protected:
  void SetUp() override {
    LostDeviceFixture::SetUp();
    serving_.model.backend_maker = LosableBackend::maker(device_);
  }
  void set_depth(uint32_t depth) {
    change_ = [depth, device = device_](ServedModelParts& parts) {
      parts.make_runner = [depth, device,
                           real = parts.make_runner]() -> Result<std::unique_ptr<StepRunner>> {
        SKEIN_ASSIGN(auto runner, real());
        return std::unique_ptr<StepRunner>(
            std::make_unique<DeepRunner>(std::move(runner), depth, LosableDevice::hold(device)));
      };
    };
  }

  static void expect_lost(RequestHandle& handle) {
    expect_error(handle, HasSubstr("fell off the bus"));
  }
  static void wait_for_rebuild(ModelLease& lease, uint32_t rebuilds = 1) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (lease->rebuilds() < rebuilds && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(lease->rebuilds(), rebuilds);
  }

  const std::shared_ptr<LosableDevice> device_ = std::make_shared<LosableDevice>();
};

// By how many steps are under way at a time.
class LostDevice : public LostDeviceTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(LostDevice, SilentRequestsRunOnAndTheModelsAreLoadedAnew) {
  set_depth(GetParam());
  start();
  ModelLease a = manager_->acquire("a").value();
  ModelLease b = manager_->acquire("b").value();
  ModelLease idle = manager_->acquire("c").value();
  const std::vector<TokenId> tokens = expected(a);
  uint32_t losses = 0;
  for (const int passes : {0, 1, 4}) {
    SCOPED_TRACE(passes);
    RequestHandle talks = talking(a);
    RequestHandle waits = submit_silent(a);
    RequestHandle waits_too = submit_silent(a);
    RequestHandle elsewhere = talking(b);
    device_->lose_after(passes);
    expect_answer(waits, tokens);
    expect_answer(waits_too, tokens);
    EXPECT_EQ(read(talks).end.reason, FinishReason::kError);
    EXPECT_EQ(read(elsewhere).end.reason, FinishReason::kError);
    ++losses;
    EXPECT_EQ(device_->times_lost(), losses);
    for (ModelLease* lease : {&a, &b, &idle}) wait_for_rebuild(*lease, losses);
    EXPECT_EQ(device_->backends, 3U) << "one for each model, and not those that were lost";
    for (ModelLease* lease : {&a, &b, &idle}) {
      RequestHandle later = submit_silent(*lease);
      expect_answer(later, tokens);
    }
  }
  EXPECT_EQ(loads_, 3) << "they never left the manager";
  for (const ModelStatus& model : manager_->models()) EXPECT_EQ(model.state, ModelState::kReady);
}

TEST_P(LostDevice, FirstPassOfARequestMayLoseIt) {
  set_depth(GetParam());
  start();
  ModelLease a = manager_->acquire("a").value();
  const std::vector<TokenId> tokens = expected(a);
  device_->lose_after(0);
  RequestHandle runs = submit_silent(a);
  expect_answer(runs, tokens);
  EXPECT_EQ(device_->times_lost(), 1U);
}

TEST_P(LostDevice, TheRestEndsWithTheReason) {
  set_depth(GetParam());
  start();
  ModelLease a = manager_->acquire("a").value();
  RequestHandle talks = talking(a);
  device_->lose_after(2);
  expect_lost(talks);
}

TEST_P(LostDevice, ThatStaysAwayEndsWhatWaitedAndIsAskedForAgain) {
  set_depth(GetParam());
  std::promise<std::string> gone;
  start({.memory_bytes = uint64_t{4} << 30,
         .on_device_gone = [&](const Status& why) { gone.set_value(why.message()); }});
  ModelLease lease = manager_->acquire("a").value();
  const std::vector<TokenId> tokens = expected(lease);
  device_->comes_back = false;
  RequestHandle talks = talking(lease);
  RequestHandle waits = submit_silent(lease);
  device_->lose_after(1);
  const Answer answer = read(waits);
  EXPECT_EQ(answer.end.reason, FinishReason::kError);
  EXPECT_THAT(answer.end.status.message(), HasSubstr("stays away"));
  EXPECT_EQ(device_->users(), 0U);
  const auto refused = lease->submit(silent(), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.message(), HasSubstr("stays away"));
  EXPECT_THAT(gone.get_future().get(), HasSubstr("stays away"));
  const auto not_there = manager_->acquire("a");
  ASSERT_FALSE(not_there.ok());
  EXPECT_THAT(not_there.message(), HasSubstr("stays away"));
  device_->comes_back = true;
  ModelLease again = manager_->acquire("a").value();
  RequestHandle later = submit_silent(again);
  expect_answer(later, tokens);
}

TEST_P(LostDevice, WhoGivesUpMeanwhileIsNotServed) {
  set_depth(GetParam());
  start();
  ModelLease lease = manager_->acquire("a").value();
  RequestHandle talks = talking(lease);
  RequestHandle waits = submit_silent(lease);
  waits.cancel(FinishReason::kClient);
  device_->lose_after(0);
  EXPECT_EQ(read(waits).end.reason, FinishReason::kClient);
  EXPECT_EQ(read(talks).end.reason, FinishReason::kError);
}

INSTANTIATE_TEST_SUITE_P(Depth, LostDevice, ::testing::Values(1U, 2U));

TEST_F(LostDeviceTest, WithoutBatchingTheOneThatRunsGoesOnToo) {
  serving_.enable_batching = false;
  start();
  ModelLease lease = manager_->acquire("a").value();
  const std::vector<TokenId> tokens = expected(lease);
  device_->lose_after(0);
  RequestHandle runs = submit_silent(lease);
  RequestHandle waits = submit_silent(lease);
  expect_answer(runs, tokens);
  expect_answer(waits, tokens);
  RequestHandle talks = talking(lease);
  device_->lose_after(3);
  expect_lost(talks);
  RequestHandle later = submit_silent(lease);
  expect_answer(later, tokens);
  EXPECT_EQ(device_->times_lost(), 2U);
  EXPECT_EQ(device_->backends, 1U);
}

// The model whose load lost it fails alone; the others hear of it without a request.
TEST_F(LostDeviceTest, ByALoadIsFoundAgainByTheOthers) {
  start();
  ModelLease sound = manager_->acquire("b").value();
  const std::vector<TokenId> tokens = expected(sound);
  change_ = [this](ServedModelParts&) {
    device_->lose();
    device_->check();
  };
  const auto failed = manager_->acquire("a");
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.message(), HasSubstr("fell off the bus"));
  wait_for_rebuild(sound);
  RequestHandle later = submit_silent(sound);
  expect_answer(later, tokens);
}

}  // namespace
}  // namespace skein
