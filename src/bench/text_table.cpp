#include "bench/text_table.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "base/check.h"

namespace skein::bench {

void TextTable::add(std::vector<std::string> cells) {
  SKEIN_CHECK(cells.size() == rows_.front().size(), "{} cells below a header of {}", cells.size(),
              rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::print(TableStyle style) const {
  const size_t columns = rows_.front().size();
  std::vector<size_t> widths(columns, style == TableStyle::kMarkdown ? 3 : 0);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  const bool markdown = style == TableStyle::kMarkdown;
  std::string out;
  for (size_t r = 0; r < rows_.size(); ++r) {
    out += markdown ? "| " : "";
    for (size_t c = 0; c < columns; ++c) {
      if (c > 0) out += markdown ? " | " : "  ";
      out += c == 0 ? fmt::format("{:<{}}", rows_[r][c], widths[c])
                    : fmt::format("{:>{}}", rows_[r][c], widths[c]);
    }
    while (!markdown && out.back() == ' ') out.pop_back();
    out += markdown ? " |\n" : "\n";
    if (r > 0 || !markdown) continue;
    for (size_t c = 0; c < columns; ++c) {
      out += c == 0 ? "|" + std::string(widths[c] + 2, '-') + "|"
                    : std::string(widths[c] + 1, '-') + ":|";
    }
    out += "\n";
  }
  return out;
}

std::string readable(double value) {
  const double size = std::abs(value);
  if (size >= 99.95) {
    std::string digits = fmt::format("{:.0f}", value);
    for (size_t i = digits.size(); i > 3 && digits[i - 4] != '-';) digits.insert(i -= 3, 1, ',');
    return digits;
  }
  return size >= 9.995 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

std::string readable(const std::optional<double>& value, const char* unit) {
  return value ? readable(*value) + unit : "-";
}

}  // namespace skein::bench
