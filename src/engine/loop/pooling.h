// Pooling: how the hidden states of a prompt's tokens, the model's rows after its last norm, become
// one vector.
//
//   kLast   the row of the last token, as it is. The rows before it are not needed, so that what
//   the
//           prefix cache holds of the prompt is not computed again; of a prompt that it holds
//           whole, the last token is.
//   kMean   every row counts, so none comes from the prefix cache (RequestSpec::wants_every_row).
//   In
//           each column the float32 values are added in float64, from position 0 on, one after the
//           other; the sum is divided by their number and rounded to float32 once.
//
//   kFirst  of an encoder: the row of the first token, which has seen all of the text.
//
// A decoder's row depends on its own tokens alone (backend.h), an encoder's on those of its text,
// and its place in the sum on its position alone: chunks, neighbours, preemption and what is cached
// never change a bit of the result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace skein {

enum class Pooling : uint8_t { kNone, kLast, kMean, kFirst };

// Takes the rows of one prompt as they are computed. For one thread at a time.
class Pooler {
 public:
  // `rows`: of positions `start` and following, one after the other. What begins at 0 begins anew:
  // the request was preempted. With kLast only the last row of `rows` counts, and it may be all
  // there is.
  void add(Pooling pooling, uint32_t start, uint32_t count, std::span<const float> rows);
  // The vector; whatever was added is gone.
  std::vector<float> take();

 private:
  std::vector<double> sums_;
  uint32_t count_ = 0;  // rows in the sums: positions 0 to count_ - 1
  std::vector<float> last_;
};

// kInternal names a value that is no number.
Status check_finite(std::span<const float> values);

}  // namespace skein
