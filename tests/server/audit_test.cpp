#include "server/observe/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"

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

// Whoever turns the log down has no less to answer for.
TEST(Audit, LinesAreWrittenWhateverTheLevel) {
  ManualClock clock;
  for (const LogLevel level : {LogLevel::kWarning, LogLevel::kError, LogLevel::kOff}) {
    Audit audit(clock);
    set_log_level(level);
    CaptureStderr();
    audit.admin_call({"POST", "/admin/drain", "::1"}, {});
    audit.refused(403, {"GET", "/admin/stats", "::1"}, "k1");
    const std::string log = GetCapturedStderr();
    set_log_level(LogLevel::kInfo);
    EXPECT_EQ(count_of(log, "audit: admin call POST /admin/drain"), 1U) << log;
    EXPECT_EQ(count_of(log, "audit: refused with 403: GET /admin/stats"), 1U) << log;
  }
}

TEST(Audit, AKeyInAPathIsNotWritten) {
  ManualClock clock;
  Audit audit(clock);
  const std::string secret = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
  const std::string key = "sk-0123456789abcdef-" + secret;
  CaptureStderr();
  audit.admin_call({"DELETE", "/admin/keys/" + key, "::1"}, {});
  audit.admin_call({"DELETE", "/admin/keys/%73k%2D0123456789abcdef%2d" + secret, "::1"}, {});
  audit.admin_call({"DELETE", "/admin/keys/" + std::string(150, 'x') + key, "::1"}, {});
  audit.refused(401, {"GET", "/v1/models/" + key + "/more", "::1"}, "");
  const std::string log = GetCapturedStderr();
  EXPECT_EQ(count_of(log, secret.substr(0, 4)), 0U) << log;
  EXPECT_EQ(count_of(log, "DELETE /admin/keys/sk-0123456789abcdef-... from ::1"), 2U) << log;
  EXPECT_THAT(log, HasSubstr("GET /v1/models/sk-0123456789abcdef-.../more from ::1"));
}

}  // namespace
}  // namespace skein
