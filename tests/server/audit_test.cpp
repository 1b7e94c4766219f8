#include "server/observe/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

size_t count_of(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Audit, RefusalsAreSampledAndTheRestIsCounted) {
  ManualClock clock(kUsPerSecond);
  Audit audit(clock);
  CaptureStderr();
  for (int i = 0; i < 100; ++i) audit.refused(401, {"GET", "/v1/models", "10.0.0.1"}, "");
  EXPECT_EQ(count_of(GetCapturedStderr(), "audit: refused with 401"), 10U);
  clock.advance(60 * kUsPerSecond);
  CaptureStderr();
  audit.refused(403, {"POST", std::string(10'000, 'x'), "10.0.0.2"}, "k1");
  audit.refused(403, {"POST", "/x", "10.0.0.2"}, "k1");
  const std::string log = GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("audit: 90 more requests were refused with 401 or 403"));
  EXPECT_THAT(log, HasSubstr("from 10.0.0.2 by key k1\n"));
  EXPECT_EQ(count_of(log, "audit: refused with 403"), 2U);
  EXPECT_LT(log.size(), 1000U);
}

TEST(Audit, AdminCallsNameTheKey) {
  ManualClock clock;
  Audit audit(clock);
  Principal boss;
  boss.key_id = "0123";
  boss.name = "bo\nss";
  CaptureStderr();
  audit.admin_call({"POST", "/admin/drain", "::1"}, boss);
  EXPECT_THAT(GetCapturedStderr(),
              HasSubstr("audit: admin call POST /admin/drain from ::1 by key 0123 (bo\\x0ass)\n"));
}

}  // namespace
}  // namespace skein
