// Runners of batches on servers that share a store. tests/fleet/with_postgres.sh runs them.
#include <gmock/gmock.h>
#include <set>

#include "server/batch/batch_fixture.h"

namespace skein {
namespace {

using ::testing::ElementsAre;
using testing::finish;
using testing::input_of;
using testing::integer_of;
using ::testing::IsEmpty;

class BatchNodesTest : public BatchTest {
 protected:
  BatchNodesTest() {
    other_store_ = testing::open_store({.state_dir = folder_ / "state",
                                        .node = "other",
                                        .group_window_us = 0,
                                        .unix_time_s = [this] { return now_s_.load(); }});
    other_ = std::make_unique<BatchRunner>(*other_store_, clock_, [this] { return models_; });
  }
  ~BatchNodesTest() override { other_.reset(); }
  std::vector<BatchLine> lines_of_other(size_t n) {
    auto work = other_->next_lines(n);
    SKEIN_CHECK(work.ok(), "{}", work.message());
    return std::move(*work);
  }
  // As after the time of its lease without a word.
  void end_lease_of(const std::string& name) {
    const std::string expire = fmt::format(
        "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 second' WHERE name = '{}'",
        name);
    ASSERT_TRUE(testing::sql(*other_store_, expire).ok());
    ASSERT_TRUE(other_store_->thread()
                    .write_and_wait([](Database& db) { return end_dead_nodes(db).status(); })
                    .ok());
  }

  std::unique_ptr<Store> other_store_;
  std::unique_ptr<BatchRunner> other_;
};

TEST_F(BatchNodesTest, TwoServersRunABatchTogetherAndOneEndsIt) {
  const std::string id = start("a", input_of(9));
  std::set<int64_t> seen;
  for (int i = 0; i < 20 && seen.size() < 9; ++i) {
    clock_.advance(2 * kUsPerSecond);
    for (const BatchLine& line : lines(2)) {
      EXPECT_TRUE(seen.insert(line.id.line).second);
      EXPECT_TRUE(finish(*runner_, line, 200, "{}").ok());
    }
    for (const BatchLine& line : lines_of_other(2)) {
      EXPECT_TRUE(seen.insert(line.id.line).second);
      EXPECT_TRUE(finish(*other_, line, 200, "{}").ok());
    }
  }
  EXPECT_EQ(seen.size(), 9U);
  for (int i = 0; i < 10 && status(id) != "completed"; ++i) {
    clock_.advance(2 * kUsPerSecond);
    lines(0);
    lines_of_other(0);
  }
  EXPECT_EQ(status(id), "completed");
  EXPECT_EQ(get(id).completed_lines, 9U);
  EXPECT_EQ(jsonl(get(id).output_file).size(), 9U);
  EXPECT_EQ(integer_of(*store_, "SELECT count(*) FROM files"), 2) << "one output";
}

TEST_F(BatchNodesTest, AServerWhoseLeaseEndedIsFencedAndGoesOnInANewEpoch) {
  const std::string id = start("a", input_of(3));
  const auto work = lines(2);
  ASSERT_THAT(numbers(work), ElementsAre(1, 2));
  const auto request = std::make_shared<FakeRequest>();
  runner_->set_request(work[0].id, request);
  const int64_t old = store_->epoch();
  end_lease_of("test");
  EXPECT_EQ(finish(*runner_, work[1], 200, "{}").code(), Code::kNotFound) << "too late";
  EXPECT_THAT(lines(4), IsEmpty()) << "it sees that its epoch has ended";
  EXPECT_TRUE(request->cancelled);
  clock_.advance(2 * kUsPerSecond);
  const auto again = lines(4);  // alone, since it was there at an end
  EXPECT_GT(store_->epoch(), old);
  ASSERT_THAT(numbers(again), ElementsAre(1));
  EXPECT_TRUE(finish(*runner_, again[0], 200, "{}").ok());
}

TEST_F(BatchNodesTest, LinesOfAServerThatEndedAreFoundByOneThatIsIdle) {
  start("a", input_of(2));
  ASSERT_THAT(numbers(lines(2)), ElementsAre(1, 2));
  EXPECT_THAT(lines_of_other(2), IsEmpty());
  end_lease_of("test");
  clock_.advance(2 * kUsPerSecond);
  EXPECT_THAT(numbers(lines_of_other(2)), ElementsAre(1));
}

TEST_F(BatchNodesTest, ABatchIsNotServedTwiceAsFastByTwo) {
  start("a", input_of(1));
  for (int i = 0; i < 3; ++i) {
    clock_.advance(40 * kUsPerSecond);
    lines(0);
    lines_of_other(0);
  }
  EXPECT_LE(integer_of(*store_, "SELECT served_s FROM batches"), 120);
  EXPECT_GE(integer_of(*store_, "SELECT served_s FROM batches"), 80);
}

}  // namespace
}  // namespace skein
