// The parts of every command of `skein bench`: the model, the requests, the line of progress, and
// the report.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/dummy_model.h"
#include "apps/options.h"
#include "base/compute_pool.h"
#include "bench/report.h"
#include "bench/run_benchmark.h"
#include "bench/workload.h"
#include "engine/loading/loaded_model.h"

namespace skein::apps {

struct BenchModelFlags {
  ModelFlags model;
  std::string dummy_config;
  std::string shape;  // a name of dummy_model.cpp
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
Result<BenchModel> load_bench_model(const BenchModelFlags& flags, const DecoderLimits& limits);

inline bench::TableStyle table_style(bool markdown) {
  return markdown ? bench::TableStyle::kMarkdown : bench::TableStyle::kTerminal;
}

struct BenchOutput {
  bool json = false;
  bool markdown = false;
  std::string save;  // a file for the JSON
  std::string plot;  // a file for the SVG
};

// --json, --markdown, --save, --plot.
void add_output_options(CLI::App& command, BenchOutput& output);

// Prints the report, and writes the files that were asked for. `line` is what the plot calls it.
Status show_report(const bench::BenchmarkReport& report, const BenchOutput& output,
                   const std::string& line);

// The requests of `skein bench` and `skein bench serve`.
struct WorkloadFlags {
  uint32_t prompts = 20;
  uint32_t max_tokens = 100;
  uint32_t prompt_tokens = 0;  // made-up prompts of this length; 0: built-in ones
  bool shared_prefix = false;
  std::string trace;

  std::string name() const;  // for people
};
void add_workload_options(CLI::App& command, WorkloadFlags& flags);

// The items of --trace.
Result<std::vector<bench::WorkItem>> read_trace(const WorkloadFlags& flags);

// `count` items from number `first` on. Those of a trace are used again from the start where there
// are too few of them; `first` does not matter then.
Result<std::vector<bench::WorkItem>> work_items(const WorkloadFlags& flags, uint32_t first,
                                                uint32_t count);

// The line that a terminal shows while a level of load runs. On stderr, redrawn in place; nothing
// where stderr is no terminal.
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

void add_bench_serve(CLI::App& bench, CommandResult& result);
void add_bench_sim(CLI::App& bench, CommandResult& result);

}  // namespace skein::apps
