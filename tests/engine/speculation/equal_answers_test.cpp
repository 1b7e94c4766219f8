// The short form; the long one is `make speculation`.
#include "engine/speculation/equal_answers.h"

#include <gtest/gtest.h>

#include "backend/isas.h"
#include "engine/tiny_model.h"
#include "format/test_folder.h"

namespace skein {
namespace {

TEST(EqualAnswers, GuessesOfEveryKindChangeNoByteOnAnyInstructionSet) {
  const testing::TestFolder folder;
  const std::string path = testing::write_tiny_model(folder);
  for (const CpuIsa isa : testable_isas()) {
    const bool slow = is_emulated(isa);
    testing::EqualAnswers answers(path, isa, slow ? 15 : 50, slow ? 60 : 120);
    const testing::EqualReport report = answers.run();
    EXPECT_EQ(report.requests, (slow ? 15U : 50U) * std::size(testing::kGuessers));
    EXPECT_EQ(report.different, 0U) << isa_name(isa) << ": " << report.first_difference;
    EXPECT_GT(report.stats.accepted_tokens, slow ? 60U : 300U);
    EXPECT_GT(report.stats.drafted_tokens, report.stats.accepted_tokens + (slow ? 60U : 300U));
    EXPECT_GT(report.by_model.accepted_tokens, slow ? 20U : 100U);
    if (slow) continue;
    EXPECT_GT(report.stop_texts, 5U);
    EXPECT_GT(report.stats.preemptions, 3U);
    EXPECT_GT(report.stats.prefix_hit_tokens, 100U);
  }
}

}  // namespace
}  // namespace skein
