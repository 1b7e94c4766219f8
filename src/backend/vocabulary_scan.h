// Scans over the logits of one row in host memory, for the sampler: one pass each, 16 lanes at a
// time, the same bits on every instruction set. Backend::scan() gives one. Stateless: any thread
// may call any of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace skein {

namespace cpu {
struct KernelTable;
}

class VocabularyScan {
 public:
  // Kernels that this machine can run.
  explicit VocabularyScan(const cpu::KernelTable& kernels) : kernels_(&kernels) {}

  struct Argmax {
    size_t index =
        0;            // of the largest, the lowest among equals; 0 when there is none but -inf, NaN
    float value = 0;  // its value; -inf likewise
    bool all_finite = true;  // no NaN and no +inf; -inf is allowed, it is how tokens are ruled out
  };
  Argmax argmax(std::span<const float> values) const;

  // The sum of exp((x - max) * factor), as arithmetic.h orders it. For a softmax at temperature t:
  // max from argmax(), factor = 1 / t.
  float sum_exp(std::span<const float> values, float max, float factor) const;

  // Everything that is not below the threshold, by ascending id. `ids` and `values` have the same
  // size and take what fits; the result counts all, so more than their size means that some are
  // missing.
  size_t collect_above(std::span<const float> values, float threshold, std::span<TokenId> ids,
                       std::span<float> out) const;

  // out = exp(in); may work in place.
  void exp(std::span<const float> in, std::span<float> out) const;

 private:
  const cpu::KernelTable* kernels_;
};

}  // namespace skein
