// The long form of the simulation: many seeds on several threads.
//   skein_simulate --seeds 1000 --steps 10000 --jobs 2     all must hold; rare paths must be seen
//   skein_simulate --seed 17 --steps 10000                 one seed again
//   skein_simulate --expect-violation --seeds 1000 ...     a planted defect must be caught
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/core.h>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sim/allocation_hooks.h"
#include "sim/scale_probe.h"
#include "sim/simulator.h"

namespace {

using namespace skein;       // NOLINT: a main file
using namespace skein::sim;  // NOLINT

struct Options {
  uint64_t first = 1;
  uint64_t seeds = 100;
  uint32_t steps = 10'000;
  uint32_t jobs = 1;
  bool expect_violation = false;
  bool check_paths = true;
};

struct Totals {
  std::mutex mutex;
  uint64_t violations = 0;
  uint64_t steps = 0;
  uint64_t requests = 0;
  uint64_t tokens = 0;
  uint64_t worst_overtake_permille = 0;
  uint64_t seeds_with[kPaths] = {};
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--expect-violation") {
      options.expect_violation = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const uint64_t value = std::strtoull(argv[++i], nullptr, 10);
    if (name == "--seed")
      options.first = value, options.seeds = 1, options.check_paths = false;
    else if (name == "--seeds")
      options.seeds = value;
    else if (name == "--first")
      options.first = value;
    else if (name == "--steps")
      options.steps = static_cast<uint32_t>(value);
    else if (name == "--jobs")
      options.jobs = std::max<uint32_t>(1, static_cast<uint32_t>(value));
    else
      return false;
  }
  return options.seeds > 0 && options.steps > 0;
}

void run_seeds(const Options& options, std::atomic<uint64_t>& next, Totals& totals) {
  for (uint64_t i; (i = next.fetch_add(1)) < options.seeds;) {
    SimConfig config = random_config(options.first + i, options.steps);
    config.hooks = allocation_hooks();
    SimReport report = simulate(config);
    if (report.violation.empty() && report.steps < options.steps) {
      report.violation = "the run gave only " + std::to_string(report.steps) + " steps";
    }
    const std::lock_guard lock(totals.mutex);
    totals.steps += report.steps;
    totals.requests += report.requests;
    totals.tokens += report.tokens;
    totals.worst_overtake_permille =
        std::max(totals.worst_overtake_permille, report.worst_overtake_permille);
    for (size_t p = 0; p < kPaths; ++p) totals.seeds_with[p] += report.paths[p] > 0 ? 1 : 0;
    if (report.violation.empty()) continue;
    ++totals.violations;
    fmt::print("violation: seed {}: {}; replay: skein_simulate --seed {} --steps {}\n", config.seed,
               report.violation, config.seed, options.steps);
    std::fflush(stdout);
    if (options.expect_violation) next = options.seeds;
  }
}

// Every rare path in at least 1 % of the seeds.
uint64_t rare_paths_missed(const Options& options, const Totals& totals) {
  uint64_t missed = 0;
  for (size_t p = 0; p < kPaths; ++p) {
    const bool enough = totals.seeds_with[p] * 100 >= options.seeds;
    missed += enough ? 0 : 1;
    std::printf(
        "  %-20s in %5.1f %% of seeds%s\n", std::string(name_of(static_cast<Path>(p))).c_str(),
        100.0 * static_cast<double>(totals.seeds_with[p]) / static_cast<double>(options.seeds),
        enough ? "" : "   <- below 1 %");
  }
  return missed;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: skein_simulate [--seeds N | --seed S] [--first S] [--steps N] [--jobs N] "
                 "[--expect-violation]\n");
    return 2;
  }
  if (options.expect_violation) {  // a CHECK of the product catches a planted defect as well
    std::signal(SIGABRT, [](int) { std::_Exit(0); });
  }
  const auto start = std::chrono::steady_clock::now();
  Totals totals;
  std::atomic<uint64_t> next{0};
  std::vector<std::thread> workers;
  for (uint32_t i = 0; i < options.jobs; ++i)
    workers.emplace_back([&] { run_seeds(options, next, totals); });
  for (std::thread& worker : workers) worker.join();
  if (const std::string finding = probe_scale(); !finding.empty()) {
    ++totals.violations;
    std::printf("violation: %s\n", finding.c_str());
  }
  if (options.expect_violation && totals.violations > 0) return std::puts("caught"), 0;
  const uint64_t missed = options.check_paths ? rare_paths_missed(options, totals) : 0;
  if (options.expect_violation) {
    std::puts(missed > 0 ? "caught: rare paths are no longer taken" : "NOT caught");
    return missed > 0 ? 0 : 1;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("  latest arrival that overtook: %.3f of class gap / rate\n",
              static_cast<double>(totals.worst_overtake_permille) / 1000);
  fmt::print(
      "simulate: {} seeds x {} steps ({} requests, {} tokens): {} violations, {} of {} rare paths "
      "below 1 %, {:.0f} s\n",
      options.seeds, options.steps, totals.requests, totals.tokens, totals.violations, missed,
      kPaths, seconds);
  return totals.violations + missed > 0 ? 1 : 0;
}
