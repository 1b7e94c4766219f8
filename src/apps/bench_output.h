// How the commands of `skein bench` say what they found.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "bench/report.h"

namespace skein::apps {

struct BenchOutput {
  bool json = false;
  bool markdown = false;
  std::string save;  // a file for the JSON
  std::string plot;  // a file for the SVG

  bench::TableStyle style() const {
    return markdown ? bench::TableStyle::kMarkdown : bench::TableStyle::kTerminal;
  }
};

// --json, --markdown, --save, --plot.
void add_output_options(CLI::App& command, BenchOutput& output);

// Prints the report, and writes the files that were asked for. `line` is what the plot calls it.
Status show_report(const bench::BenchmarkReport& report, const BenchOutput& output,
                   const std::string& line);

Status write_whole_file(const std::string& path, const std::string& text);

// What `skein bench` and `skein bench serve` ask.
struct WorkloadFlags {
  uint32_t prompts = 20;
  uint32_t max_tokens = 100;
  uint32_t prompt_tokens = 0;  // made-up prompts of this length; 0: built-in ones
  bool shared_prefix = false;
  std::string trace;

  std::string name() const;  // for people
};
void add_workload_options(CLI::App& command, WorkloadFlags& flags);

}  // namespace skein::apps
