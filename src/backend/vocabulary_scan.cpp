#include "backend/vocabulary_scan.h"

#include "backend/cpu/kernel_table.h"
#include "backend/host/flush_denormals.h"
#include "base/check.h"

namespace skein {

VocabularyScan::Argmax VocabularyScan::argmax(std::span<const float> values) const {
  const FlushDenormals flush;
  Argmax best;
  best.value = kernels_->largest(values.data(), values.size(), &best.all_finite);
  best.index = kernels_->find(values.data(), values.size(), best.value);
  if (best.index == values.size()) {  // all of them NaN
    best.index = 0;
  } else {
    best.value = values[best.index];  // a subnormal that was compared as zero comes back whole
  }
  return best;
}

float VocabularyScan::sum_exp(std::span<const float> values, float max, float factor) const {
  const FlushDenormals flush;
  return kernels_->sum_exp(values.data(), values.size(), max, factor);
}

size_t VocabularyScan::collect_above(std::span<const float> values, float threshold,
                                     std::span<TokenId> ids, std::span<float> out) const {
  SKEIN_CHECK(ids.size() == out.size(), "room for {} ids and {} values", ids.size(), out.size());
  const FlushDenormals flush;
  return kernels_->collect(values.data(), values.size(), threshold, ids.data(), out.data(),
                           ids.size());
}

void VocabularyScan::exp(std::span<const float> in, std::span<float> out) const {
  SKEIN_CHECK(in.size() == out.size(), "exp of {} into {}", in.size(), out.size());
  const FlushDenormals flush;
  kernels_->exp(in.data(), in.size(), out.data());
}

}  // namespace skein
