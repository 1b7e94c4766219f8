#include "engine/loop/pooling.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace skein {

void Pooler::add(Pooling pooling, uint32_t start, uint32_t count, std::span<const float> rows) {
  if (pooling == Pooling::kLast) {
    last_.assign(rows.begin(), rows.end());
    return;
  }
  if (pooling == Pooling::kFirst) {
    SKEIN_CHECK(start == 0, "the first of the rows from {} on", start);
    const std::span<const float> first = rows.first(rows.size() / count);
    last_.assign(first.begin(), first.end());
    count_ = 0;
    return;
  }
  if (start == 0) {
    count_ = 0;
    sums_.clear();
  }
  SKEIN_CHECK(start == count_, "rows from {} on are added to the sum of {}", start, count_);
  const size_t width = rows.size() / count;
  sums_.resize(width, 0.0);
  for (uint32_t row = 0; row < count; ++row) {
    const std::span<const float> values = rows.subspan(row * width, width);
    for (size_t i = 0; i < width; ++i) sums_[i] += double{values[i]};
  }
  count_ += count;
}

std::vector<float> Pooler::take() {
  if (count_ == 0) return std::exchange(last_, {});
  std::vector<float> mean(sums_.size());
  for (size_t i = 0; i < mean.size(); ++i) mean[i] = static_cast<float>(sums_[i] / count_);
  sums_ = {};
  count_ = 0;
  return mean;
}

Status check_finite(std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return internal_error("hidden value {} is {}", i, values[i]);
  }
  return {};
}

}  // namespace skein
