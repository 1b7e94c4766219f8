// The line that a terminal shows while a level of load runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "bench/run_benchmark.h"

namespace skein::apps {

// On stderr, redrawn in place; nothing where stderr is no terminal.
class BenchProgress final : public bench::BenchObserver {
 public:
  BenchProgress();
  ~BenchProgress() override { clear(); }

  void begins(const char* mode, uint32_t concurrency, uint64_t tokens) override;
  void got_tokens(uint64_t tokens_so_far) override;
  void ended(const bench::BenchmarkResult& result) override;

 private:
  using Time = std::chrono::steady_clock::time_point;
  void draw(uint64_t tokens, Time now);
  void clear();

  const bool shown_;
  bool drawn_ = false;
  std::string what_;
  uint64_t total_ = 0;
  Time began_, last_drawn_;
};

}  // namespace skein::apps
