// skein bench --speculation: what guessing is worth, by workload.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench_setup.h"
#include "apps/commands.h"

namespace skein::apps {

struct SpeculationBench {
  BenchModelFlags model;
  std::string how;          // ngram or auto
  std::string draft_model;  // that guesses too; empty: none
  std::vector<uint32_t> levels;
  uint32_t rounds = 1;
  uint32_t max_tokens = 128;
  bool markdown = false;
};

// With and without it in turns, over the same answers; one that differs is an error.
CommandResult compare_speculation(const SpeculationBench& options);

}  // namespace skein::apps
