// The normalizer of a tokenizer: what happens to text before it is split. Immutable once made; any
// thread may use it. Linear time (n log n for long runs of combining marks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace skein {

// SentencePiece's precompiled character map: a double-array trie from byte strings to their
// replacements, as it lies in a model file. Every index is checked against what is there.
class Charsmap {
 public:
  // The blob: trie size in bytes (uint32), the trie, the replacements, each ended by a zero byte.
  static Result<Charsmap> parse(std::string_view blob);

  // The text with the longest mapped prefix replaced at each position; stops growing at `limit`
  // bytes, which the caller takes as an error.
  std::string apply(std::string_view text, size_t limit) const;

 private:
  struct Match {
    size_t length = 0;
    uint32_t replacement = 0;  // offset
  };
  Match longest_match(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

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
