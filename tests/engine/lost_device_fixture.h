// What tests of lost devices share, whether the device is real or not: requests that have sent
// something and those that have not, and how each ends.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "engine/manager_fixture.h"

namespace skein {

class LostDeviceFixture : public ManagerTest {
 protected:
  void SetUp() override {
    ManagerTest::SetUp();
    serving_.engine.scheduler.max_batch = 1;  // so that one runs and others wait
  }

  static GenerationRequest silent() { return request(20, 12, 3); }
  static RequestHandle submit_silent(ModelLease& lease) {
    return lease->submit(silent(), {}).value();
  }
  // As no device was lost.
  static std::vector<TokenId> expected(ModelLease& lease) {
    RequestHandle handle = submit_silent(lease);
    return read(handle).tokens;
  }
  // Submits one that talks, which means that it has sent a token.
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
  // The reason, which matches.
  static std::string expect_error(RequestHandle& handle,
                                  const ::testing::Matcher<std::string>& reason) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kError);
    EXPECT_THAT(answer.end.status.message(), reason);
    return answer.end.status.message();
  }
};

}  // namespace skein
