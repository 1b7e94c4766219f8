// A real device is lost under two models, as manager/lost_device_test.cpp does with one that is not
// real. What a fault leaves of the process's other work on the device is nothing, so each of these
// is best run in a process of its own (tools/gpu_check.sh).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iostream>
#include <thread>

#include "engine/cuda/lose_device.h"
#include "engine/manager_fixture.h"

namespace skein {
namespace {

using ::testing::AnyOf;
using testing::Fault;
using ::testing::HasSubstr;

class CudaLost : public ManagerTest {
 protected:
  void SetUp() override {
    ManagerTest::SetUp();
    const auto cuda = make_backend({.device = "cuda", .precision = Precision::kF32}, pool_);
    if (!cuda.ok()) GTEST_SKIP() << cuda.message();
    serving_.model.device = "cuda";
    if (!make_backend({.device = "cuda"}, pool_).ok()) serving_.model.precision = Precision::kF32;
    serving_.engine.scheduler.max_batch = 1;  // so that one runs and others wait
  }

  static RequestHandle submit(ModelLease& lease) {
    return lease->submit(request(20, 12, 3), {}).value();
  }
  static RequestHandle talking(ModelLease& lease) {
    RequestHandle handle = lease->submit(request(5, 900), {}).value();
    StreamChunk chunk;
    EXPECT_TRUE(handle.stream().wait(chunk, 60 * kUsPerSecond));
    return handle;
  }
  static void expect_answer(RequestHandle& handle, const std::vector<TokenId>& tokens) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kLength) << answer.end.status.message();
    EXPECT_EQ(answer.tokens, tokens);
  }
  static void expect_lost(RequestHandle& handle) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kError);
    EXPECT_THAT(answer.end.status.message(), AnyOf(HasSubstr("CUDA: "), HasSubstr("cuda:")));
    std::cout << "ended with: " << answer.end.status.message() << "\n";
  }

  void lose_and_recover(Fault fault) {
    start();
    ModelLease a = manager_->acquire("a").value();
    ModelLease b = manager_->acquire("b").value();
    RequestHandle first = submit(a);
    const std::vector<TokenId> tokens = read(first).tokens;
    ASSERT_EQ(tokens.size(), 12U);
    const auto device = a->device();
    const ComputeDevice::Memory before = device->memory();
    for (uint64_t times = 1; times <= 2; ++times) {
      RequestHandle talks = talking(a), elsewhere = talking(b);
      RequestHandle waits = submit(a), waits_too = submit(b);
      std::cout << "provoked: " << testing::lose_device(fault) << "\n";
      expect_answer(waits, tokens);
      expect_answer(waits_too, tokens);
      expect_lost(talks);
      expect_lost(elsewhere);
      EXPECT_EQ(device->times_lost(), times);
      EXPECT_FALSE(device->is_lost());
      for (ModelLease* lease : {&a, &b}) {
        RequestHandle later = submit(*lease);
        expect_answer(later, tokens);
      }
    }
    const ComputeDevice::Memory after = device->memory();
    EXPECT_EQ(after.total_bytes, before.total_bytes);
    EXPECT_GT(after.free_bytes + (uint64_t{256} << 20), before.free_bytes) << "memory leaked";
  }
};

TEST_F(CudaLost, ByAWriteToNowhereComesBack) {
  lose_and_recover(Fault::kWriteNowhere);
}

TEST_F(CudaLost, ByATrapComesBack) {
  lose_and_recover(Fault::kTrap);
}

TEST_F(CudaLost, MoreMemoryThanThereIsIsRefusedWithBothNumbersAndNothingIsLost) {
  start();
  ModelLease a = manager_->acquire("a").value();
  const auto backend = make_backend({.device = "cuda", .precision = Precision::kF32}, pool_);
  ASSERT_TRUE(backend.ok()) << backend.message();
  const auto refused = (*backend)->allocate(size_t{1} << 50);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("1125899906842624"));
  EXPECT_THAT(refused.message(), HasSubstr("are left"));
  RequestHandle handle = submit(a);
  EXPECT_EQ(read(handle).tokens.size(), 12U);
  EXPECT_EQ(a->device()->times_lost(), 0U);
}

}  // namespace
}  // namespace skein
