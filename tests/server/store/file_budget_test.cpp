// What keys keep, counted while it is written, removed and counted anew.
#include "server/store/file_budget.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "server/store/state_space.h"

namespace skein {
namespace {

using ::testing::HasSubstr;

class FileBudgetTest : public ::testing::Test {
 protected:
  std::pair<uint64_t, uint64_t> use(const FileBudget& budget) const {
    const FileUse use = budget.use_of("a");
    return {use.files, use.bytes};
  }
  StateSpace space_{"", 0};
  FileBudget own_{{}, space_, FileBudget::Counts::kOwn};
  FileBudget shared_{{}, space_, FileBudget::Counts::kShared};
};

using Use = std::pair<uint64_t, uint64_t>;

TEST_F(FileBudgetTest, AClaimCountsUntilItGoesAndWhenItIsKept) {
  {
    const auto claim = own_.claim("a");
    ASSERT_TRUE((*claim)->grow(7).ok());
    EXPECT_EQ(use(own_), Use(1, 7));
    own_.replace({});
    EXPECT_EQ(use(own_), Use(1, 7)) << "what is being written counts beside the rows";
  }
  EXPECT_EQ(use(own_), Use(0, 0));
  const auto kept = own_.claim_output("a");
  ASSERT_TRUE(kept->grow(9).ok());
  kept->keep();
  EXPECT_EQ(use(own_), Use(1, 9));
}

TEST_F(FileBudgetTest, MoreThanWasCountedGoesOnlyWhereOthersCountToo) {
  ::testing::internal::CaptureStderr();
  for (FileBudget* budget : {&shared_, &own_}) {
    budget->add("a", {1, 5});
    budget->remove("a", {1, 9});
    budget->remove("a", {1, 9});
    EXPECT_EQ(use(*budget), Use(0, 0));
    EXPECT_EQ(budget->used_bytes(), 0U);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("1 files of 9 bytes of 'a' went, of 1 of 5 bytes"));
  EXPECT_EQ(log.find("store:"), log.rfind("store:")) << "once, and not of the shared one\n" << log;
}

// Whoever counts anew in the middle of a change must not see half of it.
TEST_F(FileBudgetTest, CountsAnewAtAnyTime) {
  const std::map<std::string, FileUse> stored = {{"a", {3, 1000}}};
  shared_.replace(stored);
  std::atomic<bool> ends{false};
  std::atomic<int> low{0};
  const auto look = [&](const FileUse& least) {
    const FileUse use = shared_.use_of("a");
    if (use.files < least.files || use.bytes < least.bytes) ++low;
  };
  std::thread counter([&] {
    while (!ends) {
      shared_.replace(stored);
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> writers;
  for (int i = 0; i < 3; ++i) {
    writers.emplace_back([&] {
      for (int n = 0; n < 5000; ++n) {
        {
          const auto claim = shared_.claim("a");
          EXPECT_TRUE((*claim)->grow(10).ok());
          EXPECT_TRUE(shared_.take_bytes("a", 5).ok());
          look({4, 1015});
          shared_.give_back_bytes("a", 5);
        }
        look({3, 1000});
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  ends = true;
  counter.join();
  EXPECT_EQ(low, 0) << "something was taken off twice, or not counted";
  EXPECT_EQ(use(shared_), Use(3, 1000));
}

}  // namespace
}  // namespace skein
