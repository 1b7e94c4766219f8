#include "text/unicode.h"

#include <algorithm>
#include <iterator>
#include <memory>

namespace skein::unicode {
namespace {

struct Run {
  uint32_t first;
  uint8_t value;  // category in the low five bits, 0x20 for \s, 0x40 for \w
};

constexpr Run kRuns[] = {
#include "text/unicode_data.inc"
};

}  // namespace

Table::Table() {
  for (size_t i = 0; i < std::size(kRuns); ++i) {
    const uint32_t end = i + 1 < std::size(kRuns) ? kRuns[i + 1].first : uint32_t{0x110000};
    std::fill(value_.begin() + kRuns[i].first, value_.begin() + end, kRuns[i].value);
  }
  for (uint32_t v = 0; v < masks_.size(); ++v) {
    masks_[v] = ((v & 0x1F) < 30 ? Classes{1} << (v & 0x1F) : 0) | ((v & 0x20) != 0 ? kSpace : 0) |
                ((v & 0x40) != 0 ? kWord : 0);
  }
}

const Table& table() {
  static const std::unique_ptr<const Table> instance = std::make_unique<const Table>();
  return *instance;
}

}  // namespace skein::unicode
