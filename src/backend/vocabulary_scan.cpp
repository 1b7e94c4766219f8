#include "backend/vocabulary_scan.h"

#include "backend/cpu/kernel_table.h"
#include "backend/host/flush_denormals.h"
#include "base/check.h"

namespace skein {

VocabularyScan::Argmax VocabularyScan::argmax(LogitRow row) const {
  const FlushDenormals flush;
  const auto [values, allowed] = row;
  Argmax best;
  best.value = kernels_->largest(values.data(), values.size(), allowed, &best.all_finite);
  best.index = kernels_->find(values.data(), values.size(), allowed, best.value);
  if (best.index == values.size()) {  // all of them NaN, or none counts
    best.index = 0;
  } else {
    best.value = values[best.index];  // a subnormal that was compared as zero comes back whole
  }
  return best;
}

float VocabularyScan::sum_exp(LogitRow row, float max, float factor) const {
  const FlushDenormals flush;
  return kernels_->sum_exp(row.values.data(), row.values.size(), row.allowed, max, factor);
}

size_t VocabularyScan::collect_above(LogitRow row, float threshold, std::span<TokenId> ids,
                                     std::span<float> out) const {
  SKEIN_CHECK(ids.size() == out.size(), "room for {} ids and {} values", ids.size(), out.size());
  const FlushDenormals flush;
  return kernels_->collect(row.values.data(), row.values.size(), row.allowed, threshold, ids.data(),
                           out.data(), ids.size());
}

void VocabularyScan::exp(std::span<const float> in, std::span<float> out) const {
  SKEIN_CHECK(in.size() == out.size(), "exp of {} into {}", in.size(), out.size());
  const FlushDenormals flush;
  kernels_->exp(in.data(), in.size(), out.data());
}

}  // namespace skein
