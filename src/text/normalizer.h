// The normalizer of a tokenizer: what happens to text before it is split. Immutable once made; any
// thread may use it. Linear time (n log n for long runs of combining marks).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/charsmap.h"
#include "text/tokenizer_spec.h"

namespace skein {

class Normalizer {
 public:
  Normalizer() = default;
  static Result<Normalizer> create(std::vector<NormalizerStep> steps);

  bool empty() const { return steps_.empty(); }
  // Bytes that are not UTF-8 stay as they are. Fails when the result is out of all proportion.
  Result<std::string> apply(std::string_view text) const;
  // For a part of a text: nothing is put before it or stripped off its ends.
  Result<std::string> apply_inside(std::string_view text) const;

 private:
  Result<std::string> apply(std::string_view text, bool is_inside) const;

  std::vector<NormalizerStep> steps_;
  std::vector<Charsmap> charsmaps_;  // of the kCharsmap steps, in order
};

}  // namespace skein
