// Whether answers depend on the load of a device: many requests in two groupings that have nothing
// in common, some of them alone as well. The last line is the figure.
//
//   skein_invariance [device] [requests]     "cuda" and 10,000 if absent
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>

#include "engine/golden_model.h"
#include "engine/pressure.h"

namespace skein {
namespace {

int run(const std::string& device, uint32_t requests) {
  ComputePool pool(2);
  ModelOptions options;
  options.device = device;
  auto model = LoadedModel::load(golden_model_path(), options, pool);
  if (!model.ok()) {
    std::fprintf(stderr, "skein_invariance: %s\n", model.message().c_str());
    return 1;
  }
  const uint32_t alone = std::min(requests, 500U);
  const PressureLoad load(**model, requests, 24, alone);
  // Small chunks and a pool that preempts, without a cache; large batches with one, by class.
  const PressureSetting settings[] = {{false, 16, 1, false, 24, 24, device},
                                      {true, 512, 2, true, 300, 250, device}};
  std::vector<PressureReport> reports;
  for (const PressureSetting& setting : settings) {
    reports.push_back(load.run(golden_model_path(), setting));
    const PressureReport& report = reports.back();
    std::printf("%s, %u at a time: %u answers, %u of the %u alone differ, %lu preemptions\n",
                setting.name().c_str(), setting.max_batch, report.requests, report.different, alone,
                static_cast<unsigned long>(report.preemptions));
    if (report.different > 0) std::printf("%s\n", report.first_difference.c_str());
  }
  uint32_t different = reports[0].different + reports[1].different;
  const size_t both = std::min(reports[0].answers.size(), reports[1].answers.size());
  for (size_t i = 0; i < both; ++i) {
    different += reports[0].answers[i] == reports[1].answers[i] ? 0 : 1;
  }
  different += requests - static_cast<uint32_t>(both);
  std::printf("invariance on %s: %u of %u requests differ\n", device.c_str(), different, requests);
  return different == 0 && !::testing::Test::HasFailure() ? 0 : 1;
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int requests = argc > 2 ? std::atoi(argv[2]) : 10000;
  return skein::run(argc > 1 ? argv[1] : "cuda", static_cast<uint32_t>(std::max(requests, 1)));
}
