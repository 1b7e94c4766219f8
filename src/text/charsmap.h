// SentencePiece's precompiled character map: a double-array trie from byte strings to their
// replacements, as it lies in a model file. Every index is checked against what is there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace skein {

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

}  // namespace skein
