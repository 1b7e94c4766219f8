// A table of words: columns as wide as they need to be, for terminals; or Markdown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report.h"

namespace skein::bench {

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

// Digits that a person reads: "8.14", "52.3", "1,234".
std::string readable(double value);
// "-" where there is none.
std::string readable(const std::optional<double>& value, const char* unit = "");

}  // namespace skein::bench
