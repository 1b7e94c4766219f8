// The subcommands of `skein bench`, and what they share.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench_output.h"
#include "apps/commands.h"
#include "apps/dummy_model.h"
#include "apps/model_options.h"
#include "base/compute_pool.h"
#include "bench/workload.h"
#include "engine/loading/loaded_model.h"

namespace skein::apps {

struct BenchModelFlags {
  ModelFlags model;
  std::string dummy_config;
  std::string dummy_quant = "Q4_0";

  std::string name() const;  // for people
};
// As add_model_options, but the model may be left out, or be random weights of some shape.
void add_bench_model_options(CLI::App& command, BenchModelFlags& flags);

// Destroyed in the reverse order: the model needs the pool, and both the file.
struct BenchModel {
  std::unique_ptr<TemporaryFile> file;
  std::unique_ptr<ComputePool> pool;
  std::shared_ptr<LoadedModel> model;
};
Result<BenchModel> load_bench_model(const BenchModelFlags& flags, const BatchLimits& limits);

// The items of --trace.
Result<std::vector<bench::WorkItem>> read_trace(const WorkloadFlags& flags);

// `count` items from number `first` on. Those of a trace are used again from the start where there
// are too few of them; `first` does not matter then.
Result<std::vector<bench::WorkItem>> work_items(const WorkloadFlags& flags, uint32_t first,
                                                uint32_t count);

void add_bench_serve(CLI::App& bench, CommandResult& result);
void add_bench_compare(CLI::App& bench, CommandResult& result);
void add_bench_sim(CLI::App& bench, CommandResult& result);
void add_bench_roofline(CLI::App& bench, CommandResult& result);

}  // namespace skein::apps
