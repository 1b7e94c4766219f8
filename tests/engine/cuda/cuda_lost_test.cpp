// A real device is lost under two models, as manager/lost_device_test.cpp does with one that is not
// real. What a fault leaves of the process's other work on the device is nothing, so each of these
// is best run in a process of its own (tools/gpu_check.sh).
#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iostream>

#include "engine/cuda/lose_device.h"
#include "engine/lost_device_fixture.h"

namespace skein {
namespace {

using ::testing::AnyOf;
using testing::Fault;
using ::testing::HasSubstr;

class CudaLost : public LostDeviceFixture {
 protected:
  void SetUp() override {
    LostDeviceFixture::SetUp();
    const auto cuda = make_backend({.device = "cuda", .precision = Precision::kF32}, pool_);
    if (!cuda.ok()) GTEST_SKIP() << cuda.message();
    serving_.model.device = "cuda";
    if (!make_backend({.device = "cuda"}, pool_).ok()) serving_.model.precision = Precision::kF32;
  }

  static void expect_lost(RequestHandle& handle) {
    std::cout << "ended with: "
              << expect_error(handle, AnyOf(HasSubstr("CUDA: "), HasSubstr("cuda:"))) << "\n";
  }
  static void expect_end_without_device(RequestHandle& handle) {
    expect_error(handle, HasSubstr("does not come back to this process"));
  }

  // Whether the driver gives the device to the same process again is its own business: either all
  // goes on as if nothing had been, or everybody is told.
  void lose(Fault fault) {
    std::promise<std::string> told;
    start({.memory_bytes = uint64_t{4} << 30,
           .on_device_gone = [&](const Status& why) { told.set_value(why.message()); }});
    ModelLease a = manager_->acquire("a").value();
    ModelLease b = manager_->acquire("b").value();
    const std::vector<TokenId> tokens = expected(a);
    ASSERT_EQ(tokens.size(), 12U);
    const auto device = a->device();
    const ComputeDevice::Memory before = device->memory();
    EXPECT_GT(before.total_bytes, before.free_bytes);
    RequestHandle talks = talking(a), elsewhere = talking(b);
    RequestHandle waits = submit_silent(a), waits_too = submit_silent(b);
    std::cout << "provoked: " << testing::lose_device(fault) << "\n";
    expect_lost(talks);
    expect_lost(elsewhere);
    std::future<std::string> gone = told.get_future();
    while (device->times_lost() == 0 ||
           (device->is_lost() &&
            gone.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready)) {
    }
    EXPECT_EQ(device->times_lost(), 1U);
    EXPECT_EQ(device->memory().total_bytes, before.total_bytes);
    if (!device->is_lost()) {
      std::cout << "it came back\n";
      for (RequestHandle* handle : {&waits, &waits_too}) expect_answer(*handle, tokens);
      RequestHandle later = submit_silent(a);
      return expect_answer(later, tokens);
    }
    std::cout << "it stayed away: " << gone.get() << "\n";
    expect_end_without_device(waits);
    expect_end_without_device(waits_too);
    EXPECT_FALSE(a->submit(silent(), {}).ok());
    EXPECT_FALSE(manager_->acquire("a").ok());
  }
};

TEST_F(CudaLost, ByAWriteToNowhere) {
  lose(Fault::kWriteNowhere);
}

TEST_F(CudaLost, ByATrap) {
  lose(Fault::kTrap);
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
  RequestHandle handle = submit_silent(a);
  EXPECT_EQ(read(handle).tokens.size(), 12U);
  EXPECT_EQ(a->device()->times_lost(), 0U);
}

}  // namespace
}  // namespace skein
