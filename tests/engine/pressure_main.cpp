// The full form of the pressure tests; the last line of each is the figure. InFull: 200 requests on
// 64 blocks in every setting. FormsInFull: 1,000 requests that have a form each, among others,
// preempted and with caches of 1 KiB, against the same alone: a tiny model on every instruction
// set, the default model on the machine's best.
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "backend/cpu/isa.h"
#include "engine/pressure.h"
#include "engine/tiny_model.h"
#include "format/test_folder.h"

namespace skein {
namespace {

TEST(Pressure, InFull) {
  const std::string path = testing::default_model_path();
  ASSERT_TRUE(std::filesystem::exists(path)) << "the default model is not there (make model)";
  ComputePool pool(2);
  auto model = LoadedModel::load(path, {}, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  constexpr uint32_t kRequests = 200;
  const PressureLoad load(**model, kRequests, 160);
  if (HasFailure()) return;
  uint32_t equal = 0, all = 0;
  uint64_t preemptions = 0;
  for (const bool prefix_cache : {true, false}) {
    for (const uint32_t step_tokens : {16, 64, 512}) {
      for (const uint32_t threads : {1, 2}) {
        const PressureSetting setting{prefix_cache, step_tokens, threads, threads == 2};
        const PressureReport report = load.run(path, setting);
        equal += report.requests - report.different;
        all += kRequests;
        EXPECT_EQ(report.different, 0U) << report.first_difference;
        preemptions += report.preemptions;
        fmt::print("{}: {} of {} equal, {} preemptions ({} by class)\n", setting.name(),
                   report.requests - report.different, kRequests, report.preemptions,
                   report.class_preemptions);
      }
    }
  }
  fmt::print("pressure: {} of {} answers equal to the unloaded run\n", equal, all);
  EXPECT_EQ(equal, all);
  EXPECT_GE(preemptions, 20U);
}

class FormPressure {
 public:
  explicit FormPressure(uint32_t requests) : requests_(requests) {}

  void run(const std::string& what, const std::string& path, uint32_t longest, uint32_t blocks,
           const std::vector<std::string>& isas) {
    ComputePool pool(2);
    auto model = LoadedModel::load(path, {}, pool);
    ASSERT_TRUE(model.ok()) << model.message();
    const PressureLoad load(**model, requests_, longest, UINT32_MAX, true);
    for (const std::string& isa : isas) {
      uint64_t preemptions = 0;
      for (const uint64_t cache_bytes : {0, 1024}) {
        PressureSetting setting{cache_bytes == 0, 64, cache_bytes == 0 ? 2U : 1U, cache_bytes == 0,
                                blocks};
        setting.form_cache_bytes = cache_bytes;
        // With all they may cache, every token whose form has anything left to find is put off.
        if (cache_bytes == 0) setting.form_work = 0;
        if (!isa.empty()) setting.isa = isa;
        const PressureReport report = load.run(path, setting);
        EXPECT_EQ(report.requests, requests_);
        EXPECT_EQ(report.different, 0U) << report.first_difference;
        preemptions += report.preemptions;
        runs_ += report.requests;
        different_ += report.different + (requests_ - report.requests);
        fmt::print(
            "{}, {}, {}, caches of {}: {} of {} differ, {} preemptions ({} by class), {} tokens of "
            "{} "
            "drawn beside the steps\n",
            what, isa.empty() ? "best" : isa, setting.name(), cache_bytes == 0 ? "2 MiB" : "1 KiB",
            report.different, report.requests, report.preemptions, report.class_preemptions,
            report.put_off, tokens_of(report));
        std::fflush(stdout);
      }
      EXPECT_GE(preemptions, 15U);
    }
  }
  void print() const {
    fmt::print("forms: {} of {} answers with a form differ from the same request alone\n",
               different_, runs_);
  }

 private:
  static uint64_t tokens_of(const PressureReport& report) {
    uint64_t tokens = 0;
    for (const auto& answer : report.answers) tokens += answer.size();
    return tokens;
  }

  const uint32_t requests_;
  uint32_t runs_ = 0, different_ = 0;
};

TEST(Pressure, FormsInFull) {
  const char* said = std::getenv("SKEIN_TEST_REQUESTS");
  FormPressure pressure(said != nullptr ? static_cast<uint32_t>(std::atoi(said)) : 1000);
  std::vector<std::string> isas;
  for (const char* isa : {"scalar", "avx2", "avx512", "amx"}) {
    if (choose_isa(isa).ok()) isas.emplace_back(isa);
  }
  const testing::TestFolder folder;
  pressure.run("tiny", testing::write_tiny_model(folder), 80, 9, isas);
  const std::string path = testing::default_model_path();
  ASSERT_TRUE(std::filesystem::exists(path)) << "the default model is not there (make model)";
  pressure.run("default", path, 16, 10, {""});
  pressure.print();
}

}  // namespace
}  // namespace skein
