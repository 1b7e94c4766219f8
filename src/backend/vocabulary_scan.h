// Scans over the logits of one row in host memory, for the sampler: one pass each, 16 lanes at a
// time, the same bits on every instruction set. Backend::scan() gives one. Stateless: any thread
// may call any of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace skein {

namespace cpu {
struct KernelTable;
}

// The logits of a row and which of its tokens count, as views: what does not count may be anything.
struct LogitRow {
  template <std::convertible_to<std::span<const float>> Logits>
  LogitRow(const Logits& logits, const uint64_t* counting = nullptr)  // NOLINT: all count: implicit
      : values(logits), allowed(counting) {}

  std::span<const float> values;
  // A bit for each token that counts, in words of 64, none past the last; nullptr: all of them do.
  const uint64_t* allowed;

  bool allows(size_t token) const {
    return allowed == nullptr || (allowed[token / 64] >> (token % 64) & 1) != 0;
  }
  // `first` is a multiple of 64.
  LogitRow part(size_t first, size_t count) const {
    return {values.subspan(first, count), allowed == nullptr ? nullptr : allowed + first / 64};
  }
};

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
  Argmax argmax(LogitRow row) const;

  // The sum of exp((x - max) * factor), as arithmetic.h orders it, of what does not count as 0. For
  // a softmax at temperature t: max from argmax(), factor = 1 / t.
  float sum_exp(LogitRow row, float max, float factor) const;

  // Everything that is not below the threshold, by ascending id. `ids` and `values` have the same
  // size and take what fits; the result counts all, so more than their size means that some are
  // missing.
  size_t collect_above(LogitRow row, float threshold, std::span<TokenId> ids,
                       std::span<float> out) const;

  // out = exp(in); may work in place.
  void exp(std::span<const float> in, std::span<float> out) const;

 private:
  const cpu::KernelTable* kernels_;
};

}  // namespace skein
