// The long form of the tests of speculation; the last line is the figure. 10,000 requests of a tiny
// model over all instruction sets that the machine has, and 1,000 of the default model on its best.
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "backend/isas.h"
#include "engine/speculation/equal_answers.h"
#include "engine/tiny_model.h"
#include "format/test_folder.h"

namespace skein {
namespace {

uint32_t from_environment(const char* name, uint32_t otherwise) {
  const char* said = std::getenv(name);
  return said != nullptr ? static_cast<uint32_t>(std::atoi(said)) : otherwise;
}

TEST(SpeculationInFull, GuessesChangeNoByte) {
  uint32_t requests = 0;
  uint32_t different = 0;
  const auto add = [&](const std::string& what, const testing::EqualReport& report) {
    EXPECT_EQ(report.different, 0U) << what << ": " << report.first_difference;
    requests += report.requests;
    different += report.different;
    fmt::print(
        "{}: {} of {} differ; {} of {} guesses right ({} of {} with the draft model), {} "
        "preemptions, {} tokens cached, {} stopped by a text or a token\n",
        what, report.different, report.requests, report.stats.accepted_tokens,
        report.stats.drafted_tokens, report.by_model.accepted_tokens,
        report.by_model.drafted_tokens, report.stats.preemptions, report.stats.prefix_hit_tokens,
        report.stop_texts);
    std::fflush(stdout);
  };
  const std::vector<CpuIsa> isas = testable_isas();
  constexpr uint32_t kGuesserCount = std::size(testing::kGuessers);
  const uint32_t wanted = from_environment("SKEIN_TEST_REQUESTS", 10'000);
  const auto each = static_cast<uint32_t>(wanted / kGuesserCount / isas.size() + 1);
  const testing::TestFolder folder;
  const std::string tiny = testing::write_tiny_model(folder);
  for (const CpuIsa isa : isas) {
    const std::string name = isa_name(isa).data();
    add("tiny, " + name + (is_emulated(isa) ? ", emulated" : ""),
        testing::EqualAnswers(tiny, isa, each, 80).run());
  }
  const std::string path = testing::default_model_path();
  if (std::filesystem::exists(path)) {
    const uint32_t some = from_environment("SKEIN_TEST_DEFAULT_REQUESTS", 1000) / kGuesserCount;
    add("default model", testing::EqualAnswers(path, std::nullopt, some, 40).run());
  } else {
    fmt::print("the default model is not there (make model)\n");
  }
  fmt::print("speculation: {} of {} answers differ from the same without it\n", different,
             requests);
}

}  // namespace
}  // namespace skein
