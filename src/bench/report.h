// BenchmarkReport: a whole run, as JSON and as tables.
//
//   {"machine": {...}, "model": {...}, "workload": {...}, "limits": {...}, "results": [{...}, ...]}
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/result.h"
#include "bench/roofline.h"

namespace skein::bench {

// Digits that a person reads: "8.14", "52.3", "1,234".
std::string readable(double value);
// "-" where there is none.
std::string readable(const std::optional<double>& value, const char* unit = "");

struct ModelFacts {
  std::string name;  // the file's, or what the server calls it
  std::string family;
  std::string precision;
  uint64_t weight_bytes = 0;  // that a step reads; 0: unknown
  uint64_t kv_bytes_per_token = 0;
  uint64_t context = 0;
};

struct WorkloadFacts {
  std::string prompts;  // "built-in", "built-in, shared prefix", "trace FILE"
  uint64_t requests = 0;
  uint64_t max_tokens = 0;
  uint64_t rounds = 1;
  std::string url;  // of a server that was driven
};

struct BenchmarkReport {
  std::string version;
  MachineFacts machine;
  ModelFacts model;
  WorkloadFacts workload;
  std::optional<MachineLimits> limits;
  std::vector<BenchmarkResult> results;
};

std::string to_json(const BenchmarkReport& report);
// Reads a file that to_json wrote, as far as compare and plots need it. Errors name the fault.
Result<BenchmarkReport> parse_report(std::string_view json);

// Lines above a table: what was measured, where, against which limits.
std::string describe(const BenchmarkReport& report);

enum class TableStyle : uint8_t { kTerminal, kMarkdown };
std::string results_table(const std::vector<BenchmarkResult>& results, TableStyle style);
// One row per class of a mixed load; empty where there is none.
std::string classes_table(const std::vector<BenchmarkResult>& results, TableStyle style);
std::string limits_table(const std::vector<StepLimit>& limits, TableStyle style);

// Level by level, what `b` is of `a`: above 1 is more. Levels that only one has are left out;
// kInvalidArgument when that leaves none.
struct Named {
  std::string name;
  BenchmarkReport report;
};
Result<std::string> comparison_table(const Named& a, const Named& b, TableStyle style);

// A table of words: columns as wide as they need to be, for terminals; or Markdown.
class TextTable {
 public:
  // The first column is aligned to the left, all others to the right.
  explicit TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

  // As many cells as the header has: CHECKed.
  void add(std::vector<std::string> cells);
  std::string print(TableStyle style) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A picture of a run: throughput and latency against the number of requests at once, and the
// hardware's limit. One SVG that needs nothing else, readable on light and dark pages. One line per
// report (at most four); the limit and the title's second line are the first one's.
// kInvalidArgument when there is no level of concurrency to draw.
Result<std::string> plot_svg(std::span<const Named> reports);

}  // namespace skein::bench
