// What a server does beside others: one that has replaced it, or that has other models.
#include <filesystem>
#include <gmock/gmock.h>

#include "server/batch/batch_fixture.h"

namespace skein {
namespace {

using ::testing::ElementsAre;
using testing::finish;
using testing::input_of;
using testing::integer_of;
using Json = nlohmann::json;

TEST_F(BatchTest, AServerThatWasReplacedRunsNothingAnyMore) {
  SKEIN_SQLITE_ALONE();
  const std::string id = start("a", input_of(3));
  const auto work = lines(2);
  const auto request = std::make_shared<FakeRequest>();
  runner_->set_request(work[0].id, request);
  std::filesystem::remove(folder_ / "state/server.lock");
  const auto successor = testing::open_state(folder_ / "state");
  clock_.advance(31 * kUsPerSecond);  // the epoch is renewed when time is counted
  EXPECT_TRUE(lines(10).empty());
  EXPECT_TRUE(request->cancelled) << "the other server runs it";
  EXPECT_EQ(runner_->running(), 0U);
  EXPECT_EQ(finish(*runner_, work[0], 200, "{}").code(), Code::kNotFound);
  runner_->return_line(work[1].id);
  clock_.advance(25 * 3600 * kUsPerSecond);
  EXPECT_TRUE(lines(10).empty());
  EXPECT_EQ(runner_->due_us(), kNever);
  EXPECT_EQ(status(id), "in_progress") << "not this server's to expire";
  EXPECT_EQ(integer_of(*successor, "SELECT count(*) FROM batch_lines WHERE deaths = 1"), 2);
}

TEST_F(BatchTest, AClaimTellsAServerThatItWasReplaced) {
  SKEIN_SQLITE_ALONE();
  start("a", input_of(3));
  const auto work = lines(1);
  std::filesystem::remove(folder_ / "state/server.lock");
  const auto successor = testing::open_state(folder_ / "state");
  EXPECT_TRUE(lines(10).empty()) << "long before the epoch is renewed";
  EXPECT_EQ(runner_->running(), 0U);
  EXPECT_EQ(runner_->due_us(), kNever);
}

std::string line_for(const std::string& custom_id, const std::string& model) {
  return Json{{"custom_id", custom_id},
              {"method", "POST"},
              {"url", "/v1/chat/completions"},
              {"body", {{"model", model}}}}
             .dump() +
         "\n";
}

TEST_F(BatchTest, LinesWaitForAServerWithTheirModel) {
  models_ = {"small", "large"};
  const std::string id =
      start("a", line_for("1", "large") + line_for("2", "none") + line_for("3", "small") +
                     line_for("4", std::string(5000, 'x')));
  EXPECT_EQ(get(id).failed_lines, 1U) << "what nobody has is not waited for";
  reopen();
  models_ = {"small"};
  const auto work = lines(10);
  EXPECT_THAT(numbers(work), ElementsAre(3, 4));
  for (const BatchLine& line : work) ASSERT_TRUE(finish(*runner_, line, 200, "{}").ok());
  settle();
  EXPECT_TRUE(lines(10).empty());
  EXPECT_EQ(status(id), "in_progress");
  models_.emplace_back("large");  // as a reload finds it
  const auto rest = lines(10);
  ASSERT_THAT(numbers(rest), ElementsAre(1));
  ASSERT_TRUE(finish(*runner_, rest[0], 200, "{}").ok());
  settle();
  const auto errors = jsonl(get(id).error_file);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0]["response"]["status_code"], 404);
  EXPECT_EQ(errors[0]["response"]["body"]["error"]["code"], "model_not_found");
}

}  // namespace
}  // namespace skein
