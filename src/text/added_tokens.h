// Finds added tokens in a text: the leftmost first, the longest of those. Immutable once made; any
// thread may use it. Time is linear in the text times the longest token (512 bytes).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"
#include "text/trie.h"

namespace skein {

// The parts of a text that we wrote ourselves.
class TrustedRanges {
 public:
  // Ranges are added in order and do not overlap; neighbours become one.
  void add(size_t begin, size_t end);
  bool empty() const { return ranges_.empty(); }
  bool covers(size_t begin, size_t end) const;

  struct Range {
    size_t begin;
    size_t end;
  };
  const std::vector<Range>& ranges() const { return ranges_; }
  // The bytes between `begin` and `end`, counted from `begin`.
  TrustedRanges within(size_t begin, size_t end) const;

 private:
  std::vector<Range>::const_iterator after(size_t at) const;  // the first that begins behind `at`

  std::vector<Range> ranges_;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  static Result<AddedTokens> create(std::vector<AddedToken> tokens);

  bool empty() const { return trie_.empty(); }

  struct Match {
    size_t begin = 0;  // with the white space that the token takes
    size_t end = 0;
    TokenId id = kNoToken;  // kNoToken: there is none from here on
  };
  // The first match that starts at or after `from`. Special tokens count only where `trusted`
  // covers them whole.
  Match next(std::string_view text, size_t from, const TrustedRanges& trusted) const;

 private:
  bool stands_alone(std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  Trie trie_;  // values are indices of tokens_
};

}  // namespace skein
