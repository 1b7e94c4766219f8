// The short form; the long one is `make speculation`.
#include "engine/speculation/equal_answers.h"

#include <gtest/gtest.h>

#include "backend/cpu/isa.h"
#include "engine/tiny_model.h"
#include "format/test_folder.h"

namespace skein {
namespace {

TEST(EqualAnswers, GuessesOfEveryKindChangeNoByteOnAnyInstructionSet) {
  const testing::TestFolder folder;
  const std::string path = testing::write_tiny_model(folder);
  SchedulerStats all;
  for (const char* isa : {"scalar", "avx2", "avx512", "amx"}) {
    if (!choose_isa(isa).ok()) continue;
    testing::EqualAnswers answers(path, isa, 50, 120);
    const testing::EqualReport report = answers.run();
    EXPECT_EQ(report.requests, 200U);
    EXPECT_EQ(report.different, 0U) << isa << ": " << report.first_difference;
    EXPECT_GT(report.stats.accepted_tokens, 300U);
    EXPECT_GT(report.stats.drafted_tokens, report.stats.accepted_tokens + 300U);
    EXPECT_GT(report.stats.preemptions, 3U);
    EXPECT_GT(report.stats.prefix_hit_tokens, 100U);
  }
}

}  // namespace
}  // namespace skein
